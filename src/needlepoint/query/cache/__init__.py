"""State that is kept between queries.

table_state  derived from a snapshot once, and used by all queries on it
card_cache   cards and zone maps
index_cache  open indexes of single files
"""
