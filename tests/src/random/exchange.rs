//! Fragments about exchanges of shareable handles.
//! Not here: what is done with the mappings.

use rankcheck_model::{MemoryKind, Op, StreamOp};

use super::builder::{Builder, MIB, first, slice};
use super::draw::{Who, drawn};

drawn! {
    /// A piece of protocol in which ranks exchange handles.
    pub(super) enum Fragment {
        16 => Exchange { rank: Who, odd: OddExchange },
    }
}

drawn! {
    /// What one rank does otherwise.
    pub(super) enum OddExchange {
        1 => Nothing,
        1 => Missing,
        1 => OtherLength,
        1 => NcclMemory,
        1 => OtherOffset,
        1 => OtherName,
    }
}

impl Fragment {
    pub(super) fn build(self, b: &mut Builder) {
        let Self::Exchange { rank, odd } = self;
        let rank = b.rank(rank);
        for r in b.ranks().filter(|r| odd != OddExchange::Missing || *r != rank) {
            let odd = if r == rank { odd } else { OddExchange::Nothing };
            let len = if odd == OddExchange::OtherLength { 4 * MIB } else { MIB };
            let kind = if odd == OddExchange::NcclMemory { MemoryKind::Nccl } else { MemoryKind::Cuda };
            let offset = if odd == OddExchange::OtherOffset { MIB / 2 } else { 0 };
            let name = if odd == OddExchange::OtherName { "other" } else { "given" };
            let x = b.alloc(first(r), "given", len, kind);
            let maps = b.exchange(r, name, slice(&x, offset, MIB / 2));
            let (name, stream) = (b.name("gather"), b.name("default"));
            let (reads, writes) = (maps.into(), [].into());
            b.push(first(r), Op::Stream(StreamOp::Kernel { name, reads, writes, stream }));
        }
    }
}
