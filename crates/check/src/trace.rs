//! Trace files: a run as a list of what luck did, that survives edits of the spec.
//!
//! No indices: each choice is recorded by rank, thread, operation in words, place and picks. What is written is a
//! function of an [`Explained`]. A replay aligns by these and names the first that no longer fits. Documented in
//! `docs/trace-file.md`.
//! Not here: how a run is explained.

use std::sync::Arc;

use rankcheck_model::{Choice, Config, Machine, Place, Rank, Source, State, Thread};
use serde::{Deserialize, Serialize};

use crate::search::replay::{ReplayError, Replayed, Subject, replay, subject};
use crate::search::{Asked, Decided, Decision, Explained};

/// Raised whenever a field changes its meaning or goes away.
pub const SCHEMA_VERSION: u32 = 1;

/// A run of a check.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Trace {
    /// [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// The spec file.
    pub file: String,
    /// Digest of the spec's text and of what it loads.
    pub digest: String,
    /// Name of the check.
    pub check: String,
    /// Rank count.
    pub ranks: u32,
    /// Parameters, as they print.
    pub params: Vec<(String, String)>,
    /// Platform.
    pub platform: String,
    /// Rule that the run breaks.
    pub rule: String,
    /// What luck did.
    pub choices: Vec<Chosen>,
    /// What the ranks did, in this run's order.
    pub steps: Vec<TraceStep>,
}

/// One choice.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chosen {
    /// Rank.
    pub rank: u32,
    /// Host thread; of a turn of a stream, the one that launched the operation.
    pub thread: u32,
    /// The stream whose turn it is; absent where it is a host thread's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stream: Option<String>,
    /// The operation or question, in words.
    pub at: String,
    /// `file:line` in the spec.
    pub place: String,
    /// What luck picked; absent where only the order was chosen.
    pub picks: Option<Vec<u32>>,
}

/// One operation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceStep {
    /// Rank.
    pub rank: u32,
    /// Host thread.
    pub thread: u32,
    /// The operation, in words.
    pub op: String,
    /// `file:line` in the spec.
    pub place: String,
}

impl Trace {
    /// The trace of a check that fails; none if its run was not told, and for checks that run no program.
    #[must_use]
    pub fn of(explained: &Explained) -> Option<Self> {
        let shown = explained.counterexample.as_ref().filter(|_| explained.asked == Asked::Rules)?;
        let run = explained.run();
        let steps = shown.run.operations.iter().map(|operation| TraceStep {
            rank: operation.at.op.rank.0,
            thread: operation.at.op.thread.0,
            op: operation.text.clone(),
            place: line(&operation.at.place),
        });
        Some(Self {
            schema_version: SCHEMA_VERSION,
            file: explained.file.clone(),
            digest: explained.digest.clone(),
            check: explained.name.clone(),
            ranks: run.ranks,
            params: run.params.iter().map(|(name, value)| (name.clone(), value.to_string())).collect(),
            platform: run.platform.name().to_owned(),
            rule: shown.broken.rule.id().to_owned(),
            choices: shown.run.decisions.iter().map(Chosen::of).collect(),
            steps: steps.collect(),
        })
    }
}

impl Chosen {
    fn of(decision: &Decision) -> Self {
        let Decision { at, op, stream, decided } = decision;
        Self {
            rank: at.op.rank.0,
            thread: at.op.thread.0,
            stream: stream.clone(),
            at: op.clone(),
            place: line(&at.place),
            picks: match decided {
                Decided::Values { picks, .. } => Some(picks.clone()),
                Decided::Order(_) => None,
            },
        }
    }
}

fn line(place: &Place) -> String {
    format!("{}:{}", place.file, place.line)
}

/// Aligns recorded choices with a program that may have been edited since.
///
/// # Errors
/// If a choice no longer fits; the error names the first.
pub fn align(source: &Arc<dyn Source>, config: &Config, choices: &[Chosen]) -> Result<Replayed, ReplayError> {
    replay(source, config, &aligned(source, config, choices)?)
}

/// The choices of the program as it is now that recorded ones stand for.
///
/// # Errors
/// If a choice no longer fits; the error names the first.
pub fn aligned(
    source: &Arc<dyn Source>,
    config: &Config,
    choices: &[Chosen],
) -> Result<Vec<Choice>, ReplayError> {
    let machine = Machine::new(Arc::clone(source), config.clone());
    let mut state = machine.init();
    machine.advance(&mut state);
    let mut aligned = Vec::new();
    for (nth, chosen) in choices.iter().enumerate() {
        let (rank, thread) = (Rank(chosen.rank), Thread(chosen.thread));
        let known = rank.0 < config.ranks;
        let stream = chosen.stream.as_ref().filter(|_| known);
        let stream = stream.map(|name| machine.stream_named(&state, rank, name).unwrap_or(u32::MAX));
        let choice = match (&chosen.picks, stream) {
            (Some(picks), _) => Choice::Pick(rank, thread, picks.clone()),
            (None, Some(stream)) => Choice::Stream(rank, stream),
            (None, None) => Choice::Thread(rank, thread),
        };
        // Places move when a spec is edited; what is done there tells whether it is still the same choice.
        let now = known.then(|| stands_at(&machine, &state, &choice)).flatten();
        let fits = now.as_ref().is_some_and(|now| now.op == chosen.at) && machine.possible(&state, &choice);
        if !fits {
            return Err(ReplayError::Misfit {
                nth: nth + 1,
                recorded: format!("rank {} thread {}: {} ({})", rank.0, thread.0, chosen.at, chosen.place),
                possible: now.map_or_else(
                    || "that thread or stream does not exist here".to_owned(),
                    |now| format!("rank {} stands at {} ({})", rank.0, now.op, line(&now.at.place)),
                ),
            });
        }
        machine.take(&mut state, &choice);
        machine.advance(&mut state);
        aligned.push(choice);
    }
    Ok(aligned)
}

/// What a choice is about, if its thread or stream exists.
fn stands_at(machine: &Machine, state: &State, choice: &Choice) -> Option<Subject> {
    let exists = match choice {
        Choice::Pick(rank, thread, _) | Choice::Thread(rank, thread) => {
            thread.at() < state.rank(*rank).threads().len()
        }
        Choice::Stream(..) => true,
        Choice::Transfer(_) | Choice::Meet(_) => false,
    };
    exists.then(|| subject(machine, state, choice)).flatten()
}
