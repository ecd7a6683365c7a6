//! The launch order of a communicator: one launch after the other, on whichever streams, in the order in which
//! the host made them. What `splitShare` children launch stands in the same order.
//!
//! Source: `enqueue.cc:1663-1677` and `1903-1916`; `init.cc:3109-3131` for children. Nothing that a program may
//! rely on follows from this order, so it blocks and orders no memory.
//! Not here: what is launched.

use crate::cx::Cx;
use std::sync::Arc;

use crate::host::value::CommId;
use crate::judge::finding::{About, Rule};
use crate::machine::Machine;
use crate::order::dependence::{Access, Object};
use crate::rank::Rank;
use crate::state::{Executed, Queued, Ran, State, ThreadState, Turns, Work, find};

impl Work {
    /// Communicator, turn, and position among all launches of the rank, of what communicates.
    fn launched(&self) -> Option<(CommId, u32, u32)> {
        match self {
            Self::Collective(launch) => Some((launch.comm, launch.turn, launch.issue)),
            Self::Transfers(launch) => Some((launch.comm, launch.turn, launch.issue)),
            Self::Kernel(_)
            | Self::Copy { .. }
            | Self::Expect(_)
            | Self::Flag(..)
            | Self::Record(..)
            | Self::Wait(..)
            | Self::Fresh(_) => None,
        }
    }

    /// Communicator and turn of what communicates.
    pub(crate) fn turn(&self) -> Option<(CommId, u32)> {
        self.launched().map(|(comm, turn, _)| (comm, turn))
    }
}

impl Machine {
    /// The communicator whose channels this one uses.
    pub(crate) fn family(&self, state: &State, rank: Rank, comm: CommId) -> CommId {
        self.view(state, rank, comm).map_or(comm, |view| view.family)
    }

    pub(crate) fn turns<'a>(&self, state: &'a State, rank: Rank, comm: CommId) -> Option<&'a Turns> {
        let family = self.family(state, rank, comm);
        let turns = &state.rank(rank).turns;
        find(turns, &family).map(|at| &turns[at].1)
    }

    pub(crate) fn turns_mut<'a>(&self, state: &'a mut State, rank: Rank, comm: CommId) -> &'a mut Turns {
        let family = self.family(state, rank, comm);
        let turns = &mut state.rank_mut(rank).turns;
        let at = find(turns, &family).expect("a family has turns since its first communicator");
        &mut turns[at].1
    }

    /// The next launch of a communicator on this rank: its turn, and its position among all launches.
    pub(crate) fn take_turn(&self, state: &mut State, rank: Rank, comm: CommId) -> (u32, u32) {
        let turns = self.turns_mut(state, rank, comm);
        let turn = turns.launched;
        turns.launched += 1;
        let r = state.rank_mut(rank);
        r.issued += 1;
        (turn, r.issued - 1)
    }

    /// Whether all that was launched before on the communicator's family is over.
    pub(crate) fn has_turn(&self, state: &State, rank: Rank, comm: CommId, turn: u32) -> bool {
        self.turns(state, rank, comm).is_some_and(|turns| turns.over == turn)
    }

    /// Whether this work is the launch whose turn it is in the family of `comm`.
    pub(crate) fn is_next(&self, state: &State, rank: Rank, comm: CommId, work: &Work) -> bool {
        work.turn().is_some_and(|(of, turn)| {
            self.family(state, rank, of) == self.family(state, rank, comm)
                && self.has_turn(state, rank, of, turn)
        })
    }

    pub(crate) fn comm_objects(
        &self,
        state: &State,
        rank: Rank,
        comm: CommId,
    ) -> impl Iterator<Item = Object> + use<> {
        let family = self.family(state, rank, comm);
        let parent = (family != comm).then(|| Object::comm(family));
        std::iter::once(Object::comm(comm)).chain(parent)
    }

    /// Whether anything will be asked of what runs now: a large job with one communicator pays nothing for it.
    /// While each rank has one thread, whoever makes another communicator knows all that was launched.
    pub(crate) fn keeps_runs(&self, state: &State) -> bool {
        let threads = || state.ranks.iter().any(|rank| rank.threads.len() > 1);
        self.source.declares_overlap() || self.several_comms() || threads()
    }

    fn several_comms(&self) -> bool {
        self.comms.read().unwrap_or_else(std::sync::PoisonError::into_inner).0.len() > 1
    }

    /// Notes a collective or a transfer that runs now. Two communicators that share ranks must launch in one
    /// order everywhere, unless kernels co-reside.
    pub(crate) fn ran(&self, state: &mut State, comm: CommId, members: Arc<[Ran]>) {
        let several = self.several_comms();
        let clash = if several { self.launch_clash(state, comm, &members) } else { None };
        let past = members[0].called.past();
        let mut executed = std::mem::take(&mut state.shared_mut().executed);
        executed.push(Executed { comm, members });
        // A declaration may name any launch.
        let forgets = !self.source.declares_overlap();
        if forgets && executed.len() >= state.shared.forget_at.max(self.config.launches_kept) {
            Self::forget(state, &mut executed);
            // Many ranks have many launches under way, and all of them were looked at. Not again before there are
            // as many others.
            state.shared_mut().forget_at = executed.len() + executed.len().max(self.config.launches_kept);
        }
        state.shared_mut().executed = executed;
        if self.source.declares_overlap() {
            self.judge_overlaps(state);
        }
        let Some((other, [late, early, first, second])) = clash else { return };
        let about = About::Comm(comm.min(other));
        let launches = if early.launched_before(&late) { "launches" } else { "may launch" };
        let other_way = if first.launched_before(&second) { "" } else { "may launch them " };
        self.find(state, Rule::Coll4, about, &[late.op, first.op], past, || {
            format!(
                "rank {} {launches} {} before {} ({}), rank {} {other_way}the other way round ({}), \
                 and nothing orders them",
                late.rank.0,
                self.comm_name(other),
                self.comm_name(comm),
                self.at(&late.op),
                first.rank.0,
                self.at(&first.op),
            )
        });
    }

    /// An earlier run of another communicator that some rank launched before this one, some rank after it, and
    /// that nothing orders.
    fn launch_clash(&self, state: &State, comm: CommId, now: &Arc<[Ran]>) -> Option<(CommId, [Ran; 4])> {
        if self.config.coresident > 1 {
            return None;
        }
        let family = |of: CommId, ran: &Ran| self.family(state, ran.rank, of);
        // Nearly always all ranks launched them in one order, which is seldom worth a second look.
        let mut of_rank: Vec<Option<&Ran>> = vec![None; state.ranks.len()];
        now.iter().for_each(|n| of_rank[n.rank.at()] = Some(n));
        let turned = |e: &Ran| of_rank[e.rank.at()].is_some_and(|n| !e.launched_before(n));
        state.shared.executed.iter().filter(|earlier| earlier.members.iter().any(turned)).find_map(
            |earlier| {
                let ordered = earlier.members.iter().all(|e| now.iter().all(|n| e.known_to(&n.began)));
                if ordered {
                    return None;
                }
                let shared: Vec<(&Ran, &Ran)> = now
                    .iter()
                    .filter_map(|n| earlier.members.iter().find(|e| e.rank == n.rank).map(|e| (n, e)))
                    .filter(|(n, e)| family(comm, n) != family(earlier.comm, e))
                    .collect();
                let after: Vec<_> = shared.iter().filter(|(n, e)| !e.launched_before(n)).collect();
                shared.iter().filter(|(n, e)| !n.launched_before(e)).find_map(|(n, e)| {
                    let (first, second) = after.iter().find(|other| other.0.rank != n.rank)?;
                    let clash = [(*n).clone(), (*e).clone(), (*first).clone(), (*second).clone()];
                    Some((earlier.comm, clash))
                })
            },
        )
    }

    /// Forgets what no launch that is still to run can clash with.
    fn forget(state: &State, executed: &mut Vec<Executed>) {
        // What was sent counts as run once it is received.
        let mut sent: Vec<Vec<&Ran>> = vec![Vec::new(); state.ranks.len()];
        for message in state.shared.in_flight.values().flatten() {
            sent[message.ran.rank.at()].push(&message.ran);
        }
        let first = |ran: &Ran| Self::launched_before_all(state, ran, &sent[ran.rank.at()]);
        executed.retain(|earlier| !earlier.members.iter().all(first));
    }

    /// Whether it is launched before everything of its rank that is still to run, `sent` included: nothing can be
    /// launched the other way round any more.
    fn launched_before_all(state: &State, ran: &Ran, sent: &[&Ran]) -> bool {
        let r = state.rank(ran.rank);
        let queued = |op: &Queued| {
            op.work.launched().is_none_or(|(.., issue)| ran.launched_before_call(&op.issue, issue))
        };
        let running = |thread: &&ThreadState| thread.running();
        r.threads.iter().filter(running).all(|thread| ran.launched_before_call(&thread.clock, r.issued))
            && r.streams.iter().all(|(_, stream)| stream.queue.iter().all(queued))
            && sent.iter().all(|sent| ran.launched_before(sent))
    }
}

impl Cx<'_> {
    /// Touches a communicator, and the one whose launch order it shares.
    pub(crate) fn access_comm(&mut self, comm: CommId) {
        let (m, rank) = (self.m, self.rank);
        for object in m.comm_objects(self.state, rank, comm) {
            self.access(object, Access::Write);
        }
    }
}
