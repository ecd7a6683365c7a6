//! Maps and lists of a rank, shared by its threads and keyed by values that are not known while a program is built.
//!
//! Not here: Starlark's own dicts and lists, and Rust's, which hold what is known.

use rankcheck_model::{ListOp, MapOp, MapOrder, Op, Operand, Question, Slot, Token};
use starlark::environment::MethodsBuilder;
use starlark::eval::Evaluator;
use starlark::starlark_module;
use starlark::values::Value;
use starlark::values::none::NoneType;

use crate::spec::argument::{expected, operand, word};
use crate::spec::builder::{Builder, Flow};
use crate::spec::evaluation::{Evaluation, builder};
use crate::spec::handle::Handle;
use crate::spec::noun::value::{Fetched, Holdable};
use crate::spec::rank::RankValue;

/// A map of a rank, by name.
#[derive(Debug, Clone, Copy)]
pub struct Map(pub(crate) Token, pub(crate) MapOrder);

/// A list of a rank, by name.
#[derive(Debug, Clone, Copy)]
pub struct List(pub(crate) Token);

impl Builder {
    /// The map of this name, which is walked in this order.
    pub fn map(&self, name: &str, order: MapOrder) -> Map {
        Map(self.token(name), order)
    }

    /// The list of this name.
    pub fn list(&self, name: &str) -> List {
        List(self.token(name))
    }
}

impl Map {
    /// Puts a value under a key.
    #[track_caller]
    pub fn put(&self, r: &Builder, key: impl Holdable, value: impl Holdable) -> Flow {
        let (key, value) = (key.operand(r), value.operand(r));
        r.add(Op::Map(MapOp::Put { map: self.0, key, value }))
    }

    /// Takes out the value of a key; null if there is none.
    #[track_caller]
    pub fn pop(&self, r: &Builder, key: impl Holdable) -> Flow<Fetched> {
        r.add_result(Op::Map(MapOp::Pop { map: self.0, key: key.operand(r) })).map(Fetched)
    }

    /// The value of a key, or another: `m.get(r, &key, ())?` gives null where there is none.
    #[track_caller]
    pub fn get(&self, r: &Builder, key: impl Holdable, default: impl Holdable) -> Flow<Fetched> {
        let (key, default) = (key.operand(r), default.operand(r));
        r.add_result(Op::Map(MapOp::Get { map: self.0, key, default })).map(Fetched)
    }

    /// Asks whether there is this key.
    #[track_caller]
    pub fn has(&self, r: &Builder, key: impl Holdable) -> Flow<bool> {
        r.ask_whether(Question::MapHas { map: self.0, key: key.operand(r) })
    }

    /// Asks for keys and values, in the map's order.
    #[track_caller]
    pub fn items(&self, r: &Builder) -> Flow<Vec<(Fetched, Fetched)>> {
        let (count, first) = r.ask(Question::MapItems { map: self.0, order: self.1 })?;
        let at = |index| Fetched(Operand::Slot(Slot { start: first.start, index: first.index + index }));
        Ok((0..count).map(|n| (at(2 * n), at(2 * n + 1))).collect())
    }

    /// Removes every entry of the map.
    #[track_caller]
    pub fn clear(&self, r: &Builder) -> Flow {
        r.add(Op::Map(MapOp::Clear { map: self.0 }))
    }
}

impl List {
    /// Appends a value to the list.
    #[track_caller]
    pub fn push(&self, r: &Builder, value: impl Holdable) -> Flow {
        r.add(Op::List(ListOp::Push { list: self.0, value: value.operand(r) }))
    }

    /// The value at an index.
    #[track_caller]
    pub fn get(&self, r: &Builder, index: impl Holdable) -> Flow<Fetched> {
        r.add_result(Op::List(ListOp::Get { list: self.0, index: index.operand(r) })).map(Fetched)
    }

    /// Sets the value at an index.
    #[track_caller]
    pub fn set(&self, r: &Builder, index: impl Holdable, value: impl Holdable) -> Flow {
        let (index, value) = (index.operand(r), value.operand(r));
        r.add(Op::List(ListOp::Set { list: self.0, index, value }))
    }

    /// Takes out the last value; null if there is none.
    #[track_caller]
    pub fn pop(&self, r: &Builder) -> Flow<Fetched> {
        r.add_result(Op::List(ListOp::Pop { list: self.0 })).map(Fetched)
    }

    /// Asks how many values there are.
    #[track_caller]
    pub fn len(&self, r: &Builder) -> Flow<u32> {
        r.ask(Question::ListLen { list: self.0 }).map(|(len, _)| len)
    }

    /// Asks how many values there are, and gives them.
    #[track_caller]
    pub fn items(&self, r: &Builder) -> Flow<Vec<Fetched>> {
        let len = self.len(r)?;
        let mut items = Vec::new();
        for index in 0..len {
            items.push(self.get(r, index)?);
        }
        Ok(items)
    }

    /// Removes every element of the list.
    #[track_caller]
    pub fn clear(&self, r: &Builder) -> Flow {
        r.add(Op::List(ListOp::Clear { list: self.0 }))
    }
}

fn map(this: Value<'_>) -> starlark::Result<Map> {
    match Handle::of(this) {
        Some(Handle::Map(name, order)) => Ok(Map(*name, *order)),
        _ => Err(expected("map", "a map", this)),
    }
}

fn list(this: Value<'_>) -> starlark::Result<List> {
    match Handle::of(this) {
        Some(Handle::List(name)) => Ok(List(*name)),
        _ => Err(expected("list", "a list of a rank", this)),
    }
}

#[starlark_module]
pub(crate) fn containers_of_rank(methods: &mut MethodsBuilder) {
    fn map<'v>(
        #[starlark(this)] _this: &RankValue,
        name: &str,
        #[starlark(default = "insertion")] order: &str,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Map> {
        let known =
            [("insertion", MapOrder::Insertion), ("hash", MapOrder::Hash), ("address", MapOrder::Address)];
        Ok(Evaluation::of(eval)?.builder.map(name, word("order", order, &known)?))
    }

    fn list<'v>(
        #[starlark(this)] _this: &RankValue,
        name: &str,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<List> {
        Ok(Evaluation::of(eval)?.builder.list(name))
    }
}

#[starlark_module]
pub(crate) fn map_methods(methods: &mut MethodsBuilder) {
    fn put<'v>(
        this: Value<'v>,
        key: Value<'v>,
        value: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<NoneType> {
        let (key, value) = (operand(eval, key)?, operand(eval, value)?);
        map(this)?.put(builder(eval)?, key, value)?;
        Ok(NoneType)
    }

    fn pop<'v>(
        this: Value<'v>,
        key: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Fetched> {
        let key = operand(eval, key)?;
        Ok(map(this)?.pop(builder(eval)?, key)?)
    }

    fn get<'v>(
        this: Value<'v>,
        key: Value<'v>,
        default: Option<Value<'v>>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Fetched> {
        let key = operand(eval, key)?;
        let default = default.map_or(Ok(Operand::Null), |default| operand(eval, default))?;
        Ok(map(this)?.get(builder(eval)?, key, default)?)
    }

    fn has<'v>(this: Value<'v>, key: Value<'v>, eval: &mut Evaluator<'v, '_, '_>) -> starlark::Result<bool> {
        let key = operand(eval, key)?;
        Ok(map(this)?.has(builder(eval)?, key)?)
    }

    fn items<'v>(
        this: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Vec<(Fetched, Fetched)>> {
        Ok(map(this)?.items(builder(eval)?)?)
    }

    fn clear<'v>(this: Value<'v>, eval: &mut Evaluator<'v, '_, '_>) -> starlark::Result<NoneType> {
        map(this)?.clear(builder(eval)?)?;
        Ok(NoneType)
    }
}

#[starlark_module]
pub(crate) fn list_methods(methods: &mut MethodsBuilder) {
    fn push<'v>(
        this: Value<'v>,
        value: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<NoneType> {
        let value = operand(eval, value)?;
        list(this)?.push(builder(eval)?, value)?;
        Ok(NoneType)
    }

    fn get<'v>(
        this: Value<'v>,
        index: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Fetched> {
        let index = operand(eval, index)?;
        Ok(list(this)?.get(builder(eval)?, index)?)
    }

    fn set<'v>(
        this: Value<'v>,
        index: Value<'v>,
        value: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<NoneType> {
        let (index, value) = (operand(eval, index)?, operand(eval, value)?);
        list(this)?.set(builder(eval)?, index, value)?;
        Ok(NoneType)
    }

    fn pop<'v>(this: Value<'v>, eval: &mut Evaluator<'v, '_, '_>) -> starlark::Result<Fetched> {
        Ok(list(this)?.pop(builder(eval)?)?)
    }

    fn len<'v>(this: Value<'v>, eval: &mut Evaluator<'v, '_, '_>) -> starlark::Result<u32> {
        Ok(list(this)?.len(builder(eval)?)?)
    }

    fn items<'v>(this: Value<'v>, eval: &mut Evaluator<'v, '_, '_>) -> starlark::Result<Vec<Fetched>> {
        Ok(list(this)?.items(builder(eval)?)?)
    }

    fn clear<'v>(this: Value<'v>, eval: &mut Evaluator<'v, '_, '_>) -> starlark::Result<NoneType> {
        list(this)?.clear(builder(eval)?)?;
        Ok(NoneType)
    }
}
