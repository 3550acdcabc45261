"""Mutated files, in processes with little memory. A case that kills its process is reported; the next case runs."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import IO

from tests.fuzz import mutated_bases
from tests.fuzz.tally import Tally

CASES_IN_A_PROCESS = 500
LONGEST = 60.0  # seconds per case
START = 120.0  # seconds until the first case begins
MOST_FINDINGS = 50


def run(seed: int, deadline: float, most: int | None = None) -> Tally:
    """Run cases until `deadline`, by `time.monotonic`, or until `most` cases ran."""
    tried, findings = 0, []
    # In memory, if possible: otherwise every sync waits for the disk.
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as directory:
        template = Path(directory) / "template"
        mutated_bases.make(template)
        while time.monotonic() < deadline and (most is None or tried < most) and len(findings) < MOST_FINDINGS:
            last = tried + CASES_IN_A_PROCESS if most is None else min(tried + CASES_IN_A_PROCESS, most)
            with tempfile.TemporaryDirectory(dir=directory) as own:
                tried, found = _process(template, Path(own), seed, tried, last, deadline)
            findings += found
    return Tally(tried, findings)


def _process(
    template: Path, directory: Path, seed: int, first: int, last: int, deadline: float
) -> tuple[int, list[str]]:
    """The number of the next case, and the findings."""
    errors = directory / "stderr"
    root = Path(__file__).parents[2]
    path = os.pathsep.join(filter(None, (str(root), os.environ.get("PYTHONPATH"))))
    arguments = (template, directory, seed, first, last)
    # By default, malloc's arenas reserve address space for every thread.
    environment = {**os.environ, "PYTHONPATH": path, "MALLOC_ARENA_MAX": "2"}
    with errors.open("wb") as stderr:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.fuzz.mutated_cases", *map(str, arguments)],
            stdout=subprocess.PIPE, stderr=stderr, env=environment, cwd=root,
        )  # fmt: skip
    try:
        return _watched(process, errors, seed, first, deadline)
    finally:
        process.kill()
        process.wait()


def _watched(
    process: subprocess.Popen[bytes], errors: Path, seed: int, first: int, deadline: float
) -> tuple[int, list[str]]:
    lines = _lines(process.stdout)
    findings: list[str] = []
    current, begun = first, False
    while True:
        try:
            line = lines.get(timeout=LONGEST if begun else START)
        except queue.Empty:
            return current + 1, [*findings, f"seed {seed} case {current}: not finished after {LONGEST:.0f} s"]
        if line is None:
            break
        facts = json.loads(line)
        if "begin" in facts:
            current, begun = facts["begin"], True
            continue
        current += 1
        if "finding" in facts:
            findings.append(f"seed {seed} case {facts['done']}: {facts['finding']}")
        if time.monotonic() > deadline:
            return current, findings
    code = process.wait()
    if code:
        told = errors.read_text(errors="replace").strip()
        if not begun:
            raise RuntimeError(f"the process failed before its first case: {told[-2000:]}")
        shown = " | ".join(line.strip() for line in told.splitlines()[-40:])
        findings.append(f"seed {seed} case {current}: exit code {code}: {shown[:600]}")
        current += 1
    return current, findings


def _lines(stream: IO[bytes] | None) -> queue.Queue[bytes | None]:
    """Lines as they arrive; None at the end."""
    found: queue.Queue[bytes | None] = queue.Queue()
    assert stream is not None

    def read() -> None:
        for line in stream:
            found.put(line)
        found.put(None)

    threading.Thread(target=read, daemon=True).start()
    return found


if __name__ == "__main__":
    seed, seconds = int(sys.argv[1]), float(sys.argv[2])
    tally = run(seed, time.monotonic() + seconds, int(sys.argv[3]) if len(sys.argv) > 3 else None)
    print(f"{tally.tried} tried, {len(tally.findings)} findings")
    for finding in tally.findings:
        print("-", finding)
