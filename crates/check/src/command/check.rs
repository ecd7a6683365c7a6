//! `rankcheck check`: searches every check of spec files, judges recorded runs, and reports both.
//!
//! Not here: the search ([`crate::search`]), and what reports look like ([`crate::report`]).

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZero;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::ValueEnum;
use rankcheck_model::{Platform, Rule};
use serde::{Deserialize, Serialize};

use super::checkpoint::{CheckpointError, CheckpointFile};
use super::output;
use super::overview::is_told_by_folder;
use super::progress::interruptible;
use super::results::{CaseResults, Format, Printing, ReportExtent, Reported, RunComparison};
use super::search::{SearchJob, at_least_one, search_each};
use super::select::{self, CheckSelection};
use super::shard_file::{CaseIdentity, ShardFile, ShardOptions};
use crate::dumps::{holds_dumps, judge_dumps};
use crate::launches::judge::JudgedJob;
use crate::logs::{holds_logs, judge_logs};
use crate::report::NotChecked;
use crate::runs;
use crate::runs::judge::{self, Judged};
use crate::search::{Bounds, Detail, KeptOfRun, Options, SearchKeeper, StopRequest};
use crate::shard::Shard;
use crate::spec::{Spec, SpecError, has_specs};
use crate::together::together;
use crate::trace::Trace;

#[derive(Debug, clap::Args)]
pub(super) struct CheckArguments {
    /// Spec files (*.star), folders of them, the folder of each recorded run, dumps of PyTorch's Flight Recorder, and NCCL
    /// logs.
    #[arg(required = true)]
    paths: Vec<PathBuf>,
    /// The format of the report.
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
    /// With --format sarif or github: the repository that the specs quote with code(…), and that holds the programs of
    /// recorded runs and dumps. Annotations point at its lines.
    #[arg(long, value_name = "DIR", default_value = ".")]
    repo: PathBuf,
    /// Check for this NCCL version only: 2.27.7, 2.28.9 or 2.30.7.
    #[arg(long)]
    platform: Option<Platform>,
    /// Explore every interleaving without any reduction. Slow: it is what the reductions are tested against.
    #[arg(long)]
    naive: bool,
    #[command(flatten)]
    selection: CheckSelection,
    /// List the selected checks, each with its place and what it states, and search none. --rule and --verdict then
    /// select by what checks state.
    #[arg(long, conflicts_with = "trace_out")]
    list: bool,
    /// Accept that recorded runs break this rule, for a reason that the report repeats. May be given several times. A
    /// spec waives a rule in the check itself: waive = {"MEM-5": "why"}.
    #[arg(long, value_name = "RULE=REASON", value_parser = waiver)]
    waive: Vec<(Rule, String)>,
    /// Give up on a check after this many states [default: 20,000,000].
    #[arg(long)]
    max_states: Option<u64>,
    /// Give up on a run after this many choices [default: 10,000].
    #[arg(long)]
    max_choices: Option<u32>,
    /// Give up on a run after this many operations [default: 2,000,000,000].
    #[arg(long)]
    max_steps: Option<u64>,
    /// Merge histories that lead to the same future once there are this many states, or 100 times as many operations
    /// [default: 1,000].
    #[arg(long, value_name = "STATES", conflicts_with = "naive")]
    merge_from: Option<u64>,
    /// Give up on a search after this many seconds.
    #[arg(long, allow_negative_numbers = true)]
    max_seconds: Option<f64>,
    /// Give up on a search when the command holds this many bytes, such as 4GiB or 512M [default: three quarters of the
    /// machine's memory].
    #[arg(long, value_name = "BYTES", value_parser = size)]
    max_memory: Option<u64>,
    /// Save large searches to this file from time to time, and resume those that it holds: a search that was killed, or
    /// that reached a bound, continues where it was. The file is removed once every search in it is over.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["naive", "list"])]
    checkpoint: Option<PathBuf>,
    /// Save to the checkpoint every so many seconds [default: 60].
    #[arg(long, value_name = "SECONDS", requires = "checkpoint", allow_negative_numbers = true)]
    checkpoint_every: Option<f64>,
    /// How many checks run at the same time [default: the number of cores].
    #[arg(long, value_parser = at_least_one)]
    jobs: Option<NonZero<usize>>,
    /// Write a trace of each failing check to this folder.
    #[arg(long, value_name = "DIR")]
    trace_out: Option<PathBuf>,
    /// Check only part K of N, from 1/N to N/N: for N machines that get the same arguments; see docs/cluster.md.
    #[arg(long, value_name = "K/N")]
    shard: Option<Shard>,
    /// Also write the shard's results to this file, for `rankcheck merge`.
    #[arg(long, value_name = "FILE", requires = "shard", conflicts_with = "list")]
    shard_out: Option<PathBuf>,
    /// Search for changes that make a failing program hold.
    #[arg(long, value_enum, value_name = "WHEN", default_value = "unexpected")]
    repairs: LookForRepairs,
    /// Print only checks that are unexpected or inconclusive, or hold with a warning.
    #[arg(long, short)]
    quiet: bool,
    /// Print every report in full. Without it, more than 20 checks are summarized by folder on a terminal, and only what
    /// is not as expected is printed in full.
    #[arg(long, short, conflicts_with = "quiet")]
    verbose: bool,
}

/// For which failures repairs are looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize, Deserialize)]
pub(super) enum LookForRepairs {
    /// Never: only the verdict counts.
    #[serde(rename = "never")]
    Never,
    /// For failures that the check does not state.
    #[serde(rename = "unexpected")]
    Unexpected,
    /// For every failure, expected ones included.
    #[serde(rename = "always")]
    Always,
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
    let rule = select::rule(rule.trim())?;
    match reason.trim() {
        "" => Err(format!("say why it may be broken: --waive {rule}=\"the peers are restarted\"")),
        reason => Ok((rule, reason.to_owned())),
    }
}

/// The paths that were given, by what they hold.
struct Given {
    recordings: Vec<PathBuf>,
    dumped: Vec<PathBuf>,
    logged: Vec<PathBuf>,
    specs: Vec<PathBuf>,
}

/// What is checked by one machine.
enum ShardCase<'a> {
    /// Runs that are judged together.
    Runs(RunCase),
    /// A path that could not be read.
    Unread(&'a SpecError),
    /// A check, for all of its rank counts and parameters. What is said of it is said of all of them: whether they are as it states,
    /// which run is shown, and what it assumes.
    Check(SearchJob<'a>),
}

/// Recordings, dumps and logs that are judged together.
#[derive(Default)]
struct RunCase {
    recordings: Vec<PathBuf>,
    dumped: Vec<PathBuf>,
    logged: Vec<PathBuf>,
}

impl Given {
    fn new(paths: &[PathBuf]) -> Self {
        let dumped: Vec<PathBuf> = paths.iter().filter(|path| holds_dumps(path)).cloned().collect();
        let mut recordings: Vec<PathBuf> =
            paths.iter().filter(|path| runs::is_recording(path)).cloned().collect();
        let logged: Vec<PathBuf> = paths.iter().filter(|path| holds_logs(path)).cloned().collect();
        let is_other =
            |path: &PathBuf| !dumped.contains(path) && !recordings.contains(path) && !logged.contains(path);
        // A folder may have both.
        let (beside, alone): (Vec<&PathBuf>, Vec<&PathBuf>) = paths.iter().partition(|path| has_specs(path));
        let alone = alone.into_iter().filter(|path| is_other(path));
        let specs: Vec<PathBuf> = alone.chain(beside.iter().copied()).cloned().collect();
        // A job may keep its recording beside its dumps.
        for folder in dumped.iter().chain(beside).flat_map(|path| runs::recordings_below(path)) {
            if !recordings.contains(&folder) {
                recordings.push(folder);
            }
        }
        Self { recordings, dumped, logged, specs }
    }

    /// The runs, as cases. Files of one job may lie in several of the paths, each recording is compared with all dumps, and a
    /// waiver is in vain if no run at all needs it: then all of them are one case.
    fn runs(self, waives: bool) -> Vec<RunCase> {
        let Self { recordings, dumped, logged, .. } = self;
        if waives || !dumped.is_empty() || !logged.is_empty() {
            return vec![RunCase { recordings, dumped, logged }];
        }
        let one = |folder| RunCase { recordings: vec![folder], ..RunCase::default() };
        recordings.into_iter().map(one).collect()
    }
}

impl ShardCase<'_> {
    fn identity(&self) -> CaseIdentity {
        match self {
            Self::Runs(RunCase { recordings, dumped, logged }) => {
                CaseIdentity::of_files([recordings, dumped, logged].into_iter().flatten())
            }
            Self::Unread(error) => CaseIdentity::of_text(&["unread", &error.to_string()]),
            Self::Check((spec, check)) => CaseIdentity::of_text(&[&spec.path, &check.name, &spec.digest]),
        }
    }
}

impl CheckArguments {
    pub(super) fn run(&self) -> u8 {
        if let Err(code) = output::wants_folder(&self.repo, "--repo") {
            return code;
        }
        let given = Given::new(&self.paths);
        if given.specs.is_empty()
            && let Some(option) = self.only_for_specs()
        {
            let (what, path) = match (given.recordings.first(), given.dumped.first()) {
                (Some(folder), _) => ("a recorded run", folder),
                (None, Some(dumps)) => ("dumps of a run", dumps),
                (None, None) => ("logs of a run", &given.logged[0]),
            };
            return output::usage(format_args!(
                "{option} is about checks of specs and does nothing for {what}, and {} is one; \
                 leave it out, or give spec files too",
                path.display()
            ));
        }
        if given.recordings.is_empty() && !self.waive.is_empty() {
            return output::usage(
                "--waive is about recorded runs, and none is given; a check of a spec says itself what may be broken, \
                 and why: check(…, waive = {\"MEM-5\": \"the peers are restarted\"})",
            );
        }
        let (specs, bad) = match given.specs.as_slice() {
            [] => (Vec::new(), Vec::new()),
            paths => super::load_each(paths),
        };
        let wanted = match given.specs.as_slice() {
            [] => Ok(Vec::new()),
            _ => self.wanted(&specs, &bad),
        };
        let checks = match wanted {
            Ok(checks) => checks,
            Err(code) => return code,
        };
        let runs = given.runs(!self.waive.is_empty()).into_iter().map(ShardCase::Runs);
        let specs = bad.iter().map(ShardCase::Unread).chain(checks.into_iter().map(ShardCase::Check));
        self.run_cases(&runs.chain(specs).collect::<Vec<_>>())
    }

    /// Returns the checks that are wanted.
    ///
    /// # Errors
    /// The exit code if there are none.
    fn wanted<'a>(&self, specs: &'a [Spec], bad: &[SpecError]) -> Result<Vec<SearchJob<'a>>, u8> {
        // A library has no checks of its own; it is checked through whoever loads it.
        if specs.iter().all(|spec| spec.checks.is_empty()) {
            if !bad.is_empty() {
                return Ok(Vec::new());
            }
            let why = "none of these files has a check; say check(name, program, expect = …) in one of them";
            return Err(output::usage(why));
        }
        self.selection.checks(specs).map_err(|error| {
            bad.iter().for_each(|error| {
                output::bad(error);
            });
            output::usage(error)
        })
    }

    /// Does what is to be done with those of the cases that are wanted here.
    fn run_cases(&self, cases: &[ShardCase<'_>]) -> u8 {
        let shard = self.shard.unwrap_or(Shard::WHOLE);
        let own: BTreeMap<usize, &ShardCase<'_>> =
            cases.iter().enumerate().filter(|(position, _)| shard.has(*position)).collect();
        if self.list {
            return self.print_list(&own);
        }
        let stop = interruptible();
        let checks = own.values().filter(|case| matches!(case, ShardCase::Check(_))).count();
        let detailed = self.verbose || self.quiet || self.selection.filters();
        let by_folder = self.shard_out.is_none() && is_told_by_folder(checks, self.format, detailed);
        let mut options = match self.options(&stop, by_folder) {
            Ok(options) => options,
            Err(error) => return output::usage(error),
        };
        let checkpoint = match self.checkpoint().transpose() {
            Ok(file) => file.map(Arc::new),
            Err(error) => return output::usage(error),
        };
        options.keeper = checkpoint.clone().map(|file| file as Arc<dyn SearchKeeper>);
        if let Some(folder) = &self.trace_out
            && let Err(error) = Trace::prepare(folder)
        {
            return output::usage(error);
        }
        let file = self.shard_out.as_ref().map(|path| {
            let identities = cases.iter().map(ShardCase::identity);
            ShardFile::new(path, shard, identities, self.shard_options())
        });
        if let Some(Err(error)) = file.as_ref().map(ShardFile::prepare) {
            return output::usage(error);
        }
        let (results, not_checked) = self.results(&own, &options, &stop);
        if let Some(file) = checkpoint {
            file.end(
                !stop.asked() && !results.values().flat_map(|case| &case.reported).any(Reported::is_cut),
            );
        }
        let interrupted = stop.asked().then_some(not_checked);
        let lost = self.write_traces(results.values());
        let finished = interrupted.is_none() && lost == 0;
        let written = file.map(|file| match finished {
            true => file.write(&results, &self.repo),
            false => Err(file.not_written()),
        });
        let results: Vec<CaseResults<'_>> = results.into_values().collect();
        let extent = self.shard.map_or(ReportExtent::Whole, |shard| ReportExtent::Shard(shard, cases.len()));
        let code = Printing {
            format: self.format,
            quiet: self.quiet,
            verbose: self.verbose,
            selection: &self.selection,
            by_folder,
            repo: &self.repo,
            extent,
            interrupted,
            lost,
        }
        .print(&results);
        match written {
            Some(Err(error)) => output::usage(error).max(code),
            Some(Ok(())) | None => code,
        }
    }

    /// The options that decide what a shard finds, or how that is printed.
    fn shard_options(&self) -> ShardOptions {
        ShardOptions {
            platform: self.platform.map(|platform| platform.name().to_owned()),
            naive: self.naive,
            rule: self.selection.rule.map(|rule| rule.id().to_owned()),
            verdict: self.selection.verdict,
            repairs: self.repairs,
            waive: self.waive.iter().map(|(rule, reason)| format!("{rule}={reason}")).collect(),
            quiet: self.quiet,
            verbose: self.verbose,
        }
    }

    /// Judges runs and searches checks, until somebody interrupts it. Returns by the positions of the cases what came out, and the
    /// checks that nobody came to.
    fn results<'a>(
        &self,
        cases: &BTreeMap<usize, &ShardCase<'a>>,
        options: &Options,
        stop: &StopRequest,
    ) -> (BTreeMap<usize, CaseResults<'a>>, Vec<NotChecked>) {
        let mut results = BTreeMap::new();
        let (mut positions, mut jobs) = (Vec::new(), Vec::new());
        for (position, case) in cases {
            match case {
                ShardCase::Runs(runs) => {
                    results.insert(*position, self.judged(runs, stop));
                }
                ShardCase::Unread(error) => {
                    let bad = vec![SpecError::clone(error)];
                    results.insert(*position, CaseResults { bad, ..CaseResults::default() });
                }
                ShardCase::Check(job) => {
                    positions.push(*position);
                    jobs.push(*job);
                }
            }
        }
        let mut searched = search_each(&jobs, options, self.jobs, |_, explained| explained);
        let mut not_checked = Vec::new();
        for (nth, (position, (spec, check))) in positions.into_iter().zip(jobs).enumerate() {
            let case = match searched.remove(&nth) {
                Some(Ok(explained)) => {
                    let reported = vec![Reported::Check(Box::new(explained), spec)];
                    CaseResults { reported, ..CaseResults::default() }
                }
                Some(Err(error)) => CaseResults { bad: vec![error], ..CaseResults::default() },
                None => {
                    not_checked.push(NotChecked { file: spec.path.clone(), name: check.name.clone() });
                    continue;
                }
            };
            results.insert(position, case);
        }
        (results, not_checked)
    }

    /// Judges runs that are judged together.
    fn judged<'a>(&self, runs: &RunCase, stop: &StopRequest) -> CaseResults<'a> {
        let mut judged: Vec<Judged> = Vec::new();
        let mut bad: Vec<SpecError> = Vec::new();
        for folder in runs.recordings.iter().take_while(|_| !stop.asked()) {
            for job in judge::judge_jobs(judge::read_jobs(folder), self.platform) {
                match job {
                    Ok(run) => judged.push(run),
                    Err(error) => bad.push(SpecError::new(error.to_string(), None)),
                }
            }
        }
        judge::waive(&mut judged, &self.waive.iter().cloned().collect());
        let mut jobs = Vec::new();
        let mut add = |judged: Result<Vec<JudgedJob>, String>| match judged {
            Ok(judged) => jobs.extend(judged),
            Err(error) => bad.push(SpecError::new(error, None)),
        };
        if !runs.dumped.is_empty() {
            add(judge_dumps(&runs.dumped).map_err(|error| error.to_string()));
        }
        if !runs.logged.is_empty() {
            add(judge_logs(&runs.logged).map_err(|error| error.to_string()));
        }
        let together = together(&judged, &jobs).unwrap_or_else(|error| {
            bad.push(SpecError::new(error.to_string(), None));
            Vec::new()
        });
        let judged = judged.into_iter().map(|run| Reported::Run(Box::new(run)));
        let jobs = jobs.into_iter().map(|job| Reported::Job(Box::new(job)));
        let together = together.into_iter().map(RunComparison::Made).collect();
        CaseResults { reported: judged.chain(jobs).collect(), together, bad }
    }

    /// Writes the traces that are wanted, and returns how many could not be written.
    fn write_traces<'a, 'b: 'a>(&self, results: impl Iterator<Item = &'a CaseResults<'b>>) -> usize {
        let Some(folder) = &self.trace_out else { return 0 };
        let mut lost = 0;
        let mut written = BTreeSet::new();
        for reported in results.flat_map(|case| &case.reported) {
            let Reported::Check(explained, _) = reported else { continue };
            match Trace::of(explained).map(|trace| trace.write(folder, &written)) {
                Some(Ok(file)) => _ = written.insert(file),
                Some(Err(error)) => {
                    output::usage(error);
                    lost += 1;
                }
                None => {}
            }
        }
        match written.first() {
            Some(file) if written.len() == 1 => {
                let file = file.display();
                output::note(format_args!("wrote {file}; to run it again: rankcheck replay {file}"));
            }
            Some(_) => output::note(format_args!(
                "wrote {} traces to {}; to run one again: rankcheck replay FILE",
                written.len(),
                folder.display()
            )),
            None if lost == 0 => output::note(format_args!(
                "wrote no trace to {}: there is one for each check that fails",
                folder.display()
            )),
            None => {}
        }
        lost
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
            (self.max_memory.is_some(), "--max-memory"),
            (self.repairs != LookForRepairs::Unexpected, "--repairs"),
            (self.checkpoint.is_some(), "--checkpoint"),
            (self.jobs.is_some(), "--jobs"),
            (self.trace_out.is_some(), "--trace-out"),
        ];
        given.into_iter().find_map(|(given, option)| given.then_some(option))
    }

    /// Prints the checks among these cases.
    fn print_list(&self, cases: &BTreeMap<usize, &ShardCase<'_>>) -> u8 {
        let (mut code, mut checks) = (0, Vec::new());
        for case in cases.values() {
            match case {
                ShardCase::Check(job) => checks.push(*job),
                ShardCase::Unread(error) => code = output::bad(*error),
                ShardCase::Runs(_) => {}
            }
        }
        if self.format != Format::Text {
            return output::usage("--list prints lines of text; leave --format out");
        }
        match self.selection.list(&checks) {
            Ok(lines) => lines.iter().for_each(output::line),
            // What this shard has none of, another one may have.
            Err(_) if self.shard.is_some() => {}
            Err(error) => code = output::usage(error),
        }
        code
    }

    /// The file in which searches are kept.
    fn checkpoint(&self) -> Option<Result<CheckpointFile, CheckpointError>> {
        let every = self.checkpoint_every.unwrap_or(60.0);
        Some(CheckpointFile::new(self.checkpoint.as_ref()?, Duration::from_secs_f64(every)))
    }

    fn options(&self, stop: &StopRequest, by_folder: bool) -> Result<Options, &'static str> {
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
        if self.checkpoint_every.is_some_and(|seconds| !(0.0..=1e9).contains(&seconds)) {
            return Err("--checkpoint-every takes a number of seconds, 0 or more");
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
                ..bounds
            },
            keeper: None,
            // Why what is as stated fails is told in its report.
            stated: if self.quiet || by_folder { kept } else { stated },
            unstated: repairs(LookForRepairs::Unexpected),
            kept: KeptOfRun::Steps,
            repair_time: None,
        })
    }
}
