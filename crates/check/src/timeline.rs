//! Events of Chrome's trace format, which Perfetto shows: what timelines of recorded runs and of jobs have in common.
//!
//! Calls that met are joined by a flow, which goes from the slice of the rank that came first to that of the one that
//! came last. A flow of which only one end is known is not drawn, so that each that begins also ends.
//! Not here: what met what.

use std::collections::BTreeMap;
use std::io::Write;

use serde_json::{Value, json};

/// Nanoseconds, as the format counts time.
pub(crate) fn microseconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1000.0
}

/// Events, one after another, in the list that the format asks for.
pub(crate) struct TimelineWriter<'a> {
    out: &'a mut dyn Write,
    first: bool,
}

impl<'a> TimelineWriter<'a> {
    pub(crate) fn begin(out: &'a mut dyn Write) -> std::io::Result<Self> {
        writeln!(out, "{{\"displayTimeUnit\":\"ns\",\"traceEvents\":[")?;
        Ok(Self { out, first: true })
    }

    pub(crate) fn write(&mut self, event: &Value) -> std::io::Result<()> {
        let separator = if std::mem::take(&mut self.first) { "" } else { ",\n" };
        write!(self.out, "{separator}{event}")
    }

    /// Names a rank, and puts it in its place among the others.
    pub(crate) fn rank(&mut self, rank: u32) -> std::io::Result<()> {
        let name = format!("rank {rank}");
        self.write(&json!({"ph": "M", "name": "process_name", "pid": rank, "args": {"name": name}}))?;
        self.write(
            &json!({"ph": "M", "name": "process_sort_index", "pid": rank, "args": {"sort_index": rank}}),
        )
    }

    /// Names a track of a rank.
    pub(crate) fn track(&mut self, rank: u32, track: u32, name: &str) -> std::io::Result<()> {
        self.write(
            &json!({"ph": "M", "name": "thread_name", "pid": rank, "tid": track, "args": {"name": name}}),
        )?;
        let args = json!({"sort_index": track});
        self.write(&json!({"ph": "M", "name": "thread_sort_index", "pid": rank, "tid": track, "args": args}))
    }

    /// Says how it all came out, over the whole height.
    pub(crate) fn verdict(&mut self, text: &str, rank: u32, nanoseconds: u64) -> std::io::Result<()> {
        self.write(&json!({
            "ph": "i", "s": "g", "cat": "verdict", "name": text, "pid": rank, "tid": 0,
            "ts": microseconds(nanoseconds)
        }))
    }

    pub(crate) fn end(self) -> std::io::Result<()> {
        writeln!(self.out, "\n]}}")
    }
}

/// The beginning of a slice that takes part in a meeting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FlowEnd {
    /// In nanoseconds, as the slice's.
    pub(crate) began: u64,
    pub(crate) rank: u32,
    pub(crate) track: u32,
}

/// Slices that met, by what they met in.
#[derive(Debug)]
pub(crate) struct Flows<M>(BTreeMap<M, (String, Vec<FlowEnd>)>);

impl<M> Default for Flows<M> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<M: Ord> Flows<M> {
    /// Adds a slice to those of a meeting.
    pub(crate) fn add(&mut self, meeting: M, name: &str, end: FlowEnd) {
        self.0.entry(meeting).or_insert_with(|| (name.to_owned(), Vec::new())).1.push(end);
    }

    /// Writes a flow for each meeting of which two slices or more are known.
    pub(crate) fn write(self, events: &mut TimelineWriter<'_>) -> std::io::Result<()> {
        let known = self.0.into_values().filter(|(_, ends)| ends.len() > 1);
        for (id, (name, mut ends)) in known.enumerate() {
            ends.sort_unstable();
            let last = ends.len() - 1;
            for (nth, FlowEnd { began, rank, track }) in ends.into_iter().enumerate() {
                let phase = match nth {
                    0 => "s",
                    nth if nth == last => "f",
                    _ => "t",
                };
                // Bound to the slice around it, not to the next one.
                events.write(&json!({
                    "ph": phase, "bp": "e", "cat": "meets", "name": name, "id": id, "pid": rank, "tid": track,
                    "ts": microseconds(began)
                }))?;
            }
        }
        Ok(())
    }
}

/// Puts slices onto tracks on which none begins before the one before it is over: viewers lose those that do.
#[derive(Debug, Default)]
pub(crate) struct SliceRows(Vec<u64>);

impl SliceRows {
    /// Returns the row for a slice. Slices have to come in the order of their beginnings.
    pub(crate) fn row(&mut self, began: u64, ended: u64) -> usize {
        let free = self.0.iter().position(|until| *until < began);
        let row = free.unwrap_or(self.0.len());
        match free {
            Some(row) => self.0[row] = ended,
            None => self.0.push(ended),
        }
        row
    }
}
