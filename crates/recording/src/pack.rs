//! Takes the room that nobody wrote to out of a file, for a recorder claims extents whole, and notes how long the process
//! lived and how long the file is, which it cannot say itself. Events are written in short extents in the order of time, so
//! that a file whose end is cut off still has all that happened up to some time.
//!
//! Not here: compression. Packed files are read as others are.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use crate::layout::{END, EXTENT_HEADER_BYTES, Extent, HEADER_BYTES, encode_header};
use crate::read::pieces::{Piece, piece_bytes};
use crate::read::{CallEvent, ProcessFile, ReadError};
use crate::whole_file;

/// What a file holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Packed {
    /// How many calls it holds; notes are not counted.
    pub calls: u64,
    /// Events that found no room on the disk.
    pub lost: u64,
    /// Threads that had not ended when the process did.
    pub cut: u64,
    /// Its length in bytes once it is packed.
    pub bytes: u64,
}

/// Shortens a file to what was written, and notes in it when its process was last seen to run, if that is known.
/// It stays as it is until all of it is there again, if its end was cut off, and if it is folded, for then it was packed before.
///
/// # Errors
///
/// If it cannot be read, is damaged, or the shorter one cannot be written; the file is then unchanged.
pub fn pack(path: &Path, alive: Option<u64>) -> Result<Packed, ReadError> {
    let io = |source| ReadError::Io { path: path.to_owned(), source };
    let mut process = ProcessFile::open(path)?;
    let mut packed = Packed::default();
    while let Some(event) = process.next_event()? {
        match event {
            CallEvent::Enter { call, .. } => packed.calls += u64::from(!process.shape(call).instant),
            CallEvent::Lost { events, .. } => packed.lost += events,
            CallEvent::Return { .. } => {}
        }
    }
    packed.cut = process.cuts().len() as u64;
    let Some(file) = process.recorded().filter(|_| process.truncated().is_none()) else {
        packed.bytes = fs::metadata(path).map_err(io)?.len();
        return Ok(packed);
    };
    let file = file.try_clone().map_err(io)?;
    let mut pieces = process.pieces(piece_bytes(process.event_bytes()))?;
    pieces.sort_by_key(|piece| piece.time);
    let bytes = pieces.iter().map(|piece| EXTENT_HEADER_BYTES as u64 + written_bytes(piece)).sum::<u64>();
    process.header.alive = alive.or(process.header.alive);
    process.header.bytes = Some(HEADER_BYTES as u64 + bytes);
    let header = encode_header(&process.header);
    whole_file::write(path, |to| write(&pieces, header, &file, to))?;
    packed.bytes = HEADER_BYTES as u64 + bytes;
    Ok(packed)
}

/// How many bytes of events a piece becomes: the first begins with the extent, and what is open needs an end.
fn written_bytes(piece: &Piece) -> u64 {
    let passed = piece.passed.map_or(0, |(_, length)| length - 1);
    (piece.length - passed) as u64 + u64::from(piece.open)
}

/// With another header, if there is one.
fn write(pieces: &[Piece], header: Option<Vec<u8>>, from: &File, to: &mut impl Write) -> io::Result<()> {
    let old = || {
        let mut bytes = vec![0; HEADER_BYTES];
        from.read_exact_at(&mut bytes, 0).map(|()| bytes)
    };
    let mut bytes = header.map_or_else(old, Ok)?;
    to.write_all(&bytes)?;
    let mut sequences: BTreeMap<u32, u32> = BTreeMap::new();
    for piece in pieces {
        bytes.resize(piece.length, 0);
        from.read_exact_at(&mut bytes, piece.at)?;
        if let Some((at, length)) = piece.passed {
            bytes.splice(at..at + length, [0]);
        }
        let used = if piece.open { 0 } else { bytes.len() };
        let checksum = if piece.open { 0 } else { crc32fast::hash(&bytes) };
        // What was open stays open, and is read up to an end.
        bytes.extend(piece.open.then_some(END));
        let sequence = sequences.entry(piece.thread).or_default();
        let extent = Extent {
            thread: piece.thread,
            sequence: *sequence,
            length: u32::try_from(EXTENT_HEADER_BYTES + bytes.len()).map_err(io::Error::other)?,
            used: u32::try_from(used).map_err(io::Error::other)?,
            checksum,
            time: piece.time,
        };
        *sequence += 1;
        to.write_all(&extent.encode())?;
        to.write_all(&bytes)?;
    }
    Ok(())
}
