"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
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

  const { steps, lanes, texts, places, blocked, memory } = data;
  if (steps.length + blocked.length === 0) return;

  // Positions: so many steps were taken; the last one shows the end of the run.
  const end = steps.length + 1;
  let position = end;
  const opened = new Set();
  let bookkeeping = false;
  let worded = null;

  // What each step met, and what comes before and after it.
  const meetingsOf = steps.map(() => []);
  data.meetings.forEach((meeting, nth) => meeting.forEach((step) => meetingsOf[step].push(nth)));
  const ofLane = lanes.map(() => []);
  const nthInLane = steps.map((step, at) => ofLane[step.lane].push(at) - 1);
  const lanesOf = new Map();
  lanes.forEach((lane, at) => lanesOf.set(lane.rank, [...(lanesOf.get(lane.rank) || []), at]));
  const blockedOf = new Map();
  blocked.forEach((entry, nth) => blockedOf.set(entry.lane, nth));
  const foldOf = new Map();
  data.folds.forEach((fold, nth) => fold.ranks.forEach((rank) => foldOf.set(rank, nth)));

  const rankNames = (ranks) => {
    const runs = [];
    for (const rank of ranks) {
      const last = runs[runs.length - 1];
      if (last && last[1] + 1 === rank) last[1] = rank;
      else runs.push([rank, rank]);
    }
    const words = runs.map(([from, to]) => (from === to ? `${from}` : to === from + 1 ? `${from}, ${to}` : `${from}–${to}`));
    return `rank${ranks.length > 1 ? "s" : ""} ${words.join(", ")}`;
  };
  const shortFile = (file) => file.split("/").pop();
  const placeName = (at) => {
    if (at == null) return "";
    const { file, line, called_at } = places[at];
    const from = called_at ? ` from ${shortFile(called_at[0])}:${called_at[1]}` : "";
    return (line ? `${shortFile(file)}:${line}` : shortFile(file)) + from;
  };
  const bytes = (length) => {
    const units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let unit = 0;
    while (length >= 1024 && length % 1 === 0 && unit < 4 && (length % 1024 === 0 || length >= 10240)) {
      length /= 1024;
      unit += 1;
    }
    return `${Number.isInteger(length) ? length : length.toFixed(1)} ${units[unit]}`;
  };
  const seconds = (ns) => (ns >= 1e9 ? `${(ns / 1e9).toFixed(3)} s` : ns >= 1e6 ? `${(ns / 1e6).toFixed(3)} ms` : `${(ns / 1e3).toFixed(1)} µs`);
  const timed = steps.some((step) => step.time);

  // The lanes that are shown: those of the first rank of each fold, or of all its ranks once it is opened.
  let shownRanks, shownLanes, column, standsFor, visible, rowOf, rowCount, nodes, arrows, layoutOf;
  const isShown = (step) => column.has(step.lane) && (bookkeeping || !step.quiet);

  const arrange = () => {
    shownRanks = [];
    data.folds.forEach((fold, nth) => {
      const ranks = opened.has(nth) ? fold.ranks : [fold.shown];
      ranks.forEach((rank) => shownRanks.push({ rank, fold: nth, first: rank === fold.shown }));
    });
    shownRanks.sort((a, b) => a.rank - b.rank);
    shownLanes = shownRanks.flatMap(({ rank }) => lanesOf.get(rank) || []);
    column = new Map(shownLanes.map((lane, nth) => [lane, nth]));
    // A lane that is not shown is drawn as the one that does the same.
    standsFor = (lane) => {
      if (column.has(lane)) return lane;
      const own = lanesOf.get(lanes[lane].rank);
      const first = data.folds[foldOf.get(lanes[lane].rank)].shown;
      const other = lanesOf.get(first)[own.indexOf(lane)];
      return other != null && column.has(other) ? other : null;
    };
    visible = [];
    steps.forEach((step, at) => { if (isShown(step)) visible.push(at); });
    // Rows in which nothing is shown take no room.
    const rows = new Set(visible.map((at) => steps[at].row));
    const places = [...rows].sort((a, b) => a - b);
    const packed = new Map(places.map((row, nth) => [row, nth]));
    rowOf = (at) => packed.get(steps[at].row);
    const lastRow = new Map();
    visible.forEach((at) => lastRow.set(steps[at].lane, Math.max(lastRow.get(steps[at].lane) ?? -1, rowOf(at))));
    layoutOf = { packed, lastRow };
    rowCount = places.length;
  };
  const ROW = 26, TOP = 10, LEFT = 10;
  const x = (lane) => layoutOf.lefts[column.get(lane)] + 8;
  const y = (row) => TOP + row * ROW + ROW / 2;
  const blockedRow = (entry) => {
    if (entry.step != null && isShown(steps[entry.step])) return rowOf(entry.step);
    return (layoutOf.lastRow.get(entry.lane) ?? -1) + 1;
  };
  const shownStep = (at) => {
    const lane = standsFor(steps[at].lane);
    if (lane == null) return null;
    const other = lane === steps[at].lane ? at : ofLane[lane][nthInLane[at]];
    return other != null && isShown(steps[other]) ? other : null;
  };

  const draw = () => {
    arrange();
    const chart = $("diagram");
    const scroll = [chart.scrollLeft, chart.scrollTop];
    chart.replaceChildren();
    const gutter = timed ? 92 : 0;
    const room = Math.max(chart.clientWidth - LEFT * 2 - gutter - 4, 240);
    const threads = shownLanes.filter((lane) => lanes[lane].kind !== "stream").length;
    const units = threads * 1.25 + (shownLanes.length - threads);
    // Texts matter more than that everything fits, as long as there are not too many.
    const wide = worded === null ? shownLanes.length <= 20 : worded;
    $("worded").checked = wide;
    const unit = wide ? Math.min(Math.max(room / units, 116), 420) : Math.max(room / units, 30);
    layoutOf.lefts = [];
    let left = LEFT + gutter;
    shownLanes.forEach((lane) => {
      layoutOf.lefts.push(left);
      left += lanes[lane].kind === "stream" ? unit : unit * 1.25;
    });
    layoutOf.lefts.push(left);
    const width = left + LEFT;
    const rowsShown = Math.max(rowCount, ...blocked.filter((entry) => column.has(entry.lane)).map((entry) => blockedRow(entry) + 1));
    const height = TOP * 2 + rowsShown * ROW;

    const heads = el("div", { class: "heads" });
    heads.style.width = `${width}px`;
    shownRanks.forEach(({ rank, fold, first }) => {
      const own = lanesOf.get(rank) || [];
      if (!own.length) return;
      const from = layoutOf.lefts[column.get(own[0])], to = layoutOf.lefts[column.get(own[own.length - 1]) + 1];
      const { ranks, alike } = data.folds[fold];
      const open = opened.has(fold);
      let head;
      if (ranks.length > 1 && first) {
        const name = open ? `rank ${rank}` : rankNames(ranks);
        head = el("button", { type: "button", class: "rank", "aria-expanded": String(open), title: `${rankNames(ranks)} do the same${alike ? "" : " lines, with other operands"}` }, name);
        head.addEventListener("click", () => {
          if (open) opened.delete(fold); else opened.add(fold);
          draw();
          const again = $("diagram").querySelectorAll("button.rank");
          for (const button of again) if (button.dataset.fold === String(fold)) button.focus();
        });
        head.dataset.fold = fold;
      } else {
        head = el("span", { class: "rank" }, wide || ranks.length === 1 ? `rank ${rank}` : `${rank}`);
      }
      head.style.left = `${from + 4}px`;
      head.style.maxWidth = `${Math.max(to - from - 6, 26)}px`;
      heads.append(head);
      if (wide) own.forEach((lane) => {
        const name = el("span", { class: "lane" }, lanes[lane].name);
        name.style.left = `${layoutOf.lefts[column.get(lane)] + 4}px`;
        name.style.maxWidth = `${layoutOf.lefts[column.get(lane) + 1] - layoutOf.lefts[column.get(lane)] - 8}px`;
        heads.append(name);
      });
    });

    const field = el("div", { class: wide ? "field" : "field thin" });
    field.style.width = `${width}px`;
    field.style.height = `${height}px`;
    const image = svg("svg", { width, height, "aria-hidden": "true" });
    const defs = svg("defs", {});
    for (const [id, name] of [["tip", ""], ["tip-red", "red"]]) {
      const marker = svg("marker", { id, class: name, viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto-start-reverse" });
      marker.append(svg("path", { d: "M0 0.5 L8 4 L0 7.5 z" }));
      defs.append(marker);
    }
    image.append(defs);
    arrows = [];
    const arrow = (element, kind, of) => { image.append(element); arrows.push({ element, kind, of }); };

    shownRanks.slice(1).forEach(({ rank }) => {
      const own = lanesOf.get(rank);
      if (!own) return;
      const at = layoutOf.lefts[column.get(own[0])] - 3;
      image.append(svg("line", { class: "rankline", x1: at, x2: at, y1: 0, y2: height }));
    });
    shownLanes.forEach((lane) => {
      const rows = visible.filter((at) => steps[at].lane === lane).map(rowOf);
      const entry = blocked[blockedOf.get(lane)];
      const first = rows.length ? Math.min(...rows) : entry ? blockedRow(entry) : 0;
      const last = rows.length ? Math.max(...rows) : first;
      image.append(svg("line", { class: "line", x1: x(lane), x2: x(lane), y1: y(first), y2: y(last) }));
      const done = svg("line", { class: "line done", x1: x(lane), x2: x(lane), y1: y(first), y2: y(first) });
      arrow(done, "lane", { lane, first });
      if (entry) {
        const stuck = svg("line", { class: "line stuck", x1: x(lane), x2: x(lane), y1: y(last), y2: height });
        arrow(stuck, "stuck", {});
      }
    });

    // What met somebody far away is drawn around what stands between.
    const taken = new Set(visible.map((at) => `${steps[at].lane} ${rowOf(at)}`));
    blocked.forEach((entry) => { if (column.has(entry.lane)) taken.add(`${entry.lane} ${blockedRow(entry)}`); });
    const seen = new Set();
    data.meetings.forEach((meeting, nth) => {
      const here = [...new Set(meeting.map(shownStep).filter((at) => at != null))];
      if (here.length < 2) return;
      here.sort((a, b) => x(steps[a].lane) - x(steps[b].lane));
      const key = `m${here.join()}`;
      if (seen.has(key)) return;
      seen.add(key);
      const finding = here.every((at) => steps[at].mark === "finding");
      let path = "";
      const between = (from, to) => {
        const [low, high] = [column.get(steps[from].lane), column.get(steps[to].lane)];
        for (let nth = low + 1; nth < high; nth += 1) if (taken.has(`${shownLanes[nth]} ${rowOf(from)}`)) return true;
        return false;
      };
      for (let nth = 1; nth < here.length; nth += 1) {
        const [from, to] = [here[nth - 1], here[nth]];
        const [x1, y1, x2, y2] = [x(steps[from].lane), y(rowOf(from)), x(steps[to].lane), y(rowOf(to))];
        path += `M${x1} ${y1} ` + (y1 === y2 ? (between(from, to) ? `C${x1 + 24} ${y1 + 15} ${x2 - 24} ${y1 + 15} ${x2} ${y2}` : `H${x2}`) : `C${(x1 + x2) / 2} ${y1} ${(x1 + x2) / 2} ${y2} ${x2} ${y2}`);
      }
      arrow(svg("path", { class: finding ? "met finding" : "met", d: path }), "met", { steps: here, all: meeting, nth });
    });
    data.order.forEach(([earlier, later]) => {
      const [from, to] = [shownStep(earlier), shownStep(later)];
      if (from == null || to == null || steps[from].lane === steps[to].lane) return;
      const key = `${from}>${to}`;
      if (seen.has(key)) return;
      seen.add(key);
      const [x1, y1, x2, y2] = [x(steps[from].lane), y(rowOf(from)), x(steps[to].lane), y(rowOf(to))];
      const side = Math.sign(x2 - x1) * 6;
      const d = `M${x1} ${y1 + 4} C${x1} ${(y1 + y2) / 2} ${x2 - side} ${(y1 + y2) / 2 - 2} ${x2 - side / 3} ${y2 - 6}`;
      arrow(svg("path", { class: "after", d, "marker-end": "url(#tip)" }), "after", { steps: [from, to] });
    });
    const anyFinding = blocked.some((entry) => entry.finding && entry.waits_for.length);
    blocked.forEach((entry, nth) => {
      if (!column.has(entry.lane)) return;
      entry.waits_for.forEach((other) => {
        const lane = standsFor(blocked[other].lane);
        const to = lane == null ? null : blockedOf.get(lane);
        const at = data.cycle.indexOf(nth);
        const inCycle = at >= 0 && data.cycle[(at + 1) % data.cycle.length] === other;
        // Where there is a circle, it says all; else what the finding is about does.
        if (data.cycle.length ? !inCycle : !entry.finding && anyFinding) return;
        if (to == null || lane === entry.lane || seen.has(`w${nth}>${to}`)) return;
        seen.add(`w${nth}>${to}`);
        const [x1, y1, x2, y2] = [x(entry.lane), y(blockedRow(entry)), x(lane), y(blockedRow(blocked[to]))];
        const bend = Math.abs(y1 - y2) < 2 ? 16 + Math.min(Math.abs(x2 - x1) / 16, 24) : 6;
        const sign = x2 > x1 ? 1 : -1;
        const d = `M${x1 + 6 * sign} ${y1 + 6 * sign} Q${(x1 + x2) / 2} ${(y1 + y2) / 2 + bend * sign} ${x2 - 6 * sign} ${y2 + 6 * sign}`;
        arrow(svg("path", { class: inCycle ? "waits cycle" : "waits", d, "marker-end": "url(#tip-red)" }), "waits", {});
      });
    });
    field.append(image);

    if (timed) {
      const first = new Map();
      visible.forEach((at) => {
        if (steps[at].time) first.set(rowOf(at), Math.min(first.get(rowOf(at)) ?? Infinity, steps[at].time[0]));
      });
      let before = "";
      [...first].sort((a, b) => a[0] - b[0]).forEach(([row, time]) => {
        const text = `+${seconds(time)}`;
        if (text !== before) {
          const mark = el("span", { class: "times" }, text);
          mark.style.left = `${LEFT}px`;
          mark.style.top = `${y(row) - 11}px`;
          field.append(mark);
        }
        before = text;
      });
    }
    const isHere = (at) => blockedOf.has(steps[at].lane) && blocked[blockedOf.get(steps[at].lane)].step === at;
    nodes = new Map();
    const node = (lane, row, name, text, title) => {
      const made = el("button", { type: "button", tabindex: "-1", class: `step ${name}`, title }, el("i"));
      made.append(el("span", {}, text));
      made.style.left = `${x(lane) - 8}px`;
      made.style.top = `${y(row) - 11}px`;
      const width = layoutOf.lefts[column.get(lane) + 1] - layoutOf.lefts[column.get(lane)];
      if (wide) made.style.maxWidth = `${width - 2}px`;
      field.append(made);
      return made;
    };
    visible.forEach((at) => {
      if (isHere(at)) return;
      const step = steps[at];
      const name = [step.mark, step.quiet ? "quiet" : "", step.time && step.time[1] == null ? "open" : ""].filter(Boolean).join(" ");
      const made = node(step.lane, rowOf(at), name, texts[step.text], `${texts[step.text]}\n${placeName(step.place)}`);
      made.addEventListener("click", () => go(at + 1));
      nodes.set(at, made);
    });
    blocked.forEach((entry, nth) => {
      if (!column.has(entry.lane)) return;
      const made = node(entry.lane, blockedRow(entry), "blocked", texts[entry.text], `${texts[entry.text]}: blocked ${entry.waits_in}\n${placeName(entry.place)}`);
      made.addEventListener("click", () => go(end));
      nodes.set(`b${nth}`, made);
    });
    chart.append(heads, field);
    [chart.scrollLeft, chart.scrollTop] = scroll;
    show(false);
  };

  // Sentences.
  const who = (lane) => {
    const { ranks } = data.folds[foldOf.get(lanes[lane].rank)];
    const name = opened.has(foldOf.get(lanes[lane].rank)) ? `rank ${lanes[lane].rank}` : rankNames(ranks);
    return `${name}, ${lanes[lane].name}`;
  };
  const tell = () => {
    const told = $("told");
    told.className = "told";
    if (position === 0) {
      told.replaceChildren("The run begins.");
    } else if (position === end) {
      const waits = blocked.length ? ` ${blocked.length === 1 ? "One wait is" : `${blocked.length} waits are`} not over${data.cycle.length ? `, ${data.cycle.length} of them in a circle` : ""}.` : "";
      told.replaceChildren(el("span", { class: "who" }, "End of the run. "), `${data.about.ends}${waits}`);
    } else {
      const step = steps[position - 1];
      const parts = [el("span", { class: "who" }, `${who(step.lane)}: `), el("code", {}, texts[step.text])];
      const at = placeName(step.place);
      if (at) parts.push(el("span", { class: "who" }, ` (${at})`));
      if (step.note != null) parts.push(`. ${texts[step.note]}`);
      const met = meetingsOf[position - 1].flatMap((nth) => data.meetings[nth]).filter((other) => other !== position - 1);
      if (met.length) {
        const ranks = [...new Set(met.map((other) => lanes[steps[other].lane].rank))].sort((a, b) => a - b);
        parts.push(`. Meets ${rankNames(ranks)}`);
      }
      if (step.time) {
        const [from, to] = step.time;
        parts.push(`. At +${seconds(from)}${to == null ? ", and never over" : `, for ${seconds(to - from)}`}`);
      }
      if (step.mark === "finding") parts.push(". The finding is about this call");
      else if (step.mark === "cause") parts.push(". This decided the finding");
      else if (step.mark === "essential") parts.push(". Without this call the finding is gone");
      parts.push(".");
      told.replaceChildren(...parts);
    }
  };

  // Source: the line of the current step, and where the other ranks stand.
  const sources = new Map(data.sources.map((source) => [source.file, source]));
  // A line of a library is shown by the line of the program that called it.
  const written = (at) => {
    const { file, line, called_at } = places[at];
    return called_at && sources.has(called_at[0]) ? called_at : [file, line];
  };
  let drawnFile = null;
  const rowsOfFile = new Map();
  const drawSource = (current) => {
    const box = $("source");
    const place = current.place == null ? null : places[current.place];
    const [file, line] = place ? written(current.place) : [null, 0];
    const library = place && file !== place.file ? `, in ${shortFile(place.file)}:${place.line}` : "";
    $("source-title").textContent = place ? (line ? `${file}:${line}${library}` : file) : "Source";
    if (!sources.has(file)) {
      drawnFile = null;
      const text = place ? "The text of this file is not part of the page." : "Nobody knows where this was called.";
      const note = current.note != null ? el("p", { class: "nothing mono" }, texts[current.note]) : null;
      box.replaceChildren(el("p", { class: "nothing" }, text), ...(note ? [note] : []));
      return;
    }
    if (drawnFile !== file) {
      drawnFile = file;
      rowsOfFile.clear();
      const table = el("table", { class: "code" });
      table.setAttribute("role", "presentation");
      sources.get(file).parts.forEach(([first, lines], nth) => {
        if (nth > 0) table.append(el("tr", { class: "gap" }, el("td", {}, "⋯"), el("td"), el("td")));
        lines.forEach((text, offset) => {
          const row = el("tr", {}, el("td", { class: "n" }, String(first + offset)), el("td", { class: "at" }), el("td", {}, text || " "));
          rowsOfFile.set(first + offset, row);
          table.append(row);
        });
      });
      box.replaceChildren(table);
      steps.concat(blocked).forEach((step) => {
        if ((step.mark === "finding" || step.finding) && step.place != null && written(step.place)[0] === file) {
          rowsOfFile.get(written(step.place)[1])?.classList.add("fault");
        }
      });
    }
    for (const row of rowsOfFile.values()) {
      row.classList.remove("now", "here");
      row.children[1].textContent = "";
    }
    const at = new Map();
    shownRanks.forEach(({ rank }) => (lanesOf.get(rank) || []).forEach((lane) => {
      if (lanes[lane].kind === "stream") return;
      const where = standing(lane);
      if (where && where.place != null && written(where.place)[0] === file) {
        const line = written(where.place)[1];
        at.set(line, [...(at.get(line) || []), `r${rank}`]);
      }
    }));
    at.forEach((ranks, line) => {
      const row = rowsOfFile.get(line);
      if (!row) return;
      row.classList.add("here");
      row.children[1].textContent = ranks.length > 3 ? `${ranks.slice(0, 3).join(" ")}…` : ranks.join(" ");
    });
    const row = rowsOfFile.get(line);
    if (row) {
      row.classList.add("now");
      const from = row.offsetTop - box.clientHeight / 2;
      if (row.offsetTop < box.scrollTop + 30 || row.offsetTop > box.scrollTop + box.clientHeight - 50) box.scrollTop = Math.max(from, 0);
    }
  };
  // Where a lane stands: its last step so far, or what it is blocked in.
  const standing = (lane) => {
    if (position === end && blockedOf.has(lane)) return blocked[blockedOf.get(lane)];
    const own = ofLane[lane];
    let [low, high] = [0, own.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (own[middle] < position) low = middle + 1; else high = middle;
    }
    return low ? steps[own[low - 1]] : null;
  };

  // Memory.
  const changesOf = new Map();
  memory.changes.forEach(([after, rank, view]) => changesOf.set(rank, [...(changesOf.get(rank) || []), [after, view]]));
  const viewAt = (rank, at) => {
    const changes = changesOf.get(rank) || [];
    let found = null;
    for (const [after, view] of changes) {
      if (after > at) break;
      found = view;
    }
    return found == null ? null : memory.views[found];
  };
  const contentsOf = (stripes) => {
    if (stripes.length === 1) return el("span", {}, stripes[0]);
    const box = el("div", { class: "stripes" });
    const runs = [];
    stripes.forEach((text, nth) => {
      const last = runs[runs.length - 1];
      if (last && last.text === text) last.to = nth;
      else runs.push({ from: nth, to: nth, text });
    });
    runs.slice(0, 6).forEach(({ from, to, text }) => box.append(el("div", {}, el("small", {}, `share ${from === to ? from : `${from}–${to}`} `), text)));
    if (runs.length > 6) box.append(el("div", {}, el("small", {}, `… ${runs.length - 6} more`)));
    return box;
  };
  const drawPiece = (piece, changed) => {
    const box = el("div", { class: `piece${piece.released ? " released" : ""}${changed ? " changed" : ""}` });
    const also = [piece.allocator, bytes(piece.len_bytes)];
    if (piece.address_of) also.push(`at the address of ${piece.address_of}`);
    if (piece.released) also.push("freed");
    box.append(el("div", { class: "name" }, el("b", {}, piece.name), el("span", {}, also.join(", "))));
    if (piece.blocks.length) {
      const bar = el("div", { class: "bar" });
      piece.blocks.forEach(([offset, length, name]) => {
        const part = el("span", { class: name == null ? "free" : "", title: `${name ?? "free"}: ${bytes(length)} at ${offset}` }, name ?? "free");
        part.style.flexGrow = Math.max(length / piece.len_bytes, 0.02);
        part.style.flexBasis = "0";
        bar.append(part);
      });
      box.append(bar);
    }
    if (piece.contents.length) {
      const list = el("ul");
      piece.contents.slice(0, 8).forEach(([offset, length, content]) => {
        const block = piece.blocks.find(([from, long, name]) => name != null && from <= offset && offset < from + long);
        const range = block ? (offset === block[0] ? block[2] : `${block[2]}+${bytes(offset - block[0])}`) : piece.blocks.length ? `at ${bytes(offset)}` : offset === 0 && length === piece.len_bytes ? "all" : `${bytes(offset)}–${bytes(offset + length)}`;
        list.append(el("li", {}, el("span", { class: "range" }, range), contentsOf(memory.contents[content])));
      });
      if (piece.contents.length > 8) list.append(el("li", {}, `… ${piece.contents.length - 8} more ranges`));
      box.append(list);
    }
    return box;
  };
  const drawMemory = (current) => {
    $("memory-section").hidden = !memory.changes.length;
    if (!memory.changes.length) return;
    const box = $("memory");
    const top = box.scrollTop;
    const parts = [];
    const rank = current.lane == null ? null : lanes[standsFor(current.lane) ?? current.lane].rank;
    const first = shownRanks.filter((shown) => shown.rank === rank);
    const order = position === end ? shownRanks : first.concat(shownRanks.filter((shown) => shown.rank !== rank)).sort((a, b) => a.rank - b.rank);
    order.slice(0, 12).forEach(({ rank, fold, first }) => {
      const view = viewAt(rank, Math.min(position, steps.length));
      const { ranks, alike } = data.folds[fold];
      const name = !opened.has(fold) && first && ranks.length > 1 ? (alike ? rankNames(ranks) : `rank ${rank}`) : `rank ${rank}`;
      const of = el("div", { class: "of" }, el("h3", {}, name));
      if (!view || !(view.pieces.length + view.windows.length + view.mappings.length)) {
        of.append(el("div", { class: "piece" }, "nothing allocated"));
      } else {
        const before = position > 0 && position <= steps.length ? viewAt(rank, position - 1) : view;
        const had = new Set(before ? before.pieces : []);
        view.pieces.forEach((piece) => of.append(drawPiece(memory.pieces[piece], !had.has(piece))));
        const hadWindows = new Set((before ? before.windows : []).map((window) => JSON.stringify(window)));
        view.windows.forEach((window) => {
          const what = `${window.name} → ${window.memory}${window.offset_bytes ? `+${bytes(window.offset_bytes)}` : ""}`;
          const title = `window of ${bytes(window.len_bytes)}${window.symmetric ? ", symmetric" : ""}${window.dangling ? ", deregistered and still found" : ""}`;
          of.append(el("span", { class: `chip${window.dangling ? " dangling" : ""}${hadWindows.has(JSON.stringify(window)) ? "" : " changed"}`, title }, what));
        });
        view.mappings.forEach(([of_rank, memory, opened]) => {
          of.append(el("span", { class: "chip", title: `memory of rank ${of_rank}, opened ${opened} times` }, `open: r${of_rank}.${memory}${opened > 1 ? ` ×${opened}` : ""}`));
        });
      }
      parts.push(of);
    });
    if (order.length > 12) parts.push(el("p", { class: "nothing" }, `… ${order.length - 12} more ranks`));
    box.replaceChildren(...parts);
    box.scrollTop = top;
  };

  // The position.
  let shownNow = [];
  const show = (follow) => {
    const taken = position;
    nodes.forEach((node, at) => {
      const isBlocked = typeof at === "string";
      node.classList.toggle("done", isBlocked ? taken === end : at < taken);
      node.classList.toggle("now", isBlocked ? false : at === taken - 1);
    });
    const current = taken === 0 || taken === end ? null : taken - 1;
    const near = current == null ? null : shownStep(current);
    if (near != null && near !== current) nodes.get(near)?.classList.add("now");
    arrows.forEach(({ element, kind, of }) => {
      if (kind === "lane") {
        const rows = visible.filter((at) => at < taken && steps[at].lane === of.lane).map(rowOf);
        element.setAttribute("y2", y(rows.length ? Math.max(...rows) : of.first));
      } else if (kind === "stuck" || kind === "waits") {
        element.style.display = taken === end ? "" : "none";
      } else {
        element.classList.toggle("done", of.steps.every((at) => at < taken));
        element.classList.toggle("near", near != null && of.steps.includes(near));
      }
    });
    $("number").textContent = taken === end ? `end, ${steps.length} steps` : `step ${taken} of ${steps.length}`;
    const slider = $("slider");
    slider.max = end;
    slider.value = taken;
    slider.setAttribute("aria-valuetext", $("number").textContent);
    $("first").disabled = $("back").disabled = taken === 0;
    $("forward").disabled = $("last").disabled = taken === end;
    tell();
    const fault = blocked.find((entry) => entry.finding && column.has(entry.lane)) || [...steps].reverse().find((step) => step.mark === "finding") || blocked[0] || steps[steps.length - 1];
    const subject = current == null ? (taken === 0 ? steps[0] || fault : fault) : steps[current];
    drawSource(subject);
    drawMemory(subject);
    if (follow) {
      const at = taken === end ? [...nodes].filter(([key]) => typeof key === "string").map(([, node]) => node)[0] || nodes.get(near ?? steps.findLastIndex((step) => step.mark === "finding")) : nodes.get(near ?? current);
      const chart = $("diagram");
      if (at) {
        const [top, left] = [at.offsetTop, at.offsetLeft];
        if (top < chart.scrollTop + 30 || top > chart.scrollTop + chart.clientHeight - 110) chart.scrollTop = Math.max(top - chart.clientHeight / 2, 0);
        if (left < chart.scrollLeft + 20 || left > chart.scrollLeft + chart.clientWidth - 160) chart.scrollLeft = Math.max(left - chart.clientWidth / 2, 0);
      } else if (taken === 0) chart.scrollTop = 0;
    }
  };
  const go = (to, remember = true) => {
    position = Math.max(0, Math.min(end, to));
    show(true);
    if (remember) history.replaceState(null, "", position === end ? "#step=end" : `#step=${position}`);
  };
  const forward = () => { const next = visible.find((at) => at + 1 > position); go(next == null ? end : next + 1); };
  const back = () => { const before = visible.findLast((at) => at + 1 < position); go(before == null ? 0 : before + 1); };
  const strong = (at) => steps[at].mark && steps[at].mark !== "decision";
  const nextMark = () => { const next = visible.find((at) => at + 1 > position && strong(at)); go(next == null ? end : next + 1); };
  const previousMark = () => { const before = visible.findLast((at) => at + 1 < position && strong(at)); go(before == null ? 0 : before + 1); };
  const linked = () => {
    const found = /^#step=(\d+|end)$/.exec(location.hash);
    if (found) go(found[1] === "end" ? end : Number(found[1]), false);
    return Boolean(found);
  };

  $("bench").hidden = false;
  $("source-section").hidden = !places.length;
  if (!places.length && !memory.changes.length) $("bench").querySelector(".work").classList.add("alone");
  $("worded").addEventListener("change", (event) => { worded = event.target.checked; draw(); });
  $("first").addEventListener("click", () => go(0));
  $("back").addEventListener("click", back);
  $("forward").addEventListener("click", forward);
  $("last").addEventListener("click", () => go(end));
  $("slider").addEventListener("input", (event) => go(Number(event.target.value)));
  $("marked").addEventListener("click", () => (position === end ? (go(0), nextMark()) : nextMark()));
  if (steps.some((step) => step.quiet)) $("quiet").addEventListener("change", (event) => { bookkeeping = event.target.checked; draw(); });
  else $("quiet-label").hidden = true;
  if (data.folds.some((fold) => fold.ranks.length > 1)) {
    const unfold = $("unfold");
    unfold.hidden = false;
    unfold.addEventListener("click", () => {
      const all = opened.size === 0;
      opened.clear();
      if (all) data.folds.forEach((_, nth) => opened.add(nth));
      unfold.textContent = all ? "Fold ranks" : "Unfold all ranks";
      draw();
    });
  }
  const keys = { ArrowLeft: back, ArrowRight: forward, Home: () => go(0), End: () => go(end), n: nextMark, p: previousMark };
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, pre")) return;
    const act = keys[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  });
  addEventListener("hashchange", linked);
  let resized = 0;
  addEventListener("resize", () => { cancelAnimationFrame(resized); resized = requestAnimationFrame(draw); });
  addEventListener("beforeprint", () => draw());
  draw();
  if (!linked()) show(true);
  document.documentElement.dataset.ready = String(Math.round(performance.now()));
})();
