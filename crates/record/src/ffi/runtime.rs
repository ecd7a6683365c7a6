//! The calls of the CUDA runtime.
//!
//! Not here: what a wrapper does (`calls.rs`); `cudaGetDriverEntryPoint` (`lookup.rs`).

use libc::{c_int, c_void};
use rankcheck_recording::{Returns, Signature};

use super::calls::{
    self, Form, Manner, NumericAddress, Pointer, ToField, Varying, WrappedCall, at, calls, digest_at,
    exported, form, manner, recorded_call, recorded_name, returned,
};
use super::driver::{exported_handle, imported_handle};
use super::find::Library;
use super::host_function;
use super::strips::{self, AllocationField, CopySide};
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

/// A handle of memory or of an event that goes to other processes.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct cudaIpcHandle([u8; 64]);

/// The legacy default stream, on which copies run that name no stream.
const DEFAULT_STREAM: Pointer = std::ptr::null_mut();

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
        [bytes = bytes, stream = stream] -> [address = at(to)] also cudaMallocAsync_ptsz;
    fn cudaMallocFromPoolAsync(to: *mut Pointer, bytes: usize, pool: Pointer, stream: Pointer)
        [bytes = bytes, pool = pool, stream = stream] -> [address = at(to)] also cudaMallocFromPoolAsync_ptsz;
    fn cudaFreeAsync(address: Pointer, stream: Pointer)
        [address = address, stream = stream] also cudaFreeAsync_ptsz;
    fn cudaMemPoolImportPointer(to: *mut Pointer, pool: Pointer, from: Pointer)
        [pool = pool, handle = digest_at(from.cast::<[u8; 64]>(), 1)] -> [address = at(to)];
    fn cudaMemPoolExportPointer(to: Pointer, address: Pointer)
        [address = address] -> [handle = digest_at(to.cast::<[u8; 64]>(), 1)];
    fn cudaMemPoolExportToShareableHandle(to: Pointer, pool: Pointer, kind: u32, flags: u32)
        [pool = pool] -> [handle = exported_handle(to, kind.into())];
    fn cudaMemPoolImportFromShareableHandle(to: *mut Pointer, from: Pointer, kind: u32, flags: u32)
        [handle = imported_handle(from, kind.into())] -> [pool = at(to)];
    fn cudaStreamCreate(to: *mut Pointer) [flags = 0_u32] -> [stream = at(to)];
    fn cudaStreamCreateWithFlags(to: *mut Pointer, flags: u32) [flags = flags] -> [stream = at(to)];
    fn cudaStreamCreateWithPriority(to: *mut Pointer, flags: u32, priority: c_int)
        [flags = flags] -> [stream = at(to)];
    fn cudaStreamDestroy(stream: Pointer) [stream = stream];
    fn cudaStreamSynchronize(stream: Pointer) [stream = stream] also cudaStreamSynchronize_ptsz;
    @Stream fn cudaStreamQuery(stream: Pointer) [stream = stream] also cudaStreamQuery_ptsz;
    fn cudaDeviceSynchronize() [];
    // Of an event that is made, its destruction says enough: until then the address is this one's.
    @AtOnce fn cudaEventDestroy(event: Pointer) [event = Varying(event)];
    // It has a call site, which may be longer than a shape that leaves an address open.
    fn cudaEventSynchronize(event: Pointer) [event = event];
    @Event fn cudaEventQuery(event: Pointer) [event = Varying(event)];
    @AtOnce fn cudaEventRecord(event: Pointer, stream: Pointer)
        [event = works(event), stream = stream] also cudaEventRecord_ptsz;
    @AtOnce fn cudaEventRecordWithFlags(event: Pointer, stream: Pointer, flags: u32)
        [event = works(event), stream = stream, flags = flags] also cudaEventRecordWithFlags_ptsz;
    @AtOnce fn cudaStreamWaitEvent(stream: Pointer, event: Pointer, flags: u32)
        [stream = stream, event = Varying(event)] also cudaStreamWaitEvent_ptsz;
    fn cudaMemcpy(to: Pointer, from: *const c_void, bytes: usize, kind: c_int)
        [to = to, from = from, bytes = bytes, kind = kind, stream = DEFAULT_STREAM] also cudaMemcpy_ptds;
    fn cudaMemcpyAsync(to: Pointer, from: *const c_void, bytes: usize, kind: c_int, stream: Pointer)
        [to = to, from = from, bytes = bytes, kind = kind, stream = stream] also cudaMemcpyAsync_ptsz;
    fn cudaMemcpyPeer(to: Pointer, there: c_int, from: *const c_void, here: c_int, bytes: usize)
        [to = to, from = from, bytes = bytes, stream = DEFAULT_STREAM];
    fn cudaMemcpyPeerAsync(
        to: Pointer, there: c_int, from: *const c_void, here: c_int, bytes: usize, stream: Pointer,
    ) [to = to, from = from, bytes = bytes, stream = stream];
    // Where a symbol lies is nobody's but the program's: no call of it names that memory.
    fn cudaMemcpyToSymbol(symbol: *const c_void, from: *const c_void, bytes: usize, offset: usize, kind: c_int)
        [symbol = symbol, from = from, bytes = bytes, kind = kind, stream = DEFAULT_STREAM]
        also cudaMemcpyToSymbol_ptds;
    fn cudaMemcpyToSymbolAsync(
        symbol: *const c_void, from: *const c_void, bytes: usize, offset: usize, kind: c_int, stream: Pointer,
    ) [symbol = symbol, from = from, bytes = bytes, kind = kind, stream = stream]
        also cudaMemcpyToSymbolAsync_ptsz;
    fn cudaMemcpyFromSymbol(to: Pointer, symbol: *const c_void, bytes: usize, offset: usize, kind: c_int)
        [to = to, symbol = symbol, bytes = bytes, kind = kind, stream = DEFAULT_STREAM]
        also cudaMemcpyFromSymbol_ptds;
    fn cudaMemcpyFromSymbolAsync(
        to: Pointer, symbol: *const c_void, bytes: usize, offset: usize, kind: c_int, stream: Pointer,
    ) [to = to, symbol = symbol, bytes = bytes, kind = kind, stream = stream]
        also cudaMemcpyFromSymbolAsync_ptsz;
    fn cudaMemset(address: Pointer, value: c_int, bytes: usize)
        [address = address, value = value, bytes = bytes, stream = DEFAULT_STREAM] also cudaMemset_ptds;
    fn cudaMemsetAsync(address: Pointer, value: c_int, bytes: usize, stream: Pointer)
        [address = address, value = value, bytes = bytes, stream = stream] also cudaMemsetAsync_ptsz;
    // What compilers of CUDA 13 and later call in its place has another name.
    @Launch fn cudaLaunchKernel(
        function: *const c_void, grid: dim3, block: dim3, arguments: *mut Pointer, shared: usize,
        stream: Pointer,
    ) [function = function, stream = stream]
        also cudaLaunchKernel_ptsz, __cudaLaunchKernel, __cudaLaunchKernel_ptsz;
    @Launch fn cudaLaunchKernelExC(
        config: *const cudaLaunchConfig_t, function: *const c_void, arguments: *mut Pointer,
    ) [function = function, stream = at(config).map(|config| config.stream)] also cudaLaunchKernelExC_ptsz;
    @Launch fn cudaLaunchCooperativeKernel(
        function: *const c_void, grid: dim3, block: dim3, arguments: *mut Pointer, shared: usize,
        stream: Pointer,
    ) [function = function, stream = stream] also cudaLaunchCooperativeKernel_ptsz;
    @Launch fn cudaLaunchCooperativeKernelMultiDevice(list: Pointer, devices: u32, flags: u32) [devices = devices];
    @AtOnce fn cudaLaunchHostFunc(stream: Pointer, function: Pointer, data: Pointer)
        [stream = stream, function = host_function::watched(F::PER_THREAD, stream, &mut function, &mut data)] also cudaLaunchHostFunc_ptsz;
    @AtOnce fn cudaStreamAddCallback(stream: Pointer, function: Pointer, data: Pointer, flags: u32)
        [stream = stream, function = host_function::watched_callback(&mut function, &mut data)] also cudaStreamAddCallback_ptsz;
    fn cudaStreamBeginCapture(stream: Pointer, mode: c_int)
        [stream = stream, mode = mode] also cudaStreamBeginCapture_ptsz;
    fn cudaStreamEndCapture(stream: Pointer, to: *mut Pointer)
        [stream = stream] -> [graph = at(to)] also cudaStreamEndCapture_ptsz;
    // CUDA 11 has five parameters, later ones three.
    fn cudaGraphInstantiate(to: *mut Pointer, graph: Pointer, third: usize, fourth: usize, fifth: usize)
        [graph = graph] -> [executable = at(to)] also cudaGraphInstantiateWithParams, cudaGraphInstantiateWithParams_ptsz;
    fn cudaGraphInstantiateWithFlags(to: *mut Pointer, graph: Pointer, flags: u64)
        [graph = graph] -> [executable = at(to)];
    fn cudaGraphExecUpdate(executable: Pointer, graph: Pointer, third: usize, fourth: usize)
        [executable = executable, graph = graph];
    fn cudaGraphLaunch(executable: Pointer, stream: Pointer)
        [executable = executable, stream = stream] also cudaGraphLaunch_ptsz;
    fn cudaGraphExecDestroy(executable: Pointer) [executable = executable];
    fn cudaGraphDestroy(graph: Pointer) [graph = graph];
    // Graphs that a program puts together.
    fn cudaGraphCreate(to: *mut Pointer, flags: u32) [] -> [graph = at(to)];
    fn cudaGraphClone(to: *mut Pointer, graph: Pointer) [from = graph] -> [graph = at(to)];
    fn cudaGraphAddKernelNode(to: *mut Pointer, graph: Pointer, behind: *const Pointer, count: usize, parameters: *const c_void)
        [graph = graph, behind = strips::nodes(behind, count)] -> [node = at(to)] also cudaGraphAddEmptyNode;
    fn cudaGraphAddNode(to: *mut Pointer, graph: Pointer, behind: *const Pointer, fourth: usize, fifth: usize, sixth: usize)
        [graph = graph, behind = strips::nodes(behind, strips::node_parameters(Library::Runtime, [fourth, fifth, sixth]).0), kind = strips::node_parameters(Library::Runtime, [fourth, fifth, sixth]).1.map(|it| it.kind()), reads = strips::node_parameters(Library::Runtime, [fourth, fifth, sixth]).1.and_then(|it| it.strips(CopySide::From)), writes = strips::node_parameters(Library::Runtime, [fourth, fifth, sixth]).1.and_then(|it| it.strips(CopySide::To)), child = strips::node_parameters(Library::Runtime, [fourth, fifth, sixth]).1.and_then(|it| it.child()), event = strips::node_parameters(Library::Runtime, [fourth, fifth, sixth]).1.and_then(|it| it.event()), address = strips::node_parameters(Library::Runtime, [fourth, fifth, sixth]).1.and_then(|it| it.address()), bytes = strips::node_parameters(Library::Runtime, [fourth, fifth, sixth]).1.and_then(|it| it.bytes())] -> [node = at(to), address = strips::node_parameters(Library::Runtime, [fourth, fifth, sixth]).1.and_then(|it| it.address())] also cudaGraphAddNode_v2;
    fn cudaGraphAddMemcpyNode(to: *mut Pointer, graph: Pointer, behind: *const Pointer, count: usize, copy: *const c_void)
        [graph = graph, behind = strips::nodes(behind, count), reads = strips::runtime_3d(copy, CopySide::From), writes = strips::runtime_3d(copy, CopySide::To)] -> [node = at(to)];
    fn cudaGraphAddMemcpyNode1D(to: *mut Pointer, graph: Pointer, behind: *const Pointer, count: usize, target: Pointer, from: *const c_void, bytes: usize, way: c_int)
        [graph = graph, behind = strips::nodes(behind, count), reads = strips::rows(from.addr() as u64, bytes as u64, 0, 1), writes = strips::rows(target.addr() as u64, bytes as u64, 0, 1)] -> [node = at(to)];
    fn cudaGraphAddMemcpyNodeToSymbol(to: *mut Pointer, graph: Pointer, behind: *const Pointer, count: usize, symbol: *const c_void, from: *const c_void, bytes: usize, offset: usize, way: c_int)
        [graph = graph, behind = strips::nodes(behind, count), reads = strips::rows(from.addr() as u64, bytes as u64, 0, 1)] -> [node = at(to)];
    fn cudaGraphAddMemcpyNodeFromSymbol(to: *mut Pointer, graph: Pointer, behind: *const Pointer, count: usize, target: Pointer, symbol: *const c_void, bytes: usize, offset: usize, way: c_int)
        [graph = graph, behind = strips::nodes(behind, count), writes = strips::rows(target.addr() as u64, bytes as u64, 0, 1)] -> [node = at(to)];
    fn cudaGraphAddMemsetNode(to: *mut Pointer, graph: Pointer, behind: *const Pointer, count: usize, fill: *const c_void)
        [graph = graph, behind = strips::nodes(behind, count), writes = strips::filled(fill)] -> [node = at(to)];
    fn cudaGraphAddHostNode(to: *mut Pointer, graph: Pointer, behind: *const Pointer, count: usize, function: *const c_void) [graph = graph, behind = strips::nodes(behind, count)] -> [node = at(to)];
    fn cudaGraphAddEventRecordNode(to: *mut Pointer, graph: Pointer, behind: *const Pointer, count: usize, event: Pointer) [graph = graph, behind = strips::nodes(behind, count), event = event] -> [node = at(to)];
    fn cudaGraphAddEventWaitNode(to: *mut Pointer, graph: Pointer, behind: *const Pointer, count: usize, event: Pointer) [graph = graph, behind = strips::nodes(behind, count), event = event] -> [node = at(to)];
    fn cudaGraphAddMemAllocNode(to: *mut Pointer, graph: Pointer, behind: *const Pointer, count: usize, allocation: Pointer)
        [graph = graph, behind = strips::nodes(behind, count), bytes = strips::allocation(allocation, AllocationField::Bytes)]
        -> [node = at(to), address = strips::allocation(allocation, AllocationField::Address).map(NumericAddress)];
    fn cudaGraphAddMemFreeNode(to: *mut Pointer, graph: Pointer, behind: *const Pointer, count: usize, address: Pointer) [graph = graph, behind = strips::nodes(behind, count), address = address] -> [node = at(to)];
    fn cudaGraphAddChildGraphNode(to: *mut Pointer, graph: Pointer, behind: *const Pointer, count: usize, child: Pointer)
        [graph = graph, behind = strips::nodes(behind, count), child = child] -> [node = at(to)];
    fn cudaGraphAddExternalSemaphoresSignalNode(to: *mut Pointer, graph: Pointer, behind: *const Pointer, count: usize, parameters: *const c_void)
        [graph = graph, behind = strips::nodes(behind, count)] -> [node = at(to)] also cudaGraphAddExternalSemaphoresWaitNode;
    fn cudaGraphAddDependencies(
        graph: Pointer, from: *const Pointer, to: *const Pointer, fourth: usize, fifth: usize,
    ) [graph = graph, from = strips::ends(from, fourth, fifth), to = strips::ends(to, fourth, fifth)]
        also cudaGraphAddDependencies_v2;
    fn cudaGraphRemoveDependencies(graph: Pointer, from: *const Pointer, to: *const Pointer, fourth: usize, fifth: usize)
        [graph = graph] also cudaGraphRemoveDependencies_v2;
    fn cudaGraphDestroyNode(node: Pointer) [node = node];
    // Nodes that change. What a kernel gets is not recorded anyway.
    fn cudaGraphExecNodeSetParams(executable: Pointer, node: Pointer, parameters: *const c_void)
        [executable = executable, node = node, kind = strips::parameters_at(Library::Runtime, parameters).map(|it| it.kind()), reads = strips::parameters_at(Library::Runtime, parameters).and_then(|it| it.strips(CopySide::From)), writes = strips::parameters_at(Library::Runtime, parameters).and_then(|it| it.strips(CopySide::To)), child = strips::parameters_at(Library::Runtime, parameters).and_then(|it| it.child()), event = strips::parameters_at(Library::Runtime, parameters).and_then(|it| it.event()), address = strips::parameters_at(Library::Runtime, parameters).and_then(|it| it.address()), bytes = strips::parameters_at(Library::Runtime, parameters).and_then(|it| it.bytes())];
    fn cudaGraphExecMemcpyNodeSetParams(executable: Pointer, node: Pointer, copy: *const c_void)
        [executable = executable, node = node, reads = strips::runtime_3d(copy, CopySide::From), writes = strips::runtime_3d(copy, CopySide::To)];
    fn cudaGraphExecMemcpyNodeSetParams1D(executable: Pointer, node: Pointer, target: Pointer, from: *const c_void, bytes: usize, way: c_int)
        [executable = executable, node = node, reads = strips::rows(from.addr() as u64, bytes as u64, 0, 1), writes = strips::rows(target.addr() as u64, bytes as u64, 0, 1)];
    fn cudaGraphExecMemcpyNodeSetParamsToSymbol(executable: Pointer, node: Pointer, symbol: *const c_void, from: *const c_void, bytes: usize, offset: usize, way: c_int)
        [executable = executable, node = node, reads = strips::rows(from.addr() as u64, bytes as u64, 0, 1)];
    fn cudaGraphExecMemcpyNodeSetParamsFromSymbol(executable: Pointer, node: Pointer, target: Pointer, symbol: *const c_void, bytes: usize, offset: usize, way: c_int)
        [executable = executable, node = node, writes = strips::rows(target.addr() as u64, bytes as u64, 0, 1)];
    fn cudaGraphExecMemsetNodeSetParams(executable: Pointer, node: Pointer, fill: *const c_void)
        [executable = executable, node = node, writes = strips::filled(fill)];
    fn cudaGraphExecEventRecordNodeSetEvent(executable: Pointer, node: Pointer, event: Pointer) [executable = executable, node = node, event = event];
    fn cudaGraphExecEventWaitNodeSetEvent(executable: Pointer, node: Pointer, event: Pointer) [executable = executable, node = node, event = event];
    fn cudaGraphExecChildGraphNodeSetParams(executable: Pointer, node: Pointer, child: Pointer) [executable = executable, node = node, child = child];
    fn cudaGraphNodeSetParams(node: Pointer, parameters: *const c_void)
        [node = node, kind = strips::parameters_at(Library::Runtime, parameters).map(|it| it.kind()), reads = strips::parameters_at(Library::Runtime, parameters).and_then(|it| it.strips(CopySide::From)), writes = strips::parameters_at(Library::Runtime, parameters).and_then(|it| it.strips(CopySide::To)), child = strips::parameters_at(Library::Runtime, parameters).and_then(|it| it.child()), event = strips::parameters_at(Library::Runtime, parameters).and_then(|it| it.event()), address = strips::parameters_at(Library::Runtime, parameters).and_then(|it| it.address()), bytes = strips::parameters_at(Library::Runtime, parameters).and_then(|it| it.bytes())];
    fn cudaGraphMemcpyNodeSetParams(node: Pointer, copy: *const c_void)
        [node = node, reads = strips::runtime_3d(copy, CopySide::From), writes = strips::runtime_3d(copy, CopySide::To)];
    fn cudaGraphMemcpyNodeSetParams1D(node: Pointer, target: Pointer, from: *const c_void, bytes: usize, way: c_int)
        [node = node, reads = strips::rows(from.addr() as u64, bytes as u64, 0, 1), writes = strips::rows(target.addr() as u64, bytes as u64, 0, 1)];
    fn cudaGraphMemcpyNodeSetParamsToSymbol(node: Pointer, symbol: *const c_void, from: *const c_void, bytes: usize, offset: usize, way: c_int)
        [node = node, reads = strips::rows(from.addr() as u64, bytes as u64, 0, 1)];
    fn cudaGraphMemcpyNodeSetParamsFromSymbol(node: Pointer, target: Pointer, symbol: *const c_void, bytes: usize, offset: usize, way: c_int)
        [node = node, writes = strips::rows(target.addr() as u64, bytes as u64, 0, 1)];
    fn cudaGraphMemsetNodeSetParams(node: Pointer, fill: *const c_void)
        [node = node, writes = strips::filled(fill)];
    fn cudaGraphEventRecordNodeSetEvent(node: Pointer, event: Pointer) [node = node, event = event];
    fn cudaGraphEventWaitNodeSetEvent(node: Pointer, event: Pointer) [node = node, event = event];
    fn cudaStreamBeginCaptureToGraph(stream: Pointer, graph: Pointer, behind: *const Pointer, edges: *const c_void, count: usize, mode: c_int)
        [stream = stream, mode = mode, graph = graph, behind = strips::nodes(behind, count)] also cudaStreamBeginCaptureToGraph_ptsz;
    // Copies and fills of rows.
    fn cudaMemcpy2D(target: Pointer, to_pitch: usize, from: *const c_void, from_pitch: usize, width: usize, height: usize, kind: c_int)
        [reads = strips::rows(from.addr() as u64, width as u64, from_pitch as u64, height as u64), writes = strips::rows(target.addr() as u64, width as u64, to_pitch as u64, height as u64), kind = kind, stream = DEFAULT_STREAM] also cudaMemcpy2D_ptds;
    fn cudaMemcpy2DAsync(target: Pointer, to_pitch: usize, from: *const c_void, from_pitch: usize, width: usize, height: usize, kind: c_int, stream: Pointer)
        [reads = strips::rows(from.addr() as u64, width as u64, from_pitch as u64, height as u64), writes = strips::rows(target.addr() as u64, width as u64, to_pitch as u64, height as u64), kind = kind, stream = stream] also cudaMemcpy2DAsync_ptsz;
    fn cudaMemcpy3D(copy: *const c_void)
        [reads = strips::runtime_3d(copy, CopySide::From), writes = strips::runtime_3d(copy, CopySide::To), stream = DEFAULT_STREAM] also cudaMemcpy3D_ptds;
    fn cudaMemcpy3DPeer(copy: *const c_void)
        [reads = strips::runtime_3d_peer(copy, CopySide::From), writes = strips::runtime_3d_peer(copy, CopySide::To), stream = DEFAULT_STREAM] also cudaMemcpy3DPeer_ptds;
    fn cudaMemcpy3DAsync(copy: *const c_void, stream: Pointer)
        [reads = strips::runtime_3d(copy, CopySide::From), writes = strips::runtime_3d(copy, CopySide::To), stream = stream] also cudaMemcpy3DAsync_ptsz;
    fn cudaMemcpy3DPeerAsync(copy: *const c_void, stream: Pointer)
        [reads = strips::runtime_3d_peer(copy, CopySide::From), writes = strips::runtime_3d_peer(copy, CopySide::To), stream = stream] also cudaMemcpy3DPeerAsync_ptsz;
    fn cudaMemset2D(address: Pointer, pitch: usize, value: c_int, width: usize, height: usize)
        [writes = strips::rows(address.addr() as u64, width as u64, pitch as u64, height as u64), stream = DEFAULT_STREAM] also cudaMemset2D_ptds;
    fn cudaMemset2DAsync(address: Pointer, pitch: usize, value: c_int, width: usize, height: usize, stream: Pointer)
        [writes = strips::rows(address.addr() as u64, width as u64, pitch as u64, height as u64), stream = stream] also cudaMemset2DAsync_ptsz;
    // Memory that moves by itself, and pitched memory.
    fn cudaMallocManaged(to: *mut Pointer, bytes: usize, flags: u32) [bytes = bytes] -> [address = at(to)];
    fn cudaMallocPitch(to: *mut Pointer, pitch: *mut usize, width: usize, rows: usize)
        [rows = rows] -> [address = at(to), bytes = at(pitch).map(|pitch| (pitch as u64).saturating_mul(rows as u64))];
    fn cudaIpcGetMemHandle(to: *mut cudaIpcHandle, address: Pointer)
        [address = address] -> [handle = digest_at(to, 1)];
    fn cudaIpcOpenMemHandle(to: *mut Pointer, handle: cudaIpcHandle, flags: u32)
        [handle = digest_at(&raw const handle, 1)] -> [address = at(to)];
    fn cudaIpcCloseMemHandle(address: Pointer) [address = address];
    fn cudaIpcGetEventHandle(to: *mut cudaIpcHandle, event: Pointer) [event = event] -> [handle = digest_at(to, 1)];
    fn cudaIpcOpenEventHandle(to: *mut Pointer, handle: cudaIpcHandle)
        [handle = digest_at(&raw const handle, 1)] -> [event = at(to)];
}
