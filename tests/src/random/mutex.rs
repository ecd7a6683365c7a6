//! Fragments about mutexes.
//! Not here: locks of pools, and lists and maps that no mutex guards.

use rankcheck_model::{ListOp, MapOp, MutexOp, Op, Operand, Question, ThreadOp};

use super::builder::{At, Builder, first};
use super::draw::{Below, Who, drawn};

drawn! {
    /// A piece of protocol with mutexes.
    pub(super) enum Fragment {
        /// Two threads lock two mutexes, in one order or in two.
        6 => Nested { rank: Who, order: LockOrder, then: AfterUnlock },
        /// Two threads append under the mutex that they lock first, and the order shows.
        7 => Append { rank: Who, order: LockOrder, then: AfterUnlock },
        /// Two threads change lists and maps under mutexes, on one rank or on all; what they leave may show.
        12 => Sections { rank: Who, place: Where, one: Section, two: Section, shows: Shows },
    }
}

drawn! {
    /// Which ranks have two threads that lock.
    pub(super) enum Where {
        1 => One,
        1 => Two,
        1 => All,
    }
}

drawn! {
    /// What a thread does under mutexes.
    pub(super) enum Section {
        3 => Once { mutex: Below<2>, act: Guarded },
        1 => Twice { mutex: Below<2>, act: Guarded, again: Guarded },
        /// Nothing guards it.
        1 => Bare { act: Guarded },
    }
}

drawn! {
    /// What is changed under a mutex, or looked at.
    pub(super) enum Guarded {
        5 => Push,
        2 => Put { key: Below<2> },
        1 => Pop,
        1 => Take { key: Below<2> },
        1 => SetFirst,
        /// What is done depends on what is there.
        2 => PushIfThereIsSome,
        2 => PutIfMissing { key: Below<2> },
    }
}

drawn! {
    /// Whether anybody sees in what order it was done.
    pub(super) enum Shows {
        3 => Nothing,
        1 => Length,
        1 => First,
        /// The first thread looks once the second is over.
        2 => FirstAtTheEnd,
        1 => ValueAtTheEnd,
    }
}

drawn! {
    /// In which order the second thread locks what the first locks in order.
    pub(super) enum LockOrder {
        1 => Same,
        1 => Other,
    }
}

drawn! {
    /// Whether something is unlocked that nobody holds.
    pub(super) enum AfterUnlock {
        2 => Nothing,
        1 => OneMore,
    }
}

impl Fragment {
    pub(super) fn build(self, b: &mut Builder) {
        let (rank, order, then) = match self {
            Self::Nested { rank, order, then } | Self::Append { rank, order, then } => (rank, order, then),
            Self::Sections { rank, place, one, two, shows } => {
                let rank = b.rank(rank);
                let other = b.next(rank);
                let ranks = b.ranks().filter(|r| match place {
                    Where::One => *r == rank,
                    Where::Two => *r == rank || *r == other,
                    Where::All => true,
                });
                ranks.for_each(|r| sections(b, r, (one, two), shows));
                return;
            }
        };
        let rank = b.rank(rank);
        let (m, n) = (b.name("m"), b.name("n"));
        let second = b.second(rank);
        for (at, of_first, of_second) in [(first(rank), m, n), (second, m, n)] {
            let swapped = at.thread == 1 && order == LockOrder::Other;
            let (outer, inner) = if swapped { (of_second, of_first) } else { (of_first, of_second) };
            b.push(at, Op::Mutex(MutexOp::Lock { mutex: outer }));
            match self {
                Self::Nested { .. } => {
                    b.push(at, Op::Mutex(MutexOp::Lock { mutex: inner }));
                    b.push(at, Op::Mutex(MutexOp::Unlock { mutex: inner }));
                }
                Self::Append { .. } | Self::Sections { .. } => b.append(at, "order", at.thread.into()),
            }
            b.push(at, Op::Mutex(MutexOp::Unlock { mutex: outer }));
            if then == AfterUnlock::OneMore {
                b.push(at, Op::Mutex(MutexOp::Unlock { mutex: inner }));
            }
        }
        if matches!(self, Self::Append { .. }) {
            let (at, list) = (first(rank), b.name("order"));
            let got = b.push(at, Op::List(ListOp::Get { list, index: Operand::Int(0) }));
            b.exit_if(at, Question::Truth(got), "first");
        }
    }
}

fn sections(b: &mut Builder, rank: u32, (one, two): (Section, Section), shows: Shows) {
    let second = b.second(rank);
    section(b, first(rank), one);
    section(b, second, two);
    let (at, list, map) = (first(rank), b.name("order"), b.name("held"));
    if matches!(shows, Shows::FirstAtTheEnd | Shows::ValueAtTheEnd) {
        b.join(rank);
    }
    match shows {
        Shows::Nothing => {}
        Shows::Length => b.exit_if(at, Question::ListLen { list }, "some"),
        Shows::First | Shows::FirstAtTheEnd => {
            let got = b.push(at, Op::List(ListOp::Get { list, index: Operand::Int(0) }));
            b.exit_if(at, Question::Truth(got), "second");
        }
        Shows::ValueAtTheEnd => {
            let (key, default) = (Operand::Int(0), Operand::Null);
            let got = b.push(at, Op::Map(MapOp::Get { map, key, default }));
            b.exit_if(at, Question::Truth(got), "second");
        }
    }
}

fn section(b: &mut Builder, at: At, section: Section) {
    let acts = match section {
        Section::Once { act, .. } | Section::Bare { act } => vec![act],
        Section::Twice { act, again, .. } => vec![act, again],
    };
    let mutex = match section {
        Section::Once { mutex, .. } | Section::Twice { mutex, .. } => Some(["m", "n"][mutex.0 as usize]),
        Section::Bare { .. } => None,
    };
    let mutex = mutex.map(|name| b.name(name));
    for act in acts {
        if let Some(mutex) = mutex {
            b.push(at, Op::Mutex(MutexOp::Lock { mutex }));
        }
        guarded(b, at, act);
        if let Some(mutex) = mutex {
            b.push(at, Op::Mutex(MutexOp::Unlock { mutex }));
        }
    }
}

/// Changes the list or the map of the rank; what a thread leaves there is its number.
fn guarded(b: &mut Builder, at: At, act: Guarded) {
    let (list, map, value) = (b.name("order"), b.name("held"), Operand::Int(at.thread.into()));
    let push = Op::List(ListOp::Push { list, value: value.clone() });
    let key = |key: Below<2>| Operand::Int(key.int());
    match act {
        Guarded::Push => {
            b.push(at, push);
        }
        Guarded::Put { key: of } => {
            b.push(at, Op::Map(MapOp::Put { map, key: key(of), value }));
        }
        Guarded::Pop => {
            b.push(at, Op::List(ListOp::Pop { list }));
        }
        Guarded::Take { key: of } => {
            b.push(at, Op::Map(MapOp::Pop { map, key: key(of) }));
        }
        Guarded::SetFirst => {
            b.push(at, Op::List(ListOp::Set { list, index: Operand::Int(0), value }));
        }
        Guarded::PushIfThereIsSome => b.ask(at, Question::ListLen { list }, vec![push]),
        Guarded::PutIfMissing { key: of } => {
            let label = b.name("it was there");
            b.ask(at, Question::MapHas { map, key: key(of) }, vec![Op::Thread(ThreadOp::Reach { label })]);
            let put = vec![Op::Map(MapOp::Put { map, key: key(of), value })];
            b.recall(at, 0, Vec::new(), put);
        }
    }
}
