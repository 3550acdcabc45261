"""Writing into Parquet files, and writing them again.

embed        indexes into files and out of them
embedded     which indexes a file has, and what they hold
retrofit     page indexes and bloom filters for files without them
page_bounds  a column index, computed from values
bloom_build  a bloom filter, computed from values
physical     columns as they are stored
value_list   the list of values of DataFusion's example of an embedded index
rewrite      files made of the rows of others
"""
