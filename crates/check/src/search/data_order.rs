//! Whether a changed block of a program still does with data what the unchanged one does.
//!
//! A program that holds is no repair if it computes something else: sends a buffer before it is written, or never waits
//! for what it receives. So of two launches that use the same bytes, one to write them, the first stays the first; and
//! what the host waits for in a block it still waits for there.
//! Not here: which changes are tried ([`super::repair`]).

use std::collections::BTreeMap;
use std::sync::Arc;

use rankcheck_model::{
    Block, Collective, CollectiveKind, Direction, GraphOp, GroupOp, MemoryOp, Op, Operand, ReduceOp, Slot,
    Statement, StreamOp, Token,
};
use rustc_hash::FxHashMap;

/// Bytes of what an operation produced that a launch uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct DataUse {
    of: Slot,
    from: u64,
    until: u64,
    way: DataWay,
}

/// What is done to bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DataWay {
    Read,
    Write,
    /// All-reduces in place: of several with one operation either may be the first.
    Reduce(ReduceOp),
}

impl DataWay {
    fn minds(self, other: Self) -> bool {
        match (self, other) {
            (Self::Read, Self::Read) => false,
            (Self::Reduce(one), Self::Reduce(other)) => one != other,
            (Self::Read | Self::Write | Self::Reduce(_), _) => true,
        }
    }
}

impl DataUse {
    fn of(operand: &Operand, way: DataWay) -> Option<Self> {
        match operand {
            Operand::Slot(slot) => Some(Self { of: *slot, from: 0, until: u64::MAX, way }),
            Operand::Slice { of, offset_bytes, len_bytes } => {
                let whole = Self::of(of, way)?;
                let from = whole.from + offset_bytes;
                Some(Self { from, until: from + len_bytes, ..whole })
            }
            // Where a buffer lies in its segment is not known here.
            Operand::Segment(of) | Operand::At { of, like: _ } => {
                Self::of(of, way).map(|whole| Self { from: 0, until: u64::MAX, ..whole })
            }
            Operand::Null
            | Operand::Int(_)
            | Operand::Token(_)
            | Operand::Bool(_)
            | Operand::Address(_)
            | Operand::Tuple(_)
            | Operand::Stream(_)
            | Operand::Event(_)
            | Operand::Device => None,
        }
    }

    fn minds(&self, other: &Self) -> bool {
        self.from < other.until && other.from < self.until && self.way.minds(other.way)
    }
}

/// What one statement launches.
#[derive(Debug)]
struct DataLaunch {
    uses: Vec<DataUse>,
    /// The statement behind which it is launched: itself, or the end of its group.
    at: usize,
    /// Whether the host waits for it further on in the block.
    awaited: bool,
}

/// The launches of a block, by what they are and by how many of the same come before.
type DataLaunches = BTreeMap<(usize, u32), DataLaunch>;

/// Whether of two launches that use the same bytes the first is still the first, and whether what was waited for still is.
pub(super) fn keeps_data_order(before: &Block, after: &Block) -> bool {
    let (before, after) = (launches(before), launches(after));
    let mut by_slot: FxHashMap<Slot, Vec<(usize, usize, DataUse)>> = FxHashMap::default();
    for (which, launch) in &before {
        // A call that is left out is told to be.
        let Some(now) = after.get(which) else { continue };
        if launch.awaited && !now.awaited {
            return false;
        }
        for used in &launch.uses {
            by_slot.entry(used.of).or_default().push((launch.at, now.at, *used));
        }
    }
    by_slot.into_values().all(|mut uses| {
        uses.sort_by_key(|(before, ..)| *before);
        in_order(&uses)
    })
}

/// Whether uses of one thing, in the order in which they were, are still in that order as far as they mind.
fn in_order(uses: &[(usize, usize, DataUse)]) -> bool {
    let turned = |one: &(usize, usize, DataUse), other: &(usize, usize, DataUse)| {
        one.0 < other.0 && one.1 >= other.1 && one.2.minds(&other.2)
    };
    // Most changes turn nothing round.
    let together = uses.chunk_by(|one, other| one.0 == other.0);
    let spans = together.filter_map(|part| {
        let after = || part.iter().map(|(_, after, _)| *after);
        Some((after().min()?, after().max()?))
    });
    spans.clone().zip(spans.skip(1)).all(|(one, other)| one.1 < other.0)
        || uses.iter().enumerate().all(|(at, used)| !uses[..at].iter().any(|earlier| turned(earlier, used)))
}

fn launches(block: &Block) -> DataLaunches {
    let mut seen: FxHashMap<usize, u32> = FxHashMap::default();
    let mut all = DataLaunches::new();
    let (ends, awaited) = (group_ends(&block.ops), HostWaits::of(&block.ops));
    for (at, statement) in block.ops.iter().enumerate() {
        let Some((stream, uses)) = data_of(&statement.op, &block.ops[..at]) else { continue };
        let which = Arc::as_ptr(&statement.op) as usize;
        let nth = seen.entry(which).or_default();
        let grouped = matches!(*statement.op, Op::Collective(_) | Op::Transfer(_));
        let launched = if grouped { ends[at] } else { at };
        let awaited = awaited.after(launched, stream);
        all.insert((which, *nth), DataLaunch { uses, at: launched, awaited });
        *nth += 1;
    }
    all
}

/// Of each statement, where the group ends that it lies in; itself if it lies in none.
fn group_ends(ops: &[Statement]) -> Vec<usize> {
    let mut ends: Vec<usize> = (0..ops.len()).collect();
    let (mut depth, mut begun) = (0_u32, 0);
    for (at, statement) in ops.iter().enumerate() {
        let Op::Group(group) = &*statement.op else { continue };
        match group {
            GroupOp::Start => {
                begun = if depth == 0 { at } else { begun };
                depth += 1;
            }
            GroupOp::End => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    ends[begun..at].fill(at);
                }
            }
        }
    }
    ends
}

/// How far into a block something is still waited for: the device, and each stream.
#[derive(Debug, Default)]
struct HostWaits {
    device: Option<usize>,
    streams: FxHashMap<Token, usize>,
}

impl HostWaits {
    fn of(ops: &[Statement]) -> Self {
        let mut awaited = Self::default();
        // Events that are waited for, and were not recorded yet, seen from behind.
        let mut events = Vec::new();
        for (at, statement) in ops.iter().enumerate().rev() {
            if let Op::Event(record) = &*statement.op
                && events.contains(&record.event)
            {
                events.retain(|event| *event != record.event);
                awaited.streams.entry(record.stream).or_insert(at);
            }
            let Op::Stream(StreamOp::Synchronize { what }) = &*statement.op else { continue };
            match what {
                Operand::Device => awaited.device = awaited.device.or(Some(at)),
                Operand::Stream(stream) => {
                    awaited.streams.entry(*stream).or_insert(at);
                }
                Operand::Event(event) => events.push(*event),
                Operand::Null
                | Operand::Int(_)
                | Operand::Token(_)
                | Operand::Bool(_)
                | Operand::Slot(_)
                | Operand::Slice { .. }
                | Operand::Segment(_)
                | Operand::Address(_)
                | Operand::At { .. }
                | Operand::Tuple(_) => {}
            }
        }
        awaited
    }

    /// Whether what is launched on a stream at a statement is waited for behind it.
    fn after(&self, launched: usize, stream: Token) -> bool {
        let last = self.device.into_iter().chain(self.streams.get(&stream).copied()).max();
        last.is_some_and(|last| last > launched)
    }
}

/// The stream of what an operation launches, and the data that it uses.
fn data_of(op: &Op, before: &[Statement]) -> Option<(Token, Vec<DataUse>)> {
    let read = |operand: &Operand| DataUse::of(operand, DataWay::Read);
    let written = |operand: &Operand| DataUse::of(operand, DataWay::Write);
    match op {
        Op::Stream(StreamOp::Kernel { name: _, reads, writes, stream }) => {
            Some((*stream, reads.iter().filter_map(read).chain(writes.iter().filter_map(written)).collect()))
        }
        Op::Memory(MemoryOp::Copy { to, from, stream }) => {
            Some((*stream, read(from).into_iter().chain(written(to)).collect()))
        }
        Op::Memory(MemoryOp::Expect { buffer, stream, .. }) => {
            Some((*stream, read(buffer).into_iter().collect()))
        }
        Op::Collective(call) => Some((call.stream, data_of_collective(call))),
        Op::Transfer(call) => {
            let used = match call.direction {
                Direction::Send => read(&call.buffer),
                Direction::Recv => written(&call.buffer),
            };
            Some((call.stream, used.into_iter().collect()))
        }
        Op::Graph(GraphOp::Replay { graph, stream }) => Some((*stream, data_of_graph(*graph, before))),
        Op::Stream(StreamOp::Wait { .. } | StreamOp::Synchronize { .. })
        | Op::Memory(
            MemoryOp::Free { .. }
            | MemoryOp::FreeOn { .. }
            | MemoryOp::Release { .. }
            | MemoryOp::Alloc { .. },
        )
        | Op::Graph(GraphOp::Begin { .. } | GraphOp::End { .. } | GraphOp::Destroy { .. })
        | Op::Thread(_)
        | Op::Comm(_)
        | Op::Window(_)
        | Op::Group(_)
        | Op::Overlap(_)
        | Op::Event(_)
        | Op::Pool(_)
        | Op::Ipc(_)
        | Op::Exchange(_)
        | Op::Barrier(_)
        | Op::Mutex(_)
        | Op::Store(_)
        | Op::Flag(_)
        | Op::Map(_)
        | Op::List(_) => None,
    }
}

fn data_of_collective(call: &Collective) -> Vec<DataUse> {
    let Collective { kind, send, recv, op, .. } = call;
    if *kind == CollectiveKind::AllReduce && send == recv {
        return DataUse::of(send, DataWay::Reduce(*op)).into_iter().collect();
    }
    let (read, written) = (DataUse::of(send, DataWay::Read), DataUse::of(recv, DataWay::Write));
    read.into_iter().chain(written).collect()
}

/// What was recorded into a graph.
fn data_of_graph(graph: Token, before: &[Statement]) -> Vec<DataUse> {
    let is_begin = |op: &Op| matches!(op, Op::Graph(GraphOp::Begin { graph: begun, .. }) if *begun == graph);
    let is_end = |op: &Op| matches!(op, Op::Graph(GraphOp::End { graph: ended }) if *ended == graph);
    let Some(begun) = before.iter().rposition(|statement| is_begin(&statement.op)) else { return Vec::new() };
    let recorded = before[begun + 1..].iter().take_while(|statement| !is_end(&statement.op));
    let of = |statement: &Statement| data_of(&statement.op, &before[..begun]).map(|(_, uses)| uses);
    recorded.filter_map(of).flatten().collect()
}
