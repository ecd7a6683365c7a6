//! Orders of addresses that differ in nothing but the names of segments: one of them is explored.
//!
//! Where the free segments of a pool lie is for the adversary to decide, and of n there are n! orders. Two idle segments
//! that nobody can tell apart may change places: whatever the program does with one order, it does with the other, and
//! only the numbers of the segments in what is found differ. Whoever looks at these numbers has the search start again
//! with all orders.
//! Not here: how an address is placed ([`crate::host::order`]).

use crate::cx::Here;
use crate::host::value::{Address, MemoryId, Owner, Value};
use crate::judge::finding::About;
use crate::machine::Machine;
use crate::order::condition::Condition;
use crate::order::poll::{Nondet, Placing};
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
            && self.are_only_in_their_pool(&[one, other])
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

    /// Whether nobody but their pool has anything to do with segments, now or later: nobody comes by them, no access to them can be
    /// asked about, and no finding names them.
    fn are_only_in_their_pool(self, segments: &[MemoryId]) -> bool {
        let Here { m, state, rank, .. } = self;
        if !segments.iter().all(|memory| m.everybody_knows_accesses(state, rank, *memory)) {
            return false;
        }
        if m.config.declared_needless.contains(&Condition::SegmentsUnnamed) {
            return true;
        }
        let remembered = m.config.remembered.as_deref().expect("histories merge");
        let (own, ahead) = (self.me(), m.shared_ahead([self.me()]));
        let reachable = m.reachable_memory((rank, own), &ahead, remembered);
        let is_found = |memory: MemoryId| {
            let of_it = |about| about == About::Memory(rank, memory);
            state.findings().keys().any(|key| of_it(key.about))
        };
        segments.iter().all(|memory| !reachable.names(*memory) && !is_found(*memory))
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
