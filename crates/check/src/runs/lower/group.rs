//! A group of calls: written at once, where it ended.
//!
//! Not here: what groups do.

use rankcheck_model::{GroupOp, Op};

use super::{Bind, Lowered, Origin};

/// The calls of a group between its start and its end. What makes communicators comes before it; a group of
/// nothing is nothing.
pub(super) fn whole(calls: Vec<Lowered>, end: Origin) -> Vec<Lowered> {
    let makes = |item: &Lowered| matches!(item.bind, Bind::Comm(_));
    let (mut items, inside): (Vec<Lowered>, Vec<Lowered>) = calls.into_iter().partition(makes);
    let Some(first) = inside.first() else { return items };
    items.push(Lowered { op: Op::Group(GroupOp::Start).into(), origin: first.origin, bind: Bind::Nothing });
    items.extend(inside);
    items.push(Lowered { op: Op::Group(GroupOp::End).into(), origin: end, bind: Bind::Nothing });
    items
}
