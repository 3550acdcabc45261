"""Which files of a table a compaction rewrites, and into how many.

Without an order: files smaller than half of the target, packed into files of about the target size. With an order: all
files of a partition, unless they have it and no file was added since. Files of different schemas are not mixed: nothing
is cast.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pyarrow as pa

from needlepoint.errors import FileError, UnknownName, UsageError
from needlepoint.maintenance.ordering import LAYOUT, RowOrder, is_sortable
from needlepoint.objects import concurrently, is_url
from needlepoint.parquet.write import Form, form_of
from needlepoint.tables import File, Table, partitions

MIB = 1 << 20
TARGET = 128 * MIB
SMALLEST_SHARE = 0.5  # of the target: a smaller file is rewritten


@dataclass(frozen=True, slots=True)
class CompactionSpec:
    """How the files of a table should be. `partition` restricts it to some partitions, with values as in paths."""

    target: int = TARGET
    order: RowOrder | None = None
    page_rows: int | None = None
    partition: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class FileGroup:
    """Files of one partition that become `outputs` others."""

    directory: str
    files: tuple[File, ...]
    outputs: int

    @property
    def bytes(self) -> int:
        return sum(file.identity.size for file in self.files)


@dataclass(frozen=True, slots=True)
class CompactionPlan:
    """Files to rewrite, and files that should be rewritten and cannot be, with the reason."""

    groups: tuple[FileGroup, ...]
    left: tuple[tuple[str, str], ...] = ()


def check(table: Table, spec: CompactionSpec) -> None:
    if spec.target < 1:
        raise UsageError(f"files of {spec.target} bytes.", hint="The target is a number of bytes above 0.")
    if spec.page_rows is not None and spec.page_rows < 1:
        raise UsageError(f"pages of {spec.page_rows} rows.", hint="A page has 1 row or more.")
    for column in spec.order.columns if spec.order is not None else ():
        if column in table.partitions:
            raise UsageError(
                f"column '{column}' of table '{table.name}' is a partition column.",
                hint="All rows of a file have the same value of it.",
            )
        if not is_sortable(table.field(column).type):
            raise UsageError(f"column '{column}' is {table.field(column).type}, which has no order.")
    for name, _ in spec.partition:
        if name not in table.partitions:
            raise UnknownName("partition column", name, table.partitions, where=f" of table '{table.name}'")


def of_partition(table: Table, files: Sequence[File], wanted: Sequence[tuple[str, str]]) -> list[File]:
    """The files with these partition values, given as in paths."""
    fields = [table.schema.field(name) for name, _ in wanted]
    values = {name: _value(table.schema.field(name), value) for name, value in wanted}
    return [file for file in files if not wanted or partitions.typed(file.path, fields, table.location) == values]


def _value(field: pa.Field, text: str) -> pa.Scalar:
    plain = None if text == partitions.HIVE_NULL else text
    try:
        return pa.scalar(plain, pa.string()).cast(field.type)
    except pa.ArrowInvalid:
        raise UsageError(f"'{text}' is not a value of column '{field.name}', which is {field.type}.") from None


def choose(
    table: Table, files: Sequence[File], spec: CompactionSpec, largest_page: Callable[[File], int]
) -> CompactionPlan:
    """Which of these files to rewrite. `largest_page` returns the number of rows in the largest page of a file."""
    candidates = []
    for file in of_partition(table, files, spec.partition):
        small = file.identity.size < spec.target * SMALLEST_SHARE
        coarse = spec.page_rows is not None and largest_page(file) > spec.page_rows
        if spec.order is not None or small or coarse:
            candidates.append((file, coarse))
    kinds: dict[tuple[str, tuple[str, str]], list[tuple[File, Form, bool]]] = {}
    left: list[tuple[str, str]] = []
    refused: dict[tuple[str, str], str | None] = {}
    for (file, coarse), form in zip(candidates, _forms(table, [file for file, _ in candidates]), strict=True):
        if isinstance(form, FileError):
            left.append((file.path, form.message))
            continue
        if form.kind not in refused:
            refused[form.kind] = form.refused()
        why = refused[form.kind] or _lacking(form, spec)
        if why is not None:
            left.append((file.path, why))
            continue
        kinds.setdefault((file.path.rpartition("/")[0], form.kind), []).append((file, form, coarse))
    groups = [group for (directory, _), found in kinds.items() for group in _groups(directory, found, spec)]
    return CompactionPlan(tuple(groups), tuple(left))


def _forms(table: Table, files: Sequence[File]) -> list[Form | FileError]:
    def form(file: File) -> Form | FileError:
        try:
            return form_of(f"{table.location}/{file.path}", file.identity)
        except FileError as error:
            return error

    if is_url(table.location):
        return concurrently(form, files)
    with ThreadPoolExecutor(8) as pool:
        return list(pool.map(form, files))


def _lacking(form: Form, spec: CompactionSpec) -> str | None:
    missing = [name for name in spec.order.columns if name not in form.schema.names] if spec.order is not None else []
    return f"it has no column '{missing[0]}' to sort by" if missing else None


def _groups(directory: str, found: Sequence[tuple[File, Form, bool]], spec: CompactionSpec) -> Iterator[FileGroup]:
    files = [file for file, _, _ in found]
    if spec.order is not None:
        coarse = any(each for _, _, each in found)
        if coarse or not _is_laid_out([form for _, form, _ in found], spec.order):
            size = sum(file.identity.size for file in files)
            yield FileGroup(directory, tuple(files), max(1, -(-size // spec.target)))
        return
    bin: list[File] = []
    # Smallest first: as many files as possible share a bin, and the one that stays alone is the largest.
    for file in sorted(files, key=lambda file: (file.identity.size, file.path)):
        if bin and sum(each.identity.size for each in bin) + file.identity.size > spec.target:
            yield from _bin(directory, bin, found)
            bin = []
        bin.append(file)
    yield from _bin(directory, bin, found)


def _bin(directory: str, bin: Sequence[File], found: Sequence[tuple[File, Form, bool]]) -> Iterator[FileGroup]:
    coarse = {file for file, _, each in found if each}
    if len(bin) > 1 or any(file in coarse for file in bin):
        yield FileGroup(directory, tuple(bin), 1)


def layout_mark(order: RowOrder) -> tuple[bytes, bytes]:
    """The footer key of a rewritten file that records its order. All files of one rewrite have the same."""
    mark = {"columns": list(order.columns), "zorder": order.zorder, "rewrite": uuid.uuid4().hex}
    return LAYOUT, json.dumps(mark).encode()


def _is_laid_out(forms: Sequence[Form], order: RowOrder) -> bool:
    """Whether these files all come from one rewrite in this order."""
    marks = {form.key_value.get(LAYOUT, b"") for form in forms}
    if len(marks) != 1:
        return False
    try:
        mark: Mapping[str, object] = json.loads(marks.pop())
        return (mark["columns"], mark["zorder"]) == (list(order.columns), order.zorder)
    except (ValueError, KeyError, TypeError):
        return False
