//! How programs come by functions: `dlsym`, the driver's and the runtime's own ways, and names that are
//! forwarded without being recorded.
//!
//! Whoever asks for a function gets the wrapper of exactly that function. NCCL and CUDA themselves get what
//! they ask for. Not here: what a wrapper does.

use std::arch::naked_asm;
use std::ffi::CStr;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use libc::{c_char, c_int, c_void};

use super::calls::WrappedCall;
use super::find::{self, Library, REAL_DLSYM};
use super::process::Errno;
use super::{driver, nccl, runtime};

/// A function through which others are looked up, and its wrapper.
struct Lookup {
    name: &'static CStr,
    library: Library,
    wrapper: unsafe extern "C" fn(),
    real: AtomicPtr<c_void>,
}

impl Lookup {
    const fn new(name: &'static CStr, library: Library, wrapper: unsafe extern "C" fn()) -> Self {
        Self { name, library, wrapper, real: AtomicPtr::new(ptr::null_mut()) }
    }

    fn real(&self) -> *mut c_void {
        let real = self.real.load(Ordering::Relaxed);
        if !real.is_null() {
            return real;
        }
        let found = find::function(self.library, self.name);
        self.real.store(found, Ordering::Relaxed);
        found
    }
}

static LOOKUPS: [&Lookup; 6] = [
    &GET_PROC_ADDRESS,
    &GET_PROC_ADDRESS_2,
    &GET_ENTRY_POINT,
    &GET_ENTRY_POINT_PER_THREAD,
    &GET_ENTRY_POINT_BY_VERSION,
    &GET_ENTRY_POINT_BY_VERSION_PER_THREAD,
];

/// What a null stream is to a function that is looked up by a name that does not say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NullStream {
    Legacy,
    PerThread,
}

impl NullStream {
    /// As the flags of a lookup say (`CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM`; 1 is the legacy one).
    fn of(flags: u64, unless_said: Self) -> Self {
        match flags & 3 {
            0 => unless_said,
            1 => Self::Legacy,
            _ => Self::PerThread,
        }
    }
}

fn call_of(name: &CStr) -> Option<&'static WrappedCall> {
    calls().find(|call| call.name == name)
}

fn calls() -> impl Iterator<Item = &'static WrappedCall> {
    [nccl::TABLE, runtime::TABLE, driver::TABLE].into_iter().flatten().copied()
}

/// The call that takes the calling thread's stream for a null one, by the name without what says so.
fn per_thread_call_of(name: &CStr) -> Option<&'static WrappedCall> {
    let name = name.to_bytes();
    calls().find(|call| {
        let form = call.name.to_bytes();
        let plain = form.strip_suffix(b"_ptsz").or_else(|| form.strip_suffix(b"_ptds"));
        plain.is_some_and(|plain| plain == name || plain.strip_suffix(b"_v2") == Some(name))
    })
}

/// The wrapper of a function that was looked up under this name.
fn wrapper_of(name: &CStr, function: *mut c_void, null_stream: NullStream) -> *mut c_void {
    let per_thread = (null_stream == NullStream::PerThread).then(|| per_thread_call_of(name)).flatten();
    if let Some(call) = per_thread.or_else(|| call_of(name)) {
        return call.wrapper_of(function);
    }
    if function.is_null() || find::is_own(function) {
        return function;
    }
    // A name may lead to a later version, whose wrapper then is the one that nothing stands behind yet.
    let of_name = |lookup: &&&Lookup| {
        let known = lookup.name.to_bytes();
        known == name.to_bytes() || known.strip_suffix(b"_v2") == Some(name.to_bytes())
    };
    for lookup in LOOKUPS.iter().filter(of_name) {
        let taken =
            lookup.real.compare_exchange(ptr::null_mut(), function, Ordering::Relaxed, Ordering::Relaxed);
        if taken.is_ok() || taken == Err(function) {
            return lookup.wrapper as *mut c_void;
        }
    }
    // What two ways lead to may differ in its address, not in what it does.
    LOOKUPS.iter().find(of_name).map_or(function, |lookup| lookup.wrapper as *mut c_void)
}

/// Whether this lookup may be answered with a wrapper. Allocates nothing: allocators look up functions too.
unsafe extern "C" fn is_ours(handle: *mut c_void, name: *const c_char, caller: *const c_void) -> c_int {
    find::real_dlsym();
    // The function after the caller's: the caller is a wrapper itself.
    if name.is_null() || handle == libc::RTLD_NEXT {
        return 0;
    }
    // SAFETY: the name that dlsym gets ends in a zero.
    let name = unsafe { CStr::from_ptr(name) };
    let ours = [&b"cu"[..], b"nccl", b"__cuda"].iter().any(|begins| name.to_bytes().starts_with(begins));
    let ours = ours && (call_of(name).is_some() || LOOKUPS.iter().any(|lookup| lookup.name == name));
    c_int::from(ours && !find::is_vendors(caller))
}

/// `dlsym` for names that are ours.
unsafe extern "C" fn answer(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    // SAFETY: `is_ours` has seen that it is a name.
    let name = unsafe { CStr::from_ptr(name) };
    let _errno = Errno::kept();
    wrapper_of(name, find::symbol(handle, name), NullStream::Legacy)
}

/// `dlsym` of the C library, but for names that are ours. What it answers may depend on who calls it, so where
/// nothing is to be changed it is left to the real one with the stack as it was.
///
/// # Safety
///
/// As the C library says.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    naked_asm!(
        "push rdi",
        "push rsi",
        "mov rdx, [rsp + 16]",
        "sub rsp, 8",
        "call {is_ours}",
        "add rsp, 8",
        "pop rsi",
        "pop rdi",
        "test eax, eax",
        "jnz {answer}",
        "jmp [rip + {real}]",
        is_ours = sym is_ours,
        answer = sym answer,
        real = sym REAL_DLSYM,
    )
}

/// `dlsym` of the C library, for this processor.
///
/// # Safety
///
/// As the C library says.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    naked_asm!(
        "stp x29, x30, [sp, #-32]!",
        "stp x0, x1, [sp, #16]",
        "mov x29, sp",
        "mov x2, x30",
        "bl {is_ours}",
        "mov w9, w0",
        "ldp x0, x1, [sp, #16]",
        "ldp x29, x30, [sp], #32",
        "cbz w9, 2f",
        "b {answer}",
        "2:",
        "adrp x16, {real}",
        "ldr x16, [x16, :lo12:{real}]",
        "br x16",
        is_ours = sym is_ours,
        answer = sym answer,
        real = sym REAL_DLSYM,
    )
}

/// Puts the wrapper where a function was written.
///
/// # Safety
///
/// `name` is a name, and a lookup of it wrote to `to`.
unsafe fn replace(name: *const c_char, to: *mut *mut c_void, null_stream: NullStream) {
    if name.is_null() || to.is_null() {
        return;
    }
    // SAFETY: said above.
    let function = unsafe { *to };
    // A library that lets others stand in for its functions has found a wrapper, maybe of another version's name.
    if find::is_own(function) {
        return;
    }
    // SAFETY: said above.
    unsafe { *to = wrapper_of(CStr::from_ptr(name), function, null_stream) };
}

/// Defines a function that looks another one up: it writes that function's address to its second argument.
macro_rules! lookups {
    ($($lookup:ident = $library:ident $name:ident($third:ident: $third_type:ty, $fourth:ident: $fourth_type:ty,
        $fifth:ident: $fifth_type:ty) $flags:ident or $unless_said:ident;)*) => {$(
        static $lookup: Lookup = {
            type Wrapper = unsafe extern "C" fn(
                *const c_char, *mut *mut c_void, $third_type, $fourth_type, $fifth_type) -> c_int;
            let name = match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => panic!("a name has no zero inside"),
            };
            // SAFETY: whoever calls it gives it its type again.
            Lookup::new(name, Library::$library, unsafe {
                std::mem::transmute::<Wrapper, unsafe extern "C" fn()>($name)
            })
        };

        /// The vendor's function of this name; what it finds is wrapped. Arguments that a version does not have
        /// are harmless.
        ///
        /// # Safety
        ///
        /// As the vendor says.
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $name(
            name: *const c_char, to: *mut *mut c_void,
            $third: $third_type, $fourth: $fourth_type, $fifth: $fifth_type,
        ) -> c_int {
            let real = $lookup.real();
            if real.is_null() {
                return Library::$library.missing();
            }
            type Real = unsafe extern "C" fn(
                *const c_char, *mut *mut c_void, $third_type, $fourth_type, $fifth_type) -> c_int;
            // SAFETY: the vendor's function of this name has these parameters, or the first of them.
            let code = unsafe {
                std::mem::transmute::<*mut c_void, Real>(real)(name, to, $third, $fourth, $fifth)
            };
            if code == 0 {
                // SAFETY: the lookup succeeded.
                unsafe { replace(name, to, NullStream::of($flags, NullStream::$unless_said)) };
            }
            code
        }
    )*};
}

lookups! {
    GET_PROC_ADDRESS = Driver cuGetProcAddress(version: c_int, flags: u64, none: usize) flags or Legacy;
    GET_PROC_ADDRESS_2 =
        Driver cuGetProcAddress_v2(version: c_int, flags: u64, status: *mut c_int) flags or Legacy;
    GET_ENTRY_POINT =
        Runtime cudaGetDriverEntryPoint(flags: u64, status: *mut c_int, none: usize) flags or Legacy;
    GET_ENTRY_POINT_PER_THREAD =
        Runtime cudaGetDriverEntryPoint_ptsz(flags: u64, status: *mut c_int, none: usize) flags or PerThread;
    GET_ENTRY_POINT_BY_VERSION =
        Runtime cudaGetDriverEntryPointByVersion(version: u32, flags: u64, status: *mut c_int) flags or Legacy;
    GET_ENTRY_POINT_BY_VERSION_PER_THREAD =
        Runtime cudaGetDriverEntryPointByVersion_ptsz(version: u32, flags: u64, status: *mut c_int)
            flags or PerThread;
}

/// A name of NCCL that is forwarded as it is.
struct Forward {
    name: &'static CStr,
    /// Called if the real library has no such function.
    missing: unsafe extern "C" fn() -> usize,
    real: AtomicPtr<c_void>,
}

extern "C" fn missing_code() -> usize {
    5
}

extern "C" fn missing_text() -> usize {
    c"NCCL was not found, or has no such function".as_ptr().addr()
}

/// Where a call of a forwarded name goes on.
unsafe extern "C" fn destination(forward: &Forward) -> *mut c_void {
    let mut real = forward.real.load(Ordering::Relaxed);
    if real.is_null() {
        let _errno = Errno::kept();
        real = find::function(Library::Nccl, forward.name);
        if real.is_null() {
            real = forward.missing as *mut c_void;
        }
        forward.real.store(real, Ordering::Relaxed);
    }
    real
}

/// Names whose arguments nobody needs to know: registers and stack stay as they are.
macro_rules! forwards {
    ($($missing:ident: $($name:ident)*;)*) => {$($(
        mod $name {
            use super::*;

            pub(super) static FORWARD: Forward = Forward {
                name: match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                    Ok(name) => name,
                    Err(_) => panic!("a name has no zero inside"),
                },
                missing: $missing,
                real: AtomicPtr::new(ptr::null_mut()),
            };
        }

        /// The vendor's function of this name.
        ///
        /// # Safety
        ///
        /// As the vendor says.
        #[cfg(target_arch = "x86_64")]
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $name() {
            naked_asm!(
                "push rdi", "push rsi", "push rdx", "push rcx", "push r8", "push r9", "sub rsp, 8",
                "lea rdi, [rip + {forward}]",
                "call {destination}",
                "add rsp, 8", "pop r9", "pop r8", "pop rcx", "pop rdx", "pop rsi", "pop rdi",
                "jmp rax",
                forward = sym $name::FORWARD,
                destination = sym destination,
            )
        }

        /// The vendor's function of this name.
        ///
        /// # Safety
        ///
        /// As the vendor says.
        #[cfg(target_arch = "aarch64")]
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $name() {
            naked_asm!(
                "stp x29, x30, [sp, #-96]!",
                "stp x0, x1, [sp, #16]", "stp x2, x3, [sp, #32]", "stp x4, x5, [sp, #48]",
                "stp x6, x7, [sp, #64]", "str x8, [sp, #80]",
                "mov x29, sp",
                "adrp x0, {forward}", "add x0, x0, :lo12:{forward}",
                "bl {destination}",
                "mov x16, x0",
                "ldp x0, x1, [sp, #16]", "ldp x2, x3, [sp, #32]", "ldp x4, x5, [sp, #48]",
                "ldp x6, x7, [sp, #64]", "ldr x8, [sp, #80]",
                "ldp x29, x30, [sp], #96",
                "br x16",
                forward = sym $name::FORWARD,
                destination = sym destination,
            )
        }
    )*)*};
}

// Every public name of NCCL 2.27 to 2.32 that `nccl.rs` does not have.
forwards! {
    missing_text: ncclGetErrorString ncclGetLastError;
    missing_code:
        ncclGetVersion ncclCommCount ncclCommCuDevice ncclCommUserRank
        ncclCommGetAsyncError ncclCommRevoke ncclCommGrow ncclCommGetUniqueId ncclCommSuspend
        ncclCommResume ncclCommMemStats ncclRedOpCreatePreMulSum ncclRedOpDestroy ncclGroupSimulateEnd
        ncclResetDebugInit ncclPutSignal ncclSignal ncclWaitSignal ncclWinGetUserPtr
        ncclDevCommCreate ncclDevCommDestroy ncclGinBarrierCreateRequirement ncclLLA2ACalcSlots
        ncclLLA2ACreateRequirement ncclLsaBarrierCreateRequirement ncclTeamLsa ncclTeamRail
        ncclTeamRankToLsa ncclTeamRankToWorld ncclTeamWorld
        ncclParamBind ncclParamDumpAll ncclParamGet ncclParamGetAllParameterKeys ncclParamGetI8
        ncclParamGetI16 ncclParamGetI32 ncclParamGetI64 ncclParamGetParameter ncclParamGetStr
        ncclParamGetU8 ncclParamGetU16 ncclParamGetU32 ncclParamGetU64;
}
