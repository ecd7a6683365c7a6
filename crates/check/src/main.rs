//! The command `rankcheck`: arguments, output, exit codes. The only file that prints.
//!
//! Exit codes: 0 all as expected, 1 some not, 2 bad spec or usage, 3 inconclusive, 4 no device to run on.
//! `record` ends with the code of what it runs; 125 if it cannot record, 127 if the command does not start.
#![deny(unsafe_code)]
#![expect(clippy::print_stdout, reason = "this is the file that prints")]

use std::collections::BTreeMap;
use std::io::{IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use clap::{Parser, Subcommand, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use miette::Diagnostic;
use rankcheck::command::record::RecordError;
use rankcheck::device::diff::{DiffEvent, Selection, Settings, Summary};
use rankcheck::device::testbed::Served;
use rankcheck::device::{contract, observation, observed_rules, testbed};
use rankcheck::runs::judge::Judged;
use rankcheck::search::{Bounds, Detail, Explained, Options, search};
use rankcheck::spec::{Spec, SpecError};
use rankcheck::{command, device, report, rules, runs, spec, trace};
use rankcheck_model::Platform;
use rankcheck_real::case::Comms;
use rankcheck_real::library;

/// Finds the hang before your cluster does: checks specs of multi-GPU communication protocols.
#[derive(Debug, Parser)]
#[command(
    version,
    after_help = "Exit codes: 0 all as expected · 1 some not · 2 bad spec or usage · 3 inconclusive · \
                  4 a GPU, a library or the like is missing"
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Check spec files, folders of them, and recorded runs.
    Check(CheckArguments),
    /// Tell where a recorded run leaves the program of a spec.
    Conform {
        /// A spec file.
        spec: PathBuf,
        /// The folder of a recorded run.
        folder: PathBuf,
        /// Only checks whose name contains this.
        #[arg(long, value_name = "NAME")]
        check: Option<String>,
    },
    /// Write a recorded run as a timeline, with what is found in it, for Perfetto.
    Timeline {
        /// The folder of a recorded run.
        folder: PathBuf,
        /// Where to.
        #[arg(short, long, default_value = "timeline.json")]
        output: PathBuf,
    },
    /// Run a recorded trace again and tell what happens.
    Replay {
        /// A file written by `check --trace-out`.
        trace: PathBuf,
        /// On GPUs instead of in the model.
        #[arg(long)]
        gpu: bool,
        /// Runs after which a trace counts as not reproduced on GPUs.
        #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
        tries: u32,
    },
    /// Run checks on GPUs and compare with what the model predicts.
    Diff(DiffArguments),
    /// Run the rules on GPUs and tell what this NCCL does otherwise than others that were observed.
    Contract {
        /// Append what was observed to observations.jsonl in this folder.
        #[arg(long, value_name = "DIR")]
        record: Option<PathBuf>,
        /// The NCCL library to use.
        #[arg(long, value_name = "PATH")]
        nccl: Option<PathBuf>,
    },
    /// Show the driver, GPUs and NCCL of this machine, and what is missing for what.
    Doctor,
    /// Work on the observations of specs/observations; from the root of the repository.
    #[command(subcommand)]
    Observe(ObserveCommand),
    /// Show what devices did when rules were broken, or write it into specs/rules; from the root of the repository.
    Rules {
        /// Write it into the texts of the rules.
        #[arg(long)]
        write: bool,
    },
    /// One rank of a job, started by the command itself.
    #[command(hide = true)]
    Worker {
        /// What the coordinator says.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Print a rule: what it says, its source, what happens when it is broken.
    Explain {
        /// For example WIN-2.
        rule: String,
    },
    /// Run a command and record what its processes call of NCCL and CUDA. Ends with the command's exit code;
    /// 125 if it cannot record, 127 if the command does not start.
    Record {
        /// The folder of the recording; `recording-<date>` if not given. It must be empty.
        #[arg(long, value_name = "DIR")]
        out: Option<PathBuf>,
        /// The command, for example `torchrun --nproc-per-node 2 train.py`.
        #[arg(required = true, trailing_var_arg = true)]
        command: Vec<std::ffi::OsString>,
    },
    /// List the quotes of code that no longer stand where the specs say.
    Drift {
        /// Folder of the repository that the specs describe.
        #[arg(long)]
        repo: PathBuf,
        /// Spec files or folders.
        #[arg(required = true)]
        paths: Vec<PathBuf>,
    },
}

#[derive(Debug, Subcommand)]
enum ObserveCommand {
    /// File what a run recorded.
    Unpack {
        /// A file written by `--record`.
        file: PathBuf,
    },
    /// List observations whose program is no longer the recorded one.
    Stale {
        /// Write the list to specs/observations/stale.txt.
        #[arg(long)]
        write: bool,
    },
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum CommsArgument {
    /// New communicators for each run.
    Fresh,
    /// Communicators that have served before.
    Warm,
    /// One run of each kind.
    Both,
}

#[derive(Debug, clap::Args)]
struct DiffArguments {
    /// Spec files (*.star), or folders of them.
    #[arg(required = true)]
    paths: Vec<PathBuf>,
    /// Runs of each check; answers that luck gives are forced in turn.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// Append what was observed to observations.jsonl in this folder.
    #[arg(long, value_name = "DIR")]
    record: Option<PathBuf>,
    /// Begin no check after this time, for example 480s or 8m.
    #[arg(long, value_parser = duration)]
    budget: Option<Duration>,
    /// The NCCL library to use.
    #[arg(long, value_name = "PATH")]
    nccl: Option<PathBuf>,
    /// Only checks whose name contains this.
    #[arg(long, value_name = "NAME")]
    only: Option<String>,
    /// Leave out checks of more ranks; the number of GPUs if not given.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    ranks_at_most: Option<u32>,
    /// Leave out what the folder of --record has already.
    #[arg(long, requires = "record")]
    resume: bool,
    /// New communicators, used ones, or both.
    #[arg(long, value_enum, default_value = "fresh")]
    comms: CommsArgument,
    /// How long no rank may make progress before a run counts as hung.
    #[arg(long, default_value = "2s", value_parser = duration)]
    deadline: Duration,
}

/// A duration as people write it: `480s`, `8m`, `1.5`.
fn duration(text: &str) -> Result<Duration, String> {
    let units = [("ms", 0.001), ("s", 1.0), ("m", 60.0)];
    let unit = units.iter().find_map(|(unit, seconds)| Some((text.strip_suffix(unit)?, *seconds)));
    let (number, unit) = unit.unwrap_or((text, 1.0));
    let seconds: f64 = number.parse().map_err(|_| "a duration is written 500ms, 480s or 8m".to_owned())?;
    let positive = seconds > 0.0 && seconds.is_finite();
    let duration = positive.then(|| Duration::try_from_secs_f64(seconds * unit).ok()).flatten();
    duration.ok_or_else(|| "a duration is positive".to_owned())
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Format {
    /// For people.
    Text,
    /// For tools; see docs/json-report.md.
    Json,
}

#[derive(Debug, clap::Args)]
struct CheckArguments {
    /// Spec files (*.star), folders of them, and folders of recorded runs.
    #[arg(required = true)]
    paths: Vec<PathBuf>,
    /// How to report.
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
    /// Check on this NCCL version only: 2.27.7, 2.28.9 or 2.30.7.
    #[arg(long)]
    platform: Option<Platform>,
    /// Explore every interleaving, without reductions: the oracle. Slow.
    #[arg(long)]
    naive: bool,
    /// Only checks whose name contains this.
    #[arg(long, value_name = "NAME")]
    only: Option<String>,
    /// Give up on a check beyond this many states.
    #[arg(long, default_value_t = Bounds::default().states)]
    max_states: u64,
    /// Give up on a run beyond this many choices.
    #[arg(long, default_value_t = Bounds::default().choices)]
    max_choices: u32,
    /// Give up on a run beyond this many operations.
    #[arg(long, default_value_t = Bounds::default().steps)]
    max_steps: u64,
    /// Give up on an exploration after this many seconds.
    #[arg(long, allow_negative_numbers = true)]
    max_seconds: Option<f64>,
    /// Checks run at the same time; the number of cores if not given.
    #[arg(long)]
    jobs: Option<usize>,
    /// Write a trace file for each failing check into this folder.
    #[arg(long, value_name = "DIR")]
    trace_out: Option<PathBuf>,
    /// Print unexpected and inconclusive checks only.
    #[arg(long, short)]
    quiet: bool,
}

/// Exploration copies states all the time; this allocator makes it a third faster.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let code = match arguments.command {
        Command::Check(arguments) => check(&arguments),
        Command::Conform { spec, folder, check } => conform(&spec, &folder, check.as_deref()),
        Command::Timeline { folder, output } => timeline(&folder, &output),
        Command::Replay { trace, gpu: false, .. } => replay(&trace),
        Command::Replay { trace, gpu: true, tries } => replay_on_gpus(&trace, tries),
        Command::Diff(arguments) => diff(&arguments),
        Command::Contract { record, nccl } => contract(record, nccl),
        Command::Doctor => doctor(),
        Command::Observe(ObserveCommand::Unpack { file }) => unpack(&file),
        Command::Observe(ObserveCommand::Stale { write }) => stale(write),
        Command::Rules { write } => observed_rules(write),
        Command::Worker { arguments } => work(&arguments),
        Command::Explain { rule } => explain(&rule),
        Command::Record { out, command } => record(out, &command),
        Command::Drift { repo, paths } => drift(&repo, &paths),
    };
    ExitCode::from(code)
}

/// Prints an error as a diagnostic and returns the exit code for bad specs and usage.
fn bad(error: &dyn Diagnostic) -> u8 {
    let theme = if std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none() {
        miette::GraphicalTheme::unicode()
    } else {
        miette::GraphicalTheme::unicode_nocolor()
    };
    let mut text = String::new();
    let handler = miette::GraphicalReportHandler::new_themed(theme).with_width(100);
    if handler.render_report(&mut text, error).is_err() {
        text = error.to_string();
    }
    let _ = writeln!(std::io::stderr(), "{text}");
    2
}

fn usage(message: impl std::fmt::Display) -> u8 {
    let _ = writeln!(std::io::stderr(), "error: {message}");
    2
}

/// Says what is missing and returns the exit code for it.
fn missing(missing: &testbed::Missing) -> u8 {
    bad(missing);
    4
}

/// A file, and what came out of each of its checks that was wanted.
type Results = Vec<Result<Explained, SpecError>>;

fn check(arguments: &CheckArguments) -> u8 {
    let (folders, paths): (Vec<PathBuf>, Vec<PathBuf>) =
        arguments.paths.iter().cloned().partition(|path| runs::is_recording(path));
    let mut judged = Vec::new();
    for folder in &folders {
        match runs::judge::read(folder).and_then(|run| runs::judge::judge(run, arguments.platform)) {
            Ok(run) => judged.push(run),
            Err(error) => return usage(error),
        }
    }
    if paths.is_empty() && !judged.is_empty() {
        return print_all(&[], &judged, arguments);
    }
    check_specs(&paths, &judged, arguments)
}

/// How much is told of a failure: a report wants to know why, a trace file what is done.
fn told(arguments: &CheckArguments, quiet: bool) -> Detail {
    match (arguments.format, &arguments.trace_out) {
        (Format::Text, _) if !quiet => Detail::Reason,
        (Format::Text | Format::Json, Some(_)) => Detail::Run,
        (Format::Text | Format::Json, None) => Detail::Verdict,
    }
}

fn check_specs(paths: &[PathBuf], judged: &[Judged], arguments: &CheckArguments) -> u8 {
    let paths = match command::spec_files(paths) {
        Ok(paths) => paths,
        Err(error) => return usage(error),
    };
    let mut files = Vec::new();
    let mut broken = 0;
    for path in &paths {
        match spec::load(path) {
            // A library has no checks of its own; it is checked through whoever loads it.
            Ok(spec) => files.push(spec),
            Err(error) => broken = bad(&error),
        }
    }
    if broken != 0 {
        return broken;
    }
    if files.iter().all(|spec| spec.checks.is_empty()) {
        return usage("none of these files has a check; say check(name, program, expect = …) in one of them");
    }
    let wanted = |name: &str| arguments.only.as_ref().is_none_or(|part| name.contains(part.as_str()));
    if !files.iter().flat_map(|spec| &spec.checks).any(|check| wanted(&check.name)) {
        return usage("no check has a name like that (--only)");
    }
    let seconds = arguments.max_seconds.unwrap_or(1.0);
    if seconds <= 0.0 || !seconds.is_finite() {
        return usage("--max-seconds takes a positive number of seconds");
    }
    if arguments.naive && arguments.trace_out.is_some() {
        return usage("--trace-out needs the reduced exploration; leave --naive out");
    }
    let options = Options {
        platform: arguments.platform,
        naive: arguments.naive,
        bounds: Bounds {
            states: arguments.max_states,
            choices: arguments.max_choices,
            time: arguments.max_seconds.map(Duration::from_secs_f64),
            steps: arguments.max_steps,
        },
        stated: told(arguments, arguments.quiet),
        unstated: told(arguments, false),
    };
    let results = run_all(&files, arguments, &options);
    print_all(&results, judged, arguments)
}

fn run_all(specs: &[Spec], arguments: &CheckArguments, options: &Options) -> Results {
    let wanted = |name: &str| arguments.only.as_ref().is_none_or(|part| name.contains(part.as_str()));
    let checks = specs.iter().flat_map(|spec| spec.checks.iter().map(move |check| (spec, check)));
    let jobs: Vec<_> = checks.filter(|(_, check)| wanted(&check.name)).collect();
    let results: Mutex<BTreeMap<usize, Result<Explained, SpecError>>> = Mutex::default();
    let next = AtomicUsize::new(0);
    let threads = arguments
        .jobs
        .unwrap_or_else(|| std::thread::available_parallelism().map_or(1, std::num::NonZero::get))
        .clamp(1, jobs.len().max(1));
    let bar = progress(jobs.len());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let nth = next.fetch_add(1, Ordering::Relaxed);
                    let Some((spec, check)) = jobs.get(nth) else { break };
                    bar.set_message(check.name.clone());
                    let result = search(spec, check, options);
                    bar.inc(1);
                    results.lock().unwrap_or_else(PoisonError::into_inner).insert(nth, result);
                }
            });
        }
    });
    bar.finish_and_clear();
    results.into_inner().unwrap_or_else(PoisonError::into_inner).into_values().collect()
}

/// A bar that shows itself only where there is a terminal and the run takes longer than a second.
fn progress(checks: usize) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(checks as u64);
    let style = ProgressStyle::with_template("{elapsed:>4} {bar:24} {pos}/{len} {wide_msg}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.enable_steady_tick(Duration::from_secs(1));
    bar
}

fn print_all(results: &[Result<Explained, SpecError>], judged: &[Judged], arguments: &CheckArguments) -> u8 {
    let (mut good, mut unexpected, mut unknown) = (0, 0, 0);
    let mut out = std::io::stdout().lock();
    for result in results {
        let explained = match result {
            Ok(explained) => explained,
            Err(error) => return bad(error),
        };
        if explained.unexpected.is_some() {
            unexpected += 1;
        } else if explained.inconclusive() {
            unknown += 1;
        } else {
            good += 1;
        }
        if let (Some(folder), Some(trace)) = (&arguments.trace_out, trace::Trace::of(explained))
            && let Err(message) = command::write_trace(folder, &trace)
        {
            return usage(message);
        }
        let shown = !arguments.quiet || explained.unexpected.is_some() || explained.inconclusive();
        if matches!(arguments.format, Format::Text) && shown {
            let _ = writeln!(out, "{}\n", report::text(explained));
        }
    }
    for run in judged {
        match run.verdict {
            runs::judge::RunVerdict::Holds => good += 1,
            runs::judge::RunVerdict::Fails | runs::judge::RunVerdict::Hangs => unexpected += 1,
            runs::judge::RunVerdict::Unknown => unknown += 1,
        }
        let shown = !arguments.quiet || run.verdict != runs::judge::RunVerdict::Holds;
        if matches!(arguments.format, Format::Text) && shown {
            let _ = writeln!(out, "{}\n", runs::report::text(run));
        }
    }
    match arguments.format {
        Format::Text => {
            let _ = writeln!(out, "{}", report::summary(good, unexpected, unknown));
        }
        Format::Json => {
            let all = results.iter().filter_map(|result| result.as_ref().ok());
            match serde_json::to_string_pretty(&report::json(all, judged)) {
                Ok(text) => {
                    let _ = writeln!(out, "{text}");
                }
                Err(error) => return usage(error),
            }
        }
    }
    match (unexpected, unknown) {
        (0, 0) => 0,
        (0, _) => 3,
        _ => 1,
    }
}

fn replay(path: &Path) -> u8 {
    match command::replay(path) {
        Ok(text) => {
            println!("{text}");
            0
        }
        Err(error) => bad(&*error),
    }
}

fn conform(spec: &Path, folder: &Path, only: Option<&str>) -> u8 {
    let compared = match runs::conformance::conform(spec, folder, only) {
        Ok(compared) => compared,
        Err(error) => return usage(error),
    };
    for one in &compared {
        println!("{}", one.text());
    }
    match compared.iter().filter_map(|one| one.leaves.as_ref()).collect::<Vec<_>>()[..] {
        [] => usage("no check of this spec is for as many ranks as were recorded"),
        ref all if all.iter().any(|leaves| leaves.is_some()) => 1,
        _ => 0,
    }
}

fn timeline(folder: &Path, output: &Path) -> u8 {
    match runs::timeline::write_file(folder, output) {
        Ok(()) => {
            println!("{}", output.display());
            0
        }
        Err(error) => usage(error),
    }
}

fn explain(rule: &str) -> u8 {
    match rules::text_of(rule) {
        Some(text) => {
            println!("{text}");
            0
        }
        None => usage(rules::unknown(rule)),
    }
}

fn drift(repo: &Path, paths: &[PathBuf]) -> u8 {
    match command::drift(repo, paths) {
        Ok(drift) => {
            println!("{}", drift.text);
            u8::from(drift.moved > 0)
        }
        Err(error) => bad(&*error),
    }
}

/// Has the loader find this NCCL library first, in this process and in all that it starts: a library that was
/// loaded once cannot be replaced, so the command starts over.
fn with_nccl(nccl: Option<&Path>) -> Result<(), String> {
    use std::os::unix::process::CommandExt as _;
    const VARIABLE: &str = "LD_LIBRARY_PATH";
    let Some(nccl) = nccl else { return Ok(()) };
    let wrong = |error: std::io::Error| format!("{} (--nccl): {error}", nccl.display());
    let named = |error: rankcheck_real::Error| {
        let rankcheck_real::Error::File { path, message } = &error else { return error.to_string() };
        format!("{path} (--nccl): {message}")
    };
    let folder = library::folder_with(nccl).map_err(named)?;
    let path = std::env::var(VARIABLE).unwrap_or_default();
    if path.split(':').next().is_some_and(|first| Path::new(first) == folder) {
        return Ok(());
    }
    let path = format!("{}:{path}", folder.display());
    let program = std::env::current_exe().map_err(wrong)?;
    let mut again = std::process::Command::new(program);
    again.args(std::env::args_os().skip(1)).env(VARIABLE, path.trim_end_matches(':'));
    Err(wrong(again.exec()))
}

/// Standard output is the command's; what this one has to say goes to the other.
fn record(out: Option<PathBuf>, command: &[std::ffi::OsString]) -> u8 {
    let recorded = match command::record::record(out, command) {
        Ok(recorded) => recorded,
        Err(error) => {
            usage(&error);
            return if matches!(error, RecordError::Start { .. }) { 127 } else { 125 };
        }
    };
    let mut say = std::io::stderr();
    for left in &recorded.left {
        let _ = writeln!(say, "rankcheck: {left}");
    }
    if recorded.lost > 0 {
        let _ = writeln!(say, "rankcheck: the disk was full: {} events are missing", recorded.lost);
    }
    let folder = recorded.folder.display();
    let _ = if recorded.processes == 0 {
        writeln!(
            say,
            "rankcheck: nothing was recorded: no process called NCCL or CUDA through shared libraries"
        )
    } else {
        writeln!(
            say,
            "rankcheck: recorded {} processes, {} calls, {} bytes in {folder}; next: rankcheck check {folder}",
            recorded.processes, recorded.calls, recorded.bytes
        )
    };
    recorded.code
}

fn load_all(paths: &[PathBuf]) -> Result<Vec<Spec>, u8> {
    let paths = command::spec_files(paths).map_err(usage)?;
    let mut specs = Vec::new();
    let mut broken = None;
    for path in &paths {
        match spec::load(path) {
            Ok(spec) => specs.push(spec),
            Err(error) => broken = Some(bad(&error)),
        }
    }
    broken.map_or(Ok(specs), Err)
}

/// Serves rank 0 if a launcher started this process as another one; its exit code, if so.
fn served() -> Option<u8> {
    match testbed::serve_as_agent() {
        Ok(Served::NotAsked) => None,
        Ok(Served::ToTheEnd) => Some(0),
        Err(error) => Some(not_started(&error)),
    }
}

fn work(arguments: &[String]) -> u8 {
    testbed::work(arguments).map_or_else(|error| not_started(&error), |()| 0)
}

/// Workers cannot run here.
fn not_started(error: &rankcheck_real::Error) -> u8 {
    let _ = writeln!(std::io::stderr(), "error: {error}");
    4
}

/// Runs checks on the device, with one line of progress on a terminal and a row for each check that is over.
fn run_on_device(specs: &[Spec], arguments: &DiffArguments, quiet: Quiet) -> Result<Summary, u8> {
    let devices = testbed::find();
    let gpus = devices.ranks();
    let ranks_at_most = arguments.ranks_at_most.unwrap_or(gpus.max(2));
    let machine = devices.require(ranks_at_most.min(gpus.max(2))).map_err(|error| missing(&error))?;
    let comms = match arguments.comms {
        CommsArgument::Fresh => vec![Comms::Fresh],
        CommsArgument::Warm => vec![Comms::Warm],
        CommsArgument::Both => vec![Comms::Fresh, Comms::Warm],
    };
    let wanted = Selection { only: arguments.only.clone(), ranks_at_most: ranks_at_most.min(gpus), comms };
    let plan = device::diff::plan(specs, &wanted);
    let Some(most) = plan.items.iter().map(device::diff::PlannedRun::ranks).max() else {
        return Err(usage("no check fits: none has a name like that (--only), or all need more GPUs"));
    };
    let observed = match &arguments.record {
        Some(folder) if arguments.resume && folder.join(observation::FILE_NAME).exists() => {
            observation::read(&folder.join(observation::FILE_NAME)).map_err(usage)?
        }
        Some(_) | None => Vec::new(),
    };
    let platform = observation::platform_of(&machine.nccl).unwrap_or_else(|| {
        let default = Platform::default();
        let _ = writeln!(std::io::stderr(), "NCCL {} is not modelled; compared with {default}", machine.nccl);
        default
    });
    println!("{}, driver {}, NCCL {}", machine.gpu, machine.driver, machine.nccl);
    let settings = Settings {
        runs: arguments.runs,
        budget: arguments.budget,
        observe: arguments.record.clone(),
        observed,
        machine,
        platform,
        command: command_line(),
        deadline: arguments.deadline,
    };
    let mut runner = testbed::start(&devices, most).map_err(|error| not_started(&error))?;
    let bar = progress(plan.items.len());
    let summary = device::diff::run(&mut *runner, &plan, &settings, &mut |event| match event {
        DiffEvent::Begins(title) => {
            bar.inc(1);
            bar.set_message(title.to_owned());
        }
        DiffEvent::Over(row) => {
            if quiet == Quiet::No || row.disagrees() {
                bar.suspend(|| println!("{}", row.text()));
            }
        }
    });
    bar.finish_and_clear();
    summary.map_err(|error| bad(&error))
}

/// The command as somebody else could give it: without the folders of this machine.
fn command_line() -> String {
    let name = |word: String| match Path::new(&word).file_name() {
        Some(name) if Path::new(&word).is_absolute() => name.to_string_lossy().into_owned(),
        Some(_) | None => word,
    };
    let words: Vec<String> = std::env::args().skip(1).map(name).collect();
    format!("rankcheck {}", words.join(" "))
}

/// Whether rows that agree are left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Quiet {
    Yes,
    No,
}

fn diff(arguments: &DiffArguments) -> u8 {
    if let Err(message) = with_nccl(arguments.nccl.as_deref()) {
        return usage(message);
    }
    if let Some(code) = served() {
        return code;
    }
    let specs = match load_all(&arguments.paths) {
        Ok(specs) => specs,
        Err(code) => return code,
    };
    match run_on_device(&specs, arguments, Quiet::No) {
        Ok(summary) => {
            println!("{}", summary.text());
            summary.exit_code()
        }
        Err(code) => code,
    }
}

fn contract(record: Option<PathBuf>, nccl: Option<PathBuf>) -> u8 {
    /// The whole table, at most.
    const BUDGET: Duration = Duration::from_secs(600);
    let arguments = DiffArguments {
        paths: vec![PathBuf::from("specs/rules")],
        runs: 1,
        record,
        budget: Some(BUDGET),
        nccl,
        only: None,
        ranks_at_most: None,
        resume: false,
        comms: CommsArgument::Fresh,
        deadline: Duration::from_secs(2),
    };
    if let Err(message) = with_nccl(arguments.nccl.as_deref()) {
        return usage(message);
    }
    if let Some(code) = served() {
        return code;
    }
    let specs = match load_all(&arguments.paths) {
        Ok(specs) => specs,
        Err(code) => return code,
    };
    let summary = match run_on_device(&specs, &arguments, Quiet::Yes) {
        Ok(summary) => summary,
        Err(code) => return code,
    };
    println!("{}", summary.text());
    match contract::changes(&summary.observations, Path::new(observation::FOLDER)) {
        Ok(changed) => println!("{}", contract::text(&changed)),
        Err(error) => return usage(error),
    }
    summary.exit_code()
}

fn doctor() -> u8 {
    let devices = testbed::find();
    print!("{}", devices.text());
    if devices.require(2).is_ok() { 0 } else { 4 }
}

fn replay_on_gpus(path: &Path, tries: u32) -> u8 {
    if let Some(code) = served() {
        return code;
    }
    let ranks = match device::reproduce::ranks(path) {
        Ok(ranks) => ranks,
        Err(error) => return bad(&*error),
    };
    let devices = testbed::find();
    if let Err(error) = devices.require(ranks) {
        return missing(&error);
    }
    let mut runner = match testbed::start(&devices, ranks) {
        Ok(runner) => runner,
        Err(error) => return not_started(&error),
    };
    match device::reproduce::reproduce(&mut *runner, path, tries, Duration::from_secs(2)) {
        Ok(reproduced) => {
            println!("{}", reproduced.text());
            reproduced.exit_code()
        }
        Err(error) => bad(&*error),
    }
}

fn unpack(file: &Path) -> u8 {
    match observation::unpack(file, Path::new(observation::FOLDER)) {
        Ok(changed) => {
            for (path, count) in changed {
                println!("{}: {count}", path.display());
            }
            0
        }
        Err(error) => usage(error),
    }
}

fn stale(write: bool) -> u8 {
    let kept = match observation::kept(Path::new(observation::FOLDER)) {
        Ok(kept) => kept,
        Err(error) => return bad(&error),
    };
    let list = observation::stale_list(&kept);
    if write {
        let path = Path::new(observation::FOLDER).join(observation::STALE);
        if let Err(error) = std::fs::write(&path, &list) {
            return usage(format!("{}: {error}", path.display()));
        }
    }
    print!("{list}");
    println!("{} of {} observations are stale", list.lines().count(), kept.len());
    0
}

fn observed_rules(write: bool) -> u8 {
    let kept = match observation::kept(Path::new(observation::FOLDER)) {
        Ok(kept) => kept,
        Err(error) => return bad(&error),
    };
    let lines = observed_rules::lines(&kept);
    if write {
        return match observed_rules::write(Path::new("specs/rules"), &lines) {
            Ok(changed) => {
                println!("{changed} files changed");
                0
            }
            Err(error) => usage(error),
        };
    }
    for (rule, lines) in &lines {
        println!("{rule}");
        for line in lines {
            println!("  {}", line.trim_start_matches("- "));
        }
    }
    0
}
