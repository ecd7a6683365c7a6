//! `rankcheck contract`: runs the rules on GPUs and compares this NCCL with others that were observed.
//!
//! Not here: the runs ([`super::gpus`]), and the comparison ([`crate::device::contract`]).

use std::path::{Path, PathBuf};
use std::time::Duration;

use rankcheck_real::case::CommHistory;

use super::gpus::{AlreadyObserved, Batch, ShownRows};
use super::output;
use crate::device::{contract, observation};

/// The whole table, at most.
const BUDGET: Duration = Duration::from_secs(600);

#[derive(Debug, clap::Args)]
pub(super) struct ContractArguments {
    /// Append the observations to observations.jsonl in this folder.
    #[arg(long, alias = "record", value_name = "DIR")]
    observe: Option<PathBuf>,
    /// The NCCL library to use.
    #[arg(long, value_name = "PATH")]
    nccl: Option<PathBuf>,
}

impl ContractArguments {
    pub(super) fn run(self) -> u8 {
        let rules = PathBuf::from("specs/rules");
        if let Err(code) = output::needs_folder(&rules) {
            return code;
        }
        let batch = Batch {
            paths: vec![rules],
            only: None,
            ranks_at_most: None,
            comms: vec![CommHistory::Fresh],
            runs: 1,
            budget: Some(BUDGET),
            deadline: Duration::from_secs(2),
            nccl: self.nccl,
            kept_in: self.observe,
            known: AlreadyObserved::RunAgain,
            rows: ShownRows::Disagreeing,
            shard: None,
        };
        let summary = match batch.run() {
            Ok(summary) => summary,
            Err(code) => return code,
        };
        output::line(summary.text());
        match contract::changes(&summary.observations, Path::new(observation::FOLDER)) {
            Ok(changed) => output::line(contract::text(&changed)),
            Err(error) => return output::usage(error),
        }
        summary.exit_code()
    }
}
