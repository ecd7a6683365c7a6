//! Memory of other ranks: handles, mappings, and their exchange.
//!
//! Not here: how a program carries a handle to its peers (the store does, `host.rs`).

use rankcheck_model::{IpcOp, Op, Operand, Slot};
use starlark::environment::MethodsBuilder;
use starlark::eval::Evaluator;
use starlark::starlark_module;
use starlark::values::none::NoneType;
use starlark::values::{Heap, Value};

use crate::spec::comm::memory;
use crate::spec::evaluation::{expected, record, record_slot};
use crate::spec::noun::Noun;

#[starlark_module]
pub(crate) fn ipc_methods(builder: &mut MethodsBuilder) {
    fn export<'v>(
        this: Value<'v>,
        buffer: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        let _ = this;
        let (buffer, _) = memory("buffer", buffer)?;
        Ok(Noun::Handle(record_slot(eval, Op::Ipc(IpcOp::Export { buffer }))?).alloc(eval.heap()))
    }

    fn open<'v>(
        this: Value<'v>,
        handle: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        let _ = this;
        let handle = match Noun::of(handle) {
            Some(Noun::Handle(of) | Noun::Slot(of)) => of.clone(),
            _ => return Err(expected("handle", "a handle", handle)),
        };
        Ok(Noun::Buffer(record_slot(eval, Op::Ipc(IpcOp::Open { handle }))?, None).alloc(eval.heap()))
    }

    fn close<'v>(
        this: Value<'v>,
        mapping: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<NoneType> {
        let _ = this;
        let (mapping, _) = memory("mapping", mapping)?;
        record(eval, Op::Ipc(IpcOp::Close { mapping }))?;
        Ok(NoneType)
    }
}

/// Where a buffer of this rank lies, in a mapping of a peer's allocation.
pub(crate) fn at<'v>(mapping: Value<'v>, like: Value<'v>, heap: Heap<'v>) -> starlark::Result<Value<'v>> {
    let ((of, _), (like, len)) = (memory("mapping", mapping)?, memory("buffer", like)?);
    Ok(Noun::Buffer(Operand::At { of: of.into(), like: like.into() }, len).alloc(heap))
}

/// The mappings that an exchange gives, one for each member.
pub(crate) fn mappings<'v>(eval: &Evaluator<'v, '_, '_>, first: Slot, members: usize) -> Vec<Value<'v>> {
    (first.index..)
        .take(members)
        .map(|index| Noun::Buffer(Operand::Slot(Slot { index, ..first }), None).alloc(eval.heap()))
        .collect()
}
