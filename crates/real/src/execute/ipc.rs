//! Handles and mappings of a program.
//!
//! Not here: the exchange that carries handles itself, shareable ones among them (`exchange.rs`).

use std::sync::Arc;

use rankcheck_model::host::value::{Buffer, MappingId, Value};
use rankcheck_model::{IpcOp, Operand};

use super::dispatch::{Execute, Produced};
use super::inspect::WaitsFor;
use super::tables::{Exports, MappingRow, Physical};
use super::thread::{Halt, ProgramThread};
use super::value::{Base, ExportedHandle, OnDevice, Provenance, own_memory};
use crate::Error;
use crate::ipc::{IpcHandleBytes, PeerMapping};

/// `cudaErrorInvalidValue`, for handles and memory that IPC does not take.
pub(crate) const INVALID_VALUE: i32 = 1;

impl Execute for IpcOp {
    fn execute(&self, thread: &mut ProgramThread<'_, '_>, text: &str) -> Produced {
        match self {
            Self::Export { buffer } => {
                let exported = thread.export(text, buffer)?;
                let handle = |exported: ExportedHandle| Value::Handle(exported.rank, Arc::new(exported));
                Ok(vec![exported.map_or(Value::Null, handle)])
            }
            Self::ExportShareable { .. } => {
                unreachable!("no verb of a spec makes it: recorded runs do, and are not run again")
            }
            Self::Open { handle } => thread.open(text, handle).map(|mapping| vec![mapping]),
            Self::Close { mapping } => thread.close(text, mapping).map(|()| Vec::new()),
        }
    }
}

impl ProgramThread<'_, '_> {
    /// A handle of the allocation in which a buffer lies; nothing if there can be none.
    pub(crate) fn export(&mut self, text: &str, buffer: &Operand) -> Result<Option<ExportedHandle>, Halt> {
        let Value::Buffer(buffer) = self.value(buffer) else {
            self.failed("ipc.export".to_owned(), INVALID_VALUE, None);
            return Ok(None);
        };
        let result = self.inside(text, WaitsFor::Hosts, |thread| {
            let tables = thread.run.tables();
            let Some(own) = own_memory(&buffer) else { return Ok(None) };
            let row = tables.memory.get(&own);
            let Some((row, Physical::Ordinary(memory))) =
                row.and_then(|row| row.physical.as_ref().map(|physical| (row, physical)))
            else {
                return Ok(None);
            };
            let handle = IpcHandleBytes::export(&thread.device, memory)?;
            Ok::<_, Error>(Some(ExportedHandle {
                rank: thread.run.rank,
                name: own.display(|name| thread.run.source.token(name)),
                len_bytes: row.asked_bytes,
                bytes: handle.0.to_vec(),
            }))
        });
        let Some(exported) = self.noted("ipc.export", result)? else { return Ok(None) };
        if exported.is_none() {
            // The driver refuses memory of `ncclMemAlloc` with this code (measured).
            self.failed("ipc.export".to_owned(), INVALID_VALUE, None);
        } else {
            self.run.tables().exports = Exports::Memory;
        }
        Ok(exported)
    }

    fn open(&mut self, text: &str, handle: &Operand) -> Result<Value<OnDevice>, Halt> {
        let Value::Handle(_, exported) = self.value(handle) else {
            self.failed("ipc.open".to_owned(), INVALID_VALUE, None);
            return Ok(Value::Null);
        };
        self.map_exported(text, &exported)
    }

    /// Opens a handle. One that is open already gives the same mapping.
    pub(crate) fn map_exported(
        &mut self,
        text: &str,
        exported: &ExportedHandle,
    ) -> Result<Value<OnDevice>, Halt> {
        let Ok(bytes) = exported.bytes.clone().try_into() else {
            return Err(Halt::Failed(format!("a handle of {} bytes", exported.bytes.len())));
        };
        let handle = IpcHandleBytes(bytes);
        let opened = self.inside(text, WaitsFor::Hosts, |thread| PeerMapping::open(&thread.device, &handle));
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
        Ok(self.mapped(exported, Some(handle), mapping))
    }

    /// The buffer of a mapping. One of CUDA IPC that is open already is counted.
    pub(crate) fn mapped(
        &self,
        exported: &ExportedHandle,
        handle: Option<IpcHandleBytes>,
        mapping: PeerMapping,
    ) -> Value<OnDevice> {
        let mut tables = self.run.tables();
        let known = |row: &MappingRow| {
            handle.is_some() && !row.open.is_empty() && (row.of, row.handle) == (exported.rank, handle)
        };
        let at = tables.mappings.iter().position(known).unwrap_or_else(|| {
            let (of, name) = (exported.rank, exported.name.clone());
            tables.mappings.push(MappingRow { of, name, handle, open: Vec::new() });
            tables.mappings.len() - 1
        });
        let through = MappingId { of: exported.rank, nth: u32::try_from(at).expect("few mappings") };
        let memory = Provenance::Mapped(through);
        let address = Base { first: memory, address: mapping.address() };
        tables.mappings[at].open.push(mapping);
        Value::Buffer(Arc::new(Buffer {
            block: None,
            memory,
            address,
            offset_bytes: 0,
            len_bytes: exported.len_bytes,
            memory_len_bytes: exported.len_bytes,
            // Never shown: a mapping goes by what its owner calls the memory.
            name: self.run.source.default_stream(),
            through: Some(through),
            grew: false,
        }))
    }

    fn close(&mut self, text: &str, mapping: &Operand) -> Result<(), Halt> {
        let open = {
            let mut tables = self.run.tables();
            let buffer = tables.buffer(&*self.run.source, mapping);
            let through = buffer.and_then(|buffer| buffer.through);
            through.and_then(|mapping| tables.mappings[mapping.nth as usize].open.pop())
        };
        let Some(open) = open else {
            self.failed("ipc.close".to_owned(), INVALID_VALUE, None);
            return Ok(());
        };
        let result = self.inside(text, WaitsFor::Hosts, |_| open.end());
        self.noted("ipc.close", result).map(drop)
    }
}
