//! Fragments about collectives.
//! Not here: windows, groups and graphs around them.

use rankcheck_model::{
    CollectiveKind, DataOrigin, Declared, Dtype, Made, MemoryOp, Op, Operand, Rank, ReduceOp,
};

use super::builder::{Builder, MIB, first, slice};
use super::draw::{On, Who, drawn};

drawn! {
    /// A piece of protocol with collectives.
    pub(super) enum Fragment {
        6 => AllReduce { rank: Who, odd: OddCall, length: CallLength, then: AfterCall },
        /// All declare that the symmetric kernel is meant.
        4 => Declared,
        /// One rank alone, with an input that nothing fits.
        4 => Alone { rank: Who, input: StrangeInput },
        6 => Mixed { rank: Who, kinds: MixedKinds },
        /// Two buffers of each rank are reduced or gathered, one after the other, and are expected to be what that makes.
        6 => Expected { rank: Who, orders: Orders, from: DataFrom, made: MadeBy },
        /// Two launches of all, of which two threads of one rank do one each.
        8 => TwoThreads { rank: Who, comms: Comms, second: On },
    }
}

drawn! {
    /// What one rank does otherwise, or all.
    pub(super) enum OddCall {
        1 => None,
        1 => Missing,
        1 => OtherBuffer,
        3 => HalfCount,
        3 => OtherDtype,
        1 => Broadcast,
        /// All broadcast out of place, and one from another root.
        1 => BroadcastOutOfPlace,
        /// All reduce to a root, and one to another.
        3 => OtherRoot,
        /// All reduce to one root.
        1 => AllToRoot,
        1 => AllGather,
        /// All give a part to all, and one no call at all or a shorter part.
        1 => AllToAll,
        1 => AllToAllHalfCount,
        /// One root gives a part to all, or one rank expects it of another.
        1 => Scatter,
        1 => ScatterFromOther,
        /// All give a part to one root, or one to another.
        1 => Gather,
        1 => GatherToOther,
    }
}

drawn! {
    /// How much is reduced, which decides whether a symmetric kernel goes through the peers' windows.
    pub(super) enum CallLength {
        1 => Short,
        2 => Long,
    }
}

drawn! {
    /// What all do after the call.
    pub(super) enum AfterCall {
        1 => Nothing,
        1 => Synchronize,
    }
}

drawn! {
    /// A buffer that is none, or too short.
    pub(super) enum StrangeInput {
        1 => Null,
        1 => TooShort,
        1 => PastTheEnd,
    }
}

drawn! {
    /// The kinds of a collective's members.
    pub(super) enum MixedKinds {
        1 => Same,
        2 => OneBroadcasts,
        /// Out of place on the root; what the others give for an output does not matter.
        1 => Reduce { output: OutputAt },
    }
}

drawn! {
    /// Who gives an output.
    pub(super) enum OutputAt {
        1 => Root,
        1 => All,
    }
}

drawn! {
    /// In which order ranks use their buffers.
    pub(super) enum Orders {
        1 => Alike,
        2 => OneDiffers,
    }
}

drawn! {
    /// Where the data come from.
    pub(super) enum DataFrom {
        1 => Kernel,
        1 => Allocated,
    }
}

drawn! {
    /// What makes what is expected of them.
    pub(super) enum MadeBy {
        1 => AllReduce,
        1 => AllGather,
        1 => Broadcast,
    }
}

drawn! {
    /// How many communicators are used.
    pub(super) enum Comms {
        1 => One,
        1 => Two,
    }
}

impl Fragment {
    pub(super) fn build(self, b: &mut Builder) {
        match self {
            Self::AllReduce { rank, odd, length, then } => {
                let rank = b.rank(rank);
                for r in b.ranks().filter(|r| odd != OddCall::Missing || *r != rank) {
                    all_reduce(b, r, rank, odd, length);
                    if then == AfterCall::Synchronize {
                        b.synchronize(first(r), Operand::Device);
                    }
                }
            }
            Self::Declared => {
                for r in b.ranks() {
                    let (comm, a) = (b.comm(r), b.a(r));
                    let mut call = b.reduction(&comm, &a, 1 << 20);
                    call.declared = Declared::Symmetric;
                    b.launch(first(r), call);
                }
            }
            Self::Alone { rank, input } => {
                let rank = b.rank(rank);
                let x = match input {
                    StrangeInput::Null => Operand::Null,
                    StrangeInput::TooShort => slice(&b.a(rank), 0, 4096),
                    StrangeInput::PastTheEnd => slice(&b.a(rank), 4096, 4 << 20),
                };
                b.all_reduce(first(rank), &x);
            }
            Self::Mixed { rank, kinds } => {
                let rank = b.rank(rank);
                for r in b.ranks() {
                    mixed(b, r, rank, kinds);
                }
            }
            Self::Expected { rank, orders, from, made } => {
                let rank = b.rank(rank);
                for r in b.ranks() {
                    expected(b, r, orders == Orders::OneDiffers && r == rank, (from, made));
                }
            }
            Self::TwoThreads { rank, comms, second } => {
                let rank = b.rank(rank);
                for r in b.ranks() {
                    let (comm, x, y) = (b.comm(r), b.a(r), b.b(r));
                    b.launch(first(r), b.reduction(&comm, &x, 1 << 20));
                    let comm = if comms == Comms::Two { b.other_comm(r) } else { comm };
                    let mut call = b.reduction(&comm, &y, 1 << 20);
                    call.stream = b.name(second.name());
                    let at = if r == rank { b.second(r) } else { first(r) };
                    b.launch(at, call);
                }
            }
        }
    }
}

fn all_reduce(b: &mut Builder, r: u32, odd_rank: u32, odd: OddCall, length: CallLength) {
    let is_odd = r == odd_rank;
    let count = match length {
        CallLength::Short => 1024,
        CallLength::Long => 1 << 20,
    };
    let (comm, a) = (b.comm(r), b.a(r));
    let mut call = b.reduction(&comm, &a, count);
    match odd {
        OddCall::OtherBuffer if is_odd => {
            let other = b.b(r);
            call = b.reduction(&comm, &other, count);
        }
        OddCall::HalfCount if is_odd => call.count /= 2,
        OddCall::OtherDtype if is_odd => call.dtype = Dtype::I32,
        OddCall::Broadcast if is_odd => call.kind = CollectiveKind::Broadcast { root: 0 },
        OddCall::OtherRoot => call.kind = CollectiveKind::Reduce { root: u32::from(is_odd) },
        OddCall::AllToRoot => call.kind = CollectiveKind::Reduce { root: 1 },
        OddCall::AllGather => {
            call.kind = CollectiveKind::AllGather;
            call.count /= 4;
            call.recv = b.b(r);
        }
        OddCall::AllToAll | OddCall::AllToAllHalfCount => {
            call.kind = CollectiveKind::AllToAll;
            call.count = if is_odd && odd == OddCall::AllToAllHalfCount { 512 } else { 1024 };
            call.recv = b.b(r);
        }
        OddCall::Gather | OddCall::GatherToOther => {
            let other = is_odd && odd == OddCall::GatherToOther;
            call.kind = CollectiveKind::Gather { root: u32::from(other) };
            call.count = 1024;
            call.recv = b.b(r);
        }
        OddCall::Scatter | OddCall::ScatterFromOther => {
            let other = is_odd && odd == OddCall::ScatterFromOther;
            call.kind = CollectiveKind::Scatter { root: u32::from(other) };
            call.count = 1024;
            call.recv = b.b(r);
        }
        OddCall::BroadcastOutOfPlace => {
            call.kind = CollectiveKind::Broadcast { root: u32::from(is_odd) };
            call.recv = b.b(r);
        }
        OddCall::None
        | OddCall::Missing
        | OddCall::OtherBuffer
        | OddCall::HalfCount
        | OddCall::OtherDtype
        | OddCall::Broadcast => {}
    }
    b.launch(first(r), call);
}

/// Halves of one buffer go in an order, and into halves of another where they are gathered.
fn expected(b: &mut Builder, r: u32, swapped: bool, (from, made): (DataFrom, MadeBy)) {
    let (comm, data, all) = (b.comm(r), b.a(r), b.b(r));
    let stream = b.name("default");
    let members = u64::from(b.ranks().end);
    for nth in if swapped { [1, 0] } else { [0, 1] } {
        let half = slice(&data, nth * MIB / 2, 4096);
        let kernel = if nth == 0 { "left" } else { "right" };
        if from == DataFrom::Kernel {
            b.writes(first(r), kernel, &half, "default");
        }
        let mut call = b.reduction(&comm, &half, 1024);
        let mut held = half.clone();
        let wanted = match made {
            MadeBy::AllReduce => Made::Reduced(comm.clone(), ReduceOp::Sum),
            MadeBy::Broadcast => {
                call.kind = CollectiveKind::Broadcast { root: 0 };
                Made::By(Rank(0))
            }
            MadeBy::AllGather => {
                call.kind = CollectiveKind::AllGather;
                held = slice(&all, nth * MIB / 2, 4096 * members);
                call.recv = held.clone();
                Made::Gathered(comm.clone())
            }
        };
        b.launch(first(r), call);
        let origin = match from {
            DataFrom::Kernel => DataOrigin::Kernel(b.name(kernel)),
            DataFrom::Allocated => DataOrigin::Allocated(data.clone()),
        };
        let expect = MemoryOp::Expect { buffer: held, origin, made: wanted, stream };
        b.push(first(r), Op::Memory(expect));
    }
}

fn mixed(b: &mut Builder, r: u32, odd_rank: u32, kinds: MixedKinds) {
    let (comm, a) = (b.comm(r), b.a(r));
    let mut call = b.reduction(&comm, &a, 1 << 18);
    match kinds {
        MixedKinds::OneBroadcasts if r == odd_rank => call.kind = CollectiveKind::Broadcast { root: 0 },
        MixedKinds::Same | MixedKinds::OneBroadcasts => {}
        MixedKinds::Reduce { output } => {
            call.kind = CollectiveKind::Reduce { root: 0 };
            call.recv = if r == 0 || output == OutputAt::All { b.b(r) } else { Operand::Null };
        }
    }
    b.launch(first(r), call);
}
