//! Contention is found, not guessed: an object is contended if two operations on it, one a mutation, are
//! unordered by happens-before.
//!
//! Uncontended operations commute with everything unordered with them and run at once; operations on a
//! contended object are choices. The set of contended objects only grows, and the exploration restarts when
//! it does. Not here: what the operations do.

use std::collections::BTreeMap;
use std::hash::Hash;

use serde::{Deserialize, Serialize};

use crate::clock::{Actor, Clock};
use crate::id::Token;
use crate::identity::{Identify, StateIdentity};
use crate::state::{RankState, State, Table};
use crate::walk::walk;

use crate::host::value::{CommId, MemoryId, Owner};

/// The kinds of object on which operations may fail to commute: one entry of the commutation table each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names are the nouns")]
pub enum ObjectKind {
    StoreKey,
    Flag,
    Stream,
    Comm,
    Event,
    Mutex,
    Pool,
    Map,
    List,
    Addresses,
    Memory,
    Hosts,
    Init,
    Graph,
    Capture,
    CommHashes,
}

impl ObjectKind {
    /// Every kind, in the order of declaration.
    pub const ALL: [Self; 16] = [
        Self::StoreKey,
        Self::Flag,
        Self::Stream,
        Self::Comm,
        Self::Event,
        Self::Mutex,
        Self::Pool,
        Self::Map,
        Self::List,
        Self::Addresses,
        Self::Memory,
        Self::Hosts,
        Self::Init,
        Self::Graph,
        Self::Capture,
        Self::CommHashes,
    ];
}

/// An object on which operations of two threads may fail to commute. Objects of a rank are contended on
/// every rank or on none, so that ranks stay interchangeable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Object {
    /// What kind of object it is; ids of two kinds have nothing to do with each other.
    pub kind: ObjectKind,
    /// Which of its kind.
    pub id: ObjectId,
}

/// Which object of a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ObjectId {
    /// All that there are, or the only one.
    All,
    /// The one of this name.
    Named(Token),
    /// The communicator with this id.
    Comm(CommId),
}

impl Object {
    pub(crate) fn named(kind: ObjectKind, token: Token) -> Self {
        Self { kind, id: ObjectId::Named(token) }
    }

    pub(crate) fn comm(comm: CommId) -> Self {
        Self { kind: ObjectKind::Comm, id: ObjectId::Comm(comm) }
    }

    /// The communicator that it is.
    pub(crate) fn comm_id(self) -> Option<CommId> {
        if let ObjectId::Comm(comm) = self.id { Some(comm) } else { None }
    }

    /// All streams of a rank, those to come included: what a device synchronize looks at. Here launches read
    /// and the synchronize mutates, so that launches on different streams do not conflict.
    pub(crate) const DEVICE: Self = Self { kind: ObjectKind::Stream, id: ObjectId::All };

    /// Whether it is known who may still use it, as far as a search has found ([`crate::order::ahead`]).
    fn is_followed(self) -> bool {
        match self.kind {
            ObjectKind::StoreKey
            | ObjectKind::Flag
            | ObjectKind::Mutex
            | ObjectKind::Map
            | ObjectKind::List => true,
            ObjectKind::Stream
            | ObjectKind::Comm
            | ObjectKind::Event
            | ObjectKind::Pool
            | ObjectKind::Addresses
            | ObjectKind::Memory
            | ObjectKind::Hosts
            | ObjectKind::Init
            | ObjectKind::Graph
            | ObjectKind::Capture
            | ObjectKind::CommHashes => false,
        }
    }

    /// Whether it is one for all ranks.
    pub(crate) fn is_shared(self) -> bool {
        matches!(self.kind, ObjectKind::StoreKey | ObjectKind::Flag)
    }

    /// The memory of an owner: whether it is still there.
    pub(crate) fn memory(memory: MemoryId) -> Self {
        let (Owner::Pool(token) | Owner::Program(token)) = memory.owner;
        Self::named(ObjectKind::Memory, token)
    }

    /// The host barriers and agreements that a rank enters.
    pub(crate) const HOSTS: Self = Self { kind: ObjectKind::Hosts, id: ObjectId::All };

    /// What captures forbid on a rank: begins and ends mutate it, unsafe calls read it.
    pub(crate) const CAPTURE: Self = Self { kind: ObjectKind::Capture, id: ObjectId::All };

    /// The order of the hashes of communicators, in which groups launch on several of them.
    pub const COMM_HASHES: Self = Self { kind: ObjectKind::CommHashes, id: ObjectId::All };

    /// The virtual addresses of a rank.
    pub(crate) const ADDRESSES: Self = Self { kind: ObjectKind::Addresses, id: ObjectId::All };
}

/// What an operation does to an object or to memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Access {
    Read,
    Write,
    /// A call of NCCL on a communicator. It changes the communicator; but two calls that nothing orders break COMM-4,
    /// and nobody specifies what follows, so one order of them stands for all.
    Call,
}

/// The last touches of one actor: epochs from 1, 0 for never.
#[derive(Debug, Clone, Copy)]
struct Last {
    actor: Actor,
    read: u32,
    mutation: u32,
    call: u32,
}

walk!(apart struct Last { actor: hashed moved, read: hashed fixed, mutation: hashed fixed, call: hashed fixed });

/// For each object the last touches of each actor: what a rank touched of its own, or all ranks of what they share.
#[derive(Debug, Clone, Default)]
pub(crate) struct Touches {
    rows: BTreeMap<Object, Vec<Last>>,
}

walk!(apart struct Touches { rows: hashed moved });

impl Identify for Touches {
    fn identify(&self, to: &mut StateIdentity<'_>) {
        for (object, rows) in &self.rows {
            // Of what is known to be contended nothing is found any more.
            if to.machine.config.contended.contains(object) && !object.is_shared() {
                continue;
            }
            if object.is_followed() && !to.is_used(*object) {
                continue;
            }
            let epochs = |row: &Last| [row.read, row.mutation, row.call];
            let mut rows = rows
                .iter()
                .filter(|row| epochs(row).into_iter().any(|epoch| !to.is_known_here(row.actor, epoch)))
                .collect::<Vec<_>>();
            if rows.is_empty() {
                continue;
            }
            object.hash(to);
            rows.sort_by_key(|row| row.actor);
            for row in rows {
                for epoch in epochs(row) {
                    let epoch = if to.is_known_here(row.actor, epoch) { 0 } else { epoch };
                    to.asked_about(row.actor, epoch);
                }
            }
        }
    }
}

/// How a touch meets earlier ones of others with which it does not commute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TouchMeeting {
    /// No other actor touched it so.
    Nobody,
    /// All of them are ordered before it.
    Ordered,
    /// Nothing orders one of them before it.
    Unordered,
}

impl Touches {
    /// Records that an object is touched.
    fn touch(&mut self, object: Object, access: Access, clock: &Clock) -> TouchMeeting {
        let rows = self.rows.entry(object).or_default();
        let met = meeting(rows, access, clock);
        let epoch = clock.epoch();
        let row = match rows.iter_mut().find(|row| row.actor == clock.actor()) {
            Some(row) => row,
            None => {
                rows.push(Last { actor: clock.actor(), read: 0, mutation: 0, call: 0 });
                rows.last_mut().expect("just pushed")
            }
        };
        match access {
            Access::Read => row.read = epoch,
            Access::Write => row.mutation = epoch,
            Access::Call => row.call = epoch,
        }
        met
    }

    /// Whether a touch would conflict with an earlier one that is not ordered before it.
    fn clashes(&self, object: Object, access: Access, clock: &Clock) -> bool {
        self.rows.get(&object).is_some_and(|rows| meeting(rows, access, clock) == TouchMeeting::Unordered)
    }
}

impl RankState {
    /// A thread touches an object of its rank.
    pub(crate) fn touch(&mut self, object: Object, access: Access, clock: &Clock) -> TouchMeeting {
        Touches::of_mut(self).touch(object, access, clock)
    }

    /// Whether a touch would conflict so.
    pub(crate) fn clashes(&self, object: Object, access: Access, clock: &Clock) -> bool {
        Touches::of(self).clashes(object, access, clock)
    }
}

impl State {
    /// Somebody touches what all ranks share.
    pub(crate) fn touch(&mut self, object: Object, access: Access, clock: &Clock) -> TouchMeeting {
        Touches::of_mut(self.shared_mut()).touch(object, access, clock)
    }

    /// Whether a touch would conflict so.
    pub(crate) fn clashes(&self, object: Object, access: Access, clock: &Clock) -> bool {
        Touches::of(self.shared()).clashes(object, access, clock)
    }

    /// Whose earlier touch another one would conflict with, where one of the two is a read and the other a mutation.
    pub(crate) fn read_races(&self, object: Object, access: Access, clock: &Clock) -> Option<Actor> {
        let races = |row: &&Last| {
            let epoch = match access {
                Access::Read => row.mutation,
                Access::Write | Access::Call => row.read,
            };
            row.actor != clock.actor() && epoch > 0 && !clock.after(row.actor, epoch)
        };
        let rows = Touches::of(self.shared()).rows.get(&object)?;
        rows.iter().find(races).map(|row| row.actor)
    }
}

fn meeting(rows: &[Last], access: Access, clock: &Clock) -> TouchMeeting {
    let mut meeting = TouchMeeting::Nobody;
    for row in rows.iter().filter(|row| row.actor != clock.actor()) {
        let epoch = match access {
            Access::Write => row.read.max(row.mutation).max(row.call),
            Access::Read => row.mutation.max(row.call),
            Access::Call => row.read.max(row.mutation),
        };
        if epoch == 0 {
            continue;
        }
        if !clock.after(row.actor, epoch) {
            return TouchMeeting::Unordered;
        }
        meeting = TouchMeeting::Ordered;
    }
    meeting
}
