//! `rankcheck timeline`: writes a recorded run, or dumps or logs of one, for Perfetto.
//!
//! Not here: what a timeline holds ([`crate::runs::timeline`]).

use std::path::PathBuf;

use super::output;
use crate::dumps::{holds_dumps, judge_dumps};
use crate::launches::timeline;
use crate::logs::{holds_logs, judge_logs};
use crate::runs::timeline::write_file;

#[derive(Debug, clap::Args)]
pub(super) struct TimelineArguments {
    /// The folder of a recorded run or of dumps of PyTorch's Flight Recorder, or an NCCL log that has times.
    folder: PathBuf,
    /// The file to write.
    #[arg(short, long, default_value = "timeline.json")]
    output: PathBuf,
}

impl TimelineArguments {
    pub(super) fn run(&self) -> u8 {
        let is_recording = crate::runs::is_recording(&self.folder);
        let folder = std::slice::from_ref(&self.folder);
        let written = if !is_recording && holds_dumps(&self.folder) {
            let judged = judge_dumps(folder).map_err(|error| error.to_string());
            judged.and_then(|judged| timeline::write_file(&judged, &self.folder, &self.output))
        } else if !is_recording && holds_logs(&self.folder) {
            let judged = judge_logs(folder).map_err(|error| error.to_string());
            judged.and_then(|judged| timeline::write_file(&judged, &self.folder, &self.output))
        } else if !is_recording && self.folder.is_file() {
            Err(format!(
                "{} is neither a dump nor an NCCL log with times; give one of these, or the folder of a recorded run",
                self.folder.display()
            ))
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
