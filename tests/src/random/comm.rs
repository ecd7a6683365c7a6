//! Fragments about the life of communicators.
//! Not here: what runs on them.

use rankcheck_model::{CommOp, Op, Operand, Resources};

use super::builder::{At, Builder, first};
use super::draw::{Who, drawn};

drawn! {
    /// A piece of protocol about the life of a communicator.
    pub(super) enum Fragment {
        4 => Init { rank: Who, who: Members },
        /// A collective of one rank on a communicator that is gone.
        4 => UseOfNone { rank: Who, comm: NoComm },
        /// All split; one registers instead, or does not.
        4 => Split { rank: Who, odd: OddSplit },
        /// A launch or a registration of all, and the end of the communicator in another thread.
        4 => DestroyBeside { rank: Who, what: BesideDestroy },
        /// Two threads of a rank enter what pairs by order.
        4 => InitInTwoThreads { rank: Who },
    }
}

drawn! {
    /// Who makes a communicator of all ranks.
    pub(super) enum Members {
        2 => All,
        1 => AllButOne,
    }
}

drawn! {
    /// Which communicator is none.
    pub(super) enum NoComm {
        1 => Null,
        1 => Destroyed,
    }
}

drawn! {
    /// What the odd rank does while the others split.
    pub(super) enum OddSplit {
        1 => Splits,
        1 => Registers,
    }
}

drawn! {
    /// What runs while the communicator is destroyed.
    pub(super) enum BesideDestroy {
        1 => Launch,
        1 => Registration,
    }
}

impl Fragment {
    pub(super) fn build(self, b: &mut Builder) {
        match self {
            Self::Init { rank, who } => {
                let rank = b.rank(rank);
                for r in b.ranks() {
                    if who == Members::All || r != rank {
                        b.init(first(r), "late", Resources::Own);
                    }
                }
            }
            Self::UseOfNone { rank, comm } => {
                let at = first(b.rank(rank));
                let comm = match comm {
                    NoComm::Null => Operand::Null,
                    NoComm::Destroyed => {
                        let comm = b.comm(at.rank);
                        b.destroy(at, &comm);
                        comm
                    }
                };
                let a = b.a(at.rank);
                b.launch(at, b.reduction(&comm, &a, 1 << 20));
            }
            Self::Split { rank, odd } => {
                let rank = b.rank(rank);
                for r in b.ranks() {
                    if r == rank && odd == OddSplit::Registers {
                        let x = b.b(r);
                        b.register(first(r), &x);
                    } else {
                        split(b, first(r), "half");
                    }
                }
            }
            Self::DestroyBeside { rank, what } => {
                let rank = b.rank(rank);
                for r in b.ranks() {
                    let a = b.a(r);
                    match what {
                        BesideDestroy::Launch => b.all_reduce(first(r), &a),
                        BesideDestroy::Registration => {
                            b.register(first(r), &a);
                        }
                    }
                }
                let (at, comm) = (b.second(rank), b.comm(rank));
                b.destroy(at, &comm);
            }
            Self::InitInTwoThreads { rank } => {
                let rank = b.rank(rank);
                for r in b.ranks() {
                    let second = if r == rank { b.second(r) } else { first(r) };
                    let comm = b.init(first(r), "twin", Resources::Own);
                    let (name, color) = (b.name("met"), Some(0));
                    b.push(first(r), Op::Comm(CommOp::Split { comm, name, color }));
                    b.init(second, "twin", Resources::Own);
                }
            }
        }
    }
}

/// Splits the communicator of all ranks; returns the child.
fn split(b: &mut Builder, at: At, name: &str) -> Operand {
    let (comm, name) = (b.comm(at.rank), b.name(name));
    b.push(at, Op::Comm(CommOp::Split { comm, name, color: Some(0) }))
}
