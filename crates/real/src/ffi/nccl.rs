//! Owners of what NCCL hands out: memory, communicators, windows; and groups of calls.
//!
//! NCCL writes the results of a call that is made inside a group when the group ends. The calls that have a
//! result are therefore refused inside a group, so that no result is written through a stale pointer.
//!
//! Not here: split, point-to-point, the device interface, nonblocking communicators.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::mem::{ManuallyDrop, MaybeUninit};
use std::ptr::{self, NonNull};

use cudarc::nccl::sys;

use super::cuda::{Device, Stream};
use super::{DeviceRange, Found, Libraries};
use crate::Error;

/// The calls of this module, by the symbols that cudarc loads for them.
const SYMBOLS: [&str; 11] = [
    "ncclGetVersion",
    "ncclGetUniqueId",
    "ncclCommInitRank",
    "ncclCommDestroy",
    "ncclMemAlloc",
    "ncclMemFree",
    "ncclCommWindowRegister",
    "ncclCommWindowDeregister",
    "ncclAllReduce",
    "ncclGroupStart",
    "ncclGroupEnd",
];

thread_local! {
    /// How many groups this thread has started and not ended.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// Looks for libnccl under the names that cudarc will try.
pub(super) fn probe() -> Result<Found, Error> {
    let names = cudarc::get_lib_name_candidates("nccl");
    let missing = |what: String| Error::Missing { what, looked_for: super::looked_for(&names) };
    let Some((library, name)) = super::open(&names) else {
        // The Python wheels install this name alone, which the bindings do not try.
        let what = if super::open(&["libnccl.so.2".to_owned()]).is_some() {
            "libnccl.so (libnccl.so.2 is there: put a link libnccl.so to it into a folder of LD_LIBRARY_PATH)"
        } else {
            "libnccl.so"
        };
        return Err(missing(what.to_owned()));
    };
    let (code, version) = super::version_of(&library, "ncclGetVersion")
        .ok_or_else(|| missing(format!("ncclGetVersion in {name}")))?;
    if code != 0 {
        return Err(Error::Nccl { call: "ncclGetVersion", code: code.unsigned_abs() });
    }
    let version_text = format!("{}.{}.{}", version / 10000, version % 10000 / 100, version % 100);
    if let Some(symbol) = super::lacks(&library, &SYMBOLS) {
        return Err(missing(format!(
            "{symbol} in {name}, which is NCCL {version_text} (2.27 or later is needed)"
        )));
    }
    Ok(Found { name, code: version, version: version_text })
}

fn check(call: &'static str, result: sys::ncclResult_t) -> Result<(), Error> {
    if result == sys::ncclResult_t::ncclSuccess {
        Ok(())
    } else {
        Err(Error::Nccl { call, code: result as u32 })
    }
}

pub(super) fn outside_group(call: &'static str) -> Result<(), Error> {
    if DEPTH.get() == 0 { Ok(()) } else { Err(Error::InsideGroup { call }) }
}

/// A host pointer with the bits of a device address, for calls that take `void *`.
fn pointer(range: &DeviceRange) -> *mut c_void {
    ptr::without_provenance_mut(usize::try_from(range.address()).expect("CUDA needs 64-bit hosts"))
}

fn length(len: u64) -> usize {
    usize::try_from(len).expect("CUDA needs 64-bit hosts")
}

/// The 128 bytes by which the members of a new communicator find each other.
#[derive(Clone)]
pub struct UniqueId(sys::ncclUniqueId);

impl UniqueId {
    /// `ncclGetUniqueId`. One rank calls it and gives the bytes to the others.
    ///
    /// # Errors
    /// [`Error::Nccl`].
    pub fn create(_libraries: &Libraries) -> Result<Self, Error> {
        let mut id = MaybeUninit::uninit();
        // SAFETY: `id` is valid for a write.
        check("ncclGetUniqueId", unsafe { sys::ncclGetUniqueId(id.as_mut_ptr()) })?;
        // SAFETY: the call succeeded, so it has written the id.
        Ok(Self(unsafe { id.assume_init() }))
    }
}

impl std::fmt::Debug for UniqueId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("UniqueId(..)")
    }
}

/// Memory of `ncclMemAlloc`.
#[derive(Debug)]
pub struct Allocation {
    range: DeviceRange,
}

impl Allocation {
    pub(crate) fn alloc(_device: &Device, len_bytes: u64) -> Result<Self, Error> {
        let mut address = ptr::null_mut();
        // SAFETY: `address` is valid for a write; the device's context is current on this thread, to which
        // `Device` is bound.
        check("ncclMemAlloc", unsafe { sys::ncclMemAlloc(&raw mut address, length(len_bytes)) })?;
        Ok(Self { range: DeviceRange::new(address.addr() as u64, len_bytes) })
    }

    pub(crate) fn range(&self) -> DeviceRange {
        self.range
    }

    pub(crate) fn end(self) -> Result<(), Error> {
        let this = ManuallyDrop::new(self);
        // SAFETY: the address comes from `ncclMemAlloc`; the owner is consumed, so this happens once.
        check("ncclMemFree", unsafe { sys::ncclMemFree(pointer(&this.range)) })
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        tracing::warn!(address = self.range.address(), "memory of ncclMemAlloc was not freed");
    }
}

/// A blocking communicator.
#[derive(Debug)]
pub struct Comm {
    raw: NonNull<sys::ncclComm>,
}

impl Comm {
    pub(crate) fn init_rank(_device: &Device, id: &UniqueId, rank: u32, size: u32) -> Result<Self, Error> {
        const CALL: &str = "ncclCommInitRank";
        outside_group(CALL)?;
        let invalid = Error::Nccl { call: CALL, code: sys::ncclResult_t::ncclInvalidArgument as u32 };
        let (Ok(rank), Ok(size)) = (c_int::try_from(rank), c_int::try_from(size)) else {
            return Err(invalid);
        };
        let mut raw = ptr::null_mut();
        // SAFETY: `raw` is valid for a write and, outside a group, is written before the call returns.
        check(CALL, unsafe { sys::ncclCommInitRank(&raw mut raw, size, id.0, rank) })?;
        NonNull::new(raw).map(|raw| Self { raw }).ok_or(invalid)
    }

    pub(crate) fn all_reduce(
        &self,
        send: &DeviceRange,
        recv: &DeviceRange,
        count: u64,
        reduction: (sys::ncclDataType_t, sys::ncclRedOp_t),
        stream: &Stream,
    ) -> Result<(), Error> {
        let (dtype, op) = reduction;
        let (send, recv) = (pointer(send), pointer(recv));
        // SAFETY: communicator and stream live, as their owners are borrowed; the buffers are device
        // addresses that the host does not read. In a group, `Comm::end` is refused until the group's end.
        let result = unsafe {
            sys::ncclAllReduce(send, recv, length(count), dtype, op, self.raw.as_ptr(), stream.raw.cast())
        };
        check("ncclAllReduce", result)
    }

    pub(crate) fn end(self) -> Result<(), Error> {
        const CALL: &str = "ncclCommDestroy";
        outside_group(CALL)?;
        let this = ManuallyDrop::new(self);
        // SAFETY: `raw` comes from `ncclCommInitRank`; the owner is consumed, so this happens once.
        check(CALL, unsafe { sys::ncclCommDestroy(this.raw.as_ptr()) })
    }
}

impl Drop for Comm {
    fn drop(&mut self) {
        tracing::warn!(comm = ?self.raw, "a communicator was not destroyed");
    }
}

/// A window handle. Not an owner of memory: what it covers is freed by somebody else.
#[derive(Debug)]
pub struct Window {
    raw: NonNull<sys::ncclWindow_vidmem>,
}

impl Window {
    /// `ncclCommWindowRegister`; nothing if the call succeeds with a null window.
    pub(crate) fn register(comm: &Comm, memory: &DeviceRange, flags: c_int) -> Result<Option<Self>, Error> {
        const CALL: &str = "ncclCommWindowRegister";
        outside_group(CALL)?;
        let mut raw = ptr::null_mut();
        let len = length(memory.len_bytes());
        // SAFETY: the communicator lives; `raw` is valid for a write and, outside a group and with a blocking
        // communicator, is written before the call returns.
        let result = unsafe {
            sys::ncclCommWindowRegister(comm.raw.as_ptr(), pointer(memory), len, &raw mut raw, flags)
        };
        check(CALL, result)?;
        Ok(NonNull::new(raw).map(|raw| Self { raw }))
    }

    pub(crate) fn end(self, comm: &Comm) -> Result<(), Error> {
        let this = ManuallyDrop::new(self);
        // SAFETY: the communicator lives. NCCL looks the handle up in a table of the communicator and
        // answers an unknown one with an error.
        let result = unsafe { sys::ncclCommWindowDeregister(comm.raw.as_ptr(), this.raw.as_ptr()) };
        check("ncclCommWindowDeregister", result)
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        tracing::warn!(window = ?self.raw, "a window was not deregistered");
    }
}

pub(crate) fn group_start(_libraries: &Libraries) -> Result<(), Error> {
    // SAFETY: no preconditions; the depth is kept for this thread.
    check("ncclGroupStart", unsafe { sys::ncclGroupStart() })?;
    DEPTH.set(DEPTH.get() + 1);
    Ok(())
}

pub(crate) fn group_end(_libraries: &Libraries) -> Result<(), Error> {
    DEPTH.set(DEPTH.get().saturating_sub(1));
    // SAFETY: no preconditions; an end without a start is answered with an error.
    check("ncclGroupEnd", unsafe { sys::ncclGroupEnd() })
}
