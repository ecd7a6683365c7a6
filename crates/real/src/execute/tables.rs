//! The tables of a rank: what its threads share while a program runs.
//!
//! Not here: calls of the device. What lies in these tables owns the device's objects until the case is
//! cleaned up.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rankcheck_model::{Entry, MemoryKind, Operand, Rank, SizeClasses, Source, TieBreak, Token};

use super::graph::GraphRow;
use super::value::{Address, Base, Buffer, Made, Value};
use crate::comm::Comm;
use crate::event::Event;
use crate::flag::Words;
use crate::ipc::{Handle, Mapping};
use crate::memory::Memory;
use crate::placement::Slots;
use crate::pool::{self, Pool};
use crate::segment::Segment;
use crate::stream::Stream;
use crate::window::Window;

/// A host thread.
#[derive(Debug)]
pub(crate) struct ThreadRow {
    pub(crate) entry: Entry,
    pub(crate) slots: Vec<Value>,
    pub(crate) ended: bool,
}

/// A pool with what the arithmetic does not know.
#[derive(Debug)]
pub(crate) struct PoolRow {
    pub(crate) pool: Pool,
    pub(crate) memory: MemoryKind,
    pub(crate) blocks_made: u32,
    /// Blocks that return once the n-th record of an event is seen complete.
    pub(crate) deferred: Vec<(Made, Token, u32)>,
    pub(crate) holder: Option<u32>,
}

impl PoolRow {
    pub(crate) fn new(classes: SizeClasses, tie: TieBreak, memory: MemoryKind) -> Self {
        let pool = Pool::new(classes, tie);
        Self { pool, memory, blocks_made: 0, deferred: Vec::new(), holder: None }
    }
}

impl Default for PoolRow {
    /// A pool that is used without having been declared.
    fn default() -> Self {
        Self::new(SizeClasses::Exact, TieBreak::Counter, MemoryKind::Nccl)
    }
}

/// Who owns physical memory.
#[derive(Debug)]
pub(crate) enum Physical {
    Segment(Segment),
    Ordinary(Memory),
}

impl Physical {
    pub(crate) fn kind(&self) -> MemoryKind {
        match self {
            Self::Segment(_) => MemoryKind::Nccl,
            Self::Ordinary(_) => MemoryKind::Cuda,
        }
    }

    pub(crate) fn end(self) -> Result<(), crate::Error> {
        match self {
            Self::Segment(segment) => segment.end(),
            Self::Ordinary(memory) => memory.end(),
        }
    }
}

/// Memory that was made; without an owner once it is released.
#[derive(Debug)]
pub(crate) struct MemoryRow {
    pub(crate) whole: Arc<Buffer>,
    /// Without what was added to make it whole pieces.
    pub(crate) asked_bytes: u64,
    pub(crate) physical: Option<Physical>,
}

/// Memory of another rank.
#[derive(Debug)]
pub(crate) struct MappingRow {
    pub(crate) of: Rank,
    pub(crate) name: String,
    pub(crate) handle: Handle,
    /// One for each open that was not closed yet.
    pub(crate) open: Vec<Mapping>,
}

/// Whether handles of a rank's memory were given out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Lends {
    #[default]
    Nothing,
    Memory,
}

/// A registration.
#[derive(Debug)]
pub(crate) struct WindowRow {
    pub(crate) window: Window,
    /// Nothing for memory that is no buffer.
    pub(crate) buffer: Option<Arc<Buffer>>,
    pub(crate) live: bool,
}

/// Whether a communicator outlives the case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kept {
    /// It is in the table of kept communicators.
    Kept,
    /// It ends with the case.
    Ours,
}

/// A communicator as this rank knows it.
#[derive(Debug)]
pub(crate) struct CommRow {
    pub(crate) name: Arc<str>,
    /// Where the library keeps it; a later communicator may get the address of one that was destroyed.
    pub(crate) address: usize,
    /// Nothing after it was destroyed for good.
    pub(crate) comm: Option<Arc<Comm>>,
    pub(crate) kept: Kept,
    pub(crate) destroyed: bool,
    pub(crate) windows: Vec<WindowRow>,
}

/// An event of the program: one of the device for each record.
#[derive(Debug, Default)]
pub(crate) struct EventRow {
    pub(crate) records: Vec<EventRecord>,
}

#[derive(Debug)]
pub(crate) struct EventRecord {
    pub(crate) event: Arc<Event>,
    pub(crate) stream: Token,
    /// Position among all records of the rank.
    pub(crate) nth: u32,
    /// Whether the program has already seen it complete, so that nothing is left to luck.
    pub(crate) known: bool,
}

/// What the threads of a rank share.
#[derive(Debug, Default)]
pub(crate) struct Tables {
    pub(crate) threads: Vec<ThreadRow>,
    pub(crate) pools: BTreeMap<Token, PoolRow>,
    /// Blocks of pools that have not gone back yet, deferred ones included.
    pub(crate) blocks: BTreeMap<Made, pool::Block>,
    pub(crate) memory: BTreeMap<Made, MemoryRow>,
    pub(crate) mappings: Vec<MappingRow>,
    /// Whether some other rank may work on memory of this one.
    pub(crate) lends: Lends,
    /// The flags of the case, from the first use of one.
    pub(crate) words: Option<Arc<Words>>,
    /// Allocations that the program has not freed.
    pub(crate) live: BTreeSet<Made>,
    pub(crate) maps: BTreeMap<Token, Vec<(Value, Value)>>,
    pub(crate) lists: BTreeMap<Token, Vec<Value>>,
    /// How often the program made memory of a name.
    pub(crate) made: BTreeMap<Token, u32>,
    pub(crate) inits: BTreeMap<Token, u32>,
    pub(crate) hosts: BTreeMap<Arc<[Rank]>, u32>,
    pub(crate) exchanges: BTreeMap<Arc<[Rank]>, u32>,
    /// Addresses of released memory with its length, in the order of the memory that was first there.
    pub(crate) free_addresses: Vec<(Base, u64)>,
    pub(crate) address_order: Vec<Value>,
    pub(crate) hash_order: Vec<Value>,
    pub(crate) comm_order: Vec<usize>,
    pub(crate) mutexes: BTreeMap<Token, u32>,
    pub(crate) comms: Vec<CommRow>,
    pub(crate) streams: Vec<(Token, Arc<Stream>)>,
    pub(crate) events: BTreeMap<Token, EventRow>,
    pub(crate) graphs: BTreeMap<Token, GraphRow>,
    /// The last record of each event on a stream that records.
    pub(crate) captured_events: BTreeMap<Token, Arc<Event>>,
    pub(crate) placed: Slots,
    /// How many records were made, of all events.
    pub(crate) recorded: u32,
    /// Events behind launches, for whoever inspects the rank.
    pub(crate) marks: Vec<Arc<Event>>,
    /// Memory for the sums of kernels.
    pub(crate) sums: Vec<Memory>,
}

impl Tables {
    /// What an operand is now.
    pub(crate) fn value(&self, source: &dyn Source, operand: &Operand) -> Value {
        let buffer_of = |of: &Operand| self.buffer(source, of);
        match operand {
            Operand::Null => Value::Null,
            Operand::Int(number) => Value::Int(*number),
            Operand::Token(token) => Value::Name(source.token(*token)),
            Operand::Bool(truth) => Value::Bool(*truth),
            Operand::Slot(slot) => {
                // A slot names the entry that its thread started from: each entry is started once.
                let thread = self.threads.iter().find(|thread| thread.entry == slot.entry);
                let value = thread.and_then(|thread| thread.slots.get(slot.index as usize));
                value.cloned().unwrap_or(Value::Null)
            }
            Operand::Slice { of, offset_bytes, len_bytes } => buffer_of(of).map_or(Value::Null, |buffer| {
                let mut slice = Buffer::clone(&buffer);
                slice.offset_bytes += offset_bytes;
                slice.len_bytes = *len_bytes;
                Value::Buffer(Arc::new(slice))
            }),
            Operand::Segment(of) => buffer_of(of)
                .and_then(|buffer| self.memory.get(&buffer.memory))
                .map_or(Value::Null, |memory| Value::Buffer(Arc::clone(&memory.whole))),
            Operand::At { of, like } => match (buffer_of(of), buffer_of(like)) {
                (Some(of), Some(like)) => {
                    let mut there = Buffer::clone(&of);
                    (there.offset_bytes, there.len_bytes) = (like.offset_bytes, like.len_bytes);
                    Value::Buffer(Arc::new(there))
                }
                _ => Value::Null,
            },
            Operand::Address(of) => match self.value(source, of) {
                Value::Buffer(buffer) => Value::Address(Address::Memory(buffer.base, buffer.offset_bytes)),
                Value::Comm(comm) => Value::Address(Address::Comm(self.comms[comm].address)),
                Value::Null
                | Value::Bool(_)
                | Value::Int(_)
                | Value::Name(_)
                | Value::Window(..)
                | Value::Handle(_)
                | Value::Thread(_)
                | Value::Trimmed(_)
                | Value::Address(_)
                | Value::Tuple(_)
                | Value::Stream(_)
                | Value::Event(_)
                | Value::Device
                | Value::Foreign(_) => Value::Null,
            },
            Operand::Tuple(parts) => {
                Value::Tuple(parts.iter().map(|part| self.value(source, part)).collect())
            }
            Operand::Stream(token) => Value::Stream(*token),
            Operand::Event(token) => Value::Event(*token),
            Operand::Device => Value::Device,
        }
    }

    /// The buffer that an operand is, if it is one.
    pub(crate) fn buffer(&self, source: &dyn Source, operand: &Operand) -> Option<Arc<Buffer>> {
        if let Value::Buffer(buffer) = self.value(source, operand) { Some(buffer) } else { None }
    }

    /// The number of the communicator that an operand is, destroyed or not.
    pub(crate) fn comm_number(&self, source: &dyn Source, operand: &Operand) -> Option<usize> {
        if let Value::Comm(comm) = self.value(source, operand) { Some(comm) } else { None }
    }

    /// Whether a window of the communicator holds the start of a buffer: greatest start, then the last
    /// registered; one look at its end.
    pub(crate) fn has_window(&self, comm: usize, buffer: &Buffer) -> bool {
        let mut best: Option<&Buffer> = None;
        for row in self.comms[comm].windows.iter().filter(|row| row.live) {
            let Some(window) = row.buffer.as_deref() else { continue };
            let starts = window.base.address == buffer.base.address
                && window.offset_bytes <= buffer.offset_bytes
                && best.is_none_or(|best| best.offset_bytes <= window.offset_bytes);
            if starts {
                best = Some(window);
            }
        }
        best.is_some_and(|window| buffer.offset_bytes - window.offset_bytes < window.len_bytes)
    }

    /// The program has seen complete what was recorded on a stream before this many records of the rank.
    pub(crate) fn know(&mut self, stream: Token, before: u32) {
        for record in self.events.values_mut().flat_map(|row| &mut row.records) {
            record.known |= record.stream == stream && record.nth < before;
        }
    }

    /// Puts the results of an operation into the slots of its thread.
    pub(crate) fn produce(&mut self, thread: u32, values: impl IntoIterator<Item = Value>) {
        self.threads[thread as usize].slots.extend(values);
    }
}

#[cfg(test)]
mod tests {
    use super::super::value::Owner;
    use super::*;

    fn buffer(address: u64, offset_bytes: u64, len_bytes: u64) -> Buffer {
        let memory = Made { owner: Owner::Program(Token(0)), nth: 0 };
        let base = Base { first: memory, address };
        Buffer { block: Some(memory), memory, base, offset_bytes, len_bytes, name: Token(0), grew: true }
    }

    #[test]
    fn a_pool_is_declared_once_and_undeclared_ones_are_plain() {
        let row = PoolRow::default();
        assert_eq!((row.pool.tie(), row.memory, row.blocks_made), (TieBreak::Counter, MemoryKind::Nccl, 0));
    }

    #[test]
    fn a_window_holds_what_starts_in_it() {
        let mut tables = Tables::default();
        let (name, kept) = ("tp".into(), Kept::Ours);
        tables.comms.push(CommRow {
            name,
            address: 0,
            comm: None,
            kept,
            destroyed: false,
            windows: Vec::new(),
        });
        assert!(!tables.has_window(0, &buffer(4096, 0, 8)));
    }
}
