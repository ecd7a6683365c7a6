//! The allocator of the command, which is asked before an evaluation of a spec gets more than the memory holds.
//!
//! Not here: what is done then ([`rankcheck::command::again`]).

use std::alloc::{GlobalAlloc, Layout};

use mimalloc::MiMalloc;
use rankcheck::command::again::allocates;

/// Exploration copies states all the time; mimalloc makes it a third faster.
pub(crate) struct AskedAllocator;

// SAFETY: all is as `MiMalloc` does it, which keeps the contract.
unsafe impl GlobalAlloc for AskedAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        allocates(layout.size());
        // SAFETY: the caller keeps the contract.
        unsafe { MiMalloc.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        allocates(layout.size());
        // SAFETY: the caller keeps the contract.
        unsafe { MiMalloc.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, old: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        allocates(new_size);
        // SAFETY: the caller keeps the contract.
        unsafe { MiMalloc.realloc(old, layout, new_size) }
    }

    unsafe fn dealloc(&self, old: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract.
        unsafe { MiMalloc.dealloc(old, layout) }
    }
}
