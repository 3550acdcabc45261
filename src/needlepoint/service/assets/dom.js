// Elements from data. Everything that a lake or the service says becomes text, never markup.

/** `element("button", {class: "quiet", onclick: run}, "Run")`: functions become listeners, the rest attributes. */
export function element(name, attributes = {}, ...children) {
  return filled(document.createElement(name), attributes, children);
}

/** The same for SVG. */
export function shape(name, attributes = {}, ...children) {
  return filled(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);
}

function filled(made, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) {
    if (value === false || value === null || value === undefined) continue;
    if (typeof value === "function") made.addEventListener(key.slice(2), value);
    else made.setAttribute(key, value === true ? "" : String(value));
  }
  made.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return made;
}

export const byId = (id) => document.getElementById(id);

/** Replace what an element shows. */
export function show(target, ...children) {
  target.replaceChildren(...children.flat().filter(Boolean));
}

/** Colours of the theme as the canvas needs them: resolved, without var() or light-dark(). */
export function themeColours(...names) {
  const probe = element("span", { hidden: true });
  document.body.append(probe);
  const style = getComputedStyle(probe);
  const colours = names.map((name) => {
    probe.style.color = `var(${name})`;
    return style.color;
  });
  probe.remove();
  return colours;
}

/** Copy a text, also where the clipboard is closed because the page came without TLS. */
export async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = element("textarea", { class: "offscreen", "aria-hidden": "true" });
    area.value = text;
    document.body.append(area);
    area.select();
    const copied = document.execCommand("copy");
    area.remove();
    return copied;
  }
}
