// Draws the places of a treemap on a canvas: skipped files grey, one grey for each step, read ones lit.

import { themeColours } from "./dom.js";
import { ROWS, SKIPPED } from "./map_files.js";

const TINY = 9; // pixels; a read file that is smaller gets a halo
const ROOM_FOR_GROUPS = 26; // pixels; a larger cell shows its row groups
const MOST_HALOS = 3000;

/** The colours of the theme, with as many greys as there are steps. `of` has one for each kind of file. */
export function mapColours(kinds) {
  const [read, some, frame, back, text, focus, first, last] = themeColours(
    ...["--read", "--read-some", "--frame", "--map", "--muted", "--text", "--skip-first", "--skip-last"],
  );
  const steps = kinds.filter((kind) => kind >= 2);
  const of = new Map([
    [0, some],
    [1, read],
    ...steps.map((kind, at) => [kind, blend(first, last, at / Math.max(1, steps.length - 1))]),
  ]);
  return { of, read, frame, back, text, focus };
}

function blend(from, to, share) {
  const parts = (colour) =>
    colour
      .match(/[\d.]+/g)
      .slice(0, 3)
      .map(Number);
  const [a, b] = [parts(from), parts(to)];
  return `rgb(${a.map((each, at) => Math.round(each + (b[at] - each) * share)).join(" ")})`;
}

/** `only` is the kind that the legend holds up, or null; other files fade. */
export function paint(context, { files, shown, places, frames, colours, only, width, height }) {
  context.fillStyle = colours.back;
  context.fillRect(0, 0, width, height);
  for (const frame of frames) drawFrame(context, frame, colours);
  const byKind = new Map();
  for (const file of shown) {
    const kind = files.kind(file);
    if (!byKind.has(kind)) byKind.set(kind, []);
    byKind.get(kind).push(file);
  }
  // Read files come last: nothing may cover them.
  for (const kind of [...byKind.keys()].sort((a, b) => b - a)) {
    context.globalAlpha = only === null || only === kind ? 1 : 0.2;
    context.fillStyle = colours.of.get(kind);
    for (const file of byKind.get(kind)) drawCell(context, places, file);
  }
  context.globalAlpha = 1;
  const read = shown.filter((file) => files.access[file] !== SKIPPED && (only === null || only === files.kind(file)));
  for (const file of read) if (files.access[file] === ROWS) drawGroups(context, files, places, file, colours);
  halos(
    context,
    read.filter((file) => Math.min(places.w[file], places.h[file]) < TINY).slice(0, MOST_HALOS),
    places,
    colours,
  );
}

function drawFrame(context, { x, y, w, h, name, depth, named }, colours) {
  if (w < 4 || h < 4) return;
  context.fillStyle = colours.frame;
  if (depth === 1 && w > 8) context.fillRect(x + 0.5, y + 0.5, w - 1, h - 1);
  if (!named) return;
  context.fillStyle = colours.text;
  context.font = `${depth === 1 ? "600 " : ""}11px ${"system-ui, sans-serif"}`;
  context.textBaseline = "middle";
  context.fillText(fitted(context, name, w - 8), x + 4, y + 8.5);
}

function fitted(context, text, room) {
  if (context.measureText(text).width <= room) return text;
  let length = text.length;
  while (length > 1 && context.measureText(`${text.slice(0, length)}…`).width > room) length -= 1;
  return length > 1 ? `${text.slice(0, length)}…` : "";
}

/** Small cells have no gap between them: there it would be most of the picture. */
function inside(places, file) {
  const [x, y, w, h] = [places.x[file], places.y[file], places.w[file], places.h[file]];
  const gap = w > 5 && h > 5 ? 1 : w > 2.5 && h > 2.5 ? 0.5 : 0;
  return [x, y, Math.max(0.6, w - gap), Math.max(0.6, h - gap)];
}

function drawCell(context, places, file) {
  context.fillRect(...inside(places, file));
}

/** Row groups as bands, pages along them, those that are read lit. A cell without room is lit as a whole. */
function drawGroups(context, files, places, file, colours) {
  const [x, y, w, h] = inside(places, file);
  const groups = files.groups(file);
  context.fillStyle = colours.read;
  if (!groups || Math.min(w, h) < ROOM_FOR_GROUPS) {
    context.fillRect(x, y, w, h);
    return;
  }
  const total = groups.reduce((sum, group) => sum + group.rows, 0) || 1;
  let top = y;
  for (const group of groups) {
    const tall = (h * group.rows) / total;
    for (const [first, end, read] of group.pages) {
      if (read)
        context.fillRect(
          x + (w * first) / group.rows,
          top,
          Math.max(2, (w * (end - first)) / group.rows),
          Math.max(1, tall - (tall > 4 ? 1 : 0)),
        );
    }
    top += tall;
    if (tall > 4) {
      context.fillStyle = colours.back;
      context.fillRect(x, top - 1, w, 1);
      context.fillStyle = colours.read;
    }
  }
  context.strokeStyle = colours.read;
  context.lineWidth = 1;
  context.strokeRect(x + 0.5, y + 0.5, w - 1, h - 1);
}

function halos(context, tiny, places, colours) {
  context.fillStyle = colours.read;
  context.strokeStyle = colours.read;
  context.lineWidth = 1.5;
  for (const file of tiny) {
    const [x, y] = [places.x[file] + places.w[file] / 2, places.y[file] + places.h[file] / 2];
    const size = Math.max(5, Math.min(places.w[file], places.h[file]));
    context.fillRect(x - size / 2, y - size / 2, size, size);
    if (tiny.length > 400) continue; // so many stand out by themselves
    context.globalAlpha = 0.55;
    context.beginPath();
    context.arc(x, y, size / 2 + 5, 0, 7);
    context.stroke();
    context.globalAlpha = 1;
  }
}

/** The cell under the pointer or the keys. */
export function outline(context, places, file, colours) {
  const [x, y, w, h] = inside(places, file);
  context.strokeStyle = colours.focus;
  context.lineWidth = 2;
  context.strokeRect(x - 1, y - 1, w + 2, h + 2);
}
