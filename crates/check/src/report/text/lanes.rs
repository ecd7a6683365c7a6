//! The lanes: what each rank of a finding does, in one line.
//!
//! Not here: the words of a call (`rankcheck_model::display`).

use std::collections::BTreeSet;
use std::fmt::Write as _;

use rankcheck_model::machine::Kind;
use rankcheck_model::{Loc, Rank, Thread, ranks_in_words};

use crate::search::{Counterexample, Located, Operation};

/// Characters of a lane beyond which calls are left out of it.
const LANE_WIDTH: usize = 110;
/// Lanes beyond which ranks that do the same lines share one, whatever their operands.
const LANES_APART: usize = 4;

/// The operations of the ranks that are shown.
pub(in crate::report) type Lanes<'a> = Vec<(Rank, Vec<&'a Operation>)>;

/// The operations that a reader needs: on the ranks of the finding, what touches others, and what matters.
pub(in crate::report) fn lanes(shown: &Counterexample, ranks: u32) -> Lanes<'_> {
    let named: Vec<&Located> = shown.broken.ops.iter().chain(&shown.essential).collect();
    let mut wanted: BTreeSet<Rank> = named.iter().map(|at| at.op.rank).collect();
    for rank in 0..ranks.min(2) {
        if wanted.len() < 2 {
            wanted.insert(Rank(rank));
        }
    }
    let visible = |operation: &&Operation| {
        operation.kind != Kind::Bookkeeping || named.iter().any(|at| at.is(&operation.at))
    };
    let of = |rank| {
        let operations = shown.run.operations.iter().filter(|operation| operation.at.op.rank == rank);
        (rank, operations.filter(visible).collect())
    };
    wanted.into_iter().map(of).collect()
}

/// What the lanes say, line by line, and how many operations they show.
pub(super) struct Drawn {
    /// Whose lane it is, and what is done in it.
    pub(super) lines: Vec<(String, String)>,
    /// Operations that stand in one of the lines.
    pub(super) shown: usize,
}

/// Draws lanes. Ranks that do the same share one.
pub(super) fn draw(shown: &Counterexample, lanes: &Lanes<'_>) -> Drawn {
    let mut alike: Vec<SharedLane<'_>> = Vec::new();
    for (rank, operations) in lanes {
        let (text, count) = lane(shown, operations);
        match alike.iter_mut().find(|known| known.text == text) {
            Some(known) => {
                known.ranks.push(*rank);
                known.shown += count;
            }
            None => {
                let locs = operations.iter().map(|operation| &operation.at.loc).collect();
                let marked = operations.iter().any(|operation| is_essential(shown, &operation.at));
                alike.push(SharedLane { ranks: vec![*rank], text, shown: count, locs, marked });
            }
        }
    }
    let names = |ranks: &[Rank]| ranks_in_words(ranks.iter().copied());
    let mut drawn = Drawn { lines: Vec::new(), shown: 0 };
    let mut others: Vec<(usize, Vec<Rank>)> = Vec::new();
    for (nth, lane) in alike.iter().enumerate() {
        let like = alike[..nth].iter().position(|first| first.locs == lane.locs);
        match like.filter(|_| alike.len() > LANES_APART && !lane.marked) {
            Some(first) => match others.iter_mut().find(|(of, _)| *of == first) {
                Some((_, ranks)) => ranks.extend(&lane.ranks),
                None => others.push((first, lane.ranks.clone())),
            },
            None => {
                drawn.lines.push((names(&lane.ranks), lane.text.clone()));
                drawn.shown += lane.shown;
            }
        }
    }
    for (first, ranks) in others {
        let text = format!("the same lines as {}, with other operands", names(&alike[first].ranks));
        drawn.lines.push((names(&ranks), text));
    }
    drawn
}

/// A lane of ranks that do the same.
struct SharedLane<'a> {
    ranks: Vec<Rank>,
    text: String,
    shown: usize,
    locs: Vec<&'a Loc>,
    /// Whether something in it is marked.
    marked: bool,
}

/// One call of a lane, or several in a row that read the same.
struct LaneCell {
    text: String,
    thread: Thread,
    times: usize,
    /// Whether the finding names it, or it is marked.
    named: bool,
    /// Whether calls before it were left out.
    behind_gap: bool,
}

impl LaneCell {
    fn width(&self) -> usize {
        self.text.chars().count() + 2 + if self.times > 1 { 3 } else { 0 }
    }
}

fn is_essential(shown: &Counterexample, at: &Located) -> bool {
    shown.essential.iter().any(|essential| essential.is(at))
}

/// A lane, and how many operations it shows.
fn lane(shown: &Counterexample, operations: &[&Operation]) -> (String, usize) {
    let mut cells: Vec<LaneCell> = Vec::new();
    for Operation { at, call, .. } in operations {
        let marked = is_essential(shown, at);
        let of_finding = shown.broken.ops.iter().any(|op| op.is(at));
        let call = if of_finding { format!("»{call}") } else { call.clone() };
        let text = if marked { format!("[{call}]") } else { call };
        let named = marked || of_finding;
        match cells.last_mut() {
            Some(last) if last.text == text && last.thread == at.op.thread => {
                last.times += 1;
                last.named |= named;
            }
            _ => cells.push(LaneCell { text, thread: at.op.thread, times: 1, named, behind_gap: false }),
        }
    }
    let mut ends_in_gap = false;
    while cells.iter().map(LaneCell::width).sum::<usize>() > LANE_WIDTH && cells.len() > 2 {
        // What is not named goes first, the oldest before the others.
        let Some(at) = cells.iter().position(|cell| !cell.named) else { break };
        cells.remove(at);
        match cells.get_mut(at) {
            Some(next) => next.behind_gap = true,
            None => ends_in_gap = true,
        }
    }
    let mut text = String::new();
    // A lane begins in the first thread of its rank. Wherever it goes on in another one, that is said.
    let mut thread = Thread(0);
    for (nth, cell) in cells.iter().enumerate() {
        let between = if nth > 0 { "  " } else { "" };
        let gap = if cell.behind_gap { "… " } else { "" };
        let _ = write!(text, "{between}{gap}");
        if cell.thread != thread {
            let _ = write!(text, "thread {}: ", cell.thread.0);
            thread = cell.thread;
        }
        text.push_str(&cell.text);
        if cell.times > 1 {
            let _ = write!(text, " ×{}", cell.times);
        }
    }
    if ends_in_gap {
        text.push_str(" …");
    }
    (text, cells.iter().map(|cell| cell.times).sum())
}
