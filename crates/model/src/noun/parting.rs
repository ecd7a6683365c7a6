//! The end of a communicator that was used: the destruction waits for those that the rank is connected with.
//!
//! Source: NCCL documentation, `ncclCommDestroy`; measured. Not here: what else a destruction does ([`crate::noun::comm`]).

use serde::{Deserialize, Serialize};

use crate::cx::Here;
use crate::describe::{Describe, Description};
use crate::host::value::{CommId, Value};
use crate::machine::{Connections, Machine};
use crate::noun::comm::CommOp;
use crate::op::Op;
use crate::program::Operand;
use crate::rank::Rank;
use crate::state::{RankState, State};

/// Whether the end of a communicator waits for its other members.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Parting {
    /// `ncclCommDestroy`: until those that it is connected with finalize it, destroy it or end.
    Together,
    /// `ncclCommAbort`, which waits for nobody. Also of a recorded run, whose clock says who waited for whom.
    Alone,
}

impl Describe for Parting {
    fn describe(&self, to: &mut Description<'_>) {
        to.word(match self {
            Self::Together => "Together",
            Self::Alone => "Alone",
        });
    }
}

impl RankState {
    /// Whether a thread of the rank is inside the destruction of a communicator.
    pub(crate) fn is_parting(&self) -> bool {
        self.comms().any(|(_, comm)| comm.parting().is_some())
    }
}

impl Here<'_> {
    /// The communicator that the thread is destroying: it has left it, and waits for others to do so.
    pub(super) fn parts_from(self, comm: &Operand) -> Option<CommId> {
        let Value::Comm(comm) = Machine::value(self.state, self.rank, comm) else { return None };
        let comm_state = self.me().comm(comm)?;
        (comm_state.parting() == Some(self.thread)).then_some(comm)
    }

    /// Whether an operation of the thread is the destruction of a communicator that it has left, and only returns.
    pub(super) fn has_left(self, op: &Op) -> bool {
        matches!(op, Op::Comm(CommOp::Destroy { comm, .. }) if self.parts_from(comm).is_some())
    }
}

impl Machine {
    /// The members for which the destruction of a communicator waits on a rank: those whose process it is connected with,
    /// until they leave the communicator or end. Of communicators that share channels nothing was measured.
    pub(crate) fn kept_by(&self, state: &State, rank: Rank, comm: CommId) -> impl Iterator<Item = Rank> {
        let mine = state.rank(rank).comm(comm);
        // Executors keep what served before, and destroy none of it.
        let destroyed = self.config.connections == Connections::OnFirstUse;
        let mine = mine.filter(|mine| destroyed && mine.has_own_channels(comm));
        let all = mine.is_some_and(|mine| mine.is_connected() || !mine.windows().rows().is_empty());
        let members = self.members(comm);
        (0..members.len()).map(move |at| members[at]).filter(move |other| {
            let connected = all || mine.is_some_and(|mine| mine.links().reaches(*other));
            let stays = || {
                let other = state.rank(*other);
                !other.has_ended() && other.comm(comm).is_some_and(|other| other.is_in_use())
            };
            *other != rank && connected && stays()
        })
    }
}
