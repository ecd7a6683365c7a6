//! Owners of what NCCL hands out: memory, communicators, windows; and groups of calls.
//!
//! NCCL writes the results of a call that is made inside a group when the group ends: to memory that is never given
//! back, so that no result is written through a stale pointer.
//!
//! A communicator may be used by several threads, one after another. NCCL does not lock it: calls of two
//! threads at the same time are a broken rule, and spoil what NCCL keeps in this process.
//!
//! Not here: the device interface, nonblocking communicators.

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::mem::{ManuallyDrop, MaybeUninit};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU64, Ordering};

use cudarc::nccl::sys;
use rankcheck_model::{CollectiveKind, Resources};

use super::cuda::{Device, RawStream};
use super::{DeviceRange, FoundLibrary, Libraries};
use crate::Error;

/// The calls of this module, by the symbols that cudarc loads for them.
const SYMBOLS: [&str; 25] = [
    "ncclGetVersion",
    "ncclGetErrorString",
    "ncclGetLastError",
    "ncclGetUniqueId",
    "ncclCommInitRank",
    "ncclCommSplit",
    "ncclCommCount",
    "ncclCommUserRank",
    "ncclCommGetAsyncError",
    "ncclCommAbort",
    "ncclCommDestroy",
    "ncclCommFinalize",
    "ncclMemAlloc",
    "ncclMemFree",
    "ncclCommWindowRegister",
    "ncclCommWindowDeregister",
    "ncclAllReduce",
    "ncclAllGather",
    "ncclReduceScatter",
    "ncclBroadcast",
    "ncclReduce",
    "ncclSend",
    "ncclRecv",
    "ncclGroupStart",
    "ncclGroupEnd",
];

thread_local! {
    /// How many groups this thread has started and not ended.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
    /// The number of the group that is open on this thread; 0 if none is.
    static GROUP: Cell<u64> = const { Cell::new(0) };
}

/// Looks for libnccl under the names that cudarc will try.
pub(super) fn probe() -> Result<FoundLibrary, Error> {
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
    Ok(FoundLibrary { name, code: version, version: version_text })
}

fn check(call: &'static str, result: sys::ncclResult_t) -> Result<(), Error> {
    if result == sys::ncclResult_t::ncclSuccess {
        Ok(())
    } else {
        Err(Error::Nccl { call, code: result as u32 })
    }
}

/// How many groups were opened in this process.
static GROUPS: AtomicU64 = AtomicU64::new(0);

/// Whether the library has a call that NCCL 2.28 added: the bindings panic where it is missing.
fn since_2_28(call: &'static str) -> Result<(), Error> {
    let names = cudarc::get_lib_name_candidates("nccl");
    let there = super::open(&names).is_some_and(|(library, _)| super::lacks(&library, &[call]).is_none());
    let what = || format!("{call} in libnccl (NCCL 2.28 or later is needed)");
    if there { Ok(()) } else { Err(Error::Missing { what: what(), looked_for: super::looked_for(&names) }) }
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

/// A member of a communicator. A number that no communicator has stays one that none has.
fn position(member: u32) -> c_int {
    c_int::try_from(member).unwrap_or(c_int::MAX)
}

/// The text of an `ncclResult_t`, as the library has it.
#[must_use]
pub fn error_text(_libraries: &Libraries, code: u32) -> String {
    use sys::ncclResult_t as R;
    let known = [
        R::ncclSuccess,
        R::ncclUnhandledCudaError,
        R::ncclSystemError,
        R::ncclInternalError,
        R::ncclInvalidArgument,
        R::ncclInvalidUsage,
        R::ncclRemoteError,
        R::ncclInProgress,
    ];
    match known.into_iter().find(|result| *result as u32 == code) {
        // SAFETY: no preconditions; the text is a constant of the library.
        Some(result) => text(unsafe { sys::ncclGetErrorString(result) }),
        None => format!("result {code}"),
    }
}

/// What `ncclGetLastError` says: the last warning of this process, not only of this thread.
#[must_use]
pub fn last_error(_libraries: &Libraries) -> String {
    // SAFETY: the communicator is not used by the function (`init.cc`), so null is as good as any.
    text(unsafe { sys::ncclGetLastError(ptr::null_mut()) })
}

fn text(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: not null, and NCCL's texts end with a zero byte; the text is copied at once.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().trim().to_owned()
}

/// The 128 bytes by which the members of a new communicator find each other.
#[derive(Clone)]
pub struct NcclUniqueId(sys::ncclUniqueId);

impl NcclUniqueId {
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

    /// The bytes, to be handed to the other members.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        self.0.internal.iter().map(|byte| *byte as u8).collect()
    }

    /// An id from its bytes; nothing if there are not 128 of them.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let bytes: [u8; 128] = bytes.try_into().ok()?;
        Some(Self(sys::ncclUniqueId { internal: bytes.map(|byte| byte as c_char) }))
    }
}

impl std::fmt::Debug for NcclUniqueId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("NcclUniqueId(..)")
    }
}

/// Device memory of `ncclMemAlloc`. Dropping it does not free it and logs a leak.
#[derive(Debug)]
pub struct RawNcclMemory {
    range: DeviceRange,
}

impl RawNcclMemory {
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

impl Drop for RawNcclMemory {
    fn drop(&mut self) {
        tracing::warn!(address = self.range.address(), "memory of ncclMemAlloc was not freed");
    }
}

/// A blocking communicator: no call on it returns `ncclInProgress`.
#[derive(Debug)]
pub struct RawComm {
    raw: NonNull<sys::ncclComm>,
    /// The group that was open when a call on it was made last.
    group: AtomicU64,
}

/// `NCCL_CONFIG_INITIALIZER` of NCCL 2.28 with `splitShare`: all else is undefined, so that the default is taken.
/// NCCL asks the parent of a split, not the child (`init.cc:3109-3131`).
fn sharing() -> sys::ncclConfig_v22800 {
    const MAGIC: c_uint = 0xcafe_beef;
    const VERSION: c_uint = 22_800;
    const UNDEFINED: c_int = c_int::MIN;
    sys::ncclConfig_v22800 {
        size: size_of::<sys::ncclConfig_v22800>(),
        magic: MAGIC,
        version: VERSION,
        blocking: UNDEFINED,
        cgaClusterSize: UNDEFINED,
        minCTAs: UNDEFINED,
        maxCTAs: UNDEFINED,
        netName: ptr::null(),
        splitShare: 1,
        trafficClass: UNDEFINED,
        commName: ptr::null(),
        collnetEnable: UNDEFINED,
        CTAPolicy: UNDEFINED,
        shrinkShare: UNDEFINED,
        nvlsCTAs: UNDEFINED,
        nChannelsPerNetPeer: UNDEFINED,
        nvlinkCentricSched: UNDEFINED,
    }
}

impl RawComm {
    /// The communicator for a call that waits for the end of the group, if one is open.
    fn called(&self) -> sys::ncclComm_t {
        self.group.store(GROUP.get(), Ordering::Relaxed);
        self.raw.as_ptr()
    }

    /// Refuses to end a communicator on which the open group has a call: NCCL would end it first, and then use it.
    fn uncalled(&self, call: &'static str) -> Result<(), Error> {
        let called = DEPTH.get() > 0 && self.group.load(Ordering::Relaxed) == GROUP.get();
        if called { Err(Error::InsideGroup { call }) } else { Ok(()) }
    }

    pub(crate) fn address(&self) -> usize {
        self.raw.as_ptr().addr()
    }

    /// In a group NCCL makes the communicator when the group ends.
    pub(crate) fn init_rank(
        _device: &Device,
        id: &NcclUniqueId,
        (rank, size): (u32, u32),
        children: Resources,
    ) -> Result<RawPendingComm, Error> {
        let call = match children {
            Resources::Own => "ncclCommInitRank",
            Resources::Shared => "ncclCommInitRankConfig",
        };
        let (Ok(rank), Ok(size)) = (c_int::try_from(rank), c_int::try_from(size)) else {
            return Err(Error::Nccl { call, code: sys::ncclResult_t::ncclInvalidArgument as u32 });
        };
        let pending = Unwritten::new();
        let out = pending.out.as_ptr();
        let mut config = sharing();
        // SAFETY: `out` is valid for writes for ever; `config` outlives the call, which copies it.
        let result = unsafe {
            match children {
                Resources::Own => sys::ncclCommInitRank(out, size, id.0, rank),
                Resources::Shared => sys::ncclCommInitRankConfig(out, size, id.0, rank, &raw mut config),
            }
        };
        check(call, result)?;
        Ok(RawPendingComm(pending))
    }

    /// `ncclCommSplit` with the parent's configuration; nothing for a member without a color. In a group NCCL makes
    /// the child when the group ends.
    pub(crate) fn split(&self, color: c_int, key: c_int) -> Result<RawPendingComm, Error> {
        let pending = Unwritten::new();
        // SAFETY: the communicator lives; `out` is valid for writes for ever; for a null configuration the parent's is
        // taken.
        let result =
            unsafe { sys::ncclCommSplit(self.called(), color, key, pending.out.as_ptr(), ptr::null_mut()) };
        check("ncclCommSplit", result)?;
        Ok(RawPendingComm(pending))
    }

    pub(crate) fn count(&self) -> Result<u32, Error> {
        let mut count = 0;
        // SAFETY: the communicator lives; `count` is valid for a write.
        check("ncclCommCount", unsafe { sys::ncclCommCount(self.raw.as_ptr(), &raw mut count) })?;
        Ok(count.unsigned_abs())
    }

    pub(crate) fn user_rank(&self) -> Result<u32, Error> {
        let mut rank = 0;
        // SAFETY: the communicator lives; `rank` is valid for a write.
        check("ncclCommUserRank", unsafe { sys::ncclCommUserRank(self.raw.as_ptr(), &raw mut rank) })?;
        Ok(rank.unsigned_abs())
    }

    /// What went wrong since, apart from calls that returned it.
    pub(crate) fn async_error(&self) -> Result<(), Error> {
        const CALL: &str = "ncclCommGetAsyncError";
        let mut state = sys::ncclResult_t::ncclSuccess;
        // SAFETY: the communicator lives; `state` is valid for a write.
        check(CALL, unsafe { sys::ncclCommGetAsyncError(self.raw.as_ptr(), &raw mut state) })?;
        check(CALL, state)
    }

    /// The call of NCCL for each kind of collective.
    pub(crate) fn collective(
        &self,
        kind: CollectiveKind,
        call: &CollectiveCall,
        stream: &RawStream,
    ) -> Result<(), Error> {
        let CollectiveCall { send, recv, count, dtype, op } = *call;
        let (send, recv, count) = (pointer(&send), pointer(&recv), length(count));
        let (comm, stream) = (self.called(), stream.raw.cast());
        match kind {
            CollectiveKind::AllReduce => {
                // SAFETY: communicator and stream live, as their owners are borrowed; the buffers are device
                // addresses that the host does not read. In a group, the end of this communicator and the ends
                // of streams are refused until the group's end.
                let result = unsafe { sys::ncclAllReduce(send, recv, count, dtype, op, comm, stream) };
                check("ncclAllReduce", result)
            }
            CollectiveKind::AllGather => {
                // SAFETY: as for the all-reduce.
                let result = unsafe { sys::ncclAllGather(send, recv, count, dtype, comm, stream) };
                check("ncclAllGather", result)
            }
            CollectiveKind::ReduceScatter => {
                // SAFETY: as for the all-reduce.
                let result = unsafe { sys::ncclReduceScatter(send, recv, count, dtype, op, comm, stream) };
                check("ncclReduceScatter", result)
            }
            CollectiveKind::Broadcast { root } => {
                let root = position(root);
                // SAFETY: as for the all-reduce; a root that is no member is answered with an error.
                let result = unsafe { sys::ncclBroadcast(send, recv, count, dtype, root, comm, stream) };
                check("ncclBroadcast", result)
            }
            CollectiveKind::Reduce { root } => {
                let root = position(root);
                // SAFETY: as for the broadcast.
                let result = unsafe { sys::ncclReduce(send, recv, count, dtype, op, root, comm, stream) };
                check("ncclReduce", result)
            }
            CollectiveKind::Gather { root } => {
                since_2_28("ncclGather")?;
                let root = position(root);
                // SAFETY: as for the broadcast; the library has the call.
                let result = unsafe { sys::ncclGather(send, recv, count, dtype, root, comm, stream) };
                check("ncclGather", result)
            }
            CollectiveKind::Scatter { root } => {
                since_2_28("ncclScatter")?;
                let root = position(root);
                // SAFETY: as for the broadcast; the library has the call.
                let result = unsafe { sys::ncclScatter(send, recv, count, dtype, root, comm, stream) };
                check("ncclScatter", result)
            }
            CollectiveKind::AllToAll => {
                since_2_28("ncclAlltoAll")?;
                // SAFETY: as for the all-reduce; the library has the call.
                let result = unsafe { sys::ncclAlltoAll(send, recv, count, dtype, comm, stream) };
                check("ncclAlltoAll", result)
            }
        }
    }

    /// `ncclSend` to `call.peer`, a position in the communicator.
    pub(crate) fn send(&self, call: &TransferCall, stream: &RawStream) -> Result<(), Error> {
        let TransferCall { buffer, count, dtype, peer } = *call;
        let (buffer, count, peer) = (pointer(&buffer), length(count), position(peer));
        // SAFETY: as for the all-reduce; a peer that is no member is answered with an error.
        let result = unsafe { sys::ncclSend(buffer, count, dtype, peer, self.called(), stream.raw.cast()) };
        check("ncclSend", result)
    }

    /// `ncclRecv` from `call.peer`, a position in the communicator.
    pub(crate) fn receive(&self, call: &TransferCall, stream: &RawStream) -> Result<(), Error> {
        let TransferCall { buffer, count, dtype, peer } = *call;
        let (buffer, count, peer) = (pointer(&buffer), length(count), position(peer));
        // SAFETY: as for the send.
        let result = unsafe { sys::ncclRecv(buffer, count, dtype, peer, self.called(), stream.raw.cast()) };
        check("ncclRecv", result)
    }

    pub(crate) fn finalize(&self) -> Result<(), Error> {
        const CALL: &str = "ncclCommFinalize";
        self.uncalled(CALL)?;
        // SAFETY: `raw` comes from NCCL and lives; in a group no other call is on it before, and none after.
        check(CALL, unsafe { sys::ncclCommFinalize(self.called()) })
    }

    pub(crate) fn end(self) -> Result<(), Error> {
        const CALL: &str = "ncclCommDestroy";
        self.uncalled(CALL)?;
        let this = ManuallyDrop::new(self);
        // SAFETY: `raw` comes from NCCL; the owner is consumed, so this happens once.
        check(CALL, unsafe { sys::ncclCommDestroy(this.raw.as_ptr()) })
    }

    pub(crate) fn abort(self) -> Result<(), Error> {
        const CALL: &str = "ncclCommAbort";
        outside_group(CALL)?;
        let this = ManuallyDrop::new(self);
        // SAFETY: `raw` comes from NCCL; the owner is consumed, so this happens once.
        check(CALL, unsafe { sys::ncclCommAbort(this.raw.as_ptr()) })
    }
}

// SAFETY: NCCL's communicators belong to the process, not to a thread; see the head of this file.
unsafe impl Send for RawComm {}
// SAFETY: as above.
unsafe impl Sync for RawComm {}

/// What the calls of collectives take; each looks at what it needs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CollectiveCall {
    pub(crate) send: DeviceRange,
    pub(crate) recv: DeviceRange,
    /// As the call counts: elements of one rank's part.
    pub(crate) count: u64,
    pub(crate) dtype: sys::ncclDataType_t,
    pub(crate) op: sys::ncclRedOp_t,
}

/// What the calls of point-to-point take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TransferCall {
    pub(crate) buffer: DeviceRange,
    pub(crate) count: u64,
    pub(crate) dtype: sys::ncclDataType_t,
    /// Position of the other end in the communicator.
    pub(crate) peer: u32,
}

impl Drop for RawComm {
    fn drop(&mut self) {
        tracing::warn!(comm = ?self.raw, "a communicator was not destroyed");
    }
}

/// A window handle. Not an owner of memory: what it covers is freed by somebody else. NCCL looks the handle
/// up in a table of the communicator, so one that is not registered any more is only a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RawWindow {
    raw: NonNull<sys::ncclWindow_vidmem>,
}

// SAFETY: the handle is a device address, which the host never reads.
unsafe impl Send for RawWindow {}
// SAFETY: as above.
unsafe impl Sync for RawWindow {}

/// Where NCCL writes what a call makes: before the call returns, or in a group when the group ends.
#[derive(Debug)]
struct Unwritten<T> {
    /// Never given back: NCCL keeps the registrations of a group that failed, and may still write here when
    /// a later group ends.
    out: NonNull<*mut T>,
}

// SAFETY: `out` is memory of the process that nobody else knows, apart from NCCL until the group ends.
unsafe impl<T> Send for Unwritten<T> {}

impl<T> Unwritten<T> {
    fn new() -> Self {
        Self { out: NonNull::from(Box::leak(Box::new(ptr::null_mut()))) }
    }

    /// What was made, once the group has ended without an error; nothing if NCCL made none.
    fn take(self, what: &'static str) -> Result<Option<NonNull<T>>, Error> {
        outside_group(what)?;
        // SAFETY: `out` was allocated in `new` and lives for ever. The call has returned or the group has ended on
        // this thread, and NCCL joins the threads that run its tasks before it returns.
        Ok(NonNull::new(unsafe { self.out.as_ptr().read_volatile() }))
    }
}

/// A communicator that a call or the end of a group makes.
#[derive(Debug)]
pub(crate) struct RawPendingComm(Unwritten<sys::ncclComm>);

impl RawPendingComm {
    /// The communicator, once the group has ended without an error; nothing for a split without a color.
    pub(crate) fn take(self) -> Result<Option<RawComm>, Error> {
        Ok(self.0.take("reading a communicator")?.map(|raw| RawComm { raw, group: AtomicU64::new(0) }))
    }
}

/// A window that the end of a group makes.
#[derive(Debug)]
pub(crate) struct RawPendingWindow(Unwritten<sys::ncclWindow_vidmem>);

impl RawPendingWindow {
    /// The window, once the group has ended without an error; nothing if NCCL made none.
    pub(crate) fn take(self) -> Result<Option<RawWindow>, Error> {
        Ok(self.0.take("reading a window")?.map(|raw| RawWindow { raw }))
    }
}

impl RawWindow {
    /// `ncclCommWindowRegister`; nothing if the call succeeds with a null window.
    pub(crate) fn register(
        comm: &RawComm,
        memory: &DeviceRange,
        flags: c_int,
    ) -> Result<Option<Self>, Error> {
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

    /// The same inside a group: NCCL makes the window when the group ends.
    pub(crate) fn register_later(
        comm: &RawComm,
        memory: &DeviceRange,
        flags: c_int,
    ) -> Result<RawPendingWindow, Error> {
        let pending = Unwritten::new();
        let len = length(memory.len_bytes());
        // SAFETY: the communicator lives; `out` is valid for writes for ever.
        let result = unsafe {
            sys::ncclCommWindowRegister(comm.called(), pointer(memory), len, pending.out.as_ptr(), flags)
        };
        check("ncclCommWindowRegister", result)?;
        Ok(RawPendingWindow(pending))
    }

    /// `ncclCommWindowDeregister`, also of what is no window any more, or of null.
    pub(crate) fn deregister(comm: &RawComm, window: Option<Self>) -> Result<(), Error> {
        let raw = window.map_or(ptr::null_mut(), |window| window.raw.as_ptr());
        // SAFETY: the communicator lives. NCCL takes null for nothing to do, looks every other handle up in
        // a table of the communicator (without symmetric support: in its cache of registrations) and answers
        // an unknown one with an error.
        let result = unsafe { sys::ncclCommWindowDeregister(comm.raw.as_ptr(), raw) };
        check("ncclCommWindowDeregister", result)
    }
}

pub(crate) fn group_start(_libraries: &Libraries) -> Result<(), Error> {
    // SAFETY: no preconditions; the depth is kept for this thread.
    check("ncclGroupStart", unsafe { sys::ncclGroupStart() })?;
    if DEPTH.get() == 0 {
        GROUP.set(GROUPS.fetch_add(1, Ordering::Relaxed) + 1);
    }
    DEPTH.set(DEPTH.get() + 1);
    Ok(())
}

pub(crate) fn group_end(_libraries: &Libraries) -> Result<(), Error> {
    DEPTH.set(DEPTH.get().saturating_sub(1));
    if DEPTH.get() == 0 {
        GROUP.set(0);
    }
    // SAFETY: no preconditions; an end without a start is answered with an error.
    check("ncclGroupEnd", unsafe { sys::ncclGroupEnd() })
}

/// Makes the open group of this thread invalid, as a call without a communicator does.
pub(crate) fn group_spoil(_libraries: &Libraries) -> Result<(), Error> {
    let (dtype, op) = (sys::ncclDataType_t::ncclFloat32, sys::ncclRedOp_t::ncclSum);
    // SAFETY: NCCL looks at the communicator first and answers null with an error (`CommCheck`).
    let result = unsafe {
        sys::ncclAllReduce(ptr::null(), ptr::null_mut(), 0, dtype, op, ptr::null_mut(), ptr::null_mut())
    };
    check("ncclAllReduce", result)
}
