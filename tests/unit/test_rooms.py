"""Rooms: an import from another room names a package, and the docstring of each package is its map."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src"
FILES = {
    ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted((SOURCE / "needlepoint").rglob("*.py"))
}
TREES = {module: ast.parse(path.read_text()) for module, path in FILES.items()}
PACKAGES = {module for module, path in FILES.items() if path.name == "__init__.py"}
ROOMS = {package for package in PACKAGES if package.count(".") == 1}
FOR_USERS = {"needlepoint", "needlepoint.cli", "needlepoint.lake", "needlepoint.spark"}


def room_of(module: str) -> str:
    """
    >>> room_of("needlepoint.tables.registry.files"), room_of("needlepoint.errors")
    ('needlepoint.tables', 'needlepoint')
    """
    top = ".".join(module.split(".")[:2])
    return top if top in ROOMS else "needlepoint"


def crossing() -> Iterator[tuple[str, str, str]]:
    """Uses of what is in another room: where (file:line), the module, and the name."""
    for module, tree in TREES.items():
        rooms: dict[str, str] = {}  # the names of rooms that are imported as such
        nodes = sorted(ast.walk(tree), key=lambda node: getattr(node, "lineno", 0))
        for node in nodes:
            found: list[tuple[str, str]] = []
            if isinstance(node, ast.Import):
                found = [(each.name, "") for each in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module == "needlepoint":
                rooms |= {each.asname or each.name: f"needlepoint.{each.name}" for each in node.names}
            elif isinstance(node, ast.ImportFrom):
                found = [(node.module or "", each.name) for each in node.names]
            elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in rooms:
                found = [(rooms[node.value.id], node.attr)]
            for source, name in found:
                if room_of(source) in ROOMS and room_of(source) != room_of(module):
                    yield f"{FILES[module].relative_to(ROOT)}:{node.lineno}", source, name


def exported(package: str) -> set[str]:
    """The names in `__all__`, and those that are there for type checking only."""
    names: set[str] = set()
    for node in TREES[package].body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            names |= set(ast.literal_eval(node.value))
        elif isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            names |= {each.name for part in node.body if isinstance(part, ast.ImportFrom) for each in part.names}
    return names


def mapped(text: str) -> set[str]:
    """What the lines of a map name: one or more modules, at least two spaces, and what they are for.

    >>> sorted(mapped("needle   the group\\nsync, verify  commands\\nA sentence, with words."))
    ['needle', 'sync', 'verify']
    """
    lines = re.findall(r"^ *(\w[\w.]*/?(?:, \w[\w.]*/?)*) {2,}\S", text, re.MULTILINE)
    return {name for line in lines for name in line.split(", ")}


def test_other_rooms_import_from_the_init_of_a_room() -> None:
    wrong = [
        f"{where}: {source} is inside a room. Import {name} from the room's __init__, which re-exports it."
        for where, source, name in crossing()
        if source not in PACKAGES
    ]
    assert not wrong, "\n".join(wrong)


def test_a_room_exports_what_other_rooms_import() -> None:
    wrong = [
        f"{where}: {source} has no '{name}' in its __all__."
        for where, source, name in crossing()
        if source in PACKAGES and name not in exported(source)
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("package", sorted(PACKAGES))
def test_names_on_demand_are_those_of_their_modules(package: str) -> None:
    """A name that is a module's too would be the module, as soon as that is imported."""
    source = FILES[package].read_text()
    if "__getattr__ = on_demand(" not in source:
        return
    room = importlib.import_module(package)
    names = {name for name in exported(package) if getattr(room, name) is not None}
    assert names == exported(package)
    assert not {f"{package}.{name}" for name in names} & FILES.keys()


def test_a_room_exports_nothing_else() -> None:
    used = {(source, name) for _, source, name in crossing()}
    wrong = [
        f"{package}: no other room imports '{name}'. Take it out of __all__."
        for package in sorted(PACKAGES - FOR_USERS)
        for name in sorted(exported(package))
        if (package, name) not in used
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("package", sorted(PACKAGES - {"needlepoint"}))
def test_the_docstring_is_a_map(package: str) -> None:
    inside = [module for module in FILES if module.rpartition(".")[0] == package]
    names = {module.rpartition(".")[2] + "/" * (module in PACKAGES) for module in inside}
    assert mapped(ast.get_docstring(TREES[package]) or "") == names


def test_the_architecture_page_maps_the_rooms() -> None:
    page = (ROOT / "docs/architecture.md").read_text()
    (rooms,) = re.findall(r"src/needlepoint/\n(.*?)tests/ ", page, re.DOTALL)
    assert mapped(rooms) == {room.rpartition(".")[2] + "/" for room in ROOMS}
    for module in FILES:
        if module.count(".") == 1 and module not in ROOMS:
            assert f"`{module.rpartition('.')[2]}.py`" in page


def test_tasks_of_spark_load_no_engine() -> None:
    heavy = ["datafusion", "rocksdict", "obstore", "tantivy", "boto3", "pyspark"]
    program = (
        "import sys, needlepoint.spark.tasks, needlepoint.maintenance.merge; print(*set(sys.modules) & {*sys.argv[1:]})"
    )
    done = subprocess.run([sys.executable, "-c", program, *heavy], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
