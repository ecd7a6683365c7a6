//! Streams and events: queues whose heads run, and the order that records and waits make.
//! Not here: collectives at the head of a stream ([`crate::noun::collective`]).
#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "an operand of another kind is as good as null, and verbs are dispatched by noun"
)]

use crate::cx::{Cx, Here};
use crate::describe::{Describe, Description};
use crate::judge::deadlock::Awaits;
use crate::machine::Kind;
use crate::noun::pool::Plan;
use crate::op::{Show, Verb};
use std::sync::Arc;

use crate::clock::Clock;
use crate::host::value::{Buffer, Value};
use crate::machine::{Machine, Mode, locked};
use crate::order::dependence::{Access, Object, ObjectKind};
use crate::order::poll::{PickOf, Picks, Poll};
use crate::program::{Answer, Operand};
use crate::rank::{Rank, Token};
use crate::state::{Event, Expectation, Kernel, Queued, RankState, State, Stream, Work, find, whole};
use crate::term::{Content, TermNode};

/// What can be done with streams.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum StreamOp {
    /// A kernel of the user that reads and writes buffers.
    Kernel {
        /// Its name; what it writes is a term of this name over what it read.
        name: Token,
        /// Buffers it reads.
        reads: Arc<[Operand]>,
        /// Buffers it writes.
        writes: Arc<[Operand]>,
        /// Stream it is launched on.
        stream: Token,
    },
    /// `cudaStreamWaitEvent`.
    Wait {
        /// The stream.
        stream: Token,
        /// The event.
        event: Token,
    },
    /// `cudaStreamSynchronize`, `cudaEventSynchronize` or `cudaDeviceSynchronize`, by operand.
    Synchronize {
        /// A stream, an event or the device.
        what: Operand,
    },
}

impl Describe for StreamOp {
    fn describe(&self, to: &mut Description<'_>) {
        match self {
            Self::Kernel { name, reads, writes, stream } => {
                to.call("Kernel", &[("name", name), ("reads", reads), ("writes", writes), ("stream", stream)])
            }
            Self::Wait { stream, event } => to.call("StreamWait", &[("stream", stream), ("event", event)]),
            Self::Synchronize { what } => to.call("Synchronize", &[("what", what)]),
        }
    }
}

impl Verb for StreamOp {
    fn slots(&self) -> u32 {
        0
    }

    fn kind(&self) -> Kind {
        Kind::InRole
    }

    fn stream(&self) -> Option<Token> {
        match self {
            Self::Kernel { stream, .. } | Self::Wait { stream, .. } => Some(*stream),
            Self::Synchronize { .. } => None,
        }
    }

    fn buffers(&self) -> Vec<&Operand> {
        match self {
            Self::Kernel { reads, writes, .. } => reads.iter().chain(writes.iter()).collect(),
            Self::Wait { .. } | Self::Synchronize { .. } => Vec::new(),
        }
    }

    fn display(&self, show: &Show<'_>) -> String {
        let name = |token: &Token| show.name(*token);
        let of = |operand: &Operand| show.operand(operand);
        match self {
            Self::Kernel { name: kernel, .. } => format!("kernel {}", name(kernel)),
            Self::Wait { stream, event } => format!("{}.wait({})", name(stream), name(event)),
            Self::Synchronize { what } => format!("{}.synchronize", of(what)),
        }
    }

    fn unsafe_in_capture(&self) -> bool {
        match self {
            Self::Synchronize { .. } => true,
            Self::Kernel { .. } | Self::Wait { .. } => false,
        }
    }

    fn refused_by(&self, here: Here<'_>) -> Option<(usize, i32)> {
        match self {
            Self::Synchronize { what } => here.refuses_wait(what),
            Self::Kernel { .. } | Self::Wait { .. } => None,
        }
    }

    fn recorded(&self, here: Here<'_>) -> bool {
        match self {
            Self::Kernel { stream, .. } => here.records_on(*stream),
            // The event may pull its stream into a capture.
            Self::Wait { .. } => true,
            Self::Synchronize { .. } => false,
        }
    }

    fn footprint(&self, here: Here<'_>, each: &mut dyn FnMut(Object, Access)) {
        match self {
            Self::Kernel { .. } => {}
            Self::Wait { event, .. } => each(Object::named(ObjectKind::Event, *event), Access::Read),
            Self::Synchronize { what } => match Machine::value(here.state, here.rank, what) {
                Value::Stream(stream) => each(Object::named(ObjectKind::Stream, stream), Access::Read),
                Value::Event(event) => each(Object::named(ObjectKind::Event, event), Access::Read),
                Value::Device => each(Object::DEVICE, Access::Write),
                _ => {}
            },
        }
    }

    fn ready(&self, here: Here<'_>, _: &mut Picks<'_>) -> Poll {
        match self {
            Self::Synchronize { what } => Poll::once(here.m.drained(here.state, here.rank, what)),
            Self::Kernel { .. } | Self::Wait { .. } => Poll::RUN,
        }
    }

    fn waits_for_device(&self) -> bool {
        match self {
            Self::Synchronize { .. } => true,
            Self::Kernel { .. } | Self::Wait { .. } => false,
        }
    }

    fn waits_for(&self, here: Here<'_>) -> Awaits {
        match self {
            Self::Synchronize { what } => match Machine::value(here.state, here.rank, what) {
                Value::Stream(stream) => Awaits::Stream(stream),
                Value::Event(event) => Awaits::Record(event),
                _ => Awaits::Streams,
            },
            Self::Kernel { .. } | Self::Wait { .. } => Awaits::Nobody,
        }
    }

    fn apply(&self, cx: &mut Cx<'_>, _: Plan) {
        match self {
            Self::Kernel { name, reads, writes, stream } => cx.kernel(*name, (reads, writes), *stream),
            Self::Wait { stream, event } => cx.stream_wait(*stream, *event),
            Self::Synchronize { what } => cx.synchronize(what),
        }
    }
}

impl Work {
    /// What it reads or writes.
    pub(crate) fn buffers(&self) -> Vec<&Buffer> {
        match self {
            Self::Kernel(kernel) => {
                kernel.reads.iter().chain(&kernel.writes).map(|buffer| &**buffer).collect()
            }
            Self::Copy { to, from } => vec![to, from],
            Self::Expect(expectation) => vec![&expectation.buffer],
            Self::Collective(launch) => vec![&launch.send, &launch.recv],
            Self::Transfers(launch) => launch.transfers.iter().map(|transfer| &*transfer.buffer).collect(),
            Self::Flag(..) | Self::Record(..) | Self::Wait(..) | Self::Fresh(_) => Vec::new(),
        }
    }
}

fn event_mut(rank: &mut RankState, event: Token) -> &mut Event {
    let at = find(&rank.events, &event).unwrap_or_else(|| {
        rank.events.push((event, Event::default()));
        rank.events.len() - 1
    });
    &mut rank.events[at].1
}

fn event_of(rank: &RankState, event: Token) -> Option<&Event> {
    find(&rank.events, &event).map(|at| &rank.events[at].1)
}

impl Machine {
    /// How often an event was recorded.
    pub(crate) fn recorded(&self, state: &State, rank: Rank, event: Token) -> u32 {
        event_of(state.rank(rank), event).map_or(0, |event| event.recorded)
    }

    /// An event has so many records now, made or to come.
    pub(crate) fn note_record(&self, state: &mut State, rank: Rank, event: Token, nth: u32) {
        let event = event_mut(state.rank_mut(rank), event);
        event.recorded = event.recorded.max(nth);
    }

    pub(crate) fn enqueue(&self, state: &mut State, rank: Rank, stream: Token, op: Queued) {
        self.cx(state, rank, op.issuer().thread.0).access(Object::DEVICE, Access::Read);
        let Some(op) = self.record_or(state, rank, stream, op) else { return };
        let r = state.rank(rank);
        let at = find(&r.streams, &stream);
        if let Some(at) = at {
            state.rank_mut(rank).streams[at].1.queue.push_back(op);
            return;
        }
        if !self.fits(r.threads.len(), r.streams.len() + 1) {
            return;
        }
        let nth = u32::try_from(r.streams.len()).expect("few streams a rank");
        let clock = self.nothing.child(self.stream_actor(rank, nth));
        let queue = std::collections::VecDeque::from([op]);
        state.rank_mut(rank).streams.push((stream, Stream { queue, hung: false, clock }));
    }

    /// Whether what a synchronize waits for is over.
    pub(crate) fn drained(&self, state: &State, rank: Rank, what: &Operand) -> bool {
        let r = state.rank(rank);
        match Self::value(state, rank, what) {
            Value::Stream(stream) => {
                find(&r.streams, &stream).is_none_or(|at| r.streams[at].1.queue.is_empty())
            }
            Value::Event(event) => event_of(r, event)
                .is_none_or(|event| event.recorded == 0 || event.complete.contains_key(&event.recorded)),
            _ => r.streams.iter().all(|(_, stream)| stream.queue.is_empty()),
        }
    }

    /// Whether the head of a stream can run; collectives of several ranks are looked at elsewhere.
    pub(crate) fn head_ready(&self, state: &State, rank: Rank, stream: usize) -> bool {
        let r = state.rank(rank);
        match r.streams[stream].1.queue.front().map(|op| &op.work) {
            None | Some(Work::Collective(_) | Work::Transfers(_)) => false,
            Some(
                Work::Kernel(_) | Work::Copy { .. } | Work::Expect(_) | Work::Record(..) | Work::Fresh(_),
            ) => true,
            Some(Work::Flag(flag, act)) => Self::flag_allows(state, *flag, *act),
            Some(Work::Wait(event, nth)) => {
                *nth == 0 || event_of(r, *event).is_some_and(|event| event.complete.contains_key(nth))
            }
        }
    }

    /// Runs the head of a stream that [`Machine::head_ready`] said can run.
    pub(crate) fn run_head(&self, state: &mut State, rank: Rank, stream: usize) {
        state.steps += 1;
        let r = state.rank_mut(rank);
        let head = r.streams[stream].1.queue.pop_front().expect("a ready stream has a head");
        let clock = &mut r.streams[stream].1.clock;
        if let (Work::Fresh(buffer), None) = (&head.work, head.replay) {
            let mut now = clock.clone();
            now.join(&head.issue);
            self.fresh_behind(state, rank, buffer, &now);
            return;
        }
        clock.tick();
        clock.join(&head.issue);
        match head.work {
            // A graph may run on a stream that nothing orders after earlier users of the block.
            Work::Fresh(buffer) => {
                self.access_memory(state, rank, stream, &buffer, Access::Write, head.op);
                self.fresh_contents(state, rank, &buffer);
            }
            Work::Kernel(kernel) => {
                let Kernel { name, reads, writes } = &*kernel;
                for buffer in reads {
                    self.access_memory(state, rank, stream, buffer, Access::Read, head.op);
                }
                let inputs: Vec<Content> =
                    reads.iter().map(|buffer| self.held_in(state, rank, buffer)).collect();
                let term = {
                    let mut terms = locked(&self.terms);
                    let inputs = inputs.iter().map(|content| whole(&mut terms, content)).collect();
                    terms.intern(TermNode::Kernel(*name, rank, inputs))
                };
                for buffer in writes {
                    self.fill(state, rank, buffer, Content::Whole(term));
                    self.access_memory(state, rank, stream, buffer, Access::Write, head.op);
                }
            }
            Work::Copy { to, from } => {
                self.access_memory(state, rank, stream, &from, Access::Read, head.op);
                let content = self.held_in(state, rank, &from);
                self.fill(state, rank, &to, content);
                self.access_memory(state, rank, stream, &to, Access::Write, head.op);
            }
            Work::Expect(expectation) => {
                self.access_memory(state, rank, stream, &expectation.buffer, Access::Read, head.op);
                self.judge_expectation(state, rank, &expectation, (head.op, head.issue.past()));
            }
            Work::Flag(flag, act) => {
                let mut clock = r.streams[stream].1.clock.clone();
                self.act(state, (flag, act), &mut clock, head.op);
                state.rank_mut(rank).streams[stream].1.clock = clock;
            }
            Work::Record(event, nth) => {
                let clock = r.streams[stream].1.clock.clone();
                event_mut(r, event).complete.insert(nth, clock);
            }
            Work::Wait(event, nth) => {
                if let Some(done) = event_of(r, event).and_then(|event| event.complete.get(&nth)).cloned() {
                    r.streams[stream].1.clock.join(&done);
                }
            }
            Work::Collective(_) | Work::Transfers(_) => {
                unreachable!("what communicates runs on several ranks")
            }
        }
    }
}

impl Cx<'_> {
    #[expect(clippy::too_many_arguments, reason = "the operands of a launch")]
    pub(crate) fn kernel(&mut self, name: Token, (reads, writes): (&[Operand], &[Operand]), stream: Token) {
        let op = self.op;
        let mut buffers = |operands: &[Operand]| -> Option<Vec<Arc<Buffer>>> {
            operands.iter().map(|operand| self.given(operand, op)).collect()
        };
        if let (Some(reads), Some(writes)) = (buffers(reads), buffers(writes)) {
            self.launch(stream, Work::Kernel(Arc::new(Kernel { name, reads, writes })));
        }
        self.done(&[]);
    }

    pub(crate) fn copy(&mut self, (to, from): (&Operand, &Operand), stream: Token) {
        let op = self.op;
        let given = (self.given(to, op), self.given(from, op));
        if let (Some(to), Some(from)) = given {
            let to = self.long_enough((to, from.len_bytes));
            self.launch(stream, Work::Copy { to, from });
        }
        self.done(&[]);
    }

    pub(crate) fn expect(&mut self, (buffer, kernel, by): (&Operand, Token, Rank), stream: Token) {
        let op = self.op;
        if let Some(buffer) = self.given(buffer, op) {
            let work = Work::Expect(Arc::new(Expectation { buffer, kernel, by }));
            self.launch(stream, work);
        }
        self.done(&[]);
    }

    fn launch(&mut self, stream: Token, work: Work) {
        let (m, rank, op) = (self.m, self.rank, self.op);
        self.access(Object::named(ObjectKind::Stream, stream), Access::Write);
        let issue = self.this().clock.clone();
        m.enqueue(self.state, rank, stream, Queued { work, issue, op, replay: None });
    }

    pub(crate) fn event_record(&mut self, event: Token, stream: Token) {
        let (m, rank, thread, op) = (self.m, self.rank, self.thread, self.op);
        self.access(Object::named(ObjectKind::Stream, stream), Access::Write);
        self.access(Object::named(ObjectKind::Event, event), Access::Write);
        if m.record_captured(self.state, rank, (event, stream), op) {
            self.done(&[]);
            return;
        }
        let r = self.me_mut();
        let record = event_mut(r, event);
        record.recorded += 1;
        let work = Work::Record(event, record.recorded);
        let issue = r.threads[thread as usize].clock.clone();
        m.enqueue(self.state, rank, stream, Queued { work, issue, op, replay: None });
        self.done(&[]);
    }

    pub(crate) fn stream_wait(&mut self, stream: Token, event: Token) {
        let (m, rank, op) = (self.m, self.rank, self.op);
        self.access(Object::named(ObjectKind::Stream, stream), Access::Write);
        self.access(Object::named(ObjectKind::Event, event), Access::Read);
        if self.wait_captured((stream, event)) {
            self.done(&[]);
            return;
        }
        // The most recent record at the time of the call; before any, the wait does nothing.
        let recorded = event_of(self.me(), event).map_or(0, |event| event.recorded);
        let issue = self.this().clock.clone();
        m.enqueue(
            self.state,
            rank,
            stream,
            Queued { work: Work::Wait(event, recorded), issue, op, replay: None },
        );
        self.done(&[]);
    }

    pub(crate) fn synchronize(&mut self, what: &Operand) {
        let rank = self.rank;
        let value = Machine::value(self.state, rank, what);
        let clocks: Vec<Clock> = {
            let r = self.me();
            match value {
                Value::Stream(stream) => {
                    find(&r.streams, &stream).map(|at| r.streams[at].1.clock.clone()).into_iter().collect()
                }
                Value::Event(event) => event_of(r, event)
                    .and_then(|event| event.complete.get(&event.recorded).cloned())
                    .into_iter()
                    .collect(),
                _ => r.streams.iter().map(|(_, stream)| stream.clock.clone()).collect(),
            }
        };
        match value {
            Value::Stream(stream) => {
                self.access(Object::named(ObjectKind::Stream, stream), Access::Read);
            }
            Value::Event(event) => {
                self.access(Object::named(ObjectKind::Event, event), Access::Read);
            }
            _ => self.access(Object::DEVICE, Access::Write),
        }
        for clock in clocks {
            self.this_mut().clock.join(&clock);
        }
        self.done(&[]);
    }

    pub(crate) fn event_query(&mut self, event: Token) {
        let m = self.m;
        self.access(Object::named(ObjectKind::Event, event), Access::Read);
        self.access(Object::CAPTURE, Access::Read);
        if let Some(graph) = self.here().forbidden_query() {
            let call = format!("{}.query", m.name(event));
            let op = self.here().op_ref();
            self.refuse_in_capture((graph, &call), op);
            self.fail(call, crate::noun::graph::UNSUPPORTED);
            self.answer(0, &[]);
            return;
        }
        let given = self.this().picks.clone();
        let seen = self
            .here()
            .seen(event, u32::MAX, &mut Picks { given: &given }, || PickOf::Poll(event))
            .expect("polled before it runs");
        if let Some(done) = &seen {
            self.this_mut().clock.join(done);
        }
        self.answer(Answer::from(seen.is_some()), &[]);
    }
}

impl<'a> Here<'a> {
    /// A poll: "not yet" unless the completion is ordered before it already, or "done", which in the reduced
    /// semantics waits for it. Returns what was seen and, if complete, since when.
    #[expect(clippy::too_many_arguments, reason = "shared by queries and deferred frees")]
    pub(crate) fn seen(
        self,
        event: Token,
        nth: u32,
        picks: &mut Picks<'_>,
        of: impl FnOnce() -> PickOf,
    ) -> Result<Option<Clock>, Poll> {
        let Here { m, thread, .. } = self;
        let r = self.me();
        let clock = &r.threads[thread as usize].clock;
        let Some(event) = event_of(r, event) else { return Ok(Some(clock.clone())) };
        let nth = nth.min(event.recorded);
        if nth == 0 {
            return Ok(Some(clock.clone()));
        }
        let complete = event.complete.get(&nth);
        let ordered = complete.is_some_and(|done| clock.after(done.actor(), done.epoch()));
        let options = match (ordered, complete.is_some(), m.config.mode) {
            (true, ..) => 1..=1,
            (false, false, Mode::Naive) => 0..=0,
            (false, true, Mode::Naive) | (false, _, Mode::Reduced) => 0..=1,
        };
        match (picks.take(of, options)?, complete) {
            (0, _) => Ok(None),
            (_, Some(done)) => Ok(Some(done.clone())),
            (_, None) => Err(Poll::Wait),
        }
    }
}
