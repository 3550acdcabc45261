"""A command imports what it runs, and nothing else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import needlepoint

LIBRARIES = {"click", "needlepoint", "numpy", "pyarrow", "rich", "rocksdict"}
# pyarrow imports these if they are installed.
OF_PYARROW = {"cloudpickle", "cython_runtime", "dateutil", "six", "xxhash"}
OURS = {
    "advisor",
    "cli",
    "indexer",
    "indexes",
    "lake",
    "maintenance",
    "objects",
    "parquet",
    "query",
    "queues",
    "stores",
}
UNUSED = (
    "advisor.advice indexer.indexer lake.ddl lake.status lake.upkeep maintenance.compact maintenance.delete "
    "query.aggregates query.datafusion query.execution query.pruning.steps query.query_plans query.ranked_search "
    "query.scan_planner query.sql.predicates query.sql.rewriting query.sql_queries query.verify tables.published"
)
SCRIPT = """
import sys
from needlepoint.cli import main
main(["--lake", sys.argv[1], "sql", "--format", "table", sys.argv[2]], standalone_mode=False)
print(*sys.modules, file=sys.stderr)
"""


def modules(lake: Path, query: str) -> set[str]:
    command = [sys.executable, "-c", SCRIPT, str(lake), query]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "two" in done.stdout, done.stderr
    return set(done.stderr.split())


def test_one_row_needs_no_datafusion_and_nothing_that_writes(tmp_path: Path) -> None:
    (tmp_path / "product").mkdir()
    pq.write_table(pa.table({"id": [1, 2], "title": ["one", "two"]}), tmp_path / "product/a.parquet")
    with needlepoint.open(tmp_path) as lake:
        lake.create_table("product")
        lake.create_index("product", "id")
    found = modules(tmp_path, "SELECT title FROM product WHERE id = 2")
    others = {name.partition(".")[0] for name in found} - set(sys.stdlib_module_names) - LIBRARIES - OF_PYARROW
    assert {name for name in others if not name.startswith("_")} == set()
    assert found.isdisjoint(f"needlepoint.{name}" for name in UNUSED.split())
    assert "datafusion" in modules(tmp_path, "SELECT title FROM product WHERE id + 1 = 3")


def test_a_lookup_without_a_key_index_needs_no_datafusion(tmp_path: Path) -> None:
    (tmp_path / "product").mkdir()
    rows = pa.table({"id": range(100_000), "title": ["two"] * 100_000})
    pq.write_table(rows, tmp_path / "product/a.parquet", write_page_index=True, max_rows_per_page=250)
    with needlepoint.open(tmp_path) as lake:
        lake.create_table("product")
    found = modules(tmp_path, "SELECT title FROM product WHERE id = 2")
    assert "needlepoint.query.scan_planner" in found
    assert found.isdisjoint({"datafusion", "needlepoint.query.sql_queries"})
