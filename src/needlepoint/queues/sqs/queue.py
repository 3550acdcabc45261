"""SQS and compatible services as the queue; through boto3, which is an extra.

A lease is SQS's visibility timeout. Messages that cannot be handled go to a dead-letter queue, with the reason
as an attribute. Credentials, region and endpoint come from the usual AWS_* variables. Counts are
approximate.
"""

from __future__ import annotations

import functools
import importlib.util
import json
import math
import os
import re
import uuid
from collections.abc import Iterator
from typing import Any

from needlepoint.errors import QueueError, UsageError
from needlepoint.queues.queue import MOST_SHOWN, DeadLetter, Message
from needlepoint.queues.sqs.address import parse_address
from needlepoint.queues.sqs.errors import queue_error

AT_ONCE = 10  # the most messages that one request of SQS brings
LONGEST_LEASE = 12 * 3600
LONGEST_KEPT = 14 * 24 * 3600
LONGEST_REASON = 1000
# Seconds for which dead letters that are being listed are invisible to others.
SHOWING = 30

# The lease has ended: the message is delivered again, and receivers expect that.
_LEASE_ENDED = frozenset({"ReceiptHandleIsInvalid", "InvalidParameterValue", "MessageNotInflight"})
_NO_QUEUE = frozenset({"NonExistentQueue", "QueueDoesNotExist"})
_COUNTS = ("ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible", "ApproximateNumberOfMessagesDelayed")
# SQS accepts the characters of XML.
_NOT_TAKEN = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class SqsQueue:
    approximate = True

    def __init__(self, url: str) -> None:
        """Sends no request: queries of a lake need no queue. `address.py` lists the forms of the URL."""
        self._address = parse_address(url)
        if importlib.util.find_spec("boto3") is None:
            raise UsageError(
                f"the queue {self._address.shown} needs boto3, which is not installed.",
                hint="Install it: pip install 'needlepoint[sqs]'.",
            )

    @property
    def shown(self) -> str:
        return self._address.shown

    def size(self) -> int | None:
        return None

    def oldest(self) -> float | None:
        """SQS does not say: its metric of this is in CloudWatch."""
        return None

    def put(self, body: str) -> None:
        self._send(self._url, self._address.name, body)

    def receive(self, limit: int, lease: float) -> list[Message]:
        found: dict[str, Message] = {}
        while len(found) < limit:
            try:
                # Only a request that waits reaches all servers: the first request decides whether there are messages.
                wait = 0 if found else self._address.wait
                answers = self._receive(self._url, limit - len(found), _seconds(lease), wait)
            except QueueError:
                if not found:
                    raise
                break  # messages already received are handled now
            fresh = [each for each in answers if each["MessageId"] not in found]
            for each in answers:
                attempts = int(each.get("Attributes", {}).get("ApproximateReceiveCount", 1))
                found[each["MessageId"]] = Message(each["MessageId"], each["Body"], attempts, each["ReceiptHandle"])
            if not fresh:
                break
        return list(found.values())

    def acknowledge(self, message: Message) -> None:
        self._change_lease("delete_message", message)

    def release(self, message: Message) -> None:
        self._change_lease("change_message_visibility", message, VisibilityTimeout=0)

    def renew(self, message: Message, lease: float) -> None:
        """SQS ends a lease after twelve hours, however often it is renewed."""
        self._change_lease("change_message_visibility", message, VisibilityTimeout=_seconds(lease))

    def set_aside(self, message: Message, reason: str) -> None:
        """A crash between the two requests leaves the message in both queues, and it is set aside again."""
        plain = _NOT_TAKEN.sub("?", reason)[:LONGEST_REASON] or "?"
        attributes = {"reason": {"DataType": "String", "StringValue": plain}}
        self._send(self._made_aside_url(), self._aside_queue[0], message.body, MessageAttributes=attributes)
        self.acknowledge(message)

    def waiting(self) -> int:
        return self._count(self._url)

    def aside_count(self) -> int:
        url = self._aside_url()
        return 0 if url is None else self._count(url)

    def aside(self) -> list[DeadLetter]:
        url = self._aside_url()
        if url is None:
            return []
        found: dict[str, dict[str, Any]] = {}
        while len(found) < MOST_SHOWN:
            before = len(found)
            answers = self._receive(url, AT_ONCE, SHOWING, min(1, self._address.wait))
            found |= {each["MessageId"]: each for each in answers}
            if len(found) == before:
                break
        for some in _tens([each["ReceiptHandle"] for each in found.values()]):
            entries = [{"Id": str(n), "ReceiptHandle": each, "VisibilityTimeout": 0} for n, each in enumerate(some)]
            self._ask("change_message_visibility_batch", QueueUrl=url, Entries=entries)
        return [DeadLetter(id, each["Body"], _reason(each)) for id, each in found.items()]

    def close(self) -> None:
        if "_client" in self.__dict__:
            self._client.close()

    # Requests

    @functools.cached_property
    def _client(self) -> Any:
        import boto3
        from botocore.config import Config

        address = self._address
        config = Config(
            connect_timeout=5, read_timeout=address.wait + 30, retries={"mode": "standard", "total_max_attempts": 5}
        )
        # boto3 looks at AWS_DEFAULT_REGION only.
        region = address.region or os.environ.get("AWS_REGION") or None
        # A separate session: threads must not share that of the module.
        session = boto3.session.Session()
        return session.client("sqs", region_name=region, endpoint_url=address.endpoint or None, config=config)

    def _ask(self, operation: str, **arguments: Any) -> dict[str, Any]:
        """Translate errors of boto3 to QueueError, without the original as the cause."""
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            answer: dict[str, Any] = getattr(self._client, operation)(**arguments)
        except ClientError as error:
            raise queue_error(self._address.shown, str(error.response.get("Error", {}).get("Code", ""))) from None
        except BotoCoreError as error:
            raise queue_error(self._address.shown, type(error).__name__) from None
        except ValueError:
            raise queue_error(self._address.shown, "InvalidEndpoint") from None
        return answer

    def _send(self, url: str, name: str, body: str, **arguments: Any) -> None:
        if name.endswith(".fifo"):
            # Messages of one group wait for each other; here each is a group of its own, and none is a repetition.
            unique = uuid.uuid4().hex
            arguments |= {"MessageGroupId": unique, "MessageDeduplicationId": unique}
        self._ask("send_message", QueueUrl=url, MessageBody=body, **arguments)

    def _receive(self, url: str, limit: int, lease: int, wait: int) -> list[dict[str, Any]]:
        answer = self._ask(
            "receive_message",
            QueueUrl=url,
            MaxNumberOfMessages=min(AT_ONCE, limit),
            VisibilityTimeout=lease,
            WaitTimeSeconds=wait,
            MessageSystemAttributeNames=["ApproximateReceiveCount"],
            MessageAttributeNames=["reason"],
        )
        return list(answer.get("Messages", ()))

    def _change_lease(self, operation: str, message: Message, **arguments: Any) -> None:
        try:
            self._ask(operation, QueueUrl=self._url, ReceiptHandle=message.receipt, **arguments)
        except QueueError as error:
            if error.code not in _LEASE_ENDED:
                raise

    def _count(self, url: str) -> int:
        answer = self._ask("get_queue_attributes", QueueUrl=url, AttributeNames=list(_COUNTS))
        return sum(int(answer["Attributes"].get(name, 0)) for name in _COUNTS)

    # Addresses

    @functools.cached_property
    def _url(self) -> str:
        return self._address.url or self._url_of(self._address.name, self._address.account)

    def _url_of(self, name: str, account: str) -> str:
        owner = {"QueueOwnerAWSAccountId": account} if account else {}
        return str(self._ask("get_queue_url", QueueName=name, **owner)["QueueUrl"])

    @functools.cached_property
    def _aside_queue(self) -> tuple[str, str]:
        """Name and account of the dead-letter queue."""
        address = self._address
        if address.dead_letters:
            return address.dead_letters, address.account
        answer = self._ask("get_queue_attributes", QueueUrl=self._url, AttributeNames=["RedrivePolicy"])
        policy = answer.get("Attributes", {}).get("RedrivePolicy")
        if policy:
            # arn:aws:sqs:region:account:name
            account, name = str(json.loads(policy)["deadLetterTargetArn"]).split(":")[-2:]
            return name, account
        return address.aside_name, ""

    def _aside_url(self) -> str | None:
        """None when nothing was ever set aside."""
        name, account = self._aside_queue
        try:
            return self._url_of(name, account)
        except QueueError as error:
            if error.code in _NO_QUEUE and name == self._address.aside_name:
                return None
            raise queue_error(f"sqs://{name}", error.code) from None

    def _made_aside_url(self) -> str:
        found = self._aside_url()
        if found is not None:
            return found
        name = self._aside_queue[0]
        attributes = {"MessageRetentionPeriod": str(LONGEST_KEPT)}
        if name.endswith(".fifo"):
            attributes["FifoQueue"] = "true"
        return str(self._ask("create_queue", QueueName=name, Attributes=attributes)["QueueUrl"])


def _seconds(lease: float) -> int:
    return min(math.ceil(lease), LONGEST_LEASE)


def _reason(message: dict[str, Any]) -> str:
    found = message.get("MessageAttributes", {}).get("reason", {}).get("StringValue")
    return str(found or "SQS set it aside: it was received too often.")


def _tens(items: list[str]) -> Iterator[list[str]]:
    for start in range(0, len(items), AT_ONCE):
        yield items[start : start + AT_ONCE]
