//! A job on a time axis: events of Chrome's trace format, which Perfetto shows.
//!
//! A rank is a process, a stream of a group a thread of it, a launch a complete event up to when it was seen to be over, or
//! to the end if it was not. Launches that overlap on one stream are put on tracks of their own. Launches that met are
//! joined by flows, and the verdict is an instant at the end. Clocks of different ranks are taken to be one.
//! Not here: what is found.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use rustc_hash::FxHashMap;
use serde_json::json;

use super::job::{DeviceLaunch, GroupAt, LaunchState, LaunchedCall};
use super::judge::JudgedJob;
use super::positions::{Positions, TransferLane};
use super::report;
use crate::timeline::{FlowEnd, Flows, SliceRows, TimelineWriter, microseconds};

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
    let wrong = |error: std::io::Error| format!("cannot write {}: {error}", to.display());
    let mut out = BufWriter::new(File::create(to).map_err(wrong)?);
    write(job, &mut out).map_err(wrong)?;
    out.flush().map_err(wrong)
}

/// A row of slices: a group, a stream, and which of the rows that launches which overlap need.
type TrackKey = (GroupAt, Option<u64>, usize);

/// A launch in its row: when it began and ended, its number in its process, and itself.
type TrackedLaunch<'a> = (u64, u64, u32, &'a DeviceLaunch);

/// Writes the timeline of a job.
///
/// # Errors
///
/// If `out` cannot be written to.
pub fn write(judged: &JudgedJob, out: &mut dyn Write) -> std::io::Result<()> {
    let job = &judged.job;
    let launches = || job.processes.iter().flat_map(|process| &process.launches);
    let first = launches().filter_map(|launch| launch.created).min().unwrap_or(0);
    let since = |time: i64| u64::try_from(time.saturating_sub(first)).unwrap_or(0);
    let last = since(job.latest.unwrap_or(first));
    let mut events = TimelineWriter::begin(out)?;
    // Where each launch stands, by process and launch.
    let mut slices: FxHashMap<(usize, u32), FlowEnd> = FxHashMap::default();
    for (at, process) in job.processes.iter().enumerate() {
        events.rank(process.rank)?;
        let known = process
            .launches
            .iter()
            .zip(0_u32..)
            .filter_map(|(launch, nth)| Some((launch.created?, nth, launch)));
        let mut known: Vec<_> = known.collect();
        known.sort_unstable_by_key(|(created, nth, _)| (*created, *nth));
        let mut rows: BTreeMap<(GroupAt, Option<u64>), SliceRows> = BTreeMap::new();
        let mut tracks: BTreeMap<TrackKey, Vec<TrackedLaunch<'_>>> = BTreeMap::new();
        for (created, nth, launch) in known {
            let began = since(created);
            let ended = launch.finished.map_or(last, since).max(began);
            let on = (launch.group, launch.stream);
            let row = rows.entry(on).or_default().row(began, ended);
            tracks.entry((on.0, on.1, row)).or_default().push((began, ended, nth, launch));
        }
        for (((group, stream, row), slices_of), track) in tracks.into_iter().zip(0_u32..) {
            let stream = stream.map_or_else(String::new, |stream| format!(", stream {stream}"));
            let more = if row == 0 { String::new() } else { format!(" ({})", row + 1) };
            events.track(process.rank, track, &format!("{}{stream}{more}", job.group_text(group)))?;
            for (began, ended, nth, launch) in slices_of {
                slices.insert((at, nth), FlowEnd { began, rank: process.rank, track });
                let state = match launch.state {
                    LaunchState::Open => "open",
                    LaunchState::Begun => "begun",
                    LaunchState::Done => "over",
                    LaunchState::Unclear => "not known",
                };
                let calls: Vec<String> =
                    launch.calls.iter().map(|call| job.call_text(launch.group, call)).collect();
                let name = launch.calls.first().map_or_else(String::new, |call| job.call_name(call));
                events.write(&json!({
                    "ph": "X", "name": name, "pid": process.rank, "tid": track, "ts": microseconds(began),
                    "dur": microseconds(ended) - microseconds(began), "args": {"calls": calls, "state": state}
                }))?;
            }
        }
    }
    meetings(judged, &slices).write(&mut events)?;
    for (rank, text) in report::instants(judged) {
        events.write(&json!({
            "ph": "i", "s": "p", "cat": "finding", "name": text, "pid": rank, "tid": 0, "ts": microseconds(last)
        }))?;
    }
    let text = report::text(judged);
    let rank = job.processes.first().map_or(0, |process| process.rank);
    events.verdict(text.lines().next().unwrap_or_default(), rank, last)?;
    events.end()
}

/// What launches meet in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum JoinedBy {
    /// The collective of this number.
    Collective(usize, u64),
    /// The n-th transfer of a lane.
    Transfer(TransferLane, usize),
}

/// Joins launches of one collective, and of a transfer where both ends are known from the first on: otherwise nobody knows
/// which of one end is which of the other.
fn meetings(judged: &JudgedJob, slices: &FxHashMap<(usize, u32), FlowEnd>) -> Flows<JoinedBy> {
    let job = &judged.job;
    let positions = Positions::of(job);
    let mut flows = Flows::default();
    let name = |process: usize, launch: u32, wanted: &dyn Fn(&LaunchedCall) -> bool| {
        let calls = &job.processes[process].launches[launch as usize].calls;
        calls.iter().find(|call| wanted(call)).map_or_else(String::new, |call| job.call_name(call))
    };
    for (group, members) in positions.groups.iter().enumerate() {
        for member in members {
            for (number, launch) in &member.calls {
                if let Some(end) = slices.get(&(member.process, *launch)) {
                    let name = name(member.process, *launch, &|call| call.number == Some(*number));
                    flows.add(JoinedBy::Collective(group, *number), &name, *end);
                }
            }
        }
    }
    for (lane, ends) in &positions.lanes {
        let sides = [(lane.from, &ends.sends), (lane.to, &ends.recvs)];
        let sides = sides.map(|(rank, ends)| (job.process_at(rank), ends));
        let [(Some(from), sends), (Some(to), recvs)] = sides else { continue };
        if !(job.processes[from].from_start && job.processes[to].from_start) {
            continue;
        }
        for (nth, (send, recv)) in sends.iter().zip(recvs).enumerate() {
            if let (Some(sent), Some(received)) = (slices.get(&(from, send.0)), slices.get(&(to, recv.0))) {
                let name = format!("send of rank {} to rank {}", lane.from, lane.to);
                flows.add(JoinedBy::Transfer(*lane, nth), &name, *sent);
                flows.add(JoinedBy::Transfer(*lane, nth), &name, *received);
            }
        }
    }
    flows
}
