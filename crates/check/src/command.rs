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

use std::path::PathBuf;

use clap::{Parser, Subcommand};

use crate::spec::{self, Spec, SpecError, spec_files};

/// Finds the hang before your cluster does: checks specs of multi-GPU communication protocols.
#[derive(Debug, Parser)]
#[command(
    version,
    after_help = "Exit codes: 0 all as expected · 1 some not, or a finding where nothing is expected · \
                  2 bad spec or usage · 3 inconclusive · 4 a GPU, a library or the like is missing · \
                  130 interrupted"
)]
pub struct Arguments {
    /// When verdicts and errors are in colour.
    #[arg(long, global = true, value_enum, value_name = "WHEN", default_value = "auto")]
    color: output::ColorWhen,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Check spec files, folders of them, recorded runs, dumps of PyTorch's Flight Recorder, and logs of NCCL.
    Check(check::CheckArguments),
    /// Print what the shards of a check say together, as one machine would have said it.
    Merge(merge::MergeArguments),
    /// Write pages that people look at: an index, and a page for each finding of specs, recorded runs, dumps and logs.
    Report(report::ReportArguments),
    /// Tell how the checks of one revision, or folder, differ from those of another: for a pull request.
    Compare(compare::CompareArguments),
    /// Tell where a recorded run leaves the program of a spec.
    Conform(conform::ConformArguments),
    /// Write a recorded run, dumps or logs as a timeline, with what is found in it, for Perfetto.
    Timeline(timeline::TimelineArguments),
    /// Run a recorded trace again and tell what happens.
    Replay(replay::ReplayArguments),
    /// Run checks on GPUs and compare with what the model predicts.
    Diff(diff::DiffArguments),
    /// Run the rules on GPUs and tell what this NCCL does otherwise than others that were observed.
    Contract(contract::ContractArguments),
    /// Show the driver, GPUs and NCCL of this machine, and what is missing for what.
    Doctor,
    /// Work on the observations of specs/observations; from the root of the repository.
    #[command(subcommand)]
    Observe(observe::ObserveCommand),
    /// Show what devices did when rules were broken, or write it into specs/rules; from the root of the repository.
    Rules(rules::RulesArguments),
    /// One rank of a job, started by the command itself.
    #[command(hide = true)]
    Worker(gpus::WorkerArguments),
    /// Print a rule: what it says, its source, what happens when it is broken.
    Explain(explain::ExplainArguments),
    /// Run a command and record what its processes call of NCCL and CUDA. Ends with the command's exit code;
    /// 125 if it cannot record, 127 if the command does not start.
    Record(record::RecordArguments),
    /// Make the files of a recording small, where they lie. They are read as they were, and `unfold` gives them back.
    Fold(fold::FoldArguments),
    /// Give the files of a recording back that were folded, byte for byte.
    Unfold(fold::FoldArguments),
    /// List the quotes of code that no longer stand where the specs say.
    Drift(drift::DriftArguments),
    /// Write a first spec, and a workflow that checks it with every pull request.
    Init(init::InitArguments),
    /// Print what a shell needs to complete arguments.
    Completions(completions::CompletionsArguments),
}

impl Arguments {
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
            Err(error) if path.extension().is_none_or(|ending| ending != "star") => bad.push(SpecError::new(
                format!("{} is no spec, recording, dump or log", path.display()),
                Some(format!(
                    "as a spec: {error}. A dump is a pickle or JSON of PyTorch's Flight Recorder; a log has lines with `NCCL \
                     INFO`, of a job that had NCCL_DEBUG=INFO set; compressed files have to be unpacked"
                )),
            )),
            Err(error) => bad.push(error),
        }
    }
    (specs, bad)
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
