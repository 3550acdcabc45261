"""Shrink a finding: first its SQL, then the lake, then the SQL again; and write a script that reproduces it."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from tests.property.generated import Writer, hive
from tests.property.trees import Node, node, smaller
from tests.property.whole_judge import Judge, Verdict
from tests.property.whole_lakes import DataFile, DataTable, DataView, LakeSpec
from tests.property.whole_queries import WholeQuery

_PLAIN = Writer("pyarrow", ())
REPEATS = 3
"""How often a query runs before its answer counts as right: threads can hide a bug."""


@dataclass(frozen=True)
class Finding:
    spec: LakeSpec
    query: WholeQuery
    verdict: Verdict

    @property
    def signature(self) -> str:
        """Equal for findings that probably have the same cause."""
        text = re.sub(r"'[^']*'|\b\d+(\.\d+)?(e[+-]?\d+)?\b|\$p\d+", "?", self.query.lake)
        text = re.sub(r"\b[tc]\d+\b", "x", text)
        text = re.sub(r"\b(id|k|n|s|u|d|e|g|r|f|ts|dt|ok|p|q)(_[abc])?\b", "col", text)
        text = re.sub(r"<>|<=|>=|<|>", "<", text)
        why = re.sub(r"\d+", "", self.verdict.found)[:60] if isinstance(self.verdict.found, str) else ""
        return f"{self.verdict.name} {why} {text}"


def shrunk(spec: LakeSpec, query: WholeQuery, verdict: Verdict, seconds: float = 40.0) -> Finding:
    finding = _without_views(Finding(spec, query, verdict))
    deadline = time.monotonic() + seconds
    for _ in range(3):
        before = finding
        finding = _smaller_query(finding, deadline)
        finding = _smaller_lake(finding, deadline)
        if finding is before or time.monotonic() > deadline:
            break
    return finding


def _without_views(finding: Finding) -> Finding:
    """Inline the views, if the finding stays the same without them."""
    query = finding.query
    for view in reversed(finding.spec.views):
        query = WholeQuery(_inlined(query.tree, view))
    with Judge(replace(finding.spec, views=())) as judge:
        verdict = _same_finding(judge, query, finding.verdict)
    if verdict is None:
        return finding
    return Finding(replace(finding.spec, views=()), query, verdict)


def _inlined(tree: Node, view: DataView) -> Node:
    text = tree.text[0]
    if tree.kind == "source" and not tree.parts and text.startswith(f"{view.name} AS "):
        return node("source", f"({{}}) AS {text.rpartition(' ')[2]}", view.query)
    return replace(tree, parts=tuple(_inlined(part, view) for part in tree.parts))


def _smaller_query(finding: Finding, deadline: float) -> Finding:
    with Judge(finding.spec) as judge:
        again = True
        while again:
            again = False
            for tree in smaller(finding.query.tree):
                if time.monotonic() > deadline:
                    return finding
                query = WholeQuery(tree)
                verdict = _same_finding(judge, query, finding.verdict)
                if verdict is not None:
                    finding, again = replace(finding, query=query, verdict=verdict), True
                    break
    return finding


def _smaller_lake(finding: Finding, deadline: float) -> Finding:
    again = True
    while again:
        again = False
        for spec in _smaller_lakes(finding.spec, finding.query.lake):
            if time.monotonic() > deadline:
                return finding
            try:
                with Judge(spec) as judge:
                    verdict = _same_finding(judge, finding.query, finding.verdict)
            except Exception:
                continue
            if verdict is not None:
                finding, again = replace(finding, spec=spec, verdict=verdict), True
                break
    return finding


def _same_finding(judge: Judge, query: WholeQuery, known: Verdict) -> Verdict | None:
    for _ in range(REPEATS):
        verdict = judge.verdict(query)
        if verdict.name == known.name and _cause(verdict) == _cause(known):
            return verdict
        if verdict.name in ("unasked", "refused"):
            return None
    return None


def _cause(verdict: Verdict) -> str:
    return re.sub(r"[\d'\"].*", "", verdict.found)[:40] if isinstance(verdict.found, str) else ""


def _smaller_lakes(spec: LakeSpec, sql: str) -> Iterator[LakeSpec]:
    words = set(re.findall(r"\w+", sql))
    for view in spec.views:
        if view.name not in words:
            yield replace(spec, views=tuple(each for each in spec.views if each is not view))
        else:
            words |= set(re.findall(r"\w+", str(view.query)))
    for at, table in enumerate(spec.tables):
        if table.name not in words and len(spec.tables) > 1:
            kept = tuple(each for each in spec.indexes if each.table != table.name)
            yield replace(spec, tables=spec.tables[:at] + spec.tables[at + 1 :], indexes=kept)
    if spec.indexes:
        yield replace(spec, indexes=())
        for index in spec.indexes:
            yield replace(spec, indexes=tuple(each for each in spec.indexes if each is not index))
    for name in spec.settings:
        yield replace(spec, settings={key: value for key, value in spec.settings.items() if key != name})
    for at, table in enumerate(spec.tables):
        for smaller_table in _smaller_tables(table):
            names = {field.name for field in smaller_table.fields}
            kept = tuple(each for each in spec.indexes if each.table != table.name or each.column in names)
            yield replace(spec, tables=(*spec.tables[:at], smaller_table, *spec.tables[at + 1 :]), indexes=kept)


def _smaller_tables(table: DataTable) -> Iterator[DataTable]:
    files = table.files
    if len(files) > 1:
        yield replace(table, files=files[: len(files) // 2])
        yield replace(table, files=files[len(files) // 2 :])
        for at in range(len(files)):
            yield replace(table, files=files[:at] + files[at + 1 :])
    for field in table.fields[1:]:
        fields = tuple(each for each in table.fields if each is not field)
        yield replace(table, fields=fields, files=tuple(_without(file, field.name) for file in files))
    for at in range(len(table.partitions)):
        cut: Callable[[tuple[Any, ...]], tuple[Any, ...]] = lambda values, at=at: values[:at] + values[at + 1 :]  # type: ignore[misc]  # noqa: E731
        moved = tuple(replace(file, partition=cut(file.partition)) for file in files)
        yield replace(table, partitions=cut(table.partitions), files=moved)
    for at, file in enumerate(files):
        for smaller_file in _smaller_files(file):
            yield replace(table, files=(*files[:at], smaller_file, *files[at + 1 :]))


def _without(file: DataFile, column: str) -> DataFile:
    return replace(file, columns={name: values for name, values in file.columns.items() if name != column})


def _smaller_files(file: DataFile) -> Iterator[DataFile]:
    if file.writer != _PLAIN:
        yield replace(file, writer=_PLAIN)
        if file.writer.program == "pyarrow":
            for option in file.writer.options:
                kept = tuple(each for each in file.writer.options if each is not option)
                yield replace(file, writer=Writer("pyarrow", kept))
    if file.late or file.again:
        yield replace(file, late=False, again=False)
    if file.narrow:
        yield replace(file, narrow=frozenset())
    half = file.rows // 2
    if half:
        yield _rows(file, range(half))
        yield _rows(file, range(half, file.rows))
    if file.rows <= 12:
        for row in range(file.rows):
            yield _rows(file, [each for each in range(file.rows) if each != row])


def _rows(file: DataFile, kept: Any) -> DataFile:
    return replace(file, columns={name: tuple(values[row] for row in kept) for name, values in file.columns.items()})


# A script

_HEAD = '''"""{title}"""
import datetime, tempfile
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import needlepoint

nan, inf = float("nan"), float("inf")
root = Path(tempfile.mkdtemp())


def write(path, columns, **options):
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    arrays = {{name: pa.array(values, type) for name, (type, values) in columns.items()}}
    pq.write_table(pa.table(arrays), root / path, **options)


'''


def script(finding: Finding, title: str) -> str:
    spec, query = finding.spec, finding.query
    lines = [_HEAD.format(title=title)]
    files = [(table, file, number) for table in spec.tables for number, file in enumerate(table.files)]
    lines += [_written(*each) for each in files if not each[1].late]
    given = ", ".join(f"{name}={value!r}" for name, value in spec.settings.items())
    lines.append(f"lake = needlepoint.open(root, refresh=600{', ' + given if given else ''})\n")
    lines += [f"lake.create_table({table.name!r})\n" for table in spec.tables]
    lines += [
        f"lake.create_index({each.table!r}, {each.column!r}, {each.kind!r}, embed={each.embed})\n"
        for each in spec.indexes
    ]
    lines += [_written(*each) for each in files if each[1].late or each[1].again]
    lines += ["lake.engine.snapshots.forget()\n"]
    lines += [f'lake.sql("""CREATE VIEW {view.name} AS {view.query}""")\n' for view in spec.views]
    lines.append(f'query = """{query.lake}"""\nexpected = {finding.verdict.expected!r}\n')
    key = "repr" if len(query.keys) == 0 else "lambda row: 0"
    lines.append(_TAIL.format(parameters=query.tree.parameters() or None, key=key))
    return "".join(lines)


_TAIL = """for _ in range(10):
    try:
        table = lake.sql(query, {parameters!r}).to_arrow()
        values = [["NaN" if each != each else each for each in column.to_pylist()] for column in table.columns]
        found = list(zip(*values))
    except BaseException as error:
        found = [f"{{type(error).__name__}}: {{error}}"]
    ok = repr(sorted(found, key={key})) == repr(sorted(expected, key={key}))
    if not ok:
        break
print("ok " if ok else "BAD", query, "\\n   expected", expected, "\\n   found   ", found)
"""


def _written(table: DataTable, file: DataFile, number: int) -> str:
    parts = [f"{field.name}={hive(value)}" for field, value in zip(table.partitions, file.partition, strict=True)]
    path = "/".join([table.name, *parts, f"{number}.parquet"])
    arrow = table.arrow(file)
    columns = ", ".join(
        f"{name!r}: ({_type(arrow.schema.field(name).type)}, {column.to_pylist()!r})"
        for name, column in zip(arrow.column_names, arrow.columns, strict=True)
    )
    options = dict(file.writer.options) if file.writer.program == "pyarrow" else {}
    note = "" if file.writer.program == "pyarrow" else f"  # by {file.writer.program} {file.writer.options}"
    blooms = {name: {"ndv": 50} for name in arrow.column_names} if options.pop("bloom_filters", False) else None
    options |= {"bloom_filter_options": blooms} if blooms else {}
    given = "".join(f", {name}={value!r}" for name, value in options.items())
    return f"write({path!r}, {{{columns}}}{given}){note}\n"


def _type(type: Any) -> str:
    text = str(type)
    names = {
        "double": "pa.float64()",
        "float": "pa.float32()",
        "bool": "pa.bool_()",
        "date32[day]": "pa.date32()",
        "timestamp[us]": "pa.timestamp('us')",
    }
    return names.get(text) or (f"pa.decimal128({text[11:-1]})" if text.startswith("decimal128") else f"pa.{text}()")
