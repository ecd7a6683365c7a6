//! The calls of NCCL.
//!
//! Not here: what a wrapper does (`calls.rs`); functions that are not recorded (`lookup.rs`).

use std::ptr;

use libc::{c_char, c_int, c_void};
use rankcheck_recording::{Returns, Signature};

use super::calls::{
    self, Form, Manner, Signed, ToField, WrappedCall, at, calls, digest_at, exported, form, manner,
    recorded_call, recorded_name, returned,
};
use super::find::{self, Library};
use crate::recorder::{self, CallResult, CallSignatures, LogThread, Where};

type ncclComm_t = *mut c_void;
type cudaStream_t = *mut c_void;
type ncclWindow_t = *mut c_void;

/// 128 bytes that make one communicator.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ncclUniqueId([c_char; 128]);

/// How the vendor's configuration begins, in all its versions.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ncclConfig_t {
    size: usize,
    magic: u32,
    version: u32,
    blocking: c_int,
    cga_cluster_size: c_int,
    ctas: [c_int; 2],
    net_name: *const c_char,
    split_share: c_int,
}

/// What an option is that nobody set.
const UNSET: c_int = c_int::MIN;

/// An option, or what NCCL takes where it is not set.
///
/// # Safety
///
/// `config` is null or the vendor's configuration.
unsafe fn option(
    config: *const ncclConfig_t,
    of: fn(&ncclConfig_t) -> (c_int, usize),
    default: c_int,
) -> c_int {
    // SAFETY: said above; every version is longer than this beginning, or says so.
    let Some(size) = (unsafe { at(config.cast::<usize>()) }) else { return default };
    let mut known = ncclConfig_t {
        size,
        magic: 0,
        version: 0,
        blocking: UNSET,
        cga_cluster_size: UNSET,
        ctas: [UNSET; 2],
        net_name: ptr::null(),
        split_share: UNSET,
    };
    let bytes = size.min(size_of::<ncclConfig_t>());
    // SAFETY: `bytes` are no more than either of them has.
    unsafe { ptr::copy_nonoverlapping(config.cast::<u8>(), (&raw mut known).cast::<u8>(), bytes) };
    let (value, end) = of(&known);
    if end > size || value == UNSET { default } else { value }
}

fn blocking(config: &ncclConfig_t) -> (c_int, usize) {
    (config.blocking, std::mem::offset_of!(ncclConfig_t, blocking) + size_of::<c_int>())
}

fn split_share(config: &ncclConfig_t) -> (c_int, usize) {
    (config.split_share, std::mem::offset_of!(ncclConfig_t, split_share) + size_of::<c_int>())
}

/// Ranks as bytes, four each, lowest first.
///
/// # Safety
///
/// There are `count` of them.
unsafe fn ranks(list: *const c_int, count: c_int) -> Vec<u8> {
    let count = usize::try_from(count).unwrap_or(0);
    // SAFETY: said above.
    (0..count).filter_map(|nth| unsafe { at(list.wrapping_add(nth)) }).flat_map(c_int::to_le_bytes).collect()
}

/// The communicator of a call that makes one for each of several ranks; not known if there is not one rank.
///
/// # Safety
///
/// It is null, or where the call writes to.
unsafe fn only(to: *mut ncclComm_t, ranks: c_int) -> Option<ncclComm_t> {
    // SAFETY: said above.
    if ranks == 1 { unsafe { at(to) } } else { None }
}

/// The devices for which a call makes communicators, as bytes, four each, lowest first; not known where it names none,
/// which are the first ones.
///
/// # Safety
///
/// It is null, or there are `count` of them.
unsafe fn devices(list: *const c_int, count: c_int) -> Option<Vec<u8>> {
    // SAFETY: said above.
    if list.is_null() { None } else { Some(unsafe { ranks(list, count) }) }
}

/// The communicators that a call made, as bytes, eight each, lowest first.
///
/// # Safety
///
/// It is null, or the call has written so many.
unsafe fn comms(to: *const ncclComm_t, count: c_int) -> Vec<u8> {
    let count = usize::try_from(count).unwrap_or(0);
    // SAFETY: said above.
    let made = (0..count).filter_map(|nth| unsafe { at(to.wrapping_add(nth)) });
    made.flat_map(|comm| (comm.addr() as u64).to_le_bytes()).collect()
}

/// The window that a registration made. Within a group it makes it when the group ends, and nothing is there yet.
///
/// # Safety
///
/// It is null, or where the registration writes to.
unsafe fn window_at(to: *mut ncclWindow_t) -> Option<ncclWindow_t> {
    if recorder::in_group(to.expose_provenance()) {
        return None;
    }
    // SAFETY: said above.
    unsafe { at(to) }
}

fn comm_made(thread: &LogThread, code: c_int) {
    if code == 0 {
        recorder::comm_made(thread, version);
    }
}

/// The version of NCCL, as NCCL numbers it.
fn version() -> Option<u64> {
    let function = find::function(Library::Nccl, c"ncclGetVersion");
    let mut version = 0;
    // SAFETY: the vendor's function of this name has this type; a null pointer is `None`.
    let function: Option<unsafe extern "C" fn(*mut c_int) -> c_int> =
        unsafe { std::mem::transmute(function) };
    // SAFETY: it writes one number.
    let code = unsafe { function?(&raw mut version) };
    u64::try_from(version).ok().filter(|_| code == 0)
}

fn group_began(thread: &LogThread, code: c_int) {
    if code == 0 {
        recorder::group_began(thread);
    }
}

fn group_ended(thread: &LogThread, code: c_int) {
    recorder::group_ended(thread, |to| {
        let to = ptr::with_exposed_provenance::<ncclWindow_t>(to);
        // SAFETY: the registration was told to write here until the group ends.
        if code == 0 { unsafe { at(to) }.map(|window| window.addr() as u64) } else { None }
    });
}

calls! {
    Nccl;
    fn ncclGetUniqueId(to: *mut ncclUniqueId) [] -> [id = digest_at(to, 1)];
    fn ncclCommInitRank(to: *mut ncclComm_t, ranks: c_int, id: ncclUniqueId, rank: c_int)
        [id = digest_at(&raw const id, 1), rank = rank, ranks = ranks, blocking = 1_u32] -> [comm = at(to)]
        then comm_made;
    fn ncclCommInitRankConfig(
        to: *mut ncclComm_t, ranks: c_int, id: ncclUniqueId, rank: c_int, config: *mut ncclConfig_t,
    ) [id = digest_at(&raw const id, 1), rank = rank, ranks = ranks, blocking = option(config, blocking, 1),
        share = option(config, split_share, 0)] -> [comm = at(to)] then comm_made;
    fn ncclCommInitRankScalable(
        to: *mut ncclComm_t, ranks: c_int, rank: c_int, count: c_int, ids: *mut ncclUniqueId,
        config: *mut ncclConfig_t,
    ) [id = digest_at(ids, usize::try_from(count).unwrap_or(0)), rank = rank, ranks = ranks,
        blocking = option(config, blocking, 1), share = option(config, split_share, 0)] -> [comm = at(to)]
        then comm_made;
    fn ncclCommInitAll(to: *mut ncclComm_t, ranks: c_int, list: *const c_int)
        [ranks = ranks, devices = devices(list, ranks)] -> [comm = only(to, ranks), comms = comms(to, ranks)]
        then comm_made;
    fn ncclCommSplit(
        comm: ncclComm_t, color: c_int, key: c_int, to: *mut ncclComm_t, config: *mut ncclConfig_t,
    ) [comm = comm, color = Signed(color), key = Signed(key)] -> [comm = at(to)];
    fn ncclCommShrink(
        comm: ncclComm_t, list: *mut c_int, count: c_int, to: *mut ncclComm_t, config: *mut ncclConfig_t,
        flags: c_int,
    ) [comm = comm, excluded = ranks(list, count), flags = flags] -> [comm = at(to)];
    fn ncclCommDestroy(comm: ncclComm_t) [comm = comm];
    fn ncclCommAbort(comm: ncclComm_t) [comm = comm];
    fn ncclCommFinalize(comm: ncclComm_t) [comm = comm];
    fn ncclCommRegister(comm: ncclComm_t, address: *mut c_void, bytes: usize, to: *mut *mut c_void)
        [comm = comm, address = address, bytes = bytes] -> [handle = at(to)];
    fn ncclCommDeregister(comm: ncclComm_t, handle: *mut c_void) [comm = comm, handle = handle];
    fn ncclCommWindowRegister(
        comm: ncclComm_t, address: *mut c_void, bytes: usize, to: *mut ncclWindow_t, flags: c_int,
    ) [comm = comm, address = address, bytes = bytes, flags = flags] -> [window = window_at(to)];
    fn ncclCommWindowDeregister(comm: ncclComm_t, window: ncclWindow_t) [comm = comm, window = window];
    fn ncclMemAlloc(to: *mut *mut c_void, bytes: usize) [bytes = bytes] -> [address = at(to)];
    fn ncclMemFree(address: *mut c_void) [address = address];
    fn ncclGroupStart() [] then group_began;
    fn ncclGroupEnd() [] then group_ended;
    fn ncclSend(
        address: *const c_void, count: usize, dtype: c_int, peer: c_int, comm: ncclComm_t, stream: cudaStream_t,
    ) [address = address, count = count, dtype = dtype, peer = peer, comm = comm, stream = stream];
    fn ncclRecv(
        address: *mut c_void, count: usize, dtype: c_int, peer: c_int, comm: ncclComm_t, stream: cudaStream_t,
    ) [address = address, count = count, dtype = dtype, peer = peer, comm = comm, stream = stream];
    fn ncclAllReduce(
        send: *const c_void, recv: *mut c_void, count: usize, dtype: c_int, op: c_int, comm: ncclComm_t,
        stream: cudaStream_t,
    ) [send = send, recv = recv, count = count, dtype = dtype, op = op, comm = comm, stream = stream];
    fn ncclReduceScatter(
        send: *const c_void, recv: *mut c_void, count: usize, dtype: c_int, op: c_int, comm: ncclComm_t,
        stream: cudaStream_t,
    ) [send = send, recv = recv, count = count, dtype = dtype, op = op, comm = comm, stream = stream];
    fn ncclAllGather(
        send: *const c_void, recv: *mut c_void, count: usize, dtype: c_int, comm: ncclComm_t,
        stream: cudaStream_t,
    ) [send = send, recv = recv, count = count, dtype = dtype, comm = comm, stream = stream];
    fn ncclAlltoAll(
        send: *const c_void, recv: *mut c_void, count: usize, dtype: c_int, comm: ncclComm_t,
        stream: cudaStream_t,
    ) [send = send, recv = recv, count = count, dtype = dtype, comm = comm, stream = stream];
    fn ncclBroadcast(
        send: *const c_void, recv: *mut c_void, count: usize, dtype: c_int, root: c_int, comm: ncclComm_t,
        stream: cudaStream_t,
    ) [send = send, recv = recv, count = count, dtype = dtype, root = root, comm = comm, stream = stream];
    // The older spelling of a broadcast in place.
    fn ncclBcast(
        buffer: *mut c_void, count: usize, dtype: c_int, root: c_int, comm: ncclComm_t, stream: cudaStream_t,
    ) [send = buffer, recv = buffer, count = count, dtype = dtype, root = root, comm = comm, stream = stream]
        as "ncclBroadcast";
    fn ncclReduce(
        send: *const c_void, recv: *mut c_void, count: usize, dtype: c_int, op: c_int, root: c_int,
        comm: ncclComm_t, stream: cudaStream_t,
    ) [send = send, recv = recv, count = count, dtype = dtype, op = op, root = root, comm = comm,
        stream = stream];
    fn ncclGather(
        send: *const c_void, recv: *mut c_void, count: usize, dtype: c_int, root: c_int, comm: ncclComm_t,
        stream: cudaStream_t,
    ) [send = send, recv = recv, count = count, dtype = dtype, root = root, comm = comm, stream = stream];
    fn ncclScatter(
        send: *const c_void, recv: *mut c_void, count: usize, dtype: c_int, root: c_int, comm: ncclComm_t,
        stream: cudaStream_t,
    ) [send = send, recv = recv, count = count, dtype = dtype, root = root, comm = comm, stream = stream];
}
