//! A device that does exactly what the model predicts, and can be bent to do something else.
//!
//! Not here: real devices (`rankcheck-real`).

use std::collections::BTreeMap;
use std::time::Duration;

use rankcheck::device::{Prediction, Predictions};
use rankcheck_model::machine::HeldBuffer;
use rankcheck_model::{Ending, RankOutcome};
use rankcheck_real::case::{CallFailed, Ended, Held, RankReport, Report};

/// What ranks report that do what a prediction says.
#[must_use]
pub fn played(predictions: &Predictions, run: &Prediction) -> Report {
    let element_bytes = predictions.element.filled().len_bytes();
    let ranks = run.endings.iter().map(|ending| rank(ending, element_bytes));
    Report { ranks: ranks.collect(), took: Duration::ZERO }
}

fn rank(ending: &Ending, element_bytes: u64) -> RankReport {
    let inside = || ending.inside.iter().map(|t| (t.thread.0, t.index, t.call.clone())).collect();
    let stream = |stuck: &rankcheck_model::machine::StuckStream| {
        (stuck.name.to_string(), Some((stuck.head.thread.0, stuck.head.index)))
    };
    let ended = match &ending.how {
        RankOutcome::Finishes => Ended::Finishes,
        RankOutcome::HostHang(_) => Ended::HostHang { inside: inside() },
        RankOutcome::GpuHang(_) => Ended::GpuHang { streams: ending.undrained.iter().map(stream).collect() },
        RankOutcome::Dead(why) => Ended::Dead { message: why.to_string() },
        RankOutcome::Undefined => unreachable!("what nobody specifies is no way in which a rank ends"),
    };
    let errors = ending.errors.iter().map(|error| CallFailed {
        call: error.call.to_string(),
        code: error.code,
        thread: 0,
        index: 0,
        detail: Some("a text of the library".to_owned()),
    });
    let held = match ended {
        Ended::Finishes => ending.held.iter().map(|buffer| held(buffer, element_bytes)).collect(),
        Ended::HostHang { .. }
        | Ended::GpuHang { .. }
        | Ended::Dead { .. }
        | Ended::Broken { .. }
        | Ended::Lost { .. } => Vec::new(),
    };
    RankReport {
        ended,
        errors: errors.collect(),
        taken: Vec::new(),
        answers: (0..).zip(ending.answers.clone()).collect(),
        held,
        reached: Vec::new(),
    }
}

fn held(buffer: &HeldBuffer, element_bytes: u64) -> Held {
    let elements = buffer.len_bytes / element_bytes;
    let mut counts: BTreeMap<u64, u64> = BTreeMap::new();
    for run in buffer.numbers.iter().flatten() {
        let each = run.len_bytes / element_bytes / run.shares.len() as u64;
        for share in &run.shares {
            *counts.entry(share.to_bits()).or_default() += each;
        }
    }
    let mut values: Vec<(f64, u64, u64)> =
        counts.into_iter().map(|(value, count)| (f64::from_bits(value), count, 0)).collect();
    values.sort_by_key(|value| std::cmp::Reverse(value.1));
    Held {
        thread: buffer.thread.0,
        slot: buffer.slot,
        name: buffer.name.to_string(),
        elements,
        distinct: u32::try_from(values.len()).expect("few values"),
        values,
        runs: Vec::new(),
    }
}
