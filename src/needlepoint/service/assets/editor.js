// The SQL editor: CodeMirror with our completion and the colours of the theme.

import { completionSource, keywords } from "./completion.js";
import * as cm from "./vendor/codemirror.js";

const DIALECT = cm.SQLDialect.define({
  keywords: keywords.join(" "),
  types:
    "bigint binary boolean bytea char date decimal double float int integer interval numeric real smallint string text time timestamp tinyint varchar",
  doubleDollarQuotedStrings: true,
});

const COLOURS = cm.HighlightStyle.define([
  { tag: cm.tags.keyword, color: "var(--keyword)", fontWeight: "600" },
  { tag: [cm.tags.typeName, cm.tags.bool, cm.tags.null], color: "var(--keyword)" },
  { tag: [cm.tags.string, cm.tags.special(cm.tags.string)], color: "var(--string)" },
  { tag: cm.tags.number, color: "var(--figure)" },
  { tag: [cm.tags.lineComment, cm.tags.blockComment], color: "var(--muted)", fontStyle: "italic" },
]);

/** Chrome keeps the colours of a selection that is typed over as an inline style, which the page's policy forbids. So the
 * editor replaces the text itself, as it does for all other keys. */
function typeOverSelection(event, view) {
  const { from, to, empty } = view.state.selection.main;
  if (event.inputType !== "insertText" || !event.data || empty || view.composing) return false;
  const typed = () =>
    view.state.update(view.state.replaceSelection(event.data), { userEvent: "input.type", scrollIntoView: true });
  const isHandled = view.state
    .facet(cm.EditorView.inputHandler)
    .some((handler) => handler(view, from, to, event.data, typed));
  if (!isHandled) view.dispatch(typed());
  event.preventDefault();
  return true;
}

/** `names()` returns tables and functions; `run` and `explain` are called by their keys. */
export function startEditor(parent, { names, run, explain, changed }) {
  const keys = cm.Prec.highest(
    cm.keymap.of([
      { key: "Mod-Enter", run: () => (run(), true) },
      { key: "Mod-Shift-e", run: () => (explain(), true) },
      // Tab completes while something is proposed; otherwise it leaves the editor, as keyboards expect.
      { key: "Tab", run: cm.acceptCompletion },
    ]),
  );
  const view = new cm.EditorView({
    parent,
    extensions: [
      keys,
      cm.EditorView.cspNonce.of(document.querySelector("meta[name=style-nonce]").content),
      cm.lineNumbers(),
      cm.history(),
      cm.drawSelection(),
      cm.bracketMatching(),
      cm.closeBrackets(),
      cm.EditorView.lineWrapping,
      cm.sql({ dialect: DIALECT }),
      cm.syntaxHighlighting(COLOURS),
      cm.autocompletion({ override: [completionSource(names)], icons: false, maxRenderedOptions: 100 }),
      cm.placeholder("SELECT …"),
      cm.keymap.of([...cm.closeBracketsKeymap, ...cm.completionKeymap, ...cm.historyKeymap, ...cm.defaultKeymap]),
      cm.EditorView.contentAttributes.of({ "aria-label": "SQL", spellcheck: "false", autocapitalize: "off" }),
      cm.EditorView.domEventHandlers({ beforeinput: typeOverSelection }),
      cm.EditorView.updateListener.of((update) => update.docChanged && changed()),
    ],
  });
  return {
    text: () => view.state.doc.toString(),
    /** What is selected, or everything. */
    chosen() {
      const { from, to } = view.state.selection.main;
      return view.state.sliceDoc(from, to).trim() || view.state.doc.toString();
    },
    set: (text) =>
      view.dispatch({
        changes: { from: 0, to: view.state.doc.length, insert: text },
        selection: { anchor: text.length },
      }),
    insert(text) {
      view.dispatch(view.state.replaceSelection(text));
      view.focus();
    },
    focus: () => view.focus(),
    closeProposals: () => cm.closeCompletion(view),
    /** Lines and columns are counted from 1, as messages do. */
    goTo(line, column) {
      const found = view.state.doc.line(Math.min(line, view.state.doc.lines));
      view.dispatch({ selection: { anchor: Math.min(found.to, found.from + column - 1) }, scrollIntoView: true });
      view.focus();
    },
  };
}
