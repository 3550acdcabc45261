"""Where indexes and the registry are kept.

base      what a store does for a key index
rocksdb   key indexes in RocksDB
packs     payloads of many files in one
place     the directory of a lake's store
database  SQLite as the registry and the queue use it
"""
