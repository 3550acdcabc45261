"""Arrow Flight SQL, for ADBC, JDBC and tools that use them.

server      answers calls: statements, prepared statements, and what a client asks about the lake
statements  statements with their parameters, as handles that clients keep
catalog     catalogs, schemas, tables and types as Flight SQL describes them
sql_info    what the server can do
messages    the messages of FlightSql.proto
idle        streams whose clients read nothing
users       who calls, by their tokens
problems    errors as clients get them
"""
