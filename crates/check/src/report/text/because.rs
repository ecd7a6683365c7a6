//! The line `because`: the decision or the difference between ranks that a failure starts with.
//!
//! Not here: the other lines of a report.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use rankcheck_model::Rank;
use rankcheck_model::machine::Kind;

use super::lanes::Lanes;
use crate::search::{Counterexample, Decided, Decision, Located, Operation};

/// The rank-local decision: a value in which the ranks differ, else another value, else an order, else the first
/// operation in which they diverge.
pub(super) fn because(out: &mut String, shown: &Counterexample, lanes: &Lanes<'_>) {
    let values: Vec<(&Decision, &str)> = shown.run.decisions.iter().flat_map(values).collect();
    let mut by_loc: BTreeMap<(String, usize), Vec<(Rank, &str)>> = BTreeMap::new();
    for (nth, (decision, text)) in values.iter().enumerate() {
        let (rank, loc) = (decision.at.op.rank, decision.at.loc.to_string());
        let same =
            |(other, _): &&(&Decision, &str)| other.at.op.rank == rank && other.at.loc.to_string() == loc;
        let occurrence = values[..nth].iter().filter(same).count();
        by_loc.entry((loc, occurrence)).or_default().push((rank, text));
    }
    let apart = by_loc.iter().find(|(_, values)| values.iter().any(|(_, text)| *text != values[0].1));
    if let Some(((at, _), values)) = apart {
        let first = &values[0];
        let other = values.iter().find(|(_, text)| *text != first.1).unwrap_or(first);
        let _ = write!(
            out,
            "\n  because   on rank {} {}, on rank {} {} ({at})",
            first.0.0, first.1, other.0.0, other.1
        );
        return;
    }
    let adverse = values.iter().rev().find(|(_, text)| !text.ends_with("succeeds"));
    let ordered = shown.run.decisions.iter().filter_map(order);
    if let Some((decision, text)) = adverse.copied().or(ordered.into_iter().next()) {
        let Located { op, loc } = &decision.at;
        let _ = write!(out, "\n  because   on rank {}: {text} ({loc})", op.rank.0);
        return;
    }
    if let Some((a, b)) = parting(shown, lanes) {
        let _ = write!(
            out,
            "\n  because   rank {} does {} ({}) where rank {} does {} ({})",
            a.at.op.rank.0, a.text, a.at.loc, b.at.op.rank.0, b.text, b.at.loc
        );
    }
}

/// Each value that a decision gives, in words.
fn values(decision: &Decision) -> Vec<(&Decision, &str)> {
    match &decision.decided {
        Decided::Values { words, .. } => words.iter().map(|words| (decision, words.as_str())).collect(),
        Decided::Order(_) => Vec::new(),
    }
}

/// What goes first by a decision, in words.
fn order(decision: &Decision) -> Option<(&Decision, &str)> {
    match &decision.decided {
        Decided::Values { .. } => None,
        Decided::Order(words) => Some((decision, words)),
    }
}

/// The first operations in which two ranks of the finding part, among those that ranks do alike. What they do in
/// roles is no decision: one sends and another receives, one sets a key and another gets it.
fn parting<'a>(shown: &'a Counterexample, lanes: &Lanes<'_>) -> Option<(&'a Operation, &'a Operation)> {
    let alike = |rank: Rank| {
        let of = move |o: &&Operation| o.at.op.rank == rank && o.at.op.thread.0 == 0 && o.kind == Kind::Alike;
        shown.run.operations.iter().filter(of)
    };
    let ranks: Vec<Rank> = lanes.iter().map(|(rank, _)| *rank).collect();
    let (a, b) = (*ranks.first()?, *ranks.get(1)?);
    let parts = |(x, y): &(&Operation, &Operation)| x.text != y.text || x.at.op.loc != y.at.op.loc;
    alike(a).zip(alike(b)).find(parts)
}
