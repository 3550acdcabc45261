"""The README and the tutorial are correct: sessions print what they show, Python snippets run, and links work."""

from __future__ import annotations

import contextlib
import io
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from needlepoint.cli.needle import main

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
BLOCK = re.compile(r"^```(console|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def steady(text: str) -> str:
    """Mask times and sizes, which differ from run to run, and strip trailing blanks."""
    text = re.sub(r"\b[\d.,]+ (ms|s)\b", "TIME", text)
    text = re.sub(r"(bytes +)[\d,]+ of [\d,]+", r"\1SIZE", text)
    text = re.sub(r"part-\d+-\w+\.parquet", "FILE", text)
    text = re.sub(r"parquet-cpp-arrow version [\d.]+", "pyarrow", text)
    text = re.sub(r"^ *[█░]+ bytes", "bytes", text, flags=re.MULTILINE)
    return "\n".join(line.rstrip() for line in text.strip().splitlines())


def run(document: Path) -> None:
    """Run the sessions and snippets of a page from top to bottom, and compare what they print.

    A comment after a `print` that begins with a bracket or a digit is its expected output."""
    names: dict[str, object] = {}
    for language, block in BLOCK.findall(document.read_text()):
        if language == "console":
            run_session(block)
            continue
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(block, document.name, "exec"), names)
        for line in re.findall(r"^print\(.*\)  # ([\[\d].*)$", block, re.MULTILINE):
            assert line in printed.getvalue().splitlines()


def run_session(session: str) -> None:
    for step in re.split(r"^\$ ", session, flags=re.MULTILINE)[1:]:
        command, _, expected = step.partition("\n")
        if command.startswith("cat "):
            Path(command.removeprefix("cat ")).write_text(expected)
            continue
        words = [quoted or plain for quoted, plain in re.findall(r'"([^"]*)"|(\S+)', command)]
        assert words[0] == "needle"
        result = CliRunner().invoke(main, words[1:])
        assert steady(result.output) == steady(expected), command


@pytest.mark.spark
@pytest.mark.parametrize("pages", [("README.md", "docs/python.md"), ("docs/tutorial.md",)], ids=["readme", "tutorial"])
def test_sessions_and_snippets_run(
    pages: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spark
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("NEEDLE_LAKE", raising=False)
    for page in pages:
        run(ROOT / page)


def test_the_readme_is_short() -> None:
    assert len(README.splitlines()) <= 150


def test_every_command_is_in_the_readme() -> None:
    context = click.Context(main)
    for name in main.list_commands(context):  # type: ignore[attr-defined]
        assert f"| `needle {name}" in README, name


def anchors(document: Path) -> set[str]:
    """The anchors that GitHub gives to the headings of a page."""
    text = re.sub(r"^```.*?^```$", "", document.read_text(), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_link_leads_somewhere() -> None:
    documents = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), ROOT / "benchmarks/README.md"]
    for document in documents:
        for path, anchor in re.findall(r"\]\(([^)#:]*)(?:#([^)]*))?\)", document.read_text()):
            target = document.parent / path if path else document
            assert target.exists(), f"{document.name}: {path}"
            assert not anchor or anchor in anchors(target), f"{document.name}: {path}#{anchor}"


def test_the_readme_leads_to_every_page() -> None:
    for document in (ROOT / "docs").glob("*.md"):
        assert f"(docs/{document.name})" in README, document.name


def test_every_error_is_drawn_in_the_tree() -> None:
    from needlepoint import errors

    classes = [name for name, each in vars(errors).items() if isinstance(each, type) and issubclass(each, Exception)]
    assert all(name in (errors.__doc__ or "") for name in classes)


@pytest.mark.parametrize("script", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.name)
def test_every_example_runs(script: Path) -> None:
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout
