//! Links: the way from one rank of a communicator to another, and its first use.
//! Not here: what is transferred on them.

use crate::host::value::CommId;
use crate::judge::finding::About;
use crate::machine::Machine;
use crate::noun::comm::CommState;
use crate::noun::p2p::Called;
use crate::rank::Rank;
use crate::state::State;
use crate::walk::{Rows, walk};

/// The way from one rank of a communicator to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Link {
    /// The communicator that connects the two; their link on another one is another link.
    pub comm: CommId,
    /// World rank of the sender.
    pub from: Rank,
    /// World rank of the receiver.
    pub to: Rank,
}

/// A first use of links goes over all of them twice (`transport.cc:123-350`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Handshake {
    /// Both ends say where their buffers are.
    Greet,
    /// Both ends have connected everything they need.
    Confirm,
}

/// The links of a rank on a communicator.
#[derive(Debug, Clone)]
pub(crate) struct Links {
    /// The last handshake of each that is over. None if every link was there from the start.
    met: Option<Rows<Link, Handshake>>,
    /// Bytes sent on each so far, where it matters how many NCCL can hold.
    sent_bytes: Rows<Link, u64>,
}

// Links name ranks: they are told apart then.
walk!(struct Links { met: hashed fixed, sent_bytes: hashed fixed });

impl Default for Links {
    fn default() -> Self {
        Self { met: Some(Rows::default()), sent_bytes: Rows::default() }
    }
}

impl Links {
    /// Every link is there: no first use is to come.
    pub(crate) fn are_made(&mut self) {
        self.met = None;
    }

    /// Whether some first use of a link from or to another rank is over.
    pub(crate) fn reaches(&self, other: Rank) -> bool {
        let Some(met) = &self.met else { return true };
        met.iter().any(|(link, _)| link.from == other || link.to == other)
    }

    /// Bytes sent on a link so far.
    pub(super) fn sent_bytes(&self, link: Link) -> u64 {
        self.sent_bytes.get(&link).copied().unwrap_or(0)
    }

    /// More bytes are sent on a link.
    pub(super) fn send(&mut self, link: Link, len_bytes: u64) {
        *self.sent_bytes.get_or_insert_with(&link, || 0) += len_bytes;
    }
}

impl Link {
    pub(super) fn about(self) -> About {
        About::Pair(self.comm, self.from, self.to)
    }
}

impl Machine {
    /// The next handshake that these transfers need. A call goes over its links twice, nearest first, and
    /// returns from none before both ends are there (`transport.cc:123-350`).
    pub(crate) fn cold_link(&self, state: &State, rank: Rank, calls: &[Called]) -> Option<(Link, Handshake)> {
        let mut cold: Vec<(CommId, Handshake, u32, Link)> = Vec::new();
        for (comm, _, transfer) in calls {
            let link = transfer.link(*comm, rank);
            let links = state.rank(rank).comm(*comm).map(CommState::links);
            let Some(met) = links.and_then(|links| links.met.as_ref()) else { continue };
            let next = match met.get(&link) {
                _ if link.from == link.to => continue,
                None => Handshake::Greet,
                Some(Handshake::Greet) => Handshake::Confirm,
                Some(Handshake::Confirm) => continue,
            };
            cold.push((*comm, next, self.distance(link), link));
        }
        // In one order on all ranks, so that only what the program adds can close a circle.
        cold.into_iter().min().map(|(_, handshake, _, link)| (link, handshake))
    }

    /// From sender to receiver, in ranks of the communicator.
    pub(super) fn distance(&self, link: Link) -> u32 {
        let members = self.members(link.comm);
        let position = |rank: Rank| members.iter().position(|member| *member == rank).unwrap_or(0);
        let distance = (position(link.to) + members.len() - position(link.from)) % members.len();
        u32::try_from(distance).expect("few ranks")
    }

    /// Both ends of a link are there.
    pub(crate) fn shake_hands(&self, state: &mut State, link: Link, handshake: Handshake) {
        for rank in [link.from, link.to] {
            let links = state.rank_mut(rank).comm_mut(link.comm).links_mut();
            *links.met.get_or_insert_default().get_or_insert_with(&link, || handshake) = handshake;
        }
    }

    /// Two ranks that are each other's neighbour on both sides, and connect different links, take one another's
    /// message for the answer: the set-up succeeds and is wrong (measured on 2.28.9: hangs and CUDA 700).
    pub(crate) fn cross_links(&self, a: Link, b: Link) -> bool {
        let pair = |link: Link| (link.comm, link.from.min(link.to), link.from.max(link.to));
        let size = u32::try_from(self.members(a.comm).len()).expect("few ranks");
        a != b && pair(a) == pair(b) && 2 * self.distance(a) == size
    }
}
