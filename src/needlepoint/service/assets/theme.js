// Light, dark, or as the system: remembered, and told to who draws on a canvas.

import { byId } from "./dom.js";

const KEY = "needlepoint-theme";
const ORDER = ["system", "light", "dark"];
const listeners = [];

export const onThemeChange = (listener) => listeners.push(listener);

export function startTheme() {
  const button = byId("theme");
  let chosen = localStorage.getItem(KEY) ?? "system";
  const apply = () => {
    if (chosen === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = chosen;
    byId("theme-text").textContent = { system: "Auto", light: "Light", dark: "Dark" }[chosen];
    button.title = `Colours: ${chosen}; click for the next`;
    button.setAttribute("aria-label", `Colours: ${chosen}`);
    listeners.forEach((listener) => listener());
  };
  button.addEventListener("click", () => {
    chosen = ORDER[(ORDER.indexOf(chosen) + 1) % ORDER.length];
    localStorage.setItem(KEY, chosen);
    apply();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", apply);
  apply();
}
