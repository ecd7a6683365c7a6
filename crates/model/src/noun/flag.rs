//! Flags: words that all ranks see, worked on by host threads and by streams.
//!
//! A waiter sees the value that is there when it looks. Which looks come between which writes is a choice
//! wherever happens-before leaves it open: then the heads of streams are scheduled too.
//! Not here: the store ([`crate::noun::store`]).

use crate::clock::Clock;
use crate::cx::Cx;
use crate::cx::Here;
use crate::describe::{Describe, Description};
use crate::id::Token;
use crate::identity::{Identify, StateIdentity};
use crate::judge::deadlock::Awaits;
use crate::judge::finding::OpRef;
use crate::judge::finding::{About, Rule};
use crate::machine::Kind;
use crate::machine::Machine;
use crate::noun::cell::{Cell, ReadersOrdered, WordWrite, identify_used};
use crate::noun::pool::Plan;
use crate::noun::stream::Work;
use crate::op::{Show, Verb};
use crate::order::dependence::{Access, Object, ObjectKind};
use crate::order::poll::{NondetValues, Poll};
use crate::rank::Rank;
use crate::state::{State, Table};
use crate::walk::walk;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What is compared with an awaited value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Test {
    /// The word is the value.
    Equal,
    /// The word is the value or more.
    AtLeast,
    /// The word is the value or up to 2³¹ - 1 ahead of it, counted around: the test of a stream
    /// (`CU_STREAM_WAIT_VALUE_GEQ`).
    AtLeastAround,
}

impl Describe for Test {
    fn describe(&self, to: &mut Description<'_>) {
        to.word(match self {
            Self::Equal => "Equal",
            // Whether a stream waits is told elsewhere.
            Self::AtLeast | Self::AtLeastAround => "AtLeast",
        });
    }
}

/// What is done to a flag.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum FlagAct {
    /// The word becomes this.
    Write(i64),
    /// Blocks until the word passes the test against this.
    Wait(Test, i64),
    /// Blocks until the word is `from`, and makes it `to` in the same instant.
    Swap {
        /// The value that the word has to have before it is replaced.
        from: i64,
        /// What takes its place.
        to: i64,
    },
}

impl Describe for FlagAct {
    fn describe(&self, to: &mut Description<'_>) {
        match self {
            Self::Write(value) => to.parts("Write", &[value]),
            Self::Wait(test, value) => to.parts("Wait", &[test, value]),
            Self::Swap { from, to: value } => to.call("Swap", &[("from", from), ("to", value)]),
        }
    }
}

impl FlagAct {
    /// Whether it can happen while the word has this value.
    #[must_use]
    pub fn possible(self, word: i64) -> bool {
        match self {
            Self::Write(_) => true,
            Self::Wait(Test::Equal, value) | Self::Swap { from: value, .. } => word == value,
            Self::Wait(Test::AtLeast, value) => word >= value,
            // Words have 32 bits.
            Self::Wait(Test::AtLeastAround, value) => (word.wrapping_sub(value) as i32) >= 0,
        }
    }

    /// What the word is afterwards, if it changes.
    #[must_use]
    pub fn writes(self) -> Option<i64> {
        match self {
            Self::Write(value) | Self::Swap { to: value, .. } => Some(value),
            Self::Wait(..) => None,
        }
    }

    /// The call in a spec: `write(1)`.
    #[must_use]
    pub fn words(self) -> String {
        match self {
            Self::Write(value) => format!("write({value})"),
            Self::Wait(Test::Equal, value) => format!("wait({value})"),
            Self::Wait(Test::AtLeast | Test::AtLeastAround, value) => format!("wait(at_least = {value})"),
            Self::Swap { from, to } => format!("swap({from}, {to})"),
        }
    }
}

/// Works on a flag, a word that all ranks see: on the host thread, or on a stream of this rank
/// (`cuStreamWriteValue32`, `cuStreamWaitValue32`, an atomic of a kernel).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct FlagOp {
    /// Name of the flag. All ranks share it, and it is 0 at first.
    pub flag: Token,
    /// What the operation does to the word.
    pub act: FlagAct,
    /// The stream; none for the host thread.
    pub stream: Option<Token>,
}

impl Describe for FlagOp {
    fn describe(&self, to: &mut Description<'_>) {
        let Self { flag, act, stream } = self;
        to.call("Flag", &[("flag", flag), ("act", act), ("stream", stream)]);
    }
}

impl Verb for FlagOp {
    fn slots(&self) -> u32 {
        0
    }

    fn kind(&self) -> Kind {
        Kind::InRole
    }

    fn stream(&self) -> Option<Token> {
        self.stream
    }

    fn display(&self, show: &Show<'_>) -> String {
        let name = |token: &Token| show.name(*token);
        let Self { flag, act, .. } = self;
        format!("{}.{}", name(flag), act.words())
    }

    fn seen_by_others(&self) -> bool {
        self.wakes()
    }

    fn footprint(&self, _: Here<'_>, each: &mut dyn FnMut(Object, Access)) {
        if self.stream.is_none() {
            each(Object::named(ObjectKind::Flag, self.flag), touch_of(self.act));
        }
    }

    fn ready(&self, here: Here<'_>, _: &mut NondetValues<'_>) -> Poll {
        Poll::once(self.stream.is_some() || Machine::flag_allows(here.state, self.flag, self.act))
    }

    fn watches(&self) -> bool {
        self.stream.is_none()
    }

    fn wakes(&self) -> bool {
        self.stream.is_none() && self.act.writes().is_some()
    }

    fn blocked_on(&self, _: Here<'_>) -> (Rule, Option<About>) {
        (Rule::Flag1, Some(About::Named(self.flag)))
    }

    fn waits_for(&self, _: Here<'_>) -> Awaits {
        Awaits::Flag(self.flag)
    }

    fn apply(&self, cx: &mut Cx<'_>, _: Plan) {
        cx.run_flag((self.flag, self.act), self.stream);
    }
}

/// What an act does to the word, as far as orders matter.
pub(crate) fn touch_of(act: FlagAct) -> Access {
    if act.writes().is_some() { Access::Write } else { Access::Read }
}

/// What was written to each flag. All ranks share the table, and a flag that is not in it is 0.
#[derive(Debug, Clone, Default)]
pub(crate) struct Flags {
    cells: BTreeMap<Token, Cell<i64>>,
}

walk!(apart struct Flags { cells: hashed moved });

impl Identify for Flags {
    fn identify(&self, to: &mut StateIdentity<'_>) {
        let Self { cells } = self;
        identify_used(cells, ObjectKind::Flag, to);
    }
}

impl State {
    /// What a flag is now.
    pub(crate) fn flag_word(&self, flag: Token) -> i64 {
        Flags::of(self.shared()).cells.get(&flag).and_then(Cell::last).map_or(0, |write| write.value)
    }

    /// The operation that wrote a flag last.
    pub(crate) fn last_flag_write(&self, flag: Token) -> Option<OpRef> {
        Flags::of(self.shared()).cells.get(&flag).and_then(Cell::last).map(|write| write.op)
    }
}

impl Machine {
    /// Whether a flag allows an act now.
    pub(crate) fn flag_allows(state: &State, flag: Token, act: FlagAct) -> bool {
        act.possible(state.flag_word(flag))
    }

    /// A flag that allows it is worked on, by whoever has this clock.
    pub(crate) fn act(&self, state: &mut State, (flag, act): (Token, FlagAct), clock: &mut Clock, op: OpRef) {
        let object = Object::named(ObjectKind::Flag, flag);
        if !matches!(act, FlagAct::Write(_))
            && let Some(cell) = Flags::of(state.shared()).cells.get(&flag)
        {
            let after = match self.readers_ordered(object) {
                ReadersOrdered::BySight => cell.last().map(|write| &write.by),
                ReadersOrdered::ByWhatEnables => cell.enabling(clock, |word| act.possible(*word)),
            };
            if let Some(after) = after {
                clock.join(after);
            }
        }
        self.access_shared(state, object, touch_of(act), clock);
        if let Some(value) = act.writes() {
            let write = WordWrite { value, by: clock.clone(), op };
            Flags::of_mut(state.shared_mut())
                .cells
                .entry(flag)
                .or_default()
                .write(write, self.readers_ordered(object));
        }
    }

    /// The flag at the head of a stream.
    pub(crate) fn flag_at_head(state: &State, rank: Rank, stream: usize) -> Option<(Token, FlagAct)> {
        match state.rank(rank).stream(stream).work() {
            Some(Work::Flag(flag, act)) => Some((*flag, *act)),
            _ => None,
        }
    }

    /// Whether the head of a stream works on a contended flag, so that its schedule is a choice.
    pub(crate) fn head_is_turn(&self, state: &State, rank: Rank, stream: usize) -> bool {
        !self.config.contended.is_empty()
            && self.config.mode == crate::machine::Mode::Reduced
            && Self::flag_at_head(state, rank, stream).is_some_and(|(flag, _)| {
                self.config.contended.contains(&Object::named(ObjectKind::Flag, flag))
            })
    }
}

impl Cx<'_> {
    /// A host thread works on a flag, or has a stream do it.
    pub(crate) fn run_flag(&mut self, (flag, act): (Token, FlagAct), stream: Option<Token>) {
        if let Some(stream) = stream {
            self.launch(stream, Work::Flag(flag, act));
        } else {
            let mut clock = self.this().clock().clone();
            self.m.act(self.state, (flag, act), &mut clock, self.op);
            *self.this_mut().clock_mut() = clock;
        }
        self.done(&[]);
    }
}
