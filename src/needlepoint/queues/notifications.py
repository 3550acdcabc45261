"""Parse a message of the queue: an event of our own, or a notification of S3 about objects.

    {"Records": [{"eventSource": "aws:s3", "eventName": "ObjectCreated:Put",
                  "s3": {"bucket": {"name": "lake"}, "object": {"key": "product/a+b.parquet", …}}}]}
    {"Type": "Notification", "Message": "{\\"Records\\": …}"}                      the same by way of SNS
    {"source": "aws.s3", "detail-type": "Object Created",
     "detail": {"bucket": {"name": "lake"}, "object": {"key": "product/a b.parquet", …}}}      by way of EventBridge
    {"Service": "Amazon S3", "Event": "s3:TestEvent", …}                        when notifications are set up

Notifications arrive late, twice and in any order. So they only name objects, whose current state is looked up: ETag,
size and `sequencer` of a notification are not used.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote_plus

from needlepoint.queues.events import BadEvent, Event, json_object

# Other events, such as ObjectTagging, do not change the bytes.
_CHANGES = ("ObjectCreated:", "ObjectRemoved:", "LifecycleExpiration:")
_BRIDGED_CHANGES = ("Object Created", "Object Deleted")


@dataclass(frozen=True, slots=True)
class ObjectNotification:
    """Objects, as `s3://bucket/key`, that were created, replaced or removed."""

    objects: tuple[str, ...]

    def __str__(self) -> str:
        if not self.objects:
            return "an empty notification"
        more = len(self.objects) - 1
        return f"{self.objects[0]} and {more:,} more" if more else self.objects[0]


def parse_message(body: str) -> Event | ObjectNotification:
    """An event or a notification; BadEvent when it is neither.

    >>> parse_message('{"table": "product", "batch": "b1"}')
    Event(table='product', batch='b1', added=(), removed=(), at=0.0)
    >>> parse_message('{"source": "aws.s3", "detail-type": "Object Deleted",'
    ...       ' "detail": {"bucket": {"name": "lake"}, "object": {"key": "a.parquet"}}}')
    ObjectNotification(objects=('s3://lake/a.parquet',))
    """
    fields = json_object(body)
    if fields.get("Type") == "Notification" and isinstance(fields.get("Message"), str):
        fields = json_object(fields["Message"])
    if "Records" in fields:
        return ObjectNotification(tuple(dict.fromkeys(_recorded(fields["Records"]))))
    if fields.get("source") == "aws.s3":
        changed = fields.get("detail-type") in _BRIDGED_CHANGES
        return ObjectNotification((_url(fields.get("detail")),) if changed else ())
    if fields.get("Event") == "s3:TestEvent":
        return ObjectNotification(())
    return Event.from_fields(fields)


def _recorded(records: Any) -> Iterator[str]:
    if not isinstance(records, list):
        raise BadEvent("'Records' of the notification is not a list.")
    for record in records:
        name = record.get("eventName") if isinstance(record, dict) else None
        # AWS says aws:s3, MinIO minio:s3, Ceph ceph:s3.
        if not isinstance(name, str) or not str(record.get("eventSource")).endswith(":s3"):
            raise BadEvent("a record of the notification is not from S3.")
        if name.removeprefix("s3:").startswith(_CHANGES):
            yield _url(record.get("s3"), encoded=True)


def _url(detail: Any, *, encoded: bool = False) -> str:
    """Keys are form-encoded in notifications of S3, and plain in those of EventBridge."""
    try:
        bucket, key = detail["bucket"]["name"], detail["object"]["key"]
    except (KeyError, TypeError):
        bucket = key = None
    if not isinstance(bucket, str) or not isinstance(key, str):
        raise BadEvent("the notification names no bucket and key.")
    return f"s3://{bucket}/{unquote_plus(key) if encoded else key}"
