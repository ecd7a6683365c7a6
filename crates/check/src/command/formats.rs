//! `rankcheck check --format junit|sarif|github`: what was checked, as test cases and as annotations.
//!
//! Not here: what the formats look like ([`crate::pull_request`]).

use std::ffi::OsStr;
use std::path::{Component, Path, PathBuf};

use miette::Diagnostic as _;

use crate::launches::judge::JudgedJob;
use crate::pull_request::{BAD_SPEC, CaseEnd, NOT_AS_STATED, Spot, TestCase, UNKNOWN};
use crate::report::MissingShard;
use crate::runs::judge::Judged;
use crate::runs::lines::ProgramLine;
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
        elsewhere: Vec::new(),
        milliseconds: u64::try_from(milliseconds).unwrap_or(u64::MAX),
    }
}

/// Where a line of a recorded program is in a repository. Whoever recorded it may have had the repository in another folder,
/// so the longest end of its path counts that is a file here. A name alone may be that of any file: it counts only where
/// nothing stood before it, or the name of the repository's own folder.
fn located(line: &ProgramLine, repo: &Path) -> Option<Spot> {
    let parts: Vec<&OsStr> = Path::new(&*line.file)
        .components()
        .map(|part| match part {
            Component::Normal(part) => Some(part),
            Component::CurDir | Component::ParentDir | Component::RootDir | Component::Prefix(_) => None,
        })
        .rev()
        .map_while(|part| part)
        .collect();
    let parts: Vec<&OsStr> = parts.into_iter().rev().collect();
    let named_so = || {
        let root = repo.canonicalize().ok()?;
        Some(root.file_name()? == *parts.iter().rev().nth(1)?)
    };
    let is_there = |end: &&[&OsStr]| {
        let known = end.len() > 1 || line.file.split('/').count() == 1 || named_so() == Some(true);
        let text = || std::fs::read_to_string(repo.join(end.iter().collect::<PathBuf>())).ok();
        known && text().is_some_and(|text| text.lines().count() >= line.line as usize)
    };
    let end = (0..parts.len()).map(|from| &parts[from..]).find(is_there)?;
    Some(Spot::new(&repo.join(end.iter().collect::<PathBuf>()).display().to_string(), Some(line.line)))
}

/// A run or a job: its report begins with what there is to say. It is shown at the first line that it names and that is in
/// the repository, or else at its folder.
fn ran(
    folder: &Path,
    ending: CaseEnd,
    rule: Option<&'static str>,
    report: String,
    named: Vec<ProgramLine>,
    repo: &Path,
) -> TestCase {
    let other = if ending == CaseEnd::Unknown { UNKNOWN } else { NOT_AS_STATED };
    let folder = folder.display().to_string();
    let (mut related, mut elsewhere) = (Vec::new(), Vec::new());
    for line in named {
        match located(&line, repo) {
            Some(spot) => related.push((spot, line.told())),
            None => elsewhere.push(format!(
                "{}: {}:{}, not in this repository",
                line.told(),
                line.file,
                line.line
            )),
        }
    }
    let at = related.first().map_or_else(|| Spot::new(&folder, None), |(spot, _)| spot.clone());
    let headline = report.lines().next().unwrap_or_default();
    TestCase {
        at,
        // The name says already which it is.
        summary: headline.replacen(&format!("  {folder}   "), ", ", 1),
        name: folder.clone(),
        file: folder,
        ending,
        rule: rule.unwrap_or(other).to_owned(),
        report,
        related,
        elsewhere,
        milliseconds: 0,
    }
}

/// A recorded run that ended like this.
pub(super) fn recording(run: &Judged, ending: CaseEnd, repo: &Path) -> TestCase {
    let rule = run.findings.first().map(|finding| finding.rule.id());
    let case = ran(&run.recording.folder, ending, rule, runs::report::text(run), runs::lines::of(run), repo);
    match &run.recording.job {
        // Cases of one name would be taken for one.
        Some(job) => TestCase { name: format!("{}, {job}", case.name), ..case },
        None => case,
    }
}

/// A job that ended like this.
pub(super) fn job(job: &JudgedJob, ending: CaseEnd, repo: &Path) -> TestCase {
    let rule = job.rules().first().map(|rule| rule.id());
    ran(&job.job.source, ending, rule, launches::report::text(job), launches::lines::of(job), repo)
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
        elsewhere: Vec::new(),
        milliseconds: 0,
    }
}

/// A shard of which there is no report: nothing is known of its cases.
pub(super) fn missing(shard: &MissingShard) -> TestCase {
    let MissingShard { number, of, cases } = shard;
    let were = if *cases == 1 { "case was" } else { "cases were" };
    let summary = format!("its report is missing, so {cases} {were} not checked");
    TestCase {
        file: String::new(),
        name: format!("shard {number}/{of}"),
        ending: CaseEnd::Unknown,
        rule: UNKNOWN.to_owned(),
        report: format!("{summary}; check it again with --shard {number}/{of}"),
        summary,
        at: Spot::new("", None),
        related: Vec::new(),
        elsewhere: Vec::new(),
        milliseconds: 0,
    }
}
