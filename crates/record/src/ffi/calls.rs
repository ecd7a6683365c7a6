//! What a wrapper does, said once for all calls.
//!
//! A program may hold more than one function of a name: of two NCCLs, or of two versions of a driver's call.
//! So a call has several wrappers, and each forwards to the one function that it was made for; the first is the
//! one that the linker would have found. Not here: which calls there are.

use std::ffi::CStr;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use libc::{c_int, c_void};
use rankcheck_recording::{Field, Returns};

use super::find::{self, Library};
use crate::recorder::{Polled, Where};

/// How many functions of one name are told apart; further ones are not recorded.
pub(super) const WRAPPERS: usize = 4;

/// A call of a vendor, its wrappers, and what they forward to.
pub(super) struct WrappedCall {
    pub(super) name: &'static CStr,
    pub(super) library: Library,
    pub(super) wrappers: [unsafe extern "C" fn(); WRAPPERS],
    real: [AtomicPtr<c_void>; WRAPPERS],
}

impl WrappedCall {
    pub(super) const fn new(
        name: &'static CStr,
        library: Library,
        wrappers: [unsafe extern "C" fn(); WRAPPERS],
    ) -> Self {
        Self { name, library, wrappers, real: [const { AtomicPtr::new(ptr::null_mut()) }; WRAPPERS] }
    }

    /// What this wrapper forwards to; null if there is no such function.
    #[inline]
    pub(super) fn real(&self, wrapper: usize) -> *mut c_void {
        let real = self.real[wrapper].load(Ordering::Relaxed);
        if !real.is_null() || wrapper > 0 { real } else { self.find() }
    }

    #[cold]
    fn find(&self) -> *mut c_void {
        let found = find::function(self.library, self.name);
        self.real[0].store(found, Ordering::Relaxed);
        found
    }

    /// The wrapper of this function, or the function itself if there are too many.
    pub(super) fn wrapper_of(&self, function: *mut c_void) -> *mut c_void {
        if function.is_null() {
            return function;
        }
        if find::is_own(function) {
            // What the linker finds first is the wrapper, whether or not there is something behind it.
            return if self.real(0).is_null() { ptr::null_mut() } else { function };
        }
        self.real(0);
        for (real, wrapper) in self.real.iter().zip(self.wrappers) {
            let taken =
                real.compare_exchange(ptr::null_mut(), function, Ordering::Relaxed, Ordering::Relaxed);
            if taken.is_ok() || taken == Err(function) {
                return wrapper as *mut c_void;
            }
        }
        function
    }
}

/// Whatever a call passes by its address.
pub(super) type Pointer = *mut c_void;

/// How an argument is kept.
pub(super) trait ToField {
    fn field(&self) -> Field<'_>;
}

impl<T> ToField for *const T {
    fn field(&self) -> Field<'_> {
        Field::Address(self.addr() as u64)
    }
}

impl<T> ToField for *mut T {
    fn field(&self) -> Field<'_> {
        Field::Address(self.addr() as u64)
    }
}

impl ToField for usize {
    fn field(&self) -> Field<'_> {
        Field::Number(*self as u64)
    }
}

impl ToField for u64 {
    fn field(&self) -> Field<'_> {
        Field::Number(*self)
    }
}

impl ToField for u32 {
    fn field(&self) -> Field<'_> {
        Field::Number(u64::from(*self))
    }
}

/// Enumerations, flags, ranks and devices.
impl ToField for c_int {
    fn field(&self) -> Field<'_> {
        Field::Number(u64::from(self.cast_unsigned()))
    }
}

/// Numbers that may well be negative.
pub(super) struct Signed(pub(super) c_int);

impl ToField for Signed {
    fn field(&self) -> Field<'_> {
        Field::Signed(self.0.into())
    }
}

/// An address that is a number in C.
pub(super) struct NumericAddress(pub(super) u64);

impl ToField for NumericAddress {
    fn field(&self) -> Field<'_> {
        Field::Address(self.0)
    }
}

/// A handle of which a program has a new one for nearly every call.
pub(super) struct Varying<T>(pub(super) *mut T);

impl<T> ToField for Varying<T> {
    fn field(&self) -> Field<'_> {
        Field::Varying(self.0.addr() as u64)
    }
}

impl<const N: usize> ToField for [u8; N] {
    fn field(&self) -> Field<'_> {
        Field::Bytes(self)
    }
}

impl ToField for Vec<u8> {
    fn field(&self) -> Field<'_> {
        Field::Bytes(self)
    }
}

impl<T: ToField> ToField for Option<T> {
    fn field(&self) -> Field<'_> {
        self.as_ref().map_or(Field::None, ToField::field)
    }
}

/// What a pointer points to, if it points anywhere.
///
/// # Safety
///
/// It is null, or as the vendor's function wants it.
pub(super) unsafe fn at<T: Copy>(pointer: *const T) -> Option<T> {
    // SAFETY: said above.
    (!pointer.is_null()).then(|| unsafe { pointer.read_unaligned() })
}

/// The bytes that a pointer points to, if it points anywhere, in sixteen.
///
/// # Safety
///
/// It is null, or as the vendor's function wants it.
pub(super) unsafe fn digest_at<T>(pointer: *const T, count: usize) -> Option<[u8; 16]> {
    if pointer.is_null() {
        return None;
    }
    // SAFETY: said above.
    let bytes = unsafe { std::slice::from_raw_parts(pointer.cast::<u8>(), count * size_of::<T>()) };
    Some(crate::digest::digest(bytes))
}

/// Whether the call did what it was called for. NCCL answers 7 (in progress) where a communicator does not
/// block.
pub(super) fn succeeded(library: Library, code: c_int) -> bool {
    code == 0 || library == Library::Nccl && code == 7
}

/// How a call is recorded.
#[derive(Clone, Copy)]
pub(super) enum Manner {
    /// It is entered and left.
    Returns(Where, Returns),
    /// It is written once it has returned, if that is news.
    Asks(Polled),
}

impl Manner {
    pub(super) const fn returns(self) -> Returns {
        match self {
            Self::Returns(_, returns) => returns,
            Self::Asks(_) => Returns::Later,
        }
    }

    pub(super) const fn site(self) -> Where {
        match self {
            Self::Returns(site, _) => site,
            Self::Asks(_) => Where::NotWanted,
        }
    }
}

/// Defines calls: the C function, what is kept of its arguments, and what is kept of what it made.
///
/// ```text
/// fn ncclMemAlloc(to: *mut *mut c_void, bytes: usize) [bytes = bytes] -> [address = at(to)];
/// ```
///
/// `then` names a function that follows the return, with the thread and the code.
/// `@Event fn` and `@Stream fn` ask about their first argument, again and again: only news are written.
/// `@AtOnce fn` waits for nobody, so nobody looks when it returns. `@Launch fn` is called so often that nobody looks
/// from where. Of the others, the call site is kept with the arguments where it is known.
/// The parameters are the vendor's, in order; more than it has are harmless, since callers leave them as they
/// are. All calls return a code. `table` becomes the list of them.
macro_rules! calls {
    (
        $library:ident;
        $($(@$manner:ident)? fn $name:ident($($parameter:ident: $type:ty),* $(,)?)
            [$($key:ident = $value:expr),* $(,)?] $(-> [$($out:ident = $got:expr),* $(,)?])?
            $(as $recorded:literal)? $(then $then:ident)?;)*
    ) => {
        /// Every call of this file.
        pub(super) static TABLE: &[&WrappedCall] = &[$(&$name::CALL),*];

        $(
            mod $name {
                use super::*;

                pub(super) static CALL: WrappedCall = {
                    type Wrapper = unsafe extern "C" fn($($type),*) -> c_int;
                    /// The same function without its type.
                    const fn plain(wrapper: Wrapper) -> unsafe extern "C" fn() {
                        // SAFETY: whoever calls it gives it its type again.
                        unsafe { std::mem::transmute::<Wrapper, unsafe extern "C" fn()>(wrapper) }
                    }
                    let name = match std::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                        Ok(name) => name,
                        Err(_) => panic!("a name has no zero inside"),
                    };
                    WrappedCall::new(name, Library::$library,
                        [plain(wrapper::<0>), plain(wrapper::<1>), plain(wrapper::<2>), plain(wrapper::<3>)])
                };

                const NAME: &str = recorded_name!($name $($recorded)?);
                static CALLED: CallSignatures = CallSignatures {
                    plain: Signature {
                        name: NAME,
                        keys: &[$(stringify!($key)),*],
                        instant: false,
                    },
                    sited: Signature {
                        name: NAME,
                        keys: &[$(stringify!($key),)* "place"],
                        instant: false,
                    },
                };
                const MANNER: Manner = manner!($($manner)?);

                $(const MADE: Signature = Signature {
                    name: NAME,
                    keys: &[$(stringify!($out)),*],
                    instant: false,
                };)?

                pub(super) unsafe extern "C" fn wrapper<const N: usize>($($parameter: $type),*) -> c_int {
                    let real = CALL.real(N);
                    if real.is_null() {
                        return Library::$library.missing();
                    }
                    // SAFETY: the vendor's function of this name has these parameters.
                    let real = unsafe {
                        std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($type),*) -> c_int>(real)
                    };
                    recorder::on_thread(|thread| {
                        if !recorder::wanted(thread) {
                            // SAFETY: as the program calls it.
                            return unsafe { real($($parameter),*) };
                        }
                        if let Manner::Asks(asked) = MANNER {
                            let at = recorder::ask(thread);
                            // SAFETY: as the program calls it.
                            let code = unsafe { real($($parameter),*) };
                            #[allow(unused_unsafe, reason = "most arguments are kept as they are")]
                            // SAFETY: pointers are as the vendor's function wants them.
                            unsafe {
                                recorder::answered(thread, asked, at, &CALLED.plain, &[$(ToField::field(&$value)),*], code);
                            };
                            return code;
                        }
                        #[allow(unused_unsafe, reason = "most arguments are kept as they are")]
                        // SAFETY: pointers are as the vendor's function wants them.
                        unsafe {
                            recorder::enter(
                                thread, &CALLED, [$(ToField::field(&$value)),*], MANNER.site(), MANNER.returns(),
                            );
                        };
                        // SAFETY: as the program calls it.
                        let code = unsafe { real($($parameter),*) };
                        if calls::succeeded(Library::$library, code) {
                            returned!(thread, $( unsafe { MADE [$($got),*] } )?);
                        } else {
                            recorder::leave(thread, MANNER.returns(), &CallResult::Failed(code.into()));
                        }
                        $($then(thread, code);)?
                        code
                    })
                }
            }

            /// The vendor's function of this name, recorded.
            ///
            /// # Safety
            ///
            /// As the vendor says.
            #[unsafe(no_mangle)]
            pub(crate) unsafe extern "C" fn $name($($parameter: $type),*) -> c_int {
                // SAFETY: as the program calls it.
                unsafe { $name::wrapper::<0>($($parameter),*) }
            }
        )*
    };
}

/// The name under which a call is recorded, where it is not its own.
macro_rules! recorded_name {
    ($name:ident) => {
        stringify!($name)
    };
    ($name:ident $recorded:literal) => {
        $recorded
    };
}

/// How a call is recorded.
macro_rules! manner {
    () => {
        Manner::Returns(Where::Wanted, Returns::Later)
    };
    (Launch) => {
        Manner::Returns(Where::NotWanted, Returns::Later)
    };
    (AtOnce) => {
        Manner::Returns(Where::NotWanted, Returns::AtOnce)
    };
    ($asked:ident) => {
        Manner::Asks(Polled::$asked)
    };
}

/// Writes down that a call succeeded, with what it made.
macro_rules! returned {
    ($thread:ident,) => {
        recorder::leave($thread, MANNER.returns(), &CallResult::Plain)
    };
    ($thread:ident, unsafe { $made:ident [$($got:expr),*] }) => {{
        #[allow(unused_unsafe, reason = "some results are read from arguments, some are not")]
        // SAFETY: the call succeeded, so it has written what it made.
        unsafe { recorder::leave($thread, MANNER.returns(), &CallResult::Values(&$made, &[$(ToField::field(&$got)),*])) }
    }};
}

pub(super) use {calls, manner, recorded_name, returned};
