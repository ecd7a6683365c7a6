//! The machine: what happens when the ranks of a program run on a platform.
//!
//! A host thread *polls* its next operation: it can run, it has to wait, or it needs nondeterministic
//! *values*. Streams run their heads; threads that wait for other ranks meet. [`Machine::advance`] runs
//! what commutes until nothing is left but choices; [`Machine::steps`] lists single steps instead, for the
//! unreduced semantics. Both use the same operations, so they can only differ in order.
//! Not here: who explores the choices, and what was expected.

use crate::cx::Here;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use rustc_hash::{FxHashMap, FxHashSet};

pub use crate::display::OpAhead;
pub use crate::host::value::{CommId, MappingId, MemoryId, Owner, Value};
pub use crate::judge::deadlock::{Awaited, Standing};
pub use crate::judge::ending::{Ending, HeldBuffer, StuckStream, StuckThread, Waits};
pub use crate::judge::ledger::{CallError, Costs, Executed, HeldResources, Tally};
pub use crate::judge::outcome::{Class, Data, HeldContent, Outcome, RankOutcome};
pub use crate::noun::p2p::{Handshake, Link};
pub use crate::noun::rendezvous::Rendezvous;
pub use crate::noun::thread::{Status, ThreadState};
pub use crate::noun::window::bytes;
pub use crate::order::condition::Condition;
pub use crate::order::dependence::{Object, ObjectId, ObjectKind};
pub use crate::order::poll::{FaultOf, Faults, Nondet, Placing};
pub use crate::state::{Path, RankState, State};

use crate::clock::{Actor, CausalPast, Clock};
use crate::edit::Edits;
use crate::history::Notes;
use crate::id::{ContentIds, ThreadStart, Token, fingerprint};
use crate::judge::finding::{About, Finding, FindingKey, OpRef, Rule};
use crate::members::MemberLists;
use crate::noun::stream::OwnName;
use crate::platform::Platform;
use crate::position::Places;
use crate::program::{Answer, Block, Loc, Source, SourceError};
use crate::rank::{LocId, Rank, Thread};
use crate::remembered::{Forgotten, RememberedPast};
use crate::snapshot::MemoryNotes;
use crate::term::{Content, Terms};

/// Whether operations on uncontended objects run at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Uncontended operations run at once; only choices are explored.
    Reduced,
    /// Every enabled operation is a step of its own: the oracle.
    Naive,
}

/// Whether findings come with sentences.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Explain {
    /// Only rule, object and operations: for exploration.
    No,
    /// Sentences: for runs that are too long to be explained.
    Sentences,
    /// Sentences, and every operation in words: for replays.
    Yes,
    /// All that, and what the memory of every rank holds after each step: for runs that somebody looks at.
    Memory,
}

impl Explain {
    /// Whether every operation is put into words.
    #[must_use]
    pub fn tells_steps(self) -> bool {
        matches!(self, Self::Yes | Self::Memory)
    }
}

/// Whether the ordinary path of new communicators still has to connect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Connections {
    /// On first use, which waits for all members.
    OnFirstUse,
    /// They are there: the communicator that an init hands out has served before. A split makes a new one.
    Made,
}

/// How much of a send NCCL can hold before somebody receives it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InFlight {
    /// Nothing: a send is over once its receive has begun. What nobody guarantees, a verdict does not rest on.
    Nothing,
    /// What the platform can; where that was not measured, it is nondeterministic.
    OfPlatform,
}

/// What is explored of calls on one communicator that nothing orders. They break COMM-4, and nobody specifies what
/// follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConcurrentCalls {
    /// One order of the calls, and one order of what follows, stand for all.
    InOneOrder,
    /// Every order: only for comparing with the oracle.
    InEveryOrder,
}

/// What becomes of the other ranks once the process of one has ended with an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Launcher {
    /// They go on, and wait for it for ever.
    LeavesPeers,
    /// The job ends: whoever waits then is ended, some time after. What ranks do until then, they may have done.
    EndsJob,
}

/// What is run, apart from the program.
#[derive(Debug, Clone)]
pub struct Config {
    /// How many ranks the program runs on.
    pub ranks: u32,
    /// The NCCL version and hardware whose facts hold.
    pub platform: Platform,
    /// Calls that may fail.
    pub faults: Faults,
    /// Kernels of different communicators assumed to run at the same time; 1 for no assumption.
    pub coresident: u32,
    /// What the launcher does when a rank dies.
    pub launcher: Launcher,
    /// Whether communicators are connected from the beginning or by their first use.
    pub connections: Connections,
    /// What sends leave in flight.
    pub in_flight: InFlight,
    /// Whether one of many equivalent schedules is run, or each.
    pub mode: Mode,
    /// In which orders calls are explored that break COMM-4.
    pub concurrent_calls: ConcurrentCalls,
    /// Whether findings get sentences, which take time to make.
    pub explain: Explain,
    /// Objects known to be contended.
    pub contended: BTreeSet<Object>,
    /// What is remembered of histories, which merge where nothing else tells them apart; none if all are told apart.
    pub remembered: Option<Arc<RememberedPast>>,
    /// Whether what matters of histories is only looked for, in one run: nothing merges, and nobody has the search start
    /// again for what was forgotten ([`Machine::learned`]).
    pub scouts: bool,
    /// Kinds declared to commute although they do not: only for testing the tests.
    pub declared_commuting: BTreeSet<ObjectKind>,
    /// Kinds declared to be a rank's own although ranks share them: only for testing the tests.
    pub declared_own: BTreeSet<ObjectKind>,
    /// What is declared not to matter although it does, where histories merge: only for testing the tests.
    pub declared_forgotten: BTreeSet<Forgotten>,
    /// Conditions of reductions that are declared needless although they are not: only for testing the tests.
    pub declared_needless: BTreeSet<Condition>,
    /// Pairs of transfers that certainly progress together, where that is not to be the platform's number: only for
    /// testing with small groups.
    pub planned_together: Option<u32>,
    /// Launches on record before those are looked for that nothing can clash with any more: few only for testing.
    pub launches_kept: usize,
    /// Whether it is followed what memory holds. Where it is not, nobody may ask for outcomes, and a run in which contents
    /// decide what is found is interrupted.
    pub follows_contents: bool,
    /// What is changed of the program, in runs that are tried.
    pub edits: Edits,
    /// Host threads and streams that a rank may have: a number that [`actors_per_rank`] gives.
    pub actors_per_rank: u32,
    /// Operations after which a run without choices is given up.
    pub steps_at_most: u64,
    /// From so many ranks on, what ranks learn of each other is recorded and worked out for who asks: others only for
    /// testing.
    pub joins_recorded_from: u32,
}

impl Config {
    /// Nothing fails, nothing is assumed, on the default platform.
    #[must_use]
    pub fn new(ranks: u32) -> Self {
        Self {
            ranks,
            platform: Platform::default(),
            faults: Faults::default(),
            coresident: 1,
            launcher: Launcher::LeavesPeers,
            connections: Connections::OnFirstUse,
            in_flight: InFlight::Nothing,
            mode: Mode::Reduced,
            concurrent_calls: ConcurrentCalls::InOneOrder,
            explain: Explain::No,
            contended: BTreeSet::new(),
            remembered: None,
            scouts: false,
            declared_commuting: BTreeSet::new(),
            declared_own: BTreeSet::new(),
            declared_forgotten: BTreeSet::new(),
            declared_needless: BTreeSet::new(),
            planned_together: None,
            launches_kept: 64,
            follows_contents: true,
            edits: Edits::default(),
            actors_per_rank: 2,
            steps_at_most: 1_000_000_000,
            joins_recorded_from: 48,
        }
    }
}

/// A communicator's identity and members.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CommInfo {
    /// The name that the program gave it; [`CommInfo::nth`] tells communicators of one name apart.
    pub name: Token,
    /// Of a split, the name that each member gave it, where these differ: NCCL takes none.
    pub names: Option<Arc<[Token]>>,
    /// The n-th of this name, or the set-up event of the parent that made it.
    pub nth: u32,
    /// The parent of a split.
    pub parent: Option<CommId>,
    /// World ranks in communicator order.
    pub members: Arc<[Rank]>,
}

/// One choice at quiescence, or one step of the naive semantics.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Choice {
    /// The next operation of a host thread runs.
    Thread(Rank, Thread),
    /// The head of a stream runs; a collective is a step of its first member.
    Stream(Rank, u32),
    /// What can be transferred on a link is.
    Transfer(Link),
    /// The threads that wait for one another go on.
    Meet(Rendezvous),
    /// The nondeterministic values of the next operation of a host thread, which runs if it can.
    Value(Rank, Thread, Vec<u32>),
}

/// Why an exploration cannot go on as configured.
#[derive(Debug, Clone)]
pub enum Interruption {
    /// These objects turned out to be contended: start again with them.
    Contended(BTreeSet<Object>),
    /// More of histories matters than was remembered: start again with this.
    Remember(RememberedPast),
    /// A rank has more threads and streams than clocks have room for: start again with this many.
    Actors(u32),
    /// What memory holds decides what is found: start again and follow it.
    Contents,
    /// The program cannot be evaluated.
    Source(SourceError),
    /// One run without choices did not end within the bound on steps.
    Steps(u64),
}

#[derive(Debug, Default)]
pub(crate) struct Pending {
    pub(crate) contended: BTreeSet<Object>,
    pub(crate) remembered: Option<RememberedPast>,
    pub(crate) actors: Option<u32>,
    pub(crate) contents: bool,
    pub(crate) source: Option<SourceError>,
    pub(crate) steps: Option<u64>,
}

/// A program on a platform.
pub struct Machine {
    /// The program that is run.
    pub source: Arc<dyn Source>,
    /// How it is run.
    pub config: Config,
    pub(crate) comms: RwLock<ContentIds<CommId, CommInfo>>,
    pub(crate) member_lists: MemberLists,
    pub(crate) terms: Mutex<Terms>,
    /// Streams and events that the program does not name.
    pub(crate) own_names: Mutex<ContentIds<Token, OwnName>>,
    pub(crate) places: Mutex<Places>,
    /// What stands at the places that were asked about.
    place_hashes: RwLock<FxHashMap<LocId, u128>>,
    pub(crate) pending: Mutex<Pending>,
    pub(crate) interrupted: AtomicBool,
    pub(crate) reached: Mutex<BTreeSet<Token>>,
    pub(crate) measured: Mutex<BTreeMap<Token, i64>>,
    pub(crate) log: Mutex<Vec<Logged>>,
    pub(crate) notes: Mutex<Notes>,
    pub(crate) memory_notes: Mutex<MemoryNotes>,
    /// What outcomes tell of contents, and in other words: runs share them.
    pub(crate) told_contents: Mutex<FxHashMap<Content, HeldContent>>,
    pub(crate) told_words: Mutex<FxHashSet<Arc<str>>>,
    /// The first two accesses by different ranks that nothing in the program orders, where it leaves out what may.
    pub(crate) taken_for_ordered: Mutex<Option<[OpRef; 2]>>,
    /// The first close of a mapping that had to wait for what used it, and what that was.
    pub(crate) closed_in_use: Mutex<Option<[OpRef; 2]>>,
    pub(crate) steps: AtomicU64,
    /// Whether somebody asked whether work of a device is over.
    pub(crate) polled: AtomicBool,
    /// Whether somebody called what NCCL may end before others come: a send, or a collective with a root.
    pub(crate) may_let_go: AtomicBool,
    /// Whether two threads touched one object in some execution so that it may matter who is the first, in whatever order
    /// this execution has them.
    pub(crate) met: AtomicBool,
    /// A clock that knows nothing; shared, because it is as wide as the job.
    pub(crate) nothing: Clock,
}

/// An operation or question of a run, in words; kept only with [`Explain::Yes`].
#[derive(Debug, Clone)]
pub struct Logged {
    /// The rank and thread that ran it, its position there, and where it was written.
    pub op: OpRef,
    /// In the spec's names.
    pub text: String,
    /// The same with the operands that tell it from another call; see the lanes of reports.
    pub call: String,
    /// Whether it is a question.
    pub asks: bool,
    /// What it is to a reader.
    pub kind: Kind,
    /// The stream that it names; none for what the host does alone.
    pub stream: Option<Arc<str>>,
}

/// What an operation is to somebody who reads a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Of no concern to others: what the program remembers, and questions.
    Bookkeeping,
    /// A statement of the author.
    Expectation,
    /// What ranks usually do alike: memory, registrations, collectives, rendezvous, graphs. Where they diverge
    /// here, something was decided.
    Alike,
    /// What ranks do in roles: transfers, handles, flags, the store.
    InRole,
    /// What one rank has to do with its own device alone: kernels, events, waits of streams and for them.
    OwnDevice,
}

/// Room for so many host threads and streams of a rank, such that clocks hold the counts of up to [`NEAR`] of them beside
/// what they share.
///
/// [`NEAR`]: crate::clock::NEAR
#[must_use]
pub fn actors_per_rank(wanted: u32) -> u32 {
    wanted.max(2).next_power_of_two()
}

/// A lock that a panic elsewhere has poisoned still guards plain data.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Machine {
    /// A machine for a program.
    #[must_use]
    pub fn new(source: Arc<dyn Source>, config: Config) -> Self {
        let width = (config.ranks * config.actors_per_rank) as usize;
        let nothing = Clock::new(Actor(0), width, config.ranks >= config.joins_recorded_from);
        Self {
            source,
            config,
            comms: RwLock::default(),
            member_lists: MemberLists::default(),
            terms: Mutex::default(),
            own_names: Mutex::default(),
            places: Mutex::default(),
            place_hashes: RwLock::default(),
            pending: Mutex::default(),
            interrupted: AtomicBool::new(false),
            polled: AtomicBool::new(false),
            may_let_go: AtomicBool::new(false),
            met: AtomicBool::new(false),
            reached: Mutex::default(),
            measured: Mutex::default(),
            log: Mutex::default(),
            notes: Mutex::default(),
            memory_notes: Mutex::default(),
            told_contents: Mutex::default(),
            told_words: Mutex::default(),
            taken_for_ordered: Mutex::default(),
            closed_in_use: Mutex::default(),
            steps: AtomicU64::new(0),
            nothing,
        }
    }

    /// The state in which every rank stands before its first operation.
    #[must_use]
    pub fn init(&self) -> State {
        let empty = Block { ops: Vec::new(), terminator: crate::program::Terminator::Return };
        let empty = Arc::new(empty);
        let mut state = State::new(self.config.ranks);
        for rank in (0..self.config.ranks).map(Rank) {
            let clock = self.nothing.child(self.thread_actor(rank, 0));
            let thread = self.thread(rank, ThreadStart(0), clock, Arc::clone(&empty));
            state.rank_mut(rank).start_thread(thread);
        }
        state.seal();
        state
    }

    /// Why the exploration has to stop, if it has to.
    pub fn interruption(&self) -> Option<Interruption> {
        if !self.interrupted.load(Ordering::Relaxed) {
            return None;
        }
        let pending = locked(&self.pending);
        if let Some(error) = &pending.source {
            return Some(Interruption::Source(error.clone()));
        }
        if let Some(steps) = pending.steps {
            return Some(Interruption::Steps(steps));
        }
        if let Some(actors) = pending.actors {
            return Some(Interruption::Actors(actors));
        }
        if pending.contents {
            return Some(Interruption::Contents);
        }
        if let Some(remembered) = &pending.remembered {
            return Some(Interruption::Remember(remembered.clone()));
        }
        Some(Interruption::Contended(pending.contended.clone()))
    }

    /// What was asked for that was forgotten, where nothing but that is looked for.
    #[must_use]
    pub fn learned(&self) -> RememberedPast {
        locked(&self.pending).remembered.clone().unwrap_or_default()
    }

    /// Whether nobody specifies what follows some operation of the run.
    #[must_use]
    pub fn undefined(&self, state: &State) -> bool {
        state.undefined.is_some()
    }

    /// Whether [`Machine::interruption`] has something to say.
    #[must_use]
    pub fn interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }

    pub(crate) fn interrupt(&self, how: impl FnOnce(&mut Pending)) {
        how(&mut locked(&self.pending));
        self.interrupted.store(true, Ordering::Relaxed);
    }

    /// Labels that some execution came by.
    #[must_use]
    pub fn reached(&self) -> BTreeSet<Token> {
        locked(&self.reached).clone()
    }

    /// The first two accesses of different ranks to the same bytes, one a write, that nothing in the program orders. They are
    /// no finding where the program leaves out what may order them.
    #[must_use]
    pub fn taken_for_ordered(&self) -> Option<[OpRef; 2]> {
        *locked(&self.taken_for_ordered)
    }

    /// The first close of a mapping that nobody had waited for what uses it, and that use. It is no finding where the close
    /// itself waits.
    #[must_use]
    pub fn closed_in_use(&self) -> Option<[OpRef; 2]> {
        *locked(&self.closed_in_use)
    }

    /// What `r.measure` recorded, as maxima.
    #[must_use]
    pub fn measured(&self) -> BTreeMap<Token, i64> {
        locked(&self.measured).clone()
    }

    /// The operations of this run so far, with [`Explain::Yes`].
    #[must_use]
    pub fn log(&self) -> Vec<Logged> {
        locked(&self.log).clone()
    }

    /// Whether NCCL may end a call before others come to it, in some execution.
    #[must_use]
    pub fn may_let_go(&self) -> bool {
        self.may_let_go.load(Ordering::Relaxed)
    }

    /// Whether NCCL may end a call before others come to it, in some execution, and somebody may see the difference: by asking
    /// whether work is over, or in any object that two threads touch. What orders their touches here may be a call that ends
    /// early.
    #[must_use]
    pub fn early_ends_may_be_seen(&self) -> bool {
        let seen = self.polled.load(Ordering::Relaxed)
            || self.met.load(Ordering::Relaxed)
            || self.config.contended.iter().any(|object| object.is_shared());
        seen && self.may_let_go()
    }

    /// Operations executed so far, over all executions.
    #[must_use]
    pub fn steps_total(&self) -> u64 {
        self.steps.load(Ordering::Relaxed)
    }

    /// The name of a token.
    #[must_use]
    pub fn name(&self, token: Token) -> Arc<str> {
        self.name_of_own(token).unwrap_or_else(|| self.source.token(token))
    }

    /// The location of an operation, as `file:line`.
    #[must_use]
    pub fn loc(&self, op: &OpRef) -> Loc {
        self.source.loc(op.loc)
    }

    /// What stands for a place in an identity. Places are numbered as a program is evaluated, which may be in another order.
    pub(crate) fn place_hash(&self, loc: LocId) -> u128 {
        let known = self.place_hashes.read().unwrap_or_else(PoisonError::into_inner).get(&loc).copied();
        known.unwrap_or_else(|| {
            let hash = fingerprint(&self.source.loc(loc).seen_from(self.source.folder()));
            self.place_hashes.write().unwrap_or_else(PoisonError::into_inner).insert(loc, hash);
            hash
        })
    }

    /// A communicator's identity.
    ///
    /// # Panics
    /// If the id is not of this machine.
    #[must_use]
    pub fn comm(&self, comm: CommId) -> CommInfo {
        self.known_comm(comm, CommInfo::clone)
    }

    /// Whether the machine can name an object: what another search found contended may be of no run of this one.
    #[must_use]
    pub fn has_met(&self, object: Object) -> bool {
        match object.id {
            ObjectId::All => true,
            ObjectId::Named(name) => !name.is_own() || self.name_of_own(name).is_some(),
            ObjectId::Comm(comm) => {
                self.comms.read().unwrap_or_else(PoisonError::into_inner).get(comm).is_some()
            }
        }
    }

    pub(crate) fn members(&self, comm: CommId) -> Arc<[Rank]> {
        self.known_comm(comm, |info| Arc::clone(&info.members))
    }

    pub(crate) fn known_comm<T>(&self, comm: CommId, look: impl FnOnce(&CommInfo) -> T) -> T {
        let comms = self.comms.read().unwrap_or_else(PoisonError::into_inner);
        look(comms.get(comm).expect("a communicator of this machine"))
    }

    /// What a communicator is called: by all names that its members gave it, in their order.
    pub(crate) fn comm_name(&self, comm: CommId) -> Arc<str> {
        let (name, names) = self.known_comm(comm, |info| (info.name, info.names.clone()));
        let Some(names) = names else { return self.name(name) };
        let mut different: Vec<Arc<str>> = Vec::new();
        for name in names.iter().map(|name| self.name(*name)) {
            if !different.contains(&name) {
                different.push(name);
            }
        }
        different.join("/").into()
    }

    /// What a rank calls a communicator.
    pub(crate) fn comm_name_on(&self, rank: Rank, comm: CommId) -> Arc<str> {
        let own = self.known_comm(comm, |info| {
            let own = || info.members.iter().position(|member| *member == rank);
            info.names.as_ref().and_then(|names| Some(names[own()?])).unwrap_or(info.name)
        });
        self.name(own)
    }

    pub(crate) fn comm_id(&self, info: CommInfo) -> CommId {
        self.comms.write().unwrap_or_else(PoisonError::into_inner).id_of(&info, CommInfo::clone)
    }

    pub(crate) fn thread_actor(&self, rank: Rank, thread: u32) -> Actor {
        Actor(rank.0 * self.config.actors_per_rank + thread)
    }

    pub(crate) fn stream_actor(&self, rank: Rank, stream: u32) -> Actor {
        Actor((rank.0 + 1) * self.config.actors_per_rank - 1 - stream)
    }

    /// Whether the actors of a rank still fit into its clocks; asks for a restart if not.
    pub(crate) fn fits(&self, threads: usize, streams: usize) -> bool {
        let wanted = u32::try_from(threads + streams).expect("few actors a rank");
        let fits = wanted <= self.config.actors_per_rank;
        if !fits {
            self.interrupt(|pending| {
                pending.actors = Some(pending.actors.unwrap_or(0).max(actors_per_rank(wanted)));
            });
        }
        fits
    }

    pub(crate) fn find(
        &self,
        state: &mut State,
        rule: Rule,
        about: About,
        ops: &[OpRef],
        past: CausalPast,
        sentence: impl FnOnce() -> String,
    ) {
        let key = FindingKey::new(rule, about, ops);
        if state.findings.contains_key(&key) {
            return;
        }
        // The name of a segment has its number.
        if let About::Memory(_, memory) = about {
            self.look_at_numbers(memory);
        }
        let sentence = match self.config.explain {
            Explain::Sentences | Explain::Yes | Explain::Memory => sentence(),
            Explain::No => String::new(),
        };
        let finding = Finding { rule, about, ops: ops.to_vec(), past: past.operations(), sentence };
        Arc::make_mut(&mut state.findings).insert(key, Arc::new(finding));
    }

    /// Nobody specifies what follows `op`.
    pub(crate) fn undefine(state: &mut State, op: OpRef) {
        if state.undefined.is_none() {
            state.undefined = Some(op);
        }
    }

    pub(crate) fn block(&self, rank: Rank, start: ThreadStart, answers: &[Answer]) -> Option<Arc<Block>> {
        match self.source.block(rank, start, answers) {
            Ok(block) => Some(block),
            Err(error) => {
                self.interrupt(|pending| {
                    pending.source.get_or_insert(error);
                });
                None
            }
        }
    }

    /// Somebody asks which number something is that is none.
    pub(crate) fn no_number(&self, loc: LocId, value: &Value) {
        let value = self.value_name(value);
        let message = format!("r.number asks for a number from 0 to {}, and this is {value}", Answer::MAX);
        let help = "what is missing in a map is no number: say which one it is, m.get(key, 0)".to_owned();
        let error = SourceError { message, loc: Some(self.source.loc(loc)), help: Some(help) };
        self.interrupt(|pending| {
            pending.source.get_or_insert(error);
        });
    }

    /// `file:line` of an operation.
    pub(crate) fn at(&self, op: &OpRef) -> String {
        self.source.loc(op.loc).to_string()
    }
}

impl<'a> Here<'a> {
    pub(crate) fn op_ref(self) -> OpRef {
        let Here { rank, thread, .. } = self;
        let t = self.this();
        OpRef { rank, thread: Thread(thread), index: t.index(), loc: t.loc() }
    }

    pub(crate) fn past(self) -> CausalPast {
        self.this().clock().past()
    }
}
