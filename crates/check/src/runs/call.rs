//! One row a vendor call: what it is to whoever reads a recording, and what a repeat of it counts when
//! iterations are folded.
//!
//! A recording spells calls as the vendor does. No other file of [`crate::runs`] knows these names: the others
//! match on [`CallKind`] and [`FoldClass`]. A call without a row is counted as not judged, and never folded.
//! Not here: how a call becomes operations ([`super::lower`]), and how its uses are counted ([`super::fold`]).

use std::sync::LazyLock;

use rankcheck_model::{CollectiveKind, Direction, Root};
use rankcheck_recording::{Argument, Shape};
use rustc_hash::FxHashMap;

use super::ipc::ShareableCall;

/// What a call is, as far as somebody treats it differently.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CallKind {
    /// A communicator is made with a unique id.
    Init,
    /// Communicators are made for several ranks in one process, or for one that is alone.
    InitAll,
    /// Communicators are made out of one.
    Split,
    /// A communicator is made of some members of one.
    Shrink,
    /// A communicator ends, in order or not.
    Destroy,
    /// A window is registered by all members.
    Register,
    /// A window ends on the process that calls.
    Deregister,
    /// A buffer is registered, which is the process's own affair.
    RegisterBuffer,
    /// The registration of a buffer ends.
    DeregisterBuffer,
    /// A group of NCCL calls begins, or goes one level deeper.
    GroupStart,
    /// A group of NCCL calls ends, or goes one level back.
    GroupEnd,
    /// One half of a point-to-point transfer.
    Transfer(Direction),
    /// A collective of the model. The root is an argument of the call; here it is any.
    Collective(CollectiveKind),
    /// Memory is allocated by this allocator.
    Allocate(Allocator),
    /// Memory goes back to this allocator.
    Free(Allocator),
    /// Memory appears at an address that was reserved.
    Map,
    /// Memory goes from an address that stays reserved.
    Unmap,
    /// A stream is made.
    StreamCreate,
    /// A stream is destroyed; what it holds still runs.
    StreamDestroy,
    /// The host waits for something.
    Synchronize(Awaitable),
    /// The host asks whether something is done, and does not wait.
    Query(Awaitable),
    /// An event is recorded on a stream.
    EventRecord,
    /// A stream waits for an event.
    StreamWaitEvent,
    /// An event is destroyed.
    EventDestroy,
    /// A copy or a fill.
    Copy(CopyReturns),
    /// A capture begins on a stream.
    BeginCapture,
    /// A capture ends and gives a graph.
    EndCapture,
    /// A graph becomes something that can be launched.
    Instantiate,
    /// What can be launched of a graph becomes that of another.
    GraphUpdate,
    /// A graph is launched.
    GraphLaunch,
    /// A graph without nodes is made, to be put together.
    GraphCreate,
    /// A graph is made that is as another one.
    GraphClone,
    /// A graph gets a node.
    GraphNode(NodeKind),
    /// A node of a graph, or of what can be launched of one, does something else from now on.
    GraphNodeChange(NodeKind),
    /// A graph loses a node.
    GraphNodeDestroy,
    /// Nodes of a graph come behind others.
    GraphEdges,
    /// Nodes of a graph do not come behind others any more.
    GraphEdgesRemove,
    /// What could be launched of a graph is destroyed.
    ExecutableDestroy,
    /// A graph is destroyed.
    GraphDestroy,
    /// Memory is exported to other processes.
    IpcExport,
    /// Memory of another process is opened.
    IpcOpen,
    /// Memory of another process is closed.
    IpcClose,
    /// Memory, or a pool of it, goes to other processes or comes from them by a handle of the driver's.
    Share(ShareableCall),
    /// Ranks exchange handles of a buffer of each, and map what the others bring.
    Rendezvous,
    /// A kernel waits for other ranks by the signal pads of a buffer of each.
    Signal(SignalCall),
    /// A stream calls a function of the host when it gets there.
    HostFunction,
    /// A function of the host that a stream was to call begins to run.
    HostFunctionRuns,
    /// An event goes to other processes.
    EventExport,
    /// An event of another process is opened.
    EventOpen,
    /// It says which device is current for its thread, or of which device a context is.
    Current(CurrentBy),
    /// Nothing follows from it.
    Nothing,
    /// It is counted as not judged, for this reason.
    Unjudged(Unjudged),
    /// A store is read or written.
    Store,
    /// What a process says of itself: its rank, its versions.
    Process,
    /// The process ends in order.
    Exit,
    /// The handle of a window that was registered in a group that has ended.
    GroupWindow,
    /// The members and the name of a process group.
    ProcessGroup,
    /// A process group is made, which every rank has to take part in unless the call says that only members do.
    MakesGroup,
    /// A barrier of Python around whatever carries it.
    Barrier,
    /// A backward pass, whose calls other threads make.
    Backward,
    /// The exception that ended the program.
    Exception,
    /// A communicator existed when the recording began, and was in use.
    Exists,
    /// A frame of Python around vendor calls, or another note.
    Note,
}

/// Why a call is not judged. Only without those that [`Unjudged::matters`] can a run be said to hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Unjudged {
    /// What a kernel reads and writes was not recorded.
    Kernel,
    /// A call that a program tells of itself.
    Foreign,
    /// Memory of another process comes in by a handle of the driver's or of a pool's, and which was not recorded.
    Import,
    /// A stream writes words of memory, or waits for them.
    Word,
    /// An event that processes share is recorded by one that did not make it.
    SharedEvent,
    /// A node of a graph that a program puts together, of a kind that is not followed.
    Node,
    /// Nodes of a graph that touch the same memory, or wait for other ranks, and that nothing orders.
    Nodes,
    /// A copy of too many rows.
    Rows,
    /// A call of the vendor's that has no row here.
    NoRow,
    /// It is about an object that was not seen to be made.
    Unseen,
    /// It is about a rank that was not recorded.
    Absent,
    /// A value was not recorded that nothing but this call depends on.
    Value,
    /// What all who meet have to agree on was not recorded of all.
    Agreed,
    /// How many there were before the recording began was not recorded.
    Numbers,
    /// Elements of a type that has no size here.
    Type,
}

impl Unjudged {
    /// Whether a run of which it was not judged may be wrong for that reason, beyond what every verdict leaves out.
    pub(super) fn matters(self) -> bool {
        !matches!(self, Self::Kernel | Self::Foreign)
    }

    /// Why, as what follows a colon.
    pub(super) fn why(self) -> &'static str {
        match self {
            Self::Kernel => "what kernels read and write is not recorded",
            Self::Foreign => "they are no calls of NCCL or CUDA",
            Self::Import => "which memory of other processes comes by those handles was not recorded",
            Self::Word => "what streams write or record for others to wait for is not followed",
            Self::SharedEvent => "which of the records of several processes is waited for is not followed",
            Self::Node => "what such nodes do of graphs that a program puts together is not followed",
            Self::Nodes => "what its nodes do to one another that nothing orders is not followed",
            Self::Rows => "what they touch is not followed: it lies in too many rows",
            Self::NoRow => "this version of rankcheck does not know them",
            Self::Unseen => "what they work on was not seen to be made",
            Self::Absent => {
                "the rank at the other end was not recorded, or which one it is follows from ranks that were not"
            }
            Self::Value => "what they touch was not recorded",
            Self::Agreed => "not recorded, and taken to be what the other ranks gave",
            Self::Numbers => "how many there were before the recording began was not recorded",
            Self::Type => "this version of rankcheck does not know the type of their elements",
        }
    }
}

/// How a kernel uses the signal pads of a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SignalCall {
    /// It signals to every other rank and waits for every other, on channels of its own.
    Kernel,
    /// The same on the channel that the call names, and nothing else.
    Barrier,
    /// It signals to one.
    Put,
    /// It waits for one.
    Wait,
}

/// What a node of a graph does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NodeKind {
    /// It is a kernel, or nothing.
    Kernel,
    /// It copies or fills.
    Touches,
    /// It calls a function of the host.
    Host,
    /// It is another graph.
    Child,
    /// It waits for an event.
    Waits,
    /// It records an event.
    Records,
    /// It allocates memory with every launch.
    Allocates,
    /// It frees memory with every launch.
    Frees,
    /// What it does is not followed.
    NotFollowed,
    /// The call says which of these it is.
    Said,
}

/// Who allocates memory, and whether at once or in the order of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Allocator {
    /// NCCL, by `ncclMemAlloc`, at once.
    Nccl,
    /// The CUDA runtime, at once.
    Cuda,
    /// The CUDA runtime, at once, in rows of a length that it returns.
    CudaPitched,
    /// The CUDA runtime, in the order of a stream.
    CudaAsync,
}

/// What says which device is current.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CurrentBy {
    /// The call names the device by its number.
    Device,
    /// A context that is of it.
    Context,
    /// The same, and what was current comes back.
    PushedContext,
    /// What was current comes back.
    Popped,
    /// A context of it that is made current.
    NewContext,
    /// A context of it that is not made current.
    Retained,
}

impl CurrentBy {
    /// What a call makes current; none where that is what it makes, or was before.
    pub(super) fn named(self, call: &Shape) -> Option<&Argument> {
        match self {
            Self::Device => call.get("device"),
            Self::Context | Self::PushedContext => call.get("context"),
            Self::Popped | Self::NewContext | Self::Retained => None,
        }
    }
}

/// What the host can wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Awaitable {
    /// One stream, with all that is on it.
    Stream,
    /// One event, as it was last recorded.
    Event,
    /// All streams of a device.
    Device,
}

/// When a copy or a fill returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CopyReturns {
    /// Once it is on its stream.
    AtOnce,
    /// Once it is done.
    WhenDone,
}

/// What one call counts when iterations are folded, as far as its row tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FoldClass {
    /// Nothing, and it leaves everything as it was.
    Local,
    /// A use of its communicator (`comm`), which all members make together.
    Meets,
    /// A message to `peer`.
    Sends,
    /// A message from `peer`.
    Receives,
    /// A use of its communicator, which makes a window.
    Registers,
    /// It makes something: what it returns under this name.
    Makes(Thing, &'static str),
    /// It says that something was made: its own argument of this name.
    Notes(Thing, &'static str),
    /// It ends something: its own argument of this name.
    Ends(Thing, &'static str),
    /// It begins a group, inside which no iteration is cut.
    GroupStart,
    /// It ends the group that was begun last.
    GroupEnd,
    /// It begins a capture: what follows is recorded and does not run.
    BeginCapture,
    /// A capture gives its `graph`.
    EndCapture,
    /// It makes an `executable` out of a `graph`.
    Instantiate,
    /// What the capture of its `executable` counted.
    Launch,
    /// It may concern other processes, or what comes later, in a way that is not counted: never folded.
    Doubtful,
}

/// What is made and ended within an iteration that is folded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Thing {
    Memory,
    Block,
    Segment,
    Registration,
    Window,
}

/// A row of the table.
#[derive(Debug)]
pub(super) struct VendorCall {
    name: &'static str,
    pub(super) kind: CallKind,
    pub(super) folded: FoldClass,
}

const fn call(name: &'static str, kind: CallKind, folded: FoldClass) -> VendorCall {
    VendorCall { name, kind, folded }
}

const fn copy(name: &'static str, returns: CopyReturns) -> VendorCall {
    call(name, CallKind::Copy(returns), FoldClass::Local)
}

const fn share(name: &'static str, shared: ShareableCall) -> VendorCall {
    call(name, CallKind::Share(shared), FoldClass::Doubtful)
}

const fn signal(name: &'static str, signal: SignalCall) -> VendorCall {
    call(name, CallKind::Signal(signal), FoldClass::Doubtful)
}

/// A call about a node of a graph.
const fn node(name: &'static str, kind: CallKind) -> VendorCall {
    call(name, kind, FoldClass::Doubtful)
}

const fn collective(name: &'static str, kind: CollectiveKind) -> VendorCall {
    call(name, CallKind::Collective(kind), FoldClass::Meets)
}

/// Every call that is known.
///
/// Streams and communicators that come and go are in doubt for the fold: that one iteration is ordered before the
/// next rests on the streams that both work on. So are exports and opens of memory, which no count of both sides
/// brings together.
static CALLS: &[VendorCall] = &[
    // Communicators.
    call("ncclGetUniqueId", CallKind::Nothing, FoldClass::Doubtful),
    call("ncclCommInitRank", CallKind::Init, FoldClass::Doubtful),
    call("ncclCommInitRankConfig", CallKind::Init, FoldClass::Doubtful),
    call("ncclCommInitRankScalable", CallKind::Init, FoldClass::Doubtful),
    call("ncclCommInitAll", CallKind::InitAll, FoldClass::Doubtful),
    call("ncclCommSplit", CallKind::Split, FoldClass::Doubtful),
    call("ncclCommShrink", CallKind::Shrink, FoldClass::Doubtful),
    call("ncclCommDestroy", CallKind::Destroy, FoldClass::Doubtful),
    call("ncclCommAbort", CallKind::Destroy, FoldClass::Doubtful),
    call("ncclCommFinalize", CallKind::Nothing, FoldClass::Doubtful),
    // Registrations.
    call("ncclCommWindowRegister", CallKind::Register, FoldClass::Registers),
    call("ncclCommWindowDeregister", CallKind::Deregister, FoldClass::Ends(Thing::Window, "window")),
    call("ncclCommRegister", CallKind::RegisterBuffer, FoldClass::Makes(Thing::Registration, "handle")),
    call("ncclCommDeregister", CallKind::DeregisterBuffer, FoldClass::Ends(Thing::Registration, "handle")),
    // Groups, transfers, collectives.
    call("ncclGroupStart", CallKind::GroupStart, FoldClass::GroupStart),
    call("ncclGroupEnd", CallKind::GroupEnd, FoldClass::GroupEnd),
    call("ncclSend", CallKind::Transfer(Direction::Send), FoldClass::Sends),
    call("ncclRecv", CallKind::Transfer(Direction::Recv), FoldClass::Receives),
    collective("ncclAllReduce", CollectiveKind::AllReduce),
    collective("ncclAllGather", CollectiveKind::AllGather),
    collective("ncclReduceScatter", CollectiveKind::ReduceScatter),
    collective("ncclBroadcast", CollectiveKind::Broadcast { root: 0 }),
    collective("ncclReduce", CollectiveKind::Reduce { root: 0 }),
    collective("ncclAlltoAll", CollectiveKind::AllToAll),
    collective("ncclGather", CollectiveKind::Gather { root: 0 }),
    collective("ncclScatter", CollectiveKind::Scatter { root: 0 }),
    // Memory. Where memory of the driver comes from is seen by `cuMemMap`; handles and reservations touch nobody.
    call("ncclMemAlloc", CallKind::Allocate(Allocator::Nccl), FoldClass::Makes(Thing::Memory, "address")),
    call("ncclMemFree", CallKind::Free(Allocator::Nccl), FoldClass::Ends(Thing::Memory, "address")),
    call("cudaMalloc", CallKind::Allocate(Allocator::Cuda), FoldClass::Makes(Thing::Memory, "address")),
    call(
        "cudaMallocManaged",
        CallKind::Allocate(Allocator::Cuda),
        FoldClass::Makes(Thing::Memory, "address"),
    ),
    call(
        "cudaMallocPitch",
        CallKind::Allocate(Allocator::CudaPitched),
        FoldClass::Makes(Thing::Memory, "address"),
    ),
    call(
        "cuMemAllocManaged",
        CallKind::Allocate(Allocator::Cuda),
        FoldClass::Makes(Thing::Memory, "address"),
    ),
    call(
        "cuMemAllocPitch",
        CallKind::Allocate(Allocator::CudaPitched),
        FoldClass::Makes(Thing::Memory, "address"),
    ),
    call("cudaFree", CallKind::Free(Allocator::Cuda), FoldClass::Ends(Thing::Memory, "address")),
    call(
        "cudaMallocAsync",
        CallKind::Allocate(Allocator::CudaAsync),
        FoldClass::Makes(Thing::Memory, "address"),
    ),
    call(
        "cudaMallocFromPoolAsync",
        CallKind::Allocate(Allocator::CudaAsync),
        FoldClass::Makes(Thing::Memory, "address"),
    ),
    call("cudaFreeAsync", CallKind::Free(Allocator::CudaAsync), FoldClass::Ends(Thing::Memory, "address")),
    share("cudaMemPoolExportToShareableHandle", ShareableCall::ExportsPool),
    share("cudaMemPoolImportFromShareableHandle", ShareableCall::ImportsPool),
    share("cudaMemPoolExportPointer", ShareableCall::ExportsPointer),
    share("cudaMemPoolImportPointer", ShareableCall::ImportsPointer),
    call("cuMemAlloc", CallKind::Allocate(Allocator::Cuda), FoldClass::Makes(Thing::Memory, "address")),
    call("cuMemFree", CallKind::Free(Allocator::Cuda), FoldClass::Ends(Thing::Memory, "address")),
    call(
        "cuMemAllocAsync",
        CallKind::Allocate(Allocator::CudaAsync),
        FoldClass::Makes(Thing::Memory, "address"),
    ),
    call(
        "cuMemAllocFromPoolAsync",
        CallKind::Allocate(Allocator::CudaAsync),
        FoldClass::Makes(Thing::Memory, "address"),
    ),
    call("cuMemFreeAsync", CallKind::Free(Allocator::CudaAsync), FoldClass::Ends(Thing::Memory, "address")),
    share("cuMemPoolExportToShareableHandle", ShareableCall::ExportsPool),
    share("cuMemPoolImportFromShareableHandle", ShareableCall::ImportsPool),
    share("cuMemPoolExportPointer", ShareableCall::ExportsPointer),
    share("cuMemPoolImportPointer", ShareableCall::ImportsPointer),
    share("cuMemCreate", ShareableCall::CreatesMemory),
    call("cuMemRelease", CallKind::Nothing, FoldClass::Doubtful),
    call("cuMemAddressReserve", CallKind::Nothing, FoldClass::Doubtful),
    call("cuMemAddressFree", CallKind::Nothing, FoldClass::Doubtful),
    call("cuMemMap", CallKind::Map, FoldClass::Doubtful),
    call("cuMemUnmap", CallKind::Unmap, FoldClass::Doubtful),
    share("cuMemExportToShareableHandle", ShareableCall::ExportsMemory),
    share("cuMemImportFromShareableHandle", ShareableCall::ImportsMemory),
    call("cudaIpcGetMemHandle", CallKind::IpcExport, FoldClass::Doubtful),
    call("cudaIpcOpenMemHandle", CallKind::IpcOpen, FoldClass::Doubtful),
    call("cudaIpcCloseMemHandle", CallKind::IpcClose, FoldClass::Doubtful),
    call("cudaIpcGetEventHandle", CallKind::EventExport, FoldClass::Doubtful),
    call("cudaIpcOpenEventHandle", CallKind::EventOpen, FoldClass::Doubtful),
    call("cuIpcGetMemHandle", CallKind::IpcExport, FoldClass::Doubtful),
    call("cuIpcOpenMemHandle", CallKind::IpcOpen, FoldClass::Doubtful),
    call("cuIpcCloseMemHandle", CallKind::IpcClose, FoldClass::Doubtful),
    call("cuIpcGetEventHandle", CallKind::EventExport, FoldClass::Doubtful),
    call("cuIpcOpenEventHandle", CallKind::EventOpen, FoldClass::Doubtful),
    // Streams and events. What an event stands for at the end of an iteration is the same after each.
    call("cudaSetDevice", CallKind::Current(CurrentBy::Device), FoldClass::Local),
    call("cuDevicePrimaryCtxRetain", CallKind::Current(CurrentBy::Retained), FoldClass::Local),
    call("cuCtxCreate", CallKind::Current(CurrentBy::NewContext), FoldClass::Local),
    call("cuCtxSetCurrent", CallKind::Current(CurrentBy::Context), FoldClass::Local),
    call("cuCtxPushCurrent", CallKind::Current(CurrentBy::PushedContext), FoldClass::Local),
    call("cuCtxPopCurrent", CallKind::Current(CurrentBy::Popped), FoldClass::Local),
    call("cudaStreamCreate", CallKind::StreamCreate, FoldClass::Doubtful),
    call("cudaStreamCreateWithFlags", CallKind::StreamCreate, FoldClass::Doubtful),
    call("cudaStreamCreateWithPriority", CallKind::StreamCreate, FoldClass::Doubtful),
    call("cudaStreamDestroy", CallKind::StreamDestroy, FoldClass::Doubtful),
    call("cudaStreamSynchronize", CallKind::Synchronize(Awaitable::Stream), FoldClass::Local),
    call("cudaStreamQuery", CallKind::Query(Awaitable::Stream), FoldClass::Local),
    call("cudaDeviceSynchronize", CallKind::Synchronize(Awaitable::Device), FoldClass::Local),
    // An event stands for something once it is recorded.
    call("cudaEventCreate", CallKind::Nothing, FoldClass::Local),
    call("cudaEventCreateWithFlags", CallKind::Nothing, FoldClass::Local),
    call("cudaEventDestroy", CallKind::EventDestroy, FoldClass::Local),
    call("cudaEventSynchronize", CallKind::Synchronize(Awaitable::Event), FoldClass::Local),
    call("cudaEventQuery", CallKind::Query(Awaitable::Event), FoldClass::Local),
    call("cudaEventRecord", CallKind::EventRecord, FoldClass::Local),
    call("cudaEventRecordWithFlags", CallKind::EventRecord, FoldClass::Local),
    call("cudaStreamWaitEvent", CallKind::StreamWaitEvent, FoldClass::Local),
    call("cuStreamCreate", CallKind::StreamCreate, FoldClass::Doubtful),
    call("cuStreamCreateWithPriority", CallKind::StreamCreate, FoldClass::Doubtful),
    call("cuGreenCtxStreamCreate", CallKind::StreamCreate, FoldClass::Doubtful),
    call("cuStreamDestroy", CallKind::StreamDestroy, FoldClass::Doubtful),
    call("cuStreamSynchronize", CallKind::Synchronize(Awaitable::Stream), FoldClass::Local),
    call("cuStreamQuery", CallKind::Query(Awaitable::Stream), FoldClass::Local),
    call("cuCtxSynchronize", CallKind::Synchronize(Awaitable::Device), FoldClass::Local),
    call("cuEventDestroy", CallKind::EventDestroy, FoldClass::Local),
    call("cuEventSynchronize", CallKind::Synchronize(Awaitable::Event), FoldClass::Local),
    call("cuEventQuery", CallKind::Query(Awaitable::Event), FoldClass::Local),
    call("cuEventRecord", CallKind::EventRecord, FoldClass::Local),
    call("cuEventRecordWithFlags", CallKind::EventRecord, FoldClass::Local),
    call("cuStreamWaitEvent", CallKind::StreamWaitEvent, FoldClass::Local),
    call("cuStreamWriteValue64", CallKind::Unjudged(Unjudged::Word), FoldClass::Doubtful),
    call("cuStreamWaitValue64", CallKind::Unjudged(Unjudged::Word), FoldClass::Doubtful),
    call("cuStreamWriteValue32", CallKind::Unjudged(Unjudged::Word), FoldClass::Doubtful),
    call("cuStreamWaitValue32", CallKind::Unjudged(Unjudged::Word), FoldClass::Doubtful),
    call("cuStreamBatchMemOp", CallKind::Unjudged(Unjudged::Word), FoldClass::Doubtful),
    // Work on streams. To or from the host a copy without a stream returns when it is done.
    copy("cudaMemcpy", CopyReturns::WhenDone),
    copy("cudaMemcpyToSymbol", CopyReturns::WhenDone),
    copy("cudaMemcpyFromSymbol", CopyReturns::WhenDone),
    copy("cuMemcpy", CopyReturns::WhenDone),
    copy("cuMemcpyHtoD", CopyReturns::WhenDone),
    copy("cuMemcpyDtoH", CopyReturns::WhenDone),
    copy("cudaMemcpyAsync", CopyReturns::AtOnce),
    copy("cudaMemcpyPeer", CopyReturns::AtOnce),
    copy("cudaMemcpyPeerAsync", CopyReturns::AtOnce),
    copy("cudaMemcpyToSymbolAsync", CopyReturns::AtOnce),
    copy("cudaMemcpyFromSymbolAsync", CopyReturns::AtOnce),
    copy("cudaMemset", CopyReturns::AtOnce),
    copy("cudaMemsetAsync", CopyReturns::AtOnce),
    copy("cuMemcpyDtoD", CopyReturns::AtOnce),
    copy("cuMemcpyPeer", CopyReturns::AtOnce),
    copy("cuMemcpyAsync", CopyReturns::AtOnce),
    copy("cuMemcpyHtoDAsync", CopyReturns::AtOnce),
    copy("cuMemcpyDtoHAsync", CopyReturns::AtOnce),
    copy("cuMemcpyDtoDAsync", CopyReturns::AtOnce),
    copy("cuMemcpyPeerAsync", CopyReturns::AtOnce),
    copy("cudaMemcpy2D", CopyReturns::WhenDone),
    copy("cudaMemcpy3D", CopyReturns::WhenDone),
    copy("cuMemcpy2D", CopyReturns::WhenDone),
    copy("cuMemcpy2DUnaligned", CopyReturns::WhenDone),
    copy("cuMemcpy3D", CopyReturns::WhenDone),
    copy("cudaMemcpy2DAsync", CopyReturns::AtOnce),
    copy("cudaMemcpy3DAsync", CopyReturns::AtOnce),
    copy("cudaMemcpy3DPeer", CopyReturns::AtOnce),
    copy("cudaMemcpy3DPeerAsync", CopyReturns::AtOnce),
    copy("cudaMemset2D", CopyReturns::AtOnce),
    copy("cudaMemset2DAsync", CopyReturns::AtOnce),
    copy("cuMemcpy2DAsync", CopyReturns::AtOnce),
    copy("cuMemcpy3DAsync", CopyReturns::AtOnce),
    copy("cuMemcpy3DPeer", CopyReturns::AtOnce),
    copy("cuMemcpy3DPeerAsync", CopyReturns::AtOnce),
    copy("cuMemsetD2D8", CopyReturns::AtOnce),
    copy("cuMemsetD2D8Async", CopyReturns::AtOnce),
    copy("cuMemsetD2D16", CopyReturns::AtOnce),
    copy("cuMemsetD2D16Async", CopyReturns::AtOnce),
    copy("cuMemsetD2D32", CopyReturns::AtOnce),
    copy("cuMemsetD2D32Async", CopyReturns::AtOnce),
    copy("cuMemsetD8", CopyReturns::AtOnce),
    copy("cuMemsetD16", CopyReturns::AtOnce),
    copy("cuMemsetD32", CopyReturns::AtOnce),
    copy("cuMemsetD8Async", CopyReturns::AtOnce),
    copy("cuMemsetD16Async", CopyReturns::AtOnce),
    copy("cuMemsetD32Async", CopyReturns::AtOnce),
    call("cudaLaunchKernel", CallKind::Unjudged(Unjudged::Kernel), FoldClass::Local),
    call("cudaLaunchKernelExC", CallKind::Unjudged(Unjudged::Kernel), FoldClass::Local),
    call("cudaLaunchCooperativeKernel", CallKind::Unjudged(Unjudged::Kernel), FoldClass::Local),
    call("cudaLaunchCooperativeKernelMultiDevice", CallKind::Unjudged(Unjudged::Kernel), FoldClass::Local),
    call("cuLaunchKernel", CallKind::Unjudged(Unjudged::Kernel), FoldClass::Local),
    call("cuLaunchKernelEx", CallKind::Unjudged(Unjudged::Kernel), FoldClass::Local),
    call("cuLaunchCooperativeKernel", CallKind::Unjudged(Unjudged::Kernel), FoldClass::Local),
    call("cuLaunchCooperativeKernelMultiDevice", CallKind::Unjudged(Unjudged::Kernel), FoldClass::Local),
    call("cudaLaunchHostFunc", CallKind::HostFunction, FoldClass::Local),
    call("cudaStreamAddCallback", CallKind::HostFunction, FoldClass::Local),
    call("cuLaunchHostFunc", CallKind::HostFunction, FoldClass::Local),
    call("cuStreamAddCallback", CallKind::HostFunction, FoldClass::Local),
    call("host_function", CallKind::HostFunctionRuns, FoldClass::Local),
    // Graphs.
    call("cudaStreamBeginCapture", CallKind::BeginCapture, FoldClass::BeginCapture),
    call("cudaStreamEndCapture", CallKind::EndCapture, FoldClass::EndCapture),
    call("cudaGraphInstantiate", CallKind::Instantiate, FoldClass::Instantiate),
    call("cudaGraphInstantiateWithFlags", CallKind::Instantiate, FoldClass::Instantiate),
    call("cudaGraphCreate", CallKind::GraphCreate, FoldClass::Doubtful),
    call("cudaGraphClone", CallKind::GraphClone, FoldClass::Doubtful),
    node("cudaGraphAddKernelNode", CallKind::GraphNode(NodeKind::Kernel)),
    node("cudaGraphAddNode", CallKind::GraphNode(NodeKind::Said)),
    node("cudaGraphAddMemcpyNode", CallKind::GraphNode(NodeKind::Touches)),
    node("cudaGraphAddMemsetNode", CallKind::GraphNode(NodeKind::Touches)),
    node("cudaGraphAddHostNode", CallKind::GraphNode(NodeKind::Host)),
    node("cudaGraphAddEventRecordNode", CallKind::GraphNode(NodeKind::Records)),
    node("cudaGraphAddEventWaitNode", CallKind::GraphNode(NodeKind::Waits)),
    node("cudaGraphAddMemAllocNode", CallKind::GraphNode(NodeKind::Allocates)),
    node("cudaGraphAddMemFreeNode", CallKind::GraphNode(NodeKind::Frees)),
    node("cudaGraphAddChildGraphNode", CallKind::GraphNode(NodeKind::Child)),
    node("cudaGraphAddExternalSemaphoresSignalNode", CallKind::GraphNode(NodeKind::NotFollowed)),
    node("cudaGraphAddMemcpyNode1D", CallKind::GraphNode(NodeKind::Touches)),
    node("cudaGraphAddMemcpyNodeToSymbol", CallKind::GraphNode(NodeKind::Touches)),
    node("cudaGraphAddMemcpyNodeFromSymbol", CallKind::GraphNode(NodeKind::Touches)),
    node("cudaGraphExecNodeSetParams", CallKind::GraphNodeChange(NodeKind::Said)),
    node("cudaGraphExecMemcpyNodeSetParams", CallKind::GraphNodeChange(NodeKind::Touches)),
    node("cudaGraphExecMemsetNodeSetParams", CallKind::GraphNodeChange(NodeKind::Touches)),
    node("cudaGraphExecEventRecordNodeSetEvent", CallKind::GraphNodeChange(NodeKind::Records)),
    node("cudaGraphExecEventWaitNodeSetEvent", CallKind::GraphNodeChange(NodeKind::Waits)),
    node("cudaGraphExecChildGraphNodeSetParams", CallKind::GraphNodeChange(NodeKind::Child)),
    node("cudaGraphExecMemcpyNodeSetParams1D", CallKind::GraphNodeChange(NodeKind::Touches)),
    node("cudaGraphExecMemcpyNodeSetParamsToSymbol", CallKind::GraphNodeChange(NodeKind::Touches)),
    node("cudaGraphExecMemcpyNodeSetParamsFromSymbol", CallKind::GraphNodeChange(NodeKind::Touches)),
    node("cudaGraphNodeSetParams", CallKind::GraphNodeChange(NodeKind::Said)),
    node("cudaGraphMemcpyNodeSetParams", CallKind::GraphNodeChange(NodeKind::Touches)),
    node("cudaGraphMemsetNodeSetParams", CallKind::GraphNodeChange(NodeKind::Touches)),
    node("cudaGraphEventRecordNodeSetEvent", CallKind::GraphNodeChange(NodeKind::Records)),
    node("cudaGraphEventWaitNodeSetEvent", CallKind::GraphNodeChange(NodeKind::Waits)),
    node("cudaGraphMemcpyNodeSetParams1D", CallKind::GraphNodeChange(NodeKind::Touches)),
    node("cudaGraphMemcpyNodeSetParamsToSymbol", CallKind::GraphNodeChange(NodeKind::Touches)),
    node("cudaGraphMemcpyNodeSetParamsFromSymbol", CallKind::GraphNodeChange(NodeKind::Touches)),
    node("cudaGraphAddDependencies", CallKind::GraphEdges),
    node("cudaGraphRemoveDependencies", CallKind::GraphEdgesRemove),
    node("cudaGraphDestroyNode", CallKind::GraphNodeDestroy),
    call("cudaStreamBeginCaptureToGraph", CallKind::BeginCapture, FoldClass::Doubtful),
    call("cudaGraphExecUpdate", CallKind::GraphUpdate, FoldClass::Doubtful),
    call("cudaGraphLaunch", CallKind::GraphLaunch, FoldClass::Launch),
    call("cudaGraphExecDestroy", CallKind::ExecutableDestroy, FoldClass::Doubtful),
    call("cudaGraphDestroy", CallKind::GraphDestroy, FoldClass::Doubtful),
    call("cuStreamBeginCapture", CallKind::BeginCapture, FoldClass::BeginCapture),
    call("cuStreamEndCapture", CallKind::EndCapture, FoldClass::EndCapture),
    call("cuGraphInstantiate", CallKind::Instantiate, FoldClass::Instantiate),
    call("cuGraphCreate", CallKind::GraphCreate, FoldClass::Doubtful),
    call("cuGraphClone", CallKind::GraphClone, FoldClass::Doubtful),
    node("cuGraphAddKernelNode", CallKind::GraphNode(NodeKind::Kernel)),
    node("cuGraphAddNode", CallKind::GraphNode(NodeKind::Said)),
    node("cuGraphAddMemcpyNode", CallKind::GraphNode(NodeKind::Touches)),
    node("cuGraphAddMemsetNode", CallKind::GraphNode(NodeKind::Touches)),
    node("cuGraphAddHostNode", CallKind::GraphNode(NodeKind::Host)),
    node("cuGraphAddEventRecordNode", CallKind::GraphNode(NodeKind::Records)),
    node("cuGraphAddEventWaitNode", CallKind::GraphNode(NodeKind::Waits)),
    node("cuGraphAddMemAllocNode", CallKind::GraphNode(NodeKind::Allocates)),
    node("cuGraphAddMemFreeNode", CallKind::GraphNode(NodeKind::Frees)),
    node("cuGraphAddChildGraphNode", CallKind::GraphNode(NodeKind::Child)),
    node("cuGraphAddExternalSemaphoresSignalNode", CallKind::GraphNode(NodeKind::NotFollowed)),
    node("cuGraphExecNodeSetParams", CallKind::GraphNodeChange(NodeKind::Said)),
    node("cuGraphExecMemcpyNodeSetParams", CallKind::GraphNodeChange(NodeKind::Touches)),
    node("cuGraphExecMemsetNodeSetParams", CallKind::GraphNodeChange(NodeKind::Touches)),
    node("cuGraphExecEventRecordNodeSetEvent", CallKind::GraphNodeChange(NodeKind::Records)),
    node("cuGraphExecEventWaitNodeSetEvent", CallKind::GraphNodeChange(NodeKind::Waits)),
    node("cuGraphExecChildGraphNodeSetParams", CallKind::GraphNodeChange(NodeKind::Child)),
    node("cuGraphNodeSetParams", CallKind::GraphNodeChange(NodeKind::Said)),
    node("cuGraphMemcpyNodeSetParams", CallKind::GraphNodeChange(NodeKind::Touches)),
    node("cuGraphMemsetNodeSetParams", CallKind::GraphNodeChange(NodeKind::Touches)),
    node("cuGraphEventRecordNodeSetEvent", CallKind::GraphNodeChange(NodeKind::Records)),
    node("cuGraphEventWaitNodeSetEvent", CallKind::GraphNodeChange(NodeKind::Waits)),
    node("cuGraphAddDependencies", CallKind::GraphEdges),
    node("cuGraphRemoveDependencies", CallKind::GraphEdgesRemove),
    node("cuGraphDestroyNode", CallKind::GraphNodeDestroy),
    call("cuStreamBeginCaptureToGraph", CallKind::BeginCapture, FoldClass::Doubtful),
    call("cuGraphExecUpdate", CallKind::GraphUpdate, FoldClass::Doubtful),
    call("cuGraphLaunch", CallKind::GraphLaunch, FoldClass::Launch),
    call("cuGraphExecDestroy", CallKind::ExecutableDestroy, FoldClass::Doubtful),
    call("cuGraphDestroy", CallKind::GraphDestroy, FoldClass::Doubtful),
    // What the recorder and PyTorch say.
    call("process", CallKind::Process, FoldClass::Doubtful),
    call("exit", CallKind::Exit, FoldClass::Doubtful),
    call("ncclGroupEnd.window", CallKind::GroupWindow, FoldClass::Doubtful),
    call("exception", CallKind::Exception, FoldClass::Doubtful),
    call("communicator", CallKind::Exists, FoldClass::Doubtful),
    call("torch.process_group", CallKind::ProcessGroup, FoldClass::Local),
    call("torch.distributed.init_process_group", CallKind::MakesGroup, FoldClass::Local),
    call("torch.distributed.new_group", CallKind::MakesGroup, FoldClass::Local),
    call("torch.distributed.barrier", CallKind::Barrier, FoldClass::Local),
    call("torch.distributed._symmetric_memory.rendezvous", CallKind::Rendezvous, FoldClass::Doubtful),
    signal("torch.distributed._symmetric_memory.barrier", SignalCall::Barrier),
    signal("torch.distributed._symmetric_memory.put_signal", SignalCall::Put),
    signal("torch.distributed._symmetric_memory.wait_signal", SignalCall::Wait),
    call("torch.autograd.backward", CallKind::Backward, FoldClass::Local),
    call("torch.block.alloc", CallKind::Note, FoldClass::Notes(Thing::Block, "address")),
    call("torch.block.free", CallKind::Note, FoldClass::Ends(Thing::Block, "address")),
    call("torch.segment.alloc", CallKind::Note, FoldClass::Notes(Thing::Segment, "address")),
    call("torch.segment.free", CallKind::Note, FoldClass::Ends(Thing::Segment, "address")),
];

/// Calls that are known by how their names begin; the first that fits counts.
static FAMILIES: [VendorCall; 3] = [
    signal("torch.ops.symm_mem.", SignalCall::Kernel),
    call("torch.distributed.Store.", CallKind::Store, FoldClass::Doubtful),
    // Of Python only the lines in source of the calls inside count.
    call("torch.", CallKind::Note, FoldClass::Local),
];

/// Calls without a row: the vendor's, and what a program tells of itself.
static STRANGE: [VendorCall; 2] = [
    call("", CallKind::Unjudged(Unjudged::NoRow), FoldClass::Doubtful),
    call("", CallKind::Unjudged(Unjudged::Foreign), FoldClass::Doubtful),
];

/// The row of a call.
pub(super) fn row(name: &str) -> &'static VendorCall {
    static BY_NAME: LazyLock<FxHashMap<&'static str, &'static VendorCall>> =
        LazyLock::new(|| CALLS.iter().map(|call| (call.name, call)).collect());
    let family = || FAMILIES.iter().find(|family| name.starts_with(family.name));
    BY_NAME.get(name).copied().or_else(family).unwrap_or(&STRANGE[usize::from(!is_vendors(name))])
}

/// Whether a name is one of the vendor's calls, known or not.
pub(super) fn is_vendors(name: &str) -> bool {
    ["nccl", "pnccl", "cu"].iter().any(|prefix| name.starts_with(prefix))
}

impl CallKind {
    /// What a call of this name is.
    pub(super) fn of(name: &str) -> Self {
        row(name).kind
    }

    /// Whether a call of this kind does nothing: NCCL drops a collective without elements on
    /// the rank that calls it (`enqueue.cc:3024`).
    pub(super) fn is_empty(self, call: &Shape) -> bool {
        matches!(self, Self::Collective(_)) && call.get("count").and_then(Argument::number) == Some(0)
    }

    /// Whether it looks without waiting.
    pub(super) fn polls(self) -> bool {
        matches!(self, Self::Query(_))
    }

    /// Whether communicators come or go.
    pub(super) fn of_comms(self) -> bool {
        matches!(self, Self::Init | Self::InitAll | Self::Split | Self::Shrink | Self::Destroy)
    }

    /// Whether it waits for other ranks, so that other threads may go on meanwhile.
    pub(super) fn meets(self) -> bool {
        matches!(self, Self::Init | Self::Split | Self::Shrink | Self::Register)
    }

    /// Whether it waits for the end of a group that it is in.
    pub(super) fn grouped(self) -> bool {
        self.meets() || matches!(self, Self::Collective(_) | Self::Transfer(_))
    }

    /// Whether it is a call of the vendor's, and more than a look.
    pub(super) fn is_call(self) -> bool {
        !self.is_python() && !matches!(self, Self::Store | Self::Query(_))
    }

    /// Whether it is a frame of Python, or something that was noted.
    fn is_python(self) -> bool {
        matches!(
            self,
            Self::Note
                | Self::ProcessGroup
                | Self::MakesGroup
                | Self::Barrier
                | Self::Backward
                | Self::Exception
                | Self::Exists
        )
    }

    /// Whether it shows that its thread goes on with the program: not a look, nor what runs beside it.
    pub(super) fn acts(self) -> bool {
        self.is_call() && !matches!(self, Self::Nothing | Self::Current(_) | Self::EventDestroy)
            || matches!(self, Self::Store | Self::MakesGroup)
    }

    /// The arguments of which one that is not known leaves open what a call of this kind is about, or whether
    /// and with whom it meets.
    pub(super) fn decided_by(self) -> &'static [&'static str] {
        match self {
            Self::Init => &["id", "rank", "ranks"],
            Self::InitAll => &["ranks"],
            Self::Split => &["comm", "color", "key"],
            Self::Shrink => &["comm", "excluded"],
            Self::Destroy => &["comm"],
            Self::Register => &["comm", "address", "bytes", "flags"],
            Self::Deregister => &["comm", "window"],
            Self::Transfer(_) => &["comm", "peer", "stream", "address"],
            Self::Collective(_) => &["comm", "stream", "send", "recv"],
            Self::Allocate(Allocator::CudaAsync) => &["bytes", "stream"],
            Self::Allocate(Allocator::Nccl | Allocator::Cuda) => &["bytes"],
            Self::Allocate(Allocator::CudaPitched) => &[],
            Self::Map => &["address", "bytes"],
            Self::Free(Allocator::CudaAsync) => &["address", "stream"],
            Self::Free(Allocator::Nccl | Allocator::Cuda | Allocator::CudaPitched)
            | Self::Unmap
            | Self::IpcExport
            | Self::IpcClose => &["address"],
            Self::IpcOpen => &["handle"],
            Self::EventExport => &["event"],
            // Of what is not known it is said that it is not judged.
            Self::EventOpen | Self::Share(_) | Self::Rendezvous | Self::Signal(_) => &[],
            Self::StreamDestroy => &["stream"],
            Self::StreamCreate | Self::BeginCapture | Self::EndCapture => &[],
            Self::Synchronize(Awaitable::Stream) | Self::Query(Awaitable::Stream) => &["stream"],
            Self::Synchronize(Awaitable::Event) | Self::Query(Awaitable::Event) | Self::EventDestroy => {
                &["event"]
            }
            Self::Synchronize(Awaitable::Device) | Self::Query(Awaitable::Device) => &[],
            Self::EventRecord | Self::StreamWaitEvent => &["event", "stream"],
            // Of a copy only what it touches may be unknown.
            Self::Copy(_) => &[],
            Self::HostFunction | Self::HostFunctionRuns => &[],
            Self::Instantiate | Self::GraphDestroy => &["graph"],
            Self::GraphUpdate => &["executable", "graph"],
            Self::GraphCreate
            | Self::GraphClone
            | Self::GraphNode(_)
            | Self::GraphNodeChange(_)
            | Self::GraphNodeDestroy
            | Self::GraphEdges
            | Self::GraphEdgesRemove => &[],
            Self::GraphLaunch => &["executable", "stream"],
            Self::ExecutableDestroy => &["executable"],
            Self::RegisterBuffer
            | Self::DeregisterBuffer
            | Self::GroupStart
            | Self::GroupEnd
            | Self::Nothing
            | Self::Current(_)
            | Self::Unjudged(_)
            | Self::Store
            | Self::Process
            | Self::Exit
            | Self::GroupWindow
            | Self::ProcessGroup
            | Self::MakesGroup
            | Self::Barrier
            | Self::Backward
            | Self::Exception
            | Self::Exists
            | Self::Note => &[],
        }
    }

    /// The arguments of a call that are not known and that all who meet in it have to agree on.
    #[expect(clippy::wildcard_enum_match_arm, reason = "two kinds of call meet so")]
    pub(super) fn open(self, call: &Shape) -> Vec<&'static str> {
        let mut agreed = match self {
            Self::Transfer(_) | Self::Collective(_) => vec!["count", "dtype"],
            _ => return Vec::new(),
        };
        if let Self::Collective(kind) = self {
            agreed.extend(kind.reduces().then_some("op"));
            agreed.extend((kind.root() != Root::None).then_some("root"));
        }
        agreed.retain(|key| matches!(call.get(key), None | Some(Argument::None)));
        agreed
    }

    /// What a call of this kind returns that others name later.
    #[expect(clippy::wildcard_enum_match_arm, reason = "few calls make something")]
    pub(super) fn makes(self) -> Option<&'static str> {
        match self {
            Self::Init | Self::InitAll | Self::Split | Self::Shrink => Some("comm"),
            Self::Allocate(_) | Self::IpcOpen => Some("address"),
            Self::StreamCreate => Some("stream"),
            Self::EventOpen => Some("event"),
            Self::EndCapture | Self::GraphCreate | Self::GraphClone => Some("graph"),
            Self::Instantiate => Some("executable"),
            Self::Register => Some("window"),
            _ => None,
        }
    }

    /// The first value without which nobody knows what a call does, or whether and with whom it meets.
    pub(super) fn lacks(self, call: &Shape) -> Option<&'static str> {
        let unknown = |key: &&str| matches!(call.get(key), None | Some(Argument::None));
        let decided = self.decided_by().iter().copied().find(unknown);
        // Not every call that may be given these is.
        decided.or_else(|| {
            let does = !matches!(self, Self::Unjudged(_) | Self::Nothing | Self::Note);
            let options = ["stream", "flags", "blocking", "share"];
            options.into_iter().find(|key| does && call.get(key) == Some(&Argument::None))
        })
    }

    /// Whether a call returns only once the other members make it too, beyond what its operation says: the vendor calls
    /// `ncclCommDestroy` "an intra-node collective call", and `ncclCommAbort` not.
    pub(super) fn destroys_together(self, call: &Shape) -> bool {
        self == Self::Destroy && &*call.name == "ncclCommDestroy"
    }

    /// Whether a call ends what its communicator's devices and hosts are in, without the other members.
    pub(super) fn aborts(self, call: &Shape) -> bool {
        self == Self::Destroy && &*call.name == "ncclCommAbort"
    }

    /// Whether every rank has to make a call.
    pub(super) fn is_every_ranks(self, call: &Shape) -> bool {
        self == Self::MakesGroup && call.get("local").and_then(Argument::number).unwrap_or(0) == 0
    }

    /// Whether a call of this kind makes a communicator for its caller.
    pub(super) fn makes_comm(self, call: &Shape) -> bool {
        matches!(self, Self::Init | Self::InitAll | Self::Shrink)
            || self == Self::Split && signed(call, "color") >= 0
    }
}

/// An argument that may be negative; 0 if there is none. The color of a split is below 0 if its caller becomes no
/// member (`NCCL_SPLIT_NOCOLOR` is -1).
pub(super) fn signed(call: &Shape, key: &str) -> i64 {
    call.get(key).map_or(0, |value| whole(value).unwrap_or(0))
}

/// The vendor's number of the error that a call returned.
pub(super) fn failure(result: Option<&Shape>) -> Option<i64> {
    let failed = result.filter(|result| &*result.name == "failed")?;
    Some(failed.get("code").and_then(whole).unwrap_or(-1))
}

#[expect(clippy::wildcard_enum_match_arm, reason = "every other kind is asked for its number")]
fn whole(value: &Argument) -> Option<i64> {
    match value {
        Argument::Signed(number) => Some(*number),
        other => other.number().and_then(|number| i64::try_from(number).ok()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The names under which the recorder's tables record calls.
    fn recorded_names() -> Vec<&'static str> {
        let tables = [
            include_str!("../../../record/src/ffi/nccl.rs"),
            include_str!("../../../record/src/ffi/runtime.rs"),
            include_str!("../../../record/src/ffi/driver.rs"),
        ];
        let entry = |text: &'static str| {
            let name =
                text.split('(').next().filter(|name| name.starts_with("nccl") || name.starts_with("cu"))?;
            let (definition, _) = text.split_once(';')?;
            let other = definition.split_once(" as \"").and_then(|(_, rest)| rest.split('"').next());
            Some(other.unwrap_or(name))
        };
        tables.into_iter().flat_map(|table| table.split("fn ").filter_map(entry)).collect()
    }

    #[test]
    fn every_call_that_is_recorded_has_a_row() {
        let names = recorded_names();
        assert!(names.len() > 60, "{names:?}");
        for name in names {
            assert_eq!(row(name).name, name);
        }
    }

    #[test]
    fn no_call_has_two_rows() {
        let mut names: Vec<&str> = CALLS.iter().map(|call| call.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), CALLS.len());
    }

    #[test]
    fn families_are_known_by_how_their_names_begin() {
        assert_eq!(CallKind::of("torch.distributed.Store.set"), CallKind::Store);
        assert_eq!(CallKind::of("torch.nn.Module"), CallKind::Note);
        assert_eq!(CallKind::of("ncclFuture"), CallKind::Unjudged(Unjudged::NoRow));
        assert_eq!(CallKind::of("loader.step"), CallKind::Unjudged(Unjudged::Foreign));
    }
}
