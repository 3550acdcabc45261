"""Spark's own way to S3: the file system `s3a` of hadoop-aws, in sessions that have it.

Needlepoint reads and writes S3 itself. Spark's native writer and reader need this.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from needlepoint.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CLASS = "org.apache.hadoop.fs.s3a.S3AFileSystem"


def has_s3a(spark: SparkSession) -> bool:
    """Whether the JVM of the session can load it. A client of Spark Connect has no JVM."""
    jvm = _jvm(spark)
    # This class loader knows the jars of the session; others may not.
    return jvm is not None and jvm.org.apache.hadoop.conf.Configuration().getClassByNameOrNull(_CLASS) is not None


def needs_s3a(spark: SparkSession, what: str) -> UsageError:
    jvm = _jvm(spark)
    version = "VERSION" if jvm is None else jvm.org.apache.hadoop.util.VersionInfo.getVersion()
    return UsageError(
        f"{what}, and this Spark session has no s3a.",
        hint=f"Start it with spark.jars.packages=org.apache.hadoop:hadoop-aws:{version}; see docs/object-stores.md.",
    )


def spark_path(location: str) -> str:
    """A directory or URL for Spark. With a scheme, because a cluster's default may be another one.

    >>> spark_path("s3://bucket/lake"), spark_path("/data/lake")
    ('s3a://bucket/lake', 'file:///data/lake')
    """
    scheme, _, rest = location.partition("://")
    return f"s3a://{rest}" if scheme == "s3" else f"file://{location}"


def _jvm(spark: SparkSession) -> Any:
    try:
        return spark._jvm
    except Exception:
        return None
