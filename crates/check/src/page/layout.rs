//! Where steps are drawn: what comes after something is below it, and what met stands in one row.
//!
//! Not here: how wide anything is; that depends on who looks at it.

use std::collections::{BTreeMap, BTreeSet};

use super::diagram::{Diagram, DiagramStep, Mark, RankFold};

/// Ranks that are told apart by their operands; beyond, those that do the same lines are drawn as one.
const FOLDS_APART: usize = 4;

/// Steps of a page. More are slow to draw, and nobody reads them.
const STEPS_AT_MOST: usize = 6_000;

/// Gives everything its row, leaves out what is far from the finding where there is too much, and puts ranks together that
/// do the same.
pub(super) fn finish(diagram: &mut Diagram) {
    place_rows(diagram);
    if let Some(left_out) = cut(diagram, STEPS_AT_MOST) {
        diagram.left_out.push(left_out);
    }
    diagram.folds = fold(diagram);
}

/// Leaves out the steps that are farthest above and below of what the finding is about, and says so.
fn cut(diagram: &mut Diagram, at_most: usize) -> Option<String> {
    let all = diagram.steps.len();
    if all <= at_most {
        return None;
    }
    let told = |step: &&DiagramStep| step.mark == Some(Mark::Finding) || step.path.is_some();
    let finding = diagram.steps.iter().filter(told).map(|step| step.row);
    let blocked = diagram.blocked.iter().map(|blocked| blocked.row);
    let mut anchors: BTreeSet<usize> = finding.chain(blocked).collect();
    if anchors.is_empty() {
        anchors.extend(diagram.steps.iter().map(|step| step.row).max());
    }
    // What comes before matters more than what comes after.
    let distance = |row: usize| {
        let below = anchors.range(row..).next().map(|anchor| anchor - row);
        let above = anchors.range(..row).next_back().map(|anchor| 4 * (row - anchor));
        below.into_iter().chain(above).min().unwrap_or(usize::MAX)
    };
    let mut nearest: Vec<(usize, usize)> =
        diagram.steps.iter().enumerate().map(|(at, step)| (distance(step.row), at)).collect();
    nearest.sort_unstable();
    let mut kept: Vec<usize> = nearest[..at_most].iter().map(|(_, at)| *at).collect();
    kept.sort_unstable();
    keep(diagram, &kept);
    Some(format!(
        "{} of {all} steps are not shown: those that are farthest from what the finding is about",
        all - at_most
    ))
}

/// Keeps these steps, and what is said of them.
fn keep(diagram: &mut Diagram, kept: &[usize]) {
    let now: BTreeMap<usize, usize> = kept.iter().copied().zip(0..).collect();
    diagram.meetings = diagram
        .meetings
        .iter()
        .map(|meeting| meeting.iter().filter_map(|step| now.get(step).copied()).collect::<Vec<_>>())
        .filter(|meeting| meeting.len() > 1)
        .collect();
    let both = |(earlier, later): &(usize, usize)| Some((*now.get(earlier)?, *now.get(later)?));
    diagram.order = diagram.order.iter().filter_map(both).collect();
    for blocked in &mut diagram.blocked {
        blocked.step = blocked.step.and_then(|step| now.get(&step).copied());
    }
    let before = |after: usize| kept.partition_point(|step| *step < after);
    // What changed while nothing is shown has changed once it is.
    let mut changes: BTreeMap<(usize, u32), usize> = BTreeMap::new();
    for (after, rank, view) in &diagram.memory.changes {
        changes.insert((before(*after), *rank), *view);
    }
    diagram.memory.changes = changes.into_iter().map(|((after, rank), view)| (after, rank, view)).collect();
    diagram.steps = kept.iter().map(|step| diagram.steps[*step].clone()).collect();
    forget_unused(diagram);
}

/// Leaves out texts, places and memory that nothing names any more.
fn forget_unused(diagram: &mut Diagram) {
    let mut texts = Renumbered::default();
    let mut places = Renumbered::default();
    for step in &mut diagram.steps {
        step.text = texts.of(step.text);
        step.note = step.note.map(|note| texts.of(note));
        step.place = step.place.map(|place| places.of(place));
    }
    for blocked in &mut diagram.blocked {
        blocked.text = texts.of(blocked.text);
        blocked.place = blocked.place.map(|place| places.of(place));
    }
    for line in &mut diagram.lines {
        line.place = places.of(line.place);
    }
    diagram.texts = texts.kept(&diagram.texts);
    diagram.places = places.kept(&diagram.places);
    let (mut views, mut pieces, mut contents) =
        (Renumbered::default(), Renumbered::default(), Renumbered::default());
    let memory = &mut diagram.memory;
    for (_, _, view) in &mut memory.changes {
        *view = views.of(*view);
    }
    memory.views = views.kept(&memory.views);
    for view in &mut memory.views {
        view.pieces.iter_mut().for_each(|piece| *piece = pieces.of(*piece));
    }
    memory.pieces = pieces.kept(&memory.pieces);
    for piece in &mut memory.pieces {
        piece.contents.iter_mut().for_each(|(_, _, content)| *content = contents.of(*content));
        piece.wrong.iter_mut().for_each(|(_, meant)| *meant = contents.of(*meant));
    }
    memory.contents = contents.kept(&memory.contents);
}

/// New numbers for what is still named.
#[derive(Default)]
struct Renumbered {
    new: BTreeMap<usize, usize>,
}

impl Renumbered {
    fn of(&mut self, old: usize) -> usize {
        let next = self.new.len();
        *self.new.entry(old).or_insert(next)
    }

    fn kept<T: Clone>(&self, all: &[T]) -> Vec<T> {
        let mut kept: Vec<(usize, &T)> = self.new.iter().map(|(old, new)| (*new, &all[*old])).collect();
        kept.sort_by_key(|(new, _)| *new);
        kept.into_iter().map(|(_, value)| value.clone()).collect()
    }
}

/// Gives every step its row, and what is blocked the row below its lane's last step.
fn place_rows(diagram: &mut Diagram) {
    let steps = diagram.steps.len();
    let mut last: BTreeMap<usize, usize> = BTreeMap::new();
    let mut after: Vec<Vec<usize>> = vec![Vec::new(); steps];
    let mut edge = |earlier: usize, later: usize| after[earlier].push(later);
    for (at, step) in diagram.steps.iter().enumerate() {
        if let Some(before) = last.insert(step.lane, at) {
            edge(before, at);
        }
    }
    for (earlier, later) in &diagram.order {
        edge(*earlier, *later);
    }
    let rows = RowPlacer::new(&after, &diagram.meetings).place();
    for (step, row) in diagram.steps.iter_mut().zip(&rows) {
        step.row = *row;
    }
    for blocked in &mut diagram.blocked {
        let below = last.get(&blocked.lane).map_or(0, |step| rows[*step] + 1);
        blocked.row = blocked.step.map_or(below, |step| rows[step]);
    }
}

/// Steps that are being placed.
struct RowPlacer<'a> {
    after: &'a [Vec<usize>],
    /// The steps that stand in one row with each.
    beside: Vec<Vec<usize>>,
    /// How many steps each still waits for.
    waits: Vec<usize>,
    rows: Vec<Option<usize>>,
    /// The least row of each.
    least: Vec<usize>,
}

impl<'a> RowPlacer<'a> {
    fn new(after: &'a [Vec<usize>], meetings: &[Vec<usize>]) -> Self {
        let steps = after.len();
        let mut waits = vec![0; steps];
        for later in after.iter().flatten() {
            waits[*later] += 1;
        }
        let mut beside: Vec<Vec<usize>> = (0..steps).map(|step| vec![step]).collect();
        for meeting in meetings {
            // A step that met twice stands beside those that it met first.
            if meeting.iter().all(|step| beside[*step].len() == 1) {
                for step in meeting {
                    beside[*step].clone_from(meeting);
                }
            }
        }
        Self { after, beside, waits, rows: vec![None; steps], least: vec![0; steps] }
    }

    fn place(mut self) -> Vec<usize> {
        let mut open: BTreeSet<usize> = (0..self.rows.len()).collect();
        let mut ready: BTreeSet<usize> = open.iter().copied().filter(|step| self.waits[*step] == 0).collect();
        while !open.is_empty() {
            let together = |step: &&usize| self.beside[**step].iter().all(|other| ready.contains(other));
            let next = match ready.iter().find(together) {
                Some(step) => self.beside[*step].clone(),
                // Those that met do not fit into one row, or the order has a circle: the earliest stands alone.
                None => {
                    let step = *ready.first().or_else(|| open.first()).expect("some step is open");
                    for other in std::mem::take(&mut self.beside[step]) {
                        self.beside[other] = vec![other];
                    }
                    vec![step]
                }
            };
            let row = next.iter().map(|step| self.least[*step]).max().unwrap_or(0);
            for step in next {
                open.remove(&step);
                ready.remove(&step);
                self.rows[step] = Some(row);
                for later in &self.after[step] {
                    self.least[*later] = self.least[*later].max(row + 1);
                    self.waits[*later] -= 1;
                    if self.waits[*later] == 0 && self.rows[*later].is_none() {
                        ready.insert(*later);
                    }
                }
            }
        }
        self.rows.into_iter().map(|row| row.expect("every step was placed")).collect()
    }
}

/// What a rank does, as far as ranks are compared: each of its lanes by name, with text and place of every step.
type Doing<'a> = Vec<(&'a str, Vec<(Option<usize>, Option<usize>)>)>;

/// Whether ranks are compared with their operands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CompareOperands {
    Compared,
    Ignored,
}

/// Puts ranks together that do the same.
fn fold(diagram: &Diagram) -> Vec<RankFold> {
    let marks = marks(diagram);
    let mut exactly: Vec<RankFold> = Vec::new();
    for ranks in folded(diagram, CompareOperands::Compared) {
        exactly.extend(by_marks(&ranks, &marks));
    }
    if exactly.len() > FOLDS_APART {
        // What is marked stands out by itself: it is not put together with what only looks alike.
        let (mut kept, others): (Vec<RankFold>, Vec<RankFold>) =
            exactly.into_iter().partition(|fold| marks.contains_key(&fold.shown));
        let others: BTreeSet<Vec<u32>> = others.into_iter().map(|fold| fold.ranks).collect();
        let taken: BTreeSet<u32> = kept.iter().flat_map(|fold| fold.ranks.clone()).collect();
        for mut ranks in folded(diagram, CompareOperands::Ignored) {
            ranks.retain(|rank| !taken.contains(rank));
            if let Some(first) = ranks.first() {
                kept.push(RankFold { shown: *first, alike: others.contains(&ranks), ranks });
            }
        }
        exactly = kept;
    }
    exactly.sort_by_key(|fold| fold.ranks[0]);
    exactly
}

/// What is marked of each rank that has a mark: lane by lane, which of its steps.
type MarkedSteps = BTreeMap<u32, MarkedInLanes>;

/// Names of lanes, each with the position of a step in it.
type MarkedInLanes = BTreeSet<(String, usize)>;

fn marks(diagram: &Diagram) -> MarkedSteps {
    let mut marks: MarkedSteps = BTreeMap::new();
    let mut nth = vec![0; diagram.lanes.len()];
    for step in &diagram.steps {
        let lane = &diagram.lanes[step.lane];
        if step.mark.is_some() {
            marks.entry(lane.rank).or_default().insert((lane.name.clone(), nth[step.lane]));
        }
        nth[step.lane] += 1;
    }
    for blocked in diagram.blocked.iter().filter(|blocked| blocked.finding) {
        let lane = &diagram.lanes[blocked.lane];
        marks.entry(lane.rank).or_default().insert((lane.name.clone(), usize::MAX));
    }
    marks
}

/// Ranks that do the same, apart where different things of them are marked. A finding names one rank for all that do the
/// same: those of which nothing is marked go with it.
fn by_marks(ranks: &[u32], marks: &MarkedSteps) -> Vec<RankFold> {
    let mut groups: BTreeMap<Option<&MarkedInLanes>, Vec<u32>> = BTreeMap::new();
    for rank in ranks {
        groups.entry(marks.get(rank)).or_default().push(*rank);
    }
    if groups.len() == 2 && groups.contains_key(&None) {
        let shown = groups.values().next_back().and_then(|marked| marked.first());
        let shown = *shown.expect("some rank is marked");
        return vec![RankFold { ranks: ranks.to_vec(), shown, alike: true }];
    }
    groups.into_values().map(|ranks| RankFold { shown: ranks[0], ranks, alike: true }).collect()
}

/// Ranks that do the same lines, each list ascending.
fn folded(diagram: &Diagram, operands: CompareOperands) -> Vec<Vec<u32>> {
    // A call of which no line is known has a place of its own.
    let line = |place: Option<usize>| place.filter(|place| diagram.places[*place].line > 0);
    let done = |text: usize, place: Option<usize>| {
        let place = line(place);
        ((operands == CompareOperands::Compared || place.is_none()).then_some(text), place)
    };
    let mut lanes = vec![Vec::new(); diagram.lanes.len()];
    for step in &diagram.steps {
        lanes[step.lane].push(done(step.text, step.place));
    }
    for blocked in &diagram.blocked {
        lanes[blocked.lane].push(done(blocked.text, blocked.place));
    }
    let mut ranks: BTreeMap<u32, Doing<'_>> = BTreeMap::new();
    for (lane, done) in diagram.lanes.iter().zip(lanes) {
        ranks.entry(lane.rank).or_default().push((&lane.name, done));
    }
    let mut alike: BTreeMap<Doing<'_>, Vec<u32>> = BTreeMap::new();
    for (rank, doing) in ranks {
        alike.entry(doing).or_default().push(rank);
    }
    alike.into_values().collect()
}
