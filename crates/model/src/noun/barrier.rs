//! Host barriers and agreements: rendezvous of processes outside NCCL.
//! Not here: the store, through which many programs build them.
#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "an operand of another kind is as good as null, and verbs are dispatched by noun"
)]

use crate::cx::Cx;
use crate::cx::Here;
use crate::describe::{Describe, Description};
use crate::machine::Kind;
use crate::noun::pool::Plan;
use crate::op::{Op, Show, Verb};
use crate::program::Operand;
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::host::value::Value;
use crate::identity::{Counter, Identify, StateIdentity};
use crate::judge::finding::{About, Rule};
use crate::machine::Machine;
use crate::members::MemberList;
use crate::noun::rendezvous::Rendezvous;
use crate::noun::thread::Status;
use crate::order::dependence::{Access, Object};
use crate::rank::Rank;
use crate::state::{State, Table};
use crate::walk::{Rows, walk};

/// Operations in which host processes wait for each other.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum BarrierOp {
    /// A barrier of host processes.
    Enter {
        /// World ranks that take part.
        members: Arc<[Rank]>,
    },
    /// A host agreement: produces whether every rank gave true.
    AllAgree {
        /// World ranks that take part.
        members: Arc<[Rank]>,
        /// This rank's vote; all ranks learn whether every vote is true.
        value: Operand,
    },
}

impl BarrierOp {
    /// World ranks that take part.
    pub(crate) fn members(&self) -> &Arc<[Rank]> {
        let (Self::Enter { members } | Self::AllAgree { members, .. }) = self;
        members
    }
}

impl Describe for BarrierOp {
    fn describe(&self, to: &mut Description<'_>) {
        match self {
            Self::Enter { members } => to.call("Barrier", &[("members", members)]),
            Self::AllAgree { members, value } => {
                to.call("AllAgree", &[("members", members), ("value", value)])
            }
        }
    }
}

impl Verb for BarrierOp {
    fn slots(&self) -> u32 {
        match self {
            Self::Enter { .. } => 0,
            Self::AllAgree { .. } => 1,
        }
    }

    fn kind(&self) -> Kind {
        Kind::Alike
    }

    fn display(&self, show: &Show<'_>) -> String {
        let of = |operand: &Operand| show.operand(operand);
        match self {
            Self::Enter { .. } => "barrier".to_owned(),
            Self::AllAgree { value, .. } => format!("all_agree({})", of(value)),
        }
    }

    fn seen_by_others(&self) -> bool {
        true
    }

    fn footprint(&self, _: Here<'_>, each: &mut dyn FnMut(Object, Access)) {
        each(Object::HOSTS, Access::Write);
    }

    fn apply(&self, cx: &mut Cx<'_>, _: Plan) {
        cx.host(self.members());
    }
}

/// How often a rank entered host barriers and agreements, by their members.
#[derive(Debug, Clone, Default)]
pub(crate) struct Barriers {
    entered: Rows<MemberList, u32>,
}

walk!(apart struct Barriers { entered: hashed fixed });

impl Identify for Barriers {
    fn identify(&self, to: &mut StateIdentity<'_>) {
        let Self { entered } = self;
        to.entered(entered, Counter::HostBarriers);
    }
}

impl Op {
    /// Whether it is a vote of an agreement.
    pub(crate) fn is_vote(&self) -> bool {
        matches!(self, Self::Barrier(BarrierOp::AllAgree { .. }))
    }
}

impl Machine {
    /// The agreements under way, each with whether all have agreed so far: all that votes do.
    pub(crate) fn agreed_so_far(state: &State) -> BTreeMap<&Rendezvous, bool> {
        let mut agreed = BTreeMap::new();
        for (rank, r) in (0..).map(Rank).zip(state.ranks()) {
            for (thread, t) in (0..).zip(r.threads()) {
                if let Status::Waiting(rendezvous @ Rendezvous::Host(..)) = t.status() {
                    let vote = Self::vote(state, rank, thread).unwrap_or(true);
                    *agreed.entry(rendezvous).or_insert(true) &= vote;
                }
            }
        }
        agreed
    }

    /// How a thread votes that stands at an agreement.
    fn vote(state: &State, rank: Rank, thread: u32) -> Option<bool> {
        match state.rank(rank).thread(thread).upcoming().op()? {
            Op::Barrier(BarrierOp::AllAgree { value, .. }) => {
                let value = Self::value(state, rank, value);
                Some(!matches!(value, Value::Null | Value::Bool(false) | Value::Int(0)))
            }
            _ => None,
        }
    }

    /// Whether a barrier meets an agreement: whoever votes takes the other's presence for a vote.
    fn judge_kinds(&self, state: &mut State, here: &[(Rank, u32)], votes: &[Option<bool>]) {
        let first = |votes_there: bool| votes.iter().position(|vote| vote.is_some() == votes_there);
        let (Some(barrier), Some(agreement)) = (first(false), first(true)) else { return };
        let [barrier, agreement] = [barrier, agreement].map(|at| self.here(state, here[at].0, here[at].1));
        let (ops, past) = ([barrier.op_ref(), agreement.op_ref()], barrier.past());
        self.find(state, Rule::Host1, About::Hosts, &ops, past, || {
            format!(
                "rank {} enters a barrier ({}) where rank {} enters an agreement ({})",
                ops[0].rank.0,
                self.at(&ops[0]),
                ops[1].rank.0,
                self.at(&ops[1]),
            )
        });
    }

    /// Barriers and agreements pair by order; a barrier agrees to everything.
    pub(crate) fn host_meet(&self, state: &mut State, here: &[(Rank, u32)]) {
        let votes: Vec<Option<bool>> =
            here.iter().map(|(rank, thread)| Self::vote(state, *rank, *thread)).collect();
        let agreed = votes.iter().all(|vote| vote.unwrap_or(true));
        self.judge_kinds(state, here, &votes);
        for ((rank, thread), vote) in here.iter().zip(votes) {
            match vote {
                Some(_) => self.cx(state, *rank, *thread).done(&[Value::Bool(agreed)]),
                None => self.cx(state, *rank, *thread).done(&[]),
            }
        }
    }
}

impl Cx<'_> {
    pub(crate) fn host(&mut self, members: &Arc<[Rank]>) {
        self.access(Object::HOSTS, Access::Write);
        let members = self.m.member_lists.get(members);
        let r = self.me_mut();
        if r.costs().steady {
            r.costs_mut().barriers += 1;
        }
        let entered = Barriers::of_mut(r).entered.get_or_insert_with(&members, || 0);
        *entered += 1;
        let nth = *entered - 1;
        self.arrive(Rendezvous::Host(members, nth));
    }
}
