// One file of the map: its row groups as bars, with the pages that are read lit.

import { element, shape } from "./dom.js";
import { count, counted } from "./format.js";

const MOST_GROUPS = 100;

export function fileDetail(files, file, close) {
  const groups = files.groups(file);
  const shown = groups?.slice(0, MOST_GROUPS) ?? [];
  return element(
    "section",
    { class: "file", "aria-label": "File" },
    element(
      "div",
      { class: "bar" },
      element("h2", {}, files.path(file)),
      element("span", { class: "grow" }),
      element("button", { type: "button", class: "quiet", onclick: close }, "Close"),
    ),
    element("p", {}, `${files.size(file)}; ${files.fate(file)}.`),
    shown.length
      ? element("div", { class: "groups" }, shown.map(groupBar))
      : element("p", { class: "muted" }, withoutGroups(files, file)),
    groups && groups.length > shown.length
      ? element("p", { class: "muted" }, `and ${counted(groups.length - shown.length, "more row group")}`)
      : null,
  );
}

function withoutGroups(files, file) {
  if (files.access[file] === 0) return "Nothing of it is read, so its row groups are not looked at.";
  return files.access[file] === 1 ? "All of it is scanned." : "The map has pages of the first files only.";
}

function groupBar({ rows, read, pages }, at) {
  const lit = pages.filter(([, , isRead]) => isRead);
  const label = `row group ${at}: ${count(read)} of ${counted(rows, "row")}, ${count(lit.length)} of ${counted(pages.length, "page")}`;
  const bar = shape("svg", {
    viewBox: `0 0 ${rows || 1} 10`,
    preserveAspectRatio: "none",
    role: "img",
    "aria-label": label,
  });
  // A stroke does not scale with the picture, so one page of thousands is two pixels wide at least.
  bar.append(shape("path", { class: "lit", d: lit.map(([first, end]) => `M${first} 0H${end}V10H${first}Z`).join("") }));
  if (pages.length <= 150)
    bar.append(
      shape("path", {
        class: "edges",
        d: pages
          .slice(1)
          .map(([first]) => `M${first} 0V10`)
          .join(""),
      }),
    );
  return element("div", { class: "group" }, bar, element("span", { class: "muted" }, label));
}
