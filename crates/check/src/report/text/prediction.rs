//! The line `predicts`: how the ranks end, on each platform.
//!
//! Not here: what decides it ([`crate::search::predict`]).

use std::fmt::Write as _;

use rankcheck_model::{Class, Data, Outcome, RankOutcome};

use super::settings;
use crate::search::{Basis, Explained, Explored, PredictedEnd, Verdict};

/// What each platform makes of the run that is shown: every end that it leaves possible, with what decides it.
pub(super) fn prediction(out: &mut String, explained: &Explained) {
    let run = explained.run();
    let alike = |other: &&Explored| (other.ranks, &other.params) == (run.ranks, &run.params);
    let elsewhere = explained.elsewhere.iter().filter(alike);
    for (nth, run) in std::iter::once(run).chain(elsewhere).enumerate() {
        let label = if nth == 0 { "predicts" } else { "" };
        let unverified = if run.platform.observed() { "" } else { " (unverified)" };
        let mut all: Vec<String> = run.ends.iter().map(|end| predicted(end, run.guaranteed)).collect();
        // What decides between ends that look alike decides nothing.
        if let Some(one) = run.ends.first().map(|end| ends(&end.outcome))
            && run.ends.len() > 1
            && run.ends.iter().all(|end| ends(&end.outcome) == one)
        {
            all = vec![one];
        }
        all.dedup();
        let mut text = all.join("; or ");
        let and = |text: &String| if text.is_empty() { "" } else { "; " };
        if let (Verdict::Fails { primary, .. }, Some(shown)) = (&run.verdict, &explained.counterexample)
            && shown.broken.rule != *primary
        {
            let _ = write!(text, " (the run that breaks {primary}, not the one that is shown)");
        }
        if !run.other_runs.is_empty() {
            let others: Vec<&str> = run.other_runs.iter().map(|class| class.name()).collect();
            let _ = write!(text, "{}other runs: {}", and(&text), others.join(", "));
        }
        if let Some(bound) = &run.ends_bound {
            let _ = write!(text, "{}others were not looked for: {bound}", and(&text));
        }
        let _ = write!(out, "\n  {label:<9} NCCL {}{unverified}: {text}", run.platform);
    }
    settings(out, "seen", run.seen.iter().cloned());
}

/// An end with what decides that it is this one, and whether anybody promises it.
fn predicted(end: &PredictedEnd, guaranteed: Option<Class>) -> String {
    let mut text = ends(&end.outcome);
    if !end.decided_by.is_empty() {
        let decided: Vec<&str> = end.decided_by.iter().map(String::as_str).collect();
        let _ = write!(text, " if {}", decided.join(" and "));
    } else if end.basis == Basis::Measured {
        match guaranteed.filter(|class| *class != end.outcome.class) {
            Some(class) => {
                let _ =
                    write!(text, " (measured and not promised: {class} where only what is promised holds)");
            }
            None => text.push_str(" (measured, not promised)"),
        }
    }
    text
}

/// How the ranks of an outcome end, in words.
pub(crate) fn ends(outcome: &Outcome) -> String {
    if outcome.data == Data::Undefined {
        return "undefined".to_owned();
    }
    let mut parts = Vec::new();
    for (rank, end) in outcome.ranks.iter().enumerate() {
        match end {
            RankOutcome::Finishes | RankOutcome::Undefined => {}
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
