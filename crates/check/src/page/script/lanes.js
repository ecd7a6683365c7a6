// The lanes: which of them are shown, where each call stands, and their heads and labels.
const ROW = 28, TOP = 10, LEFT = 10, TIMES = 76, DOT = 14;
let layout = null;
let nodes = new Map();

const shownRanks = () => {
  const shown = folds.flatMap((fold, nth) => {
    const ranks = view.opened.has(nth) ? fold.ranks : [fold.shown];
    return ranks.map((rank) => ({ rank, fold: nth, first: rank === fold.shown }));
  });
  return shown.sort((a, b) => a.rank - b.rank);
};

const isShown = (step) => layout.column.has(step.lane) && (view.quiet || !step.quiet);

// Rows in which nothing is shown take no room.
const packRows = () => {
  const rows = [...new Set(layout.visible.map((at) => steps[at].row))].sort((a, b) => a - b);
  layout.packed = new Map(rows.map((row, nth) => [row, nth]));
  layout.lastRow = new Map();
  layout.visible.forEach((at) => {
    const { lane } = steps[at];
    layout.lastRow.set(lane, Math.max(layout.lastRow.get(lane) ?? -1, rowOf(at)));
  });
  const waits = blocked.filter((wait) => layout.column.has(wait.lane));
  layout.rows = Math.max(rows.length, ...waits.map((wait) => rowOfWait(wait) + 1));
};

const rowOf = (at) => layout.packed.get(steps[at].row);
const rowOfWait = (wait) => {
  if (wait.step != null && isShown(steps[wait.step])) return rowOf(wait.step);
  return (layout.lastRow.get(wait.lane) ?? -1) + 1;
};

const arrange = () => {
  const ranks = shownRanks();
  const shown = ranks.flatMap(({ rank }) => lanesOf.get(rank) || []);
  layout = { ranks, lanes: shown, column: new Map(shown.map((lane, nth) => [lane, nth])) };
  layout.visible = [...steps.keys()].filter((at) => isShown(steps[at]));
  layout.stops = [0, ...layout.visible.map((at) => at + 1), END];
  packRows();
};

// A lane that is not shown is drawn as the one that does the same.
const standsFor = (lane) => {
  if (layout.column.has(lane)) return lane;
  const first = folds[foldOf.get(lanes[lane].rank)].shown;
  const other = lanesOf.get(first)[lanesOf.get(lanes[lane].rank).indexOf(lane)];
  return other != null && layout.column.has(other) ? other : null;
};

const shownStep = (at) => {
  const lane = standsFor(steps[at].lane);
  if (lane == null) return null;
  const other = lane === steps[at].lane ? at : stepsOf[lane][nthInLane[at]];
  return other != null && isShown(steps[other]) ? other : null;
};

// Texts matter more than that everything fits, as long as there are not too many lanes.
const placeColumns = (chart) => {
  layout.wide = view.worded === null ? layout.lanes.length <= 20 : view.worded;
  const gutter = (lane) => (timed && layout.wide && lanes[lane].kind !== "stream" ? TIMES : 0);
  const share = (lane) => (lanes[lane].kind === "stream" ? 1 : 1.25);
  const sum = (of) => layout.lanes.reduce((all, lane) => all + of(lane), 0);
  const room = Math.max(chart.clientWidth - LEFT * 2 - 4, 240) - sum(gutter);
  const unit = room / sum(share);
  const width = layout.wide ? Math.min(Math.max(unit, 132), 420) : Math.max(unit, 30);
  layout.lefts = [];
  layout.dots = [];
  let left = LEFT;
  layout.lanes.forEach((lane) => {
    layout.lefts.push(left);
    layout.dots.push(left + gutter(lane) + DOT);
    left += gutter(lane) + width * share(lane);
  });
  layout.lefts.push(left);
  layout.width = left + LEFT;
};

const x = (lane) => layout.dots[layout.column.get(lane)];
const y = (row) => TOP + row * ROW + ROW / 2;
const rightOf = (lane) => layout.lefts[layout.column.get(lane) + 1];

const toggleFold = (fold) => {
  if (!view.opened.delete(fold)) view.opened.add(fold);
  draw();
  $("diagram").querySelector(`button.rank[data-fold="${fold}"]`)?.focus();
};

const drawHead = ({ rank, fold, first }) => {
  const { ranks, alike } = folds[fold];
  if (ranks.length === 1 || !first) return el("span", { class: "rank" }, layout.wide || ranks.length === 1 ? `rank ${rank}` : `${rank}`);
  const title = `${rankNames(ranks)} do the same${alike ? "" : " lines, with other operands"}`;
  const head = el("button", { type: "button", class: "rank", "aria-expanded": String(view.opened.has(fold)), title, "data-fold": fold }, whoIs(rank));
  head.addEventListener("click", () => toggleFold(fold));
  return head;
};

const drawHeads = () => {
  const heads = el("div", { class: "heads" });
  heads.style.width = `${layout.width}px`;
  const put = (element, left, right) => {
    element.style.left = `${left + 4}px`;
    element.style.maxWidth = `${Math.max(right - left - 8, 26)}px`;
    heads.append(element);
  };
  layout.ranks.forEach((shown) => {
    const own = lanesOf.get(shown.rank) || [];
    if (!own.length) return;
    put(drawHead(shown), layout.lefts[layout.column.get(own[0])], rightOf(own[own.length - 1]));
    if (layout.wide) own.forEach((lane) => put(el("span", { class: "lane", title: lanes[lane].name }, lanes[lane].name), x(lane) - 10, rightOf(lane)));
  });
  return heads;
};

// A call that never returns has the same sign on a host and on a device.
const classOf = (step, wait) => {
  const never = wait || (step && step.time && step.time[1] == null);
  const of = step || wait;
  return [step?.mark, of.path, step?.quiet ? "quiet" : "", never ? "never" : "", wait ? "blocked" : ""].filter(Boolean).join(" ");
};

const drawNode = (lane, row, of, wait) => {
  const step = of === wait ? null : of;
  const waits = wait ? `\nnever returns: blocked ${wait.waits_in}` : "";
  const text = texts[of.text];
  const made = el("button", { type: "button", tabindex: "-1", class: `step ${classOf(step, wait)}`, title: `${text}\n${placeName(of.place)}${waits}` }, el("i"), el("span", {}, text));
  made.style.left = `${x(lane) - 8}px`;
  made.style.top = `${y(row) - 11}px`;
  if (layout.wide) made.style.maxWidth = `${rightOf(lane) - x(lane) + 4}px`;
  return made;
};

// Each rank has its own times: those of one row may lie far apart.
const drawTime = (step, row) => {
  const time = el("span", { class: "times" }, `+${seconds(step.time[0])}`);
  time.style.left = `${x(step.lane) - DOT - TIMES + 4}px`;
  time.style.top = `${y(row) - 11}px`;
  return time;
};

const drawNodes = (field) => {
  nodes = new Map();
  layout.visible.forEach((at) => {
    const step = steps[at];
    const made = drawNode(step.lane, rowOf(at), step, waitAt.get(at));
    made.addEventListener("click", () => go(at + 1));
    nodes.set(at, made);
    field.append(made);
    if (step.time && layout.wide) field.append(drawTime(step, rowOf(at)));
  });
  blocked.forEach((wait, nth) => {
    if (!layout.column.has(wait.lane) || (wait.step != null && nodes.has(wait.step))) return;
    const made = drawNode(wait.lane, rowOfWait(wait), wait, wait);
    made.addEventListener("click", () => go(END));
    nodes.set(`wait ${nth}`, made);
    field.append(made);
  });
};
