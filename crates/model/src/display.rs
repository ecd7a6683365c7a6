//! Operations and nondeterministic values in the spec's own names, for lanes, sentences and traces.
//! Not here: the layout of reports.
#![expect(clippy::wildcard_enum_match_arm, reason = "few calls have operands that `Op::display` leaves out")]

use std::convert::Infallible;
use std::ops::Range;
use std::sync::Arc;

use crate::describe::{NamesOf, uses};
use crate::host::naming::Names;
use crate::host::value::{AddressId, Buffer, CommId, MemoryId, Modelled, Value};
use crate::id::Token;
use crate::judge::finding::OpRef;
use crate::machine::{Machine, bytes};
use crate::noun::collective::{Counting, Root};
use crate::noun::thread::Next;
use crate::op::{Collective, MemoryOp, Op, PoolOp, StreamOp, WindowFlags, WindowOp};
use crate::order::poll::{FaultOf, Nondet, Placing};
use crate::program::{Dtype, Operand, Question, ReduceOp, Slot};
use crate::rank::{Rank, Thread};
use crate::state::State;

/// An operation that a blocked thread is known to come to.
#[derive(Debug, Clone)]
pub struct OpAhead {
    /// Its rank, thread and position, and where it is written.
    pub at: OpRef,
    /// The operation as the program has it.
    pub op: Op,
    /// In the spec's names.
    pub text: String,
    /// Slots of its thread that it will produce.
    pub produces: Range<u32>,
}

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
        self.told(*memory)
    }

    fn address(&self, address: &AddressId) -> String {
        self.told(address.0)
    }

    fn exported(&self, exported: &Buffer) -> String {
        self.told(exported.memory)
    }

    fn foreign(&self, foreign: &Infallible) -> Arc<str> {
        match *foreign {}
    }
}

impl Machine {
    /// The name of memory, for a text that a run may leave behind: the call that a rank hangs in, or one that failed. That of a
    /// segment has its number.
    fn told(&self, memory: MemoryId) -> String {
        self.look_at_numbers(memory);
        self.memory_name(memory)
    }

    /// A value in words.
    #[must_use]
    pub fn value_name(&self, value: &Value) -> String {
        value.display(self)
    }

    pub(crate) fn operand_name(&self, state: &State, rank: Rank, operand: &Operand) -> String {
        if let Operand::Slot(slot) = operand
            && let Some(name) = Self::still_made(state, rank, *slot)
        {
            return self.name(name).to_string();
        }
        match Self::value(state, rank, operand) {
            Value::Comm(comm) => self.comm_name_on(rank, comm).to_string(),
            value => self.value_name(&value),
        }
    }

    /// The name of the communicator that an open group will have put into a slot.
    fn still_made(state: &State, rank: Rank, slot: Slot) -> Option<Token> {
        let mut threads = state.rank(rank).threads().iter();
        let maker = threads.find(|thread| thread.start() == slot.start)?.group().maker(slot.index)?;
        maker.made_name()
    }

    /// An operation in words.
    #[must_use]
    pub fn op_name(&self, state: &State, rank: Rank, verb: &Op) -> String {
        verb.display(&|token| self.name(token), &|operand| self.operand_name(state, rank, operand))
    }

    /// An operation in words, with the operands that tell it from a call that is otherwise the same: slices, counts,
    /// sizes, roots, and what differs from what a call takes where nothing is said.
    pub(crate) fn call_text(&self, state: &State, rank: Rank, verb: &Op) -> String {
        let operand = |operand: &Operand| self.sliced(state, rank, operand);
        let text = verb.display(&|token| self.name(token), &operand);
        let mut operands = Vec::new();
        match verb {
            Op::Collective(call) => self.operands_of_collective(state, rank, call, &mut operands),
            Op::Transfer(call) => {
                let held = Self::len_bytes(state, rank, &call.buffer);
                if held != Some(call.count.saturating_mul(call.dtype.len_bytes())) {
                    operands.push(format!("count = {}", call.count));
                }
                operands.extend(unusual_dtype(call.dtype));
            }
            Op::Window(WindowOp::Register { flags: WindowFlags::Default, .. }) => {
                operands.push("flags = default".to_owned());
            }
            Op::Memory(MemoryOp::Alloc { name, len_bytes, memory }) => {
                return format!("{} = {}({})", self.name(*name), memory.call(), bytes(*len_bytes));
            }
            Op::Pool(PoolOp::Alloc { len_bytes, .. }) => operands.push(bytes(*len_bytes)),
            Op::Stream(StreamOp::Kernel { reads, writes, .. }) => {
                let all = |of: &[Operand]| of.iter().map(operand).collect::<Vec<_>>().join(", ");
                operands.extend((!reads.is_empty()).then(|| format!("reads {}", all(reads))));
                operands.extend((!writes.is_empty()).then(|| format!("writes {}", all(writes))));
            }
            Op::Barrier(call) => operands.extend(self.some_ranks(call.members())),
            Op::Exchange(call) => operands.extend(self.some_ranks(&call.members)),
            _ => {}
        }
        let named = matches!(
            verb,
            Op::Event(_) | Op::Graph(_) | Op::Stream(StreamOp::Wait { .. } | StreamOp::Synchronize { .. })
        );
        let stream = verb.stream().filter(|stream| !named && *stream != self.source.default_stream());
        operands.extend(stream.map(|stream| format!("stream = {}", self.name(stream))));
        if operands.is_empty() {
            return text;
        }
        let operands = operands.join(", ");
        match text.strip_suffix(')') {
            Some(call) => format!("{call}, {operands})"),
            None => format!("{text}({operands})"),
        }
    }

    /// Which ranks take part, where not all do.
    fn some_ranks(&self, members: &[Rank]) -> Option<String> {
        let all = members.len() == self.config.ranks as usize;
        (!all).then(|| ranks_in_words(members.iter().copied()))
    }

    fn operands_of_collective(
        &self,
        state: &State,
        rank: Rank,
        call: &Collective,
        operands: &mut Vec<String>,
    ) {
        if call.recv != call.send {
            operands.push(self.sliced(state, rank, &call.recv));
        }
        if let Value::Comm(comm) = Self::value(state, rank, &call.comm) {
            let members = self.members(comm);
            let counting = call.kind.counting(|root| members.get(root as usize) == Some(&rank));
            let part = call.count.saturating_mul(call.dtype.len_bytes());
            let (send, recv) = call.kind.needs(part, members.len(), counting);
            let held = |operand| Self::len_bytes(state, rank, operand);
            let whole = match counting {
                Counting::Both => held(&call.send) == Some(send) && held(&call.recv) == Some(recv),
                Counting::Send => held(&call.send) == Some(send),
                Counting::Recv => held(&call.recv) == Some(recv),
            };
            if !whole {
                operands.push(format!("count = {}", call.count));
            }
        }
        operands.extend(unusual_dtype(call.dtype));
        if call.kind.reduces() && call.op != ReduceOp::Sum {
            operands.push(format!("op = {}", call.op.name()));
        }
        if let Root::From(root) | Root::To(root) = call.kind.root() {
            operands.push(format!("root = {root}"));
        }
    }

    /// An operand in words, with the bytes of a buffer that it means where that is not all of it.
    fn sliced(&self, state: &State, rank: Rank, operand: &Operand) -> String {
        match operand {
            Operand::Slice { of, offset_bytes, len_bytes }
                if (*offset_bytes, Some(*len_bytes)) != (0, Self::len_bytes(state, rank, of)) =>
            {
                let end = offset_bytes.saturating_add(*len_bytes);
                format!("{}[{offset_bytes}:{end}]", self.sliced(state, rank, of))
            }
            _ => self.operand_name(state, rank, operand),
        }
    }

    fn len_bytes(state: &State, rank: Rank, operand: &Operand) -> Option<u64> {
        Self::value(state, rank, operand).buffer().map(|buffer| buffer.len_bytes)
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

    /// The operations that a thread is known to do after the one at which it stands.
    #[must_use]
    pub fn ahead(&self, state: &State, rank: Rank, thread: Thread) -> Vec<OpAhead> {
        let t = state.rank(rank).thread(thread.0);
        let mut slots = t.slots().len();
        let known = t.ahead().iter().zip(t.index()..).map(|(statement, index)| {
            let from = slots;
            slots += statement.op.slots();
            OpAhead {
                at: OpRef { rank, thread, index, loc: statement.loc },
                op: Op::clone(&statement.op),
                text: self.op_name(state, rank, &statement.op),
                produces: from..slots,
            }
        });
        known.skip(1).collect()
    }

    /// The results of earlier operations that a thread is known to use after the one at which it stands; none where more may
    /// follow than is known.
    #[must_use]
    pub fn used_ahead(&self, state: &State, rank: Rank, thread: Thread) -> Option<Vec<Slot>> {
        if Self::goes_on_unknown(state, rank, thread.0) {
            return None;
        }
        let names = NamesOf::new(&*self.source);
        let behind = state.rank(rank).thread(thread.0).ahead().iter().skip(1);
        Some(behind.flat_map(|statement| uses(&*statement.op, &names)).collect())
    }

    /// The operation at the head of a stream, and the same in words.
    #[must_use]
    pub fn head(&self, state: &State, rank: Rank, stream: u32) -> Option<(OpRef, String)> {
        let (name, stream) = state.rank(rank).streams().get(stream as usize)?;
        let head = stream.head()?;
        Some((
            head.op,
            format!(
                "{} on stream {}",
                self.work_name(state, rank, &head.work),
                self.name_behind_stream(*name)
            ),
        ))
    }

    /// Where something was done to what a sentence is about, to stand behind it; nothing if that is not known.
    pub(crate) fn and_where(&self, done: &str, by: Option<OpRef>) -> String {
        by.map_or_else(String::new, |by| format!(", {done} at {}", self.at(&by)))
    }

    /// The name of a stream as it stands behind the word: streams of recorded runs are numbered, and carry it in their
    /// names.
    pub(crate) fn name_behind_stream(&self, name: Token) -> String {
        let name = self.name(name);
        name.strip_prefix("stream ").unwrap_or(&name).to_owned()
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

fn unusual_dtype(dtype: Dtype) -> Option<String> {
    (dtype != Dtype::F32).then(|| format!("dtype = {}", dtype.name()))
}

fn seen(event: &str, value: u32) -> String {
    if value == 0 { format!("{event} is not yet seen complete") } else { format!("{event} is seen complete") }
}

/// Ranks in words, in their order: `rank 1`, `ranks 0 and 2`, `ranks 0 to 3 and 6`.
#[must_use]
pub fn ranks_in_words(ranks: impl Iterator<Item = Rank>) -> String {
    let mut sorted: Vec<u32> = ranks.map(|rank| rank.0).collect();
    sorted.sort_unstable();
    sorted.dedup();
    let one = sorted.len() == 1;
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for rank in sorted {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == rank => *last = rank,
            _ => runs.push((rank, rank)),
        }
    }
    let word = |(first, last): (u32, u32)| match last - first {
        0 => vec![first.to_string()],
        1 => vec![first.to_string(), last.to_string()],
        _ => vec![format!("{first} to {last}")],
    };
    let mut words: Vec<String> = runs.into_iter().flat_map(word).collect();
    let last = words.pop().unwrap_or_default();
    let list = if words.is_empty() { last } else { format!("{} and {last}", words.join(", ")) };
    format!("{} {list}", if one { "rank" } else { "ranks" })
}
