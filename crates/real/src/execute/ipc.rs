//! Handles and mappings of a program.
//!
//! Not here: the exchange that carries handles itself (`exchange.rs`).

use std::sync::Arc;

use rankcheck_model::{MemoryKind, Op, Operand};

use super::inspect::WaitsFor;
use super::tables::{Lends, MappingRow, Physical};
use super::thread::{Stop, Thread};
use super::value::{Base, Buffer, Lent, Made, Owner, Value};
use super::words;
use crate::Error;
use crate::ipc::{Handle, Mapping};

/// `cudaErrorInvalidValue`.
pub(crate) const INVALID_VALUE: i32 = 1;

impl Thread<'_, '_> {
    pub(crate) fn export(&mut self, verb: &Op, buffer: &Operand) -> Result<Value, Stop> {
        let text = self.words(verb);
        match self.lend(&text, buffer)? {
            Some(lent) => Ok(Value::Handle(Arc::new(lent))),
            None => Ok(Value::Null),
        }
    }

    /// A handle of the allocation in which a buffer lies; nothing if there can be none.
    pub(crate) fn lend(&mut self, text: &str, buffer: &Operand) -> Result<Option<Lent>, Stop> {
        let Value::Buffer(buffer) = self.value(buffer) else {
            self.failed("ipc.export".to_owned(), INVALID_VALUE, None);
            return Ok(None);
        };
        let result = self.inside(text, WaitsFor::Hosts, |thread| {
            let tables = thread.run.tables();
            let row = tables.memory.get(&buffer.memory);
            let Some((row, Physical::Ordinary(memory))) =
                row.and_then(|row| row.physical.as_ref().map(|physical| (row, physical)))
            else {
                return Ok(None);
            };
            let handle = Handle::export(&thread.device, memory)?;
            Ok::<_, Error>(Some(Lent {
                rank: thread.run.rank,
                name: words::memory(&*thread.run.source, buffer.memory),
                len_bytes: row.asked_bytes,
                bytes: handle.0.to_vec(),
            }))
        });
        let Some(lent) = self.noted("ipc.export", result)? else { return Ok(None) };
        if lent.is_none() {
            // The driver refuses memory of `ncclMemAlloc` with this code (measured).
            self.failed("ipc.export".to_owned(), INVALID_VALUE, None);
        } else {
            self.run.tables().lends = Lends::Memory;
        }
        Ok(lent)
    }

    pub(crate) fn open(&mut self, verb: &Op, handle: &Operand) -> Result<Value, Stop> {
        let text = self.words(verb);
        let Value::Handle(lent) = self.value(handle) else {
            self.failed("ipc.open".to_owned(), INVALID_VALUE, None);
            return Ok(Value::Null);
        };
        self.map_lent(&text, &lent)
    }

    /// Opens a handle. One that is open already gives the same mapping.
    pub(crate) fn map_lent(&mut self, text: &str, lent: &Lent) -> Result<Value, Stop> {
        let Ok(bytes) = lent.bytes.clone().try_into() else {
            return Err(Stop::Failed(format!("a handle of {} bytes", lent.bytes.len())));
        };
        let handle = Handle(bytes);
        let opened = self.inside(text, WaitsFor::Hosts, |thread| Mapping::open(&thread.device, &handle));
        let mapping = match opened {
            Ok(mapping) => mapping,
            Err(error) => {
                let Some(code) = error.cuda_code() else { return Err(error.into()) };
                let code = i32::try_from(code).unwrap_or(i32::MAX);
                self.failed("ipc.open".to_owned(), code, Some(error.to_string()));
                self.unbroken(&error)?;
                return Ok(Value::Null);
            }
        };
        let mut tables = self.run.tables();
        let known = |row: &MappingRow| !row.open.is_empty() && (row.of, row.handle) == (lent.rank, handle);
        let at = tables.mappings.iter().position(known).unwrap_or_else(|| {
            let (of, name) = (lent.rank, lent.name.clone());
            tables.mappings.push(MappingRow { of, name, handle, open: Vec::new() });
            tables.mappings.len() - 1
        });
        let memory = Made { owner: Owner::Peer(lent.rank), nth: u32::try_from(at).expect("few mappings") };
        let base = Base { first: memory, address: mapping.address() };
        tables.mappings[at].open.push(mapping);
        Ok(Value::Buffer(Arc::new(Buffer {
            block: None,
            memory,
            base,
            offset_bytes: 0,
            len_bytes: lent.len_bytes,
            // Never shown: a mapping goes by what its owner calls the memory.
            name: self.run.source.default_stream(),
            grew: false,
        })))
    }

    pub(crate) fn close(&mut self, verb: &Op, mapping: &Operand) -> Result<(), Stop> {
        let text = self.words(verb);
        let open = {
            let mut tables = self.run.tables();
            let buffer = tables.buffer(&*self.run.source, mapping);
            let nth = buffer.and_then(|buffer| match buffer.memory.owner {
                Owner::Peer(_) => Some(buffer.memory.nth as usize),
                Owner::Pool(_) | Owner::Program(_) => None,
            });
            nth.and_then(|nth| tables.mappings[nth].open.pop())
        };
        let Some(open) = open else {
            self.failed("ipc.close".to_owned(), INVALID_VALUE, None);
            return Ok(());
        };
        let result = self.inside(&text, WaitsFor::Hosts, |_| open.end());
        self.noted("ipc.close", result).map(drop)
    }

    /// Whether memory can be shared with other processes by a handle.
    pub(crate) fn shareable(&self, buffer: &Buffer) -> bool {
        let tables = self.run.tables();
        let physical = tables.memory.get(&buffer.memory).and_then(|row| row.physical.as_ref());
        physical.is_some_and(|physical| physical.kind() == MemoryKind::Cuda)
    }
}
