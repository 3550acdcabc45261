"""Translate errors of SQS.

Messages of the driver contain key ids, account numbers and addresses: only the error code is passed on.
"""

from __future__ import annotations

import re

from needlepoint.errors import QueueError

_NOT_ACCEPTED = (
    r"InvalidClientTokenId|SignatureDoesNotMatch|UnrecognizedClient|ExpiredToken|InvalidAccessKeyId|"
    r"IncompleteSignature|InvalidSecurity|AuthFailure|NotAuthorized|TokenRefresh|401"
)
_RIGHTS = (
    "The indexer needs sqs:ReceiveMessage, DeleteMessage, ChangeMessageVisibility, GetQueueUrl and GetQueueAttributes, "
    "and SendMessage for dead letters; a writer SendMessage and GetQueueUrl."
)
# Pattern, meaning, what to do: the first match counts.
_MEANINGS = (
    (
        r"NonExistentQueue|QueueDoesNotExist",
        "there is no such queue",
        "Create it, or check its name, AWS_REGION and AWS_ENDPOINT_URL.",
    ),
    (
        r"NoCredentials|PartialCredentials|CredentialRetrieval|ProfileNotFound|MissingAuthenticationToken",
        "there are no credentials for it",
        "Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.",
    ),
    (
        _NOT_ACCEPTED,
        "the credentials are not accepted",
        "Check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN.",
    ),
    (r"AccessDenied|OptInRequired|403", "access is refused", _RIGHTS),
    (r"NoRegion|InvalidRegion", "its region is not known", "Set AWS_REGION, or add ?region=… to its URL."),
    (r"InvalidEndpoint", "its endpoint is not a URL", "Check AWS_ENDPOINT_URL_SQS and AWS_ENDPOINT_URL."),
    (r"MessageTooLong|InvalidMessageContents|TooLarge", "it does not take the message", "SQS takes 256 KiB of text."),
    (r"Throttl|OverLimit|Unavailable|Internal|\b5\d\d\b", "it is overloaded or broken", "Try again later."),
    (
        r"Connect|Timeout|Endpoint|HTTPClient|SSL|Proxy|ResponseStream|Closed",
        "it does not answer",
        "Check AWS_ENDPOINT_URL_SQS, AWS_ENDPOINT_URL and the network.",
    ),
)


def queue_error(where: str, code: str) -> QueueError:
    """The error for a code of SQS, or for the name of an exception of its driver.

    >>> print(queue_error("sqs://events", "AWS.SimpleQueueService.NonExistentQueue").message)
    sqs://events: there is no such queue (NonExistentQueue).
    """
    plain = re.sub(r"\W", "", code.rpartition(".")[2])[:60] or "no code"
    for pattern, problem, hint in _MEANINGS:
        if re.search(pattern, plain):
            return QueueError(where, plain, problem, hint=hint)
    return QueueError(where, plain, "it refuses", hint="Check the queue's settings.")
