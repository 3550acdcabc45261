"""Worker processes exit with their caller, and hold its lock until they do."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pyarrow as pa
import pytest

import needlepoint
from needlepoint.indexer.pools import Processes, call_in_process, in_threads
from needlepoint.tables import locks
from needlepoint.tables.model import Table

CALLER = """
import sys, time
from needlepoint.indexer.pools import Processes, call_in_process
from needlepoint.tables.model import Table
from needlepoint.tables.locks import TableLocks
import pathlib, pyarrow as pa

with TableLocks(pathlib.Path(sys.argv[1])).shared(Table(1, "t", "", pa.schema([]), ())) as turn:
    call_in_process(Processes(), time.sleep, 300, descriptors=turn)
"""


def gone(process: psutil.Process) -> bool:
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@pytest.mark.long
def test_it_ends_with_its_caller_and_keeps_the_turn_until_then(tmp_path: Path, monkeypatch) -> None:
    table = Table(1, "t", "", pa.schema([]), ())
    monkeypatch.setattr(locks, "LONGEST_WAIT", 0.2)
    caller = subprocess.Popen([sys.executable, "-c", CALLER, str(tmp_path)])
    try:
        while not (children := psutil.Process(caller.pid).children()):
            time.sleep(0.02)
        (worker,) = children
        time.sleep(0.5)  # it now watches for the exit of its caller
        os.kill(worker.pid, signal.SIGSTOP)
        caller.kill()
        caller.wait()
        with pytest.raises(needlepoint.StoreError, match="embedding"), locks.TableLocks(tmp_path).exclusive(table):
            pass
        os.kill(worker.pid, signal.SIGCONT)
        ends = time.monotonic() + 30
        while not gone(worker):
            assert time.monotonic() < ends
            time.sleep(0.02)
        with locks.TableLocks(tmp_path).exclusive(table):
            pass
    finally:
        caller.kill()


def test_a_process_that_starts_while_the_others_are_ended_ends_too() -> None:
    """The caller waited for all of its work, even if it was interrupted again."""

    def slow(running: Processes) -> None:
        time.sleep(0.5)  # as a process does that starts on a busy machine
        call_in_process(running, time.sleep, 300)

    results = in_threads([lambda running: None, slow], 2)
    assert next(results) is None
    started = time.monotonic()
    results.close()  # type: ignore[attr-defined]
    assert time.monotonic() - started < 60
