//! A run as a walk from cut to cut, and which of its steps are taken out.
//!
//! Cuts are made before one call of the first rank that comes again and again: the one with which most can be taken out. All
//! others are followed only as far as that rank has to have met them. Not here: what calls are called.

use std::collections::VecDeque;
use std::iter::Peekable;

use rankcheck_model::Rank;
use rustc_hash::{FxHashMap, FxHashSet};

use super::count::{CountWalk, Resolved, UseKey};
use super::joined;
use super::names::{CallNames, LinkReader, NOTHING};
use crate::joined_sets::JoinedSets;
use crate::runs::sequence::Sequence;
use crate::runs::world::World;

/// What is left is walked along again, with other cuts, so often: loops that come one after the other.
const ROUNDS: usize = 4;
/// What a later call refers to is known by its distance if it lies in one of so many last steps, and else by its position.
const STEPS: usize = 4;
/// Less is not worth the trouble: calls of the first process that can be taken out.
const CALLS: u64 = 256;
/// A way back longer than that is not looked at.
const WAY_BACK: usize = 4096;

/// What was taken out.
#[derive(Debug, Default)]
pub(super) struct WalkResult {
    pub(super) folds: Vec<TakenOut>,
    /// By member: positions from and to, in their order.
    pub(super) gone: Vec<Vec<(u32, u32)>>,
}

/// What was taken out of processes that go together.
#[derive(Debug)]
pub(super) struct TakenOut {
    pub(super) members: Vec<usize>,
    pub(super) iterations: u64,
    pub(super) gone: u64,
}

/// Walks along a run, each set of processes that go together by itself.
pub(super) fn walk(world: &World, sequences: &[Sequence], names: &[CallNames]) -> WalkResult {
    let mut walked = WalkResult { folds: Vec::new(), gone: vec![Vec::new(); sequences.len()] };
    for members in together(world, sequences.len()) {
        let mut taken = TakenOut { members, iterations: 0, gone: 0 };
        for _ in 0..ROUNDS {
            let leader = taken.members[0];
            let left = left_of(&names[leader].of, &walked.gone[leader]);
            let Some(cuts) = cuts(&names[leader].of, &left) else { break };
            let mut round = Round::new(world, sequences, names, &taken.members, &walked.gone);
            round.run(&cuts);
            let (iterations, gone) = round.counts();
            if gone == 0 {
                break;
            }
            taken.iterations += iterations;
            taken.gone += gone;
            for (at, ranges) in round.taken_out() {
                let of = &mut walked.gone[at];
                of.extend(ranges);
                *of = joined(std::mem::take(of));
            }
        }
        if taken.gone > 0 {
            walked.folds.push(taken);
        }
    }
    walked
}

/// Processes that share a communicator go together, and so does who goes together with one of them.
fn together(world: &World, members: usize) -> Vec<Vec<usize>> {
    let at: FxHashMap<Rank, usize> =
        world.members.iter().enumerate().map(|(at, member)| (member.rank, at)).collect();
    let mut joined = JoinedSets::new(members);
    for comm in &world.comms {
        let mut of = comm.members.iter().flatten().filter_map(|rank| at.get(rank).copied());
        let Some(one) = of.next() else { continue };
        of.for_each(|other| joined.join(one, other));
    }
    let mut sets: Vec<Vec<usize>> = vec![Vec::new(); members];
    for at in 0..members {
        sets[joined.first(at)].push(at);
    }
    sets.retain(|set| !set.is_empty());
    sets
}

/// Positions of calls with a name outside what is gone; each gap is a position beyond all.
fn left_of(names: &[u32], gone: &[(u32, u32)]) -> Vec<u32> {
    let mut left = Vec::new();
    let mut gone = gone.iter().peekable();
    let mut at = 0;
    while at < names.len() {
        let here = u32::try_from(at).unwrap_or(u32::MAX);
        if let Some(&&(_, to)) = gone.peek().filter(|range| range.0 == here) {
            gone.next();
            left.push(u32::MAX);
            at = to as usize;
            continue;
        }
        if names[at] != NOTHING {
            left.push(here);
        }
        at += 1;
    }
    left
}

/// Before which calls to cut: all of one name, by which most is taken out as far as one process can tell.
fn cuts(names: &[u32], left: &[u32]) -> Option<Vec<u32>> {
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut occurrences: FxHashMap<u32, Vec<u32>> = FxHashMap::default();
    let mut powers = Vec::with_capacity(left.len() + 1);
    let mut hashes = Vec::with_capacity(left.len() + 1);
    let (mut power, mut hash, mut unique) = (1_u64, 0_u64, u64::from(u32::MAX));
    powers.push(power);
    hashes.push(hash);
    for (at, &position) in left.iter().enumerate() {
        let name = match position {
            u32::MAX => {
                unique += 1;
                unique
            }
            position => {
                let name = names[position as usize];
                occurrences.entry(name).or_default().push(u32::try_from(at).expect("they are in 32 bits"));
                name.into()
            }
        };
        power = power.wrapping_mul(FACTOR);
        hash = hash
            .wrapping_mul(FACTOR)
            .wrapping_add((name ^ name << 32).wrapping_mul(0xd6e8_feb8_6659_fd93) | 1);
        powers.push(power);
        hashes.push(hash);
    }
    let between = |from: u32, to: u32| {
        let length = powers[(to - from) as usize];
        hashes[to as usize].wrapping_sub(hashes[from as usize].wrapping_mul(length))
    };
    let mut best: Option<(u64, std::cmp::Reverse<usize>, u32)> = None;
    for (&name, at) in &occurrences {
        if at.len() < 4 {
            continue;
        }
        let mut path = WalkPath::new(0);
        let mut lengths = vec![0_u64];
        let mut kept = 0_u64;
        for pair in at.windows(2) {
            let step = between(pair[0], pair[1]);
            lengths.push(u64::from(pair[1] - pair[0]));
            kept += u64::from(pair[1] - pair[0]);
            if let Some(back) = path.step(step, step) {
                kept -= lengths.drain(back + 1..).sum::<u64>();
            }
        }
        let all = u64::from(at[at.len() - 1] - at[0]);
        let gone = (all - kept, std::cmp::Reverse(at.len()), name);
        if gone.0 >= CALLS && best.is_none_or(|best| gone > best) {
            best = Some(gone);
        }
    }
    let (_, _, name) = best?;
    Some(occurrences[&name].iter().map(|&at| left[at as usize]).collect())
}

/// The steps that are kept.
struct WalkPath {
    /// Where it came by each step, and that step; the first is where it begins.
    kept: Vec<(u64, (u64, u64))>,
    /// How often each step is kept, by where it begins.
    taken: FxHashMap<(u64, u64), u32>,
    /// Where in `kept` it came to a place.
    visits: FxHashMap<u64, Vec<usize>>,
}

impl WalkPath {
    fn new(place: u64) -> Self {
        let mut visits: FxHashMap<u64, Vec<usize>> = FxHashMap::default();
        visits.insert(place, vec![0]);
        Self { kept: vec![(place, (0, 0))], taken: FxHashMap::default(), visits }
    }

    /// Goes on by a step to a place. If it was there before and took the same steps since as at other times, it goes back:
    /// returns to which index of `kept`.
    fn step(&mut self, step: u64, place: u64) -> Option<usize> {
        let edge = (self.kept.last().expect("it begins somewhere").0, step);
        *self.taken.entry(edge).or_default() += 1;
        self.kept.push((place, edge));
        let visits = self.visits.entry(place).or_default();
        let before = visits.last().copied();
        visits.push(self.kept.len() - 1);
        let before = before?;
        if self.kept.len() - before > WAY_BACK {
            return None;
        }
        let mut undone = 0;
        let mut known = true;
        for (_, edge) in self.kept[before + 1..].iter().rev() {
            undone += 1;
            let left = self.taken.get_mut(edge).expect("it was taken");
            *left -= 1;
            if *left == 0 {
                known = false;
                break;
            }
        }
        if !known {
            for (_, edge) in self.kept.iter().rev().take(undone) {
                *self.taken.get_mut(edge).expect("it was taken") += 1;
            }
            return None;
        }
        for (place, _) in self.kept.drain(before + 1..) {
            self.visits.get_mut(&place).expect("it was there").pop();
        }
        Some(before)
    }
}

/// What uses of one communicator or link were made.
struct SharedUses {
    /// Members that count it, and how many uses each made.
    uses: Vec<(usize, u64)>,
    /// How many the one made that made most.
    most: u64,
}

/// Steps of one process that are alike, by a hash of the names: their number, and where the first is.
type StepsOf = FxHashMap<u64, Vec<(u32, u32, u32)>>;

/// One process on the way.
struct Walker<'a> {
    counts: CountWalk<'a>,
    names: &'a CallNames,
    gone: &'a [(u32, u32)],
    next_gone: usize,
    /// The position it has come to.
    at: usize,
    end: usize,
    /// By counter of `counts`: which of all it is, and where in its uses this process stands.
    counters: Vec<(usize, usize)>,
    /// How many counters there are of which others have more uses.
    lacking: usize,
    /// Up to where a call is under way that returned late.
    under_way: usize,
    next_late: usize,
    /// How many calls with names it has come by.
    named: u64,
    /// The links from here on.
    links: Peekable<LinkReader<'a>>,
    /// What a later call refers to: the last that does, the number among the named, its position.
    live: Vec<(u32, u64, u32)>,
    /// Where the step began, and its hash so far.
    from: usize,
    hash: u64,
    /// Whether something was taken out of the step before.
    gap: bool,
    steps: StepsOf,
    steps_made: u32,
    /// The last steps: their numbers, and where each began.
    last: VecDeque<(u32, usize)>,
}

impl Walker<'_> {
    fn is_quiet(&self) -> bool {
        let inside = self.gone.get(self.next_gone).is_some_and(|range| (range.0 as usize) < self.at);
        self.counts.is_quiet() && self.at >= self.under_way && !inside
    }

    /// The number of the step that ends here.
    fn step_ends(&mut self) -> u32 {
        let (from, to) = (self.from, self.at);
        let of = &self.names.of;
        let alike = |&(_, other_from, other_to): &&(u32, u32, u32)| {
            let named =
                |names: &[u32]| names.iter().copied().filter(|name| *name != NOTHING).collect::<Vec<_>>();
            let (one, other) = (&of[from..to], &of[*other_from as usize..*other_to as usize]);
            one == other || named(one) == named(other)
        };
        let known = self.steps.entry(self.hash).or_default();
        let number = match known.iter().find(alike).filter(|_| !self.gap) {
            Some((number, ..)) => *number,
            None => {
                self.steps_made += 1;
                if !self.gap {
                    let position =
                        |at: usize| u32::try_from(at).expect("a sequence has fewer than 2^32 symbols");
                    known.push((self.steps_made, position(from), position(to)));
                }
                self.steps_made
            }
        };
        self.last.push_back((number, from));
        if self.last.len() > STEPS {
            self.last.pop_front();
        }
        (self.from, self.hash, self.gap) = (to, 0, false);
        number
    }

    /// What the process is like here, beyond the step that brought it.
    fn describe(&mut self, to: &mut Vec<u32>) {
        let here = self.at;
        self.live.retain(|live| live.0 as usize >= here);
        to.push(self.counts.age());
        let alive = self.counts.alive();
        to.extend([0, 32, 64, 96].map(|shift| u32::try_from(alive >> shift & 0xffff_ffff).expect("masked")));
        to.push(u32::try_from(self.live.len()).expect("few are referred to"));
        for &(_, nth, position) in &self.live {
            let since = self.last.iter().rev().position(|(_, from)| *from <= position as usize);
            match since {
                Some(steps) => {
                    to.push(u32::try_from(self.named - nth).unwrap_or(u32::MAX));
                    to.extend(self.last.iter().rev().take(steps + 1).map(|(number, _)| *number));
                }
                None => to.extend([u32::MAX, position]),
            }
        }
    }
}

/// Where a cut is: the position of each walker.
type CutPositions = Box<[u32]>;

/// Walks once along processes that go together.
struct Round<'a> {
    world: &'a World,
    members: &'a [usize],
    walkers: Vec<Walker<'a>>,
    /// By rank: which walker it is.
    by_rank: FxHashMap<Rank, usize>,
    numbers: FxHashMap<UseKey, usize>,
    shared: Vec<SharedUses>,
    /// Walkers that others wait for.
    behind: Vec<usize>,
    path: WalkPath,
    /// By index of what is kept: the cuts at which the step begins and ends.
    kept: Vec<(CutPositions, CutPositions)>,
    /// Where the last cut is: the position of each walker.
    cut: CutPositions,
    iterations: u64,
}

impl<'a> Round<'a> {
    fn new(
        world: &'a World,
        sequences: &'a [Sequence],
        names: &'a [CallNames],
        members: &'a [usize],
        gone: &'a [Vec<(u32, u32)>],
    ) -> Self {
        let walker = |&at: &usize| Walker {
            counts: CountWalk::new(world, &world.members[at], &sequences[at]),
            names: &names[at],
            gone: &gone[at],
            next_gone: 0,
            at: 0,
            end: sequences[at].symbols.len(),
            counters: Vec::new(),
            lacking: 0,
            under_way: 0,
            next_late: 0,
            named: 0,
            links: names[at].links.iter().peekable(),
            live: Vec::new(),
            from: 0,
            hash: 0,
            gap: false,
            steps: StepsOf::default(),
            steps_made: 0,
            last: VecDeque::new(),
        };
        Self {
            world,
            members,
            walkers: members.iter().map(walker).collect(),
            by_rank: members.iter().enumerate().map(|(nth, &at)| (world.members[at].rank, nth)).collect(),
            numbers: FxHashMap::default(),
            shared: Vec::new(),
            behind: Vec::new(),
            path: WalkPath::new(0),
            kept: Vec::new(),
            cut: CutPositions::default(),
            iterations: 0,
        }
    }

    /// How many steps there were, and how many of them are gone.
    fn counts(&self) -> (u64, u64) {
        let kept = self.kept.len().saturating_sub(1) as u64;
        (self.iterations, self.iterations - kept)
    }

    fn run(&mut self, cuts: &[u32]) {
        let mut edges: FxHashMap<Box<[u32]>, u64> = FxHashMap::default();
        let mut places: FxHashMap<Box<[u32]>, u64> = FxHashMap::default();
        for &cut in cuts {
            while self.walkers[0].at < cut as usize {
                self.step(0);
            }
            if !self.settle() {
                break;
            }
            let here: CutPositions =
                self.walkers.iter().map(|walker| u32::try_from(walker.at).expect("32 bits")).collect();
            if here == self.cut {
                continue;
            }
            let edge: Box<[u32]> = self.walkers.iter_mut().map(Walker::step_ends).collect();
            let begins = self.kept.is_empty();
            let fresh = edges.len() as u64 + 1;
            let edge = if begins { 0 } else { *edges.entry(edge).or_insert(fresh) };
            let mut place = vec![u32::try_from(edge & 0xffff_ffff).expect("masked")];
            for walker in &mut self.walkers {
                walker.describe(&mut place);
            }
            let fresh = places.len() as u64 + 1;
            let place = *places.entry(place.into()).or_insert(fresh);
            if begins {
                self.path = WalkPath::new(place);
                self.kept.push((here.clone(), here.clone()));
            } else {
                self.iterations += 1;
                self.kept.push((std::mem::take(&mut self.cut), here.clone()));
                if let Some(back) = self.path.step(edge, place) {
                    self.kept.truncate(back + 1);
                }
            }
            self.cut = here;
        }
    }

    /// By member: what lies between the steps that are kept.
    fn taken_out(&self) -> Vec<(usize, Vec<(u32, u32)>)> {
        let begins = self.kept.iter().skip(1).map(|(begin, _)| begin).chain([&self.cut]);
        let between: Vec<(&CutPositions, &CutPositions)> =
            self.kept.iter().map(|(_, end)| end).zip(begins).filter(|(end, begin)| end != begin).collect();
        let of = |(nth, &member): (usize, &usize)| {
            let ranges = between.iter().map(|(end, begin)| (end[nth], begin[nth]));
            (member, ranges.filter(|(from, to)| from < to).collect())
        };
        self.members.iter().enumerate().map(of).collect()
    }

    /// Everybody goes on until what was begun together was begun by all, and nothing is under way. False if somebody ends
    /// before.
    fn settle(&mut self) -> bool {
        self.behind.extend(0..self.walkers.len());
        while let Some(nth) = self.behind.pop() {
            while self.walkers[nth].lacking > 0 || !self.walkers[nth].is_quiet() {
                if self.walkers[nth].at == self.walkers[nth].end {
                    return false;
                }
                self.step(nth);
            }
        }
        true
    }

    /// One process goes by one symbol.
    fn step(&mut self, nth: usize) {
        let walker = &mut self.walkers[nth];
        let at = walker.at;
        let here = u32::try_from(at).expect("a sequence has fewer than 2^32 symbols");
        let name = walker.names.of[at];
        while walker.gone.get(walker.next_gone).is_some_and(|range| range.1 <= here) {
            walker.next_gone += 1;
        }
        if walker.gone.get(walker.next_gone).is_some_and(|range| range.0 <= here) {
            walker.gap = true;
        }
        let late = &walker.names.late;
        while let Some(&(entered, until)) = late.get(walker.next_late).filter(|late| late.0 <= here) {
            walker.next_late += 1;
            if entered == here {
                walker.under_way = walker.under_way.max(until as usize);
            }
        }
        while let Some((from, to)) = walker.links.next_if(|link| link.0 <= here) {
            walker.live.push((to, walker.named, from));
        }
        if name != NOTHING {
            walker.named += 1;
            walker.hash = (walker.hash.rotate_left(5) ^ u64::from(name)).wrapping_mul(0x517c_c1b7_2722_0a95);
        }
        walker.at += 1;
        match walker.counts.step(at) {
            Resolved::Nothing | Resolved::Doubtful => {}
            Resolved::One(counter) => self.uses(nth, counter),
            Resolved::Many(counters) => counters.into_iter().for_each(|counter| self.uses(nth, counter)),
        }
    }

    /// A process makes one more use of what a counter of its counts.
    fn uses(&mut self, nth: usize, counter: usize) {
        while self.walkers[nth].counters.len() <= counter {
            let key = self.walkers[nth].counts.key(self.walkers[nth].counters.len());
            let shared = self.shared_of(key);
            let SharedUses { uses, most } = &mut self.shared[shared];
            // In a damaged recording somebody may use what is another's.
            let mine = uses.iter().position(|(other, _)| *other == nth).unwrap_or_else(|| {
                uses.push((nth, *most));
                uses.len() - 1
            });
            self.walkers[nth].counters.push((shared, mine));
        }
        let (shared, mine) = self.walkers[nth].counters[counter];
        let shared = &mut self.shared[shared];
        shared.uses[mine].1 += 1;
        let uses = shared.uses[mine].1;
        if uses > shared.most {
            for &(other, had) in &shared.uses {
                if other != nth && had == shared.most {
                    self.walkers[other].lacking += 1;
                    self.behind.push(other);
                }
            }
            shared.most = uses;
        } else if uses == shared.most {
            self.walkers[nth].lacking -= 1;
        }
    }

    fn shared_of(&mut self, key: UseKey) -> usize {
        let fresh = self.shared.len();
        let shared = *self.numbers.entry(key).or_insert(fresh);
        if shared == fresh {
            let ranks: Vec<Rank> = match key {
                UseKey::Comm(comm) => self.world.comm(comm).members.iter().flatten().copied().collect(),
                UseKey::Link { from, to, .. } => vec![from, to],
            };
            let members: FxHashSet<usize> =
                ranks.iter().filter_map(|rank| self.by_rank.get(rank).copied()).collect();
            let mut uses: Vec<(usize, u64)> = members.into_iter().map(|member| (member, 0)).collect();
            uses.sort_unstable();
            self.shared.push(SharedUses { uses, most: 0 });
        }
        shared
    }
}
