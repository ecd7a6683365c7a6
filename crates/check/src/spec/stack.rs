//! The stack on which specs are read and evaluated.
//!
//! The interpreter goes down to the leaves of what it prints, hashes, collects and freezes. What a loop puts into its own
//! successor is nested as deep as the loop is long, and the limit of its memory is the only limit of that. So the stack is
//! as deep as values of that size can be nested; a page of it that nobody comes to takes no memory.

use std::sync::OnceLock;
use std::thread;

/// More than values of [`MAX_HEAP_BYTES`](crate::spec::error::MAX_HEAP_BYTES) need: a tuple of one takes 24 bytes there,
/// and less than 1,000 here while it is frozen.
const DEEP: usize = 8 << 30;
/// What the deepest expressions and calls need, ten times over.
const SHALLOW: usize = 256 << 20;

/// Runs `work` on a deep stack.
pub(crate) fn deep<T>(work: impl FnOnce() -> T) -> T {
    let bytes = bytes();
    stacker::maybe_grow(bytes / 2, bytes, work)
}

/// Returns how deep a stack may be: where address space is short, it is less.
fn bytes() -> usize {
    static BYTES: OnceLock<usize> = OnceLock::new();
    *BYTES.get_or_init(|| {
        let spawns = |bytes: &usize| {
            let thread = thread::Builder::new().stack_size(*bytes).spawn(|| ());
            thread.is_ok_and(|thread| thread.join().is_ok())
        };
        let sizes = std::iter::successors(Some(DEEP), |bytes| Some(bytes / 2));
        sizes.take_while(|bytes| *bytes > SHALLOW).find(spawns).unwrap_or(SHALLOW)
    })
}
