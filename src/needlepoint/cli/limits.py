"""Warn of limits that would abort the process without a message."""

from __future__ import annotations

from needlepoint.cli.messages import say

# Arrow and DataFusion reserve address space by the gigabyte, most of which is never used; docs/settings.md has figures.
LEAST_ADDRESS_SPACE = 4 << 30


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
