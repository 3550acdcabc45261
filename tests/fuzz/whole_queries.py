"""Whole queries against DuckDB, hundreds per lake. Lakes are numbered, and a number repeats its lake."""

from __future__ import annotations

import os
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random

from tests.fuzz.tally import Tally
from tests.property.whole_judge import Judge
from tests.property.whole_lakes import LakeSpec, random_lake
from tests.property.whole_queries import Queries
from tests.property.whole_shrinking import Finding, script, shrunk

QUERIES = 250
MOST_SHRUNK = 15
"""Findings that are shrunk in one run; the others are only counted."""


@dataclass(frozen=True)
class QueryTally(Tally):
    """`verdicts` counts all queries. `refused` has an example of each error with which one is refused."""

    verdicts: Counter[str] = field(default_factory=Counter)
    refused: list[str] = field(default_factory=list)


class Run:
    def __init__(self, scripts: Path | None = None, note: Path | None = None) -> None:
        self.scripts = scripts
        self.verdicts: Counter[str] = Counter()
        self.findings: dict[str, str] = {}
        self.refused: dict[str, str] = {}
        self.unshrunk = 0
        self._note = os.open(note, os.O_WRONLY | os.O_CREAT, 0o600) if note is not None else None

    def lake(self, number: int, deadline: float = float("inf"), queries: int = QUERIES) -> None:
        chance = Random(number)
        spec = with_views(chance, random_lake(chance))
        self._remember(f"lake {number}: made")
        with Judge(spec) as judge:
            spec = judge.spec
            if number % 2:
                judge.lake.engine.room = 1  # results are read as streams
            if number // 2 % 2:
                judge.lake.engine.queries.times_larger = judge.lake.engine.queries.least_rows = (
                    0  # tables of any size are narrowed
                )
            if number // 4 % 2:
                judge.lake.engine.queries.filters.worth_bytes = -1  # files of any size are filtered after they are read
            if number // 8 % 2:
                judge.runs = 2  # with what is kept of the first run
            made = Queries(chance, spec)
            for at in range(queries):
                if time.monotonic() > deadline:
                    return
                query = made.query()
                self._remember(f"lake {number}, query {at}: {query.lake}")
                verdict = judge.verdict(query)
                self.verdicts[verdict.name] += 1
                place = f"lake {number}, query {at}"
                if verdict.is_finding:
                    self._found(Finding(spec, query, verdict), place)
                elif verdict.name == "refused":
                    reason = "".join(letter for letter in str(verdict.found) if not letter.isdigit())[:50]
                    self.refused.setdefault(reason, f"{verdict.found} ({place})\n    {query.lake}")

    def tally(self) -> QueryTally:
        findings = list(self.findings.values())
        if self.unshrunk:
            findings.append(f"{self.unshrunk} more findings, not shrunk")
        tried = sum(self.verdicts.values())
        return QueryTally(tried, findings, self.verdicts, list(self.refused.values()))

    def _remember(self, text: str) -> None:
        """Record the current query, in case it kills the process."""
        if self._note is not None:
            data = text.encode()
            os.pwrite(self._note, data, 0)
            os.ftruncate(self._note, len(data))

    def _found(self, finding: Finding, place: str) -> None:
        if len(self.findings) >= MOST_SHRUNK:
            self.unshrunk += 1
            return
        finding = shrunk(finding.spec, finding.query, finding.verdict)
        if finding.signature in self.findings:
            self.verdicts["again"] += 1
            return
        self.findings[finding.signature] = text = described(finding, place)
        print(text, flush=True)
        if self.scripts is not None:
            name = f"{finding.verdict.name}-{place.replace(', ', '-').replace(' ', '-')}.py"
            (self.scripts / name).write_text(script(finding, place))


def with_views(chance: Random, spec: LakeSpec) -> LakeSpec:
    if chance.random() < 0.5:
        return spec
    return replace(spec, views=(Queries(chance, spec).view("v"),))


def described(finding: Finding, place: str) -> str:
    tables = "; ".join(
        f"{table.name}: {len(table.files)} files, {sum(file.rows for file in table.files)} rows"
        for table in finding.spec.tables
    )
    parameters = finding.query.tree.parameters()
    lines = [
        f"{finding.verdict.name} ({place})",
        finding.query.lake + (f" with {parameters}" if parameters else ""),
        f"expected {str(finding.verdict.expected)[:300]}",
        f"found    {str(finding.verdict.found)[:300]}",
        f"lake     {tables}",
        *(f"index    {index}" for index in finding.spec.indexes),
        *([f"settings {finding.spec.settings}"] if finding.spec.settings else []),
    ]
    return "\n    ".join(lines)


def run(seed: int, deadline: float, scripts: Path | None = None, note: Path | None = None) -> QueryTally:
    done = Run(scripts, note)
    number = seed
    while time.monotonic() < deadline:
        done.lake(number, deadline)
        number += 1
    return done.tally()
