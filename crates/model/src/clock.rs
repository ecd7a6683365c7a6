//! Happens-before: vector clocks over host threads and streams, shared copy-on-write.
//!
//! A clock holds the counts of its own rank's actors beside a shared base, which has those of all. What actors of
//! one rank do and tell each other is most of what happens, and costs a few additions; only what a rank learns of
//! others costs a walk through what two bases do not share (`clock/counts.rs`), and after a collective all members
//! share one base.
//! Not here: which operations order what ([`crate::machine`]).

mod counts;

use std::hash::{Hash, Hasher};

use smallvec::SmallVec;

use self::counts::Counts;

/// Position of an actor (a host thread or a stream of a rank) in every clock. The actors of a rank stand in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Actor(pub u32);

/// The counts of one rank's actors.
type Row = SmallVec<[u32; 8]>;

/// What an actor knows of every actor's progress.
#[derive(Debug)]
pub struct Clock {
    /// What was learned from other ranks. Of its own rank it may be behind `near`, and is never ahead.
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
        Self::of(self.base.clone(), self.near.clone(), self.actor)
    }
}

impl Hash for Clock {
    /// Of what is known, wherever it stands.
    fn hash<H: Hasher>(&self, state: &mut H) {
        let behind = counts::hash(self.first(), &self.row(&self.base));
        let ahead = counts::hash(self.first(), &self.near);
        self.base.hash().wrapping_sub(behind).wrapping_add(ahead).hash(state);
    }
}

impl Clock {
    /// A clock that knows nothing, of an actor; `ranks` have so many actors each.
    #[must_use]
    pub fn new(actor: Actor, ranks: usize, actors_per_rank: usize) -> Self {
        let near = SmallVec::from_elem(0, actors_per_rank);
        Self::of(Counts::zeros(ranks * actors_per_rank), near, actor)
    }

    fn of(base: Counts, near: Row, actor: Actor) -> Self {
        Self { base, near, actor, met: [const { None }; 2] }
    }

    /// The same knowledge, held by another actor that has done nothing yet.
    #[must_use]
    pub fn child(&self, actor: Actor) -> Self {
        let mut child = Self::of(self.base.clone(), self.near.clone(), actor);
        if child.first() != self.first() {
            child.base.raise_rows([(self.first(), &self.near[..])]);
            child.near = child.row(&child.base);
        }
        child
    }

    /// The place of the rank's first actor.
    fn first(&self) -> usize {
        self.place() - self.near_place()
    }

    fn place(&self) -> usize {
        self.actor.0 as usize
    }

    /// The place among the rank's actors.
    fn near_place(&self) -> usize {
        self.place() % self.near.len()
    }

    /// What counts say of the rank's actors.
    fn row(&self, counts: &Counts) -> Row {
        let mut row = SmallVec::from_elem(0, self.near.len());
        counts.read(self.first(), &mut row);
        row
    }

    /// One more operation of the owner.
    pub fn tick(&mut self) {
        let at = self.near_place();
        self.near[at] += 1;
    }

    /// The owner's own count.
    #[must_use]
    pub fn epoch(&self) -> u32 {
        self.near[self.near_place()]
    }

    /// The owner.
    #[must_use]
    pub fn actor(&self) -> Actor {
        self.actor
    }

    /// How far this clock knows `actor`.
    #[must_use]
    pub fn knows(&self, actor: Actor) -> u32 {
        let at = actor.0 as usize;
        let near = at.checked_sub(self.first()).and_then(|at| self.near.get(at));
        near.copied().unwrap_or_else(|| self.base.at(at))
    }

    /// Whether the operation `epoch` of `actor` happened before whoever holds this clock.
    #[must_use]
    pub fn after(&self, actor: Actor, epoch: u32) -> bool {
        self.knows(actor) >= epoch
    }

    /// Number of operations in the causal past.
    #[must_use]
    pub fn past(&self) -> u64 {
        let sum = |row: &[u32]| row.iter().map(|&count| u64::from(count)).sum::<u64>();
        self.base.sum() - sum(&self.row(&self.base)) + sum(&self.near)
    }

    /// Learns all that `other` knows.
    pub fn join(&mut self, other: &Self) {
        self.join_base(&other.base);
        if self.first() == other.first() {
            self.learn_near(&other.near);
        } else {
            self.base.raise_rows([(other.first(), &other.near[..])]);
            self.learn_near(&self.row(&self.base));
        }
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

    fn learn_near(&mut self, row: &[u32]) {
        for (near, count) in self.near.iter_mut().zip(row) {
            *near = (*near).max(*count);
        }
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

    /// Learns what a rendezvous knows in which this clock took part.
    pub fn learn(&mut self, knowledge: &Knowledge) {
        self.base = knowledge.0.clone();
        self.learn_near(&self.row(&self.base));
    }

    /// Whether actors may be renumbered without changing what is known of them: what everybody knows of
    /// everybody alike looks the same under all numbers.
    #[must_use]
    pub fn alike(&self, to: &[u32]) -> bool {
        to.iter().enumerate().all(|(old, new)| self.base.at(*new as usize) == self.base.at(old))
    }

    /// The same clock after ranks were renumbered, and with them their actors: `to[old] = new`.
    #[must_use]
    pub fn renumbered(&self, to: &[u32]) -> Self {
        let (near, actor) = (self.near.clone(), Actor(to[self.place()]));
        if self.alike(to) {
            return Self::of(self.base.clone(), near, actor);
        }
        let mut base = Counts::zeros(to.len());
        for (old, new) in to.iter().enumerate() {
            base.raise(*new as usize, self.base.at(old));
        }
        Self::of(base, near, actor)
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
    /// What members' ranks did, by the place of their first actor.
    rows: Vec<(usize, Row)>,
}

impl Gathered {
    /// One more member.
    pub fn add(&mut self, clock: &Clock) {
        let counts = self.counts.get_or_insert_with(|| clock.base.clone());
        if !self.met.iter().flatten().any(|base| base.is(&clock.base)) {
            counts.join(&clock.base);
            self.met[self.next] = Some(clock.base.clone());
            self.next = (self.next + 1) % self.met.len();
        }
        match self.rows.last_mut() {
            Some((first, row)) if *first == clock.first() => {
                for (count, near) in row.iter_mut().zip(&clock.near) {
                    *count = (*count).max(*near);
                }
            }
            Some(_) | None => self.rows.push((clock.first(), clock.near.clone())),
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
        counts.raise_rows(self.rows.iter().map(|(first, row)| (*first, &row[..])));
        Knowledge(counts)
    }
}
