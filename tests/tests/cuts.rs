//! A cut exploration never passes for a whole one: it names the bound, and says `Unknown`, or what it found that breaks a rule.
//!
//! Not here: bounds on time, whose effect differs from run to run.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use rankcheck::search::explore::{Exploration, explore, explore_alone};
use rankcheck::search::verdict::{self, Verdict};
use rankcheck::search::{BoundHit, Bounds};
use rankcheck_model::{Config, Outcome, Platform, Source};
use rankcheck_tests::agreement::unnamed;
use rankcheck_tests::random::Family;
use rankcheck_tests::script::Trial;

use crate::laws::runner;
use crate::specs::{CheckedProgram, checked_programs};

/// Cuts that are tried in all, if the time suffices.
const CUTS: usize = 10_000;
const AT_MOST: Duration = Duration::from_secs(20);

/// A program whose whole exploration is known.
struct Whole {
    name: String,
    source: Arc<dyn Source>,
    config: Config,
    exploration: Exploration,
}

fn of_specs() -> Vec<Whole> {
    checked_programs()
        .map(|CheckedProgram { name, source, config }| {
            let exploration = explore(&source, config.clone(), &Bounds::default());
            Whole { name, source, config, exploration: exploration.expect("it was explored before") }
        })
        .collect()
}

fn of_random_programs(runner: &mut TestRunner, wanted: usize) -> Vec<Whole> {
    let strategy = Family::General.recipes();
    let mut wholes = Vec::new();
    while wholes.len() < wanted {
        let recipe = strategy.new_tree(runner).expect("a strategy generates").current();
        let Trial { script, config } = recipe.trial();
        let source: Arc<dyn Source> = script;
        let bounds = Bounds { states: 2_000, ..Bounds::default() };
        let exploration = explore(&source, config.clone(), &bounds).expect("a script evaluates");
        if exploration.bound.is_none() {
            wholes.push(Whole { name: format!("{recipe:?}"), source, config, exploration });
        }
    }
    wholes
}

fn flag(bound: &BoundHit) -> &'static str {
    match bound {
        BoundHit::States(_) => "--max-states",
        BoundHit::Choices(_) => "--max-choices",
        BoundHit::Time(_) => "--max-seconds",
        BoundHit::Steps(_) => "--max-steps",
        BoundHit::Memory(_) => "--max-memory",
        BoundHit::Interrupted(_) => "interrupted",
    }
}

/// Bounds up to just beyond what the whole exploration took; one of them, or all.
fn bounds(whole: &Exploration, (which, states, choices, steps): (u8, u64, u32, u64)) -> Bounds {
    let deepest = whole.outcomes.values().map(|choices| choices.len()).max().unwrap_or(0);
    let deepest = u32::try_from(deepest).expect("runs are short");
    let mut bounds = Bounds::default();
    if which % 4 != 1 {
        bounds.states = 1 + states % (whole.states + 2);
    }
    if which % 4 == 1 || which % 4 == 3 {
        bounds.choices = choices % (deepest + 2);
    }
    if which % 4 >= 2 {
        bounds.steps = 1 + steps % (whole.steps / whole.states.max(1) + 20);
    }
    bounds
}

/// What is wrong with a cut, if anything, and the flag of the bound that it hit.
fn cut(whole: &Whole, bounds: &Bounds) -> (Option<&'static str>, Option<String>) {
    let full = &whole.exploration;
    let part = explore(&whole.source, whole.config.clone(), bounds).expect("it evaluates without bounds");
    let verdict = Verdict::of(&part);
    let Some(bound) = &part.bound else {
        let same = part.outcomes.keys().eq(full.outcomes.keys())
            && part.broken.keys().eq(full.broken.keys())
            && (part.states, part.executions) == (full.states, full.executions)
            && part.reached == full.reached
            && verdict == Verdict::of(full);
        return (None, (!same).then(|| "no bound is reported, but it differs from the whole".to_owned()));
    };
    let flag = flag(bound);
    // A run that breaks a rule does so whatever else there is.
    let expected = match &verdict {
        Verdict::Fails { rules, .. } => {
            rules.iter().eq(part.broken.keys()) && rules.iter().all(|rule| full.broken.contains_key(rule))
        }
        Verdict::Unknown(by) => part.broken.is_empty() && by == bound,
        Verdict::Holds => false,
    };
    if !expected {
        return (Some(flag), Some(format!("hit {bound} and says {verdict:?}")));
    }
    if !bound.to_string().contains(flag) {
        return (Some(flag), Some(format!("{bound} does not name {flag}")));
    }
    // A part may be too small to merge histories, where the whole does.
    let known: BTreeSet<Outcome> = full.outcomes.keys().cloned().map(unnamed).collect();
    if !part.outcomes.keys().cloned().map(unnamed).all(|outcome| known.contains(&outcome)) {
        return (Some(flag), Some("invents an outcome that the whole does not have".to_owned()));
    }
    (Some(flag), None)
}

#[test]
fn a_cut_exploration_says_what_it_found_and_no_more() {
    let mut runner = runner(13);
    let mut wholes = of_random_programs(&mut runner, 400);
    let random = wholes.len();
    wholes.extend(of_specs());
    let numbers = (any::<u8>(), any::<u64>(), any::<u32>(), any::<u64>());
    let started = Instant::now();
    let (mut cuts, mut tried) = (BTreeMap::new(), 0);
    let mut wrong = Vec::new();
    while tried < CUTS && started.elapsed() < AT_MOST {
        let whole = &wholes[tried % wholes.len()];
        let numbers = numbers.new_tree(&mut runner).expect("a strategy generates").current();
        let bounds = bounds(&whole.exploration, numbers);
        let (bound, violation) = cut(whole, &bounds);
        *cuts.entry(bound.unwrap_or("none")).or_insert(0_usize) += 1;
        wrong.extend(violation.map(|why| format!("{} with {bounds:?}: {why}", whole.name)));
        tried += 1;
    }
    println!("{tried} cuts of {random} random programs and {} of specs: {cuts:?}", wholes.len() - random);
    assert!(
        wrong.is_empty(),
        "{} of {tried} cuts:\n{}",
        wrong.len(),
        wrong[..wrong.len().min(10)].join("\n")
    );
    for bound in ["none", "--max-states", "--max-choices", "--max-steps"] {
        assert!(cuts.get(bound).is_some_and(|n| *n > 0), "no cut hit {bound}");
    }
}

#[test]
fn several_threads_find_what_one_finds() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/pool_history.star");
    let spec = rankcheck::spec::load(&path).expect("the benchmark's spec is good");
    let check = &spec.checks[0];
    let source: Arc<dyn Source> = Arc::new(check.source(4, &[], &[]).expect("a good check"));
    let config = verdict::config(check, 4, Platform::V2_28_9, &[]);
    // Merged, it is too small.
    let bounds = Bounds { merge_from: u64::MAX, ..Bounds::default() };
    let several = explore(&source, config.clone(), &bounds).expect("it evaluates");
    let one = explore_alone(&source, config, &bounds).expect("it evaluates");
    assert!(one.states > 5_000, "{} states are too few for a second thread to help", one.states);
    let found = |run: &Exploration| (run.states, run.executions, run.steps, run.costs, run.reached.clone());
    assert_eq!(found(&several), found(&one));
    assert!(several.outcomes.keys().eq(one.outcomes.keys()), "the outcomes differ");
}
