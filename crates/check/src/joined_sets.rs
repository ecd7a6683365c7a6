//! Sets of indices that are joined, two at a time: which of many things belong together, also through others.

/// By index: one before it in the same set, or itself.
pub(crate) struct JoinedSets(Vec<usize>);

impl JoinedSets {
    /// Each index below `len` is a set of its own.
    pub(crate) fn new(len: usize) -> Self {
        Self((0..len).collect())
    }

    /// The lowest index of the set that an index is in.
    pub(crate) fn first(&self, mut at: usize) -> usize {
        while self.0[at] != at {
            at = self.0[at];
        }
        at
    }

    /// Makes one set of those that two indices are in.
    pub(crate) fn join(&mut self, one: usize, other: usize) {
        let (first, second) = (self.first(one), self.first(other));
        let (lower, higher) = (first.min(second), first.max(second));
        // Ways stay short.
        for at in [one, other, higher] {
            self.0[at] = lower;
        }
    }
}
