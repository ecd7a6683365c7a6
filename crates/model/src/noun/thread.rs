//! Host threads: the position in the program, operands, answers, and the dispatch of verbs.
//! Not here: what the verbs of the other nouns do.
#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "an operand of another kind is as good as null, and verbs are dispatched by noun"
)]

mod table;

use crate::cx::{Cx, Here};
use crate::describe::{Describe, Description};
use crate::id::Token;
use crate::judge::deadlock::Awaits;
use crate::op::{Op, Show, Verb};
use crate::order::poll::{NondetValues, Poll};
use std::sync::Arc;
use std::sync::atomic::Ordering;

pub(crate) use self::table::{Next, Slots, Threads};
pub use self::table::{Status, ThreadState};
use crate::clock::Clock;
use crate::history::{Lane, Moment};
use crate::host::operand::Known;
use crate::host::value::{Address, Buffer, CommId, Modelled, Value};
use crate::id::ThreadStart;
use crate::judge::finding::OpRef;
use crate::machine::{ConcurrentCalls, Kind, Machine, locked};
use crate::noun::group::Group;
use crate::noun::pool::Plan;
use crate::order::dependence::{Access, Object, TouchMeeting};
use crate::program::{Answer, Block, Operand, Question, Slot};
use crate::rank::{Rank, Thread};
use crate::state::State;

/// Operations of a rank and its host threads.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ThreadOp {
    /// A local step that touches nothing.
    Step {
        /// The name in lanes and reports.
        label: Token,
    },
    /// Start a host thread that runs `start`. Produces the thread.
    Spawn {
        /// The function and the arguments that it runs.
        start: ThreadStart,
    },
    /// Wait for the end of a host thread.
    Join {
        /// The thread: what [`ThreadOp::Spawn`] produced on this rank.
        thread: Operand,
    },
    /// The host thread ends here: an exception that nobody caught, or `r.exit()`. A rank counts as dead then;
    /// its other threads, and what was launched before, still run.
    Exit {
        /// What the process says when it exits.
        code: Token,
    },
    /// Marks a point that some execution must come by.
    Reach {
        /// The name in lanes and reports.
        label: Token,
    },
    /// Warm-up ends: costs are counted from here.
    Steady,
    /// Adds a number to the costs of the check, as its maximum over ranks and executions.
    Measure {
        /// Its name in the costs.
        name: Token,
        /// The number whose largest value over all runs is reported.
        value: Operand,
    },
}

impl Describe for ThreadOp {
    fn describe(&self, to: &mut Description<'_>) {
        match self {
            Self::Step { label } => to.call("Step", &[("label", label)]),
            Self::Spawn { start } => to.call("Spawn", &[("entry", start)]),
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

    fn ready(&self, here: Here<'_>, _: &mut NondetValues<'_>) -> Poll {
        match self {
            Self::Join { thread } => match Machine::value(here.state, here.rank, thread) {
                Value::Thread(child) => Poll::once(!here.me().thread(child).running()),
                _ => Poll::RUN,
            },
            Self::Step { .. }
            | Self::Spawn { .. }
            | Self::Exit { .. }
            | Self::Reach { .. }
            | Self::Steady
            | Self::Measure { .. } => Poll::RUN,
        }
    }

    fn waits_for(&self, here: Here<'_>) -> Awaits {
        match self {
            Self::Join { thread } => match Machine::value(here.state, here.rank, thread) {
                Value::Thread(child) => Awaits::Holder(Some(child)),
                _ => Awaits::Nobody,
            },
            Self::Step { .. }
            | Self::Spawn { .. }
            | Self::Exit { .. }
            | Self::Reach { .. }
            | Self::Steady
            | Self::Measure { .. } => Awaits::Nobody,
        }
    }

    fn apply(&self, cx: &mut Cx<'_>, _: Plan) {
        match self {
            Self::Step { .. } => cx.done(&[]),
            Self::Spawn { start } => cx.spawn(*start),
            Self::Join { thread } => cx.join(thread),
            Self::Exit { code } => {
                let t = cx.this_mut();
                t.index += 1;
                t.next += 1;
                t.status = Status::Exited(*code);
                cx.m.judge_exited(cx.state, cx.rank);
            }
            Self::Reach { label } => {
                locked(&cx.m.reached).insert(*label);
                cx.done(&[]);
            }
            Self::Steady => {
                cx.me_mut().becomes_steady();
                cx.done(&[]);
            }
            Self::Measure { name, value } => {
                if let Value::Int(number) = Machine::value(cx.state, cx.rank, value) {
                    let mut measured = locked(&cx.m.measured);
                    let entry = measured.entry(*name).or_insert(number);
                    *entry = (*entry).max(number);
                }
                cx.done(&[]);
            }
        }
    }
}

/// A rank, as operands of its threads are evaluated.
struct OnRank<'a> {
    state: &'a State,
    rank: Rank,
}

impl Known<Modelled> for OnRank<'_> {
    fn name(&self, token: Token) -> Token {
        token
    }

    fn slot(&self, slot: Slot) -> Option<&Value> {
        let thread = self.state.rank(self.rank).threads().iter().find(|thread| thread.start == slot.start);
        thread.and_then(|thread| thread.slots.get(slot.index))
    }

    fn segment(&self, buffer: &Buffer) -> Option<Arc<Buffer>> {
        let memory = self.state.rank(buffer.home(self.rank)).memory(buffer.memory)?;
        let whole = Buffer::clone(memory.whole());
        let (len_bytes, through) = (whole.memory_len_bytes, buffer.through);
        Some(Arc::new(Buffer { len_bytes, through, ..whole }))
    }

    fn address(&self, buffer: &Buffer) -> Address {
        match buffer.through {
            Some(mapping) => Address::Mapping(mapping, buffer.offset_bytes),
            None => Address::Memory(buffer.address, buffer.offset_bytes),
        }
    }

    fn comm_address(&self, comm: CommId) -> CommId {
        Machine::comm_address(self.state, self.rank, comm)
    }
}

impl Machine {
    pub(crate) fn thread(
        &self,
        rank: Rank,
        start: ThreadStart,
        clock: Clock,
        empty: Arc<Block>,
    ) -> ThreadState {
        let block = self.block(rank, start, &[]).unwrap_or(empty);
        let mut thread = ThreadState {
            start,
            answers: Arc::default(),
            place: self.place(rank, start, &[]),
            block,
            next: 0,
            index: 0,
            begun: clock.epoch(),
            slots: Slots::default(),
            chosen: Vec::new(),
            status: Status::Ready,
            group: Group::default(),
            clock,
        };
        thread.settle();
        thread
    }

    /// What an operand is now.
    pub(crate) fn value(state: &State, rank: Rank, operand: &Operand) -> Value {
        operand.evaluate(&OnRank { state, rank })
    }

    /// Notes how a touch met those of others.
    pub(crate) fn meets(&self, object: Object, met: TouchMeeting) {
        if met != TouchMeeting::Nobody {
            self.met.store(true, Ordering::Relaxed);
        }
        if met == TouchMeeting::Unordered {
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

    /// Adds the operations that threads are blocked before to the log: they did not run, but matter.
    pub fn log_blocked(&self, state: &State) {
        for rank in (0..self.config.ranks).map(Rank) {
            for (at, t) in state.rank(rank).threads().iter().enumerate() {
                let thread = u32::try_from(at).expect("few threads a rank");
                let op = self.here(state, rank, thread).op_ref();
                let logged = locked(&self.log).iter().any(|logged| logged.op == op);
                if t.running() && !logged {
                    self.here(state, rank, thread).log_next(op);
                }
            }
        }
    }
}

impl Cx<'_> {
    /// The operation is done: its results go into slots and the thread moves on.
    pub(crate) fn done(&mut self, slots: &[Value]) {
        let given = self.here().given_slots();
        let t = self.this_mut();
        t.slots.add(slots);
        let missing = given.unwrap_or(0).saturating_sub(u32::try_from(slots.len()).expect("few slots"));
        t.slots.add(&vec![Value::Null; missing as usize]);
        t.next += 1;
        t.begin();
        t.chosen.clear();
        t.status = Status::Ready;
        self.may_return();
    }

    /// Has the thread return if nothing is left to run.
    fn may_return(&mut self) {
        if self.this_mut().settle() {
            self.m.judge_exited(self.state, self.rank);
        }
    }

    /// The question is answered: the thread goes on with the next block.
    pub(crate) fn answer(&mut self, answer: Answer, slots: &[Value]) {
        let (m, rank) = (self.m, self.rank);
        let original = self.state.original[rank.at()];
        let given = self.here().given_answer();
        let answer = given.unwrap_or(answer);
        let t = self.this_mut();
        match (given, t.next_in(&Arc::clone(&t.block))) {
            (Some(given), Next::Ask(question, _)) => {
                let mut slots = slots.to_vec();
                slots.resize(question.slots(given) as usize, Value::Null);
                t.slots.add(&slots);
            }
            _ => t.slots.add(slots),
        }
        Arc::make_mut(&mut t.answers).push(answer);
        t.begin();
        t.chosen.clear();
        if let Some(block) = m.block(original, t.start, &t.answers) {
            t.place = m.place(original, t.start, &t.answers);
            t.block = block;
            t.next = 0;
            self.may_return();
        } else {
            t.status = Status::Stuck;
        }
    }

    /// Records that the thread touches an object of its rank; unordered conflicts ask for a restart. What is not in
    /// the footprint of the operation must not be touched: the reduction would not know of it.
    pub(crate) fn access(&mut self, object: Object, how: Access) {
        let m = self.m;
        if self.me().threads().len() < 2 {
            return;
        }
        self.assert_in_footprint(object, how);
        let how = match (how, m.config.concurrent_calls) {
            (Access::Call, ConcurrentCalls::InEveryOrder) => Access::Write,
            (how, _) => how,
        };
        let clock = self.this().clock.clone();
        let met = self.me_mut().touch(object, how, &clock);
        m.meets(object, met);
    }

    /// Runs the next operation of a thread that [`Machine::poll`] said can run, as it was decided there.
    pub(crate) fn run_thread(&mut self, plan: Plan) {
        let m = self.m;
        m.note_memory(self.state);
        self.state.steps += 1;
        let op_ref = self.here().op_ref();
        if m.config.explain.tells_steps() {
            self.here().log_next(op_ref);
        }
        let (rank, thread) = (self.rank, Thread(self.thread));
        let block = Arc::clone(&self.this().block);
        let next = self.this().next_in(&block);
        let returns = matches!(&next, Next::Op(op) if self.here().has_left(&op.op));
        let t = self.this_mut();
        // Which rank leaves a communicator first is nobody's doing, so whoever waits there has done no more than who does not.
        if !returns {
            t.clock.tick();
        }
        m.note(Moment { op: op_ref, replay: None, lane: Lane::Thread(rank, thread) }, &t.clock);
        match next {
            Next::Return | Next::Unknown => {}
            Next::Ask(question, _) => self.ask(question),
            Next::Op(op) => {
                if self.here().left_out() {
                    let nulls = vec![Value::Null; op.op.slots() as usize];
                    self.done(&nulls);
                    return;
                }
                self.run_op(&op.op, plan);
            }
        }
    }

    fn run_op(&mut self, op: &Op, plan: Plan) {
        let verb = op.verb();
        if !self.dies(verb) && !self.refused(verb) {
            if op.judged_otherwise() && !verb.recorded(self.here()) {
                self.me_mut().executed_mut().others += 1;
            }
            verb.apply(self, plan);
        }
    }

    fn spawn(&mut self, start: ThreadStart) {
        let (m, rank) = (self.m, self.rank);
        let index = self.me().threads().len();
        let streams = self.me().streams().len();
        if !m.fits(index + 1, streams) {
            self.this_mut().status = Status::Stuck;
            return;
        }
        let child = u32::try_from(index).expect("few threads a rank");
        let parent = self.this();
        let clock = parent.clock.child(m.thread_actor(rank, child));
        let empty = Arc::clone(&parent.block);
        let spawned = m.thread(self.state.original[rank.at()], start, clock, empty);
        self.me_mut().start_thread(spawned);
        self.done(&[Value::Thread(child)]);
    }

    fn join(&mut self, child: &Operand) {
        let rank = self.rank;
        if let Value::Thread(child) = Machine::value(self.state, rank, child) {
            let clock = self.me().thread(child).clock.clone();
            self.this_mut().clock.join(&clock);
        }
        self.done(&[]);
    }

    /// A rank that dies at this operation.
    fn dies(&mut self, verb: &dyn Verb) -> bool {
        if !self.here().dies_before(verb) {
            return false;
        }
        let t = self.this_mut();
        t.status = Status::Killed;
        t.chosen.clear();
        self.state.faults_used += 1;
        true
    }

    fn ask(&mut self, question: &Question) {
        let rank = self.rank;
        let is = |truth: bool| Answer::from(truth);
        match question {
            Question::Choose { .. } => {
                let value = self.this().chosen[0];
                self.answer(value, &[]);
            }
            Question::Grew(of) => {
                let grew = Machine::value(self.state, rank, of).grew();
                self.answer(is(grew), &[]);
            }
            Question::Failed(of) => {
                let failed = Machine::value(self.state, rank, of) == Value::Null;
                self.answer(is(failed), &[]);
            }
            Question::Equal(a, b) => {
                let equal = Machine::value(self.state, rank, a).same(&Machine::value(self.state, rank, b));
                self.answer(is(equal), &[]);
            }
            Question::Truth(of) => {
                let truth = Machine::value(self.state, rank, of).truth();
                self.answer(is(truth), &[]);
            }
            Question::Number(of) => {
                let value = Machine::value(self.state, rank, of);
                let number = value.number().unwrap_or_else(|| {
                    self.m.no_number(self.op.loc, &value);
                    0
                });
                self.answer(number, &[]);
            }
            Question::MapHas { .. } | Question::MapItems { .. } | Question::ListLen { .. } => {
                self.ask_map(question);
            }
            Question::Trimmed(of) => {
                let slots = Machine::value(self.state, rank, of).trimmed();
                let count = u32::try_from(slots.len()).expect("few segments");
                self.answer(count, &slots);
            }
            Question::HasWindow { comm, buffer } => {
                let found = match (
                    Machine::value(self.state, rank, comm),
                    Machine::value(self.state, rank, buffer),
                ) {
                    (Value::Comm(comm), Value::Buffer(buffer)) => {
                        self.access(Object::comm(comm), Access::Read);
                        Machine::lookup(self.me(), comm, &buffer).is_some()
                    }
                    _ => false,
                };
                self.answer(is(found), &[]);
            }
            Question::EventQuery { event } => self.event_query(*event),
        }
    }
}

impl<'a> Here<'a> {
    fn log_next(self, op: OpRef) {
        let Here { m, state, rank, .. } = self;
        let t = self.this();
        let (text, call, asks, kind, stream) = match t.upcoming() {
            Next::Op(op) if self.dies_before(op.op.verb()) => {
                let text = format!("dies before {}", m.call_text(state, rank, &op.op));
                (text.clone(), text, false, Kind::InRole, None)
            }
            Next::Op(op) => {
                let stream = op.op.stream().map(|stream| m.name(stream));
                let call = m.call_text(state, rank, &op.op);
                (m.op_name(state, rank, &op.op), call, false, op.op.verb().kind(), stream)
            }
            Next::Ask(question, _) => {
                let text = m.question_name(state, rank, question);
                (text.clone(), text, true, Kind::Bookkeeping, None)
            }
            Next::Return | Next::Unknown => return,
        };
        let mut log = locked(&m.log);
        // An operation that waits runs in parts, and other threads in between. What they do then is done before it.
        let before = log.iter().rposition(|l| (l.op.rank, l.op.thread) == (op.rank, op.thread));
        match before.filter(|before| log[*before].op == op) {
            Some(before) if log[before + 1..].iter().all(|l| l.op.rank != op.rank) => {}
            Some(before) => {
                let moved = log.remove(before);
                log.push(moved);
            }
            None => log.push(crate::machine::Logged { op, text, call, asks, kind, stream }),
        }
    }
}
