//! Fragments about groups of NCCL calls.
//! Not here: groups of transfers on one communicator.

use std::sync::Arc;

use rankcheck_model::{Collective, CommOp, Direction, Dtype, Op, Operand, Resources, Transfer};

use super::builder::{At, Builder, MIB, first, slice};
use super::draw::{On, Who, drawn};

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
        /// Calls on two communicators in a group, which one rank makes otherwise.
        6 => Launches { rank: Who, what: Launched, second: On, odd: OddLauncher },
    }
}

drawn! {
    /// What a group launches on each of two communicators.
    pub(super) enum Launched {
        3 => Collectives,
        /// The second reads what the first one writes.
        1 => CollectivesInARow,
        /// From one rank to another on the one, and back on the other.
        2 => Transfers,
        1 => CollectiveAndTransfers,
    }
}

drawn! {
    /// What one rank does otherwise where all launch on two communicators in a group.
    pub(super) enum OddLauncher {
        2 => Nothing,
        1 => TheOtherFirst,
        2 => NoGroup,
        2 => NoGroupTheOtherFirst,
        /// It launches on one of them again, and so do the others, apart from the group or in it.
        1 => OnceMore,
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
            Self::Launches { rank, what, second, odd } => {
                let rank = b.rank(rank);
                for r in b.ranks() {
                    launch_two(b, r, (what, second, odd), r == rank);
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

fn launch_two(b: &mut Builder, rank: u32, (what, second, odd): (Launched, On, OddLauncher), is_odd: bool) {
    let at = first(rank);
    let (comm, other, x, y) = (b.comm(rank), b.other_comm(rank), b.a(rank), b.b(rank));
    let second = b.name(second.name());
    let on = |b: &Builder, comm: &Operand| if *comm == other { second } else { b.name("default") };
    let collective = |b: &Builder, comm: &Operand, x: &Operand| {
        let stream = on(b, comm);
        Op::Collective(Arc::new(Collective { stream, ..b.reduction(comm, x, 256) }))
    };
    let (next, before) = (b.next(rank), (rank + b.ranks().end - 1) % b.ranks().end);
    let transfer = |b: &Builder, comm: &Operand, direction: Direction, peer: u32, buffer: &Operand| {
        let (stream, comm, buffer) = (on(b, comm), comm.clone(), buffer.clone());
        Op::Transfer(Arc::new(Transfer {
            direction,
            comm,
            peer,
            buffer,
            count: 256,
            dtype: Dtype::F32,
            stream,
        }))
    };
    let send = |b: &Builder, comm: &Operand| transfer(b, comm, Direction::Send, next, &x);
    let receive = |b: &Builder, comm: &Operand| transfer(b, comm, Direction::Recv, before, &y);
    // Two ranks: each sends on the communicator on which the other receives.
    let crossed = match rank {
        0 => [
            vec![transfer(b, &comm, Direction::Send, 1, &x)],
            vec![transfer(b, &other, Direction::Recv, 1, &y)],
        ],
        1 => [
            vec![transfer(b, &comm, Direction::Recv, 0, &y)],
            vec![transfer(b, &other, Direction::Send, 0, &x)],
        ],
        _ => [Vec::new(), Vec::new()],
    };
    let mut parts = match what {
        Launched::Collectives => [vec![collective(b, &comm, &x)], vec![collective(b, &other, &y)]],
        Launched::CollectivesInARow => [vec![collective(b, &comm, &x)], vec![collective(b, &other, &x)]],
        Launched::Transfers => crossed,
        Launched::CollectiveAndTransfers => {
            [vec![collective(b, &comm, &slice(&x, MIB, MIB))], vec![send(b, &other), receive(b, &other)]]
        }
    };
    let again = parts[0].clone();
    let grouped = !is_odd || !matches!(odd, OddLauncher::NoGroup | OddLauncher::NoGroupTheOtherFirst);
    if is_odd && matches!(odd, OddLauncher::TheOtherFirst | OddLauncher::NoGroupTheOtherFirst) {
        parts.reverse();
    }
    if grouped {
        b.group_start(at);
    }
    for part in parts {
        push_together(b, at, part, grouped);
    }
    if odd == OddLauncher::OnceMore && is_odd {
        push_together(b, at, again.clone(), grouped);
    }
    if grouped {
        b.group_end(at);
    }
    if odd == OddLauncher::OnceMore && !is_odd {
        push_together(b, at, again, false);
    }
}

/// Makes calls, transfers in a group of their own where they are in none.
fn push_together(b: &mut Builder, at: At, calls: Vec<Op>, in_group: bool) {
    let own_group = !in_group && calls.len() > 1;
    if own_group {
        b.group_start(at);
    }
    for call in calls {
        b.push(at, call);
    }
    if own_group {
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
