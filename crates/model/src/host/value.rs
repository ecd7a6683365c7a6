//! Values: what slots, maps, lists and the store hold at run time, in the model and on devices.
//!
//! Both compute with the same values and call the objects in them differently: the model by ids that mean the
//! same on every rank, a device by what the vendor handed out. [`Objects`] names the difference.
//! Not here: the tables that the ids point into.

use std::convert::Infallible;
use std::fmt::Debug;
use std::hash::Hash;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::id::{ContentId, Token};
use crate::program::Answer;
use crate::rank::Rank;

/// What the objects in values are called by whoever runs a program.
pub trait Objects: Debug + Clone + Ord + Hash {
    /// A name that a value carries.
    type Name: Debug + Clone + Ord + Hash;
    /// What names physical memory.
    type Memory: Debug + Copy + Ord + Hash;
    /// What names an address at which memory starts.
    type Address: Debug + Copy + Ord + Hash;
    /// Memory of a rank, as its handle knows it.
    type Exported: Debug + Clone + Ord + Hash;
    /// An object of another rank that is good for nothing but a comparison.
    type Foreign: Debug + Clone + Ord + Hash;
}

/// Objects as the model calls them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Modelled {}

impl Objects for Modelled {
    type Name = Token;
    type Memory = MemoryId;
    type Address = AddressId;
    type Exported = Buffer;
    /// The model knows every object.
    type Foreign = Infallible;
}

/// A communicator: in the model made from how it came about, and so the same on all its members, where
/// [`Machine::comm`](crate::machine::Machine::comm) resolves it; on a device a number of one rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct CommId(pub u64);

impl ContentId for CommId {
    const NOUN: &'static str = "communicators";

    fn of_hash(hash: u64) -> Self {
        Self(hash)
    }
}

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
    /// The pool or the program, whichever made it.
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
    /// The rank whose memory it maps.
    pub of: Rank,
    /// Position among the mappings of the rank that opened it.
    pub nth: u32,
}

/// A range of memory that the program holds.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Buffer<O: Objects = Modelled> {
    /// The allocation it belongs to; none for a segment as such.
    pub block: Option<BlockId>,
    /// The physical memory that it lies in.
    pub memory: O::Memory,
    /// The address at which that memory starts.
    pub address: O::Address,
    /// Start, from the start of the memory.
    pub offset_bytes: u64,
    /// Length in bytes, from `offset_bytes` on.
    pub len_bytes: u64,
    /// Length of the whole memory.
    pub memory_len_bytes: u64,
    /// The name that reports print.
    pub name: Token,
    /// The mapping through which it is reached, if it is memory of another rank.
    pub through: Option<MappingId>,
    /// Whether the allocation took a new segment.
    pub grew: bool,
}

impl<O: Objects> Buffer<O> {
    /// The rank whose memory it is, for a rank that holds it.
    #[must_use]
    pub fn home(&self, holder: Rank) -> Rank {
        self.through.map_or(holder, |mapping| mapping.of)
    }

    /// As many bytes of the same memory, from an offset in this range on.
    #[must_use]
    pub fn slice(&self, offset_bytes: u64, len_bytes: u64) -> Self {
        Self { offset_bytes: self.offset_bytes + offset_bytes, len_bytes, ..self.clone() }
    }

    /// The bytes of this memory at which another buffer lies in its own.
    #[must_use]
    pub fn at(&self, like: &Self) -> Self {
        Self { offset_bytes: like.offset_bytes, len_bytes: like.len_bytes, ..self.clone() }
    }

    /// Whether both are the same memory from the same byte on, whatever its address.
    fn same(&self, other: &Self) -> bool {
        (self.memory, self.offset_bytes, self.block, self.through)
            == (other.memory, other.offset_bytes, other.block, other.through)
    }
}

/// An opaque address with equality.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Address<O: Objects = Modelled> {
    /// In memory, at a byte offset.
    Memory(O::Address, u64),
    /// In a mapping of a peer's memory, at a byte offset.
    Mapping(MappingId, u64),
    /// Of a communicator: of the first one that had it.
    Comm(CommId),
}

/// What a slot holds.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Value<O: Objects = Modelled> {
    /// Nothing: a failed call, Python's `None`.
    Null,
    /// A truth value, for example what an agreement decided.
    Bool(bool),
    /// A number on the host, for example a value of the store.
    Int(i64),
    /// A name: an opaque value that the host stores and compares.
    Token(O::Name),
    /// A communicator: what an init or a split produced.
    Comm(CommId),
    /// A buffer or a segment.
    Buffer(Arc<Buffer<O>>),
    /// The n-th window of a communicator.
    Window(CommId, u32),
    /// A handle of an allocation of a rank: which memory, and at which address.
    Handle(Rank, Arc<O::Exported>),
    /// A host thread of the rank.
    Thread(u32),
    /// The segments that a trim released.
    Trimmed(Arc<[Arc<Buffer<O>>]>),
    /// An address: an opaque value that programs compare and use as a key.
    Address(Address<O>),
    /// Several values as one.
    Tuple(Arc<[Value<O>]>),
    /// A stream of the rank.
    Stream(Token),
    /// An event of the rank.
    Event(Token),
    /// The rank's device, as what a host thread synchronizes with.
    Device,
    /// An object of another rank that came through the store.
    Foreign(O::Foreign),
}

impl From<CommId> for Value {
    fn from(comm: CommId) -> Self {
        Self::Comm(comm)
    }
}

impl<O: Objects> Value<O> {
    /// Equality as a program sees it: buffers by what they are, addresses by where they are.
    #[must_use]
    pub fn same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Buffer(a), Self::Buffer(b)) => a.same(b),
            (a, b) => a == b,
        }
    }

    /// Whether control flow takes it for true.
    #[must_use]
    pub fn truth(&self) -> bool {
        match self {
            Self::Bool(truth) => *truth,
            Self::Int(number) => *number != 0,
            Self::Null => false,
            Self::Token(_)
            | Self::Comm(_)
            | Self::Buffer(_)
            | Self::Window(..)
            | Self::Handle(..)
            | Self::Thread(_)
            | Self::Trimmed(_)
            | Self::Address(_)
            | Self::Tuple(_)
            | Self::Stream(_)
            | Self::Event(_)
            | Self::Device
            | Self::Foreign(_) => true,
        }
    }

    /// The number that control flow gets; none for what is no number, or none that an answer can be.
    #[must_use]
    pub fn number(&self) -> Option<Answer> {
        let Self::Int(number) = self else { return None };
        Answer::try_from(*number).ok()
    }

    /// The buffer, if it is one.
    #[must_use]
    pub fn buffer(&self) -> Option<&Arc<Buffer<O>>> {
        if let Self::Buffer(buffer) = self { Some(buffer) } else { None }
    }

    /// Whether it is a buffer whose allocation took a new segment.
    #[must_use]
    pub fn grew(&self) -> bool {
        self.buffer().is_some_and(|buffer| buffer.grew)
    }

    /// The segments that a trim released, each as a value.
    #[must_use]
    pub fn trimmed(&self) -> Vec<Self> {
        let segments = if let Self::Trimmed(segments) = self { &segments[..] } else { &[] };
        segments.iter().map(|segment| Self::Buffer(Arc::clone(segment))).collect()
    }
}
