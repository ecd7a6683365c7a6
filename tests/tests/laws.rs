//! Laws over random programs: the reduction never changes a finding or an outcome.
//! Not here: how two semantics are compared, and what the programs are made of.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config as ProptestConfig, RngAlgorithm, TestRng, TestRunner};
use rankcheck::search::explore::{Exploration, explore};
use rankcheck::search::naive;
use rankcheck_model::machine::{ConcurrentCalls, FaultOf, Launcher};
use rankcheck_model::{Config, ObjectKind, Outcome, RankOutcome, Rule, Source};
use rankcheck_tests::agreement::{Both, Compared, Difference, bounds, compare, outcomes, verdict};
use rankcheck_tests::random::{Recipe, recipes};
use rankcheck_tests::repository::{differs_from_golden, enter, files_under};
use rankcheck_tests::script::{Kept, Trial, shrunk};

/// So many programs are compared unless `RANKCHECK_PROGRAMS` asks for others: fewer, or more every night.
const PROGRAMS: usize = 3_000;

/// So many of [`PROGRAMS`] break each rule, and fewer in proportion where fewer are compared: of fewer than 150 maybe
/// none.
const BREAK_EACH_RULE: usize = 20;

pub(crate) fn programs() -> usize {
    std::env::var("RANKCHECK_PROGRAMS").ok().and_then(|n| n.parse().ok()).unwrap_or(PROGRAMS)
}

/// Differences are rarely alone. The law ends after so many, and shows those that are not alike once they are small.
const SHOWN: usize = 12;

/// Random programs, the same in every run. `RANKCHECK_SEED` asks for others.
pub(crate) fn runner(law: u8) -> TestRunner {
    let config = ProptestConfig { failure_persistence: None, ..ProptestConfig::default() };
    let mut seed = [law; 32];
    if let Some(other) = std::env::var("RANKCHECK_SEED").ok().and_then(|n| n.parse::<u64>().ok()) {
        seed[..8].copy_from_slice(&other.to_le_bytes());
    }
    TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &seed))
}

/// A law that compares both semantics of random programs.
struct Law {
    name: &'static str,
    trial: fn(&Recipe) -> Trial,
    seed: u8,
    /// How many programs to compare, beside those that are too large.
    wanted: usize,
    /// At most so many in a hundred of them are left out beside, because the oracle hits a bound.
    too_large_percent: usize,
}

impl Law {
    /// Compares programs until enough are, and shows `agree` each of them.
    fn check(&self, mut agree: impl FnMut(&Recipe, &Both)) {
        let (mut runner, strategy) = (runner(self.seed), recipes());
        let (mut compared, mut too_large, mut differences) = (0, 0, 0);
        let mut shown = BTreeSet::new();
        while compared < self.wanted && differences < SHOWN && too_large <= self.at_most(compared) {
            let tree = strategy.new_tree(&mut runner).expect("a strategy generates");
            let recipe = tree.current();
            match compare(&(self.trial)(&recipe)) {
                Compared::Agree(both) => {
                    compared += 1;
                    agree(&recipe, &both);
                }
                Compared::TooLarge => too_large += 1,
                Compared::Differ(first) => {
                    // At once: a long run may be ended before it says so.
                    println!("a difference after {compared} programs: {recipe:?}: {}", first.text);
                    differences += 1;
                    shown.insert(self.counterexample(tree, first));
                }
            }
        }
        println!("{compared} programs compared, {too_large} left out, because the oracle hits a bound");
        let texts: Vec<String> =
            shown.iter().enumerate().map(|(nth, shown)| shown.told(self.name, nth)).collect();
        assert!(differences == 0, "{differences} programs differ:\n{}", texts.join("\n\n"));
        assert!(compared == self.wanted, "too many programs are too large for the oracle; make them smaller");
    }

    /// How many programs may be left out beside those that are compared; some more where there are few.
    fn at_most(&self, compared: usize) -> usize {
        20 + compared * self.too_large_percent / 100
    }

    /// Makes a program smaller as long as the semantics differ in the same.
    fn counterexample(&self, mut tree: impl ValueTree<Value = Recipe>, first: Difference) -> Counterexample {
        let in_what = first.in_what;
        let differs = |trial: &Trial| match compare(trial) {
            Compared::Differ(difference) => Some(difference).filter(|found| found.in_what == in_what),
            Compared::Agree(_) | Compared::TooLarge => None,
        };
        let mut smallest = tree.current();
        while tree.simplify() {
            if differs(&(self.trial)(&tree.current())).is_some() {
                smallest = tree.current();
            } else if !tree.complicate() {
                break;
            }
        }
        let trial = shrunk((self.trial)(&smallest), |trial| differs(trial).is_some());
        let difference = differs(&trial).unwrap_or(first);
        let kept = Kept { why: "# Say here what was wrong.\n".to_owned(), trial };
        Counterexample { text: kept.text(&difference.verdict), difference: difference.text }
    }
}

/// A small program on which the semantics differ.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Counterexample {
    /// As it is kept.
    text: String,
    difference: String,
}

impl Counterexample {
    /// What to say of it; it is written to where a developer finds it.
    fn told(&self, law: &str, nth: usize) -> String {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("counterexamples");
        let path = folder.join(format!("{law}-{nth}.txt"));
        let written = std::fs::create_dir_all(&folder).and_then(|()| std::fs::write(&path, &self.text));
        let place = match written {
            Ok(()) => format!("It stands in {}.", path.display()),
            Err(error) => format!("It could not be written to {}: {error}.", path.display()),
        };
        format!(
            "{}\nThis program shows it. {place} tests/kept/README.md says how it is kept.\n\n{}",
            self.difference, self.text
        )
    }
}

/// Programs on which the two semantics differed once, before the model was repaired: they agree, within bounds, and
/// what they break and how much is explored stands beside them.
#[test]
fn kept_programs_agree() {
    let files: Vec<_> = files_under("tests/kept")
        .into_iter()
        .filter(|path| path.extension().is_some_and(|of| of == "txt"))
        .collect();
    assert!(!files.is_empty(), "tests/kept has no programs");
    let wrong = files.iter().filter_map(|path| {
        let name = path.display();
        let text = std::fs::read_to_string(enter().join(path)).expect("files of the repository can be read");
        let kept = match Kept::read(&text) {
            Ok(kept) => kept,
            Err(why) => return Some(format!("{name}: {why}")),
        };
        match compare(&kept.trial) {
            Compared::Agree(both) => differs_from_golden(path, &kept.text(&verdict(&both))),
            Compared::TooLarge => Some(format!("{name}: the oracle hits a bound, so nothing is compared")),
            Compared::Differ(difference) => Some(format!("{name}: {}", difference.text)),
        }
    });
    let wrong: Vec<String> = wrong.collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

/// A program that is written down and read again is the same, so a kept program is what was found.
#[test]
fn programs_are_kept_as_they_are() {
    let (mut runner, strategy) = (runner(17), recipes());
    for _ in 0..1_000 {
        let recipe = strategy.new_tree(&mut runner).expect("a strategy generates").current();
        for trial in [recipe.trial(), recipe.trial_of_alike()] {
            let text = Kept { why: String::new(), trial }.text("");
            let again = Kept::read(&text).unwrap_or_else(|why| panic!("{why}\n{text}"));
            assert_eq!(text, again.text(""), "{recipe:?}");
        }
    }
}

#[test]
fn reduced_and_naive_agree() {
    let wanted = programs();
    let (mut several, mut one_run) = (0, 0);
    let mut broken: BTreeMap<Rule, usize> = BTreeMap::new();
    let name = "reduced_and_naive_agree";
    Law { name, trial: Recipe::trial, seed: 7, wanted, too_large_percent: 20 }.check(|recipe, both| {
        let reduced = &both.reduced;
        several += usize::from(reduced.outcomes.len() > 1);
        one_run += usize::from(reduced.states == 1);
        for outcome in reduced.outcomes.keys().filter(|outcome| outcome.findings.is_empty()) {
            assert!(!outcome.corrupt, "{recipe:?}: wrong data and no rule: {outcome:?}");
        }
        for rule in reduced.broken.keys() {
            *broken.entry(*rule).or_default() += 1;
        }
    });
    println!("{several} of {wanted} programs have several outcomes, {one_run} are decided by one run");
    for rule in Rule::ALL {
        println!("  {rule:8} broken in {:4}", broken.get(rule).unwrap_or(&0));
    }
    assert!(several * 5 >= wanted, "at least 20 % with several outcomes");
    let at_least = BREAK_EACH_RULE * wanted.min(PROGRAMS) / PROGRAMS;
    for rule in Rule::ALL {
        let times = broken.get(rule).copied().unwrap_or_default();
        assert!(times >= at_least, "{rule} is broken {times} times; at least {at_least} times is enough");
    }
}

/// What ranks learn of each other is joined where they are few, and only recorded where they are many: both find the same
/// in the same states.
#[test]
fn what_is_recorded_is_what_is_joined() {
    let (mut runner, strategy) = (runner(29), recipes());
    let (mut several, mut broken) = (0, 0);
    for nth in 0..programs() / 4 {
        let recipe = strategy.new_tree(&mut runner).expect("a strategy generates").current();
        let trial = if nth % 4 == 0 { recipe.trial_of_alike() } else { recipe.trial() };
        let source: Arc<dyn Source> = trial.script;
        let explored = |joins_recorded_from| {
            let config = Config { joins_recorded_from, ..trial.config.clone() };
            explore(&source, config, &bounds()).expect("a script evaluates")
        };
        let (joined, recorded) = (explored(u32::MAX), explored(0));
        if joined.bound.is_some() || recorded.bound.is_some() {
            continue;
        }
        assert_eq!(joined.outcomes, recorded.outcomes, "{recipe:?}");
        assert_eq!(joined.broken, recorded.broken, "{recipe:?}");
        assert_eq!(joined.contended, recorded.contended, "{recipe:?}");
        let counts = |of: &Exploration| (of.states, of.fingerprint, of.executions, of.steps);
        assert_eq!(counts(&joined), counts(&recorded), "{recipe:?}");
        several += usize::from(joined.states > 1);
        broken += usize::from(!joined.broken.is_empty());
    }
    println!("{several} programs have several states, {broken} break rules");
    assert!(several * 10 >= programs() / 4 && broken * 10 >= programs() / 4, "few programs would tell");
}

/// A launcher that ends the job takes away what hangs once a rank is dead, and changes nothing else.
#[test]
fn a_launcher_changes_only_runs_in_which_a_rank_dies() {
    let (mut runner, strategy) = (runner(19), recipes());
    let (mut died, mut fewer) = (0, 0);
    for _ in 0..programs() / 10 {
        let recipe = strategy.new_tree(&mut runner).expect("a strategy generates").current();
        let Trial { script, mut config } = recipe.trial();
        let source: Arc<dyn Source> = script;
        config.faults.of.insert(FaultOf::Death);
        config.faults.at_most = 1;
        let under = |launcher| {
            let config = Config { launcher, ..config.clone() };
            explore(&source, config, &bounds()).expect("a script evaluates")
        };
        let (alone, ended) = (under(Launcher::LeavesPeers), under(Launcher::EndsJob));
        if alone.bound.is_some() || ended.bound.is_some() {
            continue;
        }
        let rules = |of: &Exploration| of.broken.keys().copied().collect::<BTreeSet<Rule>>();
        assert!(rules(&ended).is_subset(&rules(&alone)), "{recipe:?}");
        let dead = |outcome: &&Outcome| outcome.ranks.iter().any(|rank| matches!(rank, RankOutcome::Dead(_)));
        let undefined = |outcome: &&Outcome| outcome.ranks.contains(&RankOutcome::Undefined);
        let hangs = |rank: &RankOutcome| matches!(rank, RankOutcome::HostHang(_) | RankOutcome::GpuHang(_));
        for outcome in ended.outcomes.keys().filter(dead) {
            assert!(!outcome.ranks.iter().any(hangs), "{recipe:?}: {outcome:?}");
        }
        // Without a dead rank both have the same runs, with the same findings. What died behind a hang of its own is
        // told as a hang where nobody ends it.
        let lives = |of: &Exploration| {
            let lives = of.outcomes.keys().filter(|outcome| !dead(outcome) && !undefined(outcome));
            lives.cloned().collect::<BTreeSet<Outcome>>()
        };
        assert!(lives(&ended).is_subset(&lives(&alone)), "{recipe:?}");
        died += usize::from(ended.outcomes.keys().any(|outcome| dead(&outcome)));
        fewer += usize::from(rules(&ended) != rules(&alone));
    }
    println!("in {died} programs a rank dies, {fewer} of them break fewer rules where that ends the job");
    assert!(fewer * 100 >= programs(), "few programs would tell: {fewer}");
}

/// Ranks that run one program: what the merged exploration finds is, under all numbers, what the oracle finds.
#[test]
fn interchangeable_ranks_agree() {
    let wanted = programs() / 4;
    let mut several = 0;
    let name = "interchangeable_ranks_agree";
    Law { name, trial: Recipe::trial_of_alike, seed: 13, wanted, too_large_percent: 20 }.check(|_, both| {
        several += usize::from(both.reduced.outcomes.len() > 1);
    });
    println!("{several} of {wanted} programs of interchangeable ranks have several outcomes");
    assert!(several * 10 >= wanted, "at least 10 % with several outcomes");
}

/// Declaring one kind of object to commute although it does not must be noticed.
#[test]
fn every_entry_of_the_commutation_table_is_needed() {
    for kind in ObjectKind::ALL {
        let (mut runner, strategy) = (runner(11), recipes());
        let mut tried = 0;
        let noticed = loop {
            tried += 1;
            if tried > 4_000 {
                break false;
            }
            let trial = strategy.new_tree(&mut runner).expect("a strategy generates").current().trial();
            let (source, mut config): (Arc<dyn Source>, _) = (trial.script, trial.config);
            // Else the oracle shows more where COMM-4 is broken, whatever is declared.
            config.concurrent_calls = ConcurrentCalls::InEveryOrder;
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

/// Taking what ranks share for a rank's own, whose turns come before all others', must be noticed.
#[test]
fn what_ranks_share_is_nobodys_own() {
    for kind in [ObjectKind::StoreKey, ObjectKind::Flag] {
        let (mut runner, strategy) = (runner(23), recipes());
        let noticed = (1..=4_000).find(|_| {
            let trial = strategy.new_tree(&mut runner).expect("a strategy generates").current().trial();
            let (source, mut config): (Arc<dyn Source>, _) = (trial.script, trial.config);
            config.concurrent_calls = ConcurrentCalls::InEveryOrder;
            let right = explore(&source, config.clone(), &bounds()).expect("a script evaluates");
            if !right.config.contended.iter().any(|object| object.kind == kind) {
                return false;
            }
            config.declared_own.insert(kind);
            let wrong = explore(&source, config, &bounds()).expect("a script evaluates");
            outcomes(&right) != outcomes(&wrong)
        });
        println!("{kind:?}: declared a rank's own, noticed after {noticed:?} programs");
        assert!(noticed.is_some(), "{kind:?} could be declared a rank's own and no program would tell");
    }
}

/// What a law prints is small: here, what breaks a rule is made smaller as long as it breaks that rule.
#[test]
fn a_counterexample_is_made_small() {
    let path = enter().join("tests/kept/overlap-of-a-send-that-is-over.txt");
    let text = std::fs::read_to_string(path).expect("it is kept");
    let trial = Kept::read(&text).expect("it can be read").trial;
    let breaks = |trial: &Trial| match compare(trial) {
        Compared::Agree(both) => both.naive.broken.contains_key(&Rule::Overlap1),
        Compared::TooLarge | Compared::Differ(_) => false,
    };
    let small = Kept { why: String::new(), trial: shrunk(trial, breaks) }.text("");
    let transfer = |way, comm, peer, buffer, count| {
        format!(
            "Transfer(Transfer {{ way: {way}, comm: ${comm}, peer: {peer}, buffer: ${buffer}, count: {count}, \
             dtype: F32, stream: \"default\" }})"
        )
    };
    let set_up = r#"  $tp = CommInit { name: "tp", members: [Rank(0), Rank(1)] }
  $ep = CommInit { name: "ep", members: [Rank(0), Rank(1)] }
  $a = MemAlloc { name: "a", len_bytes: 4194304, memory: Nccl }
  $b = MemAlloc { name: "b", len_bytes: 4194304, memory: Nccl }"#;
    let expected = [
        "ranks: 2\n\n\nrank 0, thread 0".to_owned(),
        set_up.to_owned(),
        format!("  $transfer = {}", transfer("Recv", "tp", 1, "a", 1024)),
        format!("  $transfer_2 = {}", transfer("Send", "ep", 1, "b", 1024)),
        "  Overlap { one: $transfer, other: $transfer_2 }".to_owned(),
        "\nrank 1, thread 0".to_owned(),
        set_up.to_owned(),
        format!("  {}", transfer("Send", "tp", 0, "a", 16)),
        format!("  {}\n", transfer("Recv", "ep", 0, "b", 1024)),
    ];
    assert_eq!(small, expected.join("\n"));
}
