//! Device memory of other processes: a handle names an allocation of `cuMemAlloc`, a mapping opens it.
//!
//! Memory of `ncclMemAlloc` has no handle of this kind. Not here: how a handle gets to another process, and
//! whether its owner has freed the memory; an open mapping keeps the pages.

use crate::Error;
use crate::ffi::cuda::Device;
use crate::ffi::ipc;
use crate::memory::CudaMemory;

/// A handle of an allocation, as bytes that any process of this host can open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IpcHandleBytes(pub [u8; ipc::HANDLE_BYTES]);

impl IpcHandleBytes {
    /// `cuIpcGetMemHandle`.
    ///
    /// # Errors
    /// [`Error::Cuda`].
    pub fn export(device: &Device, memory: &CudaMemory) -> Result<Self, Error> {
        ipc::export(device, memory.range().address()).map(Self)
    }
}

/// Device memory of another process, mapped into this one.
#[derive(Debug)]
pub struct PeerMapping {
    owner: ipc::RawMapping,
}

impl PeerMapping {
    /// `cuIpcOpenMemHandle`. A handle that is open already gives the same address; each open ends by itself.
    ///
    /// # Errors
    /// [`Error::Cuda`], also for a handle of this process.
    pub fn open(device: &Device, handle: &IpcHandleBytes) -> Result<Self, Error> {
        ipc::RawMapping::open(device, &handle.0).map(|owner| Self { owner })
    }

    /// Where the allocation starts here.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.owner.address()
    }

    /// `cuIpcCloseMemHandle`.
    ///
    /// # Errors
    /// [`Error::Cuda`].
    pub fn end(self) -> Result<(), Error> {
        self.owner.end()
    }
}
