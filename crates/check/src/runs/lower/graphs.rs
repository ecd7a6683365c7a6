//! Graphs of one process: captured, put together, launched.
//!
//! A launch of a graph that a program puts together stands behind all that is on its stream, and before all that comes:
//! so its nodes are written as launches on that stream, in an order that its edges allow. What they do to one another
//! without an edge is not judged. Not here: what a replay of a capture does, which is the model's.

use std::sync::Arc;

use rankcheck_model::{CaptureMode, EventOp, GraphOp, MemoryKind, Op, Operand, Statement, StreamOp, Token};
use rankcheck_recording::{Argument, Shape, ShapeId};
use rustc_hash::{FxHashMap, FxHashSet};

use super::call::{number, one};
use super::device::DeviceHandles;
use super::touches::{ByteSpan, TouchedBytes, numbers};
use super::{Lacks, Lowered, Lowering, Origin};
use crate::runs::call::{NodeKind, Unjudged};
use crate::runs::vendor;
use crate::runs::waits::MayWait;
use crate::runs::world::RunCommId;

/// A graph of which is known what a launch of it does.
#[derive(Debug, Clone)]
pub(super) enum KnownGraph {
    Captured(Token),
    /// A program put it together.
    Made(Arc<MadeGraph>),
}

/// A graph that a program puts together.
#[derive(Debug, Clone, Default)]
pub(super) struct MadeGraph {
    nodes: Vec<MadeNode>,
}

#[derive(Debug, Clone)]
struct MadeNode {
    /// None is known of what a capture adds.
    handle: u64,
    /// The nodes that come before it.
    behind: Vec<u64>,
    does: NodeAction,
    name: Token,
}

/// What is known of what a node does.
#[derive(Debug, Clone)]
enum NodeAction {
    /// It is a kernel, or nothing. Others of which nothing is known were counted when they came in.
    Nothing,
    Touches {
        reads: Vec<ByteSpan>,
        writes: Vec<ByteSpan>,
    },
    /// It makes all memory at an address its own, or gives it up.
    Owns(u64),
    Child(KnownGraph),
    Records(u64),
    Waits(u64),
    Host,
}

/// A capture that has begun.
#[derive(Debug)]
pub(super) struct OpenCapture {
    pub(super) graph: Token,
    begin: Origin,
    /// How many operations of the first thread come before it.
    ops: usize,
    /// The nodes behind which it goes into a graph that is there already.
    behind: Vec<u64>,
}

impl MadeGraph {
    /// Indices of nodes, each behind those that come before it.
    fn in_order(&self) -> Vec<usize> {
        let mut order = Vec::with_capacity(self.nodes.len());
        let mut seen = vec![false; self.nodes.len()];
        let by_handle = self.by_handle();
        for first in 0..self.nodes.len() {
            let mut path = vec![(first, 0)];
            while let Some((at, next)) = path.pop() {
                if next == 0 && std::mem::replace(&mut seen[at], true) {
                    continue;
                }
                match self.nodes[at].behind.get(next) {
                    Some(handle) => {
                        path.push((at, next + 1));
                        path.extend(
                            by_handle.get(handle).filter(|before| !seen[**before]).map(|before| (*before, 0)),
                        );
                    }
                    None => order.push(at),
                }
            }
        }
        order
    }

    fn by_handle(&self) -> FxHashMap<u64, usize> {
        self.nodes
            .iter()
            .enumerate()
            .map(|(at, node)| (node.handle, at))
            .filter(|(handle, _)| *handle != 0)
            .collect()
    }

    /// Pairs of nodes that do something and that no edges order.
    fn unordered(&self) -> Vec<(usize, usize)> {
        let by_handle = self.by_handle();
        let doing: Vec<usize> = (0..self.nodes.len()).filter(|at| self.nodes[*at].does.is_judged()).collect();
        let before = |of: usize| {
            let (mut seen, mut open) = (FxHashSet::default(), vec![of]);
            while let Some(at) = open.pop() {
                let next = self.nodes[at].behind.iter().filter_map(|handle| by_handle.get(handle).copied());
                open.extend(next.filter(|next| seen.insert(*next)));
            }
            seen
        };
        let before: Vec<FxHashSet<usize>> = doing.iter().map(|at| before(*at)).collect();
        let mut pairs = Vec::new();
        for (nth, one) in doing.iter().enumerate() {
            for (more, other) in doing.iter().enumerate().skip(nth + 1) {
                if !before[nth].contains(other) && !before[more].contains(one) {
                    pairs.push((*one, *other));
                }
            }
        }
        pairs
    }

    fn change(&mut self, handle: u64, does: NodeAction) {
        let nodes = self.nodes.iter_mut().filter(|node| node.handle == handle);
        nodes.for_each(|node| node.does = does.clone());
    }
}

impl NodeAction {
    fn is_judged(&self) -> bool {
        matches!(self, Self::Touches { .. } | Self::Owns(_) | Self::Child(_))
    }

    /// Whether two nodes may be in each other's way.
    fn meets(&self, other: &Self) -> bool {
        let (Self::Touches { reads, writes }, Self::Touches { reads: others_reads, writes: others_writes }) =
            (self, other)
        else {
            return true;
        };
        let overlap = |some: &[ByteSpan], others: &[ByteSpan]| {
            some.iter().any(|a| others.iter().any(|b| a.0 < b.0 + b.1 && b.0 < a.0 + a.1))
        };
        overlap(writes, others_writes) || overlap(writes, others_reads) || overlap(reads, others_writes)
    }
}

impl KnownGraph {
    /// Calls this with each capture that a launch replays.
    fn captures(&self, each: &mut dyn FnMut(Token)) {
        match self {
            Self::Captured(graph) => each(*graph),
            Self::Made(made) => {
                for node in &made.nodes {
                    if let NodeAction::Child(child) = &node.does {
                        child.captures(each);
                    }
                }
            }
        }
    }
}

impl DeviceHandles {
    /// The communicators on which a launch of what is at an address does collectives, one for each.
    pub(super) fn collectives_of(&self, executable: u64) -> Vec<RunCommId> {
        let mut found = Vec::new();
        if let Some(graph) = self.executables.get(&executable) {
            graph.captures(&mut |graph| found.extend(self.collectives.get(&graph).into_iter().flatten()));
        }
        found
    }

    /// Whether a launch does more than kernels.
    fn does_something(&self, graph: &KnownGraph) -> bool {
        match graph {
            KnownGraph::Captured(graph) => self.touching.contains(graph),
            KnownGraph::Made(made) => made.nodes.iter().any(|node| match &node.does {
                NodeAction::Child(child) => self.does_something(child),
                NodeAction::Touches { .. } | NodeAction::Owns(_) => true,
                NodeAction::Nothing | NodeAction::Records(_) | NodeAction::Waits(_) | NodeAction::Host => {
                    false
                }
            }),
        }
    }

    /// Whether a launch waits for other ranks.
    fn communicates(&self, does: &NodeAction) -> bool {
        let NodeAction::Child(child) = does else { return false };
        self.does_something(child)
    }
}

/// The handles that a call lists; none if they are not known.
fn handles(call: &Shape, key: &str) -> Vec<u64> {
    match call.get(key) {
        Some(Argument::Bytes(encoded)) => numbers(encoded).collect(),
        Some(_) | None => Vec::new(),
    }
}

impl Lowering<'_> {
    pub(super) fn capture_begins(&mut self, call: &Shape, origin: Origin) -> Vec<Lowered> {
        self.cache.clear();
        let address = number(call, "stream");
        let graph = self.device.captured(self.names);
        let ops = self.ops.len();
        self.device
            .capturing
            .insert(address, OpenCapture { graph, begin: origin, ops, behind: handles(call, "behind") });
        let stream = self.device.stream(address, self.names);
        // What it forbids has failed, and is no operation; a thread that was let do it is not recorded.
        let mode = CaptureMode::Relaxed;
        one(Op::Graph(GraphOp::Begin { graph, stream, mode, pool: None }), origin)
    }

    pub(super) fn capture_ends(&mut self, call: &Shape, made: Option<u64>, origin: Origin) -> Vec<Lowered> {
        self.cache.clear();
        let Some(OpenCapture { graph, behind, .. }) = self.device.capturing.remove(&number(call, "stream"))
        else {
            self.known_until(Some(origin), Lacks::Origin("capture"));
            return Vec::new();
        };
        if let Some(made) = made {
            let captured = KnownGraph::Captured(graph);
            match self.device.graphs.get_mut(&made) {
                // It goes into a graph that is there already.
                Some(KnownGraph::Made(other)) if !other.nodes.is_empty() => {
                    let name = self.names.token(&call.name);
                    let node = MadeNode { handle: 0, behind, does: NodeAction::Child(captured), name };
                    Arc::make_mut(other).nodes.push(node);
                }
                Some(_) | None => _ = self.device.graphs.insert(made, captured),
            }
        }
        let begins = |op: &&Statement| !matches!(&*op.op, Op::Graph(GraphOp::Begin { graph: other, .. }) if *other == graph);
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
                self.device.executables.insert(made, graph.clone());
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
        match self.device.graphs.get(&number(call, "graph")).cloned() {
            Some(graph) => _ = self.device.executables.insert(executable, graph),
            // Where it is launched it is missed.
            None => _ = self.device.executables.remove(&executable),
        }
        Vec::new()
    }

    pub(super) fn graph_created(&mut self, made: Option<u64>) -> Vec<Lowered> {
        if let Some(made) = made {
            self.device.graphs.insert(made, KnownGraph::Made(Arc::default()));
        }
        Vec::new()
    }

    pub(super) fn graph_cloned(&mut self, call: &Shape, made: Option<u64>) -> Vec<Lowered> {
        if let (Some(graph), Some(made)) = (self.device.graphs.get(&number(call, "from")).cloned(), made) {
            self.device.graphs.insert(made, graph);
        }
        Vec::new()
    }

    /// A graph gets a node. One that was captured becomes the first node of a graph that is put together.
    pub(super) fn node_added(
        &mut self,
        kind: NodeKind,
        call: &Shape,
        result: Option<&Shape>,
        origin: Origin,
    ) -> Vec<Lowered> {
        let does = self.node_does(kind, call, result, origin);
        let handle = result.map_or(0, |result| number(result, "node"));
        let name = self.names.token(&call.name);
        match self.device.graphs.get_mut(&number(call, "graph")) {
            Some(graph) => {
                let node = MadeNode { handle, behind: handles(call, "behind"), does, name };
                if let KnownGraph::Captured(_) = graph {
                    let first = MadeNode {
                        handle: 0,
                        behind: Vec::new(),
                        does: NodeAction::Child(graph.clone()),
                        name,
                    };
                    *graph = KnownGraph::Made(Arc::new(MadeGraph { nodes: vec![first] }));
                }
                if let KnownGraph::Made(made) = graph {
                    Arc::make_mut(made).nodes.push(node);
                }
                Vec::new()
            }
            None if matches!(does, NodeAction::Nothing) => Vec::new(),
            None => self.unjudged(Unjudged::Node, &call.name),
        }
    }

    fn node_does(
        &mut self,
        kind: NodeKind,
        call: &Shape,
        result: Option<&Shape>,
        origin: Origin,
    ) -> NodeAction {
        let said = || call.get("kind").and_then(Argument::number).map_or(NodeKind::NotFollowed, vendor::node);
        // Older recordings do not say it.
        let kind = if kind == NodeKind::Said { said() } else { kind };
        let event = number(call, "event");
        match kind {
            NodeKind::Kernel => NodeAction::Nothing,
            NodeKind::Touches => {
                // Of a node that allocates or frees the same call has an address.
                let TouchedBytes { reads, writes, lacks } = TouchedBytes::of_strips(call);
                if let Some(why) = lacks {
                    self.unjudged(why, &call.name);
                }
                NodeAction::Touches { reads, writes }
            }
            NodeKind::Host => NodeAction::Host,
            // The handle may go to another graph: what it is now is the node.
            NodeKind::Child => match self.device.graphs.get(&number(call, "child")) {
                Some(child) => NodeAction::Child(child.clone()),
                None => {
                    self.unjudged(Unjudged::Node, &call.name);
                    NodeAction::Nothing
                }
            },
            NodeKind::Records | NodeKind::Waits => {
                // Which launch it was that recorded, or is waited for, is not followed.
                self.unjudged(Unjudged::Word, &call.name);
                if kind == NodeKind::Records { NodeAction::Records(event) } else { NodeAction::Waits(event) }
            }
            NodeKind::Allocates => {
                let address = result.map_or(0, |result| number(result, "address"));
                self.appeared(address, number(call, "bytes"), MemoryKind::Cuda, origin);
                self.memory.of_graph(address);
                NodeAction::Owns(address)
            }
            NodeKind::Frees => NodeAction::Owns(number(call, "address")),
            NodeKind::NotFollowed | NodeKind::Said => {
                self.unjudged(Unjudged::Node, &call.name);
                NodeAction::Nothing
            }
        }
    }

    /// A node does something else, in all graphs that have it or in what can be launched of one.
    pub(super) fn node_changed(&mut self, kind: NodeKind, call: &Shape, origin: Origin) -> Vec<Lowered> {
        let (does, node) = (self.node_does(kind, call, None, origin), number(call, "node"));
        let device = &mut self.device;
        let graphs: Vec<&mut KnownGraph> = match call.get("executable").and_then(Argument::number) {
            Some(executable) => device.executables.get_mut(&executable).into_iter().collect(),
            None => device.graphs.values_mut().collect(),
        };
        for graph in graphs {
            if let KnownGraph::Made(made) = graph
                && made.nodes.iter().any(|other| other.handle == node)
            {
                Arc::make_mut(made).change(node, does.clone());
            }
        }
        Vec::new()
    }

    pub(super) fn node_destroyed(&mut self, call: &Shape) -> Vec<Lowered> {
        let node = number(call, "node");
        for graph in self.device.graphs.values_mut() {
            if let KnownGraph::Made(made) = graph
                && made.nodes.iter().any(|other| other.handle == node)
            {
                Arc::make_mut(made).nodes.retain(|other| other.handle != node);
            }
        }
        Vec::new()
    }

    pub(super) fn edges_added(&mut self, call: &Shape) -> Vec<Lowered> {
        let edges = handles(call, "from").into_iter().zip(handles(call, "to"));
        if let Some(KnownGraph::Made(made)) = self.device.graphs.get_mut(&number(call, "graph")) {
            let made = Arc::make_mut(made);
            for (from, to) in edges {
                let ends = made.nodes.iter_mut().filter(|node| node.handle == to);
                ends.for_each(|node| node.behind.push(from));
            }
        }
        Vec::new()
    }

    /// Which edges are left is not followed: none is taken to be.
    pub(super) fn edges_removed(&mut self, call: &Shape) -> Vec<Lowered> {
        if let Some(KnownGraph::Made(made)) = self.device.graphs.get_mut(&number(call, "graph")) {
            Arc::make_mut(made).nodes.iter_mut().for_each(|node| node.behind.clear());
        }
        Vec::new()
    }

    pub(super) fn graph_launched(&mut self, shape: ShapeId, call: &Shape, origin: Origin) -> Vec<Lowered> {
        let Some(graph) = self.device.executables.get(&number(call, "executable")).cloned() else {
            self.known_until(Some(origin), Lacks::Origin("graph"));
            return Vec::new();
        };
        let stream = self.device.stream(number(call, "stream"), self.names);
        if let KnownGraph::Captured(graph) = graph
            && !self.device.calling_back.contains(&graph)
        {
            return self.launched(shape, Op::Graph(GraphOp::Replay { graph, stream }), stream, origin);
        }
        self.ordered(stream, origin);
        let mut items = Vec::new();
        self.graph_runs(&graph, stream, (call, origin), &mut items);
        // A replay is one operation, whatever was captured.
        if matches!(graph, KnownGraph::Made(_)) && !self.device.does_something(&graph) {
            self.unjudged(Unjudged::Kernel, &call.name);
            items.extend(self.captured_node(call, origin));
        }
        items
    }

    /// What a launch of a graph does, in an order that its edges allow.
    fn graph_runs(
        &mut self,
        graph: &KnownGraph,
        stream: Token,
        (call, origin): (&Shape, Origin),
        items: &mut Vec<Lowered>,
    ) {
        let made = match graph {
            &KnownGraph::Captured(graph) => {
                if self.device.calling_back.contains(&graph) {
                    self.program.waits.may_wait(MayWait::HostFunction, self.ops.len());
                }
                items.extend(one(Op::Graph(GraphOp::Replay { graph, stream }), origin));
                return;
            }
            KnownGraph::Made(made) => Arc::clone(made),
        };
        for (a, b) in made.unordered() {
            let (a, b) = (&made.nodes[a].does, &made.nodes[b].does);
            if self.device.communicates(a) && self.device.communicates(b) {
                // Which of them a device begins with nobody knows.
                self.known_until(Some(origin), Lacks::Value("order of nodes"));
            } else if a.meets(b) {
                self.unjudged(Unjudged::Nodes, &call.name);
            }
        }
        let mut events = Vec::new();
        let push = |op: Op, items: &mut Vec<Lowered>| items.extend(one(op, origin));
        for node in made.in_order().into_iter().map(|at| &made.nodes[at]) {
            let kernel = |reads: Arc<[Operand]>, writes: Arc<[Operand]>| {
                Op::Stream(StreamOp::Kernel { name: node.name, reads, writes, stream })
            };
            match &node.does {
                NodeAction::Nothing => {}
                NodeAction::Touches { reads, writes } => {
                    let (reads, writes) = (self.on_device(reads, origin), self.on_device(writes, origin));
                    push(kernel(reads, writes), items);
                }
                NodeAction::Owns(address) => {
                    let all = self.buffer_to_end(*address, origin);
                    push(kernel([].into(), [all].into()), items);
                }
                NodeAction::Child(child) => self.graph_runs(child, stream, (call, origin), items),
                NodeAction::Waits(event) => {
                    let event = self.event_at(*event);
                    items.insert(0, Lowered::of(Op::Stream(StreamOp::Wait { stream, event }), origin));
                }
                NodeAction::Records(event) => events.push(self.event_at(*event)),
                NodeAction::Host => self.program.waits.may_wait(MayWait::HostFunction, self.ops.len()),
            }
        }
        for event in events {
            push(Op::Event(EventOp { event, stream }), items);
        }
    }

    /// A capture is destroyed with the last that can be launched of it.
    pub(super) fn executable_destroyed(&mut self, call: &Shape, origin: Origin) -> Vec<Lowered> {
        self.cache.clear();
        let Some(gone) = self.device.executables.remove(&number(call, "executable")) else {
            return Vec::new();
        };
        let mut used = FxHashSet::default();
        for executable in self.device.executables.values() {
            executable.captures(&mut |graph| _ = used.insert(graph));
        }
        let mut items = Vec::new();
        gone.captures(&mut |graph| {
            if used.insert(graph) {
                items.extend(one(Op::Graph(GraphOp::Destroy { graph }), origin));
            }
        });
        items
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
