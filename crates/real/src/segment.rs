//! A segment: memory that can be registered as a window, from `ncclMemAlloc` or placed at a chosen address.
//!
//! Not here: blocks inside a segment (`rankcheck_model::host`), what was registered with whom ([`crate::window`]), and
//! which address is chosen ([`crate::placement`]).

use crate::Error;
use crate::ffi::cuda::Device;
use crate::ffi::placed::Placed;
use crate::ffi::{DeviceRange, nccl};

/// SegmentMemory that NCCL accepts as a window. Its size is rounded up to the granularity of the device, 2 MiB.
#[derive(Debug)]
pub struct NcclSegment {
    memory: SegmentMemory,
}

#[derive(Debug)]
enum SegmentMemory {
    Allocated(nccl::RawNcclMemory),
    Placed(Placed),
}

impl NcclSegment {
    /// `ncclMemAlloc` on the device that is current.
    ///
    /// # Errors
    /// [`Error::Nccl`], for example when the device has no memory left.
    pub fn alloc(device: &Device, len_bytes: u64) -> Result<Self, Error> {
        nccl::RawNcclMemory::alloc(device, len_bytes)
            .map(|memory| Self { memory: SegmentMemory::Allocated(memory) })
    }

    pub(crate) fn placed(memory: Placed) -> Self {
        Self { memory: SegmentMemory::Placed(memory) }
    }

    /// The bytes of the segment, as many as were asked for.
    #[must_use]
    pub fn range(&self) -> DeviceRange {
        match &self.memory {
            SegmentMemory::Allocated(memory) => memory.range(),
            SegmentMemory::Placed(memory) => memory.range(),
        }
    }

    /// `ncclMemFree`, or the same by hand. Windows that cover the segment stay registered: NCCL does not look
    /// for them, and what it has mapped stays mapped.
    ///
    /// # Errors
    /// [`Error::Nccl`] or [`Error::Cuda`].
    pub fn end(self) -> Result<(), Error> {
        match self.memory {
            SegmentMemory::Allocated(memory) => memory.end(),
            SegmentMemory::Placed(memory) => memory.end(),
        }
    }
}
