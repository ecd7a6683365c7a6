//! The diagram of a recorded run: what was judged of it, with the times at which its calls were made.
//!
//! Not here: what is found ([`crate::runs`]).

use std::collections::BTreeSet;

use rankcheck_model::machine::Kind;
use rankcheck_model::{LocId, Rank, Source as _};
use rankcheck_recording::{CallEvent, ProcessFile, ShapeId};
use rustc_hash::FxHashMap;

use super::diagram::{AboutFinding, Diagram, DiagramMemory, LaneKind, Stated};
use super::explained::rule_text;
use super::paths::{PathPoint, PathSeed, RepairsTried};
use super::replayed::{Marks, RunPart};
use super::{headline, layout, paths, said};
use crate::runs::RunError;
use crate::runs::judge::{Judged, RecordedJob, RunVerdict, replayed};
use crate::runs::report::{RunClass, class, size_in_words, text};
use crate::runs::stuck::HostEnd;
use crate::search::{Located, Replayed};

/// Operations beyond which a run is not told step by step: it would take gigabytes.
const STEPS_TOLD: u64 = 300_000;

/// What is not shown unless somebody asks for it: a recorded run has an event and a kernel for nearly every call that
/// other ranks take part in.
const QUIET: [Kind; 2] = [Kind::Bookkeeping, Kind::OwnDevice];

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
    let mut diagram = part.diagram(about(judged), text(judged));
    diagram.left_out = left_out;
    // Where nobody specifies what follows, the model has said nothing of what buffers hold.
    if judged.undefined {
        diagram.memory = DiagramMemory::default();
    }
    if let Some(run) = &run {
        let seeds = seeds(judged, run, &diagram);
        let diverge = paths::mark(&mut diagram, &seeds);
        let wrong = matches!(judged.verdict, RunVerdict::Fails | RunVerdict::Hangs);
        let look_at = wrong.then(|| paths::look_at(&diagram, RepairsTried::Nothing));
        diagram.about.add_paths(diverge, look_at);
        time(judged, run, &mut diagram)?;
    }
    diagram.left_out.extend(judged.recording.folds().map(|fold| format!("not shown again: {fold}")));
    layout::finish(&mut diagram);
    Ok(diagram)
}

fn part(judged: &Judged, run: &Replayed) -> RunPart {
    let program = &judged.recording.program;
    let located = |op: &rankcheck_model::OpRef| Located { op: *op, loc: program.loc(op.loc) };
    let finding: Vec<Located> =
        judged.findings.first().map_or_else(Vec::new, |first| first.ops.iter().map(located).collect());
    RunPart::of(run, &Marks { finding: &finding, essential: &[], cause: Vec::new(), quiet: &QUIET })
}

/// Where to look for the lines in which ranks diverge: where their calls differ, or else before what the finding is about,
/// or what stands.
fn seeds(judged: &Judged, run: &Replayed, diagram: &Diagram) -> Vec<PathSeed> {
    let at = |rank: Rank, loc: LocId| {
        let step = run.steps.iter().position(|step| step.at.op.rank == rank && step.at.op.loc == loc);
        let wait = || run.blocked.iter().position(|of| of.at.op.rank == rank && of.at.op.loc == loc);
        step.map(PathPoint::Step).or_else(|| wait().map(PathPoint::Wait))
    };
    let seed =
        |rank: Rank, loc: Option<LocId>| PathSeed { rank: rank.0, at: loc.and_then(|loc| at(rank, loc)) };
    if let Some(divergence) = judged.divergences.first() {
        return divergence.apart().into_iter().map(|(rank, loc)| seed(rank, loc)).collect();
    }
    if let Some(finding) = judged.findings.first() {
        return finding.ops.iter().map(|op| seed(op.rank, Some(op.loc))).collect();
    }
    let waits = diagram.blocked.iter().zip(0..);
    let waits = waits
        .map(|(wait, nth)| PathSeed { rank: diagram.lanes[wait.lane].rank, at: Some(PathPoint::Wait(nth)) });
    let roots = judged.stuck.roots.iter().map(|root| seed(root.rank, None));
    waits.chain(roots).collect()
}

/// What goes wrong, in a sentence.
fn headline(judged: &Judged) -> String {
    let follows = match class(judged) {
        RunClass::Latent => "the recorded run happened to get through",
        RunClass::Error => "a call returned an error",
        RunClass::Hang => "the run hung",
        RunClass::Ended => "the run did not end in order",
    };
    match (judged.verdict, judged.findings.first()) {
        (RunVerdict::Fails, Some(finding)) => headline::headline(finding.rule, follows),
        (RunVerdict::Fails, None) => {
            format!("Ranks make different calls where all have to make the same: {follows}.")
        }
        (RunVerdict::Hangs, _) => {
            let gone = |end: HostEnd| match end {
                HostEnd::Exited(0) => "had ended",
                HostEnd::Exited(_) => "had exited with an error",
                HostEnd::Raised => "had raised an exception",
                HostEnd::Died => "was gone",
                HostEnd::NotRecorded => "was not recorded",
                HostEnd::GoesOn | HostEnd::Waits => "had not come",
            };
            let ranks = |ranks: &[Rank]| ranks.iter().map(|rank| rank.0).collect::<Vec<u32>>();
            let root = judged.stuck.roots.first();
            let waiting = root.map_or_else(Vec::new, |root| ranks(&root.awaited_by));
            let root = root.map(|root| (root.rank.0, waiting.as_slice(), gone(root.end)));
            let hops = judged.stuck.cycles.first().into_iter().flatten();
            let circle: BTreeSet<u32> = hops.map(|hop| hop.rank.0).collect();
            headline::stands(root, &circle.into_iter().collect::<Vec<u32>>())
        }
        (RunVerdict::Unknown, _) => "Too little was recorded to tell whether this run is right.".to_owned(),
        (RunVerdict::Holds, _) => "Nothing is wrong with what was recorded.".to_owned(),
    }
}

fn about(judged: &Judged) -> AboutFinding {
    let report = text(judged);
    let (sentences, facts) = said(&report);
    let folder = judged.recording.folder.display().to_string();
    let calls = judged.recording.calls();
    let named =
        |label: &str| facts.iter().find(|fact| fact.label == label).and_then(|fact| fact.lines.first());
    let sentence =
        sentences.first().or_else(|| named("root")).or_else(|| named("cycle")).or_else(|| named("unknown"));
    let found = matches!(judged.verdict, RunVerdict::Fails | RunVerdict::Hangs);
    let mut title = format!("recorded run {}", last_parts(&folder));
    let mut setting = size_in_words(judged.recording.world.ranks as usize, calls);
    if let Some(RecordedJob { nth, of, command }) = &judged.recording.job {
        // Pages are named after their titles.
        title = format!("{title}, job {nth} of {of}");
        setting = format!("{command}: {setting}");
    }
    AboutFinding {
        origin: "run",
        verdict: verdict(judged.verdict),
        rule: judged.findings.first().map(|finding| rule_text(finding.rule)),
        headline: headline(judged),
        title,
        place: folder.clone(),
        setting,
        outcome: if found { class(judged).name().to_owned() } else { String::new() },
        stated: stated(judged),
        sentence: sentence.cloned().unwrap_or_default(),
        facts,
    }
}

/// The last two parts of a path: runs of one program lie together, and are called alike.
pub(super) fn last_parts(folder: &str) -> String {
    let named = |part: &&str| !part.is_empty() && *part != "." && !part.contains('*');
    let parts: Vec<&str> = folder.split('/').filter(named).collect();
    match parts.len() {
        0 => folder.to_owned(),
        count => parts[count.saturating_sub(2)..].join("/"),
    }
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
