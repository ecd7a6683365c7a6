//! Memory of the host that processes of one host share: a file that all of them map, and its registration with
//! the driver, through which streams reach it.
//!
//! Not here: what the words mean ([`crate::flag`]).

use std::ffi::c_void;
use std::fs::OpenOptions;
use std::mem::ManuallyDrop;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::ptr::{self, NonNull};
use std::sync::atomic::AtomicU32;

use cudarc::driver::sys;

use super::cuda::{Device, check};
use crate::Error;

/// A page that every process of a job maps.
#[derive(Debug)]
pub(crate) struct SharedPage {
    host: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping belongs to the process, and its words are reached through atomic operations only.
unsafe impl Send for SharedPage {}
// SAFETY: as above.
unsafe impl Sync for SharedPage {}

impl SharedPage {
    /// Maps a file, made and zero if nobody has made it yet.
    pub(crate) fn open(path: &Path, len: usize) -> Result<Self, Error> {
        let failed = |error: std::io::Error| Error::File {
            path: path.display().to_string(),
            message: error.to_string(),
        };
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let file = options.open(path).map_err(failed)?;
        // Whoever comes later sets the same length, which changes nothing.
        file.set_len(len as u64).map_err(failed)?;
        // SAFETY: a new mapping of a file that is open and `len` bytes long; the driver picks the address. The
        // mapping outlives the descriptor.
        let mapped = unsafe {
            libc::mmap(
                ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        if mapped == libc::MAP_FAILED {
            return Err(failed(std::io::Error::last_os_error()));
        }
        let host = NonNull::new(mapped.cast::<u8>()).expect("mmap gives no null page");
        Ok(Self { host, len })
    }

    /// The n-th word.
    ///
    /// # Panics
    /// Beyond the end.
    pub(crate) fn word(&self, nth: usize) -> &AtomicU32 {
        assert!((nth + 1) * 4 <= self.len, "there are {} words", self.len / 4);
        // SAFETY: the word lies in the mapping, is aligned, and is reached by atomic operations only, here and
        // in other processes; what streams do to it is as indivisible.
        unsafe { AtomicU32::from_ptr(self.host.as_ptr().cast::<u32>().add(nth)) }
    }

    /// `munmap`, once: the owner is consumed.
    pub(crate) fn end(self) -> Result<(), Error> {
        let this = ManuallyDrop::new(self);
        // SAFETY: the mapping comes from `open`; the owner is consumed, so this happens once.
        let code = unsafe { libc::munmap(this.host.as_ptr().cast::<c_void>(), this.len) };
        if code == 0 {
            return Ok(());
        }
        let message = std::io::Error::last_os_error().to_string();
        Err(Error::File { path: "shared words".to_owned(), message })
    }
}

impl Drop for SharedPage {
    fn drop(&mut self) {
        tracing::warn!(len = self.len, "shared words were not unmapped");
    }
}

/// Shared words that the driver knows: streams reach them at an address of the device.
#[derive(Debug)]
pub(crate) struct Registered {
    host: NonNull<u8>,
    address: u64,
}

// SAFETY: the driver takes registered memory from any thread, and the owner hands out nothing but an address.
unsafe impl Send for Registered {}
// SAFETY: as above.
unsafe impl Sync for Registered {}

impl Registered {
    /// `cuMemHostRegister` and `cuMemHostGetDevicePointer`. It has to end before the mapping does.
    pub(crate) fn register(_device: &Device, shared: &SharedPage) -> Result<Self, Error> {
        let host = shared.host.as_ptr().cast::<c_void>();
        // CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP
        let flags = 1 | 2;
        // SAFETY: the pages are mapped and as long as said; a context is current, as there is a `Device`.
        check("cuMemHostRegister", unsafe { sys::cuMemHostRegister_v2(host, shared.len, flags) })?;
        let registered = Self { host: shared.host, address: 0 };
        let mut address = 0;
        // SAFETY: `host` was registered above with the flag that maps it; `address` is valid for a write.
        let result = unsafe { sys::cuMemHostGetDevicePointer_v2(&raw mut address, host, 0) };
        if let Err(error) = check("cuMemHostGetDevicePointer", result) {
            registered.end()?;
            return Err(error);
        }
        let host = ManuallyDrop::new(registered).host;
        Ok(Self { host, address })
    }

    /// Where streams find the first word.
    pub(crate) fn address(&self) -> u64 {
        self.address
    }

    /// `cuMemHostUnregister`. No stream may work on the words any more.
    pub(crate) fn end(self) -> Result<(), Error> {
        let this = ManuallyDrop::new(self);
        // SAFETY: the memory was registered by `register`; the owner is consumed, so this happens once.
        check("cuMemHostUnregister", unsafe { sys::cuMemHostUnregister(this.host.as_ptr().cast::<c_void>()) })
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        tracing::warn!(address = self.address, "shared words were not unregistered");
    }
}
