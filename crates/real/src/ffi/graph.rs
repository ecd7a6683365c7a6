//! Owners of CUDA graphs, and the calls that capture streams.
//!
//! Not here: what is captured.

use std::mem::ManuallyDrop;
use std::ptr;

use cudarc::driver::sys;
use rankcheck_model::CaptureMode;

use super::cuda::{Device, RawStream, check};
use crate::Error;

/// Whether a stream records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Capturing {
    /// What is launched runs.
    No,
    /// What is launched is recorded.
    Active,
    /// What is launched is refused, until the capture is ended.
    Invalidated,
}

fn raw_mode(mode: CaptureMode) -> sys::CUstreamCaptureMode {
    match mode {
        CaptureMode::Global => sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL,
        CaptureMode::ThreadLocal => sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
        CaptureMode::Relaxed => sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED,
    }
}

/// `cuThreadExchangeStreamCaptureMode`: from now on captures forbid this thread what they forbid to this mode.
pub(super) fn set_thread_mode(mode: CaptureMode) -> Result<(), Error> {
    let mut mode = raw_mode(mode);
    // SAFETY: `mode` is valid for a read and a write.
    let result = unsafe { sys::cuThreadExchangeStreamCaptureMode(&raw mut mode) };
    check("cuThreadExchangeStreamCaptureMode", result)
}

impl Device {
    /// Makes a call as a thread does that has not relaxed its capture mode.
    pub(crate) fn unrelaxed<T>(&self, call: impl FnOnce() -> T) -> Result<T, Error> {
        set_thread_mode(CaptureMode::Global)?;
        let result = call();
        set_thread_mode(CaptureMode::Relaxed)?;
        Ok(result)
    }
}

impl RawStream {
    pub(crate) fn capturing(&self) -> Result<Capturing, Error> {
        let mut status = sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
        // SAFETY: the stream lives, as its owner is borrowed; `status` is valid for a write.
        let result = unsafe { sys::cuStreamIsCapturing(self.raw(), &raw mut status) };
        check("cuStreamIsCapturing", result)?;
        Ok(match status {
            sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE => Capturing::No,
            sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_ACTIVE => Capturing::Active,
            sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_INVALIDATED => Capturing::Invalidated,
        })
    }

    pub(crate) fn begin_capture(&self, mode: CaptureMode) -> Result<(), Error> {
        // SAFETY: the stream lives, as its owner is borrowed.
        let result = unsafe { sys::cuStreamBeginCapture_v2(self.raw(), raw_mode(mode)) };
        check("cuStreamBeginCapture", result)
    }

    pub(crate) fn end_capture(&self) -> Result<RawGraph, Error> {
        let mut graph = ptr::null_mut();
        // SAFETY: the stream lives, as its owner is borrowed; `graph` is valid for a write.
        let result = unsafe { sys::cuStreamEndCapture(self.raw(), &raw mut graph) };
        check("cuStreamEndCapture", result)?;
        let mut exec = ptr::null_mut();
        // SAFETY: the driver just gave the graph out; `exec` is valid for a write; there are no flags.
        let result = unsafe { sys::cuGraphInstantiateWithFlags(&raw mut exec, graph, 0) };
        if let Err(error) = check("cuGraphInstantiate", result) {
            // SAFETY: the graph is given up here, once.
            check("cuGraphDestroy", unsafe { sys::cuGraphDestroy(graph) })?;
            return Err(error);
        }
        Ok(RawGraph { graph, exec })
    }
}

/// A captured graph and its executable form.
#[derive(Debug)]
pub struct RawGraph {
    graph: sys::CUgraph,
    exec: sys::CUgraphExec,
}

// SAFETY: the driver takes graphs from any thread; the owner is changed by one thread at a time, as launches
// and the end of it are made under the lock of the tables that hold it.
unsafe impl Send for RawGraph {}
// SAFETY: as above.
unsafe impl Sync for RawGraph {}

impl RawGraph {
    pub(crate) fn launch(&self, stream: &RawStream) -> Result<(), Error> {
        // SAFETY: both live, as their owners are borrowed.
        check("cuGraphLaunch", unsafe { sys::cuGraphLaunch(self.exec, stream.raw()) })
    }

    pub(crate) fn end(self) -> Result<(), Error> {
        let this = ManuallyDrop::new(self);
        // SAFETY: the owner is consumed, so this happens once. The driver keeps what still runs.
        let exec = check("cuGraphExecDestroy", unsafe { sys::cuGraphExecDestroy(this.exec) });
        // SAFETY: as above.
        let graph = check("cuGraphDestroy", unsafe { sys::cuGraphDestroy(this.graph) });
        exec.and(graph)
    }
}

impl Drop for RawGraph {
    fn drop(&mut self) {
        tracing::warn!(graph = ?self.graph, "a graph was not destroyed");
    }
}
