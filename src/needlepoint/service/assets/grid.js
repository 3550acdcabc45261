// The rows of a result: pages, sorting, keys. Sorting is that of the rows that are here.

import { showValue } from "./dialogs.js";
import { copy, element, show } from "./dom.js";
import { count, counted } from "./format.js";
import { cellClass, cellText, compare, isNumber, nested, text } from "./values.js";

const PAGE_SIZES = [25, 100, 500];

export class Grid {
  constructor(target, tools = []) {
    this._target = target;
    this._tools = tools; // more buttons in the bar, such as download
    this._pageSize = 100;
    this.clear();
  }

  clear(message = "Run a query to see its rows.") {
    this._columns = [];
    show(this._target, element("p", { class: "nothing" }, message));
  }

  /** `total` is null when the answer has more rows than were read. */
  set({ columns, rows, total }) {
    Object.assign(this, { _columns: columns, _rows: rows, _total: total, _sorted: rows, _sort: null, _page: 0 });
    this._cell = [0, 0];
    this._draw();
  }

  _draw(focus = false) {
    const top = element(
      "div",
      { class: "bar" },
      this._sizeText(),
      element("span", { class: "grow" }),
      this._paging(),
      ...this._tools,
    );
    const from = this._page * this._pageSize;
    const shown = this._sorted.slice(from, from + this._pageSize);
    const table = element(
      "table",
      {
        role: "grid",
        class: "grid",
        "aria-rowcount": this._sorted.length + 1,
        "aria-colcount": this._columns.length,
        "aria-label": "Rows",
      },
      element(
        "thead",
        {},
        element(
          "tr",
          { "aria-rowindex": 1 },
          element("th", { class: "place", scope: "col" }, element("span", { class: "offscreen" }, "Row")),
          this._columns.map((column, at) => this._head(column, at)),
        ),
      ),
      element(
        "tbody",
        {},
        shown.map((row, at) => this._row(row, from + at)),
      ),
    );
    table.addEventListener("keydown", (event) => this._key(event));
    table.addEventListener("dblclick", (event) => this._open(event.target.closest("td")));
    const scroller = element("div", { class: "scroller" }, table);
    const none = this._rows.length ? null : element("p", { class: "nothing" }, "No rows.");
    show(this._target, top, scroller, none);
    this._focusable(focus);
  }

  _sizeText() {
    const { length } = this._rows;
    if (this._total === null)
      return element("span", { class: "size" }, `first ${counted(length, "row")}; the answer has more`);
    if (this._total > length)
      return element("span", { class: "size" }, `first ${count(length)} of ${counted(this._total, "row")}`);
    return element("span", { class: "size" }, counted(length, "row"));
  }

  _head({ name, type }, at) {
    const direction = this._sort?.at === at ? this._sort.direction : 0;
    const state = { 0: "none", 1: "ascending", [-1]: "descending" }[direction];
    const mark = element("span", { class: "mark", "aria-hidden": "true" }, { 0: "", 1: "↑", [-1]: "↓" }[direction]);
    const button = element(
      "button",
      { type: "button", title: `${type}; click to sort`, onclick: () => this._sortBy(at) },
      element("span", { class: "name" }, name),
      element("span", { class: "type" }, type),
      mark,
    );
    return element("th", { scope: "col", "aria-sort": state, class: isNumber(type) ? "number" : "" }, button);
  }

  _row(row, at) {
    const cells = this._columns.map(({ name, type }) => {
      const value = row[name];
      return element(
        "td",
        { role: "gridcell", tabindex: "-1", class: cellClass(value, type) },
        value === "" ? "''" : cellText(value, type),
      );
    });
    return element(
      "tr",
      { "aria-rowindex": at + 2 },
      element("th", { class: "place", scope: "row" }, count(at + 1)),
      cells,
    );
  }

  _paging() {
    const pages = Math.max(1, Math.ceil(this._sorted.length / this._pageSize));
    const to = (page) => () => this._turn(page);
    const button = (label, sign, page, off) =>
      element(
        "button",
        { type: "button", class: "quiet", "aria-label": label, title: label, disabled: off, onclick: to(page) },
        sign,
      );
    const size = element("select", {
      "aria-label": "Rows a page",
      onchange: (event) => this._resize(Number(event.target.value)),
    });
    size.append(
      ...PAGE_SIZES.map((each) =>
        element("option", { value: each, selected: each === this._pageSize }, `${each} a page`),
      ),
    );
    return element(
      "span",
      { class: "paging" },
      size,
      button("First page", "«", 0, this._page === 0),
      button("Previous page", "‹", this._page - 1, this._page === 0),
      element("span", { class: "pages" }, `${count(this._page + 1)} / ${count(pages)}`),
      button("Next page", "›", this._page + 1, this._page >= pages - 1),
      button("Last page", "»", pages - 1, this._page >= pages - 1),
    );
  }

  _resize(size) {
    this._page = Math.floor((this._page * this._pageSize) / size);
    this._pageSize = size;
    this._draw();
  }

  _turn(page, focus = false) {
    const last = Math.max(0, Math.ceil(this._sorted.length / this._pageSize) - 1);
    this._page = Math.min(last, Math.max(0, page));
    this._cell = [0, this._cell[1]];
    this._draw(focus);
  }

  /** Ascending, descending, as it came. */
  _sortBy(at) {
    const before = this._sort?.at === at ? this._sort.direction : 0;
    const direction = { 0: 1, 1: -1, [-1]: 0 }[before];
    this._sort = direction ? { at, direction } : null;
    this._sorted = direction ? sorted(this._rows, this._columns[at], direction) : this._rows;
    this._page = 0;
    this._draw();
    this._target.querySelectorAll("thead button")[at].focus();
  }

  // One cell is in the tab order; arrows move it, as ARIA's grid asks.

  _cells() {
    return [...this._target.querySelectorAll("tbody tr")].map((row) => row.querySelectorAll("td"));
  }

  _focusable(focus) {
    const cell = this._cells()[this._cell[0]]?.[this._cell[1]];
    if (!cell) return;
    cell.tabIndex = 0;
    if (focus) cell.focus();
  }

  _key(event) {
    if (event.target.tagName !== "TD") return;
    const cells = this._cells();
    let row = cells.findIndex((each) => [...each].includes(event.target));
    let column = [...cells[row]].indexOf(event.target);
    if ((event.ctrlKey || event.metaKey) && event.key === "c" && !String(getSelection()))
      return void copy(this._whole(row, column));
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    switch (event.key) {
      case "ArrowDown":
        row += 1;
        break;
      case "ArrowUp":
        row -= 1;
        break;
      case "ArrowRight":
        column += 1;
        break;
      case "ArrowLeft":
        column -= 1;
        break;
      case "Home":
        column = 0;
        break;
      case "End":
        column = this._columns.length - 1;
        break;
      case "PageDown":
        event.preventDefault();
        return this._turn(this._page + 1, true);
      case "PageUp":
        event.preventDefault();
        return this._turn(this._page - 1, true);
      case "Enter":
        event.preventDefault();
        return this._open(event.target);
      default:
        return;
    }
    event.preventDefault();
    const next = cells[row]?.[column];
    if (!next) return;
    event.target.tabIndex = -1;
    this._cell = [row, column];
    this._focusable(true);
  }

  _value(row, column) {
    return this._sorted[this._page * this._pageSize + row][this._columns[column].name];
  }

  _whole(row, column) {
    return text(this._value(row, column), this._columns[column].type);
  }

  _open(cell) {
    if (!cell) return;
    const row = [...cell.closest("tbody").rows].indexOf(cell.parentElement);
    const column = [...cell.parentElement.querySelectorAll("td")].indexOf(cell);
    const value = this._value(row, column);
    const { name, type } = this._columns[column];
    showValue(name, type, value !== null && typeof value === "object" ? nested(value, "  ") : text(value, type));
  }
}

/** Sorted rows, with NULL last in either direction. */
function sorted(rows, { name, type }, direction) {
  const there = rows.filter((row) => row[name] !== null);
  there.sort((a, b) => direction * compare(a[name], b[name], type));
  return [...there, ...rows.filter((row) => row[name] === null)];
}
