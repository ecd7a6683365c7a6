//! Launches that wait for one another in a circle of more than two communicators, though no two ranks turn any two of these
//! round: rank 0 launches `a` before `b`, rank 1 `b` before `c`, and rank 2 `c` before `a`.
//!
//! Each rank of the circle runs a kernel behind which it has launched the next one's, and without co-resident kernels none of
//! these begins. So what makes a circle is only in which order each rank launches, and that none of what it runs is over before
//! another one of it begins. Of all circles through a launch and a communicator a shortest is looked at.
//! Not here: two communicators that two ranks launch in opposite orders ([`super::launch_order`]).

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use crate::clock::Clock;
use crate::host::value::CommId;
use crate::judge::finding::{About, FindingKey, OpRef, Rule};
use crate::machine::Machine;
use crate::noun::launch_order::{Executed, Issue, Ran};
use crate::rank::Rank;
use crate::state::State;

/// A circle of launches.
pub(crate) struct LaunchCycle {
    /// The first of its communicators, in the order in which they are told: the same whichever launch ran last.
    pub(crate) about: About,
    pub(crate) steps: Vec<CycleStep>,
}

/// What a rank of a circle launches first, and what it launches behind that, which another rank launches first.
pub(crate) struct CycleStep {
    first: CommId,
    behind: CommId,
    in_every_run: bool,
    /// The launch behind the first.
    pub(crate) op: OpRef,
}

/// The launches that a rank may make next, each with what its thread knew, and its position among all of the rank.
pub(crate) type LaunchPoints<'a> = FxHashMap<Rank, Vec<(&'a Clock, Issue)>>;

/// Which of what ran may be launched after one of these points, or after another one that may: a circle through a launch
/// has nothing else.
pub(crate) fn reached<'a>(executed: &'a [Executed], mut points: LaunchPoints<'a>) -> Vec<bool> {
    let mut reached = vec![false; executed.len()];
    // Most of what ran was launched in the order in which it ran.
    let mut grew = true;
    while grew {
        grew = false;
        for (at, executed) in executed.iter().enumerate() {
            let is_behind = |ran: &Ran| {
                points.get(&ran.rank).is_some_and(|points| {
                    points.iter().any(|(called, issue)| !ran.comes_before_call(called, *issue))
                })
            };
            if reached[at] || !executed.members.iter().any(is_behind) {
                continue;
            }
            (reached[at], grew) = (true, true);
            for ran in executed.members.iter() {
                let of_rank = points.entry(ran.rank).or_default();
                match of_rank.iter_mut().find(|(called, _)| called.actor() == ran.called.actor()) {
                    // Whoever comes behind the later launch of a thread comes behind the earlier one.
                    Some((_, issue)) if *issue <= ran.issue => {}
                    Some(point) => *point = (&ran.called, ran.issue),
                    None => of_rank.push((&ran.called, ran.issue)),
                }
            }
        }
    }
    reached
}

/// The launch that runs now, behind those that ran.
struct Launches<'a> {
    state: &'a State,
    ran: Vec<(CommId, &'a [Ran])>,
}

/// The most ranks of two communicators that are tried for one step of a circle.
const RANKS_TRIED: usize = 8;

impl<'a> Launches<'a> {
    fn now(&self) -> usize {
        self.ran.len() - 1
    }

    /// Where a rank may launch the one before the other, and they do not share their channels.
    fn steps(&self, one: usize, other: usize) -> impl Iterator<Item = InOrder<'a>> {
        let ((comm, first), (next, behind)) = (self.ran[one], self.ran[other]);
        first.iter().filter_map(move |first| {
            let behind = behind.iter().find(|behind| behind.rank == first.rank)?;
            let family = |of| self.state.rank(first.rank).family(of);
            let step = !behind.launched_before(first) && family(comm) != family(next);
            step.then_some(InOrder { first: (comm, first), behind: (next, behind) })
        })
    }

    fn leads(&self, one: usize, other: usize) -> bool {
        one != other && self.steps(one, other).next().is_some()
    }

    /// Those through which ways lead from what runs now back to it.
    fn on_circles(&self) -> Vec<usize> {
        let mut back = vec![false; self.ran.len()];
        let mut open = vec![self.now()];
        while let Some(at) = open.pop() {
            let new = (0..self.now()).filter(|before| !back[*before] && self.leads(*before, at));
            let new: Vec<usize> = new.collect();
            new.iter().for_each(|before| back[*before] = true);
            open.extend(new);
        }
        (0..self.now()).filter(|at| back[*at]).collect()
    }

    /// A shortest way from what runs now back to it, through two others at least, by these, of which one is of a communicator.
    fn way(&self, by: &[usize], through: CommId) -> Option<Vec<usize>> {
        let now = self.now();
        let is = |at: usize| self.ran[at].0 == through;
        let mut before: FxHashMap<(usize, bool), (usize, bool)> = FxHashMap::default();
        let mut open = VecDeque::from([((now, is(now)), 0)]);
        while let Some((from, steps)) = open.pop_front() {
            let (at, passed) = from;
            if steps >= 2 && passed && self.leads(at, now) {
                let back = std::iter::successors(Some(from), |at| before.get(at).copied());
                let mut way: Vec<usize> = back.map(|(at, _)| at).collect();
                way.reverse();
                return Some(way);
            }
            for &next in by {
                let to = (next, passed || is(next));
                if !before.contains_key(&to) && self.leads(at, next) {
                    before.insert(to, from);
                    open.push_back((to, steps + 1));
                }
            }
        }
        None
    }

    /// The ranks of a way, each another one, where none of what they launch first is over before another one of it begins.
    fn circle(&self, way: &[usize]) -> Option<Vec<InOrder<'a>>> {
        let mut chosen = Vec::with_capacity(way.len());
        self.choose(way, &mut chosen).then_some(chosen)
    }

    fn choose(&self, way: &[usize], chosen: &mut Vec<InOrder<'a>>) -> bool {
        let nth = chosen.len();
        if nth == way.len() {
            return true;
        }
        for step in self.steps(way[nth], way[(nth + 1) % way.len()]).take(RANKS_TRIED) {
            let (_, first) = step.first;
            let apart = |other: &InOrder<'_>| {
                let (_, other) = other.first;
                other.rank != first.rank && !first.known_to(&other.began) && !other.known_to(&first.began)
            };
            if chosen.iter().all(apart) {
                chosen.push(step);
                if self.choose(way, chosen) {
                    return true;
                }
                chosen.pop();
            }
        }
        false
    }
}

/// Two launches of a rank that make a step of a circle, if others make the rest.
#[derive(Clone, Copy)]
struct InOrder<'a> {
    first: (CommId, &'a Ran),
    behind: (CommId, &'a Ran),
}

impl InOrder<'_> {
    fn told(self) -> CycleStep {
        let Self { first: (first, ran_first), behind: (behind, ran_behind) } = self;
        CycleStep { first, behind, in_every_run: ran_first.launched_before(ran_behind), op: ran_behind.op }
    }
}

impl Machine {
    /// Circles through a launch that runs now, one for each object that COLL-4 is not broken on yet.
    pub(crate) fn launch_cycles(&self, state: &State, comm: CommId, now: &[Ran]) -> Vec<LaunchCycle> {
        let points = now.iter().map(|ran| (ran.rank, vec![(&ran.called, ran.issue)])).collect();
        let executed = state.executed();
        let reached = reached(executed, points);
        let behind = executed.iter().zip(&reached).filter(|(_, reached)| **reached);
        let mut ran: Vec<(CommId, &[Ran])> = behind.map(|(of, _)| (of.comm, &*of.members)).collect();
        // Where nothing that may be launched behind it may be launched before it, there is no way back.
        let returns = |(_, members): &(CommId, &[Ran])| {
            let of_now = |ran: &Ran| now.iter().any(|now| now.rank == ran.rank && !now.launched_before(ran));
            members.iter().any(of_now)
        };
        if !ran.iter().any(returns) {
            return Vec::new();
        }
        ran.push((comm, now));
        let launches = Launches { state, ran };
        let by = launches.on_circles();
        let on_circles = by.iter().copied().chain([launches.now()]);
        let mut comms: Vec<CommId> = on_circles.map(|at| launches.ran[at].0).collect();
        comms.sort_by_cached_key(|comm| self.order_of(About::Comm(*comm)));
        comms.dedup();
        let mut cycles = Vec::new();
        for (nth, through) in comms.iter().enumerate() {
            let about = About::Comm(*through);
            let found = FindingKey { rule: Rule::Coll4, about, by: None };
            let later = |at: &usize| comms[nth..].contains(&launches.ran[*at].0);
            if state.findings().contains_key(&found) || !later(&launches.now()) {
                continue;
            }
            let by: Vec<usize> = by.iter().copied().filter(later).collect();
            let circle = launches.way(&by, *through).and_then(|way| launches.circle(&way));
            let Some(circle) = circle else { continue };
            cycles.push(LaunchCycle { about, steps: circle.into_iter().map(InOrder::told).collect() });
        }
        cycles
    }

    /// What is told of a circle of launches.
    pub(crate) fn launch_cycle_in_words(&self, cycle: &LaunchCycle) -> String {
        let step = |CycleStep { first, behind, in_every_run, op }: &CycleStep| {
            format!(
                "rank {} {} {} before {} ({})",
                op.rank.0,
                if *in_every_run { "launches" } else { "may launch" },
                self.comm_name(*first),
                self.comm_name(*behind),
                self.at(op)
            )
        };
        let steps: Vec<String> = cycle.steps.iter().map(step).collect();
        format!("{}, and nothing orders them", steps.join(", "))
    }
}
