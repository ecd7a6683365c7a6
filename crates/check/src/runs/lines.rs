//! The lines of a program that a verdict about its run names, for whoever shows findings beside the source.
//!
//! Not here: where the program is on this machine ([`crate::command`]), and how a verdict is told ([`super::report`]).

use std::sync::Arc;

use rankcheck_model::{Loc, LocId, Rank, Source as _, ranks_in_words};

use super::judge::Judged;

/// A line of a program, as whoever recorded it knew it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProgramLine {
    /// The path of the file on the machine of the program.
    pub file: Arc<str>,
    /// The line, from 1 on.
    pub line: u32,
    why: String,
    ranks: Vec<Rank>,
}

impl ProgramLine {
    /// Returns why it is named, and for which ranks.
    #[must_use]
    pub fn told(&self) -> String {
        format!("{}: {}", self.why, ranks_in_words(self.ranks.iter().copied()))
    }
}

/// Lines that are named, the one that tells most first. A line that is named twice for one reason is named for all its
/// ranks.
#[derive(Debug, Default)]
pub struct ProgramLines(Vec<ProgramLine>);

impl ProgramLines {
    /// Names a line for a rank. What is no line of a file is left out.
    pub fn add(&mut self, why: &str, rank: Rank, file: &Arc<str>, line: u32) {
        if line == 0 {
            return;
        }
        let is_same =
            |known: &&mut ProgramLine| known.why == why && known.line == line && known.file == *file;
        match self.0.iter_mut().find(is_same) {
            Some(known) if known.ranks.contains(&rank) => {}
            Some(known) => {
                known.ranks.push(rank);
                known.ranks.sort_unstable();
            }
            None => {
                self.0.push(ProgramLine { file: Arc::clone(file), line, why: why.into(), ranks: vec![rank] });
            }
        }
    }

    /// Returns all of them.
    #[must_use]
    pub fn into_lines(self) -> Vec<ProgramLine> {
        self.0
    }
}

/// Returns the lines that a verdict about a recorded run names: of the operations that break rules or, where none is broken,
/// of those in which ranks diverge; where ranks wait; and where those were last whom they wait for.
#[must_use]
pub fn of(judged: &Judged) -> Vec<ProgramLine> {
    let program = &judged.recording.program;
    let mut lines = ProgramLines::default();
    let add = |lines: &mut ProgramLines, why: &str, rank: Rank, loc: &Loc| {
        lines.add(why, rank, &loc.file, loc.line);
    };
    let at = |loc: LocId| program.loc(loc);
    for finding in &judged.findings {
        for op in &finding.ops {
            add(&mut lines, finding.rule.id(), op.rank, &at(op.loc));
        }
    }
    if judged.findings.is_empty() {
        for (rank, loc) in judged.divergences.iter().flat_map(super::divergence::Divergence::places) {
            add(&mut lines, "where ranks diverge", rank, &at(loc));
        }
    }
    for standing in &judged.standing {
        add(&mut lines, "waiting here", standing.op.rank, &at(standing.op.loc));
    }
    for root in &judged.stuck.roots {
        let of = &program.ranks[root.rank.at()];
        if let Some(raised) = of.exception.as_ref().and_then(|exception| exception.loc.as_ref()) {
            add(&mut lines, "raised an exception here", root.rank, raised);
        }
        if let Some(last) = of.last_told() {
            add(&mut lines, "last seen here", root.rank, &of.loc(&last, &program.names));
        }
    }
    lines.into_lines()
}
