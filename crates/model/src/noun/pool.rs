//! Pools: segments split into blocks, best fit, a tie broken by address or by counter, deferred frees, and
//! whatever history left behind.
//!
//! Everything an allocation depends on is *decided* first, without changing the state; what is nondeterministic
//! on the way (address order, reuse of addresses, polls, faults) becomes a choice.
//! Not here: what memory holds ([`crate::noun::memory`]).

use crate::cx::{Cx, Here};
use crate::describe::{Describe, Description};
use crate::identity::{Identify, StateIdentity, identify_as_hashed};
use crate::judge::deadlock::Awaits;
use crate::machine::Kind;
use crate::op::{MemoryKind, Show, Verb};
use std::borrow::Cow;
use std::sync::Arc;

use crate::clock::Clock;
use crate::host::best_fit::{PoolBlock, Rounded, Segment, Use, best_fit, position};
use crate::host::value::{AddressId, BlockId, Buffer, MemoryId, Owner, Value};
use crate::id::Token;
use crate::judge::finding::{About, OpRef, Rule};
use crate::machine::Machine;
use crate::noun::event::NthRecord;
use crate::noun::memory::ByteRange;
use crate::noun::stream::{Queued, Work};
use crate::order::dependence::{Access, Object, ObjectKind};
use crate::order::poll::{FaultOf, Nondet, NondetValues, Poll};
use crate::program::Operand;
use crate::rank::Rank;
use crate::state::{RankState, State, Table};
use crate::walk::{LocalHash, Rows, walk};
use std::hash::{Hash, Hasher};

/// How a pool rounds requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SizeClasses {
    /// One segment for each request, rounded up to 2 MiB; blocks are rounded up to 512 bytes.
    Exact,
    /// torch's caching allocator: blocks rounded to 512 bytes; segments of 2 MiB for requests up to
    /// 1 MiB, of 20 MiB below 10 MiB, else rounded up to 2 MiB. Blocks of up to 1 MiB live in segments of
    /// their own kind.
    Torch,
}

impl Describe for SizeClasses {
    fn describe(&self, to: &mut Description<'_>) {
        to.word(match self {
            Self::Exact => "Exact",
            Self::Torch => "Torch",
        });
    }
}

/// How a pool chooses among free blocks of equal size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TieBreak {
    /// The lowest address. Address order is chosen for each rank by the adversary.
    Address,
    /// The segment that was allocated first.
    Counter,
}

impl Describe for TieBreak {
    fn describe(&self, to: &mut Description<'_>) {
        to.word(match self {
            Self::Address => "Address",
            Self::Counter => "Counter",
        });
    }
}

/// Who gives the memory of trimmed segments back to the driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Release {
    /// The trim itself gives the memory back.
    Now,
    /// A `MemoryOp::Release` for each, after the pool's hook for it has run.
    AfterHook,
}

impl Describe for Release {
    fn describe(&self, to: &mut Description<'_>) {
        to.word(match self {
            Self::Now => "Now",
            Self::AfterHook => "AfterHook",
        });
    }
}

/// Operations on caching pools.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum PoolOp {
    /// Declares a pool of this rank. A second declaration of the name does nothing.
    Declare {
        /// The name by which operations of this rank find the pool.
        pool: Token,
        /// How requests are rounded to blocks and segments.
        classes: SizeClasses,
        /// Which of several free blocks that fit equally well is taken.
        tie: TieBreak,
        /// Memory of its segments.
        memory: MemoryKind,
    },
    /// Takes the allocator's lock of a pool. Recorded around the hooks of a pool.
    Lock {
        /// Name of the pool, among those of this rank.
        pool: Token,
    },
    /// Gives the allocator's lock back.
    Unlock {
        /// Name of the pool, among those of this rank.
        pool: Token,
    },
    /// Allocates a block. Produces the buffer (null if it failed).
    Alloc {
        /// Name of the pool, among those of this rank.
        pool: Token,
        /// Its name in reports.
        name: Token,
        /// Bytes that the program asks for, before rounding.
        len_bytes: u64,
        /// Stream to which the block belongs: free blocks are kept apart by stream.
        stream: Token,
    },
    /// Gives up the segments of a pool that have no block in use. Produces the list of them, which
    /// `Question::Trimmed` reads.
    Trim {
        /// Name of the pool, among those of this rank.
        pool: Token,
        /// Who gives their memory back.
        release: Release,
    },
    /// Any rank-local history of a pool: up to `max` segments of the given sizes left behind free.
    Havoc {
        /// Name of the pool, among those of this rank.
        pool: Token,
        /// At most so many.
        max: u32,
        /// Sizes to choose from.
        sizes_bytes: Arc<[u64]>,
    },
}

impl PoolOp {
    pub(crate) fn object(&self) -> Object {
        let (Self::Declare { pool, .. }
        | Self::Lock { pool }
        | Self::Unlock { pool }
        | Self::Alloc { pool, .. }
        | Self::Trim { pool, .. }
        | Self::Havoc { pool, .. }) = self;
        Object::named(ObjectKind::Pool, *pool)
    }
}

impl Describe for PoolOp {
    fn describe(&self, to: &mut Description<'_>) {
        match self {
            Self::Declare { pool, classes, tie, memory } => {
                to.call("Pool", &[("pool", pool), ("classes", classes), ("tie", tie), ("memory", memory)])
            }
            Self::Lock { pool } => to.call("PoolLock", &[("pool", pool)]),
            Self::Unlock { pool } => to.call("PoolUnlock", &[("pool", pool)]),
            Self::Alloc { pool, name, len_bytes, stream } => to.call(
                "Alloc",
                &[("pool", pool), ("name", name), ("len_bytes", len_bytes), ("stream", stream)],
            ),
            Self::Trim { pool, release } => to.call("Trim", &[("pool", pool), ("release", release)]),
            Self::Havoc { pool, max, sizes_bytes } => {
                to.call("Havoc", &[("pool", pool), ("max", max), ("sizes_bytes", sizes_bytes)])
            }
        }
    }
}

impl Verb for PoolOp {
    fn slots(&self) -> u32 {
        match self {
            Self::Declare { .. } | Self::Lock { .. } | Self::Unlock { .. } | Self::Havoc { .. } => 0,
            Self::Alloc { .. } | Self::Trim { .. } => 1,
        }
    }

    fn kind(&self) -> Kind {
        match self {
            Self::Declare { .. } | Self::Lock { .. } | Self::Unlock { .. } => Kind::Bookkeeping,
            Self::Alloc { .. } | Self::Trim { .. } | Self::Havoc { .. } => Kind::Alike,
        }
    }

    fn display(&self, show: &Show<'_>) -> String {
        let name = |token: &Token| show.name(*token);
        match self {
            Self::Declare { pool, .. } => format!("pool {}", name(pool)),
            Self::Lock { pool } => format!("{}: take the allocator's lock", name(pool)),
            Self::Unlock { pool } => format!("{}: give the allocator's lock back", name(pool)),
            Self::Alloc { pool, name: buffer, .. } => format!("{} = {}.alloc", name(buffer), name(pool)),
            Self::Trim { pool, .. } => format!("{}.trim", name(pool)),
            Self::Havoc { pool, .. } => format!("{}.havoc", name(pool)),
        }
    }

    fn unsafe_in_capture(&self) -> bool {
        match self {
            Self::Alloc { .. } => true,
            Self::Declare { .. }
            | Self::Lock { .. }
            | Self::Unlock { .. }
            | Self::Trim { .. }
            | Self::Havoc { .. } => false,
        }
    }

    fn recorded(&self, here: Here<'_>) -> bool {
        match self {
            Self::Alloc { stream, .. } => here.records_on(*stream),
            Self::Declare { .. }
            | Self::Lock { .. }
            | Self::Unlock { .. }
            | Self::Trim { .. }
            | Self::Havoc { .. } => false,
        }
    }

    fn footprint(&self, here: Here<'_>, each: &mut dyn FnMut(Object, Access)) {
        match self {
            Self::Declare { .. } => {}
            Self::Lock { .. } | Self::Unlock { .. } => each(self.object(), Access::Write),
            Self::Alloc { pool, .. } | Self::Trim { pool, .. } | Self::Havoc { pool, .. } => {
                // A block is new from a point of its stream on.
                if let Self::Alloc { stream, .. } = self {
                    each(Object::named(ObjectKind::Stream, *stream), Access::Write);
                }
                each(self.object(), Access::Write);
                each(Object::named(ObjectKind::Memory, *pool), Access::Write);
                each(Object::ADDRESSES, Access::Write);
                if matches!(self, Self::Trim { .. }) && here.releases_wait(*pool) {
                    each(Object::DEVICE, Access::Write);
                }
            }
        }
    }

    fn ready(&self, here: Here<'_>, nondet: &mut NondetValues<'_>) -> Poll {
        match self {
            Self::Declare { .. } | Self::Unlock { .. } => Poll::RUN,
            Self::Lock { pool } => Poll::once(here.holder_of_pool(*pool).is_none()),
            Self::Alloc { pool, .. } | Self::Trim { pool, .. } | Self::Havoc { pool, .. } => {
                let releases = matches!(self, Self::Trim { release: Release::Now, .. });
                if here.m.pool_held(here.me(), *pool, here.thread) || releases && !here.can_trim(*pool) {
                    return Poll::Wait;
                }
                Poll::decided(here.decide_pool(self, nondet))
            }
        }
    }

    fn waits_for_device(&self) -> bool {
        matches!(self, Self::Trim { .. })
    }

    fn blocked_on(&self, here: Here<'_>) -> (Rule, Option<About>) {
        match self {
            Self::Trim { pool, .. } if here.waits_in_trim(*pool) => (Rule::Coll1, None),
            Self::Lock { pool }
            | Self::Alloc { pool, .. }
            | Self::Trim { pool, .. }
            | Self::Havoc { pool, .. } => (Rule::Mutex1, Some(About::Of(here.rank, *pool))),
            Self::Declare { .. } | Self::Unlock { .. } => (Rule::Coll1, None),
        }
    }

    fn waits_for(&self, here: Here<'_>) -> Awaits {
        match self {
            Self::Trim { pool, .. } if here.waits_in_trim(*pool) => Awaits::Streams,
            Self::Lock { pool }
            | Self::Alloc { pool, .. }
            | Self::Trim { pool, .. }
            | Self::Havoc { pool, .. } => Awaits::Holder(here.holder_of_pool(*pool)),
            Self::Declare { .. } | Self::Unlock { .. } => Awaits::Nobody,
        }
    }

    fn apply(&self, cx: &mut Cx<'_>, plan: Plan) {
        cx.run_pool(self, plan);
    }
}

/// What the state and the chosen values decide that an operation will do. Only allocations have something to decide.
#[derive(Debug, Clone)]
pub(crate) enum Plan {
    /// Out of memory, by a fault.
    Fail,
    /// A block of the pool.
    Block(Placement),
    /// Memory of the program's own, at this address.
    Memory(AddressId),
    /// Segments left behind free, by length.
    Havoc(Vec<u64>),
    /// The operation leaves nothing to decide.
    Nothing,
}

/// Where an allocation finds its block.
#[derive(Debug, Clone)]
pub(crate) struct Placement {
    /// Deferred frees whose events were seen complete: their blocks return first.
    returned: Vec<(BlockId, Clock)>,
    found: BlockFound,
    /// The order of addresses, if it is known for more of them now.
    address_order: Option<Vec<Value>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BlockFound {
    /// A free block, by segment and position.
    Free(usize, usize),
    /// None: a new segment at this address.
    Grown(AddressId),
}

/// A request to the pool, rounded.
fn rounded(pool: &Pool, len_bytes: u64) -> Rounded {
    pool.classes.round(len_bytes).expect("programs ask for less than 2^64 bytes")
}

/// Gives a block back, if the pool has it.
fn give_back(pool: &mut Pool, id: BlockId) {
    if let Some((segment, block)) = position(&pool.segments, id) {
        Arc::make_mut(&mut pool.segments)[segment].give_back(block);
    }
}

/// Where a block of a pool lies.
fn range_of(pool: &Pool, id: BlockId) -> Option<ByteRange> {
    let (segment, block) = position(&pool.segments, id)?;
    let segment = &pool.segments[segment];
    let PoolBlock { offset_bytes, len_bytes, .. } = segment.blocks[block];
    Some(ByteRange { memory: segment.buffer.memory, offset_bytes, len_bytes })
}

/// A caching pool of a rank.
#[derive(Debug, Clone)]
struct Pool {
    classes: SizeClasses,
    tie: TieBreak,
    memory: MemoryKind,
    segments: Arc<Vec<Segment>>,
    segments_made: u32,
    blocks_made: u32,
    /// Blocks that return later, in the order in which they were freed.
    deferred: Vec<DeferredFree>,
    holder: Option<u32>,
    released: Clock,
}

/// A block that returns to its pool once the n-th record of an event is seen complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct DeferredFree {
    block: BlockId,
    record: NthRecord,
    /// The stream of that record; none before the first.
    stream: Option<Token>,
}

identify_as_hashed!(SizeClasses, TieBreak, Segment);

impl Identify for DeferredFree {
    fn identify(&self, to: &mut StateIdentity<'_>) {
        let Self { block, record, stream } = self;
        block.identify(to);
        record.identify(to);
        stream.identify(to);
    }
}

walk!(struct Pool {
    classes: hashed fixed,
    tie: hashed fixed,
    memory: hashed fixed,
    segments: hashed fixed,
    segments_made: hashed fixed,
    blocks_made: hashed fixed,
    deferred: hashed fixed,
    holder: hashed fixed,
    released: hashed moved,
});

impl Pool {
    /// A pool that nobody declared; it exists from its first use.
    fn undeclared(released: Clock) -> Self {
        Self {
            classes: SizeClasses::Exact,
            tie: TieBreak::Counter,
            memory: MemoryKind::Nccl,
            segments: Arc::default(),
            segments_made: 0,
            blocks_made: 0,
            deferred: Vec::new(),
            holder: None,
            released,
        }
    }
}

/// The caching pools of a rank.
#[derive(Debug, Clone, Default)]
pub(crate) struct Pools {
    rows: Rows<Token, Pool>,
}

walk!(apart struct Pools { rows: hashed moved });

impl Identify for Pools {
    fn identify(&self, to: &mut StateIdentity<'_>) {
        let used = self.rows.iter().filter(|(name, _)| to.reachable().has_pool(*name));
        to.unordered(used.collect::<Vec<_>>(), |row, to| row.identify(to));
    }
}

impl LocalHash for Pools {
    fn local_hash<H: Hasher>(&self, state: &mut H) {
        for (name, pool) in self.rows.iter() {
            (name, &pool.segments, &pool.deferred).hash(state);
        }
    }
}

impl RankState {
    /// The block that lies where a buffer was that its pool has taken back.
    pub(crate) fn new_owner(&self, buffer: &Buffer) -> Option<BlockId> {
        let Owner::Pool(pool) = buffer.memory.owner else { return None };
        let pool = pool_of(self, pool)?;
        let segment = pool.segments.iter().find(|segment| segment.buffer.memory == buffer.memory)?;
        let (start, end) = (buffer.offset_bytes, buffer.offset_bytes + buffer.len_bytes);
        segment.blocks.iter().find_map(|block| match block.held {
            Use::Used(id)
                if Some(id) != buffer.block
                    && block.offset_bytes < end
                    && start < block.offset_bytes + block.len_bytes =>
            {
                Some(id)
            }
            Use::Used(_) | Use::Free => None,
        })
    }

    /// The segments of each pool.
    pub(crate) fn pools(&self) -> impl Iterator<Item = (Token, &[Segment])> {
        Pools::of(self).rows.iter().map(|(name, pool)| (*name, &**pool.segments))
    }

    /// A segment that a pool has.
    pub(crate) fn segment(&self, memory: MemoryId) -> Option<&Segment> {
        let Owner::Pool(pool) = memory.owner else { return None };
        pool_of(self, pool)?.segments.iter().find(|segment| segment.buffer.memory == memory)
    }

    /// The blocks of a pool's segment; none of memory that no pool has.
    pub(crate) fn blocks_of(&self, memory: MemoryId) -> &[PoolBlock] {
        self.segment(memory).map_or(&[], |segment| &segment.blocks)
    }

    /// Where the block of a buffer starts in its memory, while the program holds it.
    pub(crate) fn block_start(&self, buffer: &Buffer) -> Option<u64> {
        self.held_block(buffer).map(|block| block.offset_bytes)
    }

    /// The stream to which the block of a buffer belongs, while the program holds it.
    pub(crate) fn stream_of_block(&self, buffer: &Buffer) -> Option<Token> {
        self.held_block(buffer).map(|block| block.stream)
    }

    /// The block of a buffer, while the program holds it.
    fn held_block(&self, buffer: &Buffer) -> Option<&PoolBlock> {
        let Owner::Pool(pool) = buffer.memory.owner else { return None };
        let pool = pool_of(self, pool)?;
        let (segment, block) = position(&pool.segments, buffer.block?)?;
        Some(&pool.segments[segment].blocks[block])
    }
}

fn pool_of(rank: &RankState, pool: Token) -> Option<&Pool> {
    Pools::of(rank).rows.get(&pool)
}

impl Machine {
    fn pool_mut<'a>(&self, state: &'a mut State, rank: Rank, pool: Token) -> &'a mut Pool {
        let undeclared = || Pool::undeclared(self.nothing.clone());
        Pools::of_mut(state.rank_mut(rank)).rows.get_or_insert_with(&pool, undeclared)
    }

    /// Whether another thread holds the allocator's lock.
    pub(crate) fn pool_held(&self, rank: &RankState, pool: Token, thread: u32) -> bool {
        pool_of(rank, pool).is_some_and(|pool| pool.holder.is_some_and(|holder| holder != thread))
    }

    /// A block's stream gets to where the program gave the block back. Whoever uses it on another stream, not ordered
    /// before that, may still use it when the pool hands it out again. That it does is a race of its own; until then
    /// nothing is wrong but the order.
    pub(crate) fn judge_given_back(
        &self,
        state: &mut State,
        rank: Rank,
        stream: Option<usize>,
        given: &Queued,
    ) {
        let Work::GiveBack(block) = &given.work else { unreachable!("a block that was given back") };
        let mut now = given.issue.clone();
        if let Some(at) = stream {
            now.join(state.rank(rank).stream(at).clock());
        }
        let running = self.used_after(state, (rank, stream), block, &now);
        if let Some(given) = block.block {
            state.rank_mut(rank).forget_uses(block.memory, given);
        }
        self.forget_contents(state, rank, block.name, &ByteRange::of(block));
        let streams = state.rank(rank).streams().iter().enumerate();
        let queued = streams.filter(|(at, _)| Some(*at) != stream).find_map(|(_, (_, other))| {
            let uses =
                |work: &Work| work.buffers().iter().any(|b| b.through.is_none() && b.block == block.block);
            other.queue().iter().find(|queued| uses(&queued.work)).map(|queued| queued.op)
        });
        let Some(user) = running.or(queued) else { return };
        let (op, past) = (given.op, given.issue.past());
        self.find(state, Rule::Mem1, About::Memory(rank, block.memory), &[op, user], past, || {
            let (name, freed, used) = (self.buffer_name(block), self.at(&op), self.at(&user));
            if matches!(block.memory.owner, Owner::Program(_)) {
                return format!(
                    "rank {} frees {name} on a stream ({freed}), and nothing orders that stream after the operation at {used} that \
                     uses it on another",
                    rank.0
                );
            }
            format!(
                "rank {} gives {} back to its pool ({}), and nothing orders the stream of the block after the operation \
                 at {} that uses it on another: the pool may hand it out again before that is over",
                rank.0,
                self.buffer_name(block),
                self.at(&op),
                self.at(&user)
            )
        });
    }

    /// An operation of a rank that used the block of a buffer and that nothing orders before `now`.
    fn used_after(
        &self,
        state: &State,
        (rank, stream): (Rank, Option<usize>),
        buffer: &Buffer,
        now: &Clock,
    ) -> Option<OpRef> {
        let memory = state.rank(rank).memory(buffer.memory)?;
        let own = stream.map(|at| state.rank(rank).stream(at).clock().actor());
        let of_rank = |used: &&crate::noun::memory::Accessed| self.rank_of(used.actor) == rank;
        let uses = memory.uses_of(buffer.block?).filter(of_rank);
        let mut uses = uses.inspect(|used| {
            if Some(used.actor) != own {
                self.ask_about(used.op.loc);
            }
        });
        uses.find(|used| !now.after(used.actor, used.epoch)).map(|used| used.op)
    }

    /// A fresh address, or one that was freed and comes back.
    pub(crate) fn decide_address(
        &self,
        rank: &RankState,
        (owner, nth): (Owner, u32),
        len_bytes: u64,
        nondet: &mut NondetValues<'_>,
    ) -> Result<AddressId, Poll> {
        let back = rank.freed_addresses(len_bytes);
        let options = u32::try_from(back.len()).expect("few addresses");
        let fresh = AddressId(MemoryId { owner, nth });
        match nondet.take(|| Nondet::AddressReuse, 0..=options)? {
            0 => Ok(fresh),
            nth => Ok(back[nth as usize - 1]),
        }
    }
}

impl Cx<'_> {
    pub(crate) fn run_pool(&mut self, verb: &PoolOp, plan: Plan) {
        let (m, rank, thread) = (self.m, self.rank, self.thread);
        match verb {
            PoolOp::Declare { pool, classes, tie, memory } => {
                let (classes, tie, memory) = (*classes, *tie, *memory);
                let declared = || Pool { classes, tie, memory, ..Pool::undeclared(m.nothing.clone()) };
                Pools::of_mut(self.me_mut()).rows.get_or_insert_with(pool, declared);
                self.done(&[]);
            }
            PoolOp::Lock { pool } => {
                self.access_pool(*pool);
                let row = m.pool_mut(self.state, rank, *pool);
                row.holder = Some(thread);
                let released = row.released.clone();
                self.this_mut().clock_mut().join(&released);
                self.done(&[]);
            }
            PoolOp::Unlock { pool } => {
                self.access_pool(*pool);
                let clock = self.this().clock().clone();
                let row = m.pool_mut(self.state, rank, *pool);
                row.holder = None;
                row.released = clock;
                self.done(&[]);
            }
            PoolOp::Alloc { pool, stream, .. } => {
                self.access_pool(*pool);
                self.access(Object::named(ObjectKind::Stream, *stream), Access::Write);
                self.alloc(verb, plan);
            }
            PoolOp::Trim { pool, release } => {
                self.access_pool(*pool);
                self.trim((*pool, *release));
            }
            PoolOp::Havoc { pool, .. } => {
                self.access_pool(*pool);
                self.havoc(*pool, plan);
            }
        }
    }

    fn access_pool(&mut self, pool: Token) {
        self.access(Object::named(ObjectKind::Pool, pool), Access::Write);
    }

    fn alloc(&mut self, verb: &PoolOp, plan: Plan) {
        let (m, rank) = (self.m, self.rank);
        let PoolOp::Alloc { pool: token, name, len_bytes, stream } = verb else {
            unreachable!("an allocation")
        };
        let Plan::Block(Placement { returned, found, address_order }) = plan else {
            self.state.faults_used += 1;
            self.fail(format!("{}.alloc", m.name(*token)), 2);
            self.done(&[Value::Null]);
            return;
        };
        for (_, clock) in &returned {
            self.this_mut().clock_mut().join(clock);
        }
        // An undeclared pool exists from its first use.
        let pool = m.pool_mut(self.state, rank, *token);
        let mut back = Vec::new();
        let mut seen = Vec::new();
        for (id, _) in returned {
            seen.extend(pool.deferred.extract_if(.., |deferred| deferred.block == id));
            back.extend(range_of(pool, id));
            give_back(pool, id);
        }
        for deferred in seen {
            self.me_mut().has_awaited(deferred.record);
        }
        for range in back {
            m.forget_contents(self.state, rank, *token, &range);
        }
        let pool = m.pool_mut(self.state, rank, *token);
        let request = rounded(pool, *len_bytes);
        let (segment, block) = match found {
            BlockFound::Free(segment, block) => (segment, block),
            BlockFound::Grown(address) => (add_segment(pool, *token, address, request, *stream), 0),
        };
        let id = BlockId(MemoryId { owner: Owner::Pool(*token), nth: pool.blocks_made });
        pool.blocks_made += 1;
        let (kind, classes) = (pool.memory, pool.classes);
        let segment = &mut Arc::make_mut(&mut pool.segments)[segment];
        let offset_bytes = segment.hold(block, request.block_bytes, classes, id);
        let whole = Arc::clone(&segment.buffer);
        let grew = match found {
            BlockFound::Free(..) => false,
            BlockFound::Grown(address) => {
                self.access(Object::ADDRESSES, Access::Read);
                m.create(self.state, rank, kind, &whole);
                self.me_mut().take_address(address, request.segment_bytes);
                true
            }
        };
        let buffer = Buffer {
            block: Some(id),
            memory: whole.memory,
            address: whole.address,
            offset_bytes,
            len_bytes: *len_bytes,
            memory_len_bytes: whole.memory_len_bytes,
            name: *name,
            through: None,
            grew,
        };
        let r = self.me_mut();
        if let Some(order) = address_order {
            r.set_address_order(order.into());
        }
        r.hand_out(id);
        m.block_captured(self.state, rank, (*token, id));
        let buffer = Arc::new(buffer);
        let op = self.here().op_ref();
        let issue = self.this().clock().clone();
        let fresh = Queued { work: Work::Fresh(Arc::clone(&buffer)), issue, op, replay: None };
        let Some(fresh) = m.record_or(self.state, rank, *stream, fresh) else {
            self.done(&[Value::Buffer(buffer)]);
            return;
        };
        let r = self.me_mut();
        match r.stream_named(*stream) {
            Some(at) if !r.stream(at).is_empty() => r.stream_mut(at).push(fresh),
            of => {
                let mut now = fresh.issue;
                if let Some(at) = of {
                    now.join(r.stream(at).clock());
                }
                m.fresh_behind(self.state, rank, &buffer, &now);
            }
        }
        self.done(&[Value::Buffer(buffer)]);
    }

    /// The block that a buffer is, if the program holds it: it is freed once.
    pub(crate) fn held(&mut self, buffer: &Buffer) -> Option<BlockId> {
        let (m, rank, op) = (self.m, self.rank, self.op);
        let held = buffer.block.filter(|block| self.me().is_live(*block));
        if held.is_none() {
            let past = self.here().past();
            m.find(self.state, Rule::Mem3, About::Memory(rank, buffer.memory), &[op], past, || {
                let (name, memory) = (m.buffer_name(buffer), m.memory_name(buffer.memory));
                let of = if name == memory { String::new() } else { format!(" of {memory}") };
                if buffer.through.is_some() {
                    return format!(
                        "rank {} frees {name} ({}), which is a mapping of another rank's memory: a mapping is closed",
                        rank.0,
                        m.at(&op)
                    );
                }
                format!(
                    "rank {} frees {name}{of} again ({}): it does not hold it any more",
                    rank.0,
                    m.at(&op)
                )
            });
            Machine::undefine(self.state, op);
        }
        held
    }

    pub(crate) fn free(&mut self, buffer: &Operand, after: Option<Token>) {
        let (m, rank) = (self.m, self.rank);
        let Value::Buffer(buffer) = Machine::value(self.state, rank, buffer) else {
            self.done(&[]);
            return;
        };
        self.access(Object::memory(buffer.memory), Access::Write);
        let Some(block) = self.held(&buffer) else {
            self.done(&[]);
            return;
        };
        self.me_mut().take_back(block);
        match buffer.memory.owner {
            Owner::Pool(pool) => {
                self.access(Object::named(ObjectKind::Pool, pool), Access::Write);
                let deferred = after.map(|event| {
                    let (record, stream) = (self.me().last_record(event), self.me().recorded_on(event));
                    DeferredFree { block, record, stream }
                });
                match &deferred {
                    Some(deferred) => {
                        self.me_mut().awaits(deferred.record);
                        self.me_mut().forget_uses(buffer.memory, block);
                    }
                    None => self.give_back_in_order(&buffer),
                }
                let row = m.pool_mut(self.state, rank, pool);
                match deferred {
                    Some(deferred) => row.deferred.push(deferred),
                    None => give_back(row, block),
                }
            }
            Owner::Program(_) => {
                let cuda = self.me().memory(buffer.memory).map(|m| m.kind()) == Some(MemoryKind::Cuda);
                if cuda {
                    self.wait_for_device();
                }
                self.release(buffer.memory);
            }
        }
        self.done(&[]);
    }

    /// The pool gets a block back as of where the block's stream stands now: it hands the block out again in the order
    /// of that stream, and waits for no other.
    fn give_back_in_order(&mut self, buffer: &Arc<Buffer>) {
        let (m, rank, op) = (self.m, self.rank, self.op);
        let Some(of) = self.me().stream_of_block(buffer) else { return };
        self.access(Object::named(ObjectKind::Stream, of), Access::Write);
        // What a graph uses stays reserved while it lives.
        if self.here().records_on(of) {
            if let Some(given) = buffer.block {
                self.me_mut().forget_uses(buffer.memory, given);
            }
            return;
        }
        let issue = self.this().clock().clone();
        let given = Queued { work: Work::GiveBack(Arc::clone(buffer)), issue, op, replay: None };
        match self.me().stream_named(of) {
            Some(at) if !self.me().stream(at).is_empty() => self.me_mut().stream_mut(at).push(given),
            stream => m.judge_given_back(self.state, rank, stream, &given),
        }
    }

    /// `cudaFree` returns once the device has done all that was launched.
    pub(crate) fn wait_for_device(&mut self) {
        self.access(Object::DEVICE, Access::Write);
        let clocks: Vec<Clock> = self.me().streams().iter().map(|(_, s)| s.clock().clone()).collect();
        for clock in clocks {
            self.this_mut().clock_mut().join(&clock);
        }
    }

    fn trim(&mut self, (pool, release): (Token, Release)) {
        let (m, rank) = (self.m, self.rank);
        let reserved = Machine::reserved(self.me(), pool);
        let row = m.pool_mut(self.state, rank, pool);
        let idle = |segment: &Segment| !reserved && segment.is_idle();
        let released: Vec<Arc<Buffer>> =
            row.segments.iter().filter(|s| idle(s)).map(|s| Arc::clone(&s.buffer)).collect();
        Arc::make_mut(&mut row.segments).retain(|segment| !idle(segment));
        if release == Release::Now && !released.is_empty() && self.here().releases_wait(pool) {
            self.wait_for_device();
        }
        // They go in the order in which they were made.
        if let Some(first) = released.first() {
            m.look_at_numbers(first.memory);
        }
        for segment in &released {
            self.access(Object::memory(segment.memory), Access::Write);
            if release == Release::Now {
                self.release(segment.memory);
            }
        }
        self.done(&[Value::Trimmed(released.into())]);
    }

    fn havoc(&mut self, pool: Token, plan: Plan) {
        let (m, rank) = (self.m, self.rank);
        let Plan::Havoc(sizes) = plan else { unreachable!("havoc is decided as havoc") };
        for len in sizes {
            let stream = m.source.default_stream();
            let row = m.pool_mut(self.state, rank, pool);
            let address = AddressId(MemoryId { owner: Owner::Pool(pool), nth: row.segments_made });
            let at = add_segment(row, pool, address, rounded(row, len), stream);
            let (kind, buffer) = (row.memory, Arc::clone(&row.segments[at].buffer));
            m.create(self.state, rank, kind, &buffer);
        }
        self.done(&[]);
    }
}

impl<'a> Here<'a> {
    /// The thread that holds the allocator's lock of a pool.
    pub(crate) fn holder_of_pool(self, pool: Token) -> Option<u32> {
        pool_of(self.me(), pool).and_then(|pool| pool.holder)
    }

    pub(crate) fn decide_pool(self, verb: &PoolOp, nondet: &mut NondetValues<'_>) -> Result<Plan, Poll> {
        let Here { m, state, .. } = self;
        match verb {
            PoolOp::Alloc { pool, len_bytes, stream, .. } => {
                if m.decide_fault(state, FaultOf::Alloc, nondet)? {
                    return Ok(Plan::Fail);
                }
                self.decide_alloc((*pool, *len_bytes, *stream), nondet)
            }
            PoolOp::Havoc { pool, max, sizes_bytes } => {
                let sizes_bytes = self.history(*pool, sizes_bytes);
                let count = u32::try_from(sizes_bytes.len()).expect("few sizes");
                let mut left = Vec::new();
                while u32::try_from(left.len()).expect("few") < *max {
                    match nondet.take(|| Nondet::Havoc(*pool), 0..=count)? {
                        0 => break,
                        nth => left.push(sizes_bytes[nth as usize - 1]),
                    }
                }
                Ok(Plan::Havoc(left))
            }
            PoolOp::Declare { .. } | PoolOp::Lock { .. } | PoolOp::Unlock { .. } | PoolOp::Trim { .. } => {
                Ok(Plan::Nothing)
            }
        }
    }

    fn decide_alloc(
        self,
        (name, len_bytes, stream): (Token, u64, Token),
        nondet: &mut NondetValues<'_>,
    ) -> Result<Plan, Poll> {
        let Here { m, state, rank, .. } = self;
        let r = self.me();
        let mut pool =
            pool_of(r, name).map_or_else(|| Cow::Owned(Pool::undeclared(m.nothing.clone())), Cow::Borrowed);
        let mut returned = Vec::new();
        // While a stream records, events are not polled (`CUDACachingAllocator.cpp`, `process_events`).
        let deferred = if m.captures(state, rank) { Vec::new() } else { pool.deferred.clone() };
        // Streams on which something is not complete: nobody asks about what lies behind it (the same function).
        let mut busy: Vec<Token> = Vec::new();
        for DeferredFree { block, record, stream } in deferred {
            if stream.is_some_and(|stream| busy.contains(&stream)) {
                continue;
            }
            match self.seen(record, nondet, || Nondet::Deferred(record.event))? {
                Some(done) => {
                    returned.push((block, done));
                    give_back(pool.to_mut(), block);
                }
                None => busy.extend(stream),
            }
        }
        let request = rounded(&pool, len_bytes);
        let mut order = Cow::Borrowed(r.address_order());
        let position = nondet.position(Nondet::AddressOrder);
        let found = match best_fit(&pool.segments, request, stream, pool.tie, &mut order, position)? {
            Some((segment, block)) => BlockFound::Free(segment, block),
            None => {
                let owner = (Owner::Pool(name), pool.segments_made);
                BlockFound::Grown(m.decide_address(r, owner, request.segment_bytes, nondet)?)
            }
        };
        let address_order = if let Cow::Owned(order) = order { Some(order) } else { None };
        Ok(Plan::Block(Placement { returned, found, address_order }))
    }

    /// `cudaFree` waits for the device; everything else frees at once.
    /// The requests that may have left a segment behind: those that are given, or one for each kind of segment.
    fn history(self, pool: Token, sizes_bytes: &[u64]) -> &[u64] {
        let classes = pool_of(self.me(), pool).map(|pool| pool.classes);
        match classes {
            _ if !sizes_bytes.is_empty() => sizes_bytes,
            Some(SizeClasses::Torch) => &[1 << 20, 2 << 20],
            Some(SizeClasses::Exact) | None => &[2 << 20],
        }
    }

    /// Whether what a pool releases goes back to the driver by `cudaFree`, which waits for the device.
    fn releases_wait(self, pool: Token) -> bool {
        pool_of(self.me(), pool).is_some_and(|pool| pool.memory == MemoryKind::Cuda)
    }

    /// Whether a trim that releases what it finds can return now.
    fn can_trim(self, pool: Token) -> bool {
        let Here { m, state, rank, .. } = self;
        let r = self.me();
        let finds = || {
            let segments = pool_of(r, pool).map(|pool| &*pool.segments).into_iter().flatten();
            !Machine::reserved(r, pool) && segments.into_iter().any(Segment::is_idle)
        };
        !self.releases_wait(pool) || m.drained(state, rank, &Operand::Device) || !finds()
    }

    /// Whether it is the device that a trim waits for, and not the pool.
    fn waits_in_trim(self, pool: Token) -> bool {
        !self.m.pool_held(self.me(), pool, self.thread) && !self.can_trim(pool)
    }

    pub(crate) fn can_free(self, buffer: &Operand) -> bool {
        let Here { m, state, rank, thread } = self;
        let Value::Buffer(buffer) = Machine::value(state, rank, buffer) else { return true };
        let r = self.me();
        if let Owner::Pool(pool) = buffer.memory.owner {
            return !m.pool_held(r, pool, thread);
        }
        let cuda = r.memory(buffer.memory).is_some_and(|m| m.kind() == MemoryKind::Cuda);
        !cuda || m.drained(state, rank, &Operand::Device)
    }
}

/// A new segment of one free block; returns its position.
fn add_segment(pool: &mut Pool, name: Token, address: AddressId, request: Rounded, stream: Token) -> usize {
    let len_bytes = request.segment_bytes;
    let buffer = Buffer {
        block: None,
        memory: MemoryId { owner: Owner::Pool(name), nth: pool.segments_made },
        address,
        offset_bytes: 0,
        len_bytes,
        memory_len_bytes: len_bytes,
        name,
        through: None,
        grew: false,
    };
    let segments = Arc::make_mut(&mut pool.segments);
    segments.push(Segment::free(Arc::new(buffer), request, stream));
    pool.segments_made += 1;
    segments.len() - 1
}
