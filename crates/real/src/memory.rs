//! Ordinary memory: one allocation of `cuMemAlloc`, which cannot be registered as a window.
//!
//! Not here: copies, and kernels that read and write memory.

use crate::Error;
use crate::ffi::DeviceRange;
use crate::ffi::cuda::{self, Device};

/// Device memory of `cuMemAlloc`, which IPC can share.
#[derive(Debug)]
pub struct CudaMemory {
    allocation: cuda::RawMemory,
}

impl CudaMemory {
    /// `cuMemAlloc` on the device that is current.
    ///
    /// # Errors
    /// [`Error::Cuda`], for example when the device has no memory left.
    pub fn alloc(device: &Device, len_bytes: u64) -> Result<Self, Error> {
        cuda::RawMemory::alloc(device, len_bytes).map(|allocation| Self { allocation })
    }

    /// The bytes of the allocation.
    #[must_use]
    pub fn range(&self) -> DeviceRange {
        self.allocation.range()
    }

    /// `cuMemFree`. It may wait for everything that runs on the device.
    ///
    /// # Errors
    /// [`Error::Cuda`].
    pub fn end(self) -> Result<(), Error> {
        self.allocation.end()
    }
}
