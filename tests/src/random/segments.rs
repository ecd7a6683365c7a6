//! Fragments about pools whose free segments lie in an order that nobody knows: which of them comes back may show, or not.
//! They make many orders, so only programs of their own family have them.
//! Not here: other fragments about pools ([`super::pool`]).

use std::sync::Arc;

use rankcheck_model::{
    DataOrigin, ListOp, Made, MapOp, MapOrder, MemoryKind, MemoryOp, Op, Operand, PoolOp, Question, Rank,
    Release, SizeClasses, ThreadOp, TieBreak,
};

use super::builder::{At, Builder, MIB, first};
use super::draw::{Below, Who, drawn};

drawn! {
    /// A rank takes two or three blocks, gives them back, and takes some again.
    pub(super) enum Fragment {
        2 => Apart { rank: Who, blocks: Below<2>, touched: Touched, shows: Shows, again: Again },
        /// All ranks do.
        1 => OnAll { blocks: Below<2>, touched: Touched, shows: Shows, again: Again },
        /// What is left behind is not known either.
        1 => Unknown { rank: Who, shows: Shows, again: Again },
    }
}

drawn! {
    /// What happens to the first block before it goes back.
    pub(super) enum Touched {
        4 => Nothing,
        1 => Written,
        1 => WrittenAndSynchronized,
        /// Its buffer stays in a list.
        1 => Listed,
        /// Its address is a key of a map.
        1 => Mapped,
        /// Its address is in the store.
        1 => Stored,
        /// All ranks have its handle.
        1 => Exchanged,
        /// All ranks register it.
        1 => Registered,
        1 => NeverFreed,
    }
}

drawn! {
    /// Who can tell which segment came back.
    pub(super) enum Shows {
        4 => Nobody,
        /// The program compares addresses.
        2 => Address,
        /// What is found names the segment: the block is used after it was freed.
        1 => UseAfterFree,
        1 => SecondFree,
        /// Segments are given up in the order in which they were made.
        1 => Trimmed,
        /// A map is walked in the order of addresses.
        1 => Walked,
        /// What a kernel wrote is expected.
        1 => Expected,
    }
}

drawn! {
    /// What is taken once more.
    pub(super) enum Again {
        2 => Nothing,
        1 => Other,
        1 => BothAndFreed,
    }
}

impl Fragment {
    pub(super) fn build(self, b: &mut Builder) {
        match self {
            Self::Apart { rank, blocks, touched, shows, again } => {
                let rank = b.rank(rank);
                b.all_but(rank).iter().for_each(|other| takes_part(b, first(other.0), touched));
                taken(b, first(rank), (blocks, touched), shows, again);
            }
            Self::OnAll { blocks, touched, shows, again } => {
                b.ranks().for_each(|rank| taken(b, first(rank), (blocks, touched), shows, again));
            }
            Self::Unknown { rank, shows, again } => {
                let at = first(b.rank(rank));
                declare(b, at);
                let (pool, sizes_bytes) = (b.name("addressed"), [2 * MIB].into());
                b.push(at, Op::Pool(PoolOp::Havoc { pool, max: 2, sizes_bytes }));
                let old = take(b, at);
                b.free(at, &old);
                look(b, at, &old, shows, again);
            }
        }
    }
}

fn declare(b: &mut Builder, at: At) {
    let (pool, classes, memory) = (b.name("addressed"), SizeClasses::Exact, MemoryKind::Nccl);
    b.push(at, Op::Pool(PoolOp::Declare { pool, classes, tie: TieBreak::Address, memory }));
}

fn take(b: &mut Builder, at: At) -> Operand {
    let (pool, name, stream) = (b.name("addressed"), b.fresh("s"), b.name("default"));
    b.push(at, Op::Pool(PoolOp::Alloc { pool, name, len_bytes: 2 * MIB, stream }))
}

/// What other ranks do where all have to.
fn takes_part(b: &mut Builder, at: At, touched: Touched) {
    match touched {
        Touched::Exchanged => {
            let own = b.a(at.rank);
            b.exchange(at.rank, "lent", own);
        }
        Touched::Registered => {
            let own = b.a(at.rank);
            b.register(at, &own);
        }
        Touched::Nothing
        | Touched::Written
        | Touched::WrittenAndSynchronized
        | Touched::Listed
        | Touched::Mapped
        | Touched::Stored
        | Touched::NeverFreed => {}
    }
}

fn taken(b: &mut Builder, at: At, (blocks, touched): (Below<2>, Touched), shows: Shows, again: Again) {
    declare(b, at);
    let taken: Vec<Operand> = (0..2 + blocks.0).map(|_| take(b, at)).collect();
    let own = &taken[0];
    let address = Operand::Address(Arc::new(own.clone()));
    match touched {
        Touched::Nothing | Touched::NeverFreed => {}
        Touched::Written => b.writes(at, "fill", own, "default"),
        Touched::WrittenAndSynchronized => {
            b.writes(at, "fill", own, "default");
            b.synchronize(at, Operand::Device);
        }
        Touched::Listed => {
            let list = b.name("taken");
            b.push(at, Op::List(ListOp::Push { list, value: own.clone() }));
        }
        Touched::Mapped => {
            let map = b.name("by address");
            b.push(at, Op::Map(MapOp::Put { map, key: address, value: Operand::Int(1) }));
        }
        Touched::Stored => b.store(at, "address", address),
        Touched::Exchanged => _ = b.exchange(at.rank, "lent", own.clone()),
        Touched::Registered => _ = b.register(at, &Operand::Segment(Arc::new(own.clone()))),
    }
    let freed = if matches!(touched, Touched::NeverFreed) { &taken[1..] } else { &taken[..] };
    freed.iter().for_each(|block| b.free(at, block));
    look(b, at, own, shows, again);
}

/// Takes a block, of which it may show where it lies.
fn look(b: &mut Builder, at: At, old: &Operand, shows: Shows, again: Again) {
    let new = take(b, at);
    match shows {
        Shows::Nobody => {}
        Shows::Address => {
            let start = |of: &Operand| Operand::Address(Arc::new(of.clone()));
            let label = b.name("the same");
            b.ask(
                at,
                Question::Equal(start(&new), start(old)),
                vec![Op::Thread(ThreadOp::Exit { code: label })],
            );
        }
        Shows::UseAfterFree => {
            b.free(at, &new);
            b.writes(at, "late", &new, "default");
        }
        Shows::SecondFree => {
            b.free(at, &new);
            b.free(at, &new);
        }
        Shows::Trimmed => {
            let pool = b.name("addressed");
            b.push(at, Op::Pool(PoolOp::Trim { pool, release: Release::Now }));
        }
        Shows::Walked => {
            let (map, order) = (b.name("by address"), MapOrder::Address);
            let key = Operand::Address(Arc::new(new));
            b.push(at, Op::Map(MapOp::Put { map, key, value: Operand::Int(2) }));
            b.ask_last(at, Question::MapItems { map, order });
        }
        Shows::Expected => {
            let (origin, made) = (DataOrigin::Kernel(b.name("fill")), Made::By(Rank(at.rank)));
            let (buffer, stream) = (new, b.name("default"));
            b.push(at, Op::Memory(MemoryOp::Expect { buffer, origin, made, stream }));
        }
    }
    match again {
        Again::Nothing => {}
        Again::Other => _ = take(b, at),
        Again::BothAndFreed => {
            let (one, other) = (take(b, at), take(b, at));
            b.free(at, &one);
            b.free(at, &other);
            take(b, at);
        }
    }
}
