"""Queries: from SQL to Arrow.

engine        the story of a query
result        its answer
point_lookup  rows by key without SQL
shortcut      SQL that is a lookup by key
verify        whether indexes tell the truth
sql/          what SQL asks of each table
pruning/      steps that rule out files, row groups, pages and rows
scan/         how the rest is read, and the scan
datafusion/   the border to DataFusion
cache/        what is kept between queries
report/       what was read, and why
"""
