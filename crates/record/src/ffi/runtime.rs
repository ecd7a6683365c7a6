//! The calls of the CUDA runtime.
//!
//! Not here: what a wrapper does (`calls.rs`); `cudaGetDriverEntryPoint` (`lookup.rs`).

use libc::{c_int, c_void};
use rankcheck_recording::{Returns, Signature};

use super::calls::{
    self, Manner, Pointer, ToField, Varying, WrappedCall, at, calls, digest_at, manner, recorded_name,
    returned,
};
use super::find::Library;
use crate::recorder::{self, CallResult, CallSignatures, Polled, Where};

/// How many blocks or threads, in three directions.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct dim3 {
    x: u32,
    y: u32,
    z: u32,
}

/// How the vendor's configuration of a launch begins.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct cudaLaunchConfig_t {
    grid: dim3,
    block: dim3,
    shared: usize,
    stream: Pointer,
}

/// A handle that goes to other processes.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct cudaIpcMemHandle_t([u8; 64]);

/// The event, of which nothing is known from now on.
fn works(event: Pointer) -> Varying<c_void> {
    recorder::works(event.addr() as u64);
    Varying(event)
}

calls! {
    Runtime;
    @AtOnce fn cudaSetDevice(device: c_int) [device = device];
    fn cudaMalloc(to: *mut Pointer, bytes: usize) [bytes = bytes] -> [address = at(to)];
    fn cudaFree(address: Pointer) [address = address];
    fn cudaMallocAsync(to: *mut Pointer, bytes: usize, stream: Pointer)
        [bytes = bytes, stream = stream] -> [address = at(to)];
    fn cudaFreeAsync(address: Pointer, stream: Pointer) [address = address, stream = stream];
    fn cudaStreamCreate(to: *mut Pointer) [flags = 0_u32] -> [stream = at(to)];
    fn cudaStreamCreateWithFlags(to: *mut Pointer, flags: u32) [flags = flags] -> [stream = at(to)];
    fn cudaStreamCreateWithPriority(to: *mut Pointer, flags: u32, priority: c_int)
        [flags = flags] -> [stream = at(to)];
    fn cudaStreamDestroy(stream: Pointer) [stream = stream];
    fn cudaStreamSynchronize(stream: Pointer) [stream = stream];
    @Stream fn cudaStreamQuery(stream: Pointer) [stream = stream];
    fn cudaDeviceSynchronize() [];
    // Of an event that is made, its destruction says enough: until then the address is this one's.
    @AtOnce fn cudaEventDestroy(event: Pointer) [event = Varying(event)];
    // It has a call site, which may be longer than a shape that leaves an address open.
    fn cudaEventSynchronize(event: Pointer) [event = event];
    @Event fn cudaEventQuery(event: Pointer) [event = Varying(event)];
    @AtOnce fn cudaEventRecord(event: Pointer, stream: Pointer) [event = works(event), stream = stream];
    @AtOnce fn cudaEventRecordWithFlags(event: Pointer, stream: Pointer, flags: u32)
        [event = works(event), stream = stream];
    @AtOnce fn cudaStreamWaitEvent(stream: Pointer, event: Pointer, flags: u32) [stream = stream, event = Varying(event)];
    fn cudaMemcpy(to: Pointer, from: *const c_void, bytes: usize, kind: c_int)
        [to = to, from = from, bytes = bytes, kind = kind];
    fn cudaMemcpyAsync(to: Pointer, from: *const c_void, bytes: usize, kind: c_int, stream: Pointer)
        [to = to, from = from, bytes = bytes, kind = kind, stream = stream];
    fn cudaMemset(address: Pointer, value: c_int, bytes: usize)
        [address = address, value = value, bytes = bytes];
    fn cudaMemsetAsync(address: Pointer, value: c_int, bytes: usize, stream: Pointer)
        [address = address, value = value, bytes = bytes, stream = stream];
    @Launch fn cudaLaunchKernel(
        function: *const c_void, grid: dim3, block: dim3, arguments: *mut Pointer, shared: usize,
        stream: Pointer,
    ) [function = function, stream = stream];
    @Launch fn cudaLaunchKernelExC(
        config: *const cudaLaunchConfig_t, function: *const c_void, arguments: *mut Pointer,
    ) [function = function, stream = at(config).map(|config| config.stream)];
    fn cudaLaunchHostFunc(stream: Pointer, function: Pointer, data: Pointer) [stream = stream];
    fn cudaStreamBeginCapture(stream: Pointer, mode: c_int) [stream = stream, mode = mode];
    fn cudaStreamEndCapture(stream: Pointer, to: *mut Pointer) [stream = stream] -> [graph = at(to)];
    // CUDA 11 has five parameters, later ones three.
    fn cudaGraphInstantiate(to: *mut Pointer, graph: Pointer, third: usize, fourth: usize, fifth: usize)
        [graph = graph] -> [executable = at(to)];
    fn cudaGraphInstantiateWithFlags(to: *mut Pointer, graph: Pointer, flags: u64)
        [graph = graph] -> [executable = at(to)];
    fn cudaGraphLaunch(executable: Pointer, stream: Pointer) [executable = executable, stream = stream];
    fn cudaGraphExecDestroy(executable: Pointer) [executable = executable];
    fn cudaGraphDestroy(graph: Pointer) [graph = graph];
    fn cudaIpcGetMemHandle(to: *mut cudaIpcMemHandle_t, address: Pointer)
        [address = address] -> [handle = digest_at(to, 1)];
    fn cudaIpcOpenMemHandle(to: *mut Pointer, handle: cudaIpcMemHandle_t, flags: u32)
        [handle = digest_at(&raw const handle, 1)] -> [address = at(to)];
    fn cudaIpcCloseMemHandle(address: Pointer) [address = address];
}
