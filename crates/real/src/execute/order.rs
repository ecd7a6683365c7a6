//! Where values stand in the orders that a rank finds out: addresses as they really lie, hashes as forced.
//!
//! Not here: what an order is for ([`rankcheck_model::host::order`]).

use rankcheck_model::host::value::{Address, Value};

use super::nondet::{NondetKind, number};
use super::thread::ProgramThread;
use super::value::OnDevice;
use crate::case::NondetValue;

/// The real addresses of a key without its offset; nothing if a part of it is no address in memory.
fn addresses(key: &Value<OnDevice>) -> Option<Vec<u64>> {
    match key {
        Value::Address(Address::Memory(base, _)) => Some(vec![base.address]),
        Value::Tuple(parts) => {
            let parts: Option<Vec<Vec<u64>>> = parts.iter().map(addresses).collect();
            parts.map(|parts| parts.concat())
        }
        Value::Null
        | Value::Bool(_)
        | Value::Int(_)
        | Value::Token(_)
        | Value::Comm(_)
        | Value::Buffer(_)
        | Value::Window(..)
        | Value::Handle(..)
        | Value::Thread(_)
        | Value::Trimmed(_)
        | Value::Address(Address::Mapping(..) | Address::Comm(_))
        | Value::Stream(_)
        | Value::Event(_)
        | Value::Device
        | Value::Foreign(_) => None,
    }
}

/// Where a new value goes in an order of this kind: among addresses by what it really is, else where it is wanted,
/// else at the end.
fn position(
    order: &[Value<OnDevice>],
    value: &Value<OnDevice>,
    kind: NondetKind,
    wanted: Option<u32>,
) -> usize {
    if kind == NondetKind::AddressOrder
        && let Some(own) = addresses(value)
    {
        let higher = |placed: &Value<OnDevice>| addresses(placed).is_some_and(|other| other > own);
        return order.iter().position(higher).unwrap_or(order.len());
    }
    wanted.map_or(order.len(), |wanted| (wanted as usize).min(order.len()))
}

impl ProgramThread<'_, '_> {
    /// Decides where a new value goes in the order of addresses or of hashes, and notes it.
    pub(crate) fn position(
        &self,
        order: &[Value<OnDevice>],
        value: &Value<OnDevice>,
        kind: NondetKind,
    ) -> usize {
        // One possibility is no choice, and no value is spent on it.
        let wanted = if order.is_empty() { None } else { self.wanted(kind) };
        let at = position(order, value, kind, wanted.as_ref().map(number));
        if !order.is_empty() {
            let position = u32::try_from(at).expect("few values");
            let value = if kind == NondetKind::AddressOrder {
                NondetValue::AddressOrder { position }
            } else {
                NondetValue::HashOrder { position }
            };
            self.took(wanted, value);
        }
        at
    }
}

#[cfg(test)]
mod tests {
    use super::super::value::tests::block;
    use super::*;

    #[test]
    fn addresses_stand_where_they_are_whatever_is_wanted() {
        let address = |nth, address| block(nth, address, (0, 8)).start();
        let order = vec![address(0, 100), address(1, 300)];
        let between = address(2, 200);
        assert_eq!(position(&order, &between, NondetKind::AddressOrder, Some(0)), 1);
        assert_eq!(position(&order, &Value::Int(7), NondetKind::AddressOrder, Some(0)), 0);
        assert_eq!(position(&order, &between, NondetKind::HashOrder, Some(0)), 0);
        assert_eq!(position(&order, &between, NondetKind::HashOrder, None), 2);
    }
}
