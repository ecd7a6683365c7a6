//! Nondeterminism made to go one way: the values of a case, taken by the operations in order.
//!
//! Not here: what a value means.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use rankcheck_model::Rank;

use crate::case::{At, Forced, NondetValue, SegmentName};

/// Which value an operation asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NondetKind {
    Choose,
    Fault,
    Death,
    Poll,
    AddressOrder,
    HashOrder,
    CommOrder,
    AddressReuse,
    InFlight,
    Serialized,
    Havoc,
}

impl NondetKind {
    fn of(value: &NondetValue) -> Self {
        match value {
            NondetValue::Choose { .. } => Self::Choose,
            NondetValue::Fault { .. } => Self::Fault,
            NondetValue::Death { .. } => Self::Death,
            NondetValue::Poll { .. } => Self::Poll,
            NondetValue::AddressOrder { .. } => Self::AddressOrder,
            NondetValue::HashOrder { .. } => Self::HashOrder,
            NondetValue::CommOrder { .. } => Self::CommOrder,
            NondetValue::AddressReuse { .. } => Self::AddressReuse,
            NondetValue::InFlight { .. } => Self::InFlight,
            NondetValue::Serialized { .. } => Self::Serialized,
            NondetValue::Havoc { .. } => Self::Havoc,
        }
    }
}

/// The number of a value: its option, position or truth.
pub(crate) fn number(value: &NondetValue) -> u32 {
    match value {
        NondetValue::Choose { option } => *option,
        NondetValue::Fault { fails } => u32::from(*fails),
        NondetValue::Death { dies } => u32::from(*dies),
        NondetValue::InFlight { all } | NondetValue::Serialized { all } => u32::from(*all),
        NondetValue::Poll { done } => u32::from(*done),
        NondetValue::AddressOrder { position }
        | NondetValue::HashOrder { position }
        | NondetValue::CommOrder { position } => *position,
        NondetValue::AddressReuse { which } | NondetValue::Havoc { which } => *which,
    }
}

/// The forced values of one rank that are still to be taken.
#[derive(Debug)]
pub(crate) struct ForcedValues {
    by_op: BTreeMap<At, VecDeque<NondetValue>>,
    /// Segments in the wanted order of addresses.
    pub(crate) addresses: Vec<SegmentName>,
    pub(crate) turns: BTreeSet<At>,
    /// Whether where segments lie is forced in any way.
    pub(crate) forces_addresses: bool,
}

impl ForcedValues {
    pub(crate) fn new(forced: &Forced, rank: Rank) -> Self {
        let own = forced.nondet.iter().filter(|(at, _)| at.rank == rank);
        let by_op: BTreeMap<At, VecDeque<NondetValue>> =
            own.map(|(at, values)| (*at, values.iter().cloned().collect())).collect();
        let addresses = forced.addresses.get(rank.at()).cloned().unwrap_or_default();
        let about_addresses = |value: &NondetValue| {
            matches!(NondetKind::of(value), NondetKind::AddressOrder | NondetKind::AddressReuse)
        };
        let forces_addresses = !addresses.is_empty() || by_op.values().flatten().any(about_addresses);
        let turns = forced.turns.iter().filter(|at| at.rank == rank).copied().collect();
        Self { by_op, addresses, turns, forces_addresses }
    }

    /// The next value of the operation, if it is of this kind. Another one stays for whoever asks for it: the
    /// run has left the path that was to be forced.
    pub(crate) fn take(&mut self, at: At, kind: NondetKind) -> Option<NondetValue> {
        let values = self.by_op.get_mut(&at)?;
        values.pop_front_if(|value| NondetKind::of(value) == kind)
    }

    /// Whether an event is still to be seen incomplete somewhere.
    pub(crate) fn not_yet(&self) -> bool {
        self.by_op.values().flatten().any(|value| *value == NondetValue::Poll { done: false })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_taken_in_order_and_by_kind() {
        let at = At { rank: Rank(1), thread: 0, index: 4 };
        let other = At { rank: Rank(0), ..at };
        let values = vec![NondetValue::Poll { done: false }, NondetValue::AddressReuse { which: 1 }];
        let forced = Forced {
            nondet: [(at, values.clone()), (other, values)].into(),
            addresses: Vec::new(),
            turns: vec![other],
        };
        let mut nondet = ForcedValues::new(&forced, Rank(1));
        assert!(nondet.forces_addresses && nondet.not_yet() && nondet.turns.is_empty());
        assert_eq!(nondet.take(at, NondetKind::AddressReuse), None);
        assert_eq!(nondet.take(at, NondetKind::Poll), Some(NondetValue::Poll { done: false }));
        assert!(!nondet.not_yet());
        assert_eq!(nondet.take(at, NondetKind::AddressReuse), Some(NondetValue::AddressReuse { which: 1 }));
        assert_eq!(nondet.take(at, NondetKind::AddressReuse), None);
        assert_eq!(nondet.take(other, NondetKind::Poll), None);
    }
}
