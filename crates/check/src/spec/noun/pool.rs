//! Caching pools, with the hooks of their segments.
//!
//! Not here: which block a pool gives (the machine decides), what a block is good for (`memory.rs`).

use std::fmt;
use std::sync::Arc;

use allocative::Allocative;
use rankcheck_model::{
    MemoryKind, MemoryOp, Op, Operand, PoolOp, Question, Release, SizeClasses, Slot, TieBreak, Token,
};
use starlark::any::ProvidesStaticType;
use starlark::environment::{Methods, MethodsBuilder, MethodsStatic};
use starlark::eval::Evaluator;
use starlark::starlark_module;
use starlark::values::list::UnpackList;
use starlark::values::none::NoneType;
use starlark::values::{
    AllocValue, Heap, NoSerialize, StarlarkValue, Trace, Value, ValueLike, starlark_value,
};

use crate::spec::argument::{self, expected, given, natural, word};
use crate::spec::builder::{Builder, Flow, Stop};
use crate::spec::error::{Wrong, wrong};
use crate::spec::evaluation::{builder, call};
use crate::spec::handle::Handle;
use crate::spec::noun::memory::{Buffer, Segment};
use crate::spec::noun::stream::Stream;
use crate::spec::rank::RankValue;

/// What is called with a segment, under the lock of its pool.
type Hook = Arc<dyn Fn(&Builder, &Segment) -> Flow + Send + Sync>;

/// A caching allocator, with the hooks that it calls when it makes and gives up segments.
#[derive(Clone)]
pub struct Pool {
    pub(crate) name: Token,
    on_segment: Option<Hook>,
    on_segment_free: Option<Hook>,
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("name", &self.name).finish_non_exhaustive()
    }
}

/// A pool with options: `r.pool(Caching::named("symm").on_segment(…))?`. A name alone is one, too.
#[derive(Clone)]
pub struct Caching {
    name: String,
    classes: SizeClasses,
    tie: TieBreak,
    memory: MemoryKind,
    on_segment: Option<Hook>,
    on_segment_free: Option<Hook>,
}

impl fmt::Debug for Caching {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Caching").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Caching {
    /// A pool that takes one segment of `ncclMemAlloc` for each request.
    #[must_use]
    pub fn named(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            classes: SizeClasses::Exact,
            tie: TieBreak::Counter,
            memory: MemoryKind::Nccl,
            on_segment: None,
            on_segment_free: None,
        }
    }

    /// How large segments are.
    #[must_use]
    pub fn classes(self, classes: SizeClasses) -> Self {
        Self { classes, ..self }
    }

    /// Which of several equal blocks is taken.
    #[must_use]
    pub fn tie(self, tie: TieBreak) -> Self {
        Self { tie, ..self }
    }

    /// Where segments come from.
    #[must_use]
    pub fn memory(self, memory: MemoryKind) -> Self {
        Self { memory, ..self }
    }

    /// Called with each new segment, under the lock of the pool.
    #[must_use]
    pub fn on_segment(self, hook: impl Fn(&Builder, &Segment) -> Flow + Send + Sync + 'static) -> Self {
        Self { on_segment: Some(Arc::new(hook)), ..self }
    }

    /// Called with each segment before it is released, under the lock of the pool.
    #[must_use]
    pub fn on_segment_free(self, hook: impl Fn(&Builder, &Segment) -> Flow + Send + Sync + 'static) -> Self {
        Self { on_segment_free: Some(Arc::new(hook)), ..self }
    }
}

impl From<&str> for Caching {
    fn from(name: &str) -> Self {
        Self::named(name)
    }
}

/// A block that is asked for: `("x", bytes)`, or with a stream.
#[derive(Debug, Clone)]
pub struct BlockRequest<'a> {
    name: Option<&'a str>,
    len_bytes: u64,
    stream: Option<Stream>,
}

impl BlockRequest<'_> {
    /// Returns the request, made for use on this stream.
    #[must_use]
    pub fn on(self, stream: &Stream) -> Self {
        Self { stream: Some(*stream), ..self }
    }
}

impl From<u64> for BlockRequest<'_> {
    fn from(len_bytes: u64) -> Self {
        Self { name: None, len_bytes, stream: None }
    }
}

impl<'a> From<(&'a str, u64)> for BlockRequest<'a> {
    fn from((name, len_bytes): (&'a str, u64)) -> Self {
        Self { name: Some(name), len_bytes, stream: None }
    }
}

impl Builder {
    /// A caching allocator: a name, or [`Caching`] with its options.
    #[track_caller]
    pub fn pool(&self, caching: impl Into<Caching>) -> Flow<Pool> {
        let Caching { name, classes, tie, memory, on_segment, on_segment_free } = caching.into();
        let name = self.token(&name);
        self.add(Op::Pool(PoolOp::Declare { pool: name, classes, tie, memory }))?;
        Ok(Pool { name, on_segment, on_segment_free })
    }

    /// Runs a hook under the lock of its pool, which is given back also while an exception unwinds.
    #[track_caller]
    fn under_lock<T, E: From<Stop>>(&self, pool: Token, body: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
        let loc = self.loc();
        self.add_at(Op::Pool(PoolOp::Lock { pool }), loc)?;
        self.finally(body, || Ok(self.add_at(Op::Pool(PoolOp::Unlock { pool }), loc).map(|_| ())?))
    }

    /// Takes a block. With a hook, asks whether the pool grew and calls it, under the lock.
    #[track_caller]
    fn allocate_from<E: From<Stop>>(
        &self,
        pool: Token,
        request: &BlockRequest<'_>,
        hook: Option<impl FnOnce(Segment) -> Result<(), E>>,
    ) -> Result<Buffer, E> {
        let loc = self.loc();
        let BlockRequest { name, len_bytes, stream } = request;
        let number = self.count_block(pool);
        let name = match name {
            Some(name) => (*name).to_owned(),
            None => format!("{}.{number}", self.setting.names.text(pool)),
        };
        let stream = self.stream_or_default(stream.as_ref());
        let op = Op::Pool(PoolOp::Alloc { pool, name: self.token(&name), len_bytes: *len_bytes, stream });
        let block = |of| Buffer { of, len_bytes: Some(*len_bytes) };
        let Some(hook) = hook else { return Ok(block(self.add_result(op)?)) };
        self.under_lock(pool, || {
            let slot = self.add_at(op, loc)?.expect("an allocation produces a slot");
            let buffer = block(Operand::Slot(slot));
            let (grew, _) = self.ask_at(Question::Grew(buffer.of.clone()), loc)?;
            if grew != 0 {
                hook(buffer.segment())?;
            }
            Ok(buffer)
        })
    }

    /// Releases segments without a block in use. With a hook, asks how many and calls it for each, under the lock.
    #[track_caller]
    fn trim<E: From<Stop>>(
        &self,
        pool: Token,
        hook: Option<impl FnMut(Segment) -> Result<(), E>>,
    ) -> Result<(), E> {
        let loc = self.loc();
        let Some(mut hook) = hook else {
            return Ok(self.add(Op::Pool(PoolOp::Trim { pool, release: Release::Now }))?);
        };
        self.under_lock(pool, || {
            let trim = Op::Pool(PoolOp::Trim { pool, release: Release::AfterHook });
            let released = self.add_at(trim, loc)?.expect("such a trim produces a slot");
            let (count, first) = self.ask_at(Question::Trimmed(Operand::Slot(released)), loc)?;
            for index in 0..count {
                let segment = Operand::Slot(Slot { start: first.start, index: first.index + index });
                hook(Segment(segment.clone()))?;
                self.add_at(Op::Memory(MemoryOp::Release { segment }), loc)?;
            }
            Ok(())
        })
    }

    #[track_caller]
    fn havoc(&self, pool: Token, max: u32, sizes_bytes: Option<&[u64]>) -> Flow {
        if sizes_bytes.is_some_and(<[u64]>::is_empty) {
            let help = "give the sizes that havoc may leave behind, in bytes";
            return Err(self.wrong(Wrong::new("`sizes` is empty", help)));
        }
        self.add(Op::Pool(PoolOp::Havoc { pool, max, sizes_bytes: sizes_bytes.unwrap_or_default().into() }))
    }

    /// Asks whether this allocation took a new segment.
    #[track_caller]
    pub fn grew(&self, buffer: impl Into<Buffer>) -> Flow<bool> {
        self.ask_whether(Question::Grew(buffer.into().of))
    }
}

impl Pool {
    /// Takes a block: `pool.alloc(r, ("x", bytes))?`. Reports show its name; without one it is `pool.n`. With
    /// [`Caching::on_segment`], asks whether the pool grew and calls the hook, under the lock.
    #[track_caller]
    pub fn alloc<'a>(&self, r: &Builder, request: impl Into<BlockRequest<'a>>) -> Flow<Buffer> {
        let hook = self.on_segment.as_ref().map(|hook| |segment: Segment| hook(r, &segment));
        r.allocate_from(self.name, &request.into(), hook)
    }

    /// Releases segments without a block in use. With [`Caching::on_segment_free`], asks how many and calls the hook
    /// for each, under the lock.
    #[track_caller]
    pub fn trim(&self, r: &Builder) -> Flow {
        let hook = self.on_segment_free.as_ref().map(|hook| |segment: Segment| hook(r, &segment));
        r.trim(self.name, hook)
    }

    /// Any earlier history of the pool: up to `max` free segments, of those that allocations of these sizes left behind.
    /// Where no sizes are given, they are segments of 2 MiB, or with [`SizeClasses::Torch`] one for small requests and one for
    /// large ones.
    #[track_caller]
    pub fn havoc(&self, r: &Builder, max: u32, sizes_bytes: Option<&[u64]>) -> Flow {
        r.havoc(self.name, max, sizes_bytes)
    }
}

/// A pool of Starlark, with its hooks.
#[derive(Debug, ProvidesStaticType, NoSerialize, Allocative, Trace)]
pub(crate) struct PoolValue<'v> {
    #[allocative(skip)]
    #[trace(static)]
    pub(crate) name: Token,
    /// Its number among the objects that keep functions, if it does.
    #[allocative(skip)]
    #[trace(static)]
    pub(crate) keeps_functions: Option<u32>,
    #[allocative(skip)]
    on_segment: Option<Value<'v>>,
    #[allocative(skip)]
    on_segment_free: Option<Value<'v>>,
}

impl fmt::Display for PoolValue<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<pool>")
    }
}

impl<'v> AllocValue<'v> for PoolValue<'v> {
    fn alloc_value(self, heap: Heap<'v>) -> Value<'v> {
        heap.alloc_complex_no_freeze(self)
    }
}

#[starlark_value(type = "pool")]
impl<'v> StarlarkValue<'v> for PoolValue<'v> {
    fn get_methods() -> Option<&'static Methods> {
        static METHODS: MethodsStatic = MethodsStatic::new("PoolValue", pool_methods);
        Some(METHODS.methods())
    }
}

/// An argument that is a pool.
pub(crate) fn pool<'v>(this: Value<'v>) -> starlark::Result<&'v PoolValue<'v>> {
    this.downcast_ref::<PoolValue<'v>>().ok_or_else(|| expected("pool", "a pool", this))
}

#[starlark_module]
pub(crate) fn pools_of_rank(methods: &mut MethodsBuilder) {
    fn pool<'v>(
        #[starlark(this)] _this: &RankValue,
        name: &str,
        classes: Option<&str>,
        tie: Option<&str>,
        memory: Option<&str>,
        on_segment: Option<Value<'v>>,
        on_segment_free: Option<Value<'v>>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        let mut caching = Caching::named(name);
        if let Some(given) = classes {
            let known = [("exact", SizeClasses::Exact), ("torch", SizeClasses::Torch)];
            caching = caching.classes(word("classes", given, &known)?);
        }
        if let Some(given) = tie {
            let known = [("counter", TieBreak::Counter), ("address", TieBreak::Address)];
            caching = caching.tie(word("tie", given, &known)?);
        }
        if let Some(given) = memory {
            let known =
                [("nccl", MemoryKind::Nccl), ("cuda", MemoryKind::Cuda), ("cumem", MemoryKind::CuMem)];
            caching = caching.memory(word("memory", given, &known)?);
        }
        let builder = builder(eval)?;
        let name = builder.pool(caching)?.name;
        let (on_segment, on_segment_free) = (given(on_segment), given(on_segment_free));
        let keeps_functions = on_segment.or(on_segment_free).map(|_| builder.functions_kept.count());
        Ok(eval.heap().alloc(PoolValue { name, keeps_functions, on_segment, on_segment_free }))
    }

    fn grew<'v>(
        #[starlark(this)] _this: &RankValue,
        buffer: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<bool> {
        let buffer = argument::memory("buffer", buffer)?;
        Ok(builder(eval)?.grew(buffer)?)
    }
}

#[starlark_module]
pub(crate) fn pool_methods(methods: &mut MethodsBuilder) {
    fn alloc<'v>(
        this: Value<'v>,
        bytes: Value<'v>,
        name: Option<Value<'v>>,
        stream: Option<Value<'v>>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Buffer> {
        let (this, len_bytes) = (pool(this)?, natural("bytes", bytes)?);
        let name = match given(name) {
            Some(name) => Some(name.unpack_str().ok_or_else(|| expected("name", "a string", name))?),
            None => None,
        };
        let request = BlockRequest { name, len_bytes, stream: argument::stream(stream)? };
        let builder = builder(eval)?;
        let hook = this.on_segment.map(move |hook| {
            move |segment: Segment| {
                let segment = Handle::from(segment).alloc(eval.heap());
                call(eval, hook, &[segment]).map(|_| ())
            }
        });
        builder.allocate_from(this.name, &request, hook)
    }

    fn trim<'v>(this: Value<'v>, eval: &mut Evaluator<'v, '_, '_>) -> starlark::Result<NoneType> {
        let this = pool(this)?;
        let builder = builder(eval)?;
        let hook = this.on_segment_free.map(move |hook| {
            move |segment: Segment| {
                let segment = Handle::from(segment).alloc(eval.heap());
                call(eval, hook, &[segment]).map(|_| ())
            }
        });
        builder.trim(this.name, hook)?;
        Ok(NoneType)
    }

    fn havoc<'v>(
        this: Value<'v>,
        max: Option<Value<'v>>,
        sizes: Option<UnpackList<Value<'v>>>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<NoneType> {
        let max = max.map_or(Ok(1), |max| natural("max", max))?;
        let max = u32::try_from(max)
            .map_err(|_| wrong(format!("`max` is {max}"), "a few segments show what many would"))?;
        let sizes = sizes.map(|sizes| sizes.items.iter().map(|size| natural("sizes", *size)).collect());
        let sizes: Option<Vec<u64>> = sizes.transpose()?;
        builder(eval)?.havoc(pool(this)?.name, max, sizes.as_deref())?;
        Ok(NoneType)
    }
}
