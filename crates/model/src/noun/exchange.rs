//! The exchange of handles: a rendezvous of hosts that maps every member's allocation on all of them.
//!
//! Each member brings the handle that its memory has, of CUDA IPC or a shareable one, and all bring one kind.
//! The n-th exchange of some ranks on one of them meets the n-th on the others, whatever it is for. What was
//! meant is judged afterwards. Not here: handles that a program carries itself ([`crate::noun::ipc`]).

use crate::cx::Cx;
use crate::cx::Here;
use crate::describe::{Describe, Description};
use crate::machine::Kind;
use crate::noun::pool::Plan;
use crate::op::{HandleKind, MemoryKind, Op, Show, Verb};
use crate::program::Operand;
use std::sync::Arc;

use crate::host::value::{Buffer, Value};
use crate::id::Token;
use crate::identity::{Counter, Identify, StateIdentity};
use crate::judge::finding::{About, OpRef, Rule};
use crate::machine::Machine;
use crate::members::MemberList;
use crate::noun::ipc::INVALID_VALUE;
use crate::noun::rendezvous::Rendezvous;
use crate::order::dependence::{Access, Object};
use crate::rank::Rank;
use crate::state::{State, Table};
use crate::walk::{Rows, walk};

/// An exchange of handles of memory, matched by order only. Produces, for each member in order, the mapping
/// of its allocation; for this rank its own (null if it failed).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ExchangeOp {
    /// World ranks that take part.
    pub members: Arc<[Rank]>,
    /// What it is for, as the author says; it matches nothing.
    pub name: Token,
    /// The buffer whose allocation this rank shares.
    pub buffer: Operand,
}

impl Describe for ExchangeOp {
    fn describe(&self, to: &mut Description<'_>) {
        let Self { members, name, buffer } = self;
        to.call("Exchange", &[("members", members), ("name", name), ("buffer", buffer)]);
    }
}

impl Verb for ExchangeOp {
    fn slots(&self) -> u32 {
        u32::try_from(self.members.len()).expect("few ranks")
    }

    fn kind(&self) -> Kind {
        Kind::Alike
    }

    fn buffers(&self) -> Vec<&Operand> {
        vec![&self.buffer]
    }

    fn display(&self, show: &Show<'_>) -> String {
        let name = |token: &Token| show.name(*token);
        let of = |operand: &Operand| show.operand(operand);
        let Self { name: what, buffer, .. } = self;
        format!("exchange {} ({})", name(what), of(buffer))
    }

    fn seen_by_others(&self) -> bool {
        true
    }

    fn footprint(&self, here: Here<'_>, each: &mut dyn FnMut(Object, Access)) {
        each(Object::HOSTS, Access::Write);
        // Each member opens what the others bring: theirs are named from here on like memory of its own.
        for rank in self.members.iter() {
            for thread in here.state.rank(*rank).threads() {
                if let Some(Op::Exchange(ExchangeOp { members, buffer, .. })) = thread.upcoming().op()
                    && *members == self.members
                    && let Value::Buffer(buffer) = Machine::value(here.state, *rank, buffer)
                {
                    each(Object::memory(buffer.memory), Access::Write);
                }
            }
        }
    }

    fn apply(&self, cx: &mut Cx<'_>, _: Plan) {
        cx.exchange(&self.members);
    }
}

/// What a member brings.
struct Brought {
    rank: Rank,
    thread: u32,
    name: Token,
    /// With the kind of its memory; none where the member has no memory of its own.
    buffer: Option<(Arc<Buffer>, MemoryKind)>,
    op: OpRef,
}

/// How often a rank entered exchanges, by their members.
#[derive(Debug, Clone, Default)]
pub(crate) struct Exchanges {
    entered: Rows<MemberList, u32>,
}

walk!(apart struct Exchanges { entered: hashed fixed });

impl Identify for Exchanges {
    fn identify(&self, to: &mut StateIdentity<'_>) {
        let Self { entered } = self;
        to.entered(entered, Counter::HandleExchanges);
    }
}

impl Machine {
    pub(crate) fn exchange_meet(&self, state: &mut State, members: &[Rank], nth: u32, here: &[(Rank, u32)]) {
        let brought: Vec<Brought> =
            here.iter().map(|(rank, thread)| self.cx(state, *rank, *thread).brought()).collect();
        let fails = brought.iter().any(|b| b.buffer.is_none()) | self.judge_exchange(state, &brought, nth);
        if fails {
            for b in &brought {
                self.cx(state, b.rank, b.thread)
                    .fail(format!("exchange {}", self.name(b.name)), INVALID_VALUE);
                self.cx(state, b.rank, b.thread).done(&vec![Value::Null; members.len()]);
            }
            return;
        }
        // All open before any goes on: who stands at the exchange is who takes part.
        let mut opened: Vec<Vec<Value>> = Vec::with_capacity(brought.len());
        for b in &brought {
            let mapped = brought
                .iter()
                .map(|peer| {
                    let (buffer, _) = peer.buffer.as_ref().expect("none is missing");
                    let memory = state.rank(peer.rank).memory(buffer.memory);
                    let whole = memory.expect("it is shareable").whole();
                    let whole = Buffer { block: None, ..Buffer::clone(whole) };
                    if peer.rank == b.rank {
                        return Value::Buffer(Arc::new(whole));
                    }
                    self.cx(state, b.rank, b.thread).open_mapping(peer.rank, &whole)
                })
                .collect();
            opened.push(mapped);
        }
        for (b, mapped) in brought.iter().zip(opened) {
            self.cx(state, b.rank, b.thread).done(&mapped);
        }
    }

    /// Judges what met. Returns whether the exchange fails: its members compare sizes, and nothing else.
    fn judge_exchange(&self, state: &mut State, brought: &[Brought], nth: u32) -> bool {
        let first = &brought[0];
        let differs = |state: &mut State, rule: Rule, other: &Brought, what: &dyn Fn(&Brought) -> String| {
            let past = self.here(state, other.rank, other.thread).past();
            self.find(state, rule, About::Named(first.name), &[first.op, other.op], past, || {
                format!(
                    "exchange #{nth} is {} on rank {} ({}) and {} on rank {} ({})",
                    what(first),
                    first.rank.0,
                    self.at(&first.op),
                    what(other),
                    other.rank.0,
                    self.at(&other.op)
                )
            });
        };
        if let Some(other) = brought.iter().find(|b| b.name != first.name) {
            differs(state, Rule::Exchange2, other, &|b| format!("for {}", self.name(b.name)));
        }
        let buffer = |b: &Brought| b.buffer.as_ref().map(|(buffer, _)| Arc::clone(buffer));
        let kind = |b: &Brought| b.buffer.as_ref().map(|(_, kind)| *kind);
        let handle = |b: &Brought| kind(b).map(MemoryKind::handle);
        let len = |b: &Brought| buffer(b).map(|buffer| buffer.memory_len_bytes);
        let offset = |b: &Brought| buffer(b).map(|buffer| buffer.offset_bytes);
        if brought.iter().any(|b| b.buffer.is_none()) {
            return true;
        }
        if let Some(other) = brought.iter().find(|b| handle(b) != handle(first)) {
            let what = |b: &Brought| {
                let by = match handle(b) {
                    Some(HandleKind::Shareable) => "a shareable handle",
                    Some(HandleKind::Ipc) | None => "a CUDA IPC handle",
                };
                let call = kind(b).map_or("", MemoryKind::vendor_call);
                format!("of memory of {call}, which has {by},")
            };
            differs(state, Rule::Ipc1, other, &what);
            return true;
        }
        if let Some(other) = brought.iter().find(|b| len(b) != len(first)) {
            let what = |b: &Brought| {
                let (name, len) = (buffer(b).map(|b| self.buffer_name(&b)), len(b));
                format!(
                    "of {}, which lies in {},",
                    name.unwrap_or_default(),
                    crate::machine::bytes(len.unwrap_or(0))
                )
            };
            differs(state, Rule::Exchange3, other, &what);
            return true;
        }
        if let Some(other) = brought.iter().find(|b| offset(b) != offset(first)) {
            let what = |b: &Brought| {
                let (name, at) = (buffer(b).map(|b| self.buffer_name(&b)), offset(b));
                format!(
                    "of {} at offset {}",
                    name.unwrap_or_default(),
                    crate::machine::bytes(at.unwrap_or(0))
                )
            };
            differs(state, Rule::Exchange4, other, &what);
        }
        false
    }
}

impl Cx<'_> {
    pub(crate) fn exchange(&mut self, members: &Arc<[Rank]>) {
        self.access(Object::HOSTS, Access::Write);
        let members = self.m.member_lists.get(members);
        let r = self.me_mut();
        let entered = Exchanges::of_mut(r).entered.get_or_insert_with(&members, || 0);
        *entered += 1;
        let nth = *entered - 1;
        self.arrive(Rendezvous::Exchange(members, nth));
    }

    fn brought(&mut self) -> Brought {
        let (rank, thread) = (self.rank, self.thread);
        let op = self.here().op_ref();
        let Some(Op::Exchange(ExchangeOp { name, buffer, .. })) = self.this().upcoming().op() else {
            unreachable!("a member of an exchange stands at it")
        };
        let (name, operand) = (*name, buffer.clone());
        let buffer = self.given(&operand, op);
        if let Some(mapping) = buffer.as_ref().filter(|buffer| buffer.through.is_some()) {
            self.find_unshareable(mapping, op, "a mapping");
        }
        let own = buffer.filter(|buffer| buffer.through.is_none());
        let buffer = own.and_then(|buffer| {
            let kind = self.me().memory(buffer.memory)?.kind();
            Some((buffer, kind))
        });
        if let Some((buffer, _)) = &buffer {
            self.m.export_memory(self.state, rank, &Value::Buffer(Arc::clone(buffer)));
        }
        Brought { rank, thread, name, buffer, op }
    }
}
