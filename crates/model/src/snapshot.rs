//! What the memory of a rank looks like after a step, in words: segments with their blocks and contents, windows, and
//! memory of other ranks that it has open. For somebody who looks at a run; no rule reads it.
//!
//! It is kept only with [`Explain::Memory`], and only where it changed.
//! Not here: who hands memory out (`noun/pool.rs`), and what a content is (`term.rs`).

use std::collections::BTreeMap;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::host::best_fit::Use;
use crate::host::value::{BlockId, MemoryId, Owner};
use crate::machine::{Explain, Machine, Value, locked};
use crate::noun::memory::{ByteRange, Memory};
use crate::noun::window::WindowFlags;
use crate::rank::Rank;
use crate::state::{RankState, State};
use crate::term::Content;

/// What the memory of one rank looks like.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MemorySnapshot {
    /// Memory that was allocated and is not back with the driver, or that a window or a mapping still names.
    pub memories: Vec<Arc<MemoryView>>,
    /// Registrations that a lookup finds.
    pub windows: Vec<WindowView>,
    /// Memory of other ranks that is open.
    pub mappings: Vec<MappingView>,
}

/// One piece of physical memory.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct MemoryView {
    /// As reports name it: `symm.S0` for the first segment of the pool `symm`.
    pub name: String,
    /// The vendor's call that allocated it.
    pub allocator: &'static str,
    /// Length of the whole memory.
    pub len_bytes: u64,
    /// The memory at whose address it lies, where it is not the first there.
    pub address_of: Option<String>,
    /// Whether it went back to the driver.
    pub released: bool,
    /// The blocks that cover it, if a pool has it.
    pub blocks: Vec<BlockView>,
    /// What is known to lie in it, by offset.
    pub contents: Vec<ContentView>,
}

/// A block of a segment.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct BlockView {
    /// Start in the segment.
    pub offset_bytes: u64,
    /// Length, as the pool rounded it.
    pub len_bytes: u64,
    /// The buffer that the program holds there; none where it is free.
    pub held: Option<Arc<str>>,
}

/// What lies in a range of memory.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ContentView {
    /// Start in the memory.
    pub offset_bytes: u64,
    /// Length of that range.
    pub len_bytes: u64,
    /// One text for the whole range, or one for each stripe, in communicator order.
    pub stripes: Arc<[String]>,
    /// What the program meant to lie there, in the same form, where the run is known to have left something else.
    pub meant: Option<Arc<[String]>>,
}

/// A registration of a rank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WindowView {
    /// The communicator that it was registered with.
    pub comm: Arc<str>,
    /// Its number among the set-up events of the communicator.
    pub nth: u32,
    /// The memory that was registered.
    pub memory: String,
    /// Start in that memory.
    pub offset_bytes: u64,
    /// Length of that range.
    pub len_bytes: u64,
    /// Whether symmetric kernels may use it.
    pub symmetric: bool,
    /// Whether it is gone and a lookup still finds it.
    pub dangling: bool,
}

/// Memory of another rank that a rank has open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MappingView {
    /// The rank whose memory it is.
    pub of: Rank,
    /// That memory, as its rank names it.
    pub memory: String,
    /// How often it was opened and not closed.
    pub opened: u32,
}

/// How the memory of a rank changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryChange {
    /// How many steps of the run were taken before.
    pub after: usize,
    /// Whose memory it is.
    pub rank: Rank,
    /// What it looks like from there on.
    pub memory: Arc<MemorySnapshot>,
}

/// Changes that are kept of one run, so that a long one does not fill the memory of this process.
const CHANGES_AT_MOST: usize = 100_000;

/// Memory, as it is noted while a run goes on.
#[derive(Debug, Default)]
pub(crate) struct MemoryNotes {
    changes: Vec<MemoryChange>,
    /// The last state that was looked at.
    seen: Option<State>,
    latest: Vec<Arc<MemorySnapshot>>,
    /// Names of blocks; a block never gets another one.
    blocks: FxHashMap<(Rank, BlockId), Arc<str>>,
    texts: FxHashMap<Content, Arc<[String]>>,
    /// Where a run left something else than the program meant.
    wrong: Vec<WrongContent>,
    /// Whether nobody specifies any more what memory holds.
    undefined: bool,
}

/// A piece of memory that holds something else than the program meant, until it is written again.
#[derive(Debug)]
struct WrongContent {
    rank: Rank,
    memory: MemoryId,
    offset_bytes: u64,
    len_bytes: u64,
    held: Content,
    meant: Arc<[String]>,
}

impl WrongContent {
    fn is_of(&self, (rank, memory): (Rank, MemoryId), piece: &(u64, u64, Content)) -> bool {
        let at = (self.offset_bytes, self.len_bytes) == (piece.0, piece.1);
        (self.rank, self.memory) == (rank, memory) && at && self.held == piece.2
    }
}

impl Machine {
    /// Notes what memory looks like before another step is taken.
    pub(crate) fn note_memory(&self, state: &mut State) {
        if self.config.explain == Explain::Memory {
            // A copy is kept.
            state.share();
            self.look(state);
        }
    }

    /// Notes that a range does not hold what the program meant it to, with [`Explain::Memory`].
    pub(crate) fn note_wrong(
        &self,
        state: &State,
        rank: Rank,
        range: &ByteRange,
        meant: impl FnOnce() -> Vec<String>,
    ) {
        if self.config.explain != Explain::Memory {
            return;
        }
        let Some(memory) = state.rank(rank).memory(range.memory) else { return };
        let meant: Arc<[String]> = meant().into();
        let end = range.offset_bytes + range.len_bytes;
        let inside = memory.pieces().iter().filter(|(at, len, _)| *at < end && range.offset_bytes < at + len);
        let wrong = inside.map(|(offset_bytes, len_bytes, held)| WrongContent {
            rank,
            memory: range.memory,
            offset_bytes: *offset_bytes,
            len_bytes: *len_bytes,
            held: held.clone(),
            meant: Arc::clone(&meant),
        });
        locked(&self.memory_notes).wrong.extend(wrong);
    }

    /// Returns how memory changed in the run that ends in this state, with [`Explain::Memory`]; in the order of the steps.
    #[must_use]
    pub fn memory_changes(&self, state: &State) -> Vec<MemoryChange> {
        if self.config.explain == Explain::Memory {
            self.look(state);
        }
        std::mem::take(&mut locked(&self.memory_notes).changes)
    }

    fn look(&self, state: &State) {
        let steps = locked(&self.notes).steps_so_far();
        let notes = &mut *locked(&self.memory_notes);
        if notes.changes.len() >= CHANGES_AT_MOST {
            return;
        }
        notes.latest.resize_with(self.config.ranks as usize, Arc::default);
        let seen = notes.seen.replace(state.clone());
        let became_undefined = self.undefined(state) && !notes.undefined;
        notes.undefined |= became_undefined;
        for rank in (0..self.config.ranks).map(Rank) {
            if !became_undefined && seen.as_ref().is_some_and(|seen| state.has_same_rank(seen, rank)) {
                continue;
            }
            let memory = self.snapshot(notes, state.rank(rank), rank);
            if *notes.latest[rank.at()] == memory {
                continue;
            }
            let memory = Arc::new(memory);
            notes.latest[rank.at()] = Arc::clone(&memory);
            notes.changes.push(MemoryChange { after: steps, rank, memory });
        }
    }

    fn snapshot(&self, notes: &mut MemoryNotes, r: &RankState, rank: Rank) -> MemorySnapshot {
        let mut windows = Vec::new();
        let mut named = Vec::new();
        for (comm, of) in r.comms() {
            for window in of.windows().rows().iter().filter(|window| window.is_live() || window.is_dangling())
            {
                let buffer = window.buffer();
                named.push(buffer.memory);
                windows.push(WindowView {
                    comm: self.comm_name(comm),
                    nth: window.nth(),
                    memory: self.memory_name(buffer.memory),
                    offset_bytes: buffer.offset_bytes,
                    len_bytes: buffer.len_bytes,
                    symmetric: window.flags() == WindowFlags::CollSymmetric,
                    dangling: !window.is_live(),
                });
            }
        }
        let mappings = r.mapped().map(|(of, memory, opened)| MappingView {
            of,
            memory: self.memory_name(memory),
            opened,
        });
        let mappings = mappings.collect();
        let before = Arc::clone(&notes.latest[rank.at()]);
        let known: BTreeMap<&str, &Arc<MemoryView>> =
            before.memories.iter().map(|view| (view.name.as_str(), view)).collect();
        let there = r.memories().filter(|(id, memory)| memory.released().is_none() || named.contains(id));
        // By name: whoever looks at it knows no ids.
        let mut there: Vec<_> = there.collect();
        there.sort_by_cached_key(|(id, _)| {
            let (Owner::Pool(name) | Owner::Program(name)) = id.owner;
            (matches!(id.owner, Owner::Program(_)), self.name(name), id.nth)
        });
        let memories = there.into_iter().map(|(id, memory)| {
            let view = self.memory_view(notes, (r, rank), id, memory);
            match known.get(view.name.as_str()) {
                Some(same) if ***same == view => Arc::clone(same),
                _ => Arc::new(view),
            }
        });
        MemorySnapshot { memories: memories.collect(), windows, mappings }
    }

    fn memory_view(
        &self,
        notes: &mut MemoryNotes,
        (r, rank): (&RankState, Rank),
        id: MemoryId,
        memory: &Memory,
    ) -> MemoryView {
        let whole = memory.whole();
        let blocks = r.blocks_of(id).iter().map(|block| BlockView {
            offset_bytes: block.offset_bytes,
            len_bytes: block.len_bytes,
            held: match block.held {
                Use::Free => None,
                Use::Used(id) => Some(self.block_name(notes, (r, rank), id)),
            },
        });
        let blocks = blocks.collect();
        let contents = if notes.undefined {
            vec![ContentView {
                offset_bytes: 0,
                len_bytes: whole.memory_len_bytes,
                stripes: Arc::new(["undefined".to_owned()]),
                meant: None,
            }]
        } else {
            memory.pieces().iter().map(|piece| self.content_view(notes, (rank, id), piece)).collect()
        };
        MemoryView {
            name: self.memory_name(id),
            allocator: memory.kind().vendor_call(),
            len_bytes: whole.memory_len_bytes,
            address_of: (whole.address.0 != id).then(|| self.memory_name(whole.address.0)),
            released: memory.released().is_some(),
            contents,
            blocks,
        }
    }

    fn content_view(
        &self,
        notes: &mut MemoryNotes,
        of: (Rank, MemoryId),
        piece: &(u64, u64, Content),
    ) -> ContentView {
        let (offset_bytes, len_bytes, content) = piece;
        let wrong = notes.wrong.iter().rev().find(|wrong| wrong.is_of(of, piece));
        let stripes = notes.texts.entry(content.clone()).or_insert_with(|| self.stripes(content).into());
        ContentView {
            offset_bytes: *offset_bytes,
            len_bytes: *len_bytes,
            stripes: Arc::clone(stripes),
            meant: wrong.map(|wrong| Arc::clone(&wrong.meant)),
        }
    }

    /// The contents of a range in words, stripe by stripe.
    pub(crate) fn stripes(&self, content: &Content) -> Vec<String> {
        match content {
            Content::Whole(_) => vec![self.show(content)],
            Content::Shares(shares) => shares.iter().map(|term| self.show(&Content::Whole(*term))).collect(),
        }
    }

    fn block_name(&self, notes: &mut MemoryNotes, (r, rank): (&RankState, Rank), id: BlockId) -> Arc<str> {
        if let Some(name) = notes.blocks.get(&(rank, id)) {
            return Arc::clone(name);
        }
        let is = |value: &&Value| value.buffer().is_some_and(|buffer| buffer.block == Some(id));
        let held = r.threads().iter().find_map(|thread| thread.slots().iter().find(is));
        let Some(buffer) = held.and_then(Value::buffer) else { return "held".into() };
        let name = self.name(buffer.name);
        notes.blocks.insert((rank, id), Arc::clone(&name));
        name
    }
}
