"""Tasks of Spark as a pool: one function, many items, each in a job of one task.

Each item is a job of its own, because Spark returns the results of a job when all of it is done, or partition by
partition without running the next. Jobs that wait for a core cost nothing.

A task writes its files into the scratch directory where executors reach it: on one machine, or a shared file system.
Where they do not (a table in a bucket, the lake on the driver's disk), it writes to a local directory, and its files
are sent as rows of a few megabytes, by a shuffle: so neither side holds more than some of them in memory.
"""

from __future__ import annotations

import functools
import io
import os
import pickle
import shutil
import socket
import tempfile
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from needlepoint.errors import StoreError
from needlepoint.spark.errors import translated

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from needlepoint.indexer import SyncReport
    from needlepoint.lake import Lake

Item = TypeVar("Item")
Made = TypeVar("Made")

CHUNK = 4 << 20
# The driver fetches the files of a task in so many parts, one after the other.
PARTS = 8
MOST_JOBS = 512

_ROWS = "name string, start bigint, data binary"
_SCHEMA = pa.schema([("name", pa.string()), ("start", pa.int64()), ("data", pa.binary())])
_MARKER = "reached"
_RESULT = ""  # the name of the rows with the result of the function


def build(session: SparkSession, lake: Lake, table: str, index: str | None = None) -> SyncReport:
    """Build what the indexes of a table lack, or one of them, in tasks of Spark.

    A build that was killed continues where it was. Executors need this package and the table's files.
    """
    return lake.build(table, index, pool=SparkPool(session))[0]


class SparkPool:
    def __init__(self, session: SparkSession) -> None:
        self._session = session
        self._token = uuid.uuid4().hex
        self._reached: dict[Path, bool] = {}

    def cores(self) -> int:
        return max(1, self._session.sparkContext.defaultParallelism)

    def reaches(self, directory: Path) -> bool:
        """Test it: executors look for a file that was just created, and create another."""
        if directory not in self._reached:
            tasks, token = self.cores(), self._token
            (directory / _MARKER).write_text(token)

            def look(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
                for batch in batches:
                    found = pa.array([_reaches(directory, token)] * batch.num_rows)
                    yield pa.RecordBatch.from_arrays([found], ["reached"])

            frame = self._session.range(tasks, numPartitions=tasks).mapInArrow(look, "reached boolean")
            try:
                self._reached[directory] = all(row.reached for row in frame.collect())
            except Exception as failure:
                raise translated(failure, "starting tasks of Spark") from failure
        return self._reached[directory]

    def run(
        self, function: Callable[[Item, Path], Made], items: Sequence[Item], scratch: Path
    ) -> Iterator[tuple[Made, Path]]:
        there = (scratch, self._token) if self.reaches(scratch) else None
        tag = f"needlepoint-{uuid.uuid4().hex}"
        left = iter(items)
        running: set[Future[tuple[Made, Path]]] = set()
        with ThreadPoolExecutor(MOST_JOBS) as threads:
            try:
                while True:
                    # Twice the cores, so that none waits for the driver. The number of executors can change.
                    room = min(MOST_JOBS, 2 * self.cores()) - len(running)
                    for item in islice(left, max(0, room)):
                        work = functools.partial(_work, function, item, there)
                        running.add(threads.submit(self._job, work, scratch, tag))
                    if not running:
                        return
                    done, running = wait(running, return_when=FIRST_COMPLETED)
                    for future in done:
                        yield future.result()
            finally:
                if running:
                    self._session.interruptTag(tag)

    def _job(self, work: Callable[[], Iterator[pa.RecordBatch]], scratch: Path, tag: str) -> tuple[Any, Path]:
        """Run one task, and write its files into scratch."""

        def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for _ in batches:
                yield from work()

        self._session.addTag(tag)
        frame = self._session.range(1, numPartitions=1).mapInArrow(task, _ROWS)
        shipped = scratch / uuid.uuid4().hex
        result: dict[int, bytes] = {}
        try:
            if self._reached[scratch]:
                rows: Iterable[Any] = frame.collect()
            else:
                shipped.mkdir()
                rows = frame.repartition(PARTS, "name", "start").toLocalIterator()
            for row in rows:
                if row.name == _RESULT:
                    result[row.start] = bytes(row.data)
                else:
                    _write(shipped / row.name, row.start, row.data)
        except Exception as failure:
            shutil.rmtree(shipped, ignore_errors=True)
            raise translated(failure, "building indexes in Spark") from failure
        if shipped.exists():
            _settle(shipped)
        made, place = pickle.loads(b"".join(result[start] for start in sorted(result)))
        return made, scratch / place if place else shipped


def _reaches(directory: Path, token: str) -> bool:
    try:
        if (directory / _MARKER).read_text() != token:
            return False
        with tempfile.TemporaryFile(dir=directory):
            return True
    except OSError:
        return False


def _work(function: Callable[[Any, Path], Any], item: Any, there: tuple[Path, str] | None) -> Iterator[pa.RecordBatch]:
    """What runs in the executor. Each attempt at an item has a directory of its own."""
    if there is not None:
        scratch, token = there
        if not _reaches(scratch, token):
            raise StoreError(
                f"{socket.gethostname()} cannot write to {scratch}, unlike other executors.",
                hint="Mount the lake's directory on all of them, or on none but the driver.",
            )
        directory = scratch / uuid.uuid4().hex
        directory.mkdir()
        yield from _rows(_RESULT, io.BytesIO(pickle.dumps((function(item, directory), directory.name))))
        return
    # Spark's directory for large files of tasks, where it is configured.
    room = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0] or None
    with tempfile.TemporaryDirectory(dir=room, ignore_cleanup_errors=True) as beside:
        made = function(item, Path(beside))
        yield from _rows(_RESULT, io.BytesIO(pickle.dumps((made, ""))))
        # A directory is what an index kind used and could not remove.
        for path in sorted(path for path in Path(beside).iterdir() if path.is_file()):
            with path.open("rb") as file:
                yield from _rows(path.name, file)


def _rows(name: str, file: IO[bytes]) -> Iterator[pa.RecordBatch]:
    start, data = 0, file.read(CHUNK)
    while data or start == 0:
        row = [pa.array([name]), pa.array([start], pa.int64()), pa.array([data], pa.binary())]
        yield pa.RecordBatch.from_arrays(row, schema=_SCHEMA)
        start += CHUNK
        data = file.read(CHUNK)


def _write(path: Path, start: int, data: bytes) -> None:
    path.touch()
    with path.open("r+b") as file:
        file.seek(start)
        file.write(data)


def _settle(directory: Path) -> None:
    """Make its files survive a power cut, like those that are written here."""
    for path in directory.iterdir():
        with path.open("rb") as file:
            os.fsync(file.fileno())
