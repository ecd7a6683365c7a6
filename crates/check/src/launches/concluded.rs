//! What can be over of launches of which nobody saw whether they are: that which everybody could have come to.
//!
//! A device does the calls of one communicator in the order in which its host made them, and those of one stream. So a
//! collective can be over once it is first in line with all members, and a transfer once it is with both. What remains
//! waits for a call that somebody did not make, or for itself; and what a host made after that, and what meets it, is not
//! taken to be over either, for a stream may wait for another. Whether sends and receives were in one group of calls is
//! not known: they are let through together, and if that makes a difference, it is said.
//! Not here: whether anything did stand still.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use super::job::{GroupAt, KnownPart, LaunchState, LaunchedJob, What};
use super::positions::TransferLane;

/// What meets: the n-th collective of a group, or the n-th transfer of a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum LaunchMeeting {
    Collective(GroupAt, u64),
    Transfer(TransferLane, u64),
}

#[derive(Debug, Default)]
struct Arrived {
    launches: Vec<(usize, usize)>,
    needed: usize,
    /// Whether it meets somebody of whom too little is known.
    unclear: bool,
}

/// How sends and receives of one process that follow one another are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TransferGroups {
    AsMuchAsPossible,
    Never,
}

/// Says of each launch of a job whether it can be over. Returns the processes whose sends and receives, taken one by one,
/// would wait for one another in a circle.
pub fn conclude(job: &mut LaunchedJob) -> Vec<u32> {
    let meetings = meetings(job);
    let grouped = over(job, &meetings, TransferGroups::AsMuchAsPossible);
    let alone = over(job, &meetings, TransferGroups::Never);
    let mut unsure = Vec::new();
    let held = held(job, &meetings, &grouped);
    for (at, process) in job.processes.iter_mut().enumerate() {
        for (nth, launch) in process.launches.iter_mut().enumerate() {
            launch.state =
                match (launch.state, meetings.of[at][nth]) {
                    (LaunchState::Unclear, Some(meeting)) if nth < held[at] => {
                        if meetings.all[meeting].unclear { LaunchState::Unclear } else { LaunchState::Done }
                    }
                    (LaunchState::Unclear, Some(_)) => LaunchState::Open,
                    (known, _) => known,
                };
        }
        let left = |launch: &super::job::DeviceLaunch| {
            process.reached.get(&launch.group).is_some_and(|reached| reached.left)
        };
        let differs = process.launches.iter().enumerate().any(|(nth, launch)| {
            let transfer = launch.calls.iter().any(|call| matches!(call.what, What::Send(_) | What::Recv(_)));
            grouped[at][nth] && !alone[at][nth] && transfer && !left(launch)
        });
        if differs {
            unsure.push(process.rank);
        }
    }
    unsure
}

/// Returns from which launch on each process is held up: by one that cannot be over, or by what meets one.
fn held(job: &LaunchedJob, meetings: &Meetings, over: &[Vec<bool>]) -> Vec<usize> {
    let mut held: Vec<usize> = job.processes.iter().map(|process| process.launches.len()).collect();
    let mut told = held.clone();
    for (at, process) in job.processes.iter().enumerate() {
        let first =
            process.launches.iter().zip(&over[at]).position(|(launch, over)| !over || launch.state.is_open());
        held[at] = first.unwrap_or(held[at]);
    }
    let mut next: Vec<usize> = (0..held.len()).collect();
    while let Some(process) = next.pop() {
        let more = held[process]..told[process];
        told[process] = told[process].min(held[process]);
        for meeting in more.filter_map(|nth| meetings.of[process][nth]) {
            for (other, nth) in &meetings.all[meeting].launches {
                if *nth < held[*other] {
                    held[*other] = *nth;
                    next.push(*other);
                }
            }
        }
    }
    held
}

struct Meetings {
    all: Vec<Arrived>,
    /// For each launch of each process, which it is in.
    of: Vec<Vec<Option<usize>>>,
}

fn meetings(job: &LaunchedJob) -> Meetings {
    let mut at: FxHashMap<LaunchMeeting, usize> = FxHashMap::default();
    let mut meetings = Meetings { all: Vec::new(), of: Vec::new() };
    let mut lanes: FxHashMap<(TransferLane, bool), u64> = FxHashMap::default();
    for (process_at, process) in job.processes.iter().enumerate() {
        let mut of = Vec::with_capacity(process.launches.len());
        for (nth, launch) in process.launches.iter().enumerate() {
            let group = launch.group;
            let mut lane = |from, to, sends| {
                let lane = TransferLane { group, from, to };
                let next = lanes.entry((lane, sends)).or_default();
                *next += 1;
                LaunchMeeting::Transfer(lane, *next)
            };
            let call = launch.calls.first();
            let meeting = call.and_then(|call| match (call.what, call.number) {
                (What::Send(to), _) => Some(lane(process.rank, to, true)),
                (What::Recv(from), _) => Some(lane(from, process.rank, false)),
                (What::Collective(_), Some(number)) => Some(LaunchMeeting::Collective(group, number)),
                (What::Collective(_) | What::Unknown, _) => None,
            });
            let place = meeting.map(|meeting| {
                let place = *at.entry(meeting).or_insert_with(|| {
                    meetings.all.push(Arrived::new(job, meeting));
                    meetings.all.len() - 1
                });
                meetings.all[place].launches.push((process_at, nth));
                place
            });
            of.push(place);
        }
        meetings.of.push(of);
    }
    for meeting in &mut meetings.all {
        meeting.needed = meeting.needed.max(meeting.launches.len());
    }
    meetings
}

impl Arrived {
    fn new(job: &LaunchedJob, meeting: LaunchMeeting) -> Self {
        let mut arrived = Self::default();
        let mut member = |rank: u32| {
            let process = job.process_at(rank).map(|at| &job.processes[at]);
            let group = match meeting {
                LaunchMeeting::Collective(group, _) => group,
                LaunchMeeting::Transfer(lane, _) => lane.group,
            };
            let left = |process: &super::job::Process| {
                process.reached.get(&group).is_some_and(|reached| reached.left)
            };
            // Who is not known may have come.
            if process.is_some_and(|process| process.known == KnownPart::Whole || left(process)) {
                arrived.needed += 1;
            } else {
                arrived.unclear = true;
            }
        };
        match meeting {
            LaunchMeeting::Collective(group, _) => job.group(group).ranks.iter().copied().for_each(member),
            LaunchMeeting::Transfer(lane, _) if lane.from == lane.to => {
                // Both ends are in one process.
                member(lane.from);
                arrived.needed *= 2;
            }
            LaunchMeeting::Transfer(lane, _) => [lane.from, lane.to].into_iter().for_each(member),
        }
        arrived
    }
}

/// Lets everything go on that can, and returns which launches of which process are over then.
fn over(job: &LaunchedJob, meetings: &Meetings, grouped: TransferGroups) -> Vec<Vec<bool>> {
    let lines: Vec<DeviceOrder> =
        job.processes.iter().map(|process| DeviceOrder::of(process, grouped)).collect();
    let mut waits: Vec<Vec<usize>> = lines.iter().map(|lines| lines.before.clone()).collect();
    let mut here: Vec<usize> = vec![0; meetings.all.len()];
    let mut over: Vec<Vec<bool>> = waits.iter().map(|waits| vec![false; waits.len()]).collect();
    let mut first: VecDeque<(usize, usize)> = VecDeque::new();
    for (process, waits) in waits.iter().enumerate() {
        first.extend(
            waits.iter().enumerate().filter(|(_, waits)| **waits == 0).map(|(nth, _)| (process, nth)),
        );
    }
    while let Some((process, nth)) = first.pop_front() {
        let done: &[(usize, usize)] = match meetings.of[process][nth] {
            // It meets nobody who is known.
            None => &[(process, nth)],
            Some(meeting) => {
                here[meeting] += 1;
                if here[meeting] < meetings.all[meeting].needed {
                    continue;
                }
                &meetings.all[meeting].launches
            }
        };
        for (process, nth) in done {
            if std::mem::replace(&mut over[*process][*nth], true) {
                continue;
            }
            for next in &lines[*process].after[*nth] {
                waits[*process][*next] -= 1;
                if waits[*process][*next] == 0 {
                    first.push_back((*process, *next));
                }
            }
        }
    }
    over
}

/// In which order a device does the launches of a process: what each waits for directly, by the calls before it of its
/// communicator and of its stream.
struct DeviceOrder {
    /// How many launches each waits for.
    before: Vec<usize>,
    /// Which wait for each.
    after: Vec<Vec<usize>>,
}

impl DeviceOrder {
    fn of(process: &super::job::Process, grouped: TransferGroups) -> Self {
        let launches = &process.launches;
        let mut lines = Self { before: vec![0; launches.len()], after: vec![Vec::new(); launches.len()] };
        let transfers = |nth: usize| {
            let call = launches[nth].calls.first();
            call.is_some_and(|call| matches!(call.what, What::Send(_) | What::Recv(_)))
        };
        // The launches of one run go through together. A run is named by its first.
        let mut run: Vec<usize> = Vec::with_capacity(launches.len());
        for nth in 0..launches.len() {
            let together = grouped == TransferGroups::AsMuchAsPossible
                && nth > 0
                && transfers(nth)
                && transfers(nth - 1)
                && launches[nth].group == launches[nth - 1].group
                && launches[nth].stream == launches[nth - 1].stream;
            run.push(if together { run[nth - 1] } else { nth });
        }
        let mut runs: Vec<Vec<usize>> = vec![Vec::new(); launches.len()];
        for (nth, first) in run.iter().enumerate() {
            runs[*first].push(nth);
        }
        let mut of_group: FxHashMap<GroupAt, usize> = FxHashMap::default();
        let mut of_stream: FxHashMap<u64, usize> = FxHashMap::default();
        for first in (0..launches.len()).filter(|nth| run[*nth] == *nth) {
            let launch = &launches[first];
            let mut before = vec![of_group.insert(launch.group, first)];
            before.push(launch.stream.and_then(|stream| of_stream.insert(stream, first)));
            let mut before: Vec<usize> = before.into_iter().flatten().collect();
            before.dedup();
            for before in before.into_iter().flat_map(|before| runs[before].clone()) {
                for later in &runs[first] {
                    lines.after[before].push(*later);
                    lines.before[*later] += 1;
                }
            }
        }
        lines
    }
}
