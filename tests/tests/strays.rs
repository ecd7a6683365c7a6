//! Dumps that lie in the places of ranks and are not theirs: copies of another's, and those of another run.
//!
//! Not here: two dumps in the place of one rank ([`super::dumps`]).

use std::collections::BTreeSet;

use rankcheck::dumps::judge_dumps;
use rankcheck::launches::judge::JudgedJob;
use rankcheck::launches::report;
use rankcheck::runs::judge::RunVerdict;
use rankcheck_tests::dumps::{Call, DumpedRun, DumpsSaved, Written, begun, sum};

const HOUR: i64 = 3_600_000_000_000;

fn judged(saved: &DumpsSaved) -> (JudgedJob, String) {
    let judged = judge_dumps(std::slice::from_ref(&saved.folder)).unwrap_or_else(|error| panic!("{error}"));
    let [judged] = <[JudgedJob; 1]>::try_from(judged).unwrap_or_else(|jobs| panic!("{} jobs", jobs.len()));
    let text = report::text(&judged).replace(&format!("{}/nccl_trace_", saved.folder.display()), "");
    (judged, text)
}

/// Rank 3 does not come to the fourth collective.
fn stopped() -> DumpedRun {
    let mut run = begun(4);
    let all = run.all();
    for rank in 0..3 {
        run.collective(rank, all, &sum(64));
    }
    run
}

/// Whatever an older dump says is not said of this run: neither that it went on, nor that sizes differ.
#[test]
fn a_dump_of_another_run_is_not_used() {
    let run = stopped();
    for (name, size) in [("finished", 64), ("smaller", 65)] {
        let mut older = DumpedRun::new(4);
        older.time = run.time - 24 * HOUR;
        let all = older.all();
        for _ in 0..6 {
            older.everywhere(all, &sum(size));
        }
        older.complete_everything();
        let saved = run.save(&format!("older-{name}"), Written::Torch);
        saved.write("nccl_trace_rank_3", &older.bytes(3, Written::Torch));
        let (judged, text) = judged(&saved);
        assert_eq!(judged.verdict, RunVerdict::Unknown, "{text}");
        let said = "by its times rank_3 is of another run, and is not used: its last lies 24 h before the first of the others; \
                    rank 3 is not known";
        assert!(text.contains(said), "{text}");
        assert!(text.contains("root      rank 3 is not known"), "{text}");
        assert!(!text.contains("the job went on") && !text.contains("has no dump here"), "{text}");
    }
}

/// Clocks of machines may differ by an hour, and a rank may have called nothing for as long.
#[test]
fn clocks_that_differ_make_no_other_run() {
    let mut run = stopped();
    let saved = run.save("clocks", Written::Torch);
    for call in &mut run.ranks[3].calls {
        call.created -= HOUR;
        call.completed = call.completed.map(|time| time - HOUR);
    }
    saved.write("nccl_trace_rank_3", &run.bytes(3, Written::Torch));
    let (judged, text) = judged(&saved);
    assert_eq!(
        judged.waits.roots.iter().map(|root| root.rank).collect::<BTreeSet<_>>(),
        [3].into(),
        "{text}"
    );
    assert!(text.contains("rank 3 did not launch"), "{text}");
}

/// Two processes do not call at the same nanoseconds.
#[test]
fn a_copy_is_no_dump_of_another_rank() {
    let run = stopped();
    let saved = run.save("copied", Written::Torch);
    saved.write("nccl_trace_rank_3", &run.bytes(0, Written::Torch));
    let (judged_so, text) = judged(&saved);
    assert_eq!(judged_so.verdict, RunVerdict::Unknown, "{text}");
    let said = "rank_0 and rank_3 are one dump, with the same times to the nanosecond; nothing says of which rank it is, and it \
                is not used; ranks 0 and 3 are not known";
    assert!(text.contains(said), "{text}");
    // Transfers name who calls them.
    let mut run = stopped();
    let all = run.all();
    run.send(0, all, 1, &Call::new("").tensor(&[8]));
    let saved = run.save("copied-with-transfers", Written::Torch);
    saved.write("nccl_trace_rank_3", &run.bytes(0, Written::Torch));
    let (judged_so, text) = judged(&saved);
    assert_eq!(judged_so.verdict, RunVerdict::Unknown, "{text}");
    assert!(text.contains("; by its transfers it is of rank 0; rank 3 is not known"), "{text}");
    assert!(!text.contains("is named for rank 3"), "{text}");
}
