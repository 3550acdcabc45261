"""The pictures of the console in docs/images: a demo lake, `needle serve` over it, and Debian's chromium."""

from __future__ import annotations

import argparse
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import needlepoint

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

IMAGES = Path(__file__).parents[1] / "docs" / "images"
REGIONS = {"africa": 3, "americas": 9, "asia": 12, "europe": 10, "oceania": 2}  # files a quarter
YEARS = range(2023, 2027)
STATES = ["delivered", "delivered", "delivered", "shipped", "returned", "open"]

LOOKUP = "SELECT order_id, ordered_at, customer, state, amount\nFROM orders\nWHERE order_id IN (610774, 612012, 700123)"
ONE_CUSTOMER = """-- orders of one customer, wherever they are
SELECT order_id, ordered_at, state, amount
FROM orders
WHERE customer = 'customer 4711' AND year >= 2025 AND region IN ('asia', 'europe')
ORDER BY ordered_at"""
GROUPS = """SELECT region, count(*) AS orders, round(sum(amount)) AS revenue
FROM orders
WHERE year = 2025
GROUP BY region ORDER BY revenue DESC"""


def demo_lake(root: Path) -> None:
    """A few hundred files of orders by year, region and quarter, as a writer leaves them after each load."""
    random = np.random.default_rng(7)
    first = 100_000
    for year in YEARS:
        for quarter in range(4):
            files = [region for region, most in REGIONS.items() for _ in range(max(1, most * (year - 2021) // 6))]
            rows = {number: int(random.lognormal(7.6, 0.5)) for number in range(len(files))}
            ids = random.permutation(np.arange(first, first + sum(rows.values())))
            first += len(ids)
            taken = 0
            for number, region in enumerate(files):
                mine = np.sort(ids[taken : taken + rows[number]])
                taken += rows[number]
                path = root / "orders" / f"year={year}" / f"region={region}" / f"q{quarter + 1}-{number:02}.parquet"
                path.parent.mkdir(parents=True, exist_ok=True)
                _write(_orders(random, mine, year, quarter), path)
    people = range(5000)
    table = pa.table({"customer": [f"customer {id}" for id in people], "since": [2015 + id % 11 for id in people]})
    (root / "customers").mkdir()
    _write(table, root / "customers" / "all.parquet")
    with needlepoint.open(root) as lake:
        lake.create_table("orders")
        lake.create_table("customers")
        lake.create_index("orders", "order_id")
        lake.create_index("orders", "customer")
        lake.create_index("orders", "state", kind="distinct")
        lake.sql("CREATE VIEW returns AS SELECT * FROM orders WHERE state = 'returned'")


def _orders(random: np.random.Generator, ids: Any, year: int, quarter: int) -> pa.Table:
    days = np.sort(random.integers(0, 90, len(ids)))
    start = np.datetime64(f"{year}-{1 + 3 * quarter:02}-01T00:00:00", "s")
    times = start + days * np.timedelta64(86400, "s") + random.integers(0, 86400, len(ids)) * np.timedelta64(1, "s")
    return pa.table(
        {
            "order_id": ids,
            "ordered_at": pa.array(times.astype("datetime64[s]"), pa.timestamp("s")),
            "customer": [f"customer {id}" for id in random.integers(0, 5000, len(ids))],
            "state": [STATES[at] for at in random.integers(0, len(STATES), len(ids))],
            "amount": np.round(random.lognormal(4, 0.8, len(ids)), 2),
        }
    )


def _write(table: pa.Table, path: Path) -> None:
    pq.write_table(table, path, write_page_index=True, max_rows_per_page=200, use_dictionary=False, row_group_size=1000)


@contextmanager
def service(root: Path) -> Iterator[str]:
    """`needle serve` on a free port; its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "needlepoint", "--lake", str(root), "serve", "--port", str(port)]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    address = f"http://127.0.0.1:{port}"
    try:
        for _ in range(600):
            try:
                urllib.request.urlopen(f"{address}/ready").close()
                break
            except OSError:
                time.sleep(0.05)
        yield address
    finally:
        process.terminate()
        process.wait()


@contextmanager
def chromium() -> Iterator[Browser]:
    from playwright.sync_api import sync_playwright

    found = os.environ.get("NEEDLE_CHROMIUM") or shutil.which("chromium")
    if found is None:
        sys.exit("chromium is not installed; NEEDLE_CHROMIUM may name it")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


def ask(page: Page, sql: str, *, explain: bool = False) -> None:
    page.locator(".cm-content").click()
    page.keyboard.press("Control+a")
    page.keyboard.insert_text(sql)
    page.click("#explain" if explain else "#run")
    page.wait_for_selector("#stop", state="hidden")
    page.locator("#rows .grid, #funnel .funnel").first.wait_for(state="attached")


def pictures(browser: Browser, address: str, folder: Path) -> None:
    def opened(colours: Any, height: int = 820) -> Page:
        size: Any = {"width": 1280, "height": height}
        page = browser.new_context(viewport=size, color_scheme=colours).new_page()
        page.goto(address)
        page.wait_for_selector("#tables .table")
        page.locator("#tables summary", has_text="orders").click()
        return page

    page = opened("light")
    ask(page, GROUPS)
    ask(page, ONE_CUSTOMER)
    page.screenshot(path=folder / "console.png")

    page = opened("light")
    ask(page, LOOKUP)
    page.click("#tab-map")
    page.wait_for_selector("#map canvas")
    page.locator("#map canvas").focus()
    page.keyboard.press("r")
    page.screenshot(path=folder / "console-map.png")

    page = opened("dark", 1040)
    ask(page, LOOKUP)
    page.click("#tab-funnel")
    page.get_by_role("button", name="Compare with a scan").click()
    page.wait_for_selector(".verdict")
    page.locator("#funnel").evaluate("panel => panel.scrollTo(0, 0)")
    page.screenshot(path=folder / "console-dark.png")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=Path, default=IMAGES)
    folder = parser.parse_args().images
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary) / "lake"
        demo_lake(root)
        with service(root) as address, chromium() as browser:
            pictures(browser, address, folder)


if __name__ == "__main__":
    main()
