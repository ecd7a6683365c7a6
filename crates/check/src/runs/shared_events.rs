//! Events that several ranks use, processes by a handle or devices of one process: which record each wait meets.
//!
//! An event stands for its last record. Within one process that is the last that was made before; of another
//! process the clock of the host says so, where the calls lie apart. Which record was met is part of what was recorded, as
//! a value that a program draws is; that it had to be that one nothing says.
//! Not here: events of one rank, and what waiting orders.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use rankcheck_recording::{Argument, CallEvent, Header, ProcessFile, ReadError, Shape, ShapeId};
use rustc_hash::{FxHashMap, FxHashSet};

use super::RunError;
use super::call::{Awaitable, CallKind, failure};
use super::device_share::DeviceShare;
use super::ipc::{HostTime, Span, handle_of};
use super::sequence::ReadUntil;
use super::world::World;

/// What a call has to do with an event that several ranks use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum SharedEventCall {
    /// It records the event; other ranks wait for this record by the name.
    Records(Option<Arc<str>>),
    /// It waits for a record of another rank, which has this name.
    Meets(Arc<str>),
    /// It waits for a record of its own rank.
    MeetsOwn,
    /// Nobody had recorded the event.
    MeetsNothing,
    /// Which record is meant is not known.
    NotKnown,
}

/// What calls have to do with events that several ranks use, by their numbers.
pub(super) type SharedEventCalls = FxHashMap<u64, SharedEventCall>;

/// Finds which record each wait meets, and tells the members of the world.
///
/// # Errors
///
/// If a file cannot be read again.
pub(super) fn follow(world: &mut World, headers: &[&Header], until: ReadUntil) -> Result<(), RunError> {
    let mut files: BTreeMap<&Path, Vec<usize>> = BTreeMap::new();
    for (at, member) in world.members.iter().enumerate() {
        let others = member.share.as_ref().is_some_and(DeviceShare::waits_for_any);
        if others || member.shared.events {
            files.entry(&member.path).or_default().push(at);
        }
    }
    if files.is_empty() {
        return Ok(());
    }
    let mut by_event: BTreeMap<EventId, Vec<EventCallAt>> = BTreeMap::new();
    let mut lacks = false;
    for (path, members) in &files {
        let mut listener = EventListener::default();
        listener.read(&mut until.open(path)?)?;
        lacks |= listener.lacks;
        let EventListener { calls, handles, .. } = listener;
        for (event, call) in calls {
            let of =
                |at: &&usize| world.members[**at].share.as_ref().is_none_or(|share| share.has(call.number));
            let Some(&member) = members.iter().find(of) else { continue };
            let id = match handles.get(&event) {
                Some(handle) => EventId::Handle(handle.clone()),
                None => EventId::Local(members[0], event),
            };
            by_event.entry(id).or_default().push(EventCallAt { member, ..call });
        }
    }
    for calls in by_event.into_values() {
        let members: FxHashSet<usize> = calls.iter().map(|call| call.member).collect();
        // Where calls are missing a record may be among them.
        if members.len() > 1 && !lacks {
            for (member, number, does) in (Matching { headers, world }).of(calls) {
                world.members[member].event_calls.insert(number, does);
            }
        }
    }
    Ok(())
}

/// What an event is called.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum EventId {
    /// Across processes, what its handle is called.
    Handle(Box<str>),
    /// In the process of this member, the event of this number.
    Local(usize, u32),
}

/// A call that records an event or waits for one.
#[derive(Debug, Clone, Copy)]
struct EventCallAt {
    member: usize,
    number: u64,
    at: Span,
    records: bool,
    /// Whether it is kept in a graph, which records or waits with every launch.
    captured: bool,
}

/// What the calls of one process do with events.
#[derive(Debug, Default)]
struct EventListener {
    /// By address: which event of the process lives there, from 0.
    living: FxHashMap<u64, u32>,
    events: u32,
    /// What events are called in other processes.
    handles: FxHashMap<u32, Box<str>>,
    calls: Vec<(u32, EventCallAt)>,
    /// By thread: calls that were entered, with their numbers and times.
    open: FxHashMap<u32, Vec<(ShapeId, u64, u64)>>,
    captures: u32,
    /// Whether calls are missing, or were made before the recording began.
    lacks: bool,
}

impl EventListener {
    fn read(&mut self, process: &mut ProcessFile) -> Result<(), ReadError> {
        let mut number = 0;
        while let Some(event) = process.next_event()? {
            match event {
                CallEvent::Enter { time, thread, call } => {
                    self.lacks |= CallKind::of(&process.shape(call).name) == CallKind::Exists;
                    if !process.shape(call).instant {
                        self.open.entry(thread).or_default().push((call, number, time));
                    }
                    number += 1;
                }
                CallEvent::Return { time, thread, values } => {
                    let Some((call, number, entered)) = self.open.entry(thread).or_default().pop() else {
                        continue;
                    };
                    let result = values.map(|values| process.shape(values));
                    if failure(result).is_none() {
                        let at = Span { entered, returned: time };
                        self.returned(number, at, process.shape(call), result);
                    }
                }
                CallEvent::Lost { .. } => self.lacks = true,
            }
        }
        Ok(())
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "few calls concern events")]
    fn returned(&mut self, number: u64, at: Span, call: &Shape, result: Option<&Shape>) {
        let given = call.get("event").and_then(Argument::number);
        match CallKind::of(&call.name) {
            CallKind::EventRecord => self.uses(given, (number, at), true),
            CallKind::StreamWaitEvent
            | CallKind::Synchronize(Awaitable::Event)
            | CallKind::Query(Awaitable::Event) => self.uses(given, (number, at), false),
            CallKind::EventExport => {
                if let (Some(event), Some(handle)) = (given, result.and_then(handle_of)) {
                    let event = self.event(event);
                    self.handles.insert(event, handle);
                }
            }
            CallKind::EventOpen => {
                let made = result.and_then(|result| result.get("event")).and_then(Argument::number);
                if let (Some(event), Some(handle)) = (made, handle_of(call)) {
                    self.living.remove(&event);
                    let event = self.event(event);
                    self.handles.insert(event, handle);
                }
            }
            CallKind::EventDestroy => _ = given.and_then(|event| self.living.remove(&event)),
            CallKind::BeginCapture => self.captures += 1,
            CallKind::EndCapture => self.captures = self.captures.saturating_sub(1),
            _ => {}
        }
    }

    fn event(&mut self, address: u64) -> u32 {
        *self.living.entry(address).or_insert_with(|| {
            self.events += 1;
            self.events - 1
        })
    }

    fn uses(&mut self, event: Option<u64>, (number, at): (u64, Span), records: bool) {
        let Some(event) = event else { return };
        let (event, captured) = (self.event(event), self.captures > 0);
        self.calls.push((event, EventCallAt { member: 0, number, at, records, captured }));
    }
}

struct Matching<'a> {
    /// Of the processes of the members.
    headers: &'a [&'a Header],
    world: &'a World,
}

impl Matching<'_> {
    fn host(&self, call: &EventCallAt) -> HostTime<'_> {
        HostTime { header: self.headers[call.member] }
    }

    fn same_process(&self, one: &EventCallAt, other: &EventCallAt) -> bool {
        self.world.members[one.member].path == self.world.members[other.member].path
    }

    /// Whether a call was over before another was entered.
    fn before(&self, one: &EventCallAt, other: &EventCallAt) -> bool {
        if self.same_process(one, other) {
            return one.number < other.number && one.at.returned <= other.at.entered;
        }
        self.host(one).before(one.at, (self.host(other), other.at))
    }

    /// What each of the calls on one event does: the member, the number of the call, and that.
    fn of(&self, calls: Vec<EventCallAt>) -> Vec<(usize, u64, SharedEventCall)> {
        let (mut records, waits): (Vec<EventCallAt>, Vec<EventCallAt>) =
            calls.into_iter().partition(|call| call.records);
        let entered = |call: &EventCallAt| self.host(call).time(call.at.entered);
        records.sort_by_key(|call| (entered(call), call.number));
        let mut names: Vec<Option<Arc<str>>> = vec![None; records.len()];
        let mut not_known = false;
        let mut found = Vec::new();
        for wait in waits {
            let does = match self.met(&records, &wait) {
                MetRecord::Nothing => SharedEventCall::MeetsNothing,
                MetRecord::Record(at) if records[at].member == wait.member => SharedEventCall::MeetsOwn,
                MetRecord::Record(at) => {
                    let record = &records[at];
                    let name = names[at].get_or_insert_with(|| {
                        format!(
                            "event recorded by call {} of rank {}",
                            record.number, self.world.members[record.member].rank.0
                        )
                        .into()
                    });
                    SharedEventCall::Meets(Arc::clone(name))
                }
                MetRecord::NotKnown => {
                    not_known = true;
                    SharedEventCall::NotKnown
                }
            };
            found.push((wait.member, wait.number, does));
        }
        let recorded = |(record, name): (&EventCallAt, _)| {
            (record.member, record.number, SharedEventCall::Records(name))
        };
        found.extend(records.iter().zip(names).map(recorded));
        if not_known {
            // Whoever is told of a record would wait for a name that nobody has.
            found.iter_mut().for_each(|(.., does)| *does = SharedEventCall::NotKnown);
        }
        found
    }

    /// The record that a wait meets.
    fn met(&self, records: &[EventCallAt], wait: &EventCallAt) -> MetRecord {
        let began = |call: &EventCallAt| self.host(call).time(call.at.entered);
        let ended = self.host(wait).time(wait.at.returned);
        // Records that begin later are told apart from those whose clocks may be wrong.
        let mut until =
            records.partition_point(|record| began(record) <= ended.saturating_add(HostTime::MARGIN_NS));
        while until > 0 && self.before(wait, &records[until - 1]) {
            until -= 1;
        }
        let Some(last) = until.checked_sub(1) else { return MetRecord::Nothing };
        let record = &records[last];
        // All that came before it has to have, for certain; those of one process are in their order.
        let others = records[..last].iter().rev().take(RECORDS_LOOKED_AT);
        let last_of_all = others.clone().all(|other| self.before(other, record));
        let certain = self.before(record, wait) && last_of_all && !record.captured && !wait.captured;
        if certain { MetRecord::Record(last) } else { MetRecord::NotKnown }
    }
}

/// Records that are further back than so many, in the order in which they began, are over.
const RECORDS_LOOKED_AT: usize = 64;

/// Which of the records of an event a wait meets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MetRecord {
    Nothing,
    /// The record that has this index.
    Record(usize),
    NotKnown,
}
