//! The lines `at end`: what buffers hold at the end of a run, right or wrong; and `data`, where nobody knows it.
//!
//! Not here: how a term is written (`rankcheck_model::Term`).

use std::fmt::Write as _;

use rankcheck_model::{Data, Outcome};

/// So many buffers are shown of more, or up to twice as many if the sentence names them: those that it names before others.
const SHOWN: usize = 4;

pub(super) fn data(out: &mut String, outcome: &Outcome, sentence: &str) {
    match &outcome.data {
        Data::Known(rows) if outcome.corrupt => {
            let named = |name: &str| {
                let ends = |c: char| !(c.is_alphanumeric() || "_.#".contains(c));
                sentence.split(ends).any(|word| word == name)
            };
            let (first, others): (Vec<usize>, Vec<usize>) =
                (0..rows.len()).partition(|at| named(&rows[*at].1));
            let count = first.len().clamp(SHOWN, 2 * SHOWN);
            let mut shown: Vec<usize> = first.into_iter().chain(others).take(count).collect();
            shown.sort_unstable();
            for (nth, at) in shown.into_iter().enumerate() {
                let (rank, name, content) = &rows[at];
                let label = if nth == 0 { "at end" } else { "" };
                let _ = write!(out, "\n  {label:<9} r{}.{name} = {content}", rank.0);
            }
            match rows.len().saturating_sub(count) {
                0 => {}
                1 => _ = write!(out, "\n  {:<9} and one more buffer", ""),
                more => _ = write!(out, "\n  {:<9} and {more} more buffers", ""),
            }
        }
        Data::Undefined => {
            let _ = write!(out, "\n  data      buffer contents are undefined from here on");
        }
        Data::Known(_) => {}
    }
}
