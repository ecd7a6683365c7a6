//! The lanes: what each rank of a finding does, in one line.
//!
//! Not here: the words of an operation (`rankcheck_model::display`).

use std::collections::BTreeSet;
use std::fmt::Write as _;

use rankcheck_model::Rank;
use rankcheck_model::machine::Kind;

use crate::search::{Counterexample, Located, Operation};

/// Lines of lanes, and operations in one, beyond which a lane is cut in the middle.
const LANE_WIDTH: usize = 96;

/// The operations of the ranks that are shown.
pub(super) type Lanes<'a> = Vec<(Rank, Vec<&'a Operation>)>;

/// The operations that a reader needs: on the ranks of the finding, what touches others, and what matters.
pub(super) fn lanes(shown: &Counterexample, ranks: u32) -> Lanes<'_> {
    let named: Vec<&Located> = shown.broken.ops.iter().chain(&shown.essential).collect();
    let mut wanted: BTreeSet<Rank> = named.iter().map(|at| at.op.rank).collect();
    for rank in 0..ranks.min(2) {
        if wanted.len() < 2 {
            wanted.insert(Rank(rank));
        }
    }
    let visible = |operation: &&Operation| {
        operation.kind != Kind::Bookkeeping || named.iter().any(|at| at.is(&operation.at))
    };
    let of = |rank| {
        let operations = shown.run.operations.iter().filter(|operation| operation.at.op.rank == rank);
        (rank, operations.filter(visible).collect())
    };
    wanted.into_iter().take(4).map(of).collect()
}

pub(super) fn lane(shown: &Counterexample, operations: &[&Operation]) -> String {
    let marked = |at: &Located| shown.essential.iter().any(|essential| essential.is(at));
    let mut cells: Vec<String> = Vec::new();
    let mut repeated = 0;
    for Operation { at, text, .. } in operations {
        let cell = if marked(at) { format!("[{text}]") } else { text.clone() };
        if cells.last() == Some(&cell) {
            repeated += 1;
            continue;
        }
        if repeated > 0
            && let Some(last) = cells.last_mut()
        {
            let _ = write!(last, " ×{}", repeated + 1);
        }
        repeated = 0;
        cells.push(cell);
    }
    let width = |cells: &[String]| cells.iter().map(|c| c.chars().count() + 2).sum::<usize>();
    let mut cut = false;
    while width(&cells) > LANE_WIDTH && cells.len() > 2 {
        // What is not named goes first, the oldest before the others.
        let at = cells.iter().position(|cell| !cell.starts_with('[')).unwrap_or(0);
        cells.remove(at);
        cut = true;
    }
    let text = cells.join("  ");
    if cut { format!("… {text}") } else { text }
}
