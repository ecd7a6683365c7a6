//! The counterexample: a run that breaks a rule, and the operations of it that matter.
//!
//! An operation matters if leaving it out changes the verdict; that is tried, not guessed.
//! Not here: how a run is told ([`mod@super::replay`]), and layout.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rankcheck_model::machine::{Expectations, Kind};
use rankcheck_model::{Class, Config, Data, OpRef, Outcome, RankOutcome, Rule, Source, SourceError};

use super::explore::{Distinct, Exploration};
use super::replay::{BrokenRule, Decided, Located, ReplayError, Replayed, replay};
use super::verdict::{Explorer, Verdict};
use super::{Detail, Operation};

/// A run that breaks a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counterexample {
    /// The rule, and how it is broken.
    pub broken: BrokenRule,
    /// Two operations without either of which the verdict is another, the blocked or failing one first. None where
    /// they were not asked for.
    pub essential: Vec<Located>,
    /// The run that breaks the rule, step by step.
    pub run: Replayed,
    /// The texts of the files in which the operations above stand, by the names that locations give them, as far as
    /// they can be read.
    pub sources: BTreeMap<Arc<str>, Arc<str>>,
}

/// Tells how a rule is broken, by the witness of an exploration. None if its witness does not break it.
///
/// # Errors
/// If the program cannot be evaluated, or the exploration is of another one.
pub fn counterexample(
    source: &Arc<dyn Source>,
    exploration: &Exploration,
    rule: Rule,
    detail: Detail,
    explorer: &mut Explorer<'_>,
) -> Result<Option<Counterexample>, ReplayError> {
    let Some(witness) = exploration.broken.get(&rule) else { return Ok(None) };
    let run = replay(source, &exploration.config, &witness.choices)?;
    let Some(broken) = run.broken.iter().find(|broken| broken.rule == rule).cloned() else {
        return Ok(None);
    };
    let essential = match detail {
        Detail::Verdict | Detail::Run => Vec::new(),
        Detail::Reason => essential(source, &exploration.config, &run, &broken, explorer)?,
    };
    Ok(Some(Counterexample { broken, essential, run, sources: BTreeMap::new() }))
}

/// What a program does, as far as leaving an operation out may change it: the verdict, and how runs end.
///
/// Expectations are left out, because no device does them, unless one of them is what is broken. Ranks are told apart,
/// because a rank that leaves something out is.
pub struct Baseline {
    source: Arc<dyn Source>,
    config: Config,
    behaviour: Behaviour,
}

/// What can be told from outside of an exploration.
#[derive(Debug, PartialEq, Eq)]
struct Behaviour {
    verdict: Verdict,
    ends: BTreeSet<RunEnd>,
}

/// An end of a run, without what buffers hold.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct RunEnd {
    findings: BTreeSet<(Rule, Arc<str>)>,
    ranks: Vec<RankOutcome>,
    class: Class,
    undefined: bool,
}

impl Behaviour {
    fn of(exploration: &Exploration) -> Self {
        let end = |outcome: &Outcome| RunEnd {
            findings: outcome.findings.clone(),
            ranks: outcome.ranks.clone(),
            class: outcome.class,
            undefined: outcome.data == Data::Undefined,
        };
        Self { verdict: Verdict::of(exploration), ends: exploration.outcomes.keys().map(end).collect() }
    }

    fn breaks(&self, rule: Rule) -> bool {
        self.ends.iter().any(|end| end.findings.iter().any(|(broken, _)| *broken == rule))
    }
}

impl Baseline {
    /// What a program that breaks a rule is compared with.
    ///
    /// # Errors
    /// If the program cannot be evaluated.
    pub fn of(
        source: &Arc<dyn Source>,
        config: &Config,
        rule: Rule,
        explorer: &mut Explorer<'_>,
    ) -> Result<Self, SourceError> {
        let source: Arc<dyn Source> = Arc::new(Distinct(Arc::clone(source)));
        let bare = Config { expectations: Expectations::LeftOut, ..config.clone() };
        let behaviour = Behaviour::of(&explorer.explore(&source, bare.clone())?);
        if behaviour.breaks(rule) {
            return Ok(Self { source, config: bare, behaviour });
        }
        let behaviour = Behaviour::of(&explorer.explore(&source, config.clone())?);
        Ok(Self { source, config: config.clone(), behaviour })
    }

    /// Whether leaving an operation out changes what can be seen. An expectation is left out wherever its line
    /// states it.
    ///
    /// # Errors
    /// If the program cannot be evaluated.
    pub fn needs(&self, op: &OpRef, kind: Kind, explorer: &mut Explorer<'_>) -> Result<bool, SourceError> {
        let mut config = self.config.clone();
        if kind == Kind::Expectation {
            config.expectations = Expectations::LeftOutAt(op.loc);
        } else {
            config.left_out.insert((op.rank, op.thread, op.index));
        }
        Ok(Behaviour::of(&explorer.explore(&self.source, config)?) != self.behaviour)
    }
}

/// The operation of a run that can be named, if it is one.
fn nameable<'a>(run: &'a Replayed, at: &Located) -> Option<&'a Operation> {
    // Locks that the pool takes for its hooks are nobody's operation.
    let known = |o: &&Operation| o.at.is(at) && !o.asks && !o.text.contains("allocator's lock");
    run.operations.iter().find(known)
}

/// Whether an operation is looked for, given what was found.
type Preference<'a> = &'a dyn Fn(&Located, &[Located]) -> bool;

fn essential(
    source: &Arc<dyn Source>,
    config: &Config,
    run: &Replayed,
    broken: &BrokenRule,
    explorer: &mut Explorer<'_>,
) -> Result<Vec<Located>, SourceError> {
    /// How many operations are left out on trial at most.
    const TRIED_AT_MOST: usize = 24;
    let baseline = Baseline::of(source, config, broken.rule, explorer)?;
    let mut found: Vec<Located> = Vec::new();
    let mut tried: BTreeSet<OpRef> = BTreeSet::new();
    let mut consider = |at: &Located, found: &mut Vec<Located>| -> Result<(), SourceError> {
        if let Some(operation) = nameable(run, at)
            && tried.len() < TRIED_AT_MOST
            && tried.insert(at.op)
            && baseline.needs(&at.op, operation.kind, explorer)?
        {
            found.push(at.clone());
        }
        Ok(())
    };
    for at in &broken.ops {
        if found.len() < 2 {
            consider(at, &mut found)?;
        }
    }
    // Where a value was open, then what came last before it.
    let open = run.decisions.iter().filter(|decision| matches!(decision.decided, Decided::Values { .. }));
    let latest = run.operations.iter().rev().map(|operation| &operation.at);
    let others: Vec<&Located> = open.map(|decision| &decision.at).chain(latest).collect();
    let kept = |at: &Located| nameable(run, at).is_some_and(|o| o.kind != Kind::Bookkeeping);
    let elsewhere =
        |at: &Located, found: &[Located]| found.first().is_none_or(|first| first.op.rank != at.op.rank);
    // Preferably on another rank, and nothing that only the program remembers.
    let preferences: [Preference<'_>; 3] =
        [&|at, found| kept(at) && elsewhere(at, found), &|at, _| kept(at), &|_, _| true];
    for wanted in preferences {
        for at in &others {
            if found.len() < 2 && wanted(at, &found) {
                consider(at, &mut found)?;
            }
        }
    }
    Ok(found)
}
