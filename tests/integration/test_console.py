"""The console: what the service sends for it, and what a user sees in a real browser."""

from __future__ import annotations

import datetime
import decimal
import json
import os
import re
import shutil
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

import httpx
import pyarrow as pa
import pytest
from tests.cases import long
from tests.integration.test_service import process, served
from tests.lakes import LONG_JOIN, staged, write

import needlepoint
from needlepoint.service import ServiceOptions, Tokens

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

CHROMIUM = os.environ.get("NEEDLE_CHROMIUM") or shutil.which("chromium")
in_browser = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed (NEEDLE_CHROMIUM may name it)")

FILES, ROWS = 12, 2000
HOSTILE = "<img src=x onerror=\"document.title='run'\">"
LARGE = 9_007_199_254_740_993  # 2^53 + 1: a float would make it even
LOOKUP = "SELECT id, title FROM product WHERE id = 4321"
CONTRAST = (Path(__file__).parent / "contrast.js").read_text()


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Products by year, and a table of values that are hard to show."""
    root = tmp_path_factory.mktemp("console") / "lake"
    for number in range(FILES):
        rows = _products(range(number * ROWS, (number + 1) * ROWS))
        write(rows, root / "product" / f"year={2020 + number % 3}" / f"p{number}.parquet")
    hard = pa.table(
        {
            "large": pa.array([LARGE, -LARGE, 3]),
            HOSTILE: [HOSTILE, "", None],
            "day": [datetime.date(2024, 2, 29)] * 3,
            "price": pa.array([decimal.Decimal("1234567890123.45")] * 3, pa.decimal128(20, 2)),
            "raw": [b"\x00\xff"] * 3,
            "nested": [{"ids": [LARGE, 1], "name": HOSTILE}] * 3,
        }
    )
    write(hard, root / "hard" / "0.parquet")
    with needlepoint.open(root) as lake:
        lake.create_table("product")
        lake.create_table("hard")
        lake.create_index("product", "id")
        lake.sql("CREATE VIEW cheap AS SELECT id FROM product WHERE price < 1")
    return root


def _products(ids: range) -> pa.Table:
    return pa.table({"id": ids, "title": [f"title {id % 97}" for id in ids], "price": [id % 1000 / 4 for id in ids]})


# Without a browser


@pytest.fixture(scope="module")
def client(root: Path) -> Iterator[httpx.Client]:
    with served(ServiceOptions(lake=str(root))) as client:
        yield client


def test_the_page_and_its_policy(client: httpx.Client) -> None:
    page, again = client.get("/"), client.get("/")
    assert page.status_code == 200 and page.headers["content-type"] == "text/html; charset=utf-8"
    policy = dict(part.split(" ", 1) for part in page.headers["content-security-policy"].split("; "))
    assert policy["default-src"] == policy["frame-ancestors"] == policy["base-uri"] == "'none'"
    assert policy["script-src"] == policy["connect-src"] == "'self'" and policy["form-action"] == "'none'"
    (nonce,) = re.findall(r"^'self' 'nonce-(.+)'$", policy["style-src"])
    assert f'content="{nonce}"' in page.text and nonce not in again.text
    assert page.headers["cache-control"] == "no-store"
    assert page.headers["x-content-type-options"] == "nosniff" and page.headers["referrer-policy"] == "no-referrer"
    assert "//" not in page.text.replace("<!doctype", "")  # nothing is fetched from elsewhere


def test_assets(client: httpx.Client) -> None:
    names = re.findall(r'"/console/([^"]+)"', client.get("/").text)
    assert {"main.js", "style.css", "icon.svg"} == set(names)
    seen = set[str]()
    while names:  # every import leads to a module
        name = names.pop()
        found = client.get(f"/console/{name}")
        assert found.status_code == 200 and found.headers["x-content-type-options"] == "nosniff", name
        if name.endswith(".js") and name not in seen and not name.startswith("vendor/"):
            assert found.headers["content-type"] == "text/javascript; charset=utf-8"
            names += re.findall(r'from "\./([^"]+)"', found.text)
        seen.add(name)
    assert "vendor/codemirror.js" in seen
    assert "MIT" in client.get("/console/vendor/LICENCES.txt").text
    assert len(client.get("/console/vendor/codemirror.js").content) < 500_000


def test_an_asset_is_sent_once(client: httpx.Client) -> None:
    first = client.get("/console/main.js")
    assert first.headers["cache-control"] == "no-cache"
    again = client.get("/console/main.js", headers={"If-None-Match": first.headers["etag"]})
    assert again.status_code == 304 and again.content == b"" and again.headers["etag"] == first.headers["etag"]
    assert client.get("/console/main.js", headers={"If-None-Match": '"other"'}).status_code == 200


@pytest.mark.parametrize(
    "path",
    [
        "",
        "nothing.js",
        "index.html",
        "vendor",
        "../console.py",
        "..%2Fconsole.py",
        "%2e%2e/app.py",
        "vendor/..%2f..%2fapp.py",
        "/etc/passwd",
    ],
)
def test_only_assets_are_sent(client: httpx.Client, path: str) -> None:
    found = client.get(f"/console/{path}")
    assert found.status_code == 404 and found.json()["error"]["message"]


def test_without_a_console(root: Path) -> None:
    with served(ServiceOptions(lake=str(root), console=False)) as client:
        assert client.get("/").status_code == client.get("/console/main.js").status_code == 404
        assert client.get("/v1/tables").status_code == 200


def test_modules_put_no_markup_together() -> None:
    """What a lake holds is text: no module may turn it into elements."""
    folder = Path(needlepoint.__file__).parent / "service" / "assets"
    modules = list(folder.glob("*.js"))
    assert len(modules) > 15
    for module in modules:
        found = re.findall(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", module.read_text()
        )
        assert not found, module.name


# In a browser


@pytest.fixture(scope="module")
def address(root: Path) -> Iterator[str]:
    with process(root, "--seconds", "60") as (client, server):
        # A page that asks for the status again and again would fill the pipe of the log.
        threading.Thread(target=lambda: deque(server.stderr or (), maxlen=0), daemon=True).start()
        yield str(client.base_url).rstrip("/")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


@pytest.fixture
def opened(browser: Browser, address: str) -> Iterator[Callable[..., Page]]:
    """Opens the console. At the end of a test, nothing may have gone wrong in it, or have left the machine."""
    contexts, wrong = [], list[str]()

    def note(message: Any) -> None:
        # Refused requests are part of some tests; the browser names each of them.
        if message.type in ("error", "warning") and not message.text.startswith("Failed to load resource"):
            wrong.append(message.text)

    def open(fragment: str = "", *, at: str = address, tables: bool = True, **options: Any) -> Page:
        contexts.append(browser.new_context(**({"viewport": {"width": 1200, "height": 800}} | options)))
        page = contexts[-1].new_page()
        page.set_default_timeout(10_000)
        page.on("console", note)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("request", lambda request: request.url.startswith((at, "blob:")) or wrong.append(request.url))
        page.goto(f"{at}/{fragment}")
        if tables:
            page.wait_for_selector("#tables .table", state="attached")
        return page

    yield open
    for context in contexts:
        context.close()
    assert not wrong


def typed(page: Page, sql: str) -> None:
    page.locator(".cm-content").focus()
    page.keyboard.press("Control+a")
    page.keyboard.insert_text(sql)


def ask(page: Page, sql: str) -> None:
    typed(page, sql)
    page.keyboard.press("Control+Enter")
    until(page, "said", r"(row|Failed|Stopped)")


def until(page: Page, id: str, pattern: str) -> None:
    """Wait until an element's text matches. Playwright's own way evaluates a text, which the page's policy forbids."""
    for _ in range(1000):
        if re.search(pattern, page.inner_text(f"#{id}")):
            return
        time.sleep(0.01)
    raise AssertionError(f"{page.inner_text(f'#{id}')} does not match {pattern}")


def cells(page: Page, row: int = 1) -> list[str]:
    return page.locator(f"#rows tbody tr:nth-child({row}) td").all_inner_texts()


@in_browser
def test_type_run_and_see_rows(opened: Callable[..., Page]) -> None:
    page = opened()
    assert page.locator("#tables summary").all_inner_texts()[0].startswith("hard")
    typed(page, "")
    page.keyboard.type("SELECT ti", delay=20)
    page.locator(".cm-tooltip-autocomplete li[aria-selected]", has_text="title").wait_for()
    typed(page, "")
    page.keyboard.type("SELECT p.titl", delay=20)
    page.keyboard.press("Escape")
    page.keyboard.type(" FROM pro", delay=20)
    page.locator(".cm-tooltip-autocomplete li[aria-selected]", has_text="product").wait_for()
    page.wait_for_timeout(100)  # CodeMirror ignores an accidental Tab right after it has proposed something
    page.keyboard.press("Tab")
    page.keyboard.type(" p WHERE id = 77")
    for _ in range(len(" FROM product p WHERE id = 77")):
        page.keyboard.press("ArrowLeft")
    page.keyboard.type("e")
    page.keyboard.press("Control+Enter")
    page.wait_for_selector("#rows .grid")
    assert cells(page) == ["title 77"]
    assert re.search(r"1 row in .* files 1 of 12 .* rows 1 of 24,000", page.inner_text("#said"))


@in_browser
def test_read_the_funnel_and_compare_with_a_scan(opened: Callable[..., Page]) -> None:
    page = opened()
    ask(page, LOOKUP)
    page.click("#tab-funnel")
    levels = page.locator("#funnel .levels > div").all_inner_texts()
    assert levels[0].startswith("files\n1 of 12") and levels[3].startswith("rows\n1 of 24,000")
    assert "product_id_key used" in page.inner_text("#funnel .uses")
    assert "read" in page.inner_text("#funnel .bytes")
    page.get_by_role("button", name="Compare with a scan").click()
    page.wait_for_selector("#funnel .verdict")
    assert re.search(r"scan (takes|is faster).*reads .* times as many bytes", page.inner_text("#funnel .verdict"))
    typed(page, "SELECT * FROM product WHERE year = 2021")
    page.keyboard.press("Control+Shift+E")
    until(page, "said", r"Explained")
    assert "4 of 12" in page.inner_text("#funnel .levels") and "to read at most" in page.inner_text("#funnel .bytes")


@in_browser
def test_the_map(opened: Callable[..., Page]) -> None:
    page = opened()
    ask(page, LOOKUP)
    page.keyboard.press("Alt+4")
    page.wait_for_selector("#map canvas")
    legend = page.inner_text("#map .legend")
    assert "some rows read 1" in legend and "skipped by" in legend
    page.locator("#map canvas").focus()
    page.keyboard.press("r")
    assert re.fullmatch(r"1 of 2,000 rows read; .*, 2,000 rows; year=2022/p2.parquet", page.inner_text("#map-said"))
    page.keyboard.press("Enter")
    groups = page.locator("#map .group").all_inner_texts()
    assert len(groups) == 2 and sum("1 of 1,000 rows, 1 of 10 pages" in group for group in groups) == 1
    for _ in range(6):
        page.keyboard.press("ArrowRight")
        page.keyboard.press("ArrowDown")
    assert "skipped by" in page.inner_text("#map-said")
    box = page.locator("#map canvas").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] - 8, box["y"] + box["height"] - 8)
    assert "skipped by" in page.inner_text("#map .tip")
    page.locator("#map canvas").click(position={"x": 10, "y": 8})  # the name of a directory
    assert page.locator("#map .crumbs button").all_inner_texts() == ["all files", "year=2020"]
    page.locator("#map summary").click()
    assert "year=2022/p2.parquet" in page.inner_text("#map .list")


def _large_map(files: int) -> dict[str, Any]:
    """100 directories; one file of each tenth is read."""
    each = files // 100
    directories = [
        {
            "path": f"year={2015 + number // 10}/month={number % 10}",
            "names": [f"part-{file}.parquet" for file in range(each)],
            "bytes": [1_000_000 + 7919 * file % 900_000 for file in range(each)],
            "rows": [None] * each,
            "access": [1 if file == 7 and number % 10 == 3 else 0 for file in range(each)],
            "step": [-1 if file == 7 and number % 10 == 3 else number % 2 for file in range(each)],
        }
        for number in range(100)
    ]
    return {
        "tables": [{"table": "large", "steps": ["by_partition", "by_zone"], "directories": directories, "pages": {}}]
    }


@in_browser
def test_the_map_of_100_000_files(opened: Callable[..., Page]) -> None:
    page = opened()
    body = json.dumps(_large_map(100_000))
    page.route("**/v1/map", lambda route: route.fulfill(body=body, content_type="application/json"))
    ask(page, LOOKUP)
    page.click("#tab-map")
    page.wait_for_selector("#map canvas")
    assert "10 of 100,000 files read" in page.inner_text("#map")
    # Read files are about two pixels wide, and stand out: many pixels have the colour of what is read.
    lit = """() => { const canvas = document.querySelector("#map canvas");
        const {data} = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
        let lit = 0;
        for (let at = 0; at < data.length; at += 4) lit += data[at] < 90 && data[at + 2] > 190;
        return lit }"""
    assert page.evaluate(lit) > 10 * 12
    page.locator("#map canvas").focus()
    page.keyboard.press("r")
    page.keyboard.press("Enter")
    assert page.locator("#map .crumbs button").all_inner_texts()[-1] == "month=3"
    assert "part-7.parquet" in page.inner_text("#map .file")


@in_browser
def test_sort_page_and_download(opened: Callable[..., Page], tmp_path: Path) -> None:
    page = opened()
    ask(page, "SELECT id, title FROM product WHERE id < 250 ORDER BY id")
    assert page.inner_text("#rows .pages") == "1 / 3" and cells(page)[0] == "0"
    page.get_by_role("button", name="Next page").click()
    assert cells(page)[0] == "100"
    page.locator("#rows tbody td").first.focus()
    page.keyboard.press("PageDown")
    assert cells(page)[0] == "200"
    page.locator("#rows thead button", has_text="id").click()
    page.locator("#rows thead button", has_text="id").click()
    assert cells(page)[0] == "249" and page.get_attribute("#rows thead th:nth-child(2)", "aria-sort") == "descending"
    page.locator("#rows tbody td").first.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    assert page.evaluate("document.activeElement.textContent") == "title 54"
    page.keyboard.press("Enter")
    assert page.inner_text("#dialog .value") == "title 54"
    page.keyboard.press("Escape")
    for choice, check in (("CSV", _is_csv), ("Arrow", _is_arrow)):
        with page.expect_download() as waiting:
            page.select_option("#rows .download", choice)
        path = tmp_path / waiting.value.suggested_filename
        waiting.value.save_as(path)
        check(path)


def _is_csv(path: Path) -> None:
    assert path.name == "result.csv" and len(path.read_text().splitlines()) == 251


def _is_arrow(path: Path) -> None:
    assert pa.ipc.open_stream(path.read_bytes()).read_all().num_rows == 250


@in_browser
def test_more_rows_than_a_grid_shows(opened: Callable[..., Page]) -> None:
    page = opened()
    ask(page, "SELECT id FROM product")
    assert page.inner_text("#rows .size") == "first 10,000 of 24,000 rows"
    ask(page, "SELECT repeat(a.title, 50) AS long, b.id FROM product a, product b")
    assert page.inner_text("#rows .size") == "first 10,000 rows; the answer has more"
    page.click("#tab-activity")
    until(page, "activity", r"None")
    ask(page, "SELECT b.id FROM product a, product b")
    assert "more than 1,000,000 rows" in page.inner_text("#problem")
    page.get_by_role("button", name="Add LIMIT 10000 and run").click()
    until(page, "said", "10,000 rows in")
    assert page.inner_text("#rows .size") == "10,000 rows"


@in_browser
def test_a_chart_in_one_click(opened: Callable[..., Page]) -> None:
    page = opened()
    ask(page, "SELECT title, count(*) AS n FROM product WHERE id < 500 GROUP BY title ORDER BY title LIMIT 8")
    page.locator("#rows").get_by_role("button", name="Chart").click()
    assert page.locator("#chart rect.mark").count() == 8
    page.get_by_role("button", name="line").click()
    assert page.locator("#chart path.stroke").count() == 1
    page.locator("#chart svg").focus()
    page.keyboard.press("ArrowRight")
    assert re.fullmatch(r"title \d+: \d+", page.inner_text("#chart .tip"))
    ask(page, "SELECT price, id FROM product WHERE id < 100")
    assert page.locator("#chart path.dots, #chart rect.mark").count() > 0


@in_browser
def test_wrong_sql(opened: Callable[..., Page]) -> None:
    page = opened()
    ask(page, "SELECT title FROM prodct")
    assert "unknown table 'prodct' at line 1, column 19" in page.inner_text("#problem")
    assert "Did you mean 'product'?" in page.inner_text("#problem")
    page.get_by_role("button", name="Go there").click()
    page.keyboard.press("Control+Space")
    ask(page, LOOKUP)
    assert page.is_hidden("#problem") and cells(page) == ["4321", "title 53"]
    page.click("#tab-past")
    assert "unknown table" in page.inner_text("#past") and "1 row" in page.inner_text("#past")


@in_browser
def test_values_are_shown_exactly_and_as_text(opened: Callable[..., Page]) -> None:
    page = opened()
    ask(page, "SELECT * FROM hard ORDER BY large DESC")
    assert page.locator("#rows thead .name").all_inner_texts()[1] == HOSTILE
    shown = cells(page)
    assert shown[:2] == [str(LARGE), HOSTILE] and shown[2:5] == ["2024-02-29", "1234567890123.45", "0x00ff"]
    assert shown[5] == f'{{"ids": [{LARGE}, 1], "name": {json.dumps(HOSTILE)}}}'
    texts = page.locator("#rows tbody td:nth-child(3)")
    assert texts.all_inner_texts() == [HOSTILE, "NULL", "''"]
    assert texts.nth(1).get_attribute("class") == "null" and texts.nth(2).get_attribute("class") == "empty"
    page.locator("#tables summary", has_text="hard").click()
    page.locator("#tables button.column", has_text="img").click()  # puts the quoted name into the query
    page.get_by_role("tab", name="Chart").click()
    ask(page, f"SELECT '{HOSTILE.replace(chr(39), chr(39) * 2)}' AS x, 1 AS n FROM nothing_of_this")
    ask(page, f'SELECT 1 AS "{HOSTILE.replace(chr(34), chr(34) * 2)}", id FROM product LIMIT 3')
    assert page.title() == "Needlepoint" and page.locator("img").count() == 0


@in_browser
def test_a_shared_link_does_not_run(opened: Callable[..., Page]) -> None:
    sent = list[str]()
    page = opened(f"#sql={quote(LOOKUP)}", tables=False)
    page.on("request", lambda request: sent.append(urlsplit(request.url).path))
    page.wait_for_selector("#tables .table")
    page.wait_for_timeout(500)
    assert page.inner_text(".cm-content") == LOOKUP and "/v1/sql" not in sent and page.locator(".grid").count() == 0
    page.click("#run")
    page.wait_for_selector("#rows .grid")
    assert page.evaluate("decodeURIComponent(location.hash)") == f"#sql={LOOKUP}"
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.click("#tab-past")
    page.locator("#past").get_by_role("button", name="Copy link").click()
    until(page, "past", "copied")
    assert page.evaluate("navigator.clipboard.readText()") == page.url
    cut_off = opened("#sql=%E0%A4%A")
    assert cut_off.inner_text(".cm-content") == "SELECT * FROM cheap LIMIT 100"


@in_browser
def test_a_token_is_asked_for(opened: Callable[..., Page], root: Path, tmp_path: Path) -> None:
    tokens = Tokens(tmp_path / "tokens.json")
    secret = tokens.create("shop", ["product"], None)
    with served(ServiceOptions(lake=str(root), tokens=str(tmp_path / "tokens.json"))) as client:
        page = opened(at=str(client.base_url).rstrip("/"), tables=False)
        page.wait_for_selector("#token")
        page.keyboard.press("Escape")
        until(page, "lag-text", "no token")
        assert page.is_hidden("#dialog")
        typed(page, LOOKUP)
        page.keyboard.press("Control+Enter")  # asks again
        page.fill("#token", "wrong")
        page.keyboard.press("Enter")
        until(page, "dialog", r"does not accept")
        page.fill("#token", secret)
        page.keyboard.press("Enter")
        page.wait_for_selector("#tables .table")
        assert "hard" not in page.inner_text("#tables")
        ask(page, LOOKUP)
        assert cells(page) == ["4321", "title 53"]
        assert page.evaluate("JSON.stringify(localStorage)").count(secret) == 0


@in_browser
def test_the_lake_in_the_side_panel(opened: Callable[..., Page]) -> None:
    page = opened()
    page.locator("#tables summary", has_text="product").click()
    text = page.locator("#tables .table", has_text="product_id_key").inner_text()
    assert "24,000 rows, 12 files" in text and "12 of 12 files" in text and "partition" in text
    assert "view" in page.locator("#tables summary", has_text="cheap").inner_text()
    assert page.inner_text("#lag-text") == "up to date"
    page.click("#tab-advice")
    page.wait_for_selector("#advice .advice")
    assert "needle" in page.inner_text("#advice") or "Nothing to advise" in page.inner_text("#advice")
    page.locator("body").press("?")
    assert "Run the query" in page.inner_text("#dialog")


@in_browser
@pytest.mark.parametrize("colours", ["dark", *long("light")])
def test_contrast_and_colours(opened: Callable[..., Page], colours: Any) -> None:
    page = opened(color_scheme=colours)
    other = {"light": "dark", "dark": "light"}[colours]
    page.locator("#tables summary", has_text="product").click()
    ask(page, "SELECT *, 'a' AS text, NULL AS none FROM product WHERE id < 5 -- some")
    page.locator("#rows tbody td").first.focus()
    for panel in ("rows", "chart", "funnel", "map"):
        page.click(f"#tab-{panel}")
        page.wait_for_timeout(150)
        count, low = page.evaluate(CONTRAST)
        assert count > 40 and low == [], panel
    for panel in ("past", "advice", "activity"):
        page.click(f"#tab-{panel}")
        page.wait_for_timeout(150)
        assert page.evaluate(CONTRAST)[1] == [], panel
    ask(page, "SELECT nothing FROM product")
    assert page.evaluate(CONTRAST)[1] == []

    def background() -> str:
        return str(page.evaluate("getComputedStyle(document.body).backgroundColor"))

    before = background()
    while page.inner_text("#theme-text").lower() != other:
        page.click("#theme")
    assert background() != before
    changed = background()
    page.reload()
    assert background() == changed  # it is remembered


@in_browser
def test_a_phone(opened: Callable[..., Page]) -> None:
    page = opened(viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)

    def fits() -> bool:
        return bool(page.evaluate("document.documentElement.scrollWidth <= 390"))

    ask(page, "SELECT id, title, price, year, title AS again, price * 2 AS double FROM product WHERE id < 60")
    assert fits() and cells(page)[0] == "0"
    for panel in ("chart", "funnel", "map"):
        page.click(f"#tab-{panel}")
        page.wait_for_timeout(150)
        assert fits(), panel
    assert page.is_hidden("#side")
    page.click("#menu")
    assert page.is_visible("#tables") and fits()
    page.locator("#tables summary", has_text="product").click()
    assert fits()
    page.get_by_role("button", name="First 100 rows").click()
    assert page.is_hidden("#side") and page.inner_text(".cm-content") == "SELECT * FROM product LIMIT 100"


@in_browser
def test_the_lag_of_the_indexer_is_live(opened: Callable[..., Page], root: Path) -> None:
    page = opened()
    page.click("#lag")
    assert page.inner_text("#lag-text") == "up to date"
    with needlepoint.open(root) as lake:
        staging = Path(lake.writer.staging("product"))
        lake.publish("product", staged(staging, {"year=2020/new.parquet": _products(range(900_000, 900_005))}), staging)
        until(page, "lag-text", "1 event waiting")
        assert "product: 1 file not indexed yet" in page.inner_text("#activity")
        assert len(list(lake.follow_events(once=True))) == 1
    until(page, "lag-text", "up to date")


@in_browser
def test_stop_a_query(opened: Callable[..., Page], address: str) -> None:
    """The last test: a join of three tables goes on in the background for a while."""
    page = opened()
    typed(page, LONG_JOIN)
    page.keyboard.press("Control+Enter")
    until(page, "clock", r"[1-9]")
    page.keyboard.press("Escape")
    page.wait_for_selector("#stop", state="hidden")
    assert "stopped" in page.inner_text("#problem")
    page.click("#tab-activity")
    typed(page, LONG_JOIN)
    page.keyboard.press("Control+Enter")
    page.locator("#activity").get_by_role("button", name="Stop").click()
    page.wait_for_selector("#stop", state="hidden")
    assert "cancelled" in page.inner_text("#problem")
    assert httpx.get(f"{address}/v1/queries").json() == {"queries": []}
