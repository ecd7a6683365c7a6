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
use rankcheck_model::{
    Answer, Block, Config, Question, Rank, RenamedDigest, Source, Terminator, ThreadStart,
};
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

/// How many histories stand as another one does.
#[derive(Debug, Clone, Copy, Default)]
struct Alike {
    /// With the numbers of results.
    numbered: usize,
    /// But for these.
    renamed: usize,
}

/// A block in which results are called by what the program holds.
fn renamed(block: &Block, by: &RenamedDigest) -> String {
    let text = format!("{block:?}");
    let own = "Slot { start: ThreadStart(0), index: ";
    let (first, others) = text.split_once(own).unwrap_or((&text, ""));
    let mut renamed = first.to_owned();
    for part in others.split(own).filter(|part| !part.is_empty()) {
        let (slot, rest) = part.split_once(' ').expect("a slot ends with a brace");
        let called = by.called(slot.parse().expect("slots have numbers"));
        let (is_new, nth) = called.unwrap_or_else(|| panic!("{slot} is used, which nobody holds: {text}"));
        renamed.push_str(if is_new { "(new " } else { "(held " });
        renamed.push_str(&format!("{nth}) {rest}"));
    }
    // A thread has its number from what it is started with.
    let mut threads = renamed.split("Spawn { start: ThreadStart(");
    let first = threads.next().unwrap_or_default().to_owned();
    threads
        .fold(first, |text, part| text + "Spawn { " + part.trim_start_matches(|of: char| of.is_ascii_digit()))
}

/// Goes through histories, the shortest first, and compares each with those that stand as it does.
fn compared(source: &dyn Source, of: &str) -> Alike {
    let block = |history: &[Answer]| source.block(Rank(0), ThreadStart::default(), history);
    let mut numbered: BTreeMap<u128, Vec<Answer>> = BTreeMap::new();
    let mut called: BTreeMap<u128, (Vec<Answer>, RenamedDigest)> = BTreeMap::new();
    let mut compared = Alike::default();
    let mut left = VecDeque::from([Vec::new()]);
    for _ in 0..HISTORIES {
        let Some(history) = left.pop_front() else { break };
        let Ok(here) = block(&history) else { continue };
        let Terminator::Ask(question, _) = &here.terminator else { continue };
        let after = |history: &[Answer], answer| [history, &[answer]].concat();
        left.extend(answers(question).map(|answer| after(&history, answer)));
        let Some(standing) = source.standing(Rank(0), ThreadStart::default(), &history) else { continue };
        if let Some(other) = numbered.get(&standing.numbered) {
            compared.numbered += 1;
            for answer in answers(question) {
                // An error is none of both.
                let [one, other] = [&history, other].map(|history| block(&after(history, answer)).ok());
                assert_eq!(one, other, "{of}: {history:?} and {other:?}, answered {answer}");
            }
        } else {
            numbered.insert(standing.numbered, history.clone());
        }
        let Some(by) = standing.renamed else { continue };
        if let Some((other, as_other)) = called.get(&by.digest) {
            compared.renamed += usize::from(by != *as_other);
            assert_eq!(by.held.len(), as_other.held.len(), "{of}: {history:?} and {other:?}");
            for answer in answers(question) {
                let [one, other] = [(&history, &by), (other, as_other)].map(|(history, by)| {
                    block(&after(history, answer)).ok().map(|block| renamed(&block, by))
                });
                assert_eq!(one, other, "{of}: {history:?}, answered {answer}");
            }
        } else {
            called.insert(by.digest, (history, by));
        }
    }
    compared
}

fn each(files: &[std::path::PathBuf]) -> BTreeMap<String, Alike> {
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
    let names: Vec<String> = alike.iter().map(|(name, alike)| format!("{name}: {alike:?}")).collect();
    for forgets in ["program 0", "program 5", "program 8", "program 9", "program 19", "quiet hooks"] {
        assert!(alike[forgets].numbered > 0, "{forgets} holds nothing: {names:?}");
    }
}

/// All specs.
#[test]
fn specs_that_stand_alike_go_on_alike() {
    let (files, _) = spec_files(&[enter().join("specs"), enter().join(Path::new("tests/growth"))]);
    let all = each(&files);
    let sum = |of: fn(&Alike) -> usize| all.values().map(of).sum::<usize>();
    let (numbered, renamed) = (sum(|alike| alike.numbered), sum(|alike| alike.renamed));
    assert!(numbered > 100, "only {numbered} histories stand as others do");
    assert!(renamed > 20, "only {renamed} histories stand as others do but for the numbers of results");
}

/// What may follow a question is foreseen on each of the ways that lead to it, and results may have other numbers on each.
#[test]
fn what_follows_is_known_on_each_way() {
    for file in ["follows.star", "results.star"] {
        let spec = load_any(&enter().join("tests/growth").join(file)).expect("the spec is good");
        for check in &spec.checks {
            let source = check.source(check.ranks[0], &check.combinations()[0], &check.assume);
            let source: Arc<dyn Source> = Arc::new(source.expect("it is a program"));
            let found = |merge_from| {
                let bounds = Bounds { merge_from, ..Bounds::default() };
                let found = explore(&source, Config::new(check.ranks[0]), &bounds).expect("it evaluates");
                (found.outcomes.into_keys().collect::<BTreeSet<_>>(), found.reached)
            };
            assert_eq!(found(0), found(u64::MAX), "{file} {}", check.name);
        }
    }
}
