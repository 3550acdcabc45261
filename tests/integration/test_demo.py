"""`needle demo`, small: a real Spark session, a real lake, real comparisons."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner, Result

import needlepoint
from needlepoint.cli import main

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def demo(directory: Path, *options: str) -> Result:
    return CliRunner().invoke(main, ["demo", "--lake", str(directory), *options])


@pytest.mark.long
def test_it_runs_reuses_refuses_and_starts_again(tmp_path: Path, spark: SparkSession) -> None:
    lake = tmp_path / "demo"
    first = demo(lake, "--rows", "20000", "--batches", "2")
    assert first.exit_code == 0, first.output
    assert "batch 1 of 2: 10,000 rows in 24 files, written in " in first.stdout
    assert "batch 2 of 2: 10,000 rows in 24 files, written in " in first.stdout
    assert first.stdout.count("CREATE INDEX") == 2
    assert first.stdout.count("both answers are equal") == 6
    assert "product: files 1 of 48 -> " in first.stdout
    assert " times as fast" in first.stdout or " times faster" in first.stdout
    assert "\x1b" not in first.stdout and "Traceback" not in first.output

    again = demo(lake, "--rows", "20000", "--batches", "2")
    assert again.exit_code == 0, again.output
    assert "all batches are there from an earlier run and used again" in again.stdout
    assert "written in" not in again.stdout
    assert again.stdout.count("both answers are equal") == 6

    other = demo(lake, "--rows", "3000", "--batches", "1")
    assert (other.exit_code, other.stdout) == (1, "")
    assert "--rows 20000 --batches 2" in other.stderr and "--fresh" in other.stderr

    fresh = demo(lake, "--rows", "3000", "--batches", "1", "--fresh")
    assert fresh.exit_code == 0, fresh.output
    assert "batch 1 of 1: 3,000 rows" in fresh.stdout
    with needlepoint.open(lake) as opened:
        assert opened.sql("SELECT count(*) AS n FROM product").rows() == [{"n": 3000}]
        (product,) = (table for table in opened.status().tables if table.name == "product")
        assert product.indexed == product.files


@pytest.mark.long
def test_an_interrupted_run_goes_on(tmp_path: Path, spark: SparkSession) -> None:
    """A run that dies after its first batch leaves the mark, the batch and an event, but no index."""
    from needlepoint.spark import write
    from needlepoint.spark.products import products

    lake = tmp_path / "demo"
    lake.mkdir()
    (lake / "demo.json").write_text(json.dumps({"rows": 2000, "batches": 2}))
    with needlepoint.open(lake) as opened:
        partitions = ["partner", "year", "month"]
        first = products(spark, 2000, batch=0, batches=2)
        write(first, opened, "product", batch="demo/0", partition_by=partitions, files_per_partition=1)
    done = demo(lake, "--rows", "2000", "--batches", "2")
    assert done.exit_code == 0, done.output
    assert "1 of 2 batches are there from an earlier run and used again" in done.stdout
    assert "batch 1 of 2" not in done.stdout and "batch 2 of 2: 1,000 rows" in done.stdout
    with needlepoint.open(lake) as opened:
        assert opened.sql("SELECT count(*) AS n FROM product").rows() == [{"n": 2000}]


def test_another_directory_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "precious.txt").write_text("mine")
    for options in ([], ["--fresh"]):
        refused = demo(tmp_path, *options)
        assert (refused.exit_code, refused.stdout) == (1, "")
        assert "is not a demo lake" in refused.stderr
    assert (tmp_path / "precious.txt").read_text() == "mine"


def test_needle_lake_does_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "demo-lake").write_text("a file where the demo wants a directory")
    refused = CliRunner(env={"NEEDLE_LAKE": str(tmp_path / "other")}).invoke(main, ["demo"])
    assert refused.exit_code == 1 and "'demo-lake' cannot be written" in refused.stderr
    assert not (tmp_path / "other").exists()
