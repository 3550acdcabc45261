"""Single rows from files that Spark writes with parquet-mr."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.cases import long
from tests.unit.parquet.reading import check_subsets, whole
from tests.unit.parquet.test_writers import without_index

from needlepoint.parquet.card.describe import build_card
from needlepoint.parquet.read import dictionaries
from needlepoint.parquet.read.caches import Caches

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

QUERY = """
    select id, if(id % 7 = 3, null, cast(id * 13 % 97 as int)) number, concat('text ', id % 50) text,
        if(id % 5 = 1, null, cast(id as string)) unique_text, id % 2 = 0 flag, id / 3.0 real,
        cast(id / 4 as decimal(20, 2)) price, timestamp_seconds(id * 977) moment,
        date_add('2024-01-01', cast(id as int)) day,
        cast(cast(id as string) as binary) raw,
        if(id % 11 = 4, null, transform(sequence(0, id % 40), x -> if(x = 2, null, x + id))) numbers,
        named_struct('x', id, 'y', if(id % 3 = 0, null, repeat('y', cast(id % 30 as int)))) point,
        map_from_arrays(transform(sequence(0, id % 4), x -> concat('key ', x)), sequence(0, id % 4)) entries,
        transform(sequence(0, id % 6), x -> named_struct('x', x, 'y', array(x, id))) points
    from range(1500)
"""


MICROS, INT96 = "TIMESTAMP_MICROS", "INT96"
SHORT = (("snappy", "v1", INT96), ("zstd", "v2", MICROS), ("lz4", "v1", MICROS))
MATRIX = [
    (codec, version, MICROS)
    for codec in ("none", "snappy", "gzip", "zstd", "lz4", "lz4_raw")
    for version in ("v1", "v2")
]
MATRIX += [("snappy", version, INT96) for version in ("v1", "v2")]


@pytest.mark.parametrize(
    ("codec", "version", "times"),
    [*SHORT, *long(*(each for each in MATRIX if each not in SHORT))],
)
def test_same_rows_as_a_scan(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, codec: str, version: str, times: str
) -> None:
    before = spark.conf.get("spark.sql.parquet.outputTimestampType")
    spark.conf.set("spark.sql.parquet.outputTimestampType", times)
    writer = spark.sql(QUERY).coalesce(1).write.option("parquet.writer.version", version)
    writer = writer.option("parquet.page.size", 600).option("parquet.page.row.count.limit", 200)
    writer = writer.option("parquet.block.row.count.limit", 1000).option("parquet.page.size.row.check.min", 20)
    writer.option("compression", codec).parquet(str(tmp_path / "out"))
    spark.conf.set("spark.sql.parquet.outputTimestampType", before)
    (path,) = map(str, (tmp_path / "out").glob("*.parquet"))
    assert whole(path).num_rows == 1500
    card = build_card(path)
    assert len(card.pages.offset) > 2 * len(card.chunks.codec)
    check_subsets(path, card)
    check_subsets(path, without_index(path, monkeypatch))
    monkeypatch.setattr(dictionaries, "SMALLEST_KEPT", 1)
    caches = Caches.of(1 << 24, 1 << 24)
    check_subsets(path, card, caches)
    assert caches.dictionaries.hits > 0 or codec == "lz4"
