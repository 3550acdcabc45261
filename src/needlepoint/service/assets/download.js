// The whole result as a file: asked again in another format, so that it has every row and exact types.

import { cancel, download, newQueryId } from "./api.js";
import { element } from "./dom.js";
import { bytes } from "./format.js";

const FORMATS = {
  CSV: ["text/csv", "csv"],
  NDJSON: ["application/x-ndjson", "ndjson"],
  Arrow: ["application/vnd.apache.arrow.stream", "arrows"],
};

/** A select that downloads what `sql()` returns; `say` tells how far it is, `failed` what went wrong. */
export function downloadButton({ sql, say, failed }) {
  const select = element("select", { class: "download", "aria-label": "Download the whole result" });
  select.append(
    element("option", { value: "" }, "Download"),
    ...Object.keys(FORMATS).map((name) => element("option", { value: name }, name)),
  );
  select.addEventListener("change", async () => {
    const name = select.value;
    select.value = "";
    if (name) await save(sql(), FORMATS[name], say).catch(failed);
  });
  return select;
}

let stopDownload = null;

/** Stop the download, if there is one. */
export function cancelDownload() {
  stopDownload?.();
  return stopDownload !== null;
}

async function save(sql, [accept, extension], say) {
  const queryId = newQueryId();
  const leaving = new AbortController();
  stopDownload = () => {
    cancel(queryId).catch(() => {}); // it may have ended
    leaving.abort();
  };
  try {
    const response = await download(sql, accept, queryId, leaving.signal);
    const chunks = [];
    let size = 0;
    for (const reader = response.body.getReader(); ;) {
      const { done, value } = await reader.read();
      if (done) break;
      chunks.push(value);
      size += value.length;
      say(`Downloading: ${bytes(size)}`);
    }
    offer(new Blob(chunks, { type: accept }), `result.${extension}`);
    say(`Downloaded ${bytes(size)}`);
  } catch (error) {
    if (error.name !== "AbortError") throw error;
    say("Download stopped");
  } finally {
    stopDownload = null;
  }
}

function offer(blob, name) {
  const address = URL.createObjectURL(blob);
  element("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 60_000); // the browser reads it after the click
}
