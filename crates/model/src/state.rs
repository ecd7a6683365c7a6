//! The state: the product of the tables of the nouns, and nothing that no rule reads.
//!
//! Each rank is shared until it is written, so a copy of a state costs one pointer a rank. Logs of past
//! accesses are functions of the positions of the threads and stay out of the hash.
//! Not here: how states follow one another.

use crate::op::{
    Collective, CollectiveKind, Connection, Declared, FlagAct, MemoryKind, Resources, SizeClasses, TieBreak,
    Way, WindowFlags,
};
use crate::order::dependence::Access;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use rustc_hash::FxHasher;

use crate::clock::Clock;
use crate::host::best_fit::Segment;
use crate::host::container::Containers;
use crate::host::value::{AddressId, BlockId, Buffer, CommId, MemoryId, Value};
use crate::judge::finding::{About, Finding, OpRef, Rule};
use crate::noun::cell::{Cell, Written};
use crate::noun::graph::Graph;
use crate::noun::ipc::{Mapping, Moment};
use crate::order::dependence::Touches;
use crate::platform::KernelPath;
use crate::program::{Answer, Dtype, ReduceOp, Stretch};
use crate::rank::{Entry, Rank, Thread, Token};
use crate::term::{Content, Term};

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
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum GroupCall {
    Register { comm: CommId, memory: Value, flags: WindowFlags, slot: u32, op: OpRef },
    Launch { comm: CommId, launch: Arc<Launch> },
    Transfer { comm: CommId, stream: Token, transfer: Arc<Half> },
}

/// An open group of a thread.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(crate) struct Group {
    pub(crate) depth: u32,
    /// What its end will return, because a call inside failed.
    pub(crate) failed: Option<i32>,
    pub(crate) calls: Vec<GroupCall>,
}

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

impl Hash for ThreadState {
    fn hash<H: Hasher>(&self, state: &mut H) {
        // The slots follow from the answers and from the tables; the stretch from entry and answers.
        self.entry.hash(state);
        self.answers.hash(state);
        self.next.hash(state);
        self.slots.hash().hash(state);
        self.picks.hash(state);
        self.status.hash(state);
        self.group.hash(state);
        self.clock.hash(state);
    }
}

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

impl Hash for Launch {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.op.thread, self.op.index, self.nth, self.written, self.turn, self.issue, self.path).hash(state);
        (self.send_window, self.recv_window, self.recorded).hash(state);
        (&self.send, &self.recv).hash(state);
    }
}

/// Half of a transfer, as one rank called it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
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

/// What became of the transfers of a group on one communicator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Planned {
    /// They progress together.
    Whole,
    /// Some begin once others are over, and this is a part of them.
    Part,
}

/// Transfers of one rank that progress together: those of a group on one communicator, part of them, or a single one.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
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

/// How far the launch of transfers has come whose turn it is.
#[derive(Debug, Clone, Hash)]
pub(crate) struct Progress {
    /// Of each transfer.
    pub(crate) over: Vec<bool>,
    /// What receivers of its sends learn.
    pub(crate) told: Clock,
    /// What its receives have learned, for when it is over.
    pub(crate) heard: Option<Clock>,
}

/// The launches of a communicator's family on a rank: one after the other, on whichever streams.
#[derive(Debug, Clone, Default, Hash)]
pub(crate) struct Turns {
    pub(crate) launched: u32,
    pub(crate) over: u32,
    pub(crate) progress: Option<Progress>,
}

/// A send that is over before its receive has begun.
#[derive(Debug, Clone)]
pub(crate) struct Message {
    pub(crate) sent: Half,
    pub(crate) content: Content,
    pub(crate) told: Clock,
    /// The send, which counts as run once it is received.
    pub(crate) ran: Ran,
}

impl Hash for Message {
    fn hash<H: Hasher>(&self, state: &mut H) {
        // What ran is a function of positions.
        (&self.sent, &self.content, &self.told).hash(state);
    }
}

/// Two launches that are declared to overlap, until both have begun.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Declaration {
    /// Thread and index of each.
    pub(crate) of: [(Thread, u32); 2],
    pub(crate) op: OpRef,
}

/// What waits on a stream.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
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

impl Hash for Stream {
    fn hash<H: Hasher>(&self, state: &mut H) {
        for op in &self.queue {
            op.work.hash(state);
            op.issue.hash(state);
            (op.op.thread, op.op.index).hash(state);
            op.replay.map(|replay| (replay.thread, replay.index)).hash(state);
        }
        self.hung.hash(state);
        self.clock.hash(state);
    }
}

/// An event: how often it was recorded, and the clocks of the records that are complete.
#[derive(Debug, Clone, Default, Hash)]
pub(crate) struct Event {
    pub(crate) recorded: u32,
    pub(crate) complete: BTreeMap<u32, Clock>,
}

/// A registration as one rank made it.
#[derive(Debug, Clone, Hash)]
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
    pub(crate) uses: Vec<(crate::clock::Actor, u32)>,
}

impl Window {
    /// Whether the lookup table orders the two by nothing but their insertion.
    pub(crate) fn starts_with(&self, other: &Self) -> bool {
        self.buffer.address == other.buffer.address && self.buffer.offset_bytes == other.buffer.offset_bytes
    }
}

/// A registration that was queued by a group that was discarded.
#[derive(Debug, Clone, Hash)]
pub(crate) struct Leftover {
    pub(crate) memory: Value,
    pub(crate) flags: WindowFlags,
    pub(crate) op: OpRef,
}

/// What one rank knows of a communicator.
#[derive(Debug, Clone, Hash)]
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

/// A caching pool of a rank.
#[derive(Debug, Clone, Hash)]
pub(crate) struct Pool {
    pub(crate) classes: SizeClasses,
    pub(crate) tie: TieBreak,
    pub(crate) memory: MemoryKind,
    pub(crate) segments: Arc<Vec<Segment>>,
    pub(crate) segments_made: u32,
    pub(crate) blocks_made: u32,
    /// Blocks that return once the n-th record of an event is seen complete.
    pub(crate) deferred: Vec<(BlockId, Token, u32)>,
    pub(crate) holder: Option<u32>,
    pub(crate) released: Clock,
}

/// A past access; a function of positions, so not part of the identity of a state.
#[derive(Debug, Clone)]
pub(crate) struct Accessed {
    pub(crate) offset_bytes: u64,
    pub(crate) len_bytes: u64,
    pub(crate) actor: crate::clock::Actor,
    pub(crate) epoch: u32,
    pub(crate) access: Access,
    pub(crate) op: OpRef,
}

/// Physical memory.
#[derive(Debug, Clone)]
pub(crate) struct Memory {
    pub(crate) kind: MemoryKind,
    /// All that was asked for.
    pub(crate) buffer: Arc<Buffer>,
    /// When it went back to the driver; a function of positions, like accesses.
    pub(crate) released: Option<Moment>,
    /// Non-overlapping, by offset: start, length, contents.
    pub(crate) pieces: Vec<(u64, u64, Content)>,
    pub(crate) accesses: Vec<Accessed>,
}

impl Hash for Memory {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.released.is_some().hash(state);
        self.buffer.address.hash(state);
        self.pieces.hash(state);
    }
}

/// A lock of a rank.
#[derive(Debug, Clone, Hash)]
pub(crate) struct Mutex {
    pub(crate) holder: Option<u32>,
    pub(crate) released: Clock,
}

/// A call that returned an error.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallError {
    /// The call, with its object.
    pub call: Arc<str>,
    /// `ncclResult_t`, or 2 for an allocation that ran out of memory.
    pub code: i32,
    /// The host thread that made it.
    pub thread: u32,
}

/// What a program costs; counted for each rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Costs {
    /// Communicators made.
    pub communicators: u32,
    /// Window registrations before `r.steady()`.
    pub registrations_warm_up: u32,
    /// Window registrations after it.
    pub registrations: u32,
    /// Host barriers and agreements after it.
    pub barriers: u32,
    /// Store calls after it.
    pub store_calls: u32,
    /// Collectives after it.
    pub collectives: u32,
    /// Bytes of segments held now.
    pub reserved_bytes: u64,
    /// The most bytes of segments held at once.
    pub reserved_bytes_max: u64,
    /// Whether `r.steady()` was passed.
    pub steady: bool,
}

/// One rank: its threads, its device, and what it knows of communicators.
#[derive(Debug, Clone, Default)]
pub struct RankState {
    /// Host threads.
    pub threads: Vec<ThreadState>,
    pub(crate) streams: Vec<(Token, Stream)>,
    pub(crate) events: Vec<(Token, Event)>,
    pub(crate) views: Vec<(CommId, View)>,
    /// Of each family of communicators.
    pub(crate) turns: Vec<(CommId, Turns)>,
    /// Declared overlaps that are not judged yet.
    pub(crate) overlaps: Vec<Declaration>,
    pub(crate) pools: Vec<(Token, Pool)>,
    pub(crate) memory: BTreeMap<MemoryId, Arc<Memory>>,
    /// Memory of other ranks that this one has or had open.
    pub(crate) mappings: Vec<Mapping>,
    pub(crate) live: Arc<BTreeSet<BlockId>>,
    pub(crate) mutexes: Vec<(Token, Mutex)>,
    pub(crate) graphs: Vec<(Token, Graph)>,
    pub(crate) containers: Containers,
    /// Memory that the program made, by name.
    pub(crate) made: Vec<(Token, u32)>,
    pub(crate) inits: Vec<(Token, u32)>,
    pub(crate) hosts: Vec<(Arc<[Rank]>, u32)>,
    pub(crate) exchanges: Vec<(Arc<[Rank]>, u32)>,
    pub(crate) free_addresses: Vec<(AddressId, u64)>,
    /// Addresses of destroyed communicators.
    pub(crate) free_comms: Vec<CommId>,
    /// Which of them a thread gets back whose init or split is under way.
    pub(crate) promised: Vec<(u32, CommId)>,
    pub(crate) address_order: Arc<[Value]>,
    pub(crate) hash_order: Arc<[Value]>,
    pub(crate) issued: u32,
    /// Some collective left wrong data without an error.
    pub(crate) corrupt: bool,
    /// Calls that returned an error, by thread and in the order of each.
    pub errors: Vec<CallError>,
    /// Costs so far.
    pub costs: Costs,
    pub(crate) touches: Touches,
}

impl Hash for RankState {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.threads.hash(state);
        self.streams.hash(state);
        self.events.hash(state);
        self.views.hash(state);
        self.turns.hash(state);
        self.overlaps.hash(state);
        self.pools.hash(state);
        self.memory.hash(state);
        self.mappings.hash(state);
        self.live.hash(state);
        self.mutexes.hash(state);
        self.graphs.hash(state);
        self.containers.hash(state);
        self.hosts.hash(state);
        self.exchanges.hash(state);
        self.free_addresses.hash(state);
        (&self.free_comms, &self.promised).hash(state);
        self.address_order.hash(state);
        self.hash_order.hash(state);
        self.corrupt.hash(state);
        self.errors.hash(state);
        self.costs.hash(state);
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

/// What all ranks share.
#[derive(Debug, Clone, Default)]
pub(crate) struct Shared {
    /// Nothing where a key was deleted.
    pub(crate) keys: BTreeMap<Token, Cell<Option<Value>>>,
    pub(crate) flags: BTreeMap<Token, Cell<i64>>,
    /// The order of communicator hashes, as far as anybody looked.
    pub(crate) comm_order: Vec<CommId>,
    pub(crate) executed: Vec<Executed>,
    /// How many of them there are when those are looked for next that may be forgotten.
    pub(crate) forget_at: usize,
    /// What was sent and not yet received.
    pub(crate) in_flight: BTreeMap<Link, VecDeque<Message>>,
    /// Bytes of a link that can be in flight, once luck has decided.
    pub(crate) in_flight_bytes: Option<u64>,
    /// Whether transfers of a group that need not progress together take turns, once luck has decided.
    pub(crate) in_turn: Option<bool>,
    pub(crate) touches: Touches,
}

impl Hash for Shared {
    fn hash<H: Hasher>(&self, state: &mut H) {
        for (token, key) in &self.keys {
            token.hash(state);
            if let Some(Written { value: Some(value), by, .. }) = key.last() {
                (value, by).hash(state);
            }
        }
        for (token, flag) in &self.flags {
            (token, flag.last().map(|write| (write.value, &write.by))).hash(state);
        }
        self.comm_order.hash(state);
        self.in_flight.hash(state);
        self.in_flight_bytes.hash(state);
        self.in_turn.hash(state);
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
    /// Of what the rank looks like without knowledge of others.
    pub(crate) looks: Option<u64>,
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

impl State {
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

pub(crate) fn hash_of(value: &impl Hash) -> u64 {
    let mut hasher = FxHasher::default();
    value.hash(&mut hasher);
    hasher.finish()
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
