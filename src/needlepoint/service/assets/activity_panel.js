// What happens now: how far the indexer is behind, and the queries that run, each with a button that stops it.

import { cancel, get } from "./api.js";
import { byId, element, shape, show } from "./dom.js";
import { count, counted, duration } from "./format.js";

const MOST_POINTS = 120; // of the line of waiting events
const [OFTEN, SELDOM] = [1000, 5000]; // milliseconds, with the panel open and without

export class ActivityPanel {
  /** `noted(status)` is called with every new status of the lake. */
  constructor(target, { noted, isShown }) {
    Object.assign(this, { _noted: noted, _isShown: isShown, _past: [] });
    this._lag = element("div");
    this._queries = element("div", { "aria-live": "polite" });
    show(target, element("h2", {}, "Indexer"), this._lag, element("h2", {}, "Running queries"), this._queries);
  }

  /** Ask again and again, while someone looks. */
  start() {
    let [last, took, busy] = [-Infinity, 0, false];
    const look = async () => {
      // A lake whose status takes long is asked less often.
      const wait = Math.max(this._isShown() ? OFTEN : SELDOM, Math.min(10 * took, 60_000));
      if (busy || document.hidden || performance.now() < last + wait) return;
      busy = true;
      const began = performance.now();
      await this.refresh().catch((error) => this._offline(error));
      last = performance.now();
      [took, busy] = [last - began, false];
    };
    setInterval(look, 250);
    look();
  }

  async refresh() {
    const [status, { queries }] = await Promise.all([get("/v1/status"), get("/v1/queries")]);
    this._drawLag(status);
    this._drawQueries(queries);
    this._noted(status);
  }

  _offline({ status }) {
    byId("lag").dataset.state = "off";
    byId("lag-text").textContent = status === 401 ? "no token" : "no answer";
  }

  _drawLag({ tables, waiting_events: waiting, events_set_aside: aside }) {
    const behind = tables
      .filter((table) => table.indexes.length)
      .map((table) => [table.name, table.files - table.indexed + table.unknown])
      .filter(([, files]) => files > 0);
    const files = behind.reduce((sum, [, each]) => sum + each, 0);
    const isBehind = waiting > 0 || files > 0;
    byId("lag").dataset.state = isBehind ? "behind" : "even";
    byId("lag-text").textContent =
      waiting > 0
        ? `${counted(waiting, "event")} waiting`
        : files > 0
          ? `${counted(files, "file")} to index`
          : "up to date";
    this._past = [...this._past, waiting + files].slice(-MOST_POINTS);
    show(
      this._lag,
      element(
        "dl",
        { class: "facts" },
        fact("events waiting", count(waiting)),
        fact("files not indexed", count(files)),
        aside ? fact("events set aside", count(aside)) : null,
      ),
      line(this._past),
      behind.map(([name, each]) =>
        element("p", { class: "muted" }, `${name}: ${counted(each, "file")} not indexed yet`),
      ),
    );
  }

  _drawQueries(queries) {
    byId("tab-activity").textContent = queries.length ? `Activity (${queries.length})` : "Activity";
    const lines = queries.map(({ query_id: id, seconds, sql }) =>
      element(
        "li",
        {},
        element("code", { title: sql }, sql.slice(0, 300)),
        element(
          "div",
          { class: "bar" },
          element("span", { class: "muted" }, `${duration(seconds)}`),
          element("span", { class: "grow" }),
          element("button", { type: "button", class: "danger", onclick: () => this._stop(id) }, "Stop"),
        ),
      ),
    );
    // A focused stop button stays where it is, unless its query has ended.
    const state = queries.map(({ query_id: id }) => id).join();
    if (state === this._running && state) {
      [...this._queries.querySelectorAll(".muted")].forEach(
        (each, at) => (each.textContent = duration(queries[at].seconds)),
      );
      return;
    }
    this._running = state;
    show(
      this._queries,
      lines.length ? element("ul", { class: "running" }, lines) : element("p", { class: "muted" }, "None."),
    );
  }

  async _stop(id) {
    await cancel(id).catch(() => {}); // it has ended by itself
    await this.refresh().catch((error) => this._offline(error));
  }
}

const fact = (name, value) => element("div", {}, element("dt", {}, name), element("dd", {}, value));

function line(values) {
  const most = Math.max(1, ...values);
  const points = values.map((value, at) => `${(at / (MOST_POINTS - 1)) * 240} ${38 - (value / most) * 34}`);
  return shape(
    "svg",
    {
      viewBox: "0 0 240 40",
      class: "lag-line",
      preserveAspectRatio: "none",
      role: "img",
      "aria-label": `events and files that waited, at most ${count(most === 1 ? Math.max(...values) : most)}`,
    },
    shape("path", { d: `M0 38.5H240`, class: "rule" }),
    shape("path", { d: `M${points.join("L")}`, class: "stroke" }),
  );
}
