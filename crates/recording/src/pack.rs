//! Takes the room that nobody wrote to out of a file, for a recorder claims extents whole, and notes how long the process
//! lived, which it cannot say itself.
//!
//! Not here: compression. Packed files are read as others are.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use crate::layout::{END, EXTENT_HEADER_BYTES, Extent, HEADER_BYTES, encode_header};
use crate::read::{CallEvent, ProcessFile, ReadError};

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
/// It stays as it is until all of it is there again.
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
    let (from, to) = (File::open(path).map_err(io)?, path.with_extension("packing"));
    process.header.alive = alive;
    let header = alive.and_then(|_| encode_header(&process.header));
    let written = write(&process, header, &from, &to).and_then(|bytes| fs::rename(&to, path).map(|()| bytes));
    packed.bytes = written.map_err(|source| {
        // It may not even have been made.
        let _ = fs::remove_file(&to);
        io(source)
    })?;
    Ok(packed)
}

/// With another header, if there is one.
fn write(process: &ProcessFile, header: Option<Vec<u8>>, from: &File, to: &Path) -> io::Result<u64> {
    let mut writer = BufWriter::new(File::create(to)?);
    let old = || {
        let mut bytes = vec![0; HEADER_BYTES];
        from.read_exact_at(&mut bytes, 0).map(|()| bytes)
    };
    let mut bytes = header.map_or_else(old, Ok)?;
    writer.write_all(&bytes)?;
    let mut length = bytes.len() as u64;
    for (at, extent) in &process.extents {
        let content = at + EXTENT_HEADER_BYTES as u64;
        let within = content..=content + u64::from(extent.length);
        let cut = process.cuts().iter().find(|cut| cut.thread == extent.thread && within.contains(&cut.at));
        let used = cut.map_or(u64::from(extent.used), |cut| cut.at - content);
        bytes.resize(usize::try_from(used).map_err(io::Error::other)?, 0);
        from.read_exact_at(&mut bytes, content)?;
        // What was open stays open, and is read up to an end.
        bytes.extend(cut.map(|_| END));
        let whole = u32::try_from(EXTENT_HEADER_BYTES + bytes.len()).map_err(io::Error::other)?;
        let used = if cut.is_some() { 0 } else { extent.used };
        writer.write_all(&Extent { length: whole, used, ..*extent }.encode())?;
        writer.write_all(&bytes)?;
        length += u64::from(whole);
    }
    writer.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()?;
    Ok(length)
}
