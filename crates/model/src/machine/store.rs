//! The store and the flags: what all ranks see outside NCCL.
//!
//! A blocking read of an uncontended key is ordered after the *first* write that could have enabled it, not
//! after the one it saw; of a contended one, after the one it saw.
//! Not here: barriers and agreements ([`super::host`]).
#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "an operand of another kind is as good as null, and verbs are dispatched by noun"
)]

use super::Machine;
use super::contention::{Object, ObjectKind, Touch, touch};
use super::state::{State, StoreEntry};
use crate::fault::{About, OpRef, Rule};
use crate::program::Verb;
use crate::rank::{Rank, Token};

impl Machine {
    pub(crate) fn run_store(&self, state: &mut State, rank: Rank, thread: u32, verb: &Verb, op: OpRef) {
        match verb {
            Verb::StoreSet { key, value } => {
                let value = Self::value(state, rank, value);
                self.touch_key(state, rank, thread, *key, Touch::Mutate, op);
                let clock = state.ranks[rank.at()].threads[thread as usize].clock.clone();
                let row = state.shared_mut().keys.entry(*key).or_default();
                row.first.get_or_insert_with(|| clock.clone());
                row.entry = Some(StoreEntry { value, set: clock });
                self.done(state, rank, thread, &[]);
            }
            Verb::StoreDelete { key } => {
                self.touch_key(state, rank, thread, *key, Touch::Mutate, op);
                state.shared_mut().keys.entry(*key).or_default().entry = None;
                self.done(state, rank, thread, &[]);
            }
            Verb::StoreGet { key } => {
                let object = Object::named(ObjectKind::StoreKey, *key);
                let row = &state.shared.keys[key];
                let entry = row.entry.clone().expect("polled before it runs");
                let after = if self.orders_by_sight(object) { Some(entry.set) } else { row.first.clone() };
                if let Some(after) = after {
                    state.rank_mut(rank).threads[thread as usize].clock.join(&after);
                }
                self.touch_key(state, rank, thread, *key, Touch::Read, op);
                self.done(state, rank, thread, &[entry.value]);
            }
            Verb::FlagWrite { flag, value } => {
                self.touch_shared(state, rank, thread, Object::named(ObjectKind::Flag, *flag), Touch::Mutate);
                let clock = state.ranks[rank.at()].threads[thread as usize].clock.clone();
                let row = state.shared_mut().flags.entry(*flag).or_default();
                row.value = *value;
                row.first.entry(*value).or_insert_with(|| clock.clone());
                row.last = Some(clock);
                self.done(state, rank, thread, &[]);
            }
            Verb::FlagWait { flag, value } => {
                let object = Object::named(ObjectKind::Flag, *flag);
                let after = state.shared.flags.get(flag).and_then(|row| {
                    if self.orders_by_sight(object) {
                        row.last.clone()
                    } else {
                        row.first.get(value).cloned()
                    }
                });
                if let Some(after) = after {
                    state.rank_mut(rank).threads[thread as usize].clock.join(&after);
                }
                self.touch_shared(state, rank, thread, object, Touch::Read);
                self.done(state, rank, thread, &[]);
            }
            _ => unreachable!("dispatched by verb"),
        }
    }

    /// Whether a blocking read is ordered after the write it saw: on contended objects, where orders are
    /// choices, and in the unreduced semantics.
    fn orders_by_sight(&self, object: Object) -> bool {
        self.config.mode == super::Mode::Naive || self.config.contended.contains(&object)
    }

    fn touch_shared(&self, state: &mut State, rank: Rank, thread: u32, object: Object, how: Touch) -> bool {
        let costs = &mut state.rank_mut(rank).costs;
        if costs.steady && object.kind == ObjectKind::StoreKey {
            costs.store_calls += 1;
        }
        let clock = state.ranks[rank.at()].threads[thread as usize].clock.clone();
        let conflict = touch(&mut state.shared_mut().touches, object, how, &clock);
        if conflict {
            self.contend(object);
        }
        conflict
    }

    /// A key that is read while a set or delete of it is unordered with the read: luck decides the value.
    fn touch_key(&self, state: &mut State, rank: Rank, thread: u32, key: Token, how: Touch, op: OpRef) {
        let object = Object::named(ObjectKind::StoreKey, key);
        let clock = state.ranks[rank.at()].threads[thread as usize].clock.clone();
        let reads = state.shared.touches.get(&object).is_some_and(|rows| {
            rows.iter().any(|row| {
                let epoch = match how {
                    Touch::Read => row.mutation,
                    Touch::Mutate => row.read,
                };
                row.actor != clock.actor() && epoch > 0 && !clock.after(row.actor, epoch)
            })
        });
        self.touch_shared(state, rank, thread, object, how);
        if reads {
            self.find(state, Rule::Store2, About::Named(key), &[op], clock.past(), || {
                format!(
                    "nothing orders the reads of key {} with the set or delete of it on another rank \
                     (rank {}, {})",
                    self.name(key),
                    rank.0,
                    self.at(&op)
                )
            });
        }
    }
}
