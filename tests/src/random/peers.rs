//! Fragments about memory of other ranks: exchanges, handles, copies, flags on streams.
//! Not here: the other fragments.

use rankcheck_model::{
    BarrierOp, ExchangeOp, FlagAct, FlagOp, IpcOp, MemoryKind, MemoryOp, Op, Operand, Rank, StoreOp,
    StreamOp, Test, Token,
};

use super::{Builder, Fragment, MIB, slice};

/// The first kind of these fragments.
pub(super) const FIRST: u8 = 56;
/// How many kinds there are.
pub(super) const KINDS: u8 = 9;

/// What of it a program needs.
#[derive(Debug, Default)]
pub(super) struct Peers {
    /// Each rank's own memory.
    mine: Vec<Operand>,
    /// `maps[rank][peer]`.
    maps: Vec<Vec<Operand>>,
}

impl Builder {
    /// Memory of each rank that all of them have open.
    pub(super) fn set_up_peers(&mut self, fragments: &[Fragment]) {
        let shared = [FIRST, FIRST + 3, FIRST + 4, FIRST + 6, FIRST + 7, FIRST + 8];
        if !fragments.iter().any(|f| shared.contains(&(f.0 % super::KINDS))) {
            return;
        }
        for rank in 0..self.ranks {
            let mine = self.memory(rank, "mine", MIB, MemoryKind::Cuda);
            let maps = self.exchange(rank, "mine", mine.clone());
            self.peers.mine.push(mine);
            self.peers.maps.push(maps);
        }
    }

    fn exchange(&mut self, rank: u32, name: &str, buffer: Operand) -> Vec<Operand> {
        let verb = Op::Exchange(ExchangeOp { members: self.all(), name: self.script.name(name), buffer });
        let first = self.script.push(rank, 0, verb);
        let Operand::Slot(first) = first else { unreachable!("an exchange produces slots") };
        let nth = |nth| Operand::Slot(rankcheck_model::Slot { index: first.index + nth, ..first });
        (0..self.ranks).map(nth).collect()
    }

    /// Memory of a rank as another one, or itself, sees it.
    fn seen(&self, of: u32, by: u32) -> Operand {
        if of == by { &self.peers.mine[of as usize] } else { &self.peers.maps[by as usize][of as usize] }
            .clone()
    }

    fn stream_of(&self, s: u8) -> Token {
        self.script.name(if s.is_multiple_of(2) { "default" } else { "side" })
    }

    fn flag(&mut self, rank: u32, thread: u32, name: &str, act: FlagAct, stream: Option<Token>) {
        let flag = self.script.name(name);
        self.script.push(rank, thread, Op::Flag(FlagOp { flag, act, stream }));
    }

    pub(super) fn peers(&mut self, kind: u8, rank: u32, thread: u32, (q, s): (u8, u8)) {
        let other = (rank + 1) % self.ranks;
        match kind - FIRST {
            0 => self.touch_peer(rank, thread, q, s),
            1 => {
                let name = ["f", "g"][usize::from(s % 2)];
                let value = i64::from(q / 8 % 3);
                let act = match q % 8 {
                    0..=2 => FlagAct::Write(value),
                    3 | 4 => FlagAct::Wait(Test::Equal, value),
                    5 => FlagAct::Wait(Test::AtLeast, value),
                    _ => FlagAct::Swap { from: value, to: (value + 1) % 3 },
                };
                let stream = (s / 2 % 4 != 0).then(|| self.stream_of(s / 8));
                self.flag(rank, thread, name, act, stream);
            }
            2 => self.handles(rank, other, q, s),
            3 => {
                // A free, after the peers have closed or not.
                if q.is_multiple_of(3) {
                    for r in (0..self.ranks).filter(|r| *r != rank) {
                        let mapping = self.seen(rank, r);
                        self.script.push(r, 0, Op::Ipc(IpcOp::Close { mapping }));
                    }
                }
                if q.is_multiple_of(2) {
                    for r in 0..self.ranks {
                        self.script.push(r, 0, Op::Barrier(BarrierOp::Enter { members: self.all() }));
                    }
                }
                let buffer = self.seen(rank, rank);
                self.script.push(rank, thread, Op::Memory(MemoryOp::Free { buffer, after: None }));
                if s.is_multiple_of(2) {
                    let back = self.memory_of(rank, thread, "again", MIB, MemoryKind::Cuda);
                    let name = self.script.name("refill");
                    let stream = self.stream_of(0);
                    let verb = Op::Stream(StreamOp::Kernel {
                        name,
                        reads: [].into(),
                        writes: [back].into(),
                        stream,
                    });
                    self.script.push(rank, thread, verb);
                }
            }
            4 => {
                let mapping = self.seen(other, rank);
                if q.is_multiple_of(2) {
                    self.script.push(rank, 0, Op::Stream(StreamOp::Synchronize { what: Operand::Device }));
                }
                for _ in 0..=(s % 2) {
                    self.script.push(rank, thread, Op::Ipc(IpcOp::Close { mapping: mapping.clone() }));
                }
                if q.is_multiple_of(5) {
                    self.touch_peer(rank, 0, q, s);
                }
            }
            5 => self.exchanges(rank, q),
            6 => self.handshake(rank, other, q, s),
            7 => {
                // A writer, and a reader that expects it, with or without a meeting in between.
                let name = self.script.name(["first", "second"][usize::from(s % 2)]);
                let writes = [self.seen(rank, rank)].into();
                let stream = self.stream_of(0);
                self.script.push(
                    rank,
                    0,
                    Op::Stream(StreamOp::Kernel { name, reads: [].into(), writes, stream }),
                );
                if q % 4 != 0 {
                    self.script.push(rank, 0, Op::Stream(StreamOp::Synchronize { what: Operand::Device }));
                    for r in 0..self.ranks {
                        self.script.push(r, 0, Op::Barrier(BarrierOp::Enter { members: self.all() }));
                    }
                }
                let (buffer, kernel) = (self.seen(rank, other), self.script.name("first"));
                self.script.push(
                    other,
                    0,
                    Op::Memory(MemoryOp::Expect { buffer, kernel, by: Rank(rank), stream }),
                );
            }
            _ => {
                // Two copies between ranks, in a ring or against each other.
                for (by, from) in [(rank, other), (other, rank)] {
                    let half = |of: &Operand, at: u64| slice(of, at * MIB / 2, MIB / 2);
                    let (mine, theirs) = (self.seen(by, by), self.seen(from, by));
                    let put = q.is_multiple_of(2);
                    let (to, src) = if put { (&theirs, &mine) } else { (&mine, &theirs) };
                    let at = u64::from(s.is_multiple_of(3) && by == rank);
                    let verb = Op::Memory(MemoryOp::Copy {
                        to: half(to, at),
                        from: half(src, 1 - at),
                        stream: self.stream_of(q / 2),
                    });
                    self.script.push(by, 0, verb);
                }
            }
        }
    }

    fn touch_peer(&mut self, rank: u32, thread: u32, q: u8, s: u8) {
        let other = (rank + 1) % self.ranks;
        let (mine, theirs) = (self.seen(rank, rank), self.seen(other, rank));
        let stream = self.stream_of(s);
        let name = self.script.name(["touch", "poke"][usize::from(q % 2)]);
        let verb = match q / 2 % 4 {
            0 => Op::Stream(StreamOp::Kernel { name, reads: [theirs].into(), writes: [].into(), stream }),
            1 => Op::Stream(StreamOp::Kernel { name, reads: [mine].into(), writes: [theirs].into(), stream }),
            2 => Op::Memory(MemoryOp::Copy { to: mine, from: theirs, stream }),
            _ => {
                let at = Operand::At { of: theirs.into(), like: slice(&mine, MIB / 4, MIB / 4).into() };
                Op::Memory(MemoryOp::Copy { to: at, from: slice(&mine, 0, MIB / 4), stream })
            }
        };
        self.script.push(rank, thread, verb);
    }

    /// A handle that goes through the store.
    fn handles(&mut self, rank: u32, other: u32, q: u8, s: u8) {
        let kind = if q % 5 == 1 { MemoryKind::Nccl } else { MemoryKind::Cuda };
        let buffer = self.memory(rank, "lent", MIB, kind);
        let handle = self.script.push(rank, 0, Op::Ipc(IpcOp::Export { buffer: buffer.clone() }));
        if q % 5 == 2 {
            self.script.push(rank, 0, Op::Ipc(IpcOp::Open { handle: handle.clone() }));
        }
        let (key, taken) = (self.script.name("handle"), self.script.name("taken"));
        self.script.push(rank, 0, Op::Store(StoreOp::Set { key, value: handle }));
        let handle = self.script.push(other, 0, Op::Store(StoreOp::Get { key }));
        let mapping = self.script.push(other, 0, Op::Ipc(IpcOp::Open { handle }));
        let (name, stream) = (self.script.name("borrow"), self.stream_of(s));
        self.script.push(
            other,
            0,
            Op::Stream(StreamOp::Kernel { name, reads: [mapping.clone()].into(), writes: [].into(), stream }),
        );
        self.script.push(other, 0, Op::Stream(StreamOp::Synchronize { what: Operand::Device }));
        if s % 4 != 1 {
            self.script.push(other, 0, Op::Ipc(IpcOp::Close { mapping }));
        }
        self.script.push(other, 0, Op::Store(StoreOp::Set { key: taken, value: Operand::Int(1) }));
        if s % 3 != 1 {
            self.script.push(rank, 0, Op::Store(StoreOp::Get { key: taken }));
        }
        if q.is_multiple_of(2) {
            self.script.push(rank, 0, Op::Memory(MemoryOp::Free { buffer, after: None }));
        }
    }

    fn exchanges(&mut self, rank: u32, q: u8) {
        for r in 0..self.ranks {
            let bent = r == rank;
            if bent && q % 6 == 1 {
                continue;
            }
            let len = if bent && q % 6 == 2 { 4 * MIB } else { MIB };
            let kind = if bent && q % 6 == 3 { MemoryKind::Nccl } else { MemoryKind::Cuda };
            let x = self.memory(r, "given", len, kind);
            let x = if bent && q % 6 == 4 { slice(&x, MIB / 2, MIB / 2) } else { slice(&x, 0, MIB / 2) };
            let maps = self.exchange(r, if bent && q % 6 == 5 { "other" } else { "given" }, x);
            let name = self.script.name("gather");
            let stream = self.stream_of(0);
            self.script.push(
                r,
                0,
                Op::Stream(StreamOp::Kernel { name, reads: maps.into(), writes: [].into(), stream }),
            );
        }
    }

    /// A producer signals on its stream; a consumer waits, copies, and gives the buffer back.
    fn handshake(&mut self, rank: u32, other: u32, q: u8, s: u8) {
        let stream = self.stream_of(0);
        let on = Some(stream);
        let writes = [self.seen(rank, rank)].into();
        let kernel = self.script.name("produce");
        self.script.push(
            rank,
            0,
            Op::Stream(StreamOp::Kernel { name: kernel, reads: [].into(), writes, stream }),
        );
        self.flag(rank, 0, "full", FlagAct::Swap { from: 0, to: 1 }, on);
        let waits =
            if s.is_multiple_of(2) { FlagAct::Wait(Test::AtLeast, 1) } else { FlagAct::Wait(Test::Equal, 1) };
        if q % 4 != 1 {
            self.flag(other, 0, "full", waits, if s % 4 < 3 { on } else { None });
        }
        let (to, from) = (self.seen(other, other), self.seen(rank, other));
        self.script.push(other, 0, Op::Memory(MemoryOp::Copy { to: to.clone(), from, stream }));
        self.script.push(
            other,
            0,
            Op::Memory(MemoryOp::Expect { buffer: to, kernel, by: Rank(rank), stream }),
        );
        if q % 4 != 2 {
            self.flag(other, 0, "full", FlagAct::Write(0), on);
        }
        if q % 4 != 3 {
            self.flag(rank, 0, "full", FlagAct::Wait(Test::Equal, 0), on);
        }
        let writes = [self.seen(rank, rank)].into();
        let name = self.script.name("produce again");
        self.script.push(rank, 0, Op::Stream(StreamOp::Kernel { name, reads: [].into(), writes, stream }));
    }
}
