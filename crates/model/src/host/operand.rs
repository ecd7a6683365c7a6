//! What an operand is at a moment of a run.
//! Not here: operations that work on it.

use std::sync::Arc;

use crate::host::value::{Address, Buffer, CommId, Objects, Value};
use crate::id::Token;
use crate::program::{Operand, Slot};

/// What evaluation needs of whoever runs the program, about one rank.
pub trait Known<O: Objects> {
    /// The name that a value carries for a token.
    fn name(&self, token: Token) -> O::Name;
    /// What a slot holds; nothing before it is filled. A slot names what its thread runs, and on a rank
    /// at most one thread runs that.
    fn slot(&self, slot: Slot) -> Option<&Value<O>>;
    /// The whole memory in which a buffer lies.
    fn segment(&self, buffer: &Buffer<O>) -> Option<Arc<Buffer<O>>>;
    /// Where a buffer lies.
    fn address(&self, buffer: &Buffer<O>) -> Address<O>;
    /// The first communicator that had the address of this one.
    fn comm_address(&self, comm: CommId) -> CommId;
}

impl Operand {
    /// What the operand is now. One of the wrong kind is null, as a failed call is.
    pub fn evaluate<O: Objects>(&self, known: &impl Known<O>) -> Value<O> {
        let buffer = |of: &Self| of.evaluate(known).buffer().map(Arc::clone);
        let null_or = |buffer: Option<Arc<Buffer<O>>>| buffer.map_or(Value::Null, Value::Buffer);
        match self {
            Self::Null => Value::Null,
            Self::Int(number) => Value::Int(*number),
            Self::Token(token) => Value::Token(known.name(*token)),
            Self::Bool(truth) => Value::Bool(*truth),
            Self::Slot(slot) => known.slot(*slot).cloned().unwrap_or(Value::Null),
            Self::Slice { of, offset_bytes, len_bytes } => {
                null_or(buffer(of).map(|buffer| Arc::new(buffer.slice(*offset_bytes, *len_bytes))))
            }
            Self::Segment(of) => null_or(buffer(of).and_then(|buffer| known.segment(&buffer))),
            Self::At { of, like } => {
                null_or(buffer(of).zip(buffer(like)).map(|(of, like)| Arc::new(of.at(&like))))
            }
            Self::Address(of) => of.evaluate(known).address(known).map_or(Value::Null, Value::Address),
            Self::Tuple(parts) => Value::Tuple(parts.iter().map(|part| part.evaluate(known)).collect()),
            Self::Stream(token) => Value::Stream(*token),
            Self::Event(token) => Value::Event(*token),
            Self::Device => Value::Device,
        }
    }
}

impl<O: Objects> Value<O> {
    /// The address of a buffer or a communicator; nothing else has one.
    fn address(&self, known: &impl Known<O>) -> Option<Address<O>> {
        match self {
            Self::Buffer(buffer) => Some(known.address(buffer)),
            Self::Comm(comm) => Some(Address::Comm(known.comm_address(*comm))),
            Self::Null
            | Self::Bool(_)
            | Self::Int(_)
            | Self::Token(_)
            | Self::Window(..)
            | Self::Handle(..)
            | Self::Thread(_)
            | Self::Trimmed(_)
            | Self::Address(_)
            | Self::Tuple(_)
            | Self::Stream(_)
            | Self::Event(_)
            | Self::Device
            | Self::Foreign(_) => None,
        }
    }
}
