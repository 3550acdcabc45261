"""How many cases a property test runs: NEEDLE_TEST_PROFILE is `default` (few, the same every time) or `thorough` (many,
random)."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, Phase, settings

_T = TypeVar("_T")
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
    return _few(parts)


def _few(parts: Mapping[_T, Set[object]]) -> list[_T]:
    """Few keys that together have all parts, each about equally often."""
    left: set[object] = set().union(*parts.values())
    times: Counter[object] = Counter()
    chosen = []
    while left:
        chosen.append(max(parts, key=lambda each: (len(left & parts[each]), -sum(times[of] for of in parts[each]))))
        left -= parts[chosen[-1]]
        times.update(parts[chosen[-1]])
    return chosen


def keep_covering(items: Iterable[pytest.Item]) -> None:
    """Of a test with the mark `covering`, few combinations of parameters run by default, which together have every
    value of each parameter. The others are long."""
    combinations: dict[str, dict[pytest.Item, set[object]]] = {}
    for item in items:
        if item.get_closest_marker("covering") and not item.get_closest_marker("long"):
            of = combinations.setdefault(item.nodeid.partition("[")[0], {})
            # By identity: values need not be hashable, and each is one object in all its combinations.
            parameters = item.callspec.params  # type: ignore[attr-defined]
            of[item] = {(name, id(value)) for name, value in parameters.items()}
    for of in combinations.values():
        chosen = _few(of)
        for item in of:
            if item not in chosen:
                item.add_marker(pytest.mark.long)


def load_profile() -> None:
    common = {"deadline": None, "print_blob": True, "suppress_health_check": list(HealthCheck)}
    # Shrinking can take minutes: only `thorough` does it.
    no_shrink = (Phase.explicit, Phase.reuse, Phase.generate)
    settings.register_profile("default", max_examples=24, derandomize=True, phases=no_shrink, **common)
    settings.register_profile("thorough", max_examples=1000, **common)
    settings.load_profile(PROFILE)
