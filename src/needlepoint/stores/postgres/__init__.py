"""PostgreSQL for many machines, through psycopg 3, which is an extra. Imported when a URL names a database there.

address   parses the URL of a database
link      one connection, opened again after a failure
database  transactions, snapshots and formats in one schema
errors    errors of PostgreSQL, translated
"""

from needlepoint.stores.postgres.address import PostgresAddress, parse_postgres
from needlepoint.stores.postgres.database import PostgresDatabase, PostgresTransaction, PostgresUpgrade, advisory_key
from needlepoint.stores.postgres.link import PostgresConnection, PostgresLink

__all__ = [
    "PostgresAddress",
    "PostgresConnection",
    "PostgresDatabase",
    "PostgresLink",
    "PostgresTransaction",
    "PostgresUpgrade",
    "advisory_key",
    "parse_postgres",
]
