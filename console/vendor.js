// What the console uses of CodeMirror; esbuild makes one module of it.
export {
  autocompletion,
  acceptCompletion,
  closeBrackets,
  closeBracketsKeymap,
  closeCompletion,
  completionKeymap,
  startCompletion,
} from "@codemirror/autocomplete";
export { defaultKeymap, history, historyKeymap, indentLess, indentMore } from "@codemirror/commands";
export { SQLDialect, sql } from "@codemirror/lang-sql";
export { HighlightStyle, bracketMatching, syntaxHighlighting, syntaxTree } from "@codemirror/language";
export { Compartment, EditorState, Prec } from "@codemirror/state";
export { EditorView, drawSelection, highlightActiveLine, keymap, lineNumbers, placeholder } from "@codemirror/view";
export { tags } from "@lezer/highlight";
