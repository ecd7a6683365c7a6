//! What a verdict is about: what the ranks executed that a rule could have found wrong.
//!
//! The numbers come from the machine, which counts what runs, and not from the text of a program.
//! Not here: what it costs ([`rankcheck_model::machine::Costs`]).

use std::collections::BTreeSet;

use rankcheck_model::machine::Executed;
use rankcheck_model::{Loc, Rank};

use super::Exploration;
use crate::spec::SpecSource;

/// What the runs of an exploration executed, as maxima over ranks and runs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Coverage {
    /// Communicators that a rank was a member of.
    pub communicators: u32,
    /// Windows that a rank registered.
    pub windows: u32,
    /// Collectives, transfers and the like.
    pub executed: Executed,
    /// Ranks that executed nothing of the kind in any run.
    pub idle_ranks: BTreeSet<Rank>,
    /// Answers after which no rank executes anything of the kind, although some does after another answer.
    pub idle_sides: Vec<IdleSide>,
}

/// One answer to a question of the program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdleSide {
    /// The answer in words, as in `leave = yes`.
    pub answer: String,
    /// Where it is asked.
    pub loc: Loc,
}

impl Coverage {
    pub(super) fn of(exploration: &Exploration, program: &SpecSource) -> Self {
        let costs = &exploration.costs;
        Self {
            communicators: costs.communicators,
            windows: costs.registrations + costs.registrations_warm_up,
            executed: exploration.executed,
            idle_ranks: exploration.idle_ranks.clone(),
            idle_sides: program.idle_sides(),
        }
    }

    /// The larger of each number.
    #[must_use]
    pub fn max(&self, other: &Self) -> Self {
        let mut executed = self.executed;
        executed.raise_to(&other.executed);
        Self {
            communicators: self.communicators.max(other.communicators),
            windows: self.windows.max(other.windows),
            executed,
            idle_ranks: self.idle_ranks.intersection(&other.idle_ranks).copied().collect(),
            idle_sides: self
                .idle_sides
                .iter()
                .filter(|side| other.idle_sides.contains(side))
                .cloned()
                .collect(),
        }
    }

    /// Whether nothing was executed that a verdict could be about. Of one communicator alone, nothing can be wrong
    /// before it is used; of two, the order of their inits.
    #[must_use]
    pub fn nothing(&self) -> bool {
        self.communicators < 2 && self.windows == 0 && self.executed == Executed::default()
    }
}

/// What there was, in words: `2 collectives, 1 window on 1 communicator`.
impl std::fmt::Display for Coverage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Executed { collectives, transfers, mappings, others } = self.executed;
        let counted = |number: u32, one: &str| match number {
            1 => format!("1 {one}"),
            _ => format!("{number} {one}s"),
        };
        let some = |number: u32, one: &str| (number > 0).then(|| counted(number, one));
        let on_communicators: Vec<String> =
            [(collectives, "collective"), (transfers, "transfer"), (self.windows, "window")]
                .into_iter()
                .filter_map(|(number, one)| some(number, one))
                .collect();
        let mut parts = Vec::new();
        let what = match on_communicators.is_empty() {
            true => "no collective or transfer".to_owned(),
            false => on_communicators.join(", "),
        };
        match self.communicators {
            0 => parts.push(what),
            communicators => parts.push(format!("{what} on {}", counted(communicators, "communicator"))),
        }
        parts.extend(some(mappings, "mapping"));
        parts.extend(some(others, "other call"));
        f.write_str(&parts.join("; "))
    }
}
