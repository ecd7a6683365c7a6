//! Calls that have to be alike and are not, and groups whose calls ranks make in different orders.
//!
//! The n-th collective of a group is compared over all members of which it is known. From the first that differs on, the
//! numbers of that group mean nothing any more, and are not used again.
//! Not here: who waits for whom.

use std::collections::{BTreeMap, BTreeSet};

use rankcheck_model::Rule;
use rustc_hash::FxHashMap;

use super::components::{components, shortest_circle};
use super::job::{CallPlace, CalledKind, DeviceLaunch, GroupAt, LaunchedCall, What};
use super::positions::{Positions, TransferLane};

/// Circles of which each is tried as the one to be told.
const STARTS: usize = 64;

/// A collective, or the two ends of a transfer, that ranks called differently.
#[derive(Debug, Clone)]
pub struct CallDifference {
    /// The rule that is broken.
    pub rule: Rule,
    /// The group that it is in.
    pub group: GroupAt,
    /// The number of the collective.
    pub number: Option<u64>,
    /// What was called, most ranks first.
    pub sides: Vec<DifferingSide>,
    /// If one rank goes on as others do behind their next call: that rank seems to have left out this one.
    pub left_out_by: Option<u32>,
}

/// Ranks that called the same.
#[derive(Debug, Clone)]
pub struct DifferingSide {
    /// The ranks that called it.
    pub ranks: Vec<u32>,
    /// What the first of them called.
    pub text: String,
    /// Where the first of them called it.
    pub place: Option<CallPlace>,
}

impl CallDifference {
    /// Returns the ranks on the largest side, if more than half of all are.
    #[must_use]
    pub fn majority(&self) -> Option<&DifferingSide> {
        let all: usize = self.sides.iter().map(|side| side.ranks.len()).sum();
        self.sides.first().filter(|side| side.ranks.len() * 2 > all)
    }
}

/// Collectives of several groups that ranks call in orders that do not fit together.
#[derive(Debug, Clone)]
pub struct Inversion {
    /// For each rank, what it calls before what; the latter is what the next rank calls first.
    pub steps: Vec<InvertedStep>,
}

/// Two calls of one rank.
#[derive(Debug, Clone)]
pub struct InvertedStep {
    /// The rank that makes both.
    pub rank: u32,
    /// The launch that is first.
    pub before: u32,
    /// The launch that is later.
    pub after: u32,
}

/// What was found by comparing calls.
#[derive(Debug, Default)]
pub struct Compared {
    /// Calls that differ: one of each group at most.
    pub differences: Vec<CallDifference>,
    /// For groups with a difference, the number from which on nothing is comparable.
    pub diverged: FxHashMap<GroupAt, u64>,
    /// Orders that do not fit together.
    pub inversions: Vec<Inversion>,
    /// How many collectives were compared between two ranks at least.
    pub collectives: u64,
    /// How many transfers were.
    pub transfers: u64,
    /// The groups in which anything was.
    pub groups: BTreeSet<GroupAt>,
    /// The ranks of which anything was.
    pub ranks: BTreeSet<u32>,
}

/// The calls of a launch that have a number.
fn numbered(launch: &DeviceLaunch, number: u64) -> impl Iterator<Item = &LaunchedCall> {
    launch.calls.iter().filter(move |call| call.number == Some(number))
}

/// A kind that is not known differs from nothing.
fn same_kind(one: &LaunchedCall, other: &LaunchedCall) -> bool {
    match (one.what, other.what) {
        (What::Collective(CalledKind::Named), _) | (_, What::Collective(CalledKind::Named)) => true,
        (What::Collective(one), What::Collective(other)) => one == other,
        (_, _) => true,
    }
}

pub(super) fn same_operands(one: &LaunchedCall, other: &LaunchedCall) -> bool {
    let differ = one.elements.is_some_and(|one| other.elements.is_some_and(|other| one != other));
    let of_types =
        one.dtype.as_ref().is_some_and(|one| other.dtype.as_ref().is_some_and(|other| one != other));
    let of_reductions =
        one.reduction.as_ref().is_some_and(|one| other.reduction.as_ref().is_some_and(|other| one != other));
    let of_roots = one.root.is_some_and(|one| other.root.is_some_and(|other| one != other));
    !differ && !of_types && !of_reductions && !of_roots
}

/// How two launches differ as the collective of one number.
#[derive(Clone, Copy)]
struct LaunchDifference {
    rule: Rule,
    /// The place of the first call that differs, among those of the number.
    call: usize,
}

/// Returns how two launches differ as the collective of one number.
fn differ(one: &DeviceLaunch, other: &DeviceLaunch, number: u64) -> Option<LaunchDifference> {
    let (mut calls, mut others) = (numbered(one, number), numbered(other, number));
    let mut call = 0;
    loop {
        let rule = match (calls.next(), others.next()) {
            (None, None) => return None,
            (Some(_), None) | (None, Some(_)) => Some(Rule::Coll2),
            (Some(one), Some(other)) if !same_kind(one, other) => Some(Rule::Coll2),
            (Some(one), Some(other)) if !same_operands(one, other) => Some(Rule::Coll3),
            (Some(_), Some(_)) => None,
        };
        if let Some(rule) = rule {
            return Some(LaunchDifference { rule, call });
        }
        call += 1;
    }
}

/// Returns what is called by one of the calls of a launch, with elements, type, reduction and root, and which of them it is.
fn described(launch: &DeviceLaunch, number: u64, nth: usize) -> String {
    let one = |call: &LaunchedCall| {
        let operands = match (call.elements, &call.dtype) {
            (Some(elements), Some(dtype)) => format!(" of {elements} {dtype}"),
            (Some(elements), None) => format!(" of {elements} elements"),
            (None, Some(dtype)) => format!(" of {dtype}"),
            (None, None) => String::new(),
        };
        let reduction =
            call.reduction.as_ref().map_or_else(String::new, |reduction| format!(", {reduction}"));
        let root = call.root.map_or_else(String::new, |root| format!(", root rank {root}"));
        format!("{}{operands}{reduction}{root}", call.word)
    };
    let all = numbered(launch, number).count();
    match numbered(launch, number).nth(nth).map(one) {
        Some(text) if all == 1 => text,
        Some(text) => format!("{text} as call {} of {all} in one launch", nth + 1),
        None => format!("a launch of {all} call{}", if all == 1 { "" } else { "s" }),
    }
}

/// Returns the line of one of the calls of a launch, or of the first that has one.
fn place_of(launch: &DeviceLaunch, number: u64, nth: usize) -> Option<CallPlace> {
    let of = numbered(launch, number).nth(nth).and_then(|call| call.place.clone());
    of.or_else(|| numbered(launch, number).find_map(|call| call.place.clone()))
}

impl Compared {
    /// Compares everything that several ranks called.
    #[must_use]
    pub fn of(positions: &Positions<'_>) -> Self {
        let mut compared = Self::default();
        for at in 0..positions.groups.len() {
            compared.group(positions, GroupAt(u32::try_from(at).expect("few groups")));
        }
        compared.lanes(positions);
        compared.orders(positions);
        compared
    }

    fn group(&mut self, positions: &Positions<'_>, group: GroupAt) {
        let job = positions.job;
        let members = &positions.groups[group.0 as usize];
        // How far several ranks came can be compared even where none of their calls is there.
        let known: Vec<u32> = members
            .iter()
            .filter(|member| member.launched.is_some())
            .filter_map(|member| job.processes.get(member.process).map(|process| process.rank))
            .collect();
        if known.len() > 1 {
            self.groups.insert(group);
            self.ranks.extend(known);
        }
        let launch =
            |member: usize, launch: u32| &job.processes[members[member].process].launches[launch as usize];
        let mut calls: Vec<(u64, usize, u32)> = Vec::new();
        for (place, member) in members.iter().enumerate() {
            // Which of the others' calls those of a launch are that has lost some is not known.
            let whole = member.calls.iter().filter(|(_, at)| !launch(place, *at).cut);
            calls.extend(whole.map(|(number, launch)| (*number, place, *launch)));
        }
        calls.sort_unstable();
        for same in calls.chunk_by(|one, other| one.0 == other.0) {
            let &[(number, first, first_launch), ref rest @ ..] = same else { continue };
            if rest.is_empty() {
                continue;
            }
            self.collectives += 1;
            let broken = rest.iter().find_map(|(_, member, at)| {
                differ(launch(first, first_launch), launch(*member, *at), number)
            });
            let Some(LaunchDifference { rule, call }) = broken else { continue };
            let mut sides: Vec<(&DeviceLaunch, Vec<(usize, u32)>)> = Vec::new();
            for (_, member, at) in same {
                let one = launch(*member, *at);
                match sides.iter_mut().find(|(other, _)| differ(one, other, number).is_none()) {
                    Some((_, ranks)) => ranks.push((*member, *at)),
                    None => sides.push((one, vec![(*member, *at)])),
                }
            }
            sides.sort_by_key(|(_, ranks)| std::cmp::Reverse(ranks.len()));
            let rank = |member: usize| job.processes[members[member].process].rank;
            let left_out_by = match &sides[..] {
                [(_, many), (_, one)] if one.len() == 1 && many.len() > 1 => {
                    let shifted = is_shifted(positions, group, (one[0].0, many[0].0), number);
                    shifted.then(|| rank(one[0].0))
                }
                _ => None,
            };
            let sides = sides.into_iter().map(|(launch, ranks)| DifferingSide {
                ranks: ranks.iter().map(|(member, _)| rank(*member)).collect(),
                text: described(launch, number, call),
                place: place_of(launch, number, call),
            });
            let sides = sides.collect();
            self.differences.push(CallDifference { rule, group, number: Some(number), sides, left_out_by });
            self.diverged.insert(group, number);
            return;
        }
    }

    /// Compares the ends of transfers: the n-th with the n-th where a lane is known from its beginning; otherwise those behind
    /// the last collective that both have finished, if each end has one size.
    fn lanes(&mut self, positions: &Positions<'_>) {
        let job = positions.job;
        let mut told: BTreeSet<GroupAt> = BTreeSet::new();
        for (lane, ends) in &positions.lanes {
            let process = |rank: u32| job.process_at(rank).map(|at| &job.processes[at]);
            let (Some(from), Some(to)) = (process(lane.from), process(lane.to)) else { continue };
            if ends.sends.is_empty() || ends.recvs.is_empty() {
                continue;
            }
            self.groups.insert(lane.group);
            self.ranks.extend([lane.from, lane.to]);
            let send = |end: &(u32, u32)| &from.launches[end.0 as usize].calls[end.1 as usize];
            let recv = |end: &(u32, u32)| &to.launches[end.0 as usize].calls[end.1 as usize];
            let whole = [from, to].iter().all(|end| end.has_all_transfers(lane.group));
            let (first_send, first_recv) = (send(&ends.sends[0]), recv(&ends.recvs[0]));
            let has_one_size = || {
                ends.sends.iter().all(|end| same_operands(first_send, send(end)))
                    && ends.recvs.iter().all(|end| same_operands(first_recv, recv(end)))
            };
            let first = match whole {
                true => Some((0, 0)),
                false if !has_one_size() => None,
                // Whichever of them meet, they fit.
                false if same_operands(first_send, first_recv) => Some((0, 0)),
                false => positions.first_pair(*lane),
            };
            let pairs = first
                .into_iter()
                .flat_map(|(sends, recvs)| ends.sends.iter().skip(sends).zip(ends.recvs.iter().skip(recvs)));
            self.transfers += pairs.clone().count() as u64;
            let differing = pairs.clone().find(|(one, other)| !same_operands(send(one), recv(other)));
            if let Some((one, other)) = differing
                && told.insert(lane.group)
            {
                self.differences.push(transfer_difference(*lane, send(one), recv(other)));
            }
        }
    }

    /// Looks for collectives that no single order of all ranks' calls can have.
    fn orders(&mut self, positions: &Positions<'_>) {
        let job = positions.job;
        let mut nodes: FxHashMap<(GroupAt, u64), u32> = FxHashMap::default();
        let mut edges: Vec<Vec<u32>> = Vec::new();
        let mut labels: Vec<Vec<(u32, u32, u32)>> = Vec::new();
        for process in &job.processes {
            let mut last: Option<(u32, u32)> = None;
            for (at, launch) in process.launches.iter().enumerate() {
                let Some(number) = launch.calls.iter().find_map(|call| call.number) else { continue };
                if self.diverged.get(&launch.group).is_some_and(|from| number >= *from) {
                    continue;
                }
                let at = u32::try_from(at).expect("fewer than 2^32 launches");
                let node = *nodes.entry((launch.group, number)).or_insert_with(|| {
                    edges.push(Vec::new());
                    labels.push(Vec::new());
                    u32::try_from(edges.len() - 1).expect("fewer than 2^32 collectives")
                });
                if let Some((before, before_at)) = last
                    && before != node
                    && !edges[before as usize].contains(&node)
                {
                    edges[before as usize].push(node);
                    labels[before as usize].push((process.rank, before_at, at));
                }
                last = Some((node, at));
            }
        }
        let (component, found) = components(&edges);
        let mut of: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        if found < edges.len() {
            for (node, component) in component.iter().enumerate() {
                of.entry(*component).or_default().push(u32::try_from(node).expect("as before"));
            }
        }
        for nodes in of.into_values().filter(|nodes| nodes.len() > 1) {
            let within = |node: u32| component[node as usize] == component[nodes[0] as usize];
            let tried = nodes.iter().take(STARTS).filter_map(|from| {
                let circle = shortest_circle(&edges, *from, within)?;
                let steps = steps_of(&circle, &edges, &labels);
                (steps.len() > 1).then_some(steps)
            });
            if let Some(steps) = tried.min_by_key(Vec::len) {
                self.inversions.push(Inversion { steps });
            }
        }
    }
}

/// Puts edges of one rank that follow each other together.
fn steps_of(circle: &[u32], edges: &[Vec<u32>], labels: &[Vec<(u32, u32, u32)>]) -> Vec<InvertedStep> {
    let mut steps: Vec<InvertedStep> = Vec::new();
    for (nth, node) in circle.iter().enumerate() {
        let next = circle[(nth + 1) % circle.len()];
        let edge = edges[*node as usize].iter().position(|to| *to == next);
        let Some(&(rank, before, after)) = edge.and_then(|edge| labels[*node as usize].get(edge)) else {
            continue;
        };
        match steps.last_mut().filter(|last| last.rank == rank) {
            Some(last) => last.after = after,
            None => steps.push(InvertedStep { rank, before, after }),
        }
    }
    if steps.len() > 1 && steps[0].rank == steps[steps.len() - 1].rank {
        let last = steps.pop().expect("there are two");
        steps[0].before = last.before;
    }
    let first = (0..steps.len()).min_by_key(|at| steps[*at].rank).unwrap_or(0);
    steps.rotate_left(first);
    steps
}

/// Returns whether a member goes on as another does one call later, for two calls at least.
fn is_shifted(positions: &Positions<'_>, group: GroupAt, (one, other): (usize, usize), number: u64) -> bool {
    let job = positions.job;
    let members = &positions.groups[group.0 as usize];
    let call = |member: usize, number: u64| {
        let member = &members[member];
        let at = member.calls.binary_search_by_key(&number, |(number, _)| *number).ok()?;
        Some(&job.processes[member.process].launches[member.calls[at].1 as usize])
    };
    let alike = |number: u64| {
        let (Some(one), Some(other)) = (call(one, number), call(other, number + 1)) else { return None };
        let (mut one, mut other) = (numbered(one, number), numbered(other, number + 1));
        let (Some(one), Some(other)) = (one.next(), other.next()) else { return Some(false) };
        Some(same_kind(one, other) && same_operands(one, other))
    };
    alike(number) == Some(true) && (number + 1..number + 8).map_while(alike).all(|alike| alike)
}

fn transfer_difference(lane: TransferLane, send: &LaunchedCall, recv: &LaunchedCall) -> CallDifference {
    let side = |rank: u32, call: &LaunchedCall, word: &str| {
        let elements = call.elements.map_or_else(String::new, |elements| format!(" of {elements}"));
        let dtype = call.dtype.as_ref().map_or_else(String::new, |dtype| format!(" {dtype}"));
        DifferingSide {
            ranks: vec![rank],
            text: format!("{word}{elements}{dtype}"),
            place: call.place.clone(),
        }
    };
    let sides = vec![side(lane.from, send, "send"), side(lane.to, recv, "recv")];
    CallDifference { rule: Rule::P2p4, group: lane.group, number: None, sides, left_out_by: None }
}
