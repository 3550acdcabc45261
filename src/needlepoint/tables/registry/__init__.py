"""The registry: tables, files, indexes and batches, in one SQLite database.

registry           what is known of tables, files and indexes
schema             how it is stored, and upgrades of older formats
batches            what is on its way into a table or out of it
known_files        files of tables, kept between queries
index_generations  an index replaced by a new generation
"""
