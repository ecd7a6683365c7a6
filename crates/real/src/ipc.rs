//! Device memory of other processes: a handle names an allocation, a mapping opens it.
//!
//! Memory of `cuMemAlloc` has a handle of CUDA IPC, memory of `cuMemCreate` and `ncclMemAlloc` a shareable one, which is
//! a file descriptor. Not here: who tells other processes of a handle, and whether its owner has freed the memory; an
//! open mapping keeps the pages.

use std::os::fd::{AsFd as _, OwnedFd};

use crate::Error;
use crate::ffi::cuda::Device;
use crate::ffi::descriptor::{self, Inbox};
use crate::ffi::{ipc, shareable};
use crate::memory::CudaMemory;
use crate::segment::NcclSegment;

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

/// A shareable handle of a segment.
#[derive(Debug)]
pub struct ShareableHandle {
    raw: shareable::RawShareable,
}

impl ShareableHandle {
    /// `cuMemExportToShareableHandle`.
    ///
    /// # Errors
    /// [`Error::Cuda`].
    pub fn export(device: &Device, segment: &NcclSegment) -> Result<Self, Error> {
        shareable::export(device, segment.range().address()).map(|raw| Self { raw })
    }

    /// The bytes of the memory that it names.
    #[must_use]
    pub fn mapped_bytes(&self) -> u64 {
        self.raw.mapped_bytes
    }

    /// Sends it to another process, as the handle of the rank with this number.
    ///
    /// # Errors
    /// [`Error::Connection`].
    pub fn send(&self, inbox: &str, rank: u32) -> Result<(), Error> {
        descriptor::send(inbox, rank, self.raw.descriptor.as_fd())
    }
}

/// Where a process gets the shareable handles of others.
#[derive(Debug)]
pub struct HandleInbox {
    inbox: Inbox,
}

impl HandleInbox {
    /// An empty one.
    ///
    /// # Errors
    /// [`Error::Connection`].
    pub fn open() -> Result<Self, Error> {
        Inbox::open().map(|inbox| Self { inbox })
    }

    /// The name by which others send to it.
    #[must_use]
    pub fn name(&self) -> &str {
        self.inbox.name()
    }

    /// The next handle that comes, and the number of the rank whose memory it is.
    ///
    /// # Errors
    /// [`Error::Connection`], also if none comes.
    pub fn receive(&self) -> Result<(u32, OwnedFd), Error> {
        self.inbox.receive()
    }
}

/// Device memory of another process, mapped into this one.
#[derive(Debug)]
pub struct PeerMapping {
    owner: RawPeerMapping,
}

#[derive(Debug)]
enum RawPeerMapping {
    Ipc(ipc::RawMapping),
    Shareable(shareable::RawImported),
}

impl PeerMapping {
    /// `cuIpcOpenMemHandle`. A handle that is open already gives the same address; each open ends by itself.
    ///
    /// # Errors
    /// [`Error::Cuda`], also for a handle of this process.
    pub fn open(device: &Device, handle: &IpcHandleBytes) -> Result<Self, Error> {
        ipc::RawMapping::open(device, &handle.0).map(|owner| Self { owner: RawPeerMapping::Ipc(owner) })
    }

    /// `cuMemImportFromShareableHandle` and `cuMemMap`, at an address that no other mapping has.
    ///
    /// # Errors
    /// [`Error::Cuda`].
    pub fn import(device: &Device, handle: &OwnedFd, mapped_bytes: u64) -> Result<Self, Error> {
        shareable::RawImported::open(device, handle.as_fd(), mapped_bytes)
            .map(|owner| Self { owner: RawPeerMapping::Shareable(owner) })
    }

    /// Where the allocation starts here.
    #[must_use]
    pub fn address(&self) -> u64 {
        match &self.owner {
            RawPeerMapping::Ipc(owner) => owner.address(),
            RawPeerMapping::Shareable(owner) => owner.address(),
        }
    }

    /// `cuIpcCloseMemHandle`, or `cuMemUnmap` of what was imported.
    ///
    /// # Errors
    /// [`Error::Cuda`].
    pub fn end(self) -> Result<(), Error> {
        match self.owner {
            RawPeerMapping::Ipc(owner) => owner.end(),
            RawPeerMapping::Shareable(owner) => owner.end(),
        }
    }
}
