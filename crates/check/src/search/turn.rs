//! What a choice is about, told so that it can be found again in another run of the program.
//!
//! Not here: what is done with it ([`super::trial`], [`super::predict`]).

use rankcheck_model::edit::OpPosition;
use rankcheck_model::machine::Rendezvous;
use rankcheck_model::{Choice, LocId, Machine, Nondet, OpRef, State};

/// What a choice is about, the same in every run that comes by it, even where less happens before.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Turn {
    /// A thread begins an operation, or goes on in it after so many steps.
    Thread { op: TurnOp, step: u32 },
    /// All who wait there go on. Any of them stands for it.
    Meets(Rendezvous),
    /// The head of a stream, which this operation launched.
    Stream { stream: u32, op: TurnOp },
}

/// An operation that somebody comes by: after other decisions, another one may stand in the same position.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct TurnOp {
    pub(super) at: OpPosition,
    loc: LocId,
}

impl TurnOp {
    fn of(state: &State, op: &OpRef) -> Option<Self> {
        let start = state.rank(op.rank).threads().get(op.thread.at())?.start();
        Some(Self { at: OpPosition { rank: op.rank, start, index: op.index }, loc: op.loc })
    }
}

impl Turn {
    /// What a choice of the reduced semantics is about, or a step of a thread or a stream in the other.
    pub(super) fn of(machine: &Machine, state: &State, choice: &Choice) -> Option<Self> {
        match choice {
            Choice::Thread(rank, thread) | Choice::Value(rank, thread, _) => {
                if let Some(rendezvous) = Machine::waits_in(state, *rank, *thread) {
                    return Some(Self::Meets(rendezvous));
                }
                let op = TurnOp::of(state, &machine.next_op(state, *rank, *thread))?;
                Some(Self::Thread { op, step: state.rank(*rank).threads()[thread.at()].taken() })
            }
            Choice::Stream(rank, stream) => {
                let (head, _) = machine.head(state, *rank, *stream)?;
                Some(Self::Stream { stream: *stream, op: TurnOp::of(state, &head)? })
            }
            Choice::Transfer(_) | Choice::Meet(_) => None,
        }
    }
}

/// Whether a call fails, or a rank dies, with this choice.
pub(super) fn fails(machine: &Machine, state: &State, choice: &Choice) -> bool {
    let Choice::Value(rank, thread, values) = choice else { return false };
    let nondet = machine.nondet_of(state, *rank, *thread, values);
    nondet.iter().any(|(of, value)| matches!(of, Nondet::Fault(_)) && *value == 1)
}
