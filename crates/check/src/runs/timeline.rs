//! A recorded run on a time axis: events of Chrome's trace format, which Perfetto shows.
//!
//! A rank is a process, a host thread a thread, a call a complete event with its arguments, a finding an instant at each
//! call that it is about. Calls of several ranks that NCCL matches are joined by a flow: collectives of a communicator,
//! and sends and receives of a pair, by their order. A stream is a track, with an instant where work was given to it: when
//! its device did that work was not recorded. The verdict is an instant where the last call of the first finding was made,
//! or else at the end. Not here: what is found.

use std::collections::hash_map::Entry;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use rankcheck_model::Direction;
use rankcheck_recording::{Argument, CallEvent, ProcessFile, Shape, ShapeId};
use rustc_hash::FxHashMap;
use serde_json::{Map, Value, json};

use super::RunError;
use super::call::{CallKind, failure};
use super::device_share::ShareFilter;
use super::judge::{Judged, judge, read};
use super::report;
use super::world::{RankProcess, RunCommId, World};
use crate::timeline::{FlowEnd, Flows, TimelineWriter, microseconds};

/// The tracks of streams come after those of host threads.
const STREAMS: u32 = 1 << 20;

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
    let wrong = |error: std::io::Error| format!("cannot write {}: {error}", to.display());
    let mut out = BufWriter::new(File::create(to).map_err(wrong)?);
    write(&judged, &mut out).map_err(|error| error.to_string())?;
    out.flush().map_err(wrong)
}

/// Writes the timeline of a recording.
///
/// # Errors
/// If a file cannot be read any more, or `out` cannot be written to.
pub fn write(judged: &Judged, out: &mut dyn Write) -> Result<(), TimelineError> {
    let mut events = TimelineWriter::begin(out)?;
    let world = &judged.recording.world;
    let first = world.members.iter().map(|m| judged.recording.began[m.rank.at()]).min();
    let mut flows = Flows::default();
    let (mut found_at, mut last) = (None, 0);
    for member in &world.members {
        let rank = member.rank.0;
        let offset = judged.recording.began[member.rank.at()] - first.unwrap_or(0);
        events.rank(rank)?;
        let process = ProcessFile::open(&member.path).map_err(RunError::from)?;
        let mut of_rank = RankTimeline {
            process,
            member,
            world,
            offset,
            events: &mut events,
            flows: &mut flows,
            met: FxHashMap::default(),
            incomplete: false,
            tracks: FxHashMap::default(),
        };
        let (found, until) = of_rank.write(&found(judged, rank))?;
        found_at = found_at.max(found);
        last = last.max(until);
    }
    flows.write(&mut events)?;
    let text = report::text(judged);
    let rank = world.members.first().map_or(0, |member| member.rank.0);
    events.verdict(text.lines().next().unwrap_or_default(), rank, found_at.unwrap_or(last))?;
    events.end()?;
    Ok(())
}

/// A finding about a call.
struct FoundAtCall {
    text: String,
    /// Whether it is the one that the verdict is told by.
    is_first: bool,
}

/// The findings about calls of a rank, by the number of the call.
fn found(judged: &Judged, rank: u32) -> FxHashMap<u32, Vec<FoundAtCall>> {
    let mut found: FxHashMap<u32, Vec<FoundAtCall>> = FxHashMap::default();
    for (nth, finding) in judged.findings.iter().enumerate() {
        for op in finding.ops.iter().filter(|op| op.rank.0 == rank) {
            if let Some(origin) = judged.recording.program.origin(op.loc) {
                let text = format!("{}: {}", finding.rule, finding.sentence);
                found.entry(origin.number).or_default().push(FoundAtCall { text, is_first: nth == 0 });
            }
        }
    }
    found
}

/// What NCCL matches calls by: how many of the kind came before on the communicator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum MatchedBy {
    /// Kernels that all members launch.
    Collectives(RunCommId),
    /// Splits and registrations, which all members make.
    SetUp(RunCommId),
    /// Transfers from one member to another.
    Transfers(RunCommId, u32, u32),
}

/// A call that has not returned.
struct UnreturnedCall {
    entered: u64,
    number: u32,
    call: ShapeId,
}

/// The timeline of one rank, while it is written.
struct RankTimeline<'a, 'w> {
    process: ProcessFile,
    member: &'a RankProcess,
    world: &'a World,
    /// When the process began, after the first one.
    offset: u64,
    events: &'a mut TimelineWriter<'w>,
    flows: &'a mut Flows<(MatchedBy, u32)>,
    /// How many calls of each lane were made.
    met: FxHashMap<MatchedBy, u32>,
    /// Whether calls are missing: then nobody knows how many came before.
    incomplete: bool,
    /// The tracks of streams, by their addresses.
    tracks: FxHashMap<u64, u32>,
}

impl RankTimeline<'_, '_> {
    /// Writes all events of the rank. Returns when the last call of the first finding began, if it is one of this rank, and
    /// when the rank's recording ends.
    fn write(
        &mut self,
        found: &FxHashMap<u32, Vec<FoundAtCall>>,
    ) -> Result<(Option<u64>, u64), TimelineError> {
        let rank = self.member.rank.0;
        let mut open: FxHashMap<u32, Vec<UnreturnedCall>> = FxHashMap::default();
        let (mut last, mut found_at) = (0, None);
        let mut filter = ShareFilter::new(self.member.share.as_ref());
        while let Some((number, event)) = filter.next(&mut self.process).map_err(RunError::from)? {
            let number = u32::try_from(number).unwrap_or(u32::MAX);
            match event {
                CallEvent::Enter { time, thread, call } => {
                    last = last.max(time);
                    let at = microseconds(self.offset + time);
                    if let Entry::Vacant(first) = open.entry(thread) {
                        self.events.track(rank, thread, &format!("host thread {thread}"))?;
                        first.insert(Vec::new());
                    }
                    for FoundAtCall { text, is_first } in found.get(&number).into_iter().flatten() {
                        found_at = found_at.max(is_first.then_some(self.offset + time));
                        self.events.write(&json!({
                            "ph": "i", "s": "p", "cat": "finding", "name": text, "pid": rank, "tid": thread,
                            "ts": at
                        }))?;
                    }
                    let entered = UnreturnedCall { entered: time, number, call };
                    self.give_to_stream(&entered)?;
                    let shape = self.process.shape(call);
                    if shape.instant {
                        self.events.write(&json!({
                            "ph": "i", "s": "t", "name": &*shape.name, "pid": rank, "tid": thread, "ts": at,
                            "args": arguments(&self.process, call, entered.number)
                        }))?;
                    } else {
                        open.entry(thread).or_default().push(entered);
                    }
                }
                CallEvent::Return { time, thread, values } => {
                    last = last.max(time);
                    let Some(of) = open.get_mut(&thread).and_then(Vec::pop) else { continue };
                    self.call(thread, &of, time.saturating_sub(of.entered), "", values)?;
                }
                CallEvent::Lost { .. } => self.incomplete = true,
            }
        }
        let mut open: Vec<_> = open.into_iter().collect();
        open.sort_unstable_by_key(|(thread, _)| *thread);
        for (thread, calls) in open {
            for of in calls {
                let until = last - of.entered;
                self.call(thread, &of, until, " (never returned)", None)?;
            }
        }
        Ok((found_at, self.offset + last))
    }

    /// Writes a call, and joins it with those that it meets.
    fn call(
        &mut self,
        thread: u32,
        of: &UnreturnedCall,
        took: u64,
        suffix: &str,
        values: Option<ShapeId>,
    ) -> Result<(), TimelineError> {
        let rank = self.member.rank.0;
        let mut given = arguments(&self.process, of.call, of.number);
        if let Some(values) = values {
            given.append(&mut arguments(&self.process, values, of.number));
        }
        let shape = self.process.shape(of.call);
        let failed = failure(values.map(|values| self.process.shape(values))).is_some();
        if !failed
            && !self.incomplete
            && let Some(lane) = self.lane(shape, of.number)
        {
            let nth = self.met.entry(lane).or_default();
            let end = FlowEnd { began: self.offset + of.entered, rank, track: thread };
            self.flows.add((lane, *nth), &shape.name, end);
            *nth += 1;
        }
        self.events.write(&json!({
            "ph": "X", "name": format!("{}{suffix}", shape.name), "pid": rank, "tid": thread,
            "ts": microseconds(self.offset + of.entered), "dur": microseconds(took), "args": given
        }))?;
        Ok(())
    }

    /// What a call is matched in, if other ranks have to make it too and all is known that decides with whom it meets.
    #[expect(clippy::wildcard_enum_match_arm, reason = "three kinds of call meet on a communicator")]
    fn lane(&self, shape: &Shape, number: u32) -> Option<MatchedBy> {
        let kind = CallKind::of(&shape.name);
        if kind.is_empty(shape) || kind.lacks(shape).is_some() {
            return None;
        }
        let comm = self.member.comm_at(shape.get("comm")?.number()?, number.into())?;
        match kind {
            CallKind::Collective(_) => Some(MatchedBy::Collectives(comm)),
            CallKind::Split | CallKind::Register => Some(MatchedBy::SetUp(comm)),
            CallKind::Transfer(direction) => {
                let own = self.world.comm(comm).rank_of(self.member.rank)?;
                let peer = u32::try_from(shape.get("peer")?.number()?).ok()?;
                Some(match direction {
                    Direction::Send => MatchedBy::Transfers(comm, own, peer),
                    Direction::Recv => MatchedBy::Transfers(comm, peer, own),
                })
            }
            _ => None,
        }
    }

    /// Marks on the track of a stream that work was given to it.
    #[expect(clippy::wildcard_enum_match_arm, reason = "few kinds of call are work for a stream")]
    fn give_to_stream(&mut self, of: &UnreturnedCall) -> Result<(), TimelineError> {
        let shape = self.process.shape(of.call);
        match CallKind::of(&shape.name) {
            CallKind::Collective(_)
            | CallKind::Transfer(_)
            | CallKind::Copy(_)
            | CallKind::GraphLaunch
            | CallKind::EventRecord
            | CallKind::StreamWaitEvent
            | CallKind::HostFunction => {}
            _ => return Ok(()),
        }
        let Some(stream) = shape.get("stream").and_then(Argument::number) else { return Ok(()) };
        let rank = self.member.rank.0;
        let known = u32::try_from(self.tracks.len()).unwrap_or(u32::MAX - STREAMS);
        let track = *self.tracks.entry(stream).or_insert(STREAMS + known);
        if track == STREAMS + known {
            let name =
                if stream == 0 { "the default stream".to_owned() } else { format!("stream {stream:#x}") };
            self.events.track(rank, track, &name)?;
        }
        self.events.write(&json!({
            "ph": "i", "s": "t", "cat": "given", "name": &*shape.name, "pid": rank, "tid": track,
            "ts": microseconds(self.offset + of.entered), "args": {"call": of.number}
        }))?;
        Ok(())
    }
}

/// The arguments of a call, and its number in its process, by which reports name it.
fn arguments(process: &ProcessFile, shape: ShapeId, number: u32) -> Map<String, Value> {
    let shape = process.shape(shape);
    let pairs = shape.keys.iter().zip(&shape.values);
    let pairs = pairs.map(|(key, value)| (key.to_string(), Value::String(value.to_string())));
    pairs.chain([("call".to_owned(), Value::from(number))]).collect()
}
