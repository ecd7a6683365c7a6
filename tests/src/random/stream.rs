//! Fragments about streams and events.
//! Not here: graphs, and flags on streams.

use rankcheck_model::{ListOp, Op, Operand, Question};

use super::builder::{At, Builder, first};
use super::draw::{By, Either, On, Who, drawn};

drawn! {
    /// A piece of protocol that launches kernels or orders them.
    pub(super) enum Fragment {
        4 => Synchronize { rank: Who, by: By, what: Synchronized },
        6 => Kernels { rank: Who, by: By, one: UserKernel, two: UserKernel },
        6 => Event { rank: Who, by: By, what: EventUse },
        /// Two threads launch on one stream.
        6 => OneStreamOfTwo { rank: Who },
        /// A kernel of one thread, behind an event a kernel of another.
        6 => EventOfTwo { rank: Who, waits: Waiter },
    }
}

drawn! {
    /// What is waited for.
    pub(super) enum Synchronized {
        1 => Device,
        1 => DefaultStream,
    }
}

drawn! {
    /// A kernel on a buffer.
    pub(super) enum UserKernel {
        1 => Reads { of: Either, on: On },
        1 => Writes { of: Either, on: On },
    }
}

drawn! {
    /// What happens to an event.
    pub(super) enum EventUse {
        1 => Record,
        1 => RecordAndWait,
        1 => Synchronize,
        1 => RecordAndQuery,
    }
}

drawn! {
    /// Who waits for an event.
    pub(super) enum Waiter {
        1 => Stream,
        1 => Host,
    }
}

impl Synchronized {
    pub(super) fn operand(self, b: &Builder) -> Operand {
        match self {
            Self::Device => Operand::Device,
            Self::DefaultStream => Operand::Stream(b.name("default")),
        }
    }
}

impl Fragment {
    pub(super) fn build(self, b: &mut Builder) {
        match self {
            Self::Synchronize { rank, by, what } => {
                let (at, what) = (b.at(rank, by), what.operand(b));
                b.synchronize(at, what);
            }
            Self::Kernels { rank, by, one, two } => {
                let at = b.at(rank, by);
                kernel(b, at, one);
                kernel(b, at, two);
            }
            Self::Event { rank, by, what } => {
                let at = b.at(rank, by);
                event(b, at, what);
            }
            Self::OneStreamOfTwo { rank } => {
                let rank = b.rank(rank);
                let (second, a) = (b.second(rank), b.a(rank));
                b.writes(first(rank), "left", &a, "shared");
                b.writes(second, "right", &a, "shared");
            }
            Self::EventOfTwo { rank, waits } => {
                let rank = b.rank(rank);
                let (at, second, a, event) = (first(rank), b.second(rank), b.a(rank), b.name("across"));
                b.writes(at, "produce", &a, "default");
                b.record(at, event, "default");
                match waits {
                    Waiter::Stream => b.wait_event(second, event, "side"),
                    Waiter::Host => b.synchronize(second, Operand::Event(event)),
                }
                b.reads(second, "consume", &a, "side");
            }
        }
    }
}

fn kernel(b: &mut Builder, at: At, kernel: UserKernel) {
    match kernel {
        UserKernel::Reads { of, on } => {
            let x = b.either(at.rank, of);
            b.reads(at, "scan", &x, on.name());
        }
        UserKernel::Writes { of, on } => {
            let x = b.either(at.rank, of);
            b.writes(at, "fill", &x, on.name());
        }
    }
}

fn event(b: &mut Builder, at: At, what: EventUse) {
    let event = b.name("e");
    match what {
        EventUse::Record => b.record(at, event, "side"),
        EventUse::RecordAndWait => {
            b.record(at, event, "default");
            b.wait_event(at, event, "side");
        }
        EventUse::Synchronize => b.synchronize(at, Operand::Event(event)),
        EventUse::RecordAndQuery => {
            b.record(at, event, "default");
            let list = b.name("polls");
            let then = vec![Op::List(ListOp::Push { list, value: Operand::Int(1) })];
            b.ask(at, Question::EventQuery { event }, then);
            b.exit_if(at, Question::ListLen { list }, "seen");
        }
    }
}
