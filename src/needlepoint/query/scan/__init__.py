"""ScanPlan what pruning left.

scan_plan             what is read of a table, decided but not done
cost_model            pages, row groups or a scan, whichever takes the least time
page_reader           rows read by page
late_materialization  the predicate's columns first
table_provider        pages and scans, as one table for DataFusion
held_files            versions of files that a query keeps open
scan_tasks            a read that is done elsewhere, in parts
row_matches           rows of a condition, by their numbers
"""
