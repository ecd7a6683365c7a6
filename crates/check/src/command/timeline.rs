//! `rankcheck timeline`: writes a recorded run, or dumps of one, for Perfetto.
//!
//! Not here: what a timeline holds ([`crate::runs::timeline`]).

use std::path::PathBuf;

use super::output;
use crate::dumps::holds_dumps;
use crate::launches;
use crate::runs::timeline::write_file;

#[derive(Debug, clap::Args)]
pub(super) struct TimelineArguments {
    /// The folder of a recorded run, or of dumps of PyTorch's Flight Recorder.
    folder: PathBuf,
    /// Where to.
    #[arg(short, long, default_value = "timeline.json")]
    output: PathBuf,
}

impl TimelineArguments {
    pub(super) fn run(&self) -> u8 {
        let is_recording = crate::runs::is_recording(&self.folder);
        let written = if !is_recording && holds_dumps(&self.folder) {
            launches::timeline::write_file(&self.folder, &self.output)
        } else {
            write_file(&self.folder, &self.output)
        };
        match written {
            Ok(()) => {
                output::line(self.output.display());
                0
            }
            Err(error) => output::usage(error),
        }
    }
}
