//! Who waits for whom where a job was looked at: roots, circles, and calls that may go on.
//!
//! A launch that is open waits for every member that did not launch the same, for what those that did have open before
//! it, and for what its own process has open before it. A host that did not launch what others wait for waits for the
//! last that its device has open. Whoever is waited for and waits for nothing is a root: a host that launches nothing
//! though nothing keeps it, or a device on which something is open that another device has finished. Waits that lead
//! back to where they begin are a circle.
//! Not here: what ranks called differently ([`super::compare`]), and what is concluded ([`super::judge`]).

use std::collections::BTreeSet;

use rustc_hash::{FxHashMap, FxHashSet};

use super::compare::{Compared, same_operands};
use super::components::{components, shortest_circle};
use super::job::{DeviceLaunch, GroupAt, KnownCompletion, KnownPart, LaunchState, LaunchedCall, What};
use super::pairing::Met;
use super::positions::{MemberPosition, Positions, TransferLane};

/// Launches from which a shortest circle is looked for.
const STARTS: usize = 64;

/// A launch of a process, by their places.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LaunchAt {
    /// The process that made it.
    pub process: usize,
    /// The launch of it.
    pub launch: u32,
}

/// A call inside of a launch, by their places.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallAt {
    /// The launch that it is in.
    pub at: LaunchAt,
    /// The place of the call in it.
    pub call: usize,
}

/// A rank that waits for nobody and that others wait for, or will once they call anything more.
#[derive(Debug, Clone)]
pub struct JobRoot {
    /// The rank that is waited for.
    pub rank: u32,
    /// What is known of it.
    pub kind: RootKind,
    /// Who waits for it, or for somebody who does. Nobody may do so yet for a device that stands.
    pub awaited_by: BTreeSet<u32>,
}

/// Why somebody is a root.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RootKind {
    /// Its host did not launch what this call of another rank meets, and its device has nothing open.
    DidNotLaunch(Option<CallAt>),
    /// Its device is not over with something that another device has finished.
    Stands(DeviceStands),
    /// Its device has not begun what that of this rank has, and nothing that it was given keeps it.
    HasNotBegun(LaunchAt, u32),
    /// Nothing of it is known, and nothing else keeps this call of another rank.
    NotKnown(CallAt),
}

/// A device that is not over with something that another has finished.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceStands {
    /// What it is not over with.
    pub launch: LaunchAt,
    /// The number of the collective.
    pub number: u64,
    /// A rank that has finished it.
    pub finished_by: u32,
    /// Whether somebody has finished a later one of the same group too. Then it is no matter of moments.
    pub passed: bool,
}

/// One step of a circle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CircleStep {
    /// Who waits, and in what.
    pub waits_in: LaunchAt,
    /// The place in it of the call that waits.
    pub call: usize,
    /// The process that it waits for.
    pub awaits: usize,
    /// Whether that one launched it, and has something else open before it.
    pub launched: bool,
}

/// All waits of a job.
#[derive(Debug, Default)]
pub struct JobWaits {
    /// Who waits for nobody and is waited for.
    pub roots: Vec<JobRoot>,
    /// Waits that lead back to where they begin.
    pub circles: Vec<Vec<CircleStep>>,
    /// Those in which a wait is likely and not certain.
    pub likely_circles: Vec<LikelyCircle>,
    /// Whether it is likely and not certain of any open transfer which one it meets.
    pub guessed: bool,
    /// The first open launch of each collective, or transfer, that nothing is known to keep from going on.
    pub may_go_on: Vec<LaunchAt>,
    /// How many open launches wait for something that is not known.
    pub unsure: usize,
    /// The oldest open launch of each rank that waits, with whom it waits for directly.
    pub waiting: Vec<(LaunchAt, BTreeSet<u32>)>,
    /// Ranks whose processes were looked at before others: those have finished what they had not launched.
    pub stale: Vec<u32>,
    /// Whether a wait leads from one communicator to another because of the order in which a rank made its calls.
    pub across_communicators: bool,
}

/// Waits that lead back to where they begin if those are that are likely.
#[derive(Debug)]
pub struct LikelyCircle {
    /// Who waits for whom in it.
    pub steps: Vec<CircleStep>,
    /// What is likely in it.
    pub guesses: BTreeSet<Guess>,
}

/// Why a wait is likely and not certain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Guess {
    /// Rings have lost the first transfers, and which of the others meet is not known.
    Transfers,
    /// A launch waits for one before it on its device that may be another communicator's, on another stream.
    Communicators,
    /// A host that has not launched something need not wait for what its device has open.
    Hosts,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NodeOfWaits {
    Host(usize),
    Launch(LaunchAt),
    Meeting(GroupAt, u64),
}

struct JobGraph<'a> {
    positions: &'a Positions<'a>,
    compared: &'a Compared,
    stale: Vec<bool>,
    stands: Vec<Option<DeviceStands>>,
    nodes: Vec<NodeOfWaits>,
    edges: Vec<Vec<u32>>,
    /// Edges that are likely and not certain.
    guessed: FxHashMap<(u32, u32), Guess>,
    /// Whether it is likely and not certain of any open transfer which one it meets.
    guessed_any: bool,
    unsure: Vec<bool>,
    /// The open launches of each process, oldest first, with their nodes.
    open: Vec<Vec<(u32, u32)>>,
    meetings: FxHashMap<(GroupAt, u64), u32>,
}

impl JobWaits {
    /// Returns all circles, those that are certain first.
    pub fn all_circles(&self) -> impl Iterator<Item = &Vec<CircleStep>> {
        self.circles.iter().chain(self.likely_circles.iter().map(|likely| &likely.steps))
    }

    fn add(&mut self, circle: Option<(Vec<CircleStep>, BTreeSet<Guess>)>) {
        match circle {
            Some((steps, guesses)) if guesses.is_empty() => self.circles.push(steps),
            Some((steps, guesses)) => self.likely_circles.push(LikelyCircle { steps, guesses }),
            None => {}
        }
    }

    /// Returns whether anybody is named whom others wait for.
    #[must_use]
    pub fn names_anybody(&self) -> bool {
        !self.roots.is_empty() || self.all_circles().next().is_some()
    }

    /// Returns who waits for whom.
    #[must_use]
    pub fn of(positions: &Positions<'_>, compared: &Compared) -> Self {
        let mut graph = JobGraph::new(positions, compared);
        graph.find_stale();
        graph.find_standing();
        graph.connect();
        graph.waits()
    }
}

fn number(index: usize) -> u32 {
    u32::try_from(index).expect("fewer than 2^32 nodes")
}

impl<'a> JobGraph<'a> {
    fn new(positions: &'a Positions<'a>, compared: &'a Compared) -> Self {
        let processes = positions.job.processes.len();
        let mut graph = Self {
            positions,
            compared,
            stale: vec![false; processes],
            stands: vec![None; processes],
            nodes: (0..processes).map(NodeOfWaits::Host).collect(),
            edges: vec![Vec::new(); processes],
            guessed: FxHashMap::default(),
            guessed_any: false,
            unsure: vec![false; processes],
            open: vec![Vec::new(); processes],
            meetings: FxHashMap::default(),
        };
        for (process, of) in positions.job.processes.iter().enumerate() {
            for (launch, _) in of.launches.iter().enumerate().filter(|(_, launch)| launch.state.is_open()) {
                let launch = number(launch);
                let finished = graph.numbers(LaunchAt { process, launch }).any(|(group, nth)| {
                    let member = graph.member(group, process);
                    member.is_some_and(|member| member.finished.is_some_and(|finished| nth <= finished))
                });
                if !finished {
                    let node = graph.add(NodeOfWaits::Launch(LaunchAt { process, launch }));
                    graph.open[process].push((launch, node));
                }
            }
        }
        graph
    }

    fn add(&mut self, node: NodeOfWaits) -> u32 {
        self.nodes.push(node);
        self.edges.push(Vec::new());
        self.unsure.push(false);
        number(self.nodes.len() - 1)
    }

    fn rank(&self, process: usize) -> u32 {
        self.positions.job.processes[process].rank
    }

    fn member(&self, group: GroupAt, process: usize) -> Option<&'a super::positions::MemberCalls> {
        self.positions.groups[group.0 as usize].iter().find(|member| member.process == process)
    }

    /// The collectives of a launch that are comparable: groups and numbers.
    fn numbers(&self, at: LaunchAt) -> impl Iterator<Item = (GroupAt, u64)> + use<'a> {
        let launch = &self.positions.job.processes[at.process].launches[at.launch as usize];
        let diverged = self.compared.diverged.get(&launch.group).copied();
        let mut last = None;
        let numbers = launch.calls.iter().filter_map(|call| call.number);
        numbers
            .filter(move |number| last.replace(*number) != Some(*number))
            .filter(move |number| diverged.is_none_or(|from| *number < from))
            .map(|number| (launch.group, number))
    }

    /// Whether a collective cannot be over on one rank unless all have launched it, as far as anybody's call says.
    fn needs_everybody(&self, group: GroupAt, nth: u64) -> bool {
        let mut members = self.positions.groups[group.0 as usize].iter();
        let kind = members.find_map(|member| {
            let at = member.calls.binary_search_by_key(&nth, |(number, _)| *number).ok()?;
            let launch = &self.positions.job.processes[member.process].launches[member.calls[at].1 as usize];
            let call = launch.calls.iter().find(|call| call.number == Some(nth))?;
            if let What::Collective(kind) = call.what { Some(kind) } else { None }
        });
        kind.is_some_and(super::job::CalledKind::needs_everybody)
    }

    /// Finds processes that were looked at before others went on: something is over that they had not launched.
    fn find_stale(&mut self) {
        for (at, members) in self.positions.groups.iter().enumerate() {
            let group = GroupAt(number(at));
            let Some(finished) = members.iter().filter_map(|member| member.finished).max() else { continue };
            let diverged = self.compared.diverged.get(&group).is_some_and(|from| finished >= *from);
            if diverged || !self.needs_everybody(group, finished) {
                continue;
            }
            for member in members {
                if self.positions.position(member, finished) == MemberPosition::NotLaunched {
                    self.stale[member.process] = true;
                }
            }
        }
    }

    fn find_standing(&mut self) {
        let mut seen: FxHashSet<(GroupAt, u64)> = FxHashSet::default();
        for process in 0..self.open.len() {
            for (launch, _) in self.open[process].clone() {
                for (group, nth) in self.numbers(LaunchAt { process, launch }) {
                    if seen.insert((group, nth)) {
                        self.find_standing_in(group, nth);
                    }
                }
            }
        }
    }

    /// Finds the members that are not over with a collective that others have finished.
    fn find_standing_in(&mut self, group: GroupAt, nth: u64) {
        let members = &self.positions.groups[group.0 as usize];
        let at: Vec<MemberPosition> =
            members.iter().map(|member| self.positions.position(member, nth)).collect();
        let Some(done) = at.iter().position(|position| *position == MemberPosition::Done) else { return };
        let finished_by = self.rank(members[done].process);
        let passed = members.iter().filter_map(|member| member.finished).any(|finished| finished > nth);
        let everybody = self.needs_everybody(group, nth);
        let others_done = at.iter().filter(|position| **position != MemberPosition::Done).count() == 1;
        for (member, position) in members.iter().zip(&at) {
            let (MemberPosition::Open(launch), process) = (*position, member.process) else { continue };
            let first = self.open[process].first().is_some_and(|(first, _)| *first == launch);
            let older = self.stands[process].is_none_or(|stands| launch < stands.launch.launch);
            // Who was looked at before others went on may be over with it since.
            if older && !self.stale[process] && (everybody || others_done && first) {
                let launch = LaunchAt { process, launch };
                self.stands[process] = Some(DeviceStands { launch, number: nth, finished_by, passed });
            }
        }
    }

    fn is_known(&self, process: usize) -> bool {
        self.positions.job.processes[process].known == KnownPart::Whole && !self.stale[process]
    }

    /// Whether the device has begun with a launch, so that nothing before it keeps it.
    fn has_begun(&self, at: LaunchAt) -> bool {
        self.positions.job.processes[at.process].launches[at.launch as usize].state == LaunchState::Begun
    }

    /// What a process has open before a launch that its device has not begun with.
    fn before(&self, at: LaunchAt) -> Option<u32> {
        if self.has_begun(at) {
            return None;
        }
        let open = &self.open[at.process];
        let index = open.partition_point(|(launch, _)| *launch < at.launch);
        index.checked_sub(1).map(|index| open[index].1)
    }

    fn connect(&mut self) {
        let positions = self.positions;
        for process in 0..self.open.len() {
            let host = number(process);
            if self.stands[process].is_some() {
                for (_, node) in self.open[process].clone() {
                    self.edges[node as usize].push(host);
                }
                continue;
            }
            if self.is_known(process)
                && let Some(&(_, last)) = self.open[process].last()
            {
                self.edges[process].push(last);
                self.guessed.insert((host, last), Guess::Hosts);
            }
            let last = self.positions.job.processes[process].launches.last();
            if self.positions.job.completion == KnownCompletion::Concluded
                && self.open[process].is_empty()
                && last.is_some_and(|last| last.state == LaunchState::Unclear)
            {
                self.unsure[process] = true;
            }
            for (launch, node) in self.open[process].clone() {
                let at = LaunchAt { process, launch };
                match self.before(at) {
                    Some(before) => {
                        self.edges[node as usize].push(before);
                        self.guess_order(node, at, before);
                    }
                    // Something that is lost may be open before it.
                    None => self.unsure[node as usize] |= self.lost_may_be_before(at),
                }
                // Whom a collective without a number waits for is not known.
                let calls = &positions.job.processes[process].launches[launch as usize].calls;
                let is_uncounted =
                    |call: &LaunchedCall| matches!(call.what, What::Collective(_)) && call.number.is_none();
                self.unsure[node as usize] |= calls.iter().any(is_uncounted);
                for (group, nth) in self.numbers(at) {
                    let meeting = self.meeting(group, nth);
                    self.edges[node as usize].push(meeting);
                }
                self.connect_transfers(at, node);
            }
        }
    }

    /// Whether something may be open before a launch that is lost.
    fn lost_may_be_before(&self, at: LaunchAt) -> bool {
        self.positions.job.processes[at.process].lost_may_be_open && !self.has_begun(at)
    }

    /// That a launch waits for one before it is certain where both are on one communicator: collectives of one group are.
    /// Transfers may have one of their own for each peer.
    fn guess_order(&mut self, from: u32, at: LaunchAt, before: u32) {
        let Some(earlier) = self.launch(before) else { return };
        let launch = |at: LaunchAt| &self.positions.job.processes[at.process].launches[at.launch as usize];
        let (one, other) = (launch(at), launch(earlier));
        if one.group != other.group || peer_of(one) != peer_of(other) {
            self.guessed.insert((from, before), Guess::Communicators);
        }
    }

    /// The call of a launch that waits for a process: the first that meets a call of it which is not known to have been
    /// launched; else the first that it has part in.
    fn call_for(&self, at: LaunchAt, process: usize) -> CallAt {
        let job = self.positions.job;
        let launch = &job.processes[at.process].launches[at.launch as usize];
        let (own, peer) = (self.rank(at.process), self.rank(process));
        let lane = |call: &LaunchedCall| match call.what {
            What::Send(to) => Some((TransferLane { group: launch.group, from: own, to }, true, to)),
            What::Recv(from) => Some((TransferLane { group: launch.group, from, to: own }, false, from)),
            What::Collective(_) | What::Unknown => None,
        };
        let with_it = |call: &LaunchedCall| lane(call).is_none_or(|(.., other)| other == peer);
        let lacks = |nth: usize, call: &LaunchedCall| {
            lane(call).is_none_or(|(lane, sends, _)| {
                !matches!(self.positions.met(lane, sends, at.launch, number(nth)).met, Met::Launched(_))
            })
        };
        let mut calls = launch.calls.iter().enumerate().filter(|(_, call)| with_it(call));
        let found = calls.clone().find(|(nth, call)| lacks(*nth, call)).or_else(|| calls.next());
        CallAt { at, call: found.map_or(0, |(nth, _)| nth) }
    }

    /// Where a launch of another process is the one that is met: what that has open before it. Nobody waits for what is
    /// over.
    fn leads_to(&self, at: LaunchAt) -> Option<u32> {
        let launch = &self.positions.job.processes[at.process].launches[at.launch as usize];
        if launch.state == LaunchState::Done {
            return None;
        }
        if self.stands[at.process].is_some() { Some(number(at.process)) } else { self.before(at) }
    }

    fn connect_transfers(&mut self, at: LaunchAt, node: u32) {
        let job = self.positions.job;
        let process = &job.processes[at.process];
        let launch = &process.launches[at.launch as usize];
        for (nth, call) in launch.calls.iter().enumerate() {
            let (lane, sends, peer) = match call.what {
                What::Send(to) => (TransferLane { group: launch.group, from: process.rank, to }, true, to),
                What::Recv(from) => {
                    (TransferLane { group: launch.group, from, to: process.rank }, false, from)
                }
                What::Collective(_) => continue,
                What::Unknown => {
                    self.unsure[node as usize] = true;
                    continue;
                }
            };
            let Some(peer) = job.process_at(peer) else {
                self.unsure[node as usize] = true;
                continue;
            };
            let meeting = self.positions.met(lane, sends, at.launch, number(nth));
            let to = match meeting.met {
                Met::Launched(launch) => self.leads_to(LaunchAt { process: peer, launch }),
                Met::NotLaunched => Some(number(peer)),
                Met::Unknown if !self.is_known(peer) => Some(number(peer)),
                Met::Unknown => {
                    self.unsure[node as usize] = true;
                    None
                }
            };
            if let Met::Launched(other) = meeting.met
                && !meeting.sure
                && !self.may_be_met(launch, (call, lane, sends), LaunchAt { process: peer, launch: other })
            {
                self.unsure[node as usize] = true;
                continue;
            }
            self.guessed_any |= !meeting.sure && meeting.met != Met::Unknown;
            if let Some(to) = to {
                if let Met::Launched(launch) = meeting.met {
                    self.guess_order(node, LaunchAt { process: peer, launch }, to);
                }
                if !meeting.sure {
                    self.guessed.insert((node, to), Guess::Transfers);
                }
                self.edges[node as usize].push(to);
            }
        }
    }

    /// Whether a launch that a transfer of another is likely to meet has one that fits it. A receive that is over has had its send,
    /// so that one is not open for long, unless others of its launch keep it.
    fn may_be_met(
        &self,
        own: &DeviceLaunch,
        (call, lane, sends): (&LaunchedCall, TransferLane, bool),
        at: LaunchAt,
    ) -> bool {
        let launch = &self.positions.job.processes[at.process].launches[at.launch as usize];
        let other_end = if sends { What::Recv(lane.from) } else { What::Send(lane.to) };
        let fits = |other: &LaunchedCall| other.what == other_end && same_operands(call, other);
        let over = sends && own.calls.len() == 1 && launch.state == LaunchState::Done;
        launch.calls.iter().any(fits) && !over
    }

    fn meeting(&mut self, group: GroupAt, nth: u64) -> u32 {
        if let Some(node) = self.meetings.get(&(group, nth)) {
            return *node;
        }
        let node = self.add(NodeOfWaits::Meeting(group, nth));
        self.meetings.insert((group, nth), node);
        let mut edges = Vec::new();
        for member in &self.positions.groups[group.0 as usize] {
            if member.process >= self.open.len() {
                self.unsure[node as usize] = true;
                continue;
            }
            let host = number(member.process);
            match self.positions.position(member, nth) {
                MemberPosition::Done => {}
                MemberPosition::Open(launch) => {
                    let at = LaunchAt { process: member.process, launch };
                    match self.leads_to(at) {
                        Some(before) => {
                            edges.push(before);
                            self.guess_order(node, at, before);
                        }
                        // Something that is lost may be open before it.
                        None => self.unsure[node as usize] |= self.lost_may_be_before(at),
                    }
                }
                MemberPosition::NotLaunched => edges.push(host),
                MemberPosition::Unknown if !self.is_known(member.process) => edges.push(host),
                MemberPosition::Unclear | MemberPosition::Unknown => self.unsure[node as usize] = true,
            }
        }
        edges.sort_unstable();
        edges.dedup();
        self.edges[node as usize] = edges;
        node
    }

    fn waits(self) -> JobWaits {
        let (component, found) = components(&self.edges);
        let mut members: Vec<Vec<u32>> = vec![Vec::new(); found];
        let mut leaves = vec![false; found];
        for (node, edges) in self.edges.iter().enumerate() {
            let own = component[node] as usize;
            members[own].push(number(node));
            leaves[own] |= edges.iter().any(|to| component[*to as usize] as usize != own);
        }
        let mut into: Vec<Vec<u32>> = vec![Vec::new(); self.nodes.len()];
        for (node, edges) in self.edges.iter().enumerate() {
            for to in edges {
                into[*to as usize].push(number(node));
            }
        }
        let mut waits = JobWaits::default();
        let (mut roots, mut not_known) = (Vec::new(), Vec::new());
        for (nodes, leaves) in members.iter().zip(leaves) {
            match (&nodes[..], leaves) {
                // Whoever waits needs all for whom it waits: a circle stands, whatever those do that somebody in it waits for too.
                ([_], true) => {}
                (nodes, true) if nodes.iter().any(|node| self.unsure[*node as usize]) => {}
                (nodes, true) => match self.circle(nodes, &component) {
                    Some((_, guesses)) if guesses.contains(&Guess::Transfers) => {}
                    circle => waits.add(circle),
                },
                ([node], false) => match self.nodes[*node as usize] {
                    NodeOfWaits::Host(_) if into[*node as usize].is_empty() => {}
                    NodeOfWaits::Host(_) if self.unsure[*node as usize] => waits.unsure += 1,
                    NodeOfWaits::Host(process)
                        if self.stands[process].is_some() || self.is_known(process) =>
                    {
                        roots.push(process);
                    }
                    NodeOfWaits::Host(process) => not_known.push(process),
                    NodeOfWaits::Launch(_) | NodeOfWaits::Meeting(..) if self.unsure[*node as usize] => {
                        waits.unsure += 1
                    }
                    NodeOfWaits::Launch(at) => waits.may_go_on.push(at),
                    NodeOfWaits::Meeting(..) => {
                        let launch = into[*node as usize].iter().find_map(|from| self.launch(*from));
                        waits.may_go_on.extend(launch);
                    }
                },
                (nodes, false) if nodes.iter().any(|node| self.unsure[*node as usize]) => waits.unsure += 1,
                (nodes, false) => waits.add(self.circle(nodes, &component)),
            }
        }
        waits.guessed = self.guessed_any;
        waits.across_communicators = self.guessed.values().any(|guess| *guess == Guess::Communicators);
        waits.stale = (0..self.stale.len()).filter(|at| self.stale[*at]).map(|at| self.rank(at)).collect();
        let reach = |from: &[usize]| reached(&into, from);
        let roots_reached = reach(&roots);
        waits.roots.extend(roots.into_iter().filter_map(|process| self.root(process, &into)));
        for process in not_known {
            waits.roots.extend(self.root_not_known(process, &into, &roots_reached));
        }
        waits.roots.sort_by_key(|root| {
            let unsure = matches!(root.kind, RootKind::NotKnown(_));
            (unsure, std::cmp::Reverse(root.awaited_by.len()), root.rank)
        });
        self.tell_waiting(&mut waits);
        waits
    }

    fn launch(&self, node: u32) -> Option<LaunchAt> {
        if let NodeOfWaits::Launch(at) = self.nodes[node as usize] { Some(at) } else { None }
    }

    /// The ranks that wait for a process.
    fn awaited_by(&self, process: usize, into: &[Vec<u32>]) -> BTreeSet<u32> {
        let reached = reached(into, &[process]);
        let ranks = self.nodes.iter().zip(reached).filter(|(_, reached)| *reached);
        let ranks = ranks.filter_map(|(node, _)| match node {
            NodeOfWaits::Host(other) => {
                Some((*other, self.open[*other].is_empty())).filter(|(_, idle)| !idle)
            }
            NodeOfWaits::Launch(at) => Some((at.process, false)),
            NodeOfWaits::Meeting(..) => None,
        });
        ranks
            .map(|(other, _)| other)
            .filter(|other| *other != process)
            .map(|other| self.rank(other))
            .collect()
    }

    fn root(&self, process: usize, into: &[Vec<u32>]) -> Option<JobRoot> {
        let awaited_by = self.awaited_by(process, into);
        let kind = match self.stands[process] {
            // Others have finished what it stands in, and may not have called anything more.
            Some(stands) => RootKind::Stands(stands),
            None if awaited_by.is_empty() => return None,
            None => {
                let first = self.awaiting(process, into).first().copied();
                RootKind::DidNotLaunch(first.map(|at| self.call_for(at, process)))
            }
        };
        Some(JobRoot { rank: self.rank(process), kind, awaited_by })
    }

    /// The launches of others that wait for a process itself, the oldest of each first.
    fn awaiting(&self, process: usize, into: &[Vec<u32>]) -> Vec<LaunchAt> {
        let mut launches = Vec::new();
        for from in &into[process] {
            match self.nodes[*from as usize] {
                NodeOfWaits::Launch(at) => launches.push(at),
                NodeOfWaits::Meeting(..) => {
                    launches.extend(into[*from as usize].iter().filter_map(|from| self.launch(*from)));
                }
                NodeOfWaits::Host(_) => {}
            }
        }
        launches.retain(|at| at.process != process);
        // What is first in its own process is no consequence of anything else there, and a collective says which call is
        // missing.
        let is_transfer = |at: &LaunchAt| self.numbers(*at).next().is_none();
        launches.sort_by_key(|at| (self.before(*at).is_some(), is_transfer(at), at.process, at.launch));
        launches
    }

    /// A process of which nothing is known is a root if something waits for it and for nothing else, unless it may wait
    /// itself: in something that others launched, for somebody who leads to a root. It cannot be there yet if somebody
    /// launched first what it did not come to.
    fn root_not_known(&self, process: usize, into: &[Vec<u32>], roots_reached: &[bool]) -> Option<JobRoot> {
        let host = number(process);
        let only_for_it = |edges: &[u32]| match edges {
            [to] if *to == host => true,
            [to] => {
                let to = *to as usize;
                matches!(self.nodes[to], NodeOfWaits::Meeting(..))
                    && self.edges[to] == [host]
                    && !self.unsure[to]
            }
            _ => false,
        };
        let needed: Vec<LaunchAt> = self
            .awaiting(process, into)
            .into_iter()
            .filter(|at| {
                let index = self.open[at.process].binary_search_by_key(&at.launch, |(launch, _)| *launch);
                index.is_ok_and(|index| {
                    let node = self.open[at.process][index].1 as usize;
                    !self.unsure[node] && only_for_it(&self.edges[node])
                })
            })
            .collect();
        let first = *needed.first()?;
        let came_later = |at: LaunchAt| {
            needed.iter().any(|needed| needed.process == at.process && needed.launch < at.launch)
        };
        let explains = |meeting: &u32| {
            let edges = &self.edges[*meeting as usize];
            matches!(self.nodes[*meeting as usize], NodeOfWaits::Meeting(..))
                && edges.iter().any(|to| *to != host && roots_reached[*to as usize])
                && !into[*meeting as usize].iter().filter_map(|from| self.launch(*from)).any(came_later)
        };
        if into[process].iter().any(explains) {
            return None;
        }
        let awaited_by = self.awaited_by(process, into);
        let kind = RootKind::NotKnown(self.call_for(first, process));
        Some(JobRoot { rank: self.rank(process), kind, awaited_by })
    }

    /// The shortest circle of a component, as steps from process to process, and what is likely in it. One that is certain comes
    /// first.
    fn circle(&self, nodes: &[u32], component: &[u32]) -> Option<(Vec<CircleStep>, BTreeSet<Guess>)> {
        let within = |node: u32| component[node as usize] == component[nodes[0] as usize];
        let shortest = |edges: &[Vec<u32>]| {
            let launches = nodes.iter().filter(|node| self.launch(**node).is_some());
            let circles = launches.take(STARTS).filter_map(|from| shortest_circle(edges, *from, within));
            let told = circles.map(|circle| (self.steps(&circle), self.guesses(&circle)));
            told.filter(|(steps, _)| !steps.is_empty()).min_by_key(|(steps, _)| steps.len())
        };
        if self.guessed.is_empty() {
            return shortest(&self.edges);
        }
        let mut certain = vec![Vec::new(); self.edges.len()];
        for node in nodes {
            let edges = self.edges[*node as usize].iter().copied();
            certain[*node as usize] = edges.filter(|to| !self.guessed.contains_key(&(*node, *to))).collect();
        }
        shortest(&certain).or_else(|| shortest(&self.edges))
    }

    /// What is likely in a circle.
    fn guesses(&self, circle: &[u32]) -> BTreeSet<Guess> {
        let edges = circle.iter().zip(circle.iter().cycle().skip(1));
        edges.filter_map(|(from, to)| self.guessed.get(&(*from, *to)).copied()).collect()
    }

    fn steps(&self, circle: &[u32]) -> Vec<CircleStep> {
        let process = |node: u32| match self.nodes[node as usize] {
            NodeOfWaits::Host(process) => Some(process),
            NodeOfWaits::Launch(at) => Some(at.process),
            NodeOfWaits::Meeting(..) => None,
        };
        let mut steps = Vec::new();
        for (nth, node) in circle.iter().enumerate() {
            let Some(waits_in) = self.launch(*node) else { continue };
            let next =
                (1..=2).map(|more| circle[(nth + more) % circle.len()]).find(|next| process(*next).is_some());
            let Some(next) = next else { continue };
            let Some(awaits) = process(next).filter(|awaits| *awaits != waits_in.process) else { continue };
            let launched = self.launch(next).is_some();
            let call = self.call_for(waits_in, awaits).call;
            steps.push(CircleStep { waits_in, call, awaits, launched });
        }
        let first = (0..steps.len()).min_by_key(|at| self.rank(steps[*at].waits_in.process)).unwrap_or(0);
        steps.rotate_left(first);
        steps
    }

    /// Says what each rank waits in, and whether waits cross groups.
    fn tell_waiting(&self, waits: &mut JobWaits) {
        for (process, open) in self.open.iter().enumerate() {
            let Some((launch, node)) = open.first() else { continue };
            let mut awaits = BTreeSet::new();
            for to in &self.edges[*node as usize] {
                let direct: &[u32] = match self.nodes[*to as usize] {
                    NodeOfWaits::Meeting(..) => &self.edges[*to as usize],
                    NodeOfWaits::Host(_) | NodeOfWaits::Launch(_) => std::slice::from_ref(to),
                };
                awaits.extend(direct.iter().filter_map(|to| match self.nodes[*to as usize] {
                    NodeOfWaits::Host(other) => Some(self.rank(other)),
                    NodeOfWaits::Launch(at) => Some(self.rank(at.process)),
                    NodeOfWaits::Meeting(..) => None,
                }));
            }
            awaits.remove(&self.rank(process));
            waits.waiting.push((LaunchAt { process, launch: *launch }, awaits));
        }
    }
}

/// The peer of a transfer that is launched by itself.
fn peer_of(launch: &DeviceLaunch) -> Option<u32> {
    let [call] = &launch.calls[..] else { return None };
    match call.what {
        What::Send(peer) | What::Recv(peer) => Some(peer),
        What::Collective(_) | What::Unknown => None,
    }
}

/// Returns which nodes lead to one of some.
fn reached(into: &[Vec<u32>], to: &[usize]) -> Vec<bool> {
    let mut reached = vec![false; into.len()];
    let mut open: Vec<usize> = to.to_vec();
    for node in to {
        reached[*node] = true;
    }
    while let Some(node) = open.pop() {
        for from in &into[node] {
            if !std::mem::replace(&mut reached[*from as usize], true) {
                open.push(*from as usize);
            }
        }
    }
    reached
}

/// Returns the launches of a collective, of which one is given, that devices have not begun though another has, and that
/// other's rank. Nothing is returned if it is not known what devices have begun.
#[must_use]
pub fn not_begun(positions: &Positions<'_>, at: LaunchAt) -> Vec<(LaunchAt, u32)> {
    let job = positions.job;
    let group = job.processes[at.process].launches[at.launch as usize].group;
    let calls = &job.processes[at.process].launches[at.launch as usize].calls;
    let Some(nth) = calls.iter().find_map(|call| call.number) else { return Vec::new() };
    let (mut begun, mut late) = (None, Vec::new());
    for member in &positions.groups[group.0 as usize] {
        let MemberPosition::Open(launch) = positions.position(member, nth) else { continue };
        let process = &job.processes[member.process];
        match process.launches[launch as usize].state {
            LaunchState::Begun => begun = begun.or(Some(process.rank)),
            LaunchState::Open if process.timed => late.push(LaunchAt { process: member.process, launch }),
            LaunchState::Open | LaunchState::Done | LaunchState::Unclear => {}
        }
    }
    begun.map_or_else(Vec::new, |begun| late.into_iter().map(|late| (late, begun)).collect())
}
