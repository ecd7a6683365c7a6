//! CUDA graphs: streams that record instead of running, and replays of what was recorded.
//!
//! A capture keeps what a launch has chosen: buffers, windows, the kernel. A replay enqueues the same again, with
//! the clock of whoever replays; so everything that judges a launch judges a replay. The origin of the capture runs
//! on the stream of the replay, every other captured stream on a hidden stream of the graph.
//! Source: `specs/rules/graph.md`. Not here: what the recorded operations do.
#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "an operand of another kind is as good as null, and verbs are dispatched by noun"
)]

mod table;

use crate::cx::{Cx, Here};
use crate::describe::{Describe, Description};
use crate::machine::Kind;
use crate::noun::pool::Plan;
use crate::op::{Show, Verb};
use crate::program::Operand;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub(crate) use self::table::Graphs;
use self::table::{Graph, GraphNode, Reach, Stage, merge, named, recording};
use crate::host::value::{BlockId, Buffer, CommId, Owner, Value};
use crate::id::Token;
use crate::judge::finding::{About, OpRef, Rule};
use crate::machine::Machine;
use crate::noun::collective::Launch;
use crate::noun::event::NthRecord;
use crate::noun::group::LaunchedBy;
use crate::noun::p2p::Transfers;
use crate::noun::stream::{OwnName, Queued, Work};
use crate::order::dependence::{Access, Object, ObjectKind};
use crate::platform::RegistrationInCapture;
use crate::rank::Rank;
use crate::state::{RankState, State, Table};

/// Which calls a stream capture forbids to whom (`cudaStreamCaptureMode`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CaptureMode {
    /// Unsafe calls of every thread of the process.
    Global,
    /// Unsafe calls of the thread that began it.
    ThreadLocal,
    /// Only waits for the streams that record.
    Relaxed,
}

impl Describe for CaptureMode {
    fn describe(&self, to: &mut Description<'_>) {
        to.word(match self {
            Self::Global => "Global",
            Self::ThreadLocal => "ThreadLocal",
            Self::Relaxed => "Relaxed",
        });
    }
}

/// Operations on CUDA graphs.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum GraphOp {
    /// `cudaStreamBeginCapture`: what is launched on the stream from now on is recorded, not run.
    Begin {
        /// The graph that is recorded.
        graph: Token,
        /// The stream; events pull others in.
        stream: Token,
        /// What the capture forbids.
        mode: CaptureMode,
        /// A pool whose blocks stay reserved while the graph lives.
        pool: Option<Token>,
    },
    /// `cudaStreamEndCapture` and `cudaGraphInstantiate`. Produces the graph (null if the capture failed).
    End {
        /// Name of the graph, among those of this rank.
        graph: Token,
    },
    /// `cudaGraphLaunch`: what was recorded runs, with what was recorded.
    Replay {
        /// Name of the graph, among those of this rank.
        graph: Token,
        /// Stream it is launched on.
        stream: Token,
    },
    /// `cudaGraphExecDestroy` and `cudaGraphDestroy`, after which nothing can replay it.
    Destroy {
        /// Name of the graph, among those of this rank.
        graph: Token,
    },
}

impl GraphOp {
    fn graph(&self) -> Token {
        let (Self::Begin { graph, .. }
        | Self::End { graph }
        | Self::Replay { graph, .. }
        | Self::Destroy { graph }) = self;
        *graph
    }

    pub(crate) fn object(&self) -> Object {
        Object::named(ObjectKind::Graph, self.graph())
    }
}

impl Describe for GraphOp {
    fn describe(&self, to: &mut Description<'_>) {
        match self {
            Self::Begin { graph, stream, mode, pool } => {
                to.call("GraphBegin", &[("graph", graph), ("stream", stream), ("mode", mode), ("pool", pool)])
            }
            Self::End { graph } => to.call("GraphEnd", &[("graph", graph)]),
            Self::Replay { graph, stream } => to.call("GraphReplay", &[("graph", graph), ("stream", stream)]),
            Self::Destroy { graph } => to.call("GraphDestroy", &[("graph", graph)]),
        }
    }
}

impl Verb for GraphOp {
    fn slots(&self) -> u32 {
        match self {
            Self::Begin { .. } | Self::Replay { .. } | Self::Destroy { .. } => 0,
            Self::End { .. } => 1,
        }
    }

    fn kind(&self) -> Kind {
        Kind::Alike
    }

    fn display(&self, show: &Show<'_>) -> String {
        let name = |token: &Token| show.name(*token);
        match self {
            Self::Begin { graph, stream, .. } => format!("{}.begin({})", name(graph), name(stream)),
            Self::End { graph } => format!("{}.end", name(graph)),
            Self::Replay { graph, stream } => format!("{}.replay({})", name(graph), name(stream)),
            Self::Destroy { graph } => format!("{}.destroy", name(graph)),
        }
    }

    fn footprint(&self, here: Here<'_>, each: &mut dyn FnMut(Object, Access)) {
        let objects = here.m.graph_objects(here.state, here.rank, self);
        objects.into_iter().for_each(|(object, how)| each(object, how));
    }

    fn apply(&self, cx: &mut Cx<'_>, _: Plan) {
        cx.run_graph(self);
    }
}

/// `ncclUnhandledCudaError`, which NCCL returns where CUDA refuses a call because of a capture.
pub(crate) const UNHANDLED: i32 = 1;
/// `cudaErrorInvalidValue`: there is no such graph, or an event's last record was captured and the capture has ended.
pub(crate) const INVALID_VALUE: i32 = 1;
/// `cudaErrorStreamCaptureUnsupported`: operation not permitted when stream is capturing.
pub(crate) const UNSUPPORTED: i32 = 900;
/// `cudaErrorCapturedEvent`: the capture that recorded the event goes on.
pub(crate) const CAPTURED_EVENT: i32 = 907;
/// `cudaErrorStreamCaptureInvalidated`: an earlier error invalidated the capture.
const INVALIDATED: i32 = 901;
/// `cudaErrorStreamCaptureUnjoined`: the capture ends with a fork that its first stream does not wait for.
const UNJOINED: i32 = 904;
/// `cudaErrorStreamCaptureWrongThread`.
const WRONG_THREAD: i32 = 908;
/// `cudaErrorStreamCaptureIsolation`: a stream that records waits for what is not recorded.
const ISOLATION: i32 = 905;
/// `cudaErrorStreamCaptureMerge`: what a wait in one capture for an event of another returns (measured).
const MERGE: i32 = 902;
/// `cudaErrorIllegalState`: the stream records already, or nothing records.
const ILLEGAL_STATE: i32 = 401;

impl Machine {
    /// Whether some stream of the rank records: a caching allocator polls no events then.
    pub(crate) fn captures(&self, state: &State, rank: Rank) -> bool {
        Graphs::of(state.rank(rank)).rows.iter().any(|(_, graph)| graph.records())
    }

    // -- recording

    /// A launch on a stream that records goes into its graph. Gives it back where the stream runs it.
    pub(crate) fn record_or(
        &self,
        state: &mut State,
        rank: Rank,
        stream: Token,
        op: Queued,
    ) -> Option<Queued> {
        let at = recording(state.rank(rank), stream);
        let Some(at) = at else { return Some(op) };
        self.cx(state, rank, op.issuer().thread.0).access(Object::CAPTURE, Access::Write);
        let graph = &mut Graphs::of_mut(state.rank_mut(rank)).rows[at].1;
        if graph.stage == Stage::Recording {
            graph.push(stream, op.work, op.op);
            return None;
        }
        let (thread, code) = (op.issuer().thread.0, INVALIDATED);
        match &op.work {
            Work::Kernel(kernel) => {
                let call = format!("kernel {}", self.name(kernel.name));
                self.cx(state, rank, thread).fail(call, code);
            }
            Work::Collective(launch) => {
                let call = format!("{}.{}", self.comm_name_on(rank, launch.comm), launch.call.kind.name());
                self.cx(state, rank, thread).fail(call, UNHANDLED);
                // NCCL has numbered what it could not launch.
                Self::undefine(state, op.op);
            }
            Work::Transfers(launch) => {
                // It has no sequence number in the launch order yet, so nothing of it can be over.
                let call = self.transfer_name(launch.comm, &launch.transfers[0]);
                self.cx(state, rank, thread).fail(call, UNHANDLED);
                Self::undefine(state, op.op);
            }
            Work::Copy { .. } => self.cx(state, rank, thread).fail("copy".to_owned(), code),
            Work::Flag(flag, act) => {
                self.cx(state, rank, thread).fail(format!("{}.{}", self.name(*flag), act.words()), code);
            }
            // An expectation is no call.
            Work::Expect(_) | Work::Fresh(_) | Work::GiveBack(_) | Work::Record(..) | Work::Wait(..) => {}
        }
        None
    }

    /// The graph into which launches on a stream are recorded.
    pub(crate) fn records(&self, state: &State, rank: Rank, stream: Token) -> Option<Token> {
        let r = state.rank(rank);
        recording(r, stream).map(|at| Graphs::of(r).rows[at].0)
    }

    /// The position of a launch among those of its communicator: in the recording, or in the rank's run.
    pub(crate) fn launch_position(&self, state: &State, rank: Rank, comm: CommId, stream: Token) -> u32 {
        let r = state.rank(rank);
        match recording(r, stream) {
            Some(at) => u32::try_from(Graphs::of(r).rows[at].1.launches(comm).count()).expect("few launches"),
            None => self.launched(state, rank, comm),
        }
    }

    /// A record on a stream that records stands in the graph alone. Returns whether it does.
    pub(crate) fn record_captured(
        &self,
        state: &mut State,
        rank: Rank,
        (event, stream): (Token, Token),
        op: OpRef,
    ) -> bool {
        let Some(at) = recording(state.rank(rank), stream) else {
            // Recorded anew outside, the event has left every recording.
            if !Graphs::of(state.rank(rank)).rows.is_empty() {
                for (_, graph) in &mut Graphs::of_mut(state.rank_mut(rank)).rows {
                    graph.records.remove(&event);
                }
            }
            return false;
        };
        self.cx(state, rank, op.thread.0).access(Object::CAPTURE, Access::Write);
        let graph = &mut Graphs::of_mut(state.rank_mut(rank)).rows[at].1;
        if graph.stage == Stage::Invalid {
            let call = format!("{}.record({})", self.name(event), self.name(stream));
            self.cx(state, rank, op.thread.0).fail(call, INVALIDATED);
            return true;
        }
        let nth = graph.records.get(&event).map_or(0, |(nth, _)| *nth) + 1;
        graph.push(stream, Work::Record(NthRecord { event, nth }), op);
        let reach = graph.streams[&stream].clone();
        graph.records.insert(event, (nth, reach));
        // A recorded call that failed is not there to be judged.
        if !self.source.hides_order() {
            state.rank_mut(rank).captures_record(event, op);
        }
        true
    }

    /// A block was handed out while graphs record.
    pub(crate) fn block_captured(&self, state: &mut State, rank: Rank, (pool, block): (Token, BlockId)) {
        if !self.captures(state, rank) {
            return;
        }
        for (_, graph) in &mut Graphs::of_mut(state.rank_mut(rank)).rows {
            if graph.records() && graph.pool == Some(pool) {
                graph.blocks.insert(block);
            }
        }
    }

    /// Whether a living graph keeps the blocks of a pool.
    pub(crate) fn reserved(rank: &RankState, pool: Token) -> bool {
        Graphs::of(rank).rows.iter().any(|(_, graph)| graph.lives() && graph.pool == Some(pool))
    }

    /// What a verb of a graph touches.
    fn graph_objects(&self, state: &State, rank: Rank, verb: &GraphOp) -> Vec<(Object, Access)> {
        let mut objects = vec![(verb.object(), Access::Write)];
        let r = state.rank(rank);
        let graph = named(r, verb.graph()).map(|at| &Graphs::of(r).rows[at].1);
        match verb {
            GraphOp::Begin { stream, .. } => {
                objects.push((Object::CAPTURE, Access::Write));
                objects.push((Object::named(ObjectKind::Stream, *stream), Access::Write));
            }
            GraphOp::End { .. } => {
                objects.push((Object::CAPTURE, Access::Write));
                for stream in graph.iter().flat_map(|graph| graph.streams.keys()) {
                    objects.push((Object::named(ObjectKind::Stream, *stream), Access::Write));
                }
            }
            GraphOp::Replay { stream, .. } => {
                objects.push((Object::named(ObjectKind::Stream, *stream), Access::Write));
                objects.push((Object::DEVICE, Access::Read));
                for node in graph.iter().flat_map(|graph| graph.nodes.iter()) {
                    // It takes the next place in the launch order, which no call of NCCL does here.
                    if let Some((comm, _)) = node.work.sequence() {
                        objects.push((Object::comm(comm), Access::Write));
                    }
                    let buffers = match &node.work {
                        Work::Fresh(buffer) => vec![&**buffer],
                        work => work.buffers(),
                    };
                    for buffer in buffers {
                        objects.push((Object::memory(buffer.memory), Access::Read));
                    }
                }
                if let Some(pool) = graph.and_then(|graph| graph.pool) {
                    objects.push((Object::named(ObjectKind::Pool, pool), Access::Read));
                }
            }
            GraphOp::Destroy { .. } => {
                // A pool is trimmed and a communicator destroyed only once no graph keeps it.
                for node in graph.iter().flat_map(|graph| graph.nodes.iter()) {
                    if let Some((comm, _)) = node.work.sequence() {
                        objects.push((Object::comm(comm), Access::Write));
                    }
                }
                if let Some(pool) = graph.and_then(|graph| graph.pool) {
                    objects.push((Object::named(ObjectKind::Pool, pool), Access::Write));
                }
            }
        }
        objects
    }

    // -- communicators

    /// A living graph that captured a launch of a communicator, and where.
    pub(crate) fn capturing(state: &State, rank: Rank, comm: CommId) -> Option<(Token, OpRef)> {
        let graphs = &Graphs::of(state.rank(rank)).rows;
        graphs.iter().find_map(|(name, graph)| {
            let of = |node: &&GraphNode| node.work.sequence().is_some_and(|(of, _)| of == comm);
            let launch = graph.nodes.iter().find(of).filter(|_| graph.lives())?;
            Some((*name, launch.op))
        })
    }
}

impl Here<'_> {
    /// Whether a stream records, and what it recorded is lost.
    pub(crate) fn capture_is_lost(self, stream: Token) -> bool {
        let r = self.me();
        recording(r, stream).is_some_and(|at| Graphs::of(r).rows[at].1.stage == Stage::Invalid)
    }
}

impl Cx<'_> {
    /// A forbidden call returns its error and takes the recording with it.
    pub(crate) fn refuse_in_capture(&mut self, (at, call): (usize, &str), op: OpRef) {
        self.judge_in_capture((at, call), op);
        self.invalidate(at);
    }

    /// A capture is lost, and so is every other that forbids the call.
    pub(crate) fn invalidate(&mut self, at: usize) {
        let thread = self.thread;
        let begin = Graphs::of(self.me()).rows[at].1.begin;
        for (_, graph) in &mut Graphs::of_mut(self.me_mut()).rows {
            if graph.stage == Stage::Recording && (graph.forbids(thread) || graph.begin == begin) {
                graph.stage = Stage::Invalid;
            }
        }
    }

    /// A call that the capture of a graph forbids.
    fn judge_in_capture(&mut self, (at, call): (usize, &str), op: OpRef) {
        let (m, rank) = (self.m, self.rank);
        let past = self.here().past();
        let r = self.me();
        let (name, begin, origin) =
            (Graphs::of(r).rows[at].0, Graphs::of(r).rows[at].1.begin, Graphs::of(r).rows[at].1.origin);
        m.find(self.state, Rule::Graph1, About::Of(rank, name), &[op, begin], past, || {
            format!(
                "rank {} calls {call} ({}) while stream {} records {} (begun at {}): the call fails and the \
                 capture is lost",
                rank.0,
                m.at(&op),
                m.name_behind_stream(origin),
                m.name(name),
                m.at(&begin),
            )
        });
    }

    /// Runs a verb that a capture forbids, if one does.
    pub(crate) fn refused(&mut self, verb: &dyn Verb) -> bool {
        let op = self.op;
        let forbidden = verb.refused_by(self.here());
        if verb.unsafe_in_capture() {
            self.access(Object::CAPTURE, Access::Read);
        }
        let Some((at, code)) = forbidden else { return false };
        let call = self.here().show(&mut |show| verb.display(show));
        if verb.met_before(self.here()) {
            self.judge_in_capture((at, &call), op);
            return false;
        }
        self.refuse_in_capture((at, &call), op);
        let called = verb.call_name(self.here());
        self.fail(called, code);
        let nulls = vec![Value::Null; verb.slots() as usize];
        self.done(&nulls);
        true
    }

    /// A wait of a stream that records, or for a record of one, which pulls the stream in. Returns whether it is
    /// one of these.
    pub(crate) fn wait_captured(&mut self, (stream, event): (Token, Token)) -> bool {
        let (m, op) = (self.m, self.op);
        let r = self.me();
        let into = recording(r, stream);
        let of = Graphs::of(r).rows.iter().position(|(_, g)| g.records() && g.records.contains_key(&event));
        let call = || format!("{}.wait({})", m.name(stream), m.name(event));
        if of.is_none() && r.captured_record(event).is_some() {
            self.access(Object::CAPTURE, if into.is_some() { Access::Write } else { Access::Read });
            let captured = self.judge_captured_event(event, "lets a stream wait for", call);
            if let Some(into) = into {
                Graphs::of_mut(self.me_mut()).rows[into].1.stage = Stage::Invalid;
            }
            return captured;
        }
        if into.or(of).is_some() {
            self.access(Object::CAPTURE, Access::Write);
            self.m.ask_if_recorded(event);
        }
        let r = self.me();
        let at = match (into, of) {
            (None, None) => return false,
            (None, Some(of)) => of,
            (Some(into), Some(of)) if into == of => of,
            // Before its first record an event holds nobody up.
            (Some(_), None) if r.generation(event) == 0 => return true,
            (Some(into), _) => {
                self.malformed((into, &call()), op, "waits for what it does not record");
                // Where both record, neither goes on (measured).
                for at in [Some(into), of].into_iter().flatten() {
                    Graphs::of_mut(self.me_mut()).rows[at].1.stage = Stage::Invalid;
                }
                self.fail(call(), if of.is_some() { MERGE } else { ISOLATION });
                return true;
            }
        };
        let graph = &mut Graphs::of_mut(self.me_mut()).rows[at].1;
        if graph.stage == Stage::Invalid {
            self.fail(call(), INVALIDATED);
            return true;
        }
        let (nth, reach) = graph.records[&event].clone();
        merge(graph.streams.entry(stream).or_default(), &reach);
        graph.push(stream, Work::Wait(NthRecord { event, nth }), op);
        true
    }

    fn malformed(&mut self, (at, call): (usize, &str), op: OpRef, why: &str) {
        let (m, rank) = (self.m, self.rank);
        let past = self.here().past();
        let (name, graph) = &Graphs::of(self.me()).rows[at];
        let (name, begin) = (*name, graph.begin);
        m.find(self.state, Rule::Graph6, About::Of(rank, name), &[op, begin], past, || {
            format!(
                "rank {} calls {call} ({}), and {} (begun at {}) {why}",
                rank.0,
                m.at(&op),
                m.name(name),
                m.at(&begin)
            )
        });
    }

    // -- the verbs

    pub(crate) fn run_graph(&mut self, verb: &GraphOp) {
        let (m, rank, op) = (self.m, self.rank, self.op);
        let objects = m.graph_objects(self.state, rank, verb);
        for (object, how) in objects {
            self.access(object, how);
        }
        match verb {
            GraphOp::Begin { .. } => self.graph_begin(verb),
            GraphOp::End { graph } => self.graph_end(*graph),
            GraphOp::Replay { graph, stream } => {
                self.graph_replay((*graph, *stream));
            }
            GraphOp::Destroy { graph } => {
                let at = self.made((*graph, "destroys"), op);
                if let Some(at) = at {
                    let row = &mut Graphs::of_mut(self.me_mut()).rows[at].1;
                    row.stage = Stage::Destroyed;
                    row.nodes = Arc::default();
                }
                self.done(&[]);
            }
        }
    }

    fn graph_begin(&mut self, verb: &GraphOp) {
        let (thread, op) = (self.thread, self.op);
        let GraphOp::Begin { graph: name, stream, mode, pool } = verb else { unreachable!("a begin") };
        let r = self.me_mut();
        let existing = named(r, *name).filter(|at| Graphs::of(r).rows[*at].1.lives());
        let clash = existing.map(|at| (at, "was captured already"));
        let clash = clash.or_else(|| Some((recording(r, *stream)?, "records on this stream already")));
        if let Some((at, why)) = clash {
            let call = self.here().show(&mut |show| verb.display(show));
            self.malformed((at, &call), op, why);
            self.fail(call, ILLEGAL_STATE);
            self.done(&[]);
            return;
        }
        Graphs::of_mut(r).rows.retain(|(of, _)| of != name);
        let graph = Graph {
            stage: Stage::Recording,
            mode: *mode,
            thread,
            begin: op,
            origin: *stream,
            pool: *pool,
            nodes: Arc::default(),
            blocks: BTreeSet::new(),
            streams: BTreeMap::from([(*stream, Reach::new())]),
            records: BTreeMap::new(),
        };
        Graphs::of_mut(r).rows.push((*name, graph));
        self.done(&[]);
    }

    fn graph_end(&mut self, name: Token) {
        let (m, rank, op) = (self.m, self.rank, self.op);
        let r = self.me_mut();
        let call = format!("{}.end", m.name(name));
        let Some(at) = named(r, name).filter(|at| Graphs::of(r).rows[*at].1.records()) else {
            let past = self.here().past();
            m.find(self.state, Rule::Graph6, About::Of(rank, name), &[op], past, || {
                format!(
                    "rank {} ends the capture of {} that it did not begin ({})",
                    rank.0,
                    m.name(name),
                    m.at(&op)
                )
            });
            self.fail(call, ILLEGAL_STATE);
            self.done(&[Value::Null]);
            return;
        };
        let graph = &Graphs::of(r).rows[at].1;
        let (begin, mode) = (graph.begin, graph.mode);
        if begin.thread != op.thread && mode != CaptureMode::Relaxed {
            let past = self.here().past();
            m.find(self.state, Rule::Graph6, About::Of(rank, name), &[op, begin], past, || {
                format!(
                    "rank {} ends the capture of {} by thread {} ({}), and thread {} began it ({})",
                    rank.0,
                    m.name(name),
                    op.thread.0,
                    m.at(&op),
                    begin.thread.0,
                    m.at(&begin)
                )
            });
            // The stream records on, and nobody says what that does to the calls that follow.
            Machine::undefine(self.state, op);
            self.fail(call, WRONG_THREAD);
            self.done(&[Value::Null]);
            return;
        }
        let graph = &mut Graphs::of_mut(self.me_mut()).rows[at].1;
        let code = match graph.stage {
            Stage::Recording if graph.joined() => None,
            Stage::Recording => Some(UNJOINED),
            Stage::Invalid | Stage::Made | Stage::Failed | Stage::Destroyed => Some(INVALIDATED),
        };
        graph.stage = if code.is_some() { Stage::Failed } else { Stage::Made };
        graph.streams.clear();
        graph.records.clear();
        let Some(code) = code else {
            self.done(&[Value::Token(name)]);
            return;
        };
        graph.nodes = Arc::default();
        if code == UNJOINED {
            self.malformed((at, &call), op, "does not wait for all its streams");
        }
        self.fail(call, code);
        self.done(&[Value::Null]);
    }

    /// The graph that a call names, if it can be replayed.
    fn made(&mut self, (name, does): (Token, &str), op: OpRef) -> Option<usize> {
        let (m, rank) = (self.m, self.rank);
        let r = self.me();
        let at = named(r, name);
        if let Some(at) = at
            && Graphs::of(r).rows[at].1.stage == Stage::Made
        {
            return Some(at);
        }
        let past = self.here().past();
        let known = at.map(|at| &Graphs::of(r).rows[at].1).map(|graph| (graph.begin, graph.stage));
        let mut ops = vec![op];
        ops.extend(known.map(|(begin, _)| begin));
        let verb = if does == "replays" { "replay" } else { "destroy" };
        m.find(self.state, Rule::Graph6, About::Of(rank, name), &ops, past, || {
            let why = known.map_or_else(
                || "which was never captured".to_owned(),
                |(begin, stage)| {
                    let begun = format!("(begun at {})", m.at(&begin));
                    match stage {
                        Stage::Recording | Stage::Invalid => format!("whose capture {begun} has not ended"),
                        Stage::Failed => format!("whose capture {begun} gave no graph"),
                        Stage::Made | Stage::Destroyed => format!("whose graph {begun} is destroyed"),
                    }
                },
            );
            format!("rank {} {does} {} ({}), {why}", rank.0, m.name(name), m.at(&op))
        });
        self.fail(format!("{}.{verb}", m.name(name)), INVALID_VALUE);
        None
    }

    // -- replay

    fn graph_replay(&mut self, (name, stream): (Token, Token)) {
        let (m, rank, op) = (self.m, self.rank, self.op);
        let Some(at) = self.made((name, "replays"), op) else {
            self.done(&[]);
            return;
        };
        if let Some(into) = recording(self.me(), stream) {
            self.malformed((into, &format!("{}.replay", m.name(name))), op, "takes no graph");
            Machine::undefine(self.state, op);
            self.done(&[]);
            return;
        }
        let mut graph = Graphs::of(self.me()).rows[at].1.clone();
        let freed = self.judge_replay((name, &graph), op);
        if !freed.is_empty() {
            // No free waits for a use that was launched after it, whichever of the two a stream comes to first.
            let nodes = Arc::make_mut(&mut graph.nodes);
            nodes.iter_mut().for_each(|node| node.work.forget_blocks(&freed));
        }
        let issue = self.this().clock().clone();
        let replay = op;
        let enqueue = |state: &mut State, stream: Token, work: Work, op: OpRef| {
            let op = Queued { work, issue: issue.clone(), op, replay: Some(replay) };
            m.enqueue(state, rank, stream, op);
        };
        // A replay waits for the one before it, whichever stream that was on.
        let own = |of: Token| m.own_name(OwnName::OfGraph { graph: name, of });
        let over = own(name);
        let before = self.me().last_record(over);
        enqueue(self.state, stream, Work::Wait(before), op);
        let mut records: BTreeMap<Token, u32> = BTreeMap::new();
        let mut launched: BTreeMap<CommId, u32> = BTreeMap::new();
        let runs_on = |of: Token| if of == graph.origin { stream } else { own(of) };
        for node in graph.nodes.iter() {
            let on = runs_on(node.stream);
            let mut instance = |state: &State, captured: NthRecord| {
                let event = own(captured.event);
                let base = *records.entry(event).or_insert_with(|| state.rank(rank).generation(event));
                NthRecord { event, nth: base + captured.nth }
            };
            match &node.work {
                Work::Kernel(_) | Work::Copy { .. } | Work::Flag(..) => {
                    self.me_mut().executed_mut().others += 1;
                    enqueue(self.state, on, node.work.clone(), node.op);
                }
                Work::Expect(_) | Work::Fresh(_) | Work::GiveBack(_) => {
                    enqueue(self.state, on, node.work.clone(), node.op)
                }
                Work::Collective(captured) => {
                    let comm = captured.comm;
                    let before = *launched.entry(comm).or_insert_with(|| m.launched(self.state, rank, comm));
                    let launch = Launch { written: before + captured.written, ..Launch::clone(captured) };
                    self.issue_launch(launch, on, Some(op));
                }
                Work::Transfers(captured) => {
                    let (sequence, issue) = self.next_launch((captured.comm, op), LaunchedBy::Graph);
                    let issued = Transfers { sequence, issue, ..Transfers::clone(captured) };
                    self.count_transfers(&issued);
                    enqueue(self.state, on, Work::Transfers(Arc::new(issued)), node.op);
                }
                Work::Record(captured) => {
                    let record = instance(self.state, *captured);
                    enqueue(self.state, on, Work::Record(record), node.op);
                }
                Work::Wait(captured) => {
                    let record = instance(self.state, *captured);
                    enqueue(self.state, on, Work::Wait(record), node.op);
                }
            }
        }
        for node in graph.nodes.iter() {
            if let Work::Record(NthRecord { event, nth }) = node.work {
                let event = own(event);
                self.me_mut().note_records(event, records[&event] + nth);
            }
        }
        let over = self.me_mut().records(over);
        enqueue(self.state, stream, Work::Record(over), op);
        self.done(&[]);
    }

    /// Judges whether what a graph captured is still there. Returns the blocks that were freed.
    fn judge_replay(&mut self, (name, graph): (Token, &Graph), op: OpRef) -> BTreeSet<BlockId> {
        let mut freed = BTreeSet::new();
        // A block's first contents say less than what uses it.
        let fresh = |node: &&GraphNode| matches!(node.work, Work::Fresh(_));
        let uses = graph.nodes.iter().filter(|node| !fresh(node));
        for node in uses.chain(graph.nodes.iter().filter(fresh)) {
            for buffer in node.work.buffers() {
                freed.extend(self.judge_captured((name, graph, buffer), [op, node.op]));
            }
            if let Work::Collective(launch) = &node.work {
                self.judge_captured_windows((name, launch), op);
            }
        }
        freed
    }

    /// Judges whether some memory that a graph captured is still there. Returns the block in it that was freed.
    fn judge_captured(
        &mut self,
        (name, graph, buffer): (Token, &Graph, &Buffer),
        ops: [OpRef; 2],
    ) -> Option<BlockId> {
        let (m, rank) = (self.m, self.rank);
        if buffer.through.is_some() {
            let clock = self.this().clock().clone();
            m.judge_closed(self.state, rank, buffer, ops[0], &clock);
            return None;
        }
        let r = self.me();
        let gone = r.is_gone(buffer.memory);
        let freed = buffer.block.filter(|block| !r.is_live(*block));
        if !gone && freed.is_none() {
            return None;
        }
        let reserved = matches!(buffer.memory.owner, Owner::Pool(pool) if graph.pool == Some(pool));
        let new_owner = if gone { None } else { r.new_owner(buffer) };
        let freed_by = r.memory(buffer.memory).filter(|_| gone).and_then(|memory| memory.freed_by());
        let captured =
            |block: &BlockId| Graphs::of(r).rows.iter().any(|(_, graph)| graph.blocks.contains(block));
        if !gone && reserved && new_owner.as_ref().is_none_or(captured) {
            return None;
        }
        let past = self.here().past();
        m.find(self.state, Rule::Graph2, About::Memory(rank, buffer.memory), &ops, past, || {
            let now = match (gone, new_owner, freed_by) {
                (true, _, Some(by)) => format!("its memory went back to the driver at {}", m.at(&by)),
                (true, _, None) => "its memory went back to the driver".to_owned(),
                (false, Some(_), _) => "another buffer lies there now".to_owned(),
                (false, None, _) => "the next allocation may get it".to_owned(),
            };
            let whole = match buffer.memory.owner {
                Owner::Pool(_) => format!(" of {}", m.memory_name(buffer.memory)),
                Owner::Program(_) => String::new(),
            };
            format!(
                "rank {} replays {} ({}), which captured {}{whole} ({}) that is freed since: {now}",
                rank.0,
                m.name(name),
                m.at(&ops[0]),
                m.buffer_name(buffer),
                m.at(&ops[1]),
            )
        });
        if gone {
            Machine::undefine(self.state, ops[0]);
        } else if new_owner.is_some() {
            self.me_mut().spoil();
        }
        freed
    }

    fn judge_captured_windows(&mut self, (name, launch): (Token, &Launch), op: OpRef) {
        let (m, rank) = (self.m, self.rank);
        let comm = launch.comm;
        for (nth, _) in [launch.send_window, launch.recv_window].into_iter().flatten() {
            let window = self.state.rank(rank).comm(comm).and_then(|comm_state| comm_state.window(nth));
            if window.is_some_and(|window| window.is_live()) {
                continue;
            }
            let past = self.here().past();
            m.find(self.state, Rule::Graph3, About::Window(comm, nth), &[op, launch.op], past, || {
                format!(
                    "rank {} replays {} ({}), which captured {} through window #{nth} of {} ({}), after the \
                     window was deregistered",
                    rank.0,
                    m.name(name),
                    m.at(&op),
                    m.call_name(launch),
                    m.comm_name(comm),
                    m.at(&launch.op),
                )
            });
            // The kernel's arguments name an address that is unmapped, or another window (`allocator.cc:330-447`).
            Machine::undefine(self.state, op);
        }
    }
}

impl<'a> Here<'a> {
    // -- what a capture forbids

    /// The capture that refuses what `cudaStreamCaptureMode` forbids to this thread.
    pub(crate) fn refused_by_mode(self) -> Option<(usize, i32)> {
        Some((self.forbidden_query()?, UNSUPPORTED))
    }

    /// The capture that refuses a wait for a stream, an event or the device, because that records.
    pub(crate) fn refuses_wait(self, what: &Operand) -> Option<(usize, i32)> {
        let r = self.me();
        let position =
            |wanted: &dyn Fn(&Graph) -> bool| Graphs::of(r).rows.iter().position(|(_, graph)| wanted(graph));
        if Graphs::of(r).rows.is_empty() {
            return None;
        }
        match Machine::value(self.state, self.rank, what) {
            Value::Stream(stream) => Some((recording(r, stream)?, UNSUPPORTED)),
            Value::Event(event) => Some((self.capture_of(event)?, CAPTURED_EVENT)),
            _ => Some((position(&Graph::records)?, UNSUPPORTED)),
        }
    }

    /// The graph that records and holds the last record of an event.
    pub(crate) fn capture_of(self, event: Token) -> Option<usize> {
        let holds = |graph: &Graph| graph.records() && graph.records.contains_key(&event);
        Graphs::of(self.me()).rows.iter().position(|(_, graph)| holds(graph))
    }

    /// Whether what is launched on a stream now is recorded.
    pub(crate) fn records_on(self, stream: Token) -> bool {
        recording(self.me(), stream).is_some()
    }

    /// The graph whose capture makes a registration of this thread fail.
    pub(crate) fn registers_in_capture(self) -> Option<usize> {
        let Here { m, .. } = self;
        match m.config.platform.registration_in_capture() {
            RegistrationInCapture::Refused => self.forbidden_query(),
            RegistrationInCapture::Done => None,
        }
    }

    /// The graph whose capture makes a poll of an event by this thread fail.
    pub(crate) fn forbidden_query(self) -> Option<usize> {
        let Here { thread, .. } = self;
        Graphs::of(self.me()).rows.iter().position(|(_, graph)| graph.forbids(thread))
    }
}
