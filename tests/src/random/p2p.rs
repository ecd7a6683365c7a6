//! Fragments of point-to-point: pairs, rings, exchanges beside collectives, shared channels, declared overlap.
//!
//! Not here: what is compared.

use std::sync::Arc;

use rankcheck_model::{
    CommOp, Direction, Dtype, Entry, EventOp, GroupOp, Op, Operand, Operation, OverlapOp, Resources,
    StreamOp, Transfer, WindowFlags,
};

use super::{Builder, Fragment, MIB, slice};

/// The kinds of these fragments.
pub(super) const KINDS: [u8; 9] = [45, 46, 47, 48, 49, 50, 51, 52, super::MANY];

/// What splits of the communicator of these fragments use: one of them says so.
pub(super) fn children(fragments: &[Fragment]) -> Resources {
    let shared = |fragment: &Fragment| fragment.0 % super::KINDS == 49 && fragment.2.is_multiple_of(2);
    if fragments.iter().any(shared) { Resources::Shared } else { Resources::Own }
}

impl Builder {
    pub(super) fn transfers(&mut self, kind: u8, rank: u32, thread: u32, (q, s): (u8, u8)) {
        match kind {
            45 => self.pair(rank, thread, q, s),
            46 => self.ring(rank, q, s),
            47 => self.behind(rank, q, s),
            48 => self.registered_pair(rank, q, s),
            49 => self.shared_channels(rank, s),
            50 => self.pair_of_threads(rank, q, s),
            51 => self.overlapping(rank, q, s),
            52 => self.head_to_head(rank, q, s),
            _ => self.many(rank, q, s),
        }
    }

    fn half(&self, direction: Direction, (rank, peer): (u32, u32), buffer: &Operand, count: u64) -> Transfer {
        Transfer {
            direction,
            comm: self.comms[rank as usize].clone(),
            peer,
            buffer: buffer.clone(),
            count,
            dtype: Dtype::F32,
            stream: self.script.name("default"),
        }
    }

    /// Gives the operation, as declarations name it.
    fn push_half(&mut self, rank: u32, thread: u32, half: Transfer) -> Operation {
        let index = u32::try_from(self.script.ranks[rank as usize][thread as usize].len()).expect("short");
        self.script.push(rank, thread, Op::Transfer(Arc::new(half)));
        Operation { entry: Entry(thread), index }
    }

    fn next(&self, rank: u32) -> u32 {
        (rank + 1) % self.ranks
    }

    /// Both halves in both directions in one group: connects the pair, and gives data to compare.
    fn grouped(&mut self, rank: u32, count: u64) {
        let other = self.next(rank);
        for (me, peer) in [(rank, other), (other, rank)] {
            self.script.push(me, 0, Op::Group(GroupOp::Start));
            let (a, b) = (self.a[me as usize].clone(), self.b[me as usize].clone());
            let halves = [
                self.half(Direction::Send, (me, peer), &a, count),
                self.half(Direction::Recv, (me, peer), &b, count),
            ];
            for half in halves {
                self.push_half(me, 0, half);
            }
            self.script.push(me, 0, Op::Group(GroupOp::End));
        }
    }

    /// One transfer with something bent.
    fn pair(&mut self, rank: u32, thread: u32, q: u8, s: u8) {
        let other = self.next(rank);
        let count = if s.is_multiple_of(2) { 1024 } else { 1 << 19 };
        let (a, b) = (self.a[rank as usize].clone(), self.b[other as usize].clone());
        let mut sent = self.half(Direction::Send, (rank, other), &a, count);
        let mut received = self.half(Direction::Recv, (other, rank), &b, count);
        match q % 8 {
            0 | 5 => sent.count /= 2,
            1 | 6 => received.dtype = Dtype::I32,
            2 | 7 => sent.peer = self.ranks + u32::from(s % 3),
            3 => received.peer = other,
            4 => received.stream = self.script.name("side"),
            _ => {}
        }
        self.push_half(rank, thread, sent);
        if q % 8 == 4 {
            let name = self.script.name("scan");
            let (reads, stream) = ([b].into(), self.script.name("default"));
            self.script.push(
                other,
                0,
                Op::Stream(StreamOp::Kernel { name, reads, writes: [].into(), stream }),
            );
        }
        if s % 4 != 3 {
            self.push_half(other, 0, received);
        }
    }

    /// Every rank sends to the next and receives from the one before.
    fn ring(&mut self, rank: u32, q: u8, s: u8) {
        for r in 0..self.ranks {
            let before = (r + self.ranks - 1) % self.ranks;
            let (a, b) = (self.a[r as usize].clone(), self.b[r as usize].clone());
            let sent = self.half(Direction::Send, (r, self.next(r)), &a, 1024);
            let into = if r == rank && s.is_multiple_of(5) { &a } else { &b };
            let received = self.half(Direction::Recv, (r, before), into, 1024);
            let grouped = !q.is_multiple_of(3);
            if grouped {
                self.script.push(r, 0, Op::Group(GroupOp::Start));
            }
            let first = if q % 3 == 2 && r == rank { [received, sent] } else { [sent, received] };
            for half in first {
                self.push_half(r, 0, half);
            }
            if grouped {
                self.script.push(r, 0, Op::Group(GroupOp::End));
            }
        }
    }

    /// A transfer and a collective of one communicator, in one order or in two.
    fn behind(&mut self, rank: u32, q: u8, s: u8) {
        let other = self.next(rank);
        if q.is_multiple_of(2) {
            self.grouped(rank, 1024);
        }
        for r in 0..self.ranks {
            let (comm, a, b) =
                (self.comms[r as usize].clone(), self.a[r as usize].clone(), self.b[r as usize].clone());
            let half = if r == rank {
                Some(self.half(Direction::Send, (r, other), &a, 1024))
            } else if r == other {
                Some(self.half(Direction::Recv, (r, rank), &b, 1024))
            } else {
                None
            };
            let stream = if q % 4 < 2 { "default" } else { "side" };
            let part = slice(&a, 2 * MIB, 2 * MIB);
            let call = Op::Collective(Arc::new(self.reduce(&comm, &part, 1 << 18, stream)));
            let first = r == rank || (r == other && s.is_multiple_of(3));
            let mut after = Some(call);
            if !first {
                self.script.push(r, 0, after.take().expect("just made"));
            }
            if let Some(half) = half {
                self.push_half(r, 0, half);
            }
            if let Some(call) = after {
                self.script.push(r, 0, call);
            }
        }
    }

    /// A transfer of which one end, both or none are registered.
    fn registered_pair(&mut self, rank: u32, q: u8, s: u8) {
        for r in 0..self.ranks {
            self.register(r, 0, self.a[r as usize].clone(), WindowFlags::CollSymmetric);
        }
        let other = self.next(rank);
        let count = if s.is_multiple_of(4) { 1024 } else { 1 << 19 };
        let from = if q.is_multiple_of(2) { &self.a } else { &self.b }[rank as usize].clone();
        let into = if q % 4 < 2 { &self.b } else { &self.a }[other as usize].clone();
        let sent = self.half(Direction::Send, (rank, other), &from, count);
        let received = self.half(Direction::Recv, (other, rank), &into, count);
        self.push_half(rank, 0, sent);
        self.push_half(other, 0, received);
    }

    /// Parent and child, with one set of channels or two ([`children`]), on two streams.
    fn shared_channels(&mut self, rank: u32, s: u8) {
        let name = self.script.name("child");
        let other = self.next(rank);
        for r in 0..self.ranks {
            let comm = self.comms[r as usize].clone();
            let verb = Op::Comm(CommOp::Split { comm, name, color: Some(0) });
            let child = self.script.push(r, 0, verb);
            if r != rank && r != other {
                continue;
            }
            let peer = if r == rank { other } else { rank };
            let (a, b) = (self.a[r as usize].clone(), self.b[r as usize].clone());
            let (sends, receives) = (
                self.half(Direction::Send, (r, peer), &a, 1024),
                Transfer {
                    stream: self.script.name("side"),
                    ..self.half(Direction::Recv, (r, peer), &b, 1024)
                },
            );
            let (sends, receives) = if r == rank {
                (sends, Transfer { comm: child, ..receives })
            } else {
                (Transfer { comm: child, ..sends }, receives)
            };
            let halves =
                if s.is_multiple_of(2) == (r == rank) { [sends, receives] } else { [receives, sends] };
            for half in halves {
                self.push_half(r, 0, half);
            }
        }
    }

    /// Two threads of a rank transfer with one other.
    fn pair_of_threads(&mut self, rank: u32, q: u8, s: u8) {
        let other = self.next(rank);
        if q.is_multiple_of(2) {
            self.grouped(rank, 1024);
        }
        for (turn, thread) in [(0_u32, 0), (1, 1)] {
            let buffer = if turn == 0 { &self.a } else { &self.b }[rank as usize].clone();
            let direction = if s >> turn & 1 == 0 { Direction::Send } else { Direction::Recv };
            let mut half = self.half(direction, (rank, other), &buffer, 1024);
            if q % 4 < 2 && turn == 1 {
                half.stream = self.script.name("side");
            }
            self.push_half(rank, thread, half);
            let back = if direction == Direction::Send { Direction::Recv } else { Direction::Send };
            let into = if turn == 0 { &self.b } else { &self.a }[other as usize].clone();
            let part = slice(&into, u64::from(turn) * MIB, MIB);
            let half = self.half(back, (other, rank), &part, 1024);
            self.push_half(other, 0, half);
        }
    }

    /// Two transfers that are declared to overlap, on one communicator or two, one stream or two.
    fn overlapping(&mut self, rank: u32, q: u8, s: u8) {
        let other = self.next(rank);
        let swapped = s.is_multiple_of(3);
        for (me, peer) in [(rank, other), (other, rank)] {
            let (a, b) = (self.a[me as usize].clone(), self.b[me as usize].clone());
            let there = if me == rank { Direction::Send } else { Direction::Recv };
            let back = if me == rank { Direction::Recv } else { Direction::Send };
            let mut one = self.half(there, (me, peer), &a, 1024);
            let mut two = self.half(back, (me, peer), &b, 1024);
            if q.is_multiple_of(2) {
                two.comm = self.others[me as usize].clone();
            }
            if q % 4 < 2 {
                two.stream = self.script.name("side");
            }
            if swapped && me == other {
                std::mem::swap(&mut one, &mut two);
            }
            let one = self.push_half(me, 0, one);
            let (stream, side, event) =
                (self.script.name("default"), self.script.name("side"), self.script.name("between"));
            if s.is_multiple_of(5) {
                self.script.push(me, 0, Op::Event(EventOp { event, stream }));
                self.script.push(me, 0, Op::Stream(StreamOp::Wait { stream: side, event }));
            }
            let other = self.push_half(me, 0, two);
            self.script.push(me, 0, Op::Overlap(OverlapOp { one, other }));
        }
    }

    /// A group of more transfers than certainly make one launch, against one group or two; and one to a third rank.
    fn many(&mut self, rank: u32, q: u8, s: u8) {
        let (other, pairs) = (self.next(rank), 3 + u64::from(s % 2));
        let third = self.next(other);
        let to_third = third != rank && q.is_multiple_of(3);
        self.grouped(rank, 16);
        for (me, peer) in [(rank, other), (other, rank)] {
            let apart = me == rank && !q.is_multiple_of(4);
            self.script.push(me, 0, Op::Group(GroupOp::Start));
            if me == rank && to_third {
                let half = self.half(Direction::Send, (me, third), &self.a[me as usize].clone(), 1024);
                self.push_half(me, 0, half);
            }
            for direction in [Direction::Send, Direction::Recv] {
                if apart && direction == Direction::Recv {
                    self.script.push(me, 0, Op::Group(GroupOp::End));
                    self.script.push(me, 0, Op::Group(GroupOp::Start));
                }
                let of = if direction == Direction::Send { &self.a } else { &self.b }[me as usize].clone();
                for nth in 0..pairs {
                    let half = self.half(direction, (me, peer), &slice(&of, nth * 4096, 4096), 1024);
                    self.push_half(me, 0, half);
                }
            }
            self.script.push(me, 0, Op::Group(GroupOp::End));
        }
        if to_third {
            let half = self.half(Direction::Recv, (third, rank), &self.b[third as usize].clone(), 1024);
            self.push_half(third, 0, half);
        }
    }

    /// Both send before they receive, with what the platform can hold in between.
    fn head_to_head(&mut self, rank: u32, q: u8, s: u8) {
        let other = self.next(rank);
        self.grouped(rank, 16);
        let count = if q.is_multiple_of(2) { 1 << 18 } else { 3 << 18 };
        for (me, peer) in [(rank, other), (other, rank)] {
            let (a, b) = (self.a[me as usize].clone(), self.b[me as usize].clone());
            for _ in 0..=s % 2 {
                let half = self.half(Direction::Send, (me, peer), &a, count);
                self.push_half(me, 0, half);
            }
            for _ in 0..=s % 2 {
                let half = self.half(Direction::Recv, (me, peer), &b, count);
                self.push_half(me, 0, half);
            }
        }
    }
}
