//! Which calls exist: one table of names, for all that reads recordings.
//!
//! Not here: what calls mean as operations ([`super::lower`]), and what they count when iterations are folded
//! ([`super::fold`]).

use rankcheck_recording::{Shape, Value};

/// Kinds of call, as far as somebody treats them differently.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// `ncclCommInitRank` and its variants.
    Init,
    Split,
    Shrink,
    Destroy,
    /// A window.
    Register,
    Deregister,
    /// A buffer, which is the process's own affair.
    RegisterBuffer,
    DeregisterBuffer,
    GroupStart,
    GroupEnd,
    Send,
    Receive,
    /// A collective of the model.
    Collect,
    /// A collective that NCCL does as sends and receives.
    Exchange,
    /// Memory appears.
    Allocate,
    /// Memory goes.
    Free,
    /// Memory appears or goes at an address that was reserved.
    Map,
    Unmap,
    /// A query of a stream or event, which polls.
    Query,
    /// Streams come and go.
    Stream,
    EventDestroy,
    /// Order, copies and fills, on what exists.
    Work,
    BeginCapture,
    EndCapture,
    Instantiate,
    GraphLaunch,
    GraphDestroy,
    /// Memory is lent to other processes, or theirs is opened.
    IpcExport,
    IpcOpen,
    IpcClose,
    /// It is counted as not judged.
    Kernel,
    /// Nothing follows from it.
    Nothing,
    /// Nothing follows from it where it is called, but it may be the first half of something.
    Handle,
    /// Notes of an allocator.
    BlockAlloc,
    BlockFree,
    SegmentAlloc,
    SegmentFree,
    /// Traffic of a store.
    Store,
    /// Another frame of Python around vendor calls, or a note of one.
    Python,
    /// It is counted as not judged.
    Unknown,
}

impl Kind {
    pub(super) fn of(name: &str) -> Self {
        match name {
            "ncclCommInitRank" | "ncclCommInitRankConfig" | "ncclCommInitRankScalable" => Self::Init,
            "ncclCommSplit" => Self::Split,
            "ncclCommShrink" => Self::Shrink,
            "ncclCommDestroy" | "ncclCommAbort" => Self::Destroy,
            "ncclCommWindowRegister" => Self::Register,
            "ncclCommWindowDeregister" => Self::Deregister,
            "ncclCommRegister" => Self::RegisterBuffer,
            "ncclCommDeregister" => Self::DeregisterBuffer,
            "ncclGroupStart" => Self::GroupStart,
            "ncclGroupEnd" => Self::GroupEnd,
            "ncclSend" => Self::Send,
            "ncclRecv" => Self::Receive,
            "ncclAllReduce" | "ncclReduceScatter" | "ncclAllGather" | "ncclBroadcast" | "ncclReduce" => {
                Self::Collect
            }
            "ncclAlltoAll" | "ncclGather" | "ncclScatter" => Self::Exchange,
            "ncclMemAlloc" | "cudaMalloc" | "cudaMallocAsync" => Self::Allocate,
            "ncclMemFree" | "cudaFree" | "cudaFreeAsync" => Self::Free,
            "cuMemMap" => Self::Map,
            "cuMemUnmap" => Self::Unmap,
            "cudaStreamQuery" | "cudaEventQuery" => Self::Query,
            "cudaStreamCreate"
            | "cudaStreamCreateWithFlags"
            | "cudaStreamCreateWithPriority"
            | "cudaStreamDestroy" => Self::Stream,
            "cudaEventDestroy" => Self::EventDestroy,
            "cudaStreamSynchronize"
            | "cudaDeviceSynchronize"
            | "cudaEventSynchronize"
            | "cudaEventRecord"
            | "cudaEventRecordWithFlags"
            | "cudaStreamWaitEvent"
            | "cudaMemcpy"
            | "cudaMemcpyAsync"
            | "cudaMemset"
            | "cudaMemsetAsync" => Self::Work,
            "cudaStreamBeginCapture" => Self::BeginCapture,
            "cudaStreamEndCapture" => Self::EndCapture,
            "cudaGraphInstantiate" | "cudaGraphInstantiateWithFlags" => Self::Instantiate,
            "cudaGraphLaunch" => Self::GraphLaunch,
            "cudaGraphExecDestroy" | "cudaGraphDestroy" => Self::GraphDestroy,
            "cudaIpcGetMemHandle" => Self::IpcExport,
            "cudaIpcOpenMemHandle" => Self::IpcOpen,
            "cudaIpcCloseMemHandle" => Self::IpcClose,
            "cudaLaunchKernel" | "cudaLaunchKernelExC" | "cuLaunchKernel" | "cuLaunchKernelEx" => {
                Self::Kernel
            }
            // An event stands for something once it is recorded.
            "cudaSetDevice" | "cudaLaunchHostFunc" | "cudaEventCreate" | "cudaEventCreateWithFlags" => {
                Self::Nothing
            }
            // Where memory comes from is seen by `cuMemMap`; handles and reservations touch nobody.
            "ncclGetUniqueId"
            | "ncclCommFinalize"
            | "cuMemCreate"
            | "cuMemRelease"
            | "cuMemAddressReserve"
            | "cuMemAddressFree"
            | "cuMemExportToShareableHandle" => Self::Handle,
            "torch.block.alloc" => Self::BlockAlloc,
            "torch.block.free" => Self::BlockFree,
            "torch.segment.alloc" => Self::SegmentAlloc,
            "torch.segment.free" => Self::SegmentFree,
            _ if name.starts_with("torch.distributed.Store.") => Self::Store,
            _ if name.starts_with("torch.") => Self::Python,
            _ => Self::Unknown,
        }
    }

    /// Whether it looks without waiting.
    pub(super) fn polls(self) -> bool {
        self == Self::Query
    }

    /// Whether communicators come or go.
    pub(super) fn of_comms(self) -> bool {
        matches!(self, Self::Init | Self::Split | Self::Shrink | Self::Destroy)
    }

    /// Whether it waits for other ranks, so that other threads may go on meanwhile.
    pub(super) fn meets(self) -> bool {
        matches!(self, Self::Init | Self::Split | Self::Shrink | Self::Register)
    }

    /// Whether it waits for the end of a group that it is in.
    pub(super) fn grouped(self) -> bool {
        self.meets() || matches!(self, Self::Collect | Self::Send | Self::Receive | Self::Exchange)
    }

    /// Whether it is a call of the vendor's, and more than a look.
    pub(super) fn is_call(self) -> bool {
        !matches!(
            self,
            Self::Python
                | Self::Store
                | Self::BlockAlloc
                | Self::BlockFree
                | Self::SegmentAlloc
                | Self::SegmentFree
                | Self::Query
        )
    }

    /// Whether a call of this kind makes a communicator for its caller.
    pub(super) fn makes_comm(self, call: &Shape) -> bool {
        matches!(self, Self::Init | Self::Shrink) || self == Self::Split && color(call) >= 0
    }
}

/// The color of a split; negative is none.
pub(super) fn color(call: &Shape) -> i64 {
    match call.get("color") {
        Some(Value::Signed(color)) => *color,
        Some(other) => other.number().and_then(|color| i64::try_from(color).ok()).unwrap_or(0),
        None => 0,
    }
}
