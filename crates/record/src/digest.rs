//! Sixteen bytes that stand for longer ones: unique ids and handles, which only have to be told apart.
//!
//! Not here: protection against somebody who wants two of them to be equal.

/// FNV-1a of 128 bits: the same for the same bytes on every machine and in every version.
pub(crate) fn digest(bytes: &[u8]) -> [u8; 16] {
    const OFFSET: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    let hash = bytes.iter().fold(OFFSET, |hash, byte| (hash ^ u128::from(*byte)).wrapping_mul(PRIME));
    hash.to_be_bytes()
}
