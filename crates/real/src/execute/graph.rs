//! Captures and replays of a program on the device.
//!
//! Threads of programs have relaxed their capture mode, so that nothing that is done for a program beside its own
//! calls invalidates a capture; the program's calls are made unrelaxed. Not here: what is recorded.

use std::sync::Arc;

use rankcheck_model::{CaptureMode, GraphOp, Op, Token};

use super::inspect::WaitsFor;
use super::tables::Tables;
use super::thread::{Stop, Thread, refused_by_capture};
use super::value::Value;
use crate::Error;
use crate::graph::{Capturing, Graph};
use crate::stream::Stream;

/// `CUDA_ERROR_INVALID_VALUE`: what a call on no graph returns.
const INVALID_VALUE: i32 = 1;
/// `CUDA_ERROR_ILLEGAL_STATE`: what a second begin returns.
const ILLEGAL_STATE: i32 = 401;

/// Where a graph stands.
#[derive(Debug)]
pub(crate) enum Stage {
    /// The stream on which the capture was begun records.
    Recording(Arc<Stream>),
    Made(Graph),
    Gone,
}

/// A graph of the program.
#[derive(Debug)]
pub(crate) struct GraphRow {
    pub(crate) stage: Stage,
    /// The pool whose blocks it keeps.
    pub(crate) pool: Option<Token>,
    /// The communicators of which it captured collectives.
    pub(crate) comms: Vec<usize>,
}

impl GraphRow {
    pub(crate) fn lives(&self) -> bool {
        !matches!(self.stage, Stage::Gone)
    }

    pub(crate) fn records(&self) -> bool {
        matches!(self.stage, Stage::Recording(_))
    }

    /// Gives back what is left of it.
    pub(crate) fn end(self) -> Result<(), Error> {
        match self.stage {
            Stage::Made(graph) => graph.end(),
            Stage::Recording(_) | Stage::Gone => Ok(()),
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
    pub(crate) fn captured(&self, comm: usize) -> bool {
        self.graphs.values().any(|row| row.lives() && row.comms.contains(&comm))
    }

    /// Ends the captures that the program left open.
    pub(crate) fn end_captures(&mut self) {
        for row in self.graphs.values_mut() {
            if let Stage::Recording(stream) = &row.stage {
                row.stage = Graph::finish(stream).map_or(Stage::Gone, Stage::Made);
            }
        }
    }
}

impl Thread<'_, '_> {
    /// Makes a call as the program would: captures forbid it what they forbid.
    pub(crate) fn unrelaxed<T>(&self, call: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
        self.device.unrelaxed(call)?
    }

    pub(crate) fn graph_begin(&mut self, verb: &Op) -> Result<(), Stop> {
        let Op::Graph(GraphOp::Begin { graph, stream, mode, pool }) = verb else { unreachable!("a begin") };
        let words = self.words(verb);
        if self.run.tables().graphs.get(graph).is_some_and(GraphRow::lives) {
            self.failed(words, ILLEGAL_STATE, None);
            return Ok(());
        }
        let (_, on) = self.stream(*stream)?;
        let mode: CaptureMode = *mode;
        let result = self.inside(&words, WaitsFor::Hosts, |_| Graph::begin(&on, mode));
        if self.noted(&words, result)?.is_some() {
            let row = GraphRow { stage: Stage::Recording(on), pool: *pool, comms: Vec::new() };
            self.run.tables().graphs.insert(*graph, row);
        }
        Ok(())
    }

    pub(crate) fn graph_end(&mut self, verb: &Op, graph: Token) -> Result<Value, Stop> {
        let words = self.words(verb);
        let origin = match self.run.tables().graphs.get(&graph).map(|row| &row.stage) {
            Some(Stage::Recording(stream)) => Some(Arc::clone(stream)),
            Some(Stage::Made(_) | Stage::Gone) | None => None,
        };
        let Some(origin) = origin else {
            self.failed(words, ILLEGAL_STATE, None);
            return Ok(Value::Null);
        };
        let made = self.inside(&words, WaitsFor::Hosts, |_| Graph::finish(&origin));
        let made = self.noted(&words, made)?;
        let name = self.run.source.token(graph);
        let value = if made.is_some() { Value::Name(name) } else { Value::Null };
        let mut tables = self.run.tables();
        tables.captured_events.clear();
        if let Some(row) = tables.graphs.get_mut(&graph) {
            row.stage = made.map_or(Stage::Gone, Stage::Made);
        }
        Ok(value)
    }

    pub(crate) fn graph_replay(&mut self, verb: &Op, graph: Token, stream: Token) -> Result<(), Stop> {
        let words = self.words(verb);
        let call = format!("{}.replay", self.run.source.token(graph));
        let (at, on) = self.stream(stream)?;
        let result = self.inside(&words, WaitsFor::Hosts, |thread| {
            let tables = thread.run.tables();
            match tables.graphs.get(&graph).map(|row| &row.stage) {
                Some(Stage::Made(made)) => Some(made.launch(&on)),
                Some(Stage::Recording(_) | Stage::Gone) | None => None,
            }
        });
        let Some(result) = result else {
            self.failed(call, INVALID_VALUE, None);
            return Ok(());
        };
        if self.noted(&call, result)?.is_some() {
            self.launched(at, self.at().index)?;
        }
        Ok(())
    }

    pub(crate) fn graph_destroy(&mut self, verb: &Op, graph: Token) -> Result<(), Stop> {
        let words = self.words(verb);
        let taken = {
            let mut tables = self.run.tables();
            match tables.graphs.get_mut(&graph) {
                Some(row) if matches!(row.stage, Stage::Made(_)) => {
                    row.comms.clear();
                    Some(std::mem::replace(&mut row.stage, Stage::Gone))
                }
                Some(_) | None => None,
            }
        };
        let Some(Stage::Made(made)) = taken else {
            self.failed(words, INVALID_VALUE, None);
            return Ok(());
        };
        let result = self.inside(&words, WaitsFor::Hosts, |_| made.end());
        self.noted(&words, result)?;
        self.run.changed.notify_all();
        Ok(())
    }

    /// Makes a wait that a capture forbids; whether it was one.
    pub(crate) fn refused_wait(&self, words: &str, what: &Value) -> Result<bool, Stop> {
        if !self.run.tables().captures() {
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
        self.noted(words, result)?;
        Ok(true)
    }

    /// Whether an event is seen complete; a capture may forbid to ask.
    pub(crate) fn query(&self, event: Token) -> Result<bool, Stop> {
        if self.run.tables().captures() {
            let last = {
                let tables = self.run.tables();
                let records = tables.events.get(&event).map(|row| &row.records);
                let last = records.and_then(|records| records.last()).map(|record| &record.event);
                tables.captured_events.get(&event).or(last).map(Arc::clone)
            };
            let last = match last {
                Some(last) => last,
                None => Arc::new(self.run.shared.event(&self.device)?),
            };
            let result = self.unrelaxed(|| last.query());
            self.run.tables().marks.push(last);
            if result.as_ref().is_err_and(|error| error.cuda_code().is_some_and(refused_by_capture)) {
                let call = format!("{}.query", self.run.source.token(event));
                return self.noted(&call, result).map(|_| false);
            }
        }
        self.seen(event, u32::MAX)
    }

    /// Notes that a collective of a communicator was captured, if its stream records.
    pub(crate) fn collected(&self, comm: usize, stream: &Stream) -> Result<(), Stop> {
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
