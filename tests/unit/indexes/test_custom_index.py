"""The kind of docs/custom-index.md, registered like an installed package: built, used, damaged, and in a lake."""

from __future__ import annotations

import math
import os
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DataObject
from tests.cases import cases
from tests.property.kinds import BY_NAME
from tests.unit.indexes.asking import Held, built, edges, numbers, questions, source_of, true_rows

import needlepoint
from needlepoint.errors import NotIndexable, UsageError
from needlepoint.indexes import kinds
from needlepoint.indexes.base import IndexKind
from needlepoint.predicate import Between, Compare
from needlepoint.stores.base import IndexDamaged

ROOT = Path(__file__).parents[3]
PACKAGE = ROOT / "examples" / "custom_index"
FLOAT = BY_NAME["float64"]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[IndexKind]:
    """Set up what an installer leaves: the module on the path, and its entry points in a dist-info."""
    project = tomllib.loads((PACKAGE / "pyproject.toml").read_text())["project"]
    site = tmp_path_factory.mktemp("site")
    information = site / "needlepoint_geogrid-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: 1.0\n")
    points = "\n".join(
        f"[{group}]\n" + "\n".join(f"{name} = {value}" for name, value in names.items())
        for group, names in project["entry-points"].items()
    )
    (information / "entry_points.txt").write_text(points)
    with pytest.MonkeyPatch.context() as patch:
        for place in (site, PACKAGE / "src"):
            patch.syspath_prepend(place)
        # Indexes are built in other processes.
        paths = [str(site), str(PACKAGE / "src"), os.environ.get("PYTHONPATH", "")]
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))
        kinds.kind.cache_clear()
        yield kinds.kind("geogrid")
    kinds.kind.cache_clear()
    sys.modules.pop("needlepoint_geogrid", None)


PLACES = st.sampled_from([48.85, 2.35, -90.0, 90.0, 180.0, -180.0, 0.0, -0.0, 1e300, math.nan, math.inf, -math.inf])
DEGREES = st.none() | PLACES | st.floats(-180, 180)


@settings(deadline=None, max_examples=cases(60), suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_every_row_that_matches_is_found(installed: IndexKind, data: DataObject) -> None:
    rows = data.draw(st.integers(0, 30))
    values = {name: data.draw(st.lists(DEGREES, min_size=rows, max_size=rows)) for name in ("latitude", "longitude")}
    columns = {name: pa.array(each, pa.float64()) for name, each in values.items()}
    options = {"cell": data.draw(st.sampled_from([0.5, 7, 90, 0.001]))}
    index = built(installed, source_of(columns, data.draw(edges(rows)), options=options))
    for _ in range(4):
        names = data.draw(st.lists(st.sampled_from(sorted(values)), min_size=1, max_size=3))
        asked = [data.draw(questions(FLOAT, values[name], name)) for name in names]
        found = numbers(index.find([each.condition for each in asked], 1.0).rows, rows)
        assert found >= true_rows(columns, " AND ".join(f"({each.sql})" for each in asked)), asked


def test_a_box_is_found_that_bounds_do_not_see(installed: IndexKind) -> None:
    """Every page but the last has Lisbon and Vienna. Paris is between them, and only in the last page."""
    latitude, longitude = [38.72, 48.21] * 50 + [48.86], [-9.14, 16.37] * 50 + [2.35]
    columns = {"latitude": pa.array(latitude), "longitude": pa.array(longitude)}
    index = built(installed, source_of(columns, [*range(0, 101, 10), 101]))
    paris = [Between("latitude", 48.8, 48.9), Between("longitude", 2.2, 2.4)]
    assert str(index.find(paris, 1.0).rows) == "100-101"
    assert index.find([Compare("latitude", "<>", 5.0)], 1.0).rows is None


def test_check(installed: IndexKind) -> None:
    number, text = pa.field("a", pa.float64()), pa.field("b", pa.string())
    installed.check("t", [number, number], {"cell": 1})
    for fields, options, error in (
        ([number], {}, UsageError),
        ([number, text], {}, NotIndexable),
        ([number, number], {"cell": 0}, UsageError),
        ([number, number], {"cells": 1}, UsageError),
    ):
        with pytest.raises(error):
            installed.check("t", fields, options)


@settings(deadline=None, max_examples=cases(100), suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_damage(installed: IndexKind, data: DataObject) -> None:
    random = np.random.default_rng(data.draw(st.integers(0, 9)))
    columns = {name: pa.array(random.uniform(-90, 90, 50)) for name in ("latitude", "longitude")}
    source = source_of(columns, [0, 20, 50])
    payload = installed.build(source).payload
    place = data.draw(st.integers(0, len(payload) - 1))
    other = bytes([payload[place] ^ data.draw(st.integers(1, 255))])
    for changed in (payload[:place], payload[:place] + other + payload[place + 1 :]):
        try:
            index = installed.open(Held(changed), source.fields, {})
        except IndexDamaged:
            continue
        index.find([Between("latitude", 0.0, 5.0)], 1.0)


def test_in_a_lake(installed: IndexKind, tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    (tmp_path / "shops").mkdir()
    for number in range(3):
        table = pa.table(
            {
                "id": np.arange(number * 1000, number * 1000 + 1000),
                "latitude": random.uniform(-60, 60, 1000),
                "longitude": random.uniform(-180, 180, 1000),
            }
        )
        pq.write_table(table, tmp_path / "shops" / f"{number}.parquet", write_page_index=True, max_rows_per_page=50)
    query = "SELECT id FROM shops WHERE latitude BETWEEN 10 AND 14 AND longitude BETWEEN 20 AND 26 ORDER BY id"
    with needlepoint.open(tmp_path, refresh=0) as lake:
        lake.create_table("shops")
        expected = lake.sql(query).rows()
        for embed in (False, True):
            name = lake.create_index("shops", ["latitude", "longitude"], kind="geogrid", embed=embed, cell=2)
            found = lake.sql(query)
            assert found.rows() == expected != []
            assert any(use.kind == "geogrid" and use.used for use in found.report.tables[0].indexes)
            assert found.report.tables[0].rows.read < 500
            lake.drop_index(name)


def test_the_document_shows_the_package_as_it_is() -> None:
    document = (ROOT / "docs" / "custom-index.md").read_text()
    shown = "\n".join(re.findall(r"^```python\n(.*?)^```", document, re.DOTALL | re.MULTILINE))
    source = (PACKAGE / "src" / "needlepoint_geogrid.py").read_text()
    assert [line for line in shown.splitlines() if line] == [line for line in source.splitlines() if line]
    (entry,) = re.findall(r"^```toml\n(.*?)^```", document, re.DOTALL | re.MULTILINE)
    assert entry in (PACKAGE / "pyproject.toml").read_text()
