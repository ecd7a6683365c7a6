//! What the programs of `programs.star` record, block by block.
//!
//! Not here: what their operations mean.

use rankcheck::spec::{Check, SpecSource, load};
use rankcheck_model::describe::{NamesOf, description};
use rankcheck_model::{
    Answer, MapOp, MapOrder, Op, Operand, Question, Rank, Slot, Source, Symmetry, Terminator, ThreadOp,
    ThreadStart,
};
use rankcheck_tests::repository::enter;

fn check(name: &str) -> Check {
    let spec = load(&enter().join("tests/programs.star")).expect("the spec is well formed");
    spec.checks.into_iter().find(|check| check.name == name).expect("the check is there")
}

fn source(name: &str) -> SpecSource {
    check(name).source(2, &[], &[]).expect("it has no parameters")
}

/// What the program itself does, in words.
fn words(source: &dyn Source, answers: &[Answer]) -> Vec<String> {
    words_of(source, ThreadStart(0), answers)
}

/// The operations of a thread in words.
fn words_of(source: &dyn Source, start: ThreadStart, answers: &[Answer]) -> Vec<String> {
    let block = source.block(Rank(0), start, answers).expect("the program is well formed");
    let word = |verb: &Op| {
        if let Op::Thread(ThreadOp::Step { label }) | Op::Thread(ThreadOp::Exit { code: label }) = verb {
            return source.token(*label).to_string();
        }
        let words = description(verb, &NamesOf::new(source));
        words.split([' ', '(', '{']).next().expect("an operation has a name").to_owned()
    };
    block.ops.iter().map(|op| word(&op.op)).collect()
}

/// What a thread starts, in order.
fn started(source: &dyn Source, start: ThreadStart) -> Vec<ThreadStart> {
    let block = source.block(Rank(0), start, &[]).expect("the program is well formed");
    let started = |op: &Op| if let Op::Thread(ThreadOp::Spawn { start }) = op { Some(*start) } else { None };
    block.ops.iter().filter_map(|op| started(&op.op)).collect()
}

#[test]
fn each_spawn_makes_an_entry_and_slots_keep_their_thread() {
    let source = source("threads");
    assert_eq!(words(&source, &[]), ["CommInit", "Register", "Spawn", "Join", "Spawn", "Join"]);
    let workers = started(&source, ThreadStart(0));
    assert_eq!(words_of(&source, workers[0], &[]), ["work", "MapPut", "Spawn"]);
    assert_eq!(words_of(&source, workers[1], &[]), ["work", "work", "MapPut", "Spawn"]);
    let inner = started(&source, workers[0])[0];
    assert_ne!(inner, started(&source, workers[1])[0], "another thread starts it");
    let inner = source.block(Rank(0), inner, &[]).expect("the inner thread of the first");
    let window = Operand::Slot(Slot { start: ThreadStart(0), index: 1 });
    let put = Op::Map(MapOp::Put {
        map: inner_map(&inner.ops[0].op),
        key: inner_key(&inner.ops[0].op),
        value: window,
    });
    assert_eq!(*inner.ops[0].op, put);
    assert_eq!(source.symmetry(), Symmetry::Interchangeable);
    assert_eq!(source.loc(inner.ops[0].loc).line, 8);
}

fn inner_map(verb: &Op) -> rankcheck_model::Token {
    let Op::Map(MapOp::Put { map, .. }) = verb else { panic!("{verb:?}") };
    *map
}

fn inner_key(verb: &Op) -> Operand {
    let Op::Map(MapOp::Put { key, .. }) = verb else { panic!("{verb:?}") };
    key.clone()
}

#[test]
fn leave_runs_while_a_raise_unwinds_but_not_at_a_question() {
    let source = source("unwinding");
    assert_eq!(words(&source, &[]), ["enter"]);
    assert_eq!(words(&source, &[0]), ["body", "leave", "Lock", "Unlock", "caught"]);
    assert_eq!(words(&source, &[1]), ["leave", "broken"]);
}

#[test]
fn hooks_run_under_the_lock_of_their_pool() {
    let source = source("hooks");
    assert_eq!(words(&source, &[]), ["Pool", "PoolLock", "Alloc"]);
    assert_eq!(words(&source, &[0]), ["PoolUnlock"]);
    assert_eq!(words(&source, &[1]), ["MapPut", "PoolUnlock"]);
    assert_eq!(words(&source, &[1, 1]), ["PoolLock", "Trim"]);
    assert_eq!(words(&source, &[1, 1, 2]), ["MapPop", "Release", "MapPop", "Release", "PoolUnlock"]);
    assert_eq!(words(&source, &[1, 0]), [""; 0]);
}

#[test]
fn what_is_assumed_is_not_asked() {
    let check = check("hooks");
    let source = check.source(2, &[], &check.assume).expect("it has no parameters");
    assert!(source.mentioned().is_empty());
    let block = source.block(Rank(0), ThreadStart(0), &[0]).expect("the program is well formed");
    assert_eq!(block.terminator, Terminator::Return);
    assert!(source.mentioned().contains("nothing is trimmed"));
}

#[test]
fn reading_the_rank_makes_ranks_distinct() {
    let source = source("who");
    assert_eq!(source.symmetry(), Symmetry::Interchangeable);
    assert_eq!(words(&source, &[]), ["rank 0"]);
    assert_eq!(source.symmetry(), Symmetry::Distinct);
    let other = source.block(Rank(1), ThreadStart(0), &[]).expect("the program is well formed");
    let Op::Thread(ThreadOp::Step { label }) = &*other.ops[0].op else { panic!("a step") };
    assert_eq!(&*source.token(*label), "rank 1");
}

#[test]
fn answers_that_do_not_fit_are_an_error() {
    let error = source("who").block(Rank(0), ThreadStart(0), &[0]).expect_err("it asks nothing");
    assert!(error.message.starts_with("impure"), "{error}");
}

#[test]
fn a_million_operations_are_recorded_once() {
    let source = source("many");
    let first = source.block(Rank(0), ThreadStart(0), &[]).expect("the program is well formed");
    assert_eq!(first.ops.len(), 1_000_000);
    let second = source.block(Rank(1), ThreadStart(0), &[]).expect("the program is well formed");
    assert!(std::sync::Arc::ptr_eq(&first, &second), "ranks share what does not look at the rank");
}

#[test]
fn the_order_of_a_map_goes_into_its_question() {
    let spec = load(&enter().join("tests/well_formed/everything.star")).expect("the spec is well formed");
    let check = &spec.checks[0];
    let source = check.source(2, &check.combinations()[1], &[]).expect("these are its parameters");
    let mut answers = Vec::new();
    loop {
        let block = source.block(Rank(0), ThreadStart(0), &answers).expect("the program is well formed");
        let Terminator::Ask(question, _) = &block.terminator else { panic!("it walks a map") };
        if let Question::MapItems { order, .. } = question {
            assert_eq!(*order, MapOrder::Hash);
            return;
        }
        answers.push(0);
    }
}
