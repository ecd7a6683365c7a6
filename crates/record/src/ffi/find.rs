//! Where the real functions are.
//!
//! Not here: the wrappers of them.

use std::ffi::{CStr, CString};
use std::os::unix::ffi::OsStringExt as _;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use libc::{c_char, c_int, c_void};

/// Whose function it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Library {
    Nccl,
    Runtime,
    Driver,
}

impl Library {
    /// How the file's name begins.
    fn prefix(self) -> &'static str {
        match self {
            Self::Nccl => "libnccl.so",
            Self::Runtime => "libcudart.so",
            Self::Driver => "libcuda.so",
        }
    }

    /// What a call returns that the real library does not have: `ncclInvalidUsage`, `cudaErrorSymbolNotFound`,
    /// `CUDA_ERROR_NOT_FOUND`.
    pub(super) fn missing(self) -> c_int {
        match self {
            Self::Nccl => 5,
            Self::Runtime | Self::Driver => 500,
        }
    }
}

/// `dlsym` of the C library, which this library hides.
pub(super) static REAL_DLSYM: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

type Dlsym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;

/// Finds `dlsym` of the C library. Allocates nothing.
pub(super) fn real_dlsym() -> Option<Dlsym> {
    let mut found = REAL_DLSYM.load(Ordering::Relaxed);
    if found.is_null() {
        // Its version differs by machine and age of the C library.
        for version in [c"GLIBC_2.34", c"GLIBC_2.2.5", c"GLIBC_2.17"] {
            // SAFETY: both names end in a zero.
            found = unsafe { libc::dlvsym(libc::RTLD_NEXT, c"dlsym".as_ptr(), version.as_ptr()) };
            if !found.is_null() {
                break;
            }
        }
        REAL_DLSYM.store(found, Ordering::Relaxed);
    }
    // SAFETY: a function of this name and version has this type; a null pointer is `None`.
    unsafe { std::mem::transmute::<*mut c_void, Option<Dlsym>>(found) }
}

/// `dlsym` as the program would have it.
pub(super) fn symbol(handle: *mut c_void, name: &CStr) -> *mut c_void {
    // SAFETY: the name ends in a zero, and the handle is from dlopen or a special one.
    real_dlsym().map_or(ptr::null_mut(), |dlsym| unsafe { dlsym(handle, name.as_ptr()) })
}

/// The real function of this name, in a library that is loaded, or that can be.
pub(super) fn function(library: Library, name: &CStr) -> *mut c_void {
    // NCCL has each function under a second name, which nobody else defines.
    let second = (library == Library::Nccl)
        .then(|| CString::new([b"p", name.to_bytes()].concat()).expect("a name has no zero inside"));
    let look = |handle| {
        let names = second.iter().map(CString::as_c_str).chain([name]);
        names.map(|name| symbol(handle, name)).find(|found| !found.is_null() && !is_own(*found))
    };
    if let Some(found) = look(libc::RTLD_NEXT) {
        return found;
    }
    let found = loaded(library).and_then(|path| look(open(&path, libc::RTLD_NOLOAD)));
    if let Some(found) = found {
        return found;
    }
    let chosen = std::env::var_os("RANKCHECK_NCCL").and_then(|path| CString::new(path.into_vec()).ok());
    let path = match library {
        Library::Nccl => chosen.unwrap_or_else(|| c"libnccl.so.2".to_owned()),
        Library::Driver => c"libcuda.so.1".to_owned(),
        // It has many versions, and a program that calls it has loaded its own.
        Library::Runtime => return ptr::null_mut(),
    };
    look(open(&path, 0)).unwrap_or(ptr::null_mut())
}

fn open(path: &CStr, flags: c_int) -> *mut c_void {
    // SAFETY: the path ends in a zero. A library that cannot be loaded is null, which finds what is global:
    // never this library's own names, since those are told apart.
    let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_LAZY | flags) };
    if handle.is_null() { libc::RTLD_NEXT } else { handle }
}

/// Where the object that has this address begins, and its path.
fn object_of(address: *const c_void) -> Option<libc::Dl_info> {
    let mut found = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: `found` is written by the call, where it succeeds.
    let ok = unsafe { libc::dladdr(address, found.as_mut_ptr()) } != 0;
    // SAFETY: zeros are a value of this type, which the call may have replaced.
    ok.then(|| unsafe { found.assume_init() })
}

/// Whether this address is of this library.
pub(super) fn is_own(address: *const c_void) -> bool {
    let own = object_of(real_dlsym as *const c_void).map(|object| object.dli_fbase);
    own.is_some() && object_of(address).map(|object| object.dli_fbase) == own
}

/// Whether this address is of NCCL, or of CUDA itself: what they look up is for themselves.
pub(super) fn is_vendors(address: *const c_void) -> bool {
    let Some(object) = object_of(address).filter(|object| !object.dli_fname.is_null()) else { return false };
    // SAFETY: the linker keeps the path for as long as the object is loaded, and it has a caller in it.
    let path = unsafe { CStr::from_ptr(object.dli_fname) }.to_bytes();
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
    [Library::Nccl, Library::Runtime, Library::Driver]
        .iter()
        .any(|library| name.starts_with(library.prefix().as_bytes()))
}

/// The path of a loaded library, if it is loaded.
fn loaded(library: Library) -> Option<CString> {
    struct LibrarySearch {
        prefix: &'static str,
        own: *mut c_void,
        found: Option<CString>,
    }
    unsafe extern "C" fn visit(object: *mut libc::dl_phdr_info, _: usize, search: *mut c_void) -> c_int {
        // SAFETY: the linker passes an object, and what `loaded` gave it.
        let (object, search) = unsafe { (&*object, &mut *search.cast::<LibrarySearch>()) };
        if object.dlpi_name.is_null() {
            return 0;
        }
        // SAFETY: names of objects end in a zero.
        let path = unsafe { CStr::from_ptr(object.dlpi_name) };
        let name = path.to_bytes().rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        let own = object.dlpi_addr == search.own.addr() as u64;
        if own || !name.starts_with(search.prefix.as_bytes()) {
            return 0;
        }
        search.found = Some(path.to_owned());
        1
    }
    let own = object_of(real_dlsym as *const c_void)?.dli_fbase;
    let mut search = LibrarySearch { prefix: library.prefix(), own, found: None };
    // SAFETY: `visit` gets `search`, which outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut search).cast()) };
    search.found
}
