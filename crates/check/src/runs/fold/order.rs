//! What the calls of one process have to do with one another: which record of an event a wait meets, and which accesses to
//! memory the process's own waits do not order.
//!
//! An event stands for its last record, and memory is handed out anew in every iteration: addresses say who meets whom, and
//! nothing else. So a wait is named by the record that it meets, and an access that comes after every earlier one of the same
//! bytes, by streams, events and waits of the host alone, is like any other access. Of all ways of ordering only those are
//! followed that the model follows too; what is not seen to be ordered here keeps its addresses, and is left to the model.
//! Not here: what repeats ([`super::walk`]), and what races are.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rankcheck_model::{CollectiveKind, Counting, Rank};
use rankcheck_recording::varint::{self, Varints};
use rankcheck_recording::{Argument, Shape};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::runs::call::{Allocator, Awaitable, CallKind, CopyReturns, failure};
use crate::runs::lower::TouchedBytes;
use crate::runs::sequence::{Sequence, Symbol, SymbolId};
use crate::runs::vendor;
use crate::runs::world::{RankProcess, World};

/// The flag of a record that a capture keeps as a node.
const EXTERNAL: u64 = 1;

/// What a call has to do with an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EventUse {
    /// It records one: which record of the process it is.
    Records(u32),
    /// It waits for one: the record that it meets.
    Meets(u32),
    /// It asks for one without waiting, and found it done: the record that it meets.
    Polls(u32),
}

impl EventUse {
    /// The record that it makes or meets.
    pub(super) fn record(self) -> u32 {
        let (Self::Records(record) | Self::Meets(record) | Self::Polls(record)) = self;
        record
    }
}

/// A call that has to do with an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct EventCall {
    /// Its position in the sequence.
    pub(super) at: u32,
    pub(super) does: EventUse,
    /// Which event of the process it names, from 1 in the order in which they were used first.
    pub(super) event: u32,
}

/// Calls that have to do with events, in some three bytes each: half of the calls of real training are such.
#[derive(Debug, Default)]
pub(super) struct EventCalls {
    /// Of each call: how far its position is from that of the one before, and in the last two bits what it does; how many records
    /// before the next one it meets, if it makes none; the number of its event.
    written: Vec<u8>,
    last: EventCallsPosition,
}

/// What a call is written in relation to.
#[derive(Debug, Clone, Copy, Default)]
struct EventCallsPosition {
    at: u32,
    /// How many records were made.
    records: u32,
}

const RECORDS: u64 = 0;
const MEETS: u64 = 1;
const POLLS: u64 = 2;

impl EventCalls {
    /// A call returns, behind all that did so far. One that records makes the next record.
    fn push(&mut self, EventCall { at, does, event }: EventCall) {
        let (kind, met) = match does {
            EventUse::Records(_) => (RECORDS, None),
            EventUse::Meets(record) => (MEETS, Some(record)),
            EventUse::Polls(record) => (POLLS, Some(record)),
        };
        let moved = varint::of_signed(i64::from(at) - i64::from(self.last.at));
        varint::put(&mut self.written, moved << 2 | kind);
        match met {
            Some(record) => varint::put(&mut self.written, (self.last.records - record).into()),
            None => self.last.records += 1,
        }
        varint::put(&mut self.written, event.into());
        self.last.at = at;
    }

    /// In the order in which the calls returned.
    pub(super) fn iter(&self) -> impl Iterator<Item = EventCall> {
        let mut written = Varints::new(&self.written);
        let mut last = EventCallsPosition::default();
        std::iter::from_fn(move || {
            let call = written.number()?;
            let at = i64::from(last.at) + varint::to_signed(call >> 2);
            last.at = u32::try_from(at).ok()?;
            let record = match call & 3 {
                RECORDS => last.records,
                _ => last.records.checked_sub(u32::try_from(written.number()?).ok()?)?,
            };
            let does = match call & 3 {
                RECORDS => {
                    last.records += 1;
                    EventUse::Records(record)
                }
                MEETS => EventUse::Meets(record),
                _ => EventUse::Polls(record),
            };
            Some(EventCall { at: last.at, does, event: u32::try_from(written.number()?).ok()? })
        })
    }
}

/// What is known of a record: on which stream it is, times two, and one more if it is kept.
#[derive(Debug, Clone, Copy)]
pub(super) struct KnownRecord(u32);

impl KnownRecord {
    fn new(stream: usize, kept: bool) -> Self {
        let stream = u32::try_from(stream).ok().and_then(|stream| stream.checked_mul(2));
        Self(stream.expect("fewer than 2^31 streams") + u32::from(kept))
    }

    /// On which stream it is.
    pub(super) fn stream(self) -> u32 {
        self.0 / 2
    }

    /// Whether its handle means more than its last record, so that it is left as it is.
    pub(super) fn kept(self) -> bool {
        self.0 % 2 == 1
    }

    fn keep(&mut self) {
        self.0 |= 1;
    }
}

/// A call that touches memory.
#[derive(Debug, Clone, Copy)]
pub(super) struct Touch {
    /// Its position in the sequence.
    pub(super) at: u32,
    /// Whether every access is ordered behind those before it.
    pub(super) ordered: bool,
}

/// The events of a process.
#[derive(Debug, Default)]
pub(super) struct EventHistory {
    pub(super) records: Vec<KnownRecord>,
    pub(super) calls: EventCalls,
    /// How many events the process names.
    pub(super) named: u32,
}

impl EventHistory {
    /// What is known of the record that a call makes or meets.
    pub(super) fn record(&self, call: &EventCall) -> KnownRecord {
        self.records[call.does.record() as usize]
    }
}

/// What the calls of a process have to do with one another.
#[derive(Debug, Default)]
pub(super) struct Relations {
    pub(super) events: EventHistory,
    /// Calls that touch memory.
    pub(super) touches: Vec<Touch>,
    /// By symbol: how far what it writes lies behind what it reads, if that is the same memory.
    pub(super) in_place: Vec<Option<u64>>,
    /// Accesses that nothing orders: the earlier and the later call.
    pub(super) unordered: Vec<(u32, u32)>,
    /// Calls that returned behind others of other threads: the position that was reached by then.
    pub(super) late: Vec<(u32, u32)>,
}

/// How far each stream has come: the number of its last access that is known to be over, indexed by stream.
type StreamClock = Vec<u32>;

fn join(to: &mut StreamClock, from: &[u32]) {
    if to.len() < from.len() {
        to.resize(from.len(), 0);
    }
    for (to, from) in to.iter_mut().zip(from) {
        *to = (*to).max(*from);
    }
}

#[derive(Debug, Default)]
struct StreamState {
    clock: StreamClock,
    /// Which state of the host it has taken over.
    host: u32,
}

/// An access that later ones have to come after.
#[derive(Debug, Clone, Copy)]
struct Past {
    start: u64,
    end: u64,
    stream: usize,
    epoch: u32,
    writes: bool,
    /// Which touch it belongs to.
    touch: u32,
    /// The last in `covered` of those that it took the place of; 0 if there is none.
    covered: u32,
}

impl Past {
    /// Whether some byte is touched by both.
    fn meets(&self, other: &Self) -> bool {
        self.start < other.end && other.start < self.end
    }

    /// Whether what has this clock comes after it.
    fn is_before(&self, clock: &[u32]) -> bool {
        clock.get(self.stream).is_some_and(|known| *known >= self.epoch)
    }
}

/// Where nothing orders one access behind more than so many others, its process is not followed any further.
const COVERED_AT_MOST: usize = 4096;

/// Accesses of which others took the place, before those are let go that the host knows to be over.
const COVERED_FROM: usize = 1 << 14;

#[derive(Debug, Default)]
struct Allocation {
    end: u64,
    accesses: Vec<Past>,
}

/// What a call does, as far as it orders or touches.
#[derive(Debug, Clone)]
enum OrderEffect {
    Nothing,
    Records {
        event: u64,
        stream: u64,
        external: bool,
    },
    StreamWaits {
        event: u64,
        stream: u64,
    },
    HostWaitsEvent {
        event: u64,
        polls: bool,
    },
    HostWaitsStream(u64),
    HostWaitsDevice,
    EventGone(u64),
    EventMeansMore(u64),
    StreamChanges(u64),
    Touches(Arc<TouchedRanges>),
    GroupStart,
    GroupEnd,
    CaptureBegins,
    CaptureEnds,
    Appears {
        address: u64,
        bytes: u64,
        plain: bool,
    },
    /// These bytes are judged in full.
    Matters {
        address: u64,
        bytes: u64,
    },
    /// All of the allocation at this address is judged in full.
    Lends(u64),
    /// What is done to memory is not followed from here on.
    Unfollowed,
}

impl OrderEffect {
    /// How far what it writes lies behind what it reads, if that is the same memory.
    fn in_place(&self) -> Option<u64> {
        let Self::Touches(touches) = self else { return None };
        match touches.ranges[..] {
            [(read, to, false), (written, end, true)] if read < end && written < to => {
                Some(written.wrapping_sub(read))
            }
            _ => None,
        }
    }
}

#[derive(Debug)]
struct TouchedRanges {
    stream: u64,
    /// From, to, and whether they are written.
    ranges: Vec<(u64, u64, bool)>,
    /// Whether only memory that was seen allocated counts.
    device_only: bool,
    /// Whether a part of it is not known, or is judged by its address.
    full: bool,
    /// Whether the host waits for it.
    waits: bool,
    grouped: bool,
}

fn effect(world: &World, member: &RankProcess, sequence: &Sequence, symbol: Symbol) -> OrderEffect {
    let (call, result) = match symbol {
        Symbol::Call { call, result, .. } | Symbol::Leave { call, result, .. } => (call, result),
        Symbol::Never { call, .. } => (call, None),
        Symbol::Note { .. } | Symbol::Noted { .. } | Symbol::Enter { .. } | Symbol::Folded { .. } => {
            return OrderEffect::Nothing;
        }
        Symbol::Lost { .. } => return OrderEffect::Unfollowed,
    };
    let (call, result) = (sequence.shape(call), result.map(|result| sequence.shape(result)));
    let kind = CallKind::of(&call.name);
    if failure(result).is_some() {
        return if kind == CallKind::EndCapture { OrderEffect::CaptureEnds } else { OrderEffect::Nothing };
    }
    of_call(world, member, kind, call, result).unwrap_or(OrderEffect::Unfollowed)
}

/// `None` where the call lacks something that it should have.
#[expect(clippy::wildcard_enum_match_arm, reason = "few calls order or touch")]
fn of_call(
    world: &World,
    member: &RankProcess,
    kind: CallKind,
    call: &Shape,
    result: Option<&Shape>,
) -> Option<OrderEffect> {
    let of = |key: &str| call.get(key).and_then(Argument::number);
    let made = |key: &str| result?.get(key)?.number();
    Some(match kind {
        CallKind::EventRecord => OrderEffect::Records {
            event: of("event")?,
            stream: of("stream")?,
            external: of("flags").unwrap_or(0) & EXTERNAL != 0,
        },
        CallKind::StreamWaitEvent => OrderEffect::StreamWaits { event: of("event")?, stream: of("stream")? },
        CallKind::Synchronize(Awaitable::Event) => {
            OrderEffect::HostWaitsEvent { event: of("event")?, polls: false }
        }
        CallKind::Query(Awaitable::Event) => OrderEffect::HostWaitsEvent { event: of("event")?, polls: true },
        CallKind::Synchronize(Awaitable::Stream) | CallKind::Query(Awaitable::Stream) => {
            OrderEffect::HostWaitsStream(of("stream")?)
        }
        CallKind::Synchronize(Awaitable::Device) | CallKind::Query(Awaitable::Device) => {
            OrderEffect::HostWaitsDevice
        }
        CallKind::EventDestroy => OrderEffect::EventGone(of("event")?),
        CallKind::EventExport => OrderEffect::EventMeansMore(of("event")?),
        CallKind::EventOpen => OrderEffect::EventMeansMore(made("event")?),
        CallKind::GraphNode(_) | CallKind::GraphNodeChange(_) => match of("event") {
            Some(event) if event != 0 => OrderEffect::EventMeansMore(event),
            _ => OrderEffect::Unfollowed,
        },
        CallKind::StreamCreate => made("stream").map_or(OrderEffect::Nothing, OrderEffect::StreamChanges),
        CallKind::StreamDestroy => OrderEffect::StreamChanges(of("stream")?),
        CallKind::GroupStart => OrderEffect::GroupStart,
        CallKind::GroupEnd => OrderEffect::GroupEnd,
        CallKind::BeginCapture => OrderEffect::CaptureBegins,
        CallKind::EndCapture => OrderEffect::CaptureEnds,
        CallKind::Allocate(allocator) => {
            let says = if allocator == Allocator::CudaPitched { result } else { Some(call) };
            let bytes = says.and_then(|shape| shape.get("bytes")?.number());
            let plain = matches!(allocator, Allocator::Cuda | Allocator::CudaPitched);
            match made("address") {
                Some(address) => OrderEffect::Appears { address, bytes: bytes?, plain },
                None => OrderEffect::Nothing,
            }
        }
        CallKind::Map => OrderEffect::Appears { address: of("address")?, bytes: of("bytes")?, plain: true },
        CallKind::Free(Allocator::CudaAsync) => OrderEffect::Lends(of("address")?),
        CallKind::Free(Allocator::Cuda | Allocator::CudaPitched) => OrderEffect::Nothing,
        CallKind::Free(Allocator::Nccl) | CallKind::Unmap => OrderEffect::Lends(of("address")?),
        CallKind::Register => OrderEffect::Matters { address: of("address")?, bytes: of("bytes")? },
        CallKind::IpcExport => OrderEffect::Lends(of("address")?),
        CallKind::IpcOpen => {
            OrderEffect::Appears { address: made("address")?, bytes: u64::MAX, plain: false }
        }
        CallKind::Copy(returns) => {
            let touched = TouchedBytes::of(call);
            let range = |writes: bool| {
                move |&(start, bytes): &(u64, u64)| (start, start.saturating_add(bytes), writes)
            };
            let ranges = touched.reads.iter().map(range(false)).chain(touched.writes.iter().map(range(true)));
            OrderEffect::Touches(Arc::new(TouchedRanges {
                stream: of("stream").unwrap_or(0),
                ranges: ranges.collect(),
                device_only: true,
                full: touched.lacks.is_some(),
                waits: returns == CopyReturns::WhenDone,
                grouped: false,
            }))
        }
        CallKind::Transfer(direction) => {
            let bytes = of("count")?.saturating_mul(vendor::dtype(of("dtype")?)?.len_bytes());
            let address = of("address")?;
            let writes = direction == rankcheck_model::Direction::Recv;
            OrderEffect::Touches(Arc::new(TouchedRanges {
                stream: of("stream")?,
                ranges: vec![(address, address.saturating_add(bytes), writes)],
                device_only: false,
                full: false,
                waits: false,
                grouped: true,
            }))
        }
        CallKind::Collective(of_kind) => {
            OrderEffect::Touches(Arc::new(of_collective(world, member, of_kind, call)?))
        }
        _ => OrderEffect::Nothing,
    })
}

/// What a collective touches.
fn of_collective(
    world: &World,
    member: &RankProcess,
    of_kind: CollectiveKind,
    call: &Shape,
) -> Option<TouchedRanges> {
    let of = |key: &str| call.get(key).and_then(Argument::number);
    let part = of("count")?.saturating_mul(vendor::dtype(of("dtype")?)?.len_bytes());
    let comm = of("comm")?;
    let comms = || member.comms_at(comm).map(|comm| &world.comm(comm).members);
    // Of several communicators that had this address, the largest: more bytes are touched, not fewer.
    let members = comms().map(Vec::len).max()?;
    let (sends, receives) = of_kind.needs(part, members, Counting::Both);
    let (send, recv) = (of("send")?, of("recv")?);
    // What it does to itself depends on where both lie.
    let overlaps = |members: &Vec<Option<Rank>>| {
        let me = members.iter().position(|other| *other == Some(member.rank));
        me.is_none_or(|me| of_kind.overlaps(part, (me, members.len()), (send, recv)))
    };
    let full = (send == 0 && sends > 0) || (recv == 0 && receives > 0) || comms().any(overlaps);
    Some(TouchedRanges {
        stream: of("stream")?,
        ranges: vec![(send, send.saturating_add(sends), false), (recv, recv.saturating_add(receives), true)],
        device_only: false,
        full,
        waits: false,
        grouped: true,
    })
}

/// The groups that a thread has open.
#[derive(Debug, Default)]
struct OpenGroups {
    depth: u32,
    /// What they launch when the outermost ends: by the positions of the calls.
    held: Vec<(u32, Arc<TouchedRanges>)>,
}

#[derive(Debug)]
struct OrderWalk {
    relations: Relations,
    /// By handle: the record that the event stands for, and what had happened by it.
    event: FxHashMap<u64, (u32, Arc<[u32]>)>,
    means_more: FxHashSet<u64>,
    /// By handle: which event of the process it names.
    named: FxHashMap<u64, u32>,
    stream_of: FxHashMap<(u64, u32), usize>,
    streams: Vec<StreamState>,
    host: StreamClock,
    /// Goes up with each wait of the host.
    host_state: u32,
    allocations: BTreeMap<u64, Allocation>,
    /// Accesses to memory that nobody was seen to allocate.
    unseen: Vec<Past>,
    /// Accesses of which a later one took the place, each with the one before that it took the place of; numbered from 1.
    covered: Vec<(Past, u32)>,
    /// With so many of them, those are let go that the host knows to be over.
    covered_at_most: usize,
    /// Bytes that are judged in full, whenever they are touched.
    full: Vec<(u64, u64)>,
    captures: u32,
    /// By thread: its open groups.
    groups: FxHashMap<u32, OpenGroups>,
    followed: bool,
}

/// What the calls of a process have to do with one another.
pub(super) fn relations(world: &World, member: &RankProcess, sequence: &Sequence) -> Relations {
    let of_symbol: Vec<OrderEffect> =
        sequence.dictionary().iter().map(|&symbol| effect(world, member, sequence, symbol)).collect();
    let mut order = OrderWalk {
        relations: Relations {
            late: sequence.late().to_vec(),
            in_place: of_symbol.iter().map(OrderEffect::in_place).collect(),
            ..Relations::default()
        },
        event: FxHashMap::default(),
        means_more: FxHashSet::default(),
        named: FxHashMap::default(),
        stream_of: FxHashMap::default(),
        streams: Vec::new(),
        host: StreamClock::new(),
        host_state: 1,
        allocations: BTreeMap::new(),
        unseen: Vec::new(),
        covered: Vec::new(),
        covered_at_most: COVERED_FROM,
        full: Vec::new(),
        captures: 0,
        groups: FxHashMap::default(),
        followed: true,
    };
    let mut late: Vec<(u32, u32)> = order.relations.late.clone();
    late.sort_unstable();
    let mut late = late.into_iter().peekable();
    // Calls that returned later, by when.
    let mut waiting: BTreeSet<(u32, u32)> = BTreeSet::new();
    let step = |order: &mut OrderWalk, at: u32, symbol: SymbolId| {
        let does = &of_symbol[symbol.0 as usize];
        if !matches!(does, OrderEffect::Nothing) {
            order.call(at, sequence.symbol(symbol).thread(), does);
        }
    };
    for (at, &symbol) in sequence.symbols.iter().enumerate() {
        let at = u32::try_from(at).expect("a sequence has fewer than 2^32 symbols");
        while let Some(&(until, entered)) = waiting.first()
            && until <= at
        {
            waiting.pop_first();
            step(&mut order, entered, sequence.symbols[entered as usize]);
        }
        match late.next_if(|(entered, _)| *entered == at) {
            Some((entered, until)) => _ = waiting.insert((until, entered)),
            None => step(&mut order, at, symbol),
        }
    }
    for (_, entered) in waiting {
        step(&mut order, entered, sequence.symbols[entered as usize]);
    }
    order.done(sequence, &of_symbol)
}

impl OrderWalk {
    fn call(&mut self, at: u32, thread: u32, does: &OrderEffect) {
        match *does {
            OrderEffect::Nothing => {}
            OrderEffect::Records { event, stream, external } => {
                let stream = self.launches(stream, thread);
                let events = &mut self.relations.events;
                let nth = u32::try_from(events.records.len()).expect("fewer than 2^32 records");
                if external {
                    self.means_more.insert(event);
                }
                let kept = self.captures > 0;
                events.records.push(KnownRecord::new(stream, kept));
                // What a capture orders happens once its graph is launched.
                let clock = if kept { &[][..] } else { self.streams[stream].clock.as_slice() };
                self.event.insert(event, (nth, clock.into()));
                let event = self.named(event);
                self.relations.events.calls.push(EventCall { at, does: EventUse::Records(nth), event });
            }
            OrderEffect::StreamWaits { event, stream } => {
                let stream = self.launches(stream, thread);
                if let Some(clock) = self.meets(at, event, false).filter(|_| self.captures == 0) {
                    join(&mut self.streams[stream].clock, &clock);
                }
            }
            OrderEffect::HostWaitsEvent { event, polls } => {
                if let Some(clock) = self.meets(at, event, polls) {
                    join(&mut self.host, &clock);
                    self.host_state += 1;
                }
            }
            OrderEffect::HostWaitsStream(stream) => {
                let stream = self.stream(stream, thread);
                join(&mut self.host, &self.streams[stream].clock);
                self.host_state += 1;
            }
            OrderEffect::HostWaitsDevice => {
                for stream in &self.streams {
                    join(&mut self.host, &stream.clock);
                }
                self.host_state += 1;
            }
            OrderEffect::EventGone(event) => {
                self.event.remove(&event);
                self.named.remove(&event);
            }
            OrderEffect::EventMeansMore(event) => _ = self.means_more.insert(event),
            OrderEffect::StreamChanges(stream) => {
                self.stream_of.remove(&(stream, 0));
            }
            OrderEffect::Touches(ref touches) => {
                let depth = self.groups.get(&thread).map_or(0, |groups| groups.depth);
                if touches.grouped && depth > 0 {
                    let OpenGroups { held, .. } = self.groups.get_mut(&thread).expect("it is open");
                    held.push((at, Arc::clone(touches)));
                } else {
                    self.touch(thread, &[(at, Arc::clone(touches))]);
                }
            }
            OrderEffect::GroupStart => self.groups.entry(thread).or_default().depth += 1,
            OrderEffect::GroupEnd => {
                let OpenGroups { depth, held } = self.groups.entry(thread).or_default();
                *depth = depth.saturating_sub(1);
                if *depth == 0 {
                    let held = std::mem::take(held);
                    self.touch(thread, &held);
                }
            }
            OrderEffect::CaptureBegins => self.captures += 1,
            OrderEffect::CaptureEnds => self.captures = self.captures.saturating_sub(1),
            OrderEffect::Appears { address, bytes, plain } => {
                let end = address.saturating_add(bytes);
                self.allocations.entry(address).or_default().end = end;
                if !plain {
                    self.full.push((address, end));
                }
            }
            OrderEffect::Matters { address, bytes } => {
                self.full.push((address, address.saturating_add(bytes)))
            }
            OrderEffect::Lends(address) => match self.allocations.range(..=address).next_back() {
                Some((&start, allocation)) if address < allocation.end => {
                    self.full.push((start, allocation.end));
                }
                Some(_) | None => self.followed = false,
            },
            OrderEffect::Unfollowed => self.followed = false,
        }
    }

    fn stream(&mut self, handle: u64, thread: u32) -> usize {
        let key = match handle {
            handle if vendor::LEGACY_STREAM.contains(&handle) => (0, 0),
            vendor::PER_THREAD_STREAM => (vendor::PER_THREAD_STREAM, thread + 1),
            handle => (handle, 0),
        };
        let fresh = self.streams.len();
        let at = *self.stream_of.entry(key).or_insert(fresh);
        if at == fresh {
            self.streams.push(StreamState::default());
        }
        at
    }

    /// Something is launched on a stream: it comes after what the host has waited for.
    fn launches(&mut self, handle: u64, thread: u32) -> usize {
        let at = self.stream(handle, thread);
        let stream = &mut self.streams[at];
        if stream.host != self.host_state {
            stream.host = self.host_state;
            join(&mut stream.clock, &self.host);
        }
        at
    }

    fn named(&mut self, event: u64) -> u32 {
        let made = &mut self.relations.events.named;
        *self.named.entry(event).or_insert_with(|| {
            *made += 1;
            *made
        })
    }

    /// A call meets the record that an event stands for. Gives what had happened by it.
    fn meets(&mut self, at: u32, event: u64, polls: bool) -> Option<Arc<[u32]>> {
        let named = self.named(event);
        let (record, clock) = self.event.get(&event)?;
        let (record, clock) = (*record, Arc::clone(clock));
        let does = if polls { EventUse::Polls(record) } else { EventUse::Meets(record) };
        let events = &mut self.relations.events;
        events.calls.push(EventCall { at, does, event: named });
        if self.captures > 0 {
            events.records[record as usize].keep();
        }
        Some(clock)
    }

    /// Calls that are launched at once touch memory.
    fn touch(&mut self, thread: u32, calls: &[(u32, Arc<TouchedRanges>)]) {
        let all =
            calls.iter().flat_map(|(at, touches)| touches.ranges.iter().map(move |range| (*at, *range)));
        let all: Vec<(u32, (u64, u64, bool))> = all.filter(|(_, (start, end, _))| start < end).collect();
        // What calls of one group do to one another is judged by where their buffers lie.
        let apart = |(nth, &(at, (start, end, writes))): (usize, &(u32, (u64, u64, bool)))| {
            all[nth + 1..].iter().all(|&(other, (other_start, other_end, other_writes))| {
                let meet = start < other_end && other_start < end && (writes || other_writes);
                !meet || at == other
            })
        };
        let apart = all.len() < 256 && all.iter().enumerate().all(apart);
        for (at, touches) in calls {
            let stream = self.launches(touches.stream, thread);
            let nth = u32::try_from(self.relations.touches.len()).expect("fewer than 2^32 touches");
            if self.captures > 0 {
                self.full.extend(touches.ranges.iter().map(|&(start, end, _)| (start, end)));
                self.relations.touches.push(Touch { at: *at, ordered: false });
                continue;
            }
            let mut ordered = apart && !touches.full;
            let clock = &mut self.streams[stream].clock;
            if clock.len() <= stream {
                clock.resize(stream + 1, 0);
            }
            clock[stream] += 1;
            let epoch = clock[stream];
            let clock = &self.streams[stream].clock;
            for &(start, end, writes) in &touches.ranges {
                if start >= end {
                    continue;
                }
                let allocation = self.allocations.range_mut(..=start).next_back();
                let allocation = allocation.filter(|(_, allocation)| start < allocation.end);
                let accesses = match allocation {
                    Some((_, allocation)) => {
                        ordered &= end <= allocation.end;
                        &mut allocation.accesses
                    }
                    None if touches.device_only => continue,
                    None => &mut self.unseen,
                };
                let mut new = Past { start, end, stream, epoch, writes, touch: nth, covered: 0 };
                let mut unordered: Vec<Past> = Vec::new();
                accesses.retain(|old| {
                    if !old.meets(&new) {
                        return true;
                    }
                    let after = old.is_before(clock);
                    if !after && (old.writes || writes) {
                        unordered.push(*old);
                    }
                    let covers = new.start <= old.start && old.end <= new.end;
                    let goes = after && covers && (writes || !old.writes);
                    // What the host knows is before whatever is launched from here on.
                    if goes && !old.is_before(&self.host) {
                        self.covered.push((*old, new.covered));
                        new.covered = u32::try_from(self.covered.len()).expect("fewer than 2^32 accesses");
                    }
                    !goes
                });
                // Whoever took the place of another may wait for ever, so that only the other is in the way.
                let mut looked_at = 0;
                while let Some(old) = unordered.pop() {
                    ordered = false;
                    let earlier = &mut self.relations.touches[old.touch as usize];
                    earlier.ordered = false;
                    self.relations.unordered.push((earlier.at, *at));
                    let mut next = old.covered;
                    while let Some(&(covered, before)) =
                        next.checked_sub(1).and_then(|at| self.covered.get(at as usize))
                    {
                        next = before;
                        if covered.meets(&new) && !covered.is_before(clock) && (covered.writes || writes) {
                            unordered.push(covered);
                        }
                        looked_at += 1;
                    }
                    if looked_at > COVERED_AT_MOST {
                        self.followed = false;
                        break;
                    }
                }
                accesses.push(new);
            }
            self.relations.touches.push(Touch { at: *at, ordered });
            if touches.waits {
                let clock = self.streams[stream].clock.clone();
                join(&mut self.host, &clock);
                self.host_state += 1;
            }
        }
        if self.covered.len() > self.covered_at_most {
            self.let_go_of_covered();
            self.covered_at_most = COVERED_FROM.max(2 * self.covered.len());
        }
    }

    /// Lets go of accesses that the host knows to be over: nothing that is still to be launched is unordered with them.
    fn let_go_of_covered(&mut self) {
        // By number: the one that is left in its place, which is the nearest before it.
        let mut left: Vec<u32> = Vec::with_capacity(self.covered.len() + 1);
        left.push(0);
        let mut kept: Vec<(Past, u32)> = Vec::new();
        for (past, before) in &self.covered {
            let before = left[*before as usize];
            if past.is_before(&self.host) {
                left.push(before);
                continue;
            }
            kept.push((Past { covered: left[past.covered as usize], ..*past }, before));
            left.push(u32::try_from(kept.len()).expect("fewer than 2^32 accesses"));
        }
        self.covered = kept;
        let allocations = self.allocations.values_mut().map(|allocation| &mut allocation.accesses);
        for access in allocations.chain([&mut self.unseen]).flatten() {
            access.covered = left[access.covered as usize];
        }
    }

    fn done(mut self, sequence: &Sequence, of_symbol: &[OrderEffect]) -> Relations {
        self.relations.events.calls.written.shrink_to_fit();
        self.relations.events.records.shrink_to_fit();
        let does = |at: u32| &of_symbol[sequence.symbols[at as usize].0 as usize];
        if !self.means_more.is_empty() {
            let EventHistory { records, calls, .. } = &mut self.relations.events;
            for call in calls.iter() {
                if let EventUse::Records(record) = call.does
                    && let OrderEffect::Records { event, .. } = does(call.at)
                    && self.means_more.contains(event)
                {
                    records[record as usize].keep();
                }
            }
        }
        if self.followed && self.full.is_empty() {
            return self.relations;
        }
        let full = |symbol: &OrderEffect| {
            let OrderEffect::Touches(touches) = symbol else { return false };
            let meets = |(start, end, _): &(u64, u64, bool)| {
                start < end && self.full.iter().any(|(from, to)| start < to && from < end)
            };
            touches.ranges.iter().any(meets)
        };
        let full: Vec<bool> = of_symbol.iter().map(full).collect();
        for touch in &mut self.relations.touches {
            let symbol = sequence.symbols[touch.at as usize];
            touch.ordered &= self.followed && !full[symbol.0 as usize];
        }
        self.relations
    }
}
