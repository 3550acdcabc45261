from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from needlepoint.errors import UsageError
from needlepoint.settings import Settings

DOCUMENT = Path(__file__).parents[2] / "docs" / "settings.md"


def test_arguments_win_over_variables_and_variables_over_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEEDLE_REFRESH", "7.5")
    monkeypatch.setenv("NEEDLE_WORKERS", "3")
    settings = Settings.from_environment(workers=2, refresh=None)
    assert (settings.refresh, settings.workers, settings.processes) == (7.5, 2, 2)


@pytest.mark.parametrize("value", ["many", "-1", ""])
def test_a_bad_value_names_its_variable(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("NEEDLE_WORKERS", value)
    with pytest.raises(UsageError, match="NEEDLE_WORKERS"):
        Settings.from_environment()


def test_every_setting_is_documented_with_its_default() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| `NEEDLE_\w+` \| ?([\w.]*) \|", DOCUMENT.read_text(), re.MULTILINE))
    assert rows == {field.name: str(field.default) for field in fields(Settings)}
