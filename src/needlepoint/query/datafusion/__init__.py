"""The border to DataFusion 55.

workarounds      its bugs, and how each is avoided
planner          plans SQL against tables without files
plan_cache       logical plans of queries that run again
kept_frames      what DataFusion made of their SQL and tables
session          session contexts and their options
session_options  which options a query needs
filter_choice    whether it filters rows while it reads them
native_scan      a scan of exactly the files of a plan
batch_stream     batches of a running query, in bounded memory
footers          which footers it may cache
final_sort       ORDER BY of the whole query
udfs             text_match and score as functions
scoring          score statistics over all texts of a table
errors           translates its exceptions
unreadable       finds the file that a scan could not read
"""
