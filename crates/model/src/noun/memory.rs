//! Memory of a rank: contents in pieces, and the race detector over past accesses.
//!
//! A race is judged by clocks alone: two accesses to the same bytes, one a write, that happens-before does
//! not order, whatever order this run took. Not here: who hands memory out ([`crate::noun::pool`]).

mod expectation;
mod reachable;
mod table;

use crate::cx::Cx;
use crate::cx::Here;
use crate::describe::{Describe, Description};
use crate::host::best_fit::GRANULARITY_BYTES;
use crate::host::value::{Owner, Value};
use crate::id::Token;
use crate::judge::deadlock::Awaits;
use crate::machine::Kind;
use crate::noun::pool::Plan;
use crate::noun::stream::{Queued, Work};
use crate::op::{Show, Verb};
use crate::order::dependence::ObjectKind;
use crate::order::poll::{FaultOf, NondetValues, Poll};
use crate::program::Operand;
use std::sync::Arc;

pub(crate) use self::expectation::Expectation;
pub use self::expectation::{DataOrigin, Made};
pub(crate) use self::reachable::ReachableMemory;
pub(crate) use self::table::{Accessed, Memories, Memory};
use crate::clock::Clock;
use crate::host::value::BlockId;
use crate::host::value::{Buffer, MemoryId};
use crate::judge::finding::{About, OpRef, Rule};
use crate::machine::{Explain, Machine, locked};
use crate::noun::ipc::Moment;
use crate::order::dependence::{Access, Object};
use crate::rank::Rank;
use crate::state::{State, Table};
use crate::term::{Content, Term, TermNode};

/// Which allocator memory comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MemoryKind {
    /// `ncclMemAlloc`: can be registered as a window.
    Nccl,
    /// `cudaMalloc`: it cannot be registered.
    Cuda,
    /// `cuMemCreate` with a shareable handle, mapped by `cuMemMap`: can be registered as a window.
    CuMem,
}

/// By which handle another process opens memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HandleKind {
    /// Of `cudaIpcGetMemHandle`: it names an allocation, and `cudaFree` frees that under every mapping. Opening it again
    /// gives the mapping that is open.
    Ipc,
    /// Of `cuMemExportToShareableHandle`: a mapping of it holds the memory, which is freed with the last one
    /// (`cuMemRelease`). Every import is mapped by itself.
    Shareable,
}

impl MemoryKind {
    /// The call that allocates it, as programs write it.
    #[must_use]
    pub fn call(self) -> &'static str {
        match self {
            Self::Nccl => "mem_alloc",
            Self::Cuda => "malloc",
            Self::CuMem => "mem_create",
        }
    }

    /// What the vendor's call returns where there is no memory: NCCL that a call of CUDA failed (`v2.28.9:allocator.cc`), CUDA
    /// what it is.
    #[must_use]
    pub fn out_of_memory(self) -> i32 {
        match self {
            Self::Nccl => 1,
            Self::Cuda | Self::CuMem => 2,
        }
    }

    /// The vendor's call that allocates it.
    #[must_use]
    pub fn vendor_call(self) -> &'static str {
        match self {
            Self::Nccl => "ncclMemAlloc",
            Self::Cuda => "cudaMalloc",
            Self::CuMem => "cuMemCreate",
        }
    }

    /// The handle by which other processes open it. `ncclMemAlloc` is `cuMemCreate` with a shareable handle.
    #[must_use]
    pub fn handle(self) -> HandleKind {
        match self {
            Self::Cuda => HandleKind::Ipc,
            Self::Nccl | Self::CuMem => HandleKind::Shareable,
        }
    }
}

impl Describe for MemoryKind {
    fn describe(&self, to: &mut Description<'_>) {
        to.word(match self {
            Self::Nccl => "Nccl",
            Self::Cuda => "Cuda",
            Self::CuMem => "CuMem",
        });
    }
}

/// Operations on device memory. What a pool hands out is asked for by operations of the pool.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum MemoryOp {
    /// `cudaMemcpyAsync` between device memory of this rank and mappings of peers.
    Copy {
        /// Where to; at least as long.
        to: Operand,
        /// Where from; as much as it is long.
        from: Operand,
        /// Stream it is launched on.
        stream: Token,
    },
    /// Declares what a buffer holds when a stream gets here.
    Expect {
        /// The buffer: what an allocation produced, or a slice of it.
        buffer: Operand,
        /// Where the data are expected to come from, on each rank that gave some.
        origin: DataOrigin,
        /// What was made of the origins of one rank or of several.
        made: Made,
        /// Stream whose position decides when the contents are looked at.
        stream: Token,
    },
    /// Gives a block back to its pool, or ordinary memory back to the driver.
    Free {
        /// The buffer: what an allocation produced, or a slice of it.
        buffer: Operand,
        /// Deferred: the block returns only once this event is seen complete at a later allocation.
        after: Option<Token>,
    },
    /// `cudaFreeAsync`: memory is free from the moment a stream gets here. Its address does not come back: what is
    /// allocated there later is other memory.
    FreeOn {
        /// The buffer: what an allocation produced.
        buffer: Operand,
        /// Stream whose position decides when it is free.
        stream: Token,
    },
    /// Gives the memory of a segment that `PoolOp::Trim` gave up back to the driver.
    Release {
        /// The segment, which nothing may use any more.
        segment: Operand,
    },
    /// `ncclMemAlloc`, `cudaMalloc` or `cuMemCreate`. Produces a buffer that is a segment of its own.
    Alloc {
        /// Its name in reports.
        name: Token,
        /// Size in bytes, as the program asks for it.
        len_bytes: u64,
        /// Who allocates it: what `cudaMalloc` allocates cannot be registered.
        memory: MemoryKind,
    },
}

impl Describe for MemoryOp {
    fn describe(&self, out: &mut Description<'_>) {
        match self {
            Self::Copy { to, from, stream } => {
                out.call("Copy", &[("to", to), ("from", from), ("stream", stream)])
            }
            Self::Expect { buffer, origin, made, stream } => {
                let mut fields: Vec<(&str, &dyn Describe)> = vec![("buffer", buffer)];
                fields.push(match origin {
                    DataOrigin::Kernel(kernel) => ("kernel", kernel),
                    DataOrigin::Allocated(of) => ("of", of),
                });
                match made {
                    Made::By(rank) => fields.push(("by", rank)),
                    Made::Gathered(comm) => fields.push(("gathered", comm)),
                    Made::Reduced(comm, op) => {
                        fields.extend([("reduced", comm as &dyn Describe), ("op", op)])
                    }
                }
                fields.push(("stream", stream));
                out.call("Expect", &fields);
            }
            Self::Free { buffer, after } => out.call("Free", &[("buffer", buffer), ("after", after)]),
            Self::FreeOn { buffer, stream } => out.call("FreeOn", &[("buffer", buffer), ("stream", stream)]),
            Self::Release { segment } => out.call("Release", &[("segment", segment)]),
            Self::Alloc { name, len_bytes, memory } => {
                out.call("MemAlloc", &[("name", name), ("len_bytes", len_bytes), ("memory", memory)])
            }
        }
    }
}

impl Verb for MemoryOp {
    fn slots(&self) -> u32 {
        match self {
            Self::Alloc { .. } => 1,
            Self::Free { .. }
            | Self::FreeOn { .. }
            | Self::Release { .. }
            | Self::Copy { .. }
            | Self::Expect { .. } => 0,
        }
    }

    fn kind(&self) -> Kind {
        match self {
            Self::Alloc { .. } | Self::Free { .. } | Self::FreeOn { .. } | Self::Release { .. } => {
                Kind::Alike
            }
            Self::Copy { .. } => Kind::InRole,
            Self::Expect { .. } => Kind::Expectation,
        }
    }

    fn stream(&self) -> Option<Token> {
        match self {
            Self::Copy { stream, .. } | Self::Expect { stream, .. } | Self::FreeOn { stream, .. } => {
                Some(*stream)
            }
            Self::Alloc { .. } | Self::Free { .. } | Self::Release { .. } => None,
        }
    }

    fn buffers(&self) -> Vec<&Operand> {
        match self {
            Self::Free { buffer, .. } | Self::FreeOn { buffer, .. } => vec![buffer],
            Self::Release { segment, .. } => vec![segment],
            Self::Copy { to, from, .. } => vec![to, from],
            Self::Expect { buffer, .. } => vec![buffer],
            Self::Alloc { .. } => Vec::new(),
        }
    }

    fn display(&self, show: &Show<'_>) -> String {
        let name = |token: &Token| show.name(*token);
        let of = |operand: &Operand| show.operand(operand);
        match self {
            Self::Copy { to, from, .. } => format!("copy {} to {}", of(from), of(to)),
            Self::Expect { buffer, origin, made, .. } => {
                let origin = match origin {
                    DataOrigin::Kernel(kernel) => name(kernel).to_string(),
                    DataOrigin::Allocated(buffer) => of(buffer),
                };
                let made = match made {
                    Made::By(rank) => format!("{origin} of rank {}", rank.0),
                    Made::Gathered(comm) => format!("{origin} gathered over {}", of(comm)),
                    Made::Reduced(comm, op) => {
                        format!("{origin} reduced over {} ({})", of(comm), op.name())
                    }
                };
                format!("expect {made} in {}", of(buffer))
            }
            Self::Free { buffer, .. } => format!("{}.free", of(buffer)),
            Self::FreeOn { buffer, stream } => format!("{}.free on {}", of(buffer), name(stream)),
            Self::Release { segment } => format!("{}.release", of(segment)),
            Self::Alloc { name: buffer, memory, .. } => format!("{} = {}", name(buffer), memory.call()),
        }
    }

    fn call_name(&self, here: Here<'_>) -> String {
        match self {
            Self::Alloc { memory, .. } => memory.call().to_owned(),
            Self::Free { .. }
            | Self::FreeOn { .. }
            | Self::Release { .. }
            | Self::Copy { .. }
            | Self::Expect { .. } => here.show(&mut |show| self.display(show)),
        }
    }

    fn unsafe_in_capture(&self) -> bool {
        match self {
            Self::Alloc { memory: MemoryKind::Cuda, .. } | Self::Free { .. } => true,
            Self::Alloc { memory: MemoryKind::Nccl | MemoryKind::CuMem, .. }
            | Self::FreeOn { .. }
            | Self::Release { .. }
            | Self::Copy { .. }
            | Self::Expect { .. } => false,
        }
    }

    fn refused_by(&self, here: Here<'_>) -> Option<(usize, i32)> {
        match self {
            Self::Alloc { memory: MemoryKind::Cuda, .. } => here.refused_by_mode(),
            Self::Free { buffer, .. } => {
                let value = Machine::value(here.state, here.rank, buffer);
                let own = value.buffer().filter(|buffer| matches!(buffer.memory.owner, Owner::Program(_)))?;
                let kind = here.me().memory(own.memory)?.kind();
                (kind == MemoryKind::Cuda).then(|| here.refused_by_mode()).flatten()
            }
            Self::Alloc { memory: MemoryKind::Nccl | MemoryKind::CuMem, .. }
            | Self::FreeOn { .. }
            | Self::Release { .. }
            | Self::Copy { .. }
            | Self::Expect { .. } => None,
        }
    }

    fn footprint(&self, here: Here<'_>, each: &mut dyn FnMut(Object, Access)) {
        match self {
            Self::Alloc { .. } => each(Object::ADDRESSES, Access::Read),
            Self::Free { buffer, .. } => {
                if let Value::Buffer(held) = Machine::value(here.state, here.rank, buffer)
                    && let Owner::Pool(pool) = held.memory.owner
                {
                    each(Object::named(ObjectKind::Pool, pool), Access::Write);
                    // It comes back in the order of its block's stream.
                    if let Some(stream) = here.me().stream_of_block(&held) {
                        each(Object::named(ObjectKind::Stream, stream), Access::Write);
                    }
                }
                here.memory_of(buffer, Access::Write, each);
                each(Object::ADDRESSES, Access::Write);
                each(Object::DEVICE, Access::Write);
            }
            Self::FreeOn { buffer, .. } => here.memory_of(buffer, Access::Write, each),
            Self::Release { segment } => {
                here.memory_of(segment, Access::Write, each);
                each(Object::ADDRESSES, Access::Write);
                if here.is_cuda_memory(segment) {
                    each(Object::DEVICE, Access::Write);
                }
            }
            Self::Copy { .. } | Self::Expect { .. } => {}
        }
    }

    fn ready(&self, here: Here<'_>, nondet: &mut NondetValues<'_>) -> Poll {
        match self {
            Self::Alloc { name, len_bytes, .. } => {
                Poll::decided(here.m.decide_mem_alloc(here.state, here.rank, (*name, *len_bytes), nondet))
            }
            Self::Free { buffer, .. } => Poll::once(here.can_free(buffer)),
            Self::Release { segment } => {
                let waits = here.is_cuda_memory(segment);
                Poll::once(!waits || here.m.drained(here.state, here.rank, &Operand::Device))
            }
            Self::FreeOn { .. } | Self::Copy { .. } | Self::Expect { .. } => Poll::RUN,
        }
    }

    fn waits_for_device(&self) -> bool {
        match self {
            Self::Free { .. } | Self::Release { .. } => true,
            Self::Alloc { .. } | Self::FreeOn { .. } | Self::Copy { .. } | Self::Expect { .. } => false,
        }
    }

    fn blocked_on(&self, here: Here<'_>) -> (Rule, Option<About>) {
        match self {
            Self::Free { buffer, .. } => match here.owner_of(buffer) {
                Some(Owner::Pool(pool)) => (Rule::Mutex1, Some(About::Of(here.rank, pool))),
                Some(Owner::Program(_)) | None => (Rule::Coll1, None),
            },
            Self::Alloc { .. }
            | Self::FreeOn { .. }
            | Self::Release { .. }
            | Self::Copy { .. }
            | Self::Expect { .. } => (Rule::Coll1, None),
        }
    }

    fn waits_for(&self, here: Here<'_>) -> Awaits {
        match self {
            Self::Free { buffer, .. } => match here.owner_of(buffer) {
                Some(Owner::Pool(pool)) => Awaits::Holder(here.holder_of_pool(pool)),
                Some(Owner::Program(_)) => Awaits::Streams,
                None => Awaits::Nobody,
            },
            Self::Release { .. } => Awaits::Streams,
            Self::Alloc { .. } | Self::FreeOn { .. } | Self::Copy { .. } | Self::Expect { .. } => {
                Awaits::Nobody
            }
        }
    }

    fn apply(&self, cx: &mut Cx<'_>, plan: Plan) {
        match self {
            Self::Alloc { name, len_bytes, memory } => cx.mem_alloc((*name, *len_bytes, *memory), plan),
            Self::Free { buffer, after } => cx.free(buffer, *after),
            Self::FreeOn { buffer, stream } => cx.free_on(buffer, *stream),
            Self::Release { segment } => {
                if cx.here().is_cuda_memory(segment) {
                    cx.wait_for_device();
                }
                if let Value::Buffer(segment) = Machine::value(cx.state, cx.rank, segment) {
                    cx.access(Object::memory(segment.memory), Access::Write);
                    cx.release(segment.memory);
                }
                cx.done(&[]);
            }
            Self::Copy { to, from, stream } => cx.copy((to, from), *stream, self),
            Self::Expect { buffer, origin, made, stream } => cx.expect((buffer, origin, made), *stream),
        }
    }
}

/// A range of physical memory of a rank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ByteRange {
    pub(crate) memory: MemoryId,
    pub(crate) offset_bytes: u64,
    pub(crate) len_bytes: u64,
}

impl ByteRange {
    pub(crate) fn of(buffer: &Buffer) -> Self {
        Self { memory: buffer.memory, offset_bytes: buffer.offset_bytes, len_bytes: buffer.len_bytes }
    }

    /// A part of the range.
    pub(crate) fn sub(&self, at: u64, len_bytes: u64) -> Self {
        Self { memory: self.memory, offset_bytes: self.offset_bytes + at, len_bytes }
    }
}

impl Here<'_> {
    /// Whether an operand is memory of `cudaMalloc`, which is given back by `cudaFree`.
    fn is_cuda_memory(self, buffer: &Operand) -> bool {
        let value = Machine::value(self.state, self.rank, buffer);
        let memory = value.buffer().and_then(|buffer| self.me().memory(buffer.memory));
        memory.is_some_and(|memory| memory.kind() == MemoryKind::Cuda)
    }

    /// Who made the memory of an operand.
    fn owner_of(self, buffer: &Operand) -> Option<Owner> {
        Machine::value(self.state, self.rank, buffer).buffer().map(|buffer| buffer.memory.owner)
    }
}

/// Whether two ranges, each a start and a length, share a byte.
pub(crate) fn overlap(a: (u64, u64), b: (u64, u64)) -> bool {
    a.0 < b.0 + b.1 && b.0 < a.0 + a.1
}

impl Machine {
    /// New physical memory of a rank.
    pub(crate) fn create(&self, state: &mut State, rank: Rank, kind: MemoryKind, buffer: &Arc<Buffer>) {
        let memory = Memory {
            kind,
            buffer: Arc::clone(buffer),
            released: None,
            pieces: Vec::new(),
            accesses: Vec::new(),
        };
        let r = state.rank_mut(rank);
        Memories::of_mut(r).rows.insert(buffer.memory, Arc::new(memory));
        let costs = r.costs_mut();
        costs.reserved_bytes += buffer.memory_len_bytes;
        costs.reserved_bytes_max = costs.reserved_bytes_max.max(costs.reserved_bytes);
    }

    fn decide_mem_alloc(
        &self,
        state: &State,
        rank: Rank,
        (name, len_bytes): (Token, u64),
        nondet: &mut NondetValues<'_>,
    ) -> Result<Plan, Poll> {
        if self.decide_fault(state, FaultOf::Alloc, nondet)? {
            return Ok(Plan::Fail);
        }
        let r = state.rank(rank);
        let nth = Memories::of(r).made.get(&name).map_or(0, |made| *made);
        let len = len_bytes.next_multiple_of(GRANULARITY_BYTES);
        self.decide_address(r, (Owner::Program(name), nth), len, nondet).map(Plan::Memory)
    }

    /// A buffer was just handed out: what it holds is its own initial term.
    pub(crate) fn fresh_contents(&self, state: &mut State, rank: Rank, buffer: &Buffer) {
        if !self.config.follows_contents {
            return;
        }
        let term = self.initial(rank, buffer);
        self.write(state, rank, &ByteRange::of(buffer), Content::Whole(term));
    }

    fn initial(&self, rank: Rank, buffer: &Buffer) -> Term {
        locked(&self.terms).intern(TermNode::Initial(rank, buffer.name))
    }

    /// A buffer that was handed out behind other work may be used by now. What was written to it and is not
    /// ordered before stays: nobody observes when the buffer was first its owner's.
    pub(crate) fn fresh_behind(&self, state: &mut State, rank: Rank, buffer: &Buffer, now: &Clock) {
        let Some(memory) = state.rank(rank).memory(buffer.memory) else { return };
        let all = (buffer.offset_bytes, buffer.offset_bytes + buffer.len_bytes);
        let mut free = vec![all];
        for written in memory.accesses.iter().filter(|access| access.access == Access::Write) {
            if written.actor != now.actor() {
                self.ask_about(written.op.loc);
            }
            if now.after(written.actor, written.epoch) {
                continue;
            }
            let (from, to) = (written.offset_bytes, written.offset_bytes + written.len_bytes);
            let around = |(a, b): (u64, u64)| [(a, b.min(from)), (a.max(to), b)];
            free = free.into_iter().flat_map(around).filter(|(a, b)| a < b).collect();
        }
        if free == [all] {
            self.fresh_contents(state, rank, buffer);
            return;
        }
        let term = self.initial(rank, buffer);
        for (from, to) in free {
            let part = TermNode::Part(term, from - buffer.offset_bytes, to - from);
            let part = Content::Whole(locked(&self.terms).intern(part));
            let range = ByteRange { memory: buffer.memory, offset_bytes: from, len_bytes: to - from };
            self.write(state, rank, &range, part);
        }
    }

    /// A graph hands a block out again on a stream: nothing orders that after earlier users of the block. It is no use of
    /// the block by its owner.
    pub(crate) fn hand_out_again(
        &self,
        state: &mut State,
        rank: Rank,
        stream: usize,
        (buffer, op): (&Buffer, OpRef),
    ) {
        self.access_memory(state, rank, stream, buffer, Access::Write, op);
        let memory = state.rank_mut(rank).memory_mut(buffer.memory);
        if let Some(last) = memory.and_then(|memory| memory.accesses.last_mut()) {
            last.block = None;
        }
        self.fresh_contents(state, rank, buffer);
    }

    /// What memory holds decides what is found. Says whether it is followed; where it is not, the run is interrupted.
    pub(crate) fn needs_contents(&self) -> bool {
        if !self.config.follows_contents {
            self.interrupt(|pending| pending.contents = true);
        }
        self.config.follows_contents
    }

    /// What a range holds; nothing where that is not followed.
    pub(crate) fn read(&self, state: &State, rank: Rank, range: &ByteRange) -> Content {
        let nothing = || TermNode::Row(Vec::new());
        let memory = state.rank(rank).memory(range.memory);
        let Some(memory) = memory.filter(|_| self.config.follows_contents) else {
            return Content::Whole(locked(&self.terms).intern(nothing()));
        };
        let (start, len) = (range.offset_bytes, range.len_bytes);
        // The usual case: the range is exactly one piece.
        if let Ok(at) = memory.pieces.binary_search_by_key(&start, |piece| piece.0)
            && memory.pieces[at].1 == len
        {
            return memory.pieces[at].2.clone();
        }
        let mut terms = locked(&self.terms);
        let mut parts = Vec::new();
        let mut next = start;
        for (at, piece_len, content) in &memory.pieces {
            if !overlap((*at, *piece_len), (start, len)) {
                continue;
            }
            let term = terms.whole(content);
            let (from, to) = ((*at).max(start), (at + piece_len).min(start + len));
            if from > next {
                parts.push((terms.intern(nothing()), from - next));
            }
            next = to;
            let covered = from == *at && to == at + piece_len;
            let part = if covered { term } else { terms.intern(TermNode::Part(term, from - at, to - from)) };
            parts.push((part, to - from));
        }
        // What nobody has written since the memory was made is not known.
        if next < start + len {
            parts.push((terms.intern(nothing()), start + len - next));
        }
        Content::Whole(match parts.as_slice() {
            [(one, _)] => *one,
            _ => terms.intern(TermNode::Row(parts)),
        })
    }

    /// Replaces what a range holds.
    pub(crate) fn write(&self, state: &mut State, rank: Rank, range: &ByteRange, content: Content) {
        if !self.config.follows_contents {
            return;
        }
        let Some(memory) = state.rank_mut(rank).memory_mut(range.memory) else { return };
        let (start, len) = (range.offset_bytes, range.len_bytes);
        if let Ok(at) = memory.pieces.binary_search_by_key(&start, |piece| piece.0)
            && memory.pieces[at].1 == len
        {
            memory.pieces[at].2 = content;
            return;
        }
        let mut kept = Vec::with_capacity(memory.pieces.len() + 2);
        let mut terms = None;
        for (at, piece_len, old) in memory.pieces.drain(..) {
            if !overlap((at, piece_len), (start, len)) {
                kept.push((at, piece_len, old));
                continue;
            }
            let end = at + piece_len;
            let mut part = |from: u64, to: u64| {
                let terms = terms.get_or_insert_with(|| locked(&self.terms));
                let term = terms.whole(&old);
                Content::Whole(terms.intern(TermNode::Part(term, from - at, to - from)))
            };
            if at < start {
                kept.push((at, start - at, part(at, start)));
            }
            if end > start + len {
                kept.push((start + len, end - start - len, part(start + len, end)));
            }
        }
        drop(terms);
        if len > 0 {
            kept.push((start, len, content));
        }
        kept.sort_unstable_by_key(|piece| piece.0);
        memory.pieces = kept;
    }

    /// Nobody expects any more that this range of memory of this name holds anything: where histories merge, what it holds is
    /// forgotten.
    pub(crate) fn forget_contents(&self, state: &mut State, rank: Rank, name: Token, range: &ByteRange) {
        if self.forgets_contents(name) {
            let forgotten = locked(&self.terms).intern(TermNode::Forgotten(name));
            self.write(state, rank, range, Content::Whole(forgotten));
        }
    }

    /// What a buffer holds that a rank works on.
    pub(crate) fn held_in(&self, state: &State, rank: Rank, buffer: &Buffer) -> Content {
        self.read(state, buffer.home(rank), &ByteRange::of(buffer))
    }

    /// Replaces what a buffer holds that a rank works on.
    pub(crate) fn fill(&self, state: &mut State, rank: Rank, buffer: &Buffer, content: Content) {
        self.write(state, buffer.home(rank), &ByteRange::of(buffer), content);
    }

    /// A stream gets to where it frees memory.
    pub(crate) fn freed_on(
        &self,
        state: &mut State,
        rank: Rank,
        stream: usize,
        (buffer, given): (&Buffer, &Queued),
    ) {
        let op = given.op;
        let clock = state.rank(rank).stream(stream).clock();
        let freed = Moment { actor: clock.actor(), epoch: clock.epoch(), op };
        let mut now = clock.clone();
        now.join(&given.issue);
        self.judge_mapped(state, (rank, buffer.memory), op, &now);
        let r = state.rank_mut(rank);
        let Some(memory) = r.memory_mut(buffer.memory) else { return };
        memory.released = Some(freed);
        r.costs_mut().reserved_bytes -= buffer.memory_len_bytes;
    }

    /// The usual access: the stream alone accessed memory of its rank since anybody else did, and now accesses all of
    /// that at least. Returns whether it is that.
    fn access_again(
        state: &mut State,
        rank: Rank,
        stream: usize,
        buffer: &Buffer,
        access: Access,
        op: OpRef,
    ) -> bool {
        let clock = state.rank(rank).stream(stream).clock();
        let (actor, epoch) = (clock.actor(), clock.epoch());
        let r = state.rank_mut(rank);
        let Some(memory) = r.memory_mut(buffer.memory) else { return false };
        let (start, end) = (buffer.offset_bytes, buffer.offset_bytes + buffer.len_bytes);
        let [last] = memory.accesses.as_mut_slice() else { return false };
        let again = last.actor == actor
            && last.block == buffer.block
            && start <= last.offset_bytes
            && last.offset_bytes + last.len_bytes <= end
            && (access == Access::Write || last.access == Access::Read);
        if !again || memory.released.is_some() || last.len_bytes == 0 {
            return false;
        }
        let (offset_bytes, len_bytes, block) = (buffer.offset_bytes, buffer.len_bytes, buffer.block);
        *last = Accessed { offset_bytes, len_bytes, actor, epoch, access, op, block };
        true
    }

    /// A stream of the rank accesses a buffer now.
    pub(crate) fn access_memory(
        &self,
        state: &mut State,
        rank: Rank,
        stream: usize,
        buffer: &Buffer,
        access: Access,
        op: OpRef,
    ) {
        let home = buffer.home(rank);
        let known = self.source.is_ordered(op.loc);
        if known && state.rank(home).memory(buffer.memory).is_some_and(|memory| memory.released.is_none()) {
            return;
        }
        if buffer.through.is_none() && Self::access_again(state, rank, stream, buffer, access, op) {
            return;
        }
        let clock = state.rank(rank).stream(stream).clock().clone();
        self.judge_closed(state, rank, buffer, op, &clock);
        if let Some(through) = buffer.through {
            Self::note_use(state, rank, through, &clock, op);
        }
        let Some(memory) = state.rank_mut(home).memory_mut(buffer.memory) else { return };
        let range = (buffer.offset_bytes, buffer.len_bytes);
        // A mapping keeps the pages: whoever frees them while it is open is judged there.
        let released = memory.released.is_some() && buffer.through.is_none();
        let stale = memory.kind.handle() == HandleKind::Ipc
            && memory.released.as_ref().is_some_and(|released| released.before(&clock));
        let mut race = None;
        let hidden = self.source.hides_order();
        let epoch = clock.epoch();
        memory.accesses.retain(|old| {
            let theirs = (old.offset_bytes, old.len_bytes);
            if !overlap(theirs, range) {
                return true;
            }
            if old.actor != clock.actor() {
                self.ask_about(old.op.loc);
            }
            let ordered = clock.after(old.actor, old.epoch);
            let clash = !ordered && (access == Access::Write || old.access == Access::Write);
            if clash && hidden && old.op.rank != op.rank {
                locked(&self.taken_for_ordered).get_or_insert([old.op, op]);
            } else if clash {
                // Through a mapping it is not known which block the bytes belong to.
                let other_block = old.block.zip(buffer.block).is_some_and(|(old, now)| old != now);
                race.get_or_insert((old.op, other_block));
            }
            // Whatever is unordered with an access that this one covers is unordered with this one.
            let covers = range.0 <= theirs.0 && theirs.0 + theirs.1 <= range.0 + range.1;
            let stronger = access == Access::Write || old.access == Access::Read;
            // Of another block, it is needed until that was given back in order.
            let judged = old.block.is_none() || old.block == buffer.block;
            !(ordered && covers && stronger && judged)
        });
        memory.accesses.push(Accessed {
            offset_bytes: range.0,
            len_bytes: range.1,
            actor: clock.actor(),
            epoch,
            access,
            op,
            block: buffer.block,
        });
        let about = About::Memory(home, buffer.memory);
        if stale && buffer.through.is_some() {
            state.rank_mut(rank).spoil();
        }
        if released {
            self.find(state, Rule::Mem1, about, &[op], clock.past(), || {
                format!(
                    "rank {} still uses {} ({}) when its memory is freed",
                    rank.0,
                    self.buffer_name(buffer),
                    self.at(&op)
                )
            });
            Self::undefine(state, op);
        }
        if let Some((other, other_block)) = race {
            let at_home = (op.rank, other.rank) == (home, home);
            let told = self.config.explain != Explain::No && !at_home;
            let held = if told && self.needs_contents() {
                self.show(&self.held_in(state, rank, buffer))
            } else {
                String::new()
            };
            self.find(state, Rule::Mem2, about, &[op, other], clock.past(), || {
                let mut name = self.buffer_name(buffer);
                if other_block {
                    name.push_str(", whose bytes another block had before,");
                }
                if at_home {
                    let (first, second) = (self.at(&other.min(op)), self.at(&other.max(op)));
                    return format!(
                        "on rank {} nothing orders the accesses to {name} at {first} and at {second}",
                        rank.0
                    );
                }
                let (first, second) = (self.at(&other), self.at(&op));
                format!(
                    "nothing orders the accesses to {name} of rank {} by rank {} at {first} and by rank {} at \
                     {second}: whether it holds {held} is chance",
                    home.0, other.rank.0, op.rank.0
                )
            });
            Self::undefine(state, op);
        }
    }
}

impl Cx<'_> {
    fn mem_alloc(&mut self, (name, len_bytes, memory): (Token, u64, MemoryKind), plan: Plan) {
        let (m, rank) = (self.m, self.rank);
        let Plan::Memory(address) = plan else {
            self.state.faults_used += 1;
            self.fail(memory.call().to_owned(), memory.out_of_memory());
            self.done(&[Value::Null]);
            return;
        };
        self.access(Object::ADDRESSES, Access::Read);
        let r = self.me_mut();
        let made = Memories::of_mut(r).made.get_or_insert_with(&name, || 0);
        let id = MemoryId { owner: Owner::Program(name), nth: *made };
        *made += 1;
        let whole_len = len_bytes.next_multiple_of(GRANULARITY_BYTES);
        r.take_address(address, whole_len);
        r.hand_out(BlockId(id));
        let buffer = Arc::new(Buffer {
            block: Some(BlockId(id)),
            memory: id,
            address,
            offset_bytes: 0,
            len_bytes,
            memory_len_bytes: whole_len,
            name,
            through: None,
            grew: true,
        });
        m.create(self.state, rank, memory, &buffer);
        m.fresh_contents(self.state, rank, &buffer);
        self.done(&[Value::Buffer(buffer)]);
    }

    /// Memory is to be free once a stream gets here.
    fn free_on(&mut self, buffer: &Operand, stream: Token) {
        if let Value::Buffer(buffer) = Machine::value(self.state, self.rank, buffer)
            && let Some(block) = self.held(&buffer)
        {
            self.access(Object::memory(buffer.memory), Access::Write);
            self.me_mut().take_back(block);
            self.launch(stream, Work::GiveBack(buffer));
        }
        self.done(&[]);
    }

    /// Physical memory goes back to the driver.
    pub(crate) fn release(&mut self, id: MemoryId) {
        let (m, rank, op) = (self.m, self.rank, self.op);
        let clock = self.this().clock().clone();
        let Some(memory) = self.me().memory(id) else { return };
        if memory.released.is_some() {
            m.find(self.state, Rule::Mem3, About::Memory(rank, id), &[op], clock.past(), || {
                format!("rank {} frees {} twice ({})", rank.0, m.memory_name(id), m.at(&op))
            });
            Machine::undefine(self.state, op);
            return;
        }
        let buffer = Arc::clone(&memory.buffer);
        let mine = |actor| m.rank_of(actor) == rank;
        let used = memory.accesses.iter().filter(|a| mine(a.actor));
        let mut running = used.inspect(|a| m.ask_about(a.op.loc)).filter(|a| !clock.after(a.actor, a.epoch));
        let running = running.next();
        let running = running.map(|a| a.op);
        let queued = self
            .me()
            .queued()
            .find(|queued| queued.work.buffers().iter().any(|b| b.through.is_none() && b.memory == id))
            .map(|queued| queued.op);
        if let Some(user) = running.or(queued) {
            m.find(self.state, Rule::Mem1, About::Memory(rank, id), &[op, user], clock.past(), || {
                format!(
                    "rank {} frees {} ({}) without waiting for the operation at {} that uses it",
                    rank.0,
                    m.memory_name(id),
                    m.at(&op),
                    m.at(&user)
                )
            });
            Machine::undefine(self.state, user);
        }
        m.judge_mapped(self.state, (rank, id), op, &clock);
        let frees = || format!("rank {} frees {} ({})", rank.0, m.memory_name(id), m.at(&op));
        if let Some((comm, nth, registered)) = Machine::covering(self.state, rank, id) {
            let ops = [op, registered];
            m.find(self.state, Rule::Win11, About::Memory(rank, id), &ops, clock.past(), || {
                let (comm, at) = (m.comm_name(comm), m.at(&registered));
                format!("{} while it is window #{nth} of {comm} (registered at {at})", frees())
            });
        } else if let Some((comm, registered)) = m.under_way(self.state, rank, id) {
            let ops = [op, registered];
            m.find(self.state, Rule::Win11, About::Memory(rank, id), &ops, clock.past(), || {
                let (comm, at) = (m.comm_name(comm), m.at(&registered));
                format!("{} while its registration with {comm} ({at}) is under way", frees())
            });
        }
        self.access(Object::ADDRESSES, Access::Write);
        let r = self.me_mut();
        r.free_address(buffer.address, buffer.memory_len_bytes);
        r.costs_mut().reserved_bytes -= buffer.memory_len_bytes;
        let memory = r.memory_mut(id).expect("looked up above");
        // Peers and stale windows still see the old pages.
        let released = Moment { actor: clock.actor(), epoch: clock.epoch(), op };
        memory.released = Some(released);
        m.forget_contents(self.state, rank, buffer.name, &ByteRange::of(&buffer));
    }
}
