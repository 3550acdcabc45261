"""The present identities of files, without a listing where they are few."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from needlepoint.objects import Identity, identify_all, is_url

# Up to so many objects are requested one by one; for more, the location is listed.
MOST_QUESTIONS = 256


def identities(location: str, paths: Sequence[str], held: Mapping[str, Identity]) -> dict[str, Identity] | None:
    """The identities of files of a log, by path relative to the location; None when one is missing.

    A log never uses a path twice, so what is `held` is still right; reading the file would show if not.
    """
    known = {**those_there(location, [path for path in paths if path not in held]), **held}
    return {path: known[path] for path in paths} if known.keys() >= set(paths) else None


def those_there(location: str, paths: Sequence[str]) -> dict[str, Identity]:
    """The present identities of those files that exist, by path relative to the location."""
    found: Mapping[str, Identity | None]
    if is_url(location) and len(paths) > MOST_QUESTIONS:
        from needlepoint.objects.remote import list_objects

        listed = dict(list_objects(location))
        found = {path: listed.get(path) for path in paths}
    else:
        found = dict(zip(paths, identify_all([f"{location}/{path}" for path in paths]), strict=True))
    return {path: identity for path, identity in found.items() if identity is not None}
