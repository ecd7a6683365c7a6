//! A process that drives several devices, as a rank for each of them: which call is whose.
//!
//! What a call works on says on which device it is: a communicator is on the device that was current when it was made, a
//! stream on the one that was current when that was, and so on; what works on nothing that is known is done on the device
//! that is current for its thread. Groups, and what is no call of the vendor's, are everybody's.
//! Not here: which processes are several ranks ([`super::world`]).

use std::collections::VecDeque;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use rankcheck_recording::{Argument, CallEvent, ProcessFile, ReadError, Shape, ShapeId};
use rustc_hash::{FxHashMap, FxHashSet};

use super::call::{Awaitable, CallKind, CopyReturns, CurrentBy, failure, is_vendors};
use super::sequence::ReadUntil;
use super::vendor;

/// The number that CUDA has for a device of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceNumber(pub u32);

/// Which calls of a process are on which device.
#[derive(Debug, Default)]
struct CallDevices {
    /// By the number of a call: the device, or everybody's.
    of: Vec<DeviceNumber>,
    /// Calls that wait for an event that another device recorded last.
    waits_for_others: FxHashSet<u64>,
    /// Calls by which the host waited for a device, in their order, with the threads that did.
    waits: Vec<(u64, DeviceNumber, u32)>,
    /// By call: the waits of its thread for other devices since the last call on its device.
    waited: FxHashMap<u64, Vec<u64>>,
    /// The waits in `waited`.
    awaited: FxHashSet<u64>,
}

/// Of no device in particular.
const EVERYBODYS: DeviceNumber = DeviceNumber(u32::MAX);

/// What one device of a process does.
#[derive(Debug, Clone)]
pub struct DeviceShare {
    /// Whose calls these are.
    pub device: DeviceNumber,
    calls: Arc<CallDevices>,
}

impl DeviceShare {
    /// Whether a call of the process, by its number, is done on this device.
    #[must_use]
    pub fn has(&self, number: u64) -> bool {
        let of = usize::try_from(number).ok().and_then(|at| self.calls.of.get(at));
        of.is_none_or(|of| *of == self.device || *of == EVERYBODYS)
    }

    /// Whether a call waits for an event that another device recorded last: in which order the devices came to it is not
    /// followed.
    #[must_use]
    pub fn waits_for_others(&self, number: u64) -> bool {
        self.calls.waits_for_others.contains(&number)
    }

    /// Whether any device of the process waits for an event that another recorded last.
    pub(super) fn waits_for_any(&self) -> bool {
        !self.calls.waits_for_others.is_empty()
    }

    /// Whether another thread than this one waited for another device in one of these calls.
    #[must_use]
    pub fn waited_elsewhere(&self, calls: Range<u64>, thread: u32) -> bool {
        let from = self.calls.waits.partition_point(|(call, ..)| *call < calls.start);
        let mut within = self.calls.waits[from..].iter().take_while(|(call, ..)| *call < calls.end);
        within.any(|(_, device, by)| *device != self.device && *by != thread)
    }

    /// The calls by which the thread of a call waited for other devices since its last call on this one.
    pub(super) fn waited_before(&self, number: u64) -> &[u64] {
        self.calls.waited.get(&number).map_or(&[], Vec::as_slice)
    }

    /// Whether a call by which a thread waited for this device comes before calls of that thread on others.
    pub(super) fn is_waited_for(&self, number: u64) -> bool {
        self.calls.awaited.contains(&number)
    }

    /// What a call that makes communicators for several devices gave to this one: as if it had made one alone.
    #[must_use]
    pub fn of_result(&self, call: &Shape, result: &Shape) -> Option<Shape> {
        let comm = *words(result.get("comms")?, 8).get(self.nth_of(call)? as usize)?;
        Some(Shape {
            name: Arc::clone(&result.name),
            keys: [Box::from("comm")].into(),
            values: [Argument::Address(comm)].into(),
            instant: false,
        })
    }

    /// The rank of this device in what a call makes for several.
    #[must_use]
    pub fn nth_of(&self, call: &Shape) -> Option<u32> {
        devices_of(call)
            .iter()
            .position(|device| *device == self.device)
            .and_then(|at| u32::try_from(at).ok())
    }
}

/// The devices for which a call makes communicators, in the order of their ranks.
fn devices_of(call: &Shape) -> Vec<DeviceNumber> {
    let number = |word: &u64| DeviceNumber(u32::try_from(*word).unwrap_or(u32::MAX));
    match call.get("devices") {
        Some(bytes @ Argument::Bytes(_)) => words(bytes, 4).iter().map(number).collect(),
        // None are named: the first ones.
        _ => {
            let ranks = call.get("ranks").and_then(Argument::number).unwrap_or(0);
            (0..ranks.min(1 << 10)).map(|nth| number(&nth)).collect()
        }
    }
}

/// Numbers of so many bytes each, lowest first.
fn words(bytes: &Argument, each: usize) -> Vec<u64> {
    let Argument::Bytes(bytes) = bytes else { return Vec::new() };
    let word = |bytes: &[u8]| bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
    bytes.chunks_exact(each).map(word).collect()
}

/// The shares of the devices of a process on which communicators were made, in the order of their numbers; none of a
/// process that made them on one device alone.
///
/// # Errors
///
/// If the file cannot be read to its end or to where it was cut.
pub(super) fn shares(path: &Path, until: ReadUntil) -> Result<Vec<DeviceShare>, ReadError> {
    let mut process = until.open(path)?;
    let mut following = DeviceTracker::default();
    while let Some(event) = process.next_event()? {
        following.event(event, &process);
    }
    let DeviceTracker { mut calls, mut communicate, .. } = following;
    calls.waits.sort_unstable();
    communicate.sort_unstable();
    communicate.dedup();
    let calls = Arc::new(calls);
    let share = |device| DeviceShare { device, calls: Arc::clone(&calls) };
    Ok(if communicate.len() > 1 { communicate.into_iter().map(share).collect() } else { Vec::new() })
}

/// What a handle names. Handles of two kinds may be equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum HandleOf {
    Comm,
    Window,
    Stream,
    Event,
    Executable,
    Graph,
    Node,
    Memory,
}

/// The arguments that say on which device a call is, the surest first.
const HANDLES: [(&str, HandleOf); 15] = [
    ("comm", HandleOf::Comm),
    ("window", HandleOf::Window),
    ("stream", HandleOf::Stream),
    ("event", HandleOf::Event),
    ("executable", HandleOf::Executable),
    ("graph", HandleOf::Graph),
    ("node", HandleOf::Node),
    ("address", HandleOf::Memory),
    ("handle", HandleOf::Memory),
    ("to", HandleOf::Memory),
    ("from", HandleOf::Memory),
    ("send", HandleOf::Memory),
    ("recv", HandleOf::Memory),
    ("pool", HandleOf::Memory),
    ("child", HandleOf::Graph),
];

/// What a thread made current.
#[derive(Debug, Clone, Copy)]
enum CurrentDevice {
    Device(u32),
    /// A context of the driver. The runtime makes one current before it says on which device it is.
    Context(u64),
}

impl Default for CurrentDevice {
    fn default() -> Self {
        Self::Device(0)
    }
}

#[derive(Debug, Default)]
struct ThreadDevice {
    current: CurrentDevice,
    /// What contexts of the driver were pushed over.
    pushed: Vec<CurrentDevice>,
    /// Calls that were entered, with their numbers and devices.
    open: Vec<(ShapeId, u64, DeviceNumber)>,
    /// Groups that are open.
    depth: u32,
    /// The last call by which it waited for each device.
    waits: Vec<(DeviceNumber, u64)>,
    /// Its last call on each device.
    last: Vec<(DeviceNumber, u64)>,
    /// The devices of registrations of the last group: their windows are noted in this order once it has ended.
    registered: VecDeque<DeviceNumber>,
}

#[derive(Debug, Default)]
struct DeviceTracker {
    calls: CallDevices,
    threads: FxHashMap<u32, ThreadDevice>,
    handles: FxHashMap<(HandleOf, u64), DeviceNumber>,
    contexts: FxHashMap<u64, u32>,
    communicate: Vec<DeviceNumber>,
}

impl DeviceTracker {
    fn event(&mut self, event: CallEvent, process: &ProcessFile) {
        match event {
            CallEvent::Enter { thread, call, .. } => {
                let shape = process.shape(call);
                let device = self.enter(thread, shape);
                let number = self.calls.of.len() as u64;
                self.calls.of.push(device);
                if device != EVERYBODYS {
                    self.comes_after(thread, number, device);
                }
                if !shape.instant {
                    self.threads.entry(thread).or_default().open.push((call, number, device));
                }
            }
            CallEvent::Return { thread, values, .. } => {
                let Some((call, number, device)) = self.threads.entry(thread).or_default().open.pop() else {
                    return;
                };
                let result = values.map(|values| process.shape(values));
                if failure(result).is_none() {
                    self.returned(thread, process.shape(call), (number, device), result);
                }
            }
            // Returns may be among what was lost.
            CallEvent::Lost { thread, .. } => self.threads.entry(thread).or_default().open.clear(),
        }
    }

    /// A call of a thread comes after what the thread has waited for on other devices.
    fn comes_after(&mut self, thread: u32, number: u64, device: DeviceNumber) {
        let ThreadDevice { waits, last, .. } = self.threads.entry(thread).or_default();
        let known = last.iter().position(|(of, _)| *of == device).unwrap_or_else(|| {
            last.push((device, 0));
            last.len() - 1
        });
        let before = std::mem::replace(&mut last[known].1, number);
        for &(of, wait) in waits.iter() {
            if of != device && wait >= before {
                self.calls.waited.entry(number).or_default().push(wait);
                self.calls.awaited.insert(wait);
            }
        }
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "few calls are everybody's")]
    fn enter(&mut self, thread: u32, call: &Shape) -> DeviceNumber {
        let kind = CallKind::of(&call.name);
        let of_thread = self.threads.entry(thread).or_default();
        match kind {
            CallKind::GroupWindow => {
                let device = of_thread.registered.pop_front().unwrap_or(EVERYBODYS);
                if let Some(window) = call.get("window").and_then(Argument::number) {
                    self.handles.insert((HandleOf::Window, window), device);
                }
                return device;
            }
            CallKind::GroupStart => {
                if of_thread.depth == 0 {
                    of_thread.registered.clear();
                }
                of_thread.depth += 1;
                return EVERYBODYS;
            }
            CallKind::GroupEnd => {
                of_thread.depth = of_thread.depth.saturating_sub(1);
                return EVERYBODYS;
            }
            _ if !is_vendors(&call.name) || call.instant || kind == CallKind::InitAll => return EVERYBODYS,
            _ => {}
        }
        let grouped = of_thread.depth > 0;
        let current = match of_thread.current {
            CurrentDevice::Device(device) => DeviceNumber(device),
            CurrentDevice::Context(context) => {
                DeviceNumber(self.contexts.get(&context).copied().unwrap_or(0))
            }
        };
        let known = HANDLES.iter().find_map(|(key, of)| {
            let handle = call.get(key).and_then(Argument::number)?;
            // Each device has default streams.
            if *of == HandleOf::Stream
                && (vendor::LEGACY_STREAM.contains(&handle) || handle == vendor::PER_THREAD_STREAM)
            {
                return Some(current);
            }
            self.handles.get(&(*of, handle)).copied()
        });
        let device = known.unwrap_or(current);
        if grouped && kind == CallKind::Register {
            self.threads.entry(thread).or_default().registered.push_back(device);
        }
        let event = call.get("event").and_then(Argument::number).map(|event| (HandleOf::Event, event));
        if let Some(event) = event {
            let waits = matches!(
                kind,
                CallKind::StreamWaitEvent
                    | CallKind::Synchronize(Awaitable::Event)
                    | CallKind::Query(Awaitable::Event)
            );
            if kind == CallKind::EventRecord {
                self.handles.insert(event, device);
            } else if waits && self.handles.get(&event).is_some_and(|recorded| *recorded != device) {
                self.calls.waits_for_others.insert(self.calls.of.len() as u64);
            } else if kind == CallKind::EventDestroy {
                self.handles.remove(&event);
            }
        }
        device
    }

    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "few calls make devices current, wait, or are of several devices"
    )]
    fn returned(
        &mut self,
        thread: u32,
        call: &Shape,
        (nth, device): (u64, DeviceNumber),
        result: Option<&Shape>,
    ) {
        let given = |key: &str| result.and_then(|result| result.get(key)).and_then(Argument::number);
        match CallKind::of(&call.name) {
            CallKind::Current(by) => self.switched(thread, by, call, given("context")),
            CallKind::InitAll => {
                let devices = devices_of(call);
                let comms = result.and_then(|result| result.get("comms")).map(|comms| words(comms, 8));
                for (comm, device) in comms.unwrap_or_default().into_iter().zip(&devices) {
                    self.handles.insert((HandleOf::Comm, comm), *device);
                }
                self.communicate.extend(devices);
            }
            CallKind::Synchronize(_) | CallKind::Query(_) | CallKind::Copy(CopyReturns::WhenDone) => {
                self.calls.waits.push((nth, device, thread));
                let ThreadDevice { waits, .. } = self.threads.entry(thread).or_default();
                waits.retain(|(of, _)| *of != device);
                waits.push((device, nth));
            }
            kind => {
                if kind.makes_comm(call) {
                    self.communicate.push(device);
                }
                for (key, of) in HANDLES {
                    if let Some(made) = given(key) {
                        self.handles.insert((of, made), device);
                    }
                }
            }
        }
    }

    /// A call that says which device is current, and the context that it made.
    fn switched(&mut self, thread: u32, by: CurrentBy, call: &Shape, made: Option<u64>) {
        let of_thread = self.threads.entry(thread).or_default();
        if matches!(by, CurrentBy::NewContext | CurrentBy::Retained)
            && let Some(context) = made
        {
            let device = call.get("device").and_then(Argument::number).unwrap_or(0);
            self.contexts.insert(context, u32::try_from(device).unwrap_or(0));
        }
        if matches!(by, CurrentBy::NewContext | CurrentBy::PushedContext) {
            of_thread.pushed.push(of_thread.current);
        }
        let named = by.named(call).and_then(Argument::number);
        of_thread.current = match by {
            CurrentBy::Device => named
                .and_then(|device| u32::try_from(device).ok())
                .map_or_else(CurrentDevice::default, CurrentDevice::Device),
            CurrentBy::Context | CurrentBy::PushedContext => {
                named.map_or_else(CurrentDevice::default, CurrentDevice::Context)
            }
            CurrentBy::NewContext => made.map_or(of_thread.current, CurrentDevice::Context),
            CurrentBy::Popped => of_thread.pushed.pop().unwrap_or_default(),
            CurrentBy::Retained => of_thread.current,
        };
    }
}

/// Passes on what one device does of the events of its process.
#[derive(Debug)]
pub(super) struct ShareFilter<'a> {
    share: Option<&'a DeviceShare>,
    /// By thread: whether each call that was entered is passed on.
    open: FxHashMap<u32, Vec<bool>>,
    /// The number of the next call, where the events of a whole file are asked for.
    number: u64,
}

impl<'a> ShareFilter<'a> {
    /// Of a process of one rank, everything is passed on.
    pub(super) fn new(share: Option<&'a DeviceShare>) -> Self {
        Self { share, open: FxHashMap::default(), number: 0 }
    }

    /// The next event of a file that is this device's, and how many calls and notes of the process were entered before it.
    ///
    /// # Errors
    ///
    /// If the file is damaged there.
    pub(super) fn next(&mut self, process: &mut ProcessFile) -> Result<Option<(u64, CallEvent)>, ReadError> {
        while let Some(event) = process.next_event()? {
            let number = self.number;
            self.number += u64::from(matches!(event, CallEvent::Enter { .. }));
            if self.passes(number, &event, process) {
                return Ok(Some((number, event)));
            }
        }
        Ok(None)
    }

    /// Whether an event is this device's. Calls are numbered as in the recording.
    pub(super) fn passes(&mut self, number: u64, event: &CallEvent, process: &ProcessFile) -> bool {
        let Some(share) = self.share else { return true };
        match event {
            CallEvent::Enter { thread, call, .. } => {
                let has = share.has(number);
                if !process.shape(*call).instant {
                    self.open.entry(*thread).or_default().push(has);
                }
                has
            }
            CallEvent::Return { thread, .. } => self.open.entry(*thread).or_default().pop().unwrap_or(true),
            CallEvent::Lost { thread, .. } => {
                self.open.remove(thread);
                true
            }
        }
    }
}
