//! Collectives. A new kind is one method for Rust and one builtin for Starlark.
//!
//! Not here: which of them may run together (`overlap.rs`), halves of transfers (`p2p.rs`).

use std::sync::Arc;

use rankcheck_model::{Collective, CollectiveKind, Declared, Dtype, Op, Operand, Operation, ReduceOp};
use starlark::environment::MethodsBuilder;
use starlark::eval::Evaluator;
use starlark::starlark_module;
use starlark::values::Value;

use crate::spec::argument::{self, given, natural};
use crate::spec::builder::{Builder, Flow};
use crate::spec::error::Wrong;
use crate::spec::evaluation::builder;
use crate::spec::noun::comm::Comm;
use crate::spec::noun::memory::Buffer;
use crate::spec::noun::stream::Stream;

/// What a collective or a transfer moves: buffers, how many elements of which type, and on which stream.
///
/// A buffer is one, and so is a pair of input and output: `tp.all_reduce(r, &x)?`, `tp.all_gather(r, (&x, &y))?`,
/// `tp.all_reduce(r, Payload::of(&x).op(ReduceOp::Max).on(&stream))?`.
#[derive(Debug, Clone)]
pub struct Payload {
    send: Buffer,
    recv: Option<Buffer>,
    count: Option<u64>,
    dtype: Dtype,
    op: Option<ReduceOp>,
    declared: Declared,
    stream: Option<Stream>,
}

impl Payload {
    /// All of a buffer, as elements of `f32`, on the default stream.
    pub fn of(buffer: impl Into<Buffer>) -> Self {
        Self {
            send: buffer.into(),
            recv: None,
            count: None,
            dtype: Dtype::F32,
            op: None,
            declared: Declared::Nothing,
            stream: None,
        }
    }

    /// The output; without one a collective works in place.
    #[must_use]
    pub fn recv(self, buffer: impl Into<Buffer>) -> Self {
        Self { recv: Some(buffer.into()), ..self }
    }

    /// So many elements; without it, as many as the buffer has.
    #[must_use]
    pub fn count(self, elements: u64) -> Self {
        Self { count: Some(elements), ..self }
    }

    /// Elements of this type.
    #[must_use]
    pub fn dtype(self, dtype: Dtype) -> Self {
        Self { dtype, ..self }
    }

    /// The reduction; a sum without it.
    #[must_use]
    pub fn op(self, op: ReduceOp) -> Self {
        Self { op: Some(op), ..self }
    }

    /// Declares that the fast path is meant: a fallback to the ordinary one is then a finding.
    #[must_use]
    pub fn symmetric(self) -> Self {
        Self { declared: Declared::Symmetric, ..self }
    }

    /// Returns the payload, launched on this stream.
    #[must_use]
    pub fn on(self, stream: &Stream) -> Self {
        Self { stream: Some(*stream), ..self }
    }

    /// Elements that were stated, or that one of the buffers has.
    fn elements(&self, of: &str, buffer: &Buffer) -> Result<u64, Wrong> {
        if let Some(count) = self.count {
            return Ok(count);
        }
        let Some(len_bytes) = buffer.len_bytes else {
            return Err(Wrong::new(
                format!("how many elements? the length of `{of}` is not known while the program is recorded"),
                "give count =, in elements",
            ));
        };
        let size = self.dtype.len_bytes();
        if len_bytes % size != 0 {
            return Err(Wrong::new(
                format!(
                    "`{of}` has {len_bytes} bytes, which are no whole number of {} elements",
                    self.dtype.name()
                ),
                "give count =, in elements, or another dtype",
            ));
        }
        Ok(len_bytes / size)
    }

    /// What half of a transfer moves: its buffer, how many elements of which type, and the stream.
    pub(crate) fn half(self) -> Result<(Buffer, u64, Dtype, Option<Stream>), Wrong> {
        if self.recv.is_some() || self.op.is_some() || self.declared != Declared::Nothing {
            let help = "an output, a reduction and `symmetric` are for collectives";
            return Err(Wrong::new("a transfer has one buffer and no reduction", help));
        }
        let count = self.elements("x", &self.send)?;
        Ok((self.send, count, self.dtype, self.stream))
    }
}

impl From<&Buffer> for Payload {
    fn from(buffer: &Buffer) -> Self {
        Self::of(buffer)
    }
}

impl<S: Into<Buffer>, R: Into<Buffer>> From<(S, R)> for Payload {
    fn from((send, recv): (S, R)) -> Self {
        Self::of(send).recv(recv)
    }
}

/// A launch, for declarations about it.
#[derive(Debug, Clone, Copy)]
pub struct LaunchId(pub(crate) Operation);

/// Where the buffers of a collective come from, and which of them says how many elements there are.
#[derive(Clone, Copy)]
enum Sizing {
    /// In place, unless there is an output.
    InPlaceOr,
    /// Input and output; the input is one rank's part.
    PartIsSent,
    /// Input and output; the output is one rank's part.
    PartIsReceived,
    /// Input and output, with a part for each rank in both.
    PartForEach,
}

impl Comm {
    #[track_caller]
    fn collect(&self, r: &Builder, kind: CollectiveKind, shape: Sizing, payload: Payload) -> Flow<LaunchId> {
        let (recv, count) = match shaped(kind, shape, &payload) {
            Ok(shaped) => shaped,
            Err(wrong) => return Err(r.wrong(wrong)),
        };
        if kind.tells_members_apart() {
            r.tell_ranks_apart();
        }
        let call = Collective {
            kind,
            comm: self.0.clone(),
            send: payload.send.of,
            recv,
            count,
            dtype: payload.dtype,
            op: payload.op.unwrap_or(ReduceOp::Sum),
            stream: r.stream_or_default(payload.stream.as_ref()),
            declared: payload.declared,
        };
        r.launch(Op::Collective(Arc::new(call)))
    }

    /// `ncclAllReduce`, in place without an output.
    #[track_caller]
    pub fn all_reduce(&self, r: &Builder, x: impl Into<Payload>) -> Flow<LaunchId> {
        self.collect(r, CollectiveKind::AllReduce, Sizing::InPlaceOr, x.into())
    }

    /// `ncclAllGather`; the input is one rank's part.
    #[track_caller]
    pub fn all_gather(&self, r: &Builder, x: impl Into<Payload>) -> Flow<LaunchId> {
        self.collect(r, CollectiveKind::AllGather, Sizing::PartIsSent, x.into())
    }

    /// `ncclReduceScatter`; the output is one rank's part.
    #[track_caller]
    pub fn reduce_scatter(&self, r: &Builder, x: impl Into<Payload>) -> Flow<LaunchId> {
        self.collect(r, CollectiveKind::ReduceScatter, Sizing::PartIsReceived, x.into())
    }

    /// `ncclReduce`, in place without an output, which counts on the root alone. The root is a position in the
    /// communicator.
    #[track_caller]
    pub fn reduce(&self, r: &Builder, x: impl Into<Payload>, root: u32) -> Flow<LaunchId> {
        self.collect(r, CollectiveKind::Reduce { root }, Sizing::InPlaceOr, x.into())
    }

    /// `ncclBroadcast`, in place without an output; the input counts on the root alone. The root is a position in the
    /// communicator.
    #[track_caller]
    pub fn broadcast(&self, r: &Builder, x: impl Into<Payload>, root: u32) -> Flow<LaunchId> {
        self.collect(r, CollectiveKind::Broadcast { root }, Sizing::InPlaceOr, x.into())
    }

    /// `ncclAlltoAll`; `count` is the part that goes from one rank to another.
    #[track_caller]
    pub fn all_to_all(&self, r: &Builder, x: impl Into<Payload>) -> Flow<LaunchId> {
        self.collect(r, CollectiveKind::AllToAll, Sizing::PartForEach, x.into())
    }

    /// `ncclGather`; the input is one rank's part, and the output counts on the root alone.
    #[track_caller]
    pub fn gather(&self, r: &Builder, x: impl Into<Payload>, root: u32) -> Flow<LaunchId> {
        self.collect(r, CollectiveKind::Gather { root }, Sizing::PartIsSent, x.into())
    }

    /// `ncclScatter`; the output is one rank's part, and the input counts on the root alone.
    #[track_caller]
    pub fn scatter(&self, r: &Builder, x: impl Into<Payload>, root: u32) -> Flow<LaunchId> {
        self.collect(r, CollectiveKind::Scatter { root }, Sizing::PartIsReceived, x.into())
    }
}

/// The output of a collective, and how many elements it has.
fn shaped(kind: CollectiveKind, shape: Sizing, payload: &Payload) -> Result<(Operand, u64), Wrong> {
    let name = kind.name();
    if payload.op.is_some() && !kind.reduces() {
        return Err(Wrong::new(format!("`{name}` reduces nothing"), "leave the reduction out"));
    }
    let (send, recv) = (&payload.send, payload.recv.as_ref());
    let both = || recv.ok_or_else(|| Wrong::new(format!("`{name}` has no output"), "give input and output"));
    match shape {
        Sizing::InPlaceOr => Ok((recv.unwrap_or(send).of.clone(), payload.elements("x", send)?)),
        Sizing::PartIsSent => Ok((both()?.of.clone(), payload.elements("send", send)?)),
        Sizing::PartIsReceived => Ok((both()?.of.clone(), payload.elements("recv", both()?)?)),
        Sizing::PartForEach => match payload.count {
            Some(count) => Ok((both()?.of.clone(), count)),
            None => Err(Wrong::new(
                format!("`{name}` does not know how many elements go from one rank to another"),
                "give count =, in elements of one part",
            )),
        },
    }
}

impl Builder {
    /// Adds a launch and names it.
    #[track_caller]
    pub(crate) fn launch(&self, op: Op) -> Flow<LaunchId> {
        let launched = LaunchId(self.next_operation());
        self.add(op)?;
        Ok(launched)
    }
}

/// What the arguments of builtins that launch something have in common.
pub(crate) struct LaunchOptions<'v, 's> {
    pub(crate) count: Option<Value<'v>>,
    pub(crate) dtype: Option<&'s str>,
    pub(crate) op: Option<&'s str>,
    pub(crate) symmetric: bool,
    pub(crate) stream: Option<Value<'v>>,
}

impl<'v> LaunchOptions<'v, '_> {
    /// Returns the payload that these buffers make; `name` is what the first is called.
    pub(crate) fn payload(
        &self,
        (name, first): (&str, Value<'v>),
        recv: Option<Value<'v>>,
    ) -> starlark::Result<Payload> {
        let plain = Payload::of(argument::memory(name, first)?);
        Ok(Payload {
            recv: recv.map(|recv| argument::memory("recv", recv)).transpose()?,
            count: given(self.count).map(|count| natural("count", count)).transpose()?,
            dtype: self.dtype.map_or(Ok(plain.dtype), argument::dtype)?,
            op: self.op.map(argument::reduce_op).transpose()?,
            declared: if self.symmetric { Declared::Symmetric } else { Declared::Nothing },
            stream: argument::stream(self.stream)?,
            ..plain
        })
    }
}

#[starlark_module]
pub(crate) fn collective_methods(methods: &mut MethodsBuilder) {
    fn all_reduce<'v>(
        this: Value<'v>,
        x: Value<'v>,
        recv: Option<Value<'v>>,
        count: Option<Value<'v>>,
        dtype: Option<&str>,
        op: Option<&str>,
        #[starlark(default = false)] symmetric: bool,
        stream: Option<Value<'v>>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<LaunchId> {
        let options = LaunchOptions { count, dtype, op, symmetric, stream };
        let payload = options.payload(("x", x), given(recv))?;
        Ok(argument::comm(this)?.all_reduce(builder(eval)?, payload)?)
    }

    fn all_gather<'v>(
        this: Value<'v>,
        send: Value<'v>,
        recv: Value<'v>,
        count: Option<Value<'v>>,
        dtype: Option<&str>,
        #[starlark(default = false)] symmetric: bool,
        stream: Option<Value<'v>>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<LaunchId> {
        let options = LaunchOptions { count, dtype, op: None, symmetric, stream };
        let payload = options.payload(("send", send), Some(recv))?;
        Ok(argument::comm(this)?.all_gather(builder(eval)?, payload)?)
    }

    fn reduce_scatter<'v>(
        this: Value<'v>,
        send: Value<'v>,
        recv: Value<'v>,
        count: Option<Value<'v>>,
        dtype: Option<&str>,
        op: Option<&str>,
        #[starlark(default = false)] symmetric: bool,
        stream: Option<Value<'v>>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<LaunchId> {
        let options = LaunchOptions { count, dtype, op, symmetric, stream };
        let payload = options.payload(("send", send), Some(recv))?;
        Ok(argument::comm(this)?.reduce_scatter(builder(eval)?, payload)?)
    }

    fn reduce<'v>(
        this: Value<'v>,
        x: Value<'v>,
        recv: Option<Value<'v>>,
        #[starlark(default = 0)] root: i32,
        count: Option<Value<'v>>,
        dtype: Option<&str>,
        op: Option<&str>,
        #[starlark(default = false)] symmetric: bool,
        stream: Option<Value<'v>>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<LaunchId> {
        let options = LaunchOptions { count, dtype, op, symmetric, stream };
        let payload = options.payload(("x", x), given(recv))?;
        Ok(argument::comm(this)?.reduce(builder(eval)?, payload, root.cast_unsigned())?)
    }

    fn broadcast<'v>(
        this: Value<'v>,
        x: Value<'v>,
        #[starlark(default = 0)] root: i32,
        recv: Option<Value<'v>>,
        count: Option<Value<'v>>,
        dtype: Option<&str>,
        #[starlark(default = false)] symmetric: bool,
        stream: Option<Value<'v>>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<LaunchId> {
        let options = LaunchOptions { count, dtype, op: None, symmetric, stream };
        let payload = options.payload(("x", x), given(recv))?;
        Ok(argument::comm(this)?.broadcast(builder(eval)?, payload, root.cast_unsigned())?)
    }

    fn all_to_all<'v>(
        this: Value<'v>,
        send: Value<'v>,
        recv: Value<'v>,
        count: Option<Value<'v>>,
        dtype: Option<&str>,
        stream: Option<Value<'v>>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<LaunchId> {
        let options = LaunchOptions { count, dtype, op: None, symmetric: false, stream };
        let payload = options.payload(("send", send), Some(recv))?;
        Ok(argument::comm(this)?.all_to_all(builder(eval)?, payload)?)
    }

    fn gather<'v>(
        this: Value<'v>,
        send: Value<'v>,
        recv: Value<'v>,
        #[starlark(default = 0)] root: i32,
        count: Option<Value<'v>>,
        dtype: Option<&str>,
        stream: Option<Value<'v>>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<LaunchId> {
        let options = LaunchOptions { count, dtype, op: None, symmetric: false, stream };
        let payload = options.payload(("send", send), Some(recv))?;
        Ok(argument::comm(this)?.gather(builder(eval)?, payload, root.cast_unsigned())?)
    }

    fn scatter<'v>(
        this: Value<'v>,
        send: Value<'v>,
        recv: Value<'v>,
        #[starlark(default = 0)] root: i32,
        count: Option<Value<'v>>,
        dtype: Option<&str>,
        stream: Option<Value<'v>>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<LaunchId> {
        let options = LaunchOptions { count, dtype, op: None, symmetric: false, stream };
        let payload = options.payload(("send", send), Some(recv))?;
        Ok(argument::comm(this)?.scatter(builder(eval)?, payload, root.cast_unsigned())?)
    }
}
