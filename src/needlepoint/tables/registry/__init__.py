"""The registry: tables, files, indexes and batches, in one database, SQLite or PostgreSQL, and cards in packs.

registry           the parts together
databases/         SQLite and PostgreSQL: transactions that raise a sequence number
tables, views      names, locations, schemas and queries
files              identities and bounds
many_rows          loads very many rows without garbage collections
cards, card_packs  cards and zone maps: where they are, and how they are written
indexes            what is declared, and which files and runs each index has
index_generations  an index replaced by a new generation
payloads           where indexes keep what they know of a file
artifacts          what indexing learns of a file, committed as a whole
batches            files on their way into a table or out of it
known_files        files of tables, kept between queries
copying            a registry moved into another database
"""

from needlepoint.tables.registry.artifacts import FileArtifact
from needlepoint.tables.registry.card_packs import PACK_BYTES
from needlepoint.tables.registry.cards import PackUse, StoredZones
from needlepoint.tables.registry.copying import move_registry
from needlepoint.tables.registry.known_files import KnownFiles
from needlepoint.tables.registry.payloads import PackEntry
from needlepoint.tables.registry.registry import Registry

__all__ = [
    "PACK_BYTES",
    "FileArtifact",
    "KnownFiles",
    "PackEntry",
    "PackUse",
    "Registry",
    "StoredZones",
    "move_registry",
]
