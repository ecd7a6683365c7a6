//! What a machine has come to know beside states, for a search that goes on in another process.
//!
//! Not here: the states, and who keeps them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};

use serde::{Deserialize, Serialize};

use crate::id::Token;
use crate::machine::{Machine, locked};
use crate::position::HistoryKey;

/// What a machine knows of a program beside its states.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct KnownOfProgram {
    /// Histories that were compared with those that they were taken for, in the order in which they came. Those that come
    /// later are compared with them.
    histories: Vec<HistoryKey>,
    /// Labels that some run came by.
    reached: BTreeSet<Token>,
    /// What `r.measure` recorded, as maxima.
    measured: BTreeMap<Token, i64>,
    /// How many operations were executed.
    steps: u64,
    /// Whether somebody asked whether work is over, whether threads met at an object, and whether NCCL may have let somebody go:
    /// [`Machine::early_ends_may_be_seen`].
    early_ends: [bool; 3],
}

impl Machine {
    /// What it knows of its program beside the states.
    #[must_use]
    pub fn known(&self) -> KnownOfProgram {
        KnownOfProgram {
            histories: self.entered(),
            reached: self.reached(),
            measured: self.measured(),
            steps: self.steps_total(),
            early_ends: self.early_ends().map(|seen| seen.load(Ordering::Relaxed)),
        }
    }

    fn early_ends(&self) -> [&AtomicBool; 3] {
        [&self.polled, &self.met, &self.may_let_go]
    }

    /// Takes over what another machine of the same configuration knew of the same program. What this one has executed does
    /// not count.
    pub fn take_over(&self, known: &KnownOfProgram) {
        for (rank, start, answers) in &known.histories {
            let _ = self.place(*rank, *start, answers);
        }
        locked(&self.reached).extend(&known.reached);
        let mut measured = locked(&self.measured);
        for (name, value) in &known.measured {
            let most = measured.entry(*name).or_insert(*value);
            *most = (*most).max(*value);
        }
        self.steps.store(known.steps, Ordering::Relaxed);
        for (seen, known) in self.early_ends().into_iter().zip(known.early_ends) {
            seen.fetch_or(known, Ordering::Relaxed);
        }
    }
}
