//! `rankcheck check --format junit|sarif|github`: what was checked, as test cases and as annotations.
//!
//! Not here: what the formats look like ([`crate::pull_request`]).

use std::path::Path;

use miette::Diagnostic as _;

use crate::launches::judge::JudgedJob;
use crate::pull_request::{BAD_SPEC, CaseEnd, NOT_AS_STATED, Spot, TestCase, UNKNOWN};
use crate::runs::judge::Judged;
use crate::search::Explained;
use crate::spec::{Anchor, SpecError};
use crate::{launches, report, runs};

/// The line on which a quote begins in a text.
pub(super) fn line_of(text: &str, quote: &str) -> Option<u32> {
    let before = &text[..text.find(quote)?];
    u32::try_from(before.matches('\n').count() + 1).ok()
}

/// The lines that a spec quotes, as far as they are in this repository.
fn quoted(anchors: &[Anchor], repo: &Path) -> Vec<(Spot, String)> {
    let one = |Anchor { path, quote, loc }: &Anchor| {
        let file = repo.join(path);
        let text = std::fs::read_to_string(&file).ok()?;
        let line = line_of(&text, quote);
        let told = if line.is_some() { "quoted" } else { "quoted, and no longer there," };
        Some((Spot::new(&file.display().to_string(), line), format!("{told} at {}:{}", loc.file, loc.line)))
    };
    anchors.iter().filter_map(one).collect()
}

/// A check that ended like this.
pub(super) fn check(explained: &Explained, ending: CaseEnd, anchors: &[Anchor], repo: &Path) -> TestCase {
    let stated = Spot::new(&explained.file, Some(explained.line));
    let shown = explained.counterexample.as_ref();
    let broken = shown.map(|shown| &shown.broken);
    let first = broken.and_then(|broken| broken.ops.first());
    let at = first.map_or_else(|| stated.clone(), |op| Spot::new(&op.loc.file, Some(op.loc.line)));
    let (rule, summary) = match ending {
        CaseEnd::Unknown => {
            let cut = explained.cut().next();
            (UNKNOWN, cut.map_or_else(String::new, |(run, bound)| format!("{}: {bound}", run.setting())))
        }
        CaseEnd::Passed | CaseEnd::Failed | CaseEnd::Bad => {
            let rule = explained.run().verdict.primary();
            let found = || rule.map(|rule| format!("fails {rule}, and the check states nothing"));
            let why = explained.unexpected.clone().or_else(found).unwrap_or_default();
            (rule.map_or(NOT_AS_STATED, |rule| rule.id()), why)
        }
    };
    let mut related = Vec::new();
    if at != stated {
        related.push((stated, "the check".to_owned()));
    }
    related.extend(quoted(anchors, repo));
    let milliseconds =
        explained.runs.iter().chain(&explained.elsewhere).map(|run| run.milliseconds).sum::<u128>();
    TestCase {
        file: explained.file.clone(),
        name: explained.name.clone(),
        ending,
        rule: rule.to_owned(),
        summary,
        report: report::text(explained),
        at,
        related,
        milliseconds: u64::try_from(milliseconds).unwrap_or(u64::MAX),
    }
}

/// A run or a job: its report begins with what there is to say.
fn ran(folder: String, ending: CaseEnd, rule: Option<&'static str>, report: String) -> TestCase {
    let other = if ending == CaseEnd::Unknown { UNKNOWN } else { NOT_AS_STATED };
    TestCase {
        at: Spot::new(&folder, None),
        name: folder.clone(),
        file: folder,
        ending,
        rule: rule.unwrap_or(other).to_owned(),
        summary: report.lines().next().unwrap_or_default().to_owned(),
        report,
        related: Vec::new(),
        milliseconds: 0,
    }
}

/// A recorded run that ended like this.
pub(super) fn recording(run: &Judged, ending: CaseEnd) -> TestCase {
    let folder = run.recording.folder.display().to_string();
    let rule = run.findings.first().map(|finding| finding.rule.id());
    ran(folder, ending, rule, runs::report::text(run))
}

/// A job that ended like this.
pub(super) fn job(job: &JudgedJob, ending: CaseEnd) -> TestCase {
    let rule = job.rules().first().map(|rule| rule.id());
    ran(job.job.source.display().to_string(), ending, rule, launches::report::text(job))
}

/// What could not be read or evaluated.
pub(super) fn bad(error: &SpecError) -> TestCase {
    let file = error.loc().map(|loc| loc.file.to_string()).unwrap_or_default();
    let help = error.help().map(|help| format!("; {help}")).unwrap_or_default();
    TestCase {
        at: Spot { line: error.loc().map(|loc| loc.line), ..Spot::new(&file, None) },
        file,
        name: "bad spec".to_owned(),
        ending: CaseEnd::Bad,
        rule: BAD_SPEC.to_owned(),
        summary: format!("{error}{help}"),
        report: error.drawn().trim_matches('\n').to_owned(),
        related: Vec::new(),
        milliseconds: 0,
    }
}
