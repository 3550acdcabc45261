"""Queries: from SQL to Arrow.

engine        runs a query, step by step
result        its result
point_lookup  rows by key, for `get` and for SQL
get           `table.get`: from Python values to a point lookup
verify        compares indexes with the data
sql/          from SQL to a request for each table
pruning/      steps that rule out files, row groups, pages and rows
scan/         how the rest is read, and the reading
datafusion/   the border to DataFusion
cache/        state that is kept between queries
report/       what a query read, and why
"""
