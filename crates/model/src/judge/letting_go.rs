//! What becomes of a run that stands still with nothing but guarantees, where NCCL lets go whom it need not hold back.
//! Not here: whom that is (`noun/p2p.rs`, `noun/collective/hand_over.rs`).

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use crate::judge::outcome::{Class, Outcome, RankOutcome};
use crate::machine::{Config, InFlight, Interruption, Machine, Mode, locked};
use crate::state::{RankState, State};

/// How a run may end on a platform.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PlatformEnds {
    /// What becomes of it, each way that the platform leaves open.
    pub classes: BTreeSet<Class>,
    /// Whether these are all.
    pub whole: bool,
}

impl PlatformEnds {
    /// Those of a run that ends on every platform as it is guaranteed to, or of which nobody asks more.
    #[must_use]
    pub fn as_guaranteed(outcome: &Outcome) -> Self {
        Self { classes: BTreeSet::from([outcome.class]), whole: true }
    }

    /// Takes in how another run may end.
    pub fn extend(&mut self, other: &Self) {
        self.classes.extend(&other.classes);
        self.whole &= other.whole;
    }
}

/// So many states are looked at behind the one in which a run stands still.
const STATES_BEHIND: usize = 4_096;

impl Machine {
    /// What becomes on this platform of a run that has come to this state, in which nothing can go on with guarantees alone, and
    /// that ends like this then.
    ///
    /// It goes on from there: that NCCL lets somebody go after all others have done what they can is one of the times at which it
    /// may. None is told if the search has to start again with more than this machine knows ([`Machine::interruption`]).
    #[must_use]
    pub fn platform_ends(&self, state: &State, outcome: &Outcome) -> Option<PlatformEnds> {
        let is_hung = |rank: &RankOutcome| matches!(rank, RankOutcome::HostHang(_) | RankOutcome::GpuHang(_));
        let lets_go = self.may_let_go.load(Ordering::Relaxed) || state.ranks().any(RankState::has_ended_dead);
        let asks = self.config.in_flight == InFlight::Nothing && !self.config.scouts;
        if !asks || !lets_go || !outcome.ranks.iter().any(is_hung) {
            return Some(PlatformEnds::as_guaranteed(outcome));
        }
        let mut config =
            Config { in_flight: InFlight::OfPlatform, mode: Mode::Reduced, ..self.config.clone() };
        loop {
            let beside = self.with_tables(config.clone());
            let ends = beside.ends_from(state);
            match beside.interruption() {
                None => return Some(ends),
                Some(Interruption::Contended(objects)) => config.contended.extend(objects),
                Some(
                    Interruption::Remember(_)
                    | Interruption::Contents
                    | Interruption::Actors(_)
                    | Interruption::Source(_),
                ) => {
                    let theirs = std::mem::take(&mut *locked(&beside.pending));
                    self.interrupt(|pending| pending.learn(theirs));
                    return None;
                }
                Some(Interruption::Steps(_)) => {
                    return Some(PlatformEnds { whole: false, ..PlatformEnds::as_guaranteed(outcome) });
                }
            }
        }
    }

    /// How runs end that go on from a state.
    fn ends_from(&self, state: &State) -> PlatformEnds {
        let mut ends = PlatformEnds { classes: BTreeSet::new(), whole: true };
        let mut open: Vec<State> = match state.holds_all() {
            Some(_) => vec![state.clone()],
            None => {
                let decided = |holds_all| {
                    let mut state = state.clone();
                    state.decide_transit(Some(holds_all), None);
                    state
                };
                vec![decided(true), decided(false)]
            }
        };
        let mut seen: BTreeSet<u128> = BTreeSet::new();
        while let Some(mut state) = open.pop() {
            self.advance(&mut state);
            if self.interrupted() {
                break;
            }
            state.seal();
            if !seen.insert(state.fingerprint()) {
                continue;
            }
            if seen.len() > STATES_BEHIND {
                ends.whole = false;
                break;
            }
            let choices = self.choices(&state);
            if choices.is_empty() {
                self.contend_blocked(&state);
                if !self.infeasible(&state) {
                    self.finish(&mut state);
                    ends.classes.insert(self.outcome(&state).class);
                }
                continue;
            }
            open.extend(choices.iter().map(|choice| {
                let mut next = state.clone();
                self.take(&mut next, choice);
                next
            }));
        }
        ends
    }
}
