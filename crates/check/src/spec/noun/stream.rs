//! Streams: kernels, and who waits for what was launched.
//!
//! Not here: collectives and transfers, which run on streams too.

use rankcheck_model::{Op, Operand, StreamOp, Token};
use starlark::environment::MethodsBuilder;
use starlark::eval::Evaluator;
use starlark::starlark_module;
use starlark::values::Value;
use starlark::values::list::UnpackList;
use starlark::values::none::NoneType;

use crate::spec::argument::{self, expected};
use crate::spec::builder::{Builder, Flow};
use crate::spec::evaluation::{Evaluation, builder};
use crate::spec::handle::Handle;
use crate::spec::noun::event::{self, Event};
use crate::spec::noun::memory::Buffer;
use crate::spec::rank::RankValue;

/// A stream of a rank, by name. Where verbs take none, they use the one that is called `default`.
#[derive(Debug, Clone, Copy)]
pub struct Stream(pub(crate) Token);

impl Builder {
    /// The stream of this name.
    pub fn stream(&self, name: &str) -> Stream {
        Stream(self.token(name))
    }

    /// The stream that was named, or the default one.
    pub(crate) fn stream_or_default(&self, stream: Option<&Stream>) -> Token {
        stream.map_or_else(|| self.token("default"), |stream| stream.0)
    }

    /// A kernel of the user, which reads and writes buffers.
    #[track_caller]
    pub fn kernel(&self, name: &str, reads: &[&Buffer], writes: &[&Buffer], stream: Option<&Stream>) -> Flow {
        let of = |buffers: &[&Buffer]| buffers.iter().map(|buffer| buffer.of.clone()).collect();
        let (reads, writes) = (of(reads), of(writes));
        let stream = self.stream_or_default(stream);
        self.add(Op::Stream(StreamOp::Kernel { name: self.token(name), reads, writes, stream }))
    }

    /// `cudaDeviceSynchronize`: the host waits for all streams of the rank.
    #[track_caller]
    pub fn synchronize(&self) -> Flow {
        self.add(Op::Stream(StreamOp::Synchronize { what: Operand::Device }))
    }
}

impl Stream {
    /// `cudaStreamWaitEvent`: later work of the stream waits for the event's last record.
    #[track_caller]
    pub fn wait(&self, r: &Builder, event: &Event) -> Flow {
        r.add(Op::Stream(StreamOp::Wait { stream: self.0, event: event.0 }))
    }

    /// `cudaStreamSynchronize`: the host waits for all that is on the stream.
    #[track_caller]
    pub fn synchronize(&self, r: &Builder) -> Flow {
        r.add(Op::Stream(StreamOp::Synchronize { what: Operand::Stream(self.0) }))
    }
}

fn stream(this: Value<'_>) -> starlark::Result<Stream> {
    match Handle::of(this) {
        Some(Handle::Stream(name)) => Ok(Stream(*name)),
        _ => Err(expected("this", "a stream", this)),
    }
}

fn buffers(argument: &str, values: Option<UnpackList<Value<'_>>>) -> starlark::Result<Vec<Buffer>> {
    let values = values.map_or_else(Vec::new, |values| values.items);
    values.into_iter().map(|value| argument::memory(argument, value)).collect()
}

#[starlark_module]
pub(crate) fn streams_of_rank(methods: &mut MethodsBuilder) {
    fn stream<'v>(
        #[starlark(this)] _this: &RankValue,
        name: &str,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Stream> {
        Ok(Evaluation::of(eval)?.builder.stream(name))
    }

    fn kernel<'v>(
        #[starlark(this)] _this: &RankValue,
        name: &str,
        reads: Option<UnpackList<Value<'v>>>,
        writes: Option<UnpackList<Value<'v>>>,
        stream: Option<Value<'v>>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<NoneType> {
        let (reads, writes) = (buffers("reads", reads)?, buffers("writes", writes)?);
        let (reads, writes): (Vec<_>, Vec<_>) = (reads.iter().collect(), writes.iter().collect());
        let stream = argument::stream(stream)?;
        builder(eval)?.kernel(name, &reads, &writes, stream.as_ref())?;
        Ok(NoneType)
    }

    fn synchronize<'v>(
        #[starlark(this)] _this: &RankValue,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<NoneType> {
        builder(eval)?.synchronize()?;
        Ok(NoneType)
    }
}

#[starlark_module]
pub(crate) fn stream_methods(methods: &mut MethodsBuilder) {
    fn wait<'v>(
        this: Value<'v>,
        event: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<NoneType> {
        let event = event::event("event", event)?;
        stream(this)?.wait(builder(eval)?, &event)?;
        Ok(NoneType)
    }

    fn synchronize<'v>(this: Value<'v>, eval: &mut Evaluator<'v, '_, '_>) -> starlark::Result<NoneType> {
        stream(this)?.synchronize(builder(eval)?)?;
        Ok(NoneType)
    }
}
