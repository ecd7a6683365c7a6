//! Happens-before: vector clocks over host threads and streams, shared copy-on-write.
//!
//! A clock holds the counts of the actors around its owner beside a shared base, which has those of all. What actors
//! of one rank do and tell each other is most of what happens, and costs a few additions. What is learned from farther
//! away goes into the base. In a small job that is a walk through what two bases do not share (`clock/counts.rs`); in a
//! large one it is only recorded, and worked out for those who ask (`clock/deferred.rs`).
//! Not here: which operations order what ([`crate::machine`]).

mod counts;
mod deferred;

use std::hash::{Hash, Hasher};

use self::counts::Counts;
use self::deferred::{Deferred, NodeId, PlacedRow};

/// Position of an actor (a host thread or a stream of a rank) in every clock. The actors of a rank stand in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Actor(pub u32);

/// Actors whose counts a clock holds itself: those of the owner's rank, if it has no more. A row starts at a
/// multiple of this, and lies in one leaf.
pub const NEAR: usize = 8;

type Row = [u32; NEAR];

/// What an actor knows of every actor's progress.
#[derive(Debug, Clone)]
pub struct Clock {
    base: FarKnowledge,
    near: Row,
    actor: Actor,
}

/// What came before an operation. How much that is has to be worked out in a large job, so it is counted only where it is told.
#[derive(Debug, Clone, Default)]
pub(crate) struct CausalPast(Option<Clock>);

impl CausalPast {
    /// How many operations came before.
    pub(crate) fn operations(&self) -> u64 {
        self.0.as_ref().map_or(0, Clock::operations)
    }
}

/// What was learned from others.
#[derive(Debug)]
enum FarKnowledge {
    /// Of the owner's row it may be behind, and is never ahead.
    Joined {
        counts: Counts,
        /// Bases that this one includes, the one met last at the end: a stream meets that of the thread which launches
        /// on it again and again.
        met: [Option<Counts>; 2],
    },
    /// Of the owner's row it is ahead where somebody far away told of it.
    Recorded {
        node: Deferred,
        /// Nodes that this one includes: the one before it, and two that were met.
        met: [NodeId; 3],
    },
}

impl Clone for FarKnowledge {
    fn clone(&self) -> Self {
        match self {
            // The copy remembers no base that was met: few copies learn anything.
            Self::Joined { counts, met: _ } => Self::joined(counts.clone()),
            Self::Recorded { node, met } => Self::Recorded { node: node.clone(), met: *met },
        }
    }
}

impl FarKnowledge {
    fn joined(counts: Counts) -> Self {
        Self::Joined { counts, met: [const { None }; 2] }
    }

    fn recorded(node: Deferred) -> Self {
        Self::Recorded { node, met: [NodeId::NONE; 3] }
    }

    /// All counts, which may have to be worked out.
    fn counts(&self) -> &Counts {
        match self {
            Self::Joined { counts, .. } => counts,
            Self::Recorded { node, .. } => node.counts(),
        }
    }
}

/// Whether a clock that has this node and met those includes what is known at another.
fn includes((node, met): (&Deferred, &[NodeId; 3]), other: &Deferred) -> bool {
    node.id() == other.id() || met.contains(&other.id())
}

/// Remembers a node that was met.
fn remember(met: &mut [NodeId; 3], other: NodeId) {
    if !met.contains(&other) {
        (met[1], met[2]) = (met[2], other);
    }
}

impl Hash for Clock {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.hashed().hash(state);
    }
}

impl Clock {
    /// A clock that knows nothing, of an actor among `width`. Whether what it and its children learn is recorded, and
    /// not joined, changes nothing of what they know.
    #[must_use]
    pub fn new(actor: Actor, width: usize, records: bool) -> Self {
        let nothing = Counts::zeros(width);
        let base = if records {
            FarKnowledge::recorded(Deferred::known(nothing))
        } else {
            FarKnowledge::joined(nothing)
        };
        Self { base, near: [0; NEAR], actor }
    }

    /// The same knowledge, held by another actor that has done nothing yet.
    #[must_use]
    pub fn child(&self, actor: Actor) -> Self {
        let (first, mut base) = (self.first(), self.base.clone());
        let mut child = Self { actor, near: self.near, base: base.clone() };
        if child.first() == first {
            return child;
        }
        let nothing = self.near == [0; NEAR];
        match &mut base {
            FarKnowledge::Joined { counts, .. } => {
                counts.raise(first, &self.near);
                child.near = *counts.row(child.first());
            }
            FarKnowledge::Recorded { node, .. } if nothing => {
                child.near = node.row_here(child.first()).copied().unwrap_or_default();
            }
            FarKnowledge::Recorded { node, met } => {
                child.near = node.row_here(child.first()).copied().unwrap_or_default();
                met[0] = node.id();
                *node = Deferred::of(vec![node.clone()], vec![(first, self.near)]);
            }
        }
        Self { base, ..child }
    }

    /// Of all that is known, wherever it stands.
    fn hashed(&self) -> u128 {
        let (first, counts) = (self.first(), self.base.counts());
        let change = counts::hash(first, &self.row()).wrapping_sub(counts::hash(first, counts.row(first)));
        counts.hash().wrapping_add(change)
    }

    fn index(&self) -> usize {
        self.actor.0 as usize
    }

    /// The index of the first of those in `near`.
    fn first(&self) -> usize {
        self.index() / NEAR * NEAR
    }

    /// All that is known of the owner's row.
    fn row(&self) -> Row {
        let mut row = self.near;
        if let FarKnowledge::Recorded { node, .. } = &self.base {
            raise(&mut row, node.counts().row(self.first()));
        }
        row
    }

    /// One more operation of the owner.
    pub fn tick(&mut self) {
        self.near[self.index() % NEAR] += 1;
    }

    /// The owner's own count.
    #[must_use]
    pub fn epoch(&self) -> u32 {
        self.near[self.index() % NEAR]
    }

    /// Returns the actor that owns the clock.
    #[must_use]
    pub fn actor(&self) -> Actor {
        self.actor
    }

    /// How far this clock knows `actor`.
    #[must_use]
    pub fn knows(&self, actor: Actor) -> u32 {
        self.at(actor.0 as usize)
    }

    fn is_near(&self, at: usize) -> bool {
        at / NEAR == self.index() / NEAR
    }

    fn at(&self, at: usize) -> u32 {
        if self.is_near(at) { self.row()[at % NEAR] } else { self.base.counts().row(at)[at % NEAR] }
    }

    /// Whether the operation `epoch` of `actor` happened before whoever holds this clock.
    #[must_use]
    pub fn after(&self, actor: Actor, epoch: u32) -> bool {
        let at = actor.0 as usize;
        let near = self.is_near(at);
        if near && self.near[at % NEAR] >= epoch {
            return true;
        }
        match &self.base {
            FarKnowledge::Joined { counts, .. } => !near && counts.row(at)[at % NEAR] >= epoch,
            FarKnowledge::Recorded { node, .. } => node.reaches(at, epoch),
        }
    }

    /// Whether somebody asked for all that is known, in a large job, so that it was worked out.
    pub(crate) fn is_worked_out(&self) -> bool {
        matches!(&self.base, FarKnowledge::Recorded { node, .. } if node.worked_out().is_some())
    }

    /// What came before, for whoever may have to tell it.
    pub(crate) fn past(&self) -> CausalPast {
        CausalPast(Some(self.clone()))
    }

    /// Number of operations in the causal past.
    fn operations(&self) -> u64 {
        let sum = |row: &Row| row.iter().map(|&count| u64::from(count)).sum::<u64>();
        let counts = self.base.counts();
        counts.sum() - sum(counts.row(self.first())) + sum(&self.row())
    }

    /// Learns all that `other` knows.
    pub fn join(&mut self, other: &Self) {
        let (first, theirs) = (self.first(), other.first());
        match (&mut self.base, &other.base) {
            (FarKnowledge::Joined { counts, met }, FarKnowledge::Joined { counts: others, .. }) => {
                join_counts((counts, met), others);
                if first == theirs {
                    raise(&mut self.near, &other.near);
                } else {
                    counts.raise(theirs, &other.near);
                    raise(&mut self.near, counts.row(first));
                }
            }
            (
                FarKnowledge::Recorded { node, met },
                FarKnowledge::Recorded { node: others, met: others_met },
            ) => {
                let row = (theirs, &other.near);
                let row = (first != theirs && !knows_row(node, row)).then_some((theirs, other.near));
                if first == theirs {
                    raise(&mut self.near, &other.near);
                } else if let Some(row) = others.row_here(first) {
                    raise(&mut self.near, row);
                }
                record((node, met), (others, others_met), row);
            }
            (FarKnowledge::Joined { .. }, FarKnowledge::Recorded { .. })
            | (FarKnowledge::Recorded { .. }, FarKnowledge::Joined { .. }) => {
                unreachable!("the clocks of one machine are of one kind")
            }
        }
    }

    /// What all of `clocks` know together.
    ///
    /// # Panics
    /// If there is none: a rendezvous has members.
    #[must_use]
    pub fn union<'a>(clocks: impl ExactSizeIterator<Item = &'a Self>) -> Knowledge {
        let mut gathered = Gathered::of(clocks.len());
        for clock in clocks {
            gathered.add(clock);
        }
        gathered.knowledge()
    }

    /// Learns what a rendezvous knows in which this clock took part, and since which it learned nothing.
    pub fn learn(&mut self, knowledge: &Knowledge) {
        let first = self.first();
        match (&mut self.base, knowledge) {
            (FarKnowledge::Joined { counts, .. }, Knowledge(Gained::Joined(gained))) => {
                *counts = gained.clone();
                raise(&mut self.near, counts.row(first));
            }
            (FarKnowledge::Recorded { node, met }, Knowledge(Gained::Recorded(gained))) => {
                met[0] = node.id();
                *node = gained.clone();
                if let Some(row) = node.row_here(first) {
                    raise(&mut self.near, row);
                }
            }
            (FarKnowledge::Joined { .. }, Knowledge(Gained::Recorded(_)))
            | (FarKnowledge::Recorded { .. }, Knowledge(Gained::Joined(_))) => {
                unreachable!("the clocks of one machine are of one kind")
            }
        }
    }

    /// As [`Clock::learn`], of a rendezvous that also knows what this work was launched with.
    pub fn learn_launched(&mut self, knowledge: &Knowledge, issue: &Self) {
        self.learn(knowledge);
        if let (FarKnowledge::Recorded { met, .. }, FarKnowledge::Recorded { node, .. }) =
            (&mut self.base, &issue.base)
        {
            remember(met, node.id());
        }
    }

    /// Whether actors may be renumbered without changing what is known of them: what everybody knows of
    /// everybody alike looks the same under all numbers.
    #[must_use]
    pub fn alike(&self, to: &[u32]) -> bool {
        (0..).zip(to).all(|(old, new)| old == *new as usize || self.at(*new as usize) == self.at(old))
    }

    /// The same clock after actors were renumbered: `to[old] = new`.
    #[must_use]
    pub fn renumbered(&self, to: &[u32]) -> Self {
        let mut moved = vec![0; to.len().next_multiple_of(NEAR)];
        for (old, new) in to.iter().enumerate() {
            moved[*new as usize] = self.at(old);
        }
        let mut counts = Counts::zeros(to.len());
        let (rows, _) = moved.as_chunks();
        counts.raise_all((0..).step_by(NEAR).zip(rows));
        let actor = Actor(to[self.index()]);
        let near = *counts.row(actor.0 as usize);
        let base = match self.base {
            FarKnowledge::Joined { .. } => FarKnowledge::joined(counts),
            FarKnowledge::Recorded { .. } => FarKnowledge::recorded(Deferred::known(counts)),
        };
        Self { base, near, actor }
    }
}

fn join_counts((counts, met): (&mut Counts, &mut [Option<Counts>; 2]), others: &Counts) {
    if counts.is(others) {
        return;
    }
    let [earlier, last] = met;
    if last.as_ref().is_some_and(|met| met.is(others)) {
        return;
    }
    if !earlier.as_ref().is_some_and(|met| met.is(others)) {
        counts.join(others);
        *earlier = Some(others.clone());
    }
    std::mem::swap(earlier, last);
}

/// Whether a row was learned at this node already.
fn knows_row(node: &Deferred, (first, row): (usize, &Row)) -> bool {
    node.row_here(first).is_some_and(|known| known.iter().zip(row).all(|(known, count)| known >= count))
}

/// Records that what is known at another node is learned, with a row.
fn record(
    (node, met): (&mut Deferred, &mut [NodeId; 3]),
    (others, others_met): (&Deferred, &[NodeId; 3]),
    row: Option<PlacedRow>,
) {
    let rows = row.into_iter().collect();
    if includes((node, met), others) {
        if row.is_some() {
            met[0] = node.id();
            *node = Deferred::of(vec![node.clone()], rows);
        }
        return;
    }
    let own = node.id();
    if others_met.contains(&own) {
        *met = *others_met;
        if row.is_none() {
            *node = others.clone();
            return;
        }
        remember(met, own);
        *node = Deferred::of(vec![others.clone()], rows);
    } else {
        *node = Deferred::of(vec![node.clone(), others.clone()], rows);
        met[0] = own;
    }
    remember(met, others.id());
}

/// Makes each count so large at least.
fn raise(row: &mut Row, to: &Row) {
    for (count, to) in row.iter_mut().zip(to) {
        *count = (*count).max(*to);
    }
}

/// The joint knowledge of the members of a rendezvous.
#[derive(Debug, Clone)]
pub struct Knowledge(Gained);

#[derive(Debug, Clone)]
enum Gained {
    Joined(Counts),
    Recorded(Deferred),
}

/// Joint knowledge as it comes together, member by member.
#[derive(Debug)]
pub struct Gathered {
    bases: Bases,
    /// What members did and those around them, by the index of the first.
    rows: Vec<PlacedRow>,
    /// Whether each stream is taken to have met what its work was launched with: only for testing the tests.
    declared_met: bool,
}

/// The bases of those who were added.
#[derive(Debug)]
enum Bases {
    Nobody,
    Joined {
        counts: Counts,
        /// The bases that came last: after a collective its members' streams share one, and before it their threads
        /// share another. A look among few spares looking into them.
        met: [Option<Counts>; 4],
        next: usize,
    },
    Recorded(Vec<Deferred>),
}

impl Gathered {
    /// Of so many members, of which none was added yet.
    #[must_use]
    pub fn of(members: usize) -> Self {
        Self { bases: Bases::Nobody, rows: Vec::with_capacity(members), declared_met: false }
    }

    /// The same, where each stream is taken to have met what its work was launched with although it did not: only for
    /// testing the tests.
    #[must_use]
    pub fn declared_met(self) -> Self {
        Self { declared_met: true, ..self }
    }

    /// Gathers what one more member knows.
    pub fn add(&mut self, clock: &Clock) {
        match (&mut self.bases, &clock.base) {
            (Bases::Nobody, FarKnowledge::Joined { counts, .. }) => {
                let met = [Some(counts.clone()), None, None, None];
                self.bases = Bases::Joined { counts: counts.clone(), met, next: 1 };
            }
            (Bases::Joined { counts, met, next }, FarKnowledge::Joined { counts: base, .. }) => {
                if !met.iter().flatten().any(|met| met.is(base)) {
                    counts.join(base);
                    met[*next] = Some(base.clone());
                    *next = (*next + 1) % met.len();
                }
            }
            (Bases::Nobody, FarKnowledge::Recorded { node, .. }) => {
                let mut nodes = Vec::with_capacity(self.rows.capacity());
                nodes.push(node.clone());
                self.bases = Bases::Recorded(nodes);
            }
            (Bases::Recorded(nodes), FarKnowledge::Recorded { node, .. }) => {
                if !nodes.iter().rev().take(4).any(|known| known.id() == node.id()) {
                    nodes.push(node.clone());
                }
            }
            (Bases::Joined { .. }, FarKnowledge::Recorded { .. })
            | (Bases::Recorded(_), FarKnowledge::Joined { .. }) => {
                unreachable!("the clocks of one machine are of one kind")
            }
        }
        self.add_row(clock);
    }

    fn add_row(&mut self, clock: &Clock) {
        match self.rows.last_mut() {
            Some((first, row)) if *first == clock.first() => raise(row, &clock.near),
            Some(_) | None => self.rows.push((clock.first(), clock.near)),
        }
    }

    /// Gathers what a member's stream knows, and what its work was launched with.
    pub fn add_launched(&mut self, stream: &Clock, issue: &Clock) {
        self.add(stream);
        match (&stream.base, &issue.base) {
            (FarKnowledge::Recorded { node, met }, FarKnowledge::Recorded { node: launched, .. })
                if self.declared_met || includes((node, met), launched) =>
            {
                self.add_row(issue);
            }
            (FarKnowledge::Joined { .. } | FarKnowledge::Recorded { .. }, _) => self.add(issue),
        }
    }

    /// What they know together.
    ///
    /// # Panics
    /// If nobody was added: a rendezvous has members.
    #[must_use]
    pub fn knowledge(mut self) -> Knowledge {
        Knowledge(match self.bases {
            Bases::Nobody => panic!("a rendezvous has members"),
            Bases::Joined { mut counts, .. } => {
                self.rows.sort_unstable_by_key(|(first, _)| *first);
                counts.raise_all(self.rows.iter().map(|(first, row)| (*first, row)));
                Gained::Joined(counts)
            }
            Bases::Recorded(nodes) => Gained::Recorded(Deferred::of(nodes, self.rows)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A clock, and what it has to know.
    type Known = (Clock, Vec<u32>);

    struct Random(u64);

    impl Random {
        fn below(&mut self, end: usize) -> usize {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 33) as usize % end
        }
    }

    fn actor(at: usize) -> Actor {
        Actor(u32::try_from(at).expect("few actors"))
    }

    fn learn(plain: &mut [u32], other: &[u32]) {
        for (count, other) in plain.iter_mut().zip(other) {
            *count = (*count).max(*other);
        }
    }

    fn join(known: &mut Known, other: &Known) {
        known.0.join(&other.0);
        learn(&mut known.1, &other.1);
    }

    fn meet(clocks: &mut [Known], members: &[usize], others: &[Known]) {
        let (mut gathered, mut all) = (Gathered::of(members.len()), vec![0; clocks.len()]);
        let there: Vec<&Known> = members.iter().map(|&member| &clocks[member]).chain(others).collect();
        for (clock, plain) in there {
            gathered.add(clock);
            learn(&mut all, plain);
        }
        let knowledge = gathered.knowledge();
        for &member in members {
            clocks[member].0.learn(&knowledge);
            clocks[member].1.clone_from(&all);
        }
    }

    /// Two ranks change their numbers.
    fn renumber(clocks: &mut Vec<Known>, per_rank: usize, (one, other): (usize, usize)) {
        let mut to: Vec<usize> = (0..clocks.len()).collect();
        for at in 0..per_rank {
            to.swap(one * per_rank + at, other * per_rank + at);
        }
        let numbers: Vec<u32> = to.iter().map(|&to| actor(to).0).collect();
        let moved = |(clock, plain): &Known| {
            let renumbered: Vec<u32> = to.iter().map(|&to| plain[to]).collect();
            assert_eq!(clock.alike(&numbers), renumbered == *plain);
            (clock.renumbered(&numbers), renumbered)
        };
        // An exchange is its own inverse.
        *clocks = to.iter().map(|&old| moved(&clocks[old])).collect();
    }

    #[test]
    fn a_clock_knows_what_a_list_does() {
        knows_what_a_list_does(false);
    }

    #[test]
    fn a_clock_that_records_knows_what_a_list_does() {
        knows_what_a_list_does(true);
    }

    fn knows_what_a_list_does(records: bool) {
        let random = &mut Random(1);
        for (ranks, per_rank) in [(1, 2), (3, 2), (5, 4), (4, 5), (3, 8), (7, 6), (2, 16), (70, 4), (3, 32)] {
            let width = ranks * per_rank;
            let nothing = Clock::new(Actor(0), width, records);
            let mut clocks: Vec<Known> =
                (0..width).map(|at| (nothing.child(actor(at)), vec![0; width])).collect();
            // What streams and events keep of others.
            let mut kept = vec![clocks[0].clone()];
            for _ in 0..2000 {
                let at = random.below(width);
                let near = at / per_rank * per_rank + random.below(per_rank);
                let other = if random.below(2) == 0 { near } else { random.below(width) };
                let one = random.below(kept.len());
                match random.below(8) {
                    0 | 1 => {
                        clocks[at].0.tick();
                        clocks[at].1[at] += 1;
                    }
                    2 | 3 => {
                        let other = clocks[other].clone();
                        join(&mut clocks[at], &other);
                    }
                    4 => join(&mut clocks[at], &kept[one]),
                    5 => join(&mut kept[one], &clocks[at]),
                    6 => {
                        kept.truncate(4);
                        let (clock, plain) = &clocks[at];
                        kept.push((clock.child(actor(other)), plain.clone()));
                        kept.push(clocks[at].clone());
                    }
                    _ => {
                        let mut members = vec![at, near, other];
                        members.sort_unstable();
                        members.dedup();
                        meet(&mut clocks, &members, &kept[one..]);
                    }
                }
                if random.below(50) == 0 {
                    kept.truncate(1);
                    kept[0] = (nothing.clone(), vec![0; width]);
                    renumber(&mut clocks, per_rank, (random.below(ranks), random.below(ranks)));
                }
                for (clock, plain) in [&clocks[at], &clocks[other]] {
                    assert_eq!(clock.epoch(), plain[clock.index()]);
                }
                for (clock, plain) in [&clocks[at], &clocks[other], &kept[one.min(kept.len() - 1)]] {
                    let who = random.below(width);
                    assert!(clock.after(actor(who), plain[who]), "{ranks} {per_rank}");
                    // What is recorded is worked out for these questions, and then recorded no more.
                    if records && random.below(8) > 0 {
                        continue;
                    }
                    assert!(!clock.after(actor(who), plain[who] + 1), "{ranks} {per_rank}");
                    assert!((0..width).all(|at| clock.knows(actor(at)) == plain[at]), "{ranks} {per_rank}");
                    assert_eq!(clock.operations(), plain.iter().map(|&count| u64::from(count)).sum::<u64>());
                    assert_eq!(clock.hashed(), counts::hash(0, plain));
                }
            }
        }
    }
}
