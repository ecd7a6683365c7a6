//! Streams, events and kernels of a program on the device, and the waits for them, which all poll.
//!
//! Not here: collectives.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use rankcheck_model::{Op, Operand, Token};

use super::device::locked;
use super::inspect::WaitsFor;
use super::luck::Kind;
use super::tables::EventRecord;
use super::thread::{Stop, Thread};
use super::value::Value;
use crate::case::Pick;
use crate::ffi::DeviceRange;
use crate::ffi::cuda::Progress;
use crate::graph::Capturing;
use crate::kernel::needs_scratch;
use crate::memory::Memory;
use crate::stream::Stream;

/// How long a stream is kept busy at most, so that an event on it is not complete too early.
const HOLD_NANOSECONDS: u64 = 200_000_000;

impl Thread<'_, '_> {
    /// The stream of a name, made at its first use, and its number.
    pub(crate) fn stream(&self, name: Token) -> Result<(usize, Arc<Stream>), Stop> {
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
    pub(crate) fn launched(&self, stream: usize, index: u32) -> Result<(), Stop> {
        let on = Arc::clone(&self.run.tables().streams[stream].1);
        // What is recorded is not launched.
        if on.capturing()? != Capturing::No {
            return Ok(());
        }
        let over = Arc::new(self.run.shared.event(&self.device)?);
        over.record(&on)?;
        self.run.tables().marks.push(Arc::clone(&over));
        self.run.shared.inspect.launched(stream, (self.number, index), over);
        Ok(())
    }

    pub(crate) fn kernel(
        &mut self,
        verb: &Op,
        name: Token,
        (reads, writes): (&[Operand], &[Operand]),
        stream: Token,
    ) -> Result<(), Stop> {
        let ranges = |operands: &[Operand]| -> Option<Vec<DeviceRange>> {
            let tables = self.run.tables();
            let range = |operand| tables.buffer(&*self.run.source, operand).map(|buffer| buffer.range());
            operands.iter().map(range).collect()
        };
        let (Some(reads), Some(writes)) = (ranges(reads), ranges(writes)) else { return Ok(()) };
        let (at, stream) = self.stream(stream)?;
        let words = self.words(verb);
        let number = rankcheck_model::term::kernel_number(self.run.rank, &self.run.source.token(name));
        let result = self.inside(&words, WaitsFor::Hosts, |thread| {
            let mut sum = None;
            if needs_scratch(&reads, &writes) {
                let longest = writes.iter().map(DeviceRange::len_bytes).max().unwrap_or(0);
                let memory = Memory::alloc(&thread.device, longest.max(1))?;
                sum = memory.range().slice(0, longest);
                thread.run.tables().sums.push(memory);
            }
            let what = (thread.run.element, number);
            thread.run.shared.kernels.run((&reads, &writes), sum.as_ref(), what, &stream)
        });
        if self.noted(&words, result)?.is_some() {
            self.launched(at, self.at().index)?;
        }
        Ok(())
    }

    pub(crate) fn copy(
        &mut self,
        verb: &Op,
        (to, from): (&Operand, &Operand),
        stream: Token,
    ) -> Result<(), Stop> {
        let range = |operand: &Operand| {
            self.run.tables().buffer(&*self.run.source, operand).map(|buffer| buffer.range())
        };
        let (Some(to), Some(from)) = (range(to), range(from)) else { return Ok(()) };
        let (at, stream) = self.stream(stream)?;
        let words = self.words(verb);
        let result = self.inside(&words, WaitsFor::Hosts, |_| stream.copy(&from, &to));
        if self.noted(&words, result)?.is_some() {
            self.launched(at, self.at().index)?;
        }
        Ok(())
    }

    pub(crate) fn event_record(&mut self, verb: &Op, event: Token, stream: Token) -> Result<(), Stop> {
        let (at, on) = self.stream(stream)?;
        let words = self.words(verb);
        let record = Arc::new(self.run.shared.event(&self.device)?);
        let captured = on.capturing()? != Capturing::No;
        let hold = !captured && locked(&self.run.luck).not_yet();
        let result = self.inside(&words, WaitsFor::Hosts, |thread| {
            let shared = thread.run.shared;
            if hold {
                // Somebody is to see an event before it is complete; without this it would be too late.
                let ticket = shared.ticket.fetch_add(1, Ordering::SeqCst) + 1;
                shared.kernels.spin(&shared.gate, ticket, HOLD_NANOSECONDS, &on)?;
            }
            record.record(&on)
        });
        if self.noted(&words, result)?.is_some() {
            let mut tables = self.run.tables();
            if captured {
                if let Some(before) = tables.captured_events.insert(event, record) {
                    tables.marks.push(before);
                }
                return Ok(());
            }
            let left = tables.captured_events.remove(&event);
            tables.marks.extend(left);
            self.run.shared.inspect.launched(at, (self.number, self.at().index), Arc::clone(&record));
            let nth = tables.recorded;
            tables.recorded += 1;
            let records = &mut tables.events.entry(event).or_default().records;
            records.push(EventRecord { event: record, stream, nth, known: false });
        }
        Ok(())
    }

    pub(crate) fn stream_wait(&mut self, verb: &Op, stream: Token, event: Token) -> Result<(), Stop> {
        let (at, on) = self.stream(stream)?;
        let words = self.words(verb);
        // The most recent record at the time of the call; before any, the wait does nothing.
        let last = {
            let tables = self.run.tables();
            let records = tables.events.get(&event).map(|row| &row.records);
            let last = records.and_then(|records| records.last()).map(|record| &record.event);
            tables.captured_events.get(&event).or(last).map(Arc::clone)
        };
        let Some(last) = last else { return Ok(()) };
        let result = self.inside(&words, WaitsFor::Hosts, |_| on.wait(&last));
        if self.noted(&words, result)?.is_some() {
            self.launched(at, self.at().index)?;
        }
        Ok(())
    }

    pub(crate) fn synchronize(&mut self, verb: &Op, what: &Operand) -> Result<(), Stop> {
        let words = self.words(verb);
        let what = self.value(what);
        if self.refused_wait(&words, &what)? {
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
                self.wait_for(&words, |_| last.query())?;
                self.run.tables().know(stream, nth + 1);
            }
            Value::Stream(stream) => {
                let on = {
                    let tables = self.run.tables();
                    tables.streams.iter().find(|(name, _)| *name == stream).map(|(_, on)| Arc::clone(on))
                };
                let Some(on) = on else { return Ok(()) };
                let before = self.run.tables().recorded;
                self.wait_for(&words, |_| on.query())?;
                self.run.tables().know(stream, before);
            }
            Value::Null
            | Value::Bool(_)
            | Value::Int(_)
            | Value::Name(_)
            | Value::Comm(_)
            | Value::Buffer(_)
            | Value::Window(..)
            | Value::Handle(_)
            | Value::Thread(_)
            | Value::Trimmed(_)
            | Value::Address(_)
            | Value::Tuple(_)
            | Value::Device
            | Value::Foreign(_) => self.drain(&words)?,
        }
        Ok(())
    }

    /// Waits for all streams of the rank.
    pub(crate) fn drain(&self, words: &str) -> Result<(), Stop> {
        let (streams, before) = {
            let tables = self.run.tables();
            let streams: Vec<(Token, Arc<Stream>)> = tables.streams.clone();
            (streams, tables.recorded)
        };
        self.wait_for(words, |_| {
            for (_, stream) in &streams {
                if stream.query()? == Progress::Pending {
                    return Ok(Progress::Pending);
                }
            }
            Ok(Progress::Complete)
        })?;
        for (stream, _) in streams {
            self.run.tables().know(stream, before);
        }
        Ok(())
    }

    /// Waits for the device in a way that others can look into, with nothing held back.
    fn wait_for(
        &self,
        words: &str,
        query: impl Fn(&Self) -> Result<Progress, crate::Error>,
    ) -> Result<(), Stop> {
        self.run.shared.open_gate();
        self.inside(words, WaitsFor::Device, |thread| thread.poll_until(|| query(thread)))
    }

    /// Whether the n-th record of an event is seen complete. Left to the device unless luck is to say so, and
    /// no question at all if the program has seen it complete before.
    pub(crate) fn seen(&self, event: Token, nth: u32) -> Result<bool, Stop> {
        let (stream, place, record) = {
            let tables = self.run.tables();
            let records = tables.events.get(&event).map_or(&[][..], |row| &row.records);
            let count = records.len().min(nth as usize);
            match records[..count].last() {
                Some(record) if !record.known => (record.stream, record.nth, Arc::clone(&record.event)),
                Some(_) | None => return Ok(true),
            }
        };
        let wanted = self.wanted(Kind::Poll);
        if !locked(&self.run.luck).not_yet() && wanted != Some(Pick::Poll { done: false }) {
            self.run.shared.open_gate();
        }
        if wanted == Some(Pick::Poll { done: true }) {
            let words = format!("{} complete?", self.run.source.token(event));
            self.wait_for(&words, |_| record.query())?;
        }
        let done = record.query()? == Progress::Complete;
        if !locked(&self.run.luck).not_yet() {
            self.run.shared.open_gate();
        }
        if done {
            self.run.tables().know(stream, place + 1);
        }
        self.took(wanted, Pick::Poll { done });
        Ok(done)
    }
}
