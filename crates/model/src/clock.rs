//! Happens-before: vector clocks over host threads and streams, shared copy-on-write.
//!
//! A clock holds the counts of the actors around its owner beside a shared base, which has those of all. What actors
//! of one rank do and tell each other is most of what happens, and costs a few additions; only what is learned from
//! farther away costs a walk through what two bases do not share (`clock/counts.rs`), and after a collective all
//! members share one base.
//! Not here: which operations order what ([`crate::machine`]).

mod counts;

use std::hash::{Hash, Hasher};

use self::counts::Counts;

/// Position of an actor (a host thread or a stream of a rank) in every clock. The actors of a rank stand in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Actor(pub u32);

/// Actors whose counts a clock holds itself: those of the owner's rank, if it has no more. A row starts at a
/// multiple of this, and lies in one leaf.
pub const NEAR: usize = 8;

type Row = [u32; NEAR];

/// What an actor knows of every actor's progress.
#[derive(Debug)]
pub struct Clock {
    /// What was learned from others. Of those in `near` it may be behind, and is never ahead.
    base: Counts,
    near: Row,
    actor: Actor,
    /// Bases that this one includes, the one met last at the end: a stream meets that of the thread which launches
    /// on it again and again.
    met: [Option<Counts>; 2],
}

impl Clone for Clock {
    /// The copy knows as much, and remembers no base that was met: few copies learn anything.
    fn clone(&self) -> Self {
        Self::of(self.base.clone(), self.near, self.actor)
    }
}

impl Hash for Clock {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.hashed().hash(state);
    }
}

impl Clock {
    /// A clock that knows nothing, of an actor among `width`.
    #[must_use]
    pub fn new(actor: Actor, width: usize) -> Self {
        Self::of(Counts::zeros(width), [0; NEAR], actor)
    }

    fn of(base: Counts, near: Row, actor: Actor) -> Self {
        Self { base, near, actor, met: [const { None }; 2] }
    }

    /// The same knowledge, held by another actor that has done nothing yet.
    #[must_use]
    pub fn child(&self, actor: Actor) -> Self {
        let mut child = Self::of(self.base.clone(), self.near, actor);
        if child.first() != self.first() {
            child.base.raise(self.first(), &self.near);
            child.near = *child.base.row(child.first());
        }
        child
    }

    /// Of all that is known, wherever it stands.
    fn hashed(&self) -> u64 {
        let first = self.first();
        let change = counts::hash(first, &self.near).wrapping_sub(counts::hash(first, self.base.row(first)));
        self.base.hash().wrapping_add(change)
    }

    fn index(&self) -> usize {
        self.actor.0 as usize
    }

    /// The index of the first of those in `near`.
    fn first(&self) -> usize {
        self.index() / NEAR * NEAR
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

    fn at(&self, at: usize) -> u32 {
        if at / NEAR == self.index() / NEAR { self.near[at % NEAR] } else { self.base.row(at)[at % NEAR] }
    }

    /// Whether the operation `epoch` of `actor` happened before whoever holds this clock.
    #[must_use]
    pub fn after(&self, actor: Actor, epoch: u32) -> bool {
        self.knows(actor) >= epoch
    }

    /// Number of operations in the causal past.
    #[must_use]
    pub fn past(&self) -> u64 {
        let sum = |row: &Row| row.iter().map(|&count| u64::from(count)).sum::<u64>();
        self.base.sum() - sum(self.base.row(self.first())) + sum(&self.near)
    }

    /// Learns all that `other` knows.
    pub fn join(&mut self, other: &Self) {
        self.join_base(&other.base);
        if self.first() == other.first() {
            raise(&mut self.near, &other.near);
        } else {
            self.base.raise(other.first(), &other.near);
            self.catch_up();
        }
    }

    /// Learns of those in `near` what the base says.
    fn catch_up(&mut self) {
        let first = self.first();
        raise(&mut self.near, self.base.row(first));
    }

    fn join_base(&mut self, base: &Counts) {
        if self.base.is(base) {
            return;
        }
        let [earlier, last] = &mut self.met;
        if last.as_ref().is_some_and(|met| met.is(base)) {
            return;
        }
        if !earlier.as_ref().is_some_and(|met| met.is(base)) {
            self.base.join(base);
            *earlier = Some(base.clone());
        }
        std::mem::swap(earlier, last);
    }

    /// What all of `clocks` know together.
    ///
    /// # Panics
    /// If there is none: a rendezvous has members.
    #[must_use]
    pub fn union<'a>(clocks: impl IntoIterator<Item = &'a Self>) -> Knowledge {
        let mut gathered = Gathered::default();
        for clock in clocks {
            gathered.add(clock);
        }
        gathered.knowledge()
    }

    /// Learns what a rendezvous knows in which this clock took part, and since which it learned nothing.
    pub fn learn(&mut self, knowledge: &Knowledge) {
        self.base = knowledge.0.clone();
        self.catch_up();
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
        let mut base = Counts::zeros(to.len());
        let (rows, _) = moved.as_chunks();
        base.raise_all((0..).step_by(NEAR).zip(rows));
        let actor = Actor(to[self.index()]);
        let near = *base.row(actor.0 as usize);
        Self::of(base, near, actor)
    }
}

/// Makes each count so large at least.
fn raise(row: &mut Row, to: &Row) {
    for (count, to) in row.iter_mut().zip(to) {
        *count = (*count).max(*to);
    }
}

/// The joint knowledge of the members of a rendezvous.
#[derive(Debug, Clone)]
pub struct Knowledge(Counts);

/// Joint knowledge as it comes together, member by member.
#[derive(Debug, Default)]
pub struct Gathered {
    counts: Option<Counts>,
    /// The bases that came last: after a collective its members' streams share one, and before it their threads
    /// share another. A look among few spares looking into them.
    met: [Option<Counts>; 4],
    next: usize,
    /// What members did and those around them, by the index of the first.
    rows: Vec<(usize, Row)>,
}

impl Gathered {
    /// Gathers what one more member knows.
    pub fn add(&mut self, clock: &Clock) {
        let counts = self.counts.get_or_insert_with(|| clock.base.clone());
        if !self.met.iter().flatten().any(|base| base.is(&clock.base)) {
            counts.join(&clock.base);
            self.met[self.next] = Some(clock.base.clone());
            self.next = (self.next + 1) % self.met.len();
        }
        match self.rows.last_mut() {
            Some((first, row)) if *first == clock.first() => raise(row, &clock.near),
            Some(_) | None => self.rows.push((clock.first(), clock.near)),
        }
    }

    /// What they know together.
    ///
    /// # Panics
    /// If nobody was added: a rendezvous has members.
    #[must_use]
    pub fn knowledge(mut self) -> Knowledge {
        let mut counts = self.counts.expect("a rendezvous has members");
        self.rows.sort_unstable_by_key(|(first, _)| *first);
        counts.raise_all(self.rows.iter().map(|(first, row)| (*first, row)));
        Knowledge(counts)
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
        let (mut gathered, mut all) = (Gathered::default(), vec![0; clocks.len()]);
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
        let random = &mut Random(1);
        for (ranks, per_rank) in [(1, 2), (3, 2), (5, 4), (4, 5), (3, 8), (7, 6), (2, 16), (70, 4), (3, 32)] {
            let width = ranks * per_rank;
            let nothing = Clock::new(Actor(0), width);
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
                for (clock, plain) in [&clocks[at], &clocks[other], &kept[one.min(kept.len() - 1)]] {
                    assert!((0..width).all(|at| clock.knows(actor(at)) == plain[at]), "{ranks} {per_rank}");
                    assert_eq!(clock.past(), plain.iter().map(|&count| u64::from(count)).sum::<u64>());
                    assert_eq!(clock.epoch(), plain[clock.index()]);
                    assert_eq!(clock.hashed(), counts::hash(0, plain));
                }
            }
        }
    }
}
