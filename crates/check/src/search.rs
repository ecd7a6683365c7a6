//! Searches what a program may do, and explains what it found: from a check to its [`Explained`].
//!
//! An [`Explained`] is plain data. Verdict, witnesses, operations, contents and costs are in it, every report is a
//! function of it ([`crate::report`]), and nothing needs to be run again for one.
//!
//! Reading order: [`mod@explore`] takes every choice of a program, [`naive`] every interleaving, as its oracle.
//! [`verdict`] runs the explorations that a check asks for and judges them. [`mod@predict`] finds out how the run that is
//! shown ends on a platform, [`mod@replay`] tells it in words, and [`explain`] finds out which operations of it matter.
//! Not here: what an operation means (`rankcheck-model`), and the layout of reports.

mod bounds;
pub(crate) mod changed;
mod complete;
mod coverage;
mod data_order;
mod decisions;
pub mod explain;
pub mod explore;
mod graph;
mod kept;
mod memory;
pub mod naive;
pub mod predict;
pub mod repair;
pub mod replay;
mod same;
mod tally;
pub mod trial;
mod turn;
pub mod verdict;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use rankcheck_model::{Class, Costs, Platform, Rule};

use crate::spec::{Assumption, Param};

pub use bounds::{BoundHit, Bounds, LargeSearch, StopRequest};
pub use complete::states_so_far;
pub use coverage::{Coverage, IdleSide};
pub use decisions::{DecisionPlace, RunDecisions};
pub use explain::{Cause, Counterexample};
pub use explore::{Exploration, Witness, explore, explore_alone};
pub use graph::taken_for_one_below;
pub use kept::{SearchKeeper, SearchName};
pub use predict::{Basis, PredictedEnd};
pub use replay::{Blocked, BrokenRule, Decided, Decision, Lane, Located, Operation, Replayed, Step};
pub use verdict::{Verdict, search};

/// How checks are searched.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Run on this platform only.
    pub platform: Option<Platform>,
    /// Whether every interleaving is explored, without reduction.
    pub naive: bool,
    /// Where the search gives up.
    pub bounds: Bounds,
    /// Who keeps searches, so that one that is killed goes on in another process.
    pub keeper: Option<Arc<dyn SearchKeeper>>,
    /// The rule whose run is told, where it is broken; otherwise the first that is broken.
    pub rule: Option<Rule>,
    /// How much is explained of a failure that the check states.
    pub stated: Detail,
    /// How much is explained of a failure of a check that is not as it states, or not known to be.
    pub unstated: Detail,
    /// What is kept of the run that is told.
    pub kept: KeptOfRun,
    /// How long repairs of a failure may be looked for; two seconds, or ten times the verdict, if not given.
    pub repair_time: Option<Duration>,
}

impl Options {
    /// Returns the default bounds, and so much explained of every failure.
    #[must_use]
    pub fn telling(detail: Detail) -> Self {
        Self { stated: detail, unstated: detail, ..Self::default() }
    }
}

/// What is kept of a run that is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum KeptOfRun {
    /// The steps that it took.
    #[default]
    Steps,
    /// Its steps, and what memory holds after each. Ranks take turns in it, so that it can be watched.
    Memory,
}

/// How much is explained of a run that breaks a rule. Each takes more time than the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Detail {
    /// Only that there is one.
    #[default]
    Verdict,
    /// What is done in it: the run is replayed once.
    Run,
    /// Also which operations matter, and what decided it: the run is tried without one after the other.
    Reason,
    /// Also what would repair it: programs close to this one are explored.
    Repair,
}

/// A check, and all that its explorations showed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explained {
    /// The spec file, as its path was given.
    pub file: String,
    /// Digest of the file and of what it loads.
    pub digest: String,
    /// The name of the check.
    pub name: String,
    /// The line on which the check stands.
    pub line: u32,
    /// Whether rules are asked about, or whether two programs do the same.
    pub asked: Asked,
    /// Whether the check leaves open what is expected of its program.
    pub states_nothing: bool,
    /// Rank counts to run.
    pub ranks: Vec<u32>,
    /// Parameters with the values to run for.
    pub params: Vec<(String, Vec<Param>)>,
    /// Explorations on the platform of the check, for all ranks and parameters.
    pub runs: Vec<Explored>,
    /// Explorations on other platforms that the check states an outcome for.
    pub elsewhere: Vec<Explored>,
    /// What the check assumes.
    pub assumed: Vec<Assumed>,
    /// Why the check is not as it states, if it is not.
    pub unexpected: Option<String>,
    /// Which of the runs is reported: the smallest failing one, else the smallest that a bound has cut, else the first.
    pub reported: usize,
    /// A run that breaks the primary rule of the reported one, as far as it was asked for.
    pub counterexample: Option<Counterexample>,
    /// How many explorations all of this took.
    pub explorations: u32,
}

/// What is asked of the programs of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    /// Whether one breaks a rule.
    Rules,
    /// Whether two do the same operations.
    SameOperations,
}

/// What one exploration of a program showed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explored {
    /// How many ranks the program ran on.
    pub ranks: u32,
    /// Names and values of the check's parameters in this exploration.
    pub params: Vec<(String, Param)>,
    /// The NCCL version whose facts were taken.
    pub platform: Platform,
    /// What the exploration shows about the program.
    pub verdict: Verdict,
    /// Each broken rule with its witness; without those that the check waives.
    pub broken: BTreeMap<Rule, Witness>,
    /// The rules that are broken and that the check waives, each with its reason.
    pub waived: BTreeMap<Rule, String>,
    /// Every end that the platform leaves possible: of the run that breaks the primary rule, or of all where none
    /// breaks a rule.
    pub ends: Vec<PredictedEnd>,
    /// What devices were seen to do with the program, one line an observation, where nobody specifies what follows and
    /// observations were asked ([`crate::device`]).
    pub seen: Vec<String>,
    /// The bound that cut the search. If a rule is broken in spite of it, others may be too.
    pub bound: Option<BoundHit>,
    /// The bound that cut the search for ends, where the verdict was known before.
    pub ends_bound: Option<BoundHit>,
    /// The class of the end that is guaranteed, where a rule is broken: on a platform it may be another.
    pub guaranteed: Option<Class>,
    /// The classes, on the platform, of runs that break a rule with other values or another schedule, where the ends have none of
    /// it.
    pub other_runs: BTreeSet<Class>,
    /// Whether the platform was found to let some run finish in which no rule is broken then. With nothing but guarantees it may break
    /// one.
    pub may_finish: bool,
    /// Labels that some run came by.
    pub reached: BTreeSet<String>,
    /// Costs, as maxima over ranks and runs.
    pub costs: Costs,
    /// What the verdict is about.
    pub coverage: Coverage,
    /// Where, in some run, two ranks use the same buffers in another order, in words. It breaks no rule.
    pub another_order: Option<String>,
    /// What `r.measure` recorded, as maxima.
    pub measured: BTreeMap<String, i64>,
    /// Objects that turned out to be contended, in words.
    pub contended: BTreeSet<String>,
    /// What one run decides, where the search is large.
    pub decisions: Option<RunDecisions>,
    /// How many operations were executed.
    pub steps: u64,
    /// How many distinct states were reached.
    pub states: u64,
    /// How many complete runs were seen.
    pub executions: u64,
    /// Wall time in milliseconds.
    pub milliseconds: u128,
}

/// What a check takes for granted, and the verdict without it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assumed {
    /// What is taken for granted.
    pub assumption: Assumption,
    /// The verdict of the smallest run without it.
    pub without: Verdict,
}

impl Explained {
    /// The run that is reported.
    #[must_use]
    pub fn run(&self) -> &Explored {
        &self.runs[self.reported]
    }

    /// The runs that a bound has cut, on all platforms, each with the bound.
    pub fn cut(&self) -> impl Iterator<Item = (&Explored, &BoundHit)> {
        self.runs.iter().chain(&self.elsewhere).filter_map(|run| Some((run, run.bound.as_ref()?)))
    }

    /// Whether the check is as it states; where it states nothing, whether no rule is broken. A run that a bound has cut
    /// makes it neither.
    #[must_use]
    pub fn as_stated(&self) -> bool {
        let fails = |run: &Explored| matches!(run.verdict, Verdict::Fails { .. });
        let found = self.states_nothing && self.runs.iter().any(fails);
        self.unexpected.is_none() && !found && !self.inconclusive()
    }

    /// The runs that hold although nothing was executed in them that a verdict could be about.
    pub fn nothing_judged(&self) -> impl Iterator<Item = &Explored> {
        self.runs.iter().filter(|run| run.verdict == Verdict::Holds && run.coverage.nothing())
    }

    /// The runs that hold, each with what makes that worth less than it seems.
    pub fn warnings(&self) -> impl Iterator<Item = (&Explored, Warning<'_>)> {
        let holding = self.runs.iter().filter(|run| run.verdict == Verdict::Holds);
        holding.flat_map(|run| {
            let nothing = run.coverage.nothing().then_some((run, Warning::NothingJudged));
            let another = run.another_order.as_deref().map(|told| (run, Warning::AnotherOrder(told)));
            nothing.into_iter().chain(another)
        })
    }

    /// Whether any run was cut by a bound.
    #[must_use]
    pub fn inconclusive(&self) -> bool {
        self.cut().next().is_some()
    }
}

/// What makes a verdict worth less than it seems.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Warning<'a> {
    /// Nothing was executed that it could be about.
    NothingJudged,
    /// Two ranks use the same buffers in another order, as it is told.
    AnotherOrder(&'a str),
}

/// Rank count and parameters, in words.
pub(crate) fn setting(ranks: u32, params: &[(String, impl fmt::Display)]) -> String {
    let mut text = format!("{ranks} {}", if ranks == 1 { "rank" } else { "ranks" });
    for (name, value) in params {
        text.push_str(&format!(", {name} = {value}"));
    }
    text
}

impl Explored {
    /// Rank count and parameters, in words.
    #[must_use]
    pub fn setting(&self) -> String {
        setting(self.ranks, &self.params)
    }

    /// The classes that a check may state: of what is predicted, of what is guaranteed, and of other runs, those too that go well on
    /// the platform. After what nobody specifies, any.
    #[must_use]
    pub fn possible(&self) -> BTreeSet<Class> {
        let mut classes: BTreeSet<Class> = self.ends.iter().map(|end| end.outcome.class).collect();
        classes.extend(self.guaranteed);
        classes.extend(&self.other_runs);
        classes.extend(self.may_finish.then_some(Class::Finishes));
        if classes.contains(&Class::Undefined) { Class::ALL.into_iter().collect() } else { classes }
    }

    /// Whether a rule is broken without any visible consequence in any run.
    #[must_use]
    pub(crate) fn is_latent(&self) -> bool {
        self.verdict.latent() && self.ends_bound.is_none()
    }

    /// What is said of the worst class that is predicted: what only other runs end in is not said of the one that is shown.
    #[must_use]
    pub(crate) fn at_worst(&self, words: &str) -> String {
        let class = self.verdict.class();
        let of_shown = self.ends.is_empty() || self.ends.iter().any(|end| Some(end.outcome.class) == class);
        if of_shown { words.to_owned() } else { format!("at worst {words}") }
    }

    /// A cost by the name that specs use.
    #[must_use]
    pub fn cost(&self, name: &str) -> Option<i64> {
        let costs = &self.costs;
        match name {
            "communicators" => Some(costs.communicators.into()),
            "registrations" => Some(costs.registrations.into()),
            "registrations_warm_up" => Some(costs.registrations_warm_up.into()),
            "barriers" => Some(costs.barriers.into()),
            "store_calls" => Some(costs.store_calls.into()),
            "collectives" => Some(costs.collectives.into()),
            "reserved_bytes" => i64::try_from(costs.reserved_bytes_max).ok(),
            "communicators_left" => Some(costs.left.communicators.into()),
            "registrations_left" => Some(costs.left.registrations.into()),
            "mappings_left" => Some(costs.left.mappings.into()),
            "reserved_bytes_left" => i64::try_from(costs.left.reserved_bytes).ok(),
            other => self.measured.get(other).copied(),
        }
    }
}
