//! Values: what slots, maps, lists and the store hold at run time.
//! Not here: the tables that the ids point into.

use std::sync::Arc;

use crate::rank::{Rank, Token};

/// A communicator, the same on all its members. Resolved by [`Machine::comm`](crate::machine::Machine::comm).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CommId(pub u32);

/// Who made a piece of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Owner {
    /// A pool, by name.
    Pool(Token),
    /// `ncclMemAlloc` or `cudaMalloc` called by the program, by the buffer's name.
    Program(Token),
}

/// Physical memory of a rank: the n-th that its owner made. Never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemoryId {
    /// Who made it.
    pub owner: Owner,
    /// Position among the owner's, from 0.
    pub nth: u32,
}

/// A range of virtual addresses, named by the memory that was first mapped there. The address of freed
/// memory may be handed out again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AddressId(pub MemoryId);

/// An allocation of the program: the n-th block that a pool handed out, or ordinary memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockId(pub MemoryId);

/// The n-th mapping of a rank, and the rank whose memory it maps. Never reused, not even after a close.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MappingId {
    /// Whose memory.
    pub of: Rank,
    /// Position among the mappings of the rank that opened it.
    pub nth: u32,
}

/// A range of memory that the program holds.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Buffer {
    /// The allocation it belongs to; none for a segment as such.
    pub block: Option<BlockId>,
    /// Physical memory.
    pub memory: MemoryId,
    /// Its address.
    pub address: AddressId,
    /// Start, from the start of the memory.
    pub offset_bytes: u64,
    /// Length.
    pub len_bytes: u64,
    /// Length of the whole memory.
    pub memory_len_bytes: u64,
    /// Name in reports.
    pub name: Token,
    /// The mapping through which it is reached, if it is memory of another rank.
    pub through: Option<MappingId>,
    /// Whether the allocation took a new segment.
    pub grew: bool,
}

impl Buffer {
    /// The rank whose memory it is, for a rank that holds it.
    #[must_use]
    pub fn home(&self, holder: Rank) -> Rank {
        self.through.map_or(holder, |mapping| mapping.of)
    }
}

/// An opaque address with equality.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Address {
    /// In memory, at a byte offset.
    Memory(AddressId, u64),
    /// In a mapping of a peer's memory, at a byte offset.
    Mapping(MappingId, u64),
    /// Of a communicator.
    Comm(CommId),
}

/// What a slot holds.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Value {
    /// Nothing: a failed call, Python's `None`.
    Null,
    /// A truth value.
    Bool(bool),
    /// A number.
    Int(i64),
    /// A name.
    Token(Token),
    /// A communicator.
    Comm(CommId),
    /// A buffer or a segment.
    Buffer(Arc<Buffer>),
    /// The n-th window of a communicator.
    Window(CommId, u32),
    /// A handle of an allocation of a rank: which memory, and at which address.
    Handle(Rank, Arc<Buffer>),
    /// A host thread of the rank.
    Thread(u32),
    /// The segments that a trim released.
    Trimmed(Arc<[Arc<Buffer>]>),
    /// An address.
    Address(Address),
    /// Several values as one.
    Tuple(Arc<[Value]>),
    /// A stream of the rank.
    Stream(Token),
    /// An event of the rank.
    Event(Token),
    /// The rank's device.
    Device,
}
