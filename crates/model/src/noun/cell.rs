//! A word that several ranks see, with its history: which write a blocking read is ordered after.
//!
//! Where writes are ordered, a read that waits is ordered after the first write that could have let it go on,
//! counted from the last one that it knew. That edge is there in every run. The one that it saw may be later.
//! Not here: what the words are for ([`crate::noun::store`], [`crate::noun::flag`]).

use crate::clock::Clock;
use crate::judge::finding::OpRef;

/// One write of a word.
#[derive(Debug, Clone)]
pub(crate) struct Written<V> {
    pub(crate) value: V,
    pub(crate) by: Clock,
    pub(crate) op: OpRef,
}

/// The writes of a word, in the order of this run. Before the first it has its default value.
#[derive(Debug, Clone)]
pub(crate) struct Cell<V> {
    pub(crate) writes: Vec<Written<V>>,
}

impl<V> Default for Cell<V> {
    fn default() -> Self {
        Self { writes: Vec::new() }
    }
}

impl<V: Default> Cell<V> {
    /// The last write.
    pub(crate) fn last(&self) -> Option<&Written<V>> {
        self.writes.last()
    }

    /// The first write that could have let a reader go on who knows what `reader` knows.
    pub(crate) fn enabling(&self, reader: &Clock, passes: impl Fn(&V) -> bool) -> Option<&Clock> {
        let known = |write: &Written<V>| reader.after(write.by.actor(), write.by.epoch());
        let from = self.writes.iter().rposition(known);
        if from.is_none() && passes(&V::default()) {
            return None;
        }
        let since = &self.writes[from.unwrap_or(0)..];
        since.iter().find(|write| passes(&write.value)).map(|write| &write.by)
    }
}
