//! Fragments about caching pools.
//! Not here: pools of graphs.

use rankcheck_model::{
    MemoryKind, MemoryOp, Op, Operand, PoolOp, Question, Release, SizeClasses, ThreadOp, TieBreak, Token,
};

use super::builder::{At, Builder, MIB, first};
use super::draw::{By, On, Who, drawn};

drawn! {
    /// A piece of protocol with a pool.
    pub(super) enum Fragment {
        5 => Alloc { rank: Who, by: By, tie: PoolTie, then: AfterAlloc },
        /// A block that one thread takes and frees, and one that another takes.
        6 => AllocBeside { rank: Who, tie: PoolTie, then: AfterAlloc },
        /// A past of the pool that nobody knows, beside a thread that takes a block.
        2 => HavocBeside { rank: Who, tie: PoolTie },
        /// Two threads take blocks and write them.
        6 => BlocksOfTwo { rank: Who, one: Block, two: Block },
    }
}

drawn! {
    /// Which of several free blocks is taken.
    pub(super) enum PoolTie {
        1 => Address,
        1 => Counter,
    }
}

drawn! {
    /// What happens to a block.
    pub(super) enum AfterAlloc {
        1 => Write,
        2 => AskWhetherItGrew,
        1 => FreeAndAskWhetherItGrew,
        1 => FreeAndTrim,
        /// Once an event is complete; another is taken at once.
        1 => FreeAfterEvent,
        /// A past of the pool that nobody knows, and another block.
        1 => Havoc,
    }
}

drawn! {
    /// A block of one thread.
    pub(super) enum Block {
        1 => Kept { on: On },
        1 => Freed { on: On },
    }
}

impl Fragment {
    pub(super) fn build(self, b: &mut Builder) {
        match self {
            Self::Alloc { rank, by, tie, then } => {
                let at = b.at(rank, by);
                alloc(b, at, tie, then);
            }
            Self::AllocBeside { rank, tie, then } => {
                let rank = b.rank(rank);
                let second = b.second(rank);
                alloc(b, first(rank), tie, AfterAlloc::FreeAndAskWhetherItGrew);
                alloc(b, second, tie, then);
            }
            Self::HavocBeside { rank, tie } => {
                let rank = b.rank(rank);
                let second = b.second(rank);
                alloc(b, first(rank), tie, AfterAlloc::AskWhetherItGrew);
                havoc(b, second);
            }
            Self::BlocksOfTwo { rank, one, two } => {
                let rank = b.rank(rank);
                let second = b.second(rank);
                block(b, first(rank), "left", one);
                block(b, second, "right", two);
            }
        }
    }
}

fn take(b: &mut Builder, at: At, name: Token, on: On) -> Operand {
    let (pool, stream) = (b.name("pool"), b.name(on.name()));
    b.push(at, Op::Pool(PoolOp::Alloc { pool, name, len_bytes: 2 * MIB, stream }))
}

fn block(b: &mut Builder, at: At, kernel: &str, block: Block) {
    let (Block::Kept { on } | Block::Freed { on }) = block;
    let name = b.fresh("p");
    let x = take(b, at, name, on);
    b.writes(at, kernel, &x, on.name());
    if matches!(block, Block::Freed { .. }) {
        b.free(at, &x);
    }
}

fn havoc(b: &mut Builder, at: At) {
    let (pool, sizes_bytes) = (b.name("pool"), [2 * MIB].into());
    b.push(at, Op::Pool(PoolOp::Havoc { pool, max: 1, sizes_bytes }));
}

fn alloc(b: &mut Builder, at: At, tie: PoolTie, then: AfterAlloc) {
    let (pool, classes, memory) = (b.name("pool"), SizeClasses::Exact, MemoryKind::Nccl);
    let tie = match tie {
        PoolTie::Address => TieBreak::Address,
        PoolTie::Counter => TieBreak::Counter,
    };
    b.push(at, Op::Pool(PoolOp::Declare { pool, classes, tie, memory }));
    let name = b.fresh("p");
    let x = take(b, at, name, On::Default);
    match then {
        AfterAlloc::Write => b.writes(at, "fill", &x, "default"),
        AfterAlloc::AskWhetherItGrew => b.exit_if(at, Question::Grew(x), "grew"),
        AfterAlloc::FreeAndAskWhetherItGrew => {
            b.free(at, &x);
            let label = b.name("grew");
            b.ask(at, Question::Grew(x), vec![Op::Thread(ThreadOp::Reach { label })]);
        }
        AfterAlloc::FreeAndTrim => {
            b.free(at, &x);
            b.push(at, Op::Pool(PoolOp::Trim { pool, release: Release::Now }));
        }
        AfterAlloc::FreeAfterEvent => {
            let event = b.name("freed");
            b.record(at, event, "default");
            b.push(at, Op::Memory(MemoryOp::Free { buffer: x, after: Some(event) }));
            let next = take(b, at, name, On::Default);
            b.exit_if(at, Question::Grew(next), "grew");
        }
        AfterAlloc::Havoc => {
            havoc(b, at);
            let next = take(b, at, name, On::Default);
            b.exit_if(at, Question::Grew(next), "grew");
        }
    }
}
