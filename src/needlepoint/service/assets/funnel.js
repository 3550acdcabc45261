// The funnel as a picture: how wide the lake is at each level, and how thin the thread is that a query reads.

import { element, shape, show } from "./dom.js";
import { bytes, count, counted, percent } from "./format.js";
import { stepWord } from "./steps.js";

const [WIDTH, HEIGHT] = [800, 150]; // of the drawing; it stretches to the page

/** One line for the bar below the editor: the largest table. */
export function summary(report) {
  const table = [...report.tables].sort((a, b) => (b.bytes.total ?? 0) - (a.bytes.total ?? 0))[0];
  if (!table) return "no table is read";
  const of = (name, { read, total }) => `${name} ${count(read)} of ${total === null ? "?" : count(total)}`;
  const more = report.tables.length > 1 ? ` and ${counted(report.tables.length - 1, "more table")}` : "";
  return `${of("files", table.files)} → pages ${of("", table.pages).trim()} → rows ${of("", table.rows).trim()}; ${readText(report, table)}${more}`;
}

function readText(report, table) {
  return `${report.executed ? "read" : "would read at most"} ${bytes(table.bytes.read)} of ${bytes(table.bytes.total ?? 0)}`;
}

/** All tables of a report; `extra` comes after them (the cost of a scan). */
export function drawFunnel(target, report, extra) {
  const parts = report.tables.map((table) => tablePart(report, table));
  const none = element("p", { class: "nothing" }, "The query reads no table.");
  show(target, parts.length ? parts : none, extra);
}

function tablePart(report, table) {
  const levels = [
    ["files", table.files],
    ["row groups", table.row_groups],
    ["pages", table.pages],
    ["rows", table.rows],
  ];
  return element(
    "section",
    { class: "funnel", "aria-label": `What is read of ${table.table}` },
    element(
      "h2",
      {},
      table.table,
      table.version ? element("span", { class: "muted" }, ` version ${table.version}`) : null,
    ),
    picture(levels),
    element(
      "dl",
      { class: "levels" },
      levels.map(([name, level]) => levelText(name, level)),
    ),
    bytesBar(report, table),
    element("div", { class: "columns" }, stepsPart(table), indexesPart(table)),
    notesPart(table),
  );
}

function levelText(name, { read, total }) {
  const share = total ? percent(read, total) : "";
  return element(
    "div",
    {},
    element("dt", {}, name),
    element("dd", {}, element("b", {}, count(read)), ` of ${total === null ? "unknown" : count(total)}`),
    element("dd", { class: "muted" }, share),
  );
}

/** Widths are fourth roots: one row of a million is three hundredths, where a true width would be nothing to look at. */
const thickness = (number, most) => (number <= 0 ? 0 : Math.max(3, (HEIGHT - 10) * (number / most) ** 0.25));

function picture(levels) {
  const most = Math.max(10, ...levels.map(([, { read, total }]) => Math.max(read, total ?? 0)));
  const there = levels.map(([, { read, total }]) => thickness(total ?? read, most));
  const read = levels.map(([, level]) => thickness(level.read, most));
  const label = levels.map(([name, { read, total }]) => `${name} ${read} of ${total ?? "unknown"}`).join(", ");
  return shape(
    "svg",
    {
      viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
      preserveAspectRatio: "none",
      class: "thread",
      role: "img",
      "aria-label": label,
    },
    shape("path", { d: band(there), class: "there" }),
    shape("path", { d: band(read), class: "read" }),
    [1, 2, 3].map((at) =>
      shape("line", { x1: (WIDTH / 4) * at, x2: (WIDTH / 4) * at, y1: 0, y2: HEIGHT, class: "cut" }),
    ),
  );
}

/** A band around the middle: level for most of each quarter, with a curve to the next. */
function band(widths) {
  const quarter = WIDTH / 4;
  const middle = HEIGHT / 2;
  const edge = (sign, order) => {
    const points = widths.map((width, at) => [at * quarter, (at + 1) * quarter, middle + (sign * width) / 2]);
    if (order < 0) points.reverse();
    return points
      .map(([from, to, y], at) => {
        const [first, last] = order > 0 ? [from, to] : [to, from];
        const bend = order * quarter * 0.18;
        const before = points[at - 1];
        const join = before ? `C${first} ${before[2]} ${first} ${y} ${first + bend} ${y}` : `L${first} ${y}`;
        return `${join}L${points[at + 1] ? last - bend : last} ${y}`;
      })
      .join("");
  };
  return `M0 ${middle}${edge(-1, 1)}${edge(1, -1)}Z`;
}

function bytesBar(report, { bytes: level, filter_bytes: filters, cached_bytes: cached, requests }) {
  const share = level.total ? Math.min(1, level.read / level.total) : 0;
  const fill = element("span", { class: "fill" });
  fill.style.width = `${share * 100}%`;
  const more = [
    requests ? counted(requests, "request") : "",
    cached ? `${bytes(cached)} from the cache` : "",
    filters ? `${bytes(filters)} for bloom filters` : "",
  ].filter(Boolean);
  return element(
    "div",
    { class: "bytes" },
    element(
      "div",
      { class: "bar-text" },
      element(
        "span",
        {},
        element("b", {}, `${bytes(level.read)} ${report.executed ? "read" : "to read at most"}`),
        level.total === null ? "" : ` of ${bytes(level.total)} there`,
      ),
      element(
        "span",
        { class: "muted" },
        [level.total ? percent(level.read, level.total) : "", ...more].filter(Boolean).join(", "),
      ),
    ),
    element(
      "div",
      { class: "track", role: "img", "aria-label": `bytes: ${percent(level.read, level.total)}` },
      level.read ? fill : null,
    ),
  );
}

function stepsPart({ steps, files }) {
  const narrowing = steps.filter((step) => step.rows_after < step.rows_before || step.files_after < step.files_before);
  if (!narrowing.length)
    return element(
      "div",
      {},
      element("h3", {}, "Steps"),
      element("p", { class: "muted" }, "No step could rule anything out."),
    );
  const most = Math.max(files.total ?? 0, narrowing[0].files_before);
  const rows = narrowing.map((step) => {
    const track = element("span", { class: "track", "aria-hidden": "true" }, element("span", { class: "fill" }));
    track.firstChild.style.width = `${(100 * step.files_after) / (most || 1)}%`;
    return element(
      "tr",
      {},
      element("th", { scope: "row", title: step.step }, stepWord(step.step)),
      element("td", {}, track),
      element("td", { class: "number" }, counted(step.files_after, "file")),
      element("td", { class: "number" }, counted(step.rows_after, "row")),
    );
  });
  return element(
    "div",
    {},
    element("h3", {}, "What each step leaves"),
    element("div", { class: "scroller" }, element("table", { class: "steps" }, element("tbody", {}, rows))),
  );
}

function indexesPart({ indexes }) {
  if (!indexes.length)
    return element(
      "div",
      {},
      element("h3", {}, "Indexes"),
      element("p", { class: "muted" }, "The table has no index for this query."),
    );
  const rows = indexes.map((use) =>
    element(
      "li",
      { class: use.used ? "used" : "" },
      element("b", {}, use.index),
      ` ${use.used ? "used" : "not used"}`,
      element("span", { class: "muted" }, `: ${use.why}`),
    ),
  );
  return element("div", {}, element("h3", {}, "Indexes"), element("ul", { class: "uses" }, rows));
}

function notesPart(table) {
  const ways = [
    counted(table.page_read_files, "file") + " by page",
    table.row_group_files ? `${count(table.row_group_files)} by row group` : "",
    `${count(table.scanned_files)} by native scan`,
  ];
  const notes = [
    `Read: ${ways.filter(Boolean).join(", ")}.`,
    table.scanned_files ? "Row groups and pages of scanned files are not counted." : "",
    ...table.notes.map((note) => `Read whole: ${note}`),
    table.unfinished.length ? `Passed over: ${counted(table.unfinished.length, "file")} without a footer.` : "",
    table.unnamed.length ? `Passed over: ${counted(table.unnamed.length, "file")} whose path readers cannot name.` : "",
    "The bar of bytes is to scale; the widths above it are compressed (fourth roots), so that one row of millions can be seen.",
  ];
  return element("p", { class: "muted notes" }, notes.filter(Boolean).join(" "));
}
