"""Results in the format that a client accepts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from needlepoint.query import Result
from needlepoint.row_formats import ENCODERS, described, encode_json
from needlepoint.service.problems import RequestProblem

MEDIA_TYPES = {
    "application/json": "json",
    "application/x-ndjson": "ndjson",
    "application/jsonl": "ndjson",
    "text/csv": "csv",
    "application/vnd.apache.arrow.stream": "arrow",
}
_OF_FORMAT = {format: media_type for media_type, format in reversed(MEDIA_TYPES.items())}


@dataclass(slots=True)
class Format:
    """A format of one response. JSON can have a report. `rows` counts those that were written."""

    name: str
    reports: bool = False
    rows: int = 0

    @property
    def media_type(self) -> str:
        found = _OF_FORMAT[self.name]
        return f"{found}; charset=utf-8" if self.name == "csv" else found

    @classmethod
    def accepted(cls, header: str | None, reports: bool = False) -> Format:
        """The first format that the header names, in the order of its weights."""
        ranges = [_weighted(part) for part in (header or "*/*").split(",")]
        for weight, media_type in sorted(ranges, key=lambda each: -each[0]):
            if weight > 0 and media_type in ("*/*", "application/*"):
                return cls("json", reports)
            if weight > 0 and media_type == "text/*":
                return cls("csv")
            if weight > 0 and media_type in MEDIA_TYPES:
                return cls(MEDIA_TYPES[media_type], reports)
        raise RequestProblem(406, "none of the accepted formats is known.", hint=f"Accept {', '.join(MEDIA_TYPES)}.")

    def pieces(self, result: Result, query_id: str, seconds: float) -> Iterator[bytes]:
        """The rows as bytes. JSON also says what the columns are."""
        if self.name != "json":
            yield from ENCODERS[self.name](result.schema, self._counted(result))
            return
        head = {"query_id": query_id, "seconds": round(seconds, 6), "columns": described(result.schema)}
        yield json.dumps(head).encode()[:-1] + b', "rows": '
        yield from encode_json(result.schema, self._counted(result))
        if self.reports:
            yield b', "report": ' + json.dumps(result.report.to_dict()).encode()
        yield b"}\n"

    def _counted(self, result: Result) -> Iterator[pa.RecordBatch]:
        for batch in result.batches():
            self.rows += batch.num_rows
            yield batch


def _weighted(part: str) -> tuple[float, str]:
    """
    >>> _weighted("text/csv;q=0.5"), _weighted(" application/json")
    ((0.5, 'text/csv'), (1.0, 'application/json'))
    """
    media_type, *parameters = (each.strip() for each in part.split(";"))
    weight = next((each[2:] for each in parameters if each.startswith("q=")), "1")
    try:
        return float(weight), media_type.lower()
    except ValueError:
        return 0.0, media_type.lower()
