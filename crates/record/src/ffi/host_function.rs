//! Functions of the host that a stream calls when it gets there: noted when they begin to run.
//!
//! What the stream did before is over by then, and a program may wait for it through what such a function does.
//! Not here: the calls that launch them (`runtime.rs`, `driver.rs`).

use std::sync::OnceLock;

use libc::{c_int, c_void};
use rankcheck_recording::Field;

use super::calls::{Pointer, Varying};
use super::find::{self, Library};
use crate::recorder;

/// A function that a program launched, and what it is to be given.
struct HostFunction {
    function: Pointer,
    data: Pointer,
    runs: HowOften,
}

/// How often a stream calls a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HowOften {
    /// It is given back when it runs.
    Once,
    /// A graph may call it again and again, so it is never given back.
    Often,
}

impl HowOften {
    /// As the stream is when the function is launched there. Where that cannot be found out it may be captured.
    fn on(stream: Pointer, per_thread: bool) -> Self {
        /// The handle of the calling thread's default stream, which some forms of a call have for a null one.
        const PER_THREAD: Pointer = std::ptr::without_provenance_mut(2);
        static IS_CAPTURING: OnceLock<usize> = OnceLock::new();
        let found = || find::function(Library::Driver, c"cuStreamIsCapturing").expose_provenance();
        let is_capturing = *IS_CAPTURING.get_or_init(found);
        if is_capturing == 0 {
            return Self::Often;
        }
        let stream = if per_thread && stream.is_null() { PER_THREAD } else { stream };
        let mut status = 0;
        // SAFETY: the driver's function of this name has this type. Of the runtime's functions one would remember an error.
        let code = unsafe {
            std::mem::transmute::<Pointer, unsafe extern "C" fn(Pointer, *mut c_int) -> c_int>(
                std::ptr::with_exposed_provenance_mut(is_capturing),
            )(stream, &raw mut status)
        };
        if (code, status) == (0, 0) { Self::Once } else { Self::Often }
    }
}

/// Puts another function in the place of one that a stream is to call with its data alone. `per_thread` says whether a
/// null stream is the calling thread's own.
pub(super) fn watched(
    per_thread: bool,
    stream: Pointer,
    function: &mut Pointer,
    data: &mut Pointer,
) -> Varying<c_void> {
    let runs = HowOften::on(stream, per_thread);
    exchange(function, data, runs, run as unsafe extern "C" fn(Pointer) as Pointer)
}

/// The same for one that gets the stream and its state too. It is never captured.
pub(super) fn watched_callback(function: &mut Pointer, data: &mut Pointer) -> Varying<c_void> {
    let by = run_callback as unsafe extern "C" fn(Pointer, c_int, Pointer) as Pointer;
    exchange(function, data, HowOften::Once, by)
}

fn exchange(function: &mut Pointer, data: &mut Pointer, runs: HowOften, by: Pointer) -> Varying<c_void> {
    if function.is_null() {
        return Varying(*function);
    }
    let watched: *mut HostFunction =
        Box::into_raw(Box::new(HostFunction { function: *function, data: *data, runs }));
    *function = by;
    *data = watched.cast();
    Varying(*data)
}

fn runs(watched: Pointer) -> (Pointer, Pointer) {
    recorder::note("host_function", &["function"], &[Field::Varying(watched.addr() as u64)]);
    let watched = watched.cast::<HostFunction>();
    // SAFETY: it was made by `exchange`, and is given back by the only run of it alone.
    let HostFunction { function, data, runs } = unsafe { &*watched };
    let launched = (*function, *data);
    if *runs == HowOften::Once {
        // The note is written by now, so that what gets the same address comes behind it.
        // SAFETY: as above.
        drop(unsafe { Box::from_raw(watched) });
    }
    launched
}

unsafe extern "C" fn run(watched: Pointer) {
    let (function, data) = runs(watched);
    // SAFETY: the program launched it as such a function, with this data.
    unsafe { std::mem::transmute::<Pointer, unsafe extern "C" fn(Pointer)>(function)(data) }
}

unsafe extern "C" fn run_callback(stream: Pointer, code: c_int, watched: Pointer) {
    let (function, data) = runs(watched);
    // SAFETY: as above.
    unsafe {
        std::mem::transmute::<Pointer, unsafe extern "C" fn(Pointer, c_int, Pointer)>(function)(
            stream, code, data,
        );
    }
}
