"""Kinds by name: our own, those of other packages, and those that do not work."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from needlepoint.errors import UnknownName, UsageError
from needlepoint.indexes import kinds

Install = Callable[..., None]

WORKING = """
class Working:
    name = "{name}"
    version = 1
    def check(self, table, fields, options): pass
    def build(self, source): raise NotImplementedError
    def open(self, stored, fields, options): raise NotImplementedError

ready = Working()
"""


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Put a package on the path as an installer does: a module, and a dist-info with the entry point."""
    monkeypatch.syspath_prepend(tmp_path)
    modules: list[str] = []

    def into_path(package: str, source: str, kind: str, value: str) -> None:
        (tmp_path / f"{package}.py").write_text(source)
        information = tmp_path / f"{package}-1.0.dist-info"
        information.mkdir()
        (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        (information / "entry_points.txt").write_text(f"[needlepoint.indexes]\n{kind} = {package}:{value}\n")
        modules.append(package)

    kinds.kind.cache_clear()
    yield into_path
    kinds.kind.cache_clear()
    for module in modules:
        sys.modules.pop(module, None)


def test_built_in_kinds() -> None:
    assert kinds.names() == ["bloom", "distinct", "key", "text"]
    for name in ("bloom", "distinct", "key"):
        assert kinds.kind(name).name == name
        assert kinds.kind(name) is kinds.kind(name)


def test_unknown_kinds() -> None:
    with pytest.raises(UnknownName, match=r"unknown index kind 'distnct'. Did you mean 'distinct'\?"):
        kinds.kind("distnct")
    with pytest.raises(UnknownName, match=r"There is: bloom, distinct, key, text\."):
        kinds.kind("zzz")


@pytest.mark.parametrize("value", ["Working", "ready"])
def test_a_kind_of_another_package(install: Install, value: str) -> None:
    install("some_package", WORKING.format(name="hours"), "hours", value)
    assert "hours" in kinds.names()
    assert "some_package" not in sys.modules
    assert kinds.kind("hours").name == "hours"
    assert kinds.kind("hours") is kinds.kind("hours")


def test_our_own_are_not_replaced(install: Install) -> None:
    install("thief", WORKING.format(name="distinct"), "distinct", "Working")
    assert type(kinds.kind("distinct")).__module__ == "needlepoint.indexes.distinct.kind"
    assert kinds.names() == ["bloom", "distinct", "key", "text"]


@pytest.mark.parametrize(
    ("source", "value", "problem"),
    [
        ("import nonexistent_module", "Kind", "ModuleNotFoundError: No module named 'nonexistent_module'"),
        ("1 / 0", "Kind", "ZeroDivisionError"),
        ("", "Kind", "AttributeError"),
        ("class Kind:\n name = 'broken'\n version = 1\n", "Kind", "has no check and no build and no open"),
        (WORKING.format(name="other"), "Working", "calls itself 'other'"),
        ("class Kind:\n def __init__(self, needed): pass", "Kind", "TypeError"),
    ],
)
def test_packages_that_do_not_work(install: Install, source: str, value: str, problem: str) -> None:
    install("broken_package", source, "broken", value)
    assert "broken" in kinds.names()
    with pytest.raises(UsageError, match=rf"index kind 'broken' of package broken.package cannot be used: .*{problem}"):
        kinds.kind("broken")


def test_two_packages_with_one_name(install: Install) -> None:
    install("first_package", WORKING.format(name="same"), "same", "Working")
    install("second_package", WORKING.format(name="same"), "same", "Working")
    with pytest.raises(UsageError, match=r"several packages have an index kind .same.: package first"):
        kinds.kind("same")


def test_nothing_heavy_is_imported() -> None:
    code = (
        "import sys, needlepoint; from needlepoint.indexes import kinds; kinds.names(); kinds.kind('distinct'); "
        "kinds.kind('bloom'); print('tantivy' in sys.modules, 'rocksdict' in sys.modules, 'pyspark' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False"] * 3
