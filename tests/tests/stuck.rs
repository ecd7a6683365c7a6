//! Recorded runs that were stopped in the middle: those that were only slow are never said to hang, those that were
//! stuck are, and the report begins with the rank, or the circle of ranks, that the others wait for.
//!
//! Not here: which rules are broken (`runs.rs`).

use rankcheck::runs::judge::{Judged, RunVerdict, judge, read};
use rankcheck::runs::report::{RunClass, class, text};
use rankcheck_tests::recording::{Process, Run};

const MIB: u64 = 1 << 20;
const SECOND_NS: u64 = 1_000_000_000;

fn judged(run: Run, name: &str) -> Judged {
    let saved = run.save(&format!("stuck-{name}"));
    judge(read(&saved.folder).expect("a recording"), None).expect("it can be judged")
}

/// What the processes had in common before they stood.
struct Made {
    comm: u64,
    buffer: u64,
    stream: u64,
}

/// Ranks that set up a communicator of all, launch one collective, and then do this; all are seen to run for half a
/// minute more, unless they say otherwise.
fn stopped(ranks: u32, each: impl Fn(&mut Process, u32, &Made)) -> Run {
    let mut run = Run::new(ranks);
    run.all(|process, rank| {
        let comm = process.init(1, rank, ranks);
        let (buffer, stream) = (process.alloc(4 * MIB), process.stream());
        process.from("train.py:3", |p| p.all_reduce(comm, buffer, 64, stream));
        process.from("train.py:4", |p| p.synchronize(stream));
        each(process, rank, &Made { comm, buffer, stream });
        if process.header.alive.is_none() {
            process.lives_for(30 * SECOND_NS);
        }
    });
    run
}

fn all_reduce(process: &mut Process, made: &Made, line: u32) {
    process.from(&format!("train.py:{line}"), |p| p.all_reduce(made.comm, made.buffer, 1024, made.stream));
}

/// Launches a collective and waits for it; the wait does not return.
fn stands_in_all_reduce(process: &mut Process, made: &Made, line: u32) {
    all_reduce(process, made, line);
    process.enter_synchronize(made.stream);
}

fn slow() -> Vec<(&'static str, Run)> {
    vec![
        (
            "sleeps before a collective",
            stopped(3, |process, rank, made| {
                if rank != 1 {
                    stands_in_all_reduce(process, made, 8);
                }
            }),
        ),
        ("init", stopped(4, |process, rank, _| process.enter_init(9, rank, 4))),
        (
            "init of all but one",
            stopped(4, |process, rank, _| {
                if rank != 2 {
                    process.enter_init(9, rank, 4);
                }
            }),
        ),
        ("split", stopped(2, |process, rank, made| process.enter_split(made.comm, 0, rank.into()))),
        (
            "registration",
            stopped(2, |process, _, made| process.enter_register(made.comm, made.buffer, 4 * MIB)),
        ),
        ("destruction", stopped(2, |process, _, made| process.enter_destroy(made.comm))),
        ("collective of all", stopped(4, |process, _, made| stands_in_all_reduce(process, made, 8))),
        (
            "pipeline",
            stopped(3, |process, rank, made| {
                // Rank 0 has not sent, so nobody else got anything.
                if rank > 0 {
                    process.recv(made.buffer, 1024, (rank - 1, made.comm, made.stream));
                    process.enter_synchronize(made.stream);
                }
            }),
        ),
        (
            "key",
            stopped(2, |process, rank, _| {
                if rank == 0 {
                    process.enter_store_get("weights", "load.py:4");
                }
            }),
        ),
        (
            "group of all but one",
            stopped(3, |process, rank, _| {
                if rank < 2 {
                    process.enter_new_group("0,1,2", "train.py:5");
                }
            }),
        ),
        (
            "a thread that prefetches",
            stopped(2, |process, rank, made| {
                let other = process.init(7, rank, 2);
                let stream = process.stream();
                if rank == 0 {
                    process.all_reduce(other, made.buffer, 8, stream);
                    stands_in_all_reduce(process, made, 8);
                } else {
                    // Its second thread stands in what rank 0 has not come to; its first goes on.
                    process.thread = 1;
                    process.all_reduce(other, made.buffer, 8, stream);
                    process.all_reduce(other, made.buffer, 8, stream);
                    process.enter_synchronize(stream);
                    process.thread = 0;
                    process.time += SECOND_NS;
                    process.kernel(made.stream);
                }
            }),
        ),
        (
            "key of a process that is no rank",
            stopped(2, |process, _, _| process.enter_store_get("plan", "load.py:4")),
        ),
        (
            "long kernel",
            stopped(2, |process, rank, made| {
                all_reduce(process, made, 8);
                if rank == 0 {
                    process.kernel(made.stream);
                    process.enter_synchronize(made.stream);
                } else {
                    process.synchronize(made.stream);
                }
            }),
        ),
    ]
}

/// Whoever is interrupted while it sleeps goes before those that stand in the vendor's calls.
fn interrupted() -> Vec<(&'static str, Run)> {
    vec![
        (
            "interrupted while it slept",
            stopped(2, |process, rank, made| {
                if rank == 0 {
                    stands_in_all_reduce(process, made, 8);
                } else {
                    process.raises("KeyboardInterrupt", "", "train.py:7");
                    process.exit_with(1);
                }
            }),
        ),
        (
            // What stands in a call of the vendor's goes later, and not because the other one is gone.
            "interrupted while it slept, and gone before the others",
            stopped(2, |process, rank, made| {
                if rank == 0 {
                    stands_in_all_reduce(process, made, 8);
                } else {
                    process.raises("KeyboardInterrupt", "", "train.py:7");
                    process.exit_with(1);
                    process.lives_for(0);
                }
            }),
        ),
    ]
}

#[test]
fn what_may_only_be_slow_is_unknown() {
    let mut slow = slow();
    slow.append(&mut interrupted());
    assert!(slow.len() >= 10);
    for (name, run) in slow {
        let judged = judged(run, name);
        assert_eq!(judged.verdict, RunVerdict::Unknown, "{name}: {}", text(&judged));
        assert!(judged.stuck.cycles.is_empty(), "{name}: {}", text(&judged));
    }
}

#[test]
fn a_barrier_is_called_one_and_what_does_not_reduce_has_no_reduction() {
    let run = |second: fn(&mut Process, u32, &Made)| {
        let mut run = stopped(2, |process, rank, made| {
            process.inside("torch.distributed.barrier", "eval.py:6", |p| {
                if rank == 0 {
                    p.all_reduce(made.comm, made.buffer, 1, made.stream);
                } else {
                    second(p, rank, made);
                }
            });
            process.synchronize(made.stream);
        });
        run.exit();
        text(&judged(run, "barrier"))
    };
    let counted = run(|p, _, made| p.all_reduce(made.comm, made.buffer, 2048, made.stream));
    assert!(counted.contains("comm 01010101.barrier() on rank 0 (eval.py:6)"), "{counted}");
    assert!(counted.contains("and comm 01010101.barrier() on rank 1 (eval.py:6)"), "{counted}");
    let gather = |count: u64| {
        let mut run = stopped(2, |process, rank, made| {
            let count = if rank == 0 { 64 } else { count };
            process.from("eval.py:9", |p| {
                p.all_gather(made.comm, (made.buffer, made.buffer + MIB), count, made.stream)
            });
            process.synchronize(made.stream);
        });
        run.exit();
        text(&judged(run, "gather"))
    };
    assert!(gather(64).starts_with("HOLDS"));
    let other = gather(32);
    assert!(
        other.contains("COLL-3") && other.contains("of 64 f32 on rank 0") && !other.contains("(sum)"),
        "{other}"
    );
}

#[test]
fn collectives_of_a_backward_pass_have_its_line() {
    let run = |counts: [u64; 2]| {
        let mut run = stopped(2, |process, rank, made| {
            process.inside("torch.autograd.backward", "model.py:40", |p| {
                p.thread = 1;
                p.all_reduce(made.comm, made.buffer, counts[rank as usize], made.stream);
                p.thread = 0;
            });
            process.synchronize(made.stream);
        });
        run.exit();
        text(&judged(run, "backward"))
    };
    assert!(run([512, 512]).starts_with("HOLDS"));
    let text = run([512, 256]);
    assert!(text.contains("on rank 0 (model.py:40)") && text.contains("on rank 1 (model.py:40)"), "{text}");
}

/// Threads of autograd do not say where they call, in iterations that were folded away as little as in others.
#[test]
fn rounds_of_a_backward_pass_count_what_was_folded() {
    let run = stopped(2, |process, rank, made| {
        process.from("train.py:12", |p| p.synchronize(made.stream));
        for _ in 0..(60 - 10 * rank) {
            process.inside("torch.autograd.backward", "model.py:40", |p| {
                p.thread = 1;
                p.all_reduce(made.comm, made.buffer, 96, made.stream);
                p.thread = 0;
            });
            process.from("train.py:41", |p| p.synchronize(made.stream));
        }
        if rank == 1 {
            process.from("train.py:50", |p| p.synchronize(made.stream));
            process.exit();
        }
    });
    let judged = judged(run, "backward-rounds");
    assert!(!judged.recording.folded.iterations.is_empty());
    let (text, says) =
        (text(&judged), "rank 1 made 50 rounds of the loop at model.py:40, where rank 0 is in round 5");
    assert!(text.contains(says) && text.contains("and left it for train.py:50"), "{text}");
}

#[test]
fn a_race_names_its_operations_and_their_bytes() {
    let mut run = stopped(2, |process, rank, made| {
        let (other, stream) = (process.init(5, rank, 2), process.stream());
        process.from("a.py:7", |p| p.all_reduce(made.comm, made.buffer + 4096, 1024, made.stream));
        process.from("a.py:8", |p| p.all_reduce(other, made.buffer, 1536, stream));
        process.synchronize(made.stream);
        process.synchronize(stream);
    });
    run.exit();
    let text = text(&judged(run, "race"));
    let said =
        "ncclAllReduce (a.py:7) writes bytes 4096 to 8192, and ncclAllReduce (a.py:8) writes bytes 0 to 6144";
    assert!(text.contains("MEM-2") && text.contains(said), "{text}");
}

#[test]
fn memory_that_is_freed_close_to_its_use_is_told() {
    const MILLISECOND_NS: u64 = 1_000_000;
    let run = |pause: u64| {
        let mut run = Run::new(2);
        let freed = {
            let owner = &mut run.ranks[0];
            let memory = owner.malloc(2 * MIB);
            owner.export(memory, 3);
            owner.time = 100 * MILLISECOND_NS + pause;
            owner.cuda_free(memory);
            owner.time
        };
        let peer = &mut run.ranks[1];
        peer.time = 50 * MILLISECOND_NS;
        let mapping = peer.open(3, 2 * MIB);
        peer.time = 100 * MILLISECOND_NS;
        peer.close(mapping);
        assert!(freed > peer.time - MILLISECOND_NS);
        run.exit();
        let judged = judged(run, "close");
        assert_eq!(judged.verdict, RunVerdict::Holds, "{}", text(&judged));
        text(&judged).contains("too close to tell")
    };
    assert!(run(2 * MILLISECOND_NS) && !run(80 * MILLISECOND_NS));
}

#[test]
fn memory_that_is_freed_while_it_is_being_opened_was_open() {
    let mut run = Run::new(2);
    let owner = &mut run.ranks[0];
    let memory = owner.malloc(2 * MIB);
    owner.export(memory, 3);
    owner.time = 101_000_000;
    owner.cuda_free(memory);
    let peer = &mut run.ranks[1];
    // Nobody can tell which came first; but it could be opened.
    peer.time = 100_000_000;
    let mapping = peer.open(3, 2 * MIB);
    peer.time = 200_000_000;
    peer.close(mapping);
    run.exit();
    let text = text(&judged(run, "opening"));
    assert!(text.starts_with("FAILS IPC-3") && !text.contains("too close to tell"), "{text}");
}

#[test]
fn ranks_that_use_the_same_memory_are_told_if_nothing_recorded_orders_them() {
    let run = |ordered: bool| {
        let mut run = Run::new(2);
        let (owner, peer) = run.ranks.split_at_mut(1);
        let (owner, peer) = (&mut owner[0], &mut peer[0]);
        let (memory, stream) = (owner.malloc(2 * MIB), owner.stream());
        let other = owner.malloc(MIB);
        owner.from("owner.py:4", |p| p.copy(memory, other, MIB, stream));
        if ordered {
            owner.synchronize(stream);
        }
        owner.export(memory, 3);
        let (mapping, stream) = (peer.open(3, 2 * MIB), peer.stream());
        let other = peer.malloc(MIB);
        peer.from("peer.py:6", |p| p.copy(mapping, other, MIB, stream));
        peer.synchronize(stream);
        peer.close(mapping);
        owner.time = peer.time + 100_000_000;
        owner.synchronize(stream);
        owner.cuda_free(memory);
        run.exit();
        let judged = judged(run, "same-memory");
        assert_eq!(judged.verdict, RunVerdict::Holds, "{}", text(&judged));
        text(&judged)
    };
    let said = "cudaMemcpyAsync (owner.py:4) of rank 0 and cudaMemcpyAsync (peer.py:6) of rank 1 use the same memory, and \
                what orders them was not recorded";
    let (unordered, ordered) = (run(false), run(true));
    assert!(unordered.contains(said), "{unordered}");
    assert!(!ordered.contains("what orders them"), "{ordered}");
}

#[test]
fn members_that_are_all_inside_one_call_are_told_with_how_long() {
    let run = stopped(4, |process, rank, _| process.enter_init(9, rank, 4));
    let text = text(&judged(run, "inside"));
    let said = "the recordings of ranks 0 to 3 end without their exit";
    let inside = text.lines().find(|line| line.contains("ranks 0 to 3: their hosts are in"));
    let inside = inside.unwrap_or_default();
    assert!(
        text.contains(said) && inside.contains("ncclCommInitRank") && inside.contains("for 30 s"),
        "{text}"
    );
}

/// A stuck run: its name, the run, the row of the report that tells why, and what that has to say.
type StuckRun = (&'static str, Run, &'static str, Vec<&'static str>);

/// Ranks that wait for one that is gone, or for one another in calls that are no collectives.
fn stuck_for_somebody() -> Vec<StuckRun> {
    vec![
        (
            "exception, exited",
            stopped(3, |process, rank, made| {
                if rank == 2 {
                    process.raises("ValueError", "batch 7 is empty", "data.py:31");
                    process.exit_with(1);
                } else {
                    stands_in_all_reduce(process, made, 8);
                }
            }),
            "root",
            vec![
                "rank 2 raised ValueError: batch 7 is empty (data.py:31) and exited with code 1",
                "ranks 0 and 1 wait for it",
            ],
        ),
        (
            "exception, not exited",
            stopped(3, |process, rank, made| {
                if rank == 1 {
                    process.raises("KeyError", "'lr'", "optim.py:7");
                } else {
                    stands_in_all_reduce(process, made, 8);
                }
            }),
            "root",
            vec!["rank 1 raised KeyError: 'lr' (optim.py:7)", "ranks 0 and 2 wait for it"],
        ),
        (
            "killed",
            stopped(4, |process, rank, made| {
                if rank == 3 {
                    process.lives_for(0);
                } else {
                    stands_in_all_reduce(process, made, 8);
                }
            }),
            "root",
            vec![
                "rank 3 was gone before the others, by what was not recorded (last at train.py:4)",
                "ranks 0 to 2 wait for it",
            ],
        ),
        (
            "destroyed in opposite order",
            stopped(2, |process, rank, made| {
                let other = process.init(8, rank, 2);
                let first = if rank == 0 { made.comm } else { other };
                process.from_open(&format!("end.py:{}", 4 + rank), |p| p.enter_destroy(first));
            }),
            "cycle",
            vec![
                "rank 0 waits in the destruction of comm 01010101 (end.py:4) for rank 1",
                "which waits in the destruction of comm 08080808 (end.py:5) for rank 0",
            ],
        ),
        (
            "group of members only",
            stopped(4, |process, rank, made| {
                if rank < 2 {
                    process.enter_new_group("0,1", "train.py:5");
                } else {
                    stands_in_all_reduce(process, made, 9);
                }
            }),
            "cycle",
            vec!["in new_group of ranks 0,1, process group 1 that it makes, (train.py:5)", "train.py:9"],
        ),
        (
            "key that nobody sets",
            stopped(2, |process, rank, made| {
                if rank == 0 {
                    process.enter_store_get("epoch/9", "load.py:4");
                } else {
                    stands_in_all_reduce(process, made, 9);
                }
            }),
            "cycle",
            vec!["in get of key \"epoch/9\" (load.py:4) for rank 1", "(train.py:9) for rank 0"],
        ),
        (
            "destroyed under a collective",
            stopped(2, |process, rank, made| {
                if rank == 0 {
                    process.enter_destroy(made.comm);
                } else {
                    stands_in_all_reduce(process, made, 9);
                }
            }),
            "cycle",
            vec!["rank 0 waits in the destruction of comm 01010101", "(train.py:9) for rank 0"],
        ),
    ]
}

/// Ranks that wait in collectives and transfers, and for devices.
fn stuck_in_collectives() -> Vec<StuckRun> {
    vec![
        (
            "receives that nobody sends",
            stopped(3, |process, rank, made| {
                let from = (rank + 1) % 3;
                process.from(&format!("ring.py:{}", 20 + rank), |p| {
                    p.recv(made.buffer, 1024, (from, made.comm, made.stream));
                });
                process.enter_synchronize(made.stream);
            }),
            "waits",
            vec!["ring.py:20", "ring.py:21", "ring.py:22"],
        ),
        (
            "registered by one only",
            stopped(2, |process, rank, made| {
                if rank == 0 {
                    process.from_open("pool.py:6", |p| p.enter_register(made.comm, made.buffer, 4 * MIB));
                } else {
                    stands_in_all_reduce(process, made, 9);
                }
            }),
            "waits",
            vec!["pool.py:6", "train.py:9"],
        ),
        (
            "left a loop early",
            stopped(2, |process, rank, made| {
                for _ in 0..(6 - rank) {
                    all_reduce(process, made, 12);
                    process.from("train.py:13", |p| p.synchronize(made.stream));
                }
                if rank == 1 {
                    process.from("train.py:20", |p| {
                        p.all_gather(made.comm, (made.buffer, made.buffer + MIB), 64, made.stream)
                    });
                    process.exit();
                } else {
                    stands_in_all_reduce(process, made, 12);
                }
            }),
            "waits",
            vec!["train.py:12"],
        ),
        (
            "exited from a loop",
            stopped(2, |process, rank, made| {
                for _ in 0..(6 - 2 * rank) {
                    all_reduce(process, made, 12);
                }
                if rank == 1 {
                    process.from("train.py:21", |p| p.synchronize(made.stream));
                    process.exit();
                } else {
                    process.enter_synchronize(made.stream);
                }
            }),
            "root",
            vec![
                "rank 1 ended in order with exit code 0",
                "rank 1 made 4 rounds of the loop at train.py:12, where rank 0 is in round 5, and left it for train.py:21",
            ],
        ),
        (
            "a device that does not finish",
            stopped(2, |process, rank, made| {
                all_reduce(process, made, 8);
                process.from_open("train.py:9", |p| {
                    if rank == 0 {
                        p.enter_synchronize(made.stream);
                    } else {
                        p.synchronize(made.stream);
                    }
                });
            }),
            "stands",
            vec![
                "rank 0: its host is in cudaStreamSynchronize (train.py:9)",
                "its device waits in a collective of comm 01010101 (train.py:8) that has ended on rank 1",
            ],
        ),
        (
            "behind one that is gone",
            stopped(4, |process, rank, made| match rank {
                0 => process.lives_for(0),
                // The first transfer of two ranks waits until both are there.
                _ => process.enter_recv(made.buffer, 64, (rank - 1, made.comm, made.stream)),
            }),
            "root",
            vec!["rank 0 was gone before the others", "ranks 1 to 3 wait for it"],
        ),
    ]
}

#[test]
fn what_is_stuck_hangs_and_the_root_is_told_first() {
    let mut stuck = stuck_for_somebody();
    stuck.append(&mut stuck_in_collectives());
    assert!(stuck.len() >= 10);
    for (name, run, label, words) in stuck {
        let judged = judged(run, name);
        let text = text(&judged);
        let hangs = match judged.verdict {
            RunVerdict::Hangs => true,
            RunVerdict::Fails => label == "waits" || label == "root",
            RunVerdict::Holds | RunVerdict::Unknown => false,
        };
        assert!(hangs && class(&judged) == RunClass::Hang, "{name}: {text}");
        let told = text.lines().nth(1).expect("a line follows the verdict");
        assert!(
            label == "waits" || label == "stands" || told.trim_start().starts_with(label),
            "{name}: {text}"
        );
        let all = if label == "root" || label == "cycle" { told } else { &text };
        for word in words {
            assert!(all.contains(word), "{name}: {word:?} is missing:\n{text}");
        }
        // A rank has one line at most.
        let lines = text.lines().skip_while(|line| !line.trim_start().starts_with("stands"));
        let lines: Vec<&str> = lines.take_while(|line| line.contains("host")).collect();
        for rank in 0..4 {
            let of = |line: &&&str| {
                line.trim_start_matches("  stands").trim_start().starts_with(&format!("rank {rank}: "))
            };
            assert!(lines.iter().filter(of).count() <= 1, "{name}: {text}");
        }
    }
}

#[test]
fn the_rank_that_does_otherwise_is_told_and_not_the_two_that_were_compared() {
    let run = |odd: fn(u32) -> bool| {
        let run = stopped(5, |process, rank, made| {
            let line = if odd(rank) { 9 } else { 8 };
            process.from(&format!("train.py:{line}"), |p| {
                if odd(rank) {
                    p.all_gather(made.comm, (made.buffer, made.buffer + MIB), 64, made.stream);
                } else {
                    p.all_reduce(made.comm, made.buffer, 1024, made.stream);
                }
            });
            process.enter_synchronize(made.stream);
        });
        text(&judged(run, "odd-one"))
    };
    let root = |text: &str| text.lines().nth(1).expect("a line follows the verdict").to_owned();
    for (odd, one, others) in [
        (run(|rank| rank == 3), "rank 3", "ranks 0 to 2 and 4"),
        (run(|rank| rank == 0), "rank 0", "ranks 1 to 4"),
        (run(|rank| rank == 1 || rank == 2), "ranks 1 and 2", "ranks 0, 3 and 4"),
    ] {
        let make = if one.starts_with("ranks") { "make" } else { "makes" };
        let said =
            format!("{one} {make} all_gather of 64 f32 (train.py:9), where {others} make all_reduce of");
        assert!(root(&odd).starts_with("  root ") && root(&odd).contains(&said), "{odd}");
        // The sentence of the rule has all of them, and no line says it a third time.
        let sentence = odd.lines().nth(2).expect("the sentence follows the root");
        assert!(sentence.contains(&format!("on {one} (train.py:9)")), "{odd}");
        assert!(sentence.contains(&format!("on {others} (train.py:8)")), "{odd}");
        assert!(!odd.contains("\n  parts ") && !sentence.contains("; rank"), "{odd}");
    }
    // Where half do one thing and half the other, nobody is said to be the odd one.
    let mut halves = stopped(2, |process, rank, made| {
        all_reduce(process, made, 8 + rank);
        process.from("train.py:20", |p| p.all_reduce(made.comm, made.buffer, 1 << (10 + rank), made.stream));
        process.synchronize(made.stream);
    });
    halves.exit();
    let halves = text(&judged(halves, "halves"));
    assert!(!halves.contains("\n  root ") && !halves.contains(", where rank"), "{halves}");
    assert!(
        halves.contains("different lines is #1, at train.py:8 on rank 0 and at train.py:9 on rank 1"),
        "{halves}"
    );
}

#[test]
fn a_collective_of_a_graph_is_told_with_its_replay() {
    let run = |replays: fn(u32) -> u64| {
        stopped(2, |process, rank, made| {
            let graph = process.capture(made.stream, |p| {
                p.from("graph.py:5", |p| p.all_reduce(made.comm, made.buffer, 256, made.stream));
            });
            for _ in 0..replays(rank) {
                process.replay(graph, made.stream);
            }
            if rank == 0 {
                process.enter_synchronize(made.stream);
            } else {
                process.exit();
            }
        })
    };
    let text = text(&judged(run(|rank| 4 - 2 * u64::from(rank)), "replays"));
    assert!(text.contains("in replay 3 of its graph at call 15 (cudaGraphLaunch) (graph.py:5)"), "{text}");
}

#[test]
fn of_a_device_whose_host_got_by_nothing_is_said() {
    let event = 77;
    let run = stopped(2, |process, rank, made| {
        if rank == 0 {
            all_reduce(process, made, 8);
        } else {
            process.from("train.py:9", |p| {
                p.all_gather(made.comm, (made.buffer, made.buffer + MIB), 64, made.stream)
            });
        }
        if rank == 0 {
            // Its part came to an end, whatever that is worth.
            process.record(event, made.stream);
            process.query_done(event);
        }
        process.from_open("train.py:10", |p| p.enter_synchronize(made.stream));
    });
    let text = text(&judged(run, "got-by"));
    let line = |rank: u32| {
        let of = |line: &&str| line.contains(&format!("rank {rank}: its host is in"));
        text.lines().find(of).expect("each rank has a line").to_owned()
    };
    assert!(
        !line(0).contains("device waits") && line(0).contains("cudaStreamSynchronize (train.py:10)"),
        "{text}"
    );
    assert!(
        line(1).contains("its device waits in a collective of comm 01010101 (train.py:9) for rank 0"),
        "{text}"
    );
    assert!(!text.contains("cudaEventQuery"), "{text}");
}

#[test]
fn a_transfer_of_a_group_waits_as_long_as_the_group() {
    let run = stopped(2, |process, rank, made| match rank {
        0 => process.lives_for(0),
        _ => process.from_open("pipe.py:6", |p| {
            p.enter_group(|p| p.recv(made.buffer, 64, (0, made.comm, made.stream)))
        }),
    });
    let judged = judged(run, "group");
    let text = text(&judged);
    assert_eq!(judged.verdict, RunVerdict::Hangs, "{text}");
    assert!(
        text.contains("rank 1: its host is in ncclGroupEnd (pipe.py:6) for 30 s and waits in the first use"),
        "{text}"
    );
}
