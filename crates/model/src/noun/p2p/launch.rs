//! What is launched to transfer something, how far it has come, and what is between two ranks.
//! Not here: what transfers do.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use crate::clock::Clock;
use crate::host::value::{Buffer, CommId};
use crate::identity::{Counter, Identify, StateIdentity, identify_as_hashed};
use crate::judge::finding::OpRef;
use crate::noun::collective::{CollectiveKind, Recorded};
use crate::noun::launch_order::{Issue, Ran};
use crate::noun::p2p::{Direction, Link};
use crate::program::Dtype;
use crate::rank::Rank;
use crate::state::{State, Table};
use crate::term::Content;
use crate::walk::walk;
use std::hash::Hash;

/// Half of a transfer, as one rank called it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Half {
    pub(crate) direction: Direction,
    /// World rank at the other end.
    pub(crate) peer: Rank,
    pub(crate) buffer: Arc<Buffer>,
    pub(crate) count: u64,
    pub(crate) dtype: Dtype,
    /// The window of the communicator in which the buffer starts, if the transfer is large enough to go through
    /// it.
    pub(crate) window: Option<u32>,
    /// Whether a graph recorded it.
    pub(crate) recorded: Recorded,
    /// The collective that it is a part of.
    pub(crate) part_of: Option<CollectiveKind>,
    pub(crate) op: OpRef,
}

// A transfer names ranks: they are told apart then.
identify_as_hashed!(Direction, Planned, CollectiveKind);
walk!(struct Half {
    direction: hashed fixed,
    peer: hashed fixed,
    buffer: hashed fixed,
    count: hashed fixed,
    dtype: hashed fixed,
    window: hashed fixed,
    recorded: hashed fixed,
    part_of: hashed fixed,
    op: hashed fixed,
});

impl Half {
    /// A half as it is called.
    pub(crate) fn new(
        (direction, peer): (Direction, Rank),
        (buffer, count, dtype): (Arc<Buffer>, u64, Dtype),
        op: OpRef,
    ) -> Self {
        Self {
            direction,
            peer,
            buffer,
            count,
            dtype,
            window: None,
            recorded: Recorded::No,
            part_of: None,
            op,
        }
    }

    /// Whether it and another are of one call each, or both of such a collective.
    pub(super) fn is_of_what(&self, other: &Self) -> bool {
        let kind = |half: &Self| half.part_of.as_ref().map(std::mem::discriminant);
        kind(self) == kind(other)
    }

    /// The link of a transfer that this rank called.
    pub(crate) fn link(&self, comm: CommId, rank: Rank) -> Link {
        self.direction.link(comm, rank, self.peer)
    }

    pub(super) fn registered(&self) -> bool {
        self.window.is_some()
    }

    pub(super) fn len_bytes(&self) -> u64 {
        self.count.saturating_mul(self.dtype.len_bytes())
    }
}

/// What became of the transfers of a group on one communicator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Planned {
    /// All transfers of the launch progress together.
    Whole,
    /// Some begin once others are over, and this is a part of them.
    Part,
}

/// Transfers of one rank that progress together: those of a group on one communicator, part of them, or a single one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Transfers {
    pub(crate) comm: CommId,
    /// The communicator whose channels it uses.
    pub(crate) family: CommId,
    /// Place in the launch order of the communicator's family on this rank.
    pub(crate) sequence: u32,
    pub(crate) issue: Issue,
    pub(crate) transfers: Vec<Half>,
    pub(crate) planned: Planned,
}

// A transfer names ranks: they are told apart then.
walk!(apart struct Transfers {
    comm: hashed fixed,
    family: derived fixed,
    sequence: hashed fixed,
    issue: hashed fixed,
    transfers: hashed fixed,
    planned: hashed fixed,
});

impl Identify for Transfers {
    fn identify(&self, to: &mut StateIdentity<'_>) {
        let Self { comm, family, sequence, issue, transfers, planned } = self;
        (comm, family).hash(to);
        to.counted(Counter::Family(to.rank(), *family), *sequence);
        issue.identify(to.rank(), to);
        transfers.identify(to);
        planned.identify(to);
    }
}

/// How far the launch of transfers has come that is next.
#[derive(Debug, Clone)]
pub(crate) struct Progress {
    /// Whether each transfer of the launch is over, in their order.
    pub(super) over: Vec<bool>,
    /// What receivers of its sends learn.
    pub(super) sent_clock: Clock,
    /// What its receives have learned, for when it is over.
    pub(super) received_clock: Option<Clock>,
}

// Only transfers have progress: ranks are told apart then.
walk!(struct Progress { over: hashed fixed, sent_clock: hashed fixed, received_clock: hashed fixed });

/// A send that is over before its receive has begun.
#[derive(Debug, Clone)]
pub(super) struct Message {
    pub(super) sent: Half,
    pub(super) content: Content,
    pub(super) sent_clock: Clock,
    /// The send, which counts as run once it is received.
    pub(super) ran: Ran,
}

// A transfer names ranks: they are told apart then.
walk!(struct Message {
    sent: hashed fixed,
    content: hashed fixed,
    sent_clock: hashed fixed,
    ran: hashed fixed,
});

/// What was sent and not yet received, and what was chosen about transfers.
#[derive(Debug, Clone, Default)]
pub(crate) struct Transit {
    pub(super) in_flight: BTreeMap<Link, VecDeque<Message>>,
    /// Whether NCCL holds all that was not measured to hang, or no more than was measured, once that is chosen.
    pub(super) holds_all: Option<bool>,
    /// Whether transfers of a group that need not progress together are serialized, once that is chosen.
    pub(super) serialized: Option<bool>,
    /// Links on which the receiver took what had not arrived: its end and the sender's count differently now.
    pub(super) out_of_step: BTreeSet<Link>,
}

// A transfer names ranks: they are told apart then.
walk!(struct Transit {
    in_flight: hashed fixed,
    holds_all: hashed fixed,
    serialized: hashed fixed,
    out_of_step: hashed fixed,
});

impl State {
    /// The sends that were not yet received.
    pub(crate) fn in_transit(&self) -> impl Iterator<Item = &Ran> {
        Transit::of(self.shared()).in_flight.values().flatten().map(|message| &message.ran)
    }

    /// Whether NCCL holds all that was not measured to hang, once that is chosen.
    pub(crate) fn holds_all(&self) -> Option<bool> {
        Transit::of(self.shared()).holds_all
    }

    /// Sets whether NCCL holds all that was not measured to hang, or whether transfers are serialized.
    pub(crate) fn decide_transit(&mut self, holds_all: Option<bool>, serialized: Option<bool>) {
        if holds_all.is_some() {
            Transit::of_mut(self.shared_mut()).holds_all = holds_all;
        }
        if serialized.is_some() {
            Transit::of_mut(self.shared_mut()).serialized = serialized;
        }
    }
}
