"""Index kinds: small payloads that answer where values and words are.

base           what a kind is
kinds          kinds by name, ours and those of other packages
key/           value to rows, in a store
distinct/      values of a file and their pages
bloom/         filters of our own
parquet_bloom  Parquet's own bloom filters
text/          words and where they are
zone_map       least and greatest values
values         values of a column as indexes keep them
hashing        64-bit hashes of binary arrays
payload        how payloads are stored
stored         payloads where they are, and unpacked ones
"""
