// Reads the service's JSON while it arrives: one row is one line, so rows are shown and counted without waiting for all.

export const MOST_ROWS = 10_000; // that are kept; a grid of more helps nobody

/** JSON whose integers above 2^53 become BigInt: JSON.parse alone would change their last digits. */
export function parseExactly(line) {
  if (!/\d{16}/.test(line)) return JSON.parse(line);
  return JSON.parse(line, (_, value, context) =>
    typeof value === "number" && !Number.isSafeInteger(value) && /^-?\d+$/.test(context?.source ?? "")
      ? BigInt(context.source)
      : value,
  );
}

/** The answer of /v1/sql: its head, the first MOST_ROWS rows, and how many there are.
 *
 * A response with a length is complete on the server, and is read to its end, where the report is. One without is still
 * being made: it is left as soon as there are rows enough, and `complete` is false. */
export async function readAnswer(response) {
  const leaveEarly = !response.headers.has("content-length");
  const rows = [];
  let [outside, inRows, total, complete] = ["", false, 0, true];
  for await (const line of lines(response.body)) {
    if (!inRows) {
      outside += line;
      inRows = total === 0 && line.endsWith('"rows": [');
    } else if (line === "]") {
      outside += line;
      inRows = false;
      total = total || rows.length;
    } else {
      total += 1;
      if (rows.length < MOST_ROWS) rows.push(parseExactly(line.endsWith(",") ? line.slice(0, -1) : line));
      else if (leaveEarly) {
        complete = false;
        outside += "]}";
        break;
      }
    }
  }
  const answer = parseExactly(outside);
  const found = rows.length ? rows : answer.rows;
  return {
    ...answer,
    rows: found.slice(0, MOST_ROWS),
    total: complete ? Math.max(total, found.length) : null,
    complete,
  };
}

async function* lines(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  try {
    let rest = "";
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      const parts = (rest + value).split("\n");
      rest = parts.pop();
      yield* parts;
    }
    if (rest) yield rest;
  } finally {
    reader.cancel().catch(() => {}); // of a stream that failed: nothing is left to end
  }
}
