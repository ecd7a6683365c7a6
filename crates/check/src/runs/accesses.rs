//! Which operations raced, and for which bytes.
//!
//! Not here: that they did ([`rankcheck_model`]).

use rankcheck_model::{Direction, Op, OpRef, Operand, StreamOp};

use super::judge::RunProgram;
use super::lower::{Origin, RankRun};

/// Bytes of a buffer that an operation reads or writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Touched<'a> {
    of: &'a Operand,
    from: u64,
    to: u64,
    writes: bool,
}

/// The two operations of a race in the order of their calls, with the bytes of which one writes what the other touches.
pub(super) fn raced(program: &RunProgram, ops: &[OpRef]) -> Option<String> {
    let [one, other] = ops else { return None };
    let (one, other) = if other.index < one.index { (other, one) } else { (one, other) };
    let rank = |op: &OpRef| &program.ranks[op.rank.at()];
    let (mine, theirs) = (rank(one).statement(one.loc)?, rank(other).statement(other.loc)?);
    let named = |op: &OpRef, touched: Option<Touched<'_>>| {
        let origin = program.origin(op.loc)?;
        let call = call(program, rank(op), &origin);
        Some(match touched {
            Some(touched) => {
                let verb = if touched.writes { "writes" } else { "reads" };
                format!("{call} {verb} bytes {} to {}", touched.from, touched.to)
            }
            None => call,
        })
    };
    let (first, second) = (touched(&mine.op), touched(&theirs.op));
    let alone = one == other;
    let overlap = first.iter().find_map(|a| {
        let meets = |b: &&Touched<'_>| {
            // What one operation writes, it may read as well.
            let clash = if alone { a.writes && !b.writes } else { a.writes || b.writes };
            one.rank == other.rank && a.of == b.of && a.from < b.to && b.from < a.to && clash
        };
        second.iter().find(meets).map(|b| (*a, *b))
    });
    if let (true, Some((written, read))) = (alone, overlap) {
        let reads = named(one, Some(read))?;
        return Some(format!("{reads} and writes bytes {} to {}", written.from, written.to));
    }
    let (a, b) = overlap.map_or((None, None), |(a, b)| (Some(a), Some(b)));
    Some(format!("{}, and {}", named(one, a)?, named(other, b)?))
}

fn call(program: &RunProgram, rank: &RankRun, origin: &Origin) -> String {
    let (name, loc) = (program.names.text(origin.name), rank.loc(origin, &program.names).to_string());
    if loc.contains(&*name) { loc } else { format!("{name} ({loc})") }
}

/// What an operation touches, as far as it names buffers.
#[expect(clippy::wildcard_enum_match_arm, reason = "few operations touch buffers")]
fn touched(op: &Op) -> Vec<Touched<'_>> {
    let of = |operand, writes| match operand {
        &Operand::Slice { ref of, offset_bytes, len_bytes } => {
            Some(Touched { of, from: offset_bytes, to: offset_bytes + len_bytes, writes })
        }
        _ => None,
    };
    let all: Vec<Option<Touched<'_>>> = match op {
        Op::Collective(call) => vec![of(&call.recv, true), of(&call.send, false)],
        Op::Transfer(call) => vec![of(&call.buffer, call.direction == Direction::Recv)],
        Op::Stream(StreamOp::Kernel { reads, writes, .. }) => {
            let writes = writes.iter().map(|operand| of(operand, true));
            writes.chain(reads.iter().map(|operand| of(operand, false))).collect()
        }
        _ => Vec::new(),
    };
    all.into_iter().flatten().collect()
}
