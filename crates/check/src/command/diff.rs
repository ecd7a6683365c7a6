//! `rankcheck diff`: runs checks on GPUs and compares them with what the model predicts.
//!
//! Not here: the runs ([`super::gpus`]), and the comparison ([`crate::device::diff`]).

use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;
use rankcheck_real::case::CommHistory;

use super::gpus::{AlreadyObserved, Batch, ShownRows};
use super::output;
use crate::shard::Shard;

#[derive(Debug, clap::Args)]
pub(super) struct DiffArguments {
    /// Spec files (*.star), and folders of them.
    #[arg(required = true)]
    paths: Vec<PathBuf>,
    /// How often each check is run. Each run forces different nondeterministic choices.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// Append the observations to observations.jsonl in this folder.
    #[arg(long, alias = "record", value_name = "DIR")]
    observe: Option<PathBuf>,
    /// Start no check after this time, such as 480s or 8m.
    #[arg(long, value_parser = duration)]
    budget: Option<Duration>,
    /// The NCCL library to use.
    #[arg(long, value_name = "PATH")]
    nccl: Option<PathBuf>,
    /// Run only checks whose names contain this.
    #[arg(long, value_name = "NAME")]
    only: Option<String>,
    /// Leave out checks with more ranks [default: the number of GPUs].
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    ranks_at_most: Option<u32>,
    /// Leave out what the folder of --observe already has.
    #[arg(long, requires = "observe")]
    resume: bool,
    /// Whether communicators are new, or were used before.
    #[arg(long, value_enum, default_value = "fresh")]
    comms: CommsArgument,
    /// Run only part K of N, from 1/N to N/N: for N machines that get the same arguments; see docs/cluster.md.
    #[arg(long, value_name = "K/N")]
    shard: Option<Shard>,
    /// How long all ranks may stand still before a run counts as hung.
    #[arg(long, default_value = "2s", value_parser = duration)]
    deadline: Duration,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum CommsArgument {
    /// New communicators for each run.
    Fresh,
    /// Communicators that were used before.
    Warm,
    /// One run of each kind.
    Both,
}

impl DiffArguments {
    pub(super) fn run(self) -> u8 {
        let batch = Batch {
            paths: self.paths,
            only: self.only,
            ranks_at_most: self.ranks_at_most,
            comms: match self.comms {
                CommsArgument::Fresh => vec![CommHistory::Fresh],
                CommsArgument::Warm => vec![CommHistory::Warm],
                CommsArgument::Both => vec![CommHistory::Fresh, CommHistory::Warm],
            },
            runs: self.runs,
            budget: self.budget,
            deadline: self.deadline,
            nccl: self.nccl,
            kept_in: self.observe,
            known: if self.resume { AlreadyObserved::LeftOut } else { AlreadyObserved::RunAgain },
            rows: ShownRows::All,
            shard: self.shard,
        };
        match batch.run() {
            Ok(summary) => {
                output::line(summary.text());
                summary.exit_code()
            }
            Err(code) => code,
        }
    }
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
