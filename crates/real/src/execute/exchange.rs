//! The exchange of handles of a program: what every member brings goes to all of them, and each opens the handles of
//! the others.
//!
//! Handles of CUDA IPC are bytes and travel with the rest. Shareable handles are file descriptors: the coordinator
//! carries the names of sockets, and members send the descriptors to one another. Members compare kinds and sizes and
//! nothing else. Not here: handles that a program carries itself (`ipc.rs`).

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rankcheck_model::host::value::{Buffer, MemoryId, Value};
use rankcheck_model::{ExchangeOp, HandleKind, Operand, Rank, Token};
use serde::{Deserialize, Serialize};

use super::dispatch::{Execute, Produced};
use super::inspect::WaitsFor;
use super::ipc::INVALID_VALUE;
use super::tables::{Exports, MemoryRow, Physical};
use super::thread::{Halt, ProgramThread};
use super::value::{ExportedHandle, OnDevice, own_memory};
use crate::Error;
use crate::ipc::{HandleInbox, PeerMapping, ShareableHandle};

/// What a member brings.
#[derive(Debug, Serialize, Deserialize)]
struct Contribution {
    /// Of the whole allocation.
    len_bytes: u64,
    #[serde(rename = "lent")]
    exported: ExportedHandle,
    /// None of memory that has a handle of CUDA IPC.
    shareable: Option<Offer>,
}

/// A shareable handle that a member offers.
#[derive(Debug, Serialize, Deserialize)]
struct Offer {
    /// The socket at which the member expects the handles of the others.
    inbox: String,
    /// The bytes that the handle names.
    mapped_bytes: u64,
}

/// The memory that this rank brings.
struct OwnShare {
    whole: Buffer<OnDevice>,
    contribution: Contribution,
    /// None of memory that has a handle of CUDA IPC.
    shareable: Option<(ShareableHandle, HandleInbox)>,
}

impl Execute for ExchangeOp {
    fn execute(&self, thread: &mut ProgramThread<'_, '_>, text: &str) -> Produced {
        let Self { members, name, buffer } = self;
        thread.exchange(text, members, *name, buffer)
    }
}

impl ProgramThread<'_, '_> {
    fn exchange(
        &mut self,
        text: &str,
        members: &Arc<[Rank]>,
        name: Token,
        buffer: &Operand,
    ) -> Result<Vec<Value<OnDevice>>, Halt> {
        let nth = {
            let mut tables = self.run.tables();
            let count = tables.exchanges.entry(Arc::clone(members)).or_default();
            *count += 1;
            *count - 1
        };
        let share = self.own_share(text, buffer)?;
        let sent = serde_json::to_value(share.as_ref().map(|share| &share.contribution));
        let sent = sent.map_err(|error| Halt::Failed(error.to_string()))?;
        self.end_turn()?;
        let host = &*self.run.host;
        let all = self.inside(text, WaitsFor::Hosts, |_| host.gather(members, nth, sent))?;
        let all: Result<Vec<Option<Contribution>>, _> = all.into_iter().map(serde_json::from_value).collect();
        let all = all.map_err(|error| Halt::Failed(error.to_string()))?;
        let call = format!("exchange {}", self.run.source.token(name));
        let all: Option<Vec<Contribution>> = all.into_iter().collect();
        let (Some(all), Some(share)) = (all, share) else {
            self.failed(call, INVALID_VALUE, None);
            return Ok(vec![Value::Null; members.len()]);
        };
        let differ = |what: &dyn Fn(&Contribution) -> u64| all.iter().any(|of| what(of) != what(&all[0]));
        let why = if differ(&|of| u64::from(of.shareable.is_some())) {
            Some("the handles are of two kinds")
        } else if differ(&|of| of.len_bytes) {
            Some("the sizes differ")
        } else {
            None
        };
        if let Some(why) = why {
            self.failed(call, INVALID_VALUE, Some(why.to_owned()));
            return Ok(vec![Value::Null; members.len()]);
        }
        let others: Vec<(Rank, &Contribution)> =
            members.iter().copied().zip(&all).filter(|(member, _)| *member != self.run.rank).collect();
        let handles = match &share.shareable {
            Some((own, inbox)) => {
                let rank = self.run.rank;
                self.inside(text, WaitsFor::Hosts, |_| trade(rank, own, inbox, &others))?
            }
            None => BTreeMap::new(),
        };
        let mut mapped = Vec::with_capacity(all.len());
        for (member, other) in members.iter().zip(&all) {
            mapped.push(match (&other.shareable, handles.get(member)) {
                _ if *member == self.run.rank => Value::Buffer(Arc::new(share.whole.clone())),
                (Some(offer), Some(handle)) => self.map_imported(text, &other.exported, offer, handle)?,
                (Some(_), None) | (None, _) => self.map_exported(text, &other.exported)?,
            });
        }
        Ok(mapped)
    }

    /// The handle of the allocation in which a buffer lies, as its memory has one; nothing if there can be none.
    fn own_share(&mut self, text: &str, buffer: &Operand) -> Result<Option<OwnShare>, Halt> {
        let value = self.value(buffer);
        let Some(memory) = value.buffer().and_then(|own| own_memory(own)) else { return Ok(None) };
        let found = {
            let tables = self.run.tables();
            let row = tables.memory.get(&memory);
            row.and_then(|row| {
                let handle = row.physical.as_ref()?.handle();
                Some((Arc::clone(&row.whole), row.asked_bytes, handle))
            })
        };
        let Some((all, asked_bytes, handle)) = found else { return Ok(None) };
        let whole = Buffer { block: None, len_bytes: asked_bytes, ..Buffer::clone(&all) };
        let len_bytes = all.len_bytes;
        if handle == HandleKind::Ipc {
            let exported = self.export(text, buffer)?;
            return Ok(exported.map(|exported| OwnShare {
                whole,
                contribution: Contribution { len_bytes, exported, shareable: None },
                shareable: None,
            }));
        }
        let exported = ExportedHandle {
            rank: self.run.rank,
            name: memory.display(|name| self.run.source.token(name)),
            len_bytes: asked_bytes,
            bytes: Vec::new(),
        };
        let result = self.inside(text, WaitsFor::Hosts, |thread| thread.export_shareable(memory));
        let Some(Some((own, inbox))) = self.noted("exchange", result)? else { return Ok(None) };
        self.run.tables().exports = Exports::Memory;
        let offer = Offer { inbox: inbox.name().to_owned(), mapped_bytes: own.mapped_bytes() };
        Ok(Some(OwnShare {
            whole,
            contribution: Contribution { len_bytes, exported, shareable: Some(offer) },
            shareable: Some((own, inbox)),
        }))
    }

    fn export_shareable(&self, memory: MemoryId) -> Result<Option<(ShareableHandle, HandleInbox)>, Error> {
        let tables = self.run.tables();
        let row: Option<&MemoryRow> = tables.memory.get(&memory);
        let Some(Physical::Segment(segment)) = row.and_then(|row| row.physical.as_ref()) else {
            return Ok(None);
        };
        Ok(Some((ShareableHandle::export(&self.device, segment)?, HandleInbox::open()?)))
    }

    fn map_imported(
        &self,
        text: &str,
        exported: &ExportedHandle,
        offer: &Offer,
        handle: &OwnedFd,
    ) -> Result<Value<OnDevice>, Halt> {
        let bytes = offer.mapped_bytes;
        let opened =
            self.inside(text, WaitsFor::Hosts, |thread| PeerMapping::import(&thread.device, handle, bytes));
        let mapping = match opened {
            Ok(mapping) => mapping,
            Err(error) => {
                let Some(code) = error.cuda_code() else { return Err(error.into()) };
                let code = i32::try_from(code).unwrap_or(i32::MAX);
                self.failed("exchange".to_owned(), code, Some(error.to_string()));
                self.unbroken(&error)?;
                return Ok(Value::Null);
            }
        };
        Ok(self.mapped(exported, None, mapping))
    }
}

/// Sends the own handle to all others, and waits for one of each.
fn trade(
    rank: Rank,
    own: &ShareableHandle,
    inbox: &HandleInbox,
    others: &[(Rank, &Contribution)],
) -> Result<BTreeMap<Rank, OwnedFd>, Error> {
    for (_, other) in others {
        if let Some(offer) = &other.shareable {
            own.send(&offer.inbox, rank.0)?;
        }
    }
    let mut handles = BTreeMap::new();
    while handles.len() < others.len() {
        let (of, handle) = inbox.receive()?;
        handles.insert(Rank(of), handle);
    }
    Ok(handles)
}
