//! Fingerprints of states are made from contents: another process that explores in another order comes to the same.
//!
//! Not here: that one process comes to the same states in any order, of all programs (`searches.rs`).

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::num::NonZero;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use proptest::strategy::{Strategy, ValueTree};
use rankcheck::closure::{Explained, Program};
use rankcheck::report;
use rankcheck::search::Bounds;
use rankcheck::search::explore::{Exploration, breadth_first, explore_alone, explore_by};
use rankcheck::search::verdict;
use rankcheck::spec::load;
use rankcheck_model::{Config, Machine, Platform, Source, SourceError};
use rankcheck_tests::random::Family;
use rankcheck_tests::repository::{enter, specs};
use rankcheck_tests::script::Trial;

use crate::laws::runner;

/// Set in the process that explores in another order.
const IN_ANOTHER_ORDER: &str = "RANKCHECK_TEST_IN_ANOTHER_ORDER";

/// Said of a program whose histories merge.
const MERGED: &str = ", merged";

/// Random programs that are explored.
const PROGRAMS: usize = 100;

/// A program, and what it is explored with.
type ToExplore = (String, Arc<dyn Source>, Config);

/// The first run of each committed check, and random programs.
fn programs() -> Vec<ToExplore> {
    let mut all: Vec<ToExplore> = Vec::new();
    enter();
    for path in specs() {
        let spec = load(&path).expect("the committed specs are well formed");
        for check in &spec.checks {
            let params = check.combinations().swap_remove(0);
            let source = check.source(check.ranks[0], &params, &check.assume).expect("its own parameters");
            let config = verdict::config(check, check.ranks[0], Platform::default(), &check.assume);
            all.push((format!("{} {:?}", path.display(), check.name), Arc::new(source), config));
        }
    }
    let (mut runner, strategy) = (runner(21), Family::General.recipes());
    for nth in 0..PROGRAMS {
        let recipe = strategy.new_tree(&mut runner).expect("a strategy generates").current();
        let Trial { script, config } = recipe.trial();
        all.push((format!("random {nth}"), script, config));
    }
    all
}

/// What stands for the set of states of each program, but of those with many; and for that of the states that are left
/// where histories merge, which `merged` looks for.
fn fingerprints(
    programs: impl Iterator<Item = ToExplore>,
    apart: impl Fn(&Arc<dyn Source>, Config, &Bounds) -> Result<Exploration, SourceError>,
    merged: impl Fn(&Arc<dyn Source>, Config, &Bounds) -> Result<Exploration, SourceError>,
) -> BTreeMap<String, String> {
    let bounds = Bounds { states: 4_000, merge_from: u64::MAX, ..Bounds::default() };
    let merge = Bounds { merge_from: 0, ..bounds.clone() };
    let mut all = BTreeMap::new();
    for (name, source, config) in programs {
        let found = apart(&source, config.clone(), &bounds).expect("the program can be evaluated");
        if found.bound.is_some() {
            continue;
        }
        let one = found.states == 1;
        let states = if one { only_state(&source, found.config) } else { found.fingerprint };
        all.insert(name.clone(), format!("{states:032x} {}", found.states));
        // Of one state nothing merges.
        if !one {
            let found = merged(&source, config, &merge).expect("the program can be evaluated");
            assert_eq!(found.bound, None, "{name}");
            all.insert(name + MERGED, format!("{:032x} {}", found.fingerprint, found.states));
        }
    }
    all
}

/// The fingerprint of the state that a program without choices comes to: a search has no use for it.
fn only_state(source: &Arc<dyn Source>, config: Config) -> u128 {
    let machine = Machine::new(Arc::clone(source), config);
    let mut state = machine.init();
    machine.advance(&mut state);
    state.seal();
    state.fingerprint()
}

#[test]
fn another_process_comes_to_the_same_states_in_another_order() {
    if env::var_os(IN_ANOTHER_ORDER).is_some() {
        // The last program first, so that whatever is counted on the way is counted otherwise.
        let found = fingerprints(programs().into_iter().rev(), breadth_first, explore_alone);
        found.iter().for_each(|(name, fingerprint)| eprintln!("states {fingerprint} {name}"));
        return;
    }
    let two = NonZero::new(2).expect("two");
    let by_two = |source: &_, config, bounds: &_| explore_by(two, source, config, bounds);
    let here = fingerprints(programs().into_iter(), by_two, by_two);
    assert!(here.len() > 500, "{} programs", here.len());
    let distinct: BTreeSet<&String> = here.values().collect();
    assert!(distinct.len() * 2 > here.len(), "{} programs have other states than the rest", distinct.len());
    let another = Command::new(env::current_exe().expect("this is a program"))
        .args(["--exact", "fingerprints::another_process_comes_to_the_same_states_in_another_order"])
        .arg("--nocapture")
        .env(IN_ANOTHER_ORDER, "1")
        .output()
        .expect("the tests start");
    let told = String::from_utf8_lossy(&another.stderr);
    assert!(another.status.success(), "{told}");
    let there: BTreeMap<String, String> = told
        .lines()
        .filter_map(|line| {
            let (fingerprint, rest) = line.strip_prefix("states ")?.split_once(' ')?;
            let (states, name) = rest.split_once(' ')?;
            Some((name.to_owned(), format!("{fingerprint} {states}")))
        })
        .collect();
    for (name, fingerprint) in &here {
        assert_eq!(there.get(name), Some(fingerprint), "{name}");
    }
    assert_eq!(there.len(), here.len());
}

#[test]
fn a_report_says_what_many_states_are_worth() {
    let mut explained = Program::new(2, |r| r.step("one")).check().expect("it evaluates");
    let told = |explained: &Explained| {
        let json = report::json([explained], [], [], &[]);
        let json = serde_json::to_value(&json).expect("a report is JSON");
        (report::text(explained), json["checks"][0]["taken_for_one"].to_string())
    };
    let (text, odds) = told(&explained);
    assert!(!text.contains("taken for one"), "{text}");
    assert_eq!(odds, "1e-38");
    explained.runs[0].states = 20_000_000;
    let (text, odds) = told(&explained);
    let chance = "explored  20000000 states, 1 execution; the chance that two different states were taken for one is below 1 in 10^24";
    assert!(text.contains(chance), "{text}");
    assert_eq!(odds, "1e-24");
}

/// Whoever names a spec by another path, or keeps it elsewhere, has the same states.
#[test]
fn where_a_program_lies_makes_no_difference() {
    let root = enter();
    let states = |path: &Path| {
        let spec = load(path).expect("the spec is good");
        let check = spec.checks.iter().find(|check| check.ranks == [4]).unwrap_or(&spec.checks[0]);
        let source = check.source(check.ranks[0], &check.combinations()[0], &check.assume);
        let config = verdict::config(check, check.ranks[0], Platform::default(), &check.assume);
        let source: Arc<dyn Source> = Arc::new(source.expect("its own parameters"));
        let found = explore_alone(&source, config, &Bounds::default()).expect("it evaluates");
        (found.fingerprint, found.states, found.executions)
    };
    let mut loading = 0;
    for path in specs().into_iter().chain(["tests/growth/batches.star".into()]) {
        let text = std::fs::read_to_string(&path).expect("it is a file");
        if text.contains("load(") || path.ends_with("batches.star") {
            loading += 1;
            assert_eq!(states(&path), states(&root.join(&path)), "{}", path.display());
        }
    }
    assert!(loading > 3, "{loading} specs load others");
}
