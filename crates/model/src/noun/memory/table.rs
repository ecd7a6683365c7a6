//! The memory of a rank: what was made, what it holds, and who accessed it.
//! Not here: which accesses race.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::Hash;
use std::sync::Arc;

use super::MemoryKind;
use crate::clock::Actor;
use crate::host::value::{AddressId, BlockId, Buffer, MemoryId};
use crate::id::Token;
use crate::identity::identify_as_hashed;
use crate::identity::{Identify, StateIdentity};
use crate::judge::finding::OpRef;
use crate::machine::{Machine, locked};
use crate::noun::ipc::Moment;
use crate::order::dependence::{Access, Object, ObjectKind};
use crate::state::{RankState, Table};
use crate::term::Content;
use crate::walk::{Rows, walk};

/// A past access; a function of positions, so not part of the identity of a state.
#[derive(Debug, Clone)]
pub(crate) struct Accessed {
    pub(super) offset_bytes: u64,
    pub(super) len_bytes: u64,
    pub(crate) actor: Actor,
    pub(crate) epoch: u32,
    pub(super) access: Access,
    pub(crate) op: OpRef,
    /// The block that is used, until it is judged to be given back in order.
    pub(super) block: Option<BlockId>,
}

identify_as_hashed!(MemoryKind);
walk!(apart struct Accessed {
    offset_bytes: hashed fixed,
    len_bytes: hashed fixed,
    actor: hashed moved,
    epoch: hashed fixed,
    access: hashed fixed,
    op: hashed moved,
    block: hashed fixed,
});

/// Physical memory of a rank: what lies in it, and who accessed it.
#[derive(Debug, Clone)]
pub(crate) struct Memory {
    pub(super) kind: MemoryKind,
    /// All that was asked for.
    pub(super) buffer: Arc<Buffer>,
    /// When it went back to the driver; a function of positions, like accesses.
    pub(super) released: Option<Moment>,
    /// Non-overlapping, by offset: start, length, contents.
    pub(super) pieces: Vec<(u64, u64, Content)>,
    pub(super) accesses: Vec<Accessed>,
}

walk!(apart struct Memory {
    // It follows from the operation that made it.
    kind: derived fixed,
    buffer: (address_of) fixed,
    // When that was is a function of positions.
    released: (Option::is_some) moved,
    pieces: hashed moved,
    accesses: derived moved,
});

impl Identify for Memory {
    fn identify(&self, to: &mut StateIdentity<'_>) {
        let Self { kind, buffer, released, pieces, accesses } = self;
        kind.identify(to);
        buffer.identify(to);
        released.identify(to);
        remembered_pieces(to.machine, pieces).identify(to);
        let unknown: Vec<&Accessed> =
            accesses.iter().filter(|access| !to.is_known(access.actor, access.epoch)).collect();
        // In whatever order commuting accesses came; and one like another says no more.
        to.unordered(unknown, |access, to| {
            let Accessed { offset_bytes, len_bytes, actor, epoch, access, op, block } = access;
            (offset_bytes, len_bytes, access, block).hash(to);
            actor.identify(to);
            op.identify(to);
            if to.asks_about(op.loc) {
                to.asked_about(*actor, *epoch);
            }
        });
    }
}

/// What lies in memory. Of what was forgotten only where it lies counts, and not in how many pieces.
fn remembered_pieces<'a>(
    machine: &Machine,
    pieces: &'a [(u64, u64, Content)],
) -> Vec<(u64, u64, Option<&'a Content>)> {
    let mut ranges: Vec<(u64, u64, Option<&Content>)> = Vec::with_capacity(pieces.len());
    let terms = locked(&machine.terms);
    for (start, len_bytes, content) in pieces {
        let content = (!terms.is_forgotten(content)).then_some(content);
        match ranges.last_mut() {
            Some((from, len, None)) if content.is_none() && *from + *len == *start => *len += len_bytes,
            _ => ranges.push((*start, *len_bytes, content)),
        }
    }
    ranges
}

fn address_of(buffer: &Arc<Buffer>) -> AddressId {
    buffer.address
}

/// The memory of a rank.
#[derive(Debug, Clone, Default)]
pub(crate) struct Memories {
    pub(super) rows: BTreeMap<MemoryId, Arc<Memory>>,
    /// Blocks that the program holds.
    pub(super) live: Arc<BTreeSet<BlockId>>,
    /// How often the program made memory of a name: a function of positions.
    pub(super) made: Rows<Token, u32>,
    /// What other ranks may come by.
    exported: Arc<BTreeSet<MemoryId>>,
}

walk!(apart struct Memories {
    rows: hashed moved,
    live: hashed fixed,
    made: derived fixed,
    // It says only who may still come by memory.
    exported: explains fixed,
});

impl Identify for Memories {
    fn identify(&self, to: &mut StateIdentity<'_>) {
        let Self { rows, live, made, exported: _ } = self;
        for (id, memory) in rows {
            if to.reachable().has(*id) {
                id.identify(to);
                memory.identify(to);
            }
        }
        u64::MAX.hash(to);
        for block in &**live {
            if to.reachable().has_block(*block) {
                block.hash(to);
            }
        }
        u64::MAX.hash(to);
        let counted = made.iter().filter(|(name, _)| to.is_used(Object::named(ObjectKind::Memory, *name)));
        to.unordered(counted.collect::<Vec<_>>(), |row, to| row.identify(to));
    }
}

impl Memory {
    /// Returns how the memory was allocated.
    pub(crate) fn kind(&self) -> MemoryKind {
        self.kind
    }

    /// The call that gave it back to the driver, once one did.
    pub(crate) fn freed_by(&self) -> Option<OpRef> {
        self.released.as_ref().map(|released| released.op)
    }

    /// All that was asked for.
    pub(crate) fn whole(&self) -> &Arc<Buffer> {
        &self.buffer
    }

    /// The uses of a block, until it is judged to be given back in order.
    pub(crate) fn uses_of(&self, block: BlockId) -> impl Iterator<Item = &Accessed> {
        self.accesses.iter().filter(move |access| access.block == Some(block))
    }

    /// Whether both hold the same, as far as it was not forgotten.
    pub(crate) fn holds_what(&self, other: &Self, machine: &Machine) -> bool {
        remembered_pieces(machine, &self.pieces) == remembered_pieces(machine, &other.pieces)
    }

    /// What accessed it, as far as somebody may ask about it.
    pub(crate) fn accesses(&self) -> &[Accessed] {
        &self.accesses
    }

    /// When it went back to the driver.
    pub(crate) fn released(&self) -> Option<&Moment> {
        self.released.as_ref()
    }
}

impl Memory {
    /// What is known to lie in it, by offset: start, length, contents.
    pub(crate) fn pieces(&self) -> &[(u64, u64, Content)] {
        &self.pieces
    }
}

impl RankState {
    /// All memory that was made, released or not.
    pub(crate) fn memories(&self) -> impl Iterator<Item = (MemoryId, &Memory)> {
        Memories::of(self).rows.iter().map(|(id, memory)| (*id, &**memory))
    }

    /// Memory that was made, released or not.
    pub(crate) fn memory(&self, id: MemoryId) -> Option<&Memory> {
        Memories::of(self).rows.get(&id).map(|memory| &**memory)
    }

    pub(super) fn memory_mut(&mut self, id: MemoryId) -> Option<&mut Memory> {
        Memories::of_mut(self).rows.get_mut(&id).map(Arc::make_mut)
    }

    /// What used a block needs no judging any more when it is given back.
    pub(crate) fn forget_uses(&mut self, memory: MemoryId, block: BlockId) {
        let Some(memory) = self.memory_mut(memory) else { return };
        let uses = memory.accesses.iter_mut().filter(|access| access.block == Some(block));
        uses.for_each(|access| access.block = None);
    }

    /// Whether memory was never made, or went back to the driver.
    pub(crate) fn is_gone(&self, id: MemoryId) -> bool {
        self.memory(id).is_none_or(|memory| memory.released.is_some())
    }

    /// The memory that other ranks may come by.
    pub(super) fn exported(&self) -> Arc<BTreeSet<MemoryId>> {
        Arc::clone(&Memories::of(self).exported)
    }

    /// Other ranks may come by memory from here on.
    pub(super) fn export(&mut self, memories: &BTreeSet<MemoryId>) {
        Arc::make_mut(&mut Memories::of_mut(self).exported).extend(memories);
    }

    /// Whether the program holds a block.
    pub(crate) fn is_live(&self, block: BlockId) -> bool {
        Memories::of(self).live.contains(&block)
    }

    /// The program gets a block.
    pub(crate) fn hand_out(&mut self, block: BlockId) {
        Arc::make_mut(&mut Memories::of_mut(self).live).insert(block);
    }

    /// The program gives a block up.
    pub(crate) fn take_back(&mut self, block: BlockId) {
        Arc::make_mut(&mut Memories::of_mut(self).live).remove(&block);
    }
}
