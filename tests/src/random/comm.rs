//! Fragments about the life of communicators.
//! Not here: what runs on them.

use rankcheck_model::{Collective, CommOp, MutexOp, Op, Operand, Resources};

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
        /// Two threads of a rank call on one communicator, ordered or not.
        3 => CallsOfTwo { rank: Who, call: CallOnComm, order: Order },
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
        1 => Finalized,
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

drawn! {
    /// A call of all ranks, and of one of them in its second thread.
    pub(super) enum CallOnComm {
        2 => AllReduce,
        1 => Register,
        1 => Split,
        1 => Grouped,
        /// One of them on a child that shares the channels.
        1 => OnChild,
        1 => Finalize,
    }
}

drawn! {
    /// What orders the calls of two threads.
    pub(super) enum Order {
        2 => Nothing,
        1 => AKey,
        1 => AMutex,
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
                    NoComm::Finalized => {
                        let comm = b.comm(at.rank);
                        b.finalize(at, &comm);
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
            Self::CallsOfTwo { rank, call, order } => {
                let rank = b.rank(rank);
                for r in b.ranks() {
                    let child = (call == CallOnComm::OnChild).then(|| {
                        let (comm, name) = (b.comm_that_shares(r), b.name("child"));
                        b.push(first(r), Op::Comm(CommOp::Split { comm, name, color: Some(0) }))
                    });
                    let second = if r == rank { b.second(r) } else { first(r) };
                    let mutex = b.name("calls");
                    let locks = r == rank && order == Order::AMutex;
                    for at in [first(r), second] {
                        if locks {
                            b.push(at, Op::Mutex(MutexOp::Lock { mutex }));
                        }
                        if at == second && r == rank && order == Order::AKey {
                            b.fetch(at, "called");
                        }
                        let child = child.as_ref().filter(|_| at != second);
                        call_on(b, at, call, child);
                        if at != second && order == Order::AKey {
                            b.store(at, "called", Operand::Int(1));
                        }
                        if locks {
                            b.push(at, Op::Mutex(MutexOp::Unlock { mutex }));
                        }
                    }
                }
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

fn call_on(b: &mut Builder, at: At, call: CallOnComm, child: Option<&Operand>) {
    match call {
        CallOnComm::AllReduce | CallOnComm::OnChild => {
            let (comm, a) = (b.comm(at.rank), b.a(at.rank));
            let stream = b.name(if at.thread == 0 { "default" } else { "side" });
            let call = b.reduction(child.unwrap_or(&comm), &a, 1 << 20);
            b.launch(at, Collective { stream, ..call });
        }
        CallOnComm::Register => {
            let x = b.a(at.rank);
            b.register(at, &x);
        }
        CallOnComm::Split => {
            split(b, at, "half");
        }
        CallOnComm::Grouped => {
            let x = b.a(at.rank);
            b.group_start(at);
            b.all_reduce(at, &x);
            b.group_end(at);
        }
        CallOnComm::Finalize => {
            let comm = b.comm(at.rank);
            b.finalize(at, &comm);
        }
    }
}

/// Splits the communicator of all ranks; returns the child.
fn split(b: &mut Builder, at: At, name: &str) -> Operand {
    let (comm, name) = (b.comm(at.rank), b.name(name));
    b.push(at, Op::Comm(CommOp::Split { comm, name, color: Some(0) }))
}
