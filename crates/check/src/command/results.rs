//! What came out of the cases of `check`, and how it is printed in every format.
//!
//! A case gives reports: of a check, a recorded run, or a job of which there are dumps or logs. They are printed alike whether
//! they were made just now or are [`KeptReport`]s, read from the file of a shard. So `rankcheck merge` has no formats of its own.
//! Not here: how checks are searched and runs are judged (`check`), and the file of a shard (`shard_file`).

use std::path::Path;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::overview::{Overview, is_told_by_folder};
use super::progress::INTERRUPTED;
use super::select::{CheckSelection, FilterFacts};
use super::{formats, output};
use crate::launches::judge::JudgedJob;
use crate::pull_request::{CaseEnd, TestCase, annotations, github, junit, sarif};
use crate::report::{JsonReport, MissingShard, NotChecked, ShardOfReport};
use crate::runs::judge::{Judged, RunVerdict};
use crate::search::{Explained, Explored, Verdict};
use crate::shard::Shard;
use crate::spec::{Spec, SpecError};
use crate::together::{JointAnswer, Together};
use crate::{launches, report, runs};

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// Text for people.
    Text,
    /// For tools; see docs/json-report.md.
    Json,
    /// Test cases, as JUnit's XML.
    Junit,
    /// SARIF 2.1.0, for code scanning.
    Sarif,
    /// Annotations of GitHub Actions.
    Github,
}

/// What came out of one case.
#[derive(Default)]
pub(super) struct CaseResults<'a> {
    /// One for a check or a recording; dumps and logs may be of several jobs.
    pub(super) reported: Vec<Reported<'a>>,
    /// Recordings and dumps that were compared.
    pub(super) together: Vec<RunComparison>,
    /// What could not be read or evaluated.
    pub(super) bad: Vec<SpecError>,
}

/// What a report is about.
pub(super) enum Reported<'a> {
    /// A check, and the spec that states it.
    Check(Box<Explained>, &'a Spec),
    Run(Box<Judged>),
    Job(Box<JudgedJob>),
    /// Any of these, on another machine.
    Kept(Box<KeptReport>),
}

impl Reported<'_> {
    /// Whether a bound has cut a search.
    pub(super) fn is_cut(&self) -> bool {
        match self {
            Self::Check(explained, _) => explained.inconclusive(),
            Self::Run(_) | Self::Job(_) | Self::Kept(_) => false,
        }
    }
}

/// A recording and dumps that were compared, here or on another machine.
pub(super) enum RunComparison {
    Made(Together),
    Kept(KeptComparison),
}

/// The kinds of reports, in the order in which they are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) enum ReportKind {
    #[serde(rename = "check")]
    Check,
    #[serde(rename = "run")]
    Run,
    #[serde(rename = "job")]
    Job,
}

/// All that any format prints of a report, so that another process can print it.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct KeptReport {
    kind: ReportKind,
    place: String,
    conclusion: Conclusion,
    facts: FilterFacts,
    warns: bool,
    nothing_judged: bool,
    fails_as_stated: bool,
    text: String,
    /// The entries of the JSON report, indented as they are there.
    json: Vec<String>,
    case: TestCase,
}

/// All that any format prints of a recording and dumps that were compared.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct KeptComparison {
    differ: bool,
    text: String,
    json: String,
}

/// An entry of the JSON report, as it stands there: in an array of the outermost object. Its text can be taken over as it is,
/// which no reader of numbers and orders of fields could promise.
fn indented(entry: &impl Serialize) -> String {
    let text = serde_json::to_string_pretty(entry).expect("an entry is strings and numbers");
    // No string of JSON has a line break in it.
    text.replace('\n', "\n    ")
}

impl KeptReport {
    /// Returns what is kept of a report.
    pub(super) fn of(reported: &Reported<'_>, repo: &Path) -> Self {
        let entries: Vec<String> = match reported {
            Reported::Check(explained, _) => report::check_entries(explained).map(|e| indented(&e)).collect(),
            Reported::Run(run) => vec![indented(&runs::report::entry(run))],
            Reported::Job(job) => vec![indented(&launches::report::entry(job))],
            Reported::Kept(kept) => kept.json.clone(),
        };
        Self {
            kind: reported.kind(),
            place: reported.place(),
            conclusion: reported.conclusion(),
            facts: reported.facts(),
            warns: reported.warns(),
            nothing_judged: reported.nothing_judged(),
            fails_as_stated: reported.fails_as_stated(),
            text: reported.text(),
            json: entries,
            case: reported.case(repo),
        }
    }

    /// Adds its entries to a report.
    fn add_to(&self, report: &mut JsonReport) -> Result<(), serde_json::Error> {
        let entries = self.json.iter().map(|text| RawValue::from_string(text.clone()));
        let entries = entries.collect::<Result<Vec<_>, _>>()?;
        match self.kind {
            ReportKind::Check => report.checks.extend(entries.into_iter().map(report::JsonEntry::Kept)),
            ReportKind::Run => report.recordings.extend(entries.into_iter().map(report::JsonEntry::Kept)),
            ReportKind::Job => report.jobs.extend(entries.into_iter().map(report::JsonEntry::Kept)),
        }
        Ok(())
    }
}

impl KeptComparison {
    /// Returns what is kept of a comparison.
    pub(super) fn of(comparison: &RunComparison) -> Self {
        match comparison {
            RunComparison::Made(together) => Self {
                differ: comparison.differ(),
                text: comparison.text(),
                json: indented(&crate::together::TogetherEntry::from(together)),
            },
            RunComparison::Kept(Self { differ, text, json }) => {
                Self { differ: *differ, text: text.clone(), json: json.clone() }
            }
        }
    }
}

impl RunComparison {
    fn differ(&self) -> bool {
        match self {
            Self::Made(together) => matches!(together.answer, Some(JointAnswer::Differ(_))),
            Self::Kept(kept) => kept.differ,
        }
    }

    fn text(&self) -> String {
        match self {
            Self::Made(together) => together.text(),
            Self::Kept(kept) => kept.text.clone(),
        }
    }

    fn add_to(&self, report: &mut JsonReport) -> Result<(), serde_json::Error> {
        report.together.push(match self {
            Self::Made(together) => report::JsonEntry::Made(together.into()),
            Self::Kept(kept) => report::JsonEntry::Kept(RawValue::from_string(kept.json.clone())?),
        });
        Ok(())
    }
}

impl Reported<'_> {
    fn kind(&self) -> ReportKind {
        match self {
            Self::Check(..) => ReportKind::Check,
            Self::Run(_) => ReportKind::Run,
            Self::Job(_) => ReportKind::Job,
            Self::Kept(kept) => kept.kind,
        }
    }

    pub(super) fn conclusion(&self) -> Conclusion {
        match self {
            Self::Check(explained, _) => Conclusion::of(explained),
            Self::Run(run) => Conclusion::of_run(run),
            Self::Job(job) => Conclusion::of_verdict(job.verdict),
            Self::Kept(kept) => kept.conclusion,
        }
    }

    fn facts(&self) -> FilterFacts {
        let conclusion = self.conclusion();
        match self {
            Self::Check(explained, _) => FilterFacts::of(explained, conclusion),
            Self::Run(run) => FilterFacts::of_run(run, conclusion),
            Self::Job(job) => FilterFacts::of_job(job, conclusion),
            Self::Kept(kept) => kept.facts.clone(),
        }
    }

    /// The file of a check; of a run, the folder that it lies in and a name that stands for its files.
    fn place(&self) -> String {
        match self {
            Self::Check(explained, _) => explained.file.clone(),
            Self::Run(run) => run.recording.folder.join("*").display().to_string(),
            Self::Job(job) => job.job.source.join("*").display().to_string(),
            Self::Kept(kept) => kept.place.clone(),
        }
    }

    /// Whether it holds with a warning.
    fn warns(&self) -> bool {
        match self {
            Self::Check(explained, _) => explained.warnings().next().is_some(),
            Self::Run(_) | Self::Job(_) => false,
            Self::Kept(kept) => kept.warns,
        }
    }

    /// Whether it is told where only what is not as expected is: also if it holds with a warning.
    fn matters(&self, conclusion: Conclusion) -> bool {
        self.warns() || conclusion != Conclusion::AsStated
    }

    /// Whether nothing was judged in some run of a check.
    fn nothing_judged(&self) -> bool {
        match self {
            Self::Check(explained, _) => explained.nothing_judged().next().is_some(),
            Self::Run(_) | Self::Job(_) => false,
            Self::Kept(kept) => kept.nothing_judged,
        }
    }

    /// Whether a check states the failure that was found.
    fn fails_as_stated(&self) -> bool {
        match self {
            Self::Check(explained, _) => {
                self.conclusion() == Conclusion::AsStated && explained.counterexample.is_some()
            }
            Self::Run(_) | Self::Job(_) => false,
            Self::Kept(kept) => kept.fails_as_stated,
        }
    }

    fn text(&self) -> String {
        match self {
            Self::Check(explained, _) => report::text(explained),
            Self::Run(run) => runs::report::text(run),
            Self::Job(job) => launches::report::text(job),
            Self::Kept(kept) => kept.text.clone(),
        }
    }

    /// Returns what build servers and pull requests show of it.
    fn case(&self, repo: &Path) -> TestCase {
        let ending = self.conclusion().into();
        match self {
            Self::Check(explained, spec) => formats::check(explained, ending, &spec.anchors, repo),
            Self::Run(run) => formats::recording(run, ending, repo),
            Self::Job(job) => formats::job(job, ending, repo),
            Self::Kept(kept) => kept.case.clone(),
        }
    }

    fn add_to(&self, json: &mut JsonReport) -> Result<(), serde_json::Error> {
        match self {
            Self::Check(explained, _) => {
                json.checks.extend(report::check_entries(explained).map(report::JsonEntry::Made));
            }
            Self::Run(run) => json.recordings.push(report::JsonEntry::Made(runs::report::entry(run))),
            Self::Job(job) => json.jobs.push(report::JsonEntry::Made(launches::report::entry(job))),
            Self::Kept(kept) => kept.add_to(json)?,
        }
        Ok(())
    }
}

/// Whether something is as it should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Conclusion {
    #[serde(rename = "as stated")]
    AsStated,
    #[serde(rename = "otherwise")]
    Otherwise,
    #[serde(rename = "unknown")]
    Unknown,
}

impl Conclusion {
    fn of(explained: &Explained) -> Self {
        let found = |run: &Explored| explained.states_nothing && matches!(run.verdict, Verdict::Fails { .. });
        if explained.unexpected.is_some() || explained.runs.iter().any(found) {
            Self::Otherwise
        } else if explained.inconclusive() {
            Self::Unknown
        } else {
            Self::AsStated
        }
    }

    fn of_run(judged: &Judged) -> Self {
        let holds = judged.verdict == RunVerdict::Holds;
        if holds && !judged.waived_in_vain.is_empty() {
            Self::Otherwise
        } else {
            Self::of_verdict(judged.verdict)
        }
    }

    fn of_verdict(verdict: RunVerdict) -> Self {
        match verdict {
            RunVerdict::Holds => Self::AsStated,
            RunVerdict::Fails | RunVerdict::Hangs => Self::Otherwise,
            RunVerdict::Unknown => Self::Unknown,
        }
    }
}

impl From<Conclusion> for CaseEnd {
    fn from(conclusion: Conclusion) -> Self {
        match conclusion {
            Conclusion::AsStated => Self::Passed,
            Conclusion::Otherwise => Self::Failed,
            Conclusion::Unknown => Self::Unknown,
        }
    }
}

/// How a check ended.
pub(super) fn ending(explained: &Explained) -> CaseEnd {
    Conclusion::of(explained).into()
}

/// Which part of all cases the results are of.
pub(super) enum ReportExtent {
    /// They are of all cases.
    Whole,
    /// They are of one shard of so many cases.
    Shard(Shard, usize),
    /// They are of all cases but those of the shards that are missing.
    Missing(Vec<MissingShard>),
}

/// How results are printed.
pub(super) struct Printing<'a> {
    pub(super) format: Format,
    pub(super) quiet: bool,
    pub(super) verbose: bool,
    pub(super) selection: &'a CheckSelection,
    /// Whether the searches counted on it that checks are told by folder.
    pub(super) by_folder: bool,
    /// The repository in which lines are looked for.
    pub(super) repo: &'a Path,
    pub(super) extent: ReportExtent,
    /// The checks that nobody came to before the command was interrupted; none if it was not.
    pub(super) interrupted: Option<Vec<NotChecked>>,
    /// Trace files that could not be written.
    pub(super) lost: usize,
}

impl Printing<'_> {
    /// Prints what came out, in the order of the cases, and returns the exit code.
    pub(super) fn print(self, results: &[CaseResults<'_>]) -> u8 {
        let mut all: Vec<&Reported<'_>> = results.iter().flat_map(|case| &case.reported).collect();
        // Checks come first; those of one kind stay in their order.
        all.sort_by_key(|reported| reported.kind());
        let together: Vec<&RunComparison> = results.iter().flat_map(|case| &case.together).collect();
        let bad: Vec<&SpecError> = results.iter().flat_map(|case| &case.bad).collect();
        let mut count = Count { bad: bad.len(), lost: self.lost, ..Count::default() };
        count.interrupted = self.interrupted.is_some();
        count.not_begun = self.interrupted.as_ref().map_or(0, Vec::len);
        let is_text = self.format == Format::Text;
        let detailed = self.verbose || self.quiet || self.selection.filters();
        let by_folder = self.by_folder || is_told_by_folder(all.len(), self.format, detailed);
        let mut overview = Overview::default();
        for reported in &all {
            let conclusion = reported.conclusion();
            count.add(reported, conclusion);
            overview.add(&reported.place(), conclusion);
            let brief = self.quiet || by_folder;
            let shown = self.shows(reported) && (!brief || reported.matters(conclusion));
            count.not_shown += usize::from(!shown);
            if is_text && shown {
                output::report(format_args!("{}\n", reported.text()));
            }
        }
        for comparison in &together {
            if is_text && (comparison.differ() || !self.quiet) {
                output::report(format_args!("{}\n", comparison.text()));
            }
        }
        let mut told: Vec<(String, &SpecError, usize)> = Vec::new();
        for error in &bad {
            let drawn = error.of_any_run().drawn();
            match told.iter_mut().find(|(known, ..)| *known == drawn) {
                Some((.., others)) => *others += 1,
                None => told.push((drawn, error, 0)),
            }
        }
        for (_, error, others) in told {
            output::bad(&error.clone().in_others(others));
        }
        // What no shard has, another one may have.
        let is_whole = matches!(self.extent, ReportExtent::Whole);
        if self.selection.filters() && is_whole && self.interrupted.is_none() && !all.is_empty() {
            let facts: Vec<FilterFacts> = all.iter().map(|reported| reported.facts()).collect();
            if !facts.iter().any(|facts| self.selection.shows(facts)) {
                output::advice(self.selection.nothing(&facts));
            }
        }
        if by_folder {
            let hint = "Reports of what is as expected: -v";
            output::line(format_args!("{}\n\n{hint}\n", overview.text()));
        }
        self.print_as(&all, &together, &bad, &count)
    }

    /// Prints what stands below the reports, or, where the format is none of text, everything.
    fn print_as(
        &self,
        all: &[&Reported<'_>],
        together: &[&RunComparison],
        bad: &[&SpecError],
        count: &Count,
    ) -> u8 {
        let code = count.exit_code(&self.extent);
        let summary = || count.summary(self.selection.filters(), &self.extent);
        let cases = || self.cases(all, bad);
        let printed = match self.format {
            Format::Text => {
                // Where nothing could be judged, what is wrong says it all.
                let is_whole = matches!(self.extent, ReportExtent::Whole);
                if !all.is_empty() || self.interrupted.is_some() || !is_whole {
                    output::report(summary());
                }
                Ok(())
            }
            Format::Json => self.json(all, together, bad).map(output::line),
            Format::Junit => {
                output::line(junit(&cases()));
                Ok(())
            }
            Format::Github => {
                output::lines(github(&annotations(&cases())));
                output::line(summary());
                Ok(())
            }
            Format::Sarif => {
                serde_json::to_string_pretty(&sarif(&annotations(&cases()), code)).map(output::line)
            }
        };
        printed.map_or_else(output::usage, |()| code)
    }

    fn json(
        &self,
        all: &[&Reported<'_>],
        together: &[&RunComparison],
        bad: &[&SpecError],
    ) -> Result<String, serde_json::Error> {
        let mut json = report::json([], [], [], bad.iter().copied());
        for reported in all.iter().filter(|reported| self.shows(reported)) {
            reported.add_to(&mut json)?;
        }
        for comparison in together {
            comparison.add_to(&mut json)?;
        }
        json.interrupted.clone_from(&self.interrupted);
        match &self.extent {
            ReportExtent::Whole => {}
            ReportExtent::Shard(shard, cases) => {
                json.shard = Some(ShardOfReport { number: shard.number(), of: shard.of(), cases: *cases });
            }
            ReportExtent::Missing(missing) => json.missing_shards.clone_from(missing),
        }
        serde_json::to_string_pretty(&json)
    }

    /// What was checked, as test cases.
    fn cases(&self, all: &[&Reported<'_>], bad: &[&SpecError]) -> Vec<TestCase> {
        let missing = match &self.extent {
            ReportExtent::Whole | ReportExtent::Shard(..) => &[][..],
            ReportExtent::Missing(missing) => missing,
        };
        let checked = all.iter().map(|reported| reported.case(self.repo));
        let bad = bad.iter().map(|error| formats::bad(error));
        checked.chain(bad).chain(missing.iter().map(formats::missing)).collect()
    }

    /// Whether the filters let something through.
    fn shows(&self, reported: &Reported<'_>) -> bool {
        !self.selection.filters() || self.selection.shows(&reported.facts())
    }
}

/// How many checks and recorded runs are as they should be.
#[derive(Debug, Default)]
struct Count {
    as_stated: usize,
    otherwise: usize,
    unknown: usize,
    /// Those of the checks as stated that state a failure.
    expected_failures: usize,
    /// Files that could not be read, and programs that could not be evaluated.
    bad: usize,
    /// Trace files that could not be written.
    lost: usize,
    /// Checks that hold because nothing was judged in some run.
    nothing_judged: usize,
    /// Whether somebody interrupted the command.
    interrupted: bool,
    /// The checks that nobody came to before that.
    not_begun: usize,
    /// Checks and runs of which no report is printed.
    not_shown: usize,
}

impl Count {
    fn summary(&self, filtered: bool, extent: &ReportExtent) -> String {
        let mut text = report::summary(self.as_stated, self.otherwise, self.unknown, self.expected_failures);
        match self.nothing_judged {
            0 => {}
            1 => text.push_str("; nothing was judged in 1 check"),
            many => text.push_str(&format!("; nothing was judged in {many} checks")),
        }
        match self.bad {
            0 => {}
            1 => text.push_str("; 1 could not be checked"),
            bad => text.push_str(&format!("; {bad} could not be checked")),
        }
        if filtered && self.not_shown > 0 {
            text.push_str(&format!("; {} of these not shown", self.not_shown));
        }
        match (self.interrupted, self.not_begun) {
            (false, _) => {}
            (true, 0) => text.push_str("; interrupted"),
            (true, 1) => text.push_str("; interrupted, 1 check was not begun"),
            (true, many) => text.push_str(&format!("; interrupted, {many} checks were not begun")),
        }
        match extent {
            ReportExtent::Whole => {}
            ReportExtent::Shard(shard, cases) => match shard.len_of(*cases) {
                0 => text.push_str(&format!("; shard {shard} is empty, because there are {cases} cases")),
                own => text.push_str(&format!("; shard {shard}, {own} of {cases} cases")),
            },
            ReportExtent::Missing(missing) => {
                let cases: usize = missing.iter().map(|shard| shard.cases).sum();
                let numbers: Vec<String> = missing.iter().map(|shard| shard.number.to_string()).collect();
                let (noun, are) = if missing.len() == 1 { ("shard", "is") } else { ("shards", "are") };
                let of = missing.first().map_or(0, |shard| shard.of);
                text.push_str(&format!(
                    "; {noun} {} of {of} {are} missing, with {cases} {} that nobody checked",
                    numbers.join(", "),
                    if cases == 1 { "case" } else { "cases" }
                ));
            }
        }
        text
    }

    fn add(&mut self, reported: &Reported<'_>, conclusion: Conclusion) {
        self.nothing_judged += usize::from(reported.nothing_judged());
        self.expected_failures += usize::from(reported.fails_as_stated());
        match conclusion {
            Conclusion::AsStated => self.as_stated += 1,
            Conclusion::Otherwise => self.otherwise += 1,
            Conclusion::Unknown => self.unknown += 1,
        }
    }

    fn exit_code(&self, extent: &ReportExtent) -> u8 {
        if self.interrupted {
            return INTERRUPTED;
        }
        let missing = match extent {
            ReportExtent::Whole | ReportExtent::Shard(..) => 0,
            ReportExtent::Missing(missing) => missing.len(),
        };
        match (self.bad + self.lost, self.otherwise, self.unknown + missing) {
            (0, 0, 0) => 0,
            (0, 0, _) => 3,
            (0, ..) => 1,
            _ => output::BAD,
        }
    }
}
