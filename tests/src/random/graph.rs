//! Fragments that capture graphs, with something bent.
//!
//! Not here: what else a program does.

use std::sync::Arc;

use rankcheck_model::{
    CaptureMode, CommOp, EventOp, GraphOp, MemoryKind, MemoryOp, Op, Operand, PoolOp, Question, Release,
    SizeClasses, StreamOp, ThreadOp, TieBreak, Token, WindowFlags, WindowOp,
};

use super::{Builder, MIB};

impl Builder {
    fn begin(&mut self, rank: u32, thread: u32, graph: Token, pool: Option<Token>) {
        let (stream, mode) = (self.script.name("default"), CaptureMode::Global);
        self.script.push(rank, thread, Op::Graph(GraphOp::Begin { graph, stream, mode, pool }));
    }

    fn new_graph(&mut self) -> Token {
        self.fresh += 1;
        self.script.name(&format!("g{}", self.fresh))
    }

    fn fill(&mut self, rank: u32, thread: u32, x: &Operand, stream: &str) {
        let (name, stream) = (self.script.name("fill"), self.script.name(stream));
        let writes: Arc<[Operand]> = [x.clone()].into();
        self.script.push(
            rank,
            thread,
            Op::Stream(StreamOp::Kernel { name, reads: [].into(), writes, stream }),
        );
    }

    /// A graph of one rank: what its capture forbids, what it loses before its replay, what it does not join.
    pub(super) fn graph(&mut self, rank: u32, thread: u32, q: u8, s: u8) {
        let graph = self.new_graph();
        let (one, two, event) =
            (self.script.name("default"), self.script.name("side"), self.script.name("e"));
        let a = self.a[rank as usize].clone();
        let pool = self.script.name("kept");
        let keeps = (q % 8 == 5 && s.is_multiple_of(2)).then_some(pool);
        if q % 8 == 5 {
            let (classes, tie, memory) = (SizeClasses::Exact, TieBreak::Counter, MemoryKind::Nccl);
            self.script.push(rank, thread, Op::Pool(PoolOp::Declare { pool, classes, tie, memory }));
        }
        self.begin(rank, thread, graph, keeps);
        let mut captured = a.clone();
        match q % 8 {
            0 => {
                self.memory_of(rank, thread, "inside", 2 * MIB, MemoryKind::Cuda);
            }
            1 => {
                let what = [Operand::Device, Operand::Stream(one)][usize::from(s % 2)].clone();
                self.script.push(rank, thread, Op::Stream(StreamOp::Synchronize { what }));
            }
            2 => {
                let code = self.script.name("seen");
                self.script.ask(
                    rank,
                    thread,
                    Question::EventQuery { event },
                    vec![Op::Thread(ThreadOp::Exit { code })],
                );
            }
            3 => {
                self.script.push(rank, thread, Op::Event(EventOp { event, stream: one }));
                self.script.push(rank, thread, Op::Stream(StreamOp::Wait { stream: two, event }));
                let b = self.b[rank as usize].clone();
                self.fill(rank, thread, if s % 4 < 2 { &b } else { &a }, "side");
                if s.is_multiple_of(2) {
                    self.script.push(rank, thread, Op::Event(EventOp { event, stream: two }));
                    self.script.push(rank, thread, Op::Stream(StreamOp::Wait { stream: one, event }));
                }
            }
            4 => {
                self.script.push(rank, thread, Op::Stream(StreamOp::Wait { stream: one, event }));
            }
            5 => {
                let name = self.script.name("p0");
                captured = self.script.push(
                    rank,
                    thread,
                    Op::Pool(PoolOp::Alloc { pool, name, len_bytes: 2 * MIB, stream: one }),
                );
                self.fill(rank, thread, &captured.clone(), "default");
                self.script.push(
                    rank,
                    thread,
                    Op::Memory(MemoryOp::Free { buffer: captured.clone(), after: None }),
                );
            }
            _ => {}
        }
        self.fill(rank, thread, &captured, "default");
        let made = self.script.push(rank, thread, Op::Graph(GraphOp::End { graph }));
        match q % 8 {
            5 if s % 4 < 2 => {
                let name = self.script.name("p1");
                let next = self.script.push(
                    rank,
                    thread,
                    Op::Pool(PoolOp::Alloc { pool, name, len_bytes: 2 * MIB, stream: one }),
                );
                self.fill(rank, thread, &next, "default");
            }
            5 => {
                self.script.push(rank, thread, Op::Pool(PoolOp::Trim { pool, release: Release::Now }));
            }
            6 if s.is_multiple_of(2) => {
                self.script.push(rank, thread, Op::Memory(MemoryOp::Free { buffer: a, after: None }));
            }
            7 if s.is_multiple_of(2) => {
                self.script.push(rank, thread, Op::Graph(GraphOp::Destroy { graph }));
            }
            _ => {}
        }
        for nth in 0..=(s % 2) {
            let stream = if nth == 1 && s % 4 == 1 { two } else { one };
            self.script.push(rank, thread, Op::Graph(GraphOp::Replay { graph, stream }));
        }
        let code = self.script.name("no graph");
        self.script.ask(rank, thread, Question::Failed(made), vec![Op::Thread(ThreadOp::Exit { code })]);
    }

    /// A collective that every rank captures; one rank launches it as such, takes its window away, or destroys
    /// its communicator first.
    pub(super) fn graph_of_all(&mut self, rank: u32, q: u8, s: u8) {
        let graph = self.new_graph();
        for r in 0..self.ranks {
            let at = r as usize;
            let (comm, a) = (self.comms[at].clone(), self.a[at].clone());
            if s.is_multiple_of(2) || q % 6 == 1 || q % 6 == 5 {
                self.register(r, 0, a.clone(), WindowFlags::CollSymmetric);
            }
            self.begin(r, 0, graph, None);
            let call = Arc::new(self.reduce(&comm, &a, 1 << 20, "default"));
            if q % 6 == 4 {
                self.register(r, 0, self.b[at].clone(), WindowFlags::CollSymmetric);
            }
            self.script.push(r, 0, Op::Collective(Arc::clone(&call)));
            self.script.push(r, 0, Op::Graph(GraphOp::End { graph }));
            let odd = r == rank;
            if let (1 | 5, true, Some(window)) = (q % 6, odd, self.windows[at].last().cloned()) {
                self.script.push(r, 0, Op::Window(WindowOp::Deregister { comm: comm.clone(), window }));
            }
            if q % 6 == 2 && odd {
                self.script.push(r, 0, Op::Collective(call));
            } else {
                let stream = self.script.name(if s % 4 < 2 { "default" } else { "side" });
                self.script.push(r, 0, Op::Graph(GraphOp::Replay { graph, stream }));
            }
            if q % 6 == 3 && odd {
                let thread = u32::from(self.second[at]);
                self.script.push(r, thread, Op::Graph(GraphOp::Destroy { graph }));
                self.script.push(r, 0, Op::Comm(CommOp::Destroy { comm }));
            } else if q.is_multiple_of(6) && odd {
                self.script.push(r, 0, Op::Comm(CommOp::Destroy { comm }));
            }
        }
    }

    /// One thread captures while another makes a call that a capture forbids, or uses the graph.
    pub(super) fn graph_of_two(&mut self, rank: u32, q: u8, s: u8) {
        let graph = self.script.name("g");
        let (a, b) = (self.a[rank as usize].clone(), self.b[rank as usize].clone());
        let stream = self.script.name("default");
        self.begin(rank, 0, graph, None);
        self.fill(rank, 0, &a, "default");
        let made = self.script.push(rank, 0, Op::Graph(GraphOp::End { graph }));
        if s.is_multiple_of(2) {
            let code = self.script.name("no graph");
            self.script.ask(rank, 0, Question::Failed(made), vec![Op::Thread(ThreadOp::Exit { code })]);
        }
        self.script.push(rank, 0, Op::Graph(GraphOp::Replay { graph, stream }));
        match q % 6 {
            0 => {
                self.memory_of(rank, 1, "inside", 2 * MIB, MemoryKind::Cuda);
            }
            1 => {
                self.script.push(rank, 1, Op::Stream(StreamOp::Synchronize { what: Operand::Device }));
            }
            2 => self.fill(rank, 1, &b, "default"),
            3 => {
                self.script.push(rank, 1, Op::Graph(GraphOp::Replay { graph, stream }));
            }
            4 => {
                self.script.push(rank, 1, Op::Graph(GraphOp::Destroy { graph }));
            }
            _ => {
                let event = self.script.name("e");
                let label = self.script.name("seen");
                self.script.ask(
                    rank,
                    1,
                    Question::EventQuery { event },
                    vec![Op::Thread(ThreadOp::Reach { label })],
                );
            }
        }
    }
}
