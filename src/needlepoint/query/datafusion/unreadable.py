"""Finds the file that a scan could not read: DataFusion's error does not name it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from needlepoint.errors import NeedlepointError, NotParquet, SqlError
from needlepoint.objects import Identity, as_source
from needlepoint.query.scan.scan_plan import ScanPlan


def unreadable(failure: Exception, scans: Iterable[ScanPlan]) -> NeedlepointError:
    """The error of the first file whose columns pyarrow cannot read either. This reads all scanned files, one batch at
    a time: after a failed query, the name of the file is worth the time."""
    for scan in scans:
        for file in scan.scanned:
            path = scan.path(file)
            if (found := _problem(path, file.identity, scan.stored_columns())) is not None:
                column, why = found
                where = f"column '{column}' cannot be read" if column else "cannot be read"
                return NotParquet(path, f"{where}: {why}", hint="Write the file again or remove it, then sync.")
    return SqlError(str(failure))


def _problem(path: str, identity: Identity, columns: Sequence[str]) -> tuple[str, str] | None:
    try:
        with pq.ParquetFile(as_source(path, identity)) as opened:
            present = [name for name in columns if name in opened.schema_arrow.names]
            if _read(opened, present) is None:
                return None
            for name in present:
                if (why := _read(opened, [name])) is not None:
                    return name, why
            return None
    except (OSError, pa.ArrowException) as error:
        return "", _one_line(error)


def _read(opened: pq.ParquetFile, columns: list[str]) -> str | None:
    try:
        for _ in opened.iter_batches(columns=columns):
            pass
    except (OSError, pa.ArrowException) as error:
        return _one_line(error)
    return None


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()).rstrip(". ")
