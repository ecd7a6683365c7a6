//! What was folded is unfolded to the same bytes, and what is damaged is refused.

use super::{repeats, unfolded};
use crate::extent_stream::ExtentStream;
use crate::layout::{HEADER_BYTES, Header, encode_header};
use crate::pack;
use crate::read::{ProcessFile, ReadError};
use crate::value::{Field, Signature};
use crate::write::{CallContent, EventWriter, Returns};
use std::path::Path;

const LAUNCH: Signature = Signature { name: "launch", keys: &["function", "to"], instant: false };
const WAIT: Signature = Signature { name: "wait", keys: &["stream"], instant: false };
const GOT: Signature = Signature { name: "wait", keys: &["event"], instant: false };

/// A packed file of two threads, with calls of every kind that are called again and again.
fn packed() -> Vec<u8> {
    let mut bytes = encode_header(&Header::default()).expect("a short header");
    for thread in 0..2 {
        let mut writer = EventWriter::new(ExtentStream::new(Vec::new()), thread, 0);
        let mut time = 0;
        for nth in 0..20_000_u64 {
            time += 100 + nth * nth % 37;
            let fields = [Field::Address(nth % 5), Field::Varying(nth << 12)];
            let content = CallContent::of(&LAUNCH, &fields);
            writer.call_known(time, content, &LAUNCH, &fields, Returns::Later);
            writer.leave(time + 20);
            if nth % 3 == 0 {
                writer.enter(time + 30, &WAIT, &[Field::Number(7)]);
                writer.leave_with(time + 90, &GOT, &[Field::Text("a name")]);
            }
            if nth % 5000 == 1 {
                writer.missed(time + 91, 3);
            }
        }
        writer.finish();
        bytes.extend(writer.into_space().end().expect("memory takes everything"));
    }
    bytes
}

#[test]
fn a_folded_file_is_unfolded_to_the_same_bytes() {
    let bytes = packed();
    let folded = super::folded(Path::new("file"), &bytes).expect("it is whole");
    assert!(folded.len() < bytes.len() / 4, "{} of {}", folded.len(), bytes.len());
    assert_eq!(unfolded(Path::new("file"), &folded).expect("it is whole"), bytes);
}

#[test]
fn what_is_not_known_is_kept() {
    let mut bytes = packed();
    // The events of an extent in the middle, and with that its checksum.
    let at = HEADER_BYTES + 70_000;
    bytes[at] ^= 0xff;
    let folded = super::folded(Path::new("file"), &bytes).expect("extents are whole");
    assert_eq!(unfolded(Path::new("file"), &folded).expect("it is whole"), bytes);
}

#[test]
fn a_damaged_file_is_refused() {
    let folded = super::folded(Path::new("file"), &packed()).expect("it is whole");
    for at in (HEADER_BYTES..folded.len()).step_by(folded.len() / 300) {
        let mut damaged = folded.clone();
        damaged[at] ^= 0x10;
        assert!(unfolded(Path::new("file"), &damaged).is_err(), "byte {at}");
        let cut = unfolded(Path::new("file"), &folded[..at]);
        assert!(matches!(cut, Err(ReadError::CutOff { .. })), "cut at {at}: {cut:?}");
    }
}

#[test]
fn stretches_come_again_from_any_distance() {
    let mut bytes: Vec<u8> =
        (0..100_000_u32).flat_map(|number| (number ^ number << 7).to_le_bytes()).collect();
    let once = repeats::shortened(&bytes).len();
    bytes.extend_from_within(10_007..);
    bytes.extend_from_within(3..);
    bytes.extend([5; 1000]);
    let shortened = repeats::shortened(&bytes);
    assert!(shortened.len() < once + 100, "{} and {once}", shortened.len());
    assert_eq!(repeats::restored(&shortened, bytes.len() as u64), Some(bytes));
}

/// A file of these bytes that is deleted once it was used.
fn with_file<T>(name: &str, bytes: &[u8], use_it: impl FnOnce(&Path) -> T) -> T {
    let path = std::env::temp_dir().join(format!("rankcheck-{name}-{}.rankrec", std::process::id()));
    std::fs::write(&path, bytes).expect("files for the time being can be written");
    let made = use_it(&path);
    std::fs::remove_file(&path).expect("it was written");
    made
}

#[test]
fn a_folded_file_has_the_events_of_the_one_that_was_folded() {
    let bytes = packed();
    let folded = super::folded(Path::new("file"), &bytes).expect("it is whole");
    let events = |bytes: &[u8]| {
        with_file("same-events", bytes, |path| {
            let mut process = ProcessFile::open(path).expect("a whole file");
            let next = std::iter::from_fn(|| process.next_event().expect("it is not damaged"));
            next.collect::<Vec<_>>()
        })
    };
    assert!(events(&bytes) == events(&folded), "the events are others");
}

#[test]
fn what_was_packed_before_stays_as_it_is() {
    let folded = super::folded(Path::new("file"), &packed()).expect("it is whole");
    with_file("packed-twice", &folded, |path| {
        let packed = pack(path, None).expect("a whole file");
        let calls = 2 * (20_000 + 20_000_u64.div_ceil(3));
        assert_eq!((packed.calls, packed.bytes), (calls, folded.len() as u64));
        assert_eq!(std::fs::read(path).expect("it is there"), folded);
    });
    let header = Header { alive: Some(7), ..Header::default() };
    let mut alive = packed();
    alive.splice(..HEADER_BYTES, encode_header(&header).expect("a short header"));
    with_file("alive-twice", &alive, |path| {
        pack(path, None).expect("a whole file");
        assert_eq!(ProcessFile::open(path).expect("a whole file").header.alive, Some(7));
    });
}
