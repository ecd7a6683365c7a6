//! Order: what runs at once, what is a choice, and the single steps of the unreduced semantics.
//!
//! [`Machine::advance`] is driven by a worklist and linear in the number of operations. Operations on
//! contended objects never run inside it, even when nothing else is enabled.
//! Not here: what the operations do.

use crate::cx::{Cx, Here};
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustc_hash::FxHashMap;

use crate::host::value::CommId;
use crate::machine::{Choice, Config, Explain, InFlight, Machine, Mode};
use crate::noun::collective::Launch;
use crate::noun::flag::touch_of;
use crate::noun::p2p::Link;
use crate::noun::rendezvous::Rendezvous;
use crate::noun::stream::Work;
use crate::noun::thread::Next;
use crate::noun::thread::Status;
use crate::order::dependence::{Object, ObjectKind};
use crate::order::poll::Poll;
use crate::rank::{Rank, Thread};
use crate::state::{Path, State};

/// Operations that a host thread runs before streams go on. Everything here commutes, so the
/// number decides only how much waits on streams at once.
const BATCH: u32 = 4;

/// In a run that somebody looks at, ranks take turns.
fn batch(explain: Explain) -> u32 {
    match explain {
        Explain::Memory => 1,
        Explain::No | Explain::Sentences | Explain::Yes => BATCH,
    }
}

/// What may be able to go on: a host thread or the head of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Runnable {
    Thread(Rank, u32),
    Stream(Rank, u32),
}

/// What is known while advancing; rebuilt from the state each time.
struct Worklist {
    threads: VecDeque<Runnable>,
    /// Go first: what was launched is over before more is.
    streams: VecDeque<Runnable>,
    /// By the index of the actor in clocks.
    queued: Vec<bool>,
    actors_per_rank: u32,
    arrived: FxHashMap<Rendezvous, usize>,
    /// Members at whose stream heads the next collective of a communicator stands.
    ready: FxHashMap<CommId, usize>,
    /// The launch at the head of each stream that was counted so, by the index of the actor in clocks.
    counted: Vec<Option<(CommId, u32)>>,
    /// Threads that wait for a store key or a flag, and streams that wait for a flag.
    watching: Vec<Runnable>,
    /// Set-up events to which everybody has come, while somebody waits in an earlier one of the communicator.
    too_early: Vec<Rendezvous>,
}

impl Worklist {
    fn new(config: &Config) -> Self {
        Self {
            threads: VecDeque::new(),
            streams: VecDeque::new(),
            queued: vec![false; (config.ranks * config.actors_per_rank) as usize],
            counted: vec![None; (config.ranks * config.actors_per_rank) as usize],
            actors_per_rank: config.actors_per_rank,
            arrived: FxHashMap::default(),
            ready: FxHashMap::default(),
            watching: Vec::new(),
            too_early: Vec::new(),
        }
    }

    fn at(&self, actor: Runnable) -> usize {
        // Threads are counted from the front of a rank's actors, streams from the back, as in clocks.
        let at = match actor {
            Runnable::Thread(rank, thread) => rank.0 * self.actors_per_rank + thread,
            Runnable::Stream(rank, stream) => (rank.0 + 1) * self.actors_per_rank - 1 - stream,
        };
        at as usize
    }

    fn queued(&mut self, actor: Runnable) -> &mut bool {
        let at = self.at(actor);
        &mut self.queued[at]
    }

    /// Counts a launch that is next on its communicator and stands at the head of this stream; returns how many members
    /// stand so.
    fn count_ready(&mut self, stream: Runnable, launch: &Launch) -> usize {
        let at = self.at(stream);
        let ready = self.ready.entry(launch.comm).or_default();
        if self.counted[at].replace((launch.comm, launch.nth)) != Some((launch.comm, launch.nth)) {
            *ready += 1;
        }
        *ready
    }

    fn push(&mut self, actor: Runnable) {
        if !std::mem::replace(self.queued(actor), true) {
            match actor {
                Runnable::Thread(..) => self.threads.push_back(actor),
                Runnable::Stream(..) => self.streams.push_back(actor),
            }
        }
    }

    fn pop(&mut self) -> Option<Runnable> {
        let actor = self.streams.pop_front().or_else(|| self.threads.pop_front())?;
        *self.queued(actor) = false;
        Some(actor)
    }

    fn push_streams(&mut self, state: &State, rank: Rank) {
        let r = state.rank(rank);
        for stream in 0..r.streams().len() {
            if !r.stream(stream).is_empty() {
                self.push(Runnable::Stream(rank, index(stream)));
            }
        }
    }

    fn wake_watchers(&mut self) {
        for watcher in std::mem::take(&mut self.watching) {
            self.push(watcher);
        }
    }

    /// Who ends leaves its communicators, for which others may wait.
    fn wake_if_ended(&mut self, state: &State, rank: Rank, thread: u32) {
        if !state.rank(rank).thread(thread).running() {
            self.wake_watchers();
        }
    }

    fn push_rank(&mut self, state: &State, rank: Rank) {
        self.push_streams(state, rank);
        let r = state.rank(rank);
        for thread in 0..r.threads().len() {
            if r.threads()[thread].is_ready() {
                self.push(Runnable::Thread(rank, index(thread)));
            }
        }
    }
}

fn index(at: usize) -> u32 {
    u32::try_from(at).expect("few actors a rank")
}

impl Machine {
    /// Runs everything that commutes until only choices are left.
    pub fn advance(&self, state: &mut State) {
        self.advance_for(state, u64::MAX);
    }

    /// As [`advance`](Self::advance), but not much further than so many operations. Returns whether only choices are left.
    pub fn advance_for(&self, state: &mut State, operations: u64) -> bool {
        let is_quiet = self.advance_woken(state, operations, |_| true);
        state.share();
        is_quiet
    }

    /// As [`advance`](Self::advance), of a state that a choice made of one in which only choices were left: threads of
    /// ranks that the choice left alone are not looked at again. Copies share nothing yet of what is written.
    pub fn advance_on(&self, state: &mut State) {
        let quiet: Vec<bool> = (0..self.config.ranks).map(|rank| state.is_quiet(Rank(rank))).collect();
        self.advance_woken(state, u64::MAX, |rank| !quiet[rank.at()]);
    }

    fn advance_woken(&self, state: &mut State, operations: u64, woken: impl Fn(Rank) -> bool) -> bool {
        let before = state.steps;
        let mut work = Worklist::new(&self.config);
        for rank in (0..self.config.ranks).map(Rank) {
            // Who waits in a destruction waits for other ranks to change.
            let woken = woken(rank) || state.rank(rank).is_parting();
            if woken {
                work.push_rank(state, rank);
            } else {
                // Members of a collective are counted as they are looked at.
                work.push_streams(state, rank);
            }
            for (at, t) in state.rank(rank).threads().iter().enumerate() {
                if !woken && t.is_ready() && self.here(state, rank, index(at)).watches() {
                    work.watching.push(Runnable::Thread(rank, index(at)));
                }
                let waits = t.waits();
                for rendezvous in waits.filter(|m| state.rank(rank).waiting_at(m) == Some(index(at))) {
                    *work.arrived.entry(rendezvous.clone()).or_default() += 1;
                }
            }
        }
        let waited_for: Vec<Rendezvous> = work.arrived.keys().cloned().collect();
        let mut complete: Vec<Rendezvous> =
            waited_for.into_iter().filter(|m| work.arrived[m] == self.invited(m).len()).collect();
        complete.sort();
        for rendezvous in complete {
            self.hold(state, &mut work, &rendezvous);
        }
        let mut is_quiet = true;
        while let Some(actor) = work.pop().or_else(|| self.told_of_the_dead(state, &mut work)) {
            if self.interrupted() {
                break;
            }
            if state.steps - before >= operations {
                is_quiet = false;
                break;
            }
            if state.steps - before > self.config.steps_at_most {
                self.interrupt(|pending| pending.steps = Some(self.config.steps_at_most));
                break;
            }
            match actor {
                Runnable::Thread(rank, thread) => self.advance_thread(state, &mut work, rank, thread),
                Runnable::Stream(rank, stream) => self.advance_stream(state, &mut work, rank, stream),
            }
        }
        if is_quiet {
            state.is_quiet_now();
        }
        self.steps.fetch_add(state.steps - before, Ordering::Relaxed);
        is_quiet
    }

    /// A thread that goes on because it is told that somebody is dead for whom it waits.
    fn told_of_the_dead(&self, state: &mut State, work: &mut Worklist) -> Option<Runnable> {
        let rendezvous = self.missed_by_the_dead(state)?;
        let rank = self.leave_the_dead(state, &rendezvous)?;
        work.arrived.remove(&rendezvous);
        work.push_rank(state, rank);
        work.wake_watchers();
        work.pop()
    }

    fn advance_thread(&self, state: &mut State, work: &mut Worklist, rank: Rank, thread: u32) {
        let mut progressed = false;
        let mut entered = Vec::new();
        for _ in 0..batch(self.config.explain) {
            if self.interrupted() || self.here(state, rank, thread).contended() {
                break;
            }
            let plan = match self.here(state, rank, thread).poll() {
                Poll::Run(plan) => plan,
                Poll::Open(..) => break,
                Poll::Wait => {
                    if self.here(state, rank, thread).watches() {
                        work.watching.push(Runnable::Thread(rank, thread));
                    }
                    break;
                }
            };
            let shared = self.here(state, rank, thread).wakes();
            self.cx(state, rank, thread).run_thread(plan);
            progressed = true;
            if shared {
                work.wake_watchers();
            }
            work.wake_if_ended(state, rank, thread);
            entered.extend(state.rank(rank).thread(thread).waits().cloned());
            if !entered.is_empty() {
                break;
            }
        }
        if progressed {
            work.push_rank(state, rank);
        }
        for rendezvous in entered {
            self.count_arrival(state, work, rank, &rendezvous);
        }
    }

    fn count_arrival(&self, state: &mut State, work: &mut Worklist, rank: Rank, rendezvous: &Rendezvous) {
        // Two threads of a rank may wait for one connection; the rank counts once.
        let threads = state.rank(rank).threads();
        if threads.iter().filter(|t| t.waits_at(rendezvous)).count() > 1 {
            return;
        }
        let arrived = work.arrived.entry(rendezvous.clone()).or_default();
        *arrived += 1;
        // Who came may have been caught since in something else that the end of its group waits in.
        if *arrived == self.invited(rendezvous).len() && self.everybody_at(state, rendezvous) {
            self.hold(state, work, rendezvous);
        }
    }

    /// Holds a rendezvous to which everybody has come, as soon as those before it are over.
    fn hold(&self, state: &mut State, work: &mut Worklist, rendezvous: &Rendezvous) {
        if self.is_too_early(state, rendezvous) {
            work.too_early.push(rendezvous.clone());
            return;
        }
        work.arrived.remove(rendezvous);
        if self.rendezvous_contended(state, rendezvous) {
            return;
        }
        let invited = self.invited(rendezvous);
        let here: Vec<(u32, bool)> = invited
            .iter()
            .map(|rank| {
                let thread = state.rank(*rank).waiting_at(rendezvous).expect("a rendezvous is complete");
                (thread, state.rank(*rank).thread(thread).waits().count() > 1)
            })
            .collect();
        self.meet(state, rendezvous);
        for (rank, (thread, in_others)) in invited.iter().zip(here) {
            work.push_rank(state, *rank);
            work.wake_if_ended(state, *rank, thread);
            // A registration that a leftover stood in for goes on to the next rendezvous. Where the end of a group is,
            // it was counted when it came.
            if let Status::Waiting(next) = &state.rank(*rank).thread(thread).status()
                && !in_others
            {
                let next = next.clone();
                self.count_arrival(state, work, *rank, &next);
            }
        }
        for later in std::mem::take(&mut work.too_early) {
            if self.everybody_at(state, &later) {
                self.hold(state, work, &later);
            }
        }
    }

    /// Whether somebody waits in an earlier set-up event of the communicator: they take place in order, whichever thread waits
    /// in them.
    fn is_too_early(&self, state: &State, rendezvous: &Rendezvous) -> bool {
        let Rendezvous::Setup(comm, nth) = rendezvous else { return false };
        let earlier = |other: &Rendezvous| matches!(other, Rendezvous::Setup(of, n) if of == comm && n < nth);
        self.invited(rendezvous)
            .iter()
            .any(|rank| state.rank(*rank).threads().iter().any(|thread| thread.waits().any(earlier)))
    }

    /// An operation that waits for other ranks runs in two parts, and both touch the same objects: what is
    /// unordered with the call may come before it, after its return, or in between. So on a contended object
    /// the return is a step as the call is one.
    fn rendezvous_contended(&self, state: &State, rendezvous: &Rendezvous) -> bool {
        !self.config.contended.is_empty()
            && self.invited(rendezvous).iter().any(|rank| {
                state
                    .rank(*rank)
                    .waiting_at(rendezvous)
                    .is_some_and(|thread| self.here(state, *rank, thread).contended())
            })
    }

    /// Rendezvous that can take place.
    fn complete_rendezvous(&self, state: &State) -> Vec<Rendezvous> {
        let mut waited: Vec<&Rendezvous> = Vec::new();
        for t in state.ranks().flat_map(|r| r.threads()) {
            for rendezvous in t.waits() {
                if !waited.contains(&rendezvous) {
                    waited.push(rendezvous);
                }
            }
        }
        waited.into_iter().filter(|rendezvous| self.can_take_place(state, rendezvous)).cloned().collect()
    }

    /// The rendezvous that a thread is in.
    #[must_use]
    pub fn waits_in(state: &State, rank: Rank, thread: Thread) -> Option<Rendezvous> {
        match &state.rank(rank).thread(thread.0).status() {
            Status::Waiting(rendezvous) => Some(rendezvous.clone()),
            Status::Ready | Status::Stuck | Status::Done | Status::Exited(_) | Status::Killed => None,
        }
    }

    /// The rendezvous from which a thread can return that waits in some.
    fn returns_from(&self, state: &State, rank: Rank, thread: Thread) -> Option<Rendezvous> {
        let mut waits = state.rank(rank).thread(thread.0).waits();
        waits.find(|rendezvous| self.can_take_place(state, rendezvous)).cloned()
    }

    fn can_take_place(&self, state: &State, rendezvous: &Rendezvous) -> bool {
        self.everybody_at(state, rendezvous) && !self.is_too_early(state, rendezvous)
    }

    fn everybody_at(&self, state: &State, rendezvous: &Rendezvous) -> bool {
        self.invited(rendezvous).iter().all(|rank| state.rank(*rank).waiting_at(rendezvous).is_some())
    }

    fn advance_stream(&self, state: &mut State, work: &mut Worklist, rank: Rank, stream: u32) {
        let at = stream as usize;
        let mut progressed = false;
        while !state.rank(rank).stream(at).is_hung()
            && !self.head_is_turn(state, rank, at)
            && self.head_ready(state, rank, at)
        {
            let flag = Self::flag_at_head(state, rank, at);
            self.run_head(state, rank, at);
            progressed = true;
            if flag.is_some_and(|(_, act)| act.writes().is_some()) {
                work.wake_watchers();
            }
        }
        if Self::flag_at_head(state, rank, at).is_some() {
            work.watching.push(Runnable::Stream(rank, stream));
        }
        if progressed {
            work.push_rank(state, rank);
        }
        self.advance_transfers(state, work, rank, at);
        let s = state.rank(rank).stream(at);
        let Some(Work::Collective(launch)) = s.work() else { return };
        let comm = launch.comm;
        if s.is_hung() || self.ready_stream(state, rank, comm) != Some(at) {
            return;
        }
        if self.config.in_flight == InFlight::OfPlatform && self.can_hand_over(state, rank, launch) {
            self.hand_over(state, rank, at);
            work.push_rank(state, rank);
            // Those who take it may be there already.
            self.run_ready(state, work, comm, 0);
            return;
        }
        let ready = work.count_ready(Runnable::Stream(rank, stream), launch);
        let size = state.rank(rank).comm(comm).map_or(0, |comm| comm.size());
        if ready == size || self.config.in_flight == InFlight::OfPlatform {
            self.run_ready(state, work, comm, ready);
        }
    }

    /// Runs the next collective of a communicator if every member stands ready, or has handed over.
    fn run_ready(&self, state: &mut State, work: &mut Worklist, comm: CommId, ready: usize) {
        let members = self.members(comm);
        let all = match self.config.in_flight {
            InFlight::Nothing => ready == members.len(),
            InFlight::OfPlatform => members.iter().all(|rank| self.stands_ready(state, *rank, comm)),
        };
        if all {
            work.ready.insert(comm, 0);
            self.run_collective(state, comm);
            for member in members.iter() {
                work.push_rank(state, *member);
            }
        }
    }

    /// Transfers what the launch at the head of a stream can.
    fn advance_transfers(&self, state: &mut State, work: &mut Worklist, rank: Rank, stream: usize) {
        for link in self.open_links(state, rank, stream) {
            while self.transferable(state, link) {
                self.run_transfer(state, link);
                work.push_rank(state, link.from);
                work.push_rank(state, link.to);
            }
        }
    }

    /// The choices at quiescence: the nondeterministic values of one thread, alone; if there are none, every enabled
    /// operation on a contended object.
    ///
    /// The thread that has come furthest chooses first, so that one rank after the other is played through and
    /// interchangeable ranks meet in few states.
    #[must_use]
    pub fn choices(&self, state: &State) -> Vec<Choice> {
        let mut choices = self.all_choices(state);
        if self.takes_one_order(state) {
            keep_one_order(&mut choices);
        }
        self.keep_persistent(state, &mut choices);
        choices
    }

    fn all_choices(&self, state: &State) -> Vec<Choice> {
        let mut threads = self.threads(state);
        // Where histories merge, how far a thread has come is none of its state.
        if self.config.remembered.is_none() {
            let progress = |rank: Rank, thread: u32| state.rank(rank).thread(thread).index();
            threads.sort_by_key(|(rank, thread)| std::cmp::Reverse(progress(*rank, *thread)));
        } else {
            // What a rank has queued tells states apart until the others have come to it.
            threads.sort_by_key(|(rank, _)| state.rank(*rank).queued().count());
        }
        let mut choices = Vec::new();
        for (rank, thread) in threads {
            let contended = self.here(state, rank, thread).contended();
            match self.here(state, rank, thread).poll() {
                Poll::Open(..) if !contended => {
                    return self.here(state, rank, thread).value_choices().collect();
                }
                Poll::Open(..) => choices.extend(self.here(state, rank, thread).value_choices()),
                Poll::Run(_) if contended => choices.push(Choice::Thread(rank, Thread(thread))),
                Poll::Run(_) | Poll::Wait => {}
            }
        }
        if self.config.contended.is_empty() {
            return choices;
        }
        for rank in (0..self.config.ranks).map(Rank) {
            for at in 0..state.rank(rank).streams().len() {
                if self.turn_of_stream(state, rank, at) {
                    choices.push(Choice::Stream(rank, index(at)));
                }
            }
        }
        // Complete rendezvous are left only if they are contended. A choice of a thread that waits is its return.
        for rendezvous in self.complete_rendezvous(state) {
            let first = self.invited(&rendezvous)[0];
            let thread = state.rank(first).waiting_at(&rendezvous).expect("a complete rendezvous");
            choices.push(Choice::Thread(first, Thread(thread)));
        }
        choices
    }

    /// Whether the thread's next operation is on a contended object, so that its schedule is a choice.
    #[must_use]
    pub fn is_turn(&self, state: &State, rank: Rank, thread: Thread) -> bool {
        self.here(state, rank, thread.0).contended()
    }

    /// Whether the head of a stream can run, and its schedule is a choice.
    fn turn_of_stream(&self, state: &State, rank: Rank, stream: usize) -> bool {
        !state.rank(rank).stream(stream).is_hung()
            && self.head_is_turn(state, rank, stream)
            && self.head_ready(state, rank, stream)
    }

    fn threads(&self, state: &State) -> Vec<(Rank, u32)> {
        (0..self.config.ranks)
            .map(Rank)
            .flat_map(|rank| (0..index(state.rank(rank).threads().len())).map(move |t| (rank, t)))
            .collect()
    }

    /// Every enabled step of the unreduced semantics.
    #[must_use]
    pub fn steps(&self, state: &State) -> Vec<Choice> {
        assert_eq!(self.config.mode, Mode::Naive, "single steps belong to the naive semantics");
        let mut steps = Vec::new();
        for (rank, thread) in self.threads(state) {
            match self.here(state, rank, thread).poll() {
                Poll::Wait => {}
                Poll::Run(_) => steps.push(Choice::Thread(rank, Thread(thread))),
                Poll::Open(..) => steps.extend(self.here(state, rank, thread).value_choices()),
            }
        }
        steps.extend(self.complete_rendezvous(state).into_iter().map(Choice::Meet));
        steps.extend(self.missed_by_the_dead(state).map(Choice::Meet));
        steps.extend(self.transferable_links(state).into_iter().map(Choice::Transfer));
        for rank in (0..self.config.ranks).map(Rank) {
            for (at, (_, stream)) in state.rank(rank).streams().iter().enumerate() {
                if stream.is_hung() {
                    continue;
                }
                let enabled = match stream.work() {
                    Some(Work::Collective(launch)) => {
                        let members = self.members(launch.comm);
                        let takes = |m: &&Rank| !self.has_handed_over(state, **m, launch.comm);
                        self.ready_stream(state, rank, launch.comm) == Some(at)
                            && (self.can_hand_over(state, rank, launch)
                                || members.iter().find(takes) == Some(&rank)
                                    && members.iter().all(|m| self.stands_ready(state, *m, launch.comm)))
                    }
                    _ => self.head_ready(state, rank, at),
                };
                if enabled {
                    steps.push(Choice::Stream(rank, index(at)));
                }
            }
        }
        steps
    }

    fn transferable_links(&self, state: &State) -> BTreeSet<Link> {
        let ranks = (0..self.config.ranks).map(Rank);
        let streams =
            ranks.flat_map(|rank| (0..state.rank(rank).streams().len()).map(move |stream| (rank, stream)));
        let links = streams.flat_map(|(rank, stream)| self.open_links(state, rank, stream));
        links.filter(|link| self.transferable(state, *link)).collect()
    }

    /// Whether a choice is possible here, for traces that may no longer fit.
    #[must_use]
    pub fn possible(&self, state: &State, choice: &Choice) -> bool {
        match choice {
            Choice::Thread(rank, thread) => match Self::waits_in(state, *rank, *thread) {
                Some(_) => self.returns_from(state, *rank, *thread).is_some(),
                None => matches!(self.here(state, *rank, thread.0).poll(), Poll::Run(_)),
            },
            Choice::Value(rank, thread, values) => {
                matches!(self.here(state, *rank, thread.0).poll(), Poll::Open(..))
                    && self.here(state, *rank, thread.0).expand().contains(values)
            }
            Choice::Stream(rank, stream) => {
                let at = *stream as usize;
                at < state.rank(*rank).streams().len() && self.turn_of_stream(state, *rank, at)
            }
            Choice::Transfer(_) | Choice::Meet(_) => false,
        }
    }

    /// Takes a choice. In the reduced semantics [`Machine::advance`] follows.
    pub fn take(&self, state: &mut State, choice: &Choice) {
        match choice {
            Choice::Thread(rank, thread) => match self.returns_from(state, *rank, *thread) {
                Some(rendezvous) => self.meet(state, &rendezvous),
                None => self.cx(state, *rank, thread.0).run_polled(),
            },
            Choice::Value(rank, thread, values) => {
                state.rank_mut(*rank).thread_mut(thread.0).choose(values);
                self.cx(state, *rank, thread.0).run_polled();
            }
            Choice::Meet(rendezvous) if self.everybody_at(state, rendezvous) => self.meet(state, rendezvous),
            Choice::Meet(rendezvous) => {
                self.leave_the_dead(state, rendezvous);
            }
            Choice::Transfer(link) => self.run_transfer(state, *link),
            Choice::Stream(rank, stream) => {
                let at = *stream as usize;
                match &state.rank(*rank).stream(at).head().expect("enabled").work {
                    Work::Collective(launch) if self.can_hand_over(state, *rank, launch) => {
                        let comm = launch.comm;
                        self.hand_over(state, *rank, at);
                        // Nobody is left at whose stream head it stands.
                        let members = self.members(comm);
                        if members.iter().all(|member| self.has_handed_over(state, *member, comm)) {
                            self.run_collective(state, comm);
                        }
                    }
                    Work::Collective(launch) => {
                        let comm = launch.comm;
                        self.run_collective(state, comm);
                    }
                    Work::Transfers(_) => unreachable!("a transfer is a step of its link"),
                    Work::Kernel(_)
                    | Work::Copy { .. }
                    | Work::Expect(_)
                    | Work::Flag(..)
                    | Work::Record(..)
                    | Work::Wait(..)
                    | Work::Fresh(_)
                    | Work::GiveBack(_) => self.run_head(state, *rank, at),
                }
            }
        }
    }

    /// Remembers a choice on the way to a state, in the ranks' original numbers.
    pub fn remember(&self, state: &mut State, choice: &Choice) {
        let original = |rank: &Rank| state.original[rank.at()];
        let choice = match choice {
            Choice::Thread(rank, thread) => Choice::Thread(original(rank), *thread),
            Choice::Value(rank, thread, values) => Choice::Value(original(rank), *thread, values.clone()),
            Choice::Stream(rank, stream) => Choice::Stream(original(rank), *stream),
            Choice::Meet(rendezvous) => Choice::Meet(rendezvous.clone()),
            Choice::Transfer(link) => Choice::Transfer(*link),
        };
        state.path = Some(Arc::new(Path { choice, before: state.path.take() }));
    }

    /// Operations still blocked at the end take part in the search for contention.
    pub fn contend_blocked(&self, state: &State) {
        if state.launched_together() && self.is_blocked(state) {
            self.contend(Object::COMM_HASHES);
        }
        for (rank, thread) in self.threads(state) {
            let t = state.rank(rank).thread(thread);
            if !t.is_ready() || !matches!(self.here(state, rank, thread).poll(), Poll::Wait) {
                continue;
            }
            self.here(state, rank, thread).footprint(&mut |object, access| {
                let clashes = if object.is_shared() {
                    state.clashes(object, access, t.clock())
                } else {
                    state.rank(rank).clashes(object, access, t.clock())
                };
                if clashes {
                    self.contend(object);
                }
            });
        }
        for rank in (0..self.config.ranks).map(Rank) {
            for (at, (_, stream)) in state.rank(rank).streams().iter().enumerate() {
                let Some((flag, act)) = Self::flag_at_head(state, rank, at) else { continue };
                let object = Object::named(ObjectKind::Flag, flag);
                let mut clock = stream.clock().clone();
                clock.join(&stream.head().expect("it has a head").issue);
                if state.clashes(object, touch_of(act), &clock) {
                    self.contend(object);
                }
            }
        }
    }
}

/// Keeps what is first, with all its values.
fn keep_one_order(choices: &mut Vec<Choice>) {
    if let Some(Choice::Value(rank, thread, _)) = choices.first().cloned() {
        choices.retain(|choice| matches!(choice, Choice::Value(r, t, _) if (*r, *t) == (rank, thread)));
    } else {
        choices.truncate(1);
    }
}

impl Cx<'_> {
    /// Runs the next operation of a thread if nothing is open and it need not wait.
    fn run_polled(&mut self) {
        if let Poll::Run(plan) = self.here().poll() {
            self.run_thread(plan);
        }
    }
}

impl<'a> Here<'a> {
    fn watches(self) -> bool {
        let t = self.this();
        matches!(t.upcoming(), Next::Op(op) if op.op.verb().watches())
    }

    /// Whether what the thread does next may change what others watch.
    fn wakes(self) -> bool {
        let t = self.this();
        matches!(t.upcoming(), Next::Op(op) if op.op.verb().wakes())
    }

    fn value_choices(self) -> impl Iterator<Item = Choice> + use<> {
        let Here { rank, thread, .. } = self;
        let values = self.expand();
        values.into_iter().map(move |values| Choice::Value(rank, Thread(thread), values))
    }
}
