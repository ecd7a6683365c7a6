//! Collectives: launch on one rank, the joint run of all members, and what data results.
//!
//! Every rank chooses its kernel alone, from its own windows. The run is one joint step of all members; what
//! each kernel reads and writes goes through the windows that were paired by order, so a misregistration
//! yields the data that it would yield. Source: `specs/rules/collective.md`, `specs/rules/window.md`.
//! Not here: registration.

use crate::cx::Cx;
use crate::cx::Here;
use crate::describe::{Describe, Description};
use crate::machine::Kind;
use crate::noun::pool::Plan;
use crate::op::{Direction, Show, Verb, WindowFlags};
use crate::order::poll::{NondetValues, Poll};
use crate::program::{Dtype, ReduceOp};
use std::sync::Arc;
use std::sync::atomic::Ordering;

mod data;
mod hand_over;
mod kind;
mod launch;
mod operands;
mod run;

use kind::Share;
pub(crate) use kind::SymmetricKernel;
pub use kind::{CollectiveKind, Connection, Counting, Root};

pub(crate) use self::hand_over::HandedOverParts;
pub(crate) use self::launch::{Call, Launch, Recorded};
pub(crate) use self::operands::DifferentOperands;
use crate::host::value::{Buffer, CommId, Value};
use crate::id::Token;
use crate::judge::finding::{About, OpRef, Rule};
use crate::machine::{InFlight, Machine};
use crate::noun::group::{GroupCall, LaunchedBy};
use crate::noun::launch_order::Issue;
use crate::noun::p2p::Half;
use crate::noun::rendezvous::Rendezvous;
use crate::noun::stream::{Queued, Work};
use crate::noun::window::INVALID_ARGUMENT;
use crate::order::dependence::{Access, Object, ObjectKind};
use crate::platform::{KernelPath, PathQuery};
use crate::program::Operand;
use crate::rank::Rank;
use crate::state::State;

/// One rank's call of a collective.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Collective {
    /// The collective that it is, with its root if it has one.
    pub kind: CollectiveKind,
    /// The communicator whose members meet: what an init or a split produced.
    pub comm: Operand,
    /// Input buffer. Of a broadcast it counts on the root alone.
    pub send: Operand,
    /// Output buffer; equal to `send` for in-place calls. Of a reduce it counts on the root alone.
    pub recv: Operand,
    /// Elements (of one rank's part for all_gather and reduce_scatter).
    pub count: u64,
    /// Type of the elements that `count` counts. NCCL does not compare it among members.
    pub dtype: Dtype,
    /// Reduction; ignored where nothing is reduced.
    pub op: ReduceOp,
    /// Stream it is launched on.
    pub stream: Token,
    /// The author declared `symmetric = True`: a fallback to the ordinary path is then a finding.
    pub declared: Declared,
}

impl Describe for Collective {
    fn describe(&self, to: &mut Description<'_>) {
        let Self { kind, comm, send, recv, count, dtype, op, stream, declared } = self;
        to.word("Collect(");
        to.call(
            "Collective",
            &[
                ("kind", kind),
                ("comm", comm),
                ("send", send),
                ("recv", recv),
                ("count", count),
                ("dtype", dtype),
                ("op", op),
                ("stream", stream),
                ("declared", declared),
            ],
        );
        to.word(")");
    }
}

impl Verb for Collective {
    fn slots(&self) -> u32 {
        0
    }

    fn kind(&self) -> Kind {
        Kind::Alike
    }

    fn display(&self, show: &Show<'_>) -> String {
        match self.declared {
            Declared::Barrier => format!("{}.barrier()", show.operand(&self.comm)),
            Declared::Nothing | Declared::Symmetric => {
                format!("{}.{}({})", show.operand(&self.comm), self.kind.name(), show.operand(&self.send))
            }
        }
    }

    fn stream(&self) -> Option<Token> {
        Some(self.stream)
    }

    fn buffers(&self) -> Vec<&Operand> {
        vec![&self.send, &self.recv]
    }

    fn seen_by_others(&self) -> bool {
        true
    }

    fn footprint(&self, here: Here<'_>, each: &mut dyn FnMut(Object, Access)) {
        here.comm_of(&self.comm, Access::Call, each);
    }

    fn ready(&self, here: Here<'_>, nondet: &mut NondetValues<'_>) -> Poll {
        let Here { m, state, rank, .. } = here;
        let value = |operand: &Operand| Machine::value(state, rank, operand);
        // Every poll of every collective comes by here.
        if !self.kind.is_made_of_transfers() {
            if m.config.in_flight == InFlight::Nothing {
                return Poll::RUN;
            }
            let Value::Comm(comm) = value(&self.comm) else { return Poll::RUN };
            let decided = m.decide_hand_over(here, (comm, &Call::from(self)), nondet);
            return decided.err().unwrap_or(Poll::RUN);
        }
        let (Value::Comm(comm), true) = (value(&self.comm), !here.this().group().is_open()) else {
            return Poll::RUN;
        };
        if m.invalid_argument(comm, self).is_some() {
            return Poll::RUN;
        }
        let (send, recv) = match m.counting(rank, comm, self.kind) {
            Counting::Both => (value(&self.send), value(&self.recv)),
            Counting::Send => (value(&self.send), value(&self.send)),
            Counting::Recv => (value(&self.recv), value(&self.recv)),
        };
        let (Value::Buffer(send), Value::Buffer(recv)) = (send, recv) else { return Poll::RUN };
        match m.halves((rank, here.op_ref()), (comm, &Call::from(self)), (&send, &recv)) {
            None => Poll::RUN,
            Some(halves) => {
                let called = |half| (comm, self.stream, Arc::new(half));
                here.poll_together(&halves.into_iter().map(called).collect::<Vec<_>>(), nondet)
            }
        }
    }

    fn apply(&self, cx: &mut Cx<'_>, _: Plan) {
        cx.collect(self);
    }
}

/// What the author said about the kernel path of a collective.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Declared {
    /// Nothing: any path will do.
    Nothing,
    /// A symmetric kernel, by `symmetric = True`: WIN-8 is broken where the ordinary path is taken.
    Symmetric,
    /// That it is a barrier, which a library carries out by a collective: it is called so, and is otherwise no other.
    Barrier,
}

impl Describe for Declared {
    fn describe(&self, to: &mut Description<'_>) {
        to.word(match self {
            Self::Nothing => "Nothing",
            Self::Symmetric => "Symmetric",
            Self::Barrier => "Barrier",
        });
    }
}

impl Launch {
    /// Bytes that a rank's input and output need.
    fn needs(call: &Call, members: usize, counting: Counting) -> (u64, u64) {
        call.kind.needs(call.len_bytes(), members, counting)
    }

    /// Larger is launched earlier out of a group, within the precision of NCCL's sorter
    /// (`include/comm.h:361-409`): four steps for each power of two.
    pub(crate) fn size_step(&self, members: usize) -> u64 {
        const UNIT_LOG2: u32 = 10;
        const MAX_LOG2: u32 = 30;
        let units =
            self.part_bytes().saturating_mul(self.call.kind.weight(members as u64)).min(1 << MAX_LOG2)
                >> UNIT_LOG2;
        match units {
            0..4 => units,
            _ => {
                let log2 = units.ilog2();
                (u64::from(log2) << 2) | ((units >> (log2 - 2)) & 3)
            }
        }
    }

    fn part_bytes(&self) -> u64 {
        self.call.len_bytes()
    }

    /// Whether input and output lie in windows. Members without the one are compared by the other.
    fn registered(&self) -> (bool, bool) {
        let (send, recv) = (self.send_window.is_some(), self.recv_window.is_some());
        match self.call.kind.root() {
            Root::None => (send, recv),
            Root::From(_) => (recv, recv),
            Root::To(_) => (send, send),
        }
    }
}

/// Why a call is invalid whose element type names none.
pub(super) const UNKNOWN_DTYPE: &str = "an element type that NCCL does not know";

impl Machine {
    /// What NCCL answers with an error before it looks at anything else (`v2.28.9:argcheck.cc`).
    fn invalid_argument(&self, comm: CommId, call: &Collective) -> Option<String> {
        if let Root::From(root) | Root::To(root) = call.kind.root() {
            let members = self.members(comm).len();
            // A recorded call that failed is not there, and a root may not be known.
            if root as usize >= members && !self.source.hides_order() {
                let (root, last) = (root.cast_signed(), members - 1);
                return Some(format!("root {root}, and {} has ranks 0 to {last}", self.comm_name(comm)));
            }
        }
        if call.dtype == Dtype::Invalid {
            return Some(UNKNOWN_DTYPE.to_owned());
        }
        let unknown = call.kind.reduces() && call.op == ReduceOp::Invalid;
        unknown.then(|| "a reduction that NCCL does not know".to_owned())
    }

    pub(crate) fn counting(&self, rank: Rank, comm: CommId, kind: CollectiveKind) -> Counting {
        kind.counting(|root| self.members(comm).get(root as usize) == Some(&rank))
    }

    /// The launch as it would be made now: windows are looked up at the call, or at the end of the group.
    pub(crate) fn relaunch(&self, state: &State, rank: Rank, launch: Launch) -> Launch {
        let r = state.rank(rank);
        let look = |buffer: &Buffer| {
            Self::lookup(r, launch.comm, buffer)
                .filter(|found| found.window.flags() == WindowFlags::CollSymmetric)
                .map(|found| (found.window.nth(), found.offset_bytes))
        };
        let send_window = look(&launch.send);
        let recv_window = look(&launch.recv);
        let path = self.config.platform.kernel_path(&PathQuery {
            kind: launch.call.kind,
            op: launch.call.op,
            dtype: launch.call.dtype,
            len_bytes: launch.part_bytes(),
            ranks: state.rank(rank).comm(launch.comm).map_or(0, |comm_state| comm_state.size()),
            send_registered: send_window.is_some(),
            recv_registered: recv_window.is_some(),
        });
        Launch { send_window, recv_window, path, ..launch }
    }

    /// The transfers that NCCL makes of a call of a rank; none if it is a kernel.
    fn halves(
        &self,
        (rank, op): (Rank, OpRef),
        (comm, call): (CommId, &Call),
        (send, recv): (&Buffer, &Buffer),
    ) -> Option<Vec<Half>> {
        if !call.kind.is_made_of_transfers() {
            return None;
        }
        let members = self.members(comm);
        let me = members.iter().position(|member| *member == rank)?;
        let shares = call.kind.shares(me, members.len());
        let len_bytes = call.len_bytes();
        let half = |share: &Share| {
            let whole = match share.direction {
                Direction::Send => send,
                Direction::Recv => recv,
            };
            let offset_bytes = whole.offset_bytes.saturating_add(share.part.saturating_mul(len_bytes));
            let buffer = Arc::new(Buffer { offset_bytes, len_bytes, ..whole.clone() });
            let (peer, count, dtype) = (members[share.peer], call.count, call.dtype);
            let half = Half::new((share.direction, peer), (buffer, count, dtype), op);
            Half { part_of: Some(call.kind), ..half }
        };
        Some(shares.iter().map(half).collect())
    }

    /// Launches of a rank on a communicator so far.
    pub(crate) fn launched(&self, state: &State, rank: Rank, comm: CommId) -> u32 {
        state.rank(rank).comm(comm).map_or(0, |comm_state| comm_state.launched())
    }

    /// The call in the spec's own names.
    pub(crate) fn call_name(&self, launch: &Launch) -> String {
        let comm = self.comm_name_on(launch.op.rank, launch.comm);
        if launch.call.declared == Declared::Barrier {
            return format!("{comm}.barrier()");
        }
        format!("{comm}.{}({})", launch.call.kind.name(), self.buffer_name(&launch.send))
    }
}

impl Cx<'_> {
    pub(crate) fn collect(&mut self, call: &Collective) {
        let (m, rank, op) = (self.m, self.rank, self.op);
        let Some(comm) = self.usable(&call.comm) else {
            self.fail(call.kind.name().to_owned(), 4);
            self.discard_group((op, INVALID_ARGUMENT));
            self.done(&[]);
            return;
        };
        if let Some(why) = m.invalid_argument(comm, call) {
            let called = format!("{}.{}", m.comm_name_on(rank, comm), call.kind.name());
            self.judge_argument(comm, &called, &why);
            self.fail(called, INVALID_ARGUMENT);
            self.discard_group((op, INVALID_ARGUMENT));
            self.done(&[]);
            return;
        }
        let counting = m.counting(rank, comm, call.kind);
        let first = if counting == Counting::Recv { &call.recv } else { &call.send };
        let first = self.given(first, op);
        let recv = match &first {
            Some(first) if counting != Counting::Both || call.recv == call.send => Some(Arc::clone(first)),
            _ => self.given(&call.recv, op),
        };
        let (Some(send), Some(recv)) = (first, recv) else {
            self.fail(format!("{}.{}", m.comm_name_on(self.rank, comm), call.kind.name()), 4);
            self.discard_group((op, INVALID_ARGUMENT));
            self.done(&[]);
            return;
        };
        let call = Call::from(call);
        if m.config.in_flight == InFlight::OfPlatform {
            let given = self.here().own_picks();
            let decided = m.decide_hand_over(self.here(), (comm, &call), &mut NondetValues { given: &given });
            if let Ok(Some(holds_all)) = decided {
                self.state.decide_transit(Some(holds_all), None);
                // Decided for good: the launch may have to meet other ranks, and then comes here again.
                self.this_mut().forget_picks();
            }
        }
        let (send_bytes, recv_bytes) = Launch::needs(
            &call,
            self.state.rank(rank).comm(comm).map_or(0, |comm_state| comm_state.size()),
            counting,
        );
        let send = self.long_enough((send, send_bytes));
        let recv = self.long_enough((recv, recv_bytes));
        // Without elements the call is dropped on this rank alone (`enqueue.cc:3024`).
        if call.count == 0 {
            self.done(&[]);
            return;
        }
        if self.refuse_stream((comm, call.stream), call.kind.name()) {
            self.done(&[]);
            return;
        }
        if let Some(halves) = self.halves((comm, &call), (&send, &recv)) {
            // It is entered once more after each pair that it connects.
            if self.this().taken() == 1 {
                self.count_collective();
            }
            self.transfer_together((comm, call.stream), halves);
            return;
        }
        let launch = Launch {
            call,
            comm,
            family: self.me().family(comm),
            nth: 0,
            written: 0,
            sequence: 0,
            issue: Issue::default(),
            send,
            recv,
            send_window: None,
            recv_window: None,
            path: KernelPath::Ordinary,
            companions: false,
            recorded: Recorded::No,
            op,
        };
        self.judge_overlap(&launch, counting);
        if self.this().group().is_open() {
            self.this_mut().group_mut().add(GroupCall::Launch { comm, launch: Arc::new(launch) });
            self.done(&[]);
            return;
        }
        self.access(Object::named(ObjectKind::Stream, call.stream), Access::Write);
        let written = m.launch_position(self.state, rank, comm, call.stream);
        let launch = Launch { written, ..m.relaunch(self.state, rank, launch) };
        let cold = self.state.rank(rank).comm(comm).is_some_and(|comm_state| !comm_state.is_connected());
        if cold && launch.path == KernelPath::Ordinary {
            self.arrive(Rendezvous::Connect(comm, call.kind.connection()));
            return;
        }
        self.enqueue_launch(launch, call.stream);
        self.done(&[]);
    }

    /// A kernel may write its output while others still read their inputs out of the same bytes, unless the one lies in the
    /// other just as it does in place.
    fn judge_overlap(&mut self, launch: &Launch, counting: Counting) {
        let Launch { call, comm, send, recv, op, .. } = launch;
        // One buffer is given for both: every rank's part lies where it belongs.
        if counting != Counting::Both || send == recv || send.memory != recv.memory {
            return;
        }
        let (m, rank) = (self.m, self.rank);
        let members = m.members(*comm);
        let me = members.iter().position(|member| *member == rank).expect("who calls it is a member");
        let at = (send.offset_bytes, recv.offset_bytes);
        if !call.kind.overlaps(call.len_bytes(), (me, members.len()), at) {
            return;
        }
        let past = self.here().past();
        m.find(self.state, Rule::Mem2, About::Memory(rank, recv.memory), &[*op], past, || {
            format!(
                "rank {} runs {} with an output that shares bytes with its input and is not in place ({}): what is still to be read \
                 may be written first",
                rank.0,
                m.call_name(launch),
                m.at(op)
            )
        });
        Machine::undefine(self.state, *op);
    }

    /// The transfers that NCCL makes of this call; none if it is a kernel.
    fn halves(
        &self,
        (comm, call): (CommId, &Call),
        (send, recv): (&Arc<Buffer>, &Arc<Buffer>),
    ) -> Option<Vec<Half>> {
        self.m.halves((self.rank, self.op), (comm, call), (send, recv))
    }

    /// A buffer that an operation was given; null and freed ones are findings.
    pub(crate) fn given(&mut self, operand: &Operand, op: OpRef) -> Option<Arc<Buffer>> {
        let (m, rank) = (self.m, self.rank);
        let Value::Buffer(buffer) = Machine::value(self.state, rank, operand) else {
            let past = self.here().past();
            m.find(self.state, Rule::Mem4, About::Rank(rank), &[op], past, || {
                format!("rank {} passes a null buffer ({})", rank.0, m.at(&op))
            });
            return None;
        };
        self.access(Object::memory(buffer.memory), Access::Read);
        self.judge_extent(operand, op);
        if buffer.through.is_some() {
            let clock = self.this().clock().clone();
            m.judge_closed(self.state, rank, &buffer, op, &clock);
        } else {
            self.judge_freed(&buffer, op);
        }
        Some(buffer)
    }

    /// A slice must end inside what it is cut from. NCCL and CUDA do not know where that ends.
    pub(crate) fn judge_extent(&mut self, operand: &Operand, op: OpRef) {
        let (m, rank) = (self.m, self.rank);
        let Operand::Slice { of, offset_bytes, len_bytes } = operand else { return };
        let Value::Buffer(whole) = Machine::value(self.state, rank, of) else { return };
        let end = offset_bytes.saturating_add(*len_bytes);
        if end <= whole.len_bytes {
            return;
        }
        let past = self.here().past();
        m.find(self.state, Rule::Mem4, About::Memory(rank, whole.memory), &[op], past, || {
            let (name, len) = (m.buffer_name(&whole), whole.len_bytes);
            format!("rank {} passes {name} up to byte {end}, and it has {len} ({})", rank.0, m.at(&op))
        });
        Machine::undefine(self.state, op);
    }

    /// Memory that is used must not have been freed.
    pub(crate) fn judge_freed(&mut self, buffer: &Buffer, op: OpRef) {
        let (m, rank) = (self.m, self.rank);
        let r = self.me();
        let gone = r.is_gone(buffer.memory);
        if gone || buffer.block.is_some_and(|block| !r.is_live(block)) {
            // A free block is nobody's: what is done to it is seen where the pool hands it out again.
            let harmless = !gone && r.new_owner(buffer).is_none();
            let past = self.here().past();
            let freed = r.memory(buffer.memory).and_then(|memory| memory.freed_by());
            m.find(self.state, Rule::Mem1, About::Memory(rank, buffer.memory), &[op], past, || {
                let freed = m.and_where("freed", freed);
                let name = m.buffer_name(buffer);
                format!("rank {} uses {name} after freeing it ({}){freed}", rank.0, m.at(&op))
            });
            if !harmless {
                Machine::undefine(self.state, op);
            }
        }
    }

    /// The buffer cut to what the call needs; a finding if it is shorter.
    pub(crate) fn long_enough(&mut self, (mut buffer, needed): (Arc<Buffer>, u64)) -> Arc<Buffer> {
        let (m, rank, op) = (self.m, self.rank, self.op);
        if buffer.len_bytes < needed {
            let past = self.here().past();
            m.find(self.state, Rule::Mem4, About::Memory(rank, buffer.memory), &[op], past, || {
                format!(
                    "rank {} passes {} of {} where {} are needed ({})",
                    rank.0,
                    m.buffer_name(&buffer),
                    crate::noun::window::bytes(buffer.len_bytes),
                    crate::noun::window::bytes(needed),
                    m.at(&op)
                )
            });
            Machine::undefine(self.state, op);
        } else if buffer.len_bytes > needed {
            Arc::make_mut(&mut buffer).len_bytes = needed;
        }
        buffer
    }

    pub(crate) fn enqueue_launch(&mut self, launch: Launch, stream: Token) {
        self.judge_windows_of(&launch);
        self.issue_launch(launch, stream, None);
    }

    /// Numbers a launch among those of the rank and of the communicator, unless it is only recorded.
    pub(crate) fn issue_launch(&mut self, mut launch: Launch, stream: Token, replay: Option<OpRef>) {
        let (m, rank) = (self.m, self.rank);
        let op = launch.op;
        let issue = self.this().clock().clone();
        if let Some(graph) = m.records(self.state, rank, stream) {
            launch.recorded = Recorded::By(graph);
            let work = Work::Collective(Arc::new(launch));
            m.enqueue(self.state, rank, stream, Queued { work, issue, op, replay });
            return;
        }
        if launch.call.kind.root() != Root::None {
            m.may_let_go.store(true, Ordering::Relaxed);
        }
        let by = if replay.is_some() { LaunchedBy::Graph } else { LaunchedBy::Call };
        (launch.sequence, launch.issue) = self.next_launch((launch.comm, op), by);
        self.count_collective();
        let comm_state = self.state.rank_mut(rank).comm_mut(launch.comm);
        launch.nth = comm_state.launch();
        let work = Work::Collective(Arc::new(launch));
        m.enqueue(self.state, rank, stream, Queued { work, issue, op, replay });
    }

    /// Counts a collective of the program that a rank executes.
    fn count_collective(&mut self) {
        let r = self.me_mut();
        r.executed_mut().collectives += 1;
        let costs = r.costs_mut();
        costs.collectives += u32::from(costs.steady);
    }

    /// Judges the windows that a launch found on its own rank: stale ones, and ranges that leave them.
    fn judge_windows_of(&mut self, launch: &Launch) {
        let (m, rank) = (self.m, self.rank);
        if (launch.send_window, launch.recv_window) == (None, None) {
            return;
        }
        let clock = self.this().clock().clone();
        let members = self.state.rank(rank).comm(launch.comm).expect("a launch has a communicator").size();
        let counting = m.counting(rank, launch.comm, launch.call.kind);
        let (send_bytes, recv_bytes) = Launch::needs(&launch.call, members, counting);
        for (buffer, found, needed) in
            [(&launch.send, launch.send_window, send_bytes), (&launch.recv, launch.recv_window, recv_bytes)]
        {
            let Some((nth, offset)) = found else { continue };
            let comm_state = self.state.rank(rank).comm(launch.comm).expect("a launch has a communicator");
            let window = comm_state.window(nth).expect("just found");
            let (window_op, window_len) = (window.op(), window.buffer().len_bytes);
            let stale = window.buffer().memory != buffer.memory;
            // The lookup table names a window that is gone.
            if comm_state.windows().dangles_at(window) {
                Machine::undefine(self.state, launch.op);
            }
            let ops = [launch.op, window_op];
            if stale {
                m.find(self.state, Rule::Win12, About::Window(launch.comm, nth), &ops, clock.past(), || {
                    format!(
                        "rank {} runs {} on {} through window #{nth} of {}, registered at {} for memory that \
                         was freed: the address came back, the window did not",
                        rank.0,
                        m.call_name(launch),
                        m.buffer_name(buffer),
                        m.comm_name(launch.comm),
                        m.at(&window_op),
                    )
                });
            }
            if offset.saturating_add(needed) > window_len {
                m.find(self.state, Rule::Win10, About::Window(launch.comm, nth), &ops, clock.past(), || {
                    format!(
                        "rank {} runs {} on {} past the end of window #{nth} of {} ({})",
                        rank.0,
                        m.call_name(launch),
                        m.buffer_name(buffer),
                        m.comm_name(launch.comm),
                        m.at(&launch.op),
                    )
                });
            }
        }
    }
}
