//! The extents of a folded file, put together again one by one: of a long one there is little more in memory than the calls,
//! which may come again from anywhere.
//!
//! Not here: how events are put together ([`super::events`]).

use std::collections::VecDeque;
use std::io::{self, Cursor, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use flate2::read::ZlibDecoder;
use rustc_hash::FxHashMap;

use super::column::{Column, Compressed};
use super::events::{PutTogether, WrittenThreads};
use super::{BODY_HEADER_BYTES, COLUMN_HEADER_BYTES, COLUMNS, KEPT, RATIO_MAX, repeats};
use crate::layout::{EXTENT_BYTES, EXTENT_HEADER_BYTES, Extent, HEADER_BYTES};
use crate::read::ReadError;
use crate::varint::Varints;

/// An extent that is still to be put together.
#[derive(Debug, Clone, Copy)]
struct FoldedExtent {
    thread: u32,
    sequence: u32,
    time: u64,
    /// How many events it has; of one that is kept as it is, how many bytes with its header.
    count: u64,
    kept: bool,
}

/// A folded file on the way to what it was.
pub(crate) struct Unfolding {
    path: PathBuf,
    extents: std::vec::IntoIter<FoldedExtent>,
    parts: PutTogether,
    threads: WrittenThreads,
    /// The extents that are kept as they are.
    kept: Cursor<Vec<u8>>,
    /// How many bytes were put together, with the header, and how many there are.
    at: u64,
    length: u64,
    /// Of what was put together, and of all.
    hasher: crc32fast::Hasher,
    checksum: u32,
    /// By thread: extents that were put together before somebody asked for them, with their events.
    ahead: FxHashMap<u32, VecDeque<(UnfoldedExtent, Vec<u8>)>>,
}

/// An extent that was put together.
#[derive(Debug, Clone, Copy)]
pub(crate) struct UnfoldedExtent {
    /// Where it begins in the file that was folded.
    pub(crate) at: u64,
    pub(crate) header: Extent,
    /// Whether it was kept as it is, so that its checksum may not fit.
    pub(crate) kept: bool,
}

impl Unfolding {
    /// Of a whole folded file.
    ///
    /// # Errors
    ///
    /// If it is cut off or damaged.
    pub(crate) fn new(path: &Path, bytes: Arc<[u8]>) -> Result<Self, ReadError> {
        let damaged = |what: &str| damaged(path, what);
        let unpackable =
            |source: io::Error| damaged(&format!("what was folded cannot be unpacked: {source}"));
        let cut_off = || ReadError::CutOff { path: path.to_owned() };
        let mut at = HEADER_BYTES + BODY_HEADER_BYTES;
        let head = bytes.get(HEADER_BYTES..at).ok_or_else(cut_off)?;
        let length = u64::from_le_bytes(*head.first_chunk().expect("it is longer"));
        let checksum = u32::from_le_bytes(*head.last_chunk().expect("it is longer"));
        if length > RATIO_MAX * bytes.len() as u64 {
            return Err(damaged("the folded file says that it becomes longer than it can"));
        }
        // Of each how long it becomes: no longer than what it says, and no longer than what was folded.
        let mut columns: Vec<(Compressed, u64)> = Vec::with_capacity(COLUMNS);
        for _ in 0..COLUMNS {
            let header = bytes.get(at..at + COLUMN_HEADER_BYTES).ok_or_else(cut_off)?;
            let before = u64::from_le_bytes(*header[..8].first_chunk().expect("eight bytes"));
            let after = u64::from_le_bytes(*header[8..16].first_chunk().expect("eight bytes"));
            at += COLUMN_HEADER_BYTES;
            let end = usize::try_from(after).ok().and_then(|after| at.checked_add(after));
            let compressed = end.and_then(|end| bytes.get(at..end)).ok_or_else(cut_off)?;
            if crc32fast::hash(compressed) != u32::from_le_bytes(*header.last_chunk().expect("it is longer"))
            {
                return Err(damaged("a checksum of what was folded does not fit it"));
            }
            let mut file = Cursor::new(Arc::clone(&bytes));
            file.set_position(at as u64);
            columns.push((file.take(after), before.min(length)));
            at += compressed.len();
        }
        let columns: [_; COLUMNS] = columns.try_into().expect("so many were found");
        let [extents, calls, times, took, addresses, kept] = columns;
        let whole = |(compressed, length): (Compressed, u64)| {
            let mut column = Vec::new();
            ZlibDecoder::new(compressed).take(length).read_to_end(&mut column).map(|_| column)
        };
        let extents = whole(extents).map_err(unpackable)?;
        let calls = repeats::restored(&whole(calls).map_err(unpackable)?, length);
        let calls = calls.ok_or_else(|| damaged("the calls of the folded file"))?;
        let mut threads = WrittenThreads::default();
        let extents = folded_extents(&extents, &mut threads);
        let extents = extents.ok_or_else(|| damaged("the extents of the folded file"))?;
        let columns = [times, took, addresses].map(|(compressed, length)| Column::new(compressed, length));
        Ok(Self {
            path: path.to_owned(),
            extents: extents.into_iter(),
            parts: PutTogether::new(calls, columns),
            threads,
            kept: Cursor::new(whole(kept).map_err(unpackable)?),
            at: HEADER_BYTES as u64,
            length: HEADER_BYTES as u64 + length,
            hasher: crc32fast::Hasher::new(),
            checksum,
            ahead: FxHashMap::default(),
        })
    }

    /// The length of the file that was folded.
    pub(crate) fn length(&self) -> u64 {
        self.length
    }

    /// The extents that are still to be put together: the thread of each, its number among those of the thread, and when its
    /// first event was.
    pub(crate) fn left(&self) -> impl Iterator<Item = (u32, u32, u64)> {
        self.extents.as_slice().iter().map(|extent| (extent.thread, extent.sequence, extent.time))
    }

    /// About how many events there are in them.
    pub(crate) fn events(&self) -> u64 {
        self.extents.as_slice().iter().filter(|extent| !extent.kept).map(|extent| extent.count).sum()
    }

    /// The next extent of a thread; its events are put into `events`.
    ///
    /// # Errors
    ///
    /// If the file is damaged somewhere up to there, or somewhere at all if it is the last extent.
    pub(crate) fn extent_of(
        &mut self,
        thread: u32,
        events: &mut Vec<u8>,
    ) -> Result<UnfoldedExtent, ReadError> {
        if let Some((extent, ahead)) = self.ahead.get_mut(&thread).and_then(VecDeque::pop_front) {
            *events = ahead;
            return Ok(extent);
        }
        loop {
            let extent = self.next_extent(events)?.ok_or_else(|| self.does_not_fit())?;
            if extent.header.thread == thread {
                return Ok(extent);
            }
            let ahead = (extent, std::mem::take(events));
            self.ahead.entry(extent.header.thread).or_default().push_back(ahead);
        }
    }

    /// The next extent of the file; its events are put into `events`.
    ///
    /// # Errors
    ///
    /// If it cannot be put together, or if it is the last and what was put together is not what was folded.
    pub(super) fn next_extent(&mut self, events: &mut Vec<u8>) -> Result<Option<UnfoldedExtent>, ReadError> {
        let Some(extent) = self.extents.next() else {
            return if self.at == self.length { Ok(None) } else { Err(self.does_not_fit()) };
        };
        events.clear();
        std::mem::swap(&mut self.parts.out, events);
        let header = self.put_together(extent);
        std::mem::swap(&mut self.parts.out, events);
        let header = header.ok_or_else(|| self.does_not_fit())?;
        let at = self.at;
        self.at += (EXTENT_HEADER_BYTES + events.len()) as u64;
        self.hasher.update(&header.encode());
        self.hasher.update(events);
        let over = self.extents.as_slice().is_empty();
        let whole = || self.at == self.length && self.hasher.clone().finalize() == self.checksum;
        if self.at > self.length || over && !whole() {
            return Err(self.does_not_fit());
        }
        Ok(Some(UnfoldedExtent { at, header, kept: extent.kept }))
    }

    fn does_not_fit(&self) -> ReadError {
        damaged(&self.path, "the events of the folded file do not fit together")
    }

    /// Puts the events of an extent behind those of `parts`, and gives its header. `None` if something is missing.
    fn put_together(&mut self, extent: FoldedExtent) -> Option<Extent> {
        let FoldedExtent { thread, sequence, time, count, kept } = extent;
        if kept {
            let mut header = [0; EXTENT_HEADER_BYTES];
            self.kept.read_exact(&mut header).ok()?;
            let events = usize::try_from(count).ok()?.checked_sub(EXTENT_HEADER_BYTES)?;
            self.parts.out.resize(Some(events).filter(|events| *events <= EXTENT_BYTES)?, 0);
            self.kept.read_exact(&mut self.parts.out).ok()?;
            return Extent::decode(&header).filter(|header| header.thread == thread);
        }
        let too_long = |parts: &PutTogether| parts.out.len() > EXTENT_BYTES;
        self.threads.events(thread, count, &mut self.parts, too_long).filter(|moved| *moved == count)?;
        let events = &self.parts.out;
        let used = u32::try_from(events.len()).ok()?;
        let length = used + EXTENT_HEADER_BYTES as u32;
        Some(Extent { thread, sequence, length, used, checksum: crc32fast::hash(events), time })
    }
}

/// What the column of extents says. `None` if it is not whole.
fn folded_extents(column: &[u8], threads: &mut WrittenThreads) -> Option<Vec<FoldedExtent>> {
    let mut numbers = Varints::new(column);
    let mut extents = Vec::new();
    let mut time = 0_u64;
    while let Some(thread) = numbers.number() {
        let thread = u32::try_from(thread).ok()?;
        let (how, count) = (numbers.number()?, numbers.number()?);
        time = time.wrapping_add(numbers.number()?);
        let sequence = threads.sequence(thread);
        extents.push(FoldedExtent { thread, sequence, time, count, kept: how == KEPT });
    }
    Some(extents)
}

fn damaged(path: &Path, what: &str) -> ReadError {
    ReadError::Damaged { path: path.to_owned(), at: HEADER_BYTES as u64, what: what.to_owned() }
}
