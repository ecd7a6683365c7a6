//! What the operating system is asked for: mapped memory, and word of forks and of the end.
//!
//! Not here: what the answers are for.

use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use libc::{c_int, c_void};

/// A part of a file as memory.
pub(crate) struct FileMapping {
    /// Where the mapping begins: at a page.
    base: NonNull<c_void>,
    mapped: usize,
    /// From there to the part.
    skip: usize,
    length: usize,
}

// SAFETY: it is memory that this value alone names.
unsafe impl Send for FileMapping {}

impl FileMapping {
    /// Makes room in the file and maps it. `None` if there is no room: a write into a mapping without room
    /// behind it would kill the process.
    pub(crate) fn new(file: c_int, at: u64, length: usize) -> Option<Self> {
        let offset = libc::off_t::try_from(at).ok()?;
        if at + length as u64 > file_size_limit() {
            // The kernel would send a signal, which ends the process.
            return None;
        }
        // SAFETY: it takes numbers alone.
        if unsafe { libc::posix_fallocate(file, offset, libc::off_t::try_from(length).ok()?) } != 0 {
            return None;
        }
        // SAFETY: as above.
        let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).ok()?;
        let skip = usize::try_from(at).ok()? % page;
        let (mapped, from) = (skip + length, offset - libc::off_t::try_from(skip).ok()?);
        let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        // SAFETY: a new mapping at an address that the kernel chooses.
        let base = unsafe { libc::mmap(ptr::null_mut(), mapped, access, flags, file, from) };
        if base == libc::MAP_FAILED {
            return None;
        }
        // At once, so that calls do not wait page by page. A kernel that is too old for it does that.
        // SAFETY: it was mapped above.
        unsafe { libc::madvise(base, mapped, libc::MADV_POPULATE_WRITE) };
        Some(Self { base: NonNull::new(base)?, mapped, skip, length })
    }

    /// The part of the file.
    #[inline]
    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: `new` mapped `skip + length` bytes here, and no other value names those of this part.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr().cast::<u8>().add(self.skip), self.length) }
    }
}

impl Drop for FileMapping {
    fn drop(&mut self) {
        // SAFETY: `new` mapped it, and nothing refers to it any more.
        unsafe { libc::munmap(self.base.as_ptr(), self.mapped) };
    }
}

/// How long files of this process may become.
fn file_size_limit() -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is written by the call.
    let code = unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut limit) };
    if code == 0 { limit.rlim_cur } else { u64::MAX }
}

/// Something that a process has and its child of a fork has not.
pub(crate) struct PerProcess<T: 'static>(AtomicPtr<T>);

impl<T> PerProcess<T> {
    pub(crate) const fn new() -> Self {
        Self(AtomicPtr::new(ptr::null_mut()))
    }

    pub(crate) fn get(&self) -> Option<&'static T> {
        // SAFETY: only `set` writes pointers here, to what is never given back.
        unsafe { self.0.load(Ordering::Acquire).as_ref() }
    }

    /// What is there from now on, and `value` if that is another's.
    pub(crate) fn set(&self, value: Box<T>) -> (&'static T, Option<Box<T>>) {
        let new = Box::into_raw(value);
        match self.0.compare_exchange(ptr::null_mut(), new, Ordering::AcqRel, Ordering::Acquire) {
            // SAFETY: it was a box, and is never given back.
            Ok(_) => (unsafe { &*new }, None),
            // SAFETY: what is there is never given back; `new` was a box and is nobody else's.
            Err(there) => unsafe { (&*there, Some(Box::from_raw(new))) },
        }
    }

    /// Forgets what the parent had.
    pub(crate) fn clear(&self) {
        self.0.store(ptr::null_mut(), Ordering::Release);
    }
}

/// The number of the last error, which a caller of the vendor's function may look at: put back when this goes.
pub(crate) struct Errno {
    address: *mut c_int,
    value: c_int,
}

impl Errno {
    pub(crate) fn kept() -> Self {
        // SAFETY: it is this thread's own.
        let address = unsafe { libc::__errno_location() };
        // SAFETY: as above.
        Self { address, value: unsafe { *address } }
    }
}

impl Drop for Errno {
    fn drop(&mut self) {
        // SAFETY: the pointer keeps this value on its thread, whose own it is.
        unsafe { *self.address = self.value };
    }
}

unsafe extern "C" {
    #[link_name = "on_exit"]
    fn libc_on_exit(handler: extern "C" fn(c_int, *mut c_void), argument: *mut c_void) -> c_int;
}

extern "C" fn at_exit(code: c_int, recorder_of: *mut c_void) {
    // A child of a fork inherits the handler of its parent.
    if recorder_of.addr() == std::process::id() as usize {
        crate::recorder::exiting(code);
    }
}

extern "C" fn in_child() {
    crate::recorder::forked();
}

extern "C" fn at_end() {
    crate::recorder::end();
}

/// Ends the process at once: no handler runs. Python ends the children so that its `multiprocessing` forks.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn _exit(code: c_int) -> ! {
    crate::recorder::leaves(code);
    loop {
        // SAFETY: it takes a number alone, and does not return.
        unsafe { libc::syscall(libc::SYS_exit_group, code) };
    }
}

/// As [`_exit`], by its name in the C standard.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn _Exit(code: c_int) -> ! {
    _exit(code)
}

/// Asks to be told of the end of this process and of its children.
pub(crate) fn on_exit() {
    // SAFETY: the handlers are of this library, which is never unloaded.
    unsafe {
        libc_on_exit(at_exit, ptr::without_provenance_mut(std::process::id() as usize));
        libc::pthread_atfork(None, None, Some(in_child));
    }
}

extern "C" fn at_thread_end(_: *mut c_void) {
    crate::recorder::thread_ends();
}

/// Asks to be told of the end of this thread. Unlike a destructor of Rust's, this one does not run when the
/// process ends.
pub(crate) fn watch_thread() {
    static KEY: AtomicU64 = AtomicU64::new(u64::MAX);
    let mut key = KEY.load(Ordering::Acquire);
    if key == u64::MAX {
        let mut new = 0;
        // SAFETY: `new` is written by the call, and the handler is of this library.
        if unsafe { libc::pthread_key_create(&raw mut new, Some(at_thread_end)) } != 0 {
            return;
        }
        key = u64::from(new);
        if let Err(there) = KEY.compare_exchange(u64::MAX, key, Ordering::AcqRel, Ordering::Acquire) {
            // SAFETY: it was made above and has no values.
            unsafe { libc::pthread_key_delete(new) };
            key = there;
        }
    }
    let key = libc::pthread_key_t::try_from(key).unwrap_or(0);
    // SAFETY: the key exists; the value only has to be something.
    unsafe { libc::pthread_setspecific(key, ptr::without_provenance(1)) };
}

/// Runs when everything else has ended: later than what is registered while the program runs.
#[used]
#[unsafe(link_section = ".fini_array")]
static AT_END: extern "C" fn() = at_end;
