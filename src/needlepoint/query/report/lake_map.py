"""The map of a table: each file, what is read of it, and the step that skipped it.

A table can have 100,000 files, so the map is columns, not objects. It has pages only of the first files that are read
by page.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from needlepoint.parquet.format import Int64Array


@dataclass(frozen=True, slots=True)
class GroupMap:
    """A row group: its rows, how many of them are read, and the edges of its pages, in row numbers of the row group.
    Columns have different pages; these are of the column with the most."""

    rows: int
    read: int
    edges: Int64Array
    lit: Int64Array  # 1 for each page that is read

    def to_dict(self) -> dict[str, Any]:
        pages = np.stack([self.edges[:-1], self.edges[1:], self.lit], axis=1)
        return {"rows": self.rows, "read": self.read, "pages": pages.tolist()}


@dataclass(frozen=True, slots=True)
class TableMap:
    """For each file its size and rows, its state in the access plan, and the position in `steps` of the step that
    skipped it, -1 if it is read."""

    table: str
    steps: tuple[str, ...]
    paths: tuple[str, ...]
    bytes: tuple[int, ...]
    rows: tuple[int | None, ...]
    access: Int64Array
    step: Int64Array
    row_groups: Mapping[str, tuple[GroupMap, ...]]

    def directories(self) -> dict[str, list[int]]:
        """The positions of the files of each directory, in the order of the files."""
        found: dict[str, list[int]] = {}
        for position, path in enumerate(self.paths):
            found.setdefault(path.rpartition("/")[0], []).append(position)
        return found

    def to_dict(self) -> dict[str, Any]:
        """The map for JSON, with the files of each directory as columns."""
        access, step = self.access.tolist(), self.step.tolist()
        directories = [
            {
                "path": path,
                "names": [self.paths[at].rpartition("/")[2] for at in positions],
                "bytes": [self.bytes[at] for at in positions],
                "rows": [self.rows[at] for at in positions],
                "access": [access[at] for at in positions],
                "step": [step[at] for at in positions],
            }
            for path, positions in self.directories().items()
        ]
        pages = {path: [group.to_dict() for group in groups] for path, groups in self.row_groups.items()}
        return {"table": self.table, "steps": list(self.steps), "directories": directories, "pages": pages}
