//! Verdicts: what an exploration shows about a check, and whether that is what the check states.
//!
//! The verdict is a type of our own: a bound that was hit is `Unknown`, whatever was found before.
//! Not here: how states are explored, and how verdicts are printed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use rankcheck_model::describe::{NamesOf, description};
use rankcheck_model::machine::FaultOf;
use rankcheck_model::{
    Class, Config, Faults, InFlight, Outcome, Platform, Rank, Rule, Source, SourceError, Stretch,
};

use super::explore::{self, BoundHit, Bounds, Exploration};
use super::naive;
use crate::spec::{Assumption, Check, CheckKind, Expect, Param, Spec, SpecError, SpecSource};

/// How checks are run.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Run on this platform only.
    pub platform: Option<Platform>,
    /// Unreduced interleavings.
    pub naive: bool,
    /// Bounds.
    pub bounds: Bounds,
}

/// What an exploration shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Every choice within the bounds was explored, and no rule is broken.
    Holds,
    /// Some run breaks a rule.
    Fails {
        /// The one with the smallest causal past.
        primary: Rule,
        /// All of them, over all runs.
        rules: BTreeSet<Rule>,
        /// The classes of the outcomes of runs that break a rule.
        classes: BTreeSet<Class>,
    },
    /// A bound was hit.
    Unknown(BoundHit),
}

impl Verdict {
    /// The verdict of an exploration.
    #[must_use]
    pub fn of(exploration: &Exploration) -> Self {
        Self::predicting(exploration, exploration)
    }

    /// The verdict of an exploration, where what follows from a broken rule is taken from another one: of the
    /// same program, in which the platform holds what it can of a send.
    ///
    /// # Panics
    /// Never: a broken rule has a witness.
    #[must_use]
    pub fn predicting(exploration: &Exploration, predicted: &Exploration) -> Self {
        if let Some(bound) = &exploration.bound {
            return Self::Unknown(bound.clone());
        }
        let Some((primary, _)) = exploration.broken.iter().min_by_key(|(rule, w)| (w.past, **rule)) else {
            return Self::Holds;
        };
        let classes = failing(predicted).into_iter();
        Self::Fails {
            primary: *primary,
            rules: exploration.broken.keys().copied().collect(),
            classes: classes.map(|outcome| outcome.class).collect(),
        }
    }

    /// `holds`, `fails` or `unknown`.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Self::Holds => "holds",
            Self::Fails { .. } => "fails",
            Self::Unknown(_) => "unknown",
        }
    }

    /// The worst class of a failing run.
    #[must_use]
    pub fn class(&self) -> Option<Class> {
        match self {
            Self::Fails { classes, .. } => classes.iter().max().copied(),
            Self::Holds | Self::Unknown(_) => None,
        }
    }

    /// Whether a rule is broken without any visible consequence.
    #[must_use]
    pub fn latent(&self) -> bool {
        self.class() == Some(Class::Finishes)
    }
}

/// One exploration of a check.
pub struct Run {
    /// Rank count.
    pub ranks: u32,
    /// Parameters.
    pub params: Vec<(String, Param)>,
    /// Platform.
    pub platform: Platform,
    /// The verdict.
    pub verdict: Verdict,
    /// What it rests on.
    pub exploration: Exploration,
    /// The same with sends that the platform can hold before somebody receives them, where that matters: what
    /// follows from a broken rule, and never whether one is broken.
    pub predicted: Option<Exploration>,
    /// Its program.
    pub source: Arc<SpecSource>,
    /// Wall time.
    pub milliseconds: u128,
}

/// A check that was run.
pub struct Checked {
    /// The check.
    pub check: Check,
    /// Explorations on the platform of the check, for all ranks and parameters.
    pub runs: Vec<Run>,
    /// Explorations on other platforms that the check states an outcome for.
    pub elsewhere: Vec<Run>,
    /// For each named assumption, what happens without it.
    pub without: Vec<(Assumption, Verdict)>,
    /// Why the check is not as expected, if it is not.
    pub unexpected: Option<String>,
    /// Which of the runs is reported: the smallest failing one, or the first.
    pub reported: usize,
}

impl Checked {
    /// The run that is reported.
    #[must_use]
    pub fn run(&self) -> &Run {
        &self.runs[self.reported]
    }

    /// Whether any run was cut by a bound.
    #[must_use]
    pub fn inconclusive(&self) -> bool {
        self.runs.iter().chain(&self.elsewhere).any(|run| matches!(run.verdict, Verdict::Unknown(_)))
    }
}

/// The configuration of a check's runs.
#[must_use]
pub fn config(check: &Check, ranks: u32, platform: Platform, assume: &[Assumption]) -> Config {
    let coresident = assume.iter().filter_map(|assumption| match assumption {
        Assumption::Coresident(kernels) => Some(*kernels),
        Assumption::Named(_) => None,
    });
    let of: BTreeSet<FaultOf> = check.faults.iter().copied().collect();
    Config {
        platform,
        faults: Faults { of, at_most: check.faults_at_most },
        coresident: coresident.max().unwrap_or(1),
        ..Config::new(ranks)
    }
}

/// Explores a program in the semantics that the options ask for.
///
/// # Errors
/// If the program cannot be evaluated.
pub fn explored(
    source: &Arc<dyn Source>,
    config: Config,
    options: &Options,
) -> Result<Exploration, SourceError> {
    if options.naive {
        naive::explore(source, config, &options.bounds)
    } else {
        explore::explore(source, config, &options.bounds)
    }
}

fn run_one(
    spec: &Spec,
    check: &Check,
    (ranks, params): (u32, &[(String, Param)]),
    platform: Platform,
    assume: &[Assumption],
    options: &Options,
) -> Result<Run, SpecError> {
    let started = Instant::now();
    let source = Arc::new(check.source(ranks, params, assume)?);
    let shared: Arc<dyn Source> = source.clone();
    let config = config(check, ranks, platform, assume);
    let exploration = explored(&shared, config.clone(), options).map_err(|error| spec.diagnose(&error))?;
    let predicted = if exploration.bound.is_none() && !exploration.broken.is_empty() && exploration.sends {
        let config = Config { in_flight: InFlight::OfPlatform, ..config };
        Some(explored(&shared, config, options).map_err(|error| spec.diagnose(&error))?)
    } else {
        None
    };
    let mentioned = source.mentioned();
    for assumption in assume {
        if let Assumption::Named(text) = assumption
            && exploration.bound.is_none()
            && !mentioned.contains(text)
        {
            let message = format!("check \"{}\" assumes \"{text}\", which no r.may mentions", check.name);
            return Err(spec.error(message, &check.place));
        }
    }
    Ok(Run {
        ranks,
        params: params.to_vec(),
        platform,
        verdict: Verdict::predicting(&exploration, predicted.as_ref().unwrap_or(&exploration)),
        exploration,
        predicted,
        source,
        milliseconds: started.elapsed().as_millis(),
    })
}

/// Runs a check: every rank count, every value of its parameters, every platform that it speaks of.
///
/// # Errors
/// If the spec is bad.
pub fn verify(spec: &Spec, check: &Check, options: &Options) -> Result<Checked, SpecError> {
    let stated = match &check.platform {
        Some(name) => Some(name.parse().map_err(|error: rankcheck_model::platform::UnknownPlatform| {
            spec.error(error.to_string(), &check.place)
        })?),
        None => None,
    };
    let platform = options.platform.or(stated).unwrap_or_default();
    let mut checked = Checked {
        check: check.clone(),
        runs: Vec::new(),
        elsewhere: Vec::new(),
        without: Vec::new(),
        unexpected: None,
        reported: 0,
    };
    for ranks in &check.ranks {
        for params in check.combinations() {
            let at = (*ranks, params.as_slice());
            checked.runs.push(run_one(spec, check, at, platform, &check.assume, options)?);
            if options.platform.is_none() {
                for other in other_platforms(check, platform) {
                    checked.elsewhere.push(run_one(spec, check, at, other, &check.assume, options)?);
                }
            }
        }
    }
    checked.reported =
        checked.runs.iter().position(|run| matches!(run.verdict, Verdict::Fails { .. })).unwrap_or(0);
    let fewest = check.ranks.iter().min().copied().unwrap_or(2);
    for dropped in &check.assume {
        let rest: Vec<Assumption> = check.assume.iter().filter(|a| *a != dropped).cloned().collect();
        let params = check.combinations().into_iter().next_back().unwrap_or_default();
        let at = (fewest, params.as_slice());
        let run = run_one(spec, check, at, platform, &rest, options)?;
        checked.without.push((dropped.clone(), run.verdict));
    }
    checked.unexpected = match &check.kind {
        CheckKind::Program(expect) => unexpected(expect, &checked),
        CheckKind::SameOperations => different_operations(spec, check)?,
    };
    Ok(checked)
}

fn other_platforms(check: &Check, platform: Platform) -> Vec<Platform> {
    match &check.kind {
        CheckKind::Program(Expect::Fails { outcome, .. }) => outcome
            .iter()
            .filter_map(|observed| observed.platform.parse().ok())
            .filter(|other| *other != platform)
            .collect(),
        CheckKind::Program(Expect::Holds { .. }) | CheckKind::SameOperations => Vec::new(),
    }
}

/// Where a run was made, for messages: ranks and parameters.
#[must_use]
pub fn at(run: &Run) -> String {
    let mut text = format!("{} {}", run.ranks, if run.ranks == 1 { "rank" } else { "ranks" });
    for (name, value) in &run.params {
        text.push_str(&format!(", {name} = {value}"));
    }
    text
}

fn ids(rules: &BTreeSet<Rule>) -> String {
    let ids: Vec<&str> = rules.iter().map(|rule| rule.id()).collect();
    ids.join(", ")
}

fn words(classes: &BTreeSet<Class>) -> String {
    let names: Vec<&str> = classes.iter().map(|class| class.name()).collect();
    names.join(", ")
}

/// Why a check is not as it states, if it is not.
fn unexpected(expect: &Expect, checked: &Checked) -> Option<String> {
    match expect {
        Expect::Holds { reaches, holds_from, costs } => {
            holds_unexpectedly(reaches, holds_from, costs, checked)
        }
        Expect::Fails { rule, also, outcome, latent } => {
            let mut stated: BTreeSet<Rule> = also.iter().filter_map(|id| id.parse().ok()).collect();
            let primary: Rule = rule.parse().expect("the loader knows the rules");
            stated.insert(primary);
            for run in &checked.runs {
                if let Some(why) = fails_unexpectedly(run, primary, &stated, *latent) {
                    return Some(format!("{why} ({})", at(run)));
                }
            }
            for run in checked.runs.iter().chain(&checked.elsewhere) {
                let Some(observed) = outcome.iter().find(|o| o.platform == run.platform.name()) else {
                    continue;
                };
                let stated: BTreeSet<Class> = observed.outcomes.iter().copied().collect();
                let (classes, rules) = match &run.verdict {
                    Verdict::Fails { classes, rules, .. } => (classes, rules),
                    Verdict::Unknown(_) => continue,
                    Verdict::Holds => {
                        return Some(format!("expected to fail on {} as well ({})", run.platform, at(run)));
                    }
                };
                if !rules.contains(&primary) {
                    return Some(format!(
                        "expected {primary} on {} too, found {} ({})",
                        run.platform,
                        ids(rules),
                        at(run)
                    ));
                }
                if *classes != stated {
                    return Some(format!(
                        "expected outcome on {}: {}; predicted: {} ({})",
                        run.platform,
                        words(&stated),
                        words(classes),
                        at(run)
                    ));
                }
            }
            None
        }
    }
}

fn fails_unexpectedly(run: &Run, primary: Rule, stated: &BTreeSet<Rule>, latent: bool) -> Option<String> {
    match &run.verdict {
        Verdict::Unknown(_) => None,
        Verdict::Holds => Some(format!("expected to fail {primary}, but it holds")),
        Verdict::Fails { rules, .. } if rules != stated => {
            Some(format!("expected rules {}, found {}", ids(stated), ids(rules)))
        }
        Verdict::Fails { primary: found, .. } if *found != primary => {
            Some(format!("expected {primary} first, but {found} has the smaller causal past"))
        }
        Verdict::Fails { .. } if latent && !run.verdict.latent() => {
            Some("expected to be latent, but it has consequences".to_owned())
        }
        Verdict::Fails { .. } => None,
    }
}

fn holds_unexpectedly(
    reaches: &[String],
    holds_from: &BTreeMap<String, i64>,
    costs: &BTreeMap<String, i64>,
    checked: &Checked,
) -> Option<String> {
    let mut reached: BTreeSet<&str> = BTreeSet::new();
    for run in &checked.runs {
        reached.extend(run.exploration.reached.iter().map(String::as_str));
        let below = run.params.iter().any(|(name, value)| match (value, holds_from.get(name)) {
            (Param::Int(value), Some(from)) => value < from,
            _ => false,
        });
        match (&run.verdict, below) {
            (Verdict::Holds, false) | (Verdict::Fails { .. }, true) | (Verdict::Unknown(_), _) => {}
            (Verdict::Holds, true) => return Some(format!("holds already for {}", at(run))),
            (Verdict::Fails { rules, .. }, false) => {
                return Some(format!("expected to hold, but it fails {} ({})", ids(rules), at(run)));
            }
        }
        let known = !below && !matches!(run.verdict, Verdict::Unknown(_));
        for (name, stated) in costs.iter().filter(|_| known) {
            match cost(run, name) {
                Some(found) if found == *stated => {}
                Some(found) => {
                    return Some(format!("expected {name} = {stated}, found {found} ({})", at(run)));
                }
                None => return Some(format!("nothing measures {name:?}")),
            }
        }
    }
    if checked.inconclusive() {
        return None;
    }
    let missed = reaches.iter().find(|label| !reached.contains(label.as_str()))?;
    Some(format!("no execution reaches {missed:?}"))
}

/// A cost by the name that specs use.
#[must_use]
pub fn cost(run: &Run, name: &str) -> Option<i64> {
    let costs = &run.exploration.costs;
    match name {
        "communicators" => Some(costs.communicators.into()),
        "registrations" => Some(costs.registrations.into()),
        "registrations_warm_up" => Some(costs.registrations_warm_up.into()),
        "barriers" => Some(costs.barriers.into()),
        "store_calls" => Some(costs.store_calls.into()),
        "collectives" => Some(costs.collectives.into()),
        "reserved_bytes" => i64::try_from(costs.reserved_bytes_max).ok(),
        other => run.exploration.measured.get(other).copied(),
    }
}

/// Walks the trees of two programs side by side, with every answer.
fn different_operations(spec: &Spec, check: &Check) -> Result<Option<String>, SpecError> {
    for ranks in &check.ranks {
        for params in check.combinations() {
            let one = check.source(*ranks, &params, &check.assume)?;
            let Some(other) = check.other_source(*ranks, &params)? else { continue };
            for rank in (0..*ranks).map(Rank) {
                let found = compare(&one, &other, rank).map_err(|error| spec.diagnose(&error))?;
                if let Some(difference) = found {
                    return Ok(Some(format!("{difference} (rank {} of {ranks})", rank.0)));
                }
            }
        }
    }
    Ok(None)
}

fn compare(one: &SpecSource, other: &SpecSource, rank: Rank) -> Result<Option<String>, SourceError> {
    /// Longest common sequence of answers that is looked at.
    const ANSWERS_AT_MOST: usize = 64;
    let mut open: Vec<Vec<u32>> = vec![Vec::new()];
    while let Some(answers) = open.pop() {
        let a = one.stretch(rank, rankcheck_model::Entry(0), &answers)?;
        let b = other.stretch(rank, rankcheck_model::Entry(0), &answers)?;
        let (a_words, b_words) = (plain(one, &a), plain(other, &b));
        if let Some(at) =
            (0..a_words.len().max(b_words.len())).find(|at| a_words.get(*at) != b_words.get(*at))
        {
            let nothing = "the end".to_owned();
            return Ok(Some(format!(
                "operation {at} differs: {} against {}",
                a_words.get(at).unwrap_or(&nothing),
                b_words.get(at).unwrap_or(&nothing)
            )));
        }
        if let rankcheck_model::End::Ask(question, _) = &a.end
            && answers.len() < ANSWERS_AT_MOST
        {
            let options = match question {
                rankcheck_model::Question::Choose { options, .. } => {
                    u32::try_from(options.len()).unwrap_or(2)
                }
                // Whatever the count is, the programs must go on alike; three shows more than one turn.
                rankcheck_model::Question::Number(_)
                | rankcheck_model::Question::MapItems { .. }
                | rankcheck_model::Question::ListLen { .. }
                | rankcheck_model::Question::Trimmed(_) => 4,
                rankcheck_model::Question::Grew(_)
                | rankcheck_model::Question::Failed(_)
                | rankcheck_model::Question::Equal(..)
                | rankcheck_model::Question::Truth(_)
                | rankcheck_model::Question::MapHas { .. }
                | rankcheck_model::Question::HasWindow { .. }
                | rankcheck_model::Question::EventQuery { .. } => 2,
            };
            open.extend((0..options).map(|answer| [answers.as_slice(), &[answer]].concat()));
        }
    }
    Ok(None)
}

/// The operations of a stretch without their places, with names instead of tokens.
fn plain(source: &SpecSource, stretch: &Stretch) -> Vec<String> {
    let named = NamesOf(source);
    let mut words: Vec<String> = stretch.ops.iter().map(|op| description(&op.op, &named)).collect();
    if let rankcheck_model::End::Ask(question, _) = &stretch.end {
        words.push(description(question, &named));
    }
    words
}

/// The outcomes of an exploration's runs that break a rule, or of all where none does.
fn failing(exploration: &Exploration) -> Vec<&Outcome> {
    let failing: Vec<&Outcome> =
        exploration.outcomes.keys().filter(|outcome| !outcome.findings.is_empty()).collect();
    if failing.is_empty() { exploration.outcomes.keys().collect() } else { failing }
}

/// The predicted outcomes of a run: those of runs that break a rule, or all where none does.
#[must_use]
pub fn predicted(run: &Run) -> Vec<&Outcome> {
    failing(run.predicted.as_ref().unwrap_or(&run.exploration))
}
