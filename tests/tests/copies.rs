//! Ranks that do what others do are left out, and what is left is judged alone: it breaks the rules that the whole breaks.
//!
//! Jobs are drawn in which most ranks run one program, on communicators along the axes of a grid, on twisted ones and in rings:
//! many look like copies, and not all are. Not here: jobs like those that people train with (`folded.rs`).

use std::collections::BTreeSet;
use std::path::Path;

use rankcheck::runs::fold::Folding;
use rankcheck::runs::judge::{Judged, RunVerdict, judge_as_read, read_folded};
use rankcheck::runs::report::text;
use rankcheck_tests::draws::{Draws, wanted};
use rankcheck_tests::recording::{Process, Run, Saved};

const BYTES: u64 = 1 << 16;
/// Elements of 4 bytes of which a buffer holds 16 parts.
const COUNT: u64 = 1 << 10;

/// Which ranks are in one communicator of a kind, and in which order: each kind is a list of lists.
type CommKind = Vec<Vec<u32>>;

/// Ranks stand on a grid; kinds of communicators join them in different ways.
fn drawn_comms(draws: &mut Draws, (rows, columns): (u32, u32)) -> Vec<CommKind> {
    let ranks = rows * columns;
    let world: CommKind = vec![(0..ranks).collect()];
    let row = |at: u32| (0..columns).map(|column| at * columns + column).collect();
    let column = |at: u32| (0..rows).map(|row| row * columns + at).collect();
    let mut kinds = vec![world];
    for _ in 0..2 + draws.below(3) {
        let turn = draws.small(columns);
        let kind: CommKind = match draws.below(6) {
            0 | 1 => (0..rows).map(row).collect(),
            2 | 3 => (0..columns).map(column).collect(),
            // A column that goes on in the next one.
            4 => (0..columns)
                .map(|at| (0..rows).map(|row| row * columns + (at + row * turn) % columns).collect())
                .collect(),
            // Two by two, in a ring: with another turn each rank is with the one on its other side.
            _ => {
                let ring: Vec<u32> = (0..ranks).map(|at| (at + turn) % ranks).collect();
                ring.chunks(2).map(<[u32]>::to_vec).collect()
            }
        };
        kinds.push(kind);
    }
    kinds
}

/// What a rank does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    AllReduce {
        comm: usize,
        buffer: usize,
        stream: usize,
        count: u64,
    },
    /// Into another part of the buffer, or into the same, which is in place for the first member alone.
    AllGather {
        comm: usize,
        stream: usize,
        apart: bool,
    },
    Reduce {
        comm: usize,
        stream: usize,
        root: u64,
    },
    /// To the next member and from the one before, or to and from the other of a pair.
    Shift {
        comm: usize,
        stream: usize,
        pairs: bool,
    },
    /// All send to the first member.
    ToFirst {
        comm: usize,
        stream: usize,
    },
    Register {
        comm: usize,
        buffer: usize,
    },
    /// The last window that was registered ends.
    Deregister,
    Copy {
        from: usize,
        to: usize,
        stream: usize,
    },
    After {
        first: usize,
        then: usize,
    },
    Synchronize {
        stream: usize,
    },
}

const BUFFERS: usize = 3;
const STREAMS: usize = 2;

fn drawn_step(draws: &mut Draws, comms: usize) -> Step {
    let mut index = |below: usize| usize::try_from(draws.below(below as u64)).expect("an index");
    let (comm, buffer, stream) = (index(comms), index(BUFFERS), index(STREAMS));
    match index(18) {
        0..=4 => Step::AllReduce { comm, buffer: stream, stream, count: COUNT },
        kind @ (5 | 6) => Step::AllGather { comm, stream, apart: kind == 5 || buffer > 0 },
        7 => Step::Reduce { comm, stream, root: index(3) as u64 },
        8 => Step::Shift { comm, stream, pairs: index(2) == 0 },
        9 => Step::Register { comm, buffer },
        10 => Step::Copy { from: index(BUFFERS), to: buffer, stream },
        11 => Step::ToFirst { comm, stream },
        12 => Step::Deregister,
        13..=15 => Step::After { first: stream, then: 1 - stream },
        _ => Step::Synchronize { stream },
    }
}

/// What all ranks do, and what some of them do otherwise.
#[derive(Debug)]
struct Job {
    grid: (u32, u32),
    comms: Vec<CommKind>,
    steps: Vec<Step>,
    /// Which of two steps change places, or which is left out, and on which ranks.
    change: Option<(usize, Option<usize>, BTreeSet<u32>)>,
}

impl Job {
    fn drawn(draws: &mut Draws) -> Self {
        let grid = (2 + draws.small(3), 2 + draws.small(3));
        let comms = drawn_comms(draws, grid);
        let mut steps: Vec<Step> = (0..3 + draws.below(7)).map(|_| drawn_step(draws, comms.len())).collect();
        // Most races are of no interest.
        if draws.below(4) > 0 {
            let behind =
                |step: &Step| [*step, Step::Synchronize { stream: 0 }, Step::Synchronize { stream: 1 }];
            steps = steps.iter().flat_map(behind).collect();
        }
        let ranks = grid.0 * grid.1;
        let change = (draws.below(2) == 0).then(|| {
            let mut at = || usize::try_from(draws.below(steps.len() as u64)).expect("an index");
            let (one, other) = (at(), at());
            let (row, column) = (draws.small(grid.0), draws.small(grid.1));
            let which = draws.below(4);
            let on = (0..ranks).filter(|rank| match which {
                0 => *rank == row * grid.1 + column,
                1 => rank / grid.1 == row,
                2 => rank % grid.1 == column,
                _ => rank % 2 == row % 2,
            });
            (one, (draws.below(3) > 0).then_some(other), on.collect())
        });
        Self { grid, comms, steps, change }
    }

    fn steps_of(&self, rank: u32) -> Vec<Step> {
        let mut steps = self.steps.clone();
        if let Some((one, other, on)) = &self.change
            && on.contains(&rank)
        {
            match other {
                Some(other) => steps.swap(*one, *other),
                None => _ = steps.remove(*one),
            }
        }
        steps
    }

    fn recorded(&self, name: &str) -> Saved {
        let mut run = Run::new(self.grid.0 * self.grid.1);
        run.all(|process, rank| self.record(process, rank));
        run.exit();
        run.save(name)
    }

    fn record(&self, process: &mut Process, rank: u32) {
        let mut id = 0;
        let mut comms = Vec::new();
        for kind in &self.comms {
            for members in kind {
                id += 1;
                let place = (0..).zip(members).find(|(_, member)| **member == rank);
                if let Some((place, _)) = place {
                    let size = u32::try_from(members.len()).expect("few");
                    comms.push((process.init(id, place, size), place, size));
                }
            }
        }
        let buffers: Vec<u64> = (0..BUFFERS).map(|_| process.malloc(BYTES)).collect();
        let streams: Vec<u64> = (0..STREAMS).map(|_| process.stream()).collect();
        let (event, mut windows) = (process.handle(), Vec::new());
        for step in self.steps_of(rank) {
            match step {
                Step::AllReduce { comm, buffer, stream, count } => {
                    process.all_reduce(comms[comm].0, buffers[buffer], count, streams[stream]);
                }
                Step::AllGather { comm, stream, apart } => {
                    let both = (buffers[stream], buffers[stream] + if apart { 32 << 10 } else { 0 });
                    process.all_gather(comms[comm].0, both, COUNT / 4, streams[stream]);
                }
                Step::Reduce { comm, stream, root } => {
                    let root = root % u64::from(comms[comm].2);
                    let both = (buffers[stream], buffers[stream]);
                    process.reduce(comms[comm].0, both, COUNT, (root, streams[stream]));
                }
                Step::Shift { comm, stream, pairs } => {
                    let (comm, place, size) = comms[comm];
                    let (to, from) = match pairs {
                        true => (place ^ 1, place ^ 1),
                        false => ((place + 1) % size, (place + size - 1) % size),
                    };
                    // The last of an odd number has nobody beside it.
                    if to >= size {
                        continue;
                    }
                    let (buffer, stream) = (buffers[stream], streams[stream]);
                    process.group(|process| {
                        process.send(buffer, COUNT, (to, comm, stream));
                        process.recv(buffer + BYTES / 2, COUNT, (from, comm, stream));
                    });
                }
                Step::ToFirst { comm, stream } => {
                    let (comm, place, size) = comms[comm];
                    let (buffer, stream) = (buffers[stream], streams[stream]);
                    process.group(|process| match place {
                        0 => (1..size).for_each(|from| process.recv(buffer, COUNT, (from, comm, stream))),
                        _ => process.send(buffer, COUNT, (0, comm, stream)),
                    });
                }
                Step::Register { comm, buffer } => {
                    let comm = comms[comm].0;
                    windows.push((comm, process.register(comm, buffers[buffer], BYTES)));
                }
                Step::Deregister => {
                    if let Some((comm, window)) = windows.pop() {
                        process.deregister(comm, window);
                    }
                }
                Step::Copy { from, to, stream } => {
                    process.copy(buffers[to] + BYTES / 2, buffers[from], 64, streams[stream]);
                }
                Step::After { first, then } => {
                    process.record(event, streams[first]);
                    process.wait(streams[then], event);
                }
                Step::Synchronize { stream } => process.synchronize(streams[stream]),
            }
        }
    }
}

/// A recording judged without the ranks that do what others do, and whole.
pub(super) fn left_and_whole(folder: &Path) -> (Judged, Judged) {
    let judged = |folding: Folding| {
        let recording = read_folded(folder, folding).expect("it is a run");
        judge_as_read(recording, None).expect("it is not too long")
    };
    (judged(Folding::IterationsAndRanks { from: 1 }), judged(Folding::Nothing))
}

/// The verdict, the rules that are broken, and whether ranks diverge nowhere.
pub(super) fn rules(judged: &Judged) -> (RunVerdict, BTreeSet<&'static str>, bool) {
    let rules = judged.findings.iter().map(|finding| finding.rule.id()).collect();
    (judged.verdict, rules, judged.divergences.is_empty())
}

/// With this seed the law fails if copies need not have cut communicators in common, if those may be cut on which members are
/// counted, and if roots are like others.
#[test]
fn drawn_copies_are_judged_like_the_whole() {
    let jobs = wanted("RANKCHECK_RUNS").unwrap_or(500);
    let mut draws = Draws(wanted("RANKCHECK_SEED").unwrap_or(8));
    let (mut folded, mut wrong) = (0, 0);
    let mut broken = BTreeSet::new();
    for nth in 0..jobs {
        let job = Job::drawn(&mut draws);
        let saved = job.recorded(&format!("drawn-{nth}"));
        let (left, whole) = left_and_whole(&saved.folder);
        assert_eq!(rules(&left), rules(&whole), "{job:?}\n{}\n{}", text(&left), text(&whole));
        let copies = !left.recording.folded.copies.is_empty();
        folded += u64::from(copies);
        wrong += u64::from(copies && whole.verdict != RunVerdict::Holds);
        broken.extend(rules(&whole).1.into_iter().filter(|_| copies));
    }
    println!("{jobs} jobs, {folded} with copies, {wrong} of these do not hold: {broken:?}");
    assert!(folded * 4 > jobs && wrong * 16 > jobs, "{folded} with copies, {wrong} do not hold");
}
