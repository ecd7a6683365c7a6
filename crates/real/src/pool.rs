//! A best-fit pool: blocks in segments, split, merged and handed out again.
//!
//! The arithmetic of torch's caching allocator, without memory: where a segment lies is what the caller's
//! closure says, so hooks run there and tests need no GPU. Not here: what blocks are used for, deferred
//! frees, and the lock that makes a pool usable by several threads.

use std::collections::{BTreeMap, BTreeSet};

use rankcheck_model::{SizeClasses, TieBreak};

use crate::Error;

const MIB: u64 = 1 << 20;
/// Blocks are rounded up to this (`kMinBlockSize` in `c10/cuda/CUDACachingAllocator.cpp`).
const BLOCK_BYTES: u64 = 512;
/// Segments are rounded up to this (`kRoundLarge`).
const SEGMENT_BYTES: u64 = 2 * MIB;
/// Requests up to this come from small segments (`kSmallSize`).
const SMALL_BYTES: u64 = MIB;
/// Requests below this come from segments of [`MEDIUM_SEGMENT_BYTES`] (`kMinLargeAlloc`).
const MEDIUM_BYTES: u64 = 10 * MIB;
/// `kLargeBuffer`.
const MEDIUM_SEGMENT_BYTES: u64 = 20 * MIB;

/// Blocks of one kind are never cut from segments of the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Small,
    Large,
}

#[derive(Debug, Clone)]
struct Segment {
    base: u64,
    len_bytes: u64,
    kind: Kind,
    stream: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Used,
    Free,
}

#[derive(Debug, Clone, Copy)]
struct Part {
    len_bytes: u64,
    state: State,
}

/// In this order free blocks are tried: smallest first, then by the tie.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct FreeKey {
    stream: u32,
    kind: Kind,
    len_bytes: u64,
    /// The address, or 0 where the number of the segment decides.
    tie: u64,
    segment: u32,
    offset_bytes: u64,
}

/// Whether an allocation took a new segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Growth {
    /// A free block served it.
    Reused,
    /// The closure was asked for a segment.
    Grew,
}

/// A block in use. It is given back by value, so it cannot be freed twice.
#[derive(Debug, PartialEq, Eq)]
pub struct Block {
    /// Number of its segment, counted in the order of allocation.
    pub segment: u32,
    /// Place in the segment.
    pub offset_bytes: u64,
    /// Rounded length.
    pub len_bytes: u64,
    /// Address of the first byte.
    pub address: u64,
    /// Whether its allocation took a new segment.
    pub growth: Growth,
}

/// A segment that [`Pool::trim`] has let go. The caller frees its memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Released {
    /// Its number.
    pub segment: u32,
    /// Where it lay.
    pub base: u64,
    /// Its length.
    pub len_bytes: u64,
}

/// The pool.
#[derive(Debug)]
pub struct Pool {
    classes: SizeClasses,
    tie: TieBreak,
    segments: BTreeMap<u32, Segment>,
    /// By segment and offset; the parts of a segment cover it without gaps.
    parts: BTreeMap<(u32, u64), Part>,
    free: BTreeSet<FreeKey>,
    next_segment: u32,
}

impl Pool {
    /// A pool without segments.
    #[must_use]
    pub fn new(classes: SizeClasses, tie: TieBreak) -> Self {
        Self {
            classes,
            tie,
            segments: BTreeMap::new(),
            parts: BTreeMap::new(),
            free: BTreeSet::new(),
            next_segment: 0,
        }
    }

    /// The smallest free block of the stream that is long enough, or a part of a new segment.
    ///
    /// `grow` gets the length of the segment that is needed and returns its base address.
    ///
    /// # Errors
    /// [`Error::Size`], and what `grow` returns; the pool is then as before.
    pub fn alloc(
        &mut self,
        len_bytes: u64,
        stream: u32,
        grow: impl FnOnce(u64) -> Result<u64, Error>,
    ) -> Result<Block, Error> {
        let (len, kind, segment_len) = sizes(self.classes, len_bytes).ok_or(Error::Size { len_bytes })?;
        let lowest = FreeKey { stream, kind, len_bytes: len, tie: 0, segment: 0, offset_bytes: 0 };
        let fit =
            self.free.range(lowest..).next().filter(|key| key.stream == stream && key.kind == kind).copied();
        let (segment, offset, available, growth) = match fit {
            Some(key) => {
                self.free.remove(&key);
                (key.segment, key.offset_bytes, key.len_bytes, Growth::Reused)
            }
            None => {
                let base = grow(segment_len)?;
                let segment = self.next_segment;
                self.next_segment += 1;
                self.segments.insert(segment, Segment { base, len_bytes: segment_len, kind, stream });
                (segment, 0, segment_len, Growth::Grew)
            }
        };
        let rest = available - len;
        let taken = if splits(self.classes, kind, rest) { len } else { available };
        self.parts.insert((segment, offset), Part { len_bytes: taken, state: State::Used });
        if taken < available {
            self.insert_free(segment, offset + taken, rest);
        }
        let address = self.segment(segment).base + offset;
        Ok(Block { segment, offset_bytes: offset, len_bytes: taken, address, growth })
    }

    /// The base addresses of the segments whose free blocks fit equally well, the first of which by the tie
    /// [`Pool::alloc`] would take; in the order of segments and places. Empty where a new segment is needed.
    #[must_use]
    pub fn equals(&self, len_bytes: u64, stream: u32) -> Vec<u64> {
        let Some((len, kind, _)) = sizes(self.classes, len_bytes) else { return Vec::new() };
        let lowest = FreeKey { stream, kind, len_bytes: len, tie: 0, segment: 0, offset_bytes: 0 };
        let fits = self.free.range(lowest..).take_while(|key| key.stream == stream && key.kind == kind);
        let mut fits = fits.peekable();
        let Some(best) = fits.peek().map(|key| key.len_bytes) else { return Vec::new() };
        let mut equal: Vec<(u32, u64)> =
            fits.take_while(|key| key.len_bytes == best).map(|key| (key.segment, key.offset_bytes)).collect();
        equal.sort_unstable();
        equal.into_iter().map(|(segment, _)| self.segment(segment).base).collect()
    }

    /// How ties are broken.
    #[must_use]
    pub fn tie(&self) -> TieBreak {
        self.tie
    }

    /// Adds a segment that is free as a whole, long enough for a request of this length, as a history would
    /// have left it behind. Its number.
    ///
    /// # Errors
    /// [`Error::Size`], and what `grow` returns; the pool is then as before.
    pub fn add_free(
        &mut self,
        len_bytes: u64,
        stream: u32,
        grow: impl FnOnce(u64) -> Result<u64, Error>,
    ) -> Result<u32, Error> {
        let (_, kind, segment_len) = sizes(self.classes, len_bytes).ok_or(Error::Size { len_bytes })?;
        let base = grow(segment_len)?;
        let segment = self.next_segment;
        self.next_segment += 1;
        self.segments.insert(segment, Segment { base, len_bytes: segment_len, kind, stream });
        self.insert_free(segment, 0, segment_len);
        Ok(segment)
    }

    /// The number that the next segment gets.
    #[must_use]
    pub fn next_segment(&self) -> u32 {
        self.next_segment
    }

    /// Gives a block back and merges it with its free neighbours.
    pub fn free(&mut self, block: Block) {
        let Block { segment, offset_bytes: mut offset, len_bytes: mut len, .. } = block;
        let part = self.parts.remove(&(segment, offset)).expect("the block is of this pool");
        assert_eq!((part.state, part.len_bytes), (State::Used, len), "the block is in use");
        if let Some((&(_, before), &part)) = self.parts.range((segment, 0)..(segment, offset)).next_back()
            && part.state == State::Free
        {
            self.remove_free(segment, before, part.len_bytes);
            offset = before;
            len += part.len_bytes;
        }
        let after = offset + len;
        if let Some(&part) = self.parts.get(&(segment, after))
            && part.state == State::Free
        {
            self.remove_free(segment, after, part.len_bytes);
            len += part.len_bytes;
        }
        self.insert_free(segment, offset, len);
    }

    /// Lets the segments go that have no block in use, in the order of their numbers.
    pub fn trim(&mut self) -> Vec<Released> {
        let unused = |(&segment, held): (&u32, &Segment)| {
            let whole = self.parts.get(&(segment, 0))?;
            let empty = whole.state == State::Free && whole.len_bytes == held.len_bytes;
            empty.then_some(Released { segment, base: held.base, len_bytes: held.len_bytes })
        };
        let released: Vec<Released> = self.segments.iter().filter_map(unused).collect();
        for gone in &released {
            self.remove_free(gone.segment, 0, gone.len_bytes);
            self.segments.remove(&gone.segment);
        }
        released
    }

    /// Bytes of all segments.
    #[must_use]
    pub fn reserved_bytes(&self) -> u64 {
        self.segments.values().map(|segment| segment.len_bytes).sum()
    }

    fn segment(&self, segment: u32) -> &Segment {
        self.segments.get(&segment).expect("parts lie in segments of the pool")
    }

    fn free_key(&self, segment: u32, offset_bytes: u64, len_bytes: u64) -> FreeKey {
        let held = self.segment(segment);
        let tie = match self.tie {
            TieBreak::Address => held.base + offset_bytes,
            TieBreak::Counter => 0,
        };
        FreeKey { stream: held.stream, kind: held.kind, len_bytes, tie, segment, offset_bytes }
    }

    fn insert_free(&mut self, segment: u32, offset_bytes: u64, len_bytes: u64) {
        self.free.insert(self.free_key(segment, offset_bytes, len_bytes));
        self.parts.insert((segment, offset_bytes), Part { len_bytes, state: State::Free });
    }

    fn remove_free(&mut self, segment: u32, offset_bytes: u64, len_bytes: u64) {
        let key = self.free_key(segment, offset_bytes, len_bytes);
        assert!(self.free.remove(&key), "every free part has a key");
        self.parts.remove(&(segment, offset_bytes));
    }
}

/// Length of the block, its kind, and the length of the segment that it would need. Nothing for 0 and for
/// what cannot be rounded up.
fn sizes(classes: SizeClasses, len_bytes: u64) -> Option<(u64, Kind, u64)> {
    if len_bytes == 0 {
        return None;
    }
    let len = len_bytes.checked_next_multiple_of(BLOCK_BYTES)?;
    let whole = len.checked_next_multiple_of(SEGMENT_BYTES)?;
    Some(match classes {
        SizeClasses::Exact => (len, Kind::Large, whole),
        SizeClasses::Torch if len <= SMALL_BYTES => (len, Kind::Small, SEGMENT_BYTES),
        SizeClasses::Torch if len < MEDIUM_BYTES => (len, Kind::Large, MEDIUM_SEGMENT_BYTES),
        SizeClasses::Torch => (len, Kind::Large, whole),
    })
}

/// Whether a rest becomes a block of its own (`should_split`).
fn splits(classes: SizeClasses, kind: Kind, rest_bytes: u64) -> bool {
    match (classes, kind) {
        (SizeClasses::Torch, Kind::Large) => rest_bytes > SMALL_BYTES,
        (SizeClasses::Torch, Kind::Small) | (SizeClasses::Exact, _) => rest_bytes >= BLOCK_BYTES,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: u64 = 1 << 10;

    /// A segment at this address.
    fn at(base: u64) -> impl FnOnce(u64) -> Result<u64, Error> {
        move |_| Ok(base)
    }

    fn none(_: u64) -> Result<u64, Error> {
        panic!("the pool does not need a segment")
    }

    #[test]
    fn a_block_is_split_and_merged_again() {
        let mut pool = Pool::new(SizeClasses::Exact, TieBreak::Counter);
        let a = pool.alloc(512 * KIB, 0, at(0)).expect("grows");
        let b = pool.alloc(512 * KIB, 0, none).expect("fits behind a");
        let c = pool.alloc(512 * KIB, 0, none).expect("fits behind b");
        assert_eq!((a.growth, b.growth), (Growth::Grew, Growth::Reused));
        assert_eq!((b.offset_bytes, c.offset_bytes), (512 * KIB, MIB));
        pool.free(a);
        pool.free(c);
        pool.free(b);
        let whole = pool.alloc(2 * MIB, 0, none).expect("everything is one block again");
        assert_eq!((whole.offset_bytes, whole.len_bytes), (0, 2 * MIB));
    }

    #[test]
    fn the_smallest_block_that_fits_is_taken() {
        let mut pool = Pool::new(SizeClasses::Exact, TieBreak::Counter);
        let large = pool.alloc(8 * MIB, 0, at(0)).expect("grows");
        let small = pool.alloc(4 * MIB, 0, at(32 * MIB)).expect("grows");
        pool.free(large);
        pool.free(small);
        let block = pool.alloc(3 * MIB, 0, none).expect("fits in both");
        assert_eq!((block.segment, block.len_bytes), (1, 3 * MIB));
    }

    #[test]
    fn the_tie_is_broken_by_address_or_by_age() {
        for (tie, segment) in [(TieBreak::Address, 1), (TieBreak::Counter, 0)] {
            let mut pool = Pool::new(SizeClasses::Exact, tie);
            let older = pool.alloc(4 * MIB, 0, at(64 * MIB)).expect("grows");
            let younger = pool.alloc(4 * MIB, 0, at(0)).expect("grows");
            pool.free(younger);
            pool.free(older);
            assert_eq!(pool.alloc(4 * MIB, 0, none).expect("both fit").segment, segment, "{tie:?}");
        }
    }

    #[test]
    fn a_history_leaves_equals_behind() {
        let mut pool = Pool::new(SizeClasses::Exact, TieBreak::Address);
        assert!(pool.equals(MIB, 0).is_empty());
        assert_eq!(pool.add_free(MIB, 0, at(64 * MIB)), Ok(0));
        assert_eq!(pool.add_free(MIB, 0, at(0)), Ok(1));
        assert_eq!(pool.add_free(8 * MIB, 0, at(128 * MIB)), Ok(2));
        assert_eq!((pool.equals(MIB, 0), pool.equals(MIB, 1)), (vec![64 * MIB, 0], vec![]));
        assert_eq!(pool.alloc(MIB, 0, none).expect("fits").segment, 1);
        assert_eq!(pool.next_segment(), 3);
    }

    #[test]
    fn streams_do_not_share_free_blocks() {
        let mut pool = Pool::new(SizeClasses::Exact, TieBreak::Counter);
        let block = pool.alloc(4 * MIB, 0, at(0)).expect("grows");
        pool.free(block);
        let other = pool.alloc(4 * MIB, 1, at(8 * MIB)).expect("grows");
        assert_eq!((other.growth, other.segment), (Growth::Grew, 1));
    }

    #[test]
    fn torch_rounds_requests_to_three_kinds_of_segment() {
        let mut pool = Pool::new(SizeClasses::Torch, TieBreak::Counter);
        let mut asked = Vec::new();
        for len_bytes in [1, MIB, MIB + 1, 10 * MIB, 21 * MIB + 1] {
            pool.alloc(len_bytes, 0, |segment| {
                asked.push(segment);
                Ok(64 * MIB * asked.len() as u64)
            })
            .expect("grows or fits");
        }
        // 1 MiB shares the first segment with 1 byte; 10 MiB shares the second with 1 MiB + 1.
        assert_eq!(asked, [2 * MIB, 20 * MIB, 22 * MIB]);
        assert_eq!(pool.reserved_bytes(), 44 * MIB);
    }

    #[test]
    fn trim_lets_only_unused_segments_go() {
        let mut pool = Pool::new(SizeClasses::Exact, TieBreak::Counter);
        let held = pool.alloc(4 * MIB, 0, at(0)).expect("grows");
        let gone = pool.alloc(8 * MIB, 0, at(16 * MIB)).expect("grows");
        pool.free(gone);
        assert_eq!(pool.trim(), [Released { segment: 1, base: 16 * MIB, len_bytes: 8 * MIB }]);
        assert_eq!(pool.reserved_bytes(), 4 * MIB);
        pool.free(held);
        assert_eq!(pool.alloc(4 * MIB, 0, none).expect("the segment is still there").segment, 0);
    }

    #[test]
    fn a_segment_that_does_not_come_changes_nothing() {
        let mut pool = Pool::new(SizeClasses::Exact, TieBreak::Counter);
        let error = Error::Nccl { call: "ncclMemAlloc", code: 1 };
        assert_eq!(pool.alloc(4 * MIB, 0, |_| Err(error.clone())), Err(error));
        assert_eq!(pool.alloc(0, 0, none), Err(Error::Size { len_bytes: 0 }));
        assert_eq!(pool.reserved_bytes(), 0);
        assert_eq!(pool.alloc(4 * MIB, 0, at(0)).expect("grows").segment, 0);
    }
}
