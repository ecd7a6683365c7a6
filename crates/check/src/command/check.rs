//! `rankcheck check`: searches every check of spec files, judges recorded runs, and reports both.
//!
//! Not here: the search ([`crate::search`]), and what reports look like ([`crate::report`]).

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZero;
use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;
use rankcheck_model::{Platform, Rule};

use super::search::search_each;
use super::{formats, output};
use crate::dumps::{holds_dumps, judge_dumps};
use crate::launches::judge::JudgedJob;
use crate::logs::{holds_logs, judge_logs};
use crate::pull_request::{CaseEnd, TestCase, annotations, github, junit, sarif};
use crate::runs::judge::{self, Judged};
use crate::search::{Bounds, Detail, Explained, Explored, KeptOfRun, Options, Verdict};
use crate::spec::{Anchor, Spec, SpecError};
use crate::together::{JointAnswer, Together, together};
use crate::trace::Trace;
use crate::{launches, report, runs};

#[derive(Debug, clap::Args)]
pub(super) struct CheckArguments {
    /// Spec files (*.star), folders of them, folders of recorded runs, and dumps of PyTorch's Flight Recorder.
    #[arg(required = true)]
    paths: Vec<PathBuf>,
    /// How to report.
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
    /// With --format sarif or github: the folder of the repository that the specs quote with code(…). Annotations lead to
    /// its lines.
    #[arg(long, value_name = "DIR", default_value = ".")]
    repo: PathBuf,
    /// Check on this NCCL version only: 2.27.7, 2.28.9 or 2.30.7.
    #[arg(long)]
    platform: Option<Platform>,
    /// Explore every interleaving, without reductions: the oracle. Slow.
    #[arg(long)]
    naive: bool,
    /// Only checks whose name contains this.
    #[arg(long, value_name = "NAME")]
    only: Option<String>,
    /// Show the run that breaks this rule, where several are broken.
    #[arg(long, value_name = "RULE")]
    rule: Option<Rule>,
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
    /// Give up on an exploration after this many seconds.
    #[arg(long, allow_negative_numbers = true)]
    max_seconds: Option<f64>,
    /// Give up on an exploration when the command holds this many bytes: 4GiB, 512M; three quarters of the memory there
    /// is, if not given.
    #[arg(long, value_name = "BYTES", value_parser = size)]
    max_memory: Option<u64>,
    /// Checks run at the same time; the number of cores if not given.
    #[arg(long)]
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
}

impl Searched {
    fn breaks(&self, rule: Rule) -> bool {
        self.explained.iter().flat_map(|explained| &explained.runs).any(|run| run.broken.contains_key(&rule))
    }

    /// Says which rules are broken where the one is not whose run is wanted.
    fn without(&self, rule: Rule) -> String {
        let runs = self.explained.iter().flat_map(|explained| &explained.runs);
        let broken: BTreeSet<Rule> = runs.flat_map(|run| run.broken.keys().copied()).collect();
        let ids: Vec<&str> = broken.iter().map(|rule| rule.id()).collect();
        match ids.as_slice() {
            [] => format!("no run breaks {rule} (--rule), nor any other rule"),
            ids => format!("no run breaks {rule} (--rule); the rules that are broken: {}", ids.join(", ")),
        }
    }
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
        for folder in &folders {
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
            return self.print(Searched { bad: unread, ..Searched::default() }, &judged);
        }
        let (specs, bad) = super::load_each(&paths);
        unread.extend(bad);
        let searched = match self.search_all(&specs, unread) {
            Ok(searched) => searched,
            Err(code) => return code,
        };
        match self.rule.filter(|rule| !searched.breaks(*rule)) {
            Some(rule) => output::usage(searched.without(rule)),
            None => self.print(searched, &judged),
        }
    }

    /// An option that was given and that recorded runs have no use for.
    fn only_for_specs(&self) -> Option<&'static str> {
        let given = [
            (self.naive, "--naive"),
            (self.only.is_some(), "--only"),
            (self.max_states.is_some(), "--max-states"),
            (self.max_choices.is_some(), "--max-choices"),
            (self.max_steps.is_some(), "--max-steps"),
            (self.max_seconds.is_some(), "--max-seconds"),
            (self.jobs.is_some(), "--jobs"),
            (self.trace_out.is_some(), "--trace-out"),
        ];
        given.into_iter().find_map(|(given, option)| given.then_some(option))
    }

    fn wants(&self, name: &str) -> bool {
        self.only.as_ref().is_none_or(|part| name.contains(part.as_str()))
    }

    /// Searches every check that is wanted. A file or check that is bad is kept beside the others, and ends nothing.
    fn search_all(&self, specs: &[Spec], mut bad: Vec<SpecError>) -> Result<Searched, u8> {
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
        let checks = specs.iter().flat_map(|spec| spec.checks.iter().map(move |check| (spec, check)));
        let jobs: Vec<_> = checks.filter(|(_, check)| self.wants(&check.name)).collect();
        if jobs.is_empty() {
            bad.iter().for_each(|error| {
                output::bad(error);
            });
            return Err(output::usage("no check has a name like that (--only)"));
        }
        let options = self.options().map_err(output::usage)?;
        let (explained, wrong) = search_each(&jobs, &options, self.jobs);
        bad.extend(wrong);
        let quotes = specs.iter().map(|spec| (spec.path.clone(), spec.anchors.clone())).collect();
        Ok(Searched { explained, bad, quotes })
    }

    fn options(&self) -> Result<Options, &'static str> {
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
            rule: self.rule,
            bounds: Bounds {
                states: self.max_states.unwrap_or(bounds.states),
                choices: self.max_choices.unwrap_or(bounds.choices),
                time,
                steps: self.max_steps.unwrap_or(bounds.steps),
                memory: self.max_memory.or(bounds.memory),
            },
            stated: if self.quiet { kept } else { stated },
            unstated: repairs(LookForRepairs::Unexpected),
            kept: KeptOfRun::Steps,
            repair_time: None,
        })
    }

    /// Prints what came out, and writes the traces.
    fn print(&self, Searched { explained: all, bad, quotes }: Searched, judged: &JudgedRuns) -> u8 {
        let mut count = Count { bad: bad.len(), ..Count::default() };
        for explained in &all {
            let conclusion = Conclusion::of(explained);
            count.add(conclusion);
            count.nothing_judged += usize::from(explained.nothing_judged().next().is_some());
            let fails_as_stated = conclusion == Conclusion::AsStated && explained.counterexample.is_some();
            count.expected_failures += usize::from(fails_as_stated);
            if let Some(folder) = &self.trace_out
                && let Some(trace) = Trace::of(explained)
                && let Err(error) = trace.write(folder)
            {
                output::usage(error);
                count.lost += 1;
            }
            if self.shows(conclusion) || self.format == Format::Text && explained.warnings().next().is_some()
            {
                output::line(format_args!("{}\n", report::text(explained)));
            }
        }
        for run in &judged.recordings {
            let conclusion = Conclusion::of_run(run);
            count.add(conclusion);
            if self.shows(conclusion) {
                output::line(format_args!("{}\n", runs::report::text(run)));
            }
        }
        for job in &judged.jobs {
            let conclusion = Conclusion::of_verdict(job.verdict);
            count.add(conclusion);
            if self.shows(conclusion) {
                output::line(format_args!("{}\n", launches::report::text(job)));
            }
        }
        for together in &judged.together {
            let differ = matches!(together.answer, Some(JointAnswer::Differ(_)));
            if self.format == Format::Text && (differ || !self.quiet) {
                output::line(format_args!("{}\n", together.text()));
            }
        }
        for error in &bad {
            output::bad(error);
        }
        let cases = || self.cases(&all, &quotes, judged, &bad);
        match self.format {
            Format::Text => {
                // Where nothing could be judged, what is wrong says it all.
                if !all.is_empty() || !judged.recordings.is_empty() || !judged.jobs.is_empty() {
                    output::line(count.summary());
                }
            }
            Format::Json => {
                let mut json = report::json(&all, &judged.recordings, &judged.jobs, &bad);
                json.together = judged.together.iter().map(Into::into).collect();
                match serde_json::to_string_pretty(&json) {
                    Ok(text) => output::line(text),
                    Err(error) => return output::usage(error),
                }
            }
            Format::Junit => output::line(junit(&cases())),
            Format::Github => {
                output::lines(github(&annotations(&cases())));
                output::line(count.summary());
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
        let recording = |run| formats::recording(run, Conclusion::of_run(run).into());
        let job = |job: &JudgedJob| formats::job(job, Conclusion::of_verdict(job.verdict).into());
        let checks = all.iter().map(check).chain(judged.recordings.iter().map(recording));
        checks.chain(judged.jobs.iter().map(job)).chain(bad.iter().map(formats::bad)).collect()
    }

    fn shows(&self, conclusion: Conclusion) -> bool {
        self.format == Format::Text && (!self.quiet || conclusion != Conclusion::AsStated)
    }
}

/// Whether something is as it should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Conclusion {
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
}

impl Count {
    fn summary(&self) -> String {
        let mut text = report::summary(self.as_stated, self.otherwise, self.unknown, self.expected_failures);
        match self.nothing_judged {
            0 => {}
            1 => text.push_str("; nothing was judged in 1 check"),
            many => text.push_str(&format!("; nothing was judged in {many} checks")),
        }
        match self.bad {
            0 => text,
            1 => format!("{text}; 1 could not be checked"),
            bad => format!("{text}; {bad} could not be checked"),
        }
    }

    fn add(&mut self, conclusion: Conclusion) {
        match conclusion {
            Conclusion::AsStated => self.as_stated += 1,
            Conclusion::Otherwise => self.otherwise += 1,
            Conclusion::Unknown => self.unknown += 1,
        }
    }

    fn exit_code(&self) -> u8 {
        match (self.bad + self.lost, self.otherwise, self.unknown) {
            (0, 0, 0) => 0,
            (0, 0, _) => 3,
            (0, ..) => 1,
            _ => output::BAD,
        }
    }
}
