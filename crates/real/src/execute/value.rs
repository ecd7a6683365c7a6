//! Values: what slots, maps, lists and the store hold while a program runs on a device.
//!
//! The same kinds as the model's, with real addresses. Not here: the tables that the numbers point into.

use std::sync::Arc;

use rankcheck_model::{Rank, Token};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::ffi::DeviceRange;

/// Who made a piece of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Owner {
    /// A pool, by name.
    Pool(Token),
    /// The program, by the buffer's name.
    Program(Token),
    /// Another rank: what is mapped here, by the number of the mapping.
    Peer(Rank),
}

/// The n-th piece of memory, or the n-th block, of an owner. Never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Made {
    pub(crate) owner: Owner,
    pub(crate) nth: u32,
}

/// Where memory lies: the real address, and the memory that was first mapped there, which names it.
///
/// Equal by address: a pointer does not know what it was before.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Base {
    pub(crate) first: Made,
    pub(crate) address: u64,
}

impl PartialEq for Base {
    fn eq(&self, other: &Self) -> bool {
        self.address == other.address
    }
}

impl Eq for Base {}

/// A range of memory that the program holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Buffer {
    /// The allocation it belongs to; none for a segment as such.
    pub(crate) block: Option<Made>,
    pub(crate) memory: Made,
    pub(crate) base: Base,
    pub(crate) offset_bytes: u64,
    pub(crate) len_bytes: u64,
    pub(crate) name: Token,
    /// Whether the allocation took a new segment.
    pub(crate) grew: bool,
}

impl Buffer {
    /// Where it lies on the device.
    pub(crate) fn range(&self) -> DeviceRange {
        DeviceRange::new(self.base.address + self.offset_bytes, self.len_bytes)
    }
}

/// An address with equality.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Address {
    /// In memory, at a byte offset.
    Memory(Base, u64),
    /// Of a communicator.
    Comm(usize),
}

/// A handle of memory of some rank, as it travels.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Lent {
    pub(crate) rank: Rank,
    /// The memory, in words.
    pub(crate) name: String,
    /// As much as its owner asked for.
    pub(crate) len_bytes: u64,
    /// What the driver made.
    pub(crate) bytes: Vec<u8>,
}

/// What a slot holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Value {
    Null,
    Bool(bool),
    Int(i64),
    /// A token, as text, because ranks number their tokens each for themselves.
    Name(Arc<str>),
    /// A communicator, by its number on this rank.
    Comm(usize),
    Buffer(Arc<Buffer>),
    /// A window of a communicator, by its number there.
    Window(usize, usize),
    Handle(Arc<Lent>),
    Thread(u32),
    Trimmed(Arc<[Arc<Buffer>]>),
    Address(Address),
    Tuple(Arc<[Value]>),
    Stream(Token),
    Event(Token),
    Device,
    /// An object of some rank that came through the store: equal to itself and good for nothing else.
    Foreign(Arc<str>),
}

impl Value {
    /// Equality as a program sees it: buffers by what they are, addresses by where they are.
    pub(crate) fn same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Buffer(a), Self::Buffer(b)) => {
                (a.memory, a.offset_bytes, a.block) == (b.memory, b.offset_bytes, b.block)
            }
            (a, b) => a == b,
        }
    }

    /// Whether control flow takes it for true.
    pub(crate) fn truth(&self) -> bool {
        match self {
            Self::Bool(truth) => *truth,
            Self::Int(number) => *number != 0,
            Self::Null => false,
            Self::Name(_)
            | Self::Comm(_)
            | Self::Buffer(_)
            | Self::Window(..)
            | Self::Handle(_)
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

    /// What is ordered about a key: its address without the offset, in tuples too.
    pub(crate) fn without_offset(&self) -> Self {
        match self {
            Self::Address(Address::Memory(base, _)) => Self::Address(Address::Memory(*base, 0)),
            Self::Buffer(buffer) => Self::Address(Address::Memory(buffer.base, 0)),
            Self::Tuple(parts) => Self::Tuple(parts.iter().map(Self::without_offset).collect()),
            Self::Null
            | Self::Bool(_)
            | Self::Int(_)
            | Self::Name(_)
            | Self::Comm(_)
            | Self::Window(..)
            | Self::Handle(_)
            | Self::Thread(_)
            | Self::Trimmed(_)
            | Self::Address(Address::Comm(_))
            | Self::Stream(_)
            | Self::Event(_)
            | Self::Device
            | Self::Foreign(_) => self.clone(),
        }
    }

    /// What [`Value::without_offset`] left out.
    pub(crate) fn offset(&self) -> u64 {
        if let Self::Address(Address::Memory(_, offset)) = self {
            return *offset;
        }
        if let Self::Buffer(buffer) = self { buffer.offset_bytes } else { 0 }
    }

    /// The real addresses of a key that was stripped by [`Value::without_offset`]; nothing if a part of it is
    /// no address in memory.
    pub(crate) fn addresses(&self) -> Option<Vec<u64>> {
        match self {
            Self::Address(Address::Memory(base, _)) => Some(vec![base.address]),
            Self::Tuple(parts) => {
                let parts: Option<Vec<Vec<u64>>> = parts.iter().map(Self::addresses).collect();
                parts.map(|parts| parts.concat())
            }
            Self::Null
            | Self::Bool(_)
            | Self::Int(_)
            | Self::Name(_)
            | Self::Comm(_)
            | Self::Buffer(_)
            | Self::Window(..)
            | Self::Handle(_)
            | Self::Thread(_)
            | Self::Trimmed(_)
            | Self::Address(Address::Comm(_))
            | Self::Stream(_)
            | Self::Event(_)
            | Self::Device
            | Self::Foreign(_) => None,
        }
    }

    /// As the store carries it to other ranks. `words` names what only this rank can use.
    pub(crate) fn to_store(&self, rank: Rank, words: &dyn Fn(&Self) -> String) -> serde_json::Value {
        match self {
            Self::Null => serde_json::Value::Null,
            Self::Bool(truth) => json!(truth),
            Self::Int(number) => json!(number),
            Self::Name(name) => json!(&**name),
            Self::Tuple(parts) => parts.iter().map(|part| part.to_store(rank, words)).collect(),
            Self::Foreign(text) => json!({ "foreign": &**text }),
            Self::Handle(lent) => json!({ "handle": &**lent }),
            Self::Comm(_)
            | Self::Buffer(_)
            | Self::Window(..)
            | Self::Thread(_)
            | Self::Trimmed(_)
            | Self::Address(_)
            | Self::Stream(_)
            | Self::Event(_)
            | Self::Device => json!({ "foreign": format!("{} of rank {}", words(self), rank.0) }),
        }
    }

    /// What came out of the store.
    pub(crate) fn from_store(value: &serde_json::Value) -> Self {
        match value {
            serde_json::Value::Null => Self::Null,
            serde_json::Value::Bool(truth) => Self::Bool(*truth),
            serde_json::Value::Number(number) => Self::Int(number.as_i64().unwrap_or(0)),
            serde_json::Value::String(name) => Self::Name(name.as_str().into()),
            serde_json::Value::Array(parts) => Self::Tuple(parts.iter().map(Self::from_store).collect()),
            serde_json::Value::Object(object) => {
                let lent = object.get("handle").cloned().map(serde_json::from_value::<Lent>);
                if let Some(Ok(lent)) = lent {
                    return Self::Handle(Arc::new(lent));
                }
                let text = object.get("foreign").and_then(serde_json::Value::as_str).unwrap_or_default();
                Self::Foreign(text.into())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn buffer(nth: u32, address: u64, offset_bytes: u64) -> Value {
        let memory = Made { owner: Owner::Program(Token(0)), nth };
        Value::Buffer(Arc::new(Buffer {
            block: Some(memory),
            memory,
            base: Base { first: memory, address },
            offset_bytes,
            len_bytes: 8,
            name: Token(0),
            grew: true,
        }))
    }

    #[test]
    fn buffers_are_equal_by_what_they_are() {
        assert!(buffer(0, 64, 0).same(&buffer(0, 64, 0)));
        assert!(!buffer(0, 64, 0).same(&buffer(1, 64, 0)), "the address came back, the memory did not");
        assert!(buffer(0, 64, 0).without_offset().same(&buffer(0, 64, 8).without_offset()));
        assert_eq!(buffer(0, 64, 8).offset(), 8);
    }

    #[test]
    fn plain_values_pass_through_the_store() {
        let words = |_: &Value| "x".to_owned();
        let tuple = Value::Tuple([Value::Int(3), Value::Null, Value::Name("a".into())].into());
        assert_eq!(Value::from_store(&tuple.to_store(Rank(0), &words)), tuple);
        let foreign = Value::from_store(&buffer(0, 64, 0).to_store(Rank(1), &words));
        assert_eq!(foreign, Value::Foreign("x of rank 1".into()));
        assert_eq!(Value::from_store(&foreign.to_store(Rank(0), &words)), foreign);
        let lent = Lent { rank: Rank(1), name: "x".to_owned(), len_bytes: 8, bytes: vec![7; 64] };
        let handle = Value::Handle(Arc::new(lent));
        assert_eq!(Value::from_store(&handle.to_store(Rank(1), &words)), handle);
    }
}
