//! Bytes of which stretches come again, however far behind: written as where they came before, and how long.
//!
//! Compression that follows sees 32 KiB, and one iteration of a large model is longer.
//! Not here: short stretches, which compression finds.

use rustc_hash::FxHashMap;

use crate::varint::{self, Varints};

/// Stretches shorter than that are not looked for.
const STRETCH_BYTES: usize = 32;
/// How far apart the places are that are remembered.
const APART: usize = 16;

/// The bytes as pairs: how many bytes follow as they are, and these; then how many come again, and how far back they begin.
pub(super) fn shortened(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut places: FxHashMap<[u8; STRETCH_BYTES], usize> = FxHashMap::default();
    let (mut at, mut plain) = (0, 0);
    let mut remembered = 0;
    while let Some(stretch) = bytes[at..].first_chunk::<STRETCH_BYTES>() {
        let Some(&before) = places.get(stretch) else {
            if at >= remembered {
                places.insert(*stretch, at);
                remembered = at + APART;
            }
            at += 1;
            continue;
        };
        let alike = bytes[before..].iter().zip(&bytes[at..]).take_while(|(one, other)| one == other).count();
        varint::put(&mut out, (at - plain) as u64);
        out.extend_from_slice(&bytes[plain..at]);
        varint::put(&mut out, alike as u64);
        varint::put(&mut out, (at - before) as u64);
        // The last place is the nearest, and looks the same in every iteration.
        places.insert(*stretch, at);
        at += alike;
        plain = at;
        remembered = at;
    }
    varint::put(&mut out, (bytes.len() - plain) as u64);
    out.extend_from_slice(&bytes[plain..]);
    out
}

/// The bytes that were shortened to these, at most `length`. `None` if these are no such pairs.
pub(super) fn restored(bytes: &[u8], length: u64) -> Option<Vec<u8>> {
    let mut out: Vec<u8> = Vec::with_capacity(restored_length(bytes, length)?);
    let mut pairs = Varints::new(bytes);
    while let Some(plain) = pairs.number() {
        out.extend_from_slice(pairs.take(usize::try_from(plain).ok()?)?);
        let Some(alike) = pairs.number() else { break };
        let from = out.len().checked_sub(usize::try_from(pairs.number()?).ok()?)?;
        let mut left = usize::try_from(alike).ok()?;
        if out.len() as u64 + left as u64 > length || from == out.len() {
            return None;
        }
        // What comes again may overlap what it is made from.
        while left > 0 {
            let piece = left.min(out.len() - from);
            out.extend_from_within(from..from + piece);
            left -= piece;
        }
    }
    Some(out)
}

/// How long the bytes are that were shortened to these, at most `length`.
fn restored_length(bytes: &[u8], length: u64) -> Option<usize> {
    let mut pairs = Varints::new(bytes);
    let mut all = 0_u64;
    while let Some(plain) = pairs.number() {
        pairs.take(usize::try_from(plain).ok()?)?;
        all += plain;
        let Some(alike) = pairs.number() else { break };
        all = all.checked_add(alike)?;
        pairs.number()?;
    }
    usize::try_from(all).ok().filter(|_| all <= length)
}
