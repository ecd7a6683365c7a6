//! Communicators: init, split, destroy, and the rendezvous of host threads.
//!
//! NCCL matches set-up events by order only: the n-th of a communicator on one rank pairs with the n-th on
//! the others, whatever it names. The machine does the same and then judges.
//! Not here: what registrations do ([`crate::noun::window`]).
#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "an operand of another kind is as good as null, and verbs are dispatched by noun"
)]

mod table;

use crate::clock::Clock;
use crate::cx::{Cx, Here};
use crate::describe::{Describe, Description};
use crate::judge::deadlock::Awaits;
use crate::machine::{ConcurrentCalls, Condition, Kind};
use crate::noun::pool::Plan;
use crate::op::{Op, Show, Verb, WindowFlags, WindowOp};
use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use self::table::{CalledBy, Life};
pub(crate) use self::table::{CommCalls, CommState, Comms};
use crate::host::value::{Address, CommId, Value};
use crate::id::Token;
use crate::judge::finding::{About, FindingKey, OpRef, Rule};
use crate::judge::ledger::CallError;
use crate::machine::{CommInfo, Machine};
use crate::noun::group::GroupCall;
use crate::noun::parting::Parting;
use crate::noun::rendezvous::Rendezvous;
use crate::noun::window::INVALID_ARGUMENT;
use crate::order::dependence::{Access, Object, ObjectKind};
use crate::order::poll::{FaultOf, Nondet, NondetValues, Poll};
use crate::program::Operand;
use crate::rank::Rank;
use crate::state::{RankState, State, Table};

/// Whether communicators split from one have channels of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Resources {
    /// The child has resources of its own.
    Own,
    /// `splitShare` of the parent: the parent's, whose launches theirs are ordered with.
    Shared,
}

impl Describe for Resources {
    fn describe(&self, to: &mut Description<'_>) {
        to.word(match self {
            Self::Own => "Own",
            Self::Shared => "Shared",
        });
    }
}

/// `NCCL_SPLIT_NOCOLOR`: the rank becomes a member of no communicator.
const NO_COLOR: i64 = -1;

/// Operations that make and end communicators.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum CommOp {
    /// `ncclCommInitRank`: blocks until every member calls it. Produces the communicator.
    Init {
        /// Name; the n-th init of a name on one rank meets the n-th on the others (the unique id).
        name: Token,
        /// World ranks, in communicator order.
        members: Arc<[Rank]>,
        /// What splits of it use, and splits of these. NCCL asks the parent (`init.cc:3109-3131`).
        children: Resources,
    },
    /// `ncclCommSplit`: a set-up event of the parent. Produces the child, or null without a color.
    Split {
        /// The parent: every member of it calls the split.
        comm: Operand,
        /// Name of the child.
        name: Token,
        /// Members with equal colors share a child; -1 is no color (`NCCL_SPLIT_NOCOLOR`).
        color: Option<i64>,
    },
    /// `ncclCommFinalize`: waits until what this rank launched on the communicator is over. It meets no other rank
    /// (`v2.28.9:init.cc:2212-2251`), and nothing but the destruction may follow.
    Finalize {
        /// The communicator: what an init or a split produced.
        comm: Operand,
    },
    /// `ncclCommDestroy`: ends this rank's use of the communicator.
    Destroy {
        /// The communicator: what an init or a split produced.
        comm: Operand,
        /// Whether it waits for the other members.
        parting: Parting,
    },
}

impl Describe for CommOp {
    fn describe(&self, to: &mut Description<'_>) {
        match self {
            Self::Init { name, members, children } => {
                let mut fields: Vec<(&str, &dyn Describe)> = vec![("name", name), ("members", members)];
                if *children != Resources::Own {
                    fields.push(("children", children));
                }
                to.call("CommInit", &fields);
            }
            Self::Split { comm, name, color } => {
                to.call("CommSplit", &[("comm", comm), ("name", name), ("color", color)])
            }
            Self::Finalize { comm } => to.call("CommFinalize", &[("comm", comm)]),
            Self::Destroy { comm, parting } => {
                let mut fields: Vec<(&str, &dyn Describe)> = vec![("comm", comm)];
                if *parting != Parting::Together {
                    fields.push(("parting", parting));
                }
                to.call("CommDestroy", &fields);
            }
        }
    }
}

impl Verb for CommOp {
    fn slots(&self) -> u32 {
        match self {
            Self::Init { .. } | Self::Split { .. } => 1,
            Self::Finalize { .. } | Self::Destroy { .. } => 0,
        }
    }

    fn kind(&self) -> Kind {
        Kind::Alike
    }

    fn display(&self, show: &Show<'_>) -> String {
        let name = |token: &Token| show.name(*token);
        let of = |operand: &Operand| show.operand(operand);
        match self {
            Self::Init { name: comm, .. } => format!("{}.init", name(comm)),
            Self::Split { comm, name: child, .. } => format!("{}.split({})", of(comm), name(child)),
            Self::Finalize { comm } => format!("{}.finalize", of(comm)),
            Self::Destroy { comm, .. } => format!("{}.destroy", of(comm)),
        }
    }

    fn seen_by_others(&self) -> bool {
        match self {
            Self::Init { .. } | Self::Split { .. } => true,
            Self::Finalize { .. } | Self::Destroy { .. } => false,
        }
    }

    fn footprint(&self, here: Here<'_>, each: &mut dyn FnMut(Object, Access)) {
        // Reads and writes of addresses are not told apart before the operation runs.
        let addresses = (Object::ADDRESSES, Access::Write);
        match self {
            Self::Init { name, .. } => {
                each(addresses.0, addresses.1);
                each(Object::named(ObjectKind::Init, *name), Access::Write);
            }
            Self::Split { comm, .. } => {
                each(addresses.0, addresses.1);
                here.comm_of(comm, Access::Call, each);
            }
            Self::Finalize { comm } => {
                here.comm_of(comm, Access::Call, each);
                here.comm_of(comm, Access::Write, each);
                each(Object::DEVICE, Access::Write);
            }
            Self::Destroy { comm, parting } => {
                each(addresses.0, addresses.1);
                here.comm_of(comm, Access::Call, each);
                here.comm_of(comm, Access::Write, each);
                if *parting == Parting::Together {
                    each(Object::DEVICE, Access::Write);
                }
                let covered = here.m.covered(here.state, here.rank, comm, None);
                covered.into_iter().for_each(|memory| each(Object::memory(memory), Access::Write));
            }
        }
    }

    fn ready(&self, here: Here<'_>, nondet: &mut NondetValues<'_>) -> Poll {
        let address = |nondet: &mut NondetValues<'_>| {
            here.m.decide_comm_address(here.me(), nondet).err().unwrap_or(Poll::RUN)
        };
        match self {
            Self::Init { .. } => match here.m.decide_fault(here.state, FaultOf::Init, nondet) {
                Ok(true) => Poll::RUN,
                Ok(false) => address(nondet),
                Err(poll) => poll,
            },
            Self::Split { .. } => address(nondet),
            Self::Finalize { comm } => Poll::once(here.captured(comm).is_none() && here.is_over(comm)),
            Self::Destroy { comm, parting } => Poll::once(match here.parts_from(comm) {
                Some(comm) => here.m.kept_by(here.state, here.rank, comm).next().is_none(),
                None => here.captured(comm).is_none() && (!here.finalizes(*parting) || here.is_over(comm)),
            }),
        }
    }

    fn watches(&self) -> bool {
        matches!(self, Self::Destroy { .. })
    }

    fn wakes(&self) -> bool {
        matches!(self, Self::Finalize { .. } | Self::Destroy { .. })
    }

    fn waits_for_device(&self) -> bool {
        match self {
            Self::Finalize { .. } => true,
            Self::Init { .. } | Self::Split { .. } | Self::Destroy { .. } => false,
        }
    }

    fn blocked_on(&self, here: Here<'_>) -> (Rule, Option<About>) {
        match self {
            Self::Finalize { comm } | Self::Destroy { comm, .. } => {
                match (here.parts_from(comm), here.captured(comm)) {
                    (Some(comm), _) => (Rule::Comm6, Some(About::Comm(comm))),
                    (None, Some(comm)) => (Rule::Graph4, Some(About::Comm(comm))),
                    (None, None) => (Rule::Coll1, None),
                }
            }
            Self::Init { .. } | Self::Split { .. } => (Rule::Coll1, None),
        }
    }

    fn waits_for(&self, here: Here<'_>) -> Awaits {
        match self {
            // Any thread of the rank might destroy the graph that captured it.
            Self::Finalize { comm } | Self::Destroy { comm, .. } if here.captured(comm).is_some() => {
                Awaits::ThreadsOfRank
            }
            Self::Finalize { .. } => Awaits::Streams,
            Self::Destroy { comm, .. } => here.parts_from(comm).map_or(Awaits::Streams, Awaits::Members),
            Self::Init { .. } | Self::Split { .. } => Awaits::Nobody,
        }
    }

    fn apply(&self, cx: &mut Cx<'_>, _: Plan) {
        match self {
            Self::Init { name, members, children } => cx.comm_init(*name, members, *children),
            Self::Split { comm, name, color } => cx.comm_split(comm, *name, *color),
            Self::Finalize { comm } => cx.comm_finalize(comm),
            Self::Destroy { comm, parting } => cx.comm_destroy(comm, *parting),
        }
    }
}

impl Here<'_> {
    /// The communicator that an operand is, if a graph of the rank captured it and lives.
    fn captured(self, comm: &Operand) -> Option<CommId> {
        match Machine::value(self.state, self.rank, comm) {
            Value::Comm(comm) => Machine::capturing(self.state, self.rank, comm).map(|_| comm),
            _ => None,
        }
    }

    /// Whether a destruction that leaves the others so finalizes the communicator first. What the end of a group waits for is
    /// not modelled.
    fn finalizes(self, parting: Parting) -> bool {
        parting == Parting::Together && !self.this().group().is_open()
    }

    /// Whether everything that the rank launched on a communicator is over.
    fn is_over(self, comm: &Operand) -> bool {
        match Machine::value(self.state, self.rank, comm) {
            Value::Comm(comm) => {
                !self.me().queued().any(|queued| queued.work.sequence().is_some_and(|(of, _)| of == comm))
            }
            _ => true,
        }
    }
}

/// Whether a map or list of the rank holds the address of a communicator.
fn remembers(rank: &RankState, comm: CommId) -> bool {
    fn holds(value: &Value, comm: CommId) -> bool {
        match value {
            Value::Address(address) => *address == Address::Comm(comm),
            Value::Tuple(parts) => parts.iter().any(|part| holds(part, comm)),
            _ => false,
        }
    }
    rank.contained().any(|value| holds(value, comm))
}

/// A set-up event, as a waiting thread entered it.
pub(crate) enum Setup {
    Register { memory: Value, flags: WindowFlags, op: OpRef },
    Split { name: Token, color: Option<i64>, op: OpRef },
}

impl Setup {
    fn op(&self) -> OpRef {
        match self {
            Self::Register { op, .. } | Self::Split { op, .. } => *op,
        }
    }
}

impl Machine {
    /// The address of a communicator, by the first that was there.
    pub(crate) fn comm_address(state: &State, rank: Rank, comm: CommId) -> CommId {
        state.rank(rank).comm(comm).map_or(comm, |state| state.address)
    }

    /// The address of a destroyed communicator that a new one gets back, if that is chosen. One that no map or list
    /// of the rank remembers cannot be told from a fresh one.
    pub(crate) fn decide_comm_address(
        &self,
        rank: &RankState,
        nondet: &mut NondetValues<'_>,
    ) -> Result<Option<CommId>, Poll> {
        let free = &Comms::of(rank).free_addresses;
        if !free.is_empty() {
            self.look_into_all();
        }
        let back: Vec<CommId> = free.iter().filter(|address| remembers(rank, **address)).copied().collect();
        let options = u32::try_from(back.len()).expect("few communicators");
        Ok(match nondet.take(|| Nondet::AddressReuse, 0..=options)? {
            0 => None,
            nth => Some(back[nth as usize - 1]),
        })
    }

    pub(super) fn set_up(&self, state: &mut State, comm: CommId, nth: u32, here: &[(Rank, u32)]) {
        let events: Vec<Setup> =
            here.iter().map(|(rank, thread)| self.here(state, *rank, *thread).setup_of(comm)).collect();
        let splits = events.iter().filter(|event| matches!(event, Setup::Split { .. })).count();
        if splits == 0 {
            self.register_meet(state, comm, nth, here, &events);
        } else if splits == events.len() {
            self.split_meet(state, comm, nth, here, &events);
        } else {
            let split = events.iter().position(|event| matches!(event, Setup::Split { .. }));
            let register = events.iter().position(|event| matches!(event, Setup::Register { .. }));
            let (split, register) = (split.expect("counted"), register.expect("counted"));
            let ops = [events[split].op(), events[register].op()];
            let past = self.here(state, here[0].0, here[0].1).past();
            self.find(state, Rule::Comm3, About::Window(comm, nth), &ops, past, || {
                format!(
                    "set-up event #{nth} of {} is a split on rank {} ({}) and a registration on rank {} ({})",
                    self.comm_name(comm),
                    here[split].0.0,
                    self.at(&ops[0]),
                    here[register].0.0,
                    self.at(&ops[1]),
                )
            });
            // Both wait for messages of their own kind for ever (measured). What else a group is in goes on meanwhile, or is over
            // already: in which order is nobody's doing.
            for ((rank, thread), event) in here.iter().zip(&events) {
                if state.rank(*rank).thread(*thread).group().makes_several() {
                    Self::undefine(state, event.op());
                }
            }
            for (rank, thread) in here {
                state.rank_mut(*rank).thread_mut(*thread).hang();
            }
        }
    }

    fn split_meet(&self, state: &mut State, comm: CommId, nth: u32, here: &[(Rank, u32)], events: &[Setup]) {
        let color = |event: &Setup| match event {
            Setup::Split { color, .. } => color.filter(|color| *color != NO_COLOR),
            Setup::Register { .. } => None,
        };
        let mut of_color: BTreeMap<i64, Vec<(Rank, Token)>> = BTreeMap::new();
        for ((rank, _), event) in here.iter().zip(events) {
            if let (Some(color), Setup::Split { name, .. }) = (color(event), event) {
                of_color.entry(color).or_default().push((*rank, *name));
            }
        }
        // NCCL knows no names: whoever gives the same color is in the same child.
        let child = |(color, members): (i64, Vec<(Rank, Token)>)| {
            let (members, names): (Vec<Rank>, Vec<Token>) = members.into_iter().unzip();
            let name = names[0];
            let names = names.iter().any(|other| *other != name).then(|| names.into());
            let info = CommInfo { name, names, nth, parent: Some(comm), members: members.into() };
            (color, self.comm_id(info))
        };
        let children_of: BTreeMap<i64, CommId> = of_color.into_iter().map(child).collect();
        let rendezvous = Rendezvous::Setup(comm, nth);
        for ((rank, thread), event) in here.iter().zip(events) {
            let Some(mine) = color(event) else {
                self.cx(state, *rank, *thread).returns_with(&rendezvous, Value::Null);
                continue;
            };
            let child = children_of[&mine];
            let children = state.rank(*rank).comm(comm).map_or(Resources::Own, |parent| parent.children);
            let family = match children {
                Resources::Own => child,
                Resources::Shared => state.rank(*rank).family(comm),
            };
            self.cx(state, *rank, *thread).enter((child, family), children);
            self.cx(state, *rank, *thread).returns_with(&rendezvous, Value::Comm(child));
        }
    }
}

impl Machine {
    /// Whether a call was found on a communicator that nothing orders with another: then one order of what follows
    /// stands for all, because nobody specifies any of it.
    pub(crate) fn takes_one_order(&self, state: &State) -> bool {
        self.config.concurrent_calls == ConcurrentCalls::InOneOrder
            && (self.config.declared_needless.contains(&Condition::UnorderedCalls)
                || state.findings.keys().any(|key| key.rule == Rule::Comm4))
    }

    /// Calls that wait for ever were made too: judges them as those that went on.
    pub(crate) fn judge_blocked_calls(&self, state: &mut State) {
        for rank in (0..self.config.ranks).map(Rank) {
            for thread in (0..).take(state.rank(rank).threads().len()) {
                let here = self.here(state, rank, thread);
                if !here.this().is_ready() || !matches!(here.poll(), Poll::Wait) {
                    continue;
                }
                let mut comms = Vec::new();
                here.footprint(&mut |object, how| {
                    if how == Access::Call {
                        comms.extend(object.comm_id());
                    }
                });
                // The first is the communicator itself, a second one that of its channels.
                let Some(comm) = comms.first() else { continue };
                let mut clock = here.this().clock().clone();
                clock.tick();
                self.cx(state, rank, thread).judge_call(*comm, &clock);
            }
        }
    }
}

impl Cx<'_> {
    /// A call of the thread on a communicator. No other thread may make one at the same time, on this communicator or
    /// on another that uses its channels.
    pub(crate) fn call_on(&mut self, comm: CommId) {
        // One thread contends with nobody.
        if self.me().threads().len() < 2 {
            return;
        }
        let (m, rank) = (self.m, self.rank);
        for object in m.comm_objects(self.state, rank, comm) {
            self.access(object, Access::Call);
        }
        let clock = self.this().clock().clone();
        self.judge_call(comm, &clock);
        self.judge_call_beside_group(comm, &clock);
    }

    /// One thread makes all calls of a group: what another one calls on a communicator that stands in a group which is
    /// still open joins that group, and returns without having done anything (`include/group.h`, `ncclGroupCommJoin`).
    fn judge_call_beside_group(&mut self, comm: CommId, clock: &Clock) {
        let (m, rank, thread, op) = (self.m, self.rank, self.thread, self.op);
        let others = self.me().threads().iter().zip(0..).filter(|(_, other)| *other != thread);
        let mut open = others.filter(|(t, _)| t.group().is_open() && t.group().making().is_empty());
        let grouped = open.find_map(|(t, other)| t.group().call_on(comm).map(|call| (other, call.op())));
        let Some((other, grouped)) = grouped else { return };
        m.find(self.state, Rule::Comm4, About::Comm(comm), &[op, grouped], clock.past(), || {
            format!(
                "on rank {} thread {} calls on {} ({}), which stands in a group of thread {other} ({}) that is still open: \
                 one thread makes all calls of a group",
                rank.0,
                thread,
                m.comm_name(comm),
                m.at(&op),
                m.at(&grouped),
            )
        });
        Machine::undefine(self.state, op);
    }

    fn judge_call(&mut self, comm: CommId, clock: &Clock) {
        let (m, rank, op) = (self.m, self.rank, self.op);
        if self.me().threads().len() < 2 {
            return;
        }
        let r = self.me_mut();
        let family = r.family(comm);
        let rows = &CommCalls::of(r).rows;
        let clash =
            rows.iter().find(|row| r.family(row.comm) == family && !clock.after(row.actor, row.epoch));
        let clash = clash.map(|row| (row.comm, row.op));
        let (actor, epoch) = (clock.actor(), clock.epoch());
        let rows = &mut CommCalls::of_mut(r).rows;
        rows.retain(|row| (row.comm, row.actor) != (comm, actor));
        rows.push(CalledBy { comm, actor, epoch, op });
        let Some((other, earlier)) = clash else { return };
        let about = About::Comm(if other == comm { comm } else { family });
        m.find(self.state, Rule::Comm4, about, &[op, earlier], clock.past(), || {
            let on = if other == comm {
                format!("on {}", m.comm_name(comm))
            } else {
                format!("on {} and {}, which share channels,", m.comm_name(other), m.comm_name(comm))
            };
            format!(
                "on rank {} nothing orders the calls {on} of thread {} ({}) and of thread {} ({})",
                rank.0,
                earlier.thread.0,
                m.at(&earlier),
                op.thread.0,
                m.at(&op),
            )
        });
        Machine::undefine(self.state, op);
    }

    pub(crate) fn comm_init(&mut self, name: Token, members: &Arc<[Rank]>, children: Resources) {
        let (m, rank, op) = (self.m, self.rank, self.op);
        let members = m.member_lists.get(members);
        if !members.has(rank) {
            let past = self.here().past();
            m.find(self.state, Rule::Comm2, About::Named(name), &[op], past, || {
                format!(
                    "rank {} calls the init of {} ({}) and is no member of it",
                    rank.0,
                    m.name(name),
                    m.at(&op)
                )
            });
            self.done(&[Value::Null]);
            return;
        }
        self.access(Object::named(ObjectKind::Init, name), Access::Write);
        let inits = Comms::of_mut(self.me_mut()).inits.get_or_insert_with(&name, || 0);
        *inits += 1;
        let nth = *inits - 1;
        let given = self.here().own_picks();
        let mut nondet = NondetValues { given: &given };
        if matches!(m.decide_fault(self.state, FaultOf::Init, &mut nondet), Ok(true)) {
            self.state.faults_used += 1;
            self.fail(format!("{}.init", m.name(name)), 1);
            self.done(&[Value::Null]);
            return;
        }
        self.promise_address(&mut nondet);
        if self.this().group().is_open() {
            let slot = self.this().slots().len();
            self.wait_for_end(GroupCall::Init { name, nth, members, children, slot, op });
            return;
        }
        self.arrive(Rendezvous::Init(name, nth, members));
    }

    /// What makes a communicator waits for the end of the group, and nothing is there before.
    fn wait_for_end(&mut self, call: GroupCall) {
        self.this_mut().group_mut().add(call);
        self.done(&[Value::Null]);
    }

    /// The communicator of an operand, if this rank may use it.
    pub(crate) fn usable(&mut self, comm: &Operand) -> Option<CommId> {
        let (m, rank, op) = (self.m, self.rank, self.op);
        let (comm, life) = self.not_destroyed(comm)?;
        if life == Life::Finalized {
            let past = self.here().past();
            let ended = self.me().ended_by(comm);
            m.find(self.state, Rule::Comm2, About::Comm(comm), &[op], past, || {
                let ended = m.and_where("finalized", ended);
                format!(
                    "rank {} uses {} after finalizing it ({}){ended}",
                    rank.0,
                    m.comm_name(comm),
                    m.at(&op)
                )
            });
            // NCCL checks nothing: whether the call finishes, fails, hangs or faults depends on what is connected.
            Machine::undefine(self.state, op);
        }
        Some(comm)
    }

    /// The communicator that an operand is, if the rank has not destroyed it; a finding if not.
    fn not_destroyed(&mut self, comm: &Operand) -> Option<(CommId, Life)> {
        let (m, rank, op) = (self.m, self.rank, self.op);
        let value = Machine::value(self.state, rank, comm);
        let Value::Comm(comm) = value else {
            if self.is_still_made(comm, "uses a communicator") {
                return None;
            }
            let past = self.here().past();
            m.find(self.state, Rule::Comm2, About::Rank(rank), &[op], past, || {
                format!("rank {} uses a communicator that is null ({})", rank.0, m.at(&op))
            });
            return None;
        };
        // Whether it is there at all is read, even if the call then fails.
        self.call_on(comm);
        let life = self.state.rank(rank).comm(comm).map(|comm_state| comm_state.life);
        if let Some(life) = life.filter(|life| *life != Life::Destroyed) {
            return Some((comm, life));
        }
        // Where nothing orders the use and what destroyed it, that is the mistake, whichever came first.
        let about = About::Comm(comm);
        let unordered =
            self.state.findings.contains_key(&FindingKey { rule: Rule::Comm4, about, by: Some(rank) });
        if !unordered {
            let past = self.here().past();
            let ended = self.me().ended_by(comm);
            m.find(self.state, Rule::Comm2, about, &[op], past, || {
                let ended = m.and_where("destroyed", ended);
                let why = if life.is_some() { " after destroying it" } else { ", which it never entered" };
                format!("rank {} uses {}{why} ({}){ended}", rank.0, m.comm_name(comm), m.at(&op))
            });
        }
        // A use after free: NCCL reads the communicator before it can know.
        Machine::undefine(self.state, op);
        None
    }

    /// An argument that the documentation excludes.
    pub(crate) fn judge_argument(&mut self, comm: CommId, call: &str, why: &str) {
        let (m, rank, op) = (self.m, self.rank, self.op);
        let past = self.here().past();
        m.find(self.state, Rule::Comm5, About::Comm(comm), &[op], past, || {
            format!("rank {} calls {call} with {why} ({})", rank.0, m.at(&op))
        });
    }

    fn comm_split(&mut self, comm: &Operand, name: Token, color: Option<i64>) {
        let op = self.op;
        let Some(comm) = self.usable(comm) else {
            self.fail("split".to_owned(), 4);
            self.discard_group((op, INVALID_ARGUMENT));
            self.done(&[Value::Null]);
            return;
        };
        if let Some(color) = color.filter(|color| *color < NO_COLOR) {
            // It is compared with the colors of others as any is (`init.cc:1455-1472`).
            let call = format!("{}.split", self.m.comm_name_on(self.rank, comm));
            self.judge_argument(comm, &call, &format!("color {color}, which is negative and not -1"));
        }
        let given = self.here().own_picks();
        self.promise_address(&mut NondetValues { given: &given });
        if self.this().group().is_open() {
            let slot = self.this().slots().len();
            self.wait_for_end(GroupCall::Split { comm, name, color, slot, op });
            return;
        }
        self.arrive_setup(comm);
    }

    fn promise_address(&mut self, nondet: &mut NondetValues<'_>) {
        let thread = self.thread;
        self.access(Object::ADDRESSES, Access::Read);
        let m = self.m;
        let r = self.me_mut();
        if let Ok(Some(address)) = m.decide_comm_address(r, nondet) {
            let comms = Comms::of_mut(r);
            comms.free_addresses.retain(|free| *free != address);
            comms.promised.push((thread, address));
        }
    }

    /// What ends a communicator is tried on either side of a call that nothing orders with it. Where it comes first, the
    /// call and all behind it are never made, and nobody would learn what would order them.
    fn ends_comm(&mut self, named: &Operand) {
        let (m, rank) = (self.m, self.rank);
        if let Value::Comm(comm) = Machine::value(self.state, rank, named) {
            for object in m.comm_objects(self.state, rank, comm) {
                self.access(object, Access::Write);
            }
        }
    }

    fn comm_finalize(&mut self, named: &Operand) {
        let (m, rank, op) = (self.m, self.rank, self.op);
        self.ends_comm(named);
        let Some((comm, life)) = self.not_destroyed(named) else {
            self.fail("finalize".to_owned(), 4);
            self.done(&[]);
            return;
        };
        if life == Life::Finalized {
            let past = self.here().past();
            let ended = self.me().ended_by(comm);
            m.find(self.state, Rule::Comm2, About::Comm(comm), &[op], past, || {
                let ended = m.and_where("finalized", ended);
                format!("rank {} finalizes {} again ({}){ended}", rank.0, m.comm_name(comm), m.at(&op))
            });
            self.fail(format!("{}.finalize", m.comm_name_on(self.rank, comm)), 4);
            self.done(&[]);
            return;
        }
        self.learn_completed(comm);
        self.ends_in_group(comm);
        self.state.rank_mut(rank).comm_mut(comm).end(Life::Finalized, op);
        self.done(&[]);
    }

    /// What the communicator ran is over. Of other work nothing is known, however much of it is over too.
    fn learn_completed(&mut self, comm: CommId) {
        self.access(Object::DEVICE, Access::Write);
        let completed = self.state.rank_mut(self.rank).comm_mut(comm).completed.clone();
        for clock in &completed {
            self.this_mut().clock_mut().join(clock);
        }
    }

    pub(crate) fn comm_destroy(&mut self, named: &Operand, parting: Parting) {
        let (m, rank, thread, op) = (self.m, self.rank, self.thread, self.op);
        self.ends_comm(named);
        if let Some(comm) = self.here().parts_from(named) {
            self.state.rank_mut(rank).comm_mut(comm).part(None);
            self.done(&[]);
            return;
        }
        if let Some((comm, _)) = self.not_destroyed(named) {
            for memory in m.covered(self.state, rank, named, None) {
                self.access(Object::memory(memory), Access::Read);
            }
            self.access(Object::ADDRESSES, Access::Write);
            let finalizes = self.here().finalizes(parting);
            if finalizes {
                self.learn_completed(comm);
            }
            self.ends_in_group(comm);
            let comm_state = self.state.rank_mut(rank).comm_mut(comm);
            comm_state.end(Life::Destroyed, op);
            let address = comm_state.address;
            Comms::of_mut(self.me_mut()).free_addresses.push(address);
            if finalizes && m.kept_by(self.state, rank, comm).next().is_some() {
                self.state.rank_mut(rank).comm_mut(comm).part(Some(thread));
                return;
            }
        }
        self.done(&[]);
    }

    /// A call returned an error.
    pub(crate) fn fail(&mut self, call: String, code: i32) {
        let (thread, op) = (self.thread, self.op);
        self.me_mut().add_error(CallError { call: call.into(), code, thread }, op);
    }

    /// Enters the next set-up event of a communicator.
    pub(crate) fn arrive_setup(&mut self, comm: CommId) {
        let (_m, rank) = (self.m, self.rank);
        let nth = self.state.rank_mut(rank).comm_mut(comm).next_setup();
        self.arrive(Rendezvous::Setup(comm, nth));
    }

    /// A thread of the rank comes out of an init or split with a communicator of this family.
    pub(super) fn enter(&mut self, (comm, family): (CommId, CommId), children: Resources) {
        let (m, thread) = (self.m, self.thread);
        let size = m.members(comm).len();
        let r = self.me_mut();
        let comms = Comms::of_mut(r);
        let promised = comms.promised.iter().position(|(to, _)| *to == thread);
        let address = promised.map_or(comm, |at| comms.promised.remove(at).1);
        comms.states.push(comm, CommState::new(size, (family, children), address));
        if family == comm {
            r.begin_launch_order(comm);
        }
        r.costs_mut().communicators += 1;
    }
}

impl<'a> Here<'a> {
    /// The set-up event that a waiting thread entered.
    pub(crate) fn setup_of(self, comm: CommId) -> Setup {
        let Here { m: _, state, rank, .. } = self;
        let t = self.this();
        let op_ref = self.op_ref();
        let splits = t.group().making().iter().find_map(|making| match &making.call {
            GroupCall::Split { comm: of, name, color, op, .. } if *of == comm => {
                Some(Setup::Split { name: *name, color: *color, op: *op })
            }
            _ => None,
        });
        if let Some(split) = splits {
            return split;
        }
        let Some(op) = t.upcoming().op() else { unreachable!("a question meets nobody") };
        let leftover = state.rank(rank).comm(comm).and_then(|comm_state| comm_state.windows.first_leftover());
        if let Some((memory, flags, queued)) = leftover
            && !matches!(op, Op::Comm(CommOp::Split { .. }))
        {
            return Setup::Register { memory: memory.clone(), flags, op: queued };
        }
        match op {
            Op::Window(WindowOp::Register { memory, flags, .. }) => {
                Setup::Register { memory: Machine::value(state, rank, memory), flags: *flags, op: op_ref }
            }
            Op::Comm(CommOp::Split { name, color, .. }) => {
                Setup::Split { name: *name, color: *color, op: op_ref }
            }
            _ => {
                let first = t.group().calls().iter().find_map(|call| match call {
                    GroupCall::Register { comm: of, memory, flags, op, .. } if *of == comm => {
                        Some(Setup::Register { memory: memory.clone(), flags: *flags, op: *op })
                    }
                    _ => None,
                });
                first.expect("a group that waits for a set-up event holds it")
            }
        }
    }
}
