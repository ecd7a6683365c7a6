// The lines of the diagram: lanes, calls that met, what comes after what, who waits for whom. Between rows and beside lanes
// there is room for them, so that none runs through a label.
const AFTER = 12, MET = 14, CHANNEL = 8;
let drawn = [];

const addLine = (image, kind, of, attributes, name = "path") => {
  const element = svg(name, attributes);
  image.append(element);
  drawn.push({ element, kind, of });
};

const tips = () => {
  const defs = svg("defs", {});
  for (const [id, name] of [["tip", ""], ["tip-red", "red"]]) {
    const marker = svg("marker", { id, class: name, viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto-start-reverse" });
    marker.append(svg("path", { d: "M0 0.5 L8 4 L0 7.5 z" }));
    defs.append(marker);
  }
  return defs;
};

const drawLane = (image, lane) => {
  const rows = layout.visible.filter((at) => steps[at].lane === lane).map(rowOf);
  const wait = blocked[waitOf.get(lane)];
  const first = rows.length ? Math.min(...rows) : wait ? rowOfWait(wait) : 0;
  const last = wait ? rowOfWait(wait) : rows.length ? Math.max(...rows) : first;
  const at = { x1: x(lane), x2: x(lane), y1: y(first) };
  addLine(image, "ahead", {}, { class: "line", ...at, y2: y(last) }, "line");
  addLine(image, "lane", { lane, first }, { class: "line done", ...at, y2: y(first) }, "line");
  if (wait) addLine(image, "stuck", {}, { class: "line stuck", x1: x(lane), x2: x(lane), y1: y(last), y2: layout.height }, "line");
};

// Calls that met hang on one line below the last of them.
const drawMeeting = (image, meeting, seen) => {
  const here = [...new Set(meeting.map(shownStep).filter((at) => at != null))];
  if (here.length < 2 || seen.has(`met ${here}`)) return;
  seen.add(`met ${here}`);
  const below = Math.max(...here.map((at) => y(rowOf(at)))) + MET;
  const across = here.map((at) => x(steps[at].lane) - 6);
  const hooks = here.map((at, nth) => `M${across[nth] + 3} ${y(rowOf(at)) + 3} L${across[nth]} ${y(rowOf(at)) + 6} V${below}`);
  const d = `${hooks.join(" ")} M${Math.min(...across)} ${below} H${Math.max(...across)}`;
  const finding = here.every((at) => steps[at].mark === "finding");
  addLine(image, "met", here, { class: finding ? "met finding" : "met", d });
};

const drawOrder = (image, [earlier, later], seen) => {
  const [from, to] = [shownStep(earlier), shownStep(later)];
  if (from == null || to == null || steps[from].lane === steps[to].lane || seen.has(`${from}>${to}`)) return;
  seen.add(`${from}>${to}`);
  const [x1, y1, x2, y2] = [x(steps[from].lane), y(rowOf(from)), x(steps[to].lane), y(rowOf(to))];
  const beside = x2 - 9;
  const d = `M${x1} ${y1 + 5} V${y1 + AFTER - 3} Q${x1} ${y1 + AFTER} ${x1 + 3 * Math.sign(beside - x1)} ${y1 + AFTER} H${beside} V${y2 - 8} L${x2 - 4} ${y2 - 4}`;
  addLine(image, "after", [from, to], { class: "after", d, "marker-end": "url(#tip)" });
};

// Where there is a circle, it says all; else what the finding is about does.
const tellingWaits = () => {
  const anyFinding = blocked.some((wait) => wait.finding && wait.waits_for.length);
  const telling = new Map();
  blocked.forEach((wait, nth) => {
    if (!layout.column.has(wait.lane)) return;
    wait.waits_for.forEach((other) => {
      const lane = standsFor(blocked[other].lane);
      const at = data.cycle.indexOf(nth);
      const inCycle = at >= 0 && data.cycle[(at + 1) % data.cycle.length] === other;
      const told = data.cycle.length ? inCycle : wait.finding || !anyFinding;
      if (told && lane != null && lane !== wait.lane) telling.set(`${nth}>${lane}`, { wait, to: blocked[waitOf.get(lane)], inCycle });
    });
  });
  return [...telling.values()];
};

// Nothing stands below what never returns, so waits are drawn there, each in a channel of its own.
const drawWait = (image, { wait, to, inCycle }, channel) => {
  const [x1, y1, x2, y2] = [x(wait.lane), y(rowOfWait(wait)), x(to.lane), y(rowOfWait(to))];
  const d = `M${x1 - 3} ${y1 + 6} V${channel} H${x2 + 3} V${y2 + 8}`;
  addLine(image, "waits", {}, { class: inCycle ? "waits cycle" : "waits", d, "marker-end": "url(#tip-red)" });
};

// Below this line ranks diverge: all that they have in common stands above it.
const drawDivergence = (image) => {
  const rows = (sign) => layout.visible.filter((at) => steps[at].path === sign).map(rowOf);
  const [common, apart] = [rows("common"), rows("diverges")];
  if (!common.length || !apart.length || Math.max(...common) >= Math.min(...apart)) return;
  const at = y(Math.max(...common)) + ROW / 2;
  image.append(svg("line", { class: "divergence", x1: 0, x2: layout.width, y1: at, y2: at }));
};

const drawLines = (image) => {
  drawn = [];
  image.append(tips());
  layout.ranks.slice(1).forEach(({ rank }) => {
    const own = lanesOf.get(rank);
    if (!own) return;
    const at = layout.lefts[layout.column.get(own[0])] - 3;
    image.append(svg("line", { class: "rankline", x1: at, x2: at, y1: 0, y2: layout.height }));
  });
  drawDivergence(image);
  layout.lanes.forEach((lane) => drawLane(image, lane));
  const seen = new Set();
  data.order.forEach((pair) => drawOrder(image, pair, seen));
  data.meetings.forEach((meeting) => drawMeeting(image, meeting, seen));
  layout.waits.forEach((telling, nth) => drawWait(image, telling, layout.channels + (nth % layout.lanesOfWaits) * CHANNEL));
};

const showLine = ({ element, kind, of }, near) => {
  const { position } = view;
  if (kind === "lane") {
    const rows = layout.visible.filter((at) => at < position && steps[at].lane === of.lane).map(rowOf);
    element.setAttribute("y2", y(rows.length ? Math.max(...rows) : of.first));
  } else if (kind === "stuck" || kind === "waits") {
    element.style.display = position === END ? "" : "none";
  } else if (kind === "met" || kind === "after") {
    element.classList.toggle("done", of.every((at) => at < position));
    element.classList.toggle("near", near != null && of.includes(near));
  }
};
