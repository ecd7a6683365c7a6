//! The bounds of a search: how far it goes, who may end it, and who is told that it is large.
//!
//! Not here: the searches that keep to them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::decisions::RunDecisions;
use super::graph::locked;
use super::memory;

/// Whether somebody wants no more of a search: whoever keeps a clone may say so while it goes on.
#[derive(Debug, Clone, Default)]
pub struct StopRequest(Arc<AtomicBool>);

impl StopRequest {
    /// Ends all searches that have this within their bounds, soon.
    pub fn ask(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether that was asked for.
    #[must_use]
    pub fn asked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl PartialEq for StopRequest {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for StopRequest {}

/// What a search that turns out to be large decides in one run, told while it goes on. Copies share it.
#[derive(Debug, Clone, Default)]
pub struct LargeSearch(Arc<Mutex<Option<RunDecisions>>>);

impl LargeSearch {
    pub(super) fn tell(&self, decisions: &RunDecisions) {
        *locked(&self.0) = Some(decisions.clone());
    }

    /// What one run of it decides, if it is large.
    #[must_use]
    pub fn decisions(&self) -> Option<RunDecisions> {
        locked(&self.0).clone()
    }
}

impl PartialEq for LargeSearch {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for LargeSearch {}

/// Bounds of an exploration. A bound that is hit makes the verdict unknown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bounds {
    /// How many states are kept at most.
    pub states: u64,
    /// Choices in one run.
    pub choices: u32,
    /// Wall time of the exploration; none for no bound.
    pub time: Option<Duration>,
    /// Operations of one run between two choices.
    pub steps: u64,
    /// From how many states on histories merge that lead to one future; until then each is told apart. They merge earlier
    /// where runs are long: from 100 times as many operations on, if a thirtieth of the states is reached.
    pub merge_from: u64,
    /// Bytes that the process may hold. Of several searches in one process, the largest gives up.
    pub memory: Option<u64>,
    /// Whether the search ends with the first run that breaks a rule: of the rest of what the program does nothing is said.
    pub until_broken: bool,
    /// Whether it was interrupted.
    pub stop: StopRequest,
    /// Who is told that the search is large.
    pub large: LargeSearch,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            states: 20_000_000,
            choices: 10_000,
            time: None,
            steps: 2_000_000_000,
            merge_from: 1_000,
            memory: memory::share(),
            until_broken: false,
            stop: StopRequest::default(),
            large: LargeSearch::default(),
        }
    }
}

impl Bounds {
    /// Whether histories merge in a search of so many states and operations.
    pub(super) fn merges(&self, states: u64, operations: u64) -> bool {
        states > self.merge_from
            || (states > self.merge_from / 30 && operations > self.merge_from.saturating_mul(100))
    }
}

/// A bound that was hit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BoundHit {
    /// More states than allowed.
    States(u64),
    /// A run with more choices than allowed.
    Choices(u32),
    /// More time than allowed.
    Time(Duration),
    /// A run with more operations than allowed.
    Steps(u64),
    /// More bytes than the process may hold.
    Memory(u64),
    /// Somebody wanted no more of it, after so many states.
    Interrupted(u64),
}

impl std::fmt::Display for BoundHit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::States(states) => write!(f, "stopped at {states} states (--max-states)"),
            Self::Choices(choices) => {
                write!(f, "stopped at {choices} choices in a run (--max-choices)")
            }
            Self::Time(time) => write!(f, "stopped after {} s (--max-seconds)", time.as_secs_f64()),
            Self::Steps(steps) => write!(f, "stopped at {steps} operations in a run (--max-steps)"),
            Self::Memory(bytes) => write!(f, "stopped at {} (--max-memory)", Size(*bytes)),
            Self::Interrupted(1) => write!(f, "interrupted after 1 state"),
            Self::Interrupted(states) => write!(f, "interrupted after {states} states"),
        }
    }
}

/// A number of bytes, to two digits after the point.
struct Size(u64);

impl std::fmt::Display for Size {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let units = [("GiB", 30), ("MiB", 20), ("KiB", 10)];
        let Some((unit, shift)) = units.into_iter().find(|(_, shift)| self.0 >> shift > 0) else {
            return write!(f, "{} B", self.0);
        };
        let hundredths = (u128::from(self.0) * 100) >> shift;
        match hundredths % 100 {
            0 => write!(f, "{} {unit}", hundredths / 100),
            rest => write!(f, "{}.{rest:02} {unit}", hundredths / 100),
        }
    }
}
