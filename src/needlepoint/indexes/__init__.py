"""Index kinds: what they build from a file, what they keep, and how they answer.

base           the interface of a kind
kinds          kinds by name: built in, or from other packages
index_stores   what indexes keep in the store; chooses the backend
key/           value to rows, in one store for all files of a table
distinct/      values of a file and their pages
bloom/         bloom filters of our own
text/          words and their rows
parquet_bloom  Parquet's own bloom filters
zone_map       least and greatest values
values         values of a column as indexes keep them
hashing        64-bit hashes of binary arrays
payload        how payloads are stored
stored         payloads in packs and files, and unpacked ones

Each kind has kind.py (what it is), build.py, search.py and payload.py.
"""
