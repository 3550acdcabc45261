"""Spark jobs around a lake. Nothing here imports pyspark until it is called.

from needlepoint import spark

session = spark.session()
spark.write(session.read.json("products.json"), lake, "product", partition_by=["partner"])
stream.writeStream.foreachBatch(spark.batch_writer(lake, "product", stream="feed")).start()
"""

from __future__ import annotations

from needlepoint.spark.java import java_home
from needlepoint.spark.session import session
from needlepoint.spark.source import read_source
from needlepoint.spark.stage import Layout
from needlepoint.spark.write import batch_writer, write

__all__ = ["Layout", "batch_writer", "java_home", "read_source", "session", "write"]
