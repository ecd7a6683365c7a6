//! NCCL's own log: what a process printed with `NCCL_DEBUG=INFO` and `COLL` among its `NCCL_DEBUG_SUBSYS`.
//!
//! A line is printed for each call before it is given to the device, and for each communicator when it is made and when
//! its process is done with it. Nothing is printed when a call is over, nor where a group of calls begins and ends.
//!
//! Reading order: [`line`](mod@line) (one line, as NCCL 2.4 to 2.30 and RCCL write it, with whatever stands before and between), [`read`]
//! (files become processes, their communicators and calls), [`copies`] (processes whose log is there twice), [`job`]
//! (communicators of different processes are found to be one, and processes become the ranks of jobs, which
//! [`crate::launches`] judges).
//! Sources: `src/debug.cc`, `src/enqueue.cc` and `src/init.cc` of NCCL 2.4.8 to 2.30.7.
//! Not here: what is wrong with a job.

pub mod copies;
pub mod job;
pub mod line;
pub mod read;

use std::path::{Path, PathBuf};

use crate::launches::judge::{JudgedJob, judge};

/// Returns whether a path is a log, or a folder that has one in it, at whatever depth.
#[must_use]
pub fn holds_logs(path: &Path) -> bool {
    read::holds_logs(path)
}

/// Judges the jobs whose logs lie at some paths; those of one job may lie at several.
///
/// # Errors
///
/// If a path does not exist, or a folder or a file cannot be read.
pub fn judge_logs(paths: &[PathBuf]) -> Result<Vec<JudgedJob>, read::LogError> {
    let logs = read::read_logs(paths)?;
    let source = paths.first().map_or_else(PathBuf::new, Clone::clone);
    Ok(job::jobs(&logs, &source).into_iter().map(judge).collect())
}
