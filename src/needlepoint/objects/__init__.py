"""The bytes of a lake: files and objects, read by range.

Everything above asks for ranges and never for positions of a shared cursor, so that the same calls are answered by a
local file and by an object store.

    base       what an open object is, and what tells one version of it from the next
    cursor     an open object as a Python file
    ranges     many wanted ranges become few requests
    local      files
    held       a version of a file that stays readable when it is replaced
    remote     objects in S3, through obstore: the only importer of it
    failures   what an object store refuses, in our words
    opening    a path or URL becomes one or the other
    replacing  a new version in the place of the old one
    moving     to a final place, and out of it
"""

from needlepoint.objects.base import Identity, OpenObject, is_nameable, is_url
from needlepoint.objects.cursor import Cursor
from needlepoint.objects.held import HeldFile
from needlepoint.objects.local import LocalFile
from needlepoint.objects.moving import last_touched, move, remove, remove_directory, sync_file
from needlepoint.objects.opening import as_source, concurrently, identify, identify_all, open_object
from needlepoint.objects.ranges import LOCAL_GAP, REMOTE_GAP, coalesce
from needlepoint.objects.replacing import Piece, open_to_replace, replace, sweep_copies

__all__ = [
    "LOCAL_GAP",
    "REMOTE_GAP",
    "Cursor",
    "HeldFile",
    "Identity",
    "LocalFile",
    "OpenObject",
    "Piece",
    "as_source",
    "coalesce",
    "concurrently",
    "identify",
    "identify_all",
    "is_nameable",
    "is_url",
    "last_touched",
    "move",
    "open_object",
    "open_to_replace",
    "remove",
    "remove_directory",
    "replace",
    "sweep_copies",
    "sync_file",
]
