//! Threads of the host: what one knows of itself, and values that it uses without waiting for others.
//!
//! Not here: what the values are for.

use std::cell::{Cell, UnsafeCell};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, compiler_fence};

use libc::c_int;

/// What a thread knows of itself: whether it is in a call of a vendor, and the value of its own. It has no
/// destructor: handlers of the end of the process call NCCL, and run after destructors of threads.
pub(crate) struct ThreadSelf<T: 'static> {
    /// Whether a call of a vendor is open. What that calls itself is not recorded.
    pub(crate) calling: Cell<bool>,
    /// Its own value, once it has one.
    pub(crate) own: Cell<Option<&'static Owned<T>>>,
    /// Nobody outside this file makes one, so that each is the thread's that names it.
    _only: Only,
}

struct Only;

impl<T> ThreadSelf<T> {
    /// For `thread_local!` alone: whoever has a reference to one is that thread.
    pub(crate) const fn new() -> Self {
        Self { calling: Cell::new(false), own: Cell::new(None), _only: Only }
    }

    fn id(&self) -> usize {
        ptr::from_ref(self).addr()
    }
}

/// Whose value it is, if it is no thread's: nobody's.
const FREE: usize = 0;
/// Whose value it is, once it was taken because the process ended.
const TAKEN: usize = 1;

/// A value that one thread uses, without an atomic operation that waits for other processors. Another one may
/// [`Owned::take`] it for good.
#[repr(C)]
pub(crate) struct Owned<T> {
    /// [`ThreadSelf::id`], [`FREE`] or [`TAKEN`].
    owner: AtomicUsize,
    /// Whether the owner is using it. Nobody else writes this.
    used: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: `with`, `claim` and `take` see to it that one thread at a time has the value.
unsafe impl<T: Send> Sync for Owned<T> {}

impl<T> Owned<T> {
    /// A value of this thread.
    pub(crate) fn new(thread: &ThreadSelf<T>, value: T) -> Self {
        Self {
            owner: AtomicUsize::new(thread.id()),
            used: AtomicBool::new(false),
            value: UnsafeCell::new(value),
        }
    }

    /// Calls this with the value. `None` if it is another's, or if a signal came while the thread was using it.
    /// If `use_it` panics, nobody uses the value any more.
    #[inline]
    pub(crate) fn with<R>(&self, thread: &ThreadSelf<T>, use_it: impl FnOnce(&mut T) -> R) -> Option<R> {
        let is_owner = || self.owner.load(Ordering::Relaxed) == thread.id();
        if !is_owner() || self.used.load(Ordering::Relaxed) {
            return None;
        }
        self.used.store(true, Ordering::Relaxed);
        // `take` stops this thread here, or sees that it is using it.
        compiler_fence(Ordering::SeqCst);
        let result = is_owner().then(|| {
            // SAFETY: this thread is its owner and was not using it; `take` leaves it alone while it is used.
            use_it(unsafe { &mut *self.value.get() })
        });
        self.used.store(false, Ordering::Release);
        result
    }

    /// Makes the value this thread's, if it is nobody's.
    pub(crate) fn claim(&self, thread: &ThreadSelf<T>) -> bool {
        self.owner.compare_exchange(FREE, thread.id(), Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Makes the value nobody's, if it is this thread's.
    pub(crate) fn free(&self, thread: &ThreadSelf<T>) {
        let _ = self.owner.compare_exchange(thread.id(), FREE, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// Takes the value away from its owner, for good. `None` if it is in use, or cannot be taken on this machine.
    pub(crate) fn take<R>(&self, use_it: impl FnOnce(&mut T) -> R) -> Option<R> {
        if self.owner.swap(TAKEN, Ordering::SeqCst) == TAKEN
            || !stop_all()
            || self.used.load(Ordering::Acquire)
        {
            return None;
        }
        // SAFETY: every thread has passed a barrier since `owner` was changed. So one that set `used` before is
        // seen here, and one that sets it later sees that it is not the owner.
        Some(use_it(unsafe { &mut *self.value.get() }))
    }
}

/// Makes every thread of this process pass a barrier. Returns whether the kernel can.
fn stop_all() -> bool {
    const EXPEDITED: c_int = 1 << 3;
    const REGISTER_EXPEDITED: c_int = 1 << 4;
    // SAFETY: it takes numbers alone.
    let ask = |command: c_int| unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) } == 0;
    ask(EXPEDITED) || ask(REGISTER_EXPEDITED) && ask(EXPEDITED)
}
