//! Rendezvous: what threads of several ranks wait for together, and what happens once all are there.
//! Not here: what nouns do with those who came.

use std::sync::Arc;

use crate::clock::Clock;
use crate::cx::Cx;
use crate::host::value::{CommId, Value};
use crate::id::Token;
use crate::identity::{Counter, Identify, StateIdentity};
use crate::judge::finding::OpRef;
use crate::machine::{CommInfo, Connections, InFlight, Machine};
use crate::members::MemberList;
use crate::noun::collective::Connection;
use crate::noun::comm::CommOp;
use crate::noun::group::GroupCall;
use crate::noun::p2p::{Handshake, Link};
use crate::noun::thread::Status;
use crate::op::Op;
use crate::platform::SplitWithTheDead;
use crate::rank::Rank;
use crate::state::{RankState, State};
use std::hash::Hash;

/// What threads wait for together. The n-th event of a kind pairs with the others' n-th by order alone.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rendezvous {
    /// `ncclCommInitRank`: the n-th init of a name among these ranks.
    Init(Token, u32, MemberList),
    /// The n-th set-up event of a communicator: registration or split.
    Setup(CommId, u32),
    /// First use of the ordinary path of a communicator.
    Connect(CommId, Connection),
    /// First use of a communicator from one rank to another.
    Link(Link, Handshake),
    /// The n-th host barrier or agreement of these ranks.
    Host(MemberList, u32),
    /// The n-th exchange of handles of these ranks.
    Exchange(MemberList, u32),
}

impl Identify for Rendezvous {
    fn identify(&self, to: &mut StateIdentity<'_>) {
        let (counter, nth) = match self {
            Self::Host(members, nth) => (Counter::HostBarriers(members.clone()), nth),
            Self::Exchange(members, nth) => (Counter::HandleExchanges(members.clone()), nth),
            // Communicators and windows are named by these numbers.
            Self::Init(..) | Self::Setup(..) | Self::Connect(..) | Self::Link(..) => return self.hash(to),
        };
        counter.hash(to);
        to.counted(counter, *nth);
    }
}

impl Machine {
    /// Members that connect for different collectives are wired as chance has it: they hang on the host, or one
    /// of them finishes with wrong data and the other hangs on the device (both measured).
    pub(crate) fn judge_connections(&self, state: &mut State) {
        let mut connecting = Vec::new();
        for (rank, r) in (0..).map(Rank).zip(state.ranks()) {
            for (thread, t) in (0..).zip(r.threads()) {
                if let Status::Waiting(Rendezvous::Connect(comm, connection)) = t.status() {
                    connecting.push((*comm, *connection, self.here(state, rank, thread).op_ref()));
                }
            }
        }
        let differs = connecting.iter().find(|(comm, connection, _)| {
            connecting.iter().any(|(of, other, _)| of == comm && other != connection)
        });
        if let Some((.., op)) = differs {
            Self::undefine(state, *op);
        }
        self.judge_cross_links(state);
        self.judge_splits_with_the_dead(state);
    }

    /// Judges first uses of links that wait for each other crosswise: see [`Machine::cross_links`].
    fn judge_cross_links(&self, state: &mut State) {
        let mut linking: Vec<(Link, OpRef)> = Vec::new();
        for (rank, r) in (0..).map(Rank).zip(state.ranks()) {
            for (thread, t) in (0..).zip(r.threads()) {
                if let Status::Waiting(Rendezvous::Link(link, _)) = t.status() {
                    linking.push((*link, self.here(state, rank, thread).op_ref()));
                }
            }
        }
        let crossed = linking.iter().find(|(link, op)| {
            linking.iter().any(|(other, by)| by.rank != op.rank && self.cross_links(*link, *other))
        });
        if let Some((_, op)) = crossed {
            Self::undefine(state, *op);
        }
    }

    /// The splits of which a member's process has ended, each with one who waits in it. A verdict rests on nothing that
    /// is told then.
    ///
    /// Where only one thread of the member has ended so, another may still come, or waits in the split itself: nobody is
    /// told before that is over. A process that has ended never comes, so it makes no difference when the others are told.
    ///
    /// With each is whether it is the call itself that is waited in; of the end of a group nothing was measured.
    fn splits_with_the_dead(&self, state: &State) -> Vec<(Rendezvous, OpRef, bool)> {
        if self.config.in_flight == InFlight::Nothing || !state.ranks().any(RankState::has_ended_dead) {
            return Vec::new();
        }
        let mut splits = Vec::new();
        for (rank, r) in (0..).map(Rank).zip(state.ranks()) {
            for (thread, t) in (0..).zip(r.threads()) {
                let called = matches!(t.upcoming().op(), Some(Op::Comm(CommOp::Split { .. })));
                splits.extend(t.waits().filter_map(|rendezvous| {
                    let grouped = t.group().making_at(rendezvous);
                    let splits = matches!(rendezvous, Rendezvous::Setup(..)) && (called || grouped.is_some());
                    let invited = self.invited(rendezvous);
                    (splits && invited.iter().any(|member| state.rank(*member).has_ended_dead())).then(|| {
                        let op =
                            grouped.map_or_else(|| self.here(state, rank, thread).op_ref(), GroupCall::op);
                        (rendezvous.clone(), op, called)
                    })
                }));
            }
        }
        splits
    }

    fn split_with_the_dead(&self, rendezvous: &Rendezvous) -> SplitWithTheDead {
        self.config.platform.split_with_the_dead(self.invited(rendezvous).len())
    }

    /// A split in which somebody waits who is told that another member is dead.
    pub(crate) fn missed_by_the_dead(&self, state: &State) -> Option<Rendezvous> {
        let splits = self.splits_with_the_dead(state).into_iter();
        let mut told = splits.filter_map(|(rendezvous, _, called)| called.then_some(rendezvous));
        told.find(|rendezvous| self.split_with_the_dead(rendezvous) != SplitWithTheDead::Unspecified)
    }

    /// The first of those who wait in a split for somebody whose process has ended is told, and goes on.
    pub(crate) fn leave_the_dead(&self, state: &mut State, rendezvous: &Rendezvous) -> Option<Rank> {
        let Rendezvous::Setup(comm, _) = rendezvous else { return None };
        let invited = self.invited(rendezvous);
        let SplitWithTheDead::Error(code) = self.split_with_the_dead(rendezvous) else { return None };
        let (rank, thread) =
            invited.iter().find_map(|rank| Some((*rank, state.rank(*rank).waiting_at(rendezvous)?)))?;
        self.note_memory(state);
        state.steps += 1;
        let mut cx = self.cx(state, rank, thread);
        cx.fail(format!("{}.split", self.comm_name_on(rank, *comm)), code);
        cx.done(&[Value::Null]);
        Some(rank)
    }

    /// Judges splits that wait for somebody who is dead where it is not known who is told: see
    /// [`SplitWithTheDead::Unspecified`].
    fn judge_splits_with_the_dead(&self, state: &mut State) {
        if let Some((_, op, _)) = self.splits_with_the_dead(state).first() {
            Self::undefine(state, *op);
        }
    }

    /// Who has to come to a rendezvous.
    pub(crate) fn invited(&self, rendezvous: &Rendezvous) -> Arc<[Rank]> {
        match rendezvous {
            Rendezvous::Init(_, _, members)
            | Rendezvous::Host(members, _)
            | Rendezvous::Exchange(members, _) => Arc::clone(members.list()),
            Rendezvous::Setup(comm, _) | Rendezvous::Connect(comm, _) => self.members(*comm),
            Rendezvous::Link(link, _) => Arc::from([link.from, link.to]),
        }
    }

    /// Everybody is there: the rendezvous happens.
    pub(crate) fn meet(&self, state: &mut State, rendezvous: &Rendezvous) {
        self.note_memory(state);
        state.steps += 1;
        let invited = self.invited(rendezvous);
        let here: Vec<(Rank, u32)> = invited
            .iter()
            .map(|rank| {
                let thread = state.rank(*rank).waiting_at(rendezvous).expect("a rendezvous is complete");
                (*rank, thread)
            })
            .collect();
        self.note_threads_met(&here);
        match rendezvous {
            Rendezvous::Init(name, nth, members) => {
                self.order_all(state, &here);
                let info = CommInfo {
                    name: *name,
                    names: None,
                    nth: *nth,
                    parent: None,
                    members: Arc::clone(members.list()),
                };
                let comm = self.comm_id(info);
                for (rank, thread) in &here {
                    let t = state.rank(*rank).thread(*thread);
                    let children = match (t.group().making_at(rendezvous), t.upcoming().op()) {
                        (Some(GroupCall::Init { children, .. }), _)
                        | (None, Some(Op::Comm(CommOp::Init { children, .. }))) => *children,
                        _ => unreachable!("all enter the init"),
                    };
                    self.cx(state, *rank, *thread).enter((comm, comm), children);
                    if self.config.connections == Connections::Made {
                        let comm_state = state.rank_mut(*rank).comm_mut(comm);
                        comm_state.connect();
                        comm_state.links_mut().are_made();
                    }
                    self.cx(state, *rank, *thread).returns_with(rendezvous, Value::Comm(comm));
                }
            }
            Rendezvous::Setup(comm, nth) => {
                self.order_all(state, &here);
                self.set_up(state, *comm, *nth, &here);
            }
            Rendezvous::Connect(comm, _) => {
                // First use blocks, but orders nothing that a program may rely on.
                for (rank, _) in &here {
                    state.rank_mut(*rank).comm_mut(*comm).connect();
                    state.rank_mut(*rank).return_from(rendezvous);
                }
            }
            Rendezvous::Link(link, handshake) => {
                self.shake_hands(state, *link, *handshake);
                for (rank, _) in &here {
                    state.rank_mut(*rank).return_from(rendezvous);
                }
            }
            Rendezvous::Exchange(members, nth) => {
                self.order_all(state, &here);
                self.exchange_meet(state, members, *nth, &here);
            }
            Rendezvous::Host(..) => {
                self.order_all(state, &here);
                self.host_meet(state, &here);
            }
        }
    }

    /// Each of these threads is ordered after everything that any of them did before.
    fn order_all(&self, state: &mut State, here: &[(Rank, u32)]) {
        let clocks = here.iter().map(|(rank, thread)| state.rank(*rank).thread(*thread).clock());
        let knowledge = Clock::union(clocks);
        for (rank, thread) in here {
            let t = state.rank_mut(*rank).thread_mut(*thread);
            match t.group_mut().learned_mut() {
                Some(learned) => learned.learn(&knowledge),
                None => t.clock_mut().learn(&knowledge),
            }
        }
    }
}

impl Cx<'_> {
    /// The thread waits for the others.
    pub(crate) fn arrive(&mut self, rendezvous: Rendezvous) {
        self.this_mut().wait_at(rendezvous);
    }
}
