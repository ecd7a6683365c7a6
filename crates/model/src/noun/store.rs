//! The store: keys that all ranks see outside NCCL.
//!
//! Not here: flags ([`crate::noun::flag`]), barriers and agreements ([`crate::noun::barrier`]).

use crate::clock::Clock;
use crate::cx::Cx;
use crate::cx::Here;
use crate::describe::{Describe, Description};
use crate::host::value::Value;
use crate::id::Token;
use crate::identity::{Identify, StateIdentity};
use crate::judge::deadlock::Awaits;
use crate::judge::finding::{About, Rule};
use crate::machine::Machine;
use crate::machine::{Kind, Mode};
use crate::noun::cell::{Cell, ReadersOrdered, WordWrite, identify_used};
use crate::noun::pool::Plan;
use crate::op::{Show, Verb};
use crate::order::dependence::{Access, Object, ObjectKind};
use crate::order::poll::{NondetValues, Poll};
use crate::program::Operand;
use crate::state::{State, Table};
use crate::walk::walk;
use std::collections::BTreeMap;

/// Operations on the store.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum StoreOp {
    /// Sets a key of the store.
    Set {
        /// The key. All ranks share one store.
        key: Token,
        /// The value that a get of the key returns from then on.
        value: Operand,
    },
    /// Blocks until the key is there. Produces its value.
    Get {
        /// The key. All ranks share one store.
        key: Token,
    },
    /// Deletes a key of the store.
    Delete {
        /// The key. All ranks share one store.
        key: Token,
    },
}

impl Describe for StoreOp {
    fn describe(&self, to: &mut Description<'_>) {
        match self {
            Self::Set { key, value } => to.call("StoreSet", &[("key", key), ("value", value)]),
            Self::Get { key } => to.call("StoreGet", &[("key", key)]),
            Self::Delete { key } => to.call("StoreDelete", &[("key", key)]),
        }
    }
}

impl Verb for StoreOp {
    fn slots(&self) -> u32 {
        match self {
            Self::Set { .. } | Self::Delete { .. } => 0,
            Self::Get { .. } => 1,
        }
    }

    fn kind(&self) -> Kind {
        Kind::InRole
    }

    fn display(&self, show: &Show<'_>) -> String {
        let name = |token: &Token| show.name(*token);
        let of = |operand: &Operand| show.operand(operand);
        match self {
            Self::Set { key, value } => format!("store.set({}, {})", name(key), of(value)),
            Self::Get { key } => format!("store.get({})", name(key)),
            Self::Delete { key } => format!("store.delete({})", name(key)),
        }
    }

    fn seen_by_others(&self) -> bool {
        match self {
            Self::Set { .. } | Self::Delete { .. } => true,
            Self::Get { .. } => false,
        }
    }

    fn footprint(&self, _: Here<'_>, each: &mut dyn FnMut(Object, Access)) {
        let (key, how) = match self {
            Self::Set { key, .. } | Self::Delete { key } => (key, Access::Write),
            Self::Get { key } => (key, Access::Read),
        };
        each(Object::named(ObjectKind::StoreKey, *key), how);
    }

    fn ready(&self, here: Here<'_>, _: &mut NondetValues<'_>) -> Poll {
        match self {
            Self::Get { key } => Poll::once(Machine::key_is_set(here.state, *key)),
            Self::Set { .. } | Self::Delete { .. } => Poll::RUN,
        }
    }

    fn watches(&self) -> bool {
        match self {
            Self::Get { .. } => true,
            Self::Set { .. } | Self::Delete { .. } => false,
        }
    }

    fn wakes(&self) -> bool {
        !self.watches()
    }

    fn blocked_on(&self, _: Here<'_>) -> (Rule, Option<About>) {
        let (Self::Get { key } | Self::Set { key, .. } | Self::Delete { key }) = self;
        (Rule::Store1, Some(About::Named(*key)))
    }

    fn waits_for(&self, _: Here<'_>) -> Awaits {
        let (Self::Get { key } | Self::Set { key, .. } | Self::Delete { key }) = self;
        Awaits::Key(*key)
    }

    fn apply(&self, cx: &mut Cx<'_>, _: Plan) {
        cx.run_store(self);
    }
}

/// The keys of the store; nothing where one was deleted.
#[derive(Debug, Clone, Default)]
pub(crate) struct Keys {
    cells: BTreeMap<Token, Cell<Option<Value>>>,
}

walk!(apart struct Keys { cells: hashed moved });

impl Identify for Keys {
    fn identify(&self, to: &mut StateIdentity<'_>) {
        let Self { cells } = self;
        identify_used(cells, ObjectKind::StoreKey, to);
    }
}

impl Machine {
    /// Whether the key is there.
    pub(crate) fn key_is_set(state: &State, key: Token) -> bool {
        Keys::of(state.shared())
            .cells
            .get(&key)
            .and_then(|key| key.last())
            .is_some_and(|write| write.value.is_some())
    }

    /// Which write a blocking read of a key or a flag is ordered after.
    pub(crate) fn readers_ordered(&self, object: Object) -> ReadersOrdered {
        match self.config.mode {
            Mode::Naive => ReadersOrdered::BySight,
            Mode::Reduced if self.config.contended.contains(&object) => ReadersOrdered::BySight,
            Mode::Reduced => ReadersOrdered::ByWhatEnables,
        }
    }

    /// Whoever has this clock touches what all ranks share.
    pub(crate) fn access_shared(&self, state: &mut State, object: Object, how: Access, clock: &Clock) {
        self.meets(object, state.touch(object, how, clock));
    }
}

impl Cx<'_> {
    pub(crate) fn run_store(&mut self, verb: &StoreOp) {
        let (m, rank) = (self.m, self.rank);
        let costs = self.me_mut().costs_mut();
        if costs.steady {
            costs.store_calls += 1;
        }
        match verb {
            StoreOp::Set { key, value } => {
                let value = Machine::value(self.state, rank, value);
                m.export_memory(self.state, rank, &value);
                self.write_key(*key, Some(value));
            }
            StoreOp::Delete { key } => self.write_key(*key, None),
            StoreOp::Get { key } => {
                let row = &Keys::of(self.state.shared()).cells[key];
                let Some(WordWrite { value: Some(value), by: set, op: by }) = row.last() else {
                    unreachable!("polled before it runs")
                };
                let (value, of) = (value.clone(), by.rank);
                let after = match m.readers_ordered(Object::named(ObjectKind::StoreKey, *key)) {
                    ReadersOrdered::BySight => Some(set.clone()),
                    ReadersOrdered::ByWhatEnables => {
                        row.enabling(self.this().clock(), Option::is_some).cloned()
                    }
                };
                if let Some(after) = after {
                    self.this_mut().clock_mut().join(&after);
                }
                self.access_key(*key, Access::Read, "reads");
                let value = self.came_from(of, value);
                self.done(&[value]);
            }
        }
    }

    fn write_key(&mut self, key: Token, value: Option<Value>) {
        self.access_key(key, Access::Write, if value.is_some() { "sets" } else { "deletes" });
        let write = WordWrite { value, by: self.this().clock().clone(), op: self.op };
        let ordered = self.m.readers_ordered(Object::named(ObjectKind::StoreKey, key));
        Keys::of_mut(self.state.shared_mut()).cells.entry(key).or_default().write(write, ordered);
        self.done(&[]);
    }

    /// A key that is read while a set or delete of it is unordered with the read: its value is nondeterministic.
    fn access_key(&mut self, key: Token, how: Access, does: &'static str) {
        let (m, rank, op) = (self.m, self.rank, self.op);
        let object = Object::named(ObjectKind::StoreKey, key);
        let clock = self.this().clock().clone();
        let other = self.state.read_races(object, how, &clock).map(|actor| m.rank_of(actor));
        m.access_shared(self.state, object, how, &clock);
        if let Some(other) = other {
            m.find(self.state, Rule::Store2, About::Named(key), &[op], clock.past(), || {
                let others = if how == Access::Read { "set or delete" } else { "read" };
                let key = m.name(key);
                format!(
                    "rank {} {does} key {key} ({}), and nothing orders rank {}'s {others} of it with that",
                    rank.0,
                    m.at(&op),
                    other.0
                )
            });
        }
    }
}
