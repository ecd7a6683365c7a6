//! Maps and lists of a rank, and the orders in which luck has them walked.
//!
//! Not here: the picks that say so ([`super::luck`]).

use rankcheck_model::{ListOp, MapOp, MapOrder, Op, Operand, Question, Source, Token};

use super::tables::Tables;
use super::value::Value;

/// Where a value stands in an order, or where it goes if it is new: among addresses by what it really is,
/// else where it is wanted, else at the end.
pub(crate) fn place(order: &[Value], value: &Value, real: bool, wanted: Option<u32>) -> usize {
    if let Some(at) = order.iter().position(|placed| placed == value) {
        return at;
    }
    if real && let Some(addresses) = value.addresses() {
        let higher = |placed: &Value| placed.addresses().is_some_and(|other| other > addresses);
        return order.iter().position(higher).unwrap_or(order.len());
    }
    wanted.map_or(order.len(), |wanted| (wanted as usize).min(order.len()))
}

/// The entries of a map, sorted by the order of their keys and then by the offset in them.
pub(crate) fn sorted(mut entries: Vec<(Value, Value)>, order: &[Value]) -> Vec<(Value, Value)> {
    let position = |key: &Value| {
        let key = key.without_offset();
        order.iter().position(|placed| *placed == key)
    };
    entries.sort_by_key(|(key, _)| (position(key), key.offset()));
    entries
}

/// Whether a walk in this order compares keys.
pub(crate) fn compares(order: MapOrder, entries: usize) -> bool {
    order != MapOrder::Insertion && entries > 1
}

/// Runs an operation on a map or list; what it produces.
///
/// # Panics
/// If it is an operation on something else.
pub(crate) fn run(tables: &mut Tables, source: &dyn Source, verb: &Op) -> Option<Value> {
    let index = |tables: &Tables, list: Token, operand: &Operand| {
        let number = tables.value(source, operand);
        let Value::Int(number) = number else { return None };
        let len = tables.lists.get(&list).map_or(0, Vec::len);
        usize::try_from(number).ok().filter(|at| *at < len)
    };
    if let Op::Map(MapOp::Put { map, key, value }) = verb {
        let (key, value) = (tables.value(source, key), tables.value(source, value));
        let entries = tables.maps.entry(*map).or_default();
        match entries.iter_mut().find(|(known, _)| known.same(&key)) {
            Some(entry) => entry.1 = value,
            None => entries.push((key, value)),
        }
        None
    } else if let Op::Map(MapOp::Pop { map, key }) = verb {
        let key = tables.value(source, key);
        let entries = tables.maps.entry(*map).or_default();
        let at = entries.iter().position(|(known, _)| known.same(&key));
        Some(at.map_or(Value::Null, |at| entries.remove(at).1))
    } else if let Op::Map(MapOp::Get { map, key, default }) = verb {
        let (key, default) = (tables.value(source, key), tables.value(source, default));
        let entries = tables.maps.entry(*map).or_default();
        let found = entries.iter().find(|(known, _)| known.same(&key));
        Some(found.map_or(default, |(_, value)| value.clone()))
    } else if let Op::Map(MapOp::Clear { map }) = verb {
        tables.maps.entry(*map).or_default().clear();
        None
    } else if let Op::List(ListOp::Push { list, value }) = verb {
        let value = tables.value(source, value);
        tables.lists.entry(*list).or_default().push(value);
        None
    } else if let Op::List(ListOp::Get { list, index: operand }) = verb {
        let at = index(tables, *list, operand);
        Some(at.map_or(Value::Null, |at| tables.lists[list][at].clone()))
    } else if let Op::List(ListOp::Set { list, index: operand, value }) = verb {
        let (at, value) = (index(tables, *list, operand), tables.value(source, value));
        if let Some(at) = at {
            tables.lists.entry(*list).or_default()[at] = value;
        }
        None
    } else if let Op::List(ListOp::Pop { list }) = verb {
        Some(tables.lists.entry(*list).or_default().pop().unwrap_or(Value::Null))
    } else if let Op::List(ListOp::Clear { list }) = verb {
        tables.lists.entry(*list).or_default().clear();
        None
    } else {
        unreachable!("dispatched by verb")
    }
}

/// Whether a map has a key, or how long a list is.
///
/// # Panics
/// If it is another question.
pub(crate) fn ask(tables: &Tables, source: &dyn Source, question: &Question) -> u32 {
    if let Question::MapHas { map, key } = question {
        let key = tables.value(source, key);
        let entries = tables.maps.get(map);
        u32::from(entries.is_some_and(|entries| entries.iter().any(|(known, _)| known.same(&key))))
    } else if let Question::ListLen { list } = question {
        u32::try_from(tables.lists.get(list).map_or(0, Vec::len)).expect("few elements")
    } else {
        unreachable!("dispatched by question")
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rankcheck_model::{Answer, Entry, Place, PlaceId, Rank, SourceError, Stretch, Symmetry};

    use super::super::value::{Address, Base, Made, Owner};
    use super::*;

    /// Tokens are their numbers.
    struct Numbers;

    impl Source for Numbers {
        fn stretch(&self, _: Rank, _: Entry, _: &[Answer]) -> Result<Arc<Stretch>, SourceError> {
            unreachable!("no program is run")
        }

        fn token(&self, token: Token) -> Arc<str> {
            token.0.to_string().into()
        }

        fn place(&self, _: PlaceId) -> Place {
            unreachable!("no program is run")
        }

        fn default_stream(&self) -> Token {
            Token(0)
        }

        fn symmetry(&self) -> Symmetry {
            Symmetry::Distinct
        }
    }

    fn address(nth: u32, address: u64, offset: u64) -> Value {
        let first = Made { owner: Owner::Pool(Token(0)), nth };
        Value::Address(Address::Memory(Base { first, address }, offset))
    }

    #[test]
    fn addresses_stand_where_they_are_whatever_is_wanted() {
        let order = vec![address(0, 100, 0), address(1, 300, 0)];
        assert_eq!(place(&order, &address(2, 200, 0), true, Some(0)), 1);
        assert_eq!(place(&order, &address(1, 300, 0), true, None), 1);
        assert_eq!(place(&order, &address(2, 200, 0), false, Some(0)), 0);
        assert_eq!(place(&order, &address(2, 200, 0), false, None), 2);
    }

    #[test]
    fn entries_of_one_address_are_sorted_by_offset() {
        let order = vec![address(1, 300, 0), address(0, 100, 0)];
        let keys = [address(0, 100, 8), address(0, 100, 0), address(1, 300, 4)];
        let entries = keys.iter().map(|key| (key.clone(), Value::Null)).collect();
        let walked: Vec<Value> = sorted(entries, &order).into_iter().map(|(key, _)| key).collect();
        assert_eq!(walked, [address(1, 300, 4), address(0, 100, 0), address(0, 100, 8)]);
    }

    #[test]
    fn a_map_replaces_and_keeps_its_order() {
        let mut tables = Tables::default();
        let map = Token(7);
        for (key, value) in [(1, 10), (2, 20), (1, 30)] {
            let put = Op::Map(MapOp::Put { map, key: Operand::Int(key), value: Operand::Int(value) });
            assert_eq!(run(&mut tables, &Numbers, &put), None);
        }
        let entry = |key, value| (Value::Int(key), Value::Int(value));
        assert_eq!(tables.maps[&map], [entry(1, 30), entry(2, 20)]);
        let pop = Op::Map(MapOp::Pop { map, key: Operand::Int(1) });
        assert_eq!(run(&mut tables, &Numbers, &pop), Some(Value::Int(30)));
        assert_eq!(run(&mut tables, &Numbers, &pop), Some(Value::Null));
        let has = |key| Question::MapHas { map, key: Operand::Int(key) };
        assert_eq!((ask(&tables, &Numbers, &has(1)), ask(&tables, &Numbers, &has(2))), (0, 1));
    }

    #[test]
    fn past_the_end_of_a_list_is_null() {
        let mut tables = Tables::default();
        let list = Token(3);
        run(&mut tables, &Numbers, &Op::List(ListOp::Push { list, value: Operand::Int(5) }));
        for (at, value) in [(0, Value::Int(5)), (1, Value::Null), (-1, Value::Null)] {
            let get = Op::List(ListOp::Get { list, index: Operand::Int(at) });
            assert_eq!(run(&mut tables, &Numbers, &get), Some(value));
        }
        assert_eq!(ask(&tables, &Numbers, &Question::ListLen { list }), 1);
    }
}
