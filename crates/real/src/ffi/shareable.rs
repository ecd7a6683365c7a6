//! Shareable handles of memory of `cuMemCreate`, and the mappings of other processes that import them.
//!
//! A mapping holds the memory: the handle is released as soon as it is mapped. Not here: how a handle gets to
//! another process ([`super::descriptor`]).

use std::ffi::{c_int, c_void};
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};

use cudarc::driver::sys;

use super::cuda::{Device, check};
use super::placed::{self, Reservation};
use crate::Error;

const POSIX: sys::CUmemAllocationHandleType =
    sys::CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

/// A shareable handle, and the bytes of the memory that it names.
#[derive(Debug)]
pub(crate) struct RawShareable {
    pub(crate) descriptor: OwnedFd,
    pub(crate) mapped_bytes: u64,
}

/// `cuMemExportToShareableHandle` of the memory that is mapped at this address.
pub(crate) fn export(_device: &Device, address: u64) -> Result<RawShareable, Error> {
    let (mut base, mut len) = (0, 0);
    // SAFETY: both pointers are valid for a write; an address that is no allocation is answered with an error.
    let found = unsafe { sys::cuMemGetAddressRange_v2(&raw mut base, &raw mut len, address) };
    check("cuMemGetAddressRange", found)?;
    let mut handle = 0;
    // SAFETY: `handle` is valid for a write; the driver looks the address up and reads nothing there.
    let retained = unsafe { sys::cuMemRetainAllocationHandle(&raw mut handle, base as *mut c_void) };
    check("cuMemRetainAllocationHandle", retained)?;
    let mut descriptor: c_int = -1;
    // SAFETY: a handle of this type is written as an `int`; the memory was retained above.
    let exported = unsafe {
        sys::cuMemExportToShareableHandle((&raw mut descriptor).cast::<c_void>(), handle, POSIX, 0)
    };
    // SAFETY: the handle was retained above and is given up here, once.
    let released = unsafe { sys::cuMemRelease(handle) };
    check("cuMemExportToShareableHandle", exported)?;
    // SAFETY: the driver opened the descriptor for the caller.
    let descriptor = unsafe { OwnedFd::from_raw_fd(descriptor) };
    check("cuMemRelease", released)?;
    Ok(RawShareable { descriptor, mapped_bytes: len as u64 })
}

/// Memory of another process, mapped into this one by a shareable handle.
#[derive(Debug)]
pub(crate) struct RawImported {
    reservation: Reservation,
}

impl RawImported {
    /// `cuMemImportFromShareableHandle`, `cuMemMap` and `cuMemSetAccess` for this device.
    pub(crate) fn open(
        device: &Device,
        descriptor: BorrowedFd<'_>,
        mapped_bytes: u64,
    ) -> Result<Self, Error> {
        let mut handle = 0;
        let number = descriptor.as_raw_fd() as usize as *mut c_void;
        // SAFETY: a handle of this type is passed by value; `handle` is valid for a write.
        let imported = unsafe { sys::cuMemImportFromShareableHandle(&raw mut handle, number, POSIX) };
        check("cuMemImportFromShareableHandle", imported)?;
        let mapped = Self::map(device, handle, mapped_bytes);
        // SAFETY: the handle was imported above and is given up here, once; a mapping holds the memory.
        check("cuMemRelease", unsafe { sys::cuMemRelease(handle) })?;
        mapped
    }

    fn map(
        device: &Device,
        handle: sys::CUmemGenericAllocationHandle,
        mapped_bytes: u64,
    ) -> Result<Self, Error> {
        let reservation = Reservation::reserve(device, mapped_bytes, placed::granularity(device)?)?;
        let (base, len) = (reservation.base(), placed::length(mapped_bytes));
        // SAFETY: the addresses were reserved above; the handle lives.
        if let Err(error) = check("cuMemMap", unsafe { sys::cuMemMap(base, len, 0, handle, 0) }) {
            reservation.end()?;
            return Err(error);
        }
        let imported = Self { reservation };
        match placed::grant(device.ordinal(), base, mapped_bytes) {
            Ok(()) => Ok(imported),
            Err(error) => {
                imported.end()?;
                Err(error)
            }
        }
    }

    pub(crate) fn address(&self) -> u64 {
        self.reservation.base()
    }

    /// `cuMemUnmap`, after which nothing of this process holds the memory.
    pub(crate) fn end(self) -> Result<(), Error> {
        let (base, len) = (self.reservation.base(), placed::length(self.reservation.len_bytes()));
        // SAFETY: the memory is mapped at this address with this length; the owner is consumed.
        check("cuMemUnmap", unsafe { sys::cuMemUnmap(base, len) })?;
        self.reservation.end()
    }
}
