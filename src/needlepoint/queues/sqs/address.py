"""Parse the URL of an SQS queue.

sqs://events                        the queue of that name, in the account of the credentials
sqs://123456789012/events           a queue of another account, which lets this one in
https://sqs.eu-central-1.amazonaws.com/123456789012/events      as the console shows it

?region=eu-central-1                else AWS_REGION
?dead_letters=events-dead           the dead-letter queue; else the target of the queue's redrive policy; else
                                    the queue `events-aside`
?wait=20                            seconds that a receive may wait for messages; else 2
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import parse_qsl, urlsplit

from needlepoint.errors import UsageError

LONGEST_WAIT = 20  # of SQS

_NAME = re.compile(r"(?=.{1,80}$)[A-Za-z0-9_-]+(\.fifo)?")
_AWS_HOST = re.compile(r"sqs\.([a-z0-9-]+)\.amazonaws\.com(\.cn)?")
_FORMS = "Name it as sqs://name, sqs://account/name or by its https URL; docs/settings.md has the rest."


@dataclass(frozen=True, slots=True)
class SqsAddress:
    """`url` when the queue was named by it; `endpoint` when that URL is not one of AWS. Empty is unknown."""

    name: str
    account: str = ""
    region: str = ""
    url: str = ""
    endpoint: str = ""
    dead_letters: str = ""
    wait: int = 2

    @property
    def shown(self) -> str:
        """For messages: without the account."""
        return f"sqs://{self.name}"

    @property
    def aside_name(self) -> str:
        """
        >>> SqsAddress("events").aside_name, SqsAddress("events.fifo").aside_name
        ('events-aside', 'events-aside.fifo')
        """
        plain = self.name.removesuffix(".fifo")
        return f"{plain}-aside{self.name[len(plain) :]}"


def parse_address(text: str) -> SqsAddress:
    """
    >>> parse_address("sqs://events?wait=20")
    SqsAddress(name='events', account='', region='', url='', endpoint='', dead_letters='', wait=20)
    >>> found = parse_address("https://sqs.eu-central-1.amazonaws.com/123456789012/events")
    >>> found.name, found.account, found.region, found.endpoint
    ('events', '123456789012', 'eu-central-1', '')
    """
    parts = urlsplit(text)
    if parts.scheme not in ("sqs", "https", "http"):
        # Of other URLs not even the host is shown: it may be a misplaced password.
        raise UsageError(f"'{parts.scheme or text}' is not a kind of queue.", hint=_FORMS)
    if parts.username is not None:
        raise UsageError(
            "the URL of the queue contains credentials.",
            hint="Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.",
        )
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    for option in options.keys() - {"region", "dead_letters", "wait"}:
        raise UsageError(f"the queue has no option '{option}'.", hint="There are: dead_letters, region, wait.")
    path = f"{parts.netloc}{parts.path}" if parts.scheme == "sqs" else parts.path
    account, _, name = path.strip("/").rpartition("/")
    for each in (name, options.get("dead_letters", name)):
        if not _NAME.fullmatch(each):
            raise UsageError(f"'{each}' cannot name a queue.", hint=_FORMS)
    found = _AWS_HOST.fullmatch(parts.netloc)
    by_url = parts.scheme != "sqs"
    return SqsAddress(
        name,
        account,
        options.get("region") or (found[1] if found else ""),
        f"{parts.scheme}://{parts.netloc}{parts.path}" if by_url else "",
        f"{parts.scheme}://{parts.netloc}" if by_url and not found else "",
        options.get("dead_letters", ""),
        _wait(options.get("wait", "2")),
    )


def _wait(text: str) -> int:
    if not re.fullmatch("[0-9]{1,2}", text) or int(text) > LONGEST_WAIT:
        problem = f"wait={text} is not a number of seconds from 0 to {LONGEST_WAIT}."
        raise UsageError(problem, hint="See docs/settings.md.")
    return int(text)
