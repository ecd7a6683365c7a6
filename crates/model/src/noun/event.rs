//! Events of a rank: a point in a stream that others can wait for.
//! Not here: streams that wait for one ([`super::stream`]).

use std::sync::atomic::Ordering;

use crate::clock::Clock;
use crate::cx::{Cx, Here};
use crate::describe::{Describe, Description};
use crate::id::{ThreadStart, Token};
use crate::identity::{Counter, Identify, StateIdentity};
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

/// One of the records of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct NthRecord {
    pub(crate) event: Token,
    /// Its number among the records of the event, from 1; 0 before the first, for which nobody waits.
    pub(crate) nth: u32,
}

impl Identify for NthRecord {
    fn identify(&self, to: &mut StateIdentity<'_>) {
        let Self { event, nth } = self;
        event.identify(to);
        (*nth > 0).identify(to);
        if *nth > 0 {
            to.counted(Counter::Records(to.rank(), *event), *nth);
        }
    }
}

/// An event: how often it was recorded, and the clocks of complete records, as far as somebody may ask for them: the last
/// record, and earlier ones that a stream or a pool still waits for.
#[derive(Debug, Clone, Default)]
struct Event {
    generation: u32,
    complete: BTreeMap<u32, Clock>,
    /// How many wait for each record on streams and in pools, if any do.
    awaited: BTreeMap<u32, u32>,
    /// The last record, if it was captured: it stands in a graph, and the event for nothing that anybody can wait for.
    captured: Option<OpRef>,
    /// Where the last record was made that was not captured, by which thread, and after how many answers.
    recorded: Option<LastRecord>,
}

impl Event {
    /// Forgets the complete records that nobody asks for any more.
    fn forget(&mut self) {
        let Self { generation, complete, awaited, .. } = self;
        complete.retain(|nth, _| nth == generation || awaited.contains_key(nth));
    }
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
    // It follows from what waits.
    awaited: explains fixed,
    captured: (Option::is_some) moved,
    recorded: explains fixed,
});

impl Event {
    /// The last record, if all that it can do is to tell what it knows: it is complete, and nobody asks about it.
    fn only_tells(&self, event: Token, to: &StateIdentity<'_>) -> Option<&Clock> {
        let Self { generation, complete, awaited, captured, recorded: _ } = self;
        let matters = !awaited.is_empty()
            || captured.is_some()
            || to.remembered.recorded.contains(&event)
            || self.is_polled(to);
        complete.get(generation).filter(|_| !matters)
    }

    /// Whether somebody may look whether its last record is complete.
    fn is_polled(&self, to: &StateIdentity<'_>) -> bool {
        self.recorded.is_none_or(|LastRecord { loc, by, answers, .. }| {
            to.remembered.keeps_record(loc, to.answers_of(by).saturating_sub(answers))
        })
    }

    fn identify(&self, event: Token, to: &mut StateIdentity<'_>) {
        let Self { generation, complete, awaited: _, captured, recorded } = self;
        NthRecord { event, nth: *generation }.identify(to);
        captured.identify(to);
        complete.len().identify(to);
        for (nth, done) in complete {
            NthRecord { event, nth: *nth }.identify(to);
            done.identify(to);
        }
        recorded.map(|LastRecord { stream, .. }| stream).identify(to);
        if self.is_polled(to) {
            // Where it was recorded is where it is remembered.
            recorded.map(|LastRecord { loc, by, .. }| (loc, by)).identify(to);
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

walk!(apart struct Events { rows: hashed moved });

impl Identify for Events {
    fn identify(&self, to: &mut StateIdentity<'_>) {
        let Self { rows } = self;
        for (name, event) in rows.by_key() {
            to.unless_known(event.only_tells(*name, to), |to| {
                name.identify(to);
                event.identify(*name, to);
            });
        }
        u64::MAX.hash(to);
    }
}

impl RankState {
    /// How often an event was recorded.
    pub(crate) fn generation(&self, event: Token) -> u32 {
        Events::of(self).rows.get(&event).map_or(0, |event| event.generation)
    }

    /// The last record of an event.
    pub(crate) fn last_record(&self, event: Token) -> NthRecord {
        NthRecord { event, nth: self.generation(event) }
    }

    /// What is known since a record is complete, if it is: of the last one of an event, and of those that are awaited.
    pub(crate) fn complete(&self, NthRecord { event, nth }: NthRecord) -> Option<&Clock> {
        Events::of(self).rows.get(&event).and_then(|event| event.complete.get(&nth))
    }

    /// A stream or a pool waits for a record from now on.
    pub(crate) fn awaits(&mut self, NthRecord { event, nth }: NthRecord) {
        if nth > 0 {
            *event_mut(self, event).awaited.entry(nth).or_insert(0) += 1;
        }
    }

    /// One of those that waited for a record does no longer.
    pub(crate) fn has_awaited(&mut self, NthRecord { event, nth }: NthRecord) {
        if nth == 0 {
            return;
        }
        let event = event_mut(self, event);
        let waiting = event.awaited.get_mut(&nth).expect("it was awaited");
        *waiting -= 1;
        if *waiting == 0 {
            event.awaited.remove(&nth);
            event.forget();
        }
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
    pub(crate) fn completes(&mut self, NthRecord { event, nth }: NthRecord, clock: Clock) {
        let event = event_mut(self, event);
        event.complete.insert(nth, clock);
        event.forget();
    }

    /// An event has so many records now, made or to come.
    pub(crate) fn note_records(&mut self, event: Token, generation: u32) {
        let event = event_mut(self, event);
        event.generation = event.generation.max(generation);
        event.forget();
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
    pub(crate) fn records(&mut self, event: Token) -> NthRecord {
        let row = event_mut(self, event);
        row.captured = None;
        row.generation += 1;
        row.forget();
        NthRecord { event, nth: row.generation }
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
        let record = self.me_mut().records(event);
        event_mut(self.me_mut(), event).recorded = Some(recorded);
        self.enqueue(stream, Work::Record(record), op);
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
            .seen(self.me().last_record(event), &mut NondetValues { given: &given }, || Nondet::Poll(event))
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
        record: NthRecord,
        nondet: &mut NondetValues<'_>,
        of: impl FnOnce() -> Nondet,
    ) -> Result<Option<Clock>, Poll> {
        let (r, clock) = (self.me(), self.this().clock());
        if record.nth == 0 {
            self.m.ask_if_recorded(record.event);
            return Ok(Some(clock.clone()));
        }
        if let Some(LastRecord { loc, by, answers, .. }) = r.recorded(record.event) {
            let own = self.this().start() == by;
            self.m.poll_record(loc, if own { self.this().asked() - answers } else { u32::MAX });
        }
        let complete = r.complete(record);
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
