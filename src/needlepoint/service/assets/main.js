// The console: ties the parts together. Each part draws itself; this decides what they draw, and when.

import { ActivityPanel } from "./activity_panel.js";
import { showAdvice } from "./advice_panel.js";
import { cancel, explain, get, lakeMap, newQueryId, onTokenNeeded, runQuery } from "./api.js";
import { Chart } from "./chart.js";
import { quoted } from "./completion.js";
import { promptForToken, showShortcuts } from "./dialogs.js";
import { byId, copy, element, show } from "./dom.js";
import { cancelDownload, downloadButton } from "./download.js";
import { startEditor } from "./editor.js";
import { counted, duration } from "./format.js";
import { drawFunnel, summary } from "./funnel.js";
import { Grid } from "./grid.js";
import { linkTo, QueryHistory, sqlOfLink } from "./history.js";
import { LakeMap } from "./lake_map.js";
import { MOST_ROWS } from "./row_stream.js";
import { bytesRead, scanCard } from "./scan_cost.js";
import { TablesPanel } from "./tables_panel.js";
import { startTabs } from "./tabs.js";
import { startTheme } from "./theme.js";

const DRAFT = "needlepoint-draft";
const PATIENCE = 3000; // milliseconds until a stopped query is left, if the service does not answer

let names = { tables: {}, functions: [] };
let asked = null; // the query whose answer is shown
let running = null; // {queryId, leaving, stopped} while one runs
let mapOf = null; // the query whose map is drawn

const say = (text) => (byId("said").textContent = text);

startTheme();
onTokenNeeded(async (wasRefused) => {
  const token = await promptForToken(wasRefused);
  // The request that was refused is sent again first; then the rest of the page can be filled.
  if (token !== null) setTimeout(() => activity.refresh().catch(() => {}), 100);
  return token;
});

const answerTabs = startTabs(byId("answer-tabs"), (name) => name === "map" && drawMap());
const sideTabs = startTabs(byId("side-tabs"), (name) => name === "advice" && showAdvice(byId("advice")));
const editor = startEditor(byId("editor"), {
  names: () => names,
  run,
  explain: explainQuery,
  changed: () => sessionStorage.setItem(DRAFT, editor.text()),
});
const downloads = downloadButton({ sql: () => asked, say, failed: showProblem });
const grid = new Grid(byId("rows"), [
  element("button", { type: "button", class: "to-chart", onclick: () => answerTabs.select("chart") }, "Chart"),
  downloads,
]);
const chart = new Chart(byId("chart"));
const map = new LakeMap(byId("map"));
const past = new QueryHistory(byId("past"), takeUp);
const tables = new TablesPanel(byId("tables"), { insert: (text) => editor.insert(text), ask: takeUp });
const activity = new ActivityPanel(byId("activity"), {
  noted: noteStatus,
  isShown: () => sideTabs.current() === "activity",
});

// Queries

async function run() {
  const sql = editor.chosen().trim().replace(/;$/, "");
  if (!sql || running) return;
  editor.closeProposals();
  await whileRunning(
    "Running",
    async (state) => {
      // The rows of another query must not be taken for those of this one.
      grid.clear("Running…");
      chart.clear("Running…");
      const answer = await runQuery(sql, { queryId: state.queryId, signal: state.leaving.signal });
      if (!answer.complete) cancel(state.queryId).catch(() => {}); // rows enough; leaving has ended it already, mostly
      asked = sql;
      // A link that can be copied from the address bar; it is no new page to go back to.
      history.replaceState(null, "", linkTo(sql));
      await showAnswer(sql, answer);
      const rows = answer.total ?? answer.rows.length;
      const there = answer.report?.tables.reduce((sum, table) => sum + (table.bytes.total ?? 0), 0);
      past.add({ sql, seconds: answer.seconds, rows, read: answer.report && bytesRead(answer.report), there });
    },
    (error) => past.add({ sql, error: error.message.slice(0, 200) }),
  );
}

async function showAnswer(sql, answer) {
  grid.set(answer);
  chart.set(answer);
  // An answer that was left early has no report at its end; what was planned is the next best.
  const report = answer.report ?? (await explain(sql));
  drawFunnel(byId("funnel"), report, answer.report ? scanCard(() => withAndWithoutIndexes(sql)) : null);
  const rows = answer.complete ? counted(answer.total, "row") : `first ${counted(answer.rows.length, "row")}`;
  say(`${rows} in ${duration(answer.seconds)}; ${summary(report)}`);
  forgetMap();
}

/** The answers of the same query with the indexes and as a scan, to compare. */
async function withAndWithoutIndexes(sql) {
  const answers = [];
  const work = async (state) => {
    for (const scan of [false, true]) {
      state.queryId = newQueryId(); // stopping stops the one that runs
      answers.push(await runQuery(sql, { queryId: state.queryId, signal: state.leaving.signal, scan }));
    }
    say(`The scan took ${duration(answers[1].seconds)}`);
  };
  await whileRunning("Comparing", work, (error) => {
    throw error;
  });
  return answers;
}

async function explainQuery() {
  const sql = editor.chosen().trim().replace(/;$/, "");
  if (!sql || running) return;
  editor.closeProposals();
  await whileRunning("Explaining", async ({ leaving }) => {
    const report = await explain(sql, leaving.signal);
    asked = sql;
    grid.clear("The query was explained, not run.");
    chart.clear("The query was explained, not run.");
    drawFunnel(byId("funnel"), report, null);
    say(`Explained, not run; ${summary(report)}`);
    forgetMap();
    if (answerTabs.current() !== "map") answerTabs.select("funnel");
  });
}

/** Do something that can be stopped, and tell how long it takes. `failed` hears of every error. */
async function whileRunning(word, work, failed = () => {}) {
  const state = { queryId: newQueryId(), leaving: new AbortController(), stopped: false };
  const began = performance.now();
  // Beside the words, which screen readers read out: they would never end.
  const clock = setInterval(() => (byId("clock").textContent = duration((performance.now() - began) / 1000)), 100);
  running = state;
  setRunning(true);
  byId("problem").hidden = true;
  say(`${word}…`);
  try {
    await work(state);
  } catch (error) {
    const shown =
      state.stopped && (error.name === "AbortError" || error.status === 409)
        ? { message: "The query was stopped." }
        : error;
    say(state.stopped ? "Stopped" : "Failed");
    if (!state.stopped && word !== "Comparing") forgetAnswer();
    showProblem(shown);
    failed(shown instanceof Error ? shown : new Error(shown.message));
  } finally {
    clearInterval(clock);
    byId("clock").textContent = "";
    running = null;
    setRunning(false);
  }
}

function setRunning(isRunning) {
  byId("run").hidden = byId("explain").disabled = isRunning;
  byId("stop").hidden = !isRunning;
  document.body.classList.toggle("busy", isRunning);
}

async function stop() {
  if (!running) return;
  const state = running;
  state.stopped = true;
  say("Stopping…");
  setTimeout(() => state.leaving.abort(), PATIENCE);
  // Not known there: it waits for its turn, or another worker process runs it. Leaving it has to do.
  await cancel(state.queryId).catch(() => state.leaving.abort());
}

function runWithLimit() {
  editor.set(`${editor.chosen().trim().replace(/;$/, "")}\nLIMIT ${MOST_ROWS}`);
  run();
}

function forgetAnswer() {
  asked = null;
  grid.clear("The query failed.");
  chart.clear("The query failed.");
  show(byId("funnel"), element("p", { class: "nothing" }, "The query failed."));
  forgetMap();
}

function showProblem(error) {
  const at = /line (\d+), column (\d+)/.exec(error.message);
  const go =
    at &&
    element(
      "button",
      { type: "button", class: "link", onclick: () => editor.goTo(Number(at[1]), Number(at[2])) },
      "Go there",
    );
  // The service refuses a result over its limit as a whole, so more than a grid shows is asked for with a limit.
  const limit =
    /more than [\d,]+ rows/.test(error.message) &&
    element("button", { type: "button", onclick: runWithLimit }, `Add LIMIT ${MOST_ROWS} and run`);
  show(
    byId("problem"),
    element("b", {}, error.message),
    error.hint ? element("span", {}, error.hint) : null,
    go,
    limit,
  );
  byId("problem").hidden = false;
}

// The map is asked for when it is looked at: on a large lake it is the largest answer.

function forgetMap() {
  mapOf = null;
  if (answerTabs.current() === "map") drawMap();
}

async function drawMap() {
  if (asked === null) return map.clear();
  if (mapOf === asked) return undefined;
  const sql = asked;
  mapOf = sql;
  map.clear("Drawing…");
  try {
    const found = await lakeMap(sql);
    if (mapOf === sql) map.set(found);
  } catch (error) {
    if (mapOf === sql) {
      mapOf = null;
      map.clear(error.message);
    }
  }
  return undefined;
}

// The lake

async function loadNames() {
  try {
    names = await get("/v1/completion");
  } catch {
    return; // the status says that the service does not answer
  }
  const first = Object.keys(names.tables).sort()[0];
  if (!editor.text() && first) editor.set(`SELECT * FROM ${quoted(first)} LIMIT 100`);
}

let known = "";

async function noteStatus(status) {
  byId("version").textContent = status.version;
  const state = status.tables.map(({ name, version }) => `${name} ${version}`).join();
  if (state !== known) {
    known = state;
    await loadNames();
  }
  tables.set(names, status);
}

function takeUp(sql) {
  editor.set(sql);
  editor.focus();
  closeMenu();
}

// Keys and buttons

function closeMenu() {
  document.body.classList.remove("menu-open");
  byId("menu").setAttribute("aria-expanded", "false");
}

const isTyping = (target) => target.closest?.("input, textarea, select, [contenteditable=true], dialog");

document.addEventListener("keydown", (event) => {
  if (event.defaultPrevented || byId("dialog").open) return;
  const command = event.ctrlKey || event.metaKey;
  if (event.key === "Escape") {
    if (running) stop();
    else if (!cancelDownload()) closeMenu();
  } else if (command && event.key === "Enter") run();
  else if (command && event.shiftKey && event.key.toLowerCase() === "e") explainQuery();
  else if (event.altKey && /^Digit[1-4]$/.test(event.code)) {
    answerTabs.select(["rows", "chart", "funnel", "map"][Number(event.code.at(-1)) - 1]);
  } else if (event.key === "?" && !isTyping(event.target)) showShortcuts();
  else if (event.key === "/" && !isTyping(event.target)) editor.focus();
  else return;
  event.preventDefault();
});

byId("run").addEventListener("click", run);
byId("stop").addEventListener("click", stop);
byId("explain").addEventListener("click", explainQuery);
byId("help").addEventListener("click", showShortcuts);
byId("lag").addEventListener("click", () => {
  sideTabs.select("activity");
  document.body.classList.add("menu-open");
});
byId("share").addEventListener("click", async () => {
  const link = linkTo(editor.text());
  say((await copy(link)) ? "Link copied; opening it does not run the query" : link);
});
byId("menu").addEventListener("click", () => {
  const open = document.body.classList.toggle("menu-open");
  byId("menu").setAttribute("aria-expanded", String(open));
});
window.addEventListener("hashchange", () => {
  const sql = sqlOfLink();
  if (sql !== null) editor.set(sql); // who opens a link decides to run it
});

editor.set(sqlOfLink() ?? sessionStorage.getItem(DRAFT) ?? "");
activity.start();
editor.focus();
