// The tables with their sizes, columns and indexes; a click puts a name into the query.

import { quoted } from "./completion.js";
import { element, show } from "./dom.js";
import { bytes, count, counted, percent } from "./format.js";

export class TablesPanel {
  /** `insert(text)` writes at the cursor, `ask(sql)` replaces the query. */
  constructor(target, { insert, ask }) {
    Object.assign(this, { _target: target, _insert: insert, _ask: ask, _open: new Set(), _shown: "" });
    show(target, element("p", { class: "nothing" }, "…"));
  }

  /** `names` is what /v1/completion says, `status` what /v1/status says. */
  set(names, status) {
    const state = JSON.stringify([names.tables, status.tables]);
    if (state === this._shown) return; // what the user reads does not jump
    if (this._shown === "" && status.tables.length === 1) this._open.add(status.tables[0].name);
    this._shown = state;
    const known = new Set(status.tables.map(({ name }) => name));
    const views = Object.keys(names.tables).filter((name) => !known.has(name));
    const parts = [
      ...status.tables.map((table) => this._table(table, names.tables[table.name] ?? [])),
      ...views.map((name) => this._view(name, names.tables[name])),
    ];
    show(this._target, parts.length ? parts : element("p", { class: "nothing" }, "The lake has no table yet."));
  }

  _foldable(name, size, ...content) {
    const details = element(
      "details",
      { class: "table", open: this._open.has(name) },
      element("summary", {}, element("span", { class: "name" }, name), element("span", { class: "muted" }, size)),
      ...content,
    );
    details.addEventListener("toggle", () => (details.open ? this._open.add(name) : this._open.delete(name)));
    return details;
  }

  _table(table, columns) {
    const waiting = table.files - table.indexed + table.unknown;
    const facts = [
      counted(table.rows, "row"),
      counted(table.files, "file"),
      table.format === "parquet" ? "" : `${table.format} ${table.version}`.trim(),
      table.passed_over ? `${count(table.passed_over)} passed over` : "",
    ];
    return this._foldable(
      table.name,
      bytes(table.bytes),
      element("p", { class: "muted" }, facts.filter(Boolean).join(", ")),
      table.problem ? element("p", { class: "wrong" }, table.problem) : null,
      waiting > 0 && table.indexes.length
        ? element("p", { class: "wrong" }, `${counted(waiting, "file")} not indexed yet`)
        : null,
      this._first(table.name),
      this._columns(columns, new Set(table.partitions)),
      table.indexes.length
        ? [
            element("h2", { class: "label" }, "Indexes"),
            element(
              "ul",
              { class: "indexes" },
              table.indexes.map((index) => indexLine(index, table.files)),
            ),
          ]
        : element("p", { class: "muted" }, "No index."),
    );
  }

  _view(name, columns) {
    return this._foldable(name, "view", this._first(name), this._columns(columns, new Set()));
  }

  _first(name) {
    return element(
      "button",
      { type: "button", class: "link", onclick: () => this._ask(`SELECT * FROM ${quoted(name)} LIMIT 100`) },
      "First 100 rows",
    );
  }

  _columns(columns, partitions) {
    const line = ({ name, type }) =>
      element(
        "li",
        {},
        element(
          "button",
          { type: "button", class: "column", title: "Put into the query", onclick: () => this._insert(quoted(name)) },
          element("span", {}, name),
          element("span", { class: "muted" }, partitions.has(name) ? `${type}, partition` : type),
        ),
      );
    return element("ul", { class: "names" }, columns.map(line));
  }
}

function indexLine(index, files) {
  const meter = element(
    "span",
    { class: "track", role: "img", "aria-label": `covers ${percent(index.files, files)} of the files` },
    element("span", { class: "fill" }),
  );
  meter.firstChild.style.width = `${files ? Math.min(100, (100 * index.files) / files) : 0}%`;
  const facts = [
    index.kind,
    index.embedded ? "in the files" : "",
    bytes(index.bytes),
    index.entries ? `${count(index.entries)} entries` : "",
  ];
  return element(
    "li",
    {},
    element("span", { class: "name" }, index.name),
    element("span", { class: "muted" }, facts.filter(Boolean).join(", ")),
    element(
      "span",
      { class: "coverage" },
      meter,
      element("span", {}, `${count(index.files)} of ${counted(files, "file")}`),
    ),
  );
}
