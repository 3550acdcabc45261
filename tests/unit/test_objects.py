from __future__ import annotations

import itertools
import os
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases import cases

from needlepoint.errors import FileChanged, NotParquet
from needlepoint.objects import LOCAL_GAP, Identity, coalesce, identify, open_object
from needlepoint.objects.errors import object_store_error
from needlepoint.objects.local import LocalFile
from needlepoint.objects.ranges import cut, split

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


def test_an_etag_decides_where_there_is_one() -> None:
    assert Identity(1, 2, "a") == Identity(1, 9, "a")  # a listing has finer times than an object
    assert hash(Identity(1, 2, "a")) == hash(Identity(1, 9, "a"))
    assert Identity(1, 2, "a") != Identity(1, 2, "b")
    assert Identity(1, 2, "a") != Identity(3, 2, "a")
    assert Identity(1, 2) != Identity(1, 9)
    assert Identity(1, 2) != Identity(1, 2, "a")


def test_a_path_opens_as_a_file(path: str) -> None:
    with open_object(path) as file:
        assert isinstance(file, LocalFile)


def test_read(path: str) -> None:
    with LocalFile(path) as file:
        assert file.read(100, 50) == CONTENT[100:150]
        assert file.read(50_000, 0) == b""
        assert (file.requests, file.bytes_requested) == (2, 50)
        for offset, length in ((49_999, 2), (-1, 5), (0, -1), (60_000, 1)):
            with pytest.raises(NotParquet, match="outside the file"):
                file.read(offset, length)


RANGES = st.lists(st.tuples(st.integers(0, 49_000), st.integers(0, 1000)), max_size=12)


@settings(max_examples=cases(100), deadline=None)
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
    file.close()  # a second time, without an error


def test_a_file_cut_short_while_open(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"0123456789")
    with LocalFile(str(path)) as file:
        os.truncate(path, 5)
        with pytest.raises(NotParquet):
            file.read(0, 10)


@settings(max_examples=cases(200), deadline=None)
@given(ranges=RANGES, gap=st.integers(0, 5000))
def test_coalesced_blocks_hold_every_range_and_lie_apart(ranges: list[tuple[int, int]], gap: int) -> None:
    blocks = coalesce(ranges, gap)
    assert sorted(number for block in blocks for number in block.members) == list(range(len(ranges)))
    for block in blocks:
        assert block.start == min(ranges[number][0] for number in block.members)
        assert block.end == max(sum(ranges[number]) for number in block.members)
    assert all(after.start > before.end + gap for before, after in itertools.pairwise(blocks))
    expected = [CONTENT[offset : offset + length] for offset, length in ranges]
    assert cut(ranges, blocks, lambda block: CONTENT[block.start : block.end]) == expected


@given(start=st.integers(0, 1000), size=st.integers(0, 5000), part=st.integers(1, 600))
def test_parts_follow_each_other(start: int, size: int, part: int) -> None:
    parts = split(start, start + size, part)
    assert len(parts) == -(-size // part)
    edges = [start, *(end for _, end in parts)]
    assert parts == list(itertools.pairwise(edges))
    assert edges[-1] == start + size
    assert all(0 < end - first <= part for first, end in parts)


SECRETS = "<AWSAccessKeyId>AKIDEXAMPLE</AWSAccessKeyId><StringToSign>hush</StringToSign>"


@pytest.mark.parametrize(
    ("text", "problem", "advice"),
    [
        ("status code: 404 Not Found: <Code>NoSuchBucket</Code>", "no such bucket (NoSuchBucket)", "AWS_REGION"),
        ("status code: 403 <Code>SignatureDoesNotMatch</Code>", "not accepted (Sig", "AWS_SECRET_ACCESS_KEY"),
        ("status code: 403 Forbidden: ", "access is refused (status 403)", "AWS_ACCESS_KEY_ID"),
        ("Error performing PUT http://169.254.169.254/latest/api/token", "no credentials", "AWS_ACCESS_KEY_ID"),
        ("Received redirect without LOCATION, this normally indicates", "another region", "AWS_REGION"),
        ("status code: 503 <Code>SlowDown</Code>", "overloaded or broken (SlowDown)", "later"),
        ("after 5 retries - HTTP error: error sending request", "does not answer", "AWS_ENDPOINT_URL"),
        ("something else", "the object store fails", "later"),
    ],
)
def test_what_a_store_refuses_is_said_without_secrets(text: str, problem: str, advice: str) -> None:
    error = object_store_error("s3://bucket/key", f"Generic S3 error: {text} {SECRETS}")
    assert str(error).startswith("s3://bucket/key: ")
    assert problem in error.message
    assert advice in error.hint
    assert "AKIDEXAMPLE" not in str(error)
    assert "hush" not in str(error)
    assert error.where == "s3://bucket/key"


def test_a_replaced_file_is_another_though_its_time_is_the_same(tmp_path: Path) -> None:
    path = str(tmp_path / "file")
    Path(path).write_bytes(CONTENT)
    before = identify(path)
    other = Path(path).with_suffix(".other")
    other.write_bytes(Path(path).read_bytes()[::-1])
    os.utime(other, ns=(0, before.mtime_ns))
    with LocalFile(path) as file:
        other.replace(path)
        file.check_unchanged(before)  # it still reads the old file
    now = identify(path)
    assert now != before
    assert now.seems(before)
    noted = Identity(before.size, before.mtime_ns)  # recorded by an older version
    assert noted == before
    assert noted == now


def test_another_machine_numbers_inodes_otherwise(path: str) -> None:
    here = identify(path)
    there = replace(here, inode=here.inode + 1)
    assert here != there
    assert here.elsewhere() == there
    assert here.elsewhere() != replace(there, ctime_ns=here.ctime_ns + 1)
