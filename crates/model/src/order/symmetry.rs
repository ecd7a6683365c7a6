//! Interchangeable ranks: states that differ only in the ranks' numbers are explored once.
//!
//! Valid where no function reads its rank, no operand names one, and every communicator spans the world in
//! rank order. Ranks are sorted by what they look like on their own; a tie leaves their order, which loses
//! a reduction and never a behaviour. Not here: when a state is canonicalized.

use crate::machine::Machine;
use crate::rank::Rank;
use crate::state::{RankState, State};
use crate::walk::Renumbering;

impl Machine {
    /// Renumbers the ranks of a state canonically. Where histories merge and the numbers stay, the state's fingerprint is
    /// known then.
    pub fn canonicalize(&self, state: &mut State) -> Option<u128> {
        if self.config.remembered.is_some() {
            // How far a rank has come is history.
            let in_order = state.merged_fingerprint_in_order(self);
            return in_order.map_err(|order| self.reorder(state, &order)).ok();
        }
        let mut order: Vec<u32> = (0..self.config.ranks).collect();
        // Whoever has come furthest first: the rank that is being played through then keeps its place, and
        // renumbering, which touches every rank, is rare.
        let progress = |rank: &RankState| rank.threads().iter().map(|t| t.index()).sum::<u32>();
        let ranks = (0..self.config.ranks).map(Rank);
        let keys: Vec<(std::cmp::Reverse<u32>, u64)> = ranks
            .map(|rank| (std::cmp::Reverse(progress(state.rank(rank))), state.local_hash(rank)))
            .collect();
        order.sort_by_key(|rank| keys[*rank as usize]);
        if !order.is_sorted() {
            self.reorder(state, &order);
        }
        None
    }

    /// Gives the ranks new numbers, by their old ones in the new order.
    fn reorder(&self, state: &mut State, order: &[u32]) {
        // order[new] = old
        let mut to = vec![Rank(0); order.len()];
        for (new, old) in order.iter().enumerate() {
            to[*old as usize] = Rank(u32::try_from(new).expect("few ranks"));
        }
        self.renumber(state, &to);
    }

    /// Renumbers the ranks of a state: `to[old] = new`. Valid only where ranks are interchangeable.
    pub fn renumber(&self, state: &mut State, to: &[Rank]) {
        state.renumber(&mut Renumbering::new(to, &self.config, &self.terms));
    }
}
