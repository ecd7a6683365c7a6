//! What values hold while a program runs on a device: the model's values, with real addresses.
//!
//! Not here: what values mean ([`rankcheck_model::host`]), and the tables that the numbers point into.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use rankcheck_model::Rank;
use rankcheck_model::host::value::{Buffer, MappingId, MemoryId, Objects, Value};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::ffi::DeviceRange;

/// Objects as a rank calls them on its device.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum OnDevice {}

impl Objects for OnDevice {
    /// As text, because ranks number their tokens each for themselves.
    type Name = Arc<str>;
    type Memory = Provenance;
    type Address = Base;
    type Exported = ExportedHandle;
    /// What the object is called.
    type Foreign = Arc<str>;
}

/// Whose memory it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Provenance {
    /// Memory that this rank allocated.
    Own(MemoryId),
    /// Of another rank, mapped here.
    Mapped(MappingId),
}

/// Where memory lies: the real address, and the memory that was first there, which names it.
///
/// Equal by address: a pointer does not know what it was before.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Base {
    pub(crate) first: Provenance,
    pub(crate) address: u64,
}

impl PartialEq for Base {
    fn eq(&self, other: &Self) -> bool {
        self.address == other.address
    }
}

impl Eq for Base {}

impl PartialOrd for Base {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Base {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.address.cmp(&other.address)
    }
}

impl Hash for Base {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.address.hash(state);
    }
}

/// A handle of memory of some rank, as it travels.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) struct ExportedHandle {
    pub(crate) rank: Rank,
    /// The memory, in words.
    pub(crate) name: String,
    /// As much as its owner asked for.
    pub(crate) len_bytes: u64,
    /// What the driver made.
    pub(crate) bytes: Vec<u8>,
}

/// Where a buffer lies on the device.
pub(crate) fn range(buffer: &Buffer<OnDevice>) -> DeviceRange {
    DeviceRange::new(buffer.address.address + buffer.offset_bytes, buffer.len_bytes)
}

/// The memory of this rank in which a buffer lies.
pub(crate) fn own_memory(buffer: &Buffer<OnDevice>) -> Option<MemoryId> {
    match buffer.memory {
        Provenance::Own(memory) => Some(memory),
        Provenance::Mapped(_) => None,
    }
}

/// A value as the store carries it to other ranks. `words` names what only this rank can use.
pub(crate) fn to_store(
    value: &Value<OnDevice>,
    rank: Rank,
    words: &dyn Fn(&Value<OnDevice>) -> String,
) -> serde_json::Value {
    match value {
        Value::Null => serde_json::Value::Null,
        Value::Bool(truth) => json!(truth),
        Value::Int(number) => json!(number),
        Value::Token(name) => json!(&**name),
        Value::Tuple(parts) => parts.iter().map(|part| to_store(part, rank, words)).collect(),
        Value::Foreign(text) => json!({ "foreign": &**text }),
        Value::Handle(_, exported) => json!({ "handle": &**exported }),
        Value::Comm(_)
        | Value::Buffer(_)
        | Value::Window(..)
        | Value::Thread(_)
        | Value::Trimmed(_)
        | Value::Address(_)
        | Value::Stream(_)
        | Value::Event(_)
        | Value::Device => json!({ "foreign": format!("{} of rank {}", words(value), rank.0) }),
    }
}

/// A value that came out of the store.
pub(crate) fn from_store(value: &serde_json::Value) -> Value<OnDevice> {
    match value {
        serde_json::Value::Null => Value::Null,
        serde_json::Value::Bool(truth) => Value::Bool(*truth),
        serde_json::Value::Number(number) => Value::Int(number.as_i64().unwrap_or(0)),
        serde_json::Value::String(name) => Value::Token(name.as_str().into()),
        serde_json::Value::Array(parts) => Value::Tuple(parts.iter().map(from_store).collect()),
        serde_json::Value::Object(object) => {
            let exported = object.get("handle").cloned().map(serde_json::from_value::<ExportedHandle>);
            if let Some(Ok(exported)) = exported {
                return Value::Handle(exported.rank, Arc::new(exported));
            }
            let text = object.get("foreign").and_then(serde_json::Value::as_str).unwrap_or_default();
            Value::Foreign(text.into())
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use rankcheck_model::Token;
    use rankcheck_model::host::value::{BlockId, Owner};

    use super::*;

    /// A block of pool 1, the n-th in the n-th segment.
    pub(in super::super) fn block(
        nth: u32,
        address: u64,
        (offset_bytes, len_bytes): (u64, u64),
    ) -> Value<OnDevice> {
        let memory = MemoryId { owner: Owner::Pool(Token(1)), nth };
        Value::Buffer(Arc::new(Buffer {
            block: Some(BlockId(memory)),
            memory: Provenance::Own(memory),
            address: Base { first: Provenance::Own(memory), address },
            offset_bytes,
            len_bytes,
            memory_len_bytes: 4096,
            name: Token(2),
            through: None,
            grew: true,
        }))
    }

    #[test]
    fn addresses_are_equal_by_where_they_are() {
        let [one, again, other] = [block(0, 64, (0, 8)), block(0, 64, (0, 8)), block(1, 64, (0, 8))];
        assert!(one.same(&again));
        assert!(!one.same(&other), "the address came back, the memory did not");
        assert!(one.start().same(&other.start()));
    }

    #[test]
    fn plain_values_pass_through_the_store() {
        let words = |_: &Value<OnDevice>| "x".to_owned();
        let tuple = Value::Tuple([Value::Int(3), Value::Null, Value::Token("a".into())].into());
        assert_eq!(from_store(&to_store(&tuple, Rank(0), &words)), tuple);
        let foreign = from_store(&to_store(&block(0, 64, (0, 8)), Rank(1), &words));
        assert_eq!(foreign, Value::Foreign("x of rank 1".into()));
        assert_eq!(from_store(&to_store(&foreign, Rank(0), &words)), foreign);
        let exported =
            ExportedHandle { rank: Rank(1), name: "x".to_owned(), len_bytes: 8, bytes: vec![7; 64] };
        let handle = Value::Handle(Rank(1), Arc::new(exported));
        assert_eq!(from_store(&to_store(&handle, Rank(1), &words)), handle);
    }
}
