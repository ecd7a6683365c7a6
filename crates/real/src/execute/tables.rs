//! The tables of a rank: what its threads share while a program runs.
//!
//! Not here: calls of the device. What lies in these tables owns the device's objects until the case is
//! cleaned up.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rankcheck_model::host::best_fit::{Segment, position};
use rankcheck_model::host::container::Containers;
use rankcheck_model::host::lookup::window_of;
use rankcheck_model::host::operand::Known;
use rankcheck_model::host::value::{Address, BlockId, Buffer, CommId, MemoryId, Value};
use rankcheck_model::{
    HandleKind, MemoryKind, Operand, Rank, SizeClasses, Slot, Source, ThreadStart, TieBreak, Token,
};

use super::graph::GraphRow;
use super::value::{Base, OnDevice, own_memory};
use crate::comm::NcclComm;
use crate::event::CudaEvent;
use crate::flag::HostWords;
use crate::ipc::{IpcHandleBytes, PeerMapping};
use crate::memory::CudaMemory;
use crate::placement::TakenSlots;
use crate::segment::NcclSegment;
use crate::stream::CudaStream;
use crate::window::NcclWindow;

/// A host thread of the program: what it runs, what its operations produced, and whether it has ended.
#[derive(Debug)]
pub(crate) struct ThreadRow {
    pub(crate) start: ThreadStart,
    pub(crate) slots: Vec<Value<OnDevice>>,
    pub(crate) ended: bool,
}

/// A pool of the rank: its segments, how it hands out blocks, and which thread holds its lock.
#[derive(Debug)]
pub(crate) struct PoolRow {
    pub(crate) classes: SizeClasses,
    pub(crate) tie: TieBreak,
    pub(crate) memory: MemoryKind,
    pub(crate) segments: Vec<Segment<OnDevice>>,
    pub(crate) segments_made: u32,
    pub(crate) blocks_made: u32,
    /// Blocks that return once the n-th record of an event is seen complete.
    pub(crate) deferred: Vec<(BlockId, Token, u32)>,
    pub(crate) holder: Option<u32>,
}

impl PoolRow {
    pub(crate) fn new(classes: SizeClasses, tie: TieBreak, memory: MemoryKind) -> Self {
        Self {
            classes,
            tie,
            memory,
            segments: Vec::new(),
            segments_made: 0,
            blocks_made: 0,
            deferred: Vec::new(),
            holder: None,
        }
    }

    /// Takes a block back.
    pub(crate) fn give_back(&mut self, id: BlockId) {
        if let Some((segment, block)) = position(&self.segments, id) {
            self.segments[segment].give_back(block);
        }
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
    Segment(NcclSegment),
    Ordinary(CudaMemory),
}

impl Physical {
    /// The handle by which other processes open it.
    pub(crate) fn handle(&self) -> HandleKind {
        match self {
            Self::Segment(_) => HandleKind::Shareable,
            Self::Ordinary(_) => HandleKind::Ipc,
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
    pub(crate) whole: Arc<Buffer<OnDevice>>,
    /// Without what was added to make it whole pieces.
    pub(crate) asked_bytes: u64,
    pub(crate) physical: Option<Physical>,
}

/// Memory of another rank.
#[derive(Debug)]
pub(crate) struct MappingRow {
    pub(crate) of: Rank,
    pub(crate) name: String,
    /// None of what was imported by a shareable handle: each import is a mapping of its own.
    pub(crate) handle: Option<IpcHandleBytes>,
    /// One for each open that was not closed yet.
    pub(crate) open: Vec<PeerMapping>,
}

/// Whether handles of a rank's memory were given out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Exports {
    #[default]
    Nothing,
    Memory,
}

/// A registration of a window, kept after its end because windows are numbered by position.
#[derive(Debug)]
pub(crate) struct WindowRow {
    pub(crate) window: NcclWindow,
    /// Nothing for memory that is no buffer.
    pub(crate) buffer: Option<Arc<Buffer<OnDevice>>>,
    pub(crate) live: bool,
}

/// Whether a communicator outlives the case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CommLifetime {
    /// It does: it is in the table of kept communicators.
    Process,
    /// It ends with the case.
    Case,
}

/// A communicator as this rank knows it.
#[derive(Debug)]
pub(crate) struct CommRow {
    pub(crate) name: Arc<str>,
    /// Where the library keeps it; a later communicator may get the address of one that was destroyed.
    pub(crate) address: usize,
    /// Nothing after it was destroyed for good.
    pub(crate) comm: Option<Arc<NcclComm>>,
    pub(crate) lifetime: CommLifetime,
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
    pub(crate) event: Arc<CudaEvent>,
    pub(crate) stream: Token,
    /// Position among all records of the rank.
    pub(crate) nth: u32,
    /// Whether the program has already seen it complete, so that nothing is left open.
    pub(crate) known: bool,
}

/// What the threads of a rank share.
#[derive(Debug, Default)]
pub(crate) struct Tables {
    pub(crate) threads: Vec<ThreadRow>,
    pub(crate) pools: BTreeMap<Token, PoolRow>,
    pub(crate) memory: BTreeMap<MemoryId, MemoryRow>,
    pub(crate) mappings: Vec<MappingRow>,
    /// Whether some other rank may work on memory of this one.
    pub(crate) exports: Exports,
    /// The flags of the case, from the first use of one.
    pub(crate) host_words: Option<Arc<HostWords>>,
    /// Allocations that the program has not freed.
    pub(crate) live: BTreeSet<BlockId>,
    pub(crate) containers: Containers<OnDevice>,
    /// How often the program made memory of a name.
    pub(crate) made: BTreeMap<Token, u32>,
    pub(crate) inits: BTreeMap<Token, u32>,
    pub(crate) hosts: BTreeMap<Arc<[Rank]>, u32>,
    pub(crate) exchanges: BTreeMap<Arc<[Rank]>, u32>,
    /// Addresses of released memory with its length, in the order of the memory that was first there.
    pub(crate) free_addresses: Vec<(Base, u64)>,
    pub(crate) address_order: Vec<Value<OnDevice>>,
    pub(crate) hash_order: Vec<Value<OnDevice>>,
    pub(crate) mutexes: BTreeMap<Token, u32>,
    pub(crate) comms: Vec<CommRow>,
    pub(crate) streams: Vec<(Token, Arc<CudaStream>)>,
    pub(crate) events: BTreeMap<Token, EventRow>,
    pub(crate) graphs: BTreeMap<Token, GraphRow>,
    /// The last record of each event, where it was made on a stream that recorded.
    pub(crate) captured_events: BTreeMap<Token, Arc<CudaEvent>>,
    pub(crate) placed: TakenSlots,
    /// How many records were made, of all events.
    pub(crate) recorded: u32,
    /// Events behind launches, for whoever inspects the rank.
    pub(crate) marks: Vec<Arc<CudaEvent>>,
    /// Memory for the sums of kernels.
    pub(crate) sums: Vec<CudaMemory>,
}

/// A rank, as operands of its threads are evaluated.
struct RankView<'a> {
    tables: &'a Tables,
    source: &'a dyn Source,
}

impl Known<OnDevice> for RankView<'_> {
    fn name(&self, token: Token) -> Arc<str> {
        self.source.token(token)
    }

    fn slot(&self, slot: Slot) -> Option<&Value<OnDevice>> {
        let thread = self.tables.threads.iter().find(|thread| thread.start == slot.start);
        thread.and_then(|thread| thread.slots.get(slot.index as usize))
    }

    fn segment(&self, buffer: &Buffer<OnDevice>) -> Option<Arc<Buffer<OnDevice>>> {
        let memory = self.tables.memory.get(&own_memory(buffer)?)?;
        Some(Arc::clone(&memory.whole))
    }

    fn address(&self, buffer: &Buffer<OnDevice>) -> Address<OnDevice> {
        // A pointer does not know that it was opened by a handle.
        Address::Memory(buffer.address, buffer.offset_bytes)
    }

    fn comm_address(&self, comm: CommId) -> CommId {
        let address = self.tables.comm(comm).address;
        let first = self.tables.comms.iter().position(|row| row.address == address);
        first.map_or(comm, |at| CommId(at as u64))
    }
}

impl Tables {
    /// What an operand is now.
    pub(crate) fn value(&self, source: &dyn Source, operand: &Operand) -> Value<OnDevice> {
        operand.evaluate(&RankView { tables: self, source })
    }

    /// The n-th record of an event, or the last one if there are fewer; none before the first.
    pub(crate) fn record(&self, event: Token, nth: u32) -> Option<&EventRecord> {
        let records = &self.events.get(&event)?.records;
        records[..records.len().min(nth as usize)].last()
    }

    /// The buffer that an operand is, if it is one.
    pub(crate) fn buffer(&self, source: &dyn Source, operand: &Operand) -> Option<Arc<Buffer<OnDevice>>> {
        self.value(source, operand).buffer().map(Arc::clone)
    }

    /// The communicator that an operand is, destroyed or not.
    pub(crate) fn comm_of(&self, source: &dyn Source, operand: &Operand) -> Option<CommId> {
        if let Value::Comm(comm) = self.value(source, operand) { Some(comm) } else { None }
    }

    pub(crate) fn comm(&self, comm: CommId) -> &CommRow {
        &self.comms[comm.0 as usize]
    }

    pub(crate) fn comm_mut(&mut self, comm: CommId) -> &mut CommRow {
        &mut self.comms[comm.0 as usize]
    }

    /// Whether a window of the communicator holds the start of a buffer.
    pub(crate) fn has_window(&self, comm: CommId, buffer: &Buffer<OnDevice>) -> bool {
        let live = self.comm(comm).windows.iter().filter(|row| row.live);
        window_of(buffer, live.filter_map(|row| Some((row.buffer.as_deref()?, ())))).is_some()
    }

    /// The program has seen complete what was recorded on a stream before this many records of the rank.
    pub(crate) fn know(&mut self, stream: Token, before: u32) {
        for record in self.events.values_mut().flat_map(|row| &mut row.records) {
            record.known |= record.stream == stream && record.nth < before;
        }
    }

    /// Puts the results of an operation into the slots of its thread.
    pub(crate) fn produce(&mut self, thread: u32, values: Vec<Value<OnDevice>>) {
        self.threads[thread as usize].slots.extend(values);
    }
}

#[cfg(test)]
mod tests {
    use super::super::value::tests::block;
    use super::*;

    fn comm(address: usize) -> CommRow {
        let (name, lifetime) = ("tp".into(), CommLifetime::Case);
        CommRow { name, address, comm: None, lifetime, destroyed: false, windows: Vec::new() }
    }

    #[test]
    fn a_pool_that_was_not_declared_is_plain() {
        let row = PoolRow::default();
        assert_eq!((row.tie, row.memory, row.blocks_made), (TieBreak::Counter, MemoryKind::Nccl, 0));
    }

    #[test]
    fn nothing_is_found_where_nothing_is_registered() {
        let tables = Tables { comms: vec![comm(0)], ..Tables::default() };
        let buffer = block(0, 4096, (0, 8));
        assert!(!tables.has_window(CommId(0), buffer.buffer().expect("a block is a buffer")));
    }

    #[test]
    fn the_address_of_a_communicator_is_that_of_the_first_one_there() {
        let tables = Tables { comms: vec![comm(64), comm(128), comm(64)], ..Tables::default() };
        let known = RankView { tables: &tables, source: &super::super::naming::tests::NumberedTokens };
        let addresses = [0, 1, 2].map(|comm| known.comm_address(CommId(comm)));
        assert_eq!(addresses, [CommId(0), CommId(1), CommId(0)]);
    }
}
