//! An event: a point in a stream that others can wait for or ask about.
//!
//! Not here: times of programs, whose events have none.

use crate::Error;
use crate::ffi::cuda::{self, Completion, Device, Timing};
use crate::stream::CudaStream;

/// An event of the driver, with or without times.
#[derive(Debug)]
pub struct CudaEvent {
    pub(crate) owner: cuda::RawEvent,
}

impl CudaEvent {
    /// `cuEventCreate`, without timing.
    ///
    /// # Errors
    /// [`Error::Cuda`].
    pub fn create(device: &Device) -> Result<Self, Error> {
        cuda::RawEvent::create(device, Timing::Off).map(|owner| Self { owner })
    }

    /// `cuEventCreate` of an event that takes the time.
    ///
    /// # Errors
    /// [`Error::Cuda`].
    pub fn create_timed(device: &Device) -> Result<Self, Error> {
        cuda::RawEvent::create(device, Timing::On).map(|owner| Self { owner })
    }

    /// `cuEventElapsedTime`: milliseconds from the completion of `earlier` to that of this event.
    ///
    /// # Errors
    /// [`Error::Cuda`], if one of them is not complete or takes no time.
    pub fn milliseconds_since(&self, earlier: &Self) -> Result<f32, Error> {
        self.owner.milliseconds_since(&earlier.owner)
    }

    /// `cuEventRecord`: the event now stands for what was launched on the stream so far.
    ///
    /// # Errors
    /// [`Error::Cuda`].
    pub fn record(&self, stream: &CudaStream) -> Result<(), Error> {
        self.owner.record(&stream.owner)
    }

    /// `cuEventQuery`: whether the last record is complete. One that was never recorded is.
    ///
    /// # Errors
    /// [`Error::Cuda`], also for what a kernel of the process did wrong.
    pub fn query(&self) -> Result<Completion, Error> {
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
