"""Commands that replace, delete or extend files of a table.

compact                       `needle compact`
delete                        `needle delete`, and what all commands that delete have in common
delete_files, drop_partition  `needle delete-files`, `drop-partition`
expire, sweep, retrofit       `needle expire`, `sweep`, `retrofit`
"""
