//! Which ways of waiting of a process were recorded, and which findings rest on there having been no other.
//!
//! That memory is used without waiting is a conclusion from what is not there. Where a process may have waited in a
//! way that its recording does not show, it cannot be drawn.
//! Not here: what waits order, which is the model's.

use rankcheck_model::{
    EventOp, Finding, GraphOp, MemoryOp, Op, OpRef, Operand, Rule, StreamOp, Thread, Token,
};
use rustc_hash::{FxHashMap, FxHashSet};

use super::call::{Allocator, CallKind, Unjudged};
use super::judge::RunProgram;
use super::lower::RankRun;

/// A way in which a process may have waited for anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MayWait {
    /// A stream calls a function of the host, and when that ran was not recorded.
    HostFunction,
    /// It waits for an event that other processes know, and which record of it that is was not recorded.
    SharedEvent,
    /// It waits for another of its devices, and what that had waited for by then is not followed.
    OtherDevice,
}

impl MayWait {
    /// What the process does, as what follows its rank.
    fn clause(self) -> &'static str {
        match self {
            Self::HostFunction => "has a stream call functions of the host in between",
            Self::SharedEvent => "waits for events that processes share in between",
            Self::OtherDevice => "waits for another device of its process in between",
        }
    }
}

/// What of the ways of waiting of a process was recorded.
#[derive(Debug, Clone, Default)]
pub(super) struct RecordedWaits {
    /// Whether calls of the driver were recorded by which programs wait.
    pub(super) driver: bool,
    /// Calls of the driver, which a program makes that has its runtime linked in.
    driver_calls: u64,
    /// Launches of kernels among them.
    driver_launches: u64,
    /// Whether a call was recorded by which a program waits, orders, copies or allocates.
    device_calls: bool,
    /// Before which operations of the first thread it may have waited for anything.
    may_wait: Vec<(MayWait, usize)>,
}

impl RecordedWaits {
    /// A call that succeeded.
    pub(super) fn called(&mut self, kind: CallKind, name: &str) {
        let driver = name.starts_with("cu") && name.as_bytes().get(2).is_some_and(u8::is_ascii_uppercase);
        self.driver_calls += u64::from(driver);
        self.driver_launches += u64::from(driver && kind == CallKind::Unjudged(Unjudged::Kernel));
        self.device_calls |= matches!(
            kind,
            CallKind::StreamCreate
                | CallKind::Synchronize(_)
                | CallKind::Query(_)
                | CallKind::EventRecord
                | CallKind::StreamWaitEvent
                | CallKind::Copy(_)
                | CallKind::Allocate(Allocator::Cuda | Allocator::CudaPitched | Allocator::CudaAsync)
        );
    }

    /// The process may have waited for anything; `ops` operations of the first thread come before what follows that.
    pub(super) fn may_wait(&mut self, way: MayWait, ops: usize) {
        self.may_wait.push((way, ops));
    }

    /// Whether kernels were launched through the driver by a process of which no other work with the device was
    /// recorded.
    fn launches_alone(&self) -> bool {
        self.driver_launches > 0 && !self.device_calls
    }

    /// Why what a process did with its device may be missing from its recording.
    pub(super) fn missing(&self) -> Option<&'static str> {
        self.launches_alone().then_some(
            "kernels are launched through the driver, and no wait, copy or allocation was recorded: the CUDA runtime may \
             be linked into the program",
        )
    }

    /// How the process may have waited behind an operation and before another one.
    fn may_wait_between(&self, after: OpRef, before: Option<OpRef>) -> Option<MayWait> {
        // Where other threads are among the calls of the first is not known.
        let from = if after.thread == Thread(0) { after.index as usize } else { 0 };
        let to = before.filter(|op| op.thread == Thread(0)).map_or(usize::MAX, |op| op.index as usize);
        let mut between = self.may_wait.iter().filter(|(_, at)| (from + 1..=to).contains(at));
        between.next().map(|(way, _)| *way)
    }
}

/// The streams that a process was seen to wait for, on the host or on another stream.
#[derive(Debug, Default)]
struct AwaitedStreams {
    all: bool,
    streams: FxHashSet<Token>,
}

impl AwaitedStreams {
    #[expect(clippy::wildcard_enum_match_arm, reason = "few operations wait")]
    fn of(program: &RankRun) -> Self {
        let mut awaited = Self::default();
        let mut recorded: FxHashMap<Token, FxHashSet<Token>> = FxHashMap::default();
        for statement in program.blocks.iter().flat_map(|block| &block.ops) {
            match &*statement.op {
                Op::Event(EventOp { event, stream }) => {
                    recorded.entry(*event).or_default().insert(*stream);
                }
                Op::Stream(StreamOp::Synchronize { what: Operand::Stream(stream) }) => {
                    awaited.streams.insert(*stream);
                }
                Op::Stream(
                    StreamOp::Synchronize { what: Operand::Event(event) } | StreamOp::Wait { event, .. },
                ) => {
                    awaited.streams.extend(recorded.get(event).into_iter().flatten());
                }
                Op::Stream(StreamOp::Synchronize { .. }) => awaited.all = true,
                _ => {}
            }
        }
        awaited
    }
}

/// The stream on which an operation is launched.
#[expect(clippy::wildcard_enum_match_arm, reason = "few operations are launched")]
fn stream_of(op: &Op) -> Option<Token> {
    match op {
        Op::Collective(call) => Some(call.stream),
        Op::Transfer(call) => Some(call.stream),
        Op::Stream(StreamOp::Kernel { stream, .. })
        | Op::Graph(GraphOp::Replay { stream, .. })
        | Op::Memory(MemoryOp::FreeOn { stream, .. }) => Some(*stream),
        _ => None,
    }
}

/// Whether a rule says that something was not waited for.
fn rests_on_waits(rule: Rule) -> bool {
    [Rule::Mem1, Rule::Mem2, Rule::Win9, Rule::Win12].contains(&rule)
}

/// Whether a finding is about one call, or about calls of one group: nobody can wait in between.
fn runs_together(finding: &Finding, program: &RunProgram) -> bool {
    let Some((first, others)) = finding.ops.split_first() else { return false };
    let end = |op: &OpRef| program.ranks[op.rank.at()].end_of_group(op.loc);
    let with_first =
        |op: &OpRef| op == first || op.rank == first.rank && end(op).is_some_and(|of| end(first) == Some(of));
    !others.is_empty() && others.iter().all(with_first)
}

/// Why a finding cannot be said: a rank that it is about may have waited in a way that was not recorded.
pub(super) fn doubt(finding: &Finding, program: &RunProgram) -> Option<String> {
    if !rests_on_waits(finding.rule) || runs_together(finding, program) {
        return None;
    }
    finding.ops.iter().find_map(|op| {
        let run = &program.ranks[op.rank.at()];
        if let Some(missing) = run.waits.missing() {
            return Some(format!("on rank {} {missing}", op.rank.0));
        }
        let mut ops = run.blocks.iter().flat_map(|block| &block.ops);
        let stream = ops.find(|statement| statement.loc == op.loc).and_then(|found| stream_of(&found.op))?;
        if run.waits.driver_calls > 0 && !run.waits.driver {
            let awaited = AwaitedStreams::of(run);
            if !awaited.all && !awaited.streams.contains(&stream) {
                return Some(format!(
                    "rank {} calls the driver, whose waits this recording leaves out, and was not seen to wait for {}; \
                     record it again",
                    op.rank.0,
                    program.names.text(stream)
                ));
            }
        }
        let position = |op: &OpRef| (op.thread, op.index);
        let mut others = finding.ops.iter().filter(|other| other.rank == op.rank && *other != op).peekable();
        // What comes behind the last of them comes too late to order them.
        let ordered = others.peek().is_some();
        let next = others.filter(|other| position(other) > position(op)).min_by_key(|other| position(other));
        if next.is_none() && ordered {
            return None;
        }
        let way = run.waits.may_wait_between(*op, next.copied())?;
        Some(format!("rank {} {}, through which it may have waited", op.rank.0, way.clause()))
    })
}
