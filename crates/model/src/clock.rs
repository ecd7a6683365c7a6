//! Happens-before: vector clocks over host threads and streams, shared copy-on-write.
//!
//! A clock is a shared base plus the owner's own count. Ticking costs an addition; joining costs what the two
//! bases do not share (`clock/counts.rs`), and after a collective all members share one base.
//! Not here: which operations order what ([`crate::machine`]).

mod counts;

use std::hash::{Hash, Hasher};

use self::counts::Counts;

/// Position of an actor (a host thread or a stream of a rank) in every clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Actor(pub u32);

/// What an actor knows of every actor's progress.
#[derive(Debug, Clone)]
pub struct Clock {
    base: Counts,
    own: u32,
    actor: Actor,
}

impl PartialEq for Clock {
    fn eq(&self, other: &Self) -> bool {
        self.own == other.own && self.actor == other.actor && self.base == other.base
    }
}

impl Eq for Clock {}

impl Hash for Clock {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.base.hash().hash(state);
        self.own.hash(state);
    }
}

impl Clock {
    /// A clock that knows nothing, of an actor among `width`.
    #[must_use]
    pub fn new(actor: Actor, width: usize) -> Self {
        Self { base: Counts::zeros(width), own: 0, actor }
    }

    /// The same knowledge, held by another actor that has done nothing yet.
    #[must_use]
    pub fn child(&self, actor: Actor) -> Self {
        let mut base = self.base.clone();
        base.raise(self.place(), self.own);
        Self { base, own: self.knows(actor), actor }
    }

    fn place(&self) -> usize {
        self.actor.0 as usize
    }

    /// One more operation of the owner.
    pub fn tick(&mut self) {
        self.own += 1;
    }

    /// The owner's own count.
    #[must_use]
    pub fn epoch(&self) -> u32 {
        self.own
    }

    /// The owner.
    #[must_use]
    pub fn actor(&self) -> Actor {
        self.actor
    }

    /// How far this clock knows `actor`.
    #[must_use]
    pub fn knows(&self, actor: Actor) -> u32 {
        if actor == self.actor { self.own } else { self.base.at(actor.0 as usize) }
    }

    /// Whether the operation `epoch` of `actor` happened before whoever holds this clock.
    #[must_use]
    pub fn after(&self, actor: Actor, epoch: u32) -> bool {
        self.knows(actor) >= epoch
    }

    /// Number of operations in the causal past.
    #[must_use]
    pub fn past(&self) -> u64 {
        self.base.sum() - u64::from(self.base.at(self.place())) + u64::from(self.own)
    }

    /// Learns all that `other` knows.
    pub fn join(&mut self, other: &Self) {
        if self.base.is(&other.base) && self.base.at(other.place()) >= other.own {
            return;
        }
        self.base.join(&other.base);
        self.base.raise(other.place(), other.own);
        self.own = self.own.max(self.base.at(self.place()));
        self.base.raise(self.place(), self.own);
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

    /// Learns what a rendezvous knows; cheap when the knowledge includes the own past.
    pub fn learn(&mut self, knowledge: &Knowledge) {
        self.own = self.own.max(knowledge.0.at(self.place()));
        self.base = knowledge.0.clone();
    }

    /// Whether actors may be renumbered without changing what is known of them: what everybody knows of
    /// everybody alike looks the same under all numbers.
    #[must_use]
    pub fn alike(&self, to: &[u32]) -> bool {
        to.iter().enumerate().all(|(old, new)| self.base.at(*new as usize) == self.base.at(old))
    }

    /// The same clock after actors were renumbered: `to[old] = new`.
    #[must_use]
    pub fn renumbered(&self, to: &[u32]) -> Self {
        let (actor, own) = (Actor(to[self.actor.0 as usize]), self.own);
        if self.alike(to) {
            return Self { base: self.base.clone(), own, actor };
        }
        let mut base = Counts::zeros(to.len());
        for (old, new) in to.iter().enumerate() {
            base.raise(*new as usize, self.base.at(old));
        }
        Self { base, own, actor }
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
    seen: [Option<Counts>; 4],
    next: usize,
    /// What members did themselves.
    own: Vec<(usize, u32)>,
}

impl Gathered {
    /// One more member.
    pub fn add(&mut self, clock: &Clock) {
        let counts = self.counts.get_or_insert_with(|| clock.base.clone());
        if !self.seen.iter().flatten().any(|base| base.is(&clock.base)) {
            counts.join(&clock.base);
            self.seen[self.next] = Some(clock.base.clone());
            self.next = (self.next + 1) % self.seen.len();
        }
        self.own.push((clock.place(), clock.own));
    }

    /// What they know together.
    ///
    /// # Panics
    /// If nobody was added: a rendezvous has members.
    #[must_use]
    pub fn knowledge(mut self) -> Knowledge {
        let mut counts = self.counts.expect("a rendezvous has members");
        self.own.sort_unstable();
        counts.raise_all(&self.own);
        Knowledge(counts)
    }
}
