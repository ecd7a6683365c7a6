//! Rules and findings: what a program did wrong. A finding is data, never an `Err`.
//!
//! What a rule means is said once, in `specs/rules/`; here are its id and title only.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::id::Token;
use crate::machine::{CommId, MemoryId};
use crate::rank::{LocId, Rank, Thread};

macro_rules! rules {
    ($($variant:ident = $id:literal, $title:literal;)*) => {
        /// A rule of the contract, by its id.
        ///
        /// The order is the one in which a wait-for cycle through several objects is named.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[expect(missing_docs, reason = "each rule is documented in specs/rules")]
        pub enum Rule { $($variant,)* }

        impl Rule {
            /// Every rule, in the order of the variants.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The id, as in `specs/rules`.
            #[must_use]
            pub fn id(self) -> &'static str {
                match self { $(Self::$variant => $id,)* }
            }

            /// The rule in a few words.
            #[must_use]
            pub fn title(self) -> &'static str {
                match self { $(Self::$variant => $title,)* }
            }
        }
    };
}

rules! {
    Mutex1 = "MUTEX-1", "a lock is not held by a thread that waits for a thread that wants it";
    Mutex2 = "MUTEX-2", "a mutex is unlocked by the thread that locked it";
    Comm1 = "COMM-1", "every member enters the init and each split of a communicator, and several are entered in one order";
    Comm2 = "COMM-2", "a communicator is used by its members and while it lives";
    Comm3 = "COMM-3", "the n-th set-up event of a communicator is of one kind on every rank";
    Comm4 = "COMM-4", "one thread at a time makes calls on a communicator";
    Comm5 = "COMM-5", "the arguments of a call on a communicator are valid";
    Comm6 = "COMM-6", "every member destroys a communicator that was used, and several in one order";
    Win1 = "WIN-1", "every member enters each registration of a communicator, and several are entered in one order";
    Win2 = "WIN-2", "the buffers of one symmetric collective lie in windows of one number on every rank";
    Win3 = "WIN-3", "the n-th registrations have one size on every rank";
    Win4 = "WIN-4", "the buffers of one symmetric collective have one offset in the window";
    Win5 = "WIN-5", "only memory that has a shareable handle can be registered, from an aligned offset";
    Win6 = "WIN-6", "the n-th registrations have one kind of flags on every rank";
    Win7 = "WIN-7", "the buffers of one collective are registered on every rank or on none";
    Win8 = "WIN-8", "a collective declared symmetric takes a symmetric kernel";
    Win9 = "WIN-9", "a window is deregistered once and not while in use";
    Win10 = "WIN-10", "an operation ends inside the window in which it starts";
    Win11 = "WIN-11", "memory is deregistered before it is freed";
    Win12 = "WIN-12", "a collective does not run on a window whose memory was replaced";
    P2p3 = "P2P-3", "ranks that use a pair for the first time do not wait for one another in a circle";
    Host1 = "HOST-1", "every member enters a host barrier or agreement";
    Exchange1 = "EXCHANGE-1", "every member enters each exchange, and several are entered in one order";
    Exchange2 = "EXCHANGE-2", "the n-th exchange of these ranks is for the same thing on every rank";
    Exchange3 = "EXCHANGE-3", "the allocations of one exchange have one size";
    Exchange4 = "EXCHANGE-4", "the buffers of one exchange lie at one offset in their allocations";
    Store1 = "STORE-1", "a key that is awaited is set";
    Store2 = "STORE-2", "a read of a key is ordered with each later set or delete of it";
    Flag1 = "FLAG-1", "a value that is awaited on a flag is there when somebody looks";
    P2p1 = "P2P-1", "the peer of a transfer is a rank of the communicator, and a rank that sends to itself receives from itself in the same group";
    P2p2 = "P2P-2", "every send needs a matching receive; do not rely on NCCL's buffering";
    P2p4 = "P2P-4", "count and type of a send are those of its receive";
    P2p5 = "P2P-5", "the buffers of a transfer are registered at both ends or at none";
    P2p6 = "P2P-6", "no transfer waits for another of its group that may begin after it";
    Coll1 = "COLL-1", "every member launches each collective";
    Coll2 = "COLL-2", "the n-th collective of a communicator is of one kind on every rank";
    Coll3 = "COLL-3", "count, type, reduction and root agree on every rank";
    Coll4 = "COLL-4", "communicators that share ranks launch in one order on every rank";
    Overlap1 = "OVERLAP-1", "launches that are declared to overlap can run at the same time";
    Group3 = "GROUP-3", "a group uses no communicator that it makes or ends, splits none twice, and merges an init with nothing but inits";
    Group1 = "GROUP-1", "every call in a group is valid";
    Group2 = "GROUP-2", "a group that is started is ended, and only then";
    Graph1 = "GRAPH-1", "no call that a capture forbids is made while it records";
    Graph2 = "GRAPH-2", "memory that a graph captured is reserved while it is replayed";
    Graph3 = "GRAPH-3", "a window that a graph captured is registered when it is replayed";
    Graph4 = "GRAPH-4", "graphs are destroyed before the communicators that they captured";
    Graph5 = "GRAPH-5", "a collective is captured on every rank or on none";
    Graph6 = "GRAPH-6", "a capture begins, joins and ends its streams, and a replayed graph exists";
    Graph7 = "GRAPH-7", "nobody waits for an event or asks about it whose last record was captured";
    Mem1 = "MEM-1", "no operation touches memory that is freed";
    Mem2 = "MEM-2", "two accesses to the same bytes, one a write, are ordered";
    Mem3 = "MEM-3", "memory is freed once";
    Mem4 = "MEM-4", "a buffer that an operation is given exists and is long enough";
    Mem5 = "MEM-5", "a buffer holds what the program says that it holds";
    Ipc1 = "IPC-1", "memory is exported by the handle that it has, and other ranks open it";
    Ipc2 = "IPC-2", "a handle is opened while its memory lives";
    Ipc3 = "IPC-3", "memory of cudaMalloc is freed after every peer has closed it";
    Ipc4 = "IPC-4", "a mapping is used while it is open, and closed once for each open";
    List1 = "LIST-1", "an index into a list is smaller than its length";
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.id())
    }
}

/// No rule has this id.
#[derive(Debug, Clone, thiserror::Error)]
#[error("no rule {0:?}")]
pub struct UnknownRule(pub String);

impl FromStr for Rule {
    type Err = UnknownRule;

    fn from_str(text: &str) -> Result<Self, UnknownRule> {
        Self::ALL.iter().copied().find(|rule| rule.id() == text).ok_or_else(|| UnknownRule(text.to_owned()))
    }
}

/// One operation of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct OpRef {
    /// The rank that does it.
    pub rank: Rank,
    /// The host thread that calls it.
    pub thread: Thread,
    /// Its position among the operations and questions of that thread in this run, from 0.
    pub index: u32,
    /// Where it was written.
    pub loc: LocId,
}

impl Hash for OpRef {
    /// Where it was written follows from which operation it is, and places are numbered as a program is evaluated.
    fn hash<H: Hasher>(&self, state: &mut H) {
        let Self { rank, thread, index, loc: _ } = self;
        (rank, thread, index).hash(state);
    }
}

/// The object that a finding is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum About {
    /// A communicator that was made.
    Comm(CommId),
    /// The n-th window of a communicator.
    Window(CommId, u32),
    /// The transfers of a communicator from one rank to another.
    Pair(CommId, Rank, Rank),
    /// Memory of a rank.
    Memory(Rank, MemoryId),
    /// A communicator before it exists, or a named noun.
    Named(Token),
    /// A named noun of one rank.
    Of(Rank, Token),
    /// A rank itself, where the rule is about no single object of it.
    Rank(Rank),
    /// The host barriers and agreements of the job, as one object.
    Hosts,
}

/// What tells findings of a run apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FindingKey {
    /// The rule that is broken.
    pub rule: Rule,
    /// The object that it is broken on.
    pub about: About,
    /// The rank whose operations alone break it: each rank that makes the same mistake has a finding of its own. None
    /// where operations of several ranks break it together.
    pub by: Option<Rank>,
}

impl FindingKey {
    /// What tells the finding of these operations apart.
    #[must_use]
    pub fn new(rule: Rule, about: About, ops: &[OpRef]) -> Self {
        let by = ops.first().map(|op| op.rank).filter(|rank| ops.iter().all(|op| op.rank == *rank));
        Self { rule, about, by }
    }
}

/// A rule broken in a run.
#[derive(Debug, Clone)]
pub struct Finding {
    /// The rule that is broken.
    pub rule: Rule,
    /// The object that it is broken on.
    pub about: About,
    /// The operations that break it together, the blocked or failing one first.
    pub ops: Vec<OpRef>,
    /// Number of operations in its causal past.
    pub past: u64,
    /// One sentence, in the spec's own names; empty while exploring.
    pub sentence: String,
}
