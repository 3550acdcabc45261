"""What a query read, and why.

explain        the report and how it is drawn
table_report   from a scan plan to its report
query_history  where the engine reports what each query took
"""
