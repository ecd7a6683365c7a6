//! Virtual addresses of a rank: which of them come back, and in what order they lie.
//! Not here: what lies there ([`crate::noun::memory`]).

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use crate::host::value::{Address, AddressId, Value};
use crate::identity::{Identify, StateIdentity};
use crate::state::{RankState, Table};
use crate::walk::{LocalHash, walk};

/// The order of the addresses of a rank.
#[derive(Debug, Clone, Default)]
pub(crate) struct KnownAddresses {
    /// Lowest first, as far as anybody looked.
    known: Arc<[Value]>,
}

walk!(apart struct KnownAddresses { known: hashed fixed });

impl Identify for KnownAddresses {
    fn identify(&self, to: &mut StateIdentity<'_>) {
        let compared = |value: &&Value| {
            let Value::Address(Address::Memory(address, _)) = value else { return true };
            to.reachable().has_address(address.0)
        };
        let compared: Vec<&Value> = self.known.iter().filter(compared).collect();
        compared.identify(to);
    }
}

impl LocalHash for KnownAddresses {
    fn local_hash<H: Hasher>(&self, state: &mut H) {
        self.known.hash(state);
    }
}

/// Addresses of a rank that were freed and may be handed out again.
#[derive(Debug, Clone, Default)]
pub(crate) struct FreedAddresses {
    /// Each with its length.
    rows: Vec<(AddressId, u64)>,
}

walk!(apart struct FreedAddresses { rows: hashed fixed });

impl Identify for FreedAddresses {
    fn identify(&self, to: &mut StateIdentity<'_>) {
        if to.reachable().allocates {
            self.rows.hash(to);
        }
    }
}

impl LocalHash for FreedAddresses {
    fn local_hash<H: Hasher>(&self, state: &mut H) {
        self.rows.hash(state);
    }
}

impl RankState {
    /// The freed addresses of this length.
    pub(crate) fn freed_addresses(&self, len_bytes: u64) -> Vec<AddressId> {
        FreedAddresses::of(self).rows.iter().filter(|(_, len)| *len == len_bytes).map(|(at, _)| *at).collect()
    }

    /// The freed addresses of any length.
    pub(crate) fn all_freed_addresses(&self) -> impl Iterator<Item = AddressId> {
        FreedAddresses::of(self).rows.iter().map(|(at, _)| *at)
    }

    /// An address may be handed out again.
    pub(crate) fn free_address(&mut self, address: AddressId, len_bytes: u64) {
        let free = &mut FreedAddresses::of_mut(self).rows;
        free.push((address, len_bytes));
        free.sort_unstable();
    }

    /// An address is handed out, perhaps again.
    pub(crate) fn take_address(&mut self, address: AddressId, len_bytes: u64) {
        FreedAddresses::of_mut(self).rows.retain(|free| *free != (address, len_bytes));
    }

    /// Addresses from the lowest on, as far as anybody looked.
    pub(crate) fn address_order(&self) -> &[Value] {
        &KnownAddresses::of(self).known
    }

    /// Somebody looked at more of them.
    pub(crate) fn set_address_order(&mut self, order: Arc<[Value]>) {
        KnownAddresses::of_mut(self).known = order;
    }
}
