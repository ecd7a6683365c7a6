//! Fragments about groups of NCCL calls.
//! Not here: groups of transfers.

use rankcheck_model::Operand;

use super::builder::{Builder, first};
use super::draw::{Who, drawn};

drawn! {
    /// A piece of protocol with a group.
    pub(super) enum Fragment {
        1 => EndWithoutStart { rank: Who },
        1 => StartWithoutEnd { rank: Who },
        /// A registration and a launch in a group, on all ranks.
        2 => Calls { rank: Who, comm: CommOfOne },
        /// The same in one thread of a rank, while another registers.
        4 => Beside { rank: Who, buffer: BufferOfOne },
    }
}

drawn! {
    /// The communicator on which one rank launches.
    pub(super) enum CommOfOne {
        1 => Same,
        1 => Null,
    }
}

drawn! {
    /// The buffer of one rank's launch.
    pub(super) enum BufferOfOne {
        3 => Same,
        1 => Null,
    }
}

impl Fragment {
    pub(super) fn build(self, b: &mut Builder) {
        match self {
            Self::EndWithoutStart { rank } => {
                let rank = b.rank(rank);
                b.group_end(first(rank));
            }
            Self::StartWithoutEnd { rank } => {
                let rank = b.rank(rank);
                b.group_start(first(rank));
            }
            Self::Calls { rank, comm } => {
                let rank = b.rank(rank);
                for r in b.ranks() {
                    let (at, a) = (first(r), b.a(r));
                    b.group_start(at);
                    b.register(at, &a);
                    let null = r == rank && comm == CommOfOne::Null;
                    let comm = if null { Operand::Null } else { b.comm(r) };
                    b.launch(at, b.reduction(&comm, &a, 1 << 20));
                    b.group_end(at);
                }
            }
            Self::Beside { rank, buffer } => {
                let rank = b.rank(rank);
                for r in b.ranks() {
                    let at = if r == rank { b.second(r) } else { first(r) };
                    let (x, y) = (b.a(r), b.b(r));
                    b.group_start(at);
                    b.register(at, &y);
                    let null = r == rank && buffer == BufferOfOne::Null;
                    b.all_reduce(at, if null { &Operand::Null } else { &y });
                    b.group_end(at);
                    b.register(first(r), &x);
                }
            }
        }
    }
}
