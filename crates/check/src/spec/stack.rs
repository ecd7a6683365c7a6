//! The stack on which specs are read and evaluated.
//!
//! The interpreter goes down to the leaves of what it prints, hashes, collects and freezes. What a loop puts into its own
//! successor is nested as deep as the loop is long, and the limit of its memory is the only limit of that. So the stack is
//! as deep as values of that size can be nested; a page of it that nobody comes to takes no memory.

use std::num::NonZero;
use std::sync::{Mutex, OnceLock};
use std::thread::{self, Builder, Scope, ScopedJoinHandle};

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

/// Starts a thread on a deep stack.
///
/// # Errors
/// If there is no room for one more.
pub(crate) fn spawn_deep<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    work: impl FnOnce() -> T + Send + 'scope,
) -> std::io::Result<ScopedJoinHandle<'scope, T>> {
    Builder::new().stack_size(bytes()).spawn_scoped(scope, work)
}

/// Returns how deep a stack may be: where address space is short, it is less.
fn bytes() -> usize {
    static BYTES: OnceLock<usize> = OnceLock::new();
    *BYTES.get_or_init(|| {
        // Each thread that works has one, and as much is left for what it works on.
        let threads = 2 + 2 * thread::available_parallelism().map_or(1, NonZero::get);
        let sizes = std::iter::successors(Some(DEEP), |bytes| Some(bytes / 2));
        let fits = |bytes: &usize| fits(*bytes, threads);
        sizes.take_while(|bytes| *bytes > SHALLOW).find(fits).unwrap_or(SHALLOW)
    })
}

/// Whether there is room for so many stacks at once.
fn fits(bytes: usize, threads: usize) -> bool {
    let all_are_there = Mutex::new(());
    thread::scope(|scope| {
        let until_all_are_there = all_are_there.lock();
        let waits = || drop(all_are_there.lock());
        let spawn = |_| Builder::new().stack_size(bytes).spawn_scoped(scope, waits).ok();
        let spawned: Vec<_> = (0..threads).map_while(spawn).collect();
        let fits = spawned.len() == threads;
        drop(until_all_are_there);
        // Only a thread that was joined has given back its stack.
        spawned.into_iter().for_each(|thread| drop(thread.join()));
        fits
    })
}
