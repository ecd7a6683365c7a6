//! Fragments that capture graphs, with something bent.
//! Not here: what else a program does.

use rankcheck_model::{
    CaptureMode, GraphOp, MemoryKind, Op, Operand, PoolOp, Question, Release, SizeClasses, ThreadOp,
    TieBreak, Token,
};

use super::builder::{At, Builder, MIB, first};
use super::draw::{By, Either, On, Who, drawn};
use super::stream::Synchronized;

drawn! {
    /// A piece of protocol that captures a graph.
    pub(super) enum Fragment {
        /// A graph of one rank: what its capture forbids, what it loses before its replay, what it does not join.
        8 => Alone { rank: Who, by: By, captured: Captured, replays: Replays },
        /// A collective that every rank captures.
        20 => OfAll { rank: Who, odd: OddReplay, window: GraphWindow, on: On },
        /// An event that was recorded in a capture is used after it, or meanwhile by another thread.
        4 => CapturedEvent { rank: Who, uses: EventUser, how: UseOfEvent, then: AfterRecord },
        /// One thread captures while another makes a call that a capture forbids, or uses the graph.
        4 => Beside { rank: Who, call: BesideCapture, result: GraphResult },
    }
}

drawn! {
    /// What is captured, or happens to it before the replay.
    pub(super) enum Captured {
        2 => AKernel,
        2 => Alloc,
        2 => Synchronize { what: Synchronized },
        2 => Query,
        2 => Fork { fills: Either, end: Join },
        /// A wait for an event that was recorded before the capture.
        2 => WaitForEarlier,
        4 => BlockOfPool { blocks: GraphBlocks, then: AfterCapture },
        2 => ThenFreed,
        1 => ThenDestroyed,
    }
}

drawn! {
    /// Whether a stream that a capture pulled in comes back.
    pub(super) enum Join {
        1 => Joined,
        1 => LeftOpen,
    }
}

drawn! {
    /// Whether a graph keeps the blocks of a pool.
    pub(super) enum GraphBlocks {
        1 => Kept,
        1 => NotKept,
    }
}

drawn! {
    /// What the pool does after a capture.
    pub(super) enum AfterCapture {
        1 => Alloc,
        1 => Trim,
    }
}

drawn! {
    /// How often a graph runs, and where.
    pub(super) enum Replays {
        2 => Once,
        1 => Twice,
        1 => TwiceOnTwoStreams,
    }
}

drawn! {
    /// What one rank does otherwise than to replay the graph that all captured, or all while they capture.
    pub(super) enum OddReplay {
        1 => DestroysComm,
        2 => Deregisters,
        1 => LaunchesAsSuch,
        /// The graph, in the second thread if there is one, and the communicator.
        1 => DestroysGraphAndComm,
        1 => AllRegisterInside,
    }
}

drawn! {
    /// The thread that uses an event that another recorded.
    pub(super) enum EventUser {
        2 => TheSame,
        1 => TheSecond,
    }
}

drawn! {
    /// What is done with an event.
    pub(super) enum UseOfEvent {
        1 => Synchronize,
        1 => Query,
        1 => Wait,
        1 => WaitInACapture,
    }
}

drawn! {
    /// What comes after the record.
    pub(super) enum AfterRecord {
        3 => End,
        1 => EndAndReplay,
        1 => EndAndRecord,
    }
}

drawn! {
    /// Whether what is captured lies in a window.
    pub(super) enum GraphWindow {
        1 => None,
        1 => Registered,
    }
}

drawn! {
    /// What another thread does while one captures.
    pub(super) enum BesideCapture {
        1 => Fill,
        1 => Alloc,
        1 => Synchronize,
        1 => Replay,
        1 => Destroy,
        1 => Query,
    }
}

drawn! {
    /// Whether the thread that captured looks at what it got.
    pub(super) enum GraphResult {
        1 => Ignored,
        1 => Checked,
    }
}

impl Fragment {
    pub(super) fn build(self, b: &mut Builder) {
        match self {
            Self::Alone { rank, by, captured, replays } => {
                let at = b.at(rank, by);
                alone(b, at, captured, replays);
            }
            Self::OfAll { rank, odd, window, on } => {
                let rank = b.rank(rank);
                of_all(b, rank, odd, window, on);
            }
            Self::CapturedEvent { rank, uses, how, then } => {
                let rank = b.rank(rank);
                let at = first(rank);
                let user = if uses == EventUser::TheSame { at } else { b.second(rank) };
                captured_event(b, at, (user, how), then);
            }
            Self::Beside { rank, call, result } => {
                let rank = b.rank(rank);
                let (at, second, graph, a) = (first(rank), b.second(rank), b.name("g"), b.a(rank));
                begin(b, at, graph, None);
                b.writes(at, "fill", &a, "default");
                let made = b.push(at, Op::Graph(GraphOp::End { graph }));
                if result == GraphResult::Checked {
                    b.exit_if(at, Question::Failed(made), "no graph");
                }
                replay(b, at, graph, On::Default);
                beside(b, second, graph, call);
            }
        }
    }
}

fn begin(b: &mut Builder, at: At, graph: Token, pool: Option<Token>) {
    let (stream, mode) = (b.name("default"), CaptureMode::Global);
    b.push(at, Op::Graph(GraphOp::Begin { graph, stream, mode, pool }));
}

fn replay(b: &mut Builder, at: At, graph: Token, on: On) {
    let stream = b.name(on.name());
    b.push(at, Op::Graph(GraphOp::Replay { graph, stream }));
}

/// A block of the pool that graphs take blocks of.
fn block(b: &mut Builder, at: At, name: &str) -> Operand {
    let (pool, name, stream) = (b.name("kept"), b.name(name), b.name("default"));
    b.push(at, Op::Pool(PoolOp::Alloc { pool, name, len_bytes: 2 * MIB, stream }))
}

fn alone(b: &mut Builder, at: At, what: Captured, replays: Replays) {
    let graph = b.fresh("g");
    let pool = b.name("kept");
    let keeps = match what {
        Captured::BlockOfPool { blocks, .. } => {
            let (classes, tie, memory) = (SizeClasses::Exact, TieBreak::Counter, MemoryKind::Nccl);
            b.push(at, Op::Pool(PoolOp::Declare { pool, classes, tie, memory }));
            (blocks == GraphBlocks::Kept).then_some(pool)
        }
        Captured::AKernel
        | Captured::Alloc
        | Captured::Synchronize { .. }
        | Captured::Query
        | Captured::Fork { .. }
        | Captured::WaitForEarlier
        | Captured::ThenFreed
        | Captured::ThenDestroyed => None,
    };
    begin(b, at, graph, keeps);
    let x = capture(b, at, what);
    b.writes(at, "fill", &x, "default");
    let made = b.push(at, Op::Graph(GraphOp::End { graph }));
    match what {
        Captured::BlockOfPool { then: AfterCapture::Alloc, .. } => {
            let next = block(b, at, "p1");
            b.writes(at, "fill", &next, "default");
        }
        Captured::BlockOfPool { then: AfterCapture::Trim, .. } => {
            b.push(at, Op::Pool(PoolOp::Trim { pool, release: Release::Now }));
        }
        Captured::ThenFreed => b.free(at, &x),
        Captured::ThenDestroyed => {
            b.push(at, Op::Graph(GraphOp::Destroy { graph }));
        }
        Captured::AKernel
        | Captured::Alloc
        | Captured::Synchronize { .. }
        | Captured::Query
        | Captured::Fork { .. }
        | Captured::WaitForEarlier => {}
    }
    replay(b, at, graph, On::Default);
    match replays {
        Replays::Once => {}
        Replays::Twice => replay(b, at, graph, On::Default),
        Replays::TwiceOnTwoStreams => replay(b, at, graph, On::Side),
    }
    b.exit_if(at, Question::Failed(made), "no graph");
}

/// What stands at the beginning of a capture; returns what is filled at its end.
fn capture(b: &mut Builder, at: At, what: Captured) -> Operand {
    let event = b.name("e");
    match what {
        Captured::AKernel | Captured::ThenFreed | Captured::ThenDestroyed => {}
        Captured::Alloc => {
            b.alloc(at, "inside", 2 * MIB, MemoryKind::Cuda);
        }
        Captured::Synchronize { what } => {
            let what = what.operand(b);
            b.synchronize(at, what);
        }
        Captured::Query => b.exit_if(at, Question::EventQuery { event }, "seen"),
        Captured::Fork { fills, end } => {
            b.record(at, event, "default");
            b.wait_event(at, event, "side");
            let x = b.either(at.rank, fills);
            b.writes(at, "fill", &x, "side");
            if end == Join::Joined {
                b.record(at, event, "side");
                b.wait_event(at, event, "default");
            }
        }
        Captured::WaitForEarlier => b.wait_event(at, event, "default"),
        Captured::BlockOfPool { .. } => {
            let x = block(b, at, "p0");
            b.writes(at, "fill", &x, "default");
            b.free(at, &x);
            return x;
        }
    }
    b.a(at.rank)
}

/// All capture a collective and replay it; one of them does something else before, instead or after.
fn of_all(b: &mut Builder, rank: u32, odd: OddReplay, window: GraphWindow, on: On) {
    let graph = b.fresh("g");
    let registered = window == GraphWindow::Registered || odd == OddReplay::Deregisters;
    for r in b.ranks() {
        let (at, comm, a) = (first(r), b.comm(r), b.a(r));
        let window = if registered { b.register(at, &a) } else { Operand::Null };
        begin(b, at, graph, None);
        if odd == OddReplay::AllRegisterInside {
            let y = b.b(r);
            b.register(at, &y);
        }
        let call = b.reduction(&comm, &a, 1 << 20);
        b.launch(at, call.clone());
        b.push(at, Op::Graph(GraphOp::End { graph }));
        match odd {
            OddReplay::LaunchesAsSuch if r == rank => {
                b.launch(at, call);
                continue;
            }
            OddReplay::Deregisters if r == rank => b.deregister(at, &window),
            OddReplay::LaunchesAsSuch
            | OddReplay::Deregisters
            | OddReplay::DestroysComm
            | OddReplay::DestroysGraphAndComm
            | OddReplay::AllRegisterInside => {}
        }
        replay(b, at, graph, on);
        if odd == OddReplay::DestroysGraphAndComm && r == rank {
            let at = if b.has_second(r) { b.second(r) } else { at };
            b.push(at, Op::Graph(GraphOp::Destroy { graph }));
        }
        if matches!(odd, OddReplay::DestroysComm | OddReplay::DestroysGraphAndComm) && r == rank {
            b.destroy(at, &comm);
        }
    }
}

/// A record is captured, and the event used.
fn captured_event(b: &mut Builder, at: At, (user, how): (At, UseOfEvent), then: AfterRecord) {
    let (graph, event, a) = (b.fresh("g"), b.name("e"), b.a(at.rank));
    begin(b, at, graph, None);
    b.writes(at, "fill", &a, "default");
    b.record(at, event, "default");
    b.push(at, Op::Graph(GraphOp::End { graph }));
    match then {
        AfterRecord::End => {}
        AfterRecord::EndAndReplay => replay(b, at, graph, On::Default),
        AfterRecord::EndAndRecord => b.record(at, event, "default"),
    }
    match how {
        UseOfEvent::Synchronize => b.synchronize(user, Operand::Event(event)),
        UseOfEvent::Query => {
            let label = b.name("seen");
            b.ask(user, Question::EventQuery { event }, vec![Op::Thread(ThreadOp::Reach { label })]);
        }
        UseOfEvent::Wait => {
            b.wait_event(user, event, "side");
            b.reads(user, "scan", &a, "side");
        }
        UseOfEvent::WaitInACapture => {
            let graph = b.fresh("g");
            let (stream, mode) = (b.name("side"), CaptureMode::Relaxed);
            b.push(user, Op::Graph(GraphOp::Begin { graph, stream, mode, pool: None }));
            b.wait_event(user, event, "side");
            b.push(user, Op::Graph(GraphOp::End { graph }));
        }
    }
}

fn beside(b: &mut Builder, at: At, graph: Token, call: BesideCapture) {
    match call {
        BesideCapture::Fill => {
            let y = b.b(at.rank);
            b.writes(at, "fill", &y, "default");
        }
        BesideCapture::Alloc => {
            b.alloc(at, "inside", 2 * MIB, MemoryKind::Cuda);
        }
        BesideCapture::Synchronize => b.synchronize(at, Operand::Device),
        BesideCapture::Replay => replay(b, at, graph, On::Default),
        BesideCapture::Destroy => {
            b.push(at, Op::Graph(GraphOp::Destroy { graph }));
        }
        BesideCapture::Query => {
            let (event, label) = (b.name("e"), b.name("seen"));
            b.ask(at, Question::EventQuery { event }, vec![Op::Thread(ThreadOp::Reach { label })]);
        }
    }
}
