//! Operations and nondeterministic values in the spec's own names, for lanes, sentences and traces.
//! Not here: the layout of reports.

use crate::op::Op;
use std::convert::Infallible;
use std::sync::Arc;

use crate::host::naming::Names;
use crate::host::value::{AddressId, Buffer, CommId, MemoryId, Modelled, Value};
use crate::judge::finding::OpRef;
use crate::machine::Machine;
use crate::noun::thread::Next;
use crate::order::poll::{FaultOf, Nondet, Placing};
use crate::program::{Operand, Question};
use crate::rank::{Rank, Thread, Token};
use crate::state::State;

impl Names<Modelled> for Machine {
    fn token(&self, token: Token) -> Arc<str> {
        self.name(token)
    }

    fn name(&self, name: &Token) -> Arc<str> {
        Machine::name(self, *name)
    }

    fn comm(&self, comm: CommId) -> Arc<str> {
        self.comm_name(comm)
    }

    fn memory(&self, memory: &MemoryId) -> String {
        self.memory_name(*memory)
    }

    fn address(&self, address: &AddressId) -> String {
        self.memory_name(address.0)
    }

    fn exported(&self, exported: &Buffer) -> String {
        self.memory_name(exported.memory)
    }

    fn foreign(&self, foreign: &Infallible) -> Arc<str> {
        match *foreign {}
    }
}

impl Machine {
    /// A value in words.
    #[must_use]
    pub fn value_name(&self, value: &Value) -> String {
        value.display(self)
    }

    pub(crate) fn operand_name(&self, state: &State, rank: Rank, operand: &Operand) -> String {
        self.value_name(&Self::value(state, rank, operand))
    }

    /// An operation in words.
    #[must_use]
    pub fn op_name(&self, state: &State, rank: Rank, verb: &Op) -> String {
        verb.display(&|token| self.name(token), &|operand| self.operand_name(state, rank, operand))
    }

    /// The operation or question that a thread does next.
    #[must_use]
    pub fn next_op(&self, state: &State, rank: Rank, thread: Thread) -> OpRef {
        self.here(state, rank, thread.0).op_ref()
    }

    /// Returns the operation or question that a thread does next, in words.
    #[must_use]
    pub fn next_name(&self, state: &State, rank: Rank, thread: Thread) -> String {
        let t = state.rank(rank).thread(thread.0);
        match t.upcoming() {
            Next::Op(op) => self.op_name(state, rank, &op.op),
            Next::Ask(question, _) => self.question_name(state, rank, question),
            Next::Return | Next::Unknown => "the end".to_owned(),
        }
    }

    /// The operations that a thread is known to do after the one at which it stands, in words.
    #[must_use]
    pub fn ahead(&self, state: &State, rank: Rank, thread: Thread) -> Vec<(OpRef, Op, String)> {
        let t = state.rank(rank).thread(thread.0);
        let after = t.ahead().iter().zip(t.index()..).skip(1);
        let known = after.map(|(statement, index)| {
            let op = OpRef { rank, thread, index, loc: statement.loc };
            (op, statement.op.clone(), self.op_name(state, rank, &statement.op))
        });
        known.collect()
    }

    /// The operation at the head of a stream, and the same in words.
    #[must_use]
    pub fn head(&self, state: &State, rank: Rank, stream: u32) -> Option<(OpRef, String)> {
        let (name, stream) = state.rank(rank).streams().get(stream as usize)?;
        let head = stream.head()?;
        Some((head.op, format!("{} on stream {}", self.work_name(state, rank, &head.work), self.name(*name))))
    }

    /// The number of a stream of a rank that was used under this name.
    #[must_use]
    pub fn stream_named(&self, state: &State, rank: Rank, name: &str) -> Option<u32> {
        let at = state.rank(rank).streams().iter().position(|(token, _)| *self.name(*token) == *name);
        at.map(|at| u32::try_from(at).expect("few streams a rank"))
    }

    /// The name of a stream of a rank.
    ///
    /// # Panics
    /// If there is none of this number.
    #[must_use]
    pub fn stream_name(&self, state: &State, rank: Rank, stream: u32) -> Arc<str> {
        self.name(state.rank(rank).streams()[stream as usize].0)
    }

    /// A question in words.
    #[must_use]
    pub fn question_name(&self, state: &State, rank: Rank, question: &Question) -> String {
        let of = |operand: &Operand| self.operand_name(state, rank, operand);
        match question {
            Question::Choose { name, .. } => format!("choose {}", self.name(*name)),
            Question::Grew(buffer) => format!("{} grew the pool?", of(buffer)),
            Question::Failed(value) => format!("{} failed?", of(value)),
            Question::Equal(a, b) => format!("{} == {}?", of(a), of(b)),
            Question::Truth(value) => format!("{}?", of(value)),
            Question::Number(value) => format!("number {}", of(value)),
            Question::MapHas { map, key } => format!("{} in {}?", of(key), self.name(*map)),
            Question::MapItems { map, .. } => format!("walk {}", self.name(*map)),
            Question::ListLen { list } => format!("length of {}", self.name(*list)),
            Question::Trimmed(_) => "segments released".to_owned(),
            Question::HasWindow { comm, buffer } => format!("{} has a window for {}?", of(comm), of(buffer)),
            Question::EventQuery { event } => format!("{} complete?", self.name(*event)),
        }
    }

    /// Returns a nondeterministic value in words.
    #[must_use]
    pub fn nondet_name(&self, of: &Nondet, value: u32) -> String {
        match of {
            Nondet::Choose(name, options) => {
                let option =
                    options.get(value as usize).map_or_else(String::new, |o| self.name(*o).to_string());
                format!("{} = {option}", self.name(*name))
            }
            Nondet::Fault(fault) => {
                let what = match fault {
                    FaultOf::Alloc => "this allocation",
                    FaultOf::Register => "this registration",
                    FaultOf::Init => "this init",
                    FaultOf::Death => "this rank",
                };
                let how = match (fault, value) {
                    (FaultOf::Death, 0) => "lives on",
                    (FaultOf::Death, _) => "dies here",
                    (FaultOf::Alloc | FaultOf::Register | FaultOf::Init, 0) => "succeeds",
                    (FaultOf::Alloc | FaultOf::Register | FaultOf::Init, _) => "fails",
                };
                format!("{what} {how}")
            }
            Nondet::Poll(event) => seen(&self.name(*event), value),
            Nondet::Deferred(event) => format!("deferred free: {}", seen(&self.name(*event), value)),
            Nondet::AddressOrder(placing) => {
                format!("{} in address order", self.placing_name(placing, value))
            }
            Nondet::HashOrder(placing) => format!("{} in hash order", self.placing_name(placing, value)),
            Nondet::CommOrder(placing) => {
                format!("{} in the hash order of communicators", self.placing_name(placing, value))
            }
            Nondet::AddressReuse if value == 0 => "what is new gets a fresh address".to_owned(),
            Nondet::AddressReuse => "what is new gets a freed address back".to_owned(),
            Nondet::InFlight if value == 0 => "NCCL holds no more of a send than was measured".to_owned(),
            Nondet::InFlight => "NCCL holds all of a send that was not measured to hang".to_owned(),
            Nondet::Serialized if value == 0 => "all transfers of a group progress together".to_owned(),
            Nondet::Serialized => {
                "transfers of a group take turns where they need not progress together".to_owned()
            }
            Nondet::Havoc(pool) if value == 0 => {
                format!("history leaves nothing more in {}", self.name(*pool))
            }
            Nondet::Havoc(pool) => format!("history leaves a free segment in {}", self.name(*pool)),
        }
    }
}

impl Machine {
    /// Returns where a value goes in an order, as beside its next neighbour: `b comes before c`.
    fn placing_name(&self, Placing { value, among }: &Placing, position: u32) -> String {
        let value = self.value_name(value);
        match among.get(position as usize) {
            Some(next) => format!("{value} comes before {}", self.value_name(next)),
            None => {
                let last = among.last().map_or_else(String::new, |last| self.value_name(last));
                format!("{value} comes after {last}")
            }
        }
    }
}

fn seen(event: &str, value: u32) -> String {
    if value == 0 { format!("{event} is not yet seen complete") } else { format!("{event} is seen complete") }
}
