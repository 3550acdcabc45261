"""Partition columns whose values appear and disappear."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from tests.lakes import write

import needlepoint


def put(location: Path, *directories: str) -> None:
    for number, directory in enumerate(directories):
        write(pa.table({"id": [number]}), location / directory / "a.parquet")


def values(lake: needlepoint.Lake) -> list[object]:
    return [row["p"] for row in lake.sql("SELECT p FROM t ORDER BY p").rows()]


@pytest.mark.parametrize("synced", [True, False])
def test_a_column_stays_a_string_when_only_numbers_are_left(tmp_path: Path, synced: bool) -> None:
    location = tmp_path / "lake/t"
    put(location, "p=1", "p=x")
    with needlepoint.open(tmp_path / "lake", refresh=0) as lake:
        lake.create_table("t")
        assert values(lake) == ["1", "x"]
        shutil.rmtree(location / "p=x")
        put(location, "p=2")
        if synced:
            lake.sync("t")
        assert values(lake) == ["1", "2"]
        assert lake.sql("SELECT id FROM t WHERE p = '1'").rows() == [{"id": 0}]
        assert lake.registry.tables.get("t").schema.field("p").type == pa.string()


@pytest.mark.parametrize(("first", "type"), [("p=1", pa.int64()), ("p=2024-02-29", pa.date32())])
def test_a_column_keeps_its_type_when_only_null_is_left(tmp_path: Path, first: str, type: pa.DataType) -> None:
    location = tmp_path / "lake/t"
    put(location, first)
    with needlepoint.open(tmp_path / "lake", refresh=0) as lake:
        lake.create_table("t")
        shutil.rmtree(location / first)
        put(location, "p=__HIVE_DEFAULT_PARTITION__")
        assert values(lake) == [None]
        lake.sync("t")
        assert lake.registry.tables.get("t").schema.field("p").type == type


def test_a_column_becomes_a_string_when_a_value_needs_it(tmp_path: Path) -> None:
    location = tmp_path / "lake/t"
    put(location, "p=1")
    with needlepoint.open(tmp_path / "lake", refresh=0) as lake:
        lake.create_table("t")
        assert values(lake) == [1]
        put(location, "p=1", "p=2024-01-01")
        assert values(lake) == ["1", "2024-01-01"]
        lake.sync("t")
        shutil.rmtree(location / "p=1")
        assert values(lake) == ["2024-01-01"]


def test_two_values_of_one_column_in_a_path_are_refused(tmp_path: Path) -> None:
    put(tmp_path / "lake/t", "p=1/p=2")
    put(tmp_path / "lake/u", "p=1")
    with needlepoint.open(tmp_path / "lake", refresh=0) as lake:
        with pytest.raises(needlepoint.SchemaConflict, match=r"p=1/p=2/a\.parquet has more than one value .* 'p'"):
            lake.create_table("t")
        lake.create_table("u")
        put(tmp_path / "lake/u", "p=1/p=2")
        with pytest.raises(needlepoint.SchemaConflict):
            lake.sql("SELECT * FROM u")


def test_default_names_of_indexes_do_not_collide(tmp_path: Path) -> None:
    columns = ["a b", "a.b", "a_b", "A B"]
    long = ["x" * 80 + "1", "x" * 80 + "2"]
    write(pa.table({name: [1] for name in columns + long}), tmp_path / "lake/t/a.parquet")
    write(pa.table({"b_b": [1]}), tmp_path / "lake/t_a/a.parquet")
    write(pa.table({"a_b_b": [1]}), tmp_path / "lake/t_b/a.parquet")
    with needlepoint.open(tmp_path / "lake") as lake:
        for name in ("t", "t_a", "t_b"):
            lake.create_table(name)
        names = [lake.create_index("t", column) for column in columns]
        assert names == ["t_a_b_key", "t_a_b_key_2", "t_a_b_key_3", "t_a_b_key_4"]
        names += [lake.create_index("t", column) for column in long]
        assert len({*names}) == 6
        assert all(len(name) <= 63 for name in names)
        with pytest.raises(needlepoint.NameTaken, match="t_a_b_key_2"):
            lake.create_index("t", "a.b")
        assert lake.sql('SELECT "a.b" AS x FROM t WHERE "a.b" = 1').rows() == [{"x": 1}]


@pytest.mark.parametrize("url", ["s3://KEY:HUSH@bucket/x", "s3://KEY:HU/SH@bucket//x", "gs://KEY:HUSH@bucket/x"])
def test_credentials_in_a_url_are_refused_and_not_shown(tmp_path: Path, url: str) -> None:
    from needlepoint.objects import identify

    with needlepoint.open(tmp_path / "lake") as lake:
        for attempt in (
            lambda: needlepoint.open(url, store=tmp_path / "store"),
            lambda: lake.create_table("t", url),
            lambda: identify(url.replace("gs:", "s3:")),
        ):
            with pytest.raises(needlepoint.UsageError, match="credentials") as refused:
                attempt()
            assert "HU" not in str(refused.value)
            assert "KEY:" not in str(refused.value)
