//! Kinds of collective: what each of them moves where. Who adds a kind adds it here, and what the rest of the model
//! asks follows.
//! Not here: how a collective runs ([`super::run`]).

use smallvec::{SmallVec, smallvec};

use crate::describe::{Describe, Description};
use crate::noun::p2p::Direction;

/// The collectives of NCCL, told apart by what they move where.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CollectiveKind {
    /// Every rank gets the reduction of all.
    AllReduce,
    /// Every rank gets the concatenation of all; `count` is one rank's part.
    AllGather,
    /// Every rank gets its part of the reduction; `count` is one rank's part.
    ReduceScatter,
    /// Every rank gets what the root has. The root is a position in the communicator, as the call has it: who is no
    /// member too, and a negative number in two's complement, for both of which the call returns an error.
    Broadcast {
        /// Communicator rank of the sender.
        root: u32,
    },
    /// The root gets the reduction of all, and nobody else gets anything. The root is a position in the
    /// communicator.
    Reduce {
        /// Communicator rank of the receiver.
        root: u32,
    },
    /// The root gets the concatenation of all, and nobody else gets anything (`ncclGather`, since 2.28).
    Gather {
        /// Communicator rank of the receiver.
        root: u32,
    },
    /// Every rank gets its part of what the root has (`ncclScatter`, since 2.28).
    Scatter {
        /// Communicator rank of the sender.
        root: u32,
    },
    /// Every rank gets a part from every rank; `count` is the part of a pair (`ncclAlltoAll`, since 2.28).
    AllToAll,
}

/// Whom a collective needs that has a root, by its position in the communicator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Root {
    /// Everybody gives and everybody gets.
    None,
    /// Only this rank gives.
    From(u32),
    /// Only this rank gets.
    To(u32),
}

/// How many parts of `count` elements a buffer holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Parts {
    One,
    /// One for each member.
    Each,
}

/// A kernel that works through symmetric windows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SymmetricKernel {
    AllReduce,
    AllGather,
    ReduceScatter,
}

/// What a first use connects. Ranks that connect different things do not find each other.
///
/// Algorithms connect one by one (`group.cc:150-196`), and on one host only an all-reduce has another than
/// the ring (predicted). All-reduce against broadcast, cold, was measured to leave a host in its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Connection {
    /// What an all-reduce takes.
    AllReduce,
    /// What every other collective takes.
    Ring,
}

/// What NCCL makes of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MadeOf {
    /// A kernel that all members run.
    Kernel,
    /// A send and a receive for each part that goes from one member to another, in the order of each pair with all
    /// other transfers (`v2.28.9:enqueue.cc:2584-2609`). A collective to the program alone.
    Transfers,
}

/// A transfer that a call is made of, as the member that calls sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Share {
    pub(super) direction: Direction,
    /// Position of the member at the other end.
    pub(super) peer: usize,
    /// The part of the input or of the output.
    pub(super) part: u64,
}

/// What a part of a member's output holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PartSource {
    /// A part of the input of the member at this position.
    Part { of: usize, part: u64 },
    /// The reduction of this part of all inputs.
    Reduction { part: u64 },
}

impl PartSource {
    fn is_of(self, member: usize) -> bool {
        match self {
            Self::Part { of, .. } => of == member,
            Self::Reduction { .. } => false,
        }
    }
}

/// All that tells kinds apart.
struct Facts {
    name: &'static str,
    /// As [`crate::describe`] has it, which does not follow names that people read.
    described: &'static str,
    root: Root,
    /// Whether what ranks send is reduced.
    reduces: bool,
    input: Parts,
    output: Parts,
    symmetric: Option<SymmetricKernel>,
    connection: Connection,
    made_of: MadeOf,
    /// How often NCCL's sorter counts a byte of a part, given the number of members (`include/comm.h:361-409`).
    weight: fn(u64) -> u64,
}

impl CollectiveKind {
    /// Every kind; those with a root have rank 0.
    pub const ALL: [Self; 8] = [
        Self::AllReduce,
        Self::AllGather,
        Self::ReduceScatter,
        Self::Broadcast { root: 0 },
        Self::Reduce { root: 0 },
        Self::AllToAll,
        Self::Gather { root: 0 },
        Self::Scatter { root: 0 },
    ];

    fn facts(self) -> Facts {
        let facts = Facts {
            name: "all_reduce",
            described: "AllReduce",
            root: Root::None,
            reduces: false,
            input: Parts::One,
            output: Parts::One,
            symmetric: None,
            connection: Connection::Ring,
            made_of: MadeOf::Kernel,
            weight: |_| 1,
        };
        match self {
            Self::AllReduce => Facts {
                reduces: true,
                symmetric: Some(SymmetricKernel::AllReduce),
                connection: Connection::AllReduce,
                weight: |_| 2,
                ..facts
            },
            Self::AllGather => Facts {
                name: "all_gather",
                described: "AllGather",
                output: Parts::Each,
                symmetric: Some(SymmetricKernel::AllGather),
                weight: |members| members,
                ..facts
            },
            Self::ReduceScatter => Facts {
                name: "reduce_scatter",
                described: "ReduceScatter",
                reduces: true,
                input: Parts::Each,
                symmetric: Some(SymmetricKernel::ReduceScatter),
                weight: |members| members,
                ..facts
            },
            Self::Broadcast { root } => {
                Facts { name: "broadcast", described: "Broadcast", root: Root::From(root), ..facts }
            }
            Self::Reduce { root } => {
                Facts { name: "reduce", described: "Reduce", root: Root::To(root), reduces: true, ..facts }
            }
            Self::Gather { root } => Facts {
                name: "gather",
                described: "Gather",
                root: Root::To(root),
                output: Parts::Each,
                made_of: MadeOf::Transfers,
                ..facts
            },
            Self::Scatter { root } => Facts {
                name: "scatter",
                described: "Scatter",
                root: Root::From(root),
                input: Parts::Each,
                made_of: MadeOf::Transfers,
                ..facts
            },
            Self::AllToAll => Facts {
                name: "all_to_all",
                described: "AllToAll",
                input: Parts::Each,
                output: Parts::Each,
                made_of: MadeOf::Transfers,
                ..facts
            },
        }
    }

    /// The kind of this name. Kinds with a root get this one; the others ignore it.
    #[must_use]
    pub fn named(name: &str, root: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name).map(|kind| kind.with_root(root))
    }

    /// The same kind with this root, if it has one.
    #[must_use]
    pub fn with_root(self, root: u32) -> Self {
        match self {
            Self::AllReduce | Self::AllGather | Self::ReduceScatter | Self::AllToAll => self,
            Self::Broadcast { .. } => Self::Broadcast { root },
            Self::Reduce { .. } => Self::Reduce { root },
            Self::Scatter { .. } => Self::Scatter { root },
            Self::Gather { .. } => Self::Gather { root },
        }
    }

    /// Returns what specs call it.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.facts().name
    }

    /// Whether what ranks send is reduced.
    #[must_use]
    pub fn reduces(self) -> bool {
        self.facts().reduces
    }

    /// The root, if there is one.
    #[must_use]
    pub fn root(self) -> Root {
        self.facts().root
    }

    /// Whether it tells members apart: by a root, or by the offset of their number in a buffer.
    #[must_use]
    pub fn tells_members_apart(self) -> bool {
        let Facts { root, input, output, .. } = self.facts();
        (root, input, output) != (Root::None, Parts::One, Parts::One)
    }

    /// Which buffers of a call count on the member that makes it, given whether it is the root (`argcheck.cc`).
    #[must_use]
    pub fn counting(self, is_root: impl Fn(u32) -> bool) -> Counting {
        match self.root() {
            Root::From(root) if !is_root(root) => Counting::Recv,
            Root::To(root) if !is_root(root) => Counting::Send,
            Root::None | Root::From(_) | Root::To(_) => Counting::Both,
        }
    }

    /// Bytes that the input and the output of a member need for parts of so many bytes.
    #[must_use]
    pub fn needs(self, part_bytes: u64, members: usize, counting: Counting) -> (u64, u64) {
        let Facts { input, output, .. } = self.facts();
        let len = |parts| match parts {
            Parts::One => part_bytes,
            Parts::Each => part_bytes.saturating_mul(members as u64),
        };
        match counting {
            Counting::Both => (len(input), len(output)),
            // The buffer that does not count stands for the other.
            Counting::Send => (len(input), len(input)),
            Counting::Recv => (len(output), len(output)),
        }
    }

    /// Whether the input and the output of a member share bytes and do not lie as they do in place (`nccl.h`): where one of them has
    /// a part for each member, the other is the member's own. Both are given by where they begin.
    #[must_use]
    pub fn overlaps(
        self,
        part_bytes: u64,
        (me, members): (usize, usize),
        (input, output): (u64, u64),
    ) -> bool {
        let own = part_bytes.saturating_mul(me as u64);
        let Facts { input: inputs, output: outputs, .. } = self.facts();
        let in_place = match (inputs, outputs) {
            (Parts::One, Parts::Each) => input == output.saturating_add(own),
            (Parts::Each, Parts::One) => output == input.saturating_add(own),
            (Parts::One, Parts::One) | (Parts::Each, Parts::Each) => input == output,
        };
        !in_place && self.shares_bytes(part_bytes, members, (input, output))
    }

    /// Whether the input and the output of a member share bytes, in place or not. Both are given by where they begin.
    #[must_use]
    pub fn shares_bytes(self, part_bytes: u64, members: usize, (input, output): (u64, u64)) -> bool {
        let (input_bytes, output_bytes) = self.needs(part_bytes, members, Counting::Both);
        input < output.saturating_add(output_bytes) && output < input.saturating_add(input_bytes)
    }

    /// The way to or from the root in words, with a space before them; empty without a root.
    #[must_use]
    pub fn way(self) -> String {
        match self.root() {
            Root::None => String::new(),
            Root::From(root) => format!(" from its rank {root}"),
            Root::To(root) => format!(" to its rank {root}"),
        }
    }

    /// The kernel that runs it where all buffers lie in symmetric windows.
    pub(crate) fn symmetric(self) -> Option<SymmetricKernel> {
        self.facts().symmetric
    }

    /// What its first use on a communicator connects.
    pub(crate) fn connection(self) -> Connection {
        self.facts().connection
    }

    /// Whether the input holds a part for each member.
    pub(super) fn gives_parts(self) -> bool {
        self.facts().input == Parts::Each
    }

    /// Whether NCCL makes transfers of it, and no kernel of its own.
    pub(crate) fn is_made_of_transfers(self) -> bool {
        self.facts().made_of == MadeOf::Transfers
    }

    /// The transfers that such a call of a member is made of, by its position among so many members.
    pub(super) fn shares(self, member: usize, members: usize) -> Vec<Share> {
        let mut shares = Vec::new();
        for peer in 0..members {
            for (_, source) in self.output(peer, members) {
                if let PartSource::Part { of, part } = source
                    && of == member
                {
                    shares.push(Share { direction: Direction::Send, peer, part });
                }
            }
            for (part, source) in self.output(member, members) {
                if source.is_of(peer) {
                    shares.push(Share { direction: Direction::Recv, peer, part });
                }
            }
        }
        shares
    }

    /// How often NCCL's sorter counts a byte of a part.
    pub(super) fn weight(self, members: u64) -> u64 {
        (self.facts().weight)(members)
    }

    /// What each part of a member's output holds, by the member's position among so many.
    pub(super) fn output(self, member: usize, members: usize) -> SmallVec<[(u64, PartSource); 1]> {
        let first = |source| smallvec![(0, source)];
        match self {
            Self::AllReduce => first(PartSource::Reduction { part: 0 }),
            Self::AllGather => (0..members).map(|of| (of as u64, PartSource::Part { of, part: 0 })).collect(),
            Self::ReduceScatter => first(PartSource::Reduction { part: member as u64 }),
            Self::Broadcast { root } => {
                first(PartSource::Part { of: (root as usize).min(members - 1), part: 0 })
            }
            Self::Reduce { root } if root as usize == member => first(PartSource::Reduction { part: 0 }),
            Self::Reduce { .. } => SmallVec::new(),
            Self::Gather { root } if root as usize == member => {
                (0..members).map(|of| (of as u64, PartSource::Part { of, part: 0 })).collect()
            }
            Self::Gather { .. } => SmallVec::new(),
            Self::Scatter { root } => {
                first(PartSource::Part { of: (root as usize).min(members - 1), part: member as u64 })
            }
            Self::AllToAll => {
                (0..members).map(|of| (of as u64, PartSource::Part { of, part: member as u64 })).collect()
            }
        }
    }
}

impl Describe for CollectiveKind {
    fn describe(&self, to: &mut Description<'_>) {
        let Facts { described, root, .. } = self.facts();
        match root {
            Root::None => to.word(described),
            Root::From(root) | Root::To(root) => to.call(described, &[("root", &root)]),
        }
    }
}

/// Which buffers of a collective count on a rank. What the others are does not matter: they may be null.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counting {
    /// Input and output: the member gives and gets.
    Both,
    /// The input alone: the member gives and gets nothing.
    Send,
    /// The output alone: the member gets and gives nothing.
    Recv,
}

impl Counting {
    /// Whether the input is read.
    pub(crate) fn reads(self) -> bool {
        self != Self::Recv
    }

    /// Whether the output is written.
    pub(crate) fn writes(self) -> bool {
        self != Self::Send
    }
}
