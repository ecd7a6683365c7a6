//! Events of a rank: a point in a stream that others can wait for.
//! Not here: streams that wait for one ([`super::stream`]).

use std::sync::atomic::Ordering;

use crate::clock::Clock;
use crate::cx::{Cx, Here};
use crate::describe::{Describe, Description};
use crate::id::{ThreadStart, Token};
use crate::identity::{Identify, StateIdentity};
use crate::judge::finding::{About, OpRef, Rule};
use crate::machine::{Kind, Mode};
use crate::noun::graph::{CAPTURED_EVENT, INVALID_VALUE};
use crate::noun::pool::Plan;
use crate::noun::stream::Work;
use crate::op::{Show, Verb};
use crate::order::dependence::{Access, Object, ObjectKind};
use crate::order::poll::{Nondet, NondetValues, Poll};
use crate::program::Answer;
use crate::rank::LocId;
use crate::state::{RankState, Table};
use crate::walk::{Rows, walk};
use std::collections::BTreeMap;
use std::hash::Hash;

/// `cudaEventRecord`: the event completes with the work that is on the stream so far.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct EventOp {
    /// Name of the event, among those of this rank.
    pub event: Token,
    /// The stream whose work so far completes the event.
    pub stream: Token,
}

/// An event: how often it was recorded, and the clocks of the records that are complete.
#[derive(Debug, Clone, Default)]
struct Event {
    generation: u32,
    complete: BTreeMap<u32, Clock>,
    /// The last record, if it was captured: it stands in a graph, and the event for nothing that anybody can wait for.
    captured: Option<OpRef>,
    /// Where the last record was made that was not captured, by which thread, and after how many answers.
    recorded: Option<LastRecord>,
}

/// Where and when an event was recorded, as the thread counts that did it.
#[derive(Debug, Clone, Copy)]
struct LastRecord {
    loc: LocId,
    stream: Token,
    by: ThreadStart,
    answers: u32,
}

walk!(apart struct Event {
    generation: hashed fixed,
    complete: hashed moved,
    captured: (Option::is_some) moved,
    recorded: explains fixed,
});

impl Identify for Event {
    fn identify(&self, to: &mut StateIdentity<'_>) {
        let Self { generation, complete, captured, recorded } = self;
        generation.identify(to);
        captured.identify(to);
        complete.identify(to);
        recorded.map(|LastRecord { loc, stream: _, by, answers: _ }| (loc, by)).identify(to);
        let polled = recorded.is_none_or(|LastRecord { loc, by, answers, .. }| {
            to.remembered.keeps_record(loc, to.answers_of(by).saturating_sub(answers))
        });
        if polled {
            for done in complete.values() {
                let known = to.is_known_here(done.actor(), done.epoch());
                to.asked_about(done.actor(), if known { 0 } else { done.epoch() });
            }
        }
    }
}

/// The events of a rank.
#[derive(Debug, Clone, Default)]
pub(crate) struct Events {
    rows: Rows<Token, Event>,
}

walk!(struct Events { rows: hashed moved });

impl RankState {
    /// How often an event was recorded.
    pub(crate) fn generation(&self, event: Token) -> u32 {
        Events::of(self).rows.get(&event).map_or(0, |event| event.generation)
    }

    /// What is known since a record of an event is complete, if it is.
    pub(crate) fn complete(&self, event: Token, generation: u32) -> Option<&Clock> {
        Events::of(self).rows.get(&event).and_then(|event| event.complete.get(&generation))
    }

    /// When an event was recorded last, if a thread of the rank did it.
    fn recorded(&self, event: Token) -> Option<LastRecord> {
        Events::of(self).rows.get(&event).and_then(|event| event.recorded)
    }

    /// The stream on which an event was last recorded, if it was.
    pub(crate) fn recorded_on(&self, event: Token) -> Option<Token> {
        self.recorded(event).map(|record| record.stream)
    }

    /// A record of an event is complete.
    pub(crate) fn completes(&mut self, event: Token, generation: u32, clock: Clock) {
        event_mut(self, event).complete.insert(generation, clock);
    }

    /// An event has so many records now, made or to come.
    pub(crate) fn note_records(&mut self, event: Token, generation: u32) {
        let event = event_mut(self, event);
        event.generation = event.generation.max(generation);
    }

    /// The last record of an event, if it was captured.
    pub(crate) fn captured_record(&self, event: Token) -> Option<OpRef> {
        Events::of(self).rows.get(&event).and_then(|event| event.captured)
    }

    /// The last record of an event was captured.
    pub(crate) fn captures_record(&mut self, event: Token, op: OpRef) {
        event_mut(self, event).captured = Some(op);
    }

    /// One more record of an event is to come.
    pub(crate) fn records(&mut self, event: Token) -> u32 {
        let event = event_mut(self, event);
        event.captured = None;
        event.generation += 1;
        event.generation
    }
}

fn event_mut(rank: &mut RankState, event: Token) -> &mut Event {
    Events::of_mut(rank).rows.get_or_insert_with(&event, Event::default)
}

impl Describe for EventOp {
    fn describe(&self, to: &mut Description<'_>) {
        let Self { event, stream } = self;
        to.call("EventRecord", &[("event", event), ("stream", stream)]);
    }
}

impl Verb for EventOp {
    fn slots(&self) -> u32 {
        0
    }

    fn kind(&self) -> Kind {
        Kind::OwnDevice
    }

    fn stream(&self) -> Option<Token> {
        Some(self.stream)
    }

    fn display(&self, show: &Show<'_>) -> String {
        let name = |token: &Token| show.name(*token);
        let Self { event, stream } = self;
        format!("{}.record({})", name(event), name(stream))
    }

    fn footprint(&self, _: Here<'_>, each: &mut dyn FnMut(Object, Access)) {
        each(Object::named(ObjectKind::Event, self.event), Access::Write);
    }

    fn apply(&self, cx: &mut Cx<'_>, _: Plan) {
        cx.event_record(self.event, self.stream);
    }
}

impl Cx<'_> {
    fn event_record(&mut self, event: Token, stream: Token) {
        let (m, rank, op) = (self.m, self.rank, self.op);
        self.access(Object::named(ObjectKind::Stream, stream), Access::Write);
        self.access(Object::named(ObjectKind::Event, event), Access::Write);
        if m.record_captured(self.state, rank, (event, stream), op) {
            self.done(&[]);
            return;
        }
        let this = self.this();
        let recorded = LastRecord { loc: op.loc, stream, by: this.start(), answers: this.asked() };
        let nth = self.me_mut().records(event);
        event_mut(self.me_mut(), event).recorded = Some(recorded);
        self.enqueue(stream, Work::Record(event, nth), op);
        self.done(&[]);
    }

    /// An event whose last record was captured stands for nothing once the capture has ended, also where its graph is
    /// replayed: a call about it fails and orders nothing. Returns whether it is such an event.
    pub(crate) fn judge_captured_event(
        &mut self,
        event: Token,
        does: &str,
        call: impl FnOnce() -> String,
    ) -> bool {
        let (m, rank, op) = (self.m, self.rank, self.op);
        if self.here().capture_of(event).is_some() {
            return false;
        }
        let Some(record) = self.me().captured_record(event) else { return false };
        let past = self.here().past();
        m.find(self.state, Rule::Graph7, About::Of(rank, event), &[op, record], past, || {
            format!(
                "rank {} {does} {} ({}), whose last record was captured ({}): the call fails and orders nothing",
                rank.0,
                m.name(event),
                m.at(&op),
                m.at(&record),
            )
        });
        self.fail(call(), INVALID_VALUE);
        true
    }

    pub(crate) fn event_query(&mut self, event: Token) {
        let m = self.m;
        self.access(Object::named(ObjectKind::Event, event), Access::Read);
        self.access(Object::CAPTURE, Access::Read);
        let call = || format!("{}.query", m.name(event));
        if self.judge_captured_event(event, "asks about", call) {
            self.answer(0, &[]);
            return;
        }
        let capturing = self.here().capture_of(event).map(|graph| (graph, CAPTURED_EVENT));
        if let Some((graph, code)) = capturing.or_else(|| self.here().refused_by_mode()) {
            let call = call();
            let op = self.here().op_ref();
            self.refuse_in_capture((graph, &call), op);
            self.fail(call, code);
            self.answer(0, &[]);
            return;
        }
        let given = self.this().chosen().to_vec();
        let seen = self
            .here()
            .seen(event, u32::MAX, &mut NondetValues { given: &given }, || Nondet::Poll(event))
            .expect("polled before it runs");
        if let Some(done) = &seen {
            self.this_mut().clock_mut().join(done);
        }
        self.answer(Answer::from(seen.is_some()), &[]);
    }
}

impl<'a> Here<'a> {
    /// A poll: "not yet" unless the completion is ordered before it already, or "done", which in the reduced
    /// semantics waits for it. Returns what was seen and, if complete, since when.
    pub(crate) fn seen(
        self,
        event: Token,
        nth: u32,
        nondet: &mut NondetValues<'_>,
        of: impl FnOnce() -> Nondet,
    ) -> Result<Option<Clock>, Poll> {
        let (r, clock) = (self.me(), self.this().clock());
        let nth = nth.min(r.generation(event));
        if nth == 0 {
            return Ok(Some(clock.clone()));
        }
        if let Some(LastRecord { loc, by, answers, .. }) = r.recorded(event) {
            let own = self.this().start() == by;
            self.m.poll_record(loc, if own { self.this().asked() - answers } else { u32::MAX });
        }
        let complete = r.complete(event, nth);
        let ordered = complete.is_some_and(|done| clock.after(done.actor(), done.epoch()));
        if !ordered {
            self.m.polled.store(true, Ordering::Relaxed);
        }
        let options = match (ordered, complete.is_some(), self.m.config.mode) {
            (true, ..) => 1..=1,
            (false, false, Mode::Naive) => 0..=0,
            (false, true, Mode::Naive) | (false, _, Mode::Reduced) => 0..=1,
        };
        match (nondet.take(of, options)?, complete) {
            (0, _) => Ok(None),
            (_, Some(done)) => Ok(Some(done.clone())),
            (_, None) => Err(Poll::Wait),
        }
    }
}
