"""What a query read, and why.

explain        the report and its text
html           the same for notebooks
table_report   the report of a scan plan
query_history  the interface to the history of queries
"""
