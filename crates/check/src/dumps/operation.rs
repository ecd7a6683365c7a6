//! What the name of an entry says: `nccl:send 0->1` is a send of group rank 0 to group rank 1.
//!
//! The words are those of `ProcessGroupNCCL.cpp` (`_all_gather_base`, `all_gather_into_tensor_coalesced`) and of
//! torchcomms (`all_gather_single`, `new_window`).
//! Not here: who takes part in it, and whether that fits.

use std::sync::Arc;

/// The `profiling_name` of an entry, taken apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntryName {
    /// The name as it stands in the dump.
    pub text: Arc<str>,
    /// How many bytes of it name the backend (`nccl`, `xccl`, `gloo`, `ncclx`); none if it has no colon.
    backend: usize,
    /// What kind of operation it is.
    pub kind: EntryKind,
}

/// The kind of operation that an entry stands for. Variants of one kind that NCCL cannot tell apart are one kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EntryKind {
    /// Every rank has the reduction of all inputs; also several tensors at once (`allreduce_coalesced`).
    AllReduce,
    /// Every rank has what the root had; also out of place (`_broadcast_oop`).
    Broadcast,
    /// The root has the reduction of all inputs; also out of place (`_reduce_oop`).
    Reduce,
    /// Every rank has all inputs.
    AllGather,
    /// Every rank has its part of the reduction of all inputs.
    ReduceScatter,
    /// Every rank has a part of each input.
    AllToAll,
    /// The root has all inputs.
    Gather,
    /// Every rank has its part of what the root had.
    Scatter,
    /// A barrier, for which NCCL runs an all-reduce of one element (`all_reduce_barrier`).
    Barrier,
    /// A send, with who sends to whom where the name says it. torchcomms does not.
    Send(Option<Peers>),
    /// A receive, with who sends to whom where the name says it.
    Recv(Option<Peers>),
    /// The end of a group of operations that were launched as one: the last entry of its bracket, and the only one
    /// of them whose state changes (`coalesced`, `ALLGATHER_coalesced`).
    Coalesced,
    /// A communicator is split (torchcomms).
    Split,
    /// A window is made (torchcomms).
    NewWindow,
    /// An operation that is not known here; [`EntryName::word`] has its name.
    Other,
}

/// Who sends to whom, as ranks of the group and not of the job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Peers {
    /// The group rank that sends.
    pub from: u32,
    /// The group rank that receives.
    pub to: u32,
}

impl EntryName {
    /// Takes a name apart. Every text is a name; what is not known is [`EntryKind::Other`].
    #[must_use]
    pub fn new(text: Arc<str>) -> Self {
        let backend = text.find(':').unwrap_or(0);
        let name = text[backend..].trim_start_matches(':');
        let (word, rest) = name.split_once(' ').unwrap_or((name, ""));
        let kind = match word {
            "all_reduce" | "all_reduce_sparse" | "allreduce_coalesced" => EntryKind::AllReduce,
            "broadcast" | "_broadcast_oop" => EntryKind::Broadcast,
            "reduce" | "_reduce_oop" => EntryKind::Reduce,
            "all_gather"
            | "_all_gather_base"
            | "all_gather_into_tensor_coalesced"
            | "all_gather_single"
            | "all_gather_v" => EntryKind::AllGather,
            "reduce_scatter"
            | "_reduce_scatter_base"
            | "reduce_scatter_tensor_coalesced"
            | "reduce_scatter_single"
            | "reduce_scatter_v" => EntryKind::ReduceScatter,
            "all_to_all" | "all_to_all_single" | "all_to_all_v_single" => EntryKind::AllToAll,
            "gather" | "gather_single" => EntryKind::Gather,
            "scatter" => EntryKind::Scatter,
            "barrier" | "all_reduce_barrier" => EntryKind::Barrier,
            "send" => EntryKind::Send(peers(rest, "->").map(|(from, to)| Peers { from, to })),
            "recv" => EntryKind::Recv(peers(rest, "<-").map(|(to, from)| Peers { from, to })),
            "split" => EntryKind::Split,
            "new_window" => EntryKind::NewWindow,
            _ if is_bracket(word) => EntryKind::Coalesced,
            _ => EntryKind::Other,
        };
        Self { backend, kind, text }
    }

    /// Returns the library that runs it, as the name says; an empty text if it does not.
    #[must_use]
    pub fn backend(&self) -> &str {
        &self.text[..self.backend]
    }

    /// Returns the operation's own word, without backend and peers: `_all_gather_base`.
    #[must_use]
    pub fn word(&self) -> &str {
        let name = self.text[self.backend..].trim_start_matches(':');
        name.split_once(' ').map_or(name, |(word, _)| word)
    }
}

/// Returns the two group ranks around an arrow.
fn peers(text: &str, arrow: &str) -> Option<(u32, u32)> {
    let (left, right) = text.split_once(arrow)?;
    Some((left.trim().parse().ok()?, right.trim().parse().ok()?))
}

/// Returns whether a word ends a bracket. The bracket of one kind of collective is named with the kind in capitals;
/// `allreduce_coalesced` and the like are operations.
fn is_bracket(word: &str) -> bool {
    let Some(of) = word.strip_suffix("coalesced") else { return false };
    of.is_empty()
        || of.strip_suffix('_').is_some_and(|kind| {
            !kind.is_empty() && kind.chars().all(|letter| letter.is_ascii_uppercase() || letter == '_')
        })
}

impl EntryKind {
    /// Returns who sends to whom, of a transfer whose name says it.
    #[must_use]
    pub const fn peers(self) -> Option<Peers> {
        match self {
            Self::Send(peers) | Self::Recv(peers) => peers,
            Self::AllReduce
            | Self::Broadcast
            | Self::Reduce
            | Self::AllGather
            | Self::ReduceScatter
            | Self::AllToAll
            | Self::Gather
            | Self::Scatter
            | Self::Barrier
            | Self::Coalesced
            | Self::Split
            | Self::NewWindow
            | Self::Other => None,
        }
    }

    /// Returns the group rank of the process that called it, of a transfer whose name says it.
    #[must_use]
    pub fn caller(self) -> Option<u32> {
        let peers = self.peers()?;
        Some(if matches!(self, Self::Send(_)) { peers.from } else { peers.to })
    }
}
