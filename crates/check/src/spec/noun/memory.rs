//! Memory: buffers, segments, slices, copies, and what buffers are expected to hold.
//!
//! Not here: pools (`pool.rs`), memory of other ranks (`ipc.rs`, `exchange.rs`).

use std::ops::Range;
use std::sync::Arc;

use rankcheck_model::{DataOrigin, Made, MemoryKind, MemoryOp, Op, Operand, ReduceOp};
use starlark::environment::MethodsBuilder;
use starlark::eval::Evaluator;
use starlark::starlark_module;
use starlark::values::Value;
use starlark::values::none::NoneType;

use crate::spec::argument::{self, expected, given, natural};
use crate::spec::builder::{Builder, Flow};
use crate::spec::error::{Wrong, wrong};
use crate::spec::evaluation::builder;
use crate::spec::handle::Handle;
use crate::spec::noun::comm::Comm;
use crate::spec::noun::event::{self, Event};
use crate::spec::noun::stream::Stream;
use crate::spec::rank::RankValue;

/// Memory: a block, an allocation, a slice, a mapping.
#[derive(Debug, Clone)]
pub struct Buffer {
    pub(crate) of: Operand,
    /// Where it is known.
    pub(crate) len_bytes: Option<u64>,
}

/// A segment of a pool.
#[derive(Debug, Clone)]
pub struct Segment(pub(crate) Operand);

/// An address: an opaque value with equality, for which [`Builder::equal`] asks.
#[derive(Debug, Clone)]
pub struct Address(pub(crate) Operand);

impl From<&Buffer> for Buffer {
    fn from(buffer: &Buffer) -> Self {
        buffer.clone()
    }
}

impl From<&Segment> for Buffer {
    fn from(segment: &Segment) -> Self {
        Self { of: segment.0.clone(), len_bytes: None }
    }
}

impl Builder {
    /// `cudaMalloc`: memory that cannot be registered as a window.
    #[track_caller]
    pub fn malloc(&self, name: &str, len_bytes: u64) -> Flow<Buffer> {
        self.allocate(name, len_bytes, MemoryKind::Cuda)
    }

    /// `ncclMemAlloc`: memory that can be registered as a window.
    #[track_caller]
    pub fn mem_alloc(&self, name: &str, len_bytes: u64) -> Flow<Buffer> {
        self.allocate(name, len_bytes, MemoryKind::Nccl)
    }

    /// `cuMemCreate` with a shareable handle, mapped: memory that can be registered as a window, and that lives as long
    /// as it is mapped anywhere.
    #[track_caller]
    pub fn mem_create(&self, name: &str, len_bytes: u64) -> Flow<Buffer> {
        self.allocate(name, len_bytes, MemoryKind::CuMem)
    }

    #[track_caller]
    fn allocate(&self, name: &str, len_bytes: u64, memory: MemoryKind) -> Flow<Buffer> {
        let op = Op::Memory(MemoryOp::Alloc { name: self.token(name), len_bytes, memory });
        Ok(Buffer { of: self.add_result(op)?, len_bytes: Some(len_bytes) })
    }

    /// `cudaMemcpyAsync` of all of `src`, on one device or through a mapping of a peer's memory.
    #[track_caller]
    pub fn copy(&self, dst: impl Into<Buffer>, src: impl Into<Buffer>, stream: Option<&Stream>) -> Flow {
        let (dst, src) = (dst.into(), src.into());
        let stream = self.stream_or_default(stream);
        self.add(Op::Memory(MemoryOp::Copy { to: dst.of, from: src.of, stream }))
    }

    /// States that the buffer holds what comes from there on this rank, when the stream gets here. On a device it does
    /// nothing.
    #[track_caller]
    pub fn expect(
        &self,
        buffer: impl Into<Buffer>,
        data: impl Into<ExpectedData>,
        rank: u32,
        stream: Option<&Stream>,
    ) -> Flow {
        self.expect_of(&buffer.into(), data.into(), rank.into(), stream)
    }

    /// States that the buffer holds the gather of what comes from there on all members of a communicator: one part of
    /// each, in their order.
    #[track_caller]
    pub fn expect_gathered(
        &self,
        buffer: impl Into<Buffer>,
        data: impl Into<ExpectedData>,
        comm: &Comm,
        stream: Option<&Stream>,
    ) -> Flow {
        self.expect_made(&buffer.into(), data.into(), Made::Gathered(comm.0.clone()), stream)
    }

    /// States that the buffer holds the reduction of what comes from there on all members of a communicator, or a part
    /// of it.
    #[track_caller]
    pub fn expect_reduced(
        &self,
        buffer: impl Into<Buffer>,
        data: impl Into<ExpectedData>,
        (comm, op): (&Comm, ReduceOp),
        stream: Option<&Stream>,
    ) -> Flow {
        self.expect_made(&buffer.into(), data.into(), Made::Reduced(comm.0.clone(), op), stream)
    }

    #[track_caller]
    fn expect_of(&self, buffer: &Buffer, data: ExpectedData, rank: i64, stream: Option<&Stream>) -> Flow {
        let by = self.known_rank(rank)?;
        self.expect_made(buffer, data, Made::By(by), stream)
    }

    #[track_caller]
    fn expect_made(&self, buffer: &Buffer, data: ExpectedData, made: Made, stream: Option<&Stream>) -> Flow {
        // Memory of another rank is memory of one of them, and the parts of a gather stand in their order.
        self.tell_ranks_apart();
        let origin = match data {
            ExpectedData::WrittenBy(kernel) => DataOrigin::Kernel(self.token(&kernel)),
            ExpectedData::Of(Buffer { of: Operand::Slice { .. }, .. }) => {
                let help =
                    "give the whole buffer: it is compared whose data arrived, and not which bytes of them";
                return Err(self.wrong(Wrong::new("`data` is a part of a buffer", help)));
            }
            ExpectedData::Of(buffer) => DataOrigin::Allocated(buffer.of),
        };
        let stream = self.stream_or_default(stream);
        self.add(Op::Memory(MemoryOp::Expect { buffer: buffer.of.clone(), origin, made, stream }))
    }
}

/// Where data come from that a buffer is expected to hold, on each rank that gave some.
#[derive(Debug, Clone)]
pub enum ExpectedData {
    /// The kernel of this name wrote them.
    WrittenBy(String),
    /// The buffer held them when it was allocated; on another rank, a buffer of its name.
    Of(Buffer),
}

impl From<&str> for ExpectedData {
    fn from(kernel: &str) -> Self {
        Self::WrittenBy(kernel.to_owned())
    }
}

impl From<&Buffer> for ExpectedData {
    fn from(buffer: &Buffer) -> Self {
        Self::Of(buffer.clone())
    }
}

impl Buffer {
    /// Returns the null buffer.
    #[must_use]
    pub fn null() -> Self {
        Self { of: Operand::Null, len_bytes: None }
    }

    /// These bytes of it.
    #[track_caller]
    pub fn slice(&self, r: &Builder, bytes: Range<u64>) -> Flow<Self> {
        match self.cut("buffer", bytes) {
            Ok(slice) => Ok(slice),
            Err(wrong) => Err(r.wrong(wrong)),
        }
    }

    /// These bytes of it, which is called so in errors.
    pub(crate) fn cut(&self, name: &str, Range { start, end }: Range<u64>) -> Result<Self, Wrong> {
        // Where the buffer ends is nothing that a call knows: who uses more is found when it does.
        if start > end {
            return Err(Wrong::new(
                format!("a slice of a {name} that ends before it starts: [{start}:{end}]"),
                "a slice starts at or before its end",
            ));
        }
        let (of, before) = if let Operand::Slice { of, offset_bytes, .. } = &self.of {
            (of.clone(), *offset_bytes)
        } else {
            (Arc::new(self.of.clone()), 0)
        };
        let len_bytes = end - start;
        let of = Operand::Slice { of, offset_bytes: before + start, len_bytes };
        Ok(Self { of, len_bytes: Some(len_bytes) })
    }

    /// Its length, if that is known.
    #[must_use]
    pub fn len_bytes(&self) -> Option<u64> {
        self.len_bytes
    }

    /// Gives the block back, or only once this event is seen complete.
    #[track_caller]
    pub fn free(&self, r: &Builder, after: Option<&Event>) -> Flow {
        let after = after.map(|event| event.0);
        r.add(Op::Memory(MemoryOp::Free { buffer: self.of.clone(), after }))
    }

    /// The segment in which it lies; a slice lies where its buffer does.
    #[must_use]
    pub fn segment(&self) -> Segment {
        match &self.of {
            Operand::Slice { of, .. } => Segment(Operand::Segment(of.clone())),
            Operand::Null
            | Operand::Int(_)
            | Operand::Token(_)
            | Operand::Bool(_)
            | Operand::Slot(_)
            | Operand::Segment(_)
            | Operand::Address(_)
            | Operand::Tuple(_)
            | Operand::At { .. }
            | Operand::Stream(_)
            | Operand::Event(_)
            | Operand::Device => Segment(Operand::Segment(self.of.clone().into())),
        }
    }

    /// Its address, an opaque value.
    #[must_use]
    pub fn address(&self) -> Address {
        Address(Operand::Address(self.of.clone().into()))
    }

    /// Of a mapping of a peer's allocation: the bytes at which a buffer of this rank lies in its own.
    #[must_use]
    pub fn at(&self, buffer: &Self) -> Self {
        let of = Operand::At { of: self.of.clone().into(), like: buffer.of.clone().into() };
        Self { of, len_bytes: buffer.len_bytes }
    }
}

impl Segment {
    /// Its address, an opaque value.
    #[must_use]
    pub fn address(&self) -> Address {
        Address(Operand::Address(self.0.clone().into()))
    }
}

#[starlark_module]
pub(crate) fn memory_of_rank(methods: &mut MethodsBuilder) {
    fn malloc<'v>(
        #[starlark(this)] _this: &RankValue,
        name: &str,
        bytes: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Buffer> {
        let len_bytes = natural("bytes", bytes)?;
        Ok(builder(eval)?.malloc(name, len_bytes)?)
    }

    fn mem_alloc<'v>(
        #[starlark(this)] _this: &RankValue,
        name: &str,
        bytes: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Buffer> {
        let len_bytes = natural("bytes", bytes)?;
        Ok(builder(eval)?.mem_alloc(name, len_bytes)?)
    }

    fn mem_create<'v>(
        #[starlark(this)] _this: &RankValue,
        name: &str,
        bytes: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Buffer> {
        let len_bytes = natural("bytes", bytes)?;
        Ok(builder(eval)?.mem_create(name, len_bytes)?)
    }

    fn copy<'v>(
        #[starlark(this)] _this: &RankValue,
        dst: Value<'v>,
        src: Value<'v>,
        stream: Option<Value<'v>>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<NoneType> {
        let (dst, src) = (argument::memory("dst", dst)?, argument::memory("src", src)?);
        let stream = argument::stream(stream)?;
        builder(eval)?.copy(dst, src, stream.as_ref())?;
        Ok(NoneType)
    }

    fn expect<'v>(
        #[starlark(this)] _this: &RankValue,
        buffer: Value<'v>,
        data: Value<'v>,
        rank: Option<Value<'v>>,
        #[starlark(require = named)] gathered: Option<Value<'v>>,
        #[starlark(require = named)] reduced: Option<Value<'v>>,
        #[starlark(require = named)] op: Option<&str>,
        stream: Option<Value<'v>>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<NoneType> {
        let buffer = argument::memory("buffer", buffer)?;
        let data = match data.unpack_str() {
            Some(kernel) => ExpectedData::from(kernel),
            None if Handle::of(data).is_none() => {
                return Err(expected("data", "the name of a kernel or a buffer", data));
            }
            None => ExpectedData::Of(argument::memory("data", data)?),
        };
        let stream = argument::stream(stream)?;
        let (rank, gathered, reduced) = (given(rank), given(gathered), given(reduced));
        if op.is_some() && reduced.is_none() {
            return Err(wrong("`op` is how something is reduced, and nothing is", "say also reduced = comm"));
        }
        let builder = builder(eval)?;
        match (rank, gathered, reduced) {
            (Some(rank), None, None) => {
                builder.expect_of(&buffer, data, argument::rank("rank", rank)?, stream.as_ref())?;
            }
            (None, Some(comm), None) => {
                builder.expect_gathered(&buffer, data, &argument::comm(comm)?, stream.as_ref())?;
            }
            (None, None, Some(comm)) => {
                let op = argument::reduce_op(op.unwrap_or("sum"))?;
                builder.expect_reduced(&buffer, data, (&argument::comm(comm)?, op), stream.as_ref())?;
            }
            _ => {
                return Err(wrong(
                    "an expectation is about one rank, or about a gather or a reduction over a communicator",
                    "give one of rank, gathered and reduced",
                ));
            }
        }
        Ok(NoneType)
    }
}

#[starlark_module]
pub(crate) fn buffer_methods(methods: &mut MethodsBuilder) {
    fn free<'v>(
        this: Value<'v>,
        after: Option<Value<'v>>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<NoneType> {
        let after = given(after).map(|after| event::event("after", after)).transpose()?;
        argument::memory("buffer", this)?.free(builder(eval)?, after.as_ref())?;
        Ok(NoneType)
    }

    fn at<'v>(this: Value<'v>, buffer: Value<'v>) -> starlark::Result<Buffer> {
        Ok(argument::memory("mapping", this)?.at(&argument::memory("buffer", buffer)?))
    }

    #[starlark(attribute)]
    fn segment<'v>(this: Value<'v>) -> starlark::Result<Segment> {
        Ok(argument::memory("buffer", this)?.segment())
    }
}

#[starlark_module]
pub(crate) fn address_methods(methods: &mut MethodsBuilder) {
    #[starlark(attribute)]
    fn address<'v>(this: Value<'v>) -> starlark::Result<Address> {
        let of =
            Handle::of(this).and_then(Handle::operand).ok_or_else(|| expected("memory", "a buffer", this))?;
        Ok(Address(Operand::Address(of.into())))
    }
}
