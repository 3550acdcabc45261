// Tabs by the ARIA pattern: arrows move, the chosen tab alone is in the tab order.

import { byId } from "./dom.js";

/** `shown` is called with the name of the panel whenever another one is chosen. */
export function startTabs(list, shown = () => {}) {
  const tabs = [...list.querySelectorAll("[role=tab]")];
  for (const tab of tabs) {
    const panel = byId(tab.dataset.panel);
    tab.id = `tab-${panel.id}`;
    tab.setAttribute("aria-controls", panel.id);
    panel.setAttribute("role", "tabpanel");
    panel.setAttribute("aria-labelledby", tab.id);
    tab.addEventListener("click", () => select(panel.id));
  }
  list.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const next = tabs[(tabs.indexOf(event.target) + step + tabs.length) % tabs.length];
    select(next.dataset.panel);
    next.focus();
    event.preventDefault();
  });
  let current = null;
  function select(name) {
    for (const tab of tabs) {
      const chosen = tab.dataset.panel === name;
      tab.setAttribute("aria-selected", String(chosen));
      tab.tabIndex = chosen ? 0 : -1;
      byId(tab.dataset.panel).hidden = !chosen;
    }
    if (current !== name) {
      current = name;
      shown(name);
    }
  }
  select(tabs[0].dataset.panel);
  return { select, current: () => current };
}
