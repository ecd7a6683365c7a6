//! Ranks that only hand something over: the root of a broadcast, and of two ranks the one that is not the root of a
//! reduction. On devices they are through once NCCL holds their data, whether or not the others have come.
//!
//! Nobody promises it, so no verdict rests on it: only predictions go on after it.
//! Not here: the joint run of those who take it ([`super::run`]).

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::{Launch, Recorded, Root};
use crate::clock::Clock;
use crate::cx::Here;
use crate::history::{Lane, Moment};
use crate::host::value::CommId;
use crate::judge::finding::OpRef;
use crate::machine::{InFlight, Machine};
use crate::noun::launch_order::Issue;
use crate::noun::memory::ByteRange;
use crate::noun::stream::{Queued, Work};
use crate::order::poll::{Nondet, NondetValues, Poll};
use crate::platform::{HAND_OVER_SLOTS, KernelPath};
use crate::program::Symmetry;
use crate::rank::Rank;
use crate::state::{State, Table};
use crate::term::Content;
use crate::walk::walk;

use super::{Call, CollectiveKind};

/// A rank's part of a collective, over before the others ran theirs.
#[derive(Debug, Clone)]
pub(crate) struct HandedOver {
    pub(super) launch: Arc<Launch>,
    pub(super) stream: usize,
    pub(super) issue: Clock,
    pub(super) op: OpRef,
    pub(super) replay: Option<OpRef>,
    /// What the stream knew when it began.
    pub(super) clock: Clock,
    /// What the input held then.
    pub(super) content: Content,
}

// Only where ranks are told apart is anything handed over.
walk!(struct HandedOver {
    launch: hashed fixed,
    stream: hashed fixed,
    issue: hashed fixed,
    op: hashed fixed,
    replay: hashed fixed,
    clock: hashed fixed,
    content: hashed fixed,
});

/// What ranks handed over of collectives that the others have not run yet, oldest first.
#[derive(Debug, Clone, Default)]
pub(crate) struct HandedOverParts {
    parts: BTreeMap<(CommId, Rank), VecDeque<HandedOver>>,
}

walk!(struct HandedOverParts { parts: hashed fixed });

impl State {
    /// What ranks have handed over that others have not taken: what the threads knew that launched it, and its position
    /// among all launches of the rank.
    pub(crate) fn handed_over_launches(&self) -> impl Iterator<Item = (Rank, (&Clock, Issue))> {
        let parts = HandedOverParts::of(self.shared()).parts.iter();
        parts
            .flat_map(|((_, rank), parts)| parts.iter().map(|part| (*rank, (&part.issue, part.launch.issue))))
    }
}

impl Machine {
    /// Whether a rank only hands data over in such a collective, so that it may be through before the others come.
    fn only_hands_over(&self, comm: CommId, rank: Rank, kind: CollectiveKind) -> bool {
        if self.config.in_flight == InFlight::Nothing || kind.root() == Root::None {
            return false;
        }
        let members = self.members(comm);
        let is_root = |root: u32| members.get(root as usize) == Some(&rank);
        let gives = match kind.root() {
            Root::From(root) => is_root(root),
            // Among more ranks those in between have to take before they give.
            Root::To(root) => members.len() == 2 && !is_root(root),
            Root::None => false,
        };
        members.len() > 1
            && !kind.is_made_of_transfers()
            // Numbers of ranks are kept.
            && self.source.symmetry() == Symmetry::Distinct
            && gives
    }

    fn hand_over_slots(&self, comm: CommId, call: &Call) -> (u32, u32) {
        let len_bytes = call.len_bytes();
        self.config.platform.hand_over_slots(self.members(comm).len(), len_bytes)
    }

    /// Whether NCCL holds all that was not measured to hang, where a call is the first for which it matters.
    pub(super) fn decide_hand_over(
        &self,
        here: Here<'_>,
        (comm, call): (CommId, &Call),
        nondet: &mut NondetValues<'_>,
    ) -> Result<Option<bool>, Poll> {
        let Here { state, rank, .. } = here;
        if self.config.in_flight == InFlight::Nothing {
            return Ok(None);
        }
        let (least, most) = self.hand_over_slots(comm, call);
        let decided = state.holds_all().is_some();
        let matters = least < most && least <= HAND_OVER_SLOTS && call.count > 0;
        if decided
            || !matters
            || here.this().group().is_open()
            || !self.only_hands_over(comm, rank, call.kind)
        {
            return Ok(None);
        }
        Ok(Some(nondet.take(|| Nondet::InFlight, 0..=1)? == 1))
    }

    /// Whether a rank has handed over its part of the next collective of a communicator, or stands ready for it.
    pub(crate) fn stands_ready(&self, state: &State, rank: Rank, comm: CommId) -> bool {
        self.has_handed_over(state, rank, comm) || self.ready_stream(state, rank, comm).is_some()
    }

    /// Whether a rank has handed over its part of the next collective of a communicator.
    pub(crate) fn has_handed_over(&self, state: &State, rank: Rank, comm: CommId) -> bool {
        self.config.in_flight == InFlight::OfPlatform
            && HandedOverParts::of(state.shared()).parts.get(&(comm, rank)).is_some_and(|all| !all.is_empty())
    }

    /// Whether the collective at the head of a stream, which is next on its rank, can be handed over now.
    pub(crate) fn can_hand_over(&self, state: &State, rank: Rank, launch: &Launch) -> bool {
        // A registered buffer is handed over in place: both ends have to be there (`prims_simple.h:756-797`).
        let ordinary = launch.path == KernelPath::Ordinary
            && launch.recorded == Recorded::No
            && !launch.companions
            && (launch.send_window, launch.recv_window) == (None, None);
        if !ordinary || !self.only_hands_over(launch.comm, rank, launch.call.kind) {
            return false;
        }
        let slots = |call: &Call| {
            let (least, most) = self.hand_over_slots(launch.comm, call);
            if state.holds_all() == Some(true) { least } else { most }
        };
        let parts = &HandedOverParts::of(state.shared()).parts;
        let held = parts.get(&(launch.comm, rank)).into_iter().flatten();
        held.map(|earlier| slots(&earlier.launch.call)).sum::<u32>() + slots(&launch.call) <= HAND_OVER_SLOTS
    }

    /// Hands over the collective at the head of a stream: on this rank it is over.
    pub(crate) fn hand_over(&self, state: &mut State, rank: Rank, stream: usize) {
        self.note_memory(state);
        state.steps += 1;
        let s = state.rank_mut(rank).stream_mut(stream);
        s.clock_mut().tick();
        let Some(Queued { work: Work::Collective(launch), issue, op, replay }) = s.pop() else {
            unreachable!("a collective stands there")
        };
        s.clock_mut().join(&issue);
        let clock = s.clock().clone();
        self.note(Moment { op, replay, lane: Lane::stream(rank, stream) }, &clock);
        state.rank_mut(rank).launch_order_mut(launch.comm).is_over();
        let content = self.read(
            state,
            launch.send.home(rank),
            &ByteRange::of(&launch.send).sub(0, launch.part_bytes()),
        );
        self.access_buffers(state, (rank, stream), &launch);
        if let Root::From(_) = launch.call.kind.root()
            && launch.send != launch.recv
        {
            self.write(state, launch.recv.home(rank), &ByteRange::of(&launch.recv), content.clone());
        }
        let key = (launch.comm, rank);
        let handed = HandedOver { launch, stream, issue, op, replay, clock, content };
        HandedOverParts::of_mut(state.shared_mut()).parts.entry(key).or_default().push_back(handed);
    }

    /// What a rank has handed over of the next collective of a communicator.
    pub(super) fn take_handed_over(state: &mut State, rank: Rank, comm: CommId) -> Option<HandedOver> {
        if HandedOverParts::of(state.shared()).parts.is_empty() {
            return None;
        }
        let parts = &mut HandedOverParts::of_mut(state.shared_mut()).parts;
        let all = parts.get_mut(&(comm, rank))?;
        let first = all.pop_front();
        if all.is_empty() {
            parts.remove(&(comm, rank));
        }
        first
    }
}
