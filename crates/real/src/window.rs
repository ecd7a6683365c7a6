//! A window: memory that every member of a communicator has registered.
//!
//! Not here: which registrations of the ranks belong together. NCCL pairs them by order, and so does whoever
//! calls this.

use std::ffi::c_int;

use rankcheck_model::WindowFlags;

use crate::Error;
use crate::comm::Comm;
use crate::ffi::{DeviceRange, nccl};

/// What a registration handed out.
#[derive(Debug)]
pub struct Window {
    handle: nccl::Window,
}

impl Window {
    /// `ncclCommWindowRegister`. Blocks until every member calls it, without a timeout.
    ///
    /// A success without a window is `None`: NCCL does so for empty memory and for communicators without
    /// symmetric support, by version.
    ///
    /// # Errors
    /// [`Error::Nccl`], or [`Error::InsideGroup`].
    pub fn register(comm: &Comm, memory: &DeviceRange, flags: WindowFlags) -> Result<Option<Self>, Error> {
        // nccl.h, 2.28.9: NCCL_WIN_DEFAULT, NCCL_WIN_COLL_SYMMETRIC.
        let flags: c_int = match flags {
            WindowFlags::Default => 0,
            WindowFlags::CollSymmetric => 1,
        };
        let handle = nccl::Window::register(&comm.owner, memory, flags)?;
        Ok(handle.map(|handle| Self { handle }))
    }

    /// `ncclCommWindowDeregister`. Local and immediate: it waits for no operation.
    ///
    /// # Errors
    /// [`Error::Nccl`], also when the window is of another communicator.
    pub fn end(self, comm: &Comm) -> Result<(), Error> {
        self.handle.end(&comm.owner)
    }
}
