//! Graphs that a process puts together, and copies of rows.
//!
//! Not here: what is found in them.

use rankcheck_recording::{Field, Signature};

use super::Process;

/// Numbers of eight bytes, as a recorder writes lists and rows.
fn encoded(numbers: &[u64]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

/// Rows: the first address, the length of each, their distance, how many.
fn rows((address, bytes, pitch, rows): (u64, u64, u64, u64)) -> Vec<u8> {
    encoded(&[address, bytes, pitch, rows, 0, 1])
}

impl Process {
    /// Records `cuGraphCreate`, and returns the graph.
    pub fn graph(&mut self) -> u64 {
        let graph = self.handle();
        self.enter(signature!("cuGraphCreate"), &[]);
        self.leave_with(signature!("cuGraphCreate", "graph"), graph);
        graph
    }

    /// Records `cuGraphInstantiate`, and returns what can be launched.
    pub fn instantiate(&mut self, graph: u64) -> u64 {
        let executable = self.handle();
        self.enter(signature!("cuGraphInstantiate", "graph"), &[Field::Address(graph)]);
        self.leave_with(signature!("cuGraphInstantiate", "executable"), executable);
        executable
    }

    /// A node of a graph behind others; returns it.
    fn node(&mut self, names: [&Signature; 2], (graph, behind): (u64, &[u64]), more: &[Field<'_>]) -> u64 {
        let (node, behind) = (self.handle(), encoded(behind));
        let fields: Vec<Field<'_>> =
            [Field::Address(graph), Field::Bytes(&behind)].into_iter().chain(more.iter().copied()).collect();
        self.enter(names[0], &fields);
        self.leave_with(names[1], node);
        node
    }

    /// Records `cuGraphAddKernelNode`.
    pub fn kernel_node(&mut self, at: (u64, &[u64])) -> u64 {
        let name = signature!("cuGraphAddKernelNode", "graph", "behind");
        self.node([name, signature!("cuGraphAddKernelNode", "node")], at, &[])
    }

    /// Records `cuGraphAddMemsetNode` of so many bytes.
    pub fn fill_node(&mut self, at: (u64, &[u64]), address: u64, bytes: u64) -> u64 {
        let name = signature!("cuGraphAddMemsetNode", "graph", "behind", "writes");
        let writes = rows((address, bytes, 0, 1));
        self.node([name, signature!("cuGraphAddMemsetNode", "node")], at, &[Field::Bytes(&writes)])
    }

    /// Records `cudaGraphAddNode` of a copy: to, from, bytes.
    pub fn copy_node(&mut self, at: (u64, &[u64]), (to, from, bytes): (u64, u64, u64)) -> u64 {
        let name = signature!("cudaGraphAddNode", "graph", "behind", "kind", "reads", "writes");
        let (reads, writes) = (rows((from, bytes, 0, 1)), rows((to, bytes, 0, 1)));
        let more = [Field::Number(1), Field::Bytes(&reads), Field::Bytes(&writes)];
        self.node([name, signature!("cudaGraphAddNode", "node")], at, &more)
    }

    /// Records `cuGraphAddHostNode`.
    pub fn host_node(&mut self, at: (u64, &[u64])) -> u64 {
        let name = signature!("cuGraphAddHostNode", "graph", "behind");
        self.node([name, signature!("cuGraphAddHostNode", "node")], at, &[])
    }

    /// Records `cuGraphAddEventRecordNode`.
    pub fn record_node(&mut self, at: (u64, &[u64]), event: u64) -> u64 {
        let name = signature!("cuGraphAddEventRecordNode", "graph", "behind", "event");
        self.node([name, signature!("cuGraphAddEventRecordNode", "node")], at, &[Field::Address(event)])
    }

    /// Records `cuGraphAddChildGraphNode`.
    pub fn child_node(&mut self, at: (u64, &[u64]), child: u64) -> u64 {
        let name = signature!("cuGraphAddChildGraphNode", "graph", "behind", "child");
        self.node([name, signature!("cuGraphAddChildGraphNode", "node")], at, &[Field::Address(child)])
    }

    /// Records `cuGraphAddMemFreeNode`.
    pub fn free_node(&mut self, at: (u64, &[u64]), address: u64) -> u64 {
        let name = signature!("cuGraphAddMemFreeNode", "graph", "behind", "address");
        self.node([name, signature!("cuGraphAddMemFreeNode", "node")], at, &[Field::Address(address)])
    }

    /// Records `cuGraphAddMemAllocNode`, and returns the node; it allocates at this address.
    pub fn alloc_node(&mut self, (graph, behind): (u64, &[u64]), address: u64, bytes: u64) -> u64 {
        let (node, behind) = (self.handle(), encoded(behind));
        let fields = [Field::Address(graph), Field::Bytes(&behind), Field::Number(bytes)];
        self.enter(signature!("cuGraphAddMemAllocNode", "graph", "behind", "bytes"), &fields);
        let made = [Field::Address(node), Field::Address(address)];
        let time = self.tick();
        self.writer().leave_with(time, signature!("cuGraphAddMemAllocNode", "node", "address"), &made);
        node
    }

    /// Records `cuGraphExecMemsetNodeSetParams`: a node of what can be launched fills these bytes from now on.
    pub fn change_fill(&mut self, executable: u64, node: u64, address: u64, bytes: u64) {
        let writes = rows((address, bytes, 0, 1));
        let fields = [Field::Address(executable), Field::Address(node), Field::Bytes(&writes)];
        self.call(signature!("cuGraphExecMemsetNodeSetParams", "executable", "node", "writes"), &fields);
    }

    /// Records `cuGraphAddDependencies` of one edge.
    pub fn edge(&mut self, graph: u64, from: u64, to: u64) {
        let (from, to) = (encoded(&[from]), encoded(&[to]));
        let fields = [Field::Address(graph), Field::Bytes(&from), Field::Bytes(&to)];
        self.call(signature!("cuGraphAddDependencies", "graph", "from", "to"), &fields);
    }

    /// A capture of calls on a stream that goes into a graph behind nodes of it.
    pub fn capture_to(&mut self, (graph, behind): (u64, &[u64]), stream: u64, calls: impl FnOnce(&mut Self)) {
        let behind = encoded(behind);
        let fields = [Field::Address(stream), Field::Number(1), Field::Address(graph), Field::Bytes(&behind)];
        let name = signature!("cuStreamBeginCaptureToGraph", "stream", "mode", "graph", "behind");
        self.call(name, &fields);
        calls(self);
        self.enter(signature!("cuStreamEndCapture", "stream"), &[Field::Address(stream)]);
        self.leave_with(signature!("cuStreamEndCapture", "graph"), graph);
    }

    /// A capture of calls on a stream; the graph.
    pub fn captured(&mut self, stream: u64, calls: impl FnOnce(&mut Self)) -> u64 {
        self.begin_capture(stream);
        calls(self);
        self.end_capture(stream)
    }

    /// Records `cudaMemcpy2DAsync` between rows of one length: each side the first address, the length of a row, their distance,
    /// how many.
    pub fn copy_rows(&mut self, to: (u64, u64, u64, u64), from: (u64, u64, u64, u64), stream: u64) {
        let (reads, writes) = (rows(from), rows(to));
        let fields = [Field::Bytes(&reads), Field::Bytes(&writes), Field::Number(3), Field::Address(stream)];
        self.call(signature!("cudaMemcpy2DAsync", "reads", "writes", "kind", "stream"), &fields);
    }
}
