//! A word that several ranks see, with its history: which write a blocking read is ordered after.
//!
//! Where writes are ordered, a read that waits is ordered after the first write that could have let it go on,
//! counted from the last one that it knew. That edge is there in every run. The one that it saw may be later.
//! Not here: what the words are for ([`crate::noun::store`], [`crate::noun::flag`]).

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};

use crate::clock::Clock;
use crate::host::value::Value;
use crate::id::Token;
use crate::identity::{Identify, StateIdentity};
use crate::judge::finding::OpRef;
use crate::order::dependence::{Object, ObjectKind};
use crate::walk::{Renumber, Renumbering};

/// One write of a word.
#[derive(Debug, Clone)]
pub(crate) struct WordWrite<V> {
    pub(crate) value: V,
    pub(crate) by: Clock,
    pub(crate) op: OpRef,
}

/// The writes of a word, in the order of this run. Before the first it has its default value.
#[derive(Debug, Clone)]
pub(crate) struct Cell<V> {
    writes: Vec<WordWrite<V>>,
}

/// Which write of a word a blocking read is ordered after.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReadersOrdered {
    /// The one that it saw: on contended objects, where orders are choices, and in the unreduced semantics.
    BySight,
    /// The first that could have let it go on.
    ByWhatEnables,
}

/// The value of a word.
pub(crate) trait Word: Clone + Default + Hash {
    /// Whether it tells a word that was written from one that was not.
    fn is_there(&self) -> bool;
}

impl Word for i64 {
    fn is_there(&self) -> bool {
        true
    }
}

impl Word for Option<Value> {
    /// A key that was deleted is not there.
    fn is_there(&self) -> bool {
        self.is_some()
    }
}

impl<V: Word> Hash for Cell<V> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        // Earlier writes decide nothing but what a reader is ordered after, and are functions of positions.
        let Self { writes } = self;
        let standing = writes.last().filter(|write| write.value.is_there());
        standing.map(|WordWrite { value, by, op: _ }| (value, by)).hash(state);
    }
}

impl<V: Word> Identify for Cell<V> {
    fn identify(&self, to: &mut StateIdentity<'_>) {
        let Self { writes } = self;
        // Nobody is ordered after anything before the last write that everybody knows.
        let known = |write: &WordWrite<V>| to.is_known(write.by.actor(), write.by.epoch());
        let from = writes.iter().rposition(known);
        let since = &writes[from.unwrap_or(0)..];
        for WordWrite { value, by, op } in since {
            value.hash(to);
            to.asked_about(by.actor(), by.epoch());
            by.identify(to);
            op.identify(to);
        }
        (from.is_some(), since.len()).hash(to);
    }
}

/// Adds words of a kind, by their names, to an identity: those that somebody may still use.
pub(crate) fn identify_used<V: Word>(
    cells: &BTreeMap<Token, Cell<V>>,
    kind: ObjectKind,
    to: &mut StateIdentity<'_>,
) {
    for (name, cell) in cells {
        if to.is_used(Object::named(kind, *name)) {
            1_u8.hash(to);
            name.identify(to);
            cell.identify(to);
        }
    }
    0_u8.hash(to);
}

impl<V> Renumber for Cell<V> {
    fn renumber(&mut self, by: &mut Renumbering<'_>) {
        let Self { writes } = self;
        for WordWrite { value: _, by: clock, op } in writes {
            clock.renumber(by);
            op.renumber(by);
        }
    }

    fn stays(&self, by: &mut Renumbering<'_>) -> bool {
        self.writes.iter().all(|WordWrite { value: _, by: clock, op }| clock.stays(by) && op.stays(by))
    }
}

impl<V> Default for Cell<V> {
    fn default() -> Self {
        Self { writes: Vec::new() }
    }
}

impl<V: Word> Cell<V> {
    /// Adds a write. Earlier ones stay if what a reader is ordered after depends on them, and not on what it sees.
    pub(crate) fn write(&mut self, write: WordWrite<V>, ordered: ReadersOrdered) {
        match ordered {
            ReadersOrdered::BySight => self.writes.clear(),
            ReadersOrdered::ByWhatEnables => {}
        }
        self.writes.push(write);
    }

    /// Returns the last write; none if the word was never written.
    pub(crate) fn last(&self) -> Option<&WordWrite<V>> {
        self.writes.last()
    }

    /// The first write that could have let a reader go on who knows what `reader` knows.
    pub(crate) fn enabling(&self, reader: &Clock, passes: impl Fn(&V) -> bool) -> Option<&Clock> {
        let known = |write: &WordWrite<V>| reader.after(write.by.actor(), write.by.epoch());
        let from = self.writes.iter().rposition(known);
        if from.is_none() && passes(&V::default()) {
            return None;
        }
        let since = &self.writes[from.unwrap_or(0)..];
        since.iter().find(|write| passes(&write.value)).map(|write| &write.by)
    }
}
