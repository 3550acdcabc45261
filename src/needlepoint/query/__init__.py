"""Queries: from SQL to Arrow.

engine        a query, step by step
result        its answer
point_lookup  rows by key, from `get` and from SQL, in one way
get           `table.get`: Python values become a point lookup
verify        compares indexes with the rows
sql/          what SQL asks of each table
pruning/      steps that rule out files, row groups, pages and rows
scan/         how the rest is read, and the scan
datafusion/   the border to DataFusion
cache/        what is kept between queries
report/       what was read, and why
"""
