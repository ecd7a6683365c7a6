//! Fragments that free memory, and calls that may fail.
//! Not here: pools, and memory of other ranks.

use rankcheck_model::MemoryKind;
use rankcheck_model::machine::FaultOf;

use super::builder::{Builder, MIB, first};
use super::draw::{By, Either, On, Who, drawn};
use super::window::Times;

drawn! {
    /// A piece of protocol that frees memory.
    pub(super) enum Fragment {
        4 => Free { rank: Who, by: By, what: Either, times: Times },
        /// One thread frees what waits for the device; the other launches.
        4 => FreeThatWaits { rank: Who, on: On, then: AfterFree },
        /// Some call of the program may fail.
        4 => MayFail { what: MayFail },
    }
}

drawn! {
    /// What the thread that frees does then.
    pub(super) enum AfterFree {
        1 => Nothing,
        1 => Reads,
    }
}

drawn! {
    /// The kind of call that may fail, once in a run.
    pub(super) enum MayFail {
        1 => Alloc,
        1 => Register,
    }
}

impl Fragment {
    pub(super) fn build(self, b: &mut Builder) {
        match self {
            Self::Free { rank, by, what, times } => {
                let at = b.at(rank, by);
                let x = b.either(at.rank, what);
                b.free(at, &x);
                if times == Times::Twice {
                    b.free(at, &x);
                }
            }
            Self::FreeThatWaits { rank, on, then } => {
                let rank = b.rank(rank);
                let (second, a) = (b.second(rank), b.a(rank));
                let x = b.alloc(second, "waits", MIB, MemoryKind::Cuda);
                b.writes(first(rank), "fill", &a, on.name());
                b.free(second, &x);
                if then == AfterFree::Reads {
                    b.reads(second, "scan", &a, "default");
                }
            }
            Self::MayFail { what } => {
                let of = match what {
                    MayFail::Alloc => FaultOf::Alloc,
                    MayFail::Register => FaultOf::Register,
                };
                b.config.faults.of.insert(of);
                b.config.faults.at_most = 1;
            }
        }
    }
}
