//! The arguments of builtins: values of Starlark become what the verbs take.
//!
//! Not here: what the verbs check themselves, for Starlark and for Rust.

use rankcheck_model::{Dtype, Operand, ReduceOp};
use starlark::eval::Evaluator;
use starlark::values::dict::DictRef;
use starlark::values::list::{ListRef, UnpackList};
use starlark::values::tuple::TupleRef;
use starlark::values::{UnpackValue, Value};

use crate::spec::error::{MAX_NESTING, unknown, wrong};
use crate::spec::evaluation::Evaluation;
use crate::spec::handle::{Handle, a};
use crate::spec::noun::comm::Comm;
use crate::spec::noun::memory::Buffer;
use crate::spec::noun::stream::Stream;

/// The error for an argument of the wrong type.
pub(crate) fn expected(argument: &str, what: &str, value: Value<'_>) -> starlark::Error {
    let got = if value.is_none() { "None".to_owned() } else { a(value.get_type()) };
    wrong(format!("`{argument}` must be {what}, not {got}"), format!("give {what}"))
}

/// An argument that was given; `None` is none.
pub(crate) fn given(value: Option<Value<'_>>) -> Option<Value<'_>> {
    value.filter(|value| !value.is_none())
}

/// A number of bytes or elements.
pub(crate) fn natural(argument: &str, value: Value<'_>) -> starlark::Result<u64> {
    match i64::unpack_value(value)? {
        Some(number) => u64::try_from(number).map_err(|_| {
            wrong(format!("`{argument}` is {number}, which is negative"), "give a number from 0 on")
        }),
        None => Err(expected(argument, "a number", value)),
    }
}

/// One of the words that an argument knows.
pub(crate) fn word<T: Copy>(argument: &str, given: &str, known: &[(&str, T)]) -> starlark::Result<T> {
    let found = known.iter().find(|(name, _)| *name == given);
    found.map(|(_, value)| *value).ok_or_else(|| {
        let names: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
        unknown(argument, given, &names)
    })
}

/// One of the words that an argument knows, or the one for a number that names nothing: NCCL answers that with an error.
fn known<T: Copy>(argument: &str, given: &str, known: &[(&str, T)], invalid: T) -> starlark::Result<T> {
    if given == "invalid" { Ok(invalid) } else { word(argument, given, known) }
}

pub(crate) fn dtype(given: &str) -> starlark::Result<Dtype> {
    known("dtype", given, &Dtype::ALL.map(|dtype| (dtype.name(), dtype)), Dtype::Invalid)
}

pub(crate) fn reduce_op(given: &str) -> starlark::Result<ReduceOp> {
    known("op", given, &ReduceOp::ALL.map(|op| (op.name(), op)), ReduceOp::Invalid)
}

/// The number of a rank, whether or not it exists.
pub(crate) fn rank(argument: &str, value: Value<'_>) -> starlark::Result<i64> {
    i64::unpack_value(value)?.ok_or_else(|| expected(argument, "a rank number", value))
}

/// The numbers of ranks, or none for all.
pub(crate) fn ranks(ranks: Option<Value<'_>>) -> starlark::Result<Option<Vec<i64>>> {
    let Some(ranks) = given(ranks) else { return Ok(None) };
    let Some(given) = UnpackList::<Value<'_>>::unpack_value(ranks)? else {
        return Err(expected("ranks", "a list of rank numbers", ranks));
    };
    given.items.into_iter().map(|value| rank("ranks", value)).collect::<starlark::Result<_>>().map(Some)
}

/// A communicator; what came out of a map may be one.
pub(crate) fn comm(this: Value<'_>) -> starlark::Result<Comm> {
    match Handle::of(this) {
        Some(Handle::Comm(of) | Handle::Slot(of)) => Ok(Comm(of.clone())),
        _ => Err(expected("comm", "a communicator", this)),
    }
}

/// Memory, with its length if that is known.
pub(crate) fn memory(argument: &str, value: Value<'_>) -> starlark::Result<Buffer> {
    match Handle::of(value) {
        Some(Handle::Buffer(of, len_bytes)) => Ok(Buffer { of: of.clone(), len_bytes: *len_bytes }),
        Some(Handle::Segment(of) | Handle::Slot(of)) => Ok(Buffer { of: of.clone(), len_bytes: None }),
        _ => Err(expected(argument, "a buffer", value)),
    }
}

/// The stream that was named, if one was.
pub(crate) fn stream(value: Option<Value<'_>>) -> starlark::Result<Option<Stream>> {
    match given(value) {
        Some(value) => match Handle::of(value) {
            Some(Handle::Stream(name)) => Ok(Some(Stream(*name))),
            _ => Err(expected("stream", "a stream", value)),
        },
        None => Ok(None),
    }
}

/// How many elements a value may come to that is compared or handed on, each counted as often as it is held.
const MAX_ELEMENTS: usize = 1_000_000;

/// Calls `leaf` for what lists and tuples hold, down to its leaves, and refuses those that have no end worth going to.
pub(crate) fn for_each_leaf<'v>(
    value: Value<'v>,
    mut leaf: impl FnMut(Value<'v>) -> starlark::Result<()>,
) -> starlark::Result<()> {
    let mut open = vec![(value, 0)];
    let mut count = 0;
    while let Some((value, depth)) = open.pop() {
        let list = ListRef::from_value(value).map(ListRef::content);
        let Some(items) = list.or_else(|| TupleRef::from_value(value).map(TupleRef::content)) else {
            leaf(value)?;
            continue;
        };
        count += items.len();
        if depth == MAX_NESTING {
            return Err(wrong(
                format!("this value is nested more than {MAX_NESTING} deep"),
                "what a loop puts into its own successor is nested as deep as the loop is long; make one list of it",
            ));
        }
        if count > MAX_ELEMENTS {
            return Err(wrong(
                format!(
                    "this value comes to more than {MAX_ELEMENTS} elements, each counted as often as it is held"
                ),
                "a value that holds another twice, and so on, doubles at each step; make a smaller one",
            ));
        }
        open.extend(items.iter().map(|item| (*item, depth + 1)));
    }
    Ok(())
}

/// What operations work on, for a value of the language.
pub(crate) fn operand(eval: &Evaluator<'_, '_, '_>, value: Value<'_>) -> starlark::Result<Operand> {
    for_each_leaf(value, |_| Ok(()))?;
    operand_of(eval, value)
}

fn operand_of(eval: &Evaluator<'_, '_, '_>, value: Value<'_>) -> starlark::Result<Operand> {
    if value.is_none() {
        return Ok(Operand::Null);
    }
    if let Some(bool) = value.unpack_bool() {
        return Ok(Operand::Bool(bool));
    }
    if let Some(int) = i64::unpack_value(value)? {
        return Ok(Operand::Int(int));
    }
    if let Some(text) = value.unpack_str() {
        return Ok(Operand::Token(Evaluation::of(eval)?.builder.token(text)));
    }
    if let Some(operand) = Handle::of(value).and_then(Handle::operand) {
        return Ok(operand);
    }
    if let Some(tuple) = TupleRef::from_value(value) {
        let items = tuple.iter().map(|item| operand_of(eval, item));
        return Ok(Operand::Tuple(items.collect::<starlark::Result<Vec<_>>>()?.into()));
    }
    let list = ListRef::from_value(value).is_some() || DictRef::from_value(value).is_some();
    let help = if list {
        "put its elements one by one, or write a tuple"
    } else {
        "use an int, string, bool or slot"
    };
    Err(wrong(format!("{} is not a value that operations can hold", a(value.get_type())), help))
}
