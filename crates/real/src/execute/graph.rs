//! Captures and replays of a program on the device.
//!
//! Threads of programs have relaxed their capture mode, so that nothing that is done for a program beside its own
//! calls invalidates a capture; the program's calls are made unrelaxed. Not here: what is recorded.

use std::sync::Arc;

use rankcheck_model::host::value::{CommId, Value};
use rankcheck_model::{CaptureMode, GraphOp, Token};

use super::dispatch::{Execute, Produced};
use super::inspect::WaitsFor;
use super::tables::Tables;
use super::thread::{Halt, ProgramThread};
use super::value::OnDevice;
use crate::Error;
use crate::graph::{Capturing, CudaGraph};
use crate::stream::CudaStream;

/// `CUDA_ERROR_INVALID_VALUE`: what a call on no graph returns.
const INVALID_VALUE: i32 = 1;
/// `CUDA_ERROR_ILLEGAL_STATE`: what a second begin returns.
const ILLEGAL_STATE: i32 = 401;

/// Where a graph stands.
#[derive(Debug)]
pub(crate) enum GraphStage {
    /// The stream on which the capture was begun records.
    Recording(Arc<CudaStream>),
    Made(CudaGraph),
    Gone,
}

/// A graph of the program.
#[derive(Debug)]
pub(crate) struct GraphRow {
    pub(crate) stage: GraphStage,
    /// The pool whose blocks it keeps.
    pub(crate) pool: Option<Token>,
    /// The communicators of which it captured collectives.
    pub(crate) comms: Vec<CommId>,
}

impl GraphRow {
    pub(crate) fn lives(&self) -> bool {
        !matches!(self.stage, GraphStage::Gone)
    }

    pub(crate) fn records(&self) -> bool {
        matches!(self.stage, GraphStage::Recording(_))
    }

    /// Gives back what is left of it.
    pub(crate) fn end(self) -> Result<(), Error> {
        match self.stage {
            GraphStage::Made(graph) => graph.end(),
            GraphStage::Recording(_) | GraphStage::Gone => Ok(()),
        }
    }
}

impl Tables {
    /// Whether a capture of the rank has begun and not ended.
    pub(crate) fn captures(&self) -> bool {
        self.graphs.values().any(GraphRow::records)
    }

    /// Whether a living graph keeps the blocks of a pool.
    pub(crate) fn reserved(&self, pool: Token) -> bool {
        self.graphs.values().any(|row| row.lives() && row.pool == Some(pool))
    }

    /// Whether a living graph captured a collective of a communicator.
    pub(crate) fn captured(&self, comm: CommId) -> bool {
        self.graphs.values().any(|row| row.lives() && row.comms.contains(&comm))
    }

    /// Ends the captures that the program left open.
    pub(crate) fn end_captures(&mut self) {
        for row in self.graphs.values_mut() {
            if let GraphStage::Recording(stream) = &row.stage {
                row.stage = CudaGraph::finish(stream).map_or(GraphStage::Gone, GraphStage::Made);
            }
        }
    }
}

impl Execute for GraphOp {
    fn execute(&self, thread: &mut ProgramThread<'_, '_>, text: &str) -> Produced {
        match self {
            Self::Begin { graph, stream, mode, pool } => {
                thread.graph_begin(text, *graph, (*stream, *mode), *pool)?;
            }
            Self::End { graph } => return thread.graph_end(text, *graph).map(|made| vec![made]),
            Self::Replay { graph, stream } => thread.graph_replay(text, *graph, *stream)?,
            Self::Destroy { graph } => thread.graph_destroy(text, *graph)?,
        }
        Ok(Vec::new())
    }
}

impl ProgramThread<'_, '_> {
    /// Makes a call as the program would: captures forbid it what they forbid.
    pub(crate) fn unrelaxed<T>(&self, call: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
        self.device.unrelaxed(call)?
    }

    fn graph_begin(
        &self,
        text: &str,
        graph: Token,
        (stream, mode): (Token, CaptureMode),
        pool: Option<Token>,
    ) -> Result<(), Halt> {
        if self.run.tables().graphs.get(&graph).is_some_and(GraphRow::lives) {
            self.failed(text.to_owned(), ILLEGAL_STATE, None);
            return Ok(());
        }
        let (_, on) = self.stream(stream)?;
        let result = self.inside(text, WaitsFor::Hosts, |_| CudaGraph::begin(&on, mode));
        if self.noted(text, result)?.is_some() {
            let row = GraphRow { stage: GraphStage::Recording(on), pool, comms: Vec::new() };
            self.run.tables().graphs.insert(graph, row);
        }
        Ok(())
    }

    fn graph_end(&self, text: &str, graph: Token) -> Result<Value<OnDevice>, Halt> {
        let origin = match self.run.tables().graphs.get(&graph).map(|row| &row.stage) {
            Some(GraphStage::Recording(stream)) => Some(Arc::clone(stream)),
            Some(GraphStage::Made(_) | GraphStage::Gone) | None => None,
        };
        let Some(origin) = origin else {
            self.failed(text.to_owned(), ILLEGAL_STATE, None);
            return Ok(Value::Null);
        };
        let made = self.inside(text, WaitsFor::Hosts, |_| CudaGraph::finish(&origin));
        let made = self.noted(text, made)?;
        let name = self.run.source.token(graph);
        let value = if made.is_some() { Value::Token(name) } else { Value::Null };
        let mut tables = self.run.tables();
        if let Some(row) = tables.graphs.get_mut(&graph) {
            row.stage = made.map_or(GraphStage::Gone, GraphStage::Made);
        }
        Ok(value)
    }

    fn graph_replay(&self, text: &str, graph: Token, stream: Token) -> Result<(), Halt> {
        let call = format!("{}.replay", self.run.source.token(graph));
        let (at, on) = self.stream(stream)?;
        let result = self.inside(text, WaitsFor::Hosts, |thread| {
            let tables = thread.run.tables();
            match tables.graphs.get(&graph).map(|row| &row.stage) {
                Some(GraphStage::Made(made)) => Some(made.launch(&on)),
                Some(GraphStage::Recording(_) | GraphStage::Gone) | None => None,
            }
        });
        let Some(result) = result else {
            self.failed(call, INVALID_VALUE, None);
            return Ok(());
        };
        if self.noted(&call, result)?.is_some() {
            self.launched(at, Some(self.at().index))?;
        }
        Ok(())
    }

    fn graph_destroy(&self, text: &str, graph: Token) -> Result<(), Halt> {
        let taken = {
            let mut tables = self.run.tables();
            match tables.graphs.get_mut(&graph) {
                Some(row) if matches!(row.stage, GraphStage::Made(_)) => {
                    row.comms.clear();
                    Some(std::mem::replace(&mut row.stage, GraphStage::Gone))
                }
                Some(_) | None => None,
            }
        };
        let Some(GraphStage::Made(made)) = taken else {
            self.failed(text.to_owned(), INVALID_VALUE, None);
            return Ok(());
        };
        let result = self.inside(text, WaitsFor::Hosts, |_| made.end());
        self.noted(text, result)?;
        self.run.changed.notify_all();
        Ok(())
    }

    /// Makes a wait that a capture forbids; whether it was one.
    pub(crate) fn refused_wait(&self, text: &str, what: &Value<OnDevice>) -> Result<bool, Halt> {
        let captured =
            matches!(what, Value::Event(event) if self.run.tables().captured_events.contains_key(event));
        if !captured && !self.run.tables().captures() {
            return Ok(false);
        }
        let streams = self.run.tables().streams.clone();
        let result = if let Value::Event(event) = what {
            let captured = self.run.tables().captured_events.get(event).map(Arc::clone);
            captured.map(|captured| self.unrelaxed(|| captured.query()).map(drop))
        } else {
            let named = |name: &Token| if let Value::Stream(of) = what { name == of } else { true };
            let mut recording = None;
            for (name, stream) in &streams {
                if named(name) && stream.capturing()? != Capturing::No {
                    recording = Some(stream);
                }
            }
            // Neither blocks: a stream that records cannot be waited for, nor can its device.
            recording.map(|stream| self.unrelaxed(|| stream.synchronize()))
        };
        let Some(result) = result else { return Ok(false) };
        self.noted(text, result)?;
        Ok(true)
    }

    /// Notes that a collective of a communicator was captured, if its stream records.
    pub(crate) fn captured_collective(&self, comm: CommId, stream: &CudaStream) -> Result<(), Halt> {
        if stream.capturing()? != Capturing::Active {
            return Ok(());
        }
        // A program captures one graph at a time, or streams of several that share no communicator.
        let mut tables = self.run.tables();
        for row in tables.graphs.values_mut().filter(|row| row.records()) {
            if !row.comms.contains(&comm) {
                row.comms.push(comm);
            }
        }
        Ok(())
    }
}
