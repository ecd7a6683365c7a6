//! The part of a diagram that a replayed run fills: lanes, steps, who met whom, what is blocked, and memory.
//!
//! Checks of specs and recorded runs are both replayed in the machine, so both come by here.
//! Not here: what is said about the run (`explained`, `recorded`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rankcheck_model::machine::Kind;
use rankcheck_model::snapshot::{MemoryChange, MemorySnapshot, MemoryView};
use rankcheck_model::{Loc, OpRef};
use rustc_hash::FxHashMap;

use super::diagram::{
    AboutFinding, Diagram, DiagramLane, DiagramMemory, DiagramStep, DiagramWait, LaneKind, Mark,
    MemoryOfRank, MemoryPiece, SourcePlace, StepRole, WindowOfRank,
};
use crate::launches::components::shortest_circle;
use crate::search::{self, Decided, Located, Operation, Replayed};

/// What a diagram takes of a run.
#[derive(Debug, Default)]
pub(super) struct RunPart {
    pub(super) texts: Interned<String>,
    pub(super) places: Interned<SourcePlace>,
    pub(super) lanes: Vec<DiagramLane>,
    pub(super) steps: Vec<DiagramStep>,
    pub(super) meetings: Vec<Vec<usize>>,
    pub(super) order: Vec<(usize, usize)>,
    pub(super) blocked: Vec<DiagramWait>,
    pub(super) cycle: Vec<usize>,
    pub(super) memory: DiagramMemory,
}

/// Values that get a number when they are first seen.
#[derive(Debug)]
pub(super) struct Interned<T> {
    pub(super) all: Vec<T>,
    numbers: FxHashMap<T, usize>,
}

impl<T> Default for Interned<T> {
    fn default() -> Self {
        Self { all: Vec::new(), numbers: FxHashMap::default() }
    }
}

impl<T: Clone + Eq + std::hash::Hash> Interned<T> {
    /// The number of a value.
    pub(super) fn number(&mut self, value: T) -> usize {
        if let Some(number) = self.numbers.get(&value) {
            return *number;
        }
        self.all.push(value.clone());
        self.numbers.insert(value, self.all.len() - 1);
        self.all.len() - 1
    }
}

/// What stands out in a run.
pub(super) struct Marks<'a> {
    pub(super) finding: &'a [Located],
    pub(super) essential: &'a [Located],
    pub(super) cause: Vec<&'a Located>,
    /// What is of no concern to other ranks, and not shown unless somebody asks for it.
    pub(super) quiet: &'a [Kind],
}

type OpKey = (u32, u32, u32);

fn key(op: &OpRef) -> OpKey {
    (op.rank.0, op.thread.0, op.index)
}

/// A line of a program; none where no line is known.
pub(super) fn place(loc: &Loc) -> SourcePlace {
    let called_at = loc.called_at.as_ref().map(|line| (line.file.to_string(), line.line));
    SourcePlace { file: loc.file.to_string(), line: loc.line, called_at }
}

impl RunPart {
    /// Returns what a diagram takes of a run.
    pub(super) fn of(run: &Replayed, marks: &Marks<'_>) -> Self {
        let mut part = Self::default();
        let operations: FxHashMap<OpKey, &Operation> =
            run.operations.iter().map(|operation| (key(&operation.at.op), operation)).collect();
        let mut marked: FxHashMap<OpKey, Mark> = FxHashMap::default();
        let mut mark = |at: &Located, mark: Mark| {
            let known = marked.entry(key(&at.op)).or_insert(mark);
            *known = mark.max(*known);
        };
        run.decisions.iter().for_each(|decision| mark(&decision.at, Mark::Decision));
        marks.essential.iter().for_each(|at| mark(at, Mark::Essential));
        marks.cause.iter().for_each(|at| mark(at, Mark::Cause));
        marks.finding.iter().for_each(|at| mark(at, Mark::Finding));
        let mut decided: FxHashMap<OpKey, String> = FxHashMap::default();
        for decision in &run.decisions {
            let words = match &decision.decided {
                Decided::Values { words, .. } => words.join("; "),
                Decided::Order(words) => words.clone(),
            };
            let text = decided.entry(key(&decision.at.op)).or_default();
            if !text.is_empty() {
                text.push_str("; ");
            }
            text.push_str(&words);
        }
        let numbers = part.number_lanes(run);
        for step in &run.steps {
            let operation = operations.get(&key(&step.at.op));
            let lane = numbers[&step.lane];
            let text = operation.map_or("returns", |operation| operation.call.as_str());
            let text = match &step.replayed_by {
                Some(launch) => format!("{text} (replayed, {})", launch.loc),
                None => text.to_owned(),
            };
            let mark = marked.get(&key(&step.at.op)).copied();
            let of_the_pool =
                operation.is_some_and(|operation| !search::explain::nameable(operation) && !operation.asks);
            let quiet =
                operation.is_none_or(|operation| marks.quiet.contains(&operation.kind)) || of_the_pool;
            let alike = operation.is_some_and(|operation| operation.kind == Kind::Alike);
            let role = match (quiet, alike) {
                (true, _) => StepRole::Own,
                (false, true) => StepRole::Alike,
                (false, false) => StepRole::InRole,
            };
            let on_host = part.lanes[lane].kind == LaneKind::Thread;
            let note = decided.get(&key(&step.at.op)).filter(|_| on_host).cloned();
            let note = note.map(|note| part.texts.number(note));
            let (text, place) = (part.texts.number(text), part.places.number(place(&step.at.loc)));
            part.steps.push(DiagramStep {
                lane,
                text,
                place: Some(place),
                row: 0,
                mark,
                note,
                quiet: quiet && mark.is_none(),
                path: None,
                role,
                time: None,
            });
        }
        part.meetings.clone_from(&run.meetings);
        part.order = part.told_order(run);
        part.block(run, &numbers, (&operations, marks));
        part.memory = memory(&run.memory);
        part
    }

    /// The diagram of this part, in which nothing has its row yet.
    pub(super) fn diagram(self, about: AboutFinding, report: String) -> Diagram {
        let Self { texts, places, lanes, steps, meetings, order, blocked, cycle, memory } = self;
        Diagram {
            about,
            texts: texts.all,
            places: places.all,
            lanes,
            folds: Vec::new(),
            steps,
            meetings,
            order,
            blocked,
            cycle,
            memory,
            lines: Vec::new(),
            sources: Vec::new(),
            devices: Vec::new(),
            left_out: Vec::new(),
            report,
        }
    }

    /// What is ordered after what, less what a meeting tells: whatever one of those that met comes after on its own rank,
    /// the others come after too.
    fn told_order(&self, run: &Replayed) -> Vec<(usize, usize)> {
        let rank = |step: usize| self.lanes[self.steps[step].lane].rank;
        let order: BTreeSet<(usize, usize)> = run.order.iter().copied().collect();
        let mut met: FxHashMap<usize, Vec<usize>> = FxHashMap::default();
        for meeting in &run.meetings {
            for step in meeting {
                met.entry(*step).or_default().extend(meeting);
            }
        }
        let told =
            |(earlier, later): &(usize, usize)| {
                rank(*earlier) != rank(*later)
                    && met.get(later).into_iter().flatten().any(|partner| {
                        rank(*partner) == rank(*earlier) && order.contains(&(*earlier, *partner))
                    })
            };
        run.order.iter().copied().filter(|pair| !told(pair)).collect()
    }

    /// Gives lanes their numbers: by rank, threads before streams.
    fn number_lanes(&mut self, run: &Replayed) -> BTreeMap<search::Lane, usize> {
        let used =
            run.steps.iter().map(|step| &step.lane).chain(run.blocked.iter().map(|blocked| &blocked.lane));
        let used: BTreeSet<&search::Lane> = used.collect();
        let mut lanes: Vec<(DiagramLane, &search::Lane)> =
            used.into_iter().map(|lane| (named(lane), lane)).collect();
        lanes.sort_by(|(a, _), (b, _)| (a.rank, a.kind, &a.name).cmp(&(b.rank, b.kind, &b.name)));
        let numbers = lanes.iter().zip(0..).map(|((_, lane), number)| ((*lane).clone(), number)).collect();
        self.lanes = lanes.into_iter().map(|(lane, _)| lane).collect();
        numbers
    }

    fn block(
        &mut self,
        run: &Replayed,
        numbers: &BTreeMap<search::Lane, usize>,
        (operations, marks): (&FxHashMap<OpKey, &Operation>, &Marks<'_>),
    ) {
        let mut last: FxHashMap<(usize, OpKey), usize> = FxHashMap::default();
        for (at, step) in run.steps.iter().enumerate() {
            last.insert((numbers[&step.lane], key(&step.at.op)), at);
        }
        for blocked in &run.blocked {
            let lane = numbers[&blocked.lane];
            let call = operations.get(&key(&blocked.at.op)).map(|operation| operation.call.clone());
            let text = self.texts.number(call.unwrap_or_else(|| blocked.text.clone()));
            let place = self.places.number(place(&blocked.at.loc));
            let awaited = run
                .blocked
                .iter()
                .enumerate()
                .filter(|(_, other)| !std::ptr::eq(*other, blocked))
                .filter(|(_, other)| blocked.waits_for.iter().any(|at| at.is(&other.at)));
            let waits_for = awaited.map(|(at, _)| at).collect();
            self.blocked.push(DiagramWait {
                lane,
                step: last.get(&(lane, key(&blocked.at.op))).copied(),
                text,
                place: Some(place),
                waits_in: blocked.text.clone(),
                waits_for,
                in_vain: blocked.waits_in_vain_for.iter().map(|rank| rank.0).collect(),
                row: 0,
                finding: marks.finding.iter().any(|at| at.is(&blocked.at)),
                path: None,
            });
        }
        self.cycle = cycle(&self.blocked, &self.lanes);
    }
}

/// A shortest circle of waits; through what the finding is about, if there is one. Those that wait in one and the same
/// call for each other are no circle: they came to it together.
pub(super) fn cycle(blocked: &[DiagramWait], lanes: &[DiagramLane]) -> Vec<usize> {
    let number = |at: usize| u32::try_from(at).expect("fewer than 2^32 waits");
    let call = |of: &DiagramWait| (of.text, of.place, lanes[of.lane].name.clone());
    let apart = |one: &DiagramWait, other: &DiagramWait| call(one) != call(other);
    let edges: Vec<Vec<u32>> = blocked
        .iter()
        .map(|of| of.waits_for.iter().filter(|at| apart(of, &blocked[**at])).map(|at| number(*at)).collect())
        .collect();
    /// Waits from which a circle is looked for.
    const STARTS: usize = 64;
    let mut starts: Vec<usize> = (0..blocked.len()).collect();
    starts.sort_by_key(|at| !blocked[*at].finding);
    let circles = starts.into_iter().take(STARTS).filter_map(|at| {
        let circle = shortest_circle(&edges, number(at), |_| true)?;
        Some((!blocked[at].finding, circle))
    });
    let shortest = circles.min_by_key(|(other, circle)| (*other, circle.len()));
    shortest.map_or_else(Vec::new, |(_, circle)| circle.into_iter().map(|at| at as usize).collect())
}

fn named(lane: &search::Lane) -> DiagramLane {
    match lane {
        search::Lane::Thread(rank, thread) => {
            let name = if thread.0 == 0 { "host".to_owned() } else { format!("thread {}", thread.0) };
            DiagramLane { rank: rank.0, kind: LaneKind::Thread, name }
        }
        search::Lane::Stream(rank, stream) => {
            let named = stream.starts_with("stream");
            let name = if named { stream.clone() } else { format!("stream {stream}") };
            DiagramLane { rank: rank.0, kind: LaneKind::Stream, name }
        }
    }
}

/// Memory in tables: ranks that do the same have the same.
fn memory(changes: &[MemoryChange]) -> DiagramMemory {
    let mut contents: Interned<Vec<String>> = Interned::default();
    let mut pieces: Interned<MemoryPiece> = Interned::default();
    let mut views: Interned<MemoryOfRank> = Interned::default();
    // One piece stands in many snapshots: it is looked at once.
    let mut known: FxHashMap<*const MemoryView, usize> = FxHashMap::default();
    let mut listed = Vec::new();
    for MemoryChange { after, rank, memory } in changes {
        let MemorySnapshot { memories, windows, mappings } = &**memory;
        let of_rank = memories.iter().map(|view| {
            *known.entry(Arc::as_ptr(view)).or_insert_with(|| pieces.number(piece(view, &mut contents)))
        });
        let windows = windows.iter().map(|window| WindowOfRank {
            name: format!("{}#{}", window.comm, window.nth),
            memory: window.memory.clone(),
            offset_bytes: window.offset_bytes,
            len_bytes: window.len_bytes,
            symmetric: window.symmetric,
            dangling: window.dangling,
        });
        let mappings = mappings.iter().map(|mapping| (mapping.of.0, mapping.memory.clone(), mapping.opened));
        let view = MemoryOfRank {
            pieces: of_rank.collect(),
            windows: windows.collect(),
            mappings: mappings.collect(),
        };
        listed.push((*after, rank.0, views.number(view)));
    }
    DiagramMemory { contents: contents.all, pieces: pieces.all, views: views.all, changes: listed }
}

fn piece(view: &MemoryView, contents: &mut Interned<Vec<String>>) -> MemoryPiece {
    let meant =
        view.contents.iter().enumerate().filter_map(|(nth, content)| Some((nth, content.meant.as_ref()?)));
    let wrong = meant.map(|(nth, meant)| (nth, contents.number(meant.to_vec()))).collect();
    let held = view
        .contents
        .iter()
        .map(|content| (content.offset_bytes, content.len_bytes, contents.number(content.stripes.to_vec())));
    let held = held.collect();
    MemoryPiece {
        name: view.name.clone(),
        allocator: view.allocator,
        len_bytes: view.len_bytes,
        address_of: view.address_of.clone(),
        released: view.released,
        blocks: view
            .blocks
            .iter()
            .map(|block| (block.offset_bytes, block.len_bytes, block.held.as_ref().map(ToString::to_string)))
            .collect(),
        contents: held,
        wrong,
    }
}
