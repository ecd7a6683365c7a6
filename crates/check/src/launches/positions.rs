//! How far each member of a group came with its collectives, and with whom transfers meet.
//!
//! Not here: who waits for whom because of it.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use super::job::{GroupAt, KnownPart, LaunchState, LaunchedJob, What};

/// Where a member of a group is with one of its collectives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemberPosition {
    /// It is over on its device.
    Done,
    /// It was launched, in this launch of the process, and is not over.
    Open(u32),
    /// It was launched, and whether it is over is not known.
    Unclear,
    /// It was not launched.
    NotLaunched,
    /// Nothing says where it is.
    Unknown,
}

/// The collectives of one member of a group.
#[derive(Debug, Default)]
pub struct MemberCalls {
    /// The place of its process in [`LaunchedJob::processes`].
    pub process: usize,
    /// The numbers of the calls that are known, ascending, with the launch that each is in.
    pub calls: Vec<(u64, u32)>,
    /// The last that was launched.
    pub launched: Option<u64>,
    /// The last that is over; those before it are too.
    pub finished: Option<u64>,
    /// Whether it is done with the group, and can launch nothing more in it.
    pub left: bool,
}

/// Who sends to whom in which group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TransferLane {
    /// The group that both are in.
    pub group: GroupAt,
    /// The rank that sends.
    pub from: u32,
    /// The rank that receives.
    pub to: u32,
}

/// The transfers of one lane: launch and call at either end, oldest first.
#[derive(Debug, Default)]
pub struct LaneEnds {
    /// What the sender launched.
    pub sends: Vec<(u32, u32)>,
    /// What the receiver launched.
    pub recvs: Vec<(u32, u32)>,
}

/// Where every member of every group is.
#[derive(Debug)]
pub struct Positions<'a> {
    /// The job that they are of.
    pub job: &'a LaunchedJob,
    /// The members of each group, by their ranks in it.
    pub groups: Vec<Vec<MemberCalls>>,
    /// All transfers of which both ends are named.
    pub lanes: BTreeMap<TransferLane, LaneEnds>,
}

impl<'a> Positions<'a> {
    /// Sorts the launches of a job by whom they meet.
    ///
    /// # Panics
    ///
    /// If a process has 2^32 launches.
    #[must_use]
    pub fn of(job: &'a LaunchedJob) -> Self {
        let member = |rank: &u32| MemberCalls {
            process: job.process_at(*rank).unwrap_or(usize::MAX),
            ..MemberCalls::default()
        };
        let mut groups: Vec<Vec<MemberCalls>> =
            job.groups.iter().map(|group| group.ranks.iter().map(member).collect()).collect();
        let mut lanes: BTreeMap<TransferLane, LaneEnds> = BTreeMap::new();
        for process in &job.processes {
            let mut places: FxHashMap<GroupAt, Option<usize>> = FxHashMap::default();
            let mut place = |group: GroupAt| {
                let find = || job.group(group).ranks.iter().position(|rank| *rank == process.rank);
                *places.entry(group).or_insert_with(find)
            };
            for (group, reached) in &process.reached {
                let Some(place) = place(*group) else { continue };
                let member = &mut groups[group.0 as usize][place];
                (member.launched, member.finished) = (reached.launched, reached.finished);
                member.left = reached.left;
            }
            for (at, launch) in process.launches.iter().enumerate() {
                let at = u32::try_from(at).expect("fewer than 2^32 launches");
                let Some(place) = place(launch.group) else { continue };
                for (nth, call) in launch.calls.iter().enumerate() {
                    let lane = match call.what {
                        What::Send(to) => TransferLane { group: launch.group, from: process.rank, to },
                        What::Recv(from) => TransferLane { group: launch.group, from, to: process.rank },
                        What::Collective(_) | What::Unknown => {
                            let Some(number) = call.number else { continue };
                            let member = &mut groups[launch.group.0 as usize][place];
                            if member.calls.last() != Some(&(number, at)) {
                                member.calls.push((number, at));
                            }
                            member.launched = member.launched.max(Some(number));
                            if launch.state == LaunchState::Done {
                                member.finished = member.finished.max(Some(number));
                            }
                            continue;
                        }
                    };
                    let ends = lanes.entry(lane).or_default();
                    let end =
                        if matches!(call.what, What::Send(_)) { &mut ends.sends } else { &mut ends.recvs };
                    end.push((at, u32::try_from(nth).expect("fewer than 2^32 calls")));
                }
            }
        }
        for member in groups.iter_mut().flatten() {
            if !member.calls.is_sorted() {
                member.calls.sort_unstable();
            }
        }
        Self { job, groups, lanes }
    }

    /// Returns where a member is with a collective.
    #[must_use]
    pub fn position(&self, member: &MemberCalls, number: u64) -> MemberPosition {
        let Some(process) = self.job.processes.get(member.process) else { return MemberPosition::Unknown };
        if member.finished.is_some_and(|finished| number <= finished) {
            return MemberPosition::Done;
        }
        if let Ok(at) = member.calls.binary_search_by_key(&number, |(number, _)| *number) {
            let launch = member.calls[at].1;
            return match process.launches[launch as usize].state {
                LaunchState::Open | LaunchState::Begun => MemberPosition::Open(launch),
                LaunchState::Done => MemberPosition::Done,
                LaunchState::Unclear => MemberPosition::Unclear,
            };
        }
        match (process.known, member.launched) {
            (KnownPart::Whole, Some(launched)) if number > launched => MemberPosition::NotLaunched,
            (_, Some(launched)) if member.left && number > launched => MemberPosition::NotLaunched,
            (KnownPart::Whole | KnownPart::Partly | KnownPart::Nothing, _) => MemberPosition::Unknown,
        }
    }

    /// Returns whether the other end of a transfer is known not to be there: there is none in its lane, or, where both
    /// processes are known from their first launch on, there are fewer than this is the n-th of.
    #[must_use]
    pub fn lacks_other_end(&self, process: usize, launch: usize, call: usize) -> bool {
        let of = &self.job.processes[process];
        let made = &of.launches[launch];
        let group = made.group;
        let (lane, peer) = match made.calls[call].what {
            What::Send(to) => (TransferLane { group, from: of.rank, to }, to),
            What::Recv(from) => (TransferLane { group, from, to: of.rank }, from),
            What::Collective(_) | What::Unknown => return false,
        };
        let Some(with) = self.job.process_at(peer).map(|at| &self.job.processes[at]) else { return false };
        let Some(ends) = self.lanes.get(&lane).filter(|_| with.known == KnownPart::Whole) else {
            return false;
        };
        let sends = matches!(made.calls[call].what, What::Send(_));
        let (own, others) = if sends { (&ends.sends, &ends.recvs) } else { (&ends.recvs, &ends.sends) };
        let here = |end: &(u32, u32)| (end.0 as usize, end.1 as usize) == (launch, call);
        let nth = own.iter().position(here);
        others.is_empty() || with.from_start && of.from_start && nth.is_some_and(|nth| nth >= others.len())
    }
}
