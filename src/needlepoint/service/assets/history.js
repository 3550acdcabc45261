// The queries that were asked in this browser. They stay here: only a link that is copied takes one elsewhere.

import { copy, element, show } from "./dom.js";
import { ago, bytes, counted, duration } from "./format.js";

const KEY = "needlepoint-history";
const MOST = 200;
const PREFIX = "#sql=";

/** The address of a query. Opening it fills the editor, and runs nothing. */
export const linkTo = (sql) => `${location.origin}${location.pathname}${PREFIX}${encodeURIComponent(sql)}`;

/** The query in the address of this page, or null. */
export function sqlOfLink() {
  if (!location.hash.startsWith(PREFIX)) return null;
  try {
    return decodeURIComponent(location.hash.slice(PREFIX.length));
  } catch {
    return null; // a link that was cut off in the middle of a character
  }
}

export class QueryHistory {
  /** `chosen(sql)` is called with the query that the user takes up again. */
  constructor(target, chosen) {
    Object.assign(this, { _target: target, _chosen: chosen, _entries: stored() });
    this.draw();
  }

  /** `entry`: sql, seconds, rows, read and there in bytes, or error. The same query again moves to the top. */
  add(entry) {
    this._entries = [{ ...entry, at: Date.now() }, ...this._entries.filter((each) => each.sql !== entry.sql)].slice(
      0,
      MOST,
    );
    this._store();
  }

  _store() {
    try {
      localStorage.setItem(KEY, JSON.stringify(this._entries));
    } catch {
      // full or closed: then the history lasts as long as the page
    }
    this.draw();
  }

  draw() {
    if (!this._entries.length)
      return show(this._target, element("p", { class: "nothing" }, "Queries that you run are listed here."));
    const clear = element(
      "button",
      { type: "button", class: "quiet", onclick: () => ((this._entries = []), this._store()) },
      "Clear",
    );
    const top = element(
      "div",
      { class: "bar" },
      element("span", { class: "muted" }, `${counted(this._entries.length, "query", "queries")}, kept in this browser`),
      element("span", { class: "grow" }),
      clear,
    );
    show(
      this._target,
      top,
      element(
        "ol",
        { class: "past" },
        this._entries.map((entry) => this._line(entry)),
      ),
    );
  }

  _line(entry) {
    const said = entry.error
      ? element("span", { class: "wrong" }, entry.error)
      : `${counted(entry.rows, "row")}, ${duration(entry.seconds)}${entry.read === undefined ? "" : `, ${bytes(entry.read)} read`}`;
    const link = element(
      "button",
      { type: "button", class: "quiet", "aria-label": "Copy link", title: "Copy a link to this query" },
      "link",
    );
    link.addEventListener(
      "click",
      async () => (link.textContent = (await copy(linkTo(entry.sql))) ? "copied" : "no clipboard"),
    );
    return element(
      "li",
      {},
      element(
        "button",
        { type: "button", class: "sql", title: entry.sql.slice(0, 2000), onclick: () => this._chosen(entry.sql) },
        entry.sql.slice(0, 300),
      ),
      element(
        "div",
        { class: "bar" },
        element("span", { class: "muted" }, ago(entry.at), " · ", said),
        element("span", { class: "grow" }),
        link,
      ),
    );
  }
}

function stored() {
  try {
    const found = JSON.parse(localStorage.getItem(KEY) ?? "[]");
    return Array.isArray(found) ? found.filter((entry) => typeof entry?.sql === "string") : [];
  } catch {
    return [];
  }
}
