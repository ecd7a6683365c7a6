//! A group of calls: written at once, where it ended.
//!
//! Not here: what groups do.

use rankcheck_model::{GroupOp, Op};

use super::{Bind, Item, Origin};

/// The calls of a group between its start and its end. What makes communicators comes before it; a group of
/// nothing is nothing.
pub(super) fn whole(calls: Vec<Item>, end: Origin) -> Vec<Item> {
    let makes = |item: &Item| matches!(item.bind, Bind::Comm(_));
    let (mut items, inside): (Vec<Item>, Vec<Item>) = calls.into_iter().partition(makes);
    let Some(first) = inside.first() else { return items };
    items.push(Item { verb: Op::Group(GroupOp::Start), origin: first.origin, bind: Bind::Nothing });
    items.extend(inside);
    items.push(Item { verb: Op::Group(GroupOp::End), origin: end, bind: Bind::Nothing });
    items
}
