//! Graphs of CUDA: capture, replay, destruction.
//!
//! Not here: what is captured, which is what operations on the captured streams do.

use rankcheck_model::{CaptureMode, GraphOp, Op, Token};
use starlark::environment::MethodsBuilder;
use starlark::eval::Evaluator;
use starlark::starlark_module;
use starlark::values::Value;
use starlark::values::none::NoneType;

use crate::spec::argument::{self, expected, given};
use crate::spec::builder::{Builder, Flow};
use crate::spec::error::wrong;
use crate::spec::evaluation::{Evaluation, builder};
use crate::spec::handle::Handle;
use crate::spec::noun::pool::{self, Pool};
use crate::spec::noun::stream::Stream;
use crate::spec::noun::value::Fetched;
use crate::spec::rank::RankValue;

/// A graph of a rank, by name.
#[derive(Debug, Clone, Copy)]
pub struct Graph(pub(crate) Token);

/// How a capture begins: on the default stream, global, and without a pool of its own, unless it says otherwise.
#[derive(Debug, Clone, Default)]
pub struct Capture {
    stream: Option<Stream>,
    mode: Option<CaptureMode>,
    pool: Option<Token>,
}

impl Capture {
    /// Returns the capture, begun on this stream.
    #[must_use]
    pub fn on(self, stream: &Stream) -> Self {
        Self { stream: Some(*stream), ..self }
    }

    /// Returns the capture, begun in this mode.
    #[must_use]
    pub fn mode(self, mode: CaptureMode) -> Self {
        Self { mode: Some(mode), ..self }
    }

    /// What this pool gives meanwhile belongs to the graph.
    #[must_use]
    pub fn pool(self, pool: &Pool) -> Self {
        Self { pool: Some(pool.name), ..self }
    }
}

impl Builder {
    /// The graph of this name.
    pub fn graph(&self, name: &str) -> Graph {
        Graph(self.token(name))
    }
}

impl Graph {
    /// `cudaStreamBeginCapture`, on the default stream and in global mode unless the capture says otherwise.
    #[track_caller]
    pub fn begin(&self, r: &Builder, capture: Capture) -> Flow {
        let stream = r.stream_or_default(capture.stream.as_ref());
        let mode = capture.mode.unwrap_or(CaptureMode::Global);
        r.add(Op::Graph(GraphOp::Begin { graph: self.0, stream, mode, pool: capture.pool }))
    }

    /// `cudaStreamEndCapture`. Gives null if the capture was invalidated.
    #[track_caller]
    pub fn end(&self, r: &Builder) -> Flow<Fetched> {
        r.add_result(Op::Graph(GraphOp::End { graph: self.0 })).map(Fetched)
    }

    /// `cudaGraphLaunch`, on the default stream if none is given.
    #[track_caller]
    pub fn replay(&self, r: &Builder, stream: Option<&Stream>) -> Flow {
        let stream = r.stream_or_default(stream);
        r.add(Op::Graph(GraphOp::Replay { graph: self.0, stream }))
    }

    /// `cudaGraphExecDestroy`, after which nothing can replay it.
    #[track_caller]
    pub fn destroy(&self, r: &Builder) -> Flow {
        r.add(Op::Graph(GraphOp::Destroy { graph: self.0 }))
    }
}

fn graph(this: Value<'_>) -> starlark::Result<Graph> {
    match Handle::of(this) {
        Some(Handle::Graph(name)) => Ok(Graph(*name)),
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
pub(crate) fn graph_of_rank(methods: &mut MethodsBuilder) {
    fn graph<'v>(
        #[starlark(this)] _this: &RankValue,
        name: &str,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Graph> {
        Ok(Evaluation::of(eval)?.builder.graph(name))
    }
}

#[starlark_module]
pub(crate) fn graph_methods(methods: &mut MethodsBuilder) {
    fn begin<'v>(
        this: Value<'v>,
        stream: Option<Value<'v>>,
        mode: Option<&str>,
        pool: Option<Value<'v>>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<NoneType> {
        let capture = Capture {
            stream: argument::stream(stream)?,
            mode: mode.map(capture_mode).transpose()?,
            pool: given(pool).map(|pool| pool::pool(pool).map(|pool| pool.name)).transpose()?,
        };
        graph(this)?.begin(builder(eval)?, capture)?;
        Ok(NoneType)
    }

    fn end<'v>(this: Value<'v>, eval: &mut Evaluator<'v, '_, '_>) -> starlark::Result<Fetched> {
        Ok(graph(this)?.end(builder(eval)?)?)
    }

    fn replay<'v>(
        this: Value<'v>,
        stream: Option<Value<'v>>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<NoneType> {
        let stream = argument::stream(stream)?;
        graph(this)?.replay(builder(eval)?, stream.as_ref())?;
        Ok(NoneType)
    }

    fn destroy<'v>(this: Value<'v>, eval: &mut Evaluator<'v, '_, '_>) -> starlark::Result<NoneType> {
        graph(this)?.destroy(builder(eval)?)?;
        Ok(NoneType)
    }
}
