//! Iterations that repeat are judged once: a run of a thousand equal iterations becomes a run of two.
//!
//! `repeat` finds, in the sequence of one process, parts that repeat with a period; `count` says what one period
//! does to the communicators; this file takes the same number of periods out of all processes that the repeat ties
//! together. It does so only where both ends of what is taken out are *consistent cuts*: there every
//! communicator was used equally often by all its members, as many messages were sent as received on every
//! link, no group is open, nobody is inside a call. One period later the same holds again, and whatever was
//! made in between is gone again. So the run between two such cuts is a whole program by itself, which starts
//! and ends alike, and judging it twice finds nothing new. `ARCHITECTURE.md`, "Folding", has the argument.
//!
//! Where anything is in doubt nothing is folded; that costs time, and no finding.
//! Not here: what is judged.

mod count;
mod repeat;

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

use rankcheck_model::Rank;
use rustc_hash::{FxHashMap, FxHashSet};

use self::count::{Loop, UseKey, loops};
use self::repeat::repeats;
use super::call::CallKind;
use super::sequence::{Sequence, Symbol};
use super::world::World;

/// Iterations that stay before those that are taken out: what was there before the loop meets the first.
const FIRST: u64 = 1;
/// Iterations that stay behind those that are taken out: what follows the loop meets the last. It also meets the
/// first, as any iteration met the one before.
const LAST: u64 = 1;
/// After so many rounds the rest is judged as it is. Each round folds what the round before brought together:
/// a loop in a loop.
const ROUNDS: usize = 6;

/// Iterations that are not judged again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fold {
    /// The ranks that repeat them.
    pub ranks: Vec<Rank>,
    /// How many there are with those that stay.
    pub iterations: u64,
    /// How many calls were taken out, of all ranks.
    pub calls: u64,
    /// The number of the first call that was taken out, of the first rank.
    pub from: u64,
    /// What an iteration is made of.
    pub of: LoopOf,
}

/// What an iteration is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoopOf {
    /// Calls of the program.
    Program,
    /// Looks, and what runs beside the program: a watchdog that polls is no loop of the user's.
    Polls,
}

impl fmt::Display for Fold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "iterations {} to {} (from call {} of rank {}) repeat iteration {FIRST} on ",
            FIRST + 1,
            self.iterations - LAST,
            self.from,
            self.ranks[0].0
        )?;
        match &self.ranks[..] {
            [only] => write!(f, "rank {}", only.0)?,
            [first, .., last] if (last.0 - first.0) as usize + 1 == self.ranks.len() => {
                write!(f, "ranks {} to {}", first.0, last.0)?;
            }
            some => write!(f, "{} ranks", some.len())?,
        }
        write!(f, ": {} calls not judged again", self.calls)
    }
}

/// Folds the sequences of a world; `sequences` are those of `world.members`, in that order.
///
/// # Panics
///
/// If there is not one sequence for each member.
pub fn fold(world: &World, sequences: &mut [Sequence]) -> Vec<Fold> {
    assert_eq!(world.members.len(), sequences.len(), "a sequence for each member");
    let mut folds = Vec::new();
    for _ in 0..ROUNDS {
        let mut round = Round::new(world, sequences);
        round.run();
        if round.folds.is_empty() {
            break;
        }
        folds.append(&mut round.folds);
        let removals = round.removals;
        for (sequence, removals) in sequences.iter_mut().zip(removals) {
            remove(sequence, removals);
        }
    }
    folds
}

/// A range of a sequence that is taken out.
struct Removal {
    from: usize,
    to: usize,
    /// The symbol that stands there instead.
    symbol: Symbol,
}

/// Takes ranges out of a sequence, and leaves a symbol instead of each.
fn remove(sequence: &mut Sequence, mut removals: Vec<Removal>) {
    if removals.is_empty() {
        return;
    }
    removals.sort_by_key(|removal| removal.from);
    let mut kept = Vec::new();
    let mut at = 0;
    for Removal { from, to, symbol } in removals {
        kept.extend_from_slice(&sequence.symbols[at..from]);
        kept.push(sequence.intern(symbol));
        at = to;
    }
    kept.extend_from_slice(&sequence.symbols[at..]);
    sequence.symbols = kept;
}

/// How many calls and notes, and how many things that were noted later, stand in a range of a sequence.
fn content(sequence: &Sequence, range: Range<usize>) -> (u64, u64) {
    let symbols = sequence.symbols[range].iter().map(|&symbol| sequence.symbol(symbol));
    symbols.fold((0, 0), |(calls, noted), symbol| (calls + symbol.calls(), noted + symbol.noted()))
}

/// Finds what can be folded at once.
struct Round<'a> {
    world: &'a World,
    sequences: &'a [Sequence],
    /// The loops that were found in each sequence, indexed by member.
    loops: Vec<Vec<Loop>>,
    member_of: FxHashMap<Rank, usize>,
    /// Loops with which no fold could be made.
    failed: FxHashSet<(usize, usize)>,
    /// What is taken out of each sequence, indexed by member.
    removals: Vec<Vec<Removal>>,
    folds: Vec<Fold>,
}

/// A loop that takes part in a fold.
#[derive(Debug, Clone, Copy)]
struct LoopPart {
    member: usize,
    at: usize,
    /// How many of its periods make one iteration of all: a fraction while the parts are gathered.
    times: (u64, u64),
}

impl<'a> Round<'a> {
    fn new(world: &'a World, sequences: &'a [Sequence]) -> Self {
        let mut loops_of: Vec<Vec<Loop>> = Vec::new();
        loops_of.resize_with(sequences.len(), Vec::new);
        let workers = std::thread::available_parallelism().map_or(1, usize::from);
        let share = sequences.len().div_ceil(workers).max(1);
        std::thread::scope(|scope| {
            let shares =
                sequences.chunks(share).zip(world.members.chunks(share)).zip(loops_of.chunks_mut(share));
            for ((sequences, members), found) in shares {
                scope.spawn(move || {
                    for ((sequence, member), found) in sequences.iter().zip(members).zip(found) {
                        *found = loops(world, member, sequence, &repeats(&sequence.symbols));
                    }
                });
            }
        });
        Self {
            world,
            sequences,
            loops: loops_of,
            member_of: world.members.iter().enumerate().map(|(at, member)| (member.rank, at)).collect(),
            failed: FxHashSet::default(),
            removals: std::iter::repeat_with(Vec::new).take(sequences.len()).collect(),
            folds: Vec::new(),
        }
    }

    fn run(&mut self) {
        for member in 0..self.loops.len() {
            for at in 0..self.loops[member].len() {
                let this = &self.loops[member][at];
                if this.repeats() <= FIRST + LAST || self.failed.contains(&(member, at)) {
                    continue;
                }
                let mut parts = vec![LoopPart { member, at, times: (1, 1) }];
                if self.gather(&mut parts).is_none() || self.take_out(&parts).is_none() {
                    self.failed.extend(parts.iter().map(|part| (part.member, part.at)));
                }
            }
        }
    }

    /// Completes the parts: whoever shares a communicator with one that uses it in its loop must be in a loop
    /// that uses it too, and as often.
    fn gather(&self, parts: &mut Vec<LoopPart>) -> Option<()> {
        let mut part_of: FxHashMap<usize, usize> = FxHashMap::default();
        part_of.insert(parts[0].member, 0);
        let mut seen: FxHashSet<UseKey> = FxHashSet::default();
        let mut next = 0;
        while next < parts.len() {
            let part = parts[next];
            next += 1;
            let this = &self.loops[part.member][part.at];
            for (&key, of_key) in &this.counters {
                if !seen.insert(key) {
                    continue;
                }
                let (from, to) = (of_key.at(this, this.from), of_key.at(this, this.to));
                for other in self.sharers(key) {
                    let known = part_of.get(&other).map(|&at| parts[at]);
                    let at = match known {
                        Some(known) => known.at,
                        None => self.meets(other, key, from, to)?,
                    };
                    let rate = self.loops[other][at].counters.get(&key)?.offsets.len() as u64;
                    let times = times(part.times, of_key.offsets.len() as u64, rate)?;
                    match known {
                        Some(known) if known.times != times => return None,
                        Some(_) => {}
                        None => {
                            part_of.insert(other, parts.len());
                            parts.push(LoopPart { member: other, at, times });
                        }
                    }
                }
            }
        }
        // From fractions to the smallest whole numbers.
        let multiple = parts.iter().try_fold(1_u64, |multiple, part| {
            (multiple / gcd(multiple, part.times.1)).checked_mul(part.times.1).filter(|&to| to <= 1 << 20)
        })?;
        for part in parts.iter_mut() {
            part.times = (part.times.0 * (multiple / part.times.1), 1);
        }
        let common = parts.iter().fold(0, |common, part| gcd(common, part.times.0));
        for part in parts.iter_mut() {
            part.times.0 /= common;
        }
        Some(())
    }

    /// The members that count with this key.
    fn sharers(&self, key: UseKey) -> Vec<usize> {
        let of = |rank: &Rank| self.member_of.get(rank).copied();
        match key {
            UseKey::Comm(comm) => self.world.comm(comm).members.iter().flatten().filter_map(of).collect(),
            UseKey::Link { from, to, .. } => [from, to].iter().filter_map(of).collect(),
        }
    }

    /// The loop of a member that has most of these uses in common.
    fn meets(&self, member: usize, key: UseKey, from: u64, to: u64) -> Option<usize> {
        let common = |this: &Loop| {
            let of_key = this.counters.get(&key)?;
            let to = to.min(of_key.at(this, this.to));
            to.checked_sub(from.max(of_key.at(this, this.from))).filter(|&common| common > 0)
        };
        let all = self.loops[member].iter().enumerate();
        all.filter_map(|(at, this)| Some((common(this)?, at)))
            .max_by_key(|&(common, at)| (common, std::cmp::Reverse(at)))
            .map(|(_, at)| at)
    }

    /// Finds the first consistent cut, and takes out what lies between it and the last one.
    fn take_out(&mut self, parts: &[LoopPart]) -> Option<()> {
        if parts.iter().any(|part| !self.loops[part.member][part.at].whole) {
            return None;
        }
        let cut = self.cut(parts)?;
        let lengths: Vec<usize> = parts
            .iter()
            .map(|part| {
                let times = usize::try_from(part.times.0).ok()?;
                self.loops[part.member][part.at].period.checked_mul(times)
            })
            .collect::<Option<_>>()?;
        let iterations = parts
            .iter()
            .zip(&cut)
            .zip(&lengths)
            .map(|((part, &cut), &length)| ((self.loops[part.member][part.at].to - cut) / length) as u64);
        let iterations = iterations.min().filter(|&all| all > FIRST + LAST)?;
        let times = iterations - FIRST - LAST;
        let (mut calls, mut froms, mut of) = (0, BTreeMap::new(), LoopOf::Polls);
        for ((part, cut), length) in parts.iter().zip(cut).zip(lengths) {
            let first = usize::try_from(FIRST).expect("small") * length;
            let gone = usize::try_from(times).expect("they lie in a sequence") * length;
            let (from, to) = (cut + first, cut + first + gone);
            let sequence = &self.sequences[part.member];
            let (of_one, noted) = content(sequence, from..from + length);
            let symbol = Symbol::Folded { calls: of_one * times, noted: noted * times };
            calls += symbol.calls();
            let shapes = sequence.symbols[from..from + length].iter();
            let mut shapes = shapes.filter_map(|&symbol| sequence.symbol(symbol).shape());
            if shapes.any(|shape| CallKind::of(&sequence.shape(shape).name).acts()) {
                of = LoopOf::Program;
            }
            froms.insert(self.world.members[part.member].rank, (part.member, from));
            self.removals[part.member].push(Removal { from, to, symbol });
            self.loops[part.member][part.at].from = to;
        }
        let &(member, from) = froms.values().next()?;
        let sequence = &self.sequences[member];
        let from = sequence.recorded(content(sequence, 0..from).0);
        let fold = Fold { ranks: froms.into_keys().collect(), iterations, calls, from, of };
        self.folds.push(fold);
        Some(())
    }

    /// The first positions, one in each loop, before which everything that was begun together was begun by all.
    fn cut(&self, parts: &[LoopPart]) -> Option<Vec<usize>> {
        let of = |part: &LoopPart| &self.loops[part.member][part.at];
        let mut keys: BTreeMap<UseKey, Vec<usize>> = BTreeMap::new();
        for (at, part) in parts.iter().enumerate() {
            for &key in of(part).counters.keys() {
                keys.entry(key).or_default().push(at);
            }
        }
        let mut cut: Vec<usize> = Vec::with_capacity(parts.len());
        for part in parts {
            cut.push(of(part).quiet(of(part).from)?);
        }
        loop {
            let before = cut.clone();
            for (key, sharers) in &keys {
                let count = |at: usize| of(&parts[at]).counters[key].at(of(&parts[at]), cut[at]);
                let most = sharers.iter().map(|&at| count(at)).max()?;
                let behind: Vec<usize> = sharers.iter().copied().filter(|&at| count(at) < most).collect();
                for at in behind {
                    let this = of(&parts[at]);
                    cut[at] = this.quiet(this.counters[key].reaches(this, most)?)?;
                }
            }
            // Who is pushed through a whole loop is never met.
            if parts.iter().zip(&cut).any(|(part, &at)| at > of(part).to) {
                return None;
            }
            if cut == before {
                return Some(cut);
            }
        }
    }
}

/// How many periods of the one make as many uses as `times` periods of the other.
fn times(times: (u64, u64), rate: u64, other: u64) -> Option<(u64, u64)> {
    let (over, under) = (times.0.checked_mul(rate)?, times.1.checked_mul(other)?);
    let common = gcd(over, under);
    (common > 0).then(|| (over / common, under / common))
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}
