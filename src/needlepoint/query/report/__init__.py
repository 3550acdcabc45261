"""What a query read, and why.

explain        the report and its text
html           the same for notebooks
lake_map       the files of a table, and what is read of each
table_report   the report and the map of a scan plan
query_history  the interface to the history of queries
"""
