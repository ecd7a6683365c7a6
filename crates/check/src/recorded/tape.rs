//! The calls of one process in a row, four bytes a call.
//!
//! A *word* is a call with its arguments, its result and its host thread. A program that repeats itself has
//! few words, so the tape is a list of their numbers, and two stretches of a run are equal if their numbers
//! are. Threads are merged in the order in which their calls were entered.
//!
//! What says nothing is left out, and counted: polls that said "not yet", and threads that only poll, because
//! how often somebody looks is luck.
//! Not here: what the calls mean.

use std::path::Path;

use rankcheck_recording::{Cut, Event, Header, Process, ReadError, Shape, ShapeId, Value};
use rustc_hash::FxHashMap;

use super::world::Local;

/// The number of a word of one process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WordId(pub u32);

/// What a place on the tape holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Word {
    /// A call, entered and returned with no other call of its thread inside.
    Call {
        /// The host thread.
        thread: u32,
        /// The call with its arguments.
        call: ShapeId,
        /// What it returned, where that is worth a word.
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
        /// What it returned, where that is worth a word.
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
    },
}

impl Word {
    /// How many calls and notes it begins: what the numbers of calls count.
    #[must_use]
    pub fn calls(self) -> u64 {
        match self {
            Self::Call { .. } | Self::Enter { .. } | Self::Never { .. } | Self::Note { .. } => 1,
            Self::Leave { .. } | Self::Lost { .. } => 0,
            Self::Folded { calls } => calls,
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
            | Self::Note { call, .. } => Some(call),
            Self::Lost { .. } | Self::Folded { .. } => None,
        }
    }
}

/// The calls of one process.
#[derive(Debug)]
pub struct Tape {
    /// What the file says of the process.
    pub header: Header,
    /// The run, word by word.
    pub words: Vec<WordId>,
    /// Where threads end without having ended.
    pub cuts: Vec<Cut>,
    /// Polls that were left out.
    pub polls: u64,
    dictionary: Vec<Word>,
    numbers: FxHashMap<Word, WordId>,
    shapes: Vec<Shape>,
}

impl Tape {
    /// Reads a file, and what the process says of its communicators.
    ///
    /// # Errors
    ///
    /// If the file cannot be read to its end or to where it was cut.
    pub fn read(path: &Path) -> Result<(Self, Local), ReadError> {
        let mut process = Process::open(path)?;
        let mut reading = Reading::default();
        while let Some(event) = process.next_event()? {
            reading.event(event, &process);
        }
        reading.end(&process);
        let Reading { words, dictionary, numbers, polls, local, .. } = reading;
        let cuts = process.cuts().to_vec();
        let (header, shapes) = process.into_parts();
        Ok((Self { header, words, cuts, polls, dictionary, numbers, shapes }, local))
    }

    /// A word.
    ///
    /// # Panics
    ///
    /// If it is another tape's.
    #[must_use]
    pub fn word(&self, word: WordId) -> Word {
        self.dictionary[word.0 as usize]
    }

    /// All words, by their numbers.
    #[must_use]
    pub fn dictionary(&self) -> &[Word] {
        &self.dictionary
    }

    /// A call or a result.
    ///
    /// # Panics
    ///
    /// If it is another tape's.
    #[must_use]
    pub fn shape(&self, shape: ShapeId) -> &Shape {
        &self.shapes[shape.0 as usize]
    }

    /// The words with the number of the call that each begins (for [`Word::Leave`] and [`Word::Lost`]: of the
    /// next). Numbers count calls and notes from 0; what was folded is counted.
    pub fn numbered(&self) -> impl Iterator<Item = (u64, Word)> + '_ {
        let mut number = 0;
        self.words.iter().map(move |&word| {
            let word = self.word(word);
            let this = number;
            number += word.calls();
            (this, word)
        })
    }

    /// The number of a word; it may be new.
    pub(super) fn intern(&mut self, word: Word) -> WordId {
        intern(word, &mut self.dictionary, &mut self.numbers)
    }
}

fn intern(word: Word, dictionary: &mut Vec<Word>, numbers: &mut FxHashMap<Word, WordId>) -> WordId {
    *numbers.entry(word).or_insert_with(|| {
        dictionary.push(word);
        WordId(u32::try_from(dictionary.len() - 1).expect("fewer than 2^32 words"))
    })
}

/// What a name means for the reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    /// [`Local`] wants to know.
    Listened,
    /// Asks whether something is done, and does not wait.
    Poll,
    /// Noted, not called.
    Instant,
    Other,
}

/// A call that was entered.
#[derive(Debug, Clone, Copy)]
struct Open {
    call: ShapeId,
    number: u64,
    /// On the tape.
    at: usize,
    /// Whether a call of the same thread was entered since.
    outer: bool,
}

/// `cudaErrorNotReady`: the answer of a poll, and no error.
fn not_ready(result: &Shape) -> bool {
    &*result.name == "failed" && result.get("code").and_then(Value::number) == Some(600)
}

#[derive(Debug, Default)]
struct OfThread {
    open: Vec<Open>,
    /// Whether it has done something else than poll.
    acts: bool,
}

/// Place on the tape of a call that has not returned, and of a call that is left out.
const PENDING: WordId = WordId(u32::MAX);

#[derive(Debug, Default)]
struct Reading {
    words: Vec<WordId>,
    dictionary: Vec<Word>,
    numbers: FxHashMap<Word, WordId>,
    classes: Vec<Class>,
    /// Few; the numbers come from the file, so they are no indices.
    threads: Vec<(u32, OfThread)>,
    number: u64,
    polls: u64,
    local: Local,
}

impl Reading {
    fn intern(&mut self, word: Word) -> WordId {
        intern(word, &mut self.dictionary, &mut self.numbers)
    }

    fn class(&mut self, call: ShapeId, process: &Process) -> Class {
        for shape in &process.shapes()[self.classes.len()..] {
            self.classes.push(match &*shape.name {
                name if Local::listens(name) => Class::Listened,
                "cudaEventQuery" | "cudaStreamQuery" => Class::Poll,
                _ if shape.instant => Class::Instant,
                _ => Class::Other,
            });
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
            Event::Enter { thread, call, .. } => self.enter(thread, call, process),
            Event::Return { thread, values, .. } => self.leave(thread, values, process),
            Event::Lost { thread, events } => {
                let word = self.intern(Word::Lost { thread, events });
                self.words.push(word);
                // Returns may be among what was lost, so what is open is not known any more.
                let open = std::mem::take(&mut self.thread(thread).open);
                self.never(thread, &open, process);
            }
        }
    }

    fn enter(&mut self, thread: u32, call: ShapeId, process: &Process) {
        let class = self.class(call, process);
        if process.shape(call).instant {
            let word = self.intern(Word::Note { thread, call });
            if class == Class::Listened {
                self.local.call(self.number, process.shape(call), None);
            }
            self.words.push(word);
            self.number += 1;
            return;
        }
        let (at, number) = (self.words.len(), self.number);
        let of_thread = self.thread(thread);
        of_thread.acts |= class != Class::Poll;
        if class == Class::Poll {
            // It goes onto the tape if it says "done".
            of_thread.open.push(Open { call, number, at, outer: false });
            return;
        }
        self.inside(thread);
        self.thread(thread).open.push(Open { call, number, at, outer: false });
        self.words.push(PENDING);
        self.number += 1;
    }

    /// A call is about to go onto the tape inside the innermost open one.
    fn inside(&mut self, thread: u32) {
        if let Some(outer) = self.thread(thread).open.last_mut()
            && !outer.outer
        {
            outer.outer = true;
            let (call, at) = (outer.call, outer.at);
            self.words[at] = self.intern(Word::Enter { thread, call });
        }
    }

    fn leave(&mut self, thread: u32, result: Option<ShapeId>, process: &Process) {
        let Some(open) = self.thread(thread).open.pop() else {
            // Its call was entered before events were lost.
            return;
        };
        let call = open.call;
        match self.class(call, process) {
            Class::Poll => {
                if result.is_some_and(|result| not_ready(process.shape(result))) || !self.thread(thread).acts
                {
                    self.polls += 1;
                } else {
                    self.inside(thread);
                    let word = self.intern(Word::Call { thread, call, result });
                    self.words.push(word);
                    self.number += 1;
                }
                return;
            }
            Class::Listened => {
                let result = result.map(|result| process.shape(result));
                self.local.call(open.number, process.shape(call), result);
            }
            Class::Instant | Class::Other => {}
        }
        if open.outer {
            let word = self.intern(Word::Leave { thread, call, result });
            self.words.push(word);
        } else {
            self.words[open.at] = self.intern(Word::Call { thread, call, result });
        }
    }

    /// Calls that never returned.
    fn never(&mut self, thread: u32, open: &[Open], process: &Process) {
        for open in open {
            match self.class(open.call, process) {
                Class::Poll => {
                    self.polls += 1;
                    continue;
                }
                Class::Listened => self.local.call(open.number, process.shape(open.call), None),
                Class::Instant | Class::Other => {}
            }
            if !open.outer {
                self.words[open.at] = self.intern(Word::Never { thread, call: open.call });
            }
        }
    }

    fn end(&mut self, process: &Process) {
        for (thread, of_thread) in std::mem::take(&mut self.threads) {
            self.never(thread, &of_thread.open, process);
        }
    }
}
