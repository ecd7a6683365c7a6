//! What a rank knows of its communicators, and its last calls on them.
//! Not here: how they are made and ended, and what calls on them mean.

use crate::clock::{Actor, Clock};
use crate::host::value::CommId;
use crate::id::Token;
use crate::identity::{Counter, Identify, StateIdentity, identify_as_hashed};
use crate::judge::finding::OpRef;
use crate::noun::comm::Resources;
use crate::noun::p2p::Links;
use crate::noun::window::{Window, Windows};
use crate::state::{RankState, Table};
use crate::walk::{Rows, walk};
use std::hash::Hash;

/// What a rank may still do with a communicator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Life {
    InUse,
    /// Nothing but destroy it.
    Finalized,
    Destroyed,
}

/// What one rank knows of a communicator.
#[derive(Debug, Clone)]
pub(crate) struct CommState {
    /// How many members the communicator has.
    pub(super) size: usize,
    /// The communicator whose channels it uses: itself, unless a split shares the parent's.
    pub(super) family: CommId,
    /// What communicators split from it use.
    pub(super) children: Resources,
    /// How many set-up events the rank has entered.
    pub(super) setups: u32,
    /// The communicator that was the first at its address.
    pub(super) address: CommId,
    pub(super) connected: bool,
    pub(super) life: Life,
    /// The thread that is inside its destruction.
    pub(super) parting: Option<u32>,
    /// The call that finalized it, or later the one that destroyed it.
    pub(super) ended_by: Option<OpRef>,
    /// How many collectives the rank has launched.
    pub(super) launched: u32,
    pub(super) links: Links,
    pub(super) windows: Windows,
    /// What each stream of the rank knew when the last launch on the communicator there was over, by stream. Where threads
    /// contend, that is no function of positions.
    pub(super) completed: Vec<Clock>,
}

identify_as_hashed!(Resources);
walk!(apart struct CommState {
    size: hashed fixed,
    family: hashed fixed,
    children: hashed fixed,
    setups: hashed fixed,
    address: hashed fixed,
    connected: hashed fixed,
    life: hashed fixed,
    parting: hashed fixed,
    ended_by: explains moved,
    launched: hashed fixed,
    // Links name ranks: they are told apart then.
    links: hashed fixed,
    windows: hashed moved,
    completed: hashed moved,
});

impl CommState {
    fn identify(&self, comm: CommId, to: &mut StateIdentity<'_>) {
        let Self {
            size,
            family,
            children,
            setups,
            address,
            connected,
            life,
            parting,
            ended_by: _,
            launched,
            links,
            windows,
            completed,
        } = self;
        (size, family, children, setups, address, connected, life, parting).hash(to);
        to.counted(Counter::Collectives(comm), *launched);
        links.identify(to);
        windows.identify(to);
        completed.identify(to);
    }
}

impl CommState {
    /// A communicator that was just entered.
    pub(super) fn new(size: usize, (family, children): (CommId, Resources), address: CommId) -> Self {
        Self {
            size,
            family,
            children,
            setups: 0,
            address,
            connected: false,
            life: Life::InUse,
            parting: None,
            ended_by: None,
            launched: 0,
            links: Links::default(),
            windows: Windows::default(),
            completed: Vec::new(),
        }
    }

    /// Returns the number of members.
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// The communicator whose channels it uses: itself, unless a split shares the parent's.
    pub(crate) fn family(&self) -> CommId {
        self.family
    }

    /// Whether its ordinary path was used before.
    pub(crate) fn is_connected(&self) -> bool {
        self.connected
    }

    /// Its ordinary path is used from now on.
    pub(crate) fn connect(&mut self) {
        self.connected = true;
    }

    /// Whether the rank has destroyed it.
    pub(crate) fn is_destroyed(&self) -> bool {
        self.life == Life::Destroyed
    }

    /// Whether the rank has neither finalized nor destroyed it.
    pub(crate) fn is_in_use(&self) -> bool {
        self.life == Life::InUse
    }

    /// Whether no other communicator has a part in its channels.
    pub(crate) fn has_own_channels(&self, comm: CommId) -> bool {
        self.family == comm && self.children == Resources::Own
    }

    /// The thread that is inside its destruction.
    pub(crate) fn parting(&self) -> Option<u32> {
        self.parting
    }

    /// It is finalized or destroyed, by this call.
    pub(super) fn end(&mut self, life: Life, op: OpRef) {
        self.life = life;
        self.ended_by = Some(op);
    }

    /// A thread enters its destruction and waits there, or comes out.
    pub(crate) fn part(&mut self, thread: Option<u32>) {
        self.parting = thread;
    }

    /// Returns how many collectives the rank has launched.
    pub(crate) fn launched(&self) -> u32 {
        self.launched
    }

    /// One more collective is launched; gives its position.
    pub(crate) fn launch(&mut self) -> u32 {
        self.launched += 1;
        self.launched - 1
    }

    /// One more set-up event is entered; gives its position.
    pub(crate) fn next_setup(&mut self) -> u32 {
        self.setups += 1;
        self.setups - 1
    }

    /// Links of this rank.
    pub(crate) fn links(&self) -> &Links {
        &self.links
    }

    /// Links of this rank, to be changed.
    pub(crate) fn links_mut(&mut self) -> &mut Links {
        &mut self.links
    }

    /// Registrations of this rank.
    pub(crate) fn windows(&self) -> &Windows {
        &self.windows
    }

    /// Registrations of this rank, to be changed.
    pub(crate) fn windows_mut(&mut self) -> &mut Windows {
        &mut self.windows
    }

    /// The window that the n-th set-up event made, registered still or not.
    pub(crate) fn window(&self, nth: u32) -> Option<&Window> {
        self.windows.get(nth)
    }
}

/// The communicators of a rank.
#[derive(Debug, Clone, Default)]
pub(crate) struct Comms {
    pub(super) states: Rows<CommId, CommState>,
    /// Inits of each name: a function of positions.
    pub(super) inits: Rows<Token, u32>,
    /// Addresses of destroyed communicators.
    pub(super) free_addresses: Vec<CommId>,
    /// Which of them a thread gets back whose init or split is under way.
    pub(super) promised: Vec<(u32, CommId)>,
}

walk!(apart struct Comms {
    states: hashed moved,
    inits: derived fixed,
    free_addresses: hashed fixed,
    promised: hashed fixed,
});

impl Identify for Comms {
    fn identify(&self, to: &mut StateIdentity<'_>) {
        let Self { states, inits, free_addresses, promised } = self;
        to.unordered(states.iter(), |(comm, state), to| {
            comm.identify(to);
            state.identify(*comm, to);
        });
        inits.identify(to);
        (free_addresses, promised).hash(to);
    }
}

/// A thread's last call on a communicator.
#[derive(Debug, Clone)]
pub(super) struct CalledBy {
    pub(super) comm: CommId,
    pub(super) actor: Actor,
    pub(super) epoch: u32,
    pub(super) op: OpRef,
}

walk!(apart struct CalledBy { comm: hashed fixed, actor: hashed moved, epoch: hashed fixed, op: hashed moved });

/// The last calls of each thread of a rank on each communicator, kept while there are several threads: a function of
/// positions.
#[derive(Debug, Clone, Default)]
pub(crate) struct CommCalls {
    pub(super) rows: Vec<CalledBy>,
}

walk!(apart struct CommCalls { rows: hashed moved });

impl Identify for CommCalls {
    fn identify(&self, to: &mut StateIdentity<'_>) {
        let Self { rows } = self;
        let unknown: Vec<&CalledBy> =
            rows.iter().filter(|call| !to.is_known_here(call.actor, call.epoch)).collect();
        to.unordered(unknown, |CalledBy { comm, actor, epoch, op }, to| {
            comm.identify(to);
            op.identify(to);
            to.asked_about(*actor, *epoch);
        });
    }
}

impl RankState {
    /// What the rank knows of a communicator that it entered.
    pub(crate) fn comm(&self, comm: CommId) -> Option<&CommState> {
        Comms::of(self).states.get(&comm)
    }

    /// The call that finalized or destroyed a communicator.
    pub(super) fn ended_by(&self, comm: CommId) -> Option<OpRef> {
        self.comm(comm).and_then(|comm_state| comm_state.ended_by)
    }

    /// What the rank knows of a communicator, to be changed.
    pub(crate) fn comm_mut(&mut self, comm: CommId) -> &mut CommState {
        Comms::of_mut(self).states.get_mut(&comm).expect("a rank uses only communicators that it entered")
    }

    /// A launch on a communicator is over on a stream, with what it knows now.
    pub(crate) fn completes_launch(&mut self, comm: CommId, stream: usize) {
        let mut completed = std::mem::take(&mut self.comm_mut(comm).completed);
        let clock = self.stream(stream).clock();
        match completed.binary_search_by_key(&clock.actor(), Clock::actor) {
            Ok(at) => completed[at].clone_from(clock),
            Err(at) => completed.insert(at, clock.clone()),
        }
        self.comm_mut(comm).completed = completed;
    }

    /// The communicators that the rank entered.
    pub(crate) fn comms(&self) -> impl Iterator<Item = (CommId, &CommState)> {
        Comms::of(self).states.iter().map(|(comm, state)| (*comm, state))
    }

    /// The communicator whose channels a communicator uses.
    pub(crate) fn family(&self, comm: CommId) -> CommId {
        self.comm(comm).map_or(comm, CommState::family)
    }
}
