//! What is written down, and when: of each host thread its own calls, none of those that NCCL or CUDA make.
//!
//! The file is made at the first call. A thread has a writer of its own, which nobody else touches before the
//! process ends. Where writing would have to wait, the event is given up: a program never waits for this.
//!
//! Not here: functions of others ([`crate::ffi`]), and the bytes (`rankcheck-recording`).

use std::cell::Cell;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use rankcheck_recording::{Content, Field, Signature, Writer};

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

/// How often an event was recorded that has this place here.
static WORK: [AtomicU32; 1024] = [const { AtomicU32::new(0) }; 1024];

struct Recorder {
    recording: Recording,
    threads: AtomicU32,
    logs: Mutex<Vec<&'static Mutex<Log>>>,
    /// Signatures that the program defined. Writers tell signatures by their place, so there is one of each.
    defined: Mutex<BTreeMap<String, &'static Signature>>,
}

/// The writer of one thread.
struct Log {
    /// `None` once the thread, or the process, has ended.
    writer: Option<Writer<Extents>>,
    /// What was answered when the thread asked last, by the place of what it asked about.
    answers: [Answer; 64],
}

impl Log {
    fn new(writer: Option<Writer<Extents>>) -> Self {
        Self { writer, answers: [Answer::default(); 64] }
    }
}

/// What was answered when a thread asked whether work is done.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Answer {
    /// The event or the stream.
    object: u64,
    /// [`WORK`] at that time.
    work: u32,
    code: i32,
}

/// What is asked whether its work is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asked {
    /// It stays done until it is recorded again.
    Event,
    /// It gets work in ways that are not seen here.
    Stream,
}

/// A call that the program told of before it enters it.
pub(crate) struct Told {
    signature: &'static Signature,
    content: Content,
    fields: Vec<Field<'static>>,
}

/// What a thread knows of itself. It has no destructor: handlers of the end of the process call NCCL, and run
/// after destructors of threads.
struct Thread {
    /// Open calls of the vendors; what they call themselves is not recorded.
    depth: Cell<u32>,
    log: Cell<Option<(&'static Recorder, &'static Mutex<Log>)>>,
}

thread_local! {
    static THREAD: Thread = const { Thread { depth: Cell::new(0), log: Cell::new(None) } };
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

/// Whether a vendor's call of this thread is to be recorded. If so, [`enter`] or [`ask`] comes next.
#[inline]
pub(crate) fn wanted() -> bool {
    !STOPPED.load(Ordering::Relaxed) && THREAD.with(|thread| thread.depth.get() == 0)
}

/// A vendor's call is entered.
pub(crate) fn enter(signature: &'static Signature, fields: &[Field<'_>]) {
    with_log(|recorder, log| {
        if let Some(writer) = &mut log.writer {
            writer.call(recorder.recording.now(), signature, fields);
        }
    });
    THREAD.with(|thread| thread.depth.set(thread.depth.get() + 1));
}

/// The vendor's call that was entered last returned.
pub(crate) fn leave(returned: &Returned<'_>) {
    THREAD.with(|thread| thread.depth.set(thread.depth.get().saturating_sub(1)));
    with_log(|recorder, log| {
        if let Some(writer) = &mut log.writer {
            wrote_return(writer, recorder.recording.now(), returned);
        }
    });
}

fn wrote_return(writer: &mut Writer<Extents>, now: u64, returned: &Returned<'_>) {
    match returned {
        Returned::Plain => writer.leave(now),
        Returned::Values(signature, fields) => writer.leave_with(now, signature, fields),
        Returned::Failed(code) => writer.leave_with(now, &FAILED, &[Field::Signed(*code)]),
    }
}

/// The thread is about to ask whether the work of something is done; [`answered`] follows. Returns when.
pub(crate) fn ask() -> u64 {
    THREAD.with(|thread| thread.depth.set(thread.depth.get() + 1));
    process::monotonic()
}

/// The thread asked about its first argument, and this is the answer. Programs ask again and again: an answer
/// that is no news to the thread is not written.
pub(crate) fn answered(
    asked: Asked,
    at: u64,
    signature: &'static Signature,
    fields: &[Field<'_>],
    code: i32,
) {
    THREAD.with(|thread| thread.depth.set(thread.depth.get().saturating_sub(1)));
    let Some(Field::Address(object)) = fields.first() else { return };
    let answer = Answer { object: *object, work: work(*object).load(Ordering::Relaxed), code };
    with_log(|recorder, log| {
        let last = &mut log.answers[spread(*object, 64)];
        if *last == answer {
            return;
        }
        // A stream that was done may have got work meanwhile, so that it is done again is news.
        *last = if asked == Asked::Stream && code == 0 { Answer::default() } else { answer };
        if let Some(writer) = &mut log.writer {
            let returned = if code == 0 { Returned::Plain } else { Returned::Failed(code.into()) };
            writer.call(recorder.recording.at(at), signature, fields);
            wrote_return(writer, recorder.recording.now(), &returned);
        }
    });
}

/// An event is recorded: what was known of it is no more.
pub(crate) fn works(event: u64) {
    work(event).fetch_add(1, Ordering::Relaxed);
}

fn work(object: u64) -> &'static AtomicU32 {
    &WORK[spread(object, WORK.len())]
}

/// A place among so many, which are a power of two.
fn spread(object: u64, places: usize) -> usize {
    (object.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize & (places - 1)
}

/// A call that the program tells of itself; calls within it are recorded as well.
pub(crate) fn enter_told(name: &str, keys: &[&str], fields: &[Field<'_>]) {
    tell(name, keys, false, fields);
}

/// Something that the program tells.
pub(crate) fn note(name: &str, keys: &[&str], fields: &[Field<'_>]) {
    tell(name, keys, true, fields);
}

/// A call that the program will tell of.
pub(crate) fn told(name: &str, keys: &[&str], fields: Vec<Field<'static>>) -> Option<Told> {
    let signature = define(name, keys, false)?;
    Some(Told { signature, content: Content::of(signature, &fields), fields })
}

/// As [`enter_told`], with less work.
pub(crate) fn enter_known(told: &Told) {
    if STOPPED.load(Ordering::Relaxed) {
        return;
    }
    with_log(|recorder, log| {
        if let Some(writer) = &mut log.writer {
            writer.enter_known(recorder.recording.now(), told.content, told.signature, &told.fields);
        }
    });
}

/// A call that the program told of returned.
pub(crate) fn leave_told() {
    if !STOPPED.load(Ordering::Relaxed) {
        with_log(|recorder, log| {
            if let Some(writer) = &mut log.writer {
                writer.leave(recorder.recording.now());
            }
        });
    }
}

fn tell(name: &str, keys: &[&str], instant: bool, fields: &[Field<'_>]) {
    if STOPPED.load(Ordering::Relaxed) {
        return;
    }
    let Some(signature) = define(name, keys, instant) else { return };
    with_log(|recorder, log| {
        if let Some(writer) = &mut log.writer {
            writer.enter(recorder.recording.now(), signature, fields);
        }
    });
}

/// The signature of this name and these keys. `None` if there are too many.
fn define(name: &str, keys: &[&str], instant: bool) -> Option<&'static Signature> {
    let text = format!("{name}\u{1f}{instant}\u{1f}{}", keys.join("\u{1f}"));
    let mut defined = recorder()?.defined.lock().ok()?;
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
        with_log(|recorder, log| {
            if let Some(writer) = &mut log.writer {
                writer.enter(recorder.recording.now(), &EXIT, &[Field::Signed(code.into())]);
            }
        });
    }
}

/// This process is the child of a fork: what it calls goes to a file of its own.
pub(crate) fn forked() {
    CURRENT.clear();
    THREAD.with(|thread| thread.depth.set(0));
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
    let log = THREAD.with(|thread| {
        thread.depth.set(1);
        thread.log.take()
    });
    if let Some((recorder, log)) = log
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
        let Ok(mut logs) = self.logs.lock() else { return Box::leak(Box::new(Mutex::new(Log::new(writer)))) };
        for log in logs.iter() {
            if let Ok(mut log) = log.try_lock()
                && log.writer.is_none()
            {
                *log = Log::new(writer.take());
            }
            if writer.is_none() {
                return log;
            }
        }
        let log: &'static Mutex<Log> = Box::leak(Box::new(Mutex::new(Log::new(writer))));
        logs.push(log);
        log
    }
}

/// The log of the thread, which it gets now if it has none.
#[inline]
fn log() -> Option<(&'static Recorder, &'static Mutex<Log>)> {
    let recorder = recorder()?;
    // After a fork the log is still the parent's.
    let known = THREAD.with(|thread| thread.log.get()).filter(|(owner, _)| std::ptr::eq(*owner, recorder));
    known.or_else(|| {
        let log = recorder.log();
        THREAD.with(|thread| thread.log.set(Some((recorder, log))));
        process::watch_thread();
        Some((recorder, log))
    })
}

/// Calls this with the log of the thread, if nobody is in it: a signal handler that calls NCCL while its thread
/// writes gets nothing recorded.
#[inline]
fn with_log(write: impl FnOnce(&'static Recorder, &mut Log)) {
    let errno = process::errno();
    let done = catch_unwind(AssertUnwindSafe(|| {
        if let Some((recorder, log)) = log()
            && let Ok(mut log) = log.try_lock()
        {
            write(recorder, &mut log);
        }
    }));
    if done.is_err() {
        STOPPED.store(true, Ordering::Relaxed);
    }
    process::set_errno(errno);
}
