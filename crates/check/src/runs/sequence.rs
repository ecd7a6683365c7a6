//! The calls of one process in a row, four bytes a call.
//!
//! A *symbol* is a call with its arguments, its result and its host thread. A program that repeats itself has
//! few symbols, so the sequence is a list of their numbers, and two parts of a run are equal if their numbers
//! are. Threads are merged in the order in which their calls were entered.
//!
//! Unsuccessful polls and poll-only threads are dropped and counted: how often a program polls is
//! nondeterministic.
//! Not here: what the calls mean.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use rankcheck_recording::{Cut, Event, Header, PlainCall, Process, ReadError, Shape, ShapeId, Value};
use rustc_hash::FxHashMap;

use super::RunError;
use super::call::{CallKind, failure};
use super::gaps::Gaps;
use super::ipc::Span;
use super::vendor;
use super::world::{Local, World};

/// The number of a symbol of one process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SymbolId(pub u32);

/// What a place in the sequence holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Symbol {
    /// A call, entered and returned with no other call of its thread inside.
    Call {
        /// The host thread.
        thread: u32,
        /// The call with its arguments.
        call: ShapeId,
        /// What it returned, where that is worth noting.
        result: Option<ShapeId>,
    },
    /// A call with others inside is entered; its `Leave` follows.
    Enter {
        /// The host thread.
        thread: u32,
        /// The call with its arguments.
        call: ShapeId,
    },
    /// The innermost entered call of the thread returns.
    Leave {
        /// The host thread.
        thread: u32,
        /// The call with its arguments.
        call: ShapeId,
        /// What it returned, where that is worth noting.
        result: Option<ShapeId>,
    },
    /// A call that never returned.
    Never {
        /// The host thread.
        thread: u32,
        /// The call with its arguments.
        call: ShapeId,
    },
    /// Something was noted.
    Note {
        /// The host thread.
        thread: u32,
        /// What.
        call: ShapeId,
    },
    /// Something was noted later than it happened, and stands where it happened. No number counts it.
    Noted {
        /// The host thread.
        thread: u32,
        /// What, without when.
        call: ShapeId,
    },
    /// Events of the thread are missing here.
    Lost {
        /// The host thread.
        thread: u32,
        /// How many.
        events: u64,
    },
    /// A stretch that repeats what stands before it was taken out.
    Folded {
        /// How many calls and notes.
        calls: u64,
        /// How many things that were noted later.
        noted: u64,
    },
}

impl Symbol {
    /// How many calls and notes it begins: what the numbers of calls count.
    #[must_use]
    pub fn calls(self) -> u64 {
        match self {
            Self::Call { .. } | Self::Enter { .. } | Self::Never { .. } | Self::Note { .. } => 1,
            Self::Leave { .. } | Self::Noted { .. } | Self::Lost { .. } => 0,
            Self::Folded { calls, .. } => calls,
        }
    }

    /// How many things that were noted later it stands for.
    #[must_use]
    pub fn noted(self) -> u64 {
        match self {
            Self::Noted { .. } => 1,
            Self::Folded { noted, .. } => noted,
            Self::Call { .. }
            | Self::Enter { .. }
            | Self::Leave { .. }
            | Self::Never { .. }
            | Self::Note { .. }
            | Self::Lost { .. } => 0,
        }
    }

    /// The call or note that it names.
    #[must_use]
    pub fn shape(self) -> Option<ShapeId> {
        match self {
            Self::Call { call, .. }
            | Self::Enter { call, .. }
            | Self::Leave { call, .. }
            | Self::Never { call, .. }
            | Self::Note { call, .. }
            | Self::Noted { call, .. } => Some(call),
            Self::Lost { .. } | Self::Folded { .. } => None,
        }
    }
}

/// The calls of one process.
#[derive(Debug)]
pub struct Sequence {
    /// What the file says of the process.
    pub header: Header,
    /// The run, symbol by symbol.
    pub symbols: Vec<SymbolId>,
    /// Where threads end without having ended.
    pub cuts: Vec<Cut>,
    /// Of each call that was left out: how many calls before it were not.
    left_out: Vec<u32>,
    dictionary: Vec<Symbol>,
    numbers: FxHashMap<Symbol, SymbolId>,
    shapes: Vec<Shape>,
}

impl Sequence {
    /// Reads a file, and what the process says of its communicators.
    ///
    /// # Errors
    ///
    /// If the file cannot be read to its end or to where it was cut.
    pub fn read(path: &Path) -> Result<(Self, Local), ReadError> {
        let (mut process, mut reading) = Reading::of(path, Times::NotKept)?;
        if !reading.late.is_empty() {
            // Where things happened that were noted later is not known without the times of all others.
            (process, reading) = Reading::of(path, Times::Kept(Vec::new()))?;
        }
        let local = std::mem::take(&mut reading.local);
        let cuts = process.cuts().to_vec();
        let (header, mut shapes) = process.into_parts();
        reading.sort_in(&mut shapes);
        let left_out = reading.leave_out();
        let Reading { mut symbols, dictionary, numbers, .. } = reading;
        symbols.shrink_to_fit();
        Ok((Self { header, symbols, cuts, left_out, dictionary, numbers, shapes }, local))
    }

    /// A symbol.
    ///
    /// # Panics
    ///
    /// If it is another sequence's.
    #[must_use]
    pub fn symbol(&self, symbol: SymbolId) -> Symbol {
        self.dictionary[symbol.0 as usize]
    }

    /// All symbols, by their numbers.
    #[must_use]
    pub fn dictionary(&self) -> &[Symbol] {
        &self.dictionary
    }

    /// A call or a result.
    ///
    /// # Panics
    ///
    /// If it is another sequence's.
    #[must_use]
    pub fn shape(&self, shape: ShapeId) -> &Shape {
        &self.shapes[shape.0 as usize]
    }

    /// The number of a call in the recording, where the polls are counted that the sequence leaves out.
    #[must_use]
    pub fn recorded(&self, kept: u64) -> u64 {
        kept + self.left_out.partition_point(|&before| u64::from(before) <= kept) as u64
    }

    /// The symbols with the number, in the recording, of the call that each begins; for symbols that begin none,
    /// of the next.
    pub fn numbered(&self) -> impl Iterator<Item = (u64, Symbol)> + '_ {
        let (mut kept, mut left_out) = (0, 0);
        self.symbols.iter().map(move |&symbol| {
            let symbol = self.symbol(symbol);
            while self.left_out.get(left_out).is_some_and(|&before| u64::from(before) <= kept) {
                left_out += 1;
            }
            let number = kept + left_out as u64;
            kept += symbol.calls();
            (number, symbol)
        })
    }

    /// How many polls were left out.
    #[must_use]
    pub fn left_out(&self) -> usize {
        self.left_out.len()
    }

    /// What was folded, by the numbers of the recording.
    #[must_use]
    pub fn gaps(&self) -> Gaps {
        let (mut gaps, mut gaps_noted) = (Vec::new(), Vec::new());
        let (mut calls, mut noted) = (0, 0);
        for &symbol in &self.symbols {
            let symbol = self.symbol(symbol);
            let (from, noted_from) = (calls, noted);
            calls += symbol.calls();
            noted += symbol.noted();
            if let Symbol::Folded { .. } = symbol {
                gaps.push(self.recorded(from)..self.recorded(calls));
                gaps_noted.push(noted_from..noted);
            }
        }
        Gaps::new(gaps, gaps_noted)
    }

    /// The number of a symbol; it may be new.
    pub(super) fn intern(&mut self, symbol: Symbol) -> SymbolId {
        intern(symbol, &mut self.dictionary, &mut self.numbers)
    }
}

/// Reads all processes of a run. Tapes come in the order of the world's members.
///
/// # Errors
///
/// If a file cannot be read, or the files are not those of one run.
///
/// # Panics
///
/// If a thread that reads panics.
pub fn read_all(files: &[PathBuf]) -> Result<(World, Vec<Sequence>), RunError> {
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    let next = AtomicUsize::new(0);
    let take = || {
        let mut read = Vec::new();
        while let Some(path) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
            read.push((path.clone(), Sequence::read(path)?));
        }
        Ok::<_, ReadError>(read)
    };
    let mut read = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..workers).map(|_| scope.spawn(take)).collect();
        workers.into_iter().try_fold(Vec::new(), |mut all, worker| {
            all.append(&mut worker.join().expect("a reader does not panic")?);
            Ok::<_, ReadError>(all)
        })
    })?;
    // Whoever read which file must not show.
    read.sort_by(|(one, _), (other, _)| one.cmp(other));
    let mut sequences = Vec::with_capacity(read.len());
    let mut processes = Vec::with_capacity(read.len());
    for (path, (sequence, local)) in read {
        processes.push((path, sequence.header.clone(), local));
        sequences.push(Some(sequence));
    }
    let world = World::join(processes)?;
    let of_members = world.members.iter().map(|member| sequences[member.file].take());
    let of_members = of_members.map(|sequence| sequence.expect("a file belongs to one member")).collect();
    Ok((world, of_members))
}

fn intern(
    symbol: Symbol,
    dictionary: &mut Vec<Symbol>,
    numbers: &mut FxHashMap<Symbol, SymbolId>,
) -> SymbolId {
    *numbers.entry(symbol).or_insert_with(|| {
        dictionary.push(symbol);
        SymbolId(u32::try_from(dictionary.len() - 1).expect("fewer than 2^32 symbols"))
    })
}

/// What a call means for the reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    /// [`Local`] wants to know.
    Listened,
    /// Asks whether something is done, and does not wait.
    Poll,
    /// Noted, and says when it happened: nanoseconds since the process began.
    Late(u64),
    /// Noted, not called.
    Instant,
    Other,
}

fn class(shape: &Shape) -> Class {
    match CallKind::of(&shape.name) {
        kind if Local::listens(kind) => Class::Listened,
        kind if kind.polls() => Class::Poll,
        _ => match shape.get("at").and_then(Value::number) {
            Some(at) if shape.instant => Class::Late(at),
            _ if shape.instant => Class::Instant,
            _ => Class::Other,
        },
    }
}

/// A call that was entered.
#[derive(Debug, Clone, Copy)]
struct Open {
    call: ShapeId,
    number: u64,
    time: u64,
    /// In the sequence.
    at: usize,
    /// Whether a call of the same thread was entered since.
    outer: bool,
}

#[derive(Debug, Default)]
struct OfThread {
    open: Vec<Open>,
    /// Whether it has done something else than poll.
    acts: bool,
}

/// Of a call that is over at once, in a file: a little less than most have.
const CALL_BYTES: usize = 7;

/// In the sequence while it is read: a call that has not returned.
const PENDING: SymbolId = SymbolId(u32::MAX);
/// In the sequence while it is read: a call that is left out.
const LEFT_OUT: SymbolId = SymbolId(u32::MAX - 1);

/// By symbol: when it was entered.
#[derive(Debug, Default)]
enum Times {
    #[default]
    NotKept,
    Kept(Vec<u64>),
}

#[derive(Debug, Default)]
struct Reading {
    symbols: Vec<SymbolId>,
    times: Times,
    /// By shape: the thread and the symbol of its last call that returned nothing, if it is of class `Other`.
    plain: Vec<Option<(u32, SymbolId)>>,
    dictionary: Vec<Symbol>,
    numbers: FxHashMap<Symbol, SymbolId>,
    /// By shape.
    classes: Vec<Class>,
    /// Few; the numbers come from the file, so they are no indices.
    threads: Vec<(u32, OfThread)>,
    /// Of the next call or note.
    number: u64,
    /// What was noted later than it happened: when, by which thread, what.
    late: Vec<(u64, u32, ShapeId)>,
    local: Local,
}

impl Reading {
    fn of(path: &Path, times: Times) -> Result<(Process, Self), ReadError> {
        let mut process = Process::open(path)?;
        // One that grew would be copied, and touch twice the memory.
        let symbols = Vec::with_capacity(process.event_bytes() / CALL_BYTES);
        let mut reading = Self { times, symbols, ..Self::default() };
        loop {
            let mut first = true;
            process.plain_calls(u64::MAX, |call| reading.plain_call(call, std::mem::take(&mut first)))?;
            let Some(event) = process.next_event()? else { break };
            reading.event(event, &process);
        }
        reading.end(&process);
        Ok((process, reading))
    }

    fn intern(&mut self, symbol: Symbol) -> SymbolId {
        intern(symbol, &mut self.dictionary, &mut self.numbers)
    }

    fn push(&mut self, symbol: SymbolId, time: u64) {
        self.symbols.push(symbol);
        if let Times::Kept(times) = &mut self.times {
            times.push(time);
        }
    }

    /// Puts a call into the sequence that was over before anything else happened, if its symbol is known. The first of
    /// those that stand in a row may be inside another call.
    #[inline]
    fn plain_call(&mut self, call: PlainCall, first: bool) -> bool {
        let PlainCall { time, thread, call } = call;
        let Some(Some((of, symbol))) = self.plain.get(call.0 as usize).copied() else { return false };
        if of != thread {
            return false;
        }
        if first {
            self.inside(thread);
            self.thread(thread).acts = true;
        }
        self.number += 1;
        self.push(symbol, time);
        true
    }

    /// The symbol of a call that returned.
    fn call(&mut self, thread: u32, call: ShapeId, result: Option<ShapeId>) -> SymbolId {
        let symbol = self.intern(Symbol::Call { thread, call, result });
        let at = call.0 as usize;
        if result.is_none() && self.classes[at] == Class::Other {
            if self.plain.len() <= at {
                self.plain.resize(self.classes.len(), None);
            }
            self.plain[at] = Some((thread, symbol));
        }
        symbol
    }

    fn class(&mut self, call: ShapeId, process: &Process) -> Class {
        if self.classes.len() <= call.0 as usize {
            self.classes.extend(process.shapes()[self.classes.len()..].iter().map(class));
        }
        self.classes[call.0 as usize]
    }

    fn thread(&mut self, thread: u32) -> &mut OfThread {
        let known = self.threads.iter().position(|(number, _)| *number == thread);
        let at = known.unwrap_or_else(|| {
            self.threads.push((thread, OfThread::default()));
            self.threads.len() - 1
        });
        &mut self.threads[at].1
    }

    fn event(&mut self, event: Event, process: &Process) {
        match event {
            Event::Enter { time, thread, call } => self.enter(time, thread, call, process),
            Event::Return { time, thread, values } => self.leave(time, thread, values, process),
            Event::Lost { thread, events } => {
                let symbol = self.intern(Symbol::Lost { thread, events });
                let time = match &self.times {
                    Times::Kept(times) => times.last().copied().unwrap_or(0),
                    Times::NotKept => 0,
                };
                self.push(symbol, time);
                // Returns may be among what was lost, so what is open is not known any more.
                let open = std::mem::take(&mut self.thread(thread).open);
                self.never(thread, &open, process);
            }
        }
    }

    fn enter(&mut self, time: u64, thread: u32, call: ShapeId, process: &Process) {
        let class = self.class(call, process);
        let number = self.number;
        self.number += 1;
        if let Class::Late(at) = class {
            self.late.push((at, thread, call));
            self.push(LEFT_OUT, time);
            return;
        }
        if class == Class::Instant || class == Class::Listened && process.shape(call).instant {
            if class == Class::Listened {
                let at = Span { entered: time, returned: time };
                self.local.returned(number, at, process.shape(call), None);
            }
            let symbol = self.intern(Symbol::Note { thread, call });
            self.push(symbol, time);
            return;
        }
        // A poll goes into the sequence if it says "done".
        if class != Class::Poll {
            self.inside(thread);
            self.thread(thread).acts = true;
        }
        let at = self.symbols.len();
        self.thread(thread).open.push(Open { call, number, time, at, outer: false });
        self.push(PENDING, time);
    }

    /// A call is about to go into the sequence inside the innermost open one.
    fn inside(&mut self, thread: u32) {
        if let Some(outer) = self.thread(thread).open.last_mut()
            && !outer.outer
        {
            outer.outer = true;
            let (call, at) = (outer.call, outer.at);
            self.symbols[at] = self.intern(Symbol::Enter { thread, call });
        }
    }

    fn leave(&mut self, time: u64, thread: u32, result: Option<ShapeId>, process: &Process) {
        let Some(open) = self.thread(thread).open.pop() else {
            // Its call was entered before events were lost.
            return;
        };
        let call = open.call;
        match self.class(call, process) {
            Class::Poll => {
                let not_yet = failure(result.map(|result| process.shape(result))) == Some(vendor::NOT_READY);
                if not_yet || !self.thread(thread).acts {
                    self.symbols[open.at] = LEFT_OUT;
                    return;
                }
                self.inside(thread);
            }
            Class::Listened => {
                let result = result.map(|result| process.shape(result));
                let at = Span { entered: open.time, returned: time };
                self.local.returned(open.number, at, process.shape(call), result);
            }
            Class::Late(_) | Class::Instant | Class::Other => {}
        }
        if open.outer {
            let symbol = self.intern(Symbol::Leave { thread, call, result });
            self.push(symbol, time);
        } else {
            self.symbols[open.at] = self.call(thread, call, result);
        }
    }

    /// Calls that never returned.
    fn never(&mut self, thread: u32, open: &[Open], process: &Process) {
        for open in open {
            match self.class(open.call, process) {
                Class::Poll => {
                    self.symbols[open.at] = LEFT_OUT;
                    continue;
                }
                Class::Listened => self.local.call(open.number, process.shape(open.call), None),
                Class::Late(_) | Class::Instant | Class::Other => {}
            }
            if !open.outer {
                self.symbols[open.at] = self.intern(Symbol::Never { thread, call: open.call });
            }
        }
    }

    fn end(&mut self, process: &Process) {
        for (thread, of_thread) in std::mem::take(&mut self.threads) {
            self.never(thread, &of_thread.open, process);
        }
    }

    /// Puts what was noted later where it happened.
    fn sort_in(&mut self, shapes: &mut Vec<Shape>) {
        let mut late = std::mem::take(&mut self.late);
        let Times::Kept(times) = std::mem::take(&mut self.times) else { return };
        late.sort_by_key(|&(at, ..)| at);
        let mut timeless: FxHashMap<Shape, ShapeId> = FxHashMap::default();
        let mut symbols = Vec::with_capacity(self.symbols.len() + late.len());
        let mut next = 0;
        for (at, thread, call) in late {
            while next < self.symbols.len() && times[next] <= at {
                symbols.push(self.symbols[next]);
                next += 1;
            }
            let shape = without_time(&shapes[call.0 as usize]);
            let call = *timeless.entry(shape).or_insert_with_key(|shape| {
                shapes.push(shape.clone());
                ShapeId(u32::try_from(shapes.len() - 1).expect("a file has fewer than 2^32 shapes"))
            });
            symbols.push(self.intern(Symbol::Noted { thread, call }));
        }
        symbols.extend_from_slice(&self.symbols[next..]);
        self.symbols = symbols;
    }

    /// Takes the calls out that are left out. Gives for each how many calls before it are not.
    fn leave_out(&mut self) -> Vec<u32> {
        if !self.symbols.contains(&LEFT_OUT) {
            return Vec::new();
        }
        let mut left_out = Vec::new();
        let mut kept = 0_u64;
        let dictionary = &self.dictionary;
        self.symbols.retain(|&symbol| {
            if symbol == LEFT_OUT {
                left_out.push(u32::try_from(kept).unwrap_or(u32::MAX));
                return false;
            }
            kept += dictionary[symbol.0 as usize].calls();
            true
        });
        left_out
    }
}

/// A note without when it happened.
fn without_time(shape: &Shape) -> Shape {
    let kept = |at: &usize| &*shape.keys[*at] != "at";
    let places: Vec<usize> = (0..shape.keys.len()).filter(kept).collect();
    Shape {
        name: shape.name.clone(),
        keys: places.iter().map(|&at| shape.keys[at].clone()).collect(),
        values: places.iter().map(|&at| shape.values[at].clone()).collect(),
        instant: shape.instant,
    }
}
