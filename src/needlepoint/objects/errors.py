"""Translate errors of an object store.

Messages of the driver contain request bodies, key ids and signatures: only the error code is passed on.
"""

from __future__ import annotations

import errno
import re

from needlepoint.errors import FileError, ObjectStoreError

_CODE = re.compile(r"<Code>(\w+)</Code>")
_STATUS = re.compile(r"status code: (\d+)|\bstatus: (\d+)")

# A message can contain anything, such as values of a query: only this many characters are searched. A path is shorter.
LONGEST_READ = 5000
_LOCAL = re.compile(r"LocalFileSystem error: [^/]*(/.*?): ([^:]+?) \(os error (\d+)\)", re.DOTALL)
_INVALID_PATH = re.compile(r'Path "(.*?)"(?:: Encountered illegal| contained empty)', re.DOTALL)

_BY_OBJECT_STORE = re.compile(r"Object Store error|ObjectStore\(|Generic S3 error|Error performing [A-Z]+ ")
_REFUSED = "access is refused"
# Pattern, meaning, what to do: the first match counts.
_MEANINGS = (
    (r"NoSuchBucket", "there is no such bucket", "Check its name, AWS_REGION and AWS_ENDPOINT_URL."),
    (
        r"169\.254\.|MissingCredential|CredentialsError",
        "there are no credentials for it",
        "Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.",
    ),
    (
        r"InvalidAccessKeyId|SignatureDoesNotMatch|InvalidToken|ExpiredToken|status(?: code)?: 401",
        "the credentials are not accepted",
        "Check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN.",
    ),
    (
        r"AccessDenied|status(?: code)?: 403",
        _REFUSED,
        "Check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and the rights they have on the bucket.",
    ),
    (r"redirect|PermanentRedirect|status(?: code)?: 301", "the bucket is in another region", "Set AWS_REGION."),
    (r"AllowHttp|URL scheme is not allowed", "its endpoint is not encrypted", "Set AWS_ALLOW_HTTP=true."),
    (r"SlowDown|status(?: code)?: 5\d\d", "it is overloaded or broken", "Try again later."),
    (r"HTTP error|error sending request|timed? ?out", "it does not answer", "Check AWS_ENDPOINT_URL and the network."),
    (r"status(?: code)?: 404", "there is no such bucket or object", "Check the name and AWS_ENDPOINT_URL."),
)


def local_failure(text: str) -> FileError | None:
    """The error for a message of DataFusion about a local file that it cannot open.

    >>> print(local_failure("Generic LocalFileSystem error: Unable to open file /a: Too many open files (os error 24)"))
    /a: it cannot be read: too many open files. Allow more open files: `ulimit -n 4096`.
    """
    found = _LOCAL.search(text[:LONGEST_READ])
    if found is None:
        return None
    more = int(found[3]) in (errno.EMFILE, errno.ENFILE)
    hint = "Allow more open files: `ulimit -n 4096`." if more else "Check its permissions, and the disk."
    return FileError(found[1], f"it cannot be read: {found[2].lower()}", hint=hint)


def is_by_object_store(text: str) -> bool:
    """Whether a message of DataFusion comes from an object store."""
    return _BY_OBJECT_STORE.search(text) is not None


def invalid_path(text: str) -> str:
    """The path that a driver cannot represent, if its message names one."""
    found = _INVALID_PATH.search(text[:LONGEST_READ])
    return found[1] if found else ""


def object_store_error(where: str, text: str) -> ObjectStoreError:
    """The error for a message of a driver about the object or bucket `where`.

    >>> print(object_store_error("s3://lake/a", "Generic S3 error: status code: 403 <Code>AccessDenied</Code>").message)
    s3://lake/a: access is refused (AccessDenied).
    """
    if named := invalid_path(text):
        shown = named.encode("unicode_escape").decode()
        problem = f"the name '{shown}' has an empty part, `.`, `..` or a control character, and cannot be read"
        return ObjectStoreError(where, problem, hint="Give it another name.")
    code = _CODE.search(text)
    status = _STATUS.search(text)
    detail = code[1] if code else f"status {status[1] or status[2]}" if status else ""
    for pattern, problem, hint in _MEANINGS:
        if re.search(pattern, text):
            shown, is_refused = f"{problem} ({detail})" if detail else problem, problem == _REFUSED
            return ObjectStoreError(where, shown, hint=hint, is_refused=is_refused)
    return ObjectStoreError(where, f"the object store fails ({detail or 'no reason given'})", hint="Try again later.")
