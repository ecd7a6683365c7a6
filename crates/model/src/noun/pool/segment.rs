//! The segments of a pool: how they are split into blocks, and which of these fits a request.
//! Not here: when a block is asked for or given back.

use std::sync::Arc;

use smallvec::{SmallVec, smallvec};

use super::{SizeClasses, TieBreak};
use crate::clock::Clock;
use crate::host::value::{AddressId, BlockId, Buffer, MemoryId, Owner};
use crate::noun::memory::MemoryKind;
use crate::noun::window::GRANULARITY_BYTES;
use crate::rank::Token;
use crate::walk::walk;

const BLOCK_BYTES: u64 = 512;
const SMALL_BYTES: u64 = 1 << 20;
const LARGE_SEGMENT_BYTES: u64 = 20 << 20;
const MIN_LARGE_BYTES: u64 = 10 << 20;

/// Whether a block is handed out.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Use {
    Free,
    Used(BlockId),
}

/// A part of a segment.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Block {
    pub(super) offset_bytes: u64,
    pub(super) len_bytes: u64,
    pub(super) stream: Token,
    pub(super) held: Use,
}

/// Memory of the driver, in blocks.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Segment {
    pub(super) buffer: Arc<Buffer>,
    pub(super) small: bool,
    pub(super) blocks: SmallVec<[Block; 2]>,
}

/// A caching pool of a rank.
#[derive(Debug, Clone)]
pub(crate) struct Pool {
    pub(super) classes: SizeClasses,
    pub(super) tie: TieBreak,
    pub(super) memory: MemoryKind,
    pub(super) segments: Arc<Vec<Segment>>,
    pub(super) segments_made: u32,
    pub(super) blocks_made: u32,
    /// Blocks that return once the n-th record of an event is seen complete.
    pub(super) deferred: Vec<(BlockId, Token, u32)>,
    pub(super) holder: Option<u32>,
    pub(super) released: Clock,
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

/// Size classes: block length, whether it is small, and the length of a segment made for it.
pub(super) fn classed(classes: SizeClasses, len_bytes: u64) -> (u64, bool, u64) {
    let block = len_bytes.max(1).next_multiple_of(BLOCK_BYTES);
    match classes {
        SizeClasses::Exact => (block, false, block.next_multiple_of(GRANULARITY_BYTES)),
        SizeClasses::Torch if block <= SMALL_BYTES => (block, true, GRANULARITY_BYTES),
        SizeClasses::Torch if block < MIN_LARGE_BYTES => (block, false, LARGE_SEGMENT_BYTES),
        SizeClasses::Torch => (block, false, block.next_multiple_of(GRANULARITY_BYTES)),
    }
}

/// Whether what remains of a block is worth a block of its own.
fn splits(classes: SizeClasses, small: bool, rest_bytes: u64) -> bool {
    match classes {
        SizeClasses::Exact => rest_bytes >= BLOCK_BYTES,
        SizeClasses::Torch if small => rest_bytes >= BLOCK_BYTES,
        SizeClasses::Torch => rest_bytes > SMALL_BYTES,
    }
}

/// Gives a block back and merges it with free neighbours of its segment.
pub(super) fn give_back(pool: &mut Pool, id: BlockId) {
    let holds = |segment: &Segment| segment.blocks.iter().position(|block| block.held == Use::Used(id));
    let Some((s, at)) = pool.segments.iter().enumerate().find_map(|(s, segment)| Some((s, holds(segment)?)))
    else {
        return;
    };
    let blocks = &mut Arc::make_mut(&mut pool.segments)[s].blocks;
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

/// The smallest free blocks that are long enough, by segment and position.
pub(super) fn best_fits(pool: &Pool, len_bytes: u64, stream: Token) -> SmallVec<[(usize, usize); 8]> {
    let (block_bytes, small, _) = classed(pool.classes, len_bytes);
    let mut best = u64::MAX;
    let mut fits = SmallVec::new();
    for (s, segment) in pool.segments.iter().enumerate().filter(|(_, segment)| segment.small == small) {
        for (b, block) in segment.blocks.iter().enumerate() {
            let fit = block.held == Use::Free && block.stream == stream && block.len_bytes >= block_bytes;
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

/// A new segment of one free block; returns its position.
pub(super) fn add_segment(
    pool: &mut Pool,
    name: Token,
    address: AddressId,
    (len_bytes, small): (u64, bool),
    stream: Token,
) -> usize {
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
    let whole = Block { offset_bytes: 0, len_bytes, stream, held: Use::Free };
    let segments = Arc::make_mut(&mut pool.segments);
    segments.push(Segment { buffer: Arc::new(buffer), small, blocks: smallvec![whole] });
    pool.segments_made += 1;
    segments.len() - 1
}

/// Hands out a free block, split if it is much too long; returns its segment and where it starts.
pub(super) fn hold(
    pool: &mut Pool,
    (s, b): (usize, usize),
    block_bytes: u64,
    id: BlockId,
) -> (Arc<Buffer>, u64) {
    let classes = pool.classes;
    let segment = &mut Arc::make_mut(&mut pool.segments)[s];
    let Block { offset_bytes, len_bytes, stream, .. } = segment.blocks[b];
    let rest = len_bytes - block_bytes;
    if splits(classes, segment.small, rest) {
        segment.blocks[b].len_bytes = block_bytes;
        let offset_bytes = offset_bytes + block_bytes;
        segment.blocks.insert(b + 1, Block { offset_bytes, len_bytes: rest, stream, held: Use::Free });
    }
    segment.blocks[b].held = Use::Used(id);
    (Arc::clone(&segment.buffer), offset_bytes)
}

impl Pool {
    /// A pool that nobody declared; it exists from its first use.
    pub(super) fn undeclared(released: Clock) -> Self {
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
