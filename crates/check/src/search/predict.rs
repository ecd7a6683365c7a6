//! What a platform makes of a run: every end that it leaves possible, with what decides it and who says so.
//!
//! A verdict rests on what is guaranteed, so the run that shows a finding is one of the guarantees alone. On a platform
//! the same run may go on where it stands still there: NCCL may hold a send that nobody receives yet. Its values and
//! its schedule are taken as decided, and only what the platform leaves open is explored. One set of ends comes of it,
//! and reports, JSON, `outcome =` and the comparison with what devices did read that set and no other. Of all other runs
//! that break a rule on the platform only their classes are told.
//! Not here: which run is shown, and what devices did.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rankcheck_model::machine::InFlight;
use rankcheck_model::{
    Choice, Class, Config, Data, Machine, Mode, Nondet, Outcome, Rank, RankOutcome, Source, SourceError,
    State, Thread,
};

use super::bounds::{BoundHit, Bounds};
use super::changed::distinct;
use super::explore::{Exploration, Witness, explore_as_decided};
use super::turn::{Turn, fails};

/// One way in which the run that is shown may end on a platform.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PredictedEnd {
    /// How the ranks end, and what is left in memory.
    pub outcome: Outcome,
    /// What the platform left open, and which way it went for this end, in words.
    pub decided_by: BTreeSet<String>,
    /// Who says that it ends so.
    pub basis: Basis,
}

/// What it rests on that a run ends in some way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Basis {
    /// On what is documented, or follows from the source.
    Specified,
    /// On what was measured and nobody promises: with nothing but guarantees the run ends otherwise.
    Measured,
    /// On nothing: nobody specifies what follows.
    Unspecified,
}

impl Basis {
    /// The word in JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Specified => "specified",
            Self::Measured => "measured",
            Self::Unspecified => "unspecified",
        }
    }
}

impl PredictedEnd {
    /// An end that needs no platform to be known.
    #[must_use]
    pub fn specified(outcome: Outcome) -> Self {
        let basis = if outcome.data == Data::Undefined { Basis::Unspecified } else { Basis::Specified };
        Self { outcome, decided_by: BTreeSet::new(), basis }
    }
}

/// The ends of a run on a platform.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ends {
    /// All that were found, in the order of their outcomes.
    pub ends: Vec<PredictedEnd>,
    /// The class of the run with nothing but guarantees, where a rule is broken.
    pub guaranteed: Option<Class>,
    /// The bound that cut the search for more.
    pub bound: Option<BoundHit>,
}

/// Explores what a platform leaves open in the run of a witness.
///
/// # Errors
/// If the program cannot be evaluated.
pub fn ends(
    source: &Arc<dyn Source>,
    exploration: &Exploration,
    witness: &Witness,
    bounds: &Bounds,
) -> Result<Ends, SourceError> {
    let source = distinct(source);
    let (decided, guaranteed) = DecidedRun::of(&source, &exploration.config, &witness.choices);
    let config =
        Config { in_flight: InFlight::OfPlatform, mode: Mode::Reduced, ..exploration.config.clone() };
    let found = explore_as_decided(&source, config, bounds, decided)?;
    let several = found.outcomes.len() > 1;
    let machine = Machine::new(source, found.config.clone());
    let ends = found.outcomes.into_iter().map(|(outcome, choices)| {
        let basis = if outcome.data == Data::Undefined {
            Basis::Unspecified
        } else if outcome == guaranteed {
            Basis::Specified
        } else {
            Basis::Measured
        };
        let decided_by = if several { left_open(&machine, &choices) } else { BTreeSet::new() };
        PredictedEnd { outcome, decided_by, basis }
    });
    Ok(Ends { ends: ends.collect(), guaranteed: Some(guaranteed.class), bound: found.bound })
}

/// The outcomes of runs that break a rule.
fn broken_outcomes(exploration: &Exploration) -> impl Iterator<Item = &Outcome> {
    exploration.outcomes.keys().filter(|outcome| !outcome.findings.is_empty())
}

/// The classes of all runs that break a rule.
#[must_use]
pub fn failing(exploration: &Exploration) -> BTreeSet<Class> {
    broken_outcomes(exploration).map(|outcome| outcome.class).collect()
}

/// Whether the platform may make something else of runs that break a rule with nothing but guarantees: of one that stands still
/// where NCCL need not hold back everybody, or tells those who wait for a rank that is dead.
#[must_use]
pub fn may_end_otherwise(exploration: &Exploration) -> bool {
    let is_dead = |rank: &RankOutcome| matches!(rank, RankOutcome::Dead(_));
    let stands = |rank: &RankOutcome| match rank {
        // Whoever waits may have been ended with the job.
        RankOutcome::HostHang(_) | RankOutcome::GpuHang(_) | RankOutcome::Dead(_) => true,
        RankOutcome::Finishes | RankOutcome::Undefined => false,
    };
    let ranks = || broken_outcomes(exploration).flat_map(|outcome| &outcome.ranks);
    let lets_go = exploration.may_let_go || ranks().any(is_dead);
    exploration.config.in_flight == InFlight::Nothing && lets_go && ranks().any(stands)
}

/// Whether a value is the platform's, and not one of the run.
fn is_of_platform(of: &Nondet) -> bool {
    match of {
        Nondet::InFlight | Nondet::Serialized => true,
        Nondet::Choose(..)
        | Nondet::Fault(_)
        | Nondet::Poll(_)
        | Nondet::Deferred(_)
        | Nondet::AddressOrder(_)
        | Nondet::HashOrder(_)
        | Nondet::CommOrder(_)
        | Nondet::AddressReuse
        | Nondet::Havoc(_) => false,
    }
}

/// What the platform left open in a run, and how it went, in words.
fn left_open(machine: &Machine, choices: &[Choice]) -> BTreeSet<String> {
    let mut words = BTreeSet::new();
    let mut state = machine.init();
    machine.advance(&mut state);
    for choice in choices {
        if let Choice::Value(rank, thread, values) = choice {
            let values = machine.nondet_of(&state, *rank, *thread, values).into_iter();
            let open = values.filter(|(of, _)| is_of_platform(of));
            words.extend(open.map(|(of, value)| machine.nondet_name(&of, value)));
        }
        machine.take(&mut state, choice);
        machine.advance(&mut state);
    }
    words
}

/// A thread, and how many operations and questions it has done.
type DecidedAt = (Rank, Thread, u32);

/// The values and the schedule of a run.
#[derive(Debug, Default)]
pub(crate) struct DecidedRun {
    values: BTreeMap<DecidedAt, Vec<u32>>,
    /// For each turn when it comes, first of all 0.
    turns: BTreeMap<Turn, usize>,
}

impl DecidedRun {
    /// Whether nothing is decided.
    pub(super) fn is_empty(&self) -> bool {
        self.values.is_empty() && self.turns.is_empty()
    }

    /// What is decided in a run, and how it ends.
    fn of(source: &Arc<dyn Source>, config: &Config, choices: &[Choice]) -> (Self, Outcome) {
        let machine = Machine::new(Arc::clone(source), config.clone());
        let reduced = config.mode == Mode::Reduced;
        let mut run = Self::default();
        let mut state = machine.init();
        if reduced {
            machine.advance(&mut state);
        }
        for choice in choices {
            if let Choice::Value(rank, thread, values) = choice {
                let own = own_values(&machine, &state, (*rank, *thread), values);
                run.values.entry(position(&machine, &state, *rank, *thread)).or_default().extend(own);
            }
            // Without reduction every step is a choice, and their order says nothing.
            if reduced && let Some(turn) = Turn::of(&machine, &state, choice) {
                let nth = run.turns.len();
                run.turns.entry(turn).or_insert(nth);
            }
            machine.take(&mut state, choice);
            if reduced {
                machine.advance(&mut state);
            }
        }
        machine.finish(&mut state);
        let outcome = machine.outcome(&state);
        (run, outcome)
    }

    /// Leaves of the choices that are possible those of the run. Where it has none of them, it has come to an end
    /// earlier, and nothing is decided.
    pub(crate) fn keep(&self, machine: &Machine, state: &State, choices: &mut Vec<Choice>) {
        if choices.len() < 2 || self.is_empty() {
            return;
        }
        let when = |choice: &Choice| {
            Turn::of(machine, state, choice).and_then(|turn| self.turns.get(&turn).copied())
        };
        if let Some(first) = choices.iter().filter_map(when).min() {
            choices.retain(|choice| when(choice) == Some(first));
        }
        let fits = |choice: &Choice| {
            let Choice::Value(rank, thread, values) = choice else { return true };
            // What did not fail in the run does not fail now, though it may be asked before what failed there.
            let Some(decided) = self.values.get(&position(machine, state, *rank, *thread)) else {
                return !fails(machine, state, choice);
            };
            own_values(machine, state, (*rank, *thread), values) == *decided
        };
        if choices.iter().any(fits) {
            choices.retain(fits);
        }
    }
}

fn position(machine: &Machine, state: &State, rank: Rank, thread: Thread) -> DecidedAt {
    (rank, thread, machine.next_op(state, rank, thread).index)
}

/// The values of a choice that are not the platform's.
fn own_values(machine: &Machine, state: &State, (rank, thread): (Rank, Thread), values: &[u32]) -> Vec<u32> {
    let values = machine.nondet_of(state, rank, thread, values).into_iter();
    values.filter(|(of, _)| !is_of_platform(of)).map(|(_, value)| value).collect()
}
