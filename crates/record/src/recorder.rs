//! What is written down, and when: of each host thread its own calls, none of those that NCCL or CUDA make.
//!
//! The file is made at the first call. A thread has a writer of its own, which nobody else touches before the
//! process ends. Where writing would have to wait, the event is given up: a program never waits for this.
//!
//! Not here: functions of others ([`crate::ffi`]), and the bytes (`rankcheck-recording`).

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::Mutex;

use rankcheck_recording::{Field, Signature, Writer};

use crate::ffi::process::{self, PerProcess};
use crate::file::{Extents, Recording};

/// What a failed call returns.
const FAILED: Signature = Signature { name: "failed", keys: &["code"], instant: false };
/// What is noted when the process ends in order.
const EXIT: Signature = Signature { name: "exit", keys: &["code"], instant: true };
/// Signatures that a program may define itself; they are never given back.
const DEFINED_MAX: usize = 4096;

/// The recorder of this process. A child of a fork has none until it calls something.
static CURRENT: PerProcess<Recorder> = PerProcess::new();
/// Nothing is recorded: it failed, the process ends, or the program asked for it.
static STOPPED: AtomicBool = AtomicBool::new(false);

struct Recorder {
    recording: Recording,
    threads: AtomicU32,
    logs: Mutex<Vec<&'static Mutex<Log>>>,
    defined: Mutex<HashMap<String, &'static Signature>>,
}

/// The writer of one thread.
struct Log {
    /// `None` once the thread, or the process, has ended.
    writer: Option<Writer<Extents>>,
}

// Neither has a destructor: handlers of the end of the process call NCCL, and run after destructors of threads.
thread_local! {
    /// Open calls of the vendors; what they call themselves is not recorded.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
    static SLOT: RefCell<Option<(&'static Recorder, &'static Mutex<Log>)>> = const { RefCell::new(None) };
}

/// What came back from a call.
pub(crate) enum Returned<'a> {
    /// Nothing that is not known from the arguments.
    Plain,
    /// What it made.
    Values(&'static Signature, &'a [Field<'a>]),
    /// The vendor's code.
    Failed(i64),
}

/// Whether a vendor's call of this thread is to be recorded. If so, [`enter`] comes next.
pub(crate) fn wanted() -> bool {
    !STOPPED.load(Ordering::Relaxed) && DEPTH.try_with(|depth| depth.get() == 0).unwrap_or(false)
}

/// A vendor's call is entered.
pub(crate) fn enter(signature: &'static Signature, fields: &[Field<'_>]) {
    with_log(|recorder, writer| writer.enter(recorder.recording.now(), signature, fields));
    let _ = DEPTH.try_with(|depth| depth.set(depth.get() + 1));
}

/// The vendor's call that was entered last returned.
pub(crate) fn leave(returned: &Returned<'_>) {
    let _ = DEPTH.try_with(|depth| depth.set(depth.get().saturating_sub(1)));
    with_log(|recorder, writer| {
        let now = recorder.recording.now();
        match returned {
            Returned::Plain => writer.leave(now),
            Returned::Values(signature, fields) => writer.leave_with(now, signature, fields),
            Returned::Failed(code) => writer.leave_with(now, &FAILED, &[Field::Signed(*code)]),
        }
    });
}

/// A call that the program tells of itself; calls within it are recorded as well.
pub(crate) fn enter_told(name: &str, keys: &[&str], fields: &[Field<'_>]) {
    tell(name, keys, false, fields);
}

/// Something that the program tells.
pub(crate) fn note(name: &str, keys: &[&str], fields: &[Field<'_>]) {
    tell(name, keys, true, fields);
}

/// A call that the program told of returned.
pub(crate) fn leave_told() {
    if !STOPPED.load(Ordering::Relaxed) {
        with_log(|recorder, writer| writer.leave(recorder.recording.now()));
    }
}

fn tell(name: &str, keys: &[&str], instant: bool, fields: &[Field<'_>]) {
    if STOPPED.load(Ordering::Relaxed) {
        return;
    }
    with_log(|recorder, writer| {
        if let Some(signature) = recorder.define(name, keys, instant) {
            writer.enter(recorder.recording.now(), signature, fields);
        }
    });
}

/// When the file of this process began: nanoseconds since 1970; 0 if it has none yet.
pub(crate) fn began() -> u64 {
    CURRENT.get().map_or(0, |recorder| recorder.recording.began_at)
}

/// Records nothing more, or goes on. Calls that are open meanwhile must be closed in the same state.
pub(crate) fn pause(paused: bool) {
    STOPPED.store(paused, Ordering::Relaxed);
}

/// The process ends in order with this code. Other threads may still be at work.
pub(crate) fn exiting(code: i32) {
    if CURRENT.get().is_some() && !STOPPED.load(Ordering::Relaxed) {
        with_log(|recorder, writer| {
            writer.enter(recorder.recording.now(), &EXIT, &[Field::Signed(code.into())]);
        });
    }
}

/// This process is the child of a fork: what it calls goes to a file of its own.
pub(crate) fn forked() {
    CURRENT.clear();
    let _ = DEPTH.try_with(|depth| depth.set(0));
}

/// Nothing more will be called: every log ends, but those in which a thread is writing.
pub(crate) fn end() {
    STOPPED.store(true, Ordering::Relaxed);
    let Some(recorder) = CURRENT.get() else { return };
    if let Ok(logs) = recorder.logs.try_lock() {
        logs.iter().for_each(|log| close(log));
    }
}

/// The thread ends.
pub(crate) fn thread_ends() {
    // Other destructors of the thread may still call NCCL.
    let _ = DEPTH.try_with(|depth| depth.set(1));
    let slot = SLOT.try_with(|slot| slot.try_borrow_mut().ok()?.take()).ok().flatten();
    if let Some((recorder, log)) = slot
        && CURRENT.get().is_some_and(|current| std::ptr::eq(current, recorder))
    {
        close(log);
    }
}

fn close(log: &Mutex<Log>) {
    let Ok(mut log) = log.try_lock() else { return };
    if let Some(mut writer) = log.writer.take() {
        writer.finish();
    }
}

fn recorder() -> Option<&'static Recorder> {
    if let Some(recorder) = CURRENT.get() {
        return Some(recorder);
    }
    let Some(recording) = Recording::create() else {
        STOPPED.store(true, Ordering::Relaxed);
        return None;
    };
    let recorder =
        Recorder { recording, threads: AtomicU32::new(0), logs: Mutex::default(), defined: Mutex::default() };
    let (current, rejected) = CURRENT.set(Box::new(recorder));
    match rejected {
        Some(recorder) => recorder.recording.remove(),
        None => process::on_exit(),
    }
    Some(current)
}

impl Recorder {
    /// A log for a thread that has none; those of threads that ended are used again.
    fn log(&'static self) -> &'static Mutex<Log> {
        let number = self.threads.fetch_add(1, Ordering::Relaxed);
        let mut writer = Some(Writer::new(Extents::new(&self.recording), number));
        let Ok(mut logs) = self.logs.lock() else { return Box::leak(Box::new(Mutex::new(Log { writer }))) };
        for log in logs.iter() {
            if let Ok(mut log) = log.try_lock()
                && log.writer.is_none()
            {
                log.writer = writer.take();
            }
            if writer.is_none() {
                return log;
            }
        }
        let log: &'static Mutex<Log> = Box::leak(Box::new(Mutex::new(Log { writer })));
        logs.push(log);
        log
    }

    /// The signature of this name and these keys: one for all threads, since writers tell them by their place.
    fn define(&self, name: &str, keys: &[&str], instant: bool) -> Option<&'static Signature> {
        let text = format!("{name}\u{1f}{instant}\u{1f}{}", keys.join("\u{1f}"));
        let mut defined = self.defined.lock().ok()?;
        if let Some(signature) = defined.get(&text) {
            return Some(signature);
        }
        if defined.len() >= DEFINED_MAX {
            return None;
        }
        let keys: Vec<&'static str> = keys.iter().map(|key| &*(*key).to_owned().leak()).collect();
        let signature = Signature { name: name.to_owned().leak(), keys: keys.leak(), instant };
        let signature: &'static Signature = Box::leak(Box::new(signature));
        defined.insert(text, signature);
        Some(signature)
    }
}

/// Calls this with the writer of the thread, if it has one and nobody is in it: a signal handler that calls NCCL
/// while its thread writes gets nothing recorded.
fn with_log(write: impl FnOnce(&'static Recorder, &mut Writer<Extents>)) {
    let errno = process::errno();
    let done = catch_unwind(AssertUnwindSafe(|| {
        let Some(recorder) = recorder() else { return };
        let _ = SLOT.try_with(|slot| {
            let Ok(mut slot) = slot.try_borrow_mut() else { return };
            // After a fork the slot is still the parent's.
            let log = match *slot {
                Some((owner, log)) if std::ptr::eq(owner, recorder) => log,
                _ => {
                    let log = recorder.log();
                    *slot = Some((recorder, log));
                    process::watch_thread();
                    log
                }
            };
            let Ok(mut log) = log.try_lock() else { return };
            if let Some(writer) = &mut log.writer {
                write(recorder, writer);
            }
        });
    }));
    if done.is_err() {
        STOPPED.store(true, Ordering::Relaxed);
    }
    process::set_errno(errno);
}
