// Memory: a table of windows, memory and mappings, with a column for each rank and what each holds after the step.
const COLUMNS = 12, RANGES = 8, LONG = 90;
const changesOf = grouped(memory.changes, ([, rank]) => rank);
const EMPTY = { pieces: [], windows: [], mappings: [] };

const viewAt = (rank, at) => {
  const before = (changesOf.get(rank) || []).filter(([after]) => after <= at);
  return before.length ? memory.views[before[before.length - 1][2]] : EMPTY;
};

const clipped = (text) => (text.length > LONG ? el("span", { title: text }, `${text.slice(0, LONG)}…`) : el("span", {}, text));

// One text, or one for each share of the ranks, those that are alike together.
const drawStripes = (stripes) => {
  if (stripes.length === 1) return clipped(stripes[0]);
  const box = el("span", { class: "stripes" });
  const runs = [];
  stripes.forEach((text, nth) => {
    const last = runs[runs.length - 1];
    if (last && last.text === text) last.to = nth;
    else runs.push({ from: nth, to: nth, text });
  });
  if (runs.length === 1) return clipped(stripes[0]);
  runs.slice(0, 6).forEach(({ from, to, text }) => {
    box.append(el("span", {}, el("small", {}, `share ${from === to ? from : `${from}–${to}`} `), clipped(text)));
  });
  if (runs.length > 6) box.append(el("span", {}, el("small", {}, `… ${runs.length - 6} more shares`)));
  return box;
};

const rangeName = (piece, offset, length) => {
  const block = piece.blocks.find(([from, long, name]) => name != null && from <= offset && offset < from + long);
  if (block) return offset === block[0] ? block[2] : `${block[2]}+${bytes(offset - block[0])}`;
  if (offset === 0 && length === piece.len_bytes) return "";
  return `${bytes(offset)}–${bytes(offset + length)}`;
};

const drawContent = (piece, nth) => {
  const [offset, length, content] = piece.contents[nth];
  const wrong = (piece.wrong || []).find(([of]) => of === nth);
  const name = rangeName(piece, offset, length);
  const box = el("div", { class: wrong ? "content wrong" : "content" }, name ? el("small", {}, `${name} = `) : null, drawStripes(memory.contents[content]));
  if (wrong) box.append(el("span", { class: "meant" }, el("b", {}, "wrong"), ", meant: ", drawStripes(memory.contents[wrong[1]])));
  return box;
};

const drawContents = (piece, [from, to]) => {
  const inside = [...piece.contents.keys()].filter((nth) => piece.contents[nth][0] < to && from < piece.contents[nth][0] + piece.contents[nth][1]);
  const shown = inside.slice(0, RANGES).map((nth) => drawContent(piece, nth));
  if (inside.length > RANGES) shown.push(el("small", {}, `… ${inside.length - RANGES} more ranges`));
  return shown;
};

const drawBlocks = (piece) => {
  if (!piece.blocks.length) return null;
  const bar = el("div", { class: "bar" });
  piece.blocks.forEach(([offset, length, name]) => {
    const part = el("span", { class: name == null ? "free" : "", title: `${name ?? "free"}: ${bytes(length)} at ${offset}` }, name ?? "free");
    part.style.flexGrow = Math.max(length / piece.len_bytes, 0.02);
    bar.append(part);
  });
  return bar;
};

const drawPiece = (piece) => {
  const also = [piece.allocator, bytes(piece.len_bytes)];
  if (piece.address_of) also.push(`at the address of ${piece.address_of}`);
  const freed = piece.released ? el("span", { class: "sign fault" }, "freed") : null;
  return [el("small", {}, `${also.join(", ")} `), freed, drawBlocks(piece), ...drawContents(piece, [0, Infinity])];
};

const drawWindow = (window, view) => {
  const piece = view.pieces.map((at) => memory.pieces[at]).find(({ name }) => name === window.memory);
  const at = window.offset_bytes ? `+${bytes(window.offset_bytes)}` : "";
  const kind = `${bytes(window.len_bytes)}${window.symmetric ? ", symmetric" : ""}`;
  const gone = window.dangling ? el("span", { class: "sign fault" }, "deregistered, and still found") : null;
  const range = [window.offset_bytes, window.offset_bytes + window.len_bytes];
  return [el("b", {}, `${window.memory}${at} `), el("small", {}, kind), gone, ...(piece ? drawContents(piece, range) : [])];
};

const drawMapping = ([rank, name, opened]) => [el("span", {}, `r${rank}.${name}${opened > 1 ? ` ×${opened}` : ""}`)];

// What the rows of each kind are: by name, with how each is drawn.
const KINDS = [
  ["windows", "Windows", (view) => view.windows.map((of) => [of.name, of, () => drawWindow(of, view)])],
  ["pieces", "Memory", (view) => view.pieces.map((at) => [memory.pieces[at].name, at, () => drawPiece(memory.pieces[at])])],
  ["mappings", "Memory of other ranks that is open", (view) => view.mappings.map((of) => [`r${of[0]}.${of[1]}`, of, () => drawMapping(of)])],
];

const drawCell = (entry, before) => {
  if (!entry) return el("td", { class: "muted" }, "–");
  const changed = before === undefined || JSON.stringify(before) !== JSON.stringify(entry[1]);
  const cell = el("td", {}, ...entry[2]().filter(Boolean));
  if (changed) cell.prepend(el("span", { class: "sign changed", title: "changed by this step" }, "•"), " ");
  return cell;
};

const drawKind = ([, title, rowsOf], columns) => {
  const now = columns.map(({ now }) => new Map(rowsOf(now).map((entry) => [entry[0], entry])));
  const before = columns.map(({ before }) => new Map(rowsOf(before).map((entry) => [entry[0], entry[1]])));
  const names = [...new Set(now.flatMap((entries) => [...entries.keys()]))];
  if (!names.length) return null;
  const body = el("tbody", {}, el("tr", {}, el("th", { scope: "rowgroup", colspan: columns.length + 1 }, title)));
  names.forEach((name) => {
    const cells = columns.map((column, nth) => drawCell(now[nth].get(name), column.stepped ? before[nth].get(name) : now[nth].get(name)?.[1]));
    body.append(el("tr", {}, el("th", { scope: "row" }, name), ...cells));
  });
  return body;
};

const drawMemory = () => {
  $("memory-section").hidden = !memory.changes.length;
  if (!memory.changes.length) return;
  const at = Math.min(view.position, steps.length);
  const stepped = view.position > 0 && view.position < END;
  const shown = layout.ranks.slice(0, COLUMNS);
  const columns = shown.map(({ rank, fold }) => ({
    name: folds[fold].alike ? whoIs(rank) : `rank ${rank}`,
    now: viewAt(rank, at),
    before: viewAt(rank, at - 1),
    stepped,
  }));
  const kinds = KINDS.map((kind) => drawKind(kind, columns)).filter(Boolean);
  const left = layout.ranks.length - shown.length;
  const head = el("thead", {}, el("tr", {}, el("td"), ...columns.map(({ name }) => el("th", { scope: "col" }, name))));
  const table = el("table", { class: "plain memory" }, head, ...kinds);
  const nothing = el("p", { class: "nothing" }, "Nothing is allocated yet.");
  $("memory").replaceChildren(kinds.length ? table : nothing, ...(left > 0 ? [el("p", { class: "nothing" }, `${left} more ranks are not shown.`)] : []));
};
