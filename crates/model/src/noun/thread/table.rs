//! The host threads of a rank: where each stands, what it produced and what it knows.
//! Not here: what its operations do.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use crate::clock::Clock;
use crate::host::value::Value;
use crate::id::{ThreadStart, Token, fingerprint};
use crate::identity::{Identify, StateIdentity};
use crate::noun::group::Group;
use crate::noun::rendezvous::Rendezvous;
use crate::op::{Op, ThreadOp};
use crate::position::ProgramPlace;
use crate::program::{Answer, Block, Question, Statement, Terminator};
use crate::rank::LocId;
use crate::state::{RankState, Table};
use crate::walk::{LocalHash, walk};

/// Where a host thread stands.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Status {
    /// At its next operation.
    Ready,
    /// Inside an operation that waits for other ranks.
    Waiting(Rendezvous),
    /// Inside a call that never returns: nobody specifies what the call does after this rule was broken.
    Stuck,
    /// The thread's function returned; a join of it goes on.
    Done,
    /// The process ended here.
    Exited(Token),
    /// The process died here, before the operation.
    Killed,
}

/// What the operations of a thread produced. Slots are only ever added, so their hash is kept as they come.
#[derive(Debug, Clone, Default)]
pub(crate) struct Slots {
    values: Arc<Vec<Value>>,
    hash: u128,
}

impl Slots {
    pub(crate) fn add(&mut self, values: &[Value]) {
        if values.is_empty() {
            return;
        }
        for value in values {
            self.hash = fingerprint(&(self.hash, value));
        }
        Arc::make_mut(&mut self.values).extend_from_slice(values);
    }

    pub(crate) fn get(&self, slot: u32) -> Option<&Value> {
        self.values.get(slot as usize)
    }

    pub(crate) fn iter(&self) -> std::slice::Iter<'_, Value> {
        self.values.iter()
    }

    pub(crate) fn hash(&self) -> u128 {
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

/// A host thread: where it stands in its program, and what its operations produced.
#[derive(Debug, Clone)]
pub struct ThreadState {
    pub(super) start: ThreadStart,
    pub(super) answers: Arc<Vec<Answer>>,
    pub(super) block: Arc<Block>,
    /// The same place, told by what is left to run, where histories merge.
    pub(super) place: Option<Arc<ProgramPlace>>,
    /// Next operation of the block.
    pub(super) next: u32,
    /// Operations and questions done so far.
    pub(super) index: u32,
    /// Steps taken when it came to its next operation.
    pub(super) begun: u32,
    pub(super) slots: Slots,
    /// Choices made for the next operation.
    pub(super) chosen: Vec<u32>,
    /// Where the thread stands.
    pub(super) status: Status,
    pub(super) group: Group,
    pub(super) clock: Clock,
}

walk!(apart struct ThreadState {
    start: hashed fixed,
    answers: hashed fixed,
    // It follows from start and answers.
    block: explains fixed,
    place: explains fixed,
    next: hashed fixed,
    // It follows from the answers and from where the thread stands.
    index: explains fixed,
    begun: explains fixed,
    slots: (Slots::hash) fixed,
    chosen: hashed fixed,
    // A rendezvous names members, which are the whole world where ranks are renumbered, or a link, and ranks are told
    // apart then.
    status: hashed fixed,
    group: hashed moved,
    clock: hashed moved,
});

/// The threads of a rank, in the order in which they were started.
#[derive(Debug, Clone, Default)]
pub(crate) struct Threads {
    rows: Vec<ThreadState>,
}

walk!(apart struct Threads { rows: hashed moved });

impl Identify for Status {
    fn identify(&self, to: &mut StateIdentity<'_>) {
        match self {
            Self::Waiting(rendezvous) => {
                // None of the others begins so.
                u64::MAX.hash(to);
                rendezvous.identify(to);
            }
            Self::Ready | Self::Stuck | Self::Done | Self::Exited(_) | Self::Killed => self.hash(to),
        }
    }
}

impl Identify for Threads {
    fn identify(&self, to: &mut StateIdentity<'_>) {
        for thread in &self.rows {
            // A thread that has returned and tells nobody anything new is one that never was, unless others use its results.
            let only_tells = thread.status == Status::Done && !to.remembered.shared.contains(&thread.start);
            to.unless_known(only_tells.then_some(&thread.clock), |to| thread.identify(to));
        }
        u64::MAX.hash(to);
    }
}

impl Identify for ThreadState {
    fn identify(&self, to: &mut StateIdentity<'_>) {
        let Self {
            start,
            answers: _,
            block: _,
            place,
            next,
            index: _,
            begun: _,
            slots,
            chosen,
            status,
            group,
            clock,
        } = self;
        (start, chosen).hash(to);
        status.identify(to);
        group.identify(to);
        // Nothing is left to run.
        if matches!(status, Status::Done | Status::Exited(_)) && !to.remembered.shared.contains(start) {
            clock.identify(to);
            return;
        }
        // There is none where the search was interrupted.
        let Some(place) = place else { return };
        let rest = match (status, self.upcoming()) {
            // How it votes is counted with the others' votes.
            (Status::Waiting(Rendezvous::Host(..)), Next::Op(op))
                if op.op.is_vote() && !to.remembered.votes.contains(&op.loc) =>
            {
                op.loc.identify(to);
                place.rest(to.machine, next + 1, to.remembered)
            }
            _ => place.rest(to.machine, *next, to.remembered),
        };
        rest.hash.hash(to);
        for slot in &*rest.kept {
            slots.get(*slot).hash(to);
        }
        clock.identify(to);
    }
}

impl LocalHash for Threads {
    fn local_hash<H: Hasher>(&self, state: &mut H) {
        for t in &self.rows {
            (t.start, &t.answers, t.next, &t.chosen).hash(state);
            t.is_ready().hash(state);
            t.slots.hash().hash(state);
        }
    }
}

impl RankState {
    /// Host threads, in the order in which they were started.
    #[must_use]
    pub fn threads(&self) -> &[ThreadState] {
        &Threads::of(self).rows
    }

    /// Whether one of its threads ended with an error. The process has not, as long as another goes on, and does not if that
    /// thread was one that its program started.
    pub(crate) fn has_failed_thread(&self) -> bool {
        self.threads().iter().any(|thread| matches!(thread.status, Status::Exited(_) | Status::Killed))
    }

    /// Whether none of its threads goes on.
    pub(crate) fn has_ended(&self) -> bool {
        !self.threads().iter().any(ThreadState::running)
    }

    /// Whether the process was killed, or has ended with an error: its program did, and none of its threads goes on.
    pub(crate) fn is_dead(&self) -> bool {
        let program = self.threads().first().map(ThreadState::status);
        self.was_killed() || matches!(program, Some(Status::Exited(_))) && self.has_ended()
    }

    /// Whether it was killed, whatever its threads still do here.
    pub(crate) fn was_killed(&self) -> bool {
        self.threads().iter().any(|thread| thread.status == Status::Killed)
    }

    /// Whether it is dead, and none of its threads goes on.
    pub(crate) fn has_ended_dead(&self) -> bool {
        self.is_dead() && self.has_ended()
    }

    /// Returns a host thread by its number.
    pub(crate) fn thread(&self, thread: u32) -> &ThreadState {
        &Threads::of(self).rows[thread as usize]
    }

    /// A host thread, to be changed.
    pub(crate) fn thread_mut(&mut self, thread: u32) -> &mut ThreadState {
        &mut Threads::of_mut(self).rows[thread as usize]
    }

    /// A host thread starts.
    pub(crate) fn start_thread(&mut self, thread: ThreadState) {
        Threads::of_mut(self).rows.push(thread);
    }

    /// The thread that waits at a rendezvous.
    pub(crate) fn waiting_at(&self, rendezvous: &Rendezvous) -> Option<u32> {
        let at = self.threads().iter().position(|t| t.waits_at(rendezvous))?;
        Some(u32::try_from(at).expect("few threads a rank"))
    }

    /// All threads that wait at a rendezvous return from it.
    pub(crate) fn return_from(&mut self, rendezvous: &Rendezvous) {
        let waiting = Threads::of_mut(self).rows.iter_mut().filter(|t| t.waits_at(rendezvous));
        waiting.for_each(ThreadState::go_on);
    }
}

/// What a thread does next.
pub(crate) enum Next<'a> {
    Op(&'a Statement),
    Ask(&'a Question, LocId),
    Return,
    Unknown,
}

impl<'a> Next<'a> {
    /// The operation, if it is one.
    pub(crate) fn op(&self) -> Option<&'a Op> {
        if let Self::Op(statement) = self { Some(&statement.op) } else { None }
    }
}

impl ThreadState {
    /// What comes next in the block that the thread is in.
    pub(super) fn next_in<'a>(&self, block: &'a Block) -> Next<'a> {
        match block.ops.get(self.next as usize) {
            Some(op) => Next::Op(op),
            None => match &block.terminator {
                Terminator::Return => Next::Return,
                Terminator::Ask(question, loc) => Next::Ask(question, *loc),
                Terminator::Cut => Next::Unknown,
            },
        }
    }

    /// Returns what the thread does next.
    pub(crate) fn upcoming(&self) -> Next<'_> {
        self.next_in(&self.block)
    }

    /// Where it stands, told by what is left to run; none where histories are told apart.
    pub(crate) fn place(&self) -> Option<&ProgramPlace> {
        self.place.as_deref()
    }

    /// Which operation of its block is next.
    pub(crate) fn next(&self) -> u32 {
        self.next
    }

    /// The operations that are known to come.
    pub(crate) fn ahead(&self) -> &[Statement] {
        &self.block.ops[self.next as usize..]
    }

    /// Whether it is known to return after these.
    pub(crate) fn returns(&self) -> bool {
        self.block.terminator == Terminator::Return
    }

    /// Whether it may still do an operation, as far as is known: what it is blocked in counts.
    #[must_use]
    pub fn may_do(&self, op: &Op) -> bool {
        self.running() && (!self.returns() || self.ahead().iter().any(|statement| *statement.op == *op))
    }

    /// The last operation behind it, in the block that it is in, or the first of it.
    pub(crate) fn last_loc(&self) -> Option<LocId> {
        match self.block.ops.len() {
            0 => None,
            len => Some(self.block.ops[(self.next as usize).clamp(1, len) - 1].loc),
        }
    }

    /// How many steps it has taken of its next operation. A call that waits for others takes several: one to enter, and
    /// one to go on.
    #[must_use]
    pub fn taken(&self) -> u32 {
        self.clock.epoch() - self.begun
    }

    /// It comes to its next operation.
    pub(super) fn begin(&mut self) {
        self.index += 1;
        self.begun = self.clock.epoch();
    }

    /// Where the thread stands.
    #[must_use]
    pub fn status(&self) -> &Status {
        &self.status
    }

    /// Whether it stands at its next operation.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.status == Status::Ready
    }

    /// Whether it waits at this rendezvous.
    pub(crate) fn waits_at(&self, rendezvous: &Rendezvous) -> bool {
        let Status::Waiting(at) = &self.status else { return false };
        at == rendezvous || self.group.making_at(rendezvous).is_some()
    }

    /// What it waits in: one rendezvous, or all that the end of its group is in.
    pub(crate) fn waits(&self) -> impl Iterator<Item = &Rendezvous> {
        let first = if let Status::Waiting(rendezvous) = &self.status { Some(rendezvous) } else { None };
        let others = self.group.making().iter().skip(1).map(|making| &making.rendezvous);
        first.into_iter().flat_map(move |first| std::iter::once(first).chain(others.clone()))
    }

    /// It waits for other ranks.
    pub(crate) fn wait_at(&mut self, rendezvous: Rendezvous) {
        self.status = Status::Waiting(rendezvous);
    }

    /// It returns from a wait, and does its operation again.
    pub(crate) fn go_on(&mut self) {
        self.status = Status::Ready;
    }

    /// It never returns from the call that it is in.
    pub(crate) fn hang(&mut self) {
        self.status = Status::Stuck;
    }

    /// Returns the clock of what the thread knows.
    pub(crate) fn clock(&self) -> &Clock {
        &self.clock
    }

    /// What it knows, to be added to.
    pub(crate) fn clock_mut(&mut self) -> &mut Clock {
        &mut self.clock
    }

    /// Choices made for the next operation.
    pub(crate) fn chosen(&self) -> &[u32] {
        &self.chosen
    }

    /// Sets the nondeterministic values of the next operation.
    pub(crate) fn choose(&mut self, values: &[u32]) {
        self.chosen.clear();
        self.chosen.extend_from_slice(values);
    }

    /// What was chosen is decided for good.
    pub(crate) fn forget_picks(&mut self) {
        self.chosen.clear();
    }

    /// What its operations produced.
    pub(crate) fn slots(&self) -> &Slots {
        &self.slots
    }

    /// What its operations produced, to be changed.
    pub(crate) fn slots_mut(&mut self) -> &mut Slots {
        &mut self.slots
    }

    /// Returns the group of NCCL calls that is open, empty if none is.
    pub(crate) fn group(&self) -> &Group {
        &self.group
    }

    /// Its open group, to be changed.
    pub(crate) fn group_mut(&mut self) -> &mut Group {
        &mut self.group
    }

    /// Where it stands in the program.
    pub(crate) fn loc(&self) -> LocId {
        match self.next_in(&self.block) {
            Next::Op(op) => op.loc,
            Next::Ask(_, loc) => loc,
            Next::Return | Next::Unknown => self.block.ops.last().map_or(LocId::default(), |op| op.loc),
        }
    }

    /// Whether the thread is still somewhere inside its function.
    #[must_use]
    pub fn running(&self) -> bool {
        matches!(self.status, Status::Ready | Status::Waiting(_) | Status::Stuck)
    }

    /// Whether it may still launch what communicates, as far as the rest of its block tells.
    pub(crate) fn may_launch(&self) -> bool {
        // Whoever is started knows what is known then.
        let launches = |statement: &Statement| {
            matches!(
                &*statement.op,
                Op::Collective(_)
                    | Op::Transfer(_)
                    | Op::Group(_)
                    | Op::Graph(_)
                    | Op::Thread(ThreadOp::Spawn { .. })
            )
        };
        self.running() && (!self.returns() || self.ahead().iter().any(launches))
    }

    /// Whether what it does next is not known.
    #[must_use]
    pub fn cut(&self) -> bool {
        matches!(self.next_in(&self.block), Next::Unknown)
    }

    /// The function that it runs.
    #[must_use]
    pub fn start(&self) -> ThreadStart {
        self.start
    }

    /// The answers that it was given so far.
    #[must_use]
    pub fn answers(&self) -> &[Answer] {
        &self.answers
    }

    /// How many answers it was given.
    pub(crate) fn asked(&self) -> u32 {
        u32::try_from(self.answers.len()).expect("few answers")
    }

    /// Operations and questions that it has behind it.
    #[must_use]
    pub fn index(&self) -> u32 {
        self.index
    }

    /// Has the thread return if nothing is left to run. Returns whether it does.
    pub(super) fn settle(&mut self) -> bool {
        let returns =
            self.next as usize == self.block.ops.len() && self.block.terminator == Terminator::Return;
        if returns {
            self.status = Status::Done;
        }
        returns
    }
}
