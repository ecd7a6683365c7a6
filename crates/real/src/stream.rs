//! A stream: what is launched on it runs in the order of the launches.
//!
//! Not here: events, which order streams among each other, and capture.

use crate::Error;
use crate::ffi::cuda::{self, Device};

/// A stream that does not wait for the legacy default stream.
#[derive(Debug)]
pub struct Stream {
    pub(crate) owner: cuda::Stream,
}

impl Stream {
    /// `cuStreamCreate`.
    ///
    /// # Errors
    /// [`Error::Cuda`].
    pub fn create(device: &Device) -> Result<Self, Error> {
        cuda::Stream::create(device).map(|owner| Self { owner })
    }

    /// `cuStreamSynchronize`. Does not return if the stream never drains; a deadline needs another process.
    ///
    /// # Errors
    /// [`Error::Cuda`], also for what a kernel on the stream did wrong.
    pub fn synchronize(&self) -> Result<(), Error> {
        self.owner.synchronize()
    }

    /// `cuStreamDestroy`. Does not wait for what is still running.
    ///
    /// # Errors
    /// [`Error::Cuda`], or [`Error::InsideGroup`].
    pub fn end(self) -> Result<(), Error> {
        self.owner.end()
    }
}
