"""What is kept between queries.

table_state  what is worked out once for a snapshot
card_cache   cards and zone maps
index_cache  open indexes of single files
"""
