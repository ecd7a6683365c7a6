//! The oracle: every interleaving of single steps, without any reduction.
//!
//! It shares the machine's operations with [`mod@super::explore`] and nothing of its order, so agreement of the two is
//! evidence about the order.
//! Not here: what the steps do.

use std::sync::Arc;

use rankcheck_model::machine::Choice;
use rankcheck_model::{Config, Machine, Mode, Source, SourceError, State};
use stateright::Model;

use super::bounds::Bounds;
use super::explore::{Exploration, RepeatedWalk, Visit};
use super::graph::{StateGraph, WalkedState};
use super::tally::EdgeTally;

/// The unreduced semantics as stateright sees it.
struct Naive {
    machine: Arc<Machine>,
    /// Steps in a run that are remembered, for its witness.
    remembered: u32,
}

/// A state, and how many steps led to it.
#[derive(Debug, Clone)]
struct Stepped {
    state: State,
    steps: u32,
}

impl WalkedState for Stepped {
    fn fingerprint(&self) -> u128 {
        self.state.fingerprint()
    }

    fn choices(&self) -> u32 {
        self.steps
    }

    fn tally(&self) -> Option<&EdgeTally> {
        None
    }
}

impl AsRef<State> for Stepped {
    fn as_ref(&self) -> &State {
        &self.state
    }
}

impl Model for Naive {
    type State = Stepped;
    type Action = Choice;

    fn init_states(&self) -> Vec<Stepped> {
        vec![Stepped { state: self.machine.init(), steps: 0 }]
    }

    fn actions(&self, from: &Stepped, actions: &mut Vec<Choice>) {
        *actions = self.machine.steps(&from.state);
    }

    fn next_state(&self, from: &Stepped, step: Choice) -> Option<Stepped> {
        if self.machine.interrupted() {
            return None;
        }
        let mut state = from.state.clone();
        self.machine.take(&mut state, &step);
        state.seal();
        if from.steps < self.remembered {
            self.machine.remember(&mut state, &step);
        }
        Some(Stepped { state, steps: from.steps + 1 })
    }
}

/// Explores every interleaving of a program within bounds.
///
/// # Errors
/// If the program cannot be evaluated.
pub fn explore(
    source: &Arc<dyn Source>,
    config: Config,
    bounds: &Bounds,
) -> Result<Exploration, SourceError> {
    let config = Config { mode: Mode::Naive, launches_kept: usize::MAX, ..config };
    let mut walk = RepeatedWalk::new(config, bounds).tells_histories_apart();
    loop {
        let machine = walk.machine(source);
        let naive = Naive { machine: Arc::clone(&machine), remembered: 0 };
        let graph = StateGraph::of(&naive, &Visit { machine: &machine, runs: &walk.runs }, 1);
        if walk.is_over(&machine, false)? {
            let again = Naive { machine: walk.machine(source), remembered: bounds.choices };
            return Ok(walk.runs.exploration(&machine, &again, &graph));
        }
    }
}
