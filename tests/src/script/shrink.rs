//! Makes a program that fails smaller: leaves out one operation, question, thread or setting after the other.
//!
//! It knows nothing of fragments, so it goes on where their shrinking ends.
//! Not here: what failing means.
#![expect(clippy::wildcard_enum_match_arm, reason = "other words are what this is not")]

use std::sync::Arc;

use rankcheck_model::Config;

use super::kept::Trial;
use super::listing::{Listing, Row};
use super::words::Words;

/// A program that fails as `trial` does, and of which no one or two parts can be left out without losing that.
///
/// # Panics
/// If `trial` cannot be told in text.
pub fn shrunk(trial: Trial, fails: impl Fn(&Trial) -> bool) -> Trial {
    let (mut listing, mut smallest) = (Listing::of(&trial.script), trial);
    let mut shrinks = true;
    while shrinks {
        shrinks = false;
        for config in simpler(&smallest.config) {
            let candidate = Trial { script: Arc::clone(&smallest.script), config };
            if fails(&candidate) {
                (smallest, shrinks) = (candidate, true);
            }
        }
        let fails_without = |listing: &Listing, config: &Config, parts: &[Part]| {
            let without = parts.iter().fold(listing.clone(), |listing, part| without(&listing, *part));
            let script = Arc::new(without.script().ok()?);
            let candidate = Trial { script, config: config.clone() };
            fails(&candidate).then_some((without, candidate))
        };
        // From the end, so that what is left out does not move what is still to be tried.
        for part in parts(&listing).into_iter().rev() {
            if let Some(smaller) = fails_without(&listing, &smallest.config, &[part]) {
                ((listing, smallest), shrinks) = (smaller, true);
            }
        }
        if !shrinks {
            // The halves of a transfer, or both ends of a group, go together.
            let parts: Vec<Part> = parts(&listing).into_iter().rev().collect();
            let mut pairs = parts
                .iter()
                .enumerate()
                .flat_map(|(nth, one)| parts[nth + 1..].iter().map(|two| [*one, *two]));
            if let Some(smaller) = pairs.find_map(|pair| fails_without(&listing, &smallest.config, &pair)) {
                ((listing, smallest), shrinks) = (smaller, true);
            }
        }
    }
    smallest
}

/// The configuration with one setting fewer.
fn simpler(config: &Config) -> Vec<Config> {
    let default = Config::new(config.ranks);
    let without = [
        Config { faults: default.faults.clone(), ..config.clone() },
        Config { in_flight: default.in_flight, ..config.clone() },
        Config { planned_together: default.planned_together, ..config.clone() },
        Config { launches_kept: default.launches_kept, ..config.clone() },
    ];
    let unchanged = format!("{config:?}");
    without.into_iter().filter(|config| format!("{config:?}") != unchanged).collect()
}

/// What can be left out: a row, or an operation behind a question or an `else`; or a last thread that nobody starts.
#[derive(Debug, Clone, Copy)]
enum Part {
    Thread { rank: usize },
    Row { rank: usize, thread: usize, row: usize },
    Then { rank: usize, thread: usize, row: usize, nth: usize },
    Else { rank: usize, thread: usize, row: usize, nth: usize },
}

/// The parts in the order of the text.
fn parts(listing: &Listing) -> Vec<Part> {
    let mut parts = Vec::new();
    for (rank, threads) in listing.threads.iter().enumerate() {
        for (thread, rows) in threads.iter().enumerate() {
            for (row, what) in rows.iter().enumerate() {
                parts.push(Part::Row { rank, thread, row });
                let then = 0..what.then.as_ref().map_or(0, Vec::len);
                parts.extend(then.map(|nth| Part::Then { rank, thread, row, nth }));
                let otherwise = 0..what.otherwise.len();
                parts.extend(otherwise.map(|nth| Part::Else { rank, thread, row, nth }));
            }
        }
        let last = threads.len() - 1;
        let started = format!("Spawn {{ entry: thread Some({last}) }}");
        let is_started = threads.iter().flatten().any(|row| row.words.to_string() == started);
        if last > 0 && threads[last].is_empty() && !is_started {
            parts.push(Part::Thread { rank });
        }
    }
    parts
}

/// The program without a part. What was called by its label is null then.
fn without(listing: &Listing, part: Part) -> Listing {
    let mut listing = listing.clone();
    match part {
        Part::Thread { rank } => {
            listing.threads[rank].pop();
        }
        Part::Then { rank, thread, row, nth } => {
            listing.threads[rank][thread][row].then.as_mut().expect("it is a question").remove(nth);
        }
        Part::Else { rank, thread, row, nth } => {
            listing.threads[rank][thread][row].otherwise.remove(nth);
        }
        Part::Row { rank, thread, row } => {
            let threads = &mut listing.threads[rank];
            let gone = threads[thread].remove(row);
            if let Some(label) = gone.label {
                let asked = Words::Label(label.clone(), 0);
                // What depends on an answer goes with its question.
                threads.iter_mut().for_each(|rows| rows.retain(|row| !(row.recalls() && row.words == asked)));
                forget(threads, &label);
            }
        }
    }
    listing
}

fn forget(threads: &mut [Vec<Row>], label: &str) {
    let mut named = |words| match words {
        Words::Label(of, _) if of == label => Words::Word("Null".to_owned()),
        other => other,
    };
    for row in threads.iter_mut().flatten() {
        row.words = row.words.clone().map(&mut named);
        row.behind().for_each(|op| *op = op.clone().map(&mut named));
    }
}
