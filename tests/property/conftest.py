"""How many cases: NEEDLE_TEST_PROFILE is `default` (the same cases every time) or `thorough` (thousands, random)."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, Phase, settings

_COMMON = {"deadline": None, "print_blob": True, "suppress_health_check": list(HealthCheck)}

# CI does not shrink what it finds, which can take minutes: `thorough` does.
_NO_SHRINK = (Phase.explicit, Phase.reuse, Phase.generate)

settings.register_profile(
    "default", max_examples=24, derandomize=True, stateful_step_count=12, phases=_NO_SHRINK, **_COMMON
)
settings.register_profile("thorough", max_examples=1000, stateful_step_count=25, **_COMMON)
settings.load_profile(os.environ.get("NEEDLE_TEST_PROFILE", "default"))
