//! Symmetric memory: ranks exchange handles of a buffer of each, and kernels wait for one another by signal pads, words that
//! come with the buffers.
//!
//! A pad belongs to the allocations that met, so that kernels over buffers that met in different exchanges wait for
//! different words. What an exchange was meant for is not recorded: where two ranks bring the same allocations in
//! different orders, each is taken to be meant for what it was allocated for.
//! Not here: the memory that is mapped ([`super::memory`]), and symmetric memory of NCCL.

use std::collections::BTreeMap;
use std::sync::Arc;

use rankcheck_model::{ExchangeOp, FlagAct, FlagOp, LocId, Op, Operand, Rank, StreamOp};
use rankcheck_recording::{Argument, Shape};
use rustc_hash::FxHashMap;

use super::call::{number, one};
use super::{Bind, Lowered, Lowering, Origin, RankRun};
use crate::runs::call::{SignalCall, Unjudged};
use crate::runs::regions::MemoryAt;
use crate::spec::builder::SourceNames;

/// A buffer that met those of other ranks.
#[derive(Debug, Clone)]
pub(super) struct SymmetricBuffer {
    members: Arc<[Rank]>,
    /// The number of the exchange among those of its members.
    number: u32,
    len_bytes: u64,
}

/// Buffers by address and group, and how many exchanges these members had.
#[derive(Debug, Default)]
pub(super) struct SymmetricBuffers {
    buffers: FxHashMap<(u64, Box<str>), SymmetricBuffer>,
    exchanged: FxHashMap<Arc<[Rank]>, u32>,
}

/// An exchange of a rank.
#[derive(Debug, Clone)]
pub(in crate::runs) struct Exchanged {
    pub(super) loc: LocId,
    pub(super) members: Arc<[Rank]>,
    /// The call that allocated what it is of, by its number and its line.
    pub(super) allocated: (u32, u32),
}

impl Lowering<'_> {
    /// Memory comes to where buffers were, which are gone.
    pub(super) fn forget_symmetric(&mut self, address: u64, len_bytes: u64) {
        let end = address.saturating_add(len_bytes);
        self.symmetric.buffers.retain(|(at, _), buffer| *at + buffer.len_bytes <= address || end <= *at);
    }

    fn group_of(call: &Shape) -> Box<str> {
        call.get("group").and_then(Argument::text).unwrap_or_default().into()
    }

    /// The ranks of a call, if all of them were recorded.
    fn ranks_of(&self, call: &Shape) -> Option<Arc<[Rank]>> {
        let text = call.get("ranks").and_then(Argument::text)?;
        let ranks: Option<Vec<Rank>> = text.split(',').map(|rank| rank.parse().ok().map(Rank)).collect();
        ranks.filter(|ranks| ranks.iter().all(|rank| self.world.member(*rank).is_some())).map(Into::into)
    }

    /// The allocation in which an address lies: where it begins, and its length.
    fn allocation_at(&self, address: u64) -> Option<(u64, Operand, u64)> {
        match self.memory.find(address, 0) {
            MemoryAt::In(operand, offset, left) => Some((address - offset, operand, offset + left)),
            MemoryAt::Unknown => None,
        }
    }

    /// Ranks exchange handles, unless they did so for this buffer before: who exchanges exports.
    pub(super) fn rendezvous(&mut self, call: &Shape, origin: Origin) -> Vec<Lowered> {
        if self.exported_at.is_none_or(|exported| exported < origin.number) {
            return Vec::new();
        }
        self.exported_at = None;
        let Some(members) = self.ranks_of(call) else { return self.unjudged(Unjudged::Absent, &call.name) };
        let address = number(call, "address");
        let Some((base, buffer, len_bytes)) = self.allocation_at(address) else {
            return self.unjudged(Unjudged::Unseen, &call.name);
        };
        let nth = self.symmetric.exchanged.entry(Arc::clone(&members)).or_default();
        let exchange = SymmetricBuffer { members: Arc::clone(&members), number: *nth, len_bytes };
        *nth += 1;
        let group = Self::group_of(call);
        self.symmetric.buffers.insert((base, group.clone()), exchange.clone());
        self.symmetric.buffers.insert((address, group), exchange);
        let name = self.names.token("symmetric memory");
        let allocated = self.allocated_at.get(&base).map_or((0, super::NO_LOC), |at| (at.number, at.loc));
        let op = Op::Exchange(ExchangeOp { members, name, buffer });
        vec![Lowered { op: op.into(), origin, bind: Bind::Exchanged(allocated) }]
    }

    /// A kernel signals to other ranks, and waits for them.
    pub(super) fn signalled(&mut self, signal: SignalCall, call: &Shape, origin: Origin) -> Vec<Lowered> {
        let mut items = self.rendezvous(call, origin);
        let address = number(call, "address");
        let group = Self::group_of(call);
        let base = self.allocation_at(address).map_or(address, |(base, ..)| base);
        let known = &self.symmetric.buffers;
        let Some(buffer) =
            known.get(&(address, group.clone())).or_else(|| known.get(&(base, group))).cloned()
        else {
            items.extend(self.unjudged(Unjudged::Unseen, &call.name));
            return items;
        };
        let stream = self.device.stream(number(call, "stream"), self.names);
        let me = self.member.rank;
        let peer = buffer.members.get(usize::try_from(number(call, "peer")).unwrap_or(usize::MAX)).copied();
        let others: Vec<Rank> = match signal {
            SignalCall::Kernel | SignalCall::Barrier => {
                buffer.members.iter().copied().filter(|rank| *rank != me).collect()
            }
            SignalCall::Put | SignalCall::Wait => peer.into_iter().collect(),
        };
        // Kernels have channels of their own: a block of each has one.
        let channel = match signal {
            SignalCall::Kernel => "signal pad".to_owned(),
            SignalCall::Barrier | SignalCall::Put | SignalCall::Wait => {
                format!("signal pad (channel {})", number(call, "channel"))
            }
        };
        let ranks: Vec<String> = buffer.members.iter().map(|rank| rank.0.to_string()).collect();
        let of_exchange = format!("exchange #{} of ranks {}", buffer.number, ranks.join(", "));
        let names = self.names;
        let swap = |of: Rank, by: Rank, act: FlagAct| {
            let flag =
                names.token(&format!("{channel} that rank {} sets on rank {}, of {of_exchange}", by.0, of.0));
            one(Op::Flag(FlagOp { flag, act, stream: Some(stream) }), origin)
        };
        self.ordered(stream, origin);
        if signal != SignalCall::Wait {
            items.extend(others.iter().flat_map(|other| swap(*other, me, FlagAct::Swap { from: 0, to: 1 })));
        }
        if signal != SignalCall::Put {
            items.extend(others.iter().flat_map(|other| swap(me, *other, FlagAct::Swap { from: 1, to: 0 })));
        }
        let name = names.token(&call.name);
        items.extend(one(
            Op::Stream(StreamOp::Kernel { name, reads: [].into(), writes: [].into(), stream }),
            origin,
        ));
        items
    }
}

/// Says what exchanges are for, where two ranks bring the same allocations in different orders.
pub(super) fn name(programs: &mut [RankRun], names: &SourceNames) {
    let mut groups: BTreeMap<Arc<[Rank]>, BTreeMap<usize, Vec<Exchanged>>> = BTreeMap::new();
    for (rank, program) in programs.iter().enumerate() {
        for exchange in &program.exchanges {
            let of = groups.entry(Arc::clone(&exchange.members)).or_default();
            of.entry(rank).or_default().push(exchange.clone());
        }
    }
    for members in groups.into_values() {
        let told: BTreeMap<usize, Vec<String>> =
            members.iter().map(|(rank, all)| (*rank, allocations(&programs[*rank], all))).collect();
        let Some(first) = told.values().next() else { continue };
        let crossed = |other: &[String]| {
            let length = first.len().min(other.len());
            let (first, other) = (&first[..length], &other[..length]);
            let moved = |at: usize| {
                first[at] != other[at] && first.contains(&other[at]) && other.contains(&first[at])
            };
            (0..length).any(moved)
        };
        if !told.values().any(|other| crossed(other)) {
            continue;
        }
        for (rank, all) in members {
            for (exchange, told) in all.iter().zip(&told[&rank]) {
                let name = names.token(told);
                programs[rank].change(exchange.loc, |op| {
                    if let Op::Exchange(exchange) = op {
                        exchange.name = name;
                    }
                });
            }
        }
    }
}

/// Which allocation each exchange of a rank is of: where it was made, and the how many-th of those that were made there and
/// exchanged.
fn allocations(program: &RankRun, all: &[Exchanged]) -> Vec<String> {
    let mut by_line: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for exchange in all {
        let (number, loc) = exchange.allocated;
        by_line.entry(loc).or_default().push(number);
    }
    for numbers in by_line.values_mut() {
        numbers.sort_unstable();
        numbers.dedup();
    }
    let told = |exchange: &Exchanged| {
        let (number, loc) = exchange.allocated;
        let nth = by_line[&loc].binary_search(&number).unwrap_or(0) + 1;
        let line = program.locs.get(loc as usize).map(|loc| format!("{}:{}", loc.file, loc.line));
        match (line, by_line[&loc].len()) {
            (Some(line), 1) => format!("the allocation at {line}"),
            (Some(line), _) => format!("allocation {nth} of those at {line}"),
            (None, _) => format!("allocation {nth} of those that are exchanged"),
        }
    };
    all.iter().map(told).collect()
}
