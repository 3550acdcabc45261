"""`make fuzz`: whole queries, mutated files and killed writers with new seeds, for some minutes, in two processes.

One process runs whole queries all the time; the other runs the parts in turn. A seed repeats a run. The number of a
lake, which every finding reports, repeats the queries of that lake: `python -m tests.fuzz --lake NUMBER`.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.fuzz.tally import Tally
from tests.fuzz.workers import Worker

PARTS = ("whole_queries", "mutated_files", "killed_writers")
SHARES = {"mutated_files": 0.35, "killed_writers": 0.25, "whole_queries": 0.4}
"""Shares of the time of the last process."""


def main() -> int:
    given = _arguments()
    if given.scripts is not None:
        given.scripts.mkdir(parents=True, exist_ok=True)
    if given.lake is not None:
        return _one_lake(given.lake, given.scripts)
    seed = random.SystemRandom().randrange(1, 10**6) if given.seed is None else given.seed
    print(f"SEED={seed}", flush=True)
    seconds, started = given.minutes * 60, time.monotonic()
    # The last process runs the parts in turn; the others run whole queries.
    jobs = [[("whole_queries", seconds)]] * (given.processes - 1 if "whole_queries" in given.parts else 0)
    shares = {part: SHARES[part] for part in given.parts}
    jobs.append([(part, share * seconds / sum(shares.values())) for part, share in shares.items()])
    tallies, died = _run(jobs, seed, given.scripts)
    failed = _report(tallies, time.monotonic() - started) or bool(died)
    for text in died:
        print(f"- {text}")
    return int(failed)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, help="repeat the run with this seed")
    parser.add_argument("--lake", type=int, help="run only the queries of this lake")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--parts", type=lambda text: text.split(","), default=list(PARTS), help=", ".join(PARTS))
    parser.add_argument("--scripts", type=Path, help="directory for scripts that reproduce the findings")
    return parser.parse_args()


def _one_lake(number: int, scripts: Path | None) -> int:
    from tests.fuzz.whole_queries import Run

    run = Run(scripts)
    run.lake(number)
    return int(_report({"whole_queries": [run.tally()]}, 0.0))


def _run(
    jobs: list[list[tuple[str, float]]], seed: int, scripts: Path | None
) -> tuple[dict[str, list[Tally]], list[str]]:
    """Run each list of jobs in its own process. A process that dies is reported, and started again for the rest."""
    tallies: dict[str, list[Tally]] = {}
    died: list[str] = []
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as directory:
        running = []
        # A process numbers its lakes from its seed; the seeds are a million apart.
        for worker, todo in enumerate(jobs):
            running.append(Worker(context, worker, todo, seed + worker * 1_000_000, scripts, Path(directory)))
        while running:
            running = [worker for worker in running if worker.step(tallies, died)]
            time.sleep(0.2)
    return tallies, died


def _report(tallies: dict[str, list[Tally]], seconds: float) -> bool:
    """Print what was done; return whether there is any finding."""
    failed = False
    for part, found in tallies.items():
        tried = sum(tally.tried for tally in found)
        findings = [finding for tally in found for finding in tally.findings]
        failed = failed or bool(findings)
        print(f"{part}: {tried} tried in {seconds:.0f} s, {len(findings)} findings")
        verdicts: Counter[str] = sum((getattr(tally, "verdicts", Counter()) for tally in found), Counter())
        if verdicts:
            print("   ", ", ".join(f"{count} {name}" for name, count in verdicts.most_common()))
        for text in dict.fromkeys(text for tally in found for text in getattr(tally, "refused", ())):
            print(f"    refused: {text}")
        for finding in findings:
            print(f"- {finding}")
    return failed


if __name__ == "__main__":
    sys.exit(main())
