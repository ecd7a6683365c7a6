//! Streams and events: queues whose heads run, and the order that records and waits make.
//! Not here: collectives at the head of a stream ([`crate::noun::collective`]).
#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "an operand of another kind is as good as null, and verbs are dispatched by noun"
)]

mod own;
mod table;
mod work;

use crate::cx::{Cx, Here};
use crate::describe::{Describe, Description};
use crate::judge::deadlock::Awaits;
use crate::machine::Kind;
use crate::noun::pool::Plan;
use crate::op::{Show, Verb};
use std::sync::Arc;

pub(crate) use self::own::OwnName;
pub(crate) use self::table::{Stream, StreamQueues};
pub(crate) use self::work::{Kernel, Queued, Work};
use crate::clock::Clock;
use crate::history::{Lane, Moment};
use crate::host::value::{Buffer, Owner, Value};
use crate::id::Token;
use crate::judge::finding::{About, OpRef, Rule};
use crate::machine::{Machine, locked};
use crate::noun::ipc::INVALID_VALUE;
use crate::noun::memory::overlap;
use crate::order::dependence::{Access, Object, ObjectKind};
use crate::order::poll::{NondetValues, Poll};
use crate::program::Operand;
use crate::rank::Rank;
use crate::state::State;
use crate::term::{Content, TermNode};

/// Operations on streams: kernels of the user, waits of a stream, and waits of the host.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum StreamOp {
    /// A kernel of the user that reads and writes buffers.
    Kernel {
        /// Its name; what it writes is a term of this name over what it read.
        name: Token,
        /// Buffers whose contents it reads.
        reads: Arc<[Operand]>,
        /// Buffers whose contents it replaces by a function of what it reads.
        writes: Arc<[Operand]>,
        /// Stream it is launched on.
        stream: Token,
    },
    /// `cudaStreamWaitEvent`: orders later work of a stream after an event.
    Wait {
        /// The stream that waits; the host does not.
        stream: Token,
        /// The event whose last record so far is awaited.
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
        Kind::OwnDevice
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
            Self::Wait { event, .. } => {
                each(Object::named(ObjectKind::Event, *event), Access::Read);
                if here.me().captured_record(*event).is_some() {
                    each(Object::CAPTURE, Access::Read);
                }
            }
            Self::Synchronize { what } => match Machine::value(here.state, here.rank, what) {
                Value::Stream(stream) => each(Object::named(ObjectKind::Stream, stream), Access::Read),
                Value::Event(event) => each(Object::named(ObjectKind::Event, event), Access::Read),
                Value::Device => each(Object::DEVICE, Access::Write),
                _ => {}
            },
        }
    }

    fn ready(&self, here: Here<'_>, _: &mut NondetValues<'_>) -> Poll {
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

impl Machine {
    pub(crate) fn enqueue(&self, state: &mut State, rank: Rank, stream: Token, op: Queued) {
        if state.rank(rank).threads().len() > 1 {
            self.cx(state, rank, op.issuer().thread.0).access(Object::DEVICE, Access::Read);
        }
        let Some(op) = self.record_or(state, rank, stream, op) else { return };
        let r = state.rank(rank);
        let at = r.stream_named(stream);
        if at.is_none() && !self.fits(r.threads().len(), r.streams().len() + 1) {
            return;
        }
        let r = state.rank_mut(rank);
        if let Work::Wait(record) = op.work {
            r.awaits(record);
        }
        match at {
            Some(at) => r.stream_mut(at).push(op),
            None => {
                let nth = u32::try_from(r.streams().len()).expect("few streams a rank");
                let clock = self.nothing.child(self.stream_actor(rank, nth));
                r.add_stream(stream, Stream::new(clock, op));
            }
        }
    }

    /// Whether what a synchronize waits for is over.
    pub(crate) fn drained(&self, state: &State, rank: Rank, what: &Operand) -> bool {
        let r = state.rank(rank);
        match Self::value(state, rank, what) {
            Value::Stream(stream) => r.stream_named(stream).is_none_or(|at| r.stream(at).is_empty()),
            Value::Event(event) => {
                r.captured_record(event).is_some()
                    || r.generation(event) == 0
                    || r.complete(r.last_record(event)).is_some()
            }
            _ => r.streams().iter().all(|(_, stream)| stream.is_empty()),
        }
    }

    /// Whether the head of a stream can run; collectives of several ranks are looked at elsewhere.
    pub(crate) fn head_ready(&self, state: &State, rank: Rank, stream: usize) -> bool {
        let r = state.rank(rank);
        match r.stream(stream).work() {
            None | Some(Work::Collective(_) | Work::Transfers(_)) => false,
            Some(
                Work::Kernel(_)
                | Work::Copy { .. }
                | Work::Expect(_)
                | Work::Record(..)
                | Work::Fresh(_)
                | Work::GiveBack(_),
            ) => true,
            Some(Work::Flag(flag, act)) => Self::flag_allows(state, *flag, *act),
            Some(Work::Wait(record)) => record.nth == 0 || r.complete(*record).is_some(),
        }
    }

    /// Runs the head of a stream that [`Machine::head_ready`] said can run.
    pub(crate) fn run_head(&self, state: &mut State, rank: Rank, stream: usize) {
        self.note_memory(state);
        state.steps += 1;
        let r = state.rank_mut(rank);
        let head = r.stream_mut(stream).pop().expect("a ready stream has a head");
        if let Work::GiveBack(block) = &head.work {
            self.judge_given_back(state, rank, Some(stream), &head);
            if let Owner::Program(_) = block.memory.owner {
                state.rank_mut(rank).stream_mut(stream).clock_mut().tick();
                self.freed_on(state, rank, stream, (block, &head));
            }
            return;
        }
        let clock = r.stream_mut(stream).clock_mut();
        if let (Work::Fresh(buffer), None) = (&head.work, head.replay) {
            let mut now = clock.clone();
            now.join(&head.issue);
            self.fresh_behind(state, rank, buffer, &now);
            return;
        }
        clock.tick();
        self.note(Moment { op: head.op, replay: head.replay, lane: Lane::stream(rank, stream) }, clock);
        clock.join(&head.issue);
        match head.work {
            // A graph may run on a stream that nothing orders after earlier users of the block.
            Work::Fresh(buffer) => self.hand_out_again(state, rank, stream, (&buffer, head.op)),
            Work::Kernel(kernel) => {
                let Kernel { name, reads, writes } = &*kernel;
                for buffer in reads {
                    self.access_memory(state, rank, stream, buffer, Access::Read, head.op);
                }
                let inputs: Vec<Content> =
                    reads.iter().map(|buffer| self.held_in(state, rank, buffer)).collect();
                let term = {
                    let mut terms = locked(&self.terms);
                    let inputs = inputs.iter().map(|content| terms.whole(content)).collect();
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
                self.judge_expectation(state, rank, &expectation, (head.op, &head.issue));
            }
            Work::Flag(flag, act) => {
                let mut clock = r.stream(stream).clock().clone();
                self.act(state, (flag, act), &mut clock, head.op);
                *state.rank_mut(rank).stream_mut(stream).clock_mut() = clock;
            }
            Work::Record(record) => {
                let clock = r.stream(stream).clock().clone();
                r.completes(record, clock);
            }
            Work::Wait(record) => {
                if let Some(done) = r.complete(record).cloned() {
                    r.stream_mut(stream).clock_mut().join(&done);
                }
                r.has_awaited(record);
            }
            Work::GiveBack(_) => unreachable!("judged above"),
            Work::Collective(_) | Work::Transfers(_) => {
                unreachable!("what communicates runs on several ranks")
            }
        }
    }
}

impl Cx<'_> {
    pub(crate) fn kernel(&mut self, name: Token, (reads, writes): (&[Operand], &[Operand]), stream: Token) {
        let op = self.op;
        let mut buffers = |operands: &[Operand]| -> Option<Vec<Arc<Buffer>>> {
            operands.iter().map(|operand| self.given(operand, op)).collect()
        };
        if let (Some(reads), Some(writes)) = (buffers(reads), buffers(writes)) {
            self.launch(stream, Work::Kernel(Arc::new(Kernel { name, reads, writes })));
        } else {
            // A kernel that uses address 0 ends in an error of the whole device, which some later call returns.
            Machine::undefine(self.state, op);
        }
        self.done(&[]);
    }

    pub(crate) fn copy(&mut self, (to, from): (&Operand, &Operand), stream: Token, verb: &dyn Verb) {
        let op = self.op;
        let given = (self.given(to, op), self.given(from, op));
        if let (Some(to), Some(from)) = given {
            let to = self.long_enough((to, from.len_bytes));
            self.judge_overlapping_copy(&to, &from);
            self.launch(stream, Work::Copy { to, from });
        } else {
            self.fail(verb.call_name(self.here()), INVALID_VALUE);
        }
        self.done(&[]);
    }

    /// What a copy reads and what it writes may not overlap (CUDA documentation, `cudaMemcpyAsync`). Copied to where it is,
    /// everything stays as it is.
    fn judge_overlapping_copy(&mut self, to: &Buffer, from: &Buffer) {
        let (m, rank, op) = (self.m, self.rank, self.op);
        let range = |buffer: &Buffer| (buffer.offset_bytes, buffer.len_bytes);
        let same = to.memory == from.memory && to.home(rank) == from.home(rank);
        if !same || range(to) == range(from) || !overlap(range(to), range(from)) {
            return;
        }
        let past = self.here().past();
        m.find(self.state, Rule::Mem2, About::Memory(rank, to.memory), &[op], past, || {
            format!(
                "rank {} copies {} to bytes that overlap it ({}): what is still to be read may be written first",
                rank.0,
                m.buffer_name(from),
                m.at(&op)
            )
        });
        Machine::undefine(self.state, op);
    }

    pub(crate) fn launch(&mut self, stream: Token, work: Work) {
        self.access(Object::named(ObjectKind::Stream, stream), Access::Write);
        self.enqueue(stream, work, self.op);
    }

    /// Puts work at the end of a stream, as that of a call that knows what the thread knows now.
    pub(crate) fn enqueue(&mut self, stream: Token, work: Work, op: OpRef) {
        let issue = self.this().clock().clone();
        self.m.enqueue(self.state, self.rank, stream, Queued { work, issue, op, replay: None });
    }

    pub(crate) fn stream_wait(&mut self, stream: Token, event: Token) {
        self.access(Object::named(ObjectKind::Stream, stream), Access::Write);
        self.access(Object::named(ObjectKind::Event, event), Access::Read);
        if self.wait_captured((stream, event)) {
            self.done(&[]);
            return;
        }
        // The most recent record at the time of the call; before any, the wait does nothing.
        let recorded = self.me().last_record(event);
        self.enqueue(stream, Work::Wait(recorded), self.op);
        self.done(&[]);
    }

    pub(crate) fn synchronize(&mut self, what: &Operand) {
        let rank = self.rank;
        let value = Machine::value(self.state, rank, what);
        if let Value::Event(event) = value {
            self.access(Object::named(ObjectKind::Event, event), Access::Read);
            let call = || format!("{}.synchronize", self.m.name(event));
            if self.judge_captured_event(event, "waits for", call) {
                self.done(&[]);
                return;
            }
        }
        let clocks: Vec<Clock> = {
            let r = self.me();
            match value {
                Value::Stream(stream) => {
                    r.stream_named(stream).map(|at| r.stream(at).clock().clone()).into_iter().collect()
                }
                Value::Event(event) => r.complete(r.last_record(event)).cloned().into_iter().collect(),
                _ => r.streams().iter().map(|(_, stream)| stream.clock().clone()).collect(),
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
            self.this_mut().clock_mut().join(&clock);
        }
        self.done(&[]);
    }
}
