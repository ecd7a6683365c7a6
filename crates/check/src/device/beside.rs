//! What devices did with the programs of a check, rank by rank, beside what the model says of the program.
//!
//! Not here: whether the two agree ([`mod@super::compare`]), and where observations lie ([`super::observation`]).

use std::path::Path;

use rankcheck_model::{Outcome, RankOutcome};
use rankcheck_real::case::{CommHistory, Ended, Forced, Held, NondetValue, RankReport, Report};

use super::observation::{Observation, ObservationError};
use super::seen::observed;
use super::{Agreement, Judgement, Predictions, compare};
use crate::spec::{Check, Spec, SpecError};

/// One behaviour of devices with one program.
#[derive(Debug, Clone)]
pub struct Beside {
    /// How many ranks ran the program.
    pub ranks: u32,
    /// Parameters, as they print.
    pub params: Vec<(String, String)>,
    /// NCCL version, GPU, and whether its communicators were used.
    pub machine: String,
    /// What was forced in the run that nobody determines, in words; empty if nothing was.
    pub forced: String,
    /// In how many runs it was seen.
    pub count: u32,
    /// Whether the model has it.
    pub judgement: Judgement,
    /// Rank by rank, what the model says and what the device did.
    pub each: Vec<RankBeside>,
}

/// What a device did with the part of one rank, in words.
#[derive(Debug, Clone)]
pub struct RankBeside {
    /// How the rank may end, as the model says.
    pub predicted: String,
    /// How it ended on the device.
    pub ended: String,
    /// What each of its buffers held; empty where they were not read, as behind a hang.
    pub held: Vec<String>,
}

/// What devices did with a check, as far as it is known and of the program as it is now.
#[derive(Debug, Default)]
pub struct SeenOfCheck {
    /// Every behaviour, machine by machine.
    pub behaviours: Vec<Beside>,
    /// How many observations are of another program than the check has now.
    pub stale: usize,
    /// Why observations could not be read, if so.
    pub unread: Option<ObservationError>,
}

/// Reads what devices did with a check, from the observations beside its spec.
///
/// # Errors
/// If the program cannot be evaluated.
pub fn beside(spec: &Spec, check: &Check) -> Result<SeenOfCheck, SpecError> {
    let mut seen = SeenOfCheck::default();
    let path = Path::new(&spec.path);
    let Some((from_above, observations)) = observed(path) else { return Ok(seen) };
    let observations = match observations {
        Ok(observations) => observations,
        Err(error) => {
            seen.unread = Some(error);
            return Ok(seen);
        }
    };
    let of = |o: &&Observation| o.program.check == check.name && o.program.spec == from_above;
    for observation in observations.iter().filter(of) {
        let Some(predictions) = observation.predictions(spec)? else {
            seen.stale += 1;
            continue;
        };
        for behaviour in &observation.seen {
            let report = Report { ranks: behaviour.ranks.clone(), took: std::time::Duration::ZERO };
            let each = behaviour.ranks.iter().zip(0..).map(|(device, rank)| RankBeside {
                predicted: possible(&predictions, &behaviour.forced, rank),
                ended: reported(device),
                held: device.held.iter().map(held).collect(),
            });
            seen.behaviours.push(Beside {
                ranks: observation.program.ranks,
                params: observation.program.params.clone(),
                machine: machine(observation),
                forced: forced(&behaviour.forced),
                count: behaviour.count,
                judgement: compare(&predictions, &behaviour.forced, &report),
                each: each.collect(),
            });
        }
    }
    Ok(seen)
}

/// Ends of a rank that are told at most.
const ENDS_AT_MOST: usize = 3;

/// How a rank may end, as the model says: first in the run with the same values, then in others. What is not forced, a
/// device may decide in another way.
fn possible(predictions: &Predictions, forced: &Forced, rank: usize) -> String {
    let (same, others): (Vec<_>, Vec<_>) = predictions.runs.iter().partition(|run| run.forced == *forced);
    let mut ends: Vec<String> = Vec::new();
    for run in same.into_iter().chain(others) {
        let end = predicted(&run.outcome, rank);
        if !ends.contains(&end) {
            ends.push(end);
        }
    }
    let more = ends.len().saturating_sub(ENDS_AT_MOST);
    ends.truncate(ENDS_AT_MOST);
    match (ends.is_empty(), more) {
        (true, _) => "not known".to_owned(),
        (false, 0) => ends.join(", or "),
        (false, more) => format!("{}, or in {more} other ways", ends.join(", or ")),
    }
}

impl SeenOfCheck {
    /// Whether some device did what the model does not have.
    #[must_use]
    pub fn disagrees(&self) -> bool {
        self.behaviours.iter().any(|of| matches!(of.judgement.agreement, Agreement::Disagrees(_)))
    }
}

fn machine(observation: &Observation) -> String {
    let used = if observation.comms == CommHistory::Warm { ", used communicators" } else { "" };
    format!("NCCL {}, {}{used}", observation.machine.nccl, observation.machine.gpu)
}

/// What was forced, in words: values that are not the usual ones, orders of addresses, and orders of calls.
fn forced(forced: &Forced) -> String {
    let values = forced.nondet.iter().flat_map(|(at, values)| values.iter().map(|value| (at.rank.0, value)));
    let mut words: Vec<String> = values.filter_map(|(rank, value)| forced_value(rank, value)).collect();
    for (rank, segments) in forced.addresses.iter().enumerate().filter(|(_, segments)| segments.len() > 1) {
        let names: Vec<String> = segments.iter().map(|of| format!("{}.{}", of.owner, of.nth)).collect();
        words.push(format!("addresses of rank {rank}: {}", names.join(" < ")));
    }
    if !forced.turns.is_empty() {
        words.push(format!("{} calls in a forced order", forced.turns.len()));
    }
    words.dedup();
    words.join("; ")
}

fn forced_value(rank: u32, value: &NondetValue) -> Option<String> {
    match value {
        NondetValue::Choose { option } => Some(format!("rank {rank} takes option {option}")),
        NondetValue::Fault { fails } => fails.then(|| format!("a call of rank {rank} fails")),
        NondetValue::Death { dies } => dies.then(|| format!("rank {rank} dies")),
        NondetValue::HashOrder { position } => {
            Some(format!("on rank {rank} a key comes at place {} of hash order", position + 1))
        }
        NondetValue::AddressReuse { which } => {
            (*which > 0).then(|| format!("rank {rank} gets a freed address again"))
        }
        NondetValue::Havoc { which } => {
            (*which > 0).then(|| format!("the pool of rank {rank} has a history"))
        }
        // Addresses and orders are told as a whole, and the rest nobody can force.
        NondetValue::Poll { .. }
        | NondetValue::AddressOrder { .. }
        | NondetValue::CommOrder { .. }
        | NondetValue::InFlight { .. }
        | NondetValue::Serialized { .. } => None,
    }
}

/// How a rank ends in the model, in words.
fn predicted(outcome: &Outcome, rank: usize) -> String {
    let mut text = match outcome.ranks.get(rank) {
        None | Some(RankOutcome::Undefined) => "nobody specifies".to_owned(),
        Some(RankOutcome::Finishes) => "finishes".to_owned(),
        Some(RankOutcome::HostHang(call)) => format!("host hang in {call}"),
        Some(RankOutcome::GpuHang(op)) => format!("GPU hang in {op}"),
        Some(RankOutcome::Dead(code)) => format!("dies: {code}"),
    };
    for error in outcome.errors.get(rank).into_iter().flatten() {
        text.push_str(&format!("; {} returns {}", error.call, error.code));
    }
    text
}

/// How a rank ended on a device, in words.
fn reported(report: &RankReport) -> String {
    let mut text = match &report.ended {
        Ended::Finishes => "finishes".to_owned(),
        Ended::HostHang { inside } => match inside.first() {
            Some((_, _, call)) => format!("host hang in {call}"),
            None => "host hang".to_owned(),
        },
        Ended::GpuHang { streams } => match streams.first() {
            Some((stream, _)) => format!("GPU hang on stream {stream}"),
            None => "GPU hang".to_owned(),
        },
        Ended::Dead { message } => format!("dies: {message}"),
        Ended::Broken { code } => format!("CUDA refuses all work: {code}"),
        Ended::Lost { why } => format!("lost: {why}"),
    };
    for failed in &report.errors {
        text.push_str(&format!("; {} returns {}", failed.call, failed.code));
    }
    text
}

/// What a buffer held, in words: its values, each with the number of elements that had it.
fn held(held: &Held) -> String {
    /// Values that are told.
    const TOLD: usize = 3;
    let Held { name, values, distinct, .. } = held;
    if let [(value, ..)] = values.as_slice() {
        return format!("{name}: {value} in every element");
    }
    let told: Vec<String> =
        values.iter().take(TOLD).map(|(value, count, _)| format!("{value} in {count} elements")).collect();
    let more = (*distinct as usize).saturating_sub(TOLD);
    let more = if more == 0 { String::new() } else { format!(", and {more} other values") };
    format!("{name}: {}{more}", told.join(", "))
}

/// What devices did with all programs of a check, in a few words.
#[must_use]
pub fn summary(seen: &SeenOfCheck) -> String {
    if let Some(error) = &seen.unread {
        return format!("not known: {error}");
    }
    let runs: u32 = seen.behaviours.iter().map(|of| of.count).sum();
    if runs == 0 {
        return String::new();
    }
    let differing =
        seen.behaviours.iter().filter(|of| matches!(of.judgement.agreement, Agreement::Disagrees(_)));
    let differing: u32 = differing.map(|of| of.count).sum();
    let unknown =
        seen.behaviours.iter().filter(|of| matches!(of.judgement.agreement, Agreement::NotComparable(_)));
    let unknown: u32 = unknown.map(|of| of.count).sum();
    let unspecified = seen.behaviours.iter().filter(|of| of.judgement.agreement == Agreement::Undefined);
    let unspecified: u32 = unspecified.map(|of| of.count).sum();
    let mut parts = Vec::new();
    for (count, what) in [
        (differing, "otherwise than the model says"),
        (unknown, "not comparable"),
        (unspecified, "where nobody specifies what follows"),
        (runs - differing - unknown - unspecified, "as the model says"),
    ] {
        if count > 0 {
            parts.push(format!("{count} {} {what}", if count == 1 { "run" } else { "runs" }));
        }
    }
    parts.join(", ")
}
