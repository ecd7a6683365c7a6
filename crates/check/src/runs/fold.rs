//! Iterations that repeat are judged once: a run of a thousand equal iterations becomes a run of a few.
//!
//! A run is cut where nothing is under way: there every communicator was used equally often by all its members, as many
//! messages were sent as received on every link, no group is open, nobody is inside a call. What lies between two such cuts
//! is a *step*. A cut is known by the step before it, by what exists there, and by what a later call refers to: which records
//! somebody will wait for, which accesses nothing orders. So a run is a walk from cut to cut, and where it comes back to a cut
//! by steps that it has taken before, from the same cuts, it finds nothing new: what lies in between is taken out, and what
//! is left is a run of the same program. `docs/engine.md`, "Folding of recorded runs", has the argument.
//!
//! Steps are equal if their calls have the same names: `order` finds which record a wait meets and which accesses the process
//! orders itself, `names` says what calls are called, `count` what they do to communicators, `walk` takes out.
//! Where anything is in doubt nothing is folded; that costs time, and no finding.
//!
//! Ranks that do what others do are judged once too (`alike`, `copies`).
//! Not here: what is judged.

mod alike;
mod copies;
mod count;
mod names;
mod order;
mod walk;

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::Mutex;

use rankcheck_model::{Rank, ranks_in_words};
use rustc_hash::FxHashSet;

use self::names::CallNames;
pub(super) use self::names::{CallRole, CallRoles};
use super::sequence::{Sequence, Symbol};
use super::world::World;
use crate::parallel::{each_in_parallel, in_parallel};

/// Iterations that are not judged again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fold {
    /// The ranks that repeat them.
    pub ranks: Vec<Rank>,
    /// How many there are with those that stay.
    pub iterations: u64,
    /// How many of them were taken out.
    pub gone: u64,
    /// How many calls were taken out, of all ranks.
    pub calls: u64,
    /// The number of the first call that was taken out, of the first rank.
    pub from: u64,
}

impl fmt::Display for Fold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { ranks, iterations, gone, calls, from } = self;
        let first = ranks[0].0;
        let ranks = in_few_words(ranks);
        write!(
            f,
            "{gone} of {iterations} iterations on {ranks} repeat others, from call {from} of rank {first} on: {calls} calls were \
             not judged again"
        )
    }
}

/// From so many ranks on those that do what others do are looked for. Fewer are judged in no time, and a report on
/// each says more.
pub const RANKS_FROM: usize = 64;

/// What is taken out of a recording before it is judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Folding {
    /// Nothing: all that was recorded is judged.
    Nothing,
    /// Iterations that repeat others.
    Iterations,
    /// Iterations, and ranks that do what others do if there are so many.
    IterationsAndRanks {
        /// How many there have to be.
        from: usize,
    },
}

impl Default for Folding {
    fn default() -> Self {
        Self::IterationsAndRanks { from: RANKS_FROM }
    }
}

/// What was taken out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Folded {
    /// Iterations that repeat others.
    pub iterations: Vec<Fold>,
    /// Ranks that do what others do.
    pub copies: Vec<RankCopies>,
}

/// Ranks that are not judged, because they do what others do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RankCopies {
    /// Those that are left out.
    pub ranks: Vec<Rank>,
    /// Those that they are copies of.
    pub of: Vec<Rank>,
    /// How many calls they made.
    pub calls: u64,
}

impl fmt::Display for RankCopies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { ranks, of, calls } = self;
        let does = |ranks: &[Rank]| if ranks.len() == 1 { "does" } else { "do" };
        write!(f, "{} {} what {} {}", in_few_words(ranks), does(ranks), in_few_words(of), does(of))?;
        if let ([copy, _, ..], [original, _, ..]) = (&ranks[..], &of[..]) {
            write!(f, ", such as rank {} what rank {} does", copy.0, original.0)?;
        }
        write!(f, ": {calls} calls were not judged again")
    }
}

/// Longer lists of ranks are told by how many they are.
const WORDS_AT_MOST: usize = 60;

fn in_few_words(ranks: &[Rank]) -> String {
    let words = ranks_in_words(ranks.iter().copied());
    if words.len() > WORDS_AT_MOST { format!("{} ranks", ranks.len()) } else { words }
}

/// Folds the sequences of a world; `sequences` are those of `world.members`, in that order, and stay so: ranks that are taken out
/// are no members any more.
///
/// # Panics
///
/// If there is not one sequence for each member.
pub fn fold(world: &mut World, sequences: &mut Vec<Sequence>, folding: Folding) -> Folded {
    assert_eq!(world.members.len(), sequences.len(), "a sequence for each member");
    // Which record a wait of another rank meets is told by the numbers of the calls.
    let shared_events = world.members.iter().any(|member| !member.event_calls.is_empty());
    if folding == Folding::Nothing || shared_events {
        return Folded::default();
    }
    let (copies, names) = match folding {
        Folding::IterationsAndRanks { from } if world.members.len() >= from => fold_ranks(world, sequences),
        Folding::Nothing | Folding::Iterations | Folding::IterationsAndRanks { .. } => {
            (Vec::new(), in_parallel(sequences.len(), |at| names_of(world, sequences, at)))
        }
    };
    Folded { iterations: fold_iterations(world, sequences, &names), copies }
}

fn names_of(world: &World, sequences: &[Sequence], at: usize) -> CallNames {
    let sequence = &sequences[at];
    CallNames::new(sequence, order::relations(world, &world.members[at], sequence))
}

/// Takes out ranks that do what others do. Gives these, and the names of those that are left.
fn fold_ranks(world: &mut World, sequences: &mut Vec<Sequence>) -> (Vec<RankCopies>, Vec<CallNames>) {
    // The names of all take more memory than their sequences. Most are of ranks that go.
    let seen: Mutex<FxHashSet<u128>> = Mutex::default();
    let known = in_parallel(sequences.len(), |at| {
        let names = names_of(world, sequences, at);
        let alike = alike::fingerprint(&world.members[at], &sequences[at], &names);
        let keeps = alike.is_none_or(|alike| seen.lock().expect("no thread panics with it").insert(alike));
        (alike, keeps.then_some(names))
    });
    let (alike, mut names): (Vec<Option<u128>>, Vec<Option<CallNames>>) = known.into_iter().unzip();
    let copy_of = copies::copies(world, sequences, &alike);
    let left = |at: usize| copy_of[at] == at;
    let rank = |at: usize| world.members[at].rank;
    let copies = (0..copy_of.len()).filter(|at| !left(*at)).map(|at| RankCopies {
        ranks: vec![rank(at)],
        of: vec![rank(copy_of[at])],
        calls: sequences[at].returned,
    });
    let copies: Vec<RankCopies> = copies.collect();
    let gone = copies.iter().map(|one| (one.ranks[0], one.calls)).collect();
    let mut at = 0..;
    sequences.retain(|_| at.next().is_some_and(left));
    let mut at = 0..;
    names.retain(|_| at.next().is_some_and(left));
    world.take_out(gone);
    let names = each_in_parallel(names, |at, known| known.unwrap_or_else(|| names_of(world, sequences, at)));
    (together(copies), names)
}

/// Copies of the same ranks are told together: those of one, and then those whose originals go together.
fn together(copies: Vec<RankCopies>) -> Vec<RankCopies> {
    let mut by_original: BTreeMap<Vec<Rank>, RankCopies> = BTreeMap::new();
    for one in copies {
        let all = by_original.entry(one.of.clone());
        let all = all.or_insert_with(|| RankCopies { ranks: Vec::new(), of: one.of, calls: 0 });
        all.ranks.extend(one.ranks);
        all.calls += one.calls;
    }
    let mut by_number: BTreeMap<usize, RankCopies> = BTreeMap::new();
    for one in by_original.into_values() {
        let number = one.ranks.len();
        let all = by_number.entry(number);
        let all = all.or_insert_with(|| RankCopies { ranks: Vec::new(), of: Vec::new(), calls: 0 });
        all.ranks.extend(one.ranks);
        all.of.extend(one.of);
        all.calls += one.calls;
    }
    by_number.into_values().collect()
}

fn fold_iterations(world: &World, sequences: &mut [Sequence], names: &[CallNames]) -> Vec<Fold> {
    let walked = walk::walk(world, sequences, names);
    let mut folds = Vec::new();
    for taken in walked.folds {
        let mut fold = Fold {
            ranks: taken.members.iter().map(|&at| world.members[at].rank).collect(),
            iterations: taken.iterations,
            gone: taken.gone,
            calls: 0,
            from: 0,
        };
        fold.ranks.sort_unstable();
        for &member in &taken.members {
            let (sequence, gone) = (&sequences[member], &walked.gone[member]);
            let numbers = numbers(sequence, gone);
            let notes = gone.iter().flat_map(|&(from, to)| &sequence.symbols[from as usize..to as usize]);
            let notes =
                notes.filter(|symbol| matches!(sequence.symbol(**symbol), Symbol::Note { .. })).count();
            fold.calls += numbers.iter().map(|range| range.end - range.start).sum::<u64>() - notes as u64;
            if world.members[member].rank == fold.ranks[0] {
                fold.from = numbers.first().map_or(0, |range| range.start);
            }
        }
        folds.push(fold);
    }
    let roles = in_parallel(sequences.len(), |at| names[at].roles(&sequences[at], &walked.gone[at]));
    for ((sequence, gone), roles) in sequences.iter_mut().zip(&walked.gone).zip(roles) {
        sequence.roles = roles;
        remove(sequence, gone);
    }
    folds.sort_by_key(|fold| fold.ranks[0]);
    folds
}

/// Ranges of positions, from the one up to the other, in their order and none beside another.
fn joined(mut ranges: Vec<(u32, u32)>) -> Vec<(u32, u32)> {
    ranges.sort_unstable();
    let mut all: Vec<(u32, u32)> = Vec::new();
    for (from, to) in ranges {
        match all.last_mut() {
            Some(last) if from <= last.1 => last.1 = last.1.max(to),
            Some(_) | None => all.push((from, to)),
        }
    }
    all
}

/// Whether a position is in one of some ranges that are joined.
fn within(ranges: &[(u32, u32)], at: u32) -> bool {
    ranges[..ranges.partition_point(|range| range.0 <= at)].last().is_some_and(|range| at < range.1)
}

/// The numbers, in the recording, of the calls in ranges of positions.
fn numbers(sequence: &Sequence, ranges: &[(u32, u32)]) -> Vec<Range<u64>> {
    let mut kept = 0;
    let mut at = 0;
    let mut found = Vec::with_capacity(ranges.len());
    for &(from, to) in ranges {
        kept += content(sequence, at..from as usize).0;
        let start = sequence.recorded(kept);
        kept += content(sequence, from as usize..to as usize).0;
        found.push(start..sequence.recorded(kept));
        at = to as usize;
    }
    found
}

/// Takes ranges out of a sequence, and leaves a symbol instead of each.
fn remove(sequence: &mut Sequence, gone: &[(u32, u32)]) {
    if gone.is_empty() {
        return;
    }
    let mut kept = Vec::new();
    let mut at = 0;
    for &(from, to) in gone {
        let (from, to) = (from as usize, to as usize);
        let (calls, noted) = content(sequence, from..to);
        kept.extend_from_slice(&sequence.symbols[at..from]);
        kept.push(sequence.intern(Symbol::Folded { calls, noted }));
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
