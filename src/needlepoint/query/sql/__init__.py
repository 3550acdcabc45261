"""From SQL to a request for each table.

request               what a query needs of a table
statements            statements beyond queries: indexes, views, EXPLAIN
refusals              statements that are not supported
nesting               rejects SQL that is nested too deeply
parameters            values of $name
tokens                words, numbers and signs of SQL
literals              decimal or float, for literals such as 8.64
rewriting/            queries written differently for DataFusion
views                 named queries
predicate_extraction  columns and a predicate of each table, from DataFusion's plan
predicates/           conditions as predicates, and what computed values say of columns
join_edges            which tables a join narrows by the keys of another
top_rows              what ORDER BY with LIMIT keeps
table_aggregate       counts, extremes and groups of one table
comparisons           queries that differ only in the values they compare columns with
table_selection       columns of the rows of one table
plan_facts            properties of a plan that decide how DataFusion may run it
plan_nodes            its nodes and their expressions
not_in                which columns NOT IN compares, and whether it may know that they have no NULL
equal_columns         columns that are equal in every row, and grouping sets over them
"""
