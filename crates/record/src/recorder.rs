//! What is written down, and when: of each host thread its own calls, none of those that NCCL or CUDA make.
//!
//! The file is made at the first call. A thread has a writer of its own, which nobody else touches before the
//! process ends. Where writing would have to wait, the event is given up: a program never waits for this.
//!
//! Not here: functions of others ([`crate::ffi`]), and the bytes (`rankcheck-recording`).

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use rankcheck_recording::{CallContent, EventWriter, Field, Returns, Signature};

use crate::call_sites::{CallSiteId, CallSites};
use crate::ffi::clock::RunningClock;
use crate::ffi::process::{self, PerProcess};
use crate::ffi::thread::{self, Owned};
use crate::file::{Extents, RecordingFile};

/// What a failed call returns.
const FAILED: Signature = Signature { name: "failed", keys: &["code"], instant: false };
/// What is noted when the process ends in order.
const EXIT: Signature = Signature { name: "exit", keys: &["code"], instant: true };
/// The version of NCCL, once it has made a communicator.
const VERSION: Signature = Signature { name: "process", keys: &["nccl_version"], instant: true };
/// The window of a registration within a group that has ended; in the order of the registrations.
const MADE: Signature = Signature { name: "ncclGroupEnd.window", keys: &["window"], instant: true };
/// Signatures that a program may define itself; they are never given back.
const DEFINED_MAX: usize = 4096;

/// The recorder of this process. A child of a fork has none until it calls something.
static CURRENT: PerProcess<Recorder> = PerProcess::new();
/// What every call looks at.
static SHARED: SharedState = SharedState { stopped: AtomicBool::new(false), clock: RunningClock::new() };

/// See [`SHARED`]. Programs leave nothing of it in the nearer caches, so it has one line of them.
#[repr(C, align(64))]
struct SharedState {
    /// Nothing is recorded: it failed, the process ends, or the program asked for it.
    stopped: AtomicBool,
    clock: RunningClock,
}

impl SharedState {
    fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }

    #[inline]
    fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }
}

/// How many calls of the vendors were made while nothing is recorded.
static PASSED_OVER: AtomicU64 = AtomicU64::new(0);

/// How often an event was recorded that has this slot.
static WORK: [AtomicU32; 1024] = [const { AtomicU32::new(0) }; 1024];

struct Recorder {
    recording: RecordingFile,
    /// The process that it is of.
    process: u32,
    /// Whether it is noted already that the process ends.
    exit_noted: AtomicBool,
    threads: AtomicU32,
    logs: Mutex<Vec<&'static Owned<Log>>>,
    /// Signatures that the program defined. Writers tell signatures by their address, so there is one of each.
    defined: Mutex<BTreeMap<String, &'static Signature>>,
}

/// What one thread wrote. What each call needs comes first.
#[repr(C)]
pub(crate) struct Log {
    sites: CallSites,
    writer: EventWriter<Extents>,
    /// What was answered when the thread asked last, by the slot of what it asked about.
    answers: [PollAnswer; 64],
    /// NCCL's groups that are open.
    groups: u32,
    /// Where the registrations within them will write their windows.
    windows: Vec<usize>,
}

impl Log {
    fn new(recorder: &'static Recorder) -> Self {
        let recording = &recorder.recording;
        let number = recorder.threads.fetch_add(1, Ordering::Relaxed);
        let writer = EventWriter::new(Extents::new(recording), number, recording.began);
        Self {
            writer,
            sites: CallSites::new(),
            answers: [PollAnswer::default(); 64],
            groups: 0,
            windows: Vec::new(),
        }
    }
}

/// What was answered when a thread asked whether work is done.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct PollAnswer {
    /// The event or the stream.
    object: u64,
    /// [`WORK`] at that time.
    work: u32,
    code: i32,
}

/// What is asked whether its work is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Polled {
    /// It stays done until it is recorded again.
    Event,
    /// It gets work in ways that are not seen here.
    Stream,
}

/// A call that the program told of before it enters it.
pub(crate) struct Told {
    signature: &'static Signature,
    content: CallContent,
    fields: Vec<Field<'static>>,
}

/// What a thread knows of itself.
pub(crate) type LogThread = thread::ThreadSelf<Log>;

thread_local! {
    static THREAD: LogThread = const { LogThread::new() };
}

/// Calls this with what the thread knows of itself.
#[inline]
pub(crate) fn on_thread<R>(run: impl FnOnce(&LogThread) -> R) -> R {
    THREAD.with(run)
}

/// What came back from a call.
pub(crate) enum CallResult<'a> {
    /// Nothing that is not known from the arguments.
    Plain,
    /// What it made, as values by the keys of the signature.
    Values(&'static Signature, &'a [Field<'a>]),
    /// The vendor's code, because it failed.
    Failed(i64),
}

/// Whether a vendor's call of this thread is to be recorded. If so, [`enter`] or [`ask`] comes next.
#[inline]
pub(crate) fn wanted(thread: &LogThread) -> bool {
    !(thread.calling.get() || SHARED.is_stopped() && passed_over())
}

/// A vendor's call is made that is not recorded. Always true.
#[cold]
fn passed_over() -> bool {
    // Two at the same time may count as one.
    PASSED_OVER.store(PASSED_OVER.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    true
}

/// A vendor's call as it is written: without its site in the user's code, and with one as its last key.
pub(crate) struct CallSignatures {
    pub(crate) plain: Signature,
    pub(crate) sited: Signature,
}

/// Whether anybody will want to know where a call was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Where {
    Wanted,
    NotWanted,
}

/// A vendor's call is entered.
#[inline(always)]
pub(crate) fn enter<const N: usize>(
    thread: &LogThread,
    called: &'static CallSignatures,
    fields: [Field<'_>; N],
    site: Where,
    returns: Returns,
) {
    thread.calling.set(true);
    let content = CallContent::of(&called.plain, &fields);
    if !entered_again(thread, content, Field::varying(&fields), site, returns) {
        // Of a copy: so the short way does not even put them into memory.
        enter_anew(thread, content, called, &{ fields }, site, returns);
    }
}

/// The short way for a call that the thread made lately; nothing in it can fail. Once for all calls, so that one
/// finds it in the cache after another.
#[inline(never)]
fn entered_again(
    thread: &LogThread,
    content: CallContent,
    varying: Option<u64>,
    site: Where,
    returns: Returns,
) -> bool {
    let now = SHARED.clock.now();
    let again = |log: &mut Log| {
        let content = match site {
            Where::NotWanted => content,
            Where::Wanted => match log.sites.here() {
                Some(site) => at(content, site),
                None => return false,
            },
        };
        log.writer.call_again(now, content, varying, returns)
    };
    thread.own.get().and_then(|log| log.with(thread, again)).unwrap_or(false)
}

#[inline]
fn at(content: CallContent, site: CallSiteId) -> CallContent {
    if site == CallSiteId::NONE { content } else { content.at(site.0) }
}

#[cold]
fn enter_anew(
    thread: &LogThread,
    content: CallContent,
    called: &'static CallSignatures,
    fields: &[Field<'_>],
    site: Where,
    returns: Returns,
) {
    let now = SHARED.clock.now();
    with_log(thread, |log| {
        let Log { sites, writer, .. } = log;
        let site = match site {
            Where::Wanted => sites.here().unwrap_or_else(|| sites.learn()),
            Where::NotWanted => CallSiteId::NONE,
        };
        let content = at(content, site);
        if let Some(site) = sites.text(site) {
            let fields: Vec<Field<'_>> = fields.iter().copied().chain([Field::Text(site)]).collect();
            writer.call_known(now, content, &called.sited, &fields, returns);
        } else {
            writer.call_known(now, content, &called.plain, fields, returns);
        }
    });
}

/// Where the calling thread is in the user's code, as calls get it. Nothing is written for it.
pub(crate) fn call_site_here() -> Option<String> {
    let site = || {
        let mut sites = CallSites::new();
        let site = sites.learn();
        sites.text(site).map(str::to_owned)
    };
    catch_unwind(site).ok().flatten()
}

/// The vendor's call that was entered last returned; `entered` says what was said of that then.
#[inline]
pub(crate) fn leave(thread: &LogThread, entered: Returns, returned: &CallResult<'_>) {
    thread.calling.set(false);
    match (entered, returned) {
        (Returns::AtOnce, CallResult::Plain) => {}
        (Returns::Later, CallResult::Plain) => left(thread),
        (_, CallResult::Values(signature, fields)) => left_with(thread, entered, signature, fields),
        (_, CallResult::Failed(code)) => left_with(thread, entered, &FAILED, &[Field::Signed(*code)]),
    }
}

/// Writes down that a call returned; kept out of line, as [`entered_again`] is.
#[inline(never)]
fn left(thread: &LogThread) {
    let now = SHARED.clock.now();
    if let Some(log) = thread.own.get() {
        log.with(thread, |log| log.writer.leave(now));
    }
}

#[inline(never)]
fn left_with(thread: &LogThread, entered: Returns, signature: &'static Signature, fields: &[Field<'_>]) {
    let now = SHARED.clock.now();
    write(thread, |writer| match entered {
        Returns::Later => writer.leave_with(now, signature, fields),
        Returns::AtOnce => writer.leave_after_all(now, signature, fields),
    });
}

/// The thread is about to ask whether the work of something is done; [`answered`] follows. Returns when.
pub(crate) fn ask(thread: &LogThread) -> u64 {
    thread.calling.set(true);
    SHARED.clock.now()
}

/// The thread asked about its first argument, and this is the answer. Programs ask again and again: an answer
/// that is no news to the thread is not written.
pub(crate) fn answered(
    thread: &LogThread,
    asked: Polled,
    at: u64,
    signature: &'static Signature,
    fields: &[Field<'_>],
    code: i32,
) {
    thread.calling.set(false);
    let Some(Field::Address(object) | Field::Varying(object)) = fields.first() else { return };
    let answer = PollAnswer { object: *object, work: work(*object).load(Ordering::Relaxed), code };
    with_log(thread, |log| {
        let last = &mut log.answers[spread(*object, 64)];
        if *last == answer {
            return;
        }
        // A stream that was done may have got work meanwhile, so that it is done again is news.
        *last = if asked == Polled::Stream && code == 0 { PollAnswer::default() } else { answer };
        log.writer.call(at, signature, fields);
        let now = SHARED.clock.now();
        match code {
            0 => log.writer.leave(now),
            code => log.writer.leave_with(now, &FAILED, &[Field::Signed(code.into())]),
        }
    });
}

/// A group of NCCL began.
pub(crate) fn group_began(thread: &LogThread) {
    with_log(thread, |log| log.groups += 1);
}

/// Whether a group is open. If so, what a call of it makes will be there when it ends, and is noted then.
pub(crate) fn in_group(to: usize) -> bool {
    let mut open = false;
    on_thread(|thread| {
        with_log(thread, |log| {
            open = log.groups > 0;
            if open {
                log.windows.push(to);
            }
        });
    });
    open
}

/// A group of NCCL ended. If no other is around it, `made` reads what was made.
pub(crate) fn group_ended(thread: &LogThread, made: impl Fn(usize) -> Option<u64>) {
    with_log(thread, |log| {
        log.groups = log.groups.saturating_sub(1);
        if log.groups > 0 {
            return;
        }
        let windows = std::mem::take(&mut log.windows);
        for window in windows {
            let window = made(window).map_or(Field::None, Field::Address);
            log.writer.enter(SHARED.clock.now(), &MADE, &[window]);
        }
    });
}

/// A communicator was made: the version of NCCL is noted, once a process.
pub(crate) fn comm_made(thread: &LogThread, version: impl FnOnce() -> Option<u64>) {
    // A child of a fork has a recording of its own.
    static TOLD: AtomicU32 = AtomicU32::new(0);
    if TOLD.swap(std::process::id(), Ordering::Relaxed) == std::process::id() {
        return;
    }
    if let Some(version) = version() {
        with_log(thread, |log| {
            log.writer.enter(SHARED.clock.now(), &VERSION, &[Field::Number(version)]);
        });
    }
}

/// An event is recorded: what was known of it is no more.
pub(crate) fn works(event: u64) {
    // Two at the same time may count as one. Counting for sure would stop the processor until it has the line.
    let work = work(event);
    work.store(work.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
}

fn work(object: u64) -> &'static AtomicU32 {
    &WORK[spread(object, WORK.len())]
}

/// A slot among so many, which are a power of two.
fn spread(object: u64, slots: usize) -> usize {
    (object.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize & (slots - 1)
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
    Some(Told { signature, content: CallContent::of(signature, &fields), fields })
}

/// As [`enter_told`], with less work.
pub(crate) fn enter_known(told: &Told) {
    if !SHARED.is_stopped() {
        let now = SHARED.clock.now();
        on_thread(|thread| {
            write(thread, |writer| writer.enter_known(now, told.content, told.signature, &told.fields));
        });
    }
}

/// A call that the program told of returned.
pub(crate) fn leave_told() {
    if !SHARED.is_stopped() {
        let now = SHARED.clock.now();
        on_thread(|thread| write(thread, |writer| writer.leave(now)));
    }
}

fn tell(name: &str, keys: &[&str], instant: bool, fields: &[Field<'_>]) {
    if !SHARED.is_stopped()
        && let Some(signature) = define(name, keys, instant)
    {
        note_now(signature, fields);
    }
}

/// A call that the program tells of is entered, or something is noted.
fn note_now(signature: &'static Signature, fields: &[Field<'_>]) {
    let now = SHARED.clock.now();
    on_thread(|thread| write(thread, |writer| writer.enter(now, signature, fields)));
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

/// Whether this process has a file yet.
pub(crate) fn began() -> bool {
    CURRENT.get().is_some()
}

/// Records nothing more, or goes on. Calls that are open meanwhile must be closed in the same state. What was called in
/// between is missing, and the recording says so: what comes behind may rest on it.
pub(crate) fn pause(paused: bool) {
    SHARED.stopped.store(paused, Ordering::Relaxed);
    let missed = PASSED_OVER.swap(0, Ordering::Relaxed);
    if !paused && missed > 0 {
        let now = SHARED.clock.now();
        on_thread(|thread| write(thread, |writer| writer.missed(now, missed)));
    }
}

/// The process ends in order with this code. Other threads may still be at work.
pub(crate) fn exiting(code: i32) {
    if let Some(recorder) = CURRENT.get()
        && !SHARED.is_stopped()
        && !recorder.exit_noted.swap(true, Ordering::Relaxed)
    {
        note_now(&EXIT, &[Field::Signed(code.into())]);
    }
}

/// The process ends at once with this code: nothing else is told of its end.
pub(crate) fn leaves(code: i32) {
    // A child of `vfork` leaves so too, if it can't become another program, and runs in the memory of its parent.
    if CURRENT.get().is_some_and(|recorder| recorder.process == std::process::id()) {
        // A handler of a signal may leave, whatever its thread was about to do: to make a log takes memory and a lock, which that
        // thread may be in the midst of.
        if on_thread(|thread| thread.own.get().is_some()) {
            exiting(code);
        }
        end();
    }
}

/// This process is the child of a fork: what it calls goes to a file of its own.
pub(crate) fn forked() {
    CURRENT.clear();
    SHARED.clock.forked();
    on_thread(|thread| {
        thread.calling.set(false);
        thread.own.set(None);
    });
}

/// Nothing more will be called: every log ends, but those in which a thread is writing.
pub(crate) fn end() {
    SHARED.stop();
    let Some(recorder) = CURRENT.get() else { return };
    if let Ok(logs) = recorder.logs.try_lock() {
        for log in logs.iter() {
            log.take(|log| log.writer.finish());
        }
    }
}

/// Writes down that the thread ends.
pub(crate) fn thread_ends() {
    on_thread(|thread| {
        // Other destructors of the thread may still call NCCL.
        thread.calling.set(true);
        if let Some(log) = thread.own.take()
            && log.with(thread, |log| log.writer.finish()).is_some()
        {
            log.free(thread);
        }
    });
}

fn recorder() -> Option<&'static Recorder> {
    if let Some(recorder) = CURRENT.get() {
        return Some(recorder);
    }
    let Some(recording) = RecordingFile::create(SHARED.clock.now()) else {
        SHARED.stop();
        return None;
    };
    let recorder = Recorder {
        recording,
        process: std::process::id(),
        exit_noted: AtomicBool::new(false),
        threads: AtomicU32::new(0),
        logs: Mutex::default(),
        defined: Mutex::default(),
    };
    let (current, rejected) = CURRENT.set(Box::new(recorder));
    match rejected {
        Some(recorder) => recorder.recording.remove(),
        None => process::on_exit(),
    }
    Some(current)
}

impl Recorder {
    /// A log for a thread that has none; those of threads that ended are used again.
    fn log(&'static self, thread: &LogThread) -> &'static Owned<Log> {
        let Ok(mut logs) = self.logs.lock() else {
            return Box::leak(Box::new(Owned::new(thread, Log::new(self))));
        };
        if let Some(log) = logs.iter().find(|log| log.claim(thread)) {
            log.with(thread, |log| *log = Log::new(self));
            return log;
        }
        let log: &'static Owned<Log> = Box::leak(Box::new(Owned::new(thread, Log::new(self))));
        logs.push(log);
        log
    }
}

/// The log of a thread that has none yet.
#[cold]
fn first_log(thread: &LogThread) -> Option<&'static Owned<Log>> {
    let log = recorder()?.log(thread);
    thread.own.set(Some(log));
    process::watch_thread();
    Some(log)
}

/// Calls this with the writer of the thread.
#[inline]
fn write(thread: &LogThread, write: impl FnOnce(&mut EventWriter<Extents>)) {
    with_log(thread, |log| write(&mut log.writer));
}

/// Calls this with the log of the thread, if nobody is in it: a signal handler that calls NCCL while its thread
/// writes gets nothing recorded.
#[inline]
fn with_log(thread: &LogThread, write: impl FnOnce(&mut Log)) {
    let errno = process::Errno::kept();
    let done = catch_unwind(AssertUnwindSafe(|| {
        if let Some(log) = thread.own.get().or_else(|| first_log(thread)) {
            log.with(thread, write);
        }
    }));
    if done.is_err() {
        SHARED.stop();
    }
    drop(errno);
}
