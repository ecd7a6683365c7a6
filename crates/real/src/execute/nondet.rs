//! Nondeterminism made to go one way: the picks of a case, taken by the operations in order.
//!
//! Not here: what a pick means.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use rankcheck_model::Rank;

use crate::case::{At, Forced, Pick, SegmentName};

/// Which pick an operation asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChoiceKind {
    Choose,
    Fault,
    Death,
    Poll,
    AddressOrder,
    HashOrder,
    CommOrder,
    AddressReuse,
    InFlight,
    InTurn,
    Havoc,
}

impl ChoiceKind {
    fn of(pick: &Pick) -> Self {
        match pick {
            Pick::Choose { .. } => Self::Choose,
            Pick::Fault { .. } => Self::Fault,
            Pick::Death { .. } => Self::Death,
            Pick::Poll { .. } => Self::Poll,
            Pick::AddressOrder { .. } => Self::AddressOrder,
            Pick::HashOrder { .. } => Self::HashOrder,
            Pick::CommOrder { .. } => Self::CommOrder,
            Pick::AddressReuse { .. } => Self::AddressReuse,
            Pick::InFlight { .. } => Self::InFlight,
            Pick::InTurn { .. } => Self::InTurn,
            Pick::Havoc { .. } => Self::Havoc,
        }
    }
}

/// The number of a pick: its option, position or truth.
pub(crate) fn number(pick: &Pick) -> u32 {
    match pick {
        Pick::Choose { option } => *option,
        Pick::Fault { fails } => u32::from(*fails),
        Pick::Death { dies } => u32::from(*dies),
        Pick::InFlight { all } | Pick::InTurn { all } => u32::from(*all),
        Pick::Poll { done } => u32::from(*done),
        Pick::AddressOrder { position } | Pick::HashOrder { position } | Pick::CommOrder { position } => {
            *position
        }
        Pick::AddressReuse { which } | Pick::Havoc { which } => *which,
    }
}

/// The forced picks of one rank that are still to be taken.
#[derive(Debug)]
pub(crate) struct Nondet {
    picks: BTreeMap<At, VecDeque<Pick>>,
    /// Segments in the wanted order of addresses.
    pub(crate) addresses: Vec<SegmentName>,
    pub(crate) turns: BTreeSet<At>,
    /// Whether where segments lie is forced in any way.
    pub(crate) forces_addresses: bool,
}

impl Nondet {
    pub(crate) fn new(forced: &Forced, rank: Rank) -> Self {
        let own = forced.picks.iter().filter(|(at, _)| at.rank == rank);
        let picks: BTreeMap<At, VecDeque<Pick>> =
            own.map(|(at, picks)| (*at, picks.iter().cloned().collect())).collect();
        let addresses = forced.addresses.get(rank.at()).cloned().unwrap_or_default();
        let about_addresses =
            |pick: &Pick| matches!(ChoiceKind::of(pick), ChoiceKind::AddressOrder | ChoiceKind::AddressReuse);
        let forces_addresses = !addresses.is_empty() || picks.values().flatten().any(about_addresses);
        let turns = forced.turns.iter().filter(|at| at.rank == rank).copied().collect();
        Self { picks, addresses, turns, forces_addresses }
    }

    /// The next pick of the operation, if it is of this kind. Another one stays for whoever asks for it: the
    /// run has left the path that was to be forced.
    pub(crate) fn take(&mut self, at: At, kind: ChoiceKind) -> Option<Pick> {
        let picks = self.picks.get_mut(&at)?;
        picks.pop_front_if(|pick| ChoiceKind::of(pick) == kind)
    }

    /// Whether an event is still to be seen incomplete somewhere.
    pub(crate) fn not_yet(&self) -> bool {
        self.picks.values().flatten().any(|pick| *pick == Pick::Poll { done: false })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn picks_are_taken_in_order_and_by_kind() {
        let at = At { rank: Rank(1), thread: 0, index: 4 };
        let other = At { rank: Rank(0), ..at };
        let picks = vec![Pick::Poll { done: false }, Pick::AddressReuse { which: 1 }];
        let forced = Forced {
            picks: [(at, picks.clone()), (other, picks)].into(),
            addresses: Vec::new(),
            turns: vec![other],
        };
        let mut nondet = Nondet::new(&forced, Rank(1));
        assert!(nondet.forces_addresses && nondet.not_yet() && nondet.turns.is_empty());
        assert_eq!(nondet.take(at, ChoiceKind::AddressReuse), None);
        assert_eq!(nondet.take(at, ChoiceKind::Poll), Some(Pick::Poll { done: false }));
        assert!(!nondet.not_yet());
        assert_eq!(nondet.take(at, ChoiceKind::AddressReuse), Some(Pick::AddressReuse { which: 1 }));
        assert_eq!(nondet.take(at, ChoiceKind::AddressReuse), None);
        assert_eq!(nondet.take(other, ChoiceKind::Poll), None);
    }
}
