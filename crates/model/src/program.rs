//! A program: what each rank does, as a tree of operation lists whose edges are answers.
//!
//! A [`Source`] is evaluated without side effects: given the answers that a thread has received so far it
//! returns the next [`Stretch`] of operations, which ends either with the thread's end or with a
//! [`Question`]. Results of operations are named by *slots*; using a slot as an operand asks nothing.
//! Not here: what an operation means ([`crate::machine`]) or where programs come from.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::rank::{Entry, PlaceId, Rank, Token};

/// An answer to a [`Question`]: a boolean (0 or 1), an index into the options, or a small count.
pub type Answer = u32;

/// Where an operation was written.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Place {
    /// File as the user named it.
    pub file: Arc<str>,
    /// Line, from 1; 0 where none is known.
    pub line: u32,
    /// Column, from 1.
    pub column: u32,
    /// Where that stands in a library: the line of the program that called it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub called_at: Option<Line>,
}

/// A line of a file.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Line {
    /// File as the user named it.
    pub file: Arc<str>,
    /// From 1; 0 where none is known.
    pub line: u32,
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let file = self.file.rsplit('/').next().unwrap_or(&self.file);
        match self.line {
            0 => f.write_str(file),
            line => write!(f, "{file}:{line}"),
        }
    }
}

/// The name of the file, and the line where one is known; for a library also who called it.
impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", Line { file: Arc::clone(&self.file), line: self.line })?;
        self.called_at.as_ref().map_or(Ok(()), |line| write!(f, " from {line}"))
    }
}

/// Names the result of an operation or of a question of one thread of the same rank.
///
/// Slots of a thread are numbered from 0 in the order in which the operations that produce one were
/// recorded. A question may produce several (see [`Question::slots`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Slot {
    /// Where the thread started whose operation produces the value; an entry is started once a rank.
    pub entry: Entry,
    /// Position among the slots of that thread.
    pub index: u32,
}

/// What an operation works on: a constant, a slot, or something derived from one without asking.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Operand {
    /// The null pointer, Python's `None`.
    Null,
    /// A number known when the program was written or answered.
    Int(i64),
    /// A token, for example a value put into a store.
    Token(Token),
    /// A truth value.
    Bool(bool),
    /// The result of an earlier operation.
    Slot(Slot),
    /// `len_bytes` bytes of a buffer or segment, from `offset_bytes` on.
    Slice {
        /// The buffer or segment.
        of: Arc<Operand>,
        /// From its start.
        offset_bytes: u64,
        /// Length.
        len_bytes: u64,
    },
    /// The segment in which a buffer lies.
    Segment(Arc<Operand>),
    /// The address of a buffer, segment, communicator: an opaque value with equality.
    Address(Arc<Operand>),
    /// The bytes of a mapping of a peer's allocation at which a buffer of this rank lies in its own.
    At {
        /// The mapping, or a buffer.
        of: Arc<Operand>,
        /// The buffer of this rank.
        like: Arc<Operand>,
    },
    /// Several values as one, for keys.
    Tuple(Arc<[Operand]>),
    /// A stream of this rank, by name.
    Stream(Token),
    /// An event of this rank, by name.
    Event(Token),
    /// The whole device of this rank, for synchronize.
    Device,
}

/// Element types of collectives, with NCCL's names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "the names say it")]
pub enum Dtype {
    F16,
    Bf16,
    F32,
    F64,
    I8,
    U8,
    I32,
    I64,
    Fp8,
}

impl Dtype {
    /// Every element type.
    pub const ALL: [Self; 9] =
        [Self::F16, Self::Bf16, Self::F32, Self::F64, Self::I8, Self::U8, Self::I32, Self::I64, Self::Fp8];

    /// Size of an element in bytes.
    #[must_use]
    pub fn len_bytes(self) -> u64 {
        match self {
            Self::I8 | Self::U8 | Self::Fp8 => 1,
            Self::F16 | Self::Bf16 => 2,
            Self::F32 | Self::I32 => 4,
            Self::F64 | Self::I64 => 8,
        }
    }

    /// The name in specs and reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
            Self::F32 => "f32",
            Self::F64 => "f64",
            Self::I8 => "i8",
            Self::U8 => "u8",
            Self::I32 => "i32",
            Self::I64 => "i64",
            Self::Fp8 => "fp8",
        }
    }
}

/// Reduction operators.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "the names say it")]
pub enum ReduceOp {
    Sum,
    Prod,
    Min,
    Max,
    Avg,
}

impl ReduceOp {
    /// Every operator.
    pub const ALL: [Self; 5] = [Self::Sum, Self::Prod, Self::Min, Self::Max, Self::Avg];

    /// The name in specs and reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Sum => "sum",
            Self::Prod => "prod",
            Self::Min => "min",
            Self::Max => "max",
            Self::Avg => "avg",
        }
    }
}

/// Kinds of collective.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CollectiveKind {
    /// Every rank gets the reduction of all.
    AllReduce,
    /// Every rank gets the concatenation of all; `count` is one rank's part.
    AllGather,
    /// Every rank gets its part of the reduction; `count` is one rank's part.
    ReduceScatter,
    /// Every rank gets what the root has. The root is a position in the communicator.
    Broadcast {
        /// Communicator rank of the sender.
        root: u32,
    },
    /// The root gets the reduction of all, and nobody else gets anything. The root is a position in the
    /// communicator.
    Reduce {
        /// Communicator rank of the receiver.
        root: u32,
    },
}

impl CollectiveKind {
    /// The verb.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::AllReduce => "all_reduce",
            Self::AllGather => "all_gather",
            Self::ReduceScatter => "reduce_scatter",
            Self::Broadcast { .. } => "broadcast",
            Self::Reduce { .. } => "reduce",
        }
    }

    /// Whether what ranks send is reduced.
    #[must_use]
    pub fn reduces(self) -> bool {
        match self {
            Self::AllReduce | Self::ReduceScatter | Self::Reduce { .. } => true,
            Self::AllGather | Self::Broadcast { .. } => false,
        }
    }

    /// Which buffers of a call count on the member that makes it, given whether it is the root (`argcheck.cc`).
    #[must_use]
    pub fn counting(self, is_root: impl Fn(u32) -> bool) -> Counting {
        match self {
            Self::Broadcast { root } if !is_root(root) => Counting::Recv,
            Self::Reduce { root } if !is_root(root) => Counting::Send,
            Self::AllReduce
            | Self::AllGather
            | Self::ReduceScatter
            | Self::Broadcast { .. }
            | Self::Reduce { .. } => Counting::Both,
        }
    }

    /// The way to or from the root in words, with a space before them; empty without a root.
    #[must_use]
    pub fn way(self) -> String {
        match self {
            Self::Broadcast { root } => format!(" from its rank {root}"),
            Self::Reduce { root } => format!(" to its rank {root}"),
            Self::AllReduce | Self::AllGather | Self::ReduceScatter => String::new(),
        }
    }
}

/// Which buffers of a collective count on a rank. What the others are does not matter: they may be null.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counting {
    /// Input and output.
    Both,
    /// The input.
    Send,
    /// The output.
    Recv,
}

/// One rank's call of a collective.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Collective {
    /// What is computed.
    pub kind: CollectiveKind,
    /// The communicator.
    pub comm: Operand,
    /// Input buffer. Of a broadcast it counts on the root alone.
    pub send: Operand,
    /// Output buffer; equal to `send` for in-place calls. Of a reduce it counts on the root alone.
    pub recv: Operand,
    /// Elements (of one rank's part for all_gather and reduce_scatter).
    pub count: u64,
    /// Element type.
    pub dtype: Dtype,
    /// Reduction; ignored where nothing is reduced.
    pub op: ReduceOp,
    /// Stream it is launched on.
    pub stream: Token,
    /// The author declared `symmetric = True`: a fallback to the ordinary path is then a finding.
    pub declared: Declared,
}

/// Which way the data of a transfer go, seen from the rank that calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Way {
    /// `ncclSend`.
    Send,
    /// `ncclRecv`.
    Recv,
}

impl Way {
    /// The verb.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Send => "send",
            Self::Recv => "recv",
        }
    }
}

/// One rank's call of its half of a point-to-point transfer.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Transfer {
    /// Which half.
    pub way: Way,
    /// The communicator.
    pub comm: Operand,
    /// The rank at the other end, as a position in the communicator.
    pub peer: u32,
    /// What is sent, or where it goes.
    pub buffer: Operand,
    /// Elements. Not exchanged.
    pub count: u64,
    /// Element type. Not exchanged.
    pub dtype: Dtype,
    /// Stream it is launched on.
    pub stream: Token,
}

/// Names an operation of one thread of the same rank, for declarations about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Operation {
    /// Where the thread started; an entry is started once a rank.
    pub entry: Entry,
    /// Position among the operations and questions of that thread.
    pub index: u32,
}

/// Whether communicators split from one have channels of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Resources {
    /// Its own.
    Own,
    /// `splitShare` of the parent: the parent's, whose launches theirs are ordered with.
    Shared,
}

/// What the author said about the kernel path of a collective.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Declared {
    /// Nothing: any path will do.
    Nothing,
    /// `symmetric = True`.
    Symmetric,
}

/// Flags of a window registration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum WindowFlags {
    /// `NCCL_WIN_DEFAULT`.
    Default,
    /// `NCCL_WIN_COLL_SYMMETRIC`.
    CollSymmetric,
}

/// Where ordinary memory comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum MemoryKind {
    /// `ncclMemAlloc`: can be registered as a window.
    Nccl,
    /// `cudaMalloc`: cannot.
    Cuda,
}

/// How a pool rounds requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum SizeClasses {
    /// One segment for each request, rounded up to 2 MiB; blocks are rounded up to 512 bytes.
    Exact,
    /// torch's caching allocator: blocks rounded to 512 bytes; segments of 2 MiB for requests up to
    /// 1 MiB, of 20 MiB below 10 MiB, else rounded up to 2 MiB. Blocks of up to 1 MiB live in segments of
    /// their own kind.
    Torch,
}

/// How a pool chooses among free blocks of equal size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum TieBreak {
    /// The lowest address. Address order is chosen for each rank by the adversary.
    Address,
    /// The segment that was allocated first.
    Counter,
}

/// Who gives the memory of trimmed segments back to the driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Release {
    /// The trim itself.
    Now,
    /// A [`Verb::Release`] for each, after the pool's hook for it has run.
    AfterHook,
}

/// Which calls a stream capture forbids to whom (`cudaStreamCaptureMode`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum CaptureMode {
    /// Unsafe calls of every thread of the process.
    Global,
    /// Unsafe calls of the thread that began it.
    ThreadLocal,
    /// Only waits for the streams that record.
    Relaxed,
}

/// What is compared with an awaited value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Test {
    /// The word is the value.
    Equal,
    /// The word is the value or more.
    AtLeast,
}

/// What is done to a flag.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FlagAct {
    /// The word becomes this.
    Write(i64),
    /// Blocks until the word passes the test against this.
    Wait(Test, i64),
    /// Blocks until the word is `from`, and makes it `to` in the same instant.
    Swap {
        /// The awaited value.
        from: i64,
        /// What takes its place.
        to: i64,
    },
}

impl FlagAct {
    /// Whether it can happen while the word has this value.
    #[must_use]
    pub fn possible(self, word: i64) -> bool {
        match self {
            Self::Write(_) => true,
            Self::Wait(Test::Equal, value) | Self::Swap { from: value, .. } => word == value,
            Self::Wait(Test::AtLeast, value) => word >= value,
        }
    }

    /// What the word is afterwards, if it changes.
    #[must_use]
    pub fn writes(self) -> Option<i64> {
        match self {
            Self::Write(value) | Self::Swap { to: value, .. } => Some(value),
            Self::Wait(..) => None,
        }
    }

    /// The call in a spec: `write(1)`.
    #[must_use]
    pub fn words(self) -> String {
        match self {
            Self::Write(value) => format!("write({value})"),
            Self::Wait(Test::Equal, value) => format!("wait({value})"),
            Self::Wait(Test::AtLeast, value) => format!("wait(at_least = {value})"),
            Self::Swap { from, to } => format!("swap({from}, {to})"),
        }
    }
}

/// In which order a map is walked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum MapOrder {
    /// The order of insertion.
    Insertion,
    /// The order of the keys' hashes, chosen for each rank by the adversary.
    Hash,
    /// The order of addresses, chosen for each rank by the adversary, consistent with [`TieBreak::Address`].
    Address,
}

/// One operation: a verb with its operands.
///
/// The comment of each verb says which slots it produces, if any.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verb {
    // -- the rank and its threads
    /// A local step that touches nothing.
    Step {
        /// Its name.
        label: Token,
    },
    /// Start a host thread that evaluates `entry`. Produces the thread.
    Spawn {
        /// Function and arguments.
        entry: Entry,
    },
    /// Wait for the end of a host thread.
    Join {
        /// What [`Verb::Spawn`] produced.
        thread: Operand,
    },
    /// The host thread ends here: an exception that nobody caught, or `r.exit()`. A rank counts as dead then;
    /// its other threads, and what was launched before, still run.
    Exit {
        /// The message.
        code: Token,
    },
    /// Marks a place that some execution must come by.
    Reach {
        /// Its name.
        label: Token,
    },
    /// Warm-up ends: costs are counted from here.
    Steady,
    /// Adds a number to the costs of the check, as its maximum over ranks and executions.
    Measure {
        /// Its name in the costs.
        name: Token,
        /// The value.
        value: Operand,
    },

    // -- communicators
    /// `ncclCommInitRank`: blocks until every member calls it. Produces the communicator.
    CommInit {
        /// Name; the n-th init of a name on one rank meets the n-th on the others (the unique id).
        name: Token,
        /// World ranks, in communicator order.
        members: Arc<[Rank]>,
        /// What splits of it use, and splits of these. NCCL asks the parent (`init.cc:3109-3131`).
        children: Resources,
    },
    /// `ncclCommSplit`: a set-up event of the parent. Produces the child, or null without a color.
    CommSplit {
        /// The parent.
        comm: Operand,
        /// Name of the child.
        name: Token,
        /// Members with equal colors share a child.
        color: Option<i64>,
    },
    /// `ncclCommDestroy`.
    CommDestroy {
        /// The communicator.
        comm: Operand,
    },

    // -- windows
    /// `ncclCommWindowRegister`. Produces the window (null if it failed).
    Register {
        /// The communicator.
        comm: Operand,
        /// A segment, a buffer, a slice of either, or null.
        memory: Operand,
        /// Flags.
        flags: WindowFlags,
    },
    /// `ncclCommWindowDeregister`.
    Deregister {
        /// The communicator.
        comm: Operand,
        /// What [`Verb::Register`] produced.
        window: Operand,
    },

    // -- groups
    /// `ncclGroupStart`.
    GroupStart,
    /// `ncclGroupEnd`.
    GroupEnd,

    // -- collectives, transfers, kernels, streams, events
    /// A collective.
    Collect(Arc<Collective>),
    /// Half of a point-to-point transfer.
    Transfer(Arc<Transfer>),
    /// Declares that two launches on communicators are meant to run at the same time.
    Overlap {
        /// One of them.
        one: Operation,
        /// The other.
        other: Operation,
    },
    /// A kernel of the user that reads and writes buffers.
    Kernel {
        /// Its name; what it writes is a term of this name over what it read.
        name: Token,
        /// Buffers it reads.
        reads: Arc<[Operand]>,
        /// Buffers it writes.
        writes: Arc<[Operand]>,
        /// Stream it is launched on.
        stream: Token,
    },
    /// `cudaMemcpyAsync` between device memory of this rank and mappings of peers.
    Copy {
        /// Where to; at least as long.
        to: Operand,
        /// Where from; as much as it is long.
        from: Operand,
        /// Stream it is launched on.
        stream: Token,
    },
    /// Declares what a buffer holds when a stream gets here: what a kernel of a rank wrote.
    Expect {
        /// The buffer.
        buffer: Operand,
        /// The kernel's name.
        kernel: Token,
        /// The rank that ran it.
        by: Rank,
        /// The stream.
        stream: Token,
    },
    /// `cudaEventRecord`.
    EventRecord {
        /// The event.
        event: Token,
        /// The stream.
        stream: Token,
    },
    /// `cudaStreamWaitEvent`.
    StreamWait {
        /// The stream.
        stream: Token,
        /// The event.
        event: Token,
    },
    /// `cudaStreamSynchronize`, `cudaEventSynchronize` or `cudaDeviceSynchronize`, by operand.
    Synchronize {
        /// A stream, an event or the device.
        what: Operand,
    },

    // -- graphs
    /// `cudaStreamBeginCapture`: what is launched on the stream from now on is recorded, not run.
    GraphBegin {
        /// The graph that is recorded.
        graph: Token,
        /// The stream; events pull others in.
        stream: Token,
        /// What the capture forbids.
        mode: CaptureMode,
        /// A pool whose blocks stay reserved while the graph lives.
        pool: Option<Token>,
    },
    /// `cudaStreamEndCapture` and `cudaGraphInstantiate`. Produces the graph (null if the capture failed).
    GraphEnd {
        /// The graph.
        graph: Token,
    },
    /// `cudaGraphLaunch`: what was recorded runs, with what was recorded.
    GraphReplay {
        /// The graph.
        graph: Token,
        /// Stream it is launched on.
        stream: Token,
    },
    /// `cudaGraphExecDestroy` and `cudaGraphDestroy`.
    GraphDestroy {
        /// The graph.
        graph: Token,
    },

    // -- memory and pools
    /// Declares a pool of this rank. A second declaration of the name does nothing.
    Pool {
        /// Its name.
        pool: Token,
        /// Rounding.
        classes: SizeClasses,
        /// Choice among equals.
        tie: TieBreak,
        /// Memory of its segments.
        memory: MemoryKind,
    },
    /// Takes the allocator's lock of a pool. Recorded around the hooks of a pool.
    PoolLock {
        /// The pool.
        pool: Token,
    },
    /// Gives the allocator's lock back.
    PoolUnlock {
        /// The pool.
        pool: Token,
    },
    /// Allocates a block. Produces the buffer (null if it failed).
    Alloc {
        /// The pool.
        pool: Token,
        /// Its name in reports.
        name: Token,
        /// Requested size.
        len_bytes: u64,
        /// Stream to which the block belongs: free blocks are kept apart by stream.
        stream: Token,
    },
    /// Gives a block back to its pool, or ordinary memory back to the driver.
    Free {
        /// The buffer.
        buffer: Operand,
        /// Deferred: the block returns only once this event is seen complete at a later allocation.
        after: Option<Token>,
    },
    /// Gives up the segments of a pool that have no block in use. Produces the list of them, which
    /// [`Question::Trimmed`] reads.
    Trim {
        /// The pool.
        pool: Token,
        /// Who gives their memory back.
        release: Release,
    },
    /// Gives the memory of a segment that [`Verb::Trim`] gave up back to the driver.
    Release {
        /// The segment.
        segment: Operand,
    },
    /// Any rank-local history of a pool: up to `max` segments of the given sizes left behind free.
    Havoc {
        /// The pool.
        pool: Token,
        /// At most so many.
        max: u32,
        /// Sizes to choose from.
        sizes_bytes: Arc<[u64]>,
    },
    /// `ncclMemAlloc` or `cudaMalloc`. Produces a buffer that is a segment of its own.
    MemAlloc {
        /// Its name in reports.
        name: Token,
        /// Size.
        len_bytes: u64,
        /// Which.
        memory: MemoryKind,
    },

    // -- memory of other ranks
    /// `cudaIpcGetMemHandle`. Produces a handle of the allocation in which the buffer lies (null if it failed).
    IpcExport {
        /// The buffer.
        buffer: Operand,
    },
    /// `cudaIpcOpenMemHandle`. Produces the mapping of the whole allocation (null if it failed).
    IpcOpen {
        /// What [`Verb::IpcExport`] produced on another rank.
        handle: Operand,
    },
    /// `cudaIpcCloseMemHandle`.
    IpcClose {
        /// What [`Verb::IpcOpen`] produced.
        mapping: Operand,
    },
    /// An exchange of shareable handles, matched by order only. Produces, for each member in order, the mapping
    /// of its allocation; for this rank its own (null if it failed).
    Exchange {
        /// World ranks that take part.
        members: Arc<[Rank]>,
        /// What it is for, as the author says; it matches nothing.
        name: Token,
        /// The buffer whose allocation this rank shares.
        buffer: Operand,
    },

    // -- host synchronization
    /// A barrier of host processes.
    Barrier {
        /// World ranks that take part.
        members: Arc<[Rank]>,
    },
    /// A host agreement: produces whether every rank gave true.
    AllAgree {
        /// World ranks that take part.
        members: Arc<[Rank]>,
        /// This rank's vote.
        value: Operand,
    },
    /// Locks a mutex of this rank.
    Lock {
        /// The mutex.
        mutex: Token,
    },
    /// Unlocks it.
    Unlock {
        /// The mutex.
        mutex: Token,
    },
    /// Sets a key of the store.
    StoreSet {
        /// The key.
        key: Token,
        /// The value.
        value: Operand,
    },
    /// Blocks until the key is there. Produces its value.
    StoreGet {
        /// The key.
        key: Token,
    },
    /// Deletes a key of the store.
    StoreDelete {
        /// The key.
        key: Token,
    },
    /// Works on a flag, a word that all ranks see: on the host thread, or on a stream of this rank
    /// (`cuStreamWriteValue32`, `cuStreamWaitValue32`, an atomic of a kernel).
    Flag {
        /// The flag.
        flag: Token,
        /// What is done.
        act: FlagAct,
        /// The stream; none for the host thread.
        stream: Option<Token>,
    },

    // -- maps and lists of a rank
    /// Puts a value under a key, replacing.
    MapPut {
        /// The map.
        map: Token,
        /// Key.
        key: Operand,
        /// Value.
        value: Operand,
    },
    /// Removes a key. Produces its value or null.
    MapPop {
        /// The map.
        map: Token,
        /// Key.
        key: Operand,
    },
    /// Produces the value under a key, or the default.
    MapGet {
        /// The map.
        map: Token,
        /// Key.
        key: Operand,
        /// Default.
        default: Operand,
    },
    /// Empties a map.
    MapClear {
        /// The map.
        map: Token,
    },
    /// Appends to a list.
    ListPush {
        /// The list.
        list: Token,
        /// Value.
        value: Operand,
    },
    /// Produces the element at an index; past the end is a finding and produces null.
    ListGet {
        /// The list.
        list: Token,
        /// Index.
        index: Operand,
    },
    /// Replaces the element at an index; past the end is a finding.
    ListSet {
        /// The list.
        list: Token,
        /// Index.
        index: Operand,
        /// Value.
        value: Operand,
    },
    /// Removes the last element. Produces it, or null from an empty list.
    ListPop {
        /// The list.
        list: Token,
    },
    /// Empties a list.
    ListClear {
        /// The list.
        list: Token,
    },
}

impl Verb {
    /// The operation in the spec's own names: `tp.register(x)`. `token` says what a name is called, `of` what an
    /// operand is at that moment.
    #[must_use]
    pub fn words(&self, token: &dyn Fn(Token) -> Arc<str>, of: &dyn Fn(&Operand) -> String) -> String {
        let name = |named: &Token| token(*named);
        match self {
            Self::Step { label } => name(label).to_string(),
            Self::Spawn { .. } => "thread".to_owned(),
            Self::Join { thread } => format!("{}.join", of(thread)),
            Self::Exit { code } => format!("exit({})", name(code)),
            Self::Reach { label } => format!("reach({})", name(label)),
            Self::Steady => "steady".to_owned(),
            Self::Measure { name: what, .. } => format!("measure({})", name(what)),
            Self::CommInit { name: comm, .. } => format!("{}.init", name(comm)),
            Self::CommSplit { comm, name: child, .. } => format!("{}.split({})", of(comm), name(child)),
            Self::CommDestroy { comm } => format!("{}.destroy", of(comm)),
            Self::Register { comm, memory, .. } => format!("{}.register({})", of(comm), of(memory)),
            Self::Deregister { comm, window } => format!("{}.deregister({})", of(comm), of(window)),
            Self::GroupStart => "group_start".to_owned(),
            Self::GroupEnd => "group_end".to_owned(),
            Self::Collect(call) => format!("{}.{}({})", of(&call.comm), call.kind.name(), of(&call.send)),
            Self::Transfer(call) => {
                format!("{}.{}({}, {})", of(&call.comm), call.way.name(), of(&call.buffer), call.peer)
            }
            Self::Overlap { .. } => "overlap".to_owned(),
            Self::Kernel { name: kernel, .. } => format!("kernel {}", name(kernel)),
            Self::Copy { to, from, .. } => format!("copy {} to {}", of(from), of(to)),
            Self::Expect { buffer, kernel, by, .. } => {
                format!("expect {} of rank {} in {}", name(kernel), by.0, of(buffer))
            }
            Self::IpcExport { buffer } => format!("ipc.export({})", of(buffer)),
            Self::IpcOpen { handle } => format!("ipc.open({})", of(handle)),
            Self::IpcClose { mapping } => format!("ipc.close({})", of(mapping)),
            Self::Exchange { name: what, buffer, .. } => format!("exchange {} ({})", name(what), of(buffer)),
            Self::EventRecord { event, stream } => format!("{}.record({})", name(event), name(stream)),
            Self::StreamWait { stream, event } => format!("{}.wait({})", name(stream), name(event)),
            Self::Synchronize { what } => format!("{}.synchronize", of(what)),
            Self::GraphBegin { graph, stream, .. } => format!("{}.begin({})", name(graph), name(stream)),
            Self::GraphEnd { graph } => format!("{}.end", name(graph)),
            Self::GraphReplay { graph, stream } => format!("{}.replay({})", name(graph), name(stream)),
            Self::GraphDestroy { graph } => format!("{}.destroy", name(graph)),
            Self::Pool { pool, .. } => format!("pool {}", name(pool)),
            Self::PoolLock { pool } => format!("{}: take the allocator's lock", name(pool)),
            Self::PoolUnlock { pool } => format!("{}: give the allocator's lock back", name(pool)),
            Self::Alloc { pool, name: buffer, .. } => format!("{} = {}.alloc", name(buffer), name(pool)),
            Self::Free { buffer, .. } => format!("{}.free", of(buffer)),
            Self::Trim { pool, .. } => format!("{}.trim", name(pool)),
            Self::Release { segment } => format!("{}.release", of(segment)),
            Self::Havoc { pool, .. } => format!("{}.havoc", name(pool)),
            Self::MemAlloc { name: buffer, .. } => format!("{} = mem_alloc", name(buffer)),
            Self::Barrier { .. } => "barrier".to_owned(),
            Self::AllAgree { value, .. } => format!("all_agree({})", of(value)),
            Self::Lock { mutex } => format!("{}.lock", name(mutex)),
            Self::Unlock { mutex } => format!("{}.unlock", name(mutex)),
            Self::StoreSet { key, value } => format!("store.set({}, {})", name(key), of(value)),
            Self::StoreGet { key } => format!("store.get({})", name(key)),
            Self::StoreDelete { key } => format!("store.delete({})", name(key)),
            Self::Flag { flag, act, .. } => format!("{}.{}", name(flag), act.words()),
            Self::MapPut { map, key, .. } => format!("{}.put({})", name(map), of(key)),
            Self::MapPop { map, key } => format!("{}.pop({})", name(map), of(key)),
            Self::MapGet { map, key, .. } => format!("{}.get({})", name(map), of(key)),
            Self::MapClear { map } => format!("{}.clear", name(map)),
            Self::ListPush { list, value } => format!("{}.push({})", name(list), of(value)),
            Self::ListGet { list, index } => format!("{}[{}]", name(list), of(index)),
            Self::ListSet { list, index, .. } => format!("{}[{}] =", name(list), of(index)),
            Self::ListPop { list } => format!("{}.pop", name(list)),
            Self::ListClear { list } => format!("{}.clear", name(list)),
        }
    }

    /// The stream on which the operation launches something, if it does.
    #[must_use]
    #[expect(clippy::wildcard_enum_match_arm, reason = "few operations launch anything")]
    pub fn stream(&self) -> Option<Token> {
        match self {
            Self::Collect(call) => Some(call.stream),
            Self::Transfer(call) => Some(call.stream),
            Self::Kernel { stream, .. }
            | Self::Copy { stream, .. }
            | Self::Expect { stream, .. }
            | Self::EventRecord { stream, .. }
            | Self::StreamWait { stream, .. } => Some(*stream),
            Self::Flag { stream, .. } => *stream,
            _ => None,
        }
    }

    /// The memory that the operation works on, as far as it is named.
    #[must_use]
    #[expect(clippy::wildcard_enum_match_arm, reason = "few operations work on memory")]
    pub fn buffers(&self) -> Vec<&Operand> {
        match self {
            Self::Collect(call) => vec![&call.send, &call.recv],
            Self::Transfer(call) => vec![&call.buffer],
            Self::Kernel { reads, writes, .. } => reads.iter().chain(writes.iter()).collect(),
            Self::Copy { to, from, .. } => vec![to, from],
            Self::Expect { buffer, .. }
            | Self::IpcExport { buffer }
            | Self::IpcClose { mapping: buffer }
            | Self::Exchange { buffer, .. }
            | Self::Register { memory: buffer, .. }
            | Self::Free { buffer, .. }
            | Self::Release { segment: buffer } => vec![buffer],
            _ => Vec::new(),
        }
    }

    /// How many slots the operation produces.
    #[must_use]
    pub fn slots(&self) -> u32 {
        match self {
            Self::Exchange { members, .. } => u32::try_from(members.len()).expect("few ranks"),
            Self::Spawn { .. }
            | Self::CommInit { .. }
            | Self::CommSplit { .. }
            | Self::Register { .. }
            | Self::GraphEnd { .. }
            | Self::Alloc { .. }
            | Self::Trim { .. }
            | Self::MemAlloc { .. }
            | Self::AllAgree { .. }
            | Self::IpcExport { .. }
            | Self::IpcOpen { .. }
            | Self::StoreGet { .. }
            | Self::MapPop { .. }
            | Self::MapGet { .. }
            | Self::ListGet { .. }
            | Self::ListPop { .. } => 1,
            Self::Step { .. }
            | Self::Join { .. }
            | Self::Exit { .. }
            | Self::Reach { .. }
            | Self::Steady
            | Self::Measure { .. }
            | Self::CommDestroy { .. }
            | Self::Deregister { .. }
            | Self::GroupStart
            | Self::GroupEnd
            | Self::Collect(_)
            | Self::Transfer(_)
            | Self::Overlap { .. }
            | Self::Kernel { .. }
            | Self::Copy { .. }
            | Self::Expect { .. }
            | Self::IpcClose { .. }
            | Self::EventRecord { .. }
            | Self::StreamWait { .. }
            | Self::Synchronize { .. }
            | Self::GraphBegin { .. }
            | Self::GraphReplay { .. }
            | Self::GraphDestroy { .. }
            | Self::Pool { .. }
            | Self::PoolLock { .. }
            | Self::PoolUnlock { .. }
            | Self::Free { .. }
            | Self::Havoc { .. }
            | Self::Release { .. }
            | Self::Barrier { .. }
            | Self::Lock { .. }
            | Self::Unlock { .. }
            | Self::StoreSet { .. }
            | Self::StoreDelete { .. }
            | Self::Flag { .. }
            | Self::MapPut { .. }
            | Self::MapClear { .. }
            | Self::ListPush { .. }
            | Self::ListSet { .. }
            | Self::ListClear { .. } => 0,
        }
    }
}

/// A verb at a place.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Op {
    /// What is done.
    pub verb: Verb,
    /// Where it was written.
    pub place: PlaceId,
}

/// What control flow may ask. Answers are booleans, indices of options, or small counts; never pointers,
/// sizes or bytes.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Question {
    /// The adversary chooses one of `options`.
    Choose {
        /// Its name.
        name: Token,
        /// What the options are called.
        options: Arc<[Token]>,
    },
    /// Did this allocation take a new segment?
    Grew(Operand),
    /// Is this result null: did the operation that produced it fail?
    Failed(Operand),
    /// Are the two values equal?
    Equal(Operand, Operand),
    /// Is this value true?
    Truth(Operand),
    /// The number in this slot, at most [`MAX_NUMBER`].
    Number(Operand),
    /// Is the key in the map?
    MapHas {
        /// The map.
        map: Token,
        /// Key.
        key: Operand,
    },
    /// How many entries does the map have? Then produces, for each in the map's order, key and value.
    MapItems {
        /// The map.
        map: Token,
        /// In which order it is walked.
        order: MapOrder,
    },
    /// How many elements does the list have?
    ListLen {
        /// The list.
        list: Token,
    },
    /// How many segments did the trim release? Then produces each of them.
    Trimmed(Operand),
    /// `ncclCommGetWindow`-like: does a window of the communicator hold the start of this buffer?
    HasWindow {
        /// The communicator.
        comm: Operand,
        /// The buffer.
        buffer: Operand,
    },
    /// `cudaEventQuery`: is the last record of the event complete?
    EventQuery {
        /// The event.
        event: Token,
    },
}

/// The largest number that a program may ask for; what is larger is data, not control.
pub const MAX_NUMBER: u32 = 4096;

impl Question {
    /// How many slots the answer produces.
    #[must_use]
    pub fn slots(&self, answer: Answer) -> u32 {
        match self {
            Self::MapItems { .. } => 2 * answer,
            Self::Trimmed(_) => answer,
            Self::Choose { .. }
            | Self::Grew(_)
            | Self::Failed(_)
            | Self::Equal(..)
            | Self::Truth(_)
            | Self::Number(_)
            | Self::MapHas { .. }
            | Self::ListLen { .. }
            | Self::HasWindow { .. }
            | Self::EventQuery { .. } => 0,
        }
    }
}

/// How a stretch ends.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum End {
    /// The function returned.
    Return,
    /// Control flow asks.
    Ask(Question, PlaceId),
    /// What comes then is not known: the recording of a real run ends here. Nobody waits in vain for a thread
    /// that stands here, as far as anybody knows.
    Cut,
}

/// The operations of one thread between two answers.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Stretch {
    /// Operations in program order.
    pub ops: Vec<Op>,
    /// What comes after them.
    pub end: End,
}

/// Whether the program of a rank looks at who it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Symmetry {
    /// Every rank runs the same function and none read its number: ranks are interchangeable.
    Interchangeable,
    /// Some function read `r.rank`, or an operand names a rank.
    Distinct,
}

/// When memory was freed that another rank opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Freed {
    /// The program orders ranks, so its clocks say.
    AsOrdered,
    /// Before it was opened.
    BeforeOpened,
    /// While it was open.
    WhileOpen,
    /// After it was closed, or never, as far as anybody knows.
    AfterClosed,
}

/// Where a program comes from: Starlark, Rust closures, a recorded run.
///
/// Must be pure: equal arguments give equal stretches, and a longer list of answers extends what a shorter
/// one gave.
pub trait Source: Send + Sync {
    /// The operations of a thread of `rank` that was started from `entry`, after these answers.
    ///
    /// # Errors
    /// When the program itself cannot be evaluated.
    fn stretch(&self, rank: Rank, entry: Entry, answers: &[Answer]) -> Result<Arc<Stretch>, SourceError>;

    /// The text of a token.
    fn token(&self, token: Token) -> Arc<str>;

    /// The place of an operation.
    fn place(&self, place: PlaceId) -> Place;

    /// The token of the stream that operations use when they name none: `"default"`.
    fn default_stream(&self) -> Token;

    /// Whether ranks are interchangeable, as far as evaluated so far.
    fn symmetry(&self) -> Symmetry;

    /// How many collectives on the communicator of the operation `of` this rank launched before the operation
    /// `before` that are not in the program: of a recorded run, iterations may be left out. Only said of it.
    fn skipped(&self, of: PlaceId, before: PlaceId) -> u32 {
        let _ = (of, before);
        0
    }

    /// Whether ranks are also ordered by what is not in the program, as those of a recorded run are. What nothing
    /// in the program orders may be ordered then, so accesses of two ranks to one memory do not race.
    fn hides_order(&self) -> bool {
        false
    }

    /// When the memory was freed that the operation at a place opened. A program that hides order says so.
    fn freed(&self, open: PlaceId) -> Freed {
        let _ = open;
        Freed::AsOrdered
    }

    /// Whether some rank may come by a [`Verb::Overlap`]. The answer is one for the whole program.
    fn declares_overlap(&self) -> bool {
        false
    }
}

/// The program could not be evaluated: a bad spec, never a finding.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{message}")]
pub struct SourceError {
    /// What is wrong.
    pub message: String,
    /// Where, if known.
    pub place: Option<Place>,
    /// What to do about it.
    pub help: Option<String>,
}
