//! Which allocation an address of a process lies in, now and before.
//!
//! Not here: what allocations mean.

use std::collections::BTreeMap;

use rankcheck_model::{Operand, Token};

/// The driver's granularity: memory comes in pieces of this size.
const GRANULARITY_BYTES: u64 = 2 << 20;

/// An allocation of a process, or memory of another that it has open.
#[derive(Debug, Clone)]
pub(crate) struct Region {
    pub(crate) operand: Operand,
    pub(crate) len_bytes: u64,
    /// The name of the first allocation that had its address; none of what is another's.
    first: Option<Token>,
    freed: bool,
    /// Whether a graph allocates it with every launch.
    pub(crate) of_graph: bool,
}

/// Where an address lies.
pub(crate) enum MemoryAt {
    /// So many bytes into an allocation, and so many bytes before its end.
    In(Operand, u64, u64),
    /// In nothing that was seen allocated, or beyond its end.
    Unknown,
}

/// The address space of a process.
#[derive(Debug, Default)]
pub(crate) struct RegionMap {
    regions: BTreeMap<u64, Region>,
    /// Addresses that the model has free, with the length that each is free for; by the first allocation there.
    free: Vec<(Token, u64)>,
}

impl RegionMap {
    /// Memory was allocated. Returns which of the addresses that are free for it came back: 0 for a fresh one.
    /// None if there was no other possibility.
    pub(crate) fn allocate(
        &mut self,
        address: u64,
        len_bytes: u64,
        name: Token,
        operand: Operand,
    ) -> Option<u32> {
        let rounded = len_bytes.next_multiple_of(GRANULARITY_BYTES);
        // The model lists them by name.
        let same: Vec<Token> = self.free.iter().filter(|free| free.1 == rounded).map(|free| free.0).collect();
        let freed = self.regions.get(&address).filter(|region| region.freed).and_then(|region| region.first);
        let back = freed.filter(|first| same.contains(first));
        let found = (!same.is_empty()).then(|| {
            let at = back.and_then(|first| same.iter().position(|token| *token == first));
            at.map_or(0, |at| u32::try_from(at + 1).expect("few allocations are freed at once"))
        });
        if let Some(first) = back {
            self.free.retain(|free| *free != (first, rounded));
        }
        self.cover(
            address,
            Region { operand, len_bytes, first: Some(back.unwrap_or(name)), freed: false, of_graph: false },
        );
        found
    }

    /// Memory of another process was opened.
    pub(crate) fn map(&mut self, address: u64, len_bytes: u64, operand: Operand) {
        self.cover(address, Region { operand, len_bytes, first: None, freed: false, of_graph: false });
    }

    /// The mapping that begins at an address. It stays there when it is closed, until something else comes.
    pub(crate) fn mapping(&self, address: u64) -> Option<Operand> {
        let region = self.regions.get(&address).filter(|region| region.first.is_none())?;
        Some(region.operand.clone())
    }

    /// A region replaces all that it lies over.
    fn cover(&mut self, address: u64, region: Region) {
        let end = address.saturating_add(region.len_bytes.max(1));
        let covered: Vec<u64> = self.overlapping(address, end).collect();
        for start in covered {
            self.regions.remove(&start);
        }
        self.regions.insert(address, region);
    }

    /// Memory that begins at an address is freed.
    pub(crate) fn free(&mut self, address: u64) -> Option<&Region> {
        let region = self.regions.get_mut(&address)?;
        let first = region.first?;
        if !std::mem::replace(&mut region.freed, true) {
            self.free.push((first, region.len_bytes.next_multiple_of(GRANULARITY_BYTES)));
            self.free.sort_unstable();
        }
        Some(region)
    }

    /// Memory that begins at an address is free once a stream gets there. Its address is none that the model has free.
    pub(crate) fn free_on(&mut self, address: u64) -> Option<&Region> {
        let region = self.regions.get_mut(&address).filter(|region| region.first.is_some())?;
        region.freed = true;
        Some(region)
    }

    /// What begins at an address is allocated by a graph.
    pub(crate) fn of_graph(&mut self, address: u64) {
        if let Some(region) = self.regions.get_mut(&address) {
            region.of_graph = true;
        }
    }

    /// Where `len_bytes` from an address on lie.
    pub(crate) fn find(&self, address: u64, len_bytes: u64) -> MemoryAt {
        let Some((start, region)) = self.regions.range(..=address).next_back() else {
            return MemoryAt::Unknown;
        };
        let offset = address - start;
        if offset >= region.len_bytes {
            return MemoryAt::Unknown;
        }
        // What follows may have been mapped behind it, so that no end is crossed.
        let end = start + region.len_bytes;
        if offset + len_bytes > region.len_bytes && self.regions.contains_key(&end) {
            return MemoryAt::Unknown;
        }
        MemoryAt::In(region.operand.clone(), offset, region.len_bytes - offset)
    }

    fn overlapping(&self, address: u64, end: u64) -> impl Iterator<Item = u64> {
        let first = self.regions.range(..address).next_back();
        let first = first.filter(|(start, r)| *start + r.len_bytes > address).map(|(start, _)| *start);
        first.into_iter().chain(self.regions.range(address..end).map(|(start, _)| *start))
    }
}
