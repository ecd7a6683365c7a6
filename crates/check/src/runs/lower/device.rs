//! Streams, events, copies and graphs of one process.
//!
//! The legacy default stream and streams that were not made non-blocking wait for each other at every launch:
//! those waits are written as records and waits of an event. Not here: what waits mean.

use std::sync::Arc;

use rankcheck_model::{CaptureMode, EventOp, GraphOp, Op, Operand, Statement, StreamOp, Token};
use rankcheck_recording::{Argument, Shape, ShapeId};
use rustc_hash::{FxHashMap, FxHashSet};

use super::call::{number, one};
use super::{Bind, Lacks, Lowered, Lowering, Origin};
use crate::runs::call::{Awaitable, CopyReturns, Unjudged};
use crate::runs::regions::MemoryAt;
use crate::runs::world::RunCommId;
use crate::spec::builder::SourceNames;

/// `cudaStreamNonBlocking`: the flag of a stream that does not wait for the legacy default stream.
const NON_BLOCKING: u64 = 1;
/// What a function of the host is known by is no address of an event.
const HOST_FUNCTION: u64 = 1 << 63;
/// `cudaEventRecordExternal`: a capture keeps the record as a node of its graph.
const EXTERNAL: u64 = 1;
/// The legacy default stream by its handles.
const LEGACY: [u64; 2] = [0, 1];
/// The default stream of the calling thread by its handle; it waits for the legacy one, as others do.
const PER_THREAD: u64 = 2;

/// Whether a launch waits for more than what stands before it on its stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Implicit {
    Yes,
    No,
}

/// A graph of which is known what a launch of it does.
#[derive(Debug, Clone, Copy)]
enum KnownGraph {
    Captured(Token),
    /// A program put it together, of kernels. Other nodes were counted when they came in.
    Kernels,
}

/// A capture that has begun.
#[derive(Debug)]
struct OpenCapture {
    graph: Token,
    begin: Origin,
    /// How many operations of the first thread come before it.
    ops: usize,
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
    /// Launches on those and on the default stream since the last wait between them.
    fresh: FxHashSet<Token>,
    events: FxHashMap<u64, Token>,
    events_made: u32,
    /// Captures by the stream that began them, then by the graph and by what can be launched.
    capturing: FxHashMap<u64, OpenCapture>,
    graphs: FxHashMap<u64, KnownGraph>,
    executables: FxHashMap<u64, KnownGraph>,
    /// Captured graphs of more than kernels of which nothing is known.
    touching: FxHashSet<Token>,
    /// The communicators of the collectives of a graph.
    collectives: FxHashMap<Token, Vec<RunCommId>>,
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
            fresh: FxHashSet::default(),
            events: FxHashMap::default(),
            events_made: 0,
            capturing: FxHashMap::default(),
            graphs: FxHashMap::default(),
            executables: FxHashMap::default(),
            touching: FxHashSet::default(),
            collectives: FxHashMap::default(),
            graphs_made: 0,
            in_the_middle: false,
        }
    }

    /// How many streams something was launched on.
    pub(super) fn used(&self) -> usize {
        self.used.len()
    }

    /// The communicators on which a launch of what is at an address does collectives, one for each.
    pub(super) fn collectives_of(&self, executable: u64) -> &[RunCommId] {
        match self.executables.get(&executable) {
            Some(KnownGraph::Captured(graph)) => self.collectives.get(graph).map_or(&[], Vec::as_slice),
            Some(KnownGraph::Kernels) | None => &[],
        }
    }

    pub(super) fn stream(&mut self, address: u64, names: &SourceNames) -> Token {
        if LEGACY.contains(&address) {
            return self.default;
        }
        if address == PER_THREAD {
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

    fn event(&mut self, address: u64, names: &SourceNames) -> Token {
        *self.events.entry(address).or_insert_with(|| {
            self.events_made += 1;
            names.token(&format!("event {}", self.events_made))
        })
    }

    fn captured(&mut self, names: &SourceNames) -> Token {
        self.graphs_made += 1;
        names.token(&format!("graph {}", self.graphs_made))
    }
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
        let others: Vec<Token> = others.into_iter().filter(|other| device.fresh.remove(other)).collect();
        device.fresh.insert(stream);
        let event = self.names.token("the order of the default stream");
        for other in others {
            self.write(Lowered {
                op: Op::Event(EventOp { event, stream: other }),
                origin,
                bind: Bind::Nothing,
            });
            self.write(Lowered {
                op: Op::Stream(StreamOp::Wait { stream, event }),
                origin,
                bind: Bind::Nothing,
            });
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
        let what = match what {
            Awaitable::Stream => Operand::Stream(self.device.stream(number(call, "stream"), self.names)),
            Awaitable::Event => Operand::Event(self.device.event(number(call, "event"), self.names)),
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
            self.program.waits.host_function(self.ops.len());
            return self.captured_node(call, origin);
        };
        let event = self.device.event(function ^ HOST_FUNCTION, self.names);
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
        let event = self.device.event(number(call, "event"), self.names);
        let stream = self.device.stream(number(call, "stream"), self.names);
        self.launched(shape, Op::Event(EventOp { event, stream }), stream, origin)
    }

    pub(super) fn stream_waits(&mut self, shape: ShapeId, call: &Shape, origin: Origin) -> Vec<Lowered> {
        let event = self.device.event(number(call, "event"), self.names);
        let stream = self.device.stream(number(call, "stream"), self.names);
        self.launched(shape, Op::Stream(StreamOp::Wait { stream, event }), stream, origin)
    }

    /// The address of an event may come back.
    pub(super) fn event_destroyed(&mut self, call: &Shape) -> Vec<Lowered> {
        self.cache.clear();
        self.device.events.remove(&number(call, "event"));
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
        let bytes = number(call, "bytes");
        let stream = self.device.stream(number(call, "stream"), self.names);
        if ["to", "from", "address", "bytes"].iter().any(|key| call.get(key) == Some(&Argument::None)) {
            self.unjudged(Unjudged::Value, &call.name);
        }
        let known = |lowering: &Self, key: &str| {
            let address = call.get(key).and_then(Argument::number)?;
            matches!(lowering.memory.find(address, bytes), MemoryAt::In(..)).then_some(address)
        };
        let (from, to) = (known(self, "from"), known(self, "to").or_else(|| known(self, "address")));
        let mut buffers = |address: Option<u64>| -> Arc<[Operand]> {
            address.map(|address| self.buffer(address, bytes, origin)).into_iter().collect()
        };
        let (reads, writes) = (buffers(from), buffers(to));
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
            items.push(Lowered {
                op: Op::Stream(StreamOp::Synchronize { what }),
                origin,
                bind: Bind::Nothing,
            });
        }
        items
    }

    pub(super) fn capture_begins(&mut self, call: &Shape, origin: Origin) -> Vec<Lowered> {
        self.cache.clear();
        let address = number(call, "stream");
        let graph = self.device.captured(self.names);
        let ops = self.ops.len();
        self.device.capturing.insert(address, OpenCapture { graph, begin: origin, ops });
        let stream = self.device.stream(address, self.names);
        // What it forbids has failed, and is no operation; a thread that was let do it is not recorded.
        let mode = CaptureMode::Relaxed;
        one(Op::Graph(GraphOp::Begin { graph, stream, mode, pool: None }), origin)
    }

    pub(super) fn capture_ends(&mut self, call: &Shape, made: Option<u64>, origin: Origin) -> Vec<Lowered> {
        self.cache.clear();
        let Some(OpenCapture { graph, .. }) = self.device.capturing.remove(&number(call, "stream")) else {
            self.known_until(Some(origin), Lacks::Origin("capture"));
            return Vec::new();
        };
        if let Some(made) = made {
            self.device.graphs.insert(made, KnownGraph::Captured(graph));
        }
        let begins = |op: &&Statement| !matches!(&op.op, Op::Graph(GraphOp::Begin { graph: other, .. }) if *other == graph);
        let inside = self.ops.iter().rev().take_while(begins);
        if inside.clone().any(|op| touches(&op.op)) {
            self.device.touching.insert(graph);
        }
        let comms = inside.filter_map(|op| self.program.collects_on(op)).collect();
        self.device.collectives.insert(graph, comms);
        one(Op::Graph(GraphOp::End { graph }), origin)
    }

    /// A capture gives no graph: what was launched since it began may be lost, and may have run.
    pub(super) fn capture_lost(&mut self, call: &Shape) {
        self.cache.clear();
        if let Some(capture) = self.device.capturing.remove(&number(call, "stream")) {
            self.known_until(Some(capture.begin), Lacks::Capture);
            if let Some(until) = &mut self.program.until {
                until.ops = until.ops.min(capture.ops);
            }
        }
    }

    pub(super) fn instantiated(&mut self, call: &Shape, made: Option<u64>) -> Vec<Lowered> {
        match (self.device.graphs.get(&number(call, "graph")), made) {
            (Some(graph), Some(made)) => {
                self.device.executables.insert(made, *graph);
                Vec::new()
            }
            // Where it is launched it is missed.
            (None, _) | (_, None) => Vec::new(),
        }
    }

    /// What was launched of one graph so far is launched of another from now on.
    pub(super) fn graph_updated(&mut self, call: &Shape) -> Vec<Lowered> {
        self.cache.clear();
        let executable = number(call, "executable");
        match self.device.graphs.get(&number(call, "graph")).copied() {
            Some(graph) => _ = self.device.executables.insert(executable, graph),
            // Where it is launched it is missed.
            None => _ = self.device.executables.remove(&executable),
        }
        Vec::new()
    }

    pub(super) fn graph_created(&mut self, made: Option<u64>) -> Vec<Lowered> {
        if let Some(made) = made {
            self.device.graphs.insert(made, KnownGraph::Kernels);
        }
        Vec::new()
    }

    pub(super) fn graph_cloned(&mut self, call: &Shape, made: Option<u64>) -> Vec<Lowered> {
        if let (Some(graph), Some(made)) = (self.device.graphs.get(&number(call, "from")).copied(), made) {
            self.device.graphs.insert(made, graph);
        }
        Vec::new()
    }

    /// A graph becomes a node of another one, which is not known any more if that is more than kernels.
    pub(super) fn graph_taken_in(&mut self, call: &Shape) -> Vec<Lowered> {
        let kernels = match self.device.graphs.get(&number(call, "child")) {
            Some(KnownGraph::Captured(child)) => !self.device.touching.contains(child),
            Some(KnownGraph::Kernels) => true,
            None => false,
        };
        if !kernels {
            self.device.graphs.remove(&number(call, "graph"));
        }
        Vec::new()
    }

    pub(super) fn graph_launched(&mut self, shape: ShapeId, call: &Shape, origin: Origin) -> Vec<Lowered> {
        let graph = match self.device.executables.get(&number(call, "executable")) {
            Some(KnownGraph::Captured(graph)) => *graph,
            Some(KnownGraph::Kernels) => {
                self.unjudged(Unjudged::Kernel, &call.name);
                return self.captured_node(call, origin);
            }
            None => {
                self.known_until(Some(origin), Lacks::Origin("graph"));
                return Vec::new();
            }
        };
        let stream = self.device.stream(number(call, "stream"), self.names);
        self.launched(shape, Op::Graph(GraphOp::Replay { graph, stream }), stream, origin)
    }

    /// The last that can be launched of a graph counts.
    pub(super) fn executable_destroyed(&mut self, call: &Shape, origin: Origin) -> Vec<Lowered> {
        self.cache.clear();
        match self.device.executables.remove(&number(call, "executable")) {
            Some(KnownGraph::Captured(graph)) => {
                let same =
                    |other: &KnownGraph| matches!(other, KnownGraph::Captured(other) if *other == graph);
                match self.device.executables.values().any(same) {
                    true => Vec::new(),
                    false => one(Op::Graph(GraphOp::Destroy { graph }), origin),
                }
            }
            Some(KnownGraph::Kernels) | None => Vec::new(),
        }
    }

    pub(super) fn graph_destroyed(&mut self, call: &Shape) -> Vec<Lowered> {
        self.device.graphs.remove(&number(call, "graph"));
        Vec::new()
    }
}

/// Whether an operation that a capture took in does more than a kernel of which nothing is known.
#[expect(clippy::wildcard_enum_match_arm, reason = "few operations are captured")]
fn touches(op: &Op) -> bool {
    match op {
        Op::Stream(StreamOp::Kernel { reads, writes, .. }) => !reads.is_empty() || !writes.is_empty(),
        Op::Collective(_) | Op::Transfer(_) | Op::Graph(GraphOp::Replay { .. }) => true,
        _ => false,
    }
}
