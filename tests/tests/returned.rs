//! Recorded runs that contradict the model, and those of which too little was recorded to accuse anybody.
//!
//! Not here: rules that recorded runs break (`tests/tests/runs.rs`).

use rankcheck::runs::judge::RunVerdict;
use rankcheck::runs::report::text;
use rankcheck_tests::recording::{Process, Run};

use crate::verdicts;

const MIB: u64 = 1 << 20;

fn judged(run: Run, name: &str) -> (RunVerdict, String) {
    let judged = verdicts::judged(run, &format!("returned-{name}"));
    (judged.verdict, text(&judged))
}

/// Two ranks that capture an all-reduce on a stream beside the one that they capture, join it, and then do this there.
fn captured(behind: fn(&mut Process, u64), end: fn(&mut Process, u64)) -> Run {
    let mut run = Run::new(2);
    run.all(|process, rank| {
        let comm = process.init(1, rank, 2);
        let (buffer, main, side) = (process.alloc(MIB), process.stream(), process.stream());
        let (fork, join) = (process.handle(), process.handle());
        process.begin_capture(main);
        process.record(fork, main);
        process.wait(side, fork);
        process.all_reduce(comm, buffer, 1024, side);
        process.record(join, side);
        process.wait(main, join);
        behind(process, side);
        process.from("train.py:9", |process| end(process, main));
        process.all_reduce(comm, buffer, 1024, main);
        process.synchronize(main);
    });
    run
}

/// The same, to the end.
fn ended(mut run: Run) -> Run {
    run.exit();
    run
}

fn returns_a_graph(process: &mut Process, stream: u64) {
    process.end_capture(stream);
}

fn is_unjoined(process: &mut Process, stream: u64) {
    process.end_capture_fails(stream, 904);
}

#[test]
fn a_record_behind_the_join_leaves_a_capture_whole() {
    let records = |process: &mut Process, side| {
        let late = process.handle();
        process.record(late, side);
    };
    let (verdict, text) = judged(ended(captured(records, returns_a_graph)), "record");
    assert_eq!(verdict, RunVerdict::Holds, "{text}");
}

#[test]
fn a_launch_behind_the_join_does_not() {
    let (verdict, text) = judged(ended(captured(Process::kernel, is_unjoined)), "kernel");
    assert_eq!(verdict, RunVerdict::Fails, "{text}");
    assert!(text.starts_with("FAILS GRAPH-6") && text.contains("train.py:9"), "{text}");
}

#[test]
fn an_end_that_the_model_does_not_predict_is_the_models_mistake() {
    for (name, run, says) in [
        (
            "graph",
            captured(Process::kernel, returns_a_graph),
            "it says that this call fails, and it succeeded",
        ),
        ("error", captured(|_, _| {}, is_unjoined), "it says that this call succeeds, and it failed"),
    ] {
        let (verdict, text) = judged(ended(run), name);
        assert_eq!(verdict, RunVerdict::Unknown, "{text}");
        let line =
            format!("judged only up to cudaStreamEndCapture (train.py:9): the model is wrong here: {says}");
        assert!(text.contains(&line), "{text}");
        assert!(!text.contains("GRAPH-6"), "{text}");
    }
}

/// What was broken before the model erred stays so.
#[test]
fn what_does_not_rest_on_the_models_mistake_is_found() {
    let mut run = captured(Process::kernel, is_unjoined);
    run.all(|process, _| {
        let stream = process.stream();
        process.begin_capture(stream);
        process.from("train.py:20", |process| is_unjoined(process, stream));
    });
    run.exit();
    let (verdict, text) = judged(run, "before");
    assert_eq!(verdict, RunVerdict::Fails, "{text}");
    assert!(
        text.starts_with("FAILS GRAPH-6")
            && text.lines().nth(1).is_some_and(|line| line.contains("train.py:9"))
    );
    assert!(text.contains("(train.py:20): the model is wrong here"), "{text}");
}

#[test]
fn behind_a_capture_that_was_lost_nothing_is_known() {
    let (verdict, text) =
        judged(ended(captured(|_, _| {}, |process, main| process.end_capture_fails(main, 901))), "lost");
    assert_eq!(verdict, RunVerdict::Unknown, "{text}");
    assert!(text.contains("(cudaStreamBeginCapture): the capture that it begins was lost"), "{text}");
}

#[test]
fn a_registration_that_fails_for_no_reason_is_the_models_mistake() {
    let mut run = Run::new(2);
    run.all(|process, rank| {
        let comm = process.init(1, rank, 2);
        let buffer = process.alloc(4 * MIB);
        process.from("pool.py:3", |process| {
            process.enter_register(comm, buffer, 4 * MIB);
            process.fails(1);
        });
    });
    run.exit();
    let (verdict, text) = judged(run, "registration");
    assert_eq!(verdict, RunVerdict::Unknown, "{text}");
    assert!(text.contains("(pool.py:3): the model is wrong here: it says that this call succeeds"), "{text}");
}

#[test]
fn a_call_of_nccl_that_failed_does_not_hold() {
    let mut run = Run::new(2);
    run.all(|process, rank| {
        let comm = process.init(1, rank, 2);
        let (buffer, stream) = (process.alloc(MIB), process.stream());
        process.from("train.py:7", |process| {
            process.enter_all_reduce(comm, buffer, 1024, stream);
            process.fails(5);
        });
    });
    run.exit();
    let (verdict, text) = judged(run, "failed");
    assert_eq!(verdict, RunVerdict::Unknown, "{text}");
    assert!(text.contains("ncclAllReduce (train.py:7) returned 5: why it failed is not judged"), "{text}");
}

#[test]
fn communicators_of_several_devices_that_were_not_told_apart_are_not_judged() {
    let run = |devices: u32| {
        let mut run = Run::new(1);
        run.all(|process, _| {
            let comm = process.init_all(devices);
            let (buffer, stream) = (process.alloc(MIB), process.stream());
            process.all_reduce(comm, buffer, 1024, stream);
            process.synchronize(stream);
        });
        run.exit();
        run
    };
    let (verdict, text) = judged(run(1), "one-device");
    assert_eq!(verdict, RunVerdict::Holds, "{text}");
    assert!(text.contains("1 collective on 1 communicator by 1 rank"), "{text}");
    let (verdict, text) = judged(run(2), "two-devices");
    assert_eq!(verdict, RunVerdict::Unknown, "{text}");
    assert!(text.contains("record the run again"), "{text}");
}

/// Two ranks that reduce a buffer and free it without waiting, as far as was recorded.
fn freed_early(driver: bool, launch: fn(&mut Process, u64)) -> Run {
    let mut run = Run::new(2);
    run.all(|process, rank| {
        process.header.driver = driver;
        let comm = process.init(1, rank, 2);
        let (buffer, stream) = (process.alloc(MIB), 0x50);
        let (other, event) = (process.stream(), process.handle());
        process.record(event, other);
        launch(process, stream);
        process.all_reduce(comm, buffer, 1024, stream);
        process.free(buffer);
    });
    run.exit();
    run
}

#[test]
fn where_waits_were_left_out_nobody_is_accused_of_not_waiting() {
    let (verdict, text) = judged(freed_early(false, Process::driver_kernel), "older");
    assert_eq!(verdict, RunVerdict::Unknown, "{text}");
    assert!(
        text.contains("MEM-1 may be broken: rank 0 frees")
            && text.contains(
                "It is not known, because rank 0 calls the driver, whose waits this recording leaves out"
            ),
        "{text}"
    );
    for (name, driver, launch) in [
        ("newer", true, Process::driver_kernel as fn(&mut Process, u64)),
        ("runtime", false, Process::kernel),
    ] {
        let (verdict, text) = judged(freed_early(driver, launch), name);
        assert_eq!(verdict, RunVerdict::Fails, "{text}");
        assert!(text.starts_with("FAILS MEM-1"), "{text}");
    }
}

#[test]
fn a_function_of_the_host_excuses_what_comes_behind_it_alone() {
    // Two streams write one buffer; the function is launched between them, or behind both.
    let run = |between: bool| {
        let mut run = Run::new(2);
        run.all(|process, rank| {
            let comm = process.init(1, rank, 2);
            let (from, buffer) = (process.alloc(MIB), process.alloc(MIB));
            let (stream, other) = (process.stream(), process.stream());
            process.all_reduce(comm, buffer, 1024, stream);
            if between {
                process.host_function(stream);
            }
            process.copy(buffer, from, 4096, other);
            if !between {
                process.host_function(stream);
            }
            process.synchronize(stream);
            process.synchronize(other);
        });
        run.exit();
        run
    };
    let (verdict, text) = judged(run(false), "function-behind");
    assert_eq!(verdict, RunVerdict::Fails, "{text}");
    assert!(text.starts_with("FAILS MEM-2"), "{text}");
    let (verdict, text) = judged(run(true), "function-between");
    assert_eq!(verdict, RunVerdict::Unknown, "{text}");
    assert!(text.contains("MEM-2 may be broken: on rank 0 nothing orders"), "{text}");
    assert!(
        text.contains("It is not known, because rank 0 has a stream call functions of the host"),
        "{text}"
    );
}

#[test]
fn a_function_of_the_host_that_ran_is_a_wait() {
    // Two streams write one buffer; the function of the first runs before the second one is used, or after.
    let run = |before: bool| {
        let mut run = Run::new(2);
        run.all(|process, rank| {
            let comm = process.init(1, rank, 2);
            let (from, buffer) = (process.alloc(MIB), process.alloc(MIB));
            let (stream, other) = (process.stream(), process.stream());
            process.all_reduce(comm, buffer, 1024, stream);
            process.watched_function(stream, 0x7700);
            if before {
                process.function_runs(0x7700);
            }
            process.copy(buffer, from, 4096, other);
            if !before {
                process.function_runs(0x7700);
            }
            process.synchronize(stream);
            process.synchronize(other);
        });
        run.exit();
        run
    };
    let (verdict, text) = judged(run(true), "function-ran");
    assert_eq!(verdict, RunVerdict::Holds, "{text}");
    let (verdict, text) = judged(run(false), "function-ran-later");
    assert_eq!(verdict, RunVerdict::Fails, "{text}");
    assert!(text.starts_with("FAILS MEM-2"), "{text}");
}

#[test]
fn who_shows_nothing_but_launches_of_the_driver_may_do_more() {
    let mut run = Run::new(2);
    run.all(|process, rank| {
        let comm = process.init(1, rank, 2);
        let buffer = process.alloc(MIB);
        process.driver_kernel(0x50);
        process.all_reduce(comm, buffer, 1024, 0x50);
    });
    run.exit();
    let (verdict, text) = judged(run, "linked-in");
    assert_eq!(verdict, RunVerdict::Unknown, "{text}");
    assert!(text.contains("the CUDA runtime may be linked into the program"), "{text}");
}

#[test]
fn every_verdict_says_how_many_kernels_it_leaves_out() {
    let run = |kernels: u32| {
        let mut run = Run::new(2);
        run.all(|process, rank| {
            let comm = process.init(1, rank, 2);
            let (buffer, stream) = (process.alloc(MIB), process.stream());
            (0..kernels).for_each(|_| process.kernel(stream));
            process.all_reduce(comm, buffer, 1024, stream);
            process.synchronize(stream);
        });
        run.exit();
        run
    };
    let (verdict, text) = judged(run(3), "kernels");
    assert_eq!(verdict, RunVerdict::Holds, "{text}");
    assert!(text.contains("not judged: 6 cudaLaunchKernel"), "{text}");
    let (_, text) = judged(run(0), "no-kernels");
    assert!(text.contains("not judged: kernels, of which no launch was recorded"), "{text}");
}

#[test]
fn a_graph_put_together_of_kernels_is_as_good_as_a_kernel() {
    let run = |other: bool| {
        let mut run = Run::new(2);
        run.all(|process, rank| {
            let comm = process.init(1, rank, 2);
            let (buffer, stream) = (process.alloc(MIB), process.stream());
            let executable = process.put_together(other);
            process.replay(executable, stream);
            process.all_reduce(comm, buffer, 1024, stream);
            process.synchronize(stream);
        });
        run.exit();
        run
    };
    let (verdict, text) = judged(run(false), "graph-of-kernels");
    assert_eq!(verdict, RunVerdict::Holds, "{text}");
    assert!(text.contains("not judged: 2 cudaGraphLaunch"), "{text}");
    let (verdict, text) = judged(run(true), "graph-of-more");
    assert_eq!(verdict, RunVerdict::Unknown, "{text}");
    assert!(text.contains("not judged: 2 cuGraphAddNode"), "{text}");
}

/// The handle 2 is another stream in each host thread.
#[test]
fn the_streams_of_two_threads_order_nothing() {
    let run = |thread: usize| {
        let mut run = Run::new(2);
        run.all(|process, rank| {
            let comm = process.init(1, rank, 2);
            let (from, buffer) = (process.alloc(MIB), process.alloc(MIB));
            process.all_reduce(comm, buffer, 1024, 2);
            process.thread = thread;
            process.copy(buffer, from, 4096, 2);
            process.synchronize(2);
            process.thread = 0;
            process.synchronize(2);
        });
        run.exit();
        run
    };
    let (verdict, text) = judged(run(0), "own-stream");
    assert_eq!(verdict, RunVerdict::Holds, "{text}");
    let (verdict, text) = judged(run(1), "streams-of-threads");
    assert_eq!(verdict, RunVerdict::Fails, "{text}");
    assert!(text.starts_with("FAILS MEM-2"), "{text}");
}
