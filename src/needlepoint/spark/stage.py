"""Write a DataFrame into a staging directory, laid out so that single pages can be found and read."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from needlepoint.errors import SparkError, StoreError, UnknownName, UsageError
from needlepoint.objects import Identity, as_source, identify, is_url, remove_directory
from needlepoint.spark.errors import translated
from needlepoint.spark.s3a import spark_path
from needlepoint.tables import Layout, StagedFile, list_files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def stage(
    df: DataFrame,
    directory: str | os.PathLike[str],
    *,
    partition_by: Sequence[str] = (),
    layout: Layout = Layout(),  # noqa: B008 (frozen)
    files_per_partition: int | None = None,
) -> list[StagedFile]:
    """Write `df` into `directory`, which must not exist yet, and list the files that hold rows. A directory
    `s3://…` is written through s3a.

    Every Spark task writes a file of its own into every partition it has rows of. `files_per_partition`
    limits that at the price of a shuffle. If writing fails, nothing of the directory remains.
    """
    check_columns(df, partition_by, layout)
    if files_per_partition is not None:
        df = _gathered(df, partition_by, files_per_partition)
    if layout.sort_by:
        # Spark sorts by the partition columns to write one file after the other, unless the rows have that order.
        df = df.sortWithinPartitions(*(_quoted(name) for name in (*partition_by, *layout.sort_by)))
    root = _new_directory(directory)
    try:
        # Appending to an empty directory: in its other modes Spark creates the directory itself, and could not tell
        # this one from one that another process created meanwhile.
        writer = df.write.mode("append").options(**_options(df, layout)).partitionBy(*partition_by)
        writer.parquet(spark_path(root))
        if is_url(root):
            _check_written(root)
        return _listed(root)
    except BaseException as failure:
        with contextlib.suppress(StoreError):  # a sweep removes what stays
            remove_directory(root)
        if isinstance(failure, Exception):
            raise translated(failure, f"writing into {root}") from failure
        raise


def _check_written(root: str) -> None:
    """An empty place after a successful job is not an empty batch: Spark wrote elsewhere."""
    try:
        identify(f"{root}/_SUCCESS")
    except FileNotFoundError:
        raise SparkError(
            f"Spark wrote into {spark_path(root)}, but {root} is empty.",
            hint="Give fs.s3a.endpoint and AWS_ENDPOINT_URL the same S3; see docs/object-stores.md.",
        ) from None


def _new_directory(directory: str | os.PathLike[str]) -> str:
    if isinstance(directory, str) and is_url(directory):
        return directory  # an object store has no directories; the name is unique
    root = Path(directory).resolve()
    try:
        root.mkdir(parents=True)
    except FileExistsError:
        raise UsageError(f"the staging directory {root} exists already.", hint="Give each batch a new one.") from None
    except OSError as refused:
        raise UsageError(f"the staging directory {root} cannot be created: {refused.strerror}.") from refused
    return str(root)


def check_columns(df: DataFrame, partition_by: Sequence[str], layout: Layout) -> None:
    """UnknownName or UsageError when the layout does not fit the columns."""
    known = df.columns
    for name in partition_by:
        if name not in known:
            raise UnknownName("column", name, known, where=" in partition_by")
        if name.startswith(("_", ".")):
            raise UsageError(
                f"'{name}' cannot be a partition column: readers ignore directories whose names begin like this.",
                hint="Rename it.",
            )
    for name in (*layout.dictionary_off, *layout.bloom, *layout.sort_by):
        if name not in known and name.split(".")[0] not in known:
            raise UnknownName("column", name, known, where=" in the layout")
    if known and set(known) <= set(partition_by):
        raise UsageError(
            "every column is a partition column: none is left for the files.",
            hint="Partition by fewer columns.",
        )


def _options(df: DataFrame, layout: Layout) -> dict[str, str | int | bool]:
    """Options for Spark, and for parquet-hadoop through Spark."""
    options: dict[str, str | int | bool] = {
        "compression": layout.compression,
        "parquet.page.row.count.limit": layout.page_rows,
        "parquet.page.size": layout.page_bytes,
        # The size of a page is checked after so many values; with the default of 100, values of 10 KB make pages of
        # 1 MB.
        "parquet.page.size.row.check.min": 10,
        "parquet.block.size": layout.row_group_bytes,
        "parquet.bloom.filter.adaptive.enabled": True,  # otherwise every filter takes 1 MiB
        "maxRecordsPerFile": layout.max_records_per_file,
        "mapreduce.fileoutputcommitter.marksuccessfuljobs": True,  # for _check_written
    }
    for column in layout.dictionary_off:
        options |= _column_option(df, "parquet.enable.dictionary", column, False)
    for column in layout.bloom:
        options |= _column_option(df, "parquet.bloom.filter.enabled", column, True)
    return options


def _column_option(df: DataFrame, option: str, column: str, value: bool) -> dict[str, str | int | bool]:
    # Parquet reads the name after '#' as a path with dots between its steps: it cannot name a column with a dot. Such
    # a column is written with the defaults.
    ambiguous = "." in column and column in df.columns
    return {} if ambiguous else {f"{option}#{column}": value}


def _gathered(df: DataFrame, partition_by: Sequence[str], files: int) -> DataFrame:
    """Bring the rows of a partition together in at most `files` tasks."""
    from pyspark.sql import functions as F  # noqa: N812 (its usual name)
    from pyspark.sql import types as T  # noqa: N812

    if files < 1:
        raise UsageError(f"files_per_partition is {files}; it must be 1 or more.")
    if not partition_by:
        return df.repartition(files)
    columns = [F.col(_quoted(name)) for name in partition_by]
    if files == 1:
        return df.repartition(*columns)
    # A task that runs again must put each row where it was before, and may get the rows in another order: the place of
    # a row depends on its values alone.
    plain = (T.BooleanType, T.NumericType, T.StringType, T.BinaryType, T.DateType, T.TimestampType, T.TimestampNTZType)
    told_by = [F.col(_quoted(field.name)) for field in df.schema if isinstance(field.dataType, plain)]
    salt = F.pmod(F.xxhash64(*told_by), F.lit(files)) if told_by else F.floor(F.rand(seed=1) * files)
    return df.repartition(*columns, salt)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _listed(root: str) -> list[StagedFile]:
    """The files with rows, in the order of their paths. Removes Spark's checksum files.

    Spark refuses a file that changed or moved while its checksum file stayed.
    """
    if not is_url(root):
        for checksum in Path(root).rglob("*.crc"):
            checksum.unlink()
    found = sorted(list_files(root).files.items())
    with ThreadPoolExecutor(max_workers=8) as pool:
        files = pool.map(lambda each: _staged_file(root, *each), found)
        return [file for file in files if file.rows]


def _staged_file(root: str, relative: str, identity: Identity) -> StagedFile:
    import pyarrow.parquet as pq

    path = f"{root}/{relative}"
    rows = pq.read_metadata(as_source(path, identity)).num_rows
    return StagedFile(path, relative.rpartition("/")[0], identity.size, rows, own=True)
