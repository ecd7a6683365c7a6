//! Which window a buffer is found in, as whoever launches a collective looks it up.
//! Not here: which windows are registered.

use crate::host::value::{Buffer, Objects};

/// The window in which a buffer starts, and where in it: the one with the greatest start, of several the last
/// inserted, and then one look at its end. A longer window that starts earlier is not considered. `windows` come in
/// the order of insertion, each with whatever the caller calls it; memory of another rank is in none of them.
pub fn window_of<'a, O: Objects + 'a, W>(
    buffer: &Buffer<O>,
    windows: impl IntoIterator<Item = (&'a Buffer<O>, W)>,
) -> Option<(W, u64)> {
    if buffer.through.is_some() {
        return None;
    }
    let starts =
        |window: &Buffer<O>| window.address == buffer.address && window.offset_bytes <= buffer.offset_bytes;
    let candidates = windows.into_iter().filter(|(window, _)| starts(window));
    let (window, name) = candidates.max_by_key(|(window, _)| window.offset_bytes)?;
    let offset_bytes = buffer.offset_bytes - window.offset_bytes;
    (offset_bytes < window.len_bytes).then_some((name, offset_bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::value::{AddressId, MemoryId, Modelled, Owner};
    use crate::id::Token;

    fn buffer(offset_bytes: u64, len_bytes: u64) -> Buffer<Modelled> {
        let memory = MemoryId { owner: Owner::Program(Token(0)), nth: 0 };
        Buffer {
            block: None,
            memory,
            address: AddressId(memory),
            offset_bytes,
            len_bytes,
            memory_len_bytes: 4096,
            name: Token(0),
            through: None,
            grew: false,
        }
    }

    #[test]
    fn the_last_window_with_the_greatest_start_is_looked_at_alone() {
        let windows = [buffer(0, 4096), buffer(512, 64), buffer(512, 128), buffer(1024, 64)];
        let found = |offset| window_of(&buffer(offset, 8), windows.iter().zip(0..));
        assert_eq!(found(0), Some((0, 0)));
        assert_eq!(found(576), Some((2, 64)));
        assert_eq!(found(700), None, "the first window holds it, but starts before the third");
        assert_eq!(found(1024), Some((3, 0)));
    }
}
