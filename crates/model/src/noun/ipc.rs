//! Memory of other ranks: handles, the mappings that open them, and what a free leaves to a mapping.
//!
//! Accesses through a mapping are accesses of the owner's memory, with the clock of whoever makes them. What a CUDA
//! IPC handle names may be freed only after every mapping of it is closed; on devices the mapping keeps the old pages
//! (measured), and whoever reads them reads what nobody writes any more. What a shareable handle names lives as long
//! as it is mapped anywhere, so its owner may release it before. Not here: who carries handles between ranks ([`crate::noun::store`], [`crate::noun::exchange`]).
#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "an operand of another kind is as good as null, and verbs are dispatched by noun"
)]

use crate::cx::{Cx, Here};
use crate::describe::{Describe, Description};
use crate::machine::Kind;
use crate::noun::pool::Plan;
use crate::noun::thread::{Status, ThreadState};
use crate::op::{HandleKind, Show, Verb};
use std::sync::Arc;

use crate::clock::{Actor, CausalPast, Clock};
use crate::host::value::{Buffer, MappingId, MemoryId, Value};
use crate::identity::{Identify, StateIdentity};
use crate::judge::finding::{About, OpRef, Rule};
use crate::machine::{Machine, locked};
use crate::order::dependence::{Access, Object};
use crate::program::{Freed, Operand, Symmetry};
use crate::rank::Rank;
use crate::state::{RankState, State, Table};
use crate::walk::walk;

/// Operations on memory of other ranks, by the handle that it has.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum IpcOp {
    /// `cudaIpcGetMemHandle`. Produces a handle of the allocation in which the buffer lies (null if it failed).
    Export {
        /// The buffer whose whole allocation is exported.
        buffer: Operand,
    },
    /// `cuMemExportToShareableHandle`. Produces a handle of the allocation in which the buffer lies (null if it failed).
    ExportShareable {
        /// The buffer whose whole allocation is exported.
        buffer: Operand,
    },
    /// `cudaIpcOpenMemHandle`, or an import and a mapping of it. Produces the mapping of the whole allocation (null if it failed).
    Open {
        /// What [`IpcOp::Export`] or [`IpcOp::ExportShareable`] produced on another rank.
        handle: Operand,
    },
    /// `cudaIpcCloseMemHandle`: unmaps what an open mapped.
    Close {
        /// The mapping: what [`IpcOp::Open`] produced on this rank.
        mapping: Operand,
    },
}

impl Describe for IpcOp {
    fn describe(&self, to: &mut Description<'_>) {
        match self {
            Self::Export { buffer } => to.call("IpcExport", &[("buffer", buffer)]),
            Self::ExportShareable { buffer } => to.call("ShareableExport", &[("buffer", buffer)]),
            Self::Open { handle } => to.call("IpcOpen", &[("handle", handle)]),
            Self::Close { mapping } => to.call("IpcClose", &[("mapping", mapping)]),
        }
    }
}

impl Verb for IpcOp {
    fn slots(&self) -> u32 {
        match self {
            Self::Export { .. } | Self::ExportShareable { .. } | Self::Open { .. } => 1,
            Self::Close { .. } => 0,
        }
    }

    fn kind(&self) -> Kind {
        Kind::InRole
    }

    fn buffers(&self) -> Vec<&Operand> {
        match self {
            Self::Export { buffer } | Self::ExportShareable { buffer } => vec![buffer],
            Self::Close { mapping, .. } => vec![mapping],
            Self::Open { .. } => Vec::new(),
        }
    }

    fn display(&self, show: &Show<'_>) -> String {
        let of = |operand: &Operand| show.operand(operand);
        match self {
            Self::Export { buffer } => format!("ipc.export({})", of(buffer)),
            Self::ExportShareable { buffer } => format!("export_shareable({})", of(buffer)),
            Self::Open { handle } => format!("ipc.open({})", of(handle)),
            Self::Close { mapping } => format!("ipc.close({})", of(mapping)),
        }
    }

    fn footprint(&self, here: Here<'_>, each: &mut dyn FnMut(Object, Access)) {
        match self {
            Self::Export { .. } | Self::ExportShareable { .. } => {}
            Self::Open { handle } => {
                if let Value::Handle(_, whole) = Machine::value(here.state, here.rank, handle) {
                    each(Object::memory(whole.memory), Access::Write);
                }
            }
            Self::Close { mapping } => here.memory_of(mapping, Access::Write, each),
        }
    }

    fn apply(&self, cx: &mut Cx<'_>, _: Plan) {
        match self {
            Self::Export { buffer } => cx.export(buffer, HandleKind::Ipc),
            Self::ExportShareable { buffer } => cx.export(buffer, HandleKind::Shareable),
            Self::Open { handle } => cx.open(handle),
            Self::Close { mapping } => cx.close(mapping),
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

walk!(apart struct Moment { actor: hashed moved, epoch: hashed fixed, op: hashed moved });

impl Identify for Moment {
    fn identify(&self, to: &mut StateIdentity<'_>) {
        let Self { actor, epoch, op } = self;
        op.identify(to);
        let known = to.is_known(*actor, *epoch);
        to.asked_about(*actor, if known { 0 } else { *epoch });
    }
}

impl Moment {
    pub(crate) fn before(&self, clock: &Clock) -> bool {
        clock.after(self.actor, self.epoch)
    }
}

/// Memory of another rank that a rank has or had open.
#[derive(Debug, Clone)]
struct Mapping {
    of: Rank,
    memory: MemoryId,
    /// Opens that were not closed yet.
    count: u32,
    /// Every open, the last use by each stream, and the close that was the last; functions of positions, like
    /// accesses.
    opens: Vec<Moment>,
    uses: Vec<Moment>,
    closed: Option<Moment>,
    /// What those knew who closed it while others had it open: the last close, which unmaps it, comes after theirs.
    closers: Option<Clock>,
}

impl Mapping {
    /// One that is not open.
    fn new(of: Rank, memory: MemoryId) -> Self {
        Self { of, memory, count: 0, opens: Vec::new(), uses: Vec::new(), closed: None, closers: None }
    }
}

walk!(struct Mapping {
    of: hashed fixed,
    memory: hashed fixed,
    count: hashed fixed,
    opens: derived fixed,
    uses: derived fixed,
    closed: derived fixed,
    closers: hashed fixed,
});

/// Memory of other ranks that a rank has or had open.
#[derive(Debug, Clone, Default)]
pub(crate) struct Mappings {
    rows: Vec<Mapping>,
}

walk!(struct Mappings { rows: hashed fixed });

impl RankState {
    /// The memory of other ranks that is open, each with how often it was opened and not closed.
    pub(crate) fn mapped(&self) -> impl Iterator<Item = (Rank, MemoryId, u32)> {
        let open = Mappings::of(self).rows.iter().filter(|mapping| mapping.count > 0);
        open.map(|mapping| (mapping.of, mapping.memory, mapping.count))
    }
}

impl Machine {
    fn find_opened_late(
        &self,
        state: &mut State,
        of: Rank,
        memory: MemoryId,
        open: &OpRef,
        past: CausalPast,
    ) {
        let freed = state.rank(of).memory(memory).is_none_or(|memory| memory.released().is_some());
        let does = if Self::has_exited(state, of) && !freed { "exiting" } else { "freeing it" };
        self.find(state, Rule::Ipc2, About::Memory(of, memory), &[*open], past, || {
            format!(
                "rank {} opens the handle of {} of rank {} ({}), and nothing keeps rank {} from {does} before",
                open.rank.0,
                self.memory_name(memory),
                of.0,
                self.at(open),
                of.0
            )
        });
        Self::undefine(state, *open);
    }

    /// Notes that a stream used a mapping.
    pub(crate) fn note_use(state: &mut State, rank: Rank, through: MappingId, clock: &Clock, op: OpRef) {
        let uses = &mut Mappings::of_mut(state.rank_mut(rank)).rows[through.nth as usize].uses;
        uses.retain(|used| used.actor != clock.actor());
        uses.push(Moment { actor: clock.actor(), epoch: clock.epoch(), op });
    }

    /// A mapping that is used must be open.
    pub(crate) fn judge_closed(
        &self,
        state: &mut State,
        rank: Rank,
        buffer: &Buffer,
        op: OpRef,
        clock: &Clock,
    ) {
        let Some(through) = buffer.through else { return };
        let row = &Mappings::of(state.rank(rank)).rows[through.nth as usize];
        if row.count > 0 {
            return;
        }
        if row.opens.is_empty() {
            self.find(state, Rule::Ipc1, About::Memory(through.of, buffer.memory), &[op], clock.past(), || {
                format!(
                    "rank {} uses {} of rank {} by the address that it has there ({}): an address of another process means nothing here",
                    rank.0,
                    self.memory_name(buffer.memory),
                    through.of.0,
                    self.at(&op)
                )
            });
            Self::undefine(state, op);
            return;
        }
        let closed = row.closed.as_ref().map(|closed| closed.op);
        let mut ops = vec![op];
        ops.extend(closed);
        self.find(state, Rule::Ipc4, About::Memory(through.of, buffer.memory), &ops, clock.past(), || {
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

    fn find_freed_open(
        &self,
        state: &mut State,
        (of, memory): (Rank, MemoryId),
        [free, opened]: [OpRef; 2],
        past: CausalPast,
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

    /// The mappings that peers have of memory that its owner frees, who knows so much then.
    pub(crate) fn judge_mapped(
        &self,
        state: &mut State,
        (rank, id): (Rank, MemoryId),
        op: OpRef,
        clock: &Clock,
    ) {
        let memory = state.rank(rank).memory(id);
        let held = memory.is_some_and(|memory| memory.kind().handle() == HandleKind::Shareable);
        let mut late = Vec::new();
        let mut open = None;
        for mapping in state.ranks().flat_map(|r| &Mappings::of(r).rows) {
            if (mapping.of, mapping.memory) != (rank, id) {
                continue;
            }
            let closed = mapping.count == 0 && mapping.closed.as_ref().is_some_and(|c| c.before(clock));
            for opened in &mapping.opens {
                match self.source.freed(opened.op.loc) {
                    Freed::BeforeOpened => late.push(opened.op),
                    Freed::AsOrdered if !opened.before(clock) => late.push(opened.op),
                    // Each mapping that is left holds the memory.
                    Freed::AsOrdered if closed || held => {}
                    Freed::AsOrdered | Freed::WhileOpen => open = open.or(Some(opened.op)),
                    Freed::AfterClosed => {}
                }
            }
        }
        for opened in late {
            self.find_opened_late(state, rank, id, &opened, clock.past());
        }
        if let Some(opened) = open {
            self.find_freed_open(state, (rank, id), [op, opened], clock.past());
        }
    }

    /// Whether a process has exited with an error, and no thread of it is left: its memory is gone.
    fn has_exited(state: &State, rank: Rank) -> bool {
        let r = state.rank(rank);
        matches!(r.threads().first().map(ThreadState::status), Some(Status::Exited(_))) && r.has_ended()
    }

    /// A thread has ended. If the process has exited by that, who opens its memory and is not known to have done so
    /// comes too late in some run.
    pub(crate) fn judge_exited(&self, state: &mut State, rank: Rank) {
        if !Self::has_exited(state, rank) {
            return;
        }
        // The process exits once all its threads have ended, whichever of them is the last.
        let mut threads = state.rank(rank).threads().iter().map(ThreadState::clock);
        let Some(mut clock) = threads.next().cloned() else { return };
        threads.for_each(|ended| clock.join(ended));
        let mut late = Vec::new();
        for mapping in state.ranks().flat_map(|r| &Mappings::of(r).rows) {
            let unordered = mapping.opens.iter().filter(|opened| {
                mapping.of == rank
                    && self.source.freed(opened.op.loc) == Freed::AsOrdered
                    && !opened.before(&clock)
            });
            late.extend(unordered.map(|opened| (mapping.memory, opened.op)));
        }
        for (memory, opened) in late {
            self.find_opened_late(state, rank, memory, &opened, clock.past());
        }
    }

    pub(crate) fn rank_of(&self, actor: Actor) -> Rank {
        Rank(actor.0 / self.config.actors_per_rank)
    }
}

impl Cx<'_> {
    fn export(&mut self, buffer: &Operand, kind: HandleKind) {
        let (rank, op) = (self.rank, self.op);
        let handle = self.given(buffer, op).and_then(|buffer| {
            if buffer.through.is_some() {
                self.find_unshareable(&buffer, op, "a mapping");
                return None;
            }
            let memory = self.me().memory(buffer.memory)?;
            if memory.kind().handle() == kind {
                let whole = Buffer { block: None, ..Buffer::clone(memory.whole()) };
                return Some(Value::Handle(rank, Arc::new(whole)));
            }
            let vendor_call = memory.kind().vendor_call();
            let why = match kind {
                HandleKind::Ipc => format!("memory of {vendor_call} and not of cudaMalloc"),
                HandleKind::Shareable => format!("memory of {vendor_call} and has no shareable handle"),
            };
            self.find_unshareable(&buffer, op, &why);
            None
        });
        if handle.is_none() {
            self.fail("ipc.export".to_owned(), INVALID_VALUE);
        }
        self.done(&[handle.unwrap_or(Value::Null)]);
    }

    /// Memory that no handle can be made of.
    pub(crate) fn find_unshareable(&mut self, buffer: &Buffer, op: OpRef, why: &str) {
        let (m, rank) = (self.m, self.rank);
        let past = self.here().past();
        m.find(self.state, Rule::Ipc1, About::Memory(buffer.home(rank), buffer.memory), &[op], past, || {
            format!("rank {} exports {} ({}), which is {why}", rank.0, m.buffer_name(buffer), m.at(&op))
        });
    }

    fn open(&mut self, handle: &Operand) {
        let (m, rank, op) = (self.m, self.rank, self.op);
        let mapped = match Machine::value(self.state, rank, handle) {
            Value::Handle(of, whole) if of != rank => Some(self.open_mapping(of, &whole)),
            Value::Handle(_, whole) => {
                let past = self.here().past();
                m.find(self.state, Rule::Ipc1, About::Memory(rank, whole.memory), &[op], past, || {
                    let name = m.memory_name(whole.memory);
                    format!("rank {} opens its own handle of {name} ({})", rank.0, m.at(&op))
                });
                self.fail("ipc.open".to_owned(), INVALID_CONTEXT);
                None
            }
            _ => {
                let past = self.here().past();
                m.find(self.state, Rule::Ipc1, About::Rank(rank), &[op], past, || {
                    format!("rank {} opens what is no handle ({})", rank.0, m.at(&op))
                });
                self.fail("ipc.open".to_owned(), INVALID_VALUE);
                None
            }
        };
        self.done(&[mapped.unwrap_or(Value::Null)]);
    }

    /// The mapping of a peer's allocation: the one that is open where its handle gives that again, or a new one.
    pub(crate) fn open_mapping(&mut self, of: Rank, whole: &Buffer) -> Value {
        let m = self.m;
        self.access(Object::memory(whole.memory), Access::Write);
        let moment = self.here().moment();
        let memory = self.state.rank(of).memory(whole.memory);
        let released = memory.and_then(|memory| memory.released()).map(|released| released.op);
        let handle = memory.map(|memory| memory.kind().handle());
        let exited = Machine::has_exited(self.state, of) && m.source.freed(moment.op.loc) == Freed::AsOrdered;
        if memory.is_none() || released.is_some() || exited {
            let past = self.here().past();
            match (m.source.freed(moment.op.loc), released) {
                (Freed::AsOrdered | Freed::BeforeOpened, _) => {
                    m.find_opened_late(self.state, of, whole.memory, &moment.op, past);
                }
                (Freed::WhileOpen, Some(free)) => {
                    m.find_freed_open(self.state, (of, whole.memory), [free, moment.op], past);
                }
                (Freed::WhileOpen, None) | (Freed::AfterClosed, _) => {}
            }
        }
        let mappings = &mut Mappings::of_mut(self.me_mut()).rows;
        let open = match handle {
            Some(HandleKind::Shareable) => None,
            Some(HandleKind::Ipc) | None => {
                mappings.iter().position(|m| (m.of, m.memory) == (of, whole.memory) && m.count > 0)
            }
        };
        let at = open.unwrap_or_else(|| {
            mappings.push(Mapping::new(of, whole.memory));
            mappings.len() - 1
        });
        mappings[at].count += 1;
        mappings[at].opens.push(moment);
        self.me_mut().executed_mut().mappings += 1;
        let nth = u32::try_from(at).expect("few mappings a rank");
        Value::Buffer(Arc::new(Buffer { through: Some(MappingId { of, nth }), ..whole.clone() }))
    }

    /// What another rank put into the store, as this one has it: of a buffer, an address that was never opened here. Ranks
    /// that nobody tells apart have no addresses of their own.
    pub(crate) fn came_from(&mut self, of: Rank, value: Value) -> Value {
        if of == self.rank || self.m.source.symmetry() == Symmetry::Interchangeable {
            return value;
        }
        match value {
            Value::Buffer(buffer) => {
                let of = buffer.home(of);
                let mappings = &mut Mappings::of_mut(self.me_mut()).rows;
                let known = |m: &Mapping| (m.of, m.memory) == (of, buffer.memory) && m.opens.is_empty();
                let at = mappings.iter().position(known).unwrap_or_else(|| {
                    mappings.push(Mapping::new(of, buffer.memory));
                    mappings.len() - 1
                });
                let nth = u32::try_from(at).expect("few mappings a rank");
                Value::Buffer(Arc::new(Buffer {
                    through: Some(MappingId { of, nth }),
                    ..Buffer::clone(&buffer)
                }))
            }
            Value::Tuple(parts) => {
                Value::Tuple(parts.iter().map(|part| self.came_from(of, part.clone())).collect())
            }
            other => other,
        }
    }

    fn close(&mut self, mapping: &Operand) {
        let rank = self.rank;
        let value = Machine::value(self.state, rank, mapping);
        let Value::Buffer(buffer) = value else {
            self.find_not_open(About::Rank(rank), "what is no mapping");
            self.done(&[]);
            return;
        };
        let about = About::Memory(buffer.home(rank), buffer.memory);
        let Some(through) = buffer.through else {
            self.find_not_open(about, "its own memory");
            self.done(&[]);
            return;
        };
        self.access(Object::memory(buffer.memory), Access::Write);
        let (moment, mut known) = (self.here().moment(), self.this().clock().clone());
        let row = &mut Mappings::of_mut(self.me_mut()).rows[through.nth as usize];
        if row.count == 0 {
            self.find_not_open(about, "a mapping that is closed");
            self.done(&[]);
            return;
        }
        row.count -= 1;
        if let Some(before) = row.closers.take() {
            known.join(&before);
        }
        if row.count == 0 {
            row.closed = Some(moment);
            self.judge_uses(through.nth, &known);
        } else {
            row.closers = Some(known);
        }
        self.done(&[]);
    }

    fn find_not_open(&mut self, about: About, what: &str) {
        let (m, rank, op) = (self.m, self.rank, self.op);
        let past = self.here().past();
        self.fail("ipc.close".to_owned(), INVALID_VALUE);
        m.find(self.state, Rule::Ipc4, about, &[op], past, || {
            format!("rank {} closes {what} ({})", rank.0, m.at(&op))
        });
    }

    /// What the rank still does with memory of a peer when its last mapping of it is closed, by those who know so much.
    fn judge_uses(&mut self, nth: u32, clock: &Clock) {
        let (m, rank, op) = (self.m, self.rank, self.op);
        let r = self.me();
        let row = &Mappings::of(r).rows[nth as usize];
        let (home, memory) = (row.of, row.memory);
        // What the owner's memory remembers is too little: a later write of somebody else takes the place of a use.
        let running = row.uses.iter().find(|used| !used.before(clock)).map(|used| used.op);
        let of_mapping = |buffer: &&Buffer| buffer.through == Some(MappingId { of: home, nth });
        let queued =
            r.queued().find(|queued| queued.work.buffers().iter().any(of_mapping)).map(|queued| queued.op);
        let Some(user) = running.or(queued) else { return };
        if m.source.waits_to_close(op.loc) {
            locked(&m.closed_in_use).get_or_insert([op, user]);
            return;
        }
        m.find(self.state, Rule::Ipc4, About::Memory(home, memory), &[op, user], clock.past(), || {
            format!(
                "rank {} closes its mapping of {} of rank {} ({}) without waiting for the operation at {} that \
                 uses it",
                rank.0,
                m.memory_name(memory),
                home.0,
                m.at(&op),
                m.at(&user)
            )
        });
        Machine::undefine(self.state, user);
    }
}

impl<'a> Here<'a> {
    fn moment(self) -> Moment {
        let clock = self.this().clock();
        Moment { actor: clock.actor(), epoch: clock.epoch(), op: self.op_ref() }
    }
}
