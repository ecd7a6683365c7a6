//! The store: keys that all ranks see.
//!
//! Not here: how the job's processes reach it.

use rankcheck_model::{Op, StoreOp};
use starlark::environment::MethodsBuilder;
use starlark::eval::Evaluator;
use starlark::starlark_module;
use starlark::values::Value;
use starlark::values::none::NoneType;

use crate::spec::argument::operand;
use crate::spec::builder::{Builder, Flow};
use crate::spec::evaluation::{Evaluation, builder};
use crate::spec::noun::value::{Fetched, Holdable};

impl Builder {
    /// Sets a key of the store.
    #[track_caller]
    pub fn store_set(&self, key: &str, value: impl Holdable) -> Flow {
        let (key, value) = (self.token(key), value.operand(self));
        self.add(Op::Store(StoreOp::Set { key, value }))
    }

    /// Waits for a key of the store, and gives its value.
    #[track_caller]
    pub fn store_get(&self, key: &str) -> Flow<Fetched> {
        self.add_result(Op::Store(StoreOp::Get { key: self.token(key) })).map(Fetched)
    }

    /// Deletes a key of the store.
    #[track_caller]
    pub fn store_delete(&self, key: &str) -> Flow {
        self.add(Op::Store(StoreOp::Delete { key: self.token(key) }))
    }
}

#[starlark_module]
pub(crate) fn store_methods(methods: &mut MethodsBuilder) {
    fn set<'v>(
        #[starlark(this)] _this: Value<'v>,
        key: &str,
        value: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<NoneType> {
        // Texts are numbered in order of first use: the key comes before the value.
        Evaluation::of(eval)?.builder.token(key);
        let value = operand(eval, value)?;
        builder(eval)?.store_set(key, value)?;
        Ok(NoneType)
    }

    fn get<'v>(
        #[starlark(this)] _this: Value<'v>,
        key: &str,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Fetched> {
        Ok(builder(eval)?.store_get(key)?)
    }

    fn delete<'v>(
        #[starlark(this)] _this: Value<'v>,
        key: &str,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<NoneType> {
        builder(eval)?.store_delete(key)?;
        Ok(NoneType)
    }
}
