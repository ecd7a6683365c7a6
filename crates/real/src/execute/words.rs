//! Operations in the spec's own names, as the model words them.
//!
//! Not here: questions, which make no call.

use rankcheck_model::{Op, Source};

use super::tables::Tables;
use super::value::{Address, Made, Owner, Value};

/// Memory in words: `symm.S0` for the first segment of pool `symm`.
pub(crate) fn memory(source: &dyn Source, made: Made) -> String {
    match made.owner {
        Owner::Pool(pool) => format!("{}.S{}", source.token(pool), made.nth),
        Owner::Program(name) if made.nth == 0 => source.token(name).to_string(),
        Owner::Program(name) => format!("{}.{}", source.token(name), made.nth),
        Owner::Peer(rank) => format!("mapping {} of rank {}", made.nth, rank.0),
    }
}

/// A value in words.
pub(crate) fn value(tables: &Tables, source: &dyn Source, of: &Value) -> String {
    match of {
        Value::Null => "null".to_owned(),
        Value::Bool(truth) => truth.to_string(),
        Value::Int(number) => number.to_string(),
        Value::Name(name) | Value::Foreign(name) => name.to_string(),
        Value::Stream(token) | Value::Event(token) => source.token(*token).to_string(),
        Value::Comm(comm) => tables.comms[*comm].name.to_string(),
        Value::Buffer(buffer) => match buffer.block {
            Some(_) => source.token(buffer.name).to_string(),
            None => match buffer.memory.owner {
                Owner::Peer(rank) => {
                    format!("r{}.{}", rank.0, tables.mappings[buffer.memory.nth as usize].name)
                }
                Owner::Pool(_) | Owner::Program(_) => memory(source, buffer.memory),
            },
        },
        Value::Window(comm, nth) => format!("{}#{nth}", tables.comms[*comm].name),
        Value::Handle(lent) => format!("handle of r{}.{}", lent.rank.0, lent.name),
        Value::Thread(thread) => format!("thread {thread}"),
        Value::Trimmed(segments) => format!("{} segments", segments.len()),
        Value::Address(Address::Memory(base, 0)) => format!("&{}", memory(source, base.first)),
        Value::Address(Address::Memory(base, offset)) => {
            format!("&{}+{offset}", memory(source, base.first))
        }
        Value::Address(Address::Comm(comm)) => format!("&{}", tables.comms[*comm].name),
        Value::Tuple(parts) => {
            let parts: Vec<String> = parts.iter().map(|part| value(tables, source, part)).collect();
            format!("({})", parts.join(", "))
        }
        Value::Device => "device".to_owned(),
    }
}

/// An operation in words.
pub(crate) fn operation(tables: &Tables, source: &dyn Source, verb: &Op) -> String {
    verb.display(&|token| source.token(token), &|operand| {
        value(tables, source, &tables.value(source, operand))
    })
}
