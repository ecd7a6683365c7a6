//! Every bad spec gets the diagnostic that stands beside it. `UPDATE_GOLDEN=1` writes them anew.
//!
//! Not here: specs that are well formed and wrong, which are findings.

use std::path::{Path, PathBuf};

use rankcheck::spec::{Check, SpecError, load};
use rankcheck_model::{Rank, Source, SourceError, Terminator, ThreadStart};
use rankcheck_tests::repository::{differs_from_golden, enter};

/// Evaluates one rank with answers that are all 0.
fn evaluate(source: &dyn Source, rank: u32) -> Result<(), SourceError> {
    let mut answers = Vec::new();
    while answers.len() <= 50 {
        match source.block(Rank(rank), ThreadStart(0), &answers)?.terminator {
            Terminator::Return | Terminator::Cut => return Ok(()),
            Terminator::Ask(..) => answers.push(0),
        }
    }
    Ok(())
}

fn evaluate_check(check: &Check) -> Result<(), SpecError> {
    for ranks in &check.ranks {
        for params in check.combinations() {
            let first = check.source(*ranks, &params, &check.assume)?;
            for source in std::iter::once(first).chain(check.other_source(*ranks, &params)?) {
                for rank in 0..*ranks {
                    evaluate(&source, rank).map_err(|error| source.diagnose(&error))?;
                }
            }
        }
    }
    Ok(())
}

fn first_error(path: &Path) -> Option<SpecError> {
    match load(path) {
        Ok(spec) => spec.checks.iter().find_map(|check| evaluate_check(check).err()),
        Err(error) => Some(error),
    }
}

fn specs(directory: &str) -> Vec<PathBuf> {
    enter();
    let mut paths: Vec<PathBuf> = std::fs::read_dir(directory)
        .expect("the directory is part of the repository")
        .map(|entry| entry.expect("its files can be listed").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "star"))
        .collect();
    paths.sort();
    paths
}

#[test]
fn every_broken_spec_gets_its_diagnostic() {
    let mut wrong = Vec::new();
    for path in specs("tests/broken") {
        let Some(error) = first_error(&path) else {
            wrong.push(format!("{} is not broken", path.display()));
            continue;
        };
        wrong.extend(differs_from_golden(&path.with_extension("stderr"), &(error.drawn() + "\n")));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn well_formed_specs_evaluate() {
    for path in specs("tests/well_formed") {
        if let Some(error) = first_error(&path) {
            panic!("{}: {error} at {:?}", path.display(), error.loc());
        }
    }
}
