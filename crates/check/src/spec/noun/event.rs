//! Events of CUDA.
//!
//! Not here: streams that wait for them (`stream.rs`).

use rankcheck_model::{EventOp, Op, Operand, Question, StreamOp, Token};
use starlark::environment::MethodsBuilder;
use starlark::eval::Evaluator;
use starlark::starlark_module;
use starlark::values::Value;
use starlark::values::none::NoneType;

use crate::spec::argument::{self, expected};
use crate::spec::builder::{Builder, Flow};
use crate::spec::evaluation::{Evaluation, builder};
use crate::spec::handle::Handle;
use crate::spec::noun::stream::Stream;
use crate::spec::rank::RankValue;

/// An event of a rank, by name.
#[derive(Debug, Clone, Copy)]
pub struct Event(pub(crate) Token);

impl Builder {
    /// The event of this name.
    pub fn event(&self, name: &str) -> Event {
        Event(self.token(name))
    }
}

impl Event {
    /// `cudaEventRecord`, on the default stream if none is given.
    #[track_caller]
    pub fn record(&self, r: &Builder, stream: Option<&Stream>) -> Flow {
        r.add(Op::Event(EventOp { stream: r.stream_or_default(stream), event: self.0 }))
    }

    /// `cudaEventSynchronize`: the host waits for the event's last record.
    #[track_caller]
    pub fn synchronize(&self, r: &Builder) -> Flow {
        r.add(Op::Stream(StreamOp::Synchronize { what: Operand::Event(self.0) }))
    }

    /// `cudaEventQuery`: asks whether its last record is complete.
    #[track_caller]
    pub fn query(&self, r: &Builder) -> Flow<bool> {
        r.ask_whether(Question::EventQuery { event: self.0 })
    }
}

/// An argument that is an event.
pub(crate) fn event(argument: &str, value: Value<'_>) -> starlark::Result<Event> {
    match Handle::of(value) {
        Some(Handle::Event(name)) => Ok(Event(*name)),
        _ => Err(expected(argument, "an event", value)),
    }
}

#[starlark_module]
pub(crate) fn event_of_rank(methods: &mut MethodsBuilder) {
    fn event<'v>(
        #[starlark(this)] _this: &RankValue,
        name: &str,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Event> {
        Ok(Evaluation::of(eval)?.builder.event(name))
    }
}

#[starlark_module]
pub(crate) fn event_methods(methods: &mut MethodsBuilder) {
    fn record<'v>(
        this: Value<'v>,
        stream: Option<Value<'v>>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<NoneType> {
        let stream = argument::stream(stream)?;
        event("this", this)?.record(builder(eval)?, stream.as_ref())?;
        Ok(NoneType)
    }

    fn synchronize<'v>(this: Value<'v>, eval: &mut Evaluator<'v, '_, '_>) -> starlark::Result<NoneType> {
        event("this", this)?.synchronize(builder(eval)?)?;
        Ok(NoneType)
    }

    fn query<'v>(this: Value<'v>, eval: &mut Evaluator<'v, '_, '_>) -> starlark::Result<bool> {
        Ok(event("this", this)?.query(builder(eval)?)?)
    }
}
