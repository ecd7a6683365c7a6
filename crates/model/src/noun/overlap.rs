//! Declared overlap: two launches that are meant to run at the same time, and what makes that impossible.
//!
//! Stream order, the launch order of a communicator and happens-before each put one launch after another; so
//! does any chain of them. A verdict does not ask whether a device has room for both.
//! Not here: how long anything takes.

use crate::cx::Cx;
use crate::describe::{Describe, Description};
use crate::host::value::CommId;
use crate::identity::identify_as_hashed;
use crate::judge::finding::OpRef;
use crate::judge::finding::{About, Rule};
use crate::machine::Kind;
use crate::machine::Machine;
use crate::noun::launch_order::{Executed, Ran};
use crate::noun::pool::Plan;
use crate::op::{Show, Verb};
use crate::program::Operation;
use crate::rank::{Rank, Thread};
use crate::state::{State, Table};
use crate::walk::walk;

/// Declares that two launches on communicators are meant to run at the same time.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct OverlapOp {
    /// One of the two launches.
    pub one: Operation,
    /// The other launch, of the same rank.
    pub other: Operation,
}

impl Describe for OverlapOp {
    fn describe(&self, to: &mut Description<'_>) {
        let Self { one, other } = self;
        to.call("Overlap", &[("one", one), ("other", other)]);
    }
}

impl Verb for OverlapOp {
    fn slots(&self) -> u32 {
        0
    }

    fn kind(&self) -> Kind {
        Kind::Bookkeeping
    }

    fn display(&self, _: &Show<'_>) -> String {
        let Self { .. } = self;
        "overlap".to_owned()
    }

    fn apply(&self, cx: &mut Cx<'_>, _: Plan) {
        cx.overlap([self.one, self.other]);
    }
}

/// Two launches that are declared to overlap, until both have begun.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Declaration {
    /// Thread and index of each.
    of: [(Thread, u32); 2],
    op: OpRef,
}

identify_as_hashed!([(Thread, u32); 2]);
walk!(struct Declaration { of: hashed fixed, op: hashed moved });

/// The declared overlaps of a rank that are not judged yet.
#[derive(Debug, Clone, Default)]
pub(crate) struct Overlaps {
    declared: Vec<Declaration>,
}

walk!(struct Overlaps { declared: hashed moved });

impl Machine {
    /// Judges the declarations of which both launches have run.
    pub(crate) fn judge_overlaps(&self, state: &mut State) {
        for rank in (0..self.config.ranks).map(Rank) {
            for at in (0..Overlaps::of(state.rank(rank)).declared.len()).rev() {
                let declared = &Overlaps::of(state.rank(rank)).declared[at];
                let [one, other] = declared.of.map(|of| Self::run_of(state, rank, of));
                let (Some(one), Some(other)) = (one, other) else { continue };
                Overlaps::of_mut(state.rank_mut(rank)).declared.remove(at);
                self.judge_overlap(state, one, other);
            }
        }
    }

    fn judge_overlap(&self, state: &mut State, one: (CommId, Ran), other: (CommId, Ran)) {
        let (first, second) = if self.comes_before(state, &one, &other) {
            (one, other)
        } else if self.comes_before(state, &other, &one) {
            (other, one)
        } else {
            return;
        };
        let rank = first.1.rank;
        let together = state.rank(rank).family(first.0) == state.rank(rank).family(second.0);
        let ops = [first.1.op, second.1.op];
        let past = second.1.called.past();
        self.find(state, Rule::Overlap1, About::Comm(second.0), &ops, past, || {
            let why = if together {
                format!("{} runs one launch after the other, on all streams", self.comm_name(first.0))
            } else {
                "the first is over before the second can begin".to_owned()
            };
            format!(
                "on rank {} the launches on {} ({}) and on {} ({}) are meant to overlap, and cannot: {why}",
                rank.0,
                self.comm_name(first.0),
                self.at(&ops[0]),
                self.comm_name(second.0),
                self.at(&ops[1]),
            )
        });
    }

    fn run_of(state: &State, rank: Rank, (thread, index): (Thread, u32)) -> Option<(CommId, Ran)> {
        let is = |ran: &&Ran| (ran.rank, ran.op.thread, ran.op.index) == (rank, thread, index);
        let found =
            |executed: &Executed| executed.members.iter().find(is).map(|ran| (executed.comm, ran.clone()));
        state.executed().iter().rev().find_map(found)
    }

    /// Whether a chain of launch order and happens-before leads from one launch to another.
    fn comes_before(&self, state: &State, from: &(CommId, Ran), to: &(CommId, Ran)) -> bool {
        let launches: Vec<(CommId, &Ran)> = state
            .executed()
            .iter()
            .flat_map(|executed| executed.members.iter().map(|ran| (executed.comm, ran)))
            .collect();
        let same = |a: &Ran, b: &Ran| (a.rank, a.issue) == (b.rank, b.issue);
        let before = |(a_comm, a): (CommId, &Ran), (b_comm, b): (CommId, &Ran)| {
            let in_turn = a.rank == b.rank
                && a.issue < b.issue
                && state.rank(a.rank).family(a_comm) == state.rank(b.rank).family(b_comm);
            !same(a, b) && (in_turn || a.known_to(&b.began))
        };
        let mut reached: Vec<(CommId, &Ran)> = vec![(from.0, &from.1)];
        let mut next = 0;
        while let Some(at) = reached.get(next).copied() {
            if before(at, (to.0, &to.1)) {
                return true;
            }
            for launch in &launches {
                if before(at, *launch) && !reached.iter().any(|(_, known)| same(known, launch.1)) {
                    reached.push(*launch);
                }
            }
            next += 1;
        }
        false
    }
}

impl Cx<'_> {
    pub(crate) fn overlap(&mut self, of: [Operation; 2]) {
        let (m, op) = (self.m, self.op);
        let r = self.me_mut();
        let named = of.map(|operation| {
            let thread = r.threads().iter().position(|t| t.start() == operation.start);
            thread.map(|at| (Thread(u32::try_from(at).expect("few threads a rank")), operation.index))
        });
        if let [Some(one), Some(other)] = named {
            Overlaps::of_mut(r).declared.push(Declaration { of: [one, other], op });
        }
        m.judge_overlaps(self.state);
        self.done(&[]);
    }
}
