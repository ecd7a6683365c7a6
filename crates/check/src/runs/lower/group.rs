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
    items.push(Lowered::of(Op::Group(GroupOp::Start), first.origin));
    items.extend(inside);
    items.push(Lowered::of(Op::Group(GroupOp::End), end));
    items
}
