//! Recorded runs in which processes open memory of each other: what is found, and what is not.
//!
//! The time is what the calls say, and nothing between processes orders them otherwise. Not here: what is found
//! within one process (`runs.rs`).

use rankcheck::runs::judge::{Judged, RunVerdict, judge, read};
use rankcheck::runs::report::text;
use rankcheck_tests::recording::{Process, Run};

const BYTES: u64 = 4 << 20;
/// The digest of a handle.
const X: u8 = 0xaa;
const SECOND: u64 = 1_000_000_000;

fn judged(run: Run, name: &str) -> Judged {
    let saved = run.save(name);
    judge(read(&saved.folder).expect("a recording"), None).expect("it can be judged")
}

fn holds(run: Run, name: &str) -> String {
    let judged = judged(run, name);
    let text = text(&judged);
    assert_eq!(judged.verdict, RunVerdict::Holds, "{text}");
    text
}

fn unknown(run: Run, name: &str) -> String {
    let judged = judged(run, name);
    let text = text(&judged);
    assert_eq!(judged.verdict, RunVerdict::Unknown, "{text}");
    text
}

/// Exactly this rule is broken; the sentence has all of these words.
fn fails(run: Run, name: &str, rule: &str, words: &[&str]) {
    let judged = judged(run, name);
    let text = text(&judged);
    let rules: Vec<&str> = judged.findings.iter().map(|finding| finding.rule.id()).collect();
    assert_eq!(rules, [rule], "{text}");
    let sentence = text.lines().nth(1).unwrap_or_default();
    for word in words {
        assert!(sentence.contains(word), "{word:?} is missing:\n{text}");
    }
}

/// Rank 0 lends memory at once. The ranks go on as they are told, and end in the tenth second.
fn lending(owner: impl Fn(&mut Process, u64), peer: impl Fn(&mut Process)) -> Run {
    let mut run = Run::new(2);
    run.all(|process, rank| {
        if rank == 0 {
            let x = process.malloc(BYTES);
            process.from("lend.py:3", |p| p.export(x, X));
            owner(process, x);
        } else {
            process.time = SECOND;
            peer(process);
        }
        process.time = process.time.max(10 * SECOND);
    });
    run.exit();
    run
}

fn frees_at(second: u64) -> impl Fn(&mut Process, u64) {
    move |process, x| {
        process.time = second * SECOND;
        process.from("lend.py:9", |p| p.cuda_free(x));
    }
}

#[test]
fn memory_is_freed_after_it_was_closed() {
    let closes = |at: u64| {
        move |process: &mut Process| {
            process.from("peer.py:4", |p| {
                let mapping = p.open(X, BYTES);
                p.time = at;
                p.close(mapping);
            });
        }
    };
    holds(lending(frees_at(3), closes(2 * SECOND)), "lent");
    let words = ["rank 0 frees allocation 0", "lend.py:9", "rank 1 has it open", "peer.py:4"];
    fails(lending(frees_at(3), closes(4 * SECOND)), "lent-open", "IPC-3", &words);
    // Nothing tells which of two calls was first that are so near.
    holds(lending(frees_at(3), closes(3 * SECOND + 1_000_000)), "lent-near");
    // The clocks of two hosts are not compared.
    let mut apart = lending(frees_at(3), closes(4 * SECOND));
    apart.ranks[1].header.host = "another".to_owned();
    holds(apart, "lent-apart");
    // Each process has a time of its own: this one began two seconds before the other.
    let later = |process: &mut Process| {
        process.time = 3 * SECOND;
        closes(4 * SECOND)(process);
    };
    let mut earlier = lending(frees_at(3), later);
    earlier.ranks[0].header.began += 2 * SECOND;
    holds(earlier, "lent-earlier");
}

/// A collective has both ranks come by before the memory is freed: its order is seen, and that of the close is not.
#[test]
fn what_is_known_to_be_open_is_judged_when_it_is_freed() {
    let run = |closed_at: u64| {
        let meet = |process: &mut Process, rank: u32| {
            let (comm, own, stream) = (process.init(1, rank, 2), process.malloc(BYTES), process.stream());
            process.all_reduce(comm, own, 1024, stream);
            process.synchronize(stream);
        };
        lending(
            move |process, x| {
                meet(process, 0);
                frees_at(5)(process, x);
            },
            move |process| {
                let mapping = process.open(X, BYTES);
                meet(process, 1);
                process.time = closed_at * SECOND;
                process.close(mapping);
            },
        )
    };
    holds(run(4), "lent-met");
    fails(run(6), "lent-met-open", "IPC-3", &["rank 0 frees allocation 0", "rank 1 has it open"]);
}

#[test]
fn a_process_that_ends_has_nothing_open() {
    let run = |ends: u64| {
        lending(frees_at(20), move |process| {
            process.open(X, BYTES);
            process.time = ends * SECOND;
        })
    };
    holds(run(15), "lent-ended");
    fails(run(25), "lent-never-closed", "IPC-3", &["rank 0 frees", "rank 1 has it open"]);
}

#[test]
fn a_handle_is_opened_while_its_memory_lives() {
    let opens = |process: &mut Process| {
        process.time = 5 * SECOND;
        process.from("peer.py:4", |p| {
            let mapping = p.open(X, BYTES);
            p.close(mapping);
        });
    };
    holds(lending(frees_at(7), opens), "lent-living");
    let words = ["rank 1 opens the handle of allocation 0", "rank 0", "peer.py:4"];
    fails(lending(frees_at(3), opens), "lent-freed", "IPC-2", &words);
    // The address comes back, and the handle with it: it is of what is there now.
    let again = |process: &mut Process, x: u64| {
        frees_at(3)(process, x);
        process.malloc_at(BYTES, x);
        process.export(x, X);
    };
    holds(lending(again, opens), "lent-again");
}

#[test]
fn handles_from_elsewhere_are_not_judged() {
    let opens = |process: &mut Process| {
        let mapping = process.open(0xbb, BYTES);
        process.close(mapping);
    };
    let text = unknown(lending(|_, _| {}, opens), "lent-elsewhere");
    assert!(text.contains("handles of memory that was not recorded"), "{text}");
    let mut run = Run::new(2);
    run.ranks[0].export(0x7000_0000, X);
    run.ranks[1].time = SECOND;
    run.ranks[1].open(X, BYTES);
    run.exit();
    let text = unknown(run, "lent-unseen");
    assert!(text.contains("handles of memory that was not recorded"), "{text}");
}

#[test]
fn opens_of_one_handle_are_counted() {
    let uses = |closes: u32| {
        move |process: &mut Process| {
            let (stream, own) = (process.stream(), process.malloc(BYTES));
            let mapping = process.open(X, BYTES);
            process.open_at(X, mapping);
            for _ in 0..closes {
                process.from("peer.py:6", |p| p.close(mapping));
            }
            process.from("peer.py:7", |p| p.copy(own, mapping + 4096, 4096, stream));
            process.synchronize(stream);
        }
    };
    // Another tensor of the same memory: its handle is the same.
    let twice = |process: &mut Process, x: u64| process.export(x + BYTES / 2, X);
    holds(lending(twice, uses(1)), "lent-twice");
    let words = ["rank 1 uses its mapping of allocation 0", "peer.py:7", "peer.py:6"];
    fails(lending(twice, uses(2)), "lent-closed", "IPC-4", &words);
    let closes = |times: u32| {
        move |process: &mut Process| {
            let mapping = process.open(X, BYTES);
            process.open_at(X, mapping);
            (0..times).for_each(|_| process.close(mapping));
        }
    };
    holds(lending(frees_at(3), closes(2)), "lent-all-closed");
    fails(lending(frees_at(3), closes(1)), "lent-one-open", "IPC-3", &["rank 0 frees", "rank 1 has it open"]);
}

#[test]
fn a_mapping_is_closed_after_its_last_use() {
    let run = |waits: bool| {
        lending(
            |process, x| {
                // What keeps the two apart was not recorded: a barrier of the hosts, a word that kernels wait for.
                let (stream, own) = (process.stream(), process.malloc(BYTES));
                process.time = SECOND;
                process.copy(x, own, BYTES, stream);
                process.synchronize(stream);
            },
            move |process| {
                let (stream, own) = (process.stream(), process.malloc(BYTES));
                let mapping = process.open(X, BYTES);
                process.from("peer.py:5", |p| p.copy(own, mapping, BYTES, stream));
                if waits {
                    process.synchronize(stream);
                }
                process.from("peer.py:8", |p| p.close(mapping));
            },
        )
    };
    let waits = "cudaIpcCloseMemHandle (peer.py:8) of rank 1 waits for cudaMemcpyAsync (peer.py:5) of rank 1";
    assert!(!holds(run(true), "lent-used").contains(waits));
    // On devices the call returns once they are idle, and PyTorch closes so.
    let text = holds(run(false), "lent-busy");
    assert!(text.contains(waits) && text.contains("does not promise it"), "{text}");
}

#[test]
fn memory_of_a_pool_is_given_back_after_its_last_use() {
    let run = lending_of_a_pool(7, |process| {
        let (own, stream) = (process.malloc(BYTES), process.stream());
        process.from("peer.py:5", |p| p.copy(own, 0x2000_0000, BYTES, stream));
    });
    let words = ["rank 1 closes its mapping", "peer.py:5", "peer.py:6"];
    fails(run, "shared_pool_busy", "IPC-4", &words);
}

#[test]
fn iterations_that_open_memory_are_all_judged() {
    let run = |opens: bool| {
        let mut run = Run::new(2);
        run.all(|process, rank| {
            let comm = process.init(1, rank, 2);
            let (x, stream) = (process.malloc(BYTES), process.stream());
            process.export(x, X + u8::try_from(rank).expect("two ranks"));
            let mut mapping = process.open(X + u8::try_from(1 - rank).expect("two ranks"), BYTES);
            for _ in 0..200 {
                process.all_reduce(comm, x, 1024, stream);
                if opens {
                    process.close(mapping);
                    mapping = process.open_at(X + u8::try_from(1 - rank).expect("two ranks"), mapping);
                }
                process.copy(x + BYTES / 2, mapping, 4096, stream);
                process.synchronize(stream);
            }
        });
        run.exit();
        run
    };
    let folded = judged(run(false), "lent-folded");
    assert_eq!(
        (folded.verdict, folded.recording.folded.iterations.len()),
        (RunVerdict::Holds, 1),
        "{}",
        text(&folded)
    );
    let whole = judged(run(true), "lent-loop");
    assert_eq!(
        (whole.verdict, whole.recording.folded.iterations.len()),
        (RunVerdict::Holds, 0),
        "{}",
        text(&whole)
    );
}

/// Two ranks share an event. What is ordered without it holds, and what rests on it is not known.
#[test]
fn an_event_that_processes_share_may_order_anything() {
    let run = |waits: bool, race: bool, recorded: bool| {
        let mut run = Run::new(2);
        run.all(|process, rank| {
            let comm = process.init(1, rank, 2);
            let (buffer, streams) = (process.alloc(4 << 20), [process.stream(), process.stream()]);
            let event = 0xe0;
            match rank {
                0 => process.export_event(event, 9),
                _ => process.open_event(9, event),
            }
            process.all_reduce(comm, buffer, 1024, streams[0]);
            if rank == 0 || recorded {
                process.record(event, streams[0]);
            }
            if rank == 1 && waits {
                process.wait(streams[1], event);
            }
            if !race {
                process.synchronize(streams[0]);
            }
            process.from("step.py:9", |p| p.copy(buffer, buffer + (1 << 20), 4096, streams[1]));
            if rank == 0 {
                // It waits for its own record.
                process.synchronize(streams[0]);
            }
            process.synchronize(streams[1]);
            process.synchronize(streams[0]);
        });
        run.exit();
        run
    };
    let told = |run: Run, name: &str| {
        let judged = judged(run, name);
        (judged.verdict, text(&judged))
    };
    let (verdict, text) = told(run(true, false, false), "event-and-more");
    assert_eq!(verdict, RunVerdict::Holds, "{text}");
    let (verdict, text) = told(run(false, true, false), "event-of-no-use");
    assert_eq!(verdict, RunVerdict::Fails, "{text}");
    let (verdict, text) = told(run(true, false, true), "event-of-two");
    assert_eq!(verdict, RunVerdict::Unknown, "{text}");
    assert!(text.contains("not judged: 1 cudaEventRecord"), "{text}");
    // Rank 0 races with itself; rank 1 may have waited.
    let (verdict, text) = told(run(true, true, false), "event-may-order");
    assert_eq!(verdict, RunVerdict::Fails, "{text}");
    assert!(!text.contains("MEM-2: on rank 1"), "{text}");
    assert!(text.contains("rank 1 waits for events that processes share in between"), "{text}");
}

/// An event goes to another process and back: rank 0 reduces and records it, rank 1 waits for that and records it anew, `apart` before
/// rank 0 waits and copies. Rank 1 may instead record it on a stream that waits for nothing.
fn there_and_back(waits: bool, apart: u64) -> Run {
    let mut run = Run::new(2);
    run.all(|process, rank| {
        let comm = process.init(1, rank, 2);
        let (buffer, stream, other) = (process.alloc(BYTES), process.stream(), process.stream());
        let event = 0xe0;
        match rank {
            0 => process.export_event(event, 9),
            _ => process.open_event(9, event),
        }
        process.all_reduce(comm, buffer, 1024, stream);
        if rank == 0 {
            process.record(event, stream);
            process.time = 4 * SECOND + apart;
            process.wait(other, event);
            process.copy(buffer, buffer + (1 << 20), 4096, other);
        } else {
            process.time = 2 * SECOND;
            if waits {
                process.wait(other, event);
            }
            process.time = 4 * SECOND;
            process.record(event, other);
        }
        process.synchronize(other);
        process.synchronize(stream);
    });
    run.exit();
    run
}

#[test]
fn events_order_processes() {
    let text = holds(there_and_back(true, SECOND), "event-there-and-back");
    assert!(!text.contains("cudaEventRecord"), "{text}");
    fails(
        there_and_back(false, SECOND),
        "event-back-alone",
        "MEM-2",
        &["rank 0", "ncclAllReduce", "cudaMemcpyAsync"],
    );
    // Which of the two records is met is not known.
    let text = unknown(there_and_back(true, 3_000_000), "event-too-close");
    assert!(text.contains("which of the records of several processes"), "{text}");
}

/// A wait before every record is none.
#[test]
fn what_nobody_recorded_is_not_waited_for() {
    let mut run = Run::new(2);
    run.all(|process, rank| {
        let comm = process.init(1, rank, 2);
        let (buffer, stream, other) = (process.alloc(BYTES), process.stream(), process.stream());
        match rank {
            0 => process.export_event(0xe0, 9),
            _ => process.open_event(9, 0xe0),
        }
        process.all_reduce(comm, buffer, 1024, stream);
        if rank == 0 {
            process.wait(other, 0xe0);
            process.copy(buffer, buffer + (1 << 20), 4096, other);
        } else {
            process.time = SECOND;
            process.record(0xe0, stream);
        }
        process.synchronize(other);
        process.synchronize(stream);
    });
    run.exit();
    fails(run, "event-of-nobody", "MEM-2", &["rank 0"]);
}

/// Rank 0 lends an allocation of a pool, and frees it in this second; rank 1 has it open from the second to the fifth, and uses
/// it so.
fn lending_of_a_pool(freed: u64, uses: impl Fn(&mut Process)) -> Run {
    let mut run = Run::new(2);
    run.all(|process, rank| {
        if rank == 0 {
            process.export_pool(0x70, 1);
            process.malloc_from_pool(BYTES, 0x1000_0000, 0x70);
            process.export_pointer(0x1000_0000, X);
            process.time = freed * SECOND;
            process.from("lend.py:9", |p| p.free_on(0x1000_0000, 0));
        } else {
            process.time = 2 * SECOND;
            process.import_pool(1, 0x80);
            process.from("peer.py:4", |p| p.import_pointer(0x80, X, 0x2000_0000));
            uses(process);
            process.time = 5 * SECOND;
            process.from("peer.py:6", |p| p.free_on(0x2000_0000, 0));
        }
        process.time = process.time.max(10 * SECOND);
    });
    run.exit();
    run
}

#[test]
fn memory_of_a_pool_is_followed_to_another_process() {
    let text = holds(lending_of_a_pool(7, |_| {}), "shared_pool_kept");
    assert!(text.contains("1 mapping by"), "{text}");
}

#[test]
fn memory_of_a_pool_is_freed_after_it_was_closed() {
    fails(lending_of_a_pool(3, |_| {}), "shared_pool_broken", "IPC-3", &["lend.py:9", "peer.py:4"]);
}
