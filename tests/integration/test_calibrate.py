"""What reads cost is measured, kept in the store for this kind of machine, and used; a bad file costs time only."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import needlepoint
from needlepoint import Lake
from needlepoint.cli.needle import main
from needlepoint.lake import calibrating
from needlepoint.query.scan.costs import COSTS_FILE, VERSION, Costs, keep_costs, machine_name, read_costs

ROWS = 20_000
QUERY = "SELECT sum(x) AS s FROM t WHERE id IN (7, 777, 7777, 17777)"
SLOW_PAGES = replace(Costs(), page=1.0, file=1.0)
SLOW_SCANS = replace(Costs(), scan=1.0)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "lake"
    (root / "t").mkdir(parents=True)
    chance = np.random.default_rng(1)
    for number in range(4):
        ids = chance.permutation(np.arange(number * ROWS // 4, (number + 1) * ROWS // 4))
        pq.write_table(pa.table({"id": ids, "x": ids * 3}), root / f"t/{number}.parquet", 
                       write_page_index=True, max_rows_per_page=500, use_dictionary=False)  # fmt: skip
    with needlepoint.open(root) as lake:
        lake.create_table("t")
        lake.create_index("t", "id")
    return root


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibrating, "measure", lambda: SLOW_SCANS)
    monkeypatch.setattr("needlepoint.lake.measure", lambda: SLOW_SCANS)


def _answer(lake: Lake) -> tuple[Any, bool]:
    """The answer, and whether files were scanned."""
    found = lake.sql(QUERY)
    (table,) = found.report.tables
    return found.rows(), bool(table.scanned_files)


@pytest.mark.long
def test_the_command_measures_and_keeps_plausible_costs(root: Path) -> None:
    done = CliRunner().invoke(main, ["calibrate", "--lake", str(root)])
    assert done.exit_code == 0, done.output
    assert "zstd_page" in done.output and COSTS_FILE in done.output and machine_name() in done.output
    kept = json.loads((root / ".needlepoint" / COSTS_FILE).read_text())
    costs = kept["machines"][machine_name()]["local"]
    assert kept["version"] == VERSION and costs.keys() == asdict(Costs()).keys()
    assert all(math.isfinite(each) and each > 0 for each in costs.values())
    # A second for a page, or a scan of a value in no time, is not plausible.
    assert costs["page"] + costs["zstd_page"] > costs["page"] + costs["lz4_page"]
    assert 1e-6 < costs["page"] < 1e-3 and 1e-5 < costs["file"] < 0.1 and costs["match"] > costs["scan_cell"]
    with needlepoint.open(root) as lake:
        assert asdict(lake.engine.costs.local) == costs
        assert lake.engine.costs.remote.request > 100 * lake.engine.costs.local.request
        assert _answer(lake)[0] == [{"s": 3 * (7 + 777 + 7777 + 17777)}]


def test_the_engine_goes_by_what_is_kept(root: Path) -> None:
    answers = []
    for costs, scanned in ((SLOW_PAGES, True), (SLOW_SCANS, False)):
        keep_costs(root / ".needlepoint", costs)
        for read_only in (False, True):
            with needlepoint.open(root, read_only=read_only) as lake:
                answer, way = _answer(lake)
                assert way == scanned
                answers.append(answer)
    assert all(answer == answers[0] for answer in answers)


def test_the_chosen_file_counts_more(root: Path, tmp_path: Path, quick: None) -> None:
    keep_costs(root / ".needlepoint", SLOW_PAGES)
    written = CliRunner().invoke(main, ["calibrate", "--output", str(tmp_path / "mine.json")])
    assert written.exit_code == 0 and "NEEDLE_COSTS" in written.output
    with needlepoint.open(root, costs=str(tmp_path / "mine.json")) as lake:
        assert not _answer(lake)[1]
        assert lake.engine.costs.local.scan == 1.0
    read_costs.cache_clear()


@pytest.mark.parametrize(
    "text",
    [
        "", "no", "[]", "{}", "[" * 5000, "\0", '{"version": 1}', '{"version": 1, "machines": []}',
        '{"version": 2, "machines": {"MACHINE": {"local": {"page": 1}}}}',
        '{"version": 1, "machines": {"another": {"local": {"page": 1}}}}',
        '{"version": 1, "machines": {"MACHINE": 5}}',
        '{"version": 1, "machines": {"MACHINE": {"local": {"page": -1}}}}',
        '{"version": 1, "machines": {"MACHINE": {"local": {"page": NaN}}}}',
        '{"version": 1, "machines": {"another": {"local": {"page": 1%s}}}}' % ("0" * 400),
        '{"version": 1, "machines": {"MACHINE": {"local": {"page": true}}}}',
        '{"version": 1, "machines": {"MACHINE": {"local": {"page": "1"}}}}',
        '{"version": 1, "machines": {"MACHINE": {"local": {"unknown": 1}}}}',
    ],
)  # fmt: skip
def test_a_bad_file_is_ignored(root: Path, text: str) -> None:
    path = root / ".needlepoint" / COSTS_FILE
    path.write_text(text.replace("MACHINE", machine_name()))
    with needlepoint.open(root, read_only=True) as lake:
        assert lake.engine.costs.local == Costs() and not lake.engine.costs.is_measured
        assert _answer(lake)[0] == [{"s": 3 * (7 + 777 + 7777 + 17777)}]
    keep_costs(path.parent, SLOW_SCANS)
    with needlepoint.open(root) as lake:
        assert lake.engine.costs.local == SLOW_SCANS


def test_a_directory_or_bytes_in_its_place_are_ignored(root: Path) -> None:
    path = root / ".needlepoint" / COSTS_FILE
    path.write_bytes(b"\xff\xfe\x00")
    with needlepoint.open(root) as lake:
        assert lake.engine.costs.local == Costs()
    path.unlink()
    path.mkdir()
    with needlepoint.open(root) as lake:
        assert lake.engine.costs.local == Costs()


def test_other_machines_are_kept(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = root / ".needlepoint"
    keep_costs(store, SLOW_PAGES)
    monkeypatch.setattr("needlepoint.query.scan.costs.machine_name", lambda: "another, 4 cores, x86_64")
    keep_costs(store, SLOW_SCANS)
    kept = json.loads((store / COSTS_FILE).read_text())["machines"]
    assert [each["local"]["page"] for each in kept.values()] == [1.0, Costs().page]
    assert list(store.glob(f".{COSTS_FILE}*")) == []


def test_a_read_only_lake_keeps_nothing(root: Path, quick: None) -> None:
    with needlepoint.open(root, read_only=True) as lake:
        found = lake.calibrate()
        assert found.path is None and found.costs["scan"] == 1.0
        assert lake.engine.costs.local == SLOW_SCANS
        assert not _answer(lake)[1]
    assert not (root / ".needlepoint" / COSTS_FILE).exists()


def test_a_long_build_measures_a_machine_once(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measured = []

    def measure() -> Costs:
        measured.append(1)
        return SLOW_SCANS

    monkeypatch.setattr(calibrating, "measure", measure)
    with needlepoint.open(root) as lake:
        lake.create_index("t", "x")
        assert not measured  # the build was short
        monkeypatch.setattr(calibrating, "WORTH_SECONDS", 0.0)
        lake.drop_index("t_x_key")
        lake.create_index("t", "x")
        lake.drop_index("t_x_key")
        lake.create_index("t", "x")
    assert measured == [1]
    assert (root / ".needlepoint" / COSTS_FILE).exists()


def test_a_machine_that_cannot_be_measured_fails_no_build(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> Costs:
        raise OSError("no space left")

    monkeypatch.setattr(calibrating, "measure", fail)
    monkeypatch.setattr(calibrating, "WORTH_SECONDS", 0.0)
    with needlepoint.open(root) as lake:
        assert lake.create_index("t", "x") == "t_x_key"


@pytest.mark.parametrize(
    ("query", "limit"),
    [
        ("SELECT id FROM t WHERE x > 5 LIMIT 10", 10),
        ("SELECT id + 1 FROM (SELECT * FROM t) AS u WHERE x > 5 LIMIT 10 OFFSET 3", 13),
        ("SELECT id FROM t WHERE x > 5", None),
        ("SELECT id FROM t WHERE x > 5 ORDER BY x LIMIT 10", None),
        ("SELECT count(*) FROM t WHERE x > 5 LIMIT 10", None),
        ("SELECT a.id FROM t a JOIN t b ON a.id = b.id LIMIT 10", None),
    ],
)
def test_a_scan_with_a_limit_is_known_to_stop_early(root: Path, query: str, limit: int | None) -> None:
    with needlepoint.open(root) as lake:
        plan, _ = lake.engine.queries.plans.of(query, None, from_indexes=False)
        assert plan.scans["t"].limit == limit
