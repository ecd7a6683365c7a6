//! Functions of the host that a stream calls when it gets there: noted when they begin to run.
//!
//! What the stream did before is over by then, and a program may wait for it through what such a function does.
//! Not here: the calls that launch them (`runtime.rs`, `driver.rs`).

use libc::{c_int, c_void};
use rankcheck_recording::Field;

use super::calls::{Pointer, Varying};
use crate::recorder;

/// A function that a program launched, and what it is to be given.
struct HostFunction {
    function: Pointer,
    data: Pointer,
}

/// Puts another function in the place of one that a stream is to call with its data alone.
pub(super) fn watched(function: &mut Pointer, data: &mut Pointer) -> Varying<c_void> {
    exchange(function, data, run as unsafe extern "C" fn(Pointer) as Pointer)
}

/// The same for one that gets the stream and its state too.
pub(super) fn watched_callback(function: &mut Pointer, data: &mut Pointer) -> Varying<c_void> {
    exchange(function, data, run_callback as unsafe extern "C" fn(Pointer, c_int, Pointer) as Pointer)
}

fn exchange(function: &mut Pointer, data: &mut Pointer, by: Pointer) -> Varying<c_void> {
    if function.is_null() {
        return Varying(*function);
    }
    // A graph may call it again and again, so it is never given back.
    let watched: *mut HostFunction = Box::leak(Box::new(HostFunction { function: *function, data: *data }));
    *function = by;
    *data = watched.cast();
    Varying(*data)
}

fn runs(watched: Pointer) -> HostFunction {
    recorder::note("host_function", &["function"], &[Field::Varying(watched.addr() as u64)]);
    // SAFETY: it was made by `exchange`, and is never given back.
    let HostFunction { function, data } = unsafe { &*watched.cast::<HostFunction>() };
    HostFunction { function: *function, data: *data }
}

unsafe extern "C" fn run(watched: Pointer) {
    let HostFunction { function, data } = runs(watched);
    // SAFETY: the program launched it as such a function, with this data.
    unsafe { std::mem::transmute::<Pointer, unsafe extern "C" fn(Pointer)>(function)(data) }
}

unsafe extern "C" fn run_callback(stream: Pointer, code: c_int, watched: Pointer) {
    let HostFunction { function, data } = runs(watched);
    // SAFETY: as above.
    unsafe {
        std::mem::transmute::<Pointer, unsafe extern "C" fn(Pointer, c_int, Pointer)>(function)(
            stream, code, data,
        );
    }
}
