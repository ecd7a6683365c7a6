//! A segment: one allocation of `ncclMemAlloc`, which can be registered as a window.
//!
//! Not here: blocks inside a segment ([`crate::pool`]) and what was registered with whom
//! ([`crate::window`]).

use crate::Error;
use crate::ffi::cuda::Device;
use crate::ffi::{DeviceRange, nccl};

/// Memory of `ncclMemAlloc`. NCCL rounds its size up to the granularity of the device, 2 MiB.
#[derive(Debug)]
pub struct Segment {
    allocation: nccl::Allocation,
}

impl Segment {
    /// `ncclMemAlloc` on the device that is current.
    ///
    /// # Errors
    /// [`Error::Nccl`], for example when the device has no memory left.
    pub fn alloc(device: &Device, len_bytes: u64) -> Result<Self, Error> {
        nccl::Allocation::alloc(device, len_bytes).map(|allocation| Self { allocation })
    }

    /// The bytes of the segment, as many as were asked for.
    #[must_use]
    pub fn range(&self) -> DeviceRange {
        self.allocation.range()
    }

    /// `ncclMemFree`. Windows that cover the segment stay registered: NCCL does not look for them.
    ///
    /// # Errors
    /// [`Error::Nccl`].
    pub fn end(self) -> Result<(), Error> {
        self.allocation.end()
    }
}
