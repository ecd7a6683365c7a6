//! Values in words, as lanes, errors and traces of both the model and devices have them.
//! Not here: operations ([`crate::op::Op::display`]).

use std::sync::Arc;

use crate::host::value::{Address, Buffer, CommId, MemoryId, Objects, Owner, Value};
use crate::id::Token;

/// What the objects in values are called.
pub trait Names<O: Objects> {
    /// The text of a token.
    fn token(&self, token: Token) -> Arc<str>;
    /// The text of a name that a value carries.
    fn name(&self, name: &O::Name) -> Arc<str>;
    /// The name of a communicator, as reports print it.
    fn comm(&self, comm: CommId) -> Arc<str>;
    /// Memory, as its owner calls it.
    fn memory(&self, memory: &O::Memory) -> String;
    /// Where memory starts: the memory that was first there.
    fn address(&self, address: &O::Address) -> String;
    /// Memory, as a handle of it calls it.
    fn exported(&self, exported: &O::Exported) -> String;
    /// An object of another rank.
    fn foreign(&self, foreign: &O::Foreign) -> Arc<str>;
}

impl MemoryId {
    /// The memory in words: `symm.S0` for the first segment of pool `symm`.
    pub fn display(self, name: impl Fn(Token) -> Arc<str>) -> String {
        let Self { owner, nth } = self;
        match owner {
            Owner::Pool(pool) => format!("{}.S{nth}", name(pool)),
            Owner::Program(buffer) if nth == 0 => name(buffer).to_string(),
            Owner::Program(buffer) => format!("{}.{nth}", name(buffer)),
        }
    }
}

impl<O: Objects> Buffer<O> {
    /// The buffer as the rank calls it whose memory it is.
    pub fn display(&self, names: &impl Names<O>) -> String {
        match self.block {
            Some(_) => names.token(self.name).to_string(),
            None => names.memory(&self.memory),
        }
    }
}

impl<O: Objects> Value<O> {
    /// The value in words.
    pub fn display(&self, names: &impl Names<O>) -> String {
        match self {
            Self::Null => "null".to_owned(),
            Self::Bool(truth) => truth.to_string(),
            Self::Int(number) => number.to_string(),
            Self::Token(name) => names.name(name).to_string(),
            Self::Stream(token) | Self::Event(token) => names.token(*token).to_string(),
            Self::Comm(comm) => names.comm(*comm).to_string(),
            Self::Buffer(buffer) => match buffer.through {
                Some(mapping) => format!("r{}.{}", mapping.of.0, buffer.display(names)),
                None => buffer.display(names),
            },
            Self::Window(comm, nth) => format!("{}#{nth}", names.comm(*comm)),
            Self::Handle(of, exported) => format!("handle of r{}.{}", of.0, names.exported(exported)),
            Self::Thread(thread) => format!("thread {thread}"),
            Self::Trimmed(segments) => format!("{} segments", segments.len()),
            Self::Address(address) => address.display(names),
            Self::Tuple(parts) => {
                let parts: Vec<String> = parts.iter().map(|part| part.display(names)).collect();
                format!("({})", parts.join(", "))
            }
            Self::Device => "device".to_owned(),
            Self::Foreign(foreign) => names.foreign(foreign).to_string(),
        }
    }
}

impl<O: Objects> Address<O> {
    fn display(&self, names: &impl Names<O>) -> String {
        match self {
            Self::Memory(address, 0) => format!("&{}", names.address(address)),
            Self::Memory(address, offset) => format!("&{}+{offset}", names.address(address)),
            Self::Mapping(mapping, offset) => {
                format!("&mapping {} of rank {}+{offset}", mapping.nth, mapping.of.0)
            }
            Self::Comm(comm) => format!("&{}", names.comm(*comm)),
        }
    }
}
