// Requests to the service, and its errors.

import { readAnswer } from "./row_stream.js";

const TOKEN = "needlepoint-token"; // in sessionStorage: it ends with the tab

/** What the service refused, in its own words. */
export class ServiceError extends Error {
  constructor(status, { kind = "", message = "", hint = "" } = {}) {
    super(message || `The service answered with status ${status}.`);
    Object.assign(this, { status, kind, hint });
  }
}

let askForToken = async () => null;

/** `ask` returns a token, or null if the user has none. */
export function onTokenNeeded(ask) {
  askForToken = ask;
}

let asking = null; // one prompt for all requests that are refused at the same time
let declined = false; // who has no token is not asked again and again by what the page does by itself

async function send(path, options = {}, refused = null) {
  const token = sessionStorage.getItem(TOKEN);
  const headers = { ...options.headers, ...(token ? { Authorization: `Bearer ${token}` } : {}) };
  let response;
  try {
    response = await fetch(path, { ...options, headers, cache: "no-store", credentials: "same-origin" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ServiceError(0, { message: "The service does not answer.", hint: "Does `needle serve` still run?" });
  }
  if (response.ok) return response;
  const said = (await response.json().catch(() => ({}))).error;
  const problem = new ServiceError(response.status, said);
  if (response.status !== 401) throw problem;
  if (sessionStorage.getItem(TOKEN) === token) {
    if (declined && options.byItself) throw problem;
    asking ??= askForToken(token !== null || refused !== null).finally(() => (asking = null));
    const given = await asking;
    declined = given === null;
    if (declined) throw problem;
    sessionStorage.setItem(TOKEN, given);
  }
  return send(path, options, problem);
}

const post = (path, body, { accept = "application/json", signal } = {}) =>
  send(path, {
    method: "POST",
    headers: { "Content-Type": "application/json", Accept: accept },
    body: JSON.stringify(body),
    signal,
  });

/** What the page asks by itself. */
export const get = async (path) => (await send(path, { byItself: true })).json();

/** Rows with their report; `scan` asks the same without any index. */
export async function runQuery(sql, { queryId, scan = false, signal } = {}) {
  const body = { sql, query_id: queryId, report: true, ...(scan ? { scan } : {}) };
  const response = await post("/v1/sql", body, { signal });
  try {
    return await readAnswer(response);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ServiceError(0, {
      message: "The answer ended before its last row.",
      hint: "The query failed while its rows were sent, or the connection broke.",
    });
  }
}

export const explain = async (sql, signal) => (await post("/v1/explain", { sql }, { signal })).json();
export const lakeMap = async (sql, signal) => (await post("/v1/map", { sql }, { signal })).json();

/** The whole result in another format. */
export const download = (sql, accept, queryId, signal) =>
  post("/v1/sql", { sql, query_id: queryId }, { accept, signal });

export const cancel = (queryId) => send(`/v1/queries/${encodeURIComponent(queryId)}`, { method: "DELETE" });

/** A name for a query, with which it can be cancelled. crypto.randomUUID is missing on pages without TLS. */
export function newQueryId() {
  return [...crypto.getRandomValues(new Uint8Array(8))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}
