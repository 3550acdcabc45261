"""Tables whose files a log decides: Delta and Iceberg.

table_formats  which format a location has
table_version  what belongs to a table in one version of its log
delta          the log of a Delta table, through deltalake
iceberg        the metadata of an Iceberg table, through pyiceberg
"""

from needlepoint.tables.formats.table_formats import (
    check_plain,
    decide,
    described_format,
    is_external,
    open_log,
    tells_of_change,
)
from needlepoint.tables.formats.table_version import TableVersion

__all__ = [
    "TableVersion",
    "check_plain",
    "decide",
    "described_format",
    "is_external",
    "open_log",
    "tells_of_change",
]
