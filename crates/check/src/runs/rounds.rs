//! Loops that ranks go around differently often: in which round they diverge, and where one of them left.
//!
//! A loop is a line at which collectives of one communicator were launched more than once.
//! Not here: who waits for whom ([`super::stuck`]).

use std::fmt;
use std::ops::RangeInclusive;

use rankcheck_model::{LocId, Op, Rank, Source as _, Statement, ThreadOp};
use rustc_hash::FxHashSet;

use super::judge::Recording;
use super::lower::{FoldedRounds, RankRun};
use super::world::RunCommId;

/// How often two ranks went around a loop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rounds {
    /// The line at which each round launches a collective.
    pub line: String,
    /// The rank that made more.
    pub ahead: Rank,
    /// The round that it is in, from 1.
    pub round: u64,
    /// The rank that made fewer.
    pub behind: Rank,
    /// How many that one made.
    pub made: u64,
    /// The first line after its last round that no round before came by.
    pub left: Option<String>,
}

impl fmt::Display for Rounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = if self.made == 1 { "" } else { "s" };
        write!(
            f,
            "rank {} made {} round{plural} of the loop at {}, where rank {} is in round {}",
            self.behind.0, self.made, self.line, self.ahead.0, self.round
        )?;
        match &self.left {
            Some(left) => write!(f, ", and left it for {left}"),
            None => Ok(()),
        }
    }
}

impl Rounds {
    /// Compares the rank of a collective that stands with one that does not make it.
    #[must_use]
    pub fn of(recording: &Recording, (ahead, loc): (Rank, LocId), behind: Rank) -> Option<Self> {
        let program = &recording.program;
        let (one, other) = (&program.ranks[ahead.at()], &program.ranks[behind.at()]);
        let all = statements(one);
        let comm = one.collects_on(all.iter().find(|op| op.loc == loc)?)?;
        let line = program.loc(loc).to_string();
        let known = one.origin_of(loc).is_some_and(|origin| one.is_located(&origin));
        let at_line = |rank: &RankRun, ops: &[&Statement]| -> Vec<usize> {
            let there = |op: &Statement| {
                rank.collects_on(op) == Some(comm) && program.loc(op.loc).to_string() == line
            };
            (0..ops.len()).filter(|at| there(ops[*at])).collect()
        };
        let theirs = statements(other);
        let (mine, made) = (at_line(one, &all), at_line(other, &theirs));
        let before = mine.iter().filter(|at| all[**at].loc <= loc).count() as u64;
        let round = before + folded(one, comm, &line).map_or(0, |folded| folded.times);
        let folded = folded(other, comm, &line);
        let rounds = made.len() as u64 + folded.map_or(0, |folded| folded.times);
        let elsewhere = [one, other].iter().any(|rank| rank.folded_elsewhere.contains(&comm));
        if !known || rounds == 0 || rounds >= round || elsewhere {
            return None;
        }
        let first = *made.first()?;
        // The last rounds may be those that were folded away.
        let gone = folded.and_then(|folded| theirs.iter().rposition(|op| op.loc < folded.before));
        let last = made.last().copied().max(gone)?;
        let left = left(recording, other, &theirs, first..=last);
        Some(Self { line, ahead, round, behind, made: rounds, left })
    }
}

/// The line for which a rank left a loop whose rounds launch at these positions.
fn left(
    recording: &Recording,
    program: &RankRun,
    ops: &[&Statement],
    rounds: RangeInclusive<usize>,
) -> Option<String> {
    let line = |op: &Statement| {
        let origin = program.origin_of(op.loc)?;
        program.is_located(&origin).then(|| recording.program.loc(op.loc).to_string())
    };
    let last = *rounds.end();
    let mut around: FxHashSet<String> = ops[rounds].iter().filter_map(|op| line(op)).collect();
    // What was folded away before the last round may have been inside.
    let before = ops[last].loc;
    let folded = program.folded_lines.iter().filter(|(_, follows)| **follows <= before);
    let folded = folded.filter_map(|(line, _)| program.locs.get(*line as usize));
    around.extend(folded.map(ToString::to_string));
    let after = ops[last + 1..].iter().filter_map(|op| line(op)).find(|line| !around.contains(line));
    let at_last = || {
        let last = program.last_told().filter(|last| program.is_located(last))?;
        let line = program.loc(&last, &recording.program.names).to_string();
        (!around.contains(&line)).then_some(line)
    };
    after.or_else(at_last)
}

/// Rounds that were folded away.
fn folded(program: &RankRun, comm: RunCommId, line: &str) -> Option<FoldedRounds> {
    let at = |loc: u32| program.locs.get(loc as usize).is_some_and(|loc| loc.to_string() == line);
    let of_line = program.folded_at.iter().filter(|((of, loc), _)| *of == comm && at(*loc));
    of_line.map(|(_, folded)| *folded).reduce(|one, other| FoldedRounds {
        times: one.times + other.times,
        before: one.before.max(other.before),
    })
}

/// The operations of a rank in the order of its calls.
fn statements(program: &RankRun) -> Vec<&Statement> {
    let mut out: Vec<&Statement> = Vec::new();
    for op in &program.blocks[0].ops {
        if let Op::Thread(ThreadOp::Spawn { start }) = &*op.op {
            out.extend(&program.blocks[start.0 as usize].ops);
        } else {
            out.push(op);
        }
    }
    out
}
