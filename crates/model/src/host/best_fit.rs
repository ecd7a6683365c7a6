//! Best fit in a caching pool: how long blocks and segments are, which free block serves a request, and how blocks
//! are split and merged again.
//!
//! The arithmetic of torch's caching allocator, without memory. Where segments lie is left to whoever adds them.
//! Not here: deferred frees, and the lock that makes a pool usable by several threads.

use std::borrow::Cow;
use std::sync::Arc;

use smallvec::{SmallVec, smallvec};

use crate::host::order::position_in;
use crate::host::value::{Address, BlockId, Buffer, Modelled, Objects, Value};
use crate::id::Token;
use crate::noun::pool::{SizeClasses, TieBreak};

/// Physical memory comes in pieces of this size, so segments are rounded up to it (`kRoundLarge`).
pub const GRANULARITY_BYTES: u64 = 2 << 20;
/// Blocks are rounded up to this (`kMinBlockSize` in `c10/cuda/CUDACachingAllocator.cpp`).
const BLOCK_BYTES: u64 = 512;
/// Requests up to this come from small segments (`kSmallSize`).
const SMALL_BYTES: u64 = 1 << 20;
/// Requests below this come from segments of [`LARGE_SEGMENT_BYTES`] (`kMinLargeAlloc`).
const MIN_LARGE_BYTES: u64 = 10 << 20;
/// Length of the segment for requests between [`SMALL_BYTES`] and [`MIN_LARGE_BYTES`] (`kLargeBuffer`).
const LARGE_SEGMENT_BYTES: u64 = 20 << 20;

/// A request, rounded as the allocator rounds it before it looks for a free block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rounded {
    /// Length of its block.
    pub block_bytes: u64,
    /// Whether it lies in a segment for small requests. Blocks of one kind are never cut from the other.
    pub small: bool,
    /// Length of the segment that is made if no free block serves it.
    pub segment_bytes: u64,
}

impl SizeClasses {
    /// Rounds a request; nothing for one so long that it cannot be. An empty one takes the shortest block.
    #[must_use]
    pub fn round(self, len_bytes: u64) -> Option<Rounded> {
        let block_bytes = len_bytes.max(1).checked_next_multiple_of(BLOCK_BYTES)?;
        let whole = block_bytes.checked_next_multiple_of(GRANULARITY_BYTES)?;
        let (small, segment_bytes) = match self {
            Self::Exact => (false, whole),
            Self::Torch if block_bytes <= SMALL_BYTES => (true, GRANULARITY_BYTES),
            Self::Torch if block_bytes < MIN_LARGE_BYTES => (false, LARGE_SEGMENT_BYTES),
            Self::Torch => (false, whole),
        };
        Some(Rounded { block_bytes, small, segment_bytes })
    }

    /// Whether what remains of a block becomes a block of its own (`should_split`).
    fn splits<O: Objects>(self, of: &Segment<O>, rest_bytes: u64) -> bool {
        match self {
            Self::Torch if !of.small => rest_bytes > SMALL_BYTES,
            Self::Torch | Self::Exact => rest_bytes >= BLOCK_BYTES,
        }
    }
}

/// Whether the program holds a block.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Use {
    /// It can be handed out.
    Free,
    /// It is, as this allocation.
    Used(BlockId),
}

/// A piece of a segment.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PoolBlock {
    /// Start in the segment.
    pub offset_bytes: u64,
    /// Length in bytes, rounded as [`SizeClasses`] says.
    pub len_bytes: u64,
    /// The stream that it is kept for.
    pub stream: Token,
    /// Whether the program holds it, and as which allocation.
    pub held: Use,
}

/// A segment of a pool. Its blocks cover it without gaps.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Segment<O: Objects = Modelled> {
    /// The memory that the blocks lie in.
    pub buffer: Arc<Buffer<O>>,
    /// Whether it is for small requests.
    pub small: bool,
    /// The blocks, ordered by offset.
    pub blocks: SmallVec<[PoolBlock; 2]>,
}

/// A block by the positions of its segment in the pool and of itself in the segment.
pub type Position = (usize, usize);

impl<O: Objects> Segment<O> {
    /// A segment that was made for a request and is free as a whole.
    #[must_use]
    pub fn free(buffer: Arc<Buffer<O>>, request: Rounded, stream: Token) -> Self {
        let Rounded { small, segment_bytes: len_bytes, .. } = request;
        let whole = PoolBlock { offset_bytes: 0, len_bytes, stream, held: Use::Free };
        Self { buffer, small, blocks: smallvec![whole] }
    }

    /// Whether the program holds no block of it.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.blocks.iter().all(|block| block.held == Use::Free)
    }

    /// Hands out a free block, split if it is much too long. Returns where it starts.
    pub fn hold(&mut self, at: usize, block_bytes: u64, classes: SizeClasses, id: BlockId) -> u64 {
        let PoolBlock { offset_bytes, len_bytes, stream, .. } = self.blocks[at];
        let rest = len_bytes - block_bytes;
        if classes.splits(self, rest) {
            self.blocks[at].len_bytes = block_bytes;
            let offset_bytes = offset_bytes + block_bytes;
            self.blocks.insert(at + 1, PoolBlock { offset_bytes, len_bytes: rest, stream, held: Use::Free });
        }
        self.blocks[at].held = Use::Used(id);
        offset_bytes
    }

    /// Takes a block back and merges it with its free neighbours.
    pub fn give_back(&mut self, at: usize) {
        let blocks = &mut self.blocks;
        blocks[at].held = Use::Free;
        if at + 1 < blocks.len() && blocks[at + 1].held == Use::Free {
            let next = blocks.remove(at + 1);
            blocks[at].len_bytes += next.len_bytes;
        }
        if at > 0 && blocks[at - 1].held == Use::Free {
            let this = blocks.remove(at);
            blocks[at - 1].len_bytes += this.len_bytes;
        }
    }
}

/// Where the program's block lies.
#[must_use]
pub fn position<O: Objects>(segments: &[Segment<O>], id: BlockId) -> Option<Position> {
    let holds = |segment: &Segment<O>| segment.blocks.iter().position(|block| block.held == Use::Used(id));
    segments.iter().enumerate().find_map(|(nth, segment)| Some((nth, holds(segment)?)))
}

/// The free block of a stream that serves a request: the shortest that is long enough, and of several the one that
/// the tie-break says. Nothing where a new segment is needed. `addresses` is the order of addresses as far as it is
/// known; `decide` places an address that has to be compared and was not before.
///
/// # Errors
/// What `decide` returns.
pub fn best_fit<O: Objects, E>(
    segments: &[Segment<O>],
    request: Rounded,
    stream: Token,
    tie: TieBreak,
    addresses: &mut Cow<'_, [Value<O>]>,
    mut decide: impl FnMut(&[Value<O>], &Value<O>) -> Result<usize, E>,
) -> Result<Option<Position>, E> {
    let fits = shortest(segments, request, stream);
    let first = fits.first().copied();
    if fits.len() < 2 {
        return Ok(first);
    }
    match tie {
        // Segments and blocks stand in the order in which they were made.
        TieBreak::Counter => Ok(first),
        TieBreak::Address => {
            let start = |(segment, _): &Position| {
                Value::Address(Address::Memory(segments[*segment].buffer.address, 0))
            };
            for fit in &fits {
                position_in(addresses, &start(fit), &mut decide)?;
            }
            // Of several at one address the first one lies lowest.
            let mut placed = addresses.iter();
            let lowest = placed.find_map(|address| fits.iter().find(|fit| start(fit) == *address));
            Ok(lowest.copied())
        }
    }
}

/// The shortest free blocks of a stream that are long enough.
fn shortest<O: Objects>(segments: &[Segment<O>], request: Rounded, stream: Token) -> SmallVec<[Position; 8]> {
    let mut best = u64::MAX;
    let mut fits = SmallVec::new();
    for (s, segment) in segments.iter().enumerate().filter(|(_, segment)| segment.small == request.small) {
        for (b, block) in segment.blocks.iter().enumerate() {
            let fit =
                block.held == Use::Free && block.stream == stream && block.len_bytes >= request.block_bytes;
            if !fit || block.len_bytes > best {
                continue;
            }
            if block.len_bytes < best {
                best = block.len_bytes;
                fits.clear();
            }
            fits.push((s, b));
        }
    }
    fits
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;
    use crate::host::value::{AddressId, MemoryId, Owner};

    const KIB: u64 = 1 << 10;
    const MIB: u64 = 1 << 20;
    const STREAM: Token = Token(0);

    fn memory(nth: usize) -> MemoryId {
        MemoryId { owner: Owner::Pool(Token(1)), nth: u32::try_from(nth).expect("few segments") }
    }

    /// A pool whose n-th segment has the n-th of these addresses.
    struct Pool {
        classes: SizeClasses,
        tie: TieBreak,
        segments: Vec<Segment>,
        addresses: Vec<u64>,
        made: usize,
    }

    impl Pool {
        fn new(classes: SizeClasses, tie: TieBreak, addresses: &[u64]) -> Self {
            Self { classes, tie, segments: Vec::new(), addresses: addresses.to_vec(), made: 0 }
        }

        /// Allocates on a stream. Returns the segment by number, and where the block starts in it.
        fn alloc(&mut self, len_bytes: u64, stream: Token) -> (BlockId, u32, u64) {
            let request = self.classes.round(len_bytes).expect("not too long");
            let at = |value: &Value| {
                let Value::Address(Address::Memory(AddressId(memory), _)) = value else {
                    panic!("{value:?} is no address in memory")
                };
                self.addresses[memory.nth as usize]
            };
            let lower = |order: &[Value], value: &Value| {
                Ok::<_, Infallible>(order.iter().filter(|placed| at(placed) < at(value)).count())
            };
            let mut order = Cow::Borrowed(&[][..]);
            let Ok(fit) = best_fit(&self.segments, request, stream, self.tie, &mut order, lower);
            let (segment, block) = fit.unwrap_or_else(|| {
                self.grow(request, stream);
                (self.segments.len() - 1, 0)
            });
            self.made += 1;
            let (id, segment) = (BlockId(memory(self.made)), &mut self.segments[segment]);
            let offset_bytes = segment.hold(block, request.block_bytes, self.classes, id);
            (id, segment.buffer.memory.nth, offset_bytes)
        }

        fn grow(&mut self, request: Rounded, stream: Token) {
            let (memory, len_bytes) = (memory(self.segments.len()), request.segment_bytes);
            let buffer = Buffer {
                block: None,
                memory,
                address: AddressId(memory),
                offset_bytes: 0,
                len_bytes,
                memory_len_bytes: len_bytes,
                name: Token(1),
                through: None,
                grew: false,
            };
            self.segments.push(Segment::free(Arc::new(buffer), request, stream));
        }

        fn free(&mut self, id: BlockId) {
            let (segment, block) = position(&self.segments, id).expect("it is held");
            self.segments[segment].give_back(block);
        }
    }

    #[test]
    fn a_block_is_split_and_merged_again() {
        let mut pool = Pool::new(SizeClasses::Exact, TieBreak::Counter, &[]);
        let blocks = [(); 3].map(|()| pool.alloc(512 * KIB, STREAM));
        assert_eq!(blocks.map(|(_, segment, at)| (segment, at)), [(0, 0), (0, 512 * KIB), (0, MIB)]);
        for nth in [0, 2, 1] {
            pool.free(blocks[nth].0);
        }
        assert!(pool.segments[0].is_idle());
        let (_, segment, at) = pool.alloc(2 * MIB, STREAM);
        assert_eq!((segment, at), (0, 0), "everything is one block again");
    }

    #[test]
    fn the_shortest_block_that_fits_is_taken() {
        let mut pool = Pool::new(SizeClasses::Exact, TieBreak::Counter, &[]);
        let blocks = [8 * MIB, 4 * MIB].map(|len| pool.alloc(len, STREAM).0);
        blocks.into_iter().for_each(|block| pool.free(block));
        assert_eq!(pool.alloc(3 * MIB, STREAM).1, 1);
        assert_eq!(pool.alloc(MIB, STREAM).1, 1, "the rest became a block of its own");
    }

    #[test]
    fn the_tie_is_broken_by_address_or_by_age() {
        for (tie, segment) in [(TieBreak::Address, 1), (TieBreak::Counter, 0)] {
            let mut pool = Pool::new(SizeClasses::Exact, tie, &[64 * MIB, 0, 32 * MIB]);
            let blocks = [(); 3].map(|()| pool.alloc(4 * MIB, STREAM).0);
            blocks.into_iter().for_each(|block| pool.free(block));
            assert_eq!(pool.alloc(4 * MIB, STREAM).1, segment, "{tie:?}");
        }
    }

    #[test]
    fn streams_do_not_share_free_blocks() {
        let mut pool = Pool::new(SizeClasses::Exact, TieBreak::Counter, &[]);
        let (block, ..) = pool.alloc(4 * MIB, STREAM);
        pool.free(block);
        assert_eq!(pool.alloc(4 * MIB, Token(1)).1, 1);
    }

    #[test]
    fn torch_rounds_requests_to_three_kinds_of_segment() {
        let mut pool = Pool::new(SizeClasses::Torch, TieBreak::Counter, &[]);
        for len_bytes in [0, MIB, MIB + 1, 10 * MIB, 21 * MIB + 1] {
            pool.alloc(len_bytes, STREAM);
        }
        // 1 MiB shares the first segment with 0 bytes; 10 MiB shares the second with 1 MiB + 1.
        let made: Vec<u64> = pool.segments.iter().map(|segment| segment.buffer.len_bytes / MIB).collect();
        assert_eq!(made, [2, 20, 22]);
        assert_eq!(SizeClasses::Exact.round(u64::MAX), None);
    }
}
