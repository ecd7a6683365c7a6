//! Jobs of which there are dumps: two real ones that hung, and made ones.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use rankcheck::dumps::judge_dumps;
use rankcheck::dumps::read::read_dump;
use rankcheck::launches::compare::CallDifference;
use rankcheck::launches::judge::JudgedJob;
use rankcheck::launches::report;
use rankcheck::launches::waits::{CircleStep, Guess, RootKind};
use rankcheck::runs::judge::RunVerdict;
use rankcheck_tests::damage::Random;
use rankcheck_tests::dumps::{Call, DumpedRun, DumpsSaved, Written, begun, damaged_dump, sum};
use rankcheck_tests::repository::{differs_from_golden, enter};
use rankcheck_tests::schedules::{Fault, Scheduled, scheduled};
use rstest::rstest;

use crate::reported::wrong_in;

/// The dumps of a real job, where they lie beside the repository, by rank.
fn real(job: &str) -> Option<Vec<PathBuf>> {
    let beside =
        |root: &Path| Some(root.join("shared/data/flight-recorder").join(job)).filter(|path| path.is_dir());
    let folder = enter().ancestors().skip(1).find_map(beside);
    if folder.is_none() {
        println!("skipped: the dumps of real jobs are not here");
    }
    let folder = folder?;
    Some((0..16).map(|rank| folder.join(format!("_dump_{rank}"))).collect())
}

/// Real jobs, and the ranks in which a fault was injected.
const REAL: [(&str, [u32; 2]); 2] = [("gpu_error_1st", [12, 14]), ("lock_gil_2nd", [10, 15])];

fn only(judged: Vec<JudgedJob>) -> JudgedJob {
    let [one] = <[JudgedJob; 1]>::try_from(judged).unwrap_or_else(|many| panic!("{} jobs", many.len()));
    one
}

fn judge_paths(paths: &[PathBuf]) -> JudgedJob {
    only(judge_dumps(paths).unwrap_or_else(|error| panic!("{error}")))
}

fn roots(judged: &JudgedJob) -> BTreeSet<u32> {
    judged.waits.roots.iter().map(|root| root.rank).collect()
}

#[test]
fn the_roots_of_real_jobs_are_the_injected_ranks() {
    for (name, injected) in REAL {
        let Some(paths) = real(name) else { return };
        let judged = judge_paths(&paths);
        let text = report::text(&judged);
        assert_eq!(roots(&judged), BTreeSet::from(injected), "{text}");
        assert!(judged.rules().is_empty() && judged.waits.circles.is_empty(), "{text}");
        // Their dumps were taken before anything timed out, and each at a moment of its own.
        assert_eq!(judged.verdict, RunVerdict::Unknown, "{text}");
        let [why] = &judged.unknown[..] else { panic!("{text}") };
        assert!(why.starts_with("whether the job stood still"), "{text}");
        let stands = judged.waits.roots.iter().all(|root| matches!(root.kind, RootKind::Stands(_)));
        assert_eq!(stands, name == "gpu_error_1st", "{text}");
    }
}

/// A rank without a dump is a root where others prove it. That one whose device stands is the cause, and does not merely
/// wait like its neighbour, nobody else's dump says.
#[test]
fn any_dump_of_a_real_job_may_be_missing() {
    for (name, injected) in REAL {
        let Some(paths) = real(name) else { return };
        for missing in 0..16_u32 {
            let mut left = paths.clone();
            left.remove(missing as usize);
            let judged = judge_paths(&left);
            let text = report::text(&judged);
            let mut expected = BTreeSet::from(injected);
            if name == "gpu_error_1st" {
                expected.remove(&missing);
            }
            assert_eq!(roots(&judged), expected, "without rank {missing}: {text}");
            assert!(judged.rules().is_empty(), "without rank {missing}: {text}");
            let gap = format!("rank {missing} has no dump here that was read");
            assert!(judged.unknown.contains(&gap), "without rank {missing}: {text}");
            // It is told that it may be one, if it is.
            let may_be = format!("whether rank {missing} is a root too: ");
            let told = judged.unknown.iter().any(|why| why.starts_with(&may_be));
            assert!(told || expected == BTreeSet::from(injected), "without rank {missing}: {text}");
        }
    }
}

/// Whatever is done to one file of a real job, it is read without a panic, no other rank becomes a root, and no rule is
/// said to be broken where the file was refused or cut.
#[test]
fn any_dump_of_a_real_job_may_be_damaged() {
    let (mut refused, mut whole, mut altered) = (0, 0, 0);
    for (name, injected) in REAL {
        let Some(paths) = real(name) else { return };
        let saved = DumpsSaved::new(&format!("real-damaged-{name}"));
        for (rank, path) in paths.iter().enumerate() {
            saved.write(&format!("_dump_{rank}"), &std::fs::read(path).expect("it was just there"));
        }
        for number in 0..count_of_damaged() / 20 {
            let mut random = Random(number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            let rank = random.below(16);
            let intact = std::fs::read(&paths[rank]).expect("it was just there");
            let damaged = damaged_dump(&intact, &mut random);
            saved.write(&format!("_dump_{rank}"), &damaged);
            let judged = judge_paths(std::slice::from_ref(&saved.folder));
            let text = report::text(&judged);
            let rank_number = u32::try_from(rank).expect("few ranks");
            if read_dump(&damaged).is_ok_and(|dump| dump.cut.is_none()) {
                // Bits that were turned in a number may say anything.
                whole += 1;
                altered +=
                    usize::from(roots(&judged) != BTreeSet::from(injected) || !judged.rules().is_empty());
            } else {
                refused += 1;
                let mut found = roots(&judged);
                let mut expected = BTreeSet::from(injected);
                found.remove(&rank_number);
                expected.remove(&rank_number);
                assert_eq!(found, expected, "{name}, rank {rank}: {text}");
                assert!(
                    judged.rules().is_empty() && !judged.unknown.is_empty(),
                    "{name}, rank {rank}: {text}"
                );
            }
            saved.write(&format!("_dump_{rank}"), &intact);
        }
    }
    println!(
        "one file damaged: {refused} refused or cut, {whole} read whole, {altered} of them say something else"
    );
    assert!(refused > whole && altered * 10 < whole);
}

/// How many are tried; an environment variable says another number.
fn count(variable: &str, usual: u64) -> u64 {
    std::env::var(variable).ok().and_then(|wanted| wanted.parse().ok()).unwrap_or(usual)
}

fn count_of_damaged() -> u64 {
    count("RANKCHECK_DAMAGED_DUMPS", 1_000)
}

/// Everything that torch writes of one job.
fn variants(run: &DumpedRun) -> Vec<(String, DumpedRun, Written)> {
    let mut variants = Vec::new();
    for written in [Written::Torch, Written::Python(4), Written::Json] {
        for active_only in [false, true] {
            for minor in [3, 10] {
                let mut run = run.clone();
                (run.active_only, run.minor, run.stacks) = (active_only, minor, minor == 10);
                variants.push((format!("{written:?}, active only: {active_only}, 2.{minor}"), run, written));
            }
        }
    }
    variants
}

/// Judges a job in all variants.
fn each(name: &str, run: &DumpedRun, said: impl Fn(&JudgedJob, &str, bool)) {
    for (variant, run, written) in variants(run) {
        let saved = run.save(&format!("made-{name}"), written);
        let judged = judge_paths(std::slice::from_ref(&saved.folder));
        let text = format!("{name}, {variant}: {}", report::text(&judged));
        let value =
            serde_json::to_value(rankcheck::report::json([], [], [&judged], &[])).expect("it is data");
        assert_eq!(wrong_in(&value), [""; 0], "{text}");
        let mut timeline = Vec::new();
        rankcheck::launches::timeline::write(&judged, &mut timeline).expect("memory can be written");
        let timeline: serde_json::Value = serde_json::from_slice(&timeline).expect("a timeline is JSON");
        assert_eq!(crate::timelines::looked_at(&timeline).0, [""; 0], "{text}");
        said(&judged, &text, run.active_only);
    }
}

fn rules(judged: &JudgedJob) -> Vec<&'static str> {
    judged.rules().iter().map(|rule| rule.id()).collect()
}

#[test]
fn healthy_jobs_have_nothing_wrong() {
    let mut run = begun(4);
    let pipe = run.group("PIPELINE", &[0, 1]);
    let send = run.send(0, pipe, 1, &Call::new("").tensor(&[8, 16]));
    let recv = run.recv(1, pipe, 0, &Call::new("").tensor(&[8, 16]));
    run.complete(0, send);
    run.complete(1, recv);
    for rank in 0..2 {
        run.begin_bracket(rank, pipe);
        run.send(rank, pipe, 1 - rank, &Call::new("").tensor(&[8]));
        run.recv(rank, pipe, 1 - rank, &Call::new("").tensor(&[8]));
        let end = run.end_bracket(rank, pipe);
        run.complete(rank, end);
    }
    each("healthy", &run, |judged, text, _| {
        assert_eq!(judged.verdict, RunVerdict::Holds, "{text}");
        assert!(judged.unknown.is_empty() && text.contains("nothing wrong up to here"), "{text}");
    });
    let all = run.all();
    run.everywhere(all, &sum(64));
    each("under way", &run, |judged, text, _| assert_eq!(judged.verdict, RunVerdict::Holds, "{text}"));
}

#[test]
fn two_groups_in_opposite_order_break_a_rule() {
    let mut run = begun(4);
    let (one, other) = (run.group("ONE", &[0, 1]), run.group("OTHER", &[0, 1]));
    for (rank, order) in [(0, [one, other]), (1, [other, one])] {
        for group in order {
            run.collective(rank, group, &sum(8));
        }
    }
    each("opposite", &run, |judged, text, _| {
        assert_eq!(rules(judged), ["COLL-4"], "{text}");
        assert!(text.contains("rank 0 calls") && text.contains("; rank 1 calls"), "{text}");
    });
    // It may go well, and is wrong all the same.
    run.complete_everything();
    each("opposite but over", &run, |judged, text, active_only| {
        let expected: &[&str] = if active_only { &[] } else { &["COLL-4"] };
        assert_eq!(rules(judged), expected, "{text}");
    });
}

#[test]
fn three_groups_in_a_circle_break_a_rule() {
    let mut run = begun(3);
    let pairs: Vec<_> = (0..3_u32).map(|at| run.group("PAIR", &[at, (at + 1) % 3])).collect();
    for at in 0..3_usize {
        for group in [pairs[at], pairs[(at + 2) % 3]] {
            run.collective(u32::try_from(at).expect("few"), group, &sum(8));
        }
    }
    each("circle", &run, |judged, text, _| {
        assert_eq!(rules(judged), ["COLL-4"], "{text}");
        assert_eq!(judged.compared.inversions[0].steps.len(), 3, "{text}");
        assert_eq!(likely_circle(judged, text).1, BTreeSet::from([Guess::Communicators]), "{text}");
    });
}

/// The only circle of a job, which is not certain, and why.
fn likely_circle<'a>(judged: &'a JudgedJob, text: &str) -> (&'a [CircleStep], BTreeSet<Guess>) {
    let ([], [likely]) = (&judged.waits.circles[..], &judged.waits.likely_circles[..]) else {
        panic!("{text}")
    };
    (&likely.steps, likely.guesses.clone())
}

#[test]
fn send_against_send_is_a_circle() {
    let mut run = begun(2);
    let all = run.all();
    for rank in 0..2 {
        run.send(rank, all, 1 - rank, &Call::new("").tensor(&[1 << 20]).line(7));
    }
    each("send-send", &run, |judged, text, _| {
        // Their hosts may be about to receive.
        assert_eq!(judged.verdict, RunVerdict::Unknown, "{text}");
        assert!(judged.waits.roots.is_empty(), "{text}");
        let (steps, guesses) = likely_circle(judged, text);
        assert_eq!((steps.len(), guesses), (2, BTreeSet::from([Guess::Hosts])), "{text}");
        assert!(text.contains("rank 0 waits in send to rank 1"), "{text}");
    });
    // Once they have, their devices stand.
    for rank in 0..2 {
        run.recv(rank, all, 1 - rank, &Call::new("").tensor(&[1 << 20]).line(8));
    }
    each("send-send-recv", &run, |judged, text, _| {
        assert_eq!(judged.verdict, RunVerdict::Hangs, "{text}");
        assert!(judged.waits.roots.is_empty(), "{text}");
        let [steps] = &judged.waits.circles[..] else { panic!("{text}") };
        assert_eq!(steps.len(), 2, "{text}");
    });
}

/// Whoever waits in a collective needs all of its members: what others are in the midst of makes no circle go on.
#[test]
fn a_circle_stands_whatever_bystanders_do() {
    let mut run = begun(4);
    let (first, second) = (run.group("FIRST", &[0, 1, 2, 3]), run.group("SECOND", &[0, 1]));
    let bystanders = run.group("BYSTANDERS", &[2, 3]);
    for (rank, group) in [(0, first), (1, second), (2, bystanders), (3, bystanders)] {
        run.collective(rank, group, &sum(8));
    }
    each("bystanders", &run, |judged, text, _| {
        assert_eq!(judged.verdict, RunVerdict::Unknown, "{text}");
        let (steps, guesses) = likely_circle(judged, text);
        assert_eq!((steps.len(), guesses), (2, BTreeSet::from([Guess::Hosts])), "{text}");
    });
}

/// A ring of which all that is left is open has lost calls that are open too, if the status says that no more is over.
#[test]
fn what_a_ring_lost_is_not_over_because_later_calls_are_there() {
    let mut run = begun(3);
    let (all, pair) = (run.all(), run.group("PAIR", &[0, 1]));
    run.everywhere(pair, &sum(8));
    run.complete_everything();
    // Rank 2 comes no more.
    run.collective(1, all, &sum(64).line(10));
    for (group, line) in [(all, 10), (pair, 11), (all, 12)] {
        run.collective(0, group, &sum(64).line(line));
    }
    run.ring = 2;
    each("lost and open", &run, |judged, text, _| assert_eq!(roots(judged), BTreeSet::from([2]), "{text}"));
    run.ring = 1;
    each("lost beside", &run, |judged, text, _| assert_ne!(judged.verdict, RunVerdict::Holds, "{text}"));
}

/// What is likely to meet and does not fit, or has its other end over, is no call that can go on.
#[rstest]
#[case::of_other_types("Float", true)]
#[case::whose_other_end_is_over("Half", false)]
fn a_transfer_behind_a_lost_beginning_is_unknown(#[case] received: &'static str, #[case] open: bool) {
    let mut run = begun(2);
    let all = run.all();
    let half = || Call::new("").tensor(&[8]).dtype("Half");
    let send = |run: &mut DumpedRun| run.send(0, all, 1, &half());
    if open {
        for _ in 0..3 {
            send(&mut run);
            run.recv(1, all, 0, &half());
            run.everywhere(all, &sum(8));
            run.complete_everything();
        }
        send(&mut run);
        run.recv(1, all, 0, &half().dtype(received));
    } else {
        for nth in 0..4 {
            let sent = send(&mut run);
            if nth < 3 {
                let got = run.recv(1, all, 0, &half());
                run.complete(0, sent);
                run.complete(1, got);
            }
        }
        for rank in 0..2 {
            let over = run.collective(rank, all, &sum(8));
            run.complete(rank, over);
        }
    }
    run.ring = 3;
    let saved = run.save("made-lost-beginning", Written::Torch);
    let judged = judge_paths(std::slice::from_ref(&saved.folder));
    assert_eq!(judged.verdict, RunVerdict::Unknown, "{}", report::text(&judged));
}

#[test]
fn what_differs_is_named_with_both_lines() {
    let barrier = Call::new("all_reduce_barrier").tensor(&[1]).dtype("Float").line(9);
    let change: [(&str, &str, Call); 4] = [
        // It is an all-reduce for NCCL.
        ("barrier", "COLL-3", barrier),
        ("size", "COLL-3", sum(65).line(9)),
        ("type", "COLL-3", sum(64).dtype("Float").line(9)),
        ("kind", "COLL-2", Call::new("broadcast").tensor(&[64]).line(9)),
    ];
    for (name, rule, other) in change {
        for differing in [0, 2] {
            let mut run = begun(4);
            let all = run.all();
            for rank in 0..4 {
                let call = if rank == differing { other.clone() } else { sum(64) };
                run.collective(rank, all, &call);
            }
            each(name, &run, |judged, text, _| {
                assert_eq!(rules(judged), [rule], "{text}");
                let difference = &judged.compared.differences[0];
                assert_eq!(difference.number, Some(4), "{text}");
                assert_eq!(difference.sides[1].ranks, [differing], "{text}");
                assert!(text.contains("most ranks called the first"), "{text}");
                assert_eq!(
                    text.contains("train.py:9"),
                    text.contains("2.10") && !text.contains("Json"),
                    "{text}"
                );
            });
        }
    }
    let mut run = begun(2);
    let all = run.all();
    run.send(0, all, 1, &Call::new("").tensor(&[8]));
    run.recv(1, all, 0, &Call::new("").tensor(&[9]));
    each("transfer", &run, |judged, text, _| assert_eq!(rules(judged), ["P2P-4"], "{text}"));
}

/// Of calls that are launched as one, the one that differs is named.
#[test]
fn the_call_of_a_launch_that_differs_is_named() {
    let gather = |size: i64| Call::new("_all_gather_base").input(&[size]).output(&[4 * size]);
    let mut run = begun(4);
    let all = run.all();
    for rank in 0..4 {
        run.begin_bracket(rank, all);
        run.collective(rank, all, &gather(10));
        run.collective(rank, all, &gather(if rank == 2 { 21 } else { 20 }));
        run.end_bracket(rank, all);
    }
    each("launch", &run, |judged, text, _| {
        assert_eq!(rules(judged), ["COLL-3"], "{text}");
        let sides = [
            "20 bf16 as call 2 of 2 in one launch on ranks 0, 1 and 3",
            "21 bf16 as call 2 of 2 in one launch on rank 2",
        ];
        assert!(sides.iter().all(|side| text.contains(side)), "{text}");
    });
    let mut run = begun(4);
    for rank in 0..4 {
        run.begin_bracket(rank, all);
        run.collective(rank, all, &gather(10));
        if rank != 2 {
            run.collective(rank, all, &gather(20));
        }
        run.end_bracket(rank, all);
    }
    each("launch", &run, |judged, text, _| {
        assert_eq!(rules(judged), ["COLL-2"], "{text}");
        let sides =
            ["20 bf16 as call 2 of 2 in one launch on ranks 0, 1 and 3", " and a launch of 1 call on rank 2"];
        assert!(sides.iter().all(|side| text.contains(side)), "{text}");
    });
}

#[test]
fn a_rank_that_stops_is_the_root() {
    let mut run = begun(4);
    let all = run.all();
    for rank in [0, 2, 3] {
        run.collective(rank, all, &sum(64).line(12));
    }
    each("stops", &run, |judged, text, _| {
        assert_eq!(roots(judged), BTreeSet::from([1]), "{text}");
        let [root] = &judged.waits.roots[..] else { panic!("{text}") };
        assert!(matches!(root.kind, RootKind::DidNotLaunch(Some(_))), "{text}");
        assert_eq!(root.awaited_by, BTreeSet::from([0, 2, 3]), "{text}");
        assert_eq!(judged.verdict, RunVerdict::Unknown, "{text}");
    });
    // It may be in its data loader for 20 s, and all others wait for it.
    run.time += 20_000_000_000;
    for rank in [0, 2, 3] {
        run.start(rank, 3);
        run.collective(rank, all, &sum(32));
    }
    each("is late", &run, |judged, text, _| {
        assert_eq!(roots(judged), BTreeSet::from([1]), "{text}");
        assert_eq!(judged.verdict, RunVerdict::Unknown, "{text}");
        assert!(text.contains("\n  unknown   whether the job stood still: "), "{text}");
    });
    run.give_up();
    each("too late", &run, |judged, text, _| {
        assert_eq!(roots(judged), BTreeSet::from([1]), "{text}");
        assert_eq!(judged.verdict, RunVerdict::Hangs, "{text}");
    });
}

/// A healthy job goes on while its dumps are taken one after another: a device that is behind in one of them may have been
/// looked at before.
#[test]
fn dumps_that_are_taken_one_after_another_prove_no_hang() {
    let mut run = begun(4);
    let all = run.all();
    let calls: Vec<Vec<usize>> = (0..6).map(|_| run.everywhere(all, &sum(64))).collect();
    let saved = run.save("one-after-another", Written::Torch);
    for (taken, launched) in calls.iter().enumerate() {
        for rank in 0..4 {
            run.complete(rank, launched[rank as usize]);
        }
        if let Ok(rank) = u32::try_from(taken)
            && rank < 4
        {
            saved.write(&format!("nccl_trace_rank_{rank}"), &run.bytes(rank, Written::Torch));
        }
    }
    let judged = judge_paths(std::slice::from_ref(&saved.folder));
    let text = report::text(&judged);
    assert_eq!((judged.verdict, rules(&judged).len()), (RunVerdict::Unknown, 0), "{text}");
}

/// Of a batch, the call is told that is not met.
#[test]
fn the_call_of_a_batch_that_waits_is_told() {
    let mut run = begun(2);
    let pipe = run.group("PIPELINE", &[0, 1]);
    let call = Call::new("").tensor(&[8]);
    run.begin_bracket(0, pipe);
    run.send(0, pipe, 1, &call);
    run.recv(0, pipe, 1, &call);
    run.end_bracket(0, pipe);
    run.begin_bracket(1, pipe);
    run.recv(1, pipe, 0, &call);
    let end = run.end_bracket(1, pipe);
    run.complete(1, end);
    each("batch", &run, |judged, text, active_only| {
        assert_eq!(roots(judged), BTreeSet::from([1]), "{text}");
        // Where calls that are over are left out, the receive is not known to have been met either.
        assert!(
            active_only || text.contains("did not launch what the recv from rank 1 of group 1"),
            "{text}"
        );
    });
}

#[test]
fn a_rank_that_never_called_is_the_root() {
    let mut run = DumpedRun::new(3);
    let all = run.all();
    for rank in [0, 1] {
        run.collective(rank, all, &sum(64));
    }
    run.give_up();
    for status_of_unused in [false, true] {
        run.status_of_unused = status_of_unused;
        each("never", &run, |judged, text, _| {
            assert_eq!(roots(judged), BTreeSet::from([2]), "{text}");
            assert_eq!(judged.verdict, RunVerdict::Hangs, "{text}");
        });
    }
}

#[test]
fn a_receive_without_its_send_has_a_root() {
    for bracketed in [false, true] {
        let mut run = begun(3);
        let pipe = run.group("PIPELINE", &[0, 1, 2]);
        if bracketed {
            run.begin_bracket(2, pipe);
        }
        run.recv(2, pipe, 1, &Call::new("").tensor(&[8]));
        if bracketed {
            run.end_bracket(2, pipe);
        }
        each("receive", &run, |judged, text, _| {
            assert_eq!(roots(judged), BTreeSet::from([1]), "{text}");
            assert_eq!(judged.waits.roots[0].awaited_by, BTreeSet::from([2]), "{text}");
        });
    }
}

#[test]
fn a_device_that_stands_is_the_root() {
    let mut run = begun(4);
    let all = run.all();
    let calls = run.everywhere(all, &sum(64).line(20));
    let later = run.everywhere(all, &sum(32));
    for rank in [0, 1, 3_u32] {
        run.complete(rank, calls[rank as usize]);
        run.complete(rank, later[rank as usize]);
        run.collective(rank, all, &sum(16));
    }
    each("stands", &run, |judged, text, _| {
        assert_eq!(roots(judged), BTreeSet::from([2]), "{text}");
        assert!(matches!(judged.waits.roots[0].kind, RootKind::Stands(stands) if stands.passed), "{text}");
        assert_eq!(judged.verdict, RunVerdict::Unknown, "{text}");
    });
    run.give_up();
    each("stands too long", &run, |judged, text, _| {
        assert_eq!(roots(judged), BTreeSet::from([2]), "{text}");
        assert_eq!(judged.verdict, RunVerdict::Hangs, "{text}");
    });
}

/// Nobody has called anything more yet; what one device is in, others have finished all the same.
#[test]
fn a_device_that_stands_is_told_before_anybody_waits_for_it() {
    let mut run = begun(4);
    let all = run.all();
    let calls = run.everywhere(all, &sum(64).line(20));
    for rank in [0, 1, 3_u32] {
        run.complete(rank, calls[rank as usize]);
    }
    each("stands alone", &run, |judged, text, _| {
        assert_eq!(roots(judged), BTreeSet::from([2]), "{text}");
        assert_eq!(judged.verdict, RunVerdict::Unknown, "{text}");
        assert!(
            text.contains("its device has not finished it, and that of rank 0 has finished it"),
            "{text}"
        );
        assert!(text.contains("; nobody waits for it yet"), "{text}");
    });
}

/// With timing on, what a device has not begun is known. That it is late is no cause as long as nobody waited too long.
#[test]
fn a_device_that_does_not_begin_is_a_root_once_a_call_timed_out() {
    let mut run = begun(3);
    let all = run.all();
    let calls = run.everywhere(all, &sum(64).line(20));
    for rank in [0, 2] {
        run.start(rank, calls[rank as usize]);
    }
    run.start(1, 0);
    each("not begun", &run, |judged, text, active_only| {
        assert_eq!(judged.verdict, RunVerdict::Holds, "{text}");
        assert_eq!(text.contains("rank 1 has not begun all_reduce #4"), !active_only, "{text}");
    });
    // Torch learns what has started when it writes the dump.
    run.time += 700_000_000_000;
    for rank in [0, 2] {
        run.start(rank, calls[rank as usize]);
    }
    each("timed out", &run, |judged, text, active_only| {
        assert_eq!(judged.verdict, RunVerdict::Hangs, "{text}");
        // A rank that has nothing to say of what its device began has no timing, as far as one can see.
        let expected = if active_only { BTreeSet::new() } else { BTreeSet::from([1]) };
        assert_eq!(roots(judged), expected, "{text}");
    });
}

#[test]
fn a_rank_that_leaves_a_call_out_is_named() {
    let mut run = begun(4);
    let all = run.all();
    for rank in 0..4 {
        for line in 4..10 {
            let call =
                if line % 2 == 0 { sum(64) } else { Call::new("_all_gather_base").input(&[8]).output(&[32]) };
            if (rank, line) != (3, 6) {
                run.collective(rank, all, &call.line(line));
            }
        }
    }
    each("skips", &run, |judged, text, _| {
        assert_eq!(rules(judged), ["COLL-2"], "{text}");
        assert_eq!(judged.compared.differences[0].left_out_by, Some(3), "{text}");
        assert!(judged.waits.roots.is_empty(), "{text}");
    });
}

/// A job of torchcomms: two ranks of four split a communicator, make a window on it, and use both communicators; the others
/// only the first.
/// Calls that are alike do not differ, whichever of them is missing. Their lines do.
#[test]
fn the_line_of_a_call_that_was_left_out_is_told() {
    const LINES: [u32; 9] = [50, 51, 52, 53, 50, 51, 52, 53, 50];
    for (left_out_by, missing) in [(0, 1), (2, 1), (3, 6), (2, 7)] {
        let mut run = begun(4);
        let all = run.all();
        let lines = |rank: u32| {
            let lines = LINES.into_iter().enumerate();
            lines.filter(move |(at, _)| (rank, *at) != (left_out_by, missing)).map(|(_, line)| line)
        };
        for rank in 0..4 {
            for line in lines(rank).take(8) {
                run.collective(rank, all, &sum(64).line(line));
            }
        }
        run.complete_everything();
        for rank in 0..4 {
            for line in lines(rank).skip(8) {
                run.collective(rank, all, &sum(64).line(line));
            }
        }
        each("left out", &run, |judged, text, active_only| {
            assert_eq!(roots(judged), BTreeSet::from([left_out_by]), "{text}");
            let with_lines = text.contains("2.10") && !text.contains("Json");
            let (own, others) = (LINES[missing + 1], LINES[missing]);
            let from = format!("from #{} of group 0", missing + 4);
            let said = format!(" on the lines differ: rank {left_out_by} is at train.py:{own}, and rank ");
            let left_out =
                format!("at train.py:{others}, as if rank {left_out_by} had left out train.py:{others}");
            let told = [from, said, left_out].iter().all(|part| text.contains(part));
            assert_eq!(told, with_lines && !active_only, "{text}");
        });
    }
}

fn with_torchcomms() -> DumpedRun {
    let mut run = DumpedRun::new(4);
    let (all, pair) = (run.all(), run.group("split", &[0, 1]));
    for line in 1..=3 {
        run.everywhere(all, &sum(64).line(line));
        run.everywhere(pair, &Call::new("_all_gather_base").input(&[8]).output(&[16]));
        let window = if line == 1 { "split" } else { "new_window" };
        run.everywhere(all, &Call::new(window));
    }
    run.send(0, pair, 1, &Call::new("").tensor(&[8]));
    run.recv(1, pair, 0, &Call::new("").tensor(&[8]));
    run.complete_everything();
    run
}

fn judge_torchcomms(name: &str, run: &DumpedRun) -> (JudgedJob, String) {
    let saved = run.save(name, Written::Torchcomms);
    let judged = judge_paths(std::slice::from_ref(&saved.folder));
    let text = report::text(&judged);
    (judged, text)
}

#[test]
fn a_healthy_job_of_torchcomms_has_nothing_wrong() {
    let mut run = with_torchcomms();
    let (judged, text) = judge_torchcomms("torchcomms", &run);
    // What is retired is over, whatever its events said.
    assert!(judged.timed_out.is_empty() && judged.waits.waiting.is_empty(), "{text}");
    assert_eq!(judged.verdict, RunVerdict::Holds, "{text}");
    assert!(text.contains("9 collectives and 0 transfers of 2 groups by 4 ranks"), "{text}");
    assert!(text.contains("2 transfers are not compared: they do not say with whom"), "{text}");
    // Ten minutes are no timeout: it writes them for every call.
    let all = run.all();
    run.everywhere(all, &sum(64));
    run.time += 700_000_000_000;
    for rank in 0..4 {
        let last = run.ranks[rank as usize].calls.len() - 1;
        run.start(rank, last);
    }
    let (judged, text) = judge_torchcomms("torchcomms-long", &run);
    assert_eq!(judged.verdict, RunVerdict::Holds, "{text}");
}

#[test]
fn mistakes_in_a_job_of_torchcomms_are_found() {
    // The numbers of calls differ by rank, and those of collectives of one group do not.
    let mut stops = with_torchcomms();
    let all = stops.all();
    for rank in [0, 1, 3] {
        stops.collective(rank, all, &sum(64));
    }
    let (judged, text) = judge_torchcomms("torchcomms-stops", &stops);
    assert_eq!((roots(&judged), judged.verdict), (BTreeSet::from([2]), RunVerdict::Unknown), "{text}");
    assert!(text.contains("rank 2 did not launch all_reduce #7 of group 0"), "{text}");
    let mut other = with_torchcomms();
    for rank in 0..4 {
        other.collective(rank, all, &sum(if rank == 3 { 65 } else { 64 }));
    }
    let (judged, text) = judge_torchcomms("torchcomms-size", &other);
    assert_eq!(rules(&judged), ["COLL-3"], "{text}");
    assert_eq!(judged.compared.differences[0].number, Some(7), "{text}");
    assert_eq!(judged.compared.differences[0].sides[1].ranks, [3], "{text}");
    let mut order = with_torchcomms();
    let pair = order.group("other", &[0, 1]);
    for (rank, groups) in [(0, [all, pair]), (1, [pair, all])] {
        for group in groups {
            order.collective(rank, group, &sum(64));
        }
    }
    let (judged, text) = judge_torchcomms("torchcomms-order", &order);
    assert_eq!(rules(&judged), ["COLL-4"], "{text}");
    // Once the ring has lost calls, the number counts those of groups that are not known.
    let mut ring = stops;
    ring.ring = 5;
    let (judged, text) = judge_torchcomms("torchcomms-ring", &ring);
    assert_eq!(judged.verdict, RunVerdict::Unknown, "{text}");
    assert!(judged.waits.roots.is_empty() && text.contains("their numbers do not count"), "{text}");
}

#[test]
fn a_missing_rank_is_said_and_may_be_the_root() {
    let mut run = begun(4);
    let all = run.all();
    for written in [Written::Torch, Written::Json] {
        let saved = run.save("missing-healthy", written);
        let name = if written == Written::Json { "nccl_trace_rank_2.json" } else { "nccl_trace_rank_2" };
        std::fs::remove_file(saved.folder.join(name)).expect("it was just written");
        let judged = judge_paths(std::slice::from_ref(&saved.folder));
        assert_eq!(judged.verdict, RunVerdict::Unknown, "{}", report::text(&judged));
    }
    for rank in [0, 1, 3] {
        run.collective(rank, all, &sum(64));
    }
    let saved = run.save("missing", Written::Torch);
    std::fs::remove_file(saved.folder.join("nccl_trace_rank_2")).expect("it was just written");
    let judged = judge_paths(std::slice::from_ref(&saved.folder));
    let text = report::text(&judged);
    assert_eq!(roots(&judged), BTreeSet::from([2]), "{text}");
    assert!(matches!(judged.waits.roots[0].kind, RootKind::NotKnown(_)), "{text}");
    assert!(judged.unknown.contains(&"rank 2 has no dump here that was read".to_owned()), "{text}");
    // One dump alone says nothing of others.
    let judged = judge_paths(&[saved.folder.join("nccl_trace_rank_0")]);
    assert!(judged.unknown.contains(&"nothing of one rank could be compared with another's".to_owned()));
    assert_ne!(judged.verdict, RunVerdict::Holds);
}

#[test]
fn simulated_jobs_have_their_faults_found() {
    let (mut found, mut healthy) = (0, 0);
    let mut wrong: Vec<String> = Vec::new();
    for seed in 0..count("RANKCHECK_SIMULATED_JOBS", 200) {
        let Scheduled { mut run, fault, rank, name } = scheduled(seed);
        // Some are looked at before the watchdog has given anything up.
        let given_up = fault != Fault::Nothing && seed % 2 == 0;
        if given_up {
            run.give_up();
        }
        let found_so = if given_up { RunVerdict::Hangs } else { RunVerdict::Unknown };
        let written =
            [Written::Torch, Written::Json, Written::Python(4)][usize::try_from(seed % 3).expect("small")];
        let saved = run.save("simulated", written);
        let judged = judge_paths(std::slice::from_ref(&saved.folder));
        let text = format!("job {seed}, {name}\n{}", report::text(&judged));
        let broken = rules(&judged);
        let is_step = |step: &CircleStep| judged.job.processes[step.waits_in.process].rank == rank;
        let in_circle = judged.waits.all_circles().flatten().any(is_step);
        let right = match fault {
            Fault::Nothing => !matches!(judged.verdict, RunVerdict::Fails | RunVerdict::Hangs),
            Fault::HostStops | Fault::DeviceStands => {
                broken.is_empty() && roots(&judged) == BTreeSet::from([rank]) && judged.verdict == found_so
            }
            Fault::Skips => {
                let named = |difference: &CallDifference| {
                    difference.sides.iter().any(|side| side.ranks.contains(&rank))
                };
                let ordered = judged
                    .compared
                    .inversions
                    .iter()
                    .any(|one| one.steps.iter().any(|step| step.rank == rank));
                let root = roots(&judged) == BTreeSet::from([rank]);
                judged.compared.differences.iter().any(named) || ordered || root || in_circle
            }
            Fault::OtherSize => broken == ["COLL-3"],
            // Where only active calls are written, those that are over have no order any more.
            Fault::OppositeOrder => {
                broken.contains(&"COLL-4") || in_circle || run.active_only && broken.is_empty()
            }
        };
        if right {
            *(if fault == Fault::Nothing { &mut healthy } else { &mut found }) += 1;
        } else {
            wrong.push(text);
        }
    }
    println!("simulated jobs: {found} faults found, {healthy} healthy ones without a fault");
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n\n"));
}

/// A damaged dump is no reason to say anything that the whole one does not say.
#[test]
fn damaged_dumps_are_judged_without_panic() {
    let mut run = begun(4);
    let all = run.all();
    run.everywhere(all, &sum(64));
    let (mut judged_whole, mut accused, mut accused_partly, mut read) = (0, 0, 0, 0);
    let saved = run.save("damaged", Written::Torch);
    for number in 0..count_of_damaged() {
        let mut random = Random(number.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 77);
        let written = [Written::Torch, Written::Python(4), Written::Json][random.below(3)];
        let rank = u32::try_from(random.below(4)).expect("few");
        let damaged = damaged_dump(&run.bytes(rank, written), &mut random);
        saved.write(&format!("nccl_trace_rank_{rank}"), &damaged);
        let judged = judge_paths(std::slice::from_ref(&saved.folder));
        let text = report::text(&judged);
        assert!(!text.is_empty());
        read += 1;
        let accuses = matches!(judged.verdict, RunVerdict::Fails | RunVerdict::Hangs);
        if read_dump(&damaged).is_ok_and(|dump| dump.cut.is_none()) {
            judged_whole += 1;
            accused += usize::from(accuses);
        } else {
            accused_partly += u64::from(accuses);
            assert!(judged.verdict != RunVerdict::Holds, "{number}: {text}");
        }
        saved.write(&format!("nccl_trace_rank_{rank}"), &run.bytes(rank, Written::Torch));
    }
    println!(
        "damaged dumps: {read} judged, {judged_whole} of them read whole, of which {accused} accuse somebody, \
         {accused_partly} of the others"
    );
    // What was changed so that it still is a dump may say anything.
    assert!(accused * 10 < judged_whole && accused_partly * 500 < read);
}

/// Where no call of one rank is there to compare with another's, nothing holds.
#[test]
fn how_far_ranks_came_is_no_comparison() {
    let mut run = begun(2);
    run.ranks[1].calls.clear();
    let saved = run.save("no-calls", Written::Torch);
    let judged = judge_paths(std::slice::from_ref(&saved.folder));
    let text = report::text(&judged);
    assert_eq!(judged.verdict, RunVerdict::Unknown, "{text}");
    assert!(text.contains("no call of one is there to compare with another's"), "{text}");
}

/// What is no dump at all is said to be empty, or to be none though its name is a dump's.
#[test]
fn files_that_are_no_dumps_are_told() {
    let saved = DumpsSaved::new("none-at-all");
    let command = |path: &str| crate::built::ran(&saved.folder, &["check", path]);
    for rank in 0..2 {
        saved.write(&format!("rank_{rank}"), b"");
    }
    let (code, text) = command(".");
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("2 files were looked at, and all of them are empty"), "{text}");
    let (code, text) = command("rank_1");
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("rank_1 is empty") && !text.contains("as a spec"), "{text}");
    saved.write("rank_0", b"\x01\x02\x03");
    let (_, text) = command(".");
    assert!(text.contains("and 1 of them is empty, 1 of them named like dumps"), "{text}");
}

/// What the command prints, and with which code it ends.
#[test]
fn the_command_takes_dumps() {
    let run = begun(3);
    let saved = run.save("command", Written::Torch);
    let command = |arguments: &[&str]| crate::built::ran(&saved.folder, arguments);
    let (code, text) = command(&["check", "."]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.starts_with("HOLDS  .   3 ranks, 9 calls: nothing wrong up to here"), "{text}");
    let (code, text) = command(&["check", ".", "--only", "one"]);
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("does nothing for dumps of a run"), "{text}");
    let (code, text) = command(&["timeline", ".", "-o", "timeline.json"]);
    assert_eq!(code, Some(0), "{text}");
    std::fs::remove_file(saved.folder.join("timeline.json")).expect("it was just written");
    let mut stopped = run.clone();
    let all = stopped.all();
    stopped.collective(0, all, &sum(64));
    saved.write("nccl_trace_rank_0", &stopped.bytes(0, Written::Torch));
    let (code, text) = command(&["check", "."]);
    assert_eq!(code, Some(3), "{text}");
    stopped.give_up();
    saved.write("nccl_trace_rank_0", &stopped.bytes(0, Written::Torch));
    let (code, text) = command(&["check", ".", "--format", "json"]);
    assert_eq!(code, Some(1), "{text}");
    let json: serde_json::Value = serde_json::from_str(&text).expect("a report is JSON");
    assert_eq!(json["jobs"][0]["verdict"], "hangs", "{text}");
    for rank in 1..3 {
        saved.write(&format!("nccl_trace_rank_{rank}"), b"\x80\x02broken");
    }
    let (code, text) = command(&["check", "."]);
    assert_eq!(code, Some(3), "{text}");
    for rank in 0..3 {
        saved.write(&format!("nccl_trace_rank_{rank}"), b"\x80\x02broken");
    }
    let (code, text) = command(&["check", "."]);
    assert_eq!(code, Some(3), "{text}");
    assert!(text.contains("nothing of one rank could be compared with another's"), "{text}");
}

/// Dumps that torch wrote of `tests/recordings/mistakes.py` on two GPUs: at a timeout, when it was asked by its pipe, or at
/// the end. Once a communicator is aborted, what stood reads as completed.
#[test]
fn dumps_of_devices_read_as_their_golden_reports() {
    let folder = enter().join("tests/dumps/runs");
    let entries = std::fs::read_dir(&folder).expect("the folder is there");
    let runs = entries.map(|entry| entry.expect("it can be read").path()).filter(|path| path.is_dir());
    let wrong: Vec<String> = runs
        .filter_map(|path| {
            let name = path.file_name().and_then(|name| name.to_str()).expect("names are UTF-8").to_owned();
            let judged = judge_paths(&[PathBuf::from("tests/dumps/runs").join(&name)]);
            let shown = report::text(&judged);
            differs_from_golden(&folder.join(format!("{name}.report")), &format!("{shown}\n"))
        })
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}
