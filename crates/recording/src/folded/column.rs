//! The numbers of a compressed column, one after another.
//!
//! Not here: what they say ([`super::events`]).

use std::io::{self, Cursor, Read};
use std::sync::Arc;

use flate2::read::ZlibDecoder;

use crate::varint::Varints;

/// So much is unpacked at once.
const BUFFER_BYTES: usize = 16 * 1024;
/// A number of 64 bits has no more.
const NUMBER_BYTES: usize = 10;

/// Bytes of a file that are compressed.
pub(super) type Compressed = io::Take<Cursor<Arc<[u8]>>>;

/// A column that is unpacked while its numbers are taken.
pub(super) struct Column {
    unpacked: io::Take<ZlibDecoder<Compressed>>,
    buffer: Box<[u8]>,
    /// What of the buffer was unpacked and is not taken yet.
    from: usize,
    to: usize,
}

impl Column {
    /// Of a column that is no longer than this.
    pub(super) fn new(compressed: Compressed, length: u64) -> Self {
        let unpacked = ZlibDecoder::new(compressed).take(length);
        Self { unpacked, buffer: vec![0; BUFFER_BYTES].into(), from: 0, to: 0 }
    }

    /// What `of` makes of the next number; `None` if there is none that is whole.
    #[inline]
    pub(super) fn next<T>(&mut self, of: impl FnOnce(&mut Varints<'_>) -> Option<T>) -> Option<T> {
        if self.to - self.from < NUMBER_BYTES {
            self.fill().ok()?;
        }
        let mut numbers = Varints::new(&self.buffer[self.from..self.to]);
        let made = of(&mut numbers);
        self.from += numbers.taken();
        made
    }

    fn fill(&mut self) -> io::Result<()> {
        self.buffer.copy_within(self.from..self.to, 0);
        (self.from, self.to) = (0, self.to - self.from);
        loop {
            match self.unpacked.read(&mut self.buffer[self.to..]) {
                Ok(0) => return Ok(()),
                Ok(more) => self.to += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}
