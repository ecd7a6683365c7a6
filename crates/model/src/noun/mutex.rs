//! Mutexes of a rank, and the allocator's lock of a pool, which is one.
//! Not here: what is done while they are held.

use crate::describe::{Describe, Description};
use crate::judge::finding::{About, OpRef, Rule};
use crate::machine::Kind;
use crate::machine::Machine;
use crate::op::{Show, Verb};
use crate::order::dependence::{Object, ObjectKind, Touch};
use crate::rank::{Rank, Token};
use crate::state::{Mutex, State, find};

/// What can be done with mutexs.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum MutexOp {
    /// Locks a mutex of this rank.
    Lock {
        /// The mutex.
        mutex: Token,
    },
    /// Unlocks it.
    Unlock {
        /// The mutex.
        mutex: Token,
    },
}

impl Describe for MutexOp {
    fn describe(&self, to: &mut Description<'_>) {
        match self {
            Self::Lock { mutex } => to.call("Lock", &[("mutex", mutex)]),
            Self::Unlock { mutex } => to.call("Unlock", &[("mutex", mutex)]),
        }
    }
}

impl Verb for MutexOp {
    fn slots(&self) -> u32 {
        0
    }

    fn kind(&self) -> Kind {
        Kind::InRole
    }

    fn display(&self, show: &Show<'_>) -> String {
        let name = |token: &Token| show.name(*token);
        match self {
            Self::Lock { mutex } => format!("{}.lock", name(mutex)),
            Self::Unlock { mutex } => format!("{}.unlock", name(mutex)),
        }
    }
}

impl Machine {
    pub(crate) fn lock(&self, state: &mut State, rank: Rank, thread: u32, mutex: Token) {
        self.touch(state, rank, thread, Object::named(ObjectKind::Mutex, mutex), Touch::Mutate);
        let r = state.rank_mut(rank);
        let at = find(&r.mutexes, &mutex).unwrap_or_else(|| {
            r.mutexes.push((mutex, Mutex { holder: None, released: self.nothing.clone() }));
            r.mutexes.len() - 1
        });
        r.mutexes[at].1.holder = Some(thread);
        let released = r.mutexes[at].1.released.clone();
        r.threads[thread as usize].clock.join(&released);
        self.done(state, rank, thread, &[]);
    }

    pub(crate) fn unlock(&self, state: &mut State, rank: Rank, thread: u32, mutex: Token, op: OpRef) {
        self.touch(state, rank, thread, Object::named(ObjectKind::Mutex, mutex), Touch::Mutate);
        let past = Self::past(state, rank, thread);
        let r = state.rank_mut(rank);
        let clock = r.threads[thread as usize].clock.clone();
        let held = find(&r.mutexes, &mutex).filter(|at| r.mutexes[*at].1.holder == Some(thread));
        match held {
            Some(at) => r.mutexes[at].1 = Mutex { holder: None, released: clock },
            None => self.find(state, Rule::Mutex2, About::Of(rank, mutex), &[op], past, || {
                format!(
                    "rank {} unlocks {}, which this thread does not hold ({})",
                    rank.0,
                    self.name(mutex),
                    self.at(&op)
                )
            }),
        }
        self.done(state, rank, thread, &[]);
    }
}
