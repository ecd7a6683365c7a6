//! Maps and lists of a rank, shared by its threads: where programs keep what they registered.
//! Not here: the orders in which maps are walked ([`crate::host::order`]), and that a program may not reach past
//! the end of a list.

use crate::host::value::{Modelled, Objects, Value};
use crate::id::Token;

/// The entries of a map, in the order of insertion: key and value.
pub type Entries<O> = Vec<MapEntry<O>>;

/// A key of a map, and the value under it.
pub type MapEntry<O> = (Value<O>, Value<O>);

/// The maps and lists of a rank, by name. Each exists from its first use by an operation.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Containers<O: Objects = Modelled> {
    maps: Vec<(Token, Entries<O>)>,
    lists: Vec<(Token, Vec<Value<O>>)>,
}

impl<O: Objects> Default for Containers<O> {
    fn default() -> Self {
        Self { maps: Vec::new(), lists: Vec::new() }
    }
}

/// An index that a list does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutOfRange {
    /// The index; -1 for what is no number.
    pub index: i64,
    /// Elements of the list.
    pub len: usize,
}

/// The row of a table, which is made if it is not there. Rows are few, so a scan beats a tree.
fn row<V: Default>(table: &mut Vec<(Token, V)>, name: Token) -> &mut V {
    let at = table.iter().position(|(known, _)| *known == name).unwrap_or_else(|| {
        table.push((name, V::default()));
        table.len() - 1
    });
    &mut table[at].1
}

fn known<V>(table: &[(Token, V)], name: Token) -> Option<&V> {
    table.iter().find(|(known, _)| *known == name).map(|(_, row)| row)
}

impl<O: Objects> Containers<O> {
    /// All maps, each with its entries in the order of insertion.
    pub fn maps(&self) -> impl Iterator<Item = (Token, &[MapEntry<O>])> {
        self.maps.iter().map(|(name, entries)| (*name, entries.as_slice()))
    }

    /// All lists, each with its elements.
    pub fn lists(&self) -> impl Iterator<Item = (Token, &[Value<O>])> {
        self.lists.iter().map(|(name, elements)| (*name, elements.as_slice()))
    }

    /// The entries of a map, in the order of insertion.
    #[must_use]
    pub fn entries(&self, map: Token) -> &[MapEntry<O>] {
        known(&self.maps, map).map_or(&[], Vec::as_slice)
    }

    /// Whether a map has a key.
    #[must_use]
    pub fn has(&self, map: Token, key: &Value<O>) -> bool {
        self.entries(map).iter().any(|(known, _)| known.same(key))
    }

    /// Puts a value under a key. The value of a key that is there already is replaced in its place.
    pub fn put(&mut self, map: Token, key: Value<O>, value: Value<O>) {
        let entries = row(&mut self.maps, map);
        match entries.iter_mut().find(|(known, _)| known.same(&key)) {
            Some(entry) => entry.1 = value,
            None => entries.push((key, value)),
        }
    }

    /// Removes a key. Returns its value, or null.
    pub fn pop(&mut self, map: Token, key: &Value<O>) -> Value<O> {
        let entries = row(&mut self.maps, map);
        let at = entries.iter().position(|(known, _)| known.same(key));
        at.map_or(Value::Null, |at| entries.remove(at).1)
    }

    /// The value under a key, or the default.
    pub fn get(&mut self, map: Token, key: &Value<O>, default: Value<O>) -> Value<O> {
        let entries = row(&mut self.maps, map);
        let found = entries.iter().find(|(known, _)| known.same(key));
        found.map_or(default, |(_, value)| value.clone())
    }

    /// Removes every entry of a map.
    pub fn clear_map(&mut self, map: Token) {
        row(&mut self.maps, map).clear();
    }

    /// How many elements a list has.
    ///
    /// # Panics
    /// With more than 2^32 of them.
    #[must_use]
    pub fn len(&self, list: Token) -> u32 {
        u32::try_from(known(&self.lists, list).map_or(0, Vec::len)).expect("few elements")
    }

    /// Appends to a list.
    pub fn push(&mut self, list: Token, value: Value<O>) {
        row(&mut self.lists, list).push(value);
    }

    /// The element at an index.
    ///
    /// # Errors
    /// [`OutOfRange`] if there is none.
    pub fn element(&mut self, list: Token, index: &Value<O>) -> Result<Value<O>, OutOfRange> {
        self.element_mut(list, index).map(|element| element.clone())
    }

    /// Replaces the element at an index.
    ///
    /// # Errors
    /// [`OutOfRange`] if there is none.
    pub fn replace(&mut self, list: Token, index: &Value<O>, value: Value<O>) -> Result<(), OutOfRange> {
        self.element_mut(list, index).map(|element| *element = value)
    }

    fn element_mut(&mut self, list: Token, index: &Value<O>) -> Result<&mut Value<O>, OutOfRange> {
        let elements = row(&mut self.lists, list);
        let index = if let Value::Int(index) = index { *index } else { -1 };
        let len = elements.len();
        let at = usize::try_from(index).ok().and_then(|at| elements.get_mut(at));
        at.ok_or(OutOfRange { index, len })
    }

    /// Removes the last element of a list. Returns it, or null from an empty list.
    pub fn pop_last(&mut self, list: Token) -> Value<O> {
        row(&mut self.lists, list).pop().unwrap_or(Value::Null)
    }

    /// Removes every element of a list.
    pub fn clear_list(&mut self, list: Token) {
        row(&mut self.lists, list).clear();
    }

    /// Everything that lies in a container, keys too.
    pub fn values(&self) -> impl Iterator<Item = &Value<O>> {
        let entries = self.maps.iter().flat_map(|(_, entries)| entries).flat_map(|(key, value)| [key, value]);
        entries.chain(self.lists.iter().flat_map(|(_, list)| list))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: Token = Token(7);

    fn int(number: i64) -> Value {
        Value::Int(number)
    }

    #[test]
    fn a_map_replaces_and_keeps_its_order() {
        let mut containers = Containers::<Modelled>::default();
        for (key, value) in [(1, 10), (2, 20), (1, 30)] {
            containers.put(NAME, int(key), int(value));
        }
        assert_eq!(containers.entries(NAME), [(int(1), int(30)), (int(2), int(20))]);
        assert_eq!(containers.pop(NAME, &int(1)), int(30));
        assert_eq!(containers.pop(NAME, &int(1)), Value::Null);
        assert_eq!((containers.has(NAME, &int(1)), containers.has(NAME, &int(2))), (false, true));
    }

    #[test]
    fn past_the_end_of_a_list_is_nothing() {
        let mut containers = Containers::<Modelled>::default();
        containers.push(NAME, int(5));
        assert_eq!(containers.element(NAME, &int(0)), Ok(int(5)));
        for index in [1, -1] {
            assert_eq!(containers.element(NAME, &int(index)), Err(OutOfRange { index, len: 1 }));
        }
        assert_eq!(containers.replace(NAME, &Value::Null, int(6)), Err(OutOfRange { index: -1, len: 1 }));
        assert_eq!((containers.len(NAME), containers.len(Token(8))), (1, 0));
    }
}
