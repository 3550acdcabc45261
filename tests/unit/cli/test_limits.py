"""What long-running commands limit."""

from __future__ import annotations

import os

import pytest

from needlepoint.cli.limits import keep_few_arenas


def test_processes_that_run_for_long_have_two_arenas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MALLOC_ARENA_MAX", "8")  # what is set now comes back after the test
    monkeypatch.delenv("MALLOC_ARENA_MAX")
    keep_few_arenas()
    assert os.environ["MALLOC_ARENA_MAX"] == "2"


def test_the_user_s_own_limit_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MALLOC_ARENA_MAX", "8")
    keep_few_arenas()
    assert os.environ["MALLOC_ARENA_MAX"] == "8"
