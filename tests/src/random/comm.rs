//! Fragments about the life of communicators.
//! Not here: what runs on them.

use std::sync::Arc;

use rankcheck_model::{
    Collective, CollectiveKind, CommOp, Direction, Dtype, MutexOp, Op, Operand, ReduceOp, Resources,
    Transfer, WindowFlags, WindowOp,
};

use super::builder::{At, Builder, first};
use super::draw::{Below, Who, drawn};

drawn! {
    /// A piece of protocol about the life of a communicator.
    pub(super) enum Fragment {
        4 => Init { rank: Who, who: Members },
        /// A call of one rank on a communicator that is gone.
        4 => UseOfNone { rank: Who, comm: NoComm, what: UseOfGone },
        /// All split; one registers instead, or does not.
        4 => Split { rank: Who, odd: OddSplit },
        /// A launch or a registration of all, and the end of the communicator in another thread.
        4 => DestroyBeside { rank: Who, what: BesideDestroy },
        /// Two threads of a rank call on one communicator, ordered or not.
        3 => CallsOfTwo { rank: Who, call: CallOnComm, order: Order },
        /// A call of all, or of all but one, with an argument that NCCL refuses.
        3 => InvalidArgument { rank: Who, what: BadArgument, group: InGroup, who: Members },
        /// Two threads of a rank enter what pairs by order.
        4 => InitInTwoThreads { rank: Who },
        /// All destroy two communicators, which one rank does otherwise.
        5 => Part { rank: Who, used: Used, odd: OddParting },
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
    /// What connects the members of a communicator before they destroy it.
    pub(super) enum Used {
        2 => Launch,
        1 => Registration,
        1 => Transfer,
        1 => Nothing,
    }
}

drawn! {
    /// How one rank destroys two communicators that the others destroy in one order.
    pub(super) enum OddParting {
        1 => AsTheOthers,
        3 => Crossed,
        1 => Finalizes,
        2 => Never,
        /// It waits for the others before, which wait for it after.
        2 => AfterABarrier,
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
    /// What is done with a communicator that is gone.
    pub(super) enum UseOfGone {
        3 => Launch,
        1 => Destroy,
        1 => Finalize,
        1 => Deregister,
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
    /// What is wrong with the arguments of a call.
    pub(super) enum BadArgument {
        2 => Root { beyond: Below<2> },
        1 => NegativeRoot,
        1 => Dtype,
        1 => Op,
        1 => DtypeOfSend,
        2 => Color { below: Below<2> },
    }
}

drawn! {
    /// Whether a call stands in a group.
    pub(super) enum InGroup {
        2 => No,
        1 => Yes,
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
            Self::UseOfNone { rank, comm, what } => {
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
                match what {
                    UseOfGone::Launch => b.launch(at, b.reduction(&comm, &a, 1 << 20)),
                    UseOfGone::Destroy => b.destroy(at, &comm),
                    UseOfGone::Finalize => b.finalize(at, &comm),
                    UseOfGone::Deregister => {
                        b.push(at, Op::Window(WindowOp::Deregister { comm, window: Operand::Null }));
                    }
                }
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
            Self::Part { rank, used, odd } => {
                let rank = b.rank(rank);
                for r in b.ranks() {
                    let odd = if r == rank { odd } else { OddParting::AsTheOthers };
                    part(b, (r, rank), used, odd);
                }
            }
            Self::CallsOfTwo { rank, call, order } => calls_of_two(b, rank, call, order),
            Self::InvalidArgument { rank, what, group, who } => {
                let rank = b.rank(rank);
                for r in b.ranks() {
                    let (at, bad) = (first(r), who == Members::All || r == rank);
                    if group == InGroup::Yes {
                        b.group_start(at);
                    }
                    call_with(b, at, bad.then_some(what));
                    if group == InGroup::Yes {
                        b.group_end(at);
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

/// Calls of two threads of a rank on one communicator, and of one thread on the other ranks.
fn calls_of_two(b: &mut Builder, rank: Who, call: CallOnComm, order: Order) {
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

/// An all-reduce, or a call with an argument that is wrong.
fn call_with(b: &mut Builder, at: At, wrong: Option<BadArgument>) {
    let (comm, a) = (b.comm(at.rank), b.a(at.rank));
    let mut call = b.reduction(&comm, &a, 1 << 20);
    match wrong {
        None => {}
        Some(BadArgument::Root { beyond }) => {
            call.kind = CollectiveKind::Broadcast { root: b.ranks().end + beyond.0 };
        }
        Some(BadArgument::NegativeRoot) => {
            call.kind = CollectiveKind::Gather { root: (-1_i32).cast_unsigned() };
        }
        Some(BadArgument::Dtype) => call.dtype = Dtype::Invalid,
        Some(BadArgument::Op) => call.op = ReduceOp::Invalid,
        Some(BadArgument::DtypeOfSend) => {
            let (stream, peer) = (b.name("default"), b.next(at.rank));
            let (direction, count, dtype) = (Direction::Send, 1024, Dtype::Invalid);
            let call = Transfer { direction, comm, peer, buffer: a, count, dtype, stream };
            b.push(at, Op::Transfer(Arc::new(call)));
            return;
        }
        Some(BadArgument::Color { below }) => {
            let (name, color) = (b.name("part"), Some(-1 - below.int()));
            b.push(at, Op::Comm(CommOp::Split { comm, name, color }));
            return;
        }
    }
    b.launch(at, call);
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

/// Makes two communicators, uses them, and destroys them.
fn part(b: &mut Builder, (rank, odd_rank): (u32, u32), used: Used, odd: OddParting) {
    let at = first(rank);
    let (x, y) = (b.a(rank), b.b(rank));
    let mut comms = ["one", "other"].map(|name| b.init(at, name, Resources::Own));
    for (comm, memory) in comms.iter().zip([x, y]) {
        match used {
            Used::Launch => b.launch(at, b.reduction(comm, &memory, 1 << 20)),
            Used::Registration => {
                let (comm, flags) = (comm.clone(), WindowFlags::CollSymmetric);
                b.push(at, Op::Window(WindowOp::Register { comm, memory, flags }));
            }
            Used::Transfer if rank == odd_rank || b.next(rank) == odd_rank => {
                let sends = rank == odd_rank;
                let direction = if sends { Direction::Send } else { Direction::Recv };
                // The receiver is the one before.
                let peer = if sends { (rank + b.ranks().end - 1) % b.ranks().end } else { odd_rank };
                let stream = b.name("default");
                let (comm, buffer) = (comm.clone(), memory);
                let transfer =
                    Transfer { direction, comm, buffer, count: 1 << 18, dtype: Dtype::F32, peer, stream };
                b.push(at, Op::Transfer(Arc::new(transfer)));
            }
            Used::Transfer | Used::Nothing => {}
        }
    }
    match odd {
        OddParting::Crossed => comms.reverse(),
        OddParting::Finalizes => b.finalize(at, &comms[1]),
        OddParting::AfterABarrier => b.barrier(at),
        OddParting::AsTheOthers | OddParting::Never => {}
    }
    for comm in comms.iter().filter(|_| odd != OddParting::Never) {
        b.destroy(at, comm);
    }
}

/// Splits the communicator of all ranks; returns the child.
fn split(b: &mut Builder, at: At, name: &str) -> Operand {
    let (comm, name) = (b.comm(at.rank), b.name(name));
    b.push(at, Op::Comm(CommOp::Split { comm, name, color: Some(0) }))
}
