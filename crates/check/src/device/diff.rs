//! `rankcheck diff`: every check that fits runs on the device and is compared with its prediction.
//!
//! Not here: who runs cases ([`super::testbed`]), how reports are compared ([`mod@super::compare`]), arguments.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rankcheck_model::Platform;
use rankcheck_real::case::{Case, CommHistory, Report};

use super::Runner;
use super::digest::ProgramName;
use super::observation::{self, Observation, ObservationError, Testbed};
use super::{Agreement, Judgement, PredictionQuery, Predictions, compare, predict};
use crate::shard::Shard;
use crate::spec::{Assumption, CheckKind, Param, Spec, SpecError};

/// Cases that may fail to run one after the other before the rest is given up.
const FAILURES_AT_MOST: u32 = 3;

/// Which checks are wanted.
#[derive(Debug, Clone)]
pub struct Selection {
    /// Only those whose name contains this.
    pub only: Option<String>,
    /// Ranks that the machine can run.
    pub ranks_at_most: u32,
    /// New communicators, used ones, or both.
    pub comms: Vec<CommHistory>,
    /// The part of all programs that is run here.
    pub shard: Shard,
}

/// One program to run.
#[derive(Debug, Clone)]
pub struct PlannedRun<'a> {
    spec: &'a Spec,
    check: &'a crate::spec::Check,
    ranks: u32,
    params: Vec<(String, Param)>,
    comms: CommHistory,
}

impl PlannedRun<'_> {
    fn name(&self) -> ProgramName {
        ProgramName::new(self.spec, self.check, self.ranks, &self.params)
    }

    /// How many ranks it needs.
    #[must_use]
    pub fn ranks(&self) -> u32 {
        self.ranks
    }

    /// What is run, as observations name it.
    #[must_use]
    pub fn title(&self) -> String {
        observation::title(&self.name(), self.comms)
    }
}

/// What will be run, and what will not and why.
#[derive(Debug, Default)]
pub struct DiffPlan<'a> {
    /// Programs, those that share workers next to each other.
    pub items: Vec<PlannedRun<'a>>,
    /// The titles of programs that were not planned, each with the reason.
    pub left_out: Vec<(String, String)>,
    /// How many programs all shards have together, whatever machines they run on.
    pub programs: usize,
}

/// Everything of these specs that is in the shard and fits. Programs of more ranks than this machine can run are dealt to shards
/// like the others, so that machines with other numbers of GPUs compute the same shards.
#[must_use]
pub fn plan<'a>(specs: &'a [Spec], wanted: &Selection) -> DiffPlan<'a> {
    let (mut programs, mut never_run) = (Vec::new(), Vec::new());
    for spec in specs {
        for check in &spec.checks {
            if wanted.only.as_ref().is_some_and(|part| !check.name.contains(part.as_str())) {
                continue;
            }
            let name = format!("{} \"{}\"", spec.path, check.name);
            if check.kind == CheckKind::SameOperations {
                never_run.push((name, "it compares two programs and runs none".to_owned()));
                continue;
            }
            if check.assume.contains(&Assumption::JobEndsWithARank) {
                let why = "it assumes a launcher that ends the job, and ranks run here without one";
                never_run.push((name, why.to_owned()));
                continue;
            }
            for ranks in &check.ranks {
                for params in check.combinations() {
                    programs.extend(wanted.comms.iter().map(|comms| PlannedRun {
                        spec,
                        check,
                        ranks: *ranks,
                        params: params.clone(),
                        comms: *comms,
                    }));
                }
            }
        }
    }
    programs.sort_by_key(|item| (item.ranks, item.comms == CommHistory::Warm));
    let of_shard = |position: &usize| wanted.shard.has(*position);
    let mut plan = DiffPlan { programs: programs.len(), ..DiffPlan::default() };
    let never_run = never_run.into_iter().enumerate().filter(|(position, _)| of_shard(position));
    plan.left_out.extend(never_run.map(|(_, told)| told));
    let own = programs.into_iter().enumerate().filter(|(position, _)| of_shard(position));
    for (_, item) in own {
        if item.ranks <= wanted.ranks_at_most {
            plan.items.push(item);
            continue;
        }
        let title = format!("{} \"{}\", {} ranks", item.spec.path, item.check.name, item.ranks);
        // One line for all values of the parameters.
        if plan.left_out.last().is_none_or(|(last, _)| *last != title) {
            plan.left_out
                .push((title, format!("{} ranks are more than {}", item.ranks, wanted.ranks_at_most)));
        }
    }
    plan
}

/// How programs are run.
#[derive(Debug)]
pub struct Settings {
    /// Runs of each check, at least; each forced run is made once in any case.
    pub runs: u32,
    /// No program is begun after this time.
    pub budget: Option<Duration>,
    /// The folder to which observations are appended.
    pub observe: Option<PathBuf>,
    /// Observations that are there already.
    pub observed: Vec<Observation>,
    /// Where programs are run.
    pub machine: Testbed,
    /// The facts to predict with.
    pub platform: Platform,
    /// The command line, which goes into each observation.
    pub command: String,
    /// How long no rank of a case may make progress.
    pub deadline: Duration,
}

/// A program that was run.
#[derive(Debug)]
pub struct DiffRow {
    /// The check, its rank count and its parameters, in words.
    pub title: String,
    /// The predicted classes, in words.
    pub predicted: String,
    /// The behaviours that its runs showed.
    pub observation: Observation,
    /// For each behaviour that was seen, whether it agrees.
    pub judgements: Vec<Judgement>,
}

/// What was learned so far.
#[derive(Debug)]
pub enum DiffEvent<'a> {
    /// A program begins; this is its title.
    Begins(&'a str),
    /// A program is over.
    Over(&'a DiffRow),
}

/// What all programs together say.
#[derive(Debug, Default)]
pub struct Summary {
    /// Programs that were run.
    pub run: usize,
    /// The number of programs of which every run agrees.
    pub agree: usize,
    /// Those for which one specified outcome was predicted, and seen.
    pub single: usize,
    /// The number of programs of which some run disagrees.
    pub disagree: usize,
    /// Those of which nothing can be said.
    pub not_comparable: usize,
    /// The titles of programs that were not run, each with the reason.
    pub not_run: Vec<(String, String)>,
    /// One observation for each program that was run.
    pub observations: Vec<Observation>,
}

/// Why a run of programs ends early.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
pub enum DiffError {
    /// A spec is bad.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Spec(#[from] SpecError),
    /// An observation cannot be written.
    #[error(transparent)]
    Observation(#[from] ObservationError),
}

/// Runs a plan.
///
/// # Errors
/// If a spec is bad or an observation cannot be written; what a device does is never an error.
pub fn run(
    runner: &mut dyn Runner,
    plan: &DiffPlan<'_>,
    settings: &Settings,
    each: &mut dyn FnMut(DiffEvent<'_>),
) -> Result<Summary, DiffError> {
    let started = Instant::now();
    let mut summary = Summary { not_run: plan.left_out.clone(), ..Summary::default() };
    let mut failures = 0;
    for item in &plan.items {
        let title = item.title();
        let why_not = if failures >= FAILURES_AT_MOST {
            Some(format!("{FAILURES_AT_MOST} cases in a row could not be run"))
        } else {
            settings.budget.filter(|budget| started.elapsed() > *budget).map(|_| "the time is up".to_owned())
        };
        if let Some(why) = why_not {
            summary.not_run.push((title, why));
            continue;
        }
        each(DiffEvent::Begins(&title));
        let predictions = predict(&PredictionQuery {
            spec: item.spec,
            check: item.check,
            ranks: item.ranks,
            params: &item.params,
            platform: settings.platform,
            comms: item.comms,
        })?;
        let name = item.name();
        let mut kept = Observation::new(name.clone(), &predictions, &settings.machine, &settings.command);
        if settings.observed.iter().any(|old| (&old.program, &old.digest) == (&name, &kept.digest)) {
            summary.not_run.push((title, "it is recorded already".to_owned()));
            continue;
        }
        match observe(runner, &predictions, &name, settings, &mut kept) {
            Ok(()) => failures = 0,
            Err(why) => {
                failures += 1;
                summary.not_run.push((title, why));
                continue;
            }
        }
        if let Some(folder) = &settings.observe {
            observation::append(folder, &kept)?;
        }
        let judgements: Vec<Judgement> = kept
            .seen
            .iter()
            .map(|seen| {
                let report = Report { ranks: seen.ranks.clone(), took: Duration::ZERO };
                compare(&predictions, &seen.forced, &report)
            })
            .collect();
        let row = DiffRow { title, predicted: predictions.classes(), observation: kept, judgements };
        summary.count(&row);
        each(DiffEvent::Over(&row));
        summary.observations.push(row.observation);
    }
    Ok(summary)
}

/// Makes the runs of one program: all forced ones, one after the other.
fn observe(
    runner: &mut dyn Runner,
    predictions: &Predictions,
    name: &ProgramName,
    settings: &Settings,
    kept: &mut Observation,
) -> Result<(), String> {
    let program = serde_json::to_value(name).expect("a name is strings and numbers");
    let runs = predictions.runs.len();
    if runs == 0 {
        return Err("the exploration found no complete run within its bounds".to_owned());
    }
    for nth in 0..runs.max(settings.runs as usize) {
        let forced = &predictions.runs[nth % runs].forced;
        let case = Case {
            program: program.clone(),
            ranks: predictions.ranks,
            comms: predictions.comms,
            element: predictions.element.filled(),
            forced: forced.clone(),
            deadline: settings.deadline,
        };
        let report = runner.run(&case).map_err(|error| error.to_string())?;
        kept.add(forced, &report);
    }
    Ok(())
}

/// How a program stands, worst first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum RowState {
    Disagrees,
    NotComparable,
    Agrees,
}

impl DiffRow {
    fn state(&self) -> RowState {
        let states = self.judgements.iter().map(|judgement| match judgement.agreement {
            Agreement::Disagrees(_) => RowState::Disagrees,
            Agreement::NotComparable(_) => RowState::NotComparable,
            Agreement::Agrees | Agreement::AgreesOtherwise | Agreement::Undefined => RowState::Agrees,
        });
        states.min().unwrap_or(RowState::NotComparable)
    }

    /// Whether the device did something that the model does not have.
    #[must_use]
    pub fn disagrees(&self) -> bool {
        self.state() == RowState::Disagrees
    }

    /// The row of the table, without a trailing newline.
    #[must_use]
    pub fn text(&self) -> String {
        let label = match self.state() {
            RowState::Disagrees => "DISAGREES",
            RowState::NotComparable => "unknown",
            RowState::Agrees => "agrees",
        };
        let mut out = format!("{label:<10} {}\n           predicted {}; seen ", self.title, self.predicted);
        let mut seen: BTreeMap<String, u32> = BTreeMap::new();
        for (behaviour, judgement) in self.observation.seen.iter().zip(&self.judgements) {
            *seen.entry(behaviour_text(&behaviour.ranks, judgement)).or_default() += behaviour.count;
        }
        let seen: Vec<String> = seen.into_iter().map(|(text, count)| format!("{text} ×{count}")).collect();
        out.push_str(&seen.join(", "));
        for judgement in &self.judgements {
            match &judgement.agreement {
                Agreement::Disagrees(difference) => {
                    let _ = write!(out, "\n           {difference}");
                }
                Agreement::NotComparable(why) => {
                    let _ = write!(out, "\n           {why}");
                }
                Agreement::Agrees | Agreement::AgreesOtherwise | Agreement::Undefined => {}
            }
        }
        out
    }
}

/// A behaviour for people, with the model's word for it where it agrees.
#[must_use]
pub fn behaviour_text(ranks: &[rankcheck_real::case::RankReport], judgement: &Judgement) -> String {
    let ends = observation::ends(ranks);
    match (&judgement.class, &judgement.agreement) {
        (Some(class), Agreement::AgreesOtherwise) => format!("{class} (another value than forced)"),
        (Some(class), _) => class.to_string(),
        (None, Agreement::Undefined) => format!("{ends} (unspecified)"),
        (None, _) => ends,
    }
}

impl Summary {
    fn count(&mut self, row: &DiffRow) {
        self.run += 1;
        match row.state() {
            RowState::Disagrees => self.disagree += 1,
            RowState::NotComparable => self.not_comparable += 1,
            RowState::Agrees => self.agree += 1,
        }
        self.single += usize::from(row.judgements.iter().all(Judgement::single));
    }

    /// The last lines, without a trailing newline.
    #[must_use]
    pub fn text(&self) -> String {
        let mut out = format!(
            "{} programs run: {} agree, {} with a single predicted outcome, {} disagree, {} unknown; {} not run",
            self.run,
            self.agree,
            self.single,
            self.disagree,
            self.not_comparable,
            self.not_run.len()
        );
        let mut reasons: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (title, why) in &self.not_run {
            reasons.entry(why).or_default().push(title);
        }
        for (why, titles) in reasons {
            let _ = write!(out, "\n  not run: {} because {why}, first {}", titles.len(), titles[0]);
        }
        out
    }

    /// 0 if everything was run and agrees, 1 if something disagrees, 3 if something is not known.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match (self.disagree, self.not_comparable, self.run) {
            (1.., ..) => 1,
            (0, 1.., _) | (0, 0, 0) => 3,
            (0, 0, 1..) => 0,
        }
    }
}
