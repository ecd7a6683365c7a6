//! Halves of transfers: sends and receives.
//!
//! Not here: groups, in which transfers progress together (`group.rs`).

use std::sync::Arc;

use rankcheck_model::{Direction, Op, Transfer};
use starlark::environment::MethodsBuilder;
use starlark::eval::Evaluator;
use starlark::starlark_module;
use starlark::values::Value;

use crate::spec::argument;
use crate::spec::builder::{Builder, Flow};
use crate::spec::evaluation::builder;
use crate::spec::noun::collective::{LaunchId, LaunchOptions, Payload};
use crate::spec::noun::comm::Comm;

impl Comm {
    /// `ncclSend`. The peer is a position in the communicator, not a world rank.
    #[track_caller]
    pub fn send(&self, r: &Builder, x: impl Into<Payload>, peer: u32) -> Flow<LaunchId> {
        self.transfer(r, Direction::Send, x.into(), peer)
    }

    /// `ncclRecv`. The peer is a position in the communicator, not a world rank.
    #[track_caller]
    pub fn recv(&self, r: &Builder, x: impl Into<Payload>, peer: u32) -> Flow<LaunchId> {
        self.transfer(r, Direction::Recv, x.into(), peer)
    }

    #[track_caller]
    fn transfer(&self, r: &Builder, direction: Direction, payload: Payload, peer: u32) -> Flow<LaunchId> {
        let (buffer, count, dtype, stream) = match payload.half() {
            Ok(half) => half,
            Err(wrong) => return Err(r.wrong(wrong)),
        };
        r.tell_ranks_apart();
        let stream = r.stream_or_default(stream.as_ref());
        let call =
            Transfer { direction, comm: self.0.clone(), peer, buffer: buffer.of, count, dtype, stream };
        r.launch(Op::Transfer(Arc::new(call)))
    }
}

#[starlark_module]
pub(crate) fn transfer_methods(methods: &mut MethodsBuilder) {
    fn send<'v>(
        this: Value<'v>,
        x: Value<'v>,
        peer: i32,
        count: Option<Value<'v>>,
        dtype: Option<&str>,
        stream: Option<Value<'v>>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<LaunchId> {
        let options = LaunchOptions { count, dtype, op: None, symmetric: false, stream };
        let payload = options.payload(("x", x), None)?;
        Ok(argument::comm(this)?.send(builder(eval)?, payload, peer.cast_unsigned())?)
    }

    fn recv<'v>(
        this: Value<'v>,
        x: Value<'v>,
        peer: i32,
        count: Option<Value<'v>>,
        dtype: Option<&str>,
        stream: Option<Value<'v>>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<LaunchId> {
        let options = LaunchOptions { count, dtype, op: None, symmetric: false, stream };
        let payload = options.payload(("x", x), None)?;
        Ok(argument::comm(this)?.recv(builder(eval)?, payload, peer.cast_unsigned())?)
    }
}
