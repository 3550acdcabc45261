"""Translates DataFusion's exceptions into one-line errors with hints."""

from __future__ import annotations

import ast
import difflib
import re
import shlex
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import NoReturn

from needlepoint.errors import NeedlepointError, NotParquet, SqlError, UnknownName
from needlepoint.objects import is_by_object_store, local_failure, object_store_error
from needlepoint.parquet import build_card
from needlepoint.query.attempt import CannotSkip, EngineFault
from needlepoint.query.known_names import CATALOG, SCHEMA
from needlepoint.query.scan.page_reader import check_scanned_texts, check_units
from needlepoint.query.scan.scan_plan import ScanPlan
from needlepoint.query.scan.table_provider import check_present

_MISSING_TABLE = re.compile(r"\btable '([^\n]*?)' not found")
_UNKNOWN_FUNCTION = re.compile(r"Invalid function '([^']+)'\.\s+Did you mean '([^']+)'")
_TWO_ZONES = re.compile(r'Cannot coerce arithmetic expression Timestamp\(\w+, "[^"]*"\) - Timestamp\(\w+, "')
_MISSING_FUNCTION = re.compile(r"table function '((?:read|scan)_\w+|\w+_scan)' not found")
_OURS_PREFIX = f"{CATALOG}.{SCHEMA}."
_LIKE_A_PATH = re.compile(r"[/*\\]|\.(?:parquet|parq)$", re.IGNORECASE)
_MISSING_COLUMN = re.compile(r"No field named ([^\s]+?)\.?\s", re.DOTALL)
_VALID_FIELDS = re.compile(r"Valid fields are (.*?)\.?$", re.DOTALL)
_POSITION = re.compile(r" at Line: (\d+), Column: (\d+)")
_CLOSED = re.compile(r"found: \) at Line: (\d+), Column: \d+")
_NOISE = re.compile(
    r"^((DataFusion|External|SQL|Arrow|Parquet|Schema|Cast) error: |Error during planning: "
    r"|This feature is not implemented: |Optimizer rule '\w+' failed caused by |\w+ caused by )+"
)
_NOT_SUPPORTED = re.compile(r"(?:DDL|DML|Statement) not supported: (\w+)")
# An error that one of our functions raised when DataFusion called it.
_OURS = re.compile(r"""value: SqlError\(("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')\), traceback: """)
_UNKNOWN_NODE = re.compile(r"Unsupported (?:ast node(?: in \w+:)?|JOIN operator) (\w+)", re.IGNORECASE)
_SUBQUERY_AS_VALUE = re.compile(r"does not support logical expression (Exists|InSubquery)\(")
_NO_VALUE = re.compile(r"No value found for placeholder with name (\S+?)\.?(?:\s|$)")
_LIST_IN_LIST = re.compile(r"compatible types to compare \w+ with \[.*List\(")
_PATH = re.compile(r"[^\s:,'\"]+")
# DataFusion's messages about an invalid plan or type of its own.
_FAULTS = (
    "have different type in inputs",
    "requires all inputs to have the same data type",
    "Internal error",
    "SanityCheckPlan",
    "Selectivity is out of limit",
    "must match schema types",
    "Invalid comparison operation",
    "declared as non-nullable",
)
_CORRELATED = ("logical expression ScalarSubquery", "rule 'scalar_subquery_to_join' failed")
_LONGEST = 500
_LONGEST_NAME = 200  # to search for in a query


def raise_cause(failure: BaseException, scans: Iterable[ScanPlan]) -> NoReturn:
    """Raise the cause of a failed read: FileChanged, an invalid Parquet file, CannotSkip, or the failure itself."""
    scans = list(scans)
    for scan in scans:
        check_present(scan)  # a file that changed or was removed explains any failure
    text = str(failure)
    if "Cannot cast" in text:
        for scan in scans:
            check_units(scan)
    if "UTF-8" in text:
        for scan in scans:
            check_scanned_texts(scan)
    if is_fault(text):  # its text has the plan, with all file names
        raise _fault(text) from failure
    if not is_panic(failure) and ("parquet" not in text.lower() or is_by_object_store(text)):
        raise failure
    # DataFusion does not name the file that it could not read. Our reader does; a new file is the most likely one.
    for scan in scans:
        for file in sorted(scan.scanned, key=lambda file: file.id is not None):
            build_card(scan.path(file))
    raise CannotSkip(text, scans) from failure


def is_fault(text: str) -> bool:
    return any(fault in text for fault in _FAULTS)


def is_panic(error: BaseException) -> bool:
    """Whether Rust code panicked. pyo3 raises a BaseException of a class that cannot be imported."""
    return type(error).__name__ in ("PanicException", "RustPanic")


@contextmanager
def clear_error(query: str, tables: Callable[[], list[str]], *, above: int = 0) -> Iterator[None]:
    """DataFusion raises ValueError for SQL it cannot plan, and plain Exception for a failure at run time. Its SQL has
    `above` more lines before the user's `query`."""
    try:
        yield
    except (NeedlepointError, KeyboardInterrupt, AssertionError):
        raise
    except RecursionError as error:
        raise SqlError("the query is too deeply nested.", hint="Split the query.") from error
    except BaseException as error:
        if is_panic(error):
            raise _fault(str(error)) from error
        if type(error) not in (ValueError, Exception):
            raise
        if (local := local_failure(str(error))) is not None:
            raise local from error
        if is_by_object_store(str(error)):
            # Without the cause: its text contains key ids and signatures.
            raise object_store_error(_object(str(error)), str(error)) from None
        raise translate(str(error), query, tables(), above=above) from error


def _fault(text: str) -> EngineFault:
    return EngineFault(
        f"DataFusion failed internally: {_short(text)}",
        hint="Run `needle sync` and `needle verify` to find damaged files; else rewrite the query.",
    )


def translate(text: str, query: str, tables: list[str], *, above: int = 0) -> NeedlepointError:
    if found := _OURS.search(text):
        return SqlError(str(ast.literal_eval(found[1])))
    if is_fault(text):
        return _fault(text)
    if any(sign in text for sign in _CORRELATED):
        return SqlError(
            "DataFusion does not support this correlated subquery.",
            hint="Compare a column of its table, not a computed value, by = with the outer query: "
            "WHERE inside.x = outside.y - 2.",
        )
    if (name := missing_table(text)) is not None:
        return _no_table(name, query, tables)
    if found := _MISSING_FUNCTION.search(text):
        return SqlError(
            f"there is no function '{found[1]}': a query reads tables by name.", hint=_make_table("DIRECTORY")
        )
    if found := _UNKNOWN_FUNCTION.search(text):
        name, guess = found.groups()
        close = difflib.get_close_matches(name[:_LONGEST_NAME].lower(), [guess], cutoff=0.75)
        hint = f"Did you mean '{guess}'?" if close else "SHOW FUNCTIONS lists those there are."
        return SqlError(f"there is no function '{name}'.", hint=hint)
    if found := _MISSING_COLUMN.search(text + " "):
        before, _, name = found[1].replace('"', "").rpartition(".")
        valid = _VALID_FIELDS.search(text)
        known = {each.replace('"', "").split(".")[-1].strip() for each in valid[1].split(",")} if valid else set()
        if before and (others := _tables_of(valid[1] if valid else "")) and before not in others:
            return UnknownName("table or alias", before, others, where=_place(query, before))
        exact = next((each for each in known if each.lower() == name.lower()), None)
        if exact is not None and exact != name:
            if exact == exact.lower():  # the query quotes it: SQL folds other names
                return SqlError(f"unknown column '{name}'{_place(query, name)}.", hint=f"Its name is {exact}.")
            return SqlError(f"column '{exact}' has capital letters.", hint=f'Write it in double quotes: "{exact}".')
        hint = f"Write a string in single quotes: '{name}'." if f'"{name}"' in query else ""
        return UnknownName("column", name, known, where=_place(query, name), hint=hint)
    if found := _NO_VALUE.search(text):
        return _no_value(found[1])
    if found := _UNKNOWN_NODE.search(text):
        word = found[1].upper()
        hint = f"Write LEFT {word} JOIN." if word in ("SEMI", "ANTI") else "Write the query without it."
        return SqlError(f"{word} is not supported.", hint=hint)
    if _SUBQUERY_AS_VALUE.search(text):
        return SqlError(
            "EXISTS and IN (SELECT …) are supported in conditions, not as values.",
            hint="Write LEFT JOIN, or (SELECT count(*) FROM … WHERE …) > 0.",
        )
    if found := _NOT_SUPPORTED.search(text):
        return SqlError(
            f"{found[1]} is not a query.",
            hint="Write tables with Spark or `needle ingest`; SQL has CREATE and DROP for indexes and views only.",
        )
    if "RecursionLimitExceeded" in text:
        return SqlError(
            "the query has more than 50 levels of parentheses.", hint="Remove some of them, or split the query."
        )
    if "Parquet error" in text or "ParquetError" in text or "Corrupt footer" in text:
        return NotParquet(_path(text) or "a file", _short(text), hint="Write it again or remove it, then sync.")
    if _LIST_IN_LIST.search(text) and "$" in query:
        return SqlError("a parameter is a list, and IN compares single values.", hint="Write column = any($name).")
    if "Cannot cast string" in text:
        return SqlError(
            _short(text),
            hint="A text beside a number or date is cast. Compare with a text, or write TRY_CAST, which returns NULL.",
        )
    if _TWO_ZONES.search(text):
        return SqlError(
            "a difference of times in two zones is not supported.",
            hint="Write CAST(x AS TIMESTAMPTZ) for both: now() - CAST(x AS TIMESTAMPTZ).",
        )
    if "only supports a single SQL statement" in text:
        return SqlError("there are several statements.", hint="Run them one by one.")
    return SqlError(_short(_with_position(text, query, above)))


def _tables_of(fields: str) -> set[str]:
    """
    >>> sorted(_tables_of('item.id, x."B c", n'))
    ['item', 'x']
    """
    names = [each.strip().replace('"', "").rpartition(".")[0] for each in fields.split(",")]
    return {name.rpartition(".")[2] for name in names if name}


def missing_table(text: str) -> str | None:
    """The missing table that a query names, without our catalog and schema.

    >>> missing_table("Error during planning: table 'needle.lake.item' not found")
    'item'
    """
    found = _MISSING_TABLE.search(text)
    return None if found is None else found[1].removeprefix(_OURS_PREFIX).removeprefix(f"{CATALOG}.")


def _no_table(name: str, query: str, tables: list[str]) -> NeedlepointError:
    if re.search(r"\.(csv|tsv|json|jsonl)$", name):
        hint = f"`needle ingest NAME {shlex.quote(name)}` writes its rows into a table; then query NAME."
        return SqlError(f"'{name}' is a path, and no table.", hint=hint)
    if _LIKE_A_PATH.search(name):
        directory = re.split(r"[^/]*[*?\[]", name, maxsplit=1)[0] if re.search(r"[*?\[]", name) else name
        if directory == name and not name.endswith("/"):
            directory = name.rpartition("/")[0]
        return SqlError(f"'{name}' is a path, and no table.", hint=_make_table(directory.rstrip("/") or "."))
    last = name.rpartition(".")[2]
    if last != name and last in tables:
        return UnknownName(
            "table", name, tables, where=_place(query, name), hint=f"Tables have no schema: write {last}."
        )
    return UnknownName("table", name, [each for each in tables if each != name], where=_place(query, name))


def _make_table(directory: str) -> str:
    shown = shlex.quote(directory)
    return f"`needle create-table NAME {shown}` creates a table of the Parquet files in a directory; then query NAME."


def _no_value(placeholder: str) -> SqlError:
    name = placeholder.lstrip("$")
    if name == "?":
        return SqlError("parameters need names.", hint='Write $name instead of ?, and pass {"name": value}.')
    return SqlError(
        f"parameter ${name} has no value.", hint=f'Pass it with the query, as {{"{name}": 7}}, or write the value.'
    )


def _path(text: str) -> str | None:
    """The first path of a Parquet file in a text, from its first slash."""
    for run in _PATH.finditer(text):
        word = run[0]
        first, end = word.find("/"), word.rfind(".parquet")
        if 0 <= first < end - 1:
            return word[first : end + len(".parquet")]
    return None


def _object(text: str) -> str:
    found = re.search(r"Error performing \w+ (\S+)", text)
    return found[1].partition("?")[0] if found else "an object"


def _short(text: str) -> str:
    line = _NOISE.sub("", " ".join(text.split()))
    line = re.sub(r'^ParserError\("(.*)"\)$', r"\1", line)
    line = line if len(line) <= _LONGEST else line[:_LONGEST] + "…"
    return line.rstrip(".") + ("" if line.rstrip(".").endswith("?") else ".")


def _with_position(text: str, query: str, above: int) -> str:
    """Positions as the user counts them. A condition is put between parentheses, of which the second is on the line
    after it.

    >>> _with_position("Expected: an expression, found: ) at Line: 3, Column: 1", "id =", 1)
    'Expected: an expression, found: the end of the condition'
    >>> _with_position("Expected: an expression, found: ) at Line: 2, Column: 5", "id =) ", 1)
    'Expected: an expression, found: ) at line 1, column 5'
    """
    last = above + query.count("\n") + 1
    if above and (found := _CLOSED.search(text)) and int(found[1]) > last:
        return _CLOSED.sub("found: the end of the condition", text)
    return _POSITION.sub(lambda found: f" at line {int(found[1]) - above}, column {found[2]}", text)


def _place(query: str, name: str) -> str:
    """Line and column where a query first uses a name."""
    if len(name) > _LONGEST_NAME:
        return ""
    found = re.search(rf"(?<![\w]){re.escape(name)}(?![\w])", query, re.IGNORECASE)
    if found is None:
        return ""
    line = query.count("\n", 0, found.start()) + 1
    return f" at line {line}, column {found.start() - query.rfind(chr(10), 0, found.start())}"
