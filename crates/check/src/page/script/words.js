// Elements, and numbers and names as people read them.
const $ = (id) => document.getElementById(id);

const el = (name, attributes, ...children) => {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (value === true) made.setAttribute(key, "");
    else if (value !== false && value != null) made.setAttribute(key, value);
  }
  made.append(...children.filter((child) => child != null));
  return made;
};

const svg = (name, attributes) => {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
};

const grouped = (items, key) => {
  const groups = new Map();
  items.forEach((item) => {
    if (!groups.has(key(item))) groups.set(key(item), []);
    groups.get(key(item)).push(item);
  });
  return groups;
};

// Numbers in a row as runs of neighbours.
const runsOf = (numbers) => {
  const runs = [];
  for (const number of numbers) {
    const last = runs[runs.length - 1];
    if (last && last[1] + 1 === number) last[1] = number;
    else runs.push([number, number]);
  }
  return runs;
};

const rankNames = (ranks) => {
  const words = runsOf(ranks).map(([from, to]) => {
    if (from === to) return `${from}`;
    return to === from + 1 ? `${from}, ${to}` : `${from}–${to}`;
  });
  return `rank${ranks.length > 1 ? "s" : ""} ${words.join(", ")}`;
};

const shortFile = (file) => file.split("/").pop();

const bytes = (length) => {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (length >= 1024 && length % 1 === 0 && unit < 4 && (length % 1024 === 0 || length >= 10240)) {
    length /= 1024;
    unit += 1;
  }
  return `${Number.isInteger(length) ? length : length.toFixed(1)} ${units[unit]}`;
};

const seconds = (ns) => {
  if (ns >= 1e9) return `${(ns / 1e9).toFixed(3)} s`;
  return ns >= 1e6 ? `${(ns / 1e6).toFixed(3)} ms` : `${(ns / 1e3).toFixed(1)} µs`;
};
