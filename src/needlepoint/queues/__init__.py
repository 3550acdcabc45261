"""Queues that carry events from writers to indexers, at least once.

queue          the interface of a queue, and the local one in SQLite
events         a batch added these files to a table and removed those
notifications  parses messages: our events, and notifications of S3
postgres/      PostgreSQL as the queue
sqs/           SQS as the queue
"""

from needlepoint.queues.events import Event
from needlepoint.queues.notifications import ObjectNotification, parse_message
from needlepoint.queues.queue import LocalQueue, Message, Queue

__all__ = [
    "Event",
    "LocalQueue",
    "Message",
    "ObjectNotification",
    "Queue",
    "parse_message",
]
