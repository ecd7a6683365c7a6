//! Mutexes of a rank, and the allocator's lock of a pool, which is one.
//! Not here: what is done while they are held.

use crate::judge::finding::{About, OpRef, Rule};
use crate::machine::Machine;
use crate::order::dependence::{Object, ObjectKind, Touch};
use crate::rank::{Rank, Token};
use crate::state::{Mutex, State, find};

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
