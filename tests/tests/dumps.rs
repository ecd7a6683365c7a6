//! Flight Recorder dumps are read as they were written, in every version and encoding, or refused with a place; files
//! become ranks, and what is odd about them is said.
//!
//! Not here: what is judged of a job.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use rankcheck::dumps::folder::{DumpFolder, DumpNote, display_ranks, rank_in_name, read_folder};
use rankcheck::dumps::operation::{EntryKind, EntryName, Peers};
use rankcheck::dumps::pickle::{PickleError, read_pickle};
use rankcheck::dumps::read::{Dump, DumpError, Encoding, EntryState, read_dump};
use rankcheck_tests::damage::Random;
use rankcheck_tests::dumps::{
    Call, Datum, DumpedRun, DumpsSaved, Written, damaged_dump, python_pickle, torch_pickle,
};
use rankcheck_tests::repository::enter;

const EVERY_WAY: [Written; 6] = [
    Written::Torch,
    Written::Python(2),
    Written::Python(3),
    Written::Python(4),
    Written::Python(5),
    Written::Json,
];

/// Two stages of a pipeline with two ranks each: a collective of all, transfers in a bracket and without one, and one
/// collective that does not end.
fn pipeline() -> DumpedRun {
    let mut run = DumpedRun::new(4);
    let stages = [run.group("STAGES", &[0, 2]), run.group("STAGES", &[1, 3])];
    let all = run.all();
    run.everywhere(all, &Call::new("all_reduce").tensor(&[4096, 5120]).line(10));
    for (stage, first) in stages.into_iter().zip([0, 1]) {
        let call = Call::new("").tensor(&[8]).dtype("Float").line(20);
        let send = run.send(first, stage, first + 2, &call);
        let recv = run.recv(first + 2, stage, first, &call.clone().line(21));
        run.start(first, send);
        run.complete(first, send);
        run.complete(first + 2, recv);
        for (rank, peer) in [(first, first + 2), (first + 2, first)] {
            run.begin_bracket(rank, stage);
            run.send(rank, stage, peer, &call.clone().line(30));
            run.recv(rank, stage, peer, &call.clone().line(31));
            run.end_bracket(rank, stage);
        }
    }
    run.complete_everything();
    run.everywhere(all, &Call::new("_all_gather_base").input(&[2, 3]).output(&[8, 3]).line(40));
    run.start(3, run.ranks[3].calls.len() - 1);
    run
}

fn read(bytes: &[u8]) -> Dump {
    read_dump(bytes).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn every_version_and_encoding_says_the_same() {
    let mut run = pipeline();
    for minor in 1..=10 {
        run.minor = minor;
        for written in EVERY_WAY {
            for rank in 0..4 {
                let dump = read(&run.bytes(rank, written));
                let place = format!("version 2.{minor}, {written:?}, rank {rank}");
                assert_eq!((dump.version.major, dump.version.minor), (2, minor), "{place}");
                assert_eq!(dump.encoding == Encoding::Json, written == Written::Json, "{place}");
                assert_eq!(dump.comm_lib_version.as_deref(), Some("2.27.3"), "{place}");
                assert!(dump.unknown_fields.is_empty() && dump.cut.is_none(), "{place}");
                compare(&dump, &run, rank, &place);
            }
        }
    }
}

/// Compares a dump with what was written.
fn compare(dump: &Dump, run: &DumpedRun, rank: u32, place: &str) {
    assert_eq!(dump.groups.len(), 2, "{place}");
    assert_eq!(dump.groups[0].ranks.as_deref(), Some(&[0, 1, 2, 3][..]), "{place}");
    assert_eq!(dump.groups[1].ranks.as_deref(), Some(&[rank % 2, rank % 2 + 2][..]), "{place}");
    assert_eq!(dump.groups[1].desc.as_deref(), Some("STAGES"), "{place}");
    let progress = &dump.progress[&1];
    assert_eq!((progress.last_enqueued, progress.last_completed), (Some(2), Some(2)), "{place}");
    assert_eq!(dump.progress[&0].last_started, Some(-1), "{place}");
    let calls = &run.ranks[rank as usize].calls;
    assert_eq!(dump.entries.len(), calls.len(), "{place}");
    for (index, (entry, call)) in dump.entries.iter().zip(calls).enumerate() {
        let place = format!("{place}, entry {index}");
        assert_eq!(entry.record_id, index as u64, "{place}");
        assert_eq!(entry.pg_id, i64::from(call.pg_id != 0), "{place}");
        assert_eq!(&*entry.group_desc, if call.pg_id == 0 { "default_pg" } else { "STAGES" }, "{place}");
        assert_eq!(&*entry.name.text, call.name, "{place}");
        let ids = (entry.collective_seq_id, entry.p2p_seq_id, entry.op_id);
        assert_eq!(ids, (call.collective_seq_id, call.p2p_seq_id, call.op_id), "{place}");
        assert_eq!((entry.time_created_ns, entry.retired), (call.created, call.retired), "{place}");
        assert_eq!(
            (entry.time_started_ns, entry.time_completed_ns),
            (call.started, call.completed),
            "{place}"
        );
        let state = match (call.started, call.completed) {
            (_, Some(_)) => EntryState::Completed,
            (Some(_), None) => EntryState::Started,
            (None, None) => EntryState::Scheduled,
        };
        assert_eq!(entry.state, state, "{place}");
        assert_eq!(
            entry.duration_ms.is_some(),
            call.started.is_some() && call.completed.is_some(),
            "{place}"
        );
        let sizes: Vec<&[i64]> = entry.inputs.sizes.iter().map(|sizes| &**sizes).collect();
        assert_eq!(sizes, call.call.inputs, "{place}");
        let outputs: i64 = call.call.outputs.iter().map(|sizes| sizes.iter().product::<i64>()).sum();
        assert_eq!(entry.outputs.elements(), Some(outputs.unsigned_abs()), "{place}");
        let dtypes = entry.inputs.dtypes.as_ref().expect("every version has them");
        assert!(dtypes.iter().all(|dtype| **dtype == *call.call.dtype), "{place}");
        assert_eq!(entry.is_p2p, (run.minor >= 2).then_some(call.is_p2p), "{place}");
        assert_eq!(entry.timeout_ms, (run.minor >= 2).then_some(600_000), "{place}");
        assert_eq!(entry.thread_name.as_deref(), (run.minor >= 9).then_some("python3"), "{place}");
        let lines = entry.frames.as_ref().map(|frames| {
            frames.iter().map(|frame| (&*frame.function, &*frame.file, u32::try_from(frame.line))).collect()
        });
        let written: Vec<_> =
            call.call.frames.iter().map(|(name, file, line)| (*name, *file, Ok(*line))).collect();
        assert_eq!(lines, (dump.encoding == Encoding::Pickle).then_some(written), "{place}");
    }
}

#[test]
fn brackets_are_numbered_as_torch_does() {
    let run = pipeline();
    let dump = read(&run.bytes(0, Written::Torch));
    let numbers = |name: &str| -> Vec<_> {
        let named = dump.entries.iter().filter(|entry| &*entry.name.text == name);
        named.map(|entry| (entry.collective_seq_id, entry.p2p_seq_id, entry.op_id, entry.state)).collect()
    };
    // The first send stands alone, the second in a bracket with the receive: one launch, two calls.
    let sends = [(0, 1, 1, EntryState::Completed), (0, 2, 2, EntryState::Scheduled)];
    assert_eq!(numbers("nccl:send 0->1"), sends);
    assert_eq!(numbers("nccl:recv 0<-1"), [(0, 2, 3, EntryState::Scheduled)]);
    assert_eq!(numbers("nccl:coalesced"), [(0, 2, 3, EntryState::Completed)]);
}

#[test]
fn names_are_taken_apart() {
    let peers = |from, to| Some(Peers { from, to });
    let known = [
        ("nccl:all_reduce", "nccl", "all_reduce", EntryKind::AllReduce),
        ("nccl:allreduce_coalesced", "nccl", "allreduce_coalesced", EntryKind::AllReduce),
        ("xccl:_all_gather_base", "xccl", "_all_gather_base", EntryKind::AllGather),
        ("ncclx:all_gather_v", "ncclx", "all_gather_v", EntryKind::AllGather),
        (
            "nccl:reduce_scatter_tensor_coalesced",
            "nccl",
            "reduce_scatter_tensor_coalesced",
            EntryKind::ReduceScatter,
        ),
        ("nccl:_broadcast_oop", "nccl", "_broadcast_oop", EntryKind::Broadcast),
        ("nccl:all_reduce_barrier", "nccl", "all_reduce_barrier", EntryKind::Barrier),
        ("nccl:send 0->13", "nccl", "send", EntryKind::Send(peers(0, 13))),
        ("nccl:recv 2<-1", "nccl", "recv", EntryKind::Recv(peers(1, 2))),
        ("ncclx:send", "ncclx", "send", EntryKind::Send(None)),
        ("nccl:recv 2<-", "nccl", "recv", EntryKind::Recv(None)),
        ("nccl:coalesced", "nccl", "coalesced", EntryKind::Coalesced),
        ("nccl:ALLGATHER_coalesced", "nccl", "ALLGATHER_coalesced", EntryKind::Coalesced),
        ("nccl:REDUCE_SCATTER_coalesced", "nccl", "REDUCE_SCATTER_coalesced", EntryKind::Coalesced),
        ("ncclx:split", "ncclx", "split", EntryKind::Split),
        ("ncclx:new_window", "ncclx", "new_window", EntryKind::NewWindow),
        ("nccl:all_to_all", "nccl", "all_to_all", EntryKind::AllToAll),
        ("nccl:all_to_some", "nccl", "all_to_some", EntryKind::Other),
        ("gather", "", "gather", EntryKind::Gather),
        ("a_coalesced", "", "a_coalesced", EntryKind::Other),
        ("::", "", "", EntryKind::Other),
        ("", "", "", EntryKind::Other),
    ];
    for (text, backend, word, kind) in known {
        let name = EntryName::new(text.into());
        assert_eq!((name.backend(), name.word(), name.kind), (backend, word, kind), "{text}");
    }
}

#[test]
fn nothing_of_a_pickle_is_executed() {
    let whole = pipeline().bytes(0, Written::Torch);
    let executing = [
        (b'c', "GLOBAL"),
        (0x93, "STACK_GLOBAL"),
        (b'R', "REDUCE"),
        (b'b', "BUILD"),
        (b'i', "INST"),
        (b'o', "OBJ"),
        (0x81, "NEWOBJ"),
        (0x92, "NEWOBJ_EX"),
        (0x82, "EXT1"),
        (0x83, "EXT2"),
        (0x84, "EXT4"),
        (b'P', "PERSID"),
        (b'Q', "BINPERSID"),
    ];
    for (byte, opcode) in executing {
        // In the place of the outermost table, and in that of the last opcode.
        for offset in [2, whole.len() - 1] {
            let mut bytes = whole.clone();
            bytes[offset] = byte;
            let error = read_pickle(&bytes).expect_err("it would execute");
            assert_eq!(error, PickleError::Executes { offset, opcode });
        }
    }
    // What `pickle.dumps` writes of an object whose `__reduce__` starts a shell.
    let shell = b"\x80\x04\x95\x1d\x00\x00\x00\x00\x00\x00\x00\x8c\x05posix\x94\x8c\x06system\x94\x93\x94\x8c\x02id\x94\x85\x94R\x94.";
    assert_eq!(
        read_pickle(shell).expect_err("it would"),
        PickleError::Executes { offset: 28, opcode: "STACK_GLOBAL" }
    );
}

#[test]
fn a_short_pickle_is_read_to_its_numbers() {
    for (bytes, number) in [
        (&b"K\xff"[..], 255),
        (b"M\xff\xff", 65_535),
        (b"J\xff\xff\xff\xff", -1),
        (b"\x8a\x00", 0),
        (b"\x8a\x01\xff", -1),
        (b"\x8a\x02\xff\x00", 255),
        (b"\x8a\x08\x00\x00\x00\x00\x00\x00\x00\x80", i64::MIN),
        (b"\x8b\x03\x00\x00\x00\x01\x00\x80", -8_388_607),
    ] {
        let mut dump = pipeline().datum(0);
        *dump.field("entries").item(0).field("time_created_ns") = Datum::Text("HERE".to_owned());
        let whole = torch_pickle(&dump);
        let here = whole.windows(9).position(|window| window == b"X\x04\0\0\0HERE").expect("it was written");
        // The text is remembered, which an integer may be too.
        let replaced = [&whole[..here], bytes, &whole[here + 9..]].concat();
        assert_eq!(read(&replaced).entries[0].time_created_ns, number);
    }
}

/// The field of the dump that is changed, and what is said of it.
#[test]
fn a_wrong_field_is_named_with_its_place() {
    type Change = fn(&mut Datum);
    let cases: [(Change, &str); 13] = [
        (|dump| *dump.field("version") = Datum::Whole(2), "version is an integer, and a text belongs there"),
        (
            |dump| *dump.field("version") = Datum::Text("3.0".to_owned()),
            "its version is `3.0`, and 2.1 to 2.10 are known",
        ),
        (
            |dump| *dump.field("pg_config").field("1").field("ranks") = Datum::Text("[0, x]".to_owned()),
            "pg_config.1.ranks is the text `[0, x]`, and a list of ranks, each once belongs there",
        ),
        (
            |dump| *dump.field("pg_config").field("1").field("ranks") = Datum::Text("[2, 2]".to_owned()),
            "pg_config.1.ranks is the text `[2, 2]`, and a list of ranks, each once belongs there",
        ),
        (
            |dump| *dump.field("pg_status").field("1").field("last_enqueued_collective") = Datum::Nothing,
            "pg_status.1.last_enqueued_collective is nothing, and an integer belongs there",
        ),
        (
            |dump| *dump.field("entries") = Datum::Table(Vec::new()),
            "entries is a table, and a list belongs there",
        ),
        (
            |dump| *dump.field("entries").item(3) = Datum::Truth(true),
            "entries[3] is a truth value, and a table belongs there",
        ),
        (|dump| dump.field("entries").item(3).without("state"), "entries[3].state is missing"),
        (
            |dump| *dump.field("entries").item(3).field("state") = Datum::Text("hung".to_owned()),
            "entries[3].state is the text `hung`, and `scheduled`, `started` or `completed` belongs there",
        ),
        (
            |dump| *dump.field("entries").item(2).field("process_group").item(1) = Datum::Whole(1),
            "entries[2].process_group[1] is an integer, and a text belongs there",
        ),
        (
            |dump| *dump.field("entries").item(0).field("input_sizes").item(0).item(1) = Datum::Fraction(0.5),
            "entries[0].input_sizes[0][1] is a fraction, and an integer belongs there",
        ),
        (
            |dump| *dump.field("entries").item(0).field("input_dtypes") = Datum::List(Vec::new()),
            "entries[0].input_dtypes is a list of another length, and one type for each tensor belongs there",
        ),
        (
            |dump| *dump.field("entries").item(1).field("op_id") = Datum::Whole(-4),
            "entries[1].op_id is -4, and a count belongs there",
        ),
    ];
    for (change, said) in cases {
        let mut dump = pipeline().datum(0);
        change(&mut dump);
        for bytes in [torch_pickle(&dump), python_pickle(&dump, 4)] {
            assert_eq!(read_dump(&bytes).expect_err(said).to_string(), said);
        }
    }
}

#[test]
fn fields_that_are_not_known_are_counted() {
    let mut dump = pipeline().datum(0);
    dump.with("host", Datum::Text("node1".to_owned()));
    for index in [0, 2] {
        dump.field("entries").item(index).with("stream", Datum::Whole(7));
    }
    let read = read(&torch_pickle(&dump));
    let counted = BTreeMap::from([("entries[].stream".to_owned(), 2), ("host".to_owned(), 1)]);
    assert_eq!(read.unknown_fields, counted);
}

#[test]
fn what_is_no_dump_is_no_damaged_dump() {
    for bytes in [
        &b""[..],
        b"Fault ranks: [12, 14]\n",
        b"{\"a\": 1}",
        b"{\"a\": 1}\n{\"a\": 2}\n",
        b"\x80\x02].",
        b"PK\x03\x04",
        b"[1]",
    ] {
        let error = read_dump(bytes).expect_err("it is none");
        assert!(error.is_something_else(), "{error}");
    }
    let json = pipeline().bytes(0, Written::Json);
    let error = read_dump(&json[..json.len() / 2]).expect_err("it is cut off");
    assert!(matches!(error, DumpError::Json(_)), "{error}");
}

/// Of a pickle that is cut off, only what stands whole before the cut is said.
#[test]
fn a_cut_dump_says_nothing_that_the_whole_one_does_not() {
    let run = pipeline();
    for written in [Written::Torch, Written::Python(2), Written::Python(4)] {
        let bytes = run.bytes(2, written);
        let whole = read(&bytes);
        let (mut most, mut refused) = (0, 0);
        for length in 1..bytes.len() {
            let Ok(dump) = read_dump(&bytes[..length]) else {
                refused += 1;
                continue;
            };
            assert!(dump.cut.is_some(), "{length} of {} bytes", bytes.len());
            assert!(dump.entries.len() >= most, "{length} of {} bytes", bytes.len());
            most = dump.entries.len();
            assert_eq!(dump.entries, whole.entries[..most]);
            assert!(dump.groups.is_empty() || dump.groups == whole.groups);
            assert!(dump.progress.is_empty() || dump.progress == whole.progress);
        }
        assert_eq!(most, whole.entries.len(), "{written:?}");
        assert!(refused < 250, "{written:?}: {refused} of {} cuts are refused", bytes.len());
    }
}

/// Values that mention one another would be as large as two to the power of their number if they were copied, and deep
/// ones would need a stack as deep.
#[test]
fn a_pickle_costs_what_its_bytes_cost() {
    let field = |name: &str, value: &[u8]| {
        [b"X", &u32::try_from(name.len()).expect("short").to_le_bytes()[..], name.as_bytes(), value].concat()
    };
    let dump = |entries: &[u8]| {
        let version = field("version", b"X\x03\0\0\x002.9");
        [b"\x80\x02}(", &version[..], &field("entries", entries), b"u."].concat()
    };
    let mut doubling = b"]q\0".to_vec();
    for number in 0..200 {
        doubling.extend([b']', b'(', b'h', number, b'h', number, b'e', b'q', number + 1]);
    }
    let mut doubled = b"](".to_vec();
    doubled.extend(&doubling);
    doubled.push(b'e');
    let deep = [vec![b']'; 2_000_000], vec![b'a'; 2_000_000]].concat();
    // A list in itself.
    let endless = b"]q\x00h\x00a".to_vec();
    for entries in [doubled, doubling, deep, endless] {
        let error = read_dump(&dump(&entries)).expect_err("entries are tables");
        assert!(matches!(error, DumpError::Field { .. } | DumpError::Pickle(_)), "{error}");
    }
    for opcode in [
        &b"X\xff\xff\xff\xff"[..],
        b"\x8d\xff\xff\xff\xff\xff\xff\xff\xff",
        b"B\xff\xff\xff\x7f",
        b"\x8b\xff\xff\xff\xff",
    ] {
        let error = read_pickle(&[b"\x80\x04", opcode].concat()).expect_err("the bytes are not there");
        assert!(matches!(error, PickleError::CutOff { offset: 2, left: 0, .. }), "{error}");
    }
}

/// One list of many sizes, mentioned by many entries, is read once.
#[test]
fn what_many_entries_mention_is_read_once() {
    const MANY: usize = 20_000;
    let mut run = DumpedRun::new(1);
    let all = run.all();
    run.ring = MANY;
    for _ in 0..MANY {
        run.collective(0, all, &Call::new("all_reduce"));
    }
    let mut dump = run.datum(0);
    let sizes = Datum::Shared(Box::new(Datum::List(vec![
        Datum::Shared(Box::new(Datum::List(
            vec![Datum::Whole(1); MANY]
        )));
        100
    ])));
    let dtypes = Datum::Shared(Box::new(Datum::List(vec![Datum::Text("Float".to_owned()); 100])));
    let Datum::List(entries) = dump.field("entries") else { panic!("entries are a list") };
    // The writer compares what is shared by its text, which is long: two mentions stand for the others.
    for entry in &mut entries[..2] {
        *entry.field("input_sizes") = sizes.clone();
        *entry.field("input_dtypes") = dtypes.clone();
    }
    let read = read(&torch_pickle(&dump));
    assert_eq!(read.entries.len(), MANY);
    let [one, other] = [0, 1].map(|index| &read.entries[index].inputs);
    assert!(std::sync::Arc::ptr_eq(&one.sizes, &other.sizes));
    assert!(std::sync::Arc::ptr_eq(&one.sizes[0], &one.sizes[99]));
    // Equal stacks are one as well, though torch writes a list for each call.
    let stack = |index: usize| read.entries[index].frames.as_ref().expect("stacks were written");
    assert!(std::sync::Arc::ptr_eq(stack(0), stack(MANY - 1)));
    // And an entry is not another one.
    let text = |text: &str| Datum::Text(text.to_owned());
    let entry = Datum::Shared(Box::new(pipeline().datum(0).field("entries").item(0).clone()));
    let twice = Datum::Table(vec![
        (text("version"), text("2.9")),
        (text("entries"), Datum::List(vec![entry.clone(), entry])),
    ]);
    let error = read_dump(&torch_pickle(&twice)).expect_err("one table is two entries");
    let said = "entries[1] is a table that stands elsewhere too, and a table of its own belongs there";
    assert_eq!(error.to_string(), said);
}

#[test]
fn damaged_dumps_are_refused_or_read() {
    let run = pipeline();
    let seeds: Vec<Vec<u8>> =
        EVERY_WAY.iter().flat_map(|written| [0, 3].map(|rank| run.bytes(rank, *written))).collect();
    let (mut whole, mut cut, mut refused) = (0, 0, 0);
    for number in 1..=20_000_u64 {
        let mut random = Random(number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let bytes = damaged_dump(&seeds[random.below(seeds.len())], &mut random);
        match read_dump(&bytes) {
            Ok(dump) => {
                *(if dump.cut.is_some() { &mut cut } else { &mut whole }) += 1;
                // Entries are not made of nothing.
                assert!(
                    dump.entries.len() * 40 < bytes.len().max(80),
                    "{} of {}",
                    dump.entries.len(),
                    bytes.len()
                );
            }
            Err(error) => {
                refused += 1;
                assert!(!error.to_string().is_empty() && error.to_string().len() < 400, "{error}");
            }
        }
    }
    println!("damaged dumps: {whole} read, {cut} read up to a cut, {refused} refused");
    assert!(whole > 500 && cut > 500 && refused > 5_000, "{whole} read, {cut} cut, {refused} refused");
}

#[test]
fn ranks_stand_in_names() {
    for (name, found) in [
        ("nccl_trace_rank_3", Some(("nccl_trace_rank_", 3))),
        ("comm_lib_trace_rank_0", Some(("comm_lib_trace_rank_", 0))),
        ("nccl_trace_rank_12.json", Some(("nccl_trace_rank_", 12))),
        ("_dump_14", Some(("_dump_", 14))),
        ("7", Some(("", 7))),
        ("trace.5", Some(("trace.", 5))),
        ("Rank03.pkl", Some(("Rank", 3))),
        ("rank-2_step_300.pickle", Some(("rank-", 2))),
        ("job1_rank2_of_8", Some(("job1_rank", 2))),
        ("ranking", None),
        ("fault_injection.log", None),
        ("dump_99999999999", None),
        ("", None),
    ] {
        assert_eq!(rank_in_name(name), found, "{name}");
    }
}

fn folder(saved: &DumpsSaved) -> DumpFolder {
    read_folder(std::slice::from_ref(&saved.folder)).unwrap_or_else(|error| panic!("{error}"))
}

/// The notes, without the folder.
fn notes(folder: &DumpFolder, saved: &DumpsSaved) -> Vec<String> {
    let prefix = format!("{}/", saved.folder.display());
    folder.notes.iter().map(|note| note.to_string().replace(&prefix, "")).collect()
}

fn ranks(folder: &DumpFolder) -> Vec<Vec<u32>> {
    folder.jobs.iter().map(|job| job.ranks.keys().copied().collect()).collect()
}

#[test]
fn a_whole_job_has_no_notes() {
    for written in EVERY_WAY {
        let saved = pipeline().save("whole", written);
        let folder = folder(&saved);
        assert_eq!(ranks(&folder), [[0, 1, 2, 3]]);
        assert!(folder.notes.is_empty() && folder.jobs[0].missing.is_empty(), "{:?}", notes(&folder, &saved));
        assert!(folder.jobs[0].size_known);
    }
}

#[test]
fn what_is_odd_about_files_is_said() {
    let mut run = pipeline();
    let saved = DumpsSaved::new("odd");
    saved.write("notes.txt", b"it hung again");
    saved.write("config.json", b"{\"lr\": 1}");
    let bytes = run.bytes(0, Written::Torch);
    saved.write("trace_rank_0", &bytes[..bytes.len() - 300]);
    saved.write("trace_rank_1", b"");
    let mut odd = run.datum(2);
    odd.field("entries").item(0).with("stream", Datum::Whole(1));
    run.minor = 9;
    saved.write("trace_rank_2", &torch_pickle(&odd));
    saved.write("trace_rank_2.json", &run.bytes(2, Written::Json));
    let folder = folder(&saved);
    assert_eq!(ranks(&folder), [[0, 2]]);
    let said = notes(&folder, &saved);
    assert_eq!(said[0], "trace_rank_1 cannot be read, so rank 1 is not known: it is empty");
    assert_eq!(
        said[1..3],
        [
            "config.json is not looked at: it is no Flight Recorder dump: it has no `version`, or neither `entries` nor `pg_config`",
            "notes.txt is not looked at: it is no Flight Recorder dump: it begins neither as pickle nor as JSON does"
        ]
    );
    assert_eq!(said[3], "rank 2 has two dumps: trace_rank_2 is used, and trace_rank_2.json is not");
    assert!(said[4].starts_with("rank 0: trace_rank_0 ends too early, and only the "), "{}", said[4]);
    assert_eq!(said[5], "these fields are not known and were not looked at: `entries[].stream` (1 times)");
    assert_eq!(said[6], "ranks 1, 3 have no dump here that was read; the groups of others have them");
    assert_eq!(said.len(), 7);
}

#[test]
fn empty_rings_and_versions_are_said() {
    let mut run = pipeline();
    let saved = DumpsSaved::new("empty");
    saved.write("trace_rank_0", &run.bytes(0, Written::Torch));
    run.minor = 4;
    run.ranks[1].calls.clear();
    for written in [Written::Torch, Written::Json] {
        // JSON has no `entries` where there are none.
        saved.write("trace_rank_1", &run.bytes(1, written));
        let folder = folder(&saved);
        assert!(folder.jobs[0].ranks[&1].dump.entries.is_empty());
        let said = notes(&folder, &saved);
        assert_eq!(said[0], "no calls are in the dumps of ranks 1");
        assert_eq!(said[1], "the dumps are of several versions: 2.4 of ranks 1, 2.10 of ranks 0");
    }
}

#[test]
fn without_groups_only_gaps_are_known() {
    let saved = DumpsSaved::new("gaps");
    for rank in [1_u32, 4, 4_000_000_000] {
        let mut run = pipeline();
        run.ranks[0].calls.iter_mut().for_each(|call| call.created += i64::from(rank));
        let mut dump = run.datum(0);
        dump.without("pg_config");
        saved.write(&format!("trace_rank_{rank}"), &torch_pickle(&dump));
    }
    let folder = folder(&saved);
    assert_eq!(display_ranks(&folder.jobs[0].missing), "0, 2-3, 5-3999999999");
    assert!(!folder.jobs[0].size_known);
}

#[test]
fn a_rank_that_no_name_has_is_found_in_groups_and_transfers() {
    let run = pipeline();
    let saved = DumpsSaved::new("unnamed");
    for (name, rank) in ["a", "b", "c"].into_iter().zip([0, 1, 3]) {
        saved.write(&format!("dump-{name}"), &run.bytes(rank, Written::Torch));
    }
    // Rank 2 says neither: it called no transfer.
    let mut silent = run.clone();
    silent.ranks[2].calls.retain(|call| call.pg_id == 0);
    saved.write("dump-d", &silent.bytes(2, Written::Torch));
    let folder = folder(&saved);
    assert_eq!(ranks(&folder), [[0, 1, 3]]);
    let said = notes(&folder, &saved);
    assert_eq!(said[0], "dump-d is not used: neither its name nor its groups say which rank it is of");
    assert!(said.last().is_some_and(|last| last.starts_with("ranks 2 have no dump here")), "{said:?}");
    assert_eq!(folder.unplaced.len(), 1);
}

#[test]
fn numbers_of_a_node_are_no_ranks_of_the_job() {
    let run = pipeline();
    let saved = DumpsSaved::new("nodes");
    for rank in 0..4 {
        saved.write(&format!("node{}/trace_rank_{}", rank / 2, rank % 2), &run.bytes(rank, Written::Torch));
    }
    let folder = folder(&saved);
    assert_eq!(ranks(&folder), [[0, 1, 2, 3]]);
    let said = notes(&folder, &saved);
    assert!(said[0].starts_with("node1/trace_rank_0 is named for rank 0, but its groups"), "{said:?}");
    assert!(said[0].ends_with("rank 2; it is taken for rank 2"), "{said:?}");
    assert!(said[2].ends_with("are taken for one job: no rank is there twice"), "{said:?}");
    assert_eq!(said.len(), 3);
}

#[test]
fn two_attempts_are_two_jobs() {
    let run = pipeline();
    let saved = DumpsSaved::new("attempts");
    for attempt in ["first", "second"] {
        for rank in 0..4 {
            saved.write(&format!("{attempt}_rank_{rank}"), &run.bytes(rank, Written::Torch));
        }
    }
    // A job of another size does not belong to either.
    saved.write("third_rank_5", &DumpedRun::new(8).bytes(5, Written::Torch));
    let folder = folder(&saved);
    assert_eq!(ranks(&folder), [vec![0, 1, 2, 3], vec![0, 1, 2, 3], vec![5]]);
    assert!(matches!(&folder.notes[0], DumpNote::SeveralJobs { prefixes } if prefixes.len() == 3));
}

#[test]
fn a_path_that_is_not_there_is_an_error() {
    let missing = PathBuf::from("no/such/folder");
    let error = read_folder(std::slice::from_ref(&missing)).expect_err("it is not there");
    assert!(error.to_string().starts_with("cannot read no/such/folder: "), "{error}");
}

/// The dumps of two real jobs, where they lie beside the repository.
#[test]
fn real_dumps_are_read() {
    let beside = |root: &Path| Some(root.join("shared/data/flight-recorder")).filter(|path| path.is_dir());
    let Some(data) = enter().ancestors().skip(1).find_map(beside) else {
        println!("skipped: the dumps of real jobs are not here");
        return;
    };
    for (job, ring, empty) in [("gpu_error_1st", 289, &[][..]), ("lock_gil_2nd", 216, &[10, 15][..])] {
        let folder = read_folder(&[data.join(job)]).unwrap_or_else(|error| panic!("{error}"));
        let [found] = &folder.jobs[..] else { panic!("{job} is one job") };
        assert_eq!(found.ranks.keys().copied().collect::<Vec<_>>(), (0..16).collect::<Vec<_>>(), "{job}");
        let dumps = || found.ranks.iter().map(|(rank, one)| (*rank, &one.dump));
        assert_eq!(dumps().map(|(_, dump)| dump.entries.len()).sum::<usize>(), ring, "{job}");
        let without = dumps().filter(|(_, dump)| dump.entries.is_empty()).map(|(rank, _)| rank);
        assert_eq!(without.collect::<Vec<u32>>(), empty, "{job}");
        for (rank, dump) in dumps() {
            assert_eq!(dump.version.minor, 9, "{job}, rank {rank}");
            assert!(dump.groups.len() >= 12, "{job}, rank {rank}");
            assert!(dump.unknown_fields.is_empty() && dump.cut.is_none(), "{job}, rank {rank}");
            for entry in &dump.entries {
                assert_eq!(entry.state, EntryState::Scheduled, "{job}, rank {rank}");
                assert_ne!(entry.name.kind, EntryKind::Other, "{job}, rank {rank}");
                assert!(entry.inputs.elements().is_some_and(|elements| elements > 0), "{job}, rank {rank}");
            }
        }
        // Each dump says itself which rank it is of: no note, apart from the file that names the faults, and the
        // dumps without calls.
        let said: Vec<String> = folder.notes.iter().map(ToString::to_string).collect();
        assert!(said[0].contains("fault_injection.log is not looked at"), "{job}: {said:?}");
        assert_eq!(said.len(), 1 + usize::from(!empty.is_empty()), "{job}: {said:?}");
        assert!(found.missing.is_empty() && found.size_known, "{job}");
    }
}
