"""DataFusion's native scan of exactly the files of a plan.

In Python, a listing table takes one path, not a list. But a logical plan can be serialized, and the paths of a listing
are a repeated field in the bytes. The serialized plan of a listing without files is the template; the wanted paths are
inserted. Any schema works, and no file is opened to infer it.

    LogicalPlanNode     1: ListingTableScanNode
    ListingTableScanNode     2: repeated string paths     (datafusion.proto; a test pins these numbers)
                             11: ParquetFormat
    ParquetFormat            2: TableParquetOptions
    TableParquetOptions      1: ParquetOptions
    ParquetOptions           32: string coerce_int96
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import quote

import datafusion
import pyarrow as pa

from needlepoint import forks
from needlepoint.objects import is_url
from needlepoint.parquet.format import int96

_PLAIN = re.compile(r"[\w./=-]+", re.ASCII)  # nothing to quote: most paths
_SCAN_TAG, _PATHS_TAG = b"\x0a", b"\x12"  # field 1 and field 2, both length-delimited
_COERCE_TAGS = (b"\x82\x02", b"\x0a", b"\x12", b"\x5a")  # fields 32, 1, 2 and 11, innermost first


_VIEWS = {pa.string(): pa.string_view(), pa.binary(): pa.binary_view()}


def viewed(type: pa.DataType) -> pa.DataType:
    """The type in which DataFusion is fastest with texts and binaries: it groups them in a third of the time."""
    return _VIEWS.get(type, type)


def with_views(schema: pa.Schema) -> pa.Schema:
    return pa.schema([field.with_type(viewed(field.type)) for field in schema], schema.metadata)


def without_views(schema: pa.Schema) -> pa.Schema:
    """Texts and binaries in the types that every library reads."""
    plain = {view: type for type, view in _VIEWS.items()}
    return pa.schema([field.with_type(plain.get(field.type, field.type)) for field in schema], schema.metadata)


class NativeScans:
    """Creates scans; caches the template of each schema."""

    def __init__(self) -> None:
        forks.begin()
        self._context = datafusion.SessionContext()
        self._templates: dict[bytes, tuple[bytes, bytes]] = {}
        self._registered: dict[tuple[datafusion.SessionContext, str], object] = {}
        self._lock = threading.Lock()

    def scan(
        self,
        context: datafusion.SessionContext,
        schema: pa.Schema,
        paths: Sequence[str],
        partitions: Sequence[tuple[str, pa.DataType]] = (),
    ) -> datafusion.DataFrame:
        """A scan of files; with `partitions`, of one directory whose Hive partitions are columns too.

        DataFusion silently skips a missing file: the caller checks that all exist.
        """
        scan, rest = self._template(schema, partitions)
        urls = [self._url(context, path).encode() for path in paths]
        scan += b"".join(_PATHS_TAG + _varint(len(url)) + url for url in urls)
        plan = _SCAN_TAG + _varint(len(scan)) + scan + rest
        return context.create_dataframe_from_logical_plan(datafusion.LogicalPlan.from_bytes(context, plan))

    def _url(self, context: datafusion.SessionContext, path: str) -> str:
        if not is_url(path):
            return f"file://{path if _PLAIN.fullmatch(path) else quote(path)}"
        from needlepoint.objects.remote import SCHEME, split_url

        bucket, key = split_url(path)
        self._register(context, bucket)
        return f"{SCHEME}{bucket}/{quote(key)}"

    def _register(self, context: datafusion.SessionContext, bucket: str) -> None:
        """DataFusion has its own object stores. It reads the environment variables when one is created, as ours do."""
        from datafusion.object_store import AmazonS3

        from needlepoint.objects.remote import SCHEME, endpoint, store_of

        ours = store_of(bucket)
        if self._registered.get((context, bucket)) is not ours:
            address, allow_http = endpoint()
            theirs = AmazonS3(bucket_name=bucket, endpoint=address, allow_http=allow_http)
            context.register_object_store(SCHEME, theirs, bucket)
            self._registered[context, bucket] = ours

    def stub(self, schema: pa.Schema) -> datafusion.Table:
        """A table without files, to plan against."""
        with self._lock:
            self._context.register_listing_table("stub", "/nonexistent/", schema=schema)
            table = self._context.catalog().schema().table("stub")
            self._context.deregister_table("stub")
            return table

    def _template(self, schema: pa.Schema, partitions: Sequence[tuple[str, pa.DataType]]) -> tuple[bytes, bytes]:
        key = bytes(schema.serialize()) + repr(partitions).encode()
        with self._lock:
            if key not in self._templates:
                # DataFusion silently skips files without this suffix, even in a list; the path of a held version lacks
                # it.
                named = ".parquet" if partitions else ""
                self._context.register_listing_table(
                    "template", "/nonexistent/", list(partitions), file_extension=named, schema=schema
                )
                plan = self._context.table("template").logical_plan().to_bytes(self._context)
                self._context.deregister_table("template")
                scan, rest = _without_paths(plan)
                self._templates[key] = scan + _coerced(int96.UNIT), rest
            return self._templates[key]


def _without_paths(plan: bytes) -> tuple[bytes, bytes]:
    """The body of the scan without its paths, and what follows it in the plan."""
    if plan[:1] != _SCAN_TAG:
        raise RuntimeError("DataFusion writes a listing differently than this version of Needlepoint knows.")
    size, start = _read_varint(plan, 1)
    body, rest = plan[start : start + size], plan[start + size :]
    kept = b"".join(body[begin:end] for tag, begin, end in _fields(body) if tag != _PATHS_TAG[0])
    if kept == body:
        raise RuntimeError("DataFusion writes a listing differently than this version of Needlepoint knows.")
    return kept, rest


def _coerced(unit: str) -> bytes:
    """The option that sets the unit of INT96, as in page reads (format/int96.py). A listing ignores the setting of its
    context. Protobuf merges repeated occurrences of a message, so this can follow the other options."""
    found = unit.encode()
    for tag in _COERCE_TAGS:
        found = tag + _varint(len(found)) + found
    return found


def _fields(message: bytes) -> Iterator[tuple[int, int, int]]:
    """Tag, start and end of each field of a protobuf message."""
    position = 0
    while position < len(message):
        begin = position
        tag, position = _read_varint(message, position)
        match tag & 7:
            case 0:
                _, position = _read_varint(message, position)
            case 1:
                position += 8
            case 2:
                size, position = _read_varint(message, position)
                position += size
            case 5:
                position += 4
        yield tag, begin, position


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def _read_varint(data: bytes, position: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = data[position]
        position += 1
        number |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return number, position


# Operators between a scan and a filter that keep all rows.
_KEEP_ROWS = ("RepartitionExec", "CoalesceBatchesExec", "CoalescePartitionsExec", "CooperativeExec")


def metrics(plan: Any) -> dict[str, int]:
    """Bytes that the native scans of a finished query read, and the rows that passed the filter in or above each; also
    of the rows that were read by page."""
    totals = {"bytes": 0, "rows": 0, "paged_rows": 0}
    passed: int | None = None  # by the filter above
    for operator, found in plan.collect_metrics():  # from the top down
        if scanned := found.sum_by_name("bytes_scanned"):
            totals["bytes"] += int(scanned)
            totals["rows"] += int(found.output_rows or 0) if passed is None else passed
        elif operator.startswith("DataSourceExec: partitions="):
            totals["paged_rows"] += int(found.output_rows or 0) if passed is None else passed
        if operator.startswith("FilterExec"):
            passed = int(found.output_rows or 0)
        elif not operator.startswith(_KEEP_ROWS):
            passed = None
    return totals
