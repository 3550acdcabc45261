from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest

import needlepoint
from needlepoint.errors import UnknownName, UsageError
from needlepoint.settings import SettingOverrides, Settings

DOCUMENT = Path(__file__).parents[2] / "docs" / "settings.md"


def test_arguments_win_over_variables_and_variables_over_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEEDLE_REFRESH", "7.5")
    monkeypatch.setenv("NEEDLE_WORKERS", "3")
    settings = Settings.from_environment(workers=2, refresh=None)
    assert (settings.refresh, settings.workers, settings.processes) == (7.5, 2, 2)


def test_given_settings_stand_in_for_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEEDLE_WORKERS", "3")
    with needlepoint.open(tmp_path / "lake", Settings(refresh=7.5), range_limit=5, access=None) as lake:
        found = lake.settings
    assert (found.refresh, found.workers, found.range_limit, found.access) == (7.5, 0, 5, "auto")


def test_a_misspelt_setting_is_refused_with_the_nearest_name(tmp_path: Path) -> None:
    misspelt: dict[str, Any] = {"wokers": 2}
    for settings in (None, Settings()):
        with pytest.raises(UnknownName, match=r"unknown setting 'wokers'\. Did you mean 'workers'\?"):
            needlepoint.open(tmp_path / "lake", settings, **misspelt)
    assert not (tmp_path / "lake").exists()


def test_type_checkers_know_every_setting() -> None:
    named = {name: set(get_args(hint)) - {type(None), Path} for name, hint in get_type_hints(SettingOverrides).items()}
    assert named == {name: {hint} for name, hint in get_type_hints(Settings).items()}


@pytest.mark.parametrize("value", ["many", "-1", ""])
def test_a_bad_value_names_its_variable(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("NEEDLE_WORKERS", value)
    with pytest.raises(UsageError, match="NEEDLE_WORKERS"):
        Settings.from_environment()


def test_every_setting_is_documented_with_its_default() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| `NEEDLE_\w+` \| ?([\w.]*) \|", DOCUMENT.read_text(), re.MULTILINE))
    assert rows == {field.name: str(field.default) for field in fields(Settings)}
