//! Ranks that go on, by the lines of their program, as the others do one call later: they seem to have left one out.
//!
//! Calls that are alike do not differ, whichever of them is missing; only their lines do. It is a hint where somebody is waited
//! for, and breaks no rule.
//! Not here: calls that differ themselves ([`super::compare`]).

use super::compare::Compared;
use super::job::{CallPlace, GroupAt};
use super::positions::{MemberCalls, Positions};

/// How many calls at least have to be shifted, if others follow.
const SHIFTED: usize = 2;

/// A call that a rank seems to have left out.
#[derive(Debug, Clone)]
pub struct LeftOutCall {
    /// The group that it is in.
    pub group: GroupAt,
    /// The number from which on the lines differ.
    pub number: u64,
    /// The rank that seems to have left it out.
    pub rank: u32,
    /// Where that rank made the call of this number.
    pub place: CallPlace,
    /// A rank that seems not to have.
    pub other: u32,
    /// Where that one made it.
    pub other_place: CallPlace,
}

/// Returns the calls that ranks seem to have left out, one of each group at most.
#[must_use]
pub fn left_out(positions: &Positions<'_>, compared: &Compared) -> Vec<LeftOutCall> {
    let groups = (0..positions.groups.len()).filter_map(|at| u32::try_from(at).ok().map(GroupAt));
    groups
        .filter(|group| !compared.diverged.contains_key(group))
        .filter_map(|group| left_out_in(positions, group))
        .collect()
}

fn left_out_in(positions: &Positions<'_>, group: GroupAt) -> Option<LeftOutCall> {
    let members: Vec<(&MemberCalls, Vec<(u64, &CallPlace)>)> = positions.groups[group.0 as usize]
        .iter()
        .map(|member| (member, places(positions, member)))
        .filter(|(_, places)| !places.is_empty())
        .collect();
    let rank = |member: &MemberCalls| positions.job.processes[member.process].rank;
    // All are held against one. If that one differs from all others, it is the one.
    let [first, others @ ..] = &members[..] else { return None };
    let shifted: Vec<_> = others.iter().filter(|other| shift(&other.1, &first.1).is_some()).collect();
    let (one, other) = match &shifted[..] {
        [one] => (*one, first),
        [] if !others.is_empty() && others.iter().all(|other| shift(&first.1, &other.1).is_some()) => {
            (first, &others[0])
        }
        _ => return None,
    };
    // Of two that alternate, either may have left out a call.
    if shift(&other.1, &one.1).is_some() {
        return None;
    }
    let at = shift(&one.1, &other.1)?;
    let (number, place) = one.1[at];
    let there = other.1.binary_search_by_key(&number, |(number, _)| *number).ok()?;
    Some(LeftOutCall {
        group,
        number,
        rank: rank(one.0),
        place: place.clone(),
        other: rank(other.0),
        other_place: other.1[there].1.clone(),
    })
}

/// The lines of a member's calls, by their numbers.
fn places<'a>(positions: &Positions<'a>, member: &MemberCalls) -> Vec<(u64, &'a CallPlace)> {
    let Some(process) = positions.job.processes.get(member.process) else { return Vec::new() };
    let place = |(number, launch): &(u64, u32)| {
        let launch = &process.launches[*launch as usize];
        let mut calls = launch.calls.iter().filter(|_| !launch.cut);
        let call = calls.find(|call| call.number == Some(*number))?;
        call.place.as_ref().map(|place| (*number, place))
    };
    member.calls.iter().filter_map(place).collect()
}

/// Returns from which of its calls on a member is where another is one call later, up to its last. Before that, both are at
/// the same lines.
fn shift(one: &[(u64, &CallPlace)], other: &[(u64, &CallPlace)]) -> Option<usize> {
    let at = |number: u64| {
        let found = other.binary_search_by_key(&number, |(number, _)| *number).ok()?;
        Some(other[found].1)
    };
    let first = one.iter().position(|(number, place)| at(*number).is_some_and(|other| other != *place))?;
    let begin_alike = one[..first].iter().any(|(number, _)| at(*number).is_some());
    let mut shifted = one[first..].iter().map_while(|(number, place)| Some(at(number + 1)? == *place));
    let counted = shifted.clone().count();
    let enough = counted >= SHIFTED || counted == one.len() - first;
    (begin_alike && enough && shifted.all(|alike| alike)).then_some(first)
}
