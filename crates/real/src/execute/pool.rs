//! Pools of a program on the device: blocks, deferred frees, the allocator's lock, histories.
//!
//! Not here: which block serves a request ([`rankcheck_model::host::best_fit`]), and memory ([`super::memory`]).

use std::borrow::Cow;
use std::convert::Infallible;
use std::sync::Arc;

use rankcheck_model::host::best_fit::{Rounded, Segment, best_fit};
use rankcheck_model::host::value::{BlockId, Buffer, MemoryId, Owner, Value};
use rankcheck_model::{PoolOp, Release, Token};

use super::dispatch::{Execute, Produced};
use super::inspect::WaitsFor;
use super::memory::{Comeback, OUT_OF_MEMORY};
use super::nondet::{NondetKind, number};
use super::tables::{PoolRow, Tables};
use super::thread::{Halt, ProgramThread};
use super::value::{OnDevice, own_memory};
use crate::Error;
use crate::case::NondetValue;
use crate::graph::Capturing;

impl Execute for PoolOp {
    fn execute(&self, thread: &mut ProgramThread<'_, '_>, text: &str) -> Produced {
        match self {
            Self::Declare { pool, classes, tie, memory } => {
                let mut tables = thread.run.tables();
                tables.pools.entry(*pool).or_insert_with(|| PoolRow::new(*classes, *tie, *memory));
            }
            Self::Lock { pool } => {
                let free = |tables: &Tables| tables.pools.get(pool).is_none_or(|row| row.holder.is_none());
                let mut tables = thread.wait_inside(text, free)?;
                tables.pools.entry(*pool).or_default().holder = Some(thread.number);
            }
            Self::Unlock { pool } => {
                thread.run.tables().pools.entry(*pool).or_default().holder = None;
                thread.run.changed.notify_all();
            }
            Self::Alloc { pool, name, len_bytes, stream } => {
                let buffer = thread.alloc(text, (*pool, *name), (*len_bytes, *stream))?;
                return Ok(vec![buffer]);
            }
            Self::Trim { pool, release } => return Ok(vec![thread.trim(text, *pool, *release)?]),
            Self::Havoc { pool, max, sizes_bytes } => thread.havoc(text, *pool, *max, sizes_bytes)?,
        }
        Ok(Vec::new())
    }
}

impl ProgramThread<'_, '_> {
    /// Whether no other thread holds the allocator's lock.
    fn admitted(&self, pool: Token) -> impl Fn(&Tables) -> bool {
        let number = self.number;
        move |tables| {
            let holder = tables.pools.get(&pool).and_then(|row| row.holder);
            holder.is_none_or(|holder| holder == number)
        }
    }

    fn alloc(
        &mut self,
        text: &str,
        (pool, name): (Token, Token),
        (len_bytes, stream): (u64, Token),
    ) -> Result<Value<OnDevice>, Halt> {
        let call = format!("{}.alloc", self.run.source.token(pool));
        drop(self.wait_inside(text, self.admitted(pool))?);
        if self.fails() {
            self.failed(call, OUT_OF_MEMORY, None);
            return Ok(Value::Null);
        }
        self.return_deferred(pool)?;
        let tables = self.wait_inside(text, self.admitted(pool))?;
        let buffer = self.inside(text, WaitsFor::Hosts, |thread| {
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

    /// Blocks whose events are seen complete go back to the pool, in the order in which they were freed.
    fn return_deferred(&self, pool: Token) -> Result<(), Halt> {
        // While a stream records, a caching allocator polls no events.
        if self.run.tables().captures() {
            return Ok(());
        }
        let deferred = self.run.tables().pools.get(&pool).map(|row| row.deferred.clone()).unwrap_or_default();
        // Behind what is not complete on a stream, a caching allocator asks about nothing.
        let mut busy = Vec::new();
        for (block, event, nth) in deferred {
            let stream = self.run.tables().record(event, nth).map(|record| record.stream);
            if stream.is_some_and(|stream| busy.contains(&stream)) {
                continue;
            }
            // Before the first record there is nothing to wait for.
            if !self.seen(event, nth)? {
                busy.extend(stream);
                continue;
            }
            let mut tables = self.run.tables();
            if let Some(row) = tables.pools.get_mut(&pool) {
                row.deferred.retain(|(other, ..)| *other != block);
                row.give_back(block);
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
    ) -> Result<Arc<Buffer<OnDevice>>, Error> {
        let request = row.classes.round(len_bytes).ok_or(Error::Size { len_bytes })?;
        let mut order = Cow::Borrowed(&tables.address_order[..]);
        let Ok(fit) = best_fit(&row.segments, request, stream, row.tie, &mut order, |order, value| {
            Ok::<_, Infallible>(self.position(order, value, NondetKind::AddressOrder))
        });
        tables.address_order = order.into_owned();
        let grew = fit.is_none();
        let (segment, block) = match fit {
            Some(position) => position,
            None => (self.grow(tables, row, pool, (request, stream), Comeback::Open)?, 0),
        };
        let id = BlockId(MemoryId { owner: Owner::Pool(pool), nth: row.blocks_made });
        row.blocks_made += 1;
        let segment = &mut row.segments[segment];
        let offset_bytes = segment.hold(block, request.block_bytes, row.classes, id);
        tables.live.insert(id);
        let whole = Buffer::clone(&segment.buffer);
        Ok(Arc::new(Buffer { block: Some(id), offset_bytes, len_bytes, name, grew, ..whole }))
    }

    /// Adds a segment to a pool that is free as a whole; its position.
    fn grow(
        &self,
        tables: &mut Tables,
        row: &mut PoolRow,
        pool: Token,
        (request, stream): (Rounded, Token),
        comeback: Comeback,
    ) -> Result<usize, Error> {
        let made = MemoryId { owner: Owner::Pool(pool), nth: row.segments_made };
        let whole = self.make(tables, (made, pool, None), (request.segment_bytes, row.memory), comeback)?;
        row.segments_made += 1;
        row.segments.push(Segment::free(whole, request, stream));
        Ok(row.segments.len() - 1)
    }

    pub(crate) fn free_block(
        &self,
        text: &str,
        pool: Token,
        buffer: &Buffer<OnDevice>,
        after: Option<Token>,
    ) -> Result<(), Halt> {
        let mut tables = self.wait_inside(text, self.admitted(pool))?;
        let Some(block) = buffer.block.filter(|block| tables.live.remove(block)) else { return Ok(()) };
        let recorded = after.map(|event| {
            let records = tables.events.get(&event).map_or(0, |row| row.records.len());
            (event, u32::try_from(records).expect("few records"))
        });
        let row = tables.pools.entry(pool).or_default();
        match recorded {
            Some((event, nth)) => row.deferred.push((block, event, nth)),
            None => row.give_back(block),
        }
        Ok(())
    }

    fn trim(&mut self, text: &str, pool: Token, release: Release) -> Result<Value<OnDevice>, Halt> {
        let released: Vec<Arc<Buffer<OnDevice>>> = {
            let mut tables = self.wait_inside(text, self.admitted(pool))?;
            // A living graph keeps the segments of its pool.
            let kept = tables.reserved(pool);
            let row = tables.pools.entry(pool).or_default();
            let idle = row.segments.extract_if(.., |segment| !kept && segment.is_idle());
            idle.map(|segment| segment.buffer).collect()
        };
        if release == Release::Now {
            for memory in released.iter().filter_map(|segment| own_memory(segment)) {
                self.release(text, memory)?;
            }
        }
        Ok(Value::Trimmed(released.into()))
    }

    /// Leaves free segments behind, as many and as long as the case forces; none of its own accord.
    fn havoc(&mut self, text: &str, pool: Token, max: u32, sizes: &[u64]) -> Result<(), Halt> {
        drop(self.wait_inside(text, self.admitted(pool))?);
        for _ in 0..max {
            let wanted = self.wanted(NondetKind::Havoc);
            let which = wanted.as_ref().map_or(0, number).min(u32::try_from(sizes.len()).expect("few sizes"));
            if !sizes.is_empty() {
                self.took(wanted, NondetValue::Havoc { which });
            }
            let Some(len_bytes) = (which as usize).checked_sub(1).map(|at| sizes[at]) else { break };
            let left = self.inside(text, WaitsFor::Hosts, |thread| {
                let mut tables = thread.run.tables();
                let mut row = tables.pools.remove(&pool).unwrap_or_default();
                let request = row.classes.round(len_bytes).ok_or(Error::Size { len_bytes });
                let stream = thread.run.source.default_stream();
                let left = request.and_then(|request| {
                    thread.grow(&mut tables, &mut row, pool, (request, stream), Comeback::Never)
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
