//! How the work of a search grows with ranks, batches, threads, streams and meshes: pinned counts, which no other work on the
//! machine changes.
//!
//! Not here: how long it takes (`ci/benchmarks`, `benches/engine.rs`).

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::Arc;

use rankcheck::search::explore::explore;
use rankcheck::search::{Bounds, Detail, Options, RunDecisions, Verdict, search, verdict};
use rankcheck::spec::{CheckKind, Expect, load};
use rankcheck_model::{Config, Forgotten, Machine, Platform, Source};
use rankcheck_tests::jobs::mesh;
use rankcheck_tests::repository::{differs_from_golden, enter};

#[test]
fn searches_grow_as_they_are_known_to() {
    let folder = enter().join("tests/growth");
    let mut text = String::from("states  executions  bytes kept\n");
    for family in [
        "addresses",
        "batches",
        "communicators",
        "counted",
        "decisions",
        "deferred",
        "exchange",
        "faults",
        "leftovers",
        "loops",
        "meshes",
        "mutexes",
        "pairs",
        "polls",
        "pools",
        "skips",
        "variables",
    ] {
        let spec = load(&folder.join(family).with_extension("star")).expect("the family is good");
        for check in &spec.checks {
            let explained = search(&spec, check, &Options::telling(Detail::Verdict)).expect("it evaluates");
            for run in &explained.runs {
                let of = format!("{family} \"{}\", {}", check.name, run.setting());
                let holds = matches!(check.kind, CheckKind::Program(Expect::Holds { .. }));
                assert_eq!(run.verdict == Verdict::Holds, holds, "{of}: {:?}", run.verdict);
                let source = check.source(run.ranks, &run.params, &check.assume).expect("it was searched");
                let config = verdict::config(check, run.ranks, run.platform, &check.assume);
                let again = explore(&(Arc::new(source) as Arc<dyn Source>), config, &Bounds::default());
                let again = again.expect("it was searched");
                assert_eq!((again.states, again.executions), (run.states, run.executions), "{of}");
                writeln!(text, "{:>6}  {:>10}  {:>10}  {of}", run.states, run.executions, again.kept_bytes)
                    .expect("a text takes all");
            }
        }
    }
    let differs = differs_from_golden(&folder.join("counts.txt"), &text);
    assert!(differs.is_none(), "{}", differs.unwrap_or_default());
}

/// Why a search is large is said: what one run decides, how often, on how many ranks, and since where these are told apart.
#[test]
fn what_makes_a_search_large_is_told() {
    let spec = load(&enter().join("tests/growth/large.star")).expect("the programs are good");
    let told = spec.checks.iter().map(|check| {
        let explained = search(&spec, check, &Options::default()).expect("it evaluates");
        let words = explained.runs[0].decisions.as_ref().map(RunDecisions::words);
        format!("{}: {}\n", check.name, words.unwrap_or_else(|| "nothing".to_owned()))
    });
    let text: String = told.collect();
    let differs = differs_from_golden(&enter().join("tests/growth/large.txt"), &text);
    assert!(differs.is_none(), "{}", differs.unwrap_or_default());
}

/// How far a rank knows each other rank is worked out for what is told, and not on the way: in a large job that would be
/// most of the work.
#[test]
fn what_ranks_know_of_all_others_is_not_worked_out_on_the_way() {
    let spec = load(&enter().join("tests/growth/knowledge.star")).expect("the program is good");
    for check in &spec.checks {
        let source =
            check.source(check.ranks[0], &check.combinations()[0], &check.assume).expect("it is a program");
        let config = verdict::config(check, check.ranks[0], Platform::default(), &check.assume);
        let machine = Machine::new(Arc::new(source), Config { actors_per_rank: 4, ..config });
        let mut state = machine.init();
        machine.advance(&mut state);
        assert!(machine.interruption().is_none() && machine.choices(&state).is_empty(), "{}", check.name);
        machine.finish(&mut state);
        assert!(state.findings().is_empty(), "{}", check.name);
        assert_eq!(state.worked_out(), 0, "{}", check.name);
    }
}

/// What a collective costs does not depend on how many ranks the job has beside its members.
#[test]
fn a_collective_costs_the_same_in_a_larger_job() {
    const CALLS: u32 = 96;
    let bytes_a_call = |ranks: u32| {
        let machine = Machine::new(mesh(ranks, CALLS), Config::new(ranks));
        let mut state = machine.init();
        let allocated = allocation_counter::measure(|| machine.advance(&mut state));
        assert!(machine.interruption().is_none() && machine.choices(&state).is_empty());
        allocated.bytes_total / u64::from(ranks * CALLS)
    };
    let [small, large] = [256, 2048].map(bytes_a_call);
    println!("{small} bytes a call among 256 ranks, {large} among 2,048");
    assert!(large * 4 <= small * 5, "{small} bytes a call among 256 ranks, {large} among 2,048");
}

/// Forgetting of a history what still matters must be noticed.
#[test]
fn what_matters_of_a_history_is_remembered() {
    let spec = load(&enter().join("tests/growth/forgotten.star")).expect("the programs are good");
    for what in Forgotten::ALL {
        let name = format!("{what:?}").to_lowercase();
        let check = spec.checks.iter().find(|check| check.name == name).expect("each has a program");
        let source = check.source(2, &[], &check.assume).expect("it is a program");
        let source: Arc<dyn Source> = Arc::new(source);
        let outcomes = |merge_from, forgotten: BTreeSet<Forgotten>| {
            let config = Config { declared_forgotten: forgotten, ..Config::new(2) };
            let bounds = Bounds { merge_from, ..Bounds::default() };
            let exploration = explore(&source, config, &bounds).expect("it evaluates");
            exploration.outcomes.into_keys().collect::<BTreeSet<_>>()
        };
        let right = outcomes(u64::MAX, BTreeSet::new());
        assert_eq!(outcomes(0, BTreeSet::new()).len(), right.len(), "{name}");
        assert!(right.len() > 1, "{name} makes no difference");
        assert_ne!(
            outcomes(0, BTreeSet::from([what])).len(),
            right.len(),
            "{name} can be forgotten unnoticed"
        );
    }
}
