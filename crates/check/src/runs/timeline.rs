//! A recorded run on a time axis: events of Chrome's trace format, which Perfetto shows.
//!
//! A rank is a process, a host thread a thread, a call a complete event with its arguments, a finding an instant
//! at each call that it is about. Not here: what is found.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use rankcheck_recording::{CallEvent, ProcessFile, ShapeId};
use rustc_hash::FxHashMap;
use serde_json::{Map, Value, json};

use super::RunError;
use super::judge::{Judged, judge, read};

/// Nanoseconds, as the format counts time.
fn microseconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1000.0
}

/// Events, one after another, in the list that the format asks for.
struct TimelineWriter<'a> {
    out: &'a mut dyn Write,
    first: bool,
}

impl TimelineWriter<'_> {
    fn write(&mut self, event: &Value) -> std::io::Result<()> {
        let separator = if std::mem::take(&mut self.first) { "" } else { ",\n" };
        write!(self.out, "{separator}{event}")
    }
}

/// Why a timeline cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum TimelineError {
    /// The recording cannot be read.
    #[error(transparent)]
    Recorded(#[from] RunError),
    /// What was written to says no.
    #[error("the timeline cannot be written: {0}")]
    Io(#[from] std::io::Error),
}

/// Writes the timeline of a recording to a file.
///
/// # Errors
/// If the recording cannot be read, or the file not be written.
pub fn write_file(folder: &Path, to: &Path) -> Result<(), String> {
    let recording = read(folder).map_err(|error| error.to_string())?;
    let judged = judge(recording, None).map_err(|error| error.to_string())?;
    let wrong = |error: std::io::Error| format!("{}: {error}", to.display());
    let mut out = BufWriter::new(File::create(to).map_err(wrong)?);
    write(&judged, &mut out).map_err(|error| error.to_string())?;
    out.flush().map_err(wrong)
}

/// Writes the timeline of a recording.
///
/// # Errors
/// If a file cannot be read any more, or `out` cannot be written to.
pub fn write(judged: &Judged, out: &mut dyn Write) -> Result<(), TimelineError> {
    writeln!(out, "{{\"displayTimeUnit\":\"ns\",\"traceEvents\":[")?;
    let mut events = TimelineWriter { out, first: true };
    let first = judged.recording.world.members.iter().map(|m| judged.recording.began[m.rank.at()]).min();
    for member in &judged.recording.world.members {
        let rank = member.rank.0;
        let offset = judged.recording.began[member.rank.at()] - first.unwrap_or(0);
        events.write(&json!({
            "ph": "M", "name": "process_name", "pid": rank, "args": { "name": format!("rank {rank}") }
        }))?;
        let mut process = ProcessFile::open(&member.path).map_err(RunError::from)?;
        one(&mut process, (rank, offset), &found(judged, rank), &mut events)?;
    }
    writeln!(events.out, "\n]}}")?;
    Ok(())
}

/// The findings about calls of a rank, by the number of the call.
fn found(judged: &Judged, rank: u32) -> FxHashMap<u32, Vec<String>> {
    let mut found: FxHashMap<u32, Vec<String>> = FxHashMap::default();
    for finding in &judged.findings {
        for op in finding.ops.iter().filter(|op| op.rank.0 == rank) {
            if let Some(origin) = judged.recording.program.origin(op.loc) {
                let text = format!("{}: {}", finding.rule, finding.sentence);
                found.entry(origin.number).or_default().push(text);
            }
        }
    }
    found
}

fn one(
    process: &mut ProcessFile,
    (rank, offset): (u32, u64),
    found: &FxHashMap<u32, Vec<String>>,
    events: &mut TimelineWriter<'_>,
) -> Result<(), TimelineError> {
    let mut open: FxHashMap<u32, Vec<(u64, u32, ShapeId)>> = FxHashMap::default();
    let (mut number, mut last) = (0_u32, 0);
    while let Some(event) = process.next_event().map_err(RunError::from)? {
        match event {
            CallEvent::Enter { time, thread, call } => {
                last = last.max(time);
                let at = microseconds(offset + time);
                for text in found.get(&number).into_iter().flatten() {
                    events.write(&json!({
                        "ph": "i", "s": "p", "name": text, "pid": rank, "tid": thread, "ts": at
                    }))?;
                }
                let nth = number;
                number += 1;
                let shape = process.shape(call);
                if shape.instant {
                    events.write(&json!({
                        "ph": "i", "s": "t", "name": &*shape.name, "pid": rank, "tid": thread, "ts": at,
                        "args": arguments(process, call, nth)
                    }))?;
                } else {
                    open.entry(thread).or_default().push((time, nth, call));
                }
            }
            CallEvent::Return { time, thread, values } => {
                last = last.max(time);
                let Some((entered, nth, call)) = open.entry(thread).or_default().pop() else { continue };
                let mut given = arguments(process, call, nth);
                if let Some(values) = values {
                    given.append(&mut arguments(process, values, nth));
                }
                events.write(&json!({
                    "ph": "X", "name": &*process.shape(call).name, "pid": rank, "tid": thread,
                    "ts": microseconds(offset + entered), "dur": microseconds(time - entered), "args": given
                }))?;
            }
            CallEvent::Lost { .. } => {}
        }
    }
    for (thread, calls) in open {
        for (entered, nth, call) in calls {
            events.write(&json!({
                "ph": "X", "name": format!("{} (never returned)", process.shape(call).name), "pid": rank,
                "tid": thread, "ts": microseconds(offset + entered), "dur": microseconds(last - entered),
                "args": arguments(process, call, nth)
            }))?;
        }
    }
    Ok(())
}

/// The arguments of a call, and its number in its process, by which reports name it.
fn arguments(process: &ProcessFile, shape: ShapeId, number: u32) -> Map<String, Value> {
    let shape = process.shape(shape);
    let pairs = shape.keys.iter().zip(&shape.values);
    let pairs = pairs.map(|(key, value)| (key.to_string(), Value::String(value.to_string())));
    pairs.chain([("call".to_owned(), Value::from(number))]).collect()
}
