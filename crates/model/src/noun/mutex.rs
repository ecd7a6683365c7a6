//! Mutexes of a rank, and the allocator's lock of a pool, which is one.
//! Not here: what is done while they are held.

use crate::cx::Cx;
use crate::cx::Here;
use crate::describe::{Describe, Description};
use crate::judge::deadlock::Awaits;
use crate::judge::finding::{About, Rule};
use crate::machine::Kind;
use crate::noun::pool::Plan;
use crate::op::{Show, Verb};
use crate::order::dependence::{Access, Object, ObjectKind};
use crate::order::poll::{Picks, Poll};
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

    fn footprint(&self, _: Here<'_>, each: &mut dyn FnMut(Object, Access)) {
        let (Self::Lock { mutex } | Self::Unlock { mutex }) = self;
        each(Object::named(ObjectKind::Mutex, *mutex), Access::Write);
    }

    fn ready(&self, here: Here<'_>, _: &mut Picks<'_>) -> Poll {
        match self {
            Self::Lock { mutex } => Poll::once(here.holder_of(*mutex).is_none()),
            Self::Unlock { .. } => Poll::RUN,
        }
    }

    fn blocked_on(&self, here: Here<'_>) -> (Rule, Option<About>) {
        let (Self::Lock { mutex } | Self::Unlock { mutex }) = self;
        (Rule::Mutex1, Some(About::Of(here.rank, *mutex)))
    }

    fn waits_for(&self, here: Here<'_>) -> Awaits {
        let (Self::Lock { mutex } | Self::Unlock { mutex }) = self;
        Awaits::Holder(here.holder_of(*mutex))
    }

    fn apply(&self, cx: &mut Cx<'_>, _: Plan) {
        match self {
            Self::Lock { mutex } => cx.lock(*mutex),
            Self::Unlock { mutex } => cx.unlock(*mutex),
        }
    }
}

impl Here<'_> {
    fn holder_of(self, mutex: Token) -> Option<u32> {
        let r = self.me();
        find(&r.mutexes, &mutex).and_then(|at| r.mutexes[at].1.holder)
    }
}

impl Cx<'_> {
    pub(crate) fn lock(&mut self, mutex: Token) {
        let (m, thread) = (self.m, self.thread);
        self.access(Object::named(ObjectKind::Mutex, mutex), Access::Write);
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
        self.access(Object::named(ObjectKind::Mutex, mutex), Access::Write);
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
