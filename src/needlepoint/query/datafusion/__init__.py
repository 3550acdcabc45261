"""The border to DataFusion 55.

workarounds      its faults, and how each is avoided
planner          SQL planned against tables without files
session          contexts, and their switches
session_options  which switches a query needs
native_scan      its scan of exactly the files of a plan
footers          which footers it may cache
sorted_apart     ORDER BY over outer joins
udfs             text_match and score as functions
scoring          scores over all texts of a table
errors           its exceptions become one clear line
unreadable       which file a scan could not read
"""
