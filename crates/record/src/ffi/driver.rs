//! The calls of the CUDA driver.
//!
//! Not here: what a wrapper does (`calls.rs`); how programs come by them (`lookup.rs`).

use libc::{c_int, c_void};
use rankcheck_recording::{Returns, Signature};

use super::calls::{
    self, Form, Manner, NumericAddress, Pointer, ToField, Varying, WrappedCall, at, calls, digest_at,
    exported, form, manner, recorded_call, recorded_name, returned,
};
use super::find::Library;
use super::host_function;
use super::shared_file;
use super::strips::{self, AllocationField, CopySide};
use crate::recorder::{self, CallResult, CallSignatures, Polled, Where};

/// How the vendor's configuration of a launch begins.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct CUlaunchConfig {
    grid: [u32; 3],
    block: [u32; 3],
    shared: u32,
    stream: Pointer,
}

/// A handle of memory or of an event that goes to other processes.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct CUipcHandle([u8; 64]);

/// The event, of which nothing is known from now on.
fn works(event: Pointer) -> Varying<c_void> {
    recorder::works(event.addr() as u64);
    Varying(event)
}

/// As many bytes as so many elements have.
fn elements(count: usize, bytes: usize) -> u64 {
    (count as u64).saturating_mul(bytes as u64)
}

/// The legacy default stream, on which copies run that name no stream.
const DEFAULT_STREAM: Pointer = std::ptr::null_mut();

/// Kinds of handles that other processes can open.
const FILE_DESCRIPTOR: u64 = 1;
const FABRIC: u64 = 8;

/// What an exported handle of memory or of a pool is to all processes that it comes to.
///
/// # Safety
///
/// `to` is what an export of this kind wrote.
pub(super) unsafe fn exported_handle(to: *const c_void, kind: u64) -> Option<[u8; 16]> {
    match kind {
        // SAFETY: an export of this kind writes a number.
        FILE_DESCRIPTOR => shared_file::mark(unsafe { at(to.cast::<c_int>()) }?),
        // SAFETY: an export of this kind writes 64 bytes.
        FABRIC => unsafe { digest_at(to.cast::<[u8; 64]>(), 1) },
        _ => None,
    }
}

/// # Safety
///
/// `from` is what an import of this kind wants.
pub(super) unsafe fn imported_handle(from: *const c_void, kind: u64) -> Option<[u8; 16]> {
    match kind {
        // A descriptor is passed as a pointer.
        FILE_DESCRIPTOR => shared_file::marked(c_int::try_from(from.addr()).ok()?),
        // SAFETY: an import of this kind wants 64 bytes.
        FABRIC => unsafe { digest_at(from.cast::<[u8; 64]>(), 1) },
        _ => None,
    }
}

calls! {
    Driver;
    // Which device is current, of a program that has the runtime linked in or does without.
    fn cuDevicePrimaryCtxRetain(to: *mut Pointer, device: c_int) [device = device] -> [context = at(to)];
    fn cuCtxCreate(to: *mut Pointer, flags: u32, device: c_int)
        [device = device] -> [context = at(to)] also cuCtxCreate_v2;
    @AtOnce fn cuCtxSetCurrent(context: Pointer) [context = context];
    @AtOnce fn cuCtxPushCurrent(context: Pointer) [context = context] also cuCtxPushCurrent_v2;
    fn cuCtxPopCurrent(to: *mut Pointer) [] also cuCtxPopCurrent_v2;
    // Memory.
    fn cuMemAlloc(to: *mut u64, bytes: usize)
        [bytes = bytes] -> [address = at(to).map(NumericAddress)] also cuMemAlloc_v2;
    fn cuMemFree(address: u64) [address = NumericAddress(address)] also cuMemFree_v2;
    fn cuMemAllocAsync(to: *mut u64, bytes: usize, stream: Pointer)
        [bytes = bytes, stream = stream] -> [address = at(to).map(NumericAddress)] also cuMemAllocAsync_ptsz;
    fn cuMemAllocFromPoolAsync(to: *mut u64, bytes: usize, pool: Pointer, stream: Pointer)
        [bytes = bytes, pool = pool, stream = stream] -> [address = at(to).map(NumericAddress)]
        also cuMemAllocFromPoolAsync_ptsz;
    fn cuMemFreeAsync(address: u64, stream: Pointer)
        [address = NumericAddress(address), stream = stream] also cuMemFreeAsync_ptsz;
    fn cuMemPoolImportPointer(to: *mut u64, pool: Pointer, from: Pointer)
        [pool = pool, handle = digest_at(from.cast::<[u8; 64]>(), 1)] -> [address = at(to).map(NumericAddress)];
    fn cuMemPoolExportPointer(to: Pointer, address: u64)
        [address = NumericAddress(address)] -> [handle = digest_at(to.cast::<[u8; 64]>(), 1)];
    fn cuMemPoolExportToShareableHandle(to: Pointer, pool: Pointer, kind: u64, flags: u64)
        [pool = pool] -> [handle = exported_handle(to, kind & 0xffff_ffff)];
    fn cuMemPoolImportFromShareableHandle(to: *mut Pointer, from: Pointer, kind: u64, flags: u64)
        [handle = imported_handle(from, kind & 0xffff_ffff)] -> [pool = at(to)];
    fn cuMemCreate(to: *mut u64, bytes: usize, properties: Pointer, flags: u64)
        [bytes = bytes] -> [memory = at(to).map(NumericAddress)];
    fn cuMemRelease(handle: u64) [memory = NumericAddress(handle)];
    fn cuMemAddressReserve(to: *mut u64, bytes: usize, alignment: usize, wish: u64, flags: u64)
        [bytes = bytes] -> [address = at(to).map(NumericAddress)];
    fn cuMemAddressFree(address: u64, bytes: usize) [address = NumericAddress(address), bytes = bytes];
    fn cuMemMap(address: u64, bytes: usize, offset: usize, handle: u64, flags: u64)
        [address = NumericAddress(address), bytes = bytes, offset = offset, memory = NumericAddress(handle)];
    fn cuMemUnmap(address: u64, bytes: usize) [address = NumericAddress(address), bytes = bytes];
    fn cuMemExportToShareableHandle(to: Pointer, handle: u64, kind: u64, flags: u64)
        [memory = NumericAddress(handle)] -> [handle = exported_handle(to, kind & 0xffff_ffff)];
    fn cuMemImportFromShareableHandle(to: *mut u64, from: Pointer, kind: u64)
        [handle = imported_handle(from, kind & 0xffff_ffff)] -> [memory = at(to).map(NumericAddress)];
    fn cuIpcGetMemHandle(to: *mut CUipcHandle, address: u64)
        [address = NumericAddress(address)] -> [handle = digest_at(to, 1)];
    fn cuIpcOpenMemHandle(to: *mut u64, handle: CUipcHandle, flags: u32)
        [handle = digest_at(&raw const handle, 1)] -> [address = at(to).map(NumericAddress)]
        also cuIpcOpenMemHandle_v2;
    fn cuIpcCloseMemHandle(address: u64) [address = NumericAddress(address)];
    fn cuIpcGetEventHandle(to: *mut CUipcHandle, event: Pointer) [event = event] -> [handle = digest_at(to, 1)];
    fn cuIpcOpenEventHandle(to: *mut Pointer, handle: CUipcHandle)
        [handle = digest_at(&raw const handle, 1)] -> [event = at(to)];
    // Streams and events.
    fn cuStreamCreate(to: *mut Pointer, flags: u32) [flags = flags] -> [stream = at(to)];
    fn cuStreamCreateWithPriority(to: *mut Pointer, flags: u32, priority: c_int)
        [flags = flags] -> [stream = at(to)];
    fn cuGreenCtxStreamCreate(to: *mut Pointer, context: Pointer, flags: u32, priority: c_int)
        [flags = flags] -> [stream = at(to)];
    fn cuStreamDestroy(stream: Pointer) [stream = stream] also cuStreamDestroy_v2;
    fn cuStreamSynchronize(stream: Pointer) [stream = stream] also cuStreamSynchronize_ptsz;
    @Stream fn cuStreamQuery(stream: Pointer) [stream = stream] also cuStreamQuery_ptsz;
    // A later version is told the context.
    fn cuCtxSynchronize(context: Pointer) [] also cuCtxSynchronize_v2;
    @AtOnce fn cuEventDestroy(event: Pointer) [event = Varying(event)] also cuEventDestroy_v2;
    fn cuEventSynchronize(event: Pointer) [event = event];
    @Event fn cuEventQuery(event: Pointer) [event = Varying(event)];
    @AtOnce fn cuEventRecord(event: Pointer, stream: Pointer)
        [event = works(event), stream = stream] also cuEventRecord_ptsz;
    @AtOnce fn cuEventRecordWithFlags(event: Pointer, stream: Pointer, flags: u32)
        [event = works(event), stream = stream, flags = flags] also cuEventRecordWithFlags_ptsz;
    @AtOnce fn cuStreamWaitEvent(stream: Pointer, event: Pointer, flags: u32)
        [stream = stream, event = Varying(event)] also cuStreamWaitEvent_ptsz;
    fn cuStreamWriteValue32(stream: Pointer, address: u64, value: u32, flags: u32)
        [stream = stream, address = NumericAddress(address), value = value, flags = flags]
        also cuStreamWriteValue32_v2, cuStreamWriteValue32_v2_ptsz;
    fn cuStreamWaitValue32(stream: Pointer, address: u64, value: u32, flags: u32)
        [stream = stream, address = NumericAddress(address), value = value, flags = flags]
        also cuStreamWaitValue32_v2, cuStreamWaitValue32_v2_ptsz;
    fn cuStreamWriteValue64(stream: Pointer, address: u64, value: u64, flags: u32)
        [stream = stream, address = NumericAddress(address), value = value, flags = flags]
        also cuStreamWriteValue64_v2, cuStreamWriteValue64_v2_ptsz;
    fn cuStreamWaitValue64(stream: Pointer, address: u64, value: u64, flags: u32)
        [stream = stream, address = NumericAddress(address), value = value, flags = flags]
        also cuStreamWaitValue64_v2, cuStreamWaitValue64_v2_ptsz;
    fn cuStreamBatchMemOp(stream: Pointer, operations: u32, list: Pointer, flags: u32)
        [stream = stream, operations = operations] also cuStreamBatchMemOp_v2, cuStreamBatchMemOp_v2_ptsz;
    // Copies and fills. Those without a stream run on the default one.
    fn cuMemcpy(to: u64, from: u64, bytes: usize)
        [to = NumericAddress(to), from = NumericAddress(from), bytes = bytes, stream = DEFAULT_STREAM]
        also cuMemcpy_ptds;
    fn cuMemcpyHtoD(to: u64, from: Pointer, bytes: usize)
        [to = NumericAddress(to), from = from, bytes = bytes, stream = DEFAULT_STREAM]
        also cuMemcpyHtoD_v2, cuMemcpyHtoD_v2_ptds;
    fn cuMemcpyDtoH(to: Pointer, from: u64, bytes: usize)
        [to = to, from = NumericAddress(from), bytes = bytes, stream = DEFAULT_STREAM]
        also cuMemcpyDtoH_v2, cuMemcpyDtoH_v2_ptds;
    fn cuMemcpyDtoD(to: u64, from: u64, bytes: usize)
        [to = NumericAddress(to), from = NumericAddress(from), bytes = bytes, stream = DEFAULT_STREAM]
        also cuMemcpyDtoD_v2, cuMemcpyDtoD_v2_ptds;
    fn cuMemcpyPeer(to: u64, there: Pointer, from: u64, here: Pointer, bytes: usize)
        [to = NumericAddress(to), from = NumericAddress(from), bytes = bytes, stream = DEFAULT_STREAM]
        also cuMemcpyPeer_ptds;
    fn cuMemcpyAsync(to: u64, from: u64, bytes: usize, stream: Pointer)
        [to = NumericAddress(to), from = NumericAddress(from), bytes = bytes, stream = stream]
        also cuMemcpyAsync_ptsz;
    fn cuMemcpyHtoDAsync(to: u64, from: Pointer, bytes: usize, stream: Pointer)
        [to = NumericAddress(to), from = from, bytes = bytes, stream = stream]
        also cuMemcpyHtoDAsync_v2, cuMemcpyHtoDAsync_v2_ptsz;
    fn cuMemcpyDtoHAsync(to: Pointer, from: u64, bytes: usize, stream: Pointer)
        [to = to, from = NumericAddress(from), bytes = bytes, stream = stream]
        also cuMemcpyDtoHAsync_v2, cuMemcpyDtoHAsync_v2_ptsz;
    fn cuMemcpyDtoDAsync(to: u64, from: u64, bytes: usize, stream: Pointer)
        [to = NumericAddress(to), from = NumericAddress(from), bytes = bytes, stream = stream]
        also cuMemcpyDtoDAsync_v2, cuMemcpyDtoDAsync_v2_ptsz;
    fn cuMemcpyPeerAsync(to: u64, there: Pointer, from: u64, here: Pointer, bytes: usize, stream: Pointer)
        [to = NumericAddress(to), from = NumericAddress(from), bytes = bytes, stream = stream]
        also cuMemcpyPeerAsync_ptsz;
    fn cuMemsetD8(address: u64, value: u8, count: usize)
        [address = NumericAddress(address), bytes = elements(count, 1), stream = DEFAULT_STREAM]
        also cuMemsetD8_v2, cuMemsetD8_v2_ptds;
    fn cuMemsetD16(address: u64, value: u16, count: usize)
        [address = NumericAddress(address), bytes = elements(count, 2), stream = DEFAULT_STREAM]
        also cuMemsetD16_v2, cuMemsetD16_v2_ptds;
    fn cuMemsetD32(address: u64, value: u32, count: usize)
        [address = NumericAddress(address), bytes = elements(count, 4), stream = DEFAULT_STREAM]
        also cuMemsetD32_v2, cuMemsetD32_v2_ptds;
    fn cuMemsetD8Async(address: u64, value: u8, count: usize, stream: Pointer)
        [address = NumericAddress(address), bytes = elements(count, 1), stream = stream] also cuMemsetD8Async_ptsz;
    fn cuMemsetD16Async(address: u64, value: u16, count: usize, stream: Pointer)
        [address = NumericAddress(address), bytes = elements(count, 2), stream = stream] also cuMemsetD16Async_ptsz;
    fn cuMemsetD32Async(address: u64, value: u32, count: usize, stream: Pointer)
        [address = NumericAddress(address), bytes = elements(count, 4), stream = stream] also cuMemsetD32Async_ptsz;
    // Launches.
    @Launch fn cuLaunchKernel(
        function: Pointer, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32, block_y: u32, block_z: u32,
        shared: u32, stream: Pointer, arguments: *mut Pointer, extra: *mut Pointer,
    ) [function = function, stream = stream] also cuLaunchKernel_ptsz;
    @Launch fn cuLaunchKernelEx(
        config: *const CUlaunchConfig, function: Pointer, arguments: *mut Pointer, extra: *mut Pointer,
    ) [function = function, stream = at(config).map(|config| config.stream)] also cuLaunchKernelEx_ptsz;
    @Launch fn cuLaunchCooperativeKernel(
        function: Pointer, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32, block_y: u32, block_z: u32,
        shared: u32, stream: Pointer, arguments: *mut Pointer,
    ) [function = function, stream = stream] also cuLaunchCooperativeKernel_ptsz;
    @Launch fn cuLaunchCooperativeKernelMultiDevice(list: Pointer, devices: u32, flags: u32) [devices = devices];
    @AtOnce fn cuLaunchHostFunc(stream: Pointer, function: Pointer, data: Pointer)
        [stream = stream, function = host_function::watched(F::PER_THREAD, stream, &mut function, &mut data)] also cuLaunchHostFunc_ptsz;
    @AtOnce fn cuStreamAddCallback(stream: Pointer, function: Pointer, data: Pointer, flags: u32)
        [stream = stream, function = host_function::watched_callback(&mut function, &mut data)] also cuStreamAddCallback_ptsz;
    // Graphs. Versions of an instantiation have three or five parameters.
    fn cuStreamBeginCapture(stream: Pointer, mode: c_int)
        [stream = stream, mode = mode] also cuStreamBeginCapture_v2, cuStreamBeginCapture_v2_ptsz;
    fn cuStreamEndCapture(stream: Pointer, to: *mut Pointer)
        [stream = stream] -> [graph = at(to)] also cuStreamEndCapture_ptsz;
    fn cuGraphInstantiate(to: *mut Pointer, graph: Pointer, third: usize, fourth: usize, fifth: usize)
        [graph = graph] -> [executable = at(to)]
        also cuGraphInstantiate_v2, cuGraphInstantiateWithFlags, cuGraphInstantiateWithParams,
            cuGraphInstantiateWithParams_ptsz;
    fn cuGraphExecUpdate(executable: Pointer, graph: Pointer, third: usize, fourth: usize)
        [executable = executable, graph = graph] also cuGraphExecUpdate_v2;
    fn cuGraphLaunch(executable: Pointer, stream: Pointer)
        [executable = executable, stream = stream] also cuGraphLaunch_ptsz;
    fn cuGraphExecDestroy(executable: Pointer) [executable = executable];
    fn cuGraphDestroy(graph: Pointer) [graph = graph];
    // Graphs that a program puts together.
    fn cuGraphCreate(to: *mut Pointer, flags: u32) [] -> [graph = at(to)];
    fn cuGraphClone(to: *mut Pointer, graph: Pointer) [from = graph] -> [graph = at(to)];
    fn cuGraphAddKernelNode(to: *mut Pointer, graph: Pointer, behind: *const Pointer, count: usize, parameters: *const c_void)
        [graph = graph, behind = strips::nodes(behind, count)] -> [node = at(to)] also cuGraphAddEmptyNode, cuGraphAddKernelNode_v2;
    fn cuGraphAddNode(to: *mut Pointer, graph: Pointer, behind: *const Pointer, fourth: usize, fifth: usize, sixth: usize)
        [graph = graph, behind = strips::nodes(behind, strips::node_parameters(Library::Driver, [fourth, fifth, sixth]).0), kind = strips::node_parameters(Library::Driver, [fourth, fifth, sixth]).1.map(|it| it.kind()), reads = strips::node_parameters(Library::Driver, [fourth, fifth, sixth]).1.and_then(|it| it.strips(CopySide::From)), writes = strips::node_parameters(Library::Driver, [fourth, fifth, sixth]).1.and_then(|it| it.strips(CopySide::To)), child = strips::node_parameters(Library::Driver, [fourth, fifth, sixth]).1.and_then(|it| it.child()), event = strips::node_parameters(Library::Driver, [fourth, fifth, sixth]).1.and_then(|it| it.event()), address = strips::node_parameters(Library::Driver, [fourth, fifth, sixth]).1.and_then(|it| it.address()), bytes = strips::node_parameters(Library::Driver, [fourth, fifth, sixth]).1.and_then(|it| it.bytes())] -> [node = at(to), address = strips::node_parameters(Library::Driver, [fourth, fifth, sixth]).1.and_then(|it| it.address())] also cuGraphAddNode_v2;
    fn cuGraphAddMemcpyNode(to: *mut Pointer, graph: Pointer, behind: *const Pointer, count: usize, copy: *const c_void, context: Pointer)
        [graph = graph, behind = strips::nodes(behind, count), reads = strips::driver_3d(copy, CopySide::From), writes = strips::driver_3d(copy, CopySide::To)] -> [node = at(to)];
    fn cuGraphAddMemsetNode(to: *mut Pointer, graph: Pointer, behind: *const Pointer, count: usize, fill: *const c_void, context: Pointer)
        [graph = graph, behind = strips::nodes(behind, count), writes = strips::filled(fill)] -> [node = at(to)];
    fn cuGraphAddHostNode(to: *mut Pointer, graph: Pointer, behind: *const Pointer, count: usize, function: *const c_void) [graph = graph, behind = strips::nodes(behind, count)] -> [node = at(to)];
    fn cuGraphAddEventRecordNode(to: *mut Pointer, graph: Pointer, behind: *const Pointer, count: usize, event: Pointer) [graph = graph, behind = strips::nodes(behind, count), event = event] -> [node = at(to)];
    fn cuGraphAddEventWaitNode(to: *mut Pointer, graph: Pointer, behind: *const Pointer, count: usize, event: Pointer) [graph = graph, behind = strips::nodes(behind, count), event = event] -> [node = at(to)];
    fn cuGraphAddMemAllocNode(to: *mut Pointer, graph: Pointer, behind: *const Pointer, count: usize, allocation: Pointer)
        [graph = graph, behind = strips::nodes(behind, count), bytes = strips::allocation(allocation, AllocationField::Bytes)]
        -> [node = at(to), address = strips::allocation(allocation, AllocationField::Address).map(NumericAddress)];
    fn cuGraphAddMemFreeNode(to: *mut Pointer, graph: Pointer, behind: *const Pointer, count: usize, address: u64) [graph = graph, behind = strips::nodes(behind, count), address = NumericAddress(address)] -> [node = at(to)];
    fn cuGraphAddChildGraphNode(to: *mut Pointer, graph: Pointer, behind: *const Pointer, count: usize, child: Pointer)
        [graph = graph, behind = strips::nodes(behind, count), child = child] -> [node = at(to)];
    fn cuGraphAddExternalSemaphoresSignalNode(to: *mut Pointer, graph: Pointer, behind: *const Pointer, count: usize, parameters: *const c_void)
        [graph = graph, behind = strips::nodes(behind, count)] -> [node = at(to)] also cuGraphAddExternalSemaphoresWaitNode, cuGraphAddBatchMemOpNode;
    fn cuGraphAddDependencies(
        graph: Pointer, from: *const Pointer, to: *const Pointer, fourth: usize, fifth: usize,
    ) [graph = graph, from = strips::ends(from, fourth, fifth), to = strips::ends(to, fourth, fifth)]
        also cuGraphAddDependencies_v2;
    fn cuGraphRemoveDependencies(graph: Pointer, from: *const Pointer, to: *const Pointer, fourth: usize, fifth: usize)
        [graph = graph] also cuGraphRemoveDependencies_v2;
    fn cuGraphDestroyNode(node: Pointer) [node = node];
    // Nodes that change. What a kernel gets is not recorded anyway.
    fn cuGraphExecNodeSetParams(executable: Pointer, node: Pointer, parameters: *const c_void)
        [executable = executable, node = node, kind = strips::parameters_at(Library::Driver, parameters).map(|it| it.kind()), reads = strips::parameters_at(Library::Driver, parameters).and_then(|it| it.strips(CopySide::From)), writes = strips::parameters_at(Library::Driver, parameters).and_then(|it| it.strips(CopySide::To)), child = strips::parameters_at(Library::Driver, parameters).and_then(|it| it.child()), event = strips::parameters_at(Library::Driver, parameters).and_then(|it| it.event()), address = strips::parameters_at(Library::Driver, parameters).and_then(|it| it.address()), bytes = strips::parameters_at(Library::Driver, parameters).and_then(|it| it.bytes())];
    fn cuGraphExecMemcpyNodeSetParams(executable: Pointer, node: Pointer, copy: *const c_void, context: Pointer)
        [executable = executable, node = node, reads = strips::driver_3d(copy, CopySide::From), writes = strips::driver_3d(copy, CopySide::To)];
    fn cuGraphExecMemsetNodeSetParams(executable: Pointer, node: Pointer, fill: *const c_void, context: Pointer)
        [executable = executable, node = node, writes = strips::filled(fill)];
    fn cuGraphExecEventRecordNodeSetEvent(executable: Pointer, node: Pointer, event: Pointer) [executable = executable, node = node, event = event];
    fn cuGraphExecEventWaitNodeSetEvent(executable: Pointer, node: Pointer, event: Pointer) [executable = executable, node = node, event = event];
    fn cuGraphExecChildGraphNodeSetParams(executable: Pointer, node: Pointer, child: Pointer) [executable = executable, node = node, child = child];
    fn cuGraphNodeSetParams(node: Pointer, parameters: *const c_void)
        [node = node, kind = strips::parameters_at(Library::Driver, parameters).map(|it| it.kind()), reads = strips::parameters_at(Library::Driver, parameters).and_then(|it| it.strips(CopySide::From)), writes = strips::parameters_at(Library::Driver, parameters).and_then(|it| it.strips(CopySide::To)), child = strips::parameters_at(Library::Driver, parameters).and_then(|it| it.child()), event = strips::parameters_at(Library::Driver, parameters).and_then(|it| it.event()), address = strips::parameters_at(Library::Driver, parameters).and_then(|it| it.address()), bytes = strips::parameters_at(Library::Driver, parameters).and_then(|it| it.bytes())];
    fn cuGraphMemcpyNodeSetParams(node: Pointer, copy: *const c_void)
        [node = node, reads = strips::driver_3d(copy, CopySide::From), writes = strips::driver_3d(copy, CopySide::To)];
    fn cuGraphMemsetNodeSetParams(node: Pointer, fill: *const c_void)
        [node = node, writes = strips::filled(fill)];
    fn cuGraphEventRecordNodeSetEvent(node: Pointer, event: Pointer) [node = node, event = event];
    fn cuGraphEventWaitNodeSetEvent(node: Pointer, event: Pointer) [node = node, event = event];
    fn cuStreamBeginCaptureToGraph(stream: Pointer, graph: Pointer, behind: *const Pointer, edges: *const c_void, count: usize, mode: c_int)
        [stream = stream, mode = mode, graph = graph, behind = strips::nodes(behind, count)] also cuStreamBeginCaptureToGraph_ptsz;
    // Copies and fills of rows.
    fn cuMemcpy2D(copy: *const c_void)
        [reads = strips::driver_2d(copy, CopySide::From), writes = strips::driver_2d(copy, CopySide::To), stream = DEFAULT_STREAM] also cuMemcpy2D_v2, cuMemcpy2D_v2_ptds;
    fn cuMemcpy2DUnaligned(copy: *const c_void)
        [reads = strips::driver_2d(copy, CopySide::From), writes = strips::driver_2d(copy, CopySide::To), stream = DEFAULT_STREAM] also cuMemcpy2DUnaligned_v2, cuMemcpy2DUnaligned_v2_ptds;
    fn cuMemcpy3D(copy: *const c_void)
        [reads = strips::driver_3d(copy, CopySide::From), writes = strips::driver_3d(copy, CopySide::To), stream = DEFAULT_STREAM] also cuMemcpy3D_v2, cuMemcpy3D_v2_ptds;
    fn cuMemcpy3DPeer(copy: *const c_void)
        [reads = strips::driver_3d(copy, CopySide::From), writes = strips::driver_3d(copy, CopySide::To), stream = DEFAULT_STREAM] also cuMemcpy3DPeer_ptds;
    fn cuMemcpy2DAsync(copy: *const c_void, stream: Pointer)
        [reads = strips::driver_2d(copy, CopySide::From), writes = strips::driver_2d(copy, CopySide::To), stream = stream] also cuMemcpy2DAsync_v2, cuMemcpy2DAsync_v2_ptsz;
    fn cuMemcpy3DAsync(copy: *const c_void, stream: Pointer)
        [reads = strips::driver_3d(copy, CopySide::From), writes = strips::driver_3d(copy, CopySide::To), stream = stream] also cuMemcpy3DAsync_v2, cuMemcpy3DAsync_v2_ptsz;
    fn cuMemcpy3DPeerAsync(copy: *const c_void, stream: Pointer)
        [reads = strips::driver_3d(copy, CopySide::From), writes = strips::driver_3d(copy, CopySide::To), stream = stream] also cuMemcpy3DPeerAsync_ptsz;
    fn cuMemsetD2D8(address: u64, pitch: usize, value: u8, width: usize, height: usize)
        [writes = strips::rows(address, elements(width, 1), pitch as u64, height as u64), stream = DEFAULT_STREAM] also cuMemsetD2D8_v2, cuMemsetD2D8_v2_ptds;
    fn cuMemsetD2D8Async(address: u64, pitch: usize, value: u8, width: usize, height: usize, stream: Pointer)
        [writes = strips::rows(address, elements(width, 1), pitch as u64, height as u64), stream = stream] also cuMemsetD2D8Async_ptsz;
    fn cuMemsetD2D16(address: u64, pitch: usize, value: u16, width: usize, height: usize)
        [writes = strips::rows(address, elements(width, 2), pitch as u64, height as u64), stream = DEFAULT_STREAM] also cuMemsetD2D16_v2, cuMemsetD2D16_v2_ptds;
    fn cuMemsetD2D16Async(address: u64, pitch: usize, value: u16, width: usize, height: usize, stream: Pointer)
        [writes = strips::rows(address, elements(width, 2), pitch as u64, height as u64), stream = stream] also cuMemsetD2D16Async_ptsz;
    fn cuMemsetD2D32(address: u64, pitch: usize, value: u32, width: usize, height: usize)
        [writes = strips::rows(address, elements(width, 4), pitch as u64, height as u64), stream = DEFAULT_STREAM] also cuMemsetD2D32_v2, cuMemsetD2D32_v2_ptds;
    fn cuMemsetD2D32Async(address: u64, pitch: usize, value: u32, width: usize, height: usize, stream: Pointer)
        [writes = strips::rows(address, elements(width, 4), pitch as u64, height as u64), stream = stream] also cuMemsetD2D32Async_ptsz;
    // Memory that moves by itself, and pitched memory.
    fn cuMemAllocManaged(to: *mut u64, bytes: usize, flags: u32)
        [bytes = bytes] -> [address = at(to).map(NumericAddress)];
    fn cuMemAllocPitch(to: *mut u64, pitch: *mut usize, width: usize, rows: usize, element: u32)
        [rows = rows] -> [address = at(to).map(NumericAddress), bytes = at(pitch).map(|pitch| elements(pitch, rows))]
        also cuMemAllocPitch_v2;
}
