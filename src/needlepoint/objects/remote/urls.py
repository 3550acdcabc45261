"""URLs of objects, and the endpoint that answers for them."""

from __future__ import annotations

import os

from needlepoint.errors import UsageError
from needlepoint.objects.base import is_nameable

SCHEME = "s3://"


def split_url(url: str) -> tuple[str, str]:
    """Bucket and key of a URL."""
    bucket, _, key = url.removeprefix(SCHEME).partition("/")
    return bucket, key


def checked_url(url: str) -> str:
    """The URL as tables keep it, without a slash at its end; UsageError when it is not one of an S3 bucket."""
    plain = url.rstrip("/")
    refuse_credentials(split_url(plain.partition("://")[2])[0])
    if not plain.startswith(SCHEME) or not split_url(plain)[0]:
        raise UsageError(
            f"'{url}' is not a location for a lake or a table.", hint="Name a directory, or s3://bucket/prefix."
        )
    if not is_nameable(plain.removeprefix(SCHEME)):
        raise UsageError(
            f"{url!r} has an empty or relative part, or a control character.", hint="Name it as s3://bucket/prefix."
        )
    return plain


def refuse_credentials(bucket: str) -> None:
    """UsageError, without showing them, when the URL has credentials where the bucket should be."""
    if "@" in bucket or ":" in bucket:
        raise UsageError(
            "the URL contains credentials, but URLs are stored and shown.",
            hint="Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, and name it as s3://bucket/prefix.",
        )


def endpoint() -> tuple[str | None, bool]:
    """The endpoint of S3 if not AWS, and whether HTTP without TLS is allowed."""
    found = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or None
    if found is not None and not found.startswith(("http://", "https://")):
        # The driver would panic.
        raise UsageError("AWS_ENDPOINT_URL is not a URL.", hint="For example: https://minio.example.com:9000.")
    allowed = os.environ.get("AWS_ALLOW_HTTP", "").lower() in ("1", "true")
    return found, allowed or (found or "").startswith("http://")
