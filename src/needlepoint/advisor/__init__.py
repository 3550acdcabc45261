"""What would make queries faster, going by those that were asked.

history           what was asked, how often, and what it took
query_shapes      predicates without their values
table_statistics  sizes and overlaps of columns, pages and files
advice            layouts and indexes that are worth it
"""
