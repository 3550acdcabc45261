// A result as bars, a line or points. The first picture is chosen from the types of the columns.

import { element, shape, show } from "./dom.js";
import { count } from "./format.js";
import { linear, roundTicks, shortNumber, timeLabel, timeTicks } from "./scales.js";
import { cellText, isInteger, isNumber, isTime, numeric } from "./values.js";

const MOST_BARS = 60; // more are no picture
const [LEFT, RIGHT, TOP, BOTTOM] = [64, 16, 24, 44]; // room for labels, in pixels
const KINDS = ["bars", "line", "points"];

/** Which columns to draw, and how: {x, y, kind}, or null if no column has numbers.
 *
 * A time or a text against a number is what people group by; an id is rarely what they want to see the height of. */
export function firstChoice(columns) {
  const looksLikeKey = ({ name }) => /(^|_)id$/i.test(name);
  const numbers = columns.filter(({ type }) => isNumber(type));
  const others = columns.filter(({ type }) => !isNumber(type));
  const y = [...numbers].reverse().find((column) => !looksLikeKey(column)) ?? numbers.at(-1);
  if (!y) return null;
  const x =
    others.find(({ type }) => isTime(type)) ??
    others.find(({ type }) => /string|bool/.test(type)) ??
    numbers.find((column) => column !== y) ??
    y;
  const kind = isTime(x.type)
    ? "line"
    : !isNumber(x.type)
      ? "bars"
      : isInteger(x.type) && x === columns[0] && !looksLikeKey(x)
        ? "bars"
        : "points";
  return { x: x.name, y: y.name, kind };
}

export class Chart {
  constructor(target) {
    this._target = target;
    new ResizeObserver(() => this._canvas?.isConnected && this._draw()).observe(target);
    this.clear();
  }

  clear(message = "Run a query to draw its rows.") {
    this._canvas = null;
    show(this._target, element("p", { class: "nothing" }, message));
  }

  set({ columns, rows }) {
    const choice = firstChoice(columns);
    if (!rows.length || !choice) return this.clear(rows.length ? "No column has numbers to draw." : "No rows.");
    Object.assign(this, { _columns: columns, _rows: rows, _choice: choice });
    this._canvas = element("div", { class: "canvas" });
    this._note = element("span", { class: "muted", role: "status" });
    const bar = element(
      "div",
      { class: "bar" },
      this._kinds(),
      this._column("across", "x", columns),
      this._column(
        "up",
        "y",
        columns.filter(({ type }) => isNumber(type)),
      ),
      element("span", { class: "grow" }),
      this._note,
    );
    show(this._target, bar, this._canvas);
    this._draw();
  }

  _kinds() {
    const buttons = KINDS.map((kind) =>
      element(
        "button",
        { type: "button", "aria-pressed": String(kind === this._choice.kind), onclick: () => choose(kind) },
        kind,
      ),
    );
    const choose = (kind) => {
      this._choice.kind = kind;
      buttons.forEach((button, at) => button.setAttribute("aria-pressed", String(KINDS[at] === kind)));
      this._draw();
    };
    return element("span", { class: "segments", role: "group", "aria-label": "Kind of chart" }, buttons);
  }

  _column(label, axis, columns) {
    const select = element("select", { onchange: () => ((this._choice[axis] = select.value), this._draw()) });
    select.append(
      ...columns.map(({ name }) => element("option", { value: name, selected: name === this._choice[axis] }, name)),
    );
    return element("label", {}, label, select);
  }

  _draw() {
    const { x, y, kind } = this._choice;
    const type = (name) => this._columns.find((column) => column.name === name).type;
    const data = this._rows
      .map((row) => ({ label: cellText(row[x], type(x)), x: numeric(row[x], type(x)), y: numeric(row[y], type(y)) }))
      .filter((each) => Number.isFinite(each.y));
    const categories = kind === "bars" || !data.some((each) => Number.isFinite(each.x));
    const drawn =
      kind === "bars" ? data.slice(0, MOST_BARS) : categories ? data : data.filter((each) => Number.isFinite(each.x));
    if (kind === "line" && !categories) drawn.sort((a, b) => a.x - b.x);
    const size = {
      width: Math.max(260, this._canvas.clientWidth),
      height: Math.max(240, Math.min(420, this._canvas.clientHeight || 360)),
    };
    const plot = new Plot(size, drawn, {
      kind,
      categories,
      isTime: /^(timestamp|date)/.test(type(x)),
      names: { x, y },
    });
    show(this._canvas, plot.picture(), plot.tip);
    this._note.textContent =
      drawn.length < data.length
        ? `first ${count(drawn.length)} of ${count(data.length)} rows`
        : `${count(drawn.length)} rows`;
  }
}

class Plot {
  constructor({ width, height }, data, { kind, categories, isTime, names }) {
    Object.assign(this, {
      _width: width,
      _height: height,
      _data: data,
      _kind: kind,
      _categories: categories,
      _isTime: isTime,
      _names: names,
    });
    const ys = extent(data.map((each) => each.y));
    const [low, high] = kind === "bars" ? [Math.min(0, ys[0]), Math.max(0, ys[1])] : ys; // a bar has to begin at zero
    this._ticks = roundTicks(low, high === low ? low + 1 : high, 5, true);
    this._up = linear(this._ticks[0], this._ticks.at(-1), height - BOTTOM, TOP);
    this._span = categories ? [-0.5, data.length - 0.5] : extent(data.map((each) => each.x));
    this._across = linear(...this._span, LEFT, width - RIGHT);
    this.tip = element("div", { class: "tip", hidden: true, role: "status" });
  }

  picture() {
    const { x, y } = this._names;
    const svg = shape("svg", {
      width: this._width,
      height: this._height,
      tabindex: "0",
      role: "application",
      "aria-label": `${this._kind}: ${y} by ${x}, ${this._data.length} values; arrows read them`,
    });
    svg.append(...this._grid(), ...this._below(), ...this._marks());
    this._cursor = shape("circle", { r: 4, class: "cursor", visibility: "hidden" });
    svg.append(
      this._cursor,
      shape("text", { x: LEFT, y: this._height - 6, class: "axis" }, x),
      shape("text", { x: 4, y: 10, class: "axis" }, y),
    );
    svg.addEventListener("pointermove", (event) => this._point(this._nearest(event.offsetX)));
    svg.addEventListener("pointerleave", () => this._point(-1));
    svg.addEventListener("keydown", (event) => this._key(event));
    return svg;
  }

  _place(at) {
    return [this._across(this._categories ? at : this._data[at].x), this._up(this._data[at].y)];
  }

  _grid() {
    return this._ticks.flatMap((tick) => [
      shape("line", { x1: LEFT, x2: this._width - RIGHT, y1: this._up(tick), y2: this._up(tick), class: "rule" }),
      shape("text", { x: LEFT - 8, y: this._up(tick) + 4, class: "tick end" }, shortNumber(tick)),
    ]);
  }

  _below() {
    const y = this._height - BOTTOM + 18;
    const room = Math.max(2, Math.floor((this._width - LEFT - RIGHT) / (this._categories ? 56 : 90)));
    if (this._categories) {
      const every = Math.ceil(this._data.length / room);
      const letters = Math.max(4, Math.floor((((this._width - LEFT - RIGHT) / this._data.length) * every) / 7.2));
      return this._data.flatMap(({ label }, at) =>
        at % every
          ? []
          : [
              shape(
                "text",
                { x: this._across(at), y, class: "tick middle" },
                label.length > letters ? `${label.slice(0, letters - 1)}…` : label,
              ),
            ],
      );
    }
    const ticks = this._isTime ? timeTicks(...this._span, room) : roundTicks(...this._span, room);
    const label = (tick) => (this._isTime ? timeLabel(tick, this._span[1] - this._span[0]) : shortNumber(tick));
    return ticks.map((tick) => shape("text", { x: this._across(tick), y, class: "tick middle" }, label(tick)));
  }

  _marks() {
    if (this._kind === "bars") {
      const room = (this._width - LEFT - RIGHT) / this._data.length;
      const width = Math.max(1, Math.min(64, room * 0.78));
      return this._data.map((each, at) => {
        const [x, y] = this._place(at);
        const zero = this._up(0);
        return shape("rect", {
          x: x - width / 2,
          width,
          y: Math.min(y, zero),
          height: Math.max(1, Math.abs(zero - y)),
          class: "mark",
        });
      });
    }
    const places = this._data.map((_, at) => this._place(at).map((part) => part.toFixed(1)));
    if (this._kind === "line")
      return [shape("path", { d: `M${places.map((place) => place.join(" ")).join("L")}`, class: "stroke" })];
    // One path of many dots: thousands of circles would be slow.
    return [shape("path", { d: places.map(([x, y]) => `M${x} ${y}h0`).join(""), class: "dots" })];
  }

  _nearest(offset) {
    let [best, distance] = [-1, Infinity];
    this._data.forEach((_, at) => {
      const away = Math.abs(this._place(at)[0] - offset);
      if (away < distance) [best, distance] = [at, away];
    });
    return best;
  }

  _point(at) {
    this._at = at;
    this.tip.hidden = at < 0;
    this._cursor.setAttribute("visibility", at < 0 ? "hidden" : "visible");
    if (at < 0) return;
    const [x, y] = this._place(at);
    this._cursor.setAttribute("cx", x);
    this._cursor.setAttribute("cy", y);
    this.tip.textContent = `${this._data[at].label}: ${this._data[at].y.toLocaleString("en-US", { maximumFractionDigits: 6 })}`;
    this.tip.style.left = `${Math.min(x + 10, this._width - 160)}px`;
    this.tip.style.top = `${Math.max(0, y - 34)}px`;
  }

  _key(event) {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    this._point(Math.min(this._data.length - 1, Math.max(0, (this._at ?? -1) + step)));
  }
}

function extent(values) {
  let [low, high] = [Infinity, -Infinity];
  for (const value of values) {
    if (value < low) low = value;
    if (value > high) high = value;
  }
  return Number.isFinite(low) ? [low, high] : [0, 1];
}
