//! Ranks that do what other ranks do: a job that is copies of a smaller one is judged as the smaller one.
//!
//! Some communicators are *cut*. The others join ranks to groups, and two groups are *copies* if their ranks did the same
//! one by one, meet one another in the same way, and have each cut communicator in common. All copies but the first are taken
//! out, and communicators lose the members that go. `docs/engine.md`, "Folding of recorded runs", has the argument.
//!
//! Only a communicator may be cut of which nothing says how many members it has or which of them somebody is: no messages, no
//! windows, no collective that lies in its own input or output. Not here: what it means that ranks did the same ([`super::alike`]).

use std::collections::{BTreeMap, BTreeSet};
use std::hash::Hash as _;

use rankcheck_model::id::ContentHasher;
use rankcheck_model::{CollectiveKind, Rank};
use rankcheck_recording::{Argument, Shape};
use rustc_hash::FxHashMap;

use crate::joined_sets::JoinedSets;
use crate::runs::call::CallKind;
use crate::runs::sequence::Sequence;
use crate::runs::vendor;
use crate::runs::world::{RankProcess, RunCommId, World};

/// Copies of copies are looked for so often.
const ROUNDS: usize = 8;
/// So many of a process's communicators are tried.
const TRIED: usize = 64;

/// By member of the world: the member of which it is a copy, or itself.
pub(super) type CopyOf = Vec<usize>;

/// Finds which members are copies of others. `alike` says of each what it did.
pub(super) fn copies(world: &World, sequences: &[Sequence], alike: &[Option<u128>]) -> CopyOf {
    let mut search = CopySearch {
        world,
        alike,
        at: world.members.iter().enumerate().map(|(at, member)| (member.rank, at)).collect(),
        cuts: cuts(world, sequences),
        of: (0..alike.len()).collect(),
    };
    for _ in 0..ROUNDS {
        let Some(found) = search.best() else { break };
        for (at, of) in found {
            search.of[at] = of;
        }
    }
    // A copy may be of one that was found to be one later.
    (0..alike.len()).map(|at| search.original(at)).collect()
}

/// What a communicator is used for, as far as it matters where it may be cut.
#[derive(Debug, Default)]
struct CutComm {
    /// Whether something says how many members it has, or which.
    counts: bool,
    /// Members from which or to which something goes.
    roots: BTreeSet<u64>,
}

/// By communicator: what it is used for.
fn cuts(world: &World, sequences: &[Sequence]) -> Vec<CutComm> {
    let mut cuts: Vec<CutComm> = world.comms.iter().map(|_| CutComm::default()).collect();
    for (member, sequence) in world.members.iter().zip(sequences) {
        // Processes have few shapes that name a communicator, and each is looked at once.
        let mut seen = BTreeSet::new();
        for symbol in sequence.dictionary() {
            let Some(call) = symbol.shape().filter(|call| seen.insert(*call)) else { continue };
            let call = sequence.shape(call);
            let Some(address) = call.get("comm").and_then(Argument::number) else { continue };
            for comm in member.comms_at(address) {
                let cut = &mut cuts[comm.0 as usize];
                cut.counts |= is_in_place_for_one(call, world.comm(comm).members.len());
                match use_of(call) {
                    CommUse::Plain => {}
                    CommUse::Root(root) => _ = cut.roots.insert(root),
                    CommUse::Counts => cut.counts = true,
                }
            }
        }
    }
    cuts
}

/// What a call does with its communicator.
enum CommUse {
    Plain,
    Root(u64),
    Counts,
}

#[expect(clippy::wildcard_enum_match_arm, reason = "few calls do not count members")]
fn use_of(call: &Shape) -> CommUse {
    match CallKind::of(&call.name) {
        CallKind::Collective(
            CollectiveKind::AllReduce | CollectiveKind::AllGather | CollectiveKind::ReduceScatter,
        )
        | CallKind::Init
        | CallKind::Split
        | CallKind::Destroy
        | CallKind::RegisterBuffer
        | CallKind::DeregisterBuffer => CommUse::Plain,
        CallKind::Collective(CollectiveKind::Broadcast { .. } | CollectiveKind::Reduce { .. }) => {
            call.get("root").and_then(Argument::number).map_or(CommUse::Counts, CommUse::Root)
        }
        CallKind::Nothing => CommUse::Plain,
        _ => CommUse::Counts,
    }
}

/// Whether the input and the output of a collective share bytes in a way that is in place for one member alone, or may be.
fn is_in_place_for_one(call: &Shape, members: usize) -> bool {
    let CallKind::Collective(kind @ (CollectiveKind::AllGather | CollectiveKind::ReduceScatter)) =
        CallKind::of(&call.name)
    else {
        return false;
    };
    let of = |key: &str| call.get(key).and_then(Argument::number);
    let shares = || {
        let part = of("count")?.saturating_mul(vendor::dtype(of("dtype")?)?.len_bytes());
        Some(kind.shares_bytes(part, members, (of("send")?, of("recv")?)))
    };
    shares().unwrap_or(true)
}

struct CopySearch<'a> {
    world: &'a World,
    alike: &'a [Option<u128>],
    /// By rank: which member it is.
    at: FxHashMap<Rank, usize>,
    /// What each communicator is used for.
    cuts: Vec<CutComm>,
    /// By member: of which it is a copy, as far as was found.
    of: CopyOf,
}

impl CopySearch<'_> {
    fn original(&self, mut at: usize) -> usize {
        while self.of[at] != at {
            at = self.of[at];
        }
        at
    }

    fn is_left(&self, at: usize) -> bool {
        self.of[at] == at
    }

    /// Members of a communicator that are left, with their ranks in it.
    fn members(&self, comm: RunCommId) -> impl Iterator<Item = (usize, usize)> {
        let all = self.world.comm(comm).members.iter().enumerate();
        let known = all.filter_map(|(place, rank)| Some((place, *self.at.get(&(*rank)?)?)));
        known.filter(|(_, at)| self.is_left(*at))
    }

    fn process(&self, at: usize) -> &RankProcess {
        &self.world.members[at]
    }

    /// The copies that one choice of communicators to cut shows, of all choices that are tried the most: communicators that
    /// ranks made as their n-th are of a kind.
    fn best(&self) -> Option<Vec<(usize, usize)>> {
        let left = (0..self.of.len()).filter(|at| self.is_left(*at));
        let all = left.clone().count();
        let spans = |comm: RunCommId| self.members(comm).count() == all;
        let spanning: Vec<bool> = (0..).take(self.cuts.len()).map(|comm| spans(RunCommId(comm))).collect();
        let most = left.clone().map(|at| self.process(at).births().len()).max().unwrap_or(0);
        let mut best: Vec<(usize, usize)> = Vec::new();
        for nth in 0..most.min(TRIED) {
            let mut cut = spanning.clone();
            for at in left.clone() {
                if let Some(comm) = self.process(at).births().get(nth) {
                    cut[comm.0 as usize] = true;
                }
            }
            for (cut, comm) in cut.iter_mut().zip(&self.cuts) {
                *cut &= !comm.counts;
            }
            let found = self.found(&cut);
            if found.len() > best.len() {
                best = found;
            }
        }
        Some(best).filter(|best| !best.is_empty())
    }

    /// Which members are copies of which when these communicators are cut.
    fn found(&self, cut: &[bool]) -> Vec<(usize, usize)> {
        let mut joined = JoinedSets::new(self.of.len());
        for comm in (0..).take(cut.len()).filter(|comm| !cut[*comm as usize]).map(RunCommId) {
            let mut members = self.members(comm).map(|(_, at)| at);
            let Some(first) = members.next() else { continue };
            members.for_each(|other| joined.join(first, other));
        }
        let mut groups: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for at in (0..self.of.len()).filter(|at| self.is_left(*at)) {
            groups.entry(joined.first(at)).or_default().push(at);
        }
        let mut first: FxHashMap<u128, &Vec<usize>> = FxHashMap::default();
        let mut found = Vec::new();
        for group in groups.values() {
            let Some(form) = self.form(group, cut) else { continue };
            let original = first.entry(form).or_insert(group);
            found
                .extend(group.iter().zip(&**original).filter(|(at, of)| at != of).map(|(at, of)| (*at, *of)));
        }
        found
    }

    /// What the members of a group did, and how they meet; the same for copies. None if what one of them did is not known.
    fn form(&self, group: &[usize], cut: &[bool]) -> Option<u128> {
        let mut hasher = ContentHasher::default();
        let place: FxHashMap<usize, usize> = group.iter().enumerate().map(|(nth, at)| (*at, nth)).collect();
        let mut own: FxHashMap<RunCommId, usize> = FxHashMap::default();
        for &at in group {
            let process = self.process(at);
            (self.alike[at]?, process.births().len()).hash(&mut hasher);
            for &comm in process.births() {
                let of = self.world.comm(comm);
                if cut[comm.0 as usize] {
                    let member = |root: &&u64| {
                        let root = usize::try_from(**root).ok().and_then(|root| of.members.get(root));
                        root == Some(&Some(process.rank))
                    };
                    let root = self.cuts[comm.0 as usize].roots.iter().find(member);
                    (0_u8, comm, root).hash(&mut hasher);
                    continue;
                }
                let fresh = own.len();
                let number = *own.entry(comm).or_insert(fresh);
                (1_u8, number).hash(&mut hasher);
                if number == fresh {
                    let cut_parent = of.parent.filter(|parent| cut[parent.0 as usize]);
                    let parent = of.parent.and_then(|parent| own.get(&parent));
                    (of.members.len(), of.parent.is_some(), cut_parent, parent).hash(&mut hasher);
                    for (rank, member) in self.members(comm) {
                        (rank, place.get(&member)).hash(&mut hasher);
                    }
                }
            }
        }
        Some(hasher.fingerprint())
    }
}
