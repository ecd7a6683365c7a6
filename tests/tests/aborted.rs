//! Recorded runs whose communicators were aborted, as PyTorch's watchdog does when a collective takes too long: what stood
//! reads as over afterwards, so such a run is judged as it stood before the first abort.
//!
//! Not here: runs that stood until their recordings end (`stuck.rs`).

use rankcheck::runs::judge::{Judged, RunVerdict, judge, read};
use rankcheck::runs::report::text;
use rankcheck_tests::recording::{Process, Run};

const MIB: u64 = 1 << 20;
const SECOND_NS: u64 = 1_000_000_000;

fn judged(run: Run, name: &str) -> Judged {
    let saved = run.save(&format!("aborted-{name}"));
    judge(read(&saved.folder).expect("a recording"), None).expect("it can be judged")
}

/// A communicator, a buffer of one MiB and a stream.
struct Made {
    comm: u64,
    buffer: u64,
    stream: u64,
}

fn processes(ranks: u32, each: impl Fn(&mut Process, u32, &Made)) -> Run {
    let mut run = Run::new(ranks);
    run.all(|process, rank| {
        let comm = process.init(1, rank, ranks);
        let made = Made { comm, buffer: process.alloc(MIB), stream: process.stream() };
        process.from("train.py:3", |p| p.all_reduce(comm, made.buffer, 64, made.stream));
        process.from("train.py:4", |p| p.synchronize(made.stream));
        each(process, rank, &made);
        if process.header.alive.is_none() {
            process.lives_for(SECOND_NS);
        }
    });
    run
}

/// The watchdog's thread aborts the communicator at this time, and what the main thread stood in returns.
fn watchdog_aborts(process: &mut Process, made: &Made, time: u64) {
    process.time = process.time.max(time);
    process.thread = 1;
    process.abort(made.comm);
    // Of a group whose communicators are gone, torch aborts none.
    process.abort(0);
    process.thread = 0;
    process.leave();
}

fn rounds(process: &mut Process, made: &Made, rounds: u32) {
    for _ in 0..rounds {
        process.from("train.py:8", |p| p.all_reduce(made.comm, made.buffer, 1024, made.stream));
    }
}

/// One rank leaves the loop a round early and tears down; the watchdog of another one ends it after half a minute.
#[test]
fn a_standstill_that_an_abort_ended_is_a_hang_with_the_round_that_is_missing() {
    for early in [0, 1, 2] {
        let run = processes(3, |process, rank, made| {
            rounds(process, made, if rank == early { 4 } else { 5 });
            if rank == early {
                process.enter_destroy(made.comm);
                process.time = 31 * SECOND_NS;
                process.leave();
            } else {
                process.enter_synchronize(made.stream);
                watchdog_aborts(process, made, (30 + u64::from(rank)) * SECOND_NS);
                process.exit_with(1);
            }
        });
        let judged = judged(run, &format!("early-{early}"));
        let text = text(&judged);
        assert_eq!(judged.verdict, RunVerdict::Hangs, "{text}");
        let told = text.lines().nth(1).expect("a line follows the verdict");
        assert!(told.trim_start().starts_with("cycle"), "{text}");
        let said = format!("rank {early} made 4 rounds of the loop at train.py:8");
        assert!(told.contains(&said) && told.contains("is in round 5"), "{text}");
        let first = u32::from(early == 0);
        assert!(text.contains(&format!("rank {first} aborted comm 01010101 after that")), "{text}");
        assert!(!text.contains("was not seen to be made"), "{text}");
    }
}

/// Torch gives up what may only have been slow, too.
#[test]
fn an_abort_proves_no_standstill() {
    let late = processes(2, |process, rank, made| {
        if rank == 0 {
            rounds(process, made, 1);
            process.enter_synchronize(made.stream);
            watchdog_aborts(process, made, 30 * SECOND_NS);
        } else {
            process.kernel(made.stream);
            process.lives_for(60 * SECOND_NS);
        }
    });
    let judged_late = judged(late, "late");
    assert_eq!(judged_late.verdict, RunVerdict::Unknown, "{}", text(&judged_late));
    assert!(judged_late.aborted.is_none());

    let inside_one_call = processes(2, |process, _, made| {
        rounds(process, made, 1);
        process.enter_synchronize(made.stream);
        watchdog_aborts(process, made, 30 * SECOND_NS);
    });
    let inside = judged(inside_one_call, "inside");
    assert_eq!(inside.verdict, RunVerdict::Unknown, "{}", text(&inside));
}

/// Whoever aborts a communicator on which everything is over waits for nobody.
#[test]
fn a_run_that_ends_with_aborts_holds() {
    let mut run = processes(3, |process, _, made| {
        rounds(process, made, 3);
        process.synchronize(made.stream);
        process.abort(made.comm);
        process.abort(0);
    });
    run.exit();
    let judged = judged(run, "in-order");
    assert_eq!(judged.verdict, RunVerdict::Holds, "{}", text(&judged));
}
