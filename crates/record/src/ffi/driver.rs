//! The calls of the CUDA driver.
//!
//! Not here: what a wrapper does (`calls.rs`); how programs come by them (`lookup.rs`).

use libc::{c_int, c_void};
use rankcheck_recording::{Returns, Signature};

use super::calls::{
    self, Manner, NumericAddress, Pointer, ToField, WrappedCall, at, calls, digest_at, manner, recorded_name,
    returned,
};
use super::find::Library;
use crate::recorder::{self, CallResult, CallSignatures, Where};

/// How the vendor's configuration of a launch begins.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct CUlaunchConfig {
    grid: [u32; 3],
    block: [u32; 3],
    shared: u32,
    stream: Pointer,
}

/// Kinds of handles that other processes can open.
const FILE_DESCRIPTOR: u64 = 1;
const FABRIC: u64 = 8;

/// What an exported handle is to those who import it: a file descriptor as a number, which has a meaning in one
/// process alone, or the digest of a fabric handle's 64 bytes.
enum Shareable {
    Descriptor(u64),
    Digest([u8; 16]),
}

impl ToField for Shareable {
    fn field(&self) -> rankcheck_recording::Field<'_> {
        match self {
            Self::Descriptor(number) => number.field(),
            Self::Digest(bytes) => bytes.field(),
        }
    }
}

/// # Safety
///
/// `to` is what an export of this kind wrote.
unsafe fn exported(to: *const c_void, kind: u64) -> Option<Shareable> {
    match kind {
        // SAFETY: an export of this kind writes a number.
        FILE_DESCRIPTOR => unsafe { at(to.cast::<u32>()) }.map(|number| Shareable::Descriptor(number.into())),
        // SAFETY: an export of this kind writes 64 bytes.
        FABRIC => unsafe { digest_at(to.cast::<[u8; 64]>(), 1) }.map(Shareable::Digest),
        _ => None,
    }
}

/// # Safety
///
/// `from` is what an import of this kind wants.
unsafe fn imported(from: *const c_void, kind: u64) -> Option<Shareable> {
    match kind {
        // A descriptor is passed as a pointer.
        FILE_DESCRIPTOR => Some(Shareable::Descriptor(from.addr() as u64)),
        // SAFETY: said above.
        _ => unsafe { exported(from, kind) },
    }
}

calls! {
    Driver;
    fn cuMemCreate(to: *mut u64, bytes: usize, properties: Pointer, flags: u64)
        [bytes = bytes] -> [handle = at(to).map(NumericAddress)];
    fn cuMemRelease(handle: u64) [handle = NumericAddress(handle)];
    fn cuMemAddressReserve(to: *mut u64, bytes: usize, alignment: usize, wish: u64, flags: u64)
        [bytes = bytes] -> [address = at(to).map(NumericAddress)];
    fn cuMemAddressFree(address: u64, bytes: usize) [address = NumericAddress(address), bytes = bytes];
    fn cuMemMap(address: u64, bytes: usize, offset: usize, handle: u64, flags: u64)
        [address = NumericAddress(address), bytes = bytes, offset = offset, handle = NumericAddress(handle)];
    fn cuMemUnmap(address: u64, bytes: usize) [address = NumericAddress(address), bytes = bytes];
    fn cuMemExportToShareableHandle(to: Pointer, handle: u64, kind: u64, flags: u64)
        [handle = NumericAddress(handle)] -> [shareable = exported(to, kind & 0xffff_ffff)];
    fn cuMemImportFromShareableHandle(to: *mut u64, from: Pointer, kind: u64)
        [shareable = imported(from, kind & 0xffff_ffff)] -> [handle = at(to).map(NumericAddress)];
    fn cuStreamWriteValue32(stream: Pointer, address: u64, value: u32, flags: u32)
        [stream = stream, address = NumericAddress(address), value = value, flags = flags];
    fn cuStreamWriteValue32_v2(stream: Pointer, address: u64, value: u32, flags: u32)
        [stream = stream, address = NumericAddress(address), value = value, flags = flags]
        as "cuStreamWriteValue32";
    fn cuStreamWaitValue32(stream: Pointer, address: u64, value: u32, flags: u32)
        [stream = stream, address = NumericAddress(address), value = value, flags = flags];
    fn cuStreamWaitValue32_v2(stream: Pointer, address: u64, value: u32, flags: u32)
        [stream = stream, address = NumericAddress(address), value = value, flags = flags]
        as "cuStreamWaitValue32";
    fn cuStreamBatchMemOp(stream: Pointer, operations: u32, list: Pointer, flags: u32)
        [stream = stream, operations = operations];
    fn cuStreamBatchMemOp_v2(stream: Pointer, operations: u32, list: Pointer, flags: u32)
        [stream = stream, operations = operations] as "cuStreamBatchMemOp";
    @Launch fn cuLaunchKernel(
        function: Pointer, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32, block_y: u32, block_z: u32,
        shared: u32, stream: Pointer, arguments: *mut Pointer, extra: *mut Pointer,
    ) [function = function, stream = stream];
    @Launch fn cuLaunchKernelEx(
        config: *const CUlaunchConfig, function: Pointer, arguments: *mut Pointer, extra: *mut Pointer,
    ) [function = function, stream = at(config).map(|config| config.stream)];
}
