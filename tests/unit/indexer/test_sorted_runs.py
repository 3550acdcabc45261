"""A build continues with the runs that a killed build left only if they are unchanged."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from needlepoint.indexer.build import Artifact, EntryRun
from needlepoint.indexer.range_merge import write_plain
from needlepoint.indexer.sorted_runs import SortedRuns

KEYS = frozenset({1, 2})


def noted(place: Path) -> SortedRuns:
    """Write runs of two indexes, and the note that lists them."""
    place.mkdir()
    runs = []
    for index_id in sorted(KEYS):
        entries = np.random.default_rng(index_id).integers(0, 256, (200, 16), np.uint8)
        path = place / f"{index_id}.run"
        runs.append(EntryRun(index_id, str(index_id), str(path), entries.nbytes, write_plain(path, entries)))
    made = SortedRuns.of(place, Artifact(runs=tuple(runs)), KEYS)
    made = SortedRuns(made.directory, made.runs, {1: {7: 200}, 2: {7: 200}})
    made.save()
    return made


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def test_what_was_written_is_found_again(tmp_path: Path) -> None:
    made = noted(tmp_path / "task")
    assert SortedRuns.load(tmp_path / "task") == made


def test_a_changed_run_is_left_out(tmp_path: Path) -> None:
    noted(tmp_path / "task")
    flip(tmp_path / "task/1.run", 1000)
    found = SortedRuns.load(tmp_path / "task")
    assert found is not None
    assert found.entries == {2: {7: 200}}


def test_a_changed_note_is_none(tmp_path: Path) -> None:
    noted(tmp_path / "task")
    note = tmp_path / "task/sorted.json"
    for at in range(note.stat().st_size):
        flip(note, at)
        assert SortedRuns.load(tmp_path / "task") is None
        flip(note, at)
    assert SortedRuns.load(tmp_path / "task") is not None
