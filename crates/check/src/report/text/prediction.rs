//! The line `predicts`: how the ranks end, on each platform.
//!
//! Not here: what decides it ([`rankcheck_model::Outcome`]).

use std::collections::BTreeSet;
use std::fmt::Write as _;

use rankcheck_model::machine::InFlight;
use rankcheck_model::{Data, Outcome, RankOutcome};

use crate::search::{Explained, Explored};

/// What each platform will do: the outcome of the run that is shown, and the classes of the others.
pub(super) fn prediction(out: &mut String, explained: &Explained, shown: &Outcome) {
    let run = explained.run();
    let alike = |other: &&Explored| (other.ranks, &other.params) == (run.ranks, &run.params);
    let elsewhere = explained.elsewhere.iter().filter(alike);
    for (nth, run) in std::iter::once(run).chain(elsewhere).enumerate() {
        let label = if nth == 0 { "predicts" } else { "" };
        let unverified = if run.platform.observed() { "" } else { " (unverified)" };
        // Outcomes of interchangeable ranks are known up to their numbers; the run that is shown has them.
        let told = match (nth, run.in_flight) {
            (0, InFlight::Nothing) => Some(shown),
            (_, InFlight::Nothing | InFlight::OfPlatform) => run.outcomes.first(),
        };
        let mut text = told.map_or_else(String::new, ends);
        let others: BTreeSet<&str> = run.outcomes.iter().map(|outcome| outcome.class.name()).collect();
        let others: Vec<&str> =
            others.into_iter().filter(|class| told.is_none_or(|told| told.class.name() != *class)).collect();
        if !others.is_empty() {
            let _ = write!(text, "; other runs: {}", others.join(", "));
        }
        let _ = write!(out, "\n  {label:<9} NCCL {}{unverified}: {text}", run.platform);
    }
}

/// How the ranks of an outcome end, in words.
pub(crate) fn ends(outcome: &Outcome) -> String {
    if outcome.data == Data::Undefined {
        return "undefined".to_owned();
    }
    let mut parts = Vec::new();
    for (rank, end) in outcome.ranks.iter().enumerate() {
        match end {
            RankOutcome::Finishes => {}
            RankOutcome::HostHang(call) => parts.push(format!("rank {rank} host hang in {call}")),
            RankOutcome::GpuHang(op) => parts.push(format!("rank {rank} GPU hang in {op}")),
            RankOutcome::Dead(code) => parts.push(format!("rank {rank} dies: {code}")),
        }
    }
    for (rank, errors) in outcome.errors.iter().enumerate() {
        if let Some(error) = errors.first() {
            parts.push(format!("rank {rank} {} returns {}", error.call, error.code));
        }
    }
    if outcome.corrupt {
        parts.push("silent corruption".to_owned());
    }
    if parts.len() > 4 {
        let more = parts.len() - 3;
        parts.truncate(3);
        parts.push(format!("… {more} more"));
    }
    if parts.is_empty() { outcome.class.name().to_owned() } else { parts.join(", ") }
}
