"""Commands that do not need pandas do not import it, and tables can still be converted to it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import needlepoint

QUERY = "SELECT title FROM product WHERE id = 2"
SCRIPT = """
import sys
from click.testing import CliRunner
from needlepoint.cli import main
for command in (["status"], ["sync"], ["sql", sys.argv[3]], ["sql", "--format", "csv", sys.argv[2]]):
    done = CliRunner().invoke(main, ["--lake", sys.argv[1], *command])
    assert done.exit_code == 0, done.output
assert "pandas" not in sys.modules and "datafusion" in sys.modules
import pyarrow as pa
assert pa.table({"a": [1]}).to_pandas()["a"].tolist() == [1]
import pandas
assert pa.array(pandas.Series([1.0, None]), from_pandas=True).null_count == 1
print(done.output)
"""


def test_commands_run_without_pandas(tmp_path: Path) -> None:
    (tmp_path / "product").mkdir()
    pq.write_table(pa.table({"id": [1, 2], "title": ["one", "two"]}), tmp_path / "product/a.parquet")
    with needlepoint.open(tmp_path) as lake:
        lake.create_table("product")
        lake.create_index("product", "id")
    command = [sys.executable, "-c", SCRIPT, str(tmp_path), QUERY, "SELECT count(*) FROM product WHERE id + 1 = 3"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "two" in done.stdout
