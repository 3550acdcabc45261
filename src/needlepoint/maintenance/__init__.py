"""Files replaced by others: compaction and deletion.

choose    which files are rewritten, and into how many
merge     several files become others, in tasks
ordering  the order of rows: by columns or along a Z-order curve
delete    rows of a condition leave, in one commit
"""
