"""The rows of a large result, which are read while they are consumed.

`sql` returns when the first rows are there. The others are read as batches, in bounded memory, or into one table. Until
the end the query keeps what it needs: its context, the files that it holds, its place among the running queries.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pyarrow as pa

from needlepoint.errors import FileChanged, SqlError, UsageError
from needlepoint.query.attempt import CannotSkip, EngineFault
from needlepoint.query.running import RunningQuery

# Bytes that wait to be read. A result up to this size is complete before anything of it is returned.
ROOM = 32 << 20
NO_END = 1 << 62  # room for a result of any size


class RowStream:
    """`first` has the rows that were read, and `more` reads the others. `finish` checks that no file changed, and
    `read_again` runs the whole query again, as often as needed."""

    def __init__(
        self,
        first: pa.Table,
        more: Iterator[pa.RecordBatch],
        finish: Callable[[], None],
        read_again: Callable[[], pa.Table],
        running: RunningQuery,
        resources: ExitStack,
    ) -> None:
        self.schema = first.schema
        self._first: pa.Table | None = first
        self._more = more
        self._finish = finish
        self._read_again = read_again
        self._running = running
        self._resources = resources
        self._closing = threading.Lock()

    def batches(self) -> Iterator[pa.RecordBatch]:
        """All batches, once. FileChanged if a file was replaced or removed meanwhile."""
        try:
            for batch in self._batches():
                with self._running.waiting():
                    yield batch
        except FileChanged as error:
            raise FileChanged(
                error.path, "changed while the rows were read", hint="Run the query again, or use to_arrow()."
            ) from error
        except CannotSkip as error:
            raise SqlError(
                "DataFusion cannot skip rows in some file of this query.",
                hint="Run the query again: it will read the files whole.",
            ) from error
        finally:
            self.close()

    def to_table(self) -> pa.Table:
        """All rows. If a file changes meanwhile, or DataFusion fails in a way that has a cure, run the query again."""
        try:
            return pa.Table.from_batches([*self._batches()], self.schema)
        except (FileChanged, CannotSkip, EngineFault):
            self.close()
            return self._read_again()
        finally:
            self.close()

    def _batches(self) -> Iterator[pa.RecordBatch]:
        if self._first is None:
            raise UsageError("the rows of this result were already read.", hint="Run the query again.")
        first, self._first = self._first, None
        yield from first.to_batches()
        del first
        yield from self._more
        self._finish()

    def close(self) -> None:
        """End the query, and let go of all that it keeps; from any thread."""
        self._first = None
        with self._closing:
            resources = self._resources.pop_all()
        resources.close()

    def __del__(self) -> None:
        self.close()
