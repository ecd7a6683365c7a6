//! Collectives: each member of a communicator launches its part. And the two halves of point-to-point, for
//! the exchange that connects every pair.
//!
//! Each call returns when the kernel is launched; inside a group, when the call is queued. The first of a
//! communicator blocks the host until the peers come.
//! Not here: whether the members' calls fit together, and which kernel NCCL chooses.

use std::ffi::c_int;

use cudarc::nccl::sys::{ncclDataType_t, ncclRedOp_t};
use rankcheck_model::{CollectiveKind, Dtype, ReduceOp};

use crate::Error;
use crate::comm::Comm;
use crate::ffi::DeviceRange;
use crate::ffi::nccl::{Kind, Launch};
use crate::stream::Stream;

/// How many elements of which type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Elements {
    /// Number of elements of one rank's part. Not compared with the lengths of the buffers.
    pub count: u64,
    /// Element type.
    pub dtype: Dtype,
}

/// Input and output, which may be the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Buffers {
    /// Input.
    pub send: DeviceRange,
    /// Output.
    pub recv: DeviceRange,
}

/// `ncclAllReduce`.
///
/// # Errors
/// [`Error::Nccl`].
pub fn all_reduce(
    comm: &Comm,
    buffers: &Buffers,
    elements: Elements,
    op: ReduceOp,
    stream: &Stream,
) -> Result<(), Error> {
    launch(comm, buffers, elements, Kind::AllReduce(red_op(op)), stream)
}

/// `ncclAllGather`; `elements` is one rank's part, which is the length of the input.
///
/// # Errors
/// [`Error::Nccl`].
pub fn all_gather(comm: &Comm, buffers: &Buffers, elements: Elements, stream: &Stream) -> Result<(), Error> {
    launch(comm, buffers, elements, Kind::AllGather, stream)
}

/// `ncclReduceScatter`; `elements` is one rank's part, which is the length of the output.
///
/// # Errors
/// [`Error::Nccl`].
pub fn reduce_scatter(
    comm: &Comm,
    buffers: &Buffers,
    elements: Elements,
    op: ReduceOp,
    stream: &Stream,
) -> Result<(), Error> {
    launch(comm, buffers, elements, Kind::ReduceScatter(red_op(op)), stream)
}

/// `ncclBroadcast`; the root is a position in the communicator.
///
/// # Errors
/// [`Error::Nccl`], also when there is no such member.
pub fn broadcast(
    comm: &Comm,
    buffers: &Buffers,
    elements: Elements,
    root: u32,
    stream: &Stream,
) -> Result<(), Error> {
    launch(comm, buffers, elements, Kind::Broadcast(position(root)), stream)
}

/// `ncclReduce`; the root is a position in the communicator. The output is written on the root alone.
///
/// # Errors
/// [`Error::Nccl`], also when there is no such member.
pub fn reduce(
    comm: &Comm,
    buffers: &Buffers,
    elements: Elements,
    (root, op): (u32, ReduceOp),
    stream: &Stream,
) -> Result<(), Error> {
    launch(comm, buffers, elements, Kind::Reduce(red_op(op), position(root)), stream)
}

/// Any of the collectives.
///
/// # Errors
/// [`Error::Nccl`].
pub fn collective(
    comm: &Comm,
    buffers: &Buffers,
    elements: Elements,
    (kind, op): (CollectiveKind, ReduceOp),
    stream: &Stream,
) -> Result<(), Error> {
    match kind {
        CollectiveKind::AllReduce => all_reduce(comm, buffers, elements, op, stream),
        CollectiveKind::AllGather => all_gather(comm, buffers, elements, stream),
        CollectiveKind::ReduceScatter => reduce_scatter(comm, buffers, elements, op, stream),
        CollectiveKind::Broadcast { root } => broadcast(comm, buffers, elements, root, stream),
        CollectiveKind::Reduce { root } => reduce(comm, buffers, elements, (root, op), stream),
    }
}

/// `ncclSend`.
///
/// # Errors
/// [`Error::Nccl`].
pub fn send(
    comm: &Comm,
    buffer: &DeviceRange,
    elements: Elements,
    peer: u32,
    stream: &Stream,
) -> Result<(), Error> {
    let buffers = Buffers { send: *buffer, recv: DeviceRange::NULL };
    launch(comm, &buffers, elements, Kind::Send(position(peer)), stream)
}

/// `ncclRecv`.
///
/// # Errors
/// [`Error::Nccl`].
pub fn receive(
    comm: &Comm,
    buffer: &DeviceRange,
    elements: Elements,
    peer: u32,
    stream: &Stream,
) -> Result<(), Error> {
    let buffers = Buffers { send: DeviceRange::NULL, recv: *buffer };
    launch(comm, &buffers, elements, Kind::Receive(position(peer)), stream)
}

fn launch(
    comm: &Comm,
    buffers: &Buffers,
    elements: Elements,
    kind: Kind,
    stream: &Stream,
) -> Result<(), Error> {
    let launch = Launch {
        kind,
        send: buffers.send,
        recv: buffers.recv,
        count: elements.count,
        dtype: data_type(elements.dtype),
    };
    comm.owner.launch(&launch, &stream.owner)
}

/// A number that no communicator has stays one that none has.
fn position(member: u32) -> c_int {
    c_int::try_from(member).unwrap_or(c_int::MAX)
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
    }
}

fn red_op(op: ReduceOp) -> ncclRedOp_t {
    match op {
        ReduceOp::Sum => ncclRedOp_t::ncclSum,
        ReduceOp::Prod => ncclRedOp_t::ncclProd,
        ReduceOp::Min => ncclRedOp_t::ncclMin,
        ReduceOp::Max => ncclRedOp_t::ncclMax,
        ReduceOp::Avg => ncclRedOp_t::ncclAvg,
    }
}
