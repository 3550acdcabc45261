"""Statements of SQL that are not carried out here, each with the command that does it.

>>> print(refusal("DELETE FROM product WHERE id = 5"))
DELETE is not done by SQL. `needle delete product --where CONDITION`, or lake.delete, deletes rows.
>>> refusal("SELECT 1") is None
True
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from needlepoint.errors import SqlError

_NAME = r'([A-Za-z_]\w*|"[^"]+")'
_TABLES = {
    "DELETE": re.compile(rf"DELETE\s+FROM\s+{_NAME}", re.IGNORECASE),
    "TRUNCATE": re.compile(rf"TRUNCATE\s+(?:TABLE\s+)?{_NAME}", re.IGNORECASE),
    "INSERT": re.compile(rf"INSERT\s+(?:INTO|OVERWRITE)\s+{_NAME}", re.IGNORECASE),
    "UPDATE": re.compile(rf"UPDATE\s+{_NAME}", re.IGNORECASE),
    "MERGE": re.compile(rf"MERGE\s+INTO\s+{_NAME}", re.IGNORECASE),
    "DROP TABLE": re.compile(rf"DROP\s+TABLE\s+(?:IF\s+EXISTS\s+)?{_NAME}", re.IGNORECASE),
    "CREATE TABLE": re.compile(rf"CREATE\s+(?:EXTERNAL\s+)?TABLE\s+(?:IF\s+NOT\s+EXISTS\s+)?{_NAME}", re.IGNORECASE),
}
_WRITING = "`needle ingest {table} SOURCE`, or needlepoint.spark.write, appends rows"
_REPLACING = f"Delete the old rows with `needle delete {{table}} --where CONDITION`; {_WRITING}."
_HINTS = {
    "DELETE": "`needle delete {table} --where CONDITION`, or lake.delete, deletes rows.",
    "TRUNCATE": "`needle delete {table} --where TRUE`, or lake.delete, deletes all rows.",
    "INSERT": f"{_WRITING}.",
    "UPDATE": _REPLACING,
    "MERGE": _REPLACING,
    "DROP TABLE": "`needle drop-table {table}`, or lake.drop_table, forgets the table; its files stay.",
    "CREATE TABLE": "`needle create-table {table} DIRECTORY`, or lake.create_table, makes a table of Parquet files.",
    "ALTER": "A table has the columns of its files: write files with other columns, then sync.",
    "COPY": "`needle sql --output FILE QUERY` writes the answer of a query to a file.",
    "VACUUM": "`needle sweep`, or lake.sweep, removes what nothing refers to.",
    "ANALYZE": "`needle sync`, or lake.sync, brings everything up to date that is known of the files.",
    "SET": "Settings are given to needlepoint.open; docs/settings.md lists them.",
    "RESET": "Settings are given to needlepoint.open; docs/settings.md lists them.",
}
_ASIDE = re.compile(r"'[^']*'|--[^\n]*|/\*.*?\*/", re.DOTALL)
_IN = re.compile(r"\bIN\s*\(", re.IGNORECASE)
_FIRST = re.compile(r"[A-Za-z]+")
_TABLE = re.compile(r"(CREATE|DROP)\s+(?:EXTERNAL\s+|TEMPORARY\s+|TEMP\s+|OR\s+REPLACE\s+)*TABLE\b", re.IGNORECASE)


def refusal(text: str) -> SqlError | None:
    """Why a statement is not carried out, if its first words say so."""
    first = _FIRST.match(text)
    word = first[0].upper() if first else ""
    if word in ("CREATE", "DROP") and (found := _TABLE.match(text)):
        word = f"{found[1].upper()} TABLE"
    if word not in _HINTS:
        return None
    named = _TABLES[word].match(text) if word in _TABLES else None
    hint = _HINTS[word].replace("{table}", named[1] if named else "TABLE")
    return SqlError(f"{word} is not done by SQL.", hint=hint)


def refuse_not_in(texts: Iterable[str]) -> None:
    """Raise if a query with stacked filters (plan_facts.py) and an anti join seems to have it of NOT IN, and not of NOT
    EXISTS. The joins that such filters need forget that NOT IN is never TRUE beside a NULL."""
    if any(_IN.search(_ASIDE.sub(" ", text)) for text in texts):
        raise SqlError(
            "NOT IN (SELECT …) cannot be combined with filters over several joins that share names of columns.",
            hint="Write NOT EXISTS (SELECT … WHERE …), or rename the columns in subqueries.",
        )
