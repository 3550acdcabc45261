// Where each file of a lake is drawn: directories as nested frames, files as cells whose areas are their bytes.

const HEADER = 15; // pixels of a directory's name
const ROOM_FOR_NAME = [54, 34]; // a smaller frame has none
const BY_NAME = new Intl.Collator("en", { numeric: true });

/** The tree of directories with the totals of each: {name, path, children, files: [first, end), bytes, read}.
 *
 * Files are numbered in the order of the response, so each leaf has one range of numbers. */
export function directoryTree(table) {
  const root = node("", "");
  let first = 0;
  for (const directory of table.directories) {
    let at = root;
    for (const part of directory.path ? directory.path.split("/") : []) {
      const path = at.path ? `${at.path}/${part}` : part;
      let child = at.children.get(part);
      if (!child) at.children.set(part, (child = node(part, path)));
      at = child;
    }
    at.files = [first, first + directory.names.length];
    first += directory.names.length;
  }
  return root;
}

function node(name, path) {
  return { name, path, children: new Map(), files: [0, 0], bytes: 0, count: 0 };
}

/** Sum up the weights of a tree, from its leaves; small files keep a weight so that each can be seen. */
export function weigh(tree, weights) {
  tree.bytes = 0;
  tree.count = tree.files[1] - tree.files[0];
  for (let file = tree.files[0]; file < tree.files[1]; file += 1) tree.bytes += weights[file];
  for (const child of tree.children.values()) {
    weigh(child, weights);
    tree.bytes += child.bytes;
    tree.count += child.count;
  }
  return tree;
}

/** The places of all files and directories of a tree: {x, y, w, h} by file number, and frames from outside in. */
export function layout(tree, weights, width, height) {
  const size = weights.length;
  const places = {
    x: new Float32Array(size),
    y: new Float32Array(size),
    w: new Float32Array(size),
    h: new Float32Array(size),
  };
  const frames = [];
  place(tree, { x: 0, y: 0, w: width, h: height }, 0);
  return { places, frames };

  function place(directory, outer, depth) {
    const joined = depth > 0 ? withoutForks(directory) : { directory, name: directory.name };
    directory = joined.directory;
    const named = depth > 0 && outer.w >= ROOM_FOR_NAME[0] && outer.h >= ROOM_FOR_NAME[1];
    const gap = depth === 0 ? 0 : outer.w < 6 || outer.h < 6 ? 0 : depth === 1 ? 1.5 : 1;
    if (depth > 0) frames.push({ ...outer, directory, name: joined.name, depth, named });
    const top = named ? HEADER : gap;
    const inner = {
      x: outer.x + gap,
      y: outer.y + top,
      w: Math.max(0, outer.w - 2 * gap),
      h: Math.max(0, outer.h - top - gap),
    };
    const items = [];
    for (const child of directory.children.values()) if (child.bytes) items.push({ weight: child.bytes, child });
    for (let file = directory.files[0]; file < directory.files[1]; file += 1)
      items.push({ weight: weights[file], file });
    order(items);
    squarify(items, inner, (item, x, y, w, h) => {
      if (item.child) return place(item.child, { x, y, w, h }, depth + 1);
      places.x[item.file] = x;
      places.y[item.file] = y;
      places.w[item.file] = w;
      places.h[item.file] = h;
    });
  }
}

/** The heaviest first makes the squarest cells. Directories of similar sizes stay in the order of their names: who looks for
 * a year finds it. */
function order(items) {
  const weights = items.map((item) => item.weight);
  const isSimilar =
    items.every((item) => item.child) && items.length <= 1000 && Math.max(...weights) < 4 * Math.min(...weights);
  if (isSimilar) items.sort((a, b) => BY_NAME.compare(a.child.name, b.child.name));
  else items.sort((a, b) => b.weight - a.weight);
}

/** A directory with one directory and no file in it is drawn as one frame: "year=2024/region=eu". */
function withoutForks(directory) {
  let name = directory.name;
  while (directory.children.size === 1 && directory.files[0] === directory.files[1]) {
    [directory] = directory.children.values();
    name = `${name}/${directory.name}`;
  }
  return { directory, name };
}

/** Bruls, Huizing, van Wijk, "Squarified Treemaps" (2000): rows of cells that are as square as possible.
 *
 * `items` come with the heaviest first, or in another order if they are similar; `put(item, x, y, w, h)` gets the place of each. */
export function squarify(items, { x, y, w, h }, put) {
  let left = items.reduce((sum, item) => sum + item.weight, 0);
  let first = 0;
  while (first < items.length) {
    const scale = left > 0 ? (w * h) / left : 0;
    const side = Math.min(w, h);
    let end = first;
    let sum = 0;
    let worst = Infinity;
    let [lightest, heaviest] = [Infinity, 0];
    while (end < items.length) {
      const area = items[end].weight * scale;
      lightest = Math.min(lightest, area);
      heaviest = Math.max(heaviest, area);
      const next = worstRatio(heaviest, lightest, sum + area, side);
      if (next > worst) break;
      worst = next;
      sum += area;
      end += 1;
    }
    end = Math.max(end, first + 1);
    const thick = side > 0 ? sum / side : 0;
    let along = 0;
    for (let at = first; at < end; at += 1) {
      const length = thick > 0 ? (items[at].weight * scale) / thick : 0;
      if (w >= h) put(items[at], x, y + along, thick, length);
      else put(items[at], x + along, y, length, thick);
      along += length;
      left -= items[at].weight;
    }
    if (w >= h) [x, w] = [x + thick, Math.max(0, w - thick)];
    else [y, h] = [y + thick, Math.max(0, h - thick)];
    first = end;
  }
}

function worstRatio(heaviest, lightest, sum, side) {
  const thick = (sum * sum) / (side * side);
  return Math.max(heaviest / thick, thick / (lightest || 1e-9));
}
