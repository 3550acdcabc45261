"""How many cases a property test runs: NEEDLE_TEST_PROFILE is `default` (few, the same every time) or `thorough` (many,
random)."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings

PROFILE = os.environ.get("NEEDLE_TEST_PROFILE", "default")


def cases(thorough: int, default: int | None = None) -> int:
    """A fifth of the thorough number by default, and at least 8."""
    if PROFILE == "thorough":
        return thorough
    return max(8, thorough // 5) if default is None else default


def long(*values: object) -> list[Any]:
    """Parameters that only `make test-all` runs."""
    return [
        pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=pytest.mark.long) for value in values
    ]


def covering(names: Sequence[str], separators: str = "/") -> list[str]:
    """Few of the names that together have every value of each of their parts.

    >>> covering(["flat/gzip", "flat/zstd", "nested/gzip", "nested/zstd"])
    ['flat/gzip', 'nested/zstd']
    """
    parts = {name: set(enumerate(re.split(f"[{separators}]", name))) for name in names}
    left = set().union(*parts.values())
    chosen = []
    while left:
        chosen.append(max(names, key=lambda name: len(left & parts[name])))
        left -= parts[chosen[-1]]
    return chosen


def load_profile() -> None:
    common = {"deadline": None, "print_blob": True, "suppress_health_check": list(HealthCheck)}
    # Shrinking can take minutes: only `thorough` does it.
    no_shrink = (Phase.explicit, Phase.reuse, Phase.generate)
    settings.register_profile("default", max_examples=24, derandomize=True, phases=no_shrink, **common)
    settings.register_profile("thorough", max_examples=1000, **common)
    settings.load_profile(PROFILE)
