//! Parameters that a recording does not say, of calls in which all members of a collective, or both ends of a
//! transfer, have to agree on them.
//!
//! Such a parameter is taken to be what the others gave: if it is not, the run is wrong for that reason. So whatever is
//! found with it is wrong in any case, and whether the ranks agree is what cannot be judged. Where nobody says it, and where it
//! is not known which calls meet, what is judged of the rank ends there.
//! Not here: what calls become ([`super::call`]).

use std::collections::BTreeMap;
use std::sync::Arc;

use rankcheck_model::{
    Direction, GraphOp, LocId, Op, Operand, Rank, Root, Slot, Statement, ThreadOp, Transfer,
};
use rustc_hash::FxHashMap;

use super::{Lacks, RankRun};
use crate::runs::call::Unjudged;
use crate::runs::world::RunCommId;
use crate::spec::builder::SourceNames;

/// Calls that meet in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Meeting {
    /// Collectives of all members.
    Comm(RunCommId),
    /// Transfers from one rank to another.
    Link { comm: RunCommId, from: Rank, to: Rank },
    /// Calls that do not say all and meet nobody else, as far as is known.
    Nobody,
}

/// A call that meets others.
#[derive(Debug, Clone)]
struct Entry {
    op: Arc<Op>,
    loc: LocId,
    /// The operation of the first thread that it is, or whose thread it is in.
    at: usize,
    /// Whether a capture kept it: when it runs is not its place here.
    captured: bool,
}

type AgreedEntries = BTreeMap<Meeting, Vec<Entry>>;

/// What is done about a call that does not say all.
enum SettledEntry {
    Filled(Op),
    CutOff(Entry, Lacks),
}

/// Fills in what calls of all ranks do not say, or cuts them off.
pub(super) fn settle(orders: &[Vec<Rank>], programs: &mut [RankRun], names: &SourceNames) {
    if programs.iter().all(|program| program.open.is_empty()) {
        return;
    }
    let entries: Vec<AgreedEntries> = (0..)
        .zip(programs.iter())
        .map(|(rank, program)| {
            let mut entries = AgreedEntries::new();
            let mut walk = EntryWalk { rank: Rank(rank), program, orders, capturing: false };
            walk.walk(&program.blocks[0].ops, None, &mut entries);
            entries
        })
        .collect();
    let mut settled: Vec<(usize, LocId, SettledEntry)> = Vec::new();
    for (rank, program) in programs.iter().enumerate() {
        for (meeting, mine) in &entries[rank] {
            for (nth, entry) in mine.iter().enumerate() {
                let Some(open) = program.open.get(&entry.loc) else { continue };
                let all: Vec<usize> = match meeting {
                    Meeting::Comm(comm) => orders[comm.0 as usize].iter().map(|rank| rank.at()).collect(),
                    Meeting::Link { from, to, .. } => vec![from.at(), to.at()],
                    Meeting::Nobody => Vec::new(),
                };
                let one = Unsaid { programs, entries: &entries, meeting: *meeting, all: &all, rank, nth };
                settled.push((rank, entry.loc, one.settle(entry, open)));
            }
        }
    }
    let mut cuts: BTreeMap<usize, (Entry, Lacks)> = BTreeMap::new();
    for (rank, loc, settled) in settled {
        match settled {
            SettledEntry::Filled(op) => {
                let program = &mut programs[rank];
                let open = program.open.remove(&loc).unwrap_or_default();
                program.replace(loc, op);
                let name = program.origin_of(loc).map(|origin| names.text(origin.name));
                for key in open {
                    let call = format!("`{key}` of {}", name.as_deref().unwrap_or("a call"));
                    *program.unjudged.entry((Unjudged::Agreed, call.into())).or_default() += 1;
                }
            }
            SettledEntry::CutOff(entry, lacks) => {
                let first = cuts.entry(rank).or_insert_with(|| (entry.clone(), lacks));
                if entry.at < first.0.at {
                    *first = (entry, lacks);
                }
            }
        }
    }
    for (rank, (entry, lacks)) in cuts {
        programs[rank].cut_off_at(entry.loc, lacks, entry.at);
    }
}

/// A call that does not say all.
struct Unsaid<'a> {
    programs: &'a [RankRun],
    entries: &'a [AgreedEntries],
    meeting: Meeting,
    /// The ranks that meet.
    all: &'a [usize],
    rank: usize,
    /// Its position among those that meet.
    nth: usize,
}

impl Unsaid<'_> {
    fn of(&self, rank: usize) -> &[Entry] {
        self.entries[rank].get(&self.meeting).map_or(&[], Vec::as_slice)
    }

    fn settle(&self, entry: &Entry, open: &[&'static str]) -> SettledEntry {
        let cut = |lacks| SettledEntry::CutOff(entry.clone(), lacks);
        // A replay has its own place among the calls.
        if self.all.iter().any(|rank| self.of(*rank).iter().any(|entry| entry.captured)) {
            return cut(Lacks::Value(open[0]));
        }
        // A collective of no elements launches nothing. If all ranks made as many calls, this one is none.
        let as_many = || {
            let length = self.of(self.rank).len();
            let known = |rank: &usize| self.programs[*rank].is_known_to_its_end();
            self.all.iter().all(|rank| self.of(*rank).len() == length && known(rank))
        };
        if matches!(self.meeting, Meeting::Comm(_)) && open.contains(&"count") && !as_many() {
            return cut(Lacks::Elements);
        }
        let mut op = Op::clone(&entry.op);
        for key in open {
            let says = |rank: &&usize| {
                let other = self.of(**rank).get(self.nth);
                **rank != self.rank
                    && other.is_some_and(|other| {
                        let open = self.programs[**rank].open.get(&other.loc);
                        open.is_none_or(|open| !open.contains(key))
                    })
            };
            let Some(rank) = self.all.iter().find(says) else { return cut(Lacks::Value(key)) };
            fill(&mut op, &self.of(*rank)[self.nth].op, key);
        }
        SettledEntry::Filled(op)
    }
}

/// Takes a parameter of one operation from another that it meets.
fn fill(op: &mut Op, from: &Op, key: &str) {
    match (op, from) {
        (Op::Collective(call), Op::Collective(from)) => {
            let call = Arc::make_mut(call);
            match key {
                "count" => call.count = from.count,
                "dtype" => call.dtype = from.dtype,
                "op" => call.op = from.op,
                _ => {
                    if let Root::From(root) | Root::To(root) = from.kind.root() {
                        call.kind = call.kind.with_root(root);
                    }
                }
            }
        }
        (Op::Transfer(call), Op::Transfer(from)) => {
            let call = Arc::make_mut(call);
            match key {
                "count" => call.count = from.count,
                _ => call.dtype = from.dtype,
            }
        }
        _ => {}
    }
}

/// A walk over the operations of a rank.
struct EntryWalk<'a> {
    rank: Rank,
    program: &'a RankRun,
    orders: &'a [Vec<Rank>],
    capturing: bool,
}

impl EntryWalk<'_> {
    fn comm(&self, of: &Operand) -> Option<RunCommId> {
        let comms: &FxHashMap<Slot, RunCommId> = &self.program.comms;
        if let Operand::Slot(slot) = of { comms.get(slot).copied() } else { None }
    }

    /// The way of a message to another rank.
    fn link(&self, call: &Transfer) -> Option<Meeting> {
        let comm = self.comm(&call.comm)?;
        let peer = *self.orders[comm.0 as usize].get(call.peer as usize)?;
        let (from, to) = match call.direction {
            Direction::Send => (self.rank, peer),
            Direction::Recv => (peer, self.rank),
        };
        (from != to).then_some(Meeting::Link { comm, from, to })
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "few operations meet others in their order")]
    fn walk(&mut self, ops: &[Statement], thread_at: Option<usize>, into: &mut AgreedEntries) {
        for (at, statement) in ops.iter().enumerate() {
            let at = thread_at.unwrap_or(at);
            let open = self.program.open.get(&statement.loc);
            let alone = open.map(|_| Meeting::Nobody);
            let met = match &*statement.op {
                Op::Thread(ThreadOp::Spawn { start }) => {
                    let program = self.program;
                    self.walk(&program.blocks[start.0 as usize].ops, Some(at), into);
                    None
                }
                Op::Graph(GraphOp::Begin { .. }) => {
                    self.capturing = true;
                    None
                }
                Op::Graph(GraphOp::End { .. }) => {
                    self.capturing = false;
                    None
                }
                Op::Collective(call) => {
                    let empty = call.count == 0 && open.is_none_or(|open| !open.contains(&"count"));
                    if empty { None } else { self.comm(&call.comm).map(Meeting::Comm).or(alone) }
                }
                Op::Transfer(call) => self.link(call).or(alone),
                _ => None,
            };
            if let Some(met) = met {
                let entry =
                    Entry { op: Arc::clone(&statement.op), loc: statement.loc, at, captured: self.capturing };
                into.entry(met).or_default().push(entry);
            }
        }
    }
}
