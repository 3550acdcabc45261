"""What files are now, without listing them all where they are few."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from needlepoint.objects import Identity, identify_all, is_url

# Up to so many objects are asked for one by one; for more, all that lie in the location are listed.
MOST_QUESTIONS = 256


def identities(location: str, paths: Sequence[str], held: Mapping[str, Identity]) -> dict[str, Identity] | None:
    """Of files of a log, by path relative to the location; None when one is not there.

    Logs never give one path to two files: what is `held` still stands, and reading it would show if not.
    """
    known = {**those_there(location, [path for path in paths if path not in held]), **held}
    return {path: known[path] for path in paths} if known.keys() >= set(paths) else None


def those_there(location: str, paths: Sequence[str]) -> dict[str, Identity]:
    """The identities of files now, by path relative to the location, of those that are there."""
    found: Mapping[str, Identity | None]
    if is_url(location) and len(paths) > MOST_QUESTIONS:
        from needlepoint.objects.remote import list_objects

        listed = dict(list_objects(location))
        found = {path: listed.get(path) for path in paths}
    else:
        found = dict(zip(paths, identify_all([f"{location}/{path}" for path in paths]), strict=True))
    return {path: identity for path, identity in found.items() if identity is not None}
