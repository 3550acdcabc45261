"""Where a lake and its tables are: directories, or places in a bucket."""

from __future__ import annotations

from pathlib import Path

from needlepoint.errors import UsageError
from needlepoint.objects import is_nameable, is_url


def lake_root(root: str | Path) -> Path | str:
    """A directory, or the URL of a place in a bucket."""
    return _checked_url(root) if isinstance(root, str) and is_url(root) else Path(root).expanduser().resolve()


def table_location(root: Path | str, name: str, location: str | Path | None = None) -> str:
    """The location of a table: the one given, or the directory of its name in the lake."""
    if isinstance(location, str) and is_url(location):
        return _checked_url(location)
    place = f"{root}/{name}" if location is None else str(Path(location).expanduser().resolve())
    if not is_url(place) and not is_nameable(place.removeprefix("/")):
        raise UsageError(
            f"{place!r} has a control character or is not UTF-8: some readers cannot name it.",
            hint="Give the directory another name.",
        )
    return place


def _checked_url(url: str) -> str:
    from needlepoint.objects.remote import checked_url

    return checked_url(url)
