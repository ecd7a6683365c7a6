//! A communicator: made by all its members together, matched by order afterwards.
//!
//! Not here: nonblocking communicators.

use std::ffi::c_int;

use rankcheck_model::{CollectiveKind, Dtype, ReduceOp, Resources};

use crate::Error;
use crate::collective::{self, Buffers, Elements};
use crate::ffi::cuda::{Completion, Device};
use crate::ffi::nccl::{self, NcclUniqueId};
use crate::ffi::{DeviceRange, Libraries};
use crate::group::group;
use crate::memory::CudaMemory;
use crate::stream::CudaStream;

/// A blocking communicator of this process.
#[derive(Debug)]
pub struct NcclComm {
    pub(crate) owner: nccl::RawComm,
    /// Position of this process among the members.
    pub rank: u32,
    /// How many members there are.
    pub size: u32,
}

/// A communicator that a call makes, or the end of the group that the call is in.
#[derive(Debug)]
pub struct PendingComm(nccl::RawPendingComm);

impl PendingComm {
    /// The communicator, after the call or the group has ended without an error; nothing for a split without a color.
    ///
    /// # Errors
    /// [`Error::InsideGroup`] before that, or [`Error::Nccl`].
    pub fn take(self) -> Result<Option<NcclComm>, Error> {
        let Some(owner) = self.0.take()? else { return Ok(None) };
        let (rank, size) = (owner.user_rank()?, owner.count()?);
        Ok(Some(NcclComm { owner, rank, size }))
    }
}

/// Which child of a split a member joins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Color {
    /// No child at all: `NCCL_SPLIT_NOCOLOR`.
    Nothing,
    /// The child of all members that say the same number. NCCL refuses negative ones.
    Of(i32),
}

/// The color of a member that joins no child: `NCCL_SPLIT_NOCOLOR` of `nccl.h`.
const NO_COLOR: c_int = -1;

impl NcclComm {
    /// `ncclCommInitRank`, or with a configuration where children are to share its channels. It, or the end of the
    /// group that it is in, blocks until every member calls it with the same id, without a timeout.
    ///
    /// # Errors
    /// [`Error::Nccl`].
    pub fn init_rank(
        device: &Device,
        id: &NcclUniqueId,
        rank: u32,
        size: u32,
        children: Resources,
    ) -> Result<PendingComm, Error> {
        nccl::RawComm::init_rank(device, id, (rank, size), children).map(PendingComm)
    }

    /// `ncclCommSplit`, in the parent's order, on channels of its own or the parent's, as the parent was made;
    /// nothing without a color. It, or the end of the group that it is in, blocks until every member calls it, without
    /// a timeout.
    ///
    /// # Errors
    /// [`Error::Nccl`].
    pub fn split(&self, color: Color) -> Result<PendingComm, Error> {
        let color = match color {
            Color::Nothing => NO_COLOR,
            Color::Of(color) => color,
        };
        let key = c_int::try_from(self.rank).expect("NCCL numbers its members with a C int");
        self.owner.split(color, key).map(PendingComm)
    }

    /// Connects every pair of members, so that later calls do not wait for a first connection: all-reduces of
    /// the sizes for which NCCL takes different algorithms, a broadcast, and one grouped exchange of every
    /// pair. Every member has to call it. Blocks until the device is done, without a timeout.
    ///
    /// # Errors
    /// [`Error::Nccl`] or [`Error::Cuda`].
    pub fn warm_up(&self, libraries: &Libraries, device: &Device, stream: &CudaStream) -> Result<(), Error> {
        const LEN_BYTES: u64 = 32 << 20;
        let memory = CudaMemory::alloc(device, LEN_BYTES)?;
        let result = self.exchange(libraries, memory.range(), stream);
        let freed = memory.end();
        result.and(freed)
    }

    fn exchange(&self, libraries: &Libraries, memory: DeviceRange, stream: &CudaStream) -> Result<(), Error> {
        let part = |at: u64, len_bytes: u64| memory.slice(at, len_bytes).expect("the parts lie inside");
        let floats = |count: u64| Elements { count, dtype: Dtype::F32 };
        for len_bytes in [1 << 10, 256 << 10, memory.len_bytes()] {
            let buffers = Buffers { send: part(0, len_bytes), recv: part(0, len_bytes) };
            let what = (CollectiveKind::AllReduce, ReduceOp::Sum);
            collective::collective(self, &buffers, floats(len_bytes / 4), what, stream)?;
        }
        let buffers = Buffers { send: part(0, 1 << 20), recv: part(0, 1 << 20) };
        let what = (CollectiveKind::Broadcast { root: 0 }, ReduceOp::Sum);
        collective::collective(self, &buffers, floats(1 << 18), what, stream)?;
        group(libraries, || {
            for peer in (0..self.size).filter(|peer| *peer != self.rank) {
                collective::send(self, &part(0, 64 << 10), floats(16 << 10), peer, stream)?;
                collective::receive(self, &part(1 << 20, 64 << 10), floats(16 << 10), peer, stream)?;
            }
            Ok(())
        })?;
        while stream.query()? == Completion::Pending {
            std::thread::yield_now();
        }
        Ok(())
    }

    /// The pointer value of the handle. A later communicator may get it once this one has ended.
    #[must_use]
    pub fn address(&self) -> usize {
        self.owner.address()
    }

    /// `ncclCommGetAsyncError`: what went wrong without a call that returned it.
    ///
    /// # Errors
    /// [`Error::Nccl`] with what went wrong.
    pub fn async_error(&self) -> Result<(), Error> {
        self.owner.async_error()
    }

    /// `ncclCommFinalize`. Waits until what this rank launched on the communicator is over; only [`NcclComm::end`] may
    /// follow.
    ///
    /// # Errors
    /// [`Error::Nccl`], also at the second call, or [`Error::InsideGroup`].
    pub fn finalize(&self) -> Result<(), Error> {
        self.owner.finalize()
    }

    /// `ncclCommDestroy`. Waits for the communicator's own streams; NCCL 2.28.9 leaks windows that are
    /// still registered.
    ///
    /// # Errors
    /// [`Error::Nccl`], or [`Error::InsideGroup`].
    pub fn end(self) -> Result<(), Error> {
        self.owner.end()
    }

    /// `ncclCommAbort`. On NCCL 2.28.9 it does not return while a symmetric kernel hangs.
    ///
    /// # Errors
    /// [`Error::Nccl`], or [`Error::InsideGroup`].
    pub fn abort(self) -> Result<(), Error> {
        self.owner.abort()
    }
}
