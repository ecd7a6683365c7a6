//! Collectives: each member of a communicator launches its part. And the two halves of point-to-point, for
//! the exchange that connects every pair.
//!
//! Each call returns when the kernel is launched; inside a group, when the call is queued. The first of a
//! communicator blocks the host until the peers come.
//! Not here: which call a kind is ([`crate::ffi::nccl`]), whether the members' calls fit together, and which kernel
//! NCCL chooses.

use cudarc::nccl::sys::{ncclDataType_t, ncclRedOp_t};
use rankcheck_model::{CollectiveKind, Dtype, ReduceOp};

use crate::Error;
use crate::comm::NcclComm;
use crate::ffi::DeviceRange;
use crate::ffi::nccl::{CollectiveCall, TransferCall};
use crate::stream::CudaStream;

/// How many elements of which type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Elements {
    /// Number of elements of one rank's part. Not compared with the lengths of the buffers.
    pub count: u64,
    /// Type of one element; with `count` it gives the length of a part.
    pub dtype: Dtype,
}

/// Input and output, which may be the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Buffers {
    /// What the member gives; of some kinds it counts on the root alone.
    pub send: DeviceRange,
    /// Where the result goes; of some kinds it counts on the root alone.
    pub recv: DeviceRange,
}

/// A collective of any kind; `elements` is one rank's part. A root is a position in the communicator.
///
/// # Errors
/// [`Error::Nccl`], also when there is no such root.
pub fn collective(
    comm: &NcclComm,
    buffers: &Buffers,
    elements: Elements,
    (kind, op): (CollectiveKind, ReduceOp),
    stream: &CudaStream,
) -> Result<(), Error> {
    let Buffers { send, recv } = *buffers;
    let (count, dtype, op) = (elements.count, data_type(elements.dtype), red_op(op));
    comm.owner.collective(kind, &CollectiveCall { send, recv, count, dtype, op }, &stream.owner)
}

/// `ncclSend`; the peer is a position in the communicator.
///
/// # Errors
/// [`Error::Nccl`], also when there is no such member.
pub fn send(
    comm: &NcclComm,
    buffer: &DeviceRange,
    elements: Elements,
    peer: u32,
    stream: &CudaStream,
) -> Result<(), Error> {
    comm.owner.send(&transfer(buffer, elements, peer), &stream.owner)
}

/// `ncclRecv`; the peer is a position in the communicator.
///
/// # Errors
/// [`Error::Nccl`], also when there is no such member.
pub fn receive(
    comm: &NcclComm,
    buffer: &DeviceRange,
    elements: Elements,
    peer: u32,
    stream: &CudaStream,
) -> Result<(), Error> {
    comm.owner.receive(&transfer(buffer, elements, peer), &stream.owner)
}

fn transfer(buffer: &DeviceRange, elements: Elements, peer: u32) -> TransferCall {
    TransferCall { buffer: *buffer, count: elements.count, dtype: data_type(elements.dtype), peer }
}

fn data_type(dtype: Dtype) -> ncclDataType_t {
    match dtype {
        Dtype::F16 => ncclDataType_t::ncclFloat16,
        Dtype::Bf16 => ncclDataType_t::ncclBfloat16,
        Dtype::F32 => ncclDataType_t::ncclFloat32,
        Dtype::F64 => ncclDataType_t::ncclFloat64,
        Dtype::I8 => ncclDataType_t::ncclInt8,
        Dtype::U8 => ncclDataType_t::ncclUint8,
        Dtype::I32 => ncclDataType_t::ncclInt32,
        Dtype::I64 => ncclDataType_t::ncclInt64,
        // Of the two 8-bit formats, the one that symmetric kernels reduce and inference uses.
        Dtype::Fp8 => ncclDataType_t::ncclFloat8e4m3,
        Dtype::Invalid => ncclDataType_t::ncclNumTypes,
    }
}

fn red_op(op: ReduceOp) -> ncclRedOp_t {
    match op {
        ReduceOp::Sum => ncclRedOp_t::ncclSum,
        ReduceOp::Prod => ncclRedOp_t::ncclProd,
        ReduceOp::Min => ncclRedOp_t::ncclMin,
        ReduceOp::Max => ncclRedOp_t::ncclMax,
        ReduceOp::Avg => ncclRedOp_t::ncclAvg,
        ReduceOp::Invalid => ncclRedOp_t::ncclNumOps,
    }
}
