"""examples/quickstart.ipynb: every cell runs, and shows what the notebook shows."""

from __future__ import annotations

import ast
import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from needlepoint.parquet.inspect import inspect

NOTEBOOK = Path(__file__).parents[2] / "examples" / "quickstart.ipynb"


def run(source: str, names: dict[str, Any]) -> object:
    """The value of the last line, as a notebook shows it."""
    tree = ast.parse(source)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "cell", "exec"), names)
    return eval(compile(ast.Expression(last.value), "cell", "eval"), names) if isinstance(last, ast.Expr) else None


def steady(html: str) -> str:
    """Without times, and sizes of files, which depend on the library that writes them."""
    return re.sub(r"[\d.,]+(?: (?:ms|s|B|kB|MB))?|<svg.*?</svg>|/\S*", "", html)


def test_cells_run_and_show_what_the_notebook_shows() -> None:
    names: dict[str, Any] = {}
    try:
        for cell in json.loads(NOTEBOOK.read_text())["cells"]:
            if cell["cell_type"] != "code":
                continue
            value = run("".join(cell["source"]), names)
            for output in cell["outputs"]:
                html = "".join(output["data"].get("text/html", ""))
                if html:
                    shown = value._repr_html_()  # type: ignore[attr-defined]
                    assert shown.count("<svg") == html.count("<svg")
                    assert len(steady(shown)) > 0.5 * len(steady(html))
                else:
                    assert "".join(output["data"]["text/plain"]) == repr(value)
    finally:
        if "lake" in names:
            names["lake"].close()
        shutil.rmtree(names.get("root", "/nonexistent"), ignore_errors=True)


def test_the_picture_of_a_file_escapes_names(tmp_path: Path) -> None:
    path = tmp_path / "a<b>.parquet"
    pq.write_table(pa.table({"<script>x</script>": [1, 2], "\x1b[2J": ["a", "b"]}), path)
    html = inspect(str(path))._repr_html_()
    tags: list[str] = []

    class Tags(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            tags.append(tag)

    Tags().feed(html)
    assert "script" not in tags and "b" in tags and tags.count("svg") == 1 and "\x1b" not in html
