//! Interchangeable ranks: states that differ only in the ranks' numbers are explored once.
//!
//! Valid where no function reads its rank, no operand names one, and every communicator spans the world in
//! rank order. Ranks are sorted by what they look like on their own; a tie leaves their order, which loses
//! a reduction and never a behaviour. Not here: when a state is canonicalized.

use std::hash::Hash;

use crate::machine::Machine;
use crate::rank::Rank;
use crate::state::{RankState, State, Status};
use crate::walk::{Renumbering, hash_of};

/// What a rank looks like on its own, without knowledge of others.
fn looks(rank: &RankState) -> u64 {
    struct Looks<'a>(&'a RankState);
    impl Hash for Looks<'_> {
        fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
            for t in &self.0.threads {
                (t.entry, &t.answers, t.next, &t.picks).hash(state);
                matches!(t.status, Status::Ready).hash(state);
                t.slots.hash().hash(state);
            }
            self.0.address_order.hash(state);
            self.0.hash_order.hash(state);
            self.0.free_addresses.hash(state);
            self.0.errors.hash(state);
            for (name, pool) in &self.0.pools {
                (name, &pool.segments, &pool.deferred).hash(state);
            }
        }
    }
    hash_of(&Looks(rank))
}

impl Machine {
    /// Renumbers the ranks of a state canonically.
    pub fn canonicalize(&self, state: &mut State) {
        let mut order: Vec<u32> = (0..self.config.ranks).collect();
        // Whoever has come furthest first: the rank that is being played through then keeps its place, and
        // renumbering, which touches every rank, is rare.
        let progress = |rank: &RankState| rank.threads.iter().map(|t| t.index).sum::<u32>();
        let keys: Vec<(std::cmp::Reverse<u32>, u64)> = (state.ranks.iter().zip(&mut state.hashes))
            .map(|(rank, hashes)| {
                let looks = *hashes.looks.get_or_insert_with(|| looks(rank));
                (std::cmp::Reverse(progress(rank)), looks)
            })
            .collect();
        order.sort_by_key(|rank| keys[*rank as usize]);
        if order.is_sorted() {
            return;
        }
        // order[new] = old
        let mut to = vec![Rank(0); order.len()];
        for (new, old) in order.iter().enumerate() {
            to[*old as usize] = Rank(u32::try_from(new).expect("few ranks"));
        }
        self.renumber(state, &to);
    }

    /// Renumbers the ranks of a state: `to[old] = new`. Valid only where ranks are interchangeable.
    pub fn renumber(&self, state: &mut State, to: &[Rank]) {
        state.renumber(&mut Renumbering::new(to, self.config.actors_per_rank, &self.terms));
    }
}
