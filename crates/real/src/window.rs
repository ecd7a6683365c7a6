//! A window: memory that every member of a communicator has registered.
//!
//! Not here: which registrations of the ranks belong together. NCCL pairs them by order, and so does whoever
//! calls this.

use std::ffi::c_int;

use rankcheck_model::WindowFlags;

use crate::Error;
use crate::comm::NcclComm;
use crate::ffi::{DeviceRange, nccl};

/// What a registration handed out. A name, not an owner: NCCL knows by its own table what is registered, and
/// answers the rest with an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NcclWindow {
    handle: nccl::RawWindow,
}

/// A registration inside a group, which NCCL makes when the group ends.
#[derive(Debug)]
pub struct PendingWindow {
    handle: nccl::RawPendingWindow,
}

impl PendingWindow {
    /// The window, after the group has ended without an error.
    ///
    /// # Errors
    /// [`Error::InsideGroup`] before that.
    pub fn take(self) -> Result<Option<NcclWindow>, Error> {
        Ok(self.handle.take()?.map(|handle| NcclWindow { handle }))
    }
}

/// `NCCL_WIN_DEFAULT` and `NCCL_WIN_COLL_SYMMETRIC` of `nccl.h`, 2.28.9.
fn bits(flags: WindowFlags) -> c_int {
    match flags {
        WindowFlags::Default => 0,
        WindowFlags::CollSymmetric => 1,
    }
}

impl NcclWindow {
    /// `ncclCommWindowRegister`. Blocks until every member calls it, without a timeout.
    ///
    /// A success without a window is `None`: NCCL does so for empty memory and for communicators without
    /// symmetric support, by version.
    ///
    /// # Errors
    /// [`Error::Nccl`], or [`Error::InsideGroup`].
    pub fn register(
        comm: &NcclComm,
        memory: &DeviceRange,
        flags: WindowFlags,
    ) -> Result<Option<Self>, Error> {
        let handle = nccl::RawWindow::register(&comm.owner, memory, bits(flags))?;
        Ok(handle.map(|handle| Self { handle }))
    }

    /// `ncclCommWindowRegister` inside a group: blocks when the group ends, not here.
    ///
    /// # Errors
    /// [`Error::Nccl`] for what NCCL refuses at once.
    pub fn register_later(
        comm: &NcclComm,
        memory: &DeviceRange,
        flags: WindowFlags,
    ) -> Result<PendingWindow, Error> {
        let handle = nccl::RawWindow::register_later(&comm.owner, memory, bits(flags))?;
        Ok(PendingWindow { handle })
    }

    /// `ncclCommWindowDeregister`, of nothing too. Local and immediate: it waits for no operation.
    ///
    /// # Errors
    /// [`Error::Nccl`], also when the window is of another communicator or not registered any more.
    pub fn deregister(comm: &NcclComm, window: Option<Self>) -> Result<(), Error> {
        nccl::RawWindow::deregister(&comm.owner, window.map(|window| window.handle))
    }
}
