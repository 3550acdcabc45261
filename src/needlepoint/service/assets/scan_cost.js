// What the same question costs as a scan, beside what it cost with the indexes.

import { element, show } from "./dom.js";
import { bytes, duration, times } from "./format.js";

const NOTE = "Runs the query again, then without any index.";

/** A card with a button; `runs()` returns the answers with the indexes and without, asked one after the other so that both
 * find the same in the caches of the machine. */
export function scanCard(runs) {
  const card = element("section", { class: "cost", "aria-label": "What a scan costs" });
  const button = element("button", { type: "button", onclick: compare }, "Compare with a scan");
  const note = element("p", { class: "muted" }, NOTE);
  show(card, element("h2", {}, "As a scan"), element("div", { class: "bar" }, button, note));
  return card;

  async function compare() {
    button.disabled = true;
    note.textContent = "Scanning…";
    try {
      const [indexed, scanned] = (await runs()).map(({ seconds, report }) => ({ seconds, bytes: bytesRead(report) }));
      show(card, ...comparison(indexed, scanned));
    } catch {
      // the page has said why
      note.textContent = NOTE;
      button.disabled = false;
    }
  }
}

export const bytesRead = (report) => report.tables.reduce((sum, table) => sum + table.bytes.read, 0);

function comparison(indexed, scanned) {
  return [
    element("h2", {}, "As a scan"),
    element("p", { class: "verdict" }, verdict(indexed, scanned)),
    element(
      "div",
      { class: "columns" },
      pair("time", indexed.seconds, scanned.seconds, duration),
      pair("bytes read", indexed.bytes, scanned.bytes, bytes),
    ),
    element("p", { class: "muted" }, "One run each, one after the other."),
  ];
}

function verdict(indexed, scanned) {
  const faster = scanned.seconds / indexed.seconds;
  const time =
    faster >= 1
      ? `The scan takes ${times(faster)} as long`
      : `The scan is faster: it takes ${(100 * faster).toFixed(0)} % of the time`;
  if (!indexed.bytes || !scanned.bytes) return `${time}.`;
  const more = scanned.bytes / indexed.bytes;
  return more >= 1
    ? `${time} and reads ${times(more)} as many bytes.`
    : `${time} and reads ${(100 * more).toFixed(0)} % of the bytes.`;
}

function pair(name, indexed, scanned, format) {
  const most = Math.max(indexed, scanned) || 1;
  const line = (label, value, kind) => {
    const fill = element("span", { class: `fill ${kind}` });
    fill.style.width = `${(100 * value) / most}%`;
    return element(
      "div",
      { class: "pair" },
      element("span", {}, label),
      element("span", { class: "track", "aria-hidden": "true" }, fill),
      element("b", { class: "number" }, format(value)),
    );
  };
  return element(
    "div",
    {},
    element("h3", {}, name),
    line("with indexes", indexed, "lit"),
    line("scan", scanned, "grey"),
  );
}
