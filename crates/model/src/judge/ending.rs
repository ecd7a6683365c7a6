//! How each rank of a finished state ended, structurally: what a device is compared with.
//!
//! [`Outcome`](crate::machine::Outcome) says the same in words, for people and for telling outcomes apart.
//! Not here: what a device did.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::host::value::{Address, BlockId, Buffer, MemoryId, Value};
use crate::judge::finding::OpRef;
use crate::judge::ledger::CallError;
use crate::machine::{Machine, RankOutcome, locked};
use crate::noun::stream::Work;
use crate::noun::thread::Next;
use crate::number::{Numbers, Run};
use crate::program::{Answer, Dtype};
use crate::rank::{Rank, Thread};
use crate::state::State;

/// How a rank ended.
#[derive(Debug, Clone, PartialEq)]
pub struct Ending {
    /// How the rank ended, as outcomes say it.
    pub how: RankOutcome,
    /// Threads that are inside a call for ever.
    pub inside: Vec<StuckThread>,
    /// Streams that do not drain.
    pub undrained: Vec<StuckStream>,
    /// Calls that returned errors, in order.
    pub errors: Vec<CallError>,
    /// The answers of each thread.
    pub answers: Vec<Vec<Answer>>,
    /// The buffers that the program still has.
    pub held: Vec<HeldBuffer>,
    /// Memory in the order of its addresses, lowest first, as far as anybody looked.
    pub addresses: Vec<MemoryId>,
}

/// A host thread that never comes out of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StuckThread {
    /// The host thread, by its number on its rank.
    pub thread: Thread,
    /// Operations and questions before the call.
    pub index: u32,
    /// The call, in the spec's names.
    pub call: String,
    /// Whom it waits for.
    pub waits: Waits,
}

/// Whom a stuck thread waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waits {
    /// Work on its own streams, which do not drain.
    Device,
    /// Other threads, ranks, or nobody.
    Host,
}

/// A stream that never drains.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StuckStream {
    /// The name of the stream in the program.
    pub name: Arc<str>,
    /// The operation at its head.
    pub head: OpRef,
    /// The operation at its head, in words.
    pub what: String,
}

/// A buffer that the program holds at its end.
#[derive(Debug, Clone, PartialEq)]
pub struct HeldBuffer {
    /// The first slot that holds it: host thread.
    pub thread: Thread,
    /// The first slot that holds it: position among the thread's slots.
    pub slot: u32,
    /// Its name in the spec.
    pub name: Arc<str>,
    /// Length in bytes of the buffer, which may be less than its memory's.
    pub len_bytes: u64,
    /// What it holds; none where the numbers are not known.
    pub numbers: Option<Vec<Run>>,
}

impl Machine {
    /// How each rank of a finished state ended. Contents are numbers of this element type.
    #[must_use]
    pub fn endings(&self, state: &State, element: Dtype) -> Vec<Ending> {
        (0..self.config.ranks).map(|rank| self.ending(state, Rank(rank), element)).collect()
    }

    fn ending(&self, state: &State, rank: Rank, element: Dtype) -> Ending {
        let r = state.rank(rank);
        let undrained = r.streams().iter().filter(|(name, _)| !Self::hidden(*name));
        let undrained = undrained.filter_map(|(name, stream)| {
            let head = stream.head()?;
            Some(StuckStream {
                name: self.name(*name),
                head: head.issuer(),
                what: self.work_name(state, rank, &head.work),
            })
        });
        let mut addresses: Vec<MemoryId> = Vec::new();
        for value in r.address_order() {
            if let Value::Address(Address::Memory(address, _)) = value
                && !addresses.contains(&address.0)
            {
                addresses.push(address.0);
            }
        }
        Ending {
            how: self.rank_outcome(state, rank),
            inside: self.stuck_threads(state, rank),
            undrained: undrained.collect(),
            errors: r.errors().to_vec(),
            answers: r.threads().iter().map(|thread| thread.answers().to_vec()).collect(),
            held: self.held(state, rank, element),
            addresses,
        }
    }

    pub(crate) fn work_name(&self, state: &State, rank: Rank, work: &Work) -> String {
        match work {
            Work::Collective(launch) => self.call_name(launch),
            Work::Transfers(launch) => self.transfers_name(state, rank, launch),
            Work::Kernel(kernel) => format!("kernel {}", self.name(kernel.name)),
            Work::Copy { to, .. } => format!("the copy to {}", self.buffer_name(to)),
            Work::Expect(expected) => format!("the expectation in {}", self.buffer_name(&expected.buffer)),
            Work::Flag(flag, act) => format!("{}.{}", self.name(*flag), act.words()),
            Work::Fresh(buffer) => format!("the first contents of {}", self.buffer_name(buffer)),
            Work::GiveBack(buffer) => format!("the free of {}", self.buffer_name(buffer)),
            Work::Record(of) => format!("the record of {}", self.name(of.event)),
            Work::Wait(of) => format!("the wait for {}", self.name(of.event)),
        }
    }

    fn stuck_threads(&self, state: &State, rank: Rank) -> Vec<StuckThread> {
        let threads = state.rank(rank).threads().iter().zip((0..).map(Thread));
        threads
            .filter(|(t, _)| t.running())
            .map(|(t, thread)| {
                let device = matches!(t.upcoming(), Next::Op(op)
                    if op.op.verb().waits_for_device());
                let waits = if device && t.is_ready() { Waits::Device } else { Waits::Host };
                StuckThread { thread, index: t.index(), call: self.next_name(state, rank, thread), waits }
            })
            .collect()
    }

    /// The buffers that a rank still has, with the first slot that holds each.
    pub(crate) fn held_buffers(
        state: &State,
        rank: Rank,
    ) -> impl Iterator<Item = (Thread, u32, &Arc<Buffer>)> {
        let r = state.rank(rank);
        let mut listed: BTreeSet<BlockId> = BTreeSet::new();
        r.threads()
            .iter()
            .zip((0..).map(Thread))
            .flat_map(|(t, thread)| t.slots().iter().zip(0..).map(move |(value, slot)| (thread, slot, value)))
            .filter_map(move |(thread, slot, value)| {
                let Value::Buffer(buffer) = value else { return None };
                let block = buffer.block?;
                (r.is_live(block) && listed.insert(block)).then_some((thread, slot, buffer))
            })
    }

    fn held(&self, state: &State, rank: Rank, element: Dtype) -> Vec<HeldBuffer> {
        let name = |token| self.name(token);
        Self::held_buffers(state, rank)
            .map(|(thread, slot, buffer)| {
                let content = self.read(state, rank, &crate::noun::memory::ByteRange::of(buffer));
                let terms = locked(&self.terms);
                let numbers = Numbers::new(&terms, &name, element).content(&content, buffer.len_bytes);
                let (name, len_bytes) = (self.name(buffer.name), buffer.len_bytes);
                HeldBuffer { thread, slot, name, len_bytes, numbers }
            })
            .collect()
    }
}
