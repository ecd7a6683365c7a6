//! Edits: what a run does otherwise than its program says, to find out what a finding depends on.
//!
//! A run is tried again without one of its operations. What uses the result is left out too, and questions are
//! answered as they were, so that the rest of the run stays what it was.
//! Not here: which edits are tried (`rankcheck::search::trial`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::cx::Here;
use crate::id::ThreadStart;
use crate::program::Answer;
use crate::rank::Rank;

/// Names an operation or question of a run, whatever number its thread has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OpPosition {
    /// World rank that does it.
    pub rank: Rank,
    /// What the thread runs that does it: on a rank, at most one thread runs it.
    pub start: ThreadStart,
    /// How many operations and questions of that thread come before it.
    pub index: u32,
}

/// What is changed of a program.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Edits {
    /// Operations that are skipped. Their results are null.
    pub left_out: BTreeSet<OpPosition>,
    /// How many results operations have that were exchanged for others: those that they do not make are null.
    pub slots: BTreeMap<OpPosition, u32>,
    /// Questions whose answers are given. Slots that such an answer promises and the state does not have are null.
    pub answers: Arc<BTreeMap<OpPosition, Answer>>,
}

impl Edits {
    /// Whether nothing is changed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.left_out.is_empty() && self.slots.is_empty() && self.answers.is_empty()
    }
}

impl Here<'_> {
    /// Where the thread stands, in original rank numbers.
    pub(crate) fn position(self) -> OpPosition {
        let Here { state, rank, .. } = self;
        let t = self.this();
        OpPosition { rank: state.original[rank.at()], start: t.start(), index: t.index() }
    }

    /// Whether the thread's next operation is left out.
    pub(crate) fn left_out(self) -> bool {
        let left_out = &self.m.config.edits.left_out;
        !left_out.is_empty() && left_out.contains(&self.position())
    }

    /// How many results the thread's next operation has, if that is not for the operation to say.
    pub(crate) fn given_slots(self) -> Option<u32> {
        let slots = &self.m.config.edits.slots;
        if slots.is_empty() { None } else { slots.get(&self.position()).copied() }
    }

    /// The answer that the thread's next question is given, if it is.
    pub(crate) fn given_answer(self) -> Option<Answer> {
        let answers = &self.m.config.edits.answers;
        if answers.is_empty() { None } else { answers.get(&self.position()).copied() }
    }
}
