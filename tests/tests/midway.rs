//! Recordings that begin in the middle of a run: communicators exist and are in use, and ranks begin at other numbers.
//!
//! Not here: recordings that end in the middle (`truncated.rs`).

use rankcheck::runs::judge::{Judged, RunVerdict, judge, read};
use rankcheck::runs::report::text;
use rankcheck_tests::recording::{Process, Run};

const MIB: u64 = 1 << 20;

fn judged(run: Run, name: &str) -> Judged {
    let saved = run.save(&format!("midway-{name}"));
    judge(read(&saved.folder).expect("a recording"), None).expect("it can be judged")
}

/// Steps of a loop of which each rank's recording begins at another; each step has a count of its own.
fn steps(begins: [Option<u64>; 2], counts: fn(u32, u64) -> u64) -> Run {
    let mut run = Run::new(2);
    run.all(|process, rank| {
        let begin = begins[rank as usize];
        let comm = process.exists(4, (rank, 2), (begin, Some(0)));
        let (buffer, stream) = (process.alloc(4 * MIB), process.stream());
        for step in begin.unwrap_or(100)..110 {
            process.from("loop.py:7", |p| p.all_reduce(comm, buffer, counts(rank, step), stream));
        }
        process.synchronize(stream);
    });
    run.exit();
    run
}

#[test]
fn ranks_whose_recordings_begin_at_other_numbers_are_brought_together() {
    let each = |_: u32, step: u64| 64 * step;
    let right = judged(steps([Some(100), Some(103)], each), "right");
    assert_eq!(right.verdict, RunVerdict::Holds, "{}", text(&right));
    assert_eq!(right.coverage.collectives, 7, "{}", text(&right));
    let wrong = judged(
        steps([Some(100), Some(103)], |rank, step| 64 * step + u64::from(rank == 1 && step == 106)),
        "wrong",
    );
    let text = text(&wrong);
    assert_eq!(wrong.verdict, RunVerdict::Fails, "{text}");
    assert!(text.contains("COLL-3") && text.contains("collective #106 of comm 04040404"), "{text}");
}

#[test]
fn what_meets_by_numbers_that_are_not_known_is_not_judged() {
    let each = |rank: u32, step: u64| 64 * step + u64::from(rank);
    let judged = judged(steps([Some(100), None], each), "numbers");
    let text = text(&judged);
    assert_eq!(judged.verdict, RunVerdict::Unknown, "{text}");
    assert!(
        text.contains("ncclAllReduce (how many there were before the recording began was not recorded)"),
        "{text}"
    );
}

#[test]
fn a_communicator_that_was_used_is_connected() {
    let run = |comm: fn(&mut Process, u32) -> u64| {
        let mut run = Run::new(2);
        run.all(|process, rank| {
            let comm = comm(process, rank);
            let (buffer, stream) = (process.alloc(4 * MIB), process.stream());
            if rank == 0 {
                process.all_reduce(comm, buffer, MIB, stream);
            }
            process.register(comm, buffer, 4 * MIB);
            if rank == 1 {
                process.all_reduce(comm, buffer, MIB, stream);
            }
            process.synchronize(stream);
        });
        run.exit();
        run
    };
    let rules = |judged: &Judged| judged.findings.iter().map(|finding| finding.rule.id()).collect::<Vec<_>>();
    let new = judged(run(|process, rank| process.init(4, rank, 2)), "new");
    assert!(rules(&new).contains(&"WIN-1"), "its first use waits for the other rank: {}", text(&new));
    let used = judged(run(|process, rank| process.exists(4, (rank, 2), (Some(9), Some(3)))), "used");
    assert!(!rules(&used).contains(&"WIN-1"), "{}", text(&used));
    // Registrations meet by numbers too.
    let apart =
        |process: &mut Process, rank| process.exists(4, (rank, 2), (Some(9), Some(3 + u64::from(rank))));
    let apart = judged(run(apart), "apart");
    assert_eq!(apart.verdict, RunVerdict::Unknown, "{}", text(&apart));
    assert!(text(&apart).contains("how many came before it on its communicator"), "{}", text(&apart));
}

#[test]
fn streams_that_may_have_been_made_before_do_not_race() {
    let run = |comm: fn(&mut Process, u32) -> u64| {
        let mut run = Run::new(2);
        run.all(|process, rank| {
            let (comm, buffer) = (comm(process, rank), process.alloc(4 * MIB));
            let stream = process.handle();
            process.all_reduce(comm, buffer, 1024, stream);
            process.synchronize(stream);
            process.all_reduce(comm, buffer, 1024, stream);
            process.copy(buffer, buffer + MIB, 4096, 0);
            process.synchronize(0);
        });
        run.exit();
        judged(run, "streams").verdict
    };
    assert_eq!(run(|process, rank| process.exists(4, (rank, 2), (Some(9), Some(3)))), RunVerdict::Holds);
    assert_eq!(run(|process, rank| process.init(4, rank, 2)), RunVerdict::Fails);
}
