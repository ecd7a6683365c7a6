//! Where ranks diverge: the first operation on a communicator that two of its members do differently.
//!
//! Collectives are compared with collectives and set-up events with set-up events: NCCL matches each by its own
//! count, and a program may launch before it registers on one rank and after it on another.
//! It is read off the recording alone, so it is found also behind a hang, and where NCCL would go on.
//! Not here: what rules say about it ([`super::judge`]).

use std::fmt;

use rankcheck_model::{
    CollectiveKind, CommOp, Declared, Dtype, LocId, Op, OpRef, Operand, Rank, ReduceOp, Slot, Source as _,
    Statement, ThreadOp, WindowFlags, WindowOp, ranks_in_words,
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

/// Members that do the same where ranks diverge.
#[derive(Debug, Clone)]
struct AlikeMembers {
    /// What they do, and how the report calls it; nothing if they end without it.
    act: Option<(Act, String)>,
    /// Each, and where it does so.
    members: Vec<(Rank, Option<LocId>)>,
}

/// The two ranks whose operations were compared, one by one.
#[derive(Debug, Clone)]
pub struct Divergence {
    /// The communicator on which they diverge.
    pub comm: RunCommId,
    /// What they do differently.
    pub counted: Counted,
    /// The n-th of those, from 0; what was folded is not counted.
    pub nth: usize,
    /// The two that were compared.
    pub compared: (Rank, Rank),
    /// The first before it that those two do alike and from different lines, which may be where they diverged: the
    /// how-manieth of the whole run (of set-up events: of what is left), and the lines of the one and of the other.
    pub lines: Option<(usize, LocId, LocId)>,
    /// In which round of a loop they diverge.
    pub rounds: Option<Rounds>,
    /// What each member does there of which it is known, those together that do the same.
    alike: Vec<AlikeMembers>,
}

impl Divergence {
    /// Returns one sentence about it: where most members agree, who does otherwise; else what each does.
    #[must_use]
    pub fn sentence(&self, recording: &Recording) -> String {
        let comm = &recording.world.comm(self.comm).name;
        let what = match self.counted {
            Counted::SetUp => "a set-up event",
            Counted::Collective => "a collective",
        };
        let all: usize = self.alike.iter().map(|alike| alike.members.len()).sum();
        let (most, others): (Vec<&AlikeMembers>, Vec<&AlikeMembers>) =
            self.alike.iter().partition(|alike| 2 * alike.members.len() > all);
        let told = |of: &[&AlikeMembers]| {
            of.iter().map(|alike| alike.told(recording)).collect::<Vec<String>>().join(" and ")
        };
        let mut text = format!("ranks diverge in {what} of {comm}: {}", told(&others));
        if !most.is_empty() {
            text.push_str(&format!(", where {}", told(&most)));
        }
        if let Some((nth, own, others)) = self.lines {
            let at = |loc: LocId| recording.program.loc(loc).to_string();
            text.push_str(&format!(
                "; the first that they call from different lines is #{nth}, at {} on rank {} and at {} on rank {}",
                at(own),
                self.compared.0.0,
                at(others),
                self.compared.1.0
            ));
        }
        if let Some(rounds) = &self.rounds {
            text.push_str(&format!("; {rounds}"));
        }
        text
    }

    /// Returns each member of which it is known what it does there, with where; those that do as most do come last.
    pub(super) fn places(&self) -> impl Iterator<Item = (Rank, LocId)> {
        let mut alike: Vec<&AlikeMembers> = self.alike.iter().collect();
        alike.sort_by_key(|alike| alike.members.len());
        alike.into_iter().flat_map(|alike| &alike.members).filter_map(|(rank, loc)| Some((*rank, (*loc)?)))
    }

    /// The ranks that diverge, and where each does something else; the first that two of them do from different lines, where
    /// that is known.
    #[cfg(feature = "cli")]
    pub(crate) fn apart(&self) -> Vec<(Rank, Option<LocId>)> {
        match self.lines {
            Some((_, own, others)) => vec![(self.compared.0, Some(own)), (self.compared.1, Some(others))],
            None => self.alike.iter().flat_map(|alike| alike.members.iter().copied()).collect(),
        }
    }

    /// Whether operations are those of the ranks that diverge.
    pub(super) fn is_of(&self, ops: &[OpRef]) -> bool {
        let there = |op: &OpRef| {
            self.alike.iter().flat_map(|alike| &alike.members).any(|(_, loc)| *loc == Some(op.loc))
        };
        ops.len() > 1 && ops.iter().all(there)
    }

    /// Whether it is known where the ranks diverged before, or in which round.
    pub(super) fn says_where(&self) -> bool {
        self.lines.is_some() || self.rounds.is_some()
    }
}

impl AlikeMembers {
    fn told(&self, recording: &Recording) -> String {
        let several = self.members.len() > 1;
        let ranks = ranks_in_words(self.members.iter().map(|(rank, _)| *rank));
        let at = |loc: LocId| recording.program.loc(loc).to_string();
        let Some((_, act)) = &self.act else {
            let (rank, _) = self.members[0];
            let program = &recording.program.ranks[rank.at()];
            let last =
                program.last_told().map(|last| program.loc(&last, &recording.program.names).to_string());
            let last = last.map_or_else(String::new, |last| format!(" (last at {last})"));
            let who = if several { format!("; rank {}", rank.0) } else { ", and".to_owned() };
            let verb = if several { "make" } else { "makes" };
            return format!("{ranks} {verb} none{who} {}{last}", program.ended());
        };
        let mut locs = self.members.iter().filter_map(|(_, loc)| loc.map(at));
        let first = locs.next().unwrap_or_default();
        let whose = match locs.all(|loc| loc == first) {
            true => String::new(),
            false => format!("rank {} at ", self.members[0].0.0),
        };
        format!("{ranks} {} {act} ({whose}{first})", if several { "make" } else { "makes" })
    }
}

/// Whether a collective carries a barrier.
fn is_barrier(program: &RankRun, loc: LocId) -> bool {
    let statement = program.statement(loc);
    statement.is_some_and(|op| matches!(&*op.op, Op::Collective(call) if call.declared == Declared::Barrier))
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
            let (comm, act) = match &*op.op {
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
    let (_, loc) = acts(first, nth)?;
    let (_, walk) = members.clone().find(|(rank, _)| *rank == other)?;
    let line = |loc: LocId| {
        let loc = recording.program.loc(loc);
        (loc.line > 0).then_some((loc.file, loc.line))
    };
    let lines = (0..nth).find_map(|nth| {
        let ((_, own), (_, others)) = (acts(first, nth)?, acts(walk, nth)?);
        let (one, other) = (line(own)?, line(others)?);
        // Numbers are those of the whole run.
        let before = if counted == Counted::Collective { first.program.skipped(own, own) } else { 0 };
        (one != other).then_some((nth + before as usize, own, others))
    });
    let rounds = Rounds::of(recording, (*longest, loc), other);
    let mut alike: Vec<AlikeMembers> = Vec::new();
    for (rank, walk) in members {
        let (act, loc) = match acts(walk, nth) {
            Some((act, loc)) => {
                let barrier = is_barrier(walk.program, loc);
                (Some((act, if barrier { "a barrier".to_owned() } else { act.to_string() })), Some(loc))
            }
            None if walk.program.is_known_to_its_end() => (None, None),
            None => continue,
        };
        match alike.iter_mut().find(|alike| alike.act == act) {
            Some(alike) => alike.members.push((*rank, loc)),
            None => alike.push(AlikeMembers { act, members: vec![(*rank, loc)] }),
        }
    }
    Some(Divergence { comm, counted, nth, compared: (*longest, other), lines, rounds, alike })
}
