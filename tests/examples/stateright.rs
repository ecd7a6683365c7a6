//! Searches the last check of a spec with stateright's own breadth-first checker, over the engine's model:
//! `cargo run --release -p rankcheck-tests --example stateright -- SPEC`. It prints how many states and executions there are.
//!
//! `ci/benchmarks` compares it with other tools. Not here: the same in tests (`tests/tests/searches.rs`).
#![expect(clippy::print_stdout, reason = "the figures are for whoever calls it")]

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use rankcheck::search::Bounds;
use rankcheck::search::explore::breadth_first;
use rankcheck::search::verdict;
use rankcheck::spec::{Param, load};
use rankcheck_model::{Platform, Source};

/// The allocator that the command uses.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let path = PathBuf::from(std::env::args().nth(1).expect("the path of a spec is given"));
    let spec = load(&path).expect("the spec is good");
    let check = spec.checks.last().expect("it has a check");
    let ranks = *check.ranks.last().expect("a check has ranks");
    let last =
        |(name, values): &(String, Vec<Param>)| (name.clone(), values.last().expect("one value").clone());
    let params: Vec<(String, Param)> = check.params.iter().map(last).collect();
    let source = check.source(ranks, &params, &check.assume).expect("it is a program");
    let source: Arc<dyn Source> = Arc::new(source);
    let config = verdict::config(check, ranks, Platform::V2_28_9, &check.assume);
    let found = breadth_first(&source, config, &Bounds::default()).expect("it evaluates");
    println!("{} {}", found.states, found.executions);
    match found.bound {
        None => ExitCode::SUCCESS,
        Some(bound) => {
            println!("{bound}");
            ExitCode::FAILURE
        }
    }
}
