"""What SQL asks of each table.

statements            statements beyond queries: indexes, views, EXPLAIN
refusals              statements that are not carried out
nesting               the door for SQL: what is too deep does not pass
parameters            values beside the SQL
literals              decimal or float, for literals such as 8.64
views                 queries by name
predicate_extraction  columns and a predicate of each table, from DataFusion's plan
monotone              functions that keep the order of a column
patterns              what LIKE and regular expressions ask of a text
plan_facts            facts of a plan that decide how DataFusion may run it
"""
