"""What the files that a log names are now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from needlepoint.objects import Identity, identify_all, is_url

# Up to so many objects are asked for one by one; for more, all that lie in the location are listed.
MOST_QUESTIONS = 256


def identities(location: str, paths: Sequence[str], held: Mapping[str, Identity]) -> dict[str, Identity] | None:
    """Of files of a log, by path relative to the location; None when one is not there.

    Logs never give one path to two files: what is `held` still stands, and reading it would show if not.
    """
    missing = [path for path in paths if path not in held]
    found: Mapping[str, Identity | None]
    if is_url(location) and len(missing) > MOST_QUESTIONS:
        from needlepoint.objects.remote import list_objects

        found = dict(list_objects(location))
    else:
        found = dict(zip(missing, identify_all([f"{location}/{path}" for path in missing]), strict=True))
    known = {path: held.get(path) or found.get(path) for path in paths}
    complete = {path: identity for path, identity in known.items() if identity is not None}
    return complete if len(complete) == len(known) else None
