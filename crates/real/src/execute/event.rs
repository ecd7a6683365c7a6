//! Events of a program on the device: records, and what is seen of them.
//!
//! Not here: waits for events ([`super::stream`]).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use rankcheck_model::{EventOp, Token};

use super::device::locked;
use super::dispatch::{Execute, Produced};
use super::inspect::WaitsFor;
use super::nondet::NondetKind;
use super::tables::EventRecord;
use super::thread::{Halt, ProgramThread, refused_by_capture};
use crate::Error;
use crate::case::NondetValue;
use crate::event::CudaEvent;
use crate::ffi::cuda::Completion;
use crate::graph::Capturing;

/// How long a stream is kept busy at most, so that an event on it is not complete too early.
const HOLD_NANOSECONDS: u64 = 200_000_000;

impl Execute for EventOp {
    fn execute(&self, thread: &mut ProgramThread<'_, '_>, text: &str) -> Produced {
        let Self { event, stream } = self;
        thread.event_record(text, *event, *stream).map(|()| Vec::new())
    }
}

impl ProgramThread<'_, '_> {
    fn event_record(&self, text: &str, event: Token, stream: Token) -> Result<(), Halt> {
        let (at, on) = self.stream(stream)?;
        let record = Arc::new(self.run.shared.event(&self.device)?);
        let captured = on.capturing()? != Capturing::No;
        let hold = !captured && locked(&self.run.nondet).not_yet();
        let result = self.inside(text, WaitsFor::Hosts, |thread| {
            let shared = thread.run.shared;
            if hold {
                // Somebody is to see an event before it is complete; without this it would be too late.
                let ticket = shared.ticket.fetch_add(1, Ordering::SeqCst) + 1;
                shared.code.spin(&shared.gate, ticket, HOLD_NANOSECONDS, &on)?;
            }
            record.record(&on)
        });
        if self.noted(text, result)?.is_some() {
            let mut tables = self.run.tables();
            if captured {
                if let Some(before) = tables.captured_events.insert(event, record) {
                    tables.marks.push(before);
                }
                return Ok(());
            }
            let left = tables.captured_events.remove(&event);
            tables.marks.extend(left);
            self.run.shared.inspect.launched(at, Some((self.number, self.at().index)), Arc::clone(&record));
            let nth = tables.recorded;
            tables.recorded += 1;
            let records = &mut tables.events.entry(event).or_default().records;
            records.push(EventRecord { event: record, stream, nth, known: false });
        }
        Ok(())
    }

    /// The most recent record of an event, one that was captured before any other; none before the first.
    pub(crate) fn last_record(&self, event: Token) -> Option<Arc<CudaEvent>> {
        let tables = self.run.tables();
        let records = tables.events.get(&event).map(|row| &row.records);
        let last = records.and_then(|records| records.last()).map(|record| &record.event);
        tables.captured_events.get(&event).or(last).map(Arc::clone)
    }

    /// Whether an event is seen complete. A capture may forbid to ask, and of a record that was captured nobody may.
    pub(crate) fn query(&self, event: Token) -> Result<bool, Halt> {
        let captured = self.run.tables().captured_events.contains_key(&event);
        if captured || self.run.tables().captures() {
            let last = match self.last_record(event) {
                Some(last) => last,
                None => Arc::new(self.run.shared.event(&self.device)?),
            };
            let result = self.unrelaxed(|| last.query());
            self.run.tables().marks.push(last);
            let refused = |error: &Error| captured || error.cuda_code().is_some_and(refused_by_capture);
            if result.as_ref().is_err_and(refused) {
                let call = format!("{}.query", self.run.source.token(event));
                return self.noted(&call, result).map(|_| false);
            }
        }
        self.seen(event, u32::MAX)
    }

    /// Whether the n-th record of an event is seen complete. Left to the device unless the case forces it, and
    /// no question at all if the program has seen it complete before.
    pub(crate) fn seen(&self, event: Token, nth: u32) -> Result<bool, Halt> {
        let (stream, position, record) = {
            let tables = self.run.tables();
            match tables.record(event, nth) {
                Some(record) if !record.known => (record.stream, record.nth, Arc::clone(&record.event)),
                Some(_) | None => return Ok(true),
            }
        };
        let wanted = self.wanted(NondetKind::Poll);
        if !locked(&self.run.nondet).not_yet() && wanted != Some(NondetValue::Poll { done: false }) {
            self.run.shared.open_gate();
        }
        if wanted == Some(NondetValue::Poll { done: true }) {
            let text = format!("{} complete?", self.run.source.token(event));
            self.wait_for(&text, |_| record.query())?;
        }
        let done = record.query()? == Completion::Complete;
        if !locked(&self.run.nondet).not_yet() {
            self.run.shared.open_gate();
        }
        if done {
            self.run.tables().know(stream, position + 1);
        }
        self.took(wanted, NondetValue::Poll { done });
        Ok(done)
    }
}
