//! Searches many checks at the same time, with a bar that tells how far that is.
//!
//! Not here: what is searched for ([`crate::search`]), and what becomes of it.

use std::collections::BTreeMap;
use std::num::NonZero;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use super::output;
use crate::device::seen::add_seen;
use crate::search::{Explained, Options, search};
use crate::spec::{Check, Spec, SpecError};

/// Searches checks, in so many threads, or as many as there are cores. Returns what was found, in the order of the
/// checks, and what is wrong with those that cannot be evaluated.
pub(super) fn search_each(
    jobs: &[(&Spec, &Check)],
    options: &Options,
    threads: Option<NonZero<usize>>,
) -> (Vec<Explained>, Vec<SpecError>) {
    let results: Mutex<BTreeMap<usize, Result<Explained, SpecError>>> = Mutex::default();
    let next = AtomicUsize::new(0);
    let cores = || std::thread::available_parallelism().map_or(1, NonZero::get);
    let threads = threads.map_or_else(cores, NonZero::get).min(jobs.len());
    let bar = output::progress(jobs.len());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let nth = next.fetch_add(1, Ordering::Relaxed);
                    let Some((spec, check)) = jobs.get(nth) else { break };
                    bar.set_message(check.name.clone());
                    let result = search(spec, check, options).and_then(|mut explained| {
                        add_seen(&mut explained, spec, check)?;
                        Ok(explained)
                    });
                    bar.inc(1);
                    results.lock().unwrap_or_else(PoisonError::into_inner).insert(nth, result);
                }
            });
        }
    });
    bar.finish_and_clear();
    let (mut found, mut bad) = (Vec::new(), Vec::new());
    for result in results.into_inner().unwrap_or_else(PoisonError::into_inner).into_values() {
        match result {
            Ok(explained) => found.push(explained),
            Err(error) => bad.push(error),
        }
    }
    (found, bad)
}
