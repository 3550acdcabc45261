"""The README is true: its session prints what it says, its Python runs, every command and document is named."""

from __future__ import annotations

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


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def steady(text: str) -> str:
    """Times and sizes differ from run to run; trailing blanks do not matter."""
    text = re.sub(r"\b[\d.,]+ (ms|s)\b", "TIME", text)
    text = re.sub(r"(bytes +)[\d,]+ of [\d,]+", r"\1SIZE", text)
    text = re.sub(r"part-\d+-\w+\.parquet", "FILE", text)
    text = re.sub(r"parquet-cpp-arrow version [\d.]+", "pyarrow", text)
    text = re.sub(r"^ *[█░]+ bytes", "bytes", text, flags=re.MULTILINE)
    return "\n".join(line.rstrip() for line in text.strip().splitlines())


@pytest.mark.spark
def test_the_session_and_the_snippets_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spark) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("NEEDLE_LAKE", raising=False)
    (session,) = blocks("console")
    for step in re.split(r"^\$ ", session, flags=re.MULTILINE)[1:]:
        command, _, expected = step.partition("\n")
        if command.startswith("cat "):
            Path(command.removeprefix("cat ")).write_text(expected)
            continue
        words = [quoted or plain for quoted, plain in re.findall(r'"([^"]*)"|(\S+)', command)]
        assert words[0] == "needle"
        result = CliRunner().invoke(main, words[1:])
        assert steady(result.output) == steady(expected), command
    for snippet in blocks("python"):
        exec(compile(snippet, "README.md", "exec"), {})


def test_every_command_is_in_the_readme() -> None:
    context = click.Context(main)
    for name in main.list_commands(context):  # type: ignore[attr-defined]
        assert f"| `needle {name}" in README, name


def test_every_link_leads_somewhere() -> None:
    documents = [
        ROOT / "README.md",
        *(ROOT / "docs").glob("*.md"),
        ROOT / "CONTRIBUTING.md",
        ROOT / "benchmarks/README.md",
    ]
    for document in documents:
        for link in re.findall(r"\]\(([^)#:]+)\)", document.read_text()):
            assert (document.parent / link).exists(), f"{document.name}: {link}"


def test_every_error_is_drawn_in_the_tree() -> None:
    from needlepoint import errors

    classes = [name for name, each in vars(errors).items() if isinstance(each, type) and issubclass(each, Exception)]
    assert all(name in (errors.__doc__ or "") for name in classes)


@pytest.mark.parametrize("script", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.name)
def test_every_example_runs(script: Path) -> None:
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout
