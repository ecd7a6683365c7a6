//! Fragments about groups of NCCL calls.
//! Not here: groups of transfers.

use rankcheck_model::{CommOp, Op, Operand, Resources};

use super::builder::{At, Builder, first};
use super::draw::{Who, drawn};

drawn! {
    /// A piece of protocol with a group.
    pub(super) enum Fragment {
        2 => EndWithoutStart { rank: Who },
        2 => StartWithoutEnd { rank: Who },
        /// A registration and a launch in a group, on all ranks.
        2 => Calls { rank: Who, comm: CommOfOne },
        /// The same in one thread of a rank, while another registers.
        4 => Beside { rank: Who, buffer: BufferOfOne },
        /// Two communicators are made in a group, which one rank does otherwise.
        6 => Makes { rank: Who, one: Made, other: Made, odd: OddMaker },
    }
}

drawn! {
    /// How a communicator is made.
    pub(super) enum Made {
        2 => Init,
        2 => Split,
        1 => SplitOfOther,
    }
}

drawn! {
    /// What one rank does otherwise where all make communicators in a group.
    pub(super) enum OddMaker {
        1 => Nothing,
        2 => TheOtherFirst,
        2 => NoGroup,
        /// It uses the communicator before the group has ended.
        1 => Uses,
        1 => Launches,
        1 => Ends,
        /// Another thread of it makes them, while the first works on the communicator.
        1 => Beside,
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
            Self::Makes { rank, one, other, odd } => {
                let rank = b.rank(rank);
                for r in b.ranks() {
                    let odd = if r == rank { odd } else { OddMaker::Nothing };
                    make_two(b, r, (one, other), odd);
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

fn make_two(b: &mut Builder, rank: u32, (one, other): (Made, Made), odd: OddMaker) {
    let at = if odd == OddMaker::Beside { b.second(rank) } else { first(rank) };
    let a = b.a(rank);
    let grouped = odd != OddMaker::NoGroup;
    if grouped {
        b.group_start(at);
    }
    let mut makers = vec![(one, "made"), (other, "made too")];
    if matches!(odd, OddMaker::TheOtherFirst | OddMaker::NoGroup) {
        makers.reverse();
    }
    let made: Vec<Operand> = makers.into_iter().map(|(by, name)| make(b, at, by, name)).collect();
    match odd {
        OddMaker::Uses => b.launch(at, b.reduction(&made[0], &a, 1 << 20)),
        OddMaker::Launches => b.all_reduce(at, &a),
        OddMaker::Ends => {
            let comm = b.comm(rank);
            b.destroy(at, &comm);
        }
        OddMaker::Beside => {
            b.register(first(rank), &a);
        }
        OddMaker::Nothing | OddMaker::TheOtherFirst | OddMaker::NoGroup => {}
    }
    if grouped {
        b.group_end(at);
    }
}

fn make(b: &mut Builder, at: At, by: Made, name: &str) -> Operand {
    let parent = match by {
        Made::Init => return b.init(at, name, Resources::Own),
        Made::Split => b.comm(at.rank),
        Made::SplitOfOther => b.other_comm(at.rank),
    };
    let name = b.name(name);
    b.push(at, Op::Comm(CommOp::Split { comm: parent, name, color: Some(0) }))
}
