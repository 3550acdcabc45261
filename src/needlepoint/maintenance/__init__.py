"""Replace files of a table by others: compaction and deletion, without Spark.

swap      the one way to replace files: stage, publish in one batch, index
compact   small or badly ordered files become fewer and better ones
choose    which files are rewritten, and into how many
merge     several files become others, in tasks
ordering  the order of rows: by columns or along a Z-order curve
tasks     how tasks run: here, or by a runner that the caller gives
delete    rows, files, partitions and expired rows
retrofit  page indexes and bloom filters, added to files in their places
"""
