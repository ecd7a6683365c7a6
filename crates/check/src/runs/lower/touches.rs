//! Which bytes a copy or a fill touches, as its call says.
//!
//! Not here: which memory they lie in ([`crate::runs::regions`]).

use std::sync::Arc;

use rankcheck_model::Operand;
use rankcheck_recording::{Argument, Shape};

use super::{Lowering, Origin};
use crate::runs::call::Unjudged;
use crate::runs::regions::MemoryAt;

/// Bytes from an address on.
pub(in crate::runs) type ByteSpan = (u64, u64);

/// What a call reads and writes.
#[derive(Debug, Clone, Default)]
pub(in crate::runs) struct TouchedBytes {
    pub(in crate::runs) reads: Vec<ByteSpan>,
    pub(in crate::runs) writes: Vec<ByteSpan>,
    /// Why that is not all of it.
    pub(in crate::runs) lacks: Option<Unjudged>,
}

impl TouchedBytes {
    /// What the call says that it touches.
    pub(in crate::runs) fn of(call: &Shape) -> Self {
        let mut touches = Self::default();
        let Self { reads, writes, lacks } = &mut touches;
        let bytes = call.get("bytes");
        for (keys, to) in [(&["from"][..], &mut *reads), (&["to", "address"], &mut *writes)] {
            for address in keys.iter().filter_map(|key| call.get(key)) {
                match (address.number(), bytes.and_then(Argument::number)) {
                    (Some(address), Some(bytes)) => to.push((address, bytes)),
                    _ => *lacks = Some(Unjudged::Value),
                }
            }
        }
        touches.add_strips(call);
        touches
    }

    /// What the rows that a call names touch, whatever else it names.
    pub(super) fn of_strips(call: &Shape) -> Self {
        let mut touches = Self::default();
        touches.add_strips(call);
        touches
    }

    fn add_strips(&mut self, call: &Shape) {
        let Self { reads, writes, lacks } = self;
        for (key, to) in [("reads", reads), ("writes", writes)] {
            match call.get(key).map(strips) {
                Some(Ok(pieces)) => to.extend(pieces),
                Some(Err(why)) => *lacks = Some(why),
                None => {}
            }
        }
    }
}

/// Pieces of one length in rows and planes, as the recorder writes them.
fn strips(value: &Argument) -> Result<Vec<ByteSpan>, Unjudged> {
    /// More rows than that are no matter of single pieces.
    const ROWS_MAX: u64 = 1024;
    let Argument::Bytes(encoded) = value else { return Err(Unjudged::Value) };
    let numbers: Vec<u64> = numbers(encoded).collect();
    let [address, bytes, pitch, rows, plane, planes] = *numbers.as_slice() else {
        return Err(Unjudged::Value);
    };
    if [bytes, rows, planes].contains(&0) {
        return Ok(Vec::new());
    }
    // Rows without gaps are one.
    let (bytes, rows) = if pitch == bytes { (bytes.saturating_mul(rows), 1) } else { (bytes, rows) };
    let (bytes, planes) =
        if rows == 1 && plane == bytes { (bytes.saturating_mul(planes), 1) } else { (bytes, planes) };
    if rows.saturating_mul(planes) > ROWS_MAX {
        return Err(Unjudged::Rows);
    }
    let start = |nth: u64, row: u64| {
        address.wrapping_add(nth.wrapping_mul(plane)).wrapping_add(row.wrapping_mul(pitch))
    };
    Ok((0..planes).flat_map(|nth| (0..rows).map(move |row| (start(nth, row), bytes))).collect())
}

/// Numbers of eight bytes.
pub(super) fn numbers(encoded: &[u8]) -> impl Iterator<Item = u64> {
    encoded.as_chunks().0.iter().copied().map(u64::from_le_bytes)
}

impl Lowering<'_> {
    /// What is known as device memory of what a call touches; of the host nothing is known.
    pub(super) fn touched(&mut self, call: &Shape, origin: Origin) -> (Arc<[Operand]>, Arc<[Operand]>) {
        let touches = TouchedBytes::of(call);
        if let Some(why) = touches.lacks {
            self.unjudged(why, &call.name);
        }
        (self.on_device(&touches.reads, origin), self.on_device(&touches.writes, origin))
    }

    /// The pieces that lie in device memory.
    pub(super) fn on_device(&mut self, pieces: &[ByteSpan], origin: Origin) -> Arc<[Operand]> {
        let known =
            |&&(address, bytes): &&ByteSpan| matches!(self.memory.find(address, bytes), MemoryAt::In(..));
        let pieces: Vec<ByteSpan> = pieces.iter().filter(known).copied().collect();
        pieces.into_iter().map(|(address, bytes)| self.buffer(address, bytes, origin)).collect()
    }
}
