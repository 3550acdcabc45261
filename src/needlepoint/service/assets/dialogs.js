// The dialogs: a token, a whole value, the shortcuts.

import { byId, copy, element, show } from "./dom.js";

const KEY = /Mac|iPhone|iPad/.test(navigator.platform) ? "⌘" : "Ctrl";
const SHORTCUTS = [
  [`${KEY} Enter`, "Run the query, or what is selected of it"],
  [`${KEY} Shift E`, "Explain: what it would read"],
  ["Esc", "Stop the running query"],
  [`${KEY} Space`, "Complete a name"],
  ["Alt 1 … 4", "Rows, chart, funnel, lake map"],
  ["/", "Go to the editor"],
  ["Arrows", "Move in the grid, in tabs, on the map and in a chart"],
  ["Page Up, Page Down", "Previous and next page of rows"],
  ["Enter", "In the grid the whole value; on the map the file"],
  ["?", "This list"],
];

function open(title, ...content) {
  const dialog = byId("dialog");
  show(dialog, element("h2", { id: "dialog-title" }, title), ...content);
  if (!dialog.open) dialog.showModal();
  return dialog;
}

const close = () => byId("dialog").close();

export function showShortcuts() {
  const rows = SHORTCUTS.map(([keys, what]) =>
    element("tr", {}, element("th", { scope: "row" }, element("kbd", {}, keys)), element("td", {}, what)),
  );
  open("Keyboard", element("table", { class: "keys" }, element("tbody", {}, rows)), element("menu", {}, closing()));
}

/** A value that is too long for its cell. */
export function showValue(name, type, value) {
  const copying = element("button", { type: "button", onclick: () => copy(value) }, "Copy");
  open(
    name,
    element("p", { class: "muted" }, type),
    element("pre", { class: "value", tabindex: "0" }, value),
    element("menu", {}, copying, closing()),
  );
}

function closing() {
  return element("button", { type: "button", class: "primary", autofocus: true, onclick: close }, "Close");
}

/** The token that the user enters, or null. */
export function promptForToken(wasRefused) {
  const input = element("input", {
    type: "password",
    autocomplete: "off",
    spellcheck: "false",
    id: "token",
    required: true,
  });
  return new Promise((resolve) => {
    let given = null;
    const form = element(
      "form",
      {
        method: "dialog",
        onsubmit: (event) => {
          event.preventDefault(); // the policy of the page allows no form to be sent, and none is
          given = input.value.trim() || null;
          close();
        },
      },
      element(
        "p",
        {},
        wasRefused ? "The service does not accept this token. " : "The service asks for a token. ",
        "It is kept until this tab is closed.",
      ),
      element("label", { for: "token" }, "Token"),
      input,
      element(
        "menu",
        {},
        element("button", { type: "button", onclick: close }, "Cancel"),
        element("button", { class: "primary" }, "Use"),
      ),
    );
    const dialog = open("Token", form);
    dialog.addEventListener("close", () => resolve(given), { once: true });
    input.focus();
  });
}
