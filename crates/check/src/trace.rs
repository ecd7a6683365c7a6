//! Trace files: a run as a list of what luck did, that survives edits of the spec.
//!
//! No indices: each choice is recorded by rank, thread, operation in words, place and picks. A replay aligns
//! by these and names the first that no longer fits. Documented in `docs/trace-file.md`.
//! Not here: how a run is explained.

use std::sync::Arc;

use rankcheck_model::{Choice, Config, Machine, Rank, Source, Thread};
use serde::{Deserialize, Serialize};

use crate::search::explain::{Replay, ReplayError, replay};
use crate::search::explore::{Exploration, Witness};

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
    pub steps: Vec<Step>,
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
pub struct Step {
    /// Rank.
    pub rank: u32,
    /// Host thread.
    pub thread: u32,
    /// The operation, in words.
    pub op: String,
    /// `file:line` in the spec.
    pub place: String,
}

fn place(machine: &Machine, op: &rankcheck_model::OpRef) -> String {
    let place = machine.place(op);
    format!("{}:{}", place.file, place.line)
}

/// The choices and steps of a witness.
///
/// # Errors
/// If the program cannot be evaluated.
pub fn record(
    source: &Arc<dyn Source>,
    exploration: &Exploration,
    witness: &Witness,
) -> Result<(Vec<Chosen>, Vec<Step>), ReplayError> {
    let run = replay(source, &exploration.config, &witness.choices)?;
    let machine = Machine::new(Arc::clone(source), exploration.config.clone());
    let mut state = machine.init();
    machine.advance(&mut state);
    let mut choices = Vec::new();
    for choice in &witness.choices {
        if let Some(chosen) = describe(&machine, &state, choice) {
            choices.push(chosen);
        }
        machine.take(&mut state, choice);
        machine.advance(&mut state);
    }
    let steps = run.log.iter().map(|logged| Step {
        rank: logged.op.rank.0,
        thread: logged.op.thread.0,
        op: logged.text.clone(),
        place: place(&run.machine, &logged.op),
    });
    Ok((choices, steps.collect()))
}

fn describe(machine: &Machine, state: &rankcheck_model::State, choice: &Choice) -> Option<Chosen> {
    let (rank, thread, picks) = match choice {
        Choice::Pick(rank, thread, picks) => (*rank, *thread, Some(picks.clone())),
        Choice::Thread(rank, thread) => (*rank, *thread, None),
        Choice::Stream(rank, stream) => {
            let (op, words) = machine.head(state, *rank, *stream)?;
            return Some(Chosen {
                rank: rank.0,
                thread: op.thread.0,
                stream: Some(machine.stream_name(state, *rank, *stream).to_string()),
                at: words,
                place: place(machine, &op),
                picks: None,
            });
        }
        Choice::Transfer(_) | Choice::Meet(_) => return None,
    };
    let op = machine.next_op(state, rank, thread);
    Some(Chosen {
        rank: rank.0,
        thread: thread.0,
        stream: None,
        at: machine.next_name(state, rank, thread),
        place: place(machine, &op),
        picks,
    })
}

/// Aligns recorded choices with a program that may have been edited since.
///
/// # Errors
/// If a choice no longer fits; the error names the first.
pub fn align(source: &Arc<dyn Source>, config: &Config, choices: &[Chosen]) -> Result<Replay, ReplayError> {
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
        let now = known.then(|| describe_safely(&machine, &state, &choice)).flatten();
        let fits = now.as_ref().is_some_and(|now| now.at == chosen.at) && machine.possible(&state, &choice);
        if !fits {
            return Err(ReplayError::Misfit {
                nth: nth + 1,
                recorded: format!("rank {} thread {}: {} ({})", rank.0, thread.0, chosen.at, chosen.place),
                possible: now.map_or_else(
                    || "that thread or stream does not exist here".to_owned(),
                    |now| format!("rank {} stands at {} ({})", rank.0, now.at, now.place),
                ),
            });
        }
        machine.take(&mut state, &choice);
        machine.advance(&mut state);
        aligned.push(choice);
    }
    Ok(aligned)
}

fn describe_safely(machine: &Machine, state: &rankcheck_model::State, choice: &Choice) -> Option<Chosen> {
    let exists = match choice {
        Choice::Pick(rank, thread, _) | Choice::Thread(rank, thread) => {
            thread.at() < state.rank(*rank).threads.len()
        }
        Choice::Stream(..) => true,
        Choice::Transfer(_) | Choice::Meet(_) => false,
    };
    exists.then(|| describe(machine, state, choice)).flatten()
}
