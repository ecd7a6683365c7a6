//! The commands of `rankcheck`: each in a file of its own, with its arguments beside the code that runs them.
//!
//! Exit codes: 0 all as expected, 1 some not or a finding where nothing is expected, 2 bad spec or usage, 3 inconclusive, 4 no device to run on.
//! 130 interrupted, with what was done so far.
//! `record` ends with the code of what it runs; 125 if it cannot record, 127 if the command does not start.
//! Not here: what is printed how (`output`), and anything that a library would want to call.

pub mod again;
mod check;
mod checkpoint;
mod compare;
mod completions;
mod conform;
mod contract;
mod diff;
mod doctor;
mod drift;
mod explain;
mod fold;
mod formats;
mod git;
mod gpus;
mod init;
mod merge;
mod observe;
mod output;
mod overview;
mod progress;
mod record;
mod replay;
mod report;
mod results;
mod rules;
mod search;
mod select;
mod shard_file;
mod timeline;

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Parser, Subcommand};

use crate::spec::{self, Spec, SpecError, spec_files};

/// Finds the hang before your cluster does: model-checks multi-GPU communication, and judges recorded runs of it.
#[derive(Debug, Parser)]
#[command(
    version,
    after_help = "Exit codes: 0 everything as expected · 1 something is not, or a finding where nothing is stated · \
                  2 bad spec or bad usage · 3 inconclusive · 4 a GPU, a library or a tool is missing · \
                  130 interrupted"
)]
pub struct Arguments {
    /// When to colour verdicts and errors.
    #[arg(long, global = true, value_enum, value_name = "WHEN", default_value = "auto")]
    color: output::ColorWhen,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Check specs, recorded runs, dumps of PyTorch's Flight Recorder, and NCCL logs.
    Check(check::CheckArguments),
    /// Merge the results of `check --shard`, and print the report that one machine would have printed.
    Merge(merge::MergeArguments),
    /// Write HTML pages: an index, and a page for each finding in specs, recorded runs, dumps and logs.
    Report(report::ReportArguments),
    /// Compare the checks of two revisions or folders, for a pull request.
    Compare(compare::CompareArguments),
    /// Find the first operation at which a recorded run departs from a spec's program.
    Conform(conform::ConformArguments),
    /// Convert a recorded run, dumps or logs into a timeline for Perfetto, with the findings marked.
    Timeline(timeline::TimelineArguments),
    /// Replay a trace that `check --trace-out` wrote, in the model or on GPUs.
    Replay(replay::ReplayArguments),
    /// Run checks on GPUs, and compare what happens with what the model predicts.
    Diff(diff::DiffArguments),
    /// Run every rule's programs on GPUs, and report where this NCCL behaves differently from those observed before. Run it in
    /// the root of the repository.
    Contract(contract::ContractArguments),
    /// Show this machine's driver, GPUs and NCCL, and which commands lack something they need.
    Doctor,
    /// Maintain the observations in specs/observations. Run it in the root of the repository.
    #[command(subcommand)]
    Observe(observe::ObserveCommand),
    /// Show what devices did when each rule was broken, or write it into specs/rules. Run it in the root of the repository.
    Rules(rules::RulesArguments),
    /// One rank of a job, started by the command itself.
    #[command(hide = true)]
    Worker(gpus::WorkerArguments),
    /// Explain a rule: what it demands, its source, and what happens when it is broken.
    Explain(explain::ExplainArguments),
    /// Run a command, and record the NCCL and CUDA calls of all its processes. Exits with the command's exit code;
    /// with 125 if recording cannot be set up, and 127 if the command does not start.
    Record(record::RecordArguments),
    /// Compress a recording in place. Every command reads it as before, and `unfold` restores it.
    Fold(fold::FoldArguments),
    /// Restore a folded recording, byte for byte.
    Unfold(fold::FoldArguments),
    /// List the lines of code that specs quote and that are gone from their files.
    Drift(drift::DriftArguments),
    /// Write a first spec, and a GitHub workflow that checks it in every pull request.
    Init(init::InitArguments),
    /// Print a completion script for a shell.
    Completions(completions::CompletionsArguments),
}

impl Arguments {
    /// Reads the arguments of this process. Prints what is wrong with them, or the help that they ask for, and ends it.
    #[must_use]
    pub fn of_process() -> Self {
        Self::try_parse().unwrap_or_else(|mut error| {
            // Whoever misspells an option is not told how to name a file that is called so.
            if error.kind() == ErrorKind::UnknownArgument
                && let Some(ContextValue::StyledStrs(tips)) = error.get(ContextKind::Suggested)
            {
                let tips =
                    tips.iter().filter(|tip| !tip.to_string().starts_with("to pass '")).cloned().collect();
                error.insert(ContextKind::Suggested, ContextValue::StyledStrs(tips));
            }
            // Help and versions go to standard output, where a full disk is no success.
            let printed = error.print().and_then(|()| std::io::stdout().flush());
            let lost = printed.is_err_and(|lost| lost.kind() != std::io::ErrorKind::BrokenPipe);
            std::process::exit(if lost { i32::from(output::BAD) } else { error.exit_code() })
        })
    }

    /// Does what the arguments say, and returns the exit code.
    #[must_use]
    pub fn run(self) -> u8 {
        again::take();
        output::appear(self.color);
        output::finish(self.command.run())
    }
}

impl Command {
    fn run(self) -> u8 {
        match self {
            Self::Check(arguments) => arguments.run(),
            Self::Merge(arguments) => arguments.run(),
            Self::Report(arguments) => arguments.run(),
            Self::Compare(arguments) => arguments.run(),
            Self::Conform(arguments) => arguments.run(),
            Self::Timeline(arguments) => arguments.run(),
            Self::Replay(arguments) => arguments.run(),
            Self::Diff(arguments) => arguments.run(),
            Self::Contract(arguments) => arguments.run(),
            Self::Doctor => doctor::run(),
            Self::Observe(command) => command.run(),
            Self::Rules(arguments) => arguments.run(),
            Self::Worker(arguments) => arguments.run(),
            Self::Explain(arguments) => arguments.run(),
            Self::Record(arguments) => arguments.run(),
            Self::Fold(arguments) => arguments.fold(),
            Self::Unfold(arguments) => arguments.unfold(),
            Self::Drift(arguments) => arguments.run(),
            Self::Init(arguments) => arguments.run(),
            Self::Completions(arguments) => arguments.run(),
        }
    }
}

/// Returns the specs under paths, and what is wrong with those that cannot be read. A file that is named states checks;
/// one in a folder may be there to be loaded by others.
fn load_each(paths: &[PathBuf]) -> (Vec<Spec>, Vec<SpecError>) {
    let mut specs = Vec::new();
    let (files, mut bad) = spec_files(paths);
    for path in files {
        let loaded = if paths.contains(&path) { spec::load(&path) } else { spec::load_any(&path) };
        match loaded {
            Ok(spec) => specs.push(spec),
            Err(error) if path.extension().is_none_or(|ending| ending != "star") => {
                bad.push(unreadable(&path).unwrap_or_else(|| nothing_known(&path, &error)));
            }
            Err(error) => bad.push(error),
        }
    }
    (specs, bad)
}

/// Whether a file is a text of two bytes a letter, as PowerShell redirects one.
fn is_utf16(path: &Path) -> bool {
    let mut head = [0; 2];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut head));
    read.is_ok() && matches!(head, [0xff, 0xfe] | [0xfe, 0xff])
}

/// Why a file is none of the things that are known.
fn nothing_known(path: &Path, error: &SpecError) -> SpecError {
    SpecError::new(
        format!("{} is no spec, recording, dump or log", path.display()),
        Some(format!(
            "as a spec: {error}. A dump is a pickle or JSON of PyTorch's Flight Recorder; a log has lines with `NCCL \
             INFO`, of a job that had NCCL_DEBUG=INFO set; compressed files have to be unpacked"
        )),
    )
}

/// Why nothing at all can be read from a file.
fn unreadable(path: &Path) -> Option<SpecError> {
    match File::open(path).and_then(|file| file.metadata()) {
        Err(error) => Some(SpecError::new(format!("cannot read {}: {error}", path.display()), None)),
        Ok(file) if file.is_file() && file.len() == 0 => Some(SpecError::new(
            format!("{} is empty", path.display()),
            Some("whoever wrote it may have been killed, or the disk been full".to_owned()),
        )),
        Ok(_) if is_utf16(path) => Some(SpecError::new(
            format!("{} is UTF-16", path.display()),
            Some("convert it to UTF-8 first: iconv -f UTF-16 -t UTF-8".to_owned()),
        )),
        Ok(_) => None,
    }
}

/// Returns the specs under paths.
///
/// # Errors
/// The exit code if one is bad, after every bad one has been reported.
fn load_all(paths: &[PathBuf]) -> Result<Vec<Spec>, u8> {
    let (specs, bad) = load_each(paths);
    let mut code = None;
    for error in &bad {
        code = Some(output::bad(error));
    }
    code.map_or(Ok(specs), Err)
}
