"""Work in processes of their own: a function with its arguments on standard input, its result on standard output.

Not multiprocessing: its children import the caller's main module again, which runs a script without a main guard twice.
A process ends when its caller does, however that came.
"""

from __future__ import annotations

import os
import pickle
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
    """Where one function is called with many items, side by side. All of them, and what comes back, can be pickled."""

    def cores(self) -> int:
        """How many calls run at a time, as far as is known now."""
        ...

    def reaches(self, directory: Path) -> bool:
        """Whether calls can read and write this directory."""
        ...

    def run(
        self, function: Callable[[Item, Path], Made], items: Sequence[Item], scratch: Path
    ) -> Iterator[tuple[Made, Path]]:
        """What the function returns, as it comes, in no order.

        Each call is given a directory of its own for files, and with the result comes the directory under `scratch`
        where they lie then. A call can be made more than once: of those, one comes back.
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


def _new_directory(scratch: Path) -> Path:
    directory = scratch / uuid.uuid4().hex
    directory.mkdir()
    return directory


def in_threads(calls: Sequence[Callable[[set[subprocess.Popen[bytes]]], Made]], threads: int) -> Iterator[Made]:
    """What the calls return, as it comes. Processes that they add to the set end when nobody asks for more."""
    with ThreadPoolExecutor(max(1, min(threads, len(calls)))) as pool:
        running: set[subprocess.Popen[bytes]] = set()
        futures = [pool.submit(call, running) for call in calls]
        try:
            for future in as_completed(futures):
                yield future.result()
        finally:
            for future in futures:
                future.cancel()
            for process in list(running):
                process.terminate()


def call_in_process(
    running: set[subprocess.Popen[bytes]],
    function: Callable[..., Made],
    *arguments: Any,
    descriptors: tuple[int, ...] = (),
) -> Made:
    """`running` holds the process while it runs, for whoever wants to end it early. It has these descriptors open."""
    ours, lifeline = os.pipe()  # of which it reads the end when this process is no more
    # -P: no module of the working directory is imported. A session of its own: Ctrl-C reaches the caller, who decides.
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
