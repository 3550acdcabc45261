"""Add indexes to Parquet files, and rewrite files.

embed        puts indexes into files and removes them
embedded     lists and reads the indexes in a file
retrofit     page indexes and bloom filters for files that lack them
page_bounds  a column index, computed from values
bloom_build  a bloom filter, computed from values
physical     columns as they are stored
value_list   the list of values of DataFusion's example of an embedded index
rewrite      new files from the rows of existing ones
"""
