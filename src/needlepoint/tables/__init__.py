"""Tables: what they are, which files they have, and how files are added.

model          tables, files, indexes and batches as frozen values
registry/      what is known, in SQLite
formats/       Delta and Iceberg
listing        the files of a location now
snapshots      what a query sees: the files of a table at one moment
discovery      schema and partitions, found in files
schemas        one schema for all files
partitions     values in the names of directories
layout         how new files are written
publishing     a batch becomes part of a table, whole or not at all
staged_file    what a write left in a staging directory
locks          file locks that serialize changes to a table
file_stat      the present identities of files
changed_files  files that look the same and may have changed
"""
