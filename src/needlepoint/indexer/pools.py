"""Pools: where one function is called with many items.

A process gets the function and its arguments on standard input, and writes the result to standard output. It does not
use multiprocessing, whose children import the caller's main module: a script without a main guard would run twice. A
process exits when its caller does, for whatever reason.
"""

from __future__ import annotations

import os
import pickle
import shutil
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any, Protocol, TypeVar

from needlepoint.errors import StoreError

Item = TypeVar("Item")
Made = TypeVar("Made")


class Pool(Protocol):
    """Calls one function with many items in parallel. Function, items and results must be picklable."""

    def cores(self) -> int:
        """How many calls run at the same time, as far as is known now."""
        ...

    def reaches(self, directory: Path) -> bool:
        """Whether calls can read and write this directory."""
        ...

    def run(
        self, function: Callable[[Item, Path], Made], items: Sequence[Item], scratch: Path
    ) -> Iterator[tuple[Made, Path]]:
        """Results as they come, in no order.

        Each call gets a directory of its own for files. With the result comes the directory under `scratch` that holds
        them afterwards. A call can be made more than once; one of its results is returned.
        """
        ...


class InlinePool:
    """This process: for work that is done before another one has started."""

    def cores(self) -> int:
        return 1

    def reaches(self, directory: Path) -> bool:
        return True

    def run(
        self, function: Callable[[Item, Path], Made], items: Sequence[Item], scratch: Path
    ) -> Iterator[tuple[Made, Path]]:
        for item in items:
            directory = _new_directory(scratch)
            yield function(item, directory), directory


class LocalPool:
    """Processes of this machine. They inherit open `descriptors`, such as those of locks."""

    def __init__(self, processes: int, descriptors: tuple[int, ...] = ()) -> None:
        self._processes = processes
        self._descriptors = descriptors

    def cores(self) -> int:
        return self._processes

    def reaches(self, directory: Path) -> bool:
        return True

    def run(
        self, function: Callable[[Item, Path], Made], items: Sequence[Item], scratch: Path
    ) -> Iterator[tuple[Made, Path]]:
        def call(item: Item) -> Callable[..., Any]:
            directory = _new_directory(scratch)
            return lambda running: (
                call_in_process(running, function, item, directory, descriptors=self._descriptors),
                directory,
            )

        return in_threads([call(item) for item in items], self._processes)


class PoolTasks:
    """The tasks of a store (stores/base.py, StoreTasks) in a pool. Files of calls are below `scratch`."""

    def __init__(self, pool: Pool, scratch: Path) -> None:
        self._pool, self._scratch = pool, scratch

    def run(self, function: Callable[[Item, Path], Made], items: Sequence[Item]) -> Iterator[Made]:
        for made, directory in self._pool.run(function, items, self._scratch):
            shutil.rmtree(directory, ignore_errors=True)
            yield made


def _new_directory(scratch: Path) -> Path:
    directory = scratch / uuid.uuid4().hex
    directory.mkdir()
    return directory


class Processes:
    """Processes that threads wait for. Once they are ended, one that is only starting ends at once too: otherwise its
    thread, and so the caller, would wait for all of its work."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[bytes]] = set()
        self._ended = False

    def add(self, process: subprocess.Popen[bytes]) -> None:
        with self._lock:
            self._running.add(process)
            if self._ended:
                process.terminate()

    def discard(self, process: subprocess.Popen[bytes]) -> None:
        with self._lock:
            self._running.discard(process)

    def end(self) -> None:
        with self._lock:
            self._ended = True
            for process in self._running:
                process.terminate()


def in_threads(calls: Sequence[Callable[[Processes], Made]], threads: int) -> Iterator[Made]:
    """Results of the calls, as they come. When the caller stops, the processes of the calls are ended."""
    with ThreadPoolExecutor(max(1, min(threads, len(calls)))) as pool:
        running = Processes()
        futures = [pool.submit(call, running) for call in calls]
        try:
            for future in as_completed(futures):
                yield future.result()
        finally:
            for future in futures:
                future.cancel()
            running.end()


def call_in_process(
    running: Processes,
    function: Callable[..., Made],
    *arguments: Any,
    descriptors: tuple[int, ...] = (),
) -> Made:
    """`running` holds the process while it runs, so that it can be ended early. It inherits these descriptors."""
    ours, lifeline = os.pipe()  # it reads the end of the pipe when this process exits
    # -P: no module of the working directory is imported. A session of its own: Ctrl-C reaches only the caller.
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", "from needlepoint.indexer.pools import main; main()", str(ours)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        pass_fds=(ours, *descriptors),
    )
    os.close(ours)
    running.add(process)
    try:
        output, errors = process.communicate(pickle.dumps((function, arguments)))
    finally:
        running.discard(process)
        os.close(lifeline)
    if process.returncode != 0:
        last = errors.decode(errors="replace").strip().splitlines()[-1:] or [f"exit code {process.returncode}"]
        raise StoreError(
            f"a process that builds indexes died: {last[0]}.",
            hint="What was finished is kept; sync again. Short of memory? Lower NEEDLE_INDEX_MEMORY or NEEDLE_WORKERS.",
        )
    made: Made = pickle.loads(output)
    return made


def main() -> None:
    threading.Thread(target=_end_with_caller, args=(int(sys.argv[1]),), daemon=True).start()
    # Libraries that print must not get in between.
    out = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    function, arguments = pickle.loads(sys.stdin.buffer.read())
    with out:
        out.write(pickle.dumps(function(*arguments)))


def _end_with_caller(lifeline: int) -> None:
    os.read(lifeline, 1)
    os._exit(1)
