"""Notifications drive the indexing of a bucket with other writers; SQS delivers them late, twice and in any order."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote_plus

import pytest
from tests.buckets import ACCESS_KEY, SECRET_KEY, Asked, Bucket, Server, parquet
from tests.cases import long
from tests.lakes import products

import needlepoint
from needlepoint.indexer.event_consumer import EventResult
from needlepoint.queues.events import Event
from needlepoint.queues.sqs import SqsQueue

ROWS = 500


@pytest.fixture
def queue(server: Server, bucket: Bucket) -> str:
    return server.queue(f"events-of-{bucket.name}")


@pytest.fixture
def lake(tmp_path: Path, bucket: Bucket, queue: str) -> Iterator[needlepoint.Lake]:
    """`product` with one indexed file, and an empty queue."""
    bucket.put_table("lake/product/year=2020/p0.parquet", products(0, ROWS))
    with needlepoint.open(tmp_path / "lake", queue=queue) as lake:
        lake.create_table("product", bucket.url("lake/product"))
        lake.create_index("product", "product_id")
        yield lake


def notify(bucket: Bucket, queue: str, prefix: str = "") -> None:
    """Turn on notifications of the bucket, as its owner would; the first is a test event."""
    arn = f"arn:aws:sqs:us-east-1:123456789012:{queue.removeprefix('sqs://').partition('?')[0]}"
    rule = {"QueueArn": arn, "Events": ["s3:ObjectCreated:*", "s3:ObjectRemoved:*"]}
    bucket.client.put_bucket_notification_configuration(
        Bucket=bucket.name, NotificationConfiguration={"QueueConfigurations": [rule]}
    )


def record(bucket: str, key: str, name: str = "ObjectCreated:Put", **more: object) -> dict[str, object]:
    what = {"key": quote_plus(key, safe="/"), "sequencer": "0055AED6DCD90281E5", **more}
    return {
        "eventVersion": "2.1", "eventSource": "aws:s3", "awsRegion": "us-east-1", "eventName": name,
        "eventTime": "2024-05-01T06:00:00.000Z", "s3": {"bucket": {"name": bucket}, "object": what},
    }  # fmt: skip


def created(bucket: Bucket, *keys: str) -> str:
    return json.dumps({"Records": [record(bucket.name, key) for key in keys]})


def removed(bucket: Bucket, key: str) -> str:
    return json.dumps({"Records": [record(bucket.name, key, "ObjectRemoved:Delete")]})


def follow(lake: needlepoint.Lake) -> list[EventResult]:
    return list(lake.follow_events(once=True))


def found(lake: needlepoint.Lake, number: int) -> tuple[list[str], int, int]:
    """The product's codes, and the numbers of files that were read by page and scanned."""
    result = lake.sql(f"SELECT upc FROM product WHERE product_id = {number}")
    (report,) = result.report.tables
    return [row["upc"] for row in result.rows()], report.page_read_files, report.scanned_files


def count(lake: needlepoint.Lake) -> int:
    return int(lake.sql("SELECT count(*) AS n FROM product").rows()[0]["n"])


def nothing_left(lake: needlepoint.Lake) -> bool:
    return (lake.queue.waiting(), lake.queue.aside_count()) == (0, 0)


# Notifications


def test_what_others_write_is_indexed_without_a_listing(lake, bucket: Bucket, queue: str, server: Server) -> None:
    notify(bucket, queue)
    bucket.put_table("lake/product/year=2021/p1.parquet", products(1000, ROWS))
    assert lake.status().waiting_events == 2 and lake.status().approximate_events
    start = len(server.asked)
    test, handled = follow(lake)
    assert (test.problem, test.indexed, test.passed_over) == ("", 0, 0)
    assert (handled.problem, handled.indexed) == ("", 1)
    assert handled.what == bucket.url("lake/product/year=2021/p1.parquet")
    assert server.listings(start) == []
    assert found(lake, 1234) == (["U000001234"], 1, 0)
    assert nothing_left(lake)


def test_replaced_and_removed_objects(lake, bucket: Bucket, queue: str, server: Server) -> None:
    bucket.put_table("lake/product/year=2021/p1.parquet", products(1000, ROWS))
    lake.sync()
    notify(bucket, queue)
    bucket.put_table("lake/product/year=2021/p1.parquet", products(3000, 20))
    bucket.delete("lake/product/year=2020/p0.parquet")
    start = len(server.asked)
    assert [each.problem for each in follow(lake)] == ["", "", ""]
    assert server.listings(start) == []
    assert found(lake, 3010) == (["U000003010"], 1, 0)
    assert found(lake, 1234)[0] == found(lake, 7)[0] == []
    assert [file.path for file in lake.registry.files.of(lake.registry.tables.get("product"))] == [
        "year=2021/p1.parquet"
    ]
    assert nothing_left(lake)


@pytest.mark.parametrize("sent", ["sns", "bridge", "many"])
def test_other_ways_to_send_them(lake, bucket: Bucket, sent: str) -> None:
    keys = [f"lake/product/year=2022/a b+c%{number}.parquet" for number in range(3)]
    for number, key in enumerate(keys):
        bucket.put_table(key, products(1000 * number + 1000, ROWS))
    if sent == "sns":
        for key in keys:
            lake.queue.put(json.dumps({"Type": "Notification", "TopicArn": "arn", "Message": created(bucket, key)}))
    elif sent == "bridge":
        for key in keys:
            detail = {"bucket": {"name": bucket.name}, "object": {"key": key}}
            lake.queue.put(json.dumps({"source": "aws.s3", "detail-type": "Object Created", "detail": detail}))
    else:
        lake.queue.put(created(bucket, *keys, keys[0]))
    assert sum(each.indexed for each in follow(lake)) == 3
    assert [found(lake, 1000 * number + 1007)[1:] for number in range(3)] == [(1, 0)] * 3
    assert lake.status().tables[0].unknown == 0
    assert nothing_left(lake)


def test_late_repeated_and_misordered_notifications_change_nothing(lake, bucket: Bucket, server: Server) -> None:
    """Only the current state counts."""
    key = "lake/product/year=2021/p1.parquet"
    bucket.put_table(key, products(1000, ROWS))
    lake.queue.put(removed(bucket, key))  # about an earlier object with this key
    for _ in range(3):
        lake.queue.put(created(bucket, key))
    assert sum(each.indexed for each in follow(lake)) == 1
    assert found(lake, 1234) == (["U000001234"], 1, 0)
    bucket.delete(key)
    lake.queue.put(removed(bucket, key))
    follow(lake)
    lake.queue.put(created(bucket, key))  # arrives after the removal
    lake.queue.put(removed(bucket, key))
    start = len(server.asked)
    assert [(each.indexed, each.problem) for each in follow(lake)] == [(0, ""), (0, "")]
    assert server.gets(start) == [] and server.listings(start) == []
    assert found(lake, 1234)[0] == []
    assert count(lake) == ROWS
    assert nothing_left(lake)


def test_objects_of_no_table_are_passed_over_and_counted(lake, bucket: Bucket) -> None:
    foreign = ["other/x.parquet", "lake/product2/x.parquet", "lake/product/_temporary/x.parquet",
               "lake/product/_SUCCESS", "lake/product/year=2020/.p.parquet", "lake/product//x.parquet"]  # fmt: skip
    lake.queue.put(created(bucket, *foreign))
    lake.queue.put(json.dumps({"Records": [record("elsewhere", "lake/product/x.parquet")]}))
    lake.queue.put(json.dumps({"Records": [record(bucket.name, "lake/product/x.parquet", "ObjectTagging:Put")]}))
    handled = follow(lake)
    assert sorted(each.passed_over for each in handled) == [0, 1, 6]
    assert {each.problem for each in handled} == {""}
    assert nothing_left(lake)


def test_an_object_is_indexed_for_every_table_that_lists_it(lake, bucket: Bucket) -> None:
    lake.create_table("recent", bucket.url("lake/product/year=2020"))
    lake.create_index("recent", "upc")
    bucket.put_table("lake/product/year=2020/p1.parquet", products(1000, ROWS))
    lake.queue.put(created(bucket, "lake/product/year=2020/p1.parquet"))
    (handled,) = follow(lake)
    assert (handled.indexed, handled.problem) == (2, "")
    assert [(table.name, table.indexed) for table in lake.status().tables] == [("product", 2), ("recent", 2)]


def test_new_columns_come_with_new_objects(lake, bucket: Bucket) -> None:
    wider = products(1000, ROWS).append_column("color", [["red"] * ROWS])
    bucket.put_table("lake/product/year=2021/p1.parquet", wider)
    lake.queue.put(created(bucket, "lake/product/year=2021/p1.parquet"))
    follow(lake)
    assert lake.sql("SELECT color FROM product WHERE product_id = 1001").rows() == [{"color": "red"}]


def test_an_object_that_does_not_fit_is_set_aside_alone(lake, bucket: Bucket) -> None:
    wrong = products(1000, 5).set_column(0, "product_id", [[f"{n}" for n in range(5)]])
    bucket.put_table("lake/product/year=2021/wrong.parquet", wrong)
    bucket.put("lake/product/year=2021/bad.parquet", b"PAR1 this is not Parquet PAR1")
    bucket.put_table("lake/product/year=2021/p1.parquet", products(2000, ROWS))
    for name in ("wrong", "p1", "bad"):
        lake.queue.put(created(bucket, f"lake/product/year=2021/{name}.parquet"))
    lake.queue.put("no event at all")
    assert sorted(bool(each.problem) for each in follow(lake)) == [False, True, True, True]
    reasons = " ".join(each.reason for each in lake.queue.aside())
    assert "'product_id' is int64" in reasons and "bad.parquet" in reasons and "not JSON" in reasons
    for name in ("wrong", "bad"):
        bucket.delete(f"lake/product/year=2021/{name}.parquet")
    assert found(lake, 2007) == (["U000002007"], 1, 0)
    assert (lake.queue.waiting(), lake.status().events_set_aside) == (0, 3)


@pytest.mark.parametrize("request_number", [1, *long(2), 3])
def test_an_object_replaced_while_it_is_indexed_is_looked_at_again(
    lake, bucket: Bucket, server: Server, request_number: int
) -> None:
    key = "lake/product/year=2021/p1.parquet"
    bucket.put_table(key, products(1000, ROWS))
    gets: list[Asked] = []

    def replace(asked: Asked) -> None:
        if asked.method == "GET" and asked.path.endswith("p1.parquet"):
            gets.append(asked)
            if len(gets) == request_number:
                bucket.put_table(key, products(5000, 30))

    server.before = replace
    lake.queue.put(created(bucket, key))
    (handled,) = follow(lake)
    assert handled.problem == "" and len(gets) > request_number
    assert found(lake, 5007) == (["U000005007"], 1, 0)
    assert nothing_left(lake)


def test_an_object_that_never_rests_waits(lake, bucket: Bucket, server: Server) -> None:
    key = "lake/product/year=2021/p1.parquet"
    bucket.put_table(key, products(1000, ROWS))
    numbers = iter(range(2000, 9000))

    def replace(asked: Asked) -> None:
        if asked.method == "GET" and asked.path.endswith("p1.parquet"):
            bucket.put_table(key, products(next(numbers), 30))

    server.before = replace
    lake.queue.put(created(bucket, key))
    (handled,) = follow(lake)
    assert "modified" in handled.problem
    assert (lake.queue.waiting(), lake.queue.aside_count()) == (1, 0)


def test_an_object_that_is_refused_waits_and_holds_up_no_other(lake, bucket: Bucket, server: Server) -> None:
    for number in (1, 2):
        bucket.put_table(f"lake/product/year=2021/p{number}.parquet", products(1000 * number, ROWS))
        lake.queue.put(created(bucket, f"lake/product/year=2021/p{number}.parquet"))
    server.before = lambda asked: 403 if asked.path.endswith("p1.parquet") else None
    first, second = sorted(follow(lake), key=lambda each: each.what)
    assert "access is refused" in first.problem and second.problem == ""
    assert (lake.queue.waiting(), lake.queue.aside_count()) == (1, 0)
    server.before = None
    assert found(lake, 2007) == (["U000002007"], 1, 1)  # the refused object is scanned


# Our own events


def test_events_of_others_about_a_bucket_are_looked_at_too(lake, bucket: Bucket, server: Server) -> None:
    bucket.put_table("lake/product/year=2021/p1.parquet", products(1000, ROWS))
    lake.queue.put(Event("product", "b1", ("year=2021/p1.parquet", "_temporary/x.parquet")).to_json())
    start = len(server.asked)
    (handled,) = follow(lake)
    assert (handled.what, handled.indexed, handled.problem) == ("product, batch b1", 1, "")
    assert server.listings(start) == []
    bucket.delete("lake/product/year=2021/p1.parquet")
    lake.queue.put(Event("product", "b2", removed=("year=2021/p1.parquet",)).to_json())
    follow(lake)
    assert len(lake.registry.files.of(lake.registry.tables.get("product"))) == 1


@pytest.mark.long
def test_a_batch_of_very_many_files_is_announced_in_parts(lake) -> None:
    names = tuple(f"year=2024/part-{number:05d}-{'x' * 32}.parquet" for number in range(9000))
    parts = list(Event("product", "large", names).parts())
    assert len(parts) > 2 and sum((part.added for part in parts), ()) == names
    for part in parts:
        lake.queue.put(part.to_json())
    assert lake.queue.waiting() == len(parts)


# Leases and dead letters


@pytest.mark.long
def test_a_killed_indexer_loses_nothing(lake, bucket: Bucket, server: Server, monkeypatch) -> None:
    """It dies while it holds leases; when they expire, another indexer does the work."""
    monkeypatch.setattr("needlepoint.indexer.event_consumer.LEASE", 1.0)
    for number in range(1, 4):
        bucket.put_table(f"lake/product/year=2021/p{number}.parquet", products(1000 * number, ROWS))
        lake.queue.put(created(bucket, f"lake/product/year=2021/p{number}.parquet"))
    context = multiprocessing.get_context("spawn")
    begun = context.Event()
    process = context.Process(target=_stuck, args=(str(lake.root), lake.settings.queue, begun))
    process.start()
    assert begun.wait(60)
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    deadline = time.monotonic() + 60
    while lake.queue.waiting() and time.monotonic() < deadline:
        follow(lake)
        time.sleep(0.1)
    assert nothing_left(lake)
    assert [found(lake, 1000 * number + 7)[1:] for number in range(1, 4)] == [(1, 0)] * 3


def _stuck(root: str, queue: str, begun) -> None:
    """Receive the messages, begin to index, and hang."""
    from needlepoint.indexer import event_consumer, indexer

    def catch_up(*_: object, **__: object) -> None:
        begun.set()
        time.sleep(600)

    event_consumer.LEASE = 2.0
    indexer.Indexer.catch_up = catch_up
    with needlepoint.open(root, queue=queue) as lake:
        list(lake.follow_events(once=True))


def test_dead_letters_go_where_the_queue_sends_them(server: Server, bucket: Bucket) -> None:
    server.queue(f"dead-{bucket.name}")
    arn = f"arn:aws:sqs:us-east-1:123456789012:dead-{bucket.name}"
    policy = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 2})
    queue = SqsQueue(server.queue(f"q-{bucket.name}", RedrivePolicy=policy))
    queue.put("bad")
    queue.set_aside(queue.receive(1, lease=60)[0], "cannot be")
    queue.put("worse")
    for _ in range(3):
        queue.receive(1, lease=0)  # a receiver that dies each time
    assert {each.body: each.reason for each in queue.aside()} == {
        "bad": "cannot be",
        "worse": "SQS set it aside: it was received too often.",
    }
    names = [url.rpartition("/")[2] for url in server.sqs.list_queues()["QueueUrls"]]
    assert f"q-{bucket.name}-aside" not in names


def test_dead_letters_go_where_the_url_says(server: Server, bucket: Bucket) -> None:
    url = server.queue(f"q-{bucket.name}")
    chosen = SqsQueue(f"{url}&dead_letters=chosen-{bucket.name}")
    chosen.put("bad")
    (message,) = chosen.receive(1, lease=0)
    with pytest.raises(needlepoint.QueueError, match=f"sqs://chosen-{bucket.name}: there is no such queue"):
        chosen.set_aside(message, "cannot be")
    server.queue(f"chosen-{bucket.name}")
    chosen.set_aside(message, "cannot be")
    assert [each.reason for each in chosen.aside()] == ["cannot be"]
    assert SqsQueue(url).aside() == []


# Addresses and failures


def test_a_queue_has_several_names(server: Server, bucket: Bucket) -> None:
    name = f"q-{bucket.name}"
    SqsQueue(server.queue(name)).put("one")
    for url in (f"sqs://123456789012/{name}", f"{server.url}/123456789012/{name}", f"sqs://{name}?region=us-east-1"):
        assert SqsQueue(url).waiting() == 1


def test_waiting_for_messages_ends_when_one_comes(server: Server, bucket: Bucket) -> None:
    queue = SqsQueue(f"sqs://q-{bucket.name}?wait=20")
    server.queue(f"q-{bucket.name}")
    queue.put("one")
    assert [each.body for each in queue.receive(64, lease=60)] == ["one"]


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("redis://:secret@host/0", "'redis' is not a kind of queue"),
        ("events", "'events' is not a kind of queue"),
        ("sqs://", "cannot name a queue"),
        ("sqs://a b", "cannot name a queue"),
        ("sqs://key:secret@events", "contains credentials"),
        ("sqs://events?wait=21", "0 to 20"),
        ("sqs://events?lease=5", "no option 'lease'"),
        ("sqs://events?dead_letters=", "cannot name a queue"),
    ],
)
def test_a_url_that_is_no_queue_is_refused_at_once(tmp_path: Path, url: str, words: str) -> None:
    with pytest.raises(needlepoint.UsageError, match=words) as caught:
        needlepoint.open(tmp_path, queue=url)
    assert "secret" not in str(caught.value)


def test_without_boto3_the_error_says_what_to_install(tmp_path: Path) -> None:
    code = (
        "import sys, importlib.util as u; find = u.find_spec\n"
        "u.find_spec = lambda name, *more: None if name == 'boto3' else find(name, *more)\n"
        f"import needlepoint; needlepoint.open({str(tmp_path)!r}, queue='sqs://events')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "UsageError: the queue sqs://events needs boto3" in done.stderr
    assert "pip install 'needlepoint[sqs]'" in done.stderr


def test_opening_a_lake_asks_no_queue_and_imports_no_boto3(tmp_path: Path) -> None:
    code = (
        f"import sys, needlepoint; needlepoint.open({str(tmp_path)!r}, queue='sqs://events')\n"
        "print('boto3' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


@pytest.mark.parametrize(
    ("change", "saying"),
    [
        ({}, "sqs://missing: there is no such queue"),
        ({"AWS_ENDPOINT_URL": "http://127.0.0.1:9"}, "it does not answer"),
        ({"AWS_ENDPOINT_URL": "nonsense"}, "its endpoint is not a URL"),
        ({"AWS_REGION": None, "AWS_DEFAULT_REGION": None}, "its region is not known"),
        ({"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": "", "AWS_EC2_METADATA_DISABLED": "true"}, "no credentials"),
    ],
)
def test_failures_say_what_to_do_and_no_secrets(server: Server, monkeypatch, tmp_path, change, saying: str) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name, value in change.items():
        monkeypatch.delenv(name, raising=False)
        if value is not None:
            monkeypatch.setenv(name, value)
    with pytest.raises(needlepoint.QueueError, match=saying) as caught:
        SqsQueue("sqs://123456789012/missing").put("x")
    assert caught.value.hint
    shown = "".join(traceback.format_exception(caught.value))
    for secret in (ACCESS_KEY, SECRET_KEY, "123456789012"):
        assert secret not in str(caught.value)
    assert ACCESS_KEY not in shown and SECRET_KEY not in shown


def test_refused_credentials_are_not_shown(server: Server, queue: str, monkeypatch) -> None:
    server.demand_credentials()
    try:
        with pytest.raises(needlepoint.QueueError, match="access is refused") as caught:
            SqsQueue(queue).put("x")
    finally:
        server.demand_credentials(demanded=False)
    shown = "".join(traceback.format_exception(caught.value))
    assert ACCESS_KEY not in shown and "Signature=" not in shown


def test_needle_follows_the_queue_of_its_variable(lake, bucket: Bucket, queue: str, monkeypatch) -> None:
    from click.testing import CliRunner

    from needlepoint.cli import main

    monkeypatch.setenv("NEEDLE_QUEUE", queue)
    key = "lake/product/year=2021/p1.parquet"
    bucket.put(key, parquet(products(1000, ROWS)))
    lake.queue.put(created(bucket, key, "other/x.parquet"))
    shown = CliRunner().invoke(main, ["--lake", str(lake.root), "status"]).output
    assert "about 1 event waiting (`needle indexer` handles them), 0 set aside" in shown
    done = CliRunner().invoke(main, ["--lake", str(lake.root), "indexer", "--once"])
    assert (done.exit_code, done.output) == (0, f"{bucket.url(key)} and 1 more: 1 indexed, 1 of no table\n")
