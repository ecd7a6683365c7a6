//! An operation: the sum of what the nouns can do, and what each of them must say about it.
//! Not here: what operations mean, which stands with each noun (`crate::noun`).

use std::sync::Arc;

use crate::cx::{Cx, Here};
use crate::describe::{Describe, Description};
use crate::id::Token;
use crate::judge::deadlock::Awaits;
use crate::judge::finding::{About, Rule};
use crate::machine::Kind;
use crate::noun::pool::Plan;
use crate::order::dependence::{Access, Object};
use crate::order::poll::{NondetValues, Poll};
use crate::program::Operand;
use crate::rank::Rank;

pub use crate::noun::barrier::BarrierOp;
pub use crate::noun::collective::{Collective, CollectiveKind, Connection, Counting, Declared, Root};
pub use crate::noun::comm::{CommOp, Resources};
pub use crate::noun::container::{ListOp, MapOp, MapOrder};
pub use crate::noun::event::EventOp;
pub use crate::noun::exchange::ExchangeOp;
pub use crate::noun::flag::{FlagAct, FlagOp, Test};
pub use crate::noun::graph::{CaptureMode, GraphOp};
pub use crate::noun::group::GroupOp;
pub use crate::noun::ipc::IpcOp;
pub use crate::noun::memory::{DataOrigin, HandleKind, Made, MemoryKind, MemoryOp};
pub use crate::noun::mutex::MutexOp;
pub use crate::noun::overlap::OverlapOp;
pub use crate::noun::p2p::{Direction, Transfer};
pub use crate::noun::parting::Parting;
pub use crate::noun::pool::{PoolOp, Release, SizeClasses, TieBreak};
pub use crate::noun::store::StoreOp;
pub use crate::noun::stream::StreamOp;
pub use crate::noun::thread::ThreadOp;
pub use crate::noun::window::{WindowFlags, WindowOp};

/// One operation of a host thread. The comment of each says which slots it produces, if any.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Op {
    /// A step, start, join or exit of a host thread.
    Thread(ThreadOp),
    /// An init, split, finalize or destroy of a communicator.
    Comm(CommOp),
    /// A registration of a window, or its end.
    Window(WindowOp),
    /// The start or end of a group of NCCL calls.
    Group(GroupOp),
    /// A call of a collective: one of its members.
    Collective(Arc<Collective>),
    /// Half of a point-to-point transfer.
    Transfer(Arc<Transfer>),
    /// A declaration about two launches.
    Overlap(OverlapOp),
    /// A kernel, a wait of a stream, or a synchronize.
    Stream(StreamOp),
    /// A record of an event.
    Event(EventOp),
    /// A capture, replay or destroy of a CUDA graph.
    Graph(GraphOp),
    /// An allocation, a free, a copy, or what is expected of a content.
    Memory(MemoryOp),
    /// An operation of a caching pool.
    Pool(PoolOp),
    /// An export, open or close of memory of other ranks, by IPC handles.
    Ipc(IpcOp),
    /// An exchange of handles.
    Exchange(ExchangeOp),
    /// A barrier or a vote of host processes.
    Barrier(BarrierOp),
    /// A lock or unlock of a mutex.
    Mutex(MutexOp),
    /// A set, get or delete of a key of the store.
    Store(StoreOp),
    /// A wait for, or a write of, a flag.
    Flag(FlagOp),
    /// An operation on a map of the rank.
    Map(MapOp),
    /// An operation on a list of the rank.
    List(ListOp),
}

/// What is asked about an operation. Each noun answers for its own; [`Op::verb`] is the one place that tells them
/// apart.
pub(crate) trait Verb: Describe {
    /// How many slots it produces.
    fn slots(&self) -> u32;

    /// What it is to somebody who reads a run.
    fn kind(&self) -> Kind;

    /// The operation in the spec's own names: `tp.register(x)`.
    fn display(&self, show: &Show<'_>) -> String;

    /// What it is called where it returned an error.
    fn call_name(&self, here: Here<'_>) -> String {
        here.show(&mut |show| self.display(show))
    }

    /// The stream on which it launches something, if it does.
    fn stream(&self) -> Option<Token> {
        None
    }

    /// The memory that it works on, as far as it is named.
    fn buffers(&self) -> Vec<&Operand> {
        Vec::new()
    }

    /// Whether other ranks can see it. A rank that dies does so before such an operation; in between nobody can
    /// tell.
    fn seen_by_others(&self) -> bool {
        false
    }

    /// Whether it is a call that captures forbid to some threads (`cudaStreamCaptureMode`).
    fn unsafe_in_capture(&self) -> bool {
        false
    }

    /// The graph whose capture refuses it now, and the error that it returns.
    fn refused_by(&self, here: Here<'_>) -> Option<(usize, i32)> {
        let _ = here;
        None
    }

    /// Whether it meets the other ranks before a capture refuses it.
    fn met_before(&self, here: Here<'_>) -> bool {
        let _ = here;
        false
    }

    /// Whether a capture records it now.
    fn recorded(&self, here: Here<'_>) -> bool {
        self.stream().is_some_and(|stream| here.records_on(stream))
    }

    /// The objects that it may touch, and how: at least every [`Cx::access`] of [`Verb::apply`], which asserts it.
    /// Left out are the stream and the memory that [`Verb::stream`] and [`Verb::buffers`] name, and captures.
    fn footprint(&self, here: Here<'_>, each: &mut dyn FnMut(Object, Access)) {
        let _ = (here, each);
    }

    /// Whether it can run, has to wait, or needs a value.
    fn ready(&self, here: Here<'_>, nondet: &mut NondetValues<'_>) -> Poll {
        let _ = (here, nondet);
        Poll::RUN
    }

    /// Whether what it waits for is shared by the ranks, so that it is looked at again when that changes.
    fn watches(&self) -> bool {
        false
    }

    /// Whether it changes what others may watch.
    fn wakes(&self) -> bool {
        false
    }

    /// Whether it waits for work of the device.
    fn waits_for_device(&self) -> bool {
        false
    }

    /// Where it waits that is not [`Verb::ready`] and never will be: the rule, and what it is about.
    fn blocked_on(&self, here: Here<'_>) -> (Rule, Option<About>) {
        let _ = here;
        (Rule::Coll1, None)
    }

    /// For whom it waits then.
    fn waits_for(&self, here: Here<'_>) -> Awaits {
        let _ = here;
        Awaits::Nobody
    }

    /// Runs it, as [`Verb::ready`] decided.
    fn apply(&self, cx: &mut Cx<'_>, plan: Plan);
}

/// What names and operands are called at a moment of a run.
pub(crate) struct Show<'a> {
    pub(crate) token: &'a dyn Fn(Token) -> Arc<str>,
    pub(crate) operand: &'a dyn Fn(&Operand) -> String,
}

impl Show<'_> {
    pub(crate) fn name(&self, token: Token) -> Arc<str> {
        (self.token)(token)
    }

    pub(crate) fn operand(&self, operand: &Operand) -> String {
        (self.operand)(operand)
    }
}

impl Op {
    /// The noun's part of it.
    pub(crate) fn verb(&self) -> &dyn Verb {
        match self {
            Self::Thread(op) => op,
            Self::Comm(op) => op,
            Self::Window(op) => op,
            Self::Group(op) => op,
            Self::Collective(op) => &**op,
            Self::Transfer(op) => &**op,
            Self::Overlap(op) => op,
            Self::Stream(op) => op,
            Self::Event(op) => op,
            Self::Graph(op) => op,
            Self::Memory(op) => op,
            Self::Pool(op) => op,
            Self::Ipc(op) => op,
            Self::Exchange(op) => op,
            Self::Barrier(op) => op,
            Self::Mutex(op) => op,
            Self::Store(op) => op,
            Self::Flag(op) => op,
            Self::Map(op) => op,
            Self::List(op) => op,
        }
    }

    /// Whether a rule is about the operation, and it is none of those that [`Executed`](crate::machine::Executed) counts
    /// by their kind, nor what only makes or ends the objects of others.
    pub(crate) fn judged_otherwise(&self) -> bool {
        matches!(
            self,
            Self::Barrier(_)
                | Self::Mutex(_)
                | Self::Store(_)
                | Self::Flag(_)
                | Self::Stream(StreamOp::Kernel { .. })
                | Self::Memory(
                    MemoryOp::Copy { .. }
                        | MemoryOp::Free { .. }
                        | MemoryOp::FreeOn { .. }
                        | MemoryOp::Release { .. }
                )
                | Self::List(ListOp::Get { .. } | ListOp::Set { .. } | ListOp::Pop { .. })
        )
    }

    /// Whether the operation is one of those that a verdict is about, or starts a thread that may do some.
    #[must_use]
    pub fn acts(&self) -> bool {
        self.judged_otherwise()
            || matches!(
                self,
                Self::Collective(_)
                    | Self::Transfer(_)
                    | Self::Window(WindowOp::Register { .. })
                    | Self::Ipc(IpcOp::Open { .. })
                    | Self::Exchange(_)
                    | Self::Graph(GraphOp::Replay { .. })
                    | Self::Thread(ThreadOp::Spawn { .. })
            )
    }

    /// Whether a rank may do it: only members come to what a list of ranks meets in.
    #[must_use]
    pub fn admits(&self, rank: Rank) -> bool {
        let (Self::Comm(CommOp::Init { members, .. })
        | Self::Barrier(BarrierOp::Enter { members } | BarrierOp::AllAgree { members, .. })
        | Self::Exchange(ExchangeOp { members, .. })) = self
        else {
            return true;
        };
        members.contains(&rank)
    }

    /// Whether other ranks can see it.
    #[must_use]
    pub fn seen_by_others(&self) -> bool {
        self.verb().seen_by_others()
    }

    /// How many slots the operation produces.
    #[must_use]
    pub fn slots(&self) -> u32 {
        self.verb().slots()
    }

    /// Whether both make one kind of thing, so that whoever uses what the one makes can use what the other makes.
    #[must_use]
    pub fn makes_what_is_made_by(&self, other: &Self) -> bool {
        use std::mem::discriminant as kind;
        match (self, other) {
            (Self::Thread(one), Self::Thread(other)) => kind(one) == kind(other),
            (Self::Comm(one), Self::Comm(other)) => kind(one) == kind(other),
            (Self::Window(one), Self::Window(other)) => kind(one) == kind(other),
            (Self::Memory(one), Self::Memory(other)) => kind(one) == kind(other),
            (Self::Pool(one), Self::Pool(other)) => kind(one) == kind(other),
            (Self::Ipc(one), Self::Ipc(other)) => kind(one) == kind(other),
            (Self::Barrier(one), Self::Barrier(other)) => kind(one) == kind(other),
            (Self::Store(one), Self::Store(other)) => kind(one) == kind(other),
            (Self::Map(one), Self::Map(other)) => kind(one) == kind(other),
            (Self::List(one), Self::List(other)) => kind(one) == kind(other),
            _ => kind(self) == kind(other),
        }
    }

    /// Whether both allocate, and the same but for the name.
    #[must_use]
    pub fn is_but_for_its_name(&self, other: &Self) -> bool {
        match (self, other) {
            (
                Self::Memory(MemoryOp::Alloc { name: _, len_bytes, memory }),
                Self::Memory(MemoryOp::Alloc { name: _, len_bytes: len_of_other, memory: memory_of_other }),
            ) => (len_bytes, memory) == (len_of_other, memory_of_other),
            (
                Self::Pool(PoolOp::Alloc { name: _, pool, len_bytes, stream }),
                Self::Pool(PoolOp::Alloc { name: _, pool: of_other, len_bytes: len, stream: on }),
            ) => (pool, len_bytes, stream) == (of_other, len, on),
            _ => false,
        }
    }

    /// The operation in the spec's own names: `tp.register(x)`. `token` says what a name is called, `operand` what
    /// an operand is at that moment.
    #[must_use]
    pub fn display(&self, token: &dyn Fn(Token) -> Arc<str>, operand: &dyn Fn(&Operand) -> String) -> String {
        self.verb().display(&Show { token, operand })
    }

    /// The stream on which the operation launches something, if it does.
    #[must_use]
    pub fn stream(&self) -> Option<Token> {
        self.verb().stream()
    }

    /// The memory that the operation works on, as far as it is named.
    #[must_use]
    pub fn buffers(&self) -> Vec<&Operand> {
        self.verb().buffers()
    }
}

impl Describe for Op {
    fn describe(&self, to: &mut Description<'_>) {
        self.verb().describe(to);
    }
}
