//! `rankcheck check`: searches every check of spec files, judges recorded runs, and reports both.
//!
//! Not here: the search ([`crate::search`]), and what reports look like ([`crate::report`]).

use std::collections::BTreeMap;
use std::num::NonZero;
use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;
use rankcheck_model::{Platform, Rule};

use super::overview::{MANY, Overview};
use super::progress::{INTERRUPTED, interruptible};
use super::search::{at_least_one, search_each};
use super::select::{CheckSelection, FilterFacts};
use super::{formats, output};
use crate::dumps::{holds_dumps, judge_dumps};
use crate::launches::judge::JudgedJob;
use crate::logs::{holds_logs, judge_logs};
use crate::pull_request::{CaseEnd, TestCase, annotations, github, junit, sarif};
use crate::report::NotChecked;
use crate::runs::judge::{self, Judged};
use crate::search::{Bounds, Detail, Explained, Explored, KeptOfRun, Options, StopRequest, Verdict};
use crate::spec::{Anchor, Spec, SpecError};
use crate::together::{JointAnswer, Together, together};
use crate::trace::Trace;
use crate::{launches, report, runs};

#[derive(Debug, clap::Args)]
pub(super) struct CheckArguments {
    /// Spec files (*.star), folders of them, folders of recorded runs, dumps of PyTorch's Flight Recorder, and logs of NCCL.
    #[arg(required = true)]
    paths: Vec<PathBuf>,
    /// How to report.
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
    /// With --format sarif or github: the folder of the repository that specs quote with code(…), and in which the programs
    /// of recorded runs and dumps lie. Annotations lead to its lines.
    #[arg(long, value_name = "DIR", default_value = ".")]
    repo: PathBuf,
    /// Check on this NCCL version only: 2.27.7, 2.28.9 or 2.30.7.
    #[arg(long)]
    platform: Option<Platform>,
    /// Explore every interleaving, without reductions: the oracle. Slow.
    #[arg(long)]
    naive: bool,
    #[command(flatten)]
    selection: CheckSelection,
    /// List the checks that are wanted, each with its place and what it states, and search none. With --rule and
    /// --verdict, those that state it.
    #[arg(long, conflicts_with = "trace_out")]
    list: bool,
    /// In recorded runs, this rule may be broken, for this reason, which the report repeats. May be given several times;
    /// a spec says it where it states the check: waive = {"MEM-5": "why"}.
    #[arg(long, value_name = "RULE=REASON", value_parser = waiver)]
    waive: Vec<(Rule, String)>,
    /// Give up on a check beyond this many states (20,000,000 if not given).
    #[arg(long)]
    max_states: Option<u64>,
    /// Give up on a run beyond this many choices (10,000 if not given).
    #[arg(long)]
    max_choices: Option<u32>,
    /// Give up on a run beyond this many operations (2,000,000,000 if not given).
    #[arg(long)]
    max_steps: Option<u64>,
    /// Merge histories that lead to one future from this many states on, or 100 times as many operations (1,000 if not
    /// given).
    #[arg(long, value_name = "STATES", conflicts_with = "naive")]
    merge_from: Option<u64>,
    /// Give up on an exploration after this many seconds.
    #[arg(long, allow_negative_numbers = true)]
    max_seconds: Option<f64>,
    /// Give up on an exploration when the command holds this many bytes: 4GiB, 512M; three quarters of the memory there
    /// is, if not given.
    #[arg(long, value_name = "BYTES", value_parser = size)]
    max_memory: Option<u64>,
    /// Checks run at the same time; the number of cores if not given.
    #[arg(long, value_parser = at_least_one)]
    jobs: Option<NonZero<usize>>,
    /// Write a trace file for each failing check into this folder.
    #[arg(long, value_name = "DIR")]
    trace_out: Option<PathBuf>,
    /// Look for changes with which a failing program holds.
    #[arg(long, value_enum, value_name = "WHEN", default_value = "unexpected")]
    repairs: LookForRepairs,
    /// Print unexpected and inconclusive checks only, and those that hold with a warning.
    #[arg(long, short)]
    quiet: bool,
    /// Print every report in full. On a terminal, more than 20 are told by folder, and in full only where something is not
    /// as expected.
    #[arg(long, short, conflicts_with = "quiet")]
    verbose: bool,
}

/// For which failures repairs are looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
enum LookForRepairs {
    /// For no failure at all.
    Never,
    /// For those that the check does not state.
    Unexpected,
    /// For every failure, stated or not.
    Always,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
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

/// Reads a number of bytes: `8589934592`, `8G`, `8GiB`.
fn size(text: &str) -> Result<u64, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let shift = match unit.trim().to_ascii_lowercase().trim_end_matches("ib").trim_end_matches('b') {
        "" => 0,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        "t" => 40,
        _ => return Err("give a number of bytes, with K, M, G or T for powers of 1024: 4GiB".to_owned()),
    };
    let number: u64 = number.parse().map_err(|_| "give a number of bytes: 4GiB".to_owned())?;
    let bytes = number.checked_mul(1 << shift).filter(|bytes| *bytes > 0);
    bytes.ok_or_else(|| "give at least one byte, and fewer than 2^64".to_owned())
}

/// Reads a waiver: `MEM-5=the peers are restarted`.
fn waiver(text: &str) -> Result<(Rule, String), String> {
    let (rule, reason) = text.split_once('=').unwrap_or((text, ""));
    let rule: Rule = rule.trim().parse().map_err(|error| format!("{error}"))?;
    match reason.trim() {
        "" => Err(format!("say why it may be broken: --waive {rule}=\"the peers are restarted\"")),
        reason => Ok((rule, reason.to_owned())),
    }
}

/// Runs that somebody recorded, and jobs of which there are dumps or logs.
#[derive(Default)]
struct JudgedRuns {
    recordings: Vec<Judged>,
    jobs: Vec<JudgedJob>,
    together: Vec<Together>,
}

/// What came out of the checks that were wanted.
#[derive(Default)]
struct Searched {
    /// In the order of the files.
    explained: Vec<Explained>,
    /// What is wrong with files that could not be read and programs that could not be evaluated.
    bad: Vec<SpecError>,
    /// The lines of code that each spec file quotes.
    quotes: BTreeMap<String, Vec<Anchor>>,
    /// The checks that nobody came to before the command was interrupted; none if it was not.
    interrupted: Option<Vec<NotChecked>>,
}

impl CheckArguments {
    pub(super) fn run(&self) -> u8 {
        let dumped: Vec<PathBuf> = self.paths.iter().filter(|path| holds_dumps(path)).cloned().collect();
        let mut folders: Vec<PathBuf> =
            self.paths.iter().filter(|path| runs::is_recording(path)).cloned().collect();
        let logged: Vec<PathBuf> = self.paths.iter().filter(|path| holds_logs(path)).cloned().collect();
        let judged_alone =
            |path: &&PathBuf| !dumped.contains(path) && !folders.contains(path) && !logged.contains(path);
        let paths: Vec<PathBuf> = self.paths.iter().filter(judged_alone).cloned().collect();
        // A job may keep its recording beside its dumps.
        for folder in dumped.iter().flat_map(|path| runs::recordings_below(path)) {
            if !folders.contains(&folder) {
                folders.push(folder);
            }
        }
        if paths.is_empty()
            && let Some(option) = self.only_for_specs()
        {
            let (what, path) = match (folders.first(), dumped.first()) {
                (Some(folder), _) => ("a recorded run", folder),
                (None, Some(dumps)) => ("dumps of a run", dumps),
                (None, None) => ("logs of a run", &logged[0]),
            };
            return output::usage(format_args!(
                "{option} is about checks of specs and does nothing for {what}, and {} is one; \
                 leave it out, or give spec files too",
                path.display()
            ));
        }
        if folders.is_empty() && !self.waive.is_empty() {
            return output::usage(
                "--waive is about recorded runs, and none is given; a check of a spec says itself what may be broken, \
                 and why: check(…, waive = {\"MEM-5\": \"the peers are restarted\"})",
            );
        }
        let judge = |folder| judge::read(folder).and_then(|run| judge::judge(run, self.platform));
        let mut judged: Vec<Judged> = Vec::new();
        let mut unread: Vec<SpecError> = Vec::new();
        let stop = interruptible();
        for folder in folders.iter().take_while(|_| !stop.asked()) {
            match judge(folder) {
                Ok(run) => judged.push(run),
                Err(error) => unread.push(SpecError::new(error.to_string(), None)),
            }
        }
        judge::waive(&mut judged, &self.waive.iter().cloned().collect());
        let mut jobs = Vec::new();
        let mut add = |judged: Result<Vec<JudgedJob>, String>| match judged {
            Ok(judged) => jobs.extend(judged),
            Err(error) => unread.push(SpecError::new(error, None)),
        };
        if !dumped.is_empty() {
            add(judge_dumps(&dumped).map_err(|error| error.to_string()));
        }
        if !logged.is_empty() {
            add(judge_logs(&logged).map_err(|error| error.to_string()));
        }
        let together = together(&judged, &jobs).unwrap_or_else(|error| {
            unread.push(SpecError::new(error.to_string(), None));
            Vec::new()
        });
        let judged = JudgedRuns { recordings: judged, jobs, together };
        if paths.is_empty() {
            let interrupted = stop.asked().then(Vec::new);
            return self.print(Searched { bad: unread, interrupted, ..Searched::default() }, &judged);
        }
        let (specs, bad) = super::load_each(&paths);
        unread.extend(bad);
        if self.list {
            return self.print_list(&specs, &unread);
        }
        let searched = match self.search_all(&specs, unread, &stop) {
            Ok(searched) => searched,
            Err(code) => return code,
        };
        self.print(searched, &judged)
    }

    /// An option that was given and that recorded runs have no use for.
    fn only_for_specs(&self) -> Option<&'static str> {
        let given = [
            (self.naive, "--naive"),
            (self.selection.only.is_some(), "--only"),
            (self.selection.system.is_some(), "--system"),
            (self.list, "--list"),
            (self.max_states.is_some(), "--max-states"),
            (self.max_choices.is_some(), "--max-choices"),
            (self.max_steps.is_some(), "--max-steps"),
            (self.merge_from.is_some(), "--merge-from"),
            (self.max_seconds.is_some(), "--max-seconds"),
            (self.jobs.is_some(), "--jobs"),
            (self.trace_out.is_some(), "--trace-out"),
        ];
        given.into_iter().find_map(|(given, option)| given.then_some(option))
    }

    /// Searches every check that is wanted. A file or check that is bad is kept beside the others, and ends nothing.
    fn search_all(&self, specs: &[Spec], bad: Vec<SpecError>, stop: &StopRequest) -> Result<Searched, u8> {
        if let Some(folder) = &self.trace_out {
            Trace::prepare(folder).map_err(output::usage)?;
        }
        // A library has no checks of its own; it is checked through whoever loads it.
        if specs.iter().all(|spec| spec.checks.is_empty()) {
            if !bad.is_empty() {
                return Ok(Searched { bad, ..Searched::default() });
            }
            let why = "none of these files has a check; say check(name, program, expect = …) in one of them";
            return Err(output::usage(why));
        }
        let jobs = match self.selection.checks(specs) {
            Ok(jobs) => jobs,
            Err(error) => {
                bad.iter().for_each(|error| {
                    output::bad(error);
                });
                return Err(output::usage(error));
            }
        };
        let options = self.options(stop).map_err(output::usage)?;
        let results = search_each(&jobs, &options, self.jobs, |_, explained| explained);
        let not_checked = jobs.iter().enumerate().filter(|(nth, _)| !results.contains_key(nth));
        let not_checked: Vec<NotChecked> = not_checked
            .map(|(_, job)| {
                let (spec, check) = job;
                NotChecked { file: spec.path.clone(), name: check.name.clone() }
            })
            .collect();
        let mut searched =
            Searched { interrupted: stop.asked().then_some(not_checked), bad, ..Searched::default() };
        searched.quotes = specs.iter().map(|spec| (spec.path.clone(), spec.anchors.clone())).collect();
        for result in results.into_values() {
            match result {
                Ok(found) => searched.explained.push(found),
                Err(error) => searched.bad.push(error),
            }
        }
        Ok(searched)
    }

    /// Prints the checks that are wanted.
    fn print_list(&self, specs: &[Spec], bad: &[SpecError]) -> u8 {
        let mut code = bad.iter().map(|error| output::bad(error)).max().unwrap_or(0);
        if self.format == Format::Json {
            return output::usage("--list prints lines of text; leave --format out");
        }
        let listed = self.selection.checks(specs).and_then(|checks| self.selection.list(&checks));
        match listed {
            Ok(lines) => lines.iter().for_each(output::line),
            Err(error) => code = output::usage(error),
        }
        code
    }

    fn options(&self, stop: &StopRequest) -> Result<Options, &'static str> {
        let seconds = self.max_seconds.unwrap_or(1.0);
        if seconds <= 0.0 || !seconds.is_finite() {
            return Err("--max-seconds takes a positive number of seconds");
        }
        // More than a clock can count is no bound.
        let time =
            self.max_seconds.map(|seconds| Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX));
        if self.naive && self.trace_out.is_some() {
            return Err("--trace-out needs the reduced exploration; leave --naive out");
        }
        let bounds = Bounds::default();
        // A report wants to know why, a trace file what is done.
        let kept = if self.trace_out.is_some() { Detail::Run } else { Detail::Verdict };
        let repairs = |when| if self.repairs >= when { Detail::Repair } else { Detail::Reason };
        let stated = repairs(LookForRepairs::Always);
        Ok(Options {
            platform: self.platform,
            naive: self.naive,
            rule: self.selection.rule,
            bounds: Bounds {
                states: self.max_states.unwrap_or(bounds.states),
                choices: self.max_choices.unwrap_or(bounds.choices),
                time,
                steps: self.max_steps.unwrap_or(bounds.steps),
                merge_from: self.merge_from.unwrap_or(bounds.merge_from),
                memory: self.max_memory.or(bounds.memory),
                stop: stop.clone(),
            },
            stated: if self.quiet { kept } else { stated },
            unstated: repairs(LookForRepairs::Unexpected),
            kept: KeptOfRun::Steps,
            repair_time: None,
        })
    }

    /// Prints what came out, and writes the traces.
    fn print(&self, searched: Searched, judged: &JudgedRuns) -> u8 {
        let Searched { explained, bad, quotes, interrupted } = searched;
        let mut count = Count { bad: bad.len(), interrupted: interrupted.is_some(), ..Count::default() };
        count.not_begun = interrupted.as_ref().map_or(0, Vec::len);
        let checks = explained.iter().map(Reported::Check);
        let runs = judged.recordings.iter().map(Reported::Run);
        let all: Vec<Reported<'_>> =
            checks.chain(runs).chain(judged.jobs.iter().map(Reported::Job)).collect();
        let is_text = self.format == Format::Text;
        let by_folder = is_text
            && all.len() > MANY
            && !(self.verbose || self.quiet || self.selection.filters())
            && output::is_terminal();
        let mut overview = Overview::default();
        for subject in &all {
            let conclusion = subject.conclusion();
            count.add(subject, conclusion);
            overview.add(&subject.place(), conclusion);
            if let (Some(folder), Reported::Check(explained)) = (&self.trace_out, subject)
                && let Some(trace) = Trace::of(explained)
                && let Err(error) = trace.write(folder)
            {
                output::usage(error);
                count.lost += 1;
            }
            let brief = self.quiet || by_folder;
            let shown = self.shows(subject) && (!brief || subject.matters(conclusion));
            count.not_shown += usize::from(!shown);
            if is_text && shown {
                output::report(format_args!("{}\n", subject.text()));
            }
        }
        for together in &judged.together {
            let differ = matches!(together.answer, Some(JointAnswer::Differ(_)));
            if is_text && (differ || !self.quiet) {
                output::report(format_args!("{}\n", together.text()));
            }
        }
        for error in &bad {
            output::bad(error);
        }
        let cases = || self.cases(&explained, &quotes, judged, &bad);
        if self.selection.filters() && interrupted.is_none() && !all.is_empty() {
            let facts: Vec<FilterFacts> = all.iter().map(Reported::facts).collect();
            if !facts.iter().any(|facts| self.selection.shows(facts)) {
                return output::usage(self.selection.nothing(&facts));
            }
        }
        match self.format {
            Format::Text => {
                if by_folder {
                    let hint = "Reports of what is as expected: -v";
                    output::line(format_args!("{}\n\n{hint}\n", overview.text()));
                }
                // Where nothing could be judged, what is wrong says it all.
                if !all.is_empty() || interrupted.is_some() {
                    output::report(count.summary(self.selection.filters()));
                }
            }
            Format::Json => {
                let checks = explained.iter().filter(|explained| self.shows(&Reported::Check(explained)));
                let runs = judged.recordings.iter().filter(|run| self.shows(&Reported::Run(run)));
                let jobs = judged.jobs.iter().filter(|job| self.shows(&Reported::Job(job)));
                let mut json = report::json(checks, runs, jobs, &bad);
                json.together = judged.together.iter().map(Into::into).collect();
                json.interrupted = interrupted;
                match serde_json::to_string_pretty(&json) {
                    Ok(text) => output::line(text),
                    Err(error) => return output::usage(error),
                }
            }
            Format::Junit => output::line(junit(&cases())),
            Format::Github => {
                output::lines(github(&annotations(&cases())));
                output::line(count.summary(self.selection.filters()));
            }
            Format::Sarif => {
                match serde_json::to_string_pretty(&sarif(&annotations(&cases()), count.exit_code())) {
                    Ok(text) => output::line(text),
                    Err(error) => return output::usage(error),
                }
            }
        }
        count.exit_code()
    }

    /// What was checked, as test cases.
    fn cases(
        &self,
        all: &[Explained],
        quotes: &BTreeMap<String, Vec<Anchor>>,
        judged: &JudgedRuns,
        bad: &[SpecError],
    ) -> Vec<TestCase> {
        let check = |explained: &Explained| {
            let quotes = quotes.get(&explained.file).map_or(&[][..], Vec::as_slice);
            formats::check(explained, ending(explained), quotes, &self.repo)
        };
        let recording = |run| formats::recording(run, Conclusion::of_run(run).into(), &self.repo);
        let job = |job: &JudgedJob| formats::job(job, Conclusion::of_verdict(job.verdict).into(), &self.repo);
        let checks = all.iter().map(check).chain(judged.recordings.iter().map(recording));
        checks.chain(judged.jobs.iter().map(job)).chain(bad.iter().map(formats::bad)).collect()
    }

    /// Whether the filters let something through.
    fn shows(&self, subject: &Reported<'_>) -> bool {
        !self.selection.filters() || self.selection.shows(&subject.facts())
    }
}

/// What a report is about.
enum Reported<'a> {
    Check(&'a Explained),
    Run(&'a Judged),
    Job(&'a JudgedJob),
}

impl Reported<'_> {
    fn conclusion(&self) -> Conclusion {
        match self {
            Self::Check(explained) => Conclusion::of(explained),
            Self::Run(run) => Conclusion::of_run(run),
            Self::Job(job) => Conclusion::of_verdict(job.verdict),
        }
    }

    fn facts(&self) -> FilterFacts {
        let conclusion = self.conclusion();
        match self {
            Self::Check(explained) => FilterFacts::of(explained, conclusion),
            Self::Run(run) => FilterFacts::of_run(run, conclusion),
            Self::Job(job) => FilterFacts::of_job(job, conclusion),
        }
    }

    /// The file of a check; of a run, the folder that it lies in and a name that stands for its files.
    fn place(&self) -> String {
        match self {
            Self::Check(explained) => explained.file.clone(),
            Self::Run(run) => run.recording.folder.join("*").display().to_string(),
            Self::Job(job) => job.job.source.join("*").display().to_string(),
        }
    }

    /// Whether it is told where only what is not as expected is: also if it holds with a warning.
    fn matters(&self, conclusion: Conclusion) -> bool {
        let warns = match self {
            Self::Check(explained) => explained.warnings().next().is_some(),
            Self::Run(_) | Self::Job(_) => false,
        };
        warns || conclusion != Conclusion::AsStated
    }

    fn text(&self) -> String {
        match self {
            Self::Check(explained) => report::text(explained),
            Self::Run(run) => runs::report::text(run),
            Self::Job(job) => launches::report::text(job),
        }
    }
}

/// Whether something is as it should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Conclusion {
    AsStated,
    Otherwise,
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
        let holds = judged.verdict == judge::RunVerdict::Holds;
        if holds && !judged.waived_in_vain.is_empty() {
            Self::Otherwise
        } else {
            Self::of_verdict(judged.verdict)
        }
    }

    fn of_verdict(verdict: judge::RunVerdict) -> Self {
        match verdict {
            judge::RunVerdict::Holds => Self::AsStated,
            judge::RunVerdict::Fails | judge::RunVerdict::Hangs => Self::Otherwise,
            judge::RunVerdict::Unknown => Self::Unknown,
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
    fn summary(&self, filtered: bool) -> String {
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
        text
    }

    fn add(&mut self, subject: &Reported<'_>, conclusion: Conclusion) {
        if let Reported::Check(explained) = subject {
            self.nothing_judged += usize::from(explained.nothing_judged().next().is_some());
            let fails_as_stated = conclusion == Conclusion::AsStated && explained.counterexample.is_some();
            self.expected_failures += usize::from(fails_as_stated);
        }
        match conclusion {
            Conclusion::AsStated => self.as_stated += 1,
            Conclusion::Otherwise => self.otherwise += 1,
            Conclusion::Unknown => self.unknown += 1,
        }
    }

    fn exit_code(&self) -> u8 {
        if self.interrupted {
            return INTERRUPTED;
        }
        match (self.bad + self.lost, self.otherwise, self.unknown) {
            (0, 0, 0) => 0,
            (0, 0, _) => 3,
            (0, ..) => 1,
            _ => output::BAD,
        }
    }
}
