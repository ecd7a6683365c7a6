//! Groups: calls are collected and done at the outermost end: first, all at once, what makes communicators; then links
//! of transfers; then registrations; then connections; then launches. Each of the last three goes from communicator to
//! communicator in the order of their hashes, which is one for all ranks and unknown to the program.
//!
//! Source: `group.cc:598-760`, `include/group.h:104-121`. Not here: what the calls do.
#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "each part of a group's end looks for its own kind of call"
)]

use crate::cx::{Cx, Here};
use crate::describe::{Describe, Description};
use crate::identity::{Identify, StateIdentity, identify_as_hashed};
use crate::machine::Kind;
use crate::noun::pool::Plan;
use crate::op::{Show, Verb};
use std::borrow::Cow;
use std::cmp::Reverse;
use std::sync::Arc;

use crate::clock::Clock;
use crate::host::order::position_in;
use crate::host::value::{CommId, Value};
use crate::id::Token;
use crate::judge::finding::{About, OpRef, Rule};
use crate::machine::{Machine, Mode};
use crate::members::MemberList;
use crate::noun::collective::Launch;
use crate::noun::comm::Resources;
use crate::noun::launch_order::{Issue, LaunchOrder};
use crate::noun::p2p::{Called, Half, INVALID_USAGE};
use crate::noun::rendezvous::Rendezvous;
use crate::op::WindowFlags;
use crate::order::dependence::{Access, Object, ObjectKind};
use crate::order::poll::{Nondet, NondetValues, Poll};
use crate::platform::KernelPath;
use crate::program::Operand;
use crate::rank::Rank;
use crate::state::{RankState, State, Table};
use crate::walk::walk;
use std::hash::Hash;

/// Operations on groups of NCCL calls.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum GroupOp {
    /// `ncclGroupStart`: opens a group of the host thread, or goes one level deeper.
    Start,
    /// `ncclGroupEnd`: at the outermost level, carries out what the thread has called since the start.
    End,
}

impl Describe for GroupOp {
    fn describe(&self, to: &mut Description<'_>) {
        match self {
            Self::Start => to.call("GroupStart", &[]),
            Self::End => to.call("GroupEnd", &[]),
        }
    }
}

impl Verb for GroupOp {
    fn slots(&self) -> u32 {
        0
    }

    fn kind(&self) -> Kind {
        Kind::Alike
    }

    fn display(&self, _: &Show<'_>) -> String {
        match self {
            Self::Start => "group_start".to_owned(),
            Self::End => "group_end".to_owned(),
        }
    }

    fn recorded(&self, here: Here<'_>) -> bool {
        match self {
            Self::Start => false,
            Self::End => {
                let calls = here.this().group().calls.iter();
                calls.filter_map(GroupCall::stream).any(|stream| here.records_on(stream))
            }
        }
    }

    fn footprint(&self, here: Here<'_>, each: &mut dyn FnMut(Object, Access)) {
        match self {
            Self::Start => {}
            Self::End => here.group_objects().into_iter().for_each(|(object, how)| each(object, how)),
        }
    }

    fn ready(&self, here: Here<'_>, nondet: &mut NondetValues<'_>) -> Poll {
        match self {
            Self::Start => Poll::RUN,
            Self::End => here.decide_group(nondet).err().unwrap_or(Poll::RUN),
        }
    }

    fn apply(&self, cx: &mut Cx<'_>, _: Plan) {
        match self {
            Self::Start => cx.group_start(),
            Self::End => cx.group_end(),
        }
    }
}

/// A call of an open group.
#[derive(Debug, Clone)]
pub(crate) enum GroupCall {
    Init {
        name: Token,
        nth: u32,
        members: MemberList,
        children: Resources,
        slot: u32,
        op: OpRef,
    },
    Split {
        comm: CommId,
        name: Token,
        color: Option<i64>,
        slot: u32,
        op: OpRef,
    },
    /// It was finalized or destroyed: done at once, as no other rank is met, and kept to be judged.
    Ends {
        comm: CommId,
        op: OpRef,
    },
    Register {
        comm: CommId,
        memory: Value,
        flags: WindowFlags,
        slot: u32,
        op: OpRef,
    },
    Launch {
        comm: CommId,
        launch: Arc<Launch>,
    },
    Transfer {
        comm: CommId,
        stream: Token,
        transfer: Arc<Half>,
    },
}

identify_as_hashed!(WindowFlags);
walk!(enum GroupCall {
    // As of a rendezvous: the members are the whole world where ranks are renumbered.
    Init { name: hashed fixed, nth: hashed fixed, members: hashed fixed, children: hashed fixed, slot: hashed fixed, op: hashed moved },
    Split { comm: hashed fixed, name: hashed fixed, color: hashed fixed, slot: hashed fixed, op: hashed moved },
    Ends { comm: hashed fixed, op: hashed moved },
    Register { comm: hashed fixed, memory: hashed fixed, flags: hashed fixed, slot: hashed fixed, op: hashed moved },
    Launch { comm: hashed fixed, launch: hashed moved },
    // A transfer names a rank: ranks are told apart then.
    Transfer { comm: hashed fixed, stream: hashed fixed, transfer: hashed fixed },
});

impl GroupCall {
    pub(crate) fn op(&self) -> OpRef {
        match self {
            Self::Init { op, .. }
            | Self::Split { op, .. }
            | Self::Ends { op, .. }
            | Self::Register { op, .. } => *op,
            Self::Launch { launch, .. } => launch.op,
            Self::Transfer { transfer, .. } => transfer.op,
        }
    }

    /// The communicator that it is called on; an init makes its own.
    fn comm(&self) -> Option<CommId> {
        match self {
            Self::Init { .. } => None,
            Self::Split { comm, .. }
            | Self::Ends { comm, .. }
            | Self::Register { comm, .. }
            | Self::Launch { comm, .. }
            | Self::Transfer { comm, .. } => Some(*comm),
        }
    }

    /// The communicator that it launches on, if it does.
    fn launched_on(&self) -> Option<CommId> {
        match self {
            Self::Launch { comm, .. } | Self::Transfer { comm, .. } => Some(*comm),
            Self::Init { .. } | Self::Split { .. } | Self::Ends { .. } | Self::Register { .. } => None,
        }
    }

    /// The stream that it launches on, if it does.
    fn stream(&self) -> Option<Token> {
        match self {
            Self::Launch { launch, .. } => Some(launch.call.stream),
            Self::Transfer { stream, .. } => Some(*stream),
            Self::Init { .. } | Self::Split { .. } | Self::Ends { .. } | Self::Register { .. } => None,
        }
    }

    /// The name of the communicator that it makes.
    pub(crate) fn made_name(&self) -> Option<Token> {
        match self {
            Self::Init { name, .. } | Self::Split { name, .. } => Some(*name),
            Self::Ends { .. } | Self::Register { .. } | Self::Launch { .. } | Self::Transfer { .. } => None,
        }
    }

    /// The slot that the end of the group fills, with a communicator or a window.
    fn fills(&self) -> Option<u32> {
        match self {
            Self::Register { slot, .. } => Some(*slot),
            _ => self.makes(),
        }
    }

    /// The slot that the end of the group fills with a communicator.
    fn makes(&self) -> Option<u32> {
        match self {
            Self::Init { slot, .. } | Self::Split { slot, .. } => Some(*slot),
            Self::Ends { .. } | Self::Register { .. } | Self::Launch { .. } | Self::Transfer { .. } => None,
        }
    }
}

/// What makes a communicator, and is waited in at the end of a group.
#[derive(Debug, Clone)]
pub(crate) struct CommInMaking {
    pub(crate) rendezvous: Rendezvous,
    pub(crate) call: GroupCall,
}

walk!(struct CommInMaking { rendezvous: hashed fixed, call: hashed moved });

/// An open group of a thread.
#[derive(Debug, Clone, Default)]
pub(crate) struct Group {
    depth: u32,
    /// What its end will return, because a call inside failed.
    failed: Option<i32>,
    calls: Vec<GroupCall>,
    /// What its end waits in: NCCL gives each of them a thread (`group.cc:484`).
    making: Vec<CommInMaking>,
    /// Whether it waits in several, of which some may be over.
    makes_several: bool,
    /// What the thread knows once all of them are over; there while there are some.
    learned: Option<Arc<Clock>>,
    /// Position of its first launch among all of the rank, while its end launches.
    first_issue: Issue,
    /// The call that began it.
    begun: Option<OpRef>,
}

walk!(apart struct Group {
    depth: hashed fixed,
    failed: hashed fixed,
    making: hashed moved,
    makes_several: hashed fixed,
    calls: hashed moved,
    learned: hashed moved,
    first_issue: derived fixed,
    begun: explains moved,
});

impl Identify for Group {
    fn identify(&self, to: &mut StateIdentity<'_>) {
        let Self { depth, failed, calls, making, makes_several, learned, first_issue, begun: _ } = self;
        (depth, failed, makes_several).hash(to);
        to.unnumbered(|to| {
            making.identify(to);
            calls.identify(to);
        });
        learned.identify(to);
        let launches = *first_issue != Issue::default();
        launches.identify(to);
        if launches {
            first_issue.identify(to.rank(), to);
        }
    }
}

impl Group {
    /// The call that will make the communicator or the window of a slot.
    pub(crate) fn maker(&self, slot: u32) -> Option<&GroupCall> {
        self.calls.iter().find(|call| call.fills() == Some(slot))
    }

    /// What its end waits in.
    pub(crate) fn making(&self) -> &[CommInMaking] {
        &self.making
    }

    /// Whether its end waits in several, of which some may be over.
    pub(crate) fn makes_several(&self) -> bool {
        self.makes_several
    }

    /// The one that meets there.
    pub(crate) fn making_at(&self, rendezvous: &Rendezvous) -> Option<&GroupCall> {
        let making = self.making.iter().find(|making| making.rendezvous == *rendezvous)?;
        Some(&making.call)
    }

    /// What makes communicators met the others of these ranks: what the thread learns, it knows once all are over.
    pub(crate) fn learned_mut(&mut self) -> Option<&mut Clock> {
        self.learned.as_mut().map(Arc::make_mut)
    }
}

impl Group {
    /// Whether a registration waits for the end.
    pub(crate) fn registers(&self) -> bool {
        self.calls.iter().any(|call| matches!(call, GroupCall::Register { .. }))
    }
}

impl Group {
    /// The call that began it.
    pub(crate) fn begun(&self) -> Option<OpRef> {
        self.begun
    }

    /// Whether calls wait for the end of the group.
    pub(crate) fn is_open(&self) -> bool {
        self.depth > 0
    }

    /// The calls that wait.
    pub(crate) fn calls(&self) -> &[GroupCall] {
        &self.calls
    }

    /// A call that waits for the end.
    pub(crate) fn add(&mut self, call: GroupCall) {
        self.calls.push(call);
    }

    /// Whether a call inside failed, so that the end will discard all.
    fn fail(&mut self, code: i32) {
        self.failed.get_or_insert(code);
    }

    /// The first registration with a communicator is over; gives the slot that it fills.
    pub(crate) fn take_registration(&mut self, comm: CommId) -> Option<u32> {
        let of = |call: &GroupCall| matches!(call, GroupCall::Register { comm: of, .. } if *of == comm);
        match self.calls.remove(self.calls.iter().position(of)?) {
            GroupCall::Register { slot, .. } => Some(slot),
            _ => None,
        }
    }

    /// Position of a launch among those of the group as they are written: transfers on one communicator are one launch.
    fn written_at(&self, op: OpRef) -> u32 {
        let mut comms: Vec<CommId> = Vec::new();
        let mut launches = 0;
        for call in self.calls.iter().take_while(|call| call.op() != op) {
            match call {
                GroupCall::Launch { .. } => launches += 1,
                GroupCall::Transfer { comm, .. } if !comms.contains(comm) => {
                    comms.push(*comm);
                    launches += 1;
                }
                _ => {}
            }
        }
        launches
    }

    /// A call on a communicator that waits for the end.
    pub(crate) fn call_on(&self, comm: CommId) -> Option<&GroupCall> {
        self.calls.iter().find(|call| call.comm() == Some(comm))
    }

    /// Whether its end launches on several communicators.
    fn launches_on_several(&self) -> bool {
        let mut comms = self.calls.iter().filter_map(GroupCall::launched_on);
        comms.next().is_some_and(|first| comms.any(|comm| comm != first))
    }

    /// Whether a registration with a communicator waits.
    pub(crate) fn registers_with(&self, comm: CommId) -> bool {
        self.calls.iter().any(|call| matches!(call, GroupCall::Register { comm: of, .. } if *of == comm))
    }
}

/// The order in which a group takes communicators: that of their hashes, as far as anybody looked.
#[derive(Debug, Clone, Default)]
pub(crate) struct GroupOrder {
    comms: Vec<CommId>,
    /// The communicators on which groups launched together, where nobody has looked at their order.
    together: Vec<Vec<CommId>>,
}

walk!(struct GroupOrder { comms: hashed fixed, together: hashed fixed });

impl GroupOrder {
    /// Sorts communicators by their hashes. Those that nobody has looked at follow in an order that is the same on all
    /// ranks.
    fn sort(order: &[CommId], comms: &mut Vec<CommId>) {
        comms.sort_by_key(|comm| (order.iter().position(|c| c == comm).unwrap_or(usize::MAX), *comm));
        comms.dedup();
    }
}

impl State {
    /// Communicators whose order was looked at.
    #[must_use]
    pub fn compared_comms(&self) -> usize {
        GroupOrder::of(self.shared()).comms.len()
    }

    /// Whether groups launched on several communicators, in an order that nobody has looked at.
    pub(crate) fn launched_together(&self) -> bool {
        !GroupOrder::of(self.shared()).together.is_empty()
    }
}

/// What launches on a communicator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LaunchedBy {
    /// A call, or the group that it stands in.
    Call,
    /// The launch of a graph.
    Graph,
}

/// The nondeterministic values of the end of a group.
pub(crate) struct GroupDecisions {
    /// Communicators in the order of their hashes, as far as it matters.
    order: Vec<CommId>,
    /// Whether NCCL holds all of a send that was not measured to hang, where this group is the first for which it
    /// matters.
    holds_all: Option<bool>,
    /// Whether transfers that need not progress together are serialized, where this group is the first for which it
    /// matters.
    serialized: Option<bool>,
}

impl Machine {
    /// The launches of a group in the order in which they are made: communicator by communicator, of each first the
    /// symmetric ones, then large before small, then the last first (`enqueue.cc:392-416`, `1583-1636`).
    fn sorted(
        &self,
        state: &State,
        rank: Rank,
        calls: &[(CommId, Arc<Launch>)],
        comms: &[CommId],
    ) -> Vec<Launch> {
        let mut launches: Vec<Launch> =
            calls.iter().map(|(_, launch)| self.relaunch(state, rank, Launch::clone(launch))).collect();
        let mut written: Vec<CommId> = Vec::new();
        for launch in &mut launches {
            let before = written.iter().filter(|comm| **comm == launch.comm).count();
            let before = u32::try_from(before).expect("few calls in a group");
            launch.written = self.launch_position(state, rank, launch.comm, launch.call.stream) + before;
            written.push(launch.comm);
        }
        let members =
            |launch: &Launch| state.rank(rank).comm(launch.comm).map_or(0, |comm_state| comm_state.size());
        launches.sort_by_key(|launch| {
            let comm = comms.iter().position(|comm| *comm == launch.comm);
            let ordinary = launch.path == KernelPath::Ordinary;
            (comm, ordinary, Reverse(launch.size_step(members(launch))), Reverse(launch.written))
        });
        launches
    }

    /// Whether it is explored in which order groups launch on several communicators: once that was found to matter.
    fn explores_launch_orders(&self) -> bool {
        self.config.mode == Mode::Naive || self.config.contended.contains(&Object::COMM_HASHES)
    }
}

impl Cx<'_> {
    pub(crate) fn group_start(&mut self) {
        let op = self.op;
        let group = self.this_mut().group_mut();
        group.depth += 1;
        group.begun.get_or_insert(op);
        self.done(&[]);
    }

    /// A call inside a group failed: the whole group will be discarded, and its end returns `code`.
    pub(crate) fn discard_group(&mut self, failed: (OpRef, i32)) {
        self.discard_group_because(failed, String::new);
    }

    /// What a call inside fails for is told behind where it is.
    fn discard_group_because(&mut self, (op, code): (OpRef, i32), why: impl FnOnce() -> String) {
        let (m, rank) = (self.m, self.rank);
        let t = self.this_mut();
        if t.group().depth == 0 {
            return;
        }
        t.group_mut().fail(code);
        let past = t.clock().past();
        m.find(self.state, Rule::Group1, About::Rank(rank), &[op], past, || {
            format!(
                "rank {} makes an invalid call in a group ({}){}, which discards every call of the group",
                rank.0,
                m.at(&op),
                why()
            )
        });
    }

    /// Refuses a call of an open group on a stream that records into another graph than a stream that the group was given
    /// for the communicator before, or that alone records (`enqueue.cc`, `ncclPlannerSetCapturingGraph`). Returns whether
    /// it did.
    pub(crate) fn refuse_stream(&mut self, (comm, stream): (CommId, Token), call: &str) -> bool {
        let (m, rank, op) = (self.m, self.rank, self.op);
        // Nearly always it is the stream of the call before.
        let mut calls = self.this().group().calls().iter().rev();
        let last = calls.find(|call| call.launched_on() == Some(comm)).and_then(GroupCall::stream);
        if last.is_none_or(|last| last == stream) {
            return false;
        }
        let streams = self.here().grouped_streams(comm);
        let into = |stream: Token| m.records(self.state, rank, stream);
        let known = streams.iter().any(|(known, _)| *known == stream);
        let (Some((before, _)), false) = (streams.last().copied(), known) else { return false };
        let (other, this) = (into(before), into(stream));
        if other == this {
            return false;
        }
        let records = |stream: Token, graph: Option<Token>| {
            let graph = graph.map_or_else(|| "nothing".to_owned(), |graph| m.name(graph).to_string());
            format!("stream {} records {graph}", m.name_behind_stream(stream))
        };
        self.discard_group_because((op, INVALID_USAGE), || {
            let (this, other) = (records(stream, this), records(before, other));
            format!(", because {this} and {other}, both given for {}", m.comm_name(comm))
        });
        self.fail(format!("{}.{call}", m.comm_name_on(self.rank, comm)), INVALID_USAGE);
        true
    }

    pub(crate) fn group_end(&mut self) {
        let (m, rank) = (self.m, self.rank);
        let t = self.this();
        if t.group().depth != 1 {
            self.group_unwind();
            return;
        }
        if let Some(code) = t.group().failed {
            let group = std::mem::take(self.this_mut().group_mut());
            for call in group.calls {
                // Cleaning up forgets the launches only (`group.cc:395-467`).
                if let GroupCall::Register { comm, memory, flags, op, .. } = call {
                    self.call_on(comm);
                    self.me_mut().comm_mut(comm).windows_mut().leave(memory, flags, op);
                }
            }
            self.fail("group_end".to_owned(), code);
            self.done(&[]);
            return;
        }
        let given = t.chosen().to_vec();
        let GroupDecisions { order, holds_all, serialized } =
            self.here().decide_group(&mut NondetValues { given: &given }).expect("polled before it runs");
        if order != GroupOrder::of(self.state.shared()).comms {
            GroupOrder::of_mut(self.state.shared_mut()).comms.clone_from(&order);
        }
        self.state.decide_transit(holds_all, serialized);
        if !given.is_empty() {
            // Decided for good: the end may have to meet other ranks, and then comes here again.
            self.this_mut().forget_picks();
        }
        self.judge_group();
        for (object, touch) in self.here().group_objects() {
            self.access(object, touch);
        }
        for comm in self.here().grouped_comms() {
            self.call_on(comm);
        }
        if self.make_communicators() {
            return;
        }
        let transfers = self.here().grouped_transfers();
        if self.alone_with_itself(&transfers) {
            *self.this_mut().group_mut() = Group::default();
            self.done(&[]);
            return;
        }
        if let Some((link, handshake)) = m.cold_link(self.state, rank, &transfers) {
            self.arrive(Rendezvous::Link(link, handshake));
            return;
        }
        if let Some(comm) = self.here().next_registration(&order) {
            self.arrive_setup(comm);
            return;
        }
        let launches: Vec<(CommId, Arc<Launch>)> = self
            .this()
            .group()
            .calls
            .iter()
            .filter_map(|call| match call {
                GroupCall::Launch { comm, launch } => Some((*comm, Arc::clone(launch))),
                _ => None,
            })
            .collect();
        let comms = self.here().launched_comms(&order);
        self.note_together(&comms);
        let launches = m.sorted(self.state, rank, &launches, &comms);
        let cold = |launch: &&Launch| {
            launch.path == KernelPath::Ordinary
                && self
                    .state
                    .rank(rank)
                    .comm(launch.comm)
                    .is_some_and(|comm_state| !comm_state.is_connected())
        };
        if let Some(first) = launches.iter().find(cold).map(|launch| launch.comm) {
            // What a group needs is connected in one order, whatever the program says.
            let needed = launches.iter().filter(cold).filter(|launch| launch.comm == first);
            let connection = needed.map(|launch| launch.call.kind.connection()).min();
            let rendezvous = Rendezvous::Connect(first, connection.expect("one is cold"));
            self.arrive(rendezvous);
            return;
        }
        self.judge_collisions_in_group(&launches, &transfers);
        self.judge_freed_in_group(&launches, &transfers);
        let companions = launches.len() > 1;
        let first_issue = self.me().next_issue();
        self.this_mut().group_mut().first_issue = first_issue;
        let mut launches = launches.into_iter().peekable();
        for comm in comms {
            // The stream that was given last runs all of it: it waits for the others before, and they for it behind
            // (`ncclPlannerSetCapturingGraph`, `ncclLaunchPrepare`, `ncclLaunchFinish`).
            let streams = self.here().grouped_streams(comm);
            let [others @ .., on @ (stream, _)] = &*streams else { continue };
            let name = m.known_comm(comm, |info| info.name);
            others.iter().for_each(|other| self.let_wait(name, *on, *other));
            while let Some(launch) = launches.next_if(|launch| launch.comm == comm) {
                self.enqueue_launch(Launch { companions, ..launch }, *stream);
            }
            self.launch_transfers((comm, *stream), &transfers);
            others.iter().for_each(|other| self.let_wait(name, *other, *on));
        }
        *self.this_mut().group_mut() = Group::default();
        self.done(&[]);
    }

    /// Blocks that were freed since the calls that use them: they are launched only now.
    fn judge_freed_in_group(&mut self, launches: &[Launch], transfers: &[Called]) {
        let of_launches =
            launches.iter().flat_map(|launch| [(&launch.send, launch.op), (&launch.recv, launch.op)]);
        let of_transfers = transfers.iter().map(|(_, _, half)| (&half.buffer, half.op));
        let own = of_launches.chain(of_transfers).filter(|(buffer, _)| buffer.through.is_none());
        own.for_each(|(buffer, op)| self.judge_freed(buffer, op));
    }

    /// Notes that a group launches on several communicators, and whether it can matter in which order. It cannot as long
    /// as every launch on one of them is in a group that has just one collective on each, all on one stream: each rank
    /// is through such a group, in either order, once all have come to it. Of runs in which one does not come, the end
    /// says so.
    fn note_together(&mut self, comms: &[CommId]) {
        let (m, rank) = (self.m, self.rank);
        if comms.len() < 2 || m.explores_launch_orders() {
            return;
        }
        let calls = self.this().group().calls();
        let stream_of = |call: &GroupCall| match call {
            GroupCall::Launch { launch, .. } => Some(launch.call.stream),
            _ => None,
        };
        let stream = calls.first().and_then(stream_of);
        let is_block = calls.len() == comms.len()
            && stream.is_some_and(|stream| m.records(self.state, rank, stream).is_none())
            && calls.iter().all(|call| stream_of(call) == stream);
        let mut block = comms.to_vec();
        block.sort_unstable();
        let known = &GroupOrder::of(self.state.shared()).together;
        let is_known = known.contains(&block);
        let others = || known.iter().filter(|other| **other != block).flatten();
        let launched = |comm: &CommId| {
            let order = |of: &RankState| {
                of.comm(*comm).and_then(|_| of.launch_order(*comm)).is_some_and(LaunchOrder::has_launched)
            };
            self.state.ranks().any(order)
        };
        let is_apart = others().any(|comm| block.contains(comm)) || !is_known && block.iter().any(launched);
        if !is_block || is_apart {
            m.contend(Object::COMM_HASHES);
        }
        if !is_known {
            GroupOrder::of_mut(self.state.shared_mut()).together.push(block);
        }
    }

    /// Numbers a launch that is made now, of this operation. On a communicator that a group launched on together with
    /// others, one without these makes the order in groups matter. Among all launches of the rank, those of a group on
    /// several communicators keep the order in which they are written: that is the one that COLL-4 is about.
    pub(crate) fn next_launch(&mut self, (comm, op): (CommId, OpRef), by: LaunchedBy) -> (u32, Issue) {
        let together = &GroupOrder::of(self.state.shared()).together;
        let with_others = by == LaunchedBy::Call && self.this().group().launches_on_several();
        if !with_others && together.iter().any(|block| block.contains(&comm)) {
            self.m.contend(Object::COMM_HASHES);
        }
        let (sequence, issue) = self.me_mut().next_launch(comm);
        if !with_others {
            return (sequence, issue);
        }
        let group = self.this().group();
        (sequence, group.first_issue.in_group(group.written_at(op)))
    }

    /// Enters everything that makes a communicator, all at once. Returns whether there is something.
    fn make_communicators(&mut self) -> bool {
        let rank = self.rank;
        let group = self.this_mut().group_mut();
        let (makers, others): (Vec<_>, Vec<_>) =
            std::mem::take(&mut group.calls).into_iter().partition(|call| call.makes().is_some());
        group.calls = others;
        let making: Vec<CommInMaking> = makers
            .into_iter()
            .map(|call| {
                let rendezvous = match &call {
                    GroupCall::Init { name, nth, members, .. } => {
                        Rendezvous::Init(*name, *nth, members.clone())
                    }
                    GroupCall::Split { comm, .. } => {
                        Rendezvous::Setup(*comm, self.state.rank_mut(rank).comm_mut(*comm).next_setup())
                    }
                    _ => unreachable!("others make nothing"),
                };
                CommInMaking { rendezvous, call }
            })
            .collect();
        let Some(first) = making.first().map(|making| making.rendezvous.clone()) else { return false };
        let known = Arc::new(self.this().clock().clone());
        let group = self.this_mut().group_mut();
        group.makes_several = making.len() > 1;
        group.making = making;
        group.learned = Some(known);
        self.arrive(first);
        true
    }

    /// A thread returns with what it made: from the call, or from that part of the end of its group.
    pub(crate) fn returns_with(&mut self, rendezvous: &Rendezvous, value: Value) {
        let t = self.this_mut();
        let group = t.group_mut();
        let Some(at) = group.making.iter().position(|making| making.rendezvous == *rendezvous) else {
            self.done(&[value]);
            return;
        };
        let slot = group.making.remove(at).call.makes().expect("it makes one");
        let next = group.making.first().map(|making| making.rendezvous.clone());
        group.makes_several &= next.is_some();
        let learned = if next.is_none() { group.learned.take() } else { None };
        t.slots_mut().fill(slot, value);
        if let Some(learned) = learned {
            t.clock_mut().join(&learned);
        }
        match next {
            Some(rendezvous) => t.wait_at(rendezvous),
            None => t.go_on(),
        }
    }

    /// Judges what stands together in a group.
    fn judge_group(&mut self) {
        let (m, rank) = (self.m, self.rank);
        let calls = self.this().group().calls();
        let first = |of: &dyn Fn(&GroupCall) -> bool| calls.iter().find(|call| of(call)).map(GroupCall::op);
        let is_init = |call: &GroupCall| matches!(call, GroupCall::Init { .. });
        let merged = first(&is_init).zip(first(&|call| !is_init(call)));
        // On one communicator one thread of NCCL makes or ends it while another works with it.
        let at_once = calls.iter().enumerate().find_map(|(at, call)| {
            let ends = match call {
                GroupCall::Split { .. } => false,
                GroupCall::Ends { .. } => true,
                _ => return None,
            };
            let other = calls.iter().enumerate().find(|(other, with)| {
                *other != at && with.comm() == call.comm() && (ends || with.makes().is_some())
            })?;
            Some((call.op(), other.1.op(), call.comm()?))
        });
        if at_once.is_none() && merged.is_none() {
            return;
        }
        let past = self.here().past();
        if let Some((one, other, comm)) = at_once {
            let (first, second) = if one.index < other.index { (one, other) } else { (other, one) };
            m.find(self.state, Rule::Group3, About::Comm(comm), &[first, second], past, || {
                format!(
                    "rank {} makes two calls on {} in one group, {} and {}, and the end of the group carries them out at once",
                    rank.0,
                    m.comm_name(comm),
                    m.at(&first),
                    m.at(&second)
                )
            });
            Machine::undefine(self.state, second);
        } else if let Some((init, other)) = merged {
            m.find(self.state, Rule::Group3, About::Rank(rank), &[init, other], past, || {
                format!(
                    "rank {} makes a communicator ({}) in one group with a call that is no init ({})",
                    rank.0,
                    m.at(&init),
                    m.at(&other)
                )
            });
        }
    }

    /// A finding if the group that is open makes the communicator or the window of an operand, about what is done with it.
    pub(super) fn is_still_made(&mut self, made: &Operand, does: &str) -> bool {
        let (m, rank, op) = (self.m, self.rank, self.op);
        let Operand::Slot(slot) = made else { return false };
        let t = self.this();
        let Some(maker) = t.group().maker(slot.index).filter(|_| t.start() == slot.start) else {
            return false;
        };
        // A split leaves null until then. Of an init there is a communicator that knows nothing yet: a launch is refused
        // for its root, and a registration succeeds and registers nothing (measured).
        let is_null = matches!(maker, GroupCall::Split { .. });
        let maker = maker.op();
        let past = self.here().past();
        m.find(self.state, Rule::Group3, About::Rank(rank), &[op, maker], past, || {
            format!(
                "rank {} {does} ({}) in the group that makes it ({}): it is there when the group has ended",
                rank.0,
                m.at(&op),
                m.at(&maker)
            )
        });
        if !is_null {
            Machine::undefine(self.state, op);
        }
        true
    }

    /// An open group keeps what ends a communicator, to be judged with its other calls.
    pub(super) fn ends_in_group(&mut self, comm: CommId) {
        let op = self.op;
        let group = self.this_mut().group_mut();
        if group.is_open() {
            group.add(GroupCall::Ends { comm, op });
        }
    }

    fn group_unwind(&mut self) {
        let (m, rank, op) = (self.m, self.rank, self.op);
        let t = self.this_mut();
        if t.group().depth > 0 {
            t.group_mut().depth -= 1;
        } else {
            let past = t.clock().past();
            m.find(self.state, Rule::Group2, About::Rank(rank), &[op], past, || {
                format!("rank {} ends a group that it did not start ({})", rank.0, m.at(&op))
            });
            self.fail("group_end".to_owned(), 5);
        }
        self.done(&[]);
    }
}

impl<'a> Here<'a> {
    /// The objects that the end of a thread's group touches.
    pub(crate) fn group_objects(self) -> Vec<(Object, Access)> {
        let Here { m, state, rank, .. } = self;
        let mut objects = Vec::new();
        let group = self.this().group();
        for call in group.calls.iter().chain(group.making.iter().map(|making| &making.call)) {
            match call {
                GroupCall::Init { name, .. } => {
                    objects.push((Object::ADDRESSES, Access::Write));
                    objects.push((Object::named(ObjectKind::Init, *name), Access::Write));
                }
                GroupCall::Split { comm, .. } => {
                    objects.push((Object::ADDRESSES, Access::Write));
                    objects.extend(m.comm_objects(state, rank, *comm).map(|object| (object, Access::Call)));
                }
                GroupCall::Ends { comm, .. } => {
                    objects.push((Object::ADDRESSES, Access::Write));
                    objects.extend(m.comm_objects(state, rank, *comm).map(|object| (object, Access::Call)));
                }
                GroupCall::Register { comm, memory, .. } => {
                    let comms = m.comm_objects(state, rank, *comm);
                    objects.extend(comms.map(|object| (object, Access::Call)));
                    if let Value::Buffer(buffer) = memory {
                        objects.push((Object::memory(buffer.memory), Access::Read));
                    }
                }
                GroupCall::Transfer { comm, stream, transfer } => {
                    let comms = m.comm_objects(state, rank, *comm);
                    objects.extend(comms.map(|object| (object, Access::Call)));
                    objects.push((Object::memory(transfer.buffer.memory), Access::Read));
                    objects.push((Object::named(ObjectKind::Stream, *stream), Access::Write));
                    objects.push((Object::DEVICE, Access::Read));
                }
                GroupCall::Launch { comm, launch } => {
                    let comms = m.comm_objects(state, rank, *comm);
                    objects.extend(comms.map(|object| (object, Access::Call)));
                    objects.push((Object::memory(launch.send.memory), Access::Read));
                    objects.push((Object::memory(launch.recv.memory), Access::Read));
                    objects.push((Object::named(ObjectKind::Stream, launch.call.stream), Access::Write));
                    objects.push((Object::DEVICE, Access::Read));
                }
            }
        }
        objects
    }

    /// The communicators of the calls of a thread's group.
    fn grouped_comms(self) -> Vec<CommId> {
        let mut comms: Vec<CommId> = self.this().group().calls.iter().filter_map(GroupCall::comm).collect();
        comms.sort_unstable();
        comms.dedup();
        comms
    }

    /// The streams that a thread's group was given for a communicator, each with the first call on it.
    fn grouped_streams(self, comm: CommId) -> Vec<(Token, OpRef)> {
        let calls = self.this().group().calls.iter().filter(|call| call.launched_on() == Some(comm));
        let mut streams: Vec<(Token, OpRef)> = Vec::new();
        for (stream, op) in calls.filter_map(|call| Some((call.stream()?, call.op()))) {
            if streams.iter().all(|(known, _)| *known != stream) {
                streams.push((stream, op));
            }
        }
        streams
    }

    /// The transfers of a thread's group, in the order of the calls.
    pub(crate) fn grouped_transfers(self) -> Vec<Called> {
        let calls = &self.this().group().calls;
        let transfers = calls.iter().filter_map(|call| match call {
            GroupCall::Transfer { comm, stream, transfer } => Some((*comm, *stream, Arc::clone(transfer))),
            _ => None,
        });
        transfers.collect()
    }

    /// The order of the communicators of this group, as far as it matters, as a prefix of the hash order; what sends
    /// leave in flight; and whether transfers are serialized.
    pub(crate) fn decide_group(self, nondet: &mut NondetValues<'_>) -> Result<GroupDecisions, Poll> {
        let Here { m, state, rank, .. } = self;
        let mut order = Cow::Borrowed(&GroupOrder::of(state.shared()).comms[..]);
        let mut comms: Vec<CommId> = Vec::new();
        for call in &self.this().group().calls {
            if let GroupCall::Register { comm, .. } = call
                && !comms.contains(comm)
            {
                comms.push(*comm);
            }
        }
        if comms.len() > 1 {
            for comm in comms {
                position_in(&mut order, &comm, nondet.position(Nondet::CommOrder))?;
            }
        }
        if m.explores_launch_orders() {
            let launched = self.launched_comms(&order);
            for comm in launched.iter().filter(|_| launched.len() > 1) {
                position_in(&mut order, comm, nondet.position(Nondet::CommOrder))?;
            }
        }
        let transfers = self.grouped_transfers();
        let holds_all = m.decide_in_flight(state, rank, &transfers, nondet)?;
        let serialized = m.decide_serialized(state, rank, &transfers, nondet)?;
        Ok(GroupDecisions { order: order.into_owned(), holds_all, serialized })
    }

    /// The communicators that the end of the group launches on, one after the other.
    fn launched_comms(self, order: &[CommId]) -> Vec<CommId> {
        let mut comms = self.this().group().calls.iter().filter_map(GroupCall::launched_on).collect();
        GroupOrder::sort(order, &mut comms);
        comms
    }

    fn next_registration(self, order: &[CommId]) -> Option<CommId> {
        let calls = &self.this().group().calls;
        let comms = calls.iter().filter_map(|call| match call {
            GroupCall::Register { comm, .. } => Some(*comm),
            _ => None,
        });
        comms.min_by_key(|comm| order.iter().position(|c| c == comm).unwrap_or(usize::MAX))
    }
}
