//! Fragments that ask, and do something now or later that depends on the answer, or nothing ever.
//! Not here: what ranks tell each other of it.

use rankcheck_model::machine::FaultOf;
use rankcheck_model::{EventOp, ListOp, MemoryKind, Op, Operand, PoolOp, Question, StreamOp, ThreadOp};

use super::builder::{At, Builder, MIB};
use super::draw::{Below, By, Who, drawn};

drawn! {
    /// A piece of protocol in which a rank decides.
    pub(super) enum Fragment {
        5 => Ask { by: Decider, what: Asked, then: Effect },
        /// An earlier answer of the thread matters.
        4 => Recall { by: Decider, back: Below<3>, then: Effect, otherwise: Effect },
        /// Histories that differ in nothing else merge here.
        3 => Decide { by: Decider },
        /// What was done so far shows.
        2 => Look { by: Decider, at: LookedAt },
        /// Something is under way, an answer decides what is done about it, and after another decision it shows.
        6 => Matters { by: Decider, before: UnderWay, what: Asked, when: When, then: Effect, at: LookedAt },
    }
}

drawn! {
    /// At which answer something is done.
    pub(super) enum When {
        1 => Yes,
        1 => No,
    }
}

drawn! {
    /// What a device is at.
    pub(super) enum UnderWay {
        1 => Nothing,
        2 => AKernel,
        2 => AnEvent,
    }
}

drawn! {
    /// Who decides: mostly one and the same thread, which comes back to what it decided.
    pub(super) enum Decider {
        5 => Usual,
        1 => Other { rank: Who, by: By },
    }
}

drawn! {
    /// What a thread asks.
    pub(super) enum Asked {
        4 => OneOfTwo,
        1 => OneOfThree,
        1 => WhetherAnEventIsOver,
        1 => WhetherAnAllocationFailed,
        1 => WhetherThePoolGrew,
        1 => WhatTheListHolds,
    }
}

drawn! {
    /// What a thread does that depends on an answer.
    pub(super) enum Effect {
        3 => Nothing,
        2 => Push,
        1 => Exit,
        2 => WaitForTheDevice,
        2 => Write,
        1 => Read,
        1 => Record,
        1 => Reach,
        1 => Clear,
    }
}

drawn! {
    /// What shows the thread what was done.
    pub(super) enum LookedAt {
        2 => List,
        2 => Event,
        2 => Buffer,
    }
}

impl Fragment {
    pub(super) fn build(self, b: &mut Builder) {
        let (Self::Ask { by, .. }
        | Self::Recall { by, .. }
        | Self::Decide { by }
        | Self::Look { by, .. }
        | Self::Matters { by, .. }) = self;
        let at = match by {
            Decider::Usual => b.at(Below(0), By::First),
            Decider::Other { rank, by } => b.at(rank, by),
        };
        match self {
            Self::Ask { what, then, .. } => ask(b, at, what, (When::Yes, then)),
            Self::Recall { back, then, otherwise, .. } => {
                let (then, otherwise) = (effect(b, at, then), effect(b, at, otherwise));
                b.recall(at, back.0 as usize, then, otherwise);
            }
            Self::Decide { .. } => decide(b, at),
            Self::Look { at: looked_at, .. } => look(b, at, looked_at),
            Self::Matters { before, what, when, then, at: looked_at, .. } => {
                let event = b.name("e");
                if before != UnderWay::Nothing {
                    let a = b.a(at.rank);
                    b.writes(at, "fill", &a, "side");
                }
                if before == UnderWay::AnEvent {
                    b.record(at, event, "side");
                }
                ask(b, at, what, (when, then));
                decide(b, at);
                look(b, at, looked_at);
            }
        }
    }
}

/// A choice of one of so many options.
pub(super) fn choice(b: &Builder, options: &[&str]) -> Question {
    Question::Choose { name: b.name("way"), options: options.iter().map(|option| b.name(option)).collect() }
}

/// A choice on which nothing depends.
pub(super) fn decide(b: &mut Builder, at: At) {
    let question = choice(b, &["one way", "or another"]);
    b.ask(at, question, Vec::new());
}

fn ask(b: &mut Builder, at: At, what: Asked, (when, then): (When, Effect)) {
    let then = effect(b, at, then);
    let question = question(b, at, what);
    match when {
        When::Yes => b.ask(at, question, then),
        When::No => {
            b.ask(at, question, Vec::new());
            b.recall(at, 0, Vec::new(), then);
        }
    }
}

fn question(b: &mut Builder, at: At, what: Asked) -> Question {
    match what {
        Asked::OneOfTwo => choice(b, &["no", "yes"]),
        Asked::OneOfThree => choice(b, &["no", "yes", "very much"]),
        Asked::WhetherAnEventIsOver => Question::EventQuery { event: b.name("e") },
        Asked::WhetherAnAllocationFailed => {
            b.config.faults.of.insert(FaultOf::Alloc);
            b.config.faults.at_most = 1;
            Question::Failed(b.alloc(at, "x", MIB, MemoryKind::Cuda))
        }
        Asked::WhetherThePoolGrew => {
            let (pool, name, stream) = (b.name("pool"), b.fresh("p"), b.name("default"));
            Question::Grew(b.push(at, Op::Pool(PoolOp::Alloc { pool, name, len_bytes: 2 * MIB, stream })))
        }
        Asked::WhatTheListHolds => Question::ListLen { list: b.name("log") },
    }
}

fn effect(b: &mut Builder, at: At, effect: Effect) -> Vec<Op> {
    let (default, side) = (b.name("default"), b.name("side"));
    let op = match effect {
        Effect::Nothing => return Vec::new(),
        Effect::Push => Op::List(ListOp::Push { list: b.name("log"), value: Operand::Int(1) }),
        Effect::Exit => Op::Thread(ThreadOp::Exit { code: b.name("decided") }),
        Effect::WaitForTheDevice => Op::Stream(StreamOp::Synchronize { what: Operand::Device }),
        Effect::Write => {
            let (name, writes) = (b.name("fill"), [b.a(at.rank)].into());
            Op::Stream(StreamOp::Kernel { name, reads: [].into(), writes, stream: side })
        }
        Effect::Read => {
            let (name, reads) = (b.name("scan"), [b.a(at.rank)].into());
            Op::Stream(StreamOp::Kernel { name, reads, writes: [].into(), stream: default })
        }
        Effect::Record => Op::Event(EventOp { event: b.name("e"), stream: side }),
        Effect::Reach => Op::Thread(ThreadOp::Reach { label: b.name("here") }),
        Effect::Clear => Op::List(ListOp::Clear { list: b.name("log") }),
    };
    vec![op]
}

fn look(b: &mut Builder, at: At, looked_at: LookedAt) {
    match looked_at {
        LookedAt::List => {
            let list = b.name("log");
            b.exit_if(at, Question::ListLen { list }, "some");
        }
        LookedAt::Event => {
            let event = b.name("e");
            b.exit_if(at, Question::EventQuery { event }, "over");
        }
        LookedAt::Buffer => {
            let a = b.a(at.rank);
            b.reads(at, "scan", &a, "default");
        }
    }
}
