from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from needlepoint.errors import FileChanged, NotParquet
from needlepoint.objects import LOCAL_GAP, Identity, LocalFile, identify

CONTENT = os.urandom(50_000)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    target: Path = tmp_path_factory.mktemp("objects") / "file"
    target.write_bytes(CONTENT)
    return str(target)


def test_identity(path: str) -> None:
    stat = Path(path).stat()
    assert identify(path) == Identity(50_000, stat.st_mtime_ns)
    with LocalFile(path) as file:
        assert file.identity == identify(path)
        assert file.size == 50_000
    with pytest.raises(FileNotFoundError):
        identify(path + ".none")


def test_read(path: str) -> None:
    with LocalFile(path) as file:
        assert file.read(100, 50) == CONTENT[100:150]
        assert file.read(50_000, 0) == b""
        assert (file.requests, file.bytes_requested) == (2, 50)
        for offset, length in ((49_999, 2), (-1, 5), (0, -1), (60_000, 1)):
            with pytest.raises(NotParquet, match="outside the file"):
                file.read(offset, length)


RANGES = st.lists(st.tuples(st.integers(0, 49_000), st.integers(0, 1000)), max_size=12)


@settings(max_examples=100, deadline=None)
@given(ranges=RANGES)
def test_ranges_come_back_in_order(path: str, ranges: list[tuple[int, int]]) -> None:
    with LocalFile(path) as file:
        expected = [CONTENT[offset : offset + length] for offset, length in ranges]
        assert file.read_ranges(ranges) == expected
        assert file.requests <= len(ranges)


def test_neighbours_are_read_together(path: str) -> None:
    with LocalFile(path) as file:
        far = 200 + LOCAL_GAP + 1
        file.read_ranges([(100, 100), (0, 50), (far, 10)])
        assert (file.requests, file.bytes_requested) == (2, 210)


def test_changes_are_noticed(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"0123456789")
    with LocalFile(str(path)) as file:
        file.check_unchanged(file.identity)
        with path.open("ab") as other:
            other.write(b"more")
        with pytest.raises(FileChanged) as caught:
            file.check_unchanged(file.identity)
    assert caught.value.hint
    file.close()  # again, without harm


def test_a_file_cut_short_while_open(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"0123456789")
    with LocalFile(str(path)) as file:
        os.truncate(path, 5)
        with pytest.raises(NotParquet):
            file.read(0, 10)
