//! Several jobs in one recording: each is judged by itself.
//!
//! Not here: which process is which rank of a job (`tests/tests/worlds.rs`).

use std::path::Path;

use rankcheck::runs::RunError;
use rankcheck::runs::judge::{Judged, RunVerdict, judge, read, read_jobs};
use rankcheck::runs::report::text;
use rankcheck_tests::recording::{Process, Run};
use rankcheck_tests::repository::{differs_from_golden, enter};

const MIB: u64 = 1 << 20;
const SECOND: u64 = 1_000_000_000;

/// A job of so many ranks that begins so many seconds after the first, whose communicator has this id; ranks reduce so many elements.
fn job(command: &str, ranks: u32, begins: u64, id: u8, counts: &[u64]) -> Run {
    let mut run = Run::new(ranks);
    run.all(|process, rank| {
        process.header.began += begins * SECOND;
        process.header.pid += u32::from(id) * 1000;
        process.header.command = vec!["python3".to_owned(), command.to_owned()];
        let comm = process.init(id, rank, ranks);
        let (buffer, stream) = (process.malloc(MIB), process.stream());
        let count = counts[rank as usize % counts.len()];
        process.from(&format!("{command}:7"), |process| process.all_reduce(comm, buffer, count, stream));
        process.synchronize(stream);
        process.cuda_free(buffer);
        process.destroy(comm);
    });
    run.exit();
    run
}

/// One process of which nobody says which rank it is.
fn alone(mut process: Process, name: &str) -> Process {
    process.header.rank = None;
    process.header.ranks = None;
    process.header.command = vec![name.to_owned()];
    process
}

/// The files of all jobs in one folder.
struct Together {
    folder: std::path::PathBuf,
    files: usize,
}

impl Together {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("rankcheck-several-{name}-{}", std::process::id()));
        std::fs::remove_dir_all(&folder).ok();
        std::fs::create_dir_all(&folder).expect("the directory for temporary files can be written");
        Self { folder, files: 0 }
    }

    fn add(&mut self, processes: impl IntoIterator<Item = Process>) {
        for process in processes {
            // Names say nothing: files of jobs are mixed.
            process.save(&self.folder.join(format!("host-{:03}.rankrec", self.files * 37 % 101)));
            self.files += 1;
        }
    }
}

impl Drop for Together {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.folder).ok();
    }
}

fn judged(folder: &Path) -> Vec<Judged> {
    read_jobs(folder)
        .into_iter()
        .map(|job| judge(job.expect("a job"), None).expect("it can be judged"))
        .collect()
}

fn verdicts(folder: &Path) -> Vec<(RunVerdict, String)> {
    judged(folder).iter().map(|judged| (judged.verdict, text(judged))).collect()
}

#[test]
fn jobs_one_after_the_other_have_a_verdict_each() {
    let mut together = Together::new("sequence");
    together.add(job("good.py", 2, 0, 1, &[1024]).ranks);
    together.add(job("bad.py", 2, 20, 2, &[1024, 2048]).ranks);
    together.add(job("larger.py", 4, 40, 3, &[512]).ranks);
    let found = verdicts(&together.folder);
    let summary: Vec<RunVerdict> = found.iter().map(|(verdict, _)| *verdict).collect();
    assert_eq!(summary, [RunVerdict::Holds, RunVerdict::Fails, RunVerdict::Holds], "{found:#?}");
    for ((_, text), words) in found.iter().zip([
        "2 ranks, 16 calls, job 1 of 3: python3 good.py",
        "2 ranks, 16 calls, job 2 of 3: python3 bad.py, latent",
        "4 ranks, 32 calls, job 3 of 3: python3 larger.py",
    ]) {
        assert!(text.contains(words), "{text}");
    }
    assert!(found[1].1.contains("bad.py:7"), "{}", found[1].1);
}

/// Two jobs of two ranks each at the same time, whose launchers gave out the same ranks.
#[test]
fn jobs_at_one_time_are_told_apart_by_their_communicators() {
    let mut together = Together::new("at-once");
    together.add(job("one.py", 2, 0, 1, &[1024]).ranks);
    together.add(job("other.py", 2, 0, 2, &[2048]).ranks);
    let found = verdicts(&together.folder);
    assert_eq!(found.len(), 2, "{found:#?}");
    assert!(found.iter().all(|(verdict, _)| *verdict == RunVerdict::Holds), "{found:#?}");
}

/// Ranks of one job that communicate in pairs alone are one job: the launcher started four.
#[test]
fn groups_that_never_meet_are_one_job() {
    let mut together = Together::new("pairs");
    let mut run = Run::new(4);
    run.all(|process, rank| {
        let comm = process.init(1 + (rank / 2) as u8, rank % 2, 2);
        let (buffer, stream) = (process.malloc(MIB), process.stream());
        process.all_reduce(comm, buffer, 1024, stream);
        process.synchronize(stream);
        process.cuda_free(buffer);
    });
    run.exit();
    together.add(run.ranks);
    let found = verdicts(&together.folder);
    assert_eq!(found.len(), 1, "{found:#?}");
    assert!(found[0].1.contains("4 ranks") && !found[0].1.contains("job"), "{}", found[0].1);
}

/// Test programs of one process each, without a launcher, and one that crashed before it had a communicator.
#[test]
fn programs_without_a_launcher_are_jobs_of_their_own() {
    let mut together = Together::new("suite");
    for (nth, name) in (0_u8..).zip(["first_test", "second_test", "third_test"]) {
        let mut run = Run::new(1);
        let mut process = run.ranks.remove(0);
        process.header.began += u64::from(nth) * 10 * SECOND;
        let comms = process.init_on(&[0, 1]);
        let buffers = process.buffers_on([0, 1]);
        let counts = if name == "third_test" { [1024, 2048] } else { [1024, 1024] };
        process.all_reduce_on_each(&comms, &buffers, &counts);
        buffers.iter().for_each(|(_, stream)| process.synchronize(*stream));
        process.exit();
        together.add([alone(process, name)]);
    }
    let mut crashed = Run::new(1).ranks.remove(0);
    crashed.header.began += 40 * SECOND;
    crashed.malloc(MIB);
    crashed.raises("RuntimeError", "out of luck", "crash.py:3");
    crashed.exit_with(1);
    together.add([alone(crashed, "crash")]);
    let found = verdicts(&together.folder);
    let summary: Vec<RunVerdict> = found.iter().map(|(verdict, _)| *verdict).collect();
    let wanted = [RunVerdict::Holds, RunVerdict::Holds, RunVerdict::Fails, RunVerdict::Unknown];
    assert_eq!(summary, wanted, "{found:#?}");
    assert!(found[2].1.contains("job 3 of 4: third_test"), "{}", found[2].1);
    assert!(found[3].1.contains("rank 0 raised RuntimeError: out of luck (crash.py:3)"), "{}", found[3].1);
}

/// Whoever wants one run is told that there are several, and what to do.
#[test]
fn where_one_run_is_wanted_several_are_refused() {
    let mut together = Together::new("refused");
    together.add(job("good.py", 2, 0, 1, &[1024]).ranks);
    together.add(job("bad.py", 2, 20, 2, &[1024, 2048]).ranks);
    let refused = read(&together.folder).err().expect("there are two");
    assert!(matches!(refused, RunError::SeveralJobs { jobs: 2, .. }), "{refused}");
    let told = "(python3 good.py: host-000.rankrec, host-037.rankrec; python3 bad.py: host-010.rankrec, host-074.rankrec)";
    assert!(refused.to_string().contains(told), "{refused}");
}

/// Six jobs that one `rankcheck record` recorded on two GPUs, one after the other: two of nccl-tests, two of torchrun of which one
/// diverges, a sample of CUDA that lends memory, and a program that crashes before it communicates.
#[test]
fn recorded_jobs_are_judged_as_their_reports_say() {
    enter();
    let reports: Vec<String> = judged(Path::new("tests/recordings/jobs")).iter().map(text).collect();
    assert_eq!(reports.len(), 6, "{reports:#?}");
    let differ = differs_from_golden(Path::new("tests/recordings/jobs.report"), &reports.join("\n\n"));
    assert!(differ.is_none(), "{}", differ.unwrap_or_default());
}
