//! Mutexes of a rank, and the allocator's lock of a pool, which is one.
//! Not here: what is done while they are held.

use crate::cx::Cx;
use crate::describe::{Describe, Description};
use crate::judge::finding::{About, Rule};
use crate::machine::Kind;
use crate::op::{Show, Verb};
use crate::order::dependence::{Object, ObjectKind, Touch};
use crate::rank::Token;
use crate::state::{Mutex, find};

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

impl Cx<'_> {
    pub(crate) fn lock(&mut self, mutex: Token) {
        let (m, thread) = (self.m, self.thread);
        self.touch(Object::named(ObjectKind::Mutex, mutex), Touch::Mutate);
        let r = self.me_mut();
        let at = find(&r.mutexes, &mutex).unwrap_or_else(|| {
            r.mutexes.push((mutex, Mutex { holder: None, released: m.nothing.clone() }));
            r.mutexes.len() - 1
        });
        r.mutexes[at].1.holder = Some(thread);
        let released = r.mutexes[at].1.released.clone();
        r.threads[thread as usize].clock.join(&released);
        self.done(&[]);
    }

    pub(crate) fn unlock(&mut self, mutex: Token) {
        let (m, rank, thread, op) = (self.m, self.rank, self.thread, self.op);
        self.touch(Object::named(ObjectKind::Mutex, mutex), Touch::Mutate);
        let past = self.here().past();
        let r = self.me_mut();
        let clock = r.threads[thread as usize].clock.clone();
        let held = find(&r.mutexes, &mutex).filter(|at| r.mutexes[*at].1.holder == Some(thread));
        match held {
            Some(at) => r.mutexes[at].1 = Mutex { holder: None, released: clock },
            None => m.find(self.state, Rule::Mutex2, About::Of(rank, mutex), &[op], past, || {
                format!(
                    "rank {} unlocks {}, which this thread does not hold ({})",
                    rank.0,
                    m.name(mutex),
                    m.at(&op)
                )
            }),
        }
        self.done(&[]);
    }
}
