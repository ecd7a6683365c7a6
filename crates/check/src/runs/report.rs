//! What people and tools read about a recorded run.
//!
//! The order is that of other reports: what is wrong, where ranks diverge, where the run stands, what calls
//! returned, and what the verdict rests on. Not here: how any of it was found.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write as _};

use rankcheck_model::{Finding, OpRef, Rank, Rule, Source as _, ranks_in_words};
use serde::Serialize;

use super::coverage::{Coverage, LeftOut};
use super::divergence::Divergence;
use super::hosts::HostDoing;
use super::judge::{Asked, FirstAbort, Judged, RecordedJob, RunVerdict};
use super::lower::RecordingEnd;
use super::stuck::{Hop, HostEnd, RankStand, RankWait, WaitRoot};
use super::vendor;

/// Lines of one kind, beyond which the rest is counted.
const LINES_MAX: usize = 8;

impl RunVerdict {
    /// `holds`, `fails`, `hangs` or `unknown`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Holds => "holds",
            Self::Fails => "fails",
            Self::Hangs => "hangs",
            Self::Unknown => "unknown",
        }
    }

    /// The exit code of a command that found this.
    #[must_use]
    pub fn exit_code(self) -> u8 {
        match self {
            Self::Holds => 0,
            Self::Fails | Self::Hangs => 1,
            Self::Unknown => 3,
        }
    }
}

/// What became of the recorded run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunClass {
    /// It ended in order: the rules that it breaks are latent.
    Latent,
    /// Some call returned an error.
    Error,
    /// It was cut while somebody waited, or after nothing had happened for long.
    Hang,
    /// It was cut, or some rank ended otherwise.
    Ended,
}

impl RunClass {
    /// Returns how reports name it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Latent => "latent: the recorded run ended in order",
            Self::Error => "error",
            Self::Hang => "hang",
            Self::Ended => "ended",
        }
    }
}

/// What became of the recorded run.
#[must_use]
pub fn class(judged: &Judged) -> RunClass {
    let cut = judged.there().any(|(_, program)| matches!(program.ending, RecordingEnd::Cut { .. }));
    if judged.went_well() {
        RunClass::Latent
    } else if judged.there().any(|(_, program)| !program.failures.is_empty()) {
        RunClass::Error
    } else if cut && judged.stood_still() {
        RunClass::Hang
    } else {
        RunClass::Ended
    }
}

/// The report, without a trailing newline.
#[must_use]
pub fn text(judged: &Judged) -> String {
    let mut out = String::new();
    let what = match (judged.verdict, judged.findings.first()) {
        (RunVerdict::Fails, Some(first)) => format!("FAILS {}", first.rule),
        (RunVerdict::Fails, None) => "FAILS".to_owned(),
        (RunVerdict::Holds, _) => "HOLDS".to_owned(),
        (RunVerdict::Hangs, _) => "HANGS".to_owned(),
        (RunVerdict::Unknown, _) => "UNKNOWN".to_owned(),
    };
    let calls = judged.recording.calls();
    let folder = judged.recording.folder.display();
    let size = size_in_words(judged.recording.world.ranks as usize, calls);
    let _ = write!(out, "{what}  {folder}   {size}");
    if let Some(job) = &judged.recording.job {
        let _ = write!(out, ", {job}");
    }
    if matches!(judged.verdict, RunVerdict::Fails | RunVerdict::Hangs) {
        let _ = write!(out, ", {}", class(judged).name());
    }
    let roots = roots(judged);
    let diverging = diverging(judged);
    // Of a run that stood the root comes first, whatever rule it breaks: a rank that is gone, or where ranks diverge, or else
    // who waits in a circle.
    let divergence_is_root = roots.is_empty() && judged.stood();
    if divergence_is_root {
        rows(&mut out, "root", &diverging);
    } else {
        rows(&mut out, "root", &roots);
    }
    if roots.is_empty() && diverging.is_empty() {
        rows(&mut out, "cycle", &untold_cycles(judged));
    }
    for line in sentences(judged) {
        let _ = write!(out, "\n{line}");
    }
    if !divergence_is_root {
        rows(&mut out, "diverge", &diverging);
    }
    rows(&mut out, "stands", &standing(judged));
    rows(&mut out, "aborted", &judged.aborted.iter().map(|first| aborted(judged, first)).collect::<Vec<_>>());
    rows(&mut out, "returned", &failures(judged));
    rows(&mut out, "unknown", &judged.unknown);
    rows(&mut out, "judged", &[judged.coverage.to_string()]);
    let waived = judged.waived.iter().map(|(rule, reason)| format!("{rule}: {reason}"));
    rows(&mut out, "waived", &waived.collect::<Vec<_>>());
    rows(&mut out, "rests on", &rests(judged));
    if let Some(why) = unexpected(judged) {
        let _ = write!(out, "\n  NOT AS EXPECTED  {why}");
    }
    out
}

/// Why a run is not as expected, though nothing may be wrong with it.
fn unexpected(judged: &Judged) -> Option<String> {
    let rules: Vec<&str> = judged.waived_in_vain.iter().map(|rule| rule.id()).collect();
    (!rules.is_empty()).then(|| format!("waives {}, which no run breaks", rules.join(" and ")))
}

/// What is wrong, in sentences; the first names ranks, object and locations.
fn sentences(judged: &Judged) -> Vec<String> {
    let mut lines = Vec::new();
    for (nth, finding) in judged.findings.iter().enumerate() {
        if nth == 0 {
            lines.push(format!("{}.", finding.sentence));
            lines.push(format!("  rule      {}: {}", finding.rule, finding.rule.title()));
        } else if nth < LINES_MAX {
            let label = if nth == 1 { "also" } else { "" };
            lines.push(format!("  {label:<9} {}: {}", finding.rule, finding.sentence));
        }
    }
    if judged.findings.len() > LINES_MAX {
        lines.push(format!("            … {} more", judged.findings.len() - LINES_MAX));
    }
    if judged.findings.is_empty()
        && let Some(first) = judged.divergences.first()
    {
        let but = match judged.waived.is_empty() {
            true => "No rule is known to be broken, and yet",
            false => "No waiver of a rule takes away that",
        };
        lines.push(format!("{but} {}.", first.sentence(&judged.recording)));
    }
    if judged.undefined {
        lines.push("  data      buffer contents are undefined from here on".to_owned());
    }
    lines
}

fn divergences(judged: &Judged) -> Vec<String> {
    judged.divergences.iter().map(|divergence| divergence.sentence(&judged.recording)).collect()
}

/// Where ranks diverge, as far as no sentence tells it.
fn diverging(judged: &Judged) -> Vec<String> {
    let told = |divergence: &&Divergence| match judged.findings.first() {
        None => false,
        Some(first) => !divergence.is_of(&first.ops) || divergence.says_where() || judged.stood(),
    };
    let untold = judged.divergences.iter().skip(usize::from(judged.findings.is_empty()));
    untold.filter(told).map(|divergence| divergence.sentence(&judged.recording)).collect()
}

/// Whom everybody waits for, and who waits in a circle.
fn roots(judged: &Judged) -> Vec<String> {
    told_roots(judged).map(|root| root_text(judged, root)).collect()
}

/// Where a rule is broken, who may still come is no cause.
fn told_roots(judged: &Judged) -> impl Iterator<Item = &WaitRoot> {
    let fails = judged.verdict == RunVerdict::Fails;
    judged.stuck.roots.iter().filter(move |root| !fails || root.end.is_gone())
}

fn root_text(judged: &Judged, root: &WaitRoot) -> String {
    let program = &judged.recording.program;
    let of = &program.ranks[root.rank.at()];
    let last = of.last_told().map(|last| of.loc(&last, &program.names).to_string());
    let last = last.map_or_else(|| "no call of it was recorded".to_owned(), |last| format!("last at {last}"));
    let ended = match root.end {
        HostEnd::Exited(code) if of.exception.is_some() => {
            format!("{} and exited with code {code}", of.ended())
        }
        HostEnd::Exited(_) => format!("{} ({last})", of.ended()),
        _ if of.exception.is_some() => of.ended(),
        HostEnd::Died => format!("was gone before the others, by what was not recorded ({last})"),
        HostEnd::NotRecorded => "was not recorded".to_owned(),
        HostEnd::GoesOn | HostEnd::Raised | HostEnd::Waits => match &of.until {
            Some(_) => "is not known well enough".to_owned(),
            None => format!("had not come when its recording ended ({last})"),
        },
    };
    let waits = if root.awaited_by.len() == 1 { "waits" } else { "wait" };
    let mut text = format!(
        "rank {} {ended}; {} {waits} for it",
        root.rank.0,
        ranks_in_words(root.awaited_by.iter().copied())
    );
    if let Some(rounds) = &root.rounds {
        let _ = write!(text, "; {rounds}");
    }
    text
}

/// Circles of waits that the first sentence does not tell hop by hop. Where nobody specifies what follows a finding, the
/// model has nothing to say of waits behind it.
fn untold_cycles(judged: &Judged) -> Vec<String> {
    if judged.undefined {
        return Vec::new();
    }
    let first = judged.findings.first().map_or("", |finding| &finding.sentence);
    let told = |hops: &[Hop]| hops.iter().all(|hop| first.contains(&hop.place));
    let untold =
        judged.stuck.cycles.iter().map(|hops| if told(hops) { rounds_of(hops) } else { cycle_text(hops) });
    untold.filter(|text| !text.is_empty()).collect()
}

fn cycle_text(hops: &[Hop]) -> String {
    let mut text = String::new();
    for (nth, hop) in hops.iter().enumerate() {
        let who = if nth == 0 { format!("rank {}", hop.rank.0) } else { ", which".to_owned() };
        let _ = write!(text, "{who} waits {} ({}) for rank {}", hop.text, hop.place, hop.awaits.0);
    }
    let rounds = rounds_of(hops);
    if !rounds.is_empty() {
        let _ = write!(text, "; {rounds}");
    }
    text
}

/// The rounds of loops that some rank of a circle did not make.
fn rounds_of(hops: &[Hop]) -> String {
    let rounds: Vec<String> =
        hops.iter().filter_map(|hop| hop.rounds.as_ref()).map(ToString::to_string).collect();
    rounds.join("; ")
}

/// Where each rank is that did not exit: what its host does, and what its device waits for; ranks that do alike together.
fn standing(judged: &Judged) -> Vec<String> {
    type Waits = Vec<BTreeSet<Rank>>;
    let mut groups: Vec<(&RankStand, Vec<Rank>, Waits)> = Vec::new();
    let key = |stand: &RankStand| {
        let of = |wait: &Option<RankWait>| {
            wait.as_ref().map(|wait| (wait.text.clone(), wait.made, wait.awaits.is_empty()))
        };
        (stand.host.doing.clone(), of(&stand.waits), of(&stand.device))
    };
    let awaits = |stand: &RankStand| -> Waits {
        let of =
            |wait: &Option<RankWait>| wait.as_ref().map_or_else(BTreeSet::new, |wait| wait.awaits.clone());
        vec![of(&stand.waits), of(&stand.device)]
    };
    let mut lasted: Vec<u64> = Vec::new();
    for stand in &judged.stuck.stands {
        match groups.iter().position(|(first, ..)| key(first) == key(stand)) {
            Some(at) => {
                let (_, ranks, all) = &mut groups[at];
                ranks.push(stand.rank);
                all.iter_mut().zip(awaits(stand)).for_each(|(all, more)| all.extend(more));
                lasted[at] = lasted[at].min(stand.host.lasted);
            }
            None => {
                groups.push((stand, vec![stand.rank], awaits(stand)));
                lasted.push(stand.host.lasted);
            }
        }
    }
    let told = groups.iter().zip(lasted).map(|((stand, ranks, awaits), lasted)| {
        let one = ranks.len() == 1;
        let (host, device, is, waits) = match one {
            true => ("its host", "its device", "is", "waits"),
            false => ("their hosts", "their devices", "are", "wait"),
        };
        let seconds = lasted / 1_000_000_000;
        let lasted = if seconds > 0 { format!(" for {seconds} s") } else { String::new() };
        let mut line = match &stand.host.doing {
            HostDoing::Inside(calls) => format!("{host} {is} in {calls}{lasted}"),
            HostDoing::Between(Some(last)) if seconds > 0 => {
                format!("{host} {} made no call{lasted} (last at {last})", if one { "has" } else { "have" })
            }
            HostDoing::Between(Some(last)) => {
                format!("{host} {} last at {last}", if one { "was" } else { "were" })
            }
            HostDoing::Between(None) => format!("{host} made no call"),
            HostDoing::Gone(how) => how.clone(),
        };
        for (nth, (who, wait)) in [(" and", &stand.waits), (device, &stand.device)].into_iter().enumerate() {
            let Some(wait) = wait else { continue };
            let comma = if nth == 0 { "" } else { "; " };
            let _ = write!(line, "{comma}{who} {waits} {}{}", wait.text, whom(ranks, &awaits[nth]));
            if let Some(made) = wait.made {
                let _ = write!(line, ", which made {made}");
            }
        }
        format!("{}: {line}", ranks_in_words(ranks.iter().copied()))
    });
    told.collect()
}

/// For whom these ranks wait.
fn whom(ranks: &[Rank], awaits: &BTreeSet<Rank>) -> String {
    let others: Vec<Rank> = awaits.iter().copied().filter(|rank| !ranks.contains(rank)).collect();
    let mut whom = Vec::new();
    if awaits.iter().any(|rank| ranks.contains(rank)) {
        whom.push("one another".to_owned());
    }
    if !others.is_empty() {
        whom.push(ranks_in_words(others.into_iter()));
    }
    if whom.is_empty() { String::new() } else { format!(" for {}", whom.join(" and ")) }
}

/// The call that ended a standstill.
fn aborted(judged: &Judged, FirstAbort { rank, abort }: &FirstAbort) -> String {
    let recording = &judged.recording;
    let comm = &recording.world.comm(abort.comm).name;
    format!(
        "rank {} aborted {comm} after that, in call {} (ncclCommAbort); the run is judged as it stood before",
        rank.0, abort.origin.number
    )
}

/// Calls that returned errors.
fn failures(judged: &Judged) -> Vec<String> {
    let names = &judged.recording.program.names;
    let of = judged.there().flat_map(|(rank, program)| {
        program.failures.iter().map(move |failure| {
            let name = names.text(failure.origin.name);
            let loc = program.loc(&failure.origin, names).to_string();
            let call = if loc.contains(&*name) { loc } else { format!("{name} ({loc})") };
            format!("rank {rank}: {call} returned {} ({})", failure.code, vendor::error(&name, failure.code))
        })
    });
    of.collect()
}

/// What was taken for granted, and what was left out.
fn rests(judged: &Judged) -> Vec<String> {
    let mut lines = Vec::new();
    let recorded = judged.recording.nccl.as_deref();
    lines.push(match recorded {
        Some(version) if version == judged.platform.name() => format!("NCCL {version}"),
        Some(version) if judged.asked == Asked::Yes => {
            format!("NCCL {}, as was asked for; {version} was recorded", judged.platform)
        }
        Some(version) => {
            format!("NCCL {version} is not modelled; judged as {}, the nearest that is", judged.platform)
        }
        None if judged.asked == Asked::Yes => {
            format!("NCCL {}, as was asked for; no version was recorded", judged.platform)
        }
        None => format!("no version of NCCL was recorded; judged as {}", judged.platform),
    });
    lines.extend(judged.recording.folds());
    if !judged.recording.folded.iterations.is_empty() && judged.coverage.windows > 0 {
        lines.push(
            "windows and set-up events are numbered without iterations that were not judged again".to_owned(),
        );
    }
    let threads = judged.there().map(|(_, program)| program.threads).max().unwrap_or(0);
    if threads > 1 {
        lines.push(format!(
            "the calls of up to {threads} host threads of a rank are in the order in which they returned"
        ));
    }
    let watchdogs = judged.there().map(|(_, program)| program.watchdogs).max().unwrap_or(0);
    let by_order = |finding: &Finding| matches!(finding.rule, Rule::Mem1 | Rule::Mem2);
    if watchdogs > 0 && judged.findings.iter().any(by_order) {
        lines.push(format!(
            "what host threads find done that do nothing but query (up to {watchdogs} of a rank) orders nothing on \
             others"
        ));
    }
    for (rank, program) in judged.there() {
        lines.extend(program.too_close.iter().map(|(origin, memory)| {
            format!(
                "whether {memory} was freed before rank {rank} was done with it is not known: {} and the free lie too \
                 close to tell",
                judged.recording.called(program, origin)
            )
        }));
    }
    let recording = &judged.recording;
    let by = |op: OpRef| {
        let origin = recording.program.origin(op.loc)?;
        let program = &recording.program.ranks[op.rank.at()];
        Some(format!("{} of rank {}", recording.called(program, &origin), op.rank.0))
    };
    if let Some([Some(one), Some(other)]) = judged.taken_for_ordered.map(|accesses| accesses.map(by)) {
        lines.push(format!("{one} and {other} use the same memory, and what orders them was not recorded"));
    }
    if let Some([Some(close), Some(user)]) = judged.closed_in_use.map(|calls| calls.map(by)) {
        lines.push(format!(
            "{close} waits for {user}, which uses the mapping: closing was measured to wait, and does not promise it"
        ));
    }
    if !judged.left_out.iter().any(LeftOut::is_kernels) {
        lines.push("not judged: kernels, of which no launch was recorded".to_owned());
    }
    // What matters is among what is not known.
    lines.extend(judged.left_out.iter().filter(|left_out| !left_out.matters()).map(ToString::to_string));
    lines
}

/// How large a run is, as in "1 rank, 20 calls".
pub(crate) fn size_in_words(ranks: usize, calls: impl fmt::Display) -> String {
    format!("{ranks} rank{}, {calls} calls", if ranks == 1 { "" } else { "s" })
}

pub(crate) fn rows(out: &mut String, label: &str, lines: &[String]) {
    for (nth, line) in lines.iter().take(LINES_MAX).enumerate() {
        let label = if nth == 0 { label } else { "" };
        let _ = write!(out, "\n  {label:<9} {line}");
    }
    if lines.len() > LINES_MAX {
        let _ = write!(out, "\n            … {} more", lines.len() - LINES_MAX);
    }
}

/// A recording in the JSON report.
#[derive(Debug, Serialize)]
pub struct RunEntry {
    folder: String,
    job: Option<RecordedJob>,
    ranks: u32,
    calls: u64,
    platform: String,
    nccl: Option<String>,
    verdict: &'static str,
    class: &'static str,
    rules: Vec<&'static str>,
    primary: Option<&'static str>,
    findings: Vec<FoundEntry>,
    partings: Vec<String>,
    roots: Vec<RootEntry>,
    cycles: Vec<Vec<HopEntry>>,
    standing: Vec<String>,
    aborted: Option<AbortEntry>,
    returned: Vec<String>,
    unknown: Vec<String>,
    rests_on: Vec<String>,
    judged: Coverage,
    not_judged: Vec<LeftOutEntry>,
    waived: BTreeMap<&'static str, String>,
    unexpected: Option<String>,
    steps: u64,
}

#[derive(Debug, Serialize)]
struct RootEntry {
    rank: u32,
    /// `exited`, `raised`, `died`, `late` or `not recorded`.
    state: &'static str,
    text: String,
    place: Option<String>,
    exception: Option<String>,
    awaited_by: Vec<u32>,
}

/// The call that ended a standstill.
#[derive(Debug, Serialize)]
struct AbortEntry {
    rank: u32,
    call: u32,
    communicator: String,
}

#[derive(Debug, Serialize)]
struct HopEntry {
    rank: u32,
    waits: String,
    place: String,
    awaits: u32,
    rounds: Option<String>,
}

#[derive(Debug, Serialize)]
struct LeftOutEntry {
    call: String,
    count: u64,
    why: &'static str,
}

#[derive(Debug, Serialize)]
struct FoundEntry {
    rule: &'static str,
    sentence: String,
    at: Vec<FoundAt>,
}

#[derive(Debug, Serialize)]
struct FoundAt {
    rank: u32,
    #[serde(rename = "place")]
    loc: String,
    call: Option<u32>,
}

/// What the JSON report says of a recording.
#[must_use]
pub fn entry(judged: &Judged) -> RunEntry {
    let program = &judged.recording.program;
    let found = judged.findings.iter().map(|finding| FoundEntry {
        rule: finding.rule.id(),
        sentence: finding.sentence.clone(),
        at: finding
            .ops
            .iter()
            .map(|op| FoundAt {
                rank: op.rank.0,
                loc: program.loc(op.loc).to_string(),
                call: program.origin(op.loc).map(|origin| origin.number),
            })
            .collect(),
    });
    let mut rules: Vec<_> = judged.findings.iter().map(|finding| finding.rule).collect();
    rules.sort_unstable();
    rules.dedup();
    RunEntry {
        folder: judged.recording.folder.display().to_string(),
        job: judged.recording.job.clone(),
        ranks: judged.recording.world.ranks,
        calls: judged.recording.calls(),
        platform: judged.platform.name().to_owned(),
        nccl: judged.recording.nccl.clone(),
        verdict: judged.verdict.name(),
        class: match class(judged) {
            RunClass::Latent if judged.verdict == RunVerdict::Fails => "latent",
            RunClass::Latent => "finishes",
            RunClass::Error => "error",
            RunClass::Hang => "hang",
            RunClass::Ended => "ended",
        },
        rules: rules.into_iter().map(rankcheck_model::Rule::id).collect(),
        primary: judged.findings.first().map(|finding| finding.rule.id()),
        findings: found.collect(),
        partings: divergences(judged),
        roots: told_roots(judged).map(|root| root_entry(judged, root)).collect(),
        cycles: judged.stuck.cycles.iter().map(|hops| hops.iter().map(hop_entry).collect()).collect(),
        standing: standing(judged),
        aborted: judged.aborted.as_ref().map(|first| abort_entry(judged, first)),
        returned: failures(judged),
        unknown: judged.unknown.clone(),
        rests_on: rests(judged),
        judged: judged.coverage,
        not_judged: judged
            .left_out
            .iter()
            .flat_map(|left_out| left_out.calls.iter().map(move |call| (left_out.why(), call)))
            .map(|(why, (name, count))| LeftOutEntry { call: name.to_string(), count: *count, why })
            .collect(),
        waived: judged.waived.iter().map(|(rule, reason)| (rule.id(), reason.clone())).collect(),
        unexpected: unexpected(judged),
        steps: judged.steps,
    }
}

fn root_entry(judged: &Judged, root: &WaitRoot) -> RootEntry {
    let program = &judged.recording.program;
    let of = &program.ranks[root.rank.at()];
    let raised = of.exception.as_ref().and_then(|exception| exception.loc.as_ref()).map(ToString::to_string);
    let last = || of.last_told().map(|last| of.loc(&last, &program.names).to_string());
    RootEntry {
        rank: root.rank.0,
        state: match root.end {
            HostEnd::Exited(_) => "exited",
            HostEnd::Raised => "raised",
            HostEnd::Died => "died",
            HostEnd::GoesOn | HostEnd::Waits => "late",
            HostEnd::NotRecorded => "not recorded",
        },
        text: root_text(judged, root),
        place: raised.or_else(last),
        exception: of.exception.as_ref().map(|exception| exception.text.clone()),
        awaited_by: root.awaited_by.iter().map(|rank| rank.0).collect(),
    }
}

fn abort_entry(judged: &Judged, first: &FirstAbort) -> AbortEntry {
    AbortEntry {
        rank: first.rank.0,
        call: first.abort.origin.number,
        communicator: judged.recording.world.comm(first.abort.comm).name.clone(),
    }
}

fn hop_entry(hop: &Hop) -> HopEntry {
    HopEntry {
        rank: hop.rank.0,
        waits: hop.text.clone(),
        place: hop.place.clone(),
        awaits: hop.awaits.0,
        rounds: hop.rounds.as_ref().map(ToString::to_string),
    }
}
