//! Which buffers the members of a collective use: evidence of members that launch the same collectives in another order.
//!
//! Collectives of one kind, count and type meet in whatever order ranks launch them, and NCCL compares no buffers. That
//! members use differently named buffers is often meant. That two of them use the same buffers in another order hardly
//! ever is. It breaks no rule, so it is told beside a verdict and is no finding.
//! Not here: what data results ([`super::data`]).

use std::sync::Arc;

use super::kind::{CollectiveKind, Root};
use super::run::Member;
use crate::host::value::{Buffer, CommId, Owner};
use crate::id::Token;
use crate::identity::{Identify, StateIdentity, identify_as_hashed};
use crate::judge::finding::OpRef;
use crate::machine::Machine;
use crate::noun::collective::Launch;
use crate::program::{Dtype, ReduceOp};
use crate::rank::Rank;
use crate::state::{State, Table};
use crate::walk::walk;

/// A buffer, or a slice of one, as every rank has its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Place {
    name: Token,
    /// Which of several allocations of the name; 0 for blocks, which pools do not count by name.
    nth: u32,
    /// Where it starts in its allocation.
    offset_bytes: u64,
    len_bytes: u64,
}

/// The buffers of a member whose contents count: what it gives and what it gets, the latter where that is elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Operands {
    one: Place,
    other: Option<Place>,
}

/// What collectives have to agree on to meet.
type CollectiveShape = (CollectiveKind, u64, Dtype, Option<ReduceOp>);

/// One member of a collective.
#[derive(Debug, Clone)]
struct Used {
    rank: Rank,
    operands: Operands,
    op: OpRef,
}

identify_as_hashed!(Operands, CollectiveShape);
walk!(struct Used { rank: hashed moved, operands: hashed fixed, op: hashed moved });

/// A collective whose members use different buffers.
#[derive(Debug, Clone)]
struct Different {
    comm: CommId,
    signature: CollectiveShape,
    /// Its number on the communicator, as reports count.
    nth: u32,
    members: Vec<Used>,
}

walk!(struct Different {
    comm: hashed fixed,
    signature: hashed fixed,
    nth: hashed fixed,
    members: hashed moved,
});

/// The collectives of a run whose members used different buffers. No rule reads them.
#[derive(Debug, Clone, Default)]
pub(crate) struct DifferentOperands {
    rows: Vec<Arc<Different>>,
}

walk!(apart struct DifferentOperands { rows: derived moved });

impl Identify for DifferentOperands {
    fn identify(&self, to: &mut StateIdentity<'_>) {
        to.unordered(&self.rows, |row, to| row.identify(to));
    }
}

impl Launch {
    fn signature(&self) -> CollectiveShape {
        let call = &self.call;
        (call.kind, call.count, call.dtype, call.kind.reduces().then_some(call.op))
    }

    /// Whether both use the same buffers at a glance: a block of a pool may lie elsewhere on another rank.
    fn uses_alike(&self, other: &Self) -> bool {
        let alike =
            |a: &Buffer, b: &Buffer| (a.name, a.block, a.offset_bytes) == (b.name, b.block, b.offset_bytes);
        let in_place = Arc::ptr_eq(&self.send, &self.recv) && Arc::ptr_eq(&other.send, &other.recv);
        alike(&self.send, &other.send) && (in_place || alike(&self.recv, &other.recv))
    }
}

impl Machine {
    /// Keeps which buffers the members of a collective use, if these are not the same on all.
    pub(super) fn note_operands(&self, state: &mut State, comm: CommId, members: &[Member]) {
        let first = &members[0].launch;
        if members.iter().all(|member| member.launch.uses_alike(first)) {
            return;
        }
        let used = |(position, member): (usize, &Member)| Used {
            rank: member.rank,
            operands: operands(state, position, member),
            op: member.launch.op,
        };
        let used: Vec<Used> = members.iter().enumerate().map(used).collect();
        if used.iter().all(|one| one.operands == used[0].operands) {
            return;
        }
        let nth = first.nth + self.skipped(&members[0]);
        let different = Different { comm, signature: first.signature(), nth, members: used };
        DifferentOperands::of_mut(state.shared_mut()).rows.push(Arc::new(different));
    }

    /// Says where two members of a communicator used the same buffers in another order in collectives that differ in
    /// nothing else; none if no members did. Members that used different buffers altogether are nothing to tell.
    #[must_use]
    pub fn operands_in_another_order(&self, state: &State) -> Option<String> {
        let rows = &DifferentOperands::of(state.shared()).rows;
        let mut asked: Vec<(CommId, CollectiveShape)> = Vec::new();
        for row in rows {
            let kind = (row.comm, row.signature);
            if asked.contains(&kind) {
                continue;
            }
            asked.push(kind);
            let alike: Vec<&Different> =
                rows.iter().map(|row| &**row).filter(|row| (row.comm, row.signature) == kind).collect();
            if let Some(told) = self.another_order(state, &alike) {
                return Some(told);
            }
        }
        None
    }

    /// The same of collectives of one communicator that differ in nothing but the buffers of their members.
    fn another_order<'a>(&self, state: &State, alike: &[&'a Different]) -> Option<String> {
        // Ranks may have been renumbered between two collectives.
        let by_rank = |row: &&'a Different| {
            let mut members: Vec<&Used> = row.members.iter().collect();
            members.sort_unstable_by_key(|used| used.rank);
            (row.nth, members)
        };
        let rows: Vec<(u32, Vec<&Used>)> = alike.iter().map(by_rank).collect();
        let sorted = |position: usize| {
            let mut used: Vec<Operands> =
                rows.iter().map(|(_, members)| members[position].operands).collect();
            used.sort_unstable();
            used
        };
        let first = alike.first()?;
        let members = first.members.len();
        let sets: Vec<Vec<Operands>> = (0..members).map(sorted).collect();
        // The first collective in which some two members differ that use the same in the end.
        rows.iter().find_map(|(nth, used)| {
            let differ =
                |a: usize, b: usize| used[a].operands != used[b].operands && sets[a] == sets[b];
            let pair = |a: usize| (a + 1..members).find(|b| differ(a, *b)).map(|b| (a, b));
            let (a, b) = (0..members).find_map(pair)?;
            let (one, other) = (used[a], used[b]);
            let names = |of: Operands| (of.one.name, of.other.map(|place| place.name));
            let sliced = names(one.operands) == names(other.operands);
            let over = |used: &Used| {
                let (rank, at) = (state.original(used.rank), self.at(&used.op));
                let buffers = self.operands_shown(used.operands, sliced);
                format!("over {buffers} on rank {} ({at})", rank.0)
            };
            let (one, other) = (over(one), over(other));
            let (comm, kind) = (self.comm_name(first.comm), first.signature.0.name());
            Some(format!(
                "collective #{nth} of {comm}, {kind}, is {one} and {other}: both ranks use the same buffers, in another \
                 order, and what they hold is mixed; r.expect(…, gathered = …) or (…, reduced = …) states what they \
                 are to hold"
            ))
        })
    }

    /// The buffers in words, with the bytes that are meant where names alone do not tell them apart.
    fn operands_shown(&self, Operands { one, other }: Operands, sliced: bool) -> String {
        let show = |place: Place| {
            let name = self.name(place.name);
            let nth = if place.nth > 0 { format!(".{}", place.nth) } else { String::new() };
            let (from, to) = (place.offset_bytes, place.offset_bytes + place.len_bytes);
            let bytes = if sliced { format!("[{from}:{to}]") } else { String::new() };
            format!("{name}{nth}{bytes}")
        };
        match other {
            Some(other) => format!("{} and {}", show(one), show(other)),
            None => show(one),
        }
    }
}

/// The buffers of the member at this position whose contents count.
fn operands(state: &State, position: usize, member: &Member) -> Operands {
    let Member { rank, launch, .. } = member;
    let (send, recv) = (&launch.send, &launch.recv);
    let place = |buffer: &Buffer| place(state, *rank, buffer);
    let root = |root: u32| root as usize == position;
    let alone = |buffer: &Buffer| Operands { one: place(buffer), other: None };
    match launch.call.kind.root() {
        Root::From(from) if root(from) => alone(send),
        Root::From(_) => alone(recv),
        Root::To(_) => alone(send),
        // In place, of an all-gather a part is given of what is got, and of a reduce-scatter the other way round.
        Root::None if contains(recv, send) => alone(recv),
        Root::None if contains(send, recv) => alone(send),
        Root::None => Operands { one: place(send), other: Some(place(recv)) },
    }
}

/// Whether a range of memory contains another.
fn contains(whole: &Buffer, part: &Buffer) -> bool {
    let end = |of: &Buffer| of.offset_bytes + of.len_bytes;
    (whole.memory, whole.through) == (part.memory, part.through)
        && whole.offset_bytes <= part.offset_bytes
        && end(part) <= end(whole)
}

fn place(state: &State, rank: Rank, buffer: &Buffer) -> Place {
    let (start, nth) = match buffer.memory.owner {
        Owner::Program(_) => (0, buffer.memory.nth),
        // Where in its block a slice lies is not known once the block was given back.
        Owner::Pool(_) => (state.rank(rank).block_start(buffer).unwrap_or(buffer.offset_bytes), 0),
    };
    let offset_bytes = buffer.offset_bytes - start;
    Place { name: buffer.name, nth, offset_bytes, len_bytes: buffer.len_bytes }
}
