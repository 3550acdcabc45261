from __future__ import annotations

import json
from urllib.parse import quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from needlepoint.queues.events import BadEvent, Event
from needlepoint.queues.notifications import ObjectNotification, parse_message


def record(key: str, name: str = "ObjectCreated:Put", source: str = "aws:s3") -> dict[str, object]:
    return {"eventSource": source, "eventName": name, "s3": {"bucket": {"name": "b"}, "object": {"key": key}}}


def body(*records: object) -> str:
    return json.dumps({"Records": records})


@given(st.text(min_size=1))
def test_keys_are_decoded(key: str) -> None:
    try:
        encoded = quote_plus(key, safe="/")
    except UnicodeEncodeError:
        return
    assert parse_message(body(record(encoded))) == ObjectNotification((f"s3://b/{key}",))


@given(st.text(), st.text(), st.lists(st.text("ab=./", min_size=1).filter(lambda p: not p.startswith("/")), max_size=9))
def test_our_own_events_come_back(table: str, batch: str, paths: list[str]) -> None:
    named = tuple(path for path in paths if ".." not in path.split("/") and path.strip("./"))
    event = Event(table, batch, named)
    assert parse_message(event.to_json()) == event
    assert [path for part in event.parts(most_characters=20) for path in part.added] == [*named]


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("ObjectCreated:Put", True),
        ("ObjectCreated:CompleteMultipartUpload", True),
        ("s3:ObjectCreated:Copy", True),
        ("ObjectRemoved:DeleteMarkerCreated", True),
        ("LifecycleExpiration:Delete", True),
        ("ObjectTagging:Put", False),
        ("ObjectRestore:Completed", False),
        ("LifecycleTransition", False),
    ],
)
def test_only_what_changes_bytes_counts(name: str, counts: bool) -> None:
    assert parse_message(body(record("a", name))) == ObjectNotification(("s3://b/a",) if counts else ())


def test_an_object_named_twice_is_one() -> None:
    assert parse_message(body(record("a"), record("c"), record("a", "ObjectRemoved:Delete"))) == ObjectNotification(
        ("s3://b/a", "s3://b/c")
    )


def test_other_stores_and_the_test_event() -> None:
    assert parse_message(body(record("a", "s3:ObjectCreated:Put", "minio:s3"))) == ObjectNotification(("s3://b/a",))
    assert parse_message('{"Service": "Amazon S3", "Event": "s3:TestEvent", "Bucket": "b"}') == ObjectNotification(())
    assert parse_message(
        json.dumps({"Type": "Notification", "Message": '{"Event": "s3:TestEvent"}'})
    ) == ObjectNotification(())


def test_keys_of_event_bridge_are_not_encoded() -> None:
    detail = {"bucket": {"name": "b"}, "object": {"key": "a+b%20c"}}
    fields = {"source": "aws.s3", "detail-type": "Object Deleted", "detail": detail}
    assert parse_message(json.dumps(fields)) == ObjectNotification(("s3://b/a+b%20c",))
    assert parse_message(json.dumps({**fields, "detail-type": "Object Tags Added"})) == ObjectNotification(())


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "[]",
        "[" * 100_000,
        '{"Records": {}}',
        '{"Records": [1]}',
        '{"Records": [null]}',
        '{"Records": [{"eventSource": "aws:ses", "eventName": "x"}]}',
        '{"Records": [{"eventSource": "aws:s3", "eventName": "ObjectCreated:Put"}]}',
        '{"Records": [{"eventSource": "aws:s3", "eventName": "ObjectCreated:Put", "s3": {"bucket": {"name": 1}}}]}',
        '{"source": "aws.s3", "detail-type": "Object Created", "detail": []}',
        '{"Type": "Notification", "Message": "hello"}',
        '{"Type": "Notification", "Message": 1}',
        '{"Type": "SubscriptionConfirmation"}',
        '{"table": 1, "batch": "b"}',
        # Half of a surrogate pair is not text: no database and no file system accepts it.
        r'{"table": "\ud800", "batch": "b"}',
        r'{"table": "t", "batch": "\udc00b"}',
        r'{"table": "t", "batch": "b", "added": ["\ud800.parquet"]}',
        r'{"table": "t", "batch": "b", "removed": ["\ud800.parquet"]}',
        r'{"Type": "Notification", "Message": "{\"table\": \"\\ud800\", \"batch\": \"b\"}"}',
        (
            r'{"source": "aws.s3", "detail-type": "Object Created",'
            r' "detail": {"bucket": {"name": "b"}, "object": {"key": "\ud800.parquet"}}}'
        ),
    ],
)
def test_what_is_neither_is_a_bad_event(text: str) -> None:
    with pytest.raises(BadEvent) as error:
        parse_message(text)
    str(error.value).encode()
