//! The diagram of a recorded run: what was judged of it, with the times at which its calls were made.
//!
//! Not here: what is found ([`crate::runs`]).

use std::collections::BTreeSet;

use rankcheck_model::{Rank, Source as _};
use rankcheck_recording::{CallEvent, ProcessFile, ShapeId};
use rustc_hash::FxHashMap;

use super::diagram::{AboutFinding, Diagram, DiagramMemory, LaneKind, Stated};
use super::explained::rule_text;
use super::replayed::{Marks, RunPart};
use super::{layout, said};
use crate::runs::RunError;
use crate::runs::judge::{Judged, RunVerdict, replayed};
use crate::runs::report::{class, text};
use crate::search::{Located, Replayed};

/// Operations beyond which a run is not told step by step: it would take gigabytes.
const STEPS_TOLD: u64 = 300_000;

/// Returns the diagram of a recorded run.
///
/// # Errors
/// If its files cannot be read any more.
pub fn diagram(judged: &Judged) -> Result<Diagram, RunError> {
    let mut left_out = Vec::new();
    let run = if judged.steps <= STEPS_TOLD {
        Some(replayed(judged)?)
    } else {
        left_out.push(format!(
            "no step is shown: the run has {} operations, and up to {STEPS_TOLD} are drawn; `rankcheck timeline` writes \
             all of its calls",
            judged.steps
        ));
        None
    };
    let part = run.as_ref().map_or_else(RunPart::default, |run| part(judged, run));
    let RunPart { texts, places, lanes, steps, meetings, order, blocked, cycle, memory } = part;
    let mut diagram = Diagram {
        about: about(judged),
        texts: texts.all,
        places: places.all,
        lanes,
        folds: Vec::new(),
        steps,
        meetings,
        order,
        blocked,
        cycle,
        memory,
        sources: Vec::new(),
        devices: Vec::new(),
        left_out,
        report: text(judged),
    };
    // Where nobody specifies what follows, the model has said nothing of what buffers hold.
    if judged.undefined {
        diagram.memory = DiagramMemory::default();
    }
    if let Some(run) = &run {
        time(judged, run, &mut diagram)?;
    }
    diagram.left_out.extend(judged.recording.folds.iter().map(|fold| format!("not shown again: {fold}")));
    layout::finish(&mut diagram);
    Ok(diagram)
}

fn part(judged: &Judged, run: &Replayed) -> RunPart {
    let program = &judged.recording.program;
    let located = |op: &rankcheck_model::OpRef| Located { op: *op, loc: program.loc(op.loc) };
    let finding: Vec<Located> =
        judged.findings.first().map_or_else(Vec::new, |first| first.ops.iter().map(located).collect());
    RunPart::of(run, &Marks { finding: &finding, essential: &[], cause: Vec::new() })
}

fn about(judged: &Judged) -> AboutFinding {
    let report = text(judged);
    let (sentences, facts) = said(&report);
    let folder = judged.recording.folder.display().to_string();
    let calls: u64 = judged.there().map(|(_, program)| program.calls).sum();
    let named =
        |label: &str| facts.iter().find(|fact| fact.label == label).and_then(|fact| fact.lines.first());
    let sentence =
        sentences.first().or_else(|| named("root")).or_else(|| named("cycle")).or_else(|| named("unknown"));
    let found = matches!(judged.verdict, RunVerdict::Fails | RunVerdict::Hangs);
    AboutFinding {
        origin: "run",
        verdict: verdict(judged.verdict),
        rule: judged.findings.first().map(|finding| rule_text(finding.rule)),
        title: title(&folder),
        place: folder.clone(),
        setting: format!("{} ranks, {calls} calls", judged.recording.world.ranks),
        outcome: if found { class(judged).name().to_owned() } else { String::new() },
        stated: stated(judged),
        sentence: sentence.cloned().unwrap_or_default(),
        facts,
    }
}

/// The last two parts of a path: runs of one program lie together, and are called alike.
fn title(folder: &str) -> String {
    let parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
    parts[parts.len().saturating_sub(2)..].join("/")
}

/// Whether a recorded run is as it should be.
#[must_use]
pub fn stated(judged: &Judged) -> Stated {
    if judged.verdict == RunVerdict::Holds && !judged.waived_in_vain.is_empty() {
        return Stated::No;
    }
    stated_of(judged.verdict)
}

/// Whether a run with this verdict is as it should be.
pub(super) fn stated_of(verdict: RunVerdict) -> Stated {
    match verdict {
        RunVerdict::Holds => Stated::Holds,
        RunVerdict::Fails | RunVerdict::Hangs => Stated::No,
        RunVerdict::Unknown => Stated::Unknown,
    }
}

/// A verdict as reports begin with it.
pub(super) fn verdict(verdict: RunVerdict) -> &'static str {
    match verdict {
        RunVerdict::Holds => "HOLDS",
        RunVerdict::Fails => "FAILS",
        RunVerdict::Hangs => "HANGS",
        RunVerdict::Unknown => "UNKNOWN",
    }
}

/// Gives the steps of host threads the times of their calls, and says what they were called with.
fn time(judged: &Judged, run: &Replayed, diagram: &mut Diagram) -> Result<(), RunError> {
    let program = &judged.recording.program;
    let mut wanted: FxHashMap<u32, BTreeSet<u32>> = FxHashMap::default();
    let number = |at: &Located| program.origin(at.op.loc).map(|origin| origin.number);
    for step in &run.steps {
        if let Some(number) = number(&step.at) {
            wanted.entry(step.at.op.rank.0).or_default().insert(number);
        }
    }
    let first = judged.recording.world.members.iter().map(|m| judged.recording.began[m.rank.at()]).min();
    let mut calls: FxHashMap<(u32, u32), TimedCall> = FxHashMap::default();
    for member in &judged.recording.world.members {
        let offset = judged.recording.began[member.rank.at()] - first.unwrap_or(0);
        let mut process = ProcessFile::open(&member.path)?;
        let wanted = wanted.remove(&member.rank.0).unwrap_or_default();
        read_calls(&mut process, (member.rank, offset), &wanted, &mut calls)?;
    }
    // Times are told from the first call on that is shown.
    let start = calls.values().map(|call| call.began).min().unwrap_or(0);
    let mut notes: FxHashMap<String, usize> = FxHashMap::default();
    for (step, told) in diagram.steps.iter_mut().zip(&run.steps) {
        let on_host = diagram.lanes[step.lane].kind == LaneKind::Thread;
        let call = number(&told.at).and_then(|number| calls.get(&(told.at.op.rank.0, number)));
        let Some(call) = call.filter(|_| on_host) else { continue };
        step.time = Some((call.began - start, call.over.map(|over| over - start)));
        if step.note.is_none() {
            let texts = &mut diagram.texts;
            let note = notes.entry(call.text.clone()).or_insert_with(|| {
                texts.push(call.text.clone());
                texts.len() - 1
            });
            step.note = Some(*note);
        }
    }
    Ok(())
}

/// A call as it was recorded.
struct TimedCall {
    began: u64,
    over: Option<u64>,
    /// Its name, and what it was called with.
    text: String,
}

/// Reads the calls of a process that have these numbers.
fn read_calls(
    process: &mut ProcessFile,
    (rank, offset): (Rank, u64),
    wanted: &BTreeSet<u32>,
    calls: &mut FxHashMap<(u32, u32), TimedCall>,
) -> Result<(), RunError> {
    let mut open: FxHashMap<u32, Vec<u32>> = FxHashMap::default();
    let mut number = 0;
    while let Some(event) = process.next_event()? {
        match event {
            CallEvent::Enter { time, thread, call } => {
                if !process.shape(call).instant {
                    open.entry(thread).or_default().push(number);
                }
                if wanted.contains(&number) {
                    let call = TimedCall { began: offset + time, over: None, text: called(process, call) };
                    calls.insert((rank.0, number), call);
                }
                number += 1;
            }
            CallEvent::Return { time, thread, .. } => {
                let of = open.entry(thread).or_default().pop();
                if let Some(call) = of.and_then(|number| calls.get_mut(&(rank.0, number))) {
                    call.over = Some(offset + time);
                }
            }
            CallEvent::Lost { .. } => {}
        }
    }
    Ok(())
}

/// A call with its arguments, as it was recorded.
fn called(process: &ProcessFile, shape: ShapeId) -> String {
    let shape = process.shape(shape);
    let pairs = shape.keys.iter().zip(&shape.values).map(|(key, value)| format!("{key} = {value}"));
    let pairs: Vec<String> = pairs.collect();
    format!("{}({})", shape.name, pairs.join(", "))
}
