"""Estimates of files that are read together."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from needlepoint.parquet import CachedCard, build_card
from needlepoint.query.scan.cost_model import FileSizes
from needlepoint.query.scan.costs import Costs

ROWS = np.array([5.0])


@pytest.mark.parametrize("codec", ["zstd", "snappy"])
@pytest.mark.parametrize(("column", "is_cheaper"), [("id", True), ("few", False), ("pair", False)])
def test_flat_columns_without_dictionaries_are_cheaper_together(
    tmp_path: Path, codec: str, column: str, is_cheaper: bool
) -> None:
    numbers = np.arange(5000)
    rows = pa.table({"id": numbers, "few": numbers % 7, "pair": [{"a": 1, "b": each} for each in numbers.tolist()]})
    pq.write_table(rows, tmp_path / "a.parquet", compression=codec, use_dictionary=["few"], write_page_index=True)
    sizes = FileSizes.of([CachedCard(build_card(str(tmp_path / "a.parquet")))], [column])
    together, alone = (sizes.by_pages(ROWS, ROWS, jointly) for jointly in (True, False))
    assert (together.seconds(Costs()) < alone.seconds(Costs())).all() == is_cheaper
    assert (together.file_seconds(Costs()) < alone.file_seconds(Costs())) == is_cheaper
