//! Recorded runs of which not everything is known: nothing is concluded from what was not recorded, and a run of which
//! nothing was judged does not hold.
//!
//! Not here: what is found in runs of which all is known (`runs.rs`).

use std::path::Path;
use std::process::Command;

use rankcheck::runs::fold::Folding;
use rankcheck::runs::judge::{Judged, RunVerdict, judge, read, read_folded};
use rankcheck::runs::report::text;
use rankcheck_recording::{Field, Signature};
use rankcheck_tests::recording::{F32, Process, Run};
use serde_json::Value;

use crate::built::command;

const MIB: u64 = 1 << 20;

/// The verdict of a run is the same folded and whole.
fn judged(run: Run, name: &str) -> Judged {
    let saved = run.save(&format!("known-{name}"));
    let whole = judge(read_folded(&saved.folder, Folding::Nothing).expect("a recording"), None)
        .expect("it can be judged");
    let folded = judge(read(&saved.folder).expect("a recording"), None).expect("it can be judged");
    assert_eq!(folded.verdict, whole.verdict, "{}\n{}", text(&folded), text(&whole));
    folded
}

fn is(judged: &Judged, verdict: RunVerdict, words: &[&str]) {
    let text = text(judged);
    assert_eq!(judged.verdict, verdict, "{text}");
    for word in words {
        assert!(text.contains(word), "{word:?} is missing in:\n{text}");
    }
}

/// What a collective is given beside its buffers, its stream and its communicator.
#[derive(Clone, Copy)]
struct Payload {
    count: u64,
    root: u64,
}

macro_rules! collectives {
    ($($name:literal [$($key:literal),*])*) => {
        [$(Signature { name: $name, keys: &[$($key),*], instant: false }),*]
    };
}

const COLLECTIVES: [Signature; 8] = collectives! {
    "ncclAllReduce" ["send", "recv", "count", "dtype", "op", "comm", "stream"]
    "ncclAllGather" ["send", "recv", "count", "dtype", "comm", "stream"]
    "ncclReduceScatter" ["send", "recv", "count", "dtype", "op", "comm", "stream"]
    "ncclBroadcast" ["send", "recv", "count", "dtype", "root", "comm", "stream"]
    "ncclReduce" ["send", "recv", "count", "dtype", "op", "root", "comm", "stream"]
    "ncclAlltoAll" ["send", "recv", "count", "dtype", "comm", "stream"]
    "ncclGather" ["send", "recv", "count", "dtype", "root", "comm", "stream"]
    "ncclScatter" ["send", "recv", "count", "dtype", "root", "comm", "stream"]
};

/// A collective of f32 on two buffers.
fn collect(
    p: &mut Process,
    call: &Signature,
    (comm, stream): (u64, u64),
    (send, recv): (u64, u64),
    given: Payload,
) {
    let field = |key: &&str| match *key {
        "send" => Field::Address(send),
        "recv" => Field::Address(recv),
        "count" => Field::Number(given.count),
        "dtype" => Field::Number(F32),
        "op" => Field::Number(0),
        "root" => Field::Number(given.root),
        "comm" => Field::Address(comm),
        "stream" => Field::Address(stream),
        other => panic!("no collective has {other}"),
    };
    let fields: Vec<Field<'_>> = call.keys.iter().map(field).collect();
    p.call(call, &fields);
}

#[test]
fn what_has_no_elements_parts_nobody() {
    // By rank: the elements of a call, or that it is not made.
    let run = |call: &Signature, counts: [Option<u64>; 3], rounds: u32| {
        let mut run = Run::new(3);
        run.all(|p, rank| {
            let (comm, stream) = (p.init(1, rank, 3), p.stream());
            let (send, recv) = (p.alloc(4 * MIB), p.alloc(4 * MIB));
            let odd = |p: &mut Process, root: u64| {
                let Some(count) = counts[rank as usize] else { return };
                // Of no elements any pointers will do.
                let buffers = if count == 0 { (0, 0) } else { (send, recv) };
                p.from("odd.py:4", |p| collect(p, call, (comm, stream), buffers, Payload { count, root }));
            };
            for _ in 0..rounds {
                odd(p, 1);
                p.all_reduce(comm, send, 1024, stream);
                p.synchronize(stream);
            }
            let graph = p.capture(stream, |p| {
                odd(p, 0);
                p.all_reduce(comm, recv, 256, stream);
            });
            (0..rounds).for_each(|_| p.replay(graph, stream));
            p.synchronize(stream);
        });
        run.exit();
        run
    };
    for call in &COLLECTIVES {
        for rounds in [1, 200] {
            for counts in [[Some(0); 3], [Some(0), None, None], [None, Some(0), Some(0)]] {
                let judged = judged(run(call, counts, rounds), "empty");
                is(&judged, RunVerdict::Holds, &["on 1 communicator by 3 ranks"]);
                assert_eq!(judged.recording.folded.iterations.is_empty(), rounds == 1, "{}", text(&judged));
            }
        }
        let differs = judged(run(call, [Some(0), Some(8), Some(8)], 1), "empty-one");
        assert_eq!(differs.verdict, RunVerdict::Fails, "{}: {}", call.name, text(&differs));
    }
}

#[test]
fn transfers_of_no_elements_are_transfers() {
    let run = |receives: bool| {
        let mut run = Run::new(2);
        run.all(|p, rank| {
            let (comm, stream) = (p.init(1, rank, 2), p.stream());
            if rank == 0 {
                p.send(0, 0, (1, comm, stream));
            } else if receives {
                p.recv(0, 0, (0, comm, stream));
            }
            p.synchronize(stream);
        });
        run.exit();
        judged(run, "empty-transfer")
    };
    is(&run(true), RunVerdict::Holds, &["judged    1 transfer on 1 communicator by 2 ranks"]);
    is(&run(false), RunVerdict::Fails, &["P2P-2"]);
}

#[test]
fn a_run_of_which_nothing_was_judged_does_not_hold() {
    let reduces = |p: &mut Process| {
        let (comm, buffer, stream) = (p.handle(), p.alloc(MIB), p.stream());
        p.from("train.py:8", |p| (0..12).for_each(|_| p.all_reduce(comm, buffer, 64, stream)));
        p.synchronize(stream);
    };
    // No communicator came to be.
    let mut failed = Run::new(4);
    failed.all(|p, rank| {
        p.enter_init(1, rank, 4);
        p.fails(2);
        reduces(p);
    });
    failed.exit();
    let words = [
        "nothing was judged",
        "48 ncclAllReduce",
        "not seen to be made",
        "judged    nothing",
        "ncclSystemError",
    ];
    is(&judged(failed, "no-communicator"), RunVerdict::Unknown, &words);
    // It was made before the recording began, beside one that is judged.
    let mut older = Run::new(2);
    older.all(|p, rank| {
        let (comm, buffer, stream) = (p.init(1, rank, 2), p.alloc(MIB), p.stream());
        p.all_reduce(comm, buffer, 64, stream);
        p.synchronize(stream);
        reduces(p);
    });
    older.exit();
    let words = ["24 ncclAllReduce", "judged    1 collective on 1 communicator by 2 ranks"];
    is(&judged(older, "older"), RunVerdict::Unknown, &words);
    // Nothing but Python, and kernels.
    let mut gloo = Run::new(2);
    gloo.all(|p, _| {
        p.from("main.py:3", |p| p.kernel(0));
        p.store_set("key");
    });
    gloo.exit();
    is(&judged(gloo, "gloo"), RunVerdict::Unknown, &["nothing was judged", "2 cudaLaunchKernel"]);
    // Memory of other processes, without NCCL.
    let mut shared = Run::new(2);
    shared.all(|p, rank| {
        if rank == 0 {
            let memory = p.malloc(MIB);
            p.export(memory, 7);
        } else {
            p.time += 20_000_000;
            let opened = p.open(7, MIB);
            p.close(opened);
        }
    });
    shared.exit();
    is(&judged(shared, "shared"), RunVerdict::Holds, &["judged    1 mapping by 1 rank"]);
}

/// A program of two ranks that uses what a recording can tell, in each way that a call can be told.
fn program(p: &mut Process, rank: u32) {
    let (comm, stream, other) = (p.init(1, rank, 2), p.stream(), p.stream());
    let (send, recv) = (p.alloc(4 * MIB), p.alloc(4 * MIB));
    let windows = [p.register(comm, send, 4 * MIB), p.register(comm, recv, 4 * MIB)];
    let child = p.split(comm, 0, rank.into());
    for call in &COLLECTIVES {
        collect(p, call, (comm, stream), (send, recv), Payload { count: 4096, root: 1 });
    }
    if rank == 0 {
        // It launches nothing, so that the other rank need not call.
        p.all_reduce(comm, send, 0, stream);
    }
    let event = p.handle();
    p.record(event, stream);
    p.wait(other, event);
    p.all_reduce(child, recv, 1024, other);
    p.record(event, other);
    p.query_done(event);
    p.synchronize(stream);
    p.group(|p| {
        p.send(send, 512, (1 - rank, comm, stream));
        p.recv(recv, 512, (1 - rank, comm, stream));
    });
    let graph = p.capture(stream, |p| p.all_reduce(comm, send, 2048, stream));
    p.replay(graph, stream);
    p.synchronize(stream);
    p.destroy_graph(graph);
    let lent = p.malloc(MIB);
    p.copy(lent, send, MIB, stream);
    p.synchronize(stream);
    if rank == 0 {
        p.export(lent, 9);
        p.time += 60_000_000;
    } else {
        p.time += 30_000_000;
        let opened = p.open(9, MIB);
        p.copy(opened, recv, MIB, stream);
        p.synchronize(stream);
        p.close(opened);
        p.time += 30_000_000;
    }
    p.cuda_free(lent);
    for window in windows {
        p.deregister(comm, window);
    }
    p.free(send);
    // The address comes back.
    p.alloc_at(4 * MIB, send);
    p.all_reduce(comm, send, 1024, stream);
    p.synchronize(stream);
    p.destroy(child);
    p.destroy(comm);
    // And that of the communicator.
    p.enter_init(2, rank, 2);
    p.leave_init(comm);
    p.all_reduce(comm, send, 1024, stream);
    p.synchronize(stream);
}

/// A program that repeats itself: communicators that do not block, windows of a group, transfers both ways, replays.
fn repeating(p: &mut Process, rank: u32) {
    let comm = p.init_in_background(3, rank, 2);
    let memory = [p.alloc(2 * MIB), p.alloc(2 * MIB)];
    let windows = p.register_grouped(comm, &memory.map(|address| (address, 2 * MIB)));
    let (stream, side) = (p.stream(), p.stream());
    let pair = p.split(comm, 4, -i64::from(rank));
    let event = p.handle();
    let graph = p.capture(stream, |p| p.reduce(comm, (memory[0], memory[0]), 128, (1, stream)));
    let spare = p.malloc(MIB);
    p.cuda_free(spare);
    for _ in 0..6 {
        p.from("loop.py:3", |p| p.all_reduce(comm, memory[0], 256, stream));
        p.record(event, stream);
        p.wait(side, event);
        p.group(|p| {
            p.send(memory[0], 64, (rank, pair, side));
            p.recv(memory[1], 64, (rank, pair, side));
            p.send(memory[0], 32, (1 - rank, pair, side));
            p.recv(memory[1] + MIB, 32, (1 - rank, pair, side));
        });
        p.malloc_at(MIB, spare);
        p.copy(spare, memory[1], 1024, side);
        p.synchronize(side);
        p.cuda_free(spare);
        p.replay(graph, stream);
        p.synchronize(stream);
    }
    windows.into_iter().for_each(|window| p.deregister(comm, window));
    p.destroy_graph(graph);
    p.destroy(pair);
    p.destroy(comm);
}

fn run_of(program: Ranks, forgotten: Option<(u32, usize)>) -> (Run, Vec<(&'static str, &'static str)>) {
    let mut run = Run::new(2);
    run.all(|p, rank| {
        p.forgotten = forgotten.filter(|(of, _)| *of == rank).map(|(_, value)| value);
        p.values.clear();
        program(p, rank);
    });
    let values = run.ranks[forgotten.map_or(0, |(rank, _)| rank as usize)].values.clone();
    run.exit();
    (run, values)
}

/// What each rank does.
type Ranks = fn(&mut Process, u32);

/// Values on which no verdict rests.
const IDLE: [(&str, &str); 3] =
    [("cudaStreamBeginCapture", "mode"), ("cudaMemcpyAsync", "kind"), ("torch.distributed.step", "place")];

#[test]
fn a_value_that_was_not_recorded_breaks_no_rule() {
    let (whole, _) = run_of(program, None);
    is(
        &judged(whole, "whole"),
        RunVerdict::Holds,
        &["11 collectives, 2 transfers, 2 windows, 1 mapping on 3"][..0],
    );
    let (whole, _) = run_of(repeating, None);
    is(&judged(whole, "repeats"), RunVerdict::Holds, &["2 windows on 2 communicators by 2 ranks"]);
    let (mut tried, mut held) = (0, Vec::new());
    for (program, rank) in [(program as Ranks, 0), (program, 1), (repeating, 0), (repeating, 1)] {
        let (_, values) = run_of(program, Some((rank, usize::MAX)));
        for (at, value) in values.iter().enumerate() {
            let (run, _) = run_of(program, Some((rank, at)));
            let judged = judged(run, "forgotten");
            let text = text(&judged);
            match judged.verdict {
                RunVerdict::Unknown => {}
                RunVerdict::Holds => held.push(*value),
                RunVerdict::Fails | RunVerdict::Hangs => {
                    panic!("without {value:?} (number {at}) of rank {rank}:\n{text}")
                }
            }
            tried += 1;
        }
    }
    held.retain(|value| !IDLE.contains(value));
    let empty = [("ncclAllReduce", "dtype"), ("ncclAllReduce", "op")];
    assert_eq!(held, empty, "only of the collective that has no elements nothing else counts");
    println!("{tried} values were forgotten, one at a time");
    assert!(tried > 200, "{tried}");
}

#[test]
fn what_is_wrong_beside_a_value_that_was_not_recorded_is_found() {
    // Rank 1 does not say this of its second collective; rank 2 differs in one of them.
    let run = |key: usize, wrong: usize| {
        let mut run = Run::new(3);
        run.all(|p, rank| {
            let (comm, stream) = (p.init(1, rank, 3), p.stream());
            let (send, recv) = (p.alloc(4 * MIB), p.alloc(4 * MIB));
            for (at, buffer) in [recv, send, recv].into_iter().enumerate() {
                let count = if rank == 2 && at == wrong { 32 } else { 64 };
                p.forgotten = (rank == 1 && at == 1).then(|| p.values.len() + 1 + key);
                p.from(&format!("step.py:{}", at + 1), |p| p.all_reduce(comm, buffer, count, stream));
            }
            p.synchronize(stream);
        });
        run.exit();
        judged(run, "beside")
    };
    const ALL_RIGHT: usize = 9;
    // Send, recv, count, dtype, op: of what all have to agree on the others say it, and of addresses nobody.
    for (key, name) in [(2, "count"), (3, "dtype"), (4, "op")] {
        let said =
            format!("1 `{name}` of ncclAllReduce (not recorded, and taken to be what the other ranks gave)");
        is(&run(key, ALL_RIGHT), RunVerdict::Unknown, &[&said]);
        for wrong in 0..3 {
            let at = format!("step.py:{}", wrong + 1);
            is(&run(key, wrong), RunVerdict::Fails, &["COLL-3", "rank 2", &at]);
        }
    }
    let said = "rank 1 is judged only up to ncclAllReduce (step.py:2): its `recv` was not recorded";
    is(&run(1, ALL_RIGHT), RunVerdict::Unknown, &[said]);
    is(&run(1, 0), RunVerdict::Fails, &["COLL-3", "step.py:1", said]);
}

/// What the command printed and the code with which it ended.
fn ran(folder: &Path, arguments: &[&str]) -> (i32, String) {
    let output =
        Command::new(command()).args(arguments).current_dir(folder).output().expect("the command starts");
    let text = |bytes| String::from_utf8(bytes).expect("the command writes UTF-8");
    let code = output.status.code().expect("nobody kills it");
    (code, format!("{}{}", text(output.stdout), text(output.stderr)))
}

#[test]
fn nothing_judged_is_told_in_each_form() {
    let mut run = Run::new(2);
    run.all(|p, _| p.kernel(0));
    run.exit();
    let saved = run.save("known-forms");
    for arguments in [&["check", "."][..], &["check", "-q", "."]] {
        let (code, text) = ran(&saved.folder, arguments);
        assert!(
            code == 3 && text.contains("UNKNOWN") && text.contains("nothing was judged"),
            "{code}: {text}"
        );
    }
    let (code, text) = ran(&saved.folder, &["check", "--format", "json", "."]);
    let json: Value = serde_json::from_str(&text).expect("it is JSON");
    let run = &json["recordings"][0];
    assert_eq!(
        (code, run["verdict"].as_str(), run["class"].as_str()),
        (3, Some("unknown"), Some("finishes"))
    );
    assert_eq!(run["judged"]["ranks"], 0, "{text}");
    assert_eq!(
        (&run["not_judged"][0]["call"], &run["not_judged"][0]["count"]),
        (&"cudaLaunchKernel".into(), &2.into())
    );
}

#[test]
fn options_that_recorded_runs_have_no_use_for_are_refused() {
    let (run, _) = run_of(program, None);
    let saved = run.save("known-options");
    let options = [
        &["--only", "x"][..],
        &["--naive"],
        &["--trace-out", "traces"],
        &["--max-states", "5"],
        &["--max-choices", "5"],
        &["--max-steps", "5"],
        &["--max-seconds", "5"],
        &["--max-memory", "1G"],
        &["--repairs", "always"],
        &["--jobs", "1"],
    ];
    for option in options {
        let (code, text) = ran(&saved.folder, &[&["check", "."], option].concat());
        assert_eq!(code, 2, "{option:?}: {text}");
        assert!(text.contains(option[0]) && text.contains("leave it out"), "{text}");
    }
    std::fs::write(
        saved.folder.join("a.star"),
        "check(\"x\", lambda r: r.barrier(), ranks = 2, expect = holds())\n",
    )
    .expect("the folder is there");
    let (code, text) = ran(&saved.folder, &["check", ".", "a.star", "--only", "x"]);
    assert_eq!(code, 0, "{text}");
    for (platform, words) in
        [("2.27.7", "NCCL 2.27.7, as was asked for; 2.28.9 was recorded"), ("2.28.9", "NCCL 2.28.9\n")]
    {
        let (_, text) = ran(&saved.folder, &["check", ".", "--platform", platform]);
        assert!(text.contains(words) && !text.contains("not modelled"), "{text}");
    }
}

#[test]
fn commands_about_the_repository_say_so_elsewhere() {
    let saved = Run::new(1).save("known-elsewhere");
    for arguments in
        [&["rules"][..], &["rules", "--write"], &["observe", "stale"], &["observe", "stale", "--write"]]
    {
        let (code, text) = ran(&saved.folder, arguments);
        assert_eq!(code, 2, "{arguments:?}: {text}");
        for words in ["specs/observations cannot be read from", "root of a checkout"] {
            assert!(text.contains(words), "{arguments:?}: {text}");
        }
    }
}
