//! The run that breaks a rule, in JSON: the finding, its cause, and every step.
//!
//! Not here: what is found out about it ([`crate::search::explain`]).

use rankcheck_model::Rank;
use serde::Serialize;

use super::{OutcomeEntry, outcome_entry, place};
use crate::report::text::{cause, lanes};
use crate::search::PredictedEnd;
use crate::search::repair::Repair;
use crate::search::{Blocked, Counterexample, Decided, Decision, Lane, Located, Operation, Replayed, Step};

/// A run that breaks a rule.
#[derive(Debug, Serialize)]
pub(super) struct CounterexampleEntry {
    rule: &'static str,
    /// The object that the finding is about.
    about: String,
    sentence: String,
    /// The operations of the finding, the blocked or failing one first.
    at: Vec<CallEntry>,
    because: Option<String>,
    /// Changes with which the program holds; null where they were not looked for.
    repairs: Option<Vec<RepairEntry>>,
    /// Operations and causes that were not tried to the end.
    untried: usize,
    lanes: Vec<LaneEntry>,
    decisions: Vec<DecisionEntry>,
    steps: Vec<StepEntry>,
    blocked: Vec<BlockedEntry>,
    outcome: OutcomeEntry,
}

/// An operation, and where it is written.
#[derive(Debug, Serialize)]
struct CallEntry {
    rank: u32,
    thread: u32,
    call: Option<String>,
    place: String,
}

/// A change with which the program holds.
#[derive(Debug, Serialize)]
struct RepairEntry {
    /// What is changed, in words.
    change: String,
    /// Rank counts at which the changed program was explored and holds.
    holds_at: Vec<u32>,
    /// Rank counts at which a bound was hit first.
    unknown_at: Vec<u32>,
    /// Rank counts that the check does not name, at which the changed program does not hold.
    fails_at: Vec<u32>,
}

/// What a rank does, as far as the text report shows it.
#[derive(Debug, Serialize)]
struct LaneEntry {
    rank: u32,
    calls: Vec<LaneCallEntry>,
}

#[derive(Debug, Serialize)]
struct LaneCallEntry {
    thread: u32,
    call: String,
    stream: Option<String>,
    place: String,
    /// Whether the text report puts brackets around it.
    bracketed: bool,
}

/// A choice of the run.
#[derive(Debug, Serialize)]
struct DecisionEntry {
    rank: u32,
    thread: u32,
    call: String,
    place: String,
    stream: Option<String>,
    /// What is decided, in words.
    decided: Vec<String>,
    values: Option<Vec<u32>>,
}

/// One step of a host thread or a stream.
#[derive(Debug, Serialize)]
struct StepEntry {
    rank: u32,
    /// The host thread that took it; null for work of a stream.
    thread: Option<u32>,
    /// The stream that took it, or on which it launches something.
    stream: Option<String>,
    call: Option<String>,
    place: String,
    /// Where the graph was launched that replays it.
    replayed_by: Option<String>,
    /// The steps that it met, as positions in `steps`.
    meets: Vec<usize>,
    /// Steps of other lanes that it is ordered after, as positions in `steps`.
    after: Vec<usize>,
}

/// What is not over when nothing can run any more.
#[derive(Debug, Serialize)]
struct BlockedEntry {
    rank: u32,
    thread: Option<u32>,
    stream: Option<String>,
    call: Option<String>,
    place: String,
    /// What it waits in, in words.
    waits_in: String,
    waits_for: Vec<CallEntry>,
    /// Ranks that exited, or go on somewhere else.
    waits_in_vain_for: Vec<u32>,
}

fn repairs(shown: &Counterexample) -> Option<Vec<RepairEntry>> {
    let entry = |repair: &Repair| RepairEntry {
        change: repair.change.words(),
        holds_at: repair.holds_at.clone(),
        unknown_at: repair.unknown_at.clone(),
        fails_at: repair.fails_at.clone(),
    };
    shown.repairs.as_ref().map(|repairs| repairs.found.iter().map(entry).collect())
}

impl CounterexampleEntry {
    pub(super) fn of(shown: &Counterexample, ranks: u32) -> Self {
        let Counterexample { broken, run, .. } = shown;
        let of_ranks = lanes(shown, ranks);
        let lane = |(rank, calls): &(Rank, Vec<&Operation>)| LaneEntry {
            rank: rank.0,
            calls: calls.iter().map(|operation| in_lane(shown, operation)).collect(),
        };
        Self {
            rule: broken.rule.id(),
            about: broken.about.clone(),
            sentence: broken.sentence.clone(),
            at: broken.ops.iter().map(|at| call(run, at)).collect(),
            because: cause(shown),
            repairs: repairs(shown),
            untried: shown.untried,
            lanes: of_ranks.iter().map(lane).collect(),
            decisions: run.decisions.iter().map(decision).collect(),
            steps: steps(run),
            blocked: run.blocked.iter().map(|stuck| blocked(run, stuck)).collect(),
            outcome: outcome_entry(&PredictedEnd::specified(run.outcome.clone())),
        }
    }
}

fn text(run: &Replayed, at: &Located) -> Option<String> {
    run.operation(at).map(|operation| operation.call.clone())
}

fn call(run: &Replayed, at: &Located) -> CallEntry {
    CallEntry { rank: at.op.rank.0, thread: at.op.thread.0, call: text(run, at), place: place(&at.loc) }
}

fn in_lane(shown: &Counterexample, operation: &Operation) -> LaneCallEntry {
    LaneCallEntry {
        thread: operation.at.op.thread.0,
        call: operation.call.clone(),
        stream: operation.stream.clone(),
        place: place(&operation.at.loc),
        bracketed: shown.essential.iter().any(|essential| essential.is(&operation.at)),
    }
}

fn decision(decision: &Decision) -> DecisionEntry {
    let Decision { at, op, stream, decided } = decision;
    let (words, values) = match decided {
        Decided::Values { values, words } => (words.clone(), Some(values.clone())),
        Decided::Order(words) => (vec![words.clone()], None),
    };
    DecisionEntry {
        rank: at.op.rank.0,
        thread: at.op.thread.0,
        call: op.clone(),
        place: place(&at.loc),
        stream: stream.clone(),
        decided: words,
        values,
    }
}

fn steps(run: &Replayed) -> Vec<StepEntry> {
    let step = |step: &Step| {
        let (rank, thread, on) = lane(&step.lane);
        let launches = || run.operation(&step.at).and_then(|operation| operation.stream.clone());
        StepEntry {
            rank,
            thread,
            stream: on.or_else(launches),
            call: text(run, &step.at),
            place: place(&step.at.loc),
            replayed_by: step.replayed_by.as_ref().map(|launch| place(&launch.loc)),
            meets: Vec::new(),
            after: Vec::new(),
        }
    };
    let mut steps: Vec<StepEntry> = run.steps.iter().map(step).collect();
    for meeting in &run.meetings {
        for one in meeting {
            steps[*one].meets.extend(meeting.iter().filter(|other| *other != one));
        }
    }
    for (earlier, later) in &run.order {
        steps[*later].after.push(*earlier);
    }
    steps
}

fn blocked(run: &Replayed, stuck: &Blocked) -> BlockedEntry {
    let (rank, thread, stream) = lane(&stuck.lane);
    BlockedEntry {
        rank,
        thread,
        stream,
        call: text(run, &stuck.at),
        place: place(&stuck.at.loc),
        waits_in: stuck.text.clone(),
        waits_for: stuck.waits_for.iter().map(|at| call(run, at)).collect(),
        waits_in_vain_for: stuck.waits_in_vain_for.iter().map(|rank| rank.0).collect(),
    }
}

/// Rank, host thread and stream of a lane.
fn lane(lane: &Lane) -> (u32, Option<u32>, Option<String>) {
    match lane {
        Lane::Thread(rank, thread) => (rank.0, Some(thread.0), None),
        Lane::Stream(rank, stream) => (rank.0, None, Some(stream.clone())),
    }
}
