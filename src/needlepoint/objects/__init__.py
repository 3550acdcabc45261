"""The bytes of a lake: files and objects, read by range.

Callers read ranges and share no cursor, so the same calls work on a local file and on an object store.

    base       open objects, and the identity of a version
    cursor     an open object as a Python file
    ranges     merges many ranges into few requests
    local      files
    held       a version of a file that stays readable when it is replaced
    remote/    objects in S3
    errors     errors of an object store, translated
    opening    opens a path or URL as one or the other
    replacing  replaces a version by a new one, atomically
    moving     moves to a final place, and removes
    conditional  compare-and-swap of a small file or object
"""

from needlepoint.objects.base import Identity, OpenObject, is_nameable, is_url
from needlepoint.objects.conditional import Version, put_if_unchanged, read_if_changed
from needlepoint.objects.cursor import Cursor
from needlepoint.objects.errors import is_by_object_store, local_failure, object_store_error
from needlepoint.objects.held import HeldFile
from needlepoint.objects.local import MOST_SUMMED, LocalFile
from needlepoint.objects.moving import last_touched, move, remove, remove_directory, sync_file
from needlepoint.objects.opening import as_source, concurrently, identify, identify_all, open_object
from needlepoint.objects.ranges import LOCAL_GAP, REMOTE_GAP, coalesce
from needlepoint.objects.replacing import Piece, open_to_replace, replace, sweep_copies

__all__ = [
    "LOCAL_GAP",
    "MOST_SUMMED",
    "REMOTE_GAP",
    "Cursor",
    "HeldFile",
    "Identity",
    "LocalFile",
    "OpenObject",
    "Piece",
    "Version",
    "as_source",
    "coalesce",
    "concurrently",
    "identify",
    "identify_all",
    "is_by_object_store",
    "is_nameable",
    "is_url",
    "last_touched",
    "local_failure",
    "move",
    "object_store_error",
    "open_object",
    "open_to_replace",
    "put_if_unchanged",
    "read_if_changed",
    "remove",
    "remove_directory",
    "replace",
    "sweep_copies",
    "sync_file",
]
