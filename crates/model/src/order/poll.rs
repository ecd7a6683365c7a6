//! Whether the next operation of a thread can run, has to wait, or needs a nondeterministic value.
//!
//! Polling never changes the state, so it may be asked at any time and in any order.
//! Not here: what running does.

use crate::cx::Here;
use crate::op::Verb;
use crate::order::dependence::ObjectKind;
use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::sync::Arc;

use crate::host::value::Value;
use crate::id::Token;
use crate::machine::{Machine, Mode};
use crate::noun::pool::Plan;
use crate::noun::thread::Next;
use crate::order::dependence::{Access, Object};
use crate::program::{Operand, Question};
use crate::rank::{Rank, Thread};
use crate::state::State;

/// Which calls may fail, and how often in one run.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Faults {
    /// The verbs that may fail.
    pub of: BTreeSet<FaultOf>,
    /// The most failures in one run.
    pub at_most: u32,
}

/// A kind of fault that a check may inject.
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

/// A value that gets a position in an order that is known in part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placing {
    /// The address, key or communicator that is placed.
    pub value: Value,
    /// The values whose order is known, at least one. Position 0 is before all of them.
    pub among: Vec<Value>,
}

/// What is nondeterministic about an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Nondet {
    /// One of the options of a `choose`.
    Choose(Token, Arc<[Token]>),
    /// Whether a call fails.
    Fault(FaultOf),
    /// Whether an event is seen complete.
    Poll(Token),
    /// Whether the event of a deferred free is seen complete.
    Deferred(Token),
    /// Where an address lies among those already compared.
    AddressOrder(Placing),
    /// Where a key lies in hash order among those already compared.
    HashOrder(Placing),
    /// Where a communicator's hash lies among those already compared, on every rank.
    CommOrder(Placing),
    /// Whether a new segment gets a fresh address (0) or which freed one.
    AddressReuse,
    /// Whether NCCL can hold no more than was measured (0), or all but what was measured to hang.
    InFlight,
    /// Whether transfers of a group that need not progress together do (0) or are serialized (1).
    Serialized,
    /// What a pool's history left behind: nothing more (0) or a free segment of the n-th size.
    Havoc(Token),
}

/// The result of polling.
#[derive(Debug, Clone)]
pub(crate) enum Poll {
    /// It can run, and will do this.
    Run(Plan),
    Wait,
    Open(Nondet, RangeInclusive<u32>),
}

impl Poll {
    /// It can run once this is so.
    pub(crate) fn once(ready: bool) -> Self {
        if ready { Self::RUN } else { Self::Wait }
    }

    /// It runs as decided, or needs a value.
    pub(crate) fn decided(plan: Result<Plan, Self>) -> Self {
        plan.map_or_else(|poll| poll, Self::Run)
    }

    /// It can run, and nothing was open.
    pub(crate) const RUN: Self = Self::Run(Plan::Nothing);
}

/// The nondeterministic values of an operation, taken in order while it is decided.
pub(crate) struct NondetValues<'a> {
    pub(crate) given: &'a [u32],
}

impl NondetValues<'_> {
    /// Returns the next value, or what is open and among how many.
    pub(crate) fn take(
        &mut self,
        of: impl FnOnce() -> Nondet,
        options: RangeInclusive<u32>,
    ) -> Result<u32, Poll> {
        // One possibility is no choice, and no value is spent on it.
        if options.start() == options.end() {
            return Ok(*options.start());
        }
        let Some((first, rest)) = self.given.split_first() else {
            return Err(Poll::Open(of(), options));
        };
        self.given = rest;
        Ok(*first)
    }

    /// Returns the closure that takes the position of a new value in an order of addresses or hashes.
    pub(crate) fn position<V: Clone + Into<Value>>(
        &mut self,
        of: fn(Placing) -> Nondet,
    ) -> impl FnMut(&[V], &V) -> Result<usize, Poll> {
        move |order, value| {
            let len = u32::try_from(order.len()).expect("few values are compared");
            let placing = || Placing {
                value: value.clone().into(),
                among: order.iter().cloned().map(V::into).collect(),
            };
            self.take(|| of(placing()), 0..=len).map(|at| at as usize)
        }
    }
}

impl Machine {
    /// Returns what each value of a sequence is about.
    #[must_use]
    pub fn nondet_of(&self, state: &State, rank: Rank, thread: Thread, values: &[u32]) -> Vec<(Nondet, u32)> {
        let already = state.rank(rank).thread(thread.0).chosen().len();
        (already..values.len())
            .filter_map(|at| match self.here(state, rank, thread.0).poll_given(&values[..at]) {
                Poll::Open(of, _) => Some((of, values[at])),
                Poll::Run(_) | Poll::Wait => None,
            })
            .collect()
    }

    /// Whether another fault is allowed in this run.
    pub(crate) fn faults_left(&self, state: &State, of: FaultOf) -> bool {
        state.faults_used < self.config.faults.at_most && self.config.faults.of.contains(&of)
    }

    pub(crate) fn decide_fault(
        &self,
        state: &State,
        of: FaultOf,
        nondet: &mut NondetValues<'_>,
    ) -> Result<bool, Poll> {
        if !self.faults_left(state, of) {
            return Ok(false);
        }
        Ok(nondet.take(|| Nondet::Fault(of), 0..=1)? == 1)
    }
}

impl<'a> Here<'a> {
    /// Whether the thread's next operation can run.
    pub(crate) fn poll(self) -> Poll {
        self.poll_given(self.this().chosen())
    }

    /// Whether the thread's next operation could run with some values.
    pub(crate) fn poll_given(self, given: &[u32]) -> Poll {
        let t = self.this();
        if !t.is_ready() {
            return Poll::Wait;
        }
        match t.upcoming() {
            Next::Return | Next::Unknown => Poll::Wait,
            Next::Op(_) if self.left_out() => Poll::RUN,
            Next::Ask(question, _) => self.poll_ask(question, given),
            Next::Op(op) => self.poll_op(op.op.verb(), given),
        }
    }

    /// Every sequence of values with which the next operation runs or waits. An operation takes all its values
    /// at once: between two of them nothing may change what they mean.
    pub(crate) fn expand(self) -> Vec<Vec<u32>> {
        let mut open = vec![self.this().chosen().to_vec()];
        let mut complete = Vec::new();
        while let Some(values) = open.pop() {
            match self.poll_given(&values) {
                Poll::Run(_) | Poll::Wait => complete.push(values),
                Poll::Open(of, options) => {
                    for option in options.rev().filter(|at| !self.is_like_the_position_before(&of, *at)) {
                        let mut longer = values.clone();
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
        let mut nondet = NondetValues { given };
        let decided = match question {
            Question::Choose { name, options } => {
                let last = u32::try_from(options.len() - 1).expect("few options, and a choose has one");
                if given.is_empty() {
                    Err(Poll::Open(Nondet::Choose(*name, Arc::clone(options)), 0..=last))
                } else {
                    Ok(())
                }
            }
            Question::EventQuery { .. } if self.forbidden_query().is_some() => Ok(()),
            Question::EventQuery { event } if self.me().captured_record(*event).is_some() => Ok(()),
            Question::EventQuery { event } => {
                let last = self.me().last_record(*event);
                self.seen(last, &mut nondet, || Nondet::Poll(*event)).map(|_| ())
            }
            Question::MapItems { map, order } => {
                m.decide_items(state, rank, *map, *order, &mut nondet).map(|_| ())
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

    fn poll_op(self, verb: &dyn Verb, given: &[u32]) -> Poll {
        let mut nondet = NondetValues { given };
        if self.may_die(verb) {
            match nondet.take(|| Nondet::Fault(FaultOf::Death), 0..=1) {
                Ok(1) => return Poll::RUN,
                Ok(_) => {}
                Err(poll) => return poll,
            }
        }
        if verb.refused_by(self).is_some() {
            return Poll::RUN;
        }
        verb.ready(self, &mut nondet)
    }

    /// The values of the thread's next operation, without the one that let the rank live.
    pub(crate) fn own_picks(self) -> Vec<u32> {
        let t = self.this();
        let mut values = t.chosen().to_vec();
        if let Next::Op(op) = t.upcoming()
            && self.may_die(op.op.verb())
            && !values.is_empty()
        {
            values.remove(0);
        }
        values
    }

    /// Whether the rank may die before this operation.
    pub(crate) fn may_die(self, verb: &dyn Verb) -> bool {
        self.m.faults_left(self.state, FaultOf::Death)
            && self.this().group().calls().is_empty()
            && verb.seen_by_others()
    }

    /// Whether it was chosen that the rank dies before this operation.
    pub(crate) fn dies_before(self, verb: &dyn Verb) -> bool {
        self.may_die(verb) && self.this().chosen().first() == Some(&1)
    }

    /// Whether the thread's next operation is on a contended object, so that its schedule is a choice.
    pub(crate) fn contended(self) -> bool {
        let Here { m, .. } = self;
        if m.config.contended.is_empty() || m.config.mode == Mode::Naive {
            return false;
        }
        let _t = self.this();
        let mut contended = false;
        self.footprint(&mut |object, _| {
            contended |= m.config.contended.contains(&object);
        });
        contended
    }

    /// The objects that the thread touches next, as far as threads can contend for them, and how.
    pub(crate) fn footprint(self, each: &mut dyn FnMut(Object, Access)) {
        let t = self.this();
        match t.upcoming() {
            Next::Return | Next::Unknown => {}
            Next::Ask(question, _) => self.footprint_of_question(question, each),
            Next::Op(op) => {
                let verb = op.op.verb();
                if verb.unsafe_in_capture() {
                    each(Object::CAPTURE, Access::Read);
                }
                if self.m.captures(self.state, self.rank) && verb.recorded(self) {
                    each(Object::CAPTURE, Access::Write);
                }
                if let Some(stream) = verb.stream() {
                    each(Object::named(ObjectKind::Stream, stream), Access::Write);
                    each(Object::DEVICE, Access::Read);
                }
                for buffer in verb.buffers() {
                    self.memory_of(buffer, Access::Read, each);
                }
                verb.footprint(self, each);
            }
        }
    }

    fn footprint_of_question(self, question: &Question, each: &mut dyn FnMut(Object, Access)) {
        question.container().into_iter().for_each(|object| each(object, Access::Read));
        match question {
            Question::HasWindow { comm, .. } => self.comm_of(comm, Access::Read, each),
            Question::EventQuery { event } => {
                each(Object::named(ObjectKind::Event, *event), Access::Read);
                each(Object::CAPTURE, Access::Read);
            }
            Question::MapHas { .. }
            | Question::MapItems { .. }
            | Question::ListLen { .. }
            | Question::Choose { .. }
            | Question::Grew(_)
            | Question::Failed(_)
            | Question::Equal(..)
            | Question::Truth(_)
            | Question::Number(_)
            | Question::Trimmed(_) => {}
        }
    }

    /// The communicator that an operand is now, and its family.
    pub(crate) fn comm_of(self, comm: &Operand, how: Access, each: &mut dyn FnMut(Object, Access)) {
        let Here { m, state, rank, .. } = self;
        if let Value::Comm(comm) = Machine::value(state, rank, comm) {
            m.comm_objects(state, rank, comm).for_each(|object| each(object, how));
        }
    }

    /// The memory in which an operand lies now.
    pub(crate) fn memory_of(self, memory: &Operand, how: Access, each: &mut dyn FnMut(Object, Access)) {
        if let Value::Buffer(buffer) = Machine::value(self.state, self.rank, memory) {
            each(Object::memory(buffer.memory), how);
        }
    }
}
