//! Recordings and dumps that are given together: of jobs that ran on two GPUs, and made ones that contradict.

use std::path::Path;
use std::process::Command;

use rankcheck::dumps::judge_dumps;
use rankcheck::launches::judge::JudgedJob;
use rankcheck::runs::judge::{Judged, judge, read};
use rankcheck::runs::launched::launch_times;
use rankcheck::together::{JointAnswer, OneJob, Together, together};
use rankcheck_tests::dumps::{Call, DumpedRun, Written};
use rankcheck_tests::repository::{differs_from_golden, enter};
use serde_json::Value;

use crate::reported::wrong_in;

const RUNS: &str = "tests/dumps/runs";

/// The kept jobs of which there is a recording too.
const BOTH: [(&str, &str); 6] = [
    ("another_length", "agree"),
    ("another_root", "alone"),
    ("leaves", "alone"),
    ("nobody_receives", "agree"),
    ("one_transfer_more_in_a_batch", "agree"),
    ("stops_early", "agree"),
];

fn recording(name: &str) -> Judged {
    enter();
    let folder = Path::new(RUNS).join(name).join("recording");
    judge(read(&folder).expect("a recording"), None).expect("a run of one program")
}

fn dumps(path: &Path) -> JudgedJob {
    let jobs = judge_dumps(&[path.to_owned()]).unwrap_or_else(|error| panic!("{error}"));
    let [job] = <[JudgedJob; 1]>::try_from(jobs).unwrap_or_else(|many| panic!("{} jobs", many.len()));
    job
}

fn given(recording: &Judged, job: &JudgedJob) -> Together {
    Together::of(recording, job).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn recordings_and_dumps_of_devices_do_not_contradict() {
    let mut said = String::new();
    for (name, answer) in BOTH {
        let together = given(&recording(name), &dumps(&Path::new(RUNS).join(name)));
        let text = together.text();
        assert_eq!(together.answer.as_ref().map(JointAnswer::name), Some(answer), "{text}");
        said.push_str(&text);
        said.push_str("\n\n");
    }
    let wrong = differs_from_golden(&enter().join("tests/dumps/together.report"), &said);
    assert!(wrong.is_none(), "{}", wrong.unwrap_or_default());
}

/// These jobs ran at one time on one machine, with as many ranks and one version of NCCL.
#[test]
fn jobs_are_told_apart() {
    let recordings: Vec<Judged> = BOTH.iter().map(|(name, _)| recording(name)).collect();
    let jobs: Vec<JudgedJob> = BOTH.iter().map(|(name, _)| dumps(&Path::new(RUNS).join(name))).collect();
    let pairs = together(&recordings, &jobs).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(pairs.len(), BOTH.len(), "{pairs:?}");
    for pair in &pairs {
        assert!(pair.recording.starts_with(&pair.dumps), "{}", pair.text());
    }
    let other = given(&recordings[0], &jobs[1]);
    assert_eq!(other.answer, None, "{}", other.text());
    let OneJob::No(why) = &other.one_job else { panic!("{}", other.text()) };
    assert!(why.contains("were recorded at their times"), "{why}");
}

/// Dumps of two ranks that were made at the times of the calls of `stops_early`: so many of each rank.
fn made(recording: &Judged, calls: [usize; 2], change: impl Fn(&mut DumpedRun)) -> DumpedRun {
    let times = launch_times(&recording.recording).expect("it was just read");
    let mut run = DumpedRun::new(2);
    let all = run.all();
    run.nccl = "2.28.9";
    for rank in 0..2_u32 {
        for _ in 0..calls[rank as usize] {
            run.collective(rank, all, &Call::new("all_reduce").tensor(&[8]));
        }
    }
    for rank in 0..2_u32 {
        for (at, time) in times[&rank].iter().take(calls[rank as usize]).enumerate() {
            run.ranks[rank as usize].calls[at].created = *time;
        }
    }
    change(&mut run);
    run
}

fn judged_with(recording: &Judged, run: &DumpedRun) -> Together {
    let saved = run.save("together", Written::Torch);
    given(recording, &dumps(&saved.folder))
}

/// Dumps of which rank 0 is the root: it made three calls, and all of them are over.
fn of_another_root(recording: &Judged) -> DumpedRun {
    made(recording, [3, 6], |run| {
        for rank in 0..2 {
            for call in 0..3 {
                run.complete(rank, call);
            }
        }
        run.give_up();
    })
}

#[test]
fn a_contradiction_is_told() {
    // The recording has rank 1 as the root: it made 6 calls, and rank 0 made 9.
    let recording = recording("stops_early");
    let together = judged_with(&recording, &of_another_root(&recording));
    let text = together.text();
    assert!(matches!(together.answer, Some(JointAnswer::Differ(_))), "{text}");
    assert!(text.starts_with("DIFFER  ") && text.contains("rank 1 as the root"), "{text}");
    assert!(text.contains("the dumps: rank 0 as the root"), "{text}");
    // A rule that a recording would show.
    let other_size = made(&recording, [6, 6], |run| {
        run.ranks[1].calls[5].call = Call::new("all_reduce").tensor(&[16]);
    });
    let together = judged_with(&recording, &other_size);
    assert!(matches!(together.answer, Some(JointAnswer::Differ(_))), "{}", together.text());
    // A rule that dumps would show.
    let lengths = self::recording("another_length");
    let healthy = made(&lengths, [3, 3], |run| run.complete_everything());
    let together = judged_with(&lengths, &healthy);
    assert!(matches!(together.answer, Some(JointAnswer::Differ(_))), "{}", together.text());
    // And one that they would not.
    let roots = self::recording("another_root");
    let healthy = made(&roots, [3, 3], |run| run.complete_everything());
    let together = judged_with(&roots, &healthy);
    assert!(matches!(together.answer, Some(JointAnswer::Alone(_))), "{}", together.text());
}

#[test]
fn ranks_versions_and_times_tell_jobs_apart() {
    let recording = recording("stops_early");
    let no = |run: &DumpedRun| {
        let together = judged_with(&recording, run);
        assert_eq!(together.answer, None, "{}", together.text());
        assert!(together.text().starts_with("NOT COMPARED  "), "{}", together.text());
        let OneJob::No(why) = together.one_job else { panic!("{}", together.text()) };
        why
    };
    let mut run = made(&recording, [6, 6], |_| {});
    run.nccl = "2.27.3";
    assert_eq!(no(&run), "the recording is of NCCL 2.28.9, and the dumps are of 2.27.3");
    let mut run = DumpedRun::new(3);
    run.everywhere(run.all(), &Call::new("all_reduce").tensor(&[8]));
    assert_eq!(no(&run), "2 ranks were recorded, and the dumps are of 3");
    let later = made(&recording, [6, 6], |run| {
        for call in run.ranks.iter_mut().flat_map(|rank| &mut rank.calls) {
            call.created += 3_600_000_000_000;
        }
    });
    assert_eq!(no(&later), "of 6 calls in the dump of rank 0, 0 were recorded at their times");
    let mut empty = DumpedRun::new(2);
    empty.nccl = "2.28.9";
    assert_eq!(no(&empty), "no call of a dump says when it was made");
}

/// One folder that has both, and two paths; a difference is no secret of a quiet command.
#[test]
fn the_command_compares_what_it_is_given() {
    let command = |arguments: &[&str]| {
        let output = Command::new(crate::built::command())
            .args(arguments)
            .current_dir(enter())
            .output()
            .expect("the command starts");
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let folder = format!("{RUNS}/stops_early");
    let (code, text) = command(&["check", &folder]);
    assert_eq!(code, Some(1), "{text}");
    assert!(
        text.contains("\nAGREE  tests/dumps/runs/stops_early/recording and tests/dumps/runs/stops_early\n"),
        "{text}"
    );
    assert!(text.ends_with("0 passed, 2 failed\n"), "{text}");
    let paths = [format!("{RUNS}/another_root/recording"), format!("{RUNS}/another_root")];
    let (code, text) = command(&["check", &paths[0], &paths[1], "--format", "json"]);
    assert_eq!(code, Some(1), "{text}");
    let json: Value = serde_json::from_str(&text).expect("a report is JSON");
    assert_eq!(wrong_in(&json), [""; 0], "{text}");
    assert_eq!(json["together"].as_array().map(Vec::len), Some(1), "{text}");
    assert_eq!(json["together"][0]["answer"], "alone", "{text}");
    assert_eq!(json["recordings"].as_array().map(Vec::len), Some(1), "{text}");
    let saved = of_another_root(&recording("stops_early")).save("quiet", Written::Torch);
    let recorded = format!("{RUNS}/stops_early/recording");
    let (_, text) = command(&["check", "--quiet", &recorded, &saved.folder.to_string_lossy()]);
    assert!(text.contains("\nDIFFER  "), "{text}");
}
