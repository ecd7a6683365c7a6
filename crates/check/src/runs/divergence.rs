//! Where ranks diverge: the first operation on a communicator that two of its members do differently.
//!
//! Collectives are compared with collectives and set-up events with set-up events: NCCL matches each by its own
//! count, and a program may launch before it registers on one rank and after it on another.
//! It is read off the recording alone, so it is found also behind a hang, and where NCCL would go on.
//! Not here: what rules say about it ([`super::judge`]).

use std::fmt;

use rankcheck_model::{
    CollectiveKind, CommOp, Declared, Dtype, LocId, Op, Operand, Rank, ReduceOp, Slot, Source as _,
    Statement, ThreadOp, WindowFlags, WindowOp,
};
use rustc_hash::FxHashMap;

use super::judge::Recording;
use super::lower::RankRun;
use super::rounds::Rounds;
use super::world::RunCommId;

/// What one member does on a communicator, as far as all have to do the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    /// A collective; the reduction where it reduces.
    Collect(CollectiveKind, u64, Dtype, Option<ReduceOp>),
    /// A registration of a window, with its flags.
    Register(WindowFlags),
    /// A split, whatever color the member gives.
    Split,
}

impl fmt::Display for Act {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Collect(kind, count, dtype, op) => {
                write!(f, "{} of {count} {}", kind.name(), dtype.name())?;
                if let Some(op) = op {
                    write!(f, " ({})", op.name())?;
                }
                f.write_str(&kind.way())
            }
            Self::Register(WindowFlags::Default) => f.write_str("a registration"),
            Self::Register(WindowFlags::CollSymmetric) => f.write_str("a symmetric registration"),
            Self::Split => f.write_str("a split"),
        }
    }
}

/// What is counted by itself on a communicator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Counted {
    /// Set-up events: registrations and splits, in one order.
    SetUp,
    /// Collectives, in one order for themselves.
    Collective,
}

impl Act {
    fn counted(self) -> Counted {
        match self {
            Self::Collect(..) => Counted::Collective,
            Self::Register(_) | Self::Split => Counted::SetUp,
        }
    }
}

/// Two ranks that diverge.
#[derive(Debug, Clone)]
pub struct Divergence {
    /// The communicator on which they diverge.
    pub comm: RunCommId,
    /// What they do differently.
    pub counted: Counted,
    /// The n-th of those, from 0; what was folded is not counted.
    pub nth: usize,
    /// A rank, and what it does there.
    pub one: (Rank, Act, LocId),
    /// The first before it that the two do alike and from different lines, which may be where they parted: the how-manieth,
    /// and the lines of the one and of the other.
    pub lines: Option<(usize, LocId, LocId)>,
    /// In which round of a loop they part.
    pub rounds: Option<Rounds>,
    /// Another; nothing if it ends without it.
    pub other: (Rank, Option<(Act, LocId)>),
}

impl Divergence {
    /// Returns one sentence about it.
    #[must_use]
    pub fn sentence(&self, recording: &Recording) -> String {
        let comm = &recording.world.comm(self.comm).name;
        let at = |loc: LocId| recording.program.loc(loc).to_string();
        let (one, act, loc) = self.one;
        let named = |rank: Rank, act: Act, loc: LocId| {
            let barrier = is_barrier(&recording.program.ranks[rank.at()], loc);
            if barrier { "a barrier".to_owned() } else { act.to_string() }
        };
        let act = named(one, act, loc);
        let other = match self.other {
            (rank, Some((act, loc))) => format!("{} on rank {} ({})", named(rank, act, loc), rank.0, at(loc)),
            (rank, None) => {
                let program = &recording.program.ranks[rank.at()];
                let last = program.last.map(|last| program.loc(&last, &recording.program.names).to_string());
                let last = last.map_or_else(String::new, |last| format!(" (last at {last})"));
                format!("nothing on rank {}, which exited without making that call{last}", rank.0)
            }
        };
        let what = match self.counted {
            Counted::SetUp => "a set-up event",
            Counted::Collective => "a collective",
        };
        let rounds = self.rounds.as_ref().map_or_else(String::new, |rounds| format!("; {rounds}"));
        let lines = self.lines.map_or_else(String::new, |(nth, own, others)| {
            let (own, others) = (at(own), at(others));
            format!("; the first that they call from different lines is #{nth}, at {own} and at {others}")
        });
        format!("{what} of {comm} is {act} on rank {} ({}) and {other}{lines}{rounds}", one.0, at(loc))
    }
}

/// Whether a collective carries a barrier.
fn is_barrier(program: &RankRun, loc: LocId) -> bool {
    let statement = program.statement(loc);
    statement.is_some_and(|op| matches!(&op.op, Op::Collective(call) if call.declared == Declared::Barrier))
}

/// What a rank does on each communicator, in order.
struct RankActs<'a> {
    program: &'a RankRun,
    acts: FxHashMap<(RunCommId, Counted), Vec<LocId>>,
    ops: FxHashMap<LocId, Act>,
}

impl RankActs<'_> {
    #[expect(clippy::wildcard_enum_match_arm, reason = "few operations are every member's")]
    fn walk(&mut self, ops: &[Statement]) {
        for op in ops {
            let (comm, act) = match &op.op {
                Op::Thread(ThreadOp::Spawn { start }) => {
                    let program = self.program;
                    self.walk(&program.blocks[start.0 as usize].ops);
                    continue;
                }
                // NCCL drops it on this rank alone.
                Op::Collective(call) if call.count == 0 => continue,
                Op::Collective(call) => {
                    let op = call.kind.reduces().then_some(call.op);
                    (&call.comm, Act::Collect(call.kind, call.count, call.dtype, op))
                }
                Op::Window(WindowOp::Register { comm, flags, .. }) => (comm, Act::Register(*flags)),
                Op::Comm(CommOp::Split { comm, .. }) => (comm, Act::Split),
                _ => continue,
            };
            if let Operand::Slot(slot) = comm
                && let Some(comm) = self.comm(*slot)
            {
                self.acts.entry((comm, act.counted())).or_default().push(op.loc);
                self.ops.insert(op.loc, act);
            }
        }
    }

    fn comm(&self, slot: Slot) -> Option<RunCommId> {
        self.program.comms.get(&slot).copied()
    }
}

/// For each communicator the first operation at which members diverge.
#[must_use]
pub fn divergences(recording: &Recording) -> Vec<Divergence> {
    let walks: Vec<(Rank, RankActs<'_>)> = recording
        .world
        .members
        .iter()
        .map(|member| {
            let program = &recording.program.ranks[member.rank.at()];
            let mut walk = RankActs { program, acts: FxHashMap::default(), ops: FxHashMap::default() };
            walk.walk(&program.blocks[0].ops);
            (member.rank, walk)
        })
        .collect();
    let comms = (0..recording.world.comms.len()).map(|at| RunCommId(u32::try_from(at).expect("numbered so")));
    let both = comms.flat_map(|comm| [(comm, Counted::SetUp), (comm, Counted::Collective)]);
    both.filter_map(|of| divergence(recording, of, &walks)).collect()
}

fn divergence(
    recording: &Recording,
    (comm, counted): (RunCommId, Counted),
    walks: &[(Rank, RankActs<'_>)],
) -> Option<Divergence> {
    let of = recording.world.comm(comm);
    let members = walks.iter().filter(|(rank, _)| of.rank_of(*rank).is_some());
    let acts = |walk: &'_ RankActs<'_>, nth: usize| {
        let loc = *walk.acts.get(&(comm, counted))?.get(nth)?;
        Some((walk.ops[&loc], loc))
    };
    let length = |walk: &RankActs<'_>| walk.acts.get(&(comm, counted)).map_or(0, Vec::len);
    let (longest, first) =
        members.clone().max_by_key(|(rank, walk)| (length(walk), std::cmp::Reverse(*rank)))?;
    let differing = |(rank, walk): &&(Rank, RankActs<'_>)| {
        let ended = walk.program.is_known_to_its_end();
        let differs = |nth: &usize| match (acts(first, *nth), acts(walk, *nth)) {
            (Some((one, _)), Some((other, _))) => one != other,
            (Some(_), None) => ended,
            (None, _) => false,
        };
        let nth = (0..length(first)).find(differs)?;
        Some((nth, *rank))
    };
    let (nth, other) = members.clone().filter_map(|member| differing(&member)).min()?;
    let (act, loc) = acts(first, nth)?;
    let (_, walk) = members.clone().find(|(rank, _)| *rank == other)?;
    let line = |loc: LocId| {
        let loc = recording.program.loc(loc);
        (loc.line > 0).then_some((loc.file, loc.line))
    };
    let lines = (0..nth).find_map(|nth| {
        let ((_, own), (_, others)) = (acts(first, nth)?, acts(walk, nth)?);
        let (one, other) = (line(own)?, line(others)?);
        (one != other).then_some((nth, own, others))
    });
    let rounds = Rounds::of(recording, (*longest, loc), other);
    Some(Divergence {
        comm,
        counted,
        nth,
        one: (*longest, act, loc),
        lines,
        rounds,
        other: (other, acts(walk, nth)),
    })
}
