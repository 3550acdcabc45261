"""Files with a list of values, as DataFusion's example writes them: correct and wrong lists, and our own."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.unit.parquet.write.test_value_list import as_the_example_reads, write_example_file

import needlepoint

FILES = {"a": ["foo", "bar", "foo"], "b": ["baz", "qux"], "c": ["foo", "quux", "quux"]}


@pytest.mark.parametrize("embed", [False, True], ids=["external", "embedded"])
def test_files_of_the_example(tmp_path: Path, embed: bool) -> None:
    """What the example prunes is pruned here; a wrong list, or one of another column, changes no answer."""
    (tmp_path / "t").mkdir()
    for name, values in FILES.items():
        lie = ["nothing"] if name == "c" else values
        write_example_file(tmp_path / "t" / f"{name}.parquet", {"category": values, "n": [1] * len(values)}, lie)
    with needlepoint.open(tmp_path, refresh=0) as lake:
        lake.create_table("t")
        before = {path.name: path.read_bytes() for path in (tmp_path / "t").iterdir()}
        assert len(lake.sql("SELECT * FROM t WHERE category = 'foo'").rows()) == 3
        options = {"compat": "datafusion"} if embed else {}
        lake.create_index("t", "category", kind="distinct", embed=embed, **options)
        for category, count, files in (("foo", 3, 2), ("quux", 2, 1), ("qux", 1, 1), ("nothing", 0, 0)):
            found = lake.sql(f"SELECT n FROM t WHERE category = '{category}'")
            assert (len(found.rows()), found.report.tables[0].files.read) == (count, files)
        assert embed or before == {path.name: path.read_bytes() for path in (tmp_path / "t").iterdir()}


def test_lists_of_our_own_are_read_by_the_example(tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    for name, values in FILES.items():
        pq.write_table(pa.table({"category": [*values, None]}), tmp_path / "t" / f"{name}.parquet")
    two_lines = pa.table({"category": ["two\nlines"]})
    with needlepoint.open(tmp_path, refresh=0) as lake:
        lake.create_table("t")
        lake.create_index("t", "category", kind="distinct", embed=True, compat="datafusion")
        # A value with two lines cannot be in such a list, so this file gets none.
        pq.write_table(two_lines, tmp_path / "t" / "d.parquet")
        assert "holds 'two\\nlines'" in lake.sync("t")[0].failures[0].reason
        assert len(lake.sql("SELECT * FROM t WHERE category = 'two\nlines'").rows()) == 1
        assert len(lake.sql("SELECT * FROM t WHERE category = 'foo'").rows()) == 3
    for name, values in FILES.items():
        path = tmp_path / "t" / f"{name}.parquet"
        offset = int(pq.read_metadata(path).metadata[b"distinct_index_offset"])
        assert as_the_example_reads(path.read_bytes()[offset:]) == set(values)
    assert pq.read_table(tmp_path / "t" / "d.parquet").equals(two_lines)
    assert b"distinct_index_offset" not in (pq.read_metadata(tmp_path / "t" / "d.parquet").metadata or {})
