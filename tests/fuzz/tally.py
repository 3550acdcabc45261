"""What a part of the fuzzer did."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Tally:
    tried: int
    findings: list[str]
