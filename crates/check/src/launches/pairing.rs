//! Which transfers of a lane meet.
//!
//! Where a lane is known from its beginning, the n-th send meets the n-th receive. Where the first of either end are
//! lost, how many more one end has lost than the other is not known. What is over bounds it: a receive that is over was
//! sent, and a send that is over was most likely received. Collectives that both processes have finished fix it: what was
//! sent before one is likely to be received before it. None of that is certain, for a program may do otherwise, and dumps are
//! not of one moment.
//! Not here: who waits for whom because of it ([`super::waits`]).

use super::job::{GroupAt, KnownPart, LaunchState, LaunchedJob, Process};
use super::positions::{LaneEnds, Positions, TransferLane};

/// The other end of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Met {
    /// It was launched, in this launch of the other process.
    Launched(u32),
    /// It was not launched.
    NotLaunched,
    /// It was launched by a process, or not: nothing says which.
    Unknown,
}

/// What is known of the other end of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MetTransfer {
    /// Whether it was launched, and in which launch.
    pub met: Met,
    /// Whether that is certain, and not only likely.
    pub sure: bool,
}

impl MetTransfer {
    const UNKNOWN: Self = Self { met: Met::Unknown, sure: false };
}

/// One transfer, with both ends of its lane seen from its own.
struct SeenFrom<'a> {
    group: GroupAt,
    sends: bool,
    own: &'a Process,
    peer: &'a Process,
    own_end: &'a [(u32, u32)],
    peer_end: &'a [(u32, u32)],
}

/// How many places further on in its end the other end of a transfer may stand: by the least and the most.
#[derive(Clone, Copy)]
struct Shift {
    least: i64,
    most: i64,
}

impl Shift {
    /// The only one that is possible.
    fn only(self) -> Option<i64> {
        (self.least == self.most).then_some(self.least)
    }

    fn contains(self, shift: i64) -> bool {
        (self.least..=self.most).contains(&shift)
    }
}

/// What bounds how places differ.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ShiftBy {
    ReceivesThatAreOver,
    AllThatIsOver,
}

fn state(process: &Process, end: (u32, u32)) -> LaunchState {
    process.launches[end.0 as usize].state
}

/// Whether a transfer is the only one of its launch, so that nothing but its other end keeps it.
fn is_alone(process: &Process, launch: u32) -> bool {
    process.launches[launch as usize].calls.len() == 1
}

fn signed(place: usize) -> i64 {
    i64::try_from(place).unwrap_or(i64::MAX / 4)
}

impl SeenFrom<'_> {
    /// How the places of both ends may differ. An end that is known from its beginning has lost nothing. The other end of a
    /// receive that is over has a place, and most likely that of a send: a small one may be over before it is received.
    fn shift(&self, what: ShiftBy) -> Shift {
        const FAR: i64 = i64::MAX / 4;
        let (own, peer) = (signed(self.own_end.len()), signed(self.peer_end.len()));
        let last_done = |process: &Process, end: &[(u32, u32)]| {
            end.iter().rposition(|end| state(process, *end) == LaunchState::Done).map(signed)
        };
        let of_sends = what == ShiftBy::AllThatIsOver;
        let mut shift = Shift { least: -FAR, most: FAR };
        if self.own.has_all_transfers(self.group) {
            shift.most = shift.most.min(0);
        }
        if self.peer.has_all_transfers(self.group) {
            shift.least = shift.least.max(0);
        }
        if self.peer.known == KnownPart::Whole
            && (of_sends || !self.sends)
            && let Some(done) = last_done(self.own, self.own_end)
        {
            shift.most = shift.most.min(peer - 1 - done);
        }
        if self.own.known == KnownPart::Whole
            && (of_sends || self.sends)
            && let Some(done) = last_done(self.peer, self.peer_end)
        {
            shift.least = shift.least.max(done - own + 1);
        }
        shift
    }

    /// The other end, if it stands so many places further on.
    fn at(&self, place: usize, shift: i64) -> Met {
        match usize::try_from(signed(place) + shift) {
            // It is lost.
            Err(_) => Met::Unknown,
            Ok(place) => self.peer_end.get(place).map_or(self.absent(), |(launch, _)| Met::Launched(*launch)),
        }
    }

    fn absent(&self) -> Met {
        if self.peer.known == KnownPart::Whole { Met::NotLaunched } else { Met::Unknown }
    }

    /// The other end of a transfer in a lane that has lost its beginning.
    fn in_cut_lane(&self, positions: &Positions<'_>, place: usize) -> MetTransfer {
        let unclear = |end: &(u32, u32)| state(self.peer, *end) == LaunchState::Unclear;
        if self.own.lost_may_be_open || self.peer.lost_may_be_open || self.peer_end.iter().any(unclear) {
            return MetTransfer::UNKNOWN;
        }
        // More than all that the other one ever launched were launched here.
        if self.peer.has_all_transfers(self.group) && place >= self.peer_end.len() {
            return MetTransfer { met: self.absent(), sure: true };
        }
        let possible = self.shift(ShiftBy::ReceivesThatAreOver);
        let anchored = self.anchored(positions).filter(|anchored| possible.contains(*anchored));
        if let Some(known) = anchored.or_else(|| self.shift(ShiftBy::AllThatIsOver).only()) {
            return MetTransfer { met: self.at(place, known), sure: false };
        }
        self.among_open(place)
    }

    /// The n-th that is open is taken to meet the n-th that is open. A call that shares its launch with others may be open
    /// because of those, and its other end be over.
    fn among_open(&self, place: usize) -> MetTransfer {
        let launch = self.own_end[place].0;
        let is_open = |process: &Process, end: &(u32, u32)| state(process, *end).is_open();
        let nth = self.own_end[..place].iter().filter(|end| is_open(self.own, end)).count();
        let other = self.peer_end.iter().filter(|end| is_open(self.peer, end)).nth(nth);
        let alone = is_alone(self.own, launch);
        let alone_there = other.is_none_or(|(other, _)| is_alone(self.peer, *other));
        let is_done = |end: &(u32, u32)| state(self.peer, *end) == LaunchState::Done;
        if !(alone && alone_there) && self.peer_end.iter().any(is_done) {
            return MetTransfer::UNKNOWN;
        }
        let met = other.map_or(self.absent(), |(launch, _)| Met::Launched(*launch));
        MetTransfer { met, sure: false }
    }

    /// How the places of both ends differ if the last collective that both processes have finished is at one place among
    /// the transfers of both.
    fn anchored(&self, positions: &Positions<'_>) -> Option<i64> {
        let place = |rank: u32| positions.job.process_at(rank);
        let (own, peer) = (place(self.own.rank)?, place(self.peer.rank)?);
        let mut shared: Option<(u32, u32)> = None;
        for members in &positions.groups {
            let of = |process: usize| members.iter().find(|member| member.process == process);
            let (Some(one), Some(other)) = (of(own), of(peer)) else { continue };
            let done =
                |process: &Process, launch: u32| process.launches[launch as usize].state == LaunchState::Done;
            let found = one.calls.iter().rev().find_map(|(number, launch)| {
                let at = other.calls.binary_search_by_key(number, |(number, _)| *number).ok()?;
                let there = other.calls[at].1;
                (done(self.own, *launch) && done(self.peer, there)).then_some((*launch, there))
            });
            shared = shared.max(found);
        }
        let (here, there) = shared?;
        let before = |end: &[(u32, u32)], launch: u32| end.partition_point(|(at, _)| *at < launch);
        Some(signed(before(self.peer_end, there)) - signed(before(self.own_end, here)))
    }
}

impl Positions<'_> {
    fn seen_from<'a>(&'a self, lane: TransferLane, ends: &'a LaneEnds, sends: bool) -> Option<SeenFrom<'a>> {
        let process = |job: &'a LaunchedJob, rank: u32| job.process_at(rank).map(|at| &job.processes[at]);
        let (from, to) = (process(self.job, lane.from)?, process(self.job, lane.to)?);
        let (own, peer) = if sends { (from, to) } else { (to, from) };
        let (own_end, peer_end) = if sends { (&ends.sends, &ends.recvs) } else { (&ends.recvs, &ends.sends) };
        Some(SeenFrom { group: lane.group, sends, own, peer, own_end, peer_end })
    }

    /// Returns the places of the first send and the first receive that meet in a lane that has lost its first transfers, by
    /// the last collective that both processes have finished.
    #[must_use]
    pub fn first_pair(&self, lane: TransferLane) -> Option<(usize, usize)> {
        let seen = self.seen_from(lane, self.lanes.get(&lane)?, true)?;
        let possible = seen.shift(ShiftBy::ReceivesThatAreOver);
        let further = seen.anchored(self).filter(|shift| possible.contains(*shift))?;
        Some((usize::try_from(-further).unwrap_or(0), usize::try_from(further).unwrap_or(0)))
    }

    /// Returns the other end of a transfer that is open.
    #[must_use]
    pub fn met(&self, lane: TransferLane, sends: bool, launch: u32, call: u32) -> MetTransfer {
        let seen = self.lanes.get(&lane).and_then(|ends| self.seen_from(lane, ends, sends));
        let Some(seen) = seen else { return MetTransfer::UNKNOWN };
        let Some(place) = seen.own_end.iter().position(|end| *end == (launch, call)) else {
            return MetTransfer::UNKNOWN;
        };
        if seen.own.has_all_transfers(lane.group) && seen.peer.has_all_transfers(lane.group) {
            return MetTransfer { met: seen.at(place, 0), sure: true };
        }
        seen.in_cut_lane(self, place)
    }
}
