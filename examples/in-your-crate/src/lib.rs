//! The code under test: who sends to whom in a ring.

/// What a rank does in one step of a ring exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// Sends to the next rank.
    Send(u32),
    /// Receives from the rank before.
    Receive(u32),
}

/// What a rank does, one after the other.
pub fn ring(rank: u32, size: u32) -> [Turn; 2] {
    [Turn::Send((rank + 1) % size), Turn::Receive((rank + size - 1) % size)]
}
