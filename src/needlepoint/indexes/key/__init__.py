"""The key index: value to rows, in one sorted store for all files of a table.

kind      what the indexer and the store need to know
encoding  values as keys
build     columns to keys, keys to entries
search    predicates to keys
payload   the keys of one file, embedded in it
"""
