//! What each kind of recorded call becomes.
//!
//! Not here: which call is of which kind ([`crate::runs::call`]), and where its operation is written.

use std::sync::Arc;

use rankcheck_model::{
    Collective, CollectiveKind, CommOp, Counting, Declared, Direction, MemoryKind, Op, Operand, Parting,
    Rank, Resources, Transfer, WindowFlags, WindowOp,
};
use rankcheck_recording::{Argument, Shape, ShapeId};

use super::device::SharedBy;
use super::window::Before;
use super::{Bind, Lacks, Lowered, Lowering, Origin};
use crate::runs::call::{Allocator, CallKind, Unjudged, signed};
use crate::runs::fold::CallRole;
use crate::runs::regions::MemoryAt;
use crate::runs::vendor;
use crate::runs::world::{LocalComm, RunCommId};

pub(super) fn number(call: &Shape, key: &str) -> u64 {
    call.get(key).and_then(Argument::number).unwrap_or(0)
}

impl Lowering<'_> {
    /// The operations of a call. `result` is what it returned; none where that says nothing, or never came.
    pub(super) fn items(
        &mut self,
        kind: CallKind,
        (shape, call): (ShapeId, &Shape),
        result: Option<&Shape>,
        origin: Origin,
    ) -> Vec<Lowered> {
        if std::mem::take(&mut self.device.order_changed) {
            self.cache.clear();
        }
        let role = self.left.roles.of(origin.number);
        if role == Some(CallRole::Nothing) {
            return Vec::new();
        }
        let by_role = matches!(role, Some(CallRole::Event(_)));
        if let Some(op) = self.cache.get(&shape).filter(|_| !by_role) {
            return one(Arc::clone(op), origin);
        }
        let given = |key: &str| result.and_then(|result| result.get(key)).and_then(Argument::number);
        match kind {
            CallKind::GroupStart
            | CallKind::GroupEnd
            | CallKind::RegisterBuffer
            | CallKind::DeregisterBuffer
            | CallKind::Nothing
            | CallKind::Current(_)
            | CallKind::Store
            | CallKind::Process
            | CallKind::Exit
            | CallKind::GroupWindow
            | CallKind::ProcessGroup
            | CallKind::MakesGroup
            | CallKind::Barrier
            | CallKind::Backward
            | CallKind::Exception
            | CallKind::Exists
            | CallKind::HostFunctionRuns
            | CallKind::Note => Vec::new(),
            CallKind::Unjudged(why) => {
                let stream = self.device.stream(number(call, "stream"), self.names);
                self.program.unknown_work.insert(stream, origin.number);
                self.unjudged(why, &call.name);
                self.captured_node(call, origin)
            }
            CallKind::HostFunction => self.host_function(shape, call, origin),
            CallKind::Init | CallKind::InitAll | CallKind::Shrink => self.init(call, given("comm"), origin),
            CallKind::Split => self.split(call, given("comm"), origin),
            CallKind::Destroy => self.destroy(call, origin),
            CallKind::Register => self.register(call, result, origin),
            CallKind::Deregister => self.deregister(call, origin),
            CallKind::Transfer(direction) => self.transfer(direction, shape, call, origin),
            CallKind::Collective(kind) => self.collect(kind, shape, call, origin),
            CallKind::Allocate(allocator) => self.allocated(allocator, call, result, origin),
            // Whether it has a handle that can be shared is not recorded; a registration says so by its result.
            CallKind::Map if self.member.shared.imports.contains(&u64::from(origin.number)) => {
                self.open(call.get("address").and_then(Argument::number), origin)
            }
            CallKind::Map => {
                self.appeared(number(call, "address"), number(call, "bytes"), MemoryKind::CuMem, origin)
            }
            CallKind::Free(Allocator::CudaAsync) | CallKind::Unmap
                if self.memory.mapping(number(call, "address")).is_some() =>
            {
                self.close(number(call, "address"), origin)
            }
            CallKind::Free(Allocator::CudaAsync) => self.free_on(call, origin),
            CallKind::Free(Allocator::Nccl | Allocator::Cuda | Allocator::CudaPitched) | CallKind::Unmap => {
                self.free(call, origin)
            }
            CallKind::Share(shared) => self.shared(shared, call, given("address"), origin),
            CallKind::Rendezvous => self.rendezvous(call, origin),
            CallKind::Signal(signal) => self.signalled(signal, call, origin),
            CallKind::IpcExport => self.export(origin),
            CallKind::IpcOpen => self.open(given("address"), origin),
            CallKind::IpcClose => self.close(number(call, "address"), origin),
            CallKind::StreamCreate => self.stream_created(call, given("stream")),
            CallKind::StreamDestroy => self.stream_destroyed(call),
            CallKind::Synchronize(what) | CallKind::Query(what) => self.synchronize(what, call, origin),
            CallKind::EventRecord => self.event_recorded(shape, call, origin),
            CallKind::StreamWaitEvent => self.stream_waits(shape, call, origin),
            CallKind::EventDestroy => self.event_destroyed(call),
            CallKind::EventExport => self.event_shared(Some(number(call, "event")), SharedBy::Me),
            CallKind::EventOpen => self.event_shared(given("event"), SharedBy::Another),
            CallKind::Copy(returns) => self.copy(returns, shape, call, origin),
            CallKind::BeginCapture => self.capture_begins(call, origin),
            CallKind::EndCapture => self.capture_ends(call, given("graph"), origin),
            CallKind::Instantiate => self.instantiated(call, given("executable")),
            CallKind::GraphUpdate => self.graph_updated(call),
            CallKind::GraphCreate => self.graph_created(given("graph")),
            CallKind::GraphClone => self.graph_cloned(call, given("graph")),
            CallKind::GraphNode(kind) => self.node_added(kind, call, result, origin),
            CallKind::GraphNodeChange(kind) => self.node_changed(kind, call, origin),
            CallKind::GraphNodeDestroy => self.node_destroyed(call),
            CallKind::GraphEdges => self.edges_added(call),
            CallKind::GraphEdgesRemove => self.edges_removed(call),
            CallKind::GraphLaunch => self.graph_launched(shape, call, origin),
            CallKind::ExecutableDestroy => self.executable_destroyed(call, origin),
            CallKind::GraphDestroy => self.graph_destroyed(call),
        }
    }

    /// The communicator that lives, or lived last, at an address.
    pub(super) fn comm(&self, address: u64) -> Option<RunCommId> {
        self.comms.get(&address).copied()
    }

    fn operand(&self, comm: RunCommId) -> Operand {
        self.of_comm.get(&comm).cloned().unwrap_or(Operand::Null)
    }

    /// The communicator that the next call which makes one makes.
    fn next_born(&mut self, address: Option<u64>) -> RunCommId {
        let comm = self.member.comm(LocalComm(self.born));
        self.born += 1;
        self.cache.clear();
        if let Some(address) = address {
            self.comms.insert(address, comm);
        }
        comm
    }

    fn init(&mut self, call: &Shape, address: Option<u64>, origin: Origin) -> Vec<Lowered> {
        let comm = self.next_born(address);
        if call.get("blocking").and_then(Argument::number) == Some(0) {
            self.not_blocking.insert(comm);
        }
        let members: Arc<[Rank]> = self.orders[comm.0 as usize].as_slice().into();
        let name = self.names.token(&self.world.comm(comm).name);
        let children = if number(call, "share") == 0 { Resources::Own } else { Resources::Shared };
        let op = Op::Comm(CommOp::Init { name, members, children });
        vec![Lowered { op: op.into(), origin, bind: Bind::Comm(comm) }]
    }

    /// A communicator that existed when the recording began: all its members had it.
    pub(super) fn exists(&mut self, call: &Shape, origin: Origin) {
        let known = |key: &str| call.get(key).and_then(Argument::number);
        let Some(address) = known("comm") else { return };
        for item in self.init(call, Some(address), origin) {
            if let Bind::Comm(comm) = item.bind {
                let before = Before { collectives: known("collectives"), set_ups: known("set_ups") };
                self.program.before.insert(comm, before);
            }
            self.write(item);
        }
    }

    fn split(&mut self, call: &Shape, address: Option<u64>, origin: Origin) -> Vec<Lowered> {
        let Some(parent) = self.comm(number(call, "comm")) else {
            return self.unjudged(Unjudged::Unseen, &call.name);
        };
        let color = Some(signed(call, "color")).filter(|color| *color >= 0);
        let comm = self.operand(parent);
        let (name, bind) = match color {
            Some(_) => {
                let child = self.next_born(address);
                // Nobody said otherwise of the child, and it takes after its parent.
                if self.not_blocking.contains(&parent) {
                    self.not_blocking.insert(child);
                }
                (self.names.token(&self.world.comm(child).name), Bind::Comm(child))
            }
            None => (self.names.token("no child"), Bind::Nothing),
        };
        vec![Lowered { op: Op::Comm(CommOp::Split { comm, name, color }).into(), origin, bind }]
    }

    fn destroy(&mut self, call: &Shape, origin: Origin) -> Vec<Lowered> {
        self.cache.clear();
        // NCCL returns success for no communicator, and does nothing.
        if call.get("comm").and_then(Argument::number) == Some(0) {
            return Vec::new();
        }
        match self.comm(number(call, "comm")) {
            Some(comm) => {
                one(Op::Comm(CommOp::Destroy { comm: self.operand(comm), parting: Parting::Alone }), origin)
            }
            None => self.unjudged(Unjudged::Unseen, &call.name),
        }
    }

    fn register(&mut self, call: &Shape, result: Option<&Shape>, origin: Origin) -> Vec<Lowered> {
        let bind = match result.and_then(|result| result.get("window")) {
            Some(Argument::None) => Bind::Unnamed,
            window => match window.and_then(Argument::number) {
                Some(window) if window != 0 => Bind::Window(window),
                Some(_) | None => Bind::Nothing,
            },
        };
        let Some(comm) = self.comm(number(call, "comm")) else {
            return self.unjudged(Unjudged::Unseen, &call.name);
        };
        let (address, bytes) = (number(call, "address"), number(call, "bytes"));
        if address != 0 && matches!(self.memory.find(address, bytes), MemoryAt::Unknown) {
            // Memory that nobody was seen to allocate is as long as what is registered.
            self.appeared(address, bytes, MemoryKind::Nccl, origin);
        }
        let memory = self.buffer(address, bytes, origin);
        let flags = match number(call, "flags") {
            0 => WindowFlags::Default,
            _ => WindowFlags::CollSymmetric,
        };
        vec![Lowered {
            op: Op::Window(WindowOp::Register { comm: self.operand(comm), memory, flags }).into(),
            origin,
            bind,
        }]
    }

    fn deregister(&mut self, call: &Shape, origin: Origin) -> Vec<Lowered> {
        let window = self.windows.get(&number(call, "window")).cloned();
        match (self.comm(number(call, "comm")), window) {
            (Some(comm), Some(window)) => {
                one(Op::Window(WindowOp::Deregister { comm: self.operand(comm), window }), origin)
            }
            (None, _) => self.unjudged(Unjudged::Unseen, &call.name),
            (Some(_), None) => {
                self.known_until(Some(origin), Lacks::Origin("window"));
                Vec::new()
            }
        }
    }

    /// The model's number of a rank of a communicator; none if that rank was not recorded, or may not have been. A rank that the
    /// communicator does not have keeps its number, so that it is found.
    fn position(&self, comm: RunCommId, rank: u64) -> Option<u32> {
        if !self.world.comm(comm).is_numbered() {
            return None;
        }
        let members = &self.members[comm.0 as usize];
        let Ok(at) = usize::try_from(rank) else { return Some(u32::MAX) };
        let order = &self.orders[comm.0 as usize];
        match members.get(at) {
            Some(Some(world)) => {
                let position = order.iter().position(|other| other == world).expect("a member has a place");
                Some(u32::try_from(position).expect("ranks are numbered in 32 bits"))
            }
            Some(None) => None,
            None => Some(u32::try_from(rank).unwrap_or(u32::MAX)),
        }
    }

    fn transfer(
        &mut self,
        direction: Direction,
        shape: ShapeId,
        call: &Shape,
        origin: Origin,
    ) -> Vec<Lowered> {
        let Some(comm) = self.comm(number(call, "comm")) else {
            return self.unjudged(Unjudged::Unseen, &call.name);
        };
        let open = CallKind::Transfer(direction).open(call);
        let Some(dtype) = vendor::dtype(number(call, "dtype")) else {
            return self.unjudged(Unjudged::Type, &call.name);
        };
        let Some(peer) = self.position(comm, number(call, "peer")) else {
            return self.unjudged(Unjudged::Absent, &call.name);
        };
        let count = number(call, "count");
        let bytes = count.saturating_mul(dtype.len_bytes());
        let buffer = match open.is_empty() {
            true => self.buffer(number(call, "address"), bytes, origin),
            false => self.buffer_to_end(number(call, "address"), origin),
        };
        let stream = self.device.stream(number(call, "stream"), self.names);
        let transfer = Transfer { direction, comm: self.operand(comm), peer, buffer, count, dtype, stream };
        let op = Op::Transfer(Arc::new(transfer));
        self.launched_open(open, (shape, op), stream, origin)
    }

    fn collect(
        &mut self,
        kind: CollectiveKind,
        shape: ShapeId,
        call: &Shape,
        origin: Origin,
    ) -> Vec<Lowered> {
        let Some(comm) = self.comm(number(call, "comm")) else {
            return self.unjudged(Unjudged::Unseen, &call.name);
        };
        let open = CallKind::Collective(kind).open(call);
        let Some(dtype) = vendor::dtype(number(call, "dtype")) else {
            return self.unjudged(Unjudged::Type, &call.name);
        };
        // A root whose rank was not recorded is nobody's number.
        let kind = kind.with_root(self.position(comm, number(call, "root")).unwrap_or(u32::MAX));
        let (count, members) = (number(call, "count"), &self.orders[comm.0 as usize]);
        let part = count.saturating_mul(dtype.len_bytes());
        let (from, to) = (number(call, "send"), number(call, "recv"));
        // What does not count on this rank is not looked at: it may be null, or no memory at all.
        let me = members.iter().position(|rank| *rank == self.member.rank);
        let counting = kind.counting(|root| me == Some(root as usize));
        // How many there are, whether or not they are judged.
        let all = self.members[comm.0 as usize].len();
        let (needs_send, needs_recv) = kind.needs(part, all, counting);
        let (from, to) = match counting {
            Counting::Both => (from, to),
            Counting::Send => (from, from),
            Counting::Recv => (to, to),
        };
        let (send, recv) = if open.is_empty() {
            let recv = self.buffer(to, needs_recv, origin);
            let send = match from == to && needs_send == needs_recv {
                true => recv.clone(),
                false => self.buffer(from, needs_send, origin),
            };
            (send, recv)
        } else {
            // As long as they turn out to be. Which of them counts is told by the root.
            let given = |key: &str| number(call, key);
            (self.buffer_to_end(given("send"), origin), self.buffer_to_end(given("recv"), origin))
        };
        let stream = self.device.stream(number(call, "stream"), self.names);
        let op = Op::Collective(Arc::new(Collective {
            kind,
            comm: self.operand(comm),
            send,
            recv,
            count,
            dtype,
            op: vendor::reduction(number(call, "op")),
            stream,
            declared: Declared::Nothing,
        }));
        self.launched_open(open, (shape, op), stream, origin)
    }

    /// A launch; of one that does not say all, the next of its shape is not the same.
    fn launched_open(
        &mut self,
        open: Vec<&'static str>,
        (shape, op): (ShapeId, Op),
        stream: rankcheck_model::Token,
        origin: Origin,
    ) -> Vec<Lowered> {
        let mut items = self.launched(shape, op, stream, origin);
        if let (false, Some(item)) = (open.is_empty(), items.last_mut()) {
            self.cache.remove(&shape);
            item.bind = Bind::Open(open);
        }
        items
    }

    /// A launch that no other call repeats as it is.
    pub(super) fn in_order(
        &mut self,
        op: Op,
        stream: rankcheck_model::Token,
        origin: Origin,
    ) -> Vec<Lowered> {
        self.ordered(stream, origin);
        one(op, origin)
    }

    /// A launch, kept for the next call of its shape.
    pub(super) fn launched(
        &mut self,
        shape: ShapeId,
        op: Op,
        stream: rankcheck_model::Token,
        origin: Origin,
    ) -> Vec<Lowered> {
        let op = Arc::new(op);
        if self.ordered(stream, origin) == super::device::Implicit::No {
            self.cache.insert(shape, Arc::clone(&op));
        }
        one(op, origin)
    }
}

pub(super) fn one(op: impl Into<Arc<Op>>, origin: Origin) -> Vec<Lowered> {
    vec![Lowered::of(op, origin)]
}
