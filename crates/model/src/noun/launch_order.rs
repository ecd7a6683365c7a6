//! The launch order of a communicator: one launch after the other, on whichever streams, in the order in which
//! the host made them. What `splitShare` children launch stands in the same order.
//!
//! Source: `enqueue.cc:1663-1677` and `1903-1916`; `init.cc:3109-3131` for children. Nothing that a program may
//! rely on follows from this order, so it blocks and orders no memory.
//! Not here: what is launched.

use std::cmp::Ordering;
use std::hash::Hash;
use std::sync::Arc;

use crate::clock::{Actor, CausalPast, Clock};
use crate::host::value::CommId;
use crate::id::fingerprint;
use crate::identity::{Counter, Identify, StateIdentity};
use crate::judge::finding::OpRef;
use crate::judge::finding::{About, FindingKey, Rule};
use crate::machine::{Condition, Machine};
use crate::noun::collective::Launch;
use crate::noun::launch_cycle::{LaunchCycle, LaunchPoints, reached};
use crate::noun::p2p::Progress;
use crate::noun::stream::Work;
use crate::noun::thread::ThreadState;
use crate::order::dependence::Object;
use crate::rank::Rank;
use crate::state::{RankState, State, Table};
use crate::walk::{Rows, walk};
use rustc_hash::FxHashMap;

/// Of a large job, one launch for so many ranks is kept before some are forgotten.
const RANKS_A_LAUNCH_KEPT: usize = 4;

/// Where a launch stands among all launches of its rank.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Issue {
    /// Its position, as the launches are written.
    nth: u32,
    /// Whether a group made it together with launches on other communicators, which NCCL takes in an order of its own.
    grouped: bool,
}

impl Issue {
    /// Adds the place of a launch of this rank to an identity.
    pub(crate) fn identify(self, rank: Rank, to: &mut StateIdentity<'_>) {
        let Self { nth, grouped } = self;
        to.counted(Counter::Launches(rank), nth);
        grouped.identify(to);
    }

    /// The launch that stands so far behind this one in its group.
    pub(crate) fn in_group(self, behind: u32) -> Self {
        Self { nth: self.nth + behind, grouped: true }
    }
}

/// The launches of a communicator's family on a rank: one after the other, on whichever streams.
#[derive(Debug, Clone, Default)]
pub(crate) struct LaunchOrder {
    launched: u32,
    over: u32,
    /// Apart, because few launches are transfers.
    progress: Option<Box<Progress>>,
}

// Only transfers have progress: ranks are told apart then.
walk!(apart struct LaunchOrder { launched: hashed fixed, over: hashed fixed, progress: hashed fixed });

impl LaunchOrder {
    fn identify(&self, family: CommId, to: &mut StateIdentity<'_>) {
        let Self { launched, over, progress } = self;
        let counter = Counter::Family(to.rank(), family);
        to.counted(counter.clone(), *launched);
        to.counted(counter, *over);
        self.has_launched().identify(to);
        progress.identify(to);
    }
}

/// The last launches of one host thread of a rank among those that ran.
#[derive(Debug, Clone)]
struct LastRan {
    by: Actor,
    /// The last position among all launches of the rank.
    issue: Issue,
    /// The largest count of the thread at a call.
    called: u32,
    /// Whether all that ran of that call has that position: a group makes several launches by one call.
    alone: bool,
}

walk!(apart struct LastRan { by: hashed moved, issue: hashed fixed, called: hashed fixed, alone: hashed fixed });

/// The launch orders of a rank.
#[derive(Debug, Clone, Default)]
pub(crate) struct LaunchOrders {
    /// The launch order of each family of communicators, by the family's first communicator.
    families: Rows<CommId, LaunchOrder>,
    /// Launches so far, which is a function of positions.
    issued: u32,
    /// What ran, by the thread that launched it: says sooner what a look at all that ran says.
    ran: Vec<LastRan>,
}

walk!(apart struct LaunchOrders { families: hashed moved, issued: derived fixed, ran: explains moved });

impl Identify for LaunchOrders {
    fn identify(&self, to: &mut StateIdentity<'_>) {
        let Self { families, issued, ran: _ } = self;
        to.counted(Counter::Launches(to.rank()), *issued);
        to.unordered(families.iter(), |(family, order), to| {
            family.identify(to);
            order.identify(*family, to);
        });
    }
}

impl LaunchOrders {
    /// Whether all that ran was launched before this in every run.
    fn all_ran_before(&self, now: &Ran) -> bool {
        let before = |last: &LastRan| {
            if last.by == now.called.actor() {
                // The transfers of a group are one launch.
                let together = last.called == now.called.epoch() && now.issue.grouped;
                (last.issue == now.issue && last.alone) || (last.issue.nth < now.issue.nth && !together)
            } else {
                now.called.after(last.by, last.called)
            }
        };
        self.ran.iter().all(before)
    }

    /// Keeps that this ran.
    fn add_ran(&mut self, now: &Ran) {
        let (by, called) = (now.called.actor(), now.called.epoch());
        match self.ran.iter_mut().find(|last| last.by == by) {
            Some(last) => {
                last.alone = match called.cmp(&last.called) {
                    Ordering::Greater => true,
                    Ordering::Equal => last.alone && now.issue == last.issue,
                    Ordering::Less => last.alone,
                };
                last.issue = last.issue.max(now.issue);
                last.called = last.called.max(called);
            }
            None => self.ran.push(LastRan { by, issue: now.issue, called, alone: true }),
        }
    }
}

/// A launch that took part in a collective or a transfer that ran.
#[derive(Debug, Clone)]
pub(crate) struct Ran {
    pub(crate) rank: Rank,
    pub(crate) issue: Issue,
    /// What the thread that launched it knew.
    pub(crate) called: Clock,
    /// What its stream knew when it began.
    pub(crate) began: Clock,
    pub(crate) op: OpRef,
}

walk!(apart struct Ran {
    rank: hashed moved,
    issue: hashed fixed,
    called: hashed moved,
    began: hashed moved,
    op: hashed moved,
});

impl Identify for Ran {
    fn identify(&self, to: &mut StateIdentity<'_>) {
        let Self { rank, issue, called, began, op } = self;
        rank.identify(to);
        issue.identify(*rank, to);
        op.identify(to);
        called.identify(to);
        for clock in [called, began] {
            to.asked_about(clock.actor(), clock.epoch());
        }
    }
}

impl Ran {
    /// Whether it began before whoever holds this clock.
    pub(crate) fn known_to(&self, clock: &Clock) -> bool {
        clock.after(self.began.actor(), self.began.epoch())
    }

    /// Whether one group of its rank launched it and the other one.
    fn is_grouped_with(&self, other: &Self) -> bool {
        self.is_grouped_with_call(&other.called)
    }

    fn is_grouped_with_call(&self, called: &Clock) -> bool {
        self.issue.grouped && (self.called.actor(), self.called.epoch()) == (called.actor(), called.epoch())
    }

    /// Whether it is launched before another of its rank in every run. Of two threads that nothing orders either
    /// may come first, whichever did here.
    pub(crate) fn launched_before(&self, other: &Self) -> bool {
        self.launched_before_call(&other.called, other.issue)
    }

    /// Whether it is launched before what a thread with this clock launches, in every run.
    fn launched_before_call(&self, called: &Clock, issue: Issue) -> bool {
        let (actor, epoch) = (self.called.actor(), self.called.epoch());
        // The calls of a group are launched at one count.
        if actor == called.actor() { self.issue.nth < issue.nth } else { called.after(actor, epoch) }
    }

    /// Whether it is launched before that in whichever order NCCL takes the communicators of a group.
    pub(crate) fn comes_before_call(&self, called: &Clock, issue: Issue) -> bool {
        !self.is_grouped_with_call(called) && self.launched_before_call(called, issue)
    }

    /// Whether it is launched before another of its rank in whichever order NCCL takes the communicators of a group.
    fn comes_before(&self, other: &Self) -> bool {
        self.comes_before_call(&other.called, other.issue)
    }
}

/// Two launches of different communicators that two ranks make in opposite orders, and that nothing orders.
struct Clash {
    /// The communicator of the one that ran first.
    other: CommId,
    /// What is told to be broken.
    about: About,
    /// On one rank, the one that ran first, and the one that ran last.
    late: [OpRef; 2],
    /// On another rank, the one that ran last, which it launches first.
    first: OpRef,
    /// Whether each of these ranks launches them so in every run.
    in_every_run: [bool; 2],
}

/// A collective or a transfer that ran, kept while another may turn out to be unordered with it.
#[derive(Debug, Clone)]
pub(crate) struct Executed {
    pub(crate) comm: CommId,
    pub(crate) members: Arc<[Ran]>,
}

walk!(apart struct Executed { comm: hashed fixed, members: hashed moved });

/// What ran on all ranks, as long as a launch that is still to run may clash with it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Executions {
    launches: Vec<Executed>,
    /// How many of them there are when those are looked for next that may be forgotten.
    forget_at: usize,
}

// Which of the launches may still clash, the state says as a whole: `executed_hash`.
walk!(struct Executions { launches: explains moved, forget_at: explains fixed });

impl LaunchOrder {
    /// How far the transfers have come that were launched first and are not over.
    pub(crate) fn progress(&self) -> Option<&Progress> {
        self.progress.as_deref()
    }

    /// Returns what [`progress`](Self::progress) returns, to be changed.
    pub(crate) fn progress_mut(&mut self) -> &mut Option<Box<Progress>> {
        &mut self.progress
    }

    /// Whether anything was launched.
    pub(crate) fn has_launched(&self) -> bool {
        self.launched > 0
    }

    /// What was launched first and was not over is over.
    pub(crate) fn is_over(&mut self) {
        self.progress = None;
        self.over += 1;
    }
}

impl RankState {
    /// The first communicator of a family was entered.
    pub(crate) fn begin_launch_order(&mut self, family: CommId) {
        LaunchOrders::of_mut(self).families.push(family, LaunchOrder::default());
    }

    /// The launches of a communicator's family.
    pub(crate) fn launch_order(&self, comm: CommId) -> Option<&LaunchOrder> {
        LaunchOrders::of(self).families.get(&self.family(comm))
    }

    /// Returns the launch order of a communicator's family, to be changed.
    pub(crate) fn launch_order_mut(&mut self, comm: CommId) -> &mut LaunchOrder {
        let family = self.family(comm);
        let order = LaunchOrders::of_mut(self).families.get_mut(&family);
        order.expect("a family has an order since its first communicator")
    }

    /// A collective that was launched is over.
    pub(crate) fn launch_is_over(&mut self, launch: &Launch) {
        let order = LaunchOrders::of_mut(self).families.get_mut(&launch.family);
        order.expect("a family has an order since its first communicator").is_over();
    }

    /// Numbers the next launch of a communicator: in the launch order of its family, and among all of the rank.
    pub(crate) fn next_launch(&mut self, comm: CommId) -> (u32, Issue) {
        let order = self.launch_order_mut(comm);
        order.launched += 1;
        let sequence = order.launched - 1;
        let all = LaunchOrders::of_mut(self);
        all.issued += 1;
        (sequence, Issue { nth: all.issued - 1, grouped: false })
    }

    /// Where the next launch of the rank will stand.
    pub(crate) fn next_issue(&self) -> Issue {
        Issue { nth: LaunchOrders::of(self).issued, grouped: false }
    }

    /// Whether all that was launched before this on the channels of its communicator is over.
    pub(crate) fn is_next_launch(&self, launch: &Launch) -> bool {
        let order = LaunchOrders::of(self).families.get(&launch.family);
        order.is_some_and(|order| order.over == launch.sequence)
    }

    /// Whether all that was launched before on the communicator's family is over.
    pub(crate) fn is_next(&self, comm: CommId, sequence: u32) -> bool {
        self.launch_order(comm).is_some_and(|order| order.over == sequence)
    }

    /// Whether this work is the launch that is next in the family of `comm`.
    pub(crate) fn is_next_work(&self, comm: CommId, work: &Work) -> bool {
        work.sequence()
            .is_some_and(|(of, sequence)| self.family(of) == self.family(comm) && self.is_next(of, sequence))
    }
}

impl State {
    /// What ran, as far as it is kept.
    pub(crate) fn executed(&self) -> &[Executed] {
        &Executions::of(self.shared()).launches
    }
}

impl Work {
    /// Communicator, sequence in the launch order, and number among all launches of the rank.
    fn launched(&self) -> Option<(CommId, u32, Issue)> {
        match self {
            Self::Collective(launch) => Some((launch.comm, launch.sequence, launch.issue)),
            Self::Transfers(launch) => Some((launch.comm, launch.sequence, launch.issue)),
            Self::Kernel(_)
            | Self::Copy { .. }
            | Self::Expect(_)
            | Self::Flag(..)
            | Self::Record(..)
            | Self::Wait(..)
            | Self::Fresh(_)
            | Self::GiveBack(_) => None,
        }
    }

    /// Communicator of what communicates, and sequence in the launch order.
    pub(crate) fn sequence(&self) -> Option<(CommId, u32)> {
        self.launched().map(|(comm, sequence, _)| (comm, sequence))
    }
}

impl Machine {
    pub(crate) fn comm_objects(
        &self,
        state: &State,
        rank: Rank,
        comm: CommId,
    ) -> impl Iterator<Item = Object> + use<> {
        let family = state.rank(rank).family(comm);
        let parent = (family != comm).then(|| Object::comm(family));
        std::iter::once(Object::comm(comm)).chain(parent)
    }

    /// Whether anything will be asked of what runs now: a large job with one communicator pays nothing for it.
    /// While each rank has one thread, whoever makes another communicator knows all that was launched.
    pub(crate) fn keeps_runs(&self, state: &State) -> bool {
        let threads = || state.ranks().any(|rank| rank.threads().len() > 1);
        self.source.declares_overlap() || self.several_comms() || threads()
    }

    fn several_comms(&self) -> bool {
        self.comms.read().unwrap_or_else(std::sync::PoisonError::into_inner).len() > 1
    }

    /// Notes a collective or a transfer that runs now. Two communicators that share ranks must launch in one
    /// order everywhere, unless kernels co-reside.
    pub(crate) fn ran(&self, state: &mut State, comm: CommId, members: Arc<[Ran]>) {
        let (clashes, cycles) = self.launch_clashes(state, comm, &members);
        let none = clashes.is_empty() && cycles.is_empty();
        let past = if none { CausalPast::default() } else { members[0].called.past() };
        let mut executed = std::mem::take(&mut Executions::of_mut(state.shared_mut()).launches);
        executed.push(Executed { comm, members });
        // A declaration may name any launch.
        let forgets = !self.source.declares_overlap();
        // To forget some, each rank is looked at.
        let kept = self.config.launches_kept.max(self.config.ranks as usize / RANKS_A_LAUNCH_KEPT);
        if forgets && executed.len() >= Executions::of(state.shared()).forget_at.max(kept) {
            self.forget(state, &mut executed);
            // Many ranks have many launches under way, and all of them were looked at. Not again before there are
            // as many others.
            Executions::of_mut(state.shared_mut()).forget_at = executed.len() + executed.len().max(kept);
        }
        Executions::of_mut(state.shared_mut()).launches = executed;
        if self.source.declares_overlap() {
            self.judge_overlaps(state);
        }
        for Clash { other, about, late, first, in_every_run } in clashes {
            let launches = if in_every_run[0] { "launches" } else { "may launch" };
            let other_way = if in_every_run[1] { "" } else { "may launch them " };
            let [before, behind] = late;
            self.find(state, Rule::Coll4, about, &[behind, first, before], past.clone(), || {
                format!(
                    "rank {} {launches} {} ({}) before {} ({}), rank {} {other_way}the other way round ({}), \
                     and nothing orders them",
                    behind.rank.0,
                    self.comm_name(other),
                    self.at(&before),
                    self.comm_name(comm),
                    self.at(&behind),
                    first.rank.0,
                    self.at(&first),
                )
            });
        }
        // What two ranks turn round is told as that: the first finding about an object stays.
        for cycle in cycles {
            let ops: Vec<OpRef> = cycle.steps.iter().map(|step| step.op).collect();
            self.find(state, Rule::Coll4, cycle.about, &ops, past.clone(), || {
                self.launch_cycle_in_words(&cycle)
            });
        }
    }

    /// Earlier runs of other communicators that some rank launched before this one, some rank after it, and that
    /// nothing orders, and circles of several: one for each object that COLL-4 is not broken on yet.
    ///
    /// All of them, because in which order launches ran is no part of a state: which comes first here is history.
    fn launch_clashes(
        &self,
        state: &mut State,
        comm: CommId,
        now: &Arc<[Ran]>,
    ) -> (Vec<Clash>, Vec<LaunchCycle>) {
        if self.config.coresident > 1 {
            return Default::default();
        }
        // Nearly always all ranks launched them in one order.
        let mut in_order = true;
        for ran in now.iter() {
            let orders = LaunchOrders::of_mut(state.rank_mut(ran.rank));
            in_order &= orders.all_ran_before(ran);
            orders.add_ran(ran);
        }
        if in_order || !self.several_comms() {
            return Default::default();
        }
        let of_rank: FxHashMap<Rank, &Ran> = now.iter().map(|n| (n.rank, n)).collect();
        let turned = |e: &Ran| of_rank.get(&e.rank).is_some_and(|n| !e.comes_before(n));
        // What a clash with each communicator is about; none if that is found already.
        let mut open: FxHashMap<CommId, Option<About>> = FxHashMap::default();
        let mut clashes = Vec::new();
        let mut any_turned = false;
        for earlier in state.executed().iter().filter(|earlier| earlier.members.iter().any(turned)) {
            any_turned = true;
            let about = open.entry(earlier.comm).or_insert_with(|| {
                let about = self.of_both(comm, earlier.comm);
                // By no rank alone: it takes two to launch in two orders.
                let found = FindingKey { rule: Rule::Coll4, about, by: None };
                (!state.findings.contains_key(&found)).then_some(about)
            });
            if let Some(clash) = about.and_then(|about| Self::clash(state, comm, now, earlier, about)) {
                clashes.push(clash);
                *about = None;
            }
        }
        let cycles = if any_turned { self.launch_cycles(state, comm, now) } else { Vec::new() };
        (clashes, cycles)
    }

    /// What a clash of two communicators is about: the same whichever ran first.
    fn of_both(&self, comm: CommId, other: CommId) -> About {
        let [one, other] = [comm, other].map(About::Comm);
        std::cmp::min_by_key(one, other, |about| self.order_of(*about))
    }

    /// How two runs clash, if they do.
    fn clash(state: &State, comm: CommId, now: &[Ran], earlier: &Executed, about: About) -> Option<Clash> {
        let ordered = || earlier.members.iter().all(|e| now.iter().all(|n| e.known_to(&n.began)));
        let family = |of: CommId, ran: &Ran| state.rank(ran.rank).family(of);
        let shared: Vec<(&Ran, &Ran)> = now
            .iter()
            .filter_map(|n| earlier.members.iter().find(|e| e.rank == n.rank).map(|e| (n, e)))
            .filter(|(n, e)| family(comm, n) != family(earlier.comm, e))
            .collect();
        // A group launches in one order whatever is written, and nobody may rely on it.
        let grouped = shared.iter().filter(|(n, e)| e.is_grouped_with(n)).count();
        if grouped == 0 && ordered() {
            return None;
        }
        // Whoever launches them without a group has an order that is another one than NCCL's, or agrees with it by chance.
        let as_written = grouped == shared.len();
        let before = |one: &Ran, other: &Ran| {
            if as_written { one.launched_before(other) } else { one.comes_before(other) }
        };
        let after: Vec<_> = shared.iter().filter(|(n, e)| !before(e, n)).collect();
        shared.iter().filter(|(n, e)| !before(n, e)).find_map(|(n, e)| {
            let (first, second) = after.iter().find(|other| other.0.rank != n.rank)?;
            let in_every_run = [before(e, n), before(first, second)];
            Some(Clash { other: earlier.comm, about, late: [e.op, n.op], first: first.op, in_every_run })
        })
    }

    /// What ran, as far as a launch may clash with it that is still to run.
    pub(crate) fn identify_executed(&self, state: &State, to: &mut StateIdentity<'_>) {
        if state.executed().is_empty() {
            return;
        }
        let to_run = StillToRun::in_state(state);
        let executed = to_run.may_still_clash(state.executed());
        to.unordered(executed, |Executed { comm, members }, to| {
            comm.identify(to);
            for ran in members.iter() {
                let Ran { rank, issue, called, began, op } = ran;
                rank.hash(to);
                issue.identify(*rank, to);
                op.identify(to);
                to.asked_about(called.actor(), called.epoch());
                to.asked_about(began.actor(), began.epoch());
                to_run.known_at(ran).for_each(|known| known.hash(to));
            }
        });
    }

    /// The hash of the same where histories are told apart. What ran follows from how far each thread and each stream is,
    /// unless two threads of a rank launch: which of them came first is kept nowhere else.
    pub(crate) fn executed_hash(state: &State) -> u128 {
        let of_threads = |ran: &Ran| state.rank(ran.rank).threads().len() > 1;
        let of_two_threads = |earlier: &&Executed| earlier.members.iter().any(of_threads);
        if !state.executed().iter().any(|earlier| of_two_threads(&earlier)) {
            return 0;
        }
        let to_run = StillToRun::in_state(state);
        let hash = |Executed { comm, members }: &Executed| {
            let at = |clock: &Clock| (clock.actor(), clock.epoch());
            let member = |ran: &Ran| {
                let known: Vec<bool> = to_run.known_at(ran).collect();
                fingerprint(&(ran.rank, ran.issue, ran.op, at(&ran.called), at(&ran.began), known))
            };
            fingerprint(&(comm, members.iter().map(member).collect::<Vec<_>>()))
        };
        // In which order they ran is no part of a state.
        to_run.may_still_clash(state.executed()).filter(of_two_threads).map(hash).fold(0, u128::wrapping_add)
    }

    /// Forgets what no launch that is still to run can clash with.
    fn forget(&self, state: &State, executed: &mut Vec<Executed>) {
        let needed = |condition| !self.config.declared_needless.contains(&condition);
        let (queued, to_come) = (needed(Condition::LaunchesQueued), needed(Condition::LaunchesToCome));
        // The blocks of recorded runs are long, so it is not looked at what is left of them.
        let to_run = StillToRun::of(state, executed, queued, |thread| to_come && thread.running());
        let mut reached = reached(executed, to_run.points()).into_iter();
        executed.retain(|_| reached.next().expect("each is reached or not"));
    }
}

/// The launches that are still to run, of the ranks that something ran on: what the thread knows that makes them, and
/// their position among all launches of the rank.
struct StillToRun<'a>(FxHashMap<Rank, ToRun<'a>>);

/// Those of a rank.
#[derive(Default)]
struct ToRun<'a> {
    /// Those that were made.
    launched: Vec<(&'a Clock, Issue)>,
    /// The first that each thread may still make.
    to_come: Vec<(&'a Clock, Issue)>,
}

impl<'a> StillToRun<'a> {
    fn in_state(state: &'a State) -> Self {
        Self::of(state, state.executed(), true, ThreadState::may_launch)
    }

    /// Of the ranks on which these ran. A job may have many more.
    fn of(
        state: &'a State,
        executed: &[Executed],
        with_queued: bool,
        may_launch: impl Fn(&ThreadState) -> bool,
    ) -> Self {
        let mut of_rank: FxHashMap<Rank, ToRun<'a>> = FxHashMap::default();
        for Ran { rank, .. } in executed.iter().flat_map(|executed| executed.members.iter()) {
            of_rank.entry(*rank).or_insert_with(|| {
                let rank = state.rank(*rank);
                let queued = rank.queued().filter(|_| with_queued);
                let made = queued.filter_map(|op| op.work.launched().map(|(.., issue)| (&op.issue, issue)));
                let issued = rank.next_issue();
                let threads = rank.threads().iter().filter(|thread| may_launch(thread));
                ToRun {
                    launched: made.collect(),
                    to_come: threads.map(|thread| (thread.clock(), issued)).collect(),
                }
            });
        }
        // What was sent counts as run once it is received.
        let sent = state.in_transit().map(|ran| (ran.rank, (&ran.called, ran.issue)));
        for (rank, part) in state.handed_over_launches().chain(sent) {
            if let Some(to_run) = of_rank.get_mut(&rank) {
                to_run.launched.push(part);
            }
        }
        Self(of_rank)
    }

    /// Those that one of them may be launched before, or before others that are so, and so on: nothing else can be launched the
    /// other way round any more, or be part of a circle.
    fn may_still_clash<'e>(&self, executed: &'e [Executed]) -> impl Iterator<Item = &'e Executed>
    where
        'a: 'e,
    {
        let reached = reached(executed, self.points());
        executed.iter().zip(reached).filter(|(_, reached)| *reached).map(|(earlier, _)| earlier)
    }

    fn points(&self) -> LaunchPoints<'a> {
        let of_rank =
            |ToRun { launched, to_come }: &ToRun<'a>| launched.iter().chain(to_come).copied().collect();
        self.0.iter().map(|(rank, to_run)| (*rank, of_rank(to_run))).collect()
    }

    /// Which of those that were made on its rank it was launched after in every run.
    fn known_at(&self, ran: &Ran) -> impl Iterator<Item = bool> {
        let launched = self.0[&ran.rank].launched.iter();
        launched.map(|(called, _)| ran.called.after(called.actor(), called.epoch()))
    }
}
