//! Fragments of point-to-point: pairs, rings, exchanges beside collectives, shared channels, declared overlap.
//! Not here: what is compared.

use std::sync::Arc;

use rankcheck_model::{
    CommOp, Direction, Dtype, InFlight, Op, Operand, Operation, OverlapOp, ThreadStart, Transfer,
};

use super::builder::{At, Builder, MIB, first, slice};
use super::draw::{Below, By, Either, On, Who, drawn};

drawn! {
    /// A piece of protocol with sends and receives.
    pub(super) enum Fragment {
        8 => Pair { rank: Who, by: By, odd: OddPair, length: TransferLength, received: Received },
        4 => Ring { rank: Who, order: RingOrder, into: RingInto },
        4 => Behind { rank: Who, pair: Connection, on: On, order: BehindOrder },
        9 => Registered { rank: Who, from: Either, into: Either, length: RegisteredLength },
        /// On parent and child, on two streams.
        5 => ParentAndChild { rank: Who, channels: Channels, order: HalvesOrder },
        /// Two threads of a rank transfer with one other.
        4 => TwoThreads { rank: Who, pair: Connection, second: On, one: Half, two: Half },
        6 => Overlap { rank: Who, comms: OverlapComms, second: On, order: OverlapOrder, between: Between },
        4 => HeadToHead { rank: Who, length: HeldLength, times: Sends },
        13 => Many { rank: Who, pairs: Below<2>, groups: ManyGroups, third: ToThird },
    }
}

drawn! {
    /// What is wrong with a pair.
    pub(super) enum OddPair {
        2 => HalfCount,
        2 => OtherDtype,
        2 => NoSuchPeer { beyond: Below<3> },
        1 => ReceivesFromItself,
        /// The receive runs on another stream than the kernel that reads.
        1 => ReadTooEarly,
    }
}

drawn! {
    /// How much is transferred.
    pub(super) enum TransferLength {
        1 => Short,
        1 => Long,
    }
}

drawn! {
    /// Whether there is a receive.
    pub(super) enum Received {
        3 => Yes,
        1 => Never,
    }
}

drawn! {
    /// How ranks of a ring order their halves.
    pub(super) enum RingOrder {
        1 => Grouped,
        1 => GroupedOneOtherwise,
        1 => Ungrouped,
    }
}

drawn! {
    /// Where one rank of a ring receives.
    pub(super) enum RingInto {
        4 => OtherBuffer,
        1 => WhatItSends,
    }
}

drawn! {
    /// Whether a pair transferred before.
    pub(super) enum Connection {
        1 => Fresh,
        1 => Made,
    }
}

drawn! {
    /// On which side of a collective the receive stands, where the send stands before it.
    pub(super) enum BehindOrder {
        1 => Before,
        2 => Behind,
    }
}

drawn! {
    /// How much is transferred between windows: what is short goes through NCCL's own slots.
    pub(super) enum RegisteredLength {
        1 => Short,
        3 => Long,
    }
}

drawn! {
    /// What children of the communicator use.
    pub(super) enum Channels {
        1 => Own,
        1 => Shared,
    }
}

drawn! {
    /// In which order the ranks of a pair make their halves.
    pub(super) enum HalvesOrder {
        1 => SendFirst,
        1 => ReceiveFirst,
    }
}

drawn! {
    /// A half of a transfer.
    pub(super) enum Half {
        1 => Send,
        1 => Receive,
    }
}

drawn! {
    /// The communicators of two transfers that overlap.
    pub(super) enum OverlapComms {
        1 => One,
        1 => Two,
    }
}

drawn! {
    /// In which order the second rank launches.
    pub(super) enum OverlapOrder {
        2 => Same,
        1 => Other,
    }
}

drawn! {
    /// What orders two transfers.
    pub(super) enum Between {
        4 => Nothing,
        1 => Event,
    }
}

drawn! {
    /// Whether what both send can be held until they receive: certainly, or perhaps.
    pub(super) enum HeldLength {
        1 => Certainly,
        1 => Perhaps,
    }
}

drawn! {
    /// How often each sends before it receives.
    pub(super) enum Sends {
        1 => Once,
        1 => Twice,
    }
}

drawn! {
    /// Into how many groups one rank puts its transfers, where the other has one.
    pub(super) enum ManyGroups {
        1 => One,
        3 => Two,
    }
}

drawn! {
    /// Whether the group has a transfer to a third rank, if there is one.
    pub(super) enum ToThird {
        2 => No,
        1 => Yes,
    }
}

impl Fragment {
    pub(super) fn build(self, b: &mut Builder) {
        match self {
            Self::Pair { rank, by, odd, length, received } => {
                let at = b.at(rank, by);
                pair(b, at, odd, length, received);
            }
            Self::Ring { rank, order, into } => {
                let rank = b.rank(rank);
                for r in b.ranks() {
                    ring(b, r, rank, order, into);
                }
            }
            Self::Behind { rank, pair, on, order } => behind(b, rank, pair, on, order),
            Self::Registered { rank, from, into, length } => {
                for r in b.ranks() {
                    let a = b.a(r);
                    b.register(first(r), &a);
                }
                let count = match length {
                    RegisteredLength::Short => 1024,
                    RegisteredLength::Long => 1 << 19,
                };
                let rank = b.rank(rank);
                let other = b.next(rank);
                let (from, into) = (b.either(rank, from), b.either(other, into));
                let sent = half(b, Direction::Send, rank, other, &from, count);
                let received = half(b, Direction::Recv, other, rank, &into, count);
                push(b, first(rank), sent);
                push(b, first(other), received);
            }
            Self::ParentAndChild { rank, channels, order } => parent_and_child(b, rank, channels, order),
            Self::TwoThreads { rank, pair, second, one, two } => {
                let rank = b.rank(rank);
                if pair == Connection::Made {
                    connect(b, rank, 1024);
                }
                let (of_one, of_two) = (first(rank), b.second(rank));
                thread_of_two(b, of_one, one, On::Default);
                thread_of_two(b, of_two, two, second);
            }
            Self::Overlap { rank, comms, second, order, between } => {
                let rank = b.rank(rank);
                overlap(b, rank, Direction::Send, (comms, second, OverlapOrder::Same, between));
                let other = b.next(rank);
                overlap(b, other, Direction::Recv, (comms, second, order, between));
            }
            Self::HeadToHead { rank, length, times } => head_to_head(b, rank, length, times),
            Self::Many { rank, pairs, groups, third } => many(b, rank, 3 + u64::from(pairs.0), groups, third),
        }
    }
}

/// A half on the communicator of all ranks and the default stream.
fn half(b: &mut Builder, way: Direction, rank: u32, peer: u32, buffer: &Operand, count: u64) -> Transfer {
    let (comm, stream) = (b.comm(rank), b.name("default"));
    Transfer { direction: way, comm, peer, buffer: buffer.clone(), count, dtype: Dtype::F32, stream }
}

/// Adds a half; returns the operation, as declarations name it.
fn push(b: &mut Builder, at: At, half: Transfer) -> Operation {
    let items = &b.script.ranks[at.rank as usize];
    let index = items.get(at.thread as usize).map_or(0, Vec::len);
    b.push(at, Op::Transfer(Arc::new(half)));
    Operation { start: ThreadStart(at.thread.into()), index: u32::try_from(index).expect("short") }
}

/// Both halves in both directions in one group: connects the pair, and gives data to compare.
fn connect(b: &mut Builder, rank: u32, count: u64) {
    let other = b.next(rank);
    for (me, peer) in [(rank, other), (other, rank)] {
        let (x, y) = (b.a(me), b.b(me));
        b.group_start(first(me));
        let sent = half(b, Direction::Send, me, peer, &x, count);
        push(b, first(me), sent);
        let received = half(b, Direction::Recv, me, peer, &y, count);
        push(b, first(me), received);
        b.group_end(first(me));
    }
}

fn pair(b: &mut Builder, at: At, odd: OddPair, length: TransferLength, received: Received) {
    let (rank, other) = (at.rank, b.next(at.rank));
    let count = match length {
        TransferLength::Short => 1024,
        TransferLength::Long => 1 << 19,
    };
    let (x, y) = (b.a(rank), b.b(other));
    let mut sent = half(b, Direction::Send, rank, other, &x, count);
    let mut receive = half(b, Direction::Recv, other, rank, &y, count);
    match odd {
        OddPair::HalfCount => sent.count /= 2,
        OddPair::OtherDtype => receive.dtype = Dtype::I32,
        OddPair::NoSuchPeer { beyond } => sent.peer = b.ranks().end + beyond.0,
        OddPair::ReceivesFromItself => receive.peer = other,
        OddPair::ReadTooEarly => receive.stream = b.name("side"),
    }
    push(b, at, sent);
    if odd == OddPair::ReadTooEarly {
        b.reads(first(other), "scan", &y, "default");
    }
    if received == Received::Yes {
        push(b, first(other), receive);
    }
}

/// Sends to the next rank and receives from the one before.
fn ring(b: &mut Builder, r: u32, odd_rank: u32, order: RingOrder, into: RingInto) {
    let is_odd = r == odd_rank;
    let before = (r + b.ranks().end - 1) % b.ranks().end;
    let (next, x, y) = (b.next(r), b.a(r), b.b(r));
    let into = if is_odd && into == RingInto::WhatItSends { &x } else { &y };
    let sent = half(b, Direction::Send, r, next, &x, 1024);
    let received = half(b, Direction::Recv, r, before, into, 1024);
    let grouped = order != RingOrder::Ungrouped;
    if grouped {
        b.group_start(first(r));
    }
    let otherwise = is_odd && order == RingOrder::GroupedOneOtherwise;
    for half in if otherwise { [received, sent] } else { [sent, received] } {
        push(b, first(r), half);
    }
    if grouped {
        b.group_end(first(r));
    }
}

/// A transfer and a collective of one communicator, in one order or in two.
fn behind(b: &mut Builder, rank: Who, pair: Connection, on: On, order: BehindOrder) {
    let rank = b.rank(rank);
    let other = b.next(rank);
    if pair == Connection::Made {
        connect(b, rank, 1024);
    }
    for r in b.ranks() {
        let (comm, x) = (b.comm(r), b.a(r));
        let mut call = b.reduction(&comm, &slice(&x, 2 * MIB, 2 * MIB), 1 << 18);
        call.stream = b.name(on.name());
        if r == rank {
            let sent = half(b, Direction::Send, r, other, &x, 1024);
            push(b, first(r), sent);
            b.launch(first(r), call);
        } else if r == other {
            let y = b.b(r);
            let received = half(b, Direction::Recv, r, rank, &y, 1024);
            match order {
                BehindOrder::Before => {
                    push(b, first(r), received);
                    b.launch(first(r), call);
                }
                BehindOrder::Behind => {
                    b.launch(first(r), call);
                    push(b, first(r), received);
                }
            }
        } else {
            b.launch(first(r), call);
        }
    }
}

/// One rank sends on the parent and receives on the child, the other the other way round.
fn parent_and_child(b: &mut Builder, rank: Who, channels: Channels, order: HalvesOrder) {
    let rank = b.rank(rank);
    let other = b.next(rank);
    for r in b.ranks() {
        let comm = if channels == Channels::Shared { b.comm_that_shares(r) } else { b.comm(r) };
        let name = b.name("child");
        let child = b.push(first(r), Op::Comm(CommOp::Split { comm, name, color: Some(0) }));
        if r != rank && r != other {
            continue;
        }
        let peer = if r == rank { other } else { rank };
        let (x, y) = (b.a(r), b.b(r));
        let mut sent = half(b, Direction::Send, r, peer, &x, 1024);
        let mut received = half(b, Direction::Recv, r, peer, &y, 1024);
        received.stream = b.name("side");
        if r == rank { &mut received } else { &mut sent }.comm = child;
        // What runs on one of them stands first on both ranks.
        let sends_first = (order == HalvesOrder::SendFirst) == (r == rank);
        for half in if sends_first { [sent, received] } else { [received, sent] } {
            push(b, first(r), half);
        }
    }
}

/// What one thread of two transfers with the next rank, and what that one does for it.
fn thread_of_two(b: &mut Builder, at: At, way: Half, on: On) {
    let (rank, other) = (at.rank, b.next(at.rank));
    let (mine, theirs) = if at.thread == 0 { (b.a(rank), b.b(other)) } else { (b.b(rank), b.a(other)) };
    let (way, back) = match way {
        Half::Send => (Direction::Send, Direction::Recv),
        Half::Receive => (Direction::Recv, Direction::Send),
    };
    let mut here = half(b, way, rank, other, &mine, 1024);
    here.stream = b.name(on.name());
    push(b, at, here);
    let part = slice(&theirs, u64::from(at.thread) * MIB, MIB);
    let there = half(b, back, other, rank, &part, 1024);
    push(b, first(other), there);
}

/// The part of one of two ranks in two transfers that are declared to overlap.
fn overlap(
    b: &mut Builder,
    me: u32,
    way: Direction,
    (comms, second, order, between): (OverlapComms, On, OverlapOrder, Between),
) {
    let at = first(me);
    // The rank that begins with a send is the one whose next is the other.
    let (peer, back) = match way {
        Direction::Send => (b.next(me), Direction::Recv),
        Direction::Recv => ((me + b.ranks().end - 1) % b.ranks().end, Direction::Send),
    };
    let (x, y) = (b.a(me), b.b(me));
    let mut one = half(b, way, me, peer, &x, 1024);
    let mut two = half(b, back, me, peer, &y, 1024);
    if comms == OverlapComms::Two {
        two.comm = b.other_comm(me);
    }
    two.stream = b.name(second.name());
    if order == OverlapOrder::Other {
        std::mem::swap(&mut one, &mut two);
    }
    let one = push(b, at, one);
    if between == Between::Event {
        let event = b.name("between");
        b.record(at, event, "default");
        b.wait_event(at, event, "side");
    }
    let other = push(b, at, two);
    b.push(at, Op::Overlap(OverlapOp { one, other }));
}

/// Both send before they receive, with what the platform can hold in between.
fn head_to_head(b: &mut Builder, rank: Who, length: HeldLength, times: Sends) {
    b.config.in_flight = InFlight::OfPlatform;
    let rank = b.rank(rank);
    let other = b.next(rank);
    connect(b, rank, 16);
    let count = match length {
        HeldLength::Certainly => 1 << 18,
        HeldLength::Perhaps => 3 << 18,
    };
    let times = match times {
        Sends::Once => 1,
        Sends::Twice => 2,
    };
    for (me, peer) in [(rank, other), (other, rank)] {
        let (x, y) = (b.a(me), b.b(me));
        for (way, buffer) in [(Direction::Send, &x), (Direction::Recv, &y)] {
            for _ in 0..times {
                let half = half(b, way, me, peer, buffer, count);
                push(b, first(me), half);
            }
        }
    }
}

/// A group of more transfers than certainly make one launch, against one group or two; and one to a third rank.
fn many(b: &mut Builder, rank: Who, pairs: u64, groups: ManyGroups, third: ToThird) {
    b.config.planned_together = Some(2);
    let rank = b.rank(rank);
    let other = b.next(rank);
    let third = Some(b.next(other)).filter(|r| *r != rank && third == ToThird::Yes);
    connect(b, rank, 16);
    for (me, peer) in [(rank, other), (other, rank)] {
        let at = first(me);
        let (x, y) = (b.a(me), b.b(me));
        b.group_start(at);
        if let (Some(third), true) = (third, me == rank) {
            let half = half(b, Direction::Send, me, third, &x, 1024);
            push(b, at, half);
        }
        for (way, buffer) in [(Direction::Send, &x), (Direction::Recv, &y)] {
            if me == rank && groups == ManyGroups::Two && way == Direction::Recv {
                b.group_end(at);
                b.group_start(at);
            }
            for nth in 0..pairs {
                let half = half(b, way, me, peer, &slice(buffer, nth * 4096, 4096), 1024);
                push(b, at, half);
            }
        }
        b.group_end(at);
    }
    if let Some(third) = third {
        let y = b.b(third);
        let half = half(b, Direction::Recv, third, rank, &y, 1024);
        push(b, first(third), half);
    }
}
