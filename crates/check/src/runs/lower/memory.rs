//! Memory of a process: allocated and freed, exported to other processes and opened from them.
//!
//! Not here: which allocation an address lies in ([`crate::runs::regions`]).

use std::sync::Arc;

use rankcheck_model::{IpcOp, MemoryKind, MemoryOp, Op, Operand, StoreOp, StreamOp};
use rankcheck_recording::{Argument, Shape};

use super::call::{number, one};
use super::{Lowered, Lowering, NO_LOC, Origin};
use crate::runs::call::{Allocator, Unjudged};
use crate::runs::ipc::ShareableCall;
use crate::runs::regions::MemoryAt;

/// More than any address of a process.
const UNSEEN_BYTES: u64 = 1 << 57;

impl Lowering<'_> {
    /// Memory was allocated, unless the call failed.
    pub(super) fn allocated(
        &mut self,
        allocator: Allocator,
        call: &Shape,
        result: Option<&Shape>,
        origin: Origin,
    ) -> Vec<Lowered> {
        let address = result.and_then(|result| result.get("address")).and_then(Argument::number);
        // How long a pitched row is the call returns.
        let says_bytes = if allocator == Allocator::CudaPitched { result } else { Some(call) };
        let bytes = says_bytes.map_or(0, |shape| number(shape, "bytes"));
        let kind = match allocator {
            Allocator::Cuda | Allocator::CudaAsync | Allocator::CudaPitched => MemoryKind::Cuda,
            Allocator::Nccl => MemoryKind::Nccl,
        };
        let items = self.appeared(address.unwrap_or(0), bytes, kind, origin);
        match (allocator, address) {
            (Allocator::CudaAsync, Some(address)) => self.there_from(address, call, origin),
            _ => items,
        }
    }

    /// Memory of a stream is there once that gets to its allocation: as if that wrote all of it. In a graph every launch
    /// allocates it anew.
    fn there_from(&mut self, address: u64, call: &Shape, origin: Origin) -> Vec<Lowered> {
        let (reads, writes) = ([].into(), [self.buffer_to_end(address, origin)].into());
        let stream = self.device.stream(number(call, "stream"), self.names);
        if self.device.captures() {
            self.memory.of_graph(address);
        }
        let name = self.names.token(&call.name);
        self.in_order(Op::Stream(StreamOp::Kernel { name, reads, writes, stream }), stream, origin)
    }

    /// So many bytes are memory from an address on.
    pub(super) fn appeared(
        &mut self,
        address: u64,
        bytes: u64,
        kind: MemoryKind,
        origin: Origin,
    ) -> Vec<Lowered> {
        if address == 0 {
            return Vec::new();
        }
        self.cache.clear();
        let length = rankcheck_model::machine::bytes(bytes);
        let name = self.names.token(&format!("allocation {} of {length}", self.allocations));
        self.allocations += 1;
        let at = u32::try_from(self.ops.len()).expect("bounded by the places of the program");
        let op = Op::Memory(MemoryOp::Alloc { name, len_bytes: bytes, memory: kind });
        let operand = self.write(Lowered::of(op, origin));
        self.forget_symmetric(address, bytes);
        self.allocated_at.insert(address, origin);
        if let Some(value) = self.memory.allocate(address, bytes, name, operand) {
            self.program.nondet.insert(at, value);
        }
        Vec::new()
    }

    pub(super) fn free(&mut self, call: &Shape, origin: Origin) -> Vec<Lowered> {
        self.cache.clear();
        match self.memory.free(number(call, "address")) {
            Some(region) => {
                one(Op::Memory(MemoryOp::Free { buffer: region.operand.clone(), after: None }), origin)
            }
            None => Vec::new(),
        }
    }

    /// Memory is free once a stream gets there. What a graph allocated comes back with its next launch, so that is only
    /// as if all of it were written.
    pub(super) fn free_on(&mut self, call: &Shape, origin: Origin) -> Vec<Lowered> {
        self.cache.clear();
        let address = number(call, "address");
        let stream = self.device.stream(number(call, "stream"), self.names);
        let Some(region) = self.memory.free_on(address) else { return Vec::new() };
        let (buffer, of_graph) = (region.operand.clone(), region.of_graph);
        let op = if of_graph || self.device.captures() {
            let (name, reads, writes) = (self.names.token(&call.name), [].into(), [buffer].into());
            Op::Stream(StreamOp::Kernel { name, reads, writes, stream })
        } else {
            Op::Memory(MemoryOp::FreeOn { buffer, stream })
        };
        self.in_order(op, stream, origin)
    }

    /// Memory, or a pool, goes to other processes by a handle, or comes from them.
    pub(super) fn shared(
        &mut self,
        shared: ShareableCall,
        call: &Shape,
        made: Option<u64>,
        origin: Origin,
    ) -> Vec<Lowered> {
        let known = self.member.shared.imports.contains(&u64::from(origin.number));
        match shared {
            ShareableCall::ExportsMemory | ShareableCall::ExportsPointer => {
                self.exported_at = Some(origin.number);
                self.export(origin)
            }
            ShareableCall::ImportsPointer if known => self.open(made, origin),
            ShareableCall::ImportsPointer => self.unjudged(Unjudged::Import, &call.name),
            ShareableCall::ImportsMemory if !known => self.unjudged(Unjudged::Import, &call.name),
            ShareableCall::ImportsMemory
            | ShareableCall::CreatesMemory
            | ShareableCall::ExportsPool
            | ShareableCall::ImportsPool => Vec::new(),
        }
    }

    /// Memory is exported. How its handle travels was not recorded: it goes through the store, so that it is there
    /// before somebody opens it.
    pub(super) fn export(&mut self, origin: Origin) -> Vec<Lowered> {
        let Some(exported) = self.member.shared.exports.get(&u64::from(origin.number)) else {
            return Vec::new();
        };
        let key = self.names.token(&exported.handle);
        let buffer = match self.memory.find(exported.address, 0) {
            MemoryAt::In(buffer, ..) => buffer,
            MemoryAt::Unknown if exported.address == 0 => {
                let length = rankcheck_model::machine::bytes(exported.len_bytes);
                let name = self.names.token(&format!("memory of {length} that is mapped nowhere"));
                let (len_bytes, memory) = (exported.len_bytes, MemoryKind::CuMem);
                let op = Op::Memory(MemoryOp::Alloc { name, len_bytes, memory });
                self.write(Lowered::of(op, origin))
            }
            MemoryAt::Unknown => self.unseen(origin),
        };
        let op = match exported.held {
            true => IpcOp::ExportShareable { buffer },
            false => IpcOp::Export { buffer },
        };
        let value = self.write(Lowered::of(Op::Ipc(op), origin));
        one(Op::Store(StoreOp::Set { key, value }), origin)
    }

    /// Memory of another process is opened at an address, all of it.
    pub(super) fn open(&mut self, address: Option<u64>, origin: Origin) -> Vec<Lowered> {
        let Some(address) = address else { return Vec::new() };
        let Some(opened) = self.member.shared.opens.get(&u64::from(origin.number)) else {
            return self.unjudged(Unjudged::Unseen, "handles of memory that was not recorded");
        };
        self.cache.clear();
        let key = self.names.token(&opened.handle);
        let handle = self.write(Lowered::of(Op::Store(StoreOp::Get { key }), origin));
        let mapping = self.write(Lowered::of(Op::Ipc(IpcOp::Open { handle }), origin));
        self.program.freed.insert(self.program.last_loc(), opened.freed);
        if opened.too_close {
            let memory = format!("the memory of {}", opened.handle).into();
            self.program.too_close.push((origin, memory));
        }
        self.memory.map(address, opened.len_bytes, mapping);
        Vec::new()
    }

    /// A mapping is closed; of one that was opened several times, one open of it.
    pub(super) fn close(&mut self, address: u64, origin: Origin) -> Vec<Lowered> {
        self.cache.clear();
        match self.memory.mapping(address) {
            Some(mapping) => one(Op::Ipc(IpcOp::Close { mapping }), origin),
            None => Vec::new(),
        }
    }

    /// So many bytes from an address on.
    pub(super) fn buffer(&mut self, address: u64, len_bytes: u64, origin: Origin) -> Operand {
        let (of, offset_bytes, len_bytes) = match self.memory.find(address, len_bytes) {
            // What lies beyond the end is found by the length that is left.
            MemoryAt::In(operand, offset, left) => (operand, offset, len_bytes.min(left)),
            // Of no bytes any pointer will do.
            MemoryAt::Unknown if address == 0 && len_bytes > 0 => return Operand::Null,
            MemoryAt::Unknown => (self.unseen(origin), address % UNSEEN_BYTES, len_bytes),
        };
        Operand::Slice { of: Arc::new(of), offset_bytes, len_bytes }
    }

    /// All bytes from an address on, as far as its memory goes.
    pub(super) fn buffer_to_end(&mut self, address: u64, origin: Origin) -> Operand {
        let (of, offset_bytes, len_bytes) = match self.memory.find(address, 0) {
            MemoryAt::In(operand, offset, left) => (operand, offset, left),
            MemoryAt::Unknown if address == 0 => return Operand::Null,
            MemoryAt::Unknown => {
                let offset = address % UNSEEN_BYTES;
                (self.unseen(origin), offset, UNSEEN_BYTES - offset)
            }
        };
        Operand::Slice { of: Arc::new(of), offset_bytes, len_bytes }
    }

    /// One region for all memory that nobody was seen to allocate; nothing but overlaps is known of it.
    fn unseen(&mut self, origin: Origin) -> Operand {
        if let Some(unseen) = &self.unseen {
            return unseen.clone();
        }
        let name = self.names.token("memory that was not seen allocated");
        let origin = Origin { loc: NO_LOC, ..origin };
        let op = Op::Memory(MemoryOp::Alloc { name, len_bytes: UNSEEN_BYTES, memory: MemoryKind::Nccl });
        let operand = self.write(Lowered::of(op, origin));
        self.unseen = Some(operand.clone());
        operand
    }
}
