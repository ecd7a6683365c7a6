//! Laws over random programs: the reduction never changes a finding or an outcome.
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config as ProptestConfig, RngAlgorithm, TestRng, TestRunner};
use rankcheck::search::explore::{Bounds, Exploration, explore};
use rankcheck::search::naive;
use rankcheck_model::{Machine, ObjectKind, Outcome, Rank, Rule, Source};
use rankcheck_tests::random::{Fragment, KINDS, RARE, interchangeable, program};

/// `RANKCHECK_PROGRAMS` asks for more, for example every night.
fn programs() -> usize {
    std::env::var("RANKCHECK_PROGRAMS").ok().and_then(|n| n.parse().ok()).unwrap_or(3_000)
}

fn fragments() -> impl Strategy<Value = (u32, Vec<Fragment>)> {
    let kind = prop_oneof![4 => 0..KINDS, 1 => proptest::sample::select(&RARE[..])];
    let fragment = (kind, any::<u8>(), any::<u8>(), any::<u8>());
    (2_u32..=3, proptest::collection::vec(fragment, 1..5))
}

fn bounds() -> Bounds {
    Bounds { states: 30_000, ..Bounds::default() }
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

/// Programs that were hard once: each lost or invented an outcome before the model was repaired.
const HARD: [(u32, &[Fragment]); 14] = [
    // A send that is over before its receive, and is declared to overlap.
    (2, &[(52, 95, 52, 125), (33, 88, 30, 254), (51, 27, 178, 2)]),
    // A free against a kernel that reaches the memory through windows of other ranks only.
    (3, &[(31, 27, 214, 244), (11, 174, 157, 255), (24, 228, 74, 86)]),
    // Two streams hang, and either thread may have made its stream first.
    (2, &[(23, 30, 55, 0), (25, 4, 171, 50), (26, 213, 147, 88), (25, 204, 119, 53)]),
    // Two threads launch on two communicators: no rank has an order.
    (2, &[(39, 160, 121, 208)]),
    // A free asks for windows, and a destroy takes them away.
    (2, &[(22, 178, 74, 203), (11, 42, 192, 128), (42, 8, 201, 162)]),
    (2, &[(31, 100, 224, 206), (42, 37, 85, 170), (11, 13, 144, 6)]),
    // The same with a group beside.
    (2, &[(41, 61, 186, 186), (42, 95, 93, 158), (11, 255, 138, 69)]),
    // A free while a registration that fails is under way.
    (2, &[(40, 0, 0, 0)]),
    // A block that comes back in a capture, and the graph runs on a stream that knows nothing of the block's past.
    (2, &[(61, 137, 102, 134), (28, 213, 234, 36), (34, 12, 222, 45), (54, 89, 222, 39)]),
    // A mapping is closed after its use is over, without waiting, and after a later write of the owner.
    (3, &[(62, 42, 220, 122), (45, 14, 83, 75), (59, 30, 60, 53)]),
    // A send into a capture that is invalid, while another launch of the communicator runs.
    (2, &[(53, 167, 161, 138), (55, 69, 197, 69), (50, 23, 148, 205)]),
    // A block comes back on an idle stream, while a graph may still fill it on another.
    (2, &[(53, 49, 127, 213), (28, 253, 179, 198)]),
    // A thread's launch runs before the second communicator is made, and nothing orders it before that one's.
    (2, &[(41, 208, 75, 37), (49, 238, 83, 122)]),
    (3, &[(41, 185, 150, 146), (60, 206, 63, 56), (49, 32, 79, 12)]),
];

/// The same for interchangeable ranks.
const HARD_ALIKE: [(u32, &[Fragment]); 5] = [
    // Shares belong to members, and move with their numbers.
    (2, &[(31, 73, 204, 47), (24, 170, 192, 240), (22, 181, 60, 58)]),
    // Parameters differ: whose count?
    (2, &[(22, 24, 37, 98), (38, 246, 107, 44)]),
    (2, &[(7, 185, 153, 89), (41, 123, 141, 193)]),
    // Three ranks find their buffers in different windows and at different places.
    (3, &[(22, 93, 2, 0), (41, 45, 118, 223)]),
    // A deadlock of several communicators is named whoever has which number.
    (3, &[(39, 63, 106, 244), (42, 243, 108, 94)]),
];

/// Differences are rarely alone; so many are shown.
const SHOWN: usize = 12;

/// Random programs, the same in every run. `RANKCHECK_SEED` asks for others.
fn runner(law: u8) -> TestRunner {
    let config = ProptestConfig { failure_persistence: None, ..ProptestConfig::default() };
    let mut seed = [law; 32];
    if let Some(other) = std::env::var("RANKCHECK_SEED").ok().and_then(|n| n.parse::<u64>().ok()) {
        seed[..8].copy_from_slice(&other.to_le_bytes());
    }
    TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &seed))
}

/// Shrinks a program by hand: keeps simplifying while the two semantics still differ. Returns what they differ in.
fn shrunk(
    mut tree: impl ValueTree<Value = (u32, Vec<Fragment>)>,
    first: String,
    difference: impl Fn(u32, &[Fragment]) -> Option<String>,
) -> String {
    let mut smallest = first;
    while tree.simplify() {
        let (ranks, list) = tree.current();
        match difference(ranks, &list) {
            Some(text) => smallest = text,
            None if tree.complicate() => {}
            None => break,
        }
    }
    smallest
}

#[test]
fn hard_programs_agree() {
    let apart = HARD.iter().filter_map(|(ranks, list)| difference(*ranks, list).err());
    let alike = HARD_ALIKE.iter().filter_map(|(ranks, list)| unfolded_difference(*ranks, list).err());
    let differences: Vec<String> = apart.chain(alike).collect();
    assert!(differences.is_empty(), "{}", differences.join("\n\n"));
}

#[test]
fn reduced_and_naive_agree() {
    let mut runner = runner(7);
    let strategy = fragments();
    let (mut compared, mut several, mut one_run) = (0, 0, 0);
    let mut broken: BTreeMap<Rule, u32> = BTreeMap::new();
    let mut differences = Vec::new();
    let mut tried = 0;
    let wanted = programs();
    while compared < wanted && differences.len() < SHOWN {
        tried += 1;
        assert!(tried < 2 * wanted, "most programs must be small enough to compare");
        let tree = strategy.new_tree(&mut runner).expect("a strategy generates");
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
            Err(first) => {
                // At once: a long run may be ended before it says so.
                println!("a difference after {compared} programs: {first}");
                differences.push(shrunk(tree, first, |ranks, list| difference(ranks, list).err()));
            }
        }
    }
    let texts = differences.join("\n\n");
    assert!(differences.is_empty(), "{} of {tried} programs differ:\n{texts}", differences.len());
    println!("{compared} programs compared, {several} with several outcomes, {one_run} decided by one run");
    for rule in Rule::ALL {
        println!("  {rule:8} broken in {:4}", broken.get(rule).unwrap_or(&0));
    }
    assert!(several * 5 >= compared, "at least 20 % with several outcomes");
    for rule in Rule::ALL {
        assert!(broken.get(rule).is_some_and(|n| *n >= 20), "{rule} is broken too rarely");
    }
}

/// All ways to renumber so many ranks: `to[old] = new`.
fn renumberings(ranks: u32) -> Vec<Vec<Rank>> {
    let mut all = vec![Vec::new()];
    for rank in (0..ranks).map(Rank) {
        let longer = |shorter: &Vec<Rank>| {
            let insert = |at: usize| {
                let mut longer = shorter.clone();
                longer.insert(at, rank);
                longer
            };
            (0..=shorter.len()).map(insert).collect::<Vec<_>>()
        };
        all = all.iter().flat_map(longer).collect();
    }
    all
}

/// Everything that an exploration of interchangeable ranks stands for: its witnesses' ends under all numbers.
fn unfolded(source: &Arc<dyn Source>, exploration: &Exploration) -> BTreeSet<Outcome> {
    let machine = Machine::new(Arc::clone(source), exploration.config.clone());
    let mut outcomes = BTreeSet::new();
    for witness in exploration.outcomes.values() {
        let mut state = machine.init();
        machine.advance(&mut state);
        for choice in &witness.choices {
            assert!(machine.possible(&state, choice), "a witness fits its program");
            machine.take(&mut state, choice);
            machine.advance(&mut state);
        }
        for to in renumberings(exploration.config.ranks) {
            let mut state = state.clone();
            machine.renumber(&mut state, &to);
            machine.finish(&mut state);
            outcomes.insert(machine.outcome(&state));
        }
    }
    outcomes
}

/// The difference between interchangeable ranks and the oracle, in words; none if a bound was hit.
fn unfolded_difference(ranks: u32, fragments: &[Fragment]) -> Result<Option<Exploration>, String> {
    let (script, config) = interchangeable(ranks, fragments);
    let source: Arc<dyn Source> = Arc::new(script);
    let naive = naive::explore(&source, config.clone(), &bounds()).expect("a script evaluates");
    if naive.bound.is_some() {
        return Ok(None);
    }
    let reduced = explore(&source, config, &bounds()).expect("a script evaluates");
    if reduced.bound.is_some() {
        return Ok(None);
    }
    let unfolded = unfolded(&source, &reduced);
    let (r, n): (BTreeSet<_>, _) = (unfolded.iter().collect(), outcomes(&naive));
    let strange: Vec<_> = outcomes(&reduced).difference(&r).copied().collect();
    if r == n && strange.is_empty() {
        return Ok(Some(reduced));
    }
    let lost: Vec<_> = n.difference(&r).collect();
    let invented: Vec<_> = r.difference(&n).collect();
    Err(format!(
        "{ranks} ranks {fragments:?}: lost {} of {}: {lost:#?}\ninvented {}: {invented:#?}\n\
         not of its own witness: {strange:#?}\ncontended {:?}",
        lost.len(),
        n.len(),
        invented.len(),
        reduced.contended
    ))
}

/// Ranks that run one program: what the merged exploration finds is, under all numbers, what the oracle finds.
#[test]
fn interchangeable_ranks_agree() {
    let mut runner = runner(13);
    let strategy = fragments();
    let (mut compared, mut tried, mut folded) = (0, 0, 0);
    let mut differences = Vec::new();
    let wanted = programs() / 4;
    while compared < wanted && differences.len() < SHOWN {
        tried += 1;
        assert!(tried < 4 * wanted, "most programs must be small enough to compare");
        let tree = strategy.new_tree(&mut runner).expect("a strategy generates");
        let (ranks, list) = tree.current();
        match unfolded_difference(ranks, &list) {
            Ok(None) => {}
            Ok(Some(reduced)) => {
                compared += 1;
                folded += usize::from(reduced.outcomes.len() > 1);
            }
            Err(first) => {
                differences.push(shrunk(tree, first, |ranks, list| unfolded_difference(ranks, list).err()));
            }
        }
    }
    let texts = differences.join("\n\n");
    assert!(differences.is_empty(), "{} of {tried} programs differ:\n{texts}", differences.len());
    println!("{compared} programs of interchangeable ranks compared, {folded} with several outcomes");
    assert!(folded * 10 >= compared, "at least 10 % with several outcomes");
}

/// Declaring one kind of object to commute although it does not must be noticed.
#[test]
fn every_entry_of_the_commutation_table_is_needed() {
    for kind in ObjectKind::ALL {
        let mut runner = runner(11);
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
