// Steps: what is told of each, the controls, the keys, and links to a step.
const meetsWhom = (at) => {
  const others = meetingsOf[at].flatMap((nth) => data.meetings[nth]).filter((other) => other !== at);
  return [...new Set(others.map((other) => lanes[steps[other].lane].rank))].sort((a, b) => a - b);
};

const whenIs = ([from, to]) => (to == null ? `. Called at +${seconds(from)}; it never returns` : `. At +${seconds(from)}, for ${seconds(to - from)}`);

const MARKED = {
  finding: ". The finding is about this call",
  cause: ". This decided the finding",
  essential: ". Without this call the finding is gone",
};
const ON_PATH = { common: ". It is the last that ranks have in common", diverges: ". Here ranks diverge" };

const tellStep = (step, at) => {
  const place = placeName(step.place);
  const met = meetsWhom(at);
  const wait = waitAt.get(at);
  return [
    el("span", { class: "who" }, `${whoDoes(step.lane)}: `),
    el("code", {}, texts[step.text]),
    place ? el("span", { class: "who" }, ` (${place})`) : null,
    step.note != null ? `. ${texts[step.note]}` : null,
    met.length ? `. Meets ${rankNames(met)}` : null,
    step.time ? whenIs(step.time) : null,
    wait ? `. It is blocked ${wait.waits_in}` : null,
    ON_PATH[step.path],
    MARKED[step.mark],
    ".",
  ].filter(Boolean);
};

const tellEnd = () => {
  const circle = data.cycle.length ? `, ${data.cycle.length} of them in a circle` : "";
  const calls = blocked.length === 1 ? "One call never returns" : `${blocked.length} calls never return${circle}`;
  return [el("span", { class: "who" }, "End of the run. "), data.about.ends, blocked.length ? ` ${calls}.` : ""];
};

const tell = () => {
  const { position } = view;
  if (position === 0) $("told").replaceChildren("The run begins.");
  else if (position === END) $("told").replaceChildren(...tellEnd());
  else $("told").replaceChildren(...tellStep(steps[position - 1], position - 1));
};

const showControls = () => {
  const { position } = view;
  const stop = layout.stops.indexOf(position);
  const all = layout.visible.length;
  $("number").textContent = position === END ? `end, ${all} steps` : `step ${stop} of ${all}`;
  const slider = $("slider");
  slider.max = layout.stops.length - 1;
  slider.value = stop;
  slider.setAttribute("aria-valuetext", $("number").textContent);
  $("first").disabled = $("back").disabled = position === 0;
  $("forward").disabled = $("last").disabled = position === END;
};

const follow = () => {
  const chart = $("diagram");
  const finding = steps.findLastIndex((step) => step.mark === "finding");
  const node = view.position === END ? chart.querySelector(".step.blocked") || nodes.get(finding) : nodes.get(view.position - 1);
  if (!node) {
    if (view.position === 0) chart.scrollTop = 0;
    return;
  }
  const [top, left] = [node.offsetTop, node.offsetLeft];
  // Of a diagram that begins low in the window, only its upper part is seen.
  const seen = Math.min(chart.clientHeight, Math.max(innerHeight - chart.getBoundingClientRect().top, 200));
  if (top < chart.scrollTop + 30 || top > chart.scrollTop + seen - 110) chart.scrollTop = Math.max(top - seen / 2, 0);
  if (left < chart.scrollLeft + 20 || left > chart.scrollLeft + chart.clientWidth - 160) chart.scrollLeft = Math.max(left - chart.clientWidth / 2, 0);
};

const show = () => {
  const { position } = view;
  nodes.forEach((node, at) => {
    node.classList.toggle("done", typeof at === "number" ? at < position : position === END);
    node.classList.toggle("now", at === position - 1);
  });
  const near = position > 0 && position < END ? position - 1 : null;
  drawn.forEach((line) => showLine(line, near));
  showControls();
  tell();
  drawSource(subject());
  drawMemory();
};

// A step that is not shown is told by the one that stands for it, or else by the last before it that is shown.
const snap = () => {
  if (layout.stops.includes(view.position)) return;
  const other = shownStep(view.position - 1);
  view.position = other != null ? other + 1 : layout.stops.findLast((stop) => stop <= view.position);
};

const draw = () => {
  arrange();
  snap();
  const chart = $("diagram");
  const scroll = [chart.scrollLeft, chart.scrollTop];
  placeColumns(chart);
  $("worded").checked = layout.wide;
  layout.waits = tellingWaits();
  layout.lanesOfWaits = Math.min(Math.max(layout.waits.length, 1), 12);
  layout.channels = TOP + layout.rows * ROW + CHANNEL;
  layout.height = layout.channels + (layout.waits.length ? layout.lanesOfWaits * CHANNEL : 0) + TOP;
  const field = el("div", { class: layout.wide ? "field" : "field thin" });
  field.style.width = `${layout.width}px`;
  field.style.height = `${layout.height}px`;
  const image = svg("svg", { width: layout.width, height: layout.height, "aria-hidden": "true" });
  drawLines(image);
  field.append(image);
  drawNodes(field);
  chart.replaceChildren(drawHeads(), field);
  [chart.scrollLeft, chart.scrollTop] = scroll;
  show();
};

const go = (to, remember = true) => {
  view.position = Math.max(0, Math.min(END, to));
  snap();
  show();
  follow();
  if (remember) history.replaceState(null, "", view.position === END ? "#step=end" : `#step=${view.position}`);
};

const isMarked = (stop) => stop > 0 && stop < END && ((steps[stop - 1].mark && steps[stop - 1].mark !== "decision") || steps[stop - 1].path);
const forward = () => go(layout.stops.find((stop) => stop > view.position) ?? END);
const back = () => go(layout.stops.findLast((stop) => stop < view.position) ?? 0);
const nextMark = () => go(layout.stops.find((stop) => stop > view.position && isMarked(stop)) ?? END);
const previousMark = () => go(layout.stops.findLast((stop) => stop < view.position && isMarked(stop)) ?? 0);

const linked = () => {
  const found = /^#step=(\d+|end)$/.exec(location.hash);
  if (found) go(found[1] === "end" ? END : Number(found[1]), false);
  return Boolean(found);
};

const foldable = folds.some((fold) => fold.ranks.length > 1);
const toggleFolds = () => {
  const all = view.opened.size === 0;
  view.opened.clear();
  if (all) folds.forEach((_, nth) => view.opened.add(nth));
  $("unfold").firstChild.textContent = all ? "Fold ranks " : "Show every rank ";
  draw();
};
const toggleTexts = () => { view.worded = !layout.wide; draw(); };
const hasQuiet = steps.some((step) => step.quiet);
const toggleQuiet = () => {
  view.quiet = !view.quiet;
  $("quiet").checked = view.quiet;
  draw();
};

const keys = { ArrowLeft: back, ArrowRight: forward, Home: () => go(0), End: () => go(END), n: nextMark, p: previousMark, t: toggleTexts };
if (hasQuiet) keys.b = toggleQuiet;
if (foldable) keys.r = toggleFolds;

const onKey = (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input[type=search], pre")) return;
  const act = keys[event.key];
  if (!act) return;
  event.preventDefault();
  act();
};

// What is folded up is printed too.
const opened = new Set();
const openAll = () => document.querySelectorAll("details:not([open])").forEach((details) => { opened.add(details); details.open = true; });
const closeAgain = () => { opened.forEach((details) => { details.open = false; }); opened.clear(); };

// The diagram is as wide as the paper, whatever it takes.
const fitPaper = () => {
  draw();
  $("diagram").style.setProperty("--fit", String(Math.min(1, 690 / layout.width)));
};

const connect = () => {
  const on = (id, act) => $(id).addEventListener("click", act);
  on("first", () => go(0));
  on("back", back);
  on("forward", forward);
  on("last", () => go(END));
  on("marked", () => { if (view.position === END) go(0); nextMark(); });
  on("unmarked", previousMark);
  on("unfold", toggleFolds);
  $("worded").addEventListener("change", toggleTexts);
  $("quiet").addEventListener("change", toggleQuiet);
  $("slider").addEventListener("input", (event) => go(layout.stops[Number(event.target.value)]));
  $("quiet-label").hidden = !hasQuiet;
  $("unfold").hidden = !foldable;
  document.addEventListener("keydown", onKey);
  addEventListener("hashchange", linked);
  let resized = 0;
  addEventListener("resize", () => { cancelAnimationFrame(resized); resized = requestAnimationFrame(draw); });
  addEventListener("beforeprint", () => { openAll(); fitPaper(); });
  addEventListener("afterprint", () => { closeAgain(); draw(); });
};

$("bench").hidden = false;
$("source-section").hidden = !places.length;
if (!places.length) $("bench").querySelector(".work").classList.add("alone");
connect();
draw();
if (!linked()) follow();
document.documentElement.dataset.ready = String(Math.round(performance.now()));
