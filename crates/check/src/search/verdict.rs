//! Verdicts: what explorations show about a check, and whether that is what the check states.
//!
//! The verdict is a type of our own: a bound that was hit is `Unknown`, unless a run that breaks a rule was found before. Then
//! the program fails, and which other rules it breaks is not known.
//! Not here: how states are explored, and how verdicts are printed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rankcheck_model::id::fingerprint;
use rankcheck_model::machine::{FaultOf, InFlight, Launcher};
use rankcheck_model::platform::UnknownPlatform;
use rankcheck_model::{Class, Config, Explain, Faults, Mode, Outcome, Platform, Rule, Source, SourceError};

use super::bounds::BoundHit;
use super::explain::counterexample;
use super::explore::{Exploration, Witness, explore, explore_keeping};
use super::kept::{Keeping, SearchName};
use super::predict::{self, Ends, PredictedEnd};
use super::repair::{Broken, repairs};
use super::replay::{ReplayError, replay};
use super::same::different_operations;
use super::{Asked, Assumed, Coverage, Detail, Explained, Explored, KeptOfRun, Options, naive};
use crate::spec::stack::deep;
use crate::spec::{Assumption, Check, CheckKind, Expect, Observed, Param, Spec, SpecError};

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
        /// The classes of the ends that are predicted for the run that breaks it, and of other runs that break a rule.
        classes: BTreeSet<Class>,
    },
    /// A bound was hit before a run was found that breaks a rule.
    Unknown(BoundHit),
}

impl Verdict {
    /// The verdict of an exploration, with the outcomes of its own runs that break a rule.
    #[must_use]
    pub fn of(exploration: &Exploration) -> Self {
        Self::predicting(exploration, predict::failing(exploration))
    }

    /// The verdict of an exploration, with these classes of what follows from the rule that is broken.
    fn predicting(exploration: &Exploration, classes: BTreeSet<Class>) -> Self {
        match (primary(exploration), &exploration.bound) {
            (Some((primary, _)), _) => {
                Self::Fails { primary, rules: exploration.broken.keys().copied().collect(), classes }
            }
            (None, Some(bound)) => Self::Unknown(bound.clone()),
            (None, None) => Self::Holds,
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

    /// The rule that a failing program breaks first.
    #[must_use]
    pub fn primary(&self) -> Option<Rule> {
        match self {
            Self::Fails { primary, .. } => Some(*primary),
            Self::Holds | Self::Unknown(_) => None,
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

/// The broken rule with the smallest causal past, and its witness.
fn primary(exploration: &Exploration) -> Option<(Rule, &Witness)> {
    let (rule, witness) = exploration.broken.iter().min_by_key(|(rule, w)| (w.past, **rule))?;
    Some((*rule, witness))
}

/// The configuration of a check's runs.
#[must_use]
pub fn config(check: &Check, ranks: u32, platform: Platform, assume: &[Assumption]) -> Config {
    let coresident = assume.iter().filter_map(|assumption| match assumption {
        Assumption::Coresident(kernels) => Some(*kernels),
        Assumption::Named(_) | Assumption::JobEndsWithARank => None,
    });
    let launcher = match assume.contains(&Assumption::JobEndsWithARank) {
        true => Launcher::EndsJob,
        false => Launcher::LeavesPeers,
    };
    let of: BTreeSet<FaultOf> = check.faults.iter().copied().collect();
    Config {
        platform,
        faults: Faults { of, at_most: check.faults_at_most },
        coresident: coresident.max().unwrap_or(1),
        launcher,
        ..Config::new(ranks)
    }
}

/// Whether a program holds in which somebody may see that NCCL let others go early: because work is over, or in any object
/// that two threads touch, of one rank or of two. What is found there may decide what a rank does, so it no longer suffices
/// that everybody who could be held back was.
fn sees_early_ends(exploration: &Exploration) -> bool {
    exploration.bound.is_none() && exploration.broken.is_empty() && exploration.early_ends_may_be_seen
}

/// The same with NCCL letting go whom it need not hold back.
#[must_use]
pub fn freer(held: &Config) -> Config {
    Config { in_flight: InFlight::OfPlatform, mode: Mode::Reduced, remembered: None, ..held.clone() }
}

/// What a program does. Where it holds and somebody may see early ends, it is explored again with NCCL letting go whom it need
/// not hold back: where it does not hold then, that counts, and else both are what it does.
pub(crate) fn or_freer<E>(
    held: Exploration,
    again: impl FnOnce(Config) -> Result<Exploration, E>,
) -> Result<Exploration, E> {
    if !sees_early_ends(&held) {
        return Ok(held);
    }
    let freer = again(freer(&held.config))?;
    if freer.bound.is_some() || !freer.broken.is_empty() {
        return Ok(freer);
    }
    Ok(both(held, freer))
}

/// What a program does in either of two semantics in which it holds.
fn both(held: Exploration, freer: Exploration) -> Exploration {
    let mut both = held;
    for (outcome, run) in freer.outcomes {
        both.outcomes.entry(outcome).or_insert(run);
    }
    both.states += freer.states;
    both.steps += freer.steps;
    // The runs in which nobody is let go are among those in which somebody may be.
    both.executions = both.executions.max(freer.executions);
    both.contended.extend(freer.contended);
    both.reached.extend(freer.reached);
    both.costs.raise_to(&freer.costs);
    both.executed.raise_to(&freer.executed);
    both.idle_ranks.retain(|rank| freer.idle_ranks.contains(rank));
    both.another_order = both.another_order.or(freer.another_order);
    for (name, value) in freer.measured {
        let most = both.measured.entry(name).or_insert(value);
        *most = value.max(*most);
    }
    both
}

/// Makes the explorations of one check, in the semantics that its options ask for, and counts them.
pub struct Explorer<'a> {
    options: &'a Options,
    explorations: u32,
}

impl<'a> Explorer<'a> {
    /// One that has explored nothing yet.
    #[must_use]
    pub fn new(options: &'a Options) -> Self {
        Self { options, explorations: 0 }
    }

    /// Explores a program.
    ///
    /// # Errors
    /// If the program cannot be evaluated.
    pub fn explore(
        &mut self,
        source: &Arc<dyn Source>,
        config: Config,
        name: &SearchName,
    ) -> Result<Exploration, SourceError> {
        if self.options.naive {
            self.explorations += 1;
            return naive::explore(source, config, &self.options.bounds);
        }
        self.explore_reduced(source, config, name)
    }

    fn explore_reduced(
        &mut self,
        source: &Arc<dyn Source>,
        config: Config,
        name: &SearchName,
    ) -> Result<Exploration, SourceError> {
        self.explorations += 1;
        let Options { bounds, keeper, .. } = self.options;
        match keeper.as_deref() {
            Some(keeper) => explore_keeping(source, config, bounds, Keeping { keeper, name }),
            None => explore(source, config, bounds),
        }
    }

    /// Explores a program in which somebody may see that NCCL lets others go early, which the search without reductions does
    /// not follow.
    fn explore_freer(
        &mut self,
        source: &Arc<dyn Source>,
        config: Config,
        name: &SearchName,
    ) -> Result<Exploration, SourceError> {
        let words = format!("{}, calls of NCCL ending early", name.words);
        let name = SearchName { digest: fingerprint(&(name.digest, "early")), words };
        self.explore_reduced(source, config, &name)
    }
}

/// What a platform makes of all runs of a program.
#[derive(Default)]
struct AllRuns {
    /// The classes of those that break a rule there.
    broken: BTreeSet<Class>,
    /// Whether some run finishes and breaks none.
    may_finish: bool,
    /// The bound that cut the search for them.
    bound: Option<BoundHit>,
}

/// A check, for which one exploration after the other is made.
struct Search<'a> {
    spec: &'a Spec,
    check: &'a Check,
    explorer: Explorer<'a>,
    /// The first run that failed on the platform of the check.
    failing: Option<Failing>,
}

/// Whether an assumption is about something that no program mentions.
fn is_missing(assumption: &Assumption, mentioned: &BTreeSet<String>) -> bool {
    matches!(assumption, Assumption::Named(text) if !mentioned.contains(text))
}

/// A program of the check that breaks a rule.
struct Failing {
    source: Arc<dyn Source>,
    /// The rule whose run is told.
    rule: Rule,
    exploration: Exploration,
}

impl Search<'_> {
    /// The name of the search of a program of the check.
    fn name(
        &self,
        (ranks, params): (u32, &[(String, Param)]),
        platform: Platform,
        assume: &[Assumption],
    ) -> SearchName {
        let Self { spec, check, .. } = self;
        let params: Vec<String> = params.iter().map(|(name, value)| format!(", {name} = {value}")).collect();
        let mut setting = format!("{ranks} ranks{}, NCCL {}", params.concat(), platform.name());
        if !assume.is_empty() {
            setting.push_str(&format!(", assuming {assume:?}"));
        }
        let words = format!("{} {:?}, {setting}", spec.path, check.name);
        let merge_from = self.explorer.options.bounds.merge_from;
        SearchName { digest: fingerprint(&(&spec.digest, &check.name, setting, merge_from)), words }
    }

    fn run(
        &mut self,
        (ranks, params): (u32, &[(String, Param)]),
        platform: Platform,
        assume: &[Assumption],
    ) -> Result<(Explored, Option<Failing>), SpecError> {
        let started = Instant::now();
        let run = || format!("{:?} with {}", self.check.name, super::setting(ranks, params));
        let of_run = |error: SpecError| error.in_run(run());
        let program = Arc::new(self.check.source(ranks, params, assume).map_err(of_run)?);
        let source: Arc<dyn Source> = program.clone();
        let config = config(self.check, ranks, platform, assume);
        let name = self.name((ranks, params), platform, assume);
        let explored = self.explorer.explore(&source, config, &name);
        let explored = explored
            .and_then(|held| or_freer(held, |freer| self.explorer.explore_freer(&source, freer, &name)));
        let mut exploration = explored.map_err(|error| of_run(self.spec.diagnose(&error)))?;
        let waived = waive(&mut exploration, &self.check.waive);
        if exploration.bound.is_none() {
            let mut mentioned = program.mentioned();
            if assume.iter().any(|assumption| is_missing(assumption, &mentioned)) {
                // What is assumed may keep a run from coming by what else is.
                let free = Arc::new(self.check.source(ranks, params, &[]).map_err(of_run)?);
                let source: Arc<dyn Source> = free.clone();
                let config = self::config(self.check, ranks, platform, &[]);
                let freely = explore(&source, config, &self.explorer.options.bounds);
                freely.map_err(|error| of_run(self.spec.diagnose(&error)))?;
                mentioned.extend(free.mentioned());
            }
            self.require_mentioned(assume, &mentioned)?;
        }
        // The orders of a run without reductions are no choices where others are not known to contend.
        let reduced = if exploration.config.mode == Mode::Naive && !exploration.broken.is_empty() {
            let config = self::config(self.check, ranks, platform, assume);
            let reduced = explore(&source, config, &self.explorer.options.bounds);
            Some(reduced.map_err(|error| of_run(self.spec.diagnose(&error)))?)
        } else {
            None
        };
        let predicted =
            reduced.as_ref().filter(|reduced| reduced.broken.keys().eq(exploration.broken.keys()));
        let predicted = predicted.unwrap_or(&exploration);
        let Ends { ends, guaranteed, bound: ends_bound } = match primary(predicted) {
            Some((_, witness)) => {
                self.explorer.explorations += 1;
                let ends = predict::ends(&source, predicted, witness, &self.explorer.options.bounds);
                ends.map_err(|error| of_run(self.spec.diagnose(&error)))?
            }
            None => {
                let ends = predicted.outcomes.keys().cloned().map(PredictedEnd::specified);
                Ends { ends: ends.collect(), guaranteed: None, bound: None }
            }
        };
        let classes: BTreeSet<Class> = ends.iter().map(|end| end.outcome.class).collect();
        let all = self.all_runs(&source, predicted, &name);
        let all = all.map_err(|error| of_run(self.spec.diagnose(&error)))?;
        let other_runs = &all.broken - &classes;
        let ends_bound = ends_bound.or(all.bound);
        // A run that ends well reassures nobody where another one does not.
        let verdict = Verdict::predicting(&exploration, &classes | &other_runs);
        let explored = Explored {
            ranks,
            params: params.to_vec(),
            platform,
            verdict,
            broken: exploration.broken.clone(),
            waived,
            ends,
            guaranteed,
            other_runs,
            may_finish: all.may_finish,
            bound: exploration.bound.take(),
            ends_bound,
            seen: Vec::new(),
            reached: std::mem::take(&mut exploration.reached),
            costs: exploration.costs,
            coverage: Coverage::of(&exploration, &program),
            another_order: exploration.another_order.take(),
            measured: std::mem::take(&mut exploration.measured),
            contended: std::mem::take(&mut exploration.contended),
            decisions: exploration.decisions.take(),
            steps: exploration.steps,
            states: exploration.states,
            executions: exploration.executions,
            milliseconds: started.elapsed().as_millis(),
        };
        let wanted = self.explorer.options.rule.filter(|rule| explored.broken.contains_key(rule));
        let told = explored.verdict.primary().map(|primary| wanted.unwrap_or(primary));
        Ok((explored, told.map(|rule| Failing { source, rule, exploration })))
    }

    /// What the platform makes of all runs. Which of several is shown does not decide what is said of a program, so where the
    /// platform may make something else of them than is guaranteed, all are explored with NCCL letting go whom it need not hold back.
    fn all_runs(
        &mut self,
        source: &Arc<dyn Source>,
        exploration: &Exploration,
        name: &SearchName,
    ) -> Result<AllRuns, SourceError> {
        if exploration.executions < 2 {
            // It is the run that is shown.
            return Ok(AllRuns::default());
        }
        if !predict::may_end_otherwise(exploration) {
            return Ok(AllRuns { broken: predict::failing(exploration), ..AllRuns::default() });
        }
        let mut freer = self.explorer.explore_freer(source, freer(&exploration.config), name)?;
        waive(&mut freer, &self.check.waive);
        let finishes = |outcome: &Outcome| outcome.class == Class::Finishes && outcome.findings.is_empty();
        Ok(AllRuns {
            broken: predict::failing(&freer),
            may_finish: freer.outcomes.keys().any(finishes),
            bound: freer.bound,
        })
    }

    /// An assumption that no program mentions is a mistake of the spec.
    fn require_mentioned(
        &self,
        assume: &[Assumption],
        mentioned: &BTreeSet<String>,
    ) -> Result<(), SpecError> {
        for assumption in assume.iter().filter(|assumption| is_missing(assumption, mentioned)) {
            if let Assumption::Named(text) = assumption {
                let name = &self.check.name;
                let message = format!("check \"{name}\" assumes \"{text}\", which no r.may mentions");
                let help = match text.as_str() {
                    "job_ends_with_a_rank" => "it is no text of r.may: write it without quotes".to_owned(),
                    _ => format!("a program says where it may be otherwise: r.may(\"{text}\")"),
                };
                return Err(self.spec.error(message, &self.check.loc, Some(help)));
            }
        }
        Ok(())
    }

    /// Every rank count and every value of the parameters, on every platform that the check speaks of.
    fn run_all(&mut self, explained: &mut Explained, platform: Platform) -> Result<(), SpecError> {
        let check = self.check;
        for ranks in &check.ranks {
            for params in check.combinations() {
                let at = (*ranks, params.as_slice());
                let (run, failing) = self.run(at, platform, &check.assume)?;
                // What fails is reported, else what was not finished: one run that holds says nothing for the others.
                let reported = explained.runs.get(explained.reported);
                let first_unknown = matches!(run.verdict, Verdict::Unknown(_))
                    && reported.is_none_or(|reported| reported.verdict == Verdict::Holds);
                let wanted = self.explorer.options.rule;
                let has =
                    |failing: &Option<Failing>| failing.as_ref().is_some_and(|f| Some(f.rule) == wanted);
                let better =
                    failing.is_some() && (self.failing.is_none() || (has(&failing) && !has(&self.failing)));
                if better || first_unknown {
                    explained.reported = explained.runs.len();
                }
                if better {
                    self.failing = failing;
                }
                explained.runs.push(run);
                if self.explorer.options.platform.is_none() {
                    for other in other_platforms(check, platform) {
                        explained.elsewhere.push(self.run(at, other, &check.assume)?.0);
                    }
                }
            }
        }
        Ok(())
    }

    /// What happens without each assumption.
    fn drop_assumptions(&mut self, explained: &mut Explained, platform: Platform) -> Result<(), SpecError> {
        let check = self.check;
        let fewest = check.ranks.iter().min().copied().unwrap_or(2);
        for dropped in &check.assume {
            let rest: Vec<Assumption> = check.assume.iter().filter(|a| *a != dropped).cloned().collect();
            let params = check.combinations().into_iter().next_back().unwrap_or_default();
            let (run, _) = self.run((fewest, params.as_slice()), platform, &rest)?;
            explained.assumed.push(Assumed { assumption: dropped.clone(), without: run.verdict });
        }
        Ok(())
    }

    /// The run that breaks the primary rule, as far as it is asked for.
    fn tell(&mut self, explained: &mut Explained) -> Result<(), SpecError> {
        let options = self.explorer.options;
        let stated = explained.as_stated();
        let wanted = if stated { options.stated } else { options.unstated };
        // Whoever interrupts waits for no reasons.
        let detail = if options.bounds.stop.asked() { wanted.min(Detail::Run) } else { wanted };
        let Some(Failing { source, rule, exploration }) = &self.failing else { return Ok(()) };
        if detail > Detail::Verdict && explained.asked == Asked::Rules {
            let wrong = |error: ReplayError| match error {
                ReplayError::Source(error) => self.spec.diagnose(&error),
                ReplayError::Misfit { .. } => self.spec.error(error.to_string(), &self.check.loc, None),
            };
            explained.counterexample = counterexample(source, exploration, *rule, detail).map_err(wrong)?;
            if let Some(shown) = &mut explained.counterexample {
                if options.kept == KeptOfRun::Memory {
                    let config = Config { explain: Explain::Memory, ..exploration.config.clone() };
                    let choices = &exploration.broken[rule].choices;
                    shown.run = replay(source, &config, choices).map_err(wrong)?;
                }
                let named = shown.broken.ops.iter().chain(&shown.essential);
                let done = shown.run.operations.iter().map(|operation| &operation.at);
                for at in named.chain(done.filter(|_| options.kept == KeptOfRun::Memory)) {
                    if !shown.sources.contains_key(&at.loc.file)
                        && let Some(text) = self.spec.readable(&at.loc.file)
                    {
                        shown.sources.insert(at.loc.file.clone(), text);
                    }
                }
            }
        }
        if detail >= Detail::Repair
            && let Some(shown) = &mut explained.counterexample
        {
            /// The search for repairs takes so long, or ten times as long as the verdict.
            const AT_LEAST: Duration = Duration::from_secs(2);
            let run = &explained.runs[explained.reported];
            let verdict = u64::try_from(run.milliseconds).unwrap_or(u64::MAX);
            let broken = Broken {
                check: self.check,
                params: &run.params,
                ranks: run.ranks,
                platform: run.platform,
                source,
                exploration,
                shown,
            };
            let at_most = AT_LEAST.max(Duration::from_millis(verdict) * 10);
            shown.repairs = Some(repairs(&broken, options.repair_time.unwrap_or(at_most)));
        }
        Ok(())
    }
}

/// Searches the programs of a check: every rank count, every value of its parameters, every platform that it speaks
/// of.
///
/// # Errors
/// If the spec is bad.
pub fn search(spec: &Spec, check: &Check, options: &Options) -> Result<Explained, SpecError> {
    // Each evaluation needs a deep stack, and finds that it is on one.
    deep(|| search_on_this_stack(spec, check, options))
}

fn search_on_this_stack(spec: &Spec, check: &Check, options: &Options) -> Result<Explained, SpecError> {
    let wrong = |error: UnknownPlatform| spec.error(error.to_string(), &check.loc, None);
    let stated = check.platform.as_ref().map(|name| name.parse().map_err(wrong)).transpose()?;
    let platform = options.platform.or(stated).unwrap_or_default();
    let mut explained = Explained {
        file: spec.path.clone(),
        digest: spec.digest.clone(),
        name: check.name.clone(),
        line: check.loc.line,
        asked: match &check.kind {
            CheckKind::Program(_) => Asked::Rules,
            CheckKind::SameOperations => Asked::SameOperations,
        },
        states_nothing: check.kind == CheckKind::Program(Expect::Nothing),
        ranks: check.ranks.clone(),
        params: check.params.clone(),
        runs: Vec::new(),
        elsewhere: Vec::new(),
        assumed: Vec::new(),
        unexpected: None,
        reported: 0,
        counterexample: None,
        explorations: 0,
    };
    let mut search = Search { spec, check, explorer: Explorer::new(options), failing: None };
    search.run_all(&mut explained, platform)?;
    search.drop_assumptions(&mut explained, platform)?;
    explained.unexpected = match &check.kind {
        CheckKind::Program(expect) => {
            unexpected(expect, &explained).or_else(|| waived_in_vain(&check.waive, &explained))
        }
        CheckKind::SameOperations => different_operations(spec, check)?,
    };
    search.tell(&mut explained)?;
    explained.explorations = search.explorer.explorations;
    Ok(explained)
}

fn other_platforms(check: &Check, platform: Platform) -> Vec<Platform> {
    match &check.kind {
        CheckKind::Program(Expect::Fails { outcome, .. }) => outcome
            .iter()
            .filter_map(|observed| observed.platform.parse().ok())
            .filter(|other| *other != platform)
            .collect(),
        CheckKind::Program(Expect::Holds { .. } | Expect::Nothing) | CheckKind::SameOperations => Vec::new(),
    }
}

fn ids(rules: &BTreeSet<Rule>) -> String {
    let ids: Vec<&str> = rules.iter().map(|rule| rule.id()).collect();
    ids.join(", ")
}

fn words(classes: &BTreeSet<Class>) -> String {
    let names: Vec<&str> = classes.iter().map(|class| class.name()).collect();
    names.join(", ")
}

/// Takes the waived rules out of what an exploration found, and returns those that it found, with the reasons.
fn waive(exploration: &mut Exploration, waived: &BTreeMap<Rule, String>) -> BTreeMap<Rule, String> {
    if waived.is_empty() {
        return BTreeMap::new();
    }
    let found = waived.iter().filter(|(rule, _)| exploration.broken.contains_key(rule));
    let found = found.map(|(rule, reason)| (*rule, reason.clone())).collect();
    exploration.broken.retain(|rule, _| !waived.contains_key(rule));
    for (mut outcome, run) in std::mem::take(&mut exploration.outcomes) {
        outcome.findings.retain(|(rule, _)| !waived.contains_key(rule));
        exploration.outcomes.entry(outcome).or_insert(run);
    }
    found
}

/// A waived rule that no run breaks: the waiver would hide the next one who does.
fn waived_in_vain(waived: &BTreeMap<Rule, String>, explained: &Explained) -> Option<String> {
    if explained.inconclusive() {
        return None;
    }
    let broken = |rule: &Rule| explained.runs.iter().any(|run| run.waived.contains_key(rule));
    let (rule, _) = waived.iter().find(|(rule, _)| !broken(rule))?;
    Some(format!("waives {rule}, which no run breaks"))
}

/// Why a check is not as it states, if it is not.
fn unexpected(expect: &Expect, explained: &Explained) -> Option<String> {
    match expect {
        Expect::Nothing => None,
        Expect::Holds { reaches, holds_from, costs } => {
            holds_unexpectedly(reaches, holds_from, costs, explained)
        }
        Expect::Fails { rule, also, outcome, latent } => {
            let mut stated: BTreeSet<Rule> = also.iter().filter_map(|id| id.parse().ok()).collect();
            let primary: Rule = rule.parse().expect("the loader knows the rules");
            stated.insert(primary);
            for run in &explained.runs {
                if let Some(why) = fails_unexpectedly(run, primary, &stated, *latent) {
                    return Some(format!("{why} ({})", run.setting()));
                }
            }
            outcome.iter().find_map(|observed| outcome_unexpectedly(observed, primary, explained))
        }
    }
}

/// Why what a check says of a platform is not what is predicted, if it is not: every predicted end has to be stated,
/// and whatever is stated has to be possible in some run of the check.
fn outcome_unexpectedly(observed: &Observed, primary: Rule, explained: &Explained) -> Option<String> {
    let stated: BTreeSet<Class> = observed.outcomes.iter().copied().collect();
    let (mut possible, mut predicted, mut known) = (BTreeSet::new(), BTreeSet::new(), true);
    let runs = explained.runs.iter().chain(&explained.elsewhere);
    for run in runs.filter(|run| run.platform.name() == observed.platform) {
        let (platform, setting) = (run.platform, run.setting());
        let (classes, rules) = match &run.verdict {
            Verdict::Fails { classes, rules, .. } => (classes, rules),
            Verdict::Unknown(_) => {
                known = false;
                continue;
            }
            Verdict::Holds => return Some(format!("expected to fail on {platform} as well ({setting})")),
        };
        if run.bound.is_none() && !rules.contains(&primary) {
            let found = ids(rules);
            return Some(format!("expected {primary} on {platform} too, found {found} ({setting})"));
        }
        // Another run may be the one that is told.
        if run.bound.is_none() && !classes.is_subset(&stated) {
            let (stated, predicted) = (words(&stated), words(classes));
            return Some(format!(
                "expected outcome on {platform}: {stated}; predicted: {predicted} ({setting})"
            ));
        }
        predicted.extend(classes);
        possible.extend(run.possible());
        known &= run.ends_bound.is_none() && run.bound.is_none();
    }
    if stated.is_subset(&possible) || !known || predicted.is_empty() {
        return None;
    }
    let (platform, stated, predicted) = (&observed.platform, words(&stated), words(&predicted));
    Some(format!(
        "expected outcome on {platform}: {stated}; predicted for all runs that break a rule: {predicted}"
    ))
}

fn fails_unexpectedly(
    run: &Explored,
    primary: Rule,
    stated: &BTreeSet<Rule>,
    latent: bool,
) -> Option<String> {
    match &run.verdict {
        Verdict::Unknown(_) => None,
        Verdict::Holds => Some(format!("expected to fail {primary}, but it holds")),
        // Of a search that was cut, it is known that it breaks these.
        Verdict::Fails { rules, .. } if run.bound.is_some() && rules.is_subset(stated) => None,
        Verdict::Fails { rules, .. } if rules != stated => {
            Some(format!("expected to break {}, but breaks {}", ids(stated), ids(rules)))
        }
        Verdict::Fails { primary: found, .. } if *found != primary => {
            Some(format!("expected {primary} first, but {found} has the smaller causal past"))
        }
        Verdict::Fails { .. } if latent && !run.verdict.latent() => {
            Some("expected to be latent, but it has consequences".to_owned())
        }
        Verdict::Fails { .. } if latent => {
            run.ends_bound.as_ref().map(|bound| format!("expected to be latent, which is not known: {bound}"))
        }
        Verdict::Fails { .. } => None,
    }
}

fn holds_unexpectedly(
    reaches: &[String],
    holds_from: &BTreeMap<String, i64>,
    costs: &BTreeMap<String, i64>,
    explained: &Explained,
) -> Option<String> {
    let mut reached: BTreeSet<&str> = BTreeSet::new();
    for run in &explained.runs {
        reached.extend(run.reached.iter().map(String::as_str));
        let below = run.params.iter().any(|(name, value)| match (value, holds_from.get(name)) {
            (Param::Int(value), Some(from)) => value < from,
            _ => false,
        });
        match (&run.verdict, below) {
            (Verdict::Holds, false) | (Verdict::Fails { .. }, true) | (Verdict::Unknown(_), _) => {}
            (Verdict::Holds, true) => return Some(format!("holds already for {}", run.setting())),
            (Verdict::Fails { rules, .. }, false) => {
                return Some(format!("expected to hold, but it fails {} ({})", ids(rules), run.setting()));
            }
        }
        let known = !below && !matches!(run.verdict, Verdict::Unknown(_));
        for (name, stated) in costs.iter().filter(|_| known) {
            match run.cost(name) {
                Some(found) if found == *stated => {}
                Some(found) => {
                    let later = [
                        "registrations",
                        "barriers",
                        "store_calls",
                        "collectives",
                        "communicators_left",
                        "registrations_left",
                        "mappings_left",
                        "reserved_bytes_left",
                    ];
                    let begins = match later.contains(&name.as_str()) && !run.costs.steady {
                        true => "; counting begins at r.steady(), which no rank came to",
                        false => "",
                    };
                    return Some(format!(
                        "expected {name} = {stated}, found {found} ({}){begins}",
                        run.setting()
                    ));
                }
                None => return Some(format!("nothing measures {name:?}")),
            }
        }
    }
    if explained.inconclusive() {
        return None;
    }
    let missed = reaches.iter().find(|label| !reached.contains(label.as_str()))?;
    Some(format!("no execution reaches {missed:?}"))
}
