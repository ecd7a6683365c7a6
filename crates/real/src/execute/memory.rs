//! Memory of a program on the device: which address it gets, and what it holds at first.
//!
//! Not here: blocks of pools ([`super::pool`]).

use std::sync::Arc;

use rankcheck_model::host::best_fit::GRANULARITY_BYTES;
use rankcheck_model::host::value::{BlockId, Buffer, MemoryId, Owner, Value};
use rankcheck_model::term::initial_number;
use rankcheck_model::{HandleKind, MemoryKind, MemoryOp, Operand, Token};

use super::POISON_BYTE;
use super::device::locked;
use super::dispatch::{Execute, Produced};
use super::inspect::WaitsFor;
use super::nondet::{NondetKind, number};
use super::tables::{MemoryRow, Physical, Tables};
use super::thread::{Halt, ProgramThread, refused_by_capture};
use super::value::{Base, OnDevice, Provenance, own_memory, range};
use crate::Error;
use crate::case::{NondetValue, SegmentName};
use crate::ffi::DeviceRange;
use crate::memory::CudaMemory;
use crate::placement::TakenSlots;
use crate::segment::NcclSegment;
use crate::stream::CudaStream;

/// Whether an address that was freed may come back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Comeback {
    /// As the case forces it.
    Open,
    /// What a history left behind has addresses of its own.
    Never,
}

/// What an allocation reports when it failed, as the model does.
pub(crate) const OUT_OF_MEMORY: i32 = 2;

impl Execute for MemoryOp {
    fn execute(&self, thread: &mut ProgramThread<'_, '_>, text: &str) -> Produced {
        match self {
            Self::Alloc { name, len_bytes, memory } => {
                return thread.mem_alloc(text, *name, *len_bytes, *memory).map(|buffer| vec![buffer]);
            }
            Self::Free { buffer, after } => thread.free(text, buffer, *after)?,
            Self::Release { segment } => {
                if let Some(memory) = thread.value(segment).buffer().and_then(|segment| own_memory(segment)) {
                    thread.release(text, memory)?;
                }
            }
            Self::Copy { to, from, stream } => thread.copy(text, (to, from), *stream)?,
            // What a buffer should hold is compared with what it holds at the end. No spec frees on a stream.
            Self::Expect { .. } | Self::FreeOn { .. } => {}
        }
        Ok(Vec::new())
    }
}

impl ProgramThread<'_, '_> {
    fn copy(&self, text: &str, (to, from): (&Operand, &Operand), stream: Token) -> Result<(), Halt> {
        let range = |operand: &Operand| self.value(operand).buffer().map(|buffer| range(buffer));
        let (to, from) = (range(to), range(from));
        // CUDA looks at the addresses only where there is something to copy.
        let len_bytes = to.or(from).map_or(1, |range| range.len_bytes());
        let [to, from] = [to, from].map(|range| range.unwrap_or_else(|| DeviceRange::new(0, len_bytes)));
        self.launch(text, stream, |_, on| on.copy(&from, &to))
    }

    /// The result of an allocation. One that failed for a reason of the device ran out of memory.
    pub(crate) fn allocated(
        &self,
        call: String,
        buffer: Result<Arc<Buffer<OnDevice>>, Error>,
    ) -> Result<Value<OnDevice>, Halt> {
        match buffer {
            Ok(buffer) => Ok(Value::Buffer(buffer)),
            Err(error) if error.cuda_code().is_some_and(refused_by_capture) => {
                let code = error.cuda_code().and_then(|code| i32::try_from(code).ok());
                self.failed(call, code.unwrap_or(OUT_OF_MEMORY), Some(error.to_string()));
                Ok(Value::Null)
            }
            Err(error @ (Error::Cuda { .. } | Error::Nccl { .. } | Error::NoAddresses { .. })) => {
                self.unbroken(&error)?;
                self.failed(call, OUT_OF_MEMORY, Some(error.to_string()));
                Ok(Value::Null)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// New physical memory, poisoned, at an address that the case or the device chooses.
    pub(crate) fn make(
        &self,
        tables: &mut Tables,
        (made, name, block): (MemoryId, Token, Option<BlockId>),
        (len_bytes, kind): (u64, MemoryKind),
        comeback: Comeback,
    ) -> Result<Arc<Buffer<OnDevice>>, Error> {
        let back: Vec<Base> = tables
            .free_addresses
            .iter()
            .filter(|(_, len)| *len == len_bytes)
            .map(|(base, _)| *base)
            .collect();
        // One possibility is no choice, and no value is spent on it.
        let left_open = !back.is_empty() && comeback == Comeback::Open;
        let wanted = if left_open { self.wanted(NondetKind::AddressReuse) } else { None };
        let physical = self.map(tables, made, (len_bytes, kind), &back, wanted.as_ref().map(number))?;
        let address = match &physical {
            Physical::Segment(segment) => segment.range().address(),
            Physical::Ordinary(memory) => memory.range().address(),
        };
        let which = back.iter().position(|base| base.address == address);
        let base = which.map_or(Base { first: Provenance::Own(made), address }, |at| back[at]);
        if left_open {
            let which = which.map_or(0, |at| u32::try_from(at).expect("few addresses") + 1);
            self.took(wanted, NondetValue::AddressReuse { which });
        }
        tables.free_addresses.retain(|free| *free != (base, len_bytes));
        let whole = Arc::new(Buffer {
            block,
            memory: Provenance::Own(made),
            address: base,
            offset_bytes: 0,
            len_bytes,
            memory_len_bytes: len_bytes,
            name,
            through: None,
            grew: block.is_some(),
        });
        let row = MemoryRow { whole: Arc::clone(&whole), asked_bytes: len_bytes, physical: Some(physical) };
        tables.memory.insert(made, row);
        self.run.shared.aside.fill_bytes(&range(&whole), POISON_BYTE)?;
        self.run.shared.settle()?;
        Ok(whole)
    }

    fn map(
        &self,
        tables: &mut Tables,
        made: MemoryId,
        (len_bytes, kind): (u64, MemoryKind),
        back: &[Base],
        which: Option<u32>,
    ) -> Result<Physical, Error> {
        let len_bytes = len_bytes.max(GRANULARITY_BYTES);
        if kind == MemoryKind::Cuda {
            // A pool relaxes the capture mode around its own calls, a program does not.
            let alloc = || CudaMemory::alloc(&self.device, len_bytes);
            let memory = match made.owner {
                Owner::Pool(_) => alloc(),
                Owner::Program(_) => self.unrelaxed(alloc),
            };
            return memory.map(Physical::Ordinary);
        }
        let nondet = locked(&self.run.nondet);
        if kind == MemoryKind::Nccl && !nondet.forces_addresses {
            drop(nondet);
            let alloc = || NcclSegment::alloc(&self.device, len_bytes);
            let segment = match made.owner {
                Owner::Pool(_) => alloc(),
                Owner::Program(_) => self.unrelaxed(alloc),
            };
            return segment.map(Physical::Segment);
        }
        let again = which.and_then(|which| back.get((which as usize).checked_sub(1)?));
        let address = match again {
            Some(base) => base.address,
            None => {
                let slot = self.slot(&mut tables.placed, made, &nondet.addresses, len_bytes)?;
                self.run.shared.placement.address(slot)
            }
        };
        drop(nondet);
        self.run.shared.placement.place(&self.device, address, len_bytes).map(Physical::Segment)
    }

    /// The slot of a segment: by its position in the wanted order, or above all that are in it.
    fn slot(
        &self,
        slots: &mut TakenSlots,
        made: MemoryId,
        order: &[SegmentName],
        len_bytes: u64,
    ) -> Result<u64, Error> {
        let (Owner::Pool(owner) | Owner::Program(owner)) = made.owner;
        let owner = self.run.source.token(owner);
        let position = order.iter().position(|name| *name.owner == *owner && name.nth == made.nth);
        match position {
            Some(position) if slots.take(position as u64, len_bytes) => Ok(position as u64),
            Some(_) | None => slots.take_above(order.len() as u64, len_bytes),
        }
    }

    /// Writes the number of a new buffer into all of it, after what is on the stream already.
    pub(crate) fn fill(&self, buffer: &Buffer<OnDevice>, stream: &CudaStream) -> Result<(), Error> {
        let number = initial_number(self.run.rank, &self.run.source.token(buffer.name));
        self.run.shared.code.fill(&range(buffer), (self.run.element, number), stream)
    }

    pub(crate) fn fill_at_once(&self, buffer: &Buffer<OnDevice>) -> Result<(), Error> {
        let shared = self.run.shared;
        self.fill(buffer, &shared.aside)?;
        shared.settle()
    }

    fn mem_alloc(
        &mut self,
        text: &str,
        name: Token,
        len_bytes: u64,
        kind: MemoryKind,
    ) -> Result<Value<OnDevice>, Halt> {
        let call = kind.call().to_owned();
        if self.fails() {
            self.failed(call, kind.out_of_memory(), None);
            return Ok(Value::Null);
        }
        let buffer = self.inside(text, WaitsFor::Hosts, |thread| {
            let mut tables = thread.run.tables();
            let nth = tables.made.get(&name).copied().unwrap_or(0);
            let made = MemoryId { owner: Owner::Program(name), nth };
            let whole_bytes = len_bytes.checked_next_multiple_of(GRANULARITY_BYTES);
            let whole_bytes = whole_bytes.ok_or(Error::Size { len_bytes })?;
            let whole = thread.make(
                &mut tables,
                (made, name, Some(BlockId(made))),
                (whole_bytes, kind),
                Comeback::Open,
            )?;
            tables.made.insert(name, nth + 1);
            if let Some(row) = tables.memory.get_mut(&made) {
                row.asked_bytes = len_bytes;
            }
            tables.live.insert(BlockId(made));
            drop(tables);
            let buffer = Arc::new(Buffer { len_bytes, ..Buffer::clone(&whole) });
            thread.fill_at_once(&buffer)?;
            Ok(buffer)
        });
        self.allocated(call, buffer)
    }

    fn free(&mut self, text: &str, buffer: &Operand, after: Option<Token>) -> Result<(), Halt> {
        let Value::Buffer(buffer) = self.value(buffer) else { return Ok(()) };
        // A mapping is closed, not freed.
        let Some(memory) = own_memory(&buffer) else { return Ok(()) };
        if let Owner::Pool(pool) = memory.owner {
            return self.free_block(text, pool, &buffer, after);
        }
        let ordinary = {
            let tables = self.run.tables();
            let physical = tables.memory.get(&memory).and_then(|row| row.physical.as_ref());
            physical.is_some_and(|physical| physical.handle() == HandleKind::Ipc)
        };
        if ordinary && self.run.tables().captures() {
            return self.free_in_capture(text);
        }
        if ordinary {
            // `cuMemFree` waits for the device; here somebody can see that it does.
            self.drain(text, WaitsFor::Device)?;
        }
        if buffer.block.is_some_and(|block| self.run.tables().live.remove(&block)) {
            self.release(text, memory)?;
        }
        Ok(())
    }

    /// What the driver says of a `cuMemFree` while a stream records, asked with memory that nobody else has.
    fn free_in_capture(&self, text: &str) -> Result<(), Halt> {
        let memory = CudaMemory::alloc(&self.device, GRANULARITY_BYTES)?;
        let result = self.inside(text, WaitsFor::Hosts, |thread| thread.unrelaxed(|| memory.end()));
        self.noted(text, result).map(drop)
    }

    /// Gives physical memory back to the driver, once.
    pub(crate) fn release(&self, text: &str, memory: MemoryId) -> Result<(), Halt> {
        let physical = {
            let mut tables = self.run.tables();
            let Some(row) = tables.memory.get_mut(&memory) else { return Ok(()) };
            let Some(physical) = row.physical.take() else { return Ok(()) };
            let free = (row.whole.address, row.whole.len_bytes);
            tables.free_addresses.push(free);
            tables.free_addresses.sort_unstable_by_key(|(base, len_bytes)| (base.first, *len_bytes));
            physical
        };
        let result = self.inside(text, WaitsFor::Hosts, |_| physical.end());
        self.noted(text, result).map(drop)
    }
}
