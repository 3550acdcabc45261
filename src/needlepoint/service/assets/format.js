// Numbers as people read them.

const COUNT = new Intl.NumberFormat("en-US");

export const count = (number) => COUNT.format(number);

/** "1 file", "1,234 files" */
export const counted = (number, word, words = `${word}s`) => `${count(number)} ${number === 1 ? word : words}`;

/** "5.2 kB", in powers of 1,000 as storage is sold. */
export function bytes(number) {
  if (number < 1000) return `${count(number)} B`;
  const units = ["kB", "MB", "GB", "TB", "PB"];
  let unit = -1;
  do {
    number /= 1000;
    unit += 1;
  } while (number >= 999.5 && unit < units.length - 1);
  return `${number >= 99.5 ? Math.round(number) : number.toPrecision(number >= 9.95 ? 3 : 2)} ${units[unit]}`;
}

/** "2.48 ms", "1.20 s" */
export function duration(seconds) {
  if (seconds < 0.0995) return `${(seconds * 1000).toPrecision(3)} ms`;
  if (seconds < 0.9995) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 99.5) return `${seconds.toPrecision(3)} s`;
  return `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s`;
}

/** A share as a percentage; tiny ones keep a digit: "0.0093 %". */
export function percent(part, whole) {
  if (!whole) return "–";
  const share = (100 * part) / whole;
  if (share === 0 || share >= 99.95) return `${Math.round(share)} %`;
  if (share > 99) return `${share.toFixed(1)} %`; // not 100 %: something is missing
  return `${share >= 10 ? share.toFixed(0) : Number(share.toPrecision(2))} %`;
}

/** "35 times", "2.2 times" */
export function times(ratio) {
  return `${ratio >= 9.95 ? count(Math.round(ratio)) : ratio.toPrecision(2)} times`;
}

/** "just now", "5 min ago", or the day. */
export function ago(milliseconds) {
  const minutes = Math.floor((Date.now() - milliseconds) / 60000);
  if (minutes < 1) return "just now";
  if (minutes < 60) return `${minutes} min ago`;
  if (minutes < 24 * 60) return `${Math.floor(minutes / 60)} h ago`;
  return new Date(milliseconds).toISOString().slice(0, 10);
}
