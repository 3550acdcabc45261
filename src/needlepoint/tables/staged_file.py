"""What a write left in a staging directory, before it is published."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StagedFile:
    """One Parquet file of a batch that no reader sees yet.

    `relative` is the directory of the file below the staging root, `/`-separated and escaped as the writer
    escaped it (`partner=a%2Fb/year=2024`); it is empty when the batch is not partitioned. `own`: this lake's writers
    made all of the file, so that indexes embedded in it are trusted.
    """

    path: str
    relative: str
    size: int
    rows: int
    own: bool = False
