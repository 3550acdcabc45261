// From values to places on an axis, and where its ticks are.

/** About `wanted` round numbers from low to high: 0, 20, 40, …; with `covers`, the first and the last are beyond them. */
export function roundTicks(low, high, wanted, covers = false) {
  const rough = (high - low) / Math.max(1, wanted);
  if (!(rough > 0)) return [low];
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((each) => each >= rough);
  const [first, last] = covers
    ? [Math.floor(low / step), Math.ceil(high / step)]
    : [Math.ceil(low / step), Math.floor(high / step + 1e-6)];
  const ticks = [];
  for (let tick = first * step; tick <= last * step + step / 1e6; tick += step)
    ticks.push(Number(tick.toPrecision(12)));
  return ticks;
}

const MINUTE = 60_000;
const DAY = 24 * 60 * MINUTE;
const TIME_STEPS = [
  1000,
  5000,
  15_000,
  MINUTE,
  5 * MINUTE,
  15 * MINUTE,
  60 * MINUTE,
  6 * 60 * MINUTE,
  DAY,
  7 * DAY,
  30 * DAY,
  91 * DAY,
  365.25 * DAY,
];

/** Times at round places, in milliseconds. */
export function timeTicks(low, high, wanted) {
  const step =
    TIME_STEPS.find((each) => (high - low) / each <= wanted) ??
    365.25 * DAY * Math.ceil((high - low) / wanted / (365.25 * DAY));
  const ticks = [];
  for (let tick = Math.ceil(low / step) * step; tick <= high; tick += step) ticks.push(tick);
  return ticks;
}

/** A time as short as the distance of its ticks allows. */
export function timeLabel(milliseconds, span) {
  const iso = new Date(milliseconds).toISOString();
  if (span > 2 * DAY) return iso.slice(0, 10);
  return span > 10 * MINUTE ? iso.slice(5, 16).replace("T", " ") : iso.slice(11, 19);
}

/** 1200000 -> "1.2M" */
export function shortNumber(number) {
  const size = Math.abs(number);
  for (const [unit, letter] of [
    [1e12, "T"],
    [1e9, "G"],
    [1e6, "M"],
    [1e4, "k"],
  ]) {
    if (size >= unit) return `${Number((number / (letter === "k" ? 1000 : unit)).toPrecision(3))}${letter}`;
  }
  return String(Number(number.toPrecision(6)));
}

export const linear = (low, high, from, to) => (value) => from + ((value - low) / (high - low || 1)) * (to - from);
