"""Every error Needlepoint raises on purpose.

    NeedlepointError
    ├── UsageError              the request cannot be carried out
    │   ├── UnknownName         no such table, column or index ("did you mean …")
    │   ├── NameTaken           the table, index or view exists already
    │   ├── NotIndexable        the column's type cannot carry this index
    │   ├── SchemaConflict      files of one table disagree about a column
    │   ├── Unsupported         a Delta or Iceberg table uses a feature that cannot be read correctly
    │   ├── TableChanged        files of a table changed while they were rewritten
    │   ├── SqlError            the SQL does not parse, plan or run
    │   ├── LimitExceeded       a query takes more time, memory or rows than it may
    │   └── BadEvent            a message that is no event (queues/events.py)
    ├── QueryCancelled          someone cancelled the query
    ├── FileError               a problem with one Parquet file; `path` names it
    │   ├── NotParquet          not a Parquet file, truncated or corrupt
    │   │   └── Unfinished      it has no footer (yet): its writer is busy, or died
    │   ├── FileChanged         the file is no longer the one that was planned for
    │   └── PayloadDamaged      an embedded index is damaged; the data is not affected
    ├── StoreError              the store or queue cannot be read or written
    │   ├── ObjectStoreError    an object store fails or does not answer; `where` names the bucket or object
    │   ├── LockLost            another process took over the work of this one; it changes nothing any more
    │   ├── QueueError          a queue fails or does not answer; `where` names it, `code` is its error code
    │   ├── IndexDamaged        an index lost entries (stores/base.py); queries scan, sync rebuilds it
    │   ├── ManifestDamaged     what is published of the registry is damaged (tables/published); it is published again
    │   ├── AnotherRegistry     another registry is published in the lake (tables/published)
    │   └── PackDamaged         a card or zone map is lost (stores/packs.py); queries scan
    └── SparkError              Java or Spark is missing or failed

`str(error)` is one line: what is wrong and where, then what to do about it.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class NeedlepointError(Exception):
    """The root of the tree. `hint` says what to do; it may be empty."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        self.message = message.strip()
        self.hint = hint
        super().__init__(f"{self.message} {hint}".strip())

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuilt, (type(self), self.args, self.__dict__)


def _rebuilt(kind: type[NeedlepointError], args: tuple[object, ...], facts: dict[str, object]) -> NeedlepointError:
    """Rebuild an error from another process without its `__init__`, which may take other arguments."""
    error = kind.__new__(kind, *args)
    error.__dict__.update(facts)
    return error


class UsageError(NeedlepointError):
    """The request cannot be carried out."""


_LONGEST_MISSPELT = 200


class UnknownName(UsageError):
    """A table, column or index that does not exist."""

    def __init__(self, what: str, name: str, known: Iterable[str], *, where: str = "", hint: str = "") -> None:
        self.what, self.name = what, name
        super().__init__(f"unknown {what} '{name}'{where}.", hint=hint or self._suggestion(sorted(known)))

    def _suggestion(self, names: list[str]) -> str:
        # The comparison takes the product of both lengths, and the longer name is user input.
        known = [name.lower() for name in names] if len(self.name) <= _LONGEST_MISSPELT else []
        close = difflib.get_close_matches(self.name.lower(), known, n=1)
        if close:
            best = next(name for name in names if name.lower() == close[0])
            return f"Did you mean '{best}'?"
        if names:
            shown = ", ".join(names[:8]) + (", …" if len(names) > 8 else "")
            return f"There is: {shown}."
        return f"There is no {self.what} yet."


class NameTaken(UsageError):
    """The table, index or view exists already."""


class NotIndexable(UsageError):
    """The column's type cannot carry the index asked for."""


class SchemaConflict(UsageError):
    """Two files of one table disagree about a column."""


class Unsupported(UsageError):
    """A Delta or Iceberg table uses an unsupported feature; without it the table would be read wrongly."""


class TableChanged(UsageError):
    """Files of a table changed while they were rewritten; nothing was published. Run it again."""


class SqlError(UsageError):
    """The SQL does not parse, plan or run."""


class LimitExceeded(UsageError):
    """A query takes more time, memory or rows than it may; see needlepoint.Limits."""


class QueryCancelled(NeedlepointError):
    """Another thread cancelled the query, or closed its result."""


class FileError(NeedlepointError):
    """A problem with one Parquet file."""

    def __init__(self, path: str, problem: str, *, hint: str = "") -> None:
        self.path = path
        super().__init__(f"{path}: {problem.rstrip('.')}.", hint=hint)


class NotParquet(FileError):
    """Not a Parquet file, or a truncated or corrupt one."""


class Unfinished(NotParquet):
    """A file without a footer: too short for one, or it begins as Parquet but does not end so."""


class FileChanged(FileError):
    """The file is no longer the one that was planned for; planning again sees the new one."""


class PayloadDamaged(FileError):
    """An index embedded in a file does not match its checksum, or cannot be unpacked. The file's data may be intact."""


class StoreError(NeedlepointError):
    """The store or the queue cannot be read or written."""


class ObjectStoreError(StoreError):
    """An object store fails or does not answer; `is_refused`: it refuses this for lack of rights. Of the message of its
    driver only the error code is kept."""

    def __init__(self, where: str, problem: str, *, hint: str = "", is_refused: bool = False) -> None:
        self.where, self.is_refused = where, is_refused
        super().__init__(f"{where}: {problem}.", hint=hint)


class QueueError(StoreError):
    """A remote queue fails or does not answer. Of the message of its driver only the error code is kept."""

    def __init__(self, where: str, code: str, problem: str, *, hint: str = "") -> None:
        self.where, self.code = where, code
        super().__init__(f"{where}: {problem} ({code}).", hint=hint)


class LockLost(StoreError):
    """The connection that held a lock was lost, and another process took the lock: this one must not finish."""


class SparkError(NeedlepointError):
    """Java or Spark is missing or failed."""
