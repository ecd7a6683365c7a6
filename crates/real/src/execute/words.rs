//! Operations in the spec's own names, as the model words them.
//!
//! Not here: questions, which make no call.

use rankcheck_model::{Operand, Source, Token, Verb};

use super::tables::Tables;
use super::value::{Address, Made, Owner, Value};

/// Memory in words: `symm.S0` for the first segment of pool `symm`.
fn memory(source: &dyn Source, made: Made) -> String {
    match made.owner {
        Owner::Pool(pool) => format!("{}.S{}", source.token(pool), made.nth),
        Owner::Program(name) if made.nth == 0 => source.token(name).to_string(),
        Owner::Program(name) => format!("{}.{}", source.token(name), made.nth),
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
            None => memory(source, buffer.memory),
        },
        Value::Window(comm, nth) => format!("{}#{nth}", tables.comms[*comm].name),
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
pub(crate) fn operation(tables: &Tables, source: &dyn Source, verb: &Verb) -> String {
    let of = |operand: &Operand| value(tables, source, &tables.value(source, operand));
    let name = |token: &Token| source.token(*token);
    match verb {
        Verb::Step { label } => name(label).to_string(),
        Verb::Spawn { .. } => "thread".to_owned(),
        Verb::Join { thread } => format!("{}.join", of(thread)),
        Verb::Exit { code } => format!("exit({})", name(code)),
        Verb::Reach { label } => format!("reach({})", name(label)),
        Verb::Steady => "steady".to_owned(),
        Verb::Measure { name: what, .. } => format!("measure({})", name(what)),
        Verb::CommInit { name: comm, .. } => format!("{}.init", name(comm)),
        Verb::CommSplit { comm, name: child, .. } => format!("{}.split({})", of(comm), name(child)),
        Verb::CommDestroy { comm } => format!("{}.destroy", of(comm)),
        Verb::Register { comm, memory, .. } => format!("{}.register({})", of(comm), of(memory)),
        Verb::Deregister { comm, window } => format!("{}.deregister({})", of(comm), of(window)),
        Verb::GroupStart => "group_start".to_owned(),
        Verb::GroupEnd => "group_end".to_owned(),
        Verb::Collect(call) => format!("{}.{}({})", of(&call.comm), call.kind.name(), of(&call.send)),
        Verb::Kernel { name: kernel, .. } => format!("kernel {}", name(kernel)),
        Verb::EventRecord { event, stream } => format!("{}.record({})", name(event), name(stream)),
        Verb::StreamWait { stream, event } => format!("{}.wait({})", name(stream), name(event)),
        Verb::Synchronize { what } => format!("{}.synchronize", of(what)),
        Verb::Pool { pool, .. } => format!("pool {}", name(pool)),
        Verb::PoolLock { pool } => format!("{}: take the allocator's lock", name(pool)),
        Verb::PoolUnlock { pool } => format!("{}: give the allocator's lock back", name(pool)),
        Verb::Alloc { pool, name: buffer, .. } => format!("{} = {}.alloc", name(buffer), name(pool)),
        Verb::Free { buffer, .. } => format!("{}.free", of(buffer)),
        Verb::Trim { pool, .. } => format!("{}.trim", name(pool)),
        Verb::Release { segment } => format!("{}.release", of(segment)),
        Verb::Havoc { pool, .. } => format!("{}.havoc", name(pool)),
        Verb::MemAlloc { name: buffer, .. } => format!("{} = mem_alloc", name(buffer)),
        Verb::Barrier { .. } => "barrier".to_owned(),
        Verb::AllAgree { value, .. } => format!("all_agree({})", of(value)),
        Verb::Lock { mutex } => format!("{}.lock", name(mutex)),
        Verb::Unlock { mutex } => format!("{}.unlock", name(mutex)),
        Verb::StoreSet { key, value } => format!("store.set({}, {})", name(key), of(value)),
        Verb::StoreGet { key } => format!("store.get({})", name(key)),
        Verb::StoreDelete { key } => format!("store.delete({})", name(key)),
        Verb::FlagWrite { flag, value } => format!("{}.write({value})", name(flag)),
        Verb::FlagWait { flag, value } => format!("{}.wait({value})", name(flag)),
        Verb::MapPut { map, key, .. } => format!("{}.put({})", name(map), of(key)),
        Verb::MapPop { map, key } => format!("{}.pop({})", name(map), of(key)),
        Verb::MapGet { map, key, .. } => format!("{}.get({})", name(map), of(key)),
        Verb::MapClear { map } => format!("{}.clear", name(map)),
        Verb::ListPush { list, value } => format!("{}.push({})", name(list), of(value)),
        Verb::ListGet { list, index } => format!("{}[{}]", name(list), of(index)),
        Verb::ListSet { list, index, .. } => format!("{}[{}] =", name(list), of(index)),
        Verb::ListPop { list } => format!("{}.pop", name(list)),
        Verb::ListClear { list } => format!("{}.clear", name(list)),
    }
}
