//! Collectives: launch on one rank, the joint run of all members, and what data results.
//!
//! Every rank chooses its kernel alone, from its own windows. The run is one joint step of all members; what
//! each kernel reads and writes goes through the windows that were paired by order, so a misregistration
//! yields the data that it would yield. Source: `specs/rules/collective.md`, `specs/rules/window.md`.
//! Not here: registration.

use crate::describe::{Describe, Description};
use crate::machine::Kind;
use crate::op::{Show, Verb, WindowFlags};
use crate::program::{Dtype, ReduceOp};
use std::sync::Arc;

use crate::clock::{Clock, Gathered, Knowledge};
use crate::host::value::{Buffer, CommId, MemoryId, Value};
use crate::judge::finding::{About, OpRef, Rule};
use crate::machine::{Explain, Machine, locked};
use crate::noun::memory::Range;
use crate::noun::window::INVALID_ARGUMENT;
use crate::order::dependence::{Object, ObjectKind, Touch};
use crate::platform::{KernelPath, PathQuery};
use crate::program::Operand;
use crate::rank::{Rank, Token};
use crate::state::{
    Access, Call, Connection, GroupCall, Launch, Meeting, Queued, Ran, Recorded, State, Work, find, whole,
};
use crate::term::{Content, Term, TermNode};

/// Kinds of collective.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CollectiveKind {
    /// Every rank gets the reduction of all.
    AllReduce,
    /// Every rank gets the concatenation of all; `count` is one rank's part.
    AllGather,
    /// Every rank gets its part of the reduction; `count` is one rank's part.
    ReduceScatter,
    /// Every rank gets what the root has. The root is a position in the communicator.
    Broadcast {
        /// Communicator rank of the sender.
        root: u32,
    },
    /// The root gets the reduction of all, and nobody else gets anything. The root is a position in the
    /// communicator.
    Reduce {
        /// Communicator rank of the receiver.
        root: u32,
    },
}

impl Describe for CollectiveKind {
    fn describe(&self, to: &mut Description<'_>) {
        match self {
            Self::AllReduce => to.word("AllReduce"),
            Self::AllGather => to.word("AllGather"),
            Self::ReduceScatter => to.word("ReduceScatter"),
            Self::Broadcast { root } => to.call("Broadcast", &[("root", root)]),
            Self::Reduce { root } => to.call("Reduce", &[("root", root)]),
        }
    }
}

impl CollectiveKind {
    /// The verb.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::AllReduce => "all_reduce",
            Self::AllGather => "all_gather",
            Self::ReduceScatter => "reduce_scatter",
            Self::Broadcast { .. } => "broadcast",
            Self::Reduce { .. } => "reduce",
        }
    }

    /// Whether what ranks send is reduced.
    #[must_use]
    pub fn reduces(self) -> bool {
        match self {
            Self::AllReduce | Self::ReduceScatter | Self::Reduce { .. } => true,
            Self::AllGather | Self::Broadcast { .. } => false,
        }
    }

    /// The same kind with another root; without a root it is what it was.
    #[must_use]
    pub fn with_root(self, root: u32) -> Self {
        match self {
            Self::Broadcast { .. } => Self::Broadcast { root },
            Self::Reduce { .. } => Self::Reduce { root },
            Self::AllReduce | Self::AllGather | Self::ReduceScatter => self,
        }
    }

    /// How many times `count` elements input and output have room for, among so many ranks.
    #[must_use]
    pub fn buffer_parts(self, ranks: u64) -> (u64, u64) {
        match self {
            Self::AllReduce | Self::Broadcast { .. } | Self::Reduce { .. } => (1, 1),
            Self::AllGather => (1, ranks),
            Self::ReduceScatter => (ranks, 1),
        }
    }

    /// Which buffers of a call count on the member that makes it, given whether it is the root (`argcheck.cc`).
    #[must_use]
    pub fn counting(self, is_root: impl Fn(u32) -> bool) -> Counting {
        match self {
            Self::Broadcast { root } if !is_root(root) => Counting::Recv,
            Self::Reduce { root } if !is_root(root) => Counting::Send,
            Self::AllReduce
            | Self::AllGather
            | Self::ReduceScatter
            | Self::Broadcast { .. }
            | Self::Reduce { .. } => Counting::Both,
        }
    }

    /// The way to or from the root in words, with a space before them; empty without a root.
    #[must_use]
    pub fn way(self) -> String {
        match self {
            Self::Broadcast { root } => format!(" from its rank {root}"),
            Self::Reduce { root } => format!(" to its rank {root}"),
            Self::AllReduce | Self::AllGather | Self::ReduceScatter => String::new(),
        }
    }
}

/// Which buffers of a collective count on a rank. What the others are does not matter: they may be null.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counting {
    /// Input and output.
    Both,
    /// The input.
    Send,
    /// The output.
    Recv,
}

/// One rank's call of a collective.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Collective {
    /// What is computed.
    pub kind: CollectiveKind,
    /// The communicator.
    pub comm: Operand,
    /// Input buffer. Of a broadcast it counts on the root alone.
    pub send: Operand,
    /// Output buffer; equal to `send` for in-place calls. Of a reduce it counts on the root alone.
    pub recv: Operand,
    /// Elements (of one rank's part for all_gather and reduce_scatter).
    pub count: u64,
    /// Element type.
    pub dtype: Dtype,
    /// Reduction; ignored where nothing is reduced.
    pub op: ReduceOp,
    /// Stream it is launched on.
    pub stream: Token,
    /// The author declared `symmetric = True`: a fallback to the ordinary path is then a finding.
    pub declared: Declared,
}

impl Describe for Collective {
    fn describe(&self, to: &mut Description<'_>) {
        let Self { kind, comm, send, recv, count, dtype, op, stream, declared } = self;
        to.word("Collect(");
        to.call(
            "Collective",
            &[
                ("kind", kind),
                ("comm", comm),
                ("send", send),
                ("recv", recv),
                ("count", count),
                ("dtype", dtype),
                ("op", op),
                ("stream", stream),
                ("declared", declared),
            ],
        );
        to.word(")");
    }
}

impl Verb for Collective {
    fn slots(&self) -> u32 {
        0
    }

    fn kind(&self) -> Kind {
        Kind::Alike
    }

    fn display(&self, show: &Show<'_>) -> String {
        format!("{}.{}({})", show.operand(&self.comm), self.kind.name(), show.operand(&self.send))
    }

    fn stream(&self) -> Option<Token> {
        Some(self.stream)
    }

    fn buffers(&self) -> Vec<&Operand> {
        vec![&self.send, &self.recv]
    }
}

/// What the author said about the kernel path of a collective.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Declared {
    /// Nothing: any path will do.
    Nothing,
    /// `symmetric = True`.
    Symmetric,
}

impl Describe for Declared {
    fn describe(&self, to: &mut Description<'_>) {
        to.word(match self {
            Self::Nothing => "Nothing",
            Self::Symmetric => "Symmetric",
        });
    }
}

/// A member of a running collective, with what stood at the head of its stream.
struct Member {
    rank: Rank,
    stream: usize,
    launch: Arc<Launch>,
    issue: Clock,
    op: OpRef,
    replay: Option<OpRef>,
}

/// What members know of each other after a collective.
enum Order {
    AllToAll(Knowledge),
    FromRoot(Clock),
    /// The root learns what all know, and the others nothing.
    ToRoot(Option<Rank>, Knowledge),
}

/// How the kernels of a collective's members fit together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kernels {
    /// The same kernel, on the same parameters.
    Together,
    /// The same kernel on different parameters: it may end, and nobody specifies with what.
    Undefined,
    /// Different kernels: none of them ends.
    Apart,
}

impl Launch {
    /// Bytes that a rank's input and output need.
    fn needs(call: &Call, members: usize) -> (u64, u64) {
        let part = call.count * call.dtype.len_bytes();
        let (send, recv) = call.kind.buffer_parts(members as u64);
        (part * send, part * recv)
    }

    /// Larger is launched earlier out of a group, within the precision of NCCL's sorter
    /// (`include/comm.h:361-409`): four steps for each power of two.
    pub(crate) fn size_step(&self, members: usize) -> u64 {
        const UNIT_LOG2: u32 = 10;
        const MAX_LOG2: u32 = 30;
        let per_byte = match self.call.kind {
            CollectiveKind::AllReduce => 2,
            CollectiveKind::AllGather | CollectiveKind::ReduceScatter => members as u64,
            CollectiveKind::Broadcast { .. } | CollectiveKind::Reduce { .. } => 1,
        };
        let units = (self.part_bytes() * per_byte).min(1 << MAX_LOG2) >> UNIT_LOG2;
        match units {
            0..4 => units,
            _ => {
                let log2 = units.ilog2();
                (u64::from(log2) << 2) | ((units >> (log2 - 2)) & 3)
            }
        }
    }

    fn part_bytes(&self) -> u64 {
        self.call.count * self.call.dtype.len_bytes()
    }

    /// Whether input and output lie in windows. Members without the one are compared by the other.
    fn registered(&self) -> (bool, bool) {
        let (send, recv) = (self.send_window.is_some(), self.recv_window.is_some());
        match self.call.kind {
            CollectiveKind::AllReduce | CollectiveKind::AllGather | CollectiveKind::ReduceScatter => {
                (send, recv)
            }
            CollectiveKind::Broadcast { .. } => (recv, recv),
            CollectiveKind::Reduce { .. } => (send, send),
        }
    }
}

impl Machine {
    pub(crate) fn collect(
        &self,
        state: &mut State,
        rank: Rank,
        thread: u32,
        call: &Arc<Collective>,
        op: OpRef,
    ) {
        let Some(comm) = self.usable(state, rank, thread, &call.comm, op) else {
            self.fail(state, rank, thread, call.kind.name().to_owned(), 4);
            self.discard_group(state, rank, thread, (op, INVALID_ARGUMENT));
            self.done(state, rank, thread, &[]);
            return;
        };
        let counting = self.counting(rank, comm, call.kind);
        let first = if counting == Counting::Recv { &call.recv } else { &call.send };
        let first = self.given(state, rank, thread, first, op);
        let recv = match &first {
            Some(first) if counting != Counting::Both || call.recv == call.send => Some(Arc::clone(first)),
            _ => self.given(state, rank, thread, &call.recv, op),
        };
        let (Some(send), Some(recv)) = (first, recv) else {
            self.fail(state, rank, thread, format!("{}.{}", self.comm_name(comm), call.kind.name()), 4);
            self.discard_group(state, rank, thread, (op, INVALID_ARGUMENT));
            self.done(state, rank, thread, &[]);
            return;
        };
        let call = Call::from(&**call);
        let (send_bytes, recv_bytes) =
            Launch::needs(&call, self.view(state, rank, comm).map_or(0, |view| view.size));
        let send = self.long_enough(state, rank, thread, (send, send_bytes), op);
        let recv = self.long_enough(state, rank, thread, (recv, recv_bytes), op);
        // Without elements the call is dropped on this rank alone (`enqueue.cc:3024`).
        if call.count == 0 {
            self.done(state, rank, thread, &[]);
            return;
        }
        let launch = Launch {
            call,
            comm,
            nth: 0,
            written: 0,
            turn: 0,
            issue: 0,
            send,
            recv,
            send_window: None,
            recv_window: None,
            path: KernelPath::Ordinary,
            companions: false,
            recorded: Recorded::No,
            op,
        };
        if state.ranks[rank.at()].threads[thread as usize].group.depth > 0 {
            let calls = &mut state.rank_mut(rank).threads[thread as usize].group.calls;
            calls.push(GroupCall::Launch { comm, launch: Arc::new(launch) });
            self.done(state, rank, thread, &[]);
            return;
        }
        self.touch_comm(state, rank, thread, comm);
        self.touch(state, rank, thread, Object::named(ObjectKind::Stream, call.stream), Touch::Mutate);
        let written = self.place_of_launch(state, rank, comm, call.stream);
        let launch = Launch { written, ..self.relaunch(state, rank, launch) };
        let cold = self.view(state, rank, comm).is_some_and(|view| !view.connected);
        if cold && launch.path == KernelPath::Ordinary {
            self.arrive(state, rank, thread, Meeting::Connect(comm, Connection::of(call.kind)));
            return;
        }
        self.enqueue_launch(state, rank, thread, launch);
        self.done(state, rank, thread, &[]);
    }

    fn counting(&self, rank: Rank, comm: CommId, kind: CollectiveKind) -> Counting {
        kind.counting(|root| self.members(comm).get(root as usize) == Some(&rank))
    }

    /// A buffer that an operation was given; null and freed ones are findings.
    pub(crate) fn given(
        &self,
        state: &mut State,
        rank: Rank,
        thread: u32,
        operand: &Operand,
        op: OpRef,
    ) -> Option<Arc<Buffer>> {
        let Value::Buffer(buffer) = Self::value(state, rank, operand) else {
            let past = Self::past(state, rank, thread);
            self.find(state, Rule::Mem4, About::Rank(rank), &[op], past, || {
                format!("rank {} passes a null buffer ({})", rank.0, self.at(&op))
            });
            return None;
        };
        self.touch(state, rank, thread, Object::memory(buffer.memory), Touch::Read);
        if buffer.through.is_some() {
            self.judge_closed(state, rank, &buffer, op, Self::past(state, rank, thread));
        } else {
            self.judge_freed(state, rank, thread, &buffer, op);
        }
        Some(buffer)
    }

    /// Memory that is used must not have been freed.
    pub(crate) fn judge_freed(&self, state: &mut State, rank: Rank, thread: u32, buffer: &Buffer, op: OpRef) {
        let r = &state.ranks[rank.at()];
        let gone = r.memory.get(&buffer.memory).is_none_or(|memory| memory.released.is_some());
        let past = Self::past(state, rank, thread);
        if gone || buffer.block.is_some_and(|block| !r.live.contains(&block)) {
            self.find(state, Rule::Mem1, About::Memory(rank, buffer.memory), &[op], past, || {
                format!(
                    "rank {} uses {} after freeing it ({})",
                    rank.0,
                    self.buffer_name(buffer),
                    self.at(&op)
                )
            });
            Self::undefine(state, op);
        }
    }

    /// The buffer cut to what the call needs; a finding if it is shorter.
    pub(crate) fn long_enough(
        &self,
        state: &mut State,
        rank: Rank,
        thread: u32,
        (mut buffer, needed): (Arc<Buffer>, u64),
        op: OpRef,
    ) -> Arc<Buffer> {
        if buffer.len_bytes < needed {
            let past = Self::past(state, rank, thread);
            self.find(state, Rule::Mem4, About::Memory(rank, buffer.memory), &[op], past, || {
                format!(
                    "rank {} passes {} of {} where {} are needed ({})",
                    rank.0,
                    self.buffer_name(&buffer),
                    crate::noun::window::bytes(buffer.len_bytes),
                    crate::noun::window::bytes(needed),
                    self.at(&op)
                )
            });
            Self::undefine(state, op);
        } else if buffer.len_bytes > needed {
            Arc::make_mut(&mut buffer).len_bytes = needed;
        }
        buffer
    }

    /// The launch as it would be made now: windows are looked up at the call, or at the end of the group.
    pub(crate) fn relaunch(&self, state: &State, rank: Rank, launch: Launch) -> Launch {
        let r = &state.ranks[rank.at()];
        let look = |buffer: &Buffer| {
            Self::lookup(r, launch.comm, buffer)
                .filter(|found| found.window.flags == WindowFlags::CollSymmetric)
                .map(|found| (found.window.nth, found.offset_bytes))
        };
        let send_window = look(&launch.send);
        let recv_window = look(&launch.recv);
        let path = self.config.platform.kernel_path(&PathQuery {
            kind: launch.call.kind,
            op: launch.call.op,
            dtype: launch.call.dtype,
            len_bytes: launch.part_bytes(),
            ranks: self.view(state, rank, launch.comm).map_or(0, |view| view.size),
            send_registered: send_window.is_some(),
            recv_registered: recv_window.is_some(),
        });
        Launch { send_window, recv_window, path, ..launch }
    }

    /// Launches of a rank on a communicator so far.
    pub(crate) fn launched(&self, state: &State, rank: Rank, comm: CommId) -> u32 {
        self.view(state, rank, comm).map_or(0, |view| view.launched)
    }

    pub(crate) fn enqueue_launch(&self, state: &mut State, rank: Rank, thread: u32, launch: Launch) {
        self.judge_windows_of(state, rank, thread, &launch);
        let stream = launch.call.stream;
        self.issue_launch(state, rank, thread, (launch, stream), None);
    }

    /// Gives a launch its place among those of the rank and of the communicator, unless it is only recorded.
    pub(crate) fn issue_launch(
        &self,
        state: &mut State,
        rank: Rank,
        thread: u32,
        (mut launch, stream): (Launch, Token),
        replay: Option<OpRef>,
    ) {
        let op = launch.op;
        let issue = state.ranks[rank.at()].threads[thread as usize].clock.clone();
        if let Some(graph) = self.records(state, rank, stream) {
            launch.recorded = Recorded::By(graph);
            let work = Work::Collective(Arc::new(launch));
            self.enqueue(state, rank, stream, Queued { work, issue, op, replay });
            return;
        }
        (launch.turn, launch.issue) = self.take_turn(state, rank, launch.comm);
        let r = state.rank_mut(rank);
        if r.costs.steady {
            r.costs.collectives += 1;
        }
        let view = self.view_mut(state, rank, launch.comm);
        launch.nth = view.launched;
        view.launched += 1;
        let work = Work::Collective(Arc::new(launch));
        self.enqueue(state, rank, stream, Queued { work, issue, op, replay });
    }

    /// Judges the windows that a launch found on its own rank: stale ones, and ranges that leave them.
    fn judge_windows_of(&self, state: &mut State, rank: Rank, thread: u32, launch: &Launch) {
        if (launch.send_window, launch.recv_window) == (None, None) {
            return;
        }
        let past = Self::past(state, rank, thread);
        let members = self.view(state, rank, launch.comm).expect("a launch has a view").size;
        let (send_bytes, recv_bytes) = Launch::needs(&launch.call, members);
        for (buffer, found, needed) in
            [(&launch.send, launch.send_window, send_bytes), (&launch.recv, launch.recv_window, recv_bytes)]
        {
            let Some((nth, offset)) = found else { continue };
            let view = self.view(state, rank, launch.comm).expect("a launch has a view");
            let window = view.window(nth).expect("just found");
            let (window_op, window_len) = (window.op, window.buffer.len_bytes);
            let stale = window.buffer.memory != buffer.memory;
            // The lookup table names a window that is gone.
            if view.windows.iter().any(|other| other.dangling && other.starts_with(window)) {
                Self::undefine(state, launch.op);
            }
            let ops = [launch.op, window_op];
            if stale {
                self.find(state, Rule::Win12, About::Window(launch.comm, nth), &ops, past, || {
                    format!(
                        "rank {} runs {} on {} through window #{nth} of {}, registered at {} for memory that \
                         was freed: the address came back, the window did not",
                        rank.0,
                        self.call_name(launch),
                        self.buffer_name(buffer),
                        self.comm_name(launch.comm),
                        self.at(&window_op),
                    )
                });
            }
            if offset + needed > window_len {
                self.find(state, Rule::Win10, About::Window(launch.comm, nth), &ops, past, || {
                    format!(
                        "rank {} runs {} on {} past the end of window #{nth} of {} ({})",
                        rank.0,
                        self.call_name(launch),
                        self.buffer_name(buffer),
                        self.comm_name(launch.comm),
                        self.at(&launch.op),
                    )
                });
            }
        }
    }

    /// The call in the spec's own names.
    pub(crate) fn call_name(&self, launch: &Launch) -> String {
        let buffer = self.buffer_name(&launch.send);
        format!("{}.{}({buffer})", self.comm_name(launch.comm), launch.call.kind.name())
    }

    /// The stream at whose head a member stands ready to run the next collective of a communicator.
    pub(crate) fn ready_stream(&self, state: &State, rank: Rank, comm: CommId) -> Option<usize> {
        state.ranks[rank.at()].streams.iter().position(|(_, stream)| {
            !stream.hung
                && matches!(stream.queue.front().map(|op| &op.work),
                    Some(Work::Collective(launch))
                        if launch.comm == comm && self.has_turn(state, rank, comm, launch.turn))
        })
    }

    /// Runs the next collective of a communicator on all members.
    pub(crate) fn run_collective(&self, state: &mut State, comm: CommId) {
        state.steps += 1;
        let ranks = self.members(comm);
        // A large job does not fit a cache, so each member is looked at as seldom as possible.
        let mut members: Vec<Member> = Vec::with_capacity(ranks.len());
        let mut together = Gathered::default();
        for rank in ranks.iter() {
            let stream = self.ready_stream(state, *rank, comm).expect("every member is ready");
            let s = &mut state.rank_mut(*rank).streams[stream].1;
            s.clock.tick();
            let Queued { work, issue, op, replay } = s.queue.pop_front().expect("ready");
            together.add(&s.clock);
            together.add(&issue);
            let Work::Collective(launch) = work else { unreachable!("ready") };
            members.push(Member { rank: *rank, stream, launch, issue, op, replay });
        }
        let kernels = self.judge_kernels(state, comm, &members);
        if kernels == Kernels::Apart {
            for Member { rank, stream, launch, issue, op, replay } in members {
                let s = &mut state.rank_mut(rank).streams[stream].1;
                s.queue.push_front(Queued { work: Work::Collective(launch), issue, op, replay });
                s.hung = true;
            }
            return;
        }
        let order = Self::order(state, &members, together);
        let part = members[0].launch.part_bytes();
        let mut inputs = Vec::with_capacity(members.len());
        for member in &members {
            self.run_member(state, member, &order);
            let send = &member.launch.send;
            inputs.push(self.read(state, send.home(member.rank), &Range::of(send).sub(0, part)));
        }
        if self.keeps_runs(state) {
            let ran = members.iter().map(|m| {
                let began = state.ranks[m.rank.at()].streams[m.stream].1.clock.clone();
                Ran { rank: m.rank, issue: m.launch.issue, called: m.issue.clone(), began, op: m.launch.op }
            });
            self.ran(state, comm, ran.collect());
        }
        // Whose parameters would count where they differ? No member is the first among equals.
        if kernels == Kernels::Together {
            self.judge_windows(state, comm, &members);
            self.move_data(state, &members, &inputs);
        }
    }

    /// Whether all members run the same kernel on the same parameters.
    fn judge_kernels(&self, state: &mut State, comm: CommId, members: &[Member]) -> Kernels {
        let first = &members[0].launch;
        let nth = first.nth;
        let about = About::Comm(comm);
        let differs = |f: &dyn Fn(&Launch) -> bool| members.iter().position(|m| f(&m.launch));
        let past = members[0].issue.past();
        let kind = |c: CollectiveKind| std::mem::discriminant(&c);
        let parameters = |l: &Launch| {
            (l.call.kind, l.call.count, l.call.dtype, l.call.kind.reduces().then_some(l.call.op))
        };
        let registered = Launch::registered;
        // The usual case in one pass, because a job has many ranks.
        let recorded = |l: &Launch| l.recorded != Recorded::No;
        let whole =
            |l: &Launch| (parameters(l), registered(l), recorded(l), l.path, l.written, l.call.declared);
        let expected = (
            parameters(first),
            registered(first),
            recorded(first),
            first.path,
            first.written,
            Declared::Nothing,
        );
        if members.iter().all(|m| whole(&m.launch) == expected) {
            return Kernels::Together;
        }
        if let Some(other) = differs(&|l| kind(l.call.kind) != kind(first.call.kind)) {
            let ops = [first.op, members[other].launch.op];
            self.find(state, Rule::Coll2, about, &ops, past, || {
                self.differ(nth, members, other, &|m| self.call_name(&m.launch))
            });
            // Ordinary kernels exchange what they find in each other's slots: one rank may finish with wrong
            // data while another hangs (measured).
            if members.iter().any(|m| m.launch.path == KernelPath::Ordinary) {
                Self::undefine(state, first.op);
            }
            return Kernels::Apart;
        }
        if let Some(other) = differs(&|l| parameters(l) != parameters(first)) {
            let ops = [first.op, members[other].launch.op];
            self.find(state, Rule::Coll3, about, &ops, past, || {
                self.differ(nth, members, other, &|m| {
                    let call = &m.launch.call;
                    format!(
                        "{} of {} {} ({}){}",
                        self.call_name(&m.launch),
                        call.count,
                        call.dtype.name(),
                        call.op.name(),
                        call.kind.way()
                    )
                })
            });
            if differs(&|l| l.path != first.path).is_some() {
                return Kernels::Apart;
            }
            Self::undefine(state, first.op);
            return Kernels::Undefined;
        }
        self.judge_written(state, members);
        self.judge_recorded(state, members);
        if let Some(other) = differs(&|l| l.path != first.path || registered(l) != registered(first)) {
            let ops = [first.op, members[other].launch.op];
            self.find(state, Rule::Win7, about, &ops, past, || {
                self.differ(nth, members, other, &|m| {
                    let on = match registered(&m.launch) {
                        (false, false) => "on unregistered memory",
                        (true, true) => "on registered memory",
                        (true, false) | (false, true) => "with one buffer registered",
                    };
                    format!("{} {on}", self.call_name(&m.launch))
                })
            });
            return match differs(&|l| l.path != first.path) {
                Some(_) => Kernels::Apart,
                None => Kernels::Together,
            };
        }
        self.judge_declared(state, members);
        Kernels::Together
    }

    /// Whether a collective that its author declared symmetric is.
    fn judge_declared(&self, state: &mut State, members: &[Member]) {
        let declared = members.iter().position(|m| m.launch.call.declared == Declared::Symmetric);
        if let Some(declared) = declared
            && members[0].launch.path == KernelPath::Ordinary
        {
            let launch = &members[declared].launch;
            let (comm, past) = (launch.comm, members[0].issue.past());
            let (rank, other) = (members[declared].rank, &members[usize::from(declared == 0)]);
            let ops = [launch.op, other.launch.op];
            self.find(state, Rule::Win8, About::Comm(comm), &ops, past, || {
                let why = match (launch.send_window, launch.recv_window) {
                    (Some(_), Some(_)) => format!(
                        "no symmetric kernel does a {} of {} ({})",
                        launch.call.kind.name(),
                        launch.call.dtype.name(),
                        launch.call.op.name()
                    ),
                    (Some(_), None) | (None, _) => format!(
                        "no rank's {} is registered with {}",
                        self.buffer_name(&launch.send),
                        self.comm_name(comm)
                    ),
                };
                format!(
                    "rank {} declares {} symmetric ({}), but {why}: like rank {} ({}) it falls back to the \
                     ordinary kernel",
                    rank.0,
                    self.call_name(launch),
                    self.at(&ops[0]),
                    other.rank.0,
                    self.at(&ops[1]),
                )
            });
        }
    }

    /// Whether the collectives that meet stand at one place in the programs of all members: a group launches in
    /// an order of its own.
    fn judge_written(&self, state: &mut State, members: &[Member]) {
        let (a, comm) = (&members[0], members[0].launch.comm);
        let Some(b) = members.iter().find(|m| m.launch.written != a.launch.written) else { return };
        let ops = [a.launch.op, b.launch.op];
        let skipped = self.skipped(a);
        self.find(state, Rule::Coll3, About::Comm(comm), &ops, a.issue.past(), || {
            format!(
                "{} is collective #{} of {} in the program of rank {} ({}) and {} is #{} on rank {} ({}); \
                 they meet because groups launch large operations first",
                self.call_name(&a.launch),
                a.launch.written + skipped,
                self.comm_name(comm),
                a.rank.0,
                self.at(&a.launch.op),
                self.call_name(&b.launch),
                b.launch.written + skipped,
                b.rank.0,
                self.at(&b.launch.op),
            )
        });
        // A group's work is divided among blocks in the rank's own order, so parts may not meet (2.28.3 left some
        // unreduced, 2.28.9 none; both measured).
        Self::undefine(state, a.launch.op);
    }

    /// Whether all members replay a collective or none does (`usage/cudagraph.rst:18`).
    fn judge_recorded(&self, state: &mut State, members: &[Member]) {
        let graph = |m: &Member| match m.launch.recorded {
            Recorded::No => None,
            Recorded::By(graph) => Some(graph),
        };
        let first = &members[0];
        let differs = members.iter().position(|m| graph(m).is_some() != graph(first).is_some());
        let Some(other) = differs else { return };
        let (ops, comm) = ([first.launch.op, members[other].launch.op], first.launch.comm);
        self.find(state, Rule::Graph5, About::Comm(comm), &ops, first.issue.past(), || {
            self.differ(first.launch.nth, members, other, &|m| match graph(m) {
                Some(graph) => format!("{} replayed from {}", self.call_name(&m.launch), self.name(graph)),
                None => format!("{} launched as such", self.call_name(&m.launch)),
            })
        });
        // Buffers of recorded collectives are registered on the way (`transport/p2p.cc:1273-1319`), so ordinary
        // kernels may be given different ways to the data. Symmetric ones are given windows in either case.
        if members.iter().any(|m| m.launch.path == KernelPath::Ordinary) {
            Self::undefine(state, first.launch.op);
        }
    }

    /// Collectives before this one that are not in the program. All members left out as many.
    fn skipped(&self, member: &Member) -> u32 {
        self.source.skipped(member.op.place, member.replay.unwrap_or(member.op).place)
    }

    fn differ(&self, nth: u32, members: &[Member], other: usize, what: &dyn Fn(&Member) -> String) -> String {
        let (a, b) = (&members[0], &members[other]);
        let nth = nth + self.skipped(a);
        format!(
            "collective #{nth} of {} is {} on rank {} ({}) and {} on rank {} ({})",
            self.comm_name(a.launch.comm),
            what(a),
            a.rank.0,
            self.at(&a.launch.op),
            what(b),
            b.rank.0,
            self.at(&b.launch.op),
        )
    }

    /// Happens-before: all to all where every rank needs every other; else from the root only, or to it.
    fn order(state: &State, members: &[Member], together: Gathered) -> Order {
        match members[0].launch.call.kind {
            CollectiveKind::AllReduce | CollectiveKind::AllGather | CollectiveKind::ReduceScatter => {
                Order::AllToAll(together.knowledge())
            }
            CollectiveKind::Broadcast { root } => {
                let root = &members[(root as usize).min(members.len() - 1)];
                let mut source = state.ranks[root.rank.at()].streams[root.stream].1.clock.clone();
                source.join(&root.issue);
                Order::FromRoot(source)
            }
            CollectiveKind::Reduce { root } => {
                Order::ToRoot(members.get(root as usize).map(|root| root.rank), together.knowledge())
            }
        }
    }

    /// The collective is over on this member.
    fn run_member(&self, state: &mut State, member: &Member, order: &Order) {
        let r = state.rank_mut(member.rank);
        let clock = &mut r.streams[member.stream].1.clock;
        match order {
            Order::AllToAll(knowledge) => clock.learn(knowledge),
            Order::FromRoot(source) => {
                clock.join(&member.issue);
                clock.join(source);
            }
            Order::ToRoot(root, knowledge) if *root == Some(member.rank) => clock.learn(knowledge),
            Order::ToRoot(..) => clock.join(&member.issue),
        }
        let used = (clock.actor(), clock.epoch());
        let at = find(&r.views, &member.launch.comm).expect("a launch has a view");
        let view = &mut r.views[at].1;
        let turns = find(&r.turns, &view.family).expect("a family has turns since its first communicator");
        r.turns[turns].1.over += 1;
        for (nth, _) in [member.launch.send_window, member.launch.recv_window].into_iter().flatten() {
            if let Some(window) = view.windows.iter_mut().find(|w| w.nth == nth) {
                window.uses.retain(|(actor, _)| *actor != used.0);
                window.uses.push(used);
            }
        }
        self.access_buffers(state, member);
    }

    fn access_buffers(&self, state: &mut State, member: &Member) {
        let launch = &member.launch;
        let counting = self.counting(member.rank, launch.comm, launch.call.kind);
        let in_place = Arc::ptr_eq(&launch.send, &launch.recv) || launch.send == launch.recv;
        if counting == Counting::Send || !in_place {
            self.access(state, member.rank, member.stream, &launch.send, Access::Read, launch.op);
        }
        if counting != Counting::Send {
            self.access(state, member.rank, member.stream, &launch.recv, Access::Write, launch.op);
        }
    }

    /// Judges whether the windows of all members are the same one, at the same offset.
    fn judge_windows(&self, state: &mut State, comm: CommId, members: &[Member]) {
        let first = &members[0].launch;
        if first.path == KernelPath::Ordinary {
            return;
        }
        type Look = fn(&Launch) -> Option<(u32, u64)>;
        // Which offsets a kernel adds to a peer's base: section 3.3 of the semantics.
        let (send_matters, recv_matters) = match first.call.kind {
            CollectiveKind::AllReduce => (true, true),
            CollectiveKind::AllGather | CollectiveKind::Broadcast { .. } => (false, true),
            CollectiveKind::ReduceScatter | CollectiveKind::Reduce { .. } => (true, false),
        };
        let looks: [(bool, Look); 2] = [(send_matters, |l| l.send_window), (recv_matters, |l| l.recv_window)];
        for (_, look) in looks.iter().filter(|(matters, _)| *matters) {
            let found: Vec<(&Member, u32, u64)> = members
                .iter()
                .filter_map(|m| look(&m.launch).map(|(nth, offset_bytes)| (m, nth, offset_bytes)))
                .collect();
            let Some(&(one, nth, _)) = found.first() else { continue };
            let past = members[0].issue.past();
            // Different windows say more than different places in one, whichever members come first.
            if let Some((other, other_nth, _)) = found.iter().find(|(_, other, _)| *other != nth) {
                let lowest = found.iter().map(|(_, nth, _)| *nth).min().expect("found one");
                let ops = self.registrations(state, comm, (one.rank, nth), (other.rank, nth));
                let sentence = match self.config.explain {
                    Explain::Sentences | Explain::Yes => {
                        self.misregistered(state, one, other, nth, *other_nth)
                    }
                    Explain::No => String::new(),
                };
                self.find(state, Rule::Win2, About::Window(comm, lowest), &ops, past, || sentence);
            } else {
                self.judge_places(state, (comm, nth), &found, past);
            }
        }
    }

    /// Judges whether members found their buffers at one place of a window that starts at one place.
    fn judge_places(
        &self,
        state: &mut State,
        (comm, nth): (CommId, u32),
        found: &[(&Member, u32, u64)],
        past: u64,
    ) {
        let base = |member: &Member| {
            let view = self.view(state, member.rank, comm).expect("a launch has a view");
            view.window(nth).expect("found at the launch").buffer.offset_bytes
        };
        let (one, _, offset) = found[0];
        let differs = |(other, _, at): &&(&Member, u32, u64)| *at != offset || base(other) != base(one);
        let Some((other, _, other_offset)) = found.iter().find(differs) else { return };
        let (bases, about) = ([base(one), base(other)], About::Window(comm, nth));
        if *other_offset == offset {
            let ops = self.registrations(state, comm, (one.rank, nth), (other.rank, nth));
            self.find(state, Rule::Win4, about, &ops, past, || {
                format!(
                    "window #{nth} of {} starts at {} of its allocation on rank {} ({}) and at {} on \
                     rank {} ({}), where {} uses it",
                    self.comm_name(comm),
                    crate::noun::window::bytes(bases[0]),
                    one.rank.0,
                    self.at(&ops[0]),
                    crate::noun::window::bytes(bases[1]),
                    other.rank.0,
                    self.at(&ops[1]),
                    self.call_name(&one.launch),
                )
            });
            return;
        }
        let ops = [one.launch.op, other.launch.op];
        self.find(state, Rule::Win4, about, &ops, past, || {
            format!(
                "{} starts at {} of window #{nth} of {} on rank {} ({}) and at {} on rank {} ({})",
                self.call_name(&one.launch),
                crate::noun::window::bytes(offset),
                self.comm_name(comm),
                one.rank.0,
                self.at(&ops[0]),
                crate::noun::window::bytes(*other_offset),
                other.rank.0,
                self.at(&ops[1]),
            )
        });
    }

    /// The operations that registered the n-th window of a communicator on two ranks.
    fn registrations(&self, state: &State, comm: CommId, a: (Rank, u32), b: (Rank, u32)) -> Vec<OpRef> {
        [a, b]
            .iter()
            .filter_map(|(rank, nth)| self.view(state, *rank, comm)?.window(*nth).map(|w| w.op))
            .collect()
    }

    fn misregistered(&self, state: &State, a: &Member, member: &Member, nth: u32, other: u32) -> String {
        let comm = a.launch.comm;
        let named = |rank: Rank, nth: u32| {
            let window = self.view(state, rank, comm)?.window(nth)?;
            Some((self.buffer_name(&window.buffer), self.at(&window.op)))
        };
        let unknown = || ("nothing".to_owned(), "nowhere".to_owned());
        let (a_name, a_at) = named(a.rank, nth).unwrap_or_else(unknown);
        let (b_name, b_at) = named(member.rank, nth).unwrap_or_else(unknown);
        if a_name == b_name {
            // The registrations agree; the buffers came from different ones.
            let (taken, taken_at) = named(member.rank, other).unwrap_or_else(unknown);
            return format!(
                "{} takes {comm}'s window #{nth}, {a_name}, on rank {} (registered at {a_at}) and window #{other}, \
                 {taken}, on rank {} (registered at {taken_at})",
                self.call_name(&a.launch),
                a.rank.0,
                member.rank.0,
                comm = self.comm_name(comm),
            );
        }
        format!(
            "{comm}'s window #{nth} is {a_name} on rank {} ({a_at}) and {b_name} on rank {} ({b_at}), \
             so {} takes window #{nth} on rank {} and #{other} on rank {}",
            a.rank.0,
            member.rank.0,
            self.call_name(&a.launch),
            a.rank.0,
            member.rank.0,
            comm = self.comm_name(comm),
        )
    }

    /// What every member's buffers hold afterwards.
    fn move_data(&self, state: &mut State, members: &[Member], inputs: &[Content]) {
        let intended = self.intended(state, members, inputs);
        let through = match members[0].launch.path {
            KernelPath::Ordinary => false,
            // Small kernels copy through NCCL's own slots, but find their own buffer through the window.
            KernelPath::SymmetricLl => members.iter().any(|m| self.stale(state, m)),
            KernelPath::SymmetricLsa => !self.aligned(state, members),
        };
        if !through {
            for (range, content, rank) in intended {
                self.write(state, rank, &range, content);
            }
            return;
        }
        if members.iter().any(|m| m.launch.companions) {
            // The kernels of a group run at the same time, and these reach into one another's buffers.
            Self::undefine(state, members[0].launch.op);
        }
        self.access_through_windows(state, members);
        let mut written = self.through_windows(state, members);
        written.sort_by_key(|(rank, range, _)| (*rank, range.memory, range.offset_bytes));
        let collides = written.windows(2).any(|pair| {
            let [(rank, range, content), (next_rank, next, other)] = pair else { return false };
            let meet = range.offset_bytes + range.len_bytes > next.offset_bytes;
            (rank, range.memory) == (next_rank, next.memory) && meet && content != other
        });
        if collides {
            // Which of two ranks writes last is chance.
            Self::undefine(state, members[0].launch.op);
        }
        for (rank, range, content) in written {
            self.write(state, rank, &range, content);
        }
        for (range, content, rank) in intended {
            if self.read(state, rank, &range) != content {
                state.rank_mut(rank).corrupt = true;
            }
        }
    }

    /// What kernels touch through windows that are not the buffers they were given can race like any access.
    fn access_through_windows(&self, state: &mut State, members: &[Member]) {
        let (send_bytes, recv_bytes) = Launch::needs(&members[0].launch.call, members.len());
        for p in members {
            for by in members {
                for (send, access, len_bytes) in
                    [(true, Access::Read, send_bytes), (false, Access::Write, recv_bytes)]
                {
                    let Some((memory, offset_bytes)) = self.through(state, by, p, send) else { continue };
                    let Some(whole) = state.ranks[p.rank.at()].memory.get(&memory) else { continue };
                    // Old pages that a stale window still reaches belong to nobody who could race for them. A
                    // release that nothing orders before the kernel is a use of freed memory in either order.
                    let clock = &state.ranks[p.rank.at()].streams[p.stream].1.clock;
                    if whole.released.as_ref().is_some_and(|released| released.before(clock)) {
                        continue;
                    }
                    let touched = Buffer { offset_bytes, len_bytes, ..Buffer::clone(&whole.buffer) };
                    self.access(state, p.rank, p.stream, &touched, access, p.launch.op);
                }
            }
        }
    }

    fn stale(&self, state: &State, member: &Member) -> bool {
        let launch = &member.launch;
        [(&launch.send, launch.send_window), (&launch.recv, launch.recv_window)].iter().any(
            |(buffer, found)| {
                let Some((nth, _)) = found else { return false };
                let window = self.view(state, member.rank, launch.comm).and_then(|view| view.window(*nth));
                window.is_some_and(|window| window.buffer.memory != buffer.memory)
            },
        )
    }

    /// Whether every kernel finds every peer's buffer where the peer passed it.
    fn aligned(&self, state: &State, members: &[Member]) -> bool {
        let first = &members[0].launch;
        members.iter().all(|m| {
            let base = |nth: Option<(u32, u64)>| {
                let window = self.view(state, m.rank, m.launch.comm)?.window(nth?.0)?;
                Some(window.buffer.offset_bytes)
            };
            let firsts = |nth: Option<(u32, u64)>| {
                let window = self.view(state, members[0].rank, first.comm)?.window(nth?.0)?;
                Some(window.buffer.offset_bytes)
            };
            m.launch.send_window == first.send_window
                && m.launch.recv_window == first.recv_window
                && base(m.launch.send_window) == firsts(first.send_window)
                && base(m.launch.recv_window) == firsts(first.recv_window)
                && !self.stale(state, m)
        })
    }

    /// What the program meant: the contents of each member's output, from the buffers that members passed.
    fn intended(&self, state: &State, members: &[Member], inputs: &[Content]) -> Vec<(Range, Content, Rank)> {
        let part = members[0].launch.part_bytes();
        let mut out = Vec::with_capacity(members.len());
        match members[0].launch.call.kind {
            CollectiveKind::AllReduce => {
                let reduced = self.reduce(members, inputs);
                for m in members {
                    out.push((
                        Range::of(&m.launch.recv).sub(0, part),
                        reduced.clone(),
                        m.launch.recv.home(m.rank),
                    ));
                }
            }
            CollectiveKind::AllGather => {
                for m in members {
                    for (nth, input) in inputs.iter().enumerate() {
                        let at = nth as u64 * part;
                        out.push((
                            Range::of(&m.launch.recv).sub(at, part),
                            input.clone(),
                            m.launch.recv.home(m.rank),
                        ));
                    }
                }
            }
            CollectiveKind::ReduceScatter => {
                for (nth, m) in members.iter().enumerate() {
                    let part_of = |m: &Member| Range::of(&m.launch.send).sub(nth as u64 * part, part);
                    let inputs: Vec<Content> = members
                        .iter()
                        .map(|m| self.read(state, m.launch.send.home(m.rank), &part_of(m)))
                        .collect();
                    let reduced = self.reduce(members, &inputs);
                    out.push((Range::of(&m.launch.recv).sub(0, part), reduced, m.launch.recv.home(m.rank)));
                }
            }
            CollectiveKind::Reduce { root } => {
                if let Some(root) = members.get(root as usize) {
                    let recv = &root.launch.recv;
                    let reduced = self.reduce(members, inputs);
                    out.push((Range::of(recv).sub(0, part), reduced, recv.home(root.rank)));
                }
            }
            CollectiveKind::Broadcast { root } => {
                let input = &inputs[(root as usize).min(members.len() - 1)];
                for m in members {
                    out.push((
                        Range::of(&m.launch.recv).sub(0, part),
                        input.clone(),
                        m.launch.recv.home(m.rank),
                    ));
                }
            }
        }
        out
    }

    fn reduce(&self, members: &[Member], inputs: &[Content]) -> Content {
        let op = members[0].launch.call.op.name();
        let mut terms = locked(&self.terms);
        let shares = inputs.iter().find_map(|content| match content {
            Content::Shares(shares) => Some(shares.len()),
            Content::Whole(_) => None,
        });
        let Some(count) = shares else {
            let parts = inputs.iter().map(|content| whole(&mut terms, content)).collect();
            return Content::Whole(terms.intern(TermNode::Reduced(op, parts)));
        };
        let mut reduced: Vec<Term> = Vec::with_capacity(count);
        for share in 0..count {
            let parts = inputs.iter().map(|content| match content {
                Content::Shares(shares) if shares.len() == count => shares[share],
                Content::Shares(_) | Content::Whole(_) => whole(&mut terms, content),
            });
            let parts = parts.collect();
            reduced.push(terms.intern(TermNode::Reduced(op, parts)));
        }
        merged(reduced)
    }

    /// Where `by`'s kernel finds a peer's buffer: the peer's contribution to `by`'s own window, at `by`'s
    /// own offset.
    fn through(&self, state: &State, by: &Member, peer: &Member, send: bool) -> Option<(MemoryId, u64)> {
        let (nth, offset) = if send { by.launch.send_window? } else { by.launch.recv_window? };
        let view = self.view(state, peer.rank, by.launch.comm)?;
        let window = view.window(nth)?;
        // A window's address is the peer's memory plus the own offset in it (`core__funcs.h:114-141`).
        let own = self.view(state, by.rank, by.launch.comm)?.window(nth)?;
        Some((window.buffer.memory, own.buffer.offset_bytes + offset))
    }

    /// What loads and stores through the windows leave behind.
    fn through_windows(&self, state: &State, members: &[Member]) -> Vec<(Rank, Range, Content)> {
        let part = members[0].launch.part_bytes();
        let mut out: Vec<(Rank, Range, Content)> = Vec::new();
        let whole_of = |content: &Content| whole(&mut locked(&self.terms), content);
        match members[0].launch.call.kind {
            CollectiveKind::AllReduce => {
                /// Shares with their terms.
                type Written = Vec<(usize, Term)>;
                let mut written: Vec<(Rank, Range, Written)> = Vec::new();
                for (share, by) in members.iter().enumerate() {
                    let inputs: Vec<Content> = members
                        .iter()
                        .filter_map(|p| {
                            let (memory, at) = self.through(state, by, p, true)?;
                            let range = Range { memory, offset_bytes: at, len_bytes: part };
                            let content = self.read(state, p.rank, &range);
                            Some(share_of(&content, share, members.len()))
                        })
                        .collect();
                    let term = whole_of(&self.reduce(members, &inputs));
                    for p in members {
                        let Some((memory, at)) = self.through(state, by, p, false) else { continue };
                        let range = Range { memory, offset_bytes: at, len_bytes: part };
                        match written.iter_mut().find(|(rank, r, _)| (*rank, r) == (p.rank, &range)) {
                            Some((.., shares)) => shares.push((share, term)),
                            None => written.push((p.rank, range, vec![(share, term)])),
                        }
                    }
                }
                for (rank, range, shares) in written {
                    let before = self.read(state, rank, &range);
                    let mut all: Vec<Term> = (0..members.len())
                        .map(|share| whole_of(&share_of(&before, share, members.len())))
                        .collect();
                    for (share, term) in shares {
                        all[share] = term;
                    }
                    out.push((rank, range, merged(all)));
                }
            }
            CollectiveKind::AllGather => {
                for (nth, by) in members.iter().enumerate() {
                    let content = self.read(
                        state,
                        by.launch.send.home(by.rank),
                        &Range::of(&by.launch.send).sub(0, part),
                    );
                    for p in members {
                        let Some((memory, at)) = self.through(state, by, p, false) else { continue };
                        let offset_bytes = at + nth as u64 * part;
                        let range = Range { memory, offset_bytes, len_bytes: part };
                        out.push((p.rank, range, content.clone()));
                    }
                }
            }
            CollectiveKind::ReduceScatter => {
                for (nth, by) in members.iter().enumerate() {
                    let inputs: Vec<Content> = members
                        .iter()
                        .filter_map(|p| {
                            let (memory, at) = self.through(state, by, p, true)?;
                            let offset_bytes = at + nth as u64 * part;
                            Some(self.read(state, p.rank, &Range { memory, offset_bytes, len_bytes: part }))
                        })
                        .collect();
                    let content = self.reduce(members, &inputs);
                    out.push((by.rank, Range::of(&by.launch.recv).sub(0, part), content));
                }
            }
            CollectiveKind::Broadcast { .. } | CollectiveKind::Reduce { .. } => {}
        }
        out
    }
}

/// The content of one share of a range.
fn share_of(content: &Content, share: usize, shares: usize) -> Content {
    match content {
        Content::Shares(terms) if terms.len() == shares => Content::Whole(terms[share]),
        Content::Shares(_) | Content::Whole(_) => content.clone(),
    }
}

/// One term where all shares are equal.
fn merged(shares: Vec<Term>) -> Content {
    if shares.iter().all(|term| *term == shares[0]) {
        Content::Whole(shares[0])
    } else {
        Content::Shares(shares.into())
    }
}
