//! Maps and lists of a rank, shared by its threads and keyed by values that are not known while recording.
//!
//! Not here: Starlark's own dicts and lists, which hold what is known.

use rankcheck_model::{ListOp, MapOp, MapOrder, Op, Operand, Question, Slot, Token};
use starlark::environment::MethodsBuilder;
use starlark::eval::Evaluator;
use starlark::starlark_module;
use starlark::values::none::NoneType;
use starlark::values::{Heap, Value};

use crate::spec::evaluation::{ask, ask_bool, expected, operand, record, record_slot};
use crate::spec::noun::Noun;

fn map(this: Value<'_>) -> starlark::Result<(Token, MapOrder)> {
    match Noun::of(this) {
        Some(Noun::Map(name, order)) => Ok((*name, *order)),
        _ => Err(expected("map", "a map", this)),
    }
}

fn list(this: Value<'_>) -> starlark::Result<Token> {
    match Noun::of(this) {
        Some(Noun::List(name)) => Ok(*name),
        _ => Err(expected("list", "a list of a rank", this)),
    }
}

fn slot<'v>(heap: Heap<'v>, of: Operand) -> Value<'v> {
    Noun::Slot(of).alloc(heap)
}

#[starlark_module]
pub(crate) fn map_methods(builder: &mut MethodsBuilder) {
    fn put<'v>(
        this: Value<'v>,
        key: Value<'v>,
        value: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<NoneType> {
        let (key, value) = (operand(eval, key)?, operand(eval, value)?);
        record(eval, Op::Map(MapOp::Put { map: map(this)?.0, key, value }))?;
        Ok(NoneType)
    }

    fn pop<'v>(
        this: Value<'v>,
        key: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        let key = operand(eval, key)?;
        Ok(slot(eval.heap(), record_slot(eval, Op::Map(MapOp::Pop { map: map(this)?.0, key }))?))
    }

    fn get<'v>(
        this: Value<'v>,
        key: Value<'v>,
        default: Option<Value<'v>>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        let key = operand(eval, key)?;
        let default = default.map_or(Ok(Operand::Null), |default| operand(eval, default))?;
        Ok(slot(eval.heap(), record_slot(eval, Op::Map(MapOp::Get { map: map(this)?.0, key, default }))?))
    }

    fn has<'v>(this: Value<'v>, key: Value<'v>, eval: &mut Evaluator<'v, '_, '_>) -> starlark::Result<bool> {
        let key = operand(eval, key)?;
        ask_bool(eval, Question::MapHas { map: map(this)?.0, key })
    }

    fn items<'v>(this: Value<'v>, eval: &mut Evaluator<'v, '_, '_>) -> starlark::Result<Value<'v>> {
        let (map, order) = map(this)?;
        let (count, first) = ask(eval, Question::MapItems { map, order })?;
        let heap = eval.heap();
        let at = |index| slot(heap, Operand::Slot(Slot { entry: first.entry, index: first.index + index }));
        let items = (0..count).map(|n| heap.alloc((at(2 * n), at(2 * n + 1))));
        Ok(heap.alloc(items.collect::<Vec<_>>()))
    }

    fn clear<'v>(this: Value<'v>, eval: &mut Evaluator<'v, '_, '_>) -> starlark::Result<NoneType> {
        record(eval, Op::Map(MapOp::Clear { map: map(this)?.0 }))?;
        Ok(NoneType)
    }
}

#[starlark_module]
pub(crate) fn list_methods(builder: &mut MethodsBuilder) {
    fn push<'v>(
        this: Value<'v>,
        value: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<NoneType> {
        let value = operand(eval, value)?;
        record(eval, Op::List(ListOp::Push { list: list(this)?, value }))?;
        Ok(NoneType)
    }

    fn get<'v>(
        this: Value<'v>,
        index: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        let index = operand(eval, index)?;
        Ok(slot(eval.heap(), record_slot(eval, Op::List(ListOp::Get { list: list(this)?, index }))?))
    }

    fn set<'v>(
        this: Value<'v>,
        index: Value<'v>,
        value: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<NoneType> {
        let (index, value) = (operand(eval, index)?, operand(eval, value)?);
        record(eval, Op::List(ListOp::Set { list: list(this)?, index, value }))?;
        Ok(NoneType)
    }

    fn pop<'v>(this: Value<'v>, eval: &mut Evaluator<'v, '_, '_>) -> starlark::Result<Value<'v>> {
        Ok(slot(eval.heap(), record_slot(eval, Op::List(ListOp::Pop { list: list(this)? }))?))
    }

    fn len<'v>(this: Value<'v>, eval: &mut Evaluator<'v, '_, '_>) -> starlark::Result<u32> {
        ask(eval, Question::ListLen { list: list(this)? }).map(|(len, _)| len)
    }

    fn items<'v>(this: Value<'v>, eval: &mut Evaluator<'v, '_, '_>) -> starlark::Result<Value<'v>> {
        let list = list(this)?;
        let (len, _) = ask(eval, Question::ListLen { list })?;
        let mut items = Vec::new();
        for index in 0..len {
            let verb = Op::List(ListOp::Get { list, index: Operand::Int(index.into()) });
            items.push(slot(eval.heap(), record_slot(eval, verb)?));
        }
        Ok(eval.heap().alloc(items))
    }

    fn clear<'v>(this: Value<'v>, eval: &mut Evaluator<'v, '_, '_>) -> starlark::Result<NoneType> {
        record(eval, Op::List(ListOp::Clear { list: list(this)? }))?;
        Ok(NoneType)
    }
}
