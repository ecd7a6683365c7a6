//! What a program tells of itself, through `rankcheck_record_*`: for Python, and for whoever wants to.
//!
//! A call is told as UTF-8 text without a zero at its end: a name, then keys and values, all separated by the
//! unit separator (U+001F). The first letter of a value is its kind: `n` a number, `s` a signed number, `a` an
//! address (both decimal), `t` text, `b` bytes as hexadecimal digits, `-` unknown. What is not so is recorded as
//! `unreadable`.
//! Not here: what is told (`python/`).

use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};

use libc::c_char;
use rankcheck_recording::Field;

use crate::recorder::{self, Told};

const SEPARATOR: char = '\u{1f}';
const KEYS_MAX: usize = 16;
/// Defined calls are never given back.
const DEFINED_MAX: usize = 1 << 16;

enum ToldValue<'a> {
    Plain(Field<'a>),
    Bytes(Vec<u8>),
}

/// A name, its keys and their values.
type Parsed<'a> = (&'a str, Vec<&'a str>, Vec<ToldValue<'a>>);

fn value(text: &str) -> Option<ToldValue<'_>> {
    let rest = text.get(1..)?;
    Some(match text.as_bytes()[0] {
        b'n' => ToldValue::Plain(Field::Number(rest.parse().ok()?)),
        b's' => ToldValue::Plain(Field::Signed(rest.parse().ok()?)),
        b'a' => ToldValue::Plain(Field::Address(rest.parse().ok()?)),
        b't' => ToldValue::Plain(Field::Text(rest)),
        b'b' => {
            let digits = rest.as_bytes().chunks_exact(2);
            let bytes = digits.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok());
            ToldValue::Bytes(bytes.collect::<Option<_>>()?)
        }
        b'-' => ToldValue::Plain(Field::None),
        _ => return None,
    })
}

fn parse(text: &str) -> Option<Parsed<'_>> {
    let mut parts = text.split(SEPARATOR);
    let name = parts.next().filter(|name| !name.is_empty())?;
    let (mut keys, mut values) = (Vec::new(), Vec::new());
    while let Some(key) = parts.next() {
        keys.push(key);
        values.push(value(parts.next()?)?);
    }
    (keys.len() <= KEYS_MAX).then_some((name, keys, values))
}

/// # Safety
///
/// `text` has `length` bytes.
unsafe fn told(text: *const c_char, length: usize, tell: fn(&str, &[&str], &[Field<'_>])) {
    if text.is_null() {
        return;
    }
    // SAFETY: said above.
    let bytes = unsafe { std::slice::from_raw_parts(text.cast::<u8>(), length) };
    let parsed = std::str::from_utf8(bytes).ok().and_then(parse);
    // A call that cannot be read still has a return.
    let (name, keys, values) = parsed.unwrap_or(("unreadable", Vec::new(), Vec::new()));
    let fields = values.iter().map(|value| match value {
        ToldValue::Plain(field) => *field,
        ToldValue::Bytes(bytes) => Field::Bytes(bytes),
    });
    tell(name, &keys, &fields.collect::<Vec<_>>());
}

/// A call is entered.
///
/// # Safety
///
/// `text` has `length` bytes.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rankcheck_record_enter(text: *const c_char, length: usize) {
    // SAFETY: said above.
    unsafe { told(text, length, recorder::enter_told) };
}

/// A call that will be entered more than once: for [`rankcheck_record_enter_defined`], for as long as the process
/// lives. Null if it cannot be read, or if there are too many.
///
/// # Safety
///
/// `text` has `length` bytes.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rankcheck_record_define(text: *const c_char, length: usize) -> *const Told {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    if text.is_null() || COUNT.fetch_add(1, Ordering::Relaxed) >= DEFINED_MAX {
        return ptr::null();
    }
    // SAFETY: said above.
    let bytes = unsafe { std::slice::from_raw_parts(text.cast::<u8>(), length) };
    let told = std::str::from_utf8(bytes).ok().and_then(parse).and_then(|(name, keys, values)| {
        let fields = values.into_iter().map(|value| match value {
            ToldValue::Plain(Field::Text(text)) => Field::Text(text.to_owned().leak()),
            ToldValue::Plain(Field::Bytes(bytes)) => Field::Bytes(bytes.to_vec().leak()),
            ToldValue::Plain(Field::None) => Field::None,
            ToldValue::Plain(Field::Number(number)) => Field::Number(number),
            ToldValue::Plain(Field::Signed(number)) => Field::Signed(number),
            ToldValue::Plain(Field::Address(address) | Field::Varying(address)) => Field::Address(address),
            ToldValue::Bytes(bytes) => Field::Bytes(bytes.leak()),
        });
        recorder::told(name, &keys, fields.collect())
    });
    told.map_or(ptr::null(), |told| ptr::from_ref(Box::leak(Box::new(told))))
}

/// A call is entered that was defined.
///
/// # Safety
///
/// [`rankcheck_record_define`] returned it, and it is not null.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rankcheck_record_enter_defined(told: *const Told) {
    // SAFETY: said above; what is defined is never given back.
    recorder::enter_known(unsafe { &*told });
}

/// The call that was entered last returned.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn rankcheck_record_leave() {
    recorder::leave_told();
}

/// Something happened.
///
/// # Safety
///
/// `text` has `length` bytes.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rankcheck_record_note(text: *const c_char, length: usize) {
    // SAFETY: said above.
    unsafe { told(text, length, recorder::note) };
}

/// Whether anything of this process was recorded (1) or not (0).
#[unsafe(no_mangle)]
pub(crate) extern "C" fn rankcheck_record_began() -> libc::c_int {
    recorder::began().into()
}

/// Records nothing more (1), or goes on (0). No call may be open.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn rankcheck_record_pause(paused: libc::c_int) {
    recorder::pause(paused != 0);
}
