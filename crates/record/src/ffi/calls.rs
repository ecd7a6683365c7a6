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

/// A function that a call is reached by: under its own name, or under that of a version of it.
pub(super) trait Form {
    /// Whether a null stream is the calling thread's own (`_ptsz` and `_ptds`), and not the legacy default stream.
    const PER_THREAD: bool;

    /// What its wrappers forward to.
    fn call() -> &'static WrappedCall;
}

/// Whether this is the name of a function to which a null stream is the calling thread's own.
pub(super) const fn is_per_thread(name: &str) -> bool {
    matches!(name.as_bytes(), [.., b'_', b'p', b't', b's', b'z'] | [.., b'_', b'p', b't', b'd', b's'])
}

/// The handle of the calling thread's default stream (`cudaStreamPerThread`).
const PER_THREAD_STREAM: u64 = 2;

/// Which of the keys is the stream; how many there are if none is.
pub(super) const fn stream_among(keys: &[&str]) -> usize {
    let mut at = 0;
    while at < keys.len() && !matches!(keys[at].as_bytes(), b"stream") {
        at += 1;
    }
    at
}

/// The values of a call by which it is recorded, whatever form of it was called.
#[inline(always)]
pub(super) fn in_form<F: Form, const N: usize>(stream: usize, mut fields: [Field<'_>; N]) -> [Field<'_>; N] {
    if F::PER_THREAD
        && let Some(field) = fields.get_mut(stream)
        && *field == Field::Address(0)
    {
        *field = Field::Address(PER_THREAD_STREAM);
    }
    fields
}

/// Defines calls: the C function, what is kept of its arguments, and what is kept of what it made.
///
/// ```text
/// fn ncclMemAlloc(to: *mut *mut c_void, bytes: usize) [bytes = bytes] -> [address = at(to)];
/// ```
///
/// `then` names a function that follows the return, with the thread and the code. `also` names other functions that
/// have the same parameters and are recorded as this one: versions of it, and those that take the calling thread's
/// own stream for a null one.
/// `@Event fn` and `@Stream fn` ask about their first argument, again and again: only news are written.
/// `@AtOnce fn` waits for nobody, so nobody looks when it returns. `@Launch fn` is called so often that nobody looks
/// from where. Of the others, the call site is kept with the arguments where it is known.
/// The parameters are the vendor's, in order; more than it has are harmless, since callers leave them as they
/// are. All calls return a code. `table` becomes the list of them.
macro_rules! calls {
    (
        $library:ident;
        $($(@$manner:ident)? fn $name:ident $parameters:tt $kept:tt $(-> $made:tt)?
            $(as $recorded:literal)? $(then $then:ident)? $(also $($form:ident),+)?;)*
    ) => {
        /// Every call of this file.
        pub(super) static TABLE: &[&WrappedCall] = &[$(&$name::CALL, $($(&$form::CALL,)+)?)*];

        $(
            mod $name {
                use super::*;

                recorded_call! {
                    $library recorded_name!($name $($recorded)?), manner!($($manner)?),
                    $parameters $kept [$($made)?] [$($then)?]
                }
                form! { $library $name }
            }
            exported! { $name $name $parameters }

            $($(
                mod $form {
                    use super::*;
                    use super::$name::wrappers;

                    form! { $library $form }
                }
                exported! { $form $name $parameters }
            )+)?
        )*
    };
}

/// What all forms of a call have in common: how it is recorded, and its wrappers.
macro_rules! recorded_call {
    (
        $library:ident $recorded:expr, $manner:expr,
        ($($parameter:ident: $type:ty),* $(,)?) [$($key:ident = $value:expr),* $(,)?]
        [$([$($out:ident = $got:expr),* $(,)?])?] [$($then:ident)?]
    ) => {
        const NAME: &str = $recorded;
        static CALLED: CallSignatures = CallSignatures {
            plain: Signature { name: NAME, keys: &[$(stringify!($key)),*], instant: false },
            sited: Signature { name: NAME, keys: &[$(stringify!($key),)* "place"], instant: false },
        };
        const MANNER: Manner = $manner;
        const STREAM: usize = calls::stream_among(&[$(stringify!($key)),*]);

        $(const MADE: Signature = Signature {
            name: NAME,
            keys: &[$(stringify!($out)),*],
            instant: false,
        };)?

        /// One wrapper for each function that a form of the call may forward to.
        pub(super) const fn wrappers<F: Form>() -> [unsafe extern "C" fn(); calls::WRAPPERS] {
            type Wrapper = unsafe extern "C" fn($($type),*) -> c_int;
            /// The same function without its type.
            const fn plain(wrapper: Wrapper) -> unsafe extern "C" fn() {
                // SAFETY: whoever calls it gives it its type again.
                unsafe { std::mem::transmute::<Wrapper, unsafe extern "C" fn()>(wrapper) }
            }
            [plain(wrapper::<F, 0>), plain(wrapper::<F, 1>), plain(wrapper::<F, 2>), plain(wrapper::<F, 3>)]
        }

        #[allow(unused_mut, reason = "few calls are forwarded with other arguments")]
        pub(super) unsafe extern "C" fn wrapper<F: Form, const N: usize>($(mut $parameter: $type),*) -> c_int {
            let real = F::call().real(N);
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
                        recorder::answered(
                            thread, asked, at, &CALLED.plain,
                            &calls::in_form::<F, _>(STREAM, [$(ToField::field(&$value)),*]), code,
                        );
                    };
                    return code;
                }
                #[allow(unused_unsafe, reason = "most arguments are kept as they are")]
                // SAFETY: pointers are as the vendor's function wants them.
                unsafe {
                    recorder::enter(
                        thread, &CALLED, calls::in_form::<F, _>(STREAM, [$(ToField::field(&$value)),*]),
                        MANNER.site(), MANNER.returns(),
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
    };
}

/// A form of a call: its name, and what it forwards to.
macro_rules! form {
    ($library:ident $form:ident) => {
        pub(super) static CALL: WrappedCall = WrappedCall::new(
            match std::ffi::CStr::from_bytes_with_nul(concat!(stringify!($form), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => panic!("a name has no zero inside"),
            },
            Library::$library,
            wrappers::<This>(),
        );

        /// The form of this name.
        pub(super) struct This;

        impl Form for This {
            const PER_THREAD: bool = calls::is_per_thread(stringify!($form));

            #[inline(always)]
            fn call() -> &'static WrappedCall {
                &CALL
            }
        }
    };
}

/// The function of a form that the linker finds.
macro_rules! exported {
    ($form:ident $name:ident ($($parameter:ident: $type:ty),* $(,)?)) => {
        /// The vendor's function of this name, recorded.
        ///
        /// # Safety
        ///
        /// As the vendor says.
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $form($($parameter: $type),*) -> c_int {
            // SAFETY: as the program calls it.
            unsafe { $name::wrapper::<$form::This, 0>($($parameter),*) }
        }
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

pub(super) use {calls, exported, form, manner, recorded_call, recorded_name, returned};
