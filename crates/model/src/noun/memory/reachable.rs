//! Memory that somebody may still come by: what was done to the rest makes no difference any more.
//!
//! Whoever gets at memory of a rank has it from a value of that rank. So memory that was named by nothing that the rank gave
//! away is out of reach once none of the values names it that the rank may still use, no work that it has queued or captured,
//! and no window.
//! A pool hands out its memory again as long as somebody uses it.
//!
//! Not here: what somebody may still use by its name ([`crate::order::ahead`]).

use std::collections::BTreeSet;
use std::sync::Arc;

use rustc_hash::FxHashSet;

use crate::host::best_fit::Segment;
use crate::host::value::{Address, BlockId, Buffer, MemoryId, Owner, Value};
use crate::id::Token;
use crate::machine::{InFlight, Machine};
use crate::noun::stream::Work;
use crate::order::ahead::UsedAhead;
use crate::order::condition::Condition;
use crate::order::dependence::{Object, ObjectKind};
use crate::program::Symmetry;
use crate::rank::Rank;
use crate::remembered::RememberedPast;
use crate::state::{RankState, State};

/// The memory of a rank that the rank may still come by.
#[derive(Debug, Default)]
pub(crate) struct ReachableMemory {
    /// What the rank may still do is not known.
    unknown: bool,
    memories: FxHashSet<MemoryId>,
    /// Blocks that values name, or work.
    blocks: FxHashSet<BlockId>,
    /// By name: those that may still be used, or whose memory may.
    pools: FxHashSet<Token>,
    /// What other ranks may come by.
    exported: Arc<BTreeSet<MemoryId>>,
    /// Whether the rank may still allocate memory.
    pub(crate) allocates: bool,
    /// Addresses that values name, by the memory that was mapped there first.
    addresses: FxHashSet<MemoryId>,
    /// Addresses that allocations may hand out: of segments of pools, and those that were freed.
    handed_out: FxHashSet<MemoryId>,
}

impl ReachableMemory {
    /// Whether somebody may compare the address of this memory of the rank, or map other memory there.
    pub(crate) fn has_address(&self, memory: MemoryId) -> bool {
        self.addresses.contains(&memory) || self.handed_out.contains(&memory) || self.has(memory)
    }

    /// Whether somebody comes by memory of the rank, or by its address, in another way than that its pool hands it out.
    pub(crate) fn names(&self, memory: MemoryId) -> bool {
        self.unknown
            || self.memories.contains(&memory)
            || self.addresses.contains(&memory)
            || self.exported.contains(&memory)
    }

    /// Whether somebody may access memory of the rank, or free it.
    pub(crate) fn has(&self, memory: MemoryId) -> bool {
        let is_of_pool =
            || if let Owner::Pool(pool) = memory.owner { self.pools.contains(&pool) } else { false };
        self.unknown || self.memories.contains(&memory) || self.exported.contains(&memory) || is_of_pool()
    }

    /// Whether somebody may use a pool of the rank, or what lies in it.
    pub(crate) fn has_pool(&self, pool: Token) -> bool {
        self.unknown || self.pools.contains(&pool)
    }

    /// Whether somebody may use a block of the rank, give it up, or be handed out its bytes.
    pub(crate) fn has_block(&self, block: BlockId) -> bool {
        self.blocks.contains(&block) || self.has(block.0)
    }

    fn add(&mut self, buffer: &Buffer) {
        // A mapping of memory of another rank is none of this one.
        if buffer.through.is_none() {
            self.memories.insert(buffer.memory);
            self.blocks.extend(buffer.block);
            self.addresses.insert(buffer.address.0);
        }
    }

    fn add_value(&mut self, holder: Rank, value: &Value) {
        match value {
            Value::Buffer(buffer) => self.add(buffer),
            Value::Trimmed(segments) => segments.iter().for_each(|segment| self.add(segment)),
            Value::Address(Address::Memory(address, _)) => {
                self.addresses.insert(address.0);
            }
            Value::Tuple(parts) => parts.iter().for_each(|part| self.add_value(holder, part)),
            Value::Handle(of, whole) if *of == holder => self.add(whole),
            // What another rank gave away, it knows.
            Value::Handle(..)
            | Value::Null
            | Value::Bool(_)
            | Value::Int(_)
            | Value::Token(_)
            | Value::Comm(_)
            | Value::Window(..)
            | Value::Thread(_)
            | Value::Address(Address::Mapping(..) | Address::Comm(_))
            | Value::Stream(_)
            | Value::Event(_)
            | Value::Device => {}
            Value::Foreign(never) => match *never {},
        }
    }

    fn add_work(&mut self, work: &Work) {
        work.buffers_and_blocks().into_iter().for_each(|buffer| self.add(buffer));
    }
}

impl Machine {
    /// The memory of a rank that the rank may still come by.
    pub(crate) fn reachable_memory(
        &self,
        (rank, own): (Rank, &RankState),
        ahead: &UsedAhead,
        remembered: &RememberedPast,
    ) -> ReachableMemory {
        let needs = |condition| !self.config.declared_needless.contains(&condition);
        let mut reachable = ReachableMemory { allocates: ahead.allocates(), ..ReachableMemory::default() };
        if needs(Condition::MemoryGivenAway) {
            reachable.exported = own.exported();
        }
        // Who handed something over is through with it before the others are.
        let hands_over = self.config.in_flight != InFlight::Nothing;
        let groups = || own.threads().iter().any(|thread| thread.group().is_open());
        if hands_over || groups() {
            return ReachableMemory { unknown: true, ..reachable };
        }
        for thread in own.threads() {
            let is_shared = remembered.shared.contains(&thread.start());
            if !thread.running() && !is_shared {
                continue;
            }
            let Some(place) = thread.place() else { return ReachableMemory { unknown: true, ..reachable } };
            let kept = place.rest(self, thread.next(), remembered).kept;
            kept.iter()
                .filter_map(|slot| thread.slots().get(*slot))
                .for_each(|value| reachable.add_value(rank, value));
        }
        if needs(Condition::MemoryContained) {
            own.contained().for_each(|value| reachable.add_value(rank, value));
        }
        if needs(Condition::MemoryQueued) {
            own.queued().for_each(|queued| reachable.add_work(&queued.work));
        }
        if needs(Condition::MemoryCaptured) {
            own.captured(ahead).for_each(|work| reachable.add_work(work));
        }
        for windows in own.comms().map(|(_, comm)| comm.windows()) {
            windows.rows().iter().for_each(|window| reachable.add(window.buffer()));
            windows.leftovers().for_each(|memory| reachable.add_value(rank, memory));
        }
        reachable.pools.extend(own.pools_of_graphs());
        for (pool, segments) in own.pools() {
            let named = |segment: &Segment| {
                let id = segment.buffer.memory;
                reachable.memories.contains(&id) || reachable.exported.contains(&id)
            };
            if ahead.has(Object::named(ObjectKind::Pool, pool)) || segments.iter().any(named) {
                reachable.pools.insert(pool);
            }
            if reachable.pools.contains(&pool) {
                reachable.handed_out.extend(segments.iter().map(|segment| segment.buffer.address.0));
            }
        }
        if reachable.allocates {
            reachable.handed_out.extend(own.all_freed_addresses().map(|address| address.0));
        }
        reachable
    }

    /// A rank gives a value away: whoever gets it may come by the memory that it names. Where ranks are interchangeable, that
    /// is memory of its own.
    pub(crate) fn export_memory(&self, state: &mut State, rank: Rank, value: &Value) {
        let mut given = ReachableMemory::default();
        given.add_value(rank, value);
        let named: BTreeSet<MemoryId> = given.memories.into_iter().chain(given.addresses).collect();
        // Most values that are given away name none.
        if named.is_empty() {
            return;
        }
        let all = self.source.symmetry() == Symmetry::Interchangeable;
        for holder in (0..self.config.ranks).map(Rank).filter(|holder| all || *holder == rank) {
            if !named.is_subset(&state.rank(holder).exported()) {
                state.rank_mut(holder).export(&named);
            }
        }
    }
}
