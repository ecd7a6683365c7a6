//! Where the extents of a file come from: they lie in it as they were recorded, or are put together while they are asked for.
//!
//! Not here: what the events in them say ([`super::thread`]).

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use super::ReadError;
use crate::folded::{UnfoldedExtent, Unfolding};
use crate::layout::{EXTENT_BYTES, EXTENT_HEADER_BYTES, Extent, FOLDED_VERSION, HEADER_BYTES};

/// The extents of a file.
pub(super) struct ExtentSource {
    path: PathBuf,
    bytes: ExtentBytes,
}

enum ExtentBytes {
    Recorded(File),
    Folded(Box<Unfolding>),
    /// A folded file whose end is missing. Only its header can be read.
    CutOff,
}

/// Which extents a file has.
#[derive(Debug, Default)]
pub(super) struct ExtentIndex {
    /// Where each begins, and its header; in the order of the file. Of a folded one nobody knows where, or how long they are.
    pub(super) extents: Vec<(u64, Extent)>,
    /// Bytes of the file, before it was folded.
    pub(super) length: u64,
    /// Whether it ends within an extent.
    pub(super) ends_inside: bool,
}

/// An extent that was read.
pub(super) struct ReadExtent {
    /// Where it begins in the file, before that was folded.
    pub(super) at: u64,
    pub(super) header: Extent,
    /// Whether all of it is there, and no more was to come.
    pub(super) sealed: bool,
}

impl ExtentSource {
    /// Of a file of this version of the format.
    pub(super) fn open(path: &Path, version: u32) -> Result<Self, ReadError> {
        let io = |source| ReadError::Io { path: path.to_owned(), source };
        let bytes = if version == FOLDED_VERSION {
            match Unfolding::new(path, fs::read(path).map_err(io)?.into()) {
                Ok(unfolding) => ExtentBytes::Folded(Box::new(unfolding)),
                Err(ReadError::CutOff { .. }) => ExtentBytes::CutOff,
                Err(error) => return Err(error),
            }
        } else {
            ExtentBytes::Recorded(File::open(path).map_err(io)?)
        };
        Ok(Self { path: path.to_owned(), bytes })
    }

    /// The file, if it is as it was recorded.
    pub(super) fn recorded(&self) -> Option<&File> {
        match &self.bytes {
            ExtentBytes::Recorded(file) => Some(file),
            ExtentBytes::Folded(_) | ExtentBytes::CutOff => None,
        }
    }

    /// How many events there are, if the file says so.
    pub(super) fn events(&self) -> Option<u64> {
        match &self.bytes {
            ExtentBytes::Folded(unfolding) => Some(unfolding.events()),
            ExtentBytes::Recorded(_) | ExtentBytes::CutOff => None,
        }
    }

    fn io(&self, source: io::Error) -> ReadError {
        ReadError::Io { path: self.path.clone(), source }
    }

    fn damaged(&self, at: u64, what: impl Into<String>) -> ReadError {
        ReadError::Damaged { path: self.path.clone(), at, what: what.into() }
    }

    /// Finds the extents, as far as the file goes.
    pub(super) fn index(&self) -> Result<ExtentIndex, ReadError> {
        match &self.bytes {
            ExtentBytes::Recorded(file) => self.recorded_index(file),
            ExtentBytes::Folded(unfolding) => {
                let extent = |(thread, sequence, time)| {
                    (0, Extent { thread, sequence, length: 0, used: 0, checksum: 0, time })
                };
                let extents = unfolding.left().map(extent).collect();
                Ok(ExtentIndex { extents, length: unfolding.length(), ends_inside: false })
            }
            // The header says how long the file was, so the end shows as cut off.
            ExtentBytes::CutOff => Ok(ExtentIndex { length: HEADER_BYTES as u64, ..ExtentIndex::default() }),
        }
    }

    fn recorded_index(&self, file: &File) -> Result<ExtentIndex, ReadError> {
        let length = file.metadata().map_err(|source| self.io(source))?.len();
        let mut extents: Vec<(u64, Extent)> = Vec::new();
        let mut of_thread: BTreeMap<u32, u32> = BTreeMap::new();
        let mut at = HEADER_BYTES as u64;
        while at + EXTENT_HEADER_BYTES as u64 <= length {
            let mut bytes = [0; EXTENT_HEADER_BYTES];
            file.read_exact_at(&mut bytes, at).map_err(|source| self.io(source))?;
            if bytes == [0; EXTENT_HEADER_BYTES] {
                // Room that was made and never used: only at the end, or where a process was killed.
                at += EXTENT_BYTES as u64;
                continue;
            }
            let Some(extent) = Extent::decode(&bytes) else {
                return Err(self.damaged(at, "no extent begins here"));
            };
            if (extent.length as usize) <= EXTENT_HEADER_BYTES || extent.length as usize > EXTENT_BYTES {
                return Err(self.damaged(at, format!("an extent of {} bytes", extent.length)));
            }
            if extent.used as usize > extent.length as usize - EXTENT_HEADER_BYTES {
                return Err(self.damaged(at, format!("{} bytes used of {}", extent.used, extent.length)));
            }
            let due = of_thread.entry(extent.thread).or_default();
            self.is_due(at, &extent, *due)?;
            *due += 1;
            extents.push((at, extent));
            at += u64::from(extent.length);
        }
        let end = extents.last().map_or(HEADER_BYTES as u64, |(at, extent)| at + u64::from(extent.length));
        // Less than the header of an extent; zeros are room that nobody wrote to.
        let mut rest = vec![0; usize::try_from(length.saturating_sub(at)).unwrap_or(0)];
        file.read_exact_at(&mut rest, at).map_err(|source| self.io(source))?;
        let begun = rest.iter().any(|byte| *byte != 0);
        Ok(ExtentIndex { extents, length, ends_inside: end > length || begun })
    }

    fn is_due(&self, at: u64, extent: &Extent, due: u32) -> Result<(), ReadError> {
        if extent.sequence == due {
            return Ok(());
        }
        let what =
            format!("extent {} of thread {} where extent {due} was due", extent.sequence, extent.thread);
        Err(self.damaged(at, what))
    }

    /// Reads the next extent of its thread, which begins there and has this header as far as the index knows.
    pub(super) fn read(
        &mut self,
        at: u64,
        known: Extent,
        events: &mut Vec<u8>,
    ) -> Result<ReadExtent, ReadError> {
        let read = match &mut self.bytes {
            ExtentBytes::Recorded(file) => {
                let sealed = known.used > 0;
                let length = if sealed { known.used } else { known.length - EXTENT_HEADER_BYTES as u32 };
                events.resize(length as usize, 0);
                let read = read_at_most(file, events, at + EXTENT_HEADER_BYTES as u64);
                let read = read.map_err(|source| ReadError::Io { path: self.path.clone(), source })?;
                let whole = read == events.len();
                events.truncate(read);
                ReadExtent { at, header: known, sealed: sealed && whole }
            }
            ExtentBytes::Folded(unfolding) => {
                let UnfoldedExtent { at, header, kept } = unfolding.extent_of(known.thread, events)?;
                self.is_due(at, &header, known.sequence)?;
                if !kept {
                    // The checksum was made of these events.
                    return Ok(ReadExtent { at, header, sealed: true });
                }
                if header.used > 0 {
                    events.truncate(header.used as usize);
                }
                let sealed = header.used > 0 && header.used as usize == events.len();
                ReadExtent { at, header, sealed }
            }
            ExtentBytes::CutOff => unreachable!("it has no extents"),
        };
        if read.sealed && crc32fast::hash(events) != read.header.checksum {
            return Err(self.damaged(read.at, "the checksum of this extent does not fit its events"));
        }
        Ok(read)
    }
}

/// Reads until all is full, or the file ends. Gives how many bytes there were.
fn read_at_most(file: &File, to: &mut [u8], at: u64) -> io::Result<usize> {
    let mut read = 0;
    while read < to.len() {
        match file.read_at(&mut to[read..], at + read as u64) {
            Ok(0) => break,
            Ok(more) => read += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(read)
}
