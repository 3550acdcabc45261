"""Storage of indexes and the registry.

base      the interface of a store for a key index
rocksdb   key indexes in RocksDB
packs     payloads of many files in one
place     the directory of a lake's store
database  SQLite for the registry, the queue and the history
"""
