"""Statements of SQL that are not supported, each with the command to use instead.

>>> print(refusal("DELETE FROM product WHERE id = 5"))
DELETE is not supported in SQL. `needle delete product --where CONDITION`, or lake.delete, deletes rows.
>>> refusal("SELECT 1") is None
True
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from needlepoint.errors import SqlError
from needlepoint.query.sql.plan_facts import PlanFacts
from needlepoint.query.sql.rewriting.constants_last import has_constant_not_in

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
    "DROP TABLE": "`needle drop-table {table}`, or lake.drop_table, drops the table and keeps its files.",
    "CREATE TABLE": "`needle create-table {table} DIRECTORY`, or lake.create_table, creates a table of Parquet files.",
    "ALTER": "A table has the columns of its files: write files with other columns, then sync.",
    "COPY": "`needle sql --output FILE QUERY` writes the result of a query to a file.",
    "VACUUM": "`needle sweep`, or lake.sweep, removes unreferenced files.",
    "ANALYZE": "`needle sync`, or lake.sync, updates statistics and indexes.",
    "SET": "Pass settings to needlepoint.open; docs/settings.md lists them.",
    "RESET": "Pass settings to needlepoint.open; docs/settings.md lists them.",
}
_ASIDE = re.compile(r"'[^']*'|--[^\n]*|/\*.*?\*/", re.DOTALL)
_IN = re.compile(r"\bIN[\s(]*\((?:\s|\()*(?:SELECT|WITH|VALUES)\b", re.IGNORECASE)
_NEGATES = re.compile(
    r"\bNOT\s+IN\b|\bNOT\s*\(|\bNOT\s+[\w.\"]+\s+IN\b|\bIS\s+(?:NOT\b|FALSE\b|UNKNOWN\b)", re.IGNORECASE
)
_NOT_IN = re.compile(r"\bNOT\s+IN\s*\(\s*(?:SELECT|WITH)\b", re.IGNORECASE)
_FIRST = re.compile(r"[A-Za-z]+")
_TABLE = re.compile(r"(CREATE|DROP)\s+(?:EXTERNAL\s+|TEMPORARY\s+|TEMP\s+|OR\s+REPLACE\s+)*TABLE\b", re.IGNORECASE)


def refusal(text: str) -> SqlError | None:
    """The error for a statement that is not supported, by its first words."""
    first = _FIRST.match(text)
    word = first[0].upper() if first else ""
    if word in ("CREATE", "DROP") and (found := _TABLE.match(text)):
        word = f"{found[1].upper()} TABLE"
    if word not in _HINTS:
        return None
    named = _TABLES[word].match(text) if word in _TABLES else None
    hint = _HINTS[word].replace("{table}", named[1] if named else "TABLE")
    return SqlError(f"{word} is not supported in SQL.", hint=hint)


def refuse_unsupported(texts: Sequence[str], facts: PlanFacts) -> None:
    """Raise if DataFusion would answer a query with such facts incorrectly, whichever way it runs."""
    plain = [_ASIDE.sub(" ", text) for text in texts]
    if facts.stacked_keys:
        # The workaround is a join without keys, but these have keys from the start.
        raise SqlError(
            "JOIN … USING and NATURAL JOIN cannot be combined with filters over several joins that share column names.",
            hint="Write ON instead of USING, or rename the columns in subqueries.",
        )
    if facts.equal_subtotals:
        raise SqlError(
            "ROLLUP, CUBE and GROUPING SETS of columns that are equal in every row cannot be sorted by a window, or in "
            "a subquery.",
            hint="Group by one of the equal columns, such as one side of ON a.id = b.id.",
        )
    _refuse_not_in(texts, plain, facts)


def _refuse_not_in(texts: Sequence[str], plain: Sequence[str], facts: PlanFacts) -> None:
    """Raise if a query with such facts seems to use NOT IN, not NOT EXISTS, and DataFusion ignores that it is not TRUE
    when the list has a NULL: over stacked filters, in correlated subqueries, and inside other conditions."""
    if any(_NOT_IN.search(text) and has_constant_not_in(text) for text in texts):
        raise SqlError(
            "NOT IN (SELECT …) is not supported with a constant before it: a NULL in the list would be ignored.",
            hint="Write NOT EXISTS (SELECT … WHERE …).",
        )
    if facts.stacked_filters and facts.anti_joins and any(map(_IN.search, plain)):
        raise SqlError(
            "NOT IN (SELECT …) cannot be combined with filters over several joins that share column names.",
            hint="Write NOT EXISTS (SELECT … WHERE …), or rename the columns in subqueries.",
        )
    if facts.unknown_in and any(_IN.search(text) and _NEGATES.search(text) for text in plain):
        raise SqlError(
            "NOT IN (SELECT …) is not supported with a correlated subquery, and not inside OR, CASE or another NOT.",
            hint="Write NOT EXISTS (SELECT … WHERE …); a NULL in the list then counts as no match.",
        )
