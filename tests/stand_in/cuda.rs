//! A stand-in for libcudart and libcuda: the calls that the tests make.
//!
//! Not here: what the calls are for.
#![allow(non_snake_case, missing_docs, reason = "names of the vendor, for tests alone")]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::{AtomicU32, Ordering};

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaMalloc(to: *mut *mut c_void, bytes: usize) -> c_int {
    // SAFETY: as the caller says.
    unsafe { *to = std::ptr::without_provenance_mut(0x1000 + bytes) };
    0
}

#[unsafe(no_mangle)]
pub extern "C" fn cudaSetDevice(_: c_int) -> c_int {
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemCreate(to: *mut u64, _: usize, _: *const c_void, flags: u64) -> c_int {
    // SAFETY: as the caller says.
    unsafe { *to = flags };
    0
}

/// Another function of the same name, as a driver has for other versions of it.
unsafe extern "C" fn other(to: *mut u64, _: usize, _: *const c_void, flags: u64) -> c_int {
    // SAFETY: as the caller says.
    unsafe { *to = 2 * flags };
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaGetDriverEntryPoint(
    name: *const c_char,
    to: *mut *const c_void,
    flags: u64,
    _: *mut c_int,
) -> c_int {
    // SAFETY: as the caller says.
    if unsafe { CStr::from_ptr(name) } != c"cuMemCreate" {
        return 500;
    }
    let function = if flags == 0 { cuMemCreate as *const c_void } else { other as *const c_void };
    // SAFETY: as the caller says.
    unsafe { *to = function };
    0
}

unsafe extern "C" {
    fn dlopen(path: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
}

/// Calls the driver, as the real one does.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaStreamSynchronize(stream: usize) -> c_int {
    // SAFETY: names end in a zero, and the function has this type.
    unsafe {
        let driver = dlopen(c"libcuda.so.1".as_ptr(), 2);
        let wait = dlsym(driver, c"cuStreamSynchronize".as_ptr());
        std::mem::transmute::<*mut c_void, extern "C" fn(usize) -> c_int>(wait)(stream)
    }
}

#[repr(C)]
pub struct Dim3([u32; 3]);

#[unsafe(no_mangle)]
pub extern "C" fn __cudaLaunchKernel(
    _: usize, _: Dim3, _: Dim3, _: usize, _: usize, _: usize,
) -> c_int {
    0
}

#[unsafe(no_mangle)]
pub extern "C" fn __cudaLaunchKernel_ptsz(
    _: usize, _: Dim3, _: Dim3, _: usize, _: usize, _: usize,
) -> c_int {
    0
}

#[unsafe(no_mangle)]
pub extern "C" fn cudaLaunchCooperativeKernel(
    _: usize, _: Dim3, _: Dim3, _: usize, _: usize, _: usize,
) -> c_int {
    0
}

/// The function is called at once, by a thread of its own: nothing comes before it.
#[unsafe(no_mangle)]
pub extern "C" fn cudaLaunchHostFunc(_: usize, function: extern "C" fn(usize), data: usize) -> c_int {
    std::thread::spawn(move || function(data)).join().expect("it returns");
    0
}

/// Not ready three times, and then done.
#[unsafe(no_mangle)]
pub extern "C" fn cudaEventQuery(_: *mut c_void) -> c_int {
    static ASKED: AtomicU32 = AtomicU32::new(0);
    if ASKED.fetch_add(1, Ordering::Relaxed) < 3 { 600 } else { 0 }
}

#[unsafe(no_mangle)]
pub extern "C" fn cudaEventRecord(_: *mut c_void, _: *mut c_void) -> c_int {
    0
}

/// One of two thousand, in turn.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaStreamCreateWithFlags(to: *mut usize, _: u32) -> c_int {
    static MADE: AtomicU32 = AtomicU32::new(0);
    let nth = MADE.fetch_add(1, Ordering::Relaxed) % 2000;
    // SAFETY: as the caller says.
    unsafe { *to = 0x3000_0000 + 64 * nth as usize };
    0
}
