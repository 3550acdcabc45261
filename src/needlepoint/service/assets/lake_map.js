// The lake map: every file a cell, sized by bytes. Pointer and keys tell what happens to each; a click goes closer.

import { element, show } from "./dom.js";
import { bytes, count, counted } from "./format.js";
import { fileDetail } from "./file_detail.js";
import { MapFiles, SKIPPED } from "./map_files.js";
import { mapColours, outline, paint } from "./map_painter.js";
import { onThemeChange } from "./theme.js";
import { directoryTree, layout, weigh } from "./treemap.js";

const TOO_SMALL_TO_CLICK = 10; // pixels; such a cell opens its directory
const MOST_LISTED = 200;

export class LakeMap {
  constructor(target) {
    this._target = target;
    new ResizeObserver(() => this._resized()).observe(target);
    onThemeChange(() => this._canvas?.isConnected && this._arrange());
    this.clear();
  }

  _resized() {
    if (!this._canvas?.isConnected || this._target.hidden) return;
    if (this.width !== this._width() || this.height !== this._height()) this._arrange();
  }

  clear(message = "Run or explain a query to see which files it reads.") {
    this._canvas = null;
    show(this._target, element("p", { class: "nothing" }, message));
  }

  set({ tables }) {
    if (!tables.length) return this.clear("The query reads no table.");
    this._tables = tables;
    this._choose(0);
  }

  _choose(at) {
    this._at = at;
    this._files = new MapFiles(this._tables[at]);
    this._tree = weigh(directoryTree(this._tables[at]), this._files.weights);
    this._kinds = [...this._files.kinds().keys()];
    this._only = null;
    this._build();
    this._zoom(this._tree);
  }

  _build() {
    this._canvas = element("canvas", { tabindex: "0", role: "application", "aria-describedby": "map-said" });
    this._canvas.setAttribute(
      "aria-label",
      `Map of ${counted(this._files.length, "file")} of ${this._tables[this._at].table}; arrows move, Enter opens a file, R goes to the next file that is read, Escape goes back`,
    );
    this._canvas.addEventListener("pointermove", (event) => this._point(this._under(event), event));
    this._canvas.addEventListener("pointerleave", () => this._point(-1));
    this._canvas.addEventListener("blur", () => this._point(-1));
    this._canvas.addEventListener("click", (event) => this._click(event));
    this._canvas.addEventListener("keydown", (event) => this._key(event));
    this._tip = element("div", { class: "tip", hidden: true });
    this._said = element("p", { class: "offscreen", id: "map-said", role: "status" });
    this._crumbs = element("nav", { class: "crumbs", "aria-label": "Directories" });
    this._detail = element("div");
    const holder = element("div", { class: "map-canvas" }, this._canvas, this._tip);
    show(
      this._target,
      element(
        "div",
        { class: "bar" },
        this._tableChoice(),
        this._crumbs,
        element("span", { class: "grow" }),
        this._totals(),
      ),
      this._legend(),
      holder,
      this._said,
      this._detail,
      this._list(),
    );
  }

  _tableChoice() {
    if (this._tables.length === 1) return element("b", {}, this._tables[0].table);
    const select = element("select", { "aria-label": "Table", onchange: () => this._choose(Number(select.value)) });
    select.append(
      ...this._tables.map(({ table }, at) => element("option", { value: at, selected: at === this._at }, table)),
    );
    return select;
  }

  _totals() {
    const read = this._files.access.reduce((sum, access) => sum + (access !== SKIPPED), 0);
    return element(
      "span",
      { class: "muted" },
      `${count(read)} of ${counted(this._files.length, "file")} read, ${bytes(this._files.total)} there`,
    );
  }

  _legend() {
    const buttons = [...this._files.kinds()].map(([kind, { files, size }]) =>
      element(
        "button",
        {
          type: "button",
          class: "quiet",
          "aria-pressed": "false",
          title: "Hold these up",
          onclick: (event) => this._hold(kind, event.currentTarget),
        },
        element("span", { class: `swatch${kind === 0 ? " some" : ""}`, "aria-hidden": "true" }),
        `${this._files.kindWord(kind)} `,
        element("b", {}, count(files)),
        element("span", { class: "muted" }, ` ${bytes(size)}`),
      ),
    );
    this._swatches = buttons.map((button) => button.firstChild);
    return element("div", { class: "legend", role: "group", "aria-label": "Legend" }, buttons);
  }

  _hold(kind, button) {
    this._only = this._only === kind ? null : kind;
    for (const each of button.parentElement.children)
      each.setAttribute("aria-pressed", String(each === button && this._only !== null));
    this._arrange();
  }

  _zoom(directory) {
    this._directory = directory;
    this._current = -1;
    const parts = directory.path ? directory.path.split("/") : [];
    const crumb = (name, path) =>
      element("button", { type: "button", class: "quiet", onclick: () => this._zoom(this._find(path)) }, name);
    show(
      this._crumbs,
      parts.length
        ? [crumb("all files", ""), ...parts.map((part, at) => crumb(part, parts.slice(0, at + 1).join("/")))]
        : [],
    );
    this._arrange();
  }

  _find(path) {
    let at = this._tree;
    for (const part of path ? path.split("/") : []) at = at.children.get(part);
    return at;
  }

  /** Lay out and draw, at the pixels of the device. */
  _arrange() {
    const [width, height] = [this._width(), this._height()];
    const ratio = window.devicePixelRatio || 1;
    this._canvas.width = width * ratio;
    this._canvas.height = height * ratio;
    this._canvas.style.height = `${height}px`;
    Object.assign(this, layout(this._directory, this._files.weights, width, height), { width, height });
    this._shown = filesOf(this._directory);
    this._colours = mapColours(this._kinds);
    this._swatches.forEach((swatch, at) => (swatch.style.backgroundColor = this._colours.of.get(this._kinds[at])));
    const context = this._canvas.getContext("2d");
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    paint(context, {
      files: this._files,
      shown: this._shown,
      places: this.places,
      frames: this.frames,
      colours: this._colours,
      only: this._only,
      width,
      height,
    });
    // The picture is kept, so that moving the outline does not draw 100,000 cells again.
    this._picture = element("canvas", { width: this._canvas.width, height: this._canvas.height });
    this._picture.getContext("2d").drawImage(this._canvas, 0, 0);
    if (this._current >= 0) outline(context, this.places, this._current, this._colours);
  }

  _width() {
    return Math.max(200, this._canvas.parentElement.clientWidth);
  }

  /** As much as the panel has room for without scrolling; on a phone the page scrolls, so the width decides. */
  _height() {
    const above =
      this._canvas.getBoundingClientRect().top - this._target.getBoundingClientRect().top + this._target.scrollTop;
    const room =
      getComputedStyle(this._target).overflowY === "visible" ? this._width() : this._target.clientHeight - above - 50;
    return Math.round(Math.max(280, Math.min(room, 900)));
  }

  _under({ offsetX, offsetY }) {
    const { x, y, w, h } = this.places;
    for (const file of this._shown) {
      if (offsetX >= x[file] && offsetX < x[file] + w[file] && offsetY >= y[file] && offsetY < y[file] + h[file])
        return file;
    }
    return -1;
  }

  /** Show what a file is, at the pointer or at the cell that keys have reached. */
  _point(file, event = null) {
    const context = this._canvas.getContext("2d");
    if (file !== this._current) {
      this._current = file;
      context.drawImage(this._picture, 0, 0, this.width, this.height);
      if (file >= 0) outline(context, this.places, file, this._colours);
    }
    this._tip.hidden = file < 0;
    if (file < 0) return;
    const said = [this._files.fate(file), this._files.size(file), this._files.path(file)];
    show(
      this._tip,
      element("b", {}, said[0]),
      element("span", {}, said[1]),
      element("span", { class: "path" }, said[2]),
    );
    if (!event) this._said.textContent = said.join("; ");
    const [x, y] = event
      ? [event.offsetX, event.offsetY]
      : [this.places.x[file], this.places.y[file] + this.places.h[file]];
    this._tip.style.left = `${Math.max(0, Math.min(x + 14, this.width - this._tip.offsetWidth - 4))}px`;
    this._tip.style.top = `${y + 18 + this._tip.offsetHeight > this.height ? Math.max(0, y - this._tip.offsetHeight - 10) : y + 18}px`;
  }

  _click(event) {
    const file = this._under(event);
    if (file >= 0) return this._open(file);
    const frame = [...this.frames]
      .reverse()
      .find(
        ({ x, y, w, h }) => event.offsetX >= x && event.offsetX < x + w && event.offsetY >= y && event.offsetY < y + h,
      );
    if (frame) this._zoom(frame.directory);
  }

  _open(file) {
    const directory = this._find(this._files.directories[file]);
    if (Math.min(this.places.w[file], this.places.h[file]) < TOO_SMALL_TO_CLICK && directory !== this._directory)
      this._zoom(directory);
    this._point(file);
    this._tip.hidden = true;
    show(
      this._detail,
      fileDetail(this._files, file, () => (show(this._detail), this._canvas.focus())),
    );
    this._detail.scrollIntoView({ block: "nearest" });
  }

  _key(event) {
    const direction = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] }[event.key];
    const letter = event.key.toLowerCase();
    if (direction) this._point(this._current < 0 ? this._shown[0] : this._neighbour(direction));
    else if (event.key === "Enter" && this._current >= 0) this._open(this._current);
    else if (letter === "r" && !event.ctrlKey && !event.metaKey) this._point(this._nextRead());
    else if (event.key === "Escape" && this._directory !== this._tree) {
      event.stopPropagation(); // else it would stop a running query
      this._zoom(this._find(this._directory.path.split("/").slice(0, -1).join("/")));
    } else return;
    event.preventDefault();
  }

  _nextRead() {
    const start = this._shown.indexOf(this._current);
    const order = [...this._shown.slice(start + 1), ...this._shown.slice(0, start + 1)];
    return order.find((file) => this._files.access[file] !== SKIPPED) ?? this._current;
  }

  /** The nearest cell in a direction; being beside counts more than being near. */
  _neighbour([right, down]) {
    const { x, y, w, h } = this.places;
    const middle = (file) => [x[file] + w[file] / 2, y[file] + h[file] / 2];
    const [fromX, fromY] = middle(this._current);
    let [best, least] = [this._current, Infinity];
    for (const file of this._shown) {
      const [toX, toY] = middle(file);
      const along = (toX - fromX) * right + (toY - fromY) * down;
      if (along <= 0.01) continue;
      const away = along + 3 * Math.abs((toX - fromX) * down + (toY - fromY) * right);
      if (away < least) [best, least] = [file, away];
    }
    return best;
  }

  /** The same for who cannot see the picture: what is read, by name. */
  _list() {
    const read = this._files.access.flatMap((access, file) => (access === SKIPPED ? [] : [file]));
    const details = element("details", {}, element("summary", {}, "As a list"));
    details.addEventListener("toggle", () => {
      if (details.childElementCount > 1) return;
      const rows = read
        .slice(0, MOST_LISTED)
        .map((file) =>
          element(
            "tr",
            {},
            element(
              "td",
              {},
              element(
                "button",
                { type: "button", class: "link", onclick: () => this._open(file) },
                this._files.path(file),
              ),
            ),
            element("td", {}, this._files.fate(file)),
            element("td", { class: "number" }, bytes(this._files.bytes[file])),
          ),
        );
      const more = read.length > rows.length ? `and ${counted(read.length - rows.length, "more file")}` : "";
      details.append(
        element(
          "div",
          { class: "scroller" },
          element(
            "table",
            { class: "list" },
            element("caption", { class: "offscreen" }, "Files that are read"),
            element("tbody", {}, rows),
          ),
        ),
        element("p", { class: "muted" }, read.length ? more : "No file is read."),
      );
    });
    return details;
  }
}

function filesOf(directory) {
  const found = [];
  const visit = (each) => {
    for (let file = each.files[0]; file < each.files[1]; file += 1) found.push(file);
    each.children.forEach(visit);
  };
  visit(directory);
  return found;
}
