// The run: what was done, by whom, and how far the reader has stepped.
const data = JSON.parse($("data").textContent);
const { steps, lanes, texts, places, blocked, memory, folds } = data;
if (steps.length + blocked.length === 0) return;

// So many steps were taken; one more than there are is the end, where waits that are not over show.
const END = steps.length + 1;
const view = { position: END, opened: new Set(), quiet: false, worded: null };

const timed = steps.some((step) => step.time);
const lanesOf = grouped([...lanes.keys()], (lane) => lanes[lane].rank);
const foldOf = new Map();
folds.forEach((fold, nth) => fold.ranks.forEach((rank) => foldOf.set(rank, nth)));
const stepsOf = lanes.map(() => []);
const nthInLane = steps.map((step, at) => stepsOf[step.lane].push(at) - 1);
const meetingsOf = steps.map(() => []);
data.meetings.forEach((meeting, nth) => meeting.forEach((step) => meetingsOf[step].push(nth)));
const waitOf = new Map(blocked.map((wait, nth) => [wait.lane, nth]));
const waitAt = new Map(blocked.filter((wait) => wait.step != null).map((wait) => [wait.step, wait]));

const placeName = (at) => {
  if (at == null) return "";
  const { file, line, called_at } = places[at];
  const from = called_at ? ` from ${shortFile(called_at[0])}:${called_at[1]}` : "";
  return (line ? `${shortFile(file)}:${line}` : shortFile(file)) + from;
};

// A rank, or those that do the same as long as they share a column.
const whoIs = (rank) => {
  const nth = foldOf.get(rank);
  return view.opened.has(nth) ? `rank ${rank}` : rankNames(folds[nth].ranks);
};

const whoDoes = (lane) => `${whoIs(lanes[lane].rank)}, ${lanes[lane].name}`;

// Where a lane stands: its last step so far, or what never returns.
const standing = (lane) => {
  if (view.position === END && waitOf.has(lane)) return blocked[waitOf.get(lane)];
  const own = stepsOf[lane];
  let [low, high] = [0, own.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (own[middle] < view.position) low = middle + 1; else high = middle;
  }
  return low ? steps[own[low - 1]] : null;
};

// The end is about what never returns, and else about what the finding is about.
const subject = () => {
  if (view.position > 0 && view.position < END) return steps[view.position - 1];
  if (view.position === 0 && steps.length) return steps[0];
  const finding = (of) => of.finding || of.mark === "finding";
  return blocked.find(finding) || steps.findLast(finding) || blocked[0] || steps[steps.length - 1];
};
