"""Where a lake and its tables are: directories, or places in a bucket."""

from __future__ import annotations

import re
from pathlib import Path

from needlepoint.errors import UsageError
from needlepoint.objects import is_nameable, is_url

_MISSPELT_URL = re.compile(r"s3a?(?::/|//)(?=[^/])", re.IGNORECASE)


def lake_root(root: str | Path) -> Path | str:
    """A directory, or the URL of a place in a bucket."""
    return _checked_url(root) if isinstance(root, str) and is_url(root) else _directory(root)


def _directory(location: str | Path) -> Path:
    """
    >>> _directory("s3//bucket/lake")
    Traceback (most recent call last):
        ...
    needlepoint.errors.UsageError: 's3//bucket/lake' is neither a directory nor a URL. Did you mean 's3://bucket/lake'?
    """
    if isinstance(location, str) and (found := _MISSPELT_URL.match(location)):
        meant = f"s3://{location[found.end() :]}"
        raise UsageError(f"'{location}' is neither a directory nor a URL.", hint=f"Did you mean '{meant}'?")
    return Path(location).expanduser().resolve()


def table_location(root: Path | str, name: str, location: str | Path | None = None) -> str:
    """The location of a table: the one given, or the directory of its name in the lake."""
    if isinstance(location, str) and is_url(location):
        return _checked_url(location)
    place = f"{root}/{name}" if location is None else str(_directory(location))
    if not is_url(place) and not is_nameable(place.removeprefix("/")):
        raise UsageError(
            f"{place!r} has a control character or is not UTF-8: some readers cannot name it.",
            hint="Give the directory another name.",
        )
    return place


def _checked_url(url: str) -> str:
    from needlepoint.objects.remote import checked_url

    return checked_url(url)
