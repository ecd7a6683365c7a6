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
//! Not here: what is judged.

mod count;
mod names;
mod order;
mod walk;

use std::fmt;
use std::ops::Range;

use rankcheck_model::Rank;

use self::names::CallNames;
pub(super) use self::names::{CallRole, CallRoles};
use super::sequence::{Sequence, Symbol};
use super::world::World;
use crate::parallel::in_parallel;

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
        write!(
            f,
            "{gone} of {iterations} iterations (from call {from} of rank {}) repeat others on ",
            ranks[0].0
        )?;
        match &ranks[..] {
            [only] => write!(f, "rank {}", only.0)?,
            [first, .., last] if (last.0 - first.0) as usize + 1 == ranks.len() => {
                write!(f, "ranks {} to {}", first.0, last.0)?;
            }
            some => write!(f, "{} ranks", some.len())?,
        }
        write!(f, ": {calls} calls not judged again")
    }
}

/// Folds the sequences of a world; `sequences` are those of `world.members`, in that order.
///
/// # Panics
///
/// If there is not one sequence for each member.
pub fn fold(world: &World, sequences: &mut [Sequence]) -> Vec<Fold> {
    assert_eq!(world.members.len(), sequences.len(), "a sequence for each member");
    let names = in_parallel(sequences.len(), |at| {
        let relations = order::relations(world, &world.members[at], &sequences[at]);
        CallNames::new(&sequences[at], relations)
    });
    let walked = walk::walk(world, sequences, &names);
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
