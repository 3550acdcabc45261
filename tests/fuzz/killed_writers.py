"""Writers are killed at any point: the lake then opens, has everything that was acknowledged, and catches up.

A process changes a lake by a plan, and logs each change before and after it. The test derives the same plan from the
seed, and kills the process. The rows must then be those after all finished changes, with or without the unfinished one.
"""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pyarrow as pa
from tests.fuzz.tally import Tally
from tests.lakes import staged

import needlepoint
from needlepoint import Lake
from needlepoint.errors import NeedlepointError

KILLS_OF_A_LAKE = 12
MOST_FINDINGS = 20
LONGEST = 60.0  # seconds until a new process begins its first change
INDEXES = (
    ("id", "key", False), ("s", "text", True), ("k", "distinct", True), ("k", "bloom", False), ("id", "key", True),
    ("s", "key", False),
)  # fmt: skip


@dataclass(frozen=True)
class Step:
    """A change: `first` and `count` are the ids it adds or removes."""

    what: str
    number: int
    first: int = 0
    count: int = 0


def plan(seed: int) -> list[Step]:
    """The changes that a process makes, in order."""
    chance = Random(seed)
    steps, first = [], seed * 100_000
    for number in range(200):
        what = chance.choice(("publish", "publish", "publish", "delete", "index", "drop", "sync", "follow", "compact"))
        count = chance.randint(1, 60)
        steps.append(Step(what, number, first, count))
        first += count if what == "publish" else 0
    return steps


def after(rows: frozenset[int], step: Step) -> frozenset[int]:
    if step.what == "publish":
        return rows | set(range(step.first, step.first + step.count))
    if step.what == "delete":
        return frozenset(id for id in rows if not _doomed(id, step))
    return rows


def _doomed(id: int, step: Step) -> bool:
    return id % 11 == step.number % 11


def products(step: Step) -> dict[str, pa.Table]:
    """Two files in two partitions."""
    ids = list(range(step.first, step.first + step.count))
    half = len(ids) // 2
    return {f"p={number}/x.parquet": _rows(part) for number, part in enumerate((ids[:half], ids[half:])) if part}


def _rows(ids: list[int]) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "k": pa.array([id % 7 for id in ids], pa.int64()),
                     "s": [f"title {id % 13} of {id}" for id in ids]})  # fmt: skip


def change(lake: Lake, step: Step, seed: int) -> None:
    match step.what:
        case "publish":
            staging = lake.writer.staging("t")
            lake.publish("t", staged(staging, products(step)), staging, f"{seed}-{step.number}")
        case "delete":
            lake.delete("t", f"id % 11 = {step.number % 11}")
        case "index":
            column, kind, embed = INDEXES[step.number % len(INDEXES)]
            lake.create_index("t", column, kind, embed=embed, name=f"ix{step.number % len(INDEXES)}")
        case "drop":
            lake.drop_index(f"ix{step.number % len(INDEXES)}", strip=step.number % 2 == 0)
        case "sync":
            lake.sync("t")
        case "follow":
            list(lake.follow_events(once=True))
        case "compact":
            lake.compact("t")


def write(root: str, seed: int, log: str) -> None:
    """The process that is killed. What the lake refuses, such as a second index with the same name, changes nothing."""
    with needlepoint.open(root, refresh=0, workers=1) as lake, open(log, "ab", buffering=0) as notes:
        for step in plan(seed):
            notes.write(f"begin {step.number}\n".encode())
            try:
                change(lake, step, seed)
            except NeedlepointError as error:
                notes.write(
                    f"refused {step.number} {type(error).__name__} {error}\n".replace("\n", " ").encode() + b"\n"
                )
            else:
                notes.write(f"done {step.number}\n".encode())


def run(seed: int, deadline: float, most: int | None = None) -> Tally:
    """Kill processes until `deadline`, by `time.monotonic`, or `most` times."""
    kills, findings = 0, []
    chance = Random(seed)
    while time.monotonic() < deadline and len(findings) < MOST_FINDINGS and (most is None or kills < most):
        root = Path(tempfile.mkdtemp(prefix="needlepoint-killed-"))
        try:
            history = _History(root, chance)
            for _ in range(KILLS_OF_A_LAKE):
                if time.monotonic() > deadline or kills == most:
                    break
                kills += 1
                if problem := history.kill():
                    findings.append(f"killed writers, seed {seed}, kill {kills}: {problem}")
                    break
        finally:
            shutil.rmtree(root, ignore_errors=True)
    return Tally(kills, findings)


class _History:
    """A lake, and the rows that it must have."""

    def __init__(self, root: Path, chance: Random) -> None:
        self.root = root
        self.chance = chance
        self.rows: frozenset[int] = frozenset()
        self.context = multiprocessing.get_context("forkserver")
        self.context.set_forkserver_preload(["tests.fuzz.killed_writers"])
        with needlepoint.open(root / "lake", workers=1) as lake:
            first = Step("publish", 0, 0, 20)
            change(lake, first, 0)
            self.rows = after(self.rows, first)

    def kill(self) -> str:
        """Start a process, kill it, and check the lake; return the problem, if there is one."""
        seed = self.chance.randrange(1, 1_000_000)
        log = self.root / f"log-{seed}"
        log.touch()
        process = self.context.Process(target=write, args=(str(self.root / "lake"), seed, str(log)))
        process.start()
        limit = time.monotonic() + LONGEST
        while not log.stat().st_size and process.is_alive() and time.monotonic() < limit:
            time.sleep(0.005)
        time.sleep(self.chance.choice((0.01, 0.1, 0.5, 2.0)) * self.chance.random())
        if process.is_alive():
            os.kill(process.pid, signal.SIGKILL)
        process.join()
        if process.exitcode not in (-signal.SIGKILL, 0):
            return f"the writer with seed {seed} exits by itself with code {process.exitcode}"
        return self._look(seed, log.read_text().splitlines())

    def _look(self, seed: int, lines: list[str]) -> str:
        steps = plan(seed)
        done = {int(line.split()[1]) for line in lines if line.startswith("done")}
        begun = [int(line.split()[1]) for line in lines if line.startswith("begin")]
        refused = {int(line.split()[1]): line for line in lines if line.startswith("refused")}
        for number in sorted(done):
            self.rows = after(self.rows, steps[number])
        for number, line in refused.items():
            if line.split()[2] not in ("NameTaken", "UnknownName"):
                return f"seed {seed}: {steps[number]} is refused: {line}"
        open_step = next((steps[number] for number in begun if number not in done | refused.keys()), None)
        possible = [self.rows] + ([after(self.rows, open_step)] if open_step else [])
        try:
            with needlepoint.open(self.root / "lake", refresh=0, workers=1) as lake:
                return self._answers(lake, seed, open_step, possible)
        except Exception as error:
            return f"seed {seed}, at {open_step}: {type(error).__name__}: {error}"

    def _answers(self, lake: Lake, seed: int, open_step: Step | None, possible: list[frozenset[int]]) -> str:
        at = f"seed {seed}, killed at {open_step}"
        found = _ids(lake)
        if sorted(found) not in [sorted(rows) for rows in possible]:
            return f"{at}: {_difference(found, possible)}"
        if len(possible) > 1 and sorted(found) == sorted(possible[1]):
            possible = possible[1:]  # rows that a query has seen must stay
        list(lake.follow_events(once=True))
        lake.sync("t")  # finishes an interrupted change
        if open_step is not None and open_step.what == "publish":
            change(lake, open_step, seed)  # published again: its rows must exist once
            possible = possible[-1:]
        found = _ids(lake)
        if sorted(found) not in [sorted(rows) for rows in possible]:
            return f"{at}, after it caught up: {_difference(found, possible)}"
        self.rows = frozenset(found)
        return self._lookups(lake, at)

    def _lookups(self, lake: Lake, at: str) -> str:
        sample = self.chance.sample(sorted(self.rows), min(len(self.rows), 5))
        for id in sample:
            for where in (f"id = {id}", f"s = 'title {id % 13} of {id}'", f"id = {id} AND k = {id % 7}"):
                found = [row["id"] for row in lake.sql(f"SELECT id FROM t WHERE {where}").rows()]
                if found != [id]:
                    return f"{at}: {where} finds {found}"
        for remainder in range(7):
            found = sorted(row["id"] for row in lake.sql(f"SELECT id FROM t WHERE k = {remainder}").rows())
            if found != sorted(id for id in self.rows if id % 7 == remainder):
                return f"{at}: k = {remainder} finds {len(found)} rows"
        report = lake.verify("t", samples=3, seed=1)
        return f"{at}: verify finds {report.differences}" if report.differences else ""


def _ids(lake: Lake) -> list[int]:
    return [row["id"] for row in lake.sql("SELECT id FROM t").rows()]


def _difference(found: list[int], possible: list[frozenset[int]]) -> str:
    rows = possible[0]
    lost, more = sorted(rows - set(found)), sorted(set(found) - rows)
    twice = len(found) - len(set(found))
    wanted = " or ".join(str(len(each)) for each in possible)
    return f"{len(found)} rows instead of {wanted}: missing {lost[:5]}, extra {more[:5]}, {twice} duplicates"
