//! Point-to-point: what one rank launches at once, first use of links, and transfers that run.
//!
//! Sends and receives of a link meet in the order of their launches; neither length nor type is exchanged. All
//! transfers of a launch progress together, and it is over when each of them is. Source:
//! `specs/rules/p2p.md`. Not here: which launch is next ([`crate::noun::launch_order`]).

mod launch;
mod link;

use crate::cx::{Cx, Here};
use crate::describe::{Describe, Description};
use crate::machine::Kind;
use crate::noun::pool::Plan;
use crate::op::{Show, Verb};
use crate::program::{Dtype, Operand};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use self::launch::Message;
pub(crate) use self::launch::{Half, Planned, Progress, Transfers, Transit};
pub(crate) use self::link::Links;
pub use self::link::{Handshake, Link};
use crate::clock::Clock;
use crate::history::{Lane, Moment};
use crate::host::value::{CommId, Value};
use crate::id::Token;
use crate::judge::finding::{About, OpRef, Rule};
use crate::machine::{InFlight, Machine};
use crate::noun::collective::{Recorded, UNKNOWN_DTYPE};
use crate::noun::comm::CommState;
use crate::noun::group::{GroupCall, LaunchedBy};
use crate::noun::launch_order::{Issue, LaunchOrder, Ran};
use crate::noun::rendezvous::Rendezvous;
use crate::noun::stream::Work;
use crate::noun::window::{INVALID_ARGUMENT, LastUse};
use crate::order::dependence::{Access, Object, ObjectKind};
use crate::order::poll::{Nondet, NondetValues, Poll};
use crate::rank::Rank;
use crate::state::{State, Table};
use crate::walk::Rows;

/// Which way the data of a transfer go, seen from the rank that calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Direction {
    /// `ncclSend`: data go from this rank to the peer.
    Send,
    /// `ncclRecv`: data come from the peer to this rank.
    Recv,
}

impl Describe for Direction {
    fn describe(&self, to: &mut Description<'_>) {
        to.word(match self {
            Self::Send => "Send",
            Self::Recv => "Recv",
        });
    }
}

impl Direction {
    /// Returns what specs call it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Send => "send",
            Self::Recv => "recv",
        }
    }

    /// The link of a call in this direction, by this rank and with this peer.
    pub(crate) fn link(self, comm: CommId, rank: Rank, peer: Rank) -> Link {
        match self {
            Self::Send => Link { comm, from: rank, to: peer },
            Self::Recv => Link { comm, from: peer, to: rank },
        }
    }
}

/// One rank's call of its half of a point-to-point transfer.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Transfer {
    /// Whether this rank sends or receives.
    pub direction: Direction,
    /// The communicator that numbers the peer and orders the transfers of the pair.
    pub comm: Operand,
    /// The rank at the other end, as a position in the communicator. What the call has stands here: who is no member
    /// too, and a negative number in two's complement, for both of which the call returns an error.
    pub peer: u32,
    /// What is sent, or where it goes.
    pub buffer: Operand,
    /// Number of elements. It is not exchanged, so NCCL cannot compare it with the peer's.
    pub count: u64,
    /// Element type. Not exchanged.
    pub dtype: Dtype,
    /// Stream it is launched on.
    pub stream: Token,
}

impl Describe for Transfer {
    fn describe(&self, to: &mut Description<'_>) {
        let Self { direction, comm, peer, buffer, count, dtype, stream } = self;
        to.word("Transfer(");
        to.call(
            "Transfer",
            &[
                ("way", direction),
                ("comm", comm),
                ("peer", peer),
                ("buffer", buffer),
                ("count", count),
                ("dtype", dtype),
                ("stream", stream),
            ],
        );
        to.word(")");
    }
}

impl Verb for Transfer {
    fn slots(&self) -> u32 {
        0
    }

    fn kind(&self) -> Kind {
        Kind::InRole
    }

    fn display(&self, show: &Show<'_>) -> String {
        let (comm, buffer) = (show.operand(&self.comm), show.operand(&self.buffer));
        format!("{comm}.{}({buffer}, {})", self.direction.name(), self.peer.cast_signed())
    }

    fn stream(&self) -> Option<Token> {
        Some(self.stream)
    }

    fn buffers(&self) -> Vec<&Operand> {
        vec![&self.buffer]
    }

    fn seen_by_others(&self) -> bool {
        true
    }

    fn footprint(&self, here: Here<'_>, each: &mut dyn FnMut(Object, Access)) {
        here.comm_of(&self.comm, Access::Call, each);
    }

    fn ready(&self, here: Here<'_>, nondet: &mut NondetValues<'_>) -> Poll {
        here.poll_transfer(self, nondet)
    }

    fn apply(&self, cx: &mut Cx<'_>, _: Plan) {
        cx.transfer(self);
    }
}

/// A transfer that was called: on which communicator, in which stream.
pub(crate) type Called = (CommId, Token, Arc<Half>);

/// `ncclInvalidUsage`: a rank sends to itself without the receive in the same group, or the other way round; or a group is
/// given streams for one communicator that do not all record into one graph.
pub(crate) const INVALID_USAGE: i32 = 5;

/// How NCCL plans the pairs of a group on one communicator.
struct GroupPlan {
    /// The pairs, in the order in which they are taken.
    order: Vec<(usize, u32)>,
    /// So many of them certainly progress together.
    together: usize,
    /// Whether it is nondeterministic if the others are serialized.
    nondet: bool,
}

/// How the two halves of a transfer fit together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Halves {
    /// What is sent arrives.
    Together,
    /// It may arrive, and nobody specifies what or where.
    Undefined,
    /// The receiver takes it to have arrived; it lies in NCCL's own slots.
    Stale,
    /// The sender waits for a pointer that nobody posts.
    Apart,
}

/// The communicators of transfers, in one order on all ranks.
fn comms_of(calls: &[Called]) -> Vec<CommId> {
    let mut comms: Vec<CommId> = calls.iter().map(|(comm, ..)| *comm).collect();
    comms.sort_unstable();
    comms.dedup();
    comms
}

impl Machine {
    /// Whether NCCL holds all of a send of these that was not measured to hang, where that matters and is not decided
    /// yet.
    pub(crate) fn decide_in_flight(
        &self,
        state: &State,
        rank: Rank,
        calls: &[Called],
        nondet: &mut NondetValues<'_>,
    ) -> Result<Option<bool>, Poll> {
        if self.config.in_flight == InFlight::Nothing || Transit::of(state.shared()).holds_all.is_some() {
            return Ok(None);
        }
        let mut sent: Rows<Link, u64> = Rows::default();
        for (comm, _, transfer) in
            calls.iter().filter(|(_, _, transfer)| transfer.direction == Direction::Send)
        {
            let link = transfer.link(*comm, rank);
            let links = state.rank(rank).comm(*comm).map(CommState::links);
            let before = links.map_or(0, |links| links.sent_bytes(link));
            *sent.get_or_insert_with(&link, || before) += transfer.len_bytes();
        }
        if sent.iter().all(|(link, bytes)| *bytes <= self.in_flight_bytes(link.comm).0) {
            return Ok(None);
        }
        Ok(Some(nondet.take(|| Nondet::InFlight, 0..=1)? == 1))
    }

    /// Bytes of a link of a communicator that certainly can be in flight, and that certainly cannot.
    fn in_flight_bytes(&self, comm: CommId) -> (u64, u64) {
        self.config.platform.in_flight_bytes(self.members(comm).len())
    }

    /// For each transfer of a group on one communicator the pair of a send and a receive in which NCCL plans it: the
    /// how-manieth of its link, and the distance between sender and receiver. Pairs are taken in this order
    /// (`enqueue.cc:1129-1236`), which is the same on both ends of a link.
    fn pairs(&self, comm: CommId, rank: Rank, transfers: &[Half]) -> Vec<(usize, u32)> {
        let pair = |(at, transfer): (usize, &Half)| {
            let same =
                |earlier: &&Half| earlier.direction == transfer.direction && earlier.peer == transfer.peer;
            (transfers[..at].iter().filter(same).count(), self.distance(transfer.link(comm, rank)))
        };
        transfers.iter().enumerate().map(pair).collect()
    }

    /// Which pairs of a group progress together.
    fn plan(&self, pairs: &[(usize, u32)]) -> GroupPlan {
        let mut order = pairs.to_vec();
        order.sort_unstable();
        order.dedup();
        let most = self.config.planned_together.unwrap_or_else(|| self.config.platform.planned_together());
        let firsts = order.iter().filter(|(nth, _)| *nth == 0).count();
        let together = firsts.min(most as usize);
        // Those of one distance use the same channels, one after the other.
        let nondet = order.len() > together && order.iter().any(|(_, distance)| *distance != order[0].1);
        GroupPlan { order, together, nondet }
    }

    /// Whether transfers that need not progress together are serialized, where the group is the first to ask. It is
    /// decided once for a run. What NCCL does lies between the two, and differs from rank to rank; but who is
    /// serialized waits for more, so a run that ends if all are serialized ends in any case.
    pub(crate) fn decide_serialized(
        &self,
        state: &State,
        rank: Rank,
        calls: &[Called],
        nondet: &mut NondetValues<'_>,
    ) -> Result<Option<bool>, Poll> {
        // The usual group: a pair or two.
        if Transit::of(state.shared()).serialized.is_some() || calls.len() <= 2 {
            return Ok(None);
        }
        let asks = comms_of(calls).into_iter().any(|comm| {
            let own = calls.iter().filter(|(of, ..)| *of == comm);
            let transfers: Vec<Half> = own.map(|(.., transfer)| Half::clone(transfer)).collect();
            self.plan(&self.pairs(comm, rank, &transfers)).nondet
        });
        if !asks {
            return Ok(None);
        }
        Ok(Some(nondet.take(|| Nondet::Serialized, 0..=1)? == 1))
    }

    /// The transfers of a group on one communicator in parts: each begins once the one before it is over.
    fn parted(&self, state: &State, comm: CommId, rank: Rank, transfers: Vec<Half>) -> Vec<Vec<Half>> {
        let pairs = self.pairs(comm, rank, &transfers);
        let plan = self.plan(&pairs);
        if plan.nondet && Transit::of(state.shared()).serialized == Some(false) {
            return vec![transfers];
        }
        let mut parts = vec![Vec::new(); plan.order.len().saturating_sub(plan.together) + 1];
        for (transfer, pair) in transfers.into_iter().zip(pairs) {
            let position = plan.order.binary_search(&pair).expect("made of the same");
            parts[(position + 1).saturating_sub(plan.together)].push(transfer);
        }
        parts
    }

    /// The launch of a communicator that a rank is in, with its stream.
    fn running(&self, state: &State, rank: Rank, comm: CommId) -> Option<(usize, Arc<Transfers>)> {
        let r = state.rank(rank);
        r.streams().iter().enumerate().find_map(|(at, (_, stream))| match stream.work() {
            Some(Work::Transfers(launch))
                if launch.comm == comm && !stream.is_hung() && r.is_next(comm, launch.sequence) =>
            {
                Some((at, Arc::clone(launch)))
            }
            _ => None,
        })
    }

    /// The half of a link that is next on one of its ends, if the rank is in the launch that it is in.
    fn half(&self, state: &State, link: Link, direction: Direction) -> Option<(usize, Half)> {
        let (rank, peer) = match direction {
            Direction::Send => (link.from, link.to),
            Direction::Recv => (link.to, link.from),
        };
        let (_, launch) = self.running(state, rank, link.comm)?;
        let progress = state.rank(rank).launch_order(link.comm)?.progress();
        let over = |at: usize| progress.is_some_and(|progress| progress.over[at]);
        let next = |(at, transfer): &(usize, &Half)| {
            !over(*at) && transfer.direction == direction && transfer.peer == peer
        };
        launch.transfers.iter().enumerate().find(next).map(|(at, transfer)| (at, transfer.clone()))
    }

    /// The links on which a stream's head waits for something.
    pub(crate) fn open_links(&self, state: &State, rank: Rank, stream: usize) -> Vec<Link> {
        let head = state.rank(rank).stream(stream).head();
        let Some(Work::Transfers(launch)) = head.map(|op| &op.work) else { return Vec::new() };
        let mut links: Vec<Link> = launch.transfers.iter().map(|t| t.link(launch.comm, rank)).collect();
        links.sort_unstable();
        links.dedup();
        links
    }

    /// Whether something can be transferred on a link now.
    pub(crate) fn transferable(&self, state: &State, link: Link) -> bool {
        let sent = self.half(state, link, Direction::Send);
        let waits = Transit::of(state.shared()).in_flight.get(&link).is_some_and(|queue| !queue.is_empty());
        if self.half(state, link, Direction::Recv).is_some() {
            return waits || sent.is_some();
        }
        sent.is_some_and(|(_, sent)| self.fits_in_flight(state, link, &sent))
    }

    /// Whether a send can be over before its receive has begun.
    fn fits_in_flight(&self, state: &State, link: Link, sent: &Half) -> bool {
        // A registered buffer is handed over in place: both ends have to be there (`prims_simple.h:756-797`).
        if self.config.in_flight == InFlight::Nothing || sent.registered() {
            return false;
        }
        let held = Transit::of(state.shared()).in_flight.get(&link);
        let held: u64 = held.into_iter().flatten().map(|message| message.sent.len_bytes()).sum();
        let (fits, never) = self.in_flight_bytes(link.comm);
        let room = if Transit::of(state.shared()).holds_all == Some(true) { never - 1 } else { fits };
        held + sent.len_bytes() <= room
    }

    /// Transfers on a link what [`Machine::transferable`] said can be.
    pub(crate) fn run_transfer(&self, state: &mut State, link: Link) {
        self.note_memory(state);
        state.steps += 1;
        let sent = self.half(state, link, Direction::Send);
        let Some((to_at, received)) = self.half(state, link, Direction::Recv) else {
            let (at, sent) = sent.expect("something can be transferred");
            let sent_clock = self.begin(state, link.from, link.comm);
            let ran = self.ran_half(state, link.from, link.comm, &sent);
            let content = self.give(state, link, &sent);
            self.end_half(state, link.from, link.comm, at, None);
            let message = Message { sent, content, sent_clock, ran };
            Transit::of_mut(state.shared_mut()).in_flight.entry(link).or_default().push_back(message);
            return;
        };
        self.begin(state, link.to, link.comm);
        let queue = Transit::of_mut(state.shared_mut()).in_flight.get_mut(&link);
        let message = queue.and_then(std::collections::VecDeque::pop_front);
        if let Some(Message { sent, content, sent_clock, ran }) = message {
            self.note_transfer(state, link, ran, &received);
            self.land(state, link, &sent, (to_at, &received), (content, sent_clock));
            return;
        }
        let (at, sent) = sent.expect("something can be transferred");
        let sent_clock = self.begin(state, link.from, link.comm);
        let ran = self.ran_half(state, link.from, link.comm, &sent);
        self.note_transfer(state, link, ran, &received);
        if sent.registered() && !received.registered() {
            self.note_streams_met([sent.op, received.op]);
            self.judge_halves(state, link, &sent, &received);
            self.hang(state, link.from, link.comm);
            self.hang(state, link.to, link.comm);
            return;
        }
        let content = self.give(state, link, &sent);
        self.end_half(state, link.from, link.comm, at, None);
        // A rank that sends to itself may have ended its launch only now, with its receive.
        self.land(state, link, &sent, (to_at, &received), (content, sent_clock));
    }

    /// The sender reads what it sends.
    fn give(&self, state: &mut State, link: Link, sent: &Half) -> crate::term::Content {
        let (stream, _) = self.running(state, link.from, link.comm).expect("it has begun");
        self.use_window(state, link.from, (stream, link.comm), sent);
        self.access_memory(state, link.from, stream, &sent.buffer, Access::Read, sent.op);
        self.read(state, link.from, &crate::noun::memory::ByteRange::of(&sent.buffer))
    }

    /// The receiver writes what arrives.
    fn land(
        &self,
        state: &mut State,
        link: Link,
        sent: &Half,
        (at, received): (usize, &Half),
        (content, sent_clock): (crate::term::Content, Clock),
    ) {
        self.note_streams_met([sent.op, received.op]);
        let halves = self.judge_halves(state, link, sent, received);
        let (stream, _) = self.running(state, link.to, link.comm).expect("it has begun");
        self.use_window(state, link.to, (stream, link.comm), received);
        self.access_memory(state, link.to, stream, &received.buffer, Access::Write, received.op);
        match halves {
            Halves::Together => {
                self.write(state, link.to, &crate::noun::memory::ByteRange::of(&received.buffer), content);
            }
            Halves::Stale => {
                let range = crate::noun::memory::ByteRange::of(&received.buffer);
                self.note_wrong(state, link.to, &range, || self.stripes(&content));
                state.rank_mut(link.to).spoil();
                Transit::of_mut(state.shared_mut()).out_of_step.insert(link);
            }
            Halves::Undefined | Halves::Apart => {}
        }
        self.end_half(state, link.to, link.comm, at, Some(&sent_clock));
    }

    fn use_window(&self, state: &mut State, rank: Rank, (stream, comm): (usize, CommId), half: &Half) {
        let Some(nth) = half.window else { return };
        let now = LastUse::now(state.rank(rank).stream(stream).clock());
        state.rank_mut(rank).comm_mut(comm).windows_mut().use_by(nth, now);
    }

    /// Judges whether the halves of a transfer are halves of one.
    fn judge_halves(&self, state: &mut State, link: Link, sent: &Half, received: &Half) -> Halves {
        let ops = [sent.op, received.op];
        let past = |state: &State| state.rank(link.to).thread(received.op.thread.0).clock().past();
        // The data of a transfer of which the receiver alone was registered still lie in the slots of the pair, and the
        // next one found them (measured, `rules.contract.transfers` T3).
        if Transit::of(state.shared()).out_of_step.contains(&link) {
            Self::undefine(state, received.op);
            return Halves::Undefined;
        }
        if !sent.is_of_what(received) {
            let past = past(state);
            self.find(state, Rule::Coll2, link.about(), &ops, past, || {
                let told = |half: &Half| {
                    let what = match (half.part_of, half.direction) {
                        (Some(kind), _) => format!("a part of {}", kind.name()),
                        (None, Direction::Send) => "a send".to_owned(),
                        (None, Direction::Recv) => "a receive".to_owned(),
                    };
                    format!("{what} ({})", self.at(&half.op))
                };
                format!("on {} {} meets {}", self.about(link.about()), told(sent), told(received))
            });
            state.rank_mut(link.to).spoil();
        }
        if (sent.count, sent.dtype) != (received.count, received.dtype) {
            let past = past(state);
            self.find(state, Rule::P2p4, link.about(), &ops, past, || {
                format!(
                    "on {} {} {} are sent ({}) and {} {} received ({})",
                    self.about(link.about()),
                    sent.count,
                    sent.dtype.name(),
                    self.at(&ops[0]),
                    received.count,
                    received.dtype.name(),
                    self.at(&ops[1]),
                )
            });
            if sent.len_bytes() != received.len_bytes() {
                Self::undefine(state, received.op);
                return Halves::Undefined;
            }
        }
        if (sent.recorded == Recorded::No) != (received.recorded == Recorded::No) {
            let past = past(state);
            self.find(state, Rule::Graph5, link.about(), &ops, past, || {
                let told = |half: &Half, way: &str| {
                    let by = match half.recorded {
                        Recorded::By(graph) => format!("replayed from {}", self.name(graph)),
                        Recorded::No => "launched as such".to_owned(),
                    };
                    format!("the {way} is {by} ({})", self.at(&half.op))
                };
                format!(
                    "on {} {} and {}",
                    self.about(link.about()),
                    told(sent, "send"),
                    told(received, "receive")
                )
            });
            Self::undefine(state, received.op);
            return Halves::Undefined;
        }
        if sent.registered() == received.registered() {
            return Halves::Together;
        }
        let past = past(state);
        let on = |half: &Half, rank: Rank| match Self::lookup(state.rank(rank), link.comm, &half.buffer) {
            _ if half.registered() => "registered memory".to_owned(),
            Some(found) => format!("memory that runs past window #{}", found.window.nth()),
            None => "unregistered memory".to_owned(),
        };
        let (sends, receives) = (on(sent, link.from), on(received, link.to));
        self.find(state, Rule::P2p5, link.about(), &ops, past, || {
            format!(
                "on {} {sends} is sent ({}) and received into {receives} ({})",
                self.about(link.about()),
                self.at(&ops[0]),
                self.at(&ops[1]),
            )
        });
        if sent.registered() { Halves::Apart } else { Halves::Stale }
    }

    /// A half that runs now, with the launch that it belongs to.
    fn ran_half(&self, state: &State, rank: Rank, comm: CommId, half: &Half) -> Ran {
        let (stream, launch) = self.running(state, rank, comm).expect("it has begun");
        let stream = state.rank(rank).stream(stream);
        let called = stream.head().expect("it stands there").issue.clone();
        Ran { rank, issue: launch.issue, called, began: stream.clock().clone(), op: half.op }
    }

    fn note_transfer(&self, state: &mut State, link: Link, sent: Ran, received: &Half) {
        if link.from != link.to && self.keeps_runs(state) {
            let received = self.ran_half(state, link.to, link.comm, received);
            self.ran(state, link.comm, [sent, received].into());
        }
    }

    /// The launch that a rank is in begins, if it has not; gives what its receivers learn.
    fn begin(&self, state: &mut State, rank: Rank, comm: CommId) -> Clock {
        let order = state.rank(rank).launch_order(comm).expect("it was launched");
        if let Some(progress) = order.progress() {
            return progress.sent_clock.clone();
        }
        let (stream, launch) = self.running(state, rank, comm).expect("something can be transferred");
        let r = state.rank_mut(rank);
        let mut clock = r.stream(stream).clock().clone();
        let head = r.stream(stream).head().expect("it stands there");
        let mut begins = clock.clone();
        begins.tick();
        for half in &launch.transfers {
            let moment = Moment { op: half.op, replay: head.replay, lane: Lane::stream(rank, stream) };
            self.note(moment, &begins);
        }
        clock.join(&head.issue);
        let before = clock.clone();
        clock.tick();
        // Whoever receives knows that this send is over, and of its companions nothing.
        let sent_clock = if launch.transfers.len() == 1 { clock.clone() } else { before };
        *r.stream_mut(stream).clock_mut() = clock;
        let over = vec![false; launch.transfers.len()];
        let progress = Progress { over, sent_clock: sent_clock.clone(), received_clock: None };
        *state.rank_mut(rank).launch_order_mut(comm).progress_mut() = Some(Box::new(progress));
        sent_clock
    }

    /// A half is over; with the last of them the launch is.
    fn end_half(&self, state: &mut State, rank: Rank, comm: CommId, at: usize, sent_clock: Option<&Clock>) {
        let order = state.rank_mut(rank).launch_order_mut(comm);
        let progress = order.progress_mut().as_mut().expect("it has begun");
        progress.over[at] = true;
        if let Some(sent_clock) = sent_clock {
            match &mut progress.received_clock {
                Some(received_clock) => received_clock.join(sent_clock),
                None => progress.received_clock = Some(sent_clock.clone()),
            }
        }
        if !progress.over.iter().all(|over| *over) {
            return;
        }
        let received_clock = progress.received_clock.take();
        let (stream, _) = self.running(state, rank, comm).expect("it has begun");
        let r = state.rank_mut(rank);
        r.launch_order_mut(comm).is_over();
        if let Some(received_clock) = received_clock {
            r.stream_mut(stream).clock_mut().join(&received_clock);
        }
        r.completes_launch(comm, stream);
        r.stream_mut(stream).pop();
    }

    /// The launch that a rank is in never ends.
    fn hang(&self, state: &mut State, rank: Rank, comm: CommId) {
        let Some((stream, _)) = self.running(state, rank, comm) else { return };
        state.rank_mut(rank).stream_mut(stream).hang();
    }

    /// The halves of a launch that are not over.
    pub(crate) fn open_halves<'a>(
        &self,
        state: &State,
        rank: Rank,
        launch: &'a Transfers,
    ) -> impl Iterator<Item = &'a Half> + use<'a> {
        let r = state.rank(rank);
        let progress = r.launch_order(launch.comm).and_then(LaunchOrder::progress);
        let progress = progress.filter(|_| r.is_next(launch.comm, launch.sequence));
        let over =
            progress.map_or_else(|| vec![false; launch.transfers.len()], |progress| progress.over.clone());
        launch.transfers.iter().zip(over).filter(|(_, over)| !over).map(|(transfer, _)| transfer)
    }

    /// The first of them.
    pub(crate) fn open_half<'a>(&self, state: &State, rank: Rank, launch: &'a Transfers) -> &'a Half {
        self.open_halves(state, rank, launch).next().expect("a launch that is over leaves its streams")
    }

    /// The first call of a launch that is not over, in the spec's own names.
    pub(crate) fn transfers_name(&self, state: &State, rank: Rank, launch: &Transfers) -> String {
        self.transfer_name(launch.comm, self.open_half(state, rank, launch))
    }

    /// A call, in the spec's own names.
    pub(crate) fn transfer_name(&self, comm: CommId, half: &Half) -> String {
        let members = self.members(comm);
        let peer = members.iter().position(|member| *member == half.peer).unwrap_or_default();
        let (comm, buffer) = (self.comm_name(comm), self.buffer_name(&half.buffer));
        format!("{comm}.{}({buffer}, {peer})", half.direction.name())
    }
}

impl Cx<'_> {
    pub(crate) fn transfer(&mut self, call: &Transfer) {
        let (_m, _rank, op) = (self.m, self.rank, self.op);
        let Some((comm, transfer)) = self.given_transfer(call) else {
            self.discard_group((op, INVALID_ARGUMENT));
            self.done(&[]);
            return;
        };
        if self.refuse_stream((comm, call.stream), transfer.direction.name()) {
            self.done(&[]);
            return;
        }
        self.transfer_together((comm, call.stream), vec![transfer]);
    }

    /// Launches transfers of one call, which progress together: at once, or with the group that is open.
    pub(crate) fn transfer_together(&mut self, (comm, stream): (CommId, Token), halves: Vec<Half>) {
        let (m, rank) = (self.m, self.rank);
        let calls: Vec<Called> = halves.into_iter().map(|half| (comm, stream, Arc::new(half))).collect();
        if self.this().group().is_open() {
            let t = self.this_mut();
            let grouped = calls.into_iter();
            grouped.for_each(|(comm, stream, transfer)| {
                t.group_mut().add(GroupCall::Transfer { comm, stream, transfer });
            });
            self.done(&[]);
            return;
        }
        self.access(Object::named(ObjectKind::Stream, stream), Access::Write);
        if self.alone_with_itself(&calls) {
            self.done(&[]);
            return;
        }
        self.settle(&calls);
        if let Some((link, handshake)) = m.cold_link(self.state, rank, &calls) {
            self.arrive(Rendezvous::Link(link, handshake));
            return;
        }
        self.judge_collisions_of_call(&calls);
        self.launch_transfers((comm, stream), &calls);
        self.done(&[]);
    }

    fn given_transfer(&mut self, call: &Transfer) -> Option<(CommId, Half)> {
        let (m, rank, op) = (self.m, self.rank, self.op);
        let direction = call.direction.name();
        let Some(comm) = self.usable(&call.comm) else {
            self.fail(direction.to_owned(), INVALID_ARGUMENT);
            return None;
        };
        let called = || format!("{}.{direction}", m.comm_name_on(rank, comm));
        let members = m.members(comm);
        let Some(peer) = members.get(call.peer as usize).copied() else {
            let past = self.here().past();
            m.find(self.state, Rule::P2p1, About::Comm(comm), &[op], past, || {
                format!(
                    "rank {} calls {} with rank {} of {}, which has ranks 0 to {} ({})",
                    rank.0,
                    called(),
                    call.peer.cast_signed(),
                    m.comm_name(comm),
                    members.len() - 1,
                    m.at(&op)
                )
            });
            self.fail(called(), INVALID_ARGUMENT);
            return None;
        };
        if call.dtype == Dtype::Invalid {
            self.judge_argument(comm, &called(), UNKNOWN_DTYPE);
            self.fail(called(), INVALID_ARGUMENT);
            return None;
        }
        let Some(buffer) = self.given(&call.buffer, op) else {
            self.fail(called(), INVALID_ARGUMENT);
            return None;
        };
        let (count, dtype) = (call.count, call.dtype);
        let buffer = self.long_enough((buffer, count.saturating_mul(dtype.len_bytes())));
        Some((comm, Half::new((call.direction, peer), (buffer, count, dtype), op)))
    }

    /// A rank that sends to itself receives in the same group; else the call or the group returns an error
    /// (`enqueue.cc:1158-1167`).
    pub(crate) fn alone_with_itself(&mut self, calls: &[Called]) -> bool {
        let (m, rank) = (self.m, self.rank);
        let own = |direction: Direction| {
            calls.iter().filter(move |(_, _, t)| t.peer == rank && t.direction == direction)
        };
        let of =
            |comm: CommId, direction: Direction| own(direction).filter(|(other, ..)| *other == comm).count();
        let odd = own(Direction::Send)
            .chain(own(Direction::Recv))
            .find(|(comm, ..)| of(*comm, Direction::Send) != of(*comm, Direction::Recv));
        let Some((comm, _, transfer)) = odd else { return false };
        let (comm, op) = (*comm, transfer.op);
        let past = self.here().past();
        let name = format!("{}.{}", m.comm_name_on(rank, comm), transfer.direction.name());
        m.find(self.state, Rule::P2p1, About::Comm(comm), &[op], past, || {
            format!(
                "rank {} calls {name} with itself and the other half is not in the same group ({})",
                rank.0,
                m.at(&op)
            )
        });
        let grouped = self.this().group().is_open();
        let call = if grouped { "group_end".to_owned() } else { name };
        self.fail(call, INVALID_USAGE);
        true
    }

    /// Takes the values that were chosen for transfers that are launched.
    fn settle(&mut self, calls: &[Called]) {
        let (m, rank) = (self.m, self.rank);
        let given = self.this().chosen().to_vec();
        let mut nondet = NondetValues { given: &given };
        let holds_all =
            m.decide_in_flight(self.state, rank, calls, &mut nondet).expect("polled before it runs");
        let serialized =
            m.decide_serialized(self.state, rank, calls, &mut nondet).expect("polled before it runs");
        self.state.decide_transit(holds_all, serialized);
        if !given.is_empty() {
            // Decided for good: the launch may have to meet other ranks, and then comes here again.
            self.this_mut().forget_picks();
        }
    }

    /// Launches those of these transfers that are on one communicator; there may be none.
    pub(crate) fn launch_transfers(&mut self, (comm, stream): (CommId, Token), calls: &[Called]) {
        let (m, rank) = (self.m, self.rank);
        let small = m.config.platform.small_transfer_bytes();
        let mut transfers: Vec<Half> = Vec::new();
        for (_, _, transfer) in calls.iter().filter(|(of, ..)| *of == comm) {
            // What runs past its window is not registered (`include/register_inline.h`, `ncclRegFind`).
            let found = Machine::lookup(self.me(), comm, &transfer.buffer);
            let found = found
                .filter(|found| found.offset_bytes + transfer.len_bytes() <= found.window.buffer().len_bytes);
            let window = found.map(|found| found.window.nth()).filter(|_| transfer.len_bytes() > small);
            transfers.push(Half { window, ..Half::clone(transfer) });
            if m.config.in_flight == InFlight::OfPlatform && transfer.direction == Direction::Send {
                let link = transfer.link(comm, rank);
                self.me_mut().comm_mut(comm).links_mut().send(link, transfer.len_bytes());
            }
        }
        let Some(op) = transfers.first().map(|transfer| transfer.op) else { return };
        let parts = m.parted(self.state, comm, rank, transfers);
        let planned = if parts.len() == 1 { Planned::Whole } else { Planned::Part };
        for transfers in parts {
            let (family, issue) = (self.me().family(comm), Issue::default());
            let launch = Transfers { comm, family, sequence: 0, issue, transfers, planned };
            self.launch_part((launch, op), stream);
        }
    }

    /// Enqueues a launch as the work of this operation: that which stands for all of its group.
    fn launch_part(&mut self, (mut launch, op): (Transfers, OpRef), stream: Token) {
        let (m, rank) = (self.m, self.rank);
        // What is only recorded has no sequence number in the launch order.
        if let Some(graph) = m.records(self.state, rank, stream) {
            launch.transfers.iter_mut().for_each(|half| half.recorded = Recorded::By(graph));
        } else {
            (launch.sequence, launch.issue) = self.next_launch((launch.comm, op), LaunchedBy::Call);
            self.count_transfers(&launch);
        }
        self.enqueue(stream, Work::Transfers(Arc::new(launch)), op);
    }

    /// Counts transfers that are launched, and not only recorded.
    pub(crate) fn count_transfers(&mut self, launch: &Transfers) {
        if launch.transfers.iter().any(|half| half.direction == Direction::Send) {
            self.m.may_let_go.store(true, Ordering::Relaxed);
        }
        let halves = u32::try_from(launch.transfers.len()).expect("few transfers a launch");
        self.me_mut().executed_mut().transfers += halves;
    }
}

impl<'a> Here<'a> {
    /// Whether transfers that are launched together can be, or need a value.
    pub(crate) fn poll_together(self, calls: &[Called], nondet: &mut NondetValues<'_>) -> Poll {
        let Here { m, state, rank, .. } = self;
        let decided = m
            .decide_in_flight(state, rank, calls, nondet)
            .and_then(|_| m.decide_serialized(state, rank, calls, nondet));
        decided.err().unwrap_or(Poll::RUN)
    }

    /// Whether a transfer can be called: a single one may need a value, one of a group waits for the end.
    pub(crate) fn poll_transfer(self, call: &Transfer, nondet: &mut NondetValues<'_>) -> Poll {
        let Here { m, state, rank, .. } = self;
        if m.config.in_flight == InFlight::Nothing || self.this().group().is_open() {
            return Poll::RUN;
        }
        let (Value::Comm(comm), Value::Buffer(buffer)) =
            (Machine::value(state, rank, &call.comm), Machine::value(state, rank, &call.buffer))
        else {
            return Poll::RUN;
        };
        let Some(peer) = m.members(comm).get(call.peer as usize).copied() else { return Poll::RUN };
        let transfer = Half::new((call.direction, peer), (buffer, call.count, call.dtype), self.op_ref());
        self.poll_together(&[(comm, call.stream, Arc::new(transfer))], nondet)
    }
}
