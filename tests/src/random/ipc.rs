//! Fragments about memory of other ranks: handles, mappings, copies, and flags between them.
//! Not here: the exchange that makes mappings.

use rankcheck_model::{
    DataOrigin, FlagAct, IpcOp, Made, MemoryKind, MemoryOp, Op, Operand, Rank, StreamOp, Test,
};

use super::builder::{At, Builder, MIB, first, slice};
use super::draw::{By, On, Who, drawn};
use super::window::Times;

drawn! {
    /// A piece of protocol that uses memory of other ranks.
    pub(super) enum Fragment {
        4 => Touch { rank: Who, by: By, how: TouchOfPeer, on: On },
        /// A handle that goes through the store.
        17 => Handle { rank: Who, lent: Lent, closes: Closes, on: On, owner: LenderThen },
        /// A free, after the peers have closed or not.
        4 => Free { rank: Who, by: By, peers: PeersBefore, meet: Meet, then: AfterFreeOfMapped },
        /// A peer closes, with or without waiting for its own work, and perhaps reads on.
        4 => Close { rank: Who, by: By, waits: WaitBefore, times: Times, then: AfterClose },
        /// A producer signals on its stream; a consumer waits, copies, and gives the buffer back.
        4 => Handshake { rank: Who, forgets: Forgets, waits: HandshakeWait },
        /// A writer, and a reader that expects it.
        7 => Expect { rank: Who, written: Written, between: BetweenTheTwo },
        /// Two copies between ranks, in a ring or against each other.
        4 => Copies { rank: Who, way: CopyWay, on: On, places: CopyPlaces },
    }
}

drawn! {
    /// How a rank uses memory of the next.
    pub(super) enum TouchOfPeer {
        1 => Read,
        1 => Write,
        1 => CopyAll,
        1 => CopyAtSamePlace,
    }
}

drawn! {
    /// Memory that is lent, and who opens it.
    pub(super) enum Lent {
        3 => Cuda,
        1 => Nccl,
        1 => CuMem,
        1 => CudaAndOpenedByOwner,
    }
}

drawn! {
    /// Whether the borrower closes the mapping.
    pub(super) enum Closes {
        3 => Yes,
        1 => Never,
    }
}

drawn! {
    /// What the lender does.
    pub(super) enum LenderThen {
        1 => WaitsAndKeeps,
        2 => WaitsAndFrees,
        2 => FreesAtOnce,
    }
}

drawn! {
    /// Whether the peers close their mappings.
    pub(super) enum PeersBefore {
        1 => Close,
        2 => KeepOpen,
    }
}

drawn! {
    /// Whether all meet before the owner goes on.
    pub(super) enum Meet {
        1 => AtBarrier,
        1 => Never,
    }
}

drawn! {
    /// What the owner does with the memory that it gets then.
    pub(super) enum AfterFreeOfMapped {
        1 => Nothing,
        1 => Refills,
    }
}

drawn! {
    /// Whether a rank waits for its work.
    pub(super) enum WaitBefore {
        1 => Synchronizes,
        1 => Nothing,
    }
}

drawn! {
    /// What a rank does with a mapping that it closed.
    pub(super) enum AfterClose {
        4 => Nothing,
        1 => Touches { how: TouchOfPeer, on: On },
    }
}

drawn! {
    /// Which step of a handshake is left out.
    pub(super) enum Forgets {
        1 => Nothing,
        1 => TheFirstWait,
        1 => ToGiveBack,
        1 => TheSecondWait,
    }
}

drawn! {
    /// How the consumer waits.
    pub(super) enum HandshakeWait {
        2 => AtLeastOnStream,
        1 => EqualOnStream,
        1 => EqualOnHost,
    }
}

drawn! {
    /// Whether what is expected is what was written.
    pub(super) enum Written {
        1 => AsExpected,
        1 => Otherwise,
    }
}

drawn! {
    /// What orders a writer and a reader.
    pub(super) enum BetweenTheTwo {
        3 => Barrier,
        1 => Nothing,
    }
}

drawn! {
    /// In which direction memory is copied.
    pub(super) enum CopyWay {
        1 => Put,
        1 => Get,
    }
}

drawn! {
    /// Which halves of the buffers two copies use.
    pub(super) enum CopyPlaces {
        2 => Alike,
        1 => OneOtherwise,
    }
}

impl Fragment {
    pub(super) fn build(self, b: &mut Builder) {
        match self {
            Self::Touch { rank, by, how, on } => {
                let at = b.at(rank, by);
                touch(b, at, how, on);
            }
            Self::Handle { rank, lent, closes, on, owner } => handle(b, rank, lent, (closes, on), owner),
            Self::Free { rank, by, peers, meet, then } => {
                let at = b.at(rank, by);
                free(b, at, peers, meet, then);
            }
            Self::Close { rank, by, waits, times, then } => {
                let at = b.at(rank, by);
                let mapping = b.mapped(b.next(at.rank), at.rank);
                if waits == WaitBefore::Synchronizes {
                    b.synchronize(first(at.rank), Operand::Device);
                }
                for _ in 0..if times == Times::Twice { 2 } else { 1 } {
                    b.push(at, Op::Ipc(IpcOp::Close { mapping: mapping.clone() }));
                }
                match then {
                    AfterClose::Nothing => {}
                    AfterClose::Touches { how, on } => touch(b, first(at.rank), how, on),
                }
            }
            Self::Handshake { rank, forgets, waits } => handshake(b, rank, forgets, waits),
            Self::Expect { rank, written, between } => expect(b, rank, written, between),
            Self::Copies { rank, way, on, places } => {
                let rank = b.rank(rank);
                let other = b.next(rank);
                copy(b, rank, other, way, on, u64::from(places == CopyPlaces::OneOtherwise));
                copy(b, other, rank, way, on, 0);
            }
        }
    }
}

fn touch(b: &mut Builder, at: At, how: TouchOfPeer, on: On) {
    let (mine, theirs) = (b.mapped(at.rank, at.rank), b.mapped(b.next(at.rank), at.rank));
    let stream = b.name(on.name());
    match how {
        TouchOfPeer::Read => b.reads(at, "touch", &theirs, on.name()),
        TouchOfPeer::Write => {
            let (name, reads, writes) = (b.name("poke"), [mine].into(), [theirs].into());
            b.push(at, Op::Stream(StreamOp::Kernel { name, reads, writes, stream }));
        }
        TouchOfPeer::CopyAll => {
            b.push(at, Op::Memory(MemoryOp::Copy { to: mine, from: theirs, stream }));
        }
        TouchOfPeer::CopyAtSamePlace => {
            let like = slice(&mine, MIB / 4, MIB / 4).into();
            let (to, from) = (Operand::At { of: theirs.into(), like }, slice(&mine, 0, MIB / 4));
            b.push(at, Op::Memory(MemoryOp::Copy { to, from, stream }));
        }
    }
}

fn handle(b: &mut Builder, rank: Who, lent: Lent, (closes, on): (Closes, On), owner: LenderThen) {
    let rank = b.rank(rank);
    let (lender, borrower) = (first(rank), first(b.next(rank)));
    let kind = match lent {
        Lent::Nccl => MemoryKind::Nccl,
        Lent::CuMem => MemoryKind::CuMem,
        Lent::Cuda | Lent::CudaAndOpenedByOwner => MemoryKind::Cuda,
    };
    let buffer = b.alloc(lender, "lent", MIB, kind);
    let handle = b.push(lender, Op::Ipc(IpcOp::Export { buffer: buffer.clone() }));
    if lent == Lent::CudaAndOpenedByOwner {
        b.push(lender, Op::Ipc(IpcOp::Open { handle: handle.clone() }));
    }
    b.store(lender, "handle", handle);
    let handle = b.fetch(borrower, "handle");
    let mapping = b.push(borrower, Op::Ipc(IpcOp::Open { handle }));
    b.reads(borrower, "borrow", &mapping, on.name());
    b.synchronize(borrower, Operand::Device);
    if closes == Closes::Yes {
        b.push(borrower, Op::Ipc(IpcOp::Close { mapping }));
    }
    b.store(borrower, "taken", Operand::Int(1));
    if owner != LenderThen::FreesAtOnce {
        b.fetch(lender, "taken");
    }
    if owner != LenderThen::WaitsAndKeeps {
        b.free(lender, &buffer);
    }
}

fn free(b: &mut Builder, at: At, peers: PeersBefore, meet: Meet, then: AfterFreeOfMapped) {
    if peers == PeersBefore::Close {
        for r in b.ranks().filter(|r| *r != at.rank) {
            let mapping = b.mapped(at.rank, r);
            b.push(first(r), Op::Ipc(IpcOp::Close { mapping }));
        }
    }
    if meet == Meet::AtBarrier {
        for r in b.ranks() {
            b.barrier(first(r));
        }
    }
    let buffer = b.mapped(at.rank, at.rank);
    b.free(at, &buffer);
    if then == AfterFreeOfMapped::Refills {
        let back = b.alloc(at, "again", MIB, MemoryKind::Cuda);
        b.writes(at, "refill", &back, "default");
    }
}

fn handshake(b: &mut Builder, rank: Who, forgets: Forgets, waits: HandshakeWait) {
    let rank = b.rank(rank);
    let (producer, consumer) = (first(rank), first(b.next(rank)));
    let on = Some("default");
    let produced = b.mapped(rank, rank);
    b.writes(producer, "produce", &produced, "default");
    b.flag(producer, "full", FlagAct::Swap { from: 0, to: 1 }, on);
    if forgets != Forgets::TheFirstWait {
        let (test, on) = match waits {
            HandshakeWait::AtLeastOnStream => (Test::AtLeast, on),
            HandshakeWait::EqualOnStream => (Test::Equal, on),
            HandshakeWait::EqualOnHost => (Test::Equal, None),
        };
        b.flag(consumer, "full", FlagAct::Wait(test, 1), on);
    }
    let (to, from) = (b.mapped(consumer.rank, consumer.rank), b.mapped(rank, consumer.rank));
    let (stream, kernel) = (b.name("default"), b.name("produce"));
    b.push(consumer, Op::Memory(MemoryOp::Copy { to: to.clone(), from, stream }));
    b.push(
        consumer,
        Op::Memory(MemoryOp::Expect {
            buffer: to,
            origin: DataOrigin::Kernel(kernel),
            made: Made::By(Rank(rank)),
            stream,
        }),
    );
    if forgets != Forgets::ToGiveBack {
        b.flag(consumer, "full", FlagAct::Write(0), on);
    }
    if forgets != Forgets::TheSecondWait {
        b.flag(producer, "full", FlagAct::Wait(Test::Equal, 0), on);
    }
    b.writes(producer, "produce again", &produced, "default");
}

fn expect(b: &mut Builder, rank: Who, written: Written, between: BetweenTheTwo) {
    let rank = b.rank(rank);
    let (writer, reader) = (first(rank), first(b.next(rank)));
    let mine = b.mapped(rank, rank);
    let kernel = match written {
        Written::AsExpected => "first",
        Written::Otherwise => "second",
    };
    b.writes(writer, kernel, &mine, "default");
    if between == BetweenTheTwo::Barrier {
        b.synchronize(writer, Operand::Device);
        for r in b.ranks() {
            b.barrier(first(r));
        }
    }
    let (buffer, kernel, stream) = (b.mapped(rank, reader.rank), b.name("first"), b.name("default"));
    b.push(
        reader,
        Op::Memory(MemoryOp::Expect {
            buffer,
            origin: DataOrigin::Kernel(kernel),
            made: Made::By(Rank(rank)),
            stream,
        }),
    );
}

/// Copies one half of a buffer to the other half of another: halves 0 and 1, from the second into the first unless
/// `into` says otherwise.
fn copy(b: &mut Builder, by: u32, peer: u32, way: CopyWay, on: On, into: u64) {
    let half = |of: &Operand, nth: u64| slice(of, nth * MIB / 2, MIB / 2);
    let (mine, theirs) = (b.mapped(by, by), b.mapped(peer, by));
    let (to, from) = match way {
        CopyWay::Put => (&theirs, &mine),
        CopyWay::Get => (&mine, &theirs),
    };
    let (to, from, stream) = (half(to, into), half(from, 1 - into), b.name(on.name()));
    b.push(first(by), Op::Memory(MemoryOp::Copy { to, from, stream }));
}
