//! What people and tools read about a recorded run.
//!
//! The order is that of other reports: what is wrong, where ranks diverge, where the run stands, what calls
//! returned, and what the verdict rests on. Not here: how any of it was found.

use std::fmt::Write as _;

use rankcheck_model::machine::Awaited;
use rankcheck_model::{LocId, Source as _};
use serde::Serialize;

use super::coverage::{Coverage, LeftOut};
use super::judge::{Asked, Judged, RunVerdict};
use super::lower::RecordingEnd;
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
    } else if cut && (!judged.standing.is_empty() || judged.silent()) {
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
    let calls: u64 = judged.there().map(|(_, program)| program.calls).sum();
    let folder = judged.recording.folder.display();
    let _ = write!(out, "{what}  {folder}   {} ranks, {calls} calls", judged.recording.world.ranks);
    if matches!(judged.verdict, RunVerdict::Fails | RunVerdict::Hangs) {
        let _ = write!(out, ", {}", class(judged).name());
    }
    for line in sentences(judged) {
        let _ = write!(out, "\n{line}");
    }
    rows(&mut out, "parts", &divergences(judged));
    rows(&mut out, "stands", &standing(judged));
    rows(&mut out, "returned", &failures(judged));
    rows(&mut out, "unknown", &judged.unknown);
    rows(&mut out, "judged", &[judged.coverage.to_string()]);
    rows(&mut out, "rests on", &rests(judged));
    out
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
    if judged.undefined {
        lines.push("  data      buffer contents are undefined from here on".to_owned());
    }
    lines
}

fn divergences(judged: &Judged) -> Vec<String> {
    judged.divergences.iter().map(|divergence| divergence.sentence(&judged.recording)).collect()
}

/// Who waits for whom.
fn standing(judged: &Judged) -> Vec<String> {
    let program = &judged.recording.program;
    let at = |loc: LocId| program.loc(loc).to_string();
    let last = |rank: rankcheck_model::Rank| {
        let of = &program.ranks[rank.at()];
        let last = of.last.map(|last| of.loc(&last, &program.names).to_string());
        last.map_or_else(|| "no call of it was recorded".to_owned(), |last| format!("last at {last}"))
    };
    let lines = judged.standing.iter().map(|standing| {
        let op = standing.op;
        let mut text = format!("rank {} waits {} ({})", op.rank.0, standing.text, at(op.loc));
        let whom: Vec<String> = standing
            .awaits
            .iter()
            .filter(|awaited| !matches!(awaited, Awaited::Blocked(other) if other.rank == op.rank))
            .map(|awaited| match awaited {
                Awaited::Blocked(other) => format!("rank {} ({})", other.rank.0, at(other.loc)),
                Awaited::Ended(rank) => {
                    format!("rank {}, which exited without making that call ({})", rank.0, last(*rank))
                }
                Awaited::Unknown(rank) => match &program.ranks[rank.at()].until {
                    Some(_) => format!("rank {}, of which too little is known", rank.0),
                    None => {
                        let last = last(*rank);
                        format!("rank {}, which had not come when its recording ended ({last})", rank.0)
                    }
                },
            })
            .collect();
        if !whom.is_empty() {
            let more = whom.len().saturating_sub(3);
            let _ = write!(text, " for {}", whom[..whom.len().min(3)].join(" and "));
            if more > 0 {
                let _ = write!(text, " and {more} more");
            }
        }
        text
    });
    let mut lines: Vec<String> = lines.collect();
    lines.dedup();
    lines
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
    lines.extend(judged.recording.folds.iter().map(ToString::to_string));
    if !judged.recording.folds.is_empty() {
        lines.push(
            "numbers of collectives and registrations do not count what was not judged again".to_owned(),
        );
    }
    let threads = judged.there().map(|(_, program)| program.threads).max().unwrap_or(0);
    if threads > 1 {
        lines.push(format!(
            "the calls of up to {threads} host threads of a rank are in the order in which they returned"
        ));
    }
    if !judged.left_out.iter().any(LeftOut::is_kernels) {
        lines.push("not judged: kernels, of which no launch was recorded".to_owned());
    }
    // What matters is among what is not known.
    lines.extend(judged.left_out.iter().filter(|left_out| !left_out.matters()).map(ToString::to_string));
    lines
}

fn rows(out: &mut String, label: &str, lines: &[String]) {
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
    standing: Vec<String>,
    returned: Vec<String>,
    unknown: Vec<String>,
    rests_on: Vec<String>,
    judged: Coverage,
    not_judged: Vec<LeftOutEntry>,
    steps: u64,
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
        ranks: judged.recording.world.ranks,
        calls: judged.there().map(|(_, program)| program.calls).sum(),
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
        standing: standing(judged),
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
        steps: judged.steps,
    }
}
