//! The frames of Python that the calling thread is in, read without the interpreter's lock.
//!
//! A thread's frames change only while it runs Python itself, and each of them keeps its code. So a thread that is
//! in a call may look at its own, whoever has the lock. Where things lie in them differs between versions of
//! CPython; `rankcheck_record/frames.py` finds out by looking for what it knows, and hands over a [`Layout`]. Until
//! then, and after it was taken back, there are no frames here. Not here: which of them are the user's.

use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

use libc::{c_char, c_int, c_void};

/// More frames than these are not looked at.
const DEPTH_MAX: usize = 256;
/// Longer names of files are none.
const NAME_MAX: usize = 4096;
/// Low bits of a pointer that newer versions use as flags.
const FLAGS: usize = 7;
/// An offset that does not apply.
const NONE: usize = usize::MAX;

/// Where things lie in objects of CPython: offsets in bytes, but for what says otherwise.
#[repr(C, align(64))]
pub(crate) struct Layout {
    /// `PyGILState_GetThisThreadState`: null on a thread that Python does not know.
    state: unsafe extern "C" fn() -> *const c_void,
    /// In a thread's state: the innermost frame, or what has it at `through`.
    state_frame: usize,
    through: usize,
    /// In a frame: its code, the frame that called it, and the instruction that it is at (an address).
    frame_code: usize,
    frame_caller: usize,
    frame_instruction: usize,
    /// Not Python's: see [`changes`]; more than 0. Up to here is what every call needs.
    changes: AtomicUsize,
    /// In an object: its type; and what that is in a code object (an address).
    object_type: usize,
    code_type: usize,
    /// In a code object: its first instruction, the number of its first line (four bytes), its table of lines, and
    /// the name of its file.
    code_instructions: usize,
    code_first_line: usize,
    code_lines: usize,
    code_file: usize,
    /// In bytes: how many there are, and the first.
    bytes_length: usize,
    bytes_first: usize,
    /// In text: how many characters there are, and what says how they are kept (four bytes).
    text_length: usize,
    text_state: usize,
    /// The bits of that which count.
    text_mask: usize,
    /// Ways to keep them.
    texts: [TextLayout; 4],
}

/// A way to keep characters.
#[repr(C)]
#[derive(Clone, Copy)]
struct TextLayout {
    /// What the text says of itself.
    state: usize,
    /// Where the first is.
    first: usize,
    /// Bytes of one: 1, 2 or 4.
    width: usize,
}

/// What is there is never given back: another thread may be reading it.
static LAYOUT: AtomicPtr<Layout> = AtomicPtr::new(ptr::null_mut());

/// Whether code at an address like this one is watched.
static WATCHED: [AtomicBool; 4096] = [const { AtomicBool::new(false) }; 4096];

/// Says where things lie; null takes it back. Whoever does so holds the interpreter's lock, and tries the outcome
/// before it is relied on: see [`rankcheck_record_place`]. `watch` is `PyCode_AddWatcher`. Returns 0, or -1 if the
/// interpreter has no room for another watcher.
///
/// # Safety
///
/// What it says is so, for as long as it is not taken back.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rankcheck_record_frames(
    layout: *const Layout,
    watch: Option<unsafe extern "C" fn(CodeEvent) -> c_int>,
) -> c_int {
    let (false, Some(watch)) = (layout.is_null(), watch) else {
        LAYOUT.store(ptr::null_mut(), Ordering::Release);
        return 0;
    };
    // SAFETY: said above.
    if unsafe { watch(code_event) } < 0 {
        return -1;
    }
    // SAFETY: said above; it may lie anywhere.
    let layout = unsafe { layout.read_unaligned() };
    LAYOUT.store(Box::into_raw(Box::new(layout)), Ordering::Release);
    0
}

/// What CPython tells of code: an event, and the code.
type CodeEvent = unsafe extern "C" fn(c_int, *const c_void) -> c_int;

/// Code comes to an end. Other code may come to lie at its address.
unsafe extern "C" fn code_event(event: c_int, code: *const c_void) -> c_int {
    const DESTROY: c_int = 1;
    if event == DESTROY
        && WATCHED[watched(code.addr())].load(Ordering::Relaxed)
        && let Some(layout) = layout()
    {
        layout.changes.fetch_add(1, Ordering::Relaxed);
    }
    0
}

#[inline]
fn layout() -> Option<&'static Layout> {
    // SAFETY: it is null or a layout that is never given back.
    unsafe { LAYOUT.load(Ordering::Acquire).as_ref() }
}

/// How often code came to an end that somebody watches, so that what was known of instructions may be so no longer.
/// Who runs new code at an address has held the interpreter's lock since, and sees it. 0 while there are no frames.
#[inline]
pub(crate) fn changes() -> usize {
    layout().map_or(0, |layout| layout.changes.load(Ordering::Relaxed))
}

fn watched(code: usize) -> usize {
    (code >> 4 ^ code >> 16) % WATCHED.len()
}

/// Writes where in Python the caller is, as calls get it. Returns its length, 0 if there is none.
///
/// # Safety
///
/// There is room for `length` bytes.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rankcheck_record_place(to: *mut c_char, length: c_int) -> c_int {
    let Some(site) = crate::recorder::call_site_here() else { return 0 };
    let length = usize::try_from(length).unwrap_or(0).min(site.len());
    // SAFETY: said above.
    unsafe { ptr::copy_nonoverlapping(site.as_ptr(), to.cast::<u8>(), length) };
    c_int::try_from(length).unwrap_or(0)
}

/// A frame of the calling thread.
#[derive(Clone, Copy)]
pub(crate) struct Frame {
    layout: &'static Layout,
    address: usize,
}

/// The frames of the calling thread, innermost first. None of them may be kept.
#[inline]
pub(crate) fn frames() -> impl Iterator<Item = Frame> {
    std::iter::successors(innermost(), |frame| frame.caller()).take(DEPTH_MAX)
}

#[inline]
fn innermost() -> Option<Frame> {
    let layout = layout()?;
    // SAFETY: `layout` says what it is; any thread may call it.
    let state = unsafe { (layout.state)() };
    if state.is_null() {
        return None;
    }
    // SAFETY: the state of a thread has this field.
    let mut address = unsafe { word(state.expose_provenance() + layout.state_frame) };
    if layout.through != NONE && address != 0 {
        // SAFETY: it points to what has the frame there.
        address = unsafe { word(address + layout.through) };
    }
    (address != 0).then_some(Frame { layout, address })
}

/// The eight bytes at an address.
///
/// # Safety
///
/// They are there.
#[inline]
unsafe fn word(address: usize) -> usize {
    // SAFETY: said above.
    unsafe { ptr::with_exposed_provenance::<usize>(address).read_unaligned() }
}

/// As [`word`], of four bytes.
///
/// # Safety
///
/// They are there.
unsafe fn half(address: usize) -> usize {
    // SAFETY: said above.
    unsafe { ptr::with_exposed_provenance::<u32>(address).read_unaligned() as usize }
}

impl Frame {
    #[inline]
    fn caller(self) -> Option<Self> {
        // SAFETY: a frame has this field, and those that called it are there as long as it is.
        let address = unsafe { word(self.address + self.layout.frame_caller) };
        (address != 0).then_some(Self { address, ..self })
    }

    /// The address of the instruction that it is at. Another code may come to lie there later.
    #[inline]
    pub(crate) fn instruction(self) -> usize {
        // SAFETY: a frame has this field.
        unsafe { word(self.address + self.layout.frame_instruction) }
    }

    fn code(self) -> usize {
        // SAFETY: a frame has this field.
        unsafe { word(self.address + self.layout.frame_code) & !FLAGS }
    }

    /// [`changes`] counts the end of its code.
    pub(crate) fn keep_watch(self) {
        WATCHED[watched(self.code())].store(true, Ordering::Relaxed);
    }

    /// Its file and its line; none if it is no frame of Python's code, or has no lines.
    pub(crate) fn location(self) -> Option<(String, u32)> {
        let (layout, code) = (self.layout, self.code());
        // SAFETY: a frame has an object there, if anything.
        if code == 0 || unsafe { word(code + layout.object_type) } != layout.code_type {
            return None;
        }
        // SAFETY: it is code, which has these fields; its file is text, and its table of lines is bytes.
        unsafe {
            let file = text(layout, word(code + layout.code_file))?;
            let table = word(code + layout.code_lines);
            let length = word(table + layout.bytes_length);
            let first = ptr::with_exposed_provenance::<u8>(table + layout.bytes_first);
            let at = self.instruction().checked_sub(code + layout.code_instructions)?;
            let line =
                line(std::slice::from_raw_parts(first, length), half(code + layout.code_first_line), at)?;
            Some((file, line))
        }
    }
}

/// # Safety
///
/// There is text at this address.
unsafe fn text(layout: &Layout, address: usize) -> Option<String> {
    // SAFETY: text has these fields, and as many characters as it says.
    unsafe {
        let state = half(address + layout.text_state) & layout.text_mask;
        let kept = layout.texts.iter().find(|kept| kept.state == state)?;
        let length = word(address + layout.text_length);
        if length > NAME_MAX {
            return None;
        }
        let bytes = ptr::with_exposed_provenance::<u8>(address + kept.first);
        let bytes = std::slice::from_raw_parts(bytes, length * kept.width);
        let number =
            |character: &[u8]| character.iter().rev().fold(0, |all, byte| all << 8 | u32::from(*byte));
        bytes.chunks_exact(kept.width).map(|character| char::from_u32(number(character))).collect()
    }
}

/// The line of an instruction, so many bytes after the first: from the table as CPython keeps it since 3.11.
///
/// Each entry begins with a byte that has bit 7: how many instructions it is of, less one (bits 0 to 2), and what
/// follows (bits 3 to 6). Instructions have two bytes.
fn line(table: &[u8], first_line: usize, at: usize) -> Option<u32> {
    let (mut line, mut end) = (i64::try_from(first_line).ok()?, 0);
    let mut rest = table;
    while let [head, tail @ ..] = rest {
        let length = tail.iter().position(|byte| byte & 0x80 != 0).unwrap_or(tail.len());
        let kind = head >> 3 & 0xf;
        line += match kind {
            10..=12 => i64::from(kind - 10),
            13 | 14 => signed(tail),
            _ => 0,
        };
        end += 2 * (usize::from(head & 7) + 1);
        if at < end {
            // Kind 15 is of instructions without a line.
            return if kind == 15 { None } else { u32::try_from(line).ok() };
        }
        rest = &tail[length..];
    }
    None
}

/// A number of six bits a byte, lowest first; all but the last have bit 6. Its lowest bit is the sign.
fn signed(bytes: &[u8]) -> i64 {
    let mut number = 0_i64;
    for (nth, byte) in bytes.iter().take(8).enumerate() {
        number |= i64::from(byte & 0x3f) << (6 * nth);
        if byte & 0x40 == 0 {
            break;
        }
    }
    if number & 1 == 1 { -(number >> 1) } else { number >> 1 }
}
