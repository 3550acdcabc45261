"""Advice on indexes and layouts, from the history of queries.

history           query shapes, how often they ran, and what they read
query_shapes      predicates without their values
table_statistics  sizes and overlaps of columns, pages and files
advice            rules: which layouts and indexes would pay
"""
