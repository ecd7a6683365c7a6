//! How long large recordings take: `cargo bench -p rankcheck-tests --bench recorded`. Figures, not tests.
//!
//! The recordings are written to the directory that `RANKCHECK_BENCH_DIRECTORY` names (else the one for
//! temporary files) and deleted again. `RANKCHECK_BENCH_RANKS` and `RANKCHECK_BENCH_CALLS` ask for one size: 512
//! ranks of 1,000,000 calls need 4 GB.
//!
//! With `RANKCHECK_BENCH_DRAWN=64` calls never repeat, of so many sizes of messages, and with `RANKCHECK_BENCH_FOLDED=1` the files are folded
//! before they are read, as `rankcheck record` leaves them. With `RANKCHECK_BENCH_APART=1` no rank is taken to do what another
//! does, as if all ranks differed.
//!
//! With `RANKCHECK_BENCH_RECORDED=1` only the recorded training of `tests/recordings/training` is measured, each twenty times.
//!
//! Buffers take turns in three iterations: checkpoints every 99 iterations are in step with that, every 100 are not.
#![expect(clippy::print_stdout, reason = "the figures are for people")]

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rankcheck::runs::fold::{Folding, fold};
use rankcheck::runs::judge::{Recording, RunVerdict, judge, read, read_folded};
use rankcheck::runs::sequence::{ReadUntil, read_all};
use rankcheck::runs::world::files;
use rankcheck_tests::training::{Sizes, Training};

/// The one that the command uses.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() {
    if std::env::var_os("RANKCHECK_BENCH_RECORDED").is_some() {
        return recorded();
    }
    let number = |name: &str| std::env::var(name).ok().and_then(|value| value.parse::<u64>().ok());
    let ranks = number("RANKCHECK_BENCH_RANKS");
    let calls = number("RANKCHECK_BENCH_CALLS");
    let sizes: Vec<(u64, u64)> = match (ranks, calls) {
        (None, None) => vec![(32, 50_000), (32, 100_000), (32, 200_000)],
        (ranks, calls) => vec![(ranks.unwrap_or(512), calls.unwrap_or(1_000_000))],
    };
    if let Some(drawn) = number("RANKCHECK_BENCH_DRAWN") {
        println!("training with sizes in an order that never repeats");
        for &(ranks, calls) in &sizes {
            measure(&training(ranks, calls, 99, Sizes::Drawn(drawn)));
        }
        return;
    }
    for checkpoint in [99, 100] {
        println!("training that repeats itself, with a checkpoint every {checkpoint} iterations");
        for &(ranks, calls) in &sizes {
            measure(&training(ranks, calls, checkpoint, Sizes::Fixed));
        }
    }
    println!("training with sizes in an order that never repeats");
    measure(&training(8, 100_000, 99, Sizes::Drawn(64)));
}

fn directory() -> PathBuf {
    let base = std::env::var_os("RANKCHECK_BENCH_DIRECTORY").map_or_else(std::env::temp_dir, PathBuf::from);
    base.join(format!("rankcheck-bench-{}", std::process::id()))
}

/// Tensor parallel over 8, pipeline over 4, the rest are copies.
fn training(ranks: u64, calls: u64, checkpoint: u64, sizes: Sizes) -> Training {
    let ranks = u32::try_from(ranks).expect("a number of ranks");
    let tensor = ranks.min(8);
    let pipeline = (ranks / tensor).min(4);
    let data = ranks / tensor / pipeline;
    let mut training = Training {
        tensor,
        pipeline,
        data,
        layers: 6,
        microbatches: 4,
        checkpoint,
        irregular: 1000,
        sizes,
        ..Training::default()
    };
    let of_iteration =
        training.calls_of_iteration(&directory()).expect("the directory for recordings can be written");
    training.iterations = calls / of_iteration;
    training
}

fn measure(training: &Training) {
    let directory = directory();
    let (calls, writing) = timed(|| training.write(&directory).expect("recordings can be written"));
    if std::env::var_os("RANKCHECK_BENCH_FOLDED").is_some() {
        let ((), folding) = timed(|| {
            for file in files(&directory).expect("they are there") {
                rankcheck_recording::pack(&file, None).expect("it is whole");
                rankcheck_recording::folded::fold(&file, &file).expect("it was packed");
            }
        });
        println!("  files folded in {folding:.1?} by one thread");
    }
    let bytes: u64 = files(&directory)
        .expect("they are there")
        .iter()
        .map(|file| std::fs::metadata(file).expect("it is there").len())
        .sum();
    check(&directory, calls, training.ranks());
    println!("    written in {writing:.1?}, {:.2} bytes a call", bytes as f64 / calls as f64);
    std::fs::remove_dir_all(&directory).expect("it was written");
}

fn check(directory: &Path, calls: u64, ranks: u32) {
    let files = files(directory).expect("they are there");
    let ((mut world, mut sequences), reading) =
        timed(|| read_all(&files, ReadUntil::End).expect("they are whole"));
    let taken_out = match std::env::var_os("RANKCHECK_BENCH_APART") {
        Some(_) => Folding::Iterations,
        None => Folding::default(),
    };
    let (folded, folding) = timed(|| fold(&mut world, &mut sequences, taken_out));
    let left: u64 = sequences.iter().map(|sequence| sequence.symbols.len() as u64).sum();
    drop(sequences);
    println!(
        "  {ranks} ranks, {calls} calls: sequences in {reading:.2?} ({:.1} ns a call), {} folds in {folding:.2?}, \
         {left} calls left",
        reading.as_nanos() as f64 / calls as f64,
        folded.iterations.len(),
    );
    for copies in &folded.copies {
        println!("    {copies}");
    }
    for fold in &folded.iterations {
        println!("    {fold}");
    }
    let before = processor();
    let (recording, reading) = timed(|| read_folded(directory, taken_out).expect("it is a run"));
    let read_peak = peak();
    let (judged, judging) = timed(|| judge(recording, None).expect("it is not too long"));
    println!(
        "    whole check in {:.2?} ({:.2?} of processors): read, folded and lowered in {reading:.2?} ({} MiB), \
         {} operations judged in {judging:.2?}: {:?}; most memory {} MiB",
        reading + judging,
        processor() - before,
        read_peak / 1024,
        judged.steps,
        judged.verdict,
        peak() / 1024,
    );
}

/// The training that was recorded on two GPUs: times are the mean of twenty.
fn recorded() {
    let folders = Path::new(env!("CARGO_MANIFEST_DIR")).join("recordings/training");
    let entries = std::fs::read_dir(folders).expect("recordings are there");
    let mut folders: Vec<PathBuf> = entries.map(|entry| entry.expect("it can be read").path()).collect();
    folders.sort();
    for folder in folders {
        let bytes: u64 = files(&folder)
            .expect("they are there")
            .iter()
            .map(|file| std::fs::metadata(file).expect("it is there").len())
            .sum();
        let worked = |read: &dyn Fn() -> Recording| {
            let before = processor();
            for _ in 0..20 {
                let judged = judge(read(), None).expect("it is not too long");
                assert_eq!(judged.verdict, RunVerdict::Holds);
            }
            (processor() - before) / 20
        };
        let recording = read(&folder).expect("it is a run");
        let calls: u64 = recording.program.ranks.iter().map(|rank| rank.calls).sum();
        let gone: u64 = recording.folded.iterations.iter().map(|fold| fold.calls).sum();
        drop(recording);
        let folded = worked(&|| read(&folder).expect("it is a run"));
        let whole = worked(&|| read_folded(&folder, Folding::Nothing).expect("it is a run"));
        println!(
            "{}: {calls} calls in {bytes} bytes, {:.1} % folded; {:.1} ms of processors ({:.0} ns a call), whole {:.0} ms ({:.0} ns)",
            folder.file_name().unwrap_or_default().display(),
            100.0 * gone as f64 / calls as f64,
            folded.as_secs_f64() * 1000.0,
            folded.as_nanos() as f64 / calls as f64,
            whole.as_secs_f64() * 1000.0,
            whole.as_nanos() as f64 / calls as f64,
        );
    }
}

/// How long processors have worked for this process so far: other processes do not count.
fn processor() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // Behind the name, which ends with the last parenthesis: the 12th and 13th field, in hundredths of a second.
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields).split_whitespace();
    let ticks: u64 = fields.skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
    Duration::from_millis(ticks * 10)
}

/// The most memory that this process has used so far, in KiB.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().trim_end_matches("kB").trim().parse().ok()).unwrap_or(0)
}

fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let started = Instant::now();
    let result = work();
    (result, started.elapsed())
}
