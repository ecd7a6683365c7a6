//! Streams, events and copies of one process.
//!
//! The legacy default stream and streams that were not made non-blocking wait for each other at every launch:
//! those waits are written as records and waits of an event. Not here: what waits mean, and graphs (`graphs.rs`).

use std::sync::Arc;

use rankcheck_model::{EventOp, Op, Operand, StreamOp, Token};
use rankcheck_recording::{Argument, Shape, ShapeId};
use rustc_hash::{FxHashMap, FxHashSet};

use super::call::{number, one};
use super::graphs::{KnownGraph, OpenCapture};
use super::{Lowered, Lowering, Origin, awaits, tells};
use crate::runs::call::{Awaitable, CopyReturns, Unjudged};
use crate::runs::fold::CallRole;
use crate::runs::shared_events::SharedEventCall;
use crate::runs::vendor;
use crate::runs::waits::MayWait;
use crate::runs::world::RunCommId;
use crate::spec::builder::SourceNames;

/// `cudaStreamNonBlocking`: the flag of a stream that does not wait for the legacy default stream.
const NON_BLOCKING: u64 = 1;
/// What a function of the host is known by is no address of an event.
const HOST_FUNCTION: u64 = 1 << 63;
/// `cudaEventRecordExternal`: a capture keeps the record as a node of its graph.
const EXTERNAL: u64 = 1;

/// Whether a launch waits for more than what stands before it on its stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Implicit {
    Yes,
    No,
}

/// Which record a wait meets, as far as it is followed.
enum EventMet {
    /// The last of its own rank.
    Own,
    /// None, or one that is not known.
    Nothing,
    /// The one of this name.
    OfAnother(Arc<str>),
}

/// Who made an event that processes share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SharedBy {
    Me,
    Another,
}

/// The handles of a process.
#[derive(Debug)]
pub(super) struct DeviceHandles {
    default: Token,
    streams: FxHashMap<u64, Token>,
    /// The host thread whose calls are read.
    pub(super) thread: u32,
    /// The default streams of host threads.
    of_threads: FxHashMap<u32, Token>,
    /// Whether launches wait for others now that did not before.
    pub(super) order_changed: bool,
    used: FxHashSet<Token>,
    made: u32,
    /// Streams that the default stream waits for, and that wait for it.
    blocking: Vec<Token>,
    /// How much was launched on each stream.
    launches: FxHashMap<Token, u32>,
    /// Up to which launch of the other stream each stream has waited for it without a call that says so.
    waited: FxHashMap<(Token, Token), u32>,
    events: FxHashMap<u64, Token>,
    events_made: u32,
    /// Events that other processes know as well, by who made them.
    shared: FxHashMap<u64, SharedBy>,
    /// Captures by the stream that began them, then by the graph and by what can be launched.
    pub(super) capturing: FxHashMap<u64, OpenCapture>,
    pub(super) graphs: FxHashMap<u64, KnownGraph>,
    pub(super) executables: FxHashMap<u64, KnownGraph>,
    /// Captured graphs of more than kernels of which nothing is known.
    pub(super) touching: FxHashSet<Token>,
    /// The communicators of the collectives of a graph.
    pub(super) collectives: FxHashMap<Token, Vec<RunCommId>>,
    /// Captured graphs that call functions of the host.
    pub(super) calling_back: FxHashSet<Token>,
    graphs_made: u32,
    /// Whether streams may have been made before the recording began: how is not known, so each is taken to wait for the
    /// default stream.
    in_the_middle: bool,
}

impl DeviceHandles {
    pub(super) fn new(names: &SourceNames) -> Self {
        Self {
            default: names.token("default"),
            streams: FxHashMap::default(),
            thread: 0,
            of_threads: FxHashMap::default(),
            order_changed: false,
            used: FxHashSet::default(),
            made: 0,
            blocking: Vec::new(),
            launches: FxHashMap::default(),
            waited: FxHashMap::default(),
            events: FxHashMap::default(),
            events_made: 0,
            shared: FxHashMap::default(),
            capturing: FxHashMap::default(),
            graphs: FxHashMap::default(),
            executables: FxHashMap::default(),
            touching: FxHashSet::default(),
            collectives: FxHashMap::default(),
            calling_back: FxHashSet::default(),
            graphs_made: 0,
            in_the_middle: false,
        }
    }

    /// How many streams something was launched on.
    pub(super) fn used(&self) -> usize {
        self.used.len()
    }

    pub(super) fn stream(&mut self, address: u64, names: &SourceNames) -> Token {
        if vendor::LEGACY_STREAM.contains(&address) {
            return self.default;
        }
        if address == vendor::PER_THREAD_STREAM {
            return *self.of_threads.entry(self.thread).or_insert_with(|| {
                self.made += 1;
                let token = names.token(&format!("stream {}", self.made));
                self.blocking.push(token);
                self.order_changed = true;
                token
            });
        }
        if let Some(stream) = self.streams.get(&address) {
            return *stream;
        }
        self.made += 1;
        let stream = names.token(&format!("stream {}", self.made));
        self.streams.insert(address, stream);
        if self.in_the_middle {
            self.blocking.push(stream);
        }
        stream
    }

    /// Whether something is captured.
    pub(super) fn captures(&self) -> bool {
        !self.capturing.is_empty()
    }

    /// The recording begins in the middle of a run.
    pub(super) fn begins_in_the_middle(&mut self) {
        self.in_the_middle = true;
    }

    /// The event at an address; numbers up to `others` are those of others.
    fn event(&mut self, address: u64, others: u32, names: &SourceNames) -> Token {
        *self.events.entry(address).or_insert_with(|| {
            self.events_made += 1;
            event_token(others + self.events_made, names)
        })
    }

    pub(super) fn captured(&mut self, names: &SourceNames) -> Token {
        self.graphs_made += 1;
        names.token(&format!("graph {}", self.graphs_made))
    }
}

fn event_token(number: u32, names: &SourceNames) -> Token {
    names.token(&format!("event {number}"))
}

impl Lowering<'_> {
    /// Something is launched on a stream: what it has to wait for although no call says so.
    pub(super) fn ordered(&mut self, stream: Token, origin: Origin) -> Implicit {
        let device = &mut self.device;
        device.used.insert(stream);
        if device.blocking.is_empty() {
            return Implicit::No;
        }
        let legacy = stream == device.default;
        if !legacy && !device.blocking.contains(&stream) {
            return Implicit::No;
        }
        let others = if legacy { device.blocking.clone() } else { vec![device.default] };
        let behind = |other: &Token| {
            let launched = device.launches.get(other).copied().unwrap_or(0);
            let waited = device.waited.entry((stream, *other)).or_default();
            std::mem::replace(waited, launched) < launched
        };
        let others: Vec<Token> = others.into_iter().filter(behind).collect();
        *device.launches.entry(stream).or_default() += 1;
        let event = self.names.token("the order of the default stream");
        for other in others {
            self.write(Lowered::of(Op::Event(EventOp { event, stream: other }), origin));
            self.write(Lowered::of(Op::Stream(StreamOp::Wait { stream, event }), origin));
        }
        Implicit::Yes
    }

    pub(super) fn stream_created(&mut self, call: &Shape, address: Option<u64>) -> Vec<Lowered> {
        if let Some(address) = address {
            self.cache.clear();
            self.device.streams.remove(&address);
            let token = self.device.stream(address, self.names);
            let waits = number(call, "flags") & NON_BLOCKING == 0;
            self.device.blocking.retain(|other| *other != token);
            if waits {
                self.device.blocking.push(token);
            }
        }
        Vec::new()
    }

    /// The address of a stream may come back; what it holds still runs.
    pub(super) fn stream_destroyed(&mut self, call: &Shape) -> Vec<Lowered> {
        self.cache.clear();
        if let Some(gone) = self.device.streams.remove(&number(call, "stream")) {
            self.device.blocking.retain(|token| *token != gone);
        }
        Vec::new()
    }

    /// The host waits, or asked and found that it is done.
    pub(super) fn synchronize(&mut self, what: Awaitable, call: &Shape, origin: Origin) -> Vec<Lowered> {
        if what == Awaitable::Event {
            match self.event_met(call, origin) {
                EventMet::Own => {}
                EventMet::Nothing => return Vec::new(),
                EventMet::OfAnother(record) => return self.meets(&record, None, origin),
            }
        }
        let what = match what {
            Awaitable::Stream => Operand::Stream(self.device.stream(number(call, "stream"), self.names)),
            Awaitable::Event => Operand::Event(self.event_of(call, origin)),
            Awaitable::Device => Operand::Device,
        };
        one(Op::Stream(StreamOp::Synchronize { what }), origin)
    }

    /// A call of which nothing is judged but that a graph has a node for it, if it is launched while something is
    /// captured: what a capture has to stand behind when it ends.
    pub(super) fn captured_node(&mut self, call: &Shape, origin: Origin) -> Vec<Lowered> {
        let stream = call.get("stream").and_then(Argument::number);
        let Some(stream) = stream.filter(|_| !self.device.capturing.is_empty()) else { return Vec::new() };
        let stream = self.device.stream(stream, self.names);
        let (name, reads, writes) = (self.names.token(&call.name), [].into(), [].into());
        one(Op::Stream(StreamOp::Kernel { name, reads, writes, stream }), origin)
    }

    /// What a stream did before it calls a function of the host is over when that runs: it is waited for like an event.
    /// In a graph it runs with every launch, and which launch that was is not known.
    pub(super) fn host_function(&mut self, shape: ShapeId, call: &Shape, origin: Origin) -> Vec<Lowered> {
        let function = call.get("function").and_then(Argument::number);
        let Some(function) = function.filter(|_| self.device.capturing.is_empty()) else {
            self.program.waits.may_wait(MayWait::HostFunction, self.ops.len());
            let capturing = self.device.capturing.values().map(|capture| capture.graph);
            self.device.calling_back.extend(capturing);
            return self.captured_node(call, origin);
        };
        let event = self.event_at(function ^ HOST_FUNCTION);
        let stream = self.device.stream(number(call, "stream"), self.names);
        self.launched(shape, Op::Event(EventOp { event, stream }), stream, origin)
    }

    pub(super) fn host_function_runs(&mut self, call: &Shape, origin: Origin) -> Vec<Lowered> {
        let event = self.device.events.get(&(number(call, "function") ^ HOST_FUNCTION));
        let what = event.map(|event| Operand::Event(*event));
        what.map_or_else(Vec::new, |what| one(Op::Stream(StreamOp::Synchronize { what }), origin))
    }

    pub(super) fn event_recorded(&mut self, shape: ShapeId, call: &Shape, origin: Origin) -> Vec<Lowered> {
        if number(call, "flags") & EXTERNAL != 0 {
            // It is a node, and each launch of the graph records the event anew.
            self.unjudged(Unjudged::Word, &call.name);
            return self.captured_node(call, origin);
        }
        let shared = self.shared_event(origin);
        let known = matches!(shared, Some(SharedEventCall::Records(_)));
        if !known && self.device.shared.get(&number(call, "event")) == Some(&SharedBy::Another) {
            return self.unjudged(Unjudged::SharedEvent, &call.name);
        }
        let event = self.event_of(call, origin);
        let stream = self.device.stream(number(call, "stream"), self.names);
        let op = Op::Event(EventOp { event, stream });
        if let Some(SharedEventCall::Records(name)) = shared {
            let mut items = self.in_order(op, stream, origin);
            let flag = name.map(|name| self.names.token(&name));
            items.extend(flag.map(|flag| tells(flag, Some(stream), origin)));
            return items;
        }
        match self.left.roles.of(origin.number) {
            Some(_) => self.in_order(op, stream, origin),
            None => self.launched(shape, op, stream, origin),
        }
    }

    /// The event that a call records, or waits for: by which record that is, where that is known.
    fn event_of(&mut self, call: &Shape, origin: Origin) -> Token {
        match self.left.roles.of(origin.number) {
            Some(CallRole::Event(number)) => event_token(number, self.names),
            Some(CallRole::Nothing | CallRole::Ordered) | None => self.event_at(number(call, "event")),
        }
    }

    /// The event at an address.
    pub(super) fn event_at(&mut self, address: u64) -> Token {
        let others = self.left.roles.events;
        self.device.event(address, others, self.names)
    }

    pub(super) fn stream_waits(&mut self, shape: ShapeId, call: &Shape, origin: Origin) -> Vec<Lowered> {
        let stream = self.device.stream(number(call, "stream"), self.names);
        match self.event_met(call, origin) {
            EventMet::Own => {}
            EventMet::Nothing => return Vec::new(),
            EventMet::OfAnother(record) => {
                self.ordered(stream, origin);
                return self.meets(&record, Some(stream), origin);
            }
        }
        let event = self.event_of(call, origin);
        let op = Op::Stream(StreamOp::Wait { stream, event });
        let by_record = self.shared_event(origin).is_some() || self.left.roles.of(origin.number).is_some();
        match by_record || self.device.shared.contains_key(&number(call, "event")) {
            // Every wait counts.
            true => self.in_order(op, stream, origin),
            false => self.launched(shape, op, stream, origin),
        }
    }

    /// What a call has to do with an event that other ranks use too, as far as that is known.
    fn shared_event(&self, origin: Origin) -> Option<SharedEventCall> {
        self.member.event_calls.get(&u64::from(origin.number)).cloned()
    }

    /// Which record a call waits for.
    fn event_met(&mut self, call: &Shape, origin: Origin) -> EventMet {
        match self.shared_event(origin) {
            Some(SharedEventCall::Meets(record)) => EventMet::OfAnother(record),
            Some(SharedEventCall::MeetsNothing) => EventMet::Nothing,
            Some(SharedEventCall::MeetsOwn) => EventMet::Own,
            Some(SharedEventCall::Records(_) | SharedEventCall::NotKnown) | None => {
                match self.waits_for_others(call) {
                    SharedBy::Me => EventMet::Own,
                    SharedBy::Another => EventMet::Nothing,
                }
            }
        }
    }

    /// A stream, or else the host, waits for a record of another rank.
    fn meets(&mut self, record: &str, stream: Option<Token>, origin: Origin) -> Vec<Lowered> {
        let way = if self.member.share.is_some() { MayWait::OtherDevice } else { MayWait::SharedEvent };
        vec![awaits(self.names.token(record), stream, way, origin)]
    }

    /// An event is known to other processes from now on.
    pub(super) fn event_shared(&mut self, event: Option<u64>, by: SharedBy) -> Vec<Lowered> {
        self.cache.clear();
        if let Some(event) = event {
            self.device.shared.insert(event, by);
        }
        Vec::new()
    }

    /// Whose event a call waits for. Of one that processes share it is not known which record that was, and what the other
    /// process had waited for by then: so this process may have waited for anything through it.
    fn waits_for_others(&mut self, call: &Shape) -> SharedBy {
        let shared = self.device.shared.get(&number(call, "event")).copied();
        if shared.is_some() {
            self.program.waits.may_wait(MayWait::SharedEvent, self.ops.len());
        }
        shared.unwrap_or(SharedBy::Me)
    }

    /// The address of an event may come back.
    pub(super) fn event_destroyed(&mut self, call: &Shape) -> Vec<Lowered> {
        self.cache.clear();
        self.device.events.remove(&number(call, "event"));
        self.device.shared.remove(&number(call, "event"));
        Vec::new()
    }

    /// Copies and fills touch what is known as device memory; of the host nothing is known.
    pub(super) fn copy(
        &mut self,
        returns: CopyReturns,
        shape: ShapeId,
        call: &Shape,
        origin: Origin,
    ) -> Vec<Lowered> {
        let stream = self.device.stream(number(call, "stream"), self.names);
        let (reads, writes) = self.touched(call, origin);
        let name = self
            .names
            .token(call.name.trim_start_matches("cuda").trim_start_matches("cu").trim_end_matches("Async"));
        let mut items = Vec::new();
        if !reads.is_empty() || !writes.is_empty() {
            items = self.launched(
                shape,
                Op::Stream(StreamOp::Kernel { name, reads, writes, stream }),
                stream,
                origin,
            );
        }
        if items.is_empty() && returns == CopyReturns::AtOnce {
            items = self.captured_node(call, origin);
        }
        if returns == CopyReturns::WhenDone {
            self.cache.remove(&shape);
            let what = Operand::Stream(stream);
            items.push(Lowered::of(Op::Stream(StreamOp::Synchronize { what }), origin));
        }
        items
    }
}
