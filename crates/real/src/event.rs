//! An event: a point in a stream that others can wait for or ask about.
//!
//! Not here: times, which are switched off.

use crate::Error;
use crate::ffi::cuda::{self, Device, Progress};
use crate::stream::Stream;

/// An event without timing.
#[derive(Debug)]
pub struct Event {
    pub(crate) owner: cuda::Event,
}

impl Event {
    /// `cuEventCreate`.
    ///
    /// # Errors
    /// [`Error::Cuda`].
    pub fn create(device: &Device) -> Result<Self, Error> {
        cuda::Event::create(device).map(|owner| Self { owner })
    }

    /// `cuEventRecord`: the event now stands for what was launched on the stream so far.
    ///
    /// # Errors
    /// [`Error::Cuda`].
    pub fn record(&self, stream: &Stream) -> Result<(), Error> {
        self.owner.record(&stream.owner)
    }

    /// `cuEventQuery`: whether the last record is complete. One that was never recorded is.
    ///
    /// # Errors
    /// [`Error::Cuda`], also for what a kernel of the process did wrong.
    pub fn query(&self) -> Result<Progress, Error> {
        self.owner.query()
    }

    /// `cuEventDestroy`. Streams that wait for the event go on waiting.
    ///
    /// # Errors
    /// [`Error::Cuda`].
    pub fn end(self) -> Result<(), Error> {
        self.owner.end()
    }
}
