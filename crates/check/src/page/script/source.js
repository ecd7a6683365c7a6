// The source: the line of the step, the lines that a reader should look at, and where each rank stands.
const sources = new Map(data.sources.map((source) => [source.file, source]));
const rowsOfFile = new Map();
let fileShown = null;

// A line of a library is shown by the line of the program that called it.
const written = (at) => {
  const { file, line, called_at } = places[at];
  return called_at && sources.has(called_at[0]) ? called_at : [file, line];
};

// The notes of each line of a file, those of one kind and text once.
const notesOf = (file) => {
  const notes = new Map();
  data.lines.forEach(({ place, sign, words }) => {
    const [of, line] = written(place);
    if (of === file) notes.set(line, [...(notes.get(line) || []), { sign, words }]);
  });
  return notes;
};

const drawNotes = (notes, indent) => {
  const box = el("div");
  box.style.paddingLeft = `${indent}ch`;
  const said = new Set();
  notes.forEach(({ sign, words }) => {
    if (!said.has(words)) box.append(el("span", { class: `sign ${sign}` }, words), " ");
    said.add(words);
  });
  return el("tr", {}, el("td", { class: "n" }), el("td", { class: "at" }), el("td", { class: "notes" }, box));
};

const drawFile = (file) => {
  fileShown = file;
  rowsOfFile.clear();
  const table = el("table", { class: "code", role: "presentation" });
  const notes = notesOf(file);
  sources.get(file).parts.forEach(([first, lines], nth) => {
    if (nth > 0) table.append(el("tr", { class: "gap" }, el("td", {}, "⋯"), el("td"), el("td")));
    lines.forEach((text, offset) => {
      const line = first + offset;
      const signs = (notes.get(line) || []).map(({ sign }) => sign);
      const row = el("tr", { class: [...new Set(signs)].join(" ") }, el("td", { class: "n" }, String(line)), el("td", { class: "at" }), el("td", {}, text || " "));
      rowsOfFile.set(line, row);
      table.append(row);
      if (notes.has(line)) table.append(drawNotes(notes.get(line), text.length - text.trimStart().length));
    });
  });
  steps.concat(blocked).forEach((step) => {
    if ((step.mark === "finding" || step.finding) && step.place != null && written(step.place)[0] === file) {
      rowsOfFile.get(written(step.place)[1])?.classList.add("fault");
    }
  });
  return table;
};

const markStanding = (file) => {
  for (const row of rowsOfFile.values()) {
    row.classList.remove("now", "here");
    row.children[1].textContent = "";
  }
  const standsAt = new Map();
  layout.ranks.forEach(({ rank }) => (lanesOf.get(rank) || []).forEach((lane) => {
    const where = lanes[lane].kind === "stream" ? null : standing(lane);
    if (!where || where.place == null || written(where.place)[0] !== file) return;
    const line = written(where.place)[1];
    standsAt.set(line, [...(standsAt.get(line) || []), `r${rank}`]);
  }));
  standsAt.forEach((ranks, line) => {
    const row = rowsOfFile.get(line);
    if (!row) return;
    row.classList.add("here");
    row.children[1].textContent = ranks.length > 3 ? `${ranks.slice(0, 3).join(" ")}…` : ranks.join(" ");
  });
};

const scrollToRow = (box, row) => {
  const seen = row.offsetTop >= box.scrollTop + 30 && row.offsetTop <= box.scrollTop + box.clientHeight - 80;
  if (!seen) box.scrollTop = Math.max(row.offsetTop - box.clientHeight / 2, 0);
};

// At the end, the line to look at: what would repair it, what decided it, or where ranks diverge.
const placeToShow = (current) => {
  if (view.position !== END) return current.place;
  const wanted = ["repair", "cause", "diverges"].map((sign) => data.lines.find((line) => line.sign === sign));
  const found = wanted.find((line) => line && sources.has(written(line.place)[0]));
  return found ? found.place : current.place;
};

const drawSource = (current) => {
  const box = $("source");
  const at = placeToShow(current);
  const [file, line] = at == null ? [null, 0] : written(at);
  const library = at != null && file !== places[at].file ? `, in ${shortFile(places[at].file)}:${places[at].line}` : "";
  $("source-title").textContent = at == null ? "Source" : `${line ? `${file}:${line}` : file}${library}`;
  if (!sources.has(file)) {
    fileShown = null;
    const why = at == null ? "Nobody knows where this was called." : "The text of this file is not part of the page: --sources DIR of rankcheck report adds it.";
    box.replaceChildren(el("p", { class: "nothing" }, why), ...(current.note != null ? [el("p", { class: "nothing mono" }, texts[current.note])] : []));
    return;
  }
  if (fileShown !== file) box.replaceChildren(drawFile(file));
  markStanding(file);
  const row = rowsOfFile.get(line);
  if (!row) return;
  row.classList.add("now");
  scrollToRow(box, row);
};
