"""String columns whose bytes are not UTF-8: every access path raises a clear error with file and column."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import needlepoint
from needlepoint import NotParquet
from needlepoint.lake import Lake

ROWS, WRONG = 400, 250  # one row has the wrong bytes
NOT_UTF8 = b"\xff\xfe\xfd and \x80"
LAYOUTS: dict[str, dict[str, Any]] = {
    "plain": {"use_dictionary": False},
    "dictionary": {"use_dictionary": True},
    "lengths": {"use_dictionary": False, "column_encoding": {"s": "DELTA_LENGTH_BYTE_ARRAY"}},
    "version 2": {"use_dictionary": True, "data_page_version": "2.0", "compression": "zstd"},
}


def strings(*, large: bool = False) -> pa.Array:
    values = [b"text %d" % (row % 300) for row in range(ROWS)]
    values[WRONG] = NOT_UTF8
    binaries = pa.array(values, pa.large_binary() if large else pa.binary())
    return pa.Array.from_buffers(pa.large_string() if large else pa.string(), ROWS, binaries.buffers())


def write(root: Path, column: pa.Array, **options: Any) -> None:
    (root / "t").mkdir(exist_ok=True)
    table = pa.table({"id": range(ROWS), "s": column, "n": [row % 7 for row in range(ROWS)]})
    pq.write_table(table, root / "t" / "a.parquet", max_rows_per_page=50, write_batch_size=50, write_page_index=True,
                   store_schema=False, **options)  # fmt: skip


@pytest.fixture(params=LAYOUTS)
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    write(tmp_path, strings(), **LAYOUTS[request.param])
    return tmp_path


@pytest.fixture
def lake(root: Path) -> Iterator[Lake]:
    with needlepoint.open(root, access="pages") as opened:
        opened.create_table("t")
        yield opened


def refused(lake: Lake, query: str) -> None:
    with pytest.raises(NotParquet, match=r"a\.parquet: column 's' has strings that are not UTF-8"):
        lake.sql(query).to_arrow()


@pytest.mark.covering
@pytest.mark.parametrize("access", ["pages", "scan", "auto"])
def test_every_way_refuses_it(root: Path, access: str) -> None:
    with needlepoint.open(root, access=access) as lake:
        lake.create_table("t")
        refused(lake, f"SELECT upper(s) FROM t WHERE id = {WRONG}")
        refused(lake, "SELECT CAST(s AS INT) FROM t WHERE n < 8")
        refused(lake, "SELECT id FROM t WHERE s LIKE '%and%'")
        if access == "pages":  # a scan also reads other rows, such as a whole dictionary
            assert lake.sql("SELECT s FROM t WHERE id = 5").rows() == [{"s": "text 5"}]
        assert len(lake.sql("SELECT id FROM t")) == ROWS


def test_rows_named_by_an_index(lake: Lake) -> None:
    lake.create_index("t", "id")
    for _ in range(3):  # from the second time on, dictionaries are cached
        refused(lake, f"SELECT s FROM t WHERE id = {WRONG}")
        refused(lake, f"SELECT s, id FROM t WHERE id IN ({', '.join(map(str, range(200, 300)))})")
        with pytest.raises(NotParquet, match="column 's'"):
            lake.table("t").get(id=WRONG)
        assert lake.table("t").get(id=WRONG, columns="n").rows() == [{"n": WRONG % 7}]
        assert lake.table("t").get(id=5, columns="s").rows() == [{"s": "text 5"}]


@pytest.mark.covering
@pytest.mark.parametrize("kind", ["key", "bloom", "distinct", "text"])
def test_indexes_of_the_column_itself(lake: Lake, kind: str) -> None:
    lake.create_index("t", "s", kind=kind)
    for where in ("s = 'text 7'", "s LIKE 'text 7'"):
        if kind in ("key", "distinct"):
            assert len(lake.sql(f"SELECT id FROM t WHERE {where}")) == 2
        else:  # these indexes find row groups or candidates, so the wrong row is read too
            refused(lake, f"SELECT id FROM t WHERE {where}")
    refused(lake, f"SELECT lower(s) FROM t WHERE id = {WRONG}")


def test_columns_read_after_the_rows_were_sifted(tmp_path: Path) -> None:
    write(tmp_path, strings(), use_dictionary=False)
    (tmp_path / "costs.json").write_text('{"local": {"file": 0, "request": 0, "scan_file": 1}}')
    with needlepoint.open(tmp_path, access="pages", costs=str(tmp_path / "costs.json")) as lake:
        lake.create_table("t")
        refused(lake, f"SELECT s FROM t WHERE id BETWEEN 210 AND 290 AND n = {WRONG % 7}")
        refused(lake, "SELECT n FROM t WHERE s < 'u' AND id BETWEEN 210 AND 290")


def test_one_of_many_files(tmp_path: Path) -> None:
    write(tmp_path, strings(), use_dictionary=False)
    for number in range(4):
        whole = pa.table({"id": range(ROWS), "s": [f"text {row}" for row in range(ROWS)], "n": [0] * ROWS})
        pq.write_table(whole, tmp_path / "t" / f"b{number}.parquet", use_dictionary=False, store_schema=False)
    with needlepoint.open(tmp_path, access="pages") as lake:
        lake.create_table("t")
        lake.create_index("t", "id")
        refused(lake, f"SELECT s FROM t WHERE id = {WRONG}")
        assert len(lake.sql("SELECT s FROM t WHERE id = 5")) == 5


@pytest.mark.parametrize("form", ["list", "struct", "map", "large", "categories"])
def test_strings_inside_other_types(tmp_path: Path, form: str) -> None:
    texts = strings()
    offsets = pa.array(range(ROWS + 1), pa.int32())
    match form:
        case "list":
            column = pa.ListArray.from_arrays(offsets, texts)
        case "struct":
            column = pa.StructArray.from_arrays([texts], ["a"])
        case "map":
            column = pa.MapArray.from_arrays(offsets, pa.array(["k"] * ROWS), texts)
        case "large":
            column = strings(large=True)
        case _:
            column = pa.DictionaryArray.from_arrays(pa.array(range(ROWS), pa.int32()), texts)
    (tmp_path / "t").mkdir()
    pq.write_table(pa.table({"id": range(ROWS), "s": column}), tmp_path / "t" / "a.parquet")  # with Arrow's schema
    for access in ("pages", "scan"):
        with needlepoint.open(tmp_path, access=access) as lake:
            if access == "pages":
                lake.create_table("t")
            refused(lake, f"SELECT s FROM t WHERE id = {WRONG}")
            assert len(lake.sql("SELECT id FROM t WHERE id < 5")) == 5


def test_deleting_by_such_a_column(lake: Lake) -> None:
    with pytest.raises(NotParquet, match="column 's'"):
        lake.delete("t", where="upper(s) = 'TEXT 5'")
    assert lake.delete("t", where="id = 5").rows == 1


def test_verify_names_the_column(lake: Lake) -> None:
    lake.create_index("t", "s")
    with pytest.raises(NotParquet, match="column 's'"):
        lake.verify("t")
