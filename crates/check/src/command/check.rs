//! `rankcheck check`: searches every check of spec files, judges recorded runs, and reports both.
//!
//! Not here: the search ([`crate::search`]), and what reports look like ([`crate::report`]).

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use clap::ValueEnum;
use rankcheck_model::{Platform, Rule};

use super::output;
use crate::runs::judge::{self, Judged};
use crate::search::{Bounds, Detail, Explained, Options, search};
use crate::spec::{Spec, SpecError};
use crate::trace::Trace;
use crate::{report, runs};

#[derive(Debug, clap::Args)]
pub(super) struct CheckArguments {
    /// Spec files (*.star), folders of them, and folders of recorded runs.
    #[arg(required = true)]
    paths: Vec<PathBuf>,
    /// How to report.
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
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
    /// Give up on a check beyond this many states.
    #[arg(long, default_value_t = Bounds::default().states)]
    max_states: u64,
    /// Give up on a run beyond this many choices.
    #[arg(long, default_value_t = Bounds::default().choices)]
    max_choices: u32,
    /// Give up on a run beyond this many operations.
    #[arg(long, default_value_t = Bounds::default().steps)]
    max_steps: u64,
    /// Give up on an exploration after this many seconds.
    #[arg(long, allow_negative_numbers = true)]
    max_seconds: Option<f64>,
    /// Checks run at the same time; the number of cores if not given.
    #[arg(long)]
    jobs: Option<usize>,
    /// Write a trace file for each failing check into this folder.
    #[arg(long, value_name = "DIR")]
    trace_out: Option<PathBuf>,
    /// Print unexpected and inconclusive checks only.
    #[arg(long, short)]
    quiet: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For people.
    Text,
    /// For tools; see docs/json-report.md.
    Json,
}

/// What came out of the checks that were wanted.
#[derive(Default)]
struct Searched {
    /// In the order of the files.
    explained: Vec<Explained>,
    /// What is wrong with files that could not be read and programs that could not be evaluated.
    bad: Vec<SpecError>,
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
        let (folders, paths): (Vec<PathBuf>, Vec<PathBuf>) =
            self.paths.iter().cloned().partition(|path| path.is_dir() && runs::is_recording(path));
        let judge = |folder| judge::read(folder).and_then(|run| judge::judge(run, self.platform));
        let judged: Vec<Judged> = match folders.iter().map(|folder| judge(folder)).collect() {
            Ok(judged) => judged,
            Err(error) => return output::usage(error),
        };
        if paths.is_empty() && !judged.is_empty() {
            return self.print(Searched::default(), &judged);
        }
        let searched = super::load_each(&paths).and_then(|(specs, bad)| self.search_all(&specs, bad));
        let searched = match searched {
            Ok(searched) => searched,
            Err(code) => return code,
        };
        match self.rule.filter(|rule| !searched.breaks(*rule)) {
            Some(rule) => output::usage(searched.without(rule)),
            None => self.print(searched, &judged),
        }
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
                return Ok(Searched { explained: Vec::new(), bad });
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
        let results: Mutex<BTreeMap<usize, Result<Explained, SpecError>>> = Mutex::default();
        let next = AtomicUsize::new(0);
        let cores = || std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let threads = self.jobs.unwrap_or_else(cores).clamp(1, jobs.len());
        let bar = output::progress(jobs.len());
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    loop {
                        let nth = next.fetch_add(1, Ordering::Relaxed);
                        let Some((spec, check)) = jobs.get(nth) else { break };
                        bar.set_message(check.name.clone());
                        let result = search(spec, check, &options);
                        bar.inc(1);
                        results.lock().unwrap_or_else(PoisonError::into_inner).insert(nth, result);
                    }
                });
            }
        });
        bar.finish_and_clear();
        let mut explained = Vec::new();
        for result in results.into_inner().unwrap_or_else(PoisonError::into_inner).into_values() {
            match result {
                Ok(found) => explained.push(found),
                Err(error) => bad.push(error),
            }
        }
        Ok(Searched { explained, bad })
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
        // A report wants to know why, a trace file what is done.
        let kept = if self.trace_out.is_some() { Detail::Run } else { Detail::Verdict };
        let reported = if self.format == Format::Text { Detail::Reason } else { kept };
        Ok(Options {
            platform: self.platform,
            naive: self.naive,
            rule: self.rule,
            bounds: Bounds {
                states: self.max_states,
                choices: self.max_choices,
                time,
                steps: self.max_steps,
            },
            stated: if self.quiet { kept } else { reported },
            unstated: reported,
        })
    }

    /// Prints what came out, and writes the traces.
    fn print(&self, Searched { explained: all, bad }: Searched, judged: &[Judged]) -> u8 {
        let mut count = Count { bad: bad.len(), ..Count::default() };
        for explained in &all {
            let conclusion = Conclusion::of(explained);
            count.add(conclusion);
            let fails_as_stated = conclusion == Conclusion::AsStated && explained.counterexample.is_some();
            count.expected_failures += usize::from(fails_as_stated);
            if let Some(folder) = &self.trace_out
                && let Some(trace) = Trace::of(explained)
                && let Err(error) = trace.write(folder)
            {
                return output::usage(error);
            }
            if self.shows(conclusion) {
                output::line(format_args!("{}\n", report::text(explained)));
            }
        }
        for run in judged {
            let conclusion = Conclusion::of_run(run);
            count.add(conclusion);
            if self.shows(conclusion) {
                output::line(format_args!("{}\n", runs::report::text(run)));
            }
        }
        for error in &bad {
            output::bad(error);
        }
        match self.format {
            Format::Text => {
                // Where nothing could be judged, what is wrong says it all.
                if !all.is_empty() || !judged.is_empty() {
                    output::line(count.summary());
                }
            }
            Format::Json => match serde_json::to_string_pretty(&report::json(&all, judged, &bad)) {
                Ok(text) => output::line(text),
                Err(error) => return output::usage(error),
            },
        }
        count.exit_code()
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
        match (&explained.unexpected, explained.inconclusive()) {
            (Some(_), _) => Self::Otherwise,
            (None, true) => Self::Unknown,
            (None, false) => Self::AsStated,
        }
    }

    fn of_run(judged: &Judged) -> Self {
        match judged.verdict {
            judge::RunVerdict::Holds => Self::AsStated,
            judge::RunVerdict::Fails | judge::RunVerdict::Hangs => Self::Otherwise,
            judge::RunVerdict::Unknown => Self::Unknown,
        }
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
}

impl Count {
    fn summary(&self) -> String {
        let text = report::summary(self.as_stated, self.otherwise, self.unknown, self.expected_failures);
        match self.bad {
            0 => text,
            1 => format!("{text}; 1 spec has errors and was not checked"),
            bad => format!("{text}; {bad} specs have errors and were not checked"),
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
        match (self.bad, self.otherwise, self.unknown) {
            (0, 0, 0) => 0,
            (0, 0, _) => 3,
            (0, ..) => 1,
            _ => output::BAD,
        }
    }
}
