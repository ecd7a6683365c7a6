//! Deadlock: who waits for whom when nothing can run any more.
//!
//! Blocked threads and streams are the nodes of a wait-for graph. A strongly connected part without a way
//! out, or a node that waits for somebody who will never come, is one finding; whoever waits for it is not.
//! Not here: what blocks.
#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "an operand of another kind is as good as null, and verbs are dispatched by noun"
)]

mod sentence;

use crate::clock::CausalPast;
use crate::cx::Here;
use crate::host::value::{CommId, Value};
use crate::id::Token;
use crate::judge::finding::{About, OpRef, Rule};
use crate::machine::{Explain, Machine};
use crate::noun::graph::GraphOp;
use crate::noun::group::GroupCall;
use crate::noun::p2p::{Half, Link, Planned, Transfers};
use crate::noun::rendezvous::Rendezvous;
use crate::noun::stream::{Queued, Work};
use crate::noun::thread::Next;
use crate::noun::thread::Status;
use crate::op::{ExchangeOp, FlagOp, Op, StoreOp, ThreadOp};
use crate::program::{Operand, Statement};
use crate::rank::Rank;
use crate::state::State;
use std::collections::BTreeSet;

/// A blocked actor: a host thread by its number, or a stream by its position among those of its rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Who {
    Thread(Rank, u32),
    Stream(Rank, usize),
}

struct WaitNode {
    who: Who,
    rule: Rule,
    /// What it waits on; none where it waits for streams or threads of its own rank, whatever these wait on.
    about: Option<About>,
    op: OpRef,
    /// Nodes it waits for.
    waits_for: Vec<usize>,
    /// Why what it waits for never comes, if that is known.
    never: Option<Never>,
    /// Nothing is to be found: a finding has been made where it got stuck, or the launcher ends it with its job.
    explained: bool,
}

/// Why what somebody waits for never comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Never {
    /// This rank, which would have to do it, has ended.
    Ended(Rank),
    /// This rank would have to do it, and its program does not.
    Missing(Rank),
    /// Nobody in particular would have to do it, and nobody is left who does.
    Nobody,
}

impl Never {
    /// The rank that would have to do it.
    fn rank(self) -> Option<Rank> {
        match self {
            Self::Ended(rank) | Self::Missing(rank) => Some(rank),
            Self::Nobody => None,
        }
    }
}

impl WaitNode {
    /// What came before the operation that waits.
    fn past(&self, state: &State) -> CausalPast {
        match self.who {
            Who::Thread(rank, thread) => state.rank(rank).thread(thread).clock().past(),
            Who::Stream(rank, stream) => state
                .rank(rank)
                .stream(stream)
                .head()
                .map_or_else(CausalPast::default, |head| head.issue.past()),
        }
    }
}

/// For whom a host thread waits whose operation cannot run.
pub(crate) enum Awaits {
    /// For nobody in particular.
    Nobody,
    /// For a thread of its rank that holds what it wants; none if nobody does any more.
    Holder(Option<u32>),
    /// For the other threads of its rank.
    ThreadsOfRank,
    /// For whoever sets a key of the store.
    Key(Token),
    /// For the streams of its rank.
    Streams,
    /// For a stream of its rank.
    Stream(Token),
    /// For the stream of its rank that records this event.
    Record(Token),
    /// For whoever works on a flag.
    Flag(Token),
    /// For members of a communicator to leave it.
    Members(CommId),
}

/// Whom somebody waits for who is blocked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Awaited {
    /// Somebody who is blocked too, at this operation.
    Blocked(OpRef),
    /// A rank that ended without what is awaited.
    Ended(Rank),
    /// A rank of which it is not known what it does next.
    Unknown(Rank),
}

/// An operation that is not over when nothing can run any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    /// The operation that is not over, by rank, thread and position.
    pub op: OpRef,
    /// Where it waits, as in "rank 1 waits in the set-up of tp".
    pub text: String,
    /// The stream at whose head it stands; none for a host thread.
    pub stream: Option<u32>,
    /// Whom it waits for; nobody where that was found out otherwise.
    pub awaits: Vec<Awaited>,
}

/// A call that a thread comes to, or has put into its group.
enum CallToCome<'a> {
    Ahead(&'a Op),
    Grouped(&'a GroupCall),
}

impl Here<'_> {
    /// Whether an operand is a communicator, as far as it is known.
    fn may_be(self, operand: &Operand, comm: CommId) -> bool {
        !matches!(Machine::value(self.state, self.rank, operand), Value::Comm(of) if of != comm)
    }
}

impl Machine {
    /// What stands when nothing can run any more, and who waits for whom.
    #[must_use]
    pub fn standing(&self, state: &State) -> Vec<Standing> {
        let nodes = self.blocked(state);
        let unknown = |node: &WaitNode| match node.who {
            Who::Thread(rank, thread) => state.rank(rank).thread(thread).cut(),
            Who::Stream(..) => false,
        };
        let known = (0..nodes.len()).filter(|at| !unknown(&nodes[*at]));
        known
            .map(|at| {
                let (targets, never) = self.waits_for(state, &nodes, at);
                let blocked = targets.iter().map(|to| match &nodes[*to] {
                    node if unknown(node) => Awaited::Unknown(node.op.rank),
                    node => Awaited::Blocked(node.op),
                });
                let awaits = match never {
                    Some(never) => never.rank().map(Awaited::Ended).into_iter().collect(),
                    None => blocked.collect(),
                };
                let stream = match nodes[at].who {
                    Who::Stream(_, stream) => Some(u32::try_from(stream).expect("few streams a rank")),
                    Who::Thread(..) => None,
                };
                Standing { op: nodes[at].op, text: self.waiting_text(state, &nodes[at]), stream, awaits }
            })
            .collect()
    }

    /// Whether anything is blocked for ever.
    pub(crate) fn is_blocked(&self, state: &State) -> bool {
        !self.blocked(state).is_empty()
    }

    /// Adds a finding for each independent reason why something is blocked.
    pub(crate) fn find_deadlocks(&self, state: &mut State) {
        let mut nodes = self.blocked(state);
        if nodes.is_empty() {
            return;
        }
        for at in 0..nodes.len() {
            let (targets, never) = self.waits_for(state, &nodes, at);
            nodes[at].never = never;
            if never.is_some() && nodes[at].rule == Rule::P2p3 {
                // Nobody is in the way: the other half is missing.
                nodes[at].rule = Rule::P2p2;
            }
            nodes[at].waits_for = if never.is_some() { Vec::new() } else { targets };
        }
        if self.job_ends(state) {
            let dead = |rank: Rank| state.rank(rank).is_dead();
            for node in &mut nodes {
                node.explained |= dead(node.op.rank)
                    || node.never.and_then(Never::rank).is_some_and(dead)
                    || self.waits_for_anybody(state, node);
            }
        }
        let edges: Vec<Vec<usize>> = nodes.iter().map(|node| node.waits_for.clone()).collect();
        for component in components(&edges) {
            let inside = |n: &usize| component.contains(n);
            let sink = component.iter().all(|n| nodes[*n].waits_for.iter().all(inside));
            if !sink || component.iter().any(|n| nodes[*n].explained) {
                continue;
            }
            self.blame_together(state, &mut nodes, &component);
            let first = component
                .iter()
                // What it is about comes before who: the name of a deadlock does not depend on the ranks' numbers.
                // How much came before is history: searches merge it, and of a recorded run much may have been left out.
                .min_by_key(|n| {
                    let node = &nodes[**n];
                    let about = node.about.map(|about| self.order_of(about));
                    let whole = self.config.remembered.is_none() && !self.source.hides_order();
                    let past = whole.then(|| node.past(state).operations());
                    (about.is_none(), node.rule, past, about, node.op)
                })
                .expect("a component has nodes");
            self.report_deadlock(state, &nodes, &component, *first);
        }
    }

    /// Finds the rule of a cycle that no blocked call tells alone: launches of several communicators, and transfers of
    /// one group that do not progress together.
    fn blame_together(&self, state: &State, nodes: &mut [WaitNode], component: &[usize]) {
        let of_collective = |n: &usize| match nodes[*n].about {
            Some(About::Comm(comm)) if nodes[*n].rule == Rule::Coll1 => Some((*n, comm)),
            _ => None,
        };
        let collectives: Vec<(usize, CommId)> = component.iter().filter_map(of_collective).collect();
        let least = collectives.iter().map(|(_, comm)| *comm).min();
        if let Some(least) = least
            && collectives.iter().any(|(_, comm)| *comm != least)
        {
            // Nobody stays away: each is launched, or would be, behind another.
            for (n, _) in &collectives {
                nodes[*n].rule = Rule::Coll4;
            }
        }
        let transfers: Vec<usize> =
            component.iter().filter(|n| nodes[**n].rule == Rule::P2p2).copied().collect();
        if transfers.is_empty() || component.len() == 1 {
            return;
        }
        let together = |from: usize| {
            let kept = |to: &&usize| component.contains(to) && !self.later_part(state, nodes, from, **to);
            nodes[from].waits_for.iter().filter(kept).copied().collect::<Vec<_>>()
        };
        let edges: Vec<Vec<usize>> =
            (0..nodes.len()).map(|n| if component.contains(&n) { together(n) } else { Vec::new() }).collect();
        if components(&edges).iter().all(|part| part.len() == 1) {
            for n in transfers {
                nodes[n].rule = Rule::P2p6;
            }
        }
    }

    /// Whether a transfer waits for one that stands in a stream behind an earlier part of its own group.
    fn later_part(&self, state: &State, nodes: &[WaitNode], from: usize, to: usize) -> bool {
        let (Who::Stream(rank, waiting), Who::Stream(peer, stream)) = (nodes[from].who, nodes[to].who) else {
            return false;
        };
        let head = |rank: Rank, stream: usize| state.rank(rank).stream(stream).head();
        let (Some(waiting), Some(first)) = (head(rank, waiting), head(peer, stream)) else { return false };
        let (Work::Transfers(waiting), Work::Transfers(blocking)) = (&waiting.work, &first.work) else {
            return false;
        };
        let of_group = |op: &&Queued| op.op == first.op && op.replay == first.replay;
        let parts = state.rank(peer).stream(stream).queue().iter().skip(1).filter(of_group);
        let mut later = parts.filter_map(|op| match &op.work {
            Work::Transfers(part) if part.comm == blocking.comm && part.planned == Planned::Part => {
                Some(part)
            }
            _ => None,
        });
        later.any(|part| {
            self.open_halves(state, rank, waiting)
                .any(|half| self.answered_by(waiting.comm, rank, half, part))
        })
    }

    /// Whether a launch has the other end of a transfer.
    fn answered_by(&self, comm: CommId, rank: Rank, half: &Half, launch: &Transfers) -> bool {
        let link = half.link(comm, rank);
        launch.comm == comm
            && launch
                .transfers
                .iter()
                .any(|other| other.direction != half.direction && other.link(comm, half.peer) == link)
    }

    fn blocked(&self, state: &State) -> Vec<WaitNode> {
        let mut nodes = Vec::new();
        for rank in (0..self.config.ranks).map(Rank) {
            let r = state.rank(rank);
            for (at, thread) in r.threads().iter().enumerate() {
                if !thread.running() {
                    continue;
                }
                let t = u32::try_from(at).expect("few threads");
                let (rule, about) = self.here(state, rank, t).blocked_on();
                nodes.push(WaitNode {
                    who: Who::Thread(rank, t),
                    rule,
                    about,
                    op: self.here(state, rank, t).blocked_op(),
                    waits_for: Vec::new(),
                    never: None,
                    // Of what is not known nothing is found.
                    explained: *thread.status() == Status::Stuck || thread.cut(),
                });
            }
            for (at, (_, stream)) in r.streams().iter().enumerate() {
                let Some(head) = stream.head() else { continue };
                let (rule, about, op) = match &head.work {
                    Work::Collective(launch) => (Rule::Coll1, Some(About::Comm(launch.comm)), head.op),
                    Work::Transfers(launch) => {
                        let half = self.open_half(state, rank, launch);
                        let link = half.link(launch.comm, rank);
                        (Rule::P2p2, Some(About::Pair(link.comm, link.from, link.to)), half.op)
                    }
                    Work::Flag(flag, _) => (Rule::Flag1, Some(About::Named(*flag)), head.op),
                    _ => (Rule::Coll1, None, head.op),
                };
                nodes.push(WaitNode {
                    who: Who::Stream(rank, at),
                    rule,
                    about,
                    op,
                    waits_for: Vec::new(),
                    never: None,
                    explained: stream.is_hung(),
                });
            }
        }
        nodes
    }

    fn waits_for(&self, state: &State, nodes: &[WaitNode], at: usize) -> (Vec<usize>, Option<Never>) {
        match nodes[at].who {
            Who::Thread(rank, thread) => self.thread_waits_for(state, nodes, rank, thread),
            Who::Stream(rank, stream) => self.stream_waits_for(state, nodes, rank, stream),
        }
    }

    fn threads_of(nodes: &[WaitNode], rank: Rank) -> Vec<usize> {
        let of = |node: &WaitNode| matches!(node.who, Who::Thread(r, _) if r == rank);
        nodes.iter().enumerate().filter(|(_, node)| of(node)).map(|(at, _)| at).collect()
    }

    fn streams_where(
        state: &State,
        nodes: &[WaitNode],
        rank: Rank,
        holds: impl Fn(&crate::noun::stream::Stream) -> bool,
    ) -> Vec<usize> {
        let of = |node: &WaitNode| match node.who {
            Who::Stream(r, at) => r == rank && holds(state.rank(r).stream(at)),
            Who::Thread(..) => false,
        };
        nodes.iter().enumerate().filter(|(_, node)| of(node)).map(|(at, _)| at).collect()
    }

    fn thread_waits_for(
        &self,
        state: &State,
        nodes: &[WaitNode],
        rank: Rank,
        thread: u32,
    ) -> (Vec<usize>, Option<Never>) {
        let r = state.rank(rank);
        let t = r.thread(thread);
        if matches!(t.status(), Status::Waiting(_)) {
            let mut targets = Vec::new();
            for rendezvous in t.waits() {
                for absent in &self.dead_first(state, &self.invited(rendezvous)) {
                    if state.rank(*absent).waiting_at(rendezvous).is_some() {
                        continue;
                    }
                    let mut threads = Self::threads_of(nodes, *absent);
                    if threads.is_empty() {
                        return (Vec::new(), Some(Never::Ended(*absent)));
                    }
                    match rendezvous {
                        Rendezvous::Link(link, _) => {
                            threads = self.callers_of_link(state, nodes, *absent, *link);
                        }
                        Rendezvous::Connect(comm, _) => {
                            threads = self.launchers(state, nodes, *absent, *comm);
                        }
                        Rendezvous::Init(..)
                        | Rendezvous::Setup(..)
                        | Rendezvous::Exchange(..)
                        | Rendezvous::Host(..) => {}
                    }
                    if threads.is_empty() {
                        return (Vec::new(), Some(Never::Missing(*absent)));
                    }
                    targets.extend(threads);
                }
            }
            return (targets, None);
        }
        let Next::Op(op) = t.upcoming() else { return (Vec::new(), None) };
        let holder = |holder: Option<u32>| match holder {
            Some(holder) if r.thread(holder).running() => {
                let at = nodes.iter().position(|node| node.who == Who::Thread(rank, holder));
                (at.into_iter().collect(), None)
            }
            Some(_) | None => (Vec::new(), Some(Never::Nobody)),
        };
        let me = Who::Thread(rank, thread);
        let here = self.here(state, rank, thread);
        match op.op.verb().waits_for(here) {
            Awaits::Nobody => (Vec::new(), None),
            Awaits::Holder(of) => holder(of),
            Awaits::ThreadsOfRank => {
                let mut others = Self::threads_of(nodes, rank);
                others.retain(|at| nodes[*at].who != me);
                let never = others.is_empty().then_some(Never::Nobody);
                (others, never)
            }
            Awaits::Key(key) => {
                let sets = |op: &Op| matches!(op, Op::Store(StoreOp::Set { key: of, .. }) if *of == key);
                Self::whoever_may(state, nodes, me, |_| false, sets)
            }
            Awaits::Streams => (Self::streams_where(state, nodes, rank, |_| true), None),
            Awaits::Stream(stream) => {
                let at = r.stream_named(stream);
                let of =
                    |(_, node): &(usize, &WaitNode)| at.is_some_and(|at| node.who == Who::Stream(rank, at));
                (nodes.iter().enumerate().filter(of).map(|(at, _)| at).collect(), None)
            }
            Awaits::Record(event) => {
                let records = |op: &Queued| matches!(op.work, Work::Record(of) if of.event == event);
                (Self::streams_where(state, nodes, rank, |stream| stream.queue().iter().any(records)), None)
            }
            Awaits::Flag(flag) => Self::flag_waits_for(state, nodes, flag, me),
            Awaits::Members(comm) => {
                let kept_by = self.kept_by(state, rank, comm);
                (kept_by.flat_map(|member| Self::threads_of(nodes, member)).collect(), None)
            }
        }
    }

    /// Ranks in their order; where the job ends with a dead one, these first, so that it does not depend on numbers for whom
    /// somebody waits.
    fn dead_first(&self, state: &State, ranks: &[Rank]) -> Vec<Rank> {
        let mut ranks = ranks.to_vec();
        if self.job_ends(state) {
            ranks.sort_by_key(|rank| !state.rank(*rank).is_dead());
        }
        ranks
    }

    /// Whoever has an act on the flag on a stream, or ahead of it.
    fn flag_waits_for(
        state: &State,
        nodes: &[WaitNode],
        flag: Token,
        me: Who,
    ) -> (Vec<usize>, Option<Never>) {
        let queued =
            |op: &Queued| matches!(op.work, Work::Flag(of, act) if of == flag && act.writes().is_some());
        let works = |op: &Op| matches!(op, Op::Flag(FlagOp { flag: of, act, .. }) if *of == flag && act.writes().is_some());
        Self::whoever_may(state, nodes, me, queued, works)
    }

    /// Whoever has such work on a stream, or such an operation ahead of it in what is known of its program; else anybody
    /// whose program is not known to its end.
    fn whoever_may(
        state: &State,
        nodes: &[WaitNode],
        me: Who,
        queued: impl Fn(&Queued) -> bool,
        works: impl Fn(&Op) -> bool,
    ) -> (Vec<usize>, Option<Never>) {
        let among = |matches: &dyn Fn(&WaitNode) -> bool| -> Vec<usize> {
            let of = |(_, node): &(usize, &WaitNode)| node.who != me && matches(node);
            nodes.iter().enumerate().filter(of).map(|(at, _)| at).collect()
        };
        let certain = |node: &WaitNode| match node.who {
            Who::Stream(rank, at) => state.rank(rank).stream(at).queue().iter().any(&queued),
            Who::Thread(rank, thread) => {
                state.rank(rank).thread(thread).ahead().iter().any(|statement| works(&statement.op))
            }
        };
        let unknown = |node: &WaitNode| match node.who {
            Who::Thread(rank, thread) => Self::goes_on_unknown(state, rank, thread),
            Who::Stream(..) => false,
        };
        let mut others = among(&certain);
        if others.is_empty() {
            others = among(&unknown);
        }
        let never = others.is_empty().then_some(Never::Nobody);
        (others, never)
    }

    /// Whether it is not known what a thread, and those that it starts, do to their ends.
    pub(crate) fn goes_on_unknown(state: &State, rank: Rank, thread: u32) -> bool {
        let t = state.rank(rank).thread(thread);
        let spawns = |statement: &Statement| matches!(&*statement.op, Op::Thread(ThreadOp::Spawn { .. }));
        !t.returns() || t.ahead().iter().any(spawns)
    }

    /// The threads of a rank that may still make a call that has its end of a link.
    fn callers_of_link(&self, state: &State, nodes: &[WaitNode], rank: Rank, link: Link) -> Vec<usize> {
        let members = self.members(link.comm);
        self.callers(state, nodes, rank, |here, op| match op {
            CallToCome::Ahead(Op::Transfer(call)) => {
                let peer = members.get(call.peer as usize);
                here.may_be(&call.comm, link.comm)
                    && peer.is_some_and(|peer| call.direction.link(link.comm, rank, *peer) == link)
            }
            CallToCome::Ahead(Op::Collective(call)) => call.kind.is_made_of_transfers(),
            CallToCome::Ahead(op) => matches!(op, Op::Graph(GraphOp::Replay { .. })),
            CallToCome::Grouped(GroupCall::Transfer { comm, transfer, .. }) => {
                transfer.link(*comm, rank) == link
            }
            CallToCome::Grouped(_) => false,
        })
    }

    /// The threads of a rank that may still launch a collective on a communicator.
    fn launchers(&self, state: &State, nodes: &[WaitNode], rank: Rank, comm: CommId) -> Vec<usize> {
        self.callers(state, nodes, rank, |here, op| match op {
            CallToCome::Ahead(Op::Collective(call)) => here.may_be(&call.comm, comm),
            CallToCome::Ahead(op) => matches!(op, Op::Graph(GraphOp::Replay { .. })),
            CallToCome::Grouped(call) => matches!(call, GroupCall::Launch { comm: of, .. } if *of == comm),
        })
    }

    /// The threads of a rank that have such a call ahead of them in what is known of their programs, or have made it in a
    /// group that is open; else those whose programs are not known to their ends.
    fn callers(
        &self,
        state: &State,
        nodes: &[WaitNode],
        rank: Rank,
        such: impl Fn(Here<'_>, CallToCome<'_>) -> bool,
    ) -> Vec<usize> {
        let among = |may: &dyn Fn(u32) -> bool| -> Vec<usize> {
            let is =
                |node: &WaitNode| matches!(node.who, Who::Thread(of, thread) if of == rank && may(thread));
            nodes.iter().enumerate().filter(|(_, node)| is(node)).map(|(at, _)| at).collect()
        };
        let certain = among(&|at| {
            let (here, thread) = (self.here(state, rank, at), state.rank(rank).thread(at));
            thread.ahead().iter().any(|statement| such(here, CallToCome::Ahead(&statement.op)))
                || thread.group().calls().iter().any(|call| such(here, CallToCome::Grouped(call)))
        });
        if certain.is_empty() { among(&|at| Self::goes_on_unknown(state, rank, at)) } else { certain }
    }

    /// Whether no rank in particular has to do what is waited for: one that died might have.
    fn waits_for_anybody(&self, state: &State, node: &WaitNode) -> bool {
        match node.who {
            Who::Thread(rank, thread) => {
                let t = state.rank(rank).thread(thread);
                let Next::Op(op) = t.upcoming() else { return false };
                let awaits = || op.op.verb().waits_for(self.here(state, rank, thread));
                *t.status() == Status::Ready && matches!(awaits(), Awaits::Key(_) | Awaits::Flag(_))
            }
            Who::Stream(rank, stream) => {
                let head = state.rank(rank).stream(stream).head();
                head.is_some_and(|head| matches!(head.work, Work::Flag(..)))
            }
        }
    }

    fn stream_waits_for(
        &self,
        state: &State,
        nodes: &[WaitNode],
        rank: Rank,
        stream: usize,
    ) -> (Vec<usize>, Option<Never>) {
        let head = &state.rank(rank).stream(stream).head().expect("blocked").work;
        match head {
            Work::Collective(launch) => {
                if let Some(first) = self.waits_in_launch_order(state, nodes, rank, head) {
                    return (first, None);
                }
                let comm = launch.comm;
                let absent = |member: &&Rank| !self.stands_ready(state, **member, comm);
                let members = self.dead_first(state, &self.members(comm));
                let partners = members.iter().filter(absent).map(|member| {
                    let nth = |work: &Work| matches!(work, Work::Collective(l) if (l.comm, l.nth) == (comm, launch.nth));
                    (*member, Self::holding(state, nodes, *member, nth))
                });
                Self::waits_for_launches(nodes, partners, |member| self.launchers(state, nodes, member, comm))
            }
            Work::Transfers(launch) => {
                if let Some(first) = self.waits_in_launch_order(state, nodes, rank, head) {
                    return (first, None);
                }
                let partners = self.open_halves(state, rank, launch).map(|half| {
                    let other = |work: &Work| {
                        matches!(work, Work::Transfers(e) if self.answered_by(launch.comm, rank, half, e))
                    };
                    (half.peer, Self::holding(state, nodes, half.peer, other))
                });
                let callers = |peer: Rank| {
                    let halves = self.open_halves(state, rank, launch).filter(|half| half.peer == peer);
                    let link = |half: &Half| half.link(launch.comm, rank);
                    let of = halves.flat_map(|half| self.callers_of_link(state, nodes, peer, link(half)));
                    of.collect::<BTreeSet<usize>>().into_iter().collect()
                };
                Self::waits_for_launches(nodes, partners, callers)
            }
            Work::Wait(record) => {
                let targets = Self::streams_where(state, nodes, rank, |stream| {
                    stream.queue().iter().any(|op| matches!(op.work, Work::Record(of) if of == *record))
                });
                (targets, None)
            }
            Work::Flag(flag, _) => Self::flag_waits_for(state, nodes, *flag, Who::Stream(rank, stream)),
            Work::Kernel(_)
            | Work::Copy { .. }
            | Work::Expect(_)
            | Work::Record(..)
            | Work::Fresh(_)
            | Work::GiveBack(_) => (Vec::new(), None),
        }
    }

    /// Streams of a rank in which such work stands.
    fn holding(state: &State, nodes: &[WaitNode], rank: Rank, such: impl Fn(&Work) -> bool) -> Vec<usize> {
        Self::streams_where(state, nodes, rank, |stream| stream.queue().iter().any(|op| such(&op.work)))
    }

    /// For the head of a stream that is not where it could begin: the launch that is next.
    fn waits_in_launch_order(
        &self,
        state: &State,
        nodes: &[WaitNode],
        rank: Rank,
        head: &Work,
    ) -> Option<Vec<usize>> {
        let (comm, sequence) = head.sequence()?;
        let r = state.rank(rank);
        (!r.is_next(comm, sequence))
            .then(|| Self::holding(state, nodes, rank, |work| r.is_next_work(comm, work)))
    }

    /// A launch waits for partners: for the streams in which their part stands, or for their threads to launch.
    fn waits_for_launches(
        nodes: &[WaitNode],
        partners: impl Iterator<Item = (Rank, Vec<usize>)>,
        callers: impl Fn(Rank) -> Vec<usize>,
    ) -> (Vec<usize>, Option<Never>) {
        let mut targets = Vec::new();
        for (partner, mut standing) in partners {
            if standing.is_empty() {
                if Self::threads_of(nodes, partner).is_empty() {
                    return (Vec::new(), Some(Never::Ended(partner)));
                }
                standing = callers(partner);
                if standing.is_empty() {
                    return (Vec::new(), Some(Never::Missing(partner)));
                }
            }
            targets.extend(standing);
        }
        (targets, None)
    }

    fn report_deadlock(&self, state: &mut State, nodes: &[WaitNode], component: &[usize], first: usize) {
        let node = &nodes[first];
        let about = node.about.unwrap_or(About::Rank(node.op.rank));
        let captured = match node.about {
            Some(About::Comm(comm)) if node.rule == Rule::Graph4 => {
                Self::capturing(state, node.op.rank, comm)
            }
            _ => None,
        };
        if let Some((graph, launch)) = captured {
            self.report_captured(state, node, graph, launch);
            return;
        }
        let (rule, past) = (node.rule, node.past(state));
        // The sentence names streams, which the state knows: it is made before the state is changed.
        let told = self.config.explain != Explain::No;
        if component.len() > 1 {
            let others = component.iter().filter(|n| **n != first);
            let mut ops: Vec<OpRef> = Vec::new();
            for n in std::iter::once(&first).chain(others) {
                if !ops.contains(&nodes[*n].op) {
                    ops.push(nodes[*n].op);
                }
            }
            let text = if told { self.cycle(state, nodes, component, first) } else { String::new() };
            self.find(state, rule, about, &ops, past, || text);
            return;
        }
        let written = match (rule, about) {
            (Rule::Flag1, About::Named(flag)) => state.last_flag_write(flag),
            _ => None,
        };
        let last = match node.never {
            Some(Never::Ended(rank)) => self.last_op(state, rank),
            Some(Never::Nobody) => written,
            Some(Never::Missing(_)) | None => None,
        };
        let ops: Vec<OpRef> = std::iter::once(node.op).chain(last).collect();
        let text = if told { self.in_vain(state, node, last) } else { String::new() };
        self.find(state, rule, about, &ops, past, || text);
    }

    /// A communicator that is destroyed before a graph that captured it (`init.cc:2751`).
    fn report_captured(&self, state: &mut State, node: &WaitNode, graph: Token, launch: OpRef) {
        let about = node.about.unwrap_or(About::Rank(node.op.rank));
        let op = node.op;
        self.find(state, Rule::Graph4, about, &[op, launch], node.past(state), || {
            format!(
                "rank {} waits in the destruction of {} ({}) for {}, which captured a collective of it ({}) and \
                 is not destroyed",
                op.rank.0,
                self.about(about),
                self.at(&op),
                self.name(graph),
                self.at(&launch),
            )
        });
    }

    /// The last operation that a rank did.
    fn last_op(&self, state: &State, rank: Rank) -> Option<OpRef> {
        let t = state.rank(rank).threads().first()?;
        let last = t.index().checked_sub(1)?;
        let loc = t.last_loc()?;
        Some(OpRef { rank, thread: crate::rank::Thread(0), index: last, loc })
    }
}

impl<'a> Here<'a> {
    /// The operation a thread is blocked in; inside a group, the call that waits.
    fn blocked_op(self) -> OpRef {
        let Here { rank, .. } = self;
        let t = self.this();
        if let Status::Waiting(rendezvous) = t.status()
            && let Some(call) = t.group().making_at(rendezvous)
        {
            return call.op();
        }
        if let Status::Waiting(Rendezvous::Setup(comm, _)) = t.status()
            && let crate::noun::comm::Setup::Register { op, .. } = self.setup_of(*comm)
        {
            return op;
        }
        let t = self.this();
        if let Status::Waiting(Rendezvous::Link(link, _)) = t.status() {
            let calls = self.grouped_transfers();
            let call = calls.iter().find(|(comm, _, call)| call.link(*comm, rank) == *link);
            if let Some((_, _, call)) = call {
                return call.op;
            }
        }
        self.op_ref()
    }

    /// The rule that stands behind what a thread is blocked on, and the object.
    fn blocked_on(self) -> (Rule, Option<About>) {
        let Here { m, state, rank, .. } = self;
        let t = self.this();
        if let Status::Waiting(rendezvous) = t.status() {
            return match rendezvous {
                Rendezvous::Init(name, ..) => (Rule::Comm1, Some(About::Named(*name))),
                Rendezvous::Setup(comm, nth) => {
                    let register = matches!(self.setup_of(*comm), crate::noun::comm::Setup::Register { .. });
                    let rule = if register { Rule::Win1 } else { Rule::Comm1 };
                    (rule, Some(About::Window(*comm, *nth)))
                }
                Rendezvous::Connect(comm, connection) => {
                    let others = m.members(*comm);
                    let elsewhere = |other: &Rank| {
                        state.rank(*other).threads().iter().any(|t| {
                            matches!(t.status(), Status::Waiting(Rendezvous::Connect(of, other))
                                if of == comm && other != connection)
                        })
                    };
                    if others.iter().any(elsewhere) {
                        return (Rule::Coll2, Some(About::Comm(*comm)));
                    }
                    let mine = state.rank(rank).comm(*comm).map_or(0, |comm_state| comm_state.launched());
                    let apart = m.members(*comm).iter().any(|other| {
                        state.rank(*other).comm(*comm).is_some_and(|comm_state| comm_state.launched() > mine)
                    });
                    let rule = if apart { Rule::Win7 } else { Rule::Coll1 };
                    (rule, Some(About::Comm(*comm)))
                }
                Rendezvous::Link(link, _) => (Rule::P2p3, Some(About::Pair(link.comm, link.from, link.to))),
                Rendezvous::Host(..) => (Rule::Host1, Some(About::Hosts)),
                Rendezvous::Exchange(..) => {
                    let Some(Op::Exchange(ExchangeOp { name, .. })) = t.upcoming().op() else {
                        unreachable!("who waits in an exchange stands at it")
                    };
                    (Rule::Exchange1, Some(About::Named(*name)))
                }
            };
        }
        match t.upcoming() {
            Next::Op(op) => op.op.verb().blocked_on(self),
            Next::Ask(..) | Next::Return | Next::Unknown => (Rule::Coll1, None),
        }
    }
}

/// Strongly connected components of a graph that is given by its edges, by Tarjan's algorithm without recursion.
fn components(edges: &[Vec<usize>]) -> Vec<Vec<usize>> {
    const UNSEEN: usize = usize::MAX;
    let mut order = vec![UNSEEN; edges.len()];
    let mut low = vec![0; edges.len()];
    let mut on_stack = vec![false; edges.len()];
    let mut stack = Vec::new();
    let mut found = Vec::new();
    let mut count = 0;
    for root in 0..edges.len() {
        if order[root] != UNSEEN {
            continue;
        }
        let mut calls = vec![(root, 0)];
        while let Some((at, edge)) = calls.pop() {
            if edge == 0 {
                order[at] = count;
                low[at] = count;
                count += 1;
                stack.push(at);
                on_stack[at] = true;
            }
            if let Some(&to) = edges[at].get(edge) {
                calls.push((at, edge + 1));
                if order[to] == UNSEEN {
                    calls.push((to, 0));
                } else if on_stack[to] {
                    low[at] = low[at].min(order[to]);
                }
                continue;
            }
            if low[at] == order[at] {
                let start = stack.iter().position(|n| *n == at).expect("on the stack");
                let component = stack.split_off(start);
                for n in &component {
                    on_stack[*n] = false;
                }
                found.push(component);
            }
            if let Some((parent, _)) = calls.last() {
                low[*parent] = low[*parent].min(low[at]);
            }
        }
    }
    found
}
