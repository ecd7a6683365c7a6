//! Fragments about mutexes.
//! Not here: locks of pools.

use rankcheck_model::{ListOp, MutexOp, Op, Operand, Question};

use super::builder::{Builder, first};
use super::draw::{Who, drawn};

drawn! {
    /// A piece of protocol with mutexes.
    pub(super) enum Fragment {
        /// Two threads lock two mutexes, in one order or in two.
        6 => Nested { rank: Who, order: LockOrder, then: AfterUnlock },
        /// Two threads append under the mutex that they lock first, and the order shows.
        7 => Append { rank: Who, order: LockOrder, then: AfterUnlock },
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
        let (Self::Nested { rank, order, then } | Self::Append { rank, order, then }) = self;
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
                Self::Append { .. } => b.append(at, "order", at.thread.into()),
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
