"""Files whose size and modification time are those in the registry, while the inode or the change time differs.

Either the file was replaced and its modification time kept, or its content is unchanged: after a chmod, a hard link, a
restored backup. A checksum of the content decides (`LocalFile.sample`): it takes some milliseconds, and indexing the
file again much longer. A file that is too large for a checksum counts as changed. The inode alone does not decide:
inodes are reused.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor

from needlepoint.errors import NeedlepointError, StoreError
from needlepoint.objects import MOST_SUMMED, Identity, is_url, open_object
from needlepoint.tables.model import File, Table
from needlepoint.tables.registry.registry import Registry

# Checksums computed at once: they wait for the disk.
AT_ONCE = 8


def settle(registry: Registry, table: Table, known: Mapping[str, File], now: Mapping[str, Identity | None]) -> bool:
    """Recognise files with unchanged content; returns whether there were any. The others have changed.

    `now` are the present identities by path, None for a missing file. A file that cannot be recorded as unchanged
    counts as changed: it is scanned.
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
    # Without a card nothing is known of a file that new content could contradict.
    recognised |= {id: identity for id, (path, identity) in doubtful.items() if not known[path].has_card}
    if not recognised:
        return False
    with contextlib.suppress(StoreError):  # a read-only store
        registry.files.recognise(recognised)
        return True
    return False


def note_unsampled(registry: Registry, table: Table, known: Iterable[File]) -> None:
    """Record checksums of files that an older version indexed, which identified files by size and modification time."""
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
    """Checksums by id, of files that have the given identity; `now` receives the full identity of each."""

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
            return id, ""  # reading it reports why

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return {id: taken for id, taken in pool.map(sample, files) if taken}
