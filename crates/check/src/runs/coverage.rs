//! What was judged of a recorded run, and what was not: a run of which nothing was judged cannot be said to hold.
//!
//! A collective or a registration counts once, however many members make it, and as often as all of them did.
//! Not here: what is wrong with it ([`super::judge`]).

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use rankcheck_model::{
    CommOp, Direction, GraphOp, IpcOp, Op, Operand, Rank, Slot, Statement, ThreadOp, Token, WindowOp,
};
use rustc_hash::FxHashMap;
use serde::Serialize;

use super::call::Unjudged;
use super::judge::Recording;
use super::lower::RankRun;
use super::world::{RunComm, RunCommId};

/// How much of a recorded run was judged. Of what was folded away only collectives are counted, on their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Coverage {
    /// Collectives that all members made, replays of graphs included.
    pub collectives: u64,
    /// Collectives of iterations that repeat others, and were not judged again.
    pub repeated_collectives: u64,
    /// Sends and receives, a pair as one.
    pub transfers: u64,
    /// Registrations of windows that all members made.
    pub windows: u64,
    /// Mappings of memory of other processes.
    pub mappings: u64,
    /// Communicators that were set up.
    pub communicators: u64,
    /// Ranks that took part in any of these.
    pub ranks: u64,
}

impl Coverage {
    /// Returns what was judged of a recording.
    #[must_use]
    pub fn of(recording: &Recording) -> Self {
        let world = &recording.world;
        let walks: BTreeMap<Rank, JudgedCounts> = world
            .members
            .iter()
            .map(|member| (member.rank, JudgedCounts::of(&recording.program.ranks[member.rank.at()])))
            .collect();
        let mut coverage = Self::default();
        for (at, comm) in (0..).zip(&world.comms) {
            let comm_id = RunCommId(at);
            coverage.collectives += all_made(comm, &walks, |walk| walk.collectives.get(&comm_id));
            coverage.repeated_collectives += all_made(comm, &walks, |walk| walk.repeated.get(&comm_id));
            coverage.windows += all_made(comm, &walks, |walk| walk.windows.get(&comm_id));
            coverage.communicators += all_made(comm, &walks, |walk| walk.made.get(&comm_id)).min(1);
        }
        let sum = |of: fn(&JudgedCounts) -> u64| walks.values().map(of).sum::<u64>();
        coverage.transfers = sum(|walk| walk.sends).min(sum(|walk| walk.receives));
        coverage.mappings = sum(|walk| walk.mappings);
        coverage.ranks = walks.values().filter(|walk| walk.takes_part()).count() as u64;
        coverage
    }

    /// Whether nothing was judged.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ranks == 0
    }
}

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("nothing");
        }
        let counted = [
            (self.collectives, "collective"),
            (self.transfers, "transfer"),
            (self.windows, "window"),
            (self.mappings, "mapping"),
        ];
        let plural = |count: u64| if count == 1 { "" } else { "s" };
        let parts: Vec<String> = counted
            .iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, what)| format!("{count} {what}{}", plural(*count)))
            .collect();
        if !parts.is_empty() {
            write!(f, "{} ", parts.join(", "))?;
        }
        if self.repeated_collectives > 0 {
            write!(f, "and {} that repeat these ", self.repeated_collectives)?;
        }
        if self.communicators > 0 {
            let before = if parts.is_empty() { "the set-up of" } else { "on" };
            write!(f, "{before} {} communicator{} ", self.communicators, plural(self.communicators))?;
        }
        write!(f, "by {} rank{}", self.ranks, plural(self.ranks))
    }
}

/// How often every member did something that all do together.
fn all_made<'a>(
    comm: &RunComm,
    walks: &'a BTreeMap<Rank, JudgedCounts>,
    count: impl Fn(&'a JudgedCounts) -> Option<&'a u64>,
) -> u64 {
    let walks = comm.members.iter().flatten().filter_map(|rank| walks.get(rank));
    walks.map(|walk| count(walk).copied().unwrap_or(0)).min().unwrap_or(0)
}

/// What one rank did.
#[derive(Debug, Default)]
struct JudgedCounts {
    collectives: FxHashMap<RunCommId, u64>,
    repeated: FxHashMap<RunCommId, u64>,
    windows: FxHashMap<RunCommId, u64>,
    made: FxHashMap<RunCommId, u64>,
    sends: u64,
    receives: u64,
    mappings: u64,
    /// The capture that is open, and the communicators of the collectives of each graph.
    capturing: Option<Token>,
    graphs: FxHashMap<Token, Vec<RunCommId>>,
}

impl JudgedCounts {
    fn of(program: &RankRun) -> Self {
        let mut counts = Self::default();
        counts.walk(program, &program.blocks[0].ops);
        for (comm, times) in program.repeated_collectives() {
            *counts.repeated.entry(comm).or_default() += u64::from(times);
        }
        counts
    }

    fn takes_part(&self) -> bool {
        let met = self.collectives.len() + self.windows.len() + self.made.len();
        met > 0 || self.sends + self.receives + self.mappings > 0
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "few operations are counted")]
    fn walk(&mut self, program: &RankRun, ops: &[Statement]) {
        for op in ops {
            match &*op.op {
                Op::Thread(ThreadOp::Spawn { start }) => {
                    self.walk(program, &program.blocks[start.0 as usize].ops);
                }
                Op::Collective(_) => {
                    let Some(comm) = program.collects_on(op) else { continue };
                    match self.capturing {
                        Some(graph) => self.graphs.entry(graph).or_default().push(comm),
                        None => *self.collectives.entry(comm).or_default() += 1,
                    }
                }
                Op::Transfer(call) => match call.direction {
                    Direction::Send => self.sends += 1,
                    Direction::Recv => self.receives += 1,
                },
                Op::Window(WindowOp::Register { comm: Operand::Slot(slot), .. }) => {
                    if let Some(comm) = comm_in(program, slot) {
                        *self.windows.entry(comm).or_default() += 1;
                    }
                }
                Op::Comm(CommOp::Init { .. } | CommOp::Split { .. }) => {
                    if let Some(comm) = program.makes.get(&op.loc) {
                        *self.made.entry(*comm).or_default() += 1;
                    }
                }
                Op::Ipc(IpcOp::Open { .. }) => self.mappings += 1,
                Op::Graph(GraphOp::Begin { graph, .. }) => self.capturing = Some(*graph),
                Op::Graph(GraphOp::End { .. }) => self.capturing = None,
                Op::Graph(GraphOp::Replay { graph, .. }) => {
                    for comm in self.graphs.get(graph).into_iter().flatten() {
                        *self.collectives.entry(*comm).or_default() += 1;
                    }
                }
                _ => {}
            }
        }
    }
}

fn comm_in(program: &RankRun, slot: &Slot) -> Option<RunCommId> {
    program.comms.get(slot).copied()
}

/// Calls that were not judged, for one reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftOut {
    why: Unjudged,
    /// What they are called, and how many there were.
    pub calls: Vec<(Arc<str>, u64)>,
}

impl LeftOut {
    /// Returns the calls of a recording that were not judged, by their reasons.
    #[must_use]
    pub fn of(recording: &Recording) -> Vec<Self> {
        let mut by_reason: BTreeMap<Unjudged, BTreeMap<Arc<str>, u64>> = BTreeMap::new();
        for program in &recording.program.ranks {
            for ((why, name), count) in &program.unjudged {
                *by_reason.entry(*why).or_default().entry(Arc::clone(name)).or_default() += count;
            }
        }
        by_reason.into_iter().map(|(why, calls)| Self { why, calls: calls.into_iter().collect() }).collect()
    }

    /// Whether the run may be wrong for what was left out, beyond what every verdict leaves out.
    #[must_use]
    pub fn matters(&self) -> bool {
        self.why.matters()
    }

    /// Whether they are launches of kernels.
    #[must_use]
    pub fn is_kernels(&self) -> bool {
        self.why == Unjudged::Kernel
    }

    /// Why they were not judged.
    #[must_use]
    pub fn why(&self) -> &'static str {
        self.why.why()
    }
}

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let calls: Vec<String> = self.calls.iter().map(|(name, count)| format!("{count} {name}")).collect();
        write!(f, "not judged: {} ({})", calls.join(", "), self.why())
    }
}
