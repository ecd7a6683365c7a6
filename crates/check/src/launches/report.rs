//! What people and tools read about a job that was looked at from outside. Rows and fields are those of recorded runs.
//!
//! Not here: how any of it was found.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use rankcheck_model::Rule;
use serde::Serialize;

use super::compare::{CallDifference, Inversion};
use super::job::{DeviceLaunch, KnownCompletion, LaunchState, NotCompared, Process, What};
use super::judge::{JudgedJob, in_words};
use super::left_out::LeftOutCall;
use super::positions::TransferLane;
use super::waits::{CallAt, CircleStep, JobRoot, RootKind};
use crate::runs::judge::RunVerdict;
use crate::runs::report::{rows, size_in_words};

/// Returns the report, without a trailing newline.
#[must_use]
pub fn text(judged: &JudgedJob) -> String {
    let mut out = String::new();
    let what = match (judged.verdict, judged.rules().first()) {
        (RunVerdict::Fails, Some(rule)) => format!("FAILS {rule}"),
        (verdict, _) => verdict.name().to_uppercase(),
    };
    let source = judged.job.source.display();
    let size = size_in_words(judged.job.processes.len(), judged.calls());
    let _ = write!(out, "{what}  {source}   {size}");
    if judged.verdict == RunVerdict::Holds {
        let _ = write!(out, ": nothing wrong up to here");
    } else if judged.verdict != RunVerdict::Unknown {
        let _ = write!(out, ", {}", JobClass::of(judged).text());
    }
    rows(&mut out, "root", &roots(judged));
    rows(&mut out, "cycle", &cycles(judged));
    for finding in findings(judged) {
        let _ =
            write!(out, "\n{}.\n  rule      {}: {}", finding.sentence, finding.rule, finding.rule.title());
    }
    rows(&mut out, "stands", &standing(judged));
    rows(&mut out, "timed out", &timed_out(judged));
    rows(&mut out, "warned", &warned(judged));
    rows(&mut out, "unknown", &judged.unknown);
    rows(&mut out, "judged", &[coverage(judged)]);
    rows(&mut out, "rests on", &rests(judged));
    out
}

/// What became of the job, as far as that is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum JobClass {
    /// It is known to have stood still.
    Hang,
    /// All that is known to have been called is over.
    Latent,
    /// Some calls are not known to be over, and nothing proves that they stand.
    Open,
}

impl JobClass {
    fn of(judged: &JudgedJob) -> Self {
        let is_over = |launch: &DeviceLaunch| launch.state == LaunchState::Done;
        // Where it is concluded what is over, a device may stand in any call all the same.
        let seen = judged.job.completion == KnownCompletion::Seen;
        if judged.stood_still() {
            Self::Hang
        } else if seen && judged.job.processes.iter().flat_map(|of| &of.launches).all(is_over) {
            Self::Latent
        } else {
            Self::Open
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Hang => "hang",
            Self::Latent => "latent",
            Self::Open => "open",
        }
    }

    const fn text(self) -> &'static str {
        match self {
            Self::Hang => "hang",
            Self::Latent => "latent: every call that is known is over",
            Self::Open => "open: whether it stood still is not known",
        }
    }
}

/// Returns what became of the job, as far as that is known, in words.
#[must_use]
pub fn class_text(judged: &JudgedJob) -> &'static str {
    JobClass::of(judged).text()
}

/// Returns what follows of a broken rule, as the end of a sentence.
#[must_use]
pub fn follows(judged: &JudgedJob) -> &'static str {
    match JobClass::of(judged) {
        JobClass::Hang => "the job hung",
        JobClass::Latent => "every call that is known is over all the same",
        JobClass::Open => "whether the job hung is not known",
    }
}

/// A rule that is broken.
struct Found {
    rule: Rule,
    sentence: String,
    at: Vec<(u32, Option<String>)>,
}

fn findings(judged: &JudgedJob) -> Vec<Found> {
    let differences = judged.compared.differences.iter().map(|difference| Found {
        rule: difference.rule,
        sentence: difference_text(judged, difference),
        at: difference
            .sides
            .iter()
            .flat_map(|side| {
                side.ranks.iter().map(|rank| (*rank, side.place.as_ref().map(ToString::to_string)))
            })
            .collect(),
    });
    let inversions = judged.compared.inversions.iter().map(|inversion| Found {
        rule: Rule::Coll4,
        sentence: inversion_text(judged, inversion),
        at: inversion.steps.iter().map(|step| (step.rank, None)).collect(),
    });
    differences.chain(inversions).collect()
}

fn difference_text(judged: &JudgedJob, difference: &CallDifference) -> String {
    let sides = difference.sides.iter().map(|side| {
        let place = side.place.as_ref().map_or_else(String::new, |place| format!(" ({place})"));
        format!("{} on {}{place}", side.text, in_words(&side.ranks))
    });
    let sides = sides.collect::<Vec<_>>().join(" and ");
    let group = judged.job.group_text(difference.group);
    let mut text = match difference.number {
        Some(number) => format!("collective #{number} of {group} is {sides}"),
        None => format!("a transfer of {group} is {sides}"),
    };
    if let Some(rank) = difference.left_out_by {
        let _ = write!(
            text,
            "; rank {rank} goes on as the others do one call later, as if it had left this one out"
        );
    } else if difference.number.is_some() {
        text.push_str(match (difference.majority(), difference.sides.len()) {
            (Some(_), _) => "; most ranks called the first",
            (None, 2) => "; neither was called by most ranks",
            (None, _) => "; none was called by most ranks",
        });
    }
    text
}

fn inversion_text(judged: &JudgedJob, inversion: &Inversion) -> String {
    let job = &judged.job;
    let called = |rank: u32, launch: u32| {
        let process = job.process_at(rank).map(|at| &job.processes[at]);
        process.map_or_else(String::new, |process| job.launch_text(&process.launches[launch as usize]))
    };
    let steps = inversion.steps.iter().map(|step| {
        format!(
            "rank {} calls {} before {}",
            step.rank,
            called(step.rank, step.before),
            called(step.rank, step.after)
        )
    });
    format!("collectives of several groups have no one order: {}", steps.collect::<Vec<_>>().join("; "))
}

fn root_text(judged: &JudgedJob, root: &JobRoot) -> String {
    let job = &judged.job;
    let awaited = match root.awaited_by.len() {
        0 => "nobody waits for it yet".to_owned(),
        1 => format!("{} waits for it", in_words(&root.awaited_by)),
        _ => format!("{} wait for it", in_words(&root.awaited_by)),
    };
    let wanted = |CallAt { at, call }: CallAt| {
        let process = &job.processes[at.process];
        let launch = &process.launches[at.launch as usize];
        let call = &launch.calls[call];
        (job.call_text(launch.group, call), matches!(call.what, What::Collective(_)), process.rank)
    };
    match root.kind {
        RootKind::DidNotLaunch(at) => {
            let what = at.map(wanted).map_or_else(String::new, |(text, collective, rank)| match collective {
                true => format!(" {text}, which rank {rank} launched"),
                false => format!(" what the {text} of rank {rank} meets"),
            });
            if job.completion == KnownCompletion::Concluded {
                return format!(
                    "rank {} did not launch{what}{}; {awaited}",
                    root.rank,
                    last_seen(judged, root)
                );
            }
            let last = place(judged, root).map_or_else(
                || "nothing that it launched is open".to_owned(),
                |last| format!("nothing that it launched is open; its last call is at {last}"),
            );
            format!("rank {} did not launch{what}: its host is elsewhere, and {last}; {awaited}", root.rank)
        }
        RootKind::Stands(stands) => {
            let process = &job.processes[stands.launch.process];
            let text = job.launch_text(&process.launches[stands.launch.launch as usize]);
            // It may be over in a moment, or have been looked at before the other one.
            let stands_so =
                if judged.stood_still() { "stands in it, though" } else { "has not finished it, and" };
            format!(
                "rank {} launched {text}; its device {stands_so} that of rank {} has finished it; {awaited}",
                root.rank, stands.finished_by
            )
        }
        RootKind::HasNotBegun(at, begun_by) => {
            let process = &job.processes[at.process];
            let text = job.launch_text(&process.launches[at.launch as usize]);
            format!(
                "rank {} launched {text} and its device stands before it: that of rank {begun_by} has begun it; {awaited}",
                root.rank
            )
        }
        RootKind::NotKnown(at) => {
            let (text, _, rank) = wanted(at);
            format!(
                "rank {} is not known, and the only one that keeps rank {rank} in {text}: it did not launch what that meets, its \
                 device stands, or the call is about to be over; {awaited}",
                root.rank
            )
        }
    }
}

/// What was the last that is seen of a rank: that it is done with a group too early, or its last call.
fn last_seen(judged: &JudgedJob, root: &JobRoot) -> String {
    let job = &judged.job;
    let early = judged.left_early.iter().find(|(rank, _)| *rank == root.rank);
    if let Some((_, at)) = early {
        let group = job.processes[at.process].launches[at.launch as usize].group;
        return format!(", and destroyed {}", job.group_text(group));
    }
    let process = job.process_at(root.rank).map(|at| &job.processes[at]);
    let last = process.and_then(|process| process.launches.last());
    last.map_or_else(String::new, |last| format!("; its last call is {}", job.launch_text(last)))
}

/// Where a root stands: its device in a call, or its host behind its last call.
fn place(judged: &JudgedJob, root: &JobRoot) -> Option<String> {
    let job = &judged.job;
    let process = &job.processes[job.process_at(root.rank)?];
    let place = match root.kind {
        RootKind::Stands(stands) => {
            let launch = &process.launches[stands.launch.launch as usize];
            launch.calls.iter().find_map(|call| call.place.as_ref())
        }
        RootKind::HasNotBegun(at, _) => {
            process.launches[at.launch as usize].calls.iter().find_map(|call| call.place.as_ref())
        }
        RootKind::DidNotLaunch(_) | RootKind::NotKnown(_) => process.last_place(),
    };
    place.map(ToString::to_string)
}

fn roots(judged: &JudgedJob) -> Vec<String> {
    judged.waits.roots.iter().map(|root| root_text(judged, root)).collect()
}

fn step_text(judged: &JudgedJob, step: &CircleStep) -> String {
    let job = &judged.job;
    let process = &job.processes[step.waits_in.process];
    let launch = &process.launches[step.waits_in.launch as usize];
    job.call_text(launch.group, &launch.calls[step.call])
}

fn cycles(judged: &JudgedJob) -> Vec<String> {
    let rank = |process: usize| judged.job.processes[process].rank;
    let circle = |steps: &Vec<CircleStep>| {
        let mut text = String::new();
        let mut before: Option<&CircleStep> = None;
        for step in steps {
            match before {
                None => {
                    let _ = write!(text, "rank {} waits in", rank(step.waits_in.process));
                }
                Some(before) if before.launched => text.push_str(" but waits first in"),
                Some(_) => text.push_str(" and waits in"),
            }
            let how = if step.launched { "launched it" } else { "did not launch it" };
            let _ = write!(text, " {} for rank {}, which {how}", step_text(judged, step), rank(step.awaits));
            before = Some(step);
        }
        if before.is_some_and(|last| last.launched) {
            text.push_str(" behind the first");
        }
        text
    };
    judged.waits.all_circles().map(circle).collect()
}

/// In what ranks wait, those that wait alike together.
fn standing(judged: &JudgedJob) -> Vec<String> {
    let job = &judged.job;
    let mut together: Vec<(String, Vec<u32>, BTreeSet<u32>)> = Vec::new();
    for (at, awaits) in &judged.waits.waiting {
        let process = &job.processes[at.process];
        let launch = &process.launches[at.launch as usize];
        let text = job.launch_text(launch);
        match together.iter_mut().find(|(other, ..)| *other == text) {
            Some((_, ranks, all)) => {
                ranks.push(process.rank);
                all.extend(awaits);
            }
            None => together.push((text, vec![process.rank], awaits.clone())),
        }
    }
    let mut lines: Vec<String> = together
        .into_iter()
        .map(|(text, ranks, awaits)| {
            let verb = if ranks.len() == 1 { "is" } else { "are" };
            let others: Vec<u32> = awaits.into_iter().filter(|rank| !ranks.contains(rank)).collect();
            let whom = if others.is_empty() {
                String::new()
            } else {
                format!(", waiting for {}", in_words(&others))
            };
            format!("{} {verb} in {text}{whom}", in_words(&ranks))
        })
        .collect();
    lines.extend(judged.unmet.iter().map(|(TransferLane { group, from, to }, sends, recvs)| {
        let times = |count: usize| match count {
            0 => "never".to_owned(),
            1 => "once".to_owned(),
            count => format!("{count} times"),
        };
        format!(
            "rank {from} sends {} to rank {to} in {}, and rank {to} receives {} from it",
            times(*sends),
            job.group_text(*group),
            times(*recvs)
        )
    }));
    lines.extend(judged.left_out.iter().map(|left_out| {
        let LeftOutCall { number, rank, place, other, other_place, .. } = left_out;
        format!(
            "from #{number} of {} on the lines differ: rank {rank} is at {place}, and rank {other} at {other_place}, as if rank \
             {rank} had left out {other_place}",
            job.group_text(left_out.group)
        )
    }));
    lines.extend(judged.not_begun.iter().map(|(late, begun)| {
        let launch = &job.processes[late.process].launches[late.launch as usize];
        let rank = job.processes[late.process].rank;
        format!("rank {rank} has not begun {}, which rank {begun} has", job.launch_text(launch))
    }));
    lines
}

fn timed_out(judged: &JudgedJob) -> Vec<String> {
    let job = &judged.job;
    let told = judged.timed_out.iter().map(|at| {
        let process = &job.processes[at.process];
        format!("rank {}: {}", process.rank, job.launch_text(&process.launches[at.launch as usize]))
    });
    told.chain(job.gave_up.iter().cloned()).collect()
}

fn warned(judged: &JudgedJob) -> Vec<String> {
    let warning = |process: &Process| Some(format!("rank {}: {}", process.rank, process.warning.as_ref()?));
    judged.job.processes.iter().filter_map(warning).collect()
}

fn coverage(judged: &JudgedJob) -> String {
    let compared = &judged.compared;
    let plural = |count: u64, word: &str| format!("{count} {word}{}", if count == 1 { "" } else { "s" });
    format!(
        "{} and {} of {} by {}",
        plural(compared.collectives, "collective"),
        plural(compared.transfers, "transfer"),
        plural(compared.groups.len() as u64, "group"),
        plural(compared.ranks.len() as u64, "rank"),
    )
}

fn rests(judged: &JudgedJob) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(library) = &judged.job.library {
        lines.push(format!("NCCL {library}"));
    }
    let waits = judged.waits.names_anybody();
    if judged.job.completion == KnownCompletion::Concluded {
        if waits {
            lines.push("that everything is over that all its ranks could have come to".to_owned());
        }
        if !judged.compared.inversions.is_empty() {
            lines.push("that calls of different communicators were not in one group of calls".to_owned());
        }
    }
    if waits && judged.waits.across_communicators {
        lines.push(
            "that a device does the calls of different communicators in the order in which its host made them"
                .to_owned(),
        );
    }
    if judged.waits.guessed {
        lines.push(
            "that transfers whose first ones are lost meet by their places behind the last collective that both ranks have \
             finished, or else among those that are open"
                .to_owned(),
        );
    }
    let left_out = [
        (NotCompared::Members, "calls are not compared: the members of their groups are not known"),
        (NotCompared::Numbers, "calls are not compared: their numbers do not count the calls of their group"),
        (NotCompared::Peers, "transfers are not compared: they do not say with whom"),
        (
            NotCompared::Inside,
            "calls may be over or not: they are in a group of calls whose end is not there",
        ),
    ];
    for (why, text) in left_out {
        let calls = judged.not_compared(why);
        if calls > 0 {
            lines.push(format!("{calls} {text}"));
        }
    }
    lines.extend(judged.job.notes.iter().cloned());
    lines.extend(judged.job.limits.iter().cloned());
    lines
}

/// A job that was looked at from outside, in the JSON report.
#[derive(Debug, Serialize)]
pub struct JobEntry {
    source: String,
    ranks: usize,
    known_ranks: usize,
    calls: usize,
    nccl: Option<String>,
    verdict: &'static str,
    class: &'static str,
    rules: Vec<&'static str>,
    findings: Vec<FindingEntry>,
    roots: Vec<JobRootEntry>,
    cycles: Vec<Vec<JobHopEntry>>,
    standing: Vec<String>,
    timed_out: Vec<String>,
    warned: Vec<String>,
    unknown: Vec<String>,
    rests_on: Vec<String>,
    judged: JudgedEntry,
    not_compared: NotComparedEntry,
}

#[derive(Debug, Serialize)]
struct FindingEntry {
    rule: &'static str,
    sentence: String,
    at: Vec<FindingAt>,
}

#[derive(Debug, Serialize)]
struct FindingAt {
    rank: u32,
    place: Option<String>,
}

#[derive(Debug, Serialize)]
struct JobRootEntry {
    rank: u32,
    state: &'static str,
    text: String,
    place: Option<String>,
    awaited_by: Vec<u32>,
}

#[derive(Debug, Serialize)]
struct JobHopEntry {
    rank: u32,
    waits: String,
    place: Option<String>,
    awaits: u32,
}

#[derive(Debug, Serialize)]
struct JudgedEntry {
    collectives: u64,
    transfers: u64,
    groups: usize,
    ranks: usize,
}

#[derive(Debug, Serialize)]
struct NotComparedEntry {
    members: u64,
    numbers: u64,
    peers: u64,
    inside: u64,
}

/// Returns what the JSON report says of a job.
#[must_use]
pub fn entry(judged: &JudgedJob) -> JobEntry {
    let job = &judged.job;
    let finding = |found: Found| FindingEntry {
        rule: found.rule.id(),
        sentence: found.sentence,
        at: found.at.into_iter().map(|(rank, place)| FindingAt { rank, place }).collect(),
    };
    let root = |root: &JobRoot| JobRootEntry {
        rank: root.rank,
        state: match root.kind {
            RootKind::DidNotLaunch(_) => "did not launch",
            RootKind::Stands(_) | RootKind::HasNotBegun(..) => "stands",
            RootKind::NotKnown(_) => "not known",
        },
        text: root_text(judged, root),
        place: place(judged, root),
        awaited_by: root.awaited_by.iter().copied().collect(),
    };
    let hop = |step: &CircleStep| {
        let process = &job.processes[step.waits_in.process];
        let call = &process.launches[step.waits_in.launch as usize].calls[step.call];
        JobHopEntry {
            rank: process.rank,
            waits: step_text(judged, step),
            place: call.place.as_ref().map(ToString::to_string),
            awaits: job.processes[step.awaits].rank,
        }
    };
    JobEntry {
        source: job.source.display().to_string(),
        ranks: job.processes.len(),
        known_ranks: judged.known(),
        calls: judged.calls(),
        nccl: job.library.as_deref().map(str::to_owned),
        verdict: judged.verdict.name(),
        class: JobClass::of(judged).name(),
        rules: judged.rules().iter().map(|rule| rule.id()).collect(),
        findings: findings(judged).into_iter().map(finding).collect(),
        roots: judged.waits.roots.iter().map(root).collect(),
        cycles: judged.waits.all_circles().map(|steps| steps.iter().map(hop).collect()).collect(),
        standing: standing(judged),
        timed_out: timed_out(judged),
        warned: warned(judged),
        unknown: judged.unknown.clone(),
        rests_on: rests(judged),
        judged: JudgedEntry {
            collectives: judged.compared.collectives,
            transfers: judged.compared.transfers,
            groups: judged.compared.groups.len(),
            ranks: judged.compared.ranks.len(),
        },
        not_compared: NotComparedEntry {
            members: judged.not_compared(NotCompared::Members),
            numbers: judged.not_compared(NotCompared::Numbers),
            peers: judged.not_compared(NotCompared::Peers),
            inside: judged.not_compared(NotCompared::Inside),
        },
    }
}

/// Returns what is wrong at which rank, for a time axis.
pub(super) fn instants(judged: &JudgedJob) -> Vec<(u32, String)> {
    let roots = judged.waits.roots.iter().map(|root| (root.rank, root_text(judged, root)));
    let findings = findings(judged).into_iter().flat_map(|found| {
        let text = format!("{}: {}", found.rule, found.sentence);
        let ranks: BTreeSet<u32> = found.at.iter().map(|(rank, _)| *rank).collect();
        ranks.into_iter().map(move |rank| (rank, text.clone())).collect::<Vec<_>>()
    });
    roots.chain(findings).collect()
}
