//! Two functions of Python: a call that was defined is entered, and left. Through `ctypes` they would cost ten
//! times as much as what they do.
//!
//! They use what every version of CPython has under the same names, and get it from Python itself, so this library
//! needs no Python. Not here: what is told (`told.rs`).

use std::ptr;
use std::sync::OnceLock;

use libc::{c_char, c_int, c_void};

use super::told;

type PyObject = *mut c_void;

/// What the functions need of the interpreter.
struct Interpreter {
    /// `PyLong_AsVoidPtr`, of an integer that is an address.
    pointer: unsafe extern "C" fn(PyObject) -> *const c_void,
    /// `Py_IncRef`, of the `None` that a function returns.
    keep: unsafe extern "C" fn(PyObject),
    /// The address of `None`, which is never given back.
    none: usize,
}

static INTERPRETER: OnceLock<Interpreter> = OnceLock::new();

/// The vendor's `PyMethodDef`, field by field: its layout is part of Python's binary interface.
#[repr(C)]
pub(crate) struct Method {
    name: *const c_char,
    function: unsafe extern "C" fn(PyObject, PyObject) -> PyObject,
    flags: c_int,
    doc: *const c_char,
}

// SAFETY: nobody changes what it points to.
unsafe impl Sync for Method {}

const NO_ARGUMENTS: c_int = 4;
const ONE_ARGUMENT: c_int = 8;

static METHODS: [Method; 2] = [
    Method { name: c"enter".as_ptr(), function: enter, flags: ONE_ARGUMENT, doc: ptr::null() },
    Method { name: c"leave".as_ptr(), function: leave, flags: NO_ARGUMENTS, doc: ptr::null() },
];

fn none() -> PyObject {
    let Some(interpreter) = INTERPRETER.get() else { return ptr::null_mut() };
    let none = ptr::with_exposed_provenance_mut(interpreter.none);
    // SAFETY: Python calls this, so its lock is held; `None` is an object.
    unsafe { (interpreter.keep)(none) };
    none
}

unsafe extern "C" fn enter(_: PyObject, call: PyObject) -> PyObject {
    if let Some(interpreter) = INTERPRETER.get() {
        // SAFETY: Python calls this with an object. A number that `define` gave is one of its pointers.
        let told = unsafe { (interpreter.pointer)(call) };
        if !told.is_null() {
            // SAFETY: as above.
            unsafe { told::rankcheck_record_enter_defined(told.cast()) };
        }
    }
    none()
}

unsafe extern "C" fn leave(_: PyObject, _: PyObject) -> PyObject {
    told::rankcheck_record_leave();
    none()
}

/// The two functions as `PyCFunction_NewEx` wants them, `enter` and `leave`, one after the other.
///
/// # Safety
///
/// The arguments are `PyLong_AsVoidPtr`, `Py_IncRef` and the address of `None`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rankcheck_record_methods(
    pointer: unsafe extern "C" fn(PyObject) -> *const c_void,
    keep: unsafe extern "C" fn(PyObject),
    none: PyObject,
) -> *const Method {
    INTERPRETER.get_or_init(|| Interpreter { pointer, keep, none: none.expose_provenance() });
    METHODS.as_ptr()
}
