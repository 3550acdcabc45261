// Values of a result as text, by the types of their columns (Arrow's names).

const MOST_CHARACTERS = 300; // of a cell; the whole value is one Enter away

export const isInteger = (type) => /^u?int\d+$/.test(type);
export const isNumber = (type) => isInteger(type) || /^(half)?float|^double|^decimal/.test(type);
export const isTime = (type) => /^(timestamp|date|time)/.test(type);
const isBinary = (type) => /^(large_|fixed_size_)?binary/.test(type);

/** The whole value. NULL is null here; a cell shows it as the word. */
export function text(value, type = "") {
  if (value === null || value === undefined) return "NULL";
  if (typeof value === "object") return nested(value);
  if (isBinary(type)) return `0x${value}`;
  if (/^timestamp/.test(type))
    return String(value)
      .replace("T", " ")
      .replace(/\.0+(?=$|[Z+-])/, "");
  return String(value);
}

/** A value in one line of limited length, with line breaks and controls visible. */
export function cellText(value, type) {
  const whole = text(value, type);
  const line = whole
    .slice(0, MOST_CHARACTERS)
    .replace(/\r?\n/g, "↵")
    .replace(/[\u0000-\u001f\u007f]/g, "·");
  return whole.length > MOST_CHARACTERS ? `${line}…` : line;
}

/** What a cell needs besides its text: NULL, the empty text and numbers look different. */
export function cellClass(value, type) {
  if (value === null || value === undefined) return "null";
  if (value === "") return "empty";
  return isNumber(type) ? "number" : "";
}

/** A nested value as JSON, indented where it is shown alone. Integers keep all digits, so JSON.stringify cannot do it. */
export function nested(value, indent = "") {
  if (value === null || typeof value === "bigint") return String(value);
  if (typeof value !== "object") return JSON.stringify(value);
  const list = Array.isArray(value);
  const parts = list
    ? value.map((each) => nested(each, indent && `${indent}  `))
    : Object.entries(value).map(([name, each]) => `${JSON.stringify(name)}: ${nested(each, indent && `${indent}  `)}`);
  const [open, close] = list ? "[]" : "{}";
  if (!parts.length) return open + close;
  if (!indent) return `${open}${parts.join(", ")}${close}`;
  return `${open}\n${parts.map((part) => `${indent}${part}`).join(",\n")}\n${indent.slice(2)}${close}`;
}

/** The order of two values of a column; NULL comes last in either direction, so it is not decided here. */
export function compare(a, b, type) {
  if (/^decimal/.test(type)) return Number(a) - Number(b);
  if (typeof a === "object") [a, b] = [nested(a), nested(b)];
  return a < b ? -1 : a > b ? 1 : 0;
}

/** A value as a number for a chart, or NaN: times become milliseconds. */
export function numeric(value, type) {
  if (value === null || value === undefined || value === "") return NaN;
  if (/^(timestamp|date)/.test(type))
    return Date.parse(/[Z+]/.test(value) || type.startsWith("date") ? value : `${value}Z`);
  return Number(value);
}
