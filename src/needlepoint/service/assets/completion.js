// What to propose while SQL is typed: tables, the columns of the tables that the query names, functions, keywords.

const KEYWORDS =
  `all and any as asc between by case cast cross current date desc describe distinct else end escape except
exists explain false fetch filter first following from full group having ilike in inner intersect interval is join last
lateral left like limit natural not null nulls offset on or order outer over partition preceding range right row rows
select show similar then timestamp to true unbounded union unnest using values view when where window with within`.split(
    /\s+/,
  );

const PLAIN = /^[a-z_][a-z0-9_]*$/; // DataFusion makes other names lower-case, unless they are quoted

export const keywords = KEYWORDS;

/** A name as SQL has to write it. */
export function quoted(name) {
  return PLAIN.test(name) && !KEYWORDS.includes(name) ? name : `"${name.replaceAll('"', '""')}"`;
}

/** The tables that a query names, by alias or by name: {p: "product", product: "product"}. */
export function namedTables(sql, tables) {
  const found = {};
  const pattern = /\b(?:from|join)\s+|,\s*/gi;
  for (const match of sql.matchAll(pattern)) {
    const rest = sql.slice(match.index + match[0].length);
    const [, name, , alias] = rest.match(/^("(?:[^"]|"")+"|[\w.]+)(\s+(?:as\s+)?([a-z_]\w*))?/i) ?? [];
    const table = name?.startsWith('"') ? name.slice(1, -1).replaceAll('""', '"') : name?.toLowerCase();
    if (!table || !Object.hasOwn(tables, table)) continue;
    found[table] = table;
    if (alias && !KEYWORDS.includes(alias.toLowerCase())) found[alias.toLowerCase()] = table;
  }
  return found;
}

/** A source for CodeMirror; `names()` returns what /v1/completion said last. */
export function completionSource(names) {
  return (context) => {
    const word = context.matchBefore(/[\w$]*/);
    const before = context.state.sliceDoc(Math.max(0, word.from - 200), word.from);
    if (insideText(before)) return null;
    const { tables, functions } = names();
    const named = namedTables(context.state.doc.toString(), tables);
    const [, quotedOwner, plainOwner] = before.match(/(?:"([^"]+)"|([a-z_]\w*))\.$/i) ?? [];
    const owner = quotedOwner ?? plainOwner?.toLowerCase();
    if (owner !== undefined) {
      const table = named[owner] ?? (Object.hasOwn(tables, owner) ? owner : null);
      return table === null ? null : { from: word.from, options: columnsOf(tables, [table]), validFor: /^[\w$]*$/ };
    }
    if (word.from === word.to && !context.explicit) return null;
    return { from: word.from, options: everything(tables, functions, named, before), validFor: /^[\w$]*$/ };
  };
}

const insideText = (before) => (before.replace(/''/g, "").match(/'/g) ?? []).length % 2 === 1;

function everything(tables, functions, named, before) {
  const wantsTable = /\b(from|join)\s+$/i.test(before);
  const used = [...new Set(Object.values(named))];
  const options = Object.keys(tables).map((name) => ({
    label: name,
    apply: quoted(name),
    type: "table",
    detail: "table",
    boost: wantsTable ? 90 : 10,
  }));
  if (wantsTable) return options;
  return [
    ...columnsOf(tables, used.length ? used : Object.keys(tables)),
    ...options,
    ...functions.map((name) => ({ label: name, apply: `${name}(`, type: "function", detail: "function" })),
    ...KEYWORDS.map((name) => ({ label: name.toUpperCase(), type: "keyword", boost: -10 })),
  ];
}

function columnsOf(tables, names) {
  const seen = new Map(); // a column of several tables is proposed once
  for (const table of names) {
    for (const { name, type } of tables[table] ?? []) {
      const detail = names.length > 1 ? `${type} of ${table}` : type;
      if (!seen.has(name)) seen.set(name, { label: name, apply: quoted(name), type: "column", detail, boost: 50 });
    }
  }
  return [...seen.values()];
}
