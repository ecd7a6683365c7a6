//! Virtual addresses of a rank: which of them come back, and in what order they lie.
//! Not here: what lies there ([`crate::noun::memory`]).

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use crate::host::value::{AddressId, Value};
use crate::state::{RankState, Table};
use crate::walk::{LocalHash, walk};

/// The addresses of a rank.
#[derive(Debug, Clone, Default)]
pub(crate) struct AddressSpace {
    /// AddressSpace that were freed and may be handed out again, each with its length.
    free: Vec<(AddressId, u64)>,
    /// Lowest first, as far as anybody looked.
    order: Arc<[Value]>,
}

walk!(struct AddressSpace { free: hashed fixed, order: hashed fixed });

impl LocalHash for AddressSpace {
    fn local_hash<H: Hasher>(&self, state: &mut H) {
        self.order.hash(state);
        self.free.hash(state);
    }
}

impl RankState {
    /// The freed addresses of this length.
    pub(crate) fn freed_addresses(&self, len_bytes: u64) -> Vec<AddressId> {
        AddressSpace::of(self).free.iter().filter(|(_, len)| *len == len_bytes).map(|(at, _)| *at).collect()
    }

    /// An address may be handed out again.
    pub(crate) fn free_address(&mut self, address: AddressId, len_bytes: u64) {
        let free = &mut AddressSpace::of_mut(self).free;
        free.push((address, len_bytes));
        free.sort_unstable();
    }

    /// An address is handed out, perhaps again.
    pub(crate) fn take_address(&mut self, address: AddressId, len_bytes: u64) {
        AddressSpace::of_mut(self).free.retain(|free| *free != (address, len_bytes));
    }

    /// AddressSpace from the lowest on, as far as anybody looked.
    pub(crate) fn address_order(&self) -> &[Value] {
        &AddressSpace::of(self).order
    }

    /// Somebody looked at more of them.
    pub(crate) fn set_address_order(&mut self, order: Arc<[Value]>) {
        AddressSpace::of_mut(self).order = order;
    }
}
