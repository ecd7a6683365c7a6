//! What an operation is, in a text that is kept: digests of programs are made of it.
//!
//! The text is a format of its own, version 1, and no view of how types are called or laid out here: every name
//! in it is written out where the value describes itself. Renaming a type, a variant or a field changes nothing.
//! What operations learn to say later stands in a description only where it is said, so older digests stay good.
//! Not here: text for people (`crate::display`).

use std::cell::RefCell;
use std::fmt::Write as _;
use std::sync::Arc;

use crate::id::{ThreadStart, Token};
use crate::program::{Dtype, Operand, Operation, Question, ReduceOp, Slot, Source};
use crate::rank::Rank;

/// What a description calls names and threads, so that it does not depend on the order of evaluation.
pub trait Naming {
    /// The text of a token.
    fn name(&self, token: Token) -> Arc<str>;

    /// The number of the thread of this rank that started there.
    fn thread(&self, start: ThreadStart) -> Option<usize>;

    /// What the result of an earlier operation is called.
    fn slot(&self, slot: Slot) -> Slot {
        slot
    }
}

/// The names of a source. Threads are numbered as descriptions come by them, so those of two sources compare.
pub struct NamesOf<'a> {
    source: &'a dyn Source,
    /// The program itself first.
    starts: RefCell<Vec<ThreadStart>>,
}

impl<'a> NamesOf<'a> {
    /// Names of a source of which nothing was described yet.
    #[must_use]
    pub fn new(source: &'a dyn Source) -> Self {
        Self { source, starts: RefCell::new(vec![ThreadStart::default()]) }
    }
}

impl Naming for NamesOf<'_> {
    fn name(&self, token: Token) -> Arc<str> {
        self.source.token(token)
    }

    fn thread(&self, start: ThreadStart) -> Option<usize> {
        let mut starts = self.starts.borrow_mut();
        Some(starts.iter().position(|known| *known == start).unwrap_or_else(|| {
            starts.push(start);
            starts.len() - 1
        }))
    }
}

/// A description that is being written.
pub struct Description<'a> {
    text: String,
    naming: &'a dyn Naming,
    /// Every slot that it came by.
    slots: Vec<Slot>,
}

/// What can be described.
pub trait Describe {
    /// Adds the value to a description.
    fn describe(&self, to: &mut Description<'_>);
}

/// The description of a value.
pub fn description(of: &dyn Describe, naming: &dyn Naming) -> String {
    let mut to = Description { text: String::new(), naming, slots: Vec::new() };
    of.describe(&mut to);
    to.text
}

/// The results of earlier operations that a value uses: what it describes as slots.
pub fn uses(of: &dyn Describe, naming: &dyn Naming) -> Vec<Slot> {
    let mut to = Description { text: String::new(), naming, slots: Vec::new() };
    of.describe(&mut to);
    to.slots
}

impl Description<'_> {
    /// Adds words as they are.
    pub(crate) fn word(&mut self, word: &str) {
        self.text.push_str(word);
    }

    /// Adds a call with named operands.
    pub(crate) fn call(&mut self, name: &str, fields: &[(&str, &dyn Describe)]) {
        self.word(name);
        for (nth, (field, value)) in fields.iter().enumerate() {
            self.word(if nth == 0 { " { " } else { ", " });
            self.word(field);
            self.word(": ");
            value.describe(self);
        }
        if !fields.is_empty() {
            self.word(" }");
        }
    }

    /// Adds a value that is described by its kind and its parts.
    pub(crate) fn parts(&mut self, name: &str, parts: &[&dyn Describe]) {
        self.word(name);
        self.word("(");
        self.list(parts.iter().copied());
        self.word(")");
    }

    fn list<'b>(&mut self, items: impl Iterator<Item = &'b dyn Describe>) {
        for (nth, item) in items.enumerate() {
            if nth > 0 {
                self.word(", ");
            }
            item.describe(self);
        }
    }
}

/// A name is described in quotes.
impl Describe for Token {
    fn describe(&self, to: &mut Description<'_>) {
        let name = to.naming.name(*self);
        let _ = write!(to.text, "{name:?}");
    }
}

impl Describe for ThreadStart {
    fn describe(&self, to: &mut Description<'_>) {
        match to.naming.thread(*self) {
            Some(thread) => {
                let _ = write!(to.text, "thread Some({thread})");
            }
            None => to.word("thread None"),
        }
    }
}

impl Describe for Rank {
    fn describe(&self, to: &mut Description<'_>) {
        to.parts("Rank", &[&self.0]);
    }
}

macro_rules! describe_as_printed {
    ($($of:ty),*) => {$(
        impl Describe for $of {
            fn describe(&self, to: &mut Description<'_>) {
                to.word(&self.to_string());
            }
        }
    )*};
}
describe_as_printed!(u32, u64, i64, bool);

impl<T: Describe> Describe for Option<T> {
    fn describe(&self, to: &mut Description<'_>) {
        match self {
            Some(value) => to.parts("Some", &[value]),
            None => to.word("None"),
        }
    }
}

impl<T: Describe> Describe for Arc<[T]> {
    fn describe(&self, to: &mut Description<'_>) {
        to.word("[");
        to.list(self.iter().map(|item| item as &dyn Describe));
        to.word("]");
    }
}

impl<T: Describe> Describe for Arc<T> {
    fn describe(&self, to: &mut Description<'_>) {
        T::describe(self, to);
    }
}

impl Describe for Slot {
    fn describe(&self, to: &mut Description<'_>) {
        to.slots.push(*self);
        let Self { start, index } = to.naming.slot(*self);
        to.call("Slot", &[("entry", &start), ("index", &index)]);
    }
}

impl Describe for Operation {
    fn describe(&self, to: &mut Description<'_>) {
        let Self { start, index } = self;
        to.call("Operation", &[("entry", start), ("index", index)]);
    }
}

impl Describe for Operand {
    fn describe(&self, to: &mut Description<'_>) {
        match self {
            Self::Null => to.word("Null"),
            Self::Int(number) => to.parts("Int", &[number]),
            Self::Token(token) => to.parts("Token", &[token]),
            Self::Bool(truth) => to.parts("Bool", &[truth]),
            Self::Slot(slot) => to.parts("Slot", &[slot]),
            Self::Slice { of, offset_bytes, len_bytes } => {
                to.call("Slice", &[("of", of), ("offset_bytes", offset_bytes), ("len_bytes", len_bytes)])
            }
            Self::Segment(of) => to.parts("Segment", &[of]),
            Self::Address(of) => to.parts("Address", &[of]),
            Self::At { of, like } => to.call("At", &[("of", of), ("like", like)]),
            Self::Tuple(parts) => to.parts("Tuple", &[parts]),
            Self::Stream(token) => to.parts("Stream", &[token]),
            Self::Event(token) => to.parts("Event", &[token]),
            Self::Device => to.word("Device"),
        }
    }
}

impl Describe for Dtype {
    fn describe(&self, to: &mut Description<'_>) {
        to.word(match self {
            Self::F16 => "F16",
            Self::Bf16 => "Bf16",
            Self::F32 => "F32",
            Self::F64 => "F64",
            Self::I8 => "I8",
            Self::U8 => "U8",
            Self::I32 => "I32",
            Self::I64 => "I64",
            Self::Fp8 => "Fp8",
            Self::Invalid => "Invalid",
        });
    }
}

impl Describe for ReduceOp {
    fn describe(&self, to: &mut Description<'_>) {
        to.word(match self {
            Self::Sum => "Sum",
            Self::Prod => "Prod",
            Self::Min => "Min",
            Self::Max => "Max",
            Self::Avg => "Avg",
            Self::Invalid => "Invalid",
        });
    }
}

impl Describe for Question {
    fn describe(&self, to: &mut Description<'_>) {
        match self {
            Self::Choose { name, options } => to.call("Choose", &[("name", name), ("options", options)]),
            Self::Grew(of) => to.parts("Grew", &[of]),
            Self::Failed(of) => to.parts("Failed", &[of]),
            Self::Equal(one, other) => to.parts("Equal", &[one, other]),
            Self::Truth(of) => to.parts("Truth", &[of]),
            Self::Number(of) => to.parts("Number", &[of]),
            Self::MapHas { map, key } => to.call("MapHas", &[("map", map), ("key", key)]),
            Self::MapItems { map, order } => to.call("MapItems", &[("map", map), ("order", order)]),
            Self::ListLen { list } => to.call("ListLen", &[("list", list)]),
            Self::Trimmed(of) => to.parts("Trimmed", &[of]),
            Self::HasWindow { comm, buffer } => {
                to.call("HasWindow", &[("comm", comm), ("buffer", buffer)]);
            }
            Self::EventQuery { event } => to.call("EventQuery", &[("event", event)]),
        }
    }
}
