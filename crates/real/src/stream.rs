//! A stream: what is launched on it runs in the order of the launches.
//!
//! Not here: graphs.

use crate::Error;
use crate::event::CudaEvent;
use crate::ffi::DeviceRange;
use crate::ffi::cuda::{self, Completion, Device};
use crate::ffi::graph::Capturing;

/// A stream that does not wait for the legacy default stream.
#[derive(Debug)]
pub struct CudaStream {
    pub(crate) owner: cuda::RawStream,
}

impl CudaStream {
    /// `cuStreamCreate`.
    ///
    /// # Errors
    /// [`Error::Cuda`].
    pub fn create(device: &Device) -> Result<Self, Error> {
        cuda::RawStream::create(device).map(|owner| Self { owner })
    }

    /// `cuStreamQuery`: whether everything that was launched is over.
    ///
    /// # Errors
    /// [`Error::Cuda`], also for what a kernel of the process did wrong.
    pub fn query(&self) -> Result<Completion, Error> {
        self.owner.query()
    }

    /// `cuStreamIsCapturing`: whether launches are recorded.
    ///
    /// # Errors
    /// [`Error::Cuda`].
    pub fn capturing(&self) -> Result<Capturing, Error> {
        self.owner.capturing()
    }

    /// `cuStreamSynchronize`. Does not return if the stream never drains; a deadline needs another process.
    ///
    /// # Errors
    /// [`Error::Cuda`], also for what a kernel on the stream did wrong.
    pub fn synchronize(&self) -> Result<(), Error> {
        self.owner.synchronize()
    }

    /// `cuStreamWaitEvent`: what is launched from now on waits for the last record of the event.
    ///
    /// # Errors
    /// [`Error::Cuda`].
    pub fn wait(&self, event: &CudaEvent) -> Result<(), Error> {
        self.owner.wait(&event.owner)
    }

    /// `cuMemsetD8Async`.
    ///
    /// # Errors
    /// [`Error::Cuda`].
    pub fn fill_bytes(&self, range: &DeviceRange, byte: u8) -> Result<(), Error> {
        self.owner.fill_bytes(range, byte)
    }

    /// `cuMemcpyDtoDAsync` of as many bytes as the shorter range has.
    ///
    /// # Errors
    /// [`Error::Cuda`].
    pub fn copy(&self, from: &DeviceRange, to: &DeviceRange) -> Result<(), Error> {
        self.owner.copy(from, to)
    }

    /// `cuStreamDestroy`. Does not wait for what is still running.
    ///
    /// # Errors
    /// [`Error::Cuda`], or [`Error::InsideGroup`].
    pub fn end(self) -> Result<(), Error> {
        self.owner.end()
    }
}
