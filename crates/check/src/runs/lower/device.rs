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
/// The legacy default stream by its handles.
const LEGACY: [u64; 2] = [0, 1];

/// Whether a launch waits for more than what stands before it on its stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Implicit {
    Yes,
    No,
}

/// The handles of a process.
#[derive(Debug)]
pub(super) struct DeviceHandles {
    default: Token,
    streams: FxHashMap<u64, Token>,
    used: FxHashSet<Token>,
    made: u32,
    /// Streams that the default stream waits for, and that wait for it.
    blocking: Vec<Token>,
    /// Launches on those and on the default stream since the last wait between them.
    fresh: FxHashSet<Token>,
    events: FxHashMap<u64, Token>,
    events_made: u32,
    /// Captures by the stream that began them, then by the graph and by what can be launched.
    capturing: FxHashMap<u64, Token>,
    graphs: FxHashMap<u64, Token>,
    executables: FxHashMap<u64, Token>,
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
            used: FxHashSet::default(),
            made: 0,
            blocking: Vec::new(),
            fresh: FxHashSet::default(),
            events: FxHashMap::default(),
            events_made: 0,
            capturing: FxHashMap::default(),
            graphs: FxHashMap::default(),
            executables: FxHashMap::default(),
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
        let graph = self.executables.get(&executable);
        graph.and_then(|graph| self.collectives.get(graph)).map_or(&[], Vec::as_slice)
    }

    pub(super) fn stream(&mut self, address: u64, names: &SourceNames) -> Token {
        if LEGACY.contains(&address) {
            return self.default;
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

    pub(super) fn event_recorded(&mut self, shape: ShapeId, call: &Shape, origin: Origin) -> Vec<Lowered> {
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
        let name = self.names.token(call.name.trim_start_matches("cuda").trim_end_matches("Async"));
        let mut items = Vec::new();
        if !reads.is_empty() || !writes.is_empty() {
            items = self.launched(
                shape,
                Op::Stream(StreamOp::Kernel { name, reads, writes, stream }),
                stream,
                origin,
            );
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
        self.device.capturing.insert(address, graph);
        let stream = self.device.stream(address, self.names);
        // What it forbids has failed, and is no operation; a thread that was let do it is not recorded.
        let mode = CaptureMode::Relaxed;
        one(Op::Graph(GraphOp::Begin { graph, stream, mode, pool: None }), origin)
    }

    pub(super) fn capture_ends(&mut self, call: &Shape, made: Option<u64>, origin: Origin) -> Vec<Lowered> {
        self.cache.clear();
        let Some(graph) = self.device.capturing.remove(&number(call, "stream")) else {
            self.known_until(Some(origin), Lacks::Origin("capture"));
            return Vec::new();
        };
        if let Some(made) = made {
            self.device.graphs.insert(made, graph);
        }
        let begins = |op: &&Statement| !matches!(&op.op, Op::Graph(GraphOp::Begin { graph: other, .. }) if *other == graph);
        let inside = self.ops.iter().rev().take_while(begins);
        let comms = inside.filter_map(|op| self.program.collects_on(op)).collect();
        self.device.collectives.insert(graph, comms);
        one(Op::Graph(GraphOp::End { graph }), origin)
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

    pub(super) fn graph_launched(&mut self, shape: ShapeId, call: &Shape, origin: Origin) -> Vec<Lowered> {
        let Some(&graph) = self.device.executables.get(&number(call, "executable")) else {
            self.known_until(Some(origin), Lacks::Origin("graph"));
            return Vec::new();
        };
        let stream = self.device.stream(number(call, "stream"), self.names);
        self.launched(shape, Op::Graph(GraphOp::Replay { graph, stream }), stream, origin)
    }

    /// The last that can be launched of a graph counts.
    pub(super) fn executable_destroyed(&mut self, call: &Shape, origin: Origin) -> Vec<Lowered> {
        self.cache.clear();
        match self.device.executables.remove(&number(call, "executable")) {
            Some(graph) if !self.device.executables.values().any(|other| *other == graph) => {
                one(Op::Graph(GraphOp::Destroy { graph }), origin)
            }
            Some(_) | None => Vec::new(),
        }
    }

    pub(super) fn graph_destroyed(&mut self, call: &Shape) -> Vec<Lowered> {
        self.device.graphs.remove(&number(call, "graph"));
        Vec::new()
    }
}
