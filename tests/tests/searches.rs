//! The search of the engine against stateright's own breadth-first checker, over the same model.
//!
//! Not here: what the states are (`laws.rs`).

use std::num::NonZero;
use std::sync::Arc;

use proptest::strategy::{Strategy, ValueTree};
use rankcheck::search::Bounds;
use rankcheck::search::explore::{Exploration, breadth_first, explore_alone, explore_by};
use rankcheck_model::{Config, Source};
use rankcheck_tests::random::Family;
use rankcheck_tests::script::Trial;

use crate::laws::runner;
use crate::specs::{CheckedProgram, checked_programs};

/// Random programs that are compared.
const PROGRAMS: usize = 300;

/// What two searches must agree in: all that is found, and after how many choices.
fn found(of: &Exploration) -> impl PartialEq + std::fmt::Debug + use<> {
    let outcomes: Vec<_> = of.outcomes.iter().map(|(outcome, w)| (outcome.clone(), w.len())).collect();
    let broken: Vec<_> = of.broken.iter().map(|(rule, w)| (*rule, w.choices.len(), w.past)).collect();
    // Equal sets of states, not only equally many.
    let counts = (of.states, of.fingerprint, of.executions, of.steps, of.costs, of.executed);
    (counts, outcomes, broken, of.reached.clone(), of.bound.clone(), of.another_order.clone())
}

fn by_two(
    source: &Arc<dyn Source>,
    config: Config,
    bounds: &Bounds,
) -> Result<Exploration, rankcheck_model::SourceError> {
    explore_by(NonZero::new(2).expect("two"), source, config, bounds)
}

fn same(name: &str, source: &Arc<dyn Source>, config: &Config, bounds: &Bounds) -> Option<u64> {
    let with = |search: fn(&Arc<dyn Source>, Config, &Bounds) -> _| {
        let exploration: Result<Exploration, rankcheck_model::SourceError> =
            search(source, config.clone(), bounds);
        exploration.expect("it was explored before")
    };
    let expected = with(breadth_first);
    if expected.bound.is_some() {
        return None;
    }
    assert_eq!(found(&with(by_two)), found(&expected), "{name}, by two threads");
    assert_eq!(found(&with(explore_alone)), found(&expected), "{name}, by one thread");
    Some(expected.states)
}

#[test]
fn the_engine_finds_in_every_check_what_stateright_finds() {
    let (mut compared, mut states) = (0, 0);
    for CheckedProgram { name, source, config } in checked_programs() {
        states += same(&name, &source, &config, &Bounds::default()).expect("no bound is hit");
        compared += 1;
    }
    assert!(compared > 500 && states > 2 * compared, "{compared} explorations with {states} states");
}

#[test]
fn the_engine_finds_in_random_programs_what_stateright_finds() {
    let (mut runner, strategy) = (runner(20), Family::General.recipes());
    let bounds = Bounds { states: 5_000, merge_from: u64::MAX, ..Bounds::default() };
    let mut largest = 0;
    for _ in 0..PROGRAMS {
        let recipe = strategy.new_tree(&mut runner).expect("a strategy generates").current();
        let Trial { script, config } = recipe.trial();
        let source: Arc<dyn Source> = script;
        largest = largest.max(same(&format!("{recipe:?}"), &source, &config, &bounds).unwrap_or(0));
    }
    assert!(largest > 100, "the largest program has {largest} states");
}

#[test]
fn a_search_until_something_is_broken_says_whether_something_is() {
    let until_broken = Bounds { until_broken: true, ..Bounds::default() };
    let (mut states, mut without_rest) = (0, 0);
    for CheckedProgram { name, source, config } in checked_programs() {
        let with = |bounds| explore_alone(&source, config.clone(), bounds).expect("it was explored before");
        let (whole, first) = (with(&Bounds::default()), with(&until_broken));
        if whole.broken.is_empty() {
            assert_eq!(found(&first), found(&whole), "{name}");
            continue;
        }
        assert!(!first.broken.is_empty(), "{name}");
        assert!(first.broken.keys().all(|rule| whole.broken.contains_key(rule)), "{name}");
        states += whole.states;
        without_rest += first.states;
    }
    assert!(2 * without_rest < states, "{without_rest} states until something is broken, {states} in all");
}
