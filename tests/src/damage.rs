//! Recordings that no recorder wrote: good ones with damage, for a reader that must not be taken in.
//!
//! Damage is done to the bytes of headers, extents and events. Checksums are made to fit again most of the
//! time, or else nothing behind them would ever be reached.
//! Not here: what the reader says to them.

use std::io;
use std::path::{Path, PathBuf};

use rankcheck::runs::RunError;
use rankcheck::runs::fold::{Folding, fold};
use rankcheck::runs::sequence::{ReadUntil, read_all};
use rankcheck_recording::layout::{EXTENT_HEADER_BYTES, Extent, HEADER_BYTES};

use crate::training::{Change, Divergence, DivergesWith, Sizes, Training};

/// Numbers that look random and are the same every time.
#[derive(Debug, Clone)]
pub struct Random(pub u64);

impl Random {
    /// Below a number that is not zero.
    pub fn below(&mut self, below: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).expect("31 bits") % below
    }
}

/// Good files to begin with: whole and killed ones, with few and with many shapes.
///
/// # Errors
///
/// If they cannot be written.
pub fn seeds(directory: &Path) -> io::Result<Vec<Vec<u8>>> {
    let killed = Divergence { rank: 1, iteration: 3, with: DivergesWith::Nobody, change: Change::Killed };
    let trainings = [
        Training { iterations: 12, irregular: 3, ..Training::default() },
        Training { iterations: 4, sizes: Sizes::Drawn(1 << 12), ..Training::default() },
        Training { iterations: 4, divergence: Some(killed), ..Training::default() },
    ];
    let mut seeds = Vec::new();
    for training in trainings {
        training.write(directory)?;
        for rank in 0..3 {
            seeds.push(std::fs::read(directory.join(format!("rank{rank:05}.rankrec")))?);
        }
        std::fs::remove_dir_all(directory)?;
    }
    Ok(seeds)
}

/// Damages a file in some places.
#[must_use]
pub fn damaged(seed: &[u8], random: &mut Random) -> Vec<u8> {
    let mut bytes = seed.to_vec();
    shorten(&mut bytes, random);
    for _ in 0..=random.below(6) {
        match random.below(12) {
            0 => flip(&mut bytes, random, 0),
            1 => {
                let length = random.below(bytes.len() + 1);
                bytes.truncate(length.max(1));
            }
            2 | 3 => word_of_extent(&mut bytes, random),
            4 => another_extent(&mut bytes, random),
            _ => in_events(&mut bytes, random),
        }
    }
    if random.below(8) > 0 {
        seal(&mut bytes);
    }
    bytes
}

/// Where extents begin, as far as they follow one another.
fn extents(bytes: &[u8]) -> Vec<(usize, Extent)> {
    let mut found = Vec::new();
    let mut at = HEADER_BYTES;
    while let Some(header) = bytes.get(at..at + EXTENT_HEADER_BYTES) {
        let header = header.try_into().expect("it is as long as a header");
        let Some(extent) = Extent::decode(header) else { break };
        found.push((at, extent));
        at += (extent.length as usize).max(EXTENT_HEADER_BYTES);
    }
    found
}

/// Extents that are hardly used become short ones, so that damage hits what is used.
fn shorten(bytes: &mut Vec<u8>, random: &mut Random) {
    if random.below(2) == 0 {
        return;
    }
    let mut short = bytes[..HEADER_BYTES.min(bytes.len())].to_vec();
    for (at, mut extent) in extents(bytes) {
        let used = if extent.used > 0 { extent.used as usize } else { 300 };
        let end = (at + EXTENT_HEADER_BYTES + used).min(bytes.len());
        extent.length = u32::try_from(end - at).expect("an extent is short");
        short.extend_from_slice(&extent.encode());
        short.extend_from_slice(&bytes[at + EXTENT_HEADER_BYTES..end]);
    }
    *bytes = short;
}

fn flip(bytes: &mut [u8], random: &mut Random, from: usize) {
    if bytes.len() > from {
        let at = from + random.below(bytes.len() - from);
        bytes[at] ^= 1 << random.below(8);
    }
}

/// A number in the header of an extent becomes another one.
fn word_of_extent(bytes: &mut [u8], random: &mut Random) {
    let extents = extents(bytes);
    if extents.is_empty() {
        return;
    }
    let (at, mut extent) = extents[random.below(extents.len())];
    let interesting = [0, 1, 31, 32, 33, 100, 0xffff, 0x1_0000, 0x7fff_ffff, u32::MAX];
    let number = interesting[random.below(interesting.len())];
    match random.below(5) {
        0 => extent.thread = number,
        1 => extent.sequence = number,
        2 => extent.length = number,
        3 => extent.used = number,
        _ => extent.time = u64::from(number) << 32,
    }
    bytes[at..at + EXTENT_HEADER_BYTES].copy_from_slice(&extent.encode());
}

/// An extent comes again, as another thread's or as this one's next.
fn another_extent(bytes: &mut Vec<u8>, random: &mut Random) {
    let extents = extents(bytes);
    if extents.is_empty() {
        return;
    }
    let (at, mut extent) = extents[random.below(extents.len())];
    let content = bytes[at + EXTENT_HEADER_BYTES..].to_vec();
    let length = (extent.length as usize).saturating_sub(EXTENT_HEADER_BYTES).min(content.len());
    if random.below(2) == 0 {
        extent.thread = extent.thread.wrapping_add(u32::try_from(1 + random.below(3)).expect("small"));
        extent.sequence = 0;
    } else {
        extent.sequence = u32::try_from(extents.len()).expect("few");
    }
    bytes.extend_from_slice(&extent.encode());
    bytes.extend_from_slice(&content[..length]);
}

/// Bytes of events become others, go, or come again.
fn in_events(bytes: &mut [u8], random: &mut Random) {
    let extents = extents(bytes);
    if extents.is_empty() {
        return;
    }
    let (at, extent) = extents[random.below(extents.len())];
    let used = if extent.used > 0 { extent.used as usize } else { 300 };
    let end = (at + EXTENT_HEADER_BYTES + used).min(bytes.len());
    let Some(events) = bytes.get_mut(at + EXTENT_HEADER_BYTES..end).filter(|events| events.len() > 16) else {
        return;
    };
    let offset = random.below(events.len() - 12);
    match random.below(6) {
        0 => events[offset] ^= 1 << random.below(8),
        1 => events[offset] = u8::try_from(random.below(16)).expect("small"),
        2 => events[offset..offset + 10].fill(0xff),
        3 => {
            let by = 1 + random.below(8);
            let end = events.len() - by;
            events.copy_within(offset..end, offset + by);
        }
        4 => events.copy_within(offset + 1 + random.below(8).., offset),
        _ => {
            let from = random.below(events.len() - 12);
            events.copy_within(from..from + 1 + random.below(12), offset);
        }
    }
}

/// Makes the checksums fit.
fn seal(bytes: &mut [u8]) {
    for (at, mut extent) in extents(bytes) {
        let begin = at + EXTENT_HEADER_BYTES;
        if let Some(events) = bytes.get(begin..begin + extent.used as usize)
            && extent.used > 0
        {
            extent.checksum = crc32fast::hash(events);
            bytes[at..begin].copy_from_slice(&extent.encode());
        }
    }
}

/// Reads a file as a run of its own, and folds it. Gives the number of symbols, or what is wrong.
///
/// # Errors
///
/// If it is not the recording of a run.
///
/// # Panics
///
/// If the reader does, or if a symbol was made out of nothing.
pub fn read(bytes: &[u8], file: &Path) -> Result<usize, RunError> {
    std::fs::write(file, bytes).expect("the directory for temporary files can be written");
    let (mut world, mut sequences) = read_all(&[PathBuf::from(file)], ReadUntil::End)?;
    let symbols = sequences.iter().map(|sequence| sequence.symbols.len()).sum();
    assert!(symbols <= bytes.len(), "a symbol needs a byte: {symbols} out of {}", bytes.len());
    fold(&mut world, &mut sequences, Folding::IterationsAndRanks { from: 1 });
    Ok(symbols)
}
