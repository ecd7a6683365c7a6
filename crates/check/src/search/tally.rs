//! What runs cost, where histories merge: counted on the way, not in states.
//!
//! How often a rank has done something decides nothing that it does later, so a state does not say it: each edge does, of what
//! it adds. What a run costs is the sum along its path, and the most that any run costs is read off the graph.
//! Not here: what is counted ([`rankcheck_model::machine::Tally`]).

use std::ops::Range;
use std::sync::Arc;

use rankcheck_model::machine::Tally;
use rankcheck_model::{Rank, State};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use super::graph::StateId;

/// What ranks do on an edge, by the numbers that they have where it begins.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub(super) struct EdgeTally {
    /// Numbers of tallies that are more than 0, in their order, each with the rank and how much it is.
    counts: Vec<(u32, u32, u64)>,
    /// The numbers that ranks have where the edge ends; none if they keep theirs.
    renumbered: Option<Vec<u32>>,
}

impl EdgeTally {
    /// Takes out of a state what its ranks have done since it was this one.
    pub(super) fn take(state: &mut State, before: Option<&State>) -> Self {
        let mut counts = Vec::new();
        for (rank, tally) in (0..).zip(state.take_tallies(before)) {
            let numbers = (0..).zip(Tally::NUMBERS.map(|number| tally.get(number)));
            counts.extend(numbers.filter(|(_, of)| *of > 0).map(|(number, of)| (number, rank, of)));
        }
        counts.sort_unstable();
        Self { counts, renumbered: None }
    }

    /// Ranks that had these original numbers have those of the state now.
    pub(super) fn renumber(&mut self, before: &[Rank], state: &State) {
        if before != state.originals() {
            self.renumbered = Some(before.iter().map(|original| state.now(*original).0).collect());
        }
    }

    /// One of the numbers, of each rank of which it is more than 0.
    fn of(&self, number: usize) -> &[(u32, u32, u64)] {
        let until = |number: usize| self.counts.partition_point(|(of, ..)| (*of as usize) < number);
        &self.counts[until(number)..until(number + 1)]
    }

    fn is_empty(&self) -> bool {
        self.counts.is_empty() && self.renumbered.is_none()
    }
}

/// What edges count, each kind once. Most count what another one does.
#[derive(Debug, Default)]
pub(super) struct TallyTable {
    numbers: FxHashMap<Arc<EdgeTally>, u32>,
    pub(super) all: Vec<Arc<EdgeTally>>,
}

impl TallyTable {
    /// A table that was kept.
    pub(super) fn kept(all: Vec<EdgeTally>) -> Self {
        let mut table = Self::default();
        all.iter().for_each(|tally| {
            table.number(tally);
        });
        table
    }

    /// The number of what an edge counts, from 1; 0 if it is nothing.
    pub(super) fn number(&mut self, tally: &EdgeTally) -> u32 {
        if tally.is_empty() {
            return 0;
        }
        if let Some(known) = self.numbers.get(tally) {
            return *known;
        }
        let tally = Arc::new(tally.clone());
        self.all.push(Arc::clone(&tally));
        let number = u32::try_from(self.all.len()).expect("fewer than 2^32 kinds of edges");
        self.numbers.insert(tally, number);
        number
    }
}

/// The edges of a graph, and what they count.
pub(super) struct CountedEdges<'a> {
    /// Where the edges of each state begin.
    pub(super) first: &'a [u32],
    /// The states that they lead to.
    pub(super) to: &'a [StateId],
    /// Of each the number of what it counts, from 1; empty if none counts anything.
    pub(super) counted: &'a [u32],
    pub(super) tallies: &'a [Arc<EdgeTally>],
}

impl CountedEdges<'_> {
    fn of(&self, state: StateId) -> Range<usize> {
        self.first[state.at()] as usize..self.first[state.at() + 1] as usize
    }

    fn tally(&self, edge: usize) -> Option<&EdgeTally> {
        let number = self.counted.get(edge)?.checked_sub(1)?;
        Some(&self.tallies[number as usize])
    }

    /// The most that each of so many ranks comes to on any way from a state to an end, each number on its own, after it has
    /// come to this.
    pub(super) fn most(
        &self,
        before: &EdgeTally,
        (root, ranks): (StateId, u32),
        is_end: impl Fn(StateId) -> bool,
    ) -> Vec<Tally> {
        let order = self.ends_first(root);
        let mut ends = vec![false; self.first.len() - 1];
        for state in &order {
            ends[state.at()] = is_end(*state) || self.of(*state).any(|edge| ends[self.to[edge].at()]);
        }
        if !ends[root.at()] {
            return Vec::new();
        }
        let mut most = vec![Tally::default(); ranks as usize];
        for (number, rank, of) in &before.counts {
            most[*rank as usize].set(*number as usize, *of);
        }
        let before_root = most.clone();
        let at = |state: StateId, rank: u32| state.at() * ranks as usize + rank as usize;
        let mut behind: Vec<u64> = Vec::new();
        for number in Tally::TOLD {
            if self.tallies.iter().all(|tally| tally.of(number).is_empty()) {
                continue;
            }
            behind.clear();
            behind.resize(ends.len() * ranks as usize, 0);
            for state in &order {
                for edge in self.of(*state).filter(|edge| ends[self.to[*edge].at()]) {
                    let tally = self.tally(edge);
                    let renumbered = tally.and_then(|tally| tally.renumbered.as_deref());
                    let of = |number| tally.map_or(&[][..], |tally| tally.of(number)).iter().peekable();
                    let mut needed = Tally::needed_for(number).map(of);
                    for rank in 0..ranks {
                        let there = renumbered.map_or(rank, |numbers| numbers[rank as usize]);
                        let own = needed
                            .each_mut()
                            .map(|of| of.next_if(|(_, by, _)| *by == rank).map_or(0, |(.., of)| *of));
                        let both = Tally::together(number, own, behind[at(self.to[edge], there)]);
                        let most = &mut behind[at(*state, rank)];
                        *most = both.max(*most);
                    }
                }
            }
            for (rank, most) in (0..ranks).zip(&mut most) {
                let first = before_root[rank as usize];
                let own = Tally::needed_for(number).map(|of| first.get(of));
                let both = Tally::together(number, own, behind[at(root, rank)]);
                most.set(number, both);
            }
        }
        most
    }

    /// All states that a walk comes to from this one, each behind those that its edges lead to.
    fn ends_first(&self, root: StateId) -> Vec<StateId> {
        let mut order = Vec::new();
        let mut known = vec![false; self.first.len() - 1];
        known[root.at()] = true;
        let mut open = vec![(root, self.of(root))];
        while let Some((state, edges)) = open.last_mut() {
            let Some(edge) = edges.next() else {
                order.push(*state);
                open.pop();
                continue;
            };
            let to = self.to[edge];
            if !std::mem::replace(&mut known[to.at()], true) {
                open.push((to, self.of(to)));
            }
        }
        order
    }
}
