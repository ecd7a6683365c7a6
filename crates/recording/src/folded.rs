//! Folded files: what a packed file says, in a fraction of the room, and byte for byte the same when it is read.
//!
//! Of most events only the times are new: the calls are those of the iteration before. So times, how long calls took and
//! addresses that vary each get a column of their own, and what is left, the calls in their order, repeats itself over any
//! distance: stretches that came before are written as where and how long (`repeats`). Each column is then compressed.
//! What is no whole extent of known events is kept as it is, so any packed file can be folded, and unfolded to the same bytes.
//!
//! Not here: what calls mean, and which iterations are judged once.

mod column;
mod events;
mod repeats;
mod unfolding;

use std::fs;
use std::io::Write as _;
use std::path::Path;

use flate2::Compression;
use flate2::write::ZlibEncoder;

use self::events::{TakeApart, WrittenThreads};
pub(crate) use self::unfolding::{UnfoldedExtent, Unfolding};
use crate::layout::{EXTENT_BYTES, EXTENT_HEADER_BYTES, Extent, FOLDED_VERSION, HEADER_BYTES, VERSION};
use crate::read::{ReadError, header};
use crate::varint;
use crate::whole_file;

/// How many columns there are.
const COLUMNS: usize = 6;
/// For each column its length before and after compression, and the checksum of it; before these the length of all
/// extents and their checksum.
const COLUMN_HEADER_BYTES: usize = 20;
const BODY_HEADER_BYTES: usize = 12;
/// A file that says it becomes longer than so many times its own length is damaged.
const RATIO_MAX: u64 = 1 << 16;

/// What a file holds, in the order in which it is written.
#[derive(Debug, Default)]
struct Columns {
    /// Of each extent: its thread, how it is written, how many events or bytes it has, and when it begins.
    extents: Vec<u8>,
    /// Events without what the other columns have.
    calls: Vec<u8>,
    /// The nanoseconds before each event.
    times: Vec<u8>,
    /// How long calls took.
    took: Vec<u8>,
    /// Addresses that vary from call to call.
    addresses: Vec<u8>,
    /// Extents that are kept as they are.
    kept: Vec<u8>,
}

/// How an extent is written.
const KNOWN: u64 = 0;
const KEPT: u64 = 1;

/// The lengths of a file before and after.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FoldedFile {
    /// Bytes of the file that was read.
    pub before: u64,
    /// Bytes of the file that was written.
    pub after: u64,
}

/// Folds the packed file at `from` into a file at `to`, which may be the same. A file that is folded is copied.
///
/// # Errors
///
/// If it cannot be read, is damaged or cut off, or was not packed, or if the other cannot be written; a file at `to` is then
/// unchanged.
pub fn fold(from: &Path, to: &Path) -> Result<FoldedFile, ReadError> {
    rewritten(from, to, VERSION, folded)
}

/// Writes the file that was folded into the one at `from` to a file at `to`, which may be the same. One that is not folded is copied.
///
/// # Errors
///
/// If it cannot be read, is damaged or cut off, or if the other cannot be written; a file at `to` is then unchanged.
pub fn unfold(from: &Path, to: &Path) -> Result<FoldedFile, ReadError> {
    rewritten(from, to, FOLDED_VERSION, unfolded)
}

/// A file of this version becomes what `of` gives, and any other stays what it is.
fn rewritten(
    from: &Path,
    to: &Path,
    version: u32,
    of: impl FnOnce(&Path, &[u8]) -> Result<Vec<u8>, ReadError>,
) -> Result<FoldedFile, ReadError> {
    let mut bytes = fs::read(from).map_err(|source| ReadError::Io { path: from.to_owned(), source })?;
    let before = bytes.len() as u64;
    let found = header(from, &bytes)?.1;
    let other = found == version;
    if other {
        bytes = of(from, &bytes)?;
    } else if found == FOLDED_VERSION {
        // It stays as it is, if it is whole.
        unfolded(from, &bytes)?;
    }
    if other || from != to {
        whole_file::write(to, |file| file.write_all(&bytes))?;
    }
    Ok(FoldedFile { before, after: bytes.len() as u64 })
}

/// The bytes of a packed file, folded.
fn folded(path: &Path, bytes: &[u8]) -> Result<Vec<u8>, ReadError> {
    let damaged = |at: usize, what: &str| ReadError::Damaged {
        path: path.to_owned(),
        at: at as u64,
        what: what.to_owned(),
    };
    let body = bytes.get(HEADER_BYTES..).ok_or_else(|| ReadError::CutOff { path: path.to_owned() })?;
    let mut columns = Columns::default();
    let mut threads = WrittenThreads::default();
    let (mut at, mut before) = (0, 0);
    while at < body.len() {
        let header = body.get(at..).and_then(<[u8]>::first_chunk::<EXTENT_HEADER_BYTES>);
        let extent = header.and_then(Extent::decode);
        let extent = extent.filter(|extent| {
            (EXTENT_HEADER_BYTES..=EXTENT_BYTES).contains(&(extent.length as usize))
                && at + extent.length as usize <= body.len()
        });
        let extent = extent
            .ok_or_else(|| damaged(HEADER_BYTES + at, "no whole extent begins here; was the file packed?"))?;
        let whole = &body[at..at + extent.length as usize];
        columns.extent(&mut threads, &extent, whole, before);
        before = extent.time;
        at += extent.length as usize;
    }
    let mut out = bytes[..HEADER_BYTES].to_vec();
    out[8..12].copy_from_slice(&FOLDED_VERSION.to_le_bytes());
    out.extend((body.len() as u64).to_le_bytes());
    out.extend(crc32fast::hash(body).to_le_bytes());
    let calls = repeats::shortened(&columns.calls);
    for column in [&columns.extents, &calls, &columns.times, &columns.took, &columns.addresses, &columns.kept]
    {
        let mut encoder = ZlibEncoder::new(Vec::new(), Compression::best());
        let compressed = encoder.write_all(column).and_then(|()| encoder.finish());
        let compressed = compressed.map_err(|source| ReadError::Io { path: path.to_owned(), source })?;
        out.extend((column.len() as u64).to_le_bytes());
        out.extend((compressed.len() as u64).to_le_bytes());
        out.extend(crc32fast::hash(&compressed).to_le_bytes());
        out.extend(compressed);
    }
    Ok(out)
}

impl Columns {
    /// Adds an extent, header included; the one before began at `before`.
    fn extent(&mut self, threads: &mut WrittenThreads, extent: &Extent, whole: &[u8], before: u64) {
        let events = &whole[EXTENT_HEADER_BYTES..];
        let sequence = threads.sequence(extent.thread);
        let sealed = extent.used as usize == events.len()
            && extent.sequence == sequence
            && crc32fast::hash(events) == extent.checksum
            && threads.is_known(extent.thread);
        let lengths = [&self.calls, &self.times, &self.took, &self.addresses].map(Vec::len);
        let mut parts = TakeApart::new(events, self);
        let known = sealed.then(|| threads.events(extent.thread, u64::MAX, &mut parts, TakeApart::is_over));
        let (how, count) = match known.flatten() {
            Some(count) => (KNOWN, count),
            None => {
                threads.keep(extent.thread);
                let columns = [&mut self.calls, &mut self.times, &mut self.took, &mut self.addresses];
                columns.into_iter().zip(lengths).for_each(|(column, length)| column.truncate(length));
                self.kept.extend(whole);
                (KEPT, whole.len() as u64)
            }
        };
        for number in [extent.thread.into(), how, count, extent.time.wrapping_sub(before)] {
            varint::put(&mut self.extents, number);
        }
    }
}

/// The bytes of the file that was folded into these.
fn unfolded(path: &Path, bytes: &[u8]) -> Result<Vec<u8>, ReadError> {
    let mut unfolding = Unfolding::new(path, bytes.into())?;
    let mut out = Vec::with_capacity(usize::try_from(unfolding.length()).unwrap_or(0));
    out.extend_from_slice(&bytes[..HEADER_BYTES]);
    out[8..12].copy_from_slice(&VERSION.to_le_bytes());
    let mut events = Vec::new();
    while let Some(extent) = unfolding.next_extent(&mut events)? {
        out.extend_from_slice(&extent.header.encode());
        out.extend_from_slice(&events);
    }
    Ok(out)
}

#[cfg(test)]
mod tests;
