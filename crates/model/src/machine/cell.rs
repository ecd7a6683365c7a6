//! A word that several ranks see, with its history: which write a blocking read is ordered after.
//!
//! Where writes are ordered, a read that waits is ordered after the first write that could have let it go on,
//! counted from the last one that it knew. That edge is there in every run. The one that it saw may be later.
//! Not here: what the words are for ([`super::store`], [`super::flag`]).

use crate::clock::Clock;

/// The writes of a word, in the order of this run. Before the first it has its default value.
#[derive(Debug, Clone)]
pub(crate) struct Cell<V> {
    writes: Vec<(V, Clock)>,
}

impl<V> Default for Cell<V> {
    fn default() -> Self {
        Self { writes: Vec::new() }
    }
}

impl<V: Default> Cell<V> {
    /// The last write.
    pub(crate) fn last(&self) -> Option<&(V, Clock)> {
        self.writes.last()
    }

    /// One more write.
    pub(crate) fn write(&mut self, value: V, by: Clock) {
        self.writes.push((value, by));
    }

    /// The first write that could have let a reader go on who knows what `reader` knows.
    pub(crate) fn enabling(&self, reader: &Clock, passes: impl Fn(&V) -> bool) -> Option<&Clock> {
        let known = |(_, by): &(V, Clock)| reader.after(by.actor(), by.epoch());
        let from = self.writes.iter().rposition(known);
        if from.is_none() && passes(&V::default()) {
            return None;
        }
        self.writes[from.unwrap_or(0)..].iter().find(|(value, _)| passes(value)).map(|(_, by)| by)
    }

    /// The clocks of all writes, to renumber them.
    pub(crate) fn clocks_mut(&mut self) -> impl Iterator<Item = &mut Clock> {
        self.writes.iter_mut().map(|(_, by)| by)
    }
}
