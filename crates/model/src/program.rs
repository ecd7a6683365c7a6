//! A program: what each rank does, as a tree of operation lists whose edges are answers.
//!
//! A [`Source`] is evaluated without side effects: given the answers that a thread has received so far it
//! returns the next [`Block`] of operations, which ends either with the thread's end or with a
//! [`Question`]. Results of operations are named by *slots*; using a slot as an operand asks nothing.
//! Not here: what an operation means ([`crate::machine`]) or where programs come from.

use crate::op::Op;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::id::{ThreadStart, Token};
use crate::noun::container::MapOrder;
use crate::rank::{LocId, Rank};

/// An answer to a [`Question`]: a boolean (0 or 1), an index into the options, or a small count.
pub type Answer = u32;

/// Where an operation was written.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Loc {
    /// File as the user named it.
    pub file: Arc<str>,
    /// Line, from 1; 0 where none is known.
    pub line: u32,
    /// Column in characters, from 1.
    pub column: u32,
    /// Where that stands in a library: the line of the program that called it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub called_at: Option<Line>,
}

/// A line of a file.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Line {
    /// File as the user named it.
    pub file: Arc<str>,
    /// From 1; 0 where none is known.
    pub line: u32,
}

impl Loc {
    /// The same place, with names of files as they are seen from a folder.
    pub(crate) fn seen_from(self, folder: &str) -> Self {
        let called_at = self.called_at.map(|line| Line { file: path_from(folder, &line.file), ..line });
        Self { file: path_from(folder, &self.file), called_at, ..self }
    }
}

/// The way from a folder to a file, as far as their names show one.
fn path_from(folder: &str, file: &str) -> Arc<str> {
    let parts = |path| str::split(path, '/').filter(|part| !part.is_empty());
    let shared = parts(folder).zip(parts(file)).take_while(|(one, other)| one == other).count();
    if shared == 0 {
        return file.into();
    }
    let up = parts(folder).skip(shared).map(|_| "..");
    up.chain(parts(file).skip(shared)).collect::<Vec<_>>().join("/").into()
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let file = self.file.rsplit('/').next().unwrap_or(&self.file);
        match self.line {
            0 => f.write_str(file),
            line => write!(f, "{file}:{line}"),
        }
    }
}

/// The name of the file, and the line where one is known; for a library also who called it.
impl fmt::Display for Loc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", Line { file: Arc::clone(&self.file), line: self.line })?;
        self.called_at.as_ref().map_or(Ok(()), |line| write!(f, " from {line}"))
    }
}

/// Names the result of an operation or of a question of one thread of the same rank.
///
/// Slots of a thread are numbered from 0 in the order in which the operations that produce one were
/// recorded. A question may produce several (see [`Question::slots`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot {
    /// What the thread runs whose operation produces the value: on a rank, at most one thread runs it.
    pub start: ThreadStart,
    /// Position among the slots of that thread.
    pub index: u32,
}

/// What an operation works on: a constant, a slot, or something derived from one without asking.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Operand {
    /// The null pointer, Python's `None`.
    Null,
    /// A number known when the program was written or answered.
    Int(i64),
    /// A token, for example a value put into a store.
    Token(Token),
    /// A truth value known when the program was written or answered.
    Bool(bool),
    /// The result of an earlier operation.
    Slot(Slot),
    /// `len_bytes` bytes of a buffer or segment, from `offset_bytes` on.
    Slice {
        /// The buffer or segment.
        of: Arc<Operand>,
        /// Bytes from its start.
        offset_bytes: u64,
        /// Length in bytes of the slice.
        len_bytes: u64,
    },
    /// The segment in which a buffer lies.
    Segment(Arc<Operand>),
    /// The address of a buffer, segment, communicator: an opaque value with equality.
    Address(Arc<Operand>),
    /// The bytes of a mapping of a peer's allocation at which a buffer of this rank lies in its own.
    At {
        /// The mapping, or a buffer.
        of: Arc<Operand>,
        /// The buffer of this rank.
        like: Arc<Operand>,
    },
    /// Several values as one, for keys.
    Tuple(Arc<[Operand]>),
    /// A stream of this rank, by name.
    Stream(Token),
    /// An event of this rank, by name.
    Event(Token),
    /// The whole device of this rank, for synchronize.
    Device,
}

impl Operand {
    /// The same with other slots.
    #[must_use]
    pub fn renamed(&self, slot: &mut dyn FnMut(Slot) -> Slot) -> Self {
        let mut arc = |of: &Arc<Self>| Arc::new(of.renamed(slot));
        match self {
            Self::Slot(of) => Self::Slot(slot(*of)),
            Self::Slice { of, offset_bytes, len_bytes } => {
                Self::Slice { of: arc(of), offset_bytes: *offset_bytes, len_bytes: *len_bytes }
            }
            Self::Segment(of) => Self::Segment(arc(of)),
            Self::Address(of) => Self::Address(arc(of)),
            Self::At { of, like } => Self::At { of: arc(of), like: arc(like) },
            Self::Tuple(parts) => Self::Tuple(parts.iter().map(|part| part.renamed(slot)).collect()),
            Self::Null
            | Self::Int(_)
            | Self::Token(_)
            | Self::Bool(_)
            | Self::Stream(_)
            | Self::Event(_)
            | Self::Device => self.clone(),
        }
    }
}

/// Element types of collectives, with NCCL's names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "the names say it")]
pub enum Dtype {
    F16,
    Bf16,
    F32,
    F64,
    I8,
    U8,
    I32,
    I64,
    Fp8,
    /// A number that names no type, as `ncclNumTypes`: a call that is given it returns an error.
    Invalid,
}

impl Dtype {
    /// Every element type; not the number that names none.
    pub const ALL: [Self; 9] =
        [Self::F16, Self::Bf16, Self::F32, Self::F64, Self::I8, Self::U8, Self::I32, Self::I64, Self::Fp8];

    /// Size of an element in bytes.
    #[must_use]
    pub fn len_bytes(self) -> u64 {
        match self {
            Self::I8 | Self::U8 | Self::Fp8 | Self::Invalid => 1,
            Self::F16 | Self::Bf16 => 2,
            Self::F32 | Self::I32 => 4,
            Self::F64 | Self::I64 => 8,
        }
    }

    /// The name in specs and reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
            Self::F32 => "f32",
            Self::F64 => "f64",
            Self::I8 => "i8",
            Self::U8 => "u8",
            Self::I32 => "i32",
            Self::I64 => "i64",
            Self::Fp8 => "fp8",
            Self::Invalid => "invalid",
        }
    }
}

/// How a collective combines the elements of the members (`ncclRedOp_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "the names say it")]
pub enum ReduceOp {
    Sum,
    Prod,
    Min,
    Max,
    Avg,
    /// A number that names no operator of the communicator, as `ncclNumOps`: a call that is given it returns an error.
    Invalid,
}

impl ReduceOp {
    /// Every operator; not the number that names none.
    pub const ALL: [Self; 5] = [Self::Sum, Self::Prod, Self::Min, Self::Max, Self::Avg];

    /// The name in specs and reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Sum => "sum",
            Self::Prod => "prod",
            Self::Min => "min",
            Self::Max => "max",
            Self::Avg => "avg",
            Self::Invalid => "invalid",
        }
    }
}

/// Names an operation of one thread of the same rank, for declarations about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Operation {
    /// What the thread runs: on a rank, at most one thread runs it.
    pub start: ThreadStart,
    /// Position among the operations and questions of that thread.
    pub index: u32,
}

/// An operation and where it was written.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Statement {
    /// What the thread does. Statements that do the same may share it: a program that is written down as it ran has
    /// millions of statements, and few that differ.
    pub op: Arc<Op>,
    /// Where it was written.
    pub loc: LocId,
}

/// What control flow may ask. Answers are booleans, indices of options, or small counts; never pointers,
/// sizes or bytes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Question {
    /// The adversary chooses one of `options`.
    Choose {
        /// Name of the choice, as reports print it.
        name: Token,
        /// What the options are called.
        options: Arc<[Token]>,
    },
    /// Did this allocation take a new segment?
    Grew(Operand),
    /// Is this result null: did the operation that produced it fail?
    Failed(Operand),
    /// Are the two values equal?
    Equal(Operand, Operand),
    /// Is this value true?
    Truth(Operand),
    /// The number in this slot. A program that asks for anything else there cannot be evaluated.
    Number(Operand),
    /// Is the key in the map?
    MapHas {
        /// Name of the map.
        map: Token,
        /// The key that is looked up.
        key: Operand,
    },
    /// How many entries does the map have? Then produces, for each in the map's order, key and value.
    MapItems {
        /// Name of the map.
        map: Token,
        /// In which order it is walked.
        order: MapOrder,
    },
    /// How many elements does the list have?
    ListLen {
        /// Name of the list.
        list: Token,
    },
    /// How many segments did the trim release? Then produces each of them.
    Trimmed(Operand),
    /// `ncclCommGetWindow`-like: does a window of the communicator hold the start of this buffer?
    HasWindow {
        /// The communicator whose windows are searched.
        comm: Operand,
        /// The buffer whose start is looked up.
        buffer: Operand,
    },
    /// `cudaEventQuery`: is the last record of the event complete?
    EventQuery {
        /// Name of the event.
        event: Token,
    },
}

impl Question {
    /// How many answers there are; none where it is a number that may be any.
    #[must_use]
    pub fn answers(&self) -> Option<u32> {
        match self {
            Self::Choose { options, .. } => Some(u32::try_from(options.len()).expect("few options")),
            Self::Number(_) | Self::MapItems { .. } | Self::ListLen { .. } | Self::Trimmed(_) => None,
            Self::Grew(_)
            | Self::Failed(_)
            | Self::Equal(..)
            | Self::Truth(_)
            | Self::MapHas { .. }
            | Self::HasWindow { .. }
            | Self::EventQuery { .. } => Some(2),
        }
    }

    /// How many slots the answer produces.
    #[must_use]
    pub fn slots(&self, answer: Answer) -> u32 {
        match self {
            Self::MapItems { .. } => 2 * answer,
            Self::Trimmed(_) => answer,
            Self::Choose { .. }
            | Self::Grew(_)
            | Self::Failed(_)
            | Self::Equal(..)
            | Self::Truth(_)
            | Self::Number(_)
            | Self::MapHas { .. }
            | Self::ListLen { .. }
            | Self::HasWindow { .. }
            | Self::EventQuery { .. } => 0,
        }
    }
}

/// What ends a block.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Terminator {
    /// The function of the thread returned, so the thread is over.
    Return,
    /// Control flow asks, and the answer decides which block is next.
    Ask(Question, LocId),
    /// What comes then is not known: the recording of a real run ends here. Nobody waits in vain for a thread
    /// that stands here, as far as anybody knows.
    Cut,
}

/// A basic block: the operations of one thread between two answers.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Block {
    /// Operations in program order.
    pub ops: Vec<Statement>,
    /// What comes after them.
    pub terminator: Terminator,
}

/// Whether the program of a rank looks at who it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Symmetry {
    /// Every rank runs the same function and none read its number: ranks are interchangeable.
    Interchangeable,
    /// Some function read `r.rank`, or an operand names a rank.
    Distinct,
}

/// When memory was freed that another rank opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Freed {
    /// The program orders ranks, so its clocks say.
    AsOrdered,
    /// Before it was opened.
    BeforeOpened,
    /// While it was open.
    WhileOpen,
    /// After it was closed, or never, as far as anybody knows.
    AfterClosed,
}

/// How a program stands where it asks: digests of all that the rest of it depends on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StandingDigest {
    /// With the numbers of results.
    pub numbered: u128,
    /// Without them, if it is known which results the program still holds.
    pub renamed: Option<RenamedDigest>,
}

/// A digest in which results are called by the order in which the program holds them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RenamedDigest {
    /// Stands for all that the rest of the program depends on.
    pub digest: u128,
    /// The slots of the results that variables hold, in that order.
    pub held: Arc<[u32]>,
    /// The first slot of those that were made since: the program may hold all of these.
    pub since: u32,
}

impl RenamedDigest {
    /// What a result is called: by when it was made since, or its place among those that are held; none if the program does not
    /// hold it.
    #[must_use]
    pub fn called(&self, slot: u32) -> Option<(bool, u32)> {
        if let Some(nth) = slot.checked_sub(self.since) {
            return Some((true, nth));
        }
        let at = self.held.iter().position(|held| *held == slot)?;
        Some((false, u32::try_from(at).expect("few results are held")))
    }
}

/// Where a program comes from: Starlark, Rust closures, a recorded run.
///
/// Must be pure: equal arguments give equal blocks, and a longer list of answers extends what a shorter
/// one gave.
pub trait Source: Send + Sync {
    /// The operations of a thread of `rank` that runs `start`, after these answers.
    ///
    /// # Errors
    /// When the program itself cannot be evaluated.
    fn block(&self, rank: Rank, start: ThreadStart, answers: &[Answer]) -> Result<Arc<Block>, SourceError>;

    /// How the program stands behind a block that was asked for, if that is known. After two lists of answers behind which a thread stands
    /// alike it was asked in the same places, and gives the same blocks for the same further answers, but for the numbers of
    /// threads that are made from answers, and if it stands alike without the numbers of results, but for these.
    fn standing(&self, rank: Rank, start: ThreadStart, answers: &[Answer]) -> Option<StandingDigest> {
        let _ = (rank, start, answers);
        None
    }

    /// The text of a token.
    fn token(&self, token: Token) -> Arc<str>;

    /// Returns the location that an operation was written at.
    fn loc(&self, loc: LocId) -> Loc;

    /// The folder that the program stands in, as part of the names of its files; empty if it stands in none. Where it lies makes
    /// no difference to a search.
    fn folder(&self) -> &str {
        ""
    }

    /// What evaluations have named and found so far, for a search that goes on in another process; none if it cannot.
    fn evaluated(&self) -> Option<EvaluatedProgram> {
        None
    }

    /// Takes over what evaluations of this program named and found in another process. Returns the numbers that the places
    /// have here.
    fn take_over(&self, evaluated: &EvaluatedProgram) -> Vec<LocId> {
        let _ = evaluated;
        Vec::new()
    }

    /// The token of the stream that operations use when they name none: `"default"`.
    fn default_stream(&self) -> Token;

    /// Whether ranks are interchangeable, as far as evaluated so far.
    fn symmetry(&self) -> Symmetry;

    /// Where ranks were told apart first, as far as evaluated so far; none if that is not known.
    fn told_apart_at(&self) -> Option<Loc> {
        None
    }

    /// How many collectives on the communicator of the operation `of` this rank launched before the operation
    /// `before` that are not in the program: of a recorded run, iterations may be left out. Only said of it.
    fn skipped(&self, of: LocId, before: LocId) -> u32 {
        let _ = (of, before);
        0
    }

    /// The how-manieth replay of its graph the operation at this location is, from 1. Only said of a recorded run.
    fn replay(&self, replay: LocId) -> Option<u32> {
        let _ = replay;
        None
    }

    /// How a rank came to its end, as in "rank 1, which exited". Of a recorded run more may be known.
    fn ended(&self, rank: Rank) -> Arc<str> {
        let _ = rank;
        "exited".into()
    }

    /// Whether ranks are also ordered by what is not in the program, as those of a recorded run are. What nothing
    /// in the program orders may be ordered then, so accesses of two ranks to one memory do not race.
    fn hides_order(&self) -> bool {
        false
    }

    /// Whether what the operation at this location does to memory of its own rank is known to come after all that was done
    /// to those bytes before, and before all that comes. Only said of a recorded run, of which parts may be left out that
    /// say so.
    fn is_ordered(&self, at: LocId) -> bool {
        let _ = at;
        false
    }

    /// Whether the call that closes a mapping here waits for what the device still does with it.
    fn waits_to_close(&self, close: LocId) -> bool {
        let _ = close;
        false
    }

    /// When the memory was freed that the operation at this location opened. A program that hides order says so.
    fn freed(&self, open: LocId) -> Freed {
        let _ = open;
        Freed::AsOrdered
    }

    /// Whether some rank may come by a [`OverlapOp`](crate::OverlapOp). The answer is one for the whole program.
    fn declares_overlap(&self) -> bool {
        false
    }
}

/// What evaluations of a program have named and found.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EvaluatedProgram {
    /// The texts of tokens.
    pub texts: BTreeSet<Arc<str>>,
    /// The places, in the order of their numbers.
    pub locs: Vec<Loc>,
    /// Whether ranks are told apart.
    pub distinct: bool,
    /// Where they were told apart first.
    pub told_apart_at: Option<Loc>,
    /// The named assumptions that they came by.
    pub mentioned: BTreeSet<String>,
}

/// The program could not be evaluated: a bad spec, never a finding.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{message}")]
pub struct SourceError {
    /// What is wrong, as a sentence.
    pub message: String,
    /// Where it is wrong, if that is known.
    pub loc: Option<Loc>,
    /// What to do about it.
    pub help: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_the_same_wherever_its_folder_lies() {
        for (folder, file, expected) in [
            ("specs/pools", "specs/pools/a.star", "a.star"),
            ("/x/specs/pools", "/x/specs/lib/b.star", "../lib/b.star"),
            ("specs/pools", "specs/lib/b.star", "../lib/b.star"),
            ("", "a.star", "a.star"),
            ("specs", "src/lib.rs", "src/lib.rs"),
        ] {
            let called_at = Some(Line { file: file.into(), line: 2 });
            let loc = Loc { file: file.into(), line: 1, column: 3, called_at }.seen_from(folder);
            assert_eq!(&*loc.file, expected, "{file} seen from {folder}");
            assert_eq!(
                loc.called_at.map(|line| line.file),
                Some(expected.into()),
                "{file} seen from {folder}"
            );
        }
    }
}
