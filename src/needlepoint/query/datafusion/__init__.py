"""The border to DataFusion 55.

session       contexts, and what each of them may do
native_scan   its scan of exactly the files of a plan
footers       which footers it may remember
sorted_apart  ORDER BY over outer joins
udfs          text_match and score as functions
scoring       scores over all texts of a table
errors        its exceptions become one clear line
unreadable    which file a scan could not read
"""
