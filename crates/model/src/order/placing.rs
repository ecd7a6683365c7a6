//! Orders of addresses that differ in nothing but the names of segments: one of them is explored.
//!
//! Where the free segments of a pool lie is for the adversary to decide, and of n there are n! orders. Two idle segments
//! that nobody can tell apart may change places: whatever the program does with one order, it does with the other, and
//! only the numbers of the segments in what is found differ. Whoever looks at these numbers has the search start again
//! with all orders.
//! Not here: how an address is placed ([`crate::host::order`]).

use crate::cx::Here;
use crate::host::value::{Address, Buffer, MemoryId, Owner, Value};
use crate::judge::finding::About;
use crate::machine::Machine;
use crate::order::condition::Condition;
use crate::order::poll::{Nondet, Placing};
use crate::position::ProgramPlace;
use crate::rank::Rank;
use crate::state::State;

impl Here<'_> {
    /// Whether a position in an order, beside the one before it, leads nowhere else: the value and the one that would then
    /// lie below it may change places.
    pub(crate) fn is_like_the_position_before(self, of: &Nondet, position: u32) -> bool {
        let Nondet::AddressOrder(Placing { value, among }) = of else { return false };
        let Some(below) = position.checked_sub(1).map(|below| &among[below as usize]) else { return false };
        self.may_change_places(value, below)
    }

    fn may_change_places(self, one: &Value, other: &Value) -> bool {
        let memory = |value: &Value| {
            if let Value::Address(Address::Memory(address, _)) = value { Some(address.0) } else { None }
        };
        let (Some(one), Some(other)) = (memory(one), memory(other)) else { return false };
        let Owner::Pool(pool) = one.owner else { return false };
        self.m.forgets_numbers(pool)
            && self.are_equal_segments(one, other)
            && [one, other].into_iter().all(|memory| self.is_only_in_its_pool(memory))
    }

    /// Whether both are idle segments of one pool, equally long and kept for the same stream, that hold the same.
    fn are_equal_segments(self, one: MemoryId, other: MemoryId) -> bool {
        let r = self.me();
        let (Some(a), Some(b)) = (r.segment(one), r.segment(other)) else { return false };
        let (Some(x), Some(y)) = (r.memory(one), r.memory(other)) else { return false };
        one.owner == other.owner
            && a.is_idle()
            && (a.small, &a.blocks) == (b.small, &b.blocks)
            // An address that was another memory's before may be compared with what is left of that.
            && [(one, &a.buffer), (other, &b.buffer)].into_iter().all(|(id, buffer)| buffer.address.0 == id)
            && x.kind() == y.kind()
            && x.holds_what(y, self.m)
    }

    /// Whether nobody but its pool has anything to do with a segment, now or later.
    fn is_only_in_its_pool(self, memory: MemoryId) -> bool {
        self.is_used_by_nobody(memory) && (self.declares_unnamed() || !self.is_named(memory))
    }

    fn declares_unnamed(self) -> bool {
        self.m.config.declared_needless.contains(&Condition::SegmentsUnnamed)
    }

    /// Whether no access to it can be asked about, no window lies over it, and nothing queued or recorded works on it.
    fn is_used_by_nobody(self, memory: MemoryId) -> bool {
        let Here { m, state, rank, .. } = self;
        let r = self.me();
        let of_it = |buffer: &Buffer| buffer.memory == memory;
        let windows = r.comms().all(|(_, comm)| {
            let windows = comm.windows();
            !windows.rows().iter().any(|window| of_it(window.buffer())) && !windows.has_leftovers()
        });
        let queued = r.streams().iter().all(|(_, stream)| {
            !stream.queue().iter().any(|queued| queued.work.buffers_and_blocks().into_iter().any(of_it))
        });
        windows
            && queued
            && !r.has_graphs()
            && r.threads().iter().all(|thread| thread.group().calls().is_empty())
            && m.everybody_knows_accesses(state, rank, memory)
    }

    /// Whether a value that may still be used, or a finding, names it.
    fn is_named(self, memory: MemoryId) -> bool {
        let Here { m, state, rank, .. } = self;
        let names = |holder: Rank, value: &Value| value.names(holder, (rank, memory));
        let remembered = m.config.remembered.as_deref().expect("histories merge");
        let in_slots = state.ranks().zip((0..).map(Rank)).any(|(r, holder)| {
            r.threads().iter().any(|thread| {
                (0..).zip(thread.slots().iter()).any(|(slot, value)| {
                    let is_kept =
                        |place: &ProgramPlace| place.rest(m, thread.next(), remembered).kept.contains(&slot);
                    names(holder, value) && (holder != rank || thread.place().is_none_or(is_kept))
                })
            }) || r.contained().any(|value| names(holder, value))
                || r.mapped_of(rank).any(|mapped| mapped == memory)
        });
        let found = |about: &About| matches!(about, About::Memory(of, id) if (*of, *id) == (rank, memory));
        in_slots
            || state.stored().any(|value| names(rank, value))
            || state.findings().keys().any(|key| found(&key.about))
    }
}

impl Value {
    /// Whether memory of a rank is in a value that somebody holds.
    fn names(&self, holder: Rank, (rank, memory): (Rank, MemoryId)) -> bool {
        let of_it = |buffer: &Buffer| buffer.memory == memory || buffer.address.0 == memory;
        match self {
            Self::Buffer(buffer) => buffer.home(holder) == rank && of_it(buffer),
            Self::Handle(of, exported) => *of == rank && of_it(exported),
            Self::Trimmed(segments) => holder == rank && segments.iter().any(|segment| of_it(segment)),
            // Nobody says whose an address is that came through the store.
            Self::Address(Address::Memory(address, _)) => address.0 == memory,
            Self::Tuple(parts) => parts.iter().any(|part| part.names(holder, (rank, memory))),
            Self::Null
            | Self::Bool(_)
            | Self::Int(_)
            | Self::Token(_)
            | Self::Comm(_)
            | Self::Window(..)
            | Self::Thread(_)
            | Self::Address(Address::Mapping(..) | Address::Comm(_))
            | Self::Stream(_)
            | Self::Event(_)
            | Self::Device
            | Self::Foreign(_) => false,
        }
    }
}

impl Machine {
    /// Whether everybody who may still do something knows every access to some memory.
    fn everybody_knows_accesses(&self, state: &State, rank: Rank, memory: MemoryId) -> bool {
        let accesses = state.rank(rank).memory(memory).map_or(&[][..], |memory| memory.accesses());
        if accesses.is_empty() {
            return true;
        }
        let known = state.known_to_all(self);
        accesses.iter().all(|access| known.includes(access.actor, access.epoch))
    }
}
