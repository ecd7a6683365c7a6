//! Streams and kernels of a program on the device, and the waits for them, which all poll.
//!
//! Not here: events ([`super::event`]), collectives.

use std::sync::Arc;

use rankcheck_model::host::value::Value;
use rankcheck_model::term::kernel_number;
use rankcheck_model::{Operand, StreamOp, Token};

use super::dispatch::{Execute, Produced};
use super::inspect::WaitsFor;
use super::thread::{Halt, ProgramThread};
use super::value::range;
use crate::Error;
use crate::ffi::DeviceRange;
use crate::ffi::cuda::Completion;
use crate::graph::Capturing;
use crate::kernel::needs_scratch;
use crate::memory::CudaMemory;
use crate::stream::CudaStream;

impl Execute for StreamOp {
    fn execute(&self, thread: &mut ProgramThread<'_, '_>, text: &str) -> Produced {
        match self {
            Self::Kernel { name, reads, writes, stream } => {
                thread.kernel(text, *name, (reads, writes), *stream)?;
            }
            Self::Wait { stream, event } => thread.stream_wait(text, *stream, *event)?,
            Self::Synchronize { what } => thread.synchronize(text, what)?,
        }
        Ok(Vec::new())
    }
}

impl ProgramThread<'_, '_> {
    /// The stream of a name, made at its first use, and its number.
    pub(crate) fn stream(&self, name: Token) -> Result<(usize, Arc<CudaStream>), Halt> {
        let mut tables = self.run.tables();
        if let Some(at) = tables.streams.iter().position(|(known, _)| *known == name) {
            return Ok((at, Arc::clone(&tables.streams[at].1)));
        }
        let stream = Arc::new(self.run.shared.stream(&self.device)?);
        self.run.shared.inspect.stream(&self.run.source.token(name), &stream);
        tables.streams.push((name, Arc::clone(&stream)));
        Ok((tables.streams.len() - 1, stream))
    }

    /// Marks where the operation ends on its stream, so that somebody can see whether it did.
    pub(crate) fn launched(&self, stream: usize, index: Option<u32>) -> Result<(), Halt> {
        let on = Arc::clone(&self.run.tables().streams[stream].1);
        // What is recorded is not launched.
        if on.capturing()? != Capturing::No {
            return Ok(());
        }
        let over = Arc::new(self.run.shared.event(&self.device)?);
        over.record(&on)?;
        self.run.tables().marks.push(Arc::clone(&over));
        self.run.shared.inspect.launched(stream, index.map(|index| (self.number, index)), over);
        Ok(())
    }

    /// Launches something on a stream and marks where it ends there.
    pub(crate) fn launch(
        &self,
        text: &str,
        stream: Token,
        call: impl FnOnce(&Self, &CudaStream) -> Result<(), Error>,
    ) -> Result<(), Halt> {
        let (at, on) = self.stream(stream)?;
        let result = self.inside(text, WaitsFor::Hosts, |thread| call(thread, &on));
        if self.noted(text, result)?.is_some() {
            self.launched(at, Some(self.at().index))?;
        }
        Ok(())
    }

    fn kernel(
        &self,
        text: &str,
        name: Token,
        (reads, writes): (&[Operand], &[Operand]),
        stream: Token,
    ) -> Result<(), Halt> {
        let ranges = |operands: &[Operand]| -> Option<Vec<DeviceRange>> {
            operands.iter().map(|operand| Some(range(self.value(operand).buffer()?))).collect()
        };
        let (Some(reads), Some(writes)) = (ranges(reads), ranges(writes)) else { return Ok(()) };
        let number = kernel_number(self.run.rank, &self.run.source.token(name));
        self.launch(text, stream, |thread, on| {
            let mut sum = None;
            if needs_scratch(&reads, &writes) {
                let longest = writes.iter().map(DeviceRange::len_bytes).max().unwrap_or(0);
                let memory = CudaMemory::alloc(&thread.device, longest.max(1))?;
                sum = memory.range().slice(0, longest);
                thread.run.tables().sums.push(memory);
            }
            let what = (thread.run.element, number);
            thread.run.shared.code.run((&reads, &writes), sum.as_ref(), what, on)
        })
    }

    fn stream_wait(&self, text: &str, stream: Token, event: Token) -> Result<(), Halt> {
        // A stream exists from its first use, also where there is nothing to wait for.
        self.stream(stream)?;
        let Some(last) = self.last_record(event) else { return Ok(()) };
        self.launch(text, stream, |_, on| on.wait(&last))
    }

    fn synchronize(&mut self, text: &str, what: &Operand) -> Result<(), Halt> {
        let what = self.value(what);
        if self.refused_wait(text, &what)? {
            return Ok(());
        }
        match what {
            Value::Event(event) => {
                let last = {
                    let tables = self.run.tables();
                    let records = tables.events.get(&event).map(|row| &row.records);
                    let last = records.and_then(|records| records.last());
                    last.map(|last| (last.stream, last.nth, Arc::clone(&last.event)))
                };
                let Some((stream, nth, last)) = last else { return Ok(()) };
                self.wait_for(text, |_| last.query())?;
                self.run.tables().know(stream, nth + 1);
            }
            Value::Stream(stream) => {
                let on = {
                    let tables = self.run.tables();
                    tables.streams.iter().find(|(name, _)| *name == stream).map(|(_, on)| Arc::clone(on))
                };
                let Some(on) = on else { return Ok(()) };
                let before = self.run.tables().recorded;
                self.wait_for(text, |_| on.query())?;
                self.run.tables().know(stream, before);
            }
            Value::Null
            | Value::Bool(_)
            | Value::Int(_)
            | Value::Token(_)
            | Value::Comm(_)
            | Value::Buffer(_)
            | Value::Window(..)
            | Value::Handle(..)
            | Value::Thread(_)
            | Value::Trimmed(_)
            | Value::Address(_)
            | Value::Tuple(_)
            | Value::Device
            | Value::Foreign(_) => self.drain(text, WaitsFor::Device)?,
        }
        Ok(())
    }

    /// Waits for all streams of the rank, in a call that inspections see wait for this.
    pub(crate) fn drain(&self, text: &str, waits: WaitsFor) -> Result<(), Halt> {
        let (streams, before) = {
            let tables = self.run.tables();
            let streams: Vec<(Token, Arc<CudaStream>)> = tables.streams.clone();
            (streams, tables.recorded)
        };
        let all = || {
            for (_, stream) in &streams {
                if stream.query()? == Completion::Pending {
                    return Ok(Completion::Pending);
                }
            }
            Ok(Completion::Complete)
        };
        self.run.shared.open_gate();
        self.inside(text, waits, |thread| thread.poll_until(all))?;
        for (stream, _) in streams {
            self.run.tables().know(stream, before);
        }
        Ok(())
    }

    /// Waits for the device in a way that others can look into, with nothing held back.
    pub(crate) fn wait_for(
        &self,
        text: &str,
        query: impl Fn(&Self) -> Result<Completion, Error>,
    ) -> Result<(), Halt> {
        self.run.shared.open_gate();
        self.inside(text, WaitsFor::Device, |thread| thread.poll_until(|| query(thread)))
    }
}
