//! Communicators: registration, collectives and transfers.
//!
//! Not here: how a communicator starts (`rank.rs`).

use std::sync::Arc;

use rankcheck_model::{
    Collective, CollectiveKind, CommOp, Declared, Direction, Dtype, MapOrder, MemoryKind, Op, Operand,
    Question, ReduceOp, SizeClasses, TieBreak, Transfer, WindowFlags, WindowOp,
};
use starlark::environment::MethodsBuilder;
use starlark::eval::Evaluator;
use starlark::starlark_module;
use starlark::values::none::NoneType;
use starlark::values::{Heap, Value};

use crate::spec::error::{unknown, wrong};
use crate::spec::evaluation::{Evaluation, ask_bool, expected, natural, record, record_slot, stream};
use crate::spec::noun::Noun;

/// One of the words that an argument knows.
fn word<T: Copy>(argument: &str, given: &str, known: &[(&str, T)]) -> starlark::Result<T> {
    let found = known.iter().find(|(name, _)| *name == given);
    found.map(|(_, value)| *value).ok_or_else(|| {
        let names: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
        unknown(argument, given, &names)
    })
}

pub(crate) fn dtype(given: &str) -> starlark::Result<Dtype> {
    word("dtype", given, &Dtype::ALL.map(|dtype| (dtype.name(), dtype)))
}

pub(crate) fn reduce_op(given: &str) -> starlark::Result<ReduceOp> {
    word("op", given, &ReduceOp::ALL.map(|op| (op.name(), op)))
}

pub(crate) fn window_flags(given: &str) -> starlark::Result<WindowFlags> {
    word("flags", given, &[("symmetric", WindowFlags::CollSymmetric), ("default", WindowFlags::Default)])
}

pub(crate) fn size_classes(given: &str) -> starlark::Result<SizeClasses> {
    word("classes", given, &[("exact", SizeClasses::Exact), ("torch", SizeClasses::Torch)])
}

pub(crate) fn tie_break(given: &str) -> starlark::Result<TieBreak> {
    word("tie", given, &[("counter", TieBreak::Counter), ("address", TieBreak::Address)])
}

pub(crate) fn memory_kind(given: &str) -> starlark::Result<MemoryKind> {
    word("memory", given, &[("nccl", MemoryKind::Nccl), ("cuda", MemoryKind::Cuda)])
}

pub(crate) fn map_order(given: &str) -> starlark::Result<MapOrder> {
    let known =
        [("insertion", MapOrder::Insertion), ("hash", MapOrder::Hash), ("address", MapOrder::Address)];
    word("order", given, &known)
}

/// The operand of a communicator; what came out of a map may be one.
fn comm(this: Value<'_>) -> starlark::Result<Operand> {
    match Noun::of(this) {
        Some(Noun::Comm(of) | Noun::Slot(of)) => Ok(of.clone()),
        _ => Err(expected("comm", "a communicator", this)),
    }
}

/// The operand of memory and its length, if known.
pub(crate) fn memory(argument: &str, value: Value<'_>) -> starlark::Result<(Operand, Option<u64>)> {
    match Noun::of(value) {
        Some(Noun::Buffer(of, len)) => Ok((of.clone(), *len)),
        Some(Noun::Segment(of) | Noun::Slot(of)) => Ok((of.clone(), None)),
        _ => Err(expected(argument, "a buffer", value)),
    }
}

fn elements(
    count: Option<Value<'_>>,
    of: &str,
    len_bytes: Option<u64>,
    dtype: Dtype,
) -> starlark::Result<u64> {
    if let Some(count) = count.filter(|count| !count.is_none()) {
        return natural("count", count);
    }
    let Some(len_bytes) = len_bytes else {
        return Err(wrong(
            format!("how many elements? the length of `{of}` is not known while the program is recorded"),
            "give count =, in elements",
        ));
    };
    let size = dtype.len_bytes();
    if len_bytes % size != 0 {
        return Err(wrong(
            format!("`{of}` has {len_bytes} bytes, which are no whole number of {} elements", dtype.name()),
            "give count =, in elements, or another dtype",
        ));
    }
    Ok(len_bytes / size)
}

/// What collectives have in common.
struct Common<'v, 's> {
    this: Value<'v>,
    dtype: &'s str,
    op: &'s str,
    symmetric: bool,
    stream: Option<Value<'v>>,
}

fn collect<'v>(
    eval: &Evaluator<'v, '_, '_>,
    kind: CollectiveKind,
    (send, recv): (Operand, Operand),
    count: u64,
    common: &Common<'_, '_>,
) -> starlark::Result<Value<'v>> {
    let call = Collective {
        kind,
        comm: comm(common.this)?,
        send,
        recv,
        count,
        dtype: dtype(common.dtype)?,
        op: reduce_op(common.op)?,
        stream: stream(eval, common.stream)?,
        declared: if common.symmetric { Declared::Symmetric } else { Declared::Nothing },
    };
    launch(eval, Op::Collective(Arc::new(call)))
}

/// Input and output, which is the input where there is none; and how long the input is.
fn in_place_or<'v>(
    x: Value<'v>,
    recv: Option<Value<'v>>,
) -> starlark::Result<((Operand, Operand), Option<u64>)> {
    let (send, len) = memory("x", x)?;
    let recv = match recv.filter(|recv| !recv.is_none()) {
        Some(recv) => memory("recv", recv)?.0,
        None => send.clone(),
    };
    Ok(((send, recv), len))
}

/// A root.
fn position(root: i32) -> starlark::Result<u32> {
    u32::try_from(root).map_err(|_| {
        wrong(format!("`root` is {root}"), "the root is a position in the communicator, from 0 on")
    })
}

/// Records a launch and names it.
fn launch<'v>(eval: &Evaluator<'v, '_, '_>, verb: Op) -> starlark::Result<Value<'v>> {
    let operation = Evaluation::of(eval)?.recorder.next_operation();
    record(eval, verb)?;
    Ok(Noun::Operation(operation).alloc(eval.heap()))
}

/// One half of a transfer.
struct Half<'v, 's> {
    this: Value<'v>,
    x: Value<'v>,
    peer: i32,
    count: Option<Value<'v>>,
    dtype: &'s str,
    stream: Option<Value<'v>>,
}

fn transfer<'v>(
    eval: &Evaluator<'v, '_, '_>,
    direction: Direction,
    half: &Half<'v, '_>,
) -> starlark::Result<Value<'v>> {
    let (buffer, len) = memory("x", half.x)?;
    let peer = u32::try_from(half.peer).map_err(|_| {
        wrong(format!("`peer` is {}", half.peer), "the peer is a position in the communicator, from 0 on")
    })?;
    let dtype = dtype(half.dtype)?;
    let call = Transfer {
        direction,
        comm: comm(half.this)?,
        peer,
        buffer,
        count: elements(half.count, "x", len, dtype)?,
        dtype,
        stream: stream(eval, half.stream)?,
    };
    launch(eval, Op::Transfer(Arc::new(call)))
}

#[starlark_module]
pub(crate) fn comm_methods(builder: &mut MethodsBuilder) {
    #[starlark(attribute)]
    fn address<'v>(this: Value<'v>, heap: Heap<'v>) -> starlark::Result<Value<'v>> {
        Ok(Noun::Address(Operand::Address(comm(this)?.into())).alloc(heap))
    }

    fn register<'v>(
        this: Value<'v>,
        memory: Value<'v>,
        #[starlark(default = "symmetric")] flags: &str,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        let memory = if memory.is_none() { Operand::Null } else { self::memory("memory", memory)?.0 };
        let verb = Op::Window(WindowOp::Register { comm: comm(this)?, memory, flags: window_flags(flags)? });
        Ok(Noun::Window(record_slot(eval, verb)?).alloc(eval.heap()))
    }

    fn deregister<'v>(
        this: Value<'v>,
        window: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<NoneType> {
        let window = match Noun::of(window) {
            Some(Noun::Window(of) | Noun::Slot(of)) => of.clone(),
            _ => return Err(expected("window", "a window", window)),
        };
        record(eval, Op::Window(WindowOp::Deregister { comm: comm(this)?, window }))?;
        Ok(NoneType)
    }

    fn has_window<'v>(
        this: Value<'v>,
        buffer: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<bool> {
        let (buffer, _) = memory("buffer", buffer)?;
        ask_bool(eval, Question::HasWindow { comm: comm(this)?, buffer })
    }

    fn split<'v>(
        this: Value<'v>,
        name: &str,
        color: Option<Value<'v>>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        let color = match color.filter(|color| !color.is_none()) {
            Some(color) => Some(
                starlark::values::UnpackValue::unpack_value(color)?
                    .ok_or_else(|| expected("color", "a number or None", color))?,
            ),
            None => None,
        };
        let name = Evaluation::of(eval)?.token(name);
        let verb = Op::Comm(CommOp::Split { comm: comm(this)?, name, color });
        Ok(Noun::Comm(record_slot(eval, verb)?).alloc(eval.heap()))
    }

    fn destroy<'v>(this: Value<'v>, eval: &mut Evaluator<'v, '_, '_>) -> starlark::Result<NoneType> {
        record(eval, Op::Comm(CommOp::Destroy { comm: comm(this)? }))?;
        Ok(NoneType)
    }

    fn all_reduce<'v>(
        this: Value<'v>,
        x: Value<'v>,
        recv: Option<Value<'v>>,
        count: Option<Value<'v>>,
        #[starlark(default = "f32")] dtype: &str,
        #[starlark(default = "sum")] op: &str,
        #[starlark(default = false)] symmetric: bool,
        stream: Option<Value<'v>>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        let (buffers, len) = in_place_or(x, recv)?;
        let count = elements(count, "x", len, self::dtype(dtype)?)?;
        let common = Common { this, dtype, op, symmetric, stream };
        collect(eval, CollectiveKind::AllReduce, buffers, count, &common)
    }

    fn all_gather<'v>(
        this: Value<'v>,
        send: Value<'v>,
        recv: Value<'v>,
        count: Option<Value<'v>>,
        #[starlark(default = "f32")] dtype: &str,
        #[starlark(default = false)] symmetric: bool,
        stream: Option<Value<'v>>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        let ((send, len), (recv, _)) = (memory("send", send)?, memory("recv", recv)?);
        let count = elements(count, "send", len, self::dtype(dtype)?)?;
        let common = Common { this, dtype, op: "sum", symmetric, stream };
        collect(eval, CollectiveKind::AllGather, (send, recv), count, &common)
    }

    fn reduce_scatter<'v>(
        this: Value<'v>,
        send: Value<'v>,
        recv: Value<'v>,
        count: Option<Value<'v>>,
        #[starlark(default = "f32")] dtype: &str,
        #[starlark(default = "sum")] op: &str,
        #[starlark(default = false)] symmetric: bool,
        stream: Option<Value<'v>>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        let ((send, _), (recv, len)) = (memory("send", send)?, memory("recv", recv)?);
        let count = elements(count, "recv", len, self::dtype(dtype)?)?;
        let common = Common { this, dtype, op, symmetric, stream };
        collect(eval, CollectiveKind::ReduceScatter, (send, recv), count, &common)
    }

    fn reduce<'v>(
        this: Value<'v>,
        x: Value<'v>,
        recv: Option<Value<'v>>,
        #[starlark(default = 0)] root: i32,
        count: Option<Value<'v>>,
        #[starlark(default = "f32")] dtype: &str,
        #[starlark(default = "sum")] op: &str,
        #[starlark(default = false)] symmetric: bool,
        stream: Option<Value<'v>>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        let (buffers, len) = in_place_or(x, recv)?;
        let count = elements(count, "x", len, self::dtype(dtype)?)?;
        let common = Common { this, dtype, op, symmetric, stream };
        collect(eval, CollectiveKind::Reduce { root: position(root)? }, buffers, count, &common)
    }

    fn broadcast<'v>(
        this: Value<'v>,
        x: Value<'v>,
        #[starlark(default = 0)] root: i32,
        count: Option<Value<'v>>,
        #[starlark(default = "f32")] dtype: &str,
        #[starlark(default = false)] symmetric: bool,
        stream: Option<Value<'v>>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        let (send, len) = memory("x", x)?;
        let count = elements(count, "x", len, self::dtype(dtype)?)?;
        let common = Common { this, dtype, op: "sum", symmetric, stream };
        collect(
            eval,
            CollectiveKind::Broadcast { root: position(root)? },
            (send.clone(), send),
            count,
            &common,
        )
    }

    fn send<'v>(
        this: Value<'v>,
        x: Value<'v>,
        peer: i32,
        count: Option<Value<'v>>,
        #[starlark(default = "f32")] dtype: &str,
        stream: Option<Value<'v>>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        transfer(eval, Direction::Send, &Half { this, x, peer, count, dtype, stream })
    }

    fn recv<'v>(
        this: Value<'v>,
        x: Value<'v>,
        peer: i32,
        count: Option<Value<'v>>,
        #[starlark(default = "f32")] dtype: &str,
        stream: Option<Value<'v>>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        transfer(eval, Direction::Recv, &Half { this, x, peer, count, dtype, stream })
    }
}
