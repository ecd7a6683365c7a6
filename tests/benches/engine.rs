//! Benchmarks of the engine: `cargo bench -p rankcheck-tests`. Figures, not tests: nothing here can fail a build.
#![expect(clippy::print_stdout, reason = "the figures are for people")]

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rankcheck::search::Bounds;
use rankcheck::search::explore::explore;
use rankcheck::search::naive;
use rankcheck::search::{Detail, Options, search};
use rankcheck_model::{
    CommOp, Config, MemoryKind, MemoryOp, Op, Operand, Rank, Resources, Source, StreamOp, ThreadOp,
};
use rankcheck_tests::jobs::{Evaluated, all_reduce, mesh};
use rankcheck_tests::script::Script;

/// The one that the command uses.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() {
    // `cargo bench -p rankcheck-tests -- pool` runs what has "pool" in its name.
    let wanted: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let run = |name: &str| wanted.is_empty() || wanted.iter().any(|word| name.contains(word.as_str()));
    if run("naive") {
        rounds(8, 3);
    }
    if run("collectives") {
        all_reduces(256, 1_000);
        all_reduces(1_024, 250);
        all_reduces(1_024, 500);
        all_reduces(1_024, 1_000);
    }
    if run("communicator") {
        all_reduces(64, 2_048);
    }
    if run("mesh-1024") {
        all_reduces_of_mesh(1_024, 128);
    }
    if run("mesh-65536") {
        all_reduces_of_mesh(65_536, 16);
    }
    if run("evaluated") {
        evaluated();
    }
    if run("pool") {
        pool_history();
    }
    if run("specs") {
        specs();
    }
    if run("reports") {
        reports();
    }
}

/// `steps` local steps, an all-reduce and, if asked, a synchronize, `rounds` times on each rank.
fn program(ranks: u32, rounds: u32, steps: u32, synchronize: bool) -> Arc<dyn Source> {
    let mut s = Script::new(ranks as usize);
    let (tp, x) = (s.name("tp"), s.name("x"));
    let (stream, label) = (s.name("default"), s.name("local"));
    let members: Arc<[Rank]> = (0..ranks).map(Rank).collect();
    for r in 0..ranks {
        let comm = s.push(
            r,
            0,
            Op::Comm(CommOp::Init { name: tp, members: Arc::clone(&members), children: Resources::Own }),
        );
        let x = s.push(
            r,
            0,
            Op::Memory(MemoryOp::Alloc { name: x, len_bytes: 4 << 20, memory: MemoryKind::Nccl }),
        );
        let call = all_reduce(comm, x, stream);
        for _ in 0..rounds {
            for _ in 0..steps {
                s.push(r, 0, Op::Thread(ThreadOp::Step { label }));
            }
            s.push(r, 0, Op::Collective(Arc::new(call.clone())));
            if synchronize {
                s.push(r, 0, Op::Stream(StreamOp::Synchronize { what: Operand::Stream(stream) }));
            }
        }
    }
    Arc::new(s)
}

fn rounds(ranks: u32, rounds: u32) {
    let source = program(ranks, rounds, 3, true);
    let started = Instant::now();
    let reduced = explore(&source, Config::new(ranks), &Bounds::default()).expect("a script evaluates");
    println!(
        "{ranks} ranks x {rounds} x (3 steps, all_reduce, synchronize): reduced {} state in {:?}",
        reduced.states,
        started.elapsed()
    );
    let started = Instant::now();
    let naive = naive::explore(&source, Config::new(ranks), &Bounds::default()).expect("a script evaluates");
    println!("  naive {} states in {:?}{}", naive.states, started.elapsed(), bound(&naive));
    let same = reduced.outcomes.keys().eq(naive.outcomes.keys());
    println!("  outcomes {}: {}", if same { "agree" } else { "DIFFER" }, reduced.outcomes.len());
}

fn bound(exploration: &rankcheck::search::explore::Exploration) -> String {
    exploration.bound.as_ref().map_or_else(String::new, |bound| format!(" ({bound})"))
}

fn all_reduces(ranks: u32, count: u32) {
    let source: Arc<dyn Source> = Arc::new(Evaluated::new(program(ranks, count, 0, false), ranks));
    one_run(&format!("{ranks} ranks x {count} all_reduces"), &source, (ranks, count));
}

/// One all-reduce after another, on the communicators of a mesh in turn.
fn all_reduces_of_mesh(ranks: u32, count: u32) {
    one_run(&format!("mesh of {ranks} ranks x {count} all_reduces"), &mesh(ranks, count), (ranks, count));
}

/// Explores a program without choices.
fn one_run(what: &str, source: &Arc<dyn Source>, (ranks, count): (u32, u32)) {
    let mut states = 0;
    let before = cpu_seconds();
    let times = Times::of(|| {
        let run = explore(source, Config::new(ranks), &Bounds::default()).expect("a script evaluates");
        states = run.states;
    });
    let processor = (cpu_seconds() - before) / f64::from(Times::RUNS);
    let operations = f64::from(ranks) * f64::from(count);
    println!(
        "{what}: {times}, {:.2} M operations/s, {processor:.2} s of processor time, {:.2} M operations/s, \
         {states} state, peak {} MiB",
        operations / times.median.as_secs_f64() / 1e6,
        operations / processor / 1e6,
        peak_mib()
    );
}

/// Processor time of this process so far, from the kernel, which counts hundredths.
fn cpu_seconds() -> f64 {
    let status = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = status.rsplit(')').next().unwrap_or_default().split_whitespace();
    // Those of its threads, in user and in system mode.
    fields.skip(11).take(2).filter_map(|ticks| ticks.parse::<f64>().ok()).sum::<f64>() / 100.0
}

/// What one thing took, done several times: machines are not equally fast all the time.
struct Times {
    least: Duration,
    median: Duration,
    most: Duration,
}

impl Times {
    const RUNS: u32 = 5;

    fn of(mut what: impl FnMut()) -> Self {
        let mut taken: Vec<Duration> = (0..Self::RUNS)
            .map(|_| {
                let started = Instant::now();
                what();
                started.elapsed()
            })
            .collect();
        taken.sort_unstable();
        Self { least: taken[0], median: taken[2], most: taken[4] }
    }
}

impl std::fmt::Display for Times {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { least, median, most } = self;
        write!(f, "{median:.2?} ({least:.2?} to {most:.2?})")
    }
}

/// Peak resident memory of this process, from the kernel.
fn peak_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmHWM:"));
    let kib = line.and_then(|line| line.split_whitespace().nth(1)).and_then(|kib| kib.parse::<u64>().ok());
    kib.unwrap_or(0) / 1024
}

fn pool_history() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/pool_history.star");
    let spec = rankcheck::spec::load(&path).expect("the benchmark's spec is good");
    let mut explained = None;
    let times = Times::of(|| {
        explained = Some(search(&spec, &spec.checks[0], &Options::default()).expect("it evaluates"));
    });
    let explained = explained.expect("searched five times");
    let run = explained.run();
    println!(
        "8 ranks, 20 pool operations each, all reuse answers, every single fault: {} in {times}, {} states, \
         {} executions, {:.3} M states/s",
        run.verdict.word(),
        run.states,
        run.executions,
        run.states as f64 / times.median.as_secs_f64() / 1e6
    );
}

/// What a report costs beside its verdict: brackets and causes are tried, repairs are not looked for.
fn reports() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/reports.star");
    let spec = rankcheck::spec::load(&path).expect("the benchmark's spec is good");
    for check in &spec.checks {
        let times = |detail: Detail| {
            let options = Options::telling(detail);
            Times::of(|| drop(search(&spec, check, &options).expect("it evaluates")))
        };
        let (verdict, report) = (times(Detail::Verdict), times(Detail::Reason));
        let ratio = report.median.as_secs_f64() / verdict.median.as_secs_f64();
        println!("{} of 16 ranks: verdict {verdict}, report {report}, {ratio:.1} times as long", check.name);
    }
}

/// Large jobs as specs: most of the time goes into the evaluation of the program of each rank.
fn evaluated() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/meshes.star");
    let spec = rankcheck::spec::load(&file).expect("a good spec");
    for check in &spec.checks {
        let before = cpu_seconds();
        search(&spec, check, &Options::default()).expect("it evaluates");
        let processor = cpu_seconds() - before;
        println!("{}, evaluated: {processor:.2} s of processor time, peak {} MiB", check.name, peak_mib());
    }
}

fn specs() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../specs");
    let (files, _) = rankcheck::spec::spec_files(&[root]);
    let started = Instant::now();
    let mut checks = 0;
    for file in &files {
        let spec = rankcheck::spec::load(file).expect("a good spec");
        for check in &spec.checks {
            search(&spec, check, &Options::default()).expect("it evaluates");
            checks += 1;
        }
    }
    println!("{} files, {checks} checks: {:?} on one core", files.len(), started.elapsed());
}
