//! Handles of memory for other processes, and the mappings that they open.
//!
//! Not here: how a handle gets to another process.

use std::ffi::c_char;
use std::mem::ManuallyDrop;

use cudarc::driver::sys;

use super::cuda::{Device, check};
use crate::Error;

/// Bytes of a handle.
pub(crate) const HANDLE_BYTES: usize = 64;

/// `cuIpcGetMemHandle` of the allocation at this address.
pub(crate) fn export(_device: &Device, address: u64) -> Result<[u8; HANDLE_BYTES], Error> {
    let mut handle = sys::CUipcMemHandle { reserved: [0; HANDLE_BYTES] };
    // SAFETY: `handle` is valid for a write; an address that is no allocation is answered with an error.
    check("cuIpcGetMemHandle", unsafe { sys::cuIpcGetMemHandle(&raw mut handle, address) })?;
    Ok(handle.reserved.map(|byte| byte as u8))
}

/// Memory of another process, mapped into this one.
#[derive(Debug)]
pub(crate) struct RawMapping {
    address: u64,
}

impl RawMapping {
    /// `cuIpcOpenMemHandle`. Every open needs its own end, although all of one handle have one address.
    pub(crate) fn open(_device: &Device, handle: &[u8; HANDLE_BYTES]) -> Result<Self, Error> {
        let handle = sys::CUipcMemHandle { reserved: handle.map(|byte| byte as c_char) };
        let mut address = 0;
        let flags = sys::CUipcMem_flags::CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS as u32;
        // SAFETY: `address` is valid for a write; the driver answers what is no handle with an error.
        let result = unsafe { sys::cuIpcOpenMemHandle_v2(&raw mut address, handle, flags) };
        check("cuIpcOpenMemHandle", result)?;
        Ok(Self { address })
    }

    pub(crate) fn address(&self) -> u64 {
        self.address
    }

    /// `cuIpcCloseMemHandle`, once: the owner is consumed.
    pub(crate) fn end(self) -> Result<(), Error> {
        let this = ManuallyDrop::new(self);
        // SAFETY: the address comes from `cuIpcOpenMemHandle`; the owner is consumed, so each open is closed
        // once.
        check("cuIpcCloseMemHandle", unsafe { sys::cuIpcCloseMemHandle(this.address) })
    }
}

impl Drop for RawMapping {
    fn drop(&mut self) {
        tracing::warn!(address = self.address, "a mapping was not closed");
    }
}
