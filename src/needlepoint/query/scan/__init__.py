"""Reading what pruning left.

scan_plan             what to read of a table
access_choice         pages, row groups or a native scan: the fastest
cost_model            how long each of them takes
costs                 what reads cost on this machine
page_reader           reads rows by page
late_materialization  evaluates the predicate before the other columns are read
table_provider        joins page reads and native scans into one table for DataFusion
held_files            versions of files that a query keeps readable
scan_tasks            splits a read into tasks for other processes
row_matches           row numbers that match a condition
"""
