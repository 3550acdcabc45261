"""HTML for notebooks: a file as a strip of its parts, and its columns as a table. All texts are escaped."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

from needlepoint.parquet.inspect.layout import KINDS, Segment
from needlepoint.printable import count, printable, size_text

if TYPE_CHECKING:
    from needlepoint.parquet.inspect.anatomy import Anatomy

_WIDTH, _LEAST = 600, 1.5  # pixels
# Legible on light and dark; what nothing refers to is red.
_COLOURS = dict(zip(KINDS, ("#8a63d2", "#2a78d6", "#1f9e89", "#6cb33f", "#d6862a", "#c2478f", "#888888"), strict=True))
_WASTE = "#d03b3b"
MOST_COLUMNS = 30


def anatomy_html(anatomy: Anatomy) -> str:
    name = escape(printable(anatomy.path.rpartition("/")[2]))
    groups = count(len(anatomy.row_groups), "row group")
    head = f"<div><b>{name}</b>: {size_text(anatomy.size)}, {count(anatomy.rows, 'row')} in {groups}</div>"
    parts = "".join(
        f"<span style='margin-right:1em'><span style='color:{_COLOURS.get(kind, _WASTE)}'>■</span> "
        f"{kind} {size_text(size)}</span>"
        for kind, size in anatomy.bytes_by_kind().items()
    )
    advice = "".join(f"<li>{escape(printable(each.remedy))}</li>" for each in anatomy.advice)
    return f"{head}{_strip(anatomy.segments, anatomy.size)}<div>{parts}</div>{_columns(anatomy)}<ul>{advice}</ul>"


def _strip(segments: Sequence[Segment], size: int) -> str:
    """The parts in the order of the file; a small one is drawn a little larger than it is."""
    drawn = "".join(
        f"<rect x='{each.start / size * _WIDTH:.1f}' y='0' height='24' "
        f"width='{max(_LEAST, each.size / size * _WIDTH):.1f}' fill='{_COLOURS.get(each.kind, _WASTE)}'>"
        f"<title>{each.kind}: {size_text(each.size)}</title></rect>"
        for each in segments
    )
    return f"<svg role='img' aria-label='the parts of the file' width='{_WIDTH}' height='24'>{drawn}</svg>"


def _columns(anatomy: Anatomy) -> str:
    rows = "".join(
        f"<tr><td>{escape(printable(each.name))}</td><td>{escape(printable(each.type))}</td>"
        f"<td>{escape(', '.join(each.encodings).lower())}</td><td>{size_text(each.compressed)}</td>"
        f"<td>{each.share:.0%}</td></tr>"
        for each in anatomy.columns[:MOST_COLUMNS]
    )
    left = len(anatomy.columns) - MOST_COLUMNS
    more = f"<small>{count(left, 'more column')}</small>" if left > 0 else ""
    head = "".join(f"<th>{name}</th>" for name in ("column", "type", "encoding", "bytes", "share"))
    return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>{more}"
