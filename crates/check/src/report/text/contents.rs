//! The lines `at end`: what buffers hold at the end of a run, right or wrong; and `data`, where nobody knows it.
//!
//! Not here: how a term is written (`rankcheck_model::Term`).

use std::fmt::Write as _;

use rankcheck_model::{Data, Outcome};

pub(super) fn data(out: &mut String, outcome: &Outcome) {
    match &outcome.data {
        Data::Known(rows) if outcome.corrupt => {
            let shown = rows.iter().take(4);
            for (nth, (rank, name, content)) in shown.enumerate() {
                let label = if nth == 0 { "at end" } else { "" };
                let _ = write!(out, "\n  {label:<9} r{}.{name} = {content}", rank.0);
            }
        }
        Data::Undefined => {
            let _ = write!(out, "\n  data      buffer contents are undefined from here on");
        }
        Data::Known(_) => {}
    }
}
