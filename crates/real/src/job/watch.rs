//! How far the ranks of one case have come, and how long they may be silent.
//!
//! A table over instants that it is given; it reads no clock.
//! Not here: who is killed when the time is over ([`super::workers`]).

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use rankcheck_model::Rank;

use super::Limits;
use crate::case::{Case, Ended, NondetValue, RankReport};

/// One case under way.
#[derive(Debug)]
pub(super) struct Watch<'a> {
    case: &'a Case,
    limits: &'a Limits,
    started: Instant,
    /// Of the last sign of progress of any rank.
    last: Instant,
    ranks: Vec<RankProgress>,
    making: Vec<Making>,
}

/// What is known of one rank while a case runs.
#[derive(Debug, Default)]
struct RankProgress {
    /// By thread: index and call.
    inside: BTreeMap<u32, (u32, String)>,
    report: Option<RankReport>,
}

/// A communicator whose members have all arrived and of whom none has come out.
#[derive(Debug)]
struct Making {
    /// Rank and, if known, thread.
    inside: Vec<(Rank, Option<u32>)>,
}

impl<'a> Watch<'a> {
    pub(super) fn new(case: &'a Case, limits: &'a Limits, now: Instant) -> Self {
        let ranks = (0..case.ranks).map(|_| RankProgress::default()).collect();
        Self { case, limits, started: now, last: now, ranks, making: Vec::new() }
    }

    pub(super) fn progress(&mut self, now: Instant) {
        self.last = now;
    }

    pub(super) fn enter(&mut self, rank: Rank, thread: u32, index: u32, call: String) {
        self.ranks[rank.at()].inside.insert(thread, (index, call));
    }

    pub(super) fn leave(&mut self, rank: Rank, thread: u32) {
        self.ranks[rank.at()].inside.remove(&thread);
        // Members come out together, but for moments. So once one is out the others have the deadline.
        self.making.retain(|making| {
            !making.inside.iter().any(|(r, t)| *r == rank && t.is_none_or(|inside| inside == thread))
        });
    }

    /// All members have arrived and make a new communicator now.
    pub(super) fn makes(&mut self, inside: Vec<(Rank, Option<u32>)>) {
        self.making.push(Making { inside });
    }

    pub(super) fn reported(&mut self, rank: Rank, report: RankReport) {
        self.absent(rank);
        self.ranks[rank.at()].report = Some(report);
    }

    /// The process of a rank is gone.
    pub(super) fn gone(&mut self, rank: Rank, why: &str) {
        self.absent(rank);
        let ended = if self.death_was_forced(rank) {
            Ended::Dead { message: "killed".to_owned() }
        } else {
            Ended::Lost { why: why.to_owned() }
        };
        self.ranks[rank.at()].report.get_or_insert_with(|| partial(ended));
    }

    /// Nobody waits longer than usual for a communicator that lacks a member.
    fn absent(&mut self, rank: Rank) {
        self.making.retain(|making| making.inside.iter().all(|(member, _)| *member != rank));
    }

    /// Whether the rank is inside an operation before which it was to be killed.
    fn death_was_forced(&self, rank: Rank) -> bool {
        self.case.forced.nondet.iter().any(|(at, values)| {
            let inside = self.ranks[rank.at()].inside.get(&at.thread);
            at.rank == rank
                && inside.is_some_and(|(index, _)| *index == at.index)
                && values.contains(&NondetValue::Death { dies: true })
        })
    }

    /// When silence has lasted too long, or the whole case has.
    pub(super) fn expires(&self) -> Instant {
        let silence = if self.making.is_empty() {
            self.case.deadline
        } else {
            self.case.deadline.max(self.limits.making)
        };
        (self.last + silence).min(self.started + self.limits.case)
    }

    pub(super) fn unfinished(&self) -> Vec<Rank> {
        let ranks = (0..self.case.ranks).map(Rank);
        ranks.filter(|rank| self.ranks[rank.at()].report.is_none()).collect()
    }

    pub(super) fn took(&self, now: Instant) -> Duration {
        now.duration_since(self.started)
    }

    /// One report for each rank. Who said nothing is reported as inside the calls that it did not leave.
    pub(super) fn reports(self) -> Vec<RankReport> {
        let report = |progress: RankProgress| {
            let RankProgress { inside, report } = progress;
            report.unwrap_or_else(|| {
                let inside: Vec<_> =
                    inside.into_iter().map(|(thread, (index, call))| (thread, index, call)).collect();
                partial(if inside.is_empty() {
                    Ended::Lost { why: "it is inside no call and does not answer".to_owned() }
                } else {
                    Ended::HostHang { inside }
                })
            })
        };
        self.ranks.into_iter().map(report).collect()
    }
}

/// A report of which only the end is known.
fn partial(ended: Ended) -> RankReport {
    RankReport {
        ended,
        errors: Vec::new(),
        taken: Vec::new(),
        answers: BTreeMap::new(),
        held: Vec::new(),
        reached: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use rankcheck_model::Dtype;

    use super::*;
    use crate::case::{At, CommHistory, Forced};

    const DEADLINE: Duration = Duration::from_secs(2);

    fn case() -> Case {
        let at = At { rank: Rank(1), thread: 0, index: 3 };
        let values = BTreeMap::from([(at, vec![NondetValue::Death { dies: true }])]);
        Case {
            program: serde_json::Value::Null,
            ranks: 2,
            comms: CommHistory::Fresh,
            element: Dtype::F32,
            forced: Forced { nondet: values, ..Forced::default() },
            deadline: DEADLINE,
        }
    }

    #[test]
    fn only_a_communicator_in_the_making_may_take_longer() {
        let (case, limits, now) = (case(), Limits::default(), Instant::now());
        let mut watch = Watch::new(&case, &limits, now);
        assert_eq!(watch.expires(), now + DEADLINE);
        let both = || vec![(Rank(0), Some(0)), (Rank(1), None)];
        watch.makes(both());
        assert_eq!(watch.expires(), now + limits.making);
        watch.leave(Rank(0), 1);
        assert_eq!(watch.expires(), now + limits.making, "another thread came out of another call");
        watch.leave(Rank(1), 5);
        assert_eq!(watch.expires(), now + DEADLINE);
        watch.makes(both());
        watch.gone(Rank(1), "signal");
        assert_eq!(watch.expires(), now + DEADLINE);
        watch.progress(now + limits.case);
        assert_eq!(watch.expires(), now + limits.case);
    }

    #[test]
    fn a_forced_death_is_told_from_a_loss() {
        let (case, limits, now) = (case(), Limits::default(), Instant::now());
        let killed_at = |index| {
            let mut watch = Watch::new(&case, &limits, now);
            watch.enter(Rank(1), 0, index, "tp.register(x)".to_owned());
            watch.gone(Rank(1), "signal: 9 (SIGKILL)");
            watch.reports().swap_remove(1).ended
        };
        assert_eq!(killed_at(3), Ended::Dead { message: "killed".to_owned() });
        assert_eq!(killed_at(2), Ended::Lost { why: "signal: 9 (SIGKILL)".to_owned() });
    }
}
