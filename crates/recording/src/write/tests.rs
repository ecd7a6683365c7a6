//! What is written is read again, whatever interrupts it.
//!
//! Not here: whether programs notice that they are recorded.

use super::*;
use crate::extent_stream::ExtentStream;
use crate::layout::{Header, encode_header};
use crate::read::{CallEvent, PlainCall, ProcessFile, ReadError};
use crate::value::Argument;

/// Extents in memory, as many as there is room for.
struct MemorySpace {
    extents: ExtentStream<Vec<u8>>,
    left: usize,
}

impl Space for MemorySpace {
    fn advance(&mut self) -> bool {
        let Some(left) = self.left.checked_sub(1) else { return false };
        self.left = left;
        self.extents.advance()
    }
    fn extent(&mut self) -> &mut [u8] {
        self.extents.extent()
    }
}

const REDUCE: Signature =
    Signature { name: "ncclAllReduce", keys: &["comm", "count", "place"], instant: false };
const EVENT: Signature = Signature { name: "cudaEventRecord", keys: &["stream", "event"], instant: false };
const FAILED: Signature = Signature { name: "failed", keys: &["code"], instant: false };

fn file(name: &str, calls: u64) -> std::path::PathBuf {
    file_within(name, calls, usize::MAX)
}

fn file_within(name: &str, calls: u64, extents: usize) -> std::path::PathBuf {
    let header = encode_header(&Header { rank: Some(3), ..Header::default() }).expect("short");
    let mut writer =
        EventWriter::new(MemorySpace { extents: ExtentStream::new(header), left: extents }, 0, 0);
    for call in 0..calls {
        let fields = [Field::Address(0xa0), Field::Number(call % 300), Field::Text("train.py:7")];
        if call % 3 == 0 {
            writer.enter(call * 1000, &REDUCE, &fields);
        } else {
            writer.call(call * 1000, &REDUCE, &fields);
        }
        if call % 7 == 0 {
            writer.leave_with(call * 1000 + 400, &FAILED, &[Field::Signed(-5)]);
        } else {
            writer.leave(call * 1000 + 400);
        }
    }
    writer.finish();
    let bytes = writer.into_space().extents.end().expect("memory takes everything");
    let path = std::env::temp_dir().join(format!("rankcheck-recording-{name}-{}", std::process::id()));
    std::fs::write(&path, bytes).expect("the directory for temporary files can be written");
    path
}

fn events(path: &std::path::Path) -> Result<(ProcessFile, Vec<CallEvent>), ReadError> {
    let mut process = ProcessFile::open(path)?;
    let mut events = Vec::new();
    while let Some(event) = process.next_event()? {
        events.push(event);
    }
    Ok((process, events))
}

#[test]
fn numbers_without_a_loop_are_the_same() {
    for bit in 0..56 {
        for number in [1 << bit, (2 << bit) - 1, (1 << bit) ^ 0x5555_5555_5555 & ((1 << bit) - 1)] {
            let mut wanted = Vec::new();
            varint::put(&mut wanted, number);
            let (told, bits) = long(number);
            assert_eq!(told.to_le_bytes()[..bits as usize / 8], wanted, "{number}");
        }
    }
    assert_eq!(long(0), (0, 8));
}

#[test]
fn what_is_written_is_read() {
    let path = file("whole", 200_000);
    let (process, events) = events(&path).expect("a whole file");
    std::fs::remove_file(&path).expect("it was written");
    assert_eq!(process.header.rank, Some(3));
    assert!(process.cuts().is_empty());
    assert_eq!(events.len(), 400_000);
    for (call, pair) in (0..).zip(events.chunks(2)) {
        let [CallEvent::Enter { time, call: shape, .. }, CallEvent::Return { time: back, values, .. }] = pair
        else {
            panic!("{pair:?}")
        };
        assert_eq!((*time, *back), (call * 1000, call * 1000 + 400));
        assert_eq!(process.shape(*shape).get("count"), Some(&Argument::Number(call % 300)));
        assert_eq!(values.is_some(), call % 7 == 0);
        if let Some(values) = values {
            assert_eq!(process.shape(*values).get("code"), Some(&Argument::Signed(-5)));
        }
    }
}

#[test]
fn an_address_that_varies_is_read_as_an_argument() {
    let mut writer =
        EventWriter::new(ExtentStream::new(encode_header(&Header::default()).expect("short")), 0, 1000);
    let address = |call: u64| call * 0x0001_2345_6789 % LONG_MAX;
    for call in 0..20_000 {
        let fields = [Field::Address(call % 3), Field::Varying(address(call))];
        let (content, time) = (CallContent::of(&EVENT, &fields), 1000 + call * 1000);
        if !writer.call_again(time, content, Field::varying(&fields), Returns::AtOnce) {
            writer.call_known(time, content, &EVENT, &fields, Returns::AtOnce);
        }
        if call % 7 == 0 {
            writer.leave_after_all(time + 400, &FAILED, &[Field::Signed(-5)]);
        }
    }
    assert_eq!(writer.shapes.len(), 3);
    writer.finish();
    writer.call(0, &REDUCE, &[Field::None; 3]);
    let bytes = writer.into_space().end().expect("memory takes everything");
    let path = std::env::temp_dir().join(format!("rankcheck-recording-varying-{}", std::process::id()));
    std::fs::write(&path, bytes).expect("the directory for temporary files can be written");
    let (process, events) = events(&path).expect("a whole file");
    std::fs::remove_file(&path).expect("it was written");
    let mut events = events.into_iter();
    for call in 0..20_000 {
        let (
            Some(CallEvent::Enter { time, call: shape, .. }),
            Some(CallEvent::Return { time: back, values, .. }),
        ) = (events.next(), events.next())
        else {
            panic!("call {call} was entered and returned")
        };
        let (took, failed) = if call % 7 == 0 { (400, true) } else { (0, false) };
        assert_eq!((time, back, values.is_some()), (call * 1000, call * 1000 + took, failed));
        let shape = process.shape(shape);
        assert_eq!(shape.get("stream"), Some(&Argument::Address(call % 3)));
        assert_eq!(shape.get("event"), Some(&Argument::Address(address(call))));
    }
    assert_eq!(events.next(), None);
}

/// Adds a thread that calls every so many nanoseconds, now and then with another call inside.
fn with_thread(bytes: Vec<u8>, thread: u32, every: u64) -> Vec<u8> {
    let mut writer = EventWriter::new(ExtentStream::new(bytes), thread, 0);
    for call in 0..60_000_u64 {
        let (time, took) = (call * every, 1 + call % 90 * every / 60);
        let fields = [Field::Varying(call % 5000), Field::Number(call % 30), Field::None];
        writer.call(time, &REDUCE, &fields);
        if call % 11 == 0 {
            writer.call(time + 1, &REDUCE, &fields);
            writer.leave(time + 2);
        }
        if call % 50 == 0 {
            writer.leave_with(time + took, &FAILED, &[Field::Signed(-5)]);
        } else {
            writer.leave(time + took);
        }
    }
    writer.finish();
    writer.into_space().end().expect("memory takes everything")
}

#[test]
fn plain_calls_are_events_of_calls_that_are_over_at_once() {
    let mut bytes = encode_header(&Header::default()).expect("short");
    for (thread, every) in [(0, 1000), (1, 17_000), (2, 1003)] {
        bytes = with_thread(bytes, thread, every);
    }
    let path = std::env::temp_dir().join(format!("rankcheck-recording-plain-{}", std::process::id()));
    std::fs::write(&path, bytes).expect("the directory for temporary files can be written");
    let (_, wanted) = events(&path).expect("a whole file");
    for at_most in [1, 2, 7, u64::MAX] {
        let mut wanted = wanted.iter();
        let mut process = ProcessFile::open(&path).expect("a whole file");
        let (mut plain, mut refused) = (0, 0);
        loop {
            plain += process
                .plain_calls(at_most, |PlainCall { time, thread, call }| {
                    // Now and then one is not wanted.
                    refused += u64::from(time % 64 == 0);
                    if time % 64 == 0 {
                        return false;
                    }
                    assert_eq!(wanted.next(), Some(&CallEvent::Enter { time, thread, call }));
                    let Some(CallEvent::Return { thread: of, values: None, .. }) = wanted.next() else {
                        panic!("a plain call returns at once, and nothing")
                    };
                    *of == thread
                })
                .expect("a whole file");
            let Some(event) = process.next_event().expect("a whole file") else { break };
            assert_eq!(Some(&event), wanted.next());
        }
        assert_eq!(wanted.next(), None);
        assert!(plain > 20_000 && refused > 500, "{plain}, {refused}");
    }
    std::fs::remove_file(&path).expect("it was written");
}

#[test]
fn a_cut_file_is_read_up_to_the_cut() {
    let path = file("cut", 50_000);
    let whole = std::fs::read(&path).expect("it was written");
    for length in [4096, 4100, 4128, 5000, 70_000, 70_001, 140_000] {
        std::fs::write(&path, &whole[..length]).expect("as before");
        let (process, events) = events(&path).expect("a cut is no damage");
        assert!(events.len() < 100_000);
        // Other threads may have had extents behind the first, from its beginning on.
        assert_eq!(length < 70_000, events.is_empty(), "{length}");
        assert_eq!(process.truncated().is_some(), length > 4096, "{length}");
    }
    std::fs::remove_file(&path).expect("as before");
}

#[test]
fn a_packed_file_says_the_same() {
    let path = file("packed", 50_000);
    let whole = std::fs::read(&path).expect("it was written");
    for length in [whole.len(), 4096, 4128, 70_001] {
        std::fs::write(&path, &whole[..length]).expect("as before");
        let (before, wanted) = events(&path).expect("a cut is no damage");
        let packed = crate::pack(&path, None).expect("it can be read and written");
        assert_eq!(packed.bytes, std::fs::metadata(&path).expect("it is there").len());
        assert!(packed.bytes <= length as u64 + 64 * 1024);
        let (after, found) = events(&path).expect("a packed file is whole");
        assert_eq!((found, after.cuts().len()), (wanted, before.cuts().len()));
    }
    std::fs::remove_file(&path).expect("as before");
}

#[test]
fn where_there_is_no_room_for_a_return_the_call_stays_open() {
    let header = encode_header(&Header::default()).expect("short");
    let mut writer = EventWriter::new(MemorySpace { extents: ExtentStream::new(header), left: 1 }, 0, 0);
    for call in 0..20_000 {
        writer.enter(call * 1000, &EVENT, &[Field::Address(1), Field::Address(call % 3)]);
        writer.call(call * 1000 + 1, &REDUCE, &[Field::None; 3]);
        writer.leave_with(call * 1000 + 2, &FAILED, &[Field::Signed(-5)]);
        writer.leave(call * 1000 + 3);
    }
    // As if the process was killed now: nothing is finished.
    let bytes = writer.into_space().extents.end().expect("memory takes everything");
    let path = std::env::temp_dir().join(format!("rankcheck-recording-no-room-{}", std::process::id()));
    std::fs::write(&path, bytes).expect("the directory for temporary files can be written");
    let read = events(&path);
    std::fs::remove_file(&path).expect("it was written");
    assert!(read.expect("what is sealed stays as it is").1.len() > 1000);
}

#[test]
fn a_call_that_cannot_be_written_changes_no_other() {
    let mut writer =
        EventWriter::new(ExtentStream::new(encode_header(&Header::default()).expect("short")), 0, 0);
    for address in [0x3000, 0x3000, u64::MAX] {
        let fields = [Field::Address(7), Field::Varying(address)];
        let content = CallContent::of(&EVENT, &fields);
        if !writer.call_again(10, content, Some(address), Returns::AtOnce) {
            writer.call_known(10, content, &EVENT, &fields, Returns::AtOnce);
        }
    }
    writer.leave_after_all(20, &FAILED, &[Field::Signed(400)]);
    writer.finish();
    let bytes = writer.into_space().end().expect("memory takes everything");
    let path = std::env::temp_dir().join(format!("rankcheck-recording-too-long-{}", std::process::id()));
    std::fs::write(&path, bytes).expect("the directory for temporary files can be written");
    let (_, events) = events(&path).expect("a whole file");
    std::fs::remove_file(&path).expect("it was written");
    let returned = events[..4].iter().filter(|event| matches!(event, CallEvent::Return { values: None, .. }));
    assert_eq!(returned.count(), 2, "{events:?}");
    assert!(matches!(events.last(), Some(CallEvent::Lost { events: 1, .. })), "{events:?}");
}

#[test]
fn what_found_no_room_is_counted() {
    let path = file_within("full", 50_000, 2);
    let (process, events) = events(&path).expect("a full disk is no damage");
    std::fs::remove_file(&path).expect("as before");
    assert!(process.cuts().is_empty());
    let Some(CallEvent::Lost { events: lost, .. }) = events.last() else { panic!("{:?}", events.last()) };
    assert_eq!(*lost as usize + events.len() - 1, 100_000);
}

#[test]
fn damage_is_an_error_with_its_position() {
    let path = file("damaged", 1000);
    let whole = std::fs::read(&path).expect("it was written");
    for (at, needle) in
        [(0, "is no recording"), (8, "format version"), (4097, "no extent"), (4500, "checksum")]
    {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x40;
        std::fs::write(&path, &bytes).expect("as before");
        let error = events(&path).err().expect("damaged").to_string();
        assert!(error.contains(needle), "{error}");
    }
    std::fs::remove_file(&path).expect("as before");
}
