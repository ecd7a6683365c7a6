//! Declarations that two launches are meant to run at the same time.
//!
//! Not here: the launches (`collective.rs`, `p2p.rs`).

use rankcheck_model::{Op, OverlapOp};
use starlark::environment::MethodsBuilder;
use starlark::eval::Evaluator;
use starlark::starlark_module;
use starlark::values::Value;
use starlark::values::none::NoneType;

use crate::spec::argument::expected;
use crate::spec::builder::{Builder, Flow};
use crate::spec::error::Wrong;
use crate::spec::evaluation::builder;
use crate::spec::handle::Handle;
use crate::spec::noun::collective::LaunchId;
use crate::spec::rank::RankValue;

impl Builder {
    /// Declares that two launches are meant to run at the same time. Declare before a thread waits for them; a closure
    /// says beforehand that it will, with [`Program::declares_overlap`](crate::closure::Program::declares_overlap).
    #[track_caller]
    pub fn overlap(&self, one: LaunchId, other: LaunchId) -> Flow {
        if !self.setting.declares_overlap {
            return Err(self.wrong(Wrong::new(
                "this program does not say that it declares overlap",
                "Program::declares_overlap says so; a spec does by calling `r.overlap(…)`",
            )));
        }
        self.add(Op::Overlap(OverlapOp { one: one.0, other: other.0 }))
    }
}

#[starlark_module]
pub(crate) fn overlap_of_rank(methods: &mut MethodsBuilder) {
    fn overlap<'v>(
        #[starlark(this)] _this: &RankValue,
        one: Value<'v>,
        other: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<NoneType> {
        let launch = |argument: &str, value: Value<'v>| match Handle::of(value) {
            Some(Handle::Operation(operation)) => Ok(LaunchId(*operation)),
            _ => Err(expected(argument, "what a send, a receive or a collective returned", value)),
        };
        let (one, other) = (launch("one", one)?, launch("other", other)?);
        builder(eval)?.overlap(one, other)?;
        Ok(NoneType)
    }
}
