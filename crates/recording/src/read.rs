//! Reads the file of one process: its shapes, and its events in the order of time.
//!
//! Events are decoded while they are asked for; what is kept in memory is one extent a thread and the
//! dictionary. Not here: which ranks the processes are, and what the calls mean.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::fs::File;
use std::hash::BuildHasher;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustc_hash::{FxBuildHasher, FxHashMap};
use thiserror::Error;

use crate::layout::{
    CALL, END, ENTER, EVENT_BYTES_MAX, EXTENT_HEADER_BYTES, Extent, FORGET, HEADER_BYTES, Header, LOST,
    MAGIC, RETURN, RETURN_VALUES, SHAPE, SIGNATURE, TOOK_BYTES, VERSION, tag,
};
use crate::value::Value;

/// Why a file could not be read.
#[derive(Debug, Error)]
pub enum ReadError {
    /// The operating system says no.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What it says.
        source: io::Error,
    },
    /// Something else than a recording.
    #[error("{path} is no recording: it does not begin with `rankrec`")]
    NotARecording {
        /// The file.
        path: PathBuf,
    },
    /// Written by another rankcheck.
    #[error(
        "{path} has format version {found}; this rankcheck reads version {VERSION}: use the one that recorded it"
    )]
    Version {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u32,
    },
    /// What is there cannot have been written by the recorder.
    #[error("{path} is damaged at byte {at}: {what}")]
    Damaged {
        /// The file.
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
    /// The arguments.
    pub values: Box<[Value]>,
    /// Whether it was noted, and has no return.
    pub instant: bool,
}

impl Shape {
    /// The argument of this name.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.keys.iter().position(|name| **name == *key).map(|at| &self.values[at])
    }
}

/// A shape of one process; equal numbers are equal calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShapeId(pub u32);

/// What happened, and when: nanoseconds since the process began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A call was entered, or something was noted.
    Enter {
        /// Nanoseconds since the process began.
        time: u64,
        /// The host thread.
        thread: u32,
        /// The call.
        call: ShapeId,
    },
    /// The innermost open call of the thread returned.
    Return {
        /// Nanoseconds since the process began.
        time: u64,
        /// The host thread.
        thread: u32,
        /// What it returned, where that is worth a word: an error's code, what it made.
        values: Option<ShapeId>,
    },
    /// Events of the thread are missing here.
    Lost {
        /// The host thread.
        thread: u32,
        /// How many.
        events: u64,
    },
}

/// A call that was over before anything else happened in its process, and returned nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlainCall {
    /// When it was entered: nanoseconds since the process began.
    pub time: u64,
    /// The host thread.
    pub thread: u32,
    /// The call.
    pub call: ShapeId,
}

/// Where a thread's events end before it ended: the process was killed, or the file was cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cut {
    /// The host thread.
    pub thread: u32,
    /// Bytes from the beginning of the file.
    pub at: u64,
}

/// The file of one process.
pub struct Process {
    /// Where it is.
    pub path: PathBuf,
    /// What it says of itself.
    pub header: Header,
    dictionary: Dictionary,
    file: File,
    /// The headers of all extents and where they begin, in the order of the file.
    pub(crate) extents: Vec<(u64, Extent)>,
    threads: Vec<Thread>,
    /// The thread that the next event is taken from.
    current: Option<usize>,
    /// The time of the next event of each other thread that has one.
    waiting: BinaryHeap<Reverse<(u64, usize)>>,
    cuts: Vec<Cut>,
}

/// How far a thread is read.
struct Thread {
    number: u32,
    extents: std::vec::IntoIter<(u64, Extent)>,
    bytes: Vec<u8>,
    /// Of the extent in the file.
    offset: u64,
    at: usize,
    sealed: bool,
    /// Whether its end is still to be told in [`Process::cuts`].
    cut: bool,
    time: u64,
    signatures: Vec<Signature>,
    shapes: Numbered,
    /// What calls returned, as it is written, since the numbers of signatures began.
    returned: FxHashMap<Box<[u8]>, ShapeId>,
    /// When the call returned that the event before entered, if it says so.
    returns: Option<u64>,
    next: Option<Event>,
    /// Of `next`.
    next_time: u64,
}

/// The shapes that a thread has defined.
#[derive(Default)]
struct Numbered {
    /// By number; [`OPEN`] for those that leave an address open.
    ids: Vec<ShapeId>,
    /// Those by number, and where among the values the address is.
    open: FxHashMap<u32, (Shape, usize)>,
    /// The same with their addresses.
    closed: FxHashMap<(u32, u64), ShapeId>,
}

/// No shape has this number: each call tells the rest of its own.
const OPEN: ShapeId = ShapeId(u32::MAX);

/// How long texts and bytes of a shape may be that leaves an address open.
const OPEN_BYTES_MAX: usize = 512;

impl Numbered {
    #[inline]
    fn get(&self, number: u64) -> Option<ShapeId> {
        self.ids.get(usize::try_from(number).ok()?).copied()
    }

    /// The next shape, and which of its values it leaves open.
    fn push(&mut self, shape: Shape, open: Option<usize>, dictionary: &mut Dictionary) -> Result<(), String> {
        let id = if let Some(at) = open {
            // Each address makes a shape of its own, so none of them may be long.
            if shape.values.iter().map(Value::length_bytes).sum::<usize>() > OPEN_BYTES_MAX {
                return Err("a long call that leaves an address open".to_owned());
            }
            let number = u32::try_from(self.ids.len()).map_err(|_| "too many shapes".to_owned())?;
            self.open.insert(number, (shape, at));
            OPEN
        } else {
            dictionary.intern(shape)
        };
        self.ids.push(id);
        Ok(())
    }

    /// The shape of this number, with the address that follows if it leaves one open.
    fn called(
        &mut self,
        number: u64,
        bytes: &mut Bytes<'_>,
        dictionary: &mut Dictionary,
    ) -> Result<ShapeId, String> {
        let known = self.get(number);
        let known = known.ok_or_else(|| format!("a call of shape {number}, which was not defined"))?;
        let number = u32::try_from(number).unwrap_or(u32::MAX);
        let Some((shape, at)) = self.open.get(&number).filter(|_| known == OPEN) else { return Ok(known) };
        let address = bytes.varint()?;
        Ok(*self.closed.entry((number, address)).or_insert_with(|| {
            let mut shape = shape.clone();
            shape.values[*at] = Value::Address(address);
            dictionary.intern(shape)
        }))
    }

    /// As [`Numbered::called`], if the same was called before.
    #[inline]
    fn called_again(&self, number: u64, bytes: &mut Bytes<'_>) -> Option<ShapeId> {
        let address = bytes.varint().ok()?;
        self.closed.get(&(u32::try_from(number).ok()?, address)).copied()
    }
}

/// The name of a call and of its arguments, and whether it was only noted.
struct Signature {
    name: Arc<str>,
    keys: Arc<[Box<str>]>,
    instant: bool,
}

impl Process {
    /// Opens a file and reads where its extents are.
    ///
    /// # Errors
    ///
    /// If it cannot be read, is no recording, has another version, or is damaged. A file that ends early is
    /// no error: [`Process::cuts`] says where.
    pub fn open(path: &Path) -> Result<Self, ReadError> {
        let io = |source| ReadError::Io { path: path.to_owned(), source };
        let file = File::open(path).map_err(io)?;
        let length = file.metadata().map_err(io)?.len();
        let header = read_header(path, &file, length)?;
        let mut process = Self {
            path: path.to_owned(),
            header,
            dictionary: Dictionary::default(),
            file,
            extents: Vec::new(),
            threads: Vec::new(),
            current: None,
            waiting: BinaryHeap::new(),
            cuts: Vec::new(),
        };
        process.index(length)?;
        for thread in 0..process.threads.len() {
            process.fetch(thread)?;
            process.wait(thread);
        }
        Ok(process)
    }

    /// Bytes of events in extents that are whole.
    #[must_use]
    pub fn event_bytes(&self) -> usize {
        self.extents.iter().map(|(_, extent)| extent.used as usize).sum()
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

    /// The next event of all threads, by time; of one thread in its order.
    ///
    /// # Errors
    ///
    /// If the file is damaged there.
    #[inline]
    pub fn next_event(&mut self) -> Result<Option<Event>, ReadError> {
        let at = match self.current {
            // At equal times the lower thread goes first.
            Some(at) if self.threads[at].next.is_some() && self.is_first(at) => at,
            before => {
                if let Some(before) = before {
                    self.wait(before);
                }
                self.current = self.waiting.pop().map(|Reverse((_, first))| first);
                let Some(first) = self.current else { return Ok(None) };
                first
            }
        };
        let event = self.threads[at].next.take();
        self.fetch(at)?;
        Ok(event)
    }

    /// Goes over calls that stand at once before the next event and are *plain*: they returned nothing, and no
    /// event of any thread lies between enter and return. Nearly all calls of a long run are. It ends behind so many,
    /// before a call that `take` does not want, and before whatever is no plain call; then [`Process::next_event`]
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
        let thread = &mut self.threads[at];
        let (Some(Event::Enter { time, call, .. }), Some(returned)) = (thread.next, thread.returns) else {
            return Ok(0);
        };
        // Of other threads' events at the same time it is not said here which comes first.
        let before = self.waiting.peek().map_or(u64::MAX, |&Reverse((time, _))| time);
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

    /// The thread has to wait until its next event is the first of all.
    fn wait(&mut self, at: usize) {
        if self.threads[at].next.is_some() {
            self.waiting.push(Reverse((self.threads[at].next_time, at)));
        }
    }

    fn damaged(&self, at: u64, what: impl Into<String>) -> ReadError {
        ReadError::Damaged { path: self.path.clone(), at, what: what.into() }
    }

    /// Finds the extents of each thread.
    fn index(&mut self, length: u64) -> Result<(), ReadError> {
        let mut extents: BTreeMap<u32, Vec<(u64, Extent)>> = BTreeMap::new();
        let mut at = HEADER_BYTES as u64;
        while at + EXTENT_HEADER_BYTES as u64 <= length {
            let mut bytes = [0; EXTENT_HEADER_BYTES];
            self.file
                .read_exact_at(&mut bytes, at)
                .map_err(|source| ReadError::Io { path: self.path.clone(), source })?;
            if bytes == [0; EXTENT_HEADER_BYTES] {
                // Room that was made and never used: only at the end, or where a process was killed.
                at += crate::layout::EXTENT_BYTES as u64;
                continue;
            }
            let Some(extent) = Extent::decode(&bytes) else {
                return Err(self.damaged(at, "no extent begins here"));
            };
            if (extent.length as usize) <= EXTENT_HEADER_BYTES
                || extent.length as usize > crate::layout::EXTENT_BYTES
            {
                return Err(self.damaged(at, format!("an extent of {} bytes", extent.length)));
            }
            if extent.used as usize > extent.length as usize - EXTENT_HEADER_BYTES {
                return Err(self.damaged(at, format!("{} bytes used of {}", extent.used, extent.length)));
            }
            let of_thread = extents.entry(extent.thread).or_default();
            if extent.sequence as usize != of_thread.len() {
                let what = format!(
                    "extent {} of thread {} where extent {} was due",
                    extent.sequence,
                    extent.thread,
                    of_thread.len()
                );
                return Err(self.damaged(at, what));
            }
            of_thread.push((at, extent));
            self.extents.push((at, extent));
            at += u64::from(extent.length);
        }
        self.threads = extents
            .into_iter()
            .map(|(number, extents)| Thread {
                number,
                extents: extents.into_iter(),
                bytes: Vec::new(),
                offset: 0,
                at: 0,
                sealed: true,
                cut: false,
                time: 0,
                signatures: Vec::new(),
                shapes: Numbered::default(),
                returned: FxHashMap::default(),
                returns: None,
                next: None,
                next_time: 0,
            })
            .collect();
        Ok(())
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
                if !self.load(at)? {
                    return Ok(());
                }
                continue;
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
        let Some((offset, extent)) = thread.extents.next() else { return Ok(false) };
        thread.sealed = extent.used > 0;
        thread.offset = offset + EXTENT_HEADER_BYTES as u64;
        thread.at = 0;
        thread.time = extent.time;
        let length =
            if thread.sealed { extent.used } else { extent.length - EXTENT_HEADER_BYTES as u32 } as usize;
        thread.bytes.resize(length, 0);
        let mut read = 0;
        while read < length {
            match self.file.read_at(&mut thread.bytes[read..], thread.offset + read as u64) {
                Ok(0) => break,
                Ok(more) => read += more,
                Err(source) if source.kind() == io::ErrorKind::Interrupted => {}
                Err(source) => return Err(ReadError::Io { path: self.path.clone(), source }),
            }
        }
        if read < length {
            thread.bytes.truncate(read);
            thread.sealed = false;
        }
        if thread.sealed {
            if crc32fast::hash(&thread.bytes) != extent.checksum {
                return Err(self.damaged(offset, "the checksum of this extent does not fit its events"));
            }
        } else {
            thread.cut = true;
        }
        Ok(true)
    }
}

impl Thread {
    /// Takes the return that the event before told, or decodes the next event if it is of a kind that nearly all
    /// are: a call of a known shape is entered, or returns nothing, and the numbers are short. Else it leaves everything as it is.
    #[inline]
    fn frequent(&mut self) -> bool {
        if let Some(time) = self.returns.take() {
            self.time = time;
            self.next_time = time;
            self.next = Some(Event::Return { time, thread: self.number, values: None });
            return true;
        }
        // A number of one or two bytes, and the place behind it.
        let number = |at: usize| match self.bytes.get(at..at + 2) {
            Some(&[low, _]) if low < 0x80 => Some((u64::from(low), at + 1)),
            Some(&[low, high]) if high < 0x80 => Some((u64::from(low & 0x7f) | u64::from(high) << 7, at + 2)),
            _ => None,
        };
        let Some((code, at)) = number(self.at) else { return false };
        let (shape, at) = if code == u64::from(CALL) {
            let Some((shape, at)) = number(at) else { return false };
            (Some(shape), at)
        } else {
            (code.checked_sub(ENTER), at)
        };
        let Some((passed, mut at)) = number(at) else { return false };
        let time = self.time.saturating_add(passed);
        let event = if code == u64::from(RETURN) {
            Event::Return { time, thread: self.number, values: None }
        } else if let Some((shape, mut call)) = shape.and_then(|shape| Some((shape, self.shapes.get(shape)?)))
        {
            let mut returns = None;
            if code == u64::from(CALL) {
                let Some(took) = self.bytes.get(at..).and_then(<[u8]>::first_chunk) else { return false };
                returns = returned_at(time, *took);
                at += TOOK_BYTES;
            }
            if call == OPEN {
                let Some((closed, end)) = self.closed_at(shape, at) else { return false };
                (call, at) = (closed, end);
            }
            self.returns = returns;
            Event::Enter { time, thread: self.number, call }
        } else {
            return false;
        };
        self.time = time;
        self.next_time = time;
        self.next = Some(event);
        self.at = at;
        true
    }

    /// Goes over calls that say in their own event when they returned, as [`Process::plain_calls`] says. What this
    /// does not know, such as what stands at the end of an extent, it leaves.
    #[inline]
    fn plain(&mut self, before: u64, at_most: u64, mut take: impl FnMut(PlainCall) -> bool) -> u64 {
        let mut taken = 0;
        while taken < at_most {
            let Some(event) = self.bytes.get(self.at..).and_then(<[u8]>::first_chunk) else { break };
            let Some((shape, passed, took, mut length)) = plain_event(event) else { break };
            let Some(mut call) = self.shapes.get(shape) else { break };
            if call == OPEN {
                let Some((closed, end)) = self.closed_at(shape, self.at + length) else { break };
                (call, length) = (closed, end - self.at);
            }
            let time = self.time.saturating_add(passed);
            let Some(returned) = returned_at(time, took).filter(|&returned| returned < before) else { break };
            if !take(PlainCall { time, thread: self.number, call }) {
                break;
            }
            self.time = returned;
            self.at += length;
            taken += 1;
        }
        taken
    }

    /// The shape of this number with the address that is told here, if it came before, and the place behind it.
    #[inline]
    fn closed_at(&self, shape: u64, at: usize) -> Option<(ShapeId, usize)> {
        let mut bytes = Bytes { bytes: &self.bytes, at };
        Some((self.shapes.called_again(shape, &mut bytes)?, bytes.at))
    }

    /// The next event; `None` after something that is none. Errors are words.
    fn decode(&mut self, dictionary: &mut Dictionary) -> Result<Option<Event>, String> {
        let mut bytes = Bytes { bytes: &self.bytes, at: self.at };
        let thread = self.number;
        let code = bytes.varint()?;
        let event = match u8::try_from(code).unwrap_or(u8::MAX) {
            _ if code >= ENTER => {
                let passed = bytes.varint()?;
                let call = self.shapes.called(code - ENTER, &mut bytes, dictionary)?;
                self.time = self.time.saturating_add(passed);
                Some(Event::Enter { time: self.time, thread, call })
            }
            CALL => {
                let call = bytes.varint()?;
                let passed = bytes.varint()?;
                let took = [bytes.byte()?, bytes.byte()?, bytes.byte()?, bytes.byte()?];
                let call = self.shapes.called(call, &mut bytes, dictionary)?;
                self.time = self.time.saturating_add(passed);
                self.returns = returned_at(self.time, took);
                Some(Event::Enter { time: self.time, thread, call })
            }
            END => {
                // In a sealed extent every byte is used.
                if self.sealed {
                    return Err("an end inside an extent".to_owned());
                }
                None
            }
            SIGNATURE => {
                let instant = match bytes.byte()? {
                    0 => false,
                    1 => true,
                    other => return Err(format!("{other} where 0 or 1 was due")),
                };
                let name = bytes.text()?;
                let count = bytes.varint()?;
                if count > 64 {
                    return Err(format!("a call with {count} arguments"));
                }
                let keys = (0..count).map(|_| bytes.text()).collect::<Result<_, _>>()?;
                self.signatures.push(Signature { name: name.into(), keys, instant });
                None
            }
            SHAPE => {
                let (shape, open) = self.shape(&mut bytes)?;
                self.shapes.push(shape, open, dictionary)?;
                None
            }
            RETURN => {
                self.time = self.time.saturating_add(bytes.varint()?);
                Some(Event::Return { time: self.time, thread, values: None })
            }
            RETURN_VALUES => {
                let passed = bytes.varint()?;
                let begin = bytes.at;
                self.skip(&mut bytes)?;
                let written = &bytes.bytes[begin..bytes.at];
                let values = match self.returned.get(written) {
                    Some(&values) => values,
                    None => {
                        let (values, open) = self.shape(&mut Bytes { bytes: written, at: 0 })?;
                        if open.is_some() {
                            return Err("a return that leaves an address open".to_owned());
                        }
                        let values = dictionary.intern(values);
                        if self.returned.len() < RETURNED_MAX {
                            self.returned.insert(written.into(), values);
                        }
                        values
                    }
                };
                self.time = self.time.saturating_add(passed);
                Some(Event::Return { time: self.time, thread, values: Some(values) })
            }
            FORGET => {
                self.signatures.clear();
                self.shapes = Numbered::default();
                self.returned.clear();
                None
            }
            LOST => Some(Event::Lost { thread, events: bytes.varint()? }),
            other => return Err(format!("an event of unknown kind {other}")),
        };
        self.at = bytes.at;
        Ok(event)
    }

    fn signature(&self, bytes: &mut Bytes<'_>) -> Result<&Signature, String> {
        let number = bytes.varint()?;
        let known = usize::try_from(number).ok().and_then(|number| self.signatures.get(number));
        known.ok_or_else(|| format!("signature {number}, which was not defined"))
    }

    /// A shape, and which of its values it leaves open.
    fn shape(&self, bytes: &mut Bytes<'_>) -> Result<(Shape, Option<usize>), String> {
        let signature = self.signature(bytes)?;
        let mut open = None;
        let mut values = Vec::with_capacity(signature.keys.len());
        for at in 0..signature.keys.len() {
            let value = bytes.value()?;
            if value.is_none() && open.replace(at).is_some() {
                return Err("a call that leaves two addresses open".to_owned());
            }
            values.push(value.unwrap_or(Value::None));
        }
        let shape = Shape {
            name: Arc::clone(&signature.name),
            keys: Arc::clone(&signature.keys),
            values: values.into(),
            instant: signature.instant,
        };
        Ok((shape, open))
    }

    /// Over a signature's number and its values.
    fn skip(&self, bytes: &mut Bytes<'_>) -> Result<(), String> {
        let signature = self.signature(bytes)?;
        signature.keys.iter().try_for_each(|_| bytes.skip_value())
    }
}

/// How many different results of a thread are known as they are written. More are decoded each time.
const RETURNED_MAX: usize = 1 << 16;

/// The shapes of a process, each once.
#[derive(Default)]
struct Dictionary {
    shapes: Vec<Shape>,
    /// By hash; where another shape has that hash, the next number that is free.
    known: FxHashMap<u64, ShapeId>,
}

impl Dictionary {
    fn intern(&mut self, shape: Shape) -> ShapeId {
        let mut hash = FxBuildHasher.hash_one(&shape);
        while let Some(&id) = self.known.get(&hash) {
            if self.shapes[id.0 as usize] == shape {
                return id;
            }
            hash = hash.wrapping_add(1);
        }
        let id = ShapeId(u32::try_from(self.shapes.len()).expect("a file has fewer than 2^32 shapes"));
        self.shapes.push(shape);
        self.known.insert(hash, id);
        id
    }
}

/// The longest event that [`plain_event`] knows: a code, numbers of up to three bytes, and when the call returned.
const PLAIN_BYTES: usize = 1 + 3 + 3 + TOOK_BYTES;

/// An event of code [`CALL`]: its shape, the time that passed, how long it took, and its length.
#[inline]
fn plain_event(event: &[u8; PLAIN_BYTES]) -> Option<(u64, u64, [u8; TOOK_BYTES], usize)> {
    let number = |at: usize| {
        let [low, middle, high] = [event[at], event[at + 1], event[at + 2]].map(u64::from);
        if low < 0x80 {
            Some((low, at + 1))
        } else if middle < 0x80 {
            Some((low & 0x7f | middle << 7, at + 2))
        } else {
            (high < 0x80).then_some((low & 0x7f | (middle & 0x7f) << 7 | high << 14, at + 3))
        }
    };
    if event[0] != CALL {
        return None;
    }
    let (shape, at) = number(1)?;
    let (passed, at) = number(at)?;
    let took = [event[at], event[at + 1], event[at + 2], event[at + 3]];
    Some((shape, passed, took, at + TOOK_BYTES))
}

/// When a call returned that was entered at this time, if its event says so.
fn returned_at(time: u64, took: [u8; TOOK_BYTES]) -> Option<u64> {
    u32::from_le_bytes(took).checked_sub(1).map(|took| time.saturating_add(took.into()))
}

/// Bytes that are decoded.
struct Bytes<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Bytes<'_> {
    #[inline]
    fn byte(&mut self) -> Result<u8, String> {
        let byte = self.bytes.get(self.at).copied().ok_or("an event that is cut off")?;
        self.at += 1;
        Ok(byte)
    }

    fn varint(&mut self) -> Result<u64, String> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err("a number of more than 64 bits".to_owned())
    }

    fn bytes(&mut self) -> Result<&[u8], String> {
        let length = self.varint()?;
        let length = usize::try_from(length).ok().filter(|&length| length <= EVENT_BYTES_MAX);
        let length = length.ok_or("a text that is too long")?;
        let bytes = self.bytes.get(self.at..self.at + length).ok_or("an event that is cut off")?;
        self.at += length;
        Ok(bytes)
    }

    fn text(&mut self) -> Result<Box<str>, String> {
        let bytes = self.bytes()?;
        std::str::from_utf8(bytes).map(Box::from).map_err(|_| "a text that is not UTF-8".to_owned())
    }

    fn skip_value(&mut self) -> Result<(), String> {
        match self.byte()? {
            tag::NONE | tag::VARYING => {}
            tag::NUMBER | tag::SIGNED | tag::ADDRESS => {
                self.varint()?;
            }
            tag::TEXT | tag::BYTES => {
                self.bytes()?;
            }
            other => return Err(format!("a value of unknown kind {other}")),
        }
        Ok(())
    }

    /// A value; none if it is left open.
    fn value(&mut self) -> Result<Option<Value>, String> {
        Ok(Some(match self.byte()? {
            tag::VARYING => return Ok(None),
            tag::NONE => Value::None,
            tag::NUMBER => Value::Number(self.varint()?),
            tag::SIGNED => {
                let number = self.varint()?;
                Value::Signed((number >> 1).cast_signed() ^ -(number & 1).cast_signed())
            }
            tag::ADDRESS => Value::Address(self.varint()?),
            tag::TEXT => Value::Text(self.text()?),
            tag::BYTES => Value::Bytes(self.bytes()?.into()),
            other => return Err(format!("a value of unknown kind {other}")),
        }))
    }
}

fn read_header(path: &Path, file: &File, length: u64) -> Result<Header, ReadError> {
    let mut bytes = vec![0; HEADER_BYTES.min(usize::try_from(length).unwrap_or(HEADER_BYTES))];
    file.read_exact_at(&mut bytes, 0).map_err(|source| ReadError::Io { path: path.to_owned(), source })?;
    if bytes.len() < 16 || bytes[..8] != MAGIC {
        return Err(ReadError::NotARecording { path: path.to_owned() });
    }
    let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    if word(8) != VERSION {
        return Err(ReadError::Version { path: path.to_owned(), found: word(8) });
    }
    let damaged = |what: String| ReadError::Damaged { path: path.to_owned(), at: 16, what };
    let json = usize::try_from(word(12)).ok().and_then(|length| bytes.get(16..16 + length));
    let json = json.ok_or_else(|| damaged("its header is cut off".to_owned()))?;
    serde_json::from_slice(json).map_err(|error| damaged(format!("its header: {error}")))
}
