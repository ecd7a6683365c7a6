//! The vendor's numbers: types, reductions, error codes.
//!
//! Source: `nccl.h` of 2.28.9, `driver_types.h` of CUDA 13. Not here: what calls mean.

use rankcheck_model::{Dtype, ReduceOp};

use super::call::{CallKind, NodeKind};

/// `cudaErrorNotReady`: the answer of a query, and no error.
pub(crate) const NOT_READY: i64 = 600;

/// `cudaErrorInvalidValue`: no argument of this value is good.
const INVALID_VALUE: i64 = 1;

/// `cudaErrorInvalidResourceHandle`: what the call works on is gone, or of another device.
const INVALID_HANDLE: i64 = 400;

/// `cudaErrorStreamCaptureUnjoined`: a capture ends and does not stand behind all that was launched in it.
pub(crate) const UNJOINED: i64 = 904;

/// The legacy default stream by its handles (`cudaStreamLegacy` is 1).
pub(crate) const LEGACY_STREAM: [u64; 2] = [0, 1];

/// The default stream of the calling thread by its handle (`cudaStreamPerThread`); it waits for the legacy one, as others do.
pub(crate) const PER_THREAD_STREAM: u64 = 2;

/// Whether an error says that a call was wrong, or that something before it was. Others are about memory that runs out, a
/// network, or what a device cannot do. Programs try with values that they do not know to be good, such as a pointer that may be the host's:
/// so only calls that need no try are accused of theirs.
pub(crate) fn accuses(call: &str, code: i64) -> bool {
    if call.starts_with("nccl") {
        return matches!(code, 4 | 5);
    }
    let needs_no_try = matches!(
        CallKind::of(call),
        CallKind::Free(_)
            | CallKind::Copy(_)
            | CallKind::EventRecord
            | CallKind::StreamWaitEvent
            | CallKind::Synchronize(_)
    );
    matches!(code, 700..=720 | 900..=908) || needs_no_try && matches!(code, INVALID_VALUE | INVALID_HANDLE)
}

/// `ncclDataType_t`. Unsigned numbers are taken for signed ones of their size.
pub(crate) fn dtype(number: u64) -> Option<Dtype> {
    Some(match number {
        0 => Dtype::I8,
        1 => Dtype::U8,
        2 | 3 => Dtype::I32,
        4 | 5 => Dtype::I64,
        6 => Dtype::F16,
        7 => Dtype::F32,
        8 => Dtype::F64,
        9 => Dtype::Bf16,
        10 | 11 => Dtype::Fp8,
        _ => return None,
    })
}

/// `ncclRedOp_t`. What a program made itself is taken for a product, which no symmetric kernel does either.
pub(crate) fn reduction(number: u64) -> ReduceOp {
    match number {
        0 => ReduceOp::Sum,
        2 => ReduceOp::Max,
        3 => ReduceOp::Min,
        4 => ReduceOp::Avg,
        _ => ReduceOp::Prod,
    }
}

/// What a node of a graph does (`CUgraphNodeType`, which `cudaGraphNodeType` equals).
pub(crate) fn node(number: u64) -> NodeKind {
    match number {
        0 | 5 => NodeKind::Kernel,
        1 | 2 => NodeKind::Touches,
        3 => NodeKind::Host,
        4 => NodeKind::Child,
        6 => NodeKind::Waits,
        7 => NodeKind::Records,
        10 => NodeKind::Allocates,
        11 => NodeKind::Frees,
        _ => NodeKind::NotFollowed,
    }
}

/// What an error is called, by the call that returned it.
pub(crate) fn error(call: &str, code: i64) -> &'static str {
    if !call.starts_with("nccl") {
        return match code {
            1 => "invalid value",
            2 => "out of memory",
            400 => "invalid handle",
            700 => "illegal address",
            719 => "launch failure",
            801 => "not supported",
            900 => "not permitted while a stream is captured",
            901 => "the capture was lost before",
            904 => "the capture has work that it does not stand behind",
            _ => "an error",
        };
    }
    match code {
        1 => "ncclUnhandledCudaError",
        2 => "ncclSystemError",
        3 => "ncclInternalError",
        4 => "ncclInvalidArgument",
        5 => "ncclInvalidUsage",
        6 => "ncclRemoteError",
        7 => "ncclInProgress",
        _ => "an error",
    }
}
