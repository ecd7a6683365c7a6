//! Owners of device code: a module that was loaded from PTX text, and the launch of its functions.
//!
//! Not here: the text, and what it computes ([`crate::kernel`]).

use std::ffi::{CStr, c_void};
use std::mem::ManuallyDrop;
use std::ptr;

use cudarc::driver::sys;

use super::cuda::{Device, RawStream, check};
use crate::Error;

/// Room for what the compiler has to say.
const LOG_BYTES: usize = 4096;

/// Loaded device code, of which [`Function`]s are part.
#[derive(Debug)]
pub(crate) struct Module {
    raw: sys::CUmodule,
}

/// A function of a module. Valid as long as the module is loaded.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Function {
    raw: sys::CUfunction,
}

// SAFETY: modules and functions belong to the context, and the driver takes them from any thread.
unsafe impl Send for Module {}
// SAFETY: as above.
unsafe impl Sync for Module {}
// SAFETY: as above.
unsafe impl Send for Function {}
// SAFETY: as above.
unsafe impl Sync for Function {}

impl Module {
    /// Compiles PTX for the current device and loads it.
    pub(crate) fn load(_device: &Device, ptx: &CStr) -> Result<Self, Error> {
        let mut raw = ptr::null_mut();
        let mut log = vec![0_u8; LOG_BYTES];
        let mut options = [
            sys::CUjit_option::CU_JIT_ERROR_LOG_BUFFER,
            sys::CUjit_option::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
        ];
        // The size is passed as a pointer's bits (`cuda.h`). One byte is left for the end of the text.
        let mut values = [log.as_mut_ptr().cast::<c_void>(), ptr::without_provenance_mut(LOG_BYTES - 1)];
        // SAFETY: `raw` is valid for a write; the image is text that ends with a zero byte; there are two
        // options and two values, and the log is valid for as many bytes as the second says.
        let result = unsafe {
            sys::cuModuleLoadDataEx(
                &raw mut raw,
                ptx.as_ptr().cast::<c_void>(),
                2,
                options.as_mut_ptr(),
                values.as_mut_ptr(),
            )
        };
        check("cuModuleLoadDataEx", result).map_err(|error| {
            let log = CStr::from_bytes_until_nul(&log).expect("the last byte is zero").to_string_lossy();
            if log.is_empty() { error } else { Error::Malformed { what: format!("{error}: {log}") } }
        })?;
        Ok(Self { raw })
    }

    pub(crate) fn function(&self, name: &CStr) -> Result<Function, Error> {
        let mut raw = ptr::null_mut();
        // SAFETY: `raw` is valid for a write; the module is loaded; the name ends with a zero byte.
        let result = unsafe { sys::cuModuleGetFunction(&raw mut raw, self.raw, name.as_ptr()) };
        check("cuModuleGetFunction", result)?;
        Ok(Function { raw })
    }

    pub(crate) fn end(self) -> Result<(), Error> {
        let this = ManuallyDrop::new(self);
        // SAFETY: the module was loaded by `load`; the owner is consumed, so this happens once.
        check("cuModuleUnload", unsafe { sys::cuModuleUnload(this.raw) })
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        tracing::warn!("device code was not unloaded");
    }
}

/// Launches a function on a grid of one dimension.
///
/// Each parameter is given as 8 bytes; the function takes as many of the low ones as its declaration says,
/// on hosts that store the low byte first, as all hosts of CUDA do. There must be as many as it declares.
pub(crate) fn launch(
    function: Function,
    (blocks, threads): (u32, u32),
    stream: &RawStream,
    parameters: &mut [u64],
) -> Result<(), Error> {
    let mut pointers: Vec<*mut c_void> =
        parameters.iter_mut().map(|parameter| ptr::from_mut(parameter).cast::<c_void>()).collect();
    // SAFETY: the function's module is loaded; every pointer is valid for 8 bytes until the call returns,
    // and the driver copies the parameters before it does. The callers in `crate::kernel` pass as many as
    // the text declares.
    let result = unsafe {
        sys::cuLaunchKernel(
            function.raw,
            blocks,
            1,
            1,
            threads,
            1,
            1,
            0,
            stream.raw,
            pointers.as_mut_ptr(),
            ptr::null_mut(),
        )
    };
    check("cuLaunchKernel", result)
}
