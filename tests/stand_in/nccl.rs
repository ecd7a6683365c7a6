//! A stand-in for libnccl: the calls that the tests make. `ncclMemAlloc` calls CUDA, as the real one does.
//!
//! Not here: what the calls are for.
#![allow(non_snake_case, missing_docs, reason = "names of the vendor, for tests alone")]

use std::ffi::{c_char, c_int, c_void};
use std::sync::Mutex;

unsafe extern "C" {
    fn cudaMalloc(to: *mut *mut c_void, bytes: usize) -> c_int;
    fn __errno_location() -> *mut c_int;
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclGroupStart() -> c_int {
    // SAFETY: it is this thread's own.
    unsafe { *__errno_location() = 77 };
    0
}

/// Windows that were asked for within a group, and where they go.
static ASKED: Mutex<Vec<(usize, usize)>> = Mutex::new(Vec::new());

/// A group of registrations succeeds; any other one does not.
#[unsafe(no_mangle)]
pub extern "C" fn ncclGroupEnd() -> c_int {
    let asked = std::mem::take(&mut *ASKED.lock().expect("nobody panics"));
    for (to, window) in &asked {
        // SAFETY: the place is the caller's until the group ends.
        unsafe { *std::ptr::with_exposed_provenance_mut::<usize>(*to) = *window };
    }
    if asked.is_empty() { 5 } else { 0 }
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclCommWindowRegister(_: usize, address: usize, _: usize, to: *mut usize, _: c_int) -> c_int {
    ASKED.lock().expect("nobody panics").push((to.expose_provenance(), address + 1));
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclMemAlloc(to: *mut *mut c_void, bytes: usize) -> c_int {
    // SAFETY: as the caller says.
    unsafe { cudaMalloc(to, bytes) }
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclMemFree(_: *mut c_void) -> c_int {
    0
}

#[repr(C)]
pub struct UniqueId([c_char; 128]);

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommInitRank(to: *mut usize, ranks: c_int, id: UniqueId, rank: c_int) -> c_int {
    // SAFETY: as the caller says.
    unsafe { *to = 0xc000 + (rank as usize) };
    c_int::from(id.0[127] != 7 || ranks != 4)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommInitAll(to: *mut usize, ranks: c_int, _: *const c_int) -> c_int {
    for rank in 0..ranks as usize {
        // SAFETY: as the caller says.
        unsafe { *to.add(rank) = 0xd000 + rank };
    }
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pncclGetVersion(to: *mut c_int) -> c_int {
    // SAFETY: as the caller says.
    unsafe { *to = 22809 };
    0
}

/// Not the one that the recorder forwards to, where there is another under its second name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclGetVersion(to: *mut c_int) -> c_int {
    // SAFETY: as the caller says.
    unsafe { pncclGetVersion(to) }
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclAllReduce(_: usize, _: usize, _: usize, _: c_int, _: c_int, _: usize, _: usize) -> c_int {
    0
}
