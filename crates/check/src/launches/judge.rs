//! What is concluded of a job that was looked at from outside.
//!
//! Not here: how it is told ([`super::report`]).

use std::collections::BTreeSet;

use rankcheck_model::{Rank, Rule, ranks_in_words};

use super::compare::Compared;
use super::job::{
    CalledKind, DeviceLaunch, GroupAt, KnownCompletion, KnownPart, LaunchState, LaunchedCall, LaunchedJob,
    NotCompared, What,
};
use super::left_out::{LeftOutCall, left_out};
use super::positions::{MemberPosition, Positions, TransferLane};
use super::waits::{Guess, JobRoot, JobWaits, LaunchAt, RootKind, not_begun};
use crate::runs::judge::RunVerdict;

/// A job, and what is wrong with it.
#[derive(Debug)]
pub struct JudgedJob {
    /// The job that was judged.
    pub job: LaunchedJob,
    /// What is concluded of it.
    pub verdict: RunVerdict,
    /// What ranks called differently.
    pub compared: Compared,
    /// Who waits for whom.
    pub waits: JobWaits,
    /// Launches that were given up, or that are open beyond their time.
    pub timed_out: Vec<LaunchAt>,
    /// What devices have not begun though others have, with a rank whose device has.
    pub not_begun: Vec<(LaunchAt, u32)>,
    /// Ranks that are done with a group and left out what another launched in it, which so can never be over.
    pub left_early: Vec<(u32, LaunchAt)>,
    /// Calls that ranks seem to have left out, by their lines alone, where somebody is waited for.
    pub left_out: Vec<LeftOutCall>,
    /// Transfers of which one end was launched more often than the other, where a circle rests on the order in which they are
    /// taken to be done: how often both ends were.
    pub unmet: Vec<(TransferLane, usize, usize)>,
    /// Why too little is known.
    pub unknown: Vec<String>,
}

/// Judges what is known of a job.
#[must_use]
pub fn judge(mut job: LaunchedJob) -> JudgedJob {
    take_back_aborted(&mut job);
    let positions = Positions::of(&job);
    let compared = Compared::of(&positions);
    let mut waits = JobWaits::of(&positions, &compared);
    let timed_out = timed_out(&job);
    let not_begun: Vec<(LaunchAt, u32)> =
        waits.may_go_on.iter().flat_map(|at| not_begun(&positions, *at)).collect();
    let left_early = left_early(&positions, &compared);
    let left_out = if waits.names_anybody() { left_out(&positions, &compared) } else { Vec::new() };
    let unmet = if waits.all_circles().next().is_some() { unmet(&positions) } else { Vec::new() };
    // A device that begins later is no cause unless somebody waited too long for it.
    if !timed_out.is_empty() {
        for (late, begun_by) in &not_begun {
            let rank = job.processes[late.process].rank;
            let group = job.group(job.processes[late.process].launches[late.launch as usize].group);
            let late_too =
                |rank: &u32| not_begun.iter().any(|(late, _)| job.processes[late.process].rank == *rank);
            let awaited_by = group.ranks.iter().copied().filter(|rank| !late_too(rank)).collect();
            waits.roots.push(JobRoot { rank, kind: RootKind::HasNotBegun(*late, *begun_by), awaited_by });
        }
    }
    let mut judged = JudgedJob {
        verdict: RunVerdict::Holds,
        compared,
        waits,
        timed_out,
        not_begun,
        left_early,
        left_out,
        unmet,
        unknown: Vec::new(),
        job,
    };
    judged.unknown = judged.why_unknown();
    judged.verdict = judged.conclude();
    judged
}

/// A communicator that is aborted lets its devices go, and what they stood in reads as over when somebody looks later. What
/// was not seen to be over in its time was given up if a member never launched it; else it is not known to be over.
fn take_back_aborted(job: &mut LaunchedJob) {
    let given_up = late_launches(job);
    let late: BTreeSet<u32> = given_up
        .iter()
        .filter(|(.., alone)| !alone)
        .map(|(process, ..)| job.processes[*process].rank)
        .collect();
    if !late.is_empty() {
        let ranks: Vec<u32> = late.into_iter().collect();
        job.gaps.push(format!(
            "whether devices of {} stood: calls were seen to be over only after their timeout, as they are once a \
             communicator is aborted",
            in_words(&ranks)
        ));
    }
    for (process, at, alone) in given_up {
        let process = &mut job.processes[process];
        let launch = &mut process.launches[at];
        // Where all came, whoever looks may have been late, and not the devices.
        launch.state = if alone { LaunchState::Open } else { LaunchState::Unclear };
        (launch.finished, launch.timed_out) = (None, alone);
        let first = launch.calls.iter().filter_map(|call| call.number).min();
        let group = launch.group;
        if let Some(reached) = process.reached.get_mut(&group)
            && let Some(first) = first
        {
            reached.finished = reached.finished.map(|finished| finished.min(first.saturating_sub(1)));
        }
    }
}

/// Returns the launches that were seen to be over only after their time: process, launch, and whether somebody is known not
/// to have come to it.
fn late_launches(job: &LaunchedJob) -> Vec<(usize, usize, bool)> {
    let is_late = |launch: &DeviceLaunch| {
        let late =
            launch.finished.zip(launch.deadline).is_some_and(|(finished, deadline)| finished > deadline);
        launch.state == LaunchState::Done && late
    };
    if !job.processes.iter().any(|of| of.launches.iter().any(is_late)) {
        return Vec::new();
    }
    let positions = Positions::of(job);
    let mut late = Vec::new();
    for (process, of) in job.processes.iter().enumerate() {
        for (at, launch) in of.launches.iter().enumerate().filter(|(_, launch)| is_late(launch)) {
            let missed = |(nth, call): (usize, &LaunchedCall)| match (call.what, call.number) {
                (What::Send(_) | What::Recv(_), _) => positions.lacks_other_end(process, at, nth),
                (What::Collective(_) | What::Unknown, Some(number)) => {
                    let members = &positions.groups[launch.group.0 as usize];
                    let position = |member| positions.position(member, number);
                    members.iter().any(|member| position(member) == MemberPosition::NotLaunched)
                }
                (What::Collective(_) | What::Unknown, None) => false,
            };
            late.push((process, at, launch.calls.iter().enumerate().any(missed)));
        }
    }
    late
}

/// Returns who is done with a group though somebody launched something in it that cannot be over without them, and the first
/// such launch.
fn left_early(positions: &Positions<'_>, compared: &Compared) -> Vec<(u32, LaunchAt)> {
    let job = positions.job;
    let mut early = Vec::new();
    for (group, members) in positions.groups.iter().enumerate() {
        let is_of = |at: &GroupAt| at.0 as usize == group;
        if compared.diverged.keys().any(is_of) {
            continue;
        }
        for left in members.iter().filter(|member| member.left) {
            let Some((rank, launched)) = job.processes.get(left.process).map(|of| of.rank).zip(left.launched)
            else {
                continue;
            };
            let missed = members.iter().flat_map(|member| {
                let calls = &member.calls[member.calls.partition_point(|(number, _)| *number <= launched)..];
                let of = member.process;
                let mut missed =
                    calls.iter().map(move |(_, launch)| LaunchAt { process: of, launch: *launch });
                missed.find(|at| needs(job, *at, rank))
            });
            early.extend(missed.take(1).map(|at| (rank, at)));
        }
    }
    for (lane, ends) in &positions.lanes {
        let (Some(from), Some(to)) = (job.process_at(lane.from), job.process_at(lane.to)) else { continue };
        let left = job.processes[from].reached.get(&lane.group).is_some_and(|reached| reached.left);
        let whole = job.processes[from].from_start && job.processes[to].from_start;
        if let Some((launch, _)) = ends.recvs.get(ends.sends.len()).filter(|_| left && whole) {
            early.push((lane.from, LaunchAt { process: to, launch: *launch }));
        }
    }
    early
}

/// Returns the lanes of which both ends are wholly known and not as many, where nothing but the order of lines says in which order
/// transfers are done.
fn unmet(positions: &Positions<'_>) -> Vec<(TransferLane, usize, usize)> {
    let job = positions.job;
    if job.completion != KnownCompletion::Concluded {
        return Vec::new();
    }
    let is_whole = |rank: u32| {
        let process = job.process_at(rank).map(|at| &job.processes[at]);
        process.is_some_and(|process| process.from_start && process.known == KnownPart::Whole)
    };
    let counted = positions.lanes.iter().filter(|(lane, _)| is_whole(lane.from) && is_whole(lane.to));
    let counted = counted.map(|(lane, ends)| (*lane, ends.sends.len(), ends.recvs.len()));
    counted.filter(|(_, sends, recvs)| sends != recvs).collect()
}

/// Whether a launch can be over on its device only if a rank has launched it too.
fn needs(job: &LaunchedJob, at: LaunchAt, rank: u32) -> bool {
    let process = &job.processes[at.process];
    process.launches[at.launch as usize].calls.iter().any(|call| match call.what {
        What::Collective(kind) if kind.needs_everybody() => true,
        What::Collective(CalledKind::Broadcast | CalledKind::Scatter) => call.root == Some(rank),
        What::Collective(CalledKind::Reduce | CalledKind::Gather) => call.root == Some(process.rank),
        What::Collective(_) | What::Send(_) | What::Recv(_) | What::Unknown => false,
    })
}

/// The launches that were given up, and those that are open beyond their time by what their own process did later. What others
/// did later proves nothing: their dumps may be of another time, or of another job. A time of one process that no other has
/// reached may be a wrong one.
fn timed_out(job: &LaunchedJob) -> Vec<LaunchAt> {
    let mut timed_out = Vec::new();
    for (process, of) in job.processes.iter().enumerate() {
        let latest = of.latest.min(job.latest);
        let late = of.launches.iter().position(|launch| {
            let passed =
                launch.deadline.is_some_and(|deadline| latest.is_some_and(|latest| latest >= deadline));
            launch.timed_out || launch.state.is_open() && passed
        });
        if let Some(launch) = late {
            let launch = u32::try_from(launch).expect("fewer than 2^32 launches");
            timed_out.push(LaunchAt { process, launch });
        }
    }
    timed_out
}

impl JudgedJob {
    /// Returns the rules that are broken.
    #[must_use]
    pub fn rules(&self) -> BTreeSet<Rule> {
        let differences = self.compared.differences.iter().map(|difference| difference.rule);
        let inversions = self.compared.inversions.iter().map(|_| Rule::Coll4);
        differences.chain(inversions).collect()
    }

    /// Returns whether the job is known to have stood still, and not only to have been in the middle of something: a call
    /// was open for longer than it may be, or ranks wait for one another in a circle.
    ///
    /// Nothing else proves it. What one rank has not launched yet it may be about to launch, however many wait for it; and
    /// dumps are not taken at one moment, so a device that is behind others' may merely have been looked at before.
    #[must_use]
    pub fn stood_still(&self) -> bool {
        if self.job.completion == KnownCompletion::Concluded {
            let waits = self.waits.names_anybody();
            return !self.left_early.is_empty() || waits && !self.job.gave_up.is_empty();
        }
        !self.timed_out.is_empty() || !self.waits.circles.is_empty()
    }

    /// Whether anything of one rank could be compared with another's. Nothing is concluded from a process by itself.
    fn compares(&self) -> bool {
        self.compared.ranks.len() > 1
    }

    fn conclude(&self) -> RunVerdict {
        let waits = &self.waits;
        if !self.rules().is_empty() {
            RunVerdict::Fails
        } else if self.stood_still() && self.compares() {
            RunVerdict::Hangs
        } else if waits.names_anybody() || !self.unknown.is_empty() {
            RunVerdict::Unknown
        } else {
            RunVerdict::Holds
        }
    }

    fn why_unknown(&self) -> Vec<String> {
        let mut why = self.job.gaps.clone();
        if !self.compares() {
            why.push("nothing of one rank could be compared with another's".to_owned());
        } else if self.compared.collectives + self.compared.transfers == 0 {
            why.push("whether calls fit: how far ranks came is known, and no call of one is there to compare with another's".to_owned());
        }
        if !self.waits.stale.is_empty() {
            why.push(format!(
                "the job went on after {} had been looked at: others have finished what was not launched there",
                in_words(&self.waits.stale)
            ));
        }
        if self.waits.unsure > 0 {
            why.push(
                "whether all open calls can go on: some wait for calls of which it is not known whether they were \
                 launched or are over"
                    .to_owned(),
            );
        }
        for process in self.job.processes.iter().filter(|process| process.known == KnownPart::Nothing) {
            let is_root = self.waits.roots.iter().any(|root| root.rank == process.rank);
            let waiting = self.waits.waiting.iter().filter(|(_, awaits)| awaits.contains(&process.rank));
            let ranks: Vec<u32> = waiting.map(|(at, _)| self.job.processes[at.process].rank).collect();
            if !is_root && !ranks.is_empty() {
                why.push(format!(
                    "whether rank {} is a root too: nothing is known of it, and {} {} for it",
                    process.rank,
                    in_words(&ranks),
                    if ranks.len() == 1 { "waits" } else { "wait" }
                ));
            }
        }
        let waits = self.waits.names_anybody();
        if waits && !self.stood_still() && self.job.completion == KnownCompletion::Concluded {
            why.push(
                "whether the job stood still: nothing says what is over, and a host may run ahead of the others"
                    .to_owned(),
            );
        } else if waits && !self.stood_still() {
            let guesses = self.waits.likely_circles.iter().flat_map(|likely| &likely.guesses);
            let guesses: BTreeSet<&Guess> = guesses.collect();
            why.extend(guesses.into_iter().map(|guess| {
                let likely = match guess {
                    Guess::Transfers => {
                        "which transfers meet in it is likely and not certain, for rings have lost the first of them"
                    }
                    Guess::Communicators => {
                        "calls in it are of different communicators, which wait for one another only where their streams do"
                    }
                    Guess::Hosts => {
                        "a host in it that did not launch what is waited for may be about to, and not wait for its device"
                    }
                };
                format!("whether the circle is one: {likely}")
            }));
            why.push(
                "whether the job stood still: no call is known to have been open for longer than it may be, and whoever is \
                 waited for may only be late"
                    .to_owned(),
            );
        }
        why
    }

    /// Returns how many calls are not compared, for one reason.
    #[must_use]
    pub fn not_compared(&self, why: NotCompared) -> u64 {
        self.job.left_out.get(&why).copied().unwrap_or(0)
    }

    /// Returns how many processes are known.
    #[must_use]
    pub fn known(&self) -> usize {
        self.job.processes.iter().filter(|process| process.known != KnownPart::Nothing).count()
    }

    /// Returns how many calls are known.
    #[must_use]
    pub fn calls(&self) -> usize {
        self.job.processes.iter().flat_map(|process| &process.launches).map(|launch| launch.calls.len()).sum()
    }
}

/// Returns ranks in words.
pub(crate) fn in_words<'a>(ranks: impl IntoIterator<Item = &'a u32>) -> String {
    ranks_in_words(ranks.into_iter().map(|rank| Rank(*rank)))
}
