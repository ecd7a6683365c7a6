//! PyTorch's Flight Recorder dumps: what the processes of a job had called when it was asked, or when it timed out.
//!
//! Reading order: [`pickle`] and [`plain`] (the two encodings become plain data; nothing of a file is executed),
//! [`operation`] (what an entry's name says), [`read`] (one dump, with the fields of versions 2.1 to 2.10), [`folder`]
//! (files become the ranks of jobs, and whatever is odd about them is said), [`strays`] (which of them are not of the job).
//! Sources: `torch/csrc/distributed/c10d/FlightRecorder.hpp` and `FlightRecorderDetail.hpp`, and torchcomms'
//! `comms/torchcomms/hooks/fr/FlightRecorder.cpp`.
//! [`job`] (dumps become launches, which [`crate::launches`] judges).
//! Not here: what is wrong with a job.

pub mod folder;
pub mod job;
pub mod operation;
pub mod pickle;
pub mod plain;
pub mod read;
pub mod strays;

use std::path::{Path, PathBuf};

use crate::launches::judge::{JudgedJob, judge};

/// Returns whether a path is a dump, or a folder that has one in it, at whatever depth.
#[must_use]
pub fn holds_dumps(path: &Path) -> bool {
    folder::holds_dumps(path)
}

/// Judges the jobs whose dumps lie at some paths; those of one job may lie at several.
///
/// # Errors
///
/// If a path does not exist, or a folder cannot be listed.
pub fn judge_dumps(paths: &[PathBuf]) -> Result<Vec<JudgedJob>, folder::DumpFolderError> {
    let folder = folder::read_folder(paths)?;
    let source = paths.first().map_or_else(PathBuf::new, Clone::clone);
    Ok(job::jobs(&folder, &source).into_iter().map(judge).collect())
}
