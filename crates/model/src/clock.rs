//! Happens-before: vector clocks over host threads and streams, shared copy-on-write.
//!
//! A clock is a shared base plus the owner's own count. Ticking costs an addition; joining the clocks of a
//! whole communicator costs one pass, because after a collective all members share one base.
//! Not here: which operations order what ([`crate::machine`]).

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use rustc_hash::FxHasher;

/// Position of an actor (a host thread or a stream of a rank) in every clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Actor(pub u32);

#[derive(Debug, PartialEq, Eq)]
struct Base {
    hash: u64,
    /// Of all counts.
    sum: u64,
    counts: Vec<u32>,
}

impl Base {
    fn new(counts: Vec<u32>) -> Arc<Self> {
        let mut hasher = FxHasher::default();
        counts.hash(&mut hasher);
        let sum = counts.iter().map(|count| u64::from(*count)).sum();
        Arc::new(Self { hash: hasher.finish(), sum, counts })
    }
}

/// What an actor knows of every actor's progress.
#[derive(Debug, Clone)]
pub struct Clock {
    base: Arc<Base>,
    own: u32,
    actor: Actor,
}

impl PartialEq for Clock {
    fn eq(&self, other: &Self) -> bool {
        self.own == other.own
            && self.actor == other.actor
            && (Arc::ptr_eq(&self.base, &other.base) || self.base == other.base)
    }
}

impl Eq for Clock {}

impl Hash for Clock {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.base.hash.hash(state);
        self.own.hash(state);
    }
}

impl Clock {
    /// A clock that knows nothing, of an actor among `width`.
    #[must_use]
    pub fn new(actor: Actor, width: usize) -> Self {
        Self { base: Base::new(vec![0; width]), own: 0, actor }
    }

    /// The same knowledge, held by another actor that has done nothing yet.
    #[must_use]
    pub fn child(&self, actor: Actor) -> Self {
        let own = self.knows(actor);
        if self.base.counts[self.actor.0 as usize] == self.own {
            return Self { base: Arc::clone(&self.base), own, actor };
        }
        let mut counts = self.base.counts.clone();
        counts[self.actor.0 as usize] = self.own;
        Self { base: Base::new(counts), own, actor }
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
        if actor == self.actor { self.own } else { self.base.counts[actor.0 as usize] }
    }

    /// Whether the operation `epoch` of `actor` happened before whoever holds this clock.
    #[must_use]
    pub fn after(&self, actor: Actor, epoch: u32) -> bool {
        self.knows(actor) >= epoch
    }

    /// Number of operations in the causal past.
    #[must_use]
    pub fn past(&self) -> u64 {
        self.base.sum - u64::from(self.base.counts[self.actor.0 as usize]) + u64::from(self.own)
    }

    /// Learns all that `other` knows.
    pub fn join(&mut self, other: &Self) {
        if Arc::ptr_eq(&self.base, &other.base) && self.base.counts[other.actor.0 as usize] >= other.own {
            return;
        }
        let mut counts = self.base.counts.clone();
        if !Arc::ptr_eq(&self.base, &other.base) {
            for (mine, theirs) in counts.iter_mut().zip(&other.base.counts) {
                *mine = (*mine).max(*theirs);
            }
        }
        let slot = &mut counts[other.actor.0 as usize];
        *slot = (*slot).max(other.own);
        self.own = self.own.max(counts[self.actor.0 as usize]);
        counts[self.actor.0 as usize] = self.own;
        self.base = Base::new(counts);
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
        let known = knowledge.0.counts[self.actor.0 as usize];
        self.own = self.own.max(known);
        self.base = Arc::clone(&knowledge.0);
    }

    /// Whether actors may be renumbered without changing what is known of them: what everybody knows of
    /// everybody alike looks the same under all numbers.
    #[must_use]
    pub fn alike(&self, to: &[u32]) -> bool {
        to.iter().zip(&self.base.counts).all(|(new, count)| self.base.counts[*new as usize] == *count)
    }

    /// The same clock after actors were renumbered: `to[old] = new`.
    #[must_use]
    pub fn renumbered(&self, to: &[u32]) -> Self {
        let (actor, own) = (Actor(to[self.actor.0 as usize]), self.own);
        let old = &self.base.counts;
        if self.alike(to) {
            return Self { base: Arc::clone(&self.base), own, actor };
        }
        let mut counts = vec![0; old.len()];
        for (new, count) in to.iter().zip(old) {
            counts[*new as usize] = *count;
        }
        Self { base: Base::new(counts), own, actor }
    }
}

/// The joint knowledge of the members of a rendezvous.
#[derive(Debug, Clone)]
pub struct Knowledge(Arc<Base>);

/// Joint knowledge as it comes together, member by member.
#[derive(Debug, Default)]
pub struct Gathered {
    counts: Vec<u32>,
    /// The bases that came last. After a collective its members share few, so a look among them is enough.
    seen: [Option<Arc<Base>>; 4],
    next: usize,
}

impl Gathered {
    /// One more member.
    pub fn add(&mut self, clock: &Clock) {
        if !self.seen.iter().flatten().any(|base| Arc::ptr_eq(base, &clock.base)) {
            if self.counts.is_empty() {
                self.counts.clone_from(&clock.base.counts);
            }
            for (mine, theirs) in self.counts.iter_mut().zip(&clock.base.counts) {
                *mine = (*mine).max(*theirs);
            }
            self.seen[self.next] = Some(Arc::clone(&clock.base));
            self.next = (self.next + 1) % self.seen.len();
        }
        let slot = &mut self.counts[clock.actor.0 as usize];
        *slot = (*slot).max(clock.own);
    }

    /// What they know together.
    ///
    /// # Panics
    /// If nobody was added: a rendezvous has members.
    #[must_use]
    pub fn knowledge(self) -> Knowledge {
        assert!(!self.counts.is_empty(), "a rendezvous has members");
        Knowledge(Base::new(self.counts))
    }
}
