//! Laws over random programs: the reduction never changes a finding or an outcome.
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config as ProptestConfig, RngAlgorithm, TestRng, TestRunner};
use rankcheck::explore::{Bounds, Exploration, explore};
use rankcheck::naive;
use rankcheck_model::{ObjectKind, Outcome, Rule, Source};
use rankcheck_tests::random::{Fragment, KINDS, program};

/// `RANKCHECK_PROGRAMS` asks for more, for example every night.
fn programs() -> usize {
    std::env::var("RANKCHECK_PROGRAMS").ok().and_then(|n| n.parse().ok()).unwrap_or(2_000)
}

fn fragments() -> impl Strategy<Value = (u32, Vec<Fragment>)> {
    let fragment = (0..KINDS, any::<u8>(), any::<u8>(), any::<u8>());
    (2_u32..=3, proptest::collection::vec(fragment, 1..5))
}

fn bounds() -> Bounds {
    Bounds { states: 60_000, ..Bounds::default() }
}

fn outcomes(exploration: &Exploration) -> BTreeSet<&Outcome> {
    exploration.outcomes.keys().collect()
}

/// The difference between the two semantics, in words; none if they agree or a bound was hit.
fn difference(ranks: u32, fragments: &[Fragment]) -> Result<Option<(Exploration, Exploration)>, String> {
    let (script, config) = program(ranks, fragments);
    let source: Arc<dyn Source> = Arc::new(script);
    let naive = naive::explore(&source, config.clone(), &bounds()).expect("a script evaluates");
    if naive.bound.is_some() {
        return Ok(None);
    }
    let reduced = explore(&source, config, &bounds()).expect("a script evaluates");
    if reduced.bound.is_some() {
        return Ok(None);
    }
    let (r, n) = (outcomes(&reduced), outcomes(&naive));
    if r == n {
        return Ok(Some((reduced, naive)));
    }
    let lost: Vec<_> = n.difference(&r).collect();
    let invented: Vec<_> = r.difference(&n).collect();
    Err(format!(
        "{ranks} ranks {fragments:?}: lost {} of {}: {lost:?}\ninvented {}: {invented:?}\ncontended {:?}\nall {r:#?}",
        lost.len(),
        n.len(),
        invented.len(),
        reduced.contended
    ))
}

#[test]
fn reduced_and_naive_agree() {
    let config = ProptestConfig { failure_persistence: None, ..ProptestConfig::default() };
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[7; 32]);
    let mut runner = TestRunner::new_with_rng(config, rng);
    let strategy = fragments();
    let (mut compared, mut several, mut one_run) = (0, 0, 0);
    let mut broken: BTreeMap<Rule, u32> = BTreeMap::new();
    let mut tried = 0;
    let wanted = programs();
    while compared < wanted {
        tried += 1;
        assert!(tried < 2 * wanted, "most programs must be small enough to compare");
        let mut tree = strategy.new_tree(&mut runner).expect("a strategy generates");
        let (ranks, list) = tree.current();
        match difference(ranks, &list) {
            Ok(None) => {}
            Ok(Some((reduced, _))) => {
                compared += 1;
                several += usize::from(reduced.outcomes.len() > 1);
                one_run += usize::from(reduced.states == 1);
                for outcome in reduced.outcomes.keys().filter(|outcome| outcome.findings.is_empty()) {
                    assert!(!outcome.corrupt, "{ranks} ranks {list:?}: wrong data and no rule: {outcome:?}");
                }
                for rule in reduced.broken.keys() {
                    *broken.entry(*rule).or_default() += 1;
                }
            }
            Err(mut first) => {
                // Shrink by hand: keep simplifying while the two still differ.
                loop {
                    if !tree.simplify() {
                        break;
                    }
                    let (ranks, list) = tree.current();
                    match difference(ranks, &list) {
                        Err(text) => first = text,
                        Ok(_) => {
                            if !tree.complicate() {
                                break;
                            }
                        }
                    }
                }
                panic!("{first}");
            }
        }
    }
    println!("{compared} programs compared, {several} with several outcomes, {one_run} decided by one run");
    for rule in Rule::ALL {
        println!("  {rule:8} broken in {:4}", broken.get(rule).unwrap_or(&0));
    }
    assert!(several * 5 >= compared, "at least 20 % with several outcomes");
    for rule in Rule::ALL {
        assert!(broken.get(rule).is_some_and(|n| *n >= 20), "{rule} is broken too rarely");
    }
}

/// Declaring one kind of object to commute although it does not must be noticed.
#[test]
fn every_entry_of_the_commutation_table_is_needed() {
    for kind in ObjectKind::ALL {
        let config = ProptestConfig { failure_persistence: None, ..ProptestConfig::default() };
        let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[11; 32]);
        let mut runner = TestRunner::new_with_rng(config, rng);
        let strategy = fragments();
        let mut tried = 0;
        let noticed = loop {
            tried += 1;
            if tried > 4_000 {
                break false;
            }
            let tree = strategy.new_tree(&mut runner).expect("a strategy generates");
            let (ranks, list) = tree.current();
            let (script, mut config) = program(ranks, &list);
            let source: Arc<dyn Source> = Arc::new(script);
            let right = explore(&source, config.clone(), &bounds()).expect("a script evaluates");
            if !right.config.contended.iter().any(|object| object.kind == kind) {
                continue;
            }
            config.declared_commuting.insert(kind);
            let wrong = explore(&source, config.clone(), &bounds()).expect("a script evaluates");
            if outcomes(&right) == outcomes(&wrong) {
                continue;
            }
            // The law itself: the wrong reduction disagrees with the oracle.
            config.declared_commuting.clear();
            let naive = naive::explore(&source, config, &bounds()).expect("a script evaluates");
            if naive.bound.is_none() && outcomes(&naive) != outcomes(&wrong) {
                break true;
            }
        };
        println!("{kind:?}: declared commuting, noticed after {tried} programs");
        assert!(noticed, "{kind:?} could be declared commuting and no program would tell");
    }
}
