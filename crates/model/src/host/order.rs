//! Orders that nobody knows before somebody looks: of addresses, of hashes.
//!
//! A value gets its position when it is first compared and keeps it for ever. The model leaves the position to an
//! adversary; a device knows where memory lies. Who decides is a closure here.
//! Not here: nondeterministic values (`crate::order::poll`).

use std::borrow::Cow;

use crate::host::container::Entries;
use crate::host::value::{Address, Objects, Value};
use crate::noun::container::MapOrder;

/// Gives a value its position in an order, if it has none yet. `decide` says where it goes among those that are there.
/// Returns the position.
///
/// # Errors
/// What `decide` returns; the order is then as before.
pub fn position_in<V: Clone + PartialEq, E>(
    order: &mut Cow<'_, [V]>,
    value: &V,
    decide: impl FnOnce(&[V], &V) -> Result<usize, E>,
) -> Result<usize, E> {
    if let Some(at) = order.iter().position(|placed| placed == value) {
        return Ok(at);
    }
    let at = decide(order, value)?;
    order.to_mut().insert(at, value.clone());
    Ok(at)
}

/// The entries of a map in the order of a walk: by the position of their keys, and at one address by the offset in it.
/// `known` is the order of addresses or of hashes, whichever the walk follows; keys that it does not have yet get
/// their position from `decide`.
///
/// # Errors
/// What `decide` returns.
pub fn walk<O: Objects, E>(
    mut entries: Entries<O>,
    order: MapOrder,
    known: &mut Cow<'_, [Value<O>]>,
    mut decide: impl FnMut(&[Value<O>], &Value<O>) -> Result<usize, E>,
) -> Result<Entries<O>, E> {
    if order == MapOrder::Insertion || entries.len() < 2 {
        return Ok(entries);
    }
    for (key, _) in &entries {
        position_in(known, &key.start(), &mut decide)?;
    }
    let position = |key: &Value<O>| {
        let start = key.start();
        known.iter().position(|placed| *placed == start)
    };
    entries.sort_by_key(|(key, _)| (position(key), key.offset()));
    Ok(entries)
}

impl<O: Objects> Value<O> {
    /// What is ordered about a key: its address without the offset, in tuples too.
    #[must_use]
    pub fn start(&self) -> Self {
        let at = |address: O::Address| Self::Address(Address::Memory(address, 0));
        match self {
            Self::Address(Address::Memory(address, _)) => at(*address),
            Self::Buffer(buffer) => at(buffer.address),
            Self::Tuple(parts) => Self::Tuple(parts.iter().map(Self::start).collect()),
            Self::Null
            | Self::Bool(_)
            | Self::Int(_)
            | Self::Token(_)
            | Self::Comm(_)
            | Self::Window(..)
            | Self::Handle(..)
            | Self::Thread(_)
            | Self::Trimmed(_)
            | Self::Address(Address::Mapping(..) | Address::Comm(_))
            | Self::Stream(_)
            | Self::Event(_)
            | Self::Device
            | Self::Foreign(_) => self.clone(),
        }
    }

    /// What [`Value::start`] leaves out.
    fn offset(&self) -> u64 {
        if let Self::Address(Address::Memory(_, offset)) = self {
            return *offset;
        }
        self.buffer().map_or(0, |buffer| buffer.offset_bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;
    use crate::host::value::{AddressId, MemoryId, Modelled, Owner};
    use crate::id::Token;

    fn address(nth: u32, offset_bytes: u64) -> Value {
        let memory = MemoryId { owner: Owner::Pool(Token(0)), nth };
        Value::Address(Address::Memory(AddressId(memory), offset_bytes))
    }

    #[test]
    fn a_value_is_placed_once() {
        let mut order = Cow::Owned(vec![3]);
        let mut asked = 0;
        for expected in [1, 1] {
            let at = position_in(&mut order, &5, |placed, _| {
                asked += 1;
                Ok::<_, Infallible>(placed.len())
            });
            assert_eq!(at, Ok(expected));
        }
        assert_eq!((order.into_owned(), asked), (vec![3, 5], 1));
    }

    #[test]
    fn entries_of_one_address_are_sorted_by_offset() {
        let keys = [address(0, 8), address(0, 0), address(1, 4)];
        let entries: Entries<Modelled> = keys.iter().map(|key| (key.clone(), Value::Null)).collect();
        let walked = |order| {
            let mut known = Cow::Borrowed(&[][..]);
            let first = |_: &[Value], _: &Value| Ok::<_, Infallible>(0);
            let Ok(walked) = walk(entries.clone(), order, &mut known, first);
            walked.into_iter().map(|(key, _)| key).collect::<Vec<_>>()
        };
        assert_eq!(walked(MapOrder::Insertion), keys);
        assert_eq!(walked(MapOrder::Address), [address(1, 4), address(0, 0), address(0, 8)]);
    }
}
