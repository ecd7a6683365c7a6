//! Extents one after the other, in memory or in a file: for recordings that are made of something else than a
//! running program.
//!
//! Not here: extents that are written in place (`crates/record`).

use std::io::{self, Write};

use crate::layout::EXTENT_BYTES;
use crate::write::Space;

/// Hands each extent over once the next one begins. What takes them has the file's header already.
#[derive(Debug)]
pub struct ExtentStream<W: Write> {
    to: W,
    /// Empty before the first.
    extent: Vec<u8>,
    failed: Option<io::Error>,
}

impl<W: Write> ExtentStream<W> {
    /// Returns a stream to which nothing was written yet.
    pub fn new(to: W) -> Self {
        Self { to, extent: Vec::new(), failed: None }
    }

    /// Hands the last extent over, whether or not the writer has finished it: if not, it is as a process leaves it
    /// that is killed.
    ///
    /// # Errors
    ///
    /// The first one that there was.
    pub fn end(mut self) -> io::Result<W> {
        self.hand_over();
        self.failed.map_or(Ok(self.to), Err)
    }

    fn hand_over(&mut self) {
        if self.failed.is_none() {
            self.failed = self.to.write_all(&self.extent).err();
        }
        self.extent.clear();
    }
}

impl<W: Write> Space for ExtentStream<W> {
    fn advance(&mut self) -> bool {
        self.hand_over();
        self.extent.resize(EXTENT_BYTES, 0);
        self.failed.is_none()
    }

    fn extent(&mut self) -> &mut [u8] {
        &mut self.extent
    }
}
