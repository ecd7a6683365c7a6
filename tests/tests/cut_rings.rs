//! Rings that have lost the first calls of a process: which transfers meet is likely and not certain there, and proves no
//! hang.
//!
//! Not here: dumps that begin with the process ([`super::dumped`]).

use rankcheck::launches::judge::JudgedJob;
use rankcheck::launches::report;
use rankcheck::launches::waits::Guess;
use rankcheck::runs::judge::RunVerdict;
use rankcheck_tests::dumps::{Call, DumpedRun, DumpsSaved, RunGroupAt, Written, sum};

/// Judges a job, and returns the report too.
fn judged(name: &str, run: &DumpedRun) -> (JudgedJob, String) {
    judged_in(&run.save(&format!("cut-{name}"), Written::Torch))
}

fn judged_in(saved: &DumpsSaved) -> (JudgedJob, String) {
    let mut judged = rankcheck::dumps::judge_dumps(std::slice::from_ref(&saved.folder))
        .unwrap_or_else(|error| panic!("{error}"));
    let judged = judged.pop().expect("a folder is a job at least");
    let text = report::text(&judged);
    (judged, text)
}

/// What is likely in the circles of a job, of which none is certain.
fn guesses(judged: &JudgedJob) -> Vec<Guess> {
    assert!(judged.waits.circles.is_empty());
    judged.waits.likely_circles.iter().flat_map(|likely| likely.guesses.iter().copied()).collect()
}

/// A rank sends to one other and receives from one, in one launch. Returns the place of its end.
fn exchange(run: &mut DumpedRun, rank: u32, group: RunGroupAt, to: Option<u32>, from: u32) -> usize {
    let call = Call::new("").tensor(&[1024]).line(30);
    run.begin_bracket(rank, group);
    if let Some(to) = to {
        run.send(rank, group, to, &call);
    }
    run.recv(rank, group, from, &call);
    run.end_bracket(rank, group)
}

/// What a ring has lost of a launch that is not over is not over either.
#[test]
fn a_ring_that_cuts_an_open_batch_proves_nothing() {
    let mut run = DumpedRun::new(2);
    let all = run.all();
    for batch in 0..6 {
        for rank in 0..2 {
            let end = exchange(&mut run, rank, all, Some(1 - rank), 1 - rank);
            if batch < 2 {
                run.complete(rank, end);
            }
        }
    }
    for ring in 5..=18 {
        run.ring = ring;
        let (judged, text) = judged("open", &run);
        assert!(
            judged.waits.all_circles().next().is_none() && judged.waits.roots.is_empty(),
            "{ring}: {text}"
        );
        assert_ne!(judged.verdict, RunVerdict::Hangs, "{ring}: {text}");
        // From 13 on the end of a batch that is over is there, and with it all that is open.
        let holds = judged.verdict == RunVerdict::Holds;
        assert!(if ring < 13 { !holds } else { holds || ring < 18 }, "{ring}: {text}");
    }
}

/// A collective that all have launched may stand behind what a ring has lost.
#[test]
fn what_a_ring_has_lost_may_keep_a_collective() {
    let mut run = DumpedRun::new(2);
    let all = run.all();
    let pairs = [0, 1].map(|rank| run.group("ALONE", &[rank]));
    for _ in 0..6 {
        run.everywhere(all, &sum(8));
        for alone in pairs {
            let calls = run.everywhere(alone, &sum(8));
            let rank = run.ranks_of(alone)[0];
            run.complete(rank, calls[0]);
        }
    }
    let (whole, text) = judged("kept-whole", &run);
    assert_eq!(whole.verdict, RunVerdict::Holds, "{text}");
    run.ring = 4;
    let (cut, text) = judged("kept", &run);
    assert_eq!(cut.verdict, RunVerdict::Unknown, "{text}");
}

/// Ranks send around a circle and meet in a collective, step after step; in the last step one may leave out its send.
fn around(ranks: u32, without: Option<u32>) -> DumpedRun {
    let mut run = DumpedRun::new(ranks);
    let all = run.all();
    for _ in 0..8 {
        for rank in 0..ranks {
            exchange(&mut run, rank, all, Some((rank + 1) % ranks), (rank + ranks - 1) % ranks);
        }
        run.everywhere(all, &sum(8).line(31));
    }
    run.complete_everything();
    for rank in 0..ranks {
        let to = Some((rank + 1) % ranks).filter(|_| without != Some(rank));
        let end = exchange(&mut run, rank, all, to, (rank + ranks - 1) % ranks);
        // Whom nobody sends to waits, and so does the launch in which it sends itself.
        if without.is_some_and(|without| rank != (without + 1) % ranks) {
            run.complete(rank, end);
        }
    }
    run.everywhere(all, &sum(8).line(31));
    run
}

/// Collectives that both have finished say which transfers meet: an open send whose other end is over waits for nobody.
#[test]
fn a_send_that_was_left_out_is_found_in_a_cut_ring() {
    let mut run = around(4, Some(2));
    run.ring = 10;
    let (cut, text) = judged("around", &run);
    assert_eq!(cut.verdict, RunVerdict::Unknown, "{text}");
    assert!(text.contains("for rank 2, which did not launch it"), "{text}");
    assert!(!text.contains("for rank 0, which did not launch it"), "{text}");
    assert!(text.contains("rank 3 is in send to rank 0 with recv from rank 2"), "{text}");
    assert!(text.contains("(train.py:30), waiting for rank 2\n"), "{text}");
    assert!(text.contains("that transfers whose first ones are lost meet by their places"), "{text}");
    assert!(
        text.contains("unknown   whether the circle is one: which transfers meet in it is likely"),
        "{text}"
    );
    run.give_up();
    let (given_up, text) = judged("around-given-up", &run);
    assert_eq!(given_up.verdict, RunVerdict::Hangs, "{text}");
    run.ring = 2_000;
    let (whole, text) = judged("around-whole", &run);
    assert_eq!(whole.verdict, RunVerdict::Hangs, "{text}");
    assert!(!text.contains("whose first ones are lost"), "{text}");
    let mut healthy = around(4, None);
    healthy.ring = 10;
    let (healthy, text) = judged("around-healthy", &healthy);
    assert_eq!(healthy.verdict, RunVerdict::Holds, "{text}");
}

/// Two ranks send to each other in turn. Whoever is looked at later has received what the other one's dump has open, and a
/// ring or a dump of active calls may have lost that.
#[test]
fn transfers_in_turn_are_no_circle_whenever_they_are_looked_at() {
    for active_only in [false, true] {
        let mut run = DumpedRun::new(2);
        (run.ring, run.active_only) = (3, active_only);
        let all = run.all();
        let call = Call::new("").tensor(&[8]);
        let saved = run.save("cut-in-turn", Written::Torch);
        let mut first: Vec<Vec<u8>> = Vec::new();
        for turn in 0..12 {
            let (from, to) = (turn % 2, 1 - turn % 2);
            let send = run.send(from, all, to, &call);
            first.push(run.bytes(0, Written::Torch));
            let recv = run.recv(to, all, from, &call);
            run.complete(from, send);
            run.complete(to, recv);
            let mut next = run.clone();
            next.send(to, all, from, &call);
            for first in &first {
                saved.write("nccl_trace_rank_0", first);
                saved.write("nccl_trace_rank_1", &next.bytes(1, Written::Torch));
                let (judged, text) = judged_in(&saved);
                assert_ne!(judged.verdict, RunVerdict::Hangs, "{turn}, {active_only}: {text}");
            }
        }
    }
}

/// Until torch 2.5 a batch raised the number of collectives, of those alone who made it.
#[test]
fn collectives_that_batches_have_raised_are_counted_anew() {
    let mut run = DumpedRun::new(4);
    run.batches_raise_collectives = true;
    let all = run.all();
    for _ in 0..3 {
        for rank in 0..2 {
            exchange(&mut run, rank, all, Some(1 - rank), 1 - rank);
        }
        run.everywhere(all, &sum(8).line(31));
    }
    run.complete_everything();
    let mut clean = run.clone();
    for rank in 2..4 {
        clean.collective(rank, all, &sum(8).line(31));
    }
    let (judged_so, text) = judged("raised", &clean);
    assert_eq!(judged_so.compared.collectives, 4, "{text}");
    let roots: Vec<u32> = judged_so.waits.roots.iter().map(|root| root.rank).collect();
    assert_eq!(roots, [0, 1], "{text}");
    // Nobody has finished what two have not launched.
    clean.ring = 4;
    let (judged_so, text) = judged("raised-ring", &clean);
    assert!(judged_so.waits.roots.is_empty() && !text.contains("has finished"), "{text}");
    assert_eq!(judged_so.verdict, RunVerdict::Unknown, "{text}");
    // One leaves out a send: the other waits for it, and it for the other in the collective.
    exchange(&mut run, 1, all, Some(0), 0);
    let call = Call::new("").tensor(&[1024]).line(30);
    run.begin_bracket(0, all);
    run.recv(0, all, 1, &call);
    let end = run.end_bracket(0, all);
    run.complete(0, end);
    run.everywhere(all, &sum(8).line(31));
    let (judged_so, text) = judged("raised-hang", &run);
    assert_eq!((judged_so.verdict, guesses(&judged_so)), (RunVerdict::Unknown, vec![Guess::Hosts]), "{text}");
    assert!(text.contains("for rank 0, which did not launch it"), "{text}");
    run.ring = 5;
    let (judged_so, text) = judged("raised-hang-ring", &run);
    assert_eq!(judged_so.verdict, RunVerdict::Unknown, "{text}");
}

/// Without a collective of both, the last receive of a launch may be of a send that is over, or of none.
#[test]
fn a_transfer_that_may_meet_either_is_not_known() {
    let mut run = DumpedRun::new(2);
    let all = run.all();
    for _ in 0..8 {
        for rank in 0..2 {
            let end = exchange(&mut run, rank, all, Some(1 - rank), 1 - rank);
            run.complete(rank, end);
        }
    }
    exchange(&mut run, 1, all, Some(0), 0);
    let recv = run.recv(0, all, 1, &Call::new("").tensor(&[1024]).line(40));
    run.complete(0, recv);
    run.recv(0, all, 1, &Call::new("").tensor(&[1024]).line(41));
    let (whole, text) = judged("either-whole", &run);
    assert_eq!((whole.verdict, guesses(&whole)), (RunVerdict::Unknown, vec![Guess::Hosts]), "{text}");
    run.ring = 12;
    let (cut, text) = judged("either", &run);
    assert_eq!((cut.verdict, guesses(&cut)), (RunVerdict::Unknown, vec![]), "{text}");
    assert!(text.contains("some wait for calls of which it is not known"), "{text}");
}

/// A ring drops one call after the other, so the first launch that it kept may lack some of its calls.
#[test]
fn a_launch_that_a_ring_has_cut_differs_from_none() {
    let mut run = DumpedRun::new(2);
    let all = run.all();
    let gather = |size: i64| Call::new("_all_gather_base").input(&[size]).output(&[2 * size]).line(40);
    for _ in 0..4 {
        for rank in 0..2 {
            run.begin_bracket(rank, all);
            for size in [4, 8, 16] {
                run.collective(rank, all, &gather(size));
            }
            run.end_bracket(rank, all);
        }
        run.complete_everything();
    }
    for ring in 1..=16 {
        run.ring = 16;
        let saved = run.save("cut-launch", Written::Torch);
        run.ring = ring;
        saved.write("nccl_trace_rank_0", &run.bytes(0, Written::Torch));
        let (judged, text) = judged_in(&saved);
        assert!(judged.rules().is_empty(), "{ring}: {text}");
        // With a call of the launch before it, the last one is there whole.
        assert_eq!(judged.verdict == RunVerdict::Holds, ring > 4, "{ring}: {text}");
    }
}

/// What was sent before a collective that both have finished is not what is received behind it.
#[test]
fn transfers_on_both_sides_of_a_collective_do_not_meet() {
    let mut run = DumpedRun::new(2);
    let all = run.all();
    let sends = run.send(1, all, 0, &Call::new("").tensor(&[8]).line(1));
    let receives = run.recv(0, all, 1, &Call::new("").tensor(&[8]).line(1));
    run.complete(1, sends);
    run.complete(0, receives);
    run.everywhere(all, &sum(64).line(2));
    run.complete_everything();
    run.recv(0, all, 1, &Call::new("").tensor(&[32]).line(3));
    run.ring = 2;
    let (judged, text) = self::judged("both-sides", &run);
    assert!(judged.rules().is_empty(), "{text}");
    let [root] = &judged.waits.roots[..] else { panic!("{text}") };
    assert_eq!((root.rank, judged.verdict), (1, RunVerdict::Unknown), "{text}");
    // Behind it, what does not fit is found.
    run.send(1, all, 0, &Call::new("").tensor(&[8]).line(3));
    let (judged, text) = self::judged("behind", &run);
    assert_eq!(judged.rules().into_iter().map(|rule| rule.id()).collect::<Vec<_>>(), ["P2P-4"], "{text}");
}

/// The status of a group counts batches of transfers by their own numbers, so that one that is over is no collective.
#[test]
fn a_status_that_counts_transfers_finishes_no_collective() {
    let mut run = DumpedRun::new(3);
    let all = run.all();
    for batch in 0..2 {
        for rank in 0..3 {
            if batch == 0 || rank != 2 {
                let end = exchange(&mut run, rank, all, Some((rank + 1) % 3), (rank + 2) % 3);
                if batch == 0 {
                    run.complete(rank, end);
                }
            }
        }
    }
    for rank in 0..2 {
        for _ in 0..6 {
            run.collective(rank, all, &sum(64).line(40));
        }
    }
    let whole = run.save("cut-status", Written::Torch);
    run.ring = 5;
    whole.write("nccl_trace_rank_1", &run.bytes(1, Written::Torch));
    let (judged, text) = judged_in(&whole);
    let roots: Vec<u32> = judged.waits.roots.iter().map(|root| root.rank).collect();
    assert_eq!((roots, &judged.waits.stale[..]), (vec![2], &[][..]), "{text}");
}

/// A device that has begun with a call is kept by nothing that was launched before it, and others' streams keep it only where
/// they were made to.
#[test]
fn a_receive_that_is_posted_early_makes_no_circle() {
    let mut run = DumpedRun::new(2);
    let (all, pair) = (run.all(), run.group("PIPELINE", &[0, 1]));
    run.everywhere(all, &sum(64));
    run.complete_everything();
    run.recv(0, pair, 1, &Call::new("").tensor(&[8]).line(20));
    let reduces = run.everywhere(all, &sum(64).line(10));
    let (judged, text) = self::judged("early", &run);
    assert_eq!((judged.verdict, judged.waits.circles.len()), (RunVerdict::Unknown, 0), "{text}");
    assert!(text.contains("calls in it are of different communicators"), "{text}");
    for (rank, call) in (0..).zip(reduces) {
        run.start(rank, call);
    }
    let (judged, text) = self::judged("begun", &run);
    assert_eq!((judged.verdict, judged.waits.all_circles().count()), (RunVerdict::Holds, 0), "{text}");
}

/// What others need to have gone on is over, whatever an older dump says.
#[test]
fn a_dump_that_is_older_than_others_stands_in_nothing() {
    let mut run = DumpedRun::new(2);
    let all = run.all();
    let open = run.everywhere(all, &sum(64).line(10));
    let older = run.bytes(0, Written::Torch);
    for (rank, call) in (0..).zip(open) {
        run.complete(rank, call);
    }
    for _ in 0..3 {
        run.everywhere(all, &sum(64).line(10));
        run.complete_everything();
    }
    let saved = run.save("cut-older", Written::Torch);
    saved.write("nccl_trace_rank_0", &older);
    let (judged, text) = judged_in(&saved);
    assert!(judged.waits.roots.is_empty() && judged.waits.stale == [0], "{text}");
    assert_eq!(judged.verdict, RunVerdict::Unknown, "{text}");
}
