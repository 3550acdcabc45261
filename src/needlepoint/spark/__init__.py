"""Spark jobs on a lake. Nothing here imports pyspark until it is called.

from needlepoint import spark

session = spark.session()
spark.write(session.read.json("products.json"), lake, "product", partition_by=["partner"])
spark.stream(session.readStream.schema(schema).json("feed"), lake, "product", every="6 minutes")
spark.read(session, lake, "product", where="product_id = 384209819", columns=["title", "upc"])
spark.compact(session, lake, "product", sort_by=["product_id"])
spark.lookup_join(orders, lake, "product", on="product_id", columns=["title"])
spark.build(session, lake, "product")

session, java, s3a   a Spark session, the Java that runs it, and its way to S3
source, products     DataFrames to write: from files, and the data of the demo
stage, write         a DataFrame becomes a batch of a table
stream               micro-batches, each published once
read, data_source    a table becomes a DataFrame, through the indexes
lookup_join          a DataFrame joined with the rows of a table that it needs
compact, pool        compaction and index builds in tasks of Spark
tasks                picklable work and staged files in tasks
types, errors        Arrow's types in Spark, and Spark's failures in one line
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from needlepoint.maintenance import Compaction
from needlepoint.spark import products
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
from needlepoint.tables import Layout

if TYPE_CHECKING:
    from needlepoint.spark.session import SparkSession as SparkSession

__all__ = [
    "Compaction",
    "Layout",
    "batch_writer",
    "build",
    "compact",
    "java_home",
    "lookup_join",
    "products",
    "read",
    "read_source",
    "register",
    "session",
    "stream",
    "write",
]
