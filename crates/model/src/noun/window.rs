//! Windows: registration as an order-matched collective, local lookup, local deregistration.
//!
//! Source of the semantics: `specs/rules/window.md`.
//! Not here: which kernel a lookup leads to ([`crate::noun::collective`]).
#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "an operand of another kind is as good as null, and verbs are dispatched by noun"
)]

mod table;

use crate::clock::Clock;
use crate::cx::Cx;
use crate::cx::Here;
use crate::describe::{Describe, Description};
use crate::machine::Kind;
use crate::noun::graph::UNHANDLED;
use crate::noun::pool::Plan;
use crate::op::{MemoryKind, Op, Show, Verb};
use crate::order::poll::Poll;
use std::sync::Arc;

pub(crate) use self::table::{LastUse, Window, Windows};
use crate::host::best_fit::GRANULARITY_BYTES;
use crate::host::lookup::window_of;
use crate::host::value::{Buffer, CommId, MemoryId, Value};
use crate::judge::finding::{About, OpRef, Rule};
use crate::machine::{Machine, locked};
use crate::noun::comm::Setup;
use crate::noun::group::GroupCall;
use crate::noun::rendezvous::Rendezvous;
use crate::noun::stream::Work;
use crate::noun::thread::Status;
use crate::order::dependence::{Access, Object};
use crate::order::poll::{FaultOf, NondetValues};
use crate::platform::{NullRegistration, Repeated, UnequalSizes};
use crate::program::Operand;
use crate::rank::Rank;
use crate::state::{RankState, State};

/// Flags of a window registration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WindowFlags {
    /// `NCCL_WIN_DEFAULT`: no symmetric kernel uses the window.
    Default,
    /// `NCCL_WIN_COLL_SYMMETRIC`: symmetric kernels may use the window; members promise equal offsets.
    CollSymmetric,
}

impl Describe for WindowFlags {
    fn describe(&self, to: &mut Description<'_>) {
        to.word(match self {
            Self::Default => "Default",
            Self::CollSymmetric => "CollSymmetric",
        });
    }
}

/// Operations that register windows with a communicator and take them away.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum WindowOp {
    /// `ncclCommWindowRegister`. Produces the window (null if it failed).
    Register {
        /// The communicator whose members register together: what an init or a split produced.
        comm: Operand,
        /// A segment, a buffer, a slice of either, or null.
        memory: Operand,
        /// Flags of this rank's registration, which should equal those of the other members.
        flags: WindowFlags,
    },
    /// `ncclCommWindowDeregister`: takes a window out of this rank's lookup table.
    Deregister {
        /// The communicator whose members register together: what an init or a split produced.
        comm: Operand,
        /// The window: what [`WindowOp::Register`] produced on this rank.
        window: Operand,
    },
}

impl Describe for WindowOp {
    fn describe(&self, to: &mut Description<'_>) {
        match self {
            Self::Register { comm, memory, flags } => {
                to.call("Register", &[("comm", comm), ("memory", memory), ("flags", flags)])
            }
            Self::Deregister { comm, window } => to.call("Deregister", &[("comm", comm), ("window", window)]),
        }
    }
}

impl Verb for WindowOp {
    fn slots(&self) -> u32 {
        match self {
            Self::Register { .. } => 1,
            Self::Deregister { .. } => 0,
        }
    }

    fn kind(&self) -> Kind {
        Kind::Alike
    }

    fn buffers(&self) -> Vec<&Operand> {
        match self {
            Self::Register { memory, .. } => vec![memory],
            Self::Deregister { .. } => Vec::new(),
        }
    }

    fn display(&self, show: &Show<'_>) -> String {
        let of = |operand: &Operand| show.operand(operand);
        match self {
            Self::Register { comm, memory, .. } => format!("{}.register({})", of(comm), of(memory)),
            Self::Deregister { comm, window } => format!("{}.deregister({})", of(comm), of(window)),
        }
    }

    fn call_name(&self, here: Here<'_>) -> String {
        match self {
            Self::Register { comm, .. } => match Machine::value(here.state, here.rank, comm) {
                Value::Comm(comm) => format!("{}.register", here.m.comm_name_on(here.rank, comm)),
                _ => "register".to_owned(),
            },
            Self::Deregister { .. } => here.show(&mut |show| self.display(show)),
        }
    }

    fn seen_by_others(&self) -> bool {
        match self {
            Self::Register { .. } => true,
            Self::Deregister { .. } => false,
        }
    }

    fn unsafe_in_capture(&self) -> bool {
        match self {
            Self::Register { .. } => true,
            Self::Deregister { .. } => false,
        }
    }

    fn refused_by(&self, here: Here<'_>) -> Option<(usize, i32)> {
        match self {
            Self::Register { .. } => here.registers_in_capture().map(|graph| (graph, UNHANDLED)),
            Self::Deregister { .. } => None,
        }
    }

    fn footprint(&self, here: Here<'_>, each: &mut dyn FnMut(Object, Access)) {
        match self {
            Self::Register { comm, .. } => here.comm_of(comm, Access::Call, each),
            Self::Deregister { comm, window } => {
                here.comm_of(comm, Access::Call, each);
                let covered = here.m.covered(here.state, here.rank, comm, Some(window));
                covered.into_iter().for_each(|memory| each(Object::memory(memory), Access::Read));
            }
        }
    }

    fn ready(&self, here: Here<'_>, nondet: &mut NondetValues<'_>) -> Poll {
        match self {
            Self::Register { .. } => {
                here.m.decide_fault(here.state, FaultOf::Register, nondet).err().unwrap_or(Poll::RUN)
            }
            Self::Deregister { .. } => Poll::RUN,
        }
    }

    fn apply(&self, cx: &mut Cx<'_>, _: Plan) {
        match self {
            Self::Register { comm, memory, flags } => cx.register((comm, memory, *flags)),
            Self::Deregister { comm, window } => cx.deregister(comm, window),
        }
    }

    /// The first registration of a communicator fails while it sets up memory of NCCL's own; later ones meet the
    /// other ranks before they ask the driver (both measured).
    fn met_before(&self, here: Here<'_>) -> bool {
        match self {
            Self::Register { comm, .. } => match Machine::value(here.state, here.rank, comm) {
                Value::Comm(comm) => {
                    let comm_state = here.state.rank(here.rank).comm(comm);
                    comm_state.is_some_and(|comm_state| !comm_state.windows().rows.is_empty())
                }
                _ => false,
            },
            Self::Deregister { .. } => false,
        }
    }
}

/// A window starts at a multiple of this.
const ALIGNMENT_BYTES: u64 = 4096;

/// `ncclUnhandledCudaError`: the driver gives no handle of memory that is not made for sharing.
const UNSHAREABLE: i32 = 1;
/// `ncclInvalidArgument`: NCCL refuses the arguments of a call.
pub(crate) const INVALID_ARGUMENT: i32 = 4;

const NULL: &str = "null";
const EMPTY: &str = "of no bytes";

/// What a lookup found.
pub(crate) struct WindowFound<'a> {
    pub(crate) window: &'a Window,
    pub(crate) offset_bytes: u64,
}

impl Machine {
    /// Why memory cannot be registered, and the code that says so.
    fn unregistrable(&self, state: &State, rank: Rank, value: &Value) -> Option<(&'static str, i32)> {
        let null = match self.config.platform.null_registration() {
            NullRegistration::NoOp => 0,
            NullRegistration::InvalidArgument => 4,
        };
        let Value::Buffer(buffer) = value else { return Some((NULL, null)) };
        if buffer.len_bytes == 0 {
            return Some((EMPTY, null));
        }
        let kind = state.rank(rank).memory(buffer.memory).map(|memory| memory.kind());
        if kind == Some(MemoryKind::Cuda) {
            return Some(("cudaMalloc memory", UNSHAREABLE));
        }
        if !buffer.offset_bytes.is_multiple_of(ALIGNMENT_BYTES) {
            return Some(("not at a multiple of 4096 bytes", INVALID_ARGUMENT));
        }
        None
    }

    pub(crate) fn register_meet(
        &self,
        state: &mut State,
        comm: CommId,
        nth: u32,
        here: &[(Rank, u32)],
        events: &[Setup],
    ) {
        let entered: Vec<(Arc<Buffer>, WindowFlags, OpRef)> = events
            .iter()
            .map(|event| match event {
                Setup::Register { memory: Value::Buffer(buffer), flags, op } => {
                    (Arc::clone(buffer), *flags, *op)
                }
                Setup::Register { .. } | Setup::Split { .. } => {
                    unreachable!("null registrations do not reach a rendezvous")
                }
            })
            .collect();
        if self.deduplicated_apart(state, comm, nth, here, &entered) {
            return;
        }
        if self.refused_in_captures(state, comm, here, &entered) {
            return;
        }
        self.judge_flags(state, comm, nth, here, &entered);
        let failed = self.judge_sizes(state, comm, nth, here, &entered);
        for ((rank, thread), (buffer, flags, op)) in here.iter().zip(&entered) {
            if failed {
                self.cx(state, *rank, *thread)
                    .fail(format!("{}.register", self.comm_name_on(*rank, comm)), 1);
                self.cx(state, *rank, *thread).set_up_done(comm, Value::Null);
                continue;
            }
            let window = Window::new(nth, Buffer::clone(buffer), *flags, *op);
            state.rank_mut(*rank).comm_mut(comm).windows_mut().rows.push(window);
            self.cx(state, *rank, *thread).set_up_done(comm, Value::Window(comm, nth));
        }
    }

    /// Some ranks register memory again, and skip the exchange, while others register something new.
    fn deduplicated_apart(
        &self,
        state: &mut State,
        comm: CommId,
        nth: u32,
        here: &[(Rank, u32)],
        entered: &[(Arc<Buffer>, WindowFlags, OpRef)],
    ) -> bool {
        if self.config.platform.repeated() != Repeated::Deduplicated {
            return false;
        }
        let again: Vec<bool> = here
            .iter()
            .zip(entered)
            .map(|((rank, _), (buffer, ..))| {
                state.rank(*rank).comm(comm).is_some_and(|comm_state| {
                    comm_state.windows().rows.iter().any(|w| w.live && w.buffer.memory == buffer.memory)
                })
            })
            .collect();
        let (Some(repeats), Some(new)) = (again.iter().position(|a| *a), again.iter().position(|a| !*a))
        else {
            return false;
        };
        let ops = [entered[repeats].2, entered[new].2];
        let past = self.here(state, here[0].0, here[0].1).past();
        self.find(state, Rule::Win2, About::Window(comm, nth), &ops, past, || {
            format!(
                "registration #{nth} of {} repeats {} on rank {} ({}), which skips the exchange, \
                 and is {} on rank {} ({}), which waits for it",
                self.comm_name(comm),
                self.buffer_name(&entered[repeats].0),
                here[repeats].0.0,
                self.at(&ops[0]),
                self.buffer_name(&entered[new].0),
                here[new].0.0,
                self.at(&ops[1]),
            )
        });
        for (rank, thread) in here {
            state.rank_mut(*rank).thread_mut(*thread).hang();
        }
        true
    }

    /// Ranks whose captures forbid the registration get an error, and lose what they record.
    fn refused_in_captures(
        &self,
        state: &mut State,
        comm: CommId,
        here: &[(Rank, u32)],
        entered: &[(Arc<Buffer>, WindowFlags, OpRef)],
    ) -> bool {
        let capturing =
            |(rank, thread): &(Rank, u32)| self.here(state, *rank, *thread).registers_in_capture();
        let capturing: Vec<Option<usize>> = here.iter().map(capturing).collect();
        if capturing.iter().all(Option::is_none) {
            return false;
        }
        if let Some(other) = capturing.iter().position(Option::is_none) {
            // It waits for a part of the registration that the others have left.
            Self::undefine(state, entered[other].2);
        }
        for ((rank, thread), graph) in here.iter().zip(capturing) {
            if let Some(graph) = graph {
                self.cx(state, *rank, *thread).invalidate(graph);
            }
            self.cx(state, *rank, *thread).fail(format!("{}.register", self.comm_name_on(*rank, comm)), 1);
            self.cx(state, *rank, *thread).set_up_done(comm, Value::Null);
        }
        true
    }

    fn judge_flags(
        &self,
        state: &mut State,
        comm: CommId,
        nth: u32,
        here: &[(Rank, u32)],
        entered: &[(Arc<Buffer>, WindowFlags, OpRef)],
    ) {
        let Some(other) = entered.iter().position(|e| e.1 != entered[0].1) else { return };
        let ops = [entered[0].2, entered[other].2];
        let past = self.here(state, here[0].0, here[0].1).past();
        self.find(state, Rule::Win6, About::Window(comm, nth), &ops, past, || {
            let flags = |f| match f {
                WindowFlags::Default => "default",
                WindowFlags::CollSymmetric => "symmetric",
            };
            format!(
                "registration #{nth} of {} is {} on rank {} ({}) and {} on rank {} ({})",
                self.comm_name(comm),
                flags(entered[0].1),
                here[0].0.0,
                self.at(&ops[0]),
                flags(entered[other].1),
                here[other].0.0,
                self.at(&ops[1]),
            )
        });
        // The first symmetric window sets up internal memory, which then pairs with the others' window.
        if state.rank(here[0].0).comm(comm).is_some_and(|comm_state| comm_state.windows().rows.is_empty()) {
            Self::undefine(state, ops[0]);
        }
    }

    /// Returns whether the registration fails on this platform.
    fn judge_sizes(
        &self,
        state: &mut State,
        comm: CommId,
        nth: u32,
        here: &[(Rank, u32)],
        entered: &[(Arc<Buffer>, WindowFlags, OpRef)],
    ) -> bool {
        let size = |buffer: &Buffer| buffer.memory_len_bytes.next_multiple_of(GRANULARITY_BYTES);
        let Some(other) = entered.iter().position(|e| size(&e.0) != size(&entered[0].0)) else {
            return false;
        };
        let ops = [entered[0].2, entered[other].2];
        let past = self.here(state, here[0].0, here[0].1).past();
        self.find(state, Rule::Win3, About::Window(comm, nth), &ops, past, || {
            format!(
                "registration #{nth} of {} is {} of {} on rank {} ({}) and {} of {} on rank {} ({})",
                self.comm_name(comm),
                self.buffer_name(&entered[0].0),
                bytes(size(&entered[0].0)),
                here[0].0.0,
                self.at(&ops[0]),
                self.buffer_name(&entered[other].0),
                bytes(size(&entered[other].0)),
                here[other].0.0,
                self.at(&ops[1]),
            )
        });
        self.config.platform.unequal_sizes() == UnequalSizes::Error
    }

    /// The window in which a buffer starts: greatest start, then the last inserted; one look at its end.
    pub(crate) fn lookup<'a>(rank: &'a RankState, comm: CommId, buffer: &Buffer) -> Option<WindowFound<'a>> {
        let windows = rank.comm(comm)?.windows();
        let live = windows.rows.iter().filter(|window| window.live);
        let (window, offset_bytes) = window_of(buffer, live.map(|window| (&window.buffer, window)))?;
        Some(WindowFound { window, offset_bytes })
    }

    /// Of windows with one start, the entry of the last goes from the lookup table, whichever was meant
    /// (`dev_runtime.cc:829-834`).
    fn forget_window(
        &self,
        state: &mut State,
        rank: Rank,
        (comm, nth): (CommId, u32),
        op: OpRef,
        clock: &Clock,
    ) {
        let windows = &mut state.rank_mut(rank).comm_mut(comm).windows_mut().rows;
        let at = windows.iter().position(|w| w.nth == nth && w.live).expect("it is live");
        let gone = windows[at].clone();
        let later = windows[at + 1..].iter().find(|w| w.live && w.starts_with(&gone));
        let later = later.map(|w| (w.nth, w.op));
        if later.is_none() {
            for window in windows.iter_mut().filter(|w| w.starts_with(&gone)) {
                window.dangling = false;
            }
        }
        windows[at].live = false;
        windows[at].dangling = later.is_some();
        if let Some((later, later_op)) = later {
            self.find(state, Rule::Win9, About::Window(comm, nth), &[op, later_op], clock.past(), || {
                format!(
                    "rank {} deregisters window #{nth} of {} ({}) before window #{later}, which starts at the \
                     same address ({}): the lookup table loses the wrong one",
                    rank.0,
                    self.comm_name(comm),
                    self.at(&op),
                    self.at(&later_op),
                )
            });
        }
    }

    /// The memory that the windows of a communicator cover, or that one of them does. Whoever takes a window away
    /// touches it, because a release asks whether one is there.
    pub(crate) fn covered(
        &self,
        state: &State,
        rank: Rank,
        comm: &Operand,
        window: Option<&Operand>,
    ) -> Vec<MemoryId> {
        let Value::Comm(comm) = Self::value(state, rank, comm) else { return Vec::new() };
        let Some(comm_state) = state.rank(rank).comm(comm) else { return Vec::new() };
        let only = window.map(|window| Self::value(state, rank, window));
        let meant = |w: &&Window| w.live && only.as_ref().is_none_or(|of| *of == Value::Window(comm, w.nth));
        let windows = comm_state.windows().rows.iter().filter(meant).map(|w| w.buffer.memory);
        let leftover = comm_state.windows().leftover.iter().filter_map(|leftover| match &leftover.memory {
            Value::Buffer(buffer) if only.is_none() => Some(buffer.memory),
            _ => None,
        });
        windows.chain(leftover).collect()
    }

    /// Windows of any communicator of a rank that cover memory about to go.
    pub(crate) fn covering(state: &State, rank: Rank, memory: MemoryId) -> Option<(CommId, u32, OpRef)> {
        state.rank(rank).comms().find_map(|(comm, comm_state)| {
            let window = comm_state.windows().rows.iter().find(|w| w.live && w.buffer.memory == memory)?;
            (!comm_state.is_destroyed()).then_some((comm, window.nth, window.op))
        })
    }

    /// A registration of memory that was called and has not returned: in an open group, in a rendezvous, or left
    /// over from a group that was discarded.
    pub(crate) fn under_way(&self, state: &State, rank: Rank, memory: MemoryId) -> Option<(CommId, OpRef)> {
        let names = |value: &Value| matches!(value, Value::Buffer(buffer) if buffer.memory == memory);
        let r = state.rank(rank);
        for (at, t) in r.threads().iter().enumerate() {
            let grouped = t.group().calls().iter().find_map(|call| match call {
                GroupCall::Register { comm, memory, op, .. } if names(memory) => Some((*comm, *op)),
                _ => None,
            });
            if grouped.is_some() {
                return grouped;
            }
            // A call that never returns is under way for ever.
            if matches!(t.status(), Status::Waiting(Rendezvous::Setup(..)) | Status::Stuck)
                && let Some(Op::Window(WindowOp::Register { comm, memory, .. })) = t.upcoming().op()
                && let Value::Comm(comm) = Self::value(state, rank, comm)
                && names(&Self::value(state, rank, memory))
            {
                let thread = u32::try_from(at).expect("few threads a rank");
                return Some((comm, self.here(state, rank, thread).op_ref()));
            }
        }
        r.comms().find_map(|(comm, comm_state)| {
            let leftover = comm_state.windows().leftover.iter().find(|leftover| names(&leftover.memory))?;
            (!comm_state.is_destroyed()).then_some((comm, leftover.op))
        })
    }

    /// The name of a buffer in reports.
    pub(crate) fn buffer_name(&self, buffer: &Buffer) -> String {
        buffer.display(self)
    }

    /// The contents of memory in words.
    pub(crate) fn show(&self, content: &crate::term::Content) -> String {
        locked(&self.terms).show(content, &|token| self.name(token))
    }
}

impl Cx<'_> {
    pub(crate) fn register(&mut self, (comm, memory, flags): (&Operand, &Operand, WindowFlags)) {
        let (m, rank, op) = (self.m, self.rank, self.op);
        let Some(comm) = self.usable(comm) else {
            self.fail("register".to_owned(), 4);
            self.discard_group((op, INVALID_ARGUMENT));
            self.done(&[Value::Null]);
            return;
        };
        let costs = self.me_mut().costs_mut();
        if costs.steady {
            costs.registrations += 1;
        } else {
            costs.registrations_warm_up += 1;
        }
        let given = self.here().own_picks();
        if matches!(
            m.decide_fault(self.state, FaultOf::Register, &mut NondetValues { given: &given }),
            Ok(true)
        ) {
            self.state.faults_used += 1;
            self.fail(format!("{}.register", m.comm_name_on(self.rank, comm)), 1);
            self.done(&[Value::Null]);
            return;
        }
        let value = Machine::value(self.state, rank, memory);
        if let Value::Buffer(buffer) = &value {
            self.access(Object::memory(buffer.memory), Access::Read);
            self.judge_extent(memory, op);
            self.judge_freed(buffer, op);
        }
        if let Some((reason, code)) = m.unregistrable(self.state, rank, &value) {
            self.refuse(comm, (reason, code));
            return;
        }
        if self.this().group().is_open() {
            let t = self.this_mut();
            let slot = t.slots().len();
            t.group_mut().add(GroupCall::Register { comm, memory: value, flags, slot, op });
            self.done(&[Value::Null]);
            return;
        }
        self.arrive_setup(comm);
    }

    fn refuse(&mut self, comm: CommId, (reason, code): (&'static str, i32)) {
        let (m, rank, op) = (self.m, self.rank, self.op);
        let past = self.here().past();
        m.find(self.state, Rule::Win5, About::Comm(comm), &[op], past, || {
            format!(
                "rank {} registers memory that is {reason} with {} ({})",
                rank.0,
                m.comm_name(comm),
                m.at(&op)
            )
        });
        let grouped = self.this().group().is_open();
        if grouped && code == UNSHAREABLE {
            // Nobody looks at the memory before the group's registrations run, at its end (measured).
            if self.this().group().registers() {
                Machine::undefine(self.state, op);
            }
            self.discard_group((op, code));
        } else {
            if code != 0 {
                self.fail(format!("{}.register", m.comm_name_on(self.rank, comm)), code);
            }
            // Null and empty ranges are refused before the group is entered (`dev_runtime.cc:1337-1340`).
            if ![NULL, EMPTY].contains(&reason) {
                self.discard_group((op, INVALID_ARGUMENT));
            }
        }
        self.done(&[Value::Null]);
    }

    /// A set-up event is over for one thread.
    fn set_up_done(&mut self, comm: CommId, value: Value) {
        let rank = self.rank;
        let waiting = &mut self.state.rank_mut(rank).comm_mut(comm).windows_mut().leftover;
        let leftover = !waiting.is_empty();
        if leftover {
            waiting.remove(0);
        }
        let t = self.this_mut();
        match t.group().registers_with(comm) {
            // The window of a leftover goes to nobody, and the thread's own registration is still to come.
            false if leftover => self.arrive_setup(comm),
            true if leftover => t.go_on(),
            false => self.done(&[value]),
            true => {
                let slot = t.group_mut().take_registration(comm).expect("it registers");
                t.slots_mut().fill(slot, value);
                t.go_on();
            }
        }
    }

    pub(crate) fn deregister(&mut self, named: &Operand, window: &Operand) {
        let (m, rank, op) = (self.m, self.rank, self.op);
        if let Some(comm) = self.usable(named) {
            for memory in m.covered(self.state, rank, named, Some(window)) {
                self.access(Object::memory(memory), Access::Read);
            }
            match Machine::value(self.state, rank, window) {
                Value::Null => {
                    self.is_still_made(window, "deregisters a window");
                }
                Value::Window(of, nth) if of == comm => {
                    self.deregister_window((comm, nth));
                }
                _ => {
                    let past = self.here().past();
                    m.find(self.state, Rule::Win9, About::Comm(comm), &[op], past, || {
                        format!(
                            "rank {} deregisters from {} what is no window of it ({})",
                            rank.0,
                            m.comm_name(comm),
                            m.at(&op)
                        )
                    });
                    // 2.28.9 looks for it in a table of the communicator and then uses it anyway: a crash (measured).
                    Machine::undefine(self.state, op);
                }
            }
        }
        self.done(&[]);
    }

    fn deregister_window(&mut self, (comm, nth): (CommId, u32)) {
        let (m, rank, thread, op) = (self.m, self.rank, self.thread, self.op);
        let r = self.me();
        let clock = r.thread(thread).clock().clone();
        let windows = r.comm(comm).expect("usable").windows();
        let window = windows.rows.iter().find(|w| w.nth == nth && w.live);
        let Some(window) = window else {
            m.find(self.state, Rule::Win9, About::Window(comm, nth), &[op], clock.past(), || {
                format!(
                    "rank {} deregisters window #{nth} of {} twice ({})",
                    rank.0,
                    m.comm_name(comm),
                    m.at(&op)
                )
            });
            self.fail(format!("{}.deregister", m.comm_name_on(self.rank, comm)), 3);
            return;
        };
        let done = window.unused_for(&clock);
        let queued = r.queued().find_map(|queued| match &queued.work {
            Work::Collective(launch) if launch.comm == comm => {
                let uses = [launch.send_window, launch.recv_window];
                uses.iter().flatten().any(|(of, _)| *of == nth).then_some(launch.op)
            }
            Work::Transfers(launch) if launch.comm == comm => {
                launch.transfers.iter().find(|half| half.window == Some(nth)).map(|half| half.op)
            }
            Work::Kernel(_)
            | Work::Collective(_)
            | Work::Transfers(_)
            | Work::Record(..)
            | Work::Wait(..)
            | Work::Copy { .. }
            | Work::Expect(_)
            | Work::Flag(..)
            | Work::Fresh(_)
            | Work::GiveBack(_) => None,
        });
        if !done || queued.is_some() {
            let ops = [op, queued.unwrap_or(window.op)];
            m.find(self.state, Rule::Win9, About::Window(comm, nth), &ops, clock.past(), || {
                format!(
                    "rank {} deregisters window #{nth} of {} ({}) while a launch may still use it",
                    rank.0,
                    m.comm_name(comm),
                    m.at(&op)
                )
            });
            Machine::undefine(self.state, op);
        }
        m.forget_window(self.state, rank, (comm, nth), op, &clock);
    }
}

/// A size in words.
#[must_use]
pub fn bytes(len: u64) -> String {
    match len {
        _ if len >= 1 << 30 && len.is_multiple_of(1 << 30) => format!("{} GiB", len >> 30),
        _ if len >= 1 << 20 && len.is_multiple_of(1 << 20) => format!("{} MiB", len >> 20),
        _ if len >= 1 << 10 && len.is_multiple_of(1 << 10) => format!("{} KiB", len >> 10),
        _ => format!("{len} B"),
    }
}
