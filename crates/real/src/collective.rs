//! Collectives: each member of a communicator launches its part.
//!
//! Only all-reduce exists today. Not here: whether the members' calls fit together, and which kernel NCCL
//! chooses.

use cudarc::nccl::sys::{ncclDataType_t, ncclRedOp_t};
use rankcheck_model::{Dtype, ReduceOp};

use crate::Error;
use crate::comm::Comm;
use crate::ffi::DeviceRange;
use crate::stream::Stream;

/// What is computed over the elements of all members.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reduction {
    /// Number of elements. Not compared with the lengths of the buffers.
    pub count: u64,
    /// Element type.
    pub dtype: Dtype,
    /// Operator.
    pub op: ReduceOp,
}

/// `ncclAllReduce` of `send` into `recv`, which may be the same.
///
/// Returns when the kernel is launched; inside a group, when the call is queued. The first collective of a
/// communicator blocks the host until the peers come.
///
/// # Errors
/// [`Error::Nccl`].
pub fn all_reduce(
    comm: &Comm,
    send: &DeviceRange,
    recv: &DeviceRange,
    reduction: Reduction,
    stream: &Stream,
) -> Result<(), Error> {
    let Reduction { count, dtype, op } = reduction;
    comm.owner.all_reduce(send, recv, count, (data_type(dtype), red_op(op)), &stream.owner)
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
