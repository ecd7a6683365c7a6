//! One function for many indices or values, on all cores.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What a function gives for each index below `len`, in their order. Who is done takes the next index.
pub(crate) fn in_parallel<T: Send>(len: usize, of: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let workers = std::thread::available_parallelism().map_or(1, usize::from).min(len);
    let next = AtomicUsize::new(0);
    let work = || -> Vec<(usize, T)> {
        let at = || Some(next.fetch_add(1, Ordering::Relaxed)).filter(|at| *at < len);
        std::iter::from_fn(at).map(|at| (at, of(at))).collect()
    };
    let mut all: Vec<(usize, T)> = std::thread::scope(|scope| {
        let workers: Vec<_> = (1..workers).map(|_| scope.spawn(work)).collect();
        let mine = work();
        let others = workers
            .into_iter()
            .map(|worker| worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        mine.into_iter().chain(others.flatten().collect::<Vec<_>>()).collect()
    });
    all.sort_unstable_by_key(|(at, _)| *at);
    all.into_iter().map(|(_, value)| value).collect()
}

/// What a function makes of each value and its index, in their order.
pub(crate) fn each_in_parallel<V: Send, T: Send>(
    values: Vec<V>,
    of: impl Fn(usize, V) -> T + Sync,
) -> Vec<T> {
    let values: Vec<Mutex<Option<V>>> = values.into_iter().map(|value| Mutex::new(Some(value))).collect();
    in_parallel(values.len(), |at| {
        let value = values[at].lock().expect("no thread panics with it").take();
        of(at, value.expect("each index comes once"))
    })
}
