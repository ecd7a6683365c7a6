//! Searches many checks at the same time, tells how far that is, and ends early when somebody asks for it.
//!
//! Not here: what is searched for ([`crate::search`]), and what becomes of it.

use std::collections::BTreeMap;
use std::num::NonZero;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use super::progress::SearchProgress;
use crate::device::seen::add_seen;
use crate::search::{Explained, LargeSearch, Options, search};
use crate::spec::{Check, Spec, SpecError};

/// A check that is searched, and the spec that states it.
pub(super) type SearchJob<'a> = (&'a Spec, &'a Check);

/// Searches checks, in so many threads, or as many as there are cores, until somebody asks the searches to stop.
///
/// Returns by the position of its check what `keep` makes of what was found, or what is wrong with a check that cannot be
/// evaluated. Checks that nobody came to are missing.
pub(super) fn search_each<T: Send>(
    jobs: &[SearchJob<'_>],
    options: &Options,
    threads: Option<NonZero<usize>>,
    keep: impl Fn(SearchJob<'_>, Explained) -> T + Sync,
) -> BTreeMap<usize, Result<T, SpecError>> {
    let results: Mutex<BTreeMap<usize, Result<T, SpecError>>> = Mutex::default();
    let next = AtomicUsize::new(0);
    let cores = || std::thread::available_parallelism().map_or(1, NonZero::get);
    let threads = threads.map_or_else(cores, NonZero::get).min(jobs.len());
    let (stop, progress) = (&options.bounds.stop, SearchProgress::new(jobs.len()));
    std::thread::scope(|scope| {
        let watcher = scope.spawn(|| progress.watch(stop));
        let work = || {
            while !stop.asked() {
                let nth = next.fetch_add(1, Ordering::Relaxed);
                let Some(&(spec, check)) = jobs.get(nth) else { break };
                let mut options = options.clone();
                options.bounds.large = LargeSearch::default();
                progress.begins(nth, &check.name, &options.bounds.large);
                let result = search(spec, check, &options).and_then(|mut explained| {
                    add_seen(&mut explained, spec, check)?;
                    Ok(keep((spec, check), explained))
                });
                progress.ends(nth);
                results.lock().unwrap_or_else(PoisonError::into_inner).insert(nth, result);
            }
        };
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let joined: Vec<_> = workers.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
        progress.is_over();
        watcher.thread().unpark();
        if let Some(panic) = joined.into_iter().find_map(Result::err) {
            std::panic::resume_unwind(panic);
        }
    });
    results.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// Reads how many searches may run at the same time.
pub(super) fn at_least_one(text: &str) -> Result<NonZero<usize>, String> {
    text.parse().map_err(|_| "give a number from 1 on".to_owned())
}
