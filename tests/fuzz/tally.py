"""What a part of the fuzzer did."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Tally:
    """`findings` are readable texts, each with what repeats it."""

    tried: int
    findings: list[str]
