//! A group of calls: written at once, where it ended.
//!
//! Not here: what groups do.

use rankcheck_model::{GroupOp, Op};

use super::{Lowered, Origin};

/// The calls of a group between its start and its end. A group of nothing is nothing.
pub(super) fn whole(calls: Vec<Lowered>, end: Origin) -> Vec<Lowered> {
    let Some(first) = calls.first() else { return calls };
    let mut items = Vec::with_capacity(calls.len() + 2);
    items.push(Lowered::of(Op::Group(GroupOp::Start), first.origin));
    items.extend(calls);
    items.push(Lowered::of(Op::Group(GroupOp::End), end));
    items
}
