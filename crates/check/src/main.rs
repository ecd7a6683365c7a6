//! The command `rankcheck`: arguments, output, exit codes. The only file that prints.
//!
//! Exit codes: 0 all as expected, 1 some not, 2 bad spec or usage, 3 inconclusive.
#![deny(unsafe_code)]
#![expect(clippy::print_stdout, reason = "this is the file that prints")]

use std::collections::BTreeMap;
use std::io::{IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use clap::{Parser, Subcommand, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use miette::Diagnostic;
use rankcheck::explore::Bounds;
use rankcheck::spec::{CheckKind, Spec, SpecError};
use rankcheck::verify::{Checked, Options, Verdict};
use rankcheck::{command, report, rules, spec, trace, verify};
use rankcheck_model::{Platform, Source};

/// Finds the hang before your cluster does: checks specs of multi-GPU communication protocols.
#[derive(Debug, Parser)]
#[command(
    version,
    after_help = "Exit codes: 0 all as expected · 1 some not · 2 bad spec or usage · 3 inconclusive"
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Check spec files, and folders of them.
    Check(CheckArguments),
    /// Run a recorded trace again and tell what happens.
    Replay {
        /// A file written by `check --trace-out`.
        trace: PathBuf,
    },
    /// Print a rule: what it says, its source, what happens when it is broken.
    Explain {
        /// For example WIN-2.
        rule: String,
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

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Format {
    /// For people.
    Text,
    /// For tools; see docs/json-report.md.
    Json,
}

#[derive(Debug, clap::Args)]
struct CheckArguments {
    /// Spec files (*.star), or folders of them.
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
        Command::Replay { trace } => replay(&trace),
        Command::Explain { rule } => explain(&rule),
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

/// Everything that was read and run for one file.
struct File {
    spec: Spec,
    checked: Vec<Option<Result<Checked, SpecError>>>,
}

fn check(arguments: &CheckArguments) -> u8 {
    let paths = match command::spec_files(&arguments.paths) {
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
    };
    let files = run_all(files, arguments, &options);
    print_all(&files, arguments, &options)
}

fn run_all(specs: Vec<Spec>, arguments: &CheckArguments, options: &Options) -> Vec<File> {
    let wanted = |name: &str| arguments.only.as_ref().is_none_or(|part| name.contains(part.as_str()));
    let jobs: Vec<(usize, usize)> = specs
        .iter()
        .enumerate()
        .flat_map(|(f, spec)| (0..spec.checks.len()).map(move |c| (f, c)))
        .filter(|(f, c)| wanted(&specs[*f].checks[*c].name))
        .collect();
    let results: Mutex<BTreeMap<(usize, usize), Result<Checked, SpecError>>> = Mutex::default();
    let next = AtomicUsize::new(0);
    let threads = arguments
        .jobs
        .unwrap_or_else(|| std::thread::available_parallelism().map_or(1, std::num::NonZero::get))
        .clamp(1, jobs.len().max(1));
    let bar = progress(jobs.len());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some((f, c)) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let check = &specs[*f].checks[*c];
                    bar.set_message(check.name.clone());
                    let result = verify::verify(&specs[*f], check, options);
                    bar.inc(1);
                    results.lock().unwrap_or_else(PoisonError::into_inner).insert((*f, *c), result);
                }
            });
        }
    });
    bar.finish_and_clear();
    let mut results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    specs
        .into_iter()
        .enumerate()
        .map(|(f, spec)| {
            let checked = (0..spec.checks.len()).map(|c| results.remove(&(f, c))).collect();
            File { spec, checked }
        })
        .collect()
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

fn print_all(files: &[File], arguments: &CheckArguments, options: &Options) -> u8 {
    let (mut good, mut unexpected, mut unknown) = (0, 0, 0);
    let mut out = std::io::stdout().lock();
    for file in files {
        for result in file.checked.iter().flatten() {
            let checked = match result {
                Ok(checked) => checked,
                Err(error) => return bad(error),
            };
            if checked.unexpected.is_some() {
                unexpected += 1;
            } else if checked.inconclusive() {
                unknown += 1;
            } else {
                good += 1;
            }
            if let Some(folder) = &arguments.trace_out
                && let Err(message) = write_trace(folder, &file.spec, checked)
            {
                return usage(message);
            }
            let shown = !arguments.quiet || checked.unexpected.is_some() || checked.inconclusive();
            if matches!(arguments.format, Format::Text) && shown {
                match report::text(&file.spec, checked, options) {
                    Ok(text) => {
                        let _ = writeln!(out, "{text}\n");
                    }
                    Err(error) => return usage(error),
                }
            }
        }
    }
    match arguments.format {
        Format::Text => {
            let _ = writeln!(out, "{}", report::summary(good, unexpected, unknown));
        }
        Format::Json => {
            let all = files.iter().flat_map(|file| {
                file.checked
                    .iter()
                    .flatten()
                    .filter_map(|result| result.as_ref().ok())
                    .map(|c| (&file.spec, c))
            });
            match serde_json::to_string_pretty(&report::json(all)) {
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

fn write_trace(folder: &Path, spec: &Spec, checked: &Checked) -> Result<(), String> {
    let run = checked.run();
    let (Verdict::Fails { primary, .. }, CheckKind::Program(_)) = (&run.verdict, &checked.check.kind) else {
        return Ok(());
    };
    let source: Arc<dyn Source> = run.source.clone();
    let witness = &run.exploration.broken[primary];
    let (choices, steps) =
        trace::record(&source, &run.exploration, witness).map_err(|error| error.to_string())?;
    let recorded = trace::Trace {
        schema_version: trace::SCHEMA_VERSION,
        file: spec.path.clone(),
        digest: spec.digest.clone(),
        check: checked.check.name.clone(),
        ranks: run.ranks,
        params: run.params.iter().map(|(name, value)| (name.clone(), value.to_string())).collect(),
        platform: run.platform.name().to_owned(),
        rule: primary.id().to_owned(),
        choices,
        steps,
    };
    command::write_trace(folder, &recorded)
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
