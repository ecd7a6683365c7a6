//! A job on a time axis: events of Chrome's trace format, which Perfetto shows.
//!
//! A rank is a process, a group a thread of it, a launch a complete event up to when it was seen to be over, or to the
//! end if it was not. Clocks of different ranks are taken to be one. Not here: what is found.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use serde_json::{Value, json};

use super::job::LaunchState;
use super::judge::JudgedJob;
use super::report;

/// Writes the timeline of what was read in a folder to a file.
///
/// # Errors
///
/// If it is not one job, if nothing says when it did anything, or if the file cannot be written.
pub fn write_file(judged: &[JudgedJob], folder: &Path, to: &Path) -> Result<(), String> {
    let [job] = judged else {
        return Err(format!("{} jobs lie in {}; give one of them", judged.len(), folder.display()));
    };
    let mut launches = job.job.processes.iter().flat_map(|process| &process.launches).peekable();
    if launches.peek().is_some() && launches.all(|launch| launch.created.is_none()) {
        return Err(format!(
            "{}: its lines have no times; NCCL 2.26 and later prints them with NCCL_DEBUG_TIMESTAMP_LEVELS=ALL",
            folder.display()
        ));
    }
    let wrong = |error: std::io::Error| format!("{}: {error}", to.display());
    let mut out = BufWriter::new(File::create(to).map_err(wrong)?);
    write(job, &mut out).map_err(wrong)?;
    out.flush().map_err(wrong)
}

/// Writes the timeline of a job.
///
/// # Errors
///
/// If `out` cannot be written to.
pub fn write(judged: &JudgedJob, out: &mut dyn Write) -> std::io::Result<()> {
    let job = &judged.job;
    let launches = || job.processes.iter().flat_map(|process| &process.launches);
    let first = launches().filter_map(|launch| launch.created).min().unwrap_or(0);
    let microseconds = |time: i64| time.saturating_sub(first) as f64 / 1000.0;
    let last = job.latest.unwrap_or(first);
    write!(out, "{{\"displayTimeUnit\":\"ns\",\"traceEvents\":[")?;
    let mut separator = "\n";
    let mut event = |value: Value| {
        let written = write!(out, "{separator}{value}");
        separator = ",\n";
        written
    };
    for process in &job.processes {
        let pid = process.rank;
        event(
            json!({"ph": "M", "name": "process_name", "pid": pid, "args": {"name": format!("rank {pid}")}}),
        )?;
        let mut groups: Vec<_> = process.launches.iter().map(|launch| launch.group).collect();
        groups.sort_unstable();
        groups.dedup();
        for group in groups {
            let name = job.group_text(group);
            event(
                json!({"ph": "M", "name": "thread_name", "pid": pid, "tid": group.0, "args": {"name": name}}),
            )?;
        }
        for launch in &process.launches {
            let Some(created) = launch.created else { continue };
            let end = launch.finished.unwrap_or(last).max(created);
            let state = match launch.state {
                LaunchState::Open => "open",
                LaunchState::Begun => "begun",
                LaunchState::Done => "over",
                LaunchState::Unclear => "not known",
            };
            let calls: Vec<String> =
                launch.calls.iter().map(|call| job.call_text(launch.group, call)).collect();
            let name = launch.calls.first().map_or_else(String::new, |call| job.call_name(call));
            event(json!({
                "ph": "X", "name": name, "pid": pid, "tid": launch.group.0, "ts": microseconds(created),
                "dur": microseconds(end) - microseconds(created), "args": {"calls": calls, "state": state}
            }))?;
        }
    }
    for (rank, text) in report::instants(judged) {
        event(json!({"ph": "i", "s": "p", "name": text, "pid": rank, "tid": 0, "ts": microseconds(last)}))?;
    }
    writeln!(out, "\n]}}")
}
