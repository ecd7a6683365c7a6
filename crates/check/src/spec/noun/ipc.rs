//! Memory of other ranks, by IPC handles.
//!
//! Not here: how a program carries a handle to its peers (the store does), exchanges of handles (`exchange.rs`).

use rankcheck_model::{IpcOp, Op, Operand};
use starlark::environment::MethodsBuilder;
use starlark::eval::Evaluator;
use starlark::starlark_module;
use starlark::values::Value;
use starlark::values::none::NoneType;

use crate::spec::argument::{self, expected};
use crate::spec::builder::{Builder, Flow};
use crate::spec::evaluation::builder;
use crate::spec::handle::Handle;
use crate::spec::noun::memory::Buffer;

/// A handle of an allocation, for other ranks.
#[derive(Debug, Clone)]
pub struct IpcHandle(pub(crate) Operand);

impl Builder {
    /// `cudaIpcGetMemHandle` of the allocation in which the buffer lies.
    #[track_caller]
    pub fn ipc_export(&self, buffer: impl Into<Buffer>) -> Flow<IpcHandle> {
        self.add_result(Op::Ipc(IpcOp::Export { buffer: buffer.into().of })).map(IpcHandle)
    }

    /// `cudaIpcOpenMemHandle`. Gives a mapping of the whole allocation.
    #[track_caller]
    pub fn ipc_open(&self, handle: &IpcHandle) -> Flow<Buffer> {
        // Memory of another rank is memory of one of them.
        self.tell_ranks_apart();
        let of = self.add_result(Op::Ipc(IpcOp::Open { handle: handle.0.clone() }))?;
        Ok(Buffer { of, len_bytes: None })
    }

    /// `cudaIpcCloseMemHandle`, of what [`Builder::ipc_open`] returned.
    #[track_caller]
    pub fn ipc_close(&self, mapping: impl Into<Buffer>) -> Flow {
        self.add(Op::Ipc(IpcOp::Close { mapping: mapping.into().of }))
    }
}

#[starlark_module]
pub(crate) fn ipc_methods(methods: &mut MethodsBuilder) {
    fn export<'v>(
        #[starlark(this)] _this: Value<'v>,
        buffer: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<IpcHandle> {
        let buffer = argument::memory("buffer", buffer)?;
        Ok(builder(eval)?.ipc_export(buffer)?)
    }

    fn open<'v>(
        #[starlark(this)] _this: Value<'v>,
        handle: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Buffer> {
        let handle = match Handle::of(handle) {
            Some(Handle::Exported(of) | Handle::Slot(of)) => IpcHandle(of.clone()),
            _ => return Err(expected("handle", "a handle", handle)),
        };
        Ok(builder(eval)?.ipc_open(&handle)?)
    }

    fn close<'v>(
        #[starlark(this)] _this: Value<'v>,
        mapping: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<NoneType> {
        let mapping = argument::memory("mapping", mapping)?;
        builder(eval)?.ipc_close(mapping)?;
        Ok(NoneType)
    }
}
