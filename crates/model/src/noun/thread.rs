//! Host threads: the position in the program, operands, answers, and the dispatch of verbs.
//! Not here: what the verbs of the other nouns do.
#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "an operand of another kind is as good as null, and verbs are dispatched by noun"
)]

use crate::describe::{Describe, Description};
use crate::op::{
    BarrierOp, CommOp, EventOp, ExchangeOp, FlagOp, GraphOp, GroupOp, IpcOp, ListOp, MapOp, MemoryOp,
    MutexOp, Op, OverlapOp, PoolOp, Show, StoreOp, StreamOp, Verb, WindowOp,
};
use crate::rank::Token;
use std::sync::Arc;

use crate::clock::Clock;
use crate::host::value::{Address, Buffer, Value};
use crate::judge::finding::OpRef;
use crate::machine::{Kind, Machine, locked};
use crate::noun::pool::Plan;
use crate::order::dependence::{Object, Touch, touch};
use crate::program::{Answer, End, Operand, Question, Statement, Stretch};
use crate::rank::{Entry, PlaceId, Rank};
use crate::state::{Group, Slots, State, Status, ThreadState};

/// What can be done with threads.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ThreadOp {
    /// A local step that touches nothing.
    Step {
        /// Its name.
        label: Token,
    },
    /// Start a host thread that evaluates `entry`. Produces the thread.
    Spawn {
        /// Function and arguments.
        entry: Entry,
    },
    /// Wait for the end of a host thread.
    Join {
        /// What [`ThreadOp::Spawn`] produced.
        thread: Operand,
    },
    /// The host thread ends here: an exception that nobody caught, or `r.exit()`. A rank counts as dead then;
    /// its other threads, and what was launched before, still run.
    Exit {
        /// The message.
        code: Token,
    },
    /// Marks a place that some execution must come by.
    Reach {
        /// Its name.
        label: Token,
    },
    /// Warm-up ends: costs are counted from here.
    Steady,
    /// Adds a number to the costs of the check, as its maximum over ranks and executions.
    Measure {
        /// Its name in the costs.
        name: Token,
        /// The value.
        value: Operand,
    },
}

impl Describe for ThreadOp {
    fn describe(&self, to: &mut Description<'_>) {
        match self {
            Self::Step { label } => to.call("Step", &[("label", label)]),
            Self::Spawn { entry } => to.call("Spawn", &[("entry", entry)]),
            Self::Join { thread } => to.call("Join", &[("thread", thread)]),
            Self::Exit { code } => to.call("Exit", &[("code", code)]),
            Self::Reach { label } => to.call("Reach", &[("label", label)]),
            Self::Steady => to.call("Steady", &[]),
            Self::Measure { name, value } => to.call("Measure", &[("name", name), ("value", value)]),
        }
    }
}

impl Verb for ThreadOp {
    fn slots(&self) -> u32 {
        match self {
            Self::Step { .. }
            | Self::Join { .. }
            | Self::Exit { .. }
            | Self::Reach { .. }
            | Self::Steady
            | Self::Measure { .. } => 0,
            Self::Spawn { .. } => 1,
        }
    }

    fn kind(&self) -> Kind {
        match self {
            Self::Step { .. }
            | Self::Spawn { .. }
            | Self::Reach { .. }
            | Self::Steady
            | Self::Measure { .. } => Kind::Bookkeeping,
            Self::Join { .. } | Self::Exit { .. } => Kind::InRole,
        }
    }

    fn display(&self, show: &Show<'_>) -> String {
        let name = |token: &Token| show.name(*token);
        let of = |operand: &Operand| show.operand(operand);
        match self {
            Self::Step { label } => name(label).to_string(),
            Self::Spawn { .. } => "thread".to_owned(),
            Self::Join { thread } => format!("{}.join", of(thread)),
            Self::Exit { code } => format!("exit({})", name(code)),
            Self::Reach { label } => format!("reach({})", name(label)),
            Self::Steady => "steady".to_owned(),
            Self::Measure { name: what, .. } => format!("measure({})", name(what)),
        }
    }
}

/// What a thread does next.
pub(crate) enum Next<'a> {
    Op(&'a Statement),
    Ask(&'a Question, PlaceId),
    Return,
    Unknown,
}

impl ThreadState {
    pub(crate) fn next_in<'a>(&self, stretch: &'a Stretch) -> Next<'a> {
        match stretch.ops.get(self.next as usize) {
            Some(op) => Next::Op(op),
            None => match &stretch.end {
                End::Return => Next::Return,
                End::Ask(question, place) => Next::Ask(question, *place),
                End::Cut => Next::Unknown,
            },
        }
    }

    pub(crate) fn place(&self) -> PlaceId {
        match self.next_in(&self.stretch) {
            Next::Op(op) => op.place,
            Next::Ask(_, place) => place,
            Next::Return | Next::Unknown => self.stretch.ops.last().map_or(PlaceId::default(), |op| op.place),
        }
    }

    /// Whether the thread is still somewhere inside its function.
    #[must_use]
    pub fn running(&self) -> bool {
        matches!(self.status, Status::Ready | Status::Waiting(_) | Status::Stuck)
    }

    /// Whether what it does next is not known.
    #[must_use]
    pub fn cut(&self) -> bool {
        matches!(self.next_in(&self.stretch), Next::Unknown)
    }

    /// The function that it runs.
    #[must_use]
    pub fn entry(&self) -> Entry {
        self.entry
    }

    /// The answers that it was given so far.
    #[must_use]
    pub fn answers(&self) -> &[Answer] {
        &self.answers
    }

    /// Operations and questions that it has behind it.
    #[must_use]
    pub fn index(&self) -> u32 {
        self.index
    }

    fn settle(&mut self) {
        if self.next as usize == self.stretch.ops.len() && self.stretch.end == End::Return {
            self.status = Status::Done;
        }
    }
}

impl Machine {
    pub(crate) fn thread(&self, rank: Rank, entry: Entry, clock: Clock, empty: Arc<Stretch>) -> ThreadState {
        let stretch = self.stretch(rank, entry, &[]).unwrap_or(empty);
        let mut thread = ThreadState {
            entry,
            answers: Arc::default(),
            stretch,
            next: 0,
            index: 0,
            slots: Slots::default(),
            picks: Vec::new(),
            status: Status::Ready,
            group: Group::default(),
            clock,
        };
        thread.settle();
        thread
    }

    /// The operation is done: its results go into slots and the thread moves on.
    pub(crate) fn done(&self, state: &mut State, rank: Rank, thread: u32, slots: &[Value]) {
        let t = &mut state.rank_mut(rank).threads[thread as usize];
        t.slots.add(slots);
        t.next += 1;
        t.index += 1;
        t.picks.clear();
        t.status = Status::Ready;
        t.settle();
    }

    /// The question is answered: the thread goes on with the next stretch.
    pub(crate) fn answer(&self, state: &mut State, rank: Rank, thread: u32, answer: Answer, slots: &[Value]) {
        let original = state.original[rank.at()];
        let t = &mut state.rank_mut(rank).threads[thread as usize];
        t.slots.add(slots);
        Arc::make_mut(&mut t.answers).push(answer);
        t.index += 1;
        t.picks.clear();
        if let Some(stretch) = self.stretch(original, t.entry, &t.answers) {
            t.stretch = stretch;
            t.next = 0;
            t.settle();
        } else {
            t.status = Status::Stuck;
        }
    }

    /// What an operand is now.
    pub(crate) fn value(state: &State, rank: Rank, operand: &Operand) -> Value {
        match operand {
            Operand::Null => Value::Null,
            Operand::Int(number) => Value::Int(*number),
            Operand::Token(token) => Value::Token(*token),
            Operand::Bool(truth) => Value::Bool(*truth),
            Operand::Slot(slot) => {
                // A slot names the entry that its thread started from: each entry is started once.
                let threads = &state.ranks[rank.at()].threads;
                let thread = threads.iter().find(|t| t.entry == slot.entry);
                thread.and_then(|t| t.slots.get(slot.index)).cloned().unwrap_or(Value::Null)
            }
            Operand::Slice { of, offset_bytes, len_bytes } => match Self::value(state, rank, of) {
                Value::Buffer(buffer) => {
                    let mut slice = Buffer::clone(&buffer);
                    slice.offset_bytes += offset_bytes;
                    slice.len_bytes = *len_bytes;
                    Value::Buffer(Arc::new(slice))
                }
                _ => Value::Null,
            },
            Operand::Segment(of) => match Self::value(state, rank, of) {
                Value::Buffer(buffer) => {
                    let memory = state.ranks[buffer.home(rank).at()].memory.get(&buffer.memory);
                    memory.map_or(Value::Null, |memory| {
                        let mut whole = Buffer::clone(&memory.buffer);
                        whole.len_bytes = whole.memory_len_bytes;
                        whole.through = buffer.through;
                        Value::Buffer(Arc::new(whole))
                    })
                }
                _ => Value::Null,
            },
            Operand::At { of, like } => {
                match (Self::value(state, rank, of), Self::value(state, rank, like)) {
                    (Value::Buffer(of), Value::Buffer(like)) => {
                        let mut there = Buffer::clone(&of);
                        (there.offset_bytes, there.len_bytes) = (like.offset_bytes, like.len_bytes);
                        Value::Buffer(Arc::new(there))
                    }
                    _ => Value::Null,
                }
            }
            Operand::Address(of) => match Self::value(state, rank, of) {
                Value::Buffer(buffer) => Value::Address(match buffer.through {
                    Some(mapping) => Address::Mapping(mapping, buffer.offset_bytes),
                    None => Address::Memory(buffer.address, buffer.offset_bytes),
                }),
                Value::Comm(comm) => Value::Address(Address::Comm(Self::comm_address(state, rank, comm))),
                _ => Value::Null,
            },
            Operand::Tuple(parts) => {
                Value::Tuple(parts.iter().map(|part| Self::value(state, rank, part)).collect())
            }
            Operand::Stream(token) => Value::Stream(*token),
            Operand::Event(token) => Value::Event(*token),
            Operand::Device => Value::Device,
        }
    }

    /// Records that a thread touches an object of its rank; unordered conflicts ask for a restart.
    pub(crate) fn touch(&self, state: &mut State, rank: Rank, thread: u32, object: Object, how: Touch) {
        if state.ranks[rank.at()].threads.len() < 2 {
            return;
        }
        let clock = state.ranks[rank.at()].threads[thread as usize].clock.clone();
        let conflict = touch(&mut state.rank_mut(rank).touches, object, how, &clock);
        if conflict {
            self.contend(object);
        }
    }

    /// An object turned out to be contended.
    pub(crate) fn contend(&self, object: Object) {
        if self.config.mode == crate::machine::Mode::Reduced
            && !self.config.contended.contains(&object)
            && !self.config.declared_commuting.contains(&object.kind)
        {
            self.interrupt(|pending| {
                pending.contended.insert(object);
            });
        }
    }

    /// Runs the next operation of a thread that [`Machine::poll`] said can run, as it was decided there.
    pub(crate) fn run_thread(&self, state: &mut State, rank: Rank, thread: u32, plan: Plan) {
        state.steps += 1;
        let op_ref = self.op_ref(state, rank, thread);
        if self.config.explain == crate::machine::Explain::Yes {
            self.log_next(state, rank, thread, op_ref);
        }
        let t = &mut state.rank_mut(rank).threads[thread as usize];
        t.clock.tick();
        let stretch = Arc::clone(&t.stretch);
        match t.next_in(&stretch) {
            Next::Return | Next::Unknown => {}
            Next::Ask(question, _) => self.ask(state, rank, thread, question),
            Next::Op(op) => {
                if self.left_out(state, rank, thread) {
                    let nulls = vec![Value::Null; op.op.slots() as usize];
                    self.done(state, rank, thread, &nulls);
                    return;
                }
                self.run_op(state, rank, thread, &op.op, op_ref, plan);
            }
        }
    }

    fn log_next(&self, state: &State, rank: Rank, thread: u32, op: OpRef) {
        let t = &state.ranks[rank.at()].threads[thread as usize];
        let (text, asks, kind) = match t.next_in(&t.stretch) {
            Next::Op(op) => (self.op_name(state, rank, &op.op), false, op.op.verb().kind()),
            Next::Ask(question, _) => (self.question_name(state, rank, question), true, Kind::Bookkeeping),
            Next::Return | Next::Unknown => return,
        };
        let mut log = locked(&self.log);
        // An operation that waits runs in parts, and other threads in between.
        let before = log.iter().rfind(|l| (l.op.rank, l.op.thread) == (op.rank, op.thread));
        if before.is_none_or(|before| before.op != op) {
            log.push(crate::machine::Logged { op, text, asks, kind });
        }
    }

    /// Adds the operations that threads are blocked before to the log: they did not run, but matter.
    pub fn log_blocked(&self, state: &State) {
        for rank in (0..self.config.ranks).map(Rank) {
            for (at, t) in state.ranks[rank.at()].threads.iter().enumerate() {
                let thread = u32::try_from(at).expect("few threads a rank");
                let op = self.op_ref(state, rank, thread);
                let logged = locked(&self.log).iter().any(|logged| logged.op == op);
                if t.running() && !logged {
                    self.log_next(state, rank, thread, op);
                }
            }
        }
    }

    fn run_op(&self, state: &mut State, rank: Rank, thread: u32, verb: &Op, op: OpRef, plan: Plan) {
        if self.dies(state, rank, thread, verb) || self.refused(state, rank, thread, verb, op) {
            return;
        }
        match verb {
            Op::Thread(ThreadOp::Step { .. }) => self.done(state, rank, thread, &[]),
            Op::Thread(ThreadOp::Spawn { entry }) => self.spawn(state, rank, thread, *entry),
            Op::Thread(ThreadOp::Join { thread: child }) => self.join(state, rank, thread, child),
            Op::Thread(ThreadOp::Exit { code }) => {
                let t = &mut state.rank_mut(rank).threads[thread as usize];
                t.index += 1;
                t.next += 1;
                t.status = Status::Exited(*code);
            }
            Op::Thread(ThreadOp::Reach { label }) => {
                locked(&self.reached).insert(*label);
                self.done(state, rank, thread, &[]);
            }
            Op::Thread(ThreadOp::Steady) => {
                state.rank_mut(rank).costs.steady = true;
                self.done(state, rank, thread, &[]);
            }
            Op::Thread(ThreadOp::Measure { name, value }) => {
                if let Value::Int(number) = Self::value(state, rank, value) {
                    let mut measured = locked(&self.measured);
                    let entry = measured.entry(*name).or_insert(number);
                    *entry = (*entry).max(number);
                }
                self.done(state, rank, thread, &[]);
            }
            Op::Comm(CommOp::Init { name, members, .. }) => {
                self.comm_init(state, rank, thread, *name, members, op)
            }
            Op::Comm(CommOp::Split { comm, .. }) => self.comm_split(state, rank, thread, comm, op),
            Op::Comm(CommOp::Destroy { comm }) => self.comm_destroy(state, rank, thread, comm, op),
            Op::Window(WindowOp::Register { comm, memory, flags }) => {
                self.register(state, rank, thread, (comm, memory, *flags), op);
            }
            Op::Window(WindowOp::Deregister { comm, window }) => {
                self.deregister(state, rank, thread, comm, window, op)
            }
            Op::Group(GroupOp::Start) => self.group_start(state, rank, thread),
            Op::Group(GroupOp::End) => self.group_end(state, rank, thread, op),
            Op::Collective(call) => self.collect(state, rank, thread, call, op),
            Op::Transfer(call) => self.transfer(state, rank, thread, call, op),
            Op::Overlap(OverlapOp { one, other }) => self.overlap(state, rank, thread, [*one, *other], op),
            Op::Stream(StreamOp::Kernel { name, reads, writes, stream }) => {
                self.kernel(state, rank, thread, *name, (reads, writes), *stream, op);
            }
            Op::Memory(MemoryOp::Copy { to, from, stream }) => {
                self.copy(state, (rank, thread), (to, from), *stream, op);
            }
            Op::Memory(MemoryOp::Expect { buffer, kernel, by, stream }) => {
                self.expect(state, (rank, thread), (buffer, *kernel, *by), *stream, op);
            }
            Op::Event(EventOp { event, stream }) => {
                self.event_record(state, rank, thread, *event, *stream, op);
            }
            Op::Stream(StreamOp::Wait { stream, event }) => {
                self.stream_wait(state, rank, thread, *stream, *event, op)
            }
            Op::Stream(StreamOp::Synchronize { what }) => self.synchronize(state, rank, thread, what),
            Op::Graph(GraphOp::Begin { .. })
            | Op::Graph(GraphOp::End { .. })
            | Op::Graph(GraphOp::Replay { .. })
            | Op::Graph(GraphOp::Destroy { .. }) => self.run_graph(state, rank, thread, verb, op),
            Op::Pool(PoolOp::Declare { .. })
            | Op::Pool(PoolOp::Lock { .. })
            | Op::Pool(PoolOp::Unlock { .. })
            | Op::Pool(PoolOp::Alloc { .. })
            | Op::Memory(MemoryOp::Free { .. })
            | Op::Pool(PoolOp::Trim { .. })
            | Op::Memory(MemoryOp::Release { .. })
            | Op::Pool(PoolOp::Havoc { .. })
            | Op::Memory(MemoryOp::Alloc { .. }) => self.run_memory(state, rank, thread, verb, op, plan),
            Op::Barrier(BarrierOp::Enter { members }) | Op::Barrier(BarrierOp::AllAgree { members, .. }) => {
                self.host(state, rank, thread, members);
            }
            Op::Mutex(MutexOp::Lock { mutex }) => self.lock(state, rank, thread, *mutex),
            Op::Mutex(MutexOp::Unlock { mutex }) => self.unlock(state, rank, thread, *mutex, op),
            Op::Store(StoreOp::Set { .. })
            | Op::Store(StoreOp::Get { .. })
            | Op::Store(StoreOp::Delete { .. }) => self.run_store(state, rank, thread, verb, op),
            Op::Flag(FlagOp { flag, act, stream }) => {
                self.run_flag(state, (rank, thread), (*flag, *act), *stream, op);
            }
            Op::Ipc(IpcOp::Export { .. }) | Op::Ipc(IpcOp::Open { .. }) | Op::Ipc(IpcOp::Close { .. }) => {
                self.run_ipc(state, rank, thread, verb, op);
            }
            Op::Exchange(ExchangeOp { members, .. }) => self.exchange(state, rank, thread, members),
            Op::Map(MapOp::Put { .. })
            | Op::Map(MapOp::Pop { .. })
            | Op::Map(MapOp::Get { .. })
            | Op::Map(MapOp::Clear { .. })
            | Op::List(ListOp::Push { .. })
            | Op::List(ListOp::Get { .. })
            | Op::List(ListOp::Set { .. })
            | Op::List(ListOp::Pop { .. })
            | Op::List(ListOp::Clear { .. }) => self.run_map(state, rank, thread, verb, op),
        }
    }

    fn spawn(&self, state: &mut State, rank: Rank, thread: u32, entry: Entry) {
        let index = state.ranks[rank.at()].threads.len();
        let streams = state.ranks[rank.at()].streams.len();
        if !self.fits(index + 1, streams) {
            state.rank_mut(rank).threads[thread as usize].status = Status::Stuck;
            return;
        }
        let child = u32::try_from(index).expect("few threads a rank");
        let parent = &state.ranks[rank.at()].threads[thread as usize];
        let clock = parent.clock.child(self.thread_actor(rank, child));
        let empty = Arc::clone(&parent.stretch);
        let spawned = self.thread(state.original[rank.at()], entry, clock, empty);
        state.rank_mut(rank).threads.push(spawned);
        self.done(state, rank, thread, &[Value::Thread(child)]);
    }

    fn join(&self, state: &mut State, rank: Rank, thread: u32, child: &Operand) {
        if let Value::Thread(child) = Self::value(state, rank, child) {
            let clock = state.ranks[rank.at()].threads[child as usize].clock.clone();
            state.rank_mut(rank).threads[thread as usize].clock.join(&clock);
        }
        self.done(state, rank, thread, &[]);
    }

    /// A rank that luck kills at this operation.
    fn dies(&self, state: &mut State, rank: Rank, thread: u32, verb: &Op) -> bool {
        if !self.may_die(state, rank, thread, verb) {
            return false;
        }
        let t = &mut state.rank_mut(rank).threads[thread as usize];
        if t.picks.first() != Some(&1) {
            return false;
        }
        t.status = Status::Exited(crate::rank::Token(u32::MAX));
        t.picks.clear();
        state.faults_used += 1;
        true
    }

    fn ask(&self, state: &mut State, rank: Rank, thread: u32, question: &Question) {
        let is = |truth: bool| Answer::from(truth);
        match question {
            Question::Choose { .. } => {
                let pick = state.ranks[rank.at()].threads[thread as usize].picks[0];
                self.answer(state, rank, thread, pick, &[]);
            }
            Question::Grew(of) => {
                let grew = matches!(Self::value(state, rank, of), Value::Buffer(buffer) if buffer.grew);
                self.answer(state, rank, thread, is(grew), &[]);
            }
            Question::Failed(of) => {
                let failed = Self::value(state, rank, of) == Value::Null;
                self.answer(state, rank, thread, is(failed), &[]);
            }
            Question::Equal(a, b) => {
                let equal = Self::same(&Self::value(state, rank, a), &Self::value(state, rank, b));
                self.answer(state, rank, thread, is(equal), &[]);
            }
            Question::Truth(of) => {
                let truth = match Self::value(state, rank, of) {
                    Value::Bool(truth) => truth,
                    Value::Int(number) => number != 0,
                    Value::Null => false,
                    _ => true,
                };
                self.answer(state, rank, thread, is(truth), &[]);
            }
            Question::Number(of) => {
                let number = match Self::value(state, rank, of) {
                    Value::Int(number) => number.clamp(0, i64::from(crate::program::MAX_NUMBER)),
                    _ => 0,
                };
                self.answer(state, rank, thread, u32::try_from(number).expect("clamped"), &[]);
            }
            Question::MapHas { .. } | Question::MapItems { .. } | Question::ListLen { .. } => {
                self.ask_map(state, rank, thread, question);
            }
            Question::Trimmed(of) => {
                let segments = match Self::value(state, rank, of) {
                    Value::Trimmed(segments) => segments,
                    _ => Arc::from([]),
                };
                let slots: Vec<Value> = segments.iter().map(|s| Value::Buffer(Arc::clone(s))).collect();
                let count = u32::try_from(slots.len()).expect("few segments");
                self.answer(state, rank, thread, count, &slots);
            }
            Question::HasWindow { comm, buffer } => {
                let found = match (Self::value(state, rank, comm), Self::value(state, rank, buffer)) {
                    (Value::Comm(comm), Value::Buffer(buffer)) => {
                        self.touch(state, rank, thread, Object::comm(comm), Touch::Read);
                        Self::lookup(&state.ranks[rank.at()], comm, &buffer).is_some()
                    }
                    _ => false,
                };
                self.answer(state, rank, thread, is(found), &[]);
            }
            Question::EventQuery { event } => self.event_query(state, rank, thread, *event),
        }
    }

    /// Equality as a program sees it: buffers by what they are, addresses by where they are.
    pub(crate) fn same(a: &Value, b: &Value) -> bool {
        match (a, b) {
            (Value::Buffer(a), Value::Buffer(b)) => {
                (a.memory, a.offset_bytes, a.block, a.through)
                    == (b.memory, b.offset_bytes, b.block, b.through)
            }
            (a, b) => a == b,
        }
    }
}
