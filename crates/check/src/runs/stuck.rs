//! Who waits for whom where a recorded run ends, and whether it is proven that the run stood still.
//!
//! How long nothing happened proves nothing: whoever waits may wait for somebody slow. A wait is in vain if it is for a
//! rank that is gone, for one that waits in vain itself, or in a cycle; and a device stands if a peer's has finished the
//! same collective. Whoever may still come is taken to come.
//! Not here: which rules are broken ([`super::judge`]), and how it is told ([`super::report`]).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rankcheck_model::machine::{Awaited, Standing};
use rankcheck_model::{LocId, Op, Operand, Rank, Root, Source as _, Statement, StreamOp, Thread, Token};
use rustc_hash::{FxHashMap, FxHashSet};

use super::hosts::HostStand;
use super::judge::Recording;
use super::lower::{OpenCallAtEnd, OpenWait, RankRun, RecordingEnd};
use super::rounds::Rounds;
use super::world::RunCommId;

/// How much later than one process others of its host have to be seen to run for it to have died before them: those that
/// a launcher stops do not end at one time.
const DEATH_NS: u64 = 10_000_000_000;
/// Roots of which it is told where they left a loop, and ranks that each is compared with.
const ROUNDS_OF: usize = 8;
/// How long a device may take to notice that a collective is over that a peer's device has finished.
const FINISH_NS: u64 = 10_000_000_000;

/// What is known of a rank's host where its recording ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostEnd {
    /// It exited, with this code.
    Exited(i64),
    /// An exception ended its program.
    Raised,
    /// The process was gone while others of its host went on.
    Died,
    /// It may go on: it was not inside a call that waits in vain, as far as is known.
    GoesOn,
    /// It was not recorded.
    NotRecorded,
    /// It waits for other ranks.
    Waits,
}

impl HostEnd {
    /// Whether it will never make another call.
    #[must_use]
    pub fn is_gone(self) -> bool {
        matches!(self, Self::Exited(_) | Self::Raised | Self::Died)
    }
}

/// A rank that others wait for and that waits for nobody.
#[derive(Debug, Clone)]
pub struct WaitRoot {
    /// The rank that others wait for.
    pub rank: Rank,
    /// What is known of it.
    pub end: HostEnd,
    /// Who waits for it, or for somebody who does.
    pub awaited_by: Vec<Rank>,
    /// Where it left a loop that the others go on with.
    pub rounds: Option<Rounds>,
}

/// One step of a cycle of waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hop {
    /// The rank that waits.
    pub rank: Rank,
    /// In what, as in "in the set-up of tp", with the location.
    pub text: String,
    /// The line at which it waits.
    pub place: String,
    /// The rank that it waits for.
    pub awaits: Rank,
    /// Where that one left a loop that this one goes on with.
    pub rounds: Option<Rounds>,
}

/// A wait for other ranks, of a host or of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RankWait {
    /// In what it waits, with its location where the call of the host has another.
    pub text: String,
    /// The ranks that it waits for.
    pub awaits: BTreeSet<Rank>,
    /// How many process groups those made, where it makes another.
    pub made: Option<u32>,
}

/// Where a rank is whose recording ends without its exit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RankStand {
    /// The rank that did not exit.
    pub rank: Rank,
    /// In which calls its host is.
    pub host: HostStand,
    /// For whom the host waits in them.
    pub waits: Option<RankWait>,
    /// For whom its device waits.
    pub device: Option<RankWait>,
}

/// Who waits for whom where a run ends.
#[derive(Debug, Clone, Default)]
pub struct Standstill {
    /// Ranks that wait in vain, which is proven.
    pub in_vain: BTreeSet<Rank>,
    /// Whom everybody waits for; those that are gone first.
    pub roots: Vec<WaitRoot>,
    /// Waits that are for one another.
    pub cycles: Vec<Vec<Hop>>,
    /// Where each rank is that did not exit.
    pub stands: Vec<RankStand>,
}

/// A node of the graph of waits: what a thread or stream of the machine stands at, or a host of which the machine does
/// not know what it does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WaitingNode {
    Standing(usize),
    Host(Rank),
}

/// Whether a node may go on.
#[derive(Debug, Clone, PartialEq, Eq)]
enum MayGoOn {
    Possible,
    Impossible,
    /// If of each of these nodes one may.
    If(Vec<Vec<usize>>),
}

struct WaitGraph<'a> {
    recording: &'a Recording,
    standing: &'a [Standing],
    progress: Vec<MayGoOn>,
    ends: Vec<HostEnd>,
}

impl Standstill {
    /// Returns who waits for whom in what is left of a run.
    #[must_use]
    pub fn of(recording: &Recording, standing: &[Standing]) -> Self {
        let graph = WaitGraph::new(recording, standing);
        let live = graph.live();
        let waits_in_vain = |at: &usize| {
            !live[*at] && matches!(graph.progress[*at], MayGoOn::If(_)) && graph.counts(graph.rank(*at))
        };
        let in_vain: BTreeSet<usize> = (0..live.len()).filter(waits_in_vain).collect();
        let devices = graph.devices();
        let mut stuck = Self {
            in_vain: in_vain.iter().map(|at| graph.rank(*at)).collect(),
            roots: graph.roots(&in_vain),
            cycles: graph.cycles(&in_vain),
            stands: graph.stands(&devices),
        };
        stuck.in_vain.extend(devices.keys());
        stuck
    }

    /// Whether it is proven that the run stood still.
    #[must_use]
    pub fn is_proven(&self) -> bool {
        !self.in_vain.is_empty()
    }
}

/// When something happened to a rank, in nanoseconds since 1970.
pub(super) fn at(recording: &Recording, rank: Rank, time: u64) -> u64 {
    recording.began[rank.at()].saturating_add(time)
}

/// Until when a rank was seen: who was killed in a call did not wait in it while others went on. If nobody looked
/// whether it lived, the others' recordings have to do.
pub(super) fn seen_until(recording: &Recording, rank: Rank) -> u64 {
    let program = &recording.program.ranks[rank.at()];
    let last = || {
        let members = recording.world.members.iter();
        let last = |rank: Rank| at(recording, rank, recording.program.ranks[rank.at()].times.1);
        members.map(|member| last(member.rank)).max().unwrap_or(0)
    };
    match (&program.ending, program.alive) {
        (RecordingEnd::Exit(_), _) => at(recording, rank, program.times.1),
        (RecordingEnd::Cut { .. }, _) if program.truncated => at(recording, rank, program.times.1),
        (RecordingEnd::Cut { .. }, Some(alive)) => at(recording, rank, alive.max(program.times.1)),
        (RecordingEnd::Cut { .. }, None) => last(),
    }
}

impl<'a> WaitGraph<'a> {
    fn new(recording: &'a Recording, standing: &'a [Standing]) -> Self {
        let ranks = recording.world.ranks;
        let mut graph = Self { recording, standing, progress: Vec::new(), ends: Vec::new() };
        graph.ends = (0..ranks).map(|rank| graph.end(Rank(rank))).collect();
        let by_op: FxHashMap<_, usize> = standing.iter().enumerate().map(|(at, one)| (one.op, at)).collect();
        let of_standing = |one: &Standing| {
            if !graph.counts(one.op.rank) || one.awaits.is_empty() || graph.has_returned(one) {
                return MayGoOn::Possible;
            }
            let mut groups: Vec<Vec<usize>> = Vec::new();
            let mut others: BTreeMap<Rank, Vec<usize>> = BTreeMap::new();
            for awaited in &one.awaits {
                match awaited {
                    Awaited::Blocked(op) => match by_op.get(op) {
                        Some(at) if op.rank == one.op.rank => groups.push(vec![*at]),
                        Some(at) => others.entry(op.rank).or_default().push(*at),
                        None => return MayGoOn::Possible,
                    },
                    Awaited::Ended(rank) | Awaited::Unknown(rank) => {
                        others.entry(*rank).or_default().push(standing.len() + rank.at());
                    }
                }
            }
            groups.extend(others.into_values());
            MayGoOn::If(groups)
        };
        graph.progress = standing.iter().map(of_standing).collect();
        let hosts: Vec<MayGoOn> = (0..ranks).map(|rank| graph.host(Rank(rank))).collect();
        graph.progress.extend(hosts);
        graph
    }

    fn program(&self, rank: Rank) -> &'a RankRun {
        &self.recording.program.ranks[rank.at()]
    }

    fn recorded(&self, rank: Rank) -> bool {
        self.recording.world.member(rank).is_some()
    }

    /// Whether what a rank waits for says something: who ended in order did not wait in vain, and who is not known to the
    /// end of its recording may not wait any more.
    fn counts(&self, rank: Rank) -> bool {
        let program = self.program(rank);
        !program.truncated && matches!(program.ending, RecordingEnd::Cut { .. })
    }

    /// Whether a host stands, as the machine has it, in a call that returned: then too little is known of what it waited for.
    /// A call of a group returns where the group ends.
    fn has_returned(&self, one: &Standing) -> bool {
        let program = self.program(one.op.rank);
        let ending = program.end_of_group(one.op.loc).unwrap_or(one.op.loc);
        let number = program.origin_of(ending).map(|origin| origin.number);
        one.stream.is_none() && !program.open_calls.iter().any(|open| Some(open.origin.number) == number)
    }

    fn end(&self, rank: Rank) -> HostEnd {
        let program = self.program(rank);
        if !self.recorded(rank) {
            return HostEnd::NotRecorded;
        }
        if program.truncated || program.until.is_some() {
            return HostEnd::GoesOn;
        }
        if let RecordingEnd::Exit(code) = program.ending {
            return HostEnd::Exited(code);
        }
        if program.exception.is_some() {
            return HostEnd::Raised;
        }
        if self.died(rank) {
            return HostEnd::Died;
        }
        if self.open_wait(rank).is_some() { HostEnd::Waits } else { HostEnd::GoesOn }
    }

    /// The call of another rank of the process in which the host thread is that made the last call of this one: what drives
    /// several devices makes no other call as long as it is in that.
    fn made_by_one_that_stands(&self, rank: Rank) -> Option<(Rank, &'a OpenCallAtEnd)> {
        let program = self.program(rank);
        let here = self.recording.world.member(rank).filter(|here| here.share.is_some())?;
        let (thread, last) = program.last_by.filter(|_| program.open_calls.is_empty())?;
        let later = |open: &&OpenCallAtEnd| open.thread == thread && open.origin.number > last;
        let mut beside = self.recording.world.members.iter().filter(|other| other.path == here.path);
        beside.find_map(|other| Some((other.rank, self.program(other.rank).open_calls.iter().find(later)?)))
    }

    /// Whether a process was gone while others of its host were still seen to run. Where somebody interrupted the program,
    /// those whose hosts stand in the vendor's calls are the last to go, and that says nothing.
    fn died(&self, rank: Rank) -> bool {
        if self.recording.program.ranks.iter().any(|program| program.interrupted) {
            return false;
        }
        let (Some(alive), Some(member)) = (self.program(rank).alive, self.recording.world.member(rank))
        else {
            return false;
        };
        let gone = at(self.recording, rank, alive.max(self.program(rank).times.1));
        let later = |other: Rank| {
            let alive = self.program(other).alive;
            alive.is_some_and(|alive| at(self.recording, other, alive) >= gone.saturating_add(DEATH_NS))
        };
        let hosts = &self.recording.hosts;
        let beside = self.recording.world.members.iter().filter(|other| other.rank != member.rank);
        beside.filter(|other| hosts[other.rank.at()] == hosts[rank.at()]).any(|other| later(other.rank))
    }

    /// The call in which a host waits for others as no operation says, or behind which, and for whom; any of those will do for a
    /// key.
    fn open_wait(&self, rank: Rank) -> Option<(&'a OpenCallAtEnd, Vec<Rank>)> {
        if let Some((other, open)) = self.made_by_one_that_stands(rank) {
            return Some((open, vec![other]));
        }
        self.program(rank).open_calls.iter().find_map(|open| {
            let whom = match &open.waits {
                OpenWait::Other => Vec::new(),
                OpenWait::Key(key) => {
                    // What several ranks wait for may come from a process that is no rank, or from C++.
                    let knows = |other: Rank| {
                        let program = self.program(other);
                        let waits = |open: &OpenCallAtEnd| open.waits == OpenWait::Key(Arc::clone(key));
                        program.keys.contains(key) || other != rank && program.open_calls.iter().any(waits)
                    };
                    let mut members = self.recording.world.members.iter();
                    match members.any(|member| knows(member.rank)) {
                        true => Vec::new(),
                        false => (0..self.recording.world.ranks).map(Rank).filter(|o| *o != rank).collect(),
                    }
                }
                OpenWait::Destroys(comm) => {
                    let members = self.recording.world.comm(*comm).members.iter().flatten();
                    let hosts = &self.recording.hosts;
                    let here = members.filter(|other| hosts[other.at()] == hosts[rank.at()]);
                    here.filter(|other| !self.program(**other).destroyed.contains(comm)).copied().collect()
                }
                OpenWait::MakesGroup { nth, .. } => {
                    let ranks = (0..self.recording.world.ranks).map(Rank).filter(|other| *other != rank);
                    ranks.filter(|other| self.program(*other).groups_made < *nth).collect()
                }
            };
            (!whom.is_empty()).then_some((open, whom))
        })
    }

    /// The nodes of which one has to go on for a rank's host to make another call.
    fn nodes_of_host(&self, rank: Rank) -> Vec<usize> {
        let host = self.standing.len() + rank.at();
        if self.ends[rank.at()].is_gone() {
            return vec![host];
        }
        let of = |one: &Standing| one.op.rank == rank && one.stream.is_none();
        let mut nodes: Vec<usize> =
            self.standing.iter().enumerate().filter(|(_, one)| of(one)).map(|(at, _)| at).collect();
        if !nodes.iter().any(|at| self.standing[*at].op.thread == Thread(0)) {
            nodes.push(host);
        }
        nodes
    }

    fn host(&self, rank: Rank) -> MayGoOn {
        match self.ends[rank.at()] {
            HostEnd::Exited(_) | HostEnd::Raised | HostEnd::Died => MayGoOn::Impossible,
            HostEnd::GoesOn | HostEnd::NotRecorded => MayGoOn::Possible,
            HostEnd::Waits => {
                let Some((open, whom)) = self.open_wait(rank) else { return MayGoOn::Possible };
                let each = whom.into_iter().map(|other| self.nodes_of_host(other));
                match open.waits {
                    OpenWait::Key(_) => MayGoOn::If(vec![each.flatten().collect()]),
                    OpenWait::Other | OpenWait::Destroys(_) | OpenWait::MakesGroup { .. } => {
                        MayGoOn::If(each.collect())
                    }
                }
            }
        }
    }

    fn node(&self, at: usize) -> WaitingNode {
        match at.checked_sub(self.standing.len()) {
            None => WaitingNode::Standing(at),
            Some(rank) => {
                WaitingNode::Host(Rank(u32::try_from(rank).expect("ranks are numbered in 32 bits")))
            }
        }
    }

    fn rank(&self, at: usize) -> Rank {
        match self.node(at) {
            WaitingNode::Standing(at) => self.standing[at].op.rank,
            WaitingNode::Host(rank) => rank,
        }
    }

    fn targets(&self, at: usize) -> impl Iterator<Item = usize> {
        let groups: &[Vec<usize>] = match &self.progress[at] {
            MayGoOn::If(groups) => groups,
            MayGoOn::Possible | MayGoOn::Impossible => &[],
        };
        groups.iter().flatten().copied()
    }

    /// Which nodes may go on.
    fn live(&self) -> Vec<bool> {
        let mut live: Vec<bool> = self.progress.iter().map(|one| *one == MayGoOn::Possible).collect();
        loop {
            let mut changed = false;
            for at in 0..live.len() {
                if let (false, MayGoOn::If(groups)) = (live[at], &self.progress[at])
                    && groups.iter().all(|group| group.iter().any(|to| live[*to]))
                {
                    live[at] = true;
                    changed = true;
                }
            }
            if !changed {
                return live;
            }
        }
    }

    /// Ranks that are awaited and wait for nobody. Where some are gone, or waits are in vain without, nobody is one who may
    /// still come.
    fn roots(&self, in_vain: &BTreeSet<usize>) -> Vec<WaitRoot> {
        let mut waiting: Vec<Vec<usize>> = vec![Vec::new(); self.progress.len()];
        for at in 0..self.progress.len() {
            for to in self.targets(at) {
                waiting[to].push(at);
            }
        }
        let mut roots: Vec<WaitRoot> = Vec::new();
        for rank in (0..self.recording.world.ranks).map(Rank) {
            let host = self.standing.len() + rank.at();
            let end = self.ends[rank.at()];
            if end == HostEnd::Waits || waiting[host].is_empty() || (!end.is_gone() && !in_vain.is_empty()) {
                continue;
            }
            let mut reached: FxHashSet<usize> = FxHashSet::default();
            let mut open = waiting[host].clone();
            while let Some(at) = open.pop() {
                if reached.insert(at) {
                    open.extend(&waiting[at]);
                }
            }
            let awaited_by: BTreeSet<Rank> =
                reached.iter().map(|at| self.rank(*at)).filter(|other| *other != rank).collect();
            if awaited_by.is_empty() {
                continue;
            }
            roots.push(WaitRoot { rank, end, awaited_by: awaited_by.into_iter().collect(), rounds: None });
        }
        // An exception is the cause of what others that are gone did not do.
        let key = |root: &WaitRoot| {
            let raised = self.program(root.rank).exception.is_some();
            (!raised, !root.end.is_gone(), std::cmp::Reverse(root.awaited_by.len()), root.rank)
        };
        roots.sort_by_key(key);
        // Whoever waits for one rank waits in the same round, nearly always; and more roots than these are not told.
        for root in roots.iter_mut().take(ROUNDS_OF) {
            let host = self.standing.len() + root.rank.at();
            root.rounds = waiting[host].iter().take(ROUNDS_OF).find_map(|at| self.rounds(*at, root.rank));
        }
        roots
    }

    /// In which round of a loop whoever is awaited parted from whoever waits.
    fn rounds(&self, at: usize, behind: Rank) -> Option<Rounds> {
        let WaitingNode::Standing(at) = self.node(at) else { return None };
        let op = self.standing[at].op;
        Rounds::of(self.recording, (op.rank, op.loc), behind)
    }

    /// Cycles of waits that are in vain, each rank of one once.
    fn cycles(&self, in_vain: &BTreeSet<usize>) -> Vec<Vec<Hop>> {
        let mut cycles = Vec::new();
        let mut seen: FxHashSet<usize> = FxHashSet::default();
        for &from in in_vain {
            let mut path: Vec<usize> = Vec::new();
            let mut at = from;
            let cycle = loop {
                if let Some(begin) = path.iter().position(|other| *other == at) {
                    break Some(path.split_off(begin));
                }
                if !seen.insert(at) {
                    break None;
                }
                path.push(at);
                let mut next = self.targets(at).filter(|to| in_vain.contains(to));
                match next.next() {
                    Some(to) => at = to,
                    None => break None,
                }
            };
            cycles.extend(cycle.map(|cycle| self.hops(&cycle)).filter(|hops| !hops.is_empty()));
        }
        cycles
    }

    /// From rank to rank around a cycle.
    fn hops(&self, cycle: &[usize]) -> Vec<Hop> {
        let mut hops = Vec::new();
        for (nth, at) in cycle.iter().enumerate() {
            let next = cycle[(nth + 1) % cycle.len()];
            let (rank, awaits) = (self.rank(*at), self.rank(next));
            if rank != awaits {
                let (text, place) = self.waits_in(*at);
                hops.push(Hop { rank, text, place, awaits, rounds: self.rounds(*at, awaits) });
            }
        }
        let first = (0..hops.len()).min_by_key(|at| hops[*at].rank).unwrap_or(0);
        hops.rotate_left(first);
        hops
    }

    /// In what a node waits, and where.
    fn waits_in(&self, at: usize) -> (String, String) {
        let program = &self.recording.program;
        match self.node(at) {
            WaitingNode::Standing(at) => {
                let one = &self.standing[at];
                (one.text.clone(), program.loc(one.op.loc).to_string())
            }
            WaitingNode::Host(rank) => match (self.made_by_one_that_stands(rank), self.open_wait(rank)) {
                (None, Some((open, _))) => self.open_text(rank, open),
                (Some((other, open)), _) => {
                    let name = program.names.text(open.origin.name);
                    let place = self.program(other).loc(&open.origin, &program.names).to_string();
                    (format!("behind {name} on the same host thread"), place)
                }
                (None, None) => (String::new(), String::new()),
            },
        }
    }

    fn open_text(&self, rank: Rank, open: &OpenCallAtEnd) -> (String, String) {
        let names = &self.recording.program.names;
        let name = names.text(open.origin.name);
        let called = name.rsplit('.').next().unwrap_or(&name);
        let text = match &open.waits {
            OpenWait::Key(key) => format!("in {called} of key \"{key}\""),
            OpenWait::Destroys(comm) => {
                format!("in the destruction of {}", self.recording.world.comm(*comm).name)
            }
            OpenWait::MakesGroup { nth, members, .. } => {
                let members =
                    members.as_ref().map_or_else(String::new, |members| format!(" of ranks {members}"));
                format!("in {called}{members}, process group {nth} that it makes,")
            }
            OpenWait::Other => format!("in {called}"),
        };
        (text, self.program(rank).loc(&open.origin, names).to_string())
    }

    /// Where each rank is that did not exit: what its host is in was recorded; what its device waits for the model says.
    fn stands(&self, devices: &BTreeMap<Rank, RankWait>) -> Vec<RankStand> {
        let members = self.recording.world.members.iter().map(|member| member.rank);
        let stopped = members.filter(|rank| matches!(self.program(*rank).ending, RecordingEnd::Cut { .. }));
        let stand = |rank: Rank| RankStand {
            rank,
            host: HostStand::of(self.recording, rank, self.ends[rank.at()]),
            waits: self.host_waits(rank),
            device: devices.get(&rank).cloned().or_else(|| self.device_waits(rank)),
        };
        stopped.map(stand).collect()
    }

    /// For which other ranks a host waits in the call that it is in.
    fn host_waits(&self, rank: Rank) -> Option<RankWait> {
        let mine = |one: &&Standing| one.op.rank == rank && one.stream.is_none() && !self.has_returned(one);
        let at = match self.ends[rank.at()] {
            HostEnd::Waits => self.standing.len() + rank.at(),
            HostEnd::GoesOn => {
                let one = self.standing.iter().find(mine)?;
                self.standing.iter().position(|other| other.op == one.op)?
            }
            HostEnd::Exited(_) | HostEnd::Raised | HostEnd::Died | HostEnd::NotRecorded => return None,
        };
        let awaits = self.others(at, rank);
        if awaits.is_empty() {
            return None;
        }
        let made = match self.open_wait(rank) {
            Some((open, _)) if matches!(open.waits, OpenWait::MakesGroup { .. }) => {
                let counts: BTreeSet<u32> =
                    awaits.iter().map(|other| self.program(*other).groups_made).collect();
                counts.first().copied().filter(|_| counts.len() == 1)
            }
            _ => None,
        };
        Some(RankWait { text: self.waits_in(at).0, awaits, made })
    }

    /// For which other ranks a device waits. If the host got by what waits for it in the model, it is not known where the
    /// device stands.
    fn device_waits(&self, rank: Rank) -> Option<RankWait> {
        let mine = |one: &Standing| one.op.rank == rank;
        if self.standing.iter().any(|one| mine(one) && one.stream.is_none() && self.has_returned(one)) {
            return None;
        }
        (0..self.standing.len()).find_map(|at| {
            let one = &self.standing[at];
            if !mine(one) || one.stream.is_none() {
                return None;
            }
            let (awaits, (text, place)) = (self.others(at, rank), self.waits_in(at));
            let text = text.strip_prefix("on the GPU ").unwrap_or(&text);
            (!awaits.is_empty()).then(|| RankWait { text: format!("{text} ({place})"), awaits, made: None })
        })
    }

    fn others(&self, at: usize, rank: Rank) -> BTreeSet<Rank> {
        self.awaited(at).into_iter().filter(|other| *other != rank).collect()
    }

    /// The ranks that a node waits for.
    fn awaited(&self, at: usize) -> BTreeSet<Rank> {
        match self.node(at) {
            WaitingNode::Standing(at) => self.standing[at]
                .awaits
                .iter()
                .map(|awaited| match awaited {
                    Awaited::Blocked(op) => op.rank,
                    Awaited::Ended(rank) | Awaited::Unknown(rank) => *rank,
                })
                .collect(),
            WaitingNode::Host(rank) => {
                self.open_wait(rank).map_or_else(BTreeSet::new, |(_, whom)| whom.into_iter().collect())
            }
        }
    }

    /// Devices on which a collective is not over that a peer's device has finished.
    fn devices(&self) -> BTreeMap<Rank, RankWait> {
        let members = self.recording.world.members.iter().map(|member| member.rank);
        members.filter_map(|rank| Some((rank, self.device_stands(rank)?))).collect()
    }

    fn device_stands(&self, rank: Rank) -> Option<RankWait> {
        let program = self.program(rank);
        if !self.counts(rank) || self.ends[rank.at()] != HostEnd::GoesOn || program.until.is_some() {
            return None;
        }
        let [open] = program.open_calls.as_slice() else { return None };
        let stood = seen_until(self.recording, rank).saturating_sub(at(self.recording, rank, open.entered));
        let ops = &program.blocks[0].ops;
        let is_open = |op: &&Statement| {
            program.origin_of(op.loc).is_some_and(|origin| origin.number == open.origin.number)
                && matches!(&*op.op, Op::Stream(StreamOp::Synchronize { .. }))
        };
        let wait = ops.iter().rposition(|op| is_open(&op))?;
        let stands = |one: &Standing| one.op.rank == rank;
        if stood < FINISH_NS || self.standing.iter().any(stands) {
            return None;
        }
        let Op::Stream(StreamOp::Synchronize { what }) = &*ops[wait].op else { return None };
        // What it waits for is the last collective, and nothing behind it of which it is not known when it is over.
        let last = ops[..wait]
            .iter()
            .rposition(|op| op.op.stream().is_some() && !matches!(&*op.op, Op::Event(_)))?;
        let stream = ops[last].op.stream()?;
        let meant = waits_for_stream(what, stream);
        let Op::Collective(call) = &*ops[last].op else { return None };
        let launched = program.origin_of(ops[last].loc)?.number;
        let unknown = |number: &u32| *number > launched;
        if !meant || call.kind.root() != Root::None || program.unknown_work.values().any(unknown) {
            return None;
        }
        let comm = program.collects_on(&ops[last])?;
        let nth = of_comm(program, comm).position(|at| at == last)?;
        let finished = |other: &Option<Rank>| {
            other.is_some_and(|other| other != rank && self.finished(other, comm, nth))
        };
        let peer =
            self.recording.world.comm(comm).members.iter().find(|other| finished(other)).copied()??;
        let loc = self.recording.program.loc(ops[last].loc);
        let text = format!(
            "in a collective of {} ({loc}) that has ended on rank {}",
            self.recording.world.comm(comm).name,
            peer.0
        );
        Some(RankWait { text, awaits: BTreeSet::new(), made: None })
    }

    /// Whether a rank waited for its n-th collective on a communicator, and the wait returned.
    fn finished(&self, rank: Rank, comm: RunCommId, nth: usize) -> bool {
        let program = self.program(rank);
        let ops = &program.blocks[0].ops;
        let Some(at) = of_comm(program, comm).nth(nth) else { return false };
        let Some(stream) = ops[at].op.stream() else { return false };
        let returned = |loc: LocId| {
            let number = program.origin_of(loc).map(|origin| origin.number);
            !program.open_calls.iter().any(|open| Some(open.origin.number) == number)
        };
        ops[at..].iter().any(|op| {
            matches!(&*op.op, Op::Stream(StreamOp::Synchronize { what }) if waits_for_stream(what, stream))
                && returned(op.loc)
        })
    }
}

/// The positions of a rank's collectives on a communicator, in its first thread.
fn of_comm(program: &RankRun, comm: RunCommId) -> impl Iterator<Item = usize> {
    let ops = program.blocks[0].ops.iter().enumerate();
    ops.filter(move |(_, op)| program.collects_on(op) == Some(comm)).map(|(at, _)| at)
}

/// Whether a wait of the host includes a stream.
fn waits_for_stream(what: &Operand, stream: Token) -> bool {
    matches!(what, Operand::Stream(of) if *of == stream) || matches!(what, Operand::Device)
}
