//! The state: the product of the tables of the nouns, and nothing that no rule reads.
//!
//! Each rank is shared until it is written, so a copy of a state costs one pointer a rank. Logs of past
//! accesses are functions of the positions of the threads and stay out of the hash.
//! Not here: how states follow one another.

use crate::clock::{Actor, Clock};
use crate::host::value::{Buffer, CommId, Value};
use crate::judge::finding::{About, Finding, OpRef, Rule};
use crate::judge::ledger::Ledger;
use crate::noun::address::Addresses;
use crate::noun::barrier::Hosts;
use crate::noun::container::Containers;
use crate::noun::event::Events;
use crate::noun::exchange::Exchanges;
use crate::noun::flag::Flags;
use crate::noun::graph::Graphs;
use crate::noun::ipc::Mappings;
use crate::noun::memory::Memories;
use crate::noun::mutex::Mutexes;
use crate::noun::overlap::Overlaps;
use crate::noun::pool::Pools;
use crate::noun::store::Keys;
use crate::op::{Collective, CollectiveKind, Connection, Declared, FlagAct, Resources, Way, WindowFlags};
use crate::order::dependence::Touches;
use crate::platform::KernelPath;
use crate::program::{Answer, Dtype, ReduceOp, Stretch};
use crate::rank::{Entry, Rank, Thread, Token};
use crate::term::{Content, Term};
use crate::walk::{LocalHash, Renumber, Renumbering, hash_of, walk};
use rustc_hash::FxHasher;
use std::collections::{BTreeMap, VecDeque};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// A table, as its noun reaches it in the whole that it is part of. What a table holds is its noun's own.
pub(crate) trait Table<In> {
    fn of(whole: &In) -> &Self;
    fn of_mut(whole: &mut In) -> &mut Self;
}

/// Defines a product of tables, each with the two words of its [`walk!`].
macro_rules! tables {
    (
        $(#[$doc:meta])* $visible:vis struct $name:ident {
            $($field:ident: $table:ty = $identity:tt $numbers:ident,)*
        }
        open {
            $($(#[$odoc:meta])* $ovis:vis $ofield:ident: $otable:ty = $oidentity:tt $onumbers:ident,)*
        }
    ) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Default)]
        $visible struct $name { $($field: $table,)* $($(#[$odoc])* $ovis $ofield: $otable,)* }

        walk!(struct $name { $($field: $identity $numbers,)* $($ofield: $oidentity $onumbers,)* });

        $(impl Table<$name> for $table {
            fn of(whole: &$name) -> &Self {
                &whole.$field
            }

            fn of_mut(whole: &mut $name) -> &mut Self {
                &mut whole.$field
            }
        })*
    };
}

/// What threads wait for together. The n-th event of a kind pairs with the others' n-th by order alone.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Meeting {
    /// `ncclCommInitRank`: the n-th init of a name among these ranks.
    Init(Token, u32, Arc<[Rank]>),
    /// The n-th set-up event of a communicator: registration or split.
    Setup(CommId, u32),
    /// First use of the ordinary path of a communicator.
    Connect(CommId, Connection),
    /// First use of a communicator from one rank to another.
    Link(Link, Handshake),
    /// The n-th host barrier or agreement of these ranks.
    Host(Arc<[Rank]>, u32),
    /// The n-th exchange of shareable handles of these ranks.
    Exchange(Arc<[Rank]>, u32),
}

/// The way from one rank of a communicator to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Link {
    /// The communicator.
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

/// Where a host thread stands.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Status {
    /// At its next operation.
    Ready,
    /// Inside an operation that waits for other ranks.
    Waiting(Meeting),
    /// Inside a call that never returns: nobody specifies what the call does after this rule was broken.
    Stuck,
    /// Returned.
    Done,
    /// The process ended here.
    Exited(Token),
}

/// A call of an open group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum GroupCall {
    Register { comm: CommId, memory: Value, flags: WindowFlags, slot: u32, op: OpRef },
    Launch { comm: CommId, launch: Arc<Launch> },
    Transfer { comm: CommId, stream: Token, transfer: Arc<Half> },
}

walk!(enum GroupCall {
    Register { comm: hashed fixed, memory: hashed fixed, flags: hashed fixed, slot: hashed fixed, op: hashed moved },
    Launch { comm: hashed fixed, launch: hashed moved },
    // A transfer names a rank: ranks are told apart then.
    Transfer { comm: hashed fixed, stream: hashed fixed, transfer: hashed fixed },
});

/// An open group of a thread.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Group {
    pub(crate) depth: u32,
    /// What its end will return, because a call inside failed.
    pub(crate) failed: Option<i32>,
    pub(crate) calls: Vec<GroupCall>,
}

walk!(struct Group { depth: hashed fixed, failed: hashed fixed, calls: hashed moved });

/// What the operations of a thread produced. Slots are only ever added, so their hash is kept as they come.
#[derive(Debug, Clone, Default)]
pub(crate) struct Slots {
    values: Arc<Vec<Value>>,
    hash: u64,
}

impl Slots {
    pub(crate) fn add(&mut self, values: &[Value]) {
        if values.is_empty() {
            return;
        }
        for value in values {
            self.hash = hash_of(&(self.hash, value));
        }
        Arc::make_mut(&mut self.values).extend_from_slice(values);
    }

    pub(crate) fn get(&self, slot: u32) -> Option<&Value> {
        self.values.get(slot as usize)
    }

    pub(crate) fn iter(&self) -> std::slice::Iter<'_, Value> {
        self.values.iter()
    }

    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }

    pub(crate) fn len(&self) -> u32 {
        u32::try_from(self.values.len()).expect("fewer than 2^32 slots")
    }

    /// The end of a group fills what its calls left open.
    pub(crate) fn fill(&mut self, slot: u32, value: Value) {
        let mut values = self.values.to_vec();
        values[slot as usize] = value;
        *self = Self::default();
        self.add(&values);
    }
}

impl Group {
    /// Whether a registration waits for the end.
    pub(crate) fn registers(&self) -> bool {
        self.calls.iter().any(|call| matches!(call, GroupCall::Register { .. }))
    }
}

/// A host thread.
#[derive(Debug, Clone)]
pub struct ThreadState {
    pub(crate) entry: Entry,
    pub(crate) answers: Arc<Vec<Answer>>,
    pub(crate) stretch: Arc<Stretch>,
    /// Next operation of the stretch.
    pub(crate) next: u32,
    /// Operations and questions done so far.
    pub(crate) index: u32,
    pub(crate) slots: Slots,
    /// Choices made for the next operation.
    pub(crate) picks: Vec<u32>,
    /// Where the thread stands.
    pub status: Status,
    pub(crate) group: Group,
    pub(crate) clock: Clock,
}

walk!(struct ThreadState {
    entry: hashed fixed,
    answers: hashed fixed,
    // It follows from entry and answers.
    stretch: derived fixed,
    next: hashed fixed,
    // It follows from the answers and from where the thread stands.
    index: derived fixed,
    slots: (Slots::hash) fixed,
    picks: hashed fixed,
    // A rendezvous names members, which are the whole world where ranks are renumbered, or a link, and ranks are told
    // apart then.
    status: hashed fixed,
    group: hashed moved,
    clock: hashed moved,
});

/// The parameters of a collective. Copied out of the program, which a large job would otherwise read twice.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Call {
    pub(crate) kind: CollectiveKind,
    pub(crate) count: u64,
    pub(crate) dtype: Dtype,
    pub(crate) op: ReduceOp,
    pub(crate) stream: Token,
    pub(crate) declared: Declared,
}

impl From<&Collective> for Call {
    fn from(call: &Collective) -> Self {
        let Collective { kind, count, dtype, op, stream, declared, .. } = *call;
        Self { kind, count, dtype, op, stream, declared }
    }
}

/// Whether the program runs a launch itself or a replay does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Recorded {
    No,
    /// By the graph of this name.
    By(Token),
}

/// A collective as one rank launched it.
#[derive(Debug, Clone)]
pub(crate) struct Launch {
    pub(crate) call: Call,
    pub(crate) comm: CommId,
    /// Position among the launches of the communicator on this rank.
    pub(crate) nth: u32,
    /// The same position in the order of the program, from which groups depart.
    pub(crate) written: u32,
    /// Position among the launches of the communicator's family on this rank.
    pub(crate) turn: u32,
    /// Position among all launches of this rank.
    pub(crate) issue: u32,
    pub(crate) send: Arc<Buffer>,
    pub(crate) recv: Arc<Buffer>,
    /// Window number and offset in it.
    pub(crate) send_window: Option<(u32, u64)>,
    pub(crate) recv_window: Option<(u32, u64)>,
    pub(crate) path: KernelPath,
    /// Other collectives were launched by the same group.
    pub(crate) companions: bool,
    /// Whether a graph recorded it.
    pub(crate) recorded: Recorded,
    pub(crate) op: OpRef,
}

impl PartialEq for Launch {
    fn eq(&self, other: &Self) -> bool {
        self.op == other.op && self.nth == other.nth && self.path == other.path && self.send == other.send
    }
}

impl Eq for Launch {}

walk!(struct Launch {
    // What the operation says follows from its position.
    call: derived fixed,
    comm: derived fixed,
    nth: hashed fixed,
    written: hashed fixed,
    turn: hashed fixed,
    issue: hashed fixed,
    send: hashed fixed,
    recv: hashed fixed,
    send_window: hashed fixed,
    recv_window: hashed fixed,
    path: hashed fixed,
    companions: derived fixed,
    recorded: hashed fixed,
    op: (OpRef::position) moved,
});

/// Half of a transfer, as one rank called it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Half {
    pub(crate) way: Way,
    /// World rank at the other end.
    pub(crate) peer: Rank,
    pub(crate) buffer: Arc<Buffer>,
    pub(crate) count: u64,
    pub(crate) dtype: Dtype,
    /// The window of the communicator in which the buffer starts, if the transfer is large enough to go through
    /// it.
    pub(crate) window: Option<u32>,
    pub(crate) op: OpRef,
}

// A transfer names ranks: they are told apart then.
walk!(struct Half {
    way: hashed fixed,
    peer: hashed fixed,
    buffer: hashed fixed,
    count: hashed fixed,
    dtype: hashed fixed,
    window: hashed fixed,
    op: hashed fixed,
});

/// What became of the transfers of a group on one communicator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Planned {
    /// They progress together.
    Whole,
    /// Some begin once others are over, and this is a part of them.
    Part,
}

/// Transfers of one rank that progress together: those of a group on one communicator, part of them, or a single one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Transfers {
    pub(crate) comm: CommId,
    /// Position among the launches of the communicator's family on this rank.
    pub(crate) turn: u32,
    /// Position among all launches of this rank.
    pub(crate) issue: u32,
    /// It stands in all of these, and begins when it is at the head of each (`enqueue.cc:1669-1673`).
    pub(crate) streams: Vec<Token>,
    pub(crate) transfers: Vec<Half>,
    pub(crate) planned: Planned,
}

// A transfer names ranks: they are told apart then.
walk!(struct Transfers {
    comm: hashed fixed,
    turn: hashed fixed,
    issue: hashed fixed,
    streams: hashed fixed,
    transfers: hashed fixed,
    planned: hashed fixed,
});

/// How far the launch of transfers has come whose turn it is.
#[derive(Debug, Clone)]
pub(crate) struct Progress {
    /// Of each transfer.
    pub(crate) over: Vec<bool>,
    /// What receivers of its sends learn.
    pub(crate) told: Clock,
    /// What its receives have learned, for when it is over.
    pub(crate) heard: Option<Clock>,
}

// Only transfers have progress: ranks are told apart then.
walk!(struct Progress { over: hashed fixed, told: hashed fixed, heard: hashed fixed });

/// The launches of a communicator's family on a rank: one after the other, on whichever streams.
#[derive(Debug, Clone, Default)]
pub(crate) struct Turns {
    pub(crate) launched: u32,
    pub(crate) over: u32,
    pub(crate) progress: Option<Progress>,
}

walk!(struct Turns { launched: hashed fixed, over: hashed fixed, progress: hashed moved });

/// A send that is over before its receive has begun.
#[derive(Debug, Clone)]
pub(crate) struct Message {
    pub(crate) sent: Half,
    pub(crate) content: Content,
    pub(crate) told: Clock,
    /// The send, which counts as run once it is received.
    pub(crate) ran: Ran,
}

// A transfer names ranks: they are told apart then.
walk!(struct Message {
    sent: hashed fixed,
    content: hashed fixed,
    told: hashed fixed,
    // What ran is a function of positions.
    ran: derived fixed,
});

/// What waits on a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Work {
    Kernel(Arc<Kernel>),
    Copy {
        to: Arc<Buffer>,
        from: Arc<Buffer>,
    },
    Expect(Arc<Expectation>),
    Flag(Token, FlagAct),
    Collective(Arc<Launch>),
    Transfers(Arc<Transfers>),
    Record(Token, u32),
    Wait(Token, u32),
    /// A block is handed out: what it holds is its own initial term, once all before it is over. Whoever uses
    /// a block of a caching allocator fills it on its stream.
    Fresh(Arc<Buffer>),
}

walk!(enum Work {
    Kernel(kernel: hashed fixed),
    Copy { to: hashed fixed, from: hashed fixed },
    // Whoever expects something names the rank that wrote it: ranks are told apart then.
    Expect(expectation: hashed fixed),
    Flag(flag: hashed fixed, act: hashed fixed),
    Collective(launch: hashed moved),
    // A transfer names a rank: ranks are told apart then.
    Transfers(launch: hashed fixed),
    Record(event: hashed fixed, nth: hashed fixed),
    Wait(event: hashed fixed, nth: hashed fixed),
    Fresh(buffer: hashed fixed),
});

/// A kernel of the program, and what it uses.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Kernel {
    pub(crate) name: Token,
    pub(crate) reads: Vec<Arc<Buffer>>,
    pub(crate) writes: Vec<Arc<Buffer>>,
}

/// What the author says a buffer holds: what a kernel of a rank wrote.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Expectation {
    pub(crate) buffer: Arc<Buffer>,
    pub(crate) kernel: Token,
    pub(crate) by: Rank,
}

#[derive(Debug, Clone)]
pub(crate) struct Queued {
    pub(crate) work: Work,
    pub(crate) issue: Clock,
    pub(crate) op: OpRef,
    /// The replay that put it there; `op` then is where it was recorded.
    pub(crate) replay: Option<OpRef>,
}

walk!(struct Queued {
    work: hashed moved,
    issue: hashed moved,
    op: (OpRef::position) moved,
    replay: (position_of_replay) moved,
});

fn position_of_replay(replay: &Option<OpRef>) -> Option<(Thread, u32)> {
    replay.as_ref().map(OpRef::position)
}

impl Queued {
    /// The operation of a host thread that put it there.
    pub(crate) fn issuer(&self) -> OpRef {
        self.replay.unwrap_or(self.op)
    }
}

/// A stream: a queue whose head runs.
#[derive(Debug, Clone)]
pub(crate) struct Stream {
    pub(crate) queue: VecDeque<Queued>,
    /// The head never ends: ranks run different kernels.
    pub(crate) hung: bool,
    pub(crate) clock: Clock,
}

walk!(struct Stream { queue: hashed moved, hung: hashed fixed, clock: hashed moved });

/// A registration as one rank made it.
#[derive(Debug, Clone)]
pub(crate) struct Window {
    /// Position among the set-up events of the communicator.
    pub(crate) nth: u32,
    pub(crate) buffer: Buffer,
    pub(crate) flags: WindowFlags,
    pub(crate) live: bool,
    /// Gone, but the lookup table still names it.
    pub(crate) dangling: bool,
    pub(crate) op: OpRef,
    /// Last use by each actor.
    pub(crate) uses: Vec<LastUse>,
}

/// The last operation of an actor that used a window.
#[derive(Debug, Clone)]
pub(crate) struct LastUse {
    actor: Actor,
    epoch: u32,
}

walk!(struct LastUse { actor: hashed moved, epoch: hashed fixed });

walk!(struct Window {
    nth: hashed fixed,
    buffer: hashed fixed,
    flags: hashed fixed,
    live: hashed fixed,
    dangling: hashed fixed,
    op: hashed moved,
    uses: hashed moved,
});

impl Window {
    /// Whoever has this clock uses it now.
    pub(crate) fn use_by(&mut self, clock: &Clock) {
        self.uses.retain(|used| used.actor != clock.actor());
        self.uses.push(LastUse { actor: clock.actor(), epoch: clock.epoch() });
    }

    /// Whether whoever has this clock knows that every use is over.
    pub(crate) fn unused_for(&self, clock: &Clock) -> bool {
        self.uses.iter().all(|used| clock.after(used.actor, used.epoch))
    }

    /// Whether the lookup table orders the two by nothing but their insertion.
    pub(crate) fn starts_with(&self, other: &Self) -> bool {
        self.buffer.address == other.buffer.address && self.buffer.offset_bytes == other.buffer.offset_bytes
    }
}

/// A registration that was queued by a group that was discarded.
#[derive(Debug, Clone)]
pub(crate) struct Leftover {
    pub(crate) memory: Value,
    pub(crate) flags: WindowFlags,
    pub(crate) op: OpRef,
}

walk!(struct Leftover { memory: hashed fixed, flags: hashed fixed, op: hashed moved });

/// What one rank knows of a communicator.
#[derive(Debug, Clone)]
pub(crate) struct View {
    /// Number of members.
    pub(crate) size: usize,
    /// The communicator whose channels it uses: itself, unless a split shares the parent's.
    pub(crate) family: CommId,
    /// What communicators split from it use.
    pub(crate) children: Resources,
    /// Set-up events entered.
    pub(crate) setups: u32,
    /// The communicator that was the first at its address.
    pub(crate) address: CommId,
    pub(crate) connected: bool,
    pub(crate) destroyed: bool,
    /// Collectives launched.
    pub(crate) launched: u32,
    /// Links of this rank, with the last handshake that is over. None if every link was there from the start.
    pub(crate) links: Option<Vec<(Link, Handshake)>>,
    /// Bytes sent on each link so far, where it matters how many NCCL can hold.
    pub(crate) sent_bytes: Vec<(Link, u64)>,
    pub(crate) windows: Vec<Window>,
    /// Registrations of discarded groups, oldest first. They run before the rank's next one.
    pub(crate) leftover: Vec<Leftover>,
}

walk!(struct View {
    size: hashed fixed,
    family: hashed fixed,
    children: hashed fixed,
    setups: hashed fixed,
    address: hashed fixed,
    connected: hashed fixed,
    destroyed: hashed fixed,
    launched: hashed fixed,
    // Links name ranks: they are told apart then.
    links: hashed fixed,
    sent_bytes: hashed fixed,
    windows: hashed moved,
    leftover: hashed moved,
});

impl View {
    /// A communicator that was just entered.
    pub(crate) fn new(size: usize, (family, children): (CommId, Resources), address: CommId) -> Self {
        Self {
            size,
            family,
            children,
            setups: 0,
            address,
            connected: false,
            destroyed: false,
            launched: 0,
            links: Some(Vec::new()),
            sent_bytes: Vec::new(),
            windows: Vec::new(),
            leftover: Vec::new(),
        }
    }

    /// The window that the n-th set-up event made, registered still or not.
    pub(crate) fn window(&self, nth: u32) -> Option<&Window> {
        self.windows.iter().find(|window| window.nth == nth)
    }
}

tables! {
    /// One rank: the tables of the nouns that are its own.
    pub struct RankState {
        events: Events = hashed moved,
        overlaps: Overlaps = hashed moved,
        // Whoever opens memory of another rank names it: ranks are told apart then.
        mappings: Mappings = hashed fixed,
        mutexes: Mutexes = hashed moved,
        graphs: Graphs = hashed moved,
        containers: Containers = hashed fixed,
        // Members are the whole world in rank order where ranks are renumbered.
        hosts: Hosts = hashed fixed,
        exchanges: Exchanges = hashed fixed,
        addresses: Addresses = hashed fixed,
        memories: Memories = hashed moved,
        pools: Pools = hashed moved,
        ledger: Ledger = hashed fixed,
        touches: Touches = derived moved,
    }
    open {
        pub threads: Vec<ThreadState> = hashed moved,
        pub(crate) streams: Vec<(Token, Stream)> = hashed moved,
        pub(crate) views: Vec<(CommId, View)> = hashed moved,
        pub(crate) turns: Vec<(CommId, Turns)> = hashed moved,
        pub(crate) inits: Vec<(Token, u32)> = derived fixed,
        pub(crate) free_comms: Vec<CommId> = hashed fixed,
        pub(crate) promised: Vec<(u32, CommId)> = hashed fixed,
        pub(crate) issued: u32 = derived fixed,
    }
}

/// A launch that took part in a collective or a transfer that ran.
#[derive(Debug, Clone)]
pub(crate) struct Ran {
    pub(crate) rank: Rank,
    /// Position among all launches of the rank.
    pub(crate) issue: u32,
    /// What the thread that launched it knew.
    pub(crate) called: Clock,
    /// What its stream knew when it began.
    pub(crate) began: Clock,
    pub(crate) op: OpRef,
}

walk!(struct Ran {
    rank: hashed moved,
    issue: hashed fixed,
    called: hashed moved,
    began: hashed moved,
    op: hashed moved,
});

impl Ran {
    /// Whether it began before whoever holds this clock.
    pub(crate) fn known_to(&self, clock: &Clock) -> bool {
        clock.after(self.began.actor(), self.began.epoch())
    }

    /// Whether it is launched before another of its rank in every run. Of two threads that nothing orders either
    /// may come first, whichever did here.
    pub(crate) fn launched_before(&self, other: &Self) -> bool {
        self.launched_before_call(&other.called, other.issue)
    }

    /// The same, of what a thread launches that knows this.
    pub(crate) fn launched_before_call(&self, called: &Clock, issue: u32) -> bool {
        let (actor, epoch) = (self.called.actor(), self.called.epoch());
        // The calls of a group are launched at one count.
        if actor == called.actor() { self.issue < issue } else { called.after(actor, epoch) }
    }
}

/// A collective or a transfer that ran, kept while another may turn out to be unordered with it.
#[derive(Debug, Clone)]
pub(crate) struct Executed {
    pub(crate) comm: CommId,
    pub(crate) members: Arc<[Ran]>,
}

walk!(struct Executed { comm: hashed fixed, members: hashed moved });

tables! {
    /// What all ranks share.
    pub(crate) struct Shared {
        keys: Keys = hashed moved,
        flags: Flags = hashed moved,
        touches: Touches = derived moved,
    }
    open {
        pub(crate) comm_order: Vec<CommId> = hashed fixed,
        pub(crate) executed: Vec<Executed> = derived moved,
        /// How many of them there are when those are looked for next that may be forgotten.
        pub(crate) forget_at: usize = derived fixed,
        // A transfer names ranks: they are told apart then.
        /// What was sent and not yet received.
        pub(crate) in_flight: BTreeMap<Link, VecDeque<Message>> = hashed fixed,
        /// Bytes of a link that can be in flight, once luck has decided.
        pub(crate) in_flight_bytes: Option<u64> = hashed fixed,
        /// Whether transfers of a group that need not progress together take turns, once luck has decided.
        pub(crate) in_turn: Option<bool> = hashed fixed,
    }
}

/// A choice that led to a state, newest first.
#[derive(Debug)]
pub struct Path {
    /// The choice, with the ranks' original numbers.
    pub choice: crate::machine::Choice,
    /// What came before.
    pub before: Option<Arc<Path>>,
}

/// Cached hashes of a rank.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Hashes {
    /// Of everything that rules read.
    pub(crate) whole: Option<u64>,
    /// Of what it is on its own.
    pub(crate) local: Option<u64>,
}

/// A state of the whole job.
#[derive(Debug, Clone)]
pub struct State {
    pub(crate) ranks: Vec<Arc<RankState>>,
    /// Of each rank; empty where it changed since.
    pub(crate) hashes: Vec<Hashes>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) shared_hash: u64,
    pub(crate) shared_stale: bool,
    pub(crate) findings: Arc<BTreeMap<(Rule, About), Arc<Finding>>>,
    /// Nobody specifies what follows this operation.
    pub(crate) undefined: Option<OpRef>,
    pub(crate) faults_used: u32,
    /// The choices that led here; not part of the identity.
    pub path: Option<Arc<Path>>,
    /// `original[rank]`: its number before ranks were renumbered; not part of the identity.
    pub(crate) original: Arc<[Rank]>,
    /// Operations executed; not part of the identity.
    pub steps: u64,
}

impl LocalHash for RankState {
    fn local_hash<H: Hasher>(&self, state: &mut H) {
        for t in &self.threads {
            (t.entry, &t.answers, t.next, &t.picks).hash(state);
            matches!(t.status, Status::Ready).hash(state);
            t.slots.hash().hash(state);
        }
        self.addresses.local_hash(state);
        self.containers.local_hash(state);
        self.ledger.local_hash(state);
        self.pools.local_hash(state);
    }
}

impl State {
    /// What all ranks share.
    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }

    /// A rank.
    #[must_use]
    pub fn rank(&self, rank: Rank) -> &RankState {
        &self.ranks[rank.at()]
    }

    pub(crate) fn rank_mut(&mut self, rank: Rank) -> &mut RankState {
        self.hashes[rank.at()] = Hashes::default();
        Arc::make_mut(&mut self.ranks[rank.at()])
    }

    pub(crate) fn shared_mut(&mut self) -> &mut Shared {
        self.shared_stale = true;
        Arc::make_mut(&mut self.shared)
    }

    /// The findings so far.
    #[must_use]
    pub fn findings(&self) -> &BTreeMap<(Rule, About), Arc<Finding>> {
        &self.findings
    }

    /// Brings the cached hashes up to date.
    pub fn seal(&mut self) {
        for (hash, rank) in self.hashes.iter_mut().zip(&self.ranks) {
            hash.whole.get_or_insert_with(|| hash_of(&**rank));
        }
        if self.shared_stale {
            self.shared_hash = hash_of(&*self.shared);
            self.shared_stale = false;
        }
    }

    /// A 64-bit fingerprint of everything that rules read.
    ///
    /// # Panics
    /// If the state was changed since [`State::seal`].
    #[must_use]
    pub fn fingerprint(&self) -> u64 {
        assert!(!self.shared_stale, "seal before taking a fingerprint");
        let mut hasher = FxHasher::default();
        for hash in &self.hashes {
            hash.whole.expect("seal before taking a fingerprint").hash(&mut hasher);
        }
        self.shared_hash.hash(&mut hasher);
        for key in self.findings.keys() {
            key.hash(&mut hasher);
        }
        self.undefined.is_some().hash(&mut hasher);
        self.faults_used.hash(&mut hasher);
        // FxHash mixes its last word weakly; a multiply-shift spreads it over all bits.
        let hash = hasher.finish();
        (hash ^ (hash >> 32)).wrapping_mul(0x9E37_79B9_7F4A_7C15)
    }

    /// What a rank looks like on its own, without knowledge of others.
    pub(crate) fn local_hash(&mut self, rank: Rank) -> u64 {
        let own = &self.ranks[rank.at()];
        *self.hashes[rank.at()].local.get_or_insert_with(|| {
            let mut hasher = FxHasher::default();
            own.local_hash(&mut hasher);
            hasher.finish()
        })
    }

    /// Ranks get other numbers. Valid only where they are interchangeable.
    pub(crate) fn renumber(&mut self, by: &mut Renumbering<'_>) {
        let Self {
            ranks,
            hashes,
            shared,
            shared_hash: _,
            shared_stale,
            findings,
            undefined,
            faults_used: _,
            path: _,
            original,
            steps: _,
        } = self;
        let before = (0..).map(Rank).zip(ranks.clone()).zip(hashes.clone()).zip(original.to_vec());
        let mut numbers = original.to_vec();
        for (((old, mut rank), known), number) in before {
            let new = by.rank(old);
            numbers[new.at()] = number;
            // What a rank knows of others, and what its memory holds of them, may be alike for all.
            if new == old && rank.stays(by) {
                continue;
            }
            rank.renumber(by);
            ranks[new.at()] = rank;
            // What a rank looks like on its own does not depend on its number.
            hashes[new.at()] = Hashes { whole: None, ..known };
        }
        *original = numbers.into();
        *shared_stale = true;
        shared.renumber(by);
        let moved =
            std::mem::take(Arc::make_mut(findings)).into_iter().map(|((rule, mut about), mut finding)| {
                about.renumber(by);
                finding.renumber(by);
                ((rule, about), finding)
            });
        *findings = Arc::new(moved.collect());
        undefined.renumber(by);
    }

    /// The choices that led here, oldest first, with the ranks' original numbers.
    #[must_use]
    pub fn choices(&self) -> Vec<crate::machine::Choice> {
        let mut choices = Vec::new();
        let mut at = self.path.as_ref();
        while let Some(path) = at {
            choices.push(path.choice.clone());
            at = path.before.as_ref();
        }
        choices.reverse();
        choices
    }
}

impl Drop for Path {
    fn drop(&mut self) {
        // A long list would otherwise be dropped recursively.
        let mut before = self.before.take();
        while let Some(path) = before {
            match Arc::try_unwrap(path) {
                Ok(mut path) => before = path.before.take(),
                Err(_) => break,
            }
        }
    }
}

/// The entry of a small table, by key; rows are few, so a scan beats a tree.
pub(crate) fn find<K: PartialEq, V>(table: &[(K, V)], key: &K) -> Option<usize> {
    table.iter().position(|(k, _)| k == key)
}

/// One term for a content.
pub(crate) fn whole(terms: &mut crate::term::Terms, content: &Content) -> Term {
    match content {
        Content::Whole(term) => *term,
        Content::Shares(shares) => terms.intern(crate::term::TermNode::Striped(shares.to_vec())),
    }
}
