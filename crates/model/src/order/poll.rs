//! Whether the next operation of a thread can run, has to wait, or needs luck to pick.
//!
//! Polling never changes the state, so it may be asked at any time and in any order.
//! Not here: what running does.
#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "an operand of another kind is as good as null, and verbs are dispatched by noun"
)]

use crate::cx::Here;
use crate::op::{
    BarrierOp, CommOp, EventOp, ExchangeOp, FlagAct, FlagOp, GraphOp, GroupOp, IpcOp, ListOp, MapOp,
    MemoryOp, MutexOp, Op, OverlapOp, PoolOp, StoreOp, StreamOp, ThreadOp, WindowOp,
};
use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::sync::Arc;

use crate::host::value::Value;
use crate::machine::{Expectations, Machine, Mode, ObjectKind};
use crate::noun::pool::Plan;
use crate::noun::thread::Next;
use crate::order::dependence::Object;
use crate::program::{Operand, Question};
use crate::rank::{PlaceId, Rank, Thread, Token};
use crate::state::{State, Status, find};

/// Which calls may fail, and how often in one run.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Faults {
    /// Verbs.
    pub of: BTreeSet<FaultOf>,
    /// In one run.
    pub at_most: u32,
}

/// What may fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FaultOf {
    /// Allocations run out of memory.
    Alloc,
    /// Registrations return an error on one rank before the others are met.
    Register,
    /// Communicator init returns an error on one rank.
    Init,
    /// A rank dies before it enters an operation that others see.
    Death,
}

/// What luck picks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PickOf {
    /// One of the options of a `choose`.
    Choose(Token, Arc<[Token]>),
    /// Whether a call fails.
    Fault(FaultOf),
    /// Whether an event is seen complete.
    Poll(Token),
    /// Whether the event of a deferred free is seen complete.
    Deferred(Token),
    /// Where an address lies among those already compared.
    AddressOrder,
    /// Where a key lies in hash order among those already compared.
    HashOrder,
    /// Where a communicator's hash lies among those already compared, on every rank.
    CommOrder,
    /// Whether a new segment gets a fresh address (0) or which freed one.
    AddressReuse,
    /// Whether NCCL can hold no more than was measured (0), or all but what was measured to hang.
    InFlight,
    /// Whether transfers of a group that need not progress together do (0) or take turns (1).
    InTurn,
    /// What a pool's history left behind: nothing more (0) or a free segment of the n-th size.
    Havoc(Token),
}

/// The result of polling.
#[derive(Debug, Clone)]
pub(crate) enum Poll {
    /// It can run, and will do this.
    Run(Plan),
    Wait,
    Pick(PickOf, RangeInclusive<u32>),
}

impl Poll {
    /// It can run, and nothing was open.
    pub(crate) const RUN: Self = Self::Run(Plan::Nothing);
}

/// The picks made for an operation, consumed in order while it is decided.
pub(crate) struct Picks<'a> {
    pub(crate) given: &'a [u32],
}

impl Picks<'_> {
    /// The next pick, or the question for it.
    pub(crate) fn take(
        &mut self,
        of: impl FnOnce() -> PickOf,
        options: RangeInclusive<u32>,
    ) -> Result<u32, Poll> {
        // One possibility is no choice, and no pick is spent on it.
        if options.start() == options.end() {
            return Ok(*options.start());
        }
        let Some((first, rest)) = self.given.split_first() else {
            return Err(Poll::Pick(of(), options));
        };
        self.given = rest;
        Ok(*first)
    }

    /// Takes the place of a new value in an order that luck extends.
    pub(crate) fn place<V>(&mut self, of: fn() -> PickOf) -> impl FnMut(&[V], &V) -> Result<usize, Poll> {
        move |order, _| {
            let places = u32::try_from(order.len()).expect("few values are compared");
            self.take(of, 0..=places).map(|place| place as usize)
        }
    }
}

impl Machine {
    /// What each pick of a sequence is about.
    #[must_use]
    pub fn picks_of(&self, state: &State, rank: Rank, thread: Thread, picks: &[u32]) -> Vec<(PickOf, u32)> {
        let already = state.rank(rank).threads[thread.at()].picks.len();
        (already..picks.len())
            .filter_map(|at| match self.here(state, rank, thread.0).poll_given(&picks[..at]) {
                Poll::Pick(of, _) => Some((of, picks[at])),
                Poll::Run(_) | Poll::Wait => None,
            })
            .collect()
    }

    /// Whether another fault is allowed in this run.
    pub(crate) fn faults_left(&self, state: &State, of: FaultOf) -> bool {
        self.config.faults.of.contains(&of) && state.faults_used < self.config.faults.at_most
    }

    pub(crate) fn decide_fault(
        &self,
        state: &State,
        of: FaultOf,
        picks: &mut Picks<'_>,
    ) -> Result<bool, Poll> {
        if !self.faults_left(state, of) {
            return Ok(false);
        }
        Ok(picks.take(|| PickOf::Fault(of), 0..=1)? == 1)
    }

    fn comm_object(&self, state: &State, rank: Rank, comm: &Operand, each: &mut dyn FnMut(Object)) {
        if let Value::Comm(comm) = Self::value(state, rank, comm) {
            self.comm_objects(state, rank, comm).for_each(each);
        }
    }

    fn memory_object(&self, state: &State, rank: Rank, memory: &Operand, each: &mut dyn FnMut(Object)) {
        if let Value::Buffer(buffer) = Self::value(state, rank, memory) {
            each(Object::memory(buffer.memory));
        }
    }
}

impl<'a> Here<'a> {
    /// Whether the thread's next operation can run.
    pub(crate) fn poll(self) -> Poll {
        self.poll_given(&self.this().picks)
    }

    /// Whether the thread's next operation could run if luck picked so.
    pub(crate) fn poll_given(self, given: &[u32]) -> Poll {
        let t = self.this();
        if t.status != Status::Ready {
            return Poll::Wait;
        }
        match t.next_in(&t.stretch) {
            Next::Return | Next::Unknown => Poll::Wait,
            Next::Op(_) if self.left_out() => Poll::RUN,
            Next::Ask(question, _) => self.poll_ask(question, given),
            Next::Op(op) => self.poll_op(&op.op, given),
        }
    }

    /// Whether the thread's next operation is left out of the program.
    pub(crate) fn left_out(self) -> bool {
        let Here { m, state, rank, thread } = self;
        let t = self.this();
        let listed = !m.config.left_out.is_empty()
            && m.config.left_out.contains(&(state.original[rank.at()], Thread(thread), t.index));
        let stated = |without: Option<PlaceId>| match t.next_in(&t.stretch) {
            Next::Op(op) => {
                matches!(op.op, Op::Memory(MemoryOp::Expect { .. }))
                    && without.is_none_or(|place| place == op.place)
            }
            Next::Ask(..) | Next::Return | Next::Unknown => false,
        };
        listed
            || match m.config.expectations {
                Expectations::Judged => false,
                Expectations::LeftOutAt(place) => stated(Some(place)),
                Expectations::LeftOut => stated(None),
            }
    }

    /// Every sequence of picks with which the next operation runs or waits. An operation takes all its picks
    /// at once: between two of them nothing may change what they mean.
    pub(crate) fn expand(self) -> Vec<Vec<u32>> {
        let mut open = vec![self.this().picks.clone()];
        let mut complete = Vec::new();
        while let Some(picks) = open.pop() {
            match self.poll_given(&picks) {
                Poll::Run(_) | Poll::Wait => complete.push(picks),
                Poll::Pick(_, options) => {
                    for option in options.rev() {
                        let mut longer = picks.clone();
                        longer.push(option);
                        open.push(longer);
                    }
                }
            }
        }
        complete
    }

    fn poll_ask(self, question: &Question, given: &[u32]) -> Poll {
        let Here { m, state, rank, .. } = self;
        let mut picks = Picks { given };
        let decided = match question {
            Question::Choose { name, options } => {
                let last = u32::try_from(options.len() - 1).expect("few options, and a choose has one");
                if given.is_empty() {
                    Err(Poll::Pick(PickOf::Choose(*name, Arc::clone(options)), 0..=last))
                } else {
                    Ok(())
                }
            }
            Question::EventQuery { .. } if self.forbidden_query().is_some() => Ok(()),
            Question::EventQuery { event } => {
                self.seen(*event, u32::MAX, &mut picks, || PickOf::Poll(*event)).map(|_| ())
            }
            Question::MapItems { map, order } => {
                m.decide_items(state, rank, *map, *order, &mut picks).map(|_| ())
            }
            Question::Grew(_)
            | Question::Failed(_)
            | Question::Equal(..)
            | Question::Truth(_)
            | Question::Number(_)
            | Question::MapHas { .. }
            | Question::ListLen { .. }
            | Question::Trimmed(_)
            | Question::HasWindow { .. } => Ok(()),
        };
        decided.err().unwrap_or(Poll::RUN)
    }

    fn poll_op(self, verb: &Op, given: &[u32]) -> Poll {
        let Here { m, state, rank, thread } = self;
        let r = self.me();
        let when = |ready: bool| if ready { Poll::RUN } else { Poll::Wait };
        let mut picks = Picks { given };
        if self.may_die(verb) {
            match picks.take(|| PickOf::Fault(FaultOf::Death), 0..=1) {
                Ok(1) => return Poll::RUN,
                Ok(_) => {}
                Err(poll) => return poll,
            }
        }
        if self.forbidden(verb).is_some() {
            return Poll::RUN;
        }
        match verb {
            Op::Thread(ThreadOp::Join { thread: child }) => match Machine::value(state, rank, child) {
                Value::Thread(child) => when(!r.threads[child as usize].running()),
                _ => Poll::RUN,
            },
            Op::Mutex(MutexOp::Lock { mutex }) => {
                when(find(&r.mutexes, mutex).is_none_or(|at| r.mutexes[at].1.holder.is_none()))
            }
            Op::Pool(PoolOp::Lock { pool }) => {
                when(find(&r.pools, pool).is_none_or(|at| r.pools[at].1.holder.is_none()))
            }
            Op::Pool(PoolOp::Alloc { pool, .. })
            | Op::Pool(PoolOp::Trim { pool, .. })
            | Op::Pool(PoolOp::Havoc { pool, .. }) => {
                if m.pool_held(r, *pool, thread) {
                    return Poll::Wait;
                }
                self.decide_pool(verb, &mut picks).map_or_else(|poll| poll, Poll::Run)
            }
            Op::Memory(MemoryOp::Alloc { .. }) => {
                m.decide_mem_alloc(state, rank, verb, &mut picks).map_or_else(|poll| poll, Poll::Run)
            }
            Op::Memory(MemoryOp::Free { buffer, .. }) => when(self.can_free(buffer)),
            Op::Window(WindowOp::Register { .. }) => {
                m.decide_fault(state, FaultOf::Register, &mut picks).err().unwrap_or(Poll::RUN)
            }
            Op::Comm(CommOp::Init { .. }) => match m.decide_fault(state, FaultOf::Init, &mut picks) {
                Ok(true) => Poll::RUN,
                Ok(false) => Machine::decide_comm_address(r, &mut picks).err().unwrap_or(Poll::RUN),
                Err(poll) => poll,
            },
            Op::Comm(CommOp::Split { .. }) => {
                Machine::decide_comm_address(r, &mut picks).err().unwrap_or(Poll::RUN)
            }
            Op::Group(GroupOp::End) => self.decide_group(&mut picks).err().unwrap_or(Poll::RUN),
            Op::Transfer(call) => self.poll_transfer(call, &mut picks),
            Op::Stream(StreamOp::Synchronize { what }) => when(m.drained(state, rank, what)),
            Op::Comm(CommOp::Destroy { comm }) => match Machine::value(state, rank, comm) {
                Value::Comm(comm) => when(Machine::capturing(state, rank, comm).is_none()),
                _ => Poll::RUN,
            },
            Op::Store(StoreOp::Get { key }) => when(Machine::key_is_set(state, *key)),
            Op::Flag(FlagOp { flag, act, stream: None }) => when(Machine::flag_allows(state, *flag, *act)),
            Op::Thread(ThreadOp::Step { .. })
            | Op::Thread(ThreadOp::Spawn { .. })
            | Op::Thread(ThreadOp::Exit { .. })
            | Op::Thread(ThreadOp::Reach { .. })
            | Op::Thread(ThreadOp::Steady)
            | Op::Thread(ThreadOp::Measure { .. })
            | Op::Window(WindowOp::Deregister { .. })
            | Op::Group(GroupOp::Start)
            | Op::Collective(_)
            | Op::Overlap(OverlapOp { .. })
            | Op::Stream(StreamOp::Kernel { .. })
            | Op::Event(EventOp { .. })
            | Op::Stream(StreamOp::Wait { .. })
            | Op::Graph(GraphOp::Begin { .. })
            | Op::Graph(GraphOp::End { .. })
            | Op::Graph(GraphOp::Replay { .. })
            | Op::Graph(GraphOp::Destroy { .. })
            | Op::Pool(PoolOp::Declare { .. })
            | Op::Pool(PoolOp::Unlock { .. })
            | Op::Memory(MemoryOp::Release { .. })
            | Op::Barrier(BarrierOp::Enter { .. })
            | Op::Barrier(BarrierOp::AllAgree { .. })
            | Op::Mutex(MutexOp::Unlock { .. })
            | Op::Store(StoreOp::Set { .. })
            | Op::Store(StoreOp::Delete { .. })
            | Op::Flag(FlagOp { .. })
            | Op::Memory(MemoryOp::Copy { .. })
            | Op::Memory(MemoryOp::Expect { .. })
            | Op::Ipc(IpcOp::Export { .. })
            | Op::Ipc(IpcOp::Open { .. })
            | Op::Ipc(IpcOp::Close { .. })
            | Op::Exchange(ExchangeOp { .. })
            | Op::Map(MapOp::Put { .. })
            | Op::Map(MapOp::Pop { .. })
            | Op::Map(MapOp::Get { .. })
            | Op::Map(MapOp::Clear { .. })
            | Op::List(ListOp::Push { .. })
            | Op::List(ListOp::Get { .. })
            | Op::List(ListOp::Set { .. })
            | Op::List(ListOp::Pop { .. })
            | Op::List(ListOp::Clear { .. }) => Poll::RUN,
        }
    }

    /// The picks of the thread's next operation, without the one that let the rank live.
    pub(crate) fn own_picks(self) -> Vec<u32> {
        let t = self.this();
        let mut picks = t.picks.clone();
        if let Next::Op(op) = t.next_in(&t.stretch)
            && self.may_die(&op.op)
            && !picks.is_empty()
        {
            picks.remove(0);
        }
        picks
    }

    /// A rank may die before an operation that others can see; in between nobody can tell.
    pub(crate) fn may_die(self, verb: &Op) -> bool {
        let Here { m, state, .. } = self;
        m.faults_left(state, FaultOf::Death)
            && self.this().group.calls.is_empty()
            && matches!(
                verb,
                Op::Comm(CommOp::Init { .. })
                    | Op::Comm(CommOp::Split { .. })
                    | Op::Window(WindowOp::Register { .. })
                    | Op::Collective(_)
                    | Op::Transfer(_)
                    | Op::Barrier(BarrierOp::Enter { .. })
                    | Op::Barrier(BarrierOp::AllAgree { .. })
                    | Op::Store(StoreOp::Set { .. })
                    | Op::Store(StoreOp::Delete { .. })
                    | Op::Exchange(ExchangeOp { .. })
                    | Op::Flag(FlagOp { act: FlagAct::Write(_) | FlagAct::Swap { .. }, stream: None, .. })
            )
    }

    /// Whether the thread's next operation is on a contended object, so that its turn is a choice.
    pub(crate) fn contended(self) -> bool {
        let Here { m, .. } = self;
        if m.config.contended.is_empty() || m.config.mode == Mode::Naive {
            return false;
        }
        let t = self.this();
        let mut contended = false;
        self.objects(t.next_in(&t.stretch), &mut |object| {
            contended |= m.config.contended.contains(&object);
        });
        contended
    }

    /// The objects that an operation touches, as far as threads can contend for them.
    pub(crate) fn objects(self, next: Next<'_>, each: &mut dyn FnMut(Object)) {
        let Here { m, state, rank, .. } = self;
        match next {
            Next::Return | Next::Unknown => {}
            Next::Ask(question, _) => match question {
                Question::MapHas { map, .. } | Question::MapItems { map, .. } => {
                    each(Object::named(ObjectKind::Map, *map));
                }
                Question::ListLen { list } => each(Object::named(ObjectKind::List, *list)),
                Question::HasWindow { comm, .. } => m.comm_object(state, rank, comm, each),
                Question::EventQuery { event } => {
                    each(Object::named(ObjectKind::Event, *event));
                    each(Object::CAPTURE);
                }
                Question::Choose { .. }
                | Question::Grew(_)
                | Question::Failed(_)
                | Question::Equal(..)
                | Question::Truth(_)
                | Question::Number(_)
                | Question::Trimmed(_) => {}
            },
            Next::Op(op) => {
                self.objects_of_graphs(&op.op, each);
                if let Op::Comm(CommOp::Init { .. })
                | Op::Comm(CommOp::Split { .. })
                | Op::Comm(CommOp::Destroy { .. }) = op.op
                {
                    each(Object::ADDRESSES);
                }
                self.objects_of_op(&op.op, each);
            }
        }
    }

    fn objects_of_op(self, verb: &Op, each: &mut dyn FnMut(Object)) {
        let Here { m, state, rank, .. } = self;
        use ObjectKind as Kind;
        if let Some(stream) = verb.stream() {
            each(Object::named(Kind::Stream, stream));
            each(Object::DEVICE);
        }
        for buffer in verb.buffers() {
            m.memory_object(state, rank, buffer, each);
        }
        match verb {
            Op::Comm(CommOp::Split { comm, .. }) => m.comm_object(state, rank, comm, each),
            Op::Comm(CommOp::Destroy { comm }) => {
                m.comm_object(state, rank, comm, each);
                m.covered(state, rank, comm, None).into_iter().for_each(|m| each(Object::memory(m)));
            }
            Op::Window(WindowOp::Deregister { comm, window }) => {
                m.comm_object(state, rank, comm, each);
                m.covered(state, rank, comm, Some(window)).into_iter().for_each(|m| each(Object::memory(m)));
            }
            Op::Window(WindowOp::Register { comm, .. }) => m.comm_object(state, rank, comm, each),
            Op::Collective(call) => m.comm_object(state, rank, &call.comm, each),
            Op::Transfer(call) => m.comm_object(state, rank, &call.comm, each),
            Op::Group(GroupOp::End) => {
                for (object, _) in self.group_objects() {
                    each(object);
                }
            }
            Op::Event(EventOp { event, .. }) | Op::Stream(StreamOp::Wait { event, .. }) => {
                each(Object::named(Kind::Event, *event));
            }
            Op::Stream(StreamOp::Synchronize { what }) => match Machine::value(state, rank, what) {
                Value::Stream(stream) => each(Object::named(Kind::Stream, stream)),
                Value::Event(event) => each(Object::named(Kind::Event, event)),
                Value::Device => each(Object::DEVICE),
                _ => {}
            },
            Op::Pool(PoolOp::Lock { pool }) | Op::Pool(PoolOp::Unlock { pool }) => {
                each(Object::named(Kind::Pool, *pool))
            }
            Op::Pool(PoolOp::Alloc { pool, .. })
            | Op::Pool(PoolOp::Trim { pool, .. })
            | Op::Pool(PoolOp::Havoc { pool, .. }) => {
                each(Object::named(Kind::Pool, *pool));
                each(Object::named(Kind::Memory, *pool));
                each(Object::ADDRESSES);
            }
            Op::Memory(MemoryOp::Free { buffer, .. }) => {
                if let Value::Buffer(held) = Machine::value(state, rank, buffer)
                    && let crate::machine::Owner::Pool(pool) = held.memory.owner
                {
                    each(Object::named(Kind::Pool, pool));
                }
                each(Object::ADDRESSES);
                each(Object::DEVICE);
            }
            Op::Comm(CommOp::Init { name, .. }) => each(Object::named(Kind::Init, *name)),
            Op::Barrier(BarrierOp::Enter { .. })
            | Op::Barrier(BarrierOp::AllAgree { .. })
            | Op::Exchange(ExchangeOp { .. }) => each(Object::HOSTS),
            Op::Memory(MemoryOp::Alloc { .. }) | Op::Memory(MemoryOp::Release { .. }) => {
                each(Object::ADDRESSES)
            }
            Op::Mutex(MutexOp::Lock { mutex }) | Op::Mutex(MutexOp::Unlock { mutex }) => {
                each(Object::named(Kind::Mutex, *mutex))
            }
            Op::Store(StoreOp::Set { key, .. })
            | Op::Store(StoreOp::Get { key })
            | Op::Store(StoreOp::Delete { key }) => {
                each(Object::named(Kind::StoreKey, *key));
            }
            Op::Flag(FlagOp { flag, stream: None, .. }) => each(Object::named(Kind::Flag, *flag)),
            Op::Ipc(IpcOp::Open { handle }) => {
                if let Value::Handle(_, whole) = Machine::value(state, rank, handle) {
                    each(Object::memory(whole.memory));
                }
            }
            Op::Map(MapOp::Put { map, .. })
            | Op::Map(MapOp::Pop { map, .. })
            | Op::Map(MapOp::Get { map, .. })
            | Op::Map(MapOp::Clear { map }) => each(Object::named(Kind::Map, *map)),
            Op::List(ListOp::Push { list, .. })
            | Op::List(ListOp::Get { list, .. })
            | Op::List(ListOp::Set { list, .. })
            | Op::List(ListOp::Pop { list })
            | Op::List(ListOp::Clear { list }) => each(Object::named(Kind::List, *list)),
            Op::Thread(ThreadOp::Step { .. })
            | Op::Thread(ThreadOp::Spawn { .. })
            | Op::Thread(ThreadOp::Join { .. })
            | Op::Thread(ThreadOp::Exit { .. })
            | Op::Thread(ThreadOp::Reach { .. })
            | Op::Thread(ThreadOp::Steady)
            | Op::Thread(ThreadOp::Measure { .. })
            | Op::Group(GroupOp::Start)
            | Op::Overlap(OverlapOp { .. })
            | Op::Graph(GraphOp::Begin { .. })
            | Op::Graph(GraphOp::End { .. })
            | Op::Graph(GraphOp::Replay { .. })
            | Op::Graph(GraphOp::Destroy { .. })
            | Op::Flag(FlagOp { .. })
            | Op::Stream(StreamOp::Kernel { .. })
            | Op::Memory(MemoryOp::Copy { .. })
            | Op::Memory(MemoryOp::Expect { .. })
            | Op::Ipc(IpcOp::Export { .. })
            | Op::Ipc(IpcOp::Close { .. })
            | Op::Pool(PoolOp::Declare { .. }) => {}
        }
    }
}
