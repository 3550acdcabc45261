"""How many cases: NEEDLE_TEST_PROFILE is `default` (the same cases every time) or `thorough` (thousands, random)."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

_COMMON = {"deadline": None, "print_blob": True, "suppress_health_check": list(HealthCheck)}

settings.register_profile("default", max_examples=28, derandomize=True, stateful_step_count=12, **_COMMON)
settings.register_profile("thorough", max_examples=1000, stateful_step_count=25, **_COMMON)
settings.load_profile(os.environ.get("NEEDLE_TEST_PROFILE", "default"))
