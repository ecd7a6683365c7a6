//! The events of a file in short pieces, for whoever writes them in the order of time.
//!
//! Not here: how they are written ([`mod@crate::pack`]).

use super::bytes::Bytes;
use super::{ProcessFile, ReadError, threads_of};
use crate::layout::{CALL, END, EXTENT_BYTES, EXTENT_HEADER_BYTES, FORGET, LOST, SHAPE, SIGNATURE};

/// Whole events of one thread that stand in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) thread: u32,
    /// Where they begin in the file, and how many bytes they have.
    pub(crate) at: u64,
    pub(crate) length: usize,
    /// When the first of them happened; before it, when the one before did.
    pub(crate) time: u64,
    /// Where, in the piece, the first of them says how long after the one before it was, and in how many bytes.
    pub(crate) passed: Option<(usize, usize)>,
    /// Whether the thread had not ended where they do.
    pub(crate) open: bool,
}

impl ProcessFile {
    /// The events of all threads in pieces of about so many bytes; those of one thread in their order. To be asked of a file as it was recorded.
    ///
    /// # Errors
    /// If the file is damaged somewhere.
    pub(crate) fn pieces(&mut self, length: usize) -> Result<Vec<Piece>, ReadError> {
        let length = length.min(EXTENT_BYTES / 2);
        let mut pieces = Vec::new();
        self.threads = threads_of(&self.extents);
        for at in 0..self.threads.len() {
            while self.load(at)? {
                self.pieces_of_extent(at, length, &mut pieces)?;
            }
        }
        Ok(pieces)
    }

    fn pieces_of_extent(
        &mut self,
        at: usize,
        length: usize,
        pieces: &mut Vec<Piece>,
    ) -> Result<(), ReadError> {
        let thread = &mut self.threads[at];
        let (number, offset) = (thread.number, thread.offset);
        let empty = |begin: usize, time: u64| Piece {
            thread: number,
            at: offset + begin as u64,
            length: 0,
            time,
            passed: None,
            open: false,
        };
        let mut piece = empty(0, thread.time);
        let mut first = 0;
        while thread.at < thread.bytes.len() {
            let begin = thread.at;
            let decoded = thread.decode(&mut self.dictionary);
            match decoded {
                Ok(None) if thread.bytes[begin] == END => {
                    thread.at = begin;
                    break;
                }
                Ok(None) => {}
                Ok(Some(_)) if piece.passed.is_none() => {
                    if let Some((from, to)) = passed(&thread.bytes, begin) {
                        piece.passed = Some((from - first, to - from));
                        piece.time = thread.time;
                    }
                }
                Ok(Some(_)) => {}
                Err(_) if !thread.sealed => {
                    thread.at = begin;
                    break;
                }
                Err(what) => {
                    let at = thread.offset + begin as u64;
                    return Err(self.damaged(at, what));
                }
            }
            if let Some(returned) = thread.returns.take() {
                thread.time = returned;
            }
            piece.length = thread.at - first;
            if piece.length >= length && thread.at < thread.bytes.len() {
                pieces.push(piece);
                first = thread.at;
                piece = empty(first, thread.time);
            }
        }
        piece.open = !thread.sealed;
        if piece.length > 0 || piece.open {
            pieces.push(piece);
        }
        Ok(())
    }
}

/// Where the event that begins at a position says how long after the one before it was.
fn passed(bytes: &[u8], at: usize) -> Option<(usize, usize)> {
    let mut bytes = Bytes { bytes, at };
    let code = bytes.varint().ok()?;
    if [SIGNATURE, SHAPE, FORGET, LOST].map(u64::from).contains(&code) {
        return None;
    }
    if code == u64::from(CALL) {
        bytes.varint().ok()?;
    }
    let from = bytes.at;
    bytes.varint().ok()?;
    Some((from, bytes.at))
}

/// About how long pieces are of a file with so many bytes of events: a cut then takes little with it that was before, and
/// the headers of a long file cost little.
pub(crate) fn piece_bytes(events: u64) -> usize {
    const PIECES: u64 = 1024;
    const SHORTEST: u64 = 64;
    let longest = (EXTENT_BYTES / 2 - EXTENT_HEADER_BYTES) as u64;
    usize::try_from((events / PIECES).clamp(SHORTEST, longest)).unwrap_or(EXTENT_BYTES / 2)
}
