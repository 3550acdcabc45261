"""Files that seem to be those the registry knows, and of which the file system says that something changed.

Size and modification time are the same; the inode or the time of the last change is not. Either the file was replaced
and its modification time kept, or its content is what it was: after a chmod, a hard link, a restored backup. A checksum
of the content tells (`LocalFile.sample`): it takes some milliseconds, and indexing the file again much longer. A file
of which none is taken, since it is too large, counts as changed. The inode alone does not tell: it is given again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor

from needlepoint.errors import NeedlepointError, StoreError
from needlepoint.objects import Identity, is_url, open_object
from needlepoint.objects.local import MOST_SUMMED
from needlepoint.tables.model import File, Table
from needlepoint.tables.registry.registry import Registry

# Samples that are taken at once: they wait for the disk.
AT_ONCE = 8


def settle(registry: Registry, table: Table, known: Mapping[str, File], now: Mapping[str, Identity | None]) -> bool:
    """Recognise files that still hold what they did; whether there were any. The others have changed.

    `now` are files as they are, by path, None for nothing. What cannot be noted has changed too: it is scanned.
    """
    if is_url(table.location):
        return False
    doubtful: dict[int, tuple[str, Identity]] = {}
    for path, identity in now.items():
        file = known.get(path)
        if file is None or file.id is None or identity is None or file.identity == identity:
            continue
        if file.identity.seems(identity) and identity.size <= MOST_SUMMED:
            doubtful[file.id] = (path, identity)
    if not doubtful:
        return False
    samples = registry.files.samples([*doubtful])
    taken = _samples(table, ((id, *doubtful[id]) for id in samples))
    recognised = {id: doubtful[id][1] for id, sample in taken.items() if sample == samples[id]}
    # Of a file without a card nothing is known that another content could belie.
    recognised |= {id: identity for id, (path, identity) in doubtful.items() if not known[path].has_card}
    if not recognised:
        return False
    with contextlib.suppress(StoreError):  # a store that cannot be written to
        registry.files.recognise(recognised)
        return True
    return False


def note_unsampled(registry: Registry, table: Table, known: Iterable[File]) -> None:
    """Take samples of files that an older version indexed, which knew files by size and modification time alone."""
    if is_url(table.location):
        return
    lacking = [
        (file.id, file.path, file.identity)
        for file in known
        if file.has_card and file.id is not None and not file.identity.ctime_ns and not file.identity.etag
    ]
    now: dict[int, Identity] = {}
    taken = _samples(table, lacking, now)
    if taken:
        registry.files.recognise({id: now[id] for id in taken}, taken)


def _samples(
    table: Table, files: Iterable[tuple[int, str, Identity]], now: dict[int, Identity] | None = None
) -> dict[int, str]:
    """By id, of files that have the identity given; `now` gets all that is known of each."""

    def sample(file: tuple[int, str, Identity]) -> tuple[int, str]:
        id, path, identity = file
        try:
            with open_object(f"{table.location}/{path}") as opened:
                taken = opened.sample()
                opened.check_unchanged(opened.identity)
                if opened.identity != identity:
                    return id, ""
                if now is not None:
                    now[id] = opened.identity
                return id, taken
        except (OSError, NeedlepointError):
            return id, ""  # whoever reads it says why

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return {id: taken for id, taken in pool.map(sample, files) if taken}
