//! Reads the file of one process: its shapes, and its events in the order of time.
//!
//! Events are decoded while they are asked for; what is kept in memory is one extent a thread and the
//! dictionary, and of a folded file its calls. Not here: which ranks the processes are, and what the calls mean.

mod bytes;
pub(crate) mod pieces;
mod shapes;
mod source;
mod thread;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use thiserror::Error;

use self::shapes::Dictionary;
use self::source::{ExtentIndex, ExtentSource, ReadExtent};
use self::thread::ThreadReader;
use crate::layout::{END, EXTENT_HEADER_BYTES, Extent, FOLDED_VERSION, HEADER_BYTES, Header, MAGIC, VERSION};
use crate::value::Argument;

/// Why a file could not be read.
#[derive(Debug, Error)]
pub enum ReadError {
    /// The operating system says no.
    #[error("cannot read {path}: {source}")]
    Io {
        /// Path of the recording.
        path: PathBuf,
        /// What the operating system says.
        source: io::Error,
    },
    /// Something else than a recording.
    #[error("{path} is no recording: it does not begin with `rankrec`")]
    NotARecording {
        /// Path of the recording.
        path: PathBuf,
    },
    /// Written by another rankcheck.
    #[error(
        "{path} has format version {found}; this rankcheck reads version {VERSION}: use the one that recorded it"
    )]
    Version {
        /// Path of the recording.
        path: PathBuf,
        /// The version that the file has.
        found: u32,
    },
    /// Its end is missing, and with it what the rest is read by: its header, or what a folded file was folded from.
    #[error(
        "{path} is cut off, so nothing of it can be read: copy it again from where it was written, or record again"
    )]
    CutOff {
        /// Path of the recording.
        path: PathBuf,
    },
    /// What is there cannot have been written by the recorder.
    #[error("{path} is damaged at byte {at}: {what}")]
    Damaged {
        /// Path of the recording.
        path: PathBuf,
        /// Bytes from its beginning.
        at: u64,
        /// What is wrong there.
        what: String,
    },
}

/// A call with its arguments.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Shape {
    /// As the vendor spells it.
    pub name: Arc<str>,
    /// Names of the arguments; one for each value.
    pub keys: Arc<[Box<str>]>,
    /// One value for each key, in the same order.
    pub values: Box<[Argument]>,
    /// Whether it was noted, and has no return.
    pub instant: bool,
}

impl Shape {
    /// The argument of this name.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Argument> {
        self.keys.iter().position(|name| **name == *key).map(|at| &self.values[at])
    }
}

/// A shape of one process; equal numbers are equal calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShapeId(pub u32);

/// What happened, and when: nanoseconds since the process began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallEvent {
    /// A call was entered, or something was noted.
    Enter {
        /// Nanoseconds since the process began.
        time: u64,
        /// The number of the host thread in its process.
        thread: u32,
        /// The shape of the call: its name and arguments.
        call: ShapeId,
    },
    /// The innermost open call of the thread returned.
    Return {
        /// Nanoseconds since the process began.
        time: u64,
        /// The number of the host thread in its process.
        thread: u32,
        /// What it returned, where that is worth a word: an error's code, what it made.
        values: Option<ShapeId>,
    },
    /// Events of the thread are missing here.
    Lost {
        /// The number of the host thread in its process.
        thread: u32,
        /// How many events are missing.
        events: u64,
    },
}

impl CallEvent {
    /// The number of the host thread in its process.
    #[must_use]
    pub fn thread(&self) -> u32 {
        let (Self::Enter { thread, .. } | Self::Return { thread, .. } | Self::Lost { thread, .. }) = *self;
        thread
    }
}

/// A call that was over before anything else happened in its process, and returned nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlainCall {
    /// When it was entered: nanoseconds since the process began.
    pub time: u64,
    /// The number of the host thread in its process.
    pub thread: u32,
    /// The shape of the call: its name and arguments.
    pub call: ShapeId,
}

/// Where a thread's events end before it ended: the process was killed, or the file was cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cut {
    /// The number of the host thread in its process.
    pub thread: u32,
    /// Bytes from the beginning of the file.
    pub at: u64,
}

/// The file of one process.
pub struct ProcessFile {
    /// The path under which it was opened.
    pub path: PathBuf,
    /// What it says of itself.
    pub header: Header,
    dictionary: Dictionary,
    source: ExtentSource,
    /// The headers of all extents and where they begin, in the order of the file; of a folded one, nobody knows where or how long.
    extents: Vec<(u64, Extent)>,
    threads: Vec<ThreadReader>,
    /// The thread that the next event is taken from.
    current: Option<usize>,
    /// The time of the next event of each other thread that has one.
    waiting: BinaryHeap<Reverse<(u64, usize)>>,
    cuts: Vec<Cut>,
    /// If the end of the file was cut off: before which time it has all events.
    truncated: Option<u64>,
    /// The time before which events are read, if somebody wants no later ones.
    stop: Option<u64>,
}

impl ProcessFile {
    /// Opens a file and reads where its extents are.
    ///
    /// # Errors
    ///
    /// If it cannot be read, is no recording, has another version, or is damaged. A file that ends early is
    /// no error: [`ProcessFile::cuts`] says where, and of one that was folded nothing but the header is known then.
    pub fn open(path: &Path) -> Result<Self, ReadError> {
        let (header, version) = read_header(path)?;
        let source = ExtentSource::open(path, version)?;
        let ExtentIndex { extents, length, ends_inside } = source.index()?;
        let cut_off = ends_inside || header.bytes.is_some_and(|bytes| length < bytes);
        let truncated = cut_off.then(|| extents.last().map_or(0, |(_, extent)| extent.time));
        let mut process = Self {
            path: path.to_owned(),
            header,
            dictionary: Dictionary::default(),
            source,
            threads: threads_of(&extents),
            extents,
            current: None,
            waiting: BinaryHeap::new(),
            cuts: Vec::new(),
            truncated,
            stop: None,
        };
        for thread in 0..process.threads.len() {
            process.wait(thread);
        }
        Ok(process)
    }

    /// Bytes of events in extents that are whole.
    pub(crate) fn event_bytes(&self) -> u64 {
        self.extents.iter().map(|(_, extent)| u64::from(extent.used)).sum()
    }

    /// About how many events there are.
    #[must_use]
    pub fn events_about(&self) -> u64 {
        /// Of a call that is over at once, in a file: a little less than most have.
        const CALL_BYTES: u64 = 7;
        self.source.events().unwrap_or_else(|| self.event_bytes() / CALL_BYTES)
    }

    /// The file, if its extents lie in it as they were recorded.
    pub(crate) fn recorded(&self) -> Option<&File> {
        self.source.recorded()
    }

    /// A shape that an event named.
    ///
    /// # Panics
    ///
    /// If it is another process's.
    #[must_use]
    pub fn shape(&self, id: ShapeId) -> &Shape {
        &self.dictionary.shapes[id.0 as usize]
    }

    /// All shapes of the events so far, in the order of their numbers.
    #[must_use]
    pub fn shapes(&self) -> &[Shape] {
        &self.dictionary.shapes
    }

    /// The header and all shapes, once the events are read.
    #[must_use]
    pub fn into_parts(self) -> (Header, Vec<Shape>) {
        (self.header, self.dictionary.shapes)
    }

    /// Where threads end without having ended, as far as events were read.
    #[must_use]
    pub fn cuts(&self) -> &[Cut] {
        &self.cuts
    }

    /// If the end of the file was cut off: before which time it has the events of all threads, in nanoseconds since the
    /// process began. Extents begin in the order of time, so whatever is missing came later than the last of them began.
    /// What is later is not read.
    #[must_use]
    pub fn truncated(&self) -> Option<u64> {
        self.truncated.filter(|end| self.stop.is_none_or(|stop| *end < stop))
    }

    /// Reads no event of this time or later, in nanoseconds since the process began: the file then says what somebody saw
    /// who looked at the process at that time. To be called before events are read.
    pub fn stop_at(&mut self, time: u64) {
        self.stop = Some(time);
        let seen = self.header.began.saturating_add(time);
        self.header.alive = self.header.alive.map(|alive| alive.min(seen));
    }

    /// The time before which events are read.
    fn end(&self) -> u64 {
        self.truncated.unwrap_or(u64::MAX).min(self.stop.unwrap_or(u64::MAX))
    }

    /// The next event of all threads, by time; of one thread in its order.
    ///
    /// # Errors
    ///
    /// If the file is damaged there.
    #[inline]
    pub fn next_event(&mut self) -> Result<Option<CallEvent>, ReadError> {
        loop {
            let at = match self.current {
                // At equal times the lower thread goes first.
                Some(at) if self.threads[at].is_due() && self.is_first(at) => at,
                before => {
                    if let Some(before) = before {
                        self.wait(before);
                    }
                    self.current = self.waiting.pop().map(|Reverse((_, first))| first);
                    let Some(first) = self.current else { return Ok(None) };
                    first
                }
            };
            if self.threads[at].next_time >= self.end() {
                return Ok(None);
            }
            let event = self.threads[at].next.take();
            if event.is_none() {
                // Its next extent begins here, and is read only now.
                self.load(at)?;
            }
            self.fetch(at)?;
            if event.is_some() {
                return Ok(event);
            }
        }
    }

    /// Goes over calls that stand at once before the next event and are *plain*: they returned nothing, and no
    /// event of any thread lies between enter and return. Nearly all calls of a long run are. It ends behind so many,
    /// before a call that `take` does not want, and before whatever is no plain call; then [`ProcessFile::next_event`]
    /// goes on. Gives how many there were.
    ///
    /// # Errors
    ///
    /// If the file is damaged behind them.
    #[inline]
    pub fn plain_calls(
        &mut self,
        at_most: u64,
        mut take: impl FnMut(PlainCall) -> bool,
    ) -> Result<u64, ReadError> {
        let Some(at) = self.current else { return Ok(0) };
        let end = self.end();
        let thread = &mut self.threads[at];
        let (Some(CallEvent::Enter { time, call, .. }), Some(returned)) = (thread.next, thread.returns)
        else {
            return Ok(0);
        };
        // Of other threads' events at the same time it is not said here which comes first.
        let before = self.waiting.peek().map_or(u64::MAX, |&Reverse((time, _))| time);
        let before = before.min(end);
        let first = PlainCall { time, thread: thread.number, call };
        if at_most == 0 || returned >= before || !take(first) {
            return Ok(0);
        }
        thread.time = returned;
        (thread.next, thread.returns) = (None, None);
        let taken = 1 + thread.plain(before, at_most - 1, take);
        self.fetch(at)?;
        Ok(taken)
    }

    #[inline]
    fn is_first(&self, at: usize) -> bool {
        self.waiting.peek().is_none_or(|&Reverse(other)| (self.threads[at].next_time, at) < other)
    }

    /// The thread has to wait until its next event, or extent, is the first of all.
    fn wait(&mut self, at: usize) {
        if self.threads[at].is_due() {
            self.waiting.push(Reverse((self.threads[at].next_time, at)));
        }
    }

    fn damaged(&self, at: u64, what: impl Into<String>) -> ReadError {
        ReadError::Damaged { path: self.path.clone(), at, what: what.into() }
    }

    /// Decodes the thread's next event.
    #[inline]
    fn fetch(&mut self, at: usize) -> Result<(), ReadError> {
        if self.threads[at].frequent() {
            return Ok(());
        }
        self.fetch_any(at)
    }

    fn fetch_any(&mut self, at: usize) -> Result<(), ReadError> {
        loop {
            let thread = &mut self.threads[at];
            if thread.at >= thread.bytes.len() {
                if std::mem::take(&mut thread.cut) {
                    let end = thread.offset + thread.bytes.len() as u64;
                    self.cuts.push(Cut { thread: thread.number, at: end });
                }
                // The next extent is read when it is due: by then others may have begun that come before it.
                thread.awaits_extent();
                return Ok(());
            }
            let begin = thread.at;
            match thread.decode(&mut self.dictionary) {
                Ok(Some(event)) => {
                    thread.next_time = thread.time;
                    thread.next = Some(event);
                    return Ok(());
                }
                Ok(None) if thread.bytes[begin] != END => {}
                Err(what) if thread.sealed => {
                    let at = thread.offset + begin as u64;
                    return Err(self.damaged(at, what));
                }
                // The extent was open when the process ended: it ends here, or in the middle of this event.
                Ok(None) | Err(_) => {
                    thread.bytes.truncate(begin);
                    thread.at = begin;
                }
            }
        }
    }

    /// Reads the thread's next extent.
    fn load(&mut self, at: usize) -> Result<bool, ReadError> {
        let thread = &mut self.threads[at];
        let Some((at, extent)) = thread.extents.next() else { return Ok(false) };
        let ReadExtent { at, header, sealed } = self.source.read(at, extent, &mut thread.bytes)?;
        thread.sealed = sealed;
        thread.offset = at + EXTENT_HEADER_BYTES as u64;
        thread.at = 0;
        thread.time = header.time;
        thread.cut = !sealed;
        Ok(true)
    }
}

/// The threads that have these extents, each before its first.
fn threads_of(extents: &[(u64, Extent)]) -> Vec<ThreadReader> {
    let mut threads: BTreeMap<u32, Vec<(u64, Extent)>> = BTreeMap::new();
    for (at, extent) in extents {
        threads.entry(extent.thread).or_default().push((*at, *extent));
    }
    threads.into_iter().map(|(number, extents)| ThreadReader::new(number, extents)).collect()
}

/// What a file says of its process, and its version. Of the file not much more is read.
///
/// # Errors
///
/// If it cannot be read, is no recording, has another version, or its header is damaged.
pub fn read_header(path: &Path) -> Result<(Header, u32), ReadError> {
    let io = |source| ReadError::Io { path: path.to_owned(), source };
    let mut bytes = Vec::with_capacity(HEADER_BYTES);
    File::open(path).map_err(io)?.take(HEADER_BYTES as u64).read_to_end(&mut bytes).map_err(io)?;
    header(path, &bytes)
}

/// As [`read_header`], from the first bytes of the file at this path.
pub(crate) fn header(path: &Path, bytes: &[u8]) -> Result<(Header, u32), ReadError> {
    if bytes.get(..8) != Some(&MAGIC) {
        return Err(ReadError::NotARecording { path: path.to_owned() });
    }
    if bytes.len() < 16 {
        return Err(ReadError::CutOff { path: path.to_owned() });
    }
    let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    let version = word(8);
    if version != VERSION && version != FOLDED_VERSION {
        return Err(ReadError::Version { path: path.to_owned(), found: version });
    }
    let damaged = |what: String| ReadError::Damaged { path: path.to_owned(), at: 16, what };
    let length = usize::try_from(word(12)).ok().filter(|length| *length <= HEADER_BYTES - 16);
    let length = length.ok_or_else(|| damaged("the length of its header".to_owned()))?;
    let json = bytes.get(16..16 + length).ok_or_else(|| ReadError::CutOff { path: path.to_owned() })?;
    let header = serde_json::from_slice(json).map_err(|error| damaged(format!("its header: {error}")))?;
    Ok((header, version))
}
