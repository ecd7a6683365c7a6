//! Memory of other ranks: handles, the mappings that open them, and what a free leaves to a mapping.
//!
//! Accesses through a mapping are accesses of the owner's memory, with the clock of whoever makes them. A free
//! while a mapping is open leaves the pages to the mapping (measured); whoever reads them reads what nobody
//! writes any more. Not here: who carries handles between ranks ([`crate::noun::store`], [`crate::noun::exchange`]).
#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "an operand of another kind is as good as null, and verbs are dispatched by noun"
)]

use crate::describe::{Describe, Description};
use crate::machine::Kind;
use crate::op::{MemoryKind, Op, Show, Verb};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use crate::clock::{Actor, Clock};
use crate::host::value::{Buffer, MappingId, MemoryId, Value};
use crate::judge::finding::{About, OpRef, Rule};
use crate::machine::Machine;
use crate::order::dependence::{Object, Touch};
use crate::program::{Freed, Operand};
use crate::rank::Rank;
use crate::state::State;

/// What can be done with ipcs.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum IpcOp {
    /// `cudaIpcGetMemHandle`. Produces a handle of the allocation in which the buffer lies (null if it failed).
    Export {
        /// The buffer.
        buffer: Operand,
    },
    /// `cudaIpcOpenMemHandle`. Produces the mapping of the whole allocation (null if it failed).
    Open {
        /// What [`IpcOp::Export`] produced on another rank.
        handle: Operand,
    },
    /// `cudaIpcCloseMemHandle`.
    Close {
        /// What [`IpcOp::Open`] produced.
        mapping: Operand,
    },
}

impl Describe for IpcOp {
    fn describe(&self, to: &mut Description<'_>) {
        match self {
            Self::Export { buffer } => to.call("IpcExport", &[("buffer", buffer)]),
            Self::Open { handle } => to.call("IpcOpen", &[("handle", handle)]),
            Self::Close { mapping } => to.call("IpcClose", &[("mapping", mapping)]),
        }
    }
}

impl Verb for IpcOp {
    fn slots(&self) -> u32 {
        match self {
            Self::Export { .. } | Self::Open { .. } => 1,
            Self::Close { .. } => 0,
        }
    }

    fn kind(&self) -> Kind {
        Kind::InRole
    }

    fn buffers(&self) -> Vec<&Operand> {
        match self {
            Self::Export { buffer, .. } => vec![buffer],
            Self::Close { mapping, .. } => vec![mapping],
            Self::Open { .. } => Vec::new(),
        }
    }

    fn display(&self, show: &Show<'_>) -> String {
        let of = |operand: &Operand| show.operand(operand);
        match self {
            Self::Export { buffer } => format!("ipc.export({})", of(buffer)),
            Self::Open { handle } => format!("ipc.open({})", of(handle)),
            Self::Close { mapping } => format!("ipc.close({})", of(mapping)),
        }
    }
}

/// `cudaErrorInvalidValue`: what exporting memory of `ncclMemAlloc` returns (measured).
pub(crate) const INVALID_VALUE: i32 = 1;
/// `cudaErrorDeviceUninitialized`, "invalid device context": what opening a handle of one's own returns
/// (measured: an error; which one is predicted).
const INVALID_CONTEXT: i32 = 201;

/// When an operation of a host thread happened.
#[derive(Debug, Clone)]
pub(crate) struct Moment {
    pub(crate) actor: Actor,
    pub(crate) epoch: u32,
    pub(crate) op: OpRef,
}

impl Moment {
    pub(crate) fn before(&self, clock: &Clock) -> bool {
        clock.after(self.actor, self.epoch)
    }
}

/// Memory of another rank that a rank has or had open.
#[derive(Debug, Clone)]
pub(crate) struct Mapping {
    pub(crate) of: Rank,
    pub(crate) memory: MemoryId,
    /// Opens that were not closed yet.
    pub(crate) count: u32,
    /// Every open, the last use by each stream, and the close that was the last; functions of positions, like
    /// accesses.
    pub(crate) opens: Vec<Moment>,
    pub(crate) uses: Vec<Moment>,
    pub(crate) closed: Option<Moment>,
}

impl Hash for Mapping {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.of, self.memory, self.count).hash(state);
    }
}

impl Machine {
    pub(crate) fn run_ipc(&self, state: &mut State, rank: Rank, thread: u32, verb: &Op, op: OpRef) {
        match verb {
            Op::Ipc(IpcOp::Export { buffer }) => self.export(state, rank, thread, buffer, op),
            Op::Ipc(IpcOp::Open { handle }) => self.open(state, rank, thread, handle, op),
            Op::Ipc(IpcOp::Close { mapping }) => self.close(state, rank, thread, mapping, op),
            _ => unreachable!("dispatched by verb"),
        }
    }

    fn export(&self, state: &mut State, rank: Rank, thread: u32, buffer: &Operand, op: OpRef) {
        let handle = self.given(state, rank, thread, buffer, op).and_then(|buffer| {
            let memory = state.ranks[rank.at()].memory.get(&buffer.memory)?;
            if memory.kind == MemoryKind::Cuda && buffer.through.is_none() {
                let whole = Buffer { block: None, ..Buffer::clone(&memory.buffer) };
                return Some(Value::Handle(rank, Arc::new(whole)));
            }
            self.find_unshareable(state, (rank, thread), &buffer, op);
            None
        });
        if handle.is_none() {
            self.fail(state, rank, thread, "ipc.export".to_owned(), INVALID_VALUE);
        }
        self.done(state, rank, thread, &[handle.unwrap_or(Value::Null)]);
    }

    /// Memory that no handle can be made of.
    pub(crate) fn find_unshareable(
        &self,
        state: &mut State,
        (rank, thread): (Rank, u32),
        buffer: &Buffer,
        op: OpRef,
    ) {
        let past = Self::past(state, rank, thread);
        self.find(state, Rule::Ipc1, About::Memory(buffer.home(rank), buffer.memory), &[op], past, || {
            let why = if buffer.through.is_some() { "a mapping" } else { "not memory of cudaMalloc" };
            format!("rank {} exports {} ({}), which is {why}", rank.0, self.buffer_name(buffer), self.at(&op))
        });
    }

    fn open(&self, state: &mut State, rank: Rank, thread: u32, handle: &Operand, op: OpRef) {
        let past = Self::past(state, rank, thread);
        let mapped = match Self::value(state, rank, handle) {
            Value::Handle(of, whole) if of != rank => {
                Some(self.open_mapping(state, (rank, thread), of, &whole))
            }
            Value::Handle(_, whole) => {
                self.find(state, Rule::Ipc1, About::Memory(rank, whole.memory), &[op], past, || {
                    let name = self.memory_name(whole.memory);
                    format!("rank {} opens its own handle of {name} ({})", rank.0, self.at(&op))
                });
                self.fail(state, rank, thread, "ipc.open".to_owned(), INVALID_CONTEXT);
                None
            }
            _ => {
                self.find(state, Rule::Ipc1, About::Rank(rank), &[op], past, || {
                    format!("rank {} opens what is no handle ({})", rank.0, self.at(&op))
                });
                self.fail(state, rank, thread, "ipc.open".to_owned(), INVALID_VALUE);
                None
            }
        };
        self.done(state, rank, thread, &[mapped.unwrap_or(Value::Null)]);
    }

    fn moment(&self, state: &State, (rank, thread): (Rank, u32)) -> Moment {
        let clock = &state.ranks[rank.at()].threads[thread as usize].clock;
        Moment { actor: clock.actor(), epoch: clock.epoch(), op: self.op_ref(state, rank, thread) }
    }

    /// The mapping of a peer's allocation: the one that is open, or a new one.
    pub(crate) fn open_mapping(
        &self,
        state: &mut State,
        (rank, thread): (Rank, u32),
        of: Rank,
        whole: &Buffer,
    ) -> Value {
        self.touch(state, rank, thread, Object::memory(whole.memory), Touch::Mutate);
        let moment = self.moment(state, (rank, thread));
        let past = Self::past(state, rank, thread);
        let memory = state.ranks[of.at()].memory.get(&whole.memory);
        let released = memory.and_then(|memory| memory.released.as_ref()).map(|released| released.op);
        if memory.is_none() || released.is_some() {
            match (self.source.freed(moment.op.place), released) {
                (Freed::AsOrdered | Freed::BeforeOpened, _) => {
                    self.find_opened_late(state, of, whole.memory, &moment.op, past);
                }
                (Freed::WhileOpen, Some(free)) => {
                    self.find_freed_open(state, (of, whole.memory), [free, moment.op], past);
                }
                (Freed::WhileOpen, None) | (Freed::AfterClosed, _) => {}
            }
        }
        let mappings = &mut state.rank_mut(rank).mappings;
        let open = mappings.iter().position(|m| (m.of, m.memory) == (of, whole.memory) && m.count > 0);
        let at = open.unwrap_or_else(|| {
            mappings.push(Mapping {
                of,
                memory: whole.memory,
                count: 0,
                opens: Vec::new(),
                uses: Vec::new(),
                closed: None,
            });
            mappings.len() - 1
        });
        mappings[at].count += 1;
        mappings[at].opens.push(moment);
        let nth = u32::try_from(at).expect("few mappings a rank");
        Value::Buffer(Arc::new(Buffer { through: Some(MappingId { of, nth }), ..whole.clone() }))
    }

    fn find_opened_late(&self, state: &mut State, of: Rank, memory: MemoryId, open: &OpRef, past: u64) {
        self.find(state, Rule::Ipc2, About::Memory(of, memory), &[*open], past, || {
            format!(
                "rank {} opens the handle of {} of rank {} ({}), and nothing keeps rank {} from freeing it before",
                open.rank.0,
                self.memory_name(memory),
                of.0,
                self.at(open),
                of.0
            )
        });
        Self::undefine(state, *open);
    }

    fn close(&self, state: &mut State, rank: Rank, thread: u32, mapping: &Operand, op: OpRef) {
        let value = Self::value(state, rank, mapping);
        let Value::Buffer(buffer) = value else {
            self.find_not_open(state, (rank, thread), About::Rank(rank), "what is no mapping", op);
            self.done(state, rank, thread, &[]);
            return;
        };
        let about = About::Memory(buffer.home(rank), buffer.memory);
        let Some(through) = buffer.through else {
            self.find_not_open(state, (rank, thread), about, "its own memory", op);
            self.done(state, rank, thread, &[]);
            return;
        };
        self.touch(state, rank, thread, Object::memory(buffer.memory), Touch::Mutate);
        let moment = self.moment(state, (rank, thread));
        let row = &mut state.rank_mut(rank).mappings[through.nth as usize];
        if row.count == 0 {
            self.find_not_open(state, (rank, thread), about, "a mapping that is closed", op);
        } else {
            row.count -= 1;
            if row.count == 0 {
                row.closed = Some(moment);
                self.judge_uses(state, (rank, thread), through.nth, op);
            }
        }
        self.done(state, rank, thread, &[]);
    }

    fn find_not_open(
        &self,
        state: &mut State,
        (rank, thread): (Rank, u32),
        about: About,
        what: &str,
        op: OpRef,
    ) {
        let past = Self::past(state, rank, thread);
        self.fail(state, rank, thread, "ipc.close".to_owned(), INVALID_VALUE);
        self.find(state, Rule::Ipc4, about, &[op], past, || {
            format!("rank {} closes {what} ({})", rank.0, self.at(&op))
        });
    }

    /// What the rank still does with memory of a peer when it closes its last mapping of it.
    fn judge_uses(&self, state: &mut State, (rank, thread): (Rank, u32), nth: u32, op: OpRef) {
        let r = &state.ranks[rank.at()];
        let clock = r.threads[thread as usize].clock.clone();
        let row = &r.mappings[nth as usize];
        let (home, memory) = (row.of, row.memory);
        // What the owner's memory remembers is too little: a later write of somebody else takes the place of a use.
        let running = row.uses.iter().find(|used| !used.before(&clock)).map(|used| used.op);
        let of_mapping = |buffer: &&Buffer| buffer.through == Some(MappingId { of: home, nth });
        let queued = r
            .streams
            .iter()
            .flat_map(|(_, stream)| &stream.queue)
            .find(|queued| queued.work.buffers().iter().any(of_mapping))
            .map(|queued| queued.op);
        let Some(user) = running.or(queued) else { return };
        self.find(state, Rule::Ipc4, About::Memory(home, memory), &[op, user], clock.past(), || {
            format!(
                "rank {} closes its mapping of {} of rank {} ({}) without waiting for the operation at {} that \
                 uses it",
                rank.0,
                self.memory_name(memory),
                home.0,
                self.at(&op),
                self.at(&user)
            )
        });
        Self::undefine(state, user);
    }

    /// Notes that a stream used a mapping.
    pub(crate) fn note_use(state: &mut State, rank: Rank, through: MappingId, clock: &Clock, op: OpRef) {
        let uses = &mut state.rank_mut(rank).mappings[through.nth as usize].uses;
        uses.retain(|used| used.actor != clock.actor());
        uses.push(Moment { actor: clock.actor(), epoch: clock.epoch(), op });
    }

    /// A mapping that is used must be open.
    pub(crate) fn judge_closed(&self, state: &mut State, rank: Rank, buffer: &Buffer, op: OpRef, past: u64) {
        let Some(through) = buffer.through else { return };
        let row = &state.ranks[rank.at()].mappings[through.nth as usize];
        if row.count > 0 {
            return;
        }
        let closed = row.closed.as_ref().map(|closed| closed.op);
        let mut ops = vec![op];
        ops.extend(closed);
        self.find(state, Rule::Ipc4, About::Memory(through.of, buffer.memory), &ops, past, || {
            let closed =
                closed.map_or_else(String::new, |closed| format!(", closed at {}", self.at(&closed)));
            format!(
                "rank {} uses its mapping of {} of rank {} ({}){closed}",
                rank.0,
                self.memory_name(buffer.memory),
                through.of.0,
                self.at(&op)
            )
        });
        Self::undefine(state, op);
    }

    /// The mappings that peers have of memory that its owner frees.
    pub(crate) fn judge_mapped(&self, state: &mut State, rank: Rank, thread: u32, id: MemoryId, op: OpRef) {
        let clock = state.ranks[rank.at()].threads[thread as usize].clock.clone();
        let past = clock.past();
        let mut late = Vec::new();
        let mut open = None;
        for mapping in state.ranks.iter().flat_map(|r| &r.mappings) {
            if (mapping.of, mapping.memory) != (rank, id) {
                continue;
            }
            let closed = mapping.count == 0 && mapping.closed.as_ref().is_some_and(|c| c.before(&clock));
            for opened in &mapping.opens {
                match self.source.freed(opened.op.place) {
                    Freed::BeforeOpened => late.push(opened.op),
                    Freed::AsOrdered if !opened.before(&clock) => late.push(opened.op),
                    Freed::AsOrdered if closed => {}
                    Freed::AsOrdered | Freed::WhileOpen => open = open.or(Some(opened.op)),
                    Freed::AfterClosed => {}
                }
            }
        }
        for opened in late {
            self.find_opened_late(state, rank, id, &opened, past);
        }
        if let Some(opened) = open {
            self.find_freed_open(state, (rank, id), [op, opened], past);
        }
    }

    fn find_freed_open(
        &self,
        state: &mut State,
        (of, memory): (Rank, MemoryId),
        [free, opened]: [OpRef; 2],
        past: u64,
    ) {
        self.find(state, Rule::Ipc3, About::Memory(of, memory), &[free, opened], past, || {
            format!(
                "rank {} frees {} ({}) while rank {} has it open (opened at {}): the mapping keeps the old pages",
                of.0,
                self.memory_name(memory),
                self.at(&free),
                opened.rank.0,
                self.at(&opened)
            )
        });
    }

    pub(crate) fn rank_of(&self, actor: Actor) -> Rank {
        Rank(actor.0 / self.config.actors_per_rank)
    }
}
