"""`make fuzz`: whole queries, mutated files and killed writers with new seeds, for some minutes, in two processes.

One process asks whole queries all the time; the other takes the parts in turn. A seed repeats a run; the number of a
lake, which every finding tells, repeats its queries: `python -m tests.fuzz --lake NUMBER`.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from importlib import import_module
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from tests.fuzz.tally import Tally

PARTS = ("whole_queries", "mutated_files", "killed_writers")
SHARES = {"mutated_files": 0.35, "killed_writers": 0.25, "whole_queries": 0.4}
"""Of the time of the second process."""


def main() -> int:
    given = _arguments()
    if given.scripts is not None:
        given.scripts.mkdir(parents=True, exist_ok=True)
    if given.lake is not None:
        return _one_lake(given.lake, given.scripts)
    seed = random.SystemRandom().randrange(1, 10**6) if given.seed is None else given.seed
    print(f"SEED={seed}", flush=True)
    seconds, started = given.minutes * 60, time.monotonic()
    # Lakes of one process are numbered from here, of the next from another million on.
    jobs = [[(part, share * seconds)] for part, share in (("whole_queries", 1.0),) if part in given.parts]
    jobs *= max(1, given.processes - 1)
    shares = {part: SHARES[part] for part in given.parts}
    jobs.append([(part, share * seconds / sum(shares.values())) for part, share in shares.items()])
    tallies, died = _run(jobs[: given.processes], seed, given.scripts)
    failed = _report(tallies, time.monotonic() - started) or bool(died)
    for text in died:
        print(f"- {text}")
    return int(failed)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, help="repeat the run with this seed")
    parser.add_argument("--lake", type=int, help="ask the queries of this lake only")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--parts", type=lambda text: text.split(","), default=list(PARTS), help=", ".join(PARTS))
    parser.add_argument("--scripts", type=Path, help="directory for a script of each finding")
    return parser.parse_args()


def _one_lake(number: int, scripts: Path | None) -> int:
    from tests.fuzz.whole_queries import Run

    run = Run(scripts, inherited=True)
    run.lake(number)
    return int(_report({"whole_queries": [run.tally()]}, 0.0))


def _run(
    jobs: list[list[tuple[str, float]]], seed: int, scripts: Path | None
) -> tuple[dict[str, list[Tally]], list[str]]:
    """Each list of jobs in a process of its own; one that dies is told of and started again for what is left."""
    tallies: dict[str, list[Tally]] = {}
    died: list[str] = []
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as directory:
        running = []
        for worker, todo in enumerate(jobs):
            running.append(_Worker(context, worker, todo, seed + worker * 1_000_000, scripts, Path(directory)))
        while any(worker.step(tallies, died) for worker in running):
            time.sleep(0.2)
    return tallies, died


class _Worker:
    def __init__(
        self, context: Any, number: int, todo: list[tuple[str, float]], seed: int, scripts: Path | None, directory: Path
    ) -> None:
        self.context, self.todo, self.seed, self.scripts = context, list(todo), seed, scripts
        self.note = directory / f"note-{number}"
        self.until = 0.0
        self._start()

    def _start(self) -> None:
        part, seconds = self.todo[0]
        self.until = self.until if self.until > time.monotonic() else time.monotonic() + seconds
        self.receiving, sending = self.context.Pipe(duplex=False)
        self.process = self.context.Process(
            target=_work, args=(part, self.seed, self.until, self.scripts, self.note, sending)
        )
        self.process.start()
        sending.close()

    def step(self, tallies: dict[str, list[Tally]], died: list[str]) -> bool:
        """Whether there is more to do."""
        if not self.todo:
            return False
        part = self.todo[0][0]
        if self.receiving.poll():
            try:
                tallies.setdefault(part, []).append(self.receiving.recv())
            except EOFError:
                self.process.join()
                note = self.note.read_text() if self.note.exists() else ""
                died.append(f"{part}: a process ended with {self.process.exitcode} at {note[:2000]}")
                self.seed += 100_000
                if time.monotonic() < self.until - 5:
                    self._start()
                    return True
            self.process.join()
            self.todo.pop(0)
            self.until = 0.0
            if self.todo:
                self._start()
        return bool(self.todo)


def _work(part: str, seed: int, until: float, scripts: Path | None, note: Path, sending: Connection) -> None:
    # Panics of DataFusion are judged, and need not be printed.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
    run: Callable[..., Tally] = import_module(f"tests.fuzz.{part}").run
    sending.send(run(seed, until, scripts, note) if part == "whole_queries" else run(seed, until))
    sending.close()


def _report(tallies: dict[str, list[Tally]], seconds: float) -> bool:
    """Print what was done; whether there is any finding."""
    failed = False
    for part, found in tallies.items():
        tried = sum(tally.tried for tally in found)
        findings = [finding for tally in found for finding in tally.findings]
        failed = failed or bool(findings)
        print(f"{part}: {tried} tried in {seconds:.0f} s, {len(findings)} findings")
        verdicts: Counter[str] = sum((getattr(tally, "verdicts", Counter()) for tally in found), Counter())
        if verdicts:
            print("   ", ", ".join(f"{count} {name}" for name, count in verdicts.most_common()))
        for name in ("inherited", "refused"):
            for text in dict.fromkeys(text for tally in found for text in getattr(tally, name, ())):
                print(f"    {name}: {text}")
        for finding in findings:
            print(f"- {finding}")
    return failed


if __name__ == "__main__":
    sys.exit(main())
