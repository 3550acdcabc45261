// The response of /v1/map for one table as columns over all files, numbered in its order.

import { bytes, count, counted } from "./format.js";
import { stepWord } from "./steps.js";

export const [SKIPPED, SCANNED, ROWS] = [0, 1, 2]; // the access of a file, as the service says it

export class MapFiles {
  constructor(table) {
    const of = (name) => table.directories.flatMap((directory) => directory[name]);
    Object.assign(this, {
      names: of("names"),
      bytes: of("bytes"),
      rows: of("rows"),
      access: of("access"),
      step: of("step"),
    });
    this.directories = table.directories.flatMap(({ path, names }) => names.map(() => path));
    this.steps = table.steps;
    this.pages = new Map(Object.entries(table.pages));
    this.total = this.bytes.reduce((sum, each) => sum + each, 0);
    // A file of no bytes, or a thousandth of the mean, is still a file that can be seen.
    const least = this.total / Math.max(1, this.bytes.length) / 1000 || 1;
    this.weights = Float64Array.from(this.bytes, (each) => Math.max(each, least));
  }

  get length() {
    return this.names.length;
  }

  path(file) {
    return this.directories[file] ? `${this.directories[file]}/${this.names[file]}` : this.names[file];
  }

  /** The row groups of a file that is read by page, if the service sent them. */
  groups(file) {
    return this.pages.get(this.path(file));
  }

  /** "read" kinds and steps are the classes of the legend: 0 for ROWS, 1 for SCANNED, 2 + step for SKIPPED. */
  kind(file) {
    if (this.access[file] === SKIPPED) return 2 + Math.max(0, this.step[file]);
    return this.access[file] === ROWS ? 0 : 1;
  }

  /** How many files there are of each kind, and their bytes, in the order of the legend. */
  kinds() {
    const found = new Map();
    for (let file = 0; file < this.length; file += 1) {
      const kind = this.kind(file);
      if (!found.has(kind)) found.set(kind, { files: 0, size: 0 });
      const of = found.get(kind);
      of.files += 1;
      of.size += this.bytes[file];
    }
    return new Map([...found].sort(([a], [b]) => a - b));
  }

  kindWord(kind) {
    if (kind < 2) return ["some rows read", "read whole"][kind];
    return `skipped by ${stepWord(this.steps[kind - 2] ?? "a step")}`;
  }

  /** What happens to a file, in words. */
  fate(file) {
    const groups = this.groups(file);
    if (!groups) return this.kindWord(this.kind(file));
    const read = groups.reduce((sum, group) => sum + group.read, 0);
    return `${count(read)} of ${counted(
      groups.reduce((sum, group) => sum + group.rows, 0),
      "row",
    )} read`;
  }

  size(file) {
    const rows = this.rows[file];
    return rows === null ? bytes(this.bytes[file]) : `${bytes(this.bytes[file])}, ${counted(rows, "row")}`;
  }
}
