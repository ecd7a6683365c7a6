//! Owners of what the CUDA driver hands out: a device's context, a stream, ordinary memory.
//!
//! Not here: kernels, events, graphs, IPC handles.

use std::marker::PhantomData;
use std::mem::ManuallyDrop;

use cudarc::driver::result::stream::StreamKind;
use cudarc::driver::result::{self, DriverError};
use cudarc::driver::sys;

use super::{DeviceRange, Found, Libraries};
use crate::Error;

/// The calls of this module, by the symbols that cudarc loads for them.
const SYMBOLS: [&str; 11] = [
    "cuInit",
    "cuDeviceGet",
    "cuDevicePrimaryCtxRetain",
    "cuDevicePrimaryCtxRelease_v2",
    "cuCtxSetCurrent",
    "cuStreamCreate",
    "cuStreamSynchronize",
    "cuStreamDestroy_v2",
    "cuMemAlloc_v2",
    "cuMemFree_v2",
    "cuDriverGetVersion",
];

/// Looks for libcuda under the names that cudarc will try.
pub(super) fn probe() -> Result<Found, Error> {
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
    Ok(Found { name, code: version, version: format!("{}.{}", version / 1000, version % 1000 / 10) })
}

fn failed(call: &'static str) -> impl FnOnce(DriverError) -> Error {
    move |DriverError(code)| Error::Cuda { call, code: code as u32 }
}

/// The primary context of a device, current on the thread that opened it.
///
/// Bound to that thread: the current context is a property of the thread.
#[derive(Debug)]
pub struct Device {
    device: sys::CUdevice,
    thread: PhantomData<*const ()>,
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
        let context =
            unsafe { result::primary_ctx::retain(device) }.map_err(failed("cuDevicePrimaryCtxRetain"))?;
        let device = Self { device, thread: PhantomData };
        // SAFETY: the context was retained above and is released in `end` only.
        unsafe { result::ctx::set_current(context) }.map_err(failed("cuCtxSetCurrent"))?;
        Ok(device)
    }

    /// Gives the context back.
    ///
    /// # Errors
    /// [`Error::Cuda`].
    pub fn end(self) -> Result<(), Error> {
        let this = ManuallyDrop::new(self);
        // SAFETY: `device` comes from `cuDeviceGet`, and its context was retained once in `open`.
        unsafe { result::primary_ctx::release(this.device) }.map_err(failed("cuDevicePrimaryCtxRelease"))
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        tracing::warn!(device = self.device, "a device's context was not given back");
    }
}

/// A stream.
#[derive(Debug)]
pub struct Stream {
    pub(super) raw: sys::CUstream,
}

impl Stream {
    /// A stream that does not wait for the legacy default stream.
    pub(crate) fn create(_device: &Device) -> Result<Self, Error> {
        result::stream::create(StreamKind::NonBlocking)
            .map(|raw| Self { raw })
            .map_err(failed("cuStreamCreate"))
    }

    pub(crate) fn synchronize(&self) -> Result<(), Error> {
        // SAFETY: `raw` was created by `create` and is destroyed only by `end`, which consumes the owner.
        unsafe { result::stream::synchronize(self.raw) }.map_err(failed("cuStreamSynchronize"))
    }

    pub(crate) fn end(self) -> Result<(), Error> {
        // What was called on the stream inside a group is launched when the group ends.
        super::nccl::outside_group("cuStreamDestroy")?;
        let this = ManuallyDrop::new(self);
        // SAFETY: `raw` was created by `create`; the owner is consumed, so this happens once.
        unsafe { result::stream::destroy(this.raw) }.map_err(failed("cuStreamDestroy"))
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        tracing::warn!(stream = ?self.raw, "a stream was not destroyed");
    }
}

/// Memory of `cuMemAlloc`.
#[derive(Debug)]
pub struct Allocation {
    range: DeviceRange,
}

impl Allocation {
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

impl Drop for Allocation {
    fn drop(&mut self) {
        tracing::warn!(address = self.range.address(), "memory of cuMemAlloc was not freed");
    }
}
