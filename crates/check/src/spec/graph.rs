//! Methods of graphs: capture, replay, destruction.
//!
//! Not here: what is recorded, which is what operations on the captured streams do.

use rankcheck_model::{CaptureMode, GraphOp, Op, Token};
use starlark::environment::MethodsBuilder;
use starlark::eval::Evaluator;
use starlark::starlark_module;
use starlark::values::none::NoneType;
use starlark::values::{Value, ValueLike};

use crate::spec::error::wrong;
use crate::spec::evaluation::{expected, record, record_slot, stream};
use crate::spec::memory::PoolValue;
use crate::spec::noun::Noun;

fn graph(this: Value<'_>) -> starlark::Result<Token> {
    match Noun::of(this) {
        Some(Noun::Graph(name)) => Ok(*name),
        _ => Err(expected("graph", "a graph", this)),
    }
}

fn capture_mode(mode: &str) -> starlark::Result<CaptureMode> {
    match mode {
        "global" => Ok(CaptureMode::Global),
        "thread_local" => Ok(CaptureMode::ThreadLocal),
        "relaxed" => Ok(CaptureMode::Relaxed),
        _ => Err(wrong(
            format!("there is no capture mode {mode:?}"),
            "`mode` is \"global\", \"thread_local\" or \"relaxed\"",
        )),
    }
}

#[starlark_module]
pub(crate) fn graph_methods(builder: &mut MethodsBuilder) {
    fn begin<'v>(
        this: Value<'v>,
        stream: Option<Value<'v>>,
        #[starlark(default = "global")] mode: &str,
        pool: Option<Value<'v>>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<NoneType> {
        let (graph, stream, mode) = (graph(this)?, self::stream(eval, stream)?, capture_mode(mode)?);
        let pool = match pool.filter(|pool| !pool.is_none()) {
            Some(pool) => match pool.downcast_ref::<PoolValue<'v>>() {
                Some(value) => Some(value.pool),
                None => return Err(expected("pool", "a pool", pool)),
            },
            None => None,
        };
        record(eval, Op::Graph(GraphOp::Begin { graph, stream, mode, pool }))?;
        Ok(NoneType)
    }

    fn end<'v>(this: Value<'v>, eval: &mut Evaluator<'v, '_, '_>) -> starlark::Result<Value<'v>> {
        let graph = graph(this)?;
        Ok(Noun::Slot(record_slot(eval, Op::Graph(GraphOp::End { graph }))?).alloc(eval.heap()))
    }

    fn replay<'v>(
        this: Value<'v>,
        stream: Option<Value<'v>>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<NoneType> {
        let (graph, stream) = (graph(this)?, self::stream(eval, stream)?);
        record(eval, Op::Graph(GraphOp::Replay { graph, stream }))?;
        Ok(NoneType)
    }

    fn destroy<'v>(this: Value<'v>, eval: &mut Evaluator<'v, '_, '_>) -> starlark::Result<NoneType> {
        record(eval, Op::Graph(GraphOp::Destroy { graph: graph(this)? }))?;
        Ok(NoneType)
    }
}
