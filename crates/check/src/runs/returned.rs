//! What calls returned, held against what the model says of them.
//!
//! Every value that a run returned tests the model. Where the two contradict each other it is the model that is wrong, and
//! nothing that it says of the rank from there on is worth anything: so what is judged of the rank ends there, and
//! the rest is judged again.
//! Not here: what a call that the model has no operation for returned.

use rankcheck_model::machine::Standing;
use rankcheck_model::{
    GraphOp, LocId, Op, OpRef, Rank, State, Statement, Thread, ThreadOp, ThreadStart, WindowOp,
};
use rustc_hash::FxHashSet;

use super::judge::Recording;
use super::lower::{ModelSays, RankRun, RecordingEnd};

/// A call of which the model says what the recording contradicts.
#[derive(Debug, Clone, Copy)]
pub(super) struct Contradiction {
    pub(super) rank: Rank,
    pub(super) loc: LocId,
    /// The operation of the first thread that it is, or whose thread it is in.
    pub(super) at: usize,
    pub(super) says: ModelSays,
}

/// The first contradiction of each rank. That the model stands still where the run went on is none: programs have luck.
pub(super) fn contradictions(
    recording: &Recording,
    state: &State,
    standing: &[Standing],
) -> Vec<Contradiction> {
    let first = |rank: Rank| {
        let program = &recording.program.ranks[rank.at()];
        let stands = standing.iter().any(|standing| standing.op.rank == rank && standing.stream.is_none());
        let mut found: Vec<Contradiction> = Vec::new();
        let failed = state.rank(rank).failed();
        let succeeded = failed.iter().filter(|op| succeeded(program, op.loc));
        found.extend(succeeded.filter_map(|op| contradiction(program, *op, ModelSays::Fails)));
        // What a rank has not come to, the model says nothing of.
        if !stands {
            let unpredicted = failed_ops(program, rank).into_iter().filter(|op| !failed.contains(op));
            found.extend(unpredicted.filter_map(|op| contradiction(program, op, ModelSays::Succeeds)));
        }
        found.into_iter().min_by_key(|contradiction| contradiction.at)
    };
    recording.world.members.iter().filter_map(|member| first(member.rank)).collect()
}

/// Whether the call of an operation returned without an error.
fn succeeded(program: &RankRun, loc: LocId) -> bool {
    let Some(origin) = program.origin_of(loc) else { return false };
    let open = match &program.ending {
        RecordingEnd::Cut { inside } => inside.iter().any(|call| call.number == origin.number),
        RecordingEnd::Exit(_) => false,
    };
    !open && !program.failures.iter().any(|failure| failure.origin.number == origin.number)
}

/// The operations whose calls returned an error. Of most calls that did there is no operation.
fn failed_ops(program: &RankRun, rank: Rank) -> Vec<OpRef> {
    let numbers: FxHashSet<u32> = program.failures.iter().map(|failure| failure.origin.number).collect();
    if numbers.is_empty() {
        return Vec::new();
    }
    let failed = |statement: &Statement| {
        matches!(&*statement.op, Op::Window(WindowOp::Register { .. }) | Op::Graph(GraphOp::End { .. }))
            && program.origin_of(statement.loc).is_some_and(|origin| numbers.contains(&origin.number))
    };
    let blocks = (0..).zip(&program.blocks);
    let ops =
        blocks.flat_map(|(thread, block)| (0..).zip(&block.ops).map(move |(index, op)| (thread, index, op)));
    ops.filter(|(.., statement)| failed(statement))
        .map(|(thread, index, statement)| OpRef { rank, thread: Thread(thread), index, loc: statement.loc })
        .collect()
}

fn contradiction(program: &RankRun, op: OpRef, says: ModelSays) -> Option<Contradiction> {
    let position = |wanted: &dyn Fn(&Statement) -> bool| program.blocks[0].ops.iter().position(wanted);
    let at = position(&|statement| statement.loc == op.loc).or_else(|| {
        let of = program.blocks.iter().position(|block| block.ops.iter().any(|other| other.loc == op.loc))?;
        let start = ThreadStart(of as u64);
        position(&|statement| matches!(&*statement.op, Op::Thread(ThreadOp::Spawn { start: other }) if *other == start))
    })?;
    Some(Contradiction { rank: op.rank, loc: op.loc, at, says })
}
