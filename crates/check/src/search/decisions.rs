//! Why a search is large: what one run of a program decides, how often, on how many ranks, and whether ranks are alike.
//!
//! What grows with the decisions of a run is the number of its histories. A search that turns out to be large sends a scout ahead
//! ([`explore`](super::explore())), and what the scout decides on its way is said long before the search ends.
//! Not here: which of these histories the search tells apart.

use std::collections::BTreeSet;

use rankcheck_model::machine::{Choice, Machine};
use rankcheck_model::{Loc, Rank, State, Symmetry};

use serde::{Deserialize, Serialize};

use super::replay::subject;

/// What one run of a program decides.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunDecisions {
    /// What is decided at each place, the most frequent first.
    pub places: Vec<DecisionPlace>,
    /// The product of the alternatives of all decisions, as a power of two, rounded up.
    pub histories_log2: u32,
    /// Where ranks were told apart first; none if they are alike, or if that is not known.
    pub told_apart_at: Option<Loc>,
    /// Whether ranks are told apart.
    pub told_apart: bool,
}

/// What one run decides at one place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DecisionPlace {
    /// The first such decision, in words.
    pub what: String,
    /// Where it is written.
    pub at: Loc,
    /// How often the run decides here.
    pub times: u64,
    /// How many ranks do.
    pub ranks: usize,
    /// How many alternatives a decision has at most.
    pub alternatives: usize,
}

/// The decisions of a run as it goes.
#[derive(Debug, Default)]
pub(super) struct DecisionTally {
    places: Vec<(DecisionPlace, BTreeSet<Rank>)>,
    histories_log2: f64,
}

impl DecisionTally {
    /// The run decides between these choices.
    pub(super) fn add(&mut self, machine: &Machine, state: &State, choices: &[Choice]) {
        let (Some(first), 2..) = (choices.first(), choices.len()) else { return };
        self.histories_log2 += (choices.len() as f64).log2();
        let Some(subject) = subject(machine, state, first) else { return };
        let what = match first {
            Choice::Value(..) => subject.op,
            Choice::Thread(..) | Choice::Stream(..) | Choice::Transfer(_) | Choice::Meet(_) => {
                format!("whether {} goes first", subject.op)
            }
        };
        let (at, rank) = (subject.at.loc, state.original(subject.at.op.rank));
        let place = self.places.iter_mut().find(|(place, _)| place.at == at);
        let place = if let Some(place) = place {
            place
        } else {
            let place = DecisionPlace { what, at, times: 0, ranks: 0, alternatives: 0 };
            self.places.push((place, BTreeSet::new()));
            self.places.last_mut().expect("just added")
        };
        place.0.times += 1;
        place.0.alternatives = place.0.alternatives.max(choices.len());
        place.1.insert(rank);
    }

    /// What the run decided.
    pub(super) fn into_decisions(self, machine: &Machine) -> RunDecisions {
        let counted =
            |(place, ranks): (DecisionPlace, BTreeSet<Rank>)| DecisionPlace { ranks: ranks.len(), ..place };
        let mut places: Vec<DecisionPlace> = self.places.into_iter().map(counted).collect();
        places.sort_by_key(|place| std::cmp::Reverse(place.times));
        RunDecisions {
            places,
            histories_log2: self.histories_log2.ceil() as u32,
            told_apart_at: machine.source.told_apart_at(),
            told_apart: machine.source.symmetry() == Symmetry::Distinct,
        }
    }
}

impl RunDecisions {
    /// In a sentence, with the places that matter most.
    #[must_use]
    pub fn words(&self) -> String {
        /// Places that are told.
        const TOLD: usize = 3;
        let times: u64 = self.places.iter().map(|place| place.times).sum();
        let mut told: Vec<String> = self.places.iter().take(TOLD).map(DecisionPlace::words).collect();
        match self.places.len().saturating_sub(TOLD) {
            0 => {}
            1 => told.push("and at one other place".to_owned()),
            more => told.push(format!("and at {more} other places")),
        }
        let ranks = match (&self.told_apart_at, self.told_apart) {
            (Some(at), _) => format!("ranks are told apart since {at}"),
            (None, true) => "ranks are told apart".to_owned(),
            (None, false) => "ranks are alike, so it does not count which of them decides what".to_owned(),
        };
        format!(
            "{times} times in the first run, so 2^{} histories if every run decides as often: {}; {ranks}",
            self.histories_log2,
            told.join("; ")
        )
    }
}

impl DecisionPlace {
    fn words(&self) -> String {
        let Self { what, at, times, ranks, alternatives } = self;
        let ranks = if *ranks == 1 { "one rank".to_owned() } else { format!("{ranks} ranks") };
        let times = if *times == 1 { "once".to_owned() } else { format!("{times} times") };
        format!("{times} on {ranks}, between {alternatives} alternatives, at {at} ({what})")
    }
}
