//! `rankcheck rules`: shows what devices did when rules were broken, or writes it into the texts of the rules.
//!
//! Not here: how observations become lines ([`crate::device::observed_rules`]).

use std::path::Path;

use super::output;
use crate::device::{observation, observed_rules};

#[derive(Debug, clap::Args)]
pub(super) struct RulesArguments {
    /// Write it into the rules' texts.
    #[arg(long)]
    write: bool,
}

impl RulesArguments {
    pub(super) fn run(&self) -> u8 {
        if let Err(code) = output::needs_folder(Path::new(observation::FOLDER)) {
            return code;
        }
        let kept = match observation::kept(Path::new(observation::FOLDER)) {
            Ok(kept) => kept,
            Err(error) => return output::bad(&error),
        };
        let lines = observed_rules::lines(&kept);
        if self.write {
            return match observed_rules::write(Path::new("specs/rules"), &lines) {
                Ok(changed) => {
                    output::line(format_args!("{changed} files changed"));
                    0
                }
                Err(error) => output::usage(error),
            };
        }
        for (rule, lines) in &lines {
            output::line(rule);
            for line in lines {
                output::line(format_args!("  {}", line.trim_start_matches("- ")));
            }
        }
        0
    }
}
