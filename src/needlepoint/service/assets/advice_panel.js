// What `needle advise` says for each table, with commands to copy: the console itself changes nothing.

import { get } from "./api.js";
import { copy, element, show } from "./dom.js";
import { bytes, counted, duration } from "./format.js";

export async function showAdvice(target) {
  show(target, element("p", { class: "nothing" }, "Looking at the queries of the past…"));
  try {
    const { tables } = await get("/v1/advise");
    show(
      target,
      tables.length ? tables.map(tablePart) : element("p", { class: "nothing" }, "The lake has no table yet."),
    );
  } catch (error) {
    show(
      target,
      element("p", { class: "wrong" }, error.message),
      error.hint ? element("p", { class: "muted" }, error.hint) : null,
    );
  }
}

function tablePart({ table, queries, since, advice }) {
  const asked = queries ? `${counted(queries, "query", "queries")} since ${day(since)}` : "no query in the history yet";
  const none = element("p", { class: "muted" }, "Nothing to advise.");
  return element(
    "section",
    { class: "advice" },
    element("h2", {}, table),
    element("p", { class: "muted" }, asked),
    advice.length ? advice.map(advicePart) : none,
  );
}

/** The history counts days since 1970. */
const day = (number) => (number === null ? "the beginning" : new Date(number * 86_400_000).toISOString().slice(0, 10));

function advicePart(advice) {
  const copying = element("button", { type: "button", class: "quiet" }, "copy");
  copying.addEventListener(
    "click",
    async () => (copying.textContent = (await copy(advice.command)) ? "copied" : "no clipboard"),
  );
  return element(
    "article",
    {},
    element("h3", {}, advice.what),
    element("p", {}, advice.why),
    advice.bytes_after === null || advice.bytes_after === undefined
      ? null
      : element("p", { class: "gain" }, gain(advice)),
    advice.costs ? element("p", { class: "muted" }, `Costs: ${advice.costs}`) : null,
    advice.command
      ? element("div", { class: "command" }, element("code", { tabindex: "0" }, advice.command), copying)
      : null,
  );
}

function gain({ bytes_now: before, bytes_after: after, seconds_now: slow, seconds_after: fast }) {
  const size = before === null ? "" : `${bytes(before)} → ${bytes(after)}`;
  const time =
    slow === null || slow === undefined || fast === null || fast === undefined
      ? ""
      : `${duration(slow)} → ${duration(fast)}`;
  return `A query: ${[size, time].filter(Boolean).join(", ")}`;
}
