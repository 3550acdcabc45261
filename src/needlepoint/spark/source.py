"""Read the input of an ingest: CSV, JSON or Parquet, from files, directories or object stores.

A record that cannot be parsed is an error, never a row of NULLs.
"""

from __future__ import annotations

import bz2
import glob
import gzip
import json
import re
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, cast

import numpy as np

from needlepoint.errors import UsageError
from needlepoint.spark.errors import reason, translated

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession
    from pyspark.sql.types import StructType

_FORMATS = {
    "csv": "csv",
    "tsv": "tsv",
    "json": "json",
    "jsonl": "json",
    "ndjson": "json",
    "parquet": "parquet",
}
_COMPRESSIONS = (".gz", ".bz2", ".zst", ".snappy", ".lz4", ".deflate")
_PATTERN = re.compile(r"[\[\]{}*?\\]")  # what stands for something else in a glob pattern
_LONGEST_LINE = 1024 * 1024
_ESCAPED = re.compile(rb"\\.", re.DOTALL)  # in JSON, and there in strings only
_DEPTH = np.zeros(256, np.int64)  # what each byte outside of strings adds to it
_DEPTH[list(b"[{")], _DEPTH[list(b"]}")] = 1, -1


def read_source(
    spark: SparkSession,
    path: str,
    format: str | None = None,
    schema: str | StructType | None = None,
    header: bool = True,
) -> DataFrame:
    """The records at `path`: a file, a directory, a glob pattern or a URL that Spark can read.

    `format` (csv, tsv, json, parquet) is taken from the file names unless given. Without `schema` the types
    of CSV columns are inferred, and '007' becomes 7: give a schema where leading zeros matter. Spark reads
    lazily: a bad record may be noticed only when the frame is written, and `stage` raises the UsageError then.
    """
    remote = "://" in path
    roots = [] if remote else _roots(path)
    files = [file for root in roots for file in _files(root)]
    kind = _kind(path, files, format)
    if schema is None and kind != "parquet":
        _check_names(files)
    reader = spark.read.format("csv" if kind == "tsv" else kind)
    reader = reader.options(**_options(kind, files, header=header, infer=schema is None))
    if roots and not any(_is_partitioned(root) for root in roots):
        # Without it Spark silently ignores files of subdirectories that are not named `column=value`.
        reader = reader.option("recursiveFileLookup", True)
    if schema is not None:
        reader = _with_schema(reader, schema)
    try:
        frame = reader.load([path] if remote else [_for_spark(root) for root in roots])
    except Exception as failure:
        better = translated(failure, "reading")
        if isinstance(better, UsageError):
            raise better from failure
        raise UsageError(f"{path} cannot be read as {kind}: {reason(failure)}.") from failure
    if not frame.columns:
        raise UsageError(f"{path} holds no records.")
    return frame


def _with_schema(reader: DataFrameReader, schema: str | StructType) -> DataFrameReader:
    try:
        return reader.schema(schema)
    except Exception as failure:
        shown = schema if isinstance(schema, str) else type(schema).__name__
        raise UsageError(
            f"'{' '.join(shown.split())[:80]}' is not a schema: {reason(failure)}.",
            hint="Name columns and types of Spark, as product_id BIGINT, upc STRING, price DECIMAL(10,2).",
        ) from failure


def _roots(path: str) -> list[Path]:
    """The files and directories that `path` names."""
    if Path(path).exists():
        return [Path(path).resolve()]
    matches = [Path(match).resolve() for match in sorted(glob.glob(path))]  # noqa: PTH207 (absolute patterns)
    if not matches:
        raise UsageError(f"there is no file or directory {path}.")
    return matches


def _files(root: Path) -> list[Path]:
    """The data files at `root`."""
    if root.is_dir():
        found = [file for file in sorted(root.rglob("*")) if file.is_file() and not _is_hidden(file, root)]
        if not found:
            raise UsageError(f"the directory {root} holds no data files.")
    elif root.name.startswith(("_", ".")):
        raise UsageError(f"Spark ignores files whose names start with '_' or '.': {root}.", hint="Rename it.")
    else:
        found = [root]
    filled = [file for file in found if file.stat().st_size]
    if not filled:
        raise UsageError(f"{root} is empty.")
    return filled


def _check_names(files: Iterable[Path]) -> None:
    # Spark infers the schema of text files with a reader that takes names for patterns.
    for file in files:
        if _PATTERN.search(str(file)):
            raise UsageError(
                f"Spark would take the path {file} for a pattern.",
                hint="Rename it without any of []{}*?\\ or give a schema.",
            )


def _is_hidden(file: Path, root: Path) -> bool:
    # What Spark skips; `_column=value` is a partition of a column whose name starts with _.
    parts = file.relative_to(root).parts
    return any(part.startswith(".") or (part.startswith("_") and "=" not in part) for part in parts)


def _is_partitioned(root: Path) -> bool:
    return root.is_dir() and any("=" in child.name for child in root.iterdir() if child.is_dir())


def _kind(path: str, files: Iterable[Path], given: str | None) -> str:
    if given is not None:
        if given.lower() in _FORMATS:
            return _FORMATS[given.lower()]
        raise UsageError(f"unknown format '{given}'.", hint=_hint())
    kinds = {_FORMATS.get(_extension(str(name)), "") for name in files} or {_FORMATS.get(_extension(path), "")}
    if len(kinds) > 1:
        shown = ", ".join(sorted(kind or "others" for kind in kinds))
        raise UsageError(f"{path} holds files of several formats ({shown}).", hint="Ingest them one by one.")
    kind = kinds.pop()
    if not kind:
        raise UsageError(f"the format of {path} cannot be recognised by its name.", hint=_hint())
    return kind


def _hint() -> str:
    return f"Give a format: {', '.join(sorted(set(_FORMATS.values())))}."


def _extension(name: str) -> str:
    """The extension that names the format: `csv` for `prices.csv.gz`."""
    name = name.lower()
    for compression in _COMPRESSIONS:
        name = name.removesuffix(compression)
    return name.rsplit(".", 1)[-1]


def _options(kind: str, files: list[Path], *, header: bool, infer: bool) -> dict[str, bool | str]:
    if kind == "parquet":
        return {"mergeSchema": True}  # otherwise columns that one file lacks can be missing from all rows
    if kind == "json":
        return {"mode": "FAILFAST", "multiLine": _are_json_documents(files)}
    return {
        "mode": "FAILFAST",
        "header": header,
        "inferSchema": infer,
        "multiLine": True,
        "escape": '"',  # a quote within quotes is doubled (RFC 4180); Spark's default is a backslash
        "enforceSchema": not header,  # compare each file's header with the schema
        "columnPruning": False,  # a record is checked whole, also when few columns are read
        **({"sep": "\t"} if kind == "tsv" else {}),
    }


def _are_json_documents(files: Sequence[Path]) -> bool:
    """Whether each file is one array over many lines, and not one record a line. Spark reads all files in one way; when
    it expects documents, it silently ignores everything after the first one."""
    first: dict[bool, Path] = {}
    for file in files:
        try:
            with _opened(file) as opened:
                start = _first_line(opened)
                if not start.strip():
                    continue
                is_document = _begins_document(start)
                several = is_document and not _ends_with_document(start, opened)
        except (OSError, EOFError, zlib.error):  # not what its name says: Spark reports it
            is_document, several = False, False
        if several:
            raise UsageError(
                f"{file} holds more than the one array that it begins with.",
                hint="Write one array, or one record a line.",
            )
        first.setdefault(is_document, file)
    if len(first) > 1:
        raise UsageError(
            f"{first[True]} is an array over many lines, {first[False]} has one record a line.",
            hint="Ingest them one by one.",
        )
    return True in first


def _first_line(opened: IO[bytes]) -> bytes:
    """The first line that is not blank."""
    return next((line for line in iter(lambda: opened.readline(_LONGEST_LINE), b"") if line.strip()), b"")


def _begins_document(first: bytes) -> bool:
    if not first.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"["):
        return False
    try:
        json.loads(first)
    except ValueError:
        # A line that is cut at the limit may be complete.
        return len(first) < _LONGEST_LINE
    return False


def _ends_with_document(start: bytes, opened: IO[bytes]) -> bool:
    """Whether nothing follows the document that begins with `start`.

    >>> import io
    >>> [_ends_with_document(b"[\\n", io.BytesIO(rest)) for rest in (b'"]"]\\n', b"1][2]", b"1]\\n[\\n2]")]
    [True, False, False]
    """
    depth, in_string, ended, cut = 0, False, False, b""
    while start:
        text = _ESCAPED.sub(b"", cut + start)
        cut = text[-1:] if text.endswith(b"\\") else b""  # the escaped byte comes next
        if not ended:
            letters = np.frombuffer(text, np.uint8)
            quotes = np.cumsum(letters == ord('"')) + in_string
            steps = np.where(quotes % 2, 0, _DEPTH[letters])
            ends = np.flatnonzero((steps < 0) & (depth + np.cumsum(steps) <= 0))
            ended = len(ends) > 0
            text = text[ends[0] + 1 :] if ended else b""
            depth += int(steps.sum())
            in_string = bool(quotes[-1] % 2) if len(quotes) else in_string
        if text.strip():
            return False
        start = opened.read(_LONGEST_LINE)
    return True


def _opened(file: Path) -> IO[bytes]:
    if file.suffix == ".gz":
        return cast("IO[bytes]", gzip.open(file))
    return bz2.open(file) if file.suffix == ".bz2" else file.open("rb")


def _for_spark(path: Path) -> str:
    """The path for Spark: with a scheme, and with the characters of glob patterns escaped."""
    return "file://" + _PATTERN.sub(r"\\\g<0>", str(path))
