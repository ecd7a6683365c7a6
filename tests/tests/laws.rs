//! Laws over random programs: the reduction never changes a finding or an outcome.
//! Not here: how two semantics are compared, and what the programs are made of.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZero;
use std::path::Path;
use std::sync::Arc;

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config as ProptestConfig, RngAlgorithm, TestRng, TestRunner};
use rankcheck::search::explore::{Exploration, explore, explore_by};
use rankcheck_model::machine::{FaultOf, Launcher};
use rankcheck_model::{Config, Op, Outcome, RankOutcome, Rule, Source};
use rankcheck_tests::agreement::{Both, Compared, Difference, bounds, compare, verdict};
use rankcheck_tests::random::{Family, Recipe};
use rankcheck_tests::repository::{differs_from_golden, enter, files_under};
use rankcheck_tests::script::{Item, Kept, Script, Trial, shrunk};

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
pub(crate) struct Law {
    pub(crate) name: &'static str,
    family: Family,
    /// The program of a recipe.
    pub(crate) trial: fn(&Recipe) -> Trial,
    seed: u8,
    /// It compares so many where [`programs`] says a hundred, beside those that are too large.
    percent: usize,
    /// At most so many in a hundred of them are left out beside, because the oracle hits a bound.
    too_large_percent: usize,
}

/// All nouns, on ranks of which each has a program of its own.
pub(crate) const GENERAL: Law = Law {
    name: "reduced_and_naive_agree",
    family: Family::General,
    trial: Recipe::trial,
    seed: 7,
    percent: 100,
    too_large_percent: 20,
};

/// All nouns, on ranks that run one program.
pub(crate) const ALIKE: Law = Law {
    name: "interchangeable_ranks_agree",
    trial: Recipe::trial_of_alike,
    seed: 13,
    percent: 25,
    // Every rank does all of it.
    too_large_percent: 40,
    ..GENERAL
};

/// All nouns, where sends and roots may be through before others come.
const LET_GO: Law = Law {
    name: "programs_that_are_let_go_agree",
    trial: Recipe::trial_that_lets_go,
    seed: 14,
    percent: 25,
    ..GENERAL
};

pub(crate) const MUTEXES: Law =
    Law { name: "mutexes_agree", family: Family::Mutexes, seed: 31, percent: 20, ..GENERAL };

pub(crate) const MUTEXES_ALIKE: Law = Law {
    name: "mutexes_of_interchangeable_ranks_agree",
    family: Family::Mutexes,
    seed: 32,
    percent: 5,
    ..ALIKE
};

pub(crate) const ANSWERS: Law =
    Law { name: "answers_agree", family: Family::Answers, seed: 33, percent: 20, ..GENERAL };

pub(crate) const ANSWERS_ALIKE: Law = Law {
    name: "answers_of_interchangeable_ranks_agree",
    family: Family::Answers,
    seed: 34,
    percent: 10,
    ..ALIKE
};

pub(crate) const AGREEMENTS: Law =
    Law { name: "agreements_agree", family: Family::Agreements, seed: 35, percent: 20, ..GENERAL };

pub(crate) const AGREEMENTS_ALIKE: Law = Law {
    name: "agreements_of_interchangeable_ranks_agree",
    family: Family::Agreements,
    seed: 36,
    percent: 10,
    ..ALIKE
};

pub(crate) const SEGMENTS: Law =
    Law { name: "orders_of_segments_agree", family: Family::Segments, seed: 37, percent: 20, ..GENERAL };

pub(crate) const SEGMENTS_ALIKE: Law = Law {
    name: "orders_of_segments_of_interchangeable_ranks_agree",
    family: Family::Segments,
    seed: 38,
    percent: 10,
    ..ALIKE
};

pub(crate) const HOLDERS: Law =
    Law { name: "memory_that_is_held_agrees", family: Family::Holders, seed: 39, percent: 20, ..GENERAL };

pub(crate) const HOLDERS_ALIKE: Law = Law {
    name: "memory_held_by_interchangeable_ranks_agrees",
    family: Family::Holders,
    seed: 40,
    percent: 10,
    too_large_percent: 70,
    ..ALIKE
};

impl Law {
    /// How many programs it compares, where all laws compare so many.
    fn of(&self, programs: usize) -> usize {
        programs * self.percent / 100
    }

    /// The programs that it compares in every `cargo test`.
    pub(crate) fn recipes_by_default(&self) -> impl Iterator<Item = Recipe> + use<> {
        let (mut runner, strategy) = (runner(self.seed), self.family.recipes());
        let recipes = std::iter::repeat_with(move || {
            strategy.new_tree(&mut runner).expect("a strategy generates").current()
        });
        recipes.take(self.of(PROGRAMS))
    }

    /// How many programs may be left out beside those that are compared; some more where there are few.
    fn at_most(&self, compared: usize) -> usize {
        20 + compared * self.too_large_percent / 100
    }

    /// Compares programs until enough are, and shows `agree` each of them.
    fn check(&self, mut agree: impl FnMut(&Recipe, &Both)) {
        let (mut runner, strategy) = (runner(self.seed), self.family.recipes());
        let (mut compared, mut too_large, mut differences) = (0, 0, 0);
        let mut shown = BTreeSet::new();
        let wanted = self.of(programs());
        while compared < wanted && differences < SHOWN && too_large <= self.at_most(compared) {
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
        assert!(compared == wanted, "too many programs are too large for the oracle; make them smaller");
    }

    /// Compares as many programs as are wanted. So many in a hundred must have several outcomes, and so many fewer states
    /// where histories merge.
    fn holds(&self, several_percent: usize, merging_percent: usize) {
        let wanted = self.of(programs());
        let (mut several, mut merging) = (0, 0);
        self.check(|_, both| {
            several += usize::from(both.reduced.outcomes.len() > 1);
            merging += usize::from(both.merged.states < both.exact.states);
        });
        println!(
            "{}: of {wanted} programs {several} have several outcomes, histories merge in {merging}",
            self.name
        );
        assert!(
            several * 100 >= wanted * several_percent,
            "at least {several_percent} % with several outcomes"
        );
        assert!(merging * 100 >= wanted * merging_percent, "at least {merging_percent} % with fewer states");
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

/// In how many programs there is what reductions are about.
#[derive(Debug, Default)]
struct Drawn {
    /// Some rank has two threads.
    threads: usize,
    /// Some rank launches on several streams.
    streams: usize,
    /// Some rank has mutexes, lists, maps, events or pools.
    own_objects: usize,
}

impl Drawn {
    fn count(&mut self, script: &Script) {
        let ops =
            |rank: &Vec<Vec<Item>>| rank.iter().flatten().flat_map(Item::ops).cloned().collect::<Vec<Op>>();
        let streams =
            |rank: &Vec<Vec<Item>>| ops(rank).iter().filter_map(Op::stream).collect::<BTreeSet<_>>().len();
        let own =
            |op: &Op| matches!(op, Op::Mutex(_) | Op::List(_) | Op::Map(_) | Op::Event(_) | Op::Pool(_));
        self.threads += usize::from(script.ranks.iter().any(|threads| threads.len() > 1));
        self.streams += usize::from(script.ranks.iter().any(|rank| streams(rank) > 1));
        self.own_objects += usize::from(script.ranks.iter().any(|rank| ops(rank).iter().any(own)));
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
    let mut runner = runner(17);
    let strategies = Family::ALL.map(Family::recipes);
    for strategy in strategies.iter().cycle().take(2_000) {
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
    let mut drawn = Drawn::default();
    GENERAL.check(|recipe, both| {
        drawn.count(&recipe.trial().script);
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
    println!("{drawn:?}");
    let Drawn { threads, streams, own_objects } = drawn;
    let drawn_often = threads * 2 >= wanted && streams * 5 >= wanted && own_objects * 10 >= wanted * 3;
    assert!(drawn_often, "threads, streams or objects of a rank are seldom drawn");
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

/// What is found where joins are recorded from so many ranks on.
pub(crate) fn with_joins(trial: &Trial, joins_recorded_from: u32) -> Exploration {
    let source: Arc<dyn Source> = trial.script.clone();
    let config = Config { joins_recorded_from, ..trial.config.clone() };
    // More threads than there are cores come by states in another order each time.
    explore_by(THREADS, &source, config, &bounds()).expect("a script evaluates")
}

/// How many threads explore a program whose states have to be the same in whatever order they are found.
const THREADS: NonZero<usize> = NonZero::new(16).expect("it is not zero");

/// Whether two explorations went through the same states, and found the same.
pub(crate) fn is_the_same(one: &Exploration, other: &Exploration) -> bool {
    let counts = |of: &Exploration| (of.states, of.fingerprint, of.executions, of.steps);
    let found =
        (&one.outcomes, &one.broken, &one.contended) == (&other.outcomes, &other.broken, &other.contended);
    found && counts(one) == counts(other)
}

/// What ranks learn of each other is joined where they are few, and only recorded where they are many: both find the same
/// in the same states.
#[test]
fn what_is_recorded_is_what_is_joined() {
    let (mut runner, strategy) = (runner(29), Family::General.recipes());
    let (mut several, mut broken) = (0, 0);
    for nth in 0..programs() / 4 {
        let recipe = strategy.new_tree(&mut runner).expect("a strategy generates").current();
        let trial = if nth % 4 == 0 { recipe.trial_of_alike() } else { recipe.trial() };
        let (joined, recorded) = (with_joins(&trial, u32::MAX), with_joins(&trial, 0));
        if joined.bound.is_some() || recorded.bound.is_some() {
            continue;
        }
        assert!(is_the_same(&joined, &recorded), "{recipe:?}: {joined:#?}\n{recorded:#?}");
        several += usize::from(joined.states > 1);
        broken += usize::from(!joined.broken.is_empty());
    }
    println!("{several} programs have several states, {broken} break rules");
    assert!(several * 10 >= programs() / 4 && broken * 10 >= programs() / 4, "few programs would tell");
}

/// A launcher that ends the job takes away what hangs once a rank is dead, and changes nothing else.
#[test]
fn a_launcher_changes_only_runs_in_which_a_rank_dies() {
    let (mut runner, strategy) = (runner(19), Family::General.recipes());
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
    ALIKE.holds(10, 5);
}

/// NCCL lets go whom it need not hold back.
#[test]
fn programs_that_are_let_go_agree() {
    LET_GO.holds(15, 5);
}

/// Threads that lock, and what they change meanwhile.
#[test]
fn mutexes_agree() {
    MUTEXES.holds(20, 10);
    MUTEXES_ALIKE.holds(10, 10);
}

/// Answers that matter at once, later, or never.
#[test]
fn answers_agree() {
    ANSWERS.holds(20, 10);
    ANSWERS_ALIKE.holds(10, 10);
}

/// Ranks that vote for what they decided alone.
#[test]
fn agreements_agree() {
    AGREEMENTS.holds(20, 10);
    AGREEMENTS_ALIKE.holds(10, 10);
}

/// Free segments in an order of addresses that nobody knows, and that shows or does not.
#[test]
fn orders_of_segments_agree() {
    SEGMENTS.holds(20, 10);
    SEGMENTS_ALIKE.holds(10, 10);
}

/// Memory that somebody comes by later, or nobody.
#[test]
fn memory_that_is_held_agrees() {
    HOLDERS.holds(20, 10);
    HOLDERS_ALIKE.holds(10, 10);
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
