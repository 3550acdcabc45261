from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from needlepoint.objects import Identity


@dataclass(frozen=True, slots=True)
class Retrofitted:
    identity: Identity


def retrofit(path: str, page_index: bool, bloom: Sequence[str], identity: Identity | None = None) -> Retrofitted:
    raise NotImplementedError
