//! The run that shows a finding: replayed with words, and cut down to what matters.
//!
//! Operations are named only if leaving either of them out changes the verdict; that is tried, not guessed.
//! Not here: layout.

use std::collections::BTreeSet;
use std::sync::Arc;

use rankcheck_model::machine::Logged;
use rankcheck_model::{
    Choice, Config, Data, Explain, Finding, Machine, Mode, OpRef, Outcome, Rank, Rule, Source, SourceError,
    Thread,
};

use crate::explore::{Exploration, Witness};
use crate::verify::{Options, Verdict, explored};

/// A choice of a run, in words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// Rank.
    pub rank: Rank,
    /// Thread.
    pub thread: Thread,
    /// The operation or question at which luck had a say.
    pub op: OpRef,
    /// What it was about, for example `this allocation fails`.
    pub text: String,
    /// Whether luck picked, or only an order was chosen.
    pub picked: bool,
}

/// A replayed run.
pub struct Replay {
    /// What luck did.
    pub steps: Vec<Step>,
    /// The operations and questions, in the order in which this run did them.
    pub log: Vec<Logged>,
    /// The findings, with sentences.
    pub findings: Vec<Finding>,
    /// How it ends.
    pub outcome: Outcome,
    /// The machine, for names and places.
    pub machine: Machine,
}

/// Why a replay does not fit the program.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The program cannot be evaluated.
    #[error("{0}")]
    Source(#[from] SourceError),
    /// A recorded choice is not among those possible now.
    #[error("choice {nth} of the trace no longer fits: {recorded}; possible here: {possible}")]
    Misfit {
        /// Position, from 1.
        nth: usize,
        /// What was recorded.
        recorded: String,
        /// What could be done instead.
        possible: String,
    },
}

/// Replays choices, in original rank numbers.
///
/// # Errors
/// If a choice does not fit.
pub fn replay(source: &Arc<dyn Source>, config: &Config, choices: &[Choice]) -> Result<Replay, ReplayError> {
    let config = Config { explain: Explain::Yes, ..config.clone() };
    let reduced = config.mode == Mode::Reduced;
    let machine = Machine::new(Arc::clone(source), config);
    let mut state = machine.init();
    if reduced {
        machine.advance(&mut state);
    }
    let mut steps = Vec::new();
    for (at, choice) in choices.iter().enumerate() {
        match choice {
            Choice::Pick(rank, thread, picks) => {
                let about = machine.picks_of(&state, *rank, *thread, picks);
                if about.is_empty() {
                    let recorded = format!("rank {} thread {} picks {picks:?}", rank.0, thread.0);
                    let possible = format!("{} other choices", machine.choices(&state).len());
                    return Err(ReplayError::Misfit { nth: at + 1, recorded, possible });
                }
                let op = machine.next_op(&state, *rank, *thread);
                for (of, pick) in about {
                    let text = machine.pick_name(&of, pick);
                    steps.push(Step { rank: *rank, thread: *thread, op, text, picked: true });
                }
            }
            // Without reduction every step is a choice; only what luck picks is worth telling.
            Choice::Thread(..) if !reduced => {}
            Choice::Thread(rank, thread) => {
                let op = machine.next_op(&state, *rank, *thread);
                let name = machine.next_name(&state, *rank, *thread);
                // A call that waits for other ranks runs in two parts.
                let text = match Machine::waits_in(&state, *rank, *thread) {
                    Some(_) => format!("{name} returns first"),
                    None => format!("{name} goes first"),
                };
                steps.push(Step { rank: *rank, thread: *thread, op, text, picked: false });
            }
            Choice::Stream(rank, stream) if reduced => {
                if let Some((op, name)) = machine.head(&state, *rank, *stream) {
                    let text = format!("{name} goes first");
                    steps.push(Step { rank: *rank, thread: op.thread, op, text, picked: false });
                }
            }
            Choice::Stream(..) | Choice::Transfer(_) | Choice::Meet(_) => {}
        }
        machine.take(&mut state, choice);
        if reduced {
            machine.advance(&mut state);
        }
    }
    // A trace that ends before the run does shows nothing.
    let open = if reduced { machine.choices(&state) } else { Vec::new() };
    let stands = match open.first() {
        Some(Choice::Pick(rank, thread, _) | Choice::Thread(rank, thread)) => {
            Some((rank, machine.next_name(&state, *rank, *thread)))
        }
        Some(Choice::Stream(rank, stream)) => {
            machine.head(&state, *rank, *stream).map(|(_, name)| (rank, name))
        }
        Some(Choice::Transfer(_) | Choice::Meet(_)) | None => None,
    };
    if let Some((rank, at)) = stands {
        return Err(ReplayError::Misfit {
            nth: choices.len() + 1,
            recorded: "the end of the trace".to_owned(),
            possible: format!("rank {} stands at {at}", rank.0),
        });
    }
    machine.log_blocked(&state);
    if let Some(rankcheck_model::Interruption::Source(error)) = machine.interruption() {
        return Err(error.into());
    }
    machine.finish(&mut state);
    let outcome = machine.outcome(&state);
    let findings = state.findings().values().map(|finding| Finding::clone(finding)).collect();
    Ok(Replay { steps, log: machine.log(), findings, outcome, machine })
}

/// A failing run, explained.
pub struct Explanation {
    /// The run.
    pub replay: Replay,
    /// The finding of the rule that is explained.
    pub finding: Finding,
    /// Two operations without either of which the verdict is another, the blocked or failing one first.
    pub named: Vec<OpRef>,
    /// Operations of the run that the lanes show, by rank.
    pub lanes: Vec<(Rank, Vec<Logged>)>,
    /// Operations of the whole run.
    pub operations: usize,
}

/// Explains how a rule is broken, by its witness.
///
/// # Errors
/// If the program cannot be evaluated.
pub fn explain(
    source: &Arc<dyn Source>,
    exploration: &Exploration,
    rule: Rule,
    witness: &Witness,
    options: &Options,
) -> Result<Option<Explanation>, ReplayError> {
    let replay = replay(source, &exploration.config, &witness.choices)?;
    let Some(finding) = replay.findings.iter().find(|finding| finding.rule == rule).cloned() else {
        return Ok(None);
    };
    let named = named(source, exploration, &replay, &finding, options)?;
    let lanes = lanes(&replay, &finding, &named, exploration.config.ranks);
    let operations = replay.log.iter().filter(|logged| !logged.asks).count();
    Ok(Some(Explanation { replay, finding, named, lanes, operations }))
}

/// The verdict without one operation.
///
/// # Errors
/// If the program cannot be evaluated.
pub fn without(
    source: &Arc<dyn Source>,
    config: &Config,
    op: &OpRef,
    options: &Options,
) -> Result<(Verdict, BTreeSet<Outcome>), SourceError> {
    let mut config = config.clone();
    config.left_out.insert((op.rank, op.thread, op.index));
    let exploration = explored(source, config, options)?;
    Ok((Verdict::of(&exploration), exploration.outcomes.into_keys().collect()))
}

/// Whether leaving an operation out changes the verdict: its rules, its class, or how ranks end.
///
/// # Errors
/// If the program cannot be evaluated.
pub fn matters(
    source: &Arc<dyn Source>,
    exploration: &Exploration,
    op: &OpRef,
    options: &Options,
) -> Result<bool, SourceError> {
    let (verdict, outcomes) = without(source, &exploration.config, op, options)?;
    let ends = |outcomes: &mut dyn Iterator<Item = &Outcome>| -> BTreeSet<_> {
        outcomes.map(|o| (o.findings.clone(), o.ranks.clone(), o.class, o.data == Data::Undefined)).collect()
    };
    Ok(verdict != Verdict::of(exploration)
        || ends(&mut outcomes.iter()) != ends(&mut exploration.outcomes.keys()))
}

fn named(
    source: &Arc<dyn Source>,
    exploration: &Exploration,
    replay: &Replay,
    finding: &Finding,
    options: &Options,
) -> Result<Vec<OpRef>, ReplayError> {
    /// Candidates tried for the second operation.
    const TRIED_AT_MOST: usize = 24;
    let picked: Vec<OpRef> = replay.steps.iter().filter(|step| step.picked).map(|step| step.op).collect();
    let is = |a: &OpRef, b: &OpRef| (a.rank, a.thread, a.index) == (b.rank, b.thread, b.index);
    // Locks that the pool takes for its hooks are nobody's operation.
    let nameable = |op: &OpRef| {
        replay.log.iter().any(|l| is(&l.op, op) && !l.asks && !l.text.contains("allocator's lock"))
    };
    // What the finding names, then where luck decided, then what came last before it.
    let earlier = replay.log.iter().rev().map(|logged| logged.op);
    let all: Vec<OpRef> =
        finding.ops.iter().copied().chain(picked).chain(earlier).filter(|op| nameable(op)).collect();
    let mut named: Vec<OpRef> = Vec::new();
    let mut tried: BTreeSet<OpRef> = BTreeSet::new();
    for elsewhere in [true, false] {
        for candidate in &all {
            // The second is on another rank where there is one that matters.
            let apart = named.first().is_none_or(|first| first.rank != candidate.rank);
            if named.len() == 2 || tried.len() >= TRIED_AT_MOST || (elsewhere && !apart) {
                continue;
            }
            if tried.insert(*candidate) && matters(source, exploration, candidate, options)? {
                named.push(*candidate);
            }
        }
    }
    Ok(named)
}

/// The operations that a reader needs: on the ranks of the finding, what touches others, and what is named.
fn lanes(replay: &Replay, finding: &Finding, named: &[OpRef], ranks: u32) -> Vec<(Rank, Vec<Logged>)> {
    let mut shown: BTreeSet<Rank> = finding.ops.iter().chain(named).map(|op| op.rank).collect();
    for rank in 0..ranks.min(2) {
        if shown.len() < 2 {
            shown.insert(Rank(rank));
        }
    }
    let visible = |logged: &Logged| {
        let name = |op: &OpRef| (op.rank, op.thread, op.index);
        let is = name(&logged.op);
        named.iter().any(|op| name(op) == is) || finding.ops.iter().any(|op| name(op) == is) || logged.shown
    };
    shown
        .into_iter()
        .take(4)
        .map(|rank| {
            let of = replay.log.iter().filter(|logged| logged.op.rank == rank && visible(logged));
            (rank, of.cloned().collect())
        })
        .collect()
}
