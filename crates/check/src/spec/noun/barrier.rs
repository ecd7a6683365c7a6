//! Host processes that wait for each other.
//!
//! Not here: collectives, which devices run.

use rankcheck_model::{BarrierOp, Op, Operand};
use starlark::environment::MethodsBuilder;
use starlark::eval::Evaluator;
use starlark::starlark_module;
use starlark::values::Value;
use starlark::values::none::NoneType;

use crate::spec::argument::{self, operand};
use crate::spec::builder::{Builder, Flow};
use crate::spec::evaluation::builder;
use crate::spec::noun::comm::signed;
use crate::spec::noun::value::Holdable;
use crate::spec::rank::RankValue;

/// What ranks agreed on, for which [`Builder::truth`] asks.
#[derive(Debug, Clone)]
pub struct Agreed(pub(crate) Operand);

impl Builder {
    /// A barrier of host processes, of all ranks or of these.
    #[track_caller]
    pub fn barrier(&self, ranks: Option<&[u32]>) -> Flow {
        self.barrier_of(ranks.map(signed).as_deref())
    }

    #[track_caller]
    fn barrier_of(&self, ranks: Option<&[i64]>) -> Flow {
        let members = self.members_who_meet("r.barrier", ranks)?;
        self.add(Op::Barrier(BarrierOp::Enter { members }))
    }

    /// Whether all of these ranks, or all there are, gave true.
    #[track_caller]
    pub fn all_agree(&self, ok: impl Holdable, ranks: Option<&[u32]>) -> Flow<Agreed> {
        self.require_value("r.all_agree", ok.noun())?;
        self.all_agree_of(ok.operand(self), ranks.map(signed).as_deref())
    }

    #[track_caller]
    fn all_agree_of(&self, value: Operand, ranks: Option<&[i64]>) -> Flow<Agreed> {
        let members = self.members_who_meet("r.all_agree", ranks)?;
        self.add_result(Op::Barrier(BarrierOp::AllAgree { members, value })).map(Agreed)
    }
}

#[starlark_module]
pub(crate) fn barriers_of_rank(methods: &mut MethodsBuilder) {
    fn barrier<'v>(
        #[starlark(this)] _this: &RankValue,
        ranks: Option<Value<'v>>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<NoneType> {
        let ranks = argument::ranks(ranks)?;
        builder(eval)?.barrier_of(ranks.as_deref())?;
        Ok(NoneType)
    }

    fn all_agree<'v>(
        #[starlark(this)] _this: &RankValue,
        ok: Value<'v>,
        ranks: Option<Value<'v>>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Agreed> {
        let (ranks, value) = (argument::ranks(ranks)?, operand(eval, ok)?);
        let builder = builder(eval)?;
        builder.require_value("r.all_agree", ok.get_type())?;
        Ok(builder.all_agree_of(value, ranks.as_deref())?)
    }
}
