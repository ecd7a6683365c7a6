//! A CUDA graph: what streams recorded, to be launched again with the same pointers.
//!
//! Not here: which calls a capture forbids; the driver says so.

use rankcheck_model::CaptureMode;

use crate::Error;
pub use crate::ffi::graph::Capturing;
use crate::ffi::graph::RawGraph;
use crate::stream::CudaStream;

/// A captured graph that can be launched.
#[derive(Debug)]
pub struct CudaGraph {
    owner: RawGraph,
}

impl CudaGraph {
    /// `cuStreamBeginCapture`: what is launched on the stream from now on is recorded.
    ///
    /// # Errors
    /// [`Error::Cuda`], for example 401 if the stream records already.
    pub fn begin(stream: &CudaStream, mode: CaptureMode) -> Result<(), Error> {
        stream.owner.begin_capture(mode)
    }

    /// `cuStreamEndCapture` and `cuGraphInstantiate`. The capture is over also after an error.
    ///
    /// # Errors
    /// [`Error::Cuda`], for example 901 after a call that captures forbid, 904 if a stream was not joined.
    pub fn finish(stream: &CudaStream) -> Result<Self, Error> {
        stream.owner.end_capture().map(|owner| Self { owner })
    }

    /// `cuGraphLaunch`.
    ///
    /// # Errors
    /// [`Error::Cuda`].
    pub fn launch(&self, stream: &CudaStream) -> Result<(), Error> {
        self.owner.launch(&stream.owner)
    }

    /// `cuGraphExecDestroy` and `cuGraphDestroy`. What still runs of it goes on.
    ///
    /// # Errors
    /// [`Error::Cuda`].
    pub fn end(self) -> Result<(), Error> {
        self.owner.end()
    }
}
