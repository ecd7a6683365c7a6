//! What of a recorded run can be seen from outside, in the calls that its processes gave to their devices: when they were
//! made, and which rules they show to be broken.
//!
//! Not here: what somebody else saw ([`crate::launches`]).

use rankcheck_model::{Finding, Op, Rank, Rule};
use rankcheck_recording::{CallEvent, ProcessFile};
use rustc_hash::FxHashMap;

use super::RunError;
use super::call::CallKind;
use super::device_share::ShareFilter;
use super::judge::{Judged, Recording};

/// Returns when each rank entered its collectives and transfers, ascending, in nanoseconds since 1970.
///
/// # Errors
/// If a file of the recording cannot be read any more.
pub fn launch_times(recording: &Recording) -> Result<FxHashMap<u32, Vec<i64>>, RunError> {
    let mut times = FxHashMap::default();
    for member in &recording.world.members {
        let mut process = ProcessFile::open(&member.path)?;
        let began = recording.began[member.rank.at()];
        let mut of_rank: Vec<i64> = Vec::new();
        let mut launches: Vec<bool> = Vec::new();
        let mut filter = ShareFilter::new(member.share.as_ref());
        while let Some((_, event)) = filter.next(&mut process)? {
            let CallEvent::Enter { time, call, .. } = event else { continue };
            for shape in process.shapes().iter().skip(launches.len()) {
                let kind = CallKind::of(&shape.name);
                launches.push(matches!(kind, CallKind::Collective(_) | CallKind::Transfer(_)));
            }
            if launches[call.0 as usize] {
                of_rank.push(i64::try_from(began.saturating_add(time)).unwrap_or(i64::MAX));
            }
        }
        of_rank.sort_unstable();
        times.insert(member.rank.0, of_rank);
    }
    Ok(times)
}

/// Returns whether kinds, counts and types of calls show that a rule is broken. Reductions and roots are not among them.
#[must_use]
#[expect(clippy::wildcard_enum_match_arm, reason = "few rules and operations are about launches")]
pub fn shows_in_launches(judged: &Judged, finding: &Finding) -> bool {
    let launched = |rank: Rank, loc| {
        let statement = judged.recording.program.ranks[rank.at()].statement(loc)?;
        match &*statement.op {
            Op::Collective(call) => Some((call.kind.name(), call.count, call.dtype)),
            _ => None,
        }
    };
    match finding.rule {
        Rule::Coll2 | Rule::Coll4 | Rule::P2p4 => true,
        Rule::Coll3 => {
            let mut calls = finding.ops.iter().map(|op| launched(op.rank, op.loc));
            let first = calls.next();
            calls.any(|call| Some(call) != first)
        }
        _ => false,
    }
}
