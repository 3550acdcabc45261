"""Statements with their parameters. A handle contains all of it, so the server keeps nothing between calls and any
server of the lake can answer the next one. A handle says no more than its client can: rights are checked when it runs.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from needlepoint.errors import NeedlepointError, UsageError
from needlepoint.lake import Lake
from needlepoint.query import Limits, number_marks, parse, placeholders, tokens
from needlepoint.service.flight import messages

MOST_SETS = 1000  # sets of parameters of one statement


@dataclass(frozen=True, slots=True)
class Statement:
    """A query with `$name` for its parameters, and a row of `parameters` for each time that it runs."""

    query: str
    parameters: pa.RecordBatch | None = None
    query_id: str = ""

    @classmethod
    def of(cls, query: str) -> Statement:
        """From the text of a client, which may have `?` for parameters."""
        return cls(number_marks(query)[0])

    @classmethod
    def from_handle(cls, handle: bytes) -> Statement:
        """From a handle that a client sends: whatever it likes to."""
        found = messages.read("Statement", handle)
        if not found.parameters:
            return cls(found.query, None, found.query_id)
        try:
            for message in pa.ipc.MessageReader.open_stream(found.parameters):
                if _is_compressed(message.metadata.to_pybytes()):
                    raise messages.UnreadableMessage("the parameters of a handle are not compressed")
            with pa.ipc.open_stream(found.parameters) as reader:
                parameters = reader.read_next_batch()
                parameters.validate(full=True)
        except (pa.ArrowException, StopIteration, OSError, struct.error) as error:
            raise messages.UnreadableMessage(f"the handle has no parameters that can be read: {error}") from None
        _check_sets(parameters.num_rows)
        return cls(found.query, parameters, found.query_id)

    def handle(self) -> bytes:
        parameters = b""
        if self.parameters is not None:
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, self.parameters.schema) as writer:
                writer.write_batch(self.parameters)
            parameters = sink.getvalue().to_pybytes()
        made = messages.new("Statement", query=self.query, parameters=parameters, query_id=self.query_id)
        return bytes(made.SerializeToString())

    def named(self, query_id: str) -> Statement:
        return replace(self, query_id=query_id)

    def with_parameters(self, rows: pa.Table) -> Statement:
        _check_sets(rows.num_rows)
        return replace(self, parameters=rows.combine_chunks().to_batches()[0])

    def sets(self) -> Iterator[dict[str, Any] | None]:
        """The parameters of each run; by name if the client names them, else by place."""
        if self.parameters is None:
            yield None
            return
        names, given = placeholders(self.query), self.parameters.schema.names
        if set(names) != set(given):
            if len(names) != len(given):
                raise UsageError(
                    f"the statement has {len(names)} parameters, and {len(given)} values are given.", hint=""
                )
            given = names
        for row in range(self.parameters.num_rows):
            yield {name: column[row] for name, column in zip(given, self.parameters.columns, strict=True)}

    def schema(self, lake: Lake, limits: Limits) -> pa.Schema:
        """The schema of the rows. Parameters without values are NULL."""
        first = next(self.sets())
        if first is None and (names := placeholders(self.query)):
            types = self.parameter_types(lake, limits)
            first = {name: pa.scalar(None, types.field(name).type) for name in names}
        if parse(self.query) is not None:
            return lake.sql(self.query, first, limits=limits).schema
        return lake.engine.queries.schema(self.query, first, limits)

    def parameter_types(self, lake: Lake, limits: Limits) -> pa.Schema:
        """The parameters with the types that clients should send: each that of the last column before it in the text,
        as in `id = $1` and `day BETWEEN $1 AND $2`. It is a guess; other types are accepted."""
        columns: dict[str, pa.DataType] = {}
        for name in lake.engine.visible(limits)[0]:
            with contextlib.suppress(NeedlepointError):
                if name in self.query:
                    columns |= {field.name: field.type for field in lake.table(name).schema}
        last = pa.string()
        types: dict[str, pa.DataType] = {}
        for token in tokens(self.query):
            last = columns.get(token[0].strip('"'), last)
            if token[0].startswith("$"):
                types.setdefault(token[0][1:], last)
        return pa.schema([(name, types[name]) for name in placeholders(self.query)])


def _check_sets(rows: int) -> None:
    if not 0 < rows <= MOST_SETS:
        raise UsageError(f"the statement has {rows:,} sets of parameters.", hint=f"1 to {MOST_SETS:,} are possible.")


def _is_compressed(metadata: bytes) -> bool:
    """Whether a message of Arrow IPC has compressed buffers: few bytes could become very many. Its metadata is a
    flatbuffer (Message.fbs): field 2 of Message is the header, field 3 of a RecordBatch the compression."""
    header = _field(metadata, struct.unpack_from("<I", metadata)[0], 2)
    if header is None:
        return False
    return _field(metadata, header + struct.unpack_from("<I", metadata, header)[0], 3) is not None


def _field(data: bytes, table: int, number: int) -> int | None:
    """The place of a field of a table in a flatbuffer, if the table has it."""
    fields = table - struct.unpack_from("<i", data, table)[0]
    if 4 + 2 * number >= struct.unpack_from("<H", data, fields)[0]:
        return None
    place = struct.unpack_from("<H", data, fields + 4 + 2 * number)[0]
    return table + place if place else None
