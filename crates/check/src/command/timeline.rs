//! `rankcheck timeline`: writes a recorded run for Perfetto.
//!
//! Not here: what a timeline holds ([`crate::runs::timeline`]).

use std::path::PathBuf;

use super::output;
use crate::runs::timeline::write_file;

#[derive(Debug, clap::Args)]
pub(super) struct TimelineArguments {
    /// The folder of a recorded run.
    folder: PathBuf,
    /// Where to.
    #[arg(short, long, default_value = "timeline.json")]
    output: PathBuf,
}

impl TimelineArguments {
    pub(super) fn run(&self) -> u8 {
        match write_file(&self.folder, &self.output) {
            Ok(()) => {
                output::line(self.output.display());
                0
            }
            Err(error) => output::usage(error),
        }
    }
}
