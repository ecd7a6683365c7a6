//! The diagram of a job that was looked at from outside: what its processes gave to their devices, group by group.
//!
//! Times are those of the hosts when they launched, and when a device was seen to be done. Not here: what is found
//! ([`crate::launches`]).

use std::collections::{BTreeMap, BTreeSet};

use rankcheck_model::Rule;

use super::diagram::{
    AboutFinding, Diagram, DiagramLane, DiagramMemory, DiagramStep, DiagramWait, LaneKind, Mark, SourcePlace,
    StepRole,
};
use super::explained::rule_text;
use super::paths::{PathPoint, PathSeed, RepairsTried};
use super::recorded::{last_parts, stated_of, verdict};
use super::replayed::{Interned, cycle};
use super::{headline, layout, paths, said};
use crate::launches::job::{DeviceLaunch, GroupAt, KnownCompletion, What};
use crate::launches::judge::JudgedJob;
use crate::launches::positions::Positions;
use crate::launches::report::{class_text, follows, text};
use crate::launches::waits::{LaunchAt, RootKind};
use crate::runs::judge::RunVerdict;
use crate::runs::report::size_in_words;

/// Returns the diagram of a job.
#[must_use]
pub fn diagram(judged: &JudgedJob) -> Diagram {
    let mut drawing = Drawing::new(judged);
    drawing.steps();
    drawing.meetings();
    drawing.marks();
    drawing.blocked();
    let Drawing { texts, places, lanes, steps, meetings, order, blocked, .. } = drawing;
    let mut diagram = Diagram {
        about: about(judged),
        texts: texts.all,
        places: places.all,
        cycle: cycle(&blocked, &lanes.all),
        lanes: lanes.all,
        folds: Vec::new(),
        steps,
        meetings,
        order,
        blocked,
        memory: DiagramMemory::default(),
        lines: Vec::new(),
        sources: Vec::new(),
        devices: Vec::new(),
        left_out: Vec::new(),
        report: text(judged),
    };
    let seeds = seeds(judged, &diagram);
    let diverge = paths::mark(&mut diagram, &seeds);
    let wrong = matches!(judged.verdict, RunVerdict::Fails | RunVerdict::Hangs);
    let look_at = wrong.then(|| paths::look_at(&diagram, RepairsTried::Nothing));
    diagram.about.add_paths(diverge, look_at);
    layout::finish(&mut diagram);
    diagram
}

/// Where to look for the calls in which ranks diverge: what differs, or else what is open and who is waited for.
fn seeds(judged: &JudgedJob, diagram: &Diagram) -> Vec<PathSeed> {
    let rank = |lane: usize| diagram.lanes[lane].rank;
    let steps = diagram.steps.iter().zip(0..).filter(|(step, _)| step.mark == Some(Mark::Finding));
    let found: Vec<PathSeed> =
        steps.map(|(step, nth)| PathSeed { rank: rank(step.lane), at: Some(PathPoint::Step(nth)) }).collect();
    if !found.is_empty() {
        return found;
    }
    let waits = diagram.blocked.iter().zip(0..);
    let waits = waits.map(|(wait, nth)| PathSeed { rank: rank(wait.lane), at: Some(PathPoint::Wait(nth)) });
    waits.chain(judged.waits.roots.iter().map(|root| PathSeed { rank: root.rank, at: None })).collect()
}

/// What goes wrong, in a sentence.
fn headline(judged: &JudgedJob) -> String {
    match (judged.verdict, judged.rules().first()) {
        (RunVerdict::Fails, Some(rule)) => headline::headline(*rule, follows(judged)),
        (RunVerdict::Fails, None) => "Ranks make different calls where all have to make the same.".to_owned(),
        (RunVerdict::Hangs, _) => {
            let did = |kind: RootKind| match kind {
                RootKind::DidNotLaunch(_) => "did not make the call",
                RootKind::Stands(_) => "has not finished a call that others have finished",
                RootKind::HasNotBegun(..) => "has not begun a call that others have begun",
                RootKind::NotKnown(_) => "is not known",
            };
            let root = judged.waits.roots.first();
            let waiting: Vec<u32> =
                root.map_or_else(Vec::new, |root| root.awaited_by.iter().copied().collect());
            let root = root.map(|root| (root.rank, waiting.as_slice(), did(root.kind)));
            let steps = judged.waits.circles.first().into_iter().flatten();
            let circle: BTreeSet<u32> =
                steps.map(|step| judged.job.processes[step.waits_in.process].rank).collect();
            headline::stands(root, &circle.into_iter().collect::<Vec<u32>>())
        }
        (RunVerdict::Unknown, _) => "Too little is known to tell whether this job is right.".to_owned(),
        (RunVerdict::Holds, _) => "Nothing is wrong with what is known of this job.".to_owned(),
    }
}

fn about(judged: &JudgedJob) -> AboutFinding {
    let report = text(judged);
    let (sentences, facts) = said(&report);
    let source = judged.job.source.display().to_string();
    let named =
        |label: &str| facts.iter().find(|fact| fact.label == label).and_then(|fact| fact.lines.first());
    // Where a job hangs, its root comes first.
    let sentence =
        named("root").or_else(|| named("cycle")).or(sentences.first()).or_else(|| named("unknown"));
    let rules: BTreeSet<Rule> = judged.rules();
    AboutFinding {
        origin: match judged.job.completion {
            KnownCompletion::Seen => "dumps",
            KnownCompletion::Concluded => "log",
        },
        verdict: verdict(judged.verdict),
        rule: rules.first().map(|rule| rule_text(*rule)),
        headline: headline(judged),
        title: title(judged, &source),
        place: source,
        setting: size_in_words(judged.job.processes.len(), judged.calls()),
        outcome: class_text(judged).to_owned(),
        stated: stated_of(judged.verdict),
        sentence: sentence.cloned().unwrap_or_default(),
        facts,
    }
}

/// What was looked at, and where it lies.
fn title(judged: &JudgedJob, source: &str) -> String {
    match judged.job.completion {
        KnownCompletion::Seen => format!("dumps {}", last_parts(source)),
        KnownCompletion::Concluded => format!("NCCL log {}", last_parts(source)),
    }
}

/// A diagram that is being filled.
struct Drawing<'a> {
    judged: &'a JudgedJob,
    texts: Interned<String>,
    places: Interned<SourcePlace>,
    lanes: Interned<DiagramLane>,
    steps: Vec<DiagramStep>,
    /// The step of each launch.
    numbers: BTreeMap<LaunchAt, usize>,
    meetings: Vec<Vec<usize>>,
    order: Vec<(usize, usize)>,
    blocked: Vec<DiagramWait>,
}

impl<'a> Drawing<'a> {
    fn new(judged: &'a JudgedJob) -> Self {
        let mut lanes: Interned<DiagramLane> = Interned::default();
        for process in &judged.job.processes {
            let groups: BTreeSet<GroupAt> = process.launches.iter().map(|launch| launch.group).collect();
            for group in groups {
                lanes.number(lane(judged, process.rank, group));
            }
        }
        Self {
            judged,
            texts: Interned::default(),
            places: Interned::default(),
            lanes,
            steps: Vec::new(),
            numbers: BTreeMap::new(),
            meetings: Vec::new(),
            order: Vec::new(),
            blocked: Vec::new(),
        }
    }

    fn launch(&self, at: LaunchAt) -> &'a DeviceLaunch {
        &self.judged.job.processes[at.process].launches[at.launch as usize]
    }

    fn text(&mut self, at: LaunchAt) -> usize {
        let launch = self.launch(at);
        let mut text = launch.calls.first().map_or_else(String::new, |call| self.judged.job.call_name(call));
        if launch.calls.len() > 1 {
            text.push_str(&format!(" with {} more", launch.calls.len() - 1));
        }
        self.texts.number(text)
    }

    fn place(&mut self, at: LaunchAt) -> Option<usize> {
        let place = self.launch(at).calls.iter().find_map(|call| call.place.as_ref())?;
        let line = u32::try_from(place.line).unwrap_or(0);
        Some(self.places.number(SourcePlace { file: place.file.to_string(), line, called_at: None }))
    }

    /// Every launch, in the order of the hosts' clocks; those of one process in the order in which it made them. Where nothing
    /// says when they were made, the n-th of each process stand together.
    fn steps(&mut self) {
        let mut all: Vec<(i64, LaunchAt)> = Vec::new();
        let launches = self.judged.job.processes.iter().flat_map(|of| &of.launches);
        let timed = launches.clone().any(|launch| launch.created.is_some());
        for (process, of) in self.judged.job.processes.iter().enumerate() {
            let mut latest = i64::MIN;
            for (made, launch) in of.launches.iter().zip(0..) {
                latest = latest.max(if timed { made.created.unwrap_or(latest) } else { i64::from(launch) });
                all.push((latest, LaunchAt { process, launch }));
            }
        }
        all.sort();
        let first = launches.filter_map(|launch| launch.created).min().unwrap_or(0);
        let since = |time: i64| u64::try_from(time.saturating_sub(first)).unwrap_or(0);
        let mut before: BTreeMap<usize, usize> = BTreeMap::new();
        for (_, at) in all {
            let launch = self.launch(at);
            let lane = lane(self.judged, self.judged.job.processes[at.process].rank, launch.group);
            let lane = self.lanes.number(lane);
            let number = self.steps.len();
            self.numbers.insert(at, number);
            // A host launches one after the other, whatever group that is for.
            if let Some(earlier) = before.insert(at.process, number)
                && self.steps[earlier].lane != lane
            {
                self.order.push((earlier, number));
            }
            let calls: Vec<String> =
                launch.calls.iter().map(|call| self.judged.job.call_text(launch.group, call)).collect();
            let note = (calls.len() > 1).then(|| self.texts.number(calls.join(", ")));
            let step = DiagramStep {
                lane,
                text: self.text(at),
                place: self.place(at),
                row: 0,
                mark: None,
                note,
                quiet: false,
                path: None,
                role: StepRole::Alike,
                time: launch.created.map(|created| (since(created), launch.finished.map(since))),
            };
            self.steps.push(step);
        }
    }

    /// The n-th collective of a group meets the n-th of every member; transfers meet where both ends are known from the
    /// first on.
    fn meetings(&mut self) {
        let positions = Positions::of(&self.judged.job);
        for members in &positions.groups {
            let mut meeting: BTreeMap<u64, BTreeSet<usize>> = BTreeMap::new();
            for member in members {
                for (number, launch) in &member.calls {
                    let at = LaunchAt { process: member.process, launch: *launch };
                    meeting.entry(*number).or_default().extend(self.numbers.get(&at));
                }
            }
            let met = meeting.into_values().filter(|steps| steps.len() > 1);
            self.meetings.extend(met.map(|steps| steps.into_iter().collect::<Vec<_>>()));
        }
        let job = &self.judged.job;
        for (lane, ends) in &positions.lanes {
            let (Some(from), Some(to)) = (job.process_at(lane.from), job.process_at(lane.to)) else {
                continue;
            };
            if from == to || !job.processes[from].from_start || !job.processes[to].from_start {
                continue;
            }
            for ((sent, _), (received, _)) in ends.sends.iter().zip(&ends.recvs) {
                let ends =
                    [LaunchAt { process: from, launch: *sent }, LaunchAt { process: to, launch: *received }];
                let met: BTreeSet<usize> =
                    ends.iter().filter_map(|at| self.numbers.get(at).copied()).collect();
                if met.len() > 1 {
                    self.meetings.push(met.into_iter().collect());
                }
            }
        }
        self.meetings.sort();
        self.meetings.dedup();
    }

    fn mark(&mut self, at: LaunchAt, mark: Mark) {
        if let Some(step) = self.numbers.get(&at) {
            let step = &mut self.steps[*step];
            step.mark = step.mark.max(Some(mark));
        }
    }

    fn marks(&mut self) {
        let job = &self.judged.job;
        for difference in &self.judged.compared.differences {
            for rank in difference.sides.iter().flat_map(|side| &side.ranks) {
                let Some(process) = job.process_at(*rank) else { continue };
                let is = |launch: &DeviceLaunch| {
                    let numbered = |call: &crate::launches::job::LaunchedCall| match difference.number {
                        Some(number) => call.number == Some(number),
                        None => matches!(call.what, What::Send(_) | What::Recv(_)),
                    };
                    launch.group == difference.group && launch.calls.iter().any(numbered)
                };
                let launches = job.processes[process].launches.iter().zip(0..);
                let of: Vec<u32> = launches.filter(|(launch, _)| is(launch)).map(|(_, at)| at).collect();
                // Of transfers it is not known which: the last is where it shows.
                let of =
                    if difference.number.is_some() { of } else { of.into_iter().rev().take(1).collect() };
                of.into_iter().for_each(|launch| self.mark(LaunchAt { process, launch }, Mark::Finding));
            }
        }
        for step in self.judged.compared.inversions.iter().flat_map(|inversion| &inversion.steps) {
            let Some(process) = job.process_at(step.rank) else { continue };
            self.mark(LaunchAt { process, launch: step.before }, Mark::Finding);
            self.mark(LaunchAt { process, launch: step.after }, Mark::Finding);
        }
        for root in &self.judged.waits.roots {
            match root.kind {
                RootKind::Stands(stands) => self.mark(stands.launch, Mark::Cause),
                RootKind::HasNotBegun(at, _) => self.mark(at, Mark::Cause),
                RootKind::DidNotLaunch(_) => {
                    let Some(process) = job.process_at(root.rank) else { continue };
                    let launches = u32::try_from(job.processes[process].launches.len()).unwrap_or(0);
                    if let Some(launch) = launches.checked_sub(1) {
                        self.mark(LaunchAt { process, launch }, Mark::Cause);
                    }
                }
                RootKind::NotKnown(_) => {}
            }
        }
    }

    /// The oldest open launch of each rank that waits.
    fn blocked(&mut self) {
        let job = &self.judged.job;
        let waiting = &self.judged.waits.waiting;
        let rank_of = |at: &LaunchAt| job.processes[at.process].rank;
        for (at, awaits) in waiting {
            let waits_for: Vec<usize> = waiting
                .iter()
                .enumerate()
                .filter(|(_, (other, _))| other != at && awaits.contains(&rank_of(other)))
                .map(|(nth, _)| nth)
                .collect();
            let waits: BTreeSet<u32> = waits_for.iter().map(|nth| rank_of(&waiting[*nth].0)).collect();
            let launch = self.launch(*at);
            let lane = self.lanes.number(lane(self.judged, rank_of(at), launch.group));
            let (text, place) = (self.text(*at), self.place(*at));
            let step = self.numbers.get(at).copied();
            self.blocked.push(DiagramWait {
                lane,
                step,
                text,
                place,
                waits_in: format!("in {}", job.launch_text(launch)),
                waits_for,
                in_vain: awaits.difference(&waits).copied().collect(),
                row: 0,
                finding: step.is_some_and(|step| self.steps[step].mark == Some(Mark::Finding)),
                path: None,
            });
        }
    }
}

fn lane(judged: &JudgedJob, rank: u32, group: GroupAt) -> DiagramLane {
    DiagramLane { rank, kind: LaneKind::Group, name: judged.job.group_text(group) }
}
