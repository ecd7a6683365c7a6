//! Pools and memory of a program on the device: which block, which address, and what it holds at first.
//!
//! The choice of blocks is [`crate::pool`]'s; here are segments, deferred frees, hooks and names.

use std::sync::Arc;

use rankcheck_model::term::initial_number;
use rankcheck_model::{MemoryKind, Op, Operand, Release, SizeClasses, TieBreak, Token};

use super::POISON_BYTE;
use super::device::locked;
use super::inspect::WaitsFor;
use super::luck::{Kind, number};
use super::tables::{MemoryRow, Physical, PoolRow, Tables};
use super::thread::{Stop, Thread, refused_by_capture};
use super::value::{Address, Base, Buffer, Made, Owner, Value};
use crate::Error;
use crate::case::{Pick, SegmentName};
use crate::graph::Capturing;
use crate::memory::Memory;
use crate::pool::Growth;
use crate::segment::Segment;
use crate::stream::Stream;

/// Physical memory comes in pieces of this size.
const GRANULARITY_BYTES: u64 = 2 << 20;

/// Whether an address that was freed may come back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Comeback {
    /// Luck says.
    Luck,
    /// What a history left behind has addresses of its own.
    Never,
}

/// What an allocation reports when it failed, as the model does.
const OUT_OF_MEMORY: i32 = 2;

impl Thread<'_, '_> {
    pub(crate) fn declare_pool(
        &self,
        pool: Token,
        (classes, tie, memory): (SizeClasses, TieBreak, MemoryKind),
    ) {
        let mut tables = self.run.tables();
        tables.pools.entry(pool).or_insert_with(|| PoolRow::new(classes, tie, memory));
    }

    pub(crate) fn pool_lock(&self, verb: &Op, pool: Token) -> Result<(), Stop> {
        let words = self.words(verb);
        let free = |tables: &Tables| tables.pools.get(&pool).is_none_or(|row| row.holder.is_none());
        let mut tables = self.wait_inside(&words, free)?;
        tables.pools.entry(pool).or_default().holder = Some(self.number);
        Ok(())
    }

    pub(crate) fn pool_unlock(&self, pool: Token) {
        self.run.tables().pools.entry(pool).or_default().holder = None;
        self.run.changed.notify_all();
    }

    /// Whether no other thread holds the allocator's lock.
    fn admitted(&self, pool: Token) -> impl Fn(&Tables) -> bool {
        let number = self.number;
        move |tables| {
            let holder = tables.pools.get(&pool).and_then(|row| row.holder);
            holder.is_none_or(|holder| holder == number)
        }
    }

    pub(crate) fn alloc(
        &mut self,
        verb: &Op,
        pool: Token,
        name: Token,
        (len_bytes, stream): (u64, Token),
    ) -> Result<Value, Stop> {
        let words = self.words(verb);
        let call = format!("{}.alloc", self.run.source.token(pool));
        drop(self.wait_inside(&words, self.admitted(pool))?);
        if self.fails() {
            self.failed(call, OUT_OF_MEMORY, None);
            return Ok(Value::Null);
        }
        self.return_deferred(pool)?;
        let tables = self.wait_inside(&words, self.admitted(pool))?;
        let buffer = self.inside(&words, WaitsFor::Hosts, |thread| {
            let mut tables = tables;
            let mut row = tables.pools.remove(&pool).unwrap_or_default();
            let block = thread.block(&mut tables, &mut row, (pool, name), (len_bytes, stream));
            tables.pools.insert(pool, row);
            drop(tables);
            let buffer = block?;
            // A block may come back while the stream still works on what it was: the fill has to wait for that.
            let streams = thread.run.tables().streams.clone();
            match streams.iter().find(|(name, _)| *name == stream) {
                Some((_, busy)) if busy.capturing()? == Capturing::Invalidated => {}
                Some((_, busy)) => thread.fill(&buffer, busy)?,
                None => thread.fill_at_once(&buffer)?,
            }
            Ok(buffer)
        });
        self.allocated(call, buffer)
    }

    /// The result of an allocation. One that failed for a reason of the device ran out of memory.
    fn allocated(&self, call: String, buffer: Result<Arc<Buffer>, Error>) -> Result<Value, Stop> {
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

    /// Blocks whose events are seen complete go back to the pool, in the order in which they were freed.
    fn return_deferred(&self, pool: Token) -> Result<(), Stop> {
        // While a stream records, a caching allocator polls no events.
        if self.run.tables().captures() {
            return Ok(());
        }
        let deferred = self.run.tables().pools.get(&pool).map(|row| row.deferred.clone()).unwrap_or_default();
        for (block, event, nth) in deferred {
            // Before the first record there is nothing to wait for.
            if !self.seen(event, nth)? {
                continue;
            }
            let mut tables = self.run.tables();
            let freed = tables.blocks.remove(&block);
            if let (Some(row), Some(freed)) = (tables.pools.get_mut(&pool), freed) {
                row.deferred.retain(|(other, ..)| *other != block);
                row.pool.free(freed);
            }
        }
        Ok(())
    }

    /// A block of the pool, with a new segment if none fits.
    fn block(
        &self,
        tables: &mut Tables,
        row: &mut PoolRow,
        (pool, name): (Token, Token),
        (len_bytes, stream): (u64, Token),
    ) -> Result<Arc<Buffer>, Error> {
        let wanted = len_bytes.max(1);
        let equals = row.pool.equals(wanted, stream.0);
        if equals.len() > 1 && row.pool.tie() == TieBreak::Address {
            for address in equals {
                if let Some(base) = base_of(tables, address) {
                    self.place(tables, &Value::Address(Address::Memory(base, 0)), Kind::AddressOrder);
                }
            }
        }
        let (owner, kind, nth) = (Owner::Pool(pool), row.memory, row.pool.next_segment());
        let block = row.pool.alloc(wanted, stream.0, |segment_bytes| {
            let made = Made { owner, nth };
            let whole = self.make(tables, (made, pool, None), (segment_bytes, kind), Comeback::Luck)?;
            Ok(whole.base.address)
        })?;
        let id = Made { owner, nth: row.blocks_made };
        row.blocks_made += 1;
        let memory = Made { owner, nth: block.segment };
        let whole = &tables.memory[&memory].whole;
        let buffer = Arc::new(Buffer {
            block: Some(id),
            memory,
            base: whole.base,
            offset_bytes: block.offset_bytes,
            len_bytes,
            name,
            grew: block.growth == Growth::Grew,
        });
        tables.blocks.insert(id, block);
        tables.live.insert(id);
        Ok(buffer)
    }

    /// New physical memory, poisoned, at an address that luck or the device chooses.
    fn make(
        &self,
        tables: &mut Tables,
        (made, name, block): (Made, Token, Option<Made>),
        (len_bytes, kind): (u64, MemoryKind),
        comeback: Comeback,
    ) -> Result<Arc<Buffer>, Error> {
        let back: Vec<Base> = tables
            .free_addresses
            .iter()
            .filter(|(_, len)| *len == len_bytes)
            .map(|(base, _)| *base)
            .collect();
        // One possibility is no choice, and no pick is spent on it.
        let left_to_luck = !back.is_empty() && comeback == Comeback::Luck;
        let wanted = if left_to_luck { self.wanted(Kind::AddressReuse) } else { None };
        let physical = self.map(tables, made, (len_bytes, kind), &back, wanted.as_ref().map(number))?;
        let address = match &physical {
            Physical::Segment(segment) => segment.range().address(),
            Physical::Ordinary(memory) => memory.range().address(),
        };
        let which = back.iter().position(|base| base.address == address);
        let base = which.map_or(Base { first: made, address }, |at| back[at]);
        if left_to_luck {
            let which = which.map_or(0, |at| u32::try_from(at).expect("few addresses") + 1);
            self.took(wanted, Pick::AddressReuse { which });
        }
        tables.free_addresses.retain(|free| *free != (base, len_bytes));
        let whole =
            Buffer { block, memory: made, base, offset_bytes: 0, len_bytes, name, grew: block.is_some() };
        let whole = Arc::new(whole);
        let row = MemoryRow { whole: Arc::clone(&whole), asked_bytes: len_bytes, physical: Some(physical) };
        tables.memory.insert(made, row);
        self.run.shared.aside.fill_bytes(&whole.range(), POISON_BYTE)?;
        self.run.shared.settle()?;
        Ok(whole)
    }

    fn map(
        &self,
        tables: &mut Tables,
        made: Made,
        (len_bytes, kind): (u64, MemoryKind),
        back: &[Base],
        which: Option<u32>,
    ) -> Result<Physical, Error> {
        let len_bytes = len_bytes.max(GRANULARITY_BYTES);
        if kind == MemoryKind::Cuda {
            // A pool relaxes the capture mode around its own calls, a program does not.
            let alloc = || Memory::alloc(&self.device, len_bytes);
            let memory = match made.owner {
                Owner::Pool(_) => alloc(),
                Owner::Program(_) | Owner::Peer(_) => self.unrelaxed(alloc),
            };
            return memory.map(Physical::Ordinary);
        }
        let luck = locked(&self.run.luck);
        if !luck.places {
            drop(luck);
            let alloc = || Segment::alloc(&self.device, len_bytes);
            let segment = match made.owner {
                Owner::Pool(_) => alloc(),
                Owner::Program(_) | Owner::Peer(_) => self.unrelaxed(alloc),
            };
            return segment.map(Physical::Segment);
        }
        let again = which.and_then(|which| back.get((which as usize).checked_sub(1)?));
        let address = match again {
            Some(base) => base.address,
            None => {
                let slot = self.slot(&mut tables.placed, made, &luck.addresses, len_bytes)?;
                self.run.shared.placement.address(slot)
            }
        };
        drop(luck);
        self.run.shared.placement.place(&self.device, address, len_bytes).map(Physical::Segment)
    }

    /// The slot of a segment: by its position in the wanted order, or above all that are in it.
    fn slot(
        &self,
        slots: &mut crate::placement::Slots,
        made: Made,
        order: &[SegmentName],
        len_bytes: u64,
    ) -> Result<u64, Error> {
        let position = match made.owner {
            Owner::Pool(owner) | Owner::Program(owner) => {
                let owner = self.run.source.token(owner);
                order.iter().position(|name| *name.owner == *owner && name.nth == made.nth)
            }
            Owner::Peer(_) => None,
        };
        match position {
            Some(position) if slots.take(position as u64, len_bytes) => Ok(position as u64),
            Some(_) | None => slots.take_above(order.len() as u64, len_bytes),
        }
    }

    /// Writes the number of a new buffer into all of it, after what is on the stream already.
    fn fill(&self, buffer: &Buffer, stream: &Stream) -> Result<(), Error> {
        let number = initial_number(self.run.rank, &self.run.source.token(buffer.name));
        self.run.shared.kernels.fill(&buffer.range(), (self.run.element, number), stream)
    }

    fn fill_at_once(&self, buffer: &Buffer) -> Result<(), Error> {
        let shared = self.run.shared;
        self.fill(buffer, &shared.aside)?;
        shared.settle()
    }

    pub(crate) fn mem_alloc(
        &mut self,
        verb: &Op,
        name: Token,
        len_bytes: u64,
        kind: MemoryKind,
    ) -> Result<Value, Stop> {
        let call = "mem_alloc".to_owned();
        if self.fails() {
            self.failed(call, OUT_OF_MEMORY, None);
            return Ok(Value::Null);
        }
        let words = self.words(verb);
        let buffer = self.inside(&words, WaitsFor::Hosts, |thread| {
            let mut tables = thread.run.tables();
            let nth = tables.made.get(&name).copied().unwrap_or(0);
            let made = Made { owner: Owner::Program(name), nth };
            let whole_bytes = len_bytes.checked_next_multiple_of(GRANULARITY_BYTES);
            let whole_bytes = whole_bytes.ok_or(Error::Size { len_bytes })?;
            let whole =
                thread.make(&mut tables, (made, name, Some(made)), (whole_bytes, kind), Comeback::Luck)?;
            tables.made.insert(name, nth + 1);
            if let Some(row) = tables.memory.get_mut(&made) {
                row.asked_bytes = len_bytes;
            }
            tables.live.insert(made);
            drop(tables);
            let buffer = Arc::new(Buffer { len_bytes, ..Buffer::clone(&whole) });
            thread.fill_at_once(&buffer)?;
            Ok(buffer)
        });
        self.allocated(call, buffer)
    }

    pub(crate) fn free(&mut self, verb: &Op, buffer: &Operand, after: Option<Token>) -> Result<(), Stop> {
        let Value::Buffer(buffer) = self.value(buffer) else { return Ok(()) };
        let words = self.words(verb);
        match buffer.memory.owner {
            Owner::Pool(pool) => {
                let mut tables = self.wait_inside(&words, self.admitted(pool))?;
                let Some(block) = buffer.block.filter(|block| tables.live.remove(block)) else {
                    return Ok(());
                };
                if let Some(event) = after {
                    let recorded = tables.events.get(&event).map_or(0, |row| row.records.len());
                    let nth = u32::try_from(recorded).expect("few records");
                    tables.pools.entry(pool).or_default().deferred.push((block, event, nth));
                } else if let Some(freed) = tables.blocks.remove(&block) {
                    tables.pools.entry(pool).or_default().pool.free(freed);
                }
                Ok(())
            }
            // A mapping is closed, not freed.
            Owner::Peer(_) => Ok(()),
            Owner::Program(_) => {
                let ordinary = {
                    let tables = self.run.tables();
                    let physical = tables.memory.get(&buffer.memory).and_then(|row| row.physical.as_ref());
                    physical.is_some_and(|physical| physical.kind() == MemoryKind::Cuda)
                };
                if ordinary && self.run.tables().captures() {
                    return self.free_in_capture(&words);
                }
                if ordinary {
                    // `cuMemFree` waits for the device; here somebody can see that it does.
                    self.drain(&words)?;
                }
                if buffer.block.is_some_and(|block| self.run.tables().live.remove(&block)) {
                    self.release(&words, buffer.memory)?;
                }
                Ok(())
            }
        }
    }

    /// What the driver says of a `cuMemFree` while a stream records, asked with memory that nobody else has.
    fn free_in_capture(&self, words: &str) -> Result<(), Stop> {
        let memory = Memory::alloc(&self.device, GRANULARITY_BYTES)?;
        let result = self.inside(words, WaitsFor::Hosts, |thread| thread.unrelaxed(|| memory.end()));
        self.noted(words, result).map(drop)
    }

    /// Gives physical memory back to the driver, once.
    fn release(&self, words: &str, memory: Made) -> Result<(), Stop> {
        let physical = {
            let mut tables = self.run.tables();
            let Some(row) = tables.memory.get_mut(&memory) else { return Ok(()) };
            let Some(physical) = row.physical.take() else { return Ok(()) };
            let free = (row.whole.base, row.whole.len_bytes);
            tables.free_addresses.push(free);
            tables.free_addresses.sort_unstable_by_key(|(base, len_bytes)| (base.first, *len_bytes));
            physical
        };
        let result = self.inside(words, WaitsFor::Hosts, |_| physical.end());
        self.noted(words, result).map(drop)
    }

    pub(crate) fn trim(&mut self, verb: &Op, pool: Token, release: Release) -> Result<Value, Stop> {
        let words = self.words(verb);
        let released: Vec<Arc<Buffer>> = {
            let mut tables = self.wait_inside(&words, self.admitted(pool))?;
            // A living graph keeps the segments of its pool.
            let kept = tables.reserved(pool);
            let row = tables.pools.entry(pool).or_default();
            let released = if kept { Vec::new() } else { row.pool.trim() };
            let whole = |segment: u32| {
                let memory = Made { owner: Owner::Pool(pool), nth: segment };
                Arc::clone(&tables.memory[&memory].whole)
            };
            released.into_iter().map(|gone| whole(gone.segment)).collect()
        };
        if release == Release::Now {
            for segment in &released {
                self.release(&words, segment.memory)?;
            }
        }
        Ok(Value::Trimmed(released.into()))
    }

    pub(crate) fn release_segment(&mut self, verb: &Op, segment: &Operand) -> Result<(), Stop> {
        let Value::Buffer(segment) = self.value(segment) else { return Ok(()) };
        let words = self.words(verb);
        self.release(&words, segment.memory)
    }

    /// Leaves free segments behind, as many and as long as luck wants; none of its own accord.
    pub(crate) fn havoc(&mut self, verb: &Op, pool: Token, max: u32, sizes: &[u64]) -> Result<(), Stop> {
        let words = self.words(verb);
        drop(self.wait_inside(&words, self.admitted(pool))?);
        for _ in 0..max {
            let wanted = self.wanted(Kind::Havoc);
            let which = wanted.as_ref().map_or(0, number).min(u32::try_from(sizes.len()).expect("few sizes"));
            if !sizes.is_empty() {
                self.took(wanted, Pick::Havoc { which });
            }
            let Some(len_bytes) = (which as usize).checked_sub(1).map(|at| sizes[at]) else { break };
            let left = self.inside(&words, WaitsFor::Hosts, |thread| {
                let mut tables = thread.run.tables();
                let mut row = tables.pools.remove(&pool).unwrap_or_default();
                let made = Made { owner: Owner::Pool(pool), nth: row.pool.next_segment() };
                let (kind, stream) = (row.memory, thread.run.source.default_stream());
                let left = row.pool.add_free(len_bytes.max(1), stream.0, |segment_bytes| {
                    let whole = thread.make(
                        &mut tables,
                        (made, pool, None),
                        (segment_bytes, kind),
                        Comeback::Never,
                    )?;
                    Ok(whole.base.address)
                });
                tables.pools.insert(pool, row);
                left
            });
            if let Err(error) = left {
                self.unbroken(&error)?;
                return Err(error.into());
            }
        }
        Ok(())
    }
}

/// Where memory that is still held lies.
fn base_of(tables: &Tables, address: u64) -> Option<Base> {
    let held = tables.memory.values().filter(|row| row.physical.is_some());
    held.map(|row| row.whole.base).find(|base| base.address == address)
}
