//! Pools, buffers and segments.
//!
//! Not here: which block a pool gives (the machine decides), when a window must be registered (the spec does).

use std::fmt;

use allocative::Allocative;
use rankcheck_model::{MemoryOp, Op, Operand, PoolOp, Question, Release, Slot, Token};
use starlark::any::ProvidesStaticType;
use starlark::environment::{Methods, MethodsBuilder, MethodsStatic};
use starlark::eval::Evaluator;
use starlark::starlark_module;
use starlark::values::list::UnpackList;
use starlark::values::none::NoneType;
use starlark::values::{
    AllocValue, Heap, NoSerialize, StarlarkValue, Trace, Value, ValueLike, starlark_value,
};

use crate::spec::comm::memory;
use crate::spec::error::wrong;
use crate::spec::evaluation::{
    Evaluation, ask, ask_bool, call, expected, finally, natural, record, record_slot, stream,
};
use crate::spec::noun::Noun;

/// A pool with its hooks.
#[derive(Debug, ProvidesStaticType, NoSerialize, Allocative, Trace)]
pub(crate) struct PoolValue<'v> {
    #[allocative(skip)]
    #[trace(static)]
    pub(crate) pool: Token,
    #[allocative(skip)]
    pub(crate) on_segment: Option<Value<'v>>,
    #[allocative(skip)]
    pub(crate) on_segment_free: Option<Value<'v>>,
}

impl fmt::Display for PoolValue<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<pool>")
    }
}

impl<'v> AllocValue<'v> for PoolValue<'v> {
    fn alloc_value(self, heap: Heap<'v>) -> Value<'v> {
        heap.alloc_complex_no_freeze(self)
    }
}

#[starlark_value(type = "pool")]
impl<'v> StarlarkValue<'v> for PoolValue<'v> {
    fn get_methods() -> Option<&'static Methods> {
        static METHODS: MethodsStatic = MethodsStatic::new("PoolValue", pool_methods);
        Some(METHODS.methods())
    }
}

fn pool<'v>(this: Value<'v>) -> starlark::Result<&'v PoolValue<'v>> {
    this.downcast_ref::<PoolValue<'v>>().ok_or_else(|| expected("pool", "a pool", this))
}

/// Runs a hook under the lock of its pool, which is given back also while an exception unwinds.
fn under_lock<'v, 'a, 'e>(
    eval: &mut Evaluator<'v, 'a, 'e>,
    pool: Token,
    body: impl FnOnce(&mut Evaluator<'v, 'a, 'e>) -> starlark::Result<Value<'v>>,
) -> starlark::Result<Value<'v>> {
    record(eval, Op::Pool(PoolOp::Lock { pool }))?;
    finally(eval, body, |eval| record(eval, Op::Pool(PoolOp::Unlock { pool })).map(|_| ()))
}

/// The segment in which memory lies; a slice lies where its buffer does.
fn segment_of(of: &Operand) -> Operand {
    match of {
        Operand::Slice { of, .. } => Operand::Segment(of.clone()),
        Operand::Null
        | Operand::Int(_)
        | Operand::Token(_)
        | Operand::Bool(_)
        | Operand::Slot(_)
        | Operand::Segment(_)
        | Operand::Address(_)
        | Operand::Tuple(_)
        | Operand::At { .. }
        | Operand::Stream(_)
        | Operand::Event(_)
        | Operand::Device => Operand::Segment(of.clone().into()),
    }
}

#[starlark_module]
pub(crate) fn pool_methods(builder: &mut MethodsBuilder) {
    fn alloc<'v>(
        this: Value<'v>,
        bytes: Value<'v>,
        name: Option<Value<'v>>,
        stream: Option<Value<'v>>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        let (this, len_bytes) = (pool(this)?, natural("bytes", bytes)?);
        let evaluation = Evaluation::of(eval)?;
        let number = evaluation.count_block(this.pool);
        let name = match name.filter(|name| !name.is_none()) {
            Some(name) => name.unpack_str().ok_or_else(|| expected("name", "a string", name))?.to_owned(),
            None => format!("{}.{number}", evaluation.recorder.names.text(this.pool)),
        };
        let stream = self::stream(eval, stream)?;
        let verb =
            Op::Pool(PoolOp::Alloc { pool: this.pool, name: evaluation.token(&name), len_bytes, stream });
        let Some(hook) = this.on_segment else {
            return Ok(Noun::Buffer(record_slot(eval, verb)?, Some(len_bytes)).alloc(eval.heap()));
        };
        under_lock(eval, this.pool, |eval| {
            let buffer = record_slot(eval, verb)?;
            if ask_bool(eval, Question::Grew(buffer.clone()))? {
                let segment = Noun::Segment(segment_of(&buffer)).alloc(eval.heap());
                call(eval, hook, &[segment])?;
            }
            Ok(Noun::Buffer(buffer, Some(len_bytes)).alloc(eval.heap()))
        })
    }

    fn trim<'v>(this: Value<'v>, eval: &mut Evaluator<'v, '_, '_>) -> starlark::Result<NoneType> {
        let this = pool(this)?;
        let Some(hook) = this.on_segment_free else {
            record(eval, Op::Pool(PoolOp::Trim { pool: this.pool, release: Release::Now }))?;
            return Ok(NoneType);
        };
        under_lock(eval, this.pool, |eval| {
            let released =
                record_slot(eval, Op::Pool(PoolOp::Trim { pool: this.pool, release: Release::AfterHook }))?;
            let (count, first) = ask(eval, Question::Trimmed(released))?;
            for index in 0..count {
                let slot = Slot { entry: first.entry, index: first.index + index };
                let segment = Noun::Segment(Operand::Slot(slot)).alloc(eval.heap());
                call(eval, hook, &[segment])?;
                record(eval, Op::Memory(MemoryOp::Release { segment: Operand::Slot(slot) }))?;
            }
            Ok(Value::new_none())
        })?;
        Ok(NoneType)
    }

    fn havoc<'v>(
        this: Value<'v>,
        max: Option<Value<'v>>,
        sizes: Option<UnpackList<Value<'v>>>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<NoneType> {
        let max = max.map_or(Ok(1), |max| natural("max", max))?;
        let max = u32::try_from(max)
            .map_err(|_| wrong(format!("`max` is {max}"), "a few segments show what many would"))?;
        let sizes_bytes = match sizes {
            Some(sizes) => {
                let sizes = sizes.items.iter().map(|size| natural("sizes", *size));
                sizes.collect::<starlark::Result<Vec<_>>>()?
            }
            None => vec![2 << 20],
        };
        if sizes_bytes.is_empty() {
            return Err(wrong("`sizes` is empty", "give the sizes that havoc may leave behind, in bytes"));
        }
        record(
            eval,
            Op::Pool(PoolOp::Havoc { pool: pool(this)?.pool, max, sizes_bytes: sizes_bytes.into() }),
        )?;
        Ok(NoneType)
    }
}

#[starlark_module]
pub(crate) fn buffer_methods(builder: &mut MethodsBuilder) {
    fn free<'v>(
        this: Value<'v>,
        after: Option<Value<'v>>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<NoneType> {
        let after = match after.filter(|after| !after.is_none()) {
            Some(after) => match Noun::of(after) {
                Some(Noun::Event(name)) => Some(*name),
                _ => return Err(expected("after", "an event", after)),
            },
            None => None,
        };
        record(eval, Op::Memory(MemoryOp::Free { buffer: memory("buffer", this)?.0, after }))?;
        Ok(NoneType)
    }

    fn at<'v>(this: Value<'v>, buffer: Value<'v>, heap: Heap<'v>) -> starlark::Result<Value<'v>> {
        crate::spec::ipc::at(this, buffer, heap)
    }

    #[starlark(attribute)]
    fn segment<'v>(this: Value<'v>, heap: Heap<'v>) -> starlark::Result<Value<'v>> {
        Ok(Noun::Segment(segment_of(&memory("buffer", this)?.0)).alloc(heap))
    }
}

#[starlark_module]
fn address_methods(builder: &mut MethodsBuilder) {
    #[starlark(attribute)]
    fn address<'v>(this: Value<'v>, heap: Heap<'v>) -> starlark::Result<Value<'v>> {
        let of =
            Noun::of(this).and_then(Noun::operand).ok_or_else(|| expected("memory", "a buffer", this))?;
        Ok(Noun::Address(Operand::Address(of.into())).alloc(heap))
    }
}

pub(crate) fn buffer_and_address_methods(builder: &mut MethodsBuilder) {
    buffer_methods(builder);
    address_methods(builder);
}

/// A segment has nothing but its address.
pub(crate) fn segment_methods(builder: &mut MethodsBuilder) {
    address_methods(builder);
}

/// What came out of a map, a list or the store may be anything.
pub(crate) fn slot_methods(builder: &mut MethodsBuilder) {
    crate::spec::comm::comm_methods(builder);
    buffer_methods(builder);
    crate::spec::host::thread_methods(builder);
}

/// Values without methods.
pub(crate) fn nothing(_builder: &mut MethodsBuilder) {}
