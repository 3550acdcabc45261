"""`needle`, the command line: one command a file, no logic beyond presenting."""

from __future__ import annotations

from needlepoint.cli.needle import main

__all__ = ["main"]
