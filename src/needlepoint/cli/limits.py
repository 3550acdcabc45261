"""Limits of the process: warns of those that would abort it without a message, and limits what allocators keep."""

from __future__ import annotations

import ctypes
import os
from contextlib import suppress

from needlepoint.cli.messages import say

# Arrow and DataFusion reserve address space by the gigabyte, most of which is never used; docs/settings.md has figures.
LEAST_ADDRESS_SPACE = 4 << 30
_ARENAS = 2
_M_ARENA_MAX = -8  # of malloc.h


def warn_of_limits() -> None:
    try:
        import resource
    except ImportError:  # not a Unix
        return
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit != resource.RLIM_INFINITY and limit < LEAST_ADDRESS_SPACE:
        say(
            f"warning: address space is limited to {limit >> 20:,} MiB (ulimit -v), and less than "
            f"{LEAST_ADDRESS_SPACE >> 20:,} MiB can abort the process. Limit its memory by a cgroup instead.",
            err=True,
        )


def keep_few_arenas() -> None:
    """For processes that run for long, and those that they start. glibc gives threads arenas of their own, and keeps
    what is freed in each: an indexer takes 450 MB instead of 260, and grows for longer. A value of the user stays."""
    if "MALLOC_ARENA_MAX" in os.environ:
        return
    os.environ["MALLOC_ARENA_MAX"] = str(_ARENAS)
    with suppress(AttributeError, OSError, TypeError):  # not glibc
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, _ARENAS)
