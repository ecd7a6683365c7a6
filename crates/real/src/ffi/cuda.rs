//! Owners of what the CUDA driver hands out: a device's context, streams, events, ordinary memory.
//!
//! Not here: kernels, memory at a chosen address, handles for other processes, shared words, graphs and what a
//! machine has, which lie beside this file.

use std::ffi::c_void;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, Ordering};

use cudarc::driver::result::stream::StreamKind;
use cudarc::driver::result::{self, DriverError};
use cudarc::driver::sys;
use rankcheck_model::{CaptureMode, Test};

use super::{DeviceRange, FoundLibrary, Libraries};
use crate::Error;

/// The calls of this module and of its neighbours, by the symbols that cudarc loads for them.
const SYMBOLS: [&str; 64] = [
    "cuInit",
    "cuDeviceGet",
    "cuDeviceGetCount",
    "cuDeviceGetName",
    "cuDeviceTotalMem_v2",
    "cuDeviceGetUuid_v2",
    "cuDeviceGetPCIBusId",
    "cuDeviceGetAttribute",
    "cuDeviceCanAccessPeer",
    "cuDevicePrimaryCtxRetain",
    "cuDevicePrimaryCtxRelease_v2",
    "cuCtxSetCurrent",
    "cuStreamCreate",
    "cuStreamQuery",
    "cuStreamSynchronize",
    "cuStreamWaitEvent",
    "cuStreamDestroy_v2",
    "cuEventCreate",
    "cuEventRecord",
    "cuEventQuery",
    "cuEventElapsedTime_v2",
    "cuEventDestroy_v2",
    "cuMemAlloc_v2",
    "cuMemFree_v2",
    "cuMemGetInfo_v2",
    "cuMemHostAlloc",
    "cuMemFreeHost",
    "cuMemHostGetDevicePointer_v2",
    "cuMemsetD8Async",
    "cuMemcpyDtoHAsync_v2",
    "cuMemcpyHtoDAsync_v2",
    "cuMemcpyDtoDAsync_v2",
    "cuMemGetAllocationGranularity",
    "cuMemCreate",
    "cuMemRelease",
    "cuMemAddressReserve",
    "cuMemAddressFree",
    "cuMemMap",
    "cuMemUnmap",
    "cuMemSetAccess",
    "cuMemGetAddressRange_v2",
    "cuMemRetainAllocationHandle",
    "cuMemExportToShareableHandle",
    "cuMemImportFromShareableHandle",
    "cuModuleLoadDataEx",
    "cuModuleGetFunction",
    "cuModuleUnload",
    "cuLaunchKernel",
    "cuDriverGetVersion",
    "cuThreadExchangeStreamCaptureMode",
    "cuStreamBeginCapture_v2",
    "cuStreamEndCapture",
    "cuStreamIsCapturing",
    "cuGraphInstantiateWithFlags",
    "cuGraphLaunch",
    "cuGraphExecDestroy",
    "cuGraphDestroy",
    "cuMemHostRegister_v2",
    "cuMemHostUnregister",
    "cuStreamWriteValue32_v2",
    "cuStreamWaitValue32_v2",
    "cuIpcGetMemHandle",
    "cuIpcOpenMemHandle_v2",
    "cuIpcCloseMemHandle",
];

/// Looks for libcuda under the names that cudarc will try.
pub(super) fn probe() -> Result<FoundLibrary, Error> {
    let names: Vec<String> =
        ["cuda", "nvcuda"].into_iter().flat_map(cudarc::get_lib_name_candidates).collect();
    let missing = |what: String| Error::Missing { what, looked_for: super::looked_for(&names) };
    let (library, name) = super::open(&names)
        .ok_or_else(|| missing("libcuda (the CUDA driver, installed with the NVIDIA driver)".to_owned()))?;
    if let Some(symbol) = super::lacks(&library, &SYMBOLS) {
        return Err(missing(format!("{symbol} in {name}")));
    }
    let (code, version) = super::version_of(&library, "cuDriverGetVersion")
        .ok_or_else(|| missing(format!("cuDriverGetVersion in {name}")))?;
    if code != 0 {
        return Err(Error::Cuda { call: "cuDriverGetVersion", code: code.unsigned_abs() });
    }
    Ok(FoundLibrary { name, code: version, version: format!("{}.{}", version / 1000, version % 1000 / 10) })
}

fn failed(call: &'static str) -> impl FnOnce(DriverError) -> Error {
    move |DriverError(code)| Error::Cuda { call, code: code as u32 }
}

pub(super) fn check(call: &'static str, result: sys::CUresult) -> Result<(), Error> {
    if result == sys::CUresult::CUDA_SUCCESS { Ok(()) } else { Err(failed(call)(DriverError(result))) }
}

/// The primary context of a device, current on the thread that opened or entered it.
///
/// Bound to that thread: the current context is a property of the thread.
#[derive(Debug)]
pub struct Device {
    context: Context,
    retained: Retained,
    thread: PhantomData<*const ()>,
}

/// Who gives the context back.
#[derive(Debug, PartialEq, Eq)]
enum Retained {
    Here,
    Elsewhere,
}

/// A device's context, to be entered by other threads of the process.
#[derive(Debug, Clone, Copy)]
pub struct Context {
    raw: sys::CUcontext,
    device: sys::CUdevice,
}

// SAFETY: the driver's contexts belong to the process; any thread may make one current.
unsafe impl Send for Context {}
// SAFETY: as above; the handle itself is never changed.
unsafe impl Sync for Context {}

impl Context {
    /// Makes the context current on this thread.
    ///
    /// # Errors
    /// [`Error::Cuda`], also after the device that opened it has ended.
    pub fn enter(self) -> Result<Device, Error> {
        // SAFETY: the context was retained by `Device::open`; the driver answers a stale one with an error.
        check("cuCtxSetCurrent", unsafe { sys::cuCtxSetCurrent(self.raw) })?;
        super::graph::set_thread_mode(CaptureMode::Relaxed)?;
        Ok(Device { context: self, retained: Retained::Elsewhere, thread: PhantomData })
    }
}

impl Device {
    /// `cuInit`, then the primary context of the device, current on this thread.
    ///
    /// # Errors
    /// [`Error::Cuda`], also when there is no such device.
    pub fn open(_libraries: &Libraries, ordinal: i32) -> Result<Self, Error> {
        result::init().map_err(failed("cuInit"))?;
        let device = result::device::get(ordinal).map_err(failed("cuDeviceGet"))?;
        // SAFETY: `device` comes from `cuDeviceGet`.
        let raw =
            unsafe { result::primary_ctx::retain(device) }.map_err(failed("cuDevicePrimaryCtxRetain"))?;
        let context = Context { raw, device };
        let opened = Self { context, retained: Retained::Here, thread: PhantomData };
        // SAFETY: the context was retained above and is released in `end` only.
        check("cuCtxSetCurrent", unsafe { sys::cuCtxSetCurrent(raw) })?;
        Ok(opened)
    }

    /// The context, for other threads.
    #[must_use]
    pub fn context(&self) -> Context {
        self.context
    }

    /// The number of the device.
    #[must_use]
    pub fn ordinal(&self) -> i32 {
        self.context.device
    }

    /// Gives the context back, if this is the thread that opened it.
    ///
    /// # Errors
    /// [`Error::Cuda`].
    pub fn end(self) -> Result<(), Error> {
        let this = ManuallyDrop::new(self);
        if this.retained == Retained::Elsewhere {
            return Ok(());
        }
        // SAFETY: `device` comes from `cuDeviceGet`, and its context was retained once in `open`.
        unsafe { result::primary_ctx::release(this.context.device) }
            .map_err(failed("cuDevicePrimaryCtxRelease"))
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        if self.retained == Retained::Here {
            tracing::warn!(device = self.context.device, "a device's context was not given back");
        }
    }
}

/// Whether the work before a point is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Completion {
    /// All work before the point is complete.
    Complete,
    /// Something is still queued or running.
    Pending,
}

fn progress(call: &'static str, result: sys::CUresult) -> Result<Completion, Error> {
    if result == sys::CUresult::CUDA_ERROR_NOT_READY {
        return Ok(Completion::Pending);
    }
    check(call, result).map(|()| Completion::Complete)
}

/// A stream of the driver. Dropping it does not destroy it and logs a leak.
#[derive(Debug)]
pub struct RawStream {
    pub(super) raw: sys::CUstream,
}

// SAFETY: the driver takes a stream from any thread and locks what it has to.
unsafe impl Send for RawStream {}
// SAFETY: as above.
unsafe impl Sync for RawStream {}

impl RawStream {
    /// A stream that does not wait for the legacy default stream.
    pub(crate) fn create(_device: &Device) -> Result<Self, Error> {
        result::stream::create(StreamKind::NonBlocking)
            .map(|raw| Self { raw })
            .map_err(failed("cuStreamCreate"))
    }

    pub(super) fn raw(&self) -> sys::CUstream {
        self.raw
    }

    pub(crate) fn synchronize(&self) -> Result<(), Error> {
        // SAFETY: `raw` was created by `create` and is destroyed only by `end`, which consumes the owner.
        unsafe { result::stream::synchronize(self.raw) }.map_err(failed("cuStreamSynchronize"))
    }

    pub(crate) fn query(&self) -> Result<Completion, Error> {
        // SAFETY: the stream lives, as its owner is borrowed.
        progress("cuStreamQuery", unsafe { sys::cuStreamQuery(self.raw) })
    }

    pub(crate) fn wait(&self, event: &RawEvent) -> Result<(), Error> {
        // SAFETY: stream and event live, as their owners are borrowed; there are no flags.
        check("cuStreamWaitEvent", unsafe { sys::cuStreamWaitEvent(self.raw, event.raw, 0) })
    }

    pub(crate) fn fill_bytes(&self, range: &DeviceRange, byte: u8) -> Result<(), Error> {
        if range.len_bytes() == 0 {
            return Ok(());
        }
        let len = usize::try_from(range.len_bytes()).expect("CUDA needs 64-bit hosts");
        // SAFETY: a device address is written, which the host does not read; the stream lives.
        let result = unsafe { sys::cuMemsetD8Async(range.address(), byte, len, self.raw) };
        check("cuMemsetD8Async", result)
    }

    pub(crate) fn copy(&self, from: &DeviceRange, to: &DeviceRange) -> Result<(), Error> {
        let len = from.len_bytes().min(to.len_bytes());
        if len == 0 {
            return Ok(());
        }
        let len = usize::try_from(len).expect("CUDA needs 64-bit hosts");
        // SAFETY: both are device addresses, which the host does not read; the stream lives.
        let result = unsafe { sys::cuMemcpyDtoDAsync_v2(to.address(), from.address(), len, self.raw) };
        check("cuMemcpyDtoDAsync", result)
    }

    /// Everything before it on the stream is visible to whoever sees the word.
    pub(crate) fn write_word(&self, address: u64, value: u32) -> Result<(), Error> {
        // SAFETY: the address is that of a registered word; the stream lives. Without flags the write waits for
        // what is before it to be visible.
        check("cuStreamWriteValue32", unsafe { sys::cuStreamWriteValue32_v2(self.raw, address, value, 0) })
    }

    /// What is behind it on the stream waits until the word passes the test.
    pub(crate) fn wait_word(&self, address: u64, test: Test, value: u32) -> Result<(), Error> {
        let flags = match test {
            Test::Equal => sys::CUstreamWaitValue_flags::CU_STREAM_WAIT_VALUE_EQ,
            Test::AtLeast | Test::AtLeastAround => sys::CUstreamWaitValue_flags::CU_STREAM_WAIT_VALUE_GEQ,
        };
        // SAFETY: the address is that of a registered word; the stream lives.
        let result = unsafe { sys::cuStreamWaitValue32_v2(self.raw, address, value, flags as u32) };
        check("cuStreamWaitValue32", result)
    }

    pub(crate) fn end(self) -> Result<(), Error> {
        // What was called on the stream inside a group is launched when the group ends.
        super::nccl::outside_group("cuStreamDestroy")?;
        let this = ManuallyDrop::new(self);
        // SAFETY: `raw` was created by `create`; the owner is consumed, so this happens once.
        unsafe { result::stream::destroy(this.raw) }.map_err(failed("cuStreamDestroy"))
    }
}

impl Drop for RawStream {
    fn drop(&mut self) {
        tracing::warn!(stream = ?self.raw, "a stream was not destroyed");
    }
}

/// Whether an event takes the time when it completes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Timing {
    /// It takes no time (`CU_EVENT_DISABLE_TIMING`).
    Off,
    /// It takes the time when it completes, which differences can be made of.
    On,
}

/// An event of the driver, with or without times. Dropping it does not destroy it and logs a leak.
#[derive(Debug)]
pub struct RawEvent {
    raw: sys::CUevent,
}

// SAFETY: the driver takes an event from any thread and locks what it has to.
unsafe impl Send for RawEvent {}
// SAFETY: as above.
unsafe impl Sync for RawEvent {}

impl RawEvent {
    pub(crate) fn create(_device: &Device, timing: Timing) -> Result<Self, Error> {
        let mut raw = ptr::null_mut();
        let flags = match timing {
            Timing::Off => sys::CUevent_flags_enum::CU_EVENT_DISABLE_TIMING as u32,
            Timing::On => sys::CUevent_flags_enum::CU_EVENT_DEFAULT as u32,
        };
        // SAFETY: `raw` is valid for a write; a context is current, as there is a `Device`.
        check("cuEventCreate", unsafe { sys::cuEventCreate(&raw mut raw, flags) })?;
        Ok(Self { raw })
    }

    pub(crate) fn record(&self, stream: &RawStream) -> Result<(), Error> {
        // SAFETY: both live, as their owners are borrowed.
        check("cuEventRecord", unsafe { sys::cuEventRecord(self.raw, stream.raw) })
    }

    /// An event that was never recorded is complete.
    pub(crate) fn query(&self) -> Result<Completion, Error> {
        // SAFETY: the event lives, as its owner is borrowed.
        progress("cuEventQuery", unsafe { sys::cuEventQuery(self.raw) })
    }

    /// Milliseconds from another event to this one. Both have to be complete and have times.
    pub(crate) fn milliseconds_since(&self, earlier: &Self) -> Result<f32, Error> {
        let mut milliseconds = 0.0;
        // SAFETY: both events live, as their owners are borrowed; `milliseconds` is valid for a write.
        let result = unsafe { sys::cuEventElapsedTime_v2(&raw mut milliseconds, earlier.raw, self.raw) };
        check("cuEventElapsedTime", result)?;
        Ok(milliseconds)
    }

    pub(crate) fn end(self) -> Result<(), Error> {
        let this = ManuallyDrop::new(self);
        // SAFETY: `raw` was created by `create`; the owner is consumed, so this happens once. The driver
        // keeps what streams still wait for.
        check("cuEventDestroy", unsafe { sys::cuEventDestroy_v2(this.raw) })
    }
}

impl Drop for RawEvent {
    fn drop(&mut self) {
        tracing::warn!(event = ?self.raw, "an event was not destroyed");
    }
}

/// Memory of the host that the device reads and writes too, zero at first.
#[derive(Debug)]
pub struct Pinned {
    host: NonNull<u8>,
    device: u64,
    len: usize,
}

// SAFETY: the memory belongs to the process, and the owner gives out bytes only by `&mut` and words only
// through atomic operations.
unsafe impl Send for Pinned {}
// SAFETY: as above.
unsafe impl Sync for Pinned {}

impl Pinned {
    /// `cuMemHostAlloc`, portable and mapped into the device, and filled with zeros.
    pub(crate) fn alloc(_device: &Device, len: usize) -> Result<Self, Error> {
        let mut host = ptr::null_mut();
        // CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP
        let flags = 1 | 2;
        // SAFETY: `host` is valid for a write; a context is current, as there is a `Device`.
        check("cuMemHostAlloc", unsafe { sys::cuMemHostAlloc(&raw mut host, len, flags) })?;
        let host = NonNull::new(host.cast::<u8>()).ok_or(Error::Cuda { call: "cuMemHostAlloc", code: 2 })?;
        // SAFETY: the driver allocated `len` bytes at `host`.
        unsafe { host.as_ptr().write_bytes(0, len) };
        let mut device = 0;
        // SAFETY: `host` comes from `cuMemHostAlloc` with the flag that maps it; `device` is valid for a write.
        let mapped =
            unsafe { sys::cuMemHostGetDevicePointer_v2(&raw mut device, host.as_ptr().cast::<c_void>(), 0) };
        check("cuMemHostGetDevicePointer", mapped)?;
        Ok(Self { host, device, len })
    }

    /// The address at which kernels find it.
    pub(crate) fn address(&self) -> u64 {
        self.device
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Writes the first word, which a running kernel may read at the same time.
    pub(crate) fn write_word(&self, value: u32) {
        assert!(self.len >= 4, "there is a first word");
        // SAFETY: the memory is as long as a word and aligned to a page; kernels only read it.
        let word = unsafe { AtomicU32::from_ptr(self.host.as_ptr().cast::<u32>()) };
        word.store(value, Ordering::SeqCst);
    }

    /// Copies `range` into the first bytes and waits with `wait` until they are there.
    pub(crate) fn read(
        &mut self,
        range: &DeviceRange,
        stream: &RawStream,
        wait: impl FnOnce(&RawStream) -> Result<(), Error>,
    ) -> Result<&[u8], Error> {
        let len = usize::try_from(range.len_bytes()).expect("CUDA needs 64-bit hosts");
        assert!(len <= self.len, "the range fits into the staging memory");
        // SAFETY: `len` bytes at `host` belong to this owner, which is borrowed mutably until they are read.
        let result = unsafe {
            sys::cuMemcpyDtoHAsync_v2(self.host.as_ptr().cast::<c_void>(), range.address(), len, stream.raw)
        };
        check("cuMemcpyDtoHAsync", result)?;
        wait(stream)?;
        // SAFETY: the copy is over, and nothing else writes the memory while it is borrowed.
        Ok(unsafe { std::slice::from_raw_parts(self.host.as_ptr(), len) })
    }

    pub(crate) fn end(self) -> Result<(), Error> {
        let this = ManuallyDrop::new(self);
        // SAFETY: `host` comes from `cuMemHostAlloc`; the owner is consumed, so this happens once.
        check("cuMemFreeHost", unsafe { sys::cuMemFreeHost(this.host.as_ptr().cast::<c_void>()) })
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        tracing::warn!(address = self.device, "pinned memory was not freed");
    }
}

/// Device memory of `cuMemAlloc`. Dropping it does not free it and logs a leak.
#[derive(Debug)]
pub struct RawMemory {
    range: DeviceRange,
}

impl RawMemory {
    pub(crate) fn alloc(_device: &Device, len_bytes: u64) -> Result<Self, Error> {
        let len = usize::try_from(len_bytes).map_err(|_| Error::Size { len_bytes })?;
        // SAFETY: the result is an address that is never read on the host.
        let address = unsafe { result::malloc_sync(len) }.map_err(failed("cuMemAlloc"))?;
        Ok(Self { range: DeviceRange::new(address, len_bytes) })
    }

    pub(crate) fn range(&self) -> DeviceRange {
        self.range
    }

    pub(crate) fn end(self) -> Result<(), Error> {
        let this = ManuallyDrop::new(self);
        // SAFETY: the address comes from `cuMemAlloc`; the owner is consumed, so this happens once.
        unsafe { result::free_sync(this.range.address()) }.map_err(failed("cuMemFree"))
    }
}

impl Drop for RawMemory {
    fn drop(&mut self) {
        tracing::warn!(address = self.range.address(), "memory of cuMemAlloc was not freed");
    }
}
