"""Spark jobs on a lake. Nothing here imports pyspark until it is called.

from needlepoint import spark

session = spark.session()
spark.write(session.read.json("products.json"), lake, "product", partition_by=["partner"])
spark.stream(session.readStream.schema(schema).json("feed"), lake, "product", every="6 minutes")
spark.read(session, lake, "product", where="product_id = 384209819", columns=["title", "upc"])
spark.compact(session, lake, "product", sort_by=["product_id"])
spark.lookup_join(orders, lake, "product", on="product_id", columns=["title"])
spark.build(session, lake, "product")
"""

from __future__ import annotations

from needlepoint.maintenance.compact import Compaction
from needlepoint.spark.compact import compact
from needlepoint.spark.data_source import register
from needlepoint.spark.java import java_home
from needlepoint.spark.lookup_join import lookup_join
from needlepoint.spark.pool import build
from needlepoint.spark.read import read
from needlepoint.spark.session import session
from needlepoint.spark.source import read_source
from needlepoint.spark.stream import stream
from needlepoint.spark.write import batch_writer, write
from needlepoint.tables.layout import Layout

__all__ = [
    "Compaction",
    "Layout",
    "batch_writer",
    "build",
    "compact",
    "java_home",
    "lookup_join",
    "read",
    "read_source",
    "register",
    "session",
    "stream",
    "write",
]
