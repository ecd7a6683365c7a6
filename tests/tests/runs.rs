//! Recorded runs: what is found in them, and that nothing is found in right ones.
//!
//! Each pair is one program, once right and once with one mistake. Not here: the bytes of recordings.

use rankcheck::runs::RunError;
use rankcheck::runs::conformance::{Conformance, conform};
use rankcheck::runs::judge::{RunVerdict, judge, read};
use rankcheck::runs::report::text;
use rankcheck::runs::timeline;
use rankcheck_tests::recording::{Process, Run};

use crate::verdicts::{self, holds, judged};

const MIB: u64 = 1 << 20;

/// A run that breaks this rule first; its first sentence has all of these words.
fn fails(run: Run, name: &str, rule: &str, words: &[&str]) {
    let text = text(&verdicts::failing(run, name, rule, &[]));
    let sentence = text.lines().skip(1).find(|line| !line.starts_with("  root ")).unwrap_or_default();
    for word in words {
        assert!(sentence.contains(word), "{word:?} is missing:\n{text}");
    }
}

/// A communicator of all, a registered buffer of 4 MiB, a stream.
fn set_up(process: &mut Process, rank: u32, ranks: u32) -> (u64, u64, u64) {
    let comm = process.init(1, rank, ranks);
    let buffer = process.alloc(4 * MIB);
    let stream = process.stream();
    (comm, buffer, stream)
}

/// Each stream that does not say otherwise waits for the legacy default stream by itself, whichever waited for it before.
#[test]
fn every_blocking_stream_waits_for_the_default_stream() {
    let run = |second: fn(&mut Process) -> u64| {
        let mut run = Run::new(2);
        run.all(|process, rank| {
            let comm = process.init(1, rank, 2);
            let (buffer, other) = (process.malloc(1 << 20), process.malloc(1 << 20));
            let (first, second) = (process.blocking_stream(), second(process));
            process.copy(buffer, other, 4096, 0);
            process.copy(other + 8192, other, 4096, first);
            process.all_reduce(comm, buffer, 1024, second);
            process.synchronize(second);
        });
        run.exit();
        run
    };
    holds(run(Process::blocking_stream), "default-stream");
    fails(run(Process::stream), "default-stream-beside", "MEM-2", &["rank 0"]);
}

#[test]
fn collectives_in_one_order_with_one_count() {
    let run = |second: fn(&mut Process, u32, (u64, u64, u64))| {
        let mut run = Run::new(4);
        run.all(|process, rank| {
            let (comm, buffer, stream) = set_up(process, rank, 4);
            process.from("train.py:10", |p| p.all_reduce(comm, buffer, 1024, stream));
            second(process, rank, (comm, buffer, stream));
            process.synchronize(stream);
        });
        run.exit();
        run
    };
    holds(
        run(|process, _, (comm, buffer, stream)| {
            process.from("train.py:11", |p| p.all_reduce(comm, buffer, 2048, stream));
        }),
        "same",
    );
    fails(
        run(|process, rank, (comm, buffer, stream)| {
            let count = if rank == 2 { 4096 } else { 2048 };
            process.from("train.py:11", |p| p.all_reduce(comm, buffer, count, stream));
        }),
        "count",
        "COLL-3",
        &["ranks 0, 1 and 3", "rank 2", "train.py:11", "2048", "4096", "collective #1"],
    );
    fails(
        run(|process, rank, (comm, buffer, stream)| {
            if rank == 3 {
                let whole = (buffer, buffer);
                process.from("train.py:13", |p| p.all_gather(comm, whole, 2048, stream));
            } else {
                process.from("train.py:11", |p| p.all_reduce(comm, buffer, 2048, stream));
            }
        }),
        "kind",
        "COLL-2",
        &["ranks 0 to 2", "rank 3", "train.py:11", "train.py:13"],
    );
}

#[test]
fn a_reduce_has_one_root_and_writes_there_alone() {
    let run = |roots: [u64; 2], beside: u32| {
        let mut run = Run::new(2);
        run.all(|process, rank| {
            let (comm, buffer, stream) = set_up(process, rank, 2);
            let side = (process.init(2, rank, 2), process.stream());
            let output = process.alloc(4 * MIB);
            // Only the root has to have an output; what others give is no memory at all.
            let recv = if roots[rank as usize] == u64::from(rank) { output } else { 0 };
            process.from("step.py:3", |p| {
                p.reduce(comm, (buffer, recv), 1024, (roots[rank as usize], stream));
            });
            // On another stream: who reads meanwhile what the reduce only reads is in nobody's way.
            let used = if rank == beside { output } else { buffer };
            process.from("step.py:5", |p| p.all_gather(side.0, (used, output + MIB), 1024, side.1));
            process.synchronize(stream);
            process.synchronize(side.1);
        });
        run.exit();
        run
    };
    holds(run([0, 0], 1), "reduce");
    let words = ["rank 0", "rank 1", "step.py:3", "to its rank 0", "to its rank 1"];
    fails(run([0, 1], 1), "reduce-roots", "COLL-3", &words);
    fails(run([0, 0], 0), "reduce-race", "MEM-2", &["rank 0", "step.py:3", "step.py:5"]);
}

#[test]
fn segments_are_registered_in_one_order() {
    let run = |orders: [[usize; 2]; 2]| {
        let mut run = Run::new(2);
        run.all(|process, rank| {
            let comm = process.init(1, rank, 2);
            let segments = [process.alloc(4 * MIB), process.alloc(4 * MIB)];
            for at in orders[rank as usize] {
                let loc = format!("pool.py:{}", 20 + at);
                process.from(&loc, |p| {
                    p.register(comm, segments[at], 4 * MIB);
                });
            }
            let stream = process.stream();
            process.all_reduce(comm, segments[0], MIB, stream);
            process.synchronize(stream);
        });
        run.exit();
        run
    };
    holds(run([[0, 1], [0, 1]]), "order-right");
    holds(run([[1, 0], [1, 0]]), "order-other");
    fails(
        run([[0, 1], [1, 0]]),
        "order-wrong",
        "WIN-2",
        &["rank 0", "rank 1", "allocation 0", "allocation 1", "pool.py:20", "pool.py:21"],
    );
}

#[test]
fn every_rank_registers_and_finds_its_buffer_at_one_offset() {
    let run = |registered: [bool; 2], offsets: [u64; 2]| {
        let mut run = Run::new(2);
        run.all(|process, rank| {
            let (comm, buffer, stream) = set_up(process, rank, 2);
            let other = process.alloc(2 * MIB);
            process.register(comm, other, 2 * MIB);
            if registered[rank as usize] {
                process.register(comm, buffer, 4 * MIB);
            }
            process.from("step.py:7", |p| {
                p.all_reduce(comm, buffer + offsets[rank as usize], MIB / 4, stream);
            });
            process.synchronize(stream);
        });
        run
    };
    let exits = |mut run: Run| {
        run.exit();
        run
    };
    holds(exits(run([true, true], [4096, 4096])), "offset-same");
    fails(exits(run([true, true], [0, 4096])), "offset", "WIN-4", &["rank 0", "rank 1", "step.py:7"]);
    fails(
        exits(run([true, false], [0, 0])),
        "one-grows",
        "WIN-1",
        &["rank 0 waits in registration", "call 6 (ncclCommWindowRegister)", "rank 1", "step.py:7"],
    );
}

#[test]
fn communicators_are_used_in_one_order() {
    let run = |orders: [[usize; 2]; 2]| {
        let mut run = Run::new(2);
        run.all(|process, rank| {
            let comms = [process.init(1, rank, 2), process.init(2, rank, 2)];
            let buffers = [process.alloc(4 * MIB), process.alloc(4 * MIB)];
            let streams = [process.stream(), process.stream()];
            for at in [0, 1] {
                process.all_reduce(comms[at], buffers[at], 1024, streams[at]);
            }
            for stream in streams {
                process.synchronize(stream);
            }
            for at in orders[rank as usize] {
                let loc = format!("moe.py:{}", 30 + at);
                process.from(&loc, |p| p.all_reduce(comms[at], buffers[at], 1024, streams[at]));
            }
            for stream in streams {
                process.synchronize(stream);
            }
        });
        run.exit();
        run
    };
    holds(run([[0, 1], [0, 1]]), "comms-right");
    fails(
        run([[0, 1], [1, 0]]),
        "comms-crossed",
        "COLL-4",
        &["rank 0", "rank 1", "comm 01010101", "moe.py:31"],
    );
}

#[test]
fn sends_meet_receives() {
    let run = |each: fn(&mut Process, u32, u64, u64, u64)| {
        let mut run = Run::new(2);
        run.all(|process, rank| {
            let (comm, buffer, stream) = set_up(process, rank, 2);
            each(process, rank, comm, buffer, stream);
            process.synchronize(stream);
        });
        run.exit();
        run
    };
    holds(
        run(|process, rank, comm, buffer, stream| {
            process.group(|p| {
                p.send(buffer, 1024, (1 - rank, comm, stream));
                p.recv(buffer + MIB, 1024, (1 - rank, comm, stream));
            });
        }),
        "sends-grouped",
    );
    fails(
        run(|process, rank, comm, buffer, stream| {
            let to = (1 - rank, comm, stream);
            process.from(&format!("pp.py:{}", 40 + rank), |p| p.send(buffer, 1024, to));
            process.recv(buffer + MIB, 1024, to);
        }),
        "sends-circle",
        "P2P-3",
        &["rank 0", "rank 1", "pp.py:40", "pp.py:41"],
    );
    fails(
        run(|process, rank, comm, buffer, stream| {
            if rank == 0 {
                process.from("pp.py:50", |p| p.send(buffer, 1024, (1, comm, stream)));
            }
        }),
        "send-alone",
        "P2P-2",
        &["rank 0", "rank 1", "pp.py:50"],
    );
}

#[test]
fn split_children_are_their_own() {
    let run = |colors: [Option<i64>; 4]| {
        let mut run = Run::new(4);
        run.all(|process, rank| {
            let (comm, buffer, stream) = set_up(process, rank, 4);
            if let Some(color) = colors[rank as usize] {
                let mut child = 0;
                process.from("groups.py:6", |p| child = p.split(comm, color, rank.into()));
                if color >= 0 {
                    process.all_reduce(child, buffer, 1024, stream);
                }
            }
            process.synchronize(stream);
            process.all_reduce(comm, buffer, 1024, stream);
            process.synchronize(stream);
        });
        run.exit();
        run
    };
    holds(run([Some(0), Some(0), Some(1), Some(1)]), "split");
    holds(run([Some(0), Some(-1), Some(-1), Some(0)]), "split-some");
    let absent = run([Some(0), Some(0), Some(-1), None]);
    fails(absent, "split-absent", "COMM-1", &["rank 0 waits in the set-up", "groups.py:6", "rank 3"]);
}

/// A child has its members in an order in which somebody may be missing.
#[test]
fn who_is_who_in_a_split_is_not_known_where_a_rank_was_not_recorded() {
    let run = || {
        let mut run = Run::new(4);
        run.all(|process, rank| {
            let (comm, buffer, stream) = set_up(process, rank, 4);
            let child = process.split(comm, 0, rank.into());
            match rank {
                1 => process.send(buffer, 1024, (3, child, stream)),
                3 => process.recv(buffer, 1024, (1, child, stream)),
                _ => {}
            }
            process.synchronize(stream);
        });
        run.exit();
        run
    };
    holds(run(), "split-whole");
    let mut missing = run();
    missing.ranks.remove(0);
    let judged = judged(missing, "split-missing");
    let text = text(&judged);
    assert_eq!(judged.verdict, RunVerdict::Unknown, "{text}");
    assert!(
        text.contains("1 ncclRecv, 1 ncclSend (the rank at the other end was not recorded, or"),
        "{text}"
    );
}

/// In place, a rank's part lies at its own place in what comes out. Anywhere else it is written before it was read.
#[test]
fn a_collective_does_not_write_over_its_own_input() {
    const PART: u64 = 4 * 1024;
    let run = |shift: u64, iterations: u32| {
        let mut run = Run::new(4);
        run.all(|process, rank| {
            let (comm, buffer, stream) = set_up(process, rank, 4);
            for iteration in 0..iterations {
                let wrong = if rank == 2 && iteration == iterations / 2 { shift } else { 0 };
                let from = buffer + PART * u64::from(rank) + wrong;
                process.from("gather.py:9", |p| p.all_gather(comm, (from, buffer), PART / 4, stream));
                process.synchronize(stream);
            }
        });
        run.exit();
        run
    };
    for iterations in [2, 60] {
        holds(run(0, iterations), "in-place");
        for shift in [PART, PART / 2] {
            fails(run(shift, iterations), "overlaps", "MEM-2", &["rank 2", "is not in place", "gather.py:9"]);
        }
    }
}

/// That memory is freed twice is answered with an error: the call did nothing, and yet something is wrong.
#[test]
fn a_free_that_is_refused_leaves_the_verdict_open() {
    let mut run = Run::new(2);
    run.all(|process, rank| {
        let (comm, buffer, stream) = set_up(process, rank, 2);
        let scratch = process.malloc(MIB);
        process.all_reduce(comm, buffer, 1024, stream);
        process.synchronize(stream);
        process.cuda_free(scratch);
        if rank == 1 {
            process.from("free.py:7", |p| p.refused_free(scratch, 1));
        }
    });
    run.exit();
    let judged = judged(run, "freed-twice");
    let text = text(&judged);
    assert_eq!(judged.verdict, RunVerdict::Unknown, "{text}");
    assert!(text.contains("rank 1: cudaFree (free.py:7) returned 1: why it failed is not judged"), "{text}");
}

#[test]
fn keys_order_the_children_of_a_split() {
    let mut run = Run::new(2);
    run.all(|process, rank| {
        let (comm, buffer, stream) = set_up(process, rank, 2);
        // Rank 1 of the world is rank 0 of the child.
        let child = process.split(comm, 0, 1 - i64::from(rank));
        if rank == 1 {
            process.send(buffer, 1024, (1, child, stream));
        } else {
            process.recv(buffer, 1024, (0, child, stream));
        }
        process.synchronize(stream);
    });
    run.exit();
    holds(run, "split-keys");
}

#[test]
fn a_communicator_is_not_used_after_it_is_destroyed() {
    let run = |again: bool| {
        let mut run = Run::new(2);
        run.all(|process, rank| {
            let (comm, buffer, stream) = set_up(process, rank, 2);
            process.all_reduce(comm, buffer, 1024, stream);
            process.synchronize(stream);
            process.destroy(comm);
            if again {
                // The pointer comes back.
                process.enter_init(2, rank, 2);
                process.leave_init(comm);
            }
            process.from("end.py:3", |p| p.all_reduce(comm, buffer, 1024, stream));
            process.synchronize(stream);
        });
        run.exit();
        run
    };
    holds(run(true), "comm-back");
    fails(run(false), "comm-gone", "COMM-2", &["rank", "end.py:3", "destroying"]);
}

#[test]
fn registered_memory_is_deregistered_before_it_is_freed() {
    let run = |right: bool| {
        let mut run = Run::new(2);
        run.all(|process, rank| {
            let (comm, buffer, stream) = set_up(process, rank, 2);
            let window = process.register(comm, buffer, 4 * MIB);
            process.all_reduce(comm, buffer, MIB, stream);
            process.synchronize(stream);
            if right {
                process.deregister(comm, window);
            }
            process.from("pool.py:9", |p| p.free(buffer));
            // The address comes back.
            process.alloc_at(4 * MIB, buffer);
            if right {
                process.register(comm, buffer, 4 * MIB);
            }
            process.from("step.py:8", |p| p.all_reduce(comm, buffer, MIB, stream));
            process.synchronize(stream);
        });
        run.exit();
        run
    };
    holds(run(true), "free-right");
    fails(run(false), "free-registered", "WIN-11", &["rank", "pool.py:9", "window #0"]);
    let judged = judged(run(false), "free-registered-2");
    let rules: Vec<&str> = judged.findings.iter().map(|finding| finding.rule.id()).collect();
    assert!(rules.contains(&"WIN-12"), "the window outlived its memory: {}", text(&judged));
}

#[test]
fn windows_of_a_group_get_their_names_when_it_ends() {
    let run = |last: bool| {
        let mut run = Run::new(2);
        run.all(|process, rank| {
            let comm = process.init(1, rank, 2);
            let (one, other) = (process.alloc(1 << 21), process.alloc(1 << 21));
            let windows = process.register_grouped(comm, &[(one, 1 << 21), (other, 1 << 21)]);
            process.deregister(comm, windows[0]);
            process.free(one);
            if last {
                process.deregister(comm, windows[1]);
            }
            process.free(other);
            process.destroy(comm);
        });
        run.exit();
        run
    };
    holds(run(true), "grouped-windows");
    fails(run(false), "grouped-window", "WIN-11", &["rank"]);
}

#[test]
fn a_graph_is_replayed_on_every_rank() {
    let run = |replays: [u32; 2], freed: bool| {
        let mut run = Run::new(2);
        run.all(|process, rank| {
            let (comm, buffer, stream) = set_up(process, rank, 2);
            process.all_reduce(comm, buffer, 1024, stream);
            process.synchronize(stream);
            let graph =
                process.capture(stream, |p| p.from("g.py:2", |p| p.all_reduce(comm, buffer, 1024, stream)));
            if freed {
                process.free(buffer);
            }
            for _ in 0..replays[rank as usize] {
                process.from("g.py:5", |p| p.replay(graph, stream));
            }
            process.synchronize(stream);
            process.destroy_graph(graph);
            process.destroy(comm);
        });
        run.exit();
        run
    };
    holds(run([3, 3], false), "graph");
    fails(run([3, 2], false), "graph-replays", "COLL-1", &["rank 0", "rank 1"]);
    let judged = judged(run([1, 1], true), "graph-freed");
    assert_eq!(judged.verdict, RunVerdict::Fails, "{}", text(&judged));
}

#[test]
fn a_graph_has_what_was_captured_on_each_rank() {
    let run = |departing: u64| {
        let mut run = Run::new(2);
        run.all(|process, rank| {
            let (comm, buffer, stream) = set_up(process, rank, 2);
            process.all_reduce(comm, buffer, 1024, stream);
            process.synchronize(stream);
            let count = if rank == 1 { departing } else { 1024 };
            let graph = process.capture(stream, |p| {
                p.from("g.py:2", |p| p.all_reduce(comm, buffer, 1024, stream));
                p.from("g.py:3", |p| p.all_reduce(comm, buffer, count, stream));
            });
            for _ in 0..2 {
                process.from("g.py:5", |p| p.replay(graph, stream));
            }
            process.synchronize(stream);
            process.destroy_graph(graph);
            process.destroy(comm);
        });
        run.exit();
        run
    };
    holds(run(1024), "graph-counts");
    fails(run(512), "graph-count", "COLL-3", &["rank 0", "rank 1", "1024", "512"]);
}

#[test]
fn streams_are_ordered_by_what_was_recorded() {
    let run = |how: fn(&mut Process, u64, u64)| {
        let mut run = Run::new(2);
        run.all(|process, rank| {
            let comms = [process.init(1, rank, 2), process.init(2, rank, 2)];
            let buffer = process.alloc(4 * MIB);
            let streams = [process.stream(), process.stream()];
            process.from("a.py:1", |p| p.all_reduce(comms[0], buffer, 1024, streams[0]));
            how(process, streams[0], streams[1]);
            process.from("a.py:2", |p| p.all_reduce(comms[1], buffer, 1024, streams[1]));
            process.synchronize(streams[0]);
            process.synchronize(streams[1]);
        });
        run.exit();
        run
    };
    holds(
        run(|process, one, other| {
            let event = process.handle();
            process.record(event, one);
            process.wait(other, event);
        }),
        "ordered-event",
    );
    holds(
        run(|process, one, _| {
            let event = process.handle();
            process.record(event, one);
            process.query_not_ready(event);
            process.query_done(event);
        }),
        "ordered-poll",
    );
    holds(run(|process, one, _| process.synchronize(one)), "ordered-sync");
    fn polled_by_another(process: &mut Process, stream: u64, acts: bool) {
        let event = process.handle();
        process.record(event, stream);
        process.thread = 1;
        if acts {
            process.kernel(0);
        }
        process.query_done(event);
        process.thread = 0;
    }
    holds(run(|process, one, _| polled_by_another(process, one, true)), "ordered-helper");
    let races = |run: Run, name: &str| {
        let racing = judged(run, name);
        let rules: Vec<&str> = racing.findings.iter().map(|finding| finding.rule.id()).collect();
        assert!(rules.contains(&"MEM-2"), "{name}: {}", text(&racing));
    };
    races(run(|process, one, _| polled_by_another(process, one, false)), "racing-watchdog");
    races(run(|process, _, _| process.kernel(0)), "racing");
}

#[test]
fn a_hang_is_where_returns_are_missing() {
    let mut run = Run::new(2);
    run.all(|process, rank| {
        let (comm, buffer, stream) = set_up(process, rank, 2);
        process.register(comm, buffer, 4 * MIB);
        if rank == 0 {
            let grown = process.alloc(2 * MIB);
            process.from("pool.py:5", |p| p.all_reduce(comm, buffer, MIB, stream));
            process.enter_register(comm, grown, 2 * MIB);
        } else {
            process.from("pool.py:5", |p| p.all_reduce(comm, buffer, MIB, stream));
            process.synchronize(stream);
            process.from("step.py:6", |p| p.all_reduce(comm, buffer, MIB, stream));
            process.enter_synchronize(stream);
        }
    });
    fails(run, "hang", "WIN-1", &["rank 0 waits in registration", "rank 1", "call"]);
}

#[test]
fn who_was_cut_while_it_went_on_is_not_blamed() {
    let run = |silence: u64| {
        let mut run = Run::new(2);
        run.all(|process, rank| {
            let (comm, buffer, stream) = set_up(process, rank, 2);
            for _ in 0..(10 - rank) {
                process.from("loop.py:4", |p| p.all_reduce(comm, buffer, 1024, stream));
            }
            if rank == 0 {
                let event = process.handle();
                process.record(event, stream);
                process.enter_synchronize(stream);
                process.thread = 1;
                process.time += silence;
                process.query_not_ready(event);
            }
        });
        run
    };
    // However long the others waited, it may only be slow.
    for (silence, name) in [(0, "cut"), (60_000_000_000, "slow")] {
        let judged = judged(run(silence), name);
        let text = text(&judged);
        assert_eq!(judged.verdict, RunVerdict::Unknown, "{text}");
        assert!(
            text.contains("its device waits in a collective of comm 01010101 (loop.py:4) for rank 1"),
            "{text}"
        );
        assert!(text.contains("rank 1 had not come when its recording ended (last at loop.py:4)"), "{text}");
    }
}

#[test]
fn a_key_that_is_waited_for_is_named() {
    let run = |set: &str| {
        let mut run = Run::new(2);
        run.ranks[0].enter_store_get("plan", "main.py:7");
        run.ranks[1].store_set(set);
        run.ranks[1].exit();
        text(&judged(run, &format!("key-{set}")))
    };
    let said = "its host is in torch.distributed.Store.get of key \"plan\"";
    let (unset, set) = (run("other"), run("plan"));
    assert!(unset.contains(&format!("{said}, which no rank was seen to set (main.py:7)")), "{unset}");
    assert!(set.contains(&format!("{said} (main.py:7)")), "{set}");
}

#[test]
fn who_was_seen_to_live_in_a_call_hung_and_who_was_killed_in_it_did_not() {
    const LONG_NS: u64 = 60_000_000_000;
    let run = |lived: u64| {
        let mut run = Run::new(2);
        run.all(|process, rank| {
            let (comm, buffer, stream) = set_up(process, rank, 2);
            process.all_reduce(comm, buffer, 1024, stream);
            if rank == 0 {
                process.enter_synchronize(stream);
                process.header.alive = Some(process.header.began + process.time + lived);
            } else {
                process.synchronize(stream);
                process.time += LONG_NS;
                process.exit();
            }
        });
        judged(run, &format!("lived-{lived}"))
    };
    // Rank 0 launched one more than rank 1, which then computed for long.
    let waiting = |lived: u64| {
        let mut run = Run::new(2);
        run.all(|process, rank| {
            let (comm, buffer, stream) = set_up(process, rank, 2);
            (rank..2).for_each(|_| process.all_reduce(comm, buffer, 1024, stream));
            let lived = if rank == 0 { lived } else { LONG_NS };
            process.header.alive = Some(process.header.began + process.time + lived);
        });
        judged(run, &format!("waited-{lived}")).verdict
    };
    assert_eq!((waiting(0), waiting(LONG_NS)), (RunVerdict::Unknown, RunVerdict::Unknown));
    let (killed, hung) = (run(0), run(LONG_NS));
    assert_eq!(killed.verdict, RunVerdict::Unknown, "{}", text(&killed));
    assert_eq!(hung.verdict, RunVerdict::Hangs, "{}", text(&hung));
    assert!(text(&hung).contains(", hang\n"), "{}", text(&hung));
}

#[test]
fn threads_that_meet_others_at_once_do_not_block_each_other() {
    let mut run = Run::new(2);
    run.all(|process, rank| {
        let (comm, buffer, stream) = set_up(process, rank, 2);
        if rank == 0 {
            // One thread makes a communicator while another goes on with the first.
            let second = process.handle();
            process.enter_init(2, rank, 2);
            process.thread = 1;
            process.all_reduce(comm, buffer, 1024, stream);
            process.synchronize(stream);
            process.thread = 0;
            process.leave_init(second);
            process.all_reduce(second, buffer, 1024, stream);
        } else {
            process.all_reduce(comm, buffer, 1024, stream);
            process.synchronize(stream);
            let second = process.init(2, rank, 2);
            process.all_reduce(second, buffer, 1024, stream);
        }
        process.synchronize(stream);
    });
    run.exit();
    holds(run, "threads");
}

#[test]
fn communicators_that_do_not_block_are_made_in_any_order() {
    let run = |init: fn(&mut Process, u8, u32) -> u64| {
        let mut run = Run::new(2);
        run.all(|process, rank| {
            let ids = if rank == 0 { [1, 2] } else { [2, 1] };
            let mut comms = ids.map(|id| init(process, id, rank));
            if rank == 1 {
                comms.reverse();
            }
            let (buffer, stream) = (process.alloc(4 * MIB), process.stream());
            let children = comms.map(|comm| process.split(comm, 0, rank.into()));
            for comm in comms.into_iter().chain(children) {
                process.all_reduce(comm, buffer, 1024, stream);
            }
            process.synchronize(stream);
        });
        run.exit();
        run
    };
    holds(run(|process, id, rank| process.init_in_background(id, rank, 2)), "background");
    fails(run(|process, id, rank| process.init(id, rank, 2)), "blocking", "COMM-1", &["rank 0", "rank 1"]);
}

#[test]
fn errors_are_told_and_do_not_blame_what_did_not_happen() {
    let mut run = Run::new(2);
    run.all(|process, rank| {
        let (comm, buffer, stream) = set_up(process, rank, 2);
        process.from("e.py:2", |p| {
            p.enter_all_reduce(comm, 0x10, 1 << 40, stream);
            p.fails(4);
        });
        process.all_reduce(comm, buffer, 1024, stream);
        process.synchronize(stream);
    });
    run.exit();
    let judged = judged(run, "errors");
    let text = text(&judged);
    assert_eq!(judged.verdict, RunVerdict::Unknown, "{text}");
    assert!(judged.findings.is_empty(), "{text}");
    assert!(text.contains("rank 0: ncclAllReduce (e.py:2) returned 4 (ncclInvalidArgument)"), "{text}");
}

#[test]
fn registrations_that_failed_are_explained() {
    let run = |sizes: [u64; 2], failed: [bool; 2]| {
        let mut run = Run::new(2);
        run.all(|process, rank| {
            let comm = process.init(1, rank, 2);
            let bytes = sizes[rank as usize] * MIB;
            let buffer = process.alloc(bytes);
            if failed[rank as usize] {
                process.from("grow.py:4", |p| {
                    p.enter_register(comm, buffer, bytes);
                    p.fails(1);
                });
            } else {
                // It waits for ever.
                process.enter_register(comm, buffer, bytes);
            }
        });
        run
    };
    let met = run([20, 40], [true, true]);
    fails(met, "sizes", "WIN-3", &["rank 0", "rank 1", "20 MiB", "40 MiB", "grow.py:4"]);
    let alone = judged(run([20, 20], [true, false]), "alone");
    let text = text(&alone);
    assert!(text.contains("and waits in registration comm 01010101 #0 for rank 0"), "{text}");
    assert!(text.contains("rank 0: ncclCommWindowRegister (grow.py:4) returned 1"), "{text}");
}

#[test]
fn a_rank_that_was_not_recorded_is_named() {
    let mut run = Run::new(4);
    run.all(|process, rank| {
        let (comm, buffer, stream) = set_up(process, rank, 4);
        process.all_reduce(comm, buffer, 1024, stream);
        process.synchronize(stream);
    });
    run.exit();
    run.ranks.remove(2);
    let judged = judged(run, "missing");
    let text = text(&judged);
    assert_eq!(judged.verdict, RunVerdict::Unknown, "{text}");
    assert!(text.contains("rank 2 of 4 not recorded"), "{text}");
}

#[test]
fn a_rank_that_never_comes_is_waited_for() {
    let mut run = Run::new(2);
    // It stays inside.
    run.ranks[0].enter_init(1, 0, 2);
    run.ranks[1].exit();
    fails(run, "never", "COMM-1", &["rank 0", "rank 1", "set-up"]);
}

#[test]
fn what_is_no_recording_of_one_run_is_an_error() {
    let mut mixed = Run::new(2);
    mixed.ranks[1].header.run = "another".to_owned();
    let saved = mixed.save("mixed");
    assert!(matches!(read(&saved.folder), Err(RunError::TwoRuns { .. })));
    let mut twice = Run::new(3);
    twice.all(|process, _| {
        process.init(1, 0, 1);
    });
    twice.ranks[1].header.rank = Some(0);
    let saved = twice.save("twice");
    std::fs::copy(saved.folder.join("rankrec.2"), saved.folder.join("rankrec.3")).expect("there is room");
    assert!(read(&saved.folder).is_err());
    let saved = Run::new(2).save("foreign");
    let path = saved.folder.join("rankrec.0");
    let mut bytes = std::fs::read(&path).expect("it was written");
    bytes[8] = 9;
    std::fs::write(&path, &bytes).expect("as before");
    let error = read(&saved.folder).err().expect("another version").to_string();
    assert!(error.contains("format version 9"), "{error}");
}

#[test]
fn cut_files_are_judged_up_to_the_cut() {
    let mut run = Run::new(2);
    run.all(|process, rank| {
        let (comm, buffer, stream) = set_up(process, rank, 2);
        for _ in 0..50 {
            process.all_reduce(comm, buffer, 1024, stream);
            process.synchronize(stream);
        }
    });
    run.exit();
    let saved = run.save("short");
    let path = saved.folder.join("rankrec.1");
    let bytes = std::fs::read(&path).expect("it was written");
    for length in [4128, 4200, 4300, 4400, 4500] {
        std::fs::write(&path, &bytes[..length]).expect("as before");
        let judged = judge(read(&saved.folder).expect("a cut is no damage"), None).expect("it can be judged");
        assert_eq!(judged.verdict, RunVerdict::Unknown, "{length}: {}", text(&judged));
    }
}

const SPEC: &str = r#"
def program(r):
    tp = r.comm("tp", r.world)
    x = r.mem_alloc("x", 4 * MiB)
    if r.choose("registers", ["yes", "no"]) == "yes":
        tp.register(x)
    tp.all_reduce(x[0:4096])
    tp.all_reduce(x[0:8192])

check("steps", program, ranks = [2], expect = holds())
"#;

#[test]
fn a_recorded_run_is_followed_through_a_spec() {
    let run = |second: u64| {
        let mut run = Run::new(2);
        run.all(|process, rank| {
            let (comm, buffer, stream) = set_up(process, rank, 2);
            process.register(comm, buffer, 4 * MIB);
            process.all_reduce(comm, buffer, 1024, stream);
            process.from("train.py:9", |p| p.all_reduce(comm, buffer, second, stream));
            process.synchronize(stream);
        });
        run.exit();
        run
    };
    let follow = |run: Run, name: &str| {
        let saved = run.save(name);
        let spec = saved.folder.join("steps.star");
        std::fs::write(&spec, SPEC).expect("the directory was made");
        let none = conform(&spec, &saved.folder, Some("stops")).err().expect("no check has that name");
        assert!(none.ends_with("; known: \"steps\""), "{none}");
        let all = conform(&spec, &saved.folder, None).expect("both can be read");
        all.iter().map(Conformance::text).collect::<Vec<_>>().join("\n")
    };
    assert_eq!(follow(run(2048), "follows"), "CONFORMS  \"steps\"");
    let leaves = follow(run(4096), "leaves");
    for word in
        ["LEAVES", "rank 0", "operation #3", "all_reduce of 4096 f32", "train.py:9", "steps.star:8", "2048"]
    {
        assert!(leaves.contains(word), "{word:?} is missing: {leaves}");
    }
}

#[test]
fn a_timeline_has_calls_and_findings() {
    let mut run = Run::new(2);
    run.all(|process, rank| {
        let (comm, buffer, stream) = set_up(process, rank, 2);
        process.all_reduce(comm, buffer, 1024 << rank, stream);
        process.enter_synchronize(stream);
    });
    let saved = run.save("timeline");
    let judged = judge(read(&saved.folder).expect("a recording"), None).expect("it can be judged");
    let mut out = Vec::new();
    timeline::write(&judged, &mut out).expect("memory can be written");
    let json: serde_json::Value = serde_json::from_slice(&out).expect("it is JSON");
    assert_eq!(crate::timelines::looked_at(&json).0, [""; 0]);
    let events = json["traceEvents"].as_array().expect("a list of events");
    let count = |name: &str, phase: &str| {
        let is = |event: &&serde_json::Value| {
            event["ph"] == phase && event["name"].as_str().is_some_and(|text| text.contains(name))
        };
        events.iter().filter(is).count()
    };
    assert_eq!(count("ncclAllReduce", "X"), 2);
    assert_eq!(count("never returned", "X"), 2);
    // At both calls, and in the verdict.
    assert_eq!(count("COLL-3", "i"), 3);
    // A report names calls by their numbers, and so does the timeline.
    let calls = events.iter().filter(|event| event["ph"] == "X");
    let launched = calls.filter(|event| event["name"] == "ncclAllReduce");
    for (event, op) in launched.zip(&judged.findings[0].ops) {
        let number = judged.recording.program.origin(op.loc).expect("a call of the recording").number;
        assert_eq!(event["args"]["call"], number);
    }
}
