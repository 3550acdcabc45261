"""The wheel, in an environment of its own and outside the repository."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
LOOKUP = """
import json, pathlib, sys
import pyarrow as pa, pyarrow.parquet as pq
import needlepoint

root = pathlib.Path("lake")
(root / "product").mkdir(parents=True)
pq.write_table(pa.table({"id": range(1000), "title": [f"title {n}" for n in range(1000)]}), root / "product/a.parquet")
with needlepoint.open(root) as lake:
    lake.create_table("product")
    lake.create_index("product", "id")
    found = lake.table("product").get(id=384).rows()
print(json.dumps({"rows": found, "spark": "pyspark" in sys.modules, "file": needlepoint.__file__}))
"""


def run(*command: str | Path, cwd: Path) -> str:
    done = subprocess.run([str(each) for each in command], cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.long
def test_an_installed_wheel_finds_a_row(tmp_path: Path) -> None:
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet")
    run(*pip, "wheel", "--no-deps", "--wheel-dir", tmp_path / "dist", REPOSITORY, cwd=tmp_path)
    (wheel,) = (tmp_path / "dist").glob("needlepoint-*.whl")
    with zipfile.ZipFile(wheel) as content:
        names = content.namelist()
    assets = "needlepoint/service/assets"
    assert {"needlepoint/py.typed", f"{assets}/index.html", f"{assets}/vendor/codemirror.js"} <= set(names)
    assert not [name for name in names if not name.startswith("needlepoint")]
    run(sys.executable, "-m", "venv", tmp_path / "fresh", cwd=tmp_path)
    python = tmp_path / "fresh/bin/python"
    run(python, *pip[1:], "install", wheel, cwd=tmp_path)
    found = json.loads(run(python, "-c", LOOKUP, cwd=tmp_path))
    assert found["rows"] == [{"id": 384, "title": "title 384"}]
    assert str(tmp_path) in found["file"] and not found["spark"]
    query = "SELECT title FROM product WHERE id = 7"
    for command in ([tmp_path / "fresh/bin/needle"], [python, "-m", "needlepoint"]):
        assert "title 7" in run(*command, "--lake", "lake", "sql", query, cwd=tmp_path)
