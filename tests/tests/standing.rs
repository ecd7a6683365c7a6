//! What a search takes for the same place of a program must be: after histories that stand alike, equal answers lead to
//! equal blocks.
//!
//! Not here: what follows for states (`growth.rs`, and the laws).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::Path;
use std::sync::Arc;

use rankcheck::search::Bounds;
use rankcheck::search::explore::explore;
use rankcheck::spec::{load_any, spec_files};
use rankcheck_model::{Answer, Config, Question, Rank, Source, Terminator, ThreadStart};
use rankcheck_tests::repository::enter;

/// How many histories of a program are compared.
const HISTORIES: usize = 400;

/// What may be answered.
fn answers(question: &Question) -> std::ops::Range<Answer> {
    match question {
        Question::Choose { options, .. } => 0..Answer::try_from(options.len()).expect("few options"),
        Question::Grew(_)
        | Question::Failed(_)
        | Question::Equal(..)
        | Question::Truth(_)
        | Question::Number(_)
        | Question::MapHas { .. }
        | Question::MapItems { .. }
        | Question::ListLen { .. }
        | Question::Trimmed(_)
        | Question::HasWindow { .. }
        | Question::EventQuery { .. } => 0..2,
    }
}

/// Goes through histories, the shortest first; returns how many stand as another one does, each compared with it.
fn compared(source: &dyn Source, of: &str) -> usize {
    let block = |history: &[Answer]| source.block(Rank(0), ThreadStart::default(), history);
    let mut known: BTreeMap<u128, Vec<Answer>> = BTreeMap::new();
    let mut compared = 0;
    let mut left = VecDeque::from([Vec::new()]);
    for _ in 0..HISTORIES {
        let Some(history) = left.pop_front() else { break };
        let Ok(here) = block(&history) else { continue };
        let Terminator::Ask(question, _) = &here.terminator else { continue };
        let standing = source.standing(Rank(0), ThreadStart::default(), &history);
        let alike = standing.and_then(|standing| known.get(&standing).cloned());
        compared += usize::from(alike.is_some());
        for answer in answers(question) {
            let after = |history: &[Answer]| [history, &[answer]].concat();
            if let Some(other) = &alike {
                // An error is none of both.
                let [one, other] = [&history, other].map(|history| block(&after(history)).ok());
                assert_eq!(one, other, "{of}: {history:?} and {alike:?}, answered {answer}");
            }
            left.push_back(after(&history));
        }
        if let (Some(standing), None) = (standing, alike) {
            known.insert(standing, history);
        }
    }
    compared
}

fn each(files: &[std::path::PathBuf]) -> BTreeMap<String, usize> {
    let mut all = BTreeMap::new();
    for file in files {
        let spec = load_any(file).expect("the spec is good");
        for check in &spec.checks {
            let of = format!("{} \"{}\"", file.display(), check.name);
            let source = check.source(check.ranks[0], &check.combinations()[0], &check.assume);
            let source = source.expect("it is a program");
            all.insert(check.name.clone(), compared(&source, &of));
        }
    }
    all
}

/// Programs that remember much, and in many ways.
#[test]
fn what_a_program_holds_tells_histories_apart() {
    let folder = enter().join("tests/growth");
    let alike = each(&["standing.star", "hooks.star", "any_method.star"].map(|file| folder.join(file)));
    let names: Vec<String> = alike.iter().map(|(name, count)| format!("{name}: {count}")).collect();
    for forgets in ["program 0", "program 5", "program 8", "program 9", "program 19", "quiet hooks"] {
        assert!(alike[forgets] > 0, "{forgets} holds nothing: {names:?}");
    }
}

/// All specs.
#[test]
fn specs_that_stand_alike_go_on_alike() {
    let (files, _) = spec_files(&[enter().join("specs"), enter().join(Path::new("tests/growth"))]);
    let alike: usize = each(&files).values().sum();
    assert!(alike > 100, "only {alike} histories stand as others do");
}

/// What may follow a question is foreseen on each of the ways that lead to it.
#[test]
fn what_follows_is_known_on_each_way() {
    let spec = load_any(&enter().join("tests/growth/follows.star")).expect("the spec is good");
    for check in &spec.checks {
        let source = check.source(check.ranks[0], &check.combinations()[0], &check.assume);
        let source: Arc<dyn Source> = Arc::new(source.expect("it is a program"));
        let found = |merge_from| {
            let bounds = Bounds { merge_from, ..Bounds::default() };
            let found = explore(&source, Config::new(check.ranks[0]), &bounds).expect("it evaluates");
            (found.outcomes.into_keys().collect::<BTreeSet<_>>(), found.reached)
        };
        assert_eq!(found(0), found(u64::MAX), "{}", check.name);
    }
}
