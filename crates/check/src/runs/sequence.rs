//! The calls of one process in a row, four bytes a call.
//!
//! A *symbol* is a call with its arguments, its result and its host thread. A program that repeats itself has
//! few symbols, so the sequence is a list of their numbers, and two parts of a run are equal if their numbers
//! are. Threads are merged in the order in which their calls were entered.
//!
//! Unsuccessful polls and poll-only threads are dropped and counted: how often a program polls is
//! nondeterministic. What a watchdog finds done orders nothing on other threads, which do not ask it.
//! Not here: what the calls mean.

mod read;

use std::path::{Path, PathBuf};

use rankcheck_recording::{Cut, Header, ProcessFile, ReadError, Shape, ShapeId};
use rustc_hash::FxHashMap;

use super::RunError;
use super::call::CallKind;
use super::device_share;
use super::fold::CallRoles;
use super::gaps::Gaps;
use super::jobs::ReadProcess;
use super::shared_events;
use super::world::{CommListener, World};
use crate::parallel::in_parallel;

/// How much of a recording is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadUntil {
    /// It is read as far as it goes.
    End,
    /// What had happened by a time, in nanoseconds since 1970.
    Time(u64),
}

impl ReadUntil {
    /// Opens the file of one process.
    ///
    /// # Errors
    ///
    /// Those of [`ProcessFile::open`].
    pub fn open(self, path: &Path) -> Result<ProcessFile, ReadError> {
        let mut process = ProcessFile::open(path)?;
        if let Self::Time(time) = self {
            process.stop_at(time.saturating_sub(process.header.began));
        }
        Ok(process)
    }
}

/// The number of a symbol of one process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SymbolId(pub u32);

/// What stands in one position of a sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Symbol {
    /// A call, entered and returned with no other call of its thread inside.
    Call {
        /// The number of the host thread in its process.
        thread: u32,
        /// The call with its arguments.
        call: ShapeId,
        /// What it returned, where that is worth noting.
        result: Option<ShapeId>,
    },
    /// A call with others inside is entered; its `Leave` follows.
    Enter {
        /// The number of the host thread in its process.
        thread: u32,
        /// The call with its arguments.
        call: ShapeId,
    },
    /// The innermost entered call of the thread returns.
    Leave {
        /// The number of the host thread in its process.
        thread: u32,
        /// The call with its arguments.
        call: ShapeId,
        /// What it returned, where that is worth noting.
        result: Option<ShapeId>,
    },
    /// A call that never returned.
    Never {
        /// The number of the host thread in its process.
        thread: u32,
        /// The call with its arguments.
        call: ShapeId,
    },
    /// Something was noted at once, such as a frame of Python around calls.
    Note {
        /// The number of the host thread in its process.
        thread: u32,
        /// The note and what it says, as the shape of a call.
        call: ShapeId,
    },
    /// Something was noted later than it happened, and stands where it happened. No number counts it.
    Noted {
        /// The number of the host thread in its process.
        thread: u32,
        /// What was noted, without the time.
        call: ShapeId,
    },
    /// Events of the thread are missing here.
    Lost {
        /// The number of the host thread in its process.
        thread: u32,
        /// How many events were lost.
        events: u64,
    },
    /// Calls that repeat those before them were left out.
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

    /// The host thread that did it; of what was folded away there is none.
    pub(super) fn thread(self) -> u32 {
        match self {
            Self::Call { thread, .. }
            | Self::Enter { thread, .. }
            | Self::Leave { thread, .. }
            | Self::Never { thread, .. }
            | Self::Note { thread, .. }
            | Self::Noted { thread, .. }
            | Self::Lost { thread, .. } => thread,
            Self::Folded { .. } => 0,
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
    /// When the last event was: nanoseconds since the process began.
    pub ended: u64,
    /// How many calls returned, polls included.
    pub(super) returned: u64,
    /// For each call that was left out, how many calls before it were not.
    left_out: Vec<u32>,
    dictionary: Vec<Symbol>,
    numbers: FxHashMap<Symbol, SymbolId>,
    shapes: Vec<Shape>,
    /// Calls that returned behind others of other threads: their position, and the one that was reached by then.
    late: Vec<(u32, u32)>,
    /// By thread: the number of the first call with which it did something else than poll.
    acts_from: Vec<(u32, u64)>,
    /// How many threads found something over by polls that are left out.
    watchdogs: usize,
    /// What calls are in the run that is left, if some of it was folded away.
    pub(super) roles: CallRoles,
}

/// What there is to lower of a process.
#[derive(Debug)]
pub(super) struct Remainder {
    /// What was folded away, which is not lowered.
    pub(super) gaps: Gaps,
    /// What calls are where their addresses do not say it.
    pub(super) roles: CallRoles,
    /// By thread: the number of the first call with which it did something else than poll.
    acts_from: Vec<(u32, u64)>,
    /// How many threads found something over by polls that are left out.
    pub(super) watchdogs: usize,
}

impl Remainder {
    /// Whether a poll of this thread with this number says something to the program: a thread that has done nothing but poll
    /// so far is a watchdog.
    pub(super) fn heeds(&self, thread: u32, number: u32) -> bool {
        self.acts_from.iter().any(|(acts, from)| *acts == thread && *from < u64::from(number))
    }
}

impl Sequence {
    /// Reads a file, and what the process says of its communicators.
    ///
    /// # Errors
    ///
    /// If the file cannot be read to its end or to where it was cut.
    pub fn read(path: &Path, until: ReadUntil) -> Result<(Self, CommListener), ReadError> {
        read::sequence(path, until, None)
    }

    /// Reads a file as the ranks that its process is: one for each device on which it made communicators.
    fn read_ranks(path: &Path, until: ReadUntil) -> Result<Vec<(Self, CommListener)>, ReadError> {
        let (whole, local) = Self::read(path, until)?;
        let several = local.is_several() || local.has_several() && whole.switches_devices();
        let shares = if several { device_share::shares(path, until)? } else { Vec::new() };
        if shares.is_empty() {
            return Ok(vec![(whole, local)]);
        }
        shares.iter().map(|share| read::sequence(path, until, Some(share))).collect()
    }

    /// Whether it makes several devices current.
    fn switches_devices(&self) -> bool {
        let mut current = self.shapes.iter().filter_map(|shape| {
            if let CallKind::Current(by) = CallKind::of(&shape.name) { by.named(shape) } else { None }
        });
        current.next().is_some_and(|first| current.any(|other| other != first))
    }

    /// Calls that returned behind others of other threads: their position, and the one that was reached by then.
    pub(super) fn late(&self) -> &[(u32, u32)] {
        &self.late
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

    /// What there is to lower. Leaves what calls are to whoever lowers them.
    pub(super) fn remainder(&mut self) -> Remainder {
        Remainder {
            gaps: self.gaps(),
            roles: std::mem::take(&mut self.roles),
            acts_from: std::mem::take(&mut self.acts_from),
            watchdogs: self.watchdogs,
        }
    }

    /// What was folded, by the numbers of the recording.
    fn gaps(&self) -> Gaps {
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

/// Reads all processes of a recording, each as the ranks that it is, in the order of the files' names.
///
/// # Errors
///
/// If a file cannot be read, or the files are not those of one run.
///
/// # Panics
///
/// If a thread that reads panics.
pub(super) fn read_processes(files: &[PathBuf], until: ReadUntil) -> Result<Vec<ReadProcess>, RunError> {
    let ranks = in_parallel(files.len(), |at| Sequence::read_ranks(&files[at], until));
    let mut read = Vec::new();
    for (path, ranks) in files.iter().zip(ranks) {
        read.extend(ranks?.into_iter().map(|(sequence, local)| (path.clone(), sequence, local)));
    }
    read.sort_by(|(one, ..), (other, ..)| one.cmp(other));
    Ok(read)
}

/// Reads all processes of a run. Sequences come in the order of the world's members.
///
/// # Errors
///
/// If a file cannot be read, or the files are not those of one run.
///
/// # Panics
///
/// If a thread that reads panics.
pub fn read_all(files: &[PathBuf], until: ReadUntil) -> Result<(World, Vec<Sequence>), RunError> {
    join(read_processes(files, until)?, until)
}

/// Brings the processes of one job together.
pub(super) fn join(read: Vec<ReadProcess>, until: ReadUntil) -> Result<(World, Vec<Sequence>), RunError> {
    let mut sequences = Vec::with_capacity(read.len());
    let mut processes = Vec::with_capacity(read.len());
    for (path, sequence, local) in read {
        processes.push((path, sequence.header.clone(), local));
        sequences.push(Some(sequence));
    }
    let mut world = World::join(processes)?;
    let of_members = world.members.iter().map(|member| sequences[member.file].take());
    let of_members: Vec<Sequence> =
        of_members.map(|sequence| sequence.expect("a file belongs to one member")).collect();
    let headers: Vec<&Header> = of_members.iter().map(|sequence| &sequence.header).collect();
    shared_events::follow(&mut world, &headers, until)?;
    Ok((world, of_members))
}

#[inline]
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
