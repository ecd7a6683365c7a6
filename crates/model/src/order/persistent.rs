//! Persistent sets: choices that suffice, because whatever the others do meanwhile commutes with them.
//!
//! A set of threads and streams is closed if it has, for each of its members, everybody who may still do what does not
//! commute with what the member does next, or, where the member is blocked, everybody who may let it go on: then the
//! choices of the members are a persistent set, in the sense of Godefroid. What a thread may still do to the keys and flags that all ranks share,
//! and to the locks, lists and maps that the threads of its rank share, is in the rest of its block, and for what follows the question behind it
//! has been found so far ([`RememberedPast::follows`](crate::remembered::RememberedPast)).
//! Not here: what commutes ([`crate::order::dependence`]).

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::cx::Here;
use crate::id::{ThreadStart, Token};
use crate::judge::deadlock::Awaits;
use crate::machine::{Choice, InFlight, Machine};
use crate::noun::comm::CommOp;
use crate::noun::flag::{FlagAct, touch_of};
use crate::noun::memory::MemoryOp;
use crate::noun::rendezvous::Rendezvous;
use crate::noun::store::StoreOp;
use crate::noun::stream::{Stream, Work};
use crate::noun::thread::{Next, Status, ThreadOp};
use crate::op::{FlagOp, GraphOp, Op};
use crate::order::advance::Runnable;
use crate::order::condition::Condition;
use crate::order::dependence::{Access, Object, ObjectId, ObjectKind};
use crate::order::poll::{FaultOf, Poll};
use crate::position::Behind;
use crate::program::Question;
use crate::rank::Rank;
use crate::remembered::ProgramPoint;
use crate::state::State;

/// What an operation or a question of a thread has to do with what threads share and call by name: keys, flags, locks, lists
/// and maps, and pools, graphs and the names of memory. It does it now, or once a stream comes to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum SharedUse {
    /// It looks at a list or a map, or reads a key of the store, once the key is there.
    Read(Object),
    /// It goes through a map, in an order of which more is known then.
    Walk(Object),
    /// It changes a list or a map, locks or unlocks, or sets or deletes a key of the store. It does something with a pool, begins,
    /// ends or destroys a graph, or allocates memory of a name.
    Write(Object),
    /// It works on a flag.
    Flag(Token, FlagAct),
    /// A stream works on a flag, once it comes to it.
    Queued(Token, FlagAct),
    /// It replays a graph of this name, which may work on any flag.
    Replay(Token),
    /// It starts a thread, which does what it does.
    Spawn(ThreadStart),
}

impl SharedUse {
    /// What it works on; none where that is not said here.
    pub(crate) fn object(self) -> Option<Object> {
        match self {
            Self::Read(object) | Self::Walk(object) | Self::Write(object) => Some(object),
            Self::Flag(flag, _) | Self::Queued(flag, _) => Some(flag_object(flag)),
            Self::Replay(graph) => Some(graph_object(graph)),
            Self::Spawn(_) => None,
        }
    }

    /// What an operation has to do with what threads share.
    #[expect(clippy::wildcard_enum_match_arm, reason = "other operations use none of it")]
    pub(crate) fn of(op: &Op) -> Option<Self> {
        match op {
            Op::Store(StoreOp::Get { key }) => Some(Self::Read(key_object(*key))),
            Op::Store(StoreOp::Set { key, .. } | StoreOp::Delete { key }) => {
                Some(Self::Write(key_object(*key)))
            }
            Op::Flag(FlagOp { flag, act, stream: None }) => Some(Self::Flag(*flag, *act)),
            Op::Flag(FlagOp { flag, act, stream: Some(_) }) => Some(Self::Queued(*flag, *act)),
            Op::Graph(GraphOp::Replay { graph, .. }) => Some(Self::Replay(*graph)),
            Op::Graph(op) => Some(Self::Write(op.object())),
            Op::Pool(op) => Some(Self::Write(op.object())),
            Op::Memory(MemoryOp::Alloc { name, .. }) => {
                Some(Self::Write(Object::named(ObjectKind::Memory, *name)))
            }
            Op::Thread(ThreadOp::Spawn { start }) => Some(Self::Spawn(*start)),
            Op::Mutex(op) => Some(Self::Write(op.object())),
            Op::Map(op) => Some(Self::accessing(op.object(), op.how())),
            Op::List(op) => Some(Self::accessing(op.object(), op.how())),
            _ => None,
        }
    }

    /// What a question has to do with what threads share.
    pub(crate) fn of_question(question: &Question) -> Option<Self> {
        let used = if matches!(question, Question::MapItems { .. }) { Self::Walk } else { Self::Read };
        question.container().map(used)
    }

    fn accessing(object: Object, how: Access) -> Self {
        if how == Access::Read { Self::Read(object) } else { Self::Write(object) }
    }
}

/// What clashes with an access to what threads share.
#[derive(Clone, Copy)]
struct Clashing {
    object: Object,
    /// Whether reads do, or writes only. What waits for another word than there is now does not: it cannot happen before
    /// somebody writes who does.
    reads: bool,
}

impl Clashing {
    /// What clashes with an access that can happen.
    fn with(object: Object, access: Access) -> Self {
        Self { object, reads: access != Access::Read }
    }

    /// What may let a wait for the object go on.
    fn enabling(object: Object) -> Self {
        Self { object, reads: false }
    }
}

/// The members of a set that is being closed.
struct Closing<'a> {
    m: &'a Machine,
    state: &'a State,
    /// What was found to follow questions, and to be done by threads that start.
    follows: &'a BTreeMap<ProgramPoint, BTreeSet<SharedUse>>,
    /// Everybody who may still do something.
    live: &'a [Runnable],
    inside: Vec<bool>,
    /// Members that were not looked at yet, by their places in `live`.
    new: Vec<usize>,
}

/// Somebody may do something of which nothing is known that would bound it.
struct UnknownClashes;

impl Machine {
    /// Keeps the choices of the smallest closed set of threads and streams that was found.
    pub(crate) fn keep_persistent(&self, state: &State, choices: &mut Vec<Choice>) {
        let mut firsts: Vec<Runnable> = choices.iter().filter_map(chooser).collect();
        firsts.dedup();
        if firsts.len() < 2 || self.depends_on_all(state) {
            return;
        }
        // One rank after the other is played through: what its threads did in different orders then merges before the next
        // one begins. Without merging, whoever has come furthest is the first.
        if self.config.remembered.is_some() {
            firsts.sort_by_key(|who| who.rank());
        }
        let live = self.live(state);
        let chosen_by = |inside: &[bool], choice: &Choice| {
            chooser(choice).is_some_and(|who| inside[position(&live, who)])
        };
        let mut best: Option<(usize, Vec<bool>)> = None;
        for first in firsts {
            let Ok(inside) = self.closed(state, &live, first) else { continue };
            let kept = choices.iter().filter(|choice| chosen_by(&inside, choice)).count();
            if best.as_ref().is_none_or(|(fewest, _)| kept < *fewest) {
                best = Some((kept, inside));
            }
            if kept == 1 {
                break;
            }
        }
        if let Some((_, inside)) = best {
            choices.retain(|choice| chosen_by(&inside, choice));
        }
    }

    /// Whether something that is possible here depends on what all ranks have done, whatever objects they used.
    fn depends_on_all(&self, state: &State) -> bool {
        // Who is told of the dead is settled once nothing else can run. A call that may fail is a choice of its thread: which
        // calls of a run fail, of as many as may, is the same in any order.
        self.faults_left(state, FaultOf::Death) || state.ranks().any(|rank| rank.has_failed_thread())
    }

    /// The threads that have not ended, and the streams on which there is work.
    fn live(&self, state: &State) -> Vec<Runnable> {
        let mut live = Vec::new();
        for (rank, r) in (0..).map(Rank).zip(state.ranks()) {
            let threads = (0..).zip(r.threads()).filter(|(_, thread)| thread.running());
            live.extend(threads.map(|(at, _)| Runnable::Thread(rank, at)));
            let streams = (0..).zip(r.streams()).filter(|(_, (_, stream))| !stream.is_empty());
            live.extend(streams.map(|(at, _)| Runnable::Stream(rank, at)));
        }
        live
    }

    /// The smallest closed set with this member, as far as conflicts are known.
    fn closed(&self, state: &State, live: &[Runnable], first: Runnable) -> Result<Vec<bool>, UnknownClashes> {
        let nothing = BTreeMap::new();
        let follows = self.config.remembered.as_deref().map_or(&nothing, |past| &past.follows);
        let inside = vec![false; live.len()];
        let mut set = Closing { m: self, state, follows, live, inside, new: Vec::new() };
        set.add(|who| who == first);
        while let Some(at) = set.new.pop() {
            match live[at] {
                Runnable::Thread(rank, thread) => set.close_for_thread(self.here(state, rank, thread))?,
                Runnable::Stream(rank, at) => {
                    set.close_for_stream(rank, state.rank(rank).stream(at as usize))?;
                }
            }
        }
        Ok(set.inside)
    }
}

/// Whose choice it is.
fn chooser(choice: &Choice) -> Option<Runnable> {
    match choice {
        Choice::Thread(rank, thread) | Choice::Value(rank, thread, _) => {
            Some(Runnable::Thread(*rank, thread.0))
        }
        Choice::Stream(rank, stream) => Some(Runnable::Stream(*rank, *stream)),
        Choice::Transfer(_) | Choice::Meet(_) => None,
    }
}

fn position(live: &[Runnable], who: Runnable) -> usize {
    live.iter().position(|other| *other == who).expect("who can choose may still do something")
}

impl Runnable {
    fn rank(self) -> Rank {
        let (Self::Thread(rank, _) | Self::Stream(rank, _)) = self;
        rank
    }
}

impl Closing<'_> {
    fn needs(&self, condition: Condition) -> bool {
        !self.m.config.declared_needless.contains(&condition)
    }

    /// Whether NCCL lets go whom it need not hold back.
    fn lets_go(&self) -> bool {
        self.m.config.in_flight == InFlight::OfPlatform
    }

    fn mark(&mut self, at: usize) {
        self.inside[at] = true;
        self.new.push(at);
    }

    fn add(&mut self, such: impl Fn(Runnable) -> bool) {
        for (at, who) in self.live.iter().enumerate() {
            if !self.inside[at] && such(*who) {
                self.mark(at);
            }
        }
    }

    fn add_rank(&mut self, rank: Rank) {
        self.add(|who| who.rank() == rank);
    }

    /// Adds the threads of a rank that may still do to one of its own objects what clashes: all of which that is not known.
    fn add_clashing_of_rank(&mut self, rank: Rank, with: Clashing) {
        for (at, who) in self.live.iter().enumerate() {
            let Runnable::Thread(of, thread) = *who else { continue };
            if !self.inside[at] && of == rank && self.thread_may_clash(rank, thread, with).unwrap_or(true) {
                self.mark(at);
            }
        }
    }

    /// Adds whoever may still do to a key or a flag what clashes.
    fn add_clashing(&mut self, with: Clashing) -> Result<(), UnknownClashes> {
        if !self.needs(Condition::Clashes) {
            return Ok(());
        }
        for (at, who) in self.live.iter().enumerate() {
            if !self.inside[at] && self.may_clash(*who, with)? {
                self.mark(at);
            }
        }
        Ok(())
    }

    fn close_for_thread(&mut self, here: Here<'_>) -> Result<(), UnknownClashes> {
        match here.this().status() {
            Status::Waiting(_) if !self.needs(Condition::Enablers) => return Ok(()),
            Status::Waiting(_) => return here.this().waits().try_for_each(|at| self.close_for_waiting(at)),
            // It never goes on.
            Status::Stuck | Status::Done | Status::Exited(_) | Status::Killed => return Ok(()),
            Status::Ready => {}
        }
        match here.poll() {
            Poll::Wait if !self.needs(Condition::Enablers) => Ok(()),
            Poll::Wait => self.close_for_blocked(here),
            Poll::Run(_) | Poll::Open(..) => self.close_for_enabled(here),
        }
    }

    /// Adds whoever may do what does not commute with what a thread does next.
    fn close_for_enabled(&mut self, here: Here<'_>) -> Result<(), UnknownClashes> {
        // The order in which a map is walked may be one for all ranks.
        if matches!(here.this().upcoming(), Next::Ask(Question::MapItems { .. }, _)) {
            return Err(UnknownClashes);
        }
        let (mut clashing, mut clashing_of_rank) = (Vec::new(), Vec::new());
        let (mut own, mut of_hosts, mut unbounded) = (false, false, false);
        let lets_go = self.lets_go();
        // The end of a communicator meets what runs on it.
        let ends = matches!(
            here.this().upcoming().op(),
            Some(Op::Comm(CommOp::Finalize { .. } | CommOp::Destroy { .. }))
        );
        here.footprint(&mut |object, access| {
            if !self.m.config.contended.contains(&object) {
                return;
            }
            match object.kind {
                _ if self.m.config.declared_own.contains(&object.kind) => own = true,
                ObjectKind::StoreKey | ObjectKind::Flag => clashing.push(Clashing::with(object, access)),
                ObjectKind::Mutex | ObjectKind::Map | ObjectKind::List => {
                    clashing_of_rank.push(Clashing::with(object, access));
                }
                // What NCCL holds, and for how long, is settled between ranks.
                _ if lets_go => unbounded = true,
                ObjectKind::Comm if !ends => of_hosts = true,
                ObjectKind::Hosts | ObjectKind::Init => of_hosts = true,
                ObjectKind::Comm
                | ObjectKind::Stream
                | ObjectKind::Event
                | ObjectKind::Pool
                | ObjectKind::Addresses
                | ObjectKind::Memory
                | ObjectKind::Graph
                | ObjectKind::Capture => own = true,
                // One order for all ranks.
                ObjectKind::CommHashes => unbounded = true,
            }
        });
        if unbounded {
            return Err(UnknownClashes);
        }
        if self.needs(Condition::OwnObjects) {
            if own {
                self.add_rank(here.rank);
            } else if of_hosts {
                self.add(|who| who.rank() == here.rank && matches!(who, Runnable::Thread(..)));
            }
            clashing_of_rank.into_iter().for_each(|clashing| self.add_clashing_of_rank(here.rank, clashing));
        }
        clashing.into_iter().try_for_each(|clashing| self.add_clashing(clashing))
    }

    /// Adds whoever may let a blocked thread go on.
    fn close_for_blocked(&mut self, here: Here<'_>) -> Result<(), UnknownClashes> {
        let Next::Op(op) = here.this().upcoming() else { return Err(UnknownClashes) };
        match op.op.verb().waits_for(here) {
            Awaits::Key(key) => self.add_clashing(Clashing::enabling(key_object(key))),
            Awaits::Flag(flag) => self.add_clashing(Clashing::enabling(flag_object(flag))),
            Awaits::Holder(Some(holder)) => {
                self.add(|who| who == Runnable::Thread(here.rank, holder));
                Ok(())
            }
            Awaits::ThreadsOfRank | Awaits::Streams | Awaits::Stream(_) | Awaits::Record(_) => {
                self.add_rank(here.rank);
                Ok(())
            }
            Awaits::Members(comm) => {
                self.m.kept_by(here.state, here.rank, comm).for_each(|member| self.add_rank(member));
                Ok(())
            }
            Awaits::Nobody | Awaits::Holder(None) => Err(UnknownClashes),
        }
    }

    /// Adds whoever may let a thread return that waits for other ranks.
    fn close_for_waiting(&mut self, rendezvous: &Rendezvous) -> Result<(), UnknownClashes> {
        let state = self.state;
        let invited = self.m.invited(rendezvous);
        let Some(absent) = invited.iter().find(|rank| state.rank(**rank).waiting_at(rendezvous).is_none())
        else {
            return Err(UnknownClashes);
        };
        match rendezvous {
            // Who is told of somebody's death goes on without the others.
            Rendezvous::Setup(..) => invited.iter().for_each(|rank| self.add_rank(*rank)),
            Rendezvous::Init(..)
            | Rendezvous::Host(..)
            | Rendezvous::Exchange(..)
            | Rendezvous::Connect(..)
            | Rendezvous::Link(..) => self.add_rank(*absent),
        }
        Ok(())
    }

    fn close_for_stream(&mut self, rank: Rank, stream: &Stream) -> Result<(), UnknownClashes> {
        if stream.is_hung() {
            return Ok(());
        }
        match stream.work() {
            Some(Work::Flag(flag, act)) => {
                let possible = Machine::flag_allows(self.state, *flag, *act);
                let object = flag_object(*flag);
                self.add_clashing(if possible {
                    Clashing::with(object, touch_of(*act))
                } else {
                    Clashing::enabling(object)
                })
            }
            Some(Work::Collective(launch)) => {
                let (m, state) = (self.m, self.state);
                let members = m.members(launch.comm);
                let mut absent =
                    members.iter().filter(|member| !m.stands_ready(state, **member, launch.comm));
                self.add_rank(*absent.next().ok_or(UnknownClashes)?);
                // What NCCL holds for some may be taken, and leave room, before all have come.
                if self.lets_go() {
                    absent.for_each(|rank| self.add_rank(*rank));
                }
                Ok(())
            }
            Some(Work::Transfers(launch)) => {
                self.add_rank(rank);
                let peers = self.m.open_halves(self.state, rank, launch).map(|half| half.peer);
                peers.collect::<Vec<_>>().into_iter().for_each(|peer| self.add_rank(peer));
                Ok(())
            }
            Some(Work::Wait(..)) => {
                self.add_rank(rank);
                Ok(())
            }
            Some(
                Work::Kernel(_)
                | Work::Copy { .. }
                | Work::Expect(_)
                | Work::Record(..)
                | Work::Fresh(_)
                | Work::GiveBack(_),
            )
            | None => Err(UnknownClashes),
        }
    }

    /// Whether somebody may still do to a key or a flag what clashes.
    fn may_clash(&self, who: Runnable, with: Clashing) -> Result<bool, UnknownClashes> {
        match who {
            Runnable::Stream(rank, stream) => {
                let queue = self.state.rank(rank).stream(stream as usize).queue();
                for queued in queue {
                    let Work::Flag(flag, act) = queued.work else { continue };
                    match self.meets(SharedUse::Flag(flag, act), with) {
                        ClashOutlook::Clash => return Ok(true),
                        ClashOutlook::Blocked => return Ok(false),
                        ClashOutlook::Nothing => {}
                    }
                }
                Ok(false)
            }
            Runnable::Thread(rank, thread) => self.thread_may_clash(rank, thread, with),
        }
    }

    /// Whether a thread may still do what clashes: in the rest of its block, behind the question at its end, or in threads
    /// that it starts.
    fn thread_may_clash(&self, rank: Rank, thread: u32, with: Clashing) -> Result<bool, UnknownClashes> {
        let thread = self.state.rank(rank).thread(thread);
        let place = thread.place().ok_or(UnknownClashes)?;
        let mut points: Vec<ProgramPoint> = Vec::new();
        let mut blocked = false;
        for used in place.uses_from(thread.next()) {
            match self.meets(used, with) {
                ClashOutlook::Clash => return Ok(true),
                ClashOutlook::Blocked => {
                    blocked = true;
                    break;
                }
                ClashOutlook::Nothing => points.extend(place.starts(used)),
            }
        }
        match place.behind() {
            Behind::Nothing => {}
            _ if blocked => {}
            Behind::Question(asked) => points.push(asked),
            Behind::Unknown => return Err(UnknownClashes),
        }
        let mut at = 0;
        while let Some(point) = points.get(at) {
            at += 1;
            // In which order these come is not known.
            for used in self.follows.get(point).into_iter().flatten() {
                if self.meets(*used, with) == ClashOutlook::Clash {
                    return Ok(true);
                }
                let started = place.starts(*used).filter(|started| !points.contains(started));
                points.extend(started);
            }
        }
        Ok(false)
    }

    /// Whether nobody has to write first: a read of a key waits until the key is there.
    fn can_be_read(&self, object: Object) -> bool {
        match object {
            Object { kind: ObjectKind::StoreKey, id: ObjectId::Named(key) } => {
                Machine::key_is_set(self.state, key)
            }
            _ => true,
        }
    }

    fn meets(&self, used: SharedUse, with: Clashing) -> ClashOutlook {
        if matches!(used, SharedUse::Replay(_)) && with.object.kind == ObjectKind::Flag {
            return ClashOutlook::Clash;
        }
        // Nearly all uses are of other objects.
        if used.object() != Some(with.object) {
            return ClashOutlook::Nothing;
        }
        let (writes, possible) = match used {
            SharedUse::Read(object) | SharedUse::Walk(object) => (false, self.can_be_read(object)),
            SharedUse::Flag(flag, act) | SharedUse::Queued(flag, act) => {
                (act.writes().is_some(), Machine::flag_allows(self.state, flag, act))
            }
            SharedUse::Write(_) | SharedUse::Replay(_) | SharedUse::Spawn(_) => (true, true),
        };
        if possible && (writes || with.reads) {
            ClashOutlook::Clash
        } else if possible || matches!(used, SharedUse::Queued(..)) {
            ClashOutlook::Nothing
        } else {
            ClashOutlook::Blocked
        }
    }
}

/// What a use has to do with what clashes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ClashOutlook {
    /// In some order the two do not commute.
    Clash,
    /// It cannot happen before somebody else has written, and whoever comes behind it in the same program waits with it.
    Blocked,
    /// They commute, or work on different objects.
    Nothing,
}

fn key_object(key: Token) -> Object {
    Object::named(ObjectKind::StoreKey, key)
}

fn graph_object(graph: Token) -> Object {
    Object::named(ObjectKind::Graph, graph)
}

fn flag_object(flag: Token) -> Object {
    Object::named(ObjectKind::Flag, flag)
}
