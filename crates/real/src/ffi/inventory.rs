//! What the driver says of the machine's devices. Nothing here opens a context.
//!
//! Not here: what follows from it ([`crate::machine`]).

use std::ffi::{CStr, c_char, c_int};

use cudarc::driver::sys;

use super::FoundLibrary;
use super::cuda::check;
use crate::Error;

/// `cuInit`, which every other call of the driver needs.
pub(crate) fn init(_driver: &FoundLibrary) -> Result<(), Error> {
    // SAFETY: no preconditions; 0 is the only flag there is.
    check("cuInit", unsafe { sys::cuInit(0) })
}

/// `cuDeviceGetCount`: how many devices the process sees.
pub(crate) fn count() -> Result<i32, Error> {
    let mut count = 0;
    // SAFETY: `count` is valid for a write.
    check("cuDeviceGetCount", unsafe { sys::cuDeviceGetCount(&raw mut count) })?;
    Ok(count)
}

/// `cuDeviceGetAttribute`, of the device with this ordinal.
pub(crate) fn attribute(device: c_int, attribute: sys::CUdevice_attribute) -> Result<i32, Error> {
    let mut value = 0;
    // SAFETY: `value` is valid for a write; an unknown device is answered with an error.
    let result = unsafe { sys::cuDeviceGetAttribute(&raw mut value, attribute, device) };
    check("cuDeviceGetAttribute", result)?;
    Ok(value)
}

/// Whether the device can create and bind multicast objects. Only asked, never used.
pub(crate) fn multicast(device: c_int) -> Result<bool, Error> {
    attribute(device, sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED)
        .map(|value| value != 0)
}

/// Major and minor number.
pub(crate) fn compute_capability(device: c_int) -> Result<(i32, i32), Error> {
    use sys::CUdevice_attribute as Attribute;
    let major = attribute(device, Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
    let minor = attribute(device, Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
    Ok((major, minor))
}

/// `cuDeviceCanAccessPeer`: whether `device` can map memory of `peer`.
pub(crate) fn reaches(device: c_int, peer: c_int) -> Result<bool, Error> {
    let mut reaches = 0;
    // SAFETY: `reaches` is valid for a write.
    let result = unsafe { sys::cuDeviceCanAccessPeer(&raw mut reaches, device, peer) };
    check("cuDeviceCanAccessPeer", result)?;
    Ok(reaches != 0)
}

/// `cuDeviceTotalMem`: the size of the device's memory.
pub(crate) fn total_bytes(device: c_int) -> Result<u64, Error> {
    let mut total = 0;
    // SAFETY: `total` is valid for a write.
    check("cuDeviceTotalMem", unsafe { sys::cuDeviceTotalMem_v2(&raw mut total, device) })?;
    Ok(total as u64)
}

/// `cuDeviceGetUuid`, as 32 hexadecimal digits.
pub(crate) fn uuid(device: c_int) -> Result<String, Error> {
    let mut uuid = sys::CUuuid { bytes: [0; 16] };
    // SAFETY: `uuid` is valid for a write.
    check("cuDeviceGetUuid", unsafe { sys::cuDeviceGetUuid_v2(&raw mut uuid, device) })?;
    Ok(uuid.bytes.iter().map(|byte| format!("{:02x}", *byte as u8)).collect())
}

/// `cuDeviceGetName`, for example `NVIDIA H200`.
pub(crate) fn name(device: c_int) -> Result<String, Error> {
    text("cuDeviceGetName", |text, len| {
        // SAFETY: `text` is valid for writes of `len` bytes.
        unsafe { sys::cuDeviceGetName(text, len, device) }
    })
}

/// `cuDeviceGetPCIBusId`, as domain, bus, device and function.
pub(crate) fn bus_id(device: c_int) -> Result<String, Error> {
    text("cuDeviceGetPCIBusId", |text, len| {
        // SAFETY: `text` is valid for writes of `len` bytes.
        unsafe { sys::cuDeviceGetPCIBusId(text, len, device) }
    })
}

fn text(
    call: &'static str,
    write: impl FnOnce(*mut c_char, c_int) -> sys::CUresult,
) -> Result<String, Error> {
    let mut bytes = [0_u8; 256];
    // One byte less than there is, so that the text ends in any case.
    check(call, write(bytes.as_mut_ptr().cast::<c_char>(), 255))?;
    let text = CStr::from_bytes_until_nul(&bytes).expect("the last byte is zero");
    Ok(text.to_string_lossy().into_owned())
}
