//! A communicator: made by all its members together, matched by order afterwards.
//!
//! Not here: splits, nonblocking communicators, abort.

use crate::Error;
use crate::ffi::cuda::Device;
use crate::ffi::nccl::{self, UniqueId};

/// A blocking communicator of this process.
#[derive(Debug)]
pub struct Comm {
    pub(crate) owner: nccl::Comm,
    /// Position of this process among the members.
    pub rank: u32,
    /// How many members there are.
    pub size: u32,
}

impl Comm {
    /// `ncclCommInitRank`. Blocks until every member calls it with the same id, without a timeout.
    ///
    /// # Errors
    /// [`Error::Nccl`], or [`Error::InsideGroup`].
    pub fn init_rank(device: &Device, id: &UniqueId, rank: u32, size: u32) -> Result<Self, Error> {
        nccl::Comm::init_rank(device, id, rank, size).map(|owner| Self { owner, rank, size })
    }

    /// `ncclCommDestroy`. Waits for the communicator's own streams; NCCL 2.28.9 leaks windows that are
    /// still registered.
    ///
    /// # Errors
    /// [`Error::Nccl`], or [`Error::InsideGroup`].
    pub fn end(self) -> Result<(), Error> {
        self.owner.end()
    }
}
