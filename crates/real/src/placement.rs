//! Where segments lie: one range of reserved addresses in equal slots, so that the order of addresses, and
//! whether one comes back, are decided here and not by the driver.
//!
//! Not here: who wants which order.

use std::collections::BTreeSet;

use crate::Error;
use crate::ffi::cuda::Device;
use crate::ffi::inventory;
use crate::ffi::placed::{self, Placed, Reservation};
use crate::segment::NcclSegment;

/// Bytes from one slot to the next. A longer segment takes several.
const SLOT_BYTES: u64 = 2 << 30;
/// How many slots are reserved, of [`SLOT_BYTES`] each.
const SLOTS: u64 = 128;

/// The reserved addresses of a process on one device.
#[derive(Debug)]
pub struct AddressSlots {
    reservation: Reservation,
    granularity_bytes: u64,
    /// Devices that can reach this one.
    peers: Vec<i32>,
}

impl AddressSlots {
    /// Reserves the addresses; takes no memory.
    ///
    /// # Errors
    /// [`Error::Cuda`].
    pub fn reserve(device: &Device) -> Result<Self, Error> {
        let own = device.ordinal();
        let mut peers = Vec::new();
        for peer in (0..inventory::count()?).filter(|peer| *peer != own) {
            if inventory::reaches(peer, own)? {
                peers.push(peer);
            }
        }
        let granularity_bytes = placed::granularity(device)?;
        let reservation = Reservation::reserve(device, SLOT_BYTES * SLOTS, granularity_bytes)?;
        Ok(Self { reservation, granularity_bytes, peers })
    }

    /// Returns an empty record of the slots that are taken.
    #[must_use]
    pub fn slots(&self) -> TakenSlots {
        TakenSlots { taken: BTreeSet::new() }
    }

    /// The address of a slot.
    #[must_use]
    pub fn address(&self, slot: u64) -> u64 {
        self.reservation.base() + slot * SLOT_BYTES
    }

    /// Maps memory at an address of the range. Nothing may be mapped there.
    ///
    /// # Errors
    /// [`Error::Cuda`], or [`Error::Address`] outside the range.
    pub fn place(&self, device: &Device, address: u64, len_bytes: u64) -> Result<NcclSegment, Error> {
        Placed::map(device, &self.reservation, (address, len_bytes), &self.peers).map(NcclSegment::placed)
    }

    /// The bytes that `len_bytes` really take.
    #[must_use]
    pub fn mapped_bytes(&self, len_bytes: u64) -> u64 {
        len_bytes.max(1).next_multiple_of(self.granularity_bytes)
    }

    /// Gives the addresses back. Nothing may be mapped any more.
    ///
    /// # Errors
    /// [`Error::Cuda`].
    pub fn end(self) -> Result<(), Error> {
        tracing::debug!(len_bytes = self.reservation.len_bytes(), "the reserved addresses are freed");
        self.reservation.end()
    }
}

/// Which slots of a placement are taken. A slot is taken once: its address comes back only on demand.
#[derive(Debug, Clone, Default)]
pub struct TakenSlots {
    taken: BTreeSet<u64>,
}

impl TakenSlots {
    /// Takes the slots from `first` on for a segment of this length. Whether they were free and exist.
    pub fn take(&mut self, first: u64, len_bytes: u64) -> bool {
        let wanted = first..first + len_bytes.div_ceil(SLOT_BYTES).max(1);
        let free = wanted.end <= SLOTS && wanted.clone().all(|slot| !self.taken.contains(&slot));
        if free {
            self.taken.extend(wanted);
        }
        free
    }

    /// Takes the lowest free slots from `from` on; the first of them.
    ///
    /// # Errors
    /// [`Error::NoAddresses`].
    pub fn take_above(&mut self, from: u64, len_bytes: u64) -> Result<u64, Error> {
        (from..SLOTS).find(|first| self.take(*first, len_bytes)).ok_or(Error::NoAddresses { len_bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_taken_once() {
        let mut slots = TakenSlots::default();
        assert!(slots.take(3, 1));
        assert!(!slots.take(3, 1));
        assert_eq!(slots.take_above(3, 1), Ok(4));
        assert_eq!(slots.take_above(0, 1), Ok(0));
    }

    #[test]
    fn a_long_segment_takes_several_slots() {
        let mut slots = TakenSlots::default();
        assert!(slots.take(2, 1));
        assert_eq!(slots.take_above(0, SLOT_BYTES + 1), Ok(0));
        assert_eq!(slots.take_above(0, 3 * SLOT_BYTES), Ok(3));
        assert_eq!(
            slots.take_above(SLOTS - 1, SLOT_BYTES + 1),
            Err(Error::NoAddresses { len_bytes: SLOT_BYTES + 1 })
        );
    }
}
