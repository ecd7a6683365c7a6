//! Fragments about windows.
//! Not here: collectives that have no window.

use rankcheck_model::{MemoryKind, Op, Operand, Question, WindowFlags, WindowOp};

use super::builder::{At, Builder, MIB, first, slice};
use super::draw::{On, Who, drawn};

drawn! {
    /// A piece of protocol that registers memory.
    pub(super) enum Fragment {
        4 => Register { rank: Who, odd: OddRegistration },
        7 => Deregister { rank: Who, times: Times, used: WindowUse },
        4 => RegisterStrange { rank: Who, memory: StrangeMemory, who: Registrants },
        /// All register, and reduce what lies elsewhere in the window or beyond it.
        11 => Offsets { rank: Who, used: UsedPart },
        /// Memory is replaced under a window, on the first rank or on all.
        4 => Replace { who: Replacers },
        /// Two windows on each of two communicators, and two reductions that are unordered.
        4 => TwoComms { rank: Who, order: LaunchOrder, second: On },
        7 => Unequal { rank: Who, by: Inequality },
        /// Threads of a rank that has two take turns in registering.
        4 => RegisterInTurns { rank: Who },
        /// A registration that may fail, and a free in another thread.
        4 => FreeBeside { rank: Who, fails: Fails },
        /// Another thread looks for a window where memory was freed and handed out again.
        4 => HandedOutAgain { rank: Who },
    }
}

drawn! {
    /// What one rank does while the others register.
    pub(super) enum OddRegistration {
        2 => Same,
        1 => OtherMemory,
        1 => Nothing,
    }
}

drawn! {
    /// How often a call is made that ends something.
    pub(super) enum Times {
        1 => Once,
        1 => Twice,
    }
}

drawn! {
    /// Whether a window is used before it goes.
    pub(super) enum WindowUse {
        1 => Unused,
        1 => Used,
    }
}

drawn! {
    /// Memory that cannot be registered, or only in some way.
    pub(super) enum StrangeMemory {
        1 => Null,
        1 => Inside,
        1 => Empty,
        1 => Cuda,
    }
}

drawn! {
    /// Which ranks register, all or the one that was drawn.
    pub(super) enum Registrants {
        2 => All,
        1 => OneAlone,
    }
}

drawn! {
    /// Which part of a window a collective uses.
    pub(super) enum UsedPart {
        1 => Inside,
        1 => OneAtOtherOffset,
        1 => BeyondItsEnd,
    }
}

drawn! {
    /// Whose memory is replaced.
    pub(super) enum Replacers {
        1 => All,
        1 => First,
    }
}

drawn! {
    /// In which order one rank launches what the others launch in order.
    pub(super) enum LaunchOrder {
        1 => Same,
        1 => Other,
    }
}

drawn! {
    /// What one registration has that the others have not.
    pub(super) enum Inequality {
        1 => Length,
        2 => Flags,
    }
}

drawn! {
    /// Whether a registration fails.
    pub(super) enum Fails {
        1 => No,
        1 => Yes,
    }
}

impl Fragment {
    pub(super) fn build(self, b: &mut Builder) {
        match self {
            Self::Register { rank, odd } => register(b, rank, odd),
            Self::Deregister { rank, times, used } => deregister(b, rank, times, used),
            Self::RegisterStrange { rank, memory, who } => strange(b, rank, memory, who),
            Self::Offsets { rank, used } => offsets(b, rank, used),
            Self::Replace { who } => replace(b, who),
            Self::TwoComms { rank, order, second } => two_comms(b, rank, order, second),
            Self::Unequal { rank, by } => unequal(b, rank, by),
            Self::RegisterInTurns { rank } => {
                let rank = b.rank(rank);
                for r in b.ranks() {
                    let second = if r == rank || b.has_second(r) { b.second(r) } else { first(r) };
                    let (x, y) = (b.a(r), b.b(r));
                    b.register(first(r), &x);
                    b.register(second, &y);
                }
            }
            Self::FreeBeside { rank, fails } => {
                let rank = b.rank(rank);
                for r in b.ranks() {
                    let odd = r != rank && fails == Fails::Yes;
                    let x = if odd { b.alloc(first(r), "odd", 8 * MIB, MemoryKind::Nccl) } else { b.a(r) };
                    b.register(first(r), &x);
                }
                let (at, a) = (b.second(rank), b.a(rank));
                b.free(at, &a);
            }
            Self::HandedOutAgain { rank } => {
                let rank = b.rank(rank);
                for r in b.ranks() {
                    let a = b.a(r);
                    b.register(first(r), &a);
                }
                let (at, a) = (b.second(rank), b.a(rank));
                b.free(first(rank), &a);
                let buffer = b.alloc(at, "again", 4 * MIB, MemoryKind::Nccl);
                let comm = b.comm(rank);
                b.exit_if(at, Question::HasWindow { comm, buffer }, "found");
            }
        }
    }
}

fn register(b: &mut Builder, rank: Who, odd: OddRegistration) {
    let rank = b.rank(rank);
    for r in b.ranks() {
        let x = match odd {
            OddRegistration::Nothing if r == rank => continue,
            OddRegistration::OtherMemory if r == rank => b.b(r),
            OddRegistration::Same | OddRegistration::OtherMemory | OddRegistration::Nothing => b.a(r),
        };
        b.register(first(r), &x);
    }
}

/// Takes a window of an earlier fragment away, or one that all ranks register here.
fn deregister(b: &mut Builder, rank: Who, times: Times, used: WindowUse) {
    let rank = b.rank(rank);
    if b.windows(rank).is_empty() {
        for r in b.ranks() {
            let a = b.a(r);
            b.register(first(r), &a);
            if used == WindowUse::Used {
                b.all_reduce(first(r), &a);
            }
        }
    }
    let window = b.windows(rank)[0].clone();
    b.deregister(first(rank), &window);
    if times == Times::Twice {
        b.deregister(first(rank), &window);
    }
}

fn strange(b: &mut Builder, rank: Who, memory: StrangeMemory, who: Registrants) {
    let rank = b.rank(rank);
    for r in b.ranks() {
        let x = match memory {
            StrangeMemory::Null => Operand::Null,
            StrangeMemory::Inside => slice(&b.a(r), 512, 4096),
            StrangeMemory::Empty => slice(&b.a(r), 0, 0),
            StrangeMemory::Cuda => b.alloc(first(r), "c", MIB, MemoryKind::Cuda),
        };
        if who == Registrants::All || r == rank {
            b.register(first(r), &x);
        }
    }
}

fn offsets(b: &mut Builder, rank: Who, used: UsedPart) {
    let rank = b.rank(rank);
    for r in b.ranks() {
        let whole = b.a(r);
        let (registered, used) = match used {
            UsedPart::Inside => (whole.clone(), slice(&whole, 4096, MIB)),
            UsedPart::OneAtOtherOffset => {
                (whole.clone(), slice(&whole, if r == rank { 65536 } else { 0 }, MIB))
            }
            UsedPart::BeyondItsEnd => (slice(&whole, 0, 65536), slice(&whole, 0, MIB)),
        };
        b.register(first(r), &registered);
        let comm = b.comm(r);
        b.launch(first(r), b.reduction(&comm, &used, 1 << 18));
    }
}

fn replace(b: &mut Builder, who: Replacers) {
    for r in b.ranks() {
        let a = b.a(r);
        b.register(first(r), &a);
        if r == 0 || who == Replacers::All {
            b.free(first(r), &a);
            let x = b.alloc(first(r), "back", 4 * MIB, MemoryKind::Nccl);
            b.all_reduce(first(r), &x);
        }
    }
}

fn two_comms(b: &mut Builder, rank: Who, order: LaunchOrder, second: On) {
    let rank = b.rank(rank);
    for r in b.ranks() {
        let (comm, other, x, y) = (b.comm(r), b.other_comm(r), b.a(r), b.b(r));
        for memory in [&x, &y] {
            for comm in [&comm, &other] {
                let (comm, memory, flags) = (comm.clone(), memory.clone(), WindowFlags::CollSymmetric);
                b.push(first(r), Op::Window(WindowOp::Register { comm, memory, flags }));
            }
        }
        let one = b.reduction(&comm, &x, 1 << 20);
        let mut two = b.reduction(&other, &y, 1 << 20);
        two.stream = b.name(second.name());
        let other_order = r == rank && order == LaunchOrder::Other;
        for call in if other_order { [two, one] } else { [one, two] } {
            b.launch(first(r), call);
        }
    }
}

fn unequal(b: &mut Builder, rank: Who, by: Inequality) {
    let rank = b.rank(rank);
    for r in b.ranks() {
        let at: At = first(r);
        let (len, flags) = match by {
            Inequality::Length if r == rank => (8 * MIB, WindowFlags::CollSymmetric),
            Inequality::Flags if r == rank => (4 * MIB, WindowFlags::Default),
            Inequality::Length | Inequality::Flags => (4 * MIB, WindowFlags::CollSymmetric),
        };
        let x = b.alloc(at, "u", len, MemoryKind::Nccl);
        b.register_with(at, &x, flags);
        b.all_reduce(at, &x);
    }
}
