//! A stand-in for libcuda: the calls by which programs wait, order, copy and allocate. They do nothing.
//!
//! Not here: what the calls are for.
#![allow(non_snake_case, missing_docs, reason = "names of the vendor, for tests alone")]

use std::ffi::{CStr, c_char, c_int, c_void};

macro_rules! nothing {
    ($($name:ident($($parameter:ident: $type:ty),*);)*) => {$(
        #[unsafe(no_mangle)]
        pub extern "C" fn $name($(_: $type),*) -> c_int {
            0
        }
    )*};
}

nothing! {
    cuMemFree_v2(address: u64);
    cuMemcpyHtoDAsync_v2(to: u64, from: usize, bytes: usize, stream: usize);
    cuMemcpyDtoH_v2(to: usize, from: u64, bytes: usize);
    cuMemsetD32Async(address: u64, value: u32, count: usize, stream: usize);
    cuMemsetD32Async_ptsz(address: u64, value: u32, count: usize, stream: usize);
    cuEventRecord(event: usize, stream: usize);
    cuStreamWaitEvent(stream: usize, event: usize, flags: u32);
    cuStreamSynchronize(stream: usize);
    cuStreamSynchronize_ptsz(stream: usize);
    cuCtxSynchronize();
    cuMemcpy2DAsync_v2(copy: *const u64, stream: usize);
    cuMemcpy3D_v2(copy: *const u64);
    cuGraphAddNode_v2(to: usize, graph: usize, behind: usize, edges: usize, count: usize, parameters: *const u64);
    cuLaunchKernel(
        function: usize, x: u32, y: u32, z: u32, bx: u32, by: u32, bz: u32, shared: u32, stream: usize,
        arguments: usize, extra: usize
    );
}

/// The function is called at once, by a thread of its own: nothing comes before it.
#[unsafe(no_mangle)]
pub extern "C" fn cuLaunchHostFunc(_: usize, function: extern "C" fn(usize), data: usize) -> c_int {
    std::thread::spawn(move || function(data)).join().expect("it returns");
    0
}

/// Stream 9 is captured.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamIsCapturing(stream: usize, status: *mut c_int) -> c_int {
    // SAFETY: as the caller says.
    unsafe { *status = c_int::from(stream == 9) };
    0
}

/// Memory at an address that tells its length.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemAlloc_v2(to: *mut u64, bytes: usize) -> c_int {
    // SAFETY: as the caller says.
    unsafe { *to = 0x2000_0000 + bytes as u64 };
    0
}

/// By the name without version; 2 among the flags asks for what takes the calling thread's stream for a null one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetProcAddress_v2(
    name: *const c_char,
    to: *mut *const c_void,
    _: c_int,
    flags: u64,
    _: *mut c_int,
) -> c_int {
    // SAFETY: as the caller says.
    let name = unsafe { CStr::from_ptr(name) }.to_str().expect("a name");
    let function = match (name, flags & 2) {
        ("cuMemAlloc", _) => cuMemAlloc_v2 as *const c_void,
        ("cuMemFree", _) => cuMemFree_v2 as *const c_void,
        ("cuMemcpyDtoH", _) => cuMemcpyDtoH_v2 as *const c_void,
        // A runtime that is linked in asks for this one like for the others.
        ("cuGetProcAddress", _) => cuGetProcAddress_v2 as *const c_void,
        ("cuMemcpy3D", _) => cuMemcpy3D_v2 as *const c_void,
        ("cuGraphAddNode", _) => cuGraphAddNode_v2 as *const c_void,
        ("cuCtxSynchronize", _) => cuCtxSynchronize as *const c_void,
        ("cuLaunchKernel", _) => cuLaunchKernel as *const c_void,
        ("cuStreamSynchronize", 0) => cuStreamSynchronize as *const c_void,
        ("cuStreamSynchronize", _) => cuStreamSynchronize_ptsz as *const c_void,
        ("cuMemsetD32Async", 0) => cuMemsetD32Async as *const c_void,
        ("cuMemsetD32Async", _) => cuMemsetD32Async_ptsz as *const c_void,
        _ => return 500,
    };
    // SAFETY: as the caller says.
    unsafe { *to = function };
    0
}
