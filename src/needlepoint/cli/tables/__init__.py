"""Commands about tables and files.

create_table, drop_table, status   `needle create-table`, `drop-table`, `status`
ingest                             `needle ingest`: appends with Spark
inspect, inspect_display           `needle inspect`, and how a terminal shows its answer
"""
