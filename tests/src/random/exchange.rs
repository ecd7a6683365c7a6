//! Fragments about exchanges of handles.
//! Not here: what is done with the mappings.

use rankcheck_model::{MemoryKind, Op, Operand, StreamOp};

use super::builder::{Builder, MIB, first, slice};
use super::draw::{Who, drawn};

drawn! {
    /// A piece of protocol in which ranks exchange handles.
    pub(super) enum Fragment {
        16 => Exchange { rank: Who, memory: Exchanged, odd: OddExchange, then: AfterExchange },
    }
}

drawn! {
    /// Which memory the ranks exchange handles of.
    pub(super) enum Exchanged {
        2 => Cuda,
        1 => CuMem,
        1 => Nccl,
    }
}

drawn! {
    /// What one rank does with its memory while the others have it mapped.
    pub(super) enum AfterExchange {
        2 => Keeps,
        1 => Frees,
    }
}

drawn! {
    /// What one rank does otherwise.
    pub(super) enum OddExchange {
        1 => Nothing,
        1 => Missing,
        1 => OtherLength,
        1 => OtherHandle,
        1 => OtherOffset,
        1 => OtherName,
    }
}

impl Fragment {
    pub(super) fn build(self, b: &mut Builder) {
        let Self::Exchange { rank, memory, odd, then } = self;
        let rank = b.rank(rank);
        for r in b.ranks().filter(|r| odd != OddExchange::Missing || *r != rank) {
            let odd = if r == rank { odd } else { OddExchange::Nothing };
            let len = if odd == OddExchange::OtherLength { 4 * MIB } else { MIB };
            let kind = match (memory, odd) {
                (Exchanged::Cuda, OddExchange::OtherHandle) => MemoryKind::CuMem,
                (_, OddExchange::OtherHandle) | (Exchanged::Cuda, _) => MemoryKind::Cuda,
                (Exchanged::CuMem, _) => MemoryKind::CuMem,
                (Exchanged::Nccl, _) => MemoryKind::Nccl,
            };
            let offset = if odd == OddExchange::OtherOffset { MIB / 2 } else { 0 };
            let name = if odd == OddExchange::OtherName { "other" } else { "given" };
            let x = b.alloc(first(r), "given", len, kind);
            let maps = b.exchange(r, name, slice(&x, offset, MIB / 2));
            let (name, stream) = (b.name("gather"), b.name("default"));
            let (reads, writes) = (maps.into(), [].into());
            b.push(first(r), Op::Stream(StreamOp::Kernel { name, reads, writes, stream }));
            if then == AfterExchange::Frees && r == rank {
                b.synchronize(first(r), Operand::Device);
                b.free(first(r), &x);
            }
        }
    }
}
