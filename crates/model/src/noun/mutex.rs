//! Mutexes of a rank, and the allocator's lock of a pool, which is one.
//! Not here: what is done while they are held.

use crate::clock::Clock;
use crate::cx::Cx;
use crate::cx::Here;
use crate::describe::{Describe, Description};
use crate::id::Token;
use crate::identity::{Identify, StateIdentity};
use crate::judge::deadlock::Awaits;
use crate::judge::finding::{About, Rule};
use crate::machine::{Kind, Machine};
use crate::noun::pool::Plan;
use crate::op::{Show, Verb};
use crate::order::dependence::{Access, Object, ObjectKind};
use crate::order::poll::{NondetValues, Poll};
use crate::state::Table;
use crate::walk::{Rows, walk};
use std::hash::Hash;

/// Operations on mutexes of a rank.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum MutexOp {
    /// Locks a mutex of this rank.
    Lock {
        /// Name of the mutex. It is free at first.
        mutex: Token,
    },
    /// Unlocks the mutex. Whoever waits for it may go on.
    Unlock {
        /// Name of the mutex. It is free at first.
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
        each(self.object(), Access::Write);
    }

    fn ready(&self, here: Here<'_>, _: &mut NondetValues<'_>) -> Poll {
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

impl MutexOp {
    pub(crate) fn object(&self) -> Object {
        let (Self::Lock { mutex } | Self::Unlock { mutex }) = self;
        Object::named(ObjectKind::Mutex, *mutex)
    }
}

/// A lock of a rank.
#[derive(Debug, Clone)]
pub(crate) struct Mutex {
    holder: Option<u32>,
    released: Clock,
}

walk!(struct Mutex { holder: hashed fixed, released: hashed moved });

/// The locks of a rank.
#[derive(Debug, Clone, Default)]
pub(crate) struct Mutexes {
    rows: Rows<Token, Mutex>,
}

walk!(apart struct Mutexes { rows: hashed moved });

impl Identify for Mutexes {
    fn identify(&self, to: &mut StateIdentity<'_>) {
        let Self { rows } = self;
        for row @ (_, Mutex { holder, released }) in rows.by_key() {
            // One that is free and tells nobody anything new is one that was never held.
            to.unless_known(holder.is_none().then_some(released), |to| row.identify(to));
        }
        u64::MAX.hash(to);
    }
}

impl Here<'_> {
    fn holder_of(self, mutex: Token) -> Option<u32> {
        Mutexes::of(self.me()).rows.get(&mutex).and_then(|mutex| mutex.holder)
    }
}

impl Cx<'_> {
    pub(crate) fn lock(&mut self, mutex: Token) {
        let (m, thread) = (self.m, self.thread);
        self.access(Object::named(ObjectKind::Mutex, mutex), Access::Write);
        let free = || Mutex { holder: None, released: m.nothing.clone() };
        let row = Mutexes::of_mut(self.me_mut()).rows.get_or_insert_with(&mutex, free);
        row.holder = Some(thread);
        let released = row.released.clone();
        self.this_mut().clock_mut().join(&released);
        self.done(&[]);
    }

    pub(crate) fn unlock(&mut self, mutex: Token) {
        let (m, rank, thread, op) = (self.m, self.rank, self.thread, self.op);
        self.access(Object::named(ObjectKind::Mutex, mutex), Access::Write);
        let clock = self.this().clock().clone();
        let row =
            Mutexes::of_mut(self.me_mut()).rows.get_mut(&mutex).filter(|row| row.holder == Some(thread));
        match row {
            Some(row) => *row = Mutex { holder: None, released: clock },
            None => {
                m.find(self.state, Rule::Mutex2, About::Of(rank, mutex), &[op], clock.past(), || {
                    format!(
                        "rank {} unlocks {}, which this thread does not hold ({})",
                        rank.0,
                        m.name(mutex),
                        m.at(&op)
                    )
                });
                Machine::undefine(self.state, op);
            }
        }
        self.done(&[]);
    }
}
