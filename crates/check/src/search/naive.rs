//! The oracle: every interleaving of single steps, without any reduction.
//!
//! Depth first with one fingerprint a state. It shares the machine's operations with [`mod@super::explore`] and
//! nothing of its order, so agreement of the two is evidence about the order.
//! Not here: what the steps do.

use std::sync::Arc;
use std::time::Instant;

use rankcheck_model::{Config, Interruption, Machine, Mode, Source, SourceError};
use rustc_hash::FxHashSet;

use super::explore::{BoundHit, Bounds, CompleteRuns, Exploration};

/// Explores every interleaving of a program within bounds.
///
/// # Errors
/// If the program cannot be evaluated.
pub fn explore(
    source: &Arc<dyn Source>,
    config: Config,
    bounds: &Bounds,
) -> Result<Exploration, SourceError> {
    let mut config =
        Config { mode: Mode::Naive, steps_at_most: bounds.steps, launches_kept: usize::MAX, ..config };
    let started = Instant::now();
    loop {
        let machine = Machine::new(Arc::clone(source), config.clone());
        let collector = CompleteRuns::new(bounds.clone(), started);
        let first = machine.init();
        let mut seen: FxHashSet<u64> = FxHashSet::default();
        seen.insert(first.fingerprint());
        let mut stack = vec![(first, 0)];
        while let Some((state, depth)) = stack.pop() {
            if machine.interrupted() || !collector.count(depth) {
                break;
            }
            let steps = machine.steps(&state);
            if steps.is_empty() {
                collector.complete(&machine, &state);
            }
            for step in steps {
                let mut next = state.clone();
                machine.take(&mut next, &step);
                next.seal();
                if seen.insert(next.fingerprint()) {
                    if depth < bounds.choices {
                        machine.remember(&mut next, &step);
                    }
                    stack.push((next, depth + 1));
                }
            }
        }
        match machine.interruption() {
            None => return Ok(collector.exploration(&machine)),
            Some(Interruption::Source(error)) => return Err(error),
            Some(Interruption::Steps(steps)) => {
                collector.cut(BoundHit::Steps(steps));
                return Ok(collector.exploration(&machine));
            }
            Some(Interruption::Actors(actors)) => config.actors_per_rank = actors,
            Some(Interruption::Contended(_)) => unreachable!("the naive semantics knows no contention"),
        }
    }
}
