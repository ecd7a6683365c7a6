//! Interchangeable ranks: states that differ only in the ranks' numbers are explored once.
//!
//! Valid where no function reads its rank, no operand names one, and every communicator spans the world in
//! rank order. Ranks are sorted by what they look like on their own; a tie leaves their order, which loses
//! a reduction and never a behaviour. Not here: when a state is canonicalized.

use std::hash::Hash;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::clock::{Actor, Clock};
use crate::judge::finding::{About, Finding, OpRef};
use crate::machine::{Machine, locked};
use crate::rank::Rank;
use crate::state::{Hashes, Ran, RankState, State, Status, hash_of};
use crate::term::{Content, Term};

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
        let per_rank = self.config.actors_per_rank;
        let actors: Vec<u32> = (0..self.config.ranks * per_rank)
            .map(|actor| to[(actor / per_rank) as usize].0 * per_rank + actor % per_rank)
            .collect();
        let mut memo: FxHashMap<Term, Term> = FxHashMap::default();
        let (ranks, hashes) = (state.ranks.clone(), state.hashes.clone());
        for (old, (new, (mut moved, hashes))) in to.iter().zip(ranks.into_iter().zip(hashes)).enumerate() {
            if new.at() == old && self.knows_no_others(&moved, to, &actors, &mut memo) {
                continue;
            }
            self.renumber_rank(Arc::make_mut(&mut moved), to, &actors, &mut memo);
            state.ranks[new.at()] = moved;
            // What a rank looks like on its own does not depend on its number.
            state.hashes[new.at()] = Hashes { whole: None, ..hashes };
        }
        let clock = |clock: &mut Clock| *clock = clock.renumbered(&actors);
        let shared = state.shared_mut();
        for write in shared.keys.values_mut().flat_map(|cell| &mut cell.writes) {
            clock(&mut write.by);
            write.op = op_ref(&write.op, to);
        }
        for write in shared.flags.values_mut().flat_map(|cell| &mut cell.writes) {
            clock(&mut write.by);
            write.op = op_ref(&write.op, to);
        }
        for rows in shared.touches.values_mut() {
            for row in rows {
                row.actor = Actor(actors[row.actor.0 as usize]);
            }
        }
        for executed in &mut shared.executed {
            let members = executed.members.iter().map(|ran| Ran {
                rank: to[ran.rank.at()],
                issue: ran.issue,
                called: ran.called.renumbered(&actors),
                began: ran.began.renumbered(&actors),
                op: op_ref(&ran.op, to),
            });
            executed.members = members.collect();
        }
        let findings = state.findings.iter().map(|((rule, about), finding)| {
            let ops = finding.ops.iter().map(|op| op_ref(op, to)).collect();
            let about = renumber_about(*about, to);
            ((*rule, about), Arc::new(Finding { about, ops, ..Finding::clone(finding) }))
        });
        state.findings = Arc::new(findings.collect());
        state.undefined = state.undefined.map(|op| op_ref(&op, to));
        let mut original = vec![Rank(0); to.len()];
        for (rank, new) in to.iter().enumerate() {
            original[new.at()] = state.original[rank];
        }
        state.original = original.into();
    }

    /// Whether a rank that keeps its number looks the same after others changed theirs: what it knows of them,
    /// and what its memory holds of them, is alike for all.
    fn knows_no_others(
        &self,
        rank: &RankState,
        to: &[Rank],
        actors: &[u32],
        memo: &mut FxHashMap<Term, Term>,
    ) -> bool {
        let alike = |clock: &Clock| clock.alike(actors);
        let threads = rank.threads.iter().all(|t| alike(&t.clock));
        let streams = rank
            .streams
            .iter()
            .all(|(_, stream)| alike(&stream.clock) && stream.queue.iter().all(|op| alike(&op.issue)));
        let events = rank.events.iter().all(|(_, event)| event.complete.values().all(alike));
        let mutexes = rank.mutexes.iter().all(|(_, mutex)| alike(&mutex.released));
        let pools = rank.pools.iter().all(|(_, pool)| alike(&pool.released));
        if !(threads && streams && events && mutexes && pools) {
            return false;
        }
        let mut terms = locked(&self.terms);
        rank.memory.values().all(|memory| {
            memory.accesses.iter().all(|access| actors[access.actor.0 as usize] == access.actor.0)
                && memory.pieces.iter().all(|(.., content)| match content {
                    Content::Whole(term) => terms.renumbered(*term, to, memo) == *term,
                    Content::Shares(_) => false,
                })
        })
    }

    fn renumber_rank(
        &self,
        rank: &mut RankState,
        to: &[Rank],
        actors: &[u32],
        memo: &mut FxHashMap<Term, Term>,
    ) {
        let actor = |actor: &mut Actor| *actor = Actor(actors[actor.0 as usize]);
        let clock = |clock: &mut Clock| *clock = clock.renumbered(actors);
        for thread in &mut rank.threads {
            clock(&mut thread.clock);
            for call in &mut thread.group.calls {
                match call {
                    crate::state::GroupCall::Register { op, .. } => *op = op_ref(op, to),
                    // A transfer names a rank.
                    crate::state::GroupCall::Transfer { .. } => {}
                    crate::state::GroupCall::Launch { launch, .. } => {
                        let launch = Arc::make_mut(launch);
                        launch.op = op_ref(&launch.op, to);
                    }
                }
            }
        }
        for declared in &mut rank.overlaps {
            declared.op = op_ref(&declared.op, to);
        }
        for (_, stream) in &mut rank.streams {
            clock(&mut stream.clock);
            for op in &mut stream.queue {
                clock(&mut op.issue);
                op.op = op_ref(&op.op, to);
                op.replay = op.replay.map(|replay| op_ref(&replay, to));
                if let crate::state::Work::Collective(launch) = &mut op.work {
                    let launch = Arc::make_mut(launch);
                    launch.op = op_ref(&launch.op, to);
                }
            }
        }
        for (_, graph) in &mut rank.graphs {
            graph.begin = op_ref(&graph.begin, to);
            for node in Arc::make_mut(&mut graph.nodes) {
                node.op = op_ref(&node.op, to);
                if let crate::state::Work::Collective(launch) = &mut node.work {
                    let launch = Arc::make_mut(launch);
                    launch.op = op_ref(&launch.op, to);
                }
            }
        }
        for (_, event) in &mut rank.events {
            event.complete.values_mut().for_each(clock);
        }
        for (_, mutex) in &mut rank.mutexes {
            clock(&mut mutex.released);
        }
        for (_, pool) in &mut rank.pools {
            clock(&mut pool.released);
        }
        for (_, view) in &mut rank.views {
            for leftover in &mut view.leftover {
                leftover.op = op_ref(&leftover.op, to);
            }
            for window in &mut view.windows {
                window.op = op_ref(&window.op, to);
                window.uses.iter_mut().for_each(|(a, _)| actor(a));
            }
        }
        let mut terms = locked(&self.terms);
        for memory in rank.memory.values_mut() {
            let memory = Arc::make_mut(memory);
            if let Some(released) = &mut memory.released {
                actor(&mut released.actor);
                released.op = op_ref(&released.op, to);
            }
            for access in &mut memory.accesses {
                actor(&mut access.actor);
                access.op = op_ref(&access.op, to);
            }
            for (.., content) in &mut memory.pieces {
                *content = match content {
                    Content::Whole(term) => Content::Whole(terms.renumbered(*term, to, memo)),
                    Content::Shares(shares) => {
                        let mut moved: Vec<Term> = shares.to_vec();
                        for (old, term) in shares.iter().enumerate() {
                            moved[to[old].at()] = terms.renumbered(*term, to, memo);
                        }
                        Content::Shares(moved.into())
                    }
                };
            }
        }
        for rows in rank.touches.values_mut() {
            rows.iter_mut().for_each(|row| actor(&mut row.actor));
        }
    }
}

fn op_ref(op: &OpRef, to: &[Rank]) -> OpRef {
    OpRef { rank: to[op.rank.at()], ..*op }
}

fn renumber_about(about: About, to: &[Rank]) -> About {
    match about {
        About::Memory(rank, memory) => About::Memory(to[rank.at()], memory),
        About::Of(rank, token) => About::Of(to[rank.at()], token),
        About::Rank(rank) => About::Rank(to[rank.at()]),
        About::Pair(comm, from, receiver) => About::Pair(comm, to[from.at()], to[receiver.at()]),
        About::Comm(_) | About::Window(..) | About::Named(_) | About::Hosts => about,
    }
}
