//! What a program tells of itself, through `rankcheck_record_*`: for Python, and for whoever wants to.
//!
//! A call is told as UTF-8 text without a zero at its end: a name, then keys and values, all separated by the
//! unit separator (U+001F). The first letter of a value is its kind: `n` a number, `s` a signed number, `a` an
//! address (both decimal), `t` text, `b` bytes as hexadecimal digits, `-` unknown. What is not so is recorded as
//! `unreadable`.
//! Not here: what is told (`python/`).

use libc::c_char;
use rankcheck_recording::Field;

use crate::recorder;

const SEPARATOR: char = '\u{1f}';
const KEYS_MAX: usize = 16;

enum Told<'a> {
    Plain(Field<'a>),
    Bytes(Vec<u8>),
}

/// A name, its keys and their values.
type Parsed<'a> = (&'a str, Vec<&'a str>, Vec<Told<'a>>);

fn value(text: &str) -> Option<Told<'_>> {
    let rest = text.get(1..)?;
    Some(match text.as_bytes()[0] {
        b'n' => Told::Plain(Field::Number(rest.parse().ok()?)),
        b's' => Told::Plain(Field::Signed(rest.parse().ok()?)),
        b'a' => Told::Plain(Field::Address(rest.parse().ok()?)),
        b't' => Told::Plain(Field::Text(rest)),
        b'b' => {
            let digits = rest.as_bytes().chunks_exact(2);
            let bytes = digits.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok());
            Told::Bytes(bytes.collect::<Option<_>>()?)
        }
        b'-' => Told::Plain(Field::None),
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
        Told::Plain(field) => *field,
        Told::Bytes(bytes) => Field::Bytes(bytes),
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

/// When times of this process begin, in nanoseconds since 1970; 0 if nothing is recorded.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn rankcheck_record_began() -> u64 {
    recorder::began()
}

/// Records nothing more (1), or goes on (0). No call may be open.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn rankcheck_record_pause(paused: libc::c_int) {
    recorder::pause(paused != 0);
}
