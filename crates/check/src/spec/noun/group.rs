//! Groups of calls of NCCL.
//!
//! Not here: the calls in them.

use rankcheck_model::{GroupOp, Op};
use starlark::environment::MethodsBuilder;
use starlark::eval::Evaluator;
use starlark::starlark_module;
use starlark::values::Value;
use starlark::values::none::NoneType;

use crate::spec::builder::{Builder, Flow, Stop};
use crate::spec::evaluation::{builder, call};
use crate::spec::rank::RankValue;

impl Builder {
    /// `ncclGroupStart`, a body, and `ncclGroupEnd`. What the body raises leaves the group open.
    #[track_caller]
    pub fn group<T>(&self, body: impl FnOnce() -> Flow<T>) -> Flow<T> {
        self.grouped(body)
    }

    #[track_caller]
    fn grouped<T, E: From<Stop>>(&self, body: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
        let loc = self.loc();
        self.add_at(Op::Group(GroupOp::Start), loc)?;
        let value = body()?;
        self.add_at(Op::Group(GroupOp::End), loc)?;
        Ok(value)
    }

    /// `ncclGroupStart`, for groups that no closure encloses; [`Builder::group_end`] ends it.
    #[track_caller]
    pub fn group_start(&self) -> Flow {
        self.add(Op::Group(GroupOp::Start))
    }

    /// `ncclGroupEnd` of the innermost group that the thread has open.
    #[track_caller]
    pub fn group_end(&self) -> Flow {
        self.add(Op::Group(GroupOp::End))
    }
}

#[starlark_module]
pub(crate) fn groups_of_rank(methods: &mut MethodsBuilder) {
    fn group<'v>(
        #[starlark(this)] _this: &RankValue,
        body: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        builder(eval)?.grouped(|| call(eval, body, &[]))
    }

    fn group_start<'v>(
        #[starlark(this)] _this: &RankValue,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<NoneType> {
        builder(eval)?.group_start()?;
        Ok(NoneType)
    }

    fn group_end<'v>(
        #[starlark(this)] _this: &RankValue,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<NoneType> {
        builder(eval)?.group_end()?;
        Ok(NoneType)
    }
}
